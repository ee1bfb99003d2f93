/* An HTTP client of the scripted server (scripted.h), on the same loop. */
#ifndef UM_TESTS_SERVER_ASKING_H
#define UM_TESTS_SERVER_ASKING_H

#include "scripted.h"

#include <setjmp.h>

#include <cmocka.h>

#include <event2/event.h>

typedef struct answer {
    int status;
    um_buf body;
    bool done;
    um_http_call *call;
} answer;

static void on_head(void *arg, const um_http_response *a) { ((answer *)arg)->status = a->status; }
static void on_data(void *arg, const char *bytes, size_t n) { um_buf_append(&((answer *)arg)->body, bytes, n); }
static void on_done(void *arg, um_status s, const um_err *err) {
    answer *a = arg;
    if (s) fprintf(stderr, "client: %s\n", err->msg);
    a->done = true;
    um_buf_reserve(&a->body, 1);
}

/* Runs the loop until the condition holds. Fails after a minute. */
#define PUMP_UNTIL(condition)                                                                                          \
    do {                                                                                                               \
        double late = um_now() + 60;                                                                                   \
        while (!(condition) && um_now() < late) event_base_loop(server->service.base, EVLOOP_ONCE);                    \
        assert_true(condition);                                                                                        \
    } while (0)

static void ask_at(answer *a, int32_t port, const char *method, const char *path, um_str body) {
    static const um_http_client_callbacks listener = {on_head, on_data, on_done};
    um_url url;
    char text[64];
    snprintf(text, sizeof text, "http://127.0.0.1:%d", port);
    assert_int_equal(um_url_parse(&url, text, NULL), UM_OK);
    um_http_request r = {.url = &url, .method = method, .path = path, .body = body};
    *a = (answer){0};
    a->call = um_http_call_start(server->service.base, &r, &listener, a);
}

static void free_answer(answer *a) { um_buf_free(&a->body); }

#endif
