/* Faults, tested with the real program: workers and servers that die or hang, clients that disconnect or never read,
 * too many requests, and shutdowns while answers are streamed. */
#include "support.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "served.h"

#define MODEL "--model", "models/tiny-block", "--threads", "1", "--max-num-reqs", "64"

/* A prompt whose answer has text: a model that was not asked in its form may write end tokens alone. */
#define STORY                                                                                                          \
    "\"prompt\":\"<|im_start|>user\\nTell me a story with a bee called Wanda and a candle.<|im_end|>\\n"               \
    "<|im_start|>assistant\\n\""
/* Makes an answer slow: each pass commits one token, and the end token does not end the answer. */
#define SLOW "\"accept_threshold\":1,\"buffer_size\":1,\"ignore_eos\":true"
static const char quick[] = "{\"prompt\":\"What is 12 + 30?\",\"max_tokens\":8}";
static const char slow_stream[] = "{" STORY ",\"stream\":true,\"max_tokens\":200," SLOW "}";
/* Requests that last longer than any test. The first snapshot comes after one pass; text comes only when the first
 * positions of a block are committed, which takes up to 32 passes. */
#define ENDLESS "\"n\":8,\"max_tokens\":900," SLOW
static const char endless_stream[] = "{" STORY ",\"stream\":true,\"stream_mode\":\"denoise\"," ENDLESS "}";
static const char endless_text[] = "{" STORY ",\"stream\":true,\"max_tokens\":900," SLOW "}";
static const char endless[] = "{" STORY "," ENDLESS "}";

static const char path[] = "/v1/completions";
static served server;

static void start(const char *const *options) { served_start(&server, options); }

static int stop(void **state) {
    (void)state;
    if (!server.pid) return 0;
    kill(server.pid, SIGKILL);
    served_end(&server);
    return 0;
}

/* Starts a stream and waits for its first event. */
static void begin_stream(client *c, const char *body) {
    client_ask(c, &server, "POST", path, body);
    client_await(c, "\ndata: ");
    assert_int_equal(client_status(c), 200);
}

static void ask_quick(void) {
    client c;
    assert_int_equal(served_ask(&server, &c, "POST", path, quick), 200);
    assert_true(client_has(&c, "\"finish_reason\":"));
    client_close(&c);
}

/* Fixed addresses for links to workers, so that several servers of a test use the same ones, one after another. */
static char folder[32], commands[64], events[64];
#define ADDRESSES "--zmq-command-addr", commands, "--zmq-event-addr", events

static void make_addresses(void) {
    snprintf(folder, sizeof(folder), "/tmp/unmask-faults-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(commands, sizeof(commands), "ipc://%s/c", folder);
    snprintf(events, sizeof(events), "ipc://%s/e", folder);
}

static void remove_addresses(void) {
    unlink(commands + strlen("ipc://"));
    unlink(events + strlen("ipc://"));
    assert_int_equal(rmdir(folder), 0); /* fails if other files are left */
}

/* ---- Workers that die -------------------------------------------------------------------------------------------- */

/* Returns the process id of worker i, in ascending order of process ids. Fails unless there are `of` workers. */
static pid_t worker(int i, int of) {
    pid_t pid[8];
    assert_int_equal(served_workers(&server, pid, 8), of);
    return pid[i];
}

static void a_killed_worker_fails_its_streams_and_comes_back(void **state) {
    (void)state;
    client c[3], whole;
    start((const char *[]){MODEL, NULL});
    for (int i = 0; i < 3; i++) begin_stream(&c[i], i ? endless_stream : endless_text);
    client_ask(&whole, &server, "POST", path, endless);
    while (served_metric(&server, "unmask_http_requests_open") < 5) {}
    pid_t killed = worker(0, 1);
    kill(killed, SIGKILL);
    for (int i = 0; i < 3; i++) {
        client_await_end(&c[i]);
        assert_true(client_has(&c[i], "\"error\""));
        assert_true(client_has(&c[i], "killed by signal 9"));
        client_close(&c[i]);
    }
    client_await_end(&whole);
    assert_int_equal(client_status(&whole), 503);
    assert_true(client_has(&whole, "killed by signal 9"));
    client_close(&whole);
    served_await_status(&server, "/health", 200);
    assert_true(worker(0, 1) != killed); /* one worker and no zombie */
    ask_quick();
    assert_true(served_wrote(&server, "restarting (1 of 5)"));
    assert_true(served_metric(&server, "unmask_worker_restarts_total") == 1);
    assert_int_equal(served_stop(&server), 0);
}

static void health_tells_the_truth_while_there_is_no_worker(void **state) {
    (void)state;
    client c;
    start((const char *[]){MODEL, "--restart-backend", "0", NULL});
    assert_int_equal(served_status(&server, "/health"), 200);
    kill(worker(0, 1), SIGKILL);
    served_await_status(&server, "/health", 503);
    assert_int_equal(served_ask(&server, &c, "GET", "/health", NULL), 503);
    assert_true(client_has(&c, "\"state\":\"dead\""));
    assert_true(client_has(&c, "killed by signal 9 (Killed)"));
    client_close(&c);
    assert_int_equal(served_ask(&server, &c, "POST", path, quick), 503);
    assert_true(client_has(&c, "Retry-After:") && client_has(&c, "\"error\""));
    client_close(&c);
    assert_int_equal(served_status(&server, "/ping"), 200);
    assert_int_equal(served_status(&server, "/metrics"), 200);
    assert_int_equal(served_stop(&server), 0);
}

static void a_worker_that_dies_again_and_again_is_given_up(void **state) {
    (void)state;
    start((const char *[]){MODEL, "--restart-backend", "2", NULL});
    for (int i = 0; i < 3; i++) {
        served_await_metric(&server, "unmask_worker_restarts_total", i);
        served_await_status(&server, "/health", 200);
        kill(worker(0, 1), SIGKILL);
    }
    served_await_words(&server, "not restarted after 2 attempts");
    assert_int_equal(served_workers(&server, &(pid_t){0}, 1), 0);
    assert_int_equal(served_status(&server, "/health"), 503);
    assert_int_equal(served_stop(&server), 0);
}

static void the_other_worker_goes_on(void **state) {
    (void)state;
    client c[2];
    start((const char *[]){MODEL, "--data-parallel-size", "2", "--route-policy", "round-robin", NULL});
    served_await_metric(&server, "unmask_workers_up", 2);
    for (int i = 0; i < 2; i++) begin_stream(&c[i], endless_stream);
    kill(worker(0, 2), SIGKILL);
    while (!c[0].at_end && !c[1].at_end)
        for (int i = 0; i < 2; i++) client_read(&c[i], 0.1);
    int lost = c[0].at_end ? 0 : 1; /* either stream may be on the killed worker */
    assert_true(client_has(&c[lost], "killed by signal 9"));
    size_t n = c[1 - lost].got.len;
    for (double end = um_now() + SERVED_SECONDS; c[1 - lost].got.len == n && um_now() < end;)
        client_read(&c[1 - lost], 0.1);
    assert_true(c[1 - lost].got.len > n);
    assert_false(client_has(&c[1 - lost], "\"error\""));
    for (int i = 0; i < 2; i++) client_close(&c[i]);
    assert_int_equal(served_stop(&server), 0);
}

static void a_worker_that_hangs_is_killed_and_comes_back(void **state) {
    (void)state;
    client c;
    start((const char *[]){MODEL, "--backend-timeout", "1", "--heartbeat", "0.1", NULL});
    begin_stream(&c, endless_stream);
    pid_t hung = worker(0, 1);
    kill(hung, SIGSTOP);
    client_await_end(&c);
    assert_true(client_has(&c, "\"error\"") && client_has(&c, "no sign of life for 1 s"));
    client_close(&c);
    served_await_words(&server, "restarting (1 of 5)");
    served_await_status(&server, "/health", 200);
    assert_true(served_is_gone(hung));
    ask_quick();
    assert_int_equal(served_stop(&server), 0);
}

/* A folder with links to the model's files. The test replaces the weights with a named pipe that nobody writes to.
 * Opening the pipe blocks, like opening a file on a dead mount. */
static char hanging[] = "/tmp/unmask-hanging-XXXXXX";

static void link_file(const char *name) {
    char from[PATH_MAX], to[128], here[PATH_MAX - 64];
    assert_non_null(getcwd(here, sizeof here));
    snprintf(from, sizeof from, "%s/models/tiny-block/%s", here, name);
    snprintf(to, sizeof to, "%s/%s", hanging, name);
    unlink(to);
    assert_int_equal(symlink(from, to), 0);
}

static const char *const model_files[] = {"config.json",    "generation_config.json", "special_tokens_map.json",
                                          "tokenizer.json", "tokenizer_config.json",  "model.safetensors"};

static int remove_hanging_model(void **state) {
    char path_of[128];
    for (size_t i = 0; i < UM_LEN(model_files); i++) {
        snprintf(path_of, sizeof path_of, "%s/%s", hanging, model_files[i]);
        unlink(path_of);
    }
    rmdir(hanging);
    return stop(state);
}

static void a_worker_that_never_gets_ready_is_started_again(void **state) {
    (void)state;
    char weights[128], words[160];
    assert_non_null(mkdtemp(hanging));
    for (size_t i = 0; i < UM_LEN(model_files); i++) link_file(model_files[i]);
    start((const char *[]){"--model", hanging, "--threads", "1", "--start-timeout", "4", "--restart-backend", "50",
                           NULL});
    snprintf(weights, sizeof weights, "%s/model.safetensors", hanging);
    unlink(weights);
    assert_int_equal(mkfifo(weights, 0600), 0);
    pid_t before = worker(0, 1), loading = before;
    kill(before, SIGKILL);
    while (served_workers(&server, &loading, 1) != 1 || loading == before) {}
    snprintf(
        words, sizeof words,
        "worker 0 died: the model was not loaded within 4 s (--start-timeout): process %ld is waiting; it was killed",
        (long)loading);
    served_await_words(&server, words);
    assert_int_equal(served_status(&server, "/health"), 503);
    assert_int_equal(served_status(&server, "/ping"), 200);
    link_file("model.safetensors");
    served_await_status(&server, "/health", 200);
    assert_true(served_is_gone(loading));
    assert_int_equal(served_stop(&server), 0);
}

/* Kills the worker and stops the next one while it loads. If that one was ready before it was stopped, the test kills
 * it and tries again, at most four times. */
static void a_worker_that_is_stopped_while_it_loads_is_started_again(void **state) {
    (void)state;
    char mark[96];
    start((const char *[]){MODEL, "--start-timeout", "4", "--restart-backend", "50", NULL});
    pid_t stopped = worker(0, 1);
    for (int tries = 0; tries < 4; tries++) {
        kill(stopped, SIGKILL);
        pid_t before = stopped;
        while (served_workers(&server, &stopped, 1) != 1 || stopped == before) {}
        kill(stopped, SIGSTOP);
        if (served_status(&server, "/health") == 503) break; /* it was stopped while it loaded */
    }
    snprintf(mark, sizeof mark, "process %ld is stopped; it was killed", (long)stopped);
    served_await_words(&server, mark);
    served_await_status(&server, "/health", 200);
    assert_true(served_is_gone(stopped));
    ask_quick();
    assert_int_equal(served_stop(&server), 0);
}

/* A server that is stopped for longer than --backend-timeout receives no heartbeats in that time. It must not kill its
 * worker for that. */
static void a_server_that_was_stopped_does_not_blame_its_worker(void **state) {
    (void)state;
    start((const char *[]){MODEL, "--backend-timeout", "2", "--heartbeat", "0.1", NULL});
    ask_quick();
    pid_t before = worker(0, 1);
    kill(server.pid, SIGSTOP);
    usleep(4000000);
    kill(server.pid, SIGCONT);
    ask_quick();
    usleep(300000); /* several heartbeats */
    ask_quick();
    assert_int_equal(worker(0, 1), before);
    assert_int_equal(served_stop(&server), 0);
}

static void a_remote_worker_may_be_replaced(void **state) {
    (void)state;
    served remote[2] = {{0}};
    client c;
    make_addresses();
    served_start_alone(&server, (const char *[]){MODEL, "--remote-workers", "1", "--backend-timeout", "1",
                                                 "--heartbeat", "0.1", ADDRESSES, NULL});
    assert_int_equal(served_ask(&server, &c, "GET", "/health", NULL), 503);
    assert_true(client_has(&c, "worker 0 is not connected yet"));
    client_close(&c);
    for (int i = 0; i < 2; i++) {
        served_launch(&remote[i], (const char *[]){"worker", MODEL, ADDRESSES, NULL});
        served_await_status(&server, "/health", 200);
        ask_quick();
        if (i == 1) break;
        begin_stream(&c, endless_stream);
        kill(remote[i].pid, SIGKILL);
        client_await_end(&c);
        assert_true(client_has(&c, "no sign of life for 1 s"));
        client_close(&c);
        assert_int_equal(served_end(&remote[i]), 128 + SIGKILL);
        assert_int_equal(served_status(&server, "/health"), 503);
    }
    assert_int_equal(served_stop(&server), 0);
    assert_int_equal(served_end(&remote[1]), 0); /* the server shut its remote worker down */
    remove_addresses();
}

/* The model has a tokenizer and a configuration but no weights, so the error occurs when the worker loads it. */
static void a_server_whose_worker_can_not_start_ends_with_its_words(void **state) {
    (void)state;
    static const char *const files[] = {"config.json", "tokenizer.json", "tokenizer_config.json"};
    char model[] = "/tmp/unmask-faults-XXXXXX", here[4096], from[8192], to[128];
    assert_non_null(mkdtemp(model));
    assert_non_null(getcwd(here, sizeof(here)));
    for (size_t i = 0; i < UM_LEN(files); i++) {
        snprintf(from, sizeof(from), "%s/models/tiny-block/%s", here, files[i]);
        snprintf(to, sizeof(to), "%s/%s", model, files[i]);
        assert_int_equal(symlink(from, to), 0);
    }
    for (int in_process = 0; in_process < 2; in_process++) {
        served_launch(&server, (const char *[]){"serve", "--port", "0", "--model", model,
                                                in_process ? "--in-process" : NULL, NULL});
        served_await_words(&server, "safetensors");
        assert_int_equal(served_end(&server), 3);
    }
    for (size_t i = 0; i < UM_LEN(files); i++) {
        snprintf(to, sizeof(to), "%s/%s", model, files[i]);
        unlink(to);
    }
    rmdir(model);
}

/* ---- Servers that die and end ------------------------------------------------------------------------------------ */

static void workers_die_with_a_killed_server_and_another_takes_its_place(void **state) {
    (void)state;
    pid_t pid[2];
    make_addresses();
    const char *const options[] = {MODEL, "--data-parallel-size", "2", ADDRESSES, NULL};
    for (int i = 0; i < 2; i++) {
        client c;
        start(options);
        assert_int_equal(served_workers(&server, pid, 2), 2);
        begin_stream(&c, endless_stream);
        kill(server.pid, SIGKILL);
        assert_int_equal(served_end(&server), 128 + SIGKILL);
        client_close(&c);
        for (double end = um_now() + SERVED_SECONDS; !served_is_gone(pid[0]) || !served_is_gone(pid[1]);)
            if (um_now() > end) fail_msg("a worker outlives its server");
    }
    start(options);
    ask_quick();
    assert_int_equal(served_stop(&server), 0);
    remove_addresses();
}

static void a_server_that_is_told_to_end_finishes_what_runs(void **state) {
    (void)state;
    static const int told[] = {SIGTERM, SIGHUP};
    for (int i = 0; i < 2; i++) {
        client c;
        start((const char *[]){MODEL, "--shutdown-grace", "600", i ? "--in-process" : NULL, NULL});
        begin_stream(&c, slow_stream);
        kill(server.pid, told[i]);
        served_await_words(&server, "stopping; 1 request may run");
        kill(server.pid, SIGHUP); /* a closed terminal may send SIGHUP after its shell has sent one */
        client_await_end(&c);
        assert_true(client_has(&c, "data: [DONE]"));
        assert_false(client_has(&c, "\"error\""));
        assert_int_equal(served_end(&server), 0);
        client_close(&c);
    }
}

static void a_server_that_was_started_to_outlive_its_terminal_does(void **state) {
    (void)state;
    signal(SIGHUP, SIG_IGN);
    start((const char *[]){MODEL, NULL});
    signal(SIGHUP, SIG_DFL);
    kill(server.pid, SIGHUP);
    ask_quick();
    assert_int_equal(served_stop(&server), 0);
}

static void beyond_the_grace_streams_end_with_an_error(void **state) {
    (void)state;
    for (int in_process = 0; in_process < 2; in_process++) {
        client c;
        start((const char *[]){MODEL, "--shutdown-grace", "0.2", in_process ? "--in-process" : NULL, NULL});
        begin_stream(&c, endless_stream);
        kill(server.pid, SIGTERM);
        client_await_end(&c);
        assert_true(client_has(&c, "\"error\"") && client_has(&c, "shutting down"));
        assert_false(client_has(&c, "\"finish_reason\":\"length\""));
        assert_int_equal(served_end(&server), 0);
        client_close(&c);
    }
}

static void two_servers_share_a_host(void **state) {
    (void)state;
    served other;
    start((const char *[]){MODEL, NULL});
    served_start(&other, (const char *[]){MODEL, NULL});
    ask_quick();
    assert_int_equal(served_stop(&server), 0);
    server = other;
    ask_quick();
    assert_int_equal(served_stop(&server), 0);
}

/* ---- Clients ----------------------------------------------------------------------------------------------------- */

static void a_full_queue_answers_429_until_there_is_room(void **state) {
    (void)state;
    client c[2], late;
    start((const char *[]){MODEL, "--max-queue", "2", NULL});
    for (int i = 0; i < 2; i++) begin_stream(&c[i], endless_stream);
    assert_int_equal(served_ask(&server, &late, "POST", path, quick), 429);
    assert_true(client_has(&late, "Retry-After:") && client_has(&late, "rate_limit_error"));
    client_close(&late);
    client_close(&c[0]);
    served_await_status(&server, "/health", 200);
    for (double end = um_now() + SERVED_SECONDS; served_ask(&server, &late, "POST", path, quick) == 429;) {
        client_close(&late);
        if (um_now() > end) fail_msg("the place of a client that left stays taken");
    }
    assert_int_equal(client_status(&late), 200);
    client_close(&late);
    client_close(&c[1]);
    assert_int_equal(served_stop(&server), 0);
}

/* Waits until the server has released everything that the disconnected clients used: requests, pages, descriptors. */
static void await_calm(int descriptors) {
    served_await_idle(&server);
    served_await_metric(&server, "unmask_kv_pages_used", 0);
    served_await_descriptors(&server, descriptors);
}

/* The clients disconnect at random moments: before, within and after the request, and up to 19 ms into the wait for the
 * answer. */
static void five_hundred_clients_hang_up(void **state) {
    (void)state;
    enum { AT_ONCE = 25, ROUNDS = 20 };
    uint64_t key = test_seed();
    start((const char *[]){MODEL, "--no-access-log", NULL});
    ask_quick();
    await_calm(1 << 20);
    int before = served_descriptors(&server);
    for (uint64_t r = 0; r < ROUNDS; r++) {
        client c[AT_ONCE];
        for (uint64_t i = 0; i < AT_ONCE; i++) {
            uint64_t what = um_rng_u64(key, r * AT_ONCE + i);
            client_dial(&c[i], &server, false);
            if (what % 8 == 0) continue;
            um_buf text = {0};
            client_put_request(&text, "POST", path, slow_stream);
            if (what % 8 == 1) text.data[what / 8 % text.len] = '\0';
            client_send(&c[i], text.data);
            if (what % 8 > 3) client_read(&c[i], (double)(what / 8 % 20) / 1000);
            um_buf_free(&text);
        }
        for (int i = 0; i < AT_ONCE; i++) client_close(&c[i]);
    }
    await_calm(before);
    ask_quick();
    assert_int_equal(served_workers(&server, &(pid_t){0}, 1), 1);
    assert_true(served_metric(&server, "unmask_worker_restarts_total") == 0);
    assert_int_equal(served_stop(&server), 0);
}

/* Forty clients request streams of snapshots and never read. The server must buffer little for them and keep answering
 * others. */
static void clients_that_never_read_cost_little(void **state) {
    (void)state;
    enum { SLEEPERS = 40 };
    static const char snapshots[] =
        "{" STORY ",\"stream\":true,\"stream_mode\":\"denoise\",\"n\":4,\"max_tokens\":900," SLOW "}";
    client c[SLEEPERS];
    start((const char *[]){MODEL, "--no-access-log", NULL});
    ask_quick();
    int before = served_descriptors(&server);
    int64_t resident = served_resident(&server);
    for (int i = 0; i < SLEEPERS; i++) {
        um_buf text = {0};
        client_dial(&c[i], &server, true);
        client_put_request(&text, "POST", path, snapshots);
        client_send(&c[i], text.data);
        um_buf_free(&text);
    }
    double most = 0;
    for (double end = um_now() + 4; um_now() < end; usleep(50000)) {
        most = UM_MAX(most, (double)(served_resident(&server) - resident));
        assert_int_equal(served_status(&server, "/health"), 200);
    }
    if (most > 48e6) fail_msg("%d clients that do not read cost %.1f MB", SLEEPERS, most / 1e6);
    for (int i = 0; i < SLEEPERS; i++) client_close(&c[i]);
    await_calm(before);
    ask_quick();
    assert_int_equal(served_stop(&server), 0);
}

/* Clients send a part of a request and stay connected: one for every length of the head, and for most of the body. */
static void half_a_request_harms_nobody(void **state) {
    (void)state;
    char cut[256];
    um_buf text = {0};
    client_put_request(&text, "POST", path, quick);
    const int n = (int)(text.len - 10); /* ends within the body */
    client c[sizeof(cut)];
    assert_true(n < (int)sizeof(cut));
    start((const char *[]){MODEL, NULL});
    ask_quick();
    await_calm(1 << 20);
    int before = served_descriptors(&server);
    for (int i = 0; i < n; i++) {
        snprintf(cut, sizeof(cut), "%.*s", i + 1, text.data);
        client_dial(&c[i], &server, false);
        client_send(&c[i], cut);
    }
    ask_quick();
    assert_true(served_metric(&server, "unmask_http_connections") >= n);
    for (int i = 0; i < n; i++) client_close(&c[i]);
    um_buf_free(&text);
    await_calm(before);
    assert_int_equal(served_stop(&server), 0);
}

#define TEST(name) cmocka_unit_test_teardown(name, stop)

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        TEST(a_killed_worker_fails_its_streams_and_comes_back),
        TEST(health_tells_the_truth_while_there_is_no_worker),
        TEST(a_worker_that_dies_again_and_again_is_given_up),
        TEST(the_other_worker_goes_on),
        TEST(a_worker_that_hangs_is_killed_and_comes_back),
        cmocka_unit_test_teardown(a_worker_that_never_gets_ready_is_started_again, remove_hanging_model),
        TEST(a_worker_that_is_stopped_while_it_loads_is_started_again),
        TEST(a_server_that_was_stopped_does_not_blame_its_worker),
        TEST(a_remote_worker_may_be_replaced),
        TEST(a_server_whose_worker_can_not_start_ends_with_its_words),
        TEST(workers_die_with_a_killed_server_and_another_takes_its_place),
        TEST(a_server_that_is_told_to_end_finishes_what_runs),
        TEST(a_server_that_was_started_to_outlive_its_terminal_does),
        TEST(beyond_the_grace_streams_end_with_an_error),
        TEST(two_servers_share_a_host),
        TEST(a_full_queue_answers_429_until_there_is_room),
        TEST(five_hundred_clients_hang_up),
        TEST(clients_that_never_read_cost_little),
        TEST(half_a_request_harms_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
