/* Dictionaries of templates. Entries keep their order of insertion. A large dictionary has a hash index. */
#include "text/template.h"
#include "text/tok.h"

#define INDEX_FROM 9 /* capacity from which hashing is faster than a linear search */

/* Hashes a key. 1, 1.0 and true are the same key, so numbers are hashed by value. */
uint64_t um_val_hash(um_render *r, um_val k) {
    double f;
    uint64_t h;
    switch (k.kind) {
    case UM_V_STR:
    case UM_V_BIGINT: um_render_work(r, k); return um_hash(k.s);
    case UM_V_BOOL:
    case UM_V_INT:
    case UM_V_FLOAT:
        f = um_as_double(k) + 0.0; /* -0.0 equals 0 */
        memcpy(&h, &f, sizeof h);
        return (h ^ (h >> 32)) * 0x9E3779B97F4A7C15u;
    case UM_V_NONE: return 7;
    case UM_V_TUPLE:
        h = 11;
        for (size_t i = 0; i < k.list->n; i++) {
            um_render_step(r);
            if (++r->depth > UM_TMPL_DEPTH_MAX) um_render_fail(r, "a key is nested too deeply");
            h = (h ^ um_val_hash(r, k.list->v[i])) * 0x9E3779B97F4A7C15u;
            r->depth--;
        }
        return h;
    default: um_render_fail(r, "%s can't be a key", um_kind_name(k.kind));
    }
}

um_val um_dict_new(um_render *r) {
    um_val v = um_val_of(UM_V_DICT);
    v.dict = (um_dict *)um_render_alloc(r, sizeof *v.dict);
    return v;
}

static size_t find(um_render *r, const um_dict *d, um_val key) {
    if (!d->slot) {
        for (size_t i = 0; i < d->n; i++)
            if (um_equal(r, d->key[i], key)) return i;
        return d->n;
    }
    for (size_t s = um_val_hash(r, key) & (d->slots - 1); d->slot[s]; s = (s + 1) & (d->slots - 1))
        if (um_equal(r, d->key[d->slot[s] - 1], key)) return d->slot[s] - 1;
    return d->n;
}

static void index_add(um_render *r, um_dict *d, size_t i) {
    size_t s = um_val_hash(r, d->key[i]) & (d->slots - 1);
    while (d->slot[s]) s = (s + 1) & (d->slots - 1);
    d->slot[s] = (uint32_t)i + 1;
}

static void grow(um_render *r, um_dict *d) {
    size_t cap = d->cap ? d->cap * 2 : 8;
    um_val *key = (um_val *)um_render_alloc(r, 2 * cap * sizeof *key), *val = key + cap;
    if (d->n) {
        memcpy(key, d->key, d->n * sizeof *key);
        memcpy(val, d->val, d->n * sizeof *val);
    }
    d->key = key;
    d->val = val;
    d->cap = cap;
    if (cap < INDEX_FROM) return;
    d->slots = cap * 2;
    d->slot = (uint32_t *)um_render_alloc(r, d->slots * sizeof *d->slot);
    for (size_t i = 0; i < d->n; i++) index_add(r, d, i);
}

void um_dict_set(um_render *r, um_dict *d, um_val key, um_val val) {
    um_val_hash(r, key); /* fails if the kind can't be a key */
    size_t i = find(r, d, key);
    if (i < d->n) {
        d->val[i] = val;
        return;
    }
    if (d->n == d->cap) grow(r, d);
    d->key[d->n] = key;
    d->val[d->n++] = val;
    if (d->slot) index_add(r, d, d->n - 1);
}

um_val *um_dict_get(um_render *r, const um_dict *d, um_val key) {
    um_val_hash(r, key);
    size_t i = find(r, d, key);
    return i < d->n ? &d->val[i] : NULL;
}

um_val *um_dict_get_str(um_render *r, const um_dict *d, um_str key) { return um_dict_get(r, d, um_val_str(key)); }
