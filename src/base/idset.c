/* A set of ids: a hash table with open addressing, at most three quarters full. */
#include "base/base.h"

/* Returns the slot that holds key, or the free slot where key would be stored. */
static um_idset_entry *probe(const um_idset *s, const char *key) {
    size_t i = um_key_hash(um_str_of(key)) & (s->cap - 1);
    while (s->slot[i].key && !um_streq(s->slot[i].key, key)) i = (i + 1) & (s->cap - 1);
    return &s->slot[i];
}

um_idset_entry *um_idset_find(const um_idset *s, const char *key) {
    um_idset_entry *e = s->cap ? probe(s, key) : NULL;
    return e && e->key ? e : NULL;
}

static void grow(um_idset *s) {
    um_idset old = *s;
    s->cap = old.cap ? 2 * old.cap : 256;
    s->slot = UM_NEW_ARRAY(um_idset_entry, s->cap);
    for (size_t i = 0; i < old.cap; i++)
        if (old.slot[i].key) *probe(s, old.slot[i].key) = old.slot[i];
    um_free(old.slot);
}

um_idset_entry *um_idset_add(um_idset *s, const char *key, int64_t line) {
    if (4 * s->n >= 3 * s->cap) grow(s);
    um_idset_entry *e = probe(s, key);
    assert(!e->key);
    *e = (um_idset_entry){.key = um_arena_strndup(&s->keys, key, strlen(key)), .line = line};
    s->n++;
    return e;
}

void um_idset_free(um_idset *s) {
    um_arena_free(&s->keys);
    um_free(s->slot);
    *s = (um_idset){0};
}
