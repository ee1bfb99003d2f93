/* Token strings and ids: an array by id and an open-addressing table by string. */
#include "text/tok.h"

/* Eight bytes a round; only the distribution matters, the value is never stored in a file. */
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
    return h ^ (h >> 29);
}

int32_t um_vocab_find(const um_vocab *v, um_str token) {
    if (!v->slot) return -1;
    uint64_t h = um_hash(token);
    uint32_t tag = (uint32_t)(h >> 32);
    for (uint32_t i = (uint32_t)h & v->mask; v->slot[i] >= 0; i = (i + 1) & v->mask)
        if (v->slot_tag[i] == tag && um_str_eq(v->token[v->slot[i]], token)) return v->slot[i];
    return -1;
}

static void insert(um_vocab *v, int32_t id) {
    uint64_t h = um_hash(v->token[id]);
    uint32_t i = (uint32_t)h & v->mask;
    while (v->slot[i] >= 0) i = (i + 1) & v->mask;
    v->slot[i] = id;
    v->slot_tag[i] = (uint32_t)(h >> 32);
}

static um_status check_entry(const char *key, size_t len, const json_t *value, const char *where, um_err *err) {
    if (len > UM_TOK_BYTES_MAX)
        return um_fail(err, UM_ELIMIT, "%s: token of %zu bytes in the vocabulary, at most %d are allowed", where, len,
                       UM_TOK_BYTES_MAX);
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id >= UM_TOK_ID_MAX)
        return um_fail(err, UM_EPARSE, "%s: vocabulary: id of \"%.60s\" must be an integer from 0 to %d", where, key,
                       UM_TOK_ID_MAX - 1);
    return UM_OK;
}

/* Sizes the arrays: ids may have holes, so the highest id counts. */
static um_status measure(um_vocab *v, const json_t *object, const char *where, um_err *err) {
    json_t *o = (json_t *)object; /* jansson's iterators take no const */
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
        const json_t *value = json_object_iter_value(it);
        um_status st = check_entry(json_object_iter_key(it), json_object_iter_key_len(it), value, where, err);
        if (st) return st;
        v->size = (int32_t)UM_MAX(v->size, json_integer_value(value) + 1);
        v->n++;
    }
    return UM_OK;
}

um_status um_vocab_load(um_vocab *v, const json_t *object, um_arena *a, const char *where, um_err *err) {
    memset(v, 0, sizeof *v);
    if (!json_is_object(object)) return um_fail(err, UM_EPARSE, "%s: model.vocab must be an object token -> id", where);
    um_status st = measure(v, object, where, err);
    if (st) return st;
    uint32_t slots = 64;
    while (slots < 2 * (uint32_t)v->n) slots *= 2;
    v->mask = slots - 1;
    v->token = UM_NEW_ARRAY(um_str, (size_t)v->size + 1);
    v->slot_tag = UM_NEW_ARRAY(uint32_t, slots);
    v->slot = (int32_t *)um_alloc(um_mul(slots, sizeof(int32_t)));
    memset(v->slot, 0xFF, slots * sizeof(int32_t));
    json_t *o = (json_t *)object;
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
        int32_t id = (int32_t)json_integer_value(json_object_iter_value(it));
        size_t len = json_object_iter_key_len(it);
        if (v->token[id].p)
            return um_fail(err, UM_EPARSE, "%s: tokens \"%.60s\" and \"%.60s\" share the id %d", where, v->token[id].p,
                           json_object_iter_key(it), id);
        v->token[id] = (um_str){um_arena_strndup(a, json_object_iter_key(it), len), len};
        insert(v, id);
    }
    return UM_OK;
}

void um_vocab_free(um_vocab *v) {
    um_free(v->token);
    um_free(v->slot);
    um_free(v->slot_tag);
}
