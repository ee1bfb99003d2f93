/* JSON reading with jansson. Error messages have file, line, column and key. */
#include "base/base.h"

#include <jansson.h>
#include <stdlib.h>

#define FILE_MAX_BYTES ((size_t)512 << 20) /* the largest tokenizer.json files are below 50 MB */

um_status um_json_parse(json_t **out, const char *text, size_t len, const char *where, um_err *err) {
    json_error_t e;
    *out = json_loadb(len ? text : "", len, JSON_ALLOW_NUL, &e);
    if (*out) return UM_OK;
    return um_fail(err, UM_EPARSE, "%s:%d:%d: %s", where, UM_MAX(e.line, 1), UM_MAX(e.column, 0), e.text);
}

um_status um_json_load(json_t **out, const char *path, um_err *err) {
    um_buf text = {0};
    *out = NULL;
    um_status s = um_file_read_text(path, FILE_MAX_BYTES, &text, err);
    if (!s) s = um_json_parse(out, text.data, text.len, path, err);
    um_buf_free(&text);
    return s;
}

/* Returns the value of key, or NULL when it is missing or null. */
static const json_t *lookup(const json_t *obj, const char *key) {
    const json_t *v = json_object_get(obj, key);
    return json_is_null(v) ? NULL : v;
}

static um_status fail_type(um_err *err, const char *where, const char *key, const char *expected, const json_t *found) {
    if (json_is_object(found) || json_is_array(found))
        return um_fail(err, UM_EPARSE, "%s: \"%s\": expected %s, found an %s", where, key, expected,
                       json_is_object(found) ? "object" : "array");
    char *text = json_dumps(found, JSON_ENCODE_ANY);
    um_status s = um_fail(err, UM_EPARSE, "%s: \"%s\": expected %s, found %.60s", where, key, expected,
                          text ? text : "something else");
    free(text);
    return s;
}

um_status um_json_get_int(const json_t *obj, const char *key, const char *where, int64_t min, int64_t max, int64_t *out,
                          um_err *err) {
    const json_t *v = lookup(obj, key);
    if (!v) return UM_OK;
    int64_t n = json_integer_value(v);
    if (json_is_integer(v) && n >= min && n <= max) {
        *out = n;
        return UM_OK;
    }
    char expected[96];
    snprintf(expected, sizeof expected, "an integer %lld..%lld", (long long)min, (long long)max);
    return fail_type(err, where, key, expected, v);
}

um_status um_json_get_int32(const json_t *obj, const char *key, const char *where, int32_t min, int32_t max,
                            int32_t *out, um_err *err) {
    int64_t n = *out;
    um_status s = um_json_get_int(obj, key, where, min, max, &n, err);
    if (!s) *out = (int32_t)n;
    return s;
}

um_status um_json_get_double(const json_t *obj, const char *key, const char *where, double *out, um_err *err) {
    const json_t *v = lookup(obj, key);
    if (!v) return UM_OK;
    if (!json_is_number(v)) return fail_type(err, where, key, "a number", v);
    *out = json_number_value(v);
    return UM_OK;
}

um_status um_json_get_bool(const json_t *obj, const char *key, const char *where, bool *out, um_err *err) {
    const json_t *v = lookup(obj, key);
    if (!v) return UM_OK;
    if (!json_is_boolean(v)) return fail_type(err, where, key, "true or false", v);
    *out = json_is_true(v);
    return UM_OK;
}

/* Rejects a string that contains U+0000, because a C string would end there. Callers that accept U+0000 use jansson's
 * functions. */
um_status um_json_get_str(const json_t *obj, const char *key, const char *where, const char **out, um_err *err) {
    const json_t *v = lookup(obj, key);
    if (!v) return UM_OK;
    if (!json_is_string(v)) return fail_type(err, where, key, "a string", v);
    if (strlen(json_string_value(v)) != json_string_length(v))
        return fail_type(err, where, key, "a string without U+0000", v);
    *out = json_string_value(v);
    return UM_OK;
}
