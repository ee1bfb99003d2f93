/* The forward pass: the sequence of operations that all families run, over one flat batch of tokens.
 *
 *     x = E[id]
 *     each layer:  x += Wo attention(rope(Wqkv norm(x)))
 *                  x += ffn(norm(x))     or, where the layer has experts,
 *                  x += shared(norm(x)) + sum over chosen experts e of weight_e * expert_e(norm(x))
 *           where  ffn(h) = shared(h) = expert_e(h) = Wdown (act(Wgate h) * Wup h), each with its own weights
 *            or, with post_norms, where each norm has its own weights,
 *                  x += norm(Wo attention(rope(Wqkv norm(x))))
 *                  x += norm(norm(ffn(norm(x))) + norm(sum over experts of norm(x)))
 *                  x *= scale of the mode
 *     hidden = norm(x)
 *     predictions of the wanted rows = statistics of softmax(Whead hidden[row])
 *
 * After the keys and values of the last layer are stored, the pass goes on with the tokens whose hidden rows are read
 * (um_final). The rows of the others, for example of a prompt, are left out.
 *
 * For tokens that use an adapter (LoRA), B (A h) is added to a product W h.
 *
 * The embeddings of a canvas are first blended with the predictions of an earlier pass (um_conditioning).
 *
 * In a group of ranks (um_network.rank) each rank has some of the heads and a part of the width of each feed-forward
 * layer. The results after Wo and Wdown are then partial sums, which sum_ranks adds. The residual stream, norms and the
 * choice of experts are computed by every rank.
 *
 * Models differ in their sizes, in the kinds of their layers (um_layer_kind) and in the optional weights that they have
 * (biases, norms of queries and keys, experts), never in this order. The batch says which keys each token sees and into
 * which page its key goes. This file allocates nothing after um_host_forward_new has returned. */
#include <math.h>

#include "ops/host/host.h"

struct um_forward {
    um_device *d;
    const um_network *net;
    um_forward_config c;
    /* The operations and the device that passes use: the backend's operations on `own`; or, while a profile runs, those
     * of `timed`, which call the former and record their times. */
    const um_ops *ops;
    um_dev *dev;
    um_dev *own;
    um_timed timed;
    um_kv *kv[UM_LAYER_KINDS_MAX]; /* [n_kv] */
    int32_t *kv_layer;             /* [n_layers] number of each layer in its KV cache */
    float *x;                      /* [T, H] residual stream */
    float *normed;                 /* [T, H] */
    float *qkv;                    /* [T, (heads + 2 kv heads) * d] */
    float *attended;               /* [T, heads * d] */
    float *gate_up;                /* [wide rows, 2 * widest ff] */
    float *gated;                  /* [wide rows, widest ff] */
    float *routed;                 /* [T, E] products of the router */
    float *low;                    /* [T, rank_max] products A h of an adapter; NULL without adapters */
    int32_t *block;                /* [T] routing block of each token; NULL when experts are chosen per token */
    um_final final;                /* the tokens of this pass whose hidden rows are read */
    float *hidden;         /* [T, H] after the final norm, of the tokens in `final`; valid until the next pass */
    float *saved;          /* [n_saved, H] hidden rows that are kept for later passes */
    float *blend;          /* [n_blends, H] blends of embeddings that are kept for later passes; NULL: none are */
    float *branch[2];      /* [T, H] results of attention and feed-forward layers before their norms; NULL: not used */
    size_t workspace;      /* bytes of the arrays above */
    bool selects;          /* a span of this pass keeps sparse keys */
    const um_rank *rank;   /* the place in a group of ranks; NULL: none */
    float *partial[2];     /* [partial_rows, H] partial results, which all ranks read; used in turns */
    int32_t kv_copies;     /* of the layer whose keys are being selected, see um_layer_kind */
    int32_t turn;          /* index of the next one in `partial` */
    float *head_rows[2];   /* [HEAD_ROWS, rows of this rank's head] products with its part of the vocabulary, which
                              other ranks read; used in turns */
    float *logits;         /* [rows that this rank answers, vocab] products with all of it */
    bool is_lost;          /* another rank has failed in this pass */
    const um_batch *batch; /* the submitted pass, until um_host_wait */
};

/* Rows whose logits the ranks of a group compute together. */
enum { HEAD_ROWS = 16 };

/* ---- The pass ---------------------------------------------------------------------------------------------------- */

/* Widths of rows, in elements. */
static int32_t q_width(const um_layer_kind *k) { return k->n_heads * k->head_dim; }

static int32_t qkv_width(const um_layer_kind *k) { return (k->n_heads + 2 * k->n_kv_heads) * k->head_dim; }

/* Returns whether a KV cache has pages of its own, because its layers have a window. */
static bool is_near(const um_forward *f, int32_t kv) {
    const um_layer_kind *k = &f->net->kind[0];
    while (k->kv != kv) k++;
    return k->window > 0 && f->c.n_near_pages > 0;
}

/* Returns the KV cache of a layer. */
static um_kv *kv_of(const um_forward *f, int32_t layer) { return f->kv[um_kind_of(f->net, layer)->kv]; }

static um_norm norm_of(const um_forward *f, const um_vector *w) {
    return (um_norm){um_values(w ? w : f->net->ones), NULL, f->net->norm_eps};
}

static um_rope_kv rope_args(const um_forward *f, int32_t layer, const um_batch *b) {
    const um_layer *y = &f->net->layer[layer];
    const um_layer_kind *k = um_kind_of(f->net, layer);
    const um_rotary *rotary = &f->net->rotary[k->rotary];
    return (um_rope_kv){.layer = f->kv_layer[layer],
                        .n_tokens = b->n_tokens,
                        .n_heads = k->n_heads,
                        .n_kv_heads = k->n_kv_heads,
                        .head_dim = k->head_dim,
                        .rope_dim = k->rope_dim,
                        .qkv = f->qkv,
                        .q_norm = um_values(y->q_norm),
                        .k_norm = um_values(y->k_norm),
                        .v_norm = k->v_norm ? um_values(f->net->ones) : NULL,
                        .eps = f->net->norm_eps,
                        .clip = f->net->clip_qkv,
                        .cos = um_values(rotary->cos),
                        .sin = um_values(rotary->sin),
                        .query = um_values(rotary->query),
                        .pos = b->pos,
                        .slot = k->window && b->near_slot ? b->near_slot : b->slot};
}

static um_attention attention_args(const um_forward *f, int32_t layer, const um_batch *b) {
    const um_layer_kind *k = um_kind_of(f->net, layer);
    return (um_attention){.layer = f->kv_layer[layer],
                          .n_heads = k->n_heads,
                          .n_kv_heads = k->n_kv_heads,
                          .head_dim = k->head_dim,
                          .page_size = f->c.page_size,
                          .stride = qkv_width(k),
                          .q = f->qkv,
                          .out = f->attended,
                          .scale = k->attn_scale,
                          .window = k->window,
                          .batch = b};
}

/* A range of tokens of the batch that an operation processes together. */
typedef struct rows {
    int32_t first, n;
} rows;

/* Computes y = W x + bias, or y += W x + bias with `add`; then y += B (A x) for the tokens of spans that use an
 * adapter. x and y start at the first token of `at`. Neighbouring spans with the same adapter are computed together.
 * The product of a row does not depend on the other rows, so this does not change the result. */
static void linear(um_forward *f, const um_linear *w, const um_batch *b, rows at, const float *x, bool add, float *y) {
    const um_ops *ops = f->ops;
    um_dev *dev = f->dev;
    ops->linear(dev, w->w, um_values(w->bias), x, at.n, add, y);
    for (int32_t i = 0, next; w->low_rank && i < b->n_spans; i = next) {
        const um_span *s = &b->span[i];
        int32_t end = s->first + s->n;
        for (next = i + 1; next < b->n_spans && b->span[next].adapter == s->adapter; next++) end += b->span[next].n;
        assert(s->adapter < f->net->n_adapters && b->span[next - 1].first + b->span[next - 1].n == end);
        const um_low_rank *low = s->adapter >= 0 ? &w->low_rank[s->adapter] : NULL;
        const int32_t first = UM_MAX(s->first, at.first) - at.first,
                      n = UM_MIN(end, at.first + at.n) - at.first - first;
        if (!low || !low->a || n <= 0) continue;
        ops->linear(dev, low->a, NULL, x + (size_t)first * (size_t)low->in, n, false, f->low);
        ops->linear(dev, low->b, NULL, f->low, n, true, y + (size_t)first * (size_t)low->out);
    }
}

/* ---- Ranks ---- */

/* The addresses that ranks publish. */
enum { SHARED_PARTIAL, SHARED_PARTIAL_2, SHARED_HEAD, SHARED_HEAD_2, SHARED_BLEND };

/* Returns the rows of `partial`. They hold a result for each token of a pass, and a score for each key of a request. */
static int32_t partial_rows(const um_forward *f) {
    const int64_t keys = (int64_t)(f->c.n_pages + f->c.n_scratch_pages) * f->c.page_size;
    return (int32_t)UM_MAX((int64_t)f->c.max_tokens, UM_CEIL_DIV(keys, f->net->hidden));
}

/* Returns where a layer that is cut by columns writes its results: `own`, or memory that all ranks read. */
static float *partial_of(const um_forward *f, float *own) { return f->rank ? f->partial[f->turn] : own; }

/* Returns how many of n floats the ranks exchange at a time. */
static size_t piece_of(const um_rank *r, size_t n) {
    return um_ranks_share_memory(r) ? n : UM_MIN(n, (size_t)UM_RANKS_CHUNK);
}

/* Calls um_ranks_gather. A profile has its time as that of the operation "exchange". */
static void gather(um_forward *f, int slot, size_t first, size_t n, bool all) {
    um_profile *p = f->ops == &um_ops_timed ? f->timed.profile : NULL;
    const double since = p ? um_profile_enter(p) : 0;
    f->is_lost |= !um_ranks_gather(f->rank, slot, first, n, all);
    if (p) um_profile_leave(p, since, "exchange", (int32_t)UM_MIN(n, (size_t)INT32_MAX));
}

/* Computes y = the sum of the partial results of all ranks, or y += that with `add`. y starts at the first token. A
 * rank writes to the same memory again after the next meeting, when all have read it. Where results reach rank 0 first,
 * it adds them and sends the sum, which has fewer bytes. */
static void sum_ranks(um_forward *f, rows at, bool add, float *y) {
    const float *part[UM_RANKS_MAX];
    const um_rank *r = f->rank;
    const size_t H = (size_t)f->net->hidden, first = (size_t)at.first * H, end = first + (size_t)at.n * H;
    const int slot = SHARED_PARTIAL + f->turn;
    const bool all = um_ranks_is_direct(r);
    for (size_t from = first, n; from < end; from += n) {
        n = piece_of(r, end - from);
        gather(f, slot, from, n, all);
        if (f->is_lost) break;
        for (int32_t other = 0; other < r->n; other++) part[other] = um_ranks_gathered(r, slot, other, from);
        if (all || r->index == 0) f->ops->sum(f->dev, part, r->n, n, add, y + from);
        if (!all) f->is_lost |= !um_ranks_spread(r, y + from, n);
    }
    f->turn ^= 1;
}

/* See um_attention. The scores of a span go through memory that all ranks read. */
static void merge_scores(void *arg, float *score, int32_t n_scores, bool per_head) {
    um_forward *f = (um_forward *)arg;
    const um_rank *r = f->rank;
    const int slot = SHARED_PARTIAL + f->turn;
    const int32_t copies = f->kv_copies, first = per_head ? r->index / UM_MAX(copies, 1) * copies : 0,
                  end = per_head ? first + copies : r->n;
    if (per_head && copies <= 1) return;
    assert(n_scores <= (int64_t)partial_rows(f) * f->net->hidden);
    memcpy(f->partial[f->turn], score, (size_t)n_scores * sizeof *score);
    for (size_t from = 0, n; from < (size_t)n_scores; from += n) {
        n = piece_of(r, (size_t)n_scores - from);
        gather(f, slot, from, n, true);
        if (f->is_lost) break;
        for (int32_t other = first; other < end; other++) {
            const float *s = um_ranks_gathered(r, slot, other, from);
            float *to = score + from;
            for (size_t i = 0; i < n; i++)
                to[i] = other == first ? s[i] : per_head ? UM_MAX(to[i], s[i]) : to[i] + s[i];
        }
    }
    f->turn ^= 1;
}

/* Moves the queries and the residual stream of the tokens in f->final to the front. */
static void keep_final(um_forward *f, int32_t layer) {
    const um_layer_kind *k = um_kind_of(f->net, layer);
    const int32_t *token = f->final.token, n = f->final.batch.n_tokens, H = f->net->hidden;
    f->ops->copy_rows(f->dev, f->qkv, token, NULL, n, qkv_width(k), q_width(k), f->qkv);
    f->ops->copy_rows(f->dev, f->x, token, NULL, n, H, H, f->x);
}

/* Adds the norm of f->branch to x. */
static void add_branch(um_forward *f, const um_vector *w, int32_t n_tokens) {
    const um_norm norm = norm_of(f, w);
    f->ops->norm_add(f->dev, f->branch[0], &norm, n_tokens, f->net->hidden, 1, f->x);
}

/* Computes x += Wo attention(rope(Wqkv norm(x))), or x += norm(Wo ...). All keys and values are written to their pages
 * before attention reads them. `out` are the tokens whose x is computed: b, or those of f->final, which are moved to
 * the front. */
static void attention_half(um_forward *f, int32_t layer, const um_batch *b, const um_batch *out) {
    const um_ops *ops = f->ops;
    um_dev *dev = f->dev;
    const um_layer *y = &f->net->layer[layer];
    const bool post = um_kind_of(f->net, layer)->post_norms;
    um_kv *kv = kv_of(f, layer);
    um_rope_kv rope = rope_args(f, layer, b);
    um_attention attention = attention_args(f, layer, b);

    const um_norm norm = {um_values(y->attn_norm), um_values(y->attn_norm_bias), f->net->norm_eps};
    ops->norm(dev, f->x, &norm, b->n_tokens, f->net->hidden, f->normed);
    linear(f, &y->qkv, b, (rows){0, b->n_tokens}, f->normed, false, f->qkv);
    ops->rope_kv(dev, kv, &rope);
    attention.merge_scores = f->rank ? merge_scores : NULL;
    attention.merge_arg = f;
    f->kv_copies = um_kind_of(f->net, layer)->kv_copies;
    if (f->selects) ops->kv_select(dev, kv, &attention); /* reads the queries of tokens that `out` may lack */
    if (out != b) keep_final(f, layer);
    if (!out->n_tokens) return;
    attention.batch = out;
    ops->attention(dev, kv, &attention);
    const rows all = {0, out->n_tokens};
    float *to = post ? f->branch[0] : f->x;
    linear(f, &y->o, out, all, f->attended, !post && !f->rank, partial_of(f, to));
    if (f->rank) sum_ranks(f, all, !post, to);
    if (post) add_branch(f, y->attn_post_norm, out->n_tokens);
}

/* Returns the number of rows that the buffers gate_up and gated hold. */
static int32_t wide_rows(const um_forward *f) {
    const int32_t most = f->d->ops->rows_at_once, T = UM_MAX(f->c.max_tokens, 1);
    return most ? UM_MIN(most, T) : T;
}

/* A gated feed-forward layer. */
typedef struct gated_layer {
    const um_linear *gate_up, *down;
    int32_t width;
    um_act act;
} gated_layer;

/* Computes gated = act(Wgate h) * Wup h. Uses one fused operation if the backend has it and no adapter changes the
 * layer. */
static void gate(um_forward *f, const gated_layer *l, const um_batch *b, rows at, const float *h) {
    const um_linear *gate_up = l->gate_up;
    if (f->d->ops->linear_gate && !gate_up->low_rank) {
        f->ops->linear_gate(f->dev, l->act, gate_up->w, um_values(gate_up->bias), h, at.n, f->gated);
        return;
    }
    linear(f, gate_up, b, at, h, false, f->gate_up);
    f->ops->gate(f->dev, l->act, f->gate_up, at.n, l->width, f->gated);
}

/* Computes out = Wdown (act(Wgate h) * Wup h) for some tokens, or out += that with `add`; h is in f->normed. The rows
 * are processed in groups of equal size, and each group goes through all three operations before the next one starts.
 * The intermediate results are the widest of the pass, so this keeps their buffers small. */
static void feed_forward(um_forward *f, const gated_layer *l, const um_batch *b, rows all, bool add, float *out) {
    const size_t hidden = (size_t)f->net->hidden;
    const int32_t n_groups = UM_CEIL_DIV(all.n, wide_rows(f));
    rows at = {all.first, 0};
    for (int32_t i = 0; i < n_groups; i++, at.first += at.n) {
        at.n = all.n / n_groups + (i < all.n % n_groups);
        gate(f, l, b, at, f->normed + (size_t)at.first * hidden);
        linear(f, l->down, b, at, f->gated, add, out + (size_t)at.first * hidden);
    }
}

static void route(um_forward *f, int32_t layer, const um_batch *b) {
    linear(f, &f->net->layer[layer].router, b, (rows){0, b->n_tokens}, f->normed, false, f->routed);
}

/* Computes out += sum of weight_e * expert_e(h) over the experts that f->routed chooses for each token, with h in
 * f->normed. */
static void experts(um_forward *f, int32_t layer, const um_batch *b, float *out) {
    const um_layer *y = &f->net->layer[layer];
    const um_moe moe = {.route = &f->net->route,
                        .logits = f->routed,
                        .bias = um_values(y->router_bias),
                        .expert_scale = um_values(y->expert_scale),
                        .act = um_kind_of(f->net, layer)->act,
                        .block = b == &f->final.batch ? f->final.block : f->block,
                        .gate_up = (const um_weight *const *)y->expert_gate_up,
                        .down = (const um_weight *const *)y->expert_down,
                        .x = f->normed,
                        .n_tokens = b->n_tokens,
                        .hidden = f->net->hidden,
                        .n_ff = um_kind_of(f->net, layer)->expert_ff,
                        .y = out};
    f->ops->moe(f->dev, &moe);
}

/* Adds the norm of f->branch to x, and scales x by the factor of each token's mode. Neighbouring spans of the same mode
 * are computed together. */
static void end_layer(um_forward *f, int32_t layer, const um_batch *b) {
    const um_layer *y = &f->net->layer[layer];
    const um_norm norm = norm_of(f, y->ffn_post_norm);
    const size_t H = (size_t)f->net->hidden;
    for (int32_t i = 0, next; i < b->n_spans; i = next) {
        const um_span *s = &b->span[i];
        int32_t n = s->n;
        for (next = i + 1; next < b->n_spans && b->span[next].canvas == s->canvas; next++) n += b->span[next].n;
        const float *scale = um_values(y->scale[s->canvas]);
        f->ops->norm_add(f->dev, f->branch[0] + (size_t)s->first * H, &norm, n, (int32_t)H, scale ? *scale : 1,
                         f->x + (size_t)s->first * H);
    }
}

/* Computes x += norm(norm(ffn(norm(x))) + norm(experts(norm(x)))), or those parts of it that the layer has. */
static void normed_half(um_forward *f, int32_t layer, const um_batch *b) {
    const um_layer *y = &f->net->layer[layer];
    const um_layer_kind *k = um_kind_of(f->net, layer);
    const gated_layer dense = {&y->gate_up, &y->down, k->n_ff, k->act};
    const int32_t n = b->n_tokens, H = f->net->hidden;
    um_norm norm = norm_of(f, y->ffn_norm);
    f->ops->norm(f->dev, f->x, &norm, n, H, f->normed);
    feed_forward(f, &dense, b, (rows){0, n}, false, partial_of(f, f->branch[0]));
    if (f->rank) sum_ranks(f, (rows){0, n}, false, f->branch[0]);
    if (y->router.w) {
        norm = norm_of(f, y->dense_post_norm);
        f->ops->norm(f->dev, f->branch[0], &norm, n, H, f->branch[0]);
        norm = norm_of(f, y->router_norm);
        f->ops->norm(f->dev, f->x, &norm, n, H, f->normed);
        route(f, layer, b);
        norm = norm_of(f, y->expert_norm);
        f->ops->norm(f->dev, f->x, &norm, n, H, f->normed);
        float *to = partial_of(f, f->branch[1]);
        memset(to, 0, (size_t)n * (size_t)H * sizeof(float));
        experts(f, layer, b, to);
        if (f->rank) sum_ranks(f, (rows){0, n}, false, f->branch[1]);
        norm = norm_of(f, y->expert_post_norm);
        f->ops->norm_add(f->dev, f->branch[1], &norm, n, H, 1, f->branch[0]);
    }
    end_layer(f, layer, b);
}

static void feed_forward_half(um_forward *f, int32_t layer, const um_batch *b) {
    const um_layer *y = &f->net->layer[layer];
    const um_layer_kind *k = um_kind_of(f->net, layer);
    const um_norm norm = {um_values(y->ffn_norm), um_values(y->ffn_norm_bias), f->net->norm_eps};
    const gated_layer dense = {&y->gate_up, &y->down, k->n_ff, k->act},
                      shared = {&y->shared_gate_up, &y->shared_down, k->shared_ff, k->act};
    const rows all = {0, b->n_tokens};
    if (!b->n_tokens) return;
    if (k->post_norms) {
        normed_half(f, layer, b);
        return;
    }
    f->ops->norm(f->dev, f->x, &norm, b->n_tokens, f->net->hidden, f->normed);
    float *to = partial_of(f, f->x);
    if (f->rank) memset(to, 0, (size_t)all.n * (size_t)f->net->hidden * sizeof(float));
    if (y->gate_up.w) feed_forward(f, &dense, b, all, true, to);
    if (y->shared_gate_up.w) feed_forward(f, &shared, b, all, true, to);
    if (y->router.w) {
        route(f, layer, b);
        experts(f, layer, b, to);
    }
    if (f->rank) sum_ranks(f, all, true, f->x);
}

/* Numbers the routing blocks. Tokens of a span in the same routing block get the same number. No number is used in two
 * spans. */
static void number_blocks(const um_forward *f, const um_batch *b) {
    const int32_t length = f->net->route_block;
    int32_t number = 0;
    for (int32_t i = 0; i < b->n_spans; i++) {
        const um_span *s = &b->span[i];
        for (int32_t t = s->first; t < s->first + s->n; t++) {
            if (t == s->first || b->pos[t] / length != b->pos[t - 1] / length) number++;
            f->block[t] = number;
        }
    }
}

/* Mixes blends into the embeddings of canvases. A canvas without a blend adds down(act(0) * 0) = 0. */
static void mix_blends(um_forward *f, const um_batch *b) {
    const um_conditioning *c = &f->net->conditioning;
    const um_norm in = norm_of(f, c->norm), out = norm_of(f, NULL);
    const gated_layer l = {&c->gate_up, &c->down, c->n_ff, c->act};
    const size_t H = (size_t)f->net->hidden;
    for (int32_t i = 0; i < b->n_spans; i++) {
        const um_span *s = &b->span[i];
        const size_t at = (size_t)s->first * H;
        if (!s->canvas) continue;
        assert(s->blend >= 0 && (!s->blend || s->blend - 1 + s->n <= f->c.n_blends));
        if (s->blend) {
            f->ops->norm(f->dev, f->blend + (size_t)(s->blend - 1) * H, &in, s->n, (int32_t)H, f->normed + at);
            const rows at = {s->first, s->n};
            feed_forward(f, &l, b, at, !f->rank, partial_of(f, f->x));
            if (f->rank) sum_ranks(f, at, true, f->x);
        }
        f->ops->norm(f->dev, f->x + at, &out, s->n, (int32_t)H, f->x + at);
    }
}

static void condition(um_forward *f, const um_batch *b) {
    um_profile *p = f->ops == &um_ops_timed ? f->timed.profile : NULL;
    if (!f->net->conditioning.n_ff) return;
    const double since = p ? um_profile_enter(p) : 0;
    mix_blends(f, b);
    if (p) um_profile_leave(p, since, "condition", b->n_tokens);
}

/* Runs the layers and the final norm. The last layer computes only the rows that are read. */
static void run_layers(um_forward *f, const um_batch *b) {
    const um_network *n = f->net;
    const um_batch *final = &f->final.batch;
    const um_norm norm = {um_values(n->final_norm), um_values(n->final_norm_bias), n->norm_eps};
    um_final_find(&f->final, b, f->block);
    for (int32_t layer = 0; layer < n->n_layers && !f->is_lost; layer++) {
        const um_batch *out = layer == n->n_layers - 1 ? final : b;
        attention_half(f, layer, b, out);
        feed_forward_half(f, layer, out);
    }
    if (!final->n_tokens) return;
    f->ops->norm(f->dev, f->x, &norm, final->n_tokens, n->hidden, f->x);
    f->ops->copy_rows(f->dev, f->x, NULL, f->final.token, final->n_tokens, n->hidden, n->hidden, f->hidden);
}

/* Computes the weighted sum of a row's hidden rows. */
static void mix_row(const um_forward *f, const um_row *r, float *to) {
    const size_t H = (size_t)f->net->hidden;
    for (int k = 0; k < 2 && (k == 0 || r->w[1] != 0); k++) {
        const int64_t src = r->src[k];
        const float *x = src >= 0 ? f->hidden + (size_t)src * H : f->saved + (size_t)(-1 - src) * H;
        for (size_t i = 0; i < H; i++) to[i] = k == 0 ? r->w[0] * x[i] : to[i] + r->w[1] * x[i];
    }
}

/* Returns a rank's rows of the head. *n_used: those of them that are ids. */
static um_cut_range head_part(const um_network *net, const um_rank *r, int32_t rank, int64_t *n_used) {
    const um_cut_range part = um_cut_range_of((um_cut_part){net->head_rows, UM_HEAD_UNIT}, rank, r->n);
    *n_used = UM_MAX(UM_MIN(part.end, net->vocab) - part.start, 0);
    return part;
}

/* Computes the products of n rows with this rank's part of the vocabulary. Returns the number of products. */
static size_t multiply_head(um_forward *f, const um_row *row, int32_t n, float *out) {
    const um_network *net = f->net;
    int64_t n_used;
    const um_cut_range own = head_part(net, f->rank, f->rank->index, &n_used);
    for (int32_t i = 0; i < n; i++) mix_row(f, &row[i], f->normed + (size_t)i * (size_t)net->hidden);
    if (n_used) f->ops->linear(f->dev, net->head, NULL, f->normed, n, false, out);
    return (size_t)n * (size_t)(own.end - own.start);
}

/* Copies the logits of the rows [begin, end) of a group from the products of all ranks to f->logits. */
static void join_logits(um_forward *f, int slot, int32_t begin, int32_t end) {
    for (int32_t other = 0; other < f->rank->n; other++) {
        int64_t n_used;
        const um_cut_range part = head_part(f->net, f->rank, other, &n_used);
        const float *from = um_ranks_gathered(f->rank, slot, other, 0);
        for (int32_t i = begin; i < end && n_used; i++)
            memcpy(f->logits + (size_t)(i - begin) * (size_t)f->net->vocab + part.start,
                   from + (size_t)i * (size_t)(part.end - part.start), (size_t)n_used * sizeof(float));
    }
}

/* Sends the blends of embeddings that rank 0 has computed with the answers. */
static void spread_blends(um_forward *f, const um_row *row, int32_t n) {
    const size_t H = (size_t)f->net->hidden;
    for (int32_t i = 0; i < n && !f->is_lost; i++)
        if (row[i].blend) f->is_lost |= !um_ranks_spread(f->rank, f->blend + (size_t)(row[i].blend - 1) * H, H);
}

/* Computes the answers of the rows in groups. Each rank computes a part of the logits of a group. Then the ranks of one
 * process each answer some of its rows; between processes rank 0, which needs the answers, answers all. */
static void predict_in_ranks(um_forward *f, const um_batch *b, um_head *head) {
    const um_rank *r = f->rank;
    const bool shares = um_ranks_share_memory(r);
    int turn = 0;
    for (int32_t first = 0, n; first < b->n_rows && !f->is_lost; first += n, turn ^= 1) {
        n = UM_MIN(b->n_rows - first, HEAD_ROWS);
        const um_row *row = b->row + first;
        const size_t products = multiply_head(f, row, n, f->head_rows[turn]);
        gather(f, SHARED_HEAD + turn, 0, products, false);
        const int32_t begin = shares ? n * r->index / r->n : 0, end = shares          ? n * (r->index + 1) / r->n
                                                                      : r->index == 0 ? n
                                                                                      : 0;
        head->logits = f->logits;
        head->row = row + begin;
        head->answer = b->answer + first + begin;
        head->n_rows = end - begin;
        if (head->n_rows && !f->is_lost) {
            join_logits(f, SHARED_HEAD + turn, begin, end);
            f->ops->head(f->dev, head);
        }
        if (!shares) spread_blends(f, row, n);
    }
}

static void predict_rows(um_forward *f, const um_batch *b) {
    um_head head = {.w = f->net->head,
                    .hidden = f->hidden,
                    .saved = f->saved,
                    .hidden_size = f->net->hidden,
                    .vocab = f->net->vocab,
                    .scale = f->net->logit_scale,
                    .cap = f->net->logit_cap,
                    .embed = f->net->embed,
                    .embed_scale = f->net->embed_scale,
                    .blend = f->blend,
                    .row = b->row,
                    .n_rows = b->n_rows,
                    .answer = b->answer};
    if (f->rank) predict_in_ranks(f, b, &head);
    else if (b->n_rows) f->ops->head(f->dev, &head);
}

/* Saves hidden rows for later passes. Rows of this pass may read rows that an earlier pass saved, so this is done after
 * the pass has ended. */
static void save_rows(um_forward *f, const um_batch *b) {
    const size_t H = (size_t)f->net->hidden;
    for (int32_t i = 0; i < b->n_saves; i++) {
        const int32_t from = b->save[i][0], to = b->save[i][1];
        assert(from >= 0 && from < b->n_tokens && to >= 0 && to < f->c.n_saved);
        memcpy(f->saved + (size_t)to * H, f->hidden + (size_t)from * H, H * sizeof(float));
    }
}

um_status um_host_submit(um_forward *f, const um_batch *b, um_err *err) {
    const um_ops *ops = f->ops;
    um_dev *dev = f->dev;
    const um_network *n = f->net;
    assert(b->n_tokens <= f->c.max_tokens && b->n_rows <= f->c.max_rows);

    f->selects = false;
    for (int32_t i = 0; i < b->n_spans; i++) f->selects |= b->span[i].select != NULL;
    if (b->n_tokens) {
        if (f->block) number_blocks(f, b);
        ops->embed(dev, n->embed, b->id, b->n_tokens, n->embed_scale, f->x);
        if (b->n_soft) ops->embed_soft(dev, n->embed, b->soft, b->n_soft, n->embed_scale, f->x);
        condition(f, b);
        run_layers(f, b);
    }
    if (!f->is_lost) predict_rows(f, b);
    f->batch = b;
    if (f->is_lost) return um_fail(err, UM_EDEVICE, "another rank has failed");
    return ops->submit ? ops->submit(dev, err) : UM_OK;
}

void um_host_copy_page(um_forward *f, int32_t from, int32_t to, int32_t n) {
    for (int32_t i = 0; i < f->net->n_kv; i++)
        if (!is_near(f, i)) f->ops->kv_copy(f->dev, f->kv[i], from, to, n);
}

um_status um_host_wait(um_forward *f, um_err *err) {
    assert(f->batch);
    um_status s = f->ops->wait ? f->ops->wait(f->dev, err) : UM_OK;
    if (!s) save_rows(f, f->batch);
    f->batch = NULL;
    return s;
}

const um_kv *um_host_kv(const um_forward *f) { return f->kv[0]; }

void um_host_profile(um_forward *f, um_profile *p) {
    f->timed = (um_timed){f->d->ops, f->own, p};
    f->ops = p ? &um_ops_timed : f->d->ops;
    f->dev = p ? (um_dev *)(void *)&f->timed : f->own;
}

const float *um_host_hidden(const um_forward *f) { return f->hidden; }

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static um_status new_rows(um_forward *f, float **out, int32_t rows, int32_t width, const char *what, um_err *err) {
    if (!width) return UM_OK;
    size_t bytes = um_mul(um_mul((size_t)UM_MAX(rows, 1), (size_t)width), sizeof(float));
    void *p = NULL;
    um_status s = f->d->ops->buffer(f->own, &p, bytes, what, err);
    if (s) return s;
    *out = p;
    f->workspace += bytes;
    return UM_OK;
}

/* Allocates the arrays that describe tokens. */
static um_status new_lists(um_forward *f, um_err *err) {
    const size_t T = (size_t)UM_MAX(f->c.max_tokens, 1);
    const bool blocks = f->net->route.capacity > 0;
    void *block = NULL, *final_block = NULL, *token = NULL, *seen_end = NULL, *span = NULL;
    const struct {
        void **out;
        size_t size;
        bool used;
    } list[] = {{&block, sizeof *f->block, blocks},
                {&final_block, sizeof *f->final.block, blocks},
                {&token, sizeof *f->final.token, true},
                {&seen_end, sizeof *f->final.seen_end, true},
                {&span, sizeof *f->final.span, true}};
    um_status s = UM_OK;
    for (size_t i = 0; i < UM_LEN(list) && !s; i++) {
        if (!list[i].used) continue;
        const size_t bytes = um_mul(T, list[i].size);
        s = f->d->ops->buffer(f->own, list[i].out, bytes, "lists of tokens", err);
        f->workspace += bytes;
    }
    f->block = block;
    f->final = (um_final){.token = token, .block = final_block, .seen_end = seen_end, .span = span};
    return s;
}

/* The widest rows that a layer needs, in elements. */
typedef struct widths {
    int32_t qkv, q, ff, branch;
} widths;

static widths widest(const um_network *n) {
    widths w = {.ff = n->conditioning.n_ff};
    for (int32_t i = 0; i < n->n_kinds; i++) {
        const um_layer_kind *k = &n->kind[i];
        w.qkv = UM_MAX(w.qkv, qkv_width(k));
        w.q = UM_MAX(w.q, q_width(k));
        w.ff = UM_MAX(w.ff, UM_MAX(k->n_ff, k->shared_ff));
        if (k->post_norms) w.branch = n->hidden;
    }
    return w;
}

/* Returns whether another rank has allocated the blends of embeddings of this one. */
static bool borrows_blends(const um_forward *f) {
    return f->rank && f->rank->index > 0 && um_ranks_share_memory(f->rank);
}

/* Allocates the blends of embeddings. All ranks of a process use those of rank 0. */
static um_status new_blends(um_forward *f, um_err *err) {
    um_status s = UM_OK;
    if (!f->c.n_blends) return UM_OK;
    if (borrows_blends(f)) f->blend = (float *)um_ranks_shared(f->rank, SHARED_BLEND, 0);
    else s = new_rows(f, &f->blend, f->c.n_blends, f->net->hidden, "blends of embeddings", err);
    if (f->rank && !s) um_ranks_publish(f->rank, SHARED_BLEND, f->blend);
    return s;
}

/* Allocates the memory for results that ranks exchange. */
static um_status new_rank_rows(um_forward *f, um_err *err) {
    const um_network *n = f->net;
    const um_rank *r = n->rank;
    int64_t width = 0, widest = 0, n_used;
    if (!r) return UM_OK;
    const int32_t answered = um_ranks_share_memory(r) ? UM_CEIL_DIV(HEAD_ROWS, r->n) : r->index ? 0 : HEAD_ROWS;
    for (int32_t other = 0; other < r->n; other++) {
        const um_cut_range part = head_part(n, r, other, &n_used);
        widest = UM_MAX(widest, part.end - part.start);
        if (other == r->index) width = part.end - part.start;
    }
    um_status s = answered ? new_rows(f, &f->logits, answered, n->vocab, "logits", err) : UM_OK;
    for (int i = 0; i < 2 && !s; i++) {
        s = new_rows(f, &f->partial[i], partial_rows(f), n->hidden, "partial results", err);
        if (!s) s = new_rows(f, &f->head_rows[i], HEAD_ROWS, (int32_t)width, "logits", err);
        if (s) break;
        um_ranks_publish(r, SHARED_PARTIAL + i, f->partial[i]);
        um_ranks_publish(r, SHARED_HEAD + i, f->head_rows[i]);
        s = um_ranks_mirror(r, SHARED_PARTIAL + i, UM_RANKS_CHUNK * sizeof(float), err);
        if (!s && answered)
            s = um_ranks_mirror(r, SHARED_HEAD + i, (size_t)HEAD_ROWS * (size_t)widest * sizeof(float), err);
    }
    return s;
}

static um_status new_workspace(um_forward *f, um_err *err) {
    const um_network *n = f->net;
    const widths w = widest(n);
    const int32_t T = f->c.max_tokens;
    um_status s = new_rows(f, &f->x, T, n->hidden, "residual stream", err);
    if (!s) s = new_rows(f, &f->normed, n->rank ? UM_MAX(T, HEAD_ROWS) : T, n->hidden, "normed activations", err);
    if (!s) s = new_rows(f, &f->qkv, T, w.qkv, "queries, keys and values", err);
    if (!s) s = new_rows(f, &f->attended, T, w.q, "attention output", err);
    if (!s) s = new_rows(f, &f->gate_up, wide_rows(f), 2 * w.ff, "gate and up activations", err);
    if (!s) s = new_rows(f, &f->gated, wide_rows(f), w.ff, "gated activations", err);
    if (!s) s = new_rows(f, &f->routed, T, n->route.n_experts, "router products", err);
    if (!s) s = new_rows(f, &f->low, T, n->rank_max, "products of adapters", err);
    for (int i = 0; i < 2 && !s; i++) s = new_rows(f, &f->branch[i], T, w.branch, "results before their norms", err);
    if (!s) s = new_lists(f, err);
    if (!s) s = new_rows(f, &f->hidden, T, n->hidden, "final hidden rows", err);
    if (!s) s = new_rows(f, &f->saved, f->c.n_saved, n->hidden, "saved hidden rows", err);
    if (!s) s = new_blends(f, err);
    return s ? s : new_rank_rows(f, err);
}

/* Returns the shape of a KV cache. Its layers have the same number of KV heads and the same head size. */
static um_kv_shape kv_shape(const um_forward *f, int32_t kv) {
    const um_layer_kind *k = &f->net->kind[0];
    int32_t n_layers = 0;
    while (k->kv != kv) k++;
    for (int32_t i = 0; i < f->net->n_layers; i++) n_layers += um_kind_of(f->net, i)->kv == kv;
    return (um_kv_shape){.n_layers = n_layers,
                         .n_kv_heads = k->n_kv_heads,
                         .head_dim = k->head_dim,
                         .page_size = f->c.page_size,
                         .n_slots = (int64_t)(is_near(f, kv) ? f->c.n_near_pages : f->c.n_pages) * f->c.page_size,
                         .n_scratch_slots = (int64_t)f->c.n_scratch_pages * f->c.page_size,
                         .type = f->c.kv_type,
                         .layout = f->c.layout};
}

/* Creates the KV caches, and numbers the layers of each. */
static um_status new_kv(um_forward *f, um_err *err) {
    int32_t n[UM_LAYER_KINDS_MAX] = {0};
    um_status s = UM_OK;
    f->kv_layer = UM_NEW_ARRAY(int32_t, (size_t)f->net->n_layers);
    for (int32_t i = 0; i < f->net->n_layers; i++) f->kv_layer[i] = n[um_kind_of(f->net, i)->kv]++;
    for (int32_t i = 0; i < f->net->n_kv && !s; i++) {
        const um_kv_shape shape = kv_shape(f, i);
        s = f->d->ops->kv_new(f->own, &f->kv[i], &shape, err);
    }
    return s;
}

um_status um_host_forward_new(um_forward **out, um_device *d, const um_network *n, const um_forward_config *c,
                              um_err *err) {
    um_forward *f = UM_NEW(um_forward);
    f->d = d;
    f->net = n;
    f->rank = n->rank;
    f->c = *c;
    um_status s = um_host_acquire(d, &f->own, err);
    um_host_profile(f, NULL);
    if (!s) s = new_kv(f, err);
    if (!s) s = new_workspace(f, err);
    if (s) {
        um_host_forward_free(f);
        f = NULL;
    }
    *out = f;
    return s;
}

void um_host_forward_free(um_forward *f) {
    if (!f) return;
    if (borrows_blends(f)) f->blend = NULL;
    void *buffer[] = {f->partial[0], f->partial[1],  f->head_rows[0], f->head_rows[1],
                      f->logits,     f->blend,       f->branch[0],    f->branch[1],
                      f->x,          f->normed,      f->qkv,          f->attended,
                      f->gate_up,    f->gated,       f->routed,       f->low,
                      f->block,      f->final.token, f->final.block,  f->final.seen_end,
                      f->final.span, f->hidden,      f->saved};
    for (size_t i = 0; i < UM_LEN(buffer); i++)
        if (buffer[i]) f->d->ops->buffer_free(f->own, buffer[i]);
    for (int32_t i = 0; i < UM_LAYER_KINDS_MAX; i++)
        if (f->kv[i]) f->d->ops->kv_free(f->own, f->kv[i]);
    um_free(f->kv_layer);
    if (f->own) um_host_release(f->d, f->own);
    um_free(f);
}

um_forward_memory um_host_memory(const um_forward *f) {
    const um_ops *ops = f->d->ops;
    um_forward_memory m = {.workspace = f->workspace + ops->scratch_bytes(f->own)};
    for (int32_t i = 0; i < f->net->n_kv; i++) {
        const um_kv_shape shape = kv_shape(f, i);
        m.kv += ops->kv_bytes(&shape);
        m.workspace += ops->kv_scratch_bytes(&shape);
    }
    return m;
}

int um_host_threads(const um_forward *f) { return f->d->ops->threads(f->own); }
