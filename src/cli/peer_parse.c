/* Parses responses and events of servers, which are not trusted: members of the wrong type count as missing. */
#include <jansson.h>

#include "cli/peer.h"

static um_str text_of(const json_t *v) {
    return (um_str){json_is_string(v) ? json_string_value(v) : "", json_string_length(v)};
}

/* Returns a count, limited to 0..INT32_MAX, so that sums over many requests can't overflow. */
static int32_t count_of(const json_t *obj, const char *key) {
    const json_t *v = json_object_get(obj, key);
    return json_is_integer(v) ? (int32_t)UM_MIN(UM_MAX(json_integer_value(v), 0), INT32_MAX) : 0;
}

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

static um_status code_of(int status) {
    if (status == 404) return UM_ENOENT;
    return status >= 500 || status == 429 ? UM_EIO : UM_EINVAL;
}

/* Reads an error object with "message", "param" and "code", or an error that is a string. */
static void read_error(um_peer_message *out, int status, const json_t *error) {
    const char *message = json_string_value(json_object_get(error, "message"));
    const char *param = json_string_value(json_object_get(error, "param"));
    const char *code = json_string_value(json_object_get(error, "code"));
    if (!message) message = json_is_string(error) ? json_string_value(error) : "no reason given";
    bool names_param = !param || strstr(message, param) != NULL;
    out->kind = UM_PEER_ERROR;
    um_fail(&out->err, code_of(status), "the server refuses%s%s: %s", names_param ? "" : " ", names_param ? "" : param,
            message);
    if (status == 401 || status == 403)
        um_fail(&out->err, UM_EINVAL, "the server refuses: %.300s; set a key with --api-key or UNMASK_API_KEY",
                message);
    if (param) snprintf(out->err.param, sizeof out->err.param, "%s", param);
    out->is_refusal = true;
    out->is_too_long = um_streq(code, "context_length_exceeded");
}

static void read_other_text(um_peer_message *out, int status, um_str data) {
    um_buf shown = {0};
    um_cli_put_safe(&shown, data.p, UM_MIN(data.n, (size_t)80));
    const char *text = shown.len ? shown.data : "";
    out->kind = UM_PEER_ERROR;
    out->is_refusal = status != 200;
    if (status == 200) um_fail(&out->err, UM_EIO, "the server's response is not JSON: \"%s\"", text);
    else um_fail(&out->err, code_of(status), "the server refuses with status %d: \"%s\"", status, text);
    um_buf_free(&shown);
}

/* ---- Usage ------------------------------------------------------------------------------------------------------- */

static void read_usage(um_peer_usage *u, const json_t *v) {
    if (!json_is_object(v)) return;
    u->is_given = true;
    u->prompt_tokens = count_of(v, "prompt_tokens");
    u->completion_tokens = count_of(v, "completion_tokens");
    u->cached_tokens = count_of(json_object_get(v, "prompt_tokens_details"), "cached_tokens");
    u->nfe = count_of(v, "nfe");
}

/* ---- Finish reasons ---------------------------------------------------------------------------------------------- */

/* Converts a finish reason of OpenAI's API, or one of the engine's own. */
static um_finish finish_of(const char *word) {
    static const struct {
        const char *word;
        um_finish is;
    } words[] = {{"stop", UM_FINISH_EOS},
                 {"length", UM_FINISH_MAX_TOKENS},
                 {"abort", UM_FINISH_ABORTED},
                 {"tool_calls", UM_FINISH_EOS},
                 {"error", UM_FINISH_NO_PREDICTION}};
    for (size_t i = 0; i < UM_LEN(words); i++)
        if (um_streq(word, words[i].word)) return words[i].is;
    for (int f = UM_FINISH_NONE; f <= UM_FINISH_SAMPLER; f++)
        if (um_streq(word, um_finish_name((um_finish)f))) return (um_finish)f;
    return UM_FINISH_STEPS;
}

static void read_end(um_peer_message *out, const json_t *v) {
    const json_t *reason = json_object_get(v, "finish_reason"), *stop = json_object_get(v, "stop_reason");
    const json_t *seed = json_object_get(v, "seed"), *exact = json_object_get(v, "completion_reason");
    if (json_is_object(reason)) reason = json_object_get(reason, "type"); /* the form of SGLang */
    if (json_is_integer(seed)) out->seed = json_integer_value(seed);
    if (!json_is_string(reason)) return;
    out->finish = json_string_value(reason);
    out->finish_as = finish_of(out->finish);
    if (json_is_string(exact) && out->finish_as == UM_FINISH_NO_PREDICTION)
        out->finish_as = finish_of(json_string_value(exact));
    if (out->finish_as == UM_FINISH_EOS && json_is_string(stop)) out->finish_as = UM_FINISH_STOP;
    if (out->finish_as == UM_FINISH_EOS && json_is_integer(stop)) out->finish_as = UM_FINISH_STOP_ID;
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

/* Reads a choice. It has "delta" in a chunk, "message" in a complete response, and "text" in the completions API. */
static void read_choice(um_peer_message *out, const json_t *choice) {
    const json_t *delta = json_object_get(choice, "delta"), *message = json_object_get(choice, "message");
    const json_t *from = message ? message : delta;
    out->text = text_of(json_object_get(from ? from : choice, from ? "content" : "text"));
    out->reasoning = text_of(json_object_get(from, "reasoning_content"));
    out->ids = json_object_get(choice, "token_ids");
    if (out->text.n || out->reasoning.n) out->kind = UM_PEER_TEXT;
    read_end(out, choice);
}

/* Reads events of denoising streams, and events and responses of /generate. */
static void read_native(um_peer_message *out) {
    const char *event = json_string_value(json_object_get(out->root, "event"));
    const json_t *meta = json_object_get(out->root, "meta_info");
    out->text = text_of(json_object_get(out->root, "text"));
    out->ids = json_object_get(out->root, "token_ids");
    out->n_settled = count_of(out->root, "stable_len");
    if (um_streq(event, "error")) read_error(out, 500, out->root);
    else if (um_streq(event, "buffer_snapshot")) out->kind = UM_PEER_SNAPSHOT;
    else if (um_streq(event, "append")) out->kind = UM_PEER_TEXT;
    else if (json_is_string(json_object_get(out->root, "text"))) out->kind = UM_PEER_WHOLE;
    if (out->kind == UM_PEER_WHOLE) read_end(out, json_is_object(meta) ? meta : out->root);
}

static void read_object(um_peer_message *out, int status) {
    const json_t *error = json_object_get(out->root, "error"), *choices = json_object_get(out->root, "choices");
    const json_t *nfe = json_object_get(out->root, "nfe");
    if (status != 200 || (error && !json_is_null(error))) {
        read_error(out, status == 200 ? 500 : status,
                   json_is_object(error) || json_is_string(error) ? error : out->root);
        return;
    }
    read_usage(&out->usage, json_object_get(out->root, "usage"));
    if (json_is_integer(nfe) && !out->usage.nfe) out->usage.nfe = count_of(out->root, "nfe");
    if (json_array_size(choices)) read_choice(out, json_array_get(choices, 0));
    else if (!choices) read_native(out);
}

void um_peer_read(um_peer_message *out, int status, um_str data) {
    *out = (um_peer_message){.kind = UM_PEER_NOTHING, .seed = -1};
    if (status == 200 && data.n == 6 && memcmp(data.p, "[DONE]", 6) == 0) {
        out->kind = UM_PEER_DONE;
        return;
    }
    if (um_json_parse(&out->root, data.p, data.n, "the answer", NULL)) out->root = NULL;
    if (json_is_object(out->root)) read_object(out, status);
    else read_other_text(out, status, data);
}

void um_peer_message_free(um_peer_message *s) {
    json_decref(s->root);
    s->root = NULL;
}

/* ---- Snapshots --------------------------------------------------------------------------------------------------- */

/* Marks special tokens. The server sends a character that spans several tokens with the last of them, and "" for the
 * others. An empty text is a special token if no text follows it before the next mask or the end. */
static void mark_special(um_piece *piece, size_t n) {
    bool text_follows = false;
    for (size_t i = n; i > 0; i--) {
        um_piece *p = &piece[i - 1];
        if (p->state == UM_TOKEN_MASK) text_follows = false;
        else if (p->text.n) text_follows = true;
        else p->is_special = !text_follows;
    }
}

const um_frame *um_peer_frame_read(um_peer_frame *f, const um_peer_message *s) {
    const json_t *tokens = json_object_get(s->root, "tokens"), *pass = json_object_get(s->root, "pass");
    size_t n = json_array_size(tokens), stable = UM_MIN((size_t)count_of(s->root, "stable_len"), n);
    um_buf_clear(&f->settled);
    for (size_t i = 0; i < stable; i++) {
        um_str text = text_of(json_array_get(tokens, i));
        um_buf_append(&f->settled, text.p, text.n);
    }
    if (n > f->cap) {
        f->cap = 2 * n;
        f->piece = um_realloc(f->piece, um_mul(f->cap, sizeof *f->piece));
    }
    for (size_t i = stable; i < n; i++) {
        int64_t by = json_integer_value(json_array_get(pass, i));
        int state = by < 1 ? UM_TOKEN_MASK : by == s->usage.nfe ? UM_TOKEN_FRESH : UM_TOKEN_SET;
        f->piece[i - stable] = (um_piece){state, false, text_of(json_array_get(tokens, i))};
    }
    mark_special(f->piece, n - stable);
    f->frame = (um_frame){{f->settled.data ? f->settled.data : "", f->settled.len}, f->piece, n - stable};
    return &f->frame;
}

void um_peer_frame_free(um_peer_frame *f) {
    um_buf_free(&f->settled);
    um_free(f->piece);
    *f = (um_peer_frame){0};
}
