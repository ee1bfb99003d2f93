/* Tests of safetensors files and indexes: reading them, and the errors for each kind of wrong header. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model_folder.h"

/* ---- One file ---------------------------------------------------------------------------------------------------- */

/* Parses a file with this header (single quotes stand for double ones) and the 32 bytes of data 0, 1, 2, ... */
static um_status parse(um_store **out, um_buf *file, const char *header, um_err *err) {
    uint8_t data[32];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)i;
    char *text = quoted(header);
    safetensors_put(file, text, data, sizeof data);
    um_free(text);
    *out = um_store_new();
    return um_safetensors_parse(*out, (const uint8_t *)file->data, file->len, "x.safetensors", NULL, err);
}

static void rejects(const char *header, um_status want, const char *part) {
    um_store *s;
    um_buf file = {0};
    um_err err = {0};
    assert_int_equal(parse(&s, &file, header, &err), want);
    assert_says(&err, "x.safetensors");
    assert_says(&err, part);
    um_store_close(s);
    um_buf_free(&file);
}

static void rejects_bytes(const void *data, size_t n, const char *part) {
    um_store *s = um_store_new();
    um_err err = {0};
    assert_int_not_equal(um_safetensors_parse(s, data, n, "x.safetensors", NULL, &err), UM_OK);
    assert_says(&err, part);
    um_store_close(s);
}

static void reads_name_type_shape_and_data(void **state) {
    (void)state;
    um_store *s;
    um_buf file = {0};
    um_err err = {0};
    um_status st = parse(&s, &file,
                         "{'b':{'dtype':'BF16','shape':[2,4],'data_offsets':[16,32]},"
                         "'__metadata__':{'format':'pt'},"
                         "'a':{'dtype':'F32','shape':[4],'data_offsets':[0,16]}}",
                         &err);
    assert_int_equal(st, UM_OK);
    assert_int_equal(um_store_count(s), 2);
    const um_tensor *b = um_store_find(s, "b");
    assert_non_null(b);
    assert_int_equal(b->type, UM_BF16);
    assert_int_equal(b->n_dims, 2);
    assert_int_equal(b->dim[0], 2);
    assert_int_equal(b->dim[1], 4);
    assert_int_equal(((const uint8_t *)b->data)[0], 16);
    assert_ptr_equal(um_store_at(s, um_store_index(s, b)), b);
    assert_string_equal(um_store_file(s, b), "x.safetensors");
    assert_null(um_store_find(s, "__metadata__"));
    um_store_close(s);
    um_buf_free(&file);
}

static void accepts_a_file_without_tensors(void **state) {
    (void)state;
    um_store *s;
    um_buf file = {0};
    um_err err = {0};
    assert_int_equal(parse(&s, &file, "{}", &err), UM_OK);
    assert_int_equal(um_store_count(s), 0);
    assert_null(um_store_find(s, "a"));
    um_store_close(s);
    um_buf_free(&file);
}

static void lists_types_that_nothing_computes_with(void **state) {
    (void)state;
    um_store *s;
    um_buf file = {0};
    um_err err = {0};
    assert_int_equal(parse(&s, &file,
                           "{'i':{'dtype':'I64','shape':[2],'data_offsets':[0,16]},"
                           "'n':{'dtype':'F4_NEW','shape':[2],'data_offsets':[16,17]}}",
                           &err),
                     UM_OK);
    assert_true(um_store_find(s, "i")->type == UM_DTYPE_OTHER);
    assert_string_equal(um_store_type(um_store_find(s, "n")), "F4_NEW");
    um_store_close(s);
    um_buf_free(&file);
}

static void rejects_file_without_length(void **state) {
    (void)state;
    rejects_bytes("1234567", 7, "7 bytes");
    rejects_bytes("", 0, "0 bytes");
}

static void rejects_header_longer_than_file(void **state) {
    (void)state;
    rejects_bytes("\x03\0\0\0\0\0\0\0{}", 10, "the header claims 3 bytes, but the file has 2");
    rejects_bytes("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "truncated or not a safetensors file");
}

static void recognises_a_git_lfs_pointer(void **state) {
    (void)state;
    static const char text[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    rejects_bytes(text, sizeof text - 1, "git lfs pull");
}

static void rejects_header_that_is_no_json(void **state) {
    (void)state;
    rejects("{'a':\n  nonsense}", UM_EPARSE, "line 2, column");
    rejects("[]", UM_EPARSE, "must be a JSON object");
}

static void rejects_tensor_beyond_the_file(void **state) {
    (void)state;
    rejects("{'a':{'dtype':'F32','shape':[9],'data_offsets':[0,36]}}", UM_EPARSE, "tensor a ends at byte 36");
}

static void rejects_shape_that_contradicts_offsets(void **state) {
    (void)state;
    rejects("{'a':{'dtype':'F32','shape':[3],'data_offsets':[0,16]}}", UM_EPARSE,
            "need 12 bytes, data_offsets give 16");
}

static void rejects_shape_that_overflows(void **state) {
    (void)state;
    rejects("{'a':{'dtype':'F32','shape':[4294967296,4294967296,4],'data_offsets':[0,0]}}", UM_EPARSE, "overflows");
}

static void reads_four_dimensions(void **state) {
    (void)state;
    um_store *s;
    um_buf file = {0};
    um_err err = {0};
    char text[UM_SHAPE_TEXT];
    assert_int_equal(parse(&s, &file, "{'a':{'dtype':'F32','shape':[2,1,4,1],'data_offsets':[0,32]}}", &err), UM_OK);
    const um_tensor *a = um_store_find(s, "a");
    assert_int_equal(a->n_dims, 4);
    assert_int_equal(um_tensor_elements(a), 8);
    um_shape_print(text, a->dim, a->n_dims);
    assert_string_equal(text, "[2, 1, 4, 1]");
    um_store_close(s);
    um_buf_free(&file);
}

static void rejects_more_dimensions_than_a_tensor_holds(void **state) {
    (void)state;
    rejects("{'a':{'dtype':'F32','shape':[1,1,1,1,1],'data_offsets':[0,4]}}", UM_EPARSE,
            "tensor a has 5 dimensions, unmask reads at most 4");
    rejects("{'a':{'dtype':'I64','shape':[1,1,1,1,1,1],'data_offsets':[0,8]}}", UM_EPARSE, "6 dimensions");
    rejects("{'a':{'dtype':'F4_NEW','shape':[1,0,1,1,1],'data_offsets':[0,0]}}", UM_EPARSE, "5 dimensions");
}

/* The size of an element is unknown, so the number of bytes can't be checked exactly. The number of elements must still
 * be limited, so that the sum over all tensors does not overflow. */
static void rejects_unknown_type_with_less_than_a_bit_per_element(void **state) {
    (void)state;
    rejects("{'a':{'dtype':'F4_NEW','shape':[4294967296,4294967295],'data_offsets':[0,8]}}", UM_EPARSE,
            "tensor a: its shape has 18446744069414584320 elements, but data_offsets give 8 bytes");
    rejects("{'a':{'dtype':'F4_NEW','shape':[17],'data_offsets':[0,2]}}", UM_EPARSE, "17 elements");
}

static void rejects_malformed_entries(void **state) {
    (void)state;
    rejects("{'a':{'dtype':'F32','shape':[-1],'data_offsets':[0,4]}}", UM_EPARSE, "dimension 0");
    rejects("{'a':{'dtype':'F32','shape':[1.5],'data_offsets':[0,4]}}", UM_EPARSE, "dimension 0");
    rejects("{'a':{'dtype':'F32','shape':4,'data_offsets':[0,16]}}", UM_EPARSE, "no \"shape\"");
    rejects("{'a':{'dtype':'F32','shape':[4],'data_offsets':[16,0]}}", UM_EPARSE, "data_offsets");
    rejects("{'a':{'dtype':'F32','shape':[4],'data_offsets':[-4,12]}}", UM_EPARSE, "data_offsets");
    rejects("{'a':{'dtype':'F32','shape':[4],'data_offsets':[0,16,32]}}", UM_EPARSE, "data_offsets");
    rejects("{'a':{'shape':[4],'data_offsets':[0,16]}}", UM_EPARSE, "no valid \"dtype\"");
    rejects("{'a':7}", UM_EPARSE, "tensor a");
}

static void rejects_overlapping_tensors(void **state) {
    (void)state;
    rejects("{'a':{'dtype':'F32','shape':[4],'data_offsets':[0,16]},"
            "'b':{'dtype':'F32','shape':[4],'data_offsets':[12,28]}}",
            UM_EPARSE, "tensors a and b overlap at byte 12");
}

static void rejects_a_tensor_named_twice(void **state) {
    (void)state;
    rejects("{'a':{'dtype':'F32','shape':[4],'data_offsets':[0,16]},"
            "'a':{'dtype':'F32','shape':[4],'data_offsets':[16,32]}}",
            UM_EPARSE, "duplicate key \"a\"");
}

/* ---- Folders ----------------------------------------------------------------------------------------------------- */

static void write_one(const char *dir, const char *file, const char *tensor) {
    char header[128];
    float data[4] = {1, 2, 3, 4};
    snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", tensor);
    folder_write_safetensors(dir, file, header, data, sizeof data);
}

static void write_index(const char *dir, const char *map) {
    um_buf b = {0};
    char *text = quoted(map);
    um_buf_printf(&b, "{\"metadata\":{},\"weight_map\":%s}", text);
    folder_write(dir, "model.safetensors.index.json", b.data, b.len);
    um_free(text);
    um_buf_free(&b);
}

static void refuses_folder(const char *dir, um_status want, const char *part) {
    um_store *s;
    um_err err = {0};
    assert_int_equal(um_store_open(&s, dir, &err), want);
    assert_null(s);
    assert_says(&err, part);
}

static void opens_the_shards_of_an_index(void **state) {
    (void)state;
    char *dir = folder_new();
    um_store *s;
    um_err err = {0};
    write_one(dir, "one.safetensors", "a");
    write_one(dir, "two.safetensors", "b");
    write_index(dir, "{'a':'one.safetensors','b':'two.safetensors'}");
    assert_int_equal(um_store_open(&s, dir, &err), UM_OK);
    assert_int_equal(um_store_count(s), 2);
    assert_string_equal(um_store_file(s, um_store_find(s, "b")), "two.safetensors");
    um_store_close(s);
    folder_free(dir);
}

static void names_a_missing_shard(void **state) {
    (void)state;
    char *dir = folder_new();
    write_one(dir, "one.safetensors", "a");
    write_index(dir, "{'a':'one.safetensors','b':'two.safetensors'}");
    refuses_folder(dir, UM_ENOENT, "names 2 shards");
    folder_free(dir);
    dir = folder_new();
    write_index(dir, "{'a':'1','b':'2','c':'3','d':'4','e':'5','f':'5','g':'6'}");
    refuses_folder(dir, UM_ENOENT, "does not hold 1, 2, 3, 4 and 2 more");
    folder_free(dir);
}

static void names_a_shard_that_the_index_leaves_out(void **state) {
    (void)state;
    char *dir = folder_new();
    um_store *s;
    um_err err = {0};
    write_one(dir, "model-00001-of-00003.safetensors", "a");
    write_one(dir, "model-00003-of-00003.safetensors", "b");
    write_index(dir, "{'a':'model-00001-of-00003.safetensors','b':'model-00003-of-00003.safetensors'}");
    int old = catch_stderr(dir);
    um_status st = um_store_open(&s, dir, &err);
    um_buf said = release_stderr(dir, old);
    assert_int_equal(st, UM_OK);
    assert_non_null(strstr(said.data, "names no tensor of model-00002-of-00003.safetensors"));
    assert_null(strstr(said.data, "model-00001"));
    um_buf_free(&said);
    um_store_close(s);
    folder_free(dir);
}

static void tells_a_dangling_link_from_no_weights(void **state) {
    (void)state;
    char *dir = folder_new(), *link = um_path_join(dir, "model.safetensors");
    assert_int_equal(symlink("/no/such/blob", link), 0);
    refuses_folder(dir, UM_ENOENT, "a link to a missing file");
    um_free(link);
    folder_free(dir);
}

static void names_a_tensor_that_its_shard_lacks(void **state) {
    (void)state;
    char *dir = folder_new();
    write_one(dir, "one.safetensors", "a");
    write_index(dir, "{'a':'one.safetensors','b':'one.safetensors'}");
    refuses_folder(dir, UM_EMODEL, "tensor b is not in one.safetensors");
    folder_free(dir);
}

static void rejects_a_tensor_in_two_shards(void **state) {
    (void)state;
    char *dir = folder_new();
    write_one(dir, "one.safetensors", "a");
    write_one(dir, "two.safetensors", "a");
    write_index(dir, "{'a':'one.safetensors','b':'two.safetensors'}");
    refuses_folder(dir, UM_EMODEL, "tensor a is stored twice");
    folder_free(dir);
}

static void rejects_shards_outside_the_folder(void **state) {
    (void)state;
    static const char *const maps[] = {"{'a':'../one.safetensors'}", "{'a':'/etc/passwd'}", "{'a':''}", "{'a':7}"};
    for (size_t i = 0; i < UM_LEN(maps); i++) {
        char *dir = folder_new();
        write_index(dir, maps[i]);
        refuses_folder(dir, UM_EPARSE, "a file of the same folder");
        folder_free(dir);
    }
}

static void rejects_an_index_without_a_map(void **state) {
    (void)state;
    static const char *const texts[] = {"{}", "{\"weight_map\":[]}", "{\"weight_map\":"};
    static const char *const says[] = {"\"weight_map\"", "\"weight_map\"", "model.safetensors.index.json:1:"};
    for (size_t i = 0; i < UM_LEN(texts); i++) {
        char *dir = folder_new();
        folder_write_text(dir, "model.safetensors.index.json", texts[i]);
        refuses_folder(dir, UM_EPARSE, says[i]);
        folder_free(dir);
    }
}

static void says_what_a_folder_without_safetensors_holds(void **state) {
    (void)state;
    char *dir = folder_new();
    refuses_folder(dir, UM_ENOENT, "neither model.safetensors nor");
    folder_write_text(dir, "pytorch_model.bin", "x");
    refuses_folder(dir, UM_EUNSUPPORTED, "pytorch_model.bin");
    folder_free(dir);
}

static void names_a_truncated_file(void **state) {
    (void)state;
    char *dir = folder_new();
    write_one(dir, "model.safetensors", "a");
    char *path = um_path_join(dir, "model.safetensors");
    assert_int_equal(truncate(path, 70), 0);
    refuses_folder(dir, UM_EPARSE, path);
    assert_int_equal(truncate(path, 0), 0);
    refuses_folder(dir, UM_EPARSE, "0 bytes");
    um_free(path);
    folder_free(dir);
}

/* ---- Tensors in memory ------------------------------------------------------------------------------------------- */

static void lists_tensors_that_lie_in_memory(void **state) {
    static const uint16_t data[4] = {1, 2, 3, 4};
    char name[] = "b";
    const um_tensor t[] = {{.name = name, .type = UM_BF16, .n_dims = 2, .dim = {2, 2}, .data = data},
                           {.name = "a", .type = UM_F32, .n_dims = 1, .dim = {1}, .data = data}};
    um_store *s;
    um_err err = {0};
    (void)state;
    assert_int_equal(um_store_list(&s, t, 2, "memory", &err), UM_OK);
    name[0] = 'x'; /* the name was copied */
    const um_tensor *b = um_store_find(s, "b");
    assert_non_null(b);
    assert_ptr_equal(b->data, data);
    assert_int_equal(b->dim[1], 2);
    assert_string_equal(um_store_at(s, 0)->name, "a");
    assert_string_equal(um_store_type(b), "BF16");
    assert_string_equal(um_store_file(s, b), "memory");
    um_store_release(s, b);
    um_store_close(s);
    const um_tensor twice[] = {t[1], t[1]};
    assert_int_equal(um_store_list(&s, twice, 2, "memory", &err), UM_EMODEL);
    assert_says(&err, "stored twice");
    assert_null(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_name_type_shape_and_data),
        cmocka_unit_test(accepts_a_file_without_tensors),
        cmocka_unit_test(lists_types_that_nothing_computes_with),
        cmocka_unit_test(rejects_file_without_length),
        cmocka_unit_test(rejects_header_longer_than_file),
        cmocka_unit_test(recognises_a_git_lfs_pointer),
        cmocka_unit_test(rejects_header_that_is_no_json),
        cmocka_unit_test(rejects_tensor_beyond_the_file),
        cmocka_unit_test(rejects_shape_that_contradicts_offsets),
        cmocka_unit_test(rejects_shape_that_overflows),
        cmocka_unit_test(reads_four_dimensions),
        cmocka_unit_test(rejects_more_dimensions_than_a_tensor_holds),
        cmocka_unit_test(rejects_unknown_type_with_less_than_a_bit_per_element),
        cmocka_unit_test(rejects_malformed_entries),
        cmocka_unit_test(rejects_overlapping_tensors),
        cmocka_unit_test(rejects_a_tensor_named_twice),
        cmocka_unit_test(opens_the_shards_of_an_index),
        cmocka_unit_test(names_a_missing_shard),
        cmocka_unit_test(names_a_shard_that_the_index_leaves_out),
        cmocka_unit_test(tells_a_dangling_link_from_no_weights),
        cmocka_unit_test(names_a_tensor_that_its_shard_lacks),
        cmocka_unit_test(rejects_a_tensor_in_two_shards),
        cmocka_unit_test(rejects_shards_outside_the_folder),
        cmocka_unit_test(rejects_an_index_without_a_map),
        cmocka_unit_test(says_what_a_folder_without_safetensors_holds),
        cmocka_unit_test(names_a_truncated_file),
        cmocka_unit_test(lists_tensors_that_lie_in_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
