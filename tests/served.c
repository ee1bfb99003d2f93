/* Starts, stops and watches a server process, and connects to it; see served.h. */
#include "served.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

/* ---- The process ------------------------------------------------------------------------------------------------- */

static void read_log(const served *s, um_buf *out) {
    um_err err;
    um_buf_clear(out);
    if (um_file_read(s->log, SIZE_MAX / 2, out, &err)) um_buf_puts(out, "(no log)");
}

static void fail_with_log(const served *s, const char *what) {
    um_buf log = {0};
    read_log(s, &log);
    size_t from = log.len > 3000 ? log.len - 3000 : 0;
    print_error("%s; the server wrote:\n%s\n", what, log.data + from);
    if (s->pid) kill(s->pid, SIGKILL);
    um_buf_free(&log);
    fail();
}

void served_launch(served *s, const char *const *arguments) {
    const char *program = getenv("UNMASK"), *argv[64] = {"unmask"};
    if (!program) program = "build/unmask";
    for (size_t n = 1; *arguments; arguments++) {
        assert_true(n + 1 < UM_LEN(argv));
        argv[n++] = *arguments;
    }
    *s = (served){.log = "/tmp/unmask-served-XXXXXX"};
    int log = mkstemp(s->log);
    assert_true(log >= 0);
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* the server dies with a test that fails */
        dup2(log, STDERR_FILENO);
        dup2(open("/dev/null", O_RDWR), STDOUT_FILENO);
        execv(program, (char *const *)argv);
        _exit(127);
    }
    close(log);
}

bool served_wrote(const served *s, const char *words) {
    um_buf log = {0};
    read_log(s, &log);
    bool has = log.data && strstr(log.data, words);
    um_buf_free(&log);
    return has;
}

void served_await_words(const served *s, const char *words) {
    double end = um_now() + SERVED_SECONDS;
    while (!served_wrote(s, words)) {
        siginfo_t ended = {0};
        waitid(P_PID, (id_t)s->pid, &ended, WEXITED | WNOHANG | WNOWAIT);
        if (um_now() > end || ended.si_pid) break;
        usleep(5000);
    }
    if (!served_wrote(s, words)) fail_with_log(s, words);
}

void served_start_alone(served *s, const char *const *options) {
    static const char before[] = "listening at http://127.0.0.1:";
    const char *arguments[60] = {"serve", "--port", "0"};
    um_buf log = {0};
    for (size_t n = 3; *options; options++) {
        assert_true(n + 1 < UM_LEN(arguments));
        arguments[n++] = *options;
    }
    served_launch(s, arguments);
    served_await_words(s, before);
    read_log(s, &log);
    s->port = atoi(strstr(log.data, before) + sizeof(before) - 1);
    assert_true(s->port > 0);
    um_buf_free(&log);
}

void served_start(served *s, const char *const *options) {
    served_start_alone(s, options);
    served_await_words(s, "unmask: ready");
}

int served_end(served *s) {
    int status = 0;
    double end = um_now() + SERVED_SECONDS;
    while (waitpid(s->pid, &status, WNOHANG) == 0) {
        if (um_now() > end) fail_with_log(s, "it does not end");
        usleep(5000);
    }
    s->pid = 0;
    unlink(s->log);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int served_stop(served *s) {
    kill(s->pid, SIGTERM);
    return served_end(s);
}

/* ---- /proc ------------------------------------------------------------------------------------------------------- */

/* Reads the state and the parent of a process. Returns false if there is no such process. The name of the process may
 * contain ")", so the fields begin after the last one. */
static bool read_stat(pid_t pid, char *state, pid_t *parent) {
    char path[64], line[512] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    size_t n = fread(line, 1, sizeof(line) - 1, f);
    fclose(f);
    const char *behind = n ? strrchr(line, ')') : NULL;
    return behind && sscanf(behind + 1, " %c %d", state, parent) == 2;
}

bool served_is_gone(pid_t pid) {
    char state;
    pid_t parent;
    return !read_stat(pid, &state, &parent) || state == 'Z' || state == 'X';
}

static int ascending(const void *a, const void *b) { return *(const pid_t *)a - *(const pid_t *)b; }

int served_workers(const served *s, pid_t *pid, int most) {
    int n = 0;
    char state;
    pid_t parent;
    DIR *d = opendir("/proc");
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        pid_t p = (pid_t)atoi(e->d_name);
        if (p <= 0 || !read_stat(p, &state, &parent) || parent != s->pid) continue;
        if (n < most) pid[n] = p;
        n++;
    }
    closedir(d);
    qsort(pid, (size_t)UM_MIN(n, most), sizeof(*pid), ascending);
    return n;
}

int served_descriptors(const served *s) {
    char path[64];
    int n = -2; /* . and .. */
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)s->pid);
    DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

int64_t served_resident(const served *s) {
    char path[64];
    long pages = 0;
    snprintf(path, sizeof(path), "/proc/%d/statm", (int)s->pid);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*s %ld", &pages), 1);
    fclose(f);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

/* ---- Clients ----------------------------------------------------------------------------------------------------- */

void client_dial(client *c, const served *s, bool narrow) {
    const int little = 4096;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *c = (client){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (narrow) setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little));
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&a, sizeof(a))) fail_with_log(s, strerror(errno));
}

/* A failed send does not fail the test: the server may have closed the connection, and the test reads its response. */
void client_send(client *c, const char *text) {
    size_t n = strlen(text);
    while (n > 0) {
        ssize_t w = send(c->fd, text, n, MSG_NOSIGNAL);
        if (w <= 0) return;
        text += w;
        n -= (size_t)w;
    }
}

void client_put_request(um_buf *out, const char *method, const char *path, const char *body) {
    um_buf_printf(out, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", method, path);
    if (body) um_buf_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
    um_buf_puts(out, "\r\n");
    if (body) um_buf_puts(out, body);
}

void client_ask(client *c, const served *s, const char *method, const char *path, const char *body) {
    um_buf text = {0};
    client_put_request(&text, method, path, body);
    client_dial(c, s, false);
    client_send(c, text.data);
    um_buf_free(&text);
}

void client_read(client *c, double seconds) {
    char data[16384];
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    if (c->at_end || poll(&p, 1, (int)(seconds * 1000)) <= 0) return;
    ssize_t n = recv(c->fd, data, sizeof(data), 0);
    if (n > 0) um_buf_append(&c->got, data, (size_t)n);
    else c->at_end = true;
}

bool client_has(const client *c, const char *words) { return c->got.data && strstr(c->got.data, words); }

static void fail_with_answer(const client *c, const char *what) {
    fail_msg("%s; the server answered: %.2000s", what, c->got.data ? c->got.data : "nothing");
}

void client_await(client *c, const char *words) {
    double end = um_now() + SERVED_SECONDS;
    while (!client_has(c, words) && !c->at_end && um_now() < end) client_read(c, 0.1);
    if (!client_has(c, words)) fail_with_answer(c, words);
}

void client_await_end(client *c) {
    double end = um_now() + SERVED_SECONDS;
    while (!c->at_end && um_now() < end) client_read(c, 0.1);
    if (!c->at_end) fail_with_answer(c, "the connection is not closed");
}

int client_status(const client *c) {
    int status = 0;
    if (c->got.data) sscanf(c->got.data, "HTTP/1.1 %d", &status);
    return status;
}

void client_close(client *c) {
    if (c->fd > 0) close(c->fd);
    um_buf_free(&c->got);
    *c = (client){0};
}

/* ---- Requests and waits ------------------------------------------------------------------------------------------ */

int served_ask(const served *s, client *c, const char *method, const char *path, const char *body) {
    client_ask(c, s, method, path, body);
    client_await_end(c);
    return client_status(c);
}

int served_status(const served *s, const char *path) {
    client c;
    int status = served_ask(s, &c, "GET", path, NULL);
    client_close(&c);
    return status;
}

double served_metric(const served *s, const char *series) {
    client c;
    char line[256];
    double value = 0;
    assert_int_equal(served_ask(s, &c, "GET", "/metrics", NULL), 200);
    snprintf(line, sizeof(line), "\n%s{", series);
    const char *at = strstr(c.got.data, line), *behind = at ? strstr(at, "} ") : NULL;
    if (!behind) fail_msg("/metrics lacks %s", series);
    else value = strtod(behind + 2, NULL);
    client_close(&c);
    return value;
}

/* Returns whether every "requests" of /health is 0. Each worker has one, and nothing else has this name. */
static bool is_idle(const char *health) {
    for (const char *at = health; (at = strstr(at, "\"requests\":")); at++)
        if (at[11] != '0') return false;
    return true;
}

void served_await_idle(const served *s) {
    double end = um_now() + SERVED_SECONDS;
    for (bool idle = false; !idle;) {
        client c;
        served_ask(s, &c, "GET", "/health", NULL);
        idle = c.got.data && is_idle(c.got.data);
        client_close(&c);
        if (!idle && um_now() > end) fail_with_log(s, "requests never end");
        if (!idle) usleep(20000);
    }
}

void served_await_metric(const served *s, const char *series, double value) {
    double end = um_now() + SERVED_SECONDS, last;
    while ((last = served_metric(s, series)) != value) {
        if (um_now() > end) print_error("%s stays %g and does not become %g\n", series, last, value);
        if (um_now() > end) fail_with_log(s, series);
        usleep(20000);
    }
}

void served_await_descriptors(const served *s, int n) {
    double end = um_now() + SERVED_SECONDS;
    while (served_descriptors(s) > n) {
        if (um_now() > end) print_error("%d descriptors of %d\n", served_descriptors(s), n);
        if (um_now() > end) fail_with_log(s, "descriptors leak");
        usleep(20000);
    }
}

void served_await_status(const served *s, const char *path, int status) {
    double end = um_now() + SERVED_SECONDS;
    int last;
    while ((last = served_status(s, path)) != status) {
        if (um_now() > end) {
            print_error("%s stays %d and does not become %d\n", path, last, status);
            fail_with_log(s, "wrong status");
        }
        usleep(10000);
    }
}
