/* Several equal engines of one model in one process. */
#include "engine/engine.h"

struct um_router {
    um_engine *engine[UM_REPLICAS_MAX];
    int32_t n, policy;
    int64_t next_id;
    bool stepping;
};

static um_status check_config(const um_config *c, um_err *err) {
    um_status st = um_config_check(c, err);
    if (st) return st;
    if (c->data_parallel_size < 1 || c->data_parallel_size > UM_REPLICAS_MAX)
        return um_fail(err, UM_ERANGE, "data_parallel_size is %d, expected 1..%d", c->data_parallel_size,
                       UM_REPLICAS_MAX);
    if (c->route_policy < UM_ROUTE_PREFIX || c->route_policy > UM_ROUTE_ROUND_ROBIN)
        return um_fail(err, UM_ERANGE, "route_policy is %d, expected one of UM_ROUTE_*: %d..%d", c->route_policy,
                       UM_ROUTE_PREFIX, UM_ROUTE_ROUND_ROBIN);
    return UM_OK;
}

um_status um_router_new(um_router **out, um_model *m, const um_config *c, um_err *err) {
    um_status st = check_config(c, err);
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

static void add_stats(um_stats *sum, const um_stats *s) {
#define ADD(field) sum->field += s->field
    ADD(steps), ADD(passes), ADD(tokens), ADD(requests), ADD(forward_tokens);
    ADD(step_seconds), ADD(forward_seconds), ADD(schedule_seconds), ADD(apply_seconds);
    ADD(prefill_seconds), ADD(decode_seconds);
    ADD(kv_bytes), ADD(workspace_bytes);
    ADD(pages_total), ADD(pages_used), ADD(pages_used_most);
    ADD(requests_running), ADD(requests_waiting), ADD(preemptions), ADD(aborted);
    ADD(prefix_queries), ADD(prefix_hits), ADD(prefill_tokens), ADD(decode_tokens), ADD(decode_passes);
#undef ADD
    sum->weight_bytes = s->weight_bytes;
}

void um_router_get_stats(const um_router *r, um_stats *out) {
    *out = (um_stats){0};
    for (int32_t i = 0; i < r->n; i++) {
        um_stats s;
        um_engine_get_stats(r->engine[i], &s);
        add_stats(out, &s);
    }
}
