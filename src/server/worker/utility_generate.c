/* The utility run_diffusion_generation: submits a list of prompts at once, and returns all answers when the last one
 * has ended. */
#include <jansson.h>

#include "server/worker/internal.h"

typedef struct batch batch;

typedef struct item {
    batch *batch;
    int64_t id;    /* request number of the router; 0: ended or never submitted */
    um_buf result; /* JSON */
} item;

struct batch {
    um_worker *worker;
    uint64_t call_id;
    size_t n, left;     /* number of items, and of the items that have not ended */
    bool is_aborted;    /* a prompt was refused, and the error is returned by `run` */
    bool device_failed; /* no result is returned: the frontend fails the call when the worker ends */
    item item[];
};

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* Writes a log-probability. JSON has no minus infinity, the logarithm of 0, so that becomes null. */
static void put_logprob(um_jw *j, int32_t id, float logprob) {
    um_jw_put_int(j, "token_id", id);
    um_jw_key(j, "logprob");
    um_jw_float(j, logprob);
}

static void put_likeliest(um_jw *j, const um_logprob *top, int32_t n) {
    um_jw_key(j, "top");
    um_jw_begin_array(j);
    for (int32_t k = 0; k < n && top[k].id >= 0; k++) {
        um_jw_begin_object(j);
        put_logprob(j, top[k].id, top[k].logprob);
        um_jw_end_object(j);
    }
    um_jw_end_array(j);
}

/* Writes log-probabilities in the form of POST /generate. */
static void put_logprobs(um_jw *j, const um_result *r) {
    um_jw_key(j, "logprobs");
    um_jw_begin_array(j);
    for (size_t i = 0; i < r->n_tokens; i++) {
        um_jw_begin_object(j);
        put_logprob(j, r->token_ids[i], r->logprob[i]);
        put_likeliest(j, r->likeliest + i * (size_t)r->n_likeliest, r->likeliest ? r->n_likeliest : 0);
        um_jw_end_object(j);
    }
    um_jw_end_array(j);
}

static void put_result(const um_result *r, um_buf *out) {
    um_jw j;
    um_jw_init(&j, out);
    um_jw_begin_object(&j);
    um_jw_put_str(&j, "text", (um_str){r->text, r->text_len});
    um_jw_put_ints(&j, "token_ids", r->token_ids, r->n_tokens);
    um_jw_put_cstr(&j, "finish_reason", um_finish_name(r->finish));
    um_jw_put_int(&j, "nfe", r->nfe);
    um_jw_put_int(&j, "prompt_tokens", r->prompt_tokens);
    um_jw_put_int(&j, "seed", r->seed);
    if (r->logprob) put_logprobs(&j, r);
    um_jw_end_object(&j);
}

static void put_items(const batch *b, um_buf *out) {
    um_jw j;
    um_jw_init(&j, out);
    um_jw_begin_array(&j);
    for (size_t i = 0; i < b->n; i++) um_jw_raw(&j, b->item[i].result.data, b->item[i].result.len);
    um_jw_end_array(&j);
}

static void free_batch(batch *b) {
    for (size_t i = 0; i < b->n; i++) um_buf_free(&b->item[i].result);
    um_free(b);
}

static void send_items(const batch *b) {
    um_buf json = {0};
    put_items(b, &json);
    um_worker_return(b->worker, b->call_id, (um_str){json.data, json.len}, NULL);
    um_buf_free(&json);
}

static void on_event(void *arg, const um_event *ev) {
    item *i = (item *)arg;
    batch *b = i->batch;
    if (ev->type != UM_EVENT_FINISH) return;
    i->id = 0;
    put_result(ev->result, &i->result);
    b->device_failed |= um_worker_is_device_failure(b->worker, ev->result);
    if (--b->left > 0 || b->is_aborted) return;
    if (!b->device_failed) send_items(b);
    free_batch(b);
}

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

/* Reads a JSON array of token ids into the arena. */
static um_status read_ids(um_arena *arena, const json_t *list, const char *name, const int32_t **out, size_t *n,
                          um_err *err) {
    int32_t *id = (int32_t *)um_arena_alloc(arena, um_mul(json_array_size(list), sizeof *id));
    *n = json_array_size(list);
    *out = id;
    for (size_t i = 0; i < *n; i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t x = json_is_integer(v) ? json_integer_value(v) : -1;
        if (x < 0 || x > INT32_MAX)
            return um_fail_param(err, UM_EINVAL, name,
                                 "element %zu is not a token id: expected an integer of 0 or more", i);
        id[i] = (int32_t)x;
    }
    return UM_OK;
}

static um_status read_prompt(um_worker *w, const json_t *v, um_request *r, um_err *err) {
    if (json_is_string(v)) {
        r->text = json_string_value(v);
        r->text_len = json_string_length(v);
        return UM_OK;
    }
    if (json_is_array(v)) return read_ids(&w->command, v, "prompts", &r->ids, &r->n_ids, err);
    return um_fail_param(err, UM_EINVAL, "prompts", "expected a text or a list of token ids for each prompt");
}

/* Returns a text; NULL: not a text, or it contains U+0000, which the engine's texts can't hold. */
static const char *plain_text(const json_t *v) {
    const char *s = json_string_value(v);
    return s && strlen(s) == json_string_length(v) ? s : NULL;
}

static um_status read_stops(um_worker *w, const json_t *v, um_request *r, um_err *err) {
    bool is_list = json_is_array(v);
    size_t n = is_list ? json_array_size(v) : 1;
    const char **stop = (const char **)um_arena_alloc(&w->command, um_mul(n, sizeof *stop));
    for (size_t i = 0; i < n; i++) {
        stop[i] = plain_text(is_list ? json_array_get(v, i) : v);
        if (!stop[i])
            return um_fail_param(err, UM_EINVAL, "stop", "expected a text or a list of texts, without U+0000");
    }
    r->stop = stop;
    r->n_stop = n;
    return UM_OK;
}

/* Sets a parameter by the name of its option. null leaves the default. */
static um_status set_option(const char *name, const json_t *v, um_request *r, um_err *err) {
    char text[UM_NUMBER_MAX];
    if (json_is_null(v)) return UM_OK;
    if (plain_text(v)) return um_request_set(r, name, plain_text(v), err);
    if (json_is_boolean(v)) return um_request_set(r, name, json_is_true(v) ? "true" : "false", err);
    if (json_is_integer(v)) snprintf(text, sizeof text, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v)) um_format_double(json_real_value(v), text);
    else return um_fail_param(err, UM_EINVAL, name, "expected a number, a text, true or false");
    return um_request_set(r, name, text, err);
}

static um_status set_parameter(um_worker *w, const char *name, const json_t *v, um_request *r, um_err *err) {
    if (um_streq(name, "stop")) return read_stops(w, v, r, err);
    if (um_streq(name, "stop_token_ids")) return read_ids(&w->command, v, name, &r->stop_ids, &r->n_stop_ids, err);
    if (!um_streq(name, "adapter")) return set_option(name, v, r, err);
    r->adapter = plain_text(v);
    return r->adapter ? UM_OK : um_fail_param(err, UM_EINVAL, "adapter", "expected the name of an adapter");
}

static um_status set_parameters(um_worker *w, const json_t *params, um_request *r, um_err *err) {
    const char *name;
    json_t *v;
    um_status st = UM_OK;
    if (!json_is_object(params)) return um_fail_param(err, UM_EINVAL, "params", "expected an object of parameters");
    json_object_foreach((json_t *)(uintptr_t)params, name, v) {
        st = um_fail_about(err, set_parameter(w, name, v, r, err), name);
        if (st) return st;
    }
    return st;
}

static um_status submit_item(um_worker *w, const json_t *prompt, const json_t *params, item *i, um_err *err) {
    um_request r;
    um_request_init(um_router_engine(w->router, 0), &r);
    um_status st = read_prompt(w, prompt, &r, err);
    if (!st && params) st = set_parameters(w, params, &r, err);
    r.events = UM_EVENT_FINISH;
    r.on_event = on_event;
    r.arg = i;
    if (!st) st = um_router_add(w->router, &r, &i->id, err);
    return st;
}

static um_status check(const json_t *args, um_err *err) {
    const json_t *prompts = json_object_get(args, "prompts"), *params = json_object_get(args, "params"),
                 *numbers = json_object_get(args, "numbers");
    if (!json_is_array(prompts) || json_array_size(prompts) == 0)
        return um_fail_param(err, UM_EINVAL, "prompts", "expected a list of texts or lists of token ids");
    if (json_is_array(params) && json_array_size(params) != json_array_size(prompts))
        return um_fail_param(err, UM_EINVAL, "params",
                             "%zu sets of parameters for %zu prompts; give one, or one for each",
                             json_array_size(params), json_array_size(prompts));
    if (numbers && json_array_size(numbers) != json_array_size(prompts))
        return um_fail_param(err, UM_EINVAL, "numbers", "expected a list with a number for each prompt");
    return UM_OK;
}

/* Returns the number of a prompt in the caller's list, whose other prompts may run on other workers. */
static long long prompt_number(const json_t *args, size_t i) {
    const json_t *numbers = json_object_get(args, "numbers");
    return numbers ? json_integer_value(json_array_get(numbers, i)) : (long long)i;
}

/* Submits all prompts, or none if one of them is refused. */
static um_status run(um_worker *w, uint64_t call_id, const json_t *args, um_buf *result, bool *later, um_err *err) {
    (void)result;
    const json_t *prompts = json_object_get(args, "prompts"), *params = json_object_get(args, "params");
    um_status st = check(args, err);
    if (st) return st;
    size_t n = json_array_size(prompts);
    batch *b = (batch *)um_zalloc(sizeof(batch) + um_mul(n, sizeof(item)));
    *b = (batch){.worker = w, .call_id = call_id, .n = n, .left = n};
    for (size_t i = 0; i < n && !st; i++) {
        const json_t *own = json_is_array(params) ? json_array_get(params, i) : params;
        b->item[i].batch = b;
        st = submit_item(w, json_array_get(prompts, i), own, &b->item[i], err);
        if (st) (void)um_fail_in(err, "prompt %lld", prompt_number(args, i));
    }
    *later = !st;
    if (!st) return UM_OK;
    b->is_aborted = true;
    for (size_t i = 0; i < n; i++)
        if (b->item[i].id) (void)um_router_abort(w->router, b->item[i].id, NULL);
    free_batch(b);
    return st;
}

const um_utility um_utility_generate = {
    "run_diffusion_generation",
    "{prompts: [text or ids, ...], params: {...} or [{...}, ...], numbers: [number of the prompt in error messages, "
    "...]}",
    "generates an answer for each prompt: [{text, token_ids, finish_reason, nfe, prompt_tokens, seed, logprobs if "
    "requested}, ...]",
    "prompts|params|numbers", run};
