/* Tests of the profiles of an engine: the trace is JSON whose spans nest and have documented names. Profiling makes no
 * step allocate memory. */
#include "support.h"

#include <jansson.h>
#include <unistd.h>

static test_engine sdar;
static char sdar_path[128], dir[] = "/tmp/unmask-profile-XXXXXX", trace[64], table[64];

static int open_sdar(void **state) {
    (void)state;
    um_config c;
    test_config(&c, "sdar", sdar_path, sizeof(sdar_path));
    c.max_num_reqs = 4;
    test_open(&sdar, &c);
    if (!mkdtemp(dir)) return -1;
    snprintf(trace, sizeof trace, "%s/t.json", dir);
    snprintf(table, sizeof table, "%s/t.csv", dir);
    return 0;
}

static int close_sdar(void **state) {
    (void)state;
    test_close(&sdar);
    unlink(trace);
    unlink(table);
    return rmdir(dir);
}

static const int32_t prompt[] = {231, 443, 286, 438, 473};

static void add(test_answer *a, um_event_fn fn) {
    um_request r;
    um_err err;
    um_request_init(sdar.engine, &r);
    r.ids = prompt;
    r.n_ids = UM_LEN(prompt);
    r.sampling.max_tokens = 24;
    r.on_event = fn;
    r.arg = a;
    if (um_engine_add(sdar.engine, &r, NULL, &err)) fail_msg("%s", err.msg);
}

static void start(void) {
    um_err err;
    if (um_engine_profile_start(sdar.engine, trace, &err)) fail_msg("%s", err.msg);
}

static void stop(void) {
    um_err err;
    if (um_engine_profile_stop(sdar.engine, &err)) fail_msg("%s", err.msg);
}

static json_t *read_trace(void) {
    json_t *v = NULL;
    um_err err;
    if (um_json_load(&v, trace, &err)) fail_msg("%s", err.msg);
    return v;
}

typedef struct span {
    const char *name;
    double start, end;
} span;

/* Sorts outer spans before the spans inside them. */
static int by_start(const void *a, const void *b) {
    const span *x = (const span *)a, *y = (const span *)b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return (x->end < y->end) - (x->end > y->end);
}

static span *spans_of(const json_t *v, size_t *n) {
    span *s = (span *)test_calloc(json_array_size(v), sizeof(span));
    const json_t *e;
    size_t i;
    *n = 0;
    json_array_foreach(v, i, e) {
        if (!um_streq(json_string_value(json_object_get(e, "ph")), "X")) continue;
        double start = json_number_value(json_object_get(e, "ts"));
        s[(*n)++] = (span){json_string_value(json_object_get(e, "name")), start,
                           start + json_number_value(json_object_get(e, "dur"))};
    }
    qsort(s, *n, sizeof *s, by_start);
    return s;
}

static void spans_nest(void **state) {
    (void)state;
    test_answer a[3] = {0};
    size_t n, depth = 0;
    const span *around[16];
    start();
    for (int i = 0; i < 3; i++) add(&a[i], test_collect);
    test_drain(sdar.engine);
    stop();
    json_t *v = read_trace();
    span *s = spans_of(v, &n);
    for (size_t i = 0; i < n; i++) {
        /* Times are written exactly to the nanosecond, but reading them as double rounds. */
        while (depth && around[depth - 1]->end <= s[i].start + 1e-6) depth--;
        if (depth && s[i].end > around[depth - 1]->end + 1e-6)
            fail_msg("%s ends behind %s, in which it began", s[i].name, around[depth - 1]->name);
        bool outermost = um_streq(s[i].name, "step") || um_streq(s[i].name, "add");
        if (outermost != (depth == 0)) fail_msg("%s has %zu spans around it", s[i].name, depth);
        around[depth++] = &s[i];
    }
    test_free(s);
    json_decref(v);
}

static bool is_in_trace(const json_t *v, const char *name) {
    const json_t *e;
    size_t i;
    json_array_foreach(v, i, e) if (um_streq(json_string_value(json_object_get(e, "name")), name)) return true;
    return false;
}

static void names_are_documented(void **state) {
    (void)state;
    static const char *const expected[] = {"add",   "step", "plan",   "build",   "forward",   "apply", "output",
                                           "embed", "norm", "linear", "rope_kv", "attention", "head"};
    test_answer a = {0};
    um_buf doc = {0};
    start();
    add(&a, test_collect);
    test_drain(sdar.engine);
    stop();
    assert_int_equal(um_file_read("docs/profiling.md", 100000, &doc, NULL), UM_OK);
    json_t *v = read_trace();
    for (size_t i = 0; i < UM_LEN(expected); i++)
        if (!is_in_trace(v, expected[i])) fail_msg("no span %s", expected[i]);
    for (int32_t i = 0; i < sdar.engine->profile.n_sums; i++) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "`%s`", sdar.engine->profile.sum[i].name);
        if (!strstr(doc.data, quoted)) fail_msg("docs/profiling.md does not explain %s", quoted);
    }
    json_decref(v);
    um_buf_free(&doc);
}

static void a_profiled_step_allocates_nothing(void **state) {
    (void)state;
    test_answer a = {0};
    start();
    add(&a, test_collect);
    int64_t before = um_alloc_count();
    test_drain(sdar.engine);
    assert_int_equal(um_alloc_count(), before);
    stop();
}

static void an_answer_is_the_same_with_and_without(void **state) {
    (void)state;
    test_answer plain = {0}, profiled = {0};
    add(&plain, test_collect);
    test_drain(sdar.engine);
    start();
    add(&profiled, test_collect);
    test_drain(sdar.engine);
    stop();
    assert_int_equal(plain.n, profiled.n);
    assert_memory_equal(plain.token, profiled.token, sizeof(int32_t) * (size_t)plain.n);
}

static void nothing_is_recorded_when_it_is_off(void **state) {
    (void)state;
    test_answer a = {0};
    start();
    stop();
    add(&a, test_collect);
    test_drain(sdar.engine);
    assert_int_equal(sdar.engine->profile.n_sums, 0);
    stop(); /* no profile runs */
}

/* Starts and stops the profile during a step, from a callback. */
static void toggle(void *answer, const um_event *ev) {
    test_answer *a = (test_answer *)answer;
    if (ev->type != UM_EVENT_FINISH) return;
    if (a->n_events++) stop();
    else start();
}

static void starts_and_stops_in_the_middle_of_a_step(void **state) {
    (void)state;
    test_answer a = {0};
    add(&a, toggle);
    test_drain(sdar.engine);
    assert_true(sdar.engine->profile.on);
    add(&a, toggle);
    test_drain(sdar.engine);
    assert_false(sdar.engine->profile.on);
    json_decref(read_trace());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_nest),
        cmocka_unit_test(names_are_documented),
        cmocka_unit_test(a_profiled_step_allocates_nothing),
        cmocka_unit_test(an_answer_is_the_same_with_and_without),
        cmocka_unit_test(nothing_is_recorded_when_it_is_off),
        cmocka_unit_test(starts_and_stops_in_the_middle_of_a_step),
    };
    return cmocka_run_group_tests_name("engine_profile", tests, open_sdar, close_sdar);
}
