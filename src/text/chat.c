/* Conversations: finds a folder's chat template, fills in its variables, renders and encodes. */
#include "text/guard.h"

#define TEMPLATE_FILE_MAX ((size_t)1 << 20)

struct um_chat {
    um_template *tmpl; /* NULL: it did not compile, see error */
    um_err error;
    const um_tok *tok;
    json_t *base;         /* variables that every conversation has */
    bool knows_developer; /* the template treats the role "developer" itself */
};

/* ---- Finding the source ------------------------------------------------------------------------------------------ */

/* A template is a string, or a list of {name, template}: then the one named "default", or the only one. */
static const json_t *pick_template(const json_t *value) {
    const json_t *item;
    size_t i;
    if (json_is_string(value)) return value;
    json_array_foreach(value, i, item) {
        if (um_streq(json_string_value(json_object_get(item, "name")), "default"))
            return json_object_get(item, "template");
    }
    return json_array_size(value) == 1 ? json_object_get(json_array_get(value, 0), "template") : NULL;
}

static void take_source(const json_t *json, um_buf *out) {
    const json_t *t = pick_template(json_object_get(json, "chat_template"));
    if (json_is_string(t)) um_buf_append(out, json_string_value(t), json_string_length(t));
}

static um_status source_of_json(const char *dir, const char *name, um_buf *out, bool *found, um_err *err) {
    json_t *json;
    char *path = um_path_join(dir, name);
    um_status st = um_tok_config_load(&json, path, err);
    size_t before = out->len;
    if (!st && json) take_source(json, out);
    *found = out->len > before;
    json_decref(json);
    um_free(path);
    return st;
}

static um_status find_source(const char *dir, um_buf *out, bool *found, um_err *err) {
    char *path = um_path_join(dir, "chat_template.jinja");
    um_status st = UM_OK;
    *found = um_file_exists(path);
    if (*found) st = um_file_read(path, TEMPLATE_FILE_MAX, out, err);
    um_free(path);
    if (!st && !*found) st = source_of_json(dir, "chat_template.json", out, found, err);
    if (!st && !*found) st = source_of_json(dir, "tokenizer_config.json", out, found, err);
    return st;
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

/* A special token that is not set stays undefined, as templates expect; tools and documents are none. */
static json_t *base_variables(const um_tok *t) {
    json_t *vars = json_object();
    for (size_t i = 0; i < t->n_named; i++)
        json_object_set_new(vars, t->named[i].name, json_stringn(t->named[i].text.p, t->named[i].text.n));
    if (t->extra_special) json_object_set(vars, "additional_special_tokens", t->extra_special);
    json_object_set_new(vars, "tools", json_null());
    json_object_set_new(vars, "documents", json_null());
    return vars;
}

um_status um_chat_open(um_chat **out, const char *dir, const um_tok *t, um_err *err) {
    um_buf source = {0};
    bool found;
    *out = NULL;
    um_status st = find_source(dir, &source, &found, err);
    if (!st && found) {
        um_chat *c = UM_NEW(um_chat);
        um_str text = {source.data ? source.data : "", source.len};
        c->tok = t;
        c->base = base_variables(t);
        c->knows_developer = text.n && memmem(text.p, text.n, "developer", 9);
        if (um_template_new(&c->tmpl, text, &c->error)) /* the model is still good for plain prompts */
            um_warn("%s: %s; chat is not possible with this model", dir, c->error.msg);
        *out = c;
    }
    um_buf_free(&source);
    return st;
}

void um_chat_close(um_chat *c) {
    if (!c) return;
    um_template_free(c->tmpl);
    json_decref(c->base);
    um_free(c);
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

static const char *role_of(const um_chat *c, const char *role) {
    if (um_streq(role, "function")) return "tool";
    return um_streq(role, "developer") && !c->knows_developer ? "system" : role;
}

static um_status check_messages(const um_message *msg, size_t n, um_err *err) {
    if (n == 0) return um_fail(err, UM_EINVAL, "a conversation needs at least one message");
    for (size_t i = 0; i < n; i++) {
        um_str role = um_str_of(msg[i].role ? msg[i].role : ""), text = um_str_of(msg[i].content ? msg[i].content : "");
        if (role.n == 0 || um_utf8_check(role.p, role.n) < role.n)
            return um_fail(err, UM_EINVAL, "message %zu has no valid role", i);
        size_t good = um_utf8_check(text.p, text.n);
        if (good < text.n) return um_fail(err, UM_EINVAL, "message %zu is not valid UTF-8 at byte %zu", i, good);
    }
    return UM_OK;
}

/* Which tokens a message must not spell: users and tools none of the special ones, nobody the mask. */
static um_status guarded_content(const um_chat *c, const char *role, um_str text, uint32_t guard, um_buf *out,
                                 um_err *err) {
    bool all = um_streq(role, "user") || um_streq(role, "tool");
    int32_t mask = um_tok_special_id(c->tok, "mask_token");
    if (guard && (all || mask >= 0)) return um_guard_text(c->tok, text, guard, all ? -1 : mask, out, err);
    um_buf_append(out, text.p, text.n);
    return UM_OK;
}

static um_status add_message(const um_chat *c, const um_message *m, uint32_t guard, json_t *list, um_err *err) {
    um_buf content = {0};
    const char *role = role_of(c, m->role);
    um_status st = guarded_content(c, role, um_str_of(m->content ? m->content : ""), guard, &content, err);
    if (!st) {
        json_t *o = json_object();
        json_object_set_new(o, "role", json_string(role));
        json_object_set_new(o, "content", json_stringn(content.data ? content.data : "", content.len));
        json_array_append_new(list, o);
    }
    um_buf_free(&content);
    return st;
}

static um_status render(const um_chat *c, const um_message *msg, size_t n, bool open_turn, uint32_t guard, um_buf *out,
                        um_err *err) {
    json_t *vars = json_copy(c->base), *list = json_array();
    json_object_set_new(vars, "messages", list);
    json_object_set_new(vars, "add_generation_prompt", json_boolean(open_turn));
    um_status st = UM_OK;
    for (size_t i = 0; i < n && !st; i++) st = add_message(c, &msg[i], guard, list, err);
    if (!st) st = um_template_render(c->tmpl, vars, out, err);
    json_decref(vars);
    return st;
}

static um_status check(const um_chat *c, const um_message *msg, size_t n, um_err *err) {
    if (!c->tmpl) return um_fail(err, c->error.code, "%s", c->error.msg);
    return check_messages(msg, n, err);
}

um_status um_chat_render(const um_chat *c, const um_message *msg, size_t n, bool add_generation_prompt, um_buf *out,
                         um_err *err) {
    um_status st = check(c, msg, n, err);
    return st ? st : render(c, msg, n, add_generation_prompt, 0, out, err);
}

static uint32_t choose_guard(const um_message *msg, size_t n) {
    um_str *text = UM_NEW_ARRAY(um_str, n);
    for (size_t i = 0; i < n; i++) text[i] = um_str_of(msg[i].content ? msg[i].content : "");
    uint32_t guard = um_guard_choose(text, n);
    um_free(text);
    return guard;
}

um_status um_chat_encode(const um_chat *c, const um_message *msg, size_t n, bool add_generation_prompt, um_ids *out,
                         um_err *err) {
    um_status st = check(c, msg, n, err);
    if (st) return st;
    um_buf text = {0};
    uint32_t guard = choose_guard(msg, n);
    if (!guard)
        return um_fail(err, UM_EINVAL, "the messages use all of the noncharacters U+FDD0 to U+FDEF; leave one out");
    st = render(c, msg, n, add_generation_prompt, guard, &text, err);
    if (!st)
        st = um_tok_encode_guarded(c->tok, (um_str){text.data ? text.data : "", text.len}, UM_PARSE_ALL, false, guard,
                                   out, err);
    um_buf_free(&text);
    return st;
}
