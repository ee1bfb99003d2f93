/* engine: runs requests and reports their events. An engine owns the queue of requests, the KV pages and the flat
 * batch. A step has three parts:
 *
 *   plan     schedule.c picks the answers that run; their strategies describe segments and rows; batch.c flattens them
 *   forward  the backend (ops/backend.h) computes the predictions of the rows
 *   apply    the strategies write tokens; output.c turns settled tokens into text and events
 *
 * A step allocates nothing: its memory is allocated when the engine is created and when a request is added. One thread
 * at a time owns an engine. A router (router.c) runs plan and forward of its engines on threads of its pool. */
#ifndef UM_ENGINE_H
#define UM_ENGINE_H

#include "base/base.h"
#include "decode/decode.h"
#include "decode/sampler_batch.h"
#include "engine/options.h"
#include "engine/queue.h"
#include "engine/replica.h"
#include "kv/kv.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One answer of a request: its decoding state, its queue state and its output. */
typedef struct um_sequence {
    um_req req;
    int64_t id;        /* number of the request, the same for all its answers */
    um_need bound;     /* upper bounds of the needs of all passes */
    um_table near;     /* page table of layers with a window, which gives back what is behind the window */
    um_table table[2]; /* page tables; the second one is used under guidance */
    int32_t slot;      /* index in um_engine.running; -1 while the answer waits */
    /* Rank of a running answer: those with a lower priority number go first, then those with fewer running answers of
     * their tenant before them (layer), then those that arrived first. */
    int32_t priority, layer;
    int64_t arrival;
    uint64_t tenant;
    bool leads;    /* none of its request's answers ran when it was admitted */
    int32_t lacks; /* what it lacked when it was last passed over, see schedule.c */
    int32_t skips; /* number of times in a row that the scheduler has passed over the answer */
    int32_t preemptions, cached_tokens;
    int32_t looked_up; /* leading tokens that were looked up in the prefix index */
    uint64_t cache_salt;
    int32_t index, n_answers;                    /* number of this answer, and of all answers of the request */
    um_group *group;                             /* the answers of the same request; NULL before it is queued */
    int32_t n_planned_rows, first_row, n_tokens; /* rows and tokens of the current pass */

    /* State in the current step. considered: the scheduler has decided about the answer. in_pass: the answer has a
     * pass. prefill and partial describe that pass. aborted: the callback has aborted the answer, and the step will end
     * it. */
    bool considered, in_pass, prefill, partial, aborted;

    um_event_fn on_event;
    void *arg; /* of on_event or on_score */
    unsigned events;
    bool is_score; /* the answer is given: its likelihood is computed, and there is no text */
    um_score_fn on_score;

    /* Settled text. A later token may complete the text of an earlier one, so the end of the text is kept per token. */
    um_stream stream;
    um_buf text;
    int32_t *text_end;     /* [max answer] length of `text` up to and including each token of the answer */
    um_logprob *likeliest; /* [max answer, n_top] likeliest ids at the sent tokens; NULL when logprobs is off */
    int32_t n_text;        /* tokens of the answer whose text the stream has returned */
    size_t sent;           /* bytes of `text` that have been sent to the callback */
    int32_t n_sent;        /* tokens that have been sent */
    char **stop;           /* [n_stop] stop strings */
    size_t n_stop, stop_longest;
    const char *stop_found; /* stop string that ended the answer */
    int32_t *stop_ids;
    uint32_t *allow;                     /* bitmap of the allowed ids, or NULL */
    um_ids bad, bad_end, banned;         /* see um_req; banned: words of one id */
    struct um_shared_language *language; /* of the constraint, or NULL */
    uint8_t *state;                      /* [cap] states for snapshots; NULL when the request wants no snapshots */

    double added, started, first_token; /* times by um_now, 0 when not reached */
    double decode_seconds;              /* duration of the finished steps that denoised the answer */
    int32_t decode_tokens;              /* tokens that were written in those steps and in the current one */
    bool denoised;                      /* the current step denoised the answer */
    bool holds_adapter;                 /* um_model_hold_adapter has counted the answer */
    struct um_sequence *next;           /* next waiting answer of the request */
    struct um_sequence *before, *after; /* in the list of all waiting answers */
} um_sequence;

/* Times of an engine's last step, in seconds. All are zero when the step planned nothing. */
typedef struct um_step_times {
    double schedule, forward, apply;
    double all;             /* the whole step; under a router it includes waiting for the other engines */
    bool prefills, decodes; /* whether the step stored a part of a prompt, and whether it denoised an answer */
} um_step_times;

struct um_engine {
    um_model *model;
    um_config config; /* configuration with automatic values resolved */
    um_traits traits;
    um_compat compat;
    int32_t max_len; /* tokens of prompt and answer together */
    um_forward *forward;
    um_pages pages;
    um_pages near;          /* pages of layers with a window; none when the model has no such layers */
    size_t token_bytes_max; /* largest text of a token, in bytes */
    const char *sampler;    /* the sampler of a request that uses the defaults */
    bool whole;             /* such a request feeds whole sequences */

    um_queue queue;        /* answers that wait */
    um_sequence *starved;  /* the one that is considered first in the next step, or NULL */
    um_sequence **running; /* [n_places]; the first n_running are used, by rank */
    int32_t n_running, n_passes;
    int32_t n_places;                  /* max_num_reqs and the guest places */
    int64_t queued;                    /* sum over unfinished answers: tokens of the prompt plus the longest answer */
    int32_t *free_saved, n_free_saved; /* saved rows that no running answer owns */
    int32_t n_refreshes;               /* passes over a whole sequence in the current step */
    int32_t n_chunk_tokens;            /* tokens of the passes in the current step that can be cut into chunks */
    bool denoises;                     /* chunks of the current step are limited, because answers denoise beside them */
    int64_t next_id, next_arrival;
    bool stepping;     /* between plan and the end of apply */
    um_err failed;     /* the device error that made the engine fail; code UM_OK while it works */
    um_err pass_error; /* the error of the current step's forward pass */

    /* The flat batch. T = max_num_batched_tokens. */
    um_pass space;                        /* the arrays that the passes of a step share, with the used lengths */
    um_pass capacity;                     /* the lengths of these arrays */
    int32_t *slot, *near_slot, *seen_end; /* [T] */
    um_span *span;                        /* [capacity.n_seg] */
    int32_t (*save)[2];                   /* [capacity.n_seg] */
    um_answer *answer;                    /* [T] */
    um_sampler_space *registered;         /* batches of registered samplers; NULL: there are no such samplers */
    um_trace_space trace;
    um_block_view view[UM_BUFFER_MAX]; /* blocks of a snapshot */
    double step_start, step_span;      /* when the current step began; its span in the profile */
    int32_t step_tokens;               /* tokens that the current step feeds */
    um_step_times times;
    um_stats stats;
    um_profile profile;
};

/* How the memory of a device is divided, in bytes. */
typedef struct um_memory_plan {
    bool is_host;   /* the memory is the host's: only weights, free, available, page and the numbers of pages are set */
    double memory;  /* of the device */
    double most;    /* share of it that may be used */
    double free;    /* free before the weights are loaded; of a host's memory, now */
    double there;   /* free now */
    double weights; /* of the model; before they are loaded, computed from the sizes */
    double workspace;                                       /* activations of one engine */
    double near;                                            /* of all pages of layers with a window */
    double page, available;                                 /* of one KV page; that the pages of one engine may take */
    int32_t page_size, tokens_of_request, pages_of_request; /* tokens of a page; request of full length */
    int32_t pages;                                          /* of one engine */
} um_memory_plan;

/* ---- memory.c ---- */
/* Divides the memory of the engine's devices. Resolves an automatic number of pages. Errors: UM_ENOMEM when no page
 * fits, or a fixed number does not; *p is set then, too. */
um_status um_engine_plan_pages(const um_engine *e, um_memory_plan *p, um_err *err);
/* Stores the number of pages of um_engine_plan_pages in the engine's configuration. */
um_status um_engine_resolve_pages(um_engine *e, um_err *err);

/* Returns the number of pages of layers with a window, for an engine whose other sizes are known. */
int32_t um_engine_near_pages(const um_engine *e);

/* ---- engine.c: sizes ---- */
/* Returns the tokens of a block by default. */
int32_t um_engine_block(const um_engine *e);
/* Returns the type of stored keys and values. */
um_dtype um_engine_kv_type(const um_engine *e);
/* Returns the sizes of the engine's passes and of its KV cache. */
um_forward_config um_engine_forward_config(const um_engine *e);
/* Divides the memory for an engine of an open model, without creating it. The model may lack its weights, see
 * um_model_open_device. */
um_status um_engine_plan_memory(um_model *m, const um_config *c, um_memory_plan *out, um_err *err);

/* ---- sequence.c: creates, checks and frees the answers of a request ---- */
/* Creates answer number `index` of a request: checks the request, encodes its prompt and allocates what its passes
 * need. The answer is not queued yet. *out is released with um_sequence_free. The errors are those of um_engine_add. */
um_status um_sequence_new(um_sequence **out, um_engine *e, const um_request *r, int32_t index, um_err *err);
/* Does the checks of um_sequence_new for a prompt of n_prompt tokens. It does not read the tokens and does not check
 * single values. Of the engine it reads only the model, the configuration, max_len, traits, compat, capacity and the
 * sizes of the pages. */
um_status um_sequence_check(um_engine *e, const um_request *r, size_t n_prompt, um_err *err);
/* Copies allowed_ids and bad_words of the request to the answer, and finds the language of its constraint
 * (constraints.c). */
um_status um_sequence_constrain(um_sequence *j, const um_engine *e, const um_request *r, um_err *err);
/* Checks that the shortest text of the language fits into the answer, whose strategy has been initialised. */
um_status um_sequence_check_language(const um_sequence *j, um_err *err);
/* Builds the edits, and the sets of the language. Fails if allowed_ids, bad_words and bans leave no token. */
um_status um_sequence_new_edits(um_sequence *j, const um_engine *e, const um_request *r, um_err *err);
void um_sequence_free_constraints(um_sequence *j, um_engine *e);
/* Checks the size of the caller's struct and the number of answers. */
um_status um_request_check(const um_request *r, um_err *err);
/* ---- score.c ---- */
/* Creates the answer of a score, as um_sequence_new does. The errors are those of um_engine_score. */
um_status um_sequence_new_score(um_sequence **out, um_engine *e, const um_score_request *s, um_err *err);
/* Calls the callback of a score. */
void um_output_score(const um_sequence *j, double now);
/* ---- sequence.c: parts that score.c shares ---- */
/* Creates an answer with the fields of the request that need no checks. */
um_sequence *um_sequence_begin(const um_engine *e, const um_request *r, int32_t index);
/* Encodes the prompt and checks that an answer has room behind it. */
um_status um_sequence_encode_prompt(const um_engine *e, const um_request *r, um_ids *ids, um_err *err);
/* Checks that the id number i of a list is a token; `what` names the list. */
um_status um_sequence_check_id(const um_engine *e, const char *what, size_t i, int32_t id, um_err *err);
/* Refuses a request that can't run even when it is the only one. */
um_status um_sequence_check_need(const um_engine *e, const um_sequence *j, um_err *err);
/* Allocates the page tables. */
void um_sequence_allocate_tables(um_sequence *j, const um_engine *e);

/* Checks that the shortest possible request with the engine's defaults can run. um_engine_new thereby refuses defaults
 * that contradict each other or the model. Stores the sampler of such a request, and whether it feeds whole
 * sequences. */
um_status um_sequence_check_defaults(um_engine *e, um_err *err);
/* Frees the answer and releases its pages. NULL is allowed. */
void um_sequence_free(um_sequence *j, um_engine *e);

/* ---- engine.c: the two halves of um_engine_add; a router chooses the engine between them ---- */
/* Creates the answers of a request, linked by `next`. They can run in every engine of the same model and configuration.
 * The errors are those of um_engine_add. */
um_status um_engine_prepare(um_engine *e, const um_request *r, um_sequence **out, um_err *err);
/* Checks a request as um_engine_add does, without queueing it. */
um_status um_engine_check_request(um_engine *e, const um_request *r, um_err *err);
/* The same for a score. */
um_status um_engine_prepare_score(um_engine *e, const um_score_request *s, um_sequence **out, um_err *err);
/* Queues the answers that um_engine_prepare or um_engine_prepare_score created, under the request number `id`. */
void um_engine_queue(um_engine *e, um_sequence *j, int64_t id);
/* Marks the engine as failed with the device error `why`, which um_engine_step and um_engine_add return from now on.
 * Ends all requests: each answer gets its FINISH event with UM_FINISH_ABORTED. Does nothing when the engine has failed
 * before. */
void um_engine_fail(um_engine *e, const um_err *why);
/* Returns UM_OK while the engine works, else the error that it failed with. */
um_status um_engine_check_works(const um_engine *e, um_err *err);
/* Writes how many CUDA graphs were recorded at the start, and what they took, as one line without its end. Returns
 * false when there are none. Must be called between steps. */
enum { UM_GRAPHS_TEXT_MAX = 96 };
bool um_engine_put_graphs(const um_engine *e, char out[UM_GRAPHS_TEXT_MAX]);
/* ---- engine.c: the two halves of um_engine_step; a router waits for its other engines between them ---- */
/* Returns UM_EINVAL when the engine is in the middle of a step. */
um_status um_engine_check_step(const um_engine *e, um_err *err);
/* Plans a step and runs its forward pass. Calls no callback. Several engines of a model may do this at the same time,
 * each on its own thread. */
void um_engine_compute(um_engine *e);
/* Applies the predictions of the pass and calls callbacks. When the pass failed, ends all requests (um_engine_fail).
 * Does nothing when nothing was planned. */
void um_engine_apply(um_engine *e);

/* Returns UM_EINVAL when a request runs or waits. */
um_status um_engine_check_idle(const um_engine *e, um_err *err);
/* Appends the running or the waiting answers to out [most]. *n is the number of answers so far and grows by those of
 * the engine, also by those for which `out` has no room. */
void um_engine_put_slots(const um_engine *e, bool running, um_slot *out, size_t most, size_t *n);
/* Returns the description of the engine that um_replica_choose reads, for the prepared answer j. */
um_replica um_engine_as_replica(const um_engine *e, const um_sequence *j);

/* ---- schedule.c ---- */
/* Plans the passes of this step into e->space; admits and preempts answers. Returns the number of segments. */
int32_t um_schedule_plan(um_engine *e);
/* Adds an answer to the queue. `group`: that of an earlier answer of the same request; NULL for the first one. */
void um_schedule_add(um_engine *e, um_sequence *j, um_group *group);
/* Removes an answer from the queue or from the running answers. It keeps its pages until um_sequence_free. */
void um_schedule_leave(um_engine *e, um_sequence *j);
/* Takes the pages of a running answer that has no pass in this step, and puts the answer back into the queue. */
void um_schedule_preempt(um_engine *e, um_sequence *j);
/* Returns the namespace of the prefix index in which the answer may share its stored pages; 0: it may not share them.
 * *most is the number of leading positions whose keys it may take from others. */
uint64_t um_schedule_namespace(const um_engine *e, const um_sequence *j, int32_t *most);

/* ---- batch.c ---- */
/* Fills in the flat batch from the planned passes: slots, visibility and indices that count over the whole batch. */
void um_batch_build(um_engine *e, um_batch *b);

/* ---- output.c ---- */
/* Sends the TRACE, TEXT and SNAPSHOT events of an answer after apply, in this order. An aborted answer gets none. */
void um_output_pass(um_engine *e, um_sequence *j);
/* Sends the FINISH event and counts the answer in the statistics. */
void um_output_finish(um_engine *e, um_sequence *j);

/* ---- options.c: the options of an engine, in addition to those of its model ---- */
extern const um_option um_engine_options[];
extern const size_t um_n_engine_options;
/* Checks that um_config_init has initialised the caller's struct and that all its values are in range. */
um_status um_engine_check(const um_config *c, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
