/* Log-probabilities of an answer's tokens in the formats of OpenAI's two APIs. They come from the pass that wrote the
 * token, before temperature and sampling filters. */
#include "server/api/common.h"
#include "server/api/openai.h"

/* OpenAI's clients expect a number. This number stands for all smaller values, also for minus infinity. */
#define MIN_LOGPROB (-9999.0f)

static void put_logprob(um_jw *w, float v) { um_jw_float(w, v > MIN_LOGPROB ? v : MIN_LOGPROB); }

#define TOKEN_ID_MAX 32

/* Formats the name that a token has with return_tokens_as_token_ids. */
static const char *format_id(int32_t id, char out[TOKEN_ID_MAX]) {
    snprintf(out, TOKEN_ID_MAX, "token_id:%d", id);
    return out;
}

static um_str bytes_of(um_generation *g, int32_t id) {
    size_t n = 0;
    const char *p = um_model_token_bytes(um_generation_service(g)->setup.model, id, &n);
    return (um_str){p ? p : "", n};
}

/* ---- Chat -------------------------------------------------------------------------------------------------------- */

/* A token can be a part of a character. Its text is then U+FFFD, and only its bytes identify the token. */
static void put_token(um_generation *g, um_jw *w, int32_t id, float logprob) {
    um_str bytes = bytes_of(g, id);
    char name[TOKEN_ID_MAX];
    if (um_generation_body(g)->as_token_ids) um_jw_put_cstr(w, "token", format_id(id, name));
    else um_jw_put_str(w, "token", bytes);
    um_jw_key(w, "logprob");
    put_logprob(w, logprob);
    um_jw_put_bytes(w, "bytes", bytes);
}

static void put_likeliest(um_generation *g, const um_tokens *v, uint32_t i, um_jw *w) {
    size_t n = (size_t)v->n_likeliest;
    um_jw_begin_array(w);
    for (size_t k = i * n; k < (i + 1) * n && v->likeliest_id[k] >= 0; k++) {
        um_jw_begin_object(w);
        put_token(g, w, v->likeliest_id[k], v->likeliest[k]);
        um_jw_end_object(w);
    }
    um_jw_end_array(w);
}

void um_put_openai_tokens(um_generation *g, const um_tokens *v, um_jw *w) {
    um_jw_begin_array(w);
    for (uint32_t i = 0; i < v->n && v->logprob; i++) {
        um_jw_begin_object(w);
        put_token(g, w, v->id[i], v->logprob[i]);
        um_jw_key(w, "top_logprobs");
        put_likeliest(g, v, i, w);
        um_jw_end_object(w);
    }
    um_jw_end_array(w);
}

void um_put_chat_logprobs(um_generation *g, const um_choice *c, const um_tokens *v, um_jw *w) {
    (void)c;
    um_jw_begin_object(w);
    um_jw_key(w, "content");
    um_put_openai_tokens(g, v, w);
    um_jw_put_null(w, "refusal");
    um_jw_end_object(w);
}

/* ---- Completions ------------------------------------------------------------------------------------------------- */

/* Formats a token as a key. A token that is not valid UTF-8 becomes "bytes:\x..", so that keys stay distinct. `out`
 * ends with a NUL. */
static void format_token(um_generation *g, int32_t id, um_buf *out) {
    um_str bytes = bytes_of(g, id);
    char name[TOKEN_ID_MAX];
    um_buf_clear(out);
    if (um_generation_body(g)->as_token_ids) bytes = um_str_of(format_id(id, name));
    if (um_utf8_check(bytes.p, bytes.n) == bytes.n) {
        um_buf_append(out, bytes.p, bytes.n);
        um_buf_reserve(out, 1);
        return;
    }
    um_buf_puts(out, "bytes:");
    for (size_t i = 0; i < bytes.n; i++) um_buf_printf(out, "\\x%02x", (uint8_t)bytes.p[i]);
}

static void put_top(um_generation *g, const um_tokens *v, uint32_t i, um_buf *name, um_jw *w) {
    size_t n = (size_t)v->n_likeliest;
    um_jw_begin_object(w);
    for (size_t k = i * n; k < (i + 1) * n && v->likeliest_id[k] >= 0; k++) {
        format_token(g, v->likeliest_id[k], name);
        um_jw_key(w, name->len ? name->data : "");
        put_logprob(w, v->likeliest[k]);
    }
    um_jw_end_object(w);
}

/* Writes the offset of each token in the text, in characters. */
static void put_offsets(um_str text, const um_tokens *v, uint32_t n, um_jw *w) {
    size_t at = 0;
    int64_t characters = 0;
    um_jw_begin_array(w);
    for (uint32_t i = 0; i < n; i++) {
        size_t start = (size_t)(i ? v->text_end[i - 1] : v->text_start);
        for (; at < start && at < text.n; at++) characters += ((uint8_t)text.p[at] & 0xC0) != 0x80;
        um_jw_int(w, characters);
    }
    um_jw_end_array(w);
}

void um_put_completion_logprobs(um_generation *g, const um_choice *c, const um_tokens *v, um_jw *w) {
    um_buf name = {0};
    uint32_t n = v->logprob ? v->n : 0;
    um_jw_begin_object(w);
    um_jw_key(w, "tokens");
    um_jw_begin_array(w);
    for (uint32_t i = 0; i < n; i++) {
        format_token(g, v->id[i], &name);
        um_jw_str(w, name.data, name.len);
    }
    um_jw_end_array(w);
    um_jw_key(w, "token_logprobs");
    um_jw_begin_array(w);
    for (uint32_t i = 0; i < n; i++) put_logprob(w, v->logprob[i]);
    um_jw_end_array(w);
    um_jw_key(w, "top_logprobs");
    if (v->n_likeliest > 0) {
        um_jw_begin_array(w);
        for (uint32_t i = 0; i < n; i++) put_top(g, v, i, &name, w);
        um_jw_end_array(w);
    } else {
        um_jw_null(w);
    }
    um_jw_key(w, "text_offset");
    put_offsets(um_choice_text(c), v, n, w);
    um_jw_end_object(w);
    um_buf_free(&name);
}
