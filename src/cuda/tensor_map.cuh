/* tensor_map: descriptions of matrices for the copy engine of Hopper GPUs. Used inside the room cuda only. */
#ifndef UM_CUDA_TENSOR_MAP_CUH
#define UM_CUDA_TENSOR_MAP_CUH

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

/* Describes a matrix [rows, columns] on the device, of bf16 (bytes 2) or of bytes (1), with rows at a distance of
 * `stride` elements, for copies of boxes of box_rows rows and 128 bytes, the width of the swizzle, into shared memory
 * with the 128-byte swizzle. The matrix is aligned to 16 bytes, and so are its rows. Returns false when the driver has
 * no such copies. Any thread. */
bool um_cu_describe(CUtensorMap *map, int bytes, const void *matrix, int64_t rows, int32_t columns, int32_t stride,
                    int32_t box_rows);

#endif
