/* A worker without an engine, for measuring the frontend alone. It accepts every request and answers at once: with
 * TEXTS texts of one token each or snapshots of 256 tokens, depending on the events that the request wants, and the
 * end.
 *
 *   stub_worker COMMAND-ADDRESS EVENT-ADDRESS TEXTS
 *
 * With TEXTS 0 it sends one text and no end, so that streams stay open until their clients disconnect. */
#include <math.h>
#include <unistd.h>

#include "server/link/link.h"
#include "server/link/wire.h"

#define INCARNATION 1

static um_port *port;

static void send_message(um_msg *m) {
    um_buf frame = {0};
    m->incarnation = INCARNATION;
    um_wire_write(&frame, m);
    um_port_send(port, &frame);
}

static void send_ready(void) {
    um_msg hello = {.type = UM_MSG_HELLO, .hello = {.pid = getpid(), .version = um_str_of(um_version())}};
    um_msg ready = {.type = UM_MSG_READY,
                    .ready = {.max_model_len = 2048,
                              .max_num_reqs = 4096,
                              .max_num_batched_tokens = 65536,
                              .page_size = 32,
                              .pages_total = 65536,
                              .block_size = 32,
                              .strategy = UM_STR("multi_bd"),
                              .sampler = UM_STR("auto"),
                              .device = UM_STR("none"),
                              .dtype = UM_STR("float32"),
                              .family = UM_STR("stub"),
                              .adapters = UM_STR("[]")}};
    send_message(&hello);
    send_message(&ready);
}

/* Sends a snapshot of 256 tokens. The first n tokens are final, and the block after them is being decoded. */
static void send_snapshot(uint64_t rid, int32_t n) {
    enum { N = 256, BLOCK = 32 };
    static int32_t ids[N], passes[N];
    static uint8_t states[N];
    static float confidence[N];
    for (int32_t i = 0; i < N; i++) {
        bool is_mask = i >= n + BLOCK / 2;
        ids[i] = is_mask ? -1 : 100 + i;
        passes[i] = is_mask ? -1 : i + 1;
        states[i] = is_mask ? UM_TOKEN_MASK : i < n ? UM_TOKEN_SETTLED : UM_TOKEN_FRESH;
        confidence[i] = is_mask ? NAN : 1 / (float)(i + 1);
    }
    const int32_t length = BLOCK, status = um_block_number("ACTIVE");
    um_msg m = {.type = UM_MSG_SNAPSHOT,
                .snapshot = {.rid = rid,
                             .nfe = n,
                             .ids = ids,
                             .state = states,
                             .pass = passes,
                             .confidence = confidence,
                             .n = N,
                             .block_start = &n,
                             .block_length = &length,
                             .block_status = &status,
                             .n_blocks = 1}};
    send_message(&m);
}

static void answer(const um_msg_generate *g, int32_t n_texts) {
    static int32_t ids[4096], passes[4096], text_end[4096];
    static const um_str word = UM_STR("word ");
    um_buf text = {0};
    const int32_t n = UM_MIN(UM_MAX(n_texts, 1), (int32_t)UM_LEN(ids));
    for (int32_t i = 0; i < n; i++) {
        um_msg m = {.type = UM_MSG_TEXT,
                    .text = {.rid = g->rid,
                             .offset = i,
                             .ids = &ids[i],
                             .text_end = &text_end[i],
                             .n_ids = 1,
                             .text = word,
                             .nfe = i + 1,
                             .decode_tokens = i + 1}};
        um_buf_append(&text, word.p, word.n);
        ids[i] = 100, passes[i] = i + 1, text_end[i] = (int32_t)text.len;
        if (g->events & UM_EVENT_TEXT) send_message(&m);
        if (g->events & UM_EVENT_SNAPSHOT) send_snapshot(g->rid, i);
    }
    um_msg end = {.type = UM_MSG_FINISH,
                  .finish = {.rid = g->rid,
                             .ids = ids,
                             .pass = passes,
                             .text_end = text_end,
                             .n_ids = (uint32_t)n,
                             .text = {text.data, text.len},
                             .finish = UM_FINISH_MAX_TOKENS,
                             .stop_id = -1,
                             .nfe = n,
                             .prompt_tokens = (int32_t)g->n_ids,
                             .denoise_tokens = n,
                             .denoise_passes = n}};
    if (n_texts) send_message(&end);
    um_buf_free(&text);
}

/* Handles a command. Returns false when the worker must shut down. */
static bool handle(const um_msg *m, int32_t n_texts) {
    um_msg pong = {.type = UM_MSG_PONG, .ping = m->ping};
    um_msg none = {.type = UM_MSG_RETURN,
                   .ret = {.call_id = m->call.call_id, .status = UM_ENOENT, .value = UM_STR("this worker is a stub")}};
    if (m->type == UM_MSG_GENERATE) answer(&m->generate, n_texts);
    if (m->type == UM_MSG_PING) send_message(&pong);
    if (m->type == UM_MSG_CALL) send_message(&none);
    return m->type != UM_MSG_SHUTDOWN;
}

static um_status serve(int32_t n_texts, um_err *err) {
    um_arena arena = {0};
    um_status st = UM_OK;
    bool goes_on = true;
    while (goes_on && !st) {
        um_str frame;
        um_msg m;
        um_port_wait(port, 1);
        while (goes_on && !st && um_port_receive(port, &frame)) {
            st = um_wire_read(&m, &arena, frame, err);
            if (!st) goes_on = handle(&m, n_texts);
            um_arena_reset(&arena);
        }
        if (getppid() == 1) break; /* the parent process has ended */
    }
    um_arena_free(&arena);
    return st;
}

int main(int argc, char **argv) {
    um_err err;
    int64_t n_texts;
    if (argc != 4 || !um_parse_int(argv[3], &n_texts) || n_texts < 0) {
        fprintf(stderr, "usage: %s COMMAND-ADDRESS EVENT-ADDRESS TEXTS\n", argv[0]);
        return 2;
    }
    um_status st = um_port_open_zmq(&port, argv[1], argv[2], 0, INCARNATION, &err);
    if (!st) {
        send_ready();
        st = serve((int32_t)n_texts, &err);
        um_port_close(port);
    }
    if (st) fprintf(stderr, "stub_worker: %s\n", err.msg);
    return st ? 1 : 0;
}
