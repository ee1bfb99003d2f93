/* The HTTP server, tested through raw sockets. */
#include "http_world.h"

#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#include "server/http/internal.h"

#define HOST "Host: x\r\n"
#define BYE  "Connection: close\r\n"

static void has(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("\"%s\" is not in: %s", part, text);
}

static void has_not(const char *text, const char *part) {
    if (strstr(text, part)) fail_msg("\"%s\" is in: %s", part, text);
}

static int count(const char *text, const char *part) {
    int n = 0;
    for (const char *p = text; (p = strstr(p, part)); p += strlen(part)) n++;
    return n;
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

static void answers_with_length_date_and_type(void **state) {
    world *w = (world *)*state;
    serve(w);
    char *got = ask(w, "GET /a%20b HTTP/1.1\r\n" HOST BYE "\r\n");
    has(got, "HTTP/1.1 200 OK\r\n");
    has(got, "\r\nContent-Type: text/plain\r\n");
    has(got, "\r\nContent-Length: 11\r\n");
    has(got, "\r\nConnection: close\r\n");
    struct tm date = {0};
    const char *end = strptime(strstr(got, "\r\nDate: "), "\r\nDate: %a, %d %b %Y %H:%M:%S GMT\r\n", &date);
    assert_non_null(end);
    assert_in_range(time(NULL) - timegm(&date), 0, 60);
    has(got, "\r\n\r\nGET /a b []");
    assert_int_equal(w->n_complete, 1);
    assert_int_equal(w->n_ended, 1);
    um_free(got);
}

static void gives_the_same_answer_however_the_bytes_are_split(void **state) {
    world *w = (world *)*state;
    const char *request = "POST /p HTTP/1.1\r\n" HOST BYE "Transfer-Encoding: chunked\r\n\r\n"
                          "3;x=\"y\"\r\nabc\r\n2\r\nde\r\n0\r\nT: t\r\n\r\n";
    serve(w);
    for (size_t step = 1; step < 12; step += 3) {
        um_buf out = {0};
        int fd = dial(w);
        for (size_t i = 0; i < strlen(request); i += step) {
            say_bytes(w, fd, request + i, UM_MIN(step, strlen(request) - i));
            turn(w);
        }
        hear_all(w, fd, &out);
        has(out.data, "\r\n\r\nPOST /p [abcde]");
        close(fd);
        um_buf_free(&out);
    }
}

static void keeps_a_connection_and_answers_pipelined_requests_in_order(void **state) {
    world *w = (world *)*state;
    serve(w);
    char *got = ask(w, "GET /1 HTTP/1.1\r\n" HOST "\r\nPOST /2 HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nhi"
                       "\r\nGET /stream HTTP/1.1\r\n" HOST "\r\nGET /4 HTTP/1.1\r\n" HOST BYE "\r\n");
    assert_int_equal(count(got, "HTTP/1.1 200 OK"), 4);
    const char *parts[] = {"GET /1 []", "POST /2 [hi]", "5\r\nthree\r\n0\r\n\r\nHTTP/1.1", "GET /4 []"}, *at = got;
    for (size_t i = 0; i < UM_LEN(parts); i++) {
        at = strstr(at, parts[i]);
        if (!at) fail_msg("\"%s\" is missing or out of order: %s", parts[i], got);
    }
    assert_int_equal(w->n_complete, 4);
    um_free(got);
}

/* The second request waits while the response to the first is pending. */
static void gives_one_answer_at_a_time(void **state) {
    world *w = (world *)*state;
    um_buf out = {0};
    serve(w);
    int fd = dial(w);
    say(w, fd, "GET /later HTTP/1.1\r\n" HOST "\r\nGET /2 HTTP/1.1\r\n" HOST BYE "\r\n");
    WAIT_FOR(w, w->open);
    for (int i = 0; i < 20; i++) turn(w);
    assert_int_equal(w->n_requests, 1);
    um_exchange_send(w->open, 503, NULL, "no", 2);
    hear_all(w, fd, &out);
    has(out.data, "HTTP/1.1 503 Service Unavailable\r\n");
    has(out.data, "GET /2 []");
    close(fd);
    um_buf_free(&out);
}

static void streams_in_chunks(void **state) {
    world *w = (world *)*state;
    serve(w);
    char *got = ask(w, "GET /stream HTTP/1.1\r\n" HOST BYE "\r\n");
    has(got, "Transfer-Encoding: chunked\r\n");
    has(got, "\r\n\r\n4\r\none \r\n4\r\ntwo \r\n5\r\nthree\r\n0\r\n\r\n");
    has_not(got, "Content-Length");
    um_free(got);
}

static void closes_behind_the_stream_of_an_old_client(void **state) {
    world *w = (world *)*state;
    serve(w);
    char *got = ask(w, "GET /stream HTTP/1.0\r\n\r\n");
    has(got, "Connection: close\r\n");
    has(got, "\r\n\r\none two three");
    has_not(got, "chunked");
    um_free(got);
}

static void keeps_the_connection_of_an_old_client_that_asks_for_it(void **state) {
    world *w = (world *)*state;
    serve(w);
    char *got = ask(w, "GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /y HTTP/1.0\r\n\r\n");
    has(got, "Content-Length: 9\r\nConnection: keep-alive\r\n");
    has(got, "GET /y []");
    um_free(got);
    got = ask(w, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    has(got, "Connection: close\r\n");
    um_free(got);
}

static void gives_a_head_alone_to_head(void **state) {
    world *w = (world *)*state;
    serve(w);
    char *got = ask(w, "HEAD /a HTTP/1.1\r\n" HOST "\r\nHEAD /stream HTTP/1.1\r\n" HOST BYE "\r\n");
    has(got, "Content-Length: 10\r\n");
    has_not(got, "HEAD /a");
    has(got, "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
    has_not(got, "one");
    um_free(got);
}

static void asks_for_the_body_of_who_waits_for_that(void **state) {
    world *w = (world *)*state;
    um_buf out = {0};
    serve(w);
    int fd = dial(w);
    say(w, fd, "POST /e HTTP/1.1\r\n" HOST BYE "Expect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    hear(w, fd, &out, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_int_equal(w->n_requests, 0);
    say(w, fd, "body");
    hear_all(w, fd, &out);
    has(out.data, "POST /e [body]");
    close(fd);
    um_buf_free(&out);
}

static void takes_a_large_body_whole(void **state) {
    world *w = (world *)*state;
    um_buf out = {0}, body = {0};
    serve(w);
    for (int i = 0; i < 200000; i++) um_buf_printf(&body, "%07d ", i);
    int fd = dial(w);
    char head[200];
    snprintf(head, sizeof head, "POST /b HTTP/1.1\r\n" HOST BYE "Content-Length: %zu\r\n\r\n", body.len);
    say(w, fd, head);
    say_bytes(w, fd, body.data, body.len);
    hear_all(w, fd, &out);
    const char *begin = strstr(out.data, "[");
    assert_non_null(begin);
    assert_memory_equal(begin + 1, body.data, body.len);
    close(fd);
    um_buf_free(&out);
    um_buf_free(&body);
}

static void adds_headers_and_keeps_line_breaks_out_of_them(void **state) {
    world *w = (world *)*state;
    um_buf out = {0};
    serve(w);
    int fd = dial(w);
    say(w, fd, "GET /later HTTP/1.1\r\n" HOST BYE "\r\n");
    WAIT_FOR(w, w->open);
    um_exchange_add_header(w->open, "X-Request-Id", "a\r\nSet-Cookie: b");
    um_exchange_send(w->open, 204, NULL, NULL, 0);
    hear_all(w, fd, &out);
    has(out.data, "HTTP/1.1 204 No Content\r\n");
    has(out.data, "\r\nX-Request-Id: a??Set-Cookie: b\r\n");
    has_not(out.data, "Content-Length");
    close(fd);
    um_buf_free(&out);
}

/* ---- Request ----------------------------------------------------------------------------------------------------- */

static void tells_what_the_request_says(void **state) {
    world *w = (world *)*state;
    serve(w);
    int fd = dial(w);
    say(w, fd, "GET /later?a=1&b=x+y%21&c&a=2 HTTP/1.1\r\n" HOST "Accept: one\r\nX-Y:  z \r\naccept: two\r\n\r\n");
    WAIT_FOR(w, w->open);
    um_exchange *x = w->open;
    assert_string_equal(um_exchange_path(x), "/later");
    assert_string_equal(um_exchange_query(x, "a"), "1");
    assert_string_equal(um_exchange_query(x, "b"), "x y!");
    assert_string_equal(um_exchange_query(x, "c"), "");
    assert_null(um_exchange_query(x, "d"));
    assert_string_equal(um_exchange_header(x, "ACCEPT"), "one, two");
    assert_string_equal(um_exchange_header(x, "x-y"), "z");
    assert_null(um_exchange_header(x, "x"));
    assert_int_equal(strncmp(um_exchange_peer(x), "127.0.0.1:", 10), 0);
    assert_true(um_exchange_start_time(x) <= um_now());
    assert_null(um_exchange_get_user_data(x));
    um_exchange_set_user_data(x, w);
    assert_ptr_equal(um_exchange_get_user_data(x), w);
    assert_false(um_exchange_has_begun(x));
    um_exchange_begin(x, 200, NULL);
    um_exchange_write(x, "12345", 5);
    assert_true(um_exchange_has_begun(x));
    assert_int_equal(um_exchange_status(x), 200);
    assert_int_equal(um_exchange_sent(x), 5);
    close(fd);
    WAIT_FOR(w, w->n_broken == 1);
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static void refuses_in_the_words_of_its_owner(void **state) {
    world *w = (world *)*state;
    w->refuses = true;
    w->config.max_body_bytes = 10;
    serve(w);
    char *got = ask(w, "POST / HTTP/1.1\r\n" HOST "Content-Length: 11\r\n\r\nxxxxxxxxxxx");
    has(got, "HTTP/1.1 413 Content Too Large\r\n");
    has(got, "Content-Type: application/json\r\n");
    has(got, "Connection: close\r\n");
    has(got, "{\"status\": 413");
    um_free(got);
    got = ask(w, "GET / HTTP/3.0\r\n");
    has(got, "HTTP/1.1 505 ");
    um_free(got);
    assert_int_equal(w->n_requests, 0);
    assert_int_equal(w->n_ended, 2); /* on_end is called for rejected requests, too */
}

static void refuses_in_a_plain_sentence_otherwise(void **state) {
    world *w = (world *)*state;
    serve(w);
    char *got = ask(w, "GET / HTTP/1.1\r\n\r\n");
    has(got, "HTTP/1.1 400 Bad Request\r\n");
    has(got, "header Host is missing\n");
    um_free(got);
}

/* Sends a body of 4 MB, which the server does not read, and then reads the response. */
static void send_all_before_reading(world *w, const char *response) {
    um_buf out = {0}, body = {0};
    um_buf_reserve(&body, 4000000);
    for (int i = 0; i < 4000000; i++) um_buf_putc(&body, 'x');
    int fd = dial(w);
    say(w, fd, "POST / HTTP/1.1\r\n" HOST "Content-Length: 4000000\r\n\r\n");
    say_bytes(w, fd, body.data, body.len);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    hear_all(w, fd, &out);
    has(out.data, response);
    close(fd);
    um_buf_free(&out);
    um_buf_free(&body);
}

static void lets_a_client_read_why_its_body_is_too_large(void **state) {
    world *w = (world *)*state;
    w->config.max_body_bytes = 1000;
    serve(w);
    send_all_before_reading(w, "HTTP/1.1 413 ");
}

/* The bodies of all requests share 300,000 bytes. What a client announces takes none of them, and a small body is read
 * in any case. */
static void bounds_the_memory_of_all_bodies(void **state) {
    world *w = (world *)*state;
    um_buf body = {0}, request = {0};
    w->config.max_bodies_bytes = 300000;
    serve(w);
    for (int i = 0; i < 150000; i++) um_buf_putc(&body, 'x');
    int silent = dial(w), slow = dial(w), pending = dial(w);
    say(w, silent, "POST /a HTTP/1.1\r\n" HOST "Content-Length: 300000\r\n\r\n");
    say(w, slow, "POST /b HTTP/1.1\r\n" HOST "Content-Length: 150001\r\n\r\n");
    say_bytes(w, slow, body.data, body.len);
    say(w, pending, "POST /later HTTP/1.1\r\n" HOST "Content-Length: 150000\r\n\r\n");
    say_bytes(w, pending, body.data, body.len);
    WAIT_FOR(w, w->open);
    WAIT_FOR(w, w->server->bodies_bytes == 300000);
    um_buf_puts(&request, "POST /c HTTP/1.1\r\n" HOST BYE "Content-Length: 150000\r\n\r\n");
    um_buf_append(&request, body.data, body.len);
    char *got = ask(w, request.data);
    has(got, "HTTP/1.1 503 Service Unavailable\r\n");
    has(got, "Retry-After: 1\r\n");
    um_free(got);
    got = ask(w, "POST /small HTTP/1.1\r\n" HOST BYE "Content-Length: 4\r\n\r\nbody");
    has(got, "POST /small [body]");
    um_free(got);
    um_buf taken = um_exchange_take_body(w->open);
    got = ask(w, request.data);
    has(got, "POST /c [xxx");
    um_free(got);
    close(slow), close(silent), close(pending);
    WAIT_FOR(w, um_http_server_connections(w->server) == 0);
    assert_int_equal(w->server->bodies_bytes, 0);
    um_buf_free(&taken);
    um_buf_free(&body);
    um_buf_free(&request);
}

/* A client that sends all before it reads would take an error of its socket for the end. */
static void reads_on_after_the_response_while_the_client_sends(void **state) {
    world *w = (world *)*state;
    um_buf out = {0};
    w->config.max_body_bytes = 1000;
    w->config.linger_timeout = 1;
    serve(w);
    int fd = dial(w);
    say(w, fd, "POST / HTTP/1.1\r\n" HOST "Content-Length: 4000000\r\n\r\n");
    const double until = um_now() + 1.5;
    for (double next = 0; um_now() < until; turn(w)) {
        if (um_now() < next) continue;
        assert_int_equal(send(fd, "xxxx", 4, MSG_NOSIGNAL), 4);
        next = um_now() + 0.02;
    }
    hear_all(w, fd, &out);
    has(out.data, "HTTP/1.1 413 ");
    close(fd);
    um_buf_free(&out);
}

static bool is_known(void *arg, um_exchange *x) {
    (void)arg;
    return um_exchange_header(x, "authorization") != NULL;
}

/* The handler answers from the head: the client is not asked for the body, and the connection closes. */
static void answers_without_a_body_that_nobody_needs(void **state) {
    world *w = (world *)*state;
    serve(w);
    um_http_server_on_body(w->server, is_known);
    char *got = ask(w, "POST /a HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 9000000\r\n\r\n");
    has_not(got, "100 Continue");
    has(got, "Connection: close\r\n");
    has(got, "POST /a []");
    um_free(got);
    got = ask(w, "POST /b HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n4\r\nGET \r\n");
    has(got, "POST /b []");
    um_free(got);
    send_all_before_reading(w, "POST / []");
    assert_int_equal(w->n_requests, 3);
    got = ask(w, "POST /c HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n"
                 "POST /d HTTP/1.1\r\n" HOST BYE "Authorization: key\r\nContent-Length: 4\r\n\r\nbody");
    has(got, "POST /c []");
    has(got, "POST /d [body]");
    um_free(got);
}

static void answers_what_came_before_a_malformed_request(void **state) {
    world *w = (world *)*state;
    serve(w);
    char *got = ask(w, "GET /1 HTTP/1.1\r\n" HOST "\r\nGET /2 HTTP/1.1\nHost: x\n\n");
    has(got, "GET /1 []HTTP/1.1 400 Bad Request");
    assert_int_equal(w->n_requests, 1);
    um_free(got);
}

/* ---- Clients that leave or are slow ------------------------------------------------------------------------------ */

static void notices_a_hang_up_while_an_answer_is_pending(void **state) {
    world *w = (world *)*state;
    serve(w);
    int fd = dial(w);
    say(w, fd, "POST /later HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n");
    WAIT_FOR(w, w->open);
    close(fd);
    WAIT_FOR(w, w->n_broken == 1);
    assert_null(w->open);
    assert_int_equal(um_http_server_connections(w->server), 0);
}

/* So much follows the request that reading has paused. The rest fits into the kernel's buffer. */
static void notices_a_hang_up_of_a_client_that_pipelines_without_end(void **state) {
    world *w = (world *)*state;
    serve(w);
    int fd = dial(w);
    um_buf many = {0};
    for (int i = 0; i < 3500; i++) um_buf_puts(&many, "GET /x HTTP/1.1\r\n" HOST "\r\n");
    say(w, fd, "GET /later HTTP/1.1\r\n" HOST "\r\n");
    WAIT_FOR(w, w->open);
    say_bytes(w, fd, many.data, many.len);
    for (int i = 0; i < 100; i++) turn(w);
    assert_int_equal(w->n_requests, 1);
    close(fd);
    WAIT_FOR(w, w->n_broken == 1);
    um_buf_free(&many);
}

static void goes_on_with_what_was_pipelined_in_excess(void **state) {
    world *w = (world *)*state;
    um_buf many = {0}, out = {0};
    serve(w);
    int fd = dial(w);
    say(w, fd, "GET /later HTTP/1.1\r\n" HOST "\r\n");
    for (int i = 0; i < 3500; i++) um_buf_puts(&many, "GET /x HTTP/1.1\r\n" HOST "\r\n");
    um_buf_puts(&many, "GET /last HTTP/1.1\r\n" HOST BYE "\r\n");
    say_bytes(w, fd, many.data, many.len);
    WAIT_FOR(w, w->open);
    for (int i = 0; i < 20; i++) turn(w);
    um_exchange_send(w->open, 200, NULL, "x", 1);
    hear_all(w, fd, &out);
    assert_int_equal(count(out.data, "HTTP/1.1 200 OK"), 3502);
    has(out.data, "GET /last []");
    close(fd);
    um_buf_free(&many);
    um_buf_free(&out);
}

static void forgets_a_client_that_leaves_in_the_middle_of_a_request(void **state) {
    world *w = (world *)*state;
    serve(w);
    const char *halves[] = {"", "GET /", "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nabc"};
    for (size_t i = 0; i < UM_LEN(halves); i++) {
        int fd = dial(w);
        WAIT_FOR(w, um_http_server_connections(w->server) == 1);
        say(w, fd, halves[i]);
        turn(w);
        close(fd);
        WAIT_FOR(w, um_http_server_connections(w->server) == 0);
    }
    assert_int_equal(w->n_requests, 0);
}

/* "nc -N" shuts down its sending side after the request. */
static void answers_at_once_who_sends_no_more(void **state) {
    world *w = (world *)*state;
    um_buf out = {0};
    serve(w);
    int fd = dial(w);
    say(w, fd, "GET /1 HTTP/1.1\r\n" HOST "\r\nGET /2 HTTP/1.1\r\n" HOST "\r\n");
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    hear_all(w, fd, &out);
    has(out.data, "GET /1 []HTTP/1.1 200 OK");
    has(out.data, "GET /2 []");
    close(fd);
    um_buf_free(&out);
}

static void fill(um_exchange *x, size_t n) {
    char bytes[4096];
    memset(bytes, 'z', sizeof bytes);
    for (size_t i = 0; i < n; i += sizeof bytes) um_exchange_write(x, bytes, sizeof bytes);
}

/* The client reads on after a pause. Then everything arrives, and the drain callback is called. */
static void tells_when_a_slow_reader_has_caught_up(void **state) {
    world *w = (world *)*state;
    um_buf out = {0};
    serve(w);
    int fd = dial_with(w, 4096);
    say(w, fd, "GET /later HTTP/1.0\r\n\r\n");
    WAIT_FOR(w, w->open);
    um_exchange_begin(w->open, 200, NULL);
    fill(w->open, 8 << 20);
    assert_true(um_exchange_buffered(w->open) > 0);
    assert_int_equal(w->n_drained, 0);
    while (!w->n_drained) {
        assert_true(hear_some(fd, &out));
        turn(w);
    }
    assert_int_equal(um_exchange_buffered(w->open), 0);
    um_exchange_end(w->open);
    hear_all(w, fd, &out);
    assert_true(out.len > 8 << 20);
    assert_int_equal(w->n_complete, 1);
    close(fd);
    um_buf_free(&out);
}

/* The drain callback also comes when the socket takes everything at once, so writing a piece per callback reaches the
 * end.
 */
static void tells_that_nothing_had_to_wait(void **state) {
    world *w = (world *)*state;
    um_buf out = {0};
    serve(w);
    int fd = dial(w);
    say(w, fd, "GET /later HTTP/1.0\r\n\r\n");
    WAIT_FOR(w, w->open);
    um_exchange_begin(w->open, 200, NULL);
    for (int i = 1; i <= 5; i++) {
        um_exchange_write(w->open, "piece ", 6);
        assert_int_equal(w->n_drained, i - 1);
        WAIT_FOR(w, w->n_drained == i);
    }
    um_exchange_end(w->open);
    hear_all(w, fd, &out);
    has(out.data, "piece piece piece piece piece ");
    close(fd);
    um_buf_free(&out);
}

static void drops_a_client_that_leaves_too_much_unread(void **state) {
    world *w = (world *)*state;
    w->config.max_unread_bytes = 100000;
    serve(w);
    int fd = dial_with(w, 4096);
    say(w, fd, "GET /later HTTP/1.1\r\n" HOST "\r\n");
    WAIT_FOR(w, w->open);
    um_exchange_begin(w->open, 200, NULL);
    fill(w->open, 16 << 20);
    assert_true(um_exchange_buffered(w->open) < 110000);
    WAIT_FOR(w, w->n_broken == 1);
    close(fd);
}

static void drops_a_client_that_takes_nothing(void **state) {
    world *w = (world *)*state;
    w->config.write_timeout = 0.05;
    serve(w);
    int fd = dial_with(w, 4096);
    say(w, fd, "GET /later HTTP/1.1\r\n" HOST "\r\n");
    WAIT_FOR(w, w->open);
    um_exchange_begin(w->open, 200, NULL);
    fill(w->open, 8 << 20);
    WAIT_FOR(w, w->n_broken == 1);
    close(fd);
}

/* Each byte arrives in time, but the whole head takes too long. */
static void gives_a_head_a_limited_time(void **state) {
    world *w = (world *)*state;
    um_buf out = {0};
    w->config.head_timeout = 0.3;
    serve(w);
    int fd = dial(w);
    double until = um_now() + PATIENCE;
    say(w, fd, "GET / HTTP/1.1\r\nX: ");
    while (!out.len) {
        send(fd, "x", 1, MSG_NOSIGNAL);
        struct timeval nap = {0, 20000};
        event_base_loopexit(w->base, &nap);
        event_base_dispatch(w->base);
        hear_some(fd, &out);
        if (um_now() > until) fail_msg("never refused");
    }
    has(out.data, "HTTP/1.1 408 Request Timeout\r\n");
    close(fd);
    um_buf_free(&out);
}

static void gives_a_body_a_limited_time_between_bytes(void **state) {
    world *w = (world *)*state;
    w->config.body_timeout = 0.05;
    serve(w);
    char *got = ask(w, "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nabc");
    has(got, "HTTP/1.1 408 Request Timeout\r\n");
    um_free(got);
}

static void closes_idle_connections(void **state) {
    world *w = (world *)*state;
    w->config.idle_timeout = 0.05;
    serve(w);
    char *got = ask(w, "GET /1 HTTP/1.1\r\n" HOST "\r\n");
    has(got, "GET /1 []");
    has_not(got, "Connection: close");
    um_free(got);
}

static void closes_behind_each_answer_without_keep_alive(void **state) {
    world *w = (world *)*state;
    w->config.idle_timeout = 0;
    serve(w);
    char *got = ask(w, "GET /1 HTTP/1.1\r\n" HOST "\r\n");
    has(got, "Connection: close\r\n");
    um_free(got);
}

/* ---- Limits on connections --------------------------------------------------------------------------------------- */

static void closes_the_longest_idle_connection_for_a_new_client(void **state) {
    world *w = (world *)*state;
    um_buf out = {0};
    w->config.max_connections = 2;
    serve(w);
    int first = dial(w), second = dial(w);
    say(w, second, "GET /second HTTP/1.1\r\n" HOST "\r\n");
    hear(w, second, &out, "GET /second []");
    say(w, first, "GET /first HTTP/1.1\r\n" HOST "\r\n");
    hear(w, first, &out, "GET /first []");
    int third = dial(w);
    say(w, third, "GET /third HTTP/1.1\r\n" HOST "\r\n");
    hear(w, third, &out, "GET /third []");
    hear_all(w, second, &out);
    say(w, first, "GET /again HTTP/1.1\r\n" HOST "\r\n");
    hear(w, first, &out, "GET /again []");
    assert_int_equal(um_http_server_connections(w->server), 2);
    close(first), close(second), close(third);
    um_buf_free(&out);
}

static void answers_503_when_all_connections_are_busy(void **state) {
    world *w = (world *)*state;
    um_buf out = {0};
    w->config.max_connections = 1;
    w->config.vital_path = "/health";
    serve(w);
    int busy = dial(w);
    say(w, busy, "GET /later HTTP/1.1\r\n" HOST "\r\n");
    WAIT_FOR(w, w->open);
    char *got = ask(w, "POST /x HTTP/1.1\r\n" HOST "Content-Length: 9000000\r\n\r\n"); /* the body is not read */
    has(got, "HTTP/1.1 503 Service Unavailable\r\n");
    has(got, "Retry-After: 1\r\n");
    has(got, "Connection: close\r\n");
    um_free(got);
    got = ask(w, "GET /health HTTP/1.1\r\n" HOST "\r\n");
    has(got, "GET /health []");
    um_free(got);
    got = ask(w, "GET /health HTTP/1.1\r\n" HOST "Content-Length: 9\r\n\r\n"); /* the body never arrives */
    has(got, "GET /health []");
    um_free(got);
    assert_int_equal(w->n_requests, 3);
    um_exchange_send(w->open, 200, NULL, "done", 4);
    hear(w, busy, &out, "done");
    WAIT_FOR(w, um_http_server_connections(w->server) == 1);
    got = ask(w, "GET /x HTTP/1.1\r\n" HOST BYE "\r\n"); /* the first connection is idle now */
    has(got, "GET /x []");
    um_free(got);
    close(busy);
    um_buf_free(&out);
}

static void accepts_few_connections_beyond_the_limit(void **state) {
    world *w = (world *)*state;
    int fd[40];
    w->config.max_connections = 3;
    serve(w);
    for (size_t i = 0; i < UM_LEN(fd); i++) fd[i] = dial(w);
    WAIT_FOR(w, um_http_server_connections(w->server) > 3);
    for (int i = 0; i < 200; i++) turn(w);
    assert_in_range(um_http_server_connections(w->server), 4, 3 + 16);
    for (size_t i = 0; i < UM_LEN(fd); i++) close(fd[i]);
}

/* A spare connection without a request makes room after its time, one with a request does not. */
static void makes_room_for_a_new_client_among_silent_spare_connections(void **state) {
    (void)state;
    um_http_conn c[17] = {{.state = UM_CONN_RESPONSE}};
    um_http_server s = {.config = {.max_connections = 1}, .conns = c, .n_conns = 16};
    double now = um_now();
    for (size_t i = 1; i < UM_LEN(c); i++) {
        c[i - 1].next = &c[i];
        c[i] = (um_http_conn){.state = UM_CONN_RESPONSE, .refused = 503, .opened = now + 100};
    }
    assert_false(um_http_is_full(&s));
    s.n_conns = 17;
    assert_true(um_http_is_full(&s));
    c[7].state = UM_CONN_IDLE;
    assert_true(um_http_is_full(&s));
    c[7].opened = now - 1;
    assert_false(um_http_is_full(&s));
    c[7].state = UM_CONN_HEAD;
    assert_false(um_http_is_full(&s));
    c[7].state = UM_CONN_LINGER;
    assert_false(um_http_is_full(&s));
}

/* A server with two busy connections of the peer 10.0.0.1 and one of this machine. */
static void limits_the_connections_of_a_peer(void **state) {
    (void)state;
    um_http_peer far = {.address = {[10] = 0xFF, 0xFF, 10, 0, 0, 1}}, other = far;
    um_http_peer local = {.address = {[15] = 1}, .is_local = true};
    other.address[15] = 2;
    um_http_conn c[3] = {{.client = far, .next = &c[1]}, {.client = far, .next = &c[2]}, {.client = local}};
    for (int i = 0; i < 3; i++) c[i].state = UM_CONN_RESPONSE;
    um_http_server s = {.config = {.max_connections = 4, .max_connections_per_peer = 2}, .conns = c, .n_conns = 3};
    assert_int_equal(um_http_limit_of(&s, &far), 429);
    assert_int_equal(um_http_limit_of(&s, &other), 0);
    s.config.max_connections_per_peer = 1;
    assert_int_equal(um_http_limit_of(&s, &local), 0);
    s.config.max_connections_per_peer = 0;
    assert_int_equal(um_http_limit_of(&s, &far), 0);
    s.config.max_connections = 3;
    assert_int_equal(um_http_limit_of(&s, &far), 503);
}

/* A trusted proxy may have any number of connections. */
static void a_trusted_proxy_has_no_limit_of_its_own(void **state) {
    (void)state;
    um_http_peer proxy = {.address = {[10] = 0xFF, 0xFF, 10, 0, 0, 1}};
    um_http_conn c[1] = {{.client = proxy, .state = UM_CONN_RESPONSE}};
    um_http_server s = {.config = {.max_connections = 4, .max_connections_per_peer = 1}, .conns = c, .n_conns = 1};
    assert_int_equal(um_http_limit_of(&s, &proxy), 429);
    assert_int_equal(um_http_nets_parse(&s.config.trusted_proxies, "10.0.0.0/30", NULL), UM_OK);
    assert_int_equal(um_http_limit_of(&s, &proxy), 0);
    proxy.address[15] = 4;
    c[0].client = proxy;
    assert_int_equal(um_http_limit_of(&s, &proxy), 429);
    um_http_nets_free(&s.config.trusted_proxies);
}

/* Returns the last two bytes of the client that the headers name; -1: none. */
static int client_of(const char *trusted, const char *x_forwarded_for, const char *forwarded) {
    unsigned char address[16];
    um_http_nets nets;
    assert_int_equal(um_http_nets_parse(&nets, trusted, NULL), UM_OK);
    bool found = um_http_client_of(&nets, x_forwarded_for, forwarded, address);
    um_http_nets_free(&nets);
    return found ? address[14] * 256 + address[15] : -1;
}

static void finds_the_client_behind_trusted_proxies(void **state) {
    (void)state;
    const char *us = "10.0.0.0/8, fd00::/8";
    assert_int_equal(client_of(us, "192.0.2.7", NULL), 2 * 256 + 7);
    assert_int_equal(client_of(us, " 192.0.2.7:80 ", NULL), 2 * 256 + 7);
    assert_int_equal(client_of(us, "[2001:db8::107]:80", NULL), 256 + 7);
    assert_int_equal(client_of(us, "2001:db8::107", NULL), 256 + 7);
    /* Entries in front of the first address that is not trusted were written by the client. */
    assert_int_equal(client_of(us, "192.0.2.1, 192.0.2.7, 10.1.2.3, fd00::1", NULL), 2 * 256 + 7);
    assert_int_equal(client_of(us, "192.0.2.1, unknown, 10.1.2.3", NULL), 2 * 256 + 3);
    assert_int_equal(client_of(us, "10.1.2.3, 10.1.2.4", NULL), 2 * 256 + 3);
    assert_int_equal(client_of(us, "unknown", NULL), -1);
    assert_int_equal(client_of(us, "192.0.2.7, ", "for=192.0.2.9"), 2 * 256 + 7);
    assert_int_equal(client_of(us, "", NULL), -1);
    assert_int_equal(client_of(us, NULL, "for=192.0.2.7;proto=https, For=\"[fd00::1]:4711\""), 2 * 256 + 7);
    assert_int_equal(client_of(us, NULL, "proto=http;for=\"192.0.2.7:1\";by=\"a,b;c\""), 2 * 256 + 7);
    assert_int_equal(client_of(us, NULL, "for=192.0.2.7, proto=http"), -1);
    assert_int_equal(client_of(us, NULL, "for=\"_hidden, for=192.0.2.7"), -1);
    assert_int_equal(client_of(us, NULL, NULL), -1);
    um_buf many = {0};
    for (int i = 0; i < 100; i++) um_buf_printf(&many, "10.0.%d.1,", i);
    assert_int_equal(client_of(us, many.data, NULL), 68 * 256 + 1); /* the last 32 are read */
    um_buf_free(&many);
}

static void refuses_wrong_networks(void **state) {
    (void)state;
    static const char *const wrong[] = {"10.0.0.0/33", "10.0.0",     "::1/129", "1.2.3.4/",
                                        "1.2.3.4/-1",  "proxy.test", "/8",      "10.0.0.1,x"};
    um_http_nets nets;
    um_err err;
    for (size_t i = 0; i < UM_LEN(wrong); i++) {
        assert_int_equal(um_http_nets_parse(&nets, wrong[i], &err), UM_EINVAL);
        assert_non_null(strstr(err.msg, "--trusted-proxies"));
    }
    const unsigned char any[16] = {[3] = 9};
    assert_int_equal(um_http_nets_parse(&nets, "::/0 , unix,", &err), UM_OK);
    assert_true(nets.has_unix && nets.n == 1 && um_http_nets_have(&nets, any));
    um_http_nets_free(&nets);
}

/* Each byte arrives before body_timeout, but the body needs too long. */
static void refuses_a_body_that_arrives_too_slowly(void **state) {
    world *w = (world *)*state;
    um_buf out = {0};
    w->config.body_timeout = 0.3;
    w->config.min_body_rate = 1e9;
    serve(w);
    int fd = dial(w);
    double until = um_now() + PATIENCE;
    say(w, fd, "POST / HTTP/1.1\r\n" HOST "Content-Length: 1000000\r\n\r\n");
    while (!out.len) {
        say(w, fd, "x");
        usleep(2000);
        hear_some(fd, &out);
        if (um_now() > until) fail_msg("the server reads on");
    }
    hear_all(w, fd, &out);
    has(out.data, "HTTP/1.1 408 ");
    close(fd);
    um_buf_free(&out);
}

/* ---- Unix sockets ------------------------------------------------------------------------------------------------ */

static int dial_path(const char *path) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

static void listens_at_a_unix_socket(void **state) {
    world *w = (world *)*state;
    char dir[] = "/tmp/um_http.XXXXXX", path[64], long_path[200];
    struct stat file;
    um_err err = {0};
    um_buf out = {0};
    um_http_server *other;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/socket", dir);
    w->config.unix_socket = path;
    serve(w);
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(file.st_mode & 0777, 0660);
    int fd = dial_path(path);
    say(w, fd, "GET /x HTTP/1.1\r\n" HOST "\r\n");
    hear(w, fd, &out, "GET /x []");
    close(fd);
    /* A second server can't take the socket of the first. */
    assert_int_equal(um_http_server_new(&other, w->base, &w->config, handle_world, NULL, w, &err), UM_EIO);
    has(err.msg, path);
    um_http_server_free(w->server);
    w->server = NULL;
    assert_int_equal(stat(path, &file), -1);
    /* The socket of a process that was killed is replaced, another file is not. */
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    close(fd);
    serve(w);
    um_http_server_free(w->server);
    w->server = NULL;
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    close(fd);
    assert_int_equal(um_http_server_new(&other, w->base, &w->config, handle_world, NULL, w, &err), UM_EIO);
    assert_int_equal(unlink(path), 0);
    memset(long_path, 'x', sizeof long_path);
    long_path[sizeof long_path - 1] = '\0';
    w->config.unix_socket = long_path;
    assert_int_equal(um_http_server_new(&other, w->base, &w->config, handle_world, NULL, w, &err), UM_EIO);
    has(err.msg, "199 bytes");
    assert_int_equal(rmdir(dir), 0);
    um_buf_free(&out);
}

/* ---- Ends -------------------------------------------------------------------------------------------------------- */

static void breaks_an_answer_that_cannot_be_finished(void **state) {
    world *w = (world *)*state;
    serve(w);
    char *got = ask(w, "GET /abort HTTP/1.1\r\n" HOST "\r\n");
    has(got, "4\r\nhalf\r\n");
    has_not(got, "0\r\n\r\n");
    assert_int_equal(w->n_broken, 1);
    um_free(got);
}

static void stops_gracefully(void **state) {
    world *w = (world *)*state;
    um_buf out = {0};
    serve(w);
    int busy = dial(w), idle = dial(w), half = dial(w);
    say(w, busy, "GET /later HTTP/1.1\r\n" HOST "\r\n");
    say(w, half, "GET /half HTTP/1.1\r\n");
    WAIT_FOR(w, w->open && um_http_server_connections(w->server) == 3);
    for (int i = 0; i < 20; i++) turn(w);
    um_http_server_stop(w->server);
    hear_all(w, idle, &out);
    assert_int_equal(out.len, 0);
    um_exchange_send(w->open, 200, NULL, "done", 4);
    hear_all(w, busy, &out);
    has(out.data, "Connection: close\r\n\r\ndone");
    say(w, half, HOST "\r\n");
    hear_all(w, half, &out);
    has(out.data, "GET /half []");
    close(busy), close(idle), close(half);
    WAIT_FOR(w, um_http_server_connections(w->server) == 0);
    um_buf_free(&out);
}

static void tells_open_exchanges_when_it_is_freed(void **state) {
    world *w = (world *)*state;
    serve(w);
    int fd = dial(w);
    say(w, fd, "GET /later HTTP/1.1\r\n" HOST "\r\n");
    WAIT_FOR(w, w->open);
    um_http_server_free(w->server);
    w->server = NULL;
    assert_int_equal(w->n_broken, 1);
    close(fd);
}

static void says_why_it_cannot_listen(void **state) {
    world *w = (world *)*state;
    um_err err = {0};
    um_http_server *other;
    serve(w);
    w->config.port = um_http_server_port(w->server);
    assert_int_equal(um_http_server_new(&other, w->base, &w->config, handle_world, NULL, w, &err), UM_EIO);
    has(err.msg, "another program listens there");
    w->config.host = "no.such.host.invalid";
    assert_int_equal(um_http_server_new(&other, w->base, &w->config, handle_world, NULL, w, &err), UM_EIO);
    has(err.msg, "no.such.host.invalid");
}

static void listens_at_both_families(void **state) {
    world *w = (world *)*state;
    need_v6();
    w->config.host = "::";
    serve(w);
    char *got = ask(w, "GET /4 HTTP/1.1\r\n" HOST BYE "\r\n");
    has(got, "GET /4 []");
    um_free(got);
}

#define T(f) cmocka_unit_test_setup_teardown(f, open_world, close_world)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(answers_with_length_date_and_type),
        T(gives_the_same_answer_however_the_bytes_are_split),
        T(keeps_a_connection_and_answers_pipelined_requests_in_order),
        T(gives_one_answer_at_a_time),
        T(streams_in_chunks),
        T(closes_behind_the_stream_of_an_old_client),
        T(gives_a_head_alone_to_head),
        T(asks_for_the_body_of_who_waits_for_that),
        T(takes_a_large_body_whole),
        T(adds_headers_and_keeps_line_breaks_out_of_them),
        T(tells_what_the_request_says),
        T(refuses_in_the_words_of_its_owner),
        T(refuses_in_a_plain_sentence_otherwise),
        T(lets_a_client_read_why_its_body_is_too_large),
        T(reads_on_after_the_response_while_the_client_sends),
        T(bounds_the_memory_of_all_bodies),
        T(answers_without_a_body_that_nobody_needs),
        T(answers_what_came_before_a_malformed_request),
        T(notices_a_hang_up_while_an_answer_is_pending),
        T(notices_a_hang_up_of_a_client_that_pipelines_without_end),
        T(goes_on_with_what_was_pipelined_in_excess),
        T(forgets_a_client_that_leaves_in_the_middle_of_a_request),
        T(answers_at_once_who_sends_no_more),
        T(tells_when_a_slow_reader_has_caught_up),
        T(tells_that_nothing_had_to_wait),
        T(drops_a_client_that_leaves_too_much_unread),
        T(drops_a_client_that_takes_nothing),
        T(gives_a_head_a_limited_time),
        T(gives_a_body_a_limited_time_between_bytes),
        T(closes_idle_connections),
        T(closes_behind_each_answer_without_keep_alive),
        T(breaks_an_answer_that_cannot_be_finished),
        T(closes_the_longest_idle_connection_for_a_new_client),
        T(answers_503_when_all_connections_are_busy),
        T(accepts_few_connections_beyond_the_limit),
        T(makes_room_for_a_new_client_among_silent_spare_connections),
        T(limits_the_connections_of_a_peer),
        T(a_trusted_proxy_has_no_limit_of_its_own),
        T(finds_the_client_behind_trusted_proxies),
        T(refuses_wrong_networks),
        T(refuses_a_body_that_arrives_too_slowly),
        T(listens_at_a_unix_socket),
        T(keeps_the_connection_of_an_old_client_that_asks_for_it),
        T(stops_gracefully),
        T(tells_open_exchanges_when_it_is_freed),
        T(says_why_it_cannot_listen),
        T(listens_at_both_families),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
