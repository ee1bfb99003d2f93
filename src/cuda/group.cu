/* The place of an engine's passes in a group of ranks: memory that the other GPUs read, and the end of a pass when
 * another rank fails. All ranks are threads of one process, and the GPUs read each other's memory directly. */
#include "cuda/pass.cuh"

enum { SHARED_FORWARD }; /* what a rank publishes: its um_forward */

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
    if (!g->at) return UM_OK;
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

void um_cu_group_stop(const um_forward *f) {
    const um_rank *at = f->group.at;
    for (int32_t r = 0; at && r < at->n; r++) *(volatile int32_t *)um_cu_rank(f, r)->group.stop = 1;
}

/* Ranks are freed from the last one on, so those before this one are there. */
void um_cu_group_leave(um_forward *f) {
    const um_rank *at = f->group.at;
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
    um_cu_meeting m = {g->at->index, g->at->n, g->count, {}, g->stop};
    for (int32_t r = 0; r < m.n; r++) m.flag[r] = um_cu_rank(f, r)->group.flag;
    return m;
}

um_cu_partials um_cu_partials_of(const um_forward *f, int turn, size_t n, um_dtype type) {
    um_cu_partials p = {um_cu_meeting_of(f), {}, type, um_cu_pushes(n, type), {}};
    for (int32_t r = 0; r < p.at.n; r++) {
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
    if (um_now() - since > um_ranks_timeout(g->at->group)) give_up(f);
    if (!um_ranks_is_broken(g->at->group, err)) return UM_OK;
    um_cu_group_stop(f);
    return UM_EDEVICE;
}
