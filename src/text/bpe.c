/* Byte-pair encoding of one piece. Among all neighbouring pairs the one with the lowest rank is merged, at equal rank
 * the leftmost, until no pair has a rank. Nearly all pieces are a few bytes and are merged by scanning an array; long
 * ones (a megabyte of spaces is real input) go through a heap, so that the cost stays O(n log n). */
#include "text/tok.h"

#define NO_RANK   UINT32_MAX
#define SHORT_MAX 64 /* symbols that the scan handles: its cost is quadratic, but without a cache miss */

typedef struct um_bpe_pair {
    uint64_t key; /* left << 32 | right; UINT64_MAX: free */
    uint32_t rank;
    int32_t id;
} um_bpe_pair;

typedef struct um_bpe_entry {
    uint32_t rank, at;
    int32_t id;
} um_bpe_entry;

/* ---- Pair table -------------------------------------------------------------------------------------------------- */

static size_t pair_slot(const um_bpe *b, uint64_t key) { return (size_t)((key * 0x9E3779B97F4A7C15u) >> b->shift); }

/* Rank of a pair, NO_RANK if it never merges; *id receives the result. */
static uint32_t pair_find(const um_bpe *b, int32_t left, int32_t right, int32_t *id) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    for (size_t i = pair_slot(b, key);; i = (i + 1) & b->mask) {
        if (b->pair[i].key == key) {
            *id = b->pair[i].id;
            return b->pair[i].rank;
        }
        if (b->pair[i].key == UINT64_MAX) return NO_RANK;
    }
}

static void pair_put(um_bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t i = pair_slot(b, key);
    while (b->pair[i].key != UINT64_MAX && b->pair[i].key != key) i = (i + 1) & b->mask;
    b->pair[i] = (um_bpe_pair){key, rank, id};
}

static void pair_init(um_bpe *b, size_t n) {
    int bits = 6;
    while (((size_t)1 << bits) < 2 * n) bits++;
    b->shift = 64 - bits;
    b->mask = ((size_t)1 << bits) - 1;
    b->pair = (um_bpe_pair *)um_alloc(um_mul(b->mask + 1, sizeof *b->pair));
    for (size_t i = 0; i <= b->mask; i++) b->pair[i].key = UINT64_MAX;
}

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

typedef struct loader {
    um_bpe *b;
    const um_vocab *v;
    um_buf joined;
    const char *where;
    um_err *err;
} loader;

/* Both forms of an entry: "a b", whose parts hold no space, and ["a", "b"]. */
static um_status merge_parts(const loader *l, const json_t *entry, size_t at, um_str part[2]) {
    if (json_is_array(entry) && json_array_size(entry) == 2) {
        const json_t *x = json_array_get(entry, 0), *y = json_array_get(entry, 1);
        if (json_is_string(x) && json_is_string(y)) {
            part[0] = (um_str){json_string_value(x), json_string_length(x)};
            part[1] = (um_str){json_string_value(y), json_string_length(y)};
            return UM_OK;
        }
    } else if (json_is_string(entry)) {
        const char *s = json_string_value(entry);
        size_t n = json_string_length(entry);
        const char *space = (const char *)memchr(s, ' ', n);
        if (space && !memchr(space + 1, ' ', n - (size_t)(space + 1 - s))) {
            part[0] = (um_str){s, (size_t)(space - s)};
            part[1] = (um_str){space + 1, n - (size_t)(space + 1 - s)};
            return UM_OK;
        }
    }
    return um_fail(l->err, UM_EPARSE, "%s: model.merges[%zu] must be \"a b\" or [\"a\", \"b\"]", l->where, at);
}

static um_status load_merge(loader *l, const json_t *entry, size_t at, uint32_t rank) {
    um_str part[2];
    um_status st = merge_parts(l, entry, at, part);
    if (st) return st;
    int32_t left = um_vocab_find(l->v, part[0]), right = um_vocab_find(l->v, part[1]);
    size_t skip = l->b->prefix.n;
    if (skip > part[1].n) skip = part[1].n;
    um_buf_clear(&l->joined);
    um_buf_append(&l->joined, part[0].p, part[0].n);
    um_buf_append(&l->joined, part[1].p + skip, part[1].n - skip);
    int32_t id = um_vocab_find(l->v, (um_str){l->joined.data, l->joined.len});
    if (left < 0 || right < 0 || id < 0)
        return um_fail(l->err, UM_EPARSE, "%s: model.merges[%zu]: %s of \"%.40s\" + \"%.40s\" is not in the vocabulary",
                       l->where, at, left < 0 ? "the left part" : (right < 0 ? "the right part" : "the result"),
                       part[0].p, part[1].p);
    pair_put(l->b, left, right, rank, id);
    return UM_OK;
}

static um_status load_merges(loader *l, const json_t *merges) {
    if (!json_is_array(merges) || json_array_size(merges) > UM_TOK_MERGES_MAX)
        return um_fail(l->err, UM_EPARSE, "%s: model.merges must be a list of at most %d entries", l->where,
                       UM_TOK_MERGES_MAX);
    pair_init(l->b, json_array_size(merges));
    uint32_t rank = 0;
    const json_t *entry;
    size_t i;
    json_array_foreach(merges, i, entry) {
        const char *s = json_string_value(entry);
        if (s && strncmp(s, "#version", 8) == 0) continue;
        um_status st = load_merge(l, entry, i, rank++);
        if (st) return st;
    }
    return UM_OK;
}

static um_status load_affix(const json_t *model, const char *key, um_arena *a, um_str *out, const char *where,
                            um_err *err) {
    const char *s = NULL;
    um_status st = um_json_get_str(model, key, where, &s, err);
    if (st || !s || !*s) return st;
    size_t n = strlen(s);
    if (n > UM_TOK_BYTES_MAX) return um_fail(err, UM_ELIMIT, "%s: model.%s is longer than a token may be", where, key);
    *out = (um_str){um_arena_strndup(a, s, n), n};
    return UM_OK;
}

static um_status load_switches(um_bpe *b, const um_vocab *v, const json_t *model, const char *where, um_err *err) {
    const char *unk = NULL;
    um_status st = um_json_get_str(model, "unk_token", where, &unk, err);
    if (!st) st = um_json_get_bool(model, "fuse_unk", where, &b->fuse_unk, err);
    if (!st) st = um_json_get_bool(model, "byte_fallback", where, &b->byte_fallback, err);
    if (!st) st = um_json_get_bool(model, "ignore_merges", where, &b->ignore_merges, err);
    if (st) return st;
    double dropout = 0;
    if ((st = um_json_get_double(model, "dropout", where, &dropout, err))) return st;
    if (dropout != 0) um_warn("%s: model.dropout is %g; 0 is used, so that results can be repeated", where, dropout);
    if (!unk) return UM_OK;
    b->unk_id = um_vocab_find(v, um_str_of(unk));
    if (b->unk_id < 0)
        return um_fail(err, UM_EPARSE, "%s: model.unk_token \"%.60s\" is not in the vocabulary", where, unk);
    return UM_OK;
}

static void find_bytes(um_bpe *b, const um_vocab *v) {
    for (int i = 0; i < 256; i++) {
        char name[8], stand_in[4];
        snprintf(name, sizeof name, "<0x%02X>", i);
        b->fallback_id[i] = um_vocab_find(v, um_str_of(name));
        size_t n = (size_t)um_utf8_put(um_byte_stand_in((uint8_t)i), stand_in);
        b->byte_id[i] = um_vocab_find(v, (um_str){stand_in, n});
    }
}

um_status um_bpe_load(um_bpe *b, const um_vocab *v, const json_t *model, bool byte_level, um_arena *a,
                      const char *where, um_err *err) {
    *b = (um_bpe){.unk_id = -1, .byte_level = byte_level};
    um_status st = load_switches(b, v, model, where, err);
    if (!st) st = load_affix(model, "continuing_subword_prefix", a, &b->prefix, where, err);
    if (!st) st = load_affix(model, "end_of_word_suffix", a, &b->suffix, where, err);
    if (st) return st;
    find_bytes(b, v);
    loader l = {.b = b, .v = v, .where = where, .err = err};
    st = load_merges(&l, json_object_get(model, "merges"));
    um_buf_free(&l.joined);
    return st;
}

void um_bpe_free(um_bpe *b) {
    um_free(b->pair);
    b->pair = NULL;
}

/* ---- Start symbols ----------------------------------------------------------------------------------------------- */

static void scratch_reserve(um_bpe_scratch *s, size_t n) {
    if (n <= s->cap) return;
    s->cap = n + n / 2 + 256;
    s->id = (int32_t *)um_realloc(s->id, um_mul(s->cap, sizeof *s->id));
    s->rank = (uint32_t *)um_realloc(s->rank, um_mul(s->cap, sizeof *s->rank));
    s->prev = (uint32_t *)um_realloc(s->prev, um_mul(s->cap, sizeof *s->prev));
    s->next = (uint32_t *)um_realloc(s->next, um_mul(s->cap, sizeof *s->next));
}

void um_bpe_scratch_free(um_bpe_scratch *s) {
    um_free(s->id);
    um_free(s->rank);
    um_free(s->prev);
    um_free(s->next);
    um_free(s->heap);
    um_buf_free(&s->text);
    memset(s, 0, sizeof *s);
}

/* Symbols of a character that the vocabulary lacks: its bytes, or the unknown token, or nothing. */
static size_t push_missing(const um_bpe *b, um_bpe_scratch *s, size_t n, um_str symbol, bool *unknown) {
    bool all = b->byte_fallback;
    for (size_t i = 0; i < symbol.n && all; i++) all = b->fallback_id[(uint8_t)symbol.p[i]] >= 0;
    if (all) {
        for (size_t i = 0; i < symbol.n; i++) s->id[n++] = b->fallback_id[(uint8_t)symbol.p[i]];
        *unknown = false;
    } else if (b->unk_id >= 0) {
        if (!(b->fuse_unk && *unknown)) s->id[n++] = b->unk_id;
        *unknown = true;
    }
    return n;
}

/* One symbol per character, or per byte through the byte table, with prefix and suffix. */
static size_t start_symbols(const um_bpe *b, const um_vocab *v, um_bpe_scratch *s, um_str piece) {
    size_t n = 0, at = 0;
    bool unknown = false;
    while (at < piece.n) {
        int len = 1;
        um_buf_clear(&s->text);
        if (at > 0) um_buf_append(&s->text, b->prefix.p, b->prefix.n);
        if (b->byte_level) um_stand_in_encode((um_str){piece.p + at, 1}, &s->text);
        else {
            um_cp_at(piece.p + at, piece.n - at, &len);
            um_buf_append(&s->text, piece.p + at, (size_t)len);
        }
        at += (size_t)len;
        if (at == piece.n) um_buf_append(&s->text, b->suffix.p, b->suffix.n);
        um_str symbol = {s->text.data, s->text.len};
        scratch_reserve(s, n + symbol.n + 1);
        int32_t id = um_vocab_find(v, symbol);
        if (id >= 0) {
            s->id[n++] = id;
            unknown = false;
        } else n = push_missing(b, s, n, symbol, &unknown);
    }
    return n;
}

/* The usual case, straight from the byte table; false when a byte has no token. */
static bool start_bytes(const um_bpe *b, um_bpe_scratch *s, um_str piece) {
    scratch_reserve(s, piece.n);
    for (size_t i = 0; i < piece.n; i++) {
        s->id[i] = b->byte_id[(uint8_t)piece.p[i]];
        if (s->id[i] < 0) return false;
    }
    return true;
}

/* ---- Merging ----------------------------------------------------------------------------------------------------- */

static size_t merge_short(const um_bpe *b, int32_t *id, size_t n) {
    uint32_t rank[SHORT_MAX];
    int32_t to[SHORT_MAX];
    for (size_t i = 0; i + 1 < n; i++) rank[i] = pair_find(b, id[i], id[i + 1], &to[i]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == NO_RANK) break;
        id[best] = to[best];
        n--;
        size_t tail = n - best - 1; /* symbols behind the merged one */
        memmove(&id[best + 1], &id[best + 2], tail * sizeof *id);
        if (tail) { /* rank[best] is computed anew, so what is behind it moves onto it and over */
            memmove(&rank[best], &rank[best + 1], tail * sizeof *rank);
            memmove(&to[best], &to[best + 1], tail * sizeof *to);
            rank[best] = pair_find(b, id[best], id[best + 1], &to[best]);
        }
        if (best) rank[best - 1] = pair_find(b, id[best - 1], id[best], &to[best - 1]);
    }
    return n;
}

static bool entry_less(um_bpe_entry x, um_bpe_entry y) { return x.rank < y.rank || (x.rank == y.rank && x.at < y.at); }

static void heap_push(um_bpe_scratch *s, um_bpe_entry e) {
    if (s->heap_n == s->heap_cap) {
        s->heap_cap = s->heap_cap ? s->heap_cap * 2 : 1024;
        s->heap = (um_bpe_entry *)um_realloc(s->heap, um_mul(s->heap_cap, sizeof *s->heap));
    }
    size_t i = s->heap_n++;
    for (; i > 0 && entry_less(e, s->heap[(i - 1) / 2]); i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = e;
}

static um_bpe_entry heap_pop(um_bpe_scratch *s) {
    um_bpe_entry top = s->heap[0], e = s->heap[--s->heap_n];
    size_t i = 0;
    for (;;) {
        size_t c = 2 * i + 1;
        if (c >= s->heap_n) break;
        if (c + 1 < s->heap_n && entry_less(s->heap[c + 1], s->heap[c])) c++;
        if (!entry_less(s->heap[c], e)) break;
        s->heap[i] = s->heap[c];
        i = c;
    }
    s->heap[i] = e;
    return top;
}

/* Looks the pair that begins at `at` up again and queues it if it merges. */
static void queue_pair(const um_bpe *b, um_bpe_scratch *s, size_t n, uint32_t at) {
    int32_t id = -1;
    uint32_t right = s->next[at];
    s->rank[at] = right < n ? pair_find(b, s->id[at], s->id[right], &id) : NO_RANK;
    if (s->rank[at] != NO_RANK) heap_push(s, (um_bpe_entry){s->rank[at], at, id});
}

static size_t merge_long(const um_bpe *b, um_bpe_scratch *s, size_t n) {
    s->heap_n = 0;
    for (uint32_t i = 0; i < n; i++) {
        s->prev[i] = i - 1;
        s->next[i] = i + 1;
        queue_pair(b, s, n, i);
    }
    while (s->heap_n) {
        um_bpe_entry e = heap_pop(s);
        if (s->rank[e.at] != e.rank) continue; /* its pair has changed since */
        uint32_t gone = s->next[e.at], after = s->next[gone];
        s->id[e.at] = e.id;
        s->rank[gone] = NO_RANK;
        s->next[e.at] = after;
        if (after < n) s->prev[after] = e.at;
        queue_pair(b, s, n, e.at);
        if (e.at > 0) queue_pair(b, s, n, s->prev[e.at]);
    }
    size_t kept = 0;
    for (uint32_t i = 0; i < n; i = s->next[i]) s->id[kept++] = s->id[i];
    return kept;
}

/* A piece that is a token as a whole, for ignore_merges. */
static int32_t whole_piece(const um_bpe *b, const um_vocab *v, um_bpe_scratch *s, um_str piece) {
    if (!b->byte_level) return um_vocab_find(v, piece);
    um_buf_clear(&s->text);
    um_stand_in_encode(piece, &s->text);
    return um_vocab_find(v, (um_str){s->text.data, s->text.len});
}

void um_bpe_encode(const um_bpe *b, const um_vocab *v, um_bpe_scratch *s, um_str piece, um_ids *out) {
    if (b->ignore_merges) {
        int32_t id = whole_piece(b, v, s, piece);
        if (id >= 0) {
            um_ids_push(out, id);
            return;
        }
    }
    size_t n = piece.n;
    bool plain = b->byte_level && b->prefix.n == 0 && b->suffix.n == 0;
    if (!plain || !start_bytes(b, s, piece)) n = start_symbols(b, v, s, piece);
    n = n <= SHORT_MAX ? merge_short(b, s->id, n) : merge_long(b, s, n);
    for (size_t i = 0; i < n; i++) um_ids_push(out, s->id[i]);
}
