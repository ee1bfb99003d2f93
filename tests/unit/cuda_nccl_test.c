/* Tests of opening NCCL: a library that is missing, that is another one, or too old is refused with what to install.
 * Tests of the calls with a communicator, which another thread may end. */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs the headers above. */
#include <cmocka.h>

#include "cuda/nccl.h"

static const char what_to_install[] = "install NCCL 2.18 or newer (nvidia-nccl-cu13 of PyPI, or the package libnccl2), "
                                      "and name its folder in LD_LIBRARY_PATH";

static void check_refusal(const char *library, const char *words) {
    um_nccl n;
    um_err err = {0};
    assert_int_equal(um_nccl_open(&n, library, &err), UM_EUNSUPPORTED);
    if (!strstr(err.msg, words)) fail_msg("expected \"%s\" in \"%s\"", words, err.msg);
    if (!strstr(err.msg, what_to_install)) fail_msg("expected \"%s\" in \"%s\"", what_to_install, err.msg);
    assert_null(strchr(err.msg, '\n'));
}

static void a_missing_library_is_refused_in_one_line(void **state) {
    (void)state;
    check_refusal("libmissing-nccl.so.2",
                  "GPUs in several processes need NCCL: libmissing-nccl.so.2: cannot open shared object file");
}

static void another_library_is_refused(void **state) {
    (void)state;
    check_refusal("libm.so.6", "libm.so.6 has no ncclGetVersion");
}

static void check_version(int version, const char *name) {
    um_err err = {0};
    assert_int_equal(um_nccl_check_version(version, &err), UM_EUNSUPPORTED);
    if (!strstr(err.msg, name)) fail_msg("expected \"%s\" in \"%s\"", name, err.msg);
    if (!strstr(err.msg, what_to_install)) fail_msg("expected \"%s\" in \"%s\"", what_to_install, err.msg);
}

static void old_versions_are_refused_by_name(void **state) {
    um_err err = {0};
    (void)state;
    check_version(21703, "libnccl.so.2 is NCCL 2.17;");
    check_version(21005, "libnccl.so.2 is NCCL 2.10;");
    check_version(2708, "libnccl.so.2 is NCCL 2.7;");
    assert_int_equal(um_nccl_check_version(21800, &err), UM_OK);
    assert_int_equal(um_nccl_check_version(22809, &err), UM_OK);
    assert_int_equal(um_nccl_check_version(30000, &err), UM_OK);
}

/* Multicast stays off, and so does the registration of buffers, unless the user decides otherwise. */
static void switches_of_the_user_are_kept(void **state) {
    um_nccl n;
    (void)state;
    unsetenv("NCCL_NVLS_ENABLE");
    setenv("NCCL_GRAPH_REGISTER", "1", 1);
    (void)um_nccl_open(&n, "libmissing-nccl.so.2", NULL);
    assert_string_equal(getenv("NCCL_NVLS_ENABLE"), "0");
    assert_string_equal(getenv("NCCL_GRAPH_REGISTER"), "1");
}

static bool may_call(um_nccl_calls *c) {
    const bool may = um_nccl_enter(c);
    um_nccl_leave(c);
    return may;
}

static void no_call_begins_when_calls_have_been_ended(void **state) {
    um_nccl_calls c;
    (void)state;
    um_nccl_calls_init(&c);
    assert_true(may_call(&c));
    assert_false(um_nccl_has_ended(&c));
    um_nccl_end_calls(&c);
    assert_true(um_nccl_has_ended(&c));
    assert_false(may_call(&c));
    um_nccl_calls_deinit(&c);
}

/* NCCL counts the groups of a thread, so one that has begun needs its end. */
static void a_group_goes_on_to_its_end(void **state) {
    um_nccl_calls c;
    (void)state;
    um_nccl_calls_init(&c);
    assert_true(um_nccl_enter(&c));
    um_nccl_end_calls(&c);
    assert_true(may_call(&c));
    um_nccl_leave(&c);
    assert_false(um_nccl_enter(&c));
    assert_false(may_call(&c)); /* a group that has not begun has no calls */
    um_nccl_leave(&c);
    um_nccl_calls_deinit(&c);
}

typedef struct caller {
    um_nccl_calls calls;
    sem_t is_calling, may_return;
    bool has_returned;
} caller;

static void *call(void *arg) {
    caller *c = (caller *)arg;
    (void)um_nccl_enter(&c->calls);
    sem_post(&c->is_calling);
    sem_wait(&c->may_return);
    c->has_returned = true;
    um_nccl_leave(&c->calls);
    return NULL;
}

static void a_call_under_way_is_awaited_for_a_while(void **state) {
    caller c = {.has_returned = false};
    pthread_t thread;
    (void)state;
    um_nccl_calls_init(&c.calls);
    assert_int_equal(sem_init(&c.is_calling, 0, 0) | sem_init(&c.may_return, 0, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, call, &c), 0);
    sem_wait(&c.is_calling);
    um_nccl_end_calls(&c.calls); /* does not wait */
    assert_false(um_nccl_await_calls(&c.calls, 0.05));
    sem_post(&c.may_return);
    assert_true(um_nccl_await_calls(&c.calls, 60));
    assert_true(c.has_returned);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(may_call(&c.calls));
    sem_destroy(&c.is_calling);
    sem_destroy(&c.may_return);
    um_nccl_calls_deinit(&c.calls);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_library_is_refused_in_one_line),  cmocka_unit_test(another_library_is_refused),
        cmocka_unit_test(old_versions_are_refused_by_name),          cmocka_unit_test(switches_of_the_user_are_kept),
        cmocka_unit_test(no_call_begins_when_calls_have_been_ended), cmocka_unit_test(a_group_goes_on_to_its_end),
        cmocka_unit_test(a_call_under_way_is_awaited_for_a_while),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
