/* The wire format: the messages between the frontend and its workers, as flat little-endian frames.
 *
 * A frame is a header of 16 bytes, followed by the fields of its message in a fixed order. One table (wire_table.c)
 * describes the fields, docs/wire.md the layout, and tests/server/golden has one frame of every type. um_wire_read
 * trusts nothing: it rejects frames of another version, truncated fields, lengths beyond the frame, and text that is
 * not UTF-8.
 *
 *   offset 0  u32  magic "UMSK"
 *          4  u16  version
 *          6  u16  type, UM_MSG_*
 *          8  u32  bytes of the frame, header included
 *         12  u16  worker that sends or receives the frame
 *         14  u16  incarnation of that worker, which changes when it restarts
 *
 * Any thread may call these functions. */
#ifndef UM_WIRE_H
#define UM_WIRE_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_WIRE_VERSION   8
#define UM_WIRE_FRAME_MAX ((size_t)256 << 20)

typedef enum {
    /* to a worker */
    UM_MSG_GENERATE = 1,
    UM_MSG_ABORT,
    UM_MSG_CALL,
    UM_MSG_PING,
    UM_MSG_SHUTDOWN,
    /* from a worker */
    UM_MSG_HELLO = 64, /* the worker is connected and will load the model */
    UM_MSG_READY,      /* the model is loaded */
    UM_MSG_FAILED,     /* the worker could not start or must end; has the reason */
    UM_MSG_TEXT,
    UM_MSG_SNAPSHOT,
    UM_MSG_FINISH,
    UM_MSG_ERROR, /* a request failed */
    UM_MSG_STATS,
    UM_MSG_PONG,
    UM_MSG_RETURN, /* the result of a call */
    UM_MSG_LOADING /* the progress of loading, between HELLO and READY */
} um_msg_type;

/* A parameter: the name of its option row, and its value as text. */
typedef struct um_pair {
    um_str name, value;
} um_pair;

/* A request to generate. Parameters that are not in `set` have the engine's defaults. */
typedef struct um_msg_generate {
    uint64_t rid;     /* request number, chosen by the frontend */
    uint32_t events;  /* UM_EVENT_* wanted; FINISH is always sent */
    int32_t n;        /* answers, 1..UM_ANSWERS_MAX */
    int32_t priority; /* requests with lower numbers are scheduled first */
    uint64_t tenant;  /* tenants take turns, see um_tenant_of; 0: none */
    uint64_t cache_salt;
    bool keep_special;  /* the text contains special tokens */
    const int32_t *ids; /* [n_ids] the prompt */
    uint32_t n_ids;
    const int32_t *suffix; /* [n_suffix] tokens after the answer, for infill */
    uint32_t n_suffix;
    const um_pair *set; /* [n_set] */
    uint32_t n_set;
    const um_str *stop; /* [n_stop] */
    uint32_t n_stop;
    const int32_t *stop_ids; /* [n_stop_ids] */
    uint32_t n_stop_ids;
    const int32_t *bias_id; /* [n_bias] */
    const float *bias;      /* [n_bias] added to the logit; -infinity bans the id */
    uint32_t n_bias;
    const int32_t *allowed_ids; /* [n_allowed_ids] the only ids of an answer; none: all */
    uint32_t n_allowed_ids;
    const um_str *bad_words; /* [n_bad_words] texts that no answer has */
    uint32_t n_bad_words;
    um_str adapter;                        /* n 0: none */
    int32_t constraint;                    /* UM_CONSTRAINT_* */
    um_str constraint_text;                /* p NULL or n 0: none */
    um_str reasoning_begin, reasoning_end; /* markers of a section before the constrained text; n 0: none */
} um_msg_generate;

typedef struct um_msg_abort {
    uint64_t rid;
} um_msg_abort;

/* A call of a utility; arguments and result are JSON. */
typedef struct um_msg_call {
    uint64_t call_id;
    um_str name, args;
} um_msg_call;

typedef struct um_msg_return {
    uint64_t call_id;
    int32_t status; /* um_status */
    um_str param;   /* on error: the name of the bad argument, or "" */
    um_str value;   /* the result as JSON; on error: the message */
} um_msg_return;

typedef struct um_msg_ping {
    uint64_t number;
} um_msg_ping; /* UM_MSG_PONG has the same fields */

typedef struct um_msg_hello {
    int64_t pid;
    um_str version; /* version of the program */
} um_msg_hello;

/* See um_load_progress. */
typedef struct um_msg_loading {
    int64_t bytes, bytes_all; /* 0 <= bytes <= bytes_all */
} um_msg_loading;

/* Properties of the loaded engine. The frontend has no weights and learns them here. */
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

/* The log-probabilities of an answer's tokens: fields that two messages share, in the order of the frame. ONE(type,
 * name) is a number, MANY(type, name, count) an array.
 *
 *   logprob                  [n_logprob]; n_logprob is n_ids or 0
 *   likeliest_id, likeliest  [n_ids, n_likeliest], together n_likeliest_all elements; id -1: unused, for a token with
 *                           fewer candidates */
#define UM_LOGPROBS_MAP(ONE, MANY)                                                                                     \
    ONE(uint32_t, n_logprob)                                                                                           \
    MANY(float, logprob, n_logprob)                                                                                    \
    ONE(int32_t, n_likeliest)                                                                                          \
    ONE(uint32_t, n_likeliest_all)                                                                                     \
    MANY(int32_t, likeliest_id, n_likeliest_all)                                                                       \
    MANY(float, likeliest, n_likeliest_all)
#define UM_X(type, name)         type name;
#define UM_XS(type, name, count) const type *name;

/* New text that can no longer change. The texts and ids of all these messages, joined, are those of the result. */
typedef struct um_msg_text {
    uint64_t rid;
    int32_t index;  /* number of the answer */
    int32_t offset; /* position of ids[0] in the answer */
    const int32_t *ids;
    const int32_t *text_end; /* [n_ids] length of the answer's text after each id, in bytes; never falls */
    uint32_t n_ids;
    UM_LOGPROBS_MAP(UM_X, UM_XS)
    um_str text;
    int32_t nfe;
    double decode_seconds; /* duration of the steps that have denoised the answer so far */
    int32_t decode_tokens; /* tokens that these steps committed */
} um_msg_text;

/* The present state of an answer, which replaces the previous snapshot. */
typedef struct um_msg_snapshot {
    uint64_t rid;
    int32_t index, nfe;
    double decode_seconds;
    int32_t decode_tokens;
    const int32_t *ids;      /* [n] -1: a mask */
    const uint8_t *state;    /* [n] UM_TOKEN_* */
    const int32_t *pass;     /* [n] pass that wrote the token, from 1; -1 for a mask */
    const float *confidence; /* [n] the token's probability in that pass; NAN for a mask */
    uint32_t n;
    /* [n_blocks] start: position in the answer, may be negative; status: see um_block_name */
    const int32_t *block_start, *block_length, *block_status;
    uint32_t n_blocks;
} um_msg_snapshot;

/* An answer has ended. */
typedef struct um_msg_finish {
    uint64_t rid;
    int32_t index;
    const int32_t *ids;      /* [n_ids] without the stop token */
    const int32_t *pass;     /* [n_ids] pass that wrote the token */
    const int32_t *text_end; /* [n_ids] length of the text after each id; a stop string may have cut the last */
    uint32_t n_ids;
    UM_LOGPROBS_MAP(UM_X, UM_XS)
    um_str text;
    int32_t finish;  /* um_finish */
    um_str stop;     /* the stop string that matched; n 0: none */
    int32_t stop_id; /* the stop token that was generated; -1: none */
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

/* Histograms of steps; bounds.c has the bounds. A value is counted in the first bucket whose bound it does not exceed.
 * The last bucket has no bound. */
#define UM_STATS_BUCKETS 24
extern const double um_stats_bounds_seconds[UM_STATS_BUCKETS - 1], um_stats_bounds_tokens[UM_STATS_BUCKETS - 1];
int32_t um_stats_bucket(const double bounds[UM_STATS_BUCKETS - 1], double value);

/* The fields of um_stats that a worker reports. Counts only grow; bytes and amounts are gauges. */
/* clang-format off */
#define UM_STATS_COUNT_MAP(X)                                                                                          \
    X(int64_t, steps) X(int64_t, passes) X(int64_t, tokens) X(int64_t, requests) X(int64_t, forward_tokens)            \
    X(int64_t, preemptions) X(int64_t, aborted) X(int64_t, prefix_queries) X(int64_t, prefix_hits)                     \
    X(int64_t, prefill_tokens) X(int64_t, decode_tokens) X(int64_t, decode_passes) X(int64_t, graph_replays)           \
    X(double, step_seconds) X(double, forward_seconds) X(double, prefill_seconds) X(double, decode_seconds)            \
    X(double, schedule_seconds) X(double, apply_seconds)
#define UM_STATS_BYTES_MAP(X) X(int64_t, weight_bytes) X(int64_t, kv_bytes) X(int64_t, workspace_bytes)
#define UM_STATS_AMOUNT_MAP(X)                                                                                         \
    X(int32_t, pages_total) X(int32_t, pages_used) X(int32_t, pages_used_most)                                         \
    X(int32_t, requests_running) X(int32_t, requests_waiting) X(int32_t, graphs)
/* Fields of um_engine_info, summed over the devices of the worker. */
#define UM_STATS_DEVICE_MAP(X) X(int64_t, device_bytes) X(int64_t, device_free_bytes)
/* clang-format on */

typedef struct um_msg_stats {
#define UM_X(type, name) type name;
    UM_STATS_COUNT_MAP(UM_X)
    UM_STATS_BYTES_MAP(UM_X)
    int64_t resident_bytes; /* resident memory of the process */
    UM_STATS_DEVICE_MAP(UM_X)
    UM_STATS_AMOUNT_MAP(UM_X)
#undef UM_X
    /* Histograms: seconds of steps with prefill, seconds of steps with denoising, tokens fed in a step. */
    const int64_t *prefill_step, *decode_step, *step_tokens;
    uint32_t n_prefill_step, n_decode_step, n_step_tokens;
    /* Of each rank: microseconds of its passes, and of the exchange of results in them. Empty without ranks. */
    const int64_t *rank_pass, *rank_exchange;
    uint32_t n_rank_pass, n_rank_exchange;
} um_msg_stats;
#define UM_STATS_RANKS_MAX 16

typedef struct um_msg {
    um_msg_type type;
    uint16_t worker, incarnation;
    union {
        um_msg_generate generate;
        um_msg_abort abort;
        um_msg_call call;
        um_msg_ping ping; /* and PONG */
        um_msg_hello hello;
        um_msg_loading loading;
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
/* Reads a frame. Texts point into the frame and are not NUL-terminated. Arrays of numbers point into the frame if it is
 * suitably aligned, else into the arena. Arrays of texts are in the arena. Frame and arena must outlive the message.
 * Errors: UM_EPARSE with field and byte. After an error *out holds the type, if known, and the fields before the bad
 * one, so that the caller can reply to the request; the rest is zero. */
um_status um_wire_read(um_msg *out, um_arena *arena, um_str frame, um_err *err);
const char *um_msg_name(um_msg_type t); /* "generate"; "unknown" */
/* Convert the status of a block between the engine's name and its number in a snapshot: 0 "DUMMY", 1 "ACTIVE", 2
 * "TO_CACHE", 3 "IN_CACHE". Unknown names give 4, unknown numbers "unknown". */
int32_t um_block_number(const char *status);
const char *um_block_name(int32_t number);
/* Reads type, worker and incarnation from the header of a frame. Returns false if the header is invalid or of another
 * version. */
bool um_wire_peek(um_str frame, um_msg *head);

#ifdef __cplusplus
}
#endif
#endif
