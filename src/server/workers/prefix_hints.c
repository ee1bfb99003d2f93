/* Prefix hints: a set-associative table of hashes. Each group drops its oldest entry. */
#include "server/workers/prefix_hints.h"

#define GROUP_SIZE 8
#define N_GROUPS   (UM_PREFIX_HINTS_MAX / GROUP_SIZE)

typedef struct um_hint {
    uint64_t hash;
    uint64_t used; /* value of the clock when the entry was last added; 0: the entry is empty */
} um_hint;

struct um_prefix_hints {
    um_hint entry[N_GROUPS][GROUP_SIZE];
    uint64_t clock;
};

_Static_assert((N_GROUPS & (N_GROUPS - 1)) == 0, "the low bits of a hash choose the group");

um_prefix_hints *um_prefix_hints_new(void) { return UM_NEW(um_prefix_hints); }

void um_prefix_hints_free(um_prefix_hints *r) { um_free(r); }

void um_prefix_hints_clear(um_prefix_hints *r) { memset(r, 0, sizeof(*r)); }

void um_prefix_hints_hash(uint64_t key, const um_msg_generate *g, int32_t page_size, uint64_t *hash) {
    uint64_t h = um_rng_u64(key, g->cache_salt);
    for (size_t i = 0; i < g->adapter.n; i++) h = um_rng_u64(h, (unsigned char)g->adapter.p[i]);
    size_t page = (size_t)page_size;
    for (size_t i = 0; i < g->n_ids / page * page; i++) {
        h = um_rng_u64(h, (uint32_t)g->ids[i]);
        hash[i / page] = h; /* overwritten until the last token of the page */
    }
}

/* Returns the entry of a hash, or the entry of its group to replace: an empty one or the oldest. */
static um_hint *entry_of(const um_prefix_hints *r, uint64_t hash) {
    const um_hint *group = r->entry[hash & (N_GROUPS - 1)], *oldest = group;
    for (const um_hint *m = group; m < group + GROUP_SIZE; m++) {
        if (m->used && m->hash == hash) return (um_hint *)m;
        if (m->used < oldest->used) oldest = m;
    }
    return (um_hint *)oldest;
}

size_t um_prefix_hints_match(const um_prefix_hints *r, const uint64_t *hash, size_t n) {
    size_t i = 0;
    while (i < n) {
        const um_hint *m = entry_of(r, hash[i]);
        if (!m->used || m->hash != hash[i]) break;
        i++;
    }
    return i;
}

/* Adds the last page first, so that it is the oldest and is dropped first. A prefix without its first page matches
 * nothing. */
void um_prefix_hints_add(um_prefix_hints *r, const uint64_t *hash, size_t n) {
    for (size_t i = n; i-- > 0;) *entry_of(r, hash[i]) = (um_hint){.hash = hash[i], .used = ++r->clock};
}
