/* server: event streams, to a fake exchange whose client reads or stalls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <event2/event.h>

#include "server/respond/sse.h"

/* ---- The client -------------------------------------------------------------------------------------------------- */

/* The bytes sent so far, and how many of them the client has not read. */
struct um_exchange {
    um_buf sent, headers;
    bool reads, has_ended;
    size_t unread, unread_most;
    um_exchange_drain_fn drain;
    void *arg;
};

void um_exchange_add_header(um_exchange *x, const char *name, const char *value) {
    um_buf_printf(&x->headers, "%s: %s\n", name, value);
}
void um_exchange_begin(um_exchange *x, int status, const char *type) {
    um_buf_printf(&x->headers, "%d %s\n", status, type);
}
void um_exchange_write(um_exchange *x, const void *data, size_t n) {
    um_buf_append(&x->sent, data, n);
    x->unread = x->reads ? 0 : x->unread + n;
    x->unread_most = UM_MAX(x->unread_most, x->unread);
}
void um_exchange_end(um_exchange *x) { x->has_ended = true; }
size_t um_exchange_buffered(const um_exchange *x) { return x->unread; }
void um_exchange_on_drain(um_exchange *x, um_exchange_drain_fn fn, void *arg) {
    x->drain = fn;
    x->arg = arg;
}

/* Lets the client read everything from now on. */
static void resume_reading(um_exchange *x) {
    x->reads = true;
    x->unread = 0;
    x->drain(x->arg, x);
}

typedef struct world {
    struct event_base *base;
    um_exchange x;
    um_sse *sse;
} world;

static void setup(world *w, bool reads) {
    *w = (world){.base = event_base_new(), .x = {.reads = reads}};
    w->sse = um_sse_new(w->base, &w->x);
}

static void teardown(world *w) {
    um_sse_free(w->sse);
    event_base_free(w->base);
    um_buf_free(&w->x.sent);
    um_buf_free(&w->x.headers);
}

/* Runs the loop, and so the stream's timers, until the text was sent. */
static void wait_for(world *w, const char *text) {
    for (double end = um_now() + 30; !strstr(w->x.sent.data ? w->x.sent.data : "", text);) {
        assert_true(um_now() < end);
        event_base_loop(w->base, EVLOOP_ONCE);
    }
}

static void put(world *w, const char *text, size_t fill) {
    um_jw *j = um_sse_begin(w->sse);
    um_buf padded = {0};
    um_buf_puts(&padded, text);
    for (size_t i = 0; i < fill; i++) um_buf_putc(&padded, '.');
    um_jw_str(j, padded.data, padded.len);
    um_buf_free(&padded);
}
static void append(world *w, const char *text) {
    put(w, text, 0);
    um_sse_append(w->sse);
}
static void replace(world *w, int32_t choice, const char *text, size_t fill, double max_hz) {
    put(w, text, fill);
    um_sse_replace(w->sse, choice, max_hz);
}

/* ---- Tests ------------------------------------------------------------------------------------------------------- */

static void events_arrive_in_order_and_well_formed(void **state) {
    (void)state;
    world w;
    setup(&w, true);
    append(&w, "one");
    replace(&w, 0, "two", 0, 0);
    append(&w, "three");
    um_sse_done(w.sse);
    assert_string_equal(w.x.sent.data, "data: \"one\"\n\ndata: \"two\"\n\ndata: \"three\"\n\ndata: [DONE]\n\n");
    assert_true(w.x.has_ended);
    assert_non_null(strstr(w.x.headers.data, "200 text/event-stream\n"));
    assert_non_null(strstr(w.x.headers.data, "Cache-Control: no-cache\n"));
    assert_non_null(strstr(w.x.headers.data, "X-Accel-Buffering: no\n"));
    teardown(&w);
}

/* A thousand snapshots of 10 KB for each of two choices, and a client that does not read: few bytes wait, and the
 * newest snapshots arrive. */
static void a_stalled_client_costs_one_snapshot_per_choice(void **state) {
    (void)state;
    world w;
    char name[32];
    setup(&w, false);
    for (int i = 0; i < 1000; i++) {
        for (int32_t choice = 0; choice < 2; choice++) {
            snprintf(name, sizeof name, "choice %d pass %d ", choice, i);
            replace(&w, choice, name, 10000, 0);
        }
    }
    assert_true(w.x.unread_most < 50000);
    size_t before = w.x.sent.len;
    resume_reading(&w.x);
    const char *news = w.x.sent.data + before;
    assert_non_null(strstr(news, "choice 0 pass 999 "));
    assert_non_null(strstr(news, "choice 1 pass 999 "));
    assert_null(strstr(news, "pass 998 "));
    assert_null(strstr(w.x.sent.data, "pass 500 "));
    teardown(&w);
}

static void appended_events_are_never_lost(void **state) {
    (void)state;
    world w;
    char name[32];
    setup(&w, false);
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "piece %d;", i);
        put(&w, name, 100);
        um_sse_append(w.sse);
        replace(&w, 0, "snapshot", 20000, 0);
    }
    resume_reading(&w.x);
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "piece %d;", i);
        assert_non_null(strstr(w.x.sent.data, name));
    }
    teardown(&w);
}

static void a_snapshot_never_follows_a_later_appended_event(void **state) {
    (void)state;
    world w;
    setup(&w, false);
    replace(&w, 0, "large", 20000, 0);
    replace(&w, 0, "old", 0, 0);
    append(&w, "end");
    resume_reading(&w.x);
    assert_non_null(strstr(w.x.sent.data, "\"end\""));
    assert_null(strstr(w.x.sent.data, "\"old\""));
    teardown(&w);
}

static void snapshots_are_limited_to_max_hz(void **state) {
    (void)state;
    world w;
    setup(&w, true);
    double start = um_now();
    replace(&w, 0, "first", 0, 1);
    replace(&w, 0, "second", 0, 1);
    replace(&w, 0, "third", 0, 1);
    assert_non_null(strstr(w.x.sent.data, "first"));
    wait_for(&w, "third");
    assert_true(um_now() - start >= 0.99);
    teardown(&w);
}

static void a_delayed_snapshot_is_sent_before_an_appended_event(void **state) {
    (void)state;
    world w;
    setup(&w, true);
    replace(&w, 0, "first", 0, 0.01);
    replace(&w, 0, "second", 0, 0.01);
    append(&w, "end");
    assert_string_equal(w.x.sent.data, "data: \"first\"\n\ndata: \"second\"\n\ndata: \"end\"\n\n");
    teardown(&w);
}

static void waiting_snapshots_are_dropped_at_the_end(void **state) {
    (void)state;
    world w;
    setup(&w, false);
    replace(&w, 0, "large", 20000, 0);
    replace(&w, 0, "old", 0, 0);
    um_sse_done(w.sse);
    resume_reading(&w.x);
    assert_null(strstr(w.x.sent.data, "old"));
    assert_string_equal(w.x.sent.data + w.x.sent.len - 14, "data: [DONE]\n\n");
    teardown(&w);
}

static void a_quiet_stream_sends_comments(void **state) {
    (void)state;
    world w;
    setup(&w, true);
    double start = um_now();
    wait_for(&w, ":\n\n");
    assert_true(um_now() - start > 14);
    teardown(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_arrive_in_order_and_well_formed),
        cmocka_unit_test(a_stalled_client_costs_one_snapshot_per_choice),
        cmocka_unit_test(appended_events_are_never_lost),
        cmocka_unit_test(a_snapshot_never_follows_a_later_appended_event),
        cmocka_unit_test(snapshots_are_limited_to_max_hz),
        cmocka_unit_test(a_delayed_snapshot_is_sent_before_an_appended_event),
        cmocka_unit_test(waiting_snapshots_are_dropped_at_the_end),
        cmocka_unit_test(a_quiet_stream_sends_comments),
    };
    return cmocka_run_group_tests_name("sse", tests, NULL, NULL);
}
