/* Reads the options that constrain answers. */
#include "cli/constraint.h"

#include "engine/options.h"

#define TEXT_MAX ((size_t)1 << 24) /* bytes of a file */

/* Reads a text that is given itself, or in a file. A file that can't be read is an error of the command line. */
static um_status read_text(um_cli_constraint *c, const char *given, bool is_text, um_err *err) {
    um_err why;
    if (!is_text && um_file_read_text(given, TEXT_MAX, &c->text, &why)) return um_fail(err, UM_EINVAL, "%s", why.msg);
    if (is_text) um_buf_puts(&c->text, given);
    return UM_OK;
}

/* Writes a list "a|b" as an array of strings. */
static void put_choices(um_cli_constraint *c, const char *list) {
    um_jw w;
    um_jw_init(&w, &c->text);
    um_jw_begin_array(&w);
    for (const char *p = list;; p++) {
        size_t n = strcspn(p, "|");
        um_jw_str(&w, p, n);
        p += n;
        if (!*p) break;
    }
    um_jw_end_array(&w);
}

static const char *flag_of(int32_t kind) {
    static const char *const flags[] = {"", "--json-object", "--json-schema", "--regex", "--grammar", "--choice"};
    return flags[kind];
}

/* Finds the only constraint of the options. */
static um_status find_kind(um_cli_constraint *c, const um_constraint_options *o, um_err *err) {
    const bool given[] = {false, o->json_object, o->json_schema, o->regex, o->grammar, o->choice};
    for (int32_t i = 0; i < (int32_t)UM_LEN(given); i++) {
        if (!given[i]) continue;
        if (c->kind)
            return um_fail(err, UM_EINVAL, "%s and %s: an answer has one constraint; leave out one of the options",
                           flag_of(c->kind), flag_of(i));
        c->kind = i;
    }
    return UM_OK;
}

static um_status check(const um_cli_constraint *c, const um_config *config, um_err *err) {
    um_request r;
    um_request_init_config(config, &r);
    um_cli_constraint_apply(c, &r);
    err->param[0] = '\0';
    um_status st = um_request_check_constraint(&r, err);
    return st && um_streq(err->param, "constraint") ? um_fail_in(err, "%s", flag_of(c->kind)) : st;
}

um_status um_cli_constraint_read(um_cli_constraint *c, const um_constraint_options *o, const um_config *config,
                                 um_err *err) {
    um_err own, *e = err ? err : &own;
    um_status st = find_kind(c, o, e);
    if (st || !c->kind) return st;
    um_buf_puts(&c->text, "");
    switch (c->kind) {
    case UM_CONSTRAINT_SCHEMA: st = read_text(c, o->json_schema, o->json_schema[0] == '{', e); break;
    case UM_CONSTRAINT_REGEX: st = read_text(c, o->regex, true, e); break;
    case UM_CONSTRAINT_GRAMMAR: st = read_text(c, o->grammar, strstr(o->grammar, "::=") != NULL, e); break;
    case UM_CONSTRAINT_CHOICE: put_choices(c, o->choice); break;
    default: break;
    }
    if (!st && strlen(c->text.data) != c->text.len)
        st = um_fail(e, UM_EINVAL, "the text has U+0000 at byte %zu", strlen(c->text.data));
    return st ? um_fail_in(e, "%s", flag_of(c->kind)) : check(c, config, e);
}

void um_cli_constraint_free(um_cli_constraint *c) {
    um_buf_free(&c->text);
    *c = (um_cli_constraint){0};
}

void um_cli_constraint_apply(const um_cli_constraint *c, um_request *r) {
    if (!c->kind) return;
    r->constraint = c->kind;
    r->constraint_text = c->kind > UM_CONSTRAINT_JSON ? c->text.data : NULL;
}
