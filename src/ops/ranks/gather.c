/* How ranks read each other's results: in one process where they lie, else through the link. */
#include "ops/ranks.h"
#include "ops/ranks/link.h"

bool um_ranks_share_memory(const um_rank *r) { return !um_ranks_link(r->group); }

bool um_ranks_is_direct(const um_rank *r) {
    const um_link *l = um_ranks_link(r->group);
    return !l || um_link_is_direct(l);
}

um_status um_ranks_mirror(const um_rank *r, int slot, size_t bytes, um_err *err) {
    um_link *l = um_ranks_link(r->group);
    return l ? um_link_mirror(l, slot, bytes, err) : UM_OK;
}

/* Ends the pass after a failure of the link. */
static bool give_up(const um_rank *r, const um_err *why) {
    const um_rank failed = {um_link_failed_rank(um_ranks_link(r->group)), r->n, r->group};
    um_ranks_break(&failed, why->msg);
    return false;
}

static bool gather(const um_rank *r, int slot, size_t first, size_t n, bool all) {
    um_link *l = um_ranks_link(r->group);
    um_err err;
    if (!l) return um_ranks_meet(r);
    if (um_ranks_is_broken(r->group, NULL)) return false;
    const float *own = (const float *)um_ranks_shared(r, slot, r->index) + first;
    return um_link_gather(l, slot, own, n, all, &err) ? give_up(r, &err) : true;
}

bool um_ranks_gather(const um_rank *r, int slot, size_t first, size_t n, bool all) {
    const double start = um_now();
    const bool is_whole = gather(r, slot, first, n, all);
    um_ranks_add_time(r, 0, um_now() - start);
    return is_whole;
}

const float *um_ranks_gathered(const um_rank *r, int slot, int32_t rank, size_t first) {
    um_link *l = um_ranks_link(r->group);
    if (!l || rank == r->index) return (const float *)um_ranks_shared(r, slot, rank) + first;
    return um_link_gathered(l, slot, rank);
}

bool um_ranks_spread(const um_rank *r, float *p, size_t n) {
    um_link *l = um_ranks_link(r->group);
    um_err err;
    assert(l);
    if (um_ranks_is_broken(r->group, NULL)) return false;
    const double start = um_now();
    um_status s = um_link_spread(l, p, n, &err);
    um_ranks_add_time(r, 0, um_now() - start);
    return s ? give_up(r, &err) : true;
}
