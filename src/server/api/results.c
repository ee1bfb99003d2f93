/* /v1/generate, /v1/generate_batch and /v1/result/{id}, as dLLM-Serve has them. */
#include "server/api/results.h"

#include <event2/event.h>
#include <inttypes.h>
#include <jansson.h>

#include "server/api/shapes.h"
#include "server/frontend.h"
#include "server/reading.h"

#define BUCKETS     1024
#define PROMPTS_MAX 4096
/* Defaults of the API that this one is compatible with. */
#define TOKENS      "32"
#define TEMPERATURE "0"

/* ---- The store --------------------------------------------------------------------------------------------------- */

typedef struct entry {
    um_results *owner;
    int64_t id;
    struct entry *next;          /* in its bucket */
    struct entry *older, *newer; /* among those that are finished */
    um_turn *turn;               /* NULL: it is finished */
    int status;                  /* of the answer */
    um_buf json;                 /* of an object */
    double finished;
} entry;

struct um_results {
    um_server *server;
    struct event *timer; /* when the oldest result goes */
    int64_t last;        /* number that was given */
    entry *bucket[BUCKETS];
    entry *oldest, *newest;
    int32_t n_finished;
};

static entry **place_of(um_results *r, int64_t id) {
    entry **at = &r->bucket[(uint64_t)id % BUCKETS];
    while (*at && (*at)->id != id) at = &(*at)->next;
    return at;
}

static void unlink_finished(um_results *r, entry *e) {
    if (e->older) e->older->newer = e->newer;
    else r->oldest = e->newer;
    if (e->newer) e->newer->older = e->older;
    else r->newest = e->older;
    r->n_finished--;
}

static void forget(entry *e) {
    um_results *r = e->owner;
    *place_of(r, e->id) = e->next;
    if (e->turn) um_turn_cancel(e->turn);
    else unlink_finished(r, e);
    um_buf_free(&e->json);
    um_free(e);
}

static double seconds_left(const um_results *r) {
    return r->oldest->finished + um_server_get_config(r->server)->result_ttl - um_now();
}

/* Drops what is too old or too much, and sets the timer for the next one. */
static void expire(um_results *r) {
    const um_server_config *c = um_server_get_config(r->server);
    while (r->oldest && (r->n_finished > c->result_max || seconds_left(r) <= 0)) forget(r->oldest);
    if (!r->oldest) return;
    struct timeval t = {(time_t)seconds_left(r) + 1, 0};
    event_add(r->timer, &t);
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    expire(arg);
}

static um_results *results_of(um_server *s) {
    if (s->results) return s->results;
    um_results *r = s->results = UM_NEW(um_results);
    r->server = s;
    r->timer = evtimer_new(um_server_base(s), on_timer, r);
    return r;
}

void um_results_free(um_results *r) {
    if (!r) return;
    for (size_t i = 0; i < BUCKETS; i++)
        while (r->bucket[i]) forget(r->bucket[i]);
    event_free(r->timer);
    um_free(r);
}

/* The turn is gone. Nothing is dropped here but others: the caller may still look at this one. */
static void on_done(void *arg, int status, um_buf *json) {
    entry *e = arg;
    um_results *r = e->owner;
    e->turn = NULL;
    e->status = status;
    e->json = *json;
    *json = (um_buf){0};
    e->finished = um_now();
    e->older = r->newest;
    if (e->older) e->older->newer = e;
    else r->oldest = e;
    r->newest = e;
    r->n_finished++;
    expire(r);
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

static const char later[] = "the result is fetched when it is there; other APIs stream";

static const um_field rows[] = {
    {.name = "prompt", .take = um_body_take_prompt},
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
    if (!st) st = um_body_default(b, "max_tokens", TOKENS, err);
    return st ? st : um_body_default(b, "temperature", TEMPERATURE, err);
}

static void whole(um_turn *t, um_jw *w) {
    um_choice *c = um_turn_choice(t, 0);
    um_jw_begin_object(w);
    um_jw_put_str(w, "text", c->result.text);
    um_jw_put_cstr(w, "finish_reason", um_finish_name((um_finish)c->result.finish));
    um_jw_put_int(w, "nfe", c->result.nfe);
    um_jw_put_int(w, "seed", c->result.seed);
    um_jw_key(w, "usage");
    um_put_usage(t, w);
    const um_tokens all = um_choice_tokens(c);
    if (um_turn_body(t)->top_logprobs >= 0) um_put_token_logprobs(w, "logprobs", &all);
    um_put_extras(t, c, w);
    um_jw_end_object(w);
}

static const um_shape shape = {.name = "results", .id_prefix = "unmask-", .whole = whole};

static const um_api api = {"/v1/generate", sets, "prompt", UM_STREAM_BLOCK_APPEND, check, &shape};

/* ---- Submitting -------------------------------------------------------------------------------------------------- */

/* False: it could not even wait. */
static bool start(um_results *r, um_body *b) {
    entry *e = UM_NEW(entry), **place = place_of(r, ++r->last);
    *e = (entry){.owner = r, .id = r->last};
    *place = e;
    e->turn = um_turn_detached(r->server, b, &shape, on_done, e);
    return e->turn != NULL;
}

static void reply_submitted(um_exchange *x, int64_t first, int64_t last) {
    um_buf body = {0};
    um_jw w;
    um_jw_init(&w, &body);
    um_jw_begin_object(&w);
    um_jw_key(&w, "request_ids");
    um_jw_begin_array(&w);
    for (int64_t id = first; id <= last; id++) um_jw_int(&w, id);
    um_jw_end_array(&w);
    um_jw_put_cstr(&w, "status", "submitted");
    um_jw_end_object(&w);
    um_reply_json(x, 200, &body);
    um_buf_free(&body);
}

/* Starts n requests, all or none of them. What a worker refuses later is a result that has failed. */
static void submit(um_server *s, um_exchange *x, um_body *b, size_t n) {
    um_results *r = results_of(s);
    int64_t first = r->last + 1;
    bool started = true;
    um_note_model(x, um_server_model_name(s));
    for (size_t i = 0; i < n && started; i++) started = start(r, &b[i]);
    if (started) {
        reply_submitted(x, first, r->last);
        return;
    }
    const entry *refused = *place_of(r, r->last);
    um_exchange_add_header(x, "Retry-After", "1");
    um_reply_json(x, refused->status, &refused->json);
    for (; first <= r->last; first++) forget(*place_of(r, first));
}

static um_status read_single(um_reading *r, um_err *err) { return um_read_api(r, &api, err); }

static void submit_single(um_reading *r) { submit(r->server, r->x, &r->body, 1); }

static void post_generate(um_server *s, um_exchange *x, const char *id) {
    static const um_reader reader = {.read = read_single, .answer = submit_single, .generates = true};
    (void)id;
    um_read(s, x, &reader, NULL);
}

/* The body with one of the prompts in place of all. */
static um_status read_one(um_reading *r, const json_t *prompt, um_body *b, um_err *err) {
    json_t *one = json_copy(r->root);
    json_object_del(one, "prompts");
    json_object_set(one, "prompt", (json_t *)(uintptr_t)prompt);
    return um_read_body(r, &api, one, b, err);
}

static um_status read_prompts(um_reading *r, um_err *err) {
    const json_t *prompts = json_object_get(r->root, "prompts");
    size_t n = json_array_size(prompts);
    if (json_object_get(r->root, "prompt"))
        return um_fail_param(err, UM_EINVAL, "prompt", "expected prompts, a list; /v1/generate takes one");
    if (!json_is_array(prompts) || !n || n > PROMPTS_MAX)
        return um_fail_param(err, UM_EINVAL, "prompts", "expected an array of 1 to %d texts, found %s", PROMPTS_MAX,
                             um_json_kind(prompts));
    um_status st = um_check_place(r->server, n, "prompts", err);
    if (st) return st;
    r->bodies = UM_NEW_ARRAY(um_body, n);
    for (; r->n_bodies < n; r->n_bodies++) {
        st = read_one(r, json_array_get(prompts, r->n_bodies), &r->bodies[r->n_bodies], err);
        if (st && um_streq(err->param, "prompt")) snprintf(err->param, sizeof err->param, "prompts");
        if (st) return um_fail_in(err, "prompt %zu", r->n_bodies++);
    }
    return UM_OK;
}

static void submit_prompts(um_reading *r) { submit(r->server, r->x, r->bodies, r->n_bodies); }

static void post_batch(um_server *s, um_exchange *x, const char *id) {
    static const um_reader reader = {.read = read_prompts, .answer = submit_prompts, .generates = true};
    (void)id;
    um_read(s, x, &reader, NULL);
}

/* ---- Fetching ---------------------------------------------------------------------------------------------------- */

/* Answers 404 when there is none. */
static entry *find(um_server *s, um_exchange *x, const char *text) {
    int64_t id = 0;
    entry *e = NULL;
    if (um_parse_int(text, &id) && s->results) {
        expire(s->results);
        e = *place_of(s->results, id);
    }
    if (!e)
        um_reply_error(x, 404, "id", NULL, "Request ID not found: \"%.40s\" was never given, or its result is gone",
                       text);
    return e;
}

static const char *status_of(const entry *e) {
    if (e->turn) return "running";
    return e->status < 400 ? "finished" : "failed";
}

/* The members of what was kept go on behind ours. */
static void get_result(um_server *s, um_exchange *x, const char *id) {
    entry *e = find(s, x, id);
    um_buf body = {0};
    if (!e) return;
    um_buf_printf(&body, "{\"request_id\":%" PRId64 ",\"status\":\"%s\"", e->id, status_of(e));
    if (e->turn || e->status >= 400) um_buf_puts(&body, ",\"text\":null");
    if (e->turn) um_buf_putc(&body, '}');
    else um_buf_printf(&body, ",%s", e->json.data + 1);
    um_reply_json(x, 200, &body);
    um_buf_free(&body);
}

static void delete_result(um_server *s, um_exchange *x, const char *id) {
    entry *e = find(s, x, id);
    um_buf body = {0};
    if (!e) return;
    um_buf_printf(&body, "{\"request_id\":%" PRId64 ",\"status\":\"%s\"}", e->id, e->turn ? "aborted" : "forgotten");
    forget(e);
    um_reply_json(x, 200, &body);
    um_buf_free(&body);
}

/* ---- Endpoints --------------------------------------------------------------------------------------------------- */

static const um_endpoint endpoints[] = {
    {"POST", "/v1/generate", post_generate, UM_ENDPOINT_WAITS, "dLLM-Serve", "submits a prompt; its result is fetched"},
    {"POST", "/v1/generate_batch", post_batch, UM_ENDPOINT_WAITS, "dLLM-Serve", "submits several"},
    {"GET", "/v1/result/{id}", get_result, 0, "dLLM-Serve", "running, or finished with its text"},
    {"DELETE", "/v1/result/{id}", delete_result, 0, "unmask", "aborts a request, or forgets its result"},
};
const um_endpoint_set um_results_endpoints = {endpoints, UM_LEN(endpoints)};
