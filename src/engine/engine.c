/* The engine: creation, the step, and the public doors. */
#include <math.h>

#include "engine/engine.h"

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
                            .see = a->see,
                            .block = a->block,
                            .route_block = a->route_block,
                            .shift = a->shift,
                            .always_forced = um_streq(f->gate, "always"),
                            .prefill_is_silent = f->prefill_is_silent && e->config.compat == UM_COMPAT_DIFFULEX,
                            .accept_threshold = f->accept_threshold,
                            .sampler = f->sampler};
    bool diffulex = e->config.compat == UM_COMPAT_DIFFULEX;
    e->compat = (um_compat){.allocated_limits = diffulex,
                            .eos_drains = diffulex,
                            .separate_commit = diffulex,
                            .literal_edits = diffulex,
                            .merged_commit = diffulex,
                            .zero_anchor = diffulex,
                            .threshold = diffulex ? f->compat_threshold : NAN};
}

/* The words are those that the option rows allow; auto is the model's type. */
static um_dtype kv_type(const um_engine *e) {
    static const um_dtype types[] = {UM_F32, UM_BF16, UM_F8, UM_F8, UM_F8};
    um_str word;
    int i = um_word_index("float32|bfloat16|float8_e4m3|fp8|fp8_e4m3", '|', e->config.kv_cache_dtype, &word);
    return i < 0 ? e->model->dtype : types[i];
}

static um_kv_layout kv_layout(const um_engine *e) {
    return um_streq(e->config.kv_cache_layout, "distinct") ? UM_KV_DISTINCT : UM_KV_UNIFIED;
}

/* Automatic sizes that depend on the model. */
static void resolve_sizes(um_engine *e, um_dtype kv) {
    const um_arch *a = &e->model->arch;
    um_config *c = &e->config;
    if (!c->max_num_batched_tokens) c->max_num_batched_tokens = UM_BATCHED_TOKENS_AUTO;
    e->max_len = c->max_model_len ? c->max_model_len : a->max_position;
    if (e->max_len > a->max_position) {
        um_warn("max_model_len %d is more than the model's %d positions; using %d", e->max_len, a->max_position,
                a->max_position);
        e->max_len = a->max_position;
    }
    int32_t block = c->decoding.block_size ? c->decoding.block_size : a->block ? a->block : 32;
    if (c->page_size == 0) c->page_size = UM_CEIL_DIV(32, block) * block;
    e->traits.page_size = c->page_size;
    if (c->num_pages > 0) return;
    /* Two tables for guidance would double this; they find room because few requests are as long as the model allows.
     */
    int32_t per_request = UM_CEIL_DIV(e->max_len + block, c->page_size) + 1;
    double bytes = (double)um_arch_kv_bytes(a, kv) * c->page_size;
    double wanted = (double)per_request * c->max_num_reqs;
    double room = (double)c->kv_memory_share * (double)um_memory_available() / bytes;
    room /= UM_MAX(1, c->data_parallel_size);
    c->num_pages = (int32_t)UM_MAX((double)per_request, UM_MIN(wanted, room > 0 ? room : wanted));
}

/* How much the passes of one step may take together. */
static um_pass step_room(const um_engine *e) {
    const um_config *c = &e->config;
    const int32_t T = c->max_num_batched_tokens, R = c->max_num_reqs, S = c->page_size;
    bool whole_sequence = e->traits.see == UM_SEE_FULL;
    return (um_pass){.n_seg = 2 * R,
                     .n_rows = T,
                     .n_tokens = T,
                     .n_edits = 16 * T,
                     .n_tops = 16 * T,
                     .n_softs = T,
                     .n_soft_ids = 16 * T,
                     .n_selects = 2 * R,
                     .n_scratch = whole_sequence ? UM_CEIL_DIV(T, S) + 2 * R : 0,
                     .page_size = S,
                     .first_scratch = c->num_pages};
}

static um_status allocate(um_engine *e, um_err *err) {
    const um_config *c = &e->config;
    const um_pass *m = &e->room;
    size_t T = (size_t)m->n_tokens, R = (size_t)c->max_num_reqs;
    struct {
        void **out;
        size_t bytes;
    } want[] = {
        {(void **)&e->space.id, um_mul(T, sizeof(int32_t))},
        {(void **)&e->space.pos, um_mul(T, sizeof(int32_t))},
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
        {(void **)&e->seen_end, um_mul(T, sizeof(int32_t))},
        {(void **)&e->span, um_mul((size_t)m->n_seg, sizeof(um_span))},
        {(void **)&e->save, um_mul((size_t)m->n_seg, sizeof(int32_t[2]))},
        {(void **)&e->answer, um_mul((size_t)m->n_rows, sizeof(um_answer))},
        {(void **)&e->running, um_mul(R, sizeof(um_job *))},
        {(void **)&e->free_saved, um_mul(R, sizeof(int32_t))},
    };
    for (size_t i = 0; i < UM_LEN(want); i++) {
        um_status st = um_try_alloc(want[i].out, want[i].bytes, 64, "batch tables", err);
        if (st) return st;
        e->stats.workspace_bytes += want[i].bytes;
    }
    while (e->n_free_saved < c->max_num_reqs) {
        e->free_saved[e->n_free_saved] = c->max_num_reqs - 1 - e->n_free_saved;
        e->n_free_saved++;
    }
    return UM_OK;
}

static size_t longest_token(const um_tok *t) {
    size_t most = 4; /* a U+FFFD and a separator */
    for (int32_t i = 0; i < um_tok_size(t); i++) most = UM_MAX(most, um_tok_bytes(t, i).n + 1);
    /* An invalid byte becomes three. */
    return 3 * most;
}

/* The device has room for passes of what the model was opened for. */
static um_status check_step(const um_engine *e, um_err *err) {
    int32_t most = e->model->max_tokens, wanted = e->config.max_num_batched_tokens;
    if (wanted <= most) return UM_OK;
    return um_fail_param(err, UM_ERANGE, "max_num_batched_tokens",
                         "%d is outside 1..%d, for which the model was opened; open it with as many", wanted, most);
}

um_status um_engine_new(um_engine **out, um_model *m, const um_config *c, um_err *err) {
    um_status st = um_engine_check(c, err);
    if (st) return st;
    if (!m->dev)
        return um_fail(err, UM_EINVAL, "the model in %s was opened for its text alone; um_model_open reads the weights",
                       m->path);
    um_engine *e = UM_NEW(um_engine);
    e->model = m;
    e->config = *c;
    e->config.model = NULL; /* borrowed by the caller's struct only */
    e->waiting_tail = &e->waiting;
    e->worst_waiting = INT32_MIN;
    e->next_id = 1;
    e->token_bytes_max = longest_token(m->tok);
    set_traits(e);
    const um_dtype kv = kv_type(e);
    resolve_sizes(e, kv);
    st = check_step(e, err);
    if (st) goto done;
    e->room = step_room(e);
    e->traits.blend_ids = e->room.n_soft_ids;
    st = um_pages_init(&e->pages, e->config.num_pages, e->config.page_size, err);
    if (!st) st = um_job_check_defaults(e, err);
    if (st) goto done;
    st = um_forward_new(&e->forward, m,
                        &(um_forward_config){.max_tokens = e->config.max_num_batched_tokens,
                                             .max_rows = e->config.max_num_batched_tokens,
                                             .n_saved = e->config.max_num_reqs,
                                             .page_size = e->config.page_size,
                                             .n_pages = e->config.num_pages,
                                             .n_scratch_pages = e->room.n_scratch,
                                             .kv_type = kv,
                                             .layout = kv_layout(e)},
                        err);
    if (!st) st = allocate(e, err);
done:
    if (st) {
        um_engine_free(e);
        return st;
    }
    e->stats.weight_bytes = m->weight_bytes;
    e->stats.kv_bytes = um_forward_kv_bytes(e->forward);
    e->stats.workspace_bytes += um_forward_workspace_bytes(e->forward);
    e->stats.pages_total = e->pages.n_pages;
    *out = e;
    return UM_OK;
}

static void free_jobs(um_engine *e, um_job *j) {
    for (um_job *next; j; j = next) {
        next = j->next;
        um_job_free(j, e);
    }
}

void um_engine_free(um_engine *e) {
    if (!e) return;
    for (int32_t i = 0; i < e->n_running; i++) um_job_free(e->running[i], e);
    free_jobs(e, e->waiting);
    um_err err;
    if (um_engine_profile_stop(e, &err)) um_warn("%s", err.msg);
    um_forward_free(e->forward);
    um_pages_deinit(&e->pages);
    um_pass *s = &e->space;
    void *array[] = {s->id,   s->pos,     s->row,    s->seg,    s->edit,   s->top,
                     s->soft, s->soft_id, s->soft_w, s->select, s->scratch};
    for (size_t i = 0; i < UM_LEN(array); i++) um_free(array[i]);
    um_free(e->slot);
    um_free(e->seen_end);
    um_free(e->span);
    um_free(e->save);
    um_free(e->answer);
    um_free(e->running);
    um_free(e->free_saved);
    um_free(e);
}

/* ---- The step ---------------------------------------------------------------------------------------------------- */

/* Takes the request out of the running ones, frees what it holds, tells its owner. */
static void retire(um_engine *e, um_job *j) {
    um_schedule_leave(e, j);
    e->queued -= j->req.limit;
    um_output_finish(e, j);
    um_job_free(j, e);
}

/* What was streamed so far is the answer of an aborted request: tokens that give no text yet, and bytes held back
 * because a stop string could begin with them, are not part of it. */
static void mark_aborted(um_job *j) {
    j->req.finish = UM_FINISH_ABORTED;
    j->req.n_answer = j->n_sent;
    j->text.len = j->sent;
    j->text.data[j->sent] = '\0';
}

/* Every row has a token. Weights that are no numbers yield logits that are none, of which no token is the best. */
static bool is_answered(const um_engine *e, const um_job *j) {
    for (int32_t i = 0; i < j->n_planned_rows; i++)
        if (e->answer[j->first_row + i].sample < 0) return false;
    return true;
}

/* Pages that are wholly stored may serve others from now on. */
static void publish(um_engine *e, um_job *j) {
    int32_t most;
    uint64_t space = um_schedule_space(e, j, &most);
    if (space && j->bound.tables == 1) um_table_publish(&j->table[0], &e->pages, space, j->req.token, j->req.stored);
}

static void apply(um_engine *e, um_job *j) {
    um_req *q = &j->req;
    for (int32_t i = 0; i < j->n_planned_rows; i++) {
        const um_row *row = &e->space.row[j->first_row + i];
        e->answer[j->first_row + i].top = row->n_top ? row->top : NULL;
    }
    if (is_answered(e, j)) {
        q->strategy->apply(q, e->answer + j->first_row);
        publish(e, j);
        return;
    }
    q->nfe++;
    q->n_new = 0;
    um_req_finish(q, UM_FINISH_NO_PREDICTION);
}

static void count_pass(um_engine *e, um_job *j) {
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

static void apply_all(um_engine *e) {
    for (int32_t i = 0; i < e->n_running; i++) {
        um_job *j = e->running[i];
        if (!j->in_pass) continue;
        apply(e, j);
        count_pass(e, j);
        double span = um_profile_enter(&e->profile);
        if (!j->partial) um_output_pass(e, j);
        um_profile_leave(&e->profile, span, "output", j->req.n_new);
    }
    for (int32_t i = 0; i < e->n_running;) {
        um_job *j = e->running[i];
        j->in_pass = false;
        if (j->aborted && !j->req.finish) mark_aborted(j);
        if (j->req.finish) retire(e, j);
        else i++;
    }
}

/* The step has ended: it belongs to those that it denoised and that go on. */
static void count_seconds(um_engine *e, double seconds) {
    for (int32_t i = 0; i < e->n_running; i++) {
        um_job *j = e->running[i];
        if (j->denoised) j->decode_seconds += seconds;
        j->denoised = false;
    }
}

um_status um_engine_step(um_engine *e, um_err *err) {
    if (e->stepping) return um_fail(err, UM_EINVAL, "um_engine_step was called from a callback of the same engine");
    um_profile *p = &e->profile;
    um_stats *s = &e->stats;
    const um_stats before = *s;
    double start = um_now(), step = um_profile_enter(p), part = um_profile_enter(p);
    e->step_start = start;
    int32_t n_segments = um_schedule_plan(e);
    um_profile_leave(p, part, "plan", n_segments);
    if (n_segments == 0) {
        um_profile_leave(p, step, "step", 0);
        return UM_OK;
    }
    e->stepping = true;
    um_batch batch;
    part = um_profile_enter(p);
    um_batch_build(e, &batch);
    um_profile_leave(p, part, "build", batch.n_tokens);
    double submit = um_now();
    part = um_profile_enter(p);
    um_forward_submit(e->forward, &batch);
    um_forward_wait(e->forward);
    um_profile_leave(p, part, "forward", batch.n_tokens);
    double done = um_now();
    part = um_profile_enter(p);
    apply_all(e);
    um_profile_leave(p, part, "apply", n_segments);
    double end = um_now();
    s->steps++;
    s->forward_tokens += batch.n_tokens;
    s->schedule_seconds += submit - start;
    s->forward_seconds += done - submit;
    s->apply_seconds += end - done;
    s->step_seconds += end - start;
    count_seconds(e, end - start);
    if (s->prefill_tokens > before.prefill_tokens) s->prefill_seconds += end - start;
    if (s->decode_passes > before.decode_passes) s->decode_seconds += end - start;
    e->stepping = false;
    um_profile_leave(p, step, "step", batch.n_tokens);
    um_profile_flush(p);
    return UM_OK;
}

/* ---- Profile ----------------------------------------------------------------------------------------------------- */

um_status um_engine_profile_start(um_engine *e, const char *path, um_err *err) {
    um_status st = um_profile_start(&e->profile, path, err);
    if (!st) um_forward_profile(e->forward, &e->profile);
    return st;
}

um_status um_engine_profile_stop(um_engine *e, um_err *err) {
    if (e->forward) um_forward_profile(e->forward, NULL);
    return um_profile_stop(&e->profile, err);
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

um_status um_engine_prepare(um_engine *e, const um_request *r, um_job **out, um_err *err) {
    um_job *first = NULL, **end = &first;
    double span = um_profile_enter(&e->profile);
    um_status st = um_request_check(r, err);
    for (int32_t i = 0; !st && i < r->n; i++) {
        st = um_job_new(end, e, r, i, err);
        if (st) break;
        (*end)->first = i ? first : NULL;
        (*end)->req.seed = first->req.seed + (uint64_t)i;
        end = &(*end)->next;
    }
    um_profile_leave(&e->profile, span, "add", first ? first->req.n_prompt : 0);
    if (st) free_jobs(e, first);
    else *out = first;
    return st;
}

void um_engine_queue(um_engine *e, um_job *j, int64_t id) {
    for (um_job *next; j; j = next) {
        next = j->next;
        j->id = id;
        e->queued += j->req.limit;
        um_schedule_add(e, j);
    }
}

um_status um_engine_add(um_engine *e, const um_request *r, int64_t *id, um_err *err) {
    um_job *j = NULL;
    um_status st = um_engine_prepare(e, r, &j, err);
    if (st) return st;
    if (id) *id = e->next_id;
    um_engine_queue(e, j, e->next_id++);
    return UM_OK;
}

um_replica um_engine_as_replica(const um_engine *e, const um_job *j) {
    int32_t most = 0;
    uint64_t space = um_schedule_space(e, j, &most);
    if (j->bound.tables > 1) space = 0;
    return (um_replica){.queued = e->queued,
                        .cached = um_prefix_match(&e->pages, space, j->req.token, most, most, NULL)};
}

size_t um_engine_pending(const um_engine *e) { return (size_t)(e->n_running + e->n_waiting); }

static um_job *find_waiting(const um_engine *e, int64_t id) {
    um_job *j = e->waiting;
    while (j && j->id != id) j = j->next;
    return j;
}

static um_job *find_running(const um_engine *e, int64_t id) {
    for (int32_t i = 0; i < e->n_running; i++)
        if (e->running[i]->id == id && !e->running[i]->aborted) return e->running[i];
    return NULL;
}

static void end_aborted(um_engine *e, um_job *j) {
    mark_aborted(j);
    retire(e, j);
}

/* All answers of the request. From a callback, those that run are ended by the step that runs. */
um_status um_engine_abort(um_engine *e, int64_t id, um_err *err) {
    um_job *j;
    bool found = false;
    for (; (j = find_waiting(e, id)); found = true) end_aborted(e, j);
    for (; (j = find_running(e, id)); found = true) {
        j->aborted = true;
        if (!e->stepping) end_aborted(e, j);
    }
    if (found) return UM_OK;
    return um_fail(err, UM_ENOENT, "there is no request %lld", (long long)id);
}

void um_engine_get_stats(const um_engine *e, um_stats *out) {
    *out = e->stats;
    out->pages_used = um_pages_used(&e->pages);
    out->pages_used_most = e->pages.used_most;
    out->requests_running = e->n_running;
    out->requests_waiting = e->n_waiting;
}

um_status um_engine_check_idle(const um_engine *e, um_err *err) {
    size_t n = um_engine_pending(e);
    if (n == 0) return UM_OK;
    return um_fail(err, UM_EINVAL, "the cache can't be flushed while requests are there: %zu run or wait", n);
}

um_status um_engine_flush_cache(um_engine *e, um_err *err) {
    um_status st = um_engine_check_idle(e, err);
    if (!st) um_prefix_flush(&e->pages);
    return st;
}

/* ---- Slots ------------------------------------------------------------------------------------------------------- */

static um_slot slot_of(const um_job *j) {
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

static void put_slot(const um_job *j, um_slot *out, size_t most, size_t *n) {
    if (*n < most) out[*n] = slot_of(j);
    ++*n;
}

void um_engine_put_slots(const um_engine *e, bool running, um_slot *out, size_t most, size_t *n) {
    for (int32_t i = 0; running && i < e->n_running; i++) put_slot(e->running[i], out, most, n);
    for (const um_job *j = running ? NULL : e->waiting; j; j = j->next) put_slot(j, out, most, n);
}

size_t um_engine_slots(const um_engine *e, um_slot *out, size_t most) {
    size_t n = 0;
    um_engine_put_slots(e, true, out, most, &n);
    um_engine_put_slots(e, false, out, most, &n);
    return n;
}

/* ---- One answer -------------------------------------------------------------------------------------------------- */

typedef struct wait_for {
    um_event_fn on_event;
    void *arg;
    unsigned events;
    um_buf text;
    bool done;
} wait_for;

static void on_wait_event(void *arg, const um_event *ev) {
    wait_for *w = (wait_for *)arg;
    if (w->on_event && (w->events & (unsigned)ev->type)) w->on_event(w->arg, ev);
    if (ev->type != UM_EVENT_FINISH) return;
    um_buf_append(&w->text, ev->result->text, ev->result->text_len);
    w->done = true;
}

um_status um_generate(um_engine *e, const um_request *r, char **text, um_err *err) {
    wait_for w = {.on_event = r->on_event, .arg = r->arg, .events = r->events | UM_EVENT_FINISH};
    um_request mine = *r;
    int64_t id = 0;
    mine.on_event = on_wait_event;
    mine.arg = &w;
    um_status st = um_engine_add(e, &mine, &id, err);
    while (!st && !w.done) st = um_engine_step(e, err);
    if (st && id) (void)um_engine_abort(e, id, NULL);
    if (!st) *text = um_buf_take(&w.text);
    else um_buf_free(&w.text);
    return st;
}
