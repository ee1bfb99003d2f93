/* Parses request lines: {"id": …, "prompt" | "prompt_token_ids" | "messages": …, parameters by their option names}.
 * Uses the tables of the server's request bodies. */
#include "cli/requests.h"

#include <jansson.h>

#define CHAT_FILE_MAX ((size_t)64 << 20)

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

um_status um_line_object(json_t **root, um_str line, um_err *err) {
    um_status st = um_json_parse_request(root, line.p, line.n, "the line", err);
    if (st || json_is_object(*root)) return st;
    st = um_fail(err, UM_EPARSE, "expected a JSON object, found %s", um_json_kind(*root));
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
    else return um_fail(err, UM_EINVAL, "\"id\": expected a string or an integer, found %s", um_json_kind(id));
    return UM_OK;
}

um_status um_line_id_or_number(const json_t *root, int64_t number, um_buf *out, um_err *err) {
    const json_t *id = json_object_get(root, "id");
    if (id && !json_is_null(id)) return um_line_id(root, out, err);
    um_buf_clear(out);
    um_buf_printf(out, "%lld", (long long)number);
    return UM_OK;
}

um_status um_line_text(const json_t *root, const char *key, const char **out, um_err *err) {
    char what[64];
    snprintf(what, sizeof what, "\"%s\"", key);
    return um_json_take_text(json_object_get(root, key), what, out, err);
}

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

um_status um_chat_file(const char *flag, const char *path, um_buf *out, um_err *err) {
    um_err why;
    if (um_file_read_text(path, CHAT_FILE_MAX, out, &why)) return um_fail(err, UM_EINVAL, "%s: %s", flag, why.msg);
    if (strlen(out->data) == out->len) return UM_OK;
    return um_fail(err, UM_EINVAL, "%s: %s has a zero byte, which JSON does not allow", flag, path);
}

static um_status take_prompt(um_body *b, const json_t *v, um_err *err) {
    if (!json_is_string(v)) return um_fail(err, UM_EINVAL, "\"prompt\": expected a string, found %s", um_json_kind(v));
    return um_body_take_prompt(b, v, err);
}

static um_status take_ids(um_body *b, const json_t *v, um_err *err) {
    um_prompt *p = um_body_prompts(b, 1, err);
    if (!p) return UM_EINVAL;
    *p = (um_prompt){.kind = UM_PROMPT_IDS, .n_ids = json_array_size(v)};
    p->ids = um_arena_alloc(&b->arena, um_mul(p->n_ids + 1, sizeof *p->ids));
    return um_json_take_ids(v, "\"prompt_token_ids\"", p->ids, err);
}

/* "logprobs" is a number, or, as in chat requests, a bool next to the number "top_logprobs". The two may come in any
 * order. */
static um_status take_logprobs(um_body *b, const json_t *v, um_err *err) {
    if (!json_is_boolean(v)) return um_body_set_json(b, "logprobs", "logprobs", v, err);
    if (json_is_true(v)) return b->checked.sampling.logprobs < 0 ? um_body_set(b, "logprobs", "0", err) : UM_OK;
    if (um_body_has(b, "top_logprobs"))
        return um_fail(err, UM_EINVAL, "\"logprobs\" is false, but \"top_logprobs\" is set");
    return um_body_set(b, "logprobs", "off", err);
}

/* The caller has read the id with um_line_id. */
static um_status take_id(um_body *b, const json_t *v, um_err *err) { return (void)b, (void)v, (void)err, UM_OK; }

/* Fields of a line that requests to the server don't have, or have in another form. */
static const um_field rows[] = {
    {.name = "id", .take = take_id},
    {.name = "prompt", .take = take_prompt},
    {.name = "prompt_token_ids", .take = take_ids},
    {.name = "logprobs", .take = take_logprobs},
};
static const um_field_set line_fields = {rows, UM_LEN(rows)};

/* ---- The request ------------------------------------------------------------------------------------------------- */

static void copy_prompt(um_request_line *q) {
    um_request *r = &q->request;
    const um_prompt *p = q->body.prompt;
    if (p->kind == UM_PROMPT_CHAT) {
        r->chat = &q->body.chat;
    } else if (p->kind == UM_PROMPT_IDS) {
        r->ids = p->ids;
        r->n_ids = p->n_ids;
    } else if (q->has_template && !q->raw) {
        q->message = (um_message){"user", p->text.p};
        r->messages = &q->message;
        r->n_messages = 1;
    } else {
        r->text = p->text.p;
        r->text_len = p->text.n;
    }
}

/* A message ends at its first zero byte. */
static um_status check_prompt(const um_request_line *q, um_err *err) {
    const um_prompt *p = q->body.prompt;
    if (p->kind != UM_PROMPT_TEXT || !q->has_template || q->raw || strlen(p->text.p) == p->text.n) return UM_OK;
    return um_fail(err, UM_EINVAL, "\"prompt\" has U+0000 at byte %zu, which chat templates don't support; use --raw",
                   strlen(p->text.p));
}

/* Copies the fields of the line. The other fields of the request keep their defaults. */
static void copy_request(um_request_line *q) {
    um_request *r = &q->request;
    um_body *b = &q->body;
    const um_msg_generate *g = &b->generate;
    r->decoding = b->checked.decoding;
    r->sampling = b->checked.sampling;
    copy_prompt(q);
    um_body_copy_lists(b, g, r);
    if (b->constraint_field) {
        r->constraint = g->constraint;
        r->constraint_text = g->constraint_text.p;
    }
    if (um_body_has(b, "n")) r->n = g->n;
    if (um_body_has(b, "priority")) r->priority = g->priority;
    if (um_body_has(b, "cache_salt")) r->cache_salt = g->cache_salt;
    if (um_body_has(b, "skip_special_tokens")) r->keep_special = g->keep_special;
    if (um_body_has(b, "adapter") || um_body_has(b, "lora")) r->adapter = g->adapter.n ? g->adapter.p : NULL;
    if (um_body_has(b, "return_step_map")) q->step_map = b->return_step_map;
    if (um_body_has(b, "return_timings")) q->timings = b->return_timings;
}

/* ---- The line ---------------------------------------------------------------------------------------------------- */

um_status um_request_line_parse(um_request_line *q, um_str line, const um_request *defaults, um_err *err) {
    static const um_field_set *const sets[] = {&line_fields, &um_chat_fields, &um_generation_fields, NULL};
    json_t *root = NULL;
    um_body_free(&q->body);
    um_buf_clear(&q->id);
    q->request = *defaults;
    um_status st = um_line_object(&root, line, err);
    if (st) return st;
    st = um_line_id_or_number(root, q->number, &q->id, err);
    if (st) {
        json_decref(root);
        return st;
    }
    st = um_body_read_offline(&q->body, root, sets, defaults, err);
    if (!st && !q->body.n_prompts)
        st = um_fail(err, UM_EINVAL, "expected one of \"prompt\", \"prompt_token_ids\" and \"messages\", found none");
    if (!st && q->body.tool_choice > UM_TOOLS_NONE)
        st = um_fail(err, UM_EINVAL, "\"tool_choice\": expected \"auto\" or \"none\"; forced calls are not supported");
    if (!st) st = check_prompt(q, err);
    if (!st) st = um_body_check_constraint(&q->body, err);
    if (!st) copy_request(q);
    return st;
}

void um_request_line_free(um_request_line *q) {
    um_body_free(&q->body);
    um_buf_free(&q->id);
}
