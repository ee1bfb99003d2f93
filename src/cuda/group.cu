/* The place of an engine's passes in a group of ranks: memory that the other GPUs read, and the end of a pass when
 * another rank fails. Ranks that are threads of one process read each other's memory directly. Ranks in several
 * processes copy their results to each other (comm.cuh). */
#include "cuda/pass.cuh"

enum { SHARED_FORWARD }; /* the slot in which a rank publishes its um_forward */

const um_forward *um_cu_rank(const um_forward *f, int32_t rank) {
    return (const um_forward *)um_ranks_shared(f->group.at, SHARED_FORWARD, rank);
}

um_status um_cu_reach(um_device *d, const um_device *other, bool *can, um_err *err) {
    int reaches = 0;
    um_status s = um_cu_use(d, err);
    if (!s)
        s = um_cu_check(cudaDeviceCanAccessPeer(&reaches, d->number, other->number), "cudaDeviceCanAccessPeer", err);
    *can = !s && reaches;
    if (!*can) return s;
    cudaError_t e = cudaDeviceEnablePeerAccess(other->number, 0);
    if (e == cudaErrorPeerAccessAlreadyEnabled) {
        cudaGetLastError(); /* clears the error */
        return UM_OK;
    }
    return um_cu_check(e, "cudaDeviceEnablePeerAccess", err);
}

um_status um_cu_group_join(um_forward *f, um_err *err) {
    um_cu_group *g = &f->group;
    g->at = f->net->rank;
    g->comm = f->d->comm;
    if (!g->at || g->comm) return UM_OK;
    um_status s =
        um_cu_check(cudaHostAlloc((void **)&g->stop, sizeof *g->stop, cudaHostAllocPortable), "pinned flag", err);
    if (s) return s;
    *g->stop = 0;
    for (int i = 0; i < 2 && !s; i++)
        s = um_cu_check(
            cudaMemsetAsync(g->inbox[i], UM_CU_NOT_THERE, (size_t)g->at->n * UM_CU_PUSH_BYTES, f->d->stream),
            "inboxes of ranks", err);
    if (s) return s;
    um_ranks_publish(g->at, SHARED_FORWARD, f);
    return UM_OK;
}

void um_cu_group_stop(um_forward *f) {
    const um_rank *at = f->group.at;
    if (f->group.comm) {
        um_cu_comm_abort(f->group.comm);
        return;
    }
    for (int32_t r = 0; at && r < at->n; r++) *(volatile int32_t *)um_cu_rank(f, r)->group.stop = 1;
}

/* Ranks are freed from the last one on, so those before this one are there. */
void um_cu_group_leave(um_forward *f) {
    const um_rank *at = f->group.at;
    if (f->group.comm && um_ranks_is_broken(at->group, NULL)) um_cu_comm_abort(f->group.comm);
    if (!f->group.stop) return;
    for (int32_t r = 0; r <= at->index; r++) {
        const um_forward *one = r == at->index ? f : um_cu_rank(f, r);
        *one->group.stop = 1;
        cudaSetDevice(one->d->number);
        cudaStreamSynchronize(one->d->stream);
    }
    cudaSetDevice(f->d->number);
}

um_cu_meeting um_cu_meeting_of(const um_forward *f) {
    const um_cu_group *g = &f->group;
    um_cu_meeting m = {g->at->index, g->at->n, g->count, {}, g->stop, g->comm};
    for (int32_t r = 0; r < m.n && !g->comm; r++) m.flag[r] = um_cu_rank(f, r)->group.flag;
    return m;
}

/* Returns the distance of the partial results of two ranks in the memory for exchanges. */
static size_t distance(size_t n, um_dtype type) { return UM_CEIL_DIV(n * um_dtype_size(type), (size_t)16) * 16; }

size_t um_cu_exchange_bytes(const um_network *n, int32_t n_tokens, int32_t n_rows, bool blends) {
    const size_t part = distance(um_mul((size_t)n_tokens, (size_t)n->hidden), UM_F32),
                 blend = blends ? um_cu_blend_part_bytes(n_rows, n->hidden) : 0;
    return UM_MAX(um_mul((size_t)n->rank->n, UM_MAX(part, blend)), um_cu_head_exchange(n_rows, n->vocab));
}

void *um_cu_own_part(const um_forward *f, int turn, size_t n, um_dtype type) {
    const um_cu_group *g = &f->group;
    return g->comm ? (char *)g->part[0] + (size_t)g->at->index * distance(n, type) : g->part[turn];
}

um_cu_partials um_cu_partials_of(const um_forward *f, int turn, size_t n, um_dtype type) {
    um_cu_partials p = {um_cu_meeting_of(f), {}, type, !f->group.comm && um_cu_pushes(n, type), {}};
    for (int32_t r = 0; r < p.at.n && p.at.comm; r++)
        p.part[r] = (const char *)f->group.part[0] + (size_t)r * distance(n, type);
    for (int32_t r = 0; r < p.at.n && !p.at.comm; r++) {
        p.part[r] = um_cu_rank(f, r)->group.part[turn];
        p.inbox[r] = um_cu_rank(f, r)->group.inbox[turn];
    }
    return p;
}

/* Blames a rank that has not started the pass, or else this one. */
static void give_up(const um_forward *f) {
    um_rank late = *f->group.at;
    char text[96];
    for (int32_t r = 0; r < late.n; r++)
        if (__atomic_load_n(&um_cu_rank(f, r)->n_submitted, __ATOMIC_RELAXED) < f->n_submitted) late.index = r;
    snprintf(text, sizeof text, "no answer for %g s (--distributed-timeout-seconds)", um_ranks_timeout(late.group));
    um_ranks_break(&late, text);
}

um_status um_cu_group_check(um_forward *f, double since, um_err *err) {
    const um_cu_group *g = &f->group;
    if (!g->at) return UM_OK;
    if (!g->comm && um_now() - since > um_ranks_timeout(g->at->group)) give_up(f);
    if (!um_ranks_is_broken(g->at->group, err)) return g->comm ? um_cu_comm_poll(g->comm, err) : UM_OK;
    um_cu_group_stop(f);
    return UM_EDEVICE;
}
