/* quantize: matrices of small integers. 32 elements that are adjacent along k form a group: 32 integers and an fp16
 * scale.
 *   UM_Q8  integers of -127..127, 8.5 bits per element
 *   UM_Q4  integers of -8..7, 4.5 bits per element
 * The left operand of a product with such a matrix is divided into the same groups of integers of -127..127, with fp32
 * scales. The integers of two groups are multiplied and added exactly. Their sum, as fp32, is multiplied by the product
 * of both scales and added to the result. The groups are added in the order of k. So all instruction sets with fused
 * multiply-add give the same bits. */
#ifndef UM_OPS_QUANTIZE_H
#define UM_OPS_QUANTIZE_H

#include "ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { UM_QUANT_GROUP = 32 };

/* Returns whether the elements of the type are integers with scales. */
static inline bool um_is_quantized(um_dtype t) { return t == UM_Q8 || t == UM_Q4; }
/* Quantizes x [n <= 32] as a group of a matrix: q[i] = x[i] / scale, rounded to the nearest integer of the type;
 * q[n..] are 0. Returns the scale as fp16. It is 0 for zeros, and NaN unless all elements are finite; then all q are 0.
 * For UM_Q4 it may be negative: the element with the largest magnitude gets the integer -8. */
uint16_t um_quantize(um_dtype type, const float *x, int n, int8_t q[UM_QUANT_GROUP]);
/* Does the same for a left operand and returns the fp32 scale. Groups with no magnitude above 1e-30 become zeros. */
float um_quantize_left(const float *x, int n, int8_t q[UM_QUANT_GROUP]);
/* Returns the bytes of a matrix [rows, in]. */
size_t um_quant_bytes(um_dtype type, int64_t rows, int64_t in);

#ifdef __cplusplus
}
#endif
#endif
