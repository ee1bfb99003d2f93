/* unmask bench engine: measures whole steps of an engine on random weights in the shapes of released models. This file
 * has the options and goes through shapes and batch sizes. */
#include "cli/bench_engine.h"

#if __has_include("commit.h")
#include "commit.h"
#endif
#ifndef UM_COMMIT
#define UM_COMMIT "unknown"
#endif

enum { LIST_MAX = 16, BATCH_MAX = 4096, BLOCK_MAX = 256, CONTEXT_MAX = 1 << 20, PASSES_MAX = 2000 };

typedef struct options {
    const char *shape, *batch, *svg;
    int32_t block, context, layers, passes;
    float warm_up, tokens_per_forward;
    bool operations, json, quiet;
} options;

#define O(field) UM_FIELD(options, field)
static const um_option rows[] = {
    {"shape", NULL, UM_OPT_STR, O(shape), 0, 0, NULL, NULL, NULL, "NAME,NAME", "Measurement",
     "shapes to measure: llada-8b, sdar-8b, sdar-1.7b, sdar-30b, llada2-mini, llada2-flash, dream-7b, llada-moe, "
     "diffusiongemma-26b, wedlm-8b, nemotron-8b, llada2.2-flash"},
    {"batch", NULL, UM_OPT_STR, O(batch), 0, 0, NULL, "1", NULL, "N,N", "Measurement",
     "numbers of requests that run at once; each number is measured"},
    {"block", NULL, UM_OPT_INT, O(block), 2, BLOCK_MAX, NULL, "auto", "auto=0", "N", "Measurement",
     "tokens of the block that a request feeds in a pass; auto means the size that the model was trained with, else "
     "32"},
    {"context", NULL, UM_OPT_INT, O(context), 1, CONTEXT_MAX, NULL, "512", NULL, "N", "Measurement",
     "tokens of each request whose keys and values are stored before the first measured pass; rounded up to a multiple "
     "of the block for block diffusion"},
    {"layers", NULL, UM_OPT_INT, O(layers), 1, UM_LAYERS_MAX, NULL, "all", "all=0", "N", "Measurement",
     "run only the first N layers of the model"},
    {"passes", NULL, UM_OPT_INT, O(passes), 10, PASSES_MAX, NULL, "50", NULL, "N", "Measurement",
     "least number of denoising passes to time"},
    {"warm_up", NULL, UM_OPT_FLOAT, O(warm_up), 0, 600, NULL, "0.5", NULL, "S", "Measurement",
     "seconds of load before the timed passes"},
    {"operations", NULL, UM_OPT_BOOL, O(operations), 0, 0, NULL, "false", NULL, NULL, "Report",
     "also time the single operations of a denoising pass, in passes of their own"},
    {"tokens_per_forward", NULL, UM_OPT_FLOAT, O(tokens_per_forward), 0.1, BLOCK_MAX, NULL, "3", NULL, "N", "Report",
     "tokens that a pass of a request is assumed to write, to convert times to tokens/s"},
    {"json", NULL, UM_OPT_BOOL, O(json), 0, 0, NULL, "false", NULL, NULL, "Report",
     "print a JSON object for each point, one per line"},
    {"svg", NULL, UM_OPT_STR, O(svg), 0, 0, NULL, NULL, NULL, "FILE", "Report",
     "file for a chart of the denoising passes and their limits"},
    {"quiet", "q", UM_OPT_BOOL, O(quiet), 0, 0, NULL, "false", NULL, NULL, "Report",
     "print no progress to standard error"},
};

static const char *const engine_rows[] = {"device",
                                          "dtype",
                                          "quantization",
                                          "deterministic",
                                          "threads",
                                          "pin",
                                          "kv_cache_dtype",
                                          "kv_cache_layout",
                                          "page_size",
                                          "max_num_batched_tokens",
                                          "enforce_eager",
                                          "tensor_parallel_size",
                                          "enable_expert_parallel",
                                          "distributed_timeout_seconds",
                                          "nnodes",
                                          "rank",
                                          "master_addr",
                                          "master_port",
                                          NULL};

typedef struct bench {
    options opt;
    um_config config;
    const um_released *shape[LIST_MAX];
    int32_t batch[LIST_MAX];
    int n_shapes, n_batches;
    um_engine_header header;
    um_device_limits limits;
    bool has_limits;
    um_engine_point *point; /* [n_points] */
    size_t n_points;
    bool lacks_memory; /* for a point */
} bench;

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

static um_status fail_shape(const char *word, um_err *err) {
    um_buf names = {0};
    for (const um_released *r = um_released_all; r->name; r++)
        um_buf_printf(&names, "%s%s", names.len ? ", " : "", r->name);
    um_status s = word
                      ? um_fail(err, UM_EINVAL, "--shape: unknown shape \"%.80s\"; the shapes are %s", word, names.data)
                      : um_fail(err, UM_EINVAL, "--shape is missing; the shapes are %s", names.data);
    um_buf_free(&names);
    return s;
}

static um_status add_shape(void *arg, const char *word, um_err *err) {
    bench *b = (bench *)arg;
    const um_released *r = um_released_find(word);
    if (!r) return fail_shape(word, err);
    if (b->n_shapes == LIST_MAX) return um_fail(err, UM_EINVAL, "--shape: more than %d shapes", LIST_MAX);
    b->shape[b->n_shapes++] = r;
    return UM_OK;
}

static um_status add_batch(void *arg, const char *word, um_err *err) {
    bench *b = (bench *)arg;
    int64_t v = 0;
    if (!um_parse_int(word, &v) || v < 1 || v > BATCH_MAX || b->n_batches == LIST_MAX)
        return um_fail(err, UM_EINVAL, "--batch: expected up to %d numbers 1..%d, separated by commas, found \"%.80s\"",
                       LIST_MAX, BATCH_MAX, b->opt.batch);
    b->batch[b->n_batches++] = (int32_t)v;
    return UM_OK;
}

/* ---- Points ------------------------------------------------------------------------------------------------------ */

/* Returns the strategy that the family uses by default. */
static const char *default_strategy(const um_arch *a) {
    const um_strategy *s = NULL;
    const um_status st = um_strategy_find(&s, a->default_strategy, NULL);
    assert(!st);
    return s->name;
}

/* Fills in what the options and the architecture determine. */
static um_status plan_point(const bench *b, const um_released *shape, int32_t batch, um_engine_point *p, um_err *err) {
    um_arch a;
    um_status s = um_released_arch(&a, shape, 0, err);
    if (!s && b->opt.layers > a.n_layers)
        s = um_fail(err, UM_EINVAL, "--layers: %s has %d layers, found %d", shape->name, a.n_layers, b->opt.layers);
    if (s) return s;
    const bool whole = a.see == UM_SEE_FULL;
    *p = (um_engine_point){.shape = shape,
                           .layers = b->opt.layers ? b->opt.layers : a.n_layers,
                           .all_layers = a.n_layers,
                           .batch = batch,
                           .block = b->opt.block ? b->opt.block
                                    : a.block    ? a.block
                                                 : 32,
                           .context = b->opt.context,
                           .canvas = a.conditioning_ff > 0,
                           .strategy = whole ? "dual_cache" : default_strategy(&a)};
    p->block_passes = p->canvas ? UM_BENCH_CANVAS_PASSES : p->block;
    if (whole && p->block < 3)
        return um_fail(err, UM_EINVAL, "--block: %s needs a block of at least 3, found %d", shape->name, p->block);
    if (!whole) p->context = UM_CEIL_DIV(p->context, p->block) * p->block;
    const int32_t most = UM_MIN(a.max_position, UM_POSITIONS_MAX) - um_engine_point_answer(p, b->opt.passes);
    if (p->context > most)
        return um_fail(err, UM_EINVAL,
                       "--context: %s has %d positions and the answers take %d, so at most %d fit, found %d",
                       shape->name, a.max_position, um_engine_point_answer(p, b->opt.passes), most, p->context);
    return UM_OK;
}

/* Plans all points, so that a mistake in the options is reported before the first measurement. */
static um_status plan_points(bench *b, um_err *err) {
    um_status s = UM_OK;
    b->point = UM_NEW_ARRAY(um_engine_point, (size_t)b->n_shapes * (size_t)b->n_batches);
    for (int i = 0; i < b->n_shapes && !s; i++)
        for (int k = 0; k < b->n_batches && !s; k++)
            s = plan_point(b, b->shape[i], b->batch[k], &b->point[b->n_points++], err);
    return s;
}

static void print_point(const bench *b, const um_engine_point *p) {
    um_buf out = {0};
    if (b->opt.json) um_engine_put_json(&out, &b->header, p);
    else um_engine_put_point(&out, &b->header, p);
    um_cli_write(&out);
    um_cli_flush();
    um_buf_free(&out);
}

/* Stores what the device is and can do. The report begins with it. */
static um_status read_device(bench *b, const um_model *m, um_err *err) {
    const um_backend *backend = m->backend;
    um_buf out = {0};
    um_status s = UM_OK;
    if (b->has_limits) return UM_OK;
    b->has_limits = true;
    backend->info(m->device, &b->header.device);
    if (backend->limits) s = backend->limits(m->device, &b->limits, err);
    b->header.limits = b->limits;
    if (!s && !b->opt.json) um_engine_put_header(&out, &b->header);
    um_cli_write(&out);
    um_buf_free(&out);
    return s;
}

static um_status measure_batch(bench *b, um_model *m, um_engine_point *p, um_err *err) {
    const um_engine_plan plan = {.model = m,
                                 .config = &b->config,
                                 .passes = b->opt.passes,
                                 .warm_up = (double)b->opt.warm_up,
                                 .operations = b->opt.operations};
    p->load_seconds = m->load_seconds;
    p->limits = b->limits;
    if (!b->opt.quiet) fprintf(stderr, "%s: measuring %d requests\n", p->shape->name, p->batch);
    um_status s = um_engine_point_measure(p, &plan, err);
    if (!s) print_point(b, p);
    return s;
}

/* Reports a point that lacks memory. The run fails at its end. */
static um_status pass_over(bench *b, const um_engine_point *p, const um_err *err) {
    fprintf(stderr, "unmask bench engine: %s, batch %d: %s\n", p->shape->name, p->batch, err->msg);
    b->lacks_memory = true;
    return UM_OK;
}

/* Stores the tokens that a step may feed: those of the options, or enough for the points [n_batches]. */
static um_status set_step(const bench *b, const um_engine_point *p, int32_t *tokens, um_err *err) {
    const int32_t given = b->config.max_num_batched_tokens;
    *tokens = given ? given : UM_BATCHED_TOKENS_AUTO;
    for (int i = 0; i < b->n_batches; i++) {
        const int32_t needed = um_engine_point_tokens(&p[i]);
        if (given && given < needed)
            return um_fail(err, UM_EINVAL, "--max-num-batched-tokens: %s with %d requests feeds %d in a step, found %d",
                           p[i].shape->name, p[i].batch, needed, given);
        *tokens = UM_MAX(*tokens, needed);
    }
    return UM_OK;
}

/* Measures the points [n_batches] of one shape. A point that needs too much memory is reported, and the rest goes on.
 */
static um_status measure_shape(bench *b, um_engine_point *p, um_err *err) {
    um_config c = b->config;
    um_model *m = NULL;
    um_loading loading;
    char bytes[UM_BYTES_TEXT];
    um_status s = set_step(b, p, &c.max_num_batched_tokens, err);
    um_loading_begin(&loading, &c, b->opt.quiet);
    if (!s) s = um_model_open_random(&m, &c, p->shape, p->layers, err);
    um_loading_end(&loading);
    if (!s && !b->opt.quiet)
        fprintf(stderr, "%s: %s of random weights in %.1f s\n", p->shape->name,
                um_bytes_text(bytes, (double)m->weight_bytes), m->load_seconds);
    if (!s) b->config.tensor_parallel_size = UM_MAX(m->n_ranks, 1); /* for the report */
    if (!s && m->place.rank > 0) {                                  /* rank 0 measures */
        s = um_model_follow(m, err);
        um_model_close(m);
        return s;
    }
    if (!s) s = read_device(b, m, err);
    for (int i = 0; i < b->n_batches && !s; i++) {
        s = measure_batch(b, m, &p[i], err);
        if (s == UM_ENOMEM) s = pass_over(b, &p[i], err);
    }
    if (s == UM_ENOMEM && !m) s = pass_over(b, p, err);
    um_model_close(m);
    return s;
}

static um_status write_svg(const bench *b, um_err *err) {
    um_buf out = {0};
    if (!b->opt.svg) return UM_OK;
    um_engine_put_svg(&out, &b->header, b->point, b->n_points);
    um_status s = um_file_replace(b->opt.svg, (um_str){out.data, out.len}, err);
    um_buf_free(&out);
    return s;
}

/* ---- The command ------------------------------------------------------------------------------------------------- */

static int run_bench(const um_command *self, bench *b, const um_args *words) {
    um_err err = {0};
    um_cli_catch_signals();
    um_cli_end_at_signal(true);
    um_status s = um_cli_no_words(words, "the shapes are given by --shape", &err);
    if (!s && !b->opt.shape) s = fail_shape(NULL, &err);
    if (!s) s = um_cli_check_output("--svg", b->opt.svg, &err);
    if (!s) s = um_cli_each_word(b->opt.shape, add_shape, b, &err);
    if (!s) s = um_cli_each_word(b->opt.batch, add_batch, b, &err);
    if (!s) s = plan_points(b, &err);
    um_machine_get(&b->header.machine);
    b->header.commit = UM_COMMIT;
    b->header.config = &b->config;
    b->header.tokens_per_pass = (double)b->opt.tokens_per_forward;
    for (int i = 0; i < b->n_shapes && !s; i++) s = measure_shape(b, &b->point[i * b->n_batches], &err);
    if (!s) s = write_svg(b, &err);
    if (s) return um_cli_error(self, &err);
    return b->lacks_memory ? UM_EXIT_DEVICE : UM_EXIT_OK;
}

static int run(const um_command *self, int argc, char **argv) {
    bench b = {0};
    um_args args;
    um_args_parse(&args, self, argc, argv, &b.opt, &b.config);
    const int code = args.done ? args.exit : run_bench(self, &b, &args);
    um_free(b.point);
    um_args_free(&args);
    return code;
}

const um_command um_cmd_bench_engine = {
    .name = "bench engine",
    .summary = "measure the engine with random weights in a released shape",
    .usage = "unmask bench engine --shape NAME,NAME [--batch 1,8,32] [options]",
    .description =
        "Makes a model with random weights in the shape of a released one, without a checkpoint, and times whole steps "
        "of the engine: plan, forward pass, sampling, apply, and the gap until the next pass. The time of a step runs "
        "from the end of the step before to its own end. Prompts are random tokens; adding requests, loading and the "
        "warm-up are not timed. A step is compared with a limit: the bytes that it must read, or the operations that "
        "it must do, at the rates that the same run measures on the device. docs/bench-engine.md explains the report.",
    .examples = "unmask bench engine --shape sdar-1.7b --layers 1 --context 32 --passes 10\n",
    .options = rows,
    .n_options = UM_LEN(rows),
    .engine_rows = engine_rows,
    .run = run,
};
