/* The memory of an engine: how many KV pages fit beside weights and activations. */
#include "engine/engine.h"

/* The share of a GPU's memory that pages leave free for recorded graphs and for libraries, where other programs use so
 * much of it that gpu_memory_utilization leaves less. */
#define SPARE 0.02

/* Returns the pages of a request of full length. */
static int32_t pages_of_request(const um_engine *e) {
    return UM_CEIL_DIV(e->max_len + um_engine_block(e), e->config.page_size) + 1;
}

/* Stores the bytes that the KV pages of one engine may take on the device of m. The engines that share the device
 * divide its memory. */
static void plan_device(const um_engine *e, const um_model *m, um_memory_plan *p) {
    um_device_info d;
    const um_forward_config c = um_engine_forward_config(e);
    const double n = UM_MAX(m->n_sharing, 1);
    m->backend->info(m->device, &d);
    p->memory = (double)d.memory;
    p->most = (double)e->config.gpu_memory_utilization * p->memory;
    p->weights = m->weight_bytes ? (double)m->weight_bytes : (double)um_model_weight_bytes(m) / UM_MAX(m->place.n, 1);
    p->there = (double)d.there;
    p->free = p->there + (double)m->weight_bytes; /* as if the weights were not loaded yet */
    p->workspace = (double)m->backend->workspace(m->device, &m->net, &c);
    p->available = (UM_MIN(p->most, p->free - SPARE * p->memory) - p->weights) / n - p->workspace;
}

/* The device with the least memory for pages decides, because all engines of a router have the same number of pages. */
static void plan_devices(const um_engine *e, um_memory_plan *p) {
    um_model *m = e->model;
    plan_device(e, m, p);
    for (int32_t i = 1; i < UM_MIN(m->devices.n, e->config.data_parallel_size); i++) {
        um_memory_plan other = *p;
        if (m->on[i] == m) continue;
        plan_device(e, m->on[i], &other);
        if (other.available < p->available) *p = other;
    }
}

/* Weights that have not been loaded will take memory. Mapped weights must stay in memory, although the system counts
 * them as free. */
static void plan_host(const um_engine *e, um_memory_plan *p) {
    const um_config *c = &e->config;
    const um_model *m = e->model;
    p->weights = (double)(m->weight_bytes ? m->weight_bytes : um_model_weight_bytes(m));
    p->free = (double)um_memory_available_beside(m->mapped_bytes);
    const double free = m->weight_bytes ? p->free : p->free - p->weights;
    p->available = (double)c->kv_memory_share * (p->free > 0 ? UM_MAX(free, 1) : 0) / UM_MAX(1, c->data_parallel_size);
}

/* An automatic number of pages. Guidance needs two tables for an answer. The default still suffices, because few
 * answers are as long as the model allows. */
static int32_t automatic_pages(const um_engine *e, const um_memory_plan *p) {
    const double wanted = (double)p->pages_of_request * e->config.max_num_reqs, fit = p->available / p->page;
    if (!p->is_host) return (int32_t)UM_MAX(UM_MIN(wanted, fit), 0);
    return (int32_t)UM_MAX((double)p->pages_of_request, UM_MIN(wanted, p->available > 0 ? fit : wanted));
}

static um_status fail_automatic(const um_engine *e, const um_memory_plan *p, um_err *err) {
    char name[UM_DEVICE_NAME_MAX], text[6][UM_BYTES_TEXT], sharing[48] = "";
    um_model_device_name(e->model, name);
    if (e->model->n_sharing > 1) snprintf(sharing, sizeof sharing, " for each of %d engines", e->model->n_sharing);
    return um_fail_param(err, UM_ENOMEM, "gpu_memory_utilization",
                         "no KV page fits on %s: weights %s, activations %s%s, a page %s, but %.2f of %s "
                         "(--gpu-memory-utilization) is %s, and %s were free before the weights",
                         name, um_bytes_text(text[0], p->weights), um_bytes_text(text[1], p->workspace), sharing,
                         um_bytes_text(text[2], p->page), (double)e->config.gpu_memory_utilization,
                         um_bytes_text(text[3], p->memory), um_bytes_text(text[4], p->most),
                         um_bytes_text(text[5], p->free));
}

/* A fixed number of pages may take all free memory. */
static um_status check_fixed(const um_engine *e, const um_memory_plan *p, um_err *err) {
    char name[UM_DEVICE_NAME_MAX], text[3][UM_BYTES_TEXT];
    const double pages = p->page * p->pages + p->near;
    if (p->is_host || p->workspace + pages <= p->there) return UM_OK;
    um_model_device_name(e->model, name);
    return um_fail_param(err, UM_ENOMEM, "num_pages",
                         "activations %s and %d KV pages %s don't fit on %s: %s are free beside the weights",
                         um_bytes_text(text[0], p->workspace), p->pages, um_bytes_text(text[1], pages), name,
                         um_bytes_text(text[2], p->there));
}

/* Every answer that has a place needs its window, a canvas, and a page at each end; and a step stores at most
 * max_num_batched_tokens. More are not needed than there are pages at all. */
int32_t um_engine_near_pages(const um_engine *e) {
    const um_config *c = &e->config;
    const int32_t window = um_arch_window(&e->model->arch), S = c->page_size;
    if (!window) return 0;
    const int64_t each = UM_CEIL_DIV(UM_MIN(window + um_engine_block(e), e->max_len), S) + 2,
                  n = each * c->max_num_reqs + UM_CEIL_DIV(c->max_num_batched_tokens, S);
    return (int32_t)(c->num_pages > 0 ? UM_MIN(n, (int64_t)c->num_pages) : UM_MIN(n, INT32_MAX));
}

um_status um_engine_plan_pages(const um_engine *e, um_memory_plan *p, um_err *err) {
    const um_config *c = &e->config;
    const um_arch all = um_arch_with_ranks(&e->model->arch, e->model->n_ranks), *a = &all;
    const um_dtype type = um_engine_kv_type(e);
    *p = (um_memory_plan){.page = (double)um_arch_window_kv_bytes(a, type, false) * c->page_size,
                          .near =
                              (double)um_arch_window_kv_bytes(a, type, true) * c->page_size * um_engine_near_pages(e),
                          .page_size = c->page_size,
                          .tokens_of_request = e->max_len,
                          .pages_of_request = pages_of_request(e),
                          .is_host = um_backend_is_host(e->model->backend)};
    if (!p->is_host && e->model->place.n > 1) { /* this process has the pages of one rank */
        p->page /= e->model->place.n;
        p->near /= e->model->place.n;
    }
    if (p->is_host) plan_host(e, p);
    else if (c->num_pages > 0) plan_device(e, e->model, p);
    else plan_devices(e, p);
    p->available -= p->near;
    p->pages = c->num_pages > 0 ? c->num_pages : automatic_pages(e, p);
    if (c->num_pages > 0) return check_fixed(e, p, err);
    return p->pages > 0 ? UM_OK : fail_automatic(e, p, err);
}

um_status um_engine_resolve_pages(um_engine *e, um_err *err) {
    um_memory_plan p;
    um_status s = um_engine_plan_pages(e, &p, err);
    e->config.num_pages = p.pages;
    return s;
}
