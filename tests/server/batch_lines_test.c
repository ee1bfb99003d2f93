/* server: lines of a batch that are read beside the loop. The reader is held by a job that waits at a pipe: one loop,
 * and nothing depends on timing. */
#include "asking.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "server/batch/store.h"
#include "server/frontend.h"
#include "server/reading.h"

static char dir[32];
static int begun[2], go[2]; /* pipes: a job that holds the reader says that it has begun, and waits for a byte */

static void open_batches(void) {
    server_state_dir = dir;
    open_server();
    n_script = 0;
    script_room = SUBMITTED_MAX;
}

static int begin(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/unmask_lines_XXXXXX");
    if (!mkdtemp(dir) || pipe(begun) || pipe(go)) return -1;
    open_batches();
    return 0;
}

static int end(void **state) {
    (void)state;
    um_buf command = {0};
    um_server_free(server);
    for (int i = 0; i < 2; i++) close(begun[i]), close(go[i]);
    um_buf_printf(&command, "rm -r %s", dir);
    int failed = system(command.data);
    um_buf_free(&command);
    return failed;
}

static um_batches *all(void) { return server->batches; }

/* ---- The reader -------------------------------------------------------------------------------------------------- */

static um_status wait_at_pipe(void *arg, um_err *err) {
    char c = 0;
    (void)arg, (void)err;
    return write(begun[1], &c, 1) == 1 && read(go[0], &c, 1) == 1 ? UM_OK : UM_EIO;
}

static void expect_begun(void) {
    char c;
    assert_int_equal(read(begun[0], &c, 1), 1);
}

/* What is given to the reader from now on waits. */
static void give_holder(void) { um_jobs_give(all()->reader, &(um_job){wait_at_pipe, NULL, NULL, 0}); }

static void hold(void) {
    give_holder();
    expect_begun();
}

static void let_go(void) { assert_int_equal(write(go[1], "", 1), 1); }

static size_t n_open(void) { return um_jobs_open(all()->reader); }

/* ---- Batches ----------------------------------------------------------------------------------------------------- */

#define SHORT ((size_t)0)
#define LONG  (2 * UM_READ_AT_ONCE)

/* Adds a line whose prompt has n ids, and so many blanks. */
static void add_line(um_buf *input, const char *id, int n, size_t blanks, const char *more) {
    um_buf_printf(input,
                  "{\"custom_id\":\"%s\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{%s\"prompt\":[", id,
                  more);
    for (size_t i = 0; i < blanks; i++) um_buf_putc(input, ' ');
    for (int i = 0; i < n; i++) um_buf_puts(input, i ? ",5" : "5");
    um_buf_puts(input, "]}}\n");
}

static void stored(void *arg, um_status s, const um_err *err) {
    (void)arg, (void)err;
    assert_int_equal(s, UM_OK);
}

/* A batch of these lines, which are emptied. */
static um_batch *batch_of(um_buf *input) {
    um_file *f = um_file_new(all(), "batch", "in", 0);
    um_batch *b = um_batch_new(all());
    b->api = &um_api_completions;
    snprintf(b->input_id, sizeof b->input_id, "%s", f->id);
    snprintf(b->window, sizeof b->window, "24h");
    b->at[UM_BATCH_VALIDATING] += (int64_t)all()->n_batches; /* so that they have an order */
    b->expires = b->at[UM_BATCH_VALIDATING] + 86400;
    um_file_store(all(), f, input, stored, NULL);
    PUMP_UNTIL(um_file_find(all(), b->input_id));
    um_run_new(b);
    um_batch_list(all(), b);
    um_batch_save(b, NULL, NULL);
    um_batches_wake(all(), 0);
    return b;
}

static um_batch *batch_of_one(size_t blanks, const char *more) {
    um_buf input = {0};
    add_line(&input, "r1", 1, blanks, more);
    return batch_of(&input);
}

static void say(int32_t i) {
    um_msg_finish f = {.rid = script[i].rid, .text = um_str_of("42"), .finish = UM_FINISH_EOS, .stop_id = -1};
    script[i].listener.finish(script[i].arg, &f);
}

/* Lines with this part in one of the files of answers; none when there is no file. */
static int64_t n_answers(const char *file_id, const char *part) {
    char *path = um_file_path(all(), file_id);
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

static bool all_are_over(void) {
    bool over = true;
    for (size_t i = 0; i < all()->n_batches; i++) over &= um_batch_is_over(all()->batch[i]->status);
    return over;
}

static void expect_end(const um_batch *b, um_batch_status how, int64_t completed, int64_t failed) {
    PUMP_UNTIL(all_are_over());
    assert_int_equal(b->status, how);
    assert_int_equal(b->completed, completed);
    assert_int_equal(b->failed, failed);
    assert_int_equal(n_answers(b->output_id, "\"custom_id\":"), completed);
    assert_int_equal(n_answers(b->error_id, "\"custom_id\":"), failed);
    assert_int_equal(n_open(), 0);
}

/* ---- A line that is held ----------------------------------------------------------------------------------------- */

/* A long line is with the reader twice. */
typedef enum { LOOKED_FOR, ENCODED, N_PLACES } place;

/* A batch of a long line, which waits for the reader, and of a short one behind it. The holder is let go later. */
static um_batch *hold_at(place p) {
    um_buf input = {0};
    hold();
    add_line(&input, "r1", 1, LONG, "");
    add_line(&input, "r2", 2, SHORT, "");
    um_batch *b = batch_of(&input);
    PUMP_UNTIL(n_open() == 2);
    if (p == LOOKED_FOR) return b;
    give_holder();
    let_go();
    expect_begun(); /* so the line was found, which the loop does not know */
    PUMP_UNTIL(n_open() == 2);
    return b;
}

static void expect_health(void) {
    answer a;
    ask_at(&a, um_server_port(server), "GET", "/health", UM_STR(""));
    PUMP_UNTIL(a.done);
    assert_int_equal(a.status, 200);
    forget_answer(&a);
}

static void the_loop_goes_on_while_a_line_is_read(void **state) {
    (void)state;
    for (place p = LOOKED_FOR; p < N_PLACES; p++) {
        um_batch *b = hold_at(p);
        int32_t before = n_script;
        expect_health();
        assert_int_equal(n_open(), 2);
        assert_int_equal(n_script, before);
        assert_int_equal(b->status, UM_BATCH_IN_PROGRESS);
        let_go();
        PUMP_UNTIL(n_script == before + 2);
        say(before), say(before + 1);
        expect_end(b, UM_BATCH_COMPLETED, 2, 0);
    }
}

static void a_batch_may_be_cancelled_while_a_line_is_read(void **state) {
    (void)state;
    for (place p = LOOKED_FOR; p < N_PLACES; p++) {
        um_batch *b = hold_at(p);
        um_run_cancel(b);
        expect_health();
        assert_int_equal(b->status, UM_BATCH_CANCELLING);
        let_go();
        expect_end(b, UM_BATCH_CANCELLED, 0, 0);
        assert_int_equal(n_script, 0);
    }
}

static void a_window_may_end_while_a_line_is_read(void **state) {
    (void)state;
    for (place p = LOOKED_FOR; p < N_PLACES; p++) {
        um_batch *b = hold_at(p);
        b->expires = 1;
        um_batches_wake(all(), 0);
        PUMP_UNTIL(b->failed == 2); /* on the disk, the line that is read among them */
        assert_int_equal(b->status, UM_BATCH_IN_PROGRESS);
        let_go();
        expect_end(b, UM_BATCH_EXPIRED, 0, 2);
        assert_int_equal(n_answers(b->error_id, "\"batch_expired\""), 2);
        assert_int_equal(n_script, 0);
    }
}

/* Whether its reading ends before or while the server is freed: the next server answers it. */
static void a_server_may_stop_while_a_line_is_read(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_PLACES; i++) {
        char id[UM_ID_BYTES];
        um_batch *b = hold_at((place)(i / 2));
        snprintf(id, sizeof id, "%s", b->id);
        um_server_stop(server);
        let_go();
        if (i % 2) PUMP_UNTIL(n_open() == 0);
        assert_int_equal(n_script, 0);
        um_server_free(server);
        open_batches();
        b = um_batch_find(all(), id);
        assert_non_null(b);
        PUMP_UNTIL(n_script == 2);
        say(0), say(1);
        expect_end(b, UM_BATCH_COMPLETED, 2, 0);
        n_script = 0;
    }
}

/* ---- Order ------------------------------------------------------------------------------------------------------- */

static void lines_start_in_their_order_and_the_oldest_batch_first(void **state) {
    (void)state;
    um_buf input = {0};
    hold();
    add_line(&input, "r1", 1, SHORT, "");
    add_line(&input, "r2", 2, LONG, "");
    add_line(&input, "r3", 3, SHORT, "");
    add_line(&input, "r4", 4, LONG, "");
    um_batch *older = batch_of(&input);
    add_line(&input, "r1", 5, SHORT, "");
    um_batch *younger = batch_of(&input);
    PUMP_UNTIL(n_open() == 2 && younger->status == UM_BATCH_IN_PROGRESS);
    expect_health();
    assert_int_equal(n_script, 0);
    let_go();
    PUMP_UNTIL(n_script == 5);
    for (int32_t i = 0; i < n_script; i++) assert_int_equal(script[i].n_ids, i + 1);
    for (int32_t i = 0; i < n_script; i++) say(i);
    expect_end(older, UM_BATCH_COMPLETED, 4, 0);
    expect_end(younger, UM_BATCH_COMPLETED, 1, 0);
}

static void every_line_of_many_is_answered_once(void **state) {
    (void)state;
    enum { N = 100 };
    um_batch *b[2];
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
        say(i);
    }
    for (int k = 0; k < 2; k++) expect_end(b[k], UM_BATCH_COMPLETED, N, 0);
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

static void a_long_line_that_was_refused_is_read_again(void **state) {
    (void)state;
    script_room = 0;
    um_batch *b = batch_of_one(LONG, "");
    PUMP_UNTIL(all()->held_until > 0);
    script_room = SUBMITTED_MAX;
    PUMP_UNTIL(n_script == 1);
    say(0);
    expect_end(b, UM_BATCH_COMPLETED, 1, 0);
}

static void what_is_wrong_in_a_long_line_is_its_answer(void **state) {
    (void)state;
    um_batch *b = batch_of_one(LONG, "\"max_tokens\":0,");
    expect_end(b, UM_BATCH_COMPLETED, 0, 1);
    assert_int_equal(n_answers(b->error_id, "\"param\":\"max_tokens\""), 1);
    b = batch_of_one(LONG, "\"stream\":true,");
    expect_end(b, UM_BATCH_COMPLETED, 0, 1);
    assert_int_equal(n_answers(b->error_id, "\"param\":\"stream\""), 1);
}

/* ---- Inputs that change ------------------------------------------------------------------------------------------ */

/* Somebody writes to the folder, behind the check: `first`, blanks, and further lines. */
static void spoil(const um_batch *b, const char *first, size_t blanks, const char *more) {
    char *path = um_file_path(all(), b->input_id);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fprintf(f, "%s%*s\n%s", first, (int)blanks, "", more);
    fclose(f);
    um_free(path);
}

static void expect_error(const um_batch *b, const char *code, int64_t line) {
    assert_int_equal(b->n_errors, 1);
    assert_string_equal(b->error[0].code, code);
    assert_int_equal(b->error[0].line, line);
}

static void lines_that_were_spoilt_have_errors_and_the_next_go_on(void **state) {
    (void)state;
    static const size_t blanks[] = {LONG, UM_LINE_MAX};
    for (size_t i = 0; i < UM_LEN(blanks); i++) {
        um_buf more = {0};
        um_batch *b = hold_at(LOOKED_FOR);
        int32_t before = n_script;
        for (int twin = 0; twin < 2; twin++) add_line(&more, "r2", 2, SHORT, "");
        spoil(b, "{", blanks[i], more.data);
        um_buf_free(&more);
        let_go();
        PUMP_UNTIL(n_script == before + 1);
        say(before);
        expect_end(b, UM_BATCH_COMPLETED, 1, 1);
        expect_error(b, "invalid_json_line", 1);
        assert_int_equal(n_answers(b->output_id, "\"custom_id\":\"r2\""), 1);
        assert_int_equal(n_answers(b->error_id, "\"custom_id\":\"r1\",\"response\":null"), 1);
        assert_int_equal(n_answers(b->error_id, "\"line_lost\""), 1);
        assert_int_equal(n_answers(b->error_id, "its line 1 is lost"), 1);
    }
}

/* A batch of two lines whose first one runs as request 0 and whose second one waits for the reader, which is held. */
static um_batch *hold_second(void) {
    um_buf input = {0};
    hold();
    add_line(&input, "r1", 1, SHORT, "");
    add_line(&input, "r2", 2, (size_t)1 << 20, ""); /* not among the bytes that the first one came with */
    um_batch *b = batch_of(&input);
    PUMP_UNTIL(n_open() == 2);
    give_holder();
    let_go();
    expect_begun();
    PUMP_UNTIL(n_script == 1 && n_open() == 2);
    return b;
}

/* Lets every further read of an open file fail: it is a folder from now on. */
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

static void an_input_that_can_not_be_read_any_more_fails_its_batch(void **state) {
    (void)state;
    um_batch *b = hold_second();
    char *path = um_file_path(all(), b->input_id);
    um_log_set_level(UM_LOG_ERROR);
    break_reads(path);
    let_go();
    PUMP_UNTIL(n_open() == 0);
    assert_int_equal(b->status, UM_BATCH_IN_PROGRESS); /* a line runs */
    b->expires = 1;
    um_batches_wake(all(), 0);
    expect_health();
    say(0);
    expect_end(b, UM_BATCH_FAILED, 1, 0);
    expect_error(b, "unreadable_file", 0);
    assert_non_null(strstr(b->error[0].message, path));
    um_log_set_level(UM_LOG_WARN);
    um_free(path);
}

/* A read of the input that fails behind the end of its batch changes nothing. */
static void what_has_been_cancelled_or_is_too_late_does_not_fail(void **state) {
    (void)state;
    for (int is_late = 0; is_late < 2; is_late++) {
        um_batch *b = hold_second();
        char *path = um_file_path(all(), b->input_id);
        break_reads(path);
        um_free(path);
        b->expires = is_late ? 1 : b->expires;
        if (!is_late) um_run_cancel(b);
        um_batches_wake(all(), 0);
        if (is_late) PUMP_UNTIL(b->failed == 2);
        let_go();
        expect_end(b, is_late ? UM_BATCH_EXPIRED : UM_BATCH_CANCELLED, 0, is_late ? 2 : 0);
        n_script = 0;
    }
}

static void a_start_that_finds_its_input_spoilt_keeps_the_answers(void **state) {
    (void)state;
    char id[UM_ID_BYTES];
    um_batch *b = hold_second();
    say(0);
    PUMP_UNTIL(b->completed == 1);
    snprintf(id, sizeof id, "%s", b->id);
    spoil(b, "{", LONG, "");
    um_server_stop(server);
    let_go();
    um_server_free(server);
    um_log_set_level(UM_LOG_ERROR);
    open_batches();
    b = um_batch_find(all(), id);
    assert_non_null(b);
    expect_end(b, UM_BATCH_FAILED, 1, 0);
    expect_error(b, "invalid_json_line", 1);
    assert_int_equal(b->total, 2);
    assert_int_equal(n_script, 0);
    um_log_set_level(UM_LOG_WARN);
}

#define CLAIM(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
    const struct CMUnitTest tests[] = {
        CLAIM(the_loop_goes_on_while_a_line_is_read),
        CLAIM(a_batch_may_be_cancelled_while_a_line_is_read),
        CLAIM(a_window_may_end_while_a_line_is_read),
        CLAIM(a_server_may_stop_while_a_line_is_read),
        CLAIM(lines_start_in_their_order_and_the_oldest_batch_first),
        CLAIM(every_line_of_many_is_answered_once),
        CLAIM(a_long_line_that_was_refused_is_read_again),
        CLAIM(what_is_wrong_in_a_long_line_is_its_answer),
        CLAIM(lines_that_were_spoilt_have_errors_and_the_next_go_on),
        CLAIM(an_input_that_can_not_be_read_any_more_fails_its_batch),
        CLAIM(what_has_been_cancelled_or_is_too_late_does_not_fail),
        CLAIM(a_start_that_finds_its_input_spoilt_keeps_the_answers),
    };
    return cmocka_run_group_tests_name("server_batch_lines", tests, NULL, NULL);
}
