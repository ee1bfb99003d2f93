/* The layout of AWQ, version gemm: a matrix [out, in] is X.qweight, int32 [in, out / 8]. Each word holds integers of
 * eight rows, in an order that suits a GPU's kernel. X.qzeros, int32 [groups, out / 8], has the same order. X.scales
 * [groups, out] are floats. */
#include "model/quantized.h"

enum { PER_WORD = 8 };

/* From its lowest bits on, a word holds the rows 0, 2, 4, 6, 1, 3, 5, 7. */
static const uint8_t places[PER_WORD] = {0, 4, 1, 5, 2, 6, 3, 7};

static size_t bytes_of(int64_t rows, int64_t in) { return um_mul((size_t)rows / 2, (size_t)in); }

static const um_format format = {
    .name = "AWQ 4-bit", .elements = 1, .product = UM_Q8, .read = um_groups_read, .matrix_bytes = bytes_of};

static um_status join(const um_joining *j, um_tensor *to, um_err *err) {
    const um_tensor *scales = NULL, *zeros = NULL;
    um_status s = um_joining_check_main(j, err);
    if (s) return s;
    const int64_t in = j->main->dim[0], words = j->main->dim[1], out = words * PER_WORD;
    const int64_t n = um_groups_count(j->q, in);
    s = um_joining_need(j, ".scales", &scales, err);
    if (!s) s = um_joining_check(j, scales, NULL, n, out, err);
    if (!s) s = um_joining_need(j, ".qzeros", &zeros, err);
    if (!s) s = um_joining_check(j, zeros, "I32", n, words, err);
    if (s) return s;
    const um_groups g = {.bits = 4,
                         .along_rows = true,
                         .order = places,
                         .word_row = 1,
                         .word_col = words,
                         .zeros = zeros->data,
                         .zero_row = 1,
                         .zero_group = words,
                         .scales = scales->data,
                         .scale_row = 1,
                         .scale_group = out,
                         .scale_type = scales->type,
                         .n_groups = n,
                         .group = j->q->group ? j->q->group : in};
    um_groups_put(to, j, &format, &g, out, in);
    return UM_OK;
}

const um_quantized_layout um_quantized_awq = {".qweight", "I32", join};
