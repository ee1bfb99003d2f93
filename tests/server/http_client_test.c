/* The HTTP client, against the server of src/server/http and against a raw socket that sends bytes of the test. */
#include "http_world.h"

/* The outcome of a call. */
typedef struct reply {
    um_http_call *call;
    int status;
    char type[64], id[64];
    um_buf body;
    bool done;
    um_status result;
    um_err err;
    bool cancels; /* at the first bytes */
} reply;

static void on_head(void *arg, const um_http_response *a) {
    reply *r = (reply *)arg;
    r->status = a->status;
    snprintf(r->type, sizeof r->type, "%s", a->type);
    snprintf(r->id, sizeof r->id, "%s", a->request_id);
}

static void on_data(void *arg, const char *bytes, size_t n) {
    reply *r = (reply *)arg;
    um_buf_append(&r->body, bytes, n);
    if (r->cancels) um_http_call_cancel(r->call);
}

static void on_done(void *arg, um_status s, const um_err *err) {
    reply *r = (reply *)arg;
    assert_false(r->done);
    r->done = true;
    r->result = s;
    if (err) r->err = *err;
}

static const um_http_client_callbacks listener = {on_head, on_data, on_done};

static um_url url_of(int port, const char *path) {
    char text[200];
    um_url u;
    um_err err = {0};
    snprintf(text, sizeof text, "http://127.0.0.1:%d%s", port, path);
    if (um_url_parse(&u, text, &err)) fail_msg("%s", err.msg);
    return u;
}

static void call(world *w, reply *r, um_http_request q) {
    r->call = um_http_call_start(w->base, &q, &listener, r);
    assert_false(r->done);
    if (!r->cancels) WAIT_FOR(w, r->done);
}

/* ---- Against the server ------------------------------------------------------------------------------------------ */

static void brings_an_answer(void **state) {
    world *w = (world *)*state;
    reply r = {0};
    serve(w);
    um_url u = url_of(um_http_server_port(w->server), "/base");
    call(w, &r, (um_http_request){.url = &u, .method = "POST", .path = "/v1/x", .body = UM_STR("{}")});
    assert_int_equal(r.result, UM_OK);
    assert_int_equal(r.status, 200);
    assert_string_equal(r.type, "text/plain");
    assert_string_equal(r.body.data, "POST /v1/x [{}]");
    um_buf_free(&r.body);
}

static void speaks_to_an_address_of_ipv6(void **state) {
    world *w = (world *)*state;
    reply r = {0};
    um_url u;
    char text[64];
    need_v6();
    w->config.host = "::1";
    serve(w);
    snprintf(text, sizeof text, "http://[::1]:%d/later", (int)um_http_server_port(w->server));
    assert_int_equal(um_url_parse(&u, text, NULL), UM_OK);
    um_http_request q = {.url = &u, .method = "GET"};
    r.call = um_http_call_start(w->base, &q, &listener, &r);
    WAIT_FOR(w, w->open);
    assert_ptr_equal(strstr(um_exchange_header(w->open, "host"), "[::1]:"), um_exchange_header(w->open, "host"));
    assert_ptr_equal(strstr(um_exchange_peer(w->open), "[::1]:"), um_exchange_peer(w->open));
    um_exchange_send(w->open, 200, NULL, "six", 3);
    WAIT_FOR(w, r.done);
    assert_string_equal(r.body.data, "six");
    um_buf_free(&r.body);
}

static void looks_up_no_host_whose_addresses_are_given(void **state) {
    world *w = (world *)*state;
    reply r = {0};
    struct addrinfo *addresses;
    serve(w);
    um_url u = url_of(um_http_server_port(w->server), "/base");
    assert_int_equal(um_http_lookup(&addresses, &u, NULL), UM_OK);
    snprintf(u.host, sizeof u.host, "no.such.host.invalid");
    call(w, &r, (um_http_request){.url = &u, .addresses = addresses, .method = "GET"});
    assert_int_equal(r.status, 200);
    freeaddrinfo(addresses);
    um_buf_free(&r.body);
}

static void sends_what_it_was_given(void **state) {
    world *w = (world *)*state;
    reply r = {0};
    serve(w);
    um_url u = url_of(um_http_server_port(w->server), "/later");
    um_http_request q = {.url = &u,
                         .method = "POST",
                         .body = UM_STR("x"),
                         .type = "text/plain",
                         .api_key = "k",
                         .accept = "text/event-stream"};
    r.call = um_http_call_start(w->base, &q, &listener, &r);
    WAIT_FOR(w, w->open);
    assert_string_equal(um_exchange_header(w->open, "content-type"), "text/plain");
    assert_string_equal(um_exchange_header(w->open, "authorization"), "Bearer k");
    assert_string_equal(um_exchange_header(w->open, "accept"), "text/event-stream");
    um_exchange_add_header(w->open, "X-Request-Id", "r7");
    um_exchange_send(w->open, 404, NULL, NULL, 0);
    WAIT_FOR(w, r.done);
    assert_int_equal(r.status, 404);
    assert_string_equal(r.id, "r7");
    assert_string_equal(r.type, "");
}

static void brings_a_stream_as_it_comes(void **state) {
    world *w = (world *)*state;
    reply r = {0};
    serve(w);
    um_url u = url_of(um_http_server_port(w->server), "/later");
    um_http_request q = {.url = &u, .method = "GET"};
    r.call = um_http_call_start(w->base, &q, &listener, &r);
    WAIT_FOR(w, w->open);
    um_exchange_begin(w->open, 200, "text/event-stream");
    WAIT_FOR(w, r.status == 200);
    um_exchange_write(w->open, "one", 3);
    WAIT_FOR(w, r.body.len == 3);
    assert_false(r.done);
    um_exchange_write(w->open, "two", 3);
    um_exchange_end(w->open);
    WAIT_FOR(w, r.done);
    assert_int_equal(r.result, UM_OK);
    assert_string_equal(r.body.data, "onetwo");
    um_buf_free(&r.body);
}

static void tells_when_the_answer_breaks_off(void **state) {
    world *w = (world *)*state;
    reply r = {0};
    serve(w);
    um_url u = url_of(um_http_server_port(w->server), "/abort");
    call(w, &r, (um_http_request){.url = &u, .method = "GET"});
    assert_int_equal(r.result, UM_EIO);
    assert_string_equal(r.body.data, "half");
    assert_non_null(strstr(r.err.msg, "127.0.0.1 port "));
    um_buf_free(&r.body);
}

static void hangs_up_when_it_is_cancelled(void **state) {
    world *w = (world *)*state;
    reply r = {0};
    serve(w);
    um_url u = url_of(um_http_server_port(w->server), "/later");
    um_http_request q = {.url = &u, .method = "GET"};
    r.call = um_http_call_start(w->base, &q, &listener, &r);
    WAIT_FOR(w, w->open);
    um_http_call_cancel(r.call);
    WAIT_FOR(w, w->n_broken == 1);
    assert_false(r.done);
}

static void may_be_cancelled_by_its_listener(void **state) {
    world *w = (world *)*state;
    reply r = {.cancels = true};
    serve(w);
    um_url u = url_of(um_http_server_port(w->server), "/later");
    call(w, &r, (um_http_request){.url = &u, .method = "GET"});
    WAIT_FOR(w, w->open);
    um_exchange_begin(w->open, 200, NULL);
    um_exchange_write(w->open, "x", 1);
    WAIT_FOR(w, w->n_broken == 1);
    assert_false(r.done);
    um_buf_free(&r.body);
}

static void may_be_cancelled_before_it_began(void **state) {
    world *w = (world *)*state;
    reply r = {0};
    um_url u = url_of(1, "");
    um_http_request q = {.url = &u, .method = "GET"};
    um_http_call_cancel(um_http_call_start(w->base, &q, &listener, &r));
    um_http_call_cancel(NULL);
    turn(w);
    assert_false(r.done);
}

static void tells_when_the_server_says_nothing_in_time(void **state) {
    world *w = (world *)*state;
    reply r = {0};
    serve(w);
    um_url u = url_of(um_http_server_port(w->server), "/later");
    call(w, &r, (um_http_request){.url = &u, .method = "GET", .timeout = 0.05});
    assert_int_equal(r.result, UM_EIO);
    assert_non_null(strstr(r.err.msg, "in time"));
}

static void tells_when_nobody_listens(void **state) {
    world *w = (world *)*state;
    reply r = {0};
    serve(w);
    um_url u = url_of(um_http_server_port(w->server), "");
    um_http_server_free(w->server);
    w->server = NULL;
    call(w, &r, (um_http_request){.url = &u, .method = "GET"});
    assert_int_equal(r.result, UM_EIO);
    assert_non_null(strstr(r.err.msg, "can't connect"));
}

/* TCP has no broadcast, so connect fails at once for this address. */
static const struct sockaddr_in refused_at_once = {.sin_family = AF_INET, .sin_addr = {INADDR_BROADCAST}};
static const struct addrinfo refused = {.ai_family = AF_INET,
                                        .ai_socktype = SOCK_STREAM,
                                        .ai_addrlen = sizeof refused_at_once,
                                        .ai_addr = (struct sockaddr *)(uintptr_t)&refused_at_once};

static void tells_when_the_system_refuses_to_connect(void **state) {
    world *w = (world *)*state;
    reply r = {0};
    um_url u = url_of(80, "");
    call(w, &r, (um_http_request){.url = &u, .addresses = &refused, .method = "GET"});
    assert_int_equal(r.result, UM_EIO);
    assert_non_null(strstr(r.err.msg, "can't connect"));
}

/* On a machine without IPv6, ::1 may still be the first address of "localhost". */
static void passes_over_an_address_that_the_system_refuses(void **state) {
    world *w = (world *)*state;
    reply r = {0};
    struct addrinfo *real, first = refused;
    serve(w);
    um_url u = url_of(um_http_server_port(w->server), "/base");
    assert_int_equal(um_http_lookup(&real, &u, NULL), UM_OK);
    first.ai_next = real;
    call(w, &r, (um_http_request){.url = &u, .addresses = &first, .method = "GET"});
    assert_int_equal(r.status, 200);
    freeaddrinfo(real);
    um_buf_free(&r.body);
}

static void tells_when_the_host_is_unknown(void **state) {
    world *w = (world *)*state;
    reply r = {0};
    um_url u = {.host = "no.such.host.invalid", .port = 80};
    call(w, &r, (um_http_request){.url = &u, .method = "GET"});
    assert_int_equal(r.result, UM_EIO);
    assert_non_null(strstr(r.err.msg, "no.such.host.invalid: unknown host"));
}

/* ---- Against a socket -------------------------------------------------------------------------------------------- */

/* Sends these bytes to the next connection and closes it. */
static void answer_raw(world *w, reply *r, const char *bytes) {
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    char request[2000];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    um_url u = url_of(ntohs(a.sin_port), "/p?q");
    um_http_request q = {.url = &u, .method = "GET"};
    r->call = um_http_call_start(w->base, &q, &listener, r);
    turn(w);
    int peer = accept(fd, NULL, NULL);
    fcntl(peer, F_SETFL, O_NONBLOCK);
    ssize_t got = -1;
    WAIT_FOR(w, (got = recv(peer, request, sizeof request - 1, 0)) > 0);
    request[got] = '\0';
    assert_ptr_equal(strstr(request, "GET /p?q HTTP/1.1\r\nHost: 127.0.0.1:"), request);
    send(peer, bytes, strlen(bytes), MSG_NOSIGNAL);
    shutdown(peer, SHUT_WR);
    WAIT_FOR(w, r->done);
    close(peer);
    close(fd);
}

static void reads_an_answer_that_ends_with_the_connection(void **state) {
    reply r = {0};
    answer_raw((world *)*state, &r, "HTTP/1.0 200 OK\r\nContent-Type: a/b\r\n\r\nto the end");
    assert_int_equal(r.result, UM_OK);
    assert_string_equal(r.body.data, "to the end");
    um_buf_free(&r.body);
}

static void refuses_what_is_no_answer(void **state) {
    const char *bad[] = {"SSH-2.0-OpenSSH\r\n", "", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
                         "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nabc"};
    for (size_t i = 0; i < UM_LEN(bad); i++) {
        reply r = {0};
        answer_raw((world *)*state, &r, bad[i]);
        assert_int_equal(r.result, UM_EIO);
        um_buf_free(&r.body);
    }
}

/* ---- Addresses --------------------------------------------------------------------------------------------------- */

static void takes_addresses_apart(void **state) {
    (void)state;
    const struct {
        const char *text, *host, *path;
        int port;
    } cases[] = {
        {"http://a", "a", "", 80},
        {"http://a/", "a", "", 80},
        {"HTTP://a.b:8000", "a.b", "", 8000},
        {"http://[::1]:8000/v1/", "::1", "/v1", 8000},
        {"http://[::1]", "::1", "", 80},
        {"http://a:65535/x/y?z=1", "a", "/x/y?z=1", 65535},
        {"http://a?z", "a", "/?z", 80},
    };
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        um_url u;
        um_err err = {0};
        if (um_url_parse(&u, cases[i].text, &err)) fail_msg("%s", err.msg);
        assert_string_equal(u.host, cases[i].host);
        assert_string_equal(u.path, cases[i].path);
        assert_int_equal(u.port, cases[i].port);
    }
}

static void refuses_what_is_no_address(void **state) {
    (void)state;
    const char *bad[] = {"",           "a",          "ftp://a",        "http://",    "http://:80",
                         "http://a:",  "http://a:x", "http://a:65536", "http://a b", "http://a/b c",
                         "http://u@a", "http://a/#b"};
    for (size_t i = 0; i < UM_LEN(bad); i++) {
        um_url u;
        if (um_url_parse(&u, bad[i], NULL) != UM_EINVAL) fail_msg("taken: %s", bad[i]);
    }
    um_url u;
    um_err err = {0};
    assert_int_equal(um_url_parse(&u, "https://a", &err), UM_EINVAL);
    assert_non_null(strstr(err.msg, "proxy"));
}

/* ---- Events ------------------------------------------------------------------------------------------------------ */

static void on_event(void *arg, um_str data) { um_buf_printf((um_buf *)arg, "<%.*s>", (int)data.n, data.p); }

static const char stream_text[] = ": hello\n\ndata: one\n\ndata:two\r\ndata: lines\r\n\r\nevent: x\nid: 1\n\ndata\n\n"
                                  "data:  spaced\r\rretry: 3\ndatax: no\ndata: last\n\ndata: cut";

static void splits_a_stream_into_events_however_it_is_cut(void **state) {
    (void)state;
    for (size_t step = 1; step < sizeof stream_text; step++) {
        um_sse_reader r = {0};
        um_buf out = {0};
        for (size_t i = 0; i < strlen(stream_text); i += step)
            assert_int_equal(
                um_sse_read(&r, stream_text + i, UM_MIN(step, strlen(stream_text) - i), on_event, &out, NULL), UM_OK);
        assert_string_equal(out.data, "<one><two\nlines><>< spaced><last>");
        um_sse_reader_free(&r);
        um_buf_free(&out);
    }
}

static void bounds_an_event(void **state) {
    (void)state;
    um_sse_reader r = {0};
    um_buf out = {0}, piece = {0};
    um_err err = {0};
    um_status s = UM_OK;
    for (int i = 0; i < 1 << 20; i++) um_buf_putc(&piece, 'x');
    for (int i = 0; i < 17 && s == UM_OK; i++) s = um_sse_read(&r, piece.data, piece.len, on_event, &out, &err);
    assert_int_equal(s, UM_ELIMIT);
    um_sse_reader_free(&r);
    um_buf_puts(&piece, "\n");
    memcpy(piece.data, "data:", 5);
    for (int i = 0; i < 18; i++) s = um_sse_read(&r, piece.data, piece.len, on_event, &out, &err);
    assert_int_equal(s, UM_ELIMIT);
    um_sse_reader_free(&r);
    um_buf_free(&piece);
    um_buf_free(&out);
}

#define T(f) cmocka_unit_test_setup_teardown(f, open_world, close_world)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(brings_an_answer),
        T(speaks_to_an_address_of_ipv6),
        T(looks_up_no_host_whose_addresses_are_given),
        T(sends_what_it_was_given),
        T(brings_a_stream_as_it_comes),
        T(tells_when_the_answer_breaks_off),
        T(hangs_up_when_it_is_cancelled),
        T(may_be_cancelled_by_its_listener),
        T(may_be_cancelled_before_it_began),
        T(tells_when_the_server_says_nothing_in_time),
        T(tells_when_nobody_listens),
        T(tells_when_the_system_refuses_to_connect),
        T(passes_over_an_address_that_the_system_refuses),
        T(tells_when_the_host_is_unknown),
        T(reads_an_answer_that_ends_with_the_connection),
        T(refuses_what_is_no_answer),
        cmocka_unit_test(takes_addresses_apart),
        cmocka_unit_test(refuses_what_is_no_address),
        cmocka_unit_test(splits_a_stream_into_events_however_it_is_cut),
        cmocka_unit_test(bounds_an_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
