/* Responses, chunks and snapshots in the formats that both of OpenAI's APIs have. */
#include <jansson.h>

#include "server/api/common.h"
#include "server/api/openai.h"

#include "commit.h"

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

/* Only values that need no choice among answers are accepted. */
static um_status take_best_of(um_body *b, const json_t *v, um_err *err) {
    const json_t *n = json_object_get(b->root, "n");
    if (json_is_integer(v) && (json_integer_value(v) == 1 || json_equal(v, n))) return UM_OK;
    return um_fail(err, UM_EINVAL,
                   "\"best_of\": only 1 or the value of \"n\" is possible here: the server does not rank answers");
}

static um_status take_as_token_ids(um_body *b, const json_t *v, um_err *err) {
    return um_json_take_bool(v, "\"return_tokens_as_token_ids\"", &b->as_token_ids, err);
}

static const um_field rows[] = {
    {.name = "best_of", .take = take_best_of, .types = "integer"},
    {.name = "return_tokens_as_token_ids", .take = take_as_token_ids, .types = "boolean"},
    {.name = "mm_processor_kwargs", .neutral = "{}|null", .why = "the models read and write text only"},
    {.name = "kv_transfer_params", .neutral = "{}|null", .why = "a worker stores prompts and writes answers"},
    {.name = "vllm_xargs", .neutral = "{}|null", .why = "decoding parameters are fields of the request"},
    {.name = "logits_processors", .neutral = "[]|null", .why = "use logit_bias to change logits"},
    {.name = "custom_logit_processor", .neutral = "null", .why = "use logit_bias to change logits"},
    {.name = "custom_params", .neutral = "{}|null", .why = "there is no custom_logit_processor to read them"},
    {.name = "session_params", .neutral = "{}|null", .why = "send the whole prompt; its prefix is cached"},
    {.name = "stop_regex", .neutral = "[]|null", .why = "use stop, which takes plain strings"},
    {.name = "no_stop_trim", .neutral = "false|null", .why = "include_stop_str_in_output keeps the stop string"},
    {.name = "return_hidden_states", .neutral = "false|null", .why = "hidden states do not leave the engine"},
};
const um_field_set um_openai_fields = {rows, UM_LEN(rows)};

static const um_field chat_rows[] = {
    {.name = "moderation", .neutral = "null", .why = "the server has no model for moderation"},
    {.name = "prompt_cache_retention", .why = "the cache keeps prompts as long as it has room"},
    {.name = "prompt_cache_options", .why = "the cache keeps prompts as long as it has room"},
};
const um_field_set um_openai_chat_fields = {chat_rows, UM_LEN(chat_rows)};

/* ---- Responses --------------------------------------------------------------------------------------------------- */

const char *um_fingerprint(void) {
    static char text[80];
    if (!*text) snprintf(text, sizeof text, "unmask-%s-%s", um_version(), UM_COMMIT);
    return text;
}

/* Writes the members id, object, created, model, system_fingerprint. */
static void put_head(um_generation *g, um_jw *w, const char *object) {
    um_jw_put_cstr(w, "id", um_generation_id(g));
    um_jw_put_cstr(w, "object", object);
    um_jw_put_int(w, "created", um_generation_created(g));
    um_jw_put_cstr(w, "model", um_generation_model(g));
    um_jw_put_cstr(w, "system_fingerprint", um_fingerprint());
}

void um_openai_put_response(um_generation *g, um_jw *w, const char *object,
                            void (*put_choice)(um_generation *g, um_choice *c, um_jw *w)) {
    um_jw_begin_object(w);
    put_head(g, w, object);
    um_jw_key(w, "choices");
    um_jw_begin_array(w);
    for (int32_t i = 0; i < um_generation_n_choices(g); i++) put_choice(g, um_generation_choice(g, i), w);
    um_jw_end_array(w);
    um_jw_key(w, "usage");
    um_put_usage(g, w);
    um_jw_end_object(w);
}

/* ---- Chunks ------------------------------------------------------------------------------------------------------ */

bool um_openai_is_denoise(const um_generation *g) { return um_generation_body(g)->stream_mode == UM_STREAM_DENOISE; }

um_jw *um_openai_begin_chunk(um_generation *g, const um_choice *c, const char *object) {
    um_jw *w = um_sse_begin(um_generation_sse(g));
    um_jw_begin_object(w);
    put_head(g, w, object);
    um_jw_key(w, "choices");
    um_jw_begin_array(w);
    um_jw_begin_object(w);
    um_jw_put_int(w, "index", c->number);
    return w;
}

/* If the request asks for the usage, every chunk has the member: the sums so far with continuous_usage_stats, else
 * null. */
static void put_chunk_usage(um_generation *g, um_jw *w) {
    const um_body *b = um_generation_body(g);
    if (!b->include_usage) return;
    um_jw_key(w, "usage");
    if (b->continuous_usage) um_put_chunk_usage(g, w);
    else um_jw_null(w);
}

void um_openai_send_chunk(um_generation *g, um_jw *w) {
    um_jw_end_object(w);
    um_jw_end_array(w);
    put_chunk_usage(g, w);
    um_jw_end_object(w);
    um_sse_append(um_generation_sse(g));
}

void um_openai_send_usage(um_generation *g, const char *object) {
    const um_body *b = um_generation_body(g);
    if (!b->include_usage) return;
    um_jw *w = um_sse_begin(um_generation_sse(g));
    um_jw_begin_object(w);
    put_head(g, w, object);
    um_jw_key(w, "choices");
    um_jw_begin_array(w);
    um_jw_end_array(w);
    um_jw_key(w, "usage");
    um_put_usage(g, w);
    um_jw_end_object(w);
    um_sse_append(um_generation_sse(g));
}

void um_openai_put_unfinished(um_jw *w) { um_jw_put_null(w, "finish_reason"); }

void um_openai_put_chunk_logprobs(um_generation *g, const um_choice *c, const um_tokens *v, um_logprobs_fn put,
                                  um_jw *w) {
    um_jw_key(w, "logprobs");
    if (v->n && um_generation_body(g)->top_logprobs >= 0) put(g, c, v, w);
    else um_jw_null(w);
}

void um_openai_put_logprobs(um_generation *g, const um_choice *c, um_logprobs_fn put, um_jw *w) {
    um_tokens all = um_choice_tokens(c);
    um_jw_key(w, "logprobs");
    if (um_generation_body(g)->top_logprobs >= 0) put(g, c, &all, w);
    else um_jw_null(w);
}

/* ---- Streams of snapshots (denoise) ------------------------------------------------------------------------------ */

void um_openai_send_snapshot(um_generation *g, um_choice *c, const um_msg_snapshot *m, const char *object) {
    um_jw *w = um_sse_begin(um_generation_sse(g));
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "object", object);
    um_jw_put_int(w, "created", um_generation_created(g));
    um_jw_put_cstr(w, "model", um_generation_model(g));
    um_jw_put_int(w, "index", c->number);
    um_put_snapshot(g, c, m, w);
    um_jw_end_object(w);
    um_sse_replace(um_generation_sse(g), c->number, um_generation_body(g)->snapshot_max_hz);
}

void um_openai_send_final(um_generation *g, um_choice *c, const char *object, const char *finish_reason,
                          um_logprobs_fn put) {
    const um_msg_finish *m = &c->result;
    um_jw *w = um_sse_begin(um_generation_sse(g));
    um_jw_begin_object(w);
    put_head(g, w, object);
    um_jw_put_cstr(w, "event", "final");
    um_jw_put_bool(w, "finished", true);
    um_jw_put_int(w, "index", c->number);
    um_put_reply(g, c, w);
    um_openai_put_logprobs(g, c, put, w);
    um_jw_put_cstr(w, "finish_reason", finish_reason);
    um_jw_key(w, "stop_reason");
    um_put_stop_reason(w, m);
    um_jw_put_int(w, "seed", m->seed);
    um_jw_key(w, "usage");
    um_put_usage(g, w);
    um_jw_end_object(w);
    um_sse_append(um_generation_sse(g));
}

/* ---- Provisional text (mixed) ------------------------------------------------------------------------------------ */

/* Writes the text of the tokens from index `from` on, without masks. */
static void put_provisional_text(um_generation *g, const um_msg_snapshot *m, uint32_t from, um_jw *w) {
    char *text = NULL;
    size_t n = m->n - from, *end = UM_NEW_ARRAY(size_t, n + 1);
    um_model_decode_each(um_generation_service(g)->setup.model, m->ids + from, n, um_generation_body(g)->keep_special,
                         &text, end, NULL);
    um_jw_put_str(w, "provisional_text", (um_str){text, text && n ? end[n - 1] : 0});
    um_free(text);
    um_free(end);
}

void um_openai_put_provisional(um_generation *g, um_choice *c, const um_msg_snapshot *m, um_jw *w) {
    uint32_t from = UM_MIN((uint32_t)c->n_tokens, m->n);
    int64_t masks = 0;
    for (uint32_t i = from; i < m->n; i++) masks += m->ids[i] < 0;
    um_jw_key(w, "dllm");
    um_jw_begin_object(w);
    put_provisional_text(g, m, from, w);
    um_jw_put_int(w, "mask_count", masks);
    um_jw_key(w, "block");
    um_jw_begin_object(w);
    um_jw_put_int(w, "start", m->n_blocks ? m->block_start[0] : 0);
    um_jw_put_int(w, "length", m->n_blocks ? m->block_length[0] : 0);
    um_jw_end_object(w);
    um_jw_put_int(w, "nfe", m->nfe);
    um_jw_end_object(w);
}
