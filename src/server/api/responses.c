/* The endpoints of /v1/responses. */
#include "server/api/responses.h"

#include <jansson.h>

#include "server/api/apis.h"
#include "server/api/result_store.h"
#include "server/generate/quota.h"
#include "server/respond/access.h"
#include "server/respond/list_page.h"
#include "server/respond/reply.h"

#define ITEMS_MAX     100
#define ITEMS_DEFAULT 20

const um_api um_api_responses = {"/v1/responses",    um_responses_sets,    "input", UM_STREAM_BLOCK_APPEND,
                                 um_responses_check, &um_responses_writer, NULL};

/* ---- Storing ----------------------------------------------------------------------------------------------------- */

static um_buf copy_of(um_str text) {
    um_buf b = {0};
    um_buf_append(&b, text.p, text.n);
    return b;
}

/* Adds the items of a request and its output to the conversation, unless it was deleted meanwhile. */
static void add_to_conversation(um_generation *g, um_str json) {
    const um_body *b = um_generation_body(g);
    const char *id = um_responses_conversation(b);
    um_stored *e = id ? um_stored_find(um_generation_service(g)->setup.results, id, NULL) : NULL;
    json_t *items = NULL, *response = NULL;
    if (!e) return;
    um_json_parse_exact(&items, b->items_json, strlen(b->items_json), "items", NULL);
    um_json_parse_exact(&response, json.p, json.n, "response", NULL);
    for (int32_t i = 0; i < b->n_earlier_items; i++) json_array_remove(items, 0);
    json_array_extend(items, json_object_get(response, "output"));
    um_conversation_add_items(e, items);
    json_decref(items);
    json_decref(response);
}

/* Takes the id of a stored response only if no other one has it. */
void um_responses_keep(um_generation *g, um_str json, um_str events) {
    const um_body *b = um_generation_body(g);
    add_to_conversation(g, json);
    if (!b->items_json || um_responses_is_background(b)) return;
    um_stored *e = um_stored_add(um_generation_service(g)->setup.results, um_generation_id(g), b->capacity.owner);
    um_buf items = copy_of(um_str_of(b->items_json)), text = copy_of(json);
    if (e) {
        um_stored_set_items(e, &items);
        um_stored_add_events(e, events);
        um_stored_finish(e, 200, &text);
    }
    um_buf_free(&items);
    um_buf_free(&text);
}

/* Changes the status of an unfinished response. The error is a message, or NULL. */
static um_buf with_status(const um_stored *e, const char *status, const char *error) {
    json_t *response = NULL;
    um_buf out = {0};
    um_json_parse_exact(&response, e->json.data, e->json.len, "response", NULL);
    json_object_set_new(response, "status", json_string(status));
    if (error)
        json_object_set_new(response, "error", json_pack("{s:s, s:s}", "code", "server_error", "message", error));
    um_json_put_exact(response, &out);
    json_decref(response);
    return out;
}

static void on_done(void *arg, int status, um_buf *json) {
    um_stored *e = arg;
    json_t *body = NULL;
    if (status == 200 || !e->json.len) {
        um_stored_finish(e, status, json);
        return;
    }
    um_json_parse_exact(&body, json->data, json->len, "error", NULL);
    const char *message = json_string_value(json_object_get(json_object_get(body, "error"), "message"));
    um_buf failed = with_status(e, "failed", message ? message : "the request failed");
    json_decref(body);
    um_stored_finish(e, 200, &failed);
}

/* ---- Creating ---------------------------------------------------------------------------------------------------- */

/* Gives the request the id of its response, so that its result can be added before it starts. */
static um_stored *add_result(um_intake *r) {
    um_body *b = &r->body;
    char id[96], digits[64];
    if (!b->request_id) {
        um_make_id("", digits);
        b->request_id = um_arena_strndup(&b->arena, digits, strlen(digits));
    }
    snprintf(id, sizeof id, "%s%s", UM_RESPONSE_PREFIX, b->request_id);
    return um_stored_add(r->service->setup.results, id, b->capacity.owner);
}

/* The generation may fail before the function that starts it returns. */
static void start_in_background(um_intake *r) {
    um_stored *e = add_result(r);
    bool streams = r->body.stream;
    um_buf items = copy_of(um_str_of(r->body.items_json)), json = {0};
    um_jw w;
    if (!e) {
        um_reply_error(r->x, 400, "request_id", NULL, "there is a response with this id already");
        um_buf_free(&items);
        return;
    }
    um_access_record_set_model(r->x, um_setup_model_name(&r->service->setup));
    um_stored_set_items(e, &items);
    e->is_background = true;
    e->generation = um_generation_start_background(r->service, &r->body, &um_responses_writer, on_done, e);
    if (!e->generation) {
        um_quota_put_tokens(um_access_record_key(r->x), r->x, e->status == 429);
        if ((e->status == 429 || e->status == 503) && !um_exchange_has_header(r->x, "Retry-After"))
            um_exchange_add_header(r->x, "Retry-After", "1");
        um_reply_json(r->x, e->status, &e->json);
        um_stored_remove(e);
        return;
    }
    um_jw_init(&w, &json);
    um_responses_put_unfinished(e->generation, &w);
    um_stored_set(e, &json);
    if (streams) um_response_follow(r->service, r->x, e, -1);
    else um_reply_json(r->x, 200, &e->json);
}

static um_status read_create(um_intake *r, um_err *err) { return um_intake_read_api(r, &um_api_responses, err); }

static void create(um_intake *r) {
    if (um_responses_is_background(&r->body)) start_in_background(r);
    else um_intake_generate(r);
}

static void post_response(um_service *s, um_exchange *x, const char *id) {
    static const um_intake_handler handler = {.read = read_create, .respond = create, .generates = true};
    (void)id;
    um_intake_start(s, x, &handler, NULL);
}

static um_status read_count(um_intake *r, um_err *err) {
    return um_conversation_count(r, &um_api_responses, "response.input_tokens", err);
}

static void post_count(um_service *s, um_exchange *x, const char *id) {
    static const um_intake_handler handler = {.read = read_count, .respond = um_intake_send_json};
    (void)id;
    um_intake_start(s, x, &handler, NULL);
}

/* ---- Stored responses -------------------------------------------------------------------------------------------- */

/* Finds a response. If there is none, responds with 404 and returns NULL. */
static um_stored *find(um_service *s, um_exchange *x, const char *id) {
    bool is_ours = strncmp(id, UM_RESPONSE_PREFIX, strlen(UM_RESPONSE_PREFIX)) == 0;
    um_stored *e = is_ours ? um_stored_find(s->setup.results, id, um_access_record_key(x)) : NULL;
    if (!e)
        um_reply_error(x, 404, "response_id", NULL,
                       "there is no response \"%.100s\"; it was not stored, or has expired", id);
    return e;
}

static void get_response(um_service *s, um_exchange *x, const char *id) {
    um_stored *e = find(s, x, id);
    const char *stream = um_exchange_query(x, "stream"), *from = um_exchange_query(x, "starting_after");
    int64_t after = -1;
    bool streams = um_streq(stream, "true");
    if (!e) return;
    if (stream && !streams && !um_streq(stream, "false"))
        um_reply_error(x, 400, "stream", NULL, "stream: expected true or false, found \"%.40s\"", stream);
    else if (from && (!um_parse_int(from, &after) || after < 0))
        um_reply_error(x, 400, "starting_after", NULL,
                       "starting_after: expected the sequence_number of an event, found \"%.40s\"", from);
    else if (from && !streams) um_reply_error(x, 400, "starting_after", NULL, "starting_after needs stream=true");
    else if (streams) um_response_follow(s, x, e, after);
    else um_reply_json(x, 200, &e->json);
}

/* A response that has finished stays as it is. */
static void cancel_response(um_service *s, um_exchange *x, const char *id) {
    um_stored *e = find(s, x, id);
    if (!e || !um_read_empty(x)) return;
    if (!e->is_background) {
        um_reply_error(x, 400, "response_id", NULL, "only a background response can be cancelled");
        return;
    }
    if (e->generation) {
        um_buf json = with_status(e, "cancelled", NULL);
        um_generation_cancel(e->generation);
        um_stored_finish(e, 200, &json);
    }
    um_reply_json(x, 200, &e->json);
}

void um_stored_delete_reply(um_stored *e, const char *object, um_exchange *x) {
    um_buf body = {0};
    um_put_deleted(&body, e->id, object);
    um_stored_remove(e);
    um_reply_json(x, 200, &body);
    um_buf_free(&body);
}

static void delete_response(um_service *s, um_exchange *x, const char *id) {
    um_stored *e = find(s, x, id);
    if (e) um_stored_delete_reply(e, "response", x);
}

/* ---- Items ------------------------------------------------------------------------------------------------------- */

static const char *id_of(const void *items, size_t i) {
    return json_string_value(json_object_get(json_array_get(items, i), "id"));
}

static void put_item(const void *items, size_t i, um_jw *w) {
    um_buf text = {0};
    um_json_put_exact(json_array_get(items, i), &text);
    um_jw_raw(w, text.data, text.len);
    um_buf_free(&text);
}

void um_response_items_reply(const um_stored *e, um_exchange *x) {
    um_list_page page;
    json_t *items = NULL;
    if (!um_list_page_read(&page, x, ITEMS_DEFAULT, ITEMS_MAX)) return;
    um_json_parse_exact(&items, e->items.data, e->items.len, "items", NULL);
    const um_list_page_source source = {.list = items, .n = json_array_size(items), .id = id_of, .put = put_item};
    um_list_page_reply(&page, &source, x);
    json_decref(items);
}

static void get_items(um_service *s, um_exchange *x, const char *id) {
    const um_stored *e = find(s, x, id);
    if (e) um_response_items_reply(e, x);
}

/* ---- Endpoints --------------------------------------------------------------------------------------------------- */

static const um_endpoint endpoints[] = {
    {"POST", "/v1/responses", post_response, UM_ENDPOINT_WAITS, "OpenAI", "answer items, continue a stored response"},
    {"POST", "/v1/responses/input_tokens", post_count, 0, "OpenAI", "count the tokens of items"},
    {"GET", "/v1/responses/{id}", get_response, 0, "OpenAI", "return or stream a stored response"},
    {"DELETE", "/v1/responses/{id}", delete_response, 0, "OpenAI", "delete a stored response; abort it if it runs"},
    {"POST", "/v1/responses/{id}/cancel", cancel_response, 0, "OpenAI", "cancel a background response"},
    {"GET", "/v1/responses/{id}/input_items", get_items, 0, "OpenAI", "list the items that led to a response"},
};
const um_endpoint_set um_responses_endpoints = {endpoints, UM_LEN(endpoints)};
