/* Both kinds of links keep the order, carry frames of any size, wake a polling loop, and report unreachable workers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/link/link.h"
#include "server/link/wire.h"

#define WAIT_MS   60000 /* the longest wait for an expected frame */
#define N_WORKERS 3

/* ---- The kinds --------------------------------------------------------------------------------------------------- */

typedef struct kind {
    const char *name;
    const char *command_addr, *event_addr; /* of the hub */
    bool is_local;
} kind;
static const kind kinds[] = {
    {.name = "local", .is_local = true}, {.name = "ipc"}, {"tcp", "tcp://127.0.0.1:*", "tcp://127.0.0.1:*", false}};

static um_hub *open_hub(const kind *k) {
    um_hub *h = NULL;
    um_err err;
    um_status st = k->is_local ? um_hub_open_local(&h, N_WORKERS, &err)
                               : um_hub_open_zmq(&h, N_WORKERS, k->command_addr, k->event_addr, &err);
    if (st) fail_msg("%s: %s", k->name, err.msg);
    return h;
}

static um_port *open_port(const kind *k, um_hub *h, uint16_t worker, uint16_t incarnation) {
    um_port *p = NULL;
    um_err err;
    if (k->is_local) return um_port_open_local(h, worker, incarnation);
    if (um_port_open_zmq(&p, um_hub_command_addr(h), um_hub_event_addr(h), worker, incarnation, &err))
        fail_msg("%s: %s", k->name, err.msg);
    return p;
}

/* Runs the body for every kind. */
static void each(void (*body)(const kind *k)) {
    for (size_t i = 0; i < UM_LEN(kinds); i++) body(&kinds[i]);
}

/* ---- Numbered frames --------------------------------------------------------------------------------------------- */

static void put_ping(um_buf *out, uint16_t worker, uint16_t incarnation, um_msg_type type, uint64_t number) {
    um_wire_write(out, &(um_msg){type, worker, incarnation, .ping = {number}});
}

static uint64_t number_of(um_str frame) {
    um_msg m;
    um_err err;
    um_arena arena = {0};
    if (um_wire_read(&m, &arena, frame, &err)) fail_msg("%s", err.msg);
    um_arena_free(&arena);
    return m.ping.number;
}

static void port_say(um_port *p, uint16_t worker, uint16_t incarnation, uint64_t number) {
    um_buf frame = {0};
    put_ping(&frame, worker, incarnation, UM_MSG_PONG, number);
    um_port_send(p, &frame);
    assert_null(frame.data);
}

static bool hub_say(um_hub *h, uint16_t worker, uint16_t incarnation, uint64_t number) {
    um_buf frame = {0};
    put_ping(&frame, worker, incarnation, UM_MSG_PING, number);
    bool is_sent = um_hub_send(h, worker, incarnation, &frame);
    assert_null(frame.data);
    return is_sent;
}

/* Returns the next frame as an event loop gets it: polls, then receives. */
static um_str hub_next(um_hub *h) {
    um_str frame;
    struct pollfd p = {.fd = um_hub_fd(h), .events = POLLIN};
    do {
        if (poll(&p, 1, WAIT_MS) <= 0) fail_msg("no frame within %d s", WAIT_MS / 1000);
    } while (!um_hub_receive(h, &frame));
    return frame;
}

static uint64_t port_next(um_port *p) {
    um_str frame;
    double end = um_now() + WAIT_MS / 1000;
    while (!um_port_receive(p, &frame)) {
        if (um_now() > end) fail_msg("no command within %d s", WAIT_MS / 1000);
        um_port_wait(p, 1);
    }
    return number_of(frame);
}

/* ---- Tests of both kinds ----------------------------------------------------------------------------------------- */

static void goes_both_ways(const kind *k) {
    um_hub *h = open_hub(k);
    um_port *p[N_WORKERS];
    for (uint16_t i = 0; i < N_WORKERS; i++) {
        p[i] = open_port(k, h, i, 5);
        port_say(p[i], i, 5, 100u + i);
    }
    for (int n = 0; n < N_WORKERS; n++) {
        um_msg head;
        um_str frame = hub_next(h);
        assert_true(um_wire_peek(frame, &head));
        assert_int_equal(number_of(frame), 100u + head.worker);
        assert_true(hub_say(h, head.worker, head.incarnation, 200u + head.worker)); /* its sender is reachable */
    }
    for (uint16_t i = 0; i < N_WORKERS; i++) {
        assert_int_equal(port_next(p[i]), 200u + i);
        um_port_close(p[i]);
    }
    um_hub_close(h);
}

#define N_FRAMES 100000

typedef struct echoing {
    um_port *port;
} echoing;

/* Sends every command back, until one is 0. */
static void *echo(void *arg) {
    um_port *p = ((echoing *)arg)->port;
    uint64_t number;
    port_say(p, 0, 1, 1);
    do {
        um_str frame;
        um_port_wait(p, 60);
        while (um_port_receive(p, &frame)) {
            number = number_of(frame);
            port_say(p, 0, 1, number);
            if (!number) return NULL;
        }
    } while (true);
}

static void keeps_order(const kind *k) {
    um_hub *h = open_hub(k);
    echoing e = {open_port(k, h, 0, 1)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, echo, &e), 0);
    assert_int_equal(number_of(hub_next(h)), 1);
    for (uint64_t i = N_FRAMES; i-- > 0;) assert_true(hub_say(h, 0, 1, i)); /* nothing is received meanwhile */
    for (uint64_t i = N_FRAMES; i-- > 0;) assert_int_equal(number_of(hub_next(h)), i);
    pthread_join(thread, NULL);
    um_port_close(e.port);
    um_hub_close(h);
}

static void carries_big_frames(const kind *k) {
    um_hub *h = open_hub(k);
    um_port *p = open_port(k, h, 1, 1);
    const size_t sizes[] = {1, 100, 5000, (size_t)1 << 20, (size_t)48 << 20};
    port_say(p, 1, 1, 9);
    (void)hub_next(h);
    for (size_t i = 0; i < UM_LEN(sizes); i++) {
        um_buf frame = {0};
        um_str got;
        um_buf_reserve(&frame, sizes[i]);
        memset(frame.data, (int)('a' + i), sizes[i]);
        frame.len = sizes[i];
        assert_true(um_hub_send(h, 1, 1, &frame));
        while (!um_port_receive(p, &got)) um_port_wait(p, 1);
        assert_int_equal(got.n, sizes[i]);
        um_buf_append(&frame, got.p, got.n);
        um_port_send(p, &frame);
        got = hub_next(h);
        assert_int_equal(got.n, sizes[i]);
        assert_int_equal(got.p[0], 'a' + i);
        assert_int_equal(got.p[got.n - 1], 'a' + i);
    }
    um_port_close(p);
    um_hub_close(h);
}

static void knows_who_is_not_there(const kind *k) {
    um_hub *h = open_hub(k);
    um_port *p = open_port(k, h, 1, 4);
    port_say(p, 1, 4, 1);
    (void)hub_next(h);
    assert_false(hub_say(h, 0, 4, 1));         /* unknown worker */
    assert_false(hub_say(h, 1, 3, 1));         /* another incarnation */
    assert_false(hub_say(h, N_WORKERS, 4, 1)); /* worker out of range */
    assert_true(hub_say(h, 1, 4, 1));
    um_port_close(p);
    um_hub_disconnect(h, 1, 4);
    for (double end = um_now() + WAIT_MS / 1000; hub_say(h, 1, 4, 1); usleep(1000)) /* until disconnected */
        if (um_now() > end) fail_msg("%s: a port that is closed is still sent to", k->name);
    p = open_port(k, h, 1, 5); /* the next incarnation is another peer */
    port_say(p, 1, 5, 6);
    assert_int_equal(number_of(hub_next(h)), 6);
    assert_true(hub_say(h, 1, 5, 7));
    assert_int_equal(port_next(p), 7);
    um_port_close(p);
    um_hub_close(h);
}

static void refuses_what_is_too_long(const kind *k) {
    um_hub *h = open_hub(k);
    um_port *p = open_port(k, h, 0, 1);
    um_buf frame = {0};
    port_say(p, 0, 1, 1);
    assert_int_equal(number_of(hub_next(h)), 1);
    um_buf_reserve(&frame, UM_WIRE_FRAME_MAX + 1);
    frame.len = UM_WIRE_FRAME_MAX + 1; /* the content is not read */
    assert_false(um_hub_send(h, 0, 1, &frame));
    assert_null(frame.data);
    assert_true(hub_say(h, 0, 1, 2)); /* the connection still works */
    assert_int_equal(port_next(p), 2);
    um_port_close(p);
    um_hub_close(h);
}

static bool is_readable(um_hub *h) {
    struct pollfd p = {.fd = um_hub_fd(h), .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

/* The descriptor stays readable until all frames were received, and no longer. */
static void wakes_a_loop_while_something_waits(const kind *k) {
    um_hub *h = open_hub(k);
    um_port *p = open_port(k, h, 0, 1);
    um_str frame;
    for (uint64_t i = 1; i <= 3; i++) port_say(p, 0, 1, i);
    for (uint64_t i = 1; i <= 3; i++) {
        assert_int_equal(number_of(hub_next(h)), i);
        (void)hub_say(h, 0, 1, i); /* a send must not clear the signal of waiting frames */
    }
    assert_false(um_hub_receive(h, &frame));
    assert_false(is_readable(h));
    port_say(p, 0, 1, 4);
    assert_int_equal(number_of(hub_next(h)), 4);
    um_port_close(p);
    um_hub_close(h);
}

/* With nothing to receive, a wait lasts for its timeout and no longer. */
static void waits_no_longer_than_told(const kind *k) {
    um_hub *h = open_hub(k);
    um_port *p = open_port(k, h, 0, 1);
    double start = um_now();
    um_str frame;
    um_port_wait(p, 0.05);
    assert_true(um_now() - start >= 0.04);
    assert_false(um_port_receive(p, &frame));
    um_port_close(p);
    um_hub_close(h);
}

#define CLAIM(body)                                                                                                    \
    static void every_link_##body(void **state) {                                                                      \
        (void)state;                                                                                                   \
        each(body);                                                                                                    \
    }
CLAIM(goes_both_ways)
CLAIM(keeps_order)
CLAIM(carries_big_frames)
CLAIM(knows_who_is_not_there)
CLAIM(refuses_what_is_too_long)
CLAIM(wakes_a_loop_while_something_waits)
CLAIM(waits_no_longer_than_told)

/* ---- Processes --------------------------------------------------------------------------------------------------- */

/* ipc addresses in a folder of the test. A hub removes its files. */
typedef struct place {
    char folder[64], path[128], command_addr[160], event_addr[160];
} place;

static void make_place(place *p) {
    snprintf(p->folder, sizeof p->folder, "/tmp/um-link-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    snprintf(p->path, sizeof p->path, "%s/commands", p->folder);
    snprintf(p->command_addr, sizeof p->command_addr, "ipc://%s", p->path);
    snprintf(p->event_addr, sizeof p->event_addr, "ipc://%s/events", p->folder);
}

static void remove_place(const place *p) { assert_int_equal(rmdir(p->folder), 0); }

/* Connects, sends a frame, and waits to be killed. */
static void run_until_killed(const place *at) {
    um_port *p = NULL;
    if (um_port_open_zmq(&p, at->command_addr, at->event_addr, 2, 1, NULL)) _exit(1);
    port_say(p, 2, 1, 1);
    for (;;) um_port_wait(p, 60);
}

/* The process connects before its server listens, and is killed while commands are on their way. */
static void a_killed_peer_is_disconnected(void **state) {
    (void)state;
    int status;
    place at;
    um_hub *h = NULL;
    um_err err;
    make_place(&at);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) run_until_killed(&at);
    if (um_hub_open_zmq(&h, N_WORKERS, at.command_addr, at.event_addr, &err)) fail_msg("%s", err.msg);
    assert_int_equal(number_of(hub_next(h)), 1);
    assert_true(hub_say(h, 2, 1, 2));
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    for (double end = um_now() + WAIT_MS / 1000; hub_say(h, 2, 1, 3); usleep(1000))
        if (um_now() > end) fail_msg("a process that is dead is still sent to");
    um_hub_disconnect(h, 2, 1);
    um_hub_close(h);
    remove_place(&at);
}

/* The last frames of a worker are delivered although it ends at once, before its command socket is connected. */
static void the_last_frames_arrive(void **state) {
    (void)state;
    static const um_msg_type words[] = {UM_MSG_HELLO, UM_MSG_FAILED};
    um_hub *h = open_hub(&kinds[1]);
    um_port *p = open_port(&kinds[1], h, 0, 1);
    for (size_t i = 0; i < UM_LEN(words); i++) {
        um_buf frame = {0};
        um_wire_write(&frame, &(um_msg){words[i], 0, 1, .failed = {.message = UM_STR("no such model")}});
        um_port_send(p, &frame);
    }
    um_port_close(p);
    for (size_t i = 0; i < UM_LEN(words); i++) {
        um_msg head;
        assert_true(um_wire_peek(hub_next(h), &head));
        assert_int_equal(head.type, words[i]);
    }
    um_hub_close(h);
}

/* ---- Addresses --------------------------------------------------------------------------------------------------- */

static void made_up_addresses_are_private_and_go_away(void **state) {
    (void)state;
    um_hub *h = open_hub(&kinds[1]);
    struct stat s;
    char folder[256];
    assert_memory_equal(um_hub_command_addr(h), "ipc://", 6);
    assert_string_not_equal(um_hub_command_addr(h), um_hub_event_addr(h));
    snprintf(folder, sizeof folder, "%s", um_hub_command_addr(h) + 6);
    *strrchr(folder, '/') = '\0';
    assert_int_equal(stat(folder, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0700);
    um_hub_close(h);
    assert_int_equal(stat(folder, &s), -1);
}

static void fails_to_listen(const char *addr, const char *says) {
    um_hub *h = NULL;
    um_err err;
    assert_int_equal(um_hub_open_zmq(&h, 1, addr, NULL, &err), UM_EIO);
    if (!strstr(err.msg, says) || !strstr(err.msg, addr)) fail_msg("expected \"%s\" in: %s", says, err.msg);
}

/* A killed server leaves its socket behind, and the next server replaces it. */
static void a_socket_of_a_dead_process_is_replaced(void **state) {
    (void)state;
    place p;
    int status;
    make_place(&p);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        um_hub *h = NULL;
        _exit(um_hub_open_zmq(&h, 1, p.command_addr, NULL, NULL) ? 1 : 0); /* without closing it */
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(access(p.path, F_OK), 0);
    um_hub *h = NULL;
    um_err err;
    if (um_hub_open_zmq(&h, 1, p.command_addr, NULL, &err)) fail_msg("%s", err.msg);
    fails_to_listen(p.command_addr, "another process");
    um_hub_close(h);
    remove_place(&p);
}

/* Leaves a socket file that no process listens on. */
static void leave_socket(const char *path) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    close(fd);
}

/* Folders of automatic addresses are removed when they are old and no process listens on their sockets. */
static void folders_of_dead_servers_are_removed(void **state) {
    (void)state;
    char tmp[] = "/tmp/um-sweep-XXXXXX";
    assert_non_null(mkdtemp(tmp));
    const char *before = getenv("TMPDIR"), *runtime = getenv("XDG_RUNTIME_DIR");
    char *keep_before = before ? um_strdup(before) : NULL, *keep_runtime = runtime ? um_strdup(runtime) : NULL;
    char *folder = um_path_join(tmp, "unmask-ABCDEF"), *young = um_path_join(tmp, "unmask-GHIJKL");
    char *file = um_path_join(folder, "commands");
    const struct timespec long_ago[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(mkdir(young, 0700), 0);
    leave_socket(file);
    assert_int_equal(utimensat(AT_FDCWD, folder, long_ago, 0), 0);
    unsetenv("XDG_RUNTIME_DIR");
    setenv("TMPDIR", tmp, 1);
    um_hub_close(open_hub(&kinds[1]));
    if (keep_before) setenv("TMPDIR", keep_before, 1);
    else unsetenv("TMPDIR");
    if (keep_runtime) setenv("XDG_RUNTIME_DIR", keep_runtime, 1);
    assert_int_equal(access(folder, F_OK), -1);
    assert_int_equal(rmdir(young), 0);
    assert_int_equal(rmdir(tmp), 0);
    um_free(folder);
    um_free(young);
    um_free(file);
    um_free(keep_before);
    um_free(keep_runtime);
}

static void what_is_no_socket_is_left_alone(void **state) {
    (void)state;
    place p;
    make_place(&p);
    int fd = open(p.path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    fails_to_listen(p.command_addr, "not a socket");
    assert_int_equal(unlink(p.path), 0);
    remove_place(&p);
}

/* A worker on another host survives a restart of its server. */
static void a_port_notices_a_lost_hub_and_reconnects(void **state) {
    (void)state;
    const kind *k = &kinds[1];
    place at;
    um_hub *h = NULL;
    um_err err;
    make_place(&at);
    assert_int_equal(um_hub_open_zmq(&h, N_WORKERS, at.command_addr, at.event_addr, &err), UM_OK);
    um_port *p = open_port(k, h, 1, 4);
    port_say(p, 1, 4, 10);
    assert_int_equal(number_of(hub_next(h)), 10);
    assert_false(um_port_is_lost(p));
    um_hub_close(h);
    for (double end = um_now() + WAIT_MS / 1000; !um_port_is_lost(p); um_port_wait(p, 1))
        if (um_now() > end) fail_msg("nobody misses a hub that went away");
    assert_int_equal(um_hub_open_zmq(&h, N_WORKERS, at.command_addr, at.event_addr, &err), UM_OK);
    assert_int_equal(um_port_reconnect(p, 1, 5, &err), UM_OK);
    port_say(p, 1, 5, 11);
    assert_int_equal(number_of(hub_next(h)), 11);
    assert_true(hub_say(h, 1, 5, 12));
    assert_int_equal(port_next(p), 12);
    assert_false(um_port_is_lost(p));
    um_port_close(p);
    um_hub_close(h);
    remove_place(&at);
}

/* ---- Signals ----------------------------------------------------------------------------------------------------- */

static atomic_int n_signals;
static void count_signal(int number) {
    (void)number;
    n_signals++;
}

/* Sends this process a signal every `microseconds`; 0 stops it. */
static void set_alarm(suseconds_t microseconds) {
    const struct itimerval t = {.it_interval.tv_usec = microseconds, .it_value.tv_usec = microseconds};
    struct sigaction count = {.sa_handler = count_signal};
    assert_int_equal(sigaction(SIGALRM, &count, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &t, NULL), 0);
}

/* Signals interrupt neither frames nor a reconnection. */
static void signals_do_not_disturb_a_link(void **state) {
    (void)state;
    const kind *k = &kinds[1];
    um_err err;
    um_hub *h = open_hub(k);
    um_port *p = open_port(k, h, 0, 1);
    set_alarm(20);
    for (uint16_t life = 1; life <= 100; life++) {
        for (uint64_t i = 1; i <= 100; i++) port_say(p, 0, life, i);
        for (uint64_t i = 1; i <= 100; i++) {
            um_str frame;
            while (!um_hub_receive(h, &frame)) {}
            assert_int_equal(number_of(frame), i);
            assert_true(hub_say(h, 0, life, i));
        }
        for (uint64_t i = 1; i <= 100; i++) assert_int_equal(port_next(p), i);
        if (um_port_reconnect(p, 0, life + 1, &err)) fail_msg("%s", err.msg);
    }
    set_alarm(0);
    assert_true(n_signals > 100);
    um_port_close(p);
    um_hub_close(h);
}

static void an_address_that_cannot_be_used_is_an_error(void **state) {
    (void)state;
    fails_to_listen("nonsense", "can't listen");
    fails_to_listen("tcp://127.0.0.1:99999", "1..65535");
    fails_to_listen("tcp://127.0.0.1", "1..65535");
    fails_to_listen("ipc:///nowhere/at/all", "can't listen");
    um_port *p = NULL;
    um_err err;
    assert_int_equal(um_port_open_zmq(&p, "nonsense", "nonsense", 0, 1, &err), UM_EIO);
    assert_non_null(strstr(err.msg, "nonsense"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_peer_is_disconnected), /* tests that fork run before tests that start threads */
        cmocka_unit_test(a_socket_of_a_dead_process_is_replaced),
        cmocka_unit_test(every_link_goes_both_ways),
        cmocka_unit_test(every_link_keeps_order),
        cmocka_unit_test(every_link_carries_big_frames),
        cmocka_unit_test(every_link_knows_who_is_not_there),
        cmocka_unit_test(every_link_refuses_what_is_too_long),
        cmocka_unit_test(every_link_wakes_a_loop_while_something_waits),
        cmocka_unit_test(every_link_waits_no_longer_than_told),
        cmocka_unit_test(the_last_frames_arrive),
        cmocka_unit_test(made_up_addresses_are_private_and_go_away),
        cmocka_unit_test(folders_of_dead_servers_are_removed),
        cmocka_unit_test(what_is_no_socket_is_left_alone),
        cmocka_unit_test(a_port_notices_a_lost_hub_and_reconnects),
        cmocka_unit_test(signals_do_not_disturb_a_link),
        cmocka_unit_test(an_address_that_cannot_be_used_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
