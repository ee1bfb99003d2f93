/* comm: how GPUs of several processes exchange results (comm.cu): NCCL copies the results of all ranks into the memory
 * of each GPU, and the kernels that add or merge them find them there. NCCL itself adds nothing, so the sums have the
 * bits of GPUs of one process. Used inside the room cuda only.
 *
 * A um_cu_comm belongs to a um_device and is used by the thread of its passes. um_cu_comm_abort may be called by any
 * thread. */
#ifndef UM_CUDA_COMM_CUH
#define UM_CUDA_COMM_CUH

#include "cuda/cuda.cuh"
#include "ops/backend.h"

typedef struct um_cu_comm um_cu_comm;

/* Joins the GPU `device` of this process with those of the other ranks, and opens all connections. Waits for the
 * others without a limit. *out is released with um_cu_comm_free. Errors: UM_EDEVICE. */
um_status um_cu_comm_new(um_cu_comm **out, int device, const um_device_card *leader, int32_t rank, int32_t n,
                         cudaStream_t s, um_err *err);
/* Closes all connections. Waits some seconds for NCCL. No graph with exchanges may be left. c may be NULL. */
void um_cu_comm_free(um_cu_comm *c);
/* Ends the kernels that wait for other ranks; c can't be used any more. Does not wait. */
void um_cu_comm_abort(um_cu_comm *c);

/* The following functions start kernels on s, also in a stream that is recorded. An error is kept for
 * um_cu_comm_check. All ranks must start the same exchanges in the same order. */

/* Brings the parts of all ranks to all ranks. parts: n of `bytes` bytes, one behind the other, of which this rank has
 * written its own. */
void um_cu_comm_share(um_cu_comm *c, void *parts, size_t bytes, cudaStream_t s);
/* Brings block r of the parts of all ranks to rank r. Part r of `parts` starts at byte r * distance, and its blocks are
 * `block` bytes each, one behind the other. */
void um_cu_comm_swap(um_cu_comm *c, void *parts, size_t distance, size_t block, cudaStream_t s);
/* Exchanges between these two calls are started as one. */
void um_cu_comm_begin(um_cu_comm *c);
void um_cu_comm_end(um_cu_comm *c);
/* Brings the parts of all ranks to rank 0. Part r of `parts` is the bytes [at[r], at[r + 1]), which rank r has written.
 */
void um_cu_comm_collect(um_cu_comm *c, void *parts, const size_t *at, cudaStream_t s);
/* Returns UM_EDEVICE when an exchange could not be started. */
um_status um_cu_comm_check(const um_cu_comm *c, um_err *err);
/* The same, also when NCCL has noticed an error since, and gives the other ranks a second to say more about it. */
um_status um_cu_comm_poll(um_cu_comm *c, um_err *err);

/* The functions of um_backend for ranks in several processes. */
um_status um_cu_introduce(um_device *d, bool leads, um_device_card *out, um_err *err);
um_status um_cu_unite(um_device *d, const um_device_card *leader, int32_t rank, int32_t n, um_err *err);

#endif
