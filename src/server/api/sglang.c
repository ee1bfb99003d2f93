/* SGLang's API: /generate with `text` or `input_ids`, aborts, information about model and server, and the cache. */
#include "server/api/sglang.h"

#include <jansson.h>

#include "engine/options.h"
#include "server/api/common.h"
#include "server/respond/access.h"

#define DEFAULT_MAX_TOKENS "128"

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

static um_status take_text(um_body *b, const json_t *v, um_err *err) {
    const json_t *one = json_is_array(v) ? json_array_get(v, 0) : v;
    if (!json_is_string(one))
        return um_fail(err, UM_EINVAL, "\"text\": expected a string or an array of strings, found %s", um_json_kind(v));
    b->prompt_name = "text";
    return um_body_take_prompt(b, v, err);
}

static um_status take_input_ids(um_body *b, const json_t *v, um_err *err) {
    if (!json_is_array(v) || json_is_string(json_array_get(v, 0)))
        return um_fail(err, UM_EINVAL, "\"input_ids\": expected an array of token ids, or of such arrays, found %s",
                       um_json_kind(v));
    b->prompt_name = "input_ids";
    return um_body_take_prompt(b, v, err);
}

/* `rid` is the id of the request, or a list with an id for each prompt. */
static um_status take_rid(um_body *b, const json_t *v, um_err *err) {
    const char *text = NULL;
    if (json_is_array(v)) return UM_OK; /* see check_rids */
    um_status st = um_json_take_text(v, "\"rid\"", &text, err);
    if (!st && (!*text || strlen(text) > 64))
        st = um_fail(err, UM_ERANGE, "\"rid\": expected 1 to 64 bytes, found %zu", strlen(text));
    b->request_id = text;
    return st;
}

/* return_logprob asks for log-probabilities; top_logprobs_num is the number of most likely tokens that are reported
 * with each. */
static um_status take_return_logprob(um_body *b, const json_t *v, um_err *err) {
    bool wanted = false;
    if (json_is_array(v)) return UM_OK; /* see read_own */
    um_status st = um_json_take_bool(v, "\"return_logprob\"", &wanted, err);
    if (st || !wanted) return st;
    return um_body_default(b, "logprobs", "0", err);
}

static um_status take_top_logprobs(um_body *b, const json_t *v, um_err *err) {
    if (json_is_array(v) || !json_is_true(json_object_get(b->root, "return_logprob"))) return UM_OK;
    return um_body_set_json(b, "logprobs", "top_logprobs_num", v, err);
}

/* lora_path is the name of an adapter. */
static um_status take_lora_path(um_body *b, const json_t *v, um_err *err) {
    const char *name = NULL, *adapter = NULL;
    if (json_is_array(v)) return UM_OK; /* see read_own */
    um_status st = um_json_take_text(v, "\"lora_path\"", &name, err);
    if (st) return st;
    if (!um_setup_has_model(b->setup, name, &adapter) || !adapter)
        return um_fail(err, UM_EINVAL, "\"lora_path\": unknown adapter \"%.100s\"; /v1/models lists the adapters",
                       name);
    b->generate.adapter = um_str_of(adapter);
    return UM_OK;
}

/* Accepts a list, whose entries read_own reads. An object does not get here: flatten has replaced it by its members. */
static um_status take_sampling_params(um_body *b, const json_t *v, um_err *err) {
    (void)b;
    if (json_is_array(v)) return UM_OK;
    return um_fail(err, UM_EINVAL, "\"sampling_params\": expected an object, or a list of them, found %s",
                   um_json_kind(v));
}

#define NO_PROMPT "prompt tokens have none: the model sees the whole prompt at once"

static const um_field rows[] = {
    {.name = "text", .take = take_text, .types = "string|array"},
    {.name = "input_ids", .take = take_input_ids, .types = "array"},
    {.name = "sampling_params", .take = take_sampling_params, .types = "object|array"},
    {.name = "sampling_seed", .option = "seed"},
    {.name = "lora_path", .take = take_lora_path, .types = "string|array"},
    {.name = "rid", .take = take_rid, .types = "string|array"},
    {.name = "return_logprob", .take = take_return_logprob, .types = "boolean|array"},
    {.name = "top_logprobs_num", .take = take_top_logprobs, .types = "integer|array"},
    {.name = "logprob_start_len", .neutral = "-1|null", .why = NO_PROMPT},
    {.name = "token_ids_logprob", .neutral = "null", .why = "top_logprobs_num returns the most likely tokens"},
    {.name = "return_text_in_logprobs", .neutral = "false|null", .why = "/detokenize turns ids into text"},
    {.name = "return_hidden_states", .neutral = "false|null", .why = "hidden states do not leave the engine"},
    {.name = "input_embeds", .neutral = "null", .why = "prompts are texts or token ids"},
    {.name = "image_data", .neutral = "null|[]", .why = "these models read text"},
    {.name = "video_data", .neutral = "null|[]", .why = "these models read text"},
    {.name = "audio_data", .neutral = "null|[]", .why = "these models read text"},
    {.name = "session_params", .neutral = "null", .why = "send the whole prompt; its prefix is cached"},
    {.name = "custom_logit_processor", .neutral = "null", .why = "use logit_bias to change logits"},
    {.name = "no_stop_trim", .neutral = "false|null", .why = "include_stop_str_in_output keeps the stop string"},
    {.name = "stop_regex", .neutral = "null|[]", .why = "use stop, which takes plain strings"},
    {.name = "background", .neutral = "false|null", .why = "/v1/generate returns a request id at once"},
    {.name = "stream_options", .neutral = "null", .why = UM_NO_STREAM_OPTIONS},
    {.name = "log_metrics", .why = "every request is counted in /metrics"},
};
static const um_field_set sglang_rows = {rows, UM_LEN(rows)};
static const um_field_set *const sets[] = {&sglang_rows, &um_common_fields, NULL};

/* Checks that a field which is a list has an entry for each prompt. */
static um_status check_length(const um_body *b, const char *name, const json_t *list, um_err *err) {
    if (!b->one_prompt && json_array_size(list) == b->n_prompts) return UM_OK;
    if (b->one_prompt) return um_fail_param(err, UM_EINVAL, name, "a list is only possible with a list of prompts");
    return um_fail_param(err, UM_EINVAL, name, "expected an entry for each of the %zu prompts, found %zu", b->n_prompts,
                         json_array_size(list));
}

static um_status check_rids(um_body *b, um_err *err) {
    const json_t *rid = json_object_get(b->root, "rid");
    if (!json_is_array(rid)) return UM_OK;
    um_status st = check_length(b, "rid", rid, err);
    if (st) return st;
    const char **rids = um_arena_alloc(&b->arena, um_mul(b->n_prompts, sizeof *rids));
    for (size_t i = 0; i < b->n_prompts; i++) {
        st = um_json_take_text(json_array_get(rid, i), "an entry of \"rid\"", &rids[i], err);
        if (st) return um_fail_about(err, st, "rid");
    }
    b->rids = rids;
    return UM_OK;
}

/* Moves the members of sampling_params to the top level, where they are read like all fields. Refuses duplicates. */
static um_status flatten(json_t *root, um_err *err) {
    json_t *inner = json_object_get(root, "sampling_params"), *value;
    const char *key;
    um_status st = UM_OK;
    if (!json_is_object(inner)) return UM_OK; /* see take_sampling_params */
    json_incref(inner);
    json_object_del(root, "sampling_params");
    json_object_foreach(inner, key, value) {
        if (!st && json_object_get(root, key))
            st = um_fail_param(err, UM_EINVAL, key, "duplicate field, inside and outside of sampling_params");
        json_object_set(root, key, value);
    }
    json_decref(inner);
    return st;
}

/* Fields that can be lists with an entry for each prompt. */
static const char *const lists[] = {"sampling_params", "lora_path", "return_logprob", "top_logprobs_num"};

/* Reads the parameters of prompt i: the body without its prompts, and with entry i instead of each list. */
static um_status read_one(um_body *b, size_t i, um_err *err) {
    json_t *one = json_copy(b->root);
    um_status st = UM_OK;
    json_object_del(one, "text");
    json_object_del(one, "input_ids");
    json_object_del(one, "rid");
    for (size_t k = 0; k < UM_LEN(lists); k++) {
        json_t *list = json_object_get(one, lists[k]), *entry = json_array_get(list, i);
        if (json_is_array(entry)) st = um_fail_param(err, UM_EINVAL, lists[k], "an entry of the list can't be a list");
        if (json_is_array(list)) json_object_set(one, lists[k], entry);
    }
    if (!st) st = flatten(one, err);
    if (st) json_decref(one);
    else st = um_body_read(&b->own[i], b->setup, &b->capacity, one, sets, err);
    if (!st) st = um_body_default(&b->own[i], "max_tokens", DEFAULT_MAX_TOKENS, err);
    if (!st && b->own[i].generate.n != b->own[0].generate.n)
        st = um_fail_param(err, UM_EINVAL, "n", "expected the same number of answers for every prompt");
    return st ? um_fail_in(err, "prompt %zu", i) : UM_OK;
}

/* If the request has such lists, reads the parameters of each prompt into b->own. */
static um_status read_own(um_body *b, um_err *err) {
    bool any = false;
    for (size_t k = 0; k < UM_LEN(lists); k++) {
        const json_t *list = json_object_get(b->root, lists[k]);
        if (!json_is_array(list)) continue;
        any = true;
        um_status st = check_length(b, lists[k], list, err);
        if (st) return st;
    }
    if (!any) return UM_OK;
    b->own = um_arena_alloc(&b->arena, um_mul(b->n_prompts, sizeof *b->own));
    for (size_t i = 0; i < b->n_prompts; i++) {
        um_status st = read_one(b, i, err);
        if (st) return st;
    }
    b->generate.n = b->own[0].generate.n;
    return UM_OK;
}

static um_status check(um_body *b, um_err *err) {
    um_status st = check_rids(b, err);
    if (!st) st = read_own(b, err);
    if (!st) st = um_body_streams_text(b, err);
    return st ? st : um_body_default(b, "max_tokens", DEFAULT_MAX_TOKENS, err);
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

static void put_finish_reason(um_jw *w, const um_msg_finish *m) {
    const char *word = um_finish_reason(m);
    um_jw_key(w, "finish_reason");
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "type", word);
    if (um_streq(word, "length")) um_jw_put_int(w, "length", m->n_ids);
    else if (um_streq(word, "abort")) um_jw_put_cstr(w, "message", "aborted by a request");
    else if (m->stop.n) um_jw_put_str(w, "matched", m->stop);
    else if (m->stop_id >= 0) um_jw_put_int(w, "matched", m->stop_id);
    else um_jw_put_cstr(w, "matched", NULL);
    um_jw_end_object(w);
}

/* Writes [logprob, id, null]. SGLang writes the token's text for null with return_text_in_logprobs, refused here. */
static void put_triple(um_jw *w, float logprob, int32_t id) {
    um_jw_begin_array(w);
    um_jw_double(w, (double)logprob);
    um_jw_int(w, id);
    um_jw_null(w);
    um_jw_end_array(w);
}

static void put_logprobs(um_jw *w, const um_tokens *v) {
    um_jw_key(w, "output_token_logprobs");
    um_jw_begin_array(w);
    for (uint32_t i = 0; i < v->n && v->logprob; i++) put_triple(w, v->logprob[i], v->id[i]);
    um_jw_end_array(w);
    um_jw_key(w, "output_top_logprobs");
    um_jw_begin_array(w);
    size_t n = (size_t)v->n_likeliest;
    for (uint32_t i = 0; i < v->n && n; i++) {
        um_jw_begin_array(w);
        for (size_t k = i * n; k < (i + 1) * n && v->likeliest_id[k] >= 0; k++)
            put_triple(w, v->likeliest[k], v->likeliest_id[k]);
        um_jw_end_array(w);
    }
    um_jw_end_array(w);
}

static const char *rid_of(um_generation *g, const um_choice *c) {
    const um_body *b = um_generation_body(g);
    return b->rids ? b->rids[c->prompt] : um_generation_id(g);
}

static void put_meta(um_generation *g, um_choice *c, const um_tokens *v, um_jw *w) {
    const um_body *b = um_generation_body(g);
    const um_msg_finish *m = &c->result;
    um_jw_key(w, "meta_info");
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "id", rid_of(g, c));
    if (c->finished) put_finish_reason(w, m);
    else um_jw_put_cstr(w, "finish_reason", NULL);
    um_jw_put_int(w, "prompt_tokens", (int64_t)b->prompt[c->prompt].n_ids);
    um_jw_put_int(w, "completion_tokens", c->n_tokens);
    um_jw_put_int(w, "nfe", c->nfe);
    if (um_body_of(b, (size_t)c->prompt)->top_logprobs >= 0) put_logprobs(w, v);
    if (c->finished) {
        um_jw_put_int(w, "cached_tokens", m->cached_tokens);
        um_jw_put_double(w, "e2e_latency", m->total_seconds);
        um_jw_put_int(w, "seed", m->seed);
        um_put_extras(g, c, w);
    }
    um_jw_end_object(w);
}

static void put_choice(um_generation *g, um_choice *c, um_jw *w) {
    const um_tokens all = um_choice_tokens(c);
    um_jw_begin_object(w);
    um_jw_put_str(w, "text", um_choice_text(c));
    um_jw_put_ints(w, "output_ids", all.id, all.n);
    put_meta(g, c, &all, w);
    if (um_generation_is_list(g)) um_jw_put_int(w, "index", c->number);
    um_jw_end_object(w);
}

static void whole(um_generation *g, um_jw *w) {
    if (um_generation_is_list(g)) um_jw_begin_array(w);
    for (int32_t i = 0; i < um_generation_n_choices(g); i++) put_choice(g, um_generation_choice(g, i), w);
    if (um_generation_is_list(g)) um_jw_end_array(w);
}

/* ---- Streaming --------------------------------------------------------------------------------------------------- */

/* Sends an event with the whole answer so far. */
static void send(um_generation *g, um_choice *c) {
    put_choice(g, c, um_sse_begin(um_generation_sse(g)));
    um_sse_append(um_generation_sse(g));
}

static void text(um_generation *g, um_choice *c, const um_msg_text *m) {
    (void)m;
    send(g, c);
}

static const um_response_writer writer = {
    .name = "sglang", .id_prefix = "", .whole = whole, .text = text, .finish = send};

const um_api um_api_sglang = {"/generate", sets, "text", UM_STREAM_BLOCK_APPEND, check, &writer, "input_ids"};

bool um_sglang_is_body(const json_t *root) {
    return json_object_get(root, "text") || json_object_get(root, "input_ids");
}

um_status um_sglang_read(um_intake *r, um_err *err) {
    um_status st = flatten(r->root, err);
    return st ? st : um_intake_read_api(r, &um_api_sglang, err);
}

/* ---- Aborts ------------------------------------------------------------------------------------------------------ */

static um_status read_abort(const json_t *root, const char **rid, bool *all, um_err *err) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)root, key, v) {
        um_status st = UM_OK;
        if (um_streq(key, "abort_all")) st = um_json_take_bool(v, "\"abort_all\"", all, err);
        else if (!um_streq(key, "rid")) st = um_fail(err, UM_EINVAL, "unknown field, expected rid or abort_all");
        else if (!json_is_null(v)) st = um_json_take_text(v, "\"rid\"", rid, err);
        if (st) return um_fail_about(err, st, key);
    }
    if (!*all && !*rid) return um_fail_param(err, UM_EINVAL, "rid", "expected the id of a request, or abort_all");
    return UM_OK;
}

/* An unknown id is not an error: its request may have just finished. The id of another key's request is unknown. */
static void post_abort(um_service *s, um_exchange *x, const char *id) {
    const um_key *key = um_access_record_key(x);
    const char *rid = NULL;
    bool all = false;
    um_err err = {0};
    um_buf body = {0};
    json_t *root = um_read_object(x);
    (void)id;
    if (!root) return;
    if (read_abort(root, &rid, &all, &err)) {
        um_reply_err(x, &err);
    } else if (all && !um_key_is_admin(key)) {
        um_reply_error(x, 403, "abort_all", "not_allowed", "abort_all takes keys of admins only; give the rid");
    } else {
        if (all) rid = NULL;
        size_t n = um_generations_abort(s, NULL, rid, key) + um_intakes_abort(s, rid, key);
        um_buf_printf(&body, "{\"aborted\":%zu}", n);
        um_reply_json(x, 200, &body);
    }
    um_buf_free(&body);
    json_decref(root);
}

/* ---- Model and server -------------------------------------------------------------------------------------------- */

static void put_model_info(um_service *s, um_jw *w) {
    um_model_info info;
    um_model_get_info(s->setup.model, &info);
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "model_path", info.path);
    um_jw_put_cstr(w, "tokenizer_path", info.path);
    um_jw_put_bool(w, "is_generation", true);
    um_jw_put_cstr(w, "served_model_name", um_setup_model_name(&s->setup));
    um_jw_put_cstr(w, "model_type", info.model_type);
    um_jw_put_cstr(w, "family", info.family);
    um_jw_put_int(w, "vocab_size", info.vocab);
    um_jw_put_int(w, "max_model_len", um_capacity_get(s).max_len);
    um_jw_put_int(w, "mask_token_id", info.mask_id);
    um_jw_put_cstr(w, "preferred_sampling_params", NULL);
    um_jw_put_bool(w, "has_image_understanding", false);
    um_jw_put_bool(w, "has_audio_understanding", false);
    um_jw_end_object(w);
}

/* Returns the sum of the workers' decoding rates. */
static double last_decode_rate(const um_worker_pool *b) {
    double sum = 0;
    for (int32_t i = 0; i < um_worker_pool_size(b); i++) sum += um_worker_pool_get_status(b, i).decode_rate;
    return sum;
}

static void put_counters(um_service *s, um_jw *w) {
    um_msg_stats m = {0};
    um_worker_pool_get_stats(s->workers, &m);
    um_jw_put_int(w, "requests_running", m.requests_running);
    um_jw_put_int(w, "requests_waiting", m.requests_waiting);
    um_jw_put_int(w, "requests_queued", um_worker_pool_outstanding(s->workers));
    um_jw_put_int(w, "pages_total", m.pages_total);
    um_jw_put_int(w, "pages_used", m.pages_used);
    um_jw_put_int(w, "steps", m.steps);
    um_jw_put_int(w, "decode_tokens", m.decode_tokens);
    um_jw_put_ratio(w, "decode_tokens_per_second", (double)m.decode_tokens, m.decode_seconds);
    um_jw_put_double(w, "last_decode_tokens_per_second", last_decode_rate(s->workers));
    um_jw_put_ratio(w, "tokens_per_forward", (double)m.tokens, (double)m.passes);
}

static void put_workers(um_service *s, um_jw *w) {
    um_worker_pool *b = s->workers;
    um_jw_key(w, "workers");
    um_jw_begin_array(w);
    for (int32_t i = 0; i < um_worker_pool_size(b); i++) {
        um_worker_status v = um_worker_pool_get_status(b, i);
        um_jw_begin_object(w);
        um_jw_put_cstr(w, "state", v.state_name);
        um_jw_put_int(w, "restarts", v.restarts);
        um_jw_put_int(w, "requests", v.n_requests);
        if (v.ready) {
            um_jw_put_str(w, "device", v.ready->device);
            um_jw_put_str(w, "dtype", v.ready->dtype);
            um_jw_put_str(w, "decoding_strategy", v.ready->strategy);
            um_jw_put_str(w, "sampler", v.ready->sampler);
            um_jw_put_int(w, "max_model_len", v.ready->max_model_len);
            um_jw_put_int(w, "max_num_reqs", v.ready->max_num_reqs);
            um_jw_put_int(w, "page_size", v.ready->page_size);
            um_jw_put_int(w, "pages_total", v.ready->pages_total);
        }
        um_jw_end_object(w);
    }
    um_jw_end_array(w);
}

/* Writes the configuration of the engine, counters and workers. The options of the server are left out: the API keys
 * are among them. */
static void put_server_info(um_service *s, um_jw *w) {
    um_option_set option[UM_OPTION_SETS_MAX];
    um_config c = *s->setup.config->engine; /* an option set points to a struct that is not const */
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "version", um_version());
    um_jw_put_cstr(w, "served_model_name", um_setup_model_name(&s->setup));
    um_jw_put_double(w, "began", s->started);
    um_jw_key(w, "config");
    um_jw_begin_object(w);
    um_put_options(w, option, um_config_option_sets(option, &c));
    um_jw_end_object(w);
    put_counters(s, w);
    put_workers(s, w);
    um_jw_end_object(w);
}

static void get_model_info(um_service *s, um_exchange *x, const char *id) {
    (void)id;
    um_reply_with(s, x, put_model_info);
}

static void get_server_info(um_service *s, um_exchange *x, const char *id) {
    (void)id;
    um_reply_with(s, x, put_server_info);
}

static void put_flushed(const char *results, um_jw *w) {
    (void)results;
    um_jw_begin_object(w);
    um_jw_put_bool(w, "success", true);
    um_jw_end_object(w);
}

static void flush_cache(um_service *s, um_exchange *x, const char *id) {
    (void)id;
    if (um_read_empty(x)) um_reply_call(s, x, "flush_cache", put_flushed);
}

/* ---- Endpoints --------------------------------------------------------------------------------------------------- */

static const um_endpoint endpoints[] = {
    {"POST", "/abort_request", post_abort, 0, "SGLang", "abort the generation with an id, or all"},
    {"GET", "/get_model_info", get_model_info, 0, "SGLang", "describe the model"},
    {"GET", "/get_server_info", get_server_info, 0, "SGLang", "list configuration, counters and workers"},
    {"GET", "/server_info", get_server_info, 0, "SGLang", "the same"},
    {"POST", "/flush_cache", flush_cache, UM_ENDPOINT_ADMIN, "SGLang",
     "clear the prefix cache; 400 while requests run"},
};
const um_endpoint_set um_sglang_endpoints = {endpoints, UM_LEN(endpoints)};
