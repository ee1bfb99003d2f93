/* Recent beginnings: a set of numbers in small groups, each of which drops its oldest. */
#include "server/backend/recent.h"

#define GROUP_SIZE 8
#define N_GROUPS   (UM_RECENT_MAX / GROUP_SIZE)

typedef struct um_mark {
    uint64_t hash;
    uint64_t used; /* when it was added last; 0: empty */
} um_mark;

struct um_recent {
    um_mark mark[N_GROUPS][GROUP_SIZE];
    uint64_t clock;
};

_Static_assert((N_GROUPS & (N_GROUPS - 1)) == 0, "a group is chosen by the low bits of a number");

um_recent *um_recent_new(void) { return UM_NEW(um_recent); }

void um_recent_free(um_recent *r) { um_free(r); }

void um_recent_clear(um_recent *r) { memset(r, 0, sizeof(*r)); }

void um_recent_hash(uint64_t key, const um_msg_generate *g, int32_t page_size, uint64_t *hash) {
    uint64_t h = um_rng_u64(key, g->cache_salt);
    for (size_t i = 0; i < g->adapter.n; i++) h = um_rng_u64(h, (unsigned char)g->adapter.p[i]);
    size_t page = (size_t)page_size;
    for (size_t i = 0; i < g->n_ids / page * page; i++) {
        h = um_rng_u64(h, (uint32_t)g->ids[i]);
        hash[i / page] = h; /* that of the page's last token stays */
    }
}

/* The mark of a number, or the oldest of its group. */
static um_mark *mark_of(const um_recent *r, uint64_t hash) {
    const um_mark *group = r->mark[hash & (N_GROUPS - 1)], *oldest = group;
    for (const um_mark *m = group; m < group + GROUP_SIZE; m++) {
        if (m->used && m->hash == hash) return (um_mark *)m;
        if (m->used < oldest->used) oldest = m;
    }
    return (um_mark *)oldest;
}

size_t um_recent_match(const um_recent *r, const uint64_t *hash, size_t n) {
    size_t i = 0;
    while (i < n) {
        const um_mark *m = mark_of(r, hash[i]);
        if (!m->used || m->hash != hash[i]) break;
        i++;
    }
    return i;
}

/* From the end: what goes first must be ends, since a beginning whose first page was dropped is lost as a whole. */
void um_recent_add(um_recent *r, const uint64_t *hash, size_t n) {
    for (size_t i = n; i-- > 0;) *mark_of(r, hash[i]) = (um_mark){.hash = hash[i], .used = ++r->clock};
}
