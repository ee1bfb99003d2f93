/* Tensors of a checkpoint: their number of elements, and their values as fp32. The reader of a file has checked that a
 * tensor has at most UM_LEN(dim) dimensions and that the number of its elements fits size_t. */
#include "ops/backend.h"

size_t um_tensor_elements(const um_tensor *t) {
    size_t n = 1;
    assert(t->n_dims >= 0 && t->n_dims <= (int32_t)UM_LEN(t->dim));
    for (int32_t i = 0; i < t->n_dims; i++) n = um_mul(n, (size_t)t->dim[i]);
    return n;
}

void um_tensor_to_f32(const um_tensor *t, float *out) {
    const uint8_t *p = t->data;
    const size_t n = um_tensor_elements(t);
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        if (t->type == UM_F32) {
            memcpy(&out[i], p + 4 * i, 4);
            continue;
        }
        memcpy(&half, p + 2 * i, 2);
        out[i] = t->type == UM_BF16 ? um_bf16_to_f32(half) : um_f16_to_f32(half);
    }
}
