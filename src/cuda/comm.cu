/* Exchanges of results among GPUs of several processes, by NCCL. */
#include "cuda/comm.cuh"

#include <pthread.h>
#include <time.h>

#include "cuda/device.cuh"
#include "cuda/nccl.h"

struct um_cu_comm {
    um_nccl nccl;
    um_nccl_calls calls; /* guards the calls that use handle */
    um_nccl_comm handle;
    int device;
    int32_t rank, n;
    int code;        /* of the first exchange that could not be started */
    double since;    /* um_now() when NCCL noticed an error; 0: it has not */
    pthread_t abort; /* the thread that aborts the connections */
    bool has_abort;
    pthread_mutex_t lock; /* of has_abort */
};

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

static um_status check(const um_nccl *nccl, int code, const char *what, um_err *err) {
    if (code == UM_NCCL_SUCCESS) return UM_OK;
    const char *last = nccl->get_last_error(NULL), *text = nccl->get_error_string(code);
    return um_fail(err, UM_EDEVICE, "%s: NCCL: %.60s%s%.100s", what, text, last && *last ? ": " : "", last ? last : "");
}

um_status um_cu_comm_check(const um_cu_comm *c, um_err *err) {
    if (um_nccl_has_ended(&c->calls)) return um_fail(err, UM_EDEVICE, "the exchange of results has been ended");
    return check(&c->nccl, c->code, "exchange of results", err);
}

um_status um_cu_comm_poll(um_cu_comm *c, um_err *err) {
    static const double PATIENCE = 1;
    int code = UM_NCCL_SUCCESS;
    um_status s = um_cu_comm_check(c, err);
    if (s) return s;
    if (um_nccl_enter(&c->calls) && c->nccl.comm_get_async_error(c->handle, &code)) code = UM_NCCL_SUCCESS;
    um_nccl_leave(&c->calls);
    if (code == UM_NCCL_SUCCESS || code == UM_NCCL_IN_PROGRESS) return UM_OK;
    if (c->since == 0) c->since = um_now();
    return um_now() - c->since < PATIENCE ? UM_OK : check(&c->nccl, code, "exchange of results", err);
}

/* Keeps the first error. */
static void keep(um_cu_comm *c, int code) {
    if (!c->code) c->code = code;
}

/* Calls a function of NCCL unless all has been ended. */
#define CALL(c, function, ...)                                                                                         \
    do {                                                                                                               \
        if (um_nccl_enter(&(c)->calls)) keep(c, (c)->nccl.function(__VA_ARGS__));                                      \
        um_nccl_leave(&(c)->calls);                                                                                    \
    } while (0)

/* ---- Exchanges --------------------------------------------------------------------------------------------------- */

void um_cu_comm_share(um_cu_comm *c, void *parts, size_t bytes, cudaStream_t s) {
    const char *own = (const char *)parts + (size_t)c->rank * bytes;
    if (bytes) CALL(c, all_gather, own, parts, bytes, UM_NCCL_BYTES, c->handle, s);
}

void um_cu_comm_begin(um_cu_comm *c) {
    if (um_nccl_enter(&c->calls)) keep(c, c->nccl.group_start());
}

void um_cu_comm_end(um_cu_comm *c) {
    CALL(c, group_end);
    um_nccl_leave(&c->calls);
}

void um_cu_comm_swap(um_cu_comm *c, void *parts, size_t distance, size_t block, cudaStream_t s) {
    const size_t own = (size_t)c->rank;
    um_cu_comm_begin(c);
    for (int32_t r = 0; r < c->n; r++) {
        const char *from = (const char *)parts + own * distance + (size_t)r * block;
        char *to = (char *)parts + (size_t)r * distance + own * block;
        if (r == c->rank) continue;
        CALL(c, send, from, block, UM_NCCL_BYTES, r, c->handle, s);
        CALL(c, recv, to, block, UM_NCCL_BYTES, r, c->handle, s);
    }
    um_cu_comm_end(c);
}

void um_cu_comm_collect(um_cu_comm *c, void *parts, const size_t *at, cudaStream_t s) {
    um_cu_comm_begin(c);
    for (int32_t r = 1; r < c->n; r++) {
        char *part = (char *)parts + at[r];
        const size_t bytes = at[r + 1] - at[r];
        if (bytes && c->rank == 0) CALL(c, recv, part, bytes, UM_NCCL_BYTES, r, c->handle, s);
        if (bytes && c->rank == r) CALL(c, send, part, bytes, UM_NCCL_BYTES, 0, c->handle, s);
    }
    um_cu_comm_end(c);
}

/* ---- Life -------------------------------------------------------------------------------------------------------- */

/* NCCL opens a connection when it is first used, and chooses connections by the sizes of the parts. */
static um_status open_connections(um_cu_comm *c, cudaStream_t s, um_err *err) {
    static const size_t sizes[] = {1 << 10, 64 << 10, 1 << 20, 8 << 20};
    const size_t most = sizes[UM_LEN(sizes) - 1];
    size_t at[UM_RANKS_MAX + 1];
    void *parts = NULL;
    um_status st = um_cu_alloc(&parts, (size_t)c->n * most, "first exchange of ranks", err);
    if (st) return st;
    for (size_t i = 0; i < UM_LEN(sizes); i++) {
        for (int32_t r = 0; r <= c->n; r++) at[r] = (size_t)r * sizes[i];
        um_cu_comm_share(c, parts, sizes[i], s);
        um_cu_comm_swap(c, parts, sizes[i], sizes[i] / (size_t)c->n, s);
        um_cu_comm_collect(c, parts, at, s);
    }
    st = um_cu_comm_check(c, err);
    if (!st) st = um_cu_check(cudaStreamSynchronize(s), "first exchange of ranks", err);
    if (!st) cudaFree(parts); /* otherwise kernels may wait, and with them cudaFree */
    return st;
}

um_status um_cu_comm_new(um_cu_comm **out, int device, const um_device_card *leader, int32_t rank, int32_t n,
                         cudaStream_t s, um_err *err) {
    um_nccl_id id;
    um_cu_comm *c = UM_NEW(um_cu_comm);
    static_assert(sizeof id == sizeof leader->key, "a card has room for the id of NCCL");
    memcpy(&id, leader->key, sizeof id);
    c->device = device;
    c->rank = rank;
    c->n = n;
    um_nccl_calls_init(&c->calls);
    pthread_mutex_init(&c->lock, NULL);
    um_status st = um_nccl_open(&c->nccl, UM_NCCL_LIBRARY, err);
    if (!st) st = check(&c->nccl, c->nccl.comm_init_rank(&c->handle, n, id, rank), "connecting the GPUs", err);
    if (!st) st = open_connections(c, s, err);
    if (st) {
        um_cu_comm_free(c);
        c = NULL;
    }
    *out = c;
    return st;
}

static void *run_abort(void *arg) {
    static const double PATIENCE = 1;
    um_cu_comm *c = (um_cu_comm *)arg;
    cudaSetDevice(c->device);
    (void)um_nccl_await_calls(&c->calls, PATIENCE); /* not longer: a call that waits for a rank needs the abort */
    c->nccl.comm_abort(c->handle);
    return NULL;
}

/* NCCL waits until all graphs with its kernels are freed, so this is done by a thread of its own. NCCL frees the
 * handle, which another thread may be using. */
void um_cu_comm_abort(um_cu_comm *c) {
    pthread_mutex_lock(&c->lock);
    um_nccl_end_calls(&c->calls);
    if (c->handle && !c->has_abort) c->has_abort = !pthread_create(&c->abort, NULL, run_abort, c);
    pthread_mutex_unlock(&c->lock);
}

/* Aborting needs no help of other ranks, so none waits for one that has ended. At this point nothing is under way. */
void um_cu_comm_free(um_cu_comm *c) {
    enum { SECONDS = 10 };
    struct timespec until;
    if (!c) return;
    um_cu_comm_abort(c);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += SECONDS;
    if (c->has_abort && pthread_timedjoin_np(c->abort, NULL, &until)) return; /* the thread still uses c */
    pthread_mutex_destroy(&c->lock);
    um_nccl_calls_deinit(&c->calls);
    um_free(c);
}

/* ---- Groups ------------------------------------------------------------------------------------------------------ */

um_status um_cu_introduce(um_device *d, bool leads, um_device_card *out, um_err *err) {
    um_nccl nccl;
    um_nccl_id id;
    size_t used = 0;
    *out = {};
    um_status s = um_nccl_open(&nccl, UM_NCCL_LIBRARY, err);
    for (size_t i = 0; i < sizeof d->properties.uuid.bytes; i++)
        used += (size_t)snprintf(out->name + used, sizeof out->name - used, "%02x",
                                 (unsigned char)d->properties.uuid.bytes[i]);
    if (s || !leads) return s;
    s = um_cu_use(d, err);
    if (!s) s = check(&nccl, nccl.get_unique_id(&id), "connecting the GPUs", err);
    if (!s) memcpy(out->key, &id, sizeof id);
    return s;
}

um_status um_cu_unite(um_device *d, const um_device_card *leader, int32_t rank, int32_t n, um_err *err) {
    um_status s = um_cu_use(d, err);
    return s ? s : um_cu_comm_new(&d->comm, d->number, leader, rank, n, d->stream, err);
}
