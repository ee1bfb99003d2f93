/* Reads "quantization_config" of config.json. */
#include <jansson.h>
#include <strings.h>

#include "model/quantized.h"

um_status um_quantized_refuse(const char *where, const char *what, um_err *err) {
    return um_fail(err, UM_EUNSUPPORTED,
                   "%s: unmask can't read weights quantised by %s; it reads fp8, gptq (4 or 8 bits), awq (gemm) and "
                   "compressed-tensors (float-quantized, pack-quantized): fetch one of these or bf16",
                   where, what);
}

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

um_status um_quantized_bits(um_quantized *q, const json_t *fields, const char *key, bool eight, const char *method,
                            const char *where, um_err *err) {
    char what[64];
    um_status s = um_json_get_int32(fields, key, where, 1, 32, &q->bits, err);
    if (s || q->bits == 4 || (q->bits == 8 && eight)) return s;
    if (!q->bits) return um_fail(err, UM_EPARSE, "%s: \"quantization_config\" lacks \"%s\"", where, key);
    snprintf(what, sizeof what, "%s with %d bits", method, q->bits);
    return um_quantized_refuse(where, what, err);
}

um_status um_quantized_group(um_quantized *q, const json_t *fields, const char *where, um_err *err) {
    int32_t n = -1;
    um_status s = um_json_get_int32(fields, "group_size", where, -1, INT32_MAX, &n, err);
    if (!s && !n) s = um_fail(err, UM_EPARSE, "%s: \"group_size\" must be -1 or at least 1, found 0", where);
    q->group = UM_MAX(n, 0);
    return s;
}

um_status um_quantized_block(um_quantized *q, const json_t *fields, const char *key, const char *where, um_err *err) {
    json_t *v = json_object_get(fields, key);
    if (!v || json_is_null(v)) return UM_OK;
    json_int_t rows = json_integer_value(json_array_get(v, 0)), cols = json_integer_value(json_array_get(v, 1));
    if (json_is_string(v)) {
        int n = 0, r = 0, c = 0;
        const char *text = json_string_value(v);
        if (strlen(text) < 16 && sscanf(text, "%6dx%6d%n", &r, &c, &n) == 2 && !text[n]) {
            rows = r;
            cols = c;
        }
    } else if (json_array_size(v) != 2) {
        rows = 0;
    }
    if (rows < 1 || cols < 1 || rows > INT32_MAX || cols > INT32_MAX)
        return um_fail(err, UM_EPARSE, "%s: \"%s\" must be two whole numbers of at least 1, such as [128, 128]", where,
                       key);
    q->block_rows = (int32_t)rows;
    q->block_cols = (int32_t)cols;
    return UM_OK;
}

/* ---- Methods ----------------------------------------------------------------------------------------------------- */

static um_status read_fp8(um_quantized *q, const json_t *fields, const char *where, um_err *err) {
    q->layout = &um_quantized_fp8;
    return um_quantized_block(q, fields, "weight_block_size", where, err);
}

/* Zeros are stored minus 1, except in version 2 of the format. The other values of "checkpoint_format" are layouts for
 * the kernels of one program. */
static um_status read_gptq(um_quantized *q, const json_t *fields, const char *where, um_err *err) {
    const char *format = "gptq";
    bool is_marlin = false;
    char what[64];
    q->layout = &um_quantized_gptq;
    um_status s = um_quantized_bits(q, fields, "bits", true, "gptq", where, err);
    if (!s) s = um_quantized_group(q, fields, where, err);
    if (!s) s = um_json_get_bool(fields, "desc_act", where, &q->is_reordered, err);
    if (!s) s = um_json_get_bool(fields, "is_marlin_format", where, &is_marlin, err);
    if (!s) s = um_json_get_str(fields, "checkpoint_format", where, &format, err);
    if (s) return s;
    if (is_marlin) format = "marlin";
    q->added = strcmp(format, "gptq_v2") ? 1 : 0;
    if (!strcmp(format, "gptq") || !q->added) return UM_OK;
    snprintf(what, sizeof what, "gptq with checkpoint_format %s", format);
    return um_quantized_refuse(where, what, err);
}

static um_status read_awq(um_quantized *q, const json_t *fields, const char *where, um_err *err) {
    const char *version = "gemm";
    char what[64];
    q->layout = &um_quantized_awq;
    um_status s = um_quantized_bits(q, fields, "bits", false, "awq", where, err);
    if (!s) s = um_quantized_group(q, fields, where, err);
    if (!s) s = um_json_get_str(fields, "version", where, &version, err);
    if (s || !strcasecmp(version, "gemm")) return s;
    snprintf(what, sizeof what, "awq of version %s", version);
    return um_quantized_refuse(where, what, err);
}

static const struct {
    const char *name;
    um_quantized_method read;
} methods[] = {
    {"fp8", read_fp8},
    {"gptq", read_gptq},
    {"awq", read_awq},
    {"compressed-tensors", um_quantized_compressed},
};

/* MLX names no method. It writes its fields under "quantization", and newer versions also under
 * "quantization_config". */
static bool is_mlx(const json_t *fields) {
    return json_is_integer(json_object_get(fields, "bits")) && !json_object_get(fields, "quant_method");
}

um_status um_quantized_read(um_quantized *q, const json_t *config, const char *where, um_err *err) {
    json_t *fields = json_object_get(config, "quantization_config");
    const char *method = NULL;
    *q = (um_quantized){0};
    if (is_mlx(json_object_get(config, "quantization")) || is_mlx(fields))
        return um_quantized_refuse(where, "MLX", err);
    if (!fields || json_is_null(fields)) return UM_OK;
    if (!json_is_object(fields)) return um_fail(err, UM_EPARSE, "%s: \"quantization_config\" must be an object", where);
    um_status s = um_json_get_str(fields, "quant_method", where, &method, err);
    if (s) return s;
    for (size_t i = 0; method && i < UM_LEN(methods); i++)
        if (!strcmp(method, methods[i].name)) return methods[i].read(q, fields, where, err);
    return um_quantized_refuse(where, method ? method : "an unnamed method", err);
}
