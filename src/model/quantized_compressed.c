/* The method compressed-tensors: its configuration, and the layout of its format pack-quantized. The format
 * float-quantized has the layout of fp8.
 *
 * pack-quantized: a matrix [out, in] is X.weight_packed, int32 [out, ceil(in * bits / 32)], and X.weight_shape, int64
 * [2]. Integers are stored with 2^(bits - 1) added. X.weight_scale [out, groups] are floats. X.weight_zero_point, int32
 * [ceil(out * bits / 32), groups], is there when the integers are not symmetric; its zeros are stored like the
 * integers. X.weight_g_idx, int32 [in], assigns columns to groups. */
#include <jansson.h>

#include "model/quantized.h"

/* ---- The configuration ------------------------------------------------------------------------------------------- */

static um_status refuse(const char *where, const char *what, um_err *err) {
    char text[96];
    snprintf(text, sizeof text, "compressed-tensors with %s", what);
    return um_quantized_refuse(where, text, err);
}

/* Reads how floats of 8 bits share scales. A group is a block of one row. */
static um_status read_floats(um_quantized *q, const json_t *weights, const char *where, um_err *err) {
    char what[64];
    um_status s = um_json_get_int32(weights, "num_bits", where, 1, 32, &q->bits, err);
    if (!s) s = um_quantized_group(q, weights, where, err);
    if (!s) s = um_quantized_block(q, weights, "block_structure", where, err);
    if (s) return s;
    if (q->group && !q->block_cols) {
        q->block_rows = 1;
        q->block_cols = q->group;
    }
    if (q->bits == 8) return UM_OK;
    snprintf(what, sizeof what, "floats of %d bits", q->bits);
    return refuse(where, what, err);
}

static um_status read_weights(um_quantized *q, const json_t *weights, const char *where, um_err *err) {
    const bool is_float = q->layout == &um_quantized_fp8;
    const char *type = is_float ? "float" : "int", *found = type;
    um_status s = um_json_get_str(weights, "type", where, &found, err);
    if (s) return s;
    if (strcmp(found, type)) return refuse(where, is_float ? "float-quantized integers" : "pack-quantized floats", err);
    if (is_float) return read_floats(q, weights, where, err);
    s = um_quantized_bits(q, weights, "num_bits", true, "compressed-tensors", where, err);
    return s ? s : um_quantized_group(q, weights, where, err);
}

/* Reads the groups of modules. All must be quantised alike. */
static um_status read_modules(um_quantized *q, json_t *groups, const char *where, um_err *err) {
    const char *name;
    json_t *group;
    const um_quantized start = *q;
    bool is_first = true;
    json_object_foreach(groups, name, group) {
        json_t *weights = json_object_get(group, "weights");
        um_quantized found = start;
        if (!json_is_object(weights))
            return um_fail(err, UM_EPARSE, "%s: \"config_groups\": %.64s has no \"weights\"", where, name);
        um_status s = read_weights(&found, weights, where, err);
        if (s) return s;
        if (!is_first && (found.bits != q->bits || found.group != q->group || found.block_rows != q->block_rows ||
                          found.block_cols != q->block_cols))
            return refuse(where, "different bits or groups in config_groups", err);
        *q = found;
        is_first = false;
    }
    if (is_first) return um_fail(err, UM_EPARSE, "%s: \"quantization_config\" lacks \"config_groups\"", where);
    return UM_OK;
}

um_status um_quantized_compressed(um_quantized *q, const json_t *fields, const char *where, um_err *err) {
    const char *format = "no format";
    char what[64];
    um_status s = um_json_get_str(fields, "format", where, &format, err);
    if (s) return s;
    if (!strcmp(format, "float-quantized")) q->layout = &um_quantized_fp8;
    if (!strcmp(format, "pack-quantized")) q->layout = &um_quantized_packed;
    if (q->layout) return read_modules(q, json_object_get(fields, "config_groups"), where, err);
    snprintf(what, sizeof what, "format %s", format);
    return refuse(where, what, err);
}

/* ---- pack-quantized ---------------------------------------------------------------------------------------------- */

static size_t bytes_of_4(int64_t rows, int64_t in) { return um_mul((size_t)rows, (size_t)UM_CEIL_DIV(in, 8) * 4); }
static size_t bytes_of_8(int64_t rows, int64_t in) { return um_mul((size_t)rows, (size_t)UM_CEIL_DIV(in, 4) * 4); }

static const um_format format_4 = {
    .name = "packed 4-bit", .elements = 1, .product = UM_Q8, .read = um_groups_read, .matrix_bytes = bytes_of_4};
static const um_format format_8 = {
    .name = "packed 8-bit", .elements = 1, .product = UM_Q8, .read = um_groups_read, .matrix_bytes = bytes_of_8};

/* Reads the number of columns, which the packed words alone leave open. */
static um_status read_shape(const um_joining *j, int64_t *in, um_err *err) {
    const um_tensor *shape = NULL, *t = j->main;
    const int64_t per_word = 32 / j->q->bits;
    int64_t dim[2] = {0};
    um_status s = um_joining_need(j, ".weight_shape", &shape, err);
    if (!s) s = um_joining_check(j, shape, "I64", 2, 0, err);
    if (s) return s;
    memcpy(dim, shape->data, sizeof dim);
    *in = dim[1];
    if (dim[0] == t->dim[0] && dim[1] > (t->dim[1] - 1) * per_word && dim[1] <= t->dim[1] * per_word) return UM_OK;
    return um_fail(err, UM_EMODEL, "tensor %s in %s: the shape [%lld, %lld] contradicts %s with [%lld, %lld]",
                   shape->name, um_store_file(j->s, shape), (long long)dim[0], (long long)dim[1], t->name,
                   (long long)t->dim[0], (long long)t->dim[1]);
}

static um_status set_zeros(um_groups *g, const um_joining *j, int64_t out, um_err *err) {
    const um_tensor *zeros = um_joining_find(j, ".weight_zero_point");
    g->zero = 1 << (g->bits - 1);
    if (!zeros) return UM_OK;
    g->zeros = zeros->data;
    g->zero = 0;
    g->zero_row = g->n_groups;
    g->zero_group = 1;
    return um_joining_check(j, zeros, "I32", UM_CEIL_DIV(out, 32 / g->bits), g->n_groups, err);
}

static um_status join(const um_joining *j, um_tensor *to, um_err *err) {
    const um_quantized *q = j->q;
    const um_tensor *scales = NULL, *list = um_joining_find(j, ".weight_g_idx");
    int64_t in = 0;
    um_status s = um_joining_check_main(j, err);
    if (!s) s = read_shape(j, &in, err);
    if (!s) s = um_joining_need(j, ".weight_scale", &scales, err);
    if (s) return s;
    const int64_t out = j->main->dim[0], n = um_groups_count(q, in);
    s = um_joining_check(j, scales, NULL, out, n, err);
    um_groups g = {.bits = q->bits,
                   .word_row = j->main->dim[1],
                   .word_col = 1,
                   .scales = scales->data,
                   .scale_row = n,
                   .scale_group = 1,
                   .scale_type = scales->type,
                   .n_groups = n,
                   .group = q->group ? q->group : in};
    if (!s) s = set_zeros(&g, j, out, err);
    if (!s && list) s = um_groups_set_list(&g, j, list, in, err);
    if (!s) um_groups_put(to, j, q->bits == 4 ? &format_4 : &format_8, &g, out, in);
    return s;
}

const um_quantized_layout um_quantized_packed = {".weight_packed", "I32", join};
