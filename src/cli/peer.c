/* Finds a server and its model, and checks parameters against the server. */
#include "cli/peer.h"

#include <event2/event.h>
#include <jansson.h>
#include <netdb.h>

#define LOOKUP_TIMEOUT 30.0 /* seconds without data, for the requests of this file */
#define BODY_MAX       ((size_t)16 << 20)

um_status um_peer_explain_error(um_status s, const char *url, um_err *err) {
    if (s != UM_EIO || !err || !strstr(err->msg, "can't connect")) return s;
    um_buf advice = {0};
    um_buf_printf(&advice, "%s; start a server with 'unmask serve --model DIR', or check --url %.100s", err->msg, url);
    um_fail(err, UM_EIO, "%s", advice.data);
    um_buf_free(&advice);
    return s;
}

um_http_call *um_peer_call(um_peer *p, const char *path, const um_buf *body, double timeout,
                           const um_http_client_callbacks *l, void *arg) {
    um_buf whole = {0};
    um_buf_printf(&whole, "%s%s", p->url.path, path);
    um_http_request r = {.url = &p->url,
                         .addresses = p->addresses,
                         .method = body ? "POST" : "GET",
                         .path = whole.data,
                         .body = body ? (um_str){body->data, body->len} : (um_str){NULL, 0},
                         .api_key = p->api_key,
                         .accept = "application/json, text/event-stream",
                         .timeout = timeout};
    um_http_call *c = um_http_call_start(p->base, &r, l, arg);
    um_buf_free(&whole);
    return c;
}

/* ---- GET requests ------------------------------------------------------------------------------------------------ */

typedef struct get_call {
    struct event_base *base;
    int status;
    um_buf body;
    um_err err;
    um_status result;
    bool done;
} get_call;

static void on_get_head(void *arg, const um_http_response *a) { ((get_call *)arg)->status = a->status; }

static void on_get_data(void *arg, const char *bytes, size_t n) {
    get_call *s = (get_call *)arg;
    if (s->body.len + n <= BODY_MAX) um_buf_append(&s->body, bytes, n);
}

static void on_get_done(void *arg, um_status st, const um_err *err) {
    get_call *s = (get_call *)arg;
    s->result = st;
    if (err) s->err = *err;
    s->done = true;
    event_base_loopbreak(s->base);
}

/* Sends a GET request, waits, and parses the response. If the server refuses, message->kind is UM_PEER_ERROR. */
static um_status get(um_peer *p, const char *path, um_peer_message *message, um_err *err) {
    get_call s = {.base = p->base};
    const um_http_client_callbacks l = {on_get_head, on_get_data, on_get_done};
    *message = (um_peer_message){0};
    um_peer_call(p, path, NULL, LOOKUP_TIMEOUT, &l, &s);
    while (!s.done) event_base_loop(p->base, EVLOOP_ONCE);
    um_status st = s.result;
    if (st) um_fail(err, st, "%s", s.err.msg);
    else um_peer_read(message, s.status, (um_str){s.body.data ? s.body.data : "", s.body.len});
    um_buf_free(&s.body);
    return st;
}

/* ---- Parameters -------------------------------------------------------------------------------------------------- */

/* Returns the response to GET /options, or NULL. Sends the request once. */
static const json_t *get_options(um_peer *p) {
    um_peer_message message = {0};
    if (p->asked_options || !p->is_unmask) return p->options;
    p->asked_options = true;
    if (!get(p, "/options", &message, NULL) && message.kind != UM_PEER_ERROR) p->options = json_incref(message.root);
    um_peer_message_free(&message);
    return p->options;
}

/* Returns the object in a list whose "name" is this, or NULL. */
static const json_t *find_named(const json_t *list, const char *name) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (um_streq(json_string_value(json_object_get(json_array_get(list, i), "name")), name))
            return json_array_get(list, i);
    return NULL;
}

static bool has_word(const json_t *words, const char *word) {
    for (size_t i = 0; i < json_array_size(words); i++)
        if (um_streq(json_string_value(json_array_get(words, i)), word)) return true;
    return false;
}

/* Appends the words of a list, as in "one, two". */
static void put_words(const json_t *words, um_buf *out) {
    for (size_t i = 0; i < json_array_size(words); i++) {
        const char *word = json_string_value(json_array_get(words, i));
        if (word) um_buf_printf(out, "%s%s", out->len ? ", " : "", word);
    }
}

/* aliases: further words that are allowed, or NULL. */
static um_status check_words(const json_t *words, const json_t *aliases, const char *param, const char *value,
                             um_err *err) {
    um_buf list = {0};
    if (!json_is_array(words) || has_word(words, value) || has_word(aliases, value)) return UM_OK;
    put_words(words, &list);
    um_status st = um_fail_param(err, UM_EINVAL, param, "the server does not support \"%.80s\"; it supports: %.300s",
                                 value, list.len ? list.data : "none");
    um_buf_free(&list);
    return st;
}

static um_status check_range(const json_t *server_row, const char *param, const char *value, um_err *err) {
    const json_t *min = json_object_get(server_row, "min"), *max = json_object_get(server_row, "max");
    double v;
    if (!json_is_number(min) || !json_is_number(max) || !um_parse_double(value, &v)) return UM_OK;
    if (v >= json_number_value(min) && v <= json_number_value(max)) return UM_OK;
    return um_fail_param(err, UM_ERANGE, param, "%.40s is outside of the server's range %g..%g", value,
                         json_number_value(min), json_number_value(max));
}

um_status um_peer_check_option(um_peer *p, const um_option *row, const void *base, um_err *err) {
    const json_t *options = get_options(p), *data = json_object_get(options, "data");
    if (!json_is_array(data)) return UM_OK;
    const json_t *server_row = find_named(data, row->name);
    if (!server_row) return um_fail_param(err, UM_EINVAL, row->name, "the server has no such parameter");
    um_buf value = {0};
    um_option_get_text(row, base, &value);
    um_status st = UM_OK;
    if (!um_option_is_auto(row, value.data)) {
        st = check_range(server_row, row->name, value.data, err);
        if (!st) st = check_words(json_object_get(server_row, "choices"), NULL, row->name, value.data, err);
        if (!st)
            st = check_words(json_object_get(server_row, "names"), json_object_get(server_row, "aliases"), row->name,
                             value.data, err);
    }
    um_buf_free(&value);
    return st;
}

/* ---- Chat template ----------------------------------------------------------------------------------------------- */

bool um_peer_has_chat_template(um_peer *p) {
    um_peer_message message = {0};
    const char *source = NULL;
    if (!p->is_unmask) return true;
    if (!get(p, "/props", &message, NULL) && message.kind != UM_PEER_ERROR)
        source = json_string_value(json_object_get(message.root, "chat_template"));
    bool has = !source || *source;
    um_peer_message_free(&message);
    return has;
}

/* ---- Model and version ------------------------------------------------------------------------------------------- */

/* Returns the model of the list with this name (NULL: the first), or NULL. */
static const json_t *find_model(const json_t *list, const char *name) {
    const json_t *data = json_object_get(list, "data");
    for (size_t i = 0; i < json_array_size(data); i++) {
        const json_t *entry = json_array_get(data, i);
        const char *id = json_string_value(json_object_get(entry, "id"));
        if (id && (!name || um_streq(id, name))) return entry;
    }
    return NULL;
}

/* unmask adds the examples of the model card to its list. */
static void take_examples(um_peer *p, const json_t *examples) {
    for (size_t i = 0; i < json_array_size(examples); i++) {
        const char *text = json_string_value(json_array_get(examples, i));
        if (text) um_card_add_example(&p->card, text);
    }
}

/* Sets p->model. If a name is given, the list may be missing, because not every server has one. */
static um_status take_model(um_peer *p, const um_peer_message *list, const char *name, um_err *err) {
    const json_t *entry = list->kind == UM_PEER_ERROR ? NULL : find_model(list->root, name);
    const char *owner = json_string_value(json_object_get(entry, "owned_by"));
    p->is_unmask = um_streq(owner, "unmask");
    take_examples(p, json_object_get(entry, "examples"));
    if (entry || name) {
        p->model = um_strdup(name ? name : json_string_value(json_object_get(entry, "id")));
        return UM_OK;
    }
    if (list->kind == UM_PEER_ERROR) return um_fail(err, list->err.code, "/v1/models: %s", list->err.msg);
    return um_fail(
        err, UM_EIO,
        "/v1/models lists no model; check that %s port %d is a server with OpenAI's API, or name the model with "
        "--served-model-name",
        p->url.host, (int)p->url.port);
}

static void take_version(um_peer *p) {
    um_peer_message message;
    um_buf text = {0};
    um_status st = get(p, "/version", &message, NULL);
    const char *version = st ? NULL : json_string_value(json_object_get(message.root, "version"));
    um_buf_printf(&text, "%s%s", version && p->is_unmask ? "unmask " : "", version ? version : "");
    p->version = um_buf_take(&text);
    um_peer_message_free(&message);
}

/* Removes /v1 from the end of an address: users give it with and without. */
static void remove_v1(um_url *url) {
    size_t n = strlen(url->path);
    if (n >= 3 && um_streq(url->path + n - 3, "/v1")) url->path[n - 3] = '\0';
}

um_status um_peer_open(um_peer *p, const char *url, const char *api_key, const char *model, um_err *err) {
    um_peer_message list = {0};
    *p = (um_peer){.api_key = api_key && *api_key ? api_key : NULL};
    um_status st = um_url_parse(&p->url, url, err);
    if (st) return um_fail_in(err, "--url");
    remove_v1(&p->url);
    st = um_http_lookup(&p->addresses, &p->url, err);
    if (st) return st;
    p->base = event_base_new();
    if (!p->base) return um_fail(err, UM_EIO, "can't create an event loop");
    st = um_peer_explain_error(get(p, "/v1/models", &list, err), url, err);
    if (!st) st = take_model(p, &list, model, err);
    if (!st) take_version(p);
    um_peer_message_free(&list);
    return st;
}

void um_peer_close(um_peer *p) {
    if (p->base) event_base_free(p->base);
    if (p->addresses) freeaddrinfo(p->addresses);
    um_free(p->model);
    um_free(p->version);
    json_decref(p->options);
    um_card_free(&p->card);
    *p = (um_peer){0};
}
