/* Which strings of a conversation are protected, and from what. System messages and tools come from the application
 * and are trusted; the assistant's carry the model's own marks; the mask is nobody's to write. */
#include "text/chat.h"

typedef struct protection {
    const um_tok *tok;
    uint32_t guard;
    um_guard_what what;
    bool reject;
    size_t message; /* its number and role, for messages */
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

/* Appends the protected text; where it is rejected instead, the text as it is. */
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

/* The object anew, because keys are protected as well. */
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

/* Texts that a template puts side by side; other strings it compares, so there only what spells a token is changed. */
static bool is_text(const char *key) { return um_streq(key, "content") || um_streq(key, "text"); }

/* *value, which stands under `key`, is the caller's reference and may be replaced. */
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
        p.role = kept; /* the object that holds it is made anew */
        st = protect(&p, "", &m, err);
        json_array_set_new(messages, i, m);
    }
    return st;
}
