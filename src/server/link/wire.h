/* wire: the messages between the frontend and its workers, as flat little-endian frames.
 *
 * A frame is a header of 16 bytes and the fields of its message in a fixed order, described by one table
 * (wire_table.c); docs/wire.md has the bytes, tests/server/golden one frame of every type. A frame of another version,
 * a field that is cut, a length beyond the frame or a text that is not UTF-8 is refused by um_wire_read: a peer's frame
 * is input.
 *
 *   offset 0  u32  magic "UMSK"
 *          4  u16  version
 *          6  u16  type, UM_MSG_*
 *          8  u32  bytes of the frame, header included
 *         12  u16  worker that sent it or gets it
 *         14  u16  incarnation of that worker: a restarted one is another
 *
 * Any thread; no state. */
#ifndef UM_WIRE_H
#define UM_WIRE_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_WIRE_VERSION   3
#define UM_WIRE_FRAME_MAX ((size_t)256 << 20)

typedef enum {
    /* to a worker */
    UM_MSG_GENERATE = 1,
    UM_MSG_ABORT,
    UM_MSG_CALL,
    UM_MSG_PING,
    UM_MSG_SHUTDOWN,
    /* from a worker */
    UM_MSG_HELLO = 64, /* connected, begins to load */
    UM_MSG_READY,      /* loaded */
    UM_MSG_FAILED,     /* could not start, or has to end: its own words */
    UM_MSG_TEXT,
    UM_MSG_SNAPSHOT,
    UM_MSG_FINISH,
    UM_MSG_ERROR, /* a request failed */
    UM_MSG_STATS,
    UM_MSG_PONG,
    UM_MSG_RETURN /* of a call */
} um_msg_type;

/* A parameter by the name of its option row, its value as text. */
typedef struct um_pair {
    um_str name, value;
} um_pair;

/* What to generate. Parameters that are not named are the engine's. */
typedef struct um_msg_generate {
    uint64_t rid;     /* request number, the frontend's */
    uint32_t events;  /* UM_EVENT_* wanted; FINISH always comes */
    int32_t n;        /* answers, 1..UM_ANSWERS_MAX */
    int32_t priority; /* lower goes first */
    uint64_t cache_salt;
    bool keep_special;  /* special tokens stay in the text */
    const int32_t *ids; /* [n_ids] the prompt */
    uint32_t n_ids;
    const int32_t *suffix; /* [n_suffix] what follows the answer, for infill */
    uint32_t n_suffix;
    const um_pair *set; /* [n_set] */
    uint32_t n_set;
    const um_str *stop; /* [n_stop] */
    uint32_t n_stop;
    const int32_t *stop_ids; /* [n_stop_ids] */
    uint32_t n_stop_ids;
    const int32_t *bias_id; /* [n_bias] */
    const float *bias;      /* [n_bias]; -infinity bans */
    uint32_t n_bias;
    um_str adapter; /* n 0: none */
} um_msg_generate;

typedef struct um_msg_abort {
    uint64_t rid;
} um_msg_abort;

/* A named function of the worker; arguments and result are JSON. */
typedef struct um_msg_call {
    uint64_t call_id;
    um_str name, args;
} um_msg_call;

typedef struct um_msg_return {
    uint64_t call_id;
    int32_t status; /* um_status */
    um_str param;   /* with an error, the argument that it is about, or "" */
    um_str value;   /* JSON; with an error, the message */
} um_msg_return;

typedef struct um_msg_ping {
    uint64_t number;
} um_msg_ping; /* and UM_MSG_PONG */

typedef struct um_msg_hello {
    int64_t pid;
    um_str version; /* of the program */
} um_msg_hello;

/* Facts of the loaded engine that the frontend, which holds no weights, can't know. */
typedef struct um_msg_ready {
    int64_t n_params;
    double load_seconds;
    int32_t max_model_len, max_num_reqs, max_num_batched_tokens, page_size, pages_total, block_size;
    int64_t weight_bytes, kv_bytes, workspace_bytes;
    um_str strategy, sampler, device, dtype, family, adapters; /* adapters: JSON [{name, path, rank}] */
} um_msg_ready;

typedef struct um_msg_failed {
    int32_t status; /* um_status */
    um_str message;
} um_msg_failed;

/* The log-probabilities of an answer's tokens, as two messages carry them in this order: ONE(type, name) a number,
 * MANY(type, name, count) an array.
 *
 *   logprob                  [n_logprob]; n_logprob: n_ids, or 0
 *   likeliest_id, likeliest  [n_ids, n_likeliest], of n_likeliest_all; an id of -1: no more */
#define UM_LOGPROBS_MAP(ONE, MANY)                                                                                     \
    ONE(uint32_t, n_logprob)                                                                                           \
    MANY(float, logprob, n_logprob)                                                                                    \
    ONE(int32_t, n_likeliest)                                                                                          \
    ONE(uint32_t, n_likeliest_all)                                                                                     \
    MANY(int32_t, likeliest_id, n_likeliest_all)                                                                       \
    MANY(float, likeliest, n_likeliest_all)
#define UM_X(type, name)         type name;
#define UM_XS(type, name, count) const type *name;

/* Settled text that is new: texts and ids of an answer, one behind the other, are the result's. */
typedef struct um_msg_text {
    uint64_t rid;
    int32_t index;  /* of the answer */
    int32_t offset; /* of ids[0] in the answer */
    const int32_t *ids;
    const int32_t *text_end; /* [n_ids] bytes of the answer's text behind each of them, rising */
    uint32_t n_ids;
    UM_LOGPROBS_MAP(UM_X, UM_XS)
    um_str text;
    int32_t nfe;
    double decode_seconds; /* steps in which it denoised, so far */
    int32_t decode_tokens; /* fixed in them */
} um_msg_text;

/* The answer as it stands; replaces what came before. */
typedef struct um_msg_snapshot {
    uint64_t rid;
    int32_t index, nfe;
    double decode_seconds;
    int32_t decode_tokens;
    const int32_t *ids;      /* [n]; of a mask: -1 */
    const uint8_t *state;    /* [n] UM_TOKEN_* */
    const int32_t *pass;     /* [n] that wrote it, from 1; -1 for a mask */
    const float *confidence; /* [n] probability in that pass; NAN for a mask */
    uint32_t n;
    /* [n_blocks] start: in the answer, may be negative; status: see um_block_name */
    const int32_t *block_start, *block_length, *block_status;
    uint32_t n_blocks;
} um_msg_snapshot;

/* An answer ended. */
typedef struct um_msg_finish {
    uint64_t rid;
    int32_t index;
    const int32_t *ids;      /* [n_ids] stop token excluded */
    const int32_t *pass;     /* [n_ids] */
    const int32_t *text_end; /* [n_ids] bytes of the text behind each, rising; a stop string may have cut the last */
    uint32_t n_ids;
    UM_LOGPROBS_MAP(UM_X, UM_XS)
    um_str text;
    int32_t finish;  /* um_finish */
    um_str stop;     /* the stop string, n 0: none */
    int32_t stop_id; /* or -1 */
    int32_t cached_tokens, preemptions, nfe, prompt_tokens, denoise_tokens, denoise_passes;
    int64_t seed;
    double queue_seconds, first_token_seconds, total_seconds, decode_seconds;
} um_msg_finish;
#undef UM_X
#undef UM_XS

typedef struct um_msg_error {
    uint64_t rid;
    int32_t status; /* um_status */
    um_str param, message;
} um_msg_error;

/* Histograms of steps (bounds.c): a value belongs to the first bucket whose bound it does not exceed; the last bucket
 * has no bound. */
#define UM_STATS_BUCKETS 24
extern const double um_stats_bounds_seconds[UM_STATS_BUCKETS - 1], um_stats_bounds_tokens[UM_STATS_BUCKETS - 1];
int32_t um_stats_bucket(const double bounds[UM_STATS_BUCKETS - 1], double value);

/* The fields of um_stats that travel: counts only grow, bytes and amounts come and go. */
/* clang-format off */
#define UM_STATS_COUNT_MAP(X)                                                                                          \
    X(int64_t, steps) X(int64_t, passes) X(int64_t, tokens) X(int64_t, requests) X(int64_t, forward_tokens)            \
    X(int64_t, preemptions) X(int64_t, aborted) X(int64_t, prefix_queries) X(int64_t, prefix_hits)                     \
    X(int64_t, prefill_tokens) X(int64_t, decode_tokens) X(int64_t, decode_passes)                                     \
    X(double, step_seconds) X(double, forward_seconds) X(double, prefill_seconds) X(double, decode_seconds)            \
    X(double, schedule_seconds) X(double, apply_seconds)
#define UM_STATS_BYTES_MAP(X) X(int64_t, weight_bytes) X(int64_t, kv_bytes) X(int64_t, workspace_bytes)
#define UM_STATS_AMOUNT_MAP(X)                                                                                         \
    X(int32_t, pages_total) X(int32_t, pages_used) X(int32_t, pages_used_most)                                         \
    X(int32_t, requests_running) X(int32_t, requests_waiting)
/* clang-format on */

typedef struct um_msg_stats {
#define UM_X(type, name) type name;
    UM_STATS_COUNT_MAP(UM_X)
    UM_STATS_BYTES_MAP(UM_X)
    int64_t resident_bytes; /* of the process */
    UM_STATS_AMOUNT_MAP(UM_X)
#undef UM_X
    /* Counts per bucket: seconds of steps that prefill or denoise, tokens fed in a step. */
    const int64_t *prefill_step, *decode_step, *step_tokens;
    uint32_t n_prefill_step, n_decode_step, n_step_tokens;
} um_msg_stats;

typedef struct um_msg {
    um_msg_type type;
    uint16_t worker, incarnation;
    union {
        um_msg_generate generate;
        um_msg_abort abort;
        um_msg_call call;
        um_msg_ping ping; /* and PONG */
        um_msg_hello hello;
        um_msg_ready ready;
        um_msg_failed failed;
        um_msg_text text;
        um_msg_snapshot snapshot;
        um_msg_finish finish;
        um_msg_error error;
        um_msg_stats stats;
        um_msg_return ret;
    };
} um_msg;

/* Appends the frame of a message. */
void um_wire_write(um_buf *out, const um_msg *m);
/* Reads a frame. Arrays of numbers point into it where it is aligned for them, else into the arena, as do arrays of
 * texts; texts point into it and are not NUL-terminated. Both outlive the message. UM_EPARSE names field and byte; *out
 * is zero then, but for the type when that is known, and the fields in front of the bad one: whom to answer. */
um_status um_wire_read(um_msg *out, um_arena *arena, um_str frame, um_err *err);
const char *um_msg_name(um_msg_type t); /* "generate"; "unknown" */
/* The number of a block's status, as the engine names it, in a snapshot: 0 "DUMMY", 1 "ACTIVE", 2 "TO_CACHE", 3
 * "IN_CACHE"; of another name, and back: 4, "unknown". */
int32_t um_block_number(const char *status);
const char *um_block_name(int32_t number);
/* Type, worker and incarnation of a frame, from its header alone; false: it is none of this version. */
bool um_wire_peek(um_str frame, um_msg *head);

#ifdef __cplusplus
}
#endif
#endif
