/* Finds the templates of a checkpoint, in this order: the operator's choice, chat_template.jinja, chat_template.json,
 * tokenizer_config.json, the built-in template of the family. The two JSON files may contain a list of named templates.
 * Each file additional_chat_templates/NAME.jinja adds a template NAME. */
#include <dirent.h>
#include <stdlib.h>

#include "text/chat.h"

#define TEMPLATE_FILE_MAX ((size_t)1 << 20)

/* ---- One template ------------------------------------------------------------------------------------------------ */

um_status um_chat_template_new(um_chat_template *t, const char *name, const char *where, um_str source, um_err *err) {
    *t = (um_chat_template){
        .name = um_strdup(name), .where = um_strdup(where), .source = um_strndup(source.p, source.n)};
    t->knows_developer = source.n && memmem(source.p, source.n, "developer", 9);
    t->guards = um_guards_in(source);
    um_status st = um_template_new(&t->tmpl, source, &t->error);
    if (st) {
        um_fail_in(&t->error, "chat template %s", where);
        return um_fail(err, st, "%s", t->error.msg);
    }
    t->reads_parts = um_template_reads_parts(t->tmpl);
    return UM_OK;
}

void um_chat_template_free(um_chat_template *t) {
    um_template_free(t->tmpl);
    um_free(t->name);
    um_free(t->where);
    um_free(t->source);
}

const um_chat_template *um_chat_template_find(const um_chat *c, const char *name) {
    for (size_t i = 0; i < c->n_tmpl; i++)
        if (um_streq(c->tmpl[i].name, name)) return &c->tmpl[i];
    return NULL;
}

bool um_chat_is_source(const char *text) { return strstr(text, "{{") || strstr(text, "{%") || strstr(text, "{#"); }

static um_chat_template *new_place(um_chat *c) {
    c->tmpl = (um_chat_template *)um_realloc(c->tmpl, um_mul(c->n_tmpl + 1, sizeof *c->tmpl));
    return &c->tmpl[c->n_tmpl++];
}

/* Adds a template unless one with this name was found earlier. A template that does not compile fails when used. */
static void add(um_chat *c, const char *name, const char *where, um_str source) {
    if (!um_chat_template_find(c, name)) (void)um_chat_template_new(new_place(c), name, where, source, NULL);
}

/* ---- Files of the folder ----------------------------------------------------------------------------------------- */

static um_status add_file(um_chat *c, const char *name, const char *path, um_err *err) {
    um_buf source = {0};
    um_status st = um_file_read_text(path, TEMPLATE_FILE_MAX, &source, err);
    if (!st) add(c, name, path, (um_str){source.data, source.len});
    um_buf_free(&source);
    return st;
}

/* Adds a template string, or a list of {name, template}. The only entry of a list is the default whatever its name. */
static void add_value(um_chat *c, const char *where, const json_t *value) {
    const json_t *item;
    size_t i;
    if (json_is_string(value)) add(c, "default", where, (um_str){json_string_value(value), json_string_length(value)});
    json_array_foreach(value, i, item) {
        const json_t *text = json_object_get(item, "template");
        const char *name = json_string_value(json_object_get(item, "name"));
        um_str source = {json_string_value(text), json_string_length(text)};
        if (source.p && json_array_size(value) == 1) add(c, "default", where, source);
        else if (source.p && name) add(c, name, where, source);
    }
}

static um_status add_json(um_chat *c, const char *file, um_err *err) {
    json_t *json;
    char *path = um_path_join(c->dir, file);
    um_status st = um_tok_config_load(&json, path, err);
    if (!st && json) add_value(c, path, json_object_get(json, "chat_template"));
    json_decref(json);
    um_free(path);
    return st;
}

static int is_template(const struct dirent *e) {
    size_t n = strlen(e->d_name);
    return e->d_name[0] != '.' && n > 6 && um_streq(e->d_name + n - 6, ".jinja");
}

static um_status add_folder(um_chat *c, um_err *err) {
    char *dir = um_path_join(c->dir, "additional_chat_templates");
    struct dirent **entry = NULL;
    int n = scandir(dir, &entry, is_template, alphasort);
    um_status st = UM_OK;
    for (int i = 0; i < n; i++) {
        char *path = um_path_join(dir, entry[i]->d_name);
        char *name = um_strndup(entry[i]->d_name, strlen(entry[i]->d_name) - 6);
        if (!st) st = add_file(c, name, path, err);
        um_free(name);
        um_free(path);
        free(entry[i]); /* scandir's */
    }
    free(entry);
    um_free(dir);
    return st;
}

static um_status add_found(um_chat *c, um_err *err) {
    char *path = um_path_join(c->dir, "chat_template.jinja");
    um_status st = um_file_exists(path) ? add_file(c, "default", path, err) : UM_OK;
    um_free(path);
    if (!st && !c->n_tmpl) st = add_json(c, "chat_template.json", err);
    if (!st && !c->n_tmpl) st = add_json(c, "tokenizer_config.json", err);
    return st ? st : add_folder(c, err);
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static um_status new_builtin(um_chat *c, const char *name, const um_chat_builtin *b, um_err *err) {
    char where[64];
    um_chat_template *t = new_place(c);
    snprintf(where, sizeof where, "built-in %s", b->name);
    um_status st = um_chat_template_new(t, name, where, b->source, err);
    t->default_system = b->default_system;
    return st;
}

/* Adds the family's built-in template to a folder without a default template. A base model gets no template: it is
 * recognized by a tokenizer without the token that ends a turn. */
static um_status add_builtin(um_chat *c, const um_chat_builtin *b, um_err *err) {
    bool found = um_chat_template_find(c, "default"), spoken = b && um_tok_find(c->tok, um_str_of(b->turn_end)) >= 0;
    if (found && b && !spoken)
        um_warn("%s has a chat template, but \"%s\" is no token of it: a base model, which may not end its turns",
                c->dir, b->turn_end);
    return !found && spoken ? new_builtin(c, "default", b, err) : UM_OK;
}

/* Chooses the operator's template: the name of a found or built-in template, source, or a file. It must compile. */
static um_status choose(um_chat *c, const char *given, um_err *err) {
    const um_chat_template *t = um_chat_template_find(c, given);
    const um_chat_builtin *b = um_chat_builtin_find(given);
    um_buf source = {0};
    um_status st;
    um_err why;
    c->chosen = t ? (size_t)(t - c->tmpl) : c->n_tmpl;
    c->is_chosen = true;
    if (t) return t->tmpl ? UM_OK : um_fail(err, t->error.code, "%s", t->error.msg);
    if (b) return new_builtin(c, "chosen", b, err);
    if (um_chat_is_source(given))
        return um_chat_template_new(new_place(c), "chosen", "given as text", um_str_of(given), err);
    st = um_file_read_text(given, TEMPLATE_FILE_MAX, &source, &why);
    if (st)
        um_fail(err, st, "chat template: expected a file, text with tags, or a name (built in: %s): %s",
                UM_CHAT_BUILTIN_NAMES, why.msg);
    else st = um_chat_template_new(new_place(c), "chosen", given, (um_str){source.data, source.len}, err);
    um_buf_free(&source);
    return st;
}

/* Builds the variables of every conversation. A special token that is not set stays undefined, as templates expect.
 * `tools` and `documents` are none. */
static json_t *base_variables(const um_tok *t) {
    json_t *vars = json_object();
    for (size_t i = 0; i < t->n_named; i++)
        json_object_set_new(vars, t->named[i].name, json_stringn(t->named[i].text.p, t->named[i].text.n));
    if (t->extra_special) json_object_set(vars, "additional_special_tokens", t->extra_special);
    json_object_set_new(vars, "tools", json_null());
    json_object_set_new(vars, "documents", json_null());
    return vars;
}

static um_chat *new_chat(const char *where, const um_tok *t) {
    um_chat *c = UM_NEW(um_chat);
    c->dir = um_strdup(where);
    c->tok = t;
    c->base = base_variables(t);
    return c;
}

/* Completes c, which has the templates of the checkpoint unless st tells of an error. */
static um_status complete(um_chat **out, um_chat *c, um_status st, const char *given, const char *builtin,
                          um_err *err) {
    if (!st) st = add_builtin(c, um_chat_builtin_find(builtin), err);
    if (!st && given) st = choose(c, given, err);
    const um_chat_template *first = um_chat_template_find(c, "default");
    if (!st && !given && first && !first->tmpl) um_warn("%s; chat is not possible with this model", first->error.msg);
    if (st || c->n_tmpl == 0) {
        um_chat_close(c);
        c = NULL;
    }
    *out = c;
    return st;
}

um_status um_chat_open(um_chat **out, const char *dir, const um_tok *t, const char *given, const char *builtin,
                       um_err *err) {
    um_chat *c = new_chat(dir, t);
    return complete(out, c, add_found(c, err), given, builtin, err);
}

um_status um_chat_open_own(um_chat **out, const char *where, const json_t *own, const um_tok *t, const char *given,
                           const char *builtin, um_err *err) {
    um_chat *c = new_chat(where, t);
    add_value(c, where, own);
    return complete(out, c, UM_OK, given, builtin, err);
}

void um_chat_close(um_chat *c) {
    if (!c) return;
    for (size_t i = 0; i < c->n_tmpl; i++) um_chat_template_free(&c->tmpl[i]);
    um_free(c->tmpl);
    json_decref(c->base);
    um_free(c->dir);
    um_free(c);
}
