/* Fuzzes JSON. The input is parsed, written by the streaming writer, parsed and written again: both written texts must
 * be equal. Invalid JSON must give an error message. The writer must write any input as a valid JSON string. The
 * bound of a text's memory must hold. */
#include <jansson.h>
#include <stdlib.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool claim) {
    if (!claim) abort();
}

static size_t used, peak; /* bytes of jansson's allocations, with the 8 bytes that malloc adds to each */

static void *counting_malloc(size_t n) {
    size_t *p = malloc(sizeof(max_align_t) + n);
    if (!p) return NULL;
    *p = n + 8;
    used += *p;
    peak = UM_MAX(peak, used);
    return (char *)p + sizeof(max_align_t);
}

static void counting_free(void *at) {
    size_t *p = at ? (size_t *)(void *)((char *)at - sizeof(max_align_t)) : NULL;
    if (p) used -= *p;
    free(p);
}

/* The scratch text of jansson's lexer is not part of the bound. It holds one token, at most the whole text. Its buffer
 * doubles, and the old buffer lives until the new one is filled: three times the token. */
static void check_bound(um_str text) {
    json_t *v = NULL;
    used = peak = 0;
    json_set_alloc_funcs(counting_malloc, counting_free);
    um_json_parse_exact(&v, text.p, text.n, "input", NULL);
    json_decref(v);
    json_set_alloc_funcs(malloc, free);
    require(used == 0 && peak <= um_json_memory(text) + 3 * text.n + 128);
}

static void write_value(um_jw *w, const json_t *v) {
    const char *key;
    json_t *item;
    size_t i;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        um_jw_begin_object(w);
        json_object_foreach((json_t *)(uintptr_t)v, key, item) {
            um_jw_key(w, key);
            write_value(w, item);
        }
        um_jw_end_object(w);
        break;
    case JSON_ARRAY:
        um_jw_begin_array(w);
        json_array_foreach(v, i, item) write_value(w, item);
        um_jw_end_array(w);
        break;
    case JSON_STRING: um_jw_str(w, json_string_value(v), json_string_length(v)); break;
    case JSON_INTEGER: um_jw_int(w, json_integer_value(v)); break;
    case JSON_REAL: um_jw_double(w, json_real_value(v)); break;
    case JSON_TRUE:
    case JSON_FALSE: um_jw_bool(w, json_is_true(v)); break;
    case JSON_NULL: um_jw_null(w); break;
    }
}

static int depth_of(const json_t *v) {
    const char *key;
    json_t *item;
    size_t i;
    int deepest = 0;
    json_object_foreach((json_t *)(uintptr_t)v, key, item) deepest = UM_MAX(deepest, depth_of(item));
    json_array_foreach(v, i, item) deepest = UM_MAX(deepest, depth_of(item));
    return deepest + 1;
}

/* Compares the two written texts. The trees may differ, because numbers may change their kind: 1.0 is written as 1. */
static void round_trip(const json_t *first) {
    um_buf a = {0}, b = {0};
    um_jw w;
    json_t *second = NULL;
    um_jw_init(&w, &a);
    write_value(&w, first);
    require(um_json_parse(&second, a.data, a.len, "again", NULL) == UM_OK);
    um_jw_init(&w, &b);
    write_value(&w, second);
    require(a.len == b.len && memcmp(a.data, b.data, a.len) == 0);
    json_decref(second);
    um_buf_free(&a);
    um_buf_free(&b);
}

static void write_bytes(const char *s, size_t n) {
    um_buf b = {0};
    um_jw w;
    um_jw_init(&w, &b);
    um_jw_begin_array(&w);
    um_jw_str(&w, s, n);
    um_jw_end_array(&w);
    json_t *v = NULL;
    require(um_json_parse(&v, b.data, b.len, "string", NULL) == UM_OK);
    json_decref(v);
    um_buf_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    json_t *v = NULL;
    um_err err = {.code = UM_OK};
    um_status s = um_json_parse(&v, (const char *)data, size, "input", &err);
    require(s == UM_OK ? v != NULL : v == NULL && strncmp(err.msg, "input:", 6) == 0);
    if (v && depth_of(v) < 60) round_trip(v);
    json_decref(v);
    write_bytes((const char *)data, size);
    check_bound((um_str){(const char *)data, size});
    return 0;
}
