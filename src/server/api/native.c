/* Diffulex's API, POST /generate: one prompt, one answer. Streams have snapshots by default, since its clients show how
 * an answer is denoised. A body with `text` or `input_ids` is one of SGLang's API (sglang.c). */
#include <jansson.h>

#include "server/api/common.h"
#include "server/api/sglang.h"

/* Diffulex's defaults. */
#define DEFAULT_MAX_TOKENS  "512"
#define DEFAULT_TEMPERATURE "1"

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

static const um_field rows[] = {
    {.name = "prompt", .take = um_body_take_prompt, .types = "string|array"},
};
static const um_field_set native_rows = {rows, UM_LEN(rows)};
static const um_field_set *const sets[] = {&native_rows, &um_common_fields, NULL};

static um_status check(um_body *b, um_err *err) {
    um_status st = um_body_is_single(b, err);
    if (!st && b->continuous_usage)
        st = um_fail_param(err, UM_EINVAL, "stream_options",
                           "every event has the token counts; the last one has the usage");
    if (!st) st = um_body_default(b, "max_tokens", DEFAULT_MAX_TOKENS, err);
    if (!st) st = um_body_default(b, "temperature", DEFAULT_TEMPERATURE, err);
    b->usage_extensions = true;
    return st;
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

static void put_answer(um_generation *g, um_jw *w) {
    um_choice *c = um_generation_choice(g, 0);
    const um_msg_finish *m = &c->result;
    um_jw_put_cstr(w, "id", um_generation_id(g));
    um_put_reply(g, c, w);
    um_jw_put_cstr(w, "finish_reason", um_finish_name((um_finish)m->finish));
    um_jw_key(w, "usage");
    um_put_usage(g, w);
    um_jw_put_int(w, "seed", m->seed);
    const um_tokens all = um_choice_tokens(c);
    if (um_generation_body(g)->top_logprobs >= 0) um_put_token_logprobs(w, "logprobs", &all);
    um_put_stream_extras(g, c, w);
}

static void whole(um_generation *g, um_jw *w) {
    um_jw_begin_object(w);
    put_answer(g, w);
    um_jw_end_object(w);
}

/* ---- Streaming --------------------------------------------------------------------------------------------------- */

static void text(um_generation *g, um_choice *c, const um_msg_text *m) {
    um_tokens all = um_choice_tokens(c), part = um_tokens_part(&all, all.n - m->n_ids, all.n);
    um_jw *w = um_sse_begin(um_generation_sse(g));
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "event", "append");
    um_jw_put_cstr(w, "id", um_generation_id(g));
    um_jw_put_int(w, "token_offset", m->offset);
    um_jw_put_str(w, "text", m->text);
    um_jw_put_ints(w, "token_ids", part.id, part.n);
    if (um_generation_body(g)->top_logprobs >= 0) um_put_token_logprobs(w, "logprobs", &part);
    um_jw_put_int(w, "nfe", m->nfe);
    um_jw_put_bool(w, "finished", false);
    um_put_decode(w, m->decode_seconds, m->decode_tokens);
    um_jw_end_object(w);
    um_sse_append(um_generation_sse(g));
}

static void snapshot(um_generation *g, um_choice *c, const um_msg_snapshot *m) {
    um_jw *w = um_sse_begin(um_generation_sse(g));
    um_jw_begin_object(w);
    um_put_snapshot(g, c, m, w);
    um_jw_end_object(w);
    um_sse_replace(um_generation_sse(g), c->number, um_generation_body(g)->snapshot_max_hz);
}

static void end(um_generation *g) {
    um_jw *w = um_sse_begin(um_generation_sse(g));
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "event", "final");
    um_jw_put_bool(w, "finished", true);
    put_answer(g, w);
    um_jw_end_object(w);
    um_sse_append(um_generation_sse(g));
}

static void error(um_generation *g, int status, const um_err *err) {
    um_jw *w = um_sse_begin(um_generation_sse(g));
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "event", "error");
    um_jw_put_cstr(w, "id", um_generation_id(g));
    um_jw_put_cstr(w, "message", err->msg);
    um_jw_put_int(w, "code", status);
    um_jw_end_object(w);
    um_sse_append(um_generation_sse(g));
}

static const um_response_writer writer = {.name = "native",
                                          .id_prefix = "unmask-",
                                          .whole = whole,
                                          .text = text,
                                          .snapshot = snapshot,
                                          .end = end,
                                          .error = error};

/* ---- Endpoint ---------------------------------------------------------------------------------------------------- */

const um_api um_api_native = {"/generate", sets, "prompt", UM_STREAM_DENOISE, check, &writer, NULL};

static um_status read(um_intake *r, um_err *err) {
    return um_sglang_is_body(r->root) ? um_sglang_read(r, err) : um_intake_read_api(r, &um_api_native, err);
}

static void handle(um_service *s, um_exchange *x, const char *id) {
    static const um_intake_handler handler = {.read = read, .respond = um_intake_generate, .generates = true};
    (void)id;
    um_intake_start(s, x, &handler, NULL);
}

static const um_endpoint endpoints[] = {
    {"POST", "/generate", handle, UM_ENDPOINT_WAITS, "Diffulex, SGLang",
     "continue a text or token ids; streams snapshots or settled text"},
};
const um_endpoint_set um_native_endpoints = {endpoints, UM_LEN(endpoints)};
