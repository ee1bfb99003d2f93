/* Endpoints that convert text, token ids and conversations: /tokenize, /detokenize, /apply-template. */
#include <jansson.h>

#include "server/api/common.h"
#include "server/generate/intake.h"

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

/* The fields of /tokenize in addition to those of a conversation. Other fields of generations are refused. */
static const char *const text_fields[] = {"model",       "prompt", "content", "add_special_tokens", "return_token_strs",
                                          "add_special", NULL};

static um_status take_add_special(um_body *b, const json_t *v, um_err *err) {
    return um_json_take_bool(v, "\"add_special\"", &b->special_tokens, err);
}

static const um_field rows[] = {
    {.name = "prompt", .take = um_body_take_prompt, .types = "string|array"},
    /* The fields of llama.cpp. */
    {.name = "content", .take = um_body_take_prompt, .types = "string|array"},
    {.name = "add_special", .take = take_add_special, .types = "boolean"},
    {.name = "return_token_strs", .neutral = "true|false", .why = "the field is a boolean"},
};
static const um_field_set token_rows = {rows, UM_LEN(rows)};
static const um_field_set *const sets[] = {&token_rows, &um_chat_fields, &um_common_fields, NULL};

static bool is_known(const char *key, bool takes_prompt) {
    for (size_t i = 0; i < um_chat_fields.n; i++)
        if (um_streq(key, um_chat_fields.rows[i].name)) return true;
    for (size_t i = 0; takes_prompt && text_fields[i]; i++)
        if (um_streq(key, text_fields[i])) return true;
    return um_streq(key, "model");
}

/* Reads a body with messages or, if takes_prompt, with a text. */
static um_status read_body(um_intake *r, bool takes_prompt, um_err *err) {
    const char *key, *wanted = takes_prompt ? "prompt" : "messages";
    json_t *root = r->root, *value;
    um_body *b = &r->body;
    json_object_foreach(root, key, value) {
        if (!is_known(key, takes_prompt) && !r->service->setup.config->ignore_unknown_fields)
            return um_fail_about(err, um_fail(err, UM_EINVAL, "unknown field \"%.80s\"", key), key);
    }
    r->root = NULL;
    um_status st = um_body_read(b, &r->service->setup, &r->capacity, root, sets, err);
    if (st) return st;
    if (!b->n_prompts) return um_fail_param(err, UM_EINVAL, wanted, "the field is missing");
    if (!b->one_prompt && b->prompt[0].kind != UM_PROMPT_CHAT)
        return um_fail_param(err, UM_EINVAL, "prompt", "expected one text, found a list");
    if (b->prompt[0].kind == UM_PROMPT_IDS)
        return um_fail_param(err, UM_EINVAL, "prompt", "expected a text, found token ids");
    return UM_OK;
}

/* Encodes as um_body_encode does for a generation. */
static um_status encode(um_service *s, const um_body *b, int32_t **ids, size_t *n, um_err *err) {
    const um_prompt *p = &b->prompt[0];
    um_model *m = s->setup.model;
    if (p->kind == UM_PROMPT_CHAT)
        return um_fail_about(err, um_model_render_chat(m, &b->chat, NULL, NULL, ids, n, err), "messages");
    return um_fail_about(
        err,
        um_model_encode_prompt(m, p->text.p, p->text.n, b->checked.special_in_content, b->special_tokens, ids, n, err),
        "prompt");
}

/* ---- Tokenize ---------------------------------------------------------------------------------------------------- */

static void put_strings(um_service *s, um_jw *w, const int32_t *ids, size_t n, bool wanted) {
    um_jw_key(w, "token_strs");
    if (!wanted) {
        um_jw_null(w);
        return;
    }
    um_jw_begin_array(w);
    for (size_t i = 0; i < n; i++) {
        size_t len = 0;
        const char *bytes = um_model_token_bytes(s->setup.model, ids[i], &len);
        um_jw_str(w, bytes, len);
    }
    um_jw_end_array(w);
}

static void put_tokens(um_intake *r, const int32_t *ids, size_t n) {
    um_jw w;
    um_jw_init(&w, &r->out);
    um_jw_begin_object(&w);
    um_jw_put_ints(&w, "tokens", ids, n);
    um_jw_put_int(&w, "count", (int64_t)n);
    um_jw_put_int(&w, "max_model_len", r->capacity.max_len);
    put_strings(r->service, &w, ids, n, json_is_true(json_object_get(r->body.root, "return_token_strs")));
    um_jw_end_object(&w);
}

static um_status read_tokenize(um_intake *r, um_err *err) {
    int32_t *ids = NULL;
    size_t n = 0;
    um_status st = read_body(r, true, err);
    if (!st) st = encode(r->service, &r->body, &ids, &n, err);
    if (!st) put_tokens(r, ids, n);
    um_free(ids);
    return st;
}

static void post_tokenize(um_service *s, um_exchange *x, const char *id) {
    static const um_intake_handler handler = {.read = read_tokenize, .respond = um_intake_send_json};
    (void)id;
    um_intake_start(s, x, &handler, NULL);
}

/* ---- Detokenize, apply-template ---------------------------------------------------------------------------------- */

/* Writes {"prompt": text}. */
static void put_prompt(um_intake *r, const char *text, size_t n) {
    um_jw w;
    um_jw_init(&w, &r->out);
    um_jw_begin_object(&w);
    um_jw_put_str(&w, "prompt", (um_str){text, n});
    um_jw_end_object(&w);
}

static um_status read_ids(um_service *s, const json_t *root, int32_t *ids, um_err *err) {
    const json_t *tokens = json_object_get(root, "tokens");
    const char *key;
    json_t *value;
    um_model_info info;
    um_model_get_info(s->setup.model, &info);
    json_object_foreach((json_t *)(uintptr_t)root, key, value) {
        if (um_streq(key, "tokens") || um_streq(key, "model") || s->setup.config->ignore_unknown_fields) continue;
        return um_fail_about(err, um_fail(err, UM_EINVAL, "unknown field \"%.80s\"", key), key);
    }
    if (!tokens) return um_fail_param(err, UM_EINVAL, "tokens", "the field is missing");
    um_status st = um_json_take_ids(tokens, "\"tokens\"", ids, err);
    if (st) return um_fail_about(err, st, "tokens");
    for (size_t i = 0; i < json_array_size(tokens); i++)
        if (ids[i] < 0 || ids[i] >= info.vocab)
            return um_fail_param(err, UM_ERANGE, "tokens", "token %zu is %d, outside the vocabulary 0..%d", i, ids[i],
                                 info.vocab - 1);
    return UM_OK;
}

static um_status read_detokenize(um_intake *r, um_err *err) {
    char *text = NULL;
    size_t n = 0, n_ids = json_array_size(json_object_get(r->root, "tokens"));
    int32_t *ids = UM_NEW_ARRAY(int32_t, n_ids + 1);
    um_status st = read_ids(r->service, r->root, ids, err);
    if (!st) st = um_model_decode(r->service->setup.model, ids, n_ids, true, &text, &n, err);
    if (!st) put_prompt(r, text, n);
    um_free(text);
    um_free(ids);
    return st;
}

static void post_detokenize(um_service *s, um_exchange *x, const char *id) {
    static const um_intake_handler handler = {.read = read_detokenize, .respond = um_intake_send_json};
    (void)id;
    um_intake_start(s, x, &handler, NULL);
}

static um_status read_template(um_intake *r, um_err *err) {
    char *text = NULL;
    size_t n = 0;
    um_status st = read_body(r, false, err);
    if (st) return st;
    st = um_model_render_chat(r->service->setup.model, &r->body.chat, &text, &n, NULL, NULL, err);
    if (!st) put_prompt(r, text, n);
    um_free(text);
    return um_fail_about(err, st, "messages");
}

static void post_template(um_service *s, um_exchange *x, const char *id) {
    static const um_intake_handler handler = {.read = read_template, .respond = um_intake_send_json};
    (void)id;
    um_intake_start(s, x, &handler, NULL);
}

/* ---- Endpoints --------------------------------------------------------------------------------------------------- */

static const um_endpoint endpoints[] = {
    {"POST", "/tokenize", post_tokenize, 0, "vLLM", "encode a text or a conversation to token ids"},
    {"POST", "/detokenize", post_detokenize, 0, "vLLM", "decode token ids to text, including special tokens"},
    {"POST", "/apply-template", post_template, 0, "llama.cpp", "render the prompt of a conversation"},
};
const um_endpoint_set um_tokens_endpoints = {endpoints, UM_LEN(endpoints)};
