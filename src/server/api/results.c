/* dLLM-Serve's API: /v1/generate and /v1/generate_batch submit requests, /v1/result/{id} returns their results. */
#include "server/api/result_store.h"

#include <inttypes.h>
#include <jansson.h>

#include "server/api/common.h"
#include "server/generate/intake.h"
#include "server/generate/quota.h"
#include "server/respond/access.h"

#define PROMPTS_MAX 4096
/* dLLM-Serve's defaults. */
#define DEFAULT_MAX_TOKENS  "32"
#define DEFAULT_TEMPERATURE "0"

/* The generation has ended and freed itself. This may happen inside `start` or `submit`, which use the result
 * afterwards. */
static void on_done(void *arg, int status, um_buf *json) { um_stored_finish(arg, status, json); }

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

static const char later[] = "results are fetched when they are ready; other APIs stream";

static const um_field rows[] = {
    {.name = "prompt", .take = um_body_take_prompt, .types = "string|array"},
    {.name = "gen_length", .option = "max_tokens"},
    {.name = "stream", .neutral = "false", .why = later},
    {.name = "stream_mode", .neutral = "null", .why = later},
    {.name = "stream_options", .neutral = "null", .why = later},
    {.name = "snapshot_interval", .neutral = "null", .why = later},
    {.name = "snapshot_max_hz", .neutral = "null", .why = later},
};
static const um_field_set result_rows = {rows, UM_LEN(rows)};
static const um_field_set *const sets[] = {&result_rows, &um_common_fields, NULL};

static um_status check(um_body *b, um_err *err) {
    um_status st = um_body_is_single(b, err);
    if (!st) st = um_body_default(b, "max_tokens", DEFAULT_MAX_TOKENS, err);
    return st ? st : um_body_default(b, "temperature", DEFAULT_TEMPERATURE, err);
}

static void whole(um_generation *g, um_jw *w) {
    um_choice *c = um_generation_choice(g, 0);
    um_jw_begin_object(w);
    um_jw_put_str(w, "text", c->result.text);
    um_jw_put_cstr(w, "finish_reason", um_finish_name((um_finish)c->result.finish));
    um_jw_put_int(w, "nfe", c->result.nfe);
    um_jw_put_int(w, "seed", c->result.seed);
    um_jw_key(w, "usage");
    um_put_usage(g, w);
    const um_tokens all = um_choice_tokens(c);
    if (um_generation_body(g)->top_logprobs >= 0) um_put_token_logprobs(w, "logprobs", &all);
    um_put_extras(g, c, w);
    um_jw_end_object(w);
}

static const um_response_writer writer = {.name = "results", .id_prefix = "unmask-", .whole = whole};

const um_api um_api_results = {"/v1/generate", sets, "prompt", UM_STREAM_BLOCK_APPEND, check, &writer, NULL};

/* ---- Submitting -------------------------------------------------------------------------------------------------- */

/* Adds a result. Its id is a random number, so that a client can't guess the ids of others. */
static um_stored *result_new(um_result_store *r, const um_exchange *x) {
    char id[32];
    um_stored *e;
    do {
        snprintf(id, sizeof id, "%" PRId64, um_make_number());
        e = um_stored_add(r, id, um_key_owner(um_access_record_key(x)));
    } while (!e);
    return e;
}

static void reply_submitted(um_exchange *x, um_stored *const *e, size_t n) {
    um_buf body = {0};
    um_jw w;
    um_jw_init(&w, &body);
    um_jw_begin_object(&w);
    um_jw_key(&w, "request_ids");
    um_jw_begin_array(&w);
    for (size_t i = 0; i < n; i++) um_jw_raw(&w, e[i]->id, strlen(e[i]->id));
    um_jw_end_array(&w);
    um_jw_put_cstr(&w, "status", "submitted");
    um_jw_end_object(&w);
    um_reply_json(x, 200, &body);
    um_buf_free(&body);
}

/* Starts n requests, or none if one is refused. A request that a worker refuses later has the status "failed". */
static void submit(um_service *s, um_exchange *x, um_body *b, size_t n) {
    um_stored **e = UM_NEW_ARRAY(um_stored *, n);
    size_t n_started = 0;
    um_access_record_set_model(x, um_setup_model_name(&s->setup));
    for (; n_started < n; n_started++) {
        e[n_started] = result_new(s->setup.results, x);
        e[n_started]->generation = um_generation_start_detached(s, &b[n_started], &writer, on_done, e[n_started]);
        if (!e[n_started]->generation) break;
    }
    bool is_limited = n_started < n && e[n_started]->status == 429;
    um_quota_put_tokens(um_access_record_key(x), x, is_limited);
    if (n_started == n) {
        reply_submitted(x, e, n);
    } else {
        if (!um_exchange_has_header(x, "Retry-After")) um_exchange_add_header(x, "Retry-After", "1");
        um_reply_json(x, e[n_started]->status, &e[n_started]->json);
        for (size_t i = 0; i <= n_started; i++) um_stored_remove(e[i]);
    }
    um_free(e);
}

static um_status read_single(um_intake *r, um_err *err) { return um_intake_read_api(r, &um_api_results, err); }

static void submit_single(um_intake *r) { submit(r->service, r->x, &r->body, 1); }

static void post_generate(um_service *s, um_exchange *x, const char *id) {
    static const um_intake_handler handler = {.read = read_single, .respond = submit_single, .generates = true};
    (void)id;
    um_intake_start(s, x, &handler, NULL);
}

/* Reads the body for one of its prompts, which becomes its field `prompt`. */
static um_status read_one(um_intake *r, const json_t *prompt, um_body *b, um_err *err) {
    json_t *one = json_copy(r->root);
    json_object_del(one, "prompts");
    json_object_set(one, "prompt", (json_t *)(uintptr_t)prompt);
    return um_intake_read_body(r, &um_api_results, one, b, err);
}

static um_status read_prompts(um_intake *r, um_err *err) {
    const json_t *prompts = json_object_get(r->root, "prompts");
    size_t n = json_array_size(prompts);
    if (json_object_get(r->root, "prompt"))
        return um_fail_param(err, UM_EINVAL, "prompt",
                             "expected \"prompts\", a list; /v1/generate takes a single prompt");
    if (!json_is_array(prompts) || !n || n > PROMPTS_MAX)
        return um_fail_param(err, UM_EINVAL, "prompts", "expected an array of 1 to %d texts, found %s", PROMPTS_MAX,
                             um_json_kind(prompts));
    um_status st = um_check_queue_limit(&r->capacity, n, "prompts", err);
    if (st) return st;
    r->bodies = UM_NEW_ARRAY(um_body, n);
    for (; r->n_bodies < n; r->n_bodies++) {
        st = read_one(r, json_array_get(prompts, r->n_bodies), &r->bodies[r->n_bodies], err);
        if (st && um_streq(err->param, "prompt")) snprintf(err->param, sizeof err->param, "prompts");
        if (st) return um_fail_in(err, "prompt %zu", r->n_bodies++);
    }
    return UM_OK;
}

static void submit_prompts(um_intake *r) { submit(r->service, r->x, r->bodies, r->n_bodies); }

static void post_batch(um_service *s, um_exchange *x, const char *id) {
    static const um_intake_handler handler = {.read = read_prompts, .respond = submit_prompts, .generates = true};
    (void)id;
    um_intake_start(s, x, &handler, NULL);
}

/* ---- Fetching ---------------------------------------------------------------------------------------------------- */

/* Finds the result of an id. If there is none, responds with 404 and returns NULL. */
static um_stored *find(um_service *s, um_exchange *x, const char *text) {
    int64_t id = 0;
    um_stored *e = um_parse_int(text, &id) ? um_stored_find(s->setup.results, text, um_access_record_key(x)) : NULL;
    if (!e)
        um_reply_error(x, 404, "id", NULL, "Request ID not found: \"%.40s\" is unknown, or its result has expired",
                       text);
    return e;
}

static const char *status_of(const um_stored *e) {
    if (e->generation) return "running";
    return e->status < 400 ? "finished" : "failed";
}

/* Responds with request_id and status, followed by the members of the stored response. */
static void get_result(um_service *s, um_exchange *x, const char *id) {
    um_stored *e = find(s, x, id);
    um_buf body = {0};
    if (!e) return;
    um_buf_printf(&body, "{\"request_id\":%s,\"status\":\"%s\"", e->id, status_of(e));
    if (e->generation || e->status >= 400) um_buf_puts(&body, ",\"text\":null");
    if (e->generation) um_buf_putc(&body, '}');
    else um_buf_printf(&body, ",%s", e->json.data + 1);
    um_reply_json(x, 200, &body);
    um_buf_free(&body);
}

static void delete_result(um_service *s, um_exchange *x, const char *id) {
    um_stored *e = find(s, x, id);
    um_buf body = {0};
    if (!e) return;
    um_buf_printf(&body, "{\"request_id\":%s,\"status\":\"%s\"}", e->id, e->generation ? "aborted" : "forgotten");
    um_stored_remove(e);
    um_reply_json(x, 200, &body);
    um_buf_free(&body);
}

/* ---- Endpoints --------------------------------------------------------------------------------------------------- */

static const um_endpoint endpoints[] = {
    {"POST", "/v1/generate", post_generate, UM_ENDPOINT_WAITS, "dLLM-Serve",
     "submit a prompt and fetch its result later"},
    {"POST", "/v1/generate_batch", post_batch, UM_ENDPOINT_WAITS, "dLLM-Serve", "submit several prompts"},
    {"GET", "/v1/result/{id}", get_result, 0, "dLLM-Serve",
     "return the status of a request, and its text when finished"},
    {"DELETE", "/v1/result/{id}", delete_result, 0, "unmask", "abort a request, or delete its result"},
};
const um_endpoint_set um_results_endpoints = {endpoints, UM_LEN(endpoints)};
