/* The forward pass on a GPU: the kernels of a pass in their order, and the launch of a pass. memory.cu allocates what
 * it uses, graph.cu records it.
 *
 * Each pass copies its message from pinned host memory, runs the layers, writes the answers to pinned host memory and
 * then publishes its number there, on which um_cu_wait spins. */
#include "cuda/pass.cuh"

/* ---- Message and end of a pass ----------------------------------------------------------------------------------- */

static __device__ __forceinline__ um_cu_moment this_moment() {
    um_cu_moment m;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(m.ns));
    asm volatile("mov.u64 %0, %clock64;" : "=l"(m.cycles));
    asm volatile("mov.u32 %0, %smid;" : "=r"(m.processor));
    return m;
}

/* Copies the message from mapped host memory; every CTA reads its number of bytes there. Stores when the pass began.
 * Grid: [any]. */
static __global__ void fetch_message(const uint4 *from, uint4 *to, um_cu_end *end) {
    if (blockIdx.x == 0 && threadIdx.x == 0) end->from = this_moment();
    const size_t n = ((size_t)((const um_message_header *)from)->bytes + sizeof(uint4) - 1) / sizeof(uint4);
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        to[i] = from[i];
}

/* Counts the pass and publishes its number behind its answers. */
static __global__ void publish(unsigned long long *count, um_cu_end *end) {
    const unsigned long long n = ++*count;
    end->to = this_moment();
    __threadfence_system();
    *(volatile unsigned long long *)&end->done = n;
}

static um_cu_batch view_of(const um_forward *f, const um_message_capacity *capacity) {
    const um_message_layout l = um_message_layout_of(capacity);
    const char *m = f->message;
    return {.message = m,
            .capacity = *capacity,
            .id = (const int32_t *)(m + l.id),
            .pos = (const int32_t *)(m + l.pos),
            .slot = (const int32_t *)(m + l.slot),
            .near_slot = (const int32_t *)(m + l.near_slot),
            .seen_end = (const int32_t *)(m + l.seen_end),
            .span_of = (const int32_t *)(m + l.span_of),
            .soft = (const int32_t *)(m + l.soft),
            .route_block = (const int32_t *)(m + l.route_block),
            .span = (const um_message_span *)(m + l.span),
            .tile = (const um_message_tile *)(m + l.tile),
            .row = (const um_message_row *)(m + l.row),
            .save = (const int32_t(*)[2])(m + l.save)};
}

/* ---- The layers -------------------------------------------------------------------------------------------------- */

/* A pass that is being launched or recorded. */
typedef struct launch {
    um_forward *f;
    um_cu_batch b;
    um_cu_sizes sizes;
    bool selects;      /* spans keep sparse keys */
    const void *coded; /* the operand whose codes are in f->coded; NULL: none */
    int turn;          /* of the memory for partial results */
    bool is_partial;   /* f->x lacks `more`, the results of all ranks */
    um_cu_partials more;
    bool has_pairs; /* f->x lacks `pairs`, the outputs of experts */
    um_cu_pairs pairs;
    cudaStream_t s;
    um_err *err;
    um_status status; /* the first error */
    const char *part; /* name of all operations in a profile; NULL: their own */
} launch;

static void check(launch *p, const char *what) {
    if (!p->status) p->status = um_cu_launched(what, p->err);
    if (!p->status && p->f->group.comm) p->status = um_cu_comm_check(p->f->group.comm, p->err);
    um_cu_mark(p->f, p->part ? p->part : what, p->sizes.n_tokens);
}

static int32_t rows_of(const launch *p) { return p->sizes.n_tokens; }

static bool is_fp8(const um_linear *w) { return w->w && w->w->m.type == UM_F8; }

static bool has_fp8_experts(const launch *p, int32_t layer) {
    return p->f->net->layer[layer].router.w && p->f->experts[layer].gate_up_scale;
}

/* Returns x as the input of a product. For weights in e4m3 x is rounded to e4m3, unless it is already. */
static um_cu_rows input_of(launch *p, const um_cu_matrix *w, const void *x) {
    um_forward *f = p->f;
    if (w->type != UM_F8) return {x, NULL, rows_of(p)};
    if (p->coded != x) {
        um_cu_quantize((const um_bf16 *)x, rows_of(p), w->in, &f->coded, p->s);
        check(p, "quantize");
        p->coded = x;
    }
    return {f->coded.code, f->coded.scale, rows_of(p)};
}

/* y = W x + bias, or y += that, with the adapters of the tokens. */
static void linear(launch *p, const um_linear *w, const um_cu_low_rank *low_rank, const void *x, bool add,
                   um_dtype out_type, void *y, const char *what) {
    um_forward *f = p->f;
    const um_cu_matrix *m = &w->w->m;
    if (p->status) return;
    const um_cu_rows in = input_of(p, m, x);
    if (p->status) return;
    const um_dtype adapter_type = m->type == UM_F8 ? f->d->dtype : m->type;
    const int32_t rank_max = f->net->rank_max;
    const bool adapts = low_rank && p->sizes.adapts;
    if (adapts) um_cu_low_rank_down(&p->b, low_rank, m->in, rank_max, adapter_type, x, f->low, p->s);
    p->status = um_cu_linear(f->products, m, in, add, out_type, y, m->rows, p->s);
    if (p->status) {
        um_fail(p->err, p->status, "%s: the product can't be computed", what);
        return;
    }
    if (w->bias) um_cu_add_bias(y, w->bias->data, rows_of(p), m->rows, out_type, p->s);
    if (adapts) um_cu_low_rank_up(&p->b, low_rank, m->rows, rank_max, adapter_type, f->low, out_type, y, p->s);
    check(p, what);
}

/* y = norm(x), and the same in fp32; one of the outputs may be NULL. Without a weight, w is NULL. codes: y is also
 * stored in e4m3. */
static void norm_rows(launch *p, const float *x, const um_vector *w, const um_vector *bias, void *y, float *exact,
                      bool codes) {
    um_forward *f = p->f;
    um_cu_norm(x, um_cu_values(w ? w : f->net->ones), um_cu_values(bias), f->net->norm_eps, rows_of(p), f->net->hidden,
               f->d->dtype, y, exact, codes ? &f->coded : NULL, p->s);
    check(p, "norm");
    p->coded = codes ? y : NULL;
}

/* Returns whether the ranks divide the rows of the residual stream. Models norm with a bias everywhere or nowhere. */
static bool divides_rows(const launch *p) {
    const um_network *n = p->f->net;
    return !n->final_norm_bias && um_cu_divides(&p->more.at, rows_of(p), n->hidden);
}

/* Returns where all ranks keep the outputs of a norm; `exact` is one of the two buffers that norms write in fp32. */
static um_cu_copies copies_of(const um_forward *f, const void *y, const float *exact, bool codes) {
    um_cu_copies to = {};
    for (int32_t r = 0; r < f->group.at->n; r++) {
        const um_forward *one = r == f->group.at->index ? f : f->group.comm ? NULL : um_cu_rank(f, r);
        if (!one) continue; /* in another process */
        if (y) to.y[r] = one->normed;
        if (exact) to.y32[r] = exact == f->hidden ? one->hidden : one->exact;
        if (codes) to.coded[r] = one->coded;
    }
    return to;
}

/* The norm of x. The outputs of experts, or in a group the results of all ranks, are added to x first. */
static void norm(launch *p, const um_vector *w, const um_vector *bias, void *y, float *exact, bool codes) {
    um_forward *f = p->f;
    if (!p->is_partial && !p->has_pairs) {
        norm_rows(p, f->x, w, bias, y, exact, codes);
        return;
    }
    const float *weight = um_cu_values(w ? w : f->net->ones);
    const float eps = f->net->norm_eps;
    if (p->has_pairs)
        um_cu_pairs_norm(f->x, &p->pairs, weight, um_cu_values(bias), eps, rows_of(p), f->net->hidden, f->d->dtype, y,
                         exact, codes ? &f->coded : NULL, p->s);
    else if (divides_rows(p)) {
        assert(!bias);
        const um_cu_copies to = copies_of(f, y, exact, codes);
        um_cu_sum_norm_divided(f->x, &p->more, weight, eps, rows_of(p), f->net->hidden, f->d->dtype, &to, p->s);
    } else
        um_cu_sum_norm(f->x, &p->more, weight, um_cu_values(bias), eps, rows_of(p), f->net->hidden, f->d->dtype, y,
                       exact, codes ? &f->coded : NULL, p->s);
    check(p, p->has_pairs ? "moe_norm" : "sum_norm");
    p->is_partial = p->has_pairs = false;
    p->coded = codes ? y : NULL;
}

/* Where the layers of a half write their results. */
typedef struct output {
    void *y;
    um_dtype type;
    bool add;
} output;

/* Returns the output of layers whose results become y, or are added to it. In a group of ranks the results are partial,
 * and go to memory that all ranks read. They are operands: each layer that adds its results rounds the sum. */
static output output_of(const launch *p, float *y, bool add) {
    const um_forward *f = p->f;
    const um_dtype type = f->d->dtype;
    if (!f->group.at) return {y, UM_F32, add};
    return {um_cu_own_part(f, p->turn, (size_t)rows_of(p) * (size_t)f->net->hidden, type), type, false};
}

/* Completes an output of output_of. In a group, the next norm adds the results of all ranks to x. */
static void end_output(launch *p, const output *o, float *y, bool add) {
    um_forward *f = p->f;
    if (!f->group.at) return;
    const size_t n = (size_t)rows_of(p) * (size_t)f->net->hidden;
    p->more = um_cu_partials_of(f, p->turn, n, o->type);
    p->turn ^= 1;
    p->is_partial = add && y == f->x;
    if (p->is_partial) return;
    um_cu_sum(&p->more, n, add, y, p->s);
    check(p, "sum_ranks");
}

/* Adds the results of all ranks to x if it lacks them. */
static void add_partial(launch *p) {
    um_forward *f = p->f;
    if (!p->is_partial) return;
    um_cu_sum(&p->more, (size_t)rows_of(p) * (size_t)f->net->hidden, true, f->x, p->s);
    check(p, "sum_ranks");
    p->is_partial = false;
}

/* x = (x + norm(y)) * scale. The factors of the modes may be NULL. */
static void norm_add(launch *p, const float *y, const um_vector *w, um_vector *const scale[2], float *x) {
    um_forward *f = p->f;
    const float *const by[2] = {um_cu_values(scale ? scale[0] : NULL), um_cu_values(scale ? scale[1] : NULL)};
    um_cu_norm_add(&p->b, y, um_cu_values(w ? w : f->net->ones), f->net->norm_eps, f->net->hidden, by, x, p->s);
    check(p, "norm_add");
}

static void attention_half(launch *p, int32_t layer) {
    um_forward *f = p->f;
    const um_network *n = f->net;
    const um_layer *y = &n->layer[layer];
    const um_layer_kind *k = um_kind_of(n, layer);
    const um_cu_adapters none = {}, *a = f->adapters ? &f->adapters[layer] : &none;
    const um_rotary *rotary = &n->rotary[k->rotary];
    const um_cu_kv *kv = &f->kv[k->kv];
    norm(p, y->attn_norm, y->attn_norm_bias, f->normed, NULL, is_fp8(&y->qkv));
    linear(p, &y->qkv, a->qkv, f->normed, false, f->d->dtype, f->qkv, "qkv");
    const um_cu_rope rope = {.layer = f->kv_layer[layer],
                             .n_heads = k->n_heads,
                             .n_kv_heads = k->n_kv_heads,
                             .head_dim = k->head_dim,
                             .rope_dim = k->rope_dim,
                             .qkv = f->qkv,
                             .type = f->d->dtype,
                             .q_norm = um_cu_values(y->q_norm),
                             .k_norm = um_cu_values(y->k_norm),
                             .v_norm = k->v_norm ? um_cu_values(n->ones) : NULL,
                             .eps = n->norm_eps,
                             .clip = n->clip_qkv,
                             .cos = rotary->cos->data,
                             .sin = rotary->sin->data,
                             .query = um_cu_values(rotary->query),
                             .near = k->window > 0};
    um_cu_rope_kv(&p->b, &rope, kv, p->s);
    check(p, "rope_kv");
    const um_cu_attention attention = {.layer = f->kv_layer[layer],
                                       .n_heads = k->n_heads,
                                       .n_kv_heads = k->n_kv_heads,
                                       .head_dim = k->head_dim,
                                       .qkv = f->qkv,
                                       .type = f->d->dtype,
                                       .out = f->attended,
                                       .scale = k->attn_scale,
                                       .window = k->window,
                                       .n_pieces = p->sizes.n_pieces,
                                       .partial = f->partial,
                                       .partial_bytes = f->partial_bytes,
                                       .stream = f->streams};
    um_cu_attend(&p->b, &attention, kv, p->s);
    check(p, "attention");
    if (p->selects) {
        const size_t keys = (size_t)f->c.max_tokens; /* those of a selection at most */
        const um_cu_partials scores = f->group.at ? um_cu_partials_of(f, p->turn, keys, UM_F32) : um_cu_partials{};
        /* It ends with a barrier if it has used the memory for partial results, so the next output may use it, too. */
        um_cu_select(&p->b, f->packed, &attention, kv, f->group.at ? &scores : NULL, k->kv_copies, f->select_scratch,
                     p->s);
        check(p, "kv_select");
    }
    float *to = k->post_norms ? f->branch[0] : f->x;
    const output out = output_of(p, to, !k->post_norms);
    linear(p, &y->o, a->o, f->attended, out.add, out.type, out.y, "o");
    end_output(p, &out, to, !k->post_norms);
    if (k->post_norms) norm_add(p, f->branch[0], y->attn_post_norm, NULL, f->x);
}

/* A gated feed-forward layer, with the adapters of its products. */
typedef struct gated_layer {
    const um_linear *gate_up, *down;
    const um_cu_low_rank *gate_up_adapters, *down_adapters;
    um_act act;
} gated_layer;

/* Computes f->gated = act(Wgate h) * Wup h, with h in f->normed. */
static void gate(launch *p, const gated_layer *l) {
    um_forward *f = p->f;
    const um_cu_matrix *m = &l->gate_up->w->m;
    const bool plain = !l->gate_up->bias && !(l->gate_up_adapters && p->sizes.adapts) && f->d->dtype == UM_BF16 &&
                       l->act == UM_ACT_SILU;
    const bool only_codes = is_fp8(l->down) && !(l->down_adapters && p->sizes.adapts);
    if (plain && !p->status && um_cu_gated(f->products, m, input_of(p, m, f->normed), f->gated, p->s)) {
        check(p, "gate_up");
        p->coded = NULL; /* f->gated has new contents */
        return;
    }
    linear(p, l->gate_up, l->gate_up_adapters, f->normed, false, f->d->dtype, f->gate_up, "gate_up");
    um_cu_gate(f->gate_up, rows_of(p), m->rows / 2, l->act, f->d->dtype, f->gated, only_codes ? &f->coded : NULL, p->s);
    check(p, "gate");
    p->coded = only_codes ? f->gated : NULL;
}

/* Computes Wdown (act(Wgate h) * Wup h) with h in f->normed. Further layers add to the same output. */
static void feed_forward(launch *p, const gated_layer *l, output *out) {
    gate(p, l);
    linear(p, l->down, l->down_adapters, p->f->gated, out->add, out->type, out->y, "down");
    out->add = true;
}

/* Computes the scores f->routed of the experts from f->exact. */
static void scores(launch *p, int32_t layer, const um_cu_low_rank *adapters) {
    um_forward *f = p->f;
    const um_linear *router = &f->net->layer[layer].router;
    const um_cu_matrix *m = &router->w->m;
    const void *packed = f->experts[layer].router;
    if (!packed) {
        linear(p, router, adapters, f->exact, false, UM_F32, f->routed, "router");
        return;
    }
    const int32_t rank_max = f->net->rank_max;
    const bool adapts = adapters && p->sizes.adapts;
    if (adapts) um_cu_low_rank_down(&p->b, adapters, m->in, rank_max, m->type, f->exact, f->low, p->s);
    um_cu_router_product(packed, m->rows, m->in, f->exact, rows_of(p), f->routed, p->s);
    if (adapts) um_cu_low_rank_up(&p->b, adapters, m->rows, rank_max, m->type, f->low, UM_F32, f->routed, p->s);
    check(p, "router");
}

/* Computes the sum of the experts that the router chooses by f->exact, with h in f->normed. */
static void experts(launch *p, int32_t layer, const um_cu_low_rank *router_adapters, const output *out) {
    um_forward *f = p->f;
    const um_layer *y = &f->net->layer[layer];
    scores(p, layer, router_adapters);
    const um_cu_experts *e = &f->experts[layer];
    const um_cut_range own = um_own_experts(f->net);
    if (e->gate_up_scale) input_of(p, &y->expert_gate_up[own.start]->m, f->normed); /* f->coded */
    const um_cu_moe moe = {.route = f->net->route,
                           .logits = f->routed,
                           .bias = um_cu_values(y->router_bias),
                           .expert_scale = um_cu_values(y->expert_scale),
                           .act = um_kind_of(f->net, layer)->act,
                           .first_own = (int32_t)own.start,
                           .n_own = (int32_t)(own.end - own.start),
                           .gate_up = e->gate_up,
                           .down = e->down,
                           .gate_up_scale = e->gate_up_scale,
                           .down_scale = e->down_scale,
                           .gate_up_blocks = e->gate_up_blocks,
                           .down_blocks = e->down_blocks,
                           .type = f->d->dtype,
                           .x = f->normed,
                           .coded = f->coded,
                           .hidden = f->net->hidden,
                           .n_ff = um_kind_of(f->net, layer)->expert_ff,
                           .y = out->y,
                           .y_type = out->type,
                           .add = out->add,
                           .scratch = f->moe_scratch};
    /* The next norm of x adds the outputs. */
    p->has_pairs = out->y == f->x && out->add;
    if (p->has_pairs) p->pairs = um_cu_moe_outputs(&p->b, &moe, p->s);
    else um_cu_moe_add(&p->b, &moe, p->s);
    check(p, "moe");
}

/* x = (x + norm(norm(ffn(norm(x))) + norm(experts(norm(x))))) * scale, or those parts of it that the layer has. */
static void normed_half(launch *p, int32_t layer, const um_cu_adapters *a) {
    um_forward *f = p->f;
    const um_layer *y = &f->net->layer[layer];
    const gated_layer dense = {&y->gate_up, &y->down, a->gate_up, a->down, um_kind_of(f->net, layer)->act};
    norm(p, y->ffn_norm, NULL, f->normed, NULL, is_fp8(&y->gate_up));
    output out = output_of(p, f->branch[0], false);
    feed_forward(p, &dense, &out);
    end_output(p, &out, f->branch[0], false);
    if (y->router.w) {
        norm_rows(p, f->branch[0], y->dense_post_norm, NULL, NULL, f->branch[0], false);
        norm(p, y->router_norm, NULL, NULL, f->exact, false);
        norm(p, y->expert_norm, NULL, f->normed, NULL, has_fp8_experts(p, layer));
        out = output_of(p, f->branch[1], false);
        experts(p, layer, a->router, &out);
        end_output(p, &out, f->branch[1], false);
        norm_add(p, f->branch[1], y->expert_post_norm, NULL, f->branch[0]);
    }
    norm_add(p, f->branch[0], y->ffn_post_norm, y->scale, f->x);
}

static void feed_forward_half(launch *p, int32_t layer) {
    um_forward *f = p->f;
    const um_layer *y = &f->net->layer[layer];
    const um_layer_kind *k = um_kind_of(f->net, layer);
    const um_cu_adapters none = {}, *a = f->adapters ? &f->adapters[layer] : &none;
    const gated_layer dense = {&y->gate_up, &y->down, a->gate_up, a->down, k->act},
                      shared = {&y->shared_gate_up, &y->shared_down, a->shared_gate_up, a->shared_down, k->act};
    if (k->post_norms) {
        normed_half(p, layer, a);
        return;
    }
    const bool codes = has_fp8_experts(p, layer) || is_fp8(&y->gate_up) || is_fp8(&y->shared_gate_up);
    norm(p, y->ffn_norm, y->ffn_norm_bias, f->normed, y->router.w ? f->exact : NULL, codes);
    output out = output_of(p, f->x, true);
    if (y->gate_up.w) feed_forward(p, &dense, &out);
    if (y->shared_gate_up.w) feed_forward(p, &shared, &out);
    if (y->router.w) experts(p, layer, a->router, &out);
    end_output(p, &out, f->x, true);
}

/* Mixes blends into the embeddings of canvases: x = norm(x + down(act(gate n) * up n)) with n = norm(blend). Other
 * tokens have n = 0, which adds 0. */
static void condition(launch *p) {
    um_forward *f = p->f;
    const um_conditioning *c = &f->net->conditioning;
    const gated_layer l = {&c->gate_up, &c->down, NULL, NULL, c->act};
    if (!c->n_ff || !p->sizes.canvas) return;
    p->part = "condition";
    um_cu_blend_norm(&p->b, f->blend, c->norm->data, f->net->norm_eps, f->net->hidden, f->d->dtype, f->normed, p->s);
    check(p, "blend_norm");
    p->coded = NULL; /* f->normed has new contents */
    output out = output_of(p, f->x, true);
    feed_forward(p, &l, &out);
    end_output(p, &out, f->x, true);
    add_partial(p);
    um_cu_canvas_norm(&p->b, f->net->ones->data, f->net->norm_eps, f->net->hidden, f->x, p->s);
    check(p, "canvas_norm");
    p->part = NULL;
}

static void mark_head(void *arg, const char *part) {
    const launch *p = (const launch *)arg;
    um_cu_mark(p->f, part, p->sizes.n_rows);
}

/* Sets how the ranks of a group divide the head. */
static void divide_head(const launch *p, um_cu_head *head) {
    const um_forward *f = p->f;
    const int32_t n = f->group.at ? f->group.at->n : 1;
    char *exchange = (char *)f->group.part[0];
    for (int32_t r = 0; r < n; r++) {
        head->first[r] = (int32_t)um_cu_head_ids(f->net, r).start;
        if (f->group.comm) {
            head->blend_part[r] =
                (float *)(exchange + (size_t)r * um_cu_blend_part_bytes(p->sizes.n_rows, f->net->hidden));
            head->rank_scratch[r] = r == f->group.at->index ? f->head_scratch : NULL;
            continue;
        }
        const um_forward *rank = f->group.at ? um_cu_rank(f, r) : f;
        head->rank_scratch[r] = rank->head_scratch;
        head->blend_part[r] = (float *)rank->group.part[p->turn];
    }
    head->exchange = f->group.comm ? exchange : NULL;
    head->first[n] = f->net->vocab;
    if (f->group.at) head->at = um_cu_meeting_of(f);
    else head->at.n = 1;
}

static um_cu_head head_of(launch *p) {
    um_forward *f = p->f;
    um_cu_head head = {.w = &f->net->head->m,
                       .hidden = f->hidden,
                       .saved = f->saved,
                       .hidden_size = f->net->hidden,
                       .vocab = f->net->vocab,
                       .scale = f->net->logit_scale,
                       .cap = f->net->logit_cap,
                       .embed = &f->net->embed->m,
                       .embed_scale = f->net->embed_scale,
                       .blend = p->sizes.canvas ? f->blend : NULL,
                       .mixed = f->mixed,
                       .coded = f->coded,
                       .scratch = f->head_scratch,
                       .mark = mark_head,
                       .mark_arg = p,
                       .answer = f->answer_mapped,
                       .top = f->top_mapped};
    divide_head(p, &head);
    return head;
}

/* Starts the kernels of a pass up to its answers. Rows that need all their logits, and saves, are not among them. */
static um_status start_body(launch *p) {
    um_forward *f = p->f;
    const um_network *n = f->net;
    fetch_message<<<16, 256, 0, p->s>>>((const uint4 *)f->message_mapped, (uint4 *)f->message, f->end_mapped);
    check(p, "message");
    if (p->sizes.n_tokens) {
        um_cu_embed(&p->b, &n->embed->m, n->embed_scale, f->x, p->s);
        check(p, "embed");
        condition(p);
        for (int32_t layer = 0; layer < n->n_layers && !p->status; layer++) {
            attention_half(p, layer);
            feed_forward_half(p, layer);
        }
        norm(p, n->final_norm, n->final_norm_bias, NULL, f->hidden, false);
    }
    if (p->sizes.n_rows && !p->status) {
        const um_cu_head head = head_of(p);
        p->status = um_cu_head_answer(&p->b, &head, f->products, p->s);
        if (p->status) um_fail(p->err, p->status, "head: the product can't be computed");
        check(p, "head");
    }
    return p->status;
}

/* Waits for a graph before exchanges without one follow it, which NCCL wants (NCCL_GRAPH_MIXING_SUPPORT). */
static um_status end_graph(launch *p) {
    um_forward *f = p->f;
    const double since = um_now();
    cudaError_t e = cudaSuccess;
    if (!f->group.comm || !((const um_message_header *)f->packed)->n_whole) return UM_OK;
    while ((e = cudaStreamQuery(p->s)) == cudaErrorNotReady)
        if (um_cu_group_check(f, since, p->err)) return UM_EDEVICE;
    return um_cu_check(e, "the GPU failed in a pass", p->err);
}

/* Starts the kernels behind the body: rows that need all their logits, saves, and the end of the pass. */
static um_status start_end(launch *p) {
    um_forward *f = p->f;
    const um_message_header *h = (const um_message_header *)f->packed;
    if (h->n_whole) {
        const um_cu_head head = head_of(p);
        p->status = um_cu_head_answer_whole(&p->b, &head, f->products, h->n_whole, p->s);
        if (p->status) um_fail(p->err, p->status, "head: the product can't be computed");
        check(p, "head_whole");
    }
    if (h->n_saves) {
        um_cu_save(&p->b, f->hidden, f->saved, f->net->hidden, p->s);
        check(p, "save");
    }
    publish<<<1, 1, 0, p->s>>>(f->count, f->end_mapped);
    check(p, "publish");
    return p->status;
}

/* ---- Submission -------------------------------------------------------------------------------------------------- */

um_status um_cu_record(um_forward *f, const um_message_capacity *capacity, const um_cu_sizes *sizes, um_err *err) {
    launch p = {.f = f, .b = view_of(f, capacity), .sizes = *sizes, .s = f->d->stream, .err = err};
    return start_body(&p);
}

int32_t um_cu_pieces(int32_t end) { return UM_MAX(1, UM_CEIL_DIV(end, UM_CU_PIECE)); }

static launch launch_of(um_forward *f, const um_batch *b, um_message_capacity *capacity, um_err *err) {
    launch p = {.f = f, .s = f->d->stream, .err = err};
    um_cu_sizes needed = {b->n_tokens, um_message_tiles(b, f->limits.tile_tokens), b->n_rows, 1, false, false};
    for (int32_t i = 0; i < b->n_spans; i++) {
        p.selects |= b->span[i].select != NULL;
        needed.adapts |= b->span[i].adapter >= 0;
        needed.canvas |= b->span[i].canvas;
        needed.n_pieces = UM_MAX(needed.n_pieces, um_cu_pieces(b->span[i].keys.end));
    }
    p.sizes = um_cu_pad(&f->limits, &needed);
    *capacity = um_cu_room(f, &p.sizes);
    p.b = view_of(f, capacity);
    return p;
}

/* Returns the kind of a pass. Passes of one kind start the same kernels. */
static um_cu_pass_kind kind_of(const launch *p, const um_batch *b) {
    const um_message_header *h = (const um_message_header *)p->f->packed;
    um_cu_pass_kind k = {p->sizes, (h->n_whole > 0) | (h->n_saves > 0) << 1};
    for (int32_t i = 0; i < b->n_spans; i++)
        if (b->span[i].select) k.flags |= 4 << (b->span[i].select->blind ? 0 : b->span[i].select->per_head ? 1 : 2);
    return k;
}

/* Notes the kind of a pass. Returns whether it was noted before. */
static bool is_noted(um_cu_group *g, const um_cu_pass_kind *kind) {
    const int n = UM_MIN(g->n_kinds, UM_CU_KINDS_MAX);
    for (int i = 0; i < n; i++)
        if (g->kind[i].flags == kind->flags && um_cu_same_sizes(&g->kind[i].sizes, &kind->sizes)) return true;
    g->kind[g->n_kinds++ % UM_CU_KINDS_MAX] = *kind;
    return false;
}

/* Records the kernels of a pass and forgets them. */
static um_status record_pass(launch pass) {
    cudaGraph_t graph = NULL;
    um_status s =
        um_cu_check(cudaStreamBeginCapture(pass.s, cudaStreamCaptureModeThreadLocal), "loading kernels", pass.err);
    if (s) return s;
    s = start_body(&pass);
    if (!s) s = start_end(&pass);
    const cudaError_t e = cudaStreamEndCapture(pass.s, &graph);
    if (graph) cudaGraphDestroy(graph);
    return s ? s : um_cu_check(e, "loading kernels", pass.err);
}

/* Loads the kernels of a new kind of pass of a group, by recording it, and then waits for the other ranks. Otherwise
 * the driver would load a kernel when it is first started, and may wait for the device then. But kernels that wait for
 * another rank may be under way there, and that rank could not load its kernels meanwhile.
 *
 * Ranks in several processes need not meet: a driver waits for the GPU of its own process only. Of all ranks, take one
 * that has started the fewest exchanges. The others have started these, too, so its kernels end without further help,
 * its driver waits for nobody else, and it starts its next exchange. */
static um_status load_kernels(launch *p, const um_batch *b) {
    um_forward *f = p->f;
    um_cu_marks *marks = f->marks;
    if (!f->group.at || f->group.comm) return UM_OK;
    const um_cu_pass_kind kind = kind_of(p, b);
    if (is_noted(&f->group, &kind)) return UM_OK;
    f->marks = NULL;
    um_status s = record_pass(*p);
    f->marks = marks;
    if (!s && !um_ranks_meet(f->group.at)) s = um_fail(p->err, UM_EDEVICE, "another rank has failed");
    return s;
}

/* Returns UM_EDEVICE when the ranks of the group have stopped. The engine may have freed the batch since then, if this
 * rank was the one that did not answer. */
static um_status check_group(const um_forward *f, um_err *err) {
    return f->group.at && um_ranks_is_broken(f->group.at->group, err) ? UM_EDEVICE : UM_OK;
}

static um_status start_pass(um_forward *f, const um_batch *b, um_err *err) {
    um_message_capacity capacity;
    um_status s = um_cu_use(f->d, err);
    if (!s) s = check_group(f, err);
    if (s) return s;
    launch p = launch_of(f, b, &capacity, err);
    const size_t bytes = um_message_pack(b, &capacity, &f->kept, f->packed, f->message_bytes);
    if (!bytes)
        return um_fail(err, UM_ELIMIT, "a pass needs more than %zu bytes for its tables, edits and bitmaps",
                       f->message_bytes);
    memcpy(f->message_pinned, f->packed, bytes);
    __sync_synchronize(); /* empties the processor's buffers of combined writes */
    s = load_kernels(&p, b);
    if (s) return s;
    um_cu_mark(f, NULL, 0);
    cudaGraphExec_t graph = NULL;
    const bool has_graph = !p.selects && !f->eager && !f->profile && p.sizes.n_tokens <= UM_CU_GRAPH_TOKENS;
    if (has_graph) s = um_cu_graph_for(f, &capacity, &p.sizes, &graph, err);
    if (s) return s;
    if (graph) s = um_cu_check(cudaGraphLaunch(graph, p.s), "cudaGraphLaunch", err);
    else s = start_body(&p);
    if (graph && !s) s = end_graph(&p);
    if (!s) s = start_end(&p);
    __atomic_store_n(&f->n_submitted, f->n_submitted + 1, __ATOMIC_RELAXED); /* other ranks read it */
    f->submitted = um_now();
    f->stats.replays += graph != NULL;
    f->batch = b;
    return s;
}

um_status um_cu_submit(um_forward *f, const um_batch *b, um_err *err) {
    um_status s = start_pass(f, b, err);
    if (s) um_cu_group_stop(f);
    return s;
}

/* Spins until the device has published the pass. Asks the driver for an error from time to time. */
static um_status spin(um_forward *f, um_err *err) {
    enum { SPINS_PER_QUERY = 20000 };
    for (int64_t i = 1; f->end->done < f->n_submitted; i++) {
        if (i % SPINS_PER_QUERY) {
            __builtin_ia32_pause();
            continue;
        }
        if (um_cu_group_check(f, f->submitted, err)) return UM_EDEVICE;
        cudaError_t e = cudaStreamQuery(f->d->stream);
        if (e == cudaErrorNotReady) continue;
        if (e != cudaSuccess) return um_cu_check(e, "the GPU failed in a pass", err);
        if (f->end->done < f->n_submitted) return um_fail(err, UM_EDEVICE, "the GPU ended a pass without its answers");
    }
    return UM_OK;
}

/* Stores the times of the pass that has ended. */
static void count_pass(um_forward *f) {
    um_forward_stats *t = &f->stats;
    const volatile um_cu_moment *from = &f->end->from, *to = &f->end->to;
    t->gap_seconds = f->last_end ? 1e-9 * (double)(from->ns - f->last_end) : 0;
    t->pass_seconds = 1e-9 * (double)(to->ns - from->ns);
    const bool comparable = from->processor == to->processor && to->ns > from->ns;
    t->clock_rate = comparable ? (double)(to->cycles - from->cycles) / t->pass_seconds : 0;
    f->last_end = to->ns;
    t->passes++;
}

um_forward_stats um_cu_stats(const um_forward *f) {
    um_forward_stats t = f->stats;
    t.graphs = f->n_graphs;
    return t;
}

um_status um_cu_wait(um_forward *f, um_err *err) {
    const um_batch *b = f->batch;
    um_status s = spin(f, err);
    if (!s) s = check_group(f, err);
    __sync_synchronize(); /* the answers were written before the number of the pass */
    f->batch = NULL;
    if (s) return s;
    count_pass(f);
    const bool answers = !f->group.at || f->group.at->index == 0;
    for (int32_t i = 0, top = 0; answers && i < b->n_rows; i++) {
        b->answer[i] = f->answer[i];
        if (b->row[i].n_top) memcpy(b->row[i].top, f->top + top, (size_t)b->row[i].n_top * sizeof(um_top));
        top += b->row[i].n_top;
    }
    um_cu_report(f);
    return UM_OK;
}

void um_cu_copy_page(um_forward *f, int32_t from, int32_t to, int32_t n) {
    cudaSetDevice(f->d->number);
    for (int32_t i = 0; i < f->net->n_kv; i++)
        if (!um_cu_is_near(f, i)) um_cu_kv_copy(&f->kv[i], from, to, n, f->d->stream);
}
