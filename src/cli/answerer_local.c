/* An engine of this program answers: steps it from submission to the end, shows what settles, stops at Ctrl-C. */
#include "cli/answerer.h"
#include "engine/engine.h"

typedef struct local {
    um_answerer base;
    um_session *session;
    um_speller *speller;

    /* Of the answer that is being given. */
    um_reply *reply;
    double paused; /* seconds that are no work of the engine's */
    bool done;
} local;

/* ---- Room -------------------------------------------------------------------------------------------------------- */

/* Tokens that the model may be fed so that an answer still fits. */
static int64_t room_for_history(const local *l, const um_request *r) {
    const um_engine *e = l->session->engine;
    int64_t longest = UM_MIN(e->max_len, UM_MAX(1, e->config.max_num_batched_tokens - UM_CHAT_WINDOW));
    int32_t answer = r->sampling.max_tokens;
    if (answer == 0) answer = um_arch_answer_tokens(&l->session->model->arch);
    return longest - UM_MIN(answer, longest / 4);
}

static um_status check_room(const local *l, const um_question *q, um_err *err) {
    um_ids ids = {0};
    if (!q->can_shrink) return UM_OK;
    um_status st = um_chat_render(l->session->model->chat, q->request.chat, NULL, &ids, err);
    int64_t n = (int64_t)ids.n, most = room_for_history(l, &q->request);
    um_ids_free(&ids);
    if (st || n <= most) return st;
    return um_fail(err, UM_ELIMIT, "the conversation has %lld tokens, at most %lld leave room for an answer",
                   (long long)n, (long long)most);
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

static void keep_result(local *l, const um_result *r) {
    um_reply *reply = l->reply;
    reply->result = *r;
    reply->result.total_seconds -= l->paused;
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

static void finish(local *l, const um_result *r) {
    const um_showing *s = &l->base.showing;
    if (s->view) um_view_finish(s->view, (um_str){r->text, r->text_len});
    if (s->finished) s->finished(s->arg, r);
    keep_result(l, r);
    l->done = true;
}

static void on_event(void *arg, const um_event *ev) {
    local *l = (local *)arg;
    const um_showing *s = &l->base.showing;
    if (ev->type == UM_EVENT_SNAPSHOT && um_view_is_due(s->view))
        um_view_draw(s->view, um_speller_read(l->speller, ev->snapshot));
    if (ev->type == UM_EVENT_TEXT) um_showing_text(s, (um_str){ev->text, ev->text_len});
    if (ev->type == UM_EVENT_FINISH) finish(l, ev->result);
}

/* ---- Asking ------------------------------------------------------------------------------------------------------ */

static void pause_between_passes(local *l) {
    double start = um_now();
    if (l->base.showing.view) um_showing_pause(&l->base.showing);
    l->paused += um_now() - start;
}

static um_status run(local *l, um_request *r, um_err *err) {
    um_engine *e = l->session->engine;
    int64_t id = 0;
    um_status s = um_engine_add(e, r, &id, err);
    while (!s && !l->done) {
        if (um_cli_interrupted()) {
            s = um_engine_abort(e, id, err);
            break;
        }
        s = um_engine_step(e, err);
        pause_between_passes(l);
    }
    if (s && id && !l->done) (void)um_engine_abort(e, id, NULL); /* the callback's argument ends with this call */
    return s;
}

static um_status ask(um_answerer *a, um_question *q, um_reply *out, um_err *err) {
    local *l = (local *)a;
    um_request r = q->request;
    *out = (um_reply){0};
    um_status s = check_room(l, q, err);
    if (s) return s;
    l->reply = out;
    l->paused = 0;
    l->done = false;
    um_speller_reset(l->speller);
    r.events = UM_EVENT_FINISH | (a->showing.view ? UM_EVENT_SNAPSHOT : UM_EVENT_TEXT);
    r.on_event = on_event;
    r.arg = l;
    if (a->showing.view) um_cli_echo(false);
    s = run(l, &r, err);
    if (a->showing.view) um_cli_echo(true);
    return s;
}

static void put_stats(const um_answerer *a, um_buf *out) {
    um_stats s;
    um_engine_get_stats(((const local *)a)->session->engine, &s);
    um_buf_printf(out,
                  "  time           %.2f s, of it %.2f s in forward passes\n"
                  "  memory         weights %.1f MB, KV %.1f MB, workspace %.1f MB\n",
                  s.step_seconds, s.forward_seconds, (double)s.weight_bytes / 1e6, (double)s.kv_bytes / 1e6,
                  (double)s.workspace_bytes / 1e6);
}

static void free_local(um_answerer *a) {
    um_speller_free(((local *)a)->speller);
    um_free(a);
}

um_answerer *um_answerer_local(um_session *s) {
    local *l = UM_NEW(local);
    *l = (local){.base = {ask, put_stats, free_local, true, {0}}, .session = s};
    l->speller = um_speller_new(s->model);
    return &l->base;
}
