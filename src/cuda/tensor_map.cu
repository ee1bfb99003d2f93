/* Descriptions of matrices for the copy engine. The driver's function is found at run time, so that the plugin does not
 * need the driver's library to be linked. */
#include "cuda/tensor_map.cuh"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                              const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static encode_fn find_encode() {
    void *f = NULL;
    cudaDriverEntryPointQueryResult found;
    const cudaError_t e =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &found);
    return e == cudaSuccess ? (encode_fn)f : NULL;
}

bool um_cu_describe(CUtensorMap *map, int bytes, const void *matrix, int64_t rows, int32_t columns, int32_t stride,
                    int32_t box_rows) {
    enum { BOX_BYTES = 128 };
    static const encode_fn encode = find_encode();
    const CUtensorMapDataType type = bytes == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    const cuuint64_t dims[] = {(cuuint64_t)columns, (cuuint64_t)rows};
    const cuuint64_t strides[] = {(cuuint64_t)stride * (cuuint64_t)bytes};
    const cuuint32_t boxes[] = {(cuuint32_t)(BOX_BYTES / bytes), (cuuint32_t)box_rows}, steps[] = {1, 1};
    return encode && encode(map, type, 2, (void *)matrix, dims, strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                            CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
