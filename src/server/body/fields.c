/* Reads the fields that more than one API has. */
#include <jansson.h>
#include <math.h>

#include "server/body/body.h"

/* ---- What to generate -------------------------------------------------------------------------------------------- */

/* The name of the model, or of one of its adapters. */
static um_status take_model(um_body *b, const json_t *v, um_err *err) {
    const char *adapter = NULL;
    um_status st = um_json_take_text(v, "\"model\"", &b->model, err);
    if (st) return st;
    if (!um_setup_has_model(b->setup, b->model, &adapter)) {
        b->error_code = "model_not_found";
        return um_fail(err, UM_ENOENT, "the model \"%.100s\" does not exist; this is \"%.100s\", see /v1/models",
                       b->model, um_setup_model_name(b->setup));
    }
    if (adapter) b->generate.adapter = um_str_of(adapter);
    return UM_OK;
}

/* "" selects the model without an adapter. */
static um_status take_adapter(um_body *b, const json_t *v, um_err *err) {
    const char *name = NULL;
    um_status st = um_json_take_text(v, "\"adapter\"", &name, err);
    b->generate.adapter = um_str_of(name);
    return st;
}

static um_status take_n(um_body *b, const json_t *v, um_err *err) {
    int64_t n = 1;
    um_status st = um_json_take_int(v, "\"n\"", 1, UM_ANSWERS_MAX, &n, err);
    b->generate.n = (int32_t)n;
    return st;
}

static um_status take_priority(um_body *b, const json_t *v, um_err *err) {
    int64_t n = 0;
    um_status st = um_json_take_int(v, "\"priority\"", INT32_MIN, INT32_MAX, &n, err);
    b->generate.priority = (int32_t)n;
    return st;
}

static um_status take_salt(um_body *b, const json_t *v, um_err *err) {
    const char *text = NULL;
    um_status st = um_json_take_text(v, "\"cache_salt\"", &text, err);
    if (!st) b->generate.cache_salt = um_key_hash(um_str_of(text));
    return st;
}

static um_status take_request_id(um_body *b, const json_t *v, um_err *err) {
    um_status st = um_json_take_text(v, "\"request_id\"", &b->request_id, err);
    if (!st && (!*b->request_id || strlen(b->request_id) > 64))
        st = um_fail(err, UM_ERANGE, "\"request_id\": expected 1 to 64 bytes, found %zu", strlen(b->request_id));
    return st;
}

/* ---- Stop strings and biases ------------------------------------------------------------------------------------- */

/* Reads up to `most` texts: an array of strings. `word` names one of them. */
static um_status read_texts(um_body *b, const char *field, const char *word, const json_t *v, size_t most,
                            const um_str **out, uint32_t *n_out, um_err *err) {
    bool one = json_is_string(v);
    size_t n = one ? 1 : json_array_size(v);
    um_status st = UM_OK;
    if (!one && !json_is_array(v))
        return um_fail(err, UM_EINVAL, "\"%s\": expected a string or an array of strings, found %s", field,
                       um_json_kind(v));
    if (n > most) return um_fail(err, UM_ERANGE, "\"%s\": %zu strings, at most %zu", field, n, most);
    um_str *all = um_arena_alloc(&b->arena, (n + 1) * sizeof *all);
    for (size_t i = 0; i < n && !st; i++) {
        char what[64];
        const char *text = NULL;
        snprintf(what, sizeof what, "%s %zu", word, i);
        st = um_json_take_text(one ? v : json_array_get(v, i), what, &text, err);
        if (!st && !*text) st = um_fail(err, UM_EINVAL, "%s is empty", what);
        if (!st && strlen(text) > UM_STOP_BYTES_MAX)
            st = um_fail(err, UM_ERANGE, "%s has %zu bytes, at most %d", what, strlen(text), UM_STOP_BYTES_MAX);
        all[i] = um_str_of(text);
    }
    *out = all;
    *n_out = (uint32_t)n;
    return st;
}

um_status um_body_take_stop(um_body *b, const json_t *v, um_err *err) {
    return read_texts(b, "stop", "stop string", v, UM_STOPS_MAX, &b->generate.stop, &b->generate.n_stop, err);
}

static um_status take_bad_words(um_body *b, const json_t *v, um_err *err) {
    return read_texts(b, "bad_words", "bad word", v, UM_BAD_WORDS_MAX, &b->generate.bad_words, &b->generate.n_bad_words,
                      err);
}

/* Without any id no answer would be possible. */
static um_status take_allowed(um_body *b, const json_t *v, um_err *err) {
    int32_t *ids = um_arena_alloc(&b->arena, um_mul(json_array_size(v) + 1, sizeof *ids));
    b->generate.allowed_ids = ids;
    b->generate.n_allowed_ids = (uint32_t)json_array_size(v);
    um_status st = um_json_take_ids(v, "\"allowed_token_ids\"", ids, err);
    if (st || b->generate.n_allowed_ids) return st;
    return um_fail(err, UM_EINVAL, "\"allowed_token_ids\": the list is empty; null allows all ids");
}

static um_status take_stop_ids(um_body *b, const json_t *v, um_err *err) {
    int32_t *ids = um_arena_alloc(&b->arena, um_mul(json_array_size(v) + 1, sizeof *ids));
    b->generate.stop_ids = ids;
    b->generate.n_stop_ids = (uint32_t)json_array_size(v);
    return um_json_take_ids(v, "\"stop_token_ids\"", ids, err);
}

/* Reads an entry of {"id": bias}. In OpenAI's API -100 bans a token, so it becomes -infinity. */
static um_status read_bias(int32_t *id, float *bias, const char *key, const json_t *v, um_err *err) {
    int64_t number;
    if (!um_parse_int(key, &number) || number < 0 || number > INT32_MAX)
        return um_fail(err, UM_EINVAL, "\"logit_bias\": \"%.40s\" is not a token id", key);
    if (!json_is_number(v))
        return um_fail(err, UM_EINVAL, "\"logit_bias\"[\"%.40s\"]: expected a number, found %s", key, um_json_kind(v));
    double value = json_number_value(v);
    if (value < -100 || value > 100)
        return um_fail(err, UM_ERANGE, "\"logit_bias\"[\"%.40s\"]: %g is outside -100..100", key, value);
    *id = (int32_t)number;
    *bias = value == -100 ? -INFINITY : (float)value;
    return UM_OK;
}

um_status um_body_take_bias(um_body *b, const json_t *v, um_err *err) {
    const char *key;
    json_t *value;
    uint32_t n = 0;
    if (!json_is_object(v))
        return um_fail(err, UM_EINVAL, "\"logit_bias\": expected an object of token ids and numbers, found %s",
                       um_json_kind(v));
    int32_t *id = um_arena_alloc(&b->arena, um_mul(json_object_size(v) + 1, sizeof *id));
    float *bias = um_arena_alloc(&b->arena, um_mul(json_object_size(v) + 1, sizeof *bias));
    json_object_foreach((json_t *)v, key, value) {
        um_status st = read_bias(&id[n], &bias[n], key, value, err);
        if (st) return st;
        n++;
    }
    b->generate.bias_id = id;
    b->generate.bias = bias;
    b->generate.n_bias = n;
    return UM_OK;
}

/* ---- The form of the response ------------------------------------------------------------------------------------ */

#define SWITCH(name, field)                                                                                            \
    static um_status take_##name(um_body *b, const json_t *v, um_err *err) {                                           \
        return um_json_take_bool(v, "\"" #name "\"", &b->field, err);                                                  \
    }
SWITCH(stream, stream)
SWITCH(return_token_ids, return_token_ids)
SWITCH(return_step_map, return_step_map)
SWITCH(return_trajectory, return_trajectory)
SWITCH(return_timings, return_timings)
SWITCH(include_stop_str_in_output, include_stop)

/* By default special tokens are added to a text prompt, and not to a conversation, whose template writes its own. */
static um_status take_add_special_tokens(um_body *b, const json_t *v, um_err *err) {
    um_status st = um_json_take_bool(v, "\"add_special_tokens\"", &b->special_tokens, err);
    b->chat.add_special_tokens = b->special_tokens;
    return st;
}

static um_status take_truncation(um_body *b, const json_t *v, um_err *err) {
    int64_t n = 0;
    um_status st = um_json_take_int(v, "\"truncate_prompt_tokens\"", -1, INT32_MAX, &n, err);
    if (!st && n == 0) st = um_fail(err, UM_ERANGE, "\"truncate_prompt_tokens\": expected -1 or a positive number");
    b->truncate_to = (int32_t)n;
    return st;
}

static um_status take_skip_special(um_body *b, const json_t *v, um_err *err) {
    bool skip = true;
    um_status st = um_json_take_bool(v, "\"skip_special_tokens\"", &skip, err);
    b->keep_special = !skip;
    return st;
}

static um_status take_stream_mode(um_body *b, const json_t *v, um_err *err) {
    static const char names[] = "block_append|denoise|mixed";
    um_str at;
    const char *word = NULL;
    um_status st = um_json_take_text(v, "\"stream_mode\"", &word, err);
    if (st) return st;
    int mode = um_word_index(names, '|', word, &at);
    if (mode < 0)
        return um_fail(err, UM_EINVAL, "\"stream_mode\": expected block_append, denoise or mixed, found \"%.40s\"",
                       word);
    b->stream_mode = mode;
    return UM_OK;
}

/* Reads a field whose default is an option of the server. The option's row has the range. */
static um_status take_server_option(const char *name, const json_t *v, um_server_config *c, um_err *err) {
    const um_option *row = um_options_find(um_server_options, UM_SERVER_OPTIONS, name);
    char number[UM_NUMBER_MAX];
    const char *text;
    assert(row);
    um_status st = um_option_json_text(row, name, v, number, &text, err);
    return st ? st : um_option_set_text(row, c, text, err);
}

static um_status take_interval(um_body *b, const json_t *v, um_err *err) {
    um_server_config c = {.snapshot_interval = 1};
    um_status st = take_server_option("snapshot_interval", v, &c, err);
    b->snapshot_interval = c.snapshot_interval;
    return st;
}

static um_status take_max_hz(um_body *b, const json_t *v, um_err *err) {
    um_server_config c = {.snapshot_max_hz = 0};
    um_status st = take_server_option("snapshot_max_hz", v, &c, err);
    b->snapshot_max_hz = (double)c.snapshot_max_hz;
    return st;
}

/* include_obfuscation is ignored; its row in the table says why. */
static um_status take_stream_options(um_body *b, const json_t *v, um_err *err) {
    const char *key;
    json_t *value;
    bool padding = false;
    const struct {
        const char *name;
        bool *to;
    } rows[] = {{"include_usage", &b->include_usage},
                {"continuous_usage_stats", &b->continuous_usage},
                {"include_obfuscation", &padding}};
    if (!json_is_object(v))
        return um_fail(err, UM_EINVAL, "\"stream_options\": expected an object, found %s", um_json_kind(v));
    json_object_foreach((json_t *)v, key, value) {
        size_t i = 0;
        while (i < UM_LEN(rows) && !um_streq(key, rows[i].name)) i++;
        if (i == UM_LEN(rows) && um_body_ignores(b, key)) continue;
        if (i == UM_LEN(rows))
            return um_fail(err, UM_EINVAL,
                           "\"stream_options\": unknown member \"%.40s\"; expected include_usage or "
                           "continuous_usage_stats",
                           key);
        if (json_is_null(value)) continue;
        um_status st = um_json_take_bool(value, rows[i].name, rows[i].to, err);
        if (st) return st;
    }
    if (!json_is_true(json_object_get(b->root, "stream")))
        return um_fail(err, UM_EINVAL, "\"stream_options\" needs \"stream\": true");
    return UM_OK;
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

static const um_field rows[] = {
    {.name = "n", .take = take_n, .types = "integer"},
    {.name = "stop", .take = um_body_take_stop, .types = "string|array"},
    {.name = "stop_token_ids", .take = take_stop_ids, .types = "array"},
    {.name = "logit_bias", .take = um_body_take_bias, .types = "object"},
    {.name = "bad_words", .take = take_bad_words, .types = "string|array"},
    {.name = "allowed_token_ids", .take = take_allowed, .types = "array"},
    {.name = "response_format", .take = um_body_take_response_format, .types = "object"},
    {.name = "structured_outputs", .take = um_body_take_structured_outputs, .types = "object"},
    {.name = "guided_json", .take = um_body_take_guided_json, .types = "object|boolean|string"},
    {.name = "guided_regex", .take = um_body_take_guided_regex, .types = "string"},
    {.name = "guided_choice", .take = um_body_take_guided_choice, .types = "array"},
    {.name = "guided_grammar", .take = um_body_take_guided_grammar, .types = "string"},
    {.name = "json_schema", .take = um_body_take_json_schema, .types = "object|boolean|string"},
    {.name = "regex", .take = um_body_take_regex, .types = "string"},
    {.name = "ebnf", .take = um_body_take_ebnf, .types = "string"},
    {.name = "grammar", .take = um_body_take_grammar, .types = "string"},
    {.name = "adapter", .take = take_adapter, .types = "string"},
    {.name = "lora", .take = take_adapter, .types = "string"},
    {.name = "priority", .take = take_priority, .types = "integer"},
    {.name = "cache_salt", .take = take_salt, .types = "string"},
    {.name = "skip_special_tokens", .take = take_skip_special, .types = "boolean"},
    {.name = "return_step_map", .take = take_return_step_map, .types = "boolean"},
    {.name = "return_timings", .take = take_return_timings, .types = "boolean"},
#define N_GENERATION 23 /* the rows above */

    {.name = "model", .take = take_model, .types = "string"},
    {.name = "request_id", .take = take_request_id, .types = "string"},
    {.name = "stream", .take = take_stream, .types = "boolean"},
    {.name = "stream_mode", .take = take_stream_mode, .types = "string"},
    {.name = "stream_options", .take = take_stream_options, .types = "object"},
    {.name = "snapshot_interval", .take = take_interval, .types = "integer"},
    {.name = "snapshot_max_hz", .take = take_max_hz, .types = "number"},
    {.name = "return_token_ids", .take = take_return_token_ids, .types = "boolean"},
    {.name = "return_trajectory", .take = take_return_trajectory, .types = "boolean"},
    {.name = "include_stop_str_in_output", .take = take_include_stop_str_in_output, .types = "boolean"},
    {.name = "add_special_tokens", .take = take_add_special_tokens, .types = "boolean"},
    {.name = "truncate_prompt_tokens", .take = take_truncation, .types = "integer"},

    {.name = "prompt_logprobs",
     .neutral = "null",
     .why = "bidirectional models predict no next token at the positions of a prompt"},
    {.name = "structural_tag",
     .neutral = "null",
     .why = "a constraint holds for the whole answer, not from a tag on; use json_schema, regex or grammar"},
    {.name = "guided_whitespace_pattern", .neutral = "null", .why = "json_space sets the white space of JSON"},
    {.name = "guided_decoding_backend", .why = "the server has one engine of grammars"},
    {.name = "best_of", .neutral = "1|null", .why = "the server does not rank answers; n gives several"},
    {.name = "use_beam_search", .neutral = "false", .why = "beam search is for autoregressive models"},
    {.name = "length_penalty", .neutral = "1|null", .why = "beam search is for autoregressive models"},
    {.name = "early_stopping", .neutral = "false|null", .why = "beam search is for autoregressive models"},
    {.name = "suffix", .neutral = "null", .why = "only /v1/completions fills in text before a suffix"},
    {.name = "return_tokens_as_token_ids", .neutral = "false|null", .why = "use return_token_ids"},

    {.name = "metadata", .why = "labels of stored answers; only /v1/responses stores them"},
    {.name = "store", .why = "only /v1/responses stores answers"},
    {.name = "service_tier", .why = "this server has one tier; priority orders requests"},
    {.name = "prompt_cache_key",
     .why = "prompts with equal prefixes share the cache without a key; cache_salt separates them"},
    {.name = "safety_identifier", .why = "a label for OpenAI's monitoring of end users; this server has none"},
    {.name = "user", .why = "a label for OpenAI's monitoring of end users; this server has none"},
    {.name = "spaces_between_special_tokens", .why = "the supported tokenizers put no spaces between special tokens"},
    {.name = "stream_options.include_obfuscation", .is_member = true, .why = "streams are not padded"},
};
const um_field_set um_generation_fields = {rows, N_GENERATION};
const um_field_set um_common_fields = {rows, UM_LEN(rows)};
