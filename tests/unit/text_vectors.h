/* Reads vectors: one JSON object a line. */
#ifndef TESTS_TEXT_VECTORS_H
#define TESTS_TEXT_VECTORS_H

#include <jansson.h>
#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#include "text/tok.h"

/* The rows of a file as an array; fails the test when one is missing. */
static inline json_t *vector_rows(const char *path) {
    um_buf text = {0};
    um_err err;
    if (um_file_read(path, (size_t)16 << 20, &text, &err)) fail_msg("%s", err.msg);
    json_t *rows = json_array();
    for (char *line = text.data, *end; line && *line; line = end + 1) {
        end = strchr(line, '\n');
        json_t *row = NULL;
        if (!end || um_json_parse(&row, line, (size_t)(end - line), path, &err)) fail_msg("%s: a row is broken", path);
        json_array_append_new(rows, row);
    }
    um_buf_free(&text);
    assert_true(json_array_size(rows) > 0);
    return rows;
}

static inline um_str vector_str(const json_t *s) { return (um_str){json_string_value(s), json_string_length(s)}; }

/* a[key] as text, or what `other` holds when the row leaves it out. */
static inline um_str vector_text(const json_t *row, const char *key, um_str other) {
    const json_t *s = json_object_get(row, key);
    return json_is_string(s) ? vector_str(s) : other;
}

static inline um_ids vector_ids(const json_t *row, const char *key) {
    um_ids ids = {0};
    const json_t *list = json_object_get(row, key), *id;
    size_t i;
    json_array_foreach(list, i, id) um_ids_push(&ids, (int32_t)json_integer_value(id));
    return ids;
}

static inline bool same_ids(const um_ids *a, const um_ids *b) {
    return a->n == b->n && (a->n == 0 || memcmp(a->data, b->data, a->n * sizeof *a->data) == 0);
}

static inline um_str buf_str(const um_buf *b) { return (um_str){b->data ? b->data : "", b->len}; }

static inline char *show_ids(const um_ids *v) {
    um_buf out = {0};
    um_buf_puts(&out, "[");
    for (size_t i = 0; i < v->n; i++) um_buf_printf(&out, "%s%d", i ? " " : "", v->data[i]);
    um_buf_puts(&out, "]");
    return um_buf_take(&out);
}

/* A tokenizer from JSON text, or a failed test. */
static inline um_tok *tok_of(const char *json, const char *config) {
    um_tok *t = NULL;
    um_err err;
    if (um_tok_parse(&t, um_str_of(json), config ? um_str_of(config) : (um_str){NULL, 0}, (um_str){NULL, 0}, "folder",
                     &err))
        fail_msg("%s", err.msg);
    return t;
}

static inline um_tok *tok_of_json(const json_t *json) {
    char *text = json_dumps(json, 0);
    um_tok *t = tok_of(text, NULL);
    free(text);
    return t;
}

static inline um_ids encode(const um_tok *t, um_str text, um_parse parse, bool add_special) {
    um_ids ids = {0};
    um_err err;
    if (um_tok_encode(t, text, parse, add_special, &ids, &err)) fail_msg("%s", err.msg);
    return ids;
}

static inline void assert_ids(um_ids got, const int32_t *want, size_t n) {
    um_ids w = {(int32_t *)(uintptr_t)want, n, n};
    if (!same_ids(&got, &w)) fail_msg("expected %s, found %s", show_ids(&w), show_ids(&got));
    um_ids_free(&got);
}
#define assert_encodes(t, text, ...)                                                                                   \
    assert_ids(encode((t), um_str_of(text), UM_PARSE_ALL, false), (const int32_t[]){__VA_ARGS__},                      \
               sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static inline void assert_text(um_str got, um_str want) {
    if (!um_str_eq(got, want)) fail_msg("expected \"%.*s\", found \"%.*s\"", (int)want.n, want.p, (int)got.n, got.p);
}

#endif
