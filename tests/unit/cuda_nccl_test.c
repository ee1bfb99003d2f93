/* Tests of opening NCCL: a library that is missing, that is another one, or too old is refused with what to install. */
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_library_is_refused_in_one_line),
        cmocka_unit_test(another_library_is_refused),
        cmocka_unit_test(old_versions_are_refused_by_name),
        cmocka_unit_test(switches_of_the_user_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
