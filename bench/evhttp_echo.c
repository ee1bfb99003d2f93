/* A reference server to compare the frontend with: libevent's HTTP server, without JSON, metrics and workers.
 *
 *   evhttp_echo EVENTS      listens on a free port of the loopback and prints it
 *
 * With EVENTS 0 it answers a POST with its body. Otherwise it answers with a stream of EVENTS server-sent events of the
 * size that the frontend writes. */
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>

static const char chunk[] =
    "data: {\"id\":\"cmpl-0123456789abcdef01234567\",\"object\":\"text_completion\",\"created\":1700000000,\"model\":"
    "\"tiny-block\",\"choices\":[{\"index\":0,\"text\":\"word \",\"logprobs\":null,\"finish_reason\":null}]}\n\n";

static void on_request(struct evhttp_request *r, void *arg) {
    int n = *(const int *)arg;
    struct evbuffer *b = evbuffer_new();
    if (!b) abort();
    if (n == 0) {
        evhttp_add_header(evhttp_request_get_output_headers(r), "Content-Type", "application/json");
        evbuffer_add_buffer(b, evhttp_request_get_input_buffer(r));
        evhttp_send_reply(r, 200, "OK", b);
    } else {
        evhttp_add_header(evhttp_request_get_output_headers(r), "Content-Type", "text/event-stream");
        evhttp_send_reply_start(r, 200, "OK");
        for (int i = 0; i < n; i++) {
            evbuffer_add(b, chunk, sizeof chunk - 1);
            evhttp_send_reply_chunk(r, b);
        }
        evhttp_send_reply_end(r);
    }
    evbuffer_free(b);
}

int main(int argc, char **argv) {
    int n = argc == 2 ? atoi(argv[1]) : 0;
    struct sockaddr_in at;
    socklen_t size = sizeof at;
    struct event_base *base = event_base_new();
    struct evhttp *http = base ? evhttp_new(base) : NULL;
    struct evhttp_bound_socket *s = http ? evhttp_bind_socket_with_handle(http, "127.0.0.1", 0) : NULL;
    if (!s || getsockname(evhttp_bound_socket_get_fd(s), (struct sockaddr *)&at, &size)) return 1;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    evhttp_set_gencb(http, on_request, &n);
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    return event_base_dispatch(base) ? 1 : 0;
}
