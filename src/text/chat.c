/* Renders a conversation into a prompt: normalizes and protects the messages, renders the template, cuts the text after
 * a message to be continued, and encodes it. */
#include "text/chat.h"

/* The state of rendering one request. */
typedef struct conversation {
    const um_chat *chat;
    const um_chat_request *request;
    const um_chat_template *tmpl;
    um_chat_template own; /* the request's own template, if it has one */
    json_t *messages, *tools, *kwargs;
    int level;            /* UM_SPECIAL_*, without AUTO */
    uint32_t guard, mark; /* noncharacters chosen for this conversation; mark 0: no message is continued */
} conversation;

void um_chat_init(um_chat_request *c) { *c = (um_chat_request){.size = sizeof *c, .add_generation_prompt = true}; }

static const um_chat_template *ordinary(const um_chat *c) {
    const um_chat_template *t = c->is_chosen ? &c->tmpl[c->chosen] : um_chat_template_find(c, "default");
    return t ? t : &c->tmpl[0];
}

const char *um_chat_origin(const um_chat *c) { return ordinary(c)->where; }
const char *um_chat_source(const um_chat *c) { return ordinary(c)->source; }

/* ---- Finding the template ---------------------------------------------------------------------------------------- */

static um_status no_default(const um_chat *c, um_err *err) {
    um_buf names = {0};
    for (size_t i = 0; i < c->n_tmpl; i++) um_buf_printf(&names, "%s%s", i ? ", " : "", c->tmpl[i].name);
    um_status st = um_fail(err, UM_ETEMPLATE, "%s has no default chat template; name one of: %s", c->dir, names.data);
    um_buf_free(&names);
    return st;
}

/* Finds the template that the request gives by name or as source. Unlike the operator, a request can't name a file. */
static um_status find_own(conversation *v, um_err *err) {
    const char *own = v->request->chat_template;
    v->tmpl = um_chat_template_find(v->chat, own);
    if (v->tmpl) return UM_OK;
    if (!um_chat_is_source(own))
        return um_fail_param(err, UM_EINVAL, "chat_template", "\"%.60s\" has no tags and is no template of %s", own,
                             v->chat->dir);
    v->tmpl = &v->own;
    um_status st = um_chat_template_new(&v->own, "own", "of the request", um_str_of(own), err);
    return um_fail_about(err, st, "chat_template");
}

static um_status find_template(conversation *v, um_err *err) {
    const um_chat *c = v->chat;
    if (v->request->chat_template) return find_own(v, err);
    if (c->is_chosen) v->tmpl = &c->tmpl[c->chosen];
    if (!v->tmpl && v->tools) v->tmpl = um_chat_template_find(c, "tool_use");
    if (!v->tmpl) v->tmpl = um_chat_template_find(c, "default");
    if (!v->tmpl && c->n_tmpl == 1) v->tmpl = c->tmpl;
    if (!v->tmpl) return no_default(c, err);
    return v->tmpl->tmpl ? UM_OK : um_fail(err, v->tmpl->error.code, "%s", v->tmpl->error.msg);
}

/* ---- Preparation ------------------------------------------------------------------------------------------------- */

static um_status check_flags(const um_chat_request *q, um_err *err) {
    if (q->size != sizeof *q)
        return um_fail(err, UM_EINVAL,
                       "um_chat_request: size is %zu, expected %zu; call um_chat_init first, with the header of this "
                       "library",
                       q->size, sizeof *q);
    if (q->messages && q->messages_json)
        return um_fail(err, UM_EINVAL, "a conversation has messages or messages_json, not both");
    if (q->continue_final_message && q->add_generation_prompt)
        return um_fail(err, UM_EINVAL,
                       "continue_final_message and add_generation_prompt contradict each other: one goes on with the "
                       "last message, the other opens a new one");
    if (q->special_in_content < UM_SPECIAL_AUTO || q->special_in_content > UM_SPECIAL_REJECT)
        return um_fail_param(err, UM_ERANGE, "special_in_content", "%d is outside %d..%d, the values of UM_SPECIAL_*",
                             q->special_in_content, UM_SPECIAL_AUTO, UM_SPECIAL_REJECT);
    return UM_OK;
}

/* Chooses noncharacters that neither the conversation nor its template uses. */
static um_status choose_marks(conversation *v, um_err *err) {
    uint32_t used =
        v->tmpl->guards | um_chat_guards_in(v->messages) | um_chat_guards_in(v->tools) | um_chat_guards_in(v->kwargs);
    v->guard = um_guard_pick(&used);
    if (v->guard && v->request->continue_final_message) v->mark = um_guard_pick(&used);
    if (v->guard && (v->mark || !v->request->continue_final_message)) return UM_OK;
    return um_fail(err, UM_EINVAL, "the messages use all of the noncharacters U+FDD0 to U+FDEF; leave one out");
}

/* Appends the mark and a space to the last message. The space tells whether the template strips trailing spaces. */
static um_status mark_last(conversation *v, um_err *err) {
    char mark[8];
    size_t n = (size_t)um_utf8_put(v->mark, mark);
    mark[n++] = ' ';
    return um_chat_mark_last(v->messages, (um_str){mark, n}, err);
}

static um_status prepare(conversation *v, um_err *err) {
    const um_chat_request *q = v->request;
    um_status st = check_flags(q, err);
    if (st) return st;
    v->level = q->special_in_content == UM_SPECIAL_AUTO ? UM_SPECIAL_TEXT : q->special_in_content;
    st = um_chat_tools(q->tools_json, &v->tools, err);
    if (!st) st = um_chat_kwargs(q->kwargs_json, &v->kwargs, err);
    if (!st) st = find_template(v, err);
    if (!st) st = um_chat_messages(q, v->tmpl->knows_developer, v->tmpl->reads_parts, &v->messages, err);
    if (!st) st = choose_marks(v, err);
    if (!st) st = um_chat_protect(v->chat->tok, v->messages, v->level, v->guard, err);
    if (!st && v->mark) st = mark_last(v, err);
    return st;
}

static void release(conversation *v) {
    um_chat_template_free(&v->own);
    json_decref(v->messages);
    json_decref(v->tools);
    json_decref(v->kwargs);
}

/* ---- Rendering --------------------------------------------------------------------------------------------------- */

static um_status render(const conversation *v, um_buf *out, um_err *err) {
    json_t *vars = json_copy(v->chat->base);
    if (v->tmpl->default_system) json_object_set_new(vars, "default_system", json_string(v->tmpl->default_system));
    json_object_set(vars, "messages", v->messages);
    if (v->tools) json_object_set(vars, "tools", v->tools);
    json_object_set_new(vars, "add_generation_prompt", json_boolean(v->request->add_generation_prompt));
    if (v->kwargs) json_object_update(vars, v->kwargs);
    um_err why;
    um_status st = um_template_render(v->tmpl->tmpl, vars, out, &why);
    json_decref(vars);
    return st ? um_fail(err, st, "chat template %s: %s", v->tmpl->where, why.msg) : UM_OK;
}

static bool is_mark(const um_buf *b, size_t at, um_str mark) {
    return b->len - at >= mark.n && memcmp(b->data + at, mark.p, mark.n) == 0;
}

/* Cuts the text at the last mark. Removes earlier marks, which a template leaves if it writes the message twice. If
 * the template stripped the space after the mark, the white space before the mark is removed too. */
static um_status cut(um_buf *b, size_t from, uint32_t mark, um_err *err) {
    char text[4];
    um_str m = {text, (size_t)um_utf8_put(mark, text)};
    size_t at = b->len;
    while (at > from && !is_mark(b, at - 1, m)) at--;
    if (at == from)
        return um_fail_param(err, UM_EINVAL, "continue_final_message",
                             "the chat template does not end with the text of the last message");
    at--;
    bool trimmed = at + m.n >= b->len || b->data[at + m.n] != ' ';
    um_str kept = {b->data + from, at - from};
    if (trimmed) kept = um_strip(kept, NULL, false, true);
    size_t n = from;
    for (size_t i = from; i < from + kept.n;) {
        bool hit = is_mark(b, i, m);
        if (!hit) b->data[n++] = b->data[i];
        i += hit ? m.n + (b->data[i + m.n] == ' ') : 1;
    }
    b->len = n;
    b->data[n] = '\0';
    return UM_OK;
}

/* Prepares and renders the conversation and appends its text, which still contains the guards. */
static um_status rendered(conversation *v, um_buf *out, um_err *err) {
    size_t from = out->len;
    um_status st = prepare(v, err);
    if (!st) st = render(v, out, err);
    if (!st && v->mark) st = cut(out, from, v->mark, err);
    if (st) out->len = from;
    return st;
}

static bool begins_with(const um_ids *v, const um_ids *first) {
    return v->n >= first->n && memcmp(v->data, first->data, first->n * sizeof *v->data) == 0;
}

static um_status encode(const conversation *v, um_str text, um_ids *out, um_err *err) {
    const um_tok *t = v->chat->tok;
    um_ids own = {0};
    um_status st = um_tok_encode_guarded(t, text, UM_PARSE_ALL, false, v->guard, &own, err);
    if (!st && v->request->add_special_tokens && t->post.before.n && !begins_with(&own, &t->post.before))
        um_ids_append(out, &t->post.before);
    if (!st) um_ids_append(out, &own);
    um_ids_free(&own);
    return st;
}

um_status um_chat_render(const um_chat *c, const um_chat_request *q, um_buf *out, um_ids *ids, um_err *err) {
    conversation v = {.chat = c, .request = q};
    um_buf text = {0};
    um_status st = rendered(&v, &text, err);
    um_str s = {text.data ? text.data : "", text.len};
    if (!st && ids) st = encode(&v, s, ids, err);
    if (!st && out) um_guard_remove(s, v.guard, out);
    um_buf_free(&text);
    release(&v);
    return st;
}

um_status um_prompt_encode(const um_tok *t, um_str text, int level, bool around, um_ids *ids, um_err *err) {
    static const um_parse parse[] = {[UM_SPECIAL_AUTO] = UM_PARSE_ALL,
                                     [UM_SPECIAL_PARSE] = UM_PARSE_ALL,
                                     [UM_SPECIAL_TEXT] = UM_PARSE_NOT_SPECIAL,
                                     [UM_SPECIAL_STRICT] = UM_PARSE_NONE,
                                     [UM_SPECIAL_REJECT] = UM_PARSE_NOT_SPECIAL};
    um_str token = {NULL, 0};
    size_t before = ids->n;
    if (level < UM_SPECIAL_AUTO || level > UM_SPECIAL_REJECT)
        return um_fail_param(err, UM_ERANGE, "special_in_content", "%d is outside %d..%d, the values of UM_SPECIAL_*",
                             level, UM_SPECIAL_AUTO, UM_SPECIAL_REJECT);
    um_status st = um_tok_encode(t, text, parse[level], around, ids, err);
    if (!st && level == UM_SPECIAL_REJECT) st = um_guard_find(t, text, UM_GUARD_SPECIAL, &token, err);
    if (!st && token.p)
        st = um_fail(err, UM_EINVAL, "the prompt spells the token \"%.*s\", which the level reject does not let pass",
                     (int)UM_MIN(token.n, 60), token.p);
    if (st) ids->n = before;
    return st;
}
