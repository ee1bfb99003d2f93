/* The program as a client of other or faulty servers: another server with OpenAI's API, and responses that are
 * malformed, truncated or endless. A child process answers each connection over a raw socket; the real program sends
 * the requests. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

#define HEAD(type)    "HTTP/1.1 200 OK\r\nContent-Type: " type "\r\nConnection: close\r\n\r\n"
#define STREAM        HEAD("text/event-stream")
#define MODELS(owner) HEAD("application/json") "{\"data\":[{\"id\":\"m\",\"owned_by\":\"" owner "\"}]}"

static pid_t child;
static int port;

/* ---- The server -------------------------------------------------------------------------------------------------- */

/* Reads a request: up to the blank line, and a body of Content-Length bytes. */
static bool read_request(int fd, char *text, size_t size) {
    size_t n = 0;
    for (;;) {
        ssize_t got = read(fd, text + n, size - 1 - n);
        if (got <= 0) return false;
        n += (size_t)got;
        text[n] = '\0';
        const char *end = strstr(text, "\r\n\r\n"), *length = strstr(text, "Content-Length: ");
        if (!end) continue;
        size_t body = length && length < end ? (size_t)atoi(length + 16) : 0;
        if (n >= (size_t)(end + 4 - text) + body) return true;
    }
}

/* Answers GET with `models` and POST with `answer` until it is killed. NULL: never answers. */
static void serve_for_ever(int listener, const char *models, const char *answer) {
    static char text[1 << 16];
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) continue;
        const char *a = !read_request(fd, text, sizeof text) ? "" : strncmp(text, "POST", 4) == 0 ? answer : models;
        if (!a) continue;
        if (write(fd, a, strlen(a)) < 0) perror("write");
        close(fd);
    }
}

static void start(const char *models, const char *answer) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(listener >= 0 && bind(listener, (struct sockaddr *)&at, n) == 0 && listen(listener, 64) == 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &n), 0);
    port = ntohs(at.sin_port);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) serve_for_ever(listener, models, answer);
    close(listener);
}

static int teardown(void **state) {
    (void)state;
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    child = 0;
    return 0;
}

/* ---- The program ------------------------------------------------------------------------------------------------- */

typedef struct said {
    char text[8192]; /* standard output and error */
    int status;      /* exit status; -1: killed */
} said;

/* Runs a shell command line. */
static said shell(const char *command) {
    said s = {.status = -1};
    FILE *f = popen(command, "r");
    assert_non_null(f);
    s.text[fread(s.text, 1, sizeof s.text - 1, f)] = '\0';
    int status = pclose(f);
    if (WIFEXITED(status) && WEXITSTATUS(status) < 124) s.status = WEXITSTATUS(status);
    fprintf(stderr, "%s\n%s\n", command, s.text);
    return s;
}

static const char *unmask(void) {
    const char *program = getenv("UNMASK");
    return program ? program : "build/unmask";
}

/* Runs the program with the server. `before` is the shell text in front of it, such as a pipe. */
static said program(const char *before, const char *arguments) {
    char command[1024];
    snprintf(command, sizeof command, "%s timeout 60 %s %s --url http://127.0.0.1:%d 2>&1", before, unmask(), arguments,
             port);
    return shell(command);
}

/* The same on a terminal, with typed input. */
static said on_terminal(const char *typed, const char *arguments) {
    char command[1024];
    snprintf(command, sizeof command,
             "printf '%s' | script -qec \"stty cols 60 rows 20; timeout --foreground 60 %s %s --url "
             "http://127.0.0.1:%d\" /dev/null",
             typed, unmask(), arguments, port);
    return shell(command);
}

static said chat(void) { return program("printf 'Hi\\n/stats\\n' |", "chat"); }
static said bench(void) {
    return program("", "bench serve --quiet --warm-up 0 --concurrency 2 --requests 4 --max-tokens 8");
}

/* ---- Claims ------------------------------------------------------------------------------------------------------ */

static void other_servers_of_the_kind_are_spoken_to(void **state) {
    (void)state;
    start(MODELS("somebody"),
          STREAM "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n"
                 "data: {\"choices\":[{\"delta\":{\"content\":\"Good \"}}]}\n\n"
                 "data: {\"choices\":[{\"delta\":{\"content\":\"day\"},\"finish_reason\":\"stop\"}]}\n\n"
                 "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n");
    said s = chat();
    assert_true(s.status == 0 && strstr(s.text, "Good day\n") && strstr(s.text, "1, 2 tokens"));
    s = program("", "run --json Hi");
    assert_true(s.status == 0 && strstr(s.text, "\"token_ids\":null,\"text\":\"Good day\"") &&
                strstr(s.text, "\"completion_tokens\":2"));
    s = bench();
    assert_true(s.status == 0 && strstr(s.text, "4 answered") && strstr(s.text, "an answer has 2.0 tokens"));
}

/* A stream with the extra events and members that other servers send. */
#define FOREIGN                                                                                                        \
    STREAM ": OPENROUTER PROCESSING\r\n\r\n"                                                                           \
           "id: 1\r\nevent: message\r\nretry: 3000\r\n"                                                                \
           "data:{\"id\":\"x\",\"choices\":[],\"prompt_filter_results\":[]}\r\n\r\n"                                   \
           "data:{\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null},\"logprobs\":null,"    \
           "\"finish_reason\":null}],\"usage\":null}\r\n\r\n"                                                          \
           "data:{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Good \",\"refusal\":null}}]}\r\n\r\n"             \
           ":\r\n\r\n"                                                                                                 \
           "data:{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"}}]}\r\n\r\n"                                   \
           "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"day\",\"tool_calls\":null}}]}\r\n\r\n"           \
           "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"x_groq\":{}}\r\n\r\n"         \
           "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":2,\"total_tokens\":6,"          \
           "\"prompt_tokens_details\":null}}\r\n\r\n"                                                                  \
           "data:[DONE]\r\n\r\n"

static void streams_may_be_written_in_another_hand(void **state) {
    (void)state;
    start(MODELS("somebody"), FOREIGN);
    said s = chat();
    assert_true(s.status == 0 && strstr(s.text, "Good day\n") && strstr(s.text, "1, 2 tokens"));
    s = program("", "run --json Hi");
    assert_true(s.status == 0 && strstr(s.text, "\"text\":\"Good day\"") && strstr(s.text, "\"finish_reason\":\"eos"));
    s = bench();
    assert_true(s.status == 0 && strstr(s.text, "4 answered") && strstr(s.text, "an answer has 2.0 tokens"));
}

/* On a terminal the answer is drawn while it arrives, here from a server without snapshots. */
static void a_terminal_shows_their_text_as_it_comes(void **state) {
    (void)state;
    start(MODELS("somebody"), FOREIGN);
    said s = on_terminal("", "run Hi");
    assert_true(s.status == 0 && strstr(s.text, "Good ") && strstr(s.text, "Good day"));
    s = on_terminal("Hi\\n/stats\\n", "chat");
    assert_true(s.status == 0 && strstr(s.text, "Good day") && strstr(s.text, "1, 2 tokens"));
    assert_null(strstr(s.text, "passes")); /* this server does not report them */
}

static void whole_answers_are_taken_where_no_stream_comes(void **state) {
    (void)state;
    start(MODELS("somebody"), HEAD("application/json") "{\"choices\":[{\"message\":{\"content\":\"Good day\"},"
                                                       "\"finish_reason\":\"stop\"}]}");
    said s = chat();
    assert_true(s.status == 0 && strstr(s.text, "Good day\n"));
}

static void what_had_settled_stays_when_a_stream_breaks_off(void **state) {
    (void)state;
    start(MODELS("unmask"), STREAM "data: {\"choices\":[{\"delta\":{\"content\":\"Good \"}}]}\n\n");
    said s = chat();
    assert_true(s.status == 1 && strstr(s.text, "Good \n") && strstr(s.text, "before the answer was complete"));
    s = bench();
    assert_true(s.status == 1 && strstr(s.text, "4 broken"));
}

/* Responses that a client must survive. */
static void malformed_answers_are_errors(void **state) {
    static const char *const answers[] = {
        "",
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 99 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>",
        HEAD("application/json"),
        HEAD("application/json") "{\"choices\":",
        HEAD("application/json") "[1,2,3]",
        STREAM "data: {\"choices\":[{\"delta\"\n\n",
        STREAM "data: 7\n\ndata: [DONE]\n\n",
        STREAM "data: {\"error\":{\"message\":\"out of luck\",\"param\":7}}\n\n",
        STREAM "data: \xff\xfe\n\n",
        STREAM ": a comment\n\nevent: x\n\n",
        STREAM "data: {\"event\":\"buffer_snapshot\",\"tokens\":[1,{},null],\"pass\":\"x\",\"stable_len\":1e9}\n\n",
    };
    (void)state;
    for (size_t i = 0; i < UM_LEN(answers); i++) {
        start(MODELS("unmask"), answers[i]);
        said c = chat(), b = bench();
        if (c.status != 1 || !strstr(c.text, "unmask chat: ")) fail_msg("answer %zu: chat ends with %d", i, c.status);
        if (b.status != 1 || !strstr(b.text, "at once: 0 answered"))
            fail_msg("answer %zu: bench ends with %d", i, b.status);
        teardown(NULL);
    }
}

static void lists_without_a_model_are_errors(void **state) {
    static const char *const lists[] = {HEAD("application/json") "{}", HEAD("application/json") "{\"data\":[{}, 3]}",
                                        HEAD("text/html") "<html>", ""};
    (void)state;
    for (size_t i = 0; i < UM_LEN(lists); i++) {
        start(lists[i], "");
        said s = chat();
        if (s.status != 1 || !strstr(s.text, "unmask chat: ")) fail_msg("list %zu: chat ends with %d", i, s.status);
        teardown(NULL);
    }
}

/* Other servers may send anything as `examples`. */
static void odd_examples_are_cleaned_or_left_out(void **state) {
    char list[1024], longer[260];
    (void)state;
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    snprintf(list, sizeof list,
             HEAD("application/json") "{\"data\":[{\"id\":\"m\",\"examples\":[7,null,\"\",\"  \",\"%s\",{},"
                                      "\"a\\u001b[31mb\\nc\",\"d\"]}]}",
             longer);
    start(list, "");
    said s = program("", "run ''");
    assert_int_equal(s.status, 2);
    assert_non_null(strstr(s.text, "Try: a[31mb c | d\n"));
    teardown(NULL);
    start(HEAD("application/json") "{\"data\":[{\"id\":\"m\",\"examples\":\"Hello\"}]}", "");
    s = program("", "run ''");
    assert_true(s.status == 2 && !strstr(s.text, "Try"));
}

/* The program either ends at once, or waits until its timeout and reports it. */
static void interrupts_end_the_search_for_a_server(void **state) {
    static const char *const commands[] = {"bench serve", "chat", "run Hi"};
    (void)state;
    start(NULL, NULL);
    for (size_t i = 0; i < UM_LEN(commands); i++) {
        said s = program("timeout --preserve-status -s INT 2", commands[i]);
        if (s.status >= 0 || *s.text) fail_msg("%s ends with %d: %s", commands[i], s.status, s.text);
    }
}

int main(void) {
    setenv("LC_ALL", "C.UTF-8", 1);
#define CLAIM(name) cmocka_unit_test_teardown(name, teardown)
    const struct CMUnitTest tests[] = {
        CLAIM(other_servers_of_the_kind_are_spoken_to),
        CLAIM(streams_may_be_written_in_another_hand),
        CLAIM(a_terminal_shows_their_text_as_it_comes),
        CLAIM(whole_answers_are_taken_where_no_stream_comes),
        CLAIM(what_had_settled_stays_when_a_stream_breaks_off),
        CLAIM(malformed_answers_are_errors),
        CLAIM(lists_without_a_model_are_errors),
        CLAIM(odd_examples_are_cleaned_or_left_out),
        CLAIM(interrupts_end_the_search_for_a_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
