/* server: long lines of batches, which the reader thread reads and encodes. The tests block the reader with a job that
 * waits for a pipe, so nothing depends on timing. */
#include "asking.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "server/api/apis.h"
#include "server/batch/store.h"
#include "server/frontend.h"
#include "server/generate/intake.h"

static char dir[32];
/* Pipes: the blocking job writes a byte to `started` and waits for one from `unblock`. */
static int started[2], unblock[2];

static void open_batches(void) {
    server_state_dir = dir;
    open_server();
    n_script = 0;
    script_limit = SUBMITTED_MAX;
}

static int setup(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/unmask_lines_XXXXXX");
    if (!mkdtemp(dir) || pipe(started) || pipe(unblock)) return -1;
    open_batches();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    um_buf command = {0};
    um_server_free(server);
    for (int i = 0; i < 2; i++) close(started[i]), close(unblock[i]);
    um_buf_printf(&command, "rm -r %s", dir);
    int failed = system(command.data);
    um_buf_free(&command);
    return failed;
}

static um_batch_store *store(void) { return server->service.batches; }

/* ---- The reader -------------------------------------------------------------------------------------------------- */

static um_status block_on_pipe(void *arg, um_err *err) {
    char c = 0;
    (void)arg, (void)err;
    return write(started[1], &c, 1) == 1 && read(unblock[0], &c, 1) == 1 ? UM_OK : UM_EIO;
}

static void expect_blocked(void) {
    char c;
    assert_int_equal(read(started[0], &c, 1), 1);
}

/* Submits a job that blocks the reader. Later jobs wait behind it. */
static void submit_blocker(void) { um_work_queue_submit(store()->reader, &(um_work){block_on_pipe, NULL, NULL, 0}); }

static void block_reader(void) {
    submit_blocker();
    expect_blocked();
}

static void unblock_reader(void) { assert_int_equal(write(unblock[1], "", 1), 1); }

static size_t n_reader_jobs(void) { return um_work_queue_pending(store()->reader); }

/* ---- Batches ----------------------------------------------------------------------------------------------------- */

#define SHORT ((size_t)0)
#define LONG  (2 * UM_INLINE_BYTES_MAX)

/* Appends a line whose prompt has n ids and is padded with blanks. */
static void add_line(um_buf *input, const char *id, int n, size_t blanks, const char *more) {
    um_buf_printf(input,
                  "{\"custom_id\":\"%s\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{%s\"prompt\":[", id,
                  more);
    for (size_t i = 0; i < blanks; i++) um_buf_putc(input, ' ');
    for (int i = 0; i < n; i++) um_buf_puts(input, i ? ",5" : "5");
    um_buf_puts(input, "]}}\n");
}

static void expect_success(void *arg, um_status s, const um_err *err) {
    (void)arg, (void)err;
    assert_int_equal(s, UM_OK);
}

/* Creates a batch of these lines and empties the buffer. */
static um_batch_job *batch_of(um_buf *input) {
    um_file *f = um_file_new(store(), "batch", "in", 0);
    um_batch_job *b = um_batch_job_new(store());
    b->api = &um_api_completions;
    snprintf(b->input_id, sizeof b->input_id, "%s", f->id);
    snprintf(b->window, sizeof b->window, "24h");
    b->at[UM_BATCH_VALIDATING] += (int64_t)store()->n_batches; /* so that the batches have an order */
    b->expires = b->at[UM_BATCH_VALIDATING] + 86400;
    um_file_store(store(), f, input, expect_success, NULL);
    PUMP_UNTIL(um_file_find(store(), b->input_id));
    um_batch_run_new(b);
    um_batch_store_add_batch(store(), b);
    um_batch_job_save(b, NULL, NULL);
    um_batch_store_schedule(store(), 0);
    return b;
}

static um_batch_job *batch_of_one(size_t blanks, const char *more) {
    um_buf input = {0};
    add_line(&input, "r1", 1, blanks, more);
    return batch_of(&input);
}

static void finish_request(int32_t i) {
    um_msg_finish f = {.rid = script[i].rid, .text = um_str_of("42"), .finish = UM_FINISH_EOS, .stop_id = -1};
    script[i].listener.finish(script[i].arg, &f);
}

/* Counts the answers in a file that contain `part`; 0 if there is no file. */
static int64_t n_answers(const char *file_id, const char *part) {
    char *path = um_file_path(store(), file_id);
    um_lines in;
    um_str line;
    int64_t n = 0;
    if (um_lines_open(&in, path, NULL) == UM_OK)
        while (um_lines_next(&in, true, &line, NULL) == UM_LINES_LINE)
            n += memmem(line.p, line.n, part, strlen(part)) != NULL;
    um_lines_close(&in);
    um_free(path);
    return n;
}

static bool all_batches_are_over(void) {
    bool over = true;
    for (size_t i = 0; i < store()->n_batches; i++) over &= um_batch_is_over(store()->batch[i]->status);
    return over;
}

static void expect_end(const um_batch_job *b, um_batch_status how, int64_t completed, int64_t failed) {
    PUMP_UNTIL(all_batches_are_over());
    assert_int_equal(b->status, how);
    assert_int_equal(b->completed, completed);
    assert_int_equal(b->failed, failed);
    assert_int_equal(n_answers(b->output_id, "\"custom_id\":"), completed);
    assert_int_equal(n_answers(b->error_id, "\"custom_id\":"), failed);
    assert_int_equal(n_reader_jobs(), 0);
}

/* ---- A line that waits for the reader ---------------------------------------------------------------------------- */

/* The two jobs of the reader for a long line. */
typedef enum { READ, ENCODE, N_STEPS } step;

/* Creates a batch of a long line and a short one. The reader is blocked before this step of the long line. */
static um_batch_job *block_at(step p) {
    um_buf input = {0};
    block_reader();
    add_line(&input, "r1", 1, LONG, "");
    add_line(&input, "r2", 2, SHORT, "");
    um_batch_job *b = batch_of(&input);
    PUMP_UNTIL(n_reader_jobs() == 2);
    if (p == READ) return b;
    submit_blocker();
    unblock_reader();
    expect_blocked(); /* the line was read; the loop will submit the next job */
    PUMP_UNTIL(n_reader_jobs() == 2);
    return b;
}

static void expect_health(void) {
    answer a;
    ask_at(&a, um_server_port(server), "GET", "/health", UM_STR(""));
    PUMP_UNTIL(a.done);
    assert_int_equal(a.status, 200);
    free_answer(&a);
}

static void the_server_answers_while_the_reader_has_a_line(void **state) {
    (void)state;
    for (step p = READ; p < N_STEPS; p++) {
        um_batch_job *b = block_at(p);
        int32_t before = n_script;
        expect_health();
        assert_int_equal(n_reader_jobs(), 2);
        assert_int_equal(n_script, before);
        assert_int_equal(b->status, UM_BATCH_IN_PROGRESS);
        unblock_reader();
        PUMP_UNTIL(n_script == before + 2);
        finish_request(before), finish_request(before + 1);
        expect_end(b, UM_BATCH_COMPLETED, 2, 0);
    }
}

static void a_batch_can_be_cancelled_while_the_reader_has_a_line(void **state) {
    (void)state;
    for (step p = READ; p < N_STEPS; p++) {
        um_batch_job *b = block_at(p);
        um_batch_run_cancel(b);
        expect_health();
        assert_int_equal(b->status, UM_BATCH_CANCELLING);
        unblock_reader();
        expect_end(b, UM_BATCH_CANCELLED, 0, 0);
        assert_int_equal(n_script, 0);
    }
}

static void a_window_can_end_while_the_reader_has_a_line(void **state) {
    (void)state;
    for (step p = READ; p < N_STEPS; p++) {
        um_batch_job *b = block_at(p);
        b->expires = 1;
        um_batch_store_schedule(store(), 0);
        PUMP_UNTIL(b->failed == 2); /* both errors are written, also that of the line that the reader has */
        assert_int_equal(b->status, UM_BATCH_IN_PROGRESS);
        unblock_reader();
        expect_end(b, UM_BATCH_EXPIRED, 0, 2);
        assert_int_equal(n_answers(b->error_id, "\"batch_expired\""), 2);
        assert_int_equal(n_script, 0);
    }
}

/* The reader's job ends before the server is freed or meanwhile. In both cases the next server runs the line. */
static void a_server_can_stop_while_the_reader_has_a_line(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_STEPS; i++) {
        char id[UM_ID_BYTES];
        um_batch_job *b = block_at((step)(i / 2));
        snprintf(id, sizeof id, "%s", b->id);
        um_server_stop(server);
        unblock_reader();
        if (i % 2) PUMP_UNTIL(n_reader_jobs() == 0);
        assert_int_equal(n_script, 0);
        um_server_free(server);
        open_batches();
        b = um_batch_job_find(store(), id);
        assert_non_null(b);
        PUMP_UNTIL(n_script == 2);
        finish_request(0), finish_request(1);
        expect_end(b, UM_BATCH_COMPLETED, 2, 0);
        n_script = 0;
    }
}

/* ---- Order ------------------------------------------------------------------------------------------------------- */

static void lines_start_in_order_and_the_oldest_batch_first(void **state) {
    (void)state;
    um_buf input = {0};
    block_reader();
    add_line(&input, "r1", 1, SHORT, "");
    add_line(&input, "r2", 2, LONG, "");
    add_line(&input, "r3", 3, SHORT, "");
    add_line(&input, "r4", 4, LONG, "");
    um_batch_job *older = batch_of(&input);
    add_line(&input, "r1", 5, SHORT, "");
    um_batch_job *younger = batch_of(&input);
    PUMP_UNTIL(n_reader_jobs() == 2 && younger->status == UM_BATCH_IN_PROGRESS);
    expect_health();
    assert_int_equal(n_script, 0);
    unblock_reader();
    PUMP_UNTIL(n_script == 5);
    for (int32_t i = 0; i < n_script; i++) assert_int_equal(script[i].n_ids, i + 1);
    for (int32_t i = 0; i < n_script; i++) finish_request(i);
    expect_end(older, UM_BATCH_COMPLETED, 4, 0);
    expect_end(younger, UM_BATCH_COMPLETED, 1, 0);
}

static void each_of_200_lines_is_answered_once(void **state) {
    (void)state;
    enum { N = 100 };
    um_batch_job *b[2];
    um_buf input = {0};
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < N; i++) {
            char id[16];
            snprintf(id, sizeof id, "r%d", i);
            add_line(&input, id, 1 + i, i % 3 ? SHORT : LONG, "");
        }
        b[k] = batch_of(&input);
    }
    for (int32_t i = 0; i < 2 * N; i++) {
        PUMP_UNTIL(n_script > i);
        finish_request(i);
    }
    for (int k = 0; k < 2; k++) expect_end(b[k], UM_BATCH_COMPLETED, N, 0);
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

static void a_long_line_is_retried_when_the_queue_was_full(void **state) {
    (void)state;
    script_limit = 0;
    um_batch_job *b = batch_of_one(LONG, "");
    PUMP_UNTIL(store()->held_until > 0);
    script_limit = SUBMITTED_MAX;
    PUMP_UNTIL(n_script == 1);
    finish_request(0);
    expect_end(b, UM_BATCH_COMPLETED, 1, 0);
}

static void an_invalid_long_line_is_answered_with_the_error(void **state) {
    (void)state;
    um_batch_job *b = batch_of_one(LONG, "\"max_tokens\":0,");
    expect_end(b, UM_BATCH_COMPLETED, 0, 1);
    assert_int_equal(n_answers(b->error_id, "\"param\":\"max_tokens\""), 1);
    b = batch_of_one(LONG, "\"stream\":true,");
    expect_end(b, UM_BATCH_COMPLETED, 0, 1);
    assert_int_equal(n_answers(b->error_id, "\"param\":\"stream\""), 1);
}

/* ---- Inputs that change ------------------------------------------------------------------------------------------ */

/* Overwrites the input after its check: a line of `first` and blanks, then the lines `more`. */
static void overwrite_input(const um_batch_job *b, const char *first, size_t blanks, const char *more) {
    char *path = um_file_path(store(), b->input_id);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fprintf(f, "%s%*s\n%s", first, (int)blanks, "", more);
    fclose(f);
    um_free(path);
}

static void expect_error(const um_batch_job *b, const char *code, int64_t line) {
    assert_int_equal(b->n_errors, 1);
    assert_string_equal(b->error[0].code, code);
    assert_int_equal(b->error[0].line, line);
}

static void lines_that_were_overwritten_get_errors_and_the_next_run(void **state) {
    (void)state;
    static const size_t blanks[] = {LONG, UM_LINE_MAX};
    for (size_t i = 0; i < UM_LEN(blanks); i++) {
        um_buf more = {0};
        um_batch_job *b = block_at(READ);
        int32_t before = n_script;
        for (int copy = 0; copy < 2; copy++) add_line(&more, "r2", 2, SHORT, "");
        overwrite_input(b, "{", blanks[i], more.data);
        um_buf_free(&more);
        unblock_reader();
        PUMP_UNTIL(n_script == before + 1);
        finish_request(before);
        expect_end(b, UM_BATCH_COMPLETED, 1, 1);
        expect_error(b, "invalid_json_line", 1);
        assert_int_equal(n_answers(b->output_id, "\"custom_id\":\"r2\""), 1);
        assert_int_equal(n_answers(b->error_id, "\"custom_id\":\"r1\",\"response\":null"), 1);
        assert_int_equal(n_answers(b->error_id, "\"line_lost\""), 1);
        assert_int_equal(n_answers(b->error_id, "line 1 is lost"), 1);
    }
}

/* Creates a batch of two lines. The first one runs as request 0, the second one waits for the blocked reader. */
static um_batch_job *block_second_line(void) {
    um_buf input = {0};
    block_reader();
    add_line(&input, "r1", 1, SHORT, "");
    add_line(&input, "r2", 2, (size_t)1 << 20, ""); /* too long to be read together with the first line */
    um_batch_job *b = batch_of(&input);
    PUMP_UNTIL(n_reader_jobs() == 2);
    submit_blocker();
    unblock_reader();
    expect_blocked();
    PUMP_UNTIL(n_script == 1 && n_reader_jobs() == 2);
    return b;
}

/* Makes every further read of an open file fail, by replacing its descriptor with that of a folder. */
static void break_reads(const char *path) {
    char name[32], target[PATH_MAX];
    int broken = open("/", O_RDONLY), n_broken = 0;
    for (int fd = 0; fd < 256; fd++) {
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(name, target, sizeof target - 1);
        if (n < 0) continue;
        target[n] = '\0';
        if (um_streq(target, path)) n_broken += dup2(broken, fd) == fd;
    }
    assert_int_equal(n_broken, 1);
    close(broken);
}

static void an_input_that_becomes_unreadable_fails_its_batch(void **state) {
    (void)state;
    um_batch_job *b = block_second_line();
    char *path = um_file_path(store(), b->input_id);
    um_log_set_level(UM_LOG_ERROR);
    break_reads(path);
    unblock_reader();
    PUMP_UNTIL(n_reader_jobs() == 0);
    assert_int_equal(b->status, UM_BATCH_IN_PROGRESS); /* because a line runs */
    b->expires = 1;
    um_batch_store_schedule(store(), 0);
    expect_health();
    finish_request(0);
    expect_end(b, UM_BATCH_FAILED, 1, 0);
    expect_error(b, "unreadable_file", 0);
    assert_non_null(strstr(b->error[0].message, path));
    um_log_set_level(UM_LOG_WARN);
    um_free(path);
}

/* A failed read of the input after a batch was cancelled or has expired changes nothing. */
static void a_cancelled_or_expired_batch_does_not_fail(void **state) {
    (void)state;
    for (int is_late = 0; is_late < 2; is_late++) {
        um_batch_job *b = block_second_line();
        char *path = um_file_path(store(), b->input_id);
        break_reads(path);
        um_free(path);
        b->expires = is_late ? 1 : b->expires;
        if (!is_late) um_batch_run_cancel(b);
        um_batch_store_schedule(store(), 0);
        if (is_late) PUMP_UNTIL(b->failed == 2);
        unblock_reader();
        expect_end(b, is_late ? UM_BATCH_EXPIRED : UM_BATCH_CANCELLED, 0, is_late ? 2 : 0);
        n_script = 0;
    }
}

static void a_restart_with_an_invalid_input_keeps_the_answers(void **state) {
    (void)state;
    char id[UM_ID_BYTES];
    um_batch_job *b = block_second_line();
    finish_request(0);
    PUMP_UNTIL(b->completed == 1);
    snprintf(id, sizeof id, "%s", b->id);
    overwrite_input(b, "{", LONG, "");
    um_server_stop(server);
    unblock_reader();
    um_server_free(server);
    um_log_set_level(UM_LOG_ERROR);
    open_batches();
    b = um_batch_job_find(store(), id);
    assert_non_null(b);
    expect_end(b, UM_BATCH_FAILED, 1, 0);
    expect_error(b, "invalid_json_line", 1);
    assert_int_equal(b->total, 2);
    assert_int_equal(n_script, 0);
    um_log_set_level(UM_LOG_WARN);
}

#define CLAIM(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CLAIM(the_server_answers_while_the_reader_has_a_line),
        CLAIM(a_batch_can_be_cancelled_while_the_reader_has_a_line),
        CLAIM(a_window_can_end_while_the_reader_has_a_line),
        CLAIM(a_server_can_stop_while_the_reader_has_a_line),
        CLAIM(lines_start_in_order_and_the_oldest_batch_first),
        CLAIM(each_of_200_lines_is_answered_once),
        CLAIM(a_long_line_is_retried_when_the_queue_was_full),
        CLAIM(an_invalid_long_line_is_answered_with_the_error),
        CLAIM(lines_that_were_overwritten_get_errors_and_the_next_run),
        CLAIM(an_input_that_becomes_unreadable_fails_its_batch),
        CLAIM(a_cancelled_or_expired_batch_does_not_fail),
        CLAIM(a_restart_with_an_invalid_input_keeps_the_answers),
    };
    return cmocka_run_group_tests_name("server_batch_lines", tests, NULL, NULL);
}
