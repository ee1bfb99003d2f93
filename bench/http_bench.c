/* Compares the speed of our HTTP server with libevent's evhttp, and measures the memory of open streams.
 *
 * Each server is a separate process with one thread. This process sends requests over the loopback on CONNECTIONS
 * connections, one request at a time on each. The servers are measured in turns, one window each, so that disturbances
 * of the machine affect both. A window covers everything from the first byte of a request to the last byte of its
 * response. CPU is the user and system time of the server process. Streams compares the resident memory of the server
 * without open streams and with STREAMS of them. */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>

#include "server/http/http.h"

enum { CONNECTIONS = 64, WINDOWS = 7, STREAMS = 1000, BODY_BYTES = 2048 };
#define WINDOW_SECONDS 0.5
#define ANSWER         "{\"status\":\"ok\",\"model\":\"tiny-block\"}"
#define EVENT          "data: {\"text\":\"hello\"}\n\n"

static void fail(const char *what) {
    fprintf(stderr, "http_bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- The two servers --------------------------------------------------------------------------------------------- */

static void answer_ours(void *arg, um_exchange *x) {
    um_str body = um_exchange_body(x);
    (void)arg;
    if (um_streq(um_exchange_path(x), "/stream")) {
        um_exchange_begin(x, 200, "text/event-stream");
        um_exchange_write(x, EVENT, sizeof EVENT - 1);
    } else if (body.n) {
        um_exchange_send(x, 200, "application/json", body.p, body.n);
    } else {
        um_exchange_send(x, 200, "application/json", ANSWER, sizeof ANSWER - 1);
    }
}

static int32_t open_ours(struct event_base *base) {
    um_http_server *s;
    um_http_config c;
    um_err err;
    um_http_config_init(&c);
    if (um_http_server_new(&s, base, &c, answer_ours, NULL, NULL, &err)) fail(err.msg);
    return um_http_server_port(s);
}

static void answer_evhttp(struct evhttp_request *q, void *arg) {
    struct evbuffer *out = evbuffer_new(), *in = evhttp_request_get_input_buffer(q);
    (void)arg;
    evhttp_add_header(evhttp_request_get_output_headers(q), "Content-Type", "application/json");
    if (strcmp(evhttp_request_get_uri(q), "/stream") == 0) {
        evhttp_send_reply_start(q, 200, "OK");
        evbuffer_add(out, EVENT, sizeof EVENT - 1);
        evhttp_send_reply_chunk(q, out);
    } else {
        if (evbuffer_get_length(in)) evbuffer_add_buffer(out, in);
        else evbuffer_add(out, ANSWER, sizeof ANSWER - 1);
        evhttp_send_reply(q, 200, "OK", out);
    }
    evbuffer_free(out);
}

static int32_t open_evhttp(struct event_base *base) {
    struct evhttp *h = evhttp_new(base);
    struct evhttp_bound_socket *b = evhttp_bind_socket_with_handle(h, "127.0.0.1", 0);
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    if (!b || getsockname(evhttp_bound_socket_get_fd(b), (struct sockaddr *)&a, &n)) fail("evhttp");
    evhttp_set_gencb(h, answer_evhttp, NULL);
    return ntohs(a.sin_port);
}

typedef struct rival {
    const char *name;
    int32_t (*open)(struct event_base *base);
    pid_t pid;
    int32_t port;
} rival;

/* Pins this process to the n-th core that it may use, or to the last one. */
static void pin_to(int n) {
    cpu_set_t all, one;
    CPU_ZERO(&all);
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof all, &all)) return;
    int last = 0;
    for (int i = 0; i < CPU_SETSIZE && n >= 0; i++)
        if (CPU_ISSET(i, &all)) last = i, n--;
    CPU_SET(last, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void run_server(const rival *r, int told) {
    struct event_base *base = event_base_new();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin_to(0);
    int32_t port = r->open(base);
    if (write(told, &port, sizeof port) != sizeof port) fail("pipe");
    event_base_dispatch(base);
    exit(0);
}

static void start(rival *r) {
    int fd[2];
    if (pipe(fd)) fail("pipe");
    r->pid = fork();
    if (r->pid < 0) fail("fork");
    if (r->pid == 0) run_server(r, fd[1]);
    if (read(fd[0], &r->port, sizeof r->port) != sizeof r->port) fail(r->name);
    close(fd[0]);
    close(fd[1]);
}

static void stop(rival *r) {
    kill(r->pid, SIGKILL);
    waitpid(r->pid, NULL, 0);
}

static double cpu_seconds(pid_t pid) {
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t)) fail("CPU time");
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double resident_bytes(pid_t pid) {
    char path[64];
    long total, resident = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f || fscanf(f, "%ld %ld", &total, &resident) != 2) fail(path);
    fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

/* ---- The clients ------------------------------------------------------------------------------------------------- */

static int dial(int32_t port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a)) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void send_all(int fd, const um_buf *request) {
    if (send(fd, request->data, request->len, MSG_NOSIGNAL) != (ssize_t)request->len) fail("send");
}

/* Returns the size of a response with its head. All responses to the request have the same size. */
static size_t answer_length(int fd, const um_buf *request) {
    char bytes[8192];
    size_t n = 0;
    for (send_all(fd, request); n < sizeof bytes - 1;) {
        ssize_t got = recv(fd, bytes + n, sizeof bytes - 1 - n, 0);
        if (got <= 0) fail("recv");
        n += (size_t)got;
        bytes[n] = '\0';
        const char *end = strstr(bytes, "\r\n\r\n"), *length = strcasestr(bytes, "\r\nContent-Length:");
        if (!end || !length) continue;
        size_t whole = (size_t)(end - bytes) + 4 + (size_t)atol(length + 17);
        if (n == whole) return whole;
    }
    fail("an answer is longer than expected");
    return 0;
}

typedef struct client {
    int fd;
    size_t left; /* bytes of the response that have not arrived */
} client;

static void begin_requests(client *c, int poll, const um_buf *request, size_t length) {
    for (int i = 0; i < CONNECTIONS; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &c[i]};
        c[i].left = length;
        epoll_ctl(poll, EPOLL_CTL_ADD, c[i].fd, &e);
        send_all(c[i].fd, request);
    }
}

/* Reads from the connection and returns whether the response is complete. Then, with `again`, sends the next request.
 */
static bool serve_client(client *c, const um_buf *request, size_t length, bool again) {
    char bytes[8192];
    ssize_t got = recv(c->fd, bytes, UM_MIN(sizeof bytes, c->left), 0);
    if (got <= 0) fail("recv");
    c->left -= (size_t)got;
    if (c->left) return false;
    c->left = again ? length : 0;
    if (again) send_all(c->fd, request);
    return true;
}

typedef struct window {
    double per_second, cpu_us;
} window;

static window measure(const rival *r, const um_buf *request) {
    client c[CONNECTIONS];
    struct epoll_event e[CONNECTIONS];
    int poll = epoll_create1(EPOLL_CLOEXEC), open = CONNECTIONS;
    long n = 0;
    for (int i = 0; i < CONNECTIONS; i++) c[i].fd = dial(r->port);
    size_t length = answer_length(c[0].fd, request);
    double cpu = cpu_seconds(r->pid), begin = um_now(), now = begin;
    begin_requests(c, poll, request, length);
    while (open) {
        int ready = epoll_wait(poll, e, CONNECTIONS, -1);
        now = um_now();
        bool again = now - begin < WINDOW_SECONDS;
        for (int i = 0; i < ready; i++) {
            client *one = (client *)e[i].data.ptr;
            if (!serve_client(one, request, length, again)) continue;
            n++;
            if (again) continue;
            epoll_ctl(poll, EPOLL_CTL_DEL, one->fd, NULL);
            open--;
        }
    }
    window w = {(double)n / (now - begin), (cpu_seconds(r->pid) - cpu) / (double)n * 1e6};
    for (int i = 0; i < CONNECTIONS; i++) close(c[i].fd);
    close(poll);
    return w;
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void compare(rival *r, int n, const char *what, const um_buf *request) {
    double speed[2][WINDOWS], cpu[2][WINDOWS];
    for (int k = 0; k < WINDOWS; k++) {
        for (int i = 0; i < n; i++) {
            window w = measure(&r[i], request);
            speed[i][k] = w.per_second;
            cpu[i][k] = w.cpu_us;
        }
    }
    for (int i = 0; i < n; i++) {
        qsort(speed[i], WINDOWS, sizeof(double), by_value);
        qsort(cpu[i], WINDOWS, sizeof(double), by_value);
        printf("%-10s %-14s %9.0f  (%.0f..%.0f) %10.2f  (%.2f..%.2f)\n", what, r[i].name, speed[i][WINDOWS / 2],
               speed[i][0], speed[i][WINDOWS - 1], cpu[i][WINDOWS / 2], cpu[i][0], cpu[i][WINDOWS - 1]);
    }
}

/* Opens STREAMS streams, waits for the first event of each and prints the memory of the server. */
static void measure_streams(const rival *r, const um_buf *request) {
    static int fd[STREAMS];
    char bytes[4096];
    double before = resident_bytes(r->pid);
    for (int i = 0; i < STREAMS; i++) {
        size_t n = 0;
        fd[i] = dial(r->port);
        send_all(fd[i], request);
        do {
            ssize_t got = recv(fd[i], bytes + n, sizeof bytes - 1 - n, 0);
            if (got <= 0) fail("recv");
            n += (size_t)got;
            bytes[n] = '\0';
        } while (!strstr(bytes, "hello"));
    }
    double after = resident_bytes(r->pid);
    printf("%-10s %-14s %9.1f MB with none, %.1f MB with %d open: %.1f KB each\n", "streams", r->name, before * 1e-6,
           after * 1e-6, STREAMS, (after - before) / STREAMS * 1e-3);
    for (int i = 0; i < STREAMS; i++) close(fd[i]);
}

int main(void) {
    struct rlimit files = {4 * STREAMS, 4 * STREAMS};
    rival r[] = {{.name = "unmask", .open = open_ours}, {.name = "evhttp", .open = open_evhttp}};
    um_buf get = {0}, post = {0}, stream = {0};
    setrlimit(RLIMIT_NOFILE, &files);
    um_buf_puts(&get, "GET /health HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n");
    um_buf_puts(&stream, "GET /stream HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n");
    um_buf_printf(&post, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", BODY_BYTES);
    for (int i = 0; i < BODY_BYTES; i++) um_buf_putc(&post, 'x');
    for (size_t i = 0; i < UM_LEN(r); i++) start(&r[i]);
    pin_to(1);
    printf("%s\n%d connections, %d windows of %.1f s: median (range); libevent %s\n\n", um_bench_machine(), CONNECTIONS,
           WINDOWS, WINDOW_SECONDS, event_get_version());
    printf("%-10s %-14s %9s %26s\n", "request", "server", "per second", "CPU us per request");
    compare(r, 2, "GET", &get);
    compare(r, 2, "POST 2 KB", &post);
    for (size_t i = 0; i < UM_LEN(r); i++) measure_streams(&r[i], &stream);
    for (size_t i = 0; i < UM_LEN(r); i++) stop(&r[i]);
    um_buf_free(&get);
    um_buf_free(&post);
    um_buf_free(&stream);
    return 0;
}
