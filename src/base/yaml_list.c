/* YAML: the texts of one list in a document that may use the whole language, such as the front matter of a model card.
 * libyaml reports events and expands nothing, so aliases can't make the work grow. */
#include "base/base.h"

#include <yaml.h>

typedef struct scan {
    yaml_parser_t parser;
    yaml_event_t event; /* the current event */
    int depth;          /* number of open mappings and lists */
} scan;

/* Goes to the next event. Returns false at the end of the document, or when it is malformed. */
static bool next(scan *s) {
    yaml_event_delete(&s->event);
    if (!yaml_parser_parse(&s->parser, &s->event)) return false;
    const yaml_event_type_t t = s->event.type;
    if (t == YAML_MAPPING_START_EVENT || t == YAML_SEQUENCE_START_EVENT) s->depth++;
    if (t == YAML_MAPPING_END_EVENT || t == YAML_SEQUENCE_END_EVENT) s->depth--;
    return t != YAML_DOCUMENT_END_EVENT && t != YAML_STREAM_END_EVENT;
}

/* Skips the value whose first event is the current one. */
static bool skip(scan *s, int depth) {
    while (s->depth > depth)
        if (!next(s)) return false;
    return true;
}

static bool is_text(const scan *s) {
    return s->event.type == YAML_SCALAR_EVENT &&
           strlen((const char *)s->event.data.scalar.value) == s->event.data.scalar.length;
}

/* Goes to the start of the list. Returns false when there is none. */
static bool find_list(scan *s, const char *key) {
    while (s->event.type != YAML_MAPPING_START_EVENT)
        if (!next(s) || s->event.type == YAML_SCALAR_EVENT || s->event.type == YAML_SEQUENCE_START_EVENT) return false;
    while (next(s) && s->depth == 1) {
        const bool is_key = is_text(s) && um_streq((const char *)s->event.data.scalar.value, key);
        if (!is_text(s) || !next(s)) return false;
        if (is_key) return s->event.type == YAML_SEQUENCE_START_EVENT;
        if (!skip(s, 1)) return false;
    }
    return false;
}

size_t um_yaml_texts(const char *text, size_t len, const char *key, um_arena *strings, const char **out, size_t most) {
    scan s = {0};
    size_t n = 0;
    if (!len || !yaml_parser_initialize(&s.parser)) return 0;
    yaml_parser_set_input_string(&s.parser, (const unsigned char *)text, len);
    if (find_list(&s, key))
        while (n < most && next(&s) && s.depth >= 2)
            if (s.depth == 2 && is_text(&s))
                out[n++] =
                    um_arena_strndup(strings, (const char *)s.event.data.scalar.value, s.event.data.scalar.length);
    yaml_event_delete(&s.event);
    yaml_parser_delete(&s.parser);
    return n;
}
