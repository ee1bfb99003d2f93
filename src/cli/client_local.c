/* The client of an engine in this program: submits a request, steps the engine until the answer has finished or Ctrl-C
 * stops it, and shows settled text or frames. */
#include "cli/client.h"
#include "engine/engine.h"

typedef struct local {
    um_client base;
    um_session *session;
    um_frame_builder *frame_builder;

    /* The current answer. */
    um_client_response *response;
    double paused; /* seconds of pauses, which are not the engine's work */
    bool done;
} local;

/* ---- Length of the conversation ---------------------------------------------------------------------------------- */

/* Returns the longest conversation in tokens that leaves room for an answer. */
static int64_t max_history_tokens(const local *l, const um_request *r) {
    const um_engine *e = l->session->engine;
    int64_t longest = UM_MIN(e->max_len, UM_MAX(1, e->config.max_num_batched_tokens - UM_CHAT_WINDOW));
    int32_t answer = r->sampling.max_tokens;
    if (answer == 0) answer = um_arch_answer_tokens(&l->session->model->arch);
    return longest - UM_MIN(answer, longest / 4);
}

static um_status check_room(const local *l, const um_client_request *q, um_err *err) {
    um_ids ids = {0};
    if (!q->can_shrink) return UM_OK;
    um_status st = um_chat_render(l->session->model->chat, q->request.chat, NULL, &ids, err);
    int64_t n = (int64_t)ids.n, most = max_history_tokens(l, &q->request);
    um_ids_free(&ids);
    if (st || n <= most) return st;
    return um_fail(err, UM_ELIMIT,
                   "the conversation has %lld tokens; the limit is %lld, which leaves room for an answer", (long long)n,
                   (long long)most);
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

static void copy_result(local *l, const um_result *r) {
    um_client_response *response = l->response;
    response->result = *r;
    response->result.total_seconds -= l->paused;
    um_buf_append(&response->text, r->text, r->text_len);
    response->ids = UM_NEW_ARRAY(int32_t, r->n_tokens + 1);
    if (r->n_tokens) memcpy(response->ids, r->token_ids, r->n_tokens * sizeof(int32_t));
    response->result.text = response->text.data;
    response->result.token_ids = response->ids;
    response->result.pass = NULL; /* these arrays are valid only during the event */
    response->result.logprob = NULL;
    response->result.likeliest = NULL;
    response->result.stop = NULL;
}

static void finish(local *l, const um_result *r) {
    const um_client_output *s = &l->base.output;
    if (s->view) um_view_finish(s->view, (um_str){r->text, r->text_len});
    if (s->finished) s->finished(s->arg, r);
    copy_result(l, r);
    l->done = true;
}

static void on_event(void *arg, const um_event *ev) {
    local *l = (local *)arg;
    um_client_output *s = &l->base.output;
    if (ev->type == UM_EVENT_SNAPSHOT && um_view_is_due(s->view))
        um_view_draw(s->view, um_frame_builder_read(l->frame_builder, ev->snapshot));
    if (ev->type == UM_EVENT_TEXT) um_client_output_text(s, (um_str){ev->text, ev->text_len});
    if (ev->type == UM_EVENT_FINISH) finish(l, ev->result);
}

/* ---- Sending ----------------------------------------------------------------------------------------------------- */

static void pause_after_pass(local *l) {
    double start = um_now();
    if (l->base.output.view) um_client_output_pause(&l->base.output);
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
        pause_after_pass(l);
    }
    if (s && id && !l->done) (void)um_engine_abort(e, id, NULL); /* no event may come after this function returns */
    return s;
}

static um_status send_request(um_client *a, um_client_request *q, um_client_response *out, um_err *err) {
    local *l = (local *)a;
    um_request r = q->request;
    *out = (um_client_response){0};
    um_status s = check_room(l, q, err);
    if (s) return s;
    l->response = out;
    l->paused = 0;
    l->done = false;
    um_frame_builder_reset(l->frame_builder);
    r.events = UM_EVENT_FINISH | (a->output.view ? UM_EVENT_SNAPSHOT : UM_EVENT_TEXT);
    r.on_event = on_event;
    r.arg = l;
    if (a->output.view) um_cli_echo(false);
    s = run(l, &r, err);
    um_client_output_end(&a->output);
    if (a->output.view) um_cli_echo(true);
    return s;
}

/* Lets the engine check the parameters with a prompt of one token. The length of the prompt does not change which
 * parameters can be combined. */
static um_status check(um_client *a, um_client_request *q, const um_option *set, um_err *err) {
    static const int32_t any = 0;
    um_request r = q->request;
    (void)set;
    r.text = NULL;
    r.chat = NULL;
    r.ids = &any;
    r.n_ids = 1;
    return um_engine_check_request(((const local *)a)->session->engine, &r, err);
}

static void put_stats(const um_client *a, um_buf *out) {
    um_stats s;
    char weights[UM_BYTES_TEXT], kv[UM_BYTES_TEXT], workspace[UM_BYTES_TEXT];
    um_engine_get_stats(((const local *)a)->session->engine, &s);
    um_buf_printf(out,
                  "  time           %.2f s, including %.2f s in forward passes\n"
                  "  memory         weights %s, KV %s, workspace %s\n",
                  s.step_seconds, s.forward_seconds, um_bytes_text(weights, (double)s.weight_bytes),
                  um_bytes_text(kv, (double)s.kv_bytes), um_bytes_text(workspace, (double)s.workspace_bytes));
}

static void print_examples(const um_client *a) {
    um_model_info info;
    um_model_get_info(((const local *)a)->session->model, &info);
    um_cli_print_examples(info.example, info.n_examples);
}

static void free_local(um_client *a) {
    um_frame_builder_free(((local *)a)->frame_builder);
    um_free(a);
}

um_client *um_client_local(um_session *s) {
    local *l = UM_NEW(local);
    *l = (local){.base = {send_request, check, put_stats, print_examples, free_local, true, {0}}, .session = s};
    l->frame_builder = um_frame_builder_new(s->model);
    return &l->base;
}
