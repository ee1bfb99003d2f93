/* base: ledgers and atomically replaced files, after a crash at any byte. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

static char dir[] = "/tmp/unmask_ledger_XXXXXX";
static char path[64];

static int make_dir(void **state) {
    (void)state;
    if (!mkdtemp(dir)) return -1;
    snprintf(path, sizeof path, "%s/ledger", dir);
    return 0;
}

static int remove_dir(void **state) {
    (void)state;
    unlink(path);
    return rmdir(dir);
}

static void put(const char *text, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

static void expect(const char *want) {
    um_buf have = {0};
    um_err err;
    assert_int_equal(um_file_read(path, 1 << 20, &have, &err), UM_OK);
    assert_string_equal(have.data ? have.data : "", want);
    um_buf_free(&have);
}

/* Accepts lines that contain their own line number, except for 13. */
static um_status take(void *arg, um_str line, int64_t number, um_err *err) {
    int64_t *n = (int64_t *)arg, v = 0;
    char text[32];
    snprintf(text, sizeof text, "%.*s", (int)line.n, line.p);
    if (!um_parse_int(text, &v)) return um_fail(err, UM_EPARSE, "\"%s\" is no number", text);
    assert_int_equal(v, number);
    if (v == 13) return um_fail(err, UM_EINVAL, "13 is not wanted");
    *n = v;
    return UM_OK;
}

static const char lines[] = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n";

static int64_t read_lines(um_ledger *l, um_status want, um_err *err) {
    int64_t n = 0;
    assert_int_equal(um_ledger_open(l, path, err), UM_OK);
    assert_int_equal(um_ledger_read(l, take, &n, err), want);
    return n;
}

static void continues_after_the_last_complete_line_wherever_the_file_is_cut(void **state) {
    (void)state;
    for (size_t cut = 0; cut < sizeof lines; cut++) {
        um_ledger l;
        um_err err = {0};
        put(lines, cut);
        int64_t n = read_lines(&l, UM_OK, &err);
        assert_int_equal(um_ledger_truncate(&l, &err), UM_OK);
        while (n < 12) {
            char line[8];
            snprintf(line, sizeof line, "%d\n", (int)++n);
            assert_int_equal((n % 2 ? um_ledger_write : um_ledger_commit)(&l, um_str_of(line), &err), UM_OK);
        }
        assert_int_equal(l.keep, sizeof lines - 1);
        assert_int_equal(um_ledger_close(&l, &err), UM_OK);
        expect(lines);
    }
}

static void a_broken_last_line_is_left_out_and_one_in_the_middle_is_an_error(void **state) {
    (void)state;
    um_ledger l;
    um_err err = {0};
    put("1\n2\nx\n", 6);
    assert_int_equal(read_lines(&l, UM_OK, &err), 2);
    assert_int_equal(l.keep, 4);
    (void)um_ledger_close(&l, NULL);
    put("1\n2\nx\n4\n", 8);
    assert_int_equal(read_lines(&l, UM_EPARSE, &err), 2);
    assert_non_null(strstr(err.msg, ":3 is not a valid result (\"x\" is no number)"));
    assert_int_equal(l.keep, 4);
    assert_int_equal(um_ledger_truncate(&l, &err), UM_OK);
    (void)um_ledger_close(&l, NULL);
    expect("1\n2\n");
}

static void what_the_reader_refuses_is_its_own_error(void **state) {
    (void)state;
    um_ledger l;
    um_err err = {0};
    put("1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n", 31);
    assert_int_equal(read_lines(&l, UM_EINVAL, &err), 12);
    (void)um_ledger_close(&l, NULL);
}

static void a_second_opener_is_refused(void **state) {
    (void)state;
    um_ledger a, b;
    um_err err = {0};
    assert_int_equal(um_ledger_open(&a, path, &err), UM_OK);
    assert_int_equal(um_ledger_open(&b, path, &err), UM_EINVAL);
    assert_int_equal(b.fd, -1);
    (void)um_ledger_close(&a, NULL);
}

/* Limits the size of files, which simulates a full disk. */
static void limit_files(rlim_t bytes) {
    struct rlimit r;
    getrlimit(RLIMIT_FSIZE, &r);
    r.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static void without_room_a_file_stays_as_it_was(void **state) {
    (void)state;
    um_ledger l;
    um_err err = {0};
    signal(SIGXFSZ, SIG_IGN);
    put("1\n2\n", 4);
    (void)read_lines(&l, UM_OK, &err);
    assert_int_equal(um_ledger_truncate(&l, &err), UM_OK);
    limit_files(6);
    assert_int_equal(um_ledger_commit(&l, um_str_of("3\n4\n"), &err), UM_EIO);
    expect("1\n2\n");
    assert_int_equal(um_file_replace(path, um_str_of("longer than that"), &err), UM_EIO);
    limit_files(RLIM_INFINITY);
    expect("1\n2\n");
    assert_int_equal(um_ledger_commit(&l, um_str_of("3\n4\n"), &err), UM_OK);
    (void)um_ledger_close(&l, NULL);
    expect("1\n2\n3\n4\n");
    char other[80];
    snprintf(other, sizeof other, "%s.new", path);
    assert_false(um_file_exists(other));
}

static void a_file_is_replaced_whole(void **state) {
    (void)state;
    um_err err = {0};
    assert_int_equal(um_file_replace(path, um_str_of("one"), &err), UM_OK);
    expect("one");
    assert_int_equal(um_file_replace(path, um_str_of(""), &err), UM_OK);
    expect("");
    assert_int_equal(um_file_replace("/tmp/unmask_no_such_folder/x", um_str_of("x"), &err), UM_ENOENT);
}

/* A user may choose /dev/stdout as the output. */
static void links_and_devices_stay_what_they_are(void **state) {
    char link[80];
    struct stat st;
    um_err err = {0};
    (void)state;
    snprintf(link, sizeof link, "%s.link", path);
    unlink(link);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(um_file_replace(link, um_str_of("two"), &err), UM_OK);
    expect("two");
    assert_true(lstat(link, &st) == 0 && S_ISLNK(st.st_mode));
    unlink(link);
    assert_int_equal(mkfifo(link, 0600), 0);
    int end = open(link, O_RDWR | O_CLOEXEC);
    assert_int_equal(um_file_replace(link, um_str_of("three"), &err), UM_OK);
    char got[8] = "";
    assert_int_equal(read(end, got, sizeof got), 5);
    assert_string_equal(got, "three");
    assert_true(lstat(link, &st) == 0 && S_ISFIFO(st.st_mode));
    close(end);
    unlink(link);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(continues_after_the_last_complete_line_wherever_the_file_is_cut),
        cmocka_unit_test(a_broken_last_line_is_left_out_and_one_in_the_middle_is_an_error),
        cmocka_unit_test(what_the_reader_refuses_is_its_own_error),
        cmocka_unit_test(a_second_opener_is_refused),
        cmocka_unit_test(without_room_a_file_stays_as_it_was),
        cmocka_unit_test(a_file_is_replaced_whole),
        cmocka_unit_test(links_and_devices_stay_what_they_are),
    };
    return cmocka_run_group_tests_name("base_ledger", tests, make_dir, remove_dir);
}
