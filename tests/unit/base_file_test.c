/* base: files, maps, paths. */
#include "base/base.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#include <unistd.h>

/* Creates a file of n bytes 'a' in a new folder; drop_file removes both. */
typedef struct temp {
    char dir[64], path[80];
} temp;

static temp make_file(size_t n) {
    temp t = {"/tmp/unmask-file-XXXXXX", ""};
    assert_non_null(mkdtemp(t.dir));
    snprintf(t.path, sizeof t.path, "%s/data", t.dir);
    FILE *f = fopen(t.path, "w");
    assert_non_null(f);
    for (size_t i = 0; i < n; i++) fputc('a', f);
    fclose(f);
    return t;
}

static void drop_file(temp *t) {
    unlink(t->path);
    rmdir(t->dir);
}

static void reads_files_up_to_the_limit(void **state) {
    (void)state;
    temp t = make_file(100000);
    um_buf b = {0};
    um_err err;
    um_buf_puts(&b, "old");
    assert_int_equal(um_file_read(t.path, 100000, &b, &err), UM_OK);
    assert_int_equal(b.len, 100000);
    assert_int_equal(strspn(b.data, "a"), 100000);
    assert_int_equal(um_file_read(t.path, 99999, &b, &err), UM_ELIMIT);
    assert_non_null(strstr(err.msg, t.path));
    assert_non_null(strstr(err.msg, "99999"));
    um_buf_free(&b);
    drop_file(&t);
}

static void reads_texts_without_a_byte_order_mark(void **state) {
    (void)state;
    static const char *const written[] = {"\xEF\xBB\xBF{}", "{}",       "",
                                          "\xEF\xBB\xBF",   "\xEF\xBB", "\xEF\xBB\xBF\xEF\xBB\xBF"};
    static const char *const expected[] = {"{}", "{}", "", "", "\xEF\xBB", "\xEF\xBB\xBF"};
    um_buf b = {0};
    um_err err;
    for (size_t i = 0; i < UM_LEN(written); i++) {
        temp t = make_file(0);
        FILE *f = fopen(t.path, "w");
        assert_non_null(f);
        fputs(written[i], f);
        fclose(f);
        assert_int_equal(um_file_read_text(t.path, 10, &b, &err), UM_OK);
        assert_string_equal(b.data, expected[i]);
        assert_int_equal(b.len, strlen(expected[i]));
        drop_file(&t);
    }
    assert_int_equal(um_file_read_text("/nowhere/x", 10, &b, &err), UM_ENOENT);
    assert_string_equal(b.data, "");
    um_buf_free(&b);
}

static void names_the_path_that_is_missing(void **state) {
    (void)state;
    um_buf b = {0};
    um_err err;
    um_map m;
    assert_int_equal(um_file_read("/nowhere/x", 10, &b, &err), UM_ENOENT);
    assert_non_null(strstr(err.msg, "/nowhere/x"));
    assert_int_equal(um_map_open(&m, "/nowhere/y", &err), UM_ENOENT);
    assert_non_null(strstr(err.msg, "/nowhere/y"));
    um_buf_free(&b);
}

static void refuses_folders(void **state) {
    (void)state;
    um_buf b = {0};
    um_err err;
    um_map m;
    assert_int_equal(um_file_read("/tmp", 10, &b, &err), UM_EIO);
    assert_int_equal(um_map_open(&m, "/tmp", &err), UM_EIO);
    assert_null(m.data);
    um_buf_free(&b);
}

static void maps_a_file(void **state) {
    (void)state;
    temp t = make_file(5000);
    um_map m;
    assert_int_equal(um_map_open(&m, t.path, NULL), UM_OK);
    assert_int_equal(m.size, 5000);
    assert_int_equal(m.data[4999], 'a');
    um_map_close(&m);
    assert_null(m.data);
    drop_file(&t);
}

static void maps_an_empty_file_as_nothing(void **state) {
    (void)state;
    temp t = make_file(0);
    um_map m;
    assert_int_equal(um_map_open(&m, t.path, NULL), UM_OK);
    assert_null(m.data);
    assert_int_equal(m.size, 0);
    um_map_close(&m);
    drop_file(&t);
}

static void tells_files_from_folders(void **state) {
    (void)state;
    temp t = make_file(1);
    assert_true(um_file_exists(t.path));
    assert_false(um_dir_exists(t.path));
    assert_true(um_dir_exists(t.dir));
    assert_false(um_file_exists(t.dir));
    drop_file(&t);
    assert_false(um_file_exists(t.path));
    assert_false(um_dir_exists(t.dir));
}

static void joins_paths_with_one_slash(void **state) {
    (void)state;
    const char *rows[][3] = {{"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"", "b", "b"}, {"/", "b", "/b"}};
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        char *s = um_path_join(rows[i][0], rows[i][1]);
        assert_string_equal(s, rows[i][2]);
        um_free(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_files_up_to_the_limit),
        cmocka_unit_test(reads_texts_without_a_byte_order_mark),
        cmocka_unit_test(names_the_path_that_is_missing),
        cmocka_unit_test(refuses_folders),
        cmocka_unit_test(maps_a_file),
        cmocka_unit_test(maps_an_empty_file_as_nothing),
        cmocka_unit_test(tells_files_from_folders),
        cmocka_unit_test(joins_paths_with_one_slash),
    };
    return cmocka_run_group_tests_name("base_file", tests, NULL, NULL);
}
