/* Several equal engines of one model in one process. */
#include "engine/engine.h"

struct um_router {
    um_engine *engine[UM_REPLICAS_MAX];
    int32_t n, policy;
    int64_t next_id;
    bool stepping;
};

um_status um_router_new(um_router **out, um_model *m, const um_config *c, um_err *err) {
    um_status st = um_engine_check(c, err);
    if (st) return st;
    um_router *r = UM_NEW(um_router);
    um_config equal = *c;
    r->policy = c->route_policy;
    r->next_id = 1;
    while (!st && r->n < c->data_parallel_size) {
        st = um_engine_new(&r->engine[r->n], m, &equal, err);
        if (st) break;
        /* What fits one engine must fit all, however much memory is left for the later ones. */
        equal.num_pages = r->engine[r->n++]->config.num_pages;
    }
    if (st) um_router_free(r);
    else *out = r;
    return st;
}

void um_router_free(um_router *r) {
    if (!r) return;
    for (int32_t i = 0; i < r->n; i++) um_engine_free(r->engine[i]);
    um_free(r);
}

int32_t um_router_size(const um_router *r) { return r->n; }

um_engine *um_router_engine(const um_router *r, int32_t i) { return i >= 0 && i < r->n ? r->engine[i] : NULL; }

/* Checked and encoded once, then given to the engine that is best for it. */
um_status um_router_add(um_router *r, const um_request *q, int64_t *id, um_err *err) {
    um_job *j = NULL;
    um_replica replica[UM_REPLICAS_MAX];
    um_status st = um_engine_prepare(r->engine[0], q, &j, err);
    if (st) return st;
    for (int32_t i = 0; i < r->n; i++) replica[i] = um_engine_as_replica(r->engine[i], j);
    if (id) *id = r->next_id;
    um_engine_queue(r->engine[um_route_request(r->policy, replica, r->n, r->next_id)], j, r->next_id);
    r->next_id++;
    return UM_OK;
}

um_status um_router_step(um_router *r, um_err *err) {
    um_status st = UM_OK;
    if (r->stepping) return um_fail(err, UM_EINVAL, "um_router_step was called from a callback of the same router");
    r->stepping = true;
    for (int32_t i = 0; i < r->n && !st; i++)
        if (um_engine_pending(r->engine[i])) st = um_engine_step(r->engine[i], err);
    r->stepping = false;
    return st;
}

size_t um_router_pending(const um_router *r) {
    size_t n = 0;
    for (int32_t i = 0; i < r->n; i++) n += um_engine_pending(r->engine[i]);
    return n;
}

um_status um_router_abort(um_router *r, int64_t id, um_err *err) {
    um_status st = UM_ENOENT;
    for (int32_t i = 0; i < r->n && st == UM_ENOENT; i++) st = um_engine_abort(r->engine[i], id, err);
    return st;
}

/* A sum for every field of um_stats, in their order and without their names: a field that is missing here is a warning
 * of the compiler. */
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
        b->weight_bytes,
        SUM(kv_bytes),
        SUM(workspace_bytes),
        SUM(pages_total),
        SUM(pages_used),
        SUM(pages_used_most),
        SUM(requests_running),
        SUM(requests_waiting),
        SUM(preemptions),
        SUM(aborted),
        SUM(prefix_queries),
        SUM(prefix_hits),
        SUM(prefill_tokens),
        SUM(decode_tokens),
        SUM(decode_passes),
        SUM(schedule_seconds),
        SUM(apply_seconds),
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

void um_router_get_stats(const um_router *r, um_stats *out) {
    *out = (um_stats){0};
    for (int32_t i = 0; i < r->n; i++) {
        um_stats s;
        um_engine_get_stats(r->engine[i], &s);
        *out = sum_of(out, &s);
    }
}
