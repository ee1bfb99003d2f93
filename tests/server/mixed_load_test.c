/* A mixed load for 20 seconds, or UM_TEST_SECONDS, or until UM_TEST_EXCHANGES exchanges have ended. UM_TEST_DEVICE is
 * the device of the two workers, such as "cuda:0,cuda:0"; the default is the CPU. Clients send whole requests, read
 * streams, disconnect early, send invalid requests, never read, or send half a request. Meanwhile one of two workers is
 * killed repeatedly. Equal questions must always get equal answers. Afterwards the server must have no open request,
 * used page, leaked descriptor or extra process, and its memory must not have grown by more than 16 MiB. */
#include "support.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "served.h"

enum { CLIENTS = 24, QUESTIONS = 6, KILL_EVERY = 400 };
#define WARM_UP    300 /* finished tasks before memory is measured */
#define GROWTH_MAX ((int64_t)16 << 20)

/* The kinds of clients. `status` is the expected status of the response; only a killed worker excuses another response.
 * 0: the client disconnects before the end, and its response is not checked. */
typedef enum { WHOLE, STREAM, SNAPSHOTS, LEAVER, SLEEPER, HALF, MALFORMED, UNKNOWN, TOO_LONG, LOOK } kind;
static const struct {
    int weight, status;
} kinds[] = {
    [WHOLE] = {8, 200}, [STREAM] = {8, 200},    [SNAPSHOTS] = {3, 200}, [LEAVER] = {6, 0},     [SLEEPER] = {2, 0},
    [HALF] = {2, 0},    [MALFORMED] = {1, 400}, [UNKNOWN] = {1, 400},   [TOO_LONG] = {1, 400}, [LOOK] = {2, 200}};

typedef struct task {
    client client;
    kind kind;
    int question;
    double leaves; /* time at which the client disconnects; 0: the client reads to the end */
} task;

static served server;
static task tasks[CLIENTS];
static uint64_t key, draws;
static char *answers[QUESTIONS]; /* the first answer to each question */
static int64_t n_done, n_lost, n_killed;

static uint64_t draw(uint64_t n) { return um_rng_u64(key, draws++) % n; }

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

static kind draw_kind(void) {
    int sum = 0, at = 0;
    for (size_t i = 0; i < UM_LEN(kinds); i++) sum += kinds[i].weight;
    int left = (int)draw((uint64_t)sum);
    while ((left -= kinds[at].weight) >= 0) at++;
    return (kind)at;
}

/* Appends a request body. `members` follow the prompt. Clients that disconnect early ask for long answers. */
static void put_body(const task *t, um_buf *out) {
    static const char *const members[] = {
        [WHOLE] = "",
        [STREAM] = ",\"stream\":true,\"stream_options\":{\"include_usage\":true}",
        [SNAPSHOTS] = ",\"stream\":true,\"stream_mode\":\"denoise\"",
        [LEAVER] = ",\"stream\":true,\"n\":3,\"accept_threshold\":1,\"ignore_eos\":true",
        [SLEEPER] = ",\"stream\":true,\"stream_mode\":\"denoise\",\"n\":3,\"accept_threshold\":1,\"ignore_eos\":true",
        [HALF] = "",
        [MALFORMED] = ",",
        [UNKNOWN] = ",\"no_such_field\":1",
        [TOO_LONG] = "",
        [LOOK] = "",
    };
    um_buf_puts(out, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; t->kind == TOO_LONG && i < 2000; i++) um_buf_puts(out, "and on ");
    um_buf_printf(out, "What is %d + 30?\"}],\"temperature\":0,\"max_tokens\":%d%s}", 10 + t->question,
                  t->leaves > 0 ? 300 : 16, members[t->kind]);
}

static void begin(task *t) {
    um_buf body = {0}, text = {0};
    *t = (task){.kind = draw_kind(), .question = (int)draw(QUESTIONS)};
    if (!kinds[t->kind].status) t->leaves = um_now() + (double)draw(300) / 1000;
    put_body(t, &body);
    if (t->kind == LOOK) client_put_request(&text, "GET", draw(2) ? "/metrics" : "/v1/models", NULL);
    else client_put_request(&text, "POST", "/v1/chat/completions", body.data);
    if (t->kind == HALF) text.data[draw(text.len)] = '\0';
    client_dial(&t->client, &server, t->kind == SLEEPER);
    client_send(&t->client, text.data);
    um_buf_free(&body);
    um_buf_free(&text);
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

/* Returns the text of a whole response without undoing the escapes of JSON; um_free. */
static char *text_of(const client *c) {
    static const char before[] = "\"content\":\"";
    const char *at = strstr(c->got.data, before), *end = at ? strchr(at + sizeof(before) - 1, '"') : NULL;
    if (!end) fail_msg("an answer without text: %s", c->got.data);
    at += sizeof(before) - 1;
    return um_strndup(at, (size_t)(end - at));
}

static void check_whole(const task *t) {
    char *text = text_of(&t->client);
    assert_true(strlen(text) > 0);
    if (!answers[t->question]) answers[t->question] = text;
    else {
        assert_string_equal(text, answers[t->question]);
        um_free(text);
    }
}

/* Returns whether the response reports a killed worker. */
static bool is_lost(const client *c) {
    return n_killed && (client_has(c, "killed by signal 9") || client_has(c, "worker 1 is") ||
                        (client_status(c) == 503 && client_has(c, "connection to the worker")));
}

static void check(const task *t) {
    const client *c = &t->client;
    if (is_lost(c)) {
        n_lost++;
        return;
    }
    if (client_status(c) != kinds[t->kind].status)
        fail_msg("kind %d was answered with %.600s", (int)t->kind, c->got.data ? c->got.data : "nothing");
    if (t->kind == WHOLE) check_whole(t);
    if (t->kind == STREAM || t->kind == SNAPSHOTS) assert_true(client_has(c, "data: [DONE]"));
    if (kinds[t->kind].status == 400) assert_true(client_has(c, "invalid_request_error"));
}

/* ---- Load -------------------------------------------------------------------------------------------------------- */

static void end_task(task *t, bool checked) {
    if (checked) check(t);
    client_close(&t->client);
    n_done++;
}

static void turn(void) {
    struct pollfd p[CLIENTS];
    for (int i = 0; i < CLIENTS; i++)
        p[i] = (struct pollfd){tasks[i].client.fd, tasks[i].kind == SLEEPER ? 0 : POLLIN, 0};
    poll(p, CLIENTS, 20);
    for (int i = 0; i < CLIENTS; i++) {
        task *t = &tasks[i];
        if (p[i].revents && t->kind != SLEEPER) client_read(&t->client, 0);
        bool left = t->leaves > 0 && um_now() > t->leaves;
        if (!left && !t->client.at_end) continue;
        end_task(t, !left && kinds[t->kind].status);
        begin(t);
    }
}

static pid_t watched; /* the worker whose memory is measured; it is never killed */

/* Kills the worker that is not watched. Process ids wrap around, so the watched worker may have either index. */
static void kill_worker(void) {
    pid_t pid[2];
    if (served_workers(&server, pid, 2) != 2) return; /* the killed one has not restarted yet */
    kill(pid[0] == watched ? pid[1] : pid[0], SIGKILL);
    n_killed++;
}

static void run(double seconds, int64_t exchanges) {
    double end = um_now() + seconds;
    int64_t next_kill = n_done + KILL_EVERY;
    while (exchanges ? n_done < exchanges : um_now() < end) {
        turn();
        if (n_done < next_kill) continue;
        kill_worker();
        next_kill += KILL_EVERY;
    }
}

static void end_all(void) {
    for (int i = 0; i < CLIENTS; i++) end_task(&tasks[i], false);
    served_await_idle(&server);
    served_await_metric(&server, "unmask_kv_pages_used", 0);
}

static void begin_all(void) {
    for (int i = 0; i < CLIENTS; i++) begin(&tasks[i]);
}

static int64_t resident_of(pid_t pid) {
    served one = {.pid = pid};
    return served_resident(&one);
}

static void nothing_is_left_behind_mixed_load(void **state) {
    (void)state;
    const char *given = getenv("UM_TEST_SECONDS"), *exchanges = getenv("UM_TEST_EXCHANGES");
    const char *device = getenv("UM_TEST_DEVICE");
    double seconds = given ? strtod(given, NULL) : 20;
    pid_t pid[2];
    key = test_seed();
    served_start(&server, (const char *[]){"--model", "models/tiny-block", "--threads", "1", "--data-parallel-size",
                                           "2", "--max-num-reqs", "8", "--restart-backend", "1000000",
                                           "--no-access-log", "--device", device ? device : "cpu", NULL});
    served_await_metric(&server, "unmask_workers_up", 2);
    begin_all();
    while (n_done < WARM_UP) turn();
    end_all();
    int descriptors = served_descriptors(&server);
    assert_int_equal(served_workers(&server, pid, 2), 2);
    watched = pid[0];
    int64_t resident = served_resident(&server), of_worker = resident_of(watched);
    begin_all();
    run(seconds, exchanges ? strtoll(exchanges, NULL, 10) : 0);
    end_all();
    served_await_metric(&server, "unmask_workers_up", 2);
    served_await_descriptors(&server, descriptors);
    int64_t growth = served_resident(&server) - resident, of_worker_growth = resident_of(watched) - of_worker;
    print_message("           %lld exchanges, %lld lost by %lld killed workers, %+.1f and %+.1f MB\n",
                  (long long)n_done, (long long)n_lost, (long long)n_killed, (double)growth / 1e6,
                  (double)of_worker_growth / 1e6);
    assert_true(growth < GROWTH_MAX);
    assert_true(of_worker_growth < GROWTH_MAX);
    assert_int_equal(served_workers(&server, pid, 2), 2);
    assert_int_equal(served_stop(&server), 0);
    for (int i = 0; i < QUESTIONS; i++) um_free(answers[i]);
}

/* Limits the freed memory that the address sanitizer holds back, 256 MB by default, to 1 MB. */
static void keep_little(void) {
    char options[512];
    const char *given = getenv("ASAN_OPTIONS");
    snprintf(options, sizeof(options), "%s:quarantine_size_mb=1", given ? given : "");
    setenv("ASAN_OPTIONS", options, 1);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    keep_little();
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_left_behind_mixed_load)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
