/* server: multipart bodies, valid and invalid ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "server/batch/multipart.h"

#define TYPE "multipart/form-data; boundary=XX"

/* Returns the parts as "name/filename=data|…", or the error message. */
static const char *parts_of(const char *type, const char *body) {
    static char text[1024];
    um_multipart m;
    um_form_part p;
    um_err err = {0};
    bool more = true;
    size_t n = 0;
    um_status st = um_multipart_open(&m, type, um_str_of(body), &err);
    while (!st && more) {
        st = um_multipart_next(&m, &p, &more, &err);
        if (!st && more)
            n +=
                (size_t)snprintf(text + n, sizeof text - n, "%s/%s=%.*s|", p.name, p.filename, (int)p.data.n, p.data.p);
    }
    if (st) snprintf(text, sizeof text, "%s", err.msg);
    else text[n] = '\0';
    return text;
}

#define PART(headers, data) "--XX\r\n" headers "\r\n\r\n" data "\r\n"
#define FIELD(name, data)   PART("Content-Disposition: form-data; name=\"" name "\"", data)

static void reads_fields_and_files(void **state) {
    (void)state;
    assert_string_equal(parts_of(TYPE, FIELD("purpose", "batch") PART(
                                           "Content-Disposition: form-data; name=\"file\"; filename=\"a b.jsonl\"\r\n"
                                           "Content-Type: application/jsonl",
                                           "{}\n--X\r\n-XX") "--XX--\r\n"),
                        "purpose/=batch|file/a b.jsonl={}\n--X\r\n-XX|");
}

static void reads_an_empty_part_and_an_empty_body(void **state) {
    (void)state;
    assert_string_equal(parts_of(TYPE, FIELD("a", "") "--XX--"), "a/=|");
    assert_string_equal(parts_of(TYPE, "--XX--"), "");
}

static void quoted_names_may_contain_quotes_and_semicolons(void **state) {
    (void)state;
    assert_string_equal(
        parts_of("Multipart/Form-Data; charset=utf-8; Boundary=\"XX\"",
                 PART("content-disposition: form-data; filename=\"a\\\"; name=x.txt\"; name=file", "1") "--XX--"),
        "file/a\"; name=x.txt=1|");
}

static void bytes_after_the_last_boundary_are_ignored(void **state) {
    (void)state;
    assert_string_equal(parts_of(TYPE, FIELD("a", "1") "--XX--\r\n" FIELD("b", "2")), "a/=1|");
}

static void refuses_other_types_and_boundaries(void **state) {
    (void)state;
    static const char *const bad[] = {"multipart/form-data",
                                      "application/json; boundary=XX",
                                      "multipart/form-data; boundary=",
                                      "multipart/form-data; boundary=\"a",
                                      "multipart/form-data; boundary=a\tb",
                                      "multipart/form-data; boundary=\"a \""};
    for (size_t i = 0; i < UM_LEN(bad); i++) {
        um_multipart m;
        um_err err = {0};
        if (um_multipart_open(&m, bad[i], um_str_of("--XX--"), &err) != UM_EINVAL) fail_msg("accepted: %s", bad[i]);
    }
}

static void refuses_invalid_bodies_with_the_position(void **state) {
    (void)state;
    static const struct {
        const char *body, *part;
    } bad[] = {
        {"", "begin with its boundary"},
        {"XX--", "begin with its boundary"},
        {"--XX", "line end after the boundary"},
        {"--XXY\r\n", "line end after the boundary"},
        {"--XX\r\nContent-Disposition: form-data; name=\"a\"\r\n", "an empty line after them"},
        {"--XX\r\n\r\nx\r\n--XX--", "expected a Content-Disposition"},
        {"--XX\r\nno header\r\n\r\nx\r\n--XX--", "expected a header"},
        {"--XX\r\nContent-Disposition: attachment\r\n\r\nx\r\n--XX--", "form-data"},
        {"--XX\r\nContent-Disposition: form-data\r\n\r\nx\r\n--XX--", "expected a name"},
        {"--XX\r\nContent-Disposition: form-data; name=\"a\r\n\r\nx\r\n--XX--", "expected a name"},
        {"--XX\r\nContent-Disposition: form-data; name=\"\xff\"\r\n\r\nx\r\n--XX--", "not UTF-8"},
        {PART("Content-Disposition: form-data; name=a\r\nContent-Transfer-Encoding: base64", "x"), "Transfer-Encoding"},
    };
    for (size_t i = 0; i < UM_LEN(bad); i++) {
        const char *found = parts_of(TYPE, bad[i].body);
        if (!strstr(found, bad[i].part)) fail_msg("%zu: expected \"%s\" in: %s", i, bad[i].part, found);
    }
    assert_non_null(
        strstr(parts_of(TYPE, "--XX\r\nContent-Disposition: form-data; name=a\r\n\r\nx"), "found the end of the body"));
}

static void refuses_a_name_that_is_too_long(void **state) {
    (void)state;
    char body[512], name[160];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    snprintf(body, sizeof body, "--XX\r\nContent-Disposition: form-data; name=\"%s\"\r\n\r\nx\r\n--XX--", name);
    assert_non_null(strstr(parts_of(TYPE, body), "at most 127 bytes"));
}

static void refuses_too_many_parts(void **state) {
    (void)state;
    um_buf body = {0};
    for (int i = 0; i <= UM_PARTS_MAX; i++) um_buf_puts(&body, FIELD("a", ""));
    um_buf_puts(&body, "--XX--");
    assert_non_null(strstr(parts_of(TYPE, body.data), "more than 32 parts"));
    um_buf_free(&body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_fields_and_files),
        cmocka_unit_test(reads_an_empty_part_and_an_empty_body),
        cmocka_unit_test(quoted_names_may_contain_quotes_and_semicolons),
        cmocka_unit_test(bytes_after_the_last_boundary_are_ignored),
        cmocka_unit_test(refuses_other_types_and_boundaries),
        cmocka_unit_test(refuses_invalid_bodies_with_the_position),
        cmocka_unit_test(refuses_a_name_that_is_too_long),
        cmocka_unit_test(refuses_too_many_parts),
    };
    return cmocka_run_group_tests_name("multipart", tests, NULL, NULL);
}
