/* Opens NCCL, and guards the calls with a communicator. */
#include "cuda/nccl.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

#define WHAT_TO_INSTALL                                                                                                \
    "install NCCL 2.18 or newer (nvidia-nccl-cu13 of PyPI, or the package libnccl2), and name its folder in "          \
    "LD_LIBRARY_PATH"

/* Switches of NCCL. Multicast over NVLink stays off (docs/kernels/cuda-ranks.md). A collective that one rank replays in
 * a graph is started without one by another rank, and NCCL registers the buffers of graphs only, so none is registered.
 * A pass starts nothing beside a graph that is under way, so exchanges need not be ordered against such launches. */
static const char *const switches[][2] = {
    {"NCCL_NVLS_ENABLE", "0"}, {"NCCL_GRAPH_REGISTER", "0"}, {"NCCL_GRAPH_MIXING_SUPPORT", "0"}};

typedef struct symbol {
    const char *name;
    void *to; /* the pointer to a function */
} symbol;

um_status um_nccl_check_version(int version, um_err *err) {
    const int major = version / 10000, minor = version / 100 % 100; /* those before 2.9 are 4 digits, so major is 0 */
    if (version >= 21800) return UM_OK;
    return um_fail(err, UM_EUNSUPPORTED, "%s is NCCL %d.%d; %s", UM_NCCL_LIBRARY, major ? major : version / 1000,
                   major ? minor : version / 100 % 10, WHAT_TO_INSTALL);
}

static um_status find_symbols(void *library, const char *name, const symbol *s, size_t n, um_err *err) {
    for (size_t i = 0; i < n; i++) {
        void *address = dlsym(library, s[i].name);
        if (!address) return um_fail(err, UM_EUNSUPPORTED, "%s has no %s; %s", name, s[i].name, WHAT_TO_INSTALL);
        memcpy(s[i].to, &address, sizeof address); /* ISO C has no conversion of void * to a function pointer */
    }
    return UM_OK;
}

um_status um_nccl_open(um_nccl *out, const char *name, um_err *err) {
    const symbol all[] = {{"ncclGetVersion", &out->get_version},
                          {"ncclGetUniqueId", &out->get_unique_id},
                          {"ncclCommInitRank", &out->comm_init_rank},
                          {"ncclCommAbort", &out->comm_abort},
                          {"ncclCommGetAsyncError", &out->comm_get_async_error},
                          {"ncclGetErrorString", &out->get_error_string},
                          {"ncclGetLastError", &out->get_last_error},
                          {"ncclGroupStart", &out->group_start},
                          {"ncclGroupEnd", &out->group_end},
                          {"ncclSend", &out->send},
                          {"ncclRecv", &out->recv},
                          {"ncclAllGather", &out->all_gather}};
    int version = 0;
    for (size_t i = 0; i < UM_LEN(switches); i++) setenv(switches[i][0], switches[i][1], 0);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return um_fail(err, UM_EUNSUPPORTED, "GPUs in several processes need NCCL: %s; %s", dlerror(), WHAT_TO_INSTALL);
    um_status s = find_symbols(library, name, all, UM_LEN(all), err);
    if (!s && out->get_version(&version)) s = um_fail(err, UM_EUNSUPPORTED, "%s does not tell its version", name);
    return s ? s : um_nccl_check_version(version, err);
}

/* ---- Calls that another thread may end --------------------------------------------------------------------------- */

void um_nccl_calls_init(um_nccl_calls *c) {
    pthread_mutexattr_t nested;
    *c = (um_nccl_calls){0};
    pthread_mutexattr_init(&nested);
    pthread_mutexattr_settype(&nested, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&c->lock, &nested);
    pthread_mutexattr_destroy(&nested);
}

void um_nccl_calls_deinit(um_nccl_calls *c) { pthread_mutex_destroy(&c->lock); }

bool um_nccl_enter(um_nccl_calls *c) {
    pthread_mutex_lock(&c->lock);
    if (c->depth++ == 0) c->may_call = !um_nccl_has_ended(c);
    return c->may_call;
}

void um_nccl_leave(um_nccl_calls *c) {
    c->depth--;
    pthread_mutex_unlock(&c->lock);
}

void um_nccl_end_calls(um_nccl_calls *c) { __atomic_store_n(&c->has_ended, true, __ATOMIC_RELEASE); }

bool um_nccl_has_ended(const um_nccl_calls *c) { return __atomic_load_n(&c->has_ended, __ATOMIC_ACQUIRE); }

bool um_nccl_await_calls(um_nccl_calls *c, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    const double all = (double)until.tv_nsec / 1e9 + seconds, whole = (double)(int64_t)all;
    until.tv_sec += (time_t)whole;
    until.tv_nsec = (long)((all - whole) * 1e9);
    if (pthread_mutex_timedlock(&c->lock, &until)) return false;
    pthread_mutex_unlock(&c->lock);
    return true;
}
