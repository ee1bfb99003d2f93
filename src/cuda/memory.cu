/* The memory of an engine on a GPU: KV cache, activations, scratch, messages and answers. All of it is allocated before
 * the first pass. */
#include "cuda/pass.cuh"

static const size_t PRODUCTS_BYTES = (size_t)32 << 20, PARTIAL_BYTES = (size_t)256 << 20;
enum { TOPS_PER_ROW = 16 };

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

/* The widest rows that a layer needs, in elements. */
typedef struct widths {
    int32_t in, qkv, q, ff, expert_ff, head_dim, n_heads, n_kv_heads, branch; /* in: of any operand */
} widths;

static widths widest(const um_network *n) {
    widths w = {};
    w.ff = n->conditioning.n_ff;
    for (int32_t i = 0; i < n->n_kinds; i++) {
        const um_layer_kind *k = &n->kind[i];
        w.qkv = UM_MAX(w.qkv, (k->n_heads + 2 * k->n_kv_heads) * k->head_dim);
        w.q = UM_MAX(w.q, k->n_heads * k->head_dim);
        w.ff = UM_MAX(w.ff, UM_MAX(k->n_ff, k->shared_ff));
        w.expert_ff = UM_MAX(w.expert_ff, k->expert_ff);
        w.head_dim = UM_MAX(w.head_dim, k->head_dim);
        w.n_heads = UM_MAX(w.n_heads, k->n_heads);
        w.n_kv_heads = UM_MAX(w.n_kv_heads, k->n_kv_heads);
        if (k->post_norms) w.branch = n->hidden;
    }
    w.in = UM_MAX(n->hidden, UM_MAX(w.q, w.ff));
    return w;
}

/* Returns the first kind whose layers use a KV cache. All of them store alike. */
static const um_layer_kind *kind_of(const um_forward *f, int32_t kv) {
    const um_layer_kind *k = &f->net->kind[0];
    while (k->kv != kv) k++;
    return k;
}

bool um_cu_is_near(const um_forward *f, int32_t kv) { return kind_of(f, kv)->window > 0 && f->c.n_near_pages > 0; }

static um_kv_shape kv_shape(const um_forward *f, int32_t kv, int32_t n_layers) {
    const um_layer_kind *k = kind_of(f, kv);
    return {.n_layers = n_layers,
            .n_kv_heads = k->n_kv_heads,
            .head_dim = k->head_dim,
            .page_size = f->c.page_size,
            .n_slots = (int64_t)(um_cu_is_near(f, kv) ? f->c.n_near_pages : f->c.n_pages) * f->c.page_size,
            .n_scratch_slots = (int64_t)f->c.n_scratch_pages * f->c.page_size,
            .type = f->c.kv_type,
            .layout = f->c.layout};
}

/* A buffer of rows of one width. */
typedef struct buffer {
    void **out;
    size_t bytes;
    const char *what;
} buffer;

static size_t rows_bytes(int32_t rows, int32_t width, um_dtype type) {
    return um_mul(um_mul((size_t)UM_MAX(rows, 1), (size_t)width), um_dtype_size(type));
}

static um_cu_message_memory message_memory(const um_forward *f) {
    return um_cu_message_memory_of(f->c.max_rows, f->net->vocab);
}

static void init_message(um_forward *f) {
    const um_cu_message_memory m = message_memory(f);
    f->message_bytes = m.bytes;
    f->kept = {.first = (int32_t)(m.bytes / sizeof(int32_t)),
               .words = (int32_t)(um_kept_bytes(f->net->vocab) / sizeof(int32_t)),
               .n = m.n_kept};
    f->kept.place = UM_NEW_ARRAY(um_kept_place, (size_t)f->kept.n);
}

/* Bytes of a layer's router for tensor cores; 0: routers are computed in fp32. */
static size_t router_bytes(const um_forward *f) {
    const int32_t E = f->net->route.n_experts, H = f->net->hidden;
    const bool suits = E && f->d->dtype == UM_BF16 && !um_cu_use(f->d, NULL) && um_cu_router_suits(E, H);
    return suits ? um_cu_router_bytes(E, H) : 0;
}

enum { BUFFERS_MAX = 40 };

/* Lists the buffers of the pass. Returns their number. */
static int list_buffers(um_forward *f, buffer out[BUFFERS_MAX]) {
    const um_network *n = f->net;
    const um_dtype operand = f->d->dtype;
    const widths w = widest(n);
    const int32_t T = f->c.max_tokens, H = n->hidden, E = n->route.n_experts, R = f->c.max_rows;
    const bool codes = f->d->config.weights == UM_F8;
    const bool apart = n->rank && f->d->comm;                 /* the ranks are in several processes */
    const int32_t ranks = n->rank && !apart ? n->rank->n : 0; /* that read each other's memory */
    const um_cu_message_memory message = message_memory(f);
    const size_t part = ranks ? rows_bytes(f->c.n_blends ? UM_MAX(T, R) : T, H, UM_F32) : 0;
    const buffer list[] = {
        {(void **)&f->x, rows_bytes(T, H, UM_F32), "residual stream"},
        {&f->normed, rows_bytes(T, H, operand), "normed activations"},
        {(void **)&f->exact, E ? rows_bytes(T, H, UM_F32) : 0, "inputs of routers"},
        {&f->qkv, rows_bytes(T, w.qkv, operand), "queries, keys and values"},
        {&f->attended, rows_bytes(T, w.q, operand), "attention output"},
        {&f->gate_up, rows_bytes(T, 2 * w.ff, operand), "gate and up activations"},
        {&f->gated, rows_bytes(T, w.ff, operand), "gated activations"},
        {(void **)&f->coded.code, codes ? rows_bytes(UM_MAX(T, R), w.in, UM_F8) : 0, "activations in 8 bits"},
        {(void **)&f->coded.scale, codes ? rows_bytes(UM_MAX(T, R), 1, UM_F32) : 0, "scales of activations"},
        {(void **)&f->routed, rows_bytes(T, E, UM_F32), "router products"},
        {(void **)&f->routers, um_mul((size_t)n->n_layers, router_bytes(f)), "routers"},
        {(void **)&f->low, rows_bytes(T, n->rank_max, UM_F32), "products of adapters"},
        {(void **)&f->branch[0], rows_bytes(T, w.branch, UM_F32), "results before their norms"},
        {(void **)&f->branch[1], E ? rows_bytes(T, w.branch, UM_F32) : 0, "results before their norms"},
        {(void **)&f->blend, f->c.n_blends ? rows_bytes(f->c.n_blends, H, UM_F32) : 0, "blends of embeddings"},
        {(void **)&f->hidden, rows_bytes(T, H, UM_F32), "final hidden rows"},
        {(void **)&f->saved, rows_bytes(f->c.n_saved, H, UM_F32), "saved hidden rows"},
        {&f->mixed, rows_bytes(R, H, operand), "rows of the head"},
        {&f->head_scratch, um_cu_head_scratch(R, n->vocab), "logits"},
        {&f->moe_scratch, E ? um_cu_moe_scratch(&n->route, T, H, w.expert_ff, operand, codes) : 0, "experts"},
        {&f->select_scratch, f->c.n_scratch_pages ? um_cu_select_scratch(w.n_kv_heads, w.n_heads, w.head_dim, T) : 0,
         "selection of keys"},
        {(void **)&f->partial, PARTIAL_BYTES, "pieces of attention"},
        {&f->group.part[0], apart ? um_cu_exchange_bytes(n, T, R, f->c.n_blends) : part, "partial results"},
        {&f->group.part[1], part, "partial results"},
        {(void **)&f->group.inbox[0], (size_t)ranks * UM_CU_PUSH_BYTES, "inboxes of ranks"},
        {(void **)&f->group.inbox[1], (size_t)ranks * UM_CU_PUSH_BYTES, "inboxes of ranks"},
        {(void **)&f->group.flag, (size_t)ranks * UM_CU_MEET_BLOCKS * sizeof(uint32_t), "flags of ranks"},
        {(void **)&f->group.count, ranks ? UM_CU_MEET_BLOCKS * sizeof(uint32_t) : 0, "flags of ranks"},
        {(void **)&f->message, message.bytes + message.kept_bytes, "message"},
        {(void **)&f->count, sizeof *f->count, "pass counter"},
        {&f->products_workspace, PRODUCTS_BYTES, "workspace of products"},
    };
    memcpy(out, list, sizeof list);
    return (int)UM_LEN(list);
}

/* ---- Allocation -------------------------------------------------------------------------------------------------- */

static um_status new_zeroed(um_forward *f, const buffer *b, um_err *err) {
    if (!b->bytes) return UM_OK;
    um_status s = um_cu_alloc(b->out, b->bytes, b->what, err);
    if (!s) s = um_cu_check(cudaMemsetAsync(*b->out, 0, b->bytes, f->d->stream), b->what, err);
    return s;
}

static um_status new_buffers(um_forward *f, um_err *err) {
    buffer list[BUFFERS_MAX];
    const int n = list_buffers(f, list);
    um_status s = UM_OK;
    for (int i = 0; i < n && !s; i++) {
        s = new_zeroed(f, &list[i], err);
        f->workspace += list[i].bytes;
    }
    return s;
}

static um_status new_kv(um_forward *f, um_err *err) {
    int32_t n[UM_LAYER_KINDS_MAX] = {};
    um_status s = UM_OK;
    f->kv_layer = UM_NEW_ARRAY(int32_t, (size_t)f->net->n_layers);
    for (int32_t i = 0; i < f->net->n_layers; i++) f->kv_layer[i] = n[um_kind_of(f->net, i)->kv]++;
    for (int32_t i = 0; i < f->net->n_kv && !s; i++) {
        um_cu_kv *kv = &f->kv[i];
        size_t scratch;
        kv->shape = kv_shape(f, i, n[i]);
        um_cu_kv_bytes(&kv->shape, kv->pool_bytes, &scratch);
        f->workspace += scratch;
        f->scratch_kv += scratch;
        for (int k = 0; k < 2 && !s; k++) {
            const buffer b = {(void **)&kv->pool[k], kv->pool_bytes[k], "KV pages"};
            s = new_zeroed(f, &b, err);
        }
    }
    return s;
}

/* Allocates pinned host memory, and stores the device's address of it. */
static um_status new_mapped(void **host, void **mapped, size_t bytes, unsigned flags, const char *what, um_err *err) {
    um_status s = um_cu_check(cudaHostAlloc(host, bytes, cudaHostAllocMapped | flags), what, err);
    if (s) return s;
    memset(*host, 0, bytes);
    return um_cu_check(cudaHostGetDevicePointer(mapped, *host, 0), what, err);
}

static um_status new_host_memory(um_forward *f, um_err *err) {
    const size_t n_tops = um_mul(TOPS_PER_ROW, (size_t)f->c.max_rows) + UM_TOP_MAX;
    init_message(f);
    f->packed = UM_NEW_ARRAY(char, f->message_bytes); /* untouched pages take no memory */
    um_status s = new_mapped((void **)&f->message_pinned, (void **)&f->message_mapped, f->message_bytes,
                             cudaHostAllocWriteCombined, "pinned message", err);
    if (!s)
        s = new_mapped((void **)&f->answer, (void **)&f->answer_mapped, (size_t)(f->c.max_rows + 1) * sizeof(um_answer),
                       0, "pinned answers", err);
    if (!s)
        s = new_mapped((void **)&f->top, (void **)&f->top_mapped, um_mul(n_tops, sizeof(um_top)), 0, "pinned answers",
                       err);
    if (!s) s = new_mapped((void **)&f->end, (void **)&f->end_mapped, sizeof *f->end, 0, "pinned counter", err);
    return s;
}

/* ---- Weights of adapters and experts ----------------------------------------------------------------------------- */

static um_status copy_to_device(void **out, const void *from, size_t bytes, const char *what, um_err *err) {
    um_status s = um_cu_alloc(out, bytes, what, err);
    return s ? s : um_cu_check(cudaMemcpy(*out, from, bytes, cudaMemcpyHostToDevice), what, err);
}

/* Makes the device's array of the adapters of one product. */
static um_status new_low_rank(const um_network *n, const um_linear *y, um_cu_low_rank **out, um_err *err) {
    if (!y->low_rank) return UM_OK;
    um_cu_low_rank *list = UM_NEW_ARRAY(um_cu_low_rank, (size_t)n->n_adapters);
    for (int32_t i = 0; i < n->n_adapters; i++)
        if (y->low_rank[i].a) list[i] = {y->low_rank[i].a->m, y->low_rank[i].b->m};
    um_status s = copy_to_device((void **)out, list, (size_t)n->n_adapters * sizeof *list, "adapters", err);
    um_free(list);
    return s;
}

static um_status new_adapters(um_forward *f, um_err *err) {
    const um_network *n = f->net;
    um_status s = UM_OK;
    if (n->rank_max == 0) return UM_OK;
    f->adapters = UM_NEW_ARRAY(um_cu_adapters, (size_t)n->n_layers);
    for (int32_t i = 0; i < n->n_layers && !s; i++) {
        const um_layer *y = &n->layer[i];
        um_cu_adapters *a = &f->adapters[i];
        const um_linear *from[] = {&y->qkv,        &y->o, &y->gate_up, &y->down, &y->router, &y->shared_gate_up,
                                   &y->shared_down};
        um_cu_low_rank **to[] = {&a->qkv,        &a->o, &a->gate_up, &a->down, &a->router, &a->shared_gate_up,
                                 &a->shared_down};
        for (size_t k = 0; k < UM_LEN(from) && !s; k++) s = new_low_rank(n, from[k], to[k], err);
    }
    return s;
}

/* Makes the device's lists of the experts' matrices and of their scales. *scales is NULL unless they are in e4m3, and
 * *blocks tells whether some of them have factors of blocks. */
static um_status new_expert_list(const um_network *n, um_weight *const *w, const void ***out,
                                 const um_cu_factors **scales, bool *blocks, um_err *err) {
    const size_t E = (size_t)n->route.n_experts, first = (size_t)um_own_experts(n).start;
    const size_t list_bytes = E * sizeof(void *), bytes = list_bytes + E * sizeof(um_cu_factors);
    const void **list = (const void **)um_zalloc(bytes);
    um_cu_factors *factors = (um_cu_factors *)(list + E);
    for (size_t e = 0; e < E; e++)
        if (w[e]) {
            list[e] = w[e]->m.data;
            factors[e] = {w[e]->m.scale, w[e]->m.block};
            *blocks |= w[e]->m.block != NULL;
        }
    um_status s = copy_to_device((void **)out, list, bytes, "experts", err);
    *scales = s || w[first]->m.type != UM_F8 ? NULL : (const um_cu_factors *)(*out + E);
    um_free(list);
    return s;
}

/* Packs the router of a layer for tensor cores, unless bf16 would round its weights. */
static um_status new_router(um_forward *f, int32_t layer, um_err *err) {
    const um_cu_matrix *w = &f->net->layer[layer].router.w->m;
    void *to = f->routers + (size_t)layer * router_bytes(f);
    bool exact = false;
    if (!f->routers) return UM_OK;
    const um_status s = um_cu_router_pack(w, to, &exact, f->d->stream, err);
    f->experts[layer].router = exact ? to : NULL;
    return s;
}

static um_status new_experts(um_forward *f, um_err *err) {
    const um_network *n = f->net;
    um_status s = UM_OK;
    if (n->route.n_experts == 0) return UM_OK;
    f->experts = UM_NEW_ARRAY(um_cu_experts, (size_t)n->n_layers);
    for (int32_t i = 0; i < n->n_layers && !s; i++) {
        const um_layer *y = &n->layer[i];
        if (!y->router.w) continue;
        um_cu_experts *e = &f->experts[i];
        s = new_expert_list(n, y->expert_gate_up, &e->gate_up, &e->gate_up_scale, &e->gate_up_blocks, err);
        if (!s && e->gate_up_blocks && um_kind_of(n, i)->expert_ff % 16)
            s = um_fail(err, UM_EUNSUPPORTED,
                        "expected a multiple of 16 as the width of experts in FP8 blocks, found %d",
                        um_kind_of(n, i)->expert_ff);
        if (!s) s = new_expert_list(n, y->expert_down, &e->down, &e->down_scale, &e->down_blocks, err);
        if (!s) s = new_router(f, i, err);
    }
    return s;
}

um_cut_range um_cu_head_ids(const um_network *n, int32_t rank) {
    if (!n->rank) return {0, n->vocab};
    const um_cut_range rows = um_cut_range_of({n->head_rows, UM_HEAD_UNIT}, rank, n->rank->n);
    return {UM_MIN(rows.start, n->vocab), UM_MIN(rows.end, n->vocab)};
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* Chooses the plans of all products. A shape that several layers share is prepared once. */
static um_status prepare_products(um_forward *f, um_err *err) {
    const um_network *n = f->net;
    const um_dtype operand = f->d->dtype;
    const int32_t T = f->c.max_tokens;
    um_status s =
        um_cu_products_new(&f->products, f->products_workspace, PRODUCTS_BYTES, f->d->config.deterministic, err);
    for (int32_t i = 0; i < n->n_layers && !s; i++) {
        const um_layer *y = &n->layer[i];
        const bool post = um_kind_of(n, i)->post_norms, group = n->rank != NULL;
        /* In a group o and down write partial results, which are added elsewhere (output_of in pass.cu). */
        const um_dtype sum = group ? operand : UM_F32;
        const struct {
            const um_linear *w;
            um_dtype type;
            bool add;
        } product[] = {{&y->qkv, operand, false},
                       {&y->o, sum, !post && !group},
                       {&y->gate_up, operand, false},
                       {&y->down, sum, !post && !group},
                       {&y->shared_gate_up, operand, false},
                       {&y->shared_down, sum, !group || y->gate_up.w},
                       {&y->router, UM_F32, false}};
        for (size_t k = 0; k < UM_LEN(product) && !s; k++) {
            const um_linear *w = product[k].w;
            const bool gated = w == &y->gate_up || w == &y->shared_gate_up;
            if (w->w) s = um_cu_products_prepare(f->products, &w->w->m, T, product[k].type, product[k].add, gated, err);
        }
    }
    const um_conditioning *c = &n->conditioning;
    if (!s && c->n_ff) s = um_cu_products_prepare(f->products, &c->gate_up.w->m, T, operand, false, true, err);
    if (!s && c->n_ff)
        s = um_cu_products_prepare(f->products, &c->down.w->m, T, n->rank ? operand : UM_F32, !n->rank, false, err);
    const um_cut_range own = um_cu_head_ids(n, n->rank ? n->rank->index : 0);
    return s ? s : um_cu_head_prepare(&n->head->m, (int32_t)(own.end - own.start), f->c.max_rows, f->products, err);
}

/* ---- Life -------------------------------------------------------------------------------------------------------- */

static um_cu_heads heads_of(const um_layer_kind *k, um_dtype kv_type) {
    return {k->n_heads, k->n_kv_heads, k->head_dim, k->window, kv_type};
}

static int32_t tile_tokens(const um_network *n, um_dtype type, um_dtype kv_type) {
    um_cu_heads heads[UM_LAYER_KINDS_MAX];
    for (int32_t i = 0; i < n->n_kinds; i++) heads[i] = heads_of(&n->kind[i], kv_type);
    return um_cu_tile_tokens(heads, n->n_kinds, type);
}

/* Makes a um_forward with the fields that follow from the sizes alone. */
static um_forward *sketch(um_device *d, const um_network *n, const um_forward_config *c) {
    um_forward *f = UM_NEW(um_forward);
    f->d = d;
    f->net = n;
    f->c = *c;
    f->eager = d->config.eager;
    f->partial_bytes = PARTIAL_BYTES;
    const int32_t tile = tile_tokens(n, d->dtype, c->kv_type);
    f->limits = {c->max_tokens, UM_CEIL_DIV(c->max_tokens, tile) + c->max_spans, c->max_rows, tile};
    return f;
}

/* The weights may not be loaded yet, and so the kinds of the single layers are not known. */
size_t um_cu_workspace(um_device *d, const um_network *n, const um_forward_config *c) {
    buffer list[BUFFERS_MAX];
    um_forward *f = sketch(d, n, c);
    const int n_buffers = list_buffers(f, list);
    size_t pool[2], bytes = 0;
    f->c.n_pages = f->c.n_near_pages = 0;
    for (int32_t i = 0; i < n->n_kv; i++) {
        const um_kv_shape shape = kv_shape(f, i, 0);
        size_t scratch;
        um_cu_kv_bytes(&shape, pool, &scratch);
        bytes += scratch;
    }
    for (int i = 0; i < n_buffers; i++) bytes += list[i].bytes;
    um_free(f);
    return bytes;
}

static um_status fill(um_forward *f, um_err *err) {
    um_status s = um_cu_use(f->d, err);
    f->streams = !s && um_cu_attend_stream_exists();
    if (!s) s = new_buffers(f, err);
    /* Plans are tried on a stream of their own, with the workspace of products, which this stream clears. */
    if (!s) s = um_cu_check(cudaStreamSynchronize(f->d->stream), "clearing buffers", err);
    if (!s) s = prepare_products(f, err); /* takes memory for a while, so it comes before the pages */
    if (!s) s = new_kv(f, err);
    if (!s) s = new_host_memory(f, err);
    if (!s) s = new_adapters(f, err);
    if (!s) s = new_experts(f, err);
    if (!s) s = um_cu_group_join(f, err);
    if (!s) s = um_cu_check(cudaStreamSynchronize(f->d->stream), "starting an engine", err);
    assert(s || f->workspace == um_cu_workspace(f->d, f->net, &f->c)); /* the engine sized the pages by this sum */
    return s;
}

/* Checks that the kernels of attention can compute all kinds of layers. */
static um_status check_heads(const um_device *d, const um_network *n, um_dtype kv_type, um_err *err) {
    for (int32_t i = 0; i < n->n_kinds; i++) {
        const um_layer_kind *k = &n->kind[i];
        const um_cu_heads heads = heads_of(k, kv_type);
        const size_t shared = um_cu_attention_shared(&heads, d->dtype);
        if (k->head_dim > UM_CU_HEAD_DIM_MAX || k->head_dim % 8)
            return um_fail(err, UM_EUNSUPPORTED,
                           "the model's heads have %d elements; cuda runs multiples of 8 up to %d; use device cpu",
                           k->head_dim, UM_CU_HEAD_DIM_MAX);
        if (shared > d->properties.sharedMemPerBlockOptin)
            return um_fail(err, UM_EUNSUPPORTED,
                           "heads of %d elements need %zu bytes of shared memory, %s has %zu; use device cpu",
                           k->head_dim, shared, d->properties.name, d->properties.sharedMemPerBlockOptin);
    }
    return UM_OK;
}

/* Checks that a message can have a bitmap for each row. */
static um_status check_message(const um_network *n, const um_forward_config *c, um_err *err) {
    const um_cu_message_memory m = um_cu_message_memory_of(c->max_rows, n->vocab);
    if (um_cu_message_reaches(&m)) return UM_OK;
    return um_fail_param(err, UM_ELIMIT, "max_num_batched_tokens",
                         "%d tokens in a step with %d ids need a message of %zu bytes, which can have %zu; choose a "
                         "smaller number",
                         c->max_rows, n->vocab, m.bytes + m.kept_bytes, (size_t)INT32_MAX * sizeof(int32_t));
}

um_status um_cu_forward_new(um_forward **out, um_device *d, const um_network *n, const um_forward_config *c,
                            um_err *err) {
    *out = NULL;
    um_status s = check_heads(d, n, c->kv_type, err);
    if (!s) s = check_message(n, c, err);
    if (s) return s;
    um_forward *f = sketch(d, n, c);
    s = fill(f, err);
    if (s) {
        um_cu_forward_free(f);
        f = NULL;
    }
    *out = f;
    return s;
}

static void free_extras(um_forward *f) {
    for (int32_t i = 0; f->adapters && i < f->net->n_layers; i++) {
        um_cu_adapters *a = &f->adapters[i];
        um_cu_low_rank *list[] = {a->qkv, a->o, a->gate_up, a->down, a->router, a->shared_gate_up, a->shared_down};
        for (size_t k = 0; k < UM_LEN(list); k++) cudaFree(list[k]);
    }
    for (int32_t i = 0; f->experts && i < f->net->n_layers; i++) {
        cudaFree(f->experts[i].gate_up);
        cudaFree(f->experts[i].down);
    }
    um_free(f->adapters);
    um_free(f->experts);
}

void um_cu_forward_free(um_forward *f) {
    if (!f) return;
    buffer list[BUFFERS_MAX];
    const int n = list_buffers(f, list);
    cudaSetDevice(f->d->number);
    um_cu_group_leave(f);
    cudaStreamSynchronize(f->d->stream);
    um_cu_profile(f, NULL);
    um_cu_graphs_free(f);
    um_cu_products_free(f->products);
    free_extras(f);
    for (int i = 0; i < n; i++) cudaFree(*list[i].out);
    for (int32_t i = 0; i < UM_LAYER_KINDS_MAX; i++)
        for (int k = 0; k < 2; k++) cudaFree(f->kv[i].pool[k]);
    um_free(f->kv_layer);
    void *pinned[] = {f->message_pinned, f->answer, f->top, (void *)f->end, f->group.stop};
    for (size_t i = 0; i < UM_LEN(pinned); i++)
        if (pinned[i]) cudaFreeHost(pinned[i]);
    um_free(f->packed);
    um_free(f->kept.place);
    um_free(f);
}

um_forward_memory um_cu_memory(const um_forward *f) {
    size_t pools = 0;
    for (int32_t i = 0; i < f->net->n_kv; i++) pools += f->kv[i].pool_bytes[0] + f->kv[i].pool_bytes[1];
    return {.kv = pools - f->scratch_kv, .workspace = f->workspace};
}
