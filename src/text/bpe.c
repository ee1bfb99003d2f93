/* Byte-pair encoding of one piece. Each round merges the adjacent pair with the lowest rank, or the leftmost of several
 * with that rank, until no pair has a rank. Nearly all pieces are a few bytes long and are merged by scanning an array.
 * Long pieces (a megabyte of spaces is real input) use a priority queue: the cost stays O(n log n). */
#include "text/tok.h"

#define NO_RANK   UINT32_MAX
#define SHORT_MAX 64 /* symbols of the longest piece that is scanned: quadratic cost, but few cache misses */

/* Returns the rank of a pair and sets *id to the merged token. Returns NO_RANK if the pair does not merge. */
static uint32_t pair_find(const um_bpe *b, int32_t left, int32_t right, int32_t *id) {
    uint64_t key = um_pair_key(left, right);
    for (size_t i = um_pair_slot(b, key);; i = (i + 1) & b->mask) {
        if (b->pair[i].key == key) {
            *id = b->pair[i].id;
            return b->pair[i].rank;
        }
        if (b->pair[i].key == UINT64_MAX) return NO_RANK;
    }
}

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

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
        size_t n = (size_t)um_utf8_put(um_byte_to_char((uint8_t)i), stand_in);
        b->byte_id[i] = um_vocab_find(v, (um_str){stand_in, n});
    }
}

um_status um_bpe_load(um_bpe *b, const um_vocab *v, const json_t *model, bool byte_level, um_arena *a,
                      const char *where, um_err *err) {
    *b = (um_bpe){.unk_id = -1, .byte_level = byte_level};
    um_status st = load_switches(b, v, model, where, err);
    if (!st) st = load_affix(model, "continuing_subword_prefix", a, &b->prefix, where, err);
    if (!st) st = load_affix(model, "end_of_word_suffix", a, &b->suffix, where, err);
    find_bytes(b, v);
    return st;
}

static void find_chars(um_bpe *b, const um_vocab *v) {
    b->char_id = (int32_t *)um_alloc(UM_CHARS * sizeof *b->char_id);
    for (uint32_t cp = 0; cp < UM_CHARS; cp++) {
        char c[4];
        b->char_id[cp] = um_vocab_find(v, (um_str){c, (size_t)um_utf8_put(cp, c)});
    }
}

void um_bpe_finish(um_bpe *b, const um_vocab *v) {
    if (b->prefix.n || b->suffix.n) return;
    if (!b->byte_level) {
        find_chars(b, v);
        if (!b->ignore_merges)
            um_cuts_find(&b->cuts,
                         v); /* with ignore_merges, a part could match a token that merging the whole never gives */
        return;
    }
    b->byte_pair = (um_byte_pair *)um_alloc(65536 * sizeof *b->byte_pair);
    for (uint32_t i = 0; i < 65536; i++) {
        um_byte_pair *p = &b->byte_pair[i];
        p->id = -1;
        p->rank = pair_find(b, b->byte_id[i >> 8], b->byte_id[i & 0xFF], &p->id);
    }
}

void um_bpe_free(um_bpe *b) {
    um_free(b->pair);
    um_free(b->byte_pair);
    um_free(b->char_id);
    *b = (um_bpe){0};
}

/* ---- Start symbols ----------------------------------------------------------------------------------------------- */

static void scratch_reserve(um_bpe_scratch *s, size_t n) {
    if (n <= s->cap) return;
    s->cap = n + n / 2 + 256;
    s->id = (int32_t *)um_realloc(s->id, um_mul(s->cap, sizeof *s->id));
    s->rank = (uint32_t *)um_realloc(s->rank, um_mul(s->cap, sizeof *s->rank));
    s->prev = (uint32_t *)um_realloc(s->prev, um_mul(s->cap, sizeof *s->prev));
    s->next = (uint32_t *)um_realloc(s->next, um_mul(s->cap, sizeof *s->next));
    s->to = (int32_t *)um_realloc(s->to, um_mul(s->cap, sizeof *s->to));
}

/* Appends the symbols of a character that is not in the vocabulary: its byte tokens, else the unknown token, else
 * nothing. Returns the new number of symbols. */
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

/* Builds the text of the symbol at piece[at], with prefix and suffix, in s->text. *len is its length in the piece. */
static um_str symbol_text(const um_bpe *b, um_bpe_scratch *s, um_str piece, size_t at, int *len) {
    *len = 1;
    um_buf_clear(&s->text);
    if (at > 0) um_buf_append(&s->text, b->prefix.p, b->prefix.n);
    if (b->byte_level) um_byte_chars_encode((um_str){piece.p + at, 1}, &s->text);
    else {
        um_cp_at(piece.p + at, piece.n - at, len);
        um_buf_append(&s->text, piece.p + at, (size_t)*len);
    }
    if (at + (size_t)*len == piece.n) um_buf_append(&s->text, b->suffix.p, b->suffix.n);
    return (um_str){s->text.data, s->text.len};
}

/* Returns the token of a character from the table, or -1 if the vocabulary must be searched. */
static int32_t usual_char(const um_bpe *b, um_str piece, size_t at, int *len) {
    uint32_t cp = b->char_id ? um_cp_at(piece.p + at, piece.n - at, len) : UM_CHARS;
    return cp < UM_CHARS ? b->char_id[cp] : -1;
}

/* Fills s->id with one symbol per character, or per byte through the byte table. Returns their number. */
static size_t start_symbols(const um_bpe *b, const um_vocab *v, um_bpe_scratch *s, um_str piece) {
    size_t n = 0;
    bool unknown = false;
    int len;
    for (size_t at = 0; at < piece.n; at += (size_t)len) {
        um_str symbol = {NULL, 1};
        int32_t id = usual_char(b, piece, at, &len);
        if (id < 0) {
            symbol = symbol_text(b, s, piece, at, &len);
            id = um_vocab_find(v, symbol);
        }
        scratch_reserve(s, n + symbol.n + 1);
        if (id >= 0) {
            s->id[n++] = id;
            unknown = false;
        } else n = push_missing(b, s, n, symbol, &unknown);
    }
    return n;
}

/* Fills s->id from the table of bytes, the usual case. Returns false if a byte has no token. */
static bool start_bytes(const um_bpe *b, um_bpe_scratch *s, um_str piece) {
    scratch_reserve(s, piece.n);
    for (size_t i = 0; i < piece.n; i++) {
        s->id[i] = b->byte_id[(uint8_t)piece.p[i]];
        if (s->id[i] < 0) return false;
    }
    return true;
}

/* ---- Merging ----------------------------------------------------------------------------------------------------- */

/* Returns the rank of the pair at `at` before the first merge. `bytes`: each symbol is one byte of it (NULL: symbols
 * are not bytes). Half of all lookups happen here, and the table of byte pairs is small enough for the processor's
 * cache. */
static uint32_t first_pair(const um_bpe *b, const int32_t *id, const uint8_t *bytes, size_t at, int32_t *to) {
    if (!bytes) return pair_find(b, id[at], id[at + 1], to);
    const um_byte_pair *p = &b->byte_pair[bytes[at] << 8 | bytes[at + 1]];
    *to = p->id;
    return p->rank;
}

static size_t merge_short(const um_bpe *b, int32_t *id, const uint8_t *bytes, size_t n) {
    uint32_t rank[SHORT_MAX];
    int32_t to[SHORT_MAX];
    for (size_t i = 0; i + 1 < n; i++) rank[i] = first_pair(b, id, bytes, i, &to[i]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == NO_RANK) break;
        id[best] = to[best];
        n--;
        size_t tail = n - best - 1; /* symbols after the merged one */
        memmove(&id[best + 1], &id[best + 2], tail * sizeof *id);
        if (tail) { /* rank[best] is overwritten below, so the ranks after it move down by one */
            memmove(&rank[best], &rank[best + 1], tail * sizeof *rank);
            memmove(&to[best], &to[best + 1], tail * sizeof *to);
            rank[best] = pair_find(b, id[best], id[best + 1], &to[best]);
        }
        if (best) rank[best - 1] = pair_find(b, id[best - 1], id[best], &to[best - 1]);
    }
    return n;
}

/* A priority queue of pairs to merge: lowest rank first, then leftmost. A long piece repeats few pairs many times, and
 * mostly from left to right. The positions of a rank therefore form a list, and only the head of the list is in the
 * heap. A position to the left of the list's tail is pushed to the heap directly. */
typedef struct um_bpe_queue {
    uint32_t *first, *last; /* [n_ranks] entries of a rank, 0 = none */
    struct um_bpe_entry {
        uint32_t at, next;
    } * entry; /* entry 0 is not used */
    size_t n, cap;
    uint64_t *heap; /* rank << 32 | position */
    size_t heap_n, heap_cap;
} queue;

static queue *queue_of(const um_bpe *b, um_bpe_scratch *s) {
    if (!s->queue) {
        s->queue = UM_NEW(queue);
        s->queue->first = UM_NEW_ARRAY(uint32_t, b->n_ranks);
        s->queue->last = UM_NEW_ARRAY(uint32_t, b->n_ranks);
    }
    s->queue->n = 1;
    return s->queue;
}

static void queue_free(queue *q) {
    if (!q) return;
    um_free(q->first);
    um_free(q->last);
    um_free(q->entry);
    um_free(q->heap);
    um_free(q);
}

static void heap_push(queue *q, uint64_t key) {
    if (q->heap_n == q->heap_cap) {
        q->heap_cap = q->heap_cap ? q->heap_cap * 2 : 256;
        q->heap = (uint64_t *)um_realloc(q->heap, um_mul(q->heap_cap, sizeof *q->heap));
    }
    size_t i = q->heap_n++;
    for (; i > 0 && key < q->heap[(i - 1) / 2]; i = (i - 1) / 2) q->heap[i] = q->heap[(i - 1) / 2];
    q->heap[i] = key;
}

/* Replaces the top of the heap by key. */
static void heap_replace(queue *q, uint64_t key) {
    size_t i = 0;
    for (;;) {
        size_t c = 2 * i + 1;
        if (c >= q->heap_n) break;
        if (c + 1 < q->heap_n && q->heap[c + 1] < q->heap[c]) c++;
        if (q->heap[c] >= key) break;
        q->heap[i] = q->heap[c];
        i = c;
    }
    q->heap[i] = key;
}

static void queue_push(queue *q, uint32_t rank, uint32_t at) {
    uint64_t key = (uint64_t)rank << 32 | at;
    if (q->first[rank] && at < q->entry[q->last[rank]].at) {
        heap_push(q, key);
        return;
    }
    if (q->n >= q->cap) {
        q->cap = q->cap ? q->cap * 2 : 1024;
        q->entry = (struct um_bpe_entry *)um_realloc(q->entry, um_mul(q->cap, sizeof *q->entry));
    }
    uint32_t e = (uint32_t)q->n++;
    q->entry[e] = (struct um_bpe_entry){at, 0};
    if (q->first[rank]) q->entry[q->last[rank]].next = e;
    else {
        q->first[rank] = e;
        heap_push(q, key);
    }
    q->last[rank] = e;
}

/* Removes and returns the next position and its rank. If the position is the head of its list, the list's next position
 * replaces it in the heap. */
static uint32_t queue_take(queue *q, uint32_t *rank) {
    uint64_t key = q->heap[0];
    uint32_t at = (uint32_t)key, e = q->first[ *rank = (uint32_t)(key >> 32)];
    bool listed = e && q->entry[e].at == at;
    if (listed) q->first[*rank] = e = q->entry[e].next;
    if (listed && e) heap_replace(q, (uint64_t)*rank << 32 | q->entry[e].at);
    else if (--q->heap_n) heap_replace(q, q->heap[q->heap_n]);
    return at;
}

/* Looks up the new pair that begins at `at` and queues it if it merges. */
static void queue_pair(const um_bpe *b, um_bpe_scratch *s, size_t n, uint32_t at) {
    uint32_t right = s->next[at];
    s->rank[at] = right < n ? pair_find(b, s->id[at], s->id[right], &s->to[at]) : NO_RANK;
    if (s->rank[at] != NO_RANK) queue_push(s->queue, s->rank[at], at);
}

static void merge_at(const um_bpe *b, um_bpe_scratch *s, size_t n, uint32_t at) {
    uint32_t gone = s->next[at], after = s->next[gone];
    s->id[at] = s->to[at];
    s->rank[gone] = NO_RANK;
    s->next[at] = after;
    if (after < n) s->prev[after] = at;
    if (at > 0) queue_pair(b, s, n, s->prev[at]);
    queue_pair(b, s, n, at);
}

static size_t merge_long(const um_bpe *b, um_bpe_scratch *s, const uint8_t *bytes, size_t n) {
    queue *q = queue_of(b, s);
    for (uint32_t i = 0; i < n; i++) {
        s->prev[i] = i - 1;
        s->next[i] = i + 1;
        s->rank[i] = i + 1 < n ? first_pair(b, s->id, bytes, i, &s->to[i]) : NO_RANK;
        if (s->rank[i] != NO_RANK) queue_push(q, s->rank[i], i);
    }
    while (q->heap_n) {
        uint32_t rank, at = queue_take(q, &rank);
        if (s->rank[at] == rank) merge_at(b, s, n, at); /* skips pairs that changed after they were queued */
    }
    size_t kept = 0;
    for (uint32_t i = 0; i < n; i = s->next[i]) s->id[kept++] = s->id[i];
    return kept;
}

void um_bpe_scratch_free(um_bpe_scratch *s) {
    um_free(s->id);
    um_free(s->rank);
    um_free(s->prev);
    um_free(s->next);
    um_free(s->to);
    queue_free(s->queue);
    um_buf_free(&s->text);
    memset(s, 0, sizeof *s);
}

/* Returns the token that equals the whole piece, or -1. For ignore_merges. */
static int32_t whole_piece(const um_bpe *b, const um_vocab *v, um_bpe_scratch *s, um_str piece) {
    if (!b->byte_level) return um_vocab_find(v, piece);
    um_buf_clear(&s->text);
    um_byte_chars_encode(piece, &s->text);
    return um_vocab_find(v, (um_str){s->text.data, s->text.len});
}

/* Without ignore_merges, a piece that is itself a token is merged too. A lookup before the merges, with a list of the
 * tokens whose text merges to themselves, was slower: the merges mostly stay in the processor's cache. */
void um_bpe_encode(const um_bpe *b, const um_vocab *v, um_bpe_scratch *s, um_str piece, um_ids *out) {
    int32_t whole = b->ignore_merges ? whole_piece(b, v, s, piece) : -1;
    if (whole >= 0) {
        um_ids_push(out, whole);
        return;
    }
    size_t n = piece.n;
    const uint8_t *bytes = b->byte_pair && start_bytes(b, s, piece) ? (const uint8_t *)piece.p : NULL;
    if (!bytes) n = start_symbols(b, v, s, piece);
    n = n <= SHORT_MAX ? merge_short(b, s->id, bytes, n) : merge_long(b, s, bytes, n);
    for (size_t i = 0; i < n; i++) um_ids_push(out, s->id[i]);
}
