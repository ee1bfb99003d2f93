/* The engine: its creation, its step, and the functions of the public API. */
#include <math.h>

#include "engine/engine.h"
#include "engine/expect.h"

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

static void set_traits(um_engine *e) {
    const um_arch *a = &e->model->arch;
    const um_family *f = a->family;
    int32_t eos = um_tok_special_id(e->model->tok, "eos_token");
    e->traits = (um_traits){.mask_id = a->mask_id,
                            .eos = eos >= 0    ? eos
                                   : a->n_stop ? a->stop[0]
                                               : -1,
                            .stop = a->stop,
                            .n_stop = a->n_stop,
                            .pad = a->pad_id,
                            .ban = a->ban,
                            .n_ban = a->n_ban,
                            .delete_id = a->delete_id,
                            .split_id = a->split_id,
                            .see = a->see,
                            .block = a->block,
                            .route_block = a->route_block,
                            .shift = a->shift,
                            .always_forced = um_streq(f->gate, "always"),
                            .prefill_is_silent = f->prefill_is_silent && e->config.compat == UM_COMPAT_DIFFULEX,
                            .filters_first = f->filters_first,
                            .accept_threshold = f->accept_threshold,
                            .vocab = a->vocab,
                            .canvas = a->conditioning_ff ? um_engine_block(e) : 0,
                            .canvas_steps = a->canvas.steps,
                            .stability = a->canvas.stability,
                            .canvas_entropy_bound = a->canvas.entropy_bound,
                            .t_min = a->canvas.t_min,
                            .t_max = a->canvas.t_max,
                            .confidence = a->canvas.confidence,
                            .sampler = f->sampler};
    bool diffulex = e->config.compat == UM_COMPAT_DIFFULEX;
    e->compat = (um_compat){.allocated_limits = diffulex,
                            .eos_drains = diffulex,
                            .separate_commit = diffulex,
                            .literal_edits = diffulex,
                            .merged_commit = diffulex,
                            .zero_anchor = diffulex,
                            .no_remasking = diffulex,
                            .keeps_masks = e->config.compat == UM_COMPAT_CHECKPOINT,
                            .threshold = diffulex ? f->compat_threshold : NAN};
}

um_dtype um_engine_kv_type(const um_engine *e) {
    static const um_dtype types[] = {UM_F32, UM_BF16, UM_F8, UM_F8, UM_F8};
    um_str word;
    int i = um_word_index("float32|bfloat16|float8_e4m3|fp8|fp8_e4m3", '|', e->config.kv_cache_dtype, &word);
    return i < 0 ? e->model->dtype : types[i];
}

static um_kv_layout kv_layout(const um_engine *e) {
    return um_streq(e->config.kv_cache_layout, "distinct") ? UM_KV_DISTINCT : UM_KV_UNIFIED;
}

int32_t um_engine_block(const um_engine *e) { return um_config_block(&e->config, &e->model->arch); }

/* Resolves the automatic sizes that depend on the model. */
static void resolve_sizes(um_engine *e) {
    const um_arch *a = &e->model->arch;
    um_config *c = &e->config;
    c->max_num_batched_tokens = um_config_step_tokens(c, a, um_backend_is_host(e->model->backend));
    e->max_len = c->max_model_len ? c->max_model_len : a->max_position;
    if (e->max_len > a->max_position) {
        um_warn("max_model_len %d is more than the model's %d positions; using %d", e->max_len, a->max_position,
                a->max_position);
        e->max_len = a->max_position;
    }
    const int32_t block = um_engine_block(e);
    if (c->page_size == 0) c->page_size = UM_CEIL_DIV(32, block) * block;
    if (a->block && a->see != UM_SEE_CAUSAL && c->page_size % block && !c->disable_prefix_caching)
        um_warn("page_size %d is no multiple of the block size %d, so requests share no prefixes", c->page_size, block);
    e->traits.page_size = c->page_size;
}

/* The lengths of the arrays that all passes of one step share. */
static um_pass step_capacity(const um_engine *e) {
    const um_config *c = &e->config;
    const int32_t T = c->max_num_batched_tokens, R = c->max_num_reqs, S = c->page_size;
    const bool has_scratch = e->traits.see != UM_SEE_CAUSAL; /* whole sequences, and the blocks of scores */
    return (um_pass){.n_seg = 2 * R,
                     .n_rows = T,
                     .n_tokens = T,
                     .n_edits = 16 * T,
                     .n_tops = 16 * T,
                     .n_softs = T,
                     .n_soft_ids = 16 * T,
                     .n_selects = 2 * R,
                     .n_scratch = has_scratch ? UM_CEIL_DIV(T, S) + 2 * R : 0,
                     .page_size = S,
                     .first_scratch = c->num_pages};
}

/* Stores the limits of a step that strategies depend on. */
static void set_step_limits(um_engine *e) {
    e->traits.blend_ids = e->capacity.n_soft_ids;
    e->traits.step_tokens = e->capacity.n_tokens;
    e->traits.step_segments = e->capacity.n_seg;
}

um_forward_config um_engine_forward_config(const um_engine *e) {
    const um_config *c = &e->config;
    return (um_forward_config){.max_tokens = c->max_num_batched_tokens,
                               .max_rows = c->max_num_batched_tokens,
                               .max_spans = e->capacity.n_seg,
                               .n_saved = um_config_places(c),
                               .n_blends = um_config_places(c) * e->traits.canvas,
                               .n_near_pages = um_engine_near_pages(e),
                               .page_size = c->page_size,
                               .n_pages = UM_MAX(c->num_pages, 0),
                               .n_scratch_pages = e->capacity.n_scratch,
                               .kv_type = um_engine_kv_type(e),
                               .layout = kv_layout(e)};
}

static um_status allocate(um_engine *e, um_err *err) {
    const um_pass *m = &e->capacity;
    size_t T = (size_t)m->n_tokens, R = (size_t)e->n_places;
    struct {
        void **out;
        size_t bytes;
    } want[] = {
        {(void **)&e->space.id, um_mul(T, sizeof(int32_t))},
        {(void **)&e->space.pos, um_mul(T, sizeof(int32_t))},
        {(void **)&e->space.vis, um_mul(T, sizeof(int32_t))},
        {(void **)&e->space.row, um_mul((size_t)m->n_rows, sizeof(um_row))},
        {(void **)&e->space.seg, um_mul((size_t)m->n_seg, sizeof(um_segment))},
        {(void **)&e->space.edit, um_mul((size_t)m->n_edits, sizeof(um_edit))},
        {(void **)&e->space.top, um_mul((size_t)m->n_tops, sizeof(um_top))},
        {(void **)&e->space.soft, um_mul((size_t)m->n_softs, sizeof(um_soft))},
        {(void **)&e->space.soft_id, um_mul((size_t)m->n_soft_ids, sizeof(int32_t))},
        {(void **)&e->space.soft_w, um_mul((size_t)m->n_soft_ids, sizeof(float))},
        {(void **)&e->space.select, um_mul((size_t)m->n_selects, sizeof(um_kv_select))},
        {(void **)&e->space.scratch, um_mul((size_t)m->n_scratch + 1, sizeof(int32_t))},
        {(void **)&e->slot, um_mul(T, sizeof(int32_t))},
        {(void **)&e->near_slot, um_mul(e->near.n_pages ? T : 0, sizeof(int32_t))},
        {(void **)&e->seen_end, um_mul(T, sizeof(int32_t))},
        {(void **)&e->span, um_mul((size_t)m->n_seg, sizeof(um_span))},
        {(void **)&e->save, um_mul((size_t)m->n_seg, sizeof(int32_t[2]))},
        {(void **)&e->answer, um_mul((size_t)m->n_rows, sizeof(um_answer))},
        {(void **)&e->running, um_mul(R, sizeof(um_sequence *))},
        {(void **)&e->free_saved, um_mul(R, sizeof(int32_t))},
    };
    for (size_t i = 0; i < UM_LEN(want); i++) {
        um_status st = um_try_alloc(want[i].out, want[i].bytes, 64, "batch tables", err);
        if (st) return st;
        e->stats.workspace_bytes += want[i].bytes;
    }
    e->registered = um_sampler_space_new(m->n_rows);
    while (e->n_free_saved < e->n_places) {
        e->free_saved[e->n_free_saved] = e->n_places - 1 - e->n_free_saved;
        e->n_free_saved++;
    }
    return UM_OK;
}

/* Lets the backend prepare for the passes that will be frequent. */
static um_status warm(um_engine *e, um_err *err) {
    enum { SIZES_MAX = 512 };
    const um_config *c = &e->config;
    um_expectation x = {.max_reqs = c->max_num_reqs,
                        .max_tokens = c->max_num_batched_tokens,
                        .max_len = e->max_len,
                        .block = um_engine_block(e),
                        .whole = e->whole,
                        .adapts = e->model->net.n_adapters > 0};
    um_pass_size size[SIZES_MAX];
    char text[UM_GRAPHS_TEXT_MAX];
    if (!e->model->backend->warm || c->enforce_eager || !um_expect_requests(&x, c->cuda_graph_sizes)) return UM_OK;
    um_status st = e->model->backend->warm(e->forward, size, um_expect_passes(&x, size, SIZES_MAX), err);
    if (!st && um_engine_put_graphs(e, text)) um_log(UM_LOG_INFO, "%s", text);
    return st;
}

bool um_engine_put_graphs(const um_engine *e, char out[UM_GRAPHS_TEXT_MAX]) {
    const um_backend *b = e->model->backend;
    const um_forward_stats t = b->stats ? b->stats(e->forward) : (um_forward_stats){0};
    char bytes[UM_BYTES_TEXT];
    snprintf(out, UM_GRAPHS_TEXT_MAX, "graphs: %d recorded in %.1f s, %s", t.graphs, t.warm_seconds,
             um_bytes_text(bytes, (double)t.warm_bytes));
    return t.graphs > 0;
}

static size_t longest_token(const um_tok *t) {
    size_t most = 4; /* the three bytes of U+FFFD and a separator */
    for (int32_t i = 0; i < um_tok_size(t); i++) most = UM_MAX(most, um_tok_bytes(t, i).n + 1);
    /* Each invalid byte is replaced by U+FFFD, which has three bytes. */
    return 3 * most;
}

/* The device has memory for passes of the size that the model was opened for. */
static um_status check_step(const um_engine *e, um_err *err) {
    int32_t most = e->model->max_tokens, wanted = e->config.max_num_batched_tokens;
    if (wanted <= most) return UM_OK;
    return um_fail_param(err, UM_ERANGE, "max_num_batched_tokens",
                         "%d is outside 1..%d, the limit that the model was opened with; open it with a larger one",
                         wanted, most);
}

/* Must be called between passes of a device that has not failed. */
static void count_graphs(um_engine *e) {
    if (!e->model->backend->stats) return;
    const um_forward_stats f = e->model->backend->stats(e->forward);
    e->stats.graph_replays = f.replays;
    e->stats.graphs = f.graphs;
}

/* Logs how the device's memory is divided, for a device with memory of its own. */
static void log_memory(const um_engine *e) {
    const um_forward_memory memory = e->model->backend->memory(e->forward);
    um_device_info d;
    char name[UM_DEVICE_NAME_MAX], text[5][UM_BYTES_TEXT];
    const um_stats *s = &e->stats;
    e->model->backend->info(e->model->device, &d);
    if (um_backend_is_host(e->model->backend) || !d.memory) return;
    um_model_device_name(e->model, name);
    um_log(UM_LOG_INFO, "memory of %s (%s, %s): weights %s, activations %s, %d KV pages %s, free %s", name, d.name,
           um_bytes_text(text[0], (double)d.memory), um_bytes_text(text[1], (double)s->weight_bytes),
           um_bytes_text(text[2], (double)memory.workspace), s->pages_total, um_bytes_text(text[3], (double)memory.kv),
           um_bytes_text(text[4], (double)d.there));
}

um_status um_engine_new(um_engine **out, um_model *m, const um_config *c, um_err *err) {
    um_status st = um_engine_check(c, err);
    if (st) return st;
    if (!m->device)
        return um_fail(err, UM_EINVAL, "the model in %s was opened without its weights; open it with um_model_open",
                       m->path);
    if (m->place.rank > 0)
        return um_fail_param(err, UM_EINVAL, "rank", "rank %d has no engine: rank 0 takes the requests", m->place.rank);
    um_engine *e = UM_NEW(um_engine);
    e->model = m;
    e->config = *c;
    e->config.model = NULL; /* the string belongs to the caller */
    um_model_device_name(m, e->config.device);
    e->config.tensor_parallel_size = UM_MAX(m->n_ranks, 1);
    e->next_id = 1;
    e->token_bytes_max = longest_token(m->tok);
    set_traits(e);
    resolve_sizes(e);
    e->n_places = um_config_places(&e->config);
    um_queue_init(&e->queue, 2 * (int64_t)e->max_len, e->config.admission == UM_ADMIT_ARRIVAL);
    st = check_step(e, err);
    e->capacity = step_capacity(e);
    if (!st) st = um_engine_resolve_pages(e, err);
    if (st) goto done;
    e->capacity.first_scratch = e->config.num_pages;
    set_step_limits(e);
    st = um_pages_init(&e->pages, e->config.num_pages, e->config.page_size, err);
    if (!st && um_engine_near_pages(e)) st = um_pages_init(&e->near, um_engine_near_pages(e), e->config.page_size, err);
    if (!st) st = um_sequence_check_defaults(e, err);
    if (st) goto done;
    const um_forward_config config = um_engine_forward_config(e);
    st = m->backend->forward_new(&e->forward, m->device, &m->net, &config, err);
    if (!st) st = allocate(e, err);
    if (!st) st = warm(e, err);
done:
    if (st) {
        um_engine_free(e);
        return st;
    }
    e->stats.weight_bytes = m->weight_bytes;
    const um_forward_memory memory = m->backend->memory(e->forward);
    e->stats.kv_bytes = memory.kv;
    e->stats.workspace_bytes += memory.workspace;
    e->stats.pages_total = e->pages.n_pages;
    count_graphs(e);
    log_memory(e);
    *out = e;
    return UM_OK;
}

um_status um_engine_plan_memory(um_model *m, const um_config *c, um_memory_plan *out, um_err *err) {
    um_engine *e = UM_NEW(um_engine);
    e->model = m;
    e->config = *c;
    set_traits(e);
    resolve_sizes(e);
    e->capacity = step_capacity(e);
    um_status st = um_engine_check(c, err);
    if (!st) st = um_engine_plan_pages(e, out, err);
    um_free(e);
    return st;
}

um_status um_request_check_for(um_model *m, const um_config *c, const um_request *r, size_t n_prompt, um_err *err) {
    um_engine *e = UM_NEW(um_engine);
    e->model = m;
    e->config = *c;
    e->max_len = c->max_model_len;
    set_traits(e);
    e->traits.page_size = c->page_size;
    e->capacity = step_capacity(e);
    set_step_limits(e);
    e->pages.n_pages = c->num_pages;
    e->pages.page_size = c->page_size;
    um_status st = um_sequence_check(e, r, n_prompt, err);
    um_free(e);
    return st;
}

static void free_sequences(um_engine *e, um_sequence *j) {
    for (um_sequence *next; j; j = next) {
        next = j->next;
        um_sequence_free(j, e);
    }
}

static um_sequence *first_unfinished(const um_engine *e) { return e->n_running ? e->running[0] : e->queue.first; }

void um_engine_free(um_engine *e) {
    if (!e) return;
    for (um_sequence *j; (j = first_unfinished(e));) {
        um_schedule_leave(e, j);
        um_sequence_free(j, e);
    }
    um_err err;
    if (um_engine_profile_stop(e, &err)) um_warn("%s", err.msg);
    if (e->forward) e->model->backend->forward_free(e->forward);
    um_pages_deinit(&e->pages);
    um_pages_deinit(&e->near);
    um_pass *s = &e->space;
    void *array[] = {s->id,  s->pos,  s->vis,     s->row,    s->seg,    s->edit,
                     s->top, s->soft, s->soft_id, s->soft_w, s->select, s->scratch};
    for (size_t i = 0; i < UM_LEN(array); i++) um_free(array[i]);
    um_free(e->slot);
    um_free(e->near_slot);
    um_free(e->seen_end);
    um_free(e->span);
    um_free(e->save);
    um_free(e->answer);
    um_sampler_space_free(e->registered);
    um_free(e->running);
    um_free(e->free_saved);
    um_free(e);
}

/* ---- The step ---------------------------------------------------------------------------------------------------- */

/* Removes the answer from the queue or from the running answers, sends its FINISH event and frees it. */
static void finish(um_engine *e, um_sequence *j) {
    um_schedule_leave(e, j);
    e->queued -= j->req.limit;
    um_output_finish(e, j);
    um_sequence_free(j, e);
}

/* An aborted answer consists of the text and the tokens that its TEXT events carried. It lacks tokens without text, and
 * bytes that were held back because a stop string could begin with them. */
static void mark_aborted(um_sequence *j) {
    j->req.finish = UM_FINISH_ABORTED;
    j->req.stop_id = -1;
    j->req.n_answer = j->n_sent;
    j->text.len = j->sent;
    j->text.data[j->sent] = '\0';
}

/* Returns whether every row has a predicted token. A row has none when its logits are NaN because weights are NaN. */
static bool is_answered(const um_engine *e, const um_sequence *j) {
    for (int32_t i = 0; i < j->n_planned_rows; i++)
        if (e->answer[j->first_row + i].sample < 0) return false;
    return true;
}

/* Gives back the pages that lie behind the windows of all later passes. */
static void drop_behind_window(um_engine *e, um_sequence *j) {
    const int32_t first = j->req.stored + 1 - um_arch_window(&e->model->arch);
    if (first > 0) um_table_drop_front(&j->near, &e->near, UM_MIN(first / e->near.page_size, j->near.n));
}

/* Lets other requests share the pages that are completely stored. */
static void publish(um_engine *e, um_sequence *j) {
    int32_t most;
    uint64_t name_space = um_schedule_namespace(e, j, &most);
    if (name_space && j->bound.tables == 1)
        um_table_publish(&j->table[0], &e->pages, name_space, j->req.token, j->req.stored);
    if (!e->near.n_pages) return;
    if (name_space) um_table_publish(&j->near, &e->near, name_space, j->req.token, j->req.stored);
    drop_behind_window(e, j);
}

static void set_tops(um_engine *e, const um_sequence *j) {
    for (int32_t i = 0; i < j->n_planned_rows; i++) {
        const um_row *row = &e->space.row[j->first_row + i];
        e->answer[j->first_row + i].top = row->n_top ? row->top : NULL;
    }
}

/* Lets the registered samplers decide, each about all its blocks of the step. */
static void decide_registered(um_engine *e) {
    const um_sampler *s;
    for (size_t i = 0; e->registered && (s = um_sampler_at(i)); i++) {
        if (!s->def) continue;
        um_sampler_space_begin(e->registered, s);
        for (int32_t k = 0; k < e->n_running; k++) {
            um_sequence *j = e->running[k];
            if (j->in_pass && j->req.sampler == s && is_answered(e, j))
                um_sampler_space_add(e->registered, &j->req, j->id, j->index, e->answer + j->first_row);
        }
        um_sampler_space_run(e->registered);
    }
}

static void apply(um_engine *e, um_sequence *j) {
    um_req *q = &j->req;
    if (is_answered(e, j)) {
        q->strategy->apply(q, e->answer + j->first_row);
        publish(e, j);
        return;
    }
    q->nfe++;
    q->n_new = 0;
    um_req_finish(q, UM_FINISH_NO_PREDICTION);
}

static void count_pass(um_engine *e, um_sequence *j) {
    um_stats *s = &e->stats;
    if (j->prefill || j->partial) s->prefill_tokens += j->n_tokens;
    if (j->partial) return;
    s->passes++;
    if (j->prefill) return;
    s->decode_passes++;
    s->decode_tokens += j->req.n_new;
    j->decode_tokens += j->req.n_new;
    j->denoised = true;
}

static um_sequence *find_ended(const um_engine *e) {
    for (int32_t i = 0; i < e->n_running; i++)
        if (e->running[i]->aborted || e->running[i]->req.finish) return e->running[i];
    return NULL;
}

/* Each search starts at the first answer, because a FINISH callback may abort any of them. */
static void finish_ended(um_engine *e) {
    for (um_sequence *j; (j = find_ended(e));) {
        if (j->aborted) mark_aborted(j);
        finish(e, j);
    }
}

static void apply_all(um_engine *e) {
    for (int32_t i = 0; i < e->n_running; i++)
        if (e->running[i]->in_pass) set_tops(e, e->running[i]);
    decide_registered(e);
    for (int32_t i = 0; i < e->n_running; i++) {
        um_sequence *j = e->running[i];
        if (!j->in_pass) continue;
        apply(e, j);
        count_pass(e, j);
        double span = um_profile_enter(&e->profile);
        if (!j->partial) um_output_pass(e, j);
        um_profile_leave(&e->profile, span, "output", j->req.n_new);
    }
    for (int32_t i = 0; i < e->n_running; i++) e->running[i]->in_pass = false;
    finish_ended(e);
}

/* Adds the duration of the step to the unfinished answers that it denoised. */
static void count_decode_seconds(um_engine *e, double seconds) {
    for (int32_t i = 0; i < e->n_running; i++) {
        um_sequence *j = e->running[i];
        if (j->denoised) j->decode_seconds += seconds;
        j->denoised = false;
    }
}

um_status um_engine_check_works(const um_engine *e, um_err *err) {
    if (e->failed.code && err) *err = e->failed;
    return e->failed.code;
}

void um_engine_fail(um_engine *e, const um_err *why) {
    assert(why->code < 0);
    if (e->failed.code) return;
    e->failed = *why;
    e->stepping = true; /* makes um_engine_abort, called by a callback, leave running answers to this loop */
    for (um_sequence *j; (j = first_unfinished(e));) {
        mark_aborted(j);
        finish(e, j);
    }
    e->stepping = false;
}

static void count_step(um_engine *e, const um_step_times *t) {
    um_stats *s = &e->stats;
    s->steps++;
    s->forward_tokens += e->step_tokens;
    s->schedule_seconds += t->schedule;
    s->forward_seconds += t->forward;
    s->apply_seconds += t->apply;
    s->step_seconds += t->all;
    if (t->prefills) s->prefill_seconds += t->all;
    if (t->decodes) s->decode_seconds += t->all;
    count_graphs(e);
    count_decode_seconds(e, t->all);
}

um_status um_engine_check_step(const um_engine *e, um_err *err) {
    if (!e->stepping) return UM_OK;
    return um_fail(err, UM_EINVAL, "um_engine_step was called from a callback of the same engine");
}

/* Runs the forward pass. Its error is kept in pass_error until um_engine_apply ends the requests, because this half of
 * a step may not call callbacks. */
static void forward(um_engine *e, const um_batch *b) {
    double start = um_now(), span = um_profile_enter(&e->profile);
    e->pass_error = (um_err){0};
    const um_backend *backend = e->model->backend;
    um_status st = backend->submit(e->forward, b, &e->pass_error);
    if (!st) st = backend->wait(e->forward, &e->pass_error);
    assert(st == e->pass_error.code);
    um_profile_leave(&e->profile, span, "forward", b->n_tokens);
    e->times.forward = um_now() - start;
}

void um_engine_compute(um_engine *e) {
    um_profile *p = &e->profile;
    um_batch batch;
    assert(!e->stepping);
    e->times = (um_step_times){0};
    e->step_start = um_now();
    e->step_span = um_profile_enter(p);
    double part = um_profile_enter(p);
    int32_t n_segments = um_schedule_plan(e);
    um_profile_leave(p, part, "plan", n_segments);
    if (n_segments == 0) {
        um_profile_leave(p, e->step_span, "step", 0);
        return;
    }
    e->stepping = true;
    part = um_profile_enter(p);
    um_batch_build(e, &batch);
    um_profile_leave(p, part, "build", batch.n_tokens);
    e->times.schedule = um_now() - e->step_start;
    e->step_tokens = batch.n_tokens;
    forward(e, &batch);
}

void um_engine_apply(um_engine *e) {
    um_profile *p = &e->profile;
    um_step_times *t = &e->times;
    if (!e->stepping) return;
    if (e->pass_error.code) {
        um_engine_fail(e, &e->pass_error);
        um_profile_leave(p, e->step_span, "step", e->step_tokens);
        return;
    }
    const um_stats before = e->stats;
    double start = um_now(), part = um_profile_enter(p);
    apply_all(e);
    um_profile_leave(p, part, "apply", e->space.n_seg);
    double end = um_now();
    t->apply = end - start;
    t->all = end - e->step_start;
    t->prefills = e->stats.prefill_tokens > before.prefill_tokens;
    t->decodes = e->stats.decode_passes > before.decode_passes;
    count_step(e, t);
    e->stepping = false;
    um_profile_leave(p, e->step_span, "step", e->step_tokens);
    um_profile_flush(p);
}

um_status um_engine_step(um_engine *e, um_err *err) {
    um_status st = um_engine_check_works(e, err);
    if (!st) st = um_engine_check_step(e, err);
    if (st) return st;
    um_engine_compute(e);
    um_engine_apply(e);
    return um_engine_check_works(e, err);
}

/* ---- Profile ----------------------------------------------------------------------------------------------------- */

um_status um_engine_profile_start(um_engine *e, const char *path, um_err *err) {
    um_status st = um_profile_start(&e->profile, path, err);
    if (!st) e->model->backend->profile(e->forward, &e->profile);
    return st;
}

um_status um_engine_profile_stop(um_engine *e, um_err *err) {
    if (e->forward) e->model->backend->profile(e->forward, NULL);
    return um_profile_stop(&e->profile, err);
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

um_status um_engine_prepare(um_engine *e, const um_request *r, um_sequence **out, um_err *err) {
    um_sequence *first = NULL, **end = &first;
    double span = um_profile_enter(&e->profile);
    um_status st = um_engine_check_works(e, err);
    if (!st) st = um_request_check(r, err);
    for (int32_t i = 0; !st && i < r->n; i++) {
        st = um_sequence_new(end, e, r, i, err);
        if (st) break;
        if (e->forward) st = um_sampler_space_check(e->registered, (*end)->req.sampler, err);
        (*end)->added = first->added;
        (*end)->req.seed = first->req.seed + (uint64_t)i;
        end = &(*end)->next;
    }
    um_profile_leave(&e->profile, span, "add", first ? first->req.n_prompt : 0);
    if (st) free_sequences(e, first);
    else *out = first;
    return st;
}

um_status um_engine_check_request(um_engine *e, const um_request *r, um_err *err) {
    um_sequence *first = NULL;
    um_status st = um_engine_prepare(e, r, &first, err);
    free_sequences(e, first);
    return st;
}

void um_engine_queue(um_engine *e, um_sequence *j, int64_t id) {
    um_group *group = NULL;
    for (um_sequence *next; j; j = next) {
        next = j->next;
        j->id = id;
        e->queued += j->req.limit;
        um_schedule_add(e, j, group);
        group = j->group;
    }
}

um_status um_engine_prepare_score(um_engine *e, const um_score_request *s, um_sequence **out, um_err *err) {
    const double span = um_profile_enter(&e->profile);
    um_status st = um_engine_check_works(e, err);
    if (!st) st = um_sequence_new_score(out, e, s, err);
    um_profile_leave(&e->profile, span, "add", st ? 0 : (*out)->req.limit);
    return st;
}

um_status um_engine_score(um_engine *e, const um_score_request *s, int64_t *id, um_err *err) {
    um_sequence *j = NULL;
    const um_status st = um_engine_prepare_score(e, s, &j, err);
    if (st) return st;
    if (id) *id = e->next_id;
    um_engine_queue(e, j, e->next_id++);
    return UM_OK;
}

um_status um_engine_add(um_engine *e, const um_request *r, int64_t *id, um_err *err) {
    um_sequence *j = NULL;
    um_status st = um_engine_prepare(e, r, &j, err);
    if (st) return st;
    if (id) *id = e->next_id;
    um_engine_queue(e, j, e->next_id++);
    return UM_OK;
}

um_replica um_engine_as_replica(const um_engine *e, const um_sequence *j) {
    int32_t most = 0;
    uint64_t name_space = um_schedule_namespace(e, j, &most);
    if (j->bound.tables > 1) name_space = 0;
    return (um_replica){.queued = e->queued,
                        .cached = um_prefix_match(&e->pages, name_space, j->req.token, most, most, NULL)};
}

size_t um_engine_pending(const um_engine *e) { return (size_t)(e->n_running + e->queue.n_waiting); }

static um_sequence *find_waiting(const um_engine *e, int64_t id) {
    um_sequence *j = e->queue.first;
    while (j && j->id != id) j = j->after;
    return j;
}

static um_sequence *find_running(const um_engine *e, int64_t id) {
    for (int32_t i = 0; i < e->n_running; i++)
        if (e->running[i]->id == id && !e->running[i]->aborted) return e->running[i];
    return NULL;
}

static void abort_sequence(um_engine *e, um_sequence *j) {
    mark_aborted(j);
    finish(e, j);
}

/* When a callback calls this during a step, that step ends the running answers. */
um_status um_engine_abort(um_engine *e, int64_t id, um_err *err) {
    um_sequence *j;
    bool found = false;
    for (; (j = find_waiting(e, id)); found = true) abort_sequence(e, j);
    for (; (j = find_running(e, id)); found = true) {
        j->aborted = true;
        if (!e->stepping) abort_sequence(e, j);
    }
    if (found) return UM_OK;
    return um_fail(err, UM_ENOENT, "there is no request %lld", (long long)id);
}

int32_t um_engine_get_ranks(const um_engine *e, um_rank_times *out, int32_t max) {
    const um_backend *b = e->model->backend;
    um_rank_time t[UM_RANKS_MAX];
    const int32_t n = b->rank_times ? b->rank_times(e->forward, t) : 0;
    for (int32_t r = 0; r < UM_MIN(n, max); r++) out[r] = (um_rank_times){t[r].pass_seconds, t[r].exchange_seconds};
    return n;
}

void um_engine_get_stats(const um_engine *e, um_stats *out) {
    *out = e->stats;
    out->pages_used = um_pages_used(&e->pages);
    out->pages_used_most = e->pages.used_max;
    out->requests_running = e->n_running;
    out->requests_waiting = e->queue.n_waiting;
}

um_status um_engine_check_idle(const um_engine *e, um_err *err) {
    size_t n = um_engine_pending(e);
    if (n == 0) return UM_OK;
    return um_fail(err, UM_EINVAL, "the cache can't be flushed while requests run or wait; %zu are unfinished", n);
}

um_status um_engine_flush_cache(um_engine *e, um_err *err) {
    um_status st = um_engine_check_idle(e, err);
    if (!st) um_prefix_flush(&e->pages);
    if (!st && e->near.n_pages) um_prefix_flush(&e->near);
    return st;
}

/* ---- Slots ------------------------------------------------------------------------------------------------------- */

static um_slot slot_of(const um_sequence *j) {
    const um_req *q = &j->req;
    um_block_view view[UM_BUFFER_MAX];
    um_slot s = {.id = j->id,
                 .index = j->index,
                 .running = j->slot >= 0,
                 .prompt_tokens = q->n_prompt + q->n_suffix,
                 .cached_tokens = j->cached_tokens,
                 .answer_tokens = q->filled - q->n_prompt,
                 .max_tokens = q->limit - q->n_prompt,
                 .nfe = q->nfe,
                 .preemptions = j->preemptions,
                 .seconds = um_now() - j->added,
                 .strategy = q->strategy->name};
    if (s.running) s.blocks = um_req_blocks(q, view);
    for (int32_t i = 0; i < s.blocks; i++) s.masks += view[i].masks;
    return s;
}

static void put_slot(const um_sequence *j, um_slot *out, size_t most, size_t *n) {
    if (*n < most) out[*n] = slot_of(j);
    ++*n;
}

void um_engine_put_slots(const um_engine *e, bool running, um_slot *out, size_t most, size_t *n) {
    for (int32_t i = 0; running && i < e->n_running; i++) put_slot(e->running[i], out, most, n);
    for (const um_sequence *j = running ? NULL : e->queue.first; j; j = j->after) put_slot(j, out, most, n);
}

size_t um_engine_slots(const um_engine *e, um_slot *out, size_t most) {
    size_t n = 0;
    um_engine_put_slots(e, true, out, most, &n);
    um_engine_put_slots(e, false, out, most, &n);
    return n;
}

/* ---- Generating one answer --------------------------------------------------------------------------------------- */

/* Passes the events of um_generate on to the callback of the request, and keeps the text of the answer. */
typedef struct generation {
    um_event_fn on_event;
    void *arg;
    unsigned events;
    um_buf text;
    bool done;
} generation;

static void on_generation_event(void *arg, const um_event *ev) {
    generation *g = (generation *)arg;
    if (g->on_event && (g->events & (unsigned)ev->type)) g->on_event(g->arg, ev);
    if (ev->type != UM_EVENT_FINISH) return;
    um_buf_append(&g->text, ev->result->text, ev->result->text_len);
    g->done = true;
}

um_status um_generate(um_engine *e, const um_request *r, char **text, um_err *err) {
    generation g = {.on_event = r->on_event, .arg = r->arg, .events = r->events | UM_EVENT_FINISH};
    um_request request = *r;
    int64_t id = 0;
    if (r->n > 1)
        return um_fail_param(err, UM_EINVAL, "n", "um_generate returns one answer, so n must be 1; found %d", r->n);
    request.on_event = on_generation_event;
    request.arg = &g;
    um_status st = um_engine_add(e, &request, &id, err);
    while (!st && !g.done) st = um_engine_step(e, err);
    if (!g.done && id) (void)um_engine_abort(e, id, NULL); /* its events must not reach `g` after this call */
    if (!st) *text = um_buf_take(&g.text);
    else um_buf_free(&g.text);
    return st;
}
