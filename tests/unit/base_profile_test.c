/* base: profiles: sums of spans, the trace and its limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <jansson.h>
#include <unistd.h>

#include "base/base.h"

static char dir[] = "/tmp/unmask-profile-XXXXXX";
static char trace[64], table[64];

static int make_dir(void **state) {
    (void)state;
    if (!mkdtemp(dir)) return -1;
    snprintf(trace, sizeof trace, "%s/t.json", dir);
    snprintf(table, sizeof table, "%s/t.csv", dir);
    return 0;
}

static int remove_dir(void **state) {
    (void)state;
    unlink(trace);
    unlink(table);
    return rmdir(dir);
}

static void start(um_profile *p) {
    um_err err;
    if (um_profile_start(p, trace, &err)) fail_msg("%s", err.msg);
}

static json_t *stop_and_read(um_profile *p) {
    um_err err;
    json_t *v = NULL;
    if (um_profile_stop(p, &err) || um_json_load(&v, trace, &err)) fail_msg("%s", err.msg);
    return v;
}

static const um_profile_sum *sum_of(const um_profile *p, const char *name) {
    for (int32_t i = 0; i < p->n_sums; i++)
        if (um_streq(p->sum[i].name, name)) return &p->sum[i];
    fail_msg("no sum of %s", name);
    return NULL;
}

/* outer { inner inner } */
static void three_spans(um_profile *p) {
    double outer = um_profile_enter(p);
    for (int i = 0; i < 2; i++) {
        double inner = um_profile_enter(p);
        um_profile_leave(p, inner, "inner", i);
    }
    um_profile_leave(p, outer, "outer", 7);
}

static void spans_are_summed_with_and_without_those_inside(void **state) {
    (void)state;
    um_profile p = {0};
    start(&p);
    three_spans(&p);
    json_decref(stop_and_read(&p));
    const um_profile_sum *outer = sum_of(&p, "outer"), *inner = sum_of(&p, "inner");
    assert_int_equal(inner->n, 2);
    assert_int_equal(outer->n, 1);
    assert_true(outer->seconds >= inner->seconds);
    assert_true(inner->self == inner->seconds);
    assert_true(outer->self <= outer->seconds - inner->seconds + 1e-9);
    assert_true(p.total == outer->seconds);
}

static void the_trace_holds_each_span(void **state) {
    (void)state;
    um_profile p = {0};
    start(&p);
    three_spans(&p);
    json_t *v = stop_and_read(&p);
    assert_int_equal(json_array_size(v), 4); /* three spans and the name of the process */
    const json_t *last = json_array_get(v, 3);
    assert_string_equal(json_string_value(json_object_get(last, "name")), "outer");
    assert_string_equal(json_string_value(json_object_get(last, "ph")), "X");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(last, "args"), "size")), 7);
    json_decref(v);
}

static void off_nothing_is_recorded(void **state) {
    (void)state;
    um_profile p = {0};
    three_spans(&p);
    assert_int_equal(p.n_sums, 0);
    assert_null(p.span);
    assert_int_equal(um_profile_stop(&p, NULL), UM_OK);
}

static void a_span_that_began_before_the_profile_is_left_out(void **state) {
    (void)state;
    um_profile p = {0};
    double outer = um_profile_enter(&p);
    start(&p);
    double inner = um_profile_enter(&p);
    um_profile_leave(&p, inner, "inner", 0);
    um_profile_leave(&p, outer, "outer", 0);
    json_decref(stop_and_read(&p));
    assert_int_equal(p.n_sums, 1);
}

/* The profile is stopped and started again inside of a span. The new profile does not contain that span. */
static void a_span_of_an_earlier_profile_is_left_out(void **state) {
    (void)state;
    um_profile p = {0};
    start(&p);
    double outer = um_profile_enter(&p);
    json_decref(stop_and_read(&p));
    start(&p);
    um_profile_leave(&p, outer, "outer", 0);
    three_spans(&p);
    json_decref(stop_and_read(&p));
    assert_int_equal(sum_of(&p, "outer")->n, 1);
}

static void an_added_span_lies_within_the_open_one(void **state) {
    (void)state;
    um_profile p = {0};
    um_profile_add(&p, "kernel", 1, 2, 3); /* off: nothing is recorded */
    assert_int_equal(p.n_spans, 0);
    start(&p);
    um_profile_add(&p, "kernel", 1, 2, 3); /* no span is open */
    assert_int_equal(p.n_spans, 0);
    double since = um_profile_enter(&p);
    um_profile_add(&p, "kernel", since, since + 2, 3);
    um_profile_leave(&p, since, "step", 1);
    assert_int_equal(p.n_spans, 2);
    assert_string_equal(p.sum[0].name, "kernel");
    assert_true(p.sum[0].n == 1 && p.sum[0].self == p.sum[0].seconds);
    assert_true(p.sum[1].seconds - p.sum[1].self == p.sum[0].seconds);
    assert_true(um_profile_stop(&p, NULL) == UM_OK);
}

static void starting_twice_and_stopping_twice_are_fine(void **state) {
    (void)state;
    um_profile p = {0};
    start(&p);
    three_spans(&p);
    assert_int_equal(um_profile_start(&p, "/no/such/folder/x", NULL), UM_OK); /* no effect */
    three_spans(&p);
    json_decref(stop_and_read(&p));
    assert_int_equal(sum_of(&p, "outer")->n, 2);
    assert_int_equal(um_profile_stop(&p, NULL), UM_OK);
}

static void spans_without_room_are_counted(void **state) {
    (void)state;
    um_profile p = {0};
    start(&p);
    int64_t before = um_alloc_count();
    for (size_t i = 0; i < UM_PROFILE_SPANS + 10; i++) um_profile_leave(&p, um_profile_enter(&p), "span", 0);
    assert_int_equal(p.n_dropped, 10);
    um_profile_flush(&p);
    assert_int_equal(p.n_spans, 0);
    um_profile_leave(&p, um_profile_enter(&p), "span", 0);
    assert_int_equal(um_alloc_count(), before);
    json_t *v = stop_and_read(&p);
    size_t n = json_array_size(v);
    assert_int_equal(n, 1 + UM_PROFILE_SPANS + 1 + 1);
    const json_t *dropped = json_array_get(v, n - 1);
    assert_string_equal(json_string_value(json_object_get(dropped, "name")), "dropped");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(dropped, "args"), "spans")), 10);
    assert_int_equal(sum_of(&p, "span")->n, UM_PROFILE_SPANS + 11);
    json_decref(v);
}

static void the_table_lists_the_longest_first(void **state) {
    (void)state;
    um_profile p = {0};
    um_buf out = {0};
    start(&p);
    three_spans(&p);
    json_decref(stop_and_read(&p));
    assert_int_equal(um_file_read(table, 10000, &out, NULL), UM_OK);
    assert_non_null(strstr(out.data, "scope,spans,seconds,self_seconds,share\nouter,1,"));
    assert_non_null(strstr(out.data, ",1.000000\ninner,2,"));
    um_buf_free(&out);
}

static void without_a_path_only_the_sums_are_kept(void **state) {
    (void)state;
    um_profile p = {0};
    um_err err = {0};
    assert_int_equal(um_profile_start(&p, NULL, &err), UM_OK);
    three_spans(&p);
    um_profile_flush(&p);
    assert_int_equal(p.n_spans, 0);
    assert_int_equal(um_profile_stop(&p, &err), UM_OK);
    assert_false(p.on);
    assert_int_equal(sum_of(&p, "inner")->n, 2);
    assert_int_equal(sum_of(&p, "outer")->n, 1);
}

static void a_file_that_cannot_be_written_is_an_error(void **state) {
    (void)state;
    um_profile p = {0};
    um_err err = {0};
    assert_int_equal(um_profile_start(&p, "/no/such/folder/t.json", &err), UM_EIO);
    assert_non_null(strstr(err.msg, "/no/such/folder/t.json"));
    assert_false(p.on);
    if (access("/dev/full", W_OK) != 0) return;
    unlink(trace);
    assert_int_equal(symlink("/dev/full", trace), 0);
    start(&p);
    three_spans(&p);
    assert_int_equal(um_profile_stop(&p, &err), UM_EIO);
    assert_non_null(strstr(err.msg, trace));
    unlink(trace);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_are_summed_with_and_without_those_inside),
        cmocka_unit_test(the_trace_holds_each_span),
        cmocka_unit_test(off_nothing_is_recorded),
        cmocka_unit_test(a_span_that_began_before_the_profile_is_left_out),
        cmocka_unit_test(a_span_of_an_earlier_profile_is_left_out),
        cmocka_unit_test(an_added_span_lies_within_the_open_one),
        cmocka_unit_test(starting_twice_and_stopping_twice_are_fine),
        cmocka_unit_test(spans_without_room_are_counted),
        cmocka_unit_test(the_table_lists_the_longest_first),
        cmocka_unit_test(without_a_path_only_the_sums_are_kept),
        cmocka_unit_test(a_file_that_cannot_be_written_is_an_error),
    };
    return cmocka_run_group_tests_name("base_profile", tests, make_dir, remove_dir);
}
