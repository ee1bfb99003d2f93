/* The layout of GPTQ: a matrix [out, in] is X.qweight, int32 [in * bits / 32, out]. Each word holds integers of
 * consecutive columns. X.scales [groups, out] are floats, X.qzeros is int32 [groups, out * bits / 32]. X.g_idx, int32
 * [in], assigns columns to groups; without it they are in order. */
#include "model/quantized.h"

static size_t bytes_of_4(int64_t rows, int64_t in) { return um_mul((size_t)rows, (size_t)in / 2); }
static size_t bytes_of_8(int64_t rows, int64_t in) { return um_mul((size_t)rows, (size_t)in); }

static const um_format format_4 = {
    .name = "GPTQ 4-bit", .elements = 1, .product = UM_Q8, .read = um_groups_read, .matrix_bytes = bytes_of_4};
static const um_format format_8 = {
    .name = "GPTQ 8-bit", .elements = 1, .product = UM_Q8, .read = um_groups_read, .matrix_bytes = bytes_of_8};

static um_status read_list(um_groups *g, const um_joining *j, int64_t in, um_err *err) {
    const um_tensor *list = NULL;
    if (j->q->is_reordered) {
        um_status s = um_joining_need(j, ".g_idx", &list, err);
        if (s) return s;
    } else {
        list = um_joining_find(j, ".g_idx");
    }
    return list ? um_groups_set_list(g, j, list, in, err) : UM_OK;
}

static um_status join(const um_joining *j, um_tensor *to, um_err *err) {
    const um_quantized *q = j->q;
    const int64_t per_word = 32 / q->bits;
    const um_tensor *scales = NULL, *zeros = NULL;
    um_status s = um_joining_check_main(j, err);
    if (s) return s;
    const int64_t out = j->main->dim[1], in = j->main->dim[0] * per_word, n = um_groups_count(q, in);
    if (out % per_word)
        return um_fail(err, UM_EMODEL, "tensor %s in %s: its %lld columns are not a multiple of %lld", j->main->name,
                       um_store_file(j->s, j->main), (long long)out, (long long)per_word);
    s = um_joining_need(j, ".scales", &scales, err);
    if (!s) s = um_joining_check(j, scales, NULL, n, out, err);
    if (!s) s = um_joining_need(j, ".qzeros", &zeros, err);
    if (!s) s = um_joining_check(j, zeros, "I32", n, out / per_word, err);
    if (s) return s;
    um_groups g = {.bits = q->bits,
                   .word_row = 1,
                   .word_col = out,
                   .zeros = zeros->data,
                   .zero_row = 1,
                   .zero_group = out / per_word,
                   .zero = q->added,
                   .scales = scales->data,
                   .scale_row = 1,
                   .scale_group = out,
                   .scale_type = scales->type,
                   .n_groups = n,
                   .group = q->group ? q->group : in};
    s = read_list(&g, j, in, err);
    if (!s) um_groups_put(to, j, q->bits == 4 ? &format_4 : &format_8, &g, out, in);
    return s;
}

const um_quantized_layout um_quantized_gptq = {".qweight", "I32", join};
