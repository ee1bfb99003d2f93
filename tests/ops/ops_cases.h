/* Random inputs for attention and head, the two operations that need more than plain arrays. */
#ifndef UM_TESTS_OPS_CASES_H
#define UM_TESTS_OPS_CASES_H

#include "ops_world.h"

/* ---- Attention ---- */

enum { CASE_SPANS = 3 };

typedef struct attention_shape {
    int32_t n_heads, n_kv_heads, head_dim, page_size;
    um_dtype kv_type;
    int32_t n[CASE_SPANS], n_keys[CASE_SPANS]; /* queries and keys of each request; 0 keys: the request is missing */
    int32_t start;                             /* first existing key */
    um_visibility rule;
} attention_shape;

/* The layout and place of keys and values. */
typedef struct kv_variant {
    um_kv_layout layout;
    bool scratch;  /* every second request uses scratch pages */
    um_range hole; /* clipped to the keys of a request */
} kv_variant;

/* Inputs of attention: requests whose last n tokens are the queries. */
typedef struct attention_case {
    attention_shape s;
    paged pages[CASE_SPANS];
    float *key[CASE_SPANS], *value[CASE_SPANS];
    um_span span[CASE_SPANS];
    int32_t *seen_end;
    float *q;
    um_batch batch;
    int32_t window; /* of the layer; 0: none */
} attention_case;

static inline int32_t pages_of(const attention_shape *s, int i) { return UM_CEIL_DIV(s->n_keys[i], s->page_size); }

static inline bool in_scratch(kv_variant v, int i) { return v.scratch && i % 2 == 0; }

static inline um_kv_shape shape_of(const attention_shape *s, kv_variant v) {
    int64_t n[2] = {2, 0}; /* numbers of pool pages and of scratch pages */
    for (int i = 0; i < CASE_SPANS; i++) n[in_scratch(v, i)] += pages_of(s, i);
    return (um_kv_shape){.n_layers = 2,
                         .n_kv_heads = s->n_kv_heads,
                         .head_dim = s->head_dim,
                         .page_size = s->page_size,
                         .n_slots = n[0] * s->page_size,
                         .n_scratch_slots = n[1] * s->page_size,
                         .type = s->kv_type,
                         .layout = v.layout};
}

static inline paged take_pages(const attention_shape *s, um_kv_shape shape, kv_variant v, int i, const paged *all,
                               int32_t taken[2]) {
    bool scratch = in_scratch(v, i);
    paged p = {.shape = shape, .n_pages = pages_of(s, i), .n_keys = s->n_keys[i]};
    p.hole = (um_range){UM_MIN(v.hole.start, p.n_keys), UM_MIN(v.hole.end, p.n_keys)};
    p.page = UM_NEW_ARRAY(int32_t, (size_t)p.n_pages + 1);
    for (int32_t k = 0; k < p.n_pages; k++) {
        int32_t n = taken[scratch]++;
        p.page[k] = scratch ? (int32_t)(shape.n_slots / shape.page_size) + n : all->page[n];
    }
    return p;
}

static inline attention_case new_attention_in(const attention_shape *s, kv_variant v) {
    attention_case c = {.s = *s};
    um_kv_shape shape = shape_of(s, v);
    int32_t taken[2] = {0, 0};
    paged all = random_pages(shape, (int32_t)shape.n_slots);
    for (int i = 0; i < CASE_SPANS && s->n_keys[i]; i++) {
        size_t n = (size_t)s->n_keys[i] * (size_t)s->n_kv_heads * (size_t)s->head_dim;
        c.pages[i] = take_pages(s, shape, v, i, &all, taken);
        c.key[i] = random_floats(n);
        c.value[i] = random_floats(n);
        c.span[i] = (um_span){.first = c.batch.n_tokens,
                              .n = s->n[i],
                              .page = c.pages[i].page,
                              .keys = {UM_MIN(s->start, s->n_keys[i]), s->n_keys[i]},
                              .hole = c.pages[i].hole,
                              .adapter = -1};
        c.batch.n_tokens += s->n[i];
        c.batch.n_spans++;
    }
    um_free(all.page);
    c.seen_end = UM_NEW_ARRAY(int32_t, (size_t)c.batch.n_tokens + 1);
    for (int i = 0; i < c.batch.n_spans; i++)
        for (int32_t t = 0; t < s->n[i]; t++)
            c.seen_end[c.span[i].first + t] = um_visible_end(s->rule, s->n_keys[i] - s->n[i] + t);
    c.q = random_floats((size_t)c.batch.n_tokens * (size_t)(s->n_heads * s->head_dim));
    return c;
}

static inline attention_case new_attention(const attention_shape *s) { return new_attention_in(s, (kv_variant){0}); }

static inline void free_attention(attention_case *c) {
    for (int i = 0; i < c->batch.n_spans; i++) {
        um_free(c->pages[i].page);
        um_free(c->key[i]);
        um_free(c->value[i]);
    }
    um_free(c->seen_end);
    um_free(c->q);
}

static inline size_t attention_width(const attention_case *c) { return (size_t)c->s.n_heads * (size_t)c->s.head_dim; }

/* Writes NaN to every slot of the layer, including scratch. */
static inline void poison_kv(const world *w, um_kv *kv, const um_kv_shape *shape, int32_t layer) {
    int32_t n = (int32_t)(shape->n_slots + shape->n_scratch_slots);
    paged all = {.shape = *shape, .n_pages = n / shape->page_size, .n_keys = n};
    all.page = UM_NEW_ARRAY(int32_t, (size_t)all.n_pages);
    for (int32_t i = 0; i < all.n_pages; i++) all.page[i] = i;
    float *bad = poisoned_floats((size_t)n * (size_t)shape->n_kv_heads * (size_t)shape->head_dim);
    write_keys(w, kv, &all, layer, bad, bad);
    um_free(bad);
    um_free(all.page);
}

/* Returns new KV of the device with the keys and values of the case. With `poison`, all other slots contain NaN. */
static inline um_kv *fill_kv(const world *w, const attention_case *c, bool poison) {
    um_kv *kv = make_kv(w, &c->pages[0].shape);
    if (poison) poison_kv(w, kv, &c->pages[0].shape, 1);
    for (int i = 0; i < c->batch.n_spans; i++) write_keys(w, kv, &c->pages[i], 1, c->key[i], c->value[i]);
    return kv;
}

static inline um_attention attention_args(const attention_case *c, const um_batch *b, int32_t layer) {
    return (um_attention){.layer = layer,
                          .n_heads = c->s.n_heads,
                          .n_kv_heads = c->s.n_kv_heads,
                          .head_dim = c->s.head_dim,
                          .page_size = c->s.page_size,
                          .stride = c->s.n_heads * c->s.head_dim,
                          .q = c->q,
                          .scale = 3 / sqrtf((float)c->s.head_dim),
                          .window = c->window,
                          .batch = b};
}

/* Returns out [n_tokens, n_heads * d] for the spans and queries of a batch. */
static inline float *attend_layer(const world *w, const um_kv *kv, const attention_case *c, const um_batch *b,
                                  int32_t layer) {
    um_attention a = attention_args(c, b, layer);
    a.out = poisoned_floats((size_t)c->batch.n_tokens * attention_width(c));
    w->ops->attention(w->dev, kv, &a);
    return a.out;
}

static inline float *attend_spans(const world *w, const um_kv *kv, const attention_case *c, const um_batch *b) {
    return attend_layer(w, kv, c, b, 1);
}

static inline um_batch batch_of(const attention_case *c) {
    um_batch b = c->batch;
    b.span = c->span;
    b.seen_end = c->seen_end;
    return b;
}

static inline float *run_attention(const world *w, const attention_case *c, bool poison) {
    um_batch b = batch_of(c);
    um_kv *kv = fill_kv(w, c, poison);
    float *out = attend_spans(w, kv, c, &b);
    w->ops->kv_free(w->dev, kv);
    return out;
}

static const um_visibility see_full = {.see = UM_SEE_FULL}, see_causal = {.see = UM_SEE_CAUSAL},
                           see_blocks = {.see = UM_SEE_BLOCK_CAUSAL, .block = 4},
                           see_anchored = {.see = UM_SEE_BLOCK_CAUSAL, .block = 32, .anchor = 5};

static inline size_t attention_shapes(attention_shape *out) {
    const attention_shape shapes[] = {
        {1, 1, 1, 1, UM_F32, {1}, {1}, 0, see_full},                      /* the smallest sizes */
        {5, 5, 64, 32, UM_F32, {32}, {64}, 0, see_full},                  /* whole tiles */
        {6, 2, 64, 32, UM_F32, {31, 7, 1}, {95, 33, 100}, 0, see_blocks}, /* several requests, GQA */
        {14, 2, 40, 4, UM_F32, {9, 16}, {41, 16}, 0, see_blocks}, /* small pages, head size not a multiple of a panel */
        {4, 4, 32, 7, UM_F32, {20}, {64}, 0, see_causal},         /* pages across tiles */
        {4, 1, 128, 96, UM_F32, {40, 3}, {200, 97}, 37, see_anchored}, /* keys that start late */
        {3, 3, 300, 64, UM_F32, {5}, {70}, 0, see_causal},             /* head wider than a block */
        {2, 1, 33, 32, UM_F32, {0, 3}, {8, 9}, 0, see_full},           /* a request without queries */
        {3, 1, 32, 32, UM_F32, {3, 5}, {1160, 700}, 0, see_blocks},    /* several segments of keys */
    };
    for (size_t i = 0; i < UM_LEN(shapes); i++) {
        out[2 * i] = out[2 * i + 1] = shapes[i];
        out[2 * i + 1].kv_type = UM_BF16;
    }
    return 2 * UM_LEN(shapes);
}
enum { ATTENTION_SHAPES_MAX = 32 };

/* ---- Head ---- */

enum { HEAD_SAVED = 3, HEAD_EDITS = 4 };

typedef um_top top_list[UM_TOP_MAX];

typedef struct head_case {
    um_tensor tensor;
    float *hidden, *saved;
    um_row *row;
    um_edit (*edit)[2 * HEAD_EDITS]; /* shared edits, then the row's own */
    top_list *top;
    uint32_t *allow; /* allows about a third of the ids */
    um_head args;    /* complete except for weight and answers */
} head_case;

/* Returns the sampling parameters of a kind of row: greedy, with a temperature, or with filters. Every test of the head
 * uses all kinds. */
static inline um_sampling random_sampling(int32_t kind) {
    um_sampling how = {.temperature = 0, .top_p = 1, .key = um_rng_key(world_seed, world_counter++, 0, 0)};
    if (kind % 3) how.temperature = (float)(0.3 + random_unit());
    if (kind % 8 == 4 || kind % 8 == 7) how.top_p = (float)(0.2 + 0.7 * random_unit());
    if (kind % 8 == 5 || kind % 8 == 7) how.top_k = 1 + random_below(20);
    how.filters_first = kind % 16 > 8;
    if (kind % 8 == 6) how.min_p = (float)(0.3 * random_unit());
    return how;
}

static inline int by_id(const void *a, const void *b) { return ((const um_edit *)a)->id - ((const um_edit *)b)->id; }

/* Creates random edits. Some of their ids are outside the vocabulary. */
static inline void random_edits(um_edit *edit, int32_t n, int32_t vocab) {
    for (int32_t e = 0; e < n; e++)
        edit[e] = (um_edit){random_below(vocab + 9) - 4, e == 1 ? 2 : 0, e == 2 ? 1.3f : 0, e == 0 || e == 3};
}

static inline void random_row(head_case *c, int32_t i, int32_t n_hidden) {
    um_row *r = &c->row[i];
    *r = (um_row){.w = {1, 0}, .how = random_sampling(i), .want = i % 3 ? 31 : 63, .id = random_below(c->args.vocab)};
    r->src[0] = i % 5 == 4 ? -1 - random_below(HEAD_SAVED) : random_below(n_hidden);
    r->src[1] = random_below(n_hidden);
    if (i % 7 == 6) r->w[0] = 2.5f, r->w[1] = -1.5f; /* guidance */
    if (i % 4 == 1) r->allow = c->allow;
    r->edit = c->edit[i];
    r->n_edit = i % (HEAD_EDITS + 1);
    random_edits(c->edit[i], r->n_edit, c->args.vocab);
    qsort(c->edit[i], (size_t)r->n_edit, sizeof(um_edit), by_id);
    r->own = c->edit[i] + HEAD_EDITS;
    r->n_own = i / 3 % (HEAD_EDITS + 1);
    random_edits(c->edit[i] + HEAD_EDITS, r->n_own, c->args.vocab);
    if (i % 3 == 2) r->n_top = 1 + random_below(UM_TOP_MAX);
    r->top = c->top[i];
}

static inline head_case new_head(um_dtype type, int32_t rows_of_w, int32_t vocab, int32_t h, int32_t n_rows) {
    int32_t n_hidden = UM_MAX(n_rows / 2, 1);
    head_case c = {.tensor = random_tensor(type, rows_of_w, h)};
    c.hidden = random_floats((size_t)n_hidden * (size_t)h);
    c.saved = random_floats(HEAD_SAVED * (size_t)h);
    c.row = UM_NEW_ARRAY(um_row, (size_t)n_rows);
    c.edit = (um_edit(*)[2 * HEAD_EDITS]) um_zalloc(sizeof(um_edit[2 * HEAD_EDITS]) * (size_t)n_rows);
    c.top = UM_NEW_ARRAY(top_list, (size_t)n_rows);
    c.allow = UM_NEW_ARRAY(uint32_t, (size_t)UM_CEIL_DIV(vocab, 32));
    for (int32_t v = 0; v < vocab; v++)
        if (v % 3 == 0) c.allow[v / 32] |= 1u << v % 32;
    c.args = (um_head){.hidden = c.hidden,
                       .saved = c.saved,
                       .hidden_size = h,
                       .vocab = vocab,
                       .scale = 4 / sqrtf((float)h),
                       .row = c.row,
                       .n_rows = n_rows};
    for (int32_t i = 0; i < n_rows; i++) random_row(&c, i, n_hidden);
    return c;
}

static inline void free_head(head_case *c) {
    free_tensor(&c->tensor);
    um_free(c->hidden);
    um_free(c->saved);
    um_free(c->row);
    um_free(c->edit);
    um_free(c->top);
    um_free(c->allow);
}

/* The output of a run of the head. */
typedef struct head_result {
    um_answer *answer; /* [n] */
    top_list *top;     /* [n] */
    float *blend;      /* [rows of the case, h] */
} head_result;

static inline void free_result(head_result *r) {
    um_free(r->answer);
    um_free(r->top);
    um_free(r->blend);
}

/* Computes the answers of the rows [first, first + n). */
static inline head_result run_head(const world *w, const head_case *c, const um_weight *m, int32_t first, int32_t n) {
    um_head a = c->args;
    head_result out = {UM_NEW_ARRAY(um_answer, (size_t)n + 1), UM_NEW_ARRAY(top_list, (size_t)n + 1), NULL};
    out.blend = UM_NEW_ARRAY(float, um_mul((size_t)c->args.n_rows, (size_t)c->args.hidden_size) + 1);
    a.w = a.embed = m;
    a.embed_scale = 2;
    a.blend = out.blend;
    a.row += first;
    a.n_rows = n;
    a.answer = out.answer;
    memset(a.answer, 0xff, sizeof(um_answer) * (size_t)n);
    memset(c->top + first, 0xff, sizeof(top_list) * (size_t)n);
    w->ops->head(w->dev, &a);
    memcpy(out.top, c->top + first, sizeof(top_list) * (size_t)n);
    return out;
}

#endif
