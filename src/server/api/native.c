/* POST /generate as Diffulex has it: one prompt, one answer, and streams of snapshots, since watching a text settle is
 * what its clients want. A body with `text` or `input_ids` is SGLang's (sglang.c). */
#include <jansson.h>

#include "server/api/sglang.h"
#include "server/api/shapes.h"

/* Defaults of the API that this one is compatible with. */
#define TOKENS      "512"
#define TEMPERATURE "1"

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

static const um_field rows[] = {
    {.name = "prompt", .take = um_body_take_prompt},
};
static const um_field_set native_rows = {rows, UM_LEN(rows)};
static const um_field_set *const sets[] = {&native_rows, &um_common_fields, NULL};

static um_status check(um_body *b, um_err *err) {
    um_status st = um_body_is_single(b, err);
    if (!st && b->continuous_usage)
        st =
            um_fail_param(err, UM_EINVAL, "stream_options", "every event has the counts; the usage is in the last one");
    if (!st) st = um_body_default(b, "max_tokens", TOKENS, err);
    if (!st) st = um_body_default(b, "temperature", TEMPERATURE, err);
    b->usage_extensions = true;
    return st;
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

static void put_answer(um_turn *t, um_jw *w) {
    um_choice *c = um_turn_choice(t, 0);
    const um_msg_finish *m = &c->result;
    um_jw_put_cstr(w, "id", um_turn_id(t));
    um_put_reply(t, c, w);
    um_jw_put_cstr(w, "finish_reason", um_finish_name((um_finish)m->finish));
    um_jw_key(w, "usage");
    um_put_usage(t, w);
    um_jw_put_int(w, "seed", m->seed);
    const um_tokens all = um_choice_tokens(c);
    if (um_turn_body(t)->top_logprobs >= 0) um_put_token_logprobs(w, "logprobs", &all);
    um_put_stream_extras(t, c, w);
}

static void whole(um_turn *t, um_jw *w) {
    um_jw_begin_object(w);
    put_answer(t, w);
    um_jw_end_object(w);
}

/* ---- Streaming --------------------------------------------------------------------------------------------------- */

static void text(um_turn *t, um_choice *c, const um_msg_text *m) {
    um_tokens all = um_choice_tokens(c), part = um_tokens_part(&all, all.n - m->n_ids, all.n);
    um_jw *w = um_sse_begin(um_turn_sse(t));
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "event", "append");
    um_jw_put_cstr(w, "id", um_turn_id(t));
    um_jw_put_int(w, "token_offset", m->offset);
    um_jw_put_str(w, "text", m->text);
    um_jw_put_ints(w, "token_ids", part.id, part.n);
    if (um_turn_body(t)->top_logprobs >= 0) um_put_token_logprobs(w, "logprobs", &part);
    um_jw_put_int(w, "nfe", m->nfe);
    um_jw_put_bool(w, "finished", false);
    um_put_decode(w, m->decode_seconds, m->decode_tokens);
    um_jw_end_object(w);
    um_sse_append(um_turn_sse(t));
}

static void snapshot(um_turn *t, um_choice *c, const um_msg_snapshot *m) {
    um_jw *w = um_sse_begin(um_turn_sse(t));
    um_jw_begin_object(w);
    um_put_snapshot(t, c, m, w);
    um_jw_end_object(w);
    um_sse_replace(um_turn_sse(t), c->number, um_turn_body(t)->snapshot_max_hz);
}

static void end(um_turn *t) {
    um_jw *w = um_sse_begin(um_turn_sse(t));
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "event", "final");
    um_jw_put_bool(w, "finished", true);
    put_answer(t, w);
    um_jw_end_object(w);
    um_sse_append(um_turn_sse(t));
}

static void error(um_turn *t, int status, const um_err *err) {
    um_jw *w = um_sse_begin(um_turn_sse(t));
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "event", "error");
    um_jw_put_cstr(w, "id", um_turn_id(t));
    um_jw_put_cstr(w, "message", err->msg);
    um_jw_put_int(w, "code", status);
    um_jw_end_object(w);
    um_sse_append(um_turn_sse(t));
}

static const um_shape shape = {.name = "native",
                               .id_prefix = "unmask-",
                               .whole = whole,
                               .text = text,
                               .snapshot = snapshot,
                               .end = end,
                               .error = error};

/* ---- Endpoint ---------------------------------------------------------------------------------------------------- */

static const um_api native = {"/generate", sets, "prompt", UM_STREAM_DENOISE, check, &shape};

static um_status read(um_reading *r, um_err *err) {
    return um_sglang_is_body(r->root) ? um_sglang_read(r, err) : um_read_api(r, &native, err);
}

static void handle(um_server *s, um_exchange *x, const char *id) {
    static const um_reader reader = {.read = read, .answer = um_answer_api, .generates = true};
    (void)id;
    um_read(s, x, &reader, NULL);
}

static const um_endpoint endpoints[] = {
    {"POST", "/generate", handle, UM_ENDPOINT_WAITS, "Diffulex, SGLang",
     "goes on with a text or ids; streams snapshots or settled text"},
};
const um_endpoint_set um_native_endpoints = {endpoints, UM_LEN(endpoints)};
