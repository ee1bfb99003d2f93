/* Divides the prompts of a call among workers and joins the results. */
#include "server/workers/spread.h"

#include <jansson.h>

/* ---- Dividing ---------------------------------------------------------------------------------------------------- */

/* Returns the elements p, p + step, ... of a list. */
static json_t *every_nth(const json_t *list, size_t p, size_t step) {
    json_t *some = json_array();
    for (size_t i = p; i < json_array_size(list); i += step) json_array_append(some, json_array_get(list, i));
    return some;
}

static json_t *prompt_numbers(size_t n, size_t p, size_t step) {
    json_t *some = json_array();
    for (size_t i = p; i < n; i += step) json_array_append_new(some, json_integer((json_int_t)i));
    return some;
}

static void put_part(json_t *root, size_t p, size_t step, um_buf *out) {
    const json_t *prompts = json_object_get(root, "prompts"), *params = json_object_get(root, "params");
    json_t *part = json_copy(root);
    json_object_set_new(part, "prompts", every_nth(prompts, p, step));
    json_object_set_new(part, "numbers", prompt_numbers(json_array_size(prompts), p, step));
    if (json_is_array(params)) json_object_set_new(part, "params", every_nth(params, p, step));
    um_json_put_exact(part, out);
    json_decref(part);
}

int32_t um_spread_divide(um_str args, um_buf *part, int32_t n_parts) {
    json_t *root = NULL;
    if (um_json_parse_exact(&root, args.p, args.n, "arguments", NULL)) return 0;
    const json_t *prompts = json_object_get(root, "prompts"), *params = json_object_get(root, "params");
    const size_t n = json_array_size(prompts), k = UM_MIN(n, (size_t)UM_MAX(n_parts, 0));
    bool divides = k > 1 && (!json_is_array(params) || json_array_size(params) == n);
    for (size_t p = 0; divides && p < k; p++) put_part(root, p, k, &part[p]);
    json_decref(root);
    return divides ? (int32_t)k : 0;
}

/* ---- Joining ----------------------------------------------------------------------------------------------------- */

static um_status read_results(const um_buf *result, int32_t n, json_t **list, size_t *total, um_err *err) {
    *total = 0;
    for (int32_t p = 0; p < n; p++) {
        um_status st =
            um_json_parse_exact(&list[p], result[p].data ? result[p].data : "", result[p].len, "result", err);
        if (st) return um_fail_in(err, "part %d of the results", p), UM_EIO;
        *total += json_array_size(list[p]);
    }
    /* Prompt i is element i / n of part i % n. */
    for (int32_t p = 0; p < n; p++)
        if (json_array_size(list[p]) != (*total + (size_t)(n - 1 - p)) / (size_t)n)
            return um_fail(err, UM_EIO, "part %d of the results does not have one result per prompt", p);
    return UM_OK;
}

um_status um_spread_join(const um_buf *result, int32_t n_parts, um_buf *out, um_err *err) {
    json_t **list = UM_NEW_ARRAY(json_t *, (size_t)n_parts);
    size_t total, n = (size_t)n_parts;
    um_status st = read_results(result, n_parts, list, &total, err);
    if (!st) um_buf_putc(out, '[');
    for (size_t i = 0; !st && i < total; i++) {
        if (i) um_buf_putc(out, ',');
        um_json_put_exact(json_array_get(list[i % n], i / n), out);
    }
    if (!st) um_buf_putc(out, ']');
    for (size_t p = 0; p < n; p++) json_decref(list[p]);
    um_free(list);
    return st;
}
