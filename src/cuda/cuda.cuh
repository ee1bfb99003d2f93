/* cuda: errors of the CUDA runtime as um_status. */
#ifndef UM_CUDA_CUDA_CUH
#define UM_CUDA_CUDA_CUH

#include <cuda_runtime.h>

#include "base/base.h"

/* Returns UM_OK for cudaSuccess, else UM_ENOMEM or UM_EDEVICE with the message "what: CUDA's text". */
static inline um_status um_cu_check(cudaError_t e, const char *what, um_err *err) {
    if (e == cudaSuccess) return UM_OK;
    return um_fail(err, e == cudaErrorMemoryAllocation ? UM_ENOMEM : UM_EDEVICE, "%s: %s", what, cudaGetErrorString(e));
}

/* Checks the launches since the last check. Does not wait for the kernels. */
static inline um_status um_cu_launched(const char *what, um_err *err) {
    return um_cu_check(cudaGetLastError(), what, err);
}

#define UM_CU_TRY(call, err)                                                                                           \
    do {                                                                                                               \
        um_status um_cu_status = um_cu_check((call), #call, err);                                                      \
        if (um_cu_status) return um_cu_status;                                                                         \
    } while (0)

#endif
