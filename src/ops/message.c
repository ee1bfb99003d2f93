/* Packs a batch into a message. A cursor moves over the output; data of any length is appended behind the arrays of
 * fixed place. Structures that share data are close together, so it suffices to remember where the last data are.
 */
#include "ops/message.h"

#include "ops/select.h"

#include "base/base.h"

/* ---- Sizes ------------------------------------------------------------------------------------------------------- */

static size_t aligned(size_t n) { return (n + UM_MESSAGE_ALIGN - 1) / UM_MESSAGE_ALIGN * UM_MESSAGE_ALIGN; }

int32_t um_message_tiles(const um_batch *b, int32_t tile_tokens) {
    int32_t n = 0;
    for (int32_t i = 0; i < b->n_spans; i++) n += UM_CEIL_DIV(b->span[i].n, tile_tokens);
    return n;
}

um_message_layout um_message_layout_of(const um_message_capacity *capacity) {
    const size_t token = sizeof(int32_t), T = (size_t)capacity->n_tokens, S = (size_t)capacity->n_spans;
    um_message_layout l = {0};
    size_t at = aligned(sizeof(um_message_header));
    struct {
        size_t *offset, bytes;
    } array[] = {
        {&l.id, T * token},
        {&l.pos, T * token},
        {&l.slot, T * token},
        {&l.near_slot, T * token},
        {&l.seen_end, T * token},
        {&l.span_of, T * token},
        {&l.soft, T * token},
        {&l.route_block, T * token},
        {&l.span, S * sizeof(um_message_span)},
        {&l.tile, (size_t)capacity->n_tiles * sizeof(um_message_tile)},
        {&l.row, (size_t)capacity->n_rows * sizeof(um_message_row)},
        {&l.save, S * sizeof(int32_t[2])},
    };
    for (size_t i = 0; i < UM_LEN(array); i++) {
        *array[i].offset = at;
        at += aligned(array[i].bytes);
    }
    l.end = at;
    return l;
}

static size_t pages_of(int32_t n_keys, const um_message_capacity *capacity) {
    return (size_t)UM_CEIL_DIV(n_keys, capacity->page_size) * sizeof(int32_t);
}

static size_t bitmap_bytes(const um_message_capacity *capacity) {
    return (size_t)UM_CEIL_DIV(capacity->vocab, 32) * sizeof(uint32_t);
}

static size_t select_bound(const um_span *s, const um_message_capacity *capacity) {
    const um_kv_select *k = s->select;
    return sizeof(um_message_select) + pages_of(k->n_keep, capacity) + (size_t)s->keys.end * sizeof(float) +
           (size_t)(k->block.end - k->block.start) * sizeof(int32_t) + 4 * (size_t)UM_MESSAGE_ALIGN;
}

size_t um_message_bound(const um_batch *b, const um_message_capacity *capacity) {
    size_t n = um_message_layout_of(capacity).end;
    for (int32_t i = 0; i < b->n_spans; i++) {
        n += 2 * (pages_of(b->span[i].keys.end, capacity) + UM_MESSAGE_ALIGN);
        if (b->span[i].select) n += select_bound(&b->span[i], capacity);
    }
    for (int32_t i = 0; i < b->n_soft; i++)
        n += sizeof(um_message_soft) + (size_t)b->soft[i].n * 2 * sizeof(int32_t) + 3 * (size_t)UM_MESSAGE_ALIGN;
    for (int32_t i = 0; i < b->n_rows; i++) {
        const um_row *r = &b->row[i];
        n += (size_t)(r->n_edit + r->n_own) * sizeof(um_edit) + 2 * (size_t)UM_MESSAGE_ALIGN;
        if (r->allow) n += bitmap_bytes(capacity) + UM_MESSAGE_ALIGN;
    }
    return n;
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* The data of one kind that were appended last. */
typedef struct shared {
    struct {
        const void *data;
        size_t bytes;
        int32_t words; /* word offset */
    } last[4];
    unsigned n; /* appended so far */
} shared;

typedef struct writer {
    const um_batch *b;
    const um_message_capacity *capacity;
    um_message_layout l;
    char *out;
    size_t at, size;
    bool full; /* something did not fit */
    shared page, near_page, kept_page, prior, edit, allow;
    um_kept *kept;
} writer;

/* Appends space for n bytes and returns it; NULL when they don't fit. The bytes behind the n are 0. */
static void *append_space(writer *w, size_t n) {
    char *to = w->out + w->at;
    const size_t left = w->size - w->at;
    w->full |= n > left || aligned(n) > left;
    if (w->full) return NULL;
    memset(to + n, 0, aligned(n) - n);
    w->at += aligned(n);
    return to;
}

/* Appends n bytes and returns their word offset; 0 when they don't fit. */
static int32_t append(writer *w, const void *data, size_t n) {
    const size_t at = w->at;
    void *to = append_space(w, n);
    if (!to) return 0;
    if (n) memcpy(to, data, n);
    return (int32_t)(at / 4);
}

/* Appends data unless one of the last structures had the same, of at least this length. Returns their word offset. */
static int32_t append_shared(writer *w, shared *s, const void *data, size_t bytes) {
    for (size_t i = 0; i < UM_LEN(s->last); i++)
        if (s->last[i].data == data && bytes <= s->last[i].bytes) return s->last[i].words;
    const size_t i = s->n++ % UM_LEN(s->last);
    s->last[i].data = data;
    s->last[i].bytes = bytes;
    return s->last[i].words = append(w, data, bytes);
}

#define ARRAY(w, type, name) ((type *)(void *)((w)->out + (w)->l.name))

static void put_tokens(writer *w) {
    const um_batch *b = w->b;
    const int32_t T = w->capacity->n_tokens;
    struct {
        size_t at;
        const int32_t *from;
        int32_t padding;
    } array[] = {{w->l.id, b->id, 0},
                 {w->l.pos, b->pos, 0},
                 {w->l.slot, b->slot, -1},
                 {w->l.near_slot, b->near_slot ? b->near_slot : b->slot, -1},
                 {w->l.seen_end, b->seen_end, 0},
                 {w->l.span_of, NULL, -1},
                 {w->l.soft, NULL, -1}};
    for (size_t i = 0; i < UM_LEN(array); i++) {
        int32_t *to = (int32_t *)(void *)(w->out + array[i].at);
        const int32_t n = array[i].from ? b->n_tokens : 0;
        if (n) memcpy(to, array[i].from, (size_t)n * sizeof *to);
        for (int32_t t = n; t < T; t++) to[t] = array[i].padding;
    }
    int32_t *span_of = ARRAY(w, int32_t, span_of);
    for (int32_t i = 0; i < b->n_spans; i++)
        for (int32_t t = 0; t < b->span[i].n; t++) span_of[b->span[i].first + t] = i;
}

/* Numbers the routing blocks. Tokens of a span in the same routing block get the same number. No number is used in two
 * spans. */
static void put_route_blocks(writer *w) {
    const um_batch *b = w->b;
    const int32_t length = w->capacity->route_block;
    int32_t *block = ARRAY(w, int32_t, route_block), number = 0;
    for (int32_t t = 0; t < w->capacity->n_tokens; t++) block[t] = t;
    for (int32_t i = 0; i < b->n_spans && length; i++) {
        const um_span *s = &b->span[i];
        for (int32_t t = s->first; t < s->first + s->n; t++) {
            if (t == s->first || b->pos[t] / length != b->pos[t - 1] / length) number++;
            block[t] = -number; /* padding has the numbers from 0 on */
        }
    }
}

/* Returns the number of keys that a span reads outside of `block`. */
static int32_t count_keys(const um_span *s, um_range block) {
    um_range there[2], outside[2];
    int32_t n_keys = 0;
    const int n_there = um_range_without(s->keys, s->hole, there);
    for (int i = 0; i < n_there; i++) {
        const int n = um_range_without(there[i], block, outside);
        for (int p = 0; p < n; p++) n_keys += outside[p].end - outside[p].start;
    }
    return n_keys;
}

/* Returns the word offset of the tokens of a block. */
static int32_t put_block(writer *w, const um_span *s, um_range block) {
    const size_t at = w->at;
    int32_t *token = (int32_t *)append_space(w, (size_t)(block.end - block.start) * sizeof *token);
    if (!token) return 0;
    for (int32_t vis = block.start; vis < block.end; vis++)
        token[vis - block.start] = um_select_token(w->b, s, w->capacity->page_size, vis);
    return (int32_t)(at / 4);
}

static int32_t put_select(writer *w, const um_span *s) {
    const um_kv_select *k = s->select;
    um_message_select m = {.block = k->block,
                           .n_keep = k->n_keep,
                           .pool = k->pool,
                           .per_head = k->per_head,
                           .blind = k->blind,
                           .prior = -1,
                           .n_keys = count_keys(s, k->block)};
    m.page = append_shared(w, &w->kept_page, k->page, pages_of(k->n_keep, w->capacity));
    if (k->prior) m.prior = append_shared(w, &w->prior, k->prior, (size_t)s->keys.end * sizeof(float));
    m.token = put_block(w, s, k->block);
    return append(w, &m, sizeof m);
}

/* Returns the largest end of keys among span i and its next neighbours with the same page tables. */
static int32_t table_end(const um_batch *b, int32_t i) {
    int32_t end = 0;
    for (int32_t k = i; k < b->n_spans && b->span[k].page == b->span[i].page; k++)
        end = UM_MAX(end, b->span[k].keys.end);
    return end;
}

/* Returns the word offset of the page table of layers with a window. */
static int32_t put_near_page(writer *w, const um_span *s, int32_t page, int32_t end) {
    if (!s->near_page) return page;
    return append_shared(w, &w->near_page, s->near_page, pages_of(end, w->capacity));
}

/* The pages that the tokens of a batch write, as bits by a page's number modulo WRITTEN_BITS: pages may share a bit. */
enum { WRITTEN_BITS = 1 << 16 };
typedef struct written {
    uint64_t bits[WRITTEN_BITS / 64];
} written;

static void find_written(written *s, const um_batch *b, int32_t page_size) {
    memset(s, 0, sizeof *s);
    for (int32_t t = 0; t < b->n_tokens; t++) {
        if (b->slot[t] < 0) continue;
        const uint32_t bit = (uint32_t)(b->slot[t] / page_size) % WRITTEN_BITS;
        s->bits[bit / 64] |= UINT64_C(1) << bit % 64;
    }
}

/* Returns the first visibility index of a span on a page that the batch writes, or a smaller one. */
static int32_t settled_keys(const written *s, const um_span *span, int32_t page_size) {
    const int32_t n = UM_CEIL_DIV(span->keys.end, page_size);
    for (int32_t i = 0; i < n; i++) {
        const uint32_t bit = (uint32_t)span->page[i] % WRITTEN_BITS;
        if (s->bits[bit / 64] >> bit % 64 & 1) return i * page_size;
    }
    return span->keys.end;
}

static void put_spans(writer *w) {
    const um_batch *b = w->b;
    written pages;
    find_written(&pages, b, w->capacity->page_size);
    um_message_span *to = ARRAY(w, um_message_span, span);
    int32_t end = 0;
    memset(to + b->n_spans, 0, (size_t)(w->capacity->n_spans - b->n_spans) * sizeof *to);
    for (int32_t i = 0; i < b->n_spans; i++) {
        const um_span *s = &b->span[i];
        if (i == 0 || s->page != s[-1].page) end = table_end(b, i);
        to[i] = (um_message_span){.first = s->first,
                                  .n = s->n,
                                  .keys = s->keys,
                                  .hole = s->hole,
                                  .adapter = s->adapter,
                                  .page = append_shared(w, &w->page, s->page, pages_of(end, w->capacity)),
                                  .select = s->select ? put_select(w, s) : -1,
                                  .settled = settled_keys(&pages, s, w->capacity->page_size),
                                  .canvas = s->canvas,
                                  .start = s->start,
                                  .blend = s->blend};
        to[i].near_page = put_near_page(w, s, to[i].page, end);
    }
    for (int32_t i = b->n_spans; i < w->capacity->n_spans; i++) to[i].adapter = to[i].select = -1;
}

static void put_tiles(writer *w) {
    const um_batch *b = w->b;
    um_message_tile *to = ARRAY(w, um_message_tile, tile);
    const int32_t most = w->capacity->tile_tokens, n = um_message_tiles(b, most);
    memset(to + n, 0, (size_t)(w->capacity->n_tiles - n) * sizeof *to);
    for (int32_t i = 0; i < b->n_spans; i++)
        for (int32_t t = 0; t < b->span[i].n; t += most)
            *to++ = (um_message_tile){.span = i, .first = b->span[i].first + t, .n = UM_MIN(most, b->span[i].n - t)};
}

static void put_softs(writer *w) {
    int32_t *soft = ARRAY(w, int32_t, soft);
    for (int32_t i = 0; i < w->b->n_soft; i++) {
        const um_soft *s = &w->b->soft[i];
        um_message_soft m = {.n = s->n, .renormalize = s->renormalize};
        m.id = append(w, s->id, (size_t)s->n * sizeof *s->id);
        m.w = append(w, s->w, (size_t)s->n * sizeof *s->w);
        soft[s->at] = append(w, &m, sizeof m);
    }
}

static bool needs_whole(const um_row *r) {
    return r->how.top_p < 1 || r->how.top_k > 0 || r->how.min_p > 0 || r->n_top > 0;
}

/* Returns the place of a bitmap that the device keeps, or the place of its group that was used least recently. NULL:
 * this pass uses all of them. */
static um_kept_place *find_place(const um_kept *k, uint64_t id) {
    um_kept_place *group = k->place + id % (uint64_t)(k->n / UM_KEPT_WAYS) * UM_KEPT_WAYS, *oldest = group;
    for (int i = 0; i < UM_KEPT_WAYS; i++) {
        if (group[i].id == id) return &group[i];
        if (group[i].used < oldest->used) oldest = &group[i];
    }
    return oldest->used < k->pass ? oldest : NULL;
}

static void put_allowed(writer *w, const um_row *r, um_message_row *to) {
    um_kept *k = w->kept;
    um_kept_place *p = k && r->allow_id ? find_place(k, r->allow_id) : NULL;
    const int32_t at = p ? k->first + (int32_t)(p - k->place) * k->words : -1;
    if (p) p->used = k->pass;
    if (p && p->id == r->allow_id && p->stored < k->pass) {
        to->allow = at;
        return;
    }
    to->allow = append_shared(w, &w->allow, r->allow, bitmap_bytes(w->capacity));
    to->keep = at;
    if (p) *p = (um_kept_place){r->allow_id, k->pass, k->pass};
}

static void put_rows(writer *w, um_message_header *h) {
    const um_batch *b = w->b;
    um_message_row *to = ARRAY(w, um_message_row, row);
    memset(to + b->n_rows, 0, (size_t)(w->capacity->n_rows - b->n_rows) * sizeof *to);
    for (int32_t i = 0; i < b->n_rows; i++) {
        const um_row *r = &b->row[i];
        to[i] = (um_message_row){.how = r->how,
                                 .src = {r->src[0], r->src[1]},
                                 .w = {r->w[0], r->w[1]},
                                 .n_edit = r->n_edit,
                                 .n_own = r->n_own,
                                 .allow = -1,
                                 .want = r->want,
                                 .id = r->id,
                                 .blend = r->blend,
                                 .n_top = r->n_top,
                                 .top = h->n_tops,
                                 .whole = needs_whole(r) ? h->n_whole++ : -1,
                                 .keep = -1};
        if (r->n_edit) to[i].edit = append_shared(w, &w->edit, r->edit, (size_t)r->n_edit * sizeof *r->edit);
        if (r->n_own) to[i].own = append(w, r->own, (size_t)r->n_own * sizeof *r->own);
        if (r->allow) put_allowed(w, r, &to[i]);
        h->n_tops += r->n_top;
    }
    for (int32_t i = b->n_rows; i < w->capacity->n_rows; i++) to[i].allow = to[i].whole = to[i].keep = -1;
}

static void put_saves(writer *w) {
    int32_t *to = ARRAY(w, int32_t, save);
    for (int32_t i = 0; i < w->capacity->n_spans; i++) {
        to[2 * i] = i < w->b->n_saves ? w->b->save[i][0] : -1;
        to[2 * i + 1] = i < w->b->n_saves ? w->b->save[i][1] : -1;
    }
}

size_t um_kept_bytes(int32_t vocab) { return aligned((size_t)UM_CEIL_DIV(vocab, 32) * sizeof(uint32_t)); }

size_t um_message_pack(const um_batch *b, const um_message_capacity *capacity, um_kept *kept, void *out, size_t size) {
    writer w = {.b = b,
                .capacity = capacity,
                .l = um_message_layout_of(capacity),
                .out = (char *)out,
                .size = size,
                .kept = kept};
    assert((uintptr_t)out % UM_MESSAGE_ALIGN == 0 && b->n_tokens <= capacity->n_tokens &&
           b->n_spans <= capacity->n_spans && b->n_rows <= capacity->n_rows && b->n_saves <= capacity->n_spans &&
           um_message_tiles(b, capacity->tile_tokens) <= capacity->n_tiles);
    um_message_header h = {.n_tokens = b->n_tokens,
                           .n_spans = b->n_spans,
                           .n_tiles = um_message_tiles(b, capacity->tile_tokens),
                           .n_rows = b->n_rows,
                           .n_saves = b->n_saves};
    if (w.l.end > size) return 0;
    w.at = w.l.end;
    if (kept) kept->pass++;
    put_tokens(&w);
    put_route_blocks(&w);
    put_spans(&w);
    put_tiles(&w);
    put_softs(&w);
    put_rows(&w, &h);
    put_saves(&w);
    for (int32_t i = 0; i < b->n_spans; i++) h.longest = UM_MAX(h.longest, count_keys(&b->span[i], (um_range){0, 0}));
    h.bytes = (int64_t)w.at;
    memcpy(out, &h, sizeof h);
    if (w.full && kept) memset(kept->place, 0, (size_t)kept->n * sizeof *kept->place);
    return w.full ? 0 : w.at;
}
