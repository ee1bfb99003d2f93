/* Parts of answers that both of OpenAI's APIs have: heads, chunks, snapshots. */
#include <jansson.h>

#include "server/api/openai.h"
#include "server/api/shapes.h"

#include "commit.h"

#define TEMPERATURE_MAX 2

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

static um_status take_temperature(um_body *b, const json_t *v, um_err *err) {
    const double t = json_number_value(v);
    if (t < 0 || t > TEMPERATURE_MAX)
        return um_fail(err, UM_ERANGE, "\"temperature\": %g is outside 0..%d", t, TEMPERATURE_MAX);
    return um_body_set_json(b, "temperature", "temperature", v, err);
}

/* Where as many answers are made as are wanted there is nothing to choose from. */
static um_status take_best_of(um_body *b, const json_t *v, um_err *err) {
    const json_t *n = json_object_get(b->root, "n");
    if (json_is_integer(v) && (json_integer_value(v) == 1 || json_equal(v, n))) return UM_OK;
    return um_fail(err, UM_EINVAL,
                   "\"best_of\": only 1 or the value of \"n\" is possible here: answers are not ranked");
}

static const um_field rows[] = {
    {.name = "temperature", .take = take_temperature},
    {.name = "best_of", .take = take_best_of},
};
const um_field_set um_openai_fields = {rows, UM_LEN(rows)};

/* ---- Heads ------------------------------------------------------------------------------------------------------- */

const char *um_fingerprint(void) {
    static char text[80];
    if (!*text) snprintf(text, sizeof text, "unmask-%s-%s", um_version(), UM_COMMIT);
    return text;
}

/* The members id, object, created, model, system_fingerprint. */
static void put_head(um_turn *t, um_jw *w, const char *object) {
    um_jw_put_cstr(w, "id", um_turn_id(t));
    um_jw_put_cstr(w, "object", object);
    um_jw_put_int(w, "created", um_turn_created(t));
    um_jw_put_cstr(w, "model", um_turn_model(t));
    um_jw_put_cstr(w, "system_fingerprint", um_fingerprint());
}

void um_openai_whole(um_turn *t, um_jw *w, const char *object, void (*put_choice)(um_turn *t, um_choice *c, um_jw *w)) {
    um_jw_begin_object(w);
    put_head(t, w, object);
    um_jw_key(w, "choices");
    um_jw_begin_array(w);
    for (int32_t i = 0; i < um_turn_n_choices(t); i++) put_choice(t, um_turn_choice(t, i), w);
    um_jw_end_array(w);
    um_jw_key(w, "usage");
    um_put_usage(t, w);
    um_jw_end_object(w);
}

/* ---- Chunks ------------------------------------------------------------------------------------------------------ */

bool um_openai_is_denoise(const um_turn *t) { return um_turn_body(t)->stream_mode == UM_STREAM_DENOISE; }

um_jw *um_openai_chunk(um_turn *t, const um_choice *c, const char *object) {
    um_jw *w = um_sse_begin(um_turn_sse(t));
    um_jw_begin_object(w);
    put_head(t, w, object);
    um_jw_key(w, "choices");
    um_jw_begin_array(w);
    um_jw_begin_object(w);
    um_jw_put_int(w, "index", c->number);
    return w;
}

/* Who asks for usage gets the member in every chunk, null until the last. */
static void put_chunk_usage(um_turn *t, um_jw *w) {
    const um_body *b = um_turn_body(t);
    if (!b->include_usage) return;
    um_jw_key(w, "usage");
    if (b->continuous_usage) um_put_usage(t, w);
    else um_jw_null(w);
}

void um_openai_send(um_turn *t, um_jw *w) {
    um_jw_end_object(w);
    um_jw_end_array(w);
    put_chunk_usage(t, w);
    um_jw_end_object(w);
    um_sse_append(um_turn_sse(t));
}

void um_openai_usage_chunk(um_turn *t, const char *object) {
    const um_body *b = um_turn_body(t);
    if (!b->include_usage) return;
    um_jw *w = um_sse_begin(um_turn_sse(t));
    um_jw_begin_object(w);
    put_head(t, w, object);
    um_jw_key(w, "choices");
    um_jw_begin_array(w);
    um_jw_end_array(w);
    um_jw_key(w, "usage");
    um_put_usage(t, w);
    um_jw_end_object(w);
    um_sse_append(um_turn_sse(t));
}

void um_openai_goes_on(um_jw *w) { um_jw_put_null(w, "finish_reason"); }

void um_openai_chunk_logprobs(um_turn *t, const um_choice *c, const um_tokens *v, um_logprobs_fn put, um_jw *w) {
    um_jw_key(w, "logprobs");
    if (v->n && um_turn_body(t)->top_logprobs >= 0) put(t, c, v, w);
    else um_jw_null(w);
}

void um_openai_logprobs(um_turn *t, const um_choice *c, um_logprobs_fn put, um_jw *w) {
    um_tokens all = um_choice_tokens(c);
    um_jw_key(w, "logprobs");
    if (um_turn_body(t)->top_logprobs >= 0) put(t, c, &all, w);
    else um_jw_null(w);
}

/* ---- Denoising --------------------------------------------------------------------------------------------------- */

void um_openai_snapshot(um_turn *t, um_choice *c, const um_msg_snapshot *m, const char *object) {
    um_jw *w = um_sse_begin(um_turn_sse(t));
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "object", object);
    um_jw_put_int(w, "created", um_turn_created(t));
    um_jw_put_cstr(w, "model", um_turn_model(t));
    um_jw_put_int(w, "index", c->number);
    um_put_snapshot(t, c, m, w);
    um_jw_end_object(w);
    um_sse_replace(um_turn_sse(t), c->number, um_turn_body(t)->snapshot_max_hz);
}

void um_openai_final(um_turn *t, um_choice *c, const char *object, const char *finish_reason, um_logprobs_fn put) {
    const um_msg_finish *m = &c->result;
    um_jw *w = um_sse_begin(um_turn_sse(t));
    um_jw_begin_object(w);
    put_head(t, w, object);
    um_jw_put_cstr(w, "event", "final");
    um_jw_put_bool(w, "finished", true);
    um_jw_put_int(w, "index", c->number);
    um_put_reply(t, c, w);
    um_openai_logprobs(t, c, put, w);
    um_jw_put_cstr(w, "finish_reason", finish_reason);
    um_jw_key(w, "stop_reason");
    um_put_stop_reason(w, m);
    um_jw_put_int(w, "seed", m->seed);
    um_jw_key(w, "usage");
    um_put_usage(t, w);
    um_jw_end_object(w);
    um_sse_append(um_turn_sse(t));
}

/* ---- Mixed ------------------------------------------------------------------------------------------------------- */

/* The text of the tokens from `from` on that are no masks. */
static void put_unsettled(um_turn *t, const um_msg_snapshot *m, uint32_t from, um_jw *w) {
    char *text = NULL;
    size_t n = m->n - from, *end = UM_NEW_ARRAY(size_t, n + 1);
    um_model_decode_each(um_server_model(um_turn_server(t)), m->ids + from, n, um_turn_body(t)->keep_special, &text,
                         end, NULL);
    um_jw_put_str(w, "provisional_text", (um_str){text, text && n ? end[n - 1] : 0});
    um_free(text);
    um_free(end);
}

void um_openai_provisional(um_turn *t, um_choice *c, const um_msg_snapshot *m, um_jw *w) {
    uint32_t from = UM_MIN((uint32_t)c->n_tokens, m->n);
    int64_t masks = 0;
    for (uint32_t i = from; i < m->n; i++) masks += m->ids[i] < 0;
    um_jw_key(w, "dllm");
    um_jw_begin_object(w);
    put_unsettled(t, m, from, w);
    um_jw_put_int(w, "mask_count", masks);
    um_jw_key(w, "block");
    um_jw_begin_object(w);
    um_jw_put_int(w, "start", m->n_blocks ? m->block_start[0] : 0);
    um_jw_put_int(w, "length", m->n_blocks ? m->block_length[0] : 0);
    um_jw_end_object(w);
    um_jw_put_int(w, "nfe", m->nfe);
    um_jw_end_object(w);
}
