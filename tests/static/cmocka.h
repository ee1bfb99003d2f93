/* A stand-in for cmocka with the names that tests/ops uses. `make arm64-check` compiles these tests for a processor for
 * which no library is installed. The tests run one after another in one process, and print TAP. */
#ifndef UM_TESTS_STATIC_CMOCKA_H
#define UM_TESTS_STATIC_CMOCKA_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};

enum { CMOCKA_FAILED = 1, CMOCKA_SKIPPED };
static jmp_buf cmocka_end; /* ends the running test with one of these */

/* Ends the running test as failed. */
static inline _Noreturn __attribute__((format(printf, 3, 4))) void cmocka_fail(const char *file, int line,
                                                                               const char *format, ...) {
    va_list args;
    va_start(args, format);
    printf("# %s:%d: ", file, line);
    vprintf(format, args);
    printf("\n");
    va_end(args);
    longjmp(cmocka_end, CMOCKA_FAILED);
}

static inline void cmocka_check_int(const char *file, int line, const char *what, intmax_t a, intmax_t b) {
    if (a != b) cmocka_fail(file, line, "%s: %jd is not %jd", what, a, b);
}

static inline void cmocka_check_string(const char *file, int line, const char *what, const char *a, const char *b) {
    if (strcmp(a, b) != 0) cmocka_fail(file, line, "%s: \"%s\" is not \"%s\"", what, a, b);
}

/* Also fails for NaN. */
static inline void cmocka_check_float(const char *file, int line, const char *what, double a, double b, double most) {
    if (!(fabs(a - b) <= most)) cmocka_fail(file, line, "%s: %.9g is not %.9g", what, a, b);
}

#define fail_msg(...)                cmocka_fail(__FILE__, __LINE__, __VA_ARGS__)
#define skip()                       longjmp(cmocka_end, CMOCKA_SKIPPED)
#define assert_true(claim)           ((claim) ? (void)0 : fail_msg("%s", #claim))
#define assert_null(p)               assert_true((p) == NULL)
#define assert_non_null(p)           assert_true((p) != NULL)
#define assert_ptr_equal(a, b)       assert_true((const void *)(a) == (const void *)(b))
#define assert_memory_equal(a, b, n) assert_true(memcmp(a, b, n) == 0)
#define assert_int_equal(a, b)       cmocka_check_int(__FILE__, __LINE__, #a, (intmax_t)(a), (intmax_t)(b))
#define assert_string_equal(a, b)    cmocka_check_string(__FILE__, __LINE__, #a, a, b)
#define assert_float_equal(a, b, most)                                                                                 \
    cmocka_check_float(__FILE__, __LINE__, #a, (double)(a), (double)(b), (double)(most))

#define cmocka_unit_test(f)                                                                                            \
    { #f, f }
#define cmocka_run_group_tests(tests, begin, end)            cmocka_run(tests, sizeof(tests) / sizeof *(tests))
#define cmocka_run_group_tests_name(name, tests, begin, end) cmocka_run_group_tests(tests, begin, end)

/* Returns 0, CMOCKA_FAILED or CMOCKA_SKIPPED. */
static inline int cmocka_run_one(const struct CMUnitTest *t) {
    void *state = NULL;
    int end = setjmp(cmocka_end);
    if (end == 0) t->run(&state);
    return end;
}

/* Returns the number of failed tests. */
static inline int cmocka_run(const struct CMUnitTest *test, size_t n) {
    int n_failed = 0;
    printf("1..%zu\n", n);
    for (size_t i = 0; i < n; i++) {
        int end = cmocka_run_one(&test[i]);
        printf("%s %zu %s %s\n", end ? "not ok" : "ok", i + 1, end == CMOCKA_SKIPPED ? "# SKIP" : "-", test[i].name);
        fflush(stdout);
        n_failed += end == CMOCKA_FAILED;
    }
    return n_failed;
}

#endif
