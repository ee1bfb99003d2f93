/* Sends the same request repeatedly over several loopback connections and measures the CPU time and memory of the
 * server:
 *
 *   http_load PORT PID NAME REQUESTS CONNECTIONS PATH BODY
 *
 * It prints one line: NAME, requests/s, microseconds of CPU per request, server-sent events per second of CPU (the rate
 * of one core), resident megabytes. CPU is the time of all threads of process PID from the first byte sent to the last
 * byte read. It does not include the clients.
 *
 * With REQUESTS 0, every connection sends one request and keeps its stream open. The memory is measured when the first
 * event of each stream has arrived. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

#define WAIT_MS 30000 /* timeout for the next byte from the server */

typedef struct client {
    int fd;
    bool is_chunked, has_head;
    size_t left;  /* remaining bytes of a body with a length */
    char tail[8]; /* the last bytes read, because the end of a body or an event may be split between reads */
    um_buf head;
    int64_t n_events;
} client;

typedef struct load {
    int port, poll;
    int64_t pid;
    int64_t n_requests, n_begun, n_ended, n_events;
    bool holds;
    um_buf request;
    client *client;
    int n_clients;
} load;

static _Noreturn void die(const char *what) {
    fprintf(stderr, "http_load: %s: %s\n", what, errno ? strerror(errno) : "unexpected");
    _exit(1);
}

/* ---- The server's process ---------------------------------------------------------------------------------------- */

/* The clock counts nanoseconds. /proc/PID/stat counts ticks of 10 ms, and a short run can end within one tick. */
static double cpu_seconds(int64_t pid) {
    clockid_t clock;
    struct timespec t;
    errno = clock_getcpuclockid((pid_t)pid, &clock);
    if (errno || clock_gettime(clock, &t)) die("the CPU time of the server");
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double resident_megabytes(int64_t pid) {
    char path[64];
    long long size, resident;
    snprintf(path, sizeof path, "/proc/%lld/statm", (long long)pid);
    FILE *f = fopen(path, "re");
    if (!f || fscanf(f, "%lld %lld", &size, &resident) != 2) die(path);
    fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / 1e6;
}

/* ---- One connection ---------------------------------------------------------------------------------------------- */

static void ask(load *l, client *c) {
    um_buf_clear(&c->head);
    c->has_head = c->is_chunked = false;
    c->n_events = 0;
    memset(c->tail, 0, sizeof c->tail);
    l->n_begun++;
    if (write(c->fd, l->request.data, l->request.len) != (ssize_t)l->request.len) die("request");
}

static void open_client(load *l, client *c) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)l->port)};
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    int on = 1;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&a, sizeof a)) die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (epoll_ctl(l->poll, EPOLL_CTL_ADD, c->fd, &e)) die("epoll");
    ask(l, c);
}

static void read_head(client *c, const char *end) {
    const char *length = strcasestr(c->head.data, "\r\nContent-Length:");
    if (strncmp(c->head.data, "HTTP/1.1 200", 12) != 0) {
        fprintf(stderr, "http_load: the server answered\n%s\n", c->head.data);
        _exit(1);
    }
    c->has_head = true;
    c->is_chunked = strcasestr(c->head.data, "\r\nTransfer-Encoding: chunked") != NULL;
    c->left = length && length < end ? strtoul(length + 17, NULL, 10) : 0;
}

static int64_t count_events(const char *text, size_t n) {
    static const char mark[] = "\ndata: ";
    int64_t found = 0;
    for (const char *p = text; (p = (const char *)memmem(p, n - (size_t)(p - text), mark, 7)); p += 7) found++;
    return found;
}

/* Processes bytes of a body. Returns whether the body is complete. */
static bool take_body(client *c, const char *bytes, size_t n) {
    static char joined[(1 << 17) + 8];
    memcpy(joined, c->tail, 8);
    memcpy(joined + 8, bytes, n);
    /* A mark of 7 bytes that was complete in the tail is already counted, so only 6 bytes of the tail are searched. */
    c->n_events += count_events(joined + 2, n + 6);
    memcpy(c->tail, joined + n, 8);
    if (c->is_chunked) return memcmp(c->tail + 1, "\r\n0\r\n\r\n", 7) == 0;
    c->left -= UM_MIN(n, c->left);
    return c->left == 0;
}

/* Processes bytes of a response. Returns whether the response is complete. */
static bool take(client *c, const char *bytes, size_t n) {
    if (c->has_head) return take_body(c, bytes, n);
    um_buf_append(&c->head, bytes, n);
    const char *end = strstr(c->head.data, "\r\n\r\n");
    if (!end) return false;
    read_head(c, end);
    return take_body(c, end + 4, c->head.len - (size_t)(end + 4 - c->head.data));
}

/* ---- The load ---------------------------------------------------------------------------------------------------- */

static void end_answer(load *l, client *c) {
    l->n_ended++;
    l->n_events += c->n_events;
    if (l->n_begun < l->n_requests) ask(l, c);
}

static void on_readable(load *l, client *c) {
    static char bytes[1 << 16];
    bool had_event = c->n_events > 0;
    ssize_t n = read(c->fd, bytes, sizeof bytes);
    if (n <= 0) die("the server hung up");
    bool is_over = take(c, bytes, (size_t)n);
    if (l->holds) l->n_ended += !had_event && c->n_events > 0;
    else if (is_over) end_answer(l, c);
}

static void drive(load *l) {
    int64_t most = l->holds ? l->n_clients : l->n_requests;
    for (int i = 0; i < l->n_clients; i++) open_client(l, &l->client[i]);
    while (l->n_ended < most) {
        struct epoll_event ready[64];
        int n = epoll_wait(l->poll, ready, UM_LEN(ready), WAIT_MS);
        if (n <= 0) die("waiting for the server");
        for (int i = 0; i < n; i++) on_readable(l, (client *)ready[i].data.ptr);
    }
}

static void close_load(load *l) {
    for (int i = 0; i < l->n_clients; i++) {
        close(l->client[i].fd);
        um_buf_free(&l->client[i].head);
    }
    close(l->poll);
    um_buf_free(&l->request);
    um_free(l->client);
}

static void make_request(load *l, const char *path, const char *body) {
    um_buf_printf(
        &l->request,
        "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", path,
        strlen(body), body);
}

static int64_t number(const char *text) {
    int64_t n = 0;
    if (!um_parse_int(text, &n) || n < 0) die(text);
    return n;
}

int main(int argc, char **argv) {
    if (argc != 8) {
        fprintf(stderr, "usage: %s PORT PID NAME REQUESTS CONNECTIONS PATH BODY\n", argv[0]);
        return 2;
    }
    load l = {.port = (int)number(argv[1]), .pid = number(argv[2]), .n_requests = number(argv[4])};
    l.n_clients = (int)number(argv[5]);
    l.holds = l.n_requests == 0;
    l.client = UM_NEW_ARRAY(client, (size_t)l.n_clients);
    l.poll = epoll_create1(EPOLL_CLOEXEC);
    make_request(&l, argv[6], argv[7]);
    double start = um_now(), cpu = cpu_seconds(l.pid);
    drive(&l);
    double seconds = um_now() - start;
    cpu = cpu_seconds(l.pid) - cpu;
    double asked = (double)(l.holds ? l.n_clients : l.n_requests);
    printf("%-34s %9.0f %9.1f %11.0f %9.1f\n", argv[3], asked / seconds, 1e6 * cpu / asked,
           cpu > 0 ? (double)l.n_events / cpu : 0, resident_megabytes(l.pid));
    close_load(&l);
    return 0;
}
