/* device: an open GPU with the weights of a model, and a pass on it. Used inside the room cuda only. */
#ifndef UM_CUDA_DEVICE_CUH
#define UM_CUDA_DEVICE_CUH

#include "cuda/cuda.cuh"
#include "cuda/kernels.cuh"
#include "ops/backend.h"

/* A buffer in pinned host memory through which weights reach the device. */
typedef struct um_cu_staging {
    char *host;
    cudaEvent_t free; /* recorded when the copy of the buffer has been queued */
    bool used;
} um_cu_staging;

enum { UM_CU_STAGINGS = 2 };

struct um_device {
    int number;
    um_dtype dtype;
    um_dev_config config;
    cudaDeviceProp properties;
    cudaStream_t stream;
    um_pool *pool; /* threads that read weights into the staging buffers; NULL until the first weight */
    um_cu_staging staging[UM_CU_STAGINGS];
    int next_staging;
    struct um_cu_comm *comm; /* to the GPUs of ranks in other processes; NULL: there are none (comm.cuh) */
};

struct um_weight {
    um_cu_matrix m;
};

struct um_vector {
    float *data;
    size_t n;
};

static inline const float *um_cu_values(const um_vector *v) { return v ? v->data : NULL; }

/* Makes the device's GPU the one that this thread's CUDA calls use. */
static inline um_status um_cu_use(const um_device *d, um_err *err) {
    return um_cu_check(cudaSetDevice(d->number), "cudaSetDevice", err);
}

/* Allocates device memory, whose contents are undefined. `what` names it in an error. */
um_status um_cu_alloc(void **out, size_t bytes, const char *what, um_err *err);

/* The function of um_backend that measures the device (limits.cu). */
um_status um_cu_device_limits(um_device *d, um_device_limits *out, um_err *err);

/* The functions of um_backend for groups of ranks (group.cu). */
um_status um_cu_reach(um_device *d, const um_device *other, bool *can, um_err *err);
/* Lets kernels that wait for other ranks end: sets the stop flags of all ranks of this process, or aborts the
 * connections to ranks in other processes. Does nothing without a group. Any thread; does not wait. */
void um_cu_group_stop(um_forward *f);

/* The functions of um_backend for passes (memory.cu, graph.cu, pass.cu, profile.cu). */
size_t um_cu_workspace(um_device *d, const um_network *n, const um_forward_config *c);
um_status um_cu_forward_new(um_forward **out, um_device *d, const um_network *n, const um_forward_config *c,
                            um_err *err);
void um_cu_forward_free(um_forward *f);
um_forward_memory um_cu_memory(const um_forward *f);
um_forward_stats um_cu_stats(const um_forward *f);
um_status um_cu_warm(um_forward *f, const um_pass_size *size, int32_t n, um_err *err);
void um_cu_copy_page(um_forward *f, int32_t from, int32_t to, int32_t n);
um_status um_cu_submit(um_forward *f, const um_batch *b, um_err *err);
um_status um_cu_wait(um_forward *f, um_err *err);
void um_cu_profile(um_forward *f, um_profile *p);

#endif
