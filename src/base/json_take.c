/* Checked values of requests: the type and range of JSON values, and the messages for invalid ones. */
#include <jansson.h>
#include <stdlib.h>

#include "base/base.h"

const char *um_json_kind(const json_t *v) {
    static const char *const name[] = {"an object", "an array",      "a string",      "an integer",
                                       "a number",  "true or false", "true or false", "null"};
    if (um_json_big_integer(v).p) return "an integer beyond 64 bits";
    return v ? name[json_typeof(v)] : "nothing";
}

um_status um_json_take_text(const json_t *v, const char *what, const char **out, um_err *err) {
    if (!json_is_string(v)) return um_fail(err, UM_EINVAL, "%s: expected a string, found %s", what, um_json_kind(v));
    if (strlen(json_string_value(v)) != json_string_length(v))
        return um_fail(err, UM_EINVAL, "%s: expected a string without U+0000", what);
    *out = json_string_value(v);
    return UM_OK;
}

um_status um_json_take_bool(const json_t *v, const char *what, bool *out, um_err *err) {
    if (!json_is_boolean(v))
        return um_fail(err, UM_EINVAL, "%s: expected true or false, found %s", what, um_json_kind(v));
    *out = json_is_true(v);
    return UM_OK;
}

um_status um_json_take_int(const json_t *v, const char *what, int64_t min, int64_t max, int64_t *out, um_err *err) {
    if (!json_is_integer(v)) return um_fail(err, UM_EINVAL, "%s: expected an integer, found %s", what, um_json_kind(v));
    int64_t value = json_integer_value(v);
    if (value < min || value > max)
        return um_fail(err, UM_ERANGE, "%s: %lld is outside %lld..%lld", what, (long long)value, (long long)min,
                       (long long)max);
    *out = value;
    return UM_OK;
}

um_status um_json_take_ids(const json_t *v, const char *what, int32_t *out, um_err *err) {
    if (!json_is_array(v))
        return um_fail(err, UM_EINVAL, "%s: expected an array of integers, found %s", what, um_json_kind(v));
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *id = json_array_get(v, i);
        if (!json_is_integer(id))
            return um_fail(err, UM_EINVAL, "%s[%zu]: expected an integer, found %s", what, i, um_json_kind(id));
        if (json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
            return um_fail(err, UM_ERANGE, "%s[%zu]: %lld is not a token id", what, i,
                           (long long)json_integer_value(id));
        out[i] = (int32_t)json_integer_value(id);
    }
    return UM_OK;
}

/* ---- Options ----------------------------------------------------------------------------------------------------- */

/* Returns whether the JSON type matches the option: the string "7" is not a number. The row's word for its automatic
 * value, usually "auto", is allowed for every type. */
static bool type_fits(const um_option *row, const json_t *v) {
    if (json_is_string(v) && um_option_is_auto(row, json_string_value(v))) return true;
    switch (row->type) {
    case UM_OPT_BOOL: return json_is_boolean(v);
    case UM_OPT_INT:
    case UM_OPT_INT64:
    case UM_OPT_FLOAT: return json_is_number(v);
    case UM_OPT_NAME:
    case UM_OPT_CHOICE:
    case UM_OPT_STR: return json_is_string(v);
    }
    return false;
}

/* Fails for a value of the wrong type. The message has the type and the range that the row accepts. */
static um_status fail_type(const um_option *row, const char *label, const json_t *v, um_err *err) {
    static const char *const types[] = {"true or false", "an integer", "an integer", "a number",
                                        "a string",      "a string",   "a string"};
    um_buf range = {0};
    um_str word = um_option_auto(row);
    um_option_range(row, &range);
    if (!range.len && word.n) um_buf_printf(&range, "also \"%.*s\"", (int)word.n, word.p);
    char *value = json_is_array(v) || json_is_object(v) ? NULL : json_dumps(v, JSON_ENCODE_ANY);
    um_status st = um_fail(err, UM_EINVAL, "\"%.80s\": expected %s%s%s%s, found %s%s%.60s", label, types[row->type],
                           range.len ? " (" : "", range.len ? range.data : "", range.len ? ")" : "", um_json_kind(v),
                           value ? " " : "", value ? value : "");
    free(value); /* allocated by jansson */
    um_buf_free(&range);
    return um_fail_about(err, st, row->name);
}

um_status um_option_json_text(const um_option *row, const char *label, const json_t *v, char number[UM_NUMBER_MAX],
                              const char **text, um_err *err) {
    if (!type_fits(row, v)) return fail_type(row, label, v, err);
    *text = json_is_true(v) ? "true" : "false";
    if (json_is_string(v)) return um_json_take_text(v, "a parameter", text, err);
    if (!json_is_number(v)) return UM_OK;
    if (json_is_integer(v)) snprintf(number, UM_NUMBER_MAX, "%lld", (long long)json_integer_value(v));
    else um_format_double(json_real_value(v), number);
    *text = number;
    return UM_OK;
}
