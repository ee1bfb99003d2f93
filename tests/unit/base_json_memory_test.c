/* base: the bound of the memory that a JSON text takes, compared with what jansson asks malloc for. */
#include "base/base.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#include <jansson.h>
#include <malloc.h>

static size_t used, peak; /* bytes, with the 8 bytes that malloc adds to each allocation */

static void *counting_malloc(size_t n) {
    void *p = malloc(n);
    used += malloc_usable_size(p) + 8;
    peak = UM_MAX(peak, used);
    return p;
}

static void counting_free(void *p) {
    if (p) used -= malloc_usable_size(p) + 8;
    free(p);
}

/* Parses a text. Returns the peak of the memory. */
static size_t measure(um_str text) {
    json_t *v = NULL;
    um_err err;
    used = peak = 0;
    json_set_alloc_funcs(counting_malloc, counting_free);
    if (um_json_parse_request(&v, text.p, text.n, "test", &err)) fail_msg("%s", err.msg);
    json_decref(v);
    json_set_alloc_funcs(malloc, free);
    assert_int_equal(used, 0);
    return peak;
}

/* The scratch text of jansson's lexer is not part of the bound. It holds one token. Its buffer doubles, and the old
 * buffer lives until the new one is filled: three times the longest token. */
static void check(um_str text, size_t longest) {
    size_t bound = um_json_memory(text), is = measure(text);
    if (is > bound + 3 * longest + 64) fail_msg("%.30s…: %zu bytes, the bound is %zu", text.p, is, bound);
}

/* Checks an array of n values made by `print`, and an object of them. */
static void check_many(void (*print)(um_buf *b, int i), int n, size_t longest) {
    um_buf array = {0}, object = {0};
    for (int i = 0; i < n; i++) {
        um_buf_puts(&array, i ? "," : "[");
        um_buf_printf(&object, "%s\"%d\":", i ? "," : "{", i);
        print(&array, i);
        print(&object, i);
    }
    um_buf_putc(&array, ']');
    um_buf_putc(&object, '}');
    check((um_str){array.data, array.len}, longest);
    check((um_str){object.data, object.len}, longest);
    um_buf_free(&array);
    um_buf_free(&object);
}

static void put_object(um_buf *b, int i) { um_buf_puts(b, i % 3 ? "{}" : "{\"a\":true}"); }
static void put_array(um_buf *b, int i) { um_buf_puts(b, i % 3 ? "[]" : "[null]"); }
static void put_integer(um_buf *b, int i) { um_buf_printf(b, "%d", i % 2 ? i : -i); }
static void put_real(um_buf *b, int i) { um_buf_printf(b, "%d.5e-3", i); }
static void put_big(um_buf *b, int i) { um_buf_printf(b, "%d0000000000000000000", i + 1); }
static void put_string(um_buf *b, int i) {
    um_buf_printf(b, "\"\\\"%.*s\"", i % 60, "0123456789abcdef,:[]{} 0123456789abcdef 0123456789abcdef 0123456789");
}
static void put_members(um_buf *b, int i) {
    for (int k = 0; k <= i % 40; k++) um_buf_printf(b, "%s\"member %d\":\"%d\"", k ? "," : "{", k, i);
    um_buf_putc(b, '}');
}
static void put_deep(um_buf *b, int i) {
    for (int k = 0; k < i % 90; k++) um_buf_puts(b, k % 2 ? "[" : "{\"x\":");
    um_buf_putc(b, '1');
    for (int k = i % 90; k-- > 0;) um_buf_puts(b, k % 2 ? "]" : "}");
}

static void bounds_many_small_values(void **state) {
    static void (*const print[])(um_buf *, int) = {put_object, put_array,  put_integer, put_real,
                                                   put_big,    put_string, put_members, put_deep};
    (void)state;
    for (size_t i = 0; i < UM_LEN(print); i++)
        for (int n = 1; n < 4000; n = 3 * n + 1) check_many(print[i], n, 128);
}

static void counts_the_bytes_of_strings(void **state) {
    um_buf b = {0};
    (void)state;
    um_buf_puts(&b, "[\"");
    for (int i = 0; i < 100000; i++) um_buf_puts(&b, "words ");
    um_buf_puts(&b, "\"]");
    um_str text = {b.data, b.len};
    assert_in_range(um_json_memory(text), 600000, 601000);
    check(text, b.len);
    um_buf_free(&b);
}

/* What looks like structure inside of a string counts as bytes only. */
static void reads_no_structure_in_strings(void **state) {
    (void)state;
    assert_true(um_json_memory(UM_STR("[\"{{{{[[[[::::,,,,\"]")) < um_json_memory(UM_STR("[{}]")) + 128);
    assert_true(um_json_memory(UM_STR("[\"\\\"{[{[{[{[\"]")) < 400);
}

/* Invalid and cut texts are read to their end, no further. */
static void reads_invalid_text(void **state) {
    static const char *const text[] = {"", "\"", "\"\\", "[\"abc", "{", "-", "\xff\xff", "12e"};
    (void)state;
    for (size_t i = 0; i < UM_LEN(text); i++) {
        size_t n = strlen(text[i]);
        char *exact = um_alloc(n ? n : 1); /* the sanitizer sees a read after the text */
        memcpy(exact, text[i], n);
        assert_true(um_json_memory((um_str){exact, n}) < 1000);
        um_free(exact);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_many_small_values),
        cmocka_unit_test(counts_the_bytes_of_strings),
        cmocka_unit_test(reads_no_structure_in_strings),
        cmocka_unit_test(reads_invalid_text),
    };
    return cmocka_run_group_tests_name("base_json_memory", tests, NULL, NULL);
}
