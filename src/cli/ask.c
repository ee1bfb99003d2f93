/* One request from submission to its end: steps the engine, shows what settles, stops at Ctrl-C. */
#include <time.h>

#include "cli/cli.h"

typedef struct waiting {
    const um_ask *ask;
    um_reply *reply;
    um_buf safe;
    double paused; /* seconds that are no work of the engine's */
    bool done;
} waiting;

static void print_text(waiting *w, const um_event *ev) {
    FILE *f = w->ask->plain;
    const char *text = ev->text;
    size_t n = ev->text_len;
    if (!f) return;
    if (w->ask->safe) {
        um_buf_clear(&w->safe);
        um_cli_put_safe(&w->safe, text, n);
        text = w->safe.data;
        n = w->safe.len;
    }
    fwrite(text, 1, n, f);
    fflush(f);
}

static void keep_result(waiting *w, const um_result *r) {
    um_reply *reply = w->reply;
    reply->result = *r;
    reply->result.total_seconds -= w->paused;
    um_buf_append(&reply->text, r->text, r->text_len);
    reply->ids = UM_NEW_ARRAY(int32_t, r->n_tokens + 1);
    if (r->n_tokens) memcpy(reply->ids, r->token_ids, r->n_tokens * sizeof(int32_t));
    reply->result.text = reply->text.data;
    reply->result.token_ids = reply->ids;
    reply->result.pass = NULL; /* these live in the event only */
    reply->result.logprob = NULL;
    reply->result.likeliest = NULL;
    reply->result.stop = NULL;
}

static void on_event(void *arg, const um_event *ev) {
    waiting *w = (waiting *)arg;
    if (w->ask->view) um_view_event(w->ask->view, ev);
    if (ev->type == UM_EVENT_TEXT) print_text(w, ev);
    if (ev->type != UM_EVENT_FINISH) return;
    if (w->ask->finished) w->ask->finished(w->ask->arg, ev->result);
    keep_result(w, ev->result);
    w->done = true;
}

static void pause_ms(waiting *w, int32_t ms) {
    double start = um_now();
    if (ms > 0) nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
    w->paused += um_now() - start;
}

um_status um_ask_run(const um_ask *a, um_request *r, um_reply *out, um_err *err) {
    waiting w = {.ask = a, .reply = out};
    um_engine *e = a->session->engine;
    int64_t id = 0;
    *out = (um_reply){0};
    r->events = UM_EVENT_FINISH | (a->view ? UM_EVENT_SNAPSHOT : UM_EVENT_TEXT);
    r->on_event = on_event;
    r->arg = &w;
    um_status s = um_engine_add(e, r, &id, err);
    if (a->view) um_cli_echo(false);
    while (!s && !w.done) {
        if (um_cli_interrupted()) {
            s = um_engine_abort(e, id, err);
            break;
        }
        s = um_engine_step(e, err);
        if (a->view) pause_ms(&w, a->delay_ms);
    }
    if (s && id && !w.done) (void)um_engine_abort(e, id, NULL); /* the callback's argument ends with this call */
    if (a->view) um_cli_echo(true);
    um_buf_free(&w.safe);
    return s;
}

void um_reply_free(um_reply *r) {
    um_buf_free(&r->text);
    um_free(r->ids);
    *r = (um_reply){0};
}
