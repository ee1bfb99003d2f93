/* YAML: the scalars of a configuration file and their positions, read from the events of libyaml.
 *
 * A file is a mapping of names to scalars. A mapping in place of a scalar is a section. Other parts of the language
 * have no meaning in a configuration (lists) or obscure it (anchors, tags). They fail with a message that names them.
 */
#include "base/base.h"

#include <yaml.h>

typedef struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current event */
    um_yaml *out;
    um_arena *strings;
    const char *where;
    int depth;
    um_err *err;
} reader;

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

static int line_of(yaml_mark_t m) { return (int)UM_MIN(m.line + 1, (size_t)INT32_MAX); }
static int column_of(yaml_mark_t m) { return (int)UM_MIN(m.column + 1, (size_t)INT32_MAX); }

static um_status fail_at(reader *r, yaml_mark_t at, const char *fmt, ...) UM_PRINTF(3, 4);
static um_status fail_at(reader *r, yaml_mark_t at, const char *fmt, ...) {
    char text[UM_ERR_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return um_fail(r->err, UM_EPARSE, "%s:%d:%d: %s", r->where, line_of(at), column_of(at), text);
}

static um_status fail_syntax(reader *r) {
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR) return um_fail(r->err, UM_ENOMEM, "%s: not enough memory", r->where);
    if (p->error == YAML_READER_ERROR)
        return um_fail(r->err, UM_EPARSE, "%s: byte %zu: %s", r->where, p->problem_offset, p->problem);
    if (!p->context) return fail_at(r, p->problem_mark, "%s", p->problem);
    return fail_at(r, p->problem_mark, "%s %s from line %d", p->problem, p->context, line_of(p->context_mark));
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

static um_status check_plain(reader *r, const yaml_char_t *anchor, const yaml_char_t *tag) {
    if (anchor)
        return fail_at(r, r->event.start_mark, "an anchor (&%.40s) is not supported here", (const char *)anchor);
    if (tag) return fail_at(r, r->event.start_mark, "a tag (%.40s) is not supported here", (const char *)tag);
    return UM_OK;
}

static um_status next(reader *r) {
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->parser, &r->event)) return fail_syntax(r);
    const yaml_event_t *e = &r->event;
    switch (e->type) {
    case YAML_ALIAS_EVENT:
        return fail_at(r, e->start_mark, "an alias (*%.40s) is not supported here", (const char *)e->data.alias.anchor);
    case YAML_SEQUENCE_START_EVENT:
        return fail_at(r, e->start_mark, "a list is not supported here; an option has one value");
    case YAML_MAPPING_START_EVENT: return check_plain(r, e->data.mapping_start.anchor, e->data.mapping_start.tag);
    case YAML_SCALAR_EVENT: return check_plain(r, e->data.scalar.anchor, e->data.scalar.tag);
    default: return UM_OK;
    }
}

/* Copies the text of the current event, a scalar. */
static um_status copy_scalar(reader *r, const char **out) {
    const char *p = (const char *)r->event.data.scalar.value;
    size_t n = r->event.data.scalar.length;
    if (strlen(p) != n) return fail_at(r, r->event.start_mark, "a text must not contain U+0000");
    *out = um_arena_strndup(r->strings, p, n);
    return UM_OK;
}

/* ---- Entries ----------------------------------------------------------------------------------------------------- */

static um_status push(reader *r, const um_yaml_entry *e, yaml_mark_t at) {
    um_yaml *y = r->out;
    for (size_t i = 0; i < y->n; i++) {
        const um_yaml_entry *other = &y->entry[i];
        if (um_streq(other->key, e->key) && um_streq(other->section, e->section))
            return fail_at(r, at, "%.80s is given twice, first in line %d", e->key, other->key_line);
    }
    if (y->n == UM_YAML_ENTRIES_MAX) return fail_at(r, at, "more than %d entries", UM_YAML_ENTRIES_MAX);
    if (y->n == y->cap) {
        y->cap = UM_MAX(2 * y->cap, 32);
        y->entry = um_realloc(y->entry, um_mul(y->cap, sizeof y->entry[0]));
    }
    y->entry[y->n++] = *e;
    return UM_OK;
}

static um_yaml_kind kind_of(const yaml_event_t *e, const char *value) {
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    if (e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return UM_YAML_QUOTED;
    for (size_t i = 0; i < UM_LEN(nulls); i++)
        if (um_streq(value, nulls[i])) return UM_YAML_NULL;
    return UM_YAML_PLAIN;
}

/* Joins names by a dot: "engine" and "decoding_thresholds" give "engine.decoding_thresholds". */
static const char *join(reader *r, const char *section, const char *key) {
    um_buf b = {0};
    um_buf_printf(&b, "%s%s%s", section, *section ? "." : "", key);
    const char *joined = um_arena_strndup(r->strings, b.data, b.len);
    um_buf_free(&b);
    return joined;
}

static um_status read_mapping(reader *r, const char *section);

/* Reads the value of a key. The current event is the first one of the value. */
static um_status read_value(reader *r, um_yaml_entry *e, yaml_mark_t key) {
    yaml_mark_t at = r->event.start_mark;
    um_status st = UM_OK;
    e->line = line_of(at);
    e->column = column_of(at);
    if (r->event.type == YAML_SCALAR_EVENT) {
        st = copy_scalar(r, &e->value);
        if (st) return st;
        e->kind = kind_of(&r->event, e->value);
        if (e->kind == UM_YAML_NULL) e->value = NULL;
        return push(r, e, key);
    }
    e->kind = UM_YAML_SECTION;
    st = push(r, e, key);
    return st ? st : read_mapping(r, join(r, e->section, e->key));
}

/* Reads a mapping. The current event is the start of the mapping at the call and its end at the return. */
static um_status read_mapping(reader *r, const char *section) {
    if (r->depth == UM_YAML_DEPTH_MAX)
        return fail_at(r, r->event.start_mark, "mappings are nested deeper than %d", UM_YAML_DEPTH_MAX);
    r->depth++;
    for (;;) {
        um_yaml_entry e = {.section = section};
        um_status st = next(r);
        if (!st && r->event.type == YAML_MAPPING_END_EVENT) break;
        if (!st && r->event.type != YAML_SCALAR_EVENT)
            st = fail_at(r, r->event.start_mark, "expected the name of an option, found a mapping");
        yaml_mark_t key = r->event.start_mark;
        if (!st) st = copy_scalar(r, &e.key);
        e.key_line = line_of(key);
        e.key_column = column_of(key);
        if (!st) st = next(r);
        if (!st) st = read_value(r, &e, key);
        if (st) return st;
    }
    r->depth--;
    return UM_OK;
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

static um_status read_document(reader *r) {
    um_status st = next(r);
    if (st) return st;
    if (r->event.type == YAML_MAPPING_START_EVENT) {
        st = read_mapping(r, "");
    } else {
        const char *text = "";
        st = copy_scalar(r, &text);
        if (!st && kind_of(&r->event, text) != UM_YAML_NULL)
            st = fail_at(r, r->event.start_mark, "expected options, one \"name: value\" per line, found \"%.40s\"",
                         text);
    }
    return st ? st : next(r); /* the end of the document */
}

static um_status read_stream(reader *r) {
    um_status st = next(r); /* the start of the stream */
    if (!st) st = next(r);
    if (st || r->event.type == YAML_STREAM_END_EVENT) return st;
    st = read_document(r);
    if (!st) st = next(r);
    if (!st && r->event.type != YAML_STREAM_END_EVENT)
        st = fail_at(r, r->event.start_mark, "a second document is not supported here");
    return st;
}

um_status um_yaml_parse(um_yaml *out, um_arena *strings, const char *text, size_t len, const char *where, um_err *err) {
    reader r = {.out = out, .strings = strings, .where = where, .err = err};
    *out = (um_yaml){0};
    if (!yaml_parser_initialize(&r.parser)) return um_fail(err, UM_ENOMEM, "%s: not enough memory", where);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, len);
    um_status st = read_stream(&r);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    return st;
}

void um_yaml_free(um_yaml *y) {
    um_free(y->entry);
    *y = (um_yaml){0};
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* Returns whether YAML calls the character printable. Line breaks do not count. */
static bool is_printable(uint32_t cp) {
    return (cp >= 0x20 && cp < 0x7F) || (cp >= 0xA0 && cp < 0xD800 && cp != 0x2028 && cp != 0x2029) ||
           (cp >= 0xE000 && cp < 0xFFFE && cp != 0xFEFF) || cp >= 0x10000;
}

void um_yaml_put_quoted(um_buf *out, const char *s) {
    size_t n = strlen(s);
    uint32_t cp;
    um_buf_putc(out, '"');
    for (size_t i = 0; i < n;) {
        int k = um_utf8_next(s + i, n - i, &cp);
        assert(k > 0);
        if (cp == '"' || cp == '\\') um_buf_printf(out, "\\%c", (char)cp);
        else if (cp == '\n') um_buf_puts(out, "\\n");
        else if (is_printable(cp)) um_buf_append(out, s + i, (size_t)k);
        else um_buf_printf(out, cp < 0x100 ? "\\x%02X" : "\\u%04X", cp);
        i += (size_t)k;
    }
    um_buf_putc(out, '"');
}

void um_yaml_put_comment(um_buf *out, const char *s) {
    size_t n = strlen(s);
    uint32_t cp;
    for (size_t i = 0; i < n;) {
        int k = um_utf8_next(s + i, n - i, &cp);
        if (k && is_printable(cp)) um_buf_append(out, s + i, (size_t)k);
        else um_buf_putc(out, '?');
        i += (size_t)UM_MAX(k, 1);
    }
}
