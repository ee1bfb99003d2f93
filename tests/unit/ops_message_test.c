/* Messages: every field of a random batch is found again through the offsets, padding is empty, shared data are stored
 * once, and nothing is written beyond the given size. The seed is fixed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "ops/message.h"
#include "ops/select.h"

/* ---- Random batches ---------------------------------------------------------------------------------------------- */

enum { REQUESTS = 4, SPANS = 3 * REQUESTS, SPAN_TOKENS = 40, TOKENS = SPANS * SPAN_TOKENS, ROWS = 8 * REQUESTS };

/* A batch and the room for it. Every array has an allocation of its own, so that a sanitizer sees reads beyond it. */
typedef struct given {
    um_batch b;
    um_message_capacity capacity;
    int32_t id[TOKENS], pos[TOKENS], slot[TOKENS], near_slot[TOKENS], seen_end[TOKENS], save[SPANS][2];
    um_span span[SPANS];
    um_kv_select select[SPANS];
    um_soft soft[TOKENS];
    um_row row[ROWS];
    void *memory[8 * SPANS + 2 * TOKENS + 8 * ROWS];
    int32_t n_memory, n_pages;
} given;

static uint64_t draws;

static int32_t draw(int32_t least, int32_t most) {
    return least + (int32_t)(um_rng_u64(11, draws++) % (uint64_t)(most - least + 1));
}

static bool chance(int32_t percent) { return draw(1, 100) <= percent; }

static void *take(given *g, size_t n, size_t each) {
    assert_true((size_t)g->n_memory < UM_LEN(g->memory));
    return g->memory[g->n_memory++] = um_zalloc(um_mul(n ? n : 1, each));
}

#define TAKE(g, T, n) ((T *)take(g, (size_t)(n), sizeof(T)))

static int32_t *random_table(given *g, int32_t n_keys) {
    const int32_t n = UM_CEIL_DIV(n_keys, g->capacity.page_size);
    int32_t *page = TAKE(g, int32_t, n);
    for (int32_t i = 0; i < n; i++) page[i] = 3 * g->n_pages++ + 1;
    return page;
}

static um_edit *random_edits(given *g, int32_t n) {
    um_edit *e = TAKE(g, um_edit, n);
    for (int32_t i = 0; i < n; i++)
        e[i] = (um_edit){.id = draw(0, g->capacity.vocab - 1),
                         .add = (float)draw(-9, 9),
                         .scale = (float)draw(0, 3),
                         .ban = chance(50)};
    return e;
}

static float *random_floats(given *g, int32_t n) {
    float *v = TAKE(g, float, n);
    for (int32_t i = 0; i < n; i++) v[i] = (float)draw(-99, 99);
    return v;
}

static void add_select(given *g, um_span *s, int32_t first_vis, int32_t *kept_page, const float *prior) {
    um_kv_select *k = &g->select[s - g->span];
    int32_t *vis = TAKE(g, int32_t, s->keys.end);
    *k = (um_kv_select){.block = {first_vis + draw(0, s->n - 1), first_vis + s->n},
                        .pool = draw(1, 7),
                        .per_head = chance(50),
                        .page = kept_page,
                        .prior = prior,
                        .blind = chance(50)};
    s->select = k;
    k->n_keep = draw(0, um_select_keys(s, vis));
}

static void add_softs(given *g, const um_span *s) {
    for (int32_t t = s->first; t < s->first + s->n; t++) {
        if (!chance(15)) continue;
        const int32_t n = draw(0, 5);
        int32_t *id = TAKE(g, int32_t, n);
        for (int32_t i = 0; i < n; i++) id[i] = draw(0, g->capacity.vocab - 1);
        g->soft[g->b.n_soft++] =
            (um_soft){.at = t, .n = n, .id = id, .w = random_floats(g, n), .renormalize = chance(50)};
    }
}

/* Adds a span that feeds n tokens from first_vis on and reads keys below keys_end. */
static um_span *add_span(given *g, const int32_t *page, int32_t first_vis, int32_t n, int32_t keys_end) {
    um_span *s = &g->span[g->b.n_spans++];
    const int32_t hole = draw(0, first_vis);
    *s = (um_span){.first = g->b.n_tokens, .n = n, .page = page, .keys = {draw(0, first_vis), keys_end}};
    s->canvas = chance(30);
    s->start = first_vis;
    s->blend = s->canvas ? draw(0, 9) : 0;
    s->hole = chance(30) ? (um_range){hole, draw(hole, first_vis)} : (um_range){0, 0};
    s->adapter = draw(-1, 2);
    for (int32_t i = 0; i < n; i++) {
        const int32_t t = g->b.n_tokens++;
        g->id[t] = draw(0, g->capacity.vocab - 1);
        g->pos[t] = first_vis + i;
        g->slot[t] = (int32_t)um_slot_of(page, g->capacity.page_size, first_vis + i);
        g->near_slot[t] = draw(0, 999);
        g->seen_end[t] = draw(0, keys_end);
    }
    add_softs(g, s);
    return s;
}

static um_sampling random_sampling(void) {
    return (um_sampling){.temperature = (float)draw(0, 2) / 2,
                         .top_p = chance(70) ? 1 : 0.5f,
                         .min_p = chance(70) ? 0 : 0.25f,
                         .top_k = chance(70) ? 0 : draw(1, 50),
                         .key = um_rng_u64(12, draws)};
}

/* Adds the rows of a request. Those in front have other edits, as before min_tokens. */
static void add_rows(given *g, int32_t n) {
    const int32_t n_edit[2] = {draw(0, 30), draw(0, 30)}, n_early = draw(0, n);
    const um_edit *edit[2] = {random_edits(g, n_edit[0]), random_edits(g, n_edit[1])};
    uint32_t *allow = chance(50) ? TAKE(g, uint32_t, UM_CEIL_DIV(g->capacity.vocab, 32)) : NULL;
    for (int32_t i = 0; allow && i < UM_CEIL_DIV(g->capacity.vocab, 32); i++) allow[i] = (uint32_t)draw(0, 1 << 30);
    for (int32_t i = 0; i < n; i++) {
        const int32_t n_own = chance(30) ? draw(1, 4) : 0, late = i >= n_early;
        g->row[g->b.n_rows++] = (um_row){.src = {draw(-3, 99), draw(-3, 99)},
                                         .w = {(float)draw(-3, 3), (float)draw(-3, 3)},
                                         .edit = edit[late],
                                         .n_edit = n_edit[late],
                                         .own = n_own ? random_edits(g, n_own) : NULL,
                                         .n_own = n_own,
                                         .allow = allow,
                                         .how = random_sampling(),
                                         .want = (uint32_t)draw(0, 31),
                                         .id = draw(0, g->capacity.vocab - 1),
                                         .blend = draw(0, 9),
                                         .n_top = chance(70) ? 0 : draw(1, UM_TOP_MAX)};
    }
}

/* Adds a request with one or two page tables (guidance). The spans of a table feed adjacent ranges. */
static void add_request(given *g) {
    const int32_t n_tables = draw(1, 2), n_each = n_tables == 1 ? draw(1, 3) : 1;
    const int32_t vis = draw(0, 100), fed = draw(1, SPAN_TOKENS), extra = draw(0, 20);
    const int32_t most = vis + n_each * fed + extra;
    const float *prior = chance(50) ? random_floats(g, most) : NULL;
    const bool selects = chance(40);
    for (int32_t k = 0; k < n_tables; k++) {
        const int32_t *page = random_table(g, most), *near_page = g->b.near_slot ? random_table(g, most) : NULL;
        int32_t *kept_page = random_table(g, most);
        for (int32_t i = 0, first = vis; i < n_each; i++, first += fed) {
            um_span *s = add_span(g, page, first, fed, first + fed + (i == n_each - 1 ? extra : 0));
            s->near_page = near_page;
            if (selects) add_select(g, s, first, kept_page, prior);
        }
    }
    add_rows(g, draw(0, 8));
}

/* Sets the room to exactly the size of the batch. */
static void fit(given *g) {
    g->capacity.n_tokens = g->b.n_tokens;
    g->capacity.n_spans = g->b.n_spans;
    g->capacity.n_rows = g->b.n_rows;
    g->capacity.n_tiles = um_message_tiles(&g->b, g->capacity.tile_tokens);
}

static given *new_given(void) {
    given *g = UM_NEW(given);
    g->b = (um_batch){.id = g->id,
                      .pos = g->pos,
                      .slot = g->slot,
                      .seen_end = g->seen_end,
                      .span = g->span,
                      .soft = g->soft,
                      .row = g->row,
                      .save = (const int32_t(*)[2])g->save};
    g->capacity = (um_message_capacity){.tile_tokens = 16, .vocab = 1000, .page_size = 16};
    return g;
}

static given *random_batch(void) {
    given *g = new_given();
    g->capacity = (um_message_capacity){.tile_tokens = draw(1, 20),
                                        .route_block = chance(50) ? draw(1, 40) : 0,
                                        .vocab = draw(1, 300),
                                        .page_size = draw(1, 40)};
    if (chance(40)) g->b.near_slot = g->near_slot;
    for (int32_t n = draw(0, REQUESTS); n > 0; n--) add_request(g);
    g->b.n_saves = draw(0, g->b.n_spans);
    for (int32_t i = 0; i < 2 * g->b.n_saves; i++) g->save[i / 2][i % 2] = draw(0, 99);
    fit(g);
    if (chance(30)) return g;
    g->capacity.n_tokens += draw(0, 9);
    g->capacity.n_spans += draw(0, 9);
    g->capacity.n_rows += draw(0, 9);
    g->capacity.n_tiles += draw(0, 9);
    return g;
}

static void free_given(given *g) {
    while (g->n_memory > 0) um_free(g->memory[--g->n_memory]);
    um_free(g);
}

/* ---- Packing with guards ----------------------------------------------------------------------------------------- */

enum { GUARD = 64, DIRT = 0xa5 };

/* A message, with guards around the `size` bytes that its writer may use. */
typedef struct packed {
    char *all, *m;
    size_t size, bytes;
    um_message_layout l;
} packed;

static packed pack_into(const given *g, size_t size) {
    packed p = {.size = size, .l = um_message_layout_of(&g->capacity)};
    um_err err;
    void *all;
    assert_int_equal(um_try_alloc(&all, size + (size_t)2 * GUARD, UM_MESSAGE_ALIGN, "message", &err), UM_OK);
    p.all = (char *)memset(all, DIRT, size + (size_t)2 * GUARD);
    p.m = p.all + GUARD;
    p.bytes = um_message_pack(&g->b, &g->capacity, NULL, p.m, size);
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal((unsigned char)p.all[i], DIRT);
        if ((unsigned char)p.m[size + i] != DIRT) fail_msg("byte %zu behind %zu bytes was written", i, size);
    }
    return p;
}

static packed pack(const given *g) {
    const size_t bound = um_message_bound(&g->b, &g->capacity);
    packed p = pack_into(g, bound);
    assert_in_range(p.bytes, p.l.end, bound);
    return p;
}

#define HEADER(p)         ((const um_message_header *)(const void *)(p)->m)
#define ARRAY(p, T, name) ((const T *)(const void *)((p)->m + (p)->l.name))

/* Returns the n bytes at a word offset, which must lie behind the arrays of fixed place and within the message. */
static const void *at_word(const packed *p, int32_t words, size_t n) {
    assert_true(words >= 0);
    assert_in_range((size_t)words * 4, p->l.end, p->bytes);
    assert_true(n <= p->bytes - (size_t)words * 4);
    return p->m + (size_t)words * 4;
}

static void holds(const packed *p, int32_t words, const void *want, size_t n) {
    if (n) assert_memory_equal(at_word(p, words, n), want, n);
}

/* ---- Comparison -------------------------------------------------------------------------------------------------- */

static void check_tokens(const given *g, const packed *p) {
    const um_batch *b = &g->b;
    for (int32_t t = 0; t < g->capacity.n_tokens; t++) {
        const bool there = t < b->n_tokens;
        assert_int_equal(ARRAY(p, int32_t, id)[t], there ? b->id[t] : 0);
        assert_int_equal(ARRAY(p, int32_t, pos)[t], there ? b->pos[t] : 0);
        assert_int_equal(ARRAY(p, int32_t, slot)[t], there ? b->slot[t] : -1);
        assert_int_equal(ARRAY(p, int32_t, near_slot)[t], there ? (b->near_slot ? b->near_slot : b->slot)[t] : -1);
        assert_int_equal(ARRAY(p, int32_t, seen_end)[t], there ? b->seen_end[t] : 0);
        const int32_t i = ARRAY(p, int32_t, span_of)[t];
        if (!there) assert_int_equal(i, -1);
        else assert_true(i >= 0 && i < b->n_spans && t >= b->span[i].first && t < b->span[i].first + b->span[i].n);
    }
}

static void check_softs(const given *g, const packed *p) {
    int32_t n = 0;
    for (int32_t t = 0; t < g->capacity.n_tokens; t++) {
        const int32_t at = ARRAY(p, int32_t, soft)[t];
        const um_soft *s = n < g->b.n_soft && g->b.soft[n].at == t ? &g->b.soft[n++] : NULL;
        if (!s) {
            assert_int_equal(at, -1);
            continue;
        }
        const um_message_soft *m = at_word(p, at, sizeof *m);
        assert_int_equal(m->n, s->n);
        assert_int_equal(m->renormalize, s->renormalize);
        holds(p, m->id, s->id, (size_t)s->n * sizeof *s->id);
        holds(p, m->w, s->w, (size_t)s->n * sizeof *s->w);
    }
    assert_int_equal(n, g->b.n_soft);
}

/* Two tokens share a number exactly when they belong to one span and one routing block. */
static void check_route_blocks(const given *g, const packed *p) {
    const int32_t *block = ARRAY(p, int32_t, route_block), *span_of = ARRAY(p, int32_t, span_of);
    const int32_t length = g->capacity.route_block;
    for (int32_t t = 0; t < g->capacity.n_tokens; t++)
        for (int32_t u = 0; u < t; u++) {
            const bool same =
                length && t < g->b.n_tokens && span_of[t] == span_of[u] && g->pos[t] / length == g->pos[u] / length;
            if (same != (block[t] == block[u])) fail_msg("tokens %d and %d of %d", u, t, g->b.n_tokens);
        }
}

static void check_select(const given *g, const packed *p, const um_span *s, int32_t at) {
    const um_kv_select *k = s->select;
    const um_message_select *m = at_word(p, at, sizeof *m);
    int32_t *vis = UM_NEW_ARRAY(int32_t, (size_t)s->keys.end + 1);
    assert_memory_equal(&m->block, &k->block, sizeof m->block);
    assert_int_equal(m->n_keep, k->n_keep);
    assert_int_equal(m->pool, k->pool);
    assert_int_equal(m->per_head, k->per_head);
    assert_int_equal(m->blind, k->blind);
    assert_int_equal(m->n_keys, um_select_keys(s, vis));
    holds(p, m->page, k->page, (size_t)UM_CEIL_DIV(k->n_keep, g->capacity.page_size) * sizeof(int32_t));
    if (k->prior) holds(p, m->prior, k->prior, (size_t)s->keys.end * sizeof(float));
    else assert_int_equal(m->prior, -1);
    const int32_t n = k->block.end - k->block.start;
    const int32_t *token = at_word(p, m->token, (size_t)n * sizeof *token);
    for (int32_t i = 0; i < n; i++) {
        assert_in_range(token[i], s->first, s->first + s->n - 1);
        assert_int_equal(g->b.slot[token[i]], um_slot_of(s->page, g->capacity.page_size, k->block.start + i));
    }
    um_free(vis);
}

static bool writes_page(const um_batch *b, int32_t page, int32_t page_size) {
    for (int32_t t = 0; t < b->n_tokens; t++)
        if (b->slot[t] >= 0 && b->slot[t] / page_size == page) return true;
    return false;
}

/* The keys below `settled` are those on the pages before the first one that any span writes. */
static void check_settled(const given *g, const um_span *s, int32_t settled) {
    const int32_t size = g->capacity.page_size, n = UM_CEIL_DIV(s->keys.end, size);
    int32_t first = 0;
    while (first < n && !writes_page(&g->b, s->page[first], size)) first++;
    assert_int_equal(settled, UM_MIN(first * size, s->keys.end));
}

static void check_spans(const given *g, const packed *p) {
    for (int32_t i = 0; i < g->capacity.n_spans; i++) {
        const um_message_span *m = &ARRAY(p, um_message_span, span)[i];
        if (i >= g->b.n_spans) {
            const um_message_span empty = {.adapter = -1, .select = -1};
            assert_memory_equal(m, &empty, sizeof empty);
            continue;
        }
        const um_span *s = &g->b.span[i];
        assert_int_equal(m->first, s->first);
        assert_int_equal(m->n, s->n);
        assert_memory_equal(&m->keys, &s->keys, sizeof m->keys);
        assert_memory_equal(&m->hole, &s->hole, sizeof m->hole);
        assert_int_equal(m->adapter, s->adapter);
        holds(p, m->page, s->page, (size_t)UM_CEIL_DIV(s->keys.end, g->capacity.page_size) * sizeof(int32_t));
        check_settled(g, s, m->settled);
        if (!s->near_page) assert_int_equal(m->near_page, m->page);
        else
            holds(p, m->near_page, s->near_page,
                  (size_t)UM_CEIL_DIV(s->keys.end, g->capacity.page_size) * sizeof(int32_t));
        assert_int_equal(m->canvas, s->canvas);
        assert_int_equal(m->start, s->start);
        assert_int_equal(m->blend, s->blend);
        if (s->select) check_select(g, p, s, m->select);
        else assert_int_equal(m->select, -1);
    }
}

/* The tiles follow each other without gaps, from span to span. */
static void check_tiles(const given *g, const packed *p) {
    const um_message_tile *m = ARRAY(p, um_message_tile, tile);
    for (int32_t i = 0; i < g->b.n_spans; i++) {
        const um_span *s = &g->b.span[i];
        for (int32_t t = s->first; t < s->first + s->n; m++) {
            assert_true(m - ARRAY(p, um_message_tile, tile) < HEADER(p)->n_tiles);
            assert_int_equal(m->span, i);
            assert_int_equal(m->first, t);
            assert_int_equal((t - s->first) % g->capacity.tile_tokens, 0);
            assert_in_range(m->n, 1, g->capacity.tile_tokens);
            t += m->n;
            assert_true(t <= s->first + s->n);
        }
    }
    assert_int_equal(m - ARRAY(p, um_message_tile, tile), HEADER(p)->n_tiles);
    const um_message_tile empty = {0};
    for (; m < ARRAY(p, um_message_tile, tile) + g->capacity.n_tiles; m++) assert_memory_equal(m, &empty, sizeof empty);
}

static void check_edits(const packed *p, int32_t at, const um_edit *want, int32_t n) {
    if (n == 0) return;
    const um_edit *e = at_word(p, at, (size_t)n * sizeof *e);
    assert_int_equal((size_t)at * 4 % UM_MESSAGE_ALIGN, 0);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(e[i].id, want[i].id);
        assert_float_equal(e[i].add, want[i].add, 0);
        assert_float_equal(e[i].scale, want[i].scale, 0);
        assert_int_equal(e[i].ban, want[i].ban);
    }
}

static void check_row(const given *g, const packed *p, const um_message_row *m, const um_row *r) {
    assert_memory_equal(&m->how, &r->how, sizeof m->how);
    assert_memory_equal(m->src, r->src, sizeof m->src);
    assert_memory_equal(m->w, r->w, sizeof m->w);
    assert_int_equal(m->n_edit, r->n_edit);
    assert_int_equal(m->n_own, r->n_own);
    check_edits(p, m->edit, r->edit, r->n_edit);
    check_edits(p, m->own, r->own, r->n_own);
    if (r->allow) holds(p, m->allow, r->allow, (size_t)UM_CEIL_DIV(g->capacity.vocab, 32) * sizeof *r->allow);
    else assert_int_equal(m->allow, -1);
    assert_int_equal(m->want, r->want);
    assert_int_equal(m->id, r->id);
    assert_int_equal(m->blend, r->blend);
    assert_int_equal(m->n_top, r->n_top);
}

static void check_rows(const given *g, const packed *p) {
    int32_t n_whole = 0, n_tops = 0;
    for (int32_t i = 0; i < g->capacity.n_rows; i++) {
        const um_message_row *m = &ARRAY(p, um_message_row, row)[i];
        if (i >= g->b.n_rows) {
            const um_message_row empty = {.allow = -1, .whole = -1, .keep = -1};
            assert_memory_equal(m, &empty, sizeof empty);
            continue;
        }
        const um_row *r = &g->b.row[i];
        const bool filter = r->how.top_p < 1 || r->how.top_k > 0 || r->how.min_p > 0;
        check_row(g, p, m, r);
        assert_int_equal(m->whole, filter || r->n_top ? n_whole++ : -1);
        assert_int_equal(m->top, n_tops);
        n_tops += r->n_top;
    }
    assert_int_equal(HEADER(p)->n_whole, n_whole);
    assert_int_equal(HEADER(p)->n_tops, n_tops);
}

static void check_header(const given *g, const packed *p) {
    const um_message_header *h = HEADER(p);
    int32_t longest = 0;
    for (int32_t i = 0; i < g->b.n_spans; i++) {
        const um_span *s = &g->b.span[i];
        int32_t n = 0;
        for (int32_t v = s->keys.start; v < s->keys.end; v++) n += v < s->hole.start || v >= s->hole.end;
        longest = UM_MAX(longest, n);
    }
    assert_int_equal(h->n_tokens, g->b.n_tokens);
    assert_int_equal(h->n_spans, g->b.n_spans);
    assert_int_equal(h->n_tiles, um_message_tiles(&g->b, g->capacity.tile_tokens));
    assert_int_equal(h->n_rows, g->b.n_rows);
    assert_int_equal(h->n_saves, g->b.n_saves);
    assert_int_equal(h->longest, longest);
    assert_int_equal(h->bytes, p->bytes);
}

static void check_saves(const given *g, const packed *p) {
    for (int32_t i = 0; i < 2 * g->capacity.n_spans; i++)
        assert_int_equal(ARRAY(p, int32_t, save)[i], i < 2 * g->b.n_saves ? g->save[i / 2][i % 2] : -1);
}

static void check_all(const given *g, const packed *p) {
    check_header(g, p);
    check_tokens(g, p);
    check_softs(g, p);
    check_route_blocks(g, p);
    check_spans(g, p);
    check_tiles(g, p);
    check_rows(g, p);
    check_saves(g, p);
}

/* ---- Tests of random batches ------------------------------------------------------------------------------------- */

static void every_field_of_a_batch_is_found_again(void **state) {
    (void)state;
    for (int i = 0; i < 400; i++) {
        given *g = random_batch();
        packed p = pack(g);
        check_all(g, &p);
        um_free(p.all);
        free_given(g);
    }
}

static void random_sizes_are_kept_or_refused(void **state) {
    (void)state;
    for (int i = 0; i < 100; i++) {
        given *g = random_batch();
        packed whole = pack(g);
        for (int k = 0; k < 20; k++) {
            const size_t size = (size_t)draw(0, (int32_t)whole.bytes + 100);
            packed p = pack_into(g, size);
            assert_int_equal(p.bytes, size < whole.bytes ? 0 : whole.bytes);
            if (p.bytes) check_all(g, &p);
            um_free(p.all);
        }
        um_free(whole.all);
        free_given(g);
    }
}

static void one_byte_too_few_is_refused(void **state) {
    (void)state;
    for (int i = 0; i < 100; i++) {
        given *g = random_batch();
        packed whole = pack(g), exact = pack_into(g, whole.bytes), less = pack_into(g, whole.bytes - 1);
        assert_int_equal(exact.bytes, whole.bytes);
        assert_int_equal(less.bytes, 0);
        check_all(g, &exact);
        um_free(whole.all);
        um_free(exact.all);
        um_free(less.all);
        free_given(g);
    }
}

/* Each batch has data of one kind alone, so that the room for other kinds can't hide a bound that is too small. */
static void the_bound_covers_data_of_each_kind(void **state) {
    (void)state;
    enum { TABLE, SOFT, EDIT, OWN, BITMAP, KINDS };
    for (int kind = 0; kind < KINDS; kind++)
        for (int32_t n = 1; n < 40; n++) {
            given *g = new_given();
            const um_edit *edit = random_edits(g, n);
            if (kind == TABLE) (void)add_span(g, random_table(g, 16 * n), 0, 1, 16 * n);
            g->b.n_soft = kind == SOFT;
            g->b.n_rows = kind >= EDIT;
            g->capacity.vocab = 32 * n;
            g->soft[0] = (um_soft){.n = n, .id = TAKE(g, int32_t, n), .w = random_floats(g, n)};
            g->row[0] = (um_row){.edit = edit,
                                 .n_edit = kind == EDIT ? n : 0,
                                 .own = edit,
                                 .n_own = kind == OWN ? n : 0,
                                 .allow = kind == BITMAP ? TAKE(g, uint32_t, n) : NULL};
            fit(g);
            if (kind == SOFT) g->b.n_tokens = g->capacity.n_tokens = 1; /* a token without a span */
            packed p = pack(g);
            assert_true(p.bytes > p.l.end);
            um_free(p.all);
            free_given(g);
        }
}

/* ---- Tests of the layout ----------------------------------------------------------------------------------------- */

static void arrays_are_aligned_and_do_not_overlap(void **state) {
    (void)state;
    for (int i = 0; i < 200; i++) {
        const um_message_capacity r = {.n_tokens = draw(0, 50),
                                       .n_spans = draw(0, 50),
                                       .n_tiles = draw(0, 50),
                                       .n_rows = draw(0, 50),
                                       .tile_tokens = 16,
                                       .vocab = 100,
                                       .page_size = 16};
        const um_message_layout l = um_message_layout_of(&r);
        const size_t token = (size_t)r.n_tokens * sizeof(int32_t);
        const struct {
            size_t at, bytes;
        } array[] = {{0, sizeof(um_message_header)},
                     {l.id, token},
                     {l.pos, token},
                     {l.slot, token},
                     {l.near_slot, token},
                     {l.seen_end, token},
                     {l.span_of, token},
                     {l.soft, token},
                     {l.route_block, token},
                     {l.span, (size_t)r.n_spans * sizeof(um_message_span)},
                     {l.tile, (size_t)r.n_tiles * sizeof(um_message_tile)},
                     {l.row, (size_t)r.n_rows * sizeof(um_message_row)},
                     {l.save, (size_t)r.n_spans * 2 * sizeof(int32_t)},
                     {l.end, 0}};
        for (size_t k = 0; k < UM_LEN(array); k++) {
            assert_int_equal(array[k].at % UM_MESSAGE_ALIGN, 0);
            if (k) assert_true(array[k - 1].at + array[k - 1].bytes <= array[k].at);
        }
    }
}

/* A recorded graph reads the arrays of a small and a large batch at the same places. */
static void places_depend_on_the_room_alone(void **state) {
    (void)state;
    given *small = new_given(), *large = new_given();
    (void)add_span(small, random_table(small, 20), 10, 1, 20);
    for (int i = 0; i < 3; i++) add_request(large);
    fit(large);
    small->capacity = large->capacity;
    packed a = pack(small), b = pack(large);
    assert_memory_equal(&a.l, &b.l, sizeof a.l);
    assert_true(large->b.n_tokens > small->b.n_tokens && large->b.n_rows > small->b.n_rows);
    check_all(small, &a);
    check_all(large, &b);
    um_free(a.all);
    um_free(b.all);
    free_given(small);
    free_given(large);
}

static void a_batch_without_anything_is_all_padding(void **state) {
    (void)state;
    given *g = new_given();
    packed none = pack(g);
    check_all(g, &none);
    assert_int_equal(none.bytes, none.l.end);
    g->capacity.n_tokens = 5;
    g->capacity.n_spans = g->capacity.n_tiles = g->capacity.n_rows = 3;
    g->capacity.route_block = 4;
    packed padding = pack(g);
    check_all(g, &padding);
    assert_int_equal(padding.bytes, padding.l.end);
    um_free(none.all);
    um_free(padding.all);
    free_given(g);
}

/* ---- Tests of tiles, routing blocks and rows --------------------------------------------------------------------- */

static void tiles_of_a_span_start_at_its_first_token(void **state) {
    (void)state;
    given *g = new_given();
    const int32_t *page = random_table(g, 64);
    const int32_t n[] = {16, 1, 33}, want[][3] = {{0, 0, 16}, {1, 16, 1}, {2, 17, 16}, {2, 33, 16}, {2, 49, 1}};
    for (size_t i = 0; i < UM_LEN(n); i++) (void)add_span(g, page, 0, n[i], 64);
    fit(g);
    assert_int_equal(um_message_tiles(&g->b, 16), UM_LEN(want));
    assert_int_equal(um_message_tiles(&g->b, 64), 3);
    assert_int_equal(um_message_tiles(&g->b, 1), 50);
    packed p = pack(g);
    for (size_t i = 0; i < UM_LEN(want); i++) {
        const um_message_tile *m = &ARRAY(&p, um_message_tile, tile)[i];
        assert_memory_equal(m, want[i], sizeof want[i]);
    }
    um_free(p.all);
    free_given(g);
}

/* Blocks of 8 positions. The second span is fed at the positions at which the first one ended. */
static void routing_blocks_end_at_positions_and_spans(void **state) {
    (void)state;
    given *g = new_given();
    const int32_t *page = random_table(g, 64);
    (void)add_span(g, page, 6, 4, 10); /* positions 6 to 9 */
    (void)add_span(g, page, 9, 3, 12); /* positions 9 to 11 */
    g->capacity.route_block = 8;
    fit(g);
    g->capacity.n_tokens += 2;
    packed p = pack(g);
    const int32_t *block = ARRAY(&p, int32_t, route_block), same[] = {0, 0, 1, 1, 2, 2, 2, 3, 4};
    for (size_t t = 0; t < UM_LEN(same); t++)
        for (size_t u = 0; u < UM_LEN(same); u++) assert_int_equal(block[t] == block[u], same[t] == same[u]);
    um_free(p.all);
    free_given(g);
}

static void filters_and_lists_need_all_logits(void **state) {
    (void)state;
    given *g = new_given();
    const um_row rows[] = {{.how = {.temperature = 1, .top_p = 1, .key = 7}},
                           {.how = {.top_p = 0.9f}, .n_top = 5},
                           {.how = {.top_p = 0.9f}},
                           {.how = {.top_p = 1, .top_k = 1}},
                           {.how = {.top_p = 1}, .want = UM_WANT_BEST},
                           {.how = {.top_p = 1, .min_p = 0.1f}},
                           {.how = {.top_p = 1}, .n_top = 3}};
    const int32_t whole[] = {-1, 0, 1, 2, -1, 3, 4}, top[] = {0, 0, 5, 5, 5, 5, 5};
    memcpy(g->row, rows, sizeof rows);
    g->b.n_rows = UM_LEN(rows);
    fit(g);
    packed p = pack(g);
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        assert_int_equal(ARRAY(&p, um_message_row, row)[i].whole, whole[i]);
        assert_int_equal(ARRAY(&p, um_message_row, row)[i].top, top[i]);
    }
    assert_int_equal(HEADER(&p)->n_whole, 5);
    assert_int_equal(HEADER(&p)->n_tops, 8);
    um_free(p.all);
    free_given(g);
}

/* ---- Tests of sharing -------------------------------------------------------------------------------------------- */

static size_t stored(size_t bytes) { return UM_CEIL_DIV(bytes, UM_MESSAGE_ALIGN) * UM_MESSAGE_ALIGN; }

/* Rows of one request take turns between two lists of edits. Rows of the next request have other data. */
static void edits_and_bitmaps_of_a_request_are_stored_once(void **state) {
    (void)state;
    given *g = new_given();
    const int32_t n[] = {20, 25, 7};
    const um_edit *edit[] = {random_edits(g, n[0]), random_edits(g, n[1]), random_edits(g, n[2])};
    const uint32_t *allow[] = {TAKE(g, uint32_t, 32), TAKE(g, uint32_t, 32)};
    const int32_t list[] = {0, 1, 0, 1, 2, 2};
    g->b.n_rows = UM_LEN(list);
    for (int32_t i = 0; i < g->b.n_rows; i++)
        g->row[i] =
            (um_row){.edit = edit[list[i]], .n_edit = n[list[i]], .allow = allow[list[i] == 2], .how = {.top_p = 1}};
    fit(g);
    packed p = pack(g);
    check_all(g, &p);
    size_t want = 2 * stored(32 * sizeof(uint32_t));
    for (size_t i = 0; i < UM_LEN(n); i++) want += stored((size_t)n[i] * sizeof(um_edit));
    assert_int_equal(p.bytes - p.l.end, want);
    um_free(p.all);
    free_given(g);
}

/* A table that grows from span to span is stored at its full length at once. */
static void a_table_that_spans_share_is_stored_once(void **state) {
    (void)state;
    given *g = new_given();
    const int32_t *page[] = {random_table(g, 200), random_table(g, 200)};
    for (int32_t i = 0; i < 4; i++) (void)add_span(g, page[0], 40 + 10 * i, 10, 50 + 10 * i);
    (void)add_span(g, page[1], 100, 10, 200);
    (void)add_span(g, page[0], 10, 10, 80);
    (void)add_span(g, page[1], 10, 10, 110);
    g->b.n_soft = 0;
    fit(g);
    packed p = pack(g);
    check_all(g, &p);
    assert_int_equal(p.bytes - p.l.end,
                     stored(UM_CEIL_DIV(80, 16) * sizeof(int32_t)) + stored(UM_CEIL_DIV(200, 16) * sizeof(int32_t)));
    um_free(p.all);
    free_given(g);
}

/* Guidance selects keys for two spans with the same prior. Each has a table of its own. */
static void a_prior_that_selections_share_is_stored_once(void **state) {
    (void)state;
    given *g = new_given();
    enum { KEYS = 100, BLOCK = 32, KEEP = 40 };
    const float *prior = random_floats(g, KEYS);
    for (int i = 0; i < 2; i++) {
        um_span *s = add_span(g, random_table(g, KEYS), 0, KEYS, KEYS);
        g->select[i] = (um_kv_select){
            .block = {16, 16 + BLOCK}, .n_keep = KEEP, .pool = 3, .page = random_table(g, KEEP), .prior = prior};
        s->select = &g->select[i];
    }
    g->b.n_soft = 0;
    fit(g);
    packed p = pack(g);
    check_all(g, &p);
    const size_t pages = stored(UM_CEIL_DIV(KEYS, 16) * sizeof(int32_t)),
                 kept = stored(UM_CEIL_DIV(KEEP, 16) * sizeof(int32_t));
    assert_int_equal(p.bytes - p.l.end,
                     stored(KEYS * sizeof(float)) +
                         2 * (pages + kept + stored(BLOCK * sizeof(int32_t)) + stored(sizeof(um_message_select))));
    um_free(p.all);
    free_given(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_of_a_batch_is_found_again),
        cmocka_unit_test(random_sizes_are_kept_or_refused),
        cmocka_unit_test(one_byte_too_few_is_refused),
        cmocka_unit_test(the_bound_covers_data_of_each_kind),
        cmocka_unit_test(arrays_are_aligned_and_do_not_overlap),
        cmocka_unit_test(places_depend_on_the_room_alone),
        cmocka_unit_test(a_batch_without_anything_is_all_padding),
        cmocka_unit_test(tiles_of_a_span_start_at_its_first_token),
        cmocka_unit_test(routing_blocks_end_at_positions_and_spans),
        cmocka_unit_test(filters_and_lists_need_all_logits),
        cmocka_unit_test(edits_and_bitmaps_of_a_request_are_stored_once),
        cmocka_unit_test(a_table_that_spans_share_is_stored_once),
        cmocka_unit_test(a_prior_that_selections_share_is_stored_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
