/* unmask health: checks the health of a server, for container probes and scripts without curl. */
#include <event2/event.h>
#include <jansson.h>

#include "cli/cli.h"
#include "server/http/http.h"

#define ADDRESS  "http://127.0.0.1:8000"
#define BODY_MAX ((size_t)1 << 20)

typedef struct health_options {
    float timeout;
    bool quiet;
} health_options;

static const um_option rows[] = {
    {"timeout", NULL, UM_OPT_FLOAT, UM_FIELD(health_options, timeout), 0.1, 3600, NULL, "5", NULL, "SECONDS", "Probe",
     "seconds in which the server must answer"},
    {"quiet", "q", UM_OPT_BOOL, UM_FIELD(health_options, quiet), 0, 0, NULL, "false", NULL, NULL, "Probe",
     "print nothing if the server is healthy"},
};

typedef struct health {
    struct event_base *base;
    int status; /* HTTP status; 0: no response */
    um_buf body;
    um_err err;
} health;

static void on_head(void *arg, const um_http_response *a) { ((health *)arg)->status = a->status; }

static void on_data(void *arg, const char *bytes, size_t n) {
    health *h = arg;
    if (h->body.len + n <= BODY_MAX) um_buf_append(&h->body, bytes, n);
}

static void on_done(void *arg, um_status st, const um_err *err) {
    health *h = arg;
    if (st) h->err = *err;
    event_base_loopbreak(h->base);
}

static um_status get_health(health *h, const char *address, double timeout, um_err *err) {
    static const um_http_client_callbacks listener = {on_head, on_data, on_done};
    um_url url;
    um_buf path = {0};
    um_status st = um_url_parse(&url, address, err);
    if (st) return st;
    um_buf_printf(&path, "%s/health", url.path);
    um_http_request r = {.url = &url, .method = "GET", .path = path.data, .timeout = timeout};
    um_http_call_start(h->base, &r, &listener, h);
    event_base_dispatch(h->base);
    um_buf_free(&path);
    return h->err.code ? um_fail(err, UM_EIO, "%s: %s", address, h->err.msg) : UM_OK;
}

/* Turns a status other than 200 into an error with the server's message, if it has one. */
static um_status check_answer(const health *h, const char *address, um_err *err) {
    json_t *body = NULL;
    const char *message = NULL;
    if (h->status == 200) return UM_OK;
    if (!um_json_parse(&body, h->body.data ? h->body.data : "", h->body.len, address, NULL))
        message = json_string_value(json_object_get(json_object_get(body, "error"), "message"));
    um_status st =
        um_fail(err, UM_EIO, "%s: status %d%s%.300s", address, h->status, message ? ": " : "", message ? message : "");
    json_decref(body);
    return st;
}

static int check(const um_command *self, const health_options *o, const char *address) {
    um_err err = {0};
    health h = {.base = event_base_new()};
    um_status st =
        h.base ? get_health(&h, address, o->timeout, &err) : um_fail(&err, UM_EIO, "can't create an event loop");
    if (!st) st = check_answer(&h, address, &err);
    if (!st && !o->quiet) printf("%s: ok\n", address);
    if (h.base) event_base_free(h.base);
    um_buf_free(&h.body);
    return st ? um_cli_error(self, &err) : UM_EXIT_OK;
}

static int run(const um_command *self, int argc, char **argv) {
    health_options o;
    um_args args;
    um_err err;
    um_args_parse(&args, self, argc, argv, &o, NULL);
    int status = args.exit;
    if (!args.done && args.n_words > 1) {
        um_fail(&err, UM_EINVAL, "expected one address, found also \"%.80s\"", args.word[1]);
        status = um_cli_error(self, &err);
    } else if (!args.done) {
        status = check(self, &o, args.n_words ? args.word[0] : ADDRESS);
    }
    um_args_free(&args);
    return status;
}

const um_command um_cmd_health = {
    .name = "health",
    .summary = "check the health of a server",
    .usage = "unmask health [URL] [--timeout SECONDS]",
    .description =
        "Sends GET /health to a server, by default the one at " ADDRESS ". Exit status: 0 if at least one worker "
        "accepts requests; 1 if none does, or no server answers.",
    .examples = "unmask health\n"
                "unmask health http://127.0.0.1:8000/prefix\n"
                "unmask health http://127.0.0.1:8080 --timeout 2 --quiet\n",
    .options = rows,
    .n_options = UM_LEN(rows),
    .run = run,
};
