/* bench_engine: measures whole steps of an engine on a model with random weights. bench_engine.c has the options and
 * goes through the points, bench_engine_run.c measures one point, bench_engine_report.c prints points and draws them.
 */
#ifndef UM_CLI_BENCH_ENGINE_H
#define UM_CLI_BENCH_ENGINE_H

#include "cli/report.h"
#include "engine/engine.h"

enum { UM_BENCH_CANVAS_PASSES = 4 };

/* The kinds of steps. In a step of a kind, every request has a pass of this kind, except for the first two, which may
 * store the prompts of some of the requests. */
typedef enum um_step_kind {
    UM_STEP_PREFILL, /* stores prompts, or parts of them */
    UM_STEP_REFRESH, /* dual_cache: feeds whole sequences and stores their keys */
    UM_STEP_DENOISE, /* feeds one block of each request */
    UM_STEP_COMMIT,  /* block diffusion: stores a finished block and denoises the next one */
    UM_N_STEP_KINDS
} um_step_kind;
extern const char *const um_step_kind_names[UM_N_STEP_KINDS];

/* The result for the steps of one kind, medians if nothing else is said. */
typedef struct um_step_result um_step_result;
struct um_step_result {
    size_t n;          /* measured steps; 0: there were none, and nothing else is set */
    um_spread seconds; /* from the end of the step before to the end of this one */
    um_spread gap;     /* the part in which the device had no pass; n_gaps values */
    size_t n_gaps;
    double device_seconds; /* time of the pass on the device; 0: the backend does not measure it */
    double clock_rate;     /* cycles per second of the device; 0: unknown */
    um_pass_work size;     /* means */
    um_pass_cost cost;     /* of a pass of this size */
    double limit;          /* the least seconds that the device needs for the cost */
    bool reads;            /* reading memory is the limit, not computing */
};

/* Time of an operation per step. */
typedef struct um_operation_time {
    const char *name;
    double seconds, share; /* share of the step */
} um_operation_time;

/* A point of the measurement: a shape and a number of requests. */
typedef struct um_engine_point {
    const um_released *shape;
    int32_t layers, all_layers, batch, block, context;
    int32_t block_passes; /* denoising passes that a block takes */
    bool canvas;          /* a block is a canvas that ends after block_passes */
    const char *strategy, *sampler, *dtype, *kv_dtype;
    const char *weight_type, *type_name; /* of the matrices; of both types, for people */
    double load_seconds;
    size_t weight_bytes, kv_bytes;
    um_device_limits limits;
    bool limits_of_passes; /* the limits are those of the fastest passes, because the backend measures none */
    um_step_result step[UM_N_STEP_KINDS];
    double burst_seconds, burst_clock_rate; /* of a denoising step after a pause, as those of um_step_result */
    size_t n_burst;
    um_operation_time operation[UM_PROFILE_NAMES]; /* [n_operations] of denoising steps, the longest first */
    int32_t n_operations, n_profiled;              /* n_profiled: steps */
    /* Shares of denoising steps that conditioning on earlier predictions takes: computing the blends of embeddings, and
     * mixing them into the embeddings of canvases. 0 for models without conditioning. */
    double blend_share, condition_share;
} um_engine_point;

typedef struct um_engine_plan {
    um_model *model;
    const um_config *config; /* of the engine, but for what the point determines */
    int32_t passes;          /* denoising steps to measure */
    double warm_up;          /* seconds */
    bool operations;         /* also measure single operations */
} um_engine_plan;

/* ---- bench_engine_run.c ---- */
/* Returns the tokens that the largest step of a point feeds when every request has a pass, or the longest pass of a
 * request if that is more. Reads batch, block and context of p. */
int32_t um_engine_point_tokens(const um_engine_point *p);
/* Returns the longest answer of a request of the point, in tokens. */
int32_t um_engine_point_answer(const um_engine_point *p, int32_t passes);
/* Measures a point, of which shape, sizes and limits are set. Errors: those of the engine; UM_ELIMIT when no step with
 * all requests was seen. */
um_status um_engine_point_measure(um_engine_point *p, const um_engine_plan *plan, um_err *err);

/* ---- bench_engine_report.c ---- */
/* Tokens per second of all requests when a pass over a block writes this many tokens. With `starts`, one step of every
 * block is the one that begins it (commit, or refresh). */
double um_engine_point_tokens_per_second(const um_engine_point *p, double tokens_per_pass, bool starts);
/* What all points have in common, for the report. */
typedef struct um_engine_header {
    um_machine machine;
    um_device_info device;
    um_device_limits limits; /* zeros: the backend measures none */
    const char *commit;
    double tokens_per_pass;
    const um_config *config;
} um_engine_header;
extern const char um_engine_timed[]; /* says what lies inside the timed window */
/* Append the header of the report, the part of a point, and a point as a JSON object with a newline. */
void um_engine_put_header(um_buf *out, const um_engine_header *h);
void um_engine_put_point(um_buf *out, const um_engine_header *h, const um_engine_point *p);
void um_engine_put_json(um_buf *out, const um_engine_header *h, const um_engine_point *p);
/* Appends a chart of the points [n] as SVG: a bar for the denoising step, and its limit. */
void um_engine_put_svg(um_buf *out, const um_engine_header *h, const um_engine_point *p, size_t n);

#endif
