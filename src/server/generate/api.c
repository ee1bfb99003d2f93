/* Reads a request's JSON into a checked and encoded body. */
#include "server/generate/api.h"

um_status um_check_queue_limit(const um_capacity *c, size_t n, const char *field, um_err *err) {
    int32_t limit = c->max_queue;
    if (!limit || n <= (size_t)limit) return UM_OK;
    return um_fail_param(err, UM_ERANGE, field,
                         "%zu prompts, but the server has %d places (--max-queue); split the request", n, limit);
}

um_status um_api_read(const um_api *a, const um_setup *setup, const um_capacity *capacity, struct json_t *root,
                      um_body *b, um_err *err) {
    um_status st = um_body_read(b, setup, capacity, root, a->sets, err);
    if (!st && !b->n_prompts)
        st = um_fail_about(err, um_fail(err, UM_EINVAL, "\"%s\" is missing", a->prompt), a->prompt);
    if (!st) st = um_check_queue_limit(capacity, b->n_prompts, b->prompt_name ? b->prompt_name : a->prompt, err);
    if (!st && !um_body_has(b, "stream_mode")) b->stream_mode = a->stream_mode;
    if (!st && a->check) st = a->check(b, err);
    if (!st) st = um_body_check_constraint(b, err);
    if (!st) st = um_body_encode(b, err);
    return st ? st : um_body_check(b, err);
}
