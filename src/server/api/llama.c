/* llama.cpp's API: /completion, /props and /slots. */
#include <jansson.h>
#include <stdlib.h>

#include "engine/options.h"
#include "server/api/common.h"

#define PRECISION 15 /* digits of numbers that are parsed and written again; a double preserves this many */

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

/* In llama.cpp -1 generates until the answer ends by itself, -2 until the context is full. Here both allow an answer as
 * long as the context. */
static um_status take_n_predict(um_body *b, const json_t *v, um_err *err) {
    if (json_is_integer(v) && (json_integer_value(v) == -1 || json_integer_value(v) == -2)) {
        b->fills = true;
        return UM_OK;
    }
    return um_body_set_json(b, "max_tokens", "n_predict", v, err);
}

/* A random salt keeps the prompt out of the shared prefix cache. */
static um_status take_cache_prompt(um_body *b, const json_t *v, um_err *err) {
    bool shared = true;
    um_status st = um_json_take_bool(v, "\"cache_prompt\"", &shared, err);
    if (!st && !shared) b->generate.cache_salt = (uint64_t)um_rng_seed() + 1;
    return st;
}

static um_status take_n_probs(um_body *b, const json_t *v, um_err *err) {
    if (json_is_integer(v) && json_integer_value(v) == 0) return UM_OK;
    return um_body_set_json(b, "logprobs", "n_probs", v, err);
}

/* Takes an object, as in the other APIs, or a list of [id, bias]. The bias false bans the token. */
static um_status take_bias(um_body *b, const json_t *v, um_err *err) {
    um_status st = UM_OK;
    if (!json_is_array(v)) return um_body_take_bias(b, v, err);
    json_t *biases = json_object();
    for (size_t i = 0; i < json_array_size(v) && !st; i++) {
        json_t *pair = json_array_get(v, i), *id = json_array_get(pair, 0), *bias = json_array_get(pair, 1);
        char key[UM_NUMBER_MAX];
        snprintf(key, sizeof key, "%lld", (long long)json_integer_value(id));
        if (json_array_size(pair) != 2 || !json_is_integer(id))
            st = um_fail(err, UM_EINVAL, "\"logit_bias\"[%zu]: expected [token id, bias]", i);
        else if (json_is_false(bias)) json_object_set_new(biases, key, json_integer(-100)); /* bans the token */
        else json_object_set(biases, key, bias);
    }
    if (!st) st = um_body_take_bias(b, biases, err);
    json_decref(biases);
    return st;
}

/* Checks the paths of the requested response members: "content", "timings/predicted_ms". See put_selected. */
static um_status take_response_fields(um_body *b, const json_t *v, um_err *err) {
    (void)b;
    if (!json_is_array(v))
        return um_fail(err, UM_EINVAL, "\"response_fields\": expected an array of names, found %s", um_json_kind(v));
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!json_is_string(json_array_get(v, i)))
            return um_fail(err, UM_EINVAL, "\"response_fields\"[%zu]: expected a name, found %s", i,
                           um_json_kind(json_array_get(v, i)));
    return UM_OK;
}

#define NO_SAMPLER "this server samples with temperature, top_k, top_p and min_p only"

static const um_field rows[] = {
    {.name = "prompt", .take = um_body_take_prompt, .types = "string|array"},
    {.name = "n_predict", .take = take_n_predict, .types = "integer"},
    {.name = "cache_prompt", .take = take_cache_prompt, .types = "boolean"},
    {.name = "n_probs", .take = take_n_probs, .types = "integer"},
    {.name = "logit_bias", .take = take_bias, .types = "object|array"},
    {.name = "response_fields", .take = take_response_fields, .types = "array"},
    {.name = "repeat_penalty", .option = "repetition_penalty"},
    {.name = "repeat_last_n",
     .why = "a penalty counts the whole text; together with one only -1 is accepted"}, /* see check */
    {.name = "return_tokens", .why = "responses always have the tokens"},
    {.name = "id_slot", .neutral = "-1|null", .why = "the scheduler assigns the slots"},
    {.name = "n_keep", .neutral = "0|-1|null", .why = "a prompt that is too long is refused, never cut"},
    {.name = "n_discard", .neutral = "0|null", .why = "a prompt that is too long is refused, never cut"},
    {.name = "n_indent", .neutral = "0|null", .why = "lines are not checked for indentation; use a stop string"},
    {.name = "t_max_predict_ms", .neutral = "0|-1|null", .why = "use max_nfe, which limits the passes of an answer"},
    {.name = "min_keep", .neutral = "0|null", .why = NO_SAMPLER},
    {.name = "typical_p", .neutral = "1|null", .why = NO_SAMPLER},
    {.name = "tfs_z", .neutral = "1|null", .why = NO_SAMPLER},
    {.name = "top_n_sigma", .neutral = "-1|0|null", .why = NO_SAMPLER},
    {.name = "mirostat", .neutral = "0|null", .why = NO_SAMPLER},
    {.name = "dynatemp_range", .neutral = "0|null", .why = NO_SAMPLER},
    {.name = "dry_multiplier", .neutral = "0|null", .why = NO_SAMPLER},
    {.name = "xtc_probability", .neutral = "0|null", .why = NO_SAMPLER},
    {.name = "samplers", .neutral = "null", .why = "the order of the filters is fixed: top_k, top_p, min_p"},
    {.name = "penalize_nl", .neutral = "true|null", .why = "a penalty treats all tokens alike"},
    {.name = "image_data", .neutral = "[]|null", .why = "the models read text only"},
    {.name = "lora", .neutral = "[]|null", .why = "give the name of the adapter as \"model\""},
    {.name = "post_sampling_probs",
     .neutral = "false|null",
     .why = "probabilities are those before the sampling filters"},
    {.name = "timings_per_token", .neutral = "false|null", .why = "only the last event has the timings"},
    {.name = "stream_options", .neutral = "null", .why = UM_NO_STREAM_OPTIONS},
    {.name = "return_progress", .neutral = "false|null", .why = "the first event comes with the first text"},
    {.name = "mirostat_tau", .why = "a setting of mirostat, which must be off"},
    {.name = "mirostat_eta", .why = "a setting of mirostat, which must be off"},
    {.name = "dynatemp_exponent", .why = "a setting of dynatemp_range, which must be off"},
    {.name = "dry_base", .why = "a setting of dry_multiplier, which must be off"},
    {.name = "dry_allowed_length", .why = "a setting of dry_multiplier, which must be off"},
    {.name = "dry_penalty_last_n", .why = "a setting of dry_multiplier, which must be off"},
    {.name = "dry_sequence_breakers", .why = "a setting of dry_multiplier, which must be off"},
    {.name = "xtc_threshold", .why = "a setting of xtc_probability, which must be off"},
};
static const um_field_set llama_rows = {rows, UM_LEN(rows)};
static const um_field_set *const sets[] = {&llama_rows, &um_common_fields, NULL};

static um_status check(um_body *b, um_err *err) {
    const json_t *last = json_object_get(b->root, "repeat_last_n");
    bool is_all = !last || json_is_null(last) || (json_is_integer(last) && json_integer_value(last) == -1);
    if (!is_all && b->checked.sampling.repetition_penalty != 1)
        return um_fail_param(err, UM_EINVAL, "repeat_last_n", "only -1 is possible: the penalty counts the whole text");
    if (!um_body_is_set(b, "max_tokens")) b->fills = true;
    return um_body_streams_text(b, err);
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

static const char *stop_type(const um_msg_finish *m) {
    switch (m->finish) {
    case UM_FINISH_EOS: return "eos";
    case UM_FINISH_STOP:
    case UM_FINISH_STOP_ID: return "word";
    case UM_FINISH_MAX_TOKENS:
    case UM_FINISH_MAX_LEN:
    case UM_FINISH_MAX_NFE:
    case UM_FINISH_REPETITION: return "limit";
    default: return "none";
    }
}

/* Writes the members of a phase: its tokens, its time, and their ratios. */
static void put_phase(um_jw *w, const char *what, int64_t n, double seconds) {
    char key[40];
    snprintf(key, sizeof key, "%s_n", what);
    um_jw_put_int(w, key, n);
    snprintf(key, sizeof key, "%s_ms", what);
    um_jw_put_double(w, key, seconds * 1e3);
    snprintf(key, sizeof key, "%s_per_token_ms", what);
    um_jw_put_ratio(w, key, seconds * 1e3, (double)n);
    snprintf(key, sizeof key, "%s_per_second", what);
    um_jw_put_ratio(w, key, (double)n, seconds);
}

/* The time of the prompt is the rest of the total, without queueing and denoising. */
static void put_timings(um_jw *w, const um_msg_finish *m) {
    double prompt = UM_MAX(m->total_seconds - m->queue_seconds - m->decode_seconds, 0.0);
    um_jw_key(w, "timings");
    um_jw_begin_object(w);
    um_jw_put_int(w, "cache_n", m->cached_tokens);
    put_phase(w, "prompt", m->prompt_tokens - m->cached_tokens, prompt);
    put_phase(w, "predicted", m->n_ids, m->decode_seconds);
    um_jw_put_int(w, "nfe", m->nfe);
    um_jw_end_object(w);
}

static void put_settings(um_generation *g, um_jw *w) {
    const um_body *b = um_generation_body(g);
    um_option_set option[UM_OPTION_SETS_MAX];
    um_request copy = b->checked; /* an option set points to a struct that is not const */
    um_jw_key(w, "generation_settings");
    um_jw_begin_object(w);
    um_put_options(w, option, um_request_option_sets(option, &copy));
    um_jw_put_int(w, "n_predict", copy.sampling.max_tokens ? copy.sampling.max_tokens : -1);
    um_jw_put_bool(w, "stream", b->stream);
    um_jw_key(w, "stop");
    um_jw_begin_array(w);
    for (uint32_t i = 0; i < b->generate.n_stop; i++) um_jw_str(w, b->generate.stop[i].p, b->generate.stop[i].n);
    um_jw_end_array(w);
    um_jw_end_object(w);
}

static void put_probability(um_generation *g, um_jw *w, int32_t id, float logprob) {
    size_t n = 0;
    const char *bytes = um_model_token_bytes(um_generation_service(g)->setup.model, id, &n);
    um_jw_put_int(w, "id", id);
    um_jw_put_str(w, "token", (um_str){bytes, n});
    um_jw_put_double(w, "logprob", (double)logprob);
}

static void put_probabilities(um_generation *g, um_jw *w, const um_tokens *v) {
    size_t n = (size_t)v->n_likeliest;
    if (um_generation_body(g)->top_logprobs < 0) return;
    um_jw_key(w, "completion_probabilities");
    um_jw_begin_array(w);
    for (uint32_t i = 0; i < v->n && v->logprob; i++) {
        um_jw_begin_object(w);
        put_probability(g, w, v->id[i], v->logprob[i]);
        um_jw_key(w, "top_logprobs");
        um_jw_begin_array(w);
        for (size_t k = i * n; k < (i + 1) * n && v->likeliest_id[k] >= 0; k++) {
            um_jw_begin_object(w);
            put_probability(g, w, v->likeliest_id[k], v->likeliest[k]);
            um_jw_end_object(w);
        }
        um_jw_end_array(w);
        um_jw_end_object(w);
    }
    um_jw_end_array(w);
}

static void put_counts(um_generation *g, const um_choice *c, um_jw *w) {
    um_jw_put_int(w, "id_slot", -1);
    um_jw_put_int(w, "tokens_predicted", c->n_tokens);
    um_jw_put_int(w, "tokens_evaluated", (int64_t)um_generation_body(g)->prompt[c->prompt].n_ids);
}

/* Writes the members of a finished answer that follow its text, tokens and probabilities. */
static void put_end(um_generation *g, um_choice *c, um_jw *w) {
    const um_msg_finish *m = &c->result;
    put_counts(g, c, w);
    um_jw_put_bool(w, "stop", true);
    um_jw_put_cstr(w, "model", um_generation_model(g));
    um_jw_put_cstr(w, "stop_type", stop_type(m));
    um_jw_put_str(w, "stopping_word", m->stop);
    um_jw_put_int(w, "tokens_cached", m->cached_tokens);
    um_jw_put_bool(w, "truncated", false);
    um_jw_put_int(w, "seed", m->seed);
    put_settings(g, w);
    put_timings(w, m);
    um_put_extras(g, c, w);
}

static void begin_choice(um_choice *c, um_str text, const int32_t *ids, size_t n, um_jw *w) {
    um_jw_begin_object(w);
    um_jw_put_int(w, "index", c->number);
    um_jw_put_str(w, "content", text);
    um_jw_put_ints(w, "tokens", ids, n);
}

/* Writes a finished answer with all members. v: its tokens; NULL if earlier events have sent them. */
static void put_all(um_generation *g, um_choice *c, um_str text, const um_tokens *v, um_jw *w) {
    begin_choice(c, text, v ? v->id : NULL, v ? v->n : 0, w);
    if (v) put_probabilities(g, w, v);
    put_end(g, c, w);
    um_jw_end_object(w);
}

/* Returns the member at a path, NULL if there is none. */
static json_t *member_at(json_t *object, const char *path) {
    while (object && *path) {
        size_t n = strcspn(path, "/");
        char *name = um_strndup(path, n);
        object = json_object_get(object, name);
        um_free(name);
        path += n + (path[n] == '/');
    }
    return object;
}

/* Writes the members of the object in `all` whose paths are in response_fields. Each path is the key of its member. */
static void put_selected(const json_t *paths, const um_buf *all, um_jw *w) {
    json_t *object = json_loadb(all->data, all->len, 0, NULL), *selected = json_object();
    for (size_t i = 0; i < json_array_size(paths); i++) {
        const char *path = json_string_value(json_array_get(paths, i));
        json_t *v = member_at(object, path);
        if (v && *path) json_object_set(selected, path, v);
    }
    char *text = json_dumps(selected, JSON_COMPACT | JSON_REAL_PRECISION(PRECISION));
    um_jw_raw(w, text, strlen(text));
    free(text);
    json_decref(selected);
    json_decref(object);
}

/* Writes a finished answer with all members, or with those of response_fields. */
static void put_answer(um_generation *g, um_choice *c, um_str text, const um_tokens *v, um_jw *w) {
    const json_t *paths = json_object_get(um_generation_body(g)->root, "response_fields");
    um_buf all = {0};
    um_jw own;
    if (!json_array_size(paths)) {
        put_all(g, c, text, v, w);
        return;
    }
    um_jw_init(&own, &all);
    put_all(g, c, text, v, &own);
    put_selected(paths, &all, w);
    um_buf_free(&all);
}

static void whole(um_generation *g, um_jw *w) {
    bool is_list = um_generation_is_list(g);
    if (is_list) um_jw_begin_array(w);
    for (int32_t i = 0; i < um_generation_n_choices(g); i++) {
        um_choice *c = um_generation_choice(g, i);
        const um_tokens all = um_choice_tokens(c);
        put_answer(g, c, c->result.text, &all, w);
    }
    if (is_list) um_jw_end_array(w);
}

static void text(um_generation *g, um_choice *c, const um_msg_text *m) {
    um_tokens all = um_choice_tokens(c), part = um_tokens_part(&all, all.n - m->n_ids, all.n);
    um_jw *w = um_sse_begin(um_generation_sse(g));
    begin_choice(c, m->text, part.id, part.n, w);
    put_probabilities(g, w, &part);
    put_counts(g, c, w);
    um_jw_put_bool(w, "stop", false);
    um_jw_end_object(w);
    um_sse_append(um_generation_sse(g));
}

static void finish(um_generation *g, um_choice *c) {
    put_answer(g, c, UM_STR(""), NULL, um_sse_begin(um_generation_sse(g)));
    um_sse_append(um_generation_sse(g));
}

static const um_response_writer writer = {
    .name = "llama", .id_prefix = "unmask-", .whole = whole, .text = text, .finish = finish};

const um_api um_api_llama = {"/completion", sets, "prompt", UM_STREAM_BLOCK_APPEND, check, &writer, NULL};

static void post_completion(um_service *s, um_exchange *x, const char *id) {
    (void)id;
    um_api_serve(s, x, &um_api_llama);
}

/* ---- Properties of the server ------------------------------------------------------------------------------------ */

static void put_token(um_service *s, um_jw *w, const char *key, int32_t id) {
    size_t n = 0;
    const char *bytes = id < 0 ? "" : um_model_token_bytes(s->setup.model, id, &n);
    um_jw_put_str(w, key, (um_str){bytes, n});
}

static void put_defaults(um_service *s, um_jw *w) {
    um_option_set option[UM_OPTION_SETS_MAX];
    um_request q;
    um_request_defaults(s, &q);
    um_jw_key(w, "default_generation_settings");
    um_jw_begin_object(w);
    um_jw_put_int(w, "n_ctx", um_capacity_get(s).max_len);
    um_jw_key(w, "params");
    um_jw_begin_object(w);
    um_put_options(w, option, um_request_option_sets(option, &q));
    um_jw_end_object(w);
    um_jw_end_object(w);
}

static void put_props(um_service *s, um_jw *w) {
    um_model_info info;
    um_model_get_info(s->setup.model, &info);
    const char *source = info.chat_template ? info.chat_template : "";
    um_jw_begin_object(w);
    put_defaults(s, w);
    um_jw_put_int(w, "total_slots", s->setup.config->engine->max_num_reqs);
    um_jw_put_cstr(w, "model_path", info.path);
    um_jw_put_cstr(w, "model_alias", um_setup_model_name(&s->setup));
    um_jw_put_cstr(w, "chat_template", source);
    um_jw_key(w, "chat_template_caps");
    um_jw_begin_object(w);
    um_jw_put_bool(w, "supports_tools", strstr(source, "tools") != NULL);
    um_jw_put_bool(w, "supports_system_role", strstr(source, "system") != NULL);
    um_jw_end_object(w);
    um_jw_put_cstr(w, "build_info", um_version());
    put_token(s, w, "bos_token", info.bos_id);
    put_token(s, w, "eos_token", info.n_stop ? info.stop[0] : -1);
    put_token(s, w, "mask_token", info.mask_id);
    um_jw_key(w, "modalities");
    um_jw_begin_object(w);
    um_jw_put_bool(w, "vision", false);
    um_jw_put_bool(w, "audio", false);
    um_jw_end_object(w);
    um_jw_end_object(w);
}

static void get_props(um_service *s, um_exchange *x, const char *id) {
    (void)id;
    um_reply_with(s, x, put_props);
}

/* ---- Slots ------------------------------------------------------------------------------------------------------- */

static int64_t number(const json_t *slot, const char *key) { return json_integer_value(json_object_get(slot, key)); }

static void put_slot(const json_t *slot, int64_t id, um_jw *w) {
    int64_t answer = number(slot, "answer_tokens"), limit = number(slot, "max_tokens");
    um_jw_begin_object(w);
    um_jw_put_int(w, "id", id);
    um_jw_put_int(w, "id_task", number(slot, "rid"));
    um_jw_put_int(w, "index", number(slot, "index"));
    um_jw_put_bool(w, "is_processing", json_is_true(json_object_get(slot, "running")));
    um_jw_put_int(w, "n_prompt_tokens", number(slot, "prompt_tokens"));
    um_jw_put_int(w, "n_prompt_tokens_cache", number(slot, "cached_tokens"));
    um_jw_put_int(w, "n_decoded", answer);
    um_jw_put_int(w, "n_remain", limit - answer);
    um_jw_put_double(w, "seconds", json_number_value(json_object_get(slot, "seconds")));
    um_jw_key(w, "params");
    um_jw_begin_object(w);
    um_jw_put_int(w, "n_predict", limit);
    um_jw_put_cstr(w, "decoding_strategy", json_string_value(json_object_get(slot, "strategy")));
    um_jw_end_object(w);
    um_jw_key(w, "dllm");
    um_jw_begin_object(w);
    um_jw_put_int(w, "nfe", number(slot, "nfe"));
    um_jw_put_int(w, "block", number(slot, "blocks"));
    um_jw_put_int(w, "mask_count", number(slot, "masks"));
    um_jw_put_int(w, "preemptions", number(slot, "preemptions"));
    um_jw_end_object(w);
    um_jw_end_object(w);
}

/* `results` is an array with each worker's array of slots. The ids count through all workers. */
static void put_slots(const char *results, um_jw *w) {
    json_t *all = json_loads(results, 0, NULL), *of_worker, *slot;
    size_t i, k;
    int64_t id = 0;
    um_jw_begin_array(w);
    json_array_foreach(all, i, of_worker) json_array_foreach(of_worker, k, slot) put_slot(slot, id++, w);
    um_jw_end_array(w);
    json_decref(all);
}

static void get_slots(um_service *s, um_exchange *x, const char *id) {
    (void)id;
    um_reply_call(s, x, "slots", put_slots);
}

/* ---- Endpoints --------------------------------------------------------------------------------------------------- */

static const um_endpoint endpoints[] = {
    {"POST", "/completion", post_completion, UM_ENDPOINT_WAITS, "llama.cpp", "continue a text or token ids"},
    {"GET", "/props", get_props, 0, "llama.cpp", "default parameters, chat template and special tokens"},
    {"GET", "/slots", get_slots, 0, "llama.cpp", "list running and waiting answers with their progress"},
};
const um_endpoint_set um_llama_endpoints = {endpoints, UM_LEN(endpoints)};
