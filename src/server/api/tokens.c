/* Texts and token ids: /tokenize, /detokenize, /apply-template. Nothing is generated. */
#include <jansson.h>

#include "server/api/shapes.h"

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

/* Rows that every body here has; what else a generation may be told means nothing here and is refused. */
static const char *const plain_names[] = {"model", "prompt", "add_special_tokens", "return_token_strs", NULL};

static const um_field rows[] = {
    {.name = "prompt", .take = um_body_take_prompt},
    {.name = "return_token_strs", .neutral = "true|false", .why = "it is a switch"},
};
static const um_field_set token_rows = {rows, UM_LEN(rows)};
static const um_field_set *const sets[] = {&token_rows, &um_chat_fields, &um_common_fields, NULL};

static bool is_known(const char *key, bool takes_prompt) {
    for (size_t i = 0; i < um_chat_fields.n; i++)
        if (um_streq(key, um_chat_fields.rows[i].name)) return true;
    for (size_t i = 0; takes_prompt && plain_names[i]; i++)
        if (um_streq(key, plain_names[i])) return true;
    return um_streq(key, "model");
}

/* Reads the body; takes_prompt: a text is as good as messages. False: the exchange was answered. */
static bool read_body(um_server *s, um_exchange *x, bool takes_prompt, um_body *b) {
    const char *key, *wanted = takes_prompt ? "prompt" : "messages";
    json_t *root = um_read_object(x), *value;
    um_err err = {0};
    um_status st = UM_OK;
    if (!root) return false;
    json_object_foreach(root, key, value) {
        if (st || is_known(key, takes_prompt)) continue;
        st = um_fail_about(&err, um_fail(&err, UM_EINVAL, "unknown field \"%.80s\"", key), key);
    }
    if (st) json_decref(root);
    else st = um_body_read(b, s, root, sets, &err);
    if (!st && !b->n_prompts) st = um_fail_param(&err, UM_EINVAL, wanted, "it is missing");
    if (!st && !b->one_prompt && b->prompt[0].kind != UM_PROMPT_CHAT)
        st = um_fail_param(&err, UM_EINVAL, "prompt", "expected one text, found a list");
    if (!st && b->prompt[0].kind == UM_PROMPT_IDS)
        st = um_fail_param(&err, UM_EINVAL, "prompt", "expected a text, found token ids");
    if (!st) return true;
    um_reply_error(x, um_http_status_of(st), *err.param ? err.param : NULL, b->error_code, "%s", err.msg);
    um_body_free(b);
    return false;
}

/* The same steps as in front of a generation. */
static um_status encode(um_server *s, const um_body *b, int32_t **ids, size_t *n, um_err *err) {
    const um_prompt *p = &b->prompt[0];
    um_model *m = um_server_model(s);
    if (p->kind == UM_PROMPT_CHAT)
        return um_fail_about(err, um_model_render_chat(m, &b->chat, NULL, NULL, ids, n, err), "messages");
    return um_fail_about(
        err,
        um_model_encode_prompt(m, p->text.p, p->text.n, b->checked.special_in_content, b->special_tokens, ids, n, err),
        "prompt");
}

/* ---- Tokenize ---------------------------------------------------------------------------------------------------- */

static void put_strings(um_server *s, um_jw *w, const int32_t *ids, size_t n, bool wanted) {
    um_jw_key(w, "token_strs");
    if (!wanted) {
        um_jw_null(w);
        return;
    }
    um_jw_begin_array(w);
    for (size_t i = 0; i < n; i++) {
        size_t len = 0;
        const char *bytes = um_model_token_bytes(um_server_model(s), ids[i], &len);
        um_jw_str(w, bytes, len);
    }
    um_jw_end_array(w);
}

static void reply_tokens(um_server *s, um_exchange *x, const um_body *b, const int32_t *ids, size_t n) {
    um_buf body = {0};
    um_jw w;
    um_jw_init(&w, &body);
    um_jw_begin_object(&w);
    um_jw_put_ints(&w, "tokens", ids, n);
    um_jw_put_int(&w, "count", (int64_t)n);
    um_jw_put_int(&w, "max_model_len", um_body_max_len(s));
    put_strings(s, &w, ids, n, json_is_true(json_object_get(b->root, "return_token_strs")));
    um_jw_end_object(&w);
    um_reply_json(x, 200, &body);
    um_buf_free(&body);
}

static void post_tokenize(um_server *s, um_exchange *x, const char *id) {
    um_body b = {0};
    um_err err = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    (void)id;
    if (!read_body(s, x, true, &b)) return;
    if (encode(s, &b, &ids, &n, &err)) um_reply_err(x, &err);
    else reply_tokens(s, x, &b, ids, n);
    um_free(ids);
    um_body_free(&b);
}

/* ---- Detokenize, apply-template ---------------------------------------------------------------------------------- */

/* {"prompt": text} */
static void reply_text(um_exchange *x, const char *text, size_t n) {
    um_buf body = {0};
    um_jw w;
    um_jw_init(&w, &body);
    um_jw_begin_object(&w);
    um_jw_put_str(&w, "prompt", (um_str){text, n});
    um_jw_end_object(&w);
    um_reply_json(x, 200, &body);
    um_buf_free(&body);
}

static um_status read_ids(um_server *s, const json_t *root, int32_t *ids, um_err *err) {
    const json_t *tokens = json_object_get(root, "tokens");
    const char *key;
    json_t *value;
    um_model_info info;
    um_model_get_info(um_server_model(s), &info);
    json_object_foreach((json_t *)(uintptr_t)root, key, value) {
        if (um_streq(key, "tokens") || um_streq(key, "model")) continue;
        return um_fail_about(err, um_fail(err, UM_EINVAL, "unknown field \"%.80s\"", key), key);
    }
    if (!tokens) return um_fail_param(err, UM_EINVAL, "tokens", "it is missing");
    um_status st = um_json_take_ids(tokens, "\"tokens\"", ids, err);
    if (st) return um_fail_about(err, st, "tokens");
    for (size_t i = 0; i < json_array_size(tokens); i++)
        if (ids[i] < 0 || ids[i] >= info.vocab)
            return um_fail_param(err, UM_ERANGE, "tokens", "token %zu is %d, outside the vocabulary 0..%d", i, ids[i],
                                 info.vocab - 1);
    return UM_OK;
}

static void post_detokenize(um_server *s, um_exchange *x, const char *id) {
    json_t *root = um_read_object(x);
    um_err err = {0};
    char *text = NULL;
    size_t n_ids, n = 0;
    (void)id;
    if (!root) return;
    n_ids = json_array_size(json_object_get(root, "tokens"));
    int32_t *ids = UM_NEW_ARRAY(int32_t, n_ids + 1);
    um_status st = read_ids(s, root, ids, &err);
    if (!st) st = um_model_decode(um_server_model(s), ids, n_ids, true, &text, &n, &err);
    if (st) um_reply_err(x, &err);
    else reply_text(x, text, n);
    um_free(text);
    um_free(ids);
    json_decref(root);
}

static void post_template(um_server *s, um_exchange *x, const char *id) {
    um_body b = {0};
    um_err err = {0};
    char *text = NULL;
    size_t n = 0;
    (void)id;
    if (!read_body(s, x, false, &b)) return;
    um_status st = um_model_render_chat(um_server_model(s), &b.chat, &text, &n, NULL, NULL, &err);
    if (um_fail_about(&err, st, "messages")) um_reply_err(x, &err);
    else reply_text(x, text, n);
    um_free(text);
    um_body_free(&b);
}

/* ---- Endpoints --------------------------------------------------------------------------------------------------- */

static const um_endpoint endpoints[] = {
    {"POST", "/tokenize", post_tokenize, 0, "vLLM", "ids of a text or a conversation"},
    {"POST", "/detokenize", post_detokenize, 0, "vLLM", "text of ids, special tokens included"},
    {"POST", "/apply-template", post_template, 0, "llama.cpp", "the text that a conversation becomes"},
};
const um_endpoint_set um_tokens_endpoints = {endpoints, UM_LEN(endpoints)};
