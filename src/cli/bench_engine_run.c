/* Measures the steps of an engine on random prompts.
 *
 * A round adds all requests, lets the engine store their prompts, and then runs steps in which every request has a
 * pass. Requests of a round do the same: prompts of equal length are all stored before the first block is denoised, and
 * random weights are so unsure that a pass writes one token. So all requests begin a block in the same step. A round
 * ends before a request does, and before the prompts are much longer than at its start. Rounds follow until enough
 * steps are measured. */
#include <stdlib.h>
#include <time.h>

#include "cli/bench_engine.h"

enum { ROUNDS_MIN = 3, ROUNDS_MAX = 1000, STEPS_MAX = 4096, BURST_STEPS = 10, PROFILE_STEPS = 10 };
#define PAUSE_SECONDS 0.5

const char *const um_step_kind_names[UM_N_STEP_KINDS] = {"prefill", "refresh", "denoise", "commit"};

typedef struct step {
    double seconds, gap, device_seconds, clock_rate;
    bool has_gap;
    um_pass_work size;
} step;

typedef struct steps {
    step *step; /* [STEPS_MAX] */
    size_t n;
} steps;

typedef struct run {
    um_engine_point *p;
    const um_engine_plan *plan;
    um_engine *e;
    int32_t *prompt; /* [batch, context] */
    int64_t *id;     /* [batch] */
    int32_t round_steps, max_tokens;
    double last_end; /* end of the step before; 0: none in this round */
    bool keeps;      /* steps are measured */
    steps seen[UM_N_STEP_KINDS], burst;
    um_profile_sum sum[UM_PROFILE_NAMES]; /* times of operations in profiled steps */
    int32_t n_sums;
} run;

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

static void make_prompts(run *r) {
    const um_engine_point *p = r->p;
    const um_arch *a = &r->plan->model->arch;
    const size_t n = (size_t)p->batch * (size_t)p->context;
    const uint64_t key = um_rng_key(1, 0, 0, 0);
    r->prompt = UM_NEW_ARRAY(int32_t, n);
    r->id = UM_NEW_ARRAY(int64_t, (size_t)p->batch);
    for (size_t i = 0; i < n; i++) r->prompt[i] = (int32_t)(um_rng_u64(key, i) % (uint64_t)a->vocab);
}

static um_status add_requests(run *r, um_err *err) {
    const um_engine_point *p = r->p;
    um_status s = UM_OK;
    for (int32_t i = 0; i < p->batch && !s; i++) {
        um_request q;
        um_request_init(r->e, &q);
        q.ids = r->prompt + (size_t)i * (size_t)p->context;
        q.n_ids = (size_t)p->context;
        q.sampling.max_tokens = r->max_tokens;
        q.sampling.ignore_eos = true;
        s = um_engine_add(r->e, &q, &r->id[i], err);
    }
    r->last_end = 0;
    return s;
}

static void end_requests(run *r) {
    for (int32_t i = 0; i < r->p->batch; i++) (void)um_engine_abort(r->e, r->id[i], NULL); /* it may have ended */
}

/* ---- One step ---------------------------------------------------------------------------------------------------- */

/* Returns whether all segments of the step feed at least n tokens and less than `end`. */
static bool all_feed(const um_engine *e, int32_t n, int32_t end) {
    for (int32_t i = 0; i < e->space.n_seg; i++)
        if (e->space.seg[i].n < n || e->space.seg[i].n >= end) return false;
    return true;
}

static bool all_are(const um_engine *e, um_pass_kind kind) {
    for (int32_t i = 0; i < e->space.n_seg; i++)
        if (e->space.seg[i].kind != kind) return false;
    return true;
}

/* Returns the kind of the engine's last step, or UM_N_STEP_KINDS when its passes are of several kinds. */
static um_step_kind kind_of(const run *r) {
    const um_engine *e = r->e;
    const int32_t block = r->p->block, whole = r->p->context + block;
    const bool one_each = e->space.n_seg == r->p->batch;
    if (all_are(e, UM_PASS_PREFILL)) return UM_STEP_PREFILL;
    if (um_strategy_is_whole(r->p->strategy) && all_feed(e, whole, whole + 1)) return UM_STEP_REFRESH;
    if (one_each && all_are(e, UM_PASS_DENOISE) && all_feed(e, block, 2 * block)) return UM_STEP_DENOISE;
    if (one_each && all_are(e, UM_PASS_COMMIT)) return UM_STEP_COMMIT;
    return e->space.n_tokens == 2 * block * r->p->batch ? UM_STEP_COMMIT : UM_N_STEP_KINDS;
}

static um_pass_work size_of(const um_engine *e) {
    const um_pass *s = &e->space;
    um_pass_work size = {.tokens = s->n_tokens, .rows = s->n_rows};
    for (int32_t i = 0; i < s->n_seg; i++) size.keys += s->seg[i].keys.end - s->seg[i].keys.start;
    for (int32_t i = 0; i < s->n_tokens; i++) size.seen += e->seen_end[i];
    return size;
}

/* Runs a step. *kind is UM_N_STEP_KINDS when the step is of no single kind or when it ended a request. */
static um_status run_step(run *r, step *out, um_step_kind *kind, um_err *err) {
    um_engine *e = r->e;
    const um_backend *backend = e->model->backend;
    const double now = um_now(), start = r->last_end > 0 ? r->last_end : now;
    um_status s = um_engine_step(e, err);
    const double end = um_now();
    if (s) return s;
    *out = (step){.seconds = end - start, .has_gap = r->last_end > 0, .size = size_of(e)};
    out->gap = out->seconds - e->times.forward;
    if (backend->stats) {
        const um_forward_stats t = backend->stats(e->forward);
        out->gap = t.gap_seconds;
        out->device_seconds = t.pass_seconds;
        out->clock_rate = t.clock_rate;
    }
    *kind = um_engine_pending(e) < (size_t)r->p->batch ? UM_N_STEP_KINDS : kind_of(r);
    r->last_end = end;
    return UM_OK;
}

static void keep(steps *list, const step *s) {
    if (list->n < STEPS_MAX) list->step[list->n++] = *s;
}

static bool stores_prompts(um_step_kind kind) { return kind == UM_STEP_PREFILL || kind == UM_STEP_REFRESH; }

/* Runs steps until all prompts are stored. */
static um_status store_prompts(run *r, um_err *err) {
    um_step_kind kind = UM_STEP_PREFILL;
    step now;
    um_status s = add_requests(r, err);
    while (!s) {
        bool all = r->e->queue.n_waiting == 0 && r->e->n_running == r->p->batch;
        for (int32_t i = 0; i < r->e->n_running && all; i++) {
            const um_req *q = &r->e->running[i]->req;
            all = q->nfe > 0 || q->stored >= q->n_prompt;
        }
        if (all) break;
        s = run_step(r, &now, &kind, err);
        if (!s && !stores_prompts(kind)) return um_fail(err, UM_ELIMIT, "a step stored prompts and denoised as well");
        if (!s && r->keeps) keep(&r->seen[kind], &now);
    }
    return s;
}

/* ---- Rounds ------------------------------------------------------------------------------------------------------ */

/* A round that measures denoising steps, or warms up. */
static um_status run_round(run *r, um_err *err) {
    um_step_kind kind = UM_STEP_DENOISE;
    step now;
    um_status s = store_prompts(r, err);
    for (int32_t i = 0; i < r->round_steps && !s && um_engine_pending(r->e) == (size_t)r->p->batch; i++) {
        s = run_step(r, &now, &kind, err);
        if (!s && r->keeps && kind < UM_N_STEP_KINDS) keep(&r->seen[kind], &now);
    }
    end_requests(r);
    return s;
}

static um_status warm_up(run *r, um_err *err) {
    const double end = um_now() + r->plan->warm_up;
    um_status s;
    r->keeps = false;
    do s = run_round(r, err);
    while (!s && um_now() < end);
    r->keeps = true;
    return s;
}

static um_status measure_rounds(run *r, um_err *err) {
    const steps *denoise = &r->seen[UM_STEP_DENOISE];
    um_status s = UM_OK;
    for (int i = 0; !s && (i < ROUNDS_MIN || denoise->n < (size_t)r->plan->passes); i++) {
        s = run_round(r, err);
        if (!s && (denoise->n == 0 || i == ROUNDS_MAX))
            s = um_fail(err, UM_ELIMIT, "%d requests never had a pass over one block each in the same step",
                        r->p->batch);
    }
    return s;
}

/* Measures the first denoising steps after a pause, when the device is cool. */
static um_status measure_burst(run *r, um_err *err) {
    const struct timespec pause = {.tv_nsec = (long)(PAUSE_SECONDS * 1e9)};
    um_step_kind kind;
    step now;
    r->keeps = false;
    um_status s = store_prompts(r, err);
    nanosleep(&pause, NULL);
    r->last_end = 0;
    for (int32_t i = 0; i < UM_MIN(BURST_STEPS, r->round_steps) && !s; i++) {
        s = run_step(r, &now, &kind, err);
        if (!s && kind == UM_STEP_DENOISE) keep(&r->burst, &now);
    }
    end_requests(r);
    return s;
}

/* ---- Operations -------------------------------------------------------------------------------------------------- */

/* Adds what the sums of the profile have gained since `before` [n]. The order of the sums never changes. */
static void add_gain(run *r, const um_profile_sum *before, int32_t n) {
    const um_profile *p = &r->e->profile;
    for (int32_t i = 0; i < p->n_sums; i++) {
        const um_profile_sum *now = &p->sum[i];
        int32_t k = 0;
        while (k < r->n_sums && !um_streq(r->sum[k].name, now->name)) k++;
        if (k == r->n_sums) r->sum[r->n_sums++] = (um_profile_sum){.name = now->name};
        r->sum[k].n += now->n - (i < n ? before[i].n : 0);
        r->sum[k].seconds += now->seconds - (i < n ? before[i].seconds : 0);
        r->sum[k].self += now->self - (i < n ? before[i].self : 0);
    }
}

static um_status profile_round(run *r, um_err *err) {
    um_profile *p = &r->e->profile;
    um_profile_sum before[UM_PROFILE_NAMES];
    um_step_kind kind;
    step now;
    um_status s = store_prompts(r, err);
    if (!s) s = um_engine_profile_start(r->e, NULL, err);
    for (int32_t i = 0; i < r->round_steps && !s && r->p->n_profiled < PROFILE_STEPS; i++) {
        const int32_t n = p->n_sums;
        memcpy(before, p->sum, sizeof before);
        s = run_step(r, &now, &kind, err);
        if (s || kind != UM_STEP_DENOISE) continue;
        add_gain(r, before, n);
        r->p->n_profiled++;
    }
    const um_status stopped = um_engine_profile_stop(r->e, err);
    end_requests(r);
    return s ? s : stopped;
}

static int by_share(const void *a, const void *b) {
    const um_operation_time *x = (const um_operation_time *)a, *y = (const um_operation_time *)b;
    return (x->share < y->share) - (x->share > y->share);
}

/* Returns the seconds of an operation, with the operations inside it. */
static double seconds_in(const run *r, const char *name) {
    for (int32_t i = 0; i < r->n_sums; i++)
        if (um_streq(r->sum[i].name, name)) return r->sum[i].seconds;
    return 0;
}

/* Stores the times per step, each without those of operations inside it. They add up to the step. */
static void store_operations(run *r) {
    um_engine_point *p = r->p;
    double all = 0;
    for (int32_t i = 0; i < r->n_sums; i++) all += r->sum[i].self;
    for (int32_t i = 0; i < r->n_sums; i++) {
        const um_profile_sum *s = &r->sum[i];
        const char *name = um_streq(s->name, "step")      ? "rest of the step"
                           : um_streq(s->name, "forward") ? "rest of the pass"
                                                          : s->name;
        p->operation[p->n_operations++] = (um_operation_time){name, s->self / p->n_profiled, um_ratio(s->self, all)};
    }
    qsort(p->operation, (size_t)p->n_operations, sizeof p->operation[0], by_share);
    p->blend_share = um_ratio(seconds_in(r, "blend"), all);
    p->condition_share = um_ratio(seconds_in(r, "condition"), all);
}

static um_status measure_operations(run *r, um_err *err) {
    um_status s = UM_OK;
    if (!r->plan->operations) return UM_OK;
    for (int i = 0; i < PROFILE_STEPS && !s && r->p->n_profiled < PROFILE_STEPS; i++) s = profile_round(r, err);
    if (!s && r->p->n_profiled) store_operations(r);
    return s;
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

static double seconds_of(const step *s) { return s->seconds; }
static double gap_of(const step *s) { return s->gap; }
static double device_of(const step *s) { return s->device_seconds; }
static double clock_of(const step *s) { return s->clock_rate; }

static bool has_gap(const step *s) { return s->has_gap; }
static bool has_clock(const step *s) { return s->clock_rate > 0; }

/* Computes the spread over the steps that count, NULL: over all. *n receives their number. */
static um_spread spread_of(const steps *list, double (*of)(const step *), bool (*counts)(const step *), size_t *n) {
    double *v = UM_NEW_ARRAY(double, list->n + 1);
    *n = 0;
    for (size_t i = 0; i < list->n; i++)
        if (!counts || counts(&list->step[i])) v[(*n)++] = of(&list->step[i]);
    um_spread spread = *n ? um_spread_of(v, *n) : (um_spread){0};
    um_free(v);
    return spread;
}

static um_pass_work mean_size(const steps *list) {
    um_pass_work all = {0};
    const int64_t n = (int64_t)list->n;
    for (size_t i = 0; i < list->n; i++) {
        const um_pass_work *s = &list->step[i].size;
        all.tokens += s->tokens, all.rows += s->rows, all.keys += s->keys, all.seen += s->seen;
    }
    return (um_pass_work){(all.tokens + n / 2) / n, (all.rows + n / 2) / n, (all.keys + n / 2) / n,
                          (all.seen + n / 2) / n};
}

/* Returns the bytes of a stored weight. */
static double weight_size(const um_model *m) {
    const double n = (double)m->arch.vocab * m->arch.hidden;
    return (double)m->backend->weight_bytes(m->net.head) / n;
}

static um_dtype kv_type(const um_engine *e) {
    const char *name = e->config.kv_cache_dtype;
    if (um_streq(name, "auto")) return e->model->dtype;
    return um_streq(name, "float32") ? UM_F32 : um_streq(name, "bfloat16") ? UM_BF16 : UM_F8;
}

static void store_kind(run *r, um_step_kind kind) {
    um_step_result *out = &r->p->step[kind];
    const steps *list = &r->seen[kind];
    size_t n;
    out->n = list->n;
    if (!list->n) return;
    out->seconds = spread_of(list, seconds_of, NULL, &n);
    out->gap = spread_of(list, gap_of, has_gap, &out->n_gaps);
    out->device_seconds = spread_of(list, device_of, NULL, &n).median;
    out->clock_rate = spread_of(list, clock_of, has_clock, &n).median;
    out->size = mean_size(list);
    out->cost = um_arch_pass_cost(&r->e->model->arch, &out->size, weight_size(r->e->model), kv_type(r->e));
}

/* Takes the fastest passes as the limits of a device that measures none. */
static void limits_of_passes(um_engine_point *p) {
    p->limits_of_passes = true;
    for (int i = 0; i < UM_N_STEP_KINDS; i++) {
        const um_step_result *s = &p->step[i];
        if (!s->n) continue;
        const double bytes = s->cost.weight_bytes + s->cost.kv_bytes;
        p->limits.read_bytes = UM_MAX(p->limits.read_bytes, bytes / s->seconds.min);
        p->limits.operations = UM_MAX(p->limits.operations, s->cost.operations / s->seconds.min);
    }
}

static void store_limits(um_engine_point *p) {
    if (p->limits.read_bytes <= 0) limits_of_passes(p);
    for (int i = 0; i < UM_N_STEP_KINDS; i++) {
        um_step_result *s = &p->step[i];
        if (!s->n) continue;
        const double read = (s->cost.weight_bytes + s->cost.kv_bytes) / p->limits.read_bytes,
                     compute = s->cost.operations / p->limits.operations;
        s->limit = UM_MAX(read, compute);
        s->reads = read >= compute;
    }
}

static void store_results(run *r) {
    um_engine_point *p = r->p;
    um_stats stats;
    size_t n;
    um_engine_get_stats(r->e, &stats);
    p->weight_bytes = stats.weight_bytes;
    p->kv_bytes = stats.kv_bytes;
    p->sampler = r->e->sampler;
    p->kv_dtype = um_dtype_name(kv_type(r->e));
    p->dtype = um_dtype_name(r->e->model->dtype);
    p->weight_type = um_dtype_name(r->e->model->weight_type);
    p->type_name = um_model_type_name(r->e->model);
    for (int i = 0; i < UM_N_STEP_KINDS; i++) store_kind(r, (um_step_kind)i);
    p->burst_seconds = spread_of(&r->burst, seconds_of, NULL, &p->n_burst).median;
    p->burst_clock_rate = spread_of(&r->burst, clock_of, has_clock, &n).median;
    store_limits(p);
}

/* ---- The point --------------------------------------------------------------------------------------------------- */

int32_t um_engine_point_tokens(const um_engine_point *p) {
    return UM_MAX(2 * p->batch * p->block, p->context + 2 * p->block);
}

/* Returns the steps of a round after its prompts are stored. A whole sequence ends with its block, so the step that
 * would end a request is left out. Blocks go on, but the prompt should not grow by much. */
static int32_t round_steps(const um_engine_point *p, int32_t passes) {
    const int32_t each = p->block_passes;
    if (um_strategy_is_whole(p->strategy)) return p->block - 2;
    return UM_CEIL_DIV(UM_MAX(2 * each, UM_CEIL_DIV(passes, ROUNDS_MIN)), each) * each;
}

int32_t um_engine_point_answer(const um_engine_point *p, int32_t passes) {
    return um_strategy_is_whole(p->strategy) ? p->block : (round_steps(p, passes) / p->block_passes + 2) * p->block;
}

static um_status open_engine(run *r, um_err *err) {
    const um_engine_point *p = r->p;
    um_config c = *r->plan->config;
    c.max_num_reqs = p->batch;
    c.max_model_len = p->context + r->max_tokens;
    c.max_num_batched_tokens = r->plan->model->max_tokens;
    c.schedule_policy = UM_POLICY_PREFILL_FIRST;
    c.disable_prefix_caching = true; /* every round stores its prompts again */
    c.decoding.block_size = p->block;
    if (p->canvas) c.decoding.canvas_steps = p->block_passes;
    snprintf(c.decoding.strategy, sizeof c.decoding.strategy, "%s", p->strategy);
    if (c.page_size == 0) c.page_size = UM_CEIL_DIV(32, p->block) * p->block;
    c.num_pages = p->batch * (UM_CEIL_DIV(c.max_model_len + 2 * p->block, c.page_size) + 1);
    return um_engine_new(&r->e, r->plan->model, &c, err);
}

um_status um_engine_point_measure(um_engine_point *p, const um_engine_plan *plan, um_err *err) {
    run r = {.p = p, .plan = plan};
    steps *all[UM_N_STEP_KINDS + 1] = {&r.burst};
    for (int i = 0; i < UM_N_STEP_KINDS; i++) all[i + 1] = &r.seen[i];
    for (size_t i = 0; i < UM_LEN(all); i++) all[i]->step = UM_NEW_ARRAY(step, STEPS_MAX);
    r.round_steps = round_steps(p, plan->passes);
    r.max_tokens = um_engine_point_answer(p, plan->passes);
    make_prompts(&r);
    um_status s = open_engine(&r, err);
    if (!s) s = warm_up(&r, err);
    if (!s) s = measure_rounds(&r, err);
    if (!s) s = measure_burst(&r, err);
    if (!s) s = measure_operations(&r, err);
    if (!s) store_results(&r);
    um_engine_free(r.e);
    for (size_t i = 0; i < UM_LEN(all); i++) um_free(all[i]->step);
    um_free(r.prompt);
    um_free(r.id);
    return s;
}
