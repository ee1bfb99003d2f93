/* The formats of ggml: bit-equality with the package gguf (tools/reference/gguf_vectors.py), and the table of types. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <jansson.h>

#include "ops/format.h"

enum { MARK = 0x5a };

/* Reads `digits` hexadecimal digits. */
static uint32_t hex(const char *s, size_t digits) {
    char text[9] = {0};
    assert_true(digits < sizeof text && strlen(s) >= digits);
    memcpy(text, s, digits);
    return (uint32_t)strtoul(text, NULL, 16);
}

/* Converts a group that lies at an odd address. Compares the bits, and checks that no byte behind the result changed.
 */
static void check_group(const um_format *f, const char *group, const char *values) {
    uint8_t stored[1 + UM_FORMAT_BYTES_MAX];
    float out[UM_FORMAT_ELEMENTS_MAX + 16];
    assert_int_equal(strlen(group), 2 * (size_t)f->bytes);
    assert_int_equal(strlen(values), 8 * (size_t)f->elements);
    for (int32_t i = 0; i < f->bytes; i++) stored[1 + i] = (uint8_t)hex(group + 2 * i, 2);
    memset(out, MARK, sizeof out);
    f->to_f32(stored + 1, out);
    for (int32_t i = 0; i < f->elements; i++) {
        uint32_t bits;
        memcpy(&bits, &out[i], sizeof bits);
        if (bits != hex(values + 8 * i, 8))
            fail_msg("%s: element %d of group %s is %.9g (%08x), expected %.8s", f->name, i, group, (double)out[i],
                     bits, values + 8 * i);
    }
    const uint8_t *behind = (const uint8_t *)(out + f->elements);
    for (size_t i = 0; i < 16 * sizeof *out; i++) assert_int_equal(behind[i], MARK);
}

static void every_format_has_the_bits_of_the_reference(void **state) {
    (void)state;
    const char *name;
    json_t *vector, *root = json_load_file("build/data/gguf/formats.json", 0, NULL);
    size_t n = 0;
    assert_non_null(root);
    json_object_foreach(root, name, vector) {
        const um_format *f = um_format_gguf((uint32_t)json_integer_value(json_object_get(vector, "type")));
        json_t *groups = json_object_get(vector, "groups"), *values = json_object_get(vector, "values");
        assert_non_null(f);
        assert_string_equal(f->name, name);
        assert_int_equal(f->elements, json_integer_value(json_object_get(vector, "elements")));
        assert_true(json_array_size(groups) >= 3 && json_array_size(groups) == json_array_size(values));
        for (size_t i = 0; i < json_array_size(groups); i++)
            check_group(f, json_string_value(json_array_get(groups, i)), json_string_value(json_array_get(values, i)));
        n++;
    }
    json_decref(root);
    assert_int_equal(n, 13);
}

static void groups_fit_the_limits(void **state) {
    int32_t elements = 0, bytes = 0, n = 0;
    (void)state;
    for (uint32_t type = 0; type < 1000; type++) {
        const um_format *f = um_format_gguf(type);
        if (!f) continue;
        assert_string_equal(f->name, um_format_gguf_name(type));
        elements = UM_MAX(elements, f->elements);
        bytes = UM_MAX(bytes, f->bytes);
        n++;
    }
    assert_int_equal(n, 13);
    assert_int_equal(elements, UM_FORMAT_ELEMENTS_MAX);
    assert_int_equal(bytes, UM_FORMAT_BYTES_MAX);
}

static void types_without_a_format_have_a_name(void **state) {
    static const struct {
        uint32_t type;
        const char *name;
    } row[] = {{0, "F32"},     {1, "F16"},        {30, "BF16"},           {28, "F64"}, {17, "IQ2_XS"}, {4, "unknown"},
               {5, "unknown"}, {1000, "unknown"}, {UINT32_MAX, "unknown"}};
    (void)state;
    for (size_t i = 0; i < UM_LEN(row); i++) {
        assert_null(um_format_gguf(row[i].type));
        assert_string_equal(um_format_gguf_name(row[i].type), row[i].name);
    }
    assert_ptr_equal(um_format_gguf(12), &um_format_q4_k);
    assert_ptr_equal(um_format_gguf(8), &um_format_q8_0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_has_the_bits_of_the_reference),
        cmocka_unit_test(groups_fit_the_limits),
        cmocka_unit_test(types_without_a_format_have_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
