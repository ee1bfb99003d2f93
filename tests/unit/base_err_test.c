/* base: errors and the log. */
#include "base/base.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#include <unistd.h>

static void writes_code_and_message(void **state) {
    (void)state;
    um_err err;
    assert_int_equal(um_fail(&err, UM_EPARSE, "line %d", 7), UM_EPARSE);
    assert_int_equal(err.code, UM_EPARSE);
    assert_string_equal(err.msg, "line 7");
}

static void accepts_a_missing_err(void **state) {
    (void)state;
    assert_int_equal(um_fail(NULL, UM_EIO, "lost"), UM_EIO);
}

static void puts_context_before_the_message(void **state) {
    (void)state;
    um_err err;
    um_fail(&err, UM_ERANGE, "7 is outside 0..1");
    assert_int_equal(um_fail_in(&err, "file %s", "a.json"), UM_ERANGE);
    assert_string_equal(err.msg, "file a.json: 7 is outside 0..1");
}

static void may_format_the_message_it_replaces(void **state) {
    (void)state;
    um_err err;
    um_fail(&err, UM_EIO, "inner");
    um_fail(&err, UM_EPARSE, "outer: %s", err.msg);
    assert_string_equal(err.msg, "outer: inner");
}

static void cuts_long_messages_between_characters(void **state) {
    (void)state;
    um_err err;
    for (size_t shift = 0; shift < 3; shift++) {
        char text[3 * UM_ERR_MAX + 1] = "";
        memset(text, 'x', shift);
        for (size_t i = 0; i < UM_ERR_MAX; i += 2) memcpy(text + shift + i / 2 * 3, "\xE2\x82\xAC", 4);
        um_fail(&err, UM_EIO, "%s", text);
        size_t n = strlen(err.msg);
        assert_true(n > UM_ERR_MAX - 4 && n < UM_ERR_MAX);
        assert_int_equal(um_utf8_check(err.msg, n), n);
    }
}

static void every_code_has_its_own_name_and_text(void **state) {
    (void)state;
    for (int a = 0; a >= UM_ECANCELED; a--) {
        assert_string_not_equal(um_status_name((um_status)a), "unknown status");
        assert_true(strlen(um_status_text((um_status)a)) > 3);
        for (int b = 0; b > a; b--) assert_string_not_equal(um_status_name((um_status)a), um_status_name((um_status)b));
    }
    assert_string_equal(um_status_name(UM_EINVAL), "UM_EINVAL");
    assert_string_equal(um_status_name((um_status)-1000), "unknown status");
}

static void names_the_parameter_that_is_wrong(void **state) {
    (void)state;
    um_err err;
    assert_int_equal(um_fail_param(&err, UM_ERANGE, "steps", "%d is too many", 9), UM_ERANGE);
    assert_string_equal(err.msg, "steps: 9 is too many");
    assert_string_equal(err.param, "steps");
    (void)um_fail_in(&err, "line %d", 3);
    assert_string_equal(err.param, "steps");
    assert_int_equal(um_fail_about(&err, UM_ERANGE, "other"), UM_ERANGE);
    assert_string_equal(err.param, "steps");
    (void)um_fail(&err, UM_EIO, "gone");
    assert_string_equal(err.param, "");
    (void)um_fail_about(&err, UM_OK, "none");
    assert_string_equal(err.param, "");
    (void)um_fail_about(&err, UM_EIO, "a_name_that_is_much_longer_than_the_field_that_takes_it");
    assert_int_equal(strlen(err.param), sizeof err.param - 1);
    (void)um_fail(&err, UM_EIO, "gone"); /* clients choose names, so characters must not be split */
    (void)um_fail_about(&err, UM_EIO, "a_name_of_38_bytes_and_then_a_long_one\xC3\xA9");
    assert_string_equal(err.param, "a_name_of_38_bytes_and_then_a_long_one");
    assert_int_equal(um_fail_param(NULL, UM_EIO, "x", "y"), UM_EIO);
}

static void version_is_that_of_the_header(void **state) {
    (void)state;
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", UM_VERSION_MAJOR, UM_VERSION_MINOR, UM_VERSION_PATCH);
    assert_string_equal(um_version(), text);
}

/* Captures what a call writes to stderr in the caller's buffer. */
static void logged(um_log_level level, const char *text, char *out, size_t cap) {
    int saved = dup(STDERR_FILENO);
    FILE *f = tmpfile();
    assert_non_null(f);
    dup2(fileno(f), STDERR_FILENO);
    um_log(level, "%s", text);
    um_log_flush(60);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(f);
    out[fread(out, 1, cap - 1, f)] = '\0';
    fclose(f);
}

static void log_writes_lines_of_its_level_and_below(void **state) {
    (void)state;
    char out[4096];
    logged(UM_LOG_WARN, "slow", out, sizeof out);
    assert_string_equal(out, "unmask: warning: slow\n");
    logged(UM_LOG_INFO, "quiet", out, sizeof out);
    assert_string_equal(out, "");
    um_log_set_level(UM_LOG_INFO);
    logged(UM_LOG_INFO, "loud", out, sizeof out);
    um_log_set_level(UM_LOG_WARN);
    assert_string_equal(out, "unmask: loud\n");
}

static void log_ends_cut_lines_with_a_newline(void **state) {
    (void)state;
    char text[5000], out[8192];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    logged(UM_LOG_ERROR, text, out, sizeof out);
    assert_true(strlen(out) > 1000 && strlen(out) < sizeof text);
    assert_int_equal(strchr(out, '\n') - out, strlen(out) - 1);
}

static void flush_writes_the_lines_that_the_thread_holds(void **state) {
    (void)state;
    char out[256];
    um_err err;
    assert_int_equal(um_log_start_writer(&err), UM_OK);
    for (int i = 0; i < 20; i++) { /* the thread sleeps after each line */
        logged(UM_LOG_WARN, "held", out, sizeof out);
        assert_string_equal(out, "unmask: warning: held\n");
    }
    um_log_stop_writer(60);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_code_and_message),
        cmocka_unit_test(accepts_a_missing_err),
        cmocka_unit_test(puts_context_before_the_message),
        cmocka_unit_test(may_format_the_message_it_replaces),
        cmocka_unit_test(names_the_parameter_that_is_wrong),
        cmocka_unit_test(cuts_long_messages_between_characters),
        cmocka_unit_test(every_code_has_its_own_name_and_text),
        cmocka_unit_test(version_is_that_of_the_header),
        cmocka_unit_test(log_writes_lines_of_its_level_and_below),
        cmocka_unit_test(log_ends_cut_lines_with_a_newline),
        cmocka_unit_test(flush_writes_the_lines_that_the_thread_holds),
    };
    return cmocka_run_group_tests_name("base_err", tests, NULL, NULL);
}
