/* engine: requests in, events out. It owns the queue, the pages and the flat batch, and turns the crank:
 *
 *   plan     schedule.c picks running requests, their strategies describe segments and rows, batch.c makes them flat
 *   forward  model/transformer.c answers the rows
 *   apply    the strategies write tokens; output.c turns what settled into text and events
 *
 * Everything a step touches is allocated when the engine is made or when a request is added. One owner thread. */
#ifndef UM_ENGINE_H
#define UM_ENGINE_H

#include "base/base.h"
#include "decode/decode.h"
#include "engine/options.h"
#include "engine/route.h"
#include "kv/kv.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A request inside the engine: its decoding state and everything around it. */
typedef struct um_job {
    um_req req;
    int64_t id;
    um_need bound; /* what it may need at most */
    um_table table[2];
    int32_t slot;     /* place among the running ones, -1 while it waits */
    int32_t priority; /* rank: the lower one, then who came first */
    int64_t arrival;
    int32_t skips; /* times in a row that it was passed over */
    int32_t preemptions, cached_tokens;
    int32_t looked_up; /* leading tokens that were looked for in the prefix index */
    uint64_t cache_salt;
    int32_t index, n_answers;                       /* of the answers of one request */
    struct um_job *first;                           /* answer 0 of the same request while it lives, for the others */
    int32_t n_planned_rows, first_row, n_tokens;    /* of the current pass */
    bool asked, in_pass, prefill, partial, aborted; /* in the current step */

    um_event_fn on_event;
    void *arg;
    unsigned events;

    /* Settled text. A token's text may be completed by a later token, so ends are kept per token. */
    um_stream stream;
    um_buf text;
    int32_t *text_end;     /* [max answer] length of `text` behind each answer token */
    um_logprob *likeliest; /* [max answer, n_top] of the tokens that were given; NULL: not asked for */
    int32_t n_text;        /* answer tokens whose text came out of the stream */
    size_t sent;           /* bytes given to the callback */
    int32_t n_sent;        /* tokens given with them */
    char **stop;
    size_t n_stop, stop_longest;
    const char *stop_found;
    int32_t *stop_ids;
    uint8_t *state; /* [cap] of snapshots; NULL: nobody wants them */

    double added, started, first_token;
    double decode_seconds; /* of finished steps in which it was denoised */
    int32_t decode_tokens; /* fixed in those and in the current one */
    bool denoised;         /* in the current step */
    struct um_job *next;   /* in the waiting queue */
} um_job;

struct um_engine {
    um_model *model;
    um_config config; /* resolved */
    um_traits traits;
    um_compat compat;
    int32_t max_len;
    um_forward *forward;
    um_pages pages;
    size_t token_bytes_max; /* longest text of a token */
    const char *sampler;    /* of requests by its defaults */

    um_job *waiting, **waiting_tail; /* by rank */
    int32_t worst_waiting;           /* no request that waits has a higher priority number */
    um_job **running;                /* [max_num_reqs], the first n_running by rank */
    int32_t n_running, n_waiting;
    int64_t queued;                    /* tokens of their prompts and answers at most */
    int32_t *free_saved, n_free_saved; /* saved rows that no running request owns */
    int32_t n_refreshes;               /* passes over everything in the current step */
    int64_t next_id, next_arrival;
    bool stepping;

    /* The flat batch. T = max_num_batched_tokens. */
    um_pass space; /* what requests of a step share: the arrays of their passes, as long as `room` says */
    um_pass room;
    int32_t *slot, *seen_end; /* [T] */
    um_span *span;            /* [room.n_seg] */
    int32_t (*save)[2];       /* [room.n_seg] */
    um_answer *answer;        /* [T] */
    um_trace_space trace;
    um_block_view view[UM_BUFFER_MAX]; /* of a snapshot */
    double step_start;
    um_stats stats;
    um_profile profile;
};

/* ---- job.c: submission and end of a request ---- */
/* Checks and copies a request; refuses what could never run, with the arithmetic. */
um_status um_job_new(um_job **out, um_engine *e, const um_request *r, int32_t index, um_err *err);
/* The caller's struct is the one that this library knows, with a possible number of answers. */
um_status um_request_check(const um_request *r, um_err *err);
/* A request by the engine's defaults can run, be it as short as possible: parameters that contradict each other or the
 * model are refused when the engine is made. Notes what such a request uses. */
um_status um_job_check_defaults(um_engine *e, um_err *err);
void um_job_free(um_job *j, um_engine *e);

/* ---- engine.c: the two halves of um_engine_add, between which a router chooses ---- */
/* The answers of a request, linked by `next`; they run in every engine of the same model and configuration. */
um_status um_engine_prepare(um_engine *e, const um_request *r, um_job **out, um_err *err);
/* Queues what was prepared under the number `id`. */
void um_engine_queue(um_engine *e, um_job *j, int64_t id);
/* No request runs or waits, else UM_EINVAL. */
um_status um_engine_check_idle(const um_engine *e, um_err *err);
/* Appends the running or the waiting answers to out [most], *n of them being there already; *n counts all. */
void um_engine_put_slots(const um_engine *e, bool running, um_slot *out, size_t most, size_t *n);
/* What a router has to know about the engine to place a prepared request. */
um_replica um_engine_as_replica(const um_engine *e, const um_job *j);

/* ---- schedule.c ---- */
/* Plans the passes of this step into e->space, admits and preempts; returns the number of segments. */
int32_t um_schedule_plan(um_engine *e);
void um_schedule_add(um_engine *e, um_job *j);
/* Takes a request out, wherever it is; its pages are released with it. */
void um_schedule_leave(um_engine *e, um_job *j);
/* Takes the pages of a running request that is in no pass; it waits again. */
void um_schedule_preempt(um_engine *e, um_job *j);
/* Namespace in which its stored pages may be shared, 0: they may not; *most: leading positions that may come from
 * others. */
uint64_t um_schedule_space(const um_engine *e, const um_job *j, int32_t *most);

/* ---- batch.c ---- */
/* Makes the planned passes flat: global rows, slots, visibility. */
void um_batch_build(um_engine *e, um_batch *b);

/* ---- output.c ---- */
/* Events of one request after apply: trace, snapshot, settled text, and the end. */
void um_output_pass(um_engine *e, um_job *j);
void um_output_finish(um_engine *e, um_job *j);

/* ---- options.c: rows over um_config, beside those of the model ---- */
extern const um_option um_engine_options[];
extern const size_t um_n_engine_options;
/* The caller's um_config is initialised and every value in it is one that its row allows. */
um_status um_engine_check(const um_config *c, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
