/* Loads the weights, layer by layer, from the named tensors of a checkpoint into the backend's matrices.
 *
 * Matrices that read the same input (queries, keys and values; gate and up) are stacked into one matrix, so that the
 * forward pass reads each activation once. loader.h explains the two walks. */
#include "model/loader.h"

/* ---- Parts of a layer -------------------------------------------------------------------------------------------- */

/* Loads the weight of a norm and its bias, if it has one and `bias` is not NULL. */
static um_status load_norm(um_loader *l, um_vector **w, um_vector **bias, const char *pattern, int32_t layer,
                           um_err *err) {
    const um_tensor_part p = {pattern, l->m->arch.hidden};
    um_status s = um_load_vector(l, w, &p, 1, layer, ".weight", NULL, err);
    if (!s && bias && l->m->arch.layer_norm) s = um_load_vector(l, bias, &p, 1, layer, ".bias", NULL, err);
    return s;
}

static um_status load_head_norm(um_loader *l, um_vector **out, const char *pattern, int32_t layer, um_err *err) {
    const um_tensor_part p = {pattern, um_arch_kind_of(&l->m->arch, layer)->head_dim};
    return um_load_vector(l, out, &p, 1, layer, ".weight", NULL, err);
}

/* Loads the matrices `p` [n] as one linear layer, without its bias. */
static um_status load_linear(um_loader *l, um_linear *out, const um_tensor_part *p, int n, int64_t cols, int32_t layer,
                             const um_cut *cut, um_err *err) {
    um_status s = um_load_matrix(l, &out->w, p, n, cols, layer, UM_USE_PRODUCT, cut, err);
    if (s) return s;
    return um_load_low_rank(l, &out->low_rank, p, n, cols, layer, UM_MODULE_LAYER, l->m->dtype, cut, err);
}

/* Returns the cut of columns. A unit of `unit` columns stays whole. */
static um_cut cut_of_columns(int64_t n, int64_t unit) {
    return (um_cut){.kind = UM_CUT_COLUMNS, .n_parts = 1, .part = {{n, unit}}};
}

/* Returns the cut of two equal parts, gate and up. */
static um_cut cut_of_pair(int64_t n, int64_t unit) {
    return (um_cut){.kind = UM_CUT_ROWS, .n_parts = 2, .part = {{n, unit}, {n, unit}}};
}

/* Returns the unit in which a width is divided among the ranks. */
static int64_t unit_of(const um_loader *l, int64_t width) {
    return um_cut_unit(width, UM_MAX(l->m->n_ranks, 1), l->m->net.cut_grid);
}

/* The bias of a layer that is cut by columns. */
static const um_cut added_once = {.kind = UM_CUT_OWNED, .owner = 0};

/* Whole heads are divided among ranks: queries, keys and values each. */
static um_cut cut_of_heads(const um_arch_kind *k) {
    const int64_t d = k->head_dim, q = k->n_heads * d, kv = k->n_kv_heads * d;
    return (um_cut){.kind = UM_CUT_ROWS, .n_parts = 3, .part = {{q, d}, {kv, d}, {kv, d}}};
}

static um_status load_attention(um_loader *l, um_layer *y, int32_t i, um_err *err) {
    const um_arch *a = &l->m->arch;
    const um_tensor_names *n = a->family->names;
    const um_arch_kind *k = um_arch_kind_of(a, i);
    const int64_t q = (int64_t)k->n_heads * k->head_dim, kv = (int64_t)k->n_kv_heads * k->head_dim;
    const um_tensor_part apart[] = {{n->q, q}, {n->k, kv}, {k->v_is_k ? n->k : n->v, kv}},
                         fused[] = {{n->qkv, q + 2 * kv}};
    const um_tensor_part *qkv = n->qkv ? fused : apart, o = {n->o, a->hidden};
    const um_cut heads = cut_of_heads(k), of_o = cut_of_columns(q, k->head_dim);
    const int n_qkv = n->qkv ? 1 : l->list && k->v_is_k ? 2 : 3; /* a list has each tensor once */
    um_status s = load_norm(l, &y->attn_norm, &y->attn_norm_bias, n->attn_norm, i, err);
    if (!s) s = load_linear(l, &y->qkv, qkv, n_qkv, a->hidden, i, &heads, err);
    if (!s && a->qkv_bias) s = um_load_vector(l, &y->qkv.bias, qkv, n_qkv, i, ".bias", &heads, err);
    if (!s && a->qk_norm) s = load_head_norm(l, &y->q_norm, n->q_norm, i, err);
    if (!s && a->qk_norm) s = load_head_norm(l, &y->k_norm, n->k_norm, i, err);
    if (!s) s = load_linear(l, &y->o, &o, 1, q, i, &of_o, err);
    if (!s && a->o_bias) s = um_load_vector(l, &y->o.bias, &o, 1, i, ".bias", &added_once, err);
    if (!s && k->post_norms) s = load_norm(l, &y->attn_post_norm, NULL, n->attn_post_norm, i, err);
    return s;
}

static um_status load_dense(um_loader *l, um_layer *y, int32_t i, um_err *err) {
    const um_arch *a = &l->m->arch;
    const um_tensor_names *n = a->family->names;
    const int32_t ff = um_arch_kind_of(a, i)->n_ff;
    const um_tensor_part gate_up[] = {{n->gate, ff}, {n->up, ff}}, down = {n->down, a->hidden};
    const um_cut rows = cut_of_pair(ff, unit_of(l, ff)), columns = cut_of_columns(ff, unit_of(l, ff));
    um_status s = load_linear(l, &y->gate_up, gate_up, 2, a->hidden, i, &rows, err);
    if (!s && a->mlp_bias) s = um_load_vector(l, &y->gate_up.bias, gate_up, 2, i, ".bias", &rows, err);
    if (!s) s = load_linear(l, &y->down, &down, 1, ff, i, &columns, err);
    if (!s && a->mlp_bias) s = um_load_vector(l, &y->down.bias, &down, 1, i, ".bias", &added_once, err);
    return s;
}

/* ---- Mixtures of experts ----------------------------------------------------------------------------------------- */

/* Returns the layout of a layer's experts: the first one whose tensor is stored. If none is stored, returns the first
 * layout, so that the message about the missing tensor uses the name in the releases. */
static const um_expert_names *expert_layout(const um_loader *l, int32_t layer) {
    const um_expert_names *first = l->m->arch.family->names->experts;
    for (const um_expert_names *n = first; n->gate; n++)
        if (um_loader_find_expert(l, n->gate, layer, 0)) return n;
    return first;
}

/* Returns the pattern for stacks with the rows of gate and up, when those of this layout lie in two stacks, or NULL. */
static const char *joined_stack(const um_loader *l, const um_expert_names *layout) {
    if (!layout->stacked || !layout->up) return NULL;
    for (const um_expert_names *n = l->m->arch.family->names->experts; n->gate; n++)
        if (n->stacked && !n->up) return n->gate;
    return NULL;
}

/* How the matrices of an expert are divided. */
typedef struct expert_cut {
    um_cut gate_up, down;
} expert_cut;

static expert_cut cut_of_expert(const um_loader *l, int32_t e, int64_t ff) {
    const um_network *n = &l->m->net;
    const int32_t ranks = UM_MAX(l->m->n_ranks, 1), E = l->m->arch.route.n_experts;
    const um_cut owned = {.kind = UM_CUT_OWNED, .owner = (int32_t)((int64_t)e * ranks / E)};
    if (n->expert_parallel) return (expert_cut){owned, owned};
    return (expert_cut){cut_of_pair(ff, unit_of(l, ff)), cut_of_columns(ff, unit_of(l, ff))};
}

static um_status load_routed(um_loader *l, um_layer *y, int32_t i, um_err *err) {
    const um_arch *a = &l->m->arch;
    const um_expert_names *n = expert_layout(l, i);
    const int64_t ff = a->expert_ff;
    const um_tensor_part apart[] = {{n->gate, ff}, {n->up, ff}}, fused[] = {{n->gate, 2 * ff}},
                         down = {n->down, a->hidden};
    const size_t E = (size_t)a->route.n_experts;
    const int32_t n_walked =
        l->list && n->stacked ? 1 : a->route.n_experts; /* a walk that only lists names visits a stack once */
    um_status s = UM_OK;
    if (l->only_adapters && !l->check) return UM_OK;
    if (!l->check) {
        y->expert_gate_up = UM_NEW_ARRAY(um_weight *, E);
        y->expert_down = UM_NEW_ARRAY(um_weight *, E);
    }
    for (int32_t e = 0; e < n_walked && !s; e++) {
        um_weight **gate_up = l->check ? NULL : &y->expert_gate_up[e], **out = l->check ? NULL : &y->expert_down[e];
        const expert_cut cut = cut_of_expert(l, e, ff);
        s = um_load_expert(l, gate_up, n->up ? apart : fused, n->up ? 2 : 1, joined_stack(l, n), a->hidden, i, e,
                           n->stacked, &cut.gate_up, err);
        if (!s) s = um_load_expert(l, out, &down, 1, NULL, ff, i, e, n->stacked, &cut.down, err);
    }
    return s;
}

static um_status load_shared(um_loader *l, um_layer *y, int32_t i, um_err *err) {
    const um_arch *a = &l->m->arch;
    const um_tensor_names *n = a->family->names;
    const um_tensor_part gate_up[] = {{n->shared_gate, a->shared_ff}, {n->shared_up, a->shared_ff}},
                         down = {n->shared_down, a->hidden};
    const int64_t unit = unit_of(l, a->shared_ff);
    const um_cut rows = cut_of_pair(a->shared_ff, unit), columns = cut_of_columns(a->shared_ff, unit);
    um_status s = load_linear(l, &y->shared_gate_up, gate_up, 2, a->hidden, i, &rows, err);
    return s ? s : load_linear(l, &y->shared_down, &down, 1, a->shared_ff, i, &columns, err);
}

/* Returns the first name under which a correction bias is stored. */
static const char *router_bias_name(const um_loader *l, int32_t layer) {
    const um_tensor_names *n = l->m->arch.family->names;
    for (size_t i = 0; i < UM_LEN(n->router_bias) && n->router_bias[i]; i++)
        if (um_loader_find(l, n->router_bias[i], layer, "")) return n->router_bias[i];
    return n->router_bias[0];
}

/* Loads the norms of a dense branch and experts, the weight of the router's norm, and the factors of the experts. */
static um_status load_moe_norms(um_loader *l, um_layer *y, int32_t i, um_err *err) {
    const um_arch *a = &l->m->arch;
    const um_tensor_names *n = a->family->names;
    const um_tensor_part router = {n->router_norm, a->hidden}, scale = {n->expert_scale, a->route.n_experts};
    um_status s = load_norm(l, &y->dense_post_norm, NULL, n->dense_post_norm, i, err);
    if (!s) s = load_norm(l, &y->expert_norm, NULL, n->expert_norm, i, err);
    if (!s) s = load_norm(l, &y->expert_post_norm, NULL, n->expert_post_norm, i, err);
    if (!s) s = um_load_vector(l, &y->router_norm, &router, 1, i, "", NULL, err);
    return s ? s : um_load_vector(l, &y->expert_scale, &scale, 1, i, "", NULL, err);
}

/* The router stays in fp32, because rounded scores would send tokens to other experts. */
static um_status load_moe(um_loader *l, um_layer *y, int32_t i, um_err *err) {
    const um_arch *a = &l->m->arch;
    const um_tensor_part router = {a->family->names->router, a->route.n_experts},
                         bias = {router_bias_name(l, i), a->route.n_experts};
    um_low_rank **low_rank = &y->router.low_rank;
    um_status s = um_load_matrix(l, &y->router.w, &router, 1, a->hidden, i, UM_USE_EXACT, NULL, err);
    if (!s) s = um_load_low_rank(l, low_rank, &router, 1, a->hidden, i, UM_MODULE_ROUTER, UM_F32, NULL, err);
    if (!s && a->route.bias != UM_BIAS_NONE) s = um_load_vector(l, &y->router_bias, &bias, 1, i, "", NULL, err);
    if (!s) s = load_routed(l, y, i, err);
    if (!s && a->shared_ff) s = load_shared(l, y, i, err);
    return s || !um_arch_kind_of(a, i)->post_norms ? s : load_moe_norms(l, y, i, err);
}

/* ---- A walk over all tensors ------------------------------------------------------------------------------------- */

static um_status load_ends(um_loader *l, um_err *err) {
    struct um_model *m = l->m;
    const um_tensor_names *n = m->arch.family->names;
    const um_tensor_part embed = {n->embed, m->arch.vocab}, head = {n->head, m->arch.vocab};
    um_status s = um_load_matrix(l, &m->net.embed, &embed, 1, m->arch.hidden, 0, UM_USE_TABLE, NULL, err);
    if (!s) s = load_norm(l, &m->net.final_norm, &m->net.final_norm_bias, n->final_norm, 0, err);
    if (s) return s;
    const um_tensor *stored = um_loader_find(l, n->head, 0, ".weight");
    const um_cut rows = {.kind = UM_CUT_ROWS, .n_parts = 1, .part = {{m->arch.vocab, UM_HEAD_UNIT}}};
    if (!m->arch.tied) {
        s = l->check ? um_check_tensor_part(l, &head, m->arch.hidden, 0, 0, UM_MODULE_HEAD, err) : UM_OK;
        return s ? s : um_load_matrix(l, &m->net.head, &head, 1, m->arch.hidden, 0, UM_USE_PRODUCT, &rows, err);
    }
    if (stored && l->check) l->used[um_store_index(l->s, stored)] = true; /* some tools store a copy */
    m->net.head = m->net.embed;
    if (l->check || l->sink || l->only_adapters || !m->backend->weight_cut) return UM_OK;
    /* A rank looks up any row of the embedding, but multiplies only some of them. */
    m->net.head = NULL;
    return um_load_matrix(l, &m->net.head, &embed, 1, m->arch.hidden, 0, UM_USE_TABLE, &rows, err);
}

/* Loads the part that conditions a canvas on earlier predictions. */
static um_status load_conditioning(um_loader *l, um_err *err) {
    struct um_model *m = l->m;
    const um_tensor_names *n = m->arch.family->names;
    um_conditioning none = {0}, *c = l->check ? &none : &m->net.conditioning;
    const int32_t H = m->arch.hidden, ff = m->arch.conditioning_ff;
    const um_tensor_part gate_up[] = {{n->cond_gate, ff}, {n->cond_up, ff}}, down = {n->cond_down, H};
    if (!ff) return UM_OK;
    const um_cut rows = cut_of_pair(ff, unit_of(l, ff)), columns = cut_of_columns(ff, unit_of(l, ff));
    um_status s = load_norm(l, &c->norm, NULL, n->cond_norm, 0, err);
    if (!s) s = load_linear(l, &c->gate_up, gate_up, 2, H, 0, &rows, err);
    return s ? s : load_linear(l, &c->down, &down, 1, ff, 0, &columns, err);
}

/* Loads what follows the feed-forward layer: its norm and the factors of both modes. */
static um_status load_end(um_loader *l, um_layer *y, int32_t i, um_err *err) {
    const um_arch *a = &l->m->arch;
    const um_tensor_names *n = a->family->names;
    um_status s = UM_OK;
    if (um_arch_kind_of(a, i)->post_norms) s = load_norm(l, &y->ffn_post_norm, NULL, n->ffn_post_norm, i, err);
    for (int mode = 0; mode < 2 && a->has_modes && !s; mode++) {
        const um_tensor_part p = {n->scale[mode], 1};
        s = um_load_vector(l, &y->scale[mode], &p, 1, i, "", NULL, err);
        if (!s && mode == 0 && l->used) l->m->n_params--; /* see um_arch_params */
    }
    return s;
}

static um_status walk(um_loader *l, um_err *err) {
    const um_arch *a = &l->m->arch;
    um_layer none = {0}; /* not changed by the first walk */
    um_status s = load_ends(l, err);
    if (!s) s = load_conditioning(l, err);
    for (int32_t i = 0; i < a->n_layers && !s; i++) {
        um_layer *y = l->check ? &none : &l->m->net.layer[i];
        const um_arch_kind *k = um_arch_kind_of(a, i);
        y->kind = a->of_layer[i];
        s = load_attention(l, y, i, err);
        if (!s) s = load_norm(l, &y->ffn_norm, &y->ffn_norm_bias, a->family->names->ffn_norm, i, err);
        if (!s && k->n_ff) s = load_dense(l, y, i, err);
        if (!s && k->expert_ff) s = load_moe(l, y, i, err);
        if (!s) s = load_end(l, y, i, err);
    }
    return s;
}

/* ---- After the first walk ---------------------------------------------------------------------------------------- */

/* Returns whether a tensor belongs to a part of the family's models that unmask has no use for. */
static bool is_ignored(const um_family *f, const char *name) {
    for (const char *p = f->ignored ? f->ignored : ""; *p;) {
        const size_t n = strcspn(p, "|");
        if (!strncmp(name, p, n)) return true;
        p += n + (p[n] == '|');
    }
    return false;
}

static void warn_unused(const um_loader *l) {
    size_t n = 0, first = 0, n_ignored = 0;
    for (size_t i = um_store_count(l->s); i-- > 0;) {
        if (l->used[i]) continue;
        if (is_ignored(l->m->arch.family, um_store_at(l->s, i)->name)) {
            n_ignored++;
            continue;
        }
        n++;
        first = i;
    }
    if (n_ignored)
        um_log(UM_LOG_INFO, "%s: %zu tensors of the %s are not read", l->m->path, n_ignored,
               l->m->arch.family->ignored_part);
    if (n)
        um_warn("%s: %zu tensors are not part of the %s architecture and are not used, the first is %s", l->m->path, n,
                l->m->arch.family->name, um_store_at(l->s, first)->name);
}

/* ---- Functions of config.h --------------------------------------------------------------------------------------- */

um_status um_arch_tensors(const um_arch *a, um_tensor_fn fn, void *arg, um_err *err) {
    struct um_model m = {.arch = *a};
    um_loader l = {.m = &m, .check = true, .list = fn, .list_arg = arg};
    return walk(&l, err);
}

um_status um_model_stored_dtype(const um_arch *a, const um_store *s, um_dtype *out, um_err *err) {
    const um_tensor_names *n = a->family->names;
    const um_loader l = {.s = s, .strip = um_loader_strip(n, s)};
    const um_tensor *t = um_loader_find(&l, n->embed, 0, ".weight");
    if (!t)
        return um_fail(err, UM_EMODEL, "tensor %s.weight: expected [%d, %d] from config.json, but no file holds it",
                       n->embed, a->vocab, a->hidden);
    if (um_store_dtype(s, out)) return UM_OK;
    const bool is_narrow = t->type == UM_DTYPE_OTHER ? !um_streq(a->declared_dtype, "float32") : t->type == UM_BF16;
    *out = is_narrow ? UM_BF16 : UM_F32;
    return UM_OK;
}

um_dtype um_model_stored_product(const um_store *s, um_dtype dtype) {
    size_t q8 = 0, q4 = 0, other = 0;
    for (size_t i = 0; i < um_store_count(s); i++) {
        const um_tensor *t = um_store_at(s, i);
        const um_format *f = um_tensor_format(t);
        if (!f || t->n_dims < 2) continue;
        size_t *n = f->product == UM_Q8 ? &q8 : f->product == UM_Q4 ? &q4 : &other;
        *n += um_tensor_elements(t);
    }
    return q8 + q4 <= other ? dtype : q8 >= q4 ? UM_Q8 : UM_Q4;
}

static um_status check_adapters(const um_loader *l, um_err *err) {
    um_status s = UM_OK;
    for (int32_t i = 0; i < l->m->n_adapters && !s; i++)
        s = um_lora_check_unused(&l->m->lora[i], l->m->arch.family->name, l->leaves.data, err);
    return s;
}

static um_loader loader_of(struct um_model *m, const um_store *s) {
    return (um_loader){.m = m, .s = s, .strip = um_loader_strip(m->arch.family->names, s)};
}

static um_status check_model(struct um_model *m, const um_store *s, bool to_load, um_err *err) {
    um_loader l = loader_of(m, s);
    l.check = true;
    l.used = UM_NEW_ARRAY(bool, um_store_count(s) + 1);
    um_status st = walk(&l, err);
    if (!st) st = check_adapters(&l, err);
    m->stored_bytes = l.bytes;
    m->file_bytes = l.stored;
    if (!st && to_load) st = um_store_check_aliases(s, m->arch.family, l.used, err);
    if (!st && to_load) warn_unused(&l);
    um_buf_free(&l.leaves);
    um_free(l.used);
    return st;
}

um_status um_model_check_names(struct um_model *m, const um_store *s, um_err *err) {
    return check_model(m, s, false, err);
}

um_status um_model_check(struct um_model *m, const um_store *s, um_err *err) { return check_model(m, s, true, err); }

/* Appends "name[row, column]" of the first value that is NaN or infinite. */
static void print_first_bad(const um_loader *l, um_buf *out) {
    const um_tensor *t = l->first_bad;
    size_t at = l->first_index, below = 1;
    for (int32_t i = 1; i < t->n_dims; i++) below *= (size_t)t->dim[i];
    um_buf_puts(out, t->name);
    for (int32_t i = 0; i < t->n_dims; i++) {
        um_buf_printf(out, "%s%zu", i ? ", " : "[", at / below);
        at %= below;
        below /= i + 1 < t->n_dims ? (size_t)t->dim[i + 1] : 1;
    }
    um_buf_puts(out, "]");
}

um_status um_loader_fail_bad(const um_loader *l, um_err *err) {
    um_buf first = {0};
    print_first_bad(l, &first);
    um_status s = um_fail(err, UM_EMODEL, "%s: %zu values in %zu tensors are NaN or infinite, the first is %s",
                          l->m->path, l->n_bad_values, l->n_bad_tensors, first.data);
    um_buf_free(&first);
    return s;
}

static um_status report_bad(const um_loader *l, int32_t check, um_err *err) {
    um_err found;
    if (!l->first_bad) return UM_OK;
    um_status s = um_loader_fail_bad(l, &found);
    if (check == UM_CHECK_ERROR)
        return um_fail(err, s, "%s; fetch the weights again, or use --check-weights warn", found.msg);
    um_warn("%s; answers will be wrong: fetch the weights again", found.msg);
    return UM_OK;
}

um_status um_load_meter_add(um_load_meter *p, size_t bytes, um_err *err) {
    um_load_progress *now = &p->now;
    if (!p->fn) return UM_OK;
    now->bytes = UM_MIN(now->bytes + bytes, now->bytes_all);
    now->fraction = now->bytes_all ? (double)now->bytes / (double)now->bytes_all : 1;
    return p->fn(p->arg, now) ? UM_OK : um_fail(err, UM_ECANCELED, "loading %s was canceled", now->path);
}

um_status um_loader_advance(const um_loader *l, const um_tensor *t, int n, um_err *err) {
    size_t bytes = 0;
    if (!l->meter) return UM_OK;
    for (int i = 0; i < n; i++) bytes += um_tensor_bytes(&t[i]);
    return um_load_meter_add(l->meter, bytes, err);
}

static void log_end(const um_loader *l) {
    char bytes[UM_BYTES_TEXT];
    um_log(UM_LOG_INFO, "weights: %s in %.1f s", um_bytes_text(bytes, (double)l->m->weight_bytes), um_now() - l->start);
}

/* Does the second walk, and reports values that are NaN or infinite. */
static um_status walk_values(um_loader *l, int32_t check, um_err *err) {
    struct um_model *m = l->m;
    l->bad = UM_NEW_ARRAY(bool, um_store_count(l->s) + 1);
    l->start = um_now();
    m->net.layer = UM_NEW_ARRAY(um_layer, (size_t)m->arch.n_layers);
    um_status st = check == UM_CHECK_OFF ? UM_OK : um_pool_new(&l->scan, 0, err);
    if (!st && check == UM_CHECK_ERROR) st = um_store_verify(l->s, l->scan, err);
    if (!st) st = walk(l, err);
    if (!st) st = report_bad(l, check, err);
    um_merge_end(l);
    um_pool_free(l->scan);
    um_free(l->bad);
    return st;
}

um_status um_model_load(struct um_model *m, const um_store *s, int32_t check, um_load_meter *meter, um_err *err) {
    um_loader l = loader_of(m, s);
    l.meter = meter;
    um_status st = walk_values(&l, check, err);
    if (!st) log_end(&l);
    for (int32_t i = 0; i < m->n_adapters && !st; i++) st = um_lora_check_values(&m->lora[i], check, err);
    return st;
}

um_status um_model_list(struct um_model *m, const um_store *s, um_parts_fn fn, void *arg, um_err *err) {
    const int64_t n_params = m->n_params; /* um_model_check has counted them */
    um_loader l = loader_of(m, s);
    l.check = true;
    l.used = UM_NEW_ARRAY(bool, um_store_count(s) + 1);
    l.sink = fn;
    l.sink_arg = arg;
    um_status st = walk(&l, err);
    m->n_params = n_params;
    um_buf_free(&l.leaves);
    um_free(l.used);
    return st;
}

um_status um_model_hand_out(struct um_model *m, const um_store *s, um_parts_fn fn, void *arg, um_err *err) {
    um_loader l = loader_of(m, s);
    l.sink = fn;
    l.sink_arg = arg;
    um_status st = walk_values(&l, UM_CHECK_ERROR, err);
    um_model_unload(m); /* it has no weights, but the lists for them */
    return st;
}

static void free_weights(const struct um_model *m, um_weight **w, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (w[i]) m->backend->weight_free(m->device, w[i]);
}

static void free_vector(const struct um_model *m, um_vector *v) {
    if (v) m->backend->vector_free(m->device, v);
}

static void free_experts(const struct um_model *m, um_weight **w) {
    if (w) free_weights(m, w, (size_t)m->arch.route.n_experts);
    um_free(w);
}

static void free_low_rank(const struct um_model *m, um_low_rank *r) {
    free_weights(m, &r->a, 1);
    free_weights(m, &r->b, 1);
    *r = (um_low_rank){0};
}

static void free_linear(const struct um_model *m, um_linear *y) {
    free_weights(m, &y->w, 1);
    for (int32_t i = 0; y->low_rank && i < m->net.n_adapters; i++) free_low_rank(m, &y->low_rank[i]);
    um_free(y->low_rank);
    free_vector(m, y->bias);
}

static void unload_layer(const struct um_model *m, um_layer *y) {
    um_linear *linear[] = {&y->qkv, &y->o, &y->gate_up, &y->down, &y->router, &y->shared_gate_up, &y->shared_down};
    um_vector *v[] = {y->attn_post_norm,   y->ffn_post_norm,  y->dense_post_norm, y->expert_norm,
                      y->expert_post_norm, y->router_norm,    y->expert_scale,    y->scale[0],
                      y->scale[1],         y->attn_norm,      y->ffn_norm,        y->q_norm,
                      y->k_norm,           y->attn_norm_bias, y->ffn_norm_bias,   y->router_bias};
    for (size_t i = 0; i < UM_LEN(linear); i++) free_linear(m, linear[i]);
    free_experts(m, y->expert_gate_up);
    free_experts(m, y->expert_down);
    for (size_t i = 0; i < UM_LEN(v); i++) free_vector(m, v[i]);
}

/* Frees the matrices that an adapter has in this linear layer. */
static void unload_slot(struct um_model *m, um_linear *y, int32_t slot) {
    if (!y->low_rank || !y->low_rank[slot].a) return;
    m->weight_bytes -= m->backend->weight_bytes(y->low_rank[slot].a);
    if (y->low_rank[slot].b) m->weight_bytes -= m->backend->weight_bytes(y->low_rank[slot].b);
    free_low_rank(m, &y->low_rank[slot]);
}

void um_model_unload_slot(struct um_model *m, int32_t slot) {
    for (int32_t i = 0; i < m->net.n_layers; i++) {
        um_layer *y = &m->net.layer[i];
        um_linear *linear[] = {&y->qkv, &y->o, &y->gate_up, &y->down, &y->router, &y->shared_gate_up, &y->shared_down};
        for (size_t k = 0; k < UM_LEN(linear); k++) unload_slot(m, linear[k], slot);
    }
}

um_status um_model_walk_adapters(struct um_model *m, bool check, um_err *err) {
    um_loader l = {.m = m, .check = check, .only_adapters = true};
    um_status st = walk(&l, err);
    if (!st && check) st = check_adapters(&l, err);
    um_buf_free(&l.leaves);
    return st;
}

void um_model_unload(struct um_model *m) {
    um_network *n = &m->net;
    for (int32_t i = 0; n->layer && i < n->n_layers; i++) unload_layer(m, &n->layer[i]);
    um_free(n->layer);
    if (n->head != n->embed) free_weights(m, &n->head, 1);
    free_weights(m, &n->embed, 1);
    free_vector(m, n->final_norm);
    free_vector(m, n->final_norm_bias);
    free_vector(m, n->ones);
    free_vector(m, n->conditioning.norm);
    free_linear(m, &n->conditioning.gate_up);
    free_linear(m, &n->conditioning.down);
    for (int32_t i = 0; i < n->n_rotary; i++) {
        free_vector(m, n->rotary[i].cos);
        free_vector(m, n->rotary[i].sin);
        free_vector(m, n->rotary[i].query);
    }
    *n = (um_network){0};
}
