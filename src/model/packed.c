/* Reads packed folders (packed.h). The header is untrusted like that of every safetensors file. */
#include "model/packed.h"

#include <jansson.h>
#include <stdlib.h>

#include "ops/panels.h"

/* ---- One tensor -------------------------------------------------------------------------------------------------- */

/* Reads "4096x4096" or "8x64x4096" into the dimensions of t. Returns what follows, or NULL. */
static const char *read_dims(const char *text, um_tensor *t) {
    size_t elements = 1;
    for (t->n_dims = 0; t->n_dims < 3; text++) {
        char *end;
        const long long d = strtoll(text, &end, 10);
        if (end == text || *text < '0' || *text > '9' || d < 1 || d > INT32_MAX / 2) return NULL;
        if (!um_mul_ok(elements, (size_t)d, &elements) || elements > (size_t)1 << 48) return NULL;
        t->dim[t->n_dims++] = d;
        text = end;
        if (*text != 'x') break;
    }
    return t->n_dims >= 2 ? text : NULL;
}

/* Reads " 0123456789abcdef", the end of a text. */
static bool read_checksum(const char *text, uint64_t *out) {
    if (text[0] != ' ' || strlen(text) != 17) return false;
    *out = 0;
    for (const char *p = text + 1; *p; p++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = strchr(digits, *p);
        if (!digit) return false;
        *out = *out << 4 | (uint64_t)(digit - digits);
    }
    return true;
}

/* Reads the description of a matrix into t. */
static bool read_matrix(const char *text, um_tensor *t, uint64_t *checksum) {
    static const um_dtype types[] = {UM_F32, UM_BF16, UM_Q8, UM_Q4};
    static const char *const names[] = {"f32", "bf16", "q8", "q4"};
    for (size_t i = 0; i < UM_LEN(types); i++) {
        const size_t n = strlen(names[i]);
        if (strncmp(text, names[i], n) || text[n] != ' ') continue;
        const char *rest = read_dims(text + n + 1, t);
        t->type = UM_DTYPE_OTHER;
        t->format = um_panels_format(types[i]);
        return rest && read_checksum(rest, checksum);
    }
    return false;
}

/* Completes tensor i of the store, which has the type and shape of the safetensors header. */
static um_status complete(um_store *s, size_t i, const json_t *metadata, const char *path, um_err *err) {
    static const char numbers[] = UM_PACKED_NUMBERS;
    um_tensor *t = um_store_edit(s, i);
    const bool is_bytes = um_streq(um_store_type(t), "U8") && t->n_dims == 1;
    const char *text = json_string_value(json_object_get(metadata, t->name));
    const size_t stored = is_bytes ? (size_t)t->dim[0] : 0;
    uint64_t checksum = 0;
    if (!text) return um_fail(err, UM_EPARSE, "%s: the metadata do not describe tensor %s", path, t->name);
    const bool is_numbers = !strncmp(text, numbers, sizeof numbers - 1);
    const bool is_read = is_numbers ? read_checksum(text + sizeof numbers - 1, &checksum) && um_tensor_format(t)
                                    : is_bytes && read_matrix(text, t, &checksum);
    if (!is_read)
        return um_fail(err, UM_EPARSE, "%s: tensor %s: its description \"%.60s\" and type %s make no sense", path,
                       t->name, text, um_store_type(t));
    if (!is_numbers && um_tensor_bytes(t) != stored)
        return um_fail(err, UM_EPARSE, "%s: tensor %s: %.60s takes %zu bytes, found %zu", path, t->name, text,
                       um_tensor_bytes(t), stored);
    if (!is_numbers && (uintptr_t)t->data % UM_PACKED_ALIGN)
        return um_fail(err, UM_EPARSE, "%s: tensor %s does not begin at a multiple of %d bytes", path, t->name,
                       UM_PACKED_ALIGN);
    t->stays = !is_numbers;
    um_store_set_checksum(s, i, checksum);
    return UM_OK;
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

static um_status read_dtype(um_store *s, const json_t *metadata, const char *path, um_err *err) {
    const char *name = json_string_value(json_object_get(metadata, "dtype"));
    const um_dtype dtype = name && um_streq(name, um_dtype_name(UM_F32)) ? UM_F32 : UM_BF16;
    if (!name || !um_streq(name, um_dtype_name(dtype)))
        return um_fail(err, UM_EPARSE, "%s: the metadata name no \"dtype\", float32 or bfloat16", path);
    um_store_set_dtype(s, dtype);
    return UM_OK;
}

static um_status check_version(const json_t *metadata, const char *path, um_err *err) {
    const char *format = json_string_value(json_object_get(metadata, "format"));
    const char *version = json_string_value(json_object_get(metadata, "version"));
    if (!format || !um_streq(format, UM_PACKED_FORMAT) || !version)
        return um_fail(err, UM_EPARSE, "%s: the metadata name no format \"%s\" with a version", path, UM_PACKED_FORMAT);
    if (!um_streq(version, UM_PACKED_VERSION))
        return um_fail(err, UM_EUNSUPPORTED,
                       "%s has version %.20s of the packed format, this program reads version %s: write it again with "
                       "unmask quantize",
                       path, version, UM_PACKED_VERSION);
    return UM_OK;
}

um_status um_packed_parse(um_store *s, const uint8_t *data, size_t n, const char *path, um_err *err) {
    json_t *metadata = NULL;
    const size_t before = um_store_count(s);
    assert(!before); /* the tensors of the store are those of this file */
    um_status st = um_safetensors_parse(s, data, n, path, &metadata, err);
    if (!st) st = check_version(metadata, path, err);
    if (!st) st = read_dtype(s, metadata, path, err);
    for (size_t i = 0; i < um_store_count(s) && !st; i++) st = complete(s, i, metadata, path, err);
    json_decref(metadata);
    return st;
}

bool um_packed_exists(const char *dir) {
    char *path = um_path_join(dir, UM_PACKED_FILE);
    const bool exists = um_file_exists(path);
    um_free(path);
    return exists;
}

um_status um_packed_open(um_store *s, const char *dir, um_err *err) {
    char *path = um_path_join(dir, UM_PACKED_FILE);
    um_map map = {0};
    um_status st = um_map_open(&map, path, err);
    if (!st) st = um_packed_parse(s, map.data, map.size, path, err);
    if (!st) um_store_own_map(s, map);
    else um_map_close(&map);
    um_free(path);
    return st;
}
