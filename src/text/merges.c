/* The merges of a BPE model: the pair table, and the readers of files that list or imply merges. */
#include <math.h>
#include <stdlib.h>

#include "text/tok.h"

#define BATCH     32   /* merges whose lookups overlap their memory accesses */
#define SPLIT_MAX 1024 /* bytes of a token that is split at every position, which takes quadratic time */

/* ---- Pair table -------------------------------------------------------------------------------------------------- */

static void pair_init(um_bpe *b, size_t n) {
    int bits = 6;
    while (((size_t)3 << bits) < 4 * n) bits++;
    b->shift = 64 - bits;
    b->mask = ((size_t)1 << bits) - 1;
    b->pair = (um_bpe_pair *)um_alloc(um_mul(b->mask + 1, sizeof *b->pair));
    memset(b->pair, 0xFF, (b->mask + 1) * sizeof *b->pair); /* every key is UINT64_MAX: unused */
}

static void grow(um_bpe *b) {
    um_bpe_pair *old = b->pair;
    size_t n = b->mask + 1;
    pair_init(b, n + n / 2);
    for (size_t i = 0; i < n; i++) {
        if (old[i].key == UINT64_MAX) continue;
        size_t k = um_pair_slot(b, old[i].key);
        while (b->pair[k].key != UINT64_MAX) k = (k + 1) & b->mask;
        b->pair[k] = old[i];
    }
    um_free(old);
}

/* Stores a merge. If the pair is already present, the new rank replaces the old one. */
static void put(um_bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id) {
    uint64_t key = um_pair_key(left, right);
    if (4 * (b->n_pairs + 1) > 3 * (b->mask + 1)) grow(b);
    size_t i = um_pair_slot(b, key);
    while (b->pair[i].key != UINT64_MAX && b->pair[i].key != key) i = (i + 1) & b->mask;
    b->n_pairs += b->pair[i].key == UINT64_MAX;
    b->n_ranks = UM_MAX(b->n_ranks, (size_t)rank + 1);
    b->pair[i] = (um_bpe_pair){key, rank, id};
}

/* A merge whose ids have not been looked up yet. */
typedef struct um_merge {
    um_str left, right; /* in the text, or in scratch */
    um_buf scratch[2];
    size_t at; /* number of the entry or line, for messages */
} um_merge;

void um_merging_begin(um_merging *m, um_bpe *b, const um_vocab *v, um_err *err) {
    *m = (um_merging){.b = b, .v = v, .last = -1, .err = err};
    m->batch = UM_NEW_ARRAY(um_merge, BATCH);
    pair_init(b, (size_t)v->n);
}

void um_merging_end(um_merging *m) {
    for (size_t i = 0; i < BATCH; i++) {
        um_buf_free(&m->batch[i].scratch[0]);
        um_buf_free(&m->batch[i].scratch[1]);
    }
    um_free(m->batch);
    um_buf_free(&m->joined);
}

/* ---- Lists of merges --------------------------------------------------------------------------------------------- */

static bool is_joined(um_str s, um_str left, um_str right) {
    return s.p && s.n == left.n + right.n && memcmp(s.p, left.p, left.n) == 0 &&
           memcmp(s.p + left.n, right.p, right.n) == 0;
}

/* Returns the id of left + right, or -1. In nearly all files the results of consecutive merges have consecutive ids,
 * and sometimes several merges have the same result. The last id and the next one are therefore tried first. */
static int32_t find_result(um_merging *m, um_str left, um_str right) {
    size_t skip = UM_MIN(m->b->prefix.n, right.n);
    right = (um_str){right.p + skip, right.n - skip};
    for (int32_t id = UM_MAX(m->last, 0); id < m->v->size && id <= m->last + 1; id++)
        if (is_joined(m->v->token[id], left, right)) return id;
    um_buf_clear(&m->joined);
    um_buf_append(&m->joined, left.p, left.n);
    um_buf_append(&m->joined, right.p, right.n);
    return um_vocab_find(m->v, (um_str){m->joined.data, m->joined.len});
}

/* Formats the position of an entry for messages: "file: model.merges[7]" or "file:8". */
static const char *place(const um_merging *m, size_t at, char out[512]) {
    snprintf(out, 512, m->is_lines ? "%.400s:%zu" : "%.400s: model.merges[%zu]", m->path, at);
    return out;
}

static um_status add(um_merging *m, const um_merge *e) {
    char where[512];
    um_str left = e->left, right = e->right;
    if (m->rank >= UM_TOK_MERGES_MAX)
        return um_fail(m->err, UM_ELIMIT, "%s: a model may have at most %d merges", place(m, e->at, where),
                       UM_TOK_MERGES_MAX);
    int32_t l = um_vocab_find(m->v, left), r = um_vocab_find(m->v, right), id = find_result(m, left, right);
    if (left.n == 0 || right.n == 0)
        return um_fail(m->err, UM_EPARSE, "%s: a part of the merge is empty", place(m, e->at, where));
    if (l < 0 || r < 0 || id < 0)
        return um_fail(m->err, UM_EPARSE, "%s: %s of \"%.*s\" + \"%.*s\" is not in the vocabulary",
                       place(m, e->at, where), l < 0 ? "the left part" : (r < 0 ? "the right part" : "the result"),
                       (int)UM_MIN(left.n, 40), left.p, (int)UM_MIN(right.n, 40), right.p);
    put(m->b, l, r, m->rank++, id);
    m->last = id;
    return UM_OK;
}

/* Looks up and stores the merges of the batch. A vocabulary is larger than the processor's cache, and each lookup reads
 * it at several dependent places. Prefetching for the whole batch overlaps the cache misses. */
static um_status add_batch(um_merging *m) {
    um_status st = UM_OK;
    for (size_t i = 0; i < m->n_batch; i++) {
        um_vocab_expect(m->v, m->batch[i].left);
        um_vocab_expect(m->v, m->batch[i].right);
    }
    for (size_t i = 0; i < m->n_batch; i++) {
        um_vocab_expect_token(m->v, m->batch[i].left);
        um_vocab_expect_token(m->v, m->batch[i].right);
    }
    for (size_t i = 0; i < m->n_batch && !st; i++) st = add(m, &m->batch[i]);
    m->n_batch = 0;
    return st;
}

/* Splits "a b" at its space. Returns false if there is not exactly one space. */
static bool split_entry(um_str s, um_str *left, um_str *right) {
    const char *space = s.n ? (const char *)memchr(s.p, ' ', s.n) : NULL;
    if (!space) return false;
    *left = (um_str){s.p, (size_t)(space - s.p)};
    *right = (um_str){space + 1, s.n - left->n - 1};
    return !memchr(right->p, ' ', right->n);
}

static bool is_version(um_str s) { return s.n >= 8 && memcmp(s.p, "#version", 8) == 0; }

/* Reads one entry of the list: "a b" or ["a", "b"]. Sets *skip for a "#version" entry, which is no merge. */
static um_status read_entry(um_merging *m, um_jread *r, um_merge *e, bool *skip) {
    char where[512];
    um_str both;
    um_status st;
    *skip = false;
    if (um_jread_take(r, '[')) {
        st = um_jread_string(r, &e->scratch[0], &e->left);
        if (!st && !um_jread_take(r, ',')) st = um_jread_fail(r, r->at, "',' and the right part of a merge");
        if (!st) st = um_jread_string(r, &e->scratch[1], &e->right);
        if (!st && !um_jread_take(r, ']')) st = um_jread_fail(r, r->at, "']' behind the two parts of a merge");
        return st;
    }
    if (um_jread_peek(r) != '"') return um_jread_fail(r, r->at, "\"a b\" or [\"a\", \"b\"] in model.merges");
    st = um_jread_string(r, &e->scratch[0], &both);
    *skip = !st && is_version(both);
    if (st || *skip || split_entry(both, &e->left, &e->right)) return st;
    return um_fail(m->err, UM_EPARSE, "%s must be \"a b\" or [\"a\", \"b\"]", place(m, e->at, where));
}

um_status um_merging_read_json(um_merging *m, um_jread *r) {
    um_status st = UM_OK;
    bool skip;
    if (!um_jread_take(r, '[')) return um_jread_fail(r, r->at, "a list of merges");
    bool more = um_jread_peek(r) != ']';
    m->path = r->path;
    for (size_t at = 0; more && !st; at++) {
        m->batch[m->n_batch].at = at;
        st = read_entry(m, r, &m->batch[m->n_batch], &skip);
        m->n_batch += !st && !skip;
        if (m->n_batch == BATCH) st = add_batch(m);
        more = !st && um_jread_take(r, ',');
    }
    if (!st && !um_jread_take(r, ']')) st = um_jread_fail(r, r->at, "',' or ']' in model.merges");
    return st ? st : add_batch(m);
}

um_status um_merging_read_lines(um_merging *m, um_str text, const char *path) {
    m->path = path;
    m->is_lines = true;
    um_status st = UM_OK;
    for (size_t at = 1; text.n && !st; at++) {
        const char *end = (const char *)memchr(text.p, '\n', text.n);
        um_str line = {text.p, end ? (size_t)(end - text.p) : text.n};
        um_merge *e = &m->batch[m->n_batch];
        char where[512];
        text = end ? (um_str){end + 1, text.n - line.n - 1} : (um_str){text.p, 0};
        if (line.n && line.p[line.n - 1] == '\r') line.n--;
        if (line.n == 0 || is_version(line)) continue;
        e->at = at;
        if (!split_entry(line, &e->left, &e->right))
            return um_fail(m->err, UM_EPARSE, "%s: a merge must be two tokens with a space between, not \"%.*s\"",
                           place(m, at, where), (int)UM_MIN(line.n, 60), line.p);
        if (++m->n_batch == BATCH) st = add_batch(m);
    }
    return st ? st : add_batch(m);
}

/* ---- Implied merges ---------------------------------------------------------------------------------------------- */

/* A token and two tokens that form it when joined. */
typedef struct um_split {
    float score; /* of the token */
    uint32_t left_len, right_len;
    int32_t id, left, right;
} split;

typedef struct splits {
    split *list;
    size_t n, cap;
} splits;

/* Orders splits: highest score first, then longest left part, then longest right part, then lowest ids. */
static int by_priority(const void *x, const void *y) {
    const split *a = (const split *)x, *b = (const split *)y;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    if (a->left_len != b->left_len) return a->left_len > b->left_len ? -1 : 1;
    if (a->right_len != b->right_len) return a->right_len > b->right_len ? -1 : 1;
    if (a->id != b->id) return a->id < b->id ? -1 : 1;
    if (a->left != b->left) return a->left < b->left ? -1 : 1;
    return (a->right > b->right) - (a->right < b->right);
}

static um_status collect(splits *s, const um_merging *m, int32_t id, float score) {
    um_str t = m->v->token[id];
    if (t.n > SPLIT_MAX)
        return um_fail(m->err, UM_ELIMIT,
                       "%s: token %d has %zu bytes, at most %d are allowed where no file lists the merges", m->path, id,
                       t.n, SPLIT_MAX);
    uint32_t chars = 0, before = 0;
    int len;
    for (size_t i = 0; i < t.n; i += (size_t)len, chars++) um_cp_at(t.p + i, t.n - i, &len);
    for (size_t i = 0; i < t.n; i += (size_t)len, before++) {
        um_cp_at(t.p + i, t.n - i, &len);
        if (i == 0) continue;
        int32_t left = um_vocab_find(m->v, (um_str){t.p, i});
        int32_t right = left < 0 ? -1 : um_vocab_find(m->v, (um_str){t.p + i, t.n - i});
        if (right < 0) continue;
        if (s->n == s->cap) {
            s->cap = s->cap ? s->cap * 2 : 4096;
            s->list = (split *)um_realloc(s->list, um_mul(s->cap, sizeof *s->list));
        }
        s->list[s->n++] = (split){score, before, chars - before, id, left, right};
    }
    return UM_OK;
}

um_status um_merging_imply(um_merging *m, const float *score, const char *path) {
    splits s = {0};
    um_status st = UM_OK;
    m->path = path;
    for (int32_t id = 0; id < m->v->size && s.n <= UM_TOK_MERGES_MAX && !st; id++)
        if (m->v->token[id].p && !(score && isnan(score[id]))) st = collect(&s, m, id, score ? score[id] : 0);
    if (!st && s.n > UM_TOK_MERGES_MAX)
        st = um_fail(m->err, UM_ELIMIT, "%s: its tokens imply more than %d merges", path, UM_TOK_MERGES_MAX);
    if (!st && score && s.n) qsort(s.list, s.n, sizeof *s.list, by_priority);
    for (size_t i = 0; i < s.n && !st; i++)
        put(m->b, s.list[i].left, s.list[i].right, score ? (uint32_t)i : (uint32_t)s.list[i].id, s.list[i].id);
    um_free(s.list);
    return st;
}
