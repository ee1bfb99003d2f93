/* Tests of GGUF files: reading them, and the errors for each kind of damaged or unsupported file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gguf_file.h"
#include "model_folder.h"

/* ---- Files that are right ---------------------------------------------------------------------------------------- */

static um_gguf *parse(const um_buf *b) {
    um_gguf *g = NULL;
    um_err err = {0};
    if (um_gguf_parse(&g, (const uint8_t *)b->data, b->len, "x.gguf", &err)) fail_msg("%s", err.msg);
    assert_string_equal(um_gguf_path(g), "x.gguf");
    return g;
}

static void reads_names_types_shapes_and_data(void **state) {
    static const uint64_t matrix[] = {2, 64}, cube[] = {2, 1, 3, 4};
    um_buf b = {0};
    (void)state;
    gguf_start(&b, 3, 3, 0);
    gguf_put_tensor(&b, "z", 2, matrix, GGML_Q8_0, 96);
    gguf_put_tensor(&b, "a", 4, cube, GGML_F32, 0);
    gguf_put_tensor(&b, "scalar", 0, NULL, GGML_F16, 256);
    gguf_finish(&b, 32, 258);
    um_gguf *g = parse(&b);
    assert_int_equal(um_gguf_count(g), 3);
    const um_gguf_tensor *z = um_gguf_find(g, "z"), *a = um_gguf_find(g, "a"), *scalar = um_gguf_find(g, "scalar");
    assert_ptr_equal(um_gguf_at(g, 0), z);
    assert_ptr_equal(um_gguf_at(g, 1), a);
    assert_ptr_equal(um_gguf_at(g, 2), scalar);
    assert_string_equal(z->name, "z");
    assert_int_equal(z->type, GGML_Q8_0);
    assert_int_equal(z->n_dims, 2);
    assert_int_equal(z->dim[0], 2);
    assert_int_equal(z->dim[1], 64);
    assert_int_equal(z->bytes, 4 * 34);
    assert_int_equal(z->data[0], 96);
    assert_int_equal(a->n_dims, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(a->dim[i], cube[i]);
    assert_int_equal(a->bytes, 96);
    assert_int_equal(a->data[95], 95);
    assert_int_equal(scalar->n_dims, 0);
    assert_int_equal(scalar->bytes, 2);
    assert_ptr_equal(scalar->data + 2, (const uint8_t *)b.data + b.len);
    assert_null(um_gguf_find(g, "b"));
    um_gguf_close(g);
    um_buf_free(&b);
}

static void data_starts_at_the_alignment_of_the_file(void **state) {
    static const uint32_t alignments[] = {8, 32, 256, 4096};
    (void)state;
    for (size_t i = 0; i < UM_LEN(alignments); i++) {
        const uint32_t alignment = alignments[i];
        um_buf b = {0};
        gguf_start(&b, 2, 2, 1);
        gguf_put_u32(&b, "general.alignment", alignment);
        gguf_put_vector(&b, "a", 1, GGML_F32, 0);
        gguf_put_vector(&b, "b", 1, GGML_F32, alignment);
        gguf_finish(&b, alignment, alignment + 4);
        um_gguf *g = parse(&b);
        assert_int_equal(um_gguf_at(g, 0)->data - (const uint8_t *)b.data, b.len - alignment - 4);
        assert_ptr_equal(um_gguf_at(g, 1)->data, (const uint8_t *)b.data + b.len - 4);
        um_gguf_close(g);
        um_buf_free(&b);
    }
}

static void a_file_may_have_no_tensors(void **state) {
    (void)state;
    um_buf b = {0};
    gguf_start(&b, 3, 0, 1);
    gguf_put_string(&b, "general.architecture", "llada");
    um_gguf *g = parse(&b);
    assert_int_equal(um_gguf_count(g), 0);
    assert_null(um_gguf_find(g, "a"));
    um_gguf_close(g);
    um_buf_clear(&b);
    gguf_start(&b, 3, 0, 0);
    g = parse(&b);
    assert_false(um_gguf_int(g, "general.alignment", &(int64_t){0}));
    um_gguf_close(g);
    um_buf_free(&b);
}

/* The integers of all widths with their lowest and highest values. */
static const struct {
    const char *key;
    um_gguf_type type;
    uint64_t bits;
    size_t bytes;
    int64_t value;
} integers[] = {
    {"u8", UM_GGUF_U8, 255, 1, 255},
    {"i8", UM_GGUF_I8, 128, 1, -128},
    {"u16", UM_GGUF_U16, 65535, 2, 65535},
    {"i16", UM_GGUF_I16, 0x8000, 2, -32768},
    {"u32", UM_GGUF_U32, UINT32_MAX, 4, UINT32_MAX},
    {"i32", UM_GGUF_I32, 0x80000000, 4, INT32_MIN},
    {"u64", UM_GGUF_U64, INT64_MAX, 8, INT64_MAX},
    {"i64", UM_GGUF_I64, (uint64_t)INT64_MAX + 1, 8, INT64_MIN},
};

static void reads_integers_of_all_widths(void **state) {
    um_buf b = {0};
    (void)state;
    gguf_start(&b, 3, 0, 2 * UM_LEN(integers) + 1);
    for (size_t i = 0; i < UM_LEN(integers); i++) {
        char key[32];
        gguf_put_key(&b, integers[i].key, integers[i].type);
        gguf_put(&b, integers[i].bits, integers[i].bytes);
        snprintf(key, sizeof key, "array of %s", integers[i].key);
        gguf_put_array(&b, key, integers[i].type, 2);
        gguf_put(&b, 7, integers[i].bytes);
        gguf_put(&b, integers[i].bits, integers[i].bytes);
    }
    gguf_put_key(&b, "large", UM_GGUF_U64);
    gguf_put(&b, UINT64_MAX, 8);
    um_gguf *g = parse(&b);
    for (size_t i = 0; i < UM_LEN(integers); i++) {
        char key[32];
        int64_t v = 0;
        double d = 0;
        um_gguf_type type;
        size_t n = 0;
        assert_true(um_gguf_int(g, integers[i].key, &v));
        assert_true(v == integers[i].value);
        assert_true(um_gguf_float(g, integers[i].key, &d) && d == (double)v);
        snprintf(key, sizeof key, "array of %s", integers[i].key);
        assert_true(um_gguf_array(g, key, &type, &n));
        assert_int_equal(type, integers[i].type);
        assert_int_equal(n, 2);
        assert_int_equal(um_gguf_array_int(g, key, 0), 7);
        assert_true(um_gguf_array_int(g, key, 1) == integers[i].value);
        assert_false(um_gguf_int(g, key, &v));
    }
    assert_false(um_gguf_int(g, "large", &(int64_t){0}));
    um_gguf_close(g);
    um_buf_free(&b);
}

static void reads_floats_and_bools(void **state) {
    um_buf b = {0};
    double d = 0;
    bool is_on = false;
    um_gguf_type type;
    size_t n;
    (void)state;
    gguf_start(&b, 3, 0, 5);
    gguf_put_key(&b, "f32", UM_GGUF_F32);
    gguf_put(&b, 0x3fc00000, 4);
    gguf_put_key(&b, "f64", UM_GGUF_F64);
    gguf_put(&b, 0xc004000000000000, 8);
    gguf_put_key(&b, "on", UM_GGUF_BOOL);
    gguf_put(&b, 1, 1);
    gguf_put_key(&b, "off", UM_GGUF_BOOL);
    gguf_put(&b, 0, 1);
    gguf_put_array(&b, "bools", UM_GGUF_BOOL, 3);
    gguf_put(&b, 0x010001, 3);
    um_gguf *g = parse(&b);
    assert_true(um_gguf_float(g, "f32", &d) && d == 1.5);
    assert_true(um_gguf_float(g, "f64", &d) && d == -2.5);
    assert_true(um_gguf_bool(g, "on", &is_on) && is_on);
    assert_true(um_gguf_bool(g, "off", &is_on) && !is_on);
    assert_true(um_gguf_array(g, "bools", &type, &n) && type == UM_GGUF_BOOL && n == 3);
    for (size_t i = 0; i < n; i++) assert_int_equal(um_gguf_array_int(g, "bools", i), i != 1);
    um_gguf_close(g);
    um_buf_free(&b);
}

static void reads_strings_by_index(void **state) {
    static const um_str words[] = {{"one", 3}, {"", 0}, {"nul\0inside", 10}, {"\xff", 1}, {"last", 4}};
    um_buf b = {0};
    um_str s = {0};
    um_gguf_type type;
    size_t n;
    (void)state;
    gguf_start(&b, 3, 0, 3);
    gguf_put_array(&b, "words", UM_GGUF_STRING, UM_LEN(words));
    for (size_t i = 0; i < UM_LEN(words); i++) gguf_put_bytes(&b, words[i].p, words[i].n);
    gguf_put_string(&b, "general.name", "a model");
    gguf_put_array(&b, "none", UM_GGUF_STRING, 0);
    um_gguf *g = parse(&b);
    assert_true(um_gguf_array(g, "words", &type, &n) && type == UM_GGUF_STRING && n == UM_LEN(words));
    for (size_t i = n; i-- > 0;) assert_true(um_str_eq(um_gguf_array_string(g, "words", i), words[i]));
    assert_true(um_gguf_string(g, "general.name", &s) && um_str_eq(s, UM_STR("a model")));
    assert_true(um_gguf_array(g, "none", &type, &n) && n == 0);
    um_gguf_close(g);
    um_buf_free(&b);
}

static void a_value_of_another_type_or_no_value_stores_nothing(void **state) {
    static const char *const keys[] = {"int", "string", "bool", "float", "array", "missing"};
    um_buf b = {0};
    (void)state;
    gguf_start(&b, 3, 0, 5);
    gguf_put_u32(&b, "int", 1);
    gguf_put_string(&b, "string", "s");
    gguf_put_key(&b, "bool", UM_GGUF_BOOL);
    gguf_put(&b, 1, 1);
    gguf_put_key(&b, "float", UM_GGUF_F32);
    gguf_put(&b, 0, 4);
    gguf_put_array(&b, "array", UM_GGUF_U8, 1);
    gguf_put(&b, 1, 1);
    um_gguf *g = parse(&b);
    for (size_t i = 0; i < UM_LEN(keys); i++) {
        int64_t v = 42;
        double d = 42;
        bool is_on = false;
        um_str s = {0};
        um_gguf_type type = UM_GGUF_F64;
        size_t n = 42;
        assert_true(um_gguf_int(g, keys[i], &v) == (i == 0) && (i == 0 || v == 42));
        assert_true(um_gguf_float(g, keys[i], &d) == (i == 0 || i == 3) && (i == 0 || i == 3 || d == 42));
        assert_true(um_gguf_bool(g, keys[i], &is_on) == (i == 2) && is_on == (i == 2));
        assert_true(um_gguf_string(g, keys[i], &s) == (i == 1) && !s.p == (i != 1));
        assert_true(um_gguf_array(g, keys[i], &type, &n) == (i == 4) && n == (i == 4 ? 1 : 42));
    }
    um_gguf_close(g);
    um_buf_free(&b);
}

static void opens_a_file(void **state) {
    um_buf b = {0};
    um_gguf *g = NULL;
    um_err err = {0};
    char *dir = folder_new(), *path = um_path_join(dir, "x.gguf"), *none = um_path_join(dir, "none.gguf");
    (void)state;
    gguf_start(&b, 3, 1, 0);
    gguf_put_vector(&b, "a", 8, GGML_F32, 0);
    gguf_finish(&b, 32, 32);
    folder_write(dir, "x.gguf", b.data, b.len);
    assert_int_equal(um_gguf_open(&g, path, &err), UM_OK);
    assert_string_equal(um_gguf_path(g), path);
    assert_int_equal(um_gguf_find(g, "a")->data[31], 31);
    um_gguf_close(g);
    assert_int_equal(truncate(path, (off_t)b.len - 1), 0);
    assert_int_equal(um_gguf_open(&g, path, &err), UM_EPARSE);
    assert_null(g);
    assert_says(&err, path);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(um_gguf_open(&g, path, NULL), UM_EPARSE);
    assert_int_equal(um_gguf_open(&g, none, &err), UM_ENOENT);
    assert_null(g);
    assert_says(&err, none);
    um_gguf_close(NULL);
    um_free(none);
    um_free(path);
    folder_free(dir);
    um_buf_free(&b);
}

/* ---- Damaged and unsupported files ------------------------------------------------------------------------------- */

static void empty(um_buf *b) { um_buf_puts(b, ""); }

static void magic_alone(um_buf *b) { um_buf_puts(b, "GGUF"); }

static void another_format(um_buf *b) { um_buf_puts(b, "this is a text of another program, with some more words"); }
static void archive(um_buf *b) { um_buf_puts(b, "PK\3\4 this is an archive of another program"); }
static void page(um_buf *b) { um_buf_puts(b, "<!DOCTYPE html><html><body>404</body></html>"); }
static void safetensors(um_buf *b) { um_buf_append(b, "\20\0\0\0\0\0\0\0{\"a\":{}}                ", 8 + 16); }

static void lfs_pointer(um_buf *b) { um_buf_puts(b, "version https://git-lfs.github.com/spec/v1\noid sha256:00\n"); }

static void version_1(um_buf *b) { gguf_start(b, 1, 0, 0); }

static void version_4(um_buf *b) { gguf_start(b, 4, 0, 0); }

static void big_endian(um_buf *b) { gguf_start(b, 3u << 24, 0, 0); }

static void more_keys_than_bytes(um_buf *b) {
    gguf_start(b, 3, 0, 1ull << 60);
    gguf_finish(b, 32, 64);
}

static void more_tensors_than_bytes(um_buf *b) {
    gguf_start(b, 3, UINT64_MAX, 0);
    gguf_finish(b, 32, 64);
}

static void too_many_keys(um_buf *b) {
    gguf_start(b, 3, 0, 65537);
    gguf_finish(b, 32, 65537 * 13);
}

static void empty_key(um_buf *b) {
    gguf_start(b, 3, 0, 2);
    gguf_put_u32(b, "a", 1);
    gguf_put_u32(b, "", 1);
}

static void key_with_nul(um_buf *b) {
    gguf_start(b, 3, 0, 1);
    gguf_put_bytes(b, "a\0b", 3);
    gguf_put(b, 0, 16);
}

static void key_not_utf8(um_buf *b) {
    gguf_start(b, 3, 0, 1);
    gguf_put_u32(b, "a\xff", 1);
}

static void long_key(um_buf *b) {
    char key[257] = {0};
    memset(key, 'k', 256);
    gguf_start(b, 3, 0, 1);
    gguf_put_u32(b, key, 1);
}

static void key_beyond_the_file(um_buf *b) {
    gguf_start(b, 3, 0, 1);
    gguf_put(b, UINT64_MAX, 8);
    gguf_put(b, 0, 8);
}

static void unknown_value(um_buf *b) {
    gguf_start(b, 3, 0, 1);
    gguf_put_key(b, "k", 13);
    gguf_put(b, 0, 8);
}

static void array_of_arrays(um_buf *b) {
    gguf_start(b, 3, 0, 1);
    gguf_put_array(b, "k", UM_GGUF_ARRAY, 1);
    gguf_put(b, 0, 16);
}

static void array_of_unknown_values(um_buf *b) {
    gguf_start(b, 3, 0, 1);
    gguf_put_array(b, "k", 99, 1);
    gguf_put(b, 0, 16);
}

/* 8 * 2^61 is 0 in 64 bits. */
static void array_that_overflows(um_buf *b) {
    gguf_start(b, 3, 0, 1);
    gguf_put_array(b, "k", UM_GGUF_U64, 1ull << 61);
    gguf_put(b, 0, 16);
}

static void array_beyond_the_file(um_buf *b) {
    gguf_start(b, 3, 0, 1);
    gguf_put_array(b, "k", UM_GGUF_U32, 5);
    gguf_put(b, 0, 16);
}

static void more_strings_than_bytes(um_buf *b) {
    gguf_start(b, 3, 0, 1);
    gguf_put_array(b, "k", UM_GGUF_STRING, 1ull << 40);
    gguf_put(b, 0, 16);
}

static void string_beyond_the_file(um_buf *b) {
    gguf_start(b, 3, 0, 1);
    gguf_put_array(b, "k", UM_GGUF_STRING, 2);
    gguf_put_text(b, "ok");
    gguf_put(b, 9, 8);
    um_buf_puts(b, "8 bytes.");
}

static void bool_of_2(um_buf *b) {
    gguf_start(b, 3, 0, 1);
    gguf_put_array(b, "k", UM_GGUF_BOOL, 2);
    gguf_put(b, 0x0201, 2);
}

static void key_twice(um_buf *b) {
    gguf_start(b, 3, 0, 3);
    gguf_put_u32(b, "k", 1);
    gguf_put_u32(b, "a", 1);
    gguf_put_u32(b, "k", 1);
}

static void alignment_of(um_buf *b, uint32_t alignment) {
    gguf_start(b, 3, 0, 1);
    gguf_put_u32(b, "general.alignment", alignment);
}

static void alignment_0(um_buf *b) { alignment_of(b, 0); }

static void alignment_4(um_buf *b) { alignment_of(b, 4); }

static void alignment_24(um_buf *b) { alignment_of(b, 24); }

static void alignment_that_is_text(um_buf *b) {
    gguf_start(b, 3, 0, 1);
    gguf_put_string(b, "general.alignment", "32");
}

static void part_of_a_split_file(um_buf *b) {
    gguf_start(b, 3, 0, 2);
    gguf_put_u32(b, "split.no", 1);
    gguf_put_u32(b, "split.count", 5);
}

/* A file with one tensor "t" and 64 bytes of data. */
static void one_tensor(um_buf *b, uint32_t n_dims, const uint64_t *dim, uint32_t type, uint64_t offset) {
    gguf_start(b, 3, 1, 0);
    gguf_put_tensor(b, "t", n_dims, dim, type, offset);
    gguf_finish(b, 32, 64);
}

static void one_vector(um_buf *b, uint64_t n, uint32_t type, uint64_t offset) { one_tensor(b, 1, &n, type, offset); }

static void five_dimensions(um_buf *b) { one_tensor(b, 5, (const uint64_t[]){1, 1, 1, 1, 1}, GGML_F32, 0); }

static void no_elements(um_buf *b) { one_tensor(b, 2, (const uint64_t[]){4, 0}, GGML_F32, 0); }

static void negative_dimension(um_buf *b) { one_vector(b, UINT64_MAX, GGML_F32, 0); }

static void elements_overflow(um_buf *b) { one_tensor(b, 2, (const uint64_t[]){1ull << 32, 1ull << 32}, GGML_F32, 0); }

static void bytes_overflow(um_buf *b) { one_vector(b, 1ull << 61, GGML_I64, 0); }

static void part_of_a_group(um_buf *b) { one_tensor(b, 2, (const uint64_t[]){32, 4}, GGML_Q4_0, 0); }

static void scalar_of_groups(um_buf *b) { one_tensor(b, 0, NULL, GGML_Q4_K, 0); }

static void unsupported_type(um_buf *b) { one_vector(b, 256, GGML_IQ2_XS, 0); }

static void unknown_type(um_buf *b) { one_vector(b, 256, 1000, 0); }

static void odd_offset(um_buf *b) { one_vector(b, 1, GGML_F32, 16); }

static void large_offset(um_buf *b) { one_vector(b, 1, GGML_F32, UINT64_MAX - 31); }

static void cut_data(um_buf *b) { one_vector(b, 17, GGML_F32, 0); }

static void cut_second_tensor(um_buf *b) { one_vector(b, 9, GGML_F32, 32); }

static void cut_row_of_tensors(um_buf *b) {
    gguf_start(b, 3, 1, 0);
    gguf_put_text(b, "a tensor with a long name");
    gguf_put(b, 2, 4);
    gguf_put(b, 1, 8);
}

static void two_tensors(um_buf *b, const char *name, uint64_t offset) {
    gguf_start(b, 3, 2, 0);
    gguf_put_vector(b, name, 8, GGML_F32, offset);
    gguf_put_vector(b, "b", 9, GGML_F32, 0);
    gguf_finish(b, 32, 128);
}

static void overlapping_tensors(um_buf *b) { two_tensors(b, "a", 32); }

static void equal_offsets(um_buf *b) { two_tensors(b, "a", 0); }

static void tensor_twice(um_buf *b) { two_tensors(b, "b", 64); }

static void tensor_without_a_name(um_buf *b) { two_tensors(b, "", 64); }

static const struct {
    void (*build)(um_buf *b);
    um_status status;
    const char *says;
} refused[] = {
    {empty, UM_EPARSE, "x.gguf: the file has 0 bytes, a GGUF file has at least 24"},
    {magic_alone, UM_EPARSE, "the file has 4 bytes, a GGUF file has at least 24: the download is incomplete"},
    {another_format, UM_EPARSE, "not a GGUF file, because it does not start with \"GGUF\""},
    {lfs_pointer, UM_EPARSE, "x.gguf: this is not a GGUF file but a Git LFS pointer: run 'git lfs pull'"},
    {archive, UM_EPARSE, "this is not a GGUF file but a zip archive, as PyTorch writes them"},
    {page, UM_EPARSE, "this is not a GGUF file but an HTML page: the download has failed"},
    {safetensors, UM_EPARSE, "this is not a GGUF file but a safetensors file"},
    {version_1, UM_EUNSUPPORTED, "GGUF version 1, unmask reads versions 2 and 3: convert the model again"},
    {version_4, UM_EUNSUPPORTED, "GGUF version 4, unmask reads versions 2 and 3"},
    {big_endian, UM_EUNSUPPORTED, "big-endian"},
    {more_keys_than_bytes, UM_EPARSE, "claims 1152921504606846976 keys, but the file has only 72 more bytes"},
    {more_tensors_than_bytes, UM_EPARSE, "claims 18446744073709551615 tensors, but the file has only 72 more bytes"},
    {too_many_keys, UM_ELIMIT, "more than 65536 keys"},
    {empty_key, UM_EPARSE, "key 2 of 2: its name is empty"},
    {key_with_nul, UM_EPARSE, "key 1 of 1: its name is not valid UTF-8 without NUL"},
    {key_not_utf8, UM_EPARSE, "key 1 of 1: its name is not valid UTF-8"},
    {long_key, UM_ELIMIT, "its name has 256 bytes, unmask reads at most 255"},
    {key_beyond_the_file, UM_EPARSE, "key 1 of 1: the header goes past the end of the file, which has 40 bytes"},
    {unknown_value, UM_EPARSE, "key k: unknown type of value 13"},
    {array_of_arrays, UM_EUNSUPPORTED, "key k: the value is an array of arrays"},
    {array_of_unknown_values, UM_EPARSE, "key k: unknown type of value 99"},
    {array_that_overflows, UM_EPARSE, "key k: the header goes past the end of the file"},
    {array_beyond_the_file, UM_EPARSE, "key k: the header goes past the end of the file"},
    {more_strings_than_bytes, UM_EPARSE, "key k: the header claims 1099511627776 strings"},
    {string_beyond_the_file, UM_EPARSE, "key k: the header goes past the end of the file"},
    {bool_of_2, UM_EPARSE, "key k: a bool is 2, expected 0 or 1"},
    {key_twice, UM_EPARSE, "x.gguf: duplicate key k"},
    {alignment_0, UM_EPARSE, "key general.alignment is 0, expected a power of two"},
    {alignment_4, UM_EPARSE, "key general.alignment is 4, expected a power of two of 8..2^31"},
    {alignment_24, UM_EPARSE, "key general.alignment is 24, expected a power of two"},
    {alignment_that_is_text, UM_EPARSE, "key general.alignment is not an integer"},
    {part_of_a_split_file, UM_EUNSUPPORTED, "part 2 of 5 of a split file"},
    {five_dimensions, UM_EPARSE, "tensor t: it has 5 dimensions, a GGUF tensor has at most 4"},
    {no_elements, UM_EPARSE, "tensor t: dimension 1 is 0"},
    {negative_dimension, UM_EPARSE, "tensor t: dimension 0 is 18446744073709551615"},
    {elements_overflow, UM_EPARSE, "tensor t: the product of its dimensions overflows"},
    {bytes_overflow, UM_EPARSE, "tensor t: the product of its dimensions overflows"},
    {part_of_a_group, UM_EPARSE, "tensor t: its rows have 4 elements, type Q4_0 needs a multiple of 32"},
    {scalar_of_groups, UM_EPARSE, "tensor t: its rows have 1 elements, type Q4_K needs a multiple of 256"},
    {unsupported_type, UM_EUNSUPPORTED, "tensor t: unmask does not read its type IQ2_XS (number 17)"},
    {unknown_type, UM_EUNSUPPORTED, "tensor t: unmask does not read its type unknown (number 1000)"},
    {odd_offset, UM_EPARSE, "tensor t: its offset 16 is not a multiple of the alignment 32"},
    {large_offset, UM_EPARSE, "tensor t: its offset 18446744073709551584 is too large"},
    {cut_data, UM_EPARSE, "tensor t: it ends at byte 132, but the file has 128 bytes: the download is incomplete"},
    {cut_second_tensor, UM_EPARSE, "tensor t: it ends at byte 132, but the file has 128 bytes"},
    {cut_row_of_tensors, UM_EPARSE, "tensor a tensor with a long name: the header goes past the end of the file"},
    {overlapping_tensors, UM_EPARSE, "tensors b and a overlap at byte 32 of the data"},
    {equal_offsets, UM_EPARSE, "overlap at byte 0 of the data"},
    {tensor_twice, UM_EPARSE, "duplicate tensor b"},
    {tensor_without_a_name, UM_EPARSE, "tensor 1 of 2: its name is empty"},
};

/* The file is copied to memory of exactly its size, so that sanitizers see a byte that is read behind it. */
static void refuses(const um_buf *b, size_t n, um_status status, const char *says) {
    um_err err = {0};
    um_gguf *g = NULL;
    uint8_t *copy = um_alloc(n);
    if (n) memcpy(copy, b->data, n);
    assert_int_equal(um_gguf_parse(&g, copy, n, "x.gguf", &err), status);
    assert_null(g);
    assert_says(&err, "x.gguf: ");
    assert_says(&err, says);
    um_free(copy);
}

static void names_what_is_wrong_with_a_file(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(refused); i++) {
        um_buf b = {0};
        refused[i].build(&b);
        refuses(&b, b.len, refused[i].status, refused[i].says);
        um_buf_free(&b);
    }
}

static void refuses_a_file_that_ends_early(void **state) {
    um_buf b = {0};
    (void)state;
    gguf_start(&b, 3, 2, 3);
    gguf_put_u32(&b, "int", 1);
    gguf_put_array(&b, "words", UM_GGUF_STRING, 2);
    gguf_put_text(&b, "one");
    gguf_put_text(&b, "two");
    gguf_put_array(&b, "numbers", UM_GGUF_I16, 3);
    gguf_put(&b, 0, 6);
    gguf_put_vector(&b, "a", 32, GGML_Q8_0, 0);
    gguf_put_vector(&b, "b", 4, GGML_F32, 64);
    gguf_finish(&b, 32, 80);
    um_gguf_close(parse(&b));
    for (size_t n = 0; n < b.len; n++) refuses(&b, n, UM_EPARSE, n < 24 ? "fetch it again" : "fetch the file again");
    um_buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_names_types_shapes_and_data),
        cmocka_unit_test(data_starts_at_the_alignment_of_the_file),
        cmocka_unit_test(a_file_may_have_no_tensors),
        cmocka_unit_test(reads_integers_of_all_widths),
        cmocka_unit_test(reads_floats_and_bools),
        cmocka_unit_test(reads_strings_by_index),
        cmocka_unit_test(a_value_of_another_type_or_no_value_stores_nothing),
        cmocka_unit_test(opens_a_file),
        cmocka_unit_test(names_what_is_wrong_with_a_file),
        cmocka_unit_test(refuses_a_file_that_ends_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
