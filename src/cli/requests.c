/* A request line: {"id": …, "prompt" | "prompt_token_ids" | "messages": …, parameters by their option names}. With
 * messages go tools, tool_choice, chat_template, chat_template_kwargs, add_generation_prompt, continue_final_message.
 * What is no option, but a list or of one request alone: stop, stop_token_ids, logit_bias, n, cache_salt,
 * return_step_map, return_timings. "adapter" or "lora" names a loaded adapter, "" the plain model. */
#include "cli/requests.h"

#include <jansson.h>
#include <math.h>

#include "engine/engine.h"

#define CHAT_FILE_MAX ((size_t)64 << 20)

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static const char *kind_of(const json_t *v) {
    static const char *const name[] = {"an object", "an array",      "a string",      "an integer",
                                       "a number",  "true or false", "true or false", "null"};
    if (um_json_big_integer(v).p) return "an integer beyond 64 bits";
    return v ? name[json_typeof(v)] : "nothing";
}

um_status um_line_object(json_t **root, um_str line, um_err *err) {
    um_status st = um_json_parse_exact(root, line.p, line.n, "the line", err);
    if (st || json_is_object(*root)) return st;
    st = um_fail(err, UM_EPARSE, "expected a JSON object, found %s", kind_of(*root));
    json_decref(*root);
    *root = NULL;
    return st;
}

um_status um_line_id(const json_t *root, um_buf *out, um_err *err) {
    const json_t *id = json_object_get(root, "id");
    um_jw w;
    um_buf_clear(out);
    um_jw_init(&w, out);
    if (json_is_string(id)) um_jw_str(&w, json_string_value(id), json_string_length(id));
    else if (json_is_integer(id)) um_jw_int(&w, json_integer_value(id));
    else return um_fail(err, UM_EINVAL, "\"id\": expected a string or an integer, found %s", kind_of(id));
    return UM_OK;
}

/* `what` is named in messages: "\"prompt\"", "stop string 2". */
static um_status take_text(const json_t *v, const char *what, const char **out, um_err *err) {
    if (!json_is_string(v)) return um_fail(err, UM_EINVAL, "%s: expected a string, found %s", what, kind_of(v));
    if (strlen(json_string_value(v)) != json_string_length(v))
        return um_fail(err, UM_EINVAL, "%s: a string without U+0000 is expected", what);
    *out = json_string_value(v);
    return UM_OK;
}

um_status um_line_text(const json_t *root, const char *key, const char **out, um_err *err) {
    char what[64];
    snprintf(what, sizeof what, "\"%s\"", key);
    return take_text(json_object_get(root, key), what, out, err);
}

/* ---- The prompt -------------------------------------------------------------------------------------------------- */

static um_status take_prompt(um_request_line *q, const json_t *v, um_err *err) {
    if (!json_is_string(v)) return um_fail(err, UM_EINVAL, "\"prompt\": expected a string, found %s", kind_of(v));
    q->request.text = json_string_value(v);
    q->request.text_len = json_string_length(v);
    return UM_OK;
}

/* An array of token ids, um_free; which of them exist is the engine's to say. */
static um_status read_ids(const json_t *v, const char *key, int32_t **out, size_t *n, um_err *err) {
    if (!json_is_array(v))
        return um_fail(err, UM_EINVAL, "\"%s\": expected an array of integers, found %s", key, kind_of(v));
    *n = json_array_size(v);
    *out = UM_NEW_ARRAY(int32_t, *n + 1);
    for (size_t i = 0; i < *n; i++) {
        const json_t *id = json_array_get(v, i);
        if (!json_is_integer(id))
            return um_fail(err, UM_EINVAL, "\"%s\"[%zu]: expected an integer, found %s", key, i, kind_of(id));
        if (json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
            return um_fail(err, UM_ERANGE, "\"%s\"[%zu]: %lld is no token id", key, i,
                           (long long)json_integer_value(id));
        (*out)[i] = (int32_t)json_integer_value(id);
    }
    return UM_OK;
}

static um_status take_ids(um_request_line *q, const json_t *v, um_err *err) {
    um_status st = read_ids(v, "prompt_token_ids", &q->ids, &q->request.n_ids, err);
    q->request.ids = q->ids;
    return st;
}

/* ---- The conversation -------------------------------------------------------------------------------------------- */

static int append(const char *data, size_t n, void *buf) {
    um_buf_append((um_buf *)buf, data, n);
    return 0;
}

um_status um_chat_file(const char *path, um_buf *out, um_err *err) {
    um_status st = um_file_read(path, CHAT_FILE_MAX, out, err);
    um_buf_puts(out, "");
    if (!st && strlen(out->data) != out->len)
        st = um_fail(err, UM_EPARSE, "%s holds a byte 0, which JSON does not allow", path);
    return st;
}

/* The value as the JSON text that a um_chat_request takes. */
static const char *text_of(const json_t *v, um_buf *out) {
    um_buf_clear(out);
    json_dump_callback(v, append, out, JSON_COMPACT | JSON_ENCODE_ANY);
    return out->data;
}

static um_status take_messages(um_request_line *q, const json_t *v, um_err *err) {
    if (!json_is_array(v) || json_array_size(v) == 0)
        return um_fail(err, UM_EINVAL, "\"messages\": expected an array of at least one message, found %s",
                       json_is_array(v) ? "none" : kind_of(v));
    q->chat.messages_json = text_of(v, &q->messages);
    q->request.chat = &q->chat;
    return UM_OK;
}

static um_status take_tools(um_request_line *q, const json_t *v, um_err *err) {
    if (!json_is_array(v)) return um_fail(err, UM_EINVAL, "\"tools\": expected an array, found %s", kind_of(v));
    q->chat.tools_json = text_of(v, &q->tools);
    return UM_OK;
}

static um_status take_kwargs(um_request_line *q, const json_t *v, um_err *err) {
    if (!json_is_object(v))
        return um_fail(err, UM_EINVAL, "\"chat_template_kwargs\": expected an object, found %s", kind_of(v));
    q->chat.kwargs_json = text_of(v, &q->kwargs);
    return UM_OK;
}

static um_status take_tool_choice(um_request_line *q, const json_t *v, um_err *err) {
    (void)q;
    const char *word = json_string_value(v);
    if (um_streq(word, "none") || um_streq(word, "auto")) return UM_OK;
    return um_fail(err, UM_EINVAL, "\"tool_choice\": expected \"auto\" or \"none\"; a call can't be forced");
}

static um_status take_template(um_request_line *q, const json_t *v, um_err *err) {
    return take_text(v, "\"chat_template\"", &q->chat.chat_template, err);
}

static um_status take_switch(const json_t *v, const char *key, bool *out, um_err *err) {
    if (!json_is_boolean(v))
        return um_fail(err, UM_EINVAL, "\"%s\": expected true or false, found %s", key, kind_of(v));
    *out = json_is_true(v);
    return UM_OK;
}

static um_status take_add(um_request_line *q, const json_t *v, um_err *err) {
    return take_switch(v, "add_generation_prompt", &q->chat.add_generation_prompt, err);
}

static um_status take_continue(um_request_line *q, const json_t *v, um_err *err) {
    return take_switch(v, "continue_final_message", &q->chat.continue_final_message, err);
}

/* ---- Parameters -------------------------------------------------------------------------------------------------- */

static um_status take_stop(um_request_line *q, const json_t *v, um_err *err) {
    bool one = json_is_string(v);
    size_t n = one ? 1 : json_array_size(v);
    if (!one && !json_is_array(v))
        return um_fail(err, UM_EINVAL, "\"stop\": expected a string or an array of strings, found %s", kind_of(v));
    q->stop = UM_NEW_ARRAY(const char *, n + 1);
    um_status st = UM_OK;
    for (size_t i = 0; i < n && !st; i++) {
        char what[64];
        snprintf(what, sizeof what, "stop string %zu", i);
        st = take_text(one ? v : json_array_get(v, i), what, &q->stop[i], err);
        if (!st && !*q->stop[i]) st = um_fail(err, UM_EINVAL, "stop string %zu is empty", i);
    }
    q->request.stop = q->stop;
    q->request.n_stop = n;
    return st;
}

static um_status take_stop_ids(um_request_line *q, const json_t *v, um_err *err) {
    um_status st = read_ids(v, "stop_token_ids", &q->stop_ids, &q->request.n_stop_ids, err);
    q->request.stop_ids = q->stop_ids;
    return st;
}

/* One entry of {"id": bias}. Programs that know no infinity write -100 for "never". */
static um_status read_bias(um_bias *out, const char *key, const json_t *v, um_err *err) {
    int64_t id;
    if (!um_parse_int(key, &id) || id < 0 || id > INT32_MAX)
        return um_fail(err, UM_EINVAL, "\"logit_bias\": \"%.40s\" is no token id", key);
    if (!json_is_number(v))
        return um_fail(err, UM_EINVAL, "\"logit_bias\"[\"%.40s\"]: expected a number, found %s", key, kind_of(v));
    double value = json_number_value(v);
    if (value < -100 || value > 100)
        return um_fail(err, UM_ERANGE, "\"logit_bias\"[\"%.40s\"]: %g is outside -100..100", key, value);
    *out = (um_bias){(int32_t)id, value == -100 ? -INFINITY : (float)value};
    return UM_OK;
}

static um_status take_bias(um_request_line *q, const json_t *v, um_err *err) {
    const char *key;
    json_t *value;
    if (!json_is_object(v))
        return um_fail(err, UM_EINVAL, "\"logit_bias\": expected an object of token ids and numbers, found %s",
                       kind_of(v));
    q->bias = UM_NEW_ARRAY(um_bias, json_object_size(v) + 1);
    q->request.bias = q->bias;
    json_object_foreach((json_t *)v, key, value) {
        um_status st = read_bias(&q->bias[q->request.n_bias++], key, value, err);
        if (st) return st;
    }
    return UM_OK;
}

static um_status take_n(um_request_line *q, const json_t *v, um_err *err) {
    if (!json_is_integer(v)) return um_fail(err, UM_EINVAL, "\"n\": expected an integer, found %s", kind_of(v));
    if (json_integer_value(v) < 1 || json_integer_value(v) > UM_ANSWERS_MAX)
        return um_fail(err, UM_ERANGE, "\"n\": %lld is outside 1..%d", (long long)json_integer_value(v),
                       UM_ANSWERS_MAX);
    q->request.n = (int32_t)json_integer_value(v);
    return UM_OK;
}

static um_status take_salt(um_request_line *q, const json_t *v, um_err *err) {
    if (!json_is_string(v)) return um_fail(err, UM_EINVAL, "\"cache_salt\": expected a string, found %s", kind_of(v));
    q->request.cache_salt = um_key_hash((um_str){json_string_value(v), json_string_length(v)});
    return UM_OK;
}

static um_status take_step_map(um_request_line *q, const json_t *v, um_err *err) {
    return take_switch(v, "return_step_map", &q->step_map, err);
}

static um_status take_timings(um_request_line *q, const json_t *v, um_err *err) {
    return take_switch(v, "return_timings", &q->timings, err);
}

static um_status take_parameter(um_request_line *q, const char *key, const json_t *v, um_err *err);

/* A number, or the switch of chat requests, beside which top_logprobs is the number: either may come first. */
static um_status take_logprobs(um_request_line *q, const json_t *v, um_err *err) {
    int32_t *n = &q->request.sampling.logprobs;
    const json_t *top = json_object_get(q->root, "top_logprobs");
    if (!json_is_boolean(v)) return take_parameter(q, "logprobs", v, err);
    if (json_is_true(v)) *n = UM_MAX(*n, 0);
    else if (top && !json_is_null(top))
        return um_fail(err, UM_EINVAL, "\"logprobs\" is false, but \"top_logprobs\" is there");
    else *n = -1;
    return UM_OK;
}

static um_status take_adapter(um_request_line *q, const json_t *v, um_err *err) {
    um_status s = take_text(v, "\"adapter\"", &q->request.adapter, err);
    if (!s && !*q->request.adapter) q->request.adapter = NULL;
    return s;
}

/* What a line may hold beside parameters. */
static const struct {
    const char *key;
    um_status (*take)(um_request_line *q, const json_t *v, um_err *err); /* NULL: read before everything else */
} own[] = {
    {"id", NULL},
    {"prompt", take_prompt},
    {"prompt_token_ids", take_ids},
    {"messages", take_messages},
    {"tools", take_tools},
    {"tool_choice", take_tool_choice},
    {"chat_template", take_template},
    {"chat_template_kwargs", take_kwargs},
    {"add_generation_prompt", take_add},
    {"continue_final_message", take_continue},
    {"stop", take_stop},
    {"stop_token_ids", take_stop_ids},
    {"logit_bias", take_bias},
    {"n", take_n},
    {"cache_salt", take_salt},
    {"return_step_map", take_step_map},
    {"return_timings", take_timings},
    {"logprobs", take_logprobs},
    {"adapter", take_adapter},
    {"lora", take_adapter},
};

static um_status fail_unknown(const um_option_set *sets, size_t n_sets, const char *key, um_err *err) {
    const char *words[128];
    size_t n = 0;
    for (size_t i = 0; i < UM_LEN(own); i++) words[n++] = own[i].key;
    for (size_t i = 0; i < n_sets; i++)
        for (size_t k = 0; k < sets[i].n && n < UM_LEN(words); k++) words[n++] = sets[i].rows[k].name;
    const char *near = um_nearest(key, words, n);
    if (near) return um_fail(err, UM_EINVAL, "unknown key \"%.80s\"; did you mean \"%s\"?", key, near);
    return um_fail(err, UM_EINVAL, "unknown key \"%.80s\"; `unmask list options` names the parameters", key);
}

/* The JSON type must be the option's: "7" is no number. A word, mostly "auto", stands for the default of many. */
static bool type_fits(const um_option *row, const json_t *v) {
    if (json_is_string(v) && um_option_is_auto(row, json_string_value(v))) return true;
    switch (row->type) {
    case UM_OPT_BOOL: return json_is_boolean(v);
    case UM_OPT_INT:
    case UM_OPT_INT64:
    case UM_OPT_FLOAT: return json_is_number(v);
    case UM_OPT_NAME:
    case UM_OPT_CHOICE:
    case UM_OPT_STR: return json_is_string(v);
    }
    return false;
}

static const char *expected_of(const um_option *row) {
    if (row->type == UM_OPT_BOOL) return "true or false";
    return row->type >= UM_OPT_INT && row->type <= UM_OPT_FLOAT ? "a number" : "a string";
}

static um_status take_parameter(um_request_line *q, const char *key, const json_t *v, um_err *err) {
    um_option_set sets[UM_DECODE_SETS_MAX];
    size_t n = um_decode_option_sets(sets, &q->request.decoding, &q->request.sampling);
    const um_option *row = NULL;
    for (size_t i = 0; i < n && !row; i++) row = um_options_find(sets[i].rows, sets[i].n, key);
    if (!row) return fail_unknown(sets, n, key, err);
    if (json_is_null(v)) return UM_OK;
    um_str word = um_option_auto(row);
    if (!type_fits(row, v))
        return um_fail(err, UM_EINVAL, "\"%.80s\": expected %s%s%.*s%s, found %s", key, expected_of(row),
                       word.n ? " or \"" : "", (int)word.n, word.p ? word.p : "", word.n ? "\"" : "", kind_of(v));
    char number[UM_NUMBER_MAX];
    const char *text = json_is_true(v) ? "true" : "false";
    if (json_is_integer(v)) snprintf(number, sizeof number, "%lld", (long long)json_integer_value(v));
    if (json_is_real(v)) um_format_double(json_real_value(v), number);
    if (json_is_number(v)) text = number;
    if (json_is_string(v)) {
        um_status st = take_text(v, "a parameter", &text, err);
        if (st) return st;
    }
    return um_request_set(&q->request, key, text, err);
}

/* null is what programs write for "not given". */
static um_status take_key(um_request_line *q, const char *key, const json_t *v, um_err *err) {
    size_t i = 0;
    while (i < UM_LEN(own) && !um_streq(key, own[i].key)) i++;
    if (i == UM_LEN(own)) return take_parameter(q, key, v, err);
    return own[i].take && !json_is_null(v) ? own[i].take(q, v, err) : UM_OK;
}

/* Keys that say something of a conversation must not be dropped in silence. */
static um_status check_chat(um_request_line *q, um_err *err) {
    static const char *const keys[] = {"tools",
                                       "tool_choice",
                                       "chat_template",
                                       "chat_template_kwargs",
                                       "add_generation_prompt",
                                       "continue_final_message"};
    for (size_t i = 0; i < UM_LEN(keys) && !q->request.chat; i++) {
        const json_t *v = json_object_get(q->root, keys[i]);
        if (v && !json_is_null(v)) return um_fail(err, UM_EINVAL, "\"%s\" goes with \"messages\"", keys[i]);
    }
    if (um_streq(json_string_value(json_object_get(q->root, "tool_choice")), "none")) q->chat.tools_json = NULL;
    /* Who continues a message wants no new turn, unless the line says so, which is an error. */
    if (!json_is_boolean(json_object_get(q->root, "add_generation_prompt")))
        q->chat.add_generation_prompt = !q->chat.continue_final_message;
    return UM_OK;
}

/* ---- The line ---------------------------------------------------------------------------------------------------- */

static void clear(um_request_line *q) {
    json_decref(q->root);
    um_free(q->ids);
    um_free(q->stop);
    um_free(q->stop_ids);
    um_free(q->bias);
    q->root = NULL;
    q->ids = q->stop_ids = NULL;
    q->stop = NULL;
    q->bias = NULL;
    um_chat_init(&q->chat);
    um_buf_clear(&q->id);
}

um_status um_request_line_parse(um_request_line *q, um_str line, const um_request *defaults, um_err *err) {
    clear(q);
    q->request = *defaults;
    q->chat.special_in_content = defaults->special_in_content;
    um_status st = um_line_object(&q->root, line, err);
    if (!st) st = um_line_id(q->root, &q->id, err);
    if (st) return st;
    const char *key;
    json_t *value;
    json_object_foreach(q->root, key, value) {
        st = take_key(q, key, value, err);
        if (st) return st;
    }
    int n = !!q->request.text + !!q->request.ids + !!q->request.chat;
    if (n != 1)
        return um_fail(err, UM_EINVAL, "expected one of \"prompt\", \"prompt_token_ids\" and \"messages\", found %s",
                       n ? "several" : "none");
    return check_chat(q, err);
}

void um_request_line_free(um_request_line *q) {
    clear(q);
    um_buf_free(&q->id);
    um_buf_free(&q->messages);
    um_buf_free(&q->tools);
    um_buf_free(&q->kwargs);
}
