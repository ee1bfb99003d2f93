/* The client of a server: sends a request over HTTP and shows the streamed answer. Ctrl-C closes the connection, which
 * cancels the request on the server. */
#include <event2/event.h>
#include <jansson.h>
#include <unistd.h>

#include "cli/client.h"
#include "cli/peer.h"

#define POLL_SECONDS 0.02 /* time between two checks for Ctrl-C in the event loop */

typedef struct remote {
    um_client base;
    um_peer peer;
    char *url;
    struct event *poll;
    int64_t prompt_tokens, cached_tokens; /* sums over all requests */

    /* The current response. */
    um_client_response *response;
    um_http_call *call;
    um_sse_reader events;
    um_peer_frame frame;
    um_buf body; /* body of a response that is not a stream */
    int status;
    bool is_stream, is_over; /* is_over: the response is complete or failed */
    double began;
    um_err err; /* code UM_OK: no error */
} remote;

/* ---- The request body -------------------------------------------------------------------------------------------- */

static void put_json(um_jw *w, const char *key, const char *json) {
    if (!json) return;
    um_jw_key(w, key);
    um_jw_raw(w, json, strlen(json));
}

/* Writes a parameter with the JSON type of its row. "auto" is a string for every type. */
static void put_parameter(um_jw *w, const um_option *row, const void *base) {
    um_buf text = {0};
    bool is_number = row->type == UM_OPT_INT || row->type == UM_OPT_INT64 || row->type == UM_OPT_FLOAT;
    um_option_get_text(row, base, &text);
    um_jw_key(w, row->name);
    if ((is_number || row->type == UM_OPT_BOOL) && !um_option_is_auto(row, text.data))
        um_jw_raw(w, text.data, text.len);
    else um_jw_str(w, text.data, text.len);
    um_buf_free(&text);
}

/* Returns the set that contains the row, or NULL. */
static const um_option_set *set_of(const um_option_set *sets, size_t n, const um_option *row) {
    for (size_t i = 0; i < n; i++)
        if (row >= sets[i].rows && row < sets[i].rows + sets[i].n) return &sets[i];
    return NULL;
}

static void put_parameters(um_jw *w, um_client_request *q) {
    um_option_set sets[UM_OPTION_SETS_MAX];
    size_t n = um_request_option_sets(sets, &q->request);
    for (size_t i = 0; i < q->n_given; i++) put_parameter(w, q->given[i], set_of(sets, n, q->given[i])->base);
}

static void put_messages(um_jw *w, const um_chat_request *c) {
    um_jw_key(w, "messages");
    um_jw_begin_array(w);
    for (size_t i = 0; i < c->n_messages; i++) {
        um_jw_begin_object(w);
        um_jw_put_cstr(w, "role", c->messages[i].role);
        um_jw_put_cstr(w, "content", c->messages[i].content);
        um_jw_end_object(w);
    }
    um_jw_end_array(w);
    put_json(w, "tools", c->tools_json);
    put_json(w, "chat_template_kwargs", c->kwargs_json);
}

/* Writes vLLM's {"structured_outputs": {key: value}}. */
static void put_structured(um_jw *w, const char *key, const char *text, bool is_json) {
    um_jw_key(w, "structured_outputs");
    um_jw_begin_object(w);
    if (is_json) put_json(w, key, text);
    else um_jw_put_cstr(w, key, text);
    um_jw_end_object(w);
}

/* Writes the constraint in the form of OpenAI's API, or where that has none, of vLLM's. */
static void put_constraint(um_jw *w, const um_request *r) {
    const char *text = r->constraint_text;
    switch (r->constraint) {
    case UM_CONSTRAINT_JSON: put_json(w, "response_format", "{\"type\":\"json_object\"}"); break;
    case UM_CONSTRAINT_REGEX: put_structured(w, "regex", text, false); break;
    case UM_CONSTRAINT_GRAMMAR: put_structured(w, "grammar", text, false); break;
    case UM_CONSTRAINT_CHOICE: put_structured(w, "choice", text, true); break;
    case UM_CONSTRAINT_SCHEMA:
        um_jw_key(w, "response_format");
        um_jw_begin_object(w);
        um_jw_put_cstr(w, "type", "json_schema");
        um_jw_key(w, "json_schema");
        um_jw_begin_object(w);
        um_jw_put_cstr(w, "name", "answer");
        put_json(w, "schema", text);
        um_jw_put_bool(w, "strict", true);
        um_jw_end_object(w);
        um_jw_end_object(w);
        break;
    default: break;
    }
}

static void put_prompt(um_jw *w, const um_request *r) {
    if (r->chat) put_messages(w, r->chat);
    else um_jw_put_str(w, "prompt", (um_str){r->text, r->text_len});
    if (r->n_stop) {
        um_jw_key(w, "stop");
        um_jw_begin_array(w);
        for (size_t i = 0; i < r->n_stop; i++) um_jw_cstr(w, r->stop[i]);
        um_jw_end_array(w);
    }
    if (r->adapter) um_jw_put_cstr(w, "adapter", r->adapter);
    put_constraint(w, r);
}

static void write_body(const remote *r, um_client_request *q, um_buf *out) {
    um_jw w;
    um_jw_init(&w, out);
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "model", r->peer.model);
    put_prompt(&w, &q->request);
    put_parameters(&w, q);
    um_jw_put_bool(&w, "stream", true);
    put_json(&w, "stream_options", "{\"include_usage\":true}");
    if (r->peer.is_unmask) {
        if (r->base.output.view) put_json(&w, "stream_mode", "\"denoise\"");
        um_jw_put_bool(&w, "return_timings", true);
        um_jw_put_bool(&w, "return_token_ids", true);
    }
    um_jw_end_object(&w);
}

/* ---- The response ------------------------------------------------------------------------------------------------ */

/* Draws the text received so far, for servers that send no snapshots. */
static void draw_text(remote *r) {
    um_view *v = r->base.output.view;
    if (v) um_view_draw(v, &(um_frame){.settled = {r->response->text.data, r->response->text.len}});
}

static void take_text(remote *r, const um_peer_message *s) {
    um_buf_append(&r->response->text, s->text.p, s->text.n);
    um_client_output_text(&r->base.output, s->reasoning);
    um_client_output_text(&r->base.output, s->text);
    draw_text(r);
}

/* Keeps the settled text too, in case the stream breaks off. */
static void take_snapshot(remote *r, const um_peer_message *s) {
    const um_frame *f = um_peer_frame_read(&r->frame, s);
    um_buf_clear(&r->response->text);
    um_buf_append(&r->response->text, f->settled.p, f->settled.n);
    if (!r->base.output.view) return;
    um_view_draw(r->base.output.view, f);
    um_client_output_pause(&r->base.output);
}

static void take_full_text(remote *r, const um_peer_message *s) {
    um_buf_clear(&r->response->text);
    um_buf_append(&r->response->text, s->text.p, s->text.n);
}

static void take_ids(remote *r, const json_t *ids, bool replace) {
    um_result *to = &r->response->result;
    size_t n = json_array_size(ids), old = replace ? 0 : to->n_tokens;
    if (!n) return;
    r->response->ids = um_realloc(r->response->ids, um_mul(old + n, sizeof(int32_t)));
    for (size_t i = 0; i < n; i++) r->response->ids[old + i] = (int32_t)json_integer_value(json_array_get(ids, i));
    to->n_tokens = old + n;
}

static void take_numbers(remote *r, const um_peer_message *s) {
    um_result *to = &r->response->result;
    if (s->kind != UM_PEER_SNAPSHOT) take_ids(r, s->ids, s->kind == UM_PEER_WHOLE);
    if (s->finish) to->finish = s->finish_as;
    if (s->seed >= 0) to->seed = s->seed;
    if (s->usage.nfe) to->nfe = s->usage.nfe;
    if (!s->usage.is_given) return;
    to->prompt_tokens = s->usage.prompt_tokens;
    to->cached_tokens = s->usage.cached_tokens;
    if (!r->response->ids) to->n_tokens = (size_t)s->usage.completion_tokens;
}

static void take_message(remote *r, um_str data) {
    um_peer_message s;
    if (r->is_over) return;
    um_peer_read(&s, r->status, data);
    switch (s.kind) {
    case UM_PEER_TEXT: take_text(r, &s); break;
    case UM_PEER_SNAPSHOT: take_snapshot(r, &s); break;
    case UM_PEER_WHOLE: take_full_text(r, &s); break;
    case UM_PEER_DONE: r->is_over = true; break;
    case UM_PEER_NOTHING: break;
    case UM_PEER_ERROR:
        r->err = s.err;
        if (s.is_too_long) r->err.code = UM_ELIMIT;
        r->is_over = true;
        break;
    }
    if (s.kind != UM_PEER_ERROR) take_numbers(r, &s);
    if (r->response->text.len && !r->response->result.first_token_seconds)
        r->response->result.first_token_seconds = um_now() - r->began;
    um_peer_message_free(&s);
}

static void on_event(void *arg, um_str data) { take_message((remote *)arg, data); }

/* ---- The call ---------------------------------------------------------------------------------------------------- */

#define BODY_MAX ((size_t)64 << 20)

static void on_head(void *arg, const um_http_response *a) {
    remote *r = (remote *)arg;
    r->status = a->status;
    r->is_stream = strncmp(a->type, "text/event-stream", 17) == 0;
}

static void on_data(void *arg, const char *bytes, size_t n) {
    remote *r = (remote *)arg;
    um_err err;
    if (!r->is_stream) {
        if (r->body.len + n <= BODY_MAX) um_buf_append(&r->body, bytes, n);
        return;
    }
    if (!um_sse_read(&r->events, bytes, n, on_event, r, &err) || r->is_over) return;
    r->err = err;
    r->is_over = true;
}

static void on_done(void *arg, um_status s, const um_err *err) {
    remote *r = (remote *)arg;
    r->call = NULL;
    if (s && !r->is_over) r->err = *err;
    else if (!r->is_stream) take_message(r, (um_str){r->body.data ? r->body.data : "", r->body.len});
    else if (!r->is_over && r->response->result.finish == UM_FINISH_NONE)
        um_fail(&r->err, UM_EIO, "the server ended the stream before the answer was complete");
    r->is_over = true;
}

static void on_poll(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what, (void)arg; /* the timer only wakes wait_for_end */
}

static void wait_for_end(remote *r) {
    while (!r->is_over && !um_cli_interrupted()) event_base_loop(r->peer.base, EVLOOP_ONCE);
    if (!r->is_over) r->response->result.finish = UM_FINISH_ABORTED;
    um_http_call_cancel(r->call);
    r->call = NULL;
}

static void end_answer(remote *r) {
    um_client_response *response = r->response;
    um_client_output *show = &r->base.output;
    um_client_output_end(show);
    um_buf_puts(&response->text, "");
    response->result.text = response->text.data;
    response->result.text_len = response->text.len;
    response->result.token_ids = response->ids;
    response->result.total_seconds = um_now() - r->began;
    r->prompt_tokens += response->result.prompt_tokens;
    r->cached_tokens += response->result.cached_tokens;
    if (show->view) um_view_finish(show->view, (um_str){response->text.data, response->text.len});
    if (show->finished && !r->err.code) show->finished(show->arg, &response->result);
}

static void begin_answer(remote *r, um_client_response *out) {
    *out = (um_client_response){.result = {.index = 0, .seed = -1, .stop_id = -1}};
    r->response = out;
    um_buf_clear(&r->body);
    um_sse_reader_free(&r->events);
    r->events = (um_sse_reader){0};
    r->status = 0;
    r->is_stream = r->is_over = false;
    r->began = um_now();
    r->err = (um_err){0};
}

static um_status send_request(um_client *a, um_client_request *q, um_client_response *out, um_err *err) {
    static const um_http_client_callbacks listener = {on_head, on_data, on_done};
    remote *r = (remote *)a;
    um_buf body = {0};
    begin_answer(r, out);
    write_body(r, q, &body);
    if (a->output.view) um_cli_echo(false);
    r->call =
        um_peer_call(&r->peer, q->request.chat ? "/v1/chat/completions" : "/v1/completions", &body, 0, &listener, r);
    wait_for_end(r);
    end_answer(r);
    if (a->output.view) um_cli_echo(true);
    um_buf_free(&body);
    if (!r->err.code) return UM_OK;
    um_status st = um_fail(err, r->err.code, "%s", r->err.msg);
    return um_peer_explain_error(st, r->url, err);
}

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

static um_status check(um_client *a, um_client_request *q, const um_option *set, um_err *err) {
    um_option_set sets[UM_OPTION_SETS_MAX];
    size_t n = um_request_option_sets(sets, &q->request);
    return um_peer_check_option(&((remote *)a)->peer, set, set_of(sets, n, set)->base, err);
}

static void put_stats(const um_client *a, um_buf *out) {
    const remote *r = (const remote *)a;
    um_buf_printf(out,
                  "  prompts        %lld tokens, %lld of them from the server's cache\n"
                  "  server         %s, %s%s%s\n",
                  (long long)r->prompt_tokens, (long long)r->cached_tokens, r->url, r->peer.model,
                  *r->peer.version ? ", " : "", r->peer.version);
}

static void print_examples(const um_client *a) {
    const um_card *card = &((const remote *)a)->peer.card;
    um_cli_print_examples(card->example, card->n_examples);
}

static void free_remote(um_client *a) {
    remote *r = (remote *)a;
    if (r->poll) event_free(r->poll);
    um_peer_frame_free(&r->frame);
    um_sse_reader_free(&r->events);
    um_buf_free(&r->body);
    um_free(r->url);
    um_peer_close(&r->peer);
    um_free(r);
}

um_status um_client_remote(um_client **out, const um_remote_options *o, bool quiet, um_err *err) {
    remote *r = UM_NEW(remote);
    struct timeval interval = um_timeval(POLL_SECONDS);
    *r = (remote){.base = {send_request, check, put_stats, print_examples, free_remote, false, {0}},
                  .url = um_strdup(o->url)};
    um_status st = um_peer_open(&r->peer, o->url, o->api_key, o->served_model_name, err);
    if (st) {
        free_remote(&r->base);
        return st;
    }
    r->poll = event_new(r->peer.base, -1, EV_PERSIST, on_poll, NULL);
    assert(r->poll);
    event_add(r->poll, &interval);
    if (!quiet)
        fprintf(stderr, "unmask %s: %s at %s%s%s\n", um_version(), r->peer.model, o->url, *r->peer.version ? ", " : "",
                r->peer.version);
    *out = &r->base;
    return UM_OK;
}

/* Returns whether the option belongs to the configuration of a model or engine, and not to requests. */
static bool is_local_option(const um_option *row) {
    um_option_set request[UM_OPTION_SETS_MAX], all[UM_OPTION_SETS_MAX];
    um_request r = {.size = sizeof r};
    um_config c;
    um_config_init(&c);
    size_t n_request = um_request_option_sets(request, &r), n_all = um_config_option_sets(all, &c);
    return set_of(all, n_all, row) && !set_of(request, n_request, row);
}

um_status um_remote_check(const um_args *args, um_err *err) {
    for (size_t i = 0; i < args->n_given; i++) {
        const um_option *row = args->given[i].row;
        if (args->given[i].by != UM_BY_ARGV || !is_local_option(row)) continue;
        um_buf flag = {0};
        um_option_put_flag(row->name, &flag);
        um_status st =
            um_fail(err, UM_EINVAL, "--%s needs a local model; with --url the server decides, so leave out one of them",
                    flag.data);
        um_buf_free(&flag);
        return st;
    }
    return UM_OK;
}
