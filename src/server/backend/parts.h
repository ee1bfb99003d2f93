/* backend_parts: what the files of the backend share; nobody else includes it.
 *
 *   backend.c      submitting and cancelling; creation and shutting down
 *   generations.c  what is open: the table of submissions that have not ended
 *   route.c        whom a request goes to; recent.c guesses who holds the beginning of its prompt
 *   events.c       frames that come from workers
 *   life.c         a worker's states: starting, heartbeat, death, another start, the end
 *   vessel.c       the thread or process that a worker lives in
 *   call.c         utilities called by name
 *   view.c         what is known of workers; sums of their numbers */
#ifndef UM_BACKEND_PARTS_H
#define UM_BACKEND_PARTS_H

#include <event2/event.h>

#include "server/backend/backend.h"
#include "server/backend/generations.h"
#include "server/backend/recent.h"
#include "server/backend/vessel.h"
#include "server/link/link.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_STATS_SECONDS 1.0 /* between two reports of a worker that works */

/* A message that outlives its frame. */
typedef struct um_kept {
    um_buf frame;
    um_arena arena;
    um_msg msg; /* type 0: none */
} um_kept;
void um_kept_set(um_kept *k, um_str frame); /* a frame that was read before */
void um_kept_forget(um_kept *k);
void um_kept_free(um_kept *k);

/* Counters and histograms of several workers, or of one that is gone. */
typedef struct um_totals {
    um_msg_stats sum;
    int64_t prefill_step[UM_STATS_BUCKETS], decode_step[UM_STATS_BUCKETS], step_tokens[UM_STATS_BUCKETS];
} um_totals;
void um_totals_add_counts(um_totals *t, const um_msg_stats *s);  /* what only grows */
void um_totals_add_amounts(um_totals *t, const um_msg_stats *s); /* what comes and goes */

typedef struct um_member {
    um_backend *backend;
    uint16_t index, incarnation; /* of a remote worker 0: it was never there */
    um_worker_state state;
    um_vessel *vessel;   /* NULL: none lives, or it is a remote one */
    struct event *ended; /* the vessel's end */
    struct event *timer; /* what the state waits for: see on_timer in life.c */
    int n_steps;         /* taken so far to end it, see press in life.c */
    int64_t pid;
    double up_since; /* 0: it has not been since it was started */
    double asked;    /* when the oldest ping was sent that nothing came after; 0: something came */
    uint64_t n_pings;
    int32_t restarts, in_a_row; /* starts behind the first one; those without a minute of health between them */
    bool has_spoken;            /* FAILED came, or we know better ourselves what happened */
    bool is_late;               /* it loads for longer than it may, and can't be killed */
    um_err words;               /* what it died of last; code UM_OK: it is up, or was never dead */
    um_kept ready, stats;
    double decode_rate; /* see the view */
    um_recent *recent;
    int64_t queued_tokens;
    int32_t n_requests;
} um_member;

typedef struct um_pending_call um_pending_call; /* call.c */

struct um_backend {
    struct event_base *base;
    const um_server_config *config;
    um_hub *hub;
    struct event *frames; /* the hub has something */
    struct event *heartbeat;
    um_arena arena; /* of the frame that is being read */
    um_member *member;
    int32_t n_members;
    um_generations open;
    um_generations dismissed; /* nobody waits for these; their workers have not said yet how they ended */
    uint64_t last_rid, last_call, hash_key;
    int64_t n_routed;
    um_pending_call *calls;
    um_totals past;  /* of workers that are gone */
    um_totals *sums; /* what um_backend_stats lends */
    um_buf trouble;
    bool ever_up;
    void (*changed)(void *arg, um_backend *b);
    void *changed_arg;
    /* Shutting down: first no new requests, then the workers end. */
    bool stopping, ending;
    struct event *grace;
    void (*stopped)(void *arg);
    void *stopped_arg;
};

/* ---- backend.c ---- */
/* Ends everything that a worker (-1: all) has with a failure; listeners may do what they like meanwhile. */
void um_backend_fail_open(um_backend *b, int32_t worker, int status, const um_err *why);
/* One that is open or dismissed; lent until a table is changed; NULL: unknown. */
um_generation *um_backend_find(const um_backend *b, uint64_t rid);
/* Takes it out, into *g; false: unknown. */
bool um_backend_take(um_backend *b, uint64_t rid, um_generation *g);
/* Sends a message to a worker; false: it is not connected. */
bool um_backend_send(um_member *m, um_msg *msg);

/* ---- route.c ---- */
/* Sends a generation to the best worker; NULL: none can be reached. */
um_member *um_backend_post(um_backend *b, const um_msg_generate *g);
int64_t um_backend_tokens(const um_backend *b, const um_msg_generate *g); /* of prompt and answers, at most */

/* ---- events.c ---- */
void um_backend_drain(um_backend *b); /* what came; the loop comes again when there is more */
/* What a frame says went wrong. */
um_err um_backend_error(int32_t status, um_str param, um_str message);

/* ---- life.c ---- */
um_status um_member_init(um_member *m, um_backend *b, uint16_t index, um_err *err);
um_status um_member_start(um_member *m, um_err *err);
void um_member_free(um_member *m); /* its vessel must be gone */
/* What its frames tell. */
void um_member_heard(um_member *m);
void um_member_said_hello(um_member *m, const um_msg *msg);
void um_member_said_ready(um_member *m, um_str frame);
void um_member_said_failed(um_member *m, const um_msg_failed *f);
void um_backend_beat(um_backend *b); /* pings, and looks who is silent */
/* Begins to end it: SHUTDOWN, SIGTERM, SIGKILL. */
void um_member_end(um_member *m);
void um_backend_end_now(um_backend *b); /* the same for all, and waits until they are gone */

/* ---- call.c ---- */
void um_backend_returned(um_backend *b, uint16_t worker, const um_msg_return *r);
void um_backend_fail_calls(um_backend *b, uint16_t worker, const um_err *why); /* those that wait for it */
void um_backend_end_calls(um_backend *b, const um_err *why);                   /* all */

/* ---- view.c ---- */
void um_backend_describe(um_backend *b); /* writes b->trouble anew */
const char *um_worker_state_name(um_worker_state s);

#ifdef __cplusplus
}
#endif
#endif
