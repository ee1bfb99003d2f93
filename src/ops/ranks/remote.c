/* The batches of a group in several processes. Rank 0 packs each batch into a message (message.h), and the other ranks
 * make the batch of it again. On the host rank 0 answers the rows from the logits of all ranks, so a message has
 * neither edits nor bitmaps nor filters. GPUs reduce their own logits, so there a message has the rows as they are.
 * Every rank keeps the bitmaps that were sent last, as devices do (um_kept), because those of constrained answers are
 * long. */
#include "ops/message.h"
#include "ops/ranks/group.h"
#include "ops/ranks/link.h"

struct um_remote {
    um_link *link;
    um_forward_config c;
    bool whole;                   /* rows are sent as they are */
    int32_t n_adapters;           /* that a span can name */
    um_message_capacity capacity; /* of the next message */
    um_row *row;                  /* [max_rows] */
    um_span *span;                /* [max_spans] */
    um_kv_select *select;         /* [max_spans] */
    um_soft *soft;                /* [max_tokens] */
    um_answer *answer;            /* [max_rows] unused: rank 0 has the answers */
    um_batch batch;
    um_kept kept;      /* places for bitmaps, with whole rows. kept.first is a word offset behind any message */
    uint32_t *bitmap;  /* the other ranks: [kept.n][kept.words] */
    uint64_t *number;  /* [kept.n] numbers of the bitmaps (um_row.allow_id); 0: the place is empty */
    uint64_t n_stored; /* the last number */
    void *message;     /* rank 0: the bytes of the message that is sent, and its size */
    size_t size;
};

/* More rows than these share the places. */
enum { KEPT_MAX = 1024, FIRST_KEPT = 1 << 28 };

static void init_kept(um_remote *m, bool leads) {
    um_kept *k = &m->kept;
    *k = (um_kept){.first = FIRST_KEPT,
                   .words = (int32_t)(um_kept_bytes(m->capacity.vocab) / sizeof(uint32_t)),
                   .n = UM_CEIL_DIV(UM_MIN(m->c.max_rows, KEPT_MAX), UM_KEPT_WAYS) * UM_KEPT_WAYS};
    if (leads) {
        k->place = UM_NEW_ARRAY(um_kept_place, (size_t)k->n);
        return;
    }
    m->number = UM_NEW_ARRAY(uint64_t, (size_t)k->n);
    m->bitmap = UM_NEW_ARRAY(uint32_t, um_mul((size_t)k->n, (size_t)k->words)); /* untouched pages take no memory */
}

um_remote *um_remote_new(um_link *link, const um_network *n, const um_forward_config *c, bool leads, bool whole) {
    um_remote *m = UM_NEW(um_remote);
    *m = (um_remote){.link = link,
                     .c = *c,
                     .whole = whole,
                     .n_adapters = n->n_adapters,
                     .capacity = {.vocab = n->vocab, .page_size = c->page_size, .tile_tokens = INT32_MAX / 2},
                     .row = UM_NEW_ARRAY(um_row, (size_t)c->max_rows),
                     .span = UM_NEW_ARRAY(um_span, (size_t)c->max_spans),
                     .select = UM_NEW_ARRAY(um_kv_select, (size_t)c->max_spans),
                     .soft = UM_NEW_ARRAY(um_soft, (size_t)c->max_tokens),
                     .answer = UM_NEW_ARRAY(um_answer, (size_t)c->max_rows)};
    if (whole) init_kept(m, leads);
    return m;
}

void um_remote_free(um_remote *m) {
    if (!m) return;
    um_free(m->row);
    um_free(m->span);
    um_free(m->select);
    um_free(m->soft);
    um_free(m->answer);
    um_free(m->kept.place);
    um_free(m->bitmap);
    um_free(m->number);
    um_free(m->message);
    um_free(m);
}

/* ---- Rank 0 ------------------------------------------------------------------------------------------------------ */

/* Copies those parts of the rows that the other ranks need. */
static void strip_rows(um_remote *m, const um_batch *b) {
    for (int32_t i = 0; i < b->n_rows; i++) {
        const um_row *r = &b->row[i];
        m->row[i] =
            (um_row){.src = {r->src[0], r->src[1]}, .w = {r->w[0], r->w[1]}, .how = {.top_p = 1}, .blend = r->blend};
    }
}

um_status um_remote_pack(um_remote *m, const um_batch *b, um_str *out, um_err *err) {
    um_message_capacity *k = &m->capacity;
    assert(b->n_rows <= m->c.max_rows && b->n_spans <= m->c.max_spans);
    m->batch = *b;
    if (!m->whole) {
        strip_rows(m, b);
        m->batch.row = m->row;
    }
    k->n_tokens = b->n_tokens;
    k->n_spans = UM_MAX(b->n_spans, b->n_saves);
    k->n_rows = b->n_rows;
    k->n_tiles = um_message_tiles(b, k->tile_tokens);
    const size_t most = um_message_bound(&m->batch, k);
    if (most > m->size) { /* the size of the largest batch so far */
        um_free(m->message);
        m->message = NULL;
        m->size = 0;
        um_status s = um_try_alloc(&m->message, most + most / 2, 64, "the message of a pass", err);
        if (s) return s;
        m->size = most + most / 2;
    }
    const size_t n = um_message_pack(&m->batch, k, m->whole ? &m->kept : NULL, m->message, m->size);
    assert(n);
    *out = (um_str){(const char *)m->message, n};
    return UM_OK;
}

um_status um_remote_pass(um_remote *m, const um_batch *b, um_err *err) {
    um_str message;
    um_status s = um_remote_pack(m, b, &message, err);
    return s ? s : um_link_tell(m->link, UM_FRAME_PASS, message.p, message.n, err);
}

/* ---- The other ranks --------------------------------------------------------------------------------------------- */

typedef struct reader {
    um_remote *m;
    um_str message;
    um_message_header h;
    um_message_layout l;
    uint64_t first_new; /* the bitmaps of this message have larger numbers */
    bool is_bad;
} reader;

/* Returns n elements of `size` bytes at a byte offset of the message. */
static const void *at_offset(reader *r, size_t offset, int64_t n, size_t size) {
    if (n < 0 || offset % 4 || offset > r->message.n || (size_t)n > (r->message.n - offset) / size) {
        r->is_bad = true;
        return NULL;
    }
    return r->message.p + offset;
}

static const void *at_word(reader *r, int32_t word, int64_t n, size_t size) {
    return at_offset(r, word < 0 ? SIZE_MAX : (size_t)word * 4, n, size);
}

/* Notes values outside [low, high). */
static const int32_t *checked(reader *r, const void *v, int64_t n, int64_t low, int64_t high) {
    const int32_t *x = (const int32_t *)v;
    for (int64_t i = 0; x && i < n; i++) r->is_bad |= x[i] < low || x[i] >= high;
    return x;
}

static int64_t pages_of(const um_remote *m) {
    return (int64_t)UM_MAX(m->c.n_pages, m->c.n_near_pages) + m->c.n_scratch_pages;
}

/* Returns the page table of the first n_keys visibility indices. */
static const int32_t *read_table(reader *r, int32_t word, int64_t n_keys) {
    const int64_t n = UM_CEIL_DIV(n_keys, (int64_t)r->m->c.page_size);
    return checked(r, at_word(r, word, n, sizeof(int32_t)), n, -1, pages_of(r->m));
}

static const um_kv_select *read_select(reader *r, int32_t i, const um_message_span *s) {
    um_message_select m;
    const void *from = s->select < 0 ? NULL : at_word(r, s->select, 1, sizeof m);
    if (!from) return NULL;
    memcpy(&m, from, sizeof m);
    r->is_bad |=
        m.block.start < 0 || m.block.end > s->keys.end || m.block.start > m.block.end || m.n_keep < 0 || m.pool < 1;
    um_kv_select *to = &r->m->select[i];
    *to = (um_kv_select){.block = m.block,
                         .n_keep = m.n_keep,
                         .pool = m.pool,
                         .per_head = m.per_head != 0,
                         .page = read_table(r, m.page, m.n_keep),
                         .blind = m.blind != 0};
    if (m.prior >= 0) to->prior = (const float *)at_word(r, m.prior, s->keys.end, sizeof(float));
    return to;
}

/* Returns whether the adapter and the blends of a span exist. */
static bool has_inputs(const um_remote *m, const um_message_span *s) {
    const int64_t end = s->blend ? (int64_t)s->blend - 1 + s->n : 0;
    return s->adapter >= -1 && s->adapter < m->n_adapters && s->blend >= 0 && end <= m->c.n_blends;
}

static void read_spans(reader *r) {
    const um_message_span *s = (const um_message_span *)at_offset(r, r->l.span, r->h.n_spans, sizeof *s);
    int32_t first = 0;
    for (int32_t i = 0; s && i < r->h.n_spans && !r->is_bad; i++, s++) {
        r->is_bad |= s->first != first || s->n < 1 || s->n > r->h.n_tokens - first || s->keys.start < 0 ||
                     s->keys.end < s->keys.start;
        r->is_bad |= s->keys.end > pages_of(r->m) * r->m->c.page_size || s->hole.start < 0 ||
                     s->hole.end < s->hole.start || s->hole.end > s->keys.end || !has_inputs(r->m, s);
        if (r->is_bad) return;
        for (int32_t t = 0; t < s->n && r->m->batch.seen_end; t++)
            r->is_bad |= r->m->batch.seen_end[s->first + t] > s->keys.end;
        r->m->span[i] = (um_span){.first = s->first,
                                  .n = s->n,
                                  .page = read_table(r, s->page, s->keys.end),
                                  .near_page = read_table(r, s->near_page, s->keys.end),
                                  .keys = s->keys,
                                  .hole = s->hole,
                                  .select = read_select(r, i, s),
                                  .adapter = s->adapter,
                                  .canvas = s->canvas != 0,
                                  .start = s->start,
                                  .blend = s->blend};
        first += s->n;
    }
    r->is_bad |= first != r->h.n_tokens;
}

static void read_softs(reader *r, um_batch *b) {
    const int32_t *word = (const int32_t *)at_offset(r, r->l.soft, r->h.n_tokens, sizeof *word);
    for (int32_t t = 0; word && t < r->h.n_tokens && !r->is_bad; t++) {
        um_message_soft s;
        const void *from = word[t] < 0 ? NULL : at_word(r, word[t], 1, sizeof s);
        if (!from) continue;
        memcpy(&s, from, sizeof s);
        r->m->soft[b->n_soft++] =
            (um_soft){.at = t,
                      .n = s.n,
                      .id = checked(r, at_word(r, s.id, s.n, sizeof(int32_t)), s.n, 0, r->m->capacity.vocab),
                      .w = (const float *)at_word(r, s.w, s.n, sizeof(float)),
                      .renormalize = s.renormalize != 0};
    }
}

/* Returns edits whose ids are in the vocabulary. */
static const um_edit *read_edits(reader *r, int32_t word, int32_t n) {
    if (n == 0) return NULL;
    const um_edit *e = (const um_edit *)at_word(r, word, n, sizeof *e);
    for (int32_t i = 0; e && i < n; i++) r->is_bad |= e[i].id < 0 || e[i].id >= r->m->capacity.vocab;
    return e;
}

/* Returns the number of a place for a bitmap; -1, and a bad message, when there is no place at this word. */
static int32_t place_of(reader *r, int32_t word) {
    const um_kept *k = &r->m->kept;
    const int32_t at = word - k->first;
    if (word >= k->first && at % k->words == 0 && at / k->words < k->n) return at / k->words;
    r->is_bad = true;
    return -1;
}

/* Reads the bitmap of a row, which is in the message or was in one before, and keeps it if rank 0 wants it. */
static void read_allowed(reader *r, const um_message_row *from, um_row *to) {
    um_remote *m = r->m;
    const size_t words = (size_t)UM_CEIL_DIV(m->capacity.vocab, 32);
    const bool is_kept = from->allow >= m->kept.first;
    const int32_t place = is_kept ? place_of(r, from->allow) : from->keep >= 0 ? place_of(r, from->keep) : -1;
    if (!is_kept) to->allow = (const uint32_t *)at_word(r, from->allow, (int64_t)words, sizeof(uint32_t));
    if (place < 0 || r->is_bad) return;
    uint32_t *kept = m->bitmap + (size_t)place * (size_t)m->kept.words;
    const bool is_new = !is_kept && (m->number[place] <= r->first_new || memcmp(kept, to->allow, words * sizeof *kept));
    if (is_new) {
        memcpy(kept, to->allow, words * sizeof *kept);
        m->number[place] = ++m->n_stored;
    }
    to->allow = kept;
    to->allow_id = m->number[place];
    r->is_bad |= to->allow_id == 0;
}

/* Reads the wishes of a row. Lists of likeliest ids are made by rank 0 alone, but they decide how a row is answered. */
static void read_wishes(reader *r, const um_message_row *from, um_row *to) {
    to->edit = read_edits(r, from->edit, from->n_edit);
    to->n_edit = from->n_edit;
    to->own = read_edits(r, from->own, from->n_own);
    to->n_own = from->n_own;
    if (from->allow >= 0) read_allowed(r, from, to);
    to->how = from->how;
    to->want = from->want;
    to->id = from->id;
    to->n_top = from->n_top;
    r->is_bad |= from->n_top < 0 || from->n_top > UM_TOP_MAX;
}

static void read_rows(reader *r) {
    const um_message_row *row = (const um_message_row *)at_offset(r, r->l.row, r->h.n_rows, sizeof *row);
    for (int32_t i = 0; row && i < r->h.n_rows; i++, row++) {
        const int n_src = row->w[1] != 0 ? 2 : 1;
        (void)checked(r, row->src, n_src, -(int64_t)r->m->c.n_saved, r->h.n_tokens);
        r->is_bad |= row->blend < 0 || row->blend > r->m->c.n_blends;
        r->m->row[i] = (um_row){
            .src = {row->src[0], row->src[1]}, .w = {row->w[0], row->w[1]}, .how = {.top_p = 1}, .blend = row->blend};
        if (r->m->whole) read_wishes(r, row, &r->m->row[i]);
    }
}

static void read_saves(reader *r) {
    const int32_t(*save)[2] = (const int32_t(*)[2])at_offset(r, r->l.save, r->h.n_saves, sizeof *save);
    for (int32_t i = 0; save && i < r->h.n_saves; i++)
        r->is_bad |= save[i][0] < 0 || save[i][0] >= r->h.n_tokens || save[i][1] < 0 || save[i][1] >= r->m->c.n_saved;
    r->m->batch.save = save;
}

/* Returns the list of a token's int32_t at a fixed place. */
static const int32_t *read_list(reader *r, size_t offset, int64_t low, int64_t high) {
    const int32_t n = r->h.n_tokens;
    return checked(r, at_offset(r, offset, n, sizeof(int32_t)), n, low, high);
}

static bool fits(const um_message_header *h, const um_forward_config *c) {
    return h->n_tokens >= 0 && h->n_tokens <= c->max_tokens && h->n_spans >= 0 && h->n_spans <= c->max_spans &&
           h->n_rows >= 0 && h->n_rows <= c->max_rows && h->n_saves >= 0 && h->n_saves <= c->max_spans &&
           h->n_tiles >= 0 && h->n_tiles <= c->max_tokens;
}

um_status um_remote_batch(um_remote *m, um_str message, const um_batch **out, um_err *err) {
    reader r = {.m = m, .message = message, .first_new = m->n_stored};
    const int64_t slots = pages_of(m) * m->c.page_size;
    if (message.n >= sizeof r.h) memcpy(&r.h, message.p, sizeof r.h);
    if (message.n < sizeof r.h || r.h.bytes != (int64_t)message.n || !fits(&r.h, &m->c))
        return um_fail(err, UM_EPARSE, "the message of a pass does not fit the sizes of passes");
    m->capacity.n_tokens = r.h.n_tokens;
    m->capacity.n_spans = UM_MAX(r.h.n_spans, r.h.n_saves);
    m->capacity.n_tiles = r.h.n_tiles;
    m->capacity.n_rows = r.h.n_rows;
    r.l = um_message_layout_of(&m->capacity);
    m->batch = (um_batch){.n_tokens = r.h.n_tokens,
                          .n_spans = r.h.n_spans,
                          .n_rows = r.h.n_rows,
                          .n_saves = r.h.n_saves,
                          .id = read_list(&r, r.l.id, 0, m->capacity.vocab),
                          .pos = read_list(&r, r.l.pos, 0, INT32_MAX),
                          .slot = read_list(&r, r.l.slot, -1, slots),
                          .near_slot = read_list(&r, r.l.near_slot, -1, slots),
                          .seen_end = read_list(&r, r.l.seen_end, 0, INT32_MAX),
                          .span = m->span,
                          .soft = m->soft,
                          .row = m->row,
                          .answer = m->answer};
    read_spans(&r);
    read_softs(&r, &m->batch);
    read_rows(&r);
    read_saves(&r);
    *out = &m->batch;
    return r.is_bad ? um_fail(err, UM_EPARSE, "the message of a pass has values out of range") : UM_OK;
}

/* ---- Following --------------------------------------------------------------------------------------------------- */

/* A rank that follows rank 0. */
typedef struct follower {
    const um_backend *b;
    um_device *d;
    const um_network *n;
    um_forward *forward; /* NULL: rank 0 has no engine now */
    um_remote *remote;
} follower;

static void end_forward(follower *w) {
    w->b->forward_free(w->forward);
    um_remote_free(w->remote);
    w->forward = NULL;
    w->remote = NULL;
}

/* Fails when the body of a frame has another length. */
static um_status check_length(um_str body, size_t n, um_err *err) {
    return body.n == n ? UM_OK : um_fail(err, UM_EPARSE, "a command of rank 0 has %zu bytes, expected %zu", body.n, n);
}

static um_status begin_forward(follower *w, um_str body, um_err *err) {
    um_forward_config c;
    um_status s = check_length(body, sizeof c, err);
    if (s) return s;
    memcpy(&c, body.p, sizeof c);
    end_forward(w);
    if (c.page_size < 1 || c.max_tokens < 0 || c.max_rows < 0 || c.max_spans < 0)
        return um_fail(err, UM_EPARSE, "a command of rank 0 has sizes out of range");
    if (UM_MAX(c.max_tokens, c.max_rows) > w->d->max_tokens)
        return um_fail(err, UM_ELIMIT,
                       "it was started for steps of %d tokens (--max-num-batched-tokens), but rank 0 for %d",
                       w->d->max_tokens, UM_MAX(c.max_tokens, c.max_rows));
    s = w->b->forward_new(&w->forward, w->d, w->n, &c, err);
    if (s) return s;
    w->remote = um_remote_new(w->d->link, w->n, &c, false, w->d->unites);
    return um_link_answer(w->d->link, UM_FRAME_READY, NULL, 0, err);
}

static um_status run_pass(follower *w, um_str body, um_err *err) {
    const um_batch *batch;
    if (!w->forward) return um_fail(err, UM_EPARSE, "rank 0 sent a pass before its sizes");
    um_status s = um_remote_batch(w->remote, body, &batch, err);
    if (!s) s = w->b->submit(w->forward, batch, err);
    return s ? s : w->b->wait(w->forward, err);
}

static um_status warm(follower *w, um_str body, um_err *err) {
    const um_pass_size *size = (const um_pass_size *)body.p;
    const size_t n = body.n / sizeof *size;
    um_status s = check_length(body, n * sizeof *size, err);
    if (!s && (!w->forward || !w->b->warm))
        return um_fail(err, UM_EPARSE, "rank 0 prepares passes, which this rank does not");
    const um_forward_config *c = w->remote ? &w->remote->c : NULL;
    for (size_t i = 0; i < n && c; i++)
        if (size[i].n_tokens < 0 || size[i].n_tokens > c->max_tokens || size[i].n_spans < 0 ||
            size[i].n_spans > c->max_spans || size[i].n_rows < 0 || size[i].n_rows > c->max_rows || size[i].keys < 0)
            return um_fail(err, UM_EPARSE, "a command of rank 0 has sizes out of range");
    return s ? s : w->b->warm(w->forward, size, (int32_t)n, err);
}

static um_status copy_page(follower *w, um_str body, um_err *err) {
    int32_t copy[3];
    um_status s = check_length(body, sizeof copy, err);
    if (s) return s;
    memcpy(copy, body.p, sizeof copy);
    const um_forward_config *c = w->remote ? &w->remote->c : NULL;
    if (!c || copy[0] < 0 || copy[0] >= c->n_pages || copy[1] < 0 || copy[1] >= c->n_pages || copy[2] < 0 ||
        copy[2] > c->page_size)
        return um_fail(err, UM_EPARSE, "rank 0 wants to copy a page that is not there");
    w->b->copy_page(w->forward, copy[0], copy[1], copy[2]);
    return UM_OK;
}

static um_status obey(follower *w, um_frame_type type, um_str body, um_err *err) {
    switch (type) {
    case UM_FRAME_PING: return um_link_answer(w->d->link, UM_FRAME_PONG, NULL, 0, err);
    case UM_FRAME_FORWARD: return begin_forward(w, body, err);
    case UM_FRAME_WARM: return warm(w, body, err);
    case UM_FRAME_PASS: return run_pass(w, body, err);
    case UM_FRAME_COPY: return copy_page(w, body, err);
    case UM_FRAME_FREE: end_forward(w); return UM_OK;
    default: return um_fail(err, UM_EPARSE, "rank 0 sent an unknown command %d", (int)type);
    }
}

um_status um_ranks_follow(const um_backend *b, um_device *d, const um_network *n, um_err *err) {
    follower w = {.b = b, .d = d, .n = n};
    um_link *l = d->link;
    um_err why = {0};
    assert(l && d->first > 0);
    for (;;) {
        um_frame_type type;
        um_str body;
        um_status s = um_link_receive(l, &type, &body, &why);
        const bool is_lost = s != UM_OK; /* another rank has failed */
        if (!s && type == UM_FRAME_END) break;
        if (!s) s = obey(&w, type, body, &why);
        if (!s) continue;
        um_link_fail(l, is_lost ? um_link_failed_rank(l) : d->first, why.msg);
        end_forward(&w);
        if (is_lost) return um_fail(err, UM_EDEVICE, "rank %d: %s", um_link_failed_rank(l), why.msg);
        return um_fail(err, UM_EDEVICE, "%s", why.msg);
    }
    end_forward(&w);
    return UM_OK;
}
