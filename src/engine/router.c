/* A router: several engines with the same configuration on one model, in one process.
 *
 * A step has two halves. In the first, all engines that have requests plan their steps and run their forward passes at
 * the same time, each on a thread of the router's pool. No callback is called there. In the second, the caller's thread
 * applies the results and calls callbacks, one engine after the other, in a fixed order. */
#include "engine/engine.h"

struct um_router {
    um_engine *engine[UM_REPLICAS_MAX];
    um_engine *active[UM_REPLICAS_MAX]; /* engines of the current step */
    um_pool *pool;                      /* one thread for each engine, including the caller's thread */
    int32_t n, policy;
    int64_t next_id;
    bool stepping;
    um_step_times times; /* totals of the joint steps, in seconds */
    double prefill_seconds, decode_seconds;
};

um_status um_router_new(um_router **out, um_model *m, const um_config *c, um_err *err) {
    um_status st = um_engine_check(c, err);
    if (st) return st;
    um_router *r = UM_NEW(um_router);
    um_config config = *c;
    r->policy = c->route_policy;
    r->next_id = 1;
    while (!st && r->n < c->data_parallel_size) {
        st = um_engine_new(&r->engine[r->n], um_model_for(m, r->n), &config, err);
        if (st) break;
        /* All engines get the number of pages of the first, so that a request that fits one engine fits all. */
        config.num_pages = r->engine[r->n++]->config.num_pages;
    }
    if (!st) st = um_pool_new(&r->pool, r->n, err);
    if (st) um_router_free(r);
    else *out = r;
    return st;
}

void um_router_free(um_router *r) {
    if (!r) return;
    um_pool_free(r->pool);
    for (int32_t i = 0; i < r->n; i++) um_engine_free(r->engine[i]);
    um_free(r);
}

int32_t um_router_size(const um_router *r) { return r->n; }

um_engine *um_router_engine(const um_router *r, int32_t i) { return i >= 0 && i < r->n ? r->engine[i] : NULL; }

/* Returns UM_OK, or the error of an engine whose device has failed. All engines of the router have then failed. */
static um_status check_works(const um_router *r, um_err *err) {
    um_status st = UM_OK;
    for (int32_t i = 0; i < r->n && !st; i++) st = um_engine_check_works(r->engine[i], err);
    return st;
}

static void fail_all_engines(um_router *r) {
    um_err why;
    if (!check_works(r, &why)) return;
    for (int32_t i = 0; i < r->n; i++) um_engine_fail(r->engine[i], &why);
}

/* Queues answers that any engine can run: the route policy chooses one. */
static void queue(um_router *r, um_sequence *j, int64_t *id) {
    um_replica replica[UM_REPLICAS_MAX];
    for (int32_t i = 0; i < r->n; i++) replica[i] = um_engine_as_replica(r->engine[i], j);
    if (id) *id = r->next_id;
    um_engine_queue(r->engine[um_replica_choose(r->policy, replica, r->n, r->next_id)], j, r->next_id);
    r->next_id++;
}

/* A request is checked and encoded once. */
um_status um_router_add(um_router *r, const um_request *q, int64_t *id, um_err *err) {
    um_sequence *j = NULL;
    um_status st = check_works(r, err);
    if (!st) st = um_engine_prepare(r->engine[0], q, &j, err);
    if (!st) queue(r, j, id);
    return st;
}

um_status um_router_score(um_router *r, const um_score_request *s, int64_t *id, um_err *err) {
    um_sequence *j = NULL;
    um_status st = check_works(r, err);
    if (!st) st = um_engine_prepare_score(r->engine[0], s, &j, err);
    if (!st) queue(r, j, id);
    return st;
}

/* ---- The step ---------------------------------------------------------------------------------------------------- */

static void compute(void *arg, int task, int thread) {
    um_router *r = (um_router *)arg;
    (void)thread;
    um_engine_compute(r->active[task]);
}

/* Adds the times of a joint step. Planning and computing run in parallel, so the slowest engine counts. Results are
 * applied one engine after the other, so these times are added. A step that planned nothing counts as no time, as it
 * does for a single engine. */
static void count_step(um_router *r, int32_t n_active, double seconds) {
    um_step_times step = {0};
    for (int32_t i = 0; i < n_active; i++) {
        const um_step_times *t = &r->active[i]->times;
        if (t->all > 0) step.all = seconds;
        step.schedule = UM_MAX(step.schedule, t->schedule);
        step.forward = UM_MAX(step.forward, t->forward);
        step.apply += t->apply;
        step.prefills |= t->prefills;
        step.decodes |= t->decodes;
    }
    r->times.schedule += step.schedule;
    r->times.forward += step.forward;
    r->times.apply += step.apply;
    r->times.all += step.all;
    if (step.prefills) r->prefill_seconds += step.all;
    if (step.decodes) r->decode_seconds += step.all;
}

um_status um_router_step(um_router *r, um_err *err) {
    int32_t n = 0;
    um_status st = check_works(r, err);
    if (st) return st;
    if (r->stepping) return um_fail(err, UM_EINVAL, "um_router_step was called from a callback of the same router");
    for (int32_t i = 0; i < r->n && !st; i++) {
        if (um_engine_pending(r->engine[i])) r->active[n++] = r->engine[i];
        st = um_engine_check_step(r->engine[i], err);
    }
    if (st) return st;
    r->stepping = true;
    double start = um_now();
    um_pool_run(r->pool, compute, r, n);
    for (int32_t i = 0; i < n; i++) um_engine_apply(r->active[i]);
    fail_all_engines(r);
    count_step(r, n, um_now() - start);
    r->stepping = false;
    return check_works(r, err);
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

size_t um_router_pending(const um_router *r) {
    size_t n = 0;
    for (int32_t i = 0; i < r->n; i++) n += um_engine_pending(r->engine[i]);
    return n;
}

um_status um_router_abort(um_router *r, int64_t id, um_err *err) {
    um_status st = UM_ENOENT;
    um_err why = {0};
    for (int32_t i = 0; i < r->n && st == UM_ENOENT; i++) st = um_engine_abort(r->engine[i], id, &why);
    return st ? um_fail(err, st, "%s", why.msg) : UM_OK;
}

/* Adds up all fields of um_stats. The initialisers have no field names, so that the compiler warns when a field of the
 * struct is missing here. */
static um_stats sum_of(const um_stats *a, const um_stats *b) {
#define SUM(field) a->field + b->field
    const um_stats sum = {
        SUM(steps),
        SUM(passes),
        SUM(tokens),
        SUM(requests),
        SUM(forward_tokens),
        SUM(step_seconds),
        SUM(forward_seconds),
        SUM(prefill_seconds),
        SUM(decode_seconds),
        SUM(weight_bytes),
        SUM(kv_bytes),
        SUM(workspace_bytes),
        SUM(pages_total),
        SUM(pages_used),
        SUM(pages_used_most),
        SUM(requests_running),
        SUM(requests_waiting),
        SUM(graphs),
        SUM(preemptions),
        SUM(aborted),
        SUM(prefix_queries),
        SUM(prefix_hits),
        SUM(prefill_tokens),
        SUM(decode_tokens),
        SUM(decode_passes),
        SUM(schedule_seconds),
        SUM(apply_seconds),
        SUM(graph_replays),
    };
#undef SUM
    return sum;
}

size_t um_router_slots(const um_router *r, um_slot *out, size_t most) {
    size_t n = 0;
    for (int32_t i = 0; i < r->n; i++) um_engine_put_slots(r->engine[i], true, out, most, &n);
    for (int32_t i = 0; i < r->n; i++) um_engine_put_slots(r->engine[i], false, out, most, &n);
    return n;
}

um_status um_router_flush_cache(um_router *r, um_err *err) {
    um_status st = UM_OK;
    for (int32_t i = 0; i < r->n && !st; i++) st = um_engine_check_idle(r->engine[i], err);
    for (int32_t i = 0; i < r->n && !st; i++) st = um_engine_flush_cache(r->engine[i], err);
    return st;
}

/* Returns whether an earlier engine uses the same weights. */
static bool shares_weights(const um_router *r, int32_t engine) {
    for (int32_t i = 0; i < engine; i++)
        if (r->engine[i]->model == r->engine[engine]->model) return true;
    return false;
}

void um_router_get_stats(const um_router *r, um_stats *out) {
    *out = (um_stats){0};
    for (int32_t i = 0; i < r->n; i++) {
        um_stats s;
        um_engine_get_stats(r->engine[i], &s);
        if (shares_weights(r, i)) s.weight_bytes = 0;
        *out = sum_of(out, &s);
    }
    if (r->n == 1) return;
    out->schedule_seconds = r->times.schedule;
    out->forward_seconds = r->times.forward;
    out->apply_seconds = r->times.apply;
    out->step_seconds = r->times.all;
    out->prefill_seconds = r->prefill_seconds;
    out->decode_seconds = r->decode_seconds;
}
