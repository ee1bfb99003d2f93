/* A server and its model are found. */
#include "cli/peer.h"

#include <event2/event.h>
#include <jansson.h>
#include <netdb.h>

#define PATIENCE 30.0 /* seconds for lists and versions */
#define BODY_MAX ((size_t)16 << 20)

um_status um_peer_blame(um_status s, const char *url, um_err *err) {
    if (s != UM_EIO || !err || !strstr(err->msg, "can't connect")) return s;
    um_buf advice = {0};
    um_buf_printf(&advice, "%s; start a server with 'unmask serve --model DIR', or check --url %.100s", err->msg, url);
    um_fail(err, UM_EIO, "%s", advice.data);
    um_buf_free(&advice);
    return s;
}

um_http_call *um_peer_call(um_peer *p, const char *path, const um_buf *body, double timeout, const um_http_listener *l,
                           void *arg) {
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

/* ---- Small answers ----------------------------------------------------------------------------------------------- */

typedef struct small {
    struct event_base *base;
    int status;
    um_buf body;
    um_err err;
    um_status result;
    bool done;
} small;

static void small_head(void *arg, const um_http_answer *a) { ((small *)arg)->status = a->status; }

static void small_data(void *arg, const char *bytes, size_t n) {
    small *s = (small *)arg;
    if (s->body.len + n <= BODY_MAX) um_buf_append(&s->body, bytes, n);
}

static void small_done(void *arg, um_status st, const um_err *err) {
    small *s = (small *)arg;
    s->result = st;
    if (err) s->err = *err;
    s->done = true;
    event_base_loopbreak(s->base);
}

/* GETs a path and reads its answer; says->kind is UM_SAYS_ERROR for a refusal. */
static um_status get(um_peer *p, const char *path, um_peer_says *says, um_err *err) {
    small s = {.base = p->base};
    const um_http_listener l = {small_head, small_data, small_done};
    *says = (um_peer_says){0};
    um_peer_call(p, path, NULL, PATIENCE, &l, &s);
    while (!s.done) event_base_loop(p->base, EVLOOP_ONCE);
    um_status st = s.result;
    if (st) um_fail(err, st, "%s", s.err.msg);
    else um_peer_read(says, s.status, (um_str){s.body.data ? s.body.data : "", s.body.len});
    um_buf_free(&s.body);
    return st;
}

/* ---- Model and version ------------------------------------------------------------------------------------------- */

/* The entry of the list with this name, or the first. */
static const json_t *find_model(const json_t *list, const char *name) {
    const json_t *data = json_object_get(list, "data");
    for (size_t i = 0; i < json_array_size(data); i++) {
        const json_t *entry = json_array_get(data, i);
        const char *id = json_string_value(json_object_get(entry, "id"));
        if (id && (!name || um_streq(id, name))) return entry;
    }
    return NULL;
}

/* A name that is given needs no list: not every server has one. */
static um_status take_model(um_peer *p, const um_peer_says *list, const char *name, um_err *err) {
    const json_t *entry = list->kind == UM_SAYS_ERROR ? NULL : find_model(list->root, name);
    const char *owner = json_string_value(json_object_get(entry, "owned_by"));
    p->is_unmask = um_streq(owner, "unmask");
    if (entry || name) {
        p->model = um_strdup(name ? name : json_string_value(json_object_get(entry, "id")));
        return UM_OK;
    }
    if (list->kind == UM_SAYS_ERROR) return um_fail(err, list->err.code, "/v1/models: %s", list->err.msg);
    return um_fail(
        err, UM_EIO,
        "/v1/models names no model; is %s port %d a server of the OpenAI kind? --served-model-name names one",
        p->url.host, (int)p->url.port);
}

static void take_version(um_peer *p) {
    um_peer_says says;
    um_buf text = {0};
    um_status st = get(p, "/version", &says, NULL);
    const char *version = st ? NULL : json_string_value(json_object_get(says.root, "version"));
    um_buf_printf(&text, "%s%s", version && p->is_unmask ? "unmask " : "", version ? version : "");
    p->version = um_buf_take(&text);
    um_peer_says_free(&says);
}

/* People paste addresses with and without /v1. */
static void drop_v1(um_url *url) {
    size_t n = strlen(url->path);
    if (n >= 3 && um_streq(url->path + n - 3, "/v1")) url->path[n - 3] = '\0';
}

um_status um_peer_open(um_peer *p, const char *url, const char *api_key, const char *model, um_err *err) {
    um_peer_says list = {0};
    *p = (um_peer){.api_key = api_key && *api_key ? api_key : NULL};
    um_status st = um_url_parse(&p->url, url, err);
    if (st) return um_fail_in(err, "--url");
    drop_v1(&p->url);
    st = um_http_lookup(&p->addresses, &p->url, err);
    if (st) return st;
    p->base = event_base_new();
    if (!p->base) return um_fail(err, UM_EIO, "the system gives no event loop");
    st = um_peer_blame(get(p, "/v1/models", &list, err), url, err);
    if (!st) st = take_model(p, &list, model, err);
    if (!st) take_version(p);
    um_peer_says_free(&list);
    return st;
}

void um_peer_close(um_peer *p) {
    if (p->base) event_base_free(p->base);
    if (p->addresses) freeaddrinfo(p->addresses);
    um_free(p->model);
    um_free(p->version);
    *p = (um_peer){0};
}
