/* Converts the messages of a request to the form that templates expect. */
#include "text/chat.h"

static const struct {
    const char *given, *becomes; /* `developer` stays if the template handles it */
} roles[] = {
    {"system", "system"},       {"developer", "system"}, {"user", "user"},
    {"assistant", "assistant"}, {"tool", "tool"},        {"function", "tool"},
};

static um_status fail(um_err *err, size_t i, const char *what) {
    return um_fail(err, UM_EINVAL, "message %zu: %s", i, what);
}

static json_t *string_of(um_str s) { return json_stringn(s.p ? s.p : "", s.n); }

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static um_status read_array(const char *text, const char *what, json_t **out, um_err *err) {
    um_status st = um_json_parse_exact(out, text, strlen(text), what, err);
    if (st || json_is_array(*out)) return um_fail_about(err, st, what);
    json_decref(*out);
    *out = NULL;
    return um_fail_param(err, UM_EINVAL, what, "expected a JSON array");
}

static um_status read_simple(const um_chat_request *q, json_t **out, um_err *err) {
    json_t *list = json_array();
    *out = NULL;
    for (size_t i = 0; i < q->n_messages; i++) {
        um_str text = um_str_of(q->messages[i].content ? q->messages[i].content : "");
        size_t good = um_utf8_check(text.p, text.n);
        json_t *role = q->messages[i].role ? json_string(q->messages[i].role) : NULL; /* NULL: not UTF-8 */
        if (good < text.n || !role) {
            json_decref(role);
            json_decref(list);
            if (!role) return fail(err, i, "there is no valid role");
            return um_fail(err, UM_EINVAL, "message %zu is not valid UTF-8 at byte %zu", i, good);
        }
        json_t *m = json_object();
        json_object_set_new(m, "role", role);
        json_object_set_new(m, "content", string_of(text));
        json_array_append_new(list, m);
    }
    *out = list;
    return UM_OK;
}

um_status um_chat_tools(const char *text, json_t **out, um_err *err) {
    *out = NULL;
    if (!text || um_streq(text, "null")) return UM_OK;
    um_status st = read_array(text, "tools", out, err);
    if (!st && json_array_size(*out) == 0) {
        json_decref(*out);
        *out = NULL;
    }
    return st;
}

um_status um_chat_kwargs(const char *text, json_t **out, um_err *err) {
    static const char *const fixed[] = {"messages", "tools"};
    *out = NULL;
    if (!text || um_streq(text, "null")) return UM_OK;
    um_status st = um_json_parse_exact(out, text, strlen(text), "chat_template_kwargs", err);
    if (!st && !json_is_object(*out))
        st = um_fail_param(err, UM_EINVAL, "chat_template_kwargs", "expected a JSON object of variables");
    for (size_t i = 0; i < UM_LEN(fixed) && !st; i++)
        if (json_object_get(*out, fixed[i]))
            st = um_fail_param(err, UM_EINVAL, "chat_template_kwargs", "\"%s\" has a place of its own in the request",
                               fixed[i]);
    if (st) {
        json_decref(*out);
        *out = NULL;
    }
    return st;
}

/* ---- Role and content -------------------------------------------------------------------------------------------- */

static um_status set_role(json_t *m, size_t i, bool developer, um_err *err) {
    const char *role = json_string_value(json_object_get(m, "role"));
    size_t k = 0;
    if (!role) return fail(err, i, "there is no \"role\"");
    while (k < UM_LEN(roles) && !um_streq(role, roles[k].given)) k++;
    if (k == UM_LEN(roles))
        return um_fail(err, UM_EINVAL,
                       "message %zu: role \"%.40s\", expected system, developer, user, assistant or tool", i, role);
    bool keep = developer && um_streq(role, "developer");
    if (!keep) json_object_set_new(m, "role", json_string(roles[k].becomes));
    return UM_OK;
}

/* Reads the text of part k of the content of message i. */
static um_status part_text(const json_t *part, size_t i, size_t k, um_str *text, um_err *err) {
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *value = json_object_get(part, "text");
    if (type && !um_streq(type, "text"))
        return um_fail(err, UM_EINVAL, "message %zu: part %zu is \"%.40s\", and this model reads text only", i, k,
                       type);
    if (!type || !json_is_string(value))
        return um_fail(err, UM_EINVAL, "message %zu: part %zu: expected {\"type\": \"text\", \"text\": \"…\"}", i, k);
    *text = (um_str){json_string_value(value), json_string_length(value)};
    return UM_OK;
}

static um_status set_content(json_t *m, size_t i, bool reads_parts, um_err *err) {
    json_t *content = json_object_get(m, "content"), *part;
    um_buf joined = {0};
    um_str text = {NULL, 0};
    um_status st = UM_OK;
    size_t k;
    if (!content || json_is_null(content)) json_object_set_new(m, "content", json_string(""));
    if (!content || json_is_null(content) || json_is_string(content)) return UM_OK;
    if (!json_is_array(content)) return fail(err, i, "\"content\": expected a string, a list of parts or null");
    json_array_foreach(content, k, part) {
        if ((st = part_text(part, i, k, &text, err))) break;
        um_buf_append(&joined, text.p, text.n);
    }
    if (!st && !reads_parts) json_object_set_new(m, "content", string_of((um_str){joined.data, joined.len}));
    um_buf_free(&joined);
    return st;
}

/* ---- Reasoning and tool calls ------------------------------------------------------------------------------------ */

static void set_reasoning(json_t *m) {
    json_t *a = json_object_get(m, "reasoning"), *b = json_object_get(m, "reasoning_content");
    if (a && !b) json_object_set(m, "reasoning_content", a);
    if (b && !a) json_object_set(m, "reasoning", b);
}

/* Parses the arguments of a call, which arrive as JSON in a string, so that templates can format the object. A blank
 * string becomes an empty object. Any other string that is not a JSON object stays unchanged. */
static void open_arguments(json_t *function) {
    json_t *given = json_object_get(function, "arguments"), *object;
    um_err err;
    if (!json_is_string(given)) return;
    if (um_strip((um_str){json_string_value(given), json_string_length(given)}, NULL, true, true).n == 0) {
        json_object_set_new(function, "arguments", json_object());
        return;
    }
    if (um_json_parse_exact(&object, json_string_value(given), json_string_length(given), "arguments", &err)) return;
    if (json_is_object(object)) json_object_set(function, "arguments", object);
    json_decref(object);
}

static um_status open_calls(json_t *m, size_t i, um_err *err) {
    json_t *calls = json_object_get(m, "tool_calls"), *call;
    size_t k;
    if (!calls || json_is_null(calls)) return UM_OK;
    if (!json_is_array(calls)) return fail(err, i, "\"tool_calls\": expected a list");
    json_array_foreach(calls, k, call) {
        json_t *function = json_object_get(call, "function");
        if (!json_is_object(call)) return fail(err, i, "\"tool_calls\": expected a list of objects");
        open_arguments(json_is_object(function) ? function : call);
    }
    return UM_OK;
}

um_status um_chat_messages(const um_chat_request *q, bool developer, bool reads_parts, json_t **out, um_err *err) {
    json_t *m;
    size_t i;
    um_status st = q->messages_json ? read_array(q->messages_json, "messages", out, err) : read_simple(q, out, err);
    if (!st && json_array_size(*out) == 0) st = um_fail(err, UM_EINVAL, "a conversation needs at least one message");
    if (!st) {
        json_array_foreach(*out, i, m) {
            st = json_is_object(m) ? set_role(m, i, developer, err) : fail(err, i, "expected an object");
            if (!st) st = set_content(m, i, reads_parts, err);
            if (!st) st = open_calls(m, i, err);
            if (st) break;
            set_reasoning(m);
        }
    }
    if (st) {
        json_decref(*out);
        *out = NULL;
    }
    return st;
}

/* ---- The mark of a message to be continued ----------------------------------------------------------------------- */

static void append(json_t *o, const char *key, um_str mark) {
    const json_t *old = json_object_get(o, key);
    um_buf text = {0};
    um_buf_append(&text, json_string_value(old), json_string_length(old));
    um_buf_append(&text, mark.p, mark.n);
    json_object_set_new(o, key, string_of((um_str){text.data, text.len}));
    um_buf_free(&text);
}

um_status um_chat_mark_last(json_t *messages, um_str mark, um_err *err) {
    json_t *last = json_array_get(messages, json_array_size(messages) - 1), *content = json_object_get(last, "content");
    if (!um_streq(json_string_value(json_object_get(last, "role")), "assistant"))
        return um_fail_param(err, UM_EINVAL, "continue_final_message", "the last message must be the assistant's");
    if (json_is_string(content)) append(last, "content", mark);
    else if (json_array_size(content)) append(json_array_get(content, json_array_size(content) - 1), "text", mark);
    else return um_fail_param(err, UM_EINVAL, "continue_final_message", "the last message has no text");
    return UM_OK;
}
