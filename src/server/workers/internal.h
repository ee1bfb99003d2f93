/* The parts that the files of the worker pool share. No other file of the program includes this header.
 *
 *   pool.c          creates the pool, submits and cancels generations, shuts down
 *   submissions.c   the table of submissions that have not ended
 *   assign.c        chooses a worker for a request; prefix_hints.c guesses which workers hold a prompt prefix
 *   events.c        handles the frames that workers send
 *   slot.c          the states of a worker: starting, heartbeat, failure, restart, shutdown
 *   instance.c      the thread or process that a worker runs in
 *   sleep.c         puts the workers to sleep and wakes them
 *   call.c          calls utilities by name; spread.c divides the prompts of such a call
 *   status.c        the status of workers, and sums of their counters */
#ifndef UM_WORKERS_INTERNAL_H
#define UM_WORKERS_INTERNAL_H

#include <event2/event.h>

#include "engine/options.h"
#include "server/link/link.h"
#include "server/workers/instance.h"
#include "server/workers/prefix_hints.h"
#include "server/workers/submissions.h"
#include "server/workers/workers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Seconds between two STATS messages of a worker that has requests. */
#define UM_STATS_SECONDS 1.0

/* A message that stays valid when its frame is gone. */
typedef struct um_msg_copy {
    um_buf frame;
    um_arena arena;
    um_msg msg; /* type 0: none */
} um_msg_copy;
/* Copies a frame that um_wire_read has accepted before. */
void um_msg_copy_set(um_msg_copy *k, um_str frame);
void um_msg_copy_clear(um_msg_copy *k);
void um_msg_copy_free(um_msg_copy *k);

/* Sums of counters and histograms over several workers, past and present. */
typedef struct um_totals {
    um_msg_stats sum;
    int64_t prefill_step[UM_STATS_BUCKETS], decode_step[UM_STATS_BUCKETS], step_tokens[UM_STATS_BUCKETS];
} um_totals;
/* Adds the counters and histograms, which only grow. They also count for workers that have died. */
void um_totals_add_counts(um_totals *t, const um_msg_stats *s);
/* Adds the gauges: bytes, pages, running and waiting requests. They count for living workers only. */
void um_totals_add_amounts(um_totals *t, const um_msg_stats *s);

/* A place for one worker. A restarted worker keeps its slot and gets a new incarnation. */
typedef struct um_worker_slot {
    um_worker_pool *pool;
    uint16_t index, incarnation; /* incarnation 0: a remote worker that has never connected */
    um_worker_state state;
    um_worker_instance *instance; /* NULL: not running, or a remote worker */
    struct event *exit_event;     /* fires when the instance has ended */
    struct event *timer;          /* the meaning depends on the state, see on_timer in slot.c */
    int n_stop_steps;             /* stop steps taken so far, see stop_next in slot.c */
    int64_t pid;
    char device[UM_ENGINE_DEVICE_MAX]; /* --device of the process */
    int32_t n_sharing;                 /* worker processes on this device */
    double up_since;                   /* 0: not up since the last start */
    int64_t n_unanswered;              /* pings since the last frame of the worker */
    uint64_t n_pings;
    int32_t restarts;
    int32_t restarts_in_a_row; /* restarts between which the worker was never up for a minute */
    bool is_error_final;       /* FAILED or a timeout set `error`; the exit status must not replace it */
    bool is_overdue;           /* the worker has been loading for longer than --start-timeout and can't be killed */
    um_err error;              /* the last failure; code UM_OK: none, or the worker is up again */
    um_msg_loading loading;    /* the progress while the worker is LOADING; bytes_all 0: not known yet */
    um_msg_copy ready, stats;
    double decode_rate; /* see um_worker_status */
    um_prefix_hints *hints;
    int64_t queued_tokens;
    int32_t n_requests;
} um_worker_slot;

typedef struct um_pending_call um_pending_call; /* call.c */
/* A call that workers get when they come up. */
typedef struct um_remembered_call {
    struct um_remembered_call *next;
    char *key, *name, *args;
} um_remembered_call;

struct um_worker_pool {
    struct event_base *base;
    const um_server_config *config;
    um_hub *hub;
    struct event *frame_event; /* fires when the hub has frames */
    struct event *heartbeat_timer;
    double heartbeat_interval; /* seconds between two heartbeats */
    um_arena arena;            /* memory for the frame that is being handled */
    um_worker_slot *slot;
    int32_t n_slots;
    um_submissions open;
    um_submissions cancelled; /* canceled by um_worker_pool_cancel_notify; their worker has not reported the end yet */
    uint64_t last_rid, last_call, hash_key;
    int64_t n_routed;
    um_pending_call *calls;
    um_remembered_call *remembered; /* in the order in which they were made */
    um_totals past_totals;          /* totals of workers that have died */
    um_totals *sums;                /* holds the arrays that um_worker_pool_get_stats returns */
    um_buf down_reason;
    bool ever_up;
    void (*on_change)(void *arg, um_worker_pool *pool);
    void *on_change_arg;
    /* Shutting down has two phases. While draining, the pool takes no new requests. While stopping, the pool tells the
     * workers to end. */
    bool is_draining, is_stopping;
    um_pool_rest rest;
    bool is_sleep_sent;        /* the workers were told to sleep, and have not all answered */
    bool wakes_then;           /* and will be woken when they have */
    struct event *sleep_timer; /* fires when no requests are left */
    struct event *grace_timer;
    void (*on_stopped)(void *arg);
    void *on_stopped_arg;
};

/* ---- pool.c ---- */
/* Fails all submissions of a worker (-1: of all workers). Listeners may submit and cancel meanwhile. */
void um_worker_pool_fail_submissions(um_worker_pool *pool, int32_t worker, int status, const um_err *why);
/* Returns an open or cancelled submission, valid until a table changes; NULL: unknown. */
um_submission *um_worker_pool_find_submission(const um_worker_pool *pool, uint64_t rid);
/* Moves a submission out of its table into *g. Returns false if the number is unknown. */
bool um_worker_pool_take_submission(um_worker_pool *pool, uint64_t rid, um_submission *g);
/* Sends a message to a worker. Returns false if the worker is not connected. */
bool um_worker_pool_send(um_worker_slot *slot, um_msg *msg);

/* ---- assign.c ---- */
/* Sends a generation to the worker that the routing policy prefers, or to the next best when the connection is lost.
 * NULL: no worker can be reached. */
um_worker_slot *um_worker_pool_assign(um_worker_pool *pool, const um_msg_generate *g);
/* Returns the tokens of the prompt, plus the most that the answers may have. */
int64_t um_worker_pool_token_cost(const um_worker_pool *pool, const um_msg_generate *g);

/* ---- events.c ---- */
/* Handles a limited number of frames, so that connections get their turn. The event fires again for the rest. */
void um_worker_pool_receive(um_worker_pool *pool);
/* Handles all frames that have arrived. Called before the pool decides that a worker has failed. */
void um_worker_pool_drain_all(um_worker_pool *pool);
/* Makes an error of the fields of a frame. */
um_err um_worker_pool_error(int32_t status, um_str param, um_str message);

/* ---- slot.c ---- */
um_status um_worker_slot_init(um_worker_slot *slot, um_worker_pool *pool, uint16_t index, um_err *err);
um_status um_worker_slot_start(um_worker_slot *slot, um_err *err);
void um_worker_slot_free(um_worker_slot *slot); /* the instance of the worker must be closed before */
/* Notes that the worker is alive. Called for every frame of the worker. */
void um_worker_slot_on_frame(um_worker_slot *slot);
void um_worker_slot_on_hello(um_worker_slot *slot, const um_msg *msg);
void um_worker_slot_on_loading(um_worker_slot *slot, const um_msg_loading *l);
void um_worker_slot_on_ready(um_worker_slot *slot, um_str frame);
void um_worker_slot_on_failed(um_worker_slot *slot, const um_msg_failed *f);
/* Pings the workers, and fails those that have been silent for too long. */
void um_worker_pool_heartbeat(um_worker_pool *pool);
/* Starts to stop a worker: SHUTDOWN, then SIGTERM, then SIGKILL. */
void um_worker_slot_stop(um_worker_slot *slot);
/* Stops all workers in the same way, and blocks until they have ended. */
void um_worker_pool_stop_now(um_worker_pool *pool);

/* Wakes a worker that sleeps: it loads like a new one. */
void um_worker_slot_wake(um_worker_slot *slot);
/* Notes that a worker has released its memory. */
void um_worker_slot_on_sleep(um_worker_slot *slot);

/* ---- sleep.c ---- */
/* Called when a submission has ended. */
void um_worker_pool_sleep_if_idle(um_worker_pool *pool);
/* Returns whether no generation and no call is open. */
bool um_worker_pool_is_idle(const um_worker_pool *pool);
/* Called when a generation or a call has ended. If it was the last one, a pool that is DROWSY puts its workers to
 * sleep, and a pool that drains stops them. */
void um_worker_pool_on_end(um_worker_pool *pool);
void um_worker_pool_on_sleep_timer(um_worker_pool *pool);

/* ---- call.c ---- */
void um_worker_pool_on_return(um_worker_pool *pool, uint16_t worker, const um_msg_return *r);
/* Fails the calls that wait for a worker. */
void um_worker_pool_fail_calls(um_worker_pool *pool, uint16_t worker, const um_err *why);
/* Sends the remembered calls to a worker that has come up. */
void um_worker_slot_call_remembered(um_worker_slot *slot);
void um_worker_pool_forget_all(um_worker_pool *pool);
void um_worker_pool_fail_all_calls(um_worker_pool *pool, const um_err *why);

/* ---- status.c ---- */
/* Rewrites pool->down_reason. */
void um_worker_pool_update_down_reason(um_worker_pool *pool);
const char *um_worker_state_name(um_worker_state s);

#ifdef __cplusplus
}
#endif
#endif
