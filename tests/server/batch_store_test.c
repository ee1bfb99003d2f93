/* The parts of batches that need no server: expiry of files, completion windows, the check of an input, and the answers
 * of an earlier run. */
#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/api/apis.h"
#include "server/batch/store.h"

static char dir[] = "/tmp/unmask_batch_XXXXXX";
static char input[64], answers[64], files[64];

static int make_dir(void **state) {
    (void)state;
    if (!mkdtemp(dir)) return -1;
    snprintf(input, sizeof input, "%s/in", dir);
    snprintf(answers, sizeof answers, "%s/out", dir);
    snprintf(files, sizeof files, "%s/files", dir);
    return mkdir(files, 0700);
}

static int remove_dir(void **state) {
    (void)state;
    unlink(input);
    unlink(answers);
    return rmdir(files) || rmdir(dir); /* fails if files are left in them */
}

static void put(const char *path, const char *text) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static void expect_success(void *arg, um_status s, const um_err *err) {
    (void)arg, (void)err;
    assert_int_equal(s, UM_OK);
}

/* Opens a store without a server. It is stopping, so it sets no timer, which it does not have. */
static void open_store(um_batch_store *store, struct event_base *base) {
    um_err err;
    *store = (um_batch_store){.dir = dir, .stopping = true};
    assert_int_equal(um_work_queue_new(&store->disk, base, 1, 0, &err), UM_OK);
    assert_int_equal(um_files_load(store, &err), UM_OK);
}

/* Finishes all writes and frees the store. */
static void close_store(um_batch_store *store) {
    um_work_queue_free(store->disk);
    for (size_t i = 0; i < store->n_files; i++) um_file_free(store->file[i]);
    um_free(store->file);
}

static void store_file(um_batch_store *store, const char *name, int64_t expires) {
    um_buf data = {0};
    um_file *f = um_file_new(store, "batch", name, 0);
    f->expires = expires;
    um_buf_puts(&data, name);
    um_file_store(store, f, &data, expect_success, NULL);
}

static um_file *file_named(const um_batch_store *store, const char *name) {
    for (size_t i = 0; i < store->n_files; i++)
        if (um_streq(store->file[i]->name, name)) return store->file[i];
    return NULL;
}

static void expired_files_are_deleted_unless_a_batch_reads_them(void **state) {
    (void)state;
    struct event_base *base = event_base_new();
    um_batch_store store;
    open_store(&store, base);
    store_file(&store, "stays", 0);
    store_file(&store, "early", 100);
    store_file(&store, "read", 100);
    store_file(&store, "late", 200);
    close_store(&store);

    open_store(&store, base);
    assert_int_equal(store.n_files, 4);
    file_named(&store, "read")->n_readers = 1;
    assert_int_equal(um_files_expire(&store, 99), 100);
    assert_int_equal(store.n_files, 4);
    assert_int_equal(um_files_expire(&store, 100), 200);
    assert_null(file_named(&store, "early"));
    assert_int_equal(store.n_files, 3);
    file_named(&store, "read")->n_readers = 0;
    assert_int_equal(um_files_expire(&store, 100), 200);
    assert_null(file_named(&store, "read"));
    close_store(&store);

    open_store(&store, base);
    assert_int_equal(store.n_files, 2);
    assert_int_equal(um_files_expire(&store, 200), INT64_MAX);
    assert_non_null(file_named(&store, "stays"));
    um_file_delete(&store, file_named(&store, "stays"), expect_success, NULL);
    assert_int_equal(store.n_files, 0);
    close_store(&store);
    event_base_free(base);
}

static void a_file_expires_after_its_own_time_else_after_the_servers(void **state) {
    (void)state;
    static const struct { int64_t server, own, ttl; } cases[] = {{0, 0, 0}, {500, 0, 500}, {0, 30, 30}, {500, 30, 30}};
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        um_batch_store store = {.file_ttl = cases[i].server};
        um_file *f = um_file_new(&store, "batch", "x", cases[i].own);
        assert_int_equal(f->expires, cases[i].ttl ? f->created + cases[i].ttl : 0);
        um_file_free(f);
    }
}

/* ---- Windows ----------------------------------------------------------------------------------------------------- */

static void a_window_is_a_number_and_a_unit(void **state) {
    (void)state;
    assert_int_equal(um_batch_window("24h"), 86400);
    assert_int_equal(um_batch_window("90m"), 5400);
    assert_int_equal(um_batch_window("30d"), 30 * 86400);
    static const char *const bad[] = {"", "h", "24", "24 h", "-1h", "0h", "31d", "99999999999h", "1w", "1.5h"};
    for (size_t i = 0; i < UM_LEN(bad); i++)
        if (um_batch_window(bad[i])) fail_msg("accepted: %s", bad[i]);
}

/* ---- Inputs ------------------------------------------------------------------------------------------------------ */

#define REQUEST(id, method, url, more)                                                                                 \
    "{\"custom_id\":\"" id "\",\"method\":\"" method "\",\"url\":\"" url "\"," more "}\n"
#define URL      "/v1/completions"
#define LINE(id) REQUEST(id, "POST", URL, "\"body\":{}")

static void check(um_batch_job *b, um_idset *ids, const char *text) {
    static um_batch_store limits = {.line_memory = 4096};
    *b = (um_batch_job){.store = &limits, .api = &um_api_completions};
    *ids = (um_idset){0};
    put(input, text);
    um_batch_check(b, input, ids);
}

static void a_check_collects_the_ids_of_an_input(void **state) {
    (void)state;
    um_batch_job b;
    um_idset ids;
    check(&b, &ids, "\xEF\xBB\xBF" LINE("a") "\r\n\n" LINE("\xC3\xA4 b") LINE("c"));
    assert_int_equal(b.n_errors, 0);
    assert_int_equal(b.total, 3);
    assert_non_null(um_idset_find(&ids, "\xC3\xA4 b"));
    um_idset_free(&ids);
}

static void an_invalid_line_is_reported_with_its_number(void **state) {
    (void)state;
    static const struct {
        const char *text, *code;
        int64_t line;
    } bad[] = {
        {"", "empty_file", 0},
        {"\n\n", "empty_file", 0},
        {LINE("a") "[]\n", "invalid_json_line", 2},
        {LINE("a") "{\n", "invalid_json_line", 2},
        {REQUEST("a", "POST", URL, "\"body\":{\"n\":1,\"n\":2}"), "invalid_json_line", 1},
        {LINE("a") LINE("a"), "duplicate_custom_id", 2},
        {LINE(""), "invalid_custom_id", 1},
        {"{\"custom_id\":7,\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{}}\n", "invalid_custom_id", 1},
        {REQUEST("a", "GET", URL, "\"body\":{}"), "invalid_method", 1},
        {REQUEST("a", "POST", "/v1/chat/completions", "\"body\":{}"), "mismatched_endpoint", 1},
        {REQUEST("a", "POST", URL, "\"body\":[]"), "invalid_body", 1},
        {REQUEST("a", "POST", URL, "\"body\":{\"prompt\":[{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}]}"),
         "invalid_json_line", 1},
        {REQUEST("a", "POST", URL, "\"body\":{},\"extra\":1"), "unknown_parameter", 1},
    };
    for (size_t i = 0; i < UM_LEN(bad); i++) {
        um_batch_job b;
        um_idset ids;
        check(&b, &ids, bad[i].text);
        assert_int_equal(b.n_errors, 1);
        assert_string_equal(b.error[0].code, bad[i].code);
        assert_int_equal(b.error[0].line, bad[i].line);
        um_idset_free(&ids);
    }
}

static void a_check_stops_after_ten_errors(void **state) {
    (void)state;
    um_batch_job b;
    um_idset ids;
    um_buf text = {0};
    for (int i = 0; i < 3 * UM_BATCH_ERRORS_MAX; i++) um_buf_puts(&text, "{}\n");
    check(&b, &ids, text.data);
    assert_int_equal(b.n_errors, UM_BATCH_ERRORS_MAX);
    um_idset_free(&ids);
    um_buf_free(&text);
}

static void an_input_has_at_most_50000_lines(void **state) {
    (void)state;
    um_batch_job b;
    um_idset ids;
    um_buf text = {0};
    for (int i = 0; i <= UM_BATCH_LINES_MAX; i++)
        um_buf_printf(&text, "{\"custom_id\":\"%d\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{}}\n", i);
    check(&b, &ids, text.data);
    assert_int_equal(b.n_errors, 1);
    assert_string_equal(b.error[0].code, "too_many_lines");
    um_idset_free(&ids);
    um_buf_free(&text);
}

/* ---- Answers of an earlier run ----------------------------------------------------------------------------------- */

#define ANSWER(id) "{\"id\":\"batch_req_1\",\"custom_id\":\"" id "\",\"response\":{}}\n"

/* Resumes from the answers `text` of an earlier run. Returns the number of answers; *keep: bytes of the file that are
 * kept. */
static int64_t resume(const char *text, const char *ids_text, int64_t *keep) {
    um_batch_job b;
    um_idset ids;
    um_ledger l;
    um_err err;
    int64_t n = 0;
    check(&b, &ids, ids_text);
    put(answers, text);
    assert_int_equal(um_batch_resume(&l, answers, &ids, &n, &err), UM_OK);
    int64_t marked = 0;
    for (size_t i = 0; i < ids.cap; i++) marked += ids.slot[i].key && ids.slot[i].answered;
    assert_int_equal(marked, n);
    *keep = l.keep;
    (void)um_ledger_close(&l, NULL);
    um_idset_free(&ids);
    return n;
}

static void answers_are_kept_up_to_the_first_invalid_line(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t n;
    } cases[] = {
        {"", 0},
        {ANSWER("a") ANSWER("c"), 2},
        {ANSWER("a") "{\"custom_id\":\"b\"", 1},
        {ANSWER("a") "{\"custom_id\":\"b\"}", 1}, /* its newline is missing */
        {ANSWER("a") ANSWER("a"), 1},
        {ANSWER("a") ANSWER("x") ANSWER("b"), 1},
        {ANSWER("a") "nothing\n" ANSWER("b"), 1},
    };
    um_log_set_level(UM_LOG_ERROR);
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        int64_t keep = 0;
        assert_int_equal(resume(cases[i].text, LINE("a") LINE("b") LINE("c"), &keep), cases[i].n);
        assert_int_equal(keep, cases[i].n * (int64_t)strlen(ANSWER("a")));
    }
    um_log_set_level(UM_LOG_WARN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expired_files_are_deleted_unless_a_batch_reads_them),
        cmocka_unit_test(a_file_expires_after_its_own_time_else_after_the_servers),
        cmocka_unit_test(a_window_is_a_number_and_a_unit),
        cmocka_unit_test(a_check_collects_the_ids_of_an_input),
        cmocka_unit_test(an_invalid_line_is_reported_with_its_number),
        cmocka_unit_test(a_check_stops_after_ten_errors),
        cmocka_unit_test(an_input_has_at_most_50000_lines),
        cmocka_unit_test(answers_are_kept_up_to_the_first_invalid_line),
    };
    return cmocka_run_group_tests_name("batch_store", tests, make_dir, remove_dir);
}
