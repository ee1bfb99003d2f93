/* Token strings and ids: an array by id and an open-addressing table by string. */
#include "text/tok.h"

#define BLOCK_BYTES ((size_t)256 << 10) /* strings are stored back to back in blocks of this size */

/* Processes eight bytes per round. The value may differ between machines; it is never stored in a file. */
uint64_t um_hash(um_str s) {
    const uint64_t k = 0x9E3779B97F4A7C15u;
    uint64_t h = s.n * k;
    size_t i = 0;
    for (; i + 8 <= s.n; i += 8) {
        uint64_t w;
        memcpy(&w, s.p + i, 8);
        h = (h ^ w) * k;
        h ^= h >> 32;
    }
    uint64_t w = 0;
    if (i < s.n) memcpy(&w, s.p + i, s.n - i);
    h = (h ^ w) * k;
    h = (h ^ (h >> 32)) * k;
    return h ^ (h >> 29);
}

typedef struct um_vocab_slot {
    uint32_t tag; /* upper bits of the hash */
    int32_t id;   /* -1: unused */
} um_vocab_slot;

/* Returns the slot of a token, or NULL. */
static um_vocab_slot *find_slot(const um_vocab *v, um_str token) {
    uint64_t h = um_hash(token);
    uint32_t tag = (uint32_t)(h >> 32);
    for (uint32_t i = (uint32_t)h & v->mask; v->slot[i].id >= 0; i = (i + 1) & v->mask)
        if (v->slot[i].tag == tag && um_str_eq(v->token[v->slot[i].id], token)) return &v->slot[i];
    return NULL;
}

int32_t um_vocab_find(const um_vocab *v, um_str token) {
    const um_vocab_slot *slot = v->slot ? find_slot(v, token) : NULL;
    return slot ? slot->id : -1;
}

void um_vocab_expect(const um_vocab *v, um_str token) {
    __builtin_prefetch(&v->slot[(uint32_t)um_hash(token) & v->mask]);
}

void um_vocab_expect_token(const um_vocab *v, um_str token) {
    int32_t id = v->slot[(uint32_t)um_hash(token) & v->mask].id;
    if (id >= 0) __builtin_prefetch(&v->token[id]);
}

/* ---- Building ---------------------------------------------------------------------------------------------------- */

static void insert(um_vocab *v, uint64_t h, int32_t id) {
    uint32_t i = (uint32_t)h & v->mask;
    while (v->slot[i].id >= 0) i = (i + 1) & v->mask;
    v->slot[i] = (um_vocab_slot){(uint32_t)(h >> 32), id};
}

/* Allocates a table that n tokens fill to at most three quarters. A small table stays in the processor's cache. */
static void make_slots(um_vocab *v, size_t n) {
    size_t slots = 64;
    while (3 * slots < 4 * n) slots *= 2;
    um_free(v->slot);
    v->mask = (uint32_t)(slots - 1);
    v->slot = (um_vocab_slot *)um_alloc(um_mul(slots, sizeof *v->slot));
    memset(v->slot, 0xFF, slots * sizeof *v->slot);
    for (int32_t id = 0; id < v->size; id++)
        if (v->token[id].p) insert(v, um_hash(v->token[id]), id);
}

static void make_room(um_vocab *v, int32_t id) {
    if ((size_t)id >= v->cap) {
        size_t cap = UM_MAX((size_t)id + 64, v->cap * 2);
        v->token = (um_str *)um_realloc(v->token, um_mul(cap, sizeof *v->token));
        memset(v->token + v->cap, 0, (cap - v->cap) * sizeof *v->token);
        v->cap = cap;
    }
    if (4 * ((size_t)v->n + 1) > 3 * ((size_t)v->mask + 1)) make_slots(v, 2 * (size_t)v->n);
}

static char *store(um_vocab *v, um_str text) {
    if (text.n + 1 > v->n_rest) {
        v->n_rest = UM_MAX(BLOCK_BYTES, text.n + 1);
        v->rest = (char *)um_arena_alloc(v->arena, v->n_rest);
    }
    char *p = v->rest;
    if (text.n) memcpy(p, text.p, text.n);
    v->rest += text.n + 1; /* the arena's memory is zeroed, so strings end with NUL */
    v->n_rest -= text.n + 1;
    return p;
}

void um_vocab_init(um_vocab *v, um_arena *a) {
    *v = (um_vocab){.arena = a};
    make_slots(v, 0);
}

um_status um_vocab_add(um_vocab *v, um_str text, int64_t id, const char *where, um_err *err) {
    if (text.n > UM_TOK_BYTES_MAX)
        return um_fail(err, UM_ELIMIT, "%s: token of %zu bytes in the vocabulary, at most %d are allowed", where,
                       text.n, UM_TOK_BYTES_MAX);
    if (id < 0 || id >= UM_TOK_ID_MAX)
        return um_fail(err, UM_EPARSE, "%s: vocabulary: id of \"%.*s\" must be an integer from 0 to %d, not %lld",
                       where, (int)UM_MIN(text.n, 60), text.p, UM_TOK_ID_MAX - 1, (long long)id);
    make_room(v, (int32_t)id);
    um_vocab_slot *slot = find_slot(v, text);
    if (slot && slot->id == id) return UM_OK;
    if (v->token[id].p)
        return um_fail(err, UM_EPARSE, "%s: tokens \"%.60s\" and \"%.*s\" share the id %d", where, v->token[id].p,
                       (int)UM_MIN(text.n, 60), text.p, (int)id);
    if (slot) { /* the last of duplicate keys counts, as usual in JSON */
        v->token[id] = v->token[slot->id];
        v->token[slot->id] = (um_str){NULL, 0};
        slot->id = (int32_t)id;
    } else {
        v->token[id] = (um_str){store(v, text), text.n};
        v->n++;
        insert(v, um_hash(text), (int32_t)id);
    }
    v->size = (int32_t)UM_MAX(v->size, id + 1);
    return UM_OK;
}

um_status um_vocab_read(um_vocab *v, um_jread *r) {
    um_buf scratch = {0};
    um_status st = UM_OK;
    if (!um_jread_take(r, '{')) return um_jread_fail(r, r->at, "an object token -> id");
    bool more = um_jread_peek(r) != '}';
    while (more && !st) {
        um_str text;
        int64_t id = 0;
        st = um_jread_string(r, &scratch, &text);
        if (!st && !um_jread_take(r, ':')) st = um_jread_fail(r, r->at, "':' behind a token");
        if (!st) st = um_jread_int(r, &id);
        if (!st) st = um_vocab_add(v, text, id, r->path, r->err);
        more = !st && um_jread_take(r, ',');
    }
    if (!st && !um_jread_take(r, '}')) st = um_jread_fail(r, r->at, "',' or '}' in the vocabulary");
    while (v->size > 0 && !v->token[v->size - 1].p) v->size--;
    um_buf_free(&scratch);
    return st;
}

void um_vocab_free(um_vocab *v) {
    um_free(v->token);
    um_free(v->slot);
}
