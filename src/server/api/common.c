/* Helpers that several APIs share. */
#include "server/api/common.h"

#include <stdlib.h>

#include "engine/options.h"

#define CALL_SECONDS 20.0 /* timeout of a worker utility */

/* ---- Options ----------------------------------------------------------------------------------------------------- */

static bool is_number(const um_option *row) {
    return row->type == UM_OPT_INT || row->type == UM_OPT_INT64 || row->type == UM_OPT_FLOAT;
}

static void put_option(um_jw *w, const um_option *row, const void *base) {
    um_buf text = {0};
    double number;
    um_option_get_text(row, base, &text);
    um_buf_append(&text, "", 0);
    um_jw_key(w, row->name);
    if (row->type == UM_OPT_BOOL) um_jw_bool(w, um_streq(text.data, "true"));
    else if (is_number(row) && um_parse_double(text.data, &number)) um_jw_raw(w, text.data, text.len);
    else if (row->type == UM_OPT_STR && !text.len) um_jw_null(w);
    else um_jw_str(w, text.data, text.len);
    um_buf_free(&text);
}

static void copy_name(char *to, size_t size, um_str name) { snprintf(to, size, "%.*s", (int)name.n, name.p); }

void um_request_defaults(um_service *s, um_request *q) {
    um_worker_pool *b = s->workers;
    um_request_init_config(s->setup.config->engine, q);
    for (int32_t i = 0; i < um_worker_pool_size(b); i++) {
        const um_msg_ready *ready = um_worker_pool_get_status(b, i).ready;
        if (!ready) continue;
        copy_name(q->decoding.strategy, sizeof q->decoding.strategy, ready->strategy);
        copy_name(q->decoding.sampler, sizeof q->decoding.sampler, ready->sampler);
        return;
    }
}

void um_put_options(um_jw *w, const um_option_set *sets, size_t n_sets) {
    for (size_t i = 0; i < n_sets; i++)
        for (size_t k = 0; k < sets[i].n; k++) put_option(w, &sets[i].rows[k], sets[i].base);
}

/* ---- Log-probabilities ------------------------------------------------------------------------------------------- */

static void put_logprob(um_jw *w, int32_t id, float logprob) {
    um_jw_put_int(w, "token_id", id);
    um_jw_put_double(w, "logprob", (double)logprob);
}

static void put_likeliest(um_jw *w, const um_tokens *v, uint32_t i) {
    size_t n = (size_t)v->n_likeliest;
    um_jw_key(w, "top");
    um_jw_begin_array(w);
    for (size_t k = i * n; k < (i + 1) * n && v->likeliest_id[k] >= 0; k++) {
        um_jw_begin_object(w);
        put_logprob(w, v->likeliest_id[k], v->likeliest[k]);
        um_jw_end_object(w);
    }
    um_jw_end_array(w);
}

void um_put_token_logprobs(um_jw *w, const char *key, const um_tokens *v) {
    um_jw_key(w, key);
    um_jw_begin_array(w);
    for (uint32_t i = 0; i < v->n && v->logprob; i++) {
        um_jw_begin_object(w);
        put_logprob(w, v->id[i], v->logprob[i]);
        put_likeliest(w, v, i);
        um_jw_end_object(w);
    }
    um_jw_end_array(w);
}

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

bool um_generation_is_list(um_generation *g) {
    return !um_generation_body(g)->one_prompt || um_generation_n_choices(g) > 1;
}

/* ---- Diffulex's reply -------------------------------------------------------------------------------------------- */

void um_put_decode(um_jw *w, double seconds, int32_t tokens) {
    um_jw_put_double(w, "engine_decode_time_s", seconds);
    um_jw_put_int(w, "engine_decode_tokens", tokens);
    um_jw_put_ratio(w, "engine_decode_tps", tokens, seconds);
}

/* Writes the members full_*: the answer and the stop string or token that ended it. Later text is not kept. */
static void put_full(um_jw *w, const um_body *b, const um_msg_finish *m) {
    um_buf all = {0};
    um_buf_append(&all, m->text.p, m->text.n);
    if (m->stop.n && !b->include_stop) um_buf_append(&all, m->stop.p, m->stop.n);
    um_jw_put_str(w, "full_text", (um_str){all.data, all.len});
    um_buf_free(&all);
    um_jw_key(w, "full_token_ids");
    um_jw_begin_array(w);
    for (uint32_t i = 0; i < m->n_ids; i++) um_jw_int(w, m->ids[i]);
    if (m->stop_id >= 0) um_jw_int(w, m->stop_id);
    um_jw_end_array(w);
}

void um_put_reply(um_generation *g, const um_choice *c, um_jw *w) {
    const um_msg_finish *m = &c->result;
    um_jw_put_str(w, "text", m->text);
    um_jw_put_ints(w, "token_ids", m->ids, m->n_ids);
    put_full(w, um_generation_body(g), m);
    um_jw_put_int(w, "nfe", m->nfe);
    um_put_decode(w, m->decode_seconds, m->denoise_tokens);
}

/* ---- Bodies ------------------------------------------------------------------------------------------------------ */

um_status um_body_default(um_body *b, const char *option, const char *value, um_err *err) {
    return um_body_is_set(b, option) ? UM_OK : um_body_set(b, option, value, err);
}

um_status um_body_streams_text(um_body *b, um_err *err) {
    if (b->stream_mode != UM_STREAM_BLOCK_APPEND)
        return um_fail_param(err, UM_EINVAL, "stream_mode", "this API only streams settled text (block_append)");
    return UM_OK;
}

um_status um_body_is_single(um_body *b, um_err *err) {
    if (!b->one_prompt) return um_fail_param(err, UM_EINVAL, "prompt", "expected one prompt, found a list");
    if (b->generate.n > 1)
        return um_fail_param(err, UM_EINVAL, "n", "this API returns one answer; use /v1/completions for several");
    return UM_OK;
}

/* ---- Exchanges --------------------------------------------------------------------------------------------------- */

void um_reply_with(um_service *s, um_exchange *x, void (*put)(um_service *s, um_jw *w)) {
    um_buf body = {0};
    um_jw w;
    um_jw_init(&w, &body);
    put(s, &w);
    um_reply_json(x, 200, &body);
    um_buf_free(&body);
}

/* A call of a utility, and the exchange that waits for it. Workers can't cancel a call, so it runs to its end even if
 * the client disconnects. */
typedef struct utility_call {
    um_exchange *x; /* NULL: the client has disconnected */
    void (*put)(const char *results, um_jw *w);
} utility_call;

static void on_close(void *arg, um_exchange *x, bool complete) {
    utility_call *c = arg;
    (void)x, (void)complete;
    c->x = NULL;
}

static void respond(const utility_call *c, um_status st, const char *results, const um_err *err) {
    um_buf body = {0};
    um_jw w;
    um_exchange_on_close(c->x, NULL, NULL);
    if (st) {
        int status = st == UM_ECANCELED ? 504 : st == UM_EIO ? 503 : um_http_status_of(st);
        um_reply_error(c->x, status, NULL, NULL, "%s", err->msg);
        return;
    }
    um_jw_init(&w, &body);
    c->put(results, &w);
    um_reply_json(c->x, 200, &body);
    um_buf_free(&body);
}

static void on_done(void *arg, um_status st, const char *value, const um_err *err) {
    utility_call *c = arg;
    if (c->x) respond(c, st, value, err);
    um_free(c);
}

void um_reply_call(um_service *s, um_exchange *x, const char *utility, void (*put)(const char *results, um_jw *w)) {
    utility_call *c = UM_NEW(utility_call);
    *c = (utility_call){x, put};
    um_exchange_on_close(x, on_close, c);
    um_worker_pool_call(s->workers, -1, utility, UM_STR("{}"), CALL_SECONDS, on_done, c);
}
