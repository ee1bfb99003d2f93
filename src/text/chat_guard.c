/* Decides which strings of a conversation are protected, and against which tokens. System messages and tool definitions
 * come from the application and are trusted; the level strict still protects system messages. The assistant's messages
 * contain the model's own special tokens. No message may spell the mask token. The level parse protects nothing. */
#include "text/chat.h"

typedef struct protection {
    const um_tok *tok;
    uint32_t guard;
    um_guard_what what;
    bool reject;
    size_t message; /* the message's index and role, for errors */
    const char *role;
} protection;

uint32_t um_chat_guards_in(const json_t *v) {
    uint32_t used = 0;
    const char *key;
    json_t *item;
    size_t i;
    if (json_is_string(v)) return um_guards_in((um_str){json_string_value(v), json_string_length(v)});
    json_object_foreach((json_t *)v, key, item) used |= um_guards_in(um_str_of(key)) | um_chat_guards_in(item);
    json_array_foreach(v, i, item) used |= um_chat_guards_in(item);
    return used;
}

/* Appends s with its guards. With `reject`, appends s unchanged and fails if s spells a protected token. */
static um_status protect_text(const protection *p, um_str s, bool borders, um_buf *out, um_err *err) {
    um_str token;
    if (!p->reject) return um_guard_text(p->tok, s, p->guard, p->what, borders, out, err);
    um_status st = um_guard_find(p->tok, s, p->what, &token, err);
    um_buf_append(out, s.p, s.n);
    if (st || !token.p) return st;
    return um_fail(err, UM_EINVAL,
                   "message %zu (%s) spells the token \"%.*s\", which the level reject does not let pass", p->message,
                   p->role, (int)UM_MIN(token.n, 60), token.p);
}

static um_status protect(const protection *p, const char *key, json_t **value, um_err *err);

/* Replaces *value by a new object, because the keys are protected too. */
static um_status protect_object(const protection *p, json_t **value, um_err *err) {
    json_t *fresh = json_object(), *item;
    const char *key;
    um_status st = UM_OK;
    json_object_foreach(*value, key, item) {
        um_buf name = {0};
        json_incref(item);
        st = protect_text(p, um_str_of(key), false, &name, err);
        if (!st) st = protect(p, key, &item, err);
        json_object_set_new(fresh, name.data ? name.data : "", item);
        um_buf_free(&name);
        if (st) break;
    }
    json_decref(*value);
    *value = fresh;
    return st;
}

static um_status protect_array(const protection *p, json_t *list, um_err *err) {
    um_status st = UM_OK;
    for (size_t i = 0; i < json_array_size(list) && !st; i++) {
        json_t *item = json_incref(json_array_get(list, i));
        st = protect(p, "", &item, err);
        json_array_set_new(list, i, item);
    }
    return st;
}

/* Returns true for the strings that a template concatenates with other text. A template compares other strings, so
 * those only get guards inside a spelled token. */
static bool is_text(const char *key) { return um_streq(key, "content") || um_streq(key, "text"); }

/* Protects *value, the member `key` of an object. The caller owns the reference *value, which may be replaced. */
static um_status protect(const protection *p, const char *key, json_t **value, um_err *err) {
    if (json_is_object(*value)) return protect_object(p, value, err);
    if (json_is_array(*value)) return protect_array(p, *value, err);
    if (!json_is_string(*value)) return UM_OK;
    um_buf text = {0};
    um_str s = {json_string_value(*value), json_string_length(*value)};
    um_status st = protect_text(p, s, is_text(key), &text, err);
    json_decref(*value);
    *value = json_stringn(text.data ? text.data : "", text.len);
    um_buf_free(&text);
    return st;
}

static um_guard_what what_of(int level, const char *role) {
    bool strict = level == UM_SPECIAL_STRICT;
    if (um_streq(role, "user") || um_streq(role, "tool")) return strict ? UM_GUARD_ADDED : UM_GUARD_SPECIAL;
    return strict && !um_streq(role, "assistant") ? UM_GUARD_ADDED : UM_GUARD_MASK;
}

um_status um_chat_protect(const um_tok *t, json_t *messages, int level, uint32_t guard, um_err *err) {
    um_status st = UM_OK;
    if (level == UM_SPECIAL_PARSE) return UM_OK;
    for (size_t i = 0; i < json_array_size(messages) && !st; i++) {
        json_t *m = json_incref(json_array_get(messages, i));
        const char *role = json_string_value(json_object_get(m, "role"));
        protection p = {t, guard, what_of(level, role), level == UM_SPECIAL_REJECT, i, role};
        char kept[16];
        snprintf(kept, sizeof kept, "%s", role);
        p.role = kept; /* protect() frees the object that owns the string */
        st = protect(&p, "", &m, err);
        json_array_set_new(messages, i, m);
    }
    return st;
}
