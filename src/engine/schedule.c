/* The scheduler: it decides which answers get a pass in a step.
 *
 * Running answers are ranked: by priority; then so that the first answer of each tenant comes before the second one of
 * any (layer); then by arrival. They are considered first, in three turns: those that were passed over too often, those
 * that denoise, and those that still store their prompts. The last group shares the rest of the step and feeds its
 * prompts in chunks where the strategy supports it. Then waiting answers are admitted into the remaining capacity, in
 * the order of the queue (queue.h). When a pass finds no free page, the running answer of the lowest rank is preempted:
 * it loses its pages, waits again, and later continues from its tokens to the same result.
 *
 * A step has max_num_reqs passes at most. When as many answers run, an answer of a tenant or of a request that has
 * nothing running is still admitted, as a guest, if it ranks among the first max_num_reqs: the running answers of lower
 * rank then pass over steps, but keep their pages. If it found no room in a step or no page, it is considered first in
 * the next one.
 *
 * No answer starves. A request that can't run alone is refused when it is added. The answer of the first rank always
 * gets its pages. An answer is passed over for one of lower rank at most max_skips times in a row. */
#include "engine/engine.h"

/* What a waiting answer lacked when it was last considered. */
enum { LACKS_NOTHING, LACKS_ROOM, LACKS_PAGES };

/* ---- Capacity of the step
 * -------------------------------------------------------------------------------------------- */

static int32_t scratch_pages(const um_engine *e, int32_t positions) {
    return UM_CEIL_DIV(positions, e->capacity.page_size);
}

/* Returns the tokens that the step has left for a pass. Beside answers that denoise, all chunks of a step together have
 * at most chunked_prefill_size tokens, but the first one may have the fewest that are possible. */
static int32_t room_for(const um_engine *e, const um_need *n) {
    const int32_t room = e->capacity.n_tokens - e->space.n_tokens, most = e->config.chunked_prefill_size;
    if (!most || !e->denoises || n->least >= n->tokens) return room;
    const int32_t left = e->n_chunk_tokens ? most - e->n_chunk_tokens : UM_MAX(most, n->least);
    return UM_MIN(room, left);
}

/* Returns whether a pass of the needed size, or a chunk of it, fits into the step in addition to the planned passes. */
static bool fits(const um_engine *e, const um_sequence *j, const um_need *n) {
    const um_pass *used = &e->space, *capacity = &e->capacity;
    int32_t tops = n->rows * j->req.n_top_asked;
    if (e->n_passes == e->config.max_num_reqs) return false;
    if (n->refresh && e->config.max_refresh_per_step && e->n_refreshes >= e->config.max_refresh_per_step) return false;
    return UM_MIN(n->tokens, n->least) <= room_for(e, n) && used->n_rows + n->rows <= capacity->n_rows &&
           used->n_tops + tops <= capacity->n_tops && used->n_edits + n->edits <= capacity->n_edits &&
           used->n_soft_ids + n->soft <= capacity->n_soft_ids &&
           used->n_scratch + scratch_pages(e, n->scratch) <= capacity->n_scratch &&
           used->n_seg + UM_MAX(n->segments, 2) <= capacity->n_seg;
}

/* ---- Pages ------------------------------------------------------------------------------------------------------- */

uint64_t um_schedule_namespace(const um_engine *e, const um_sequence *j, int32_t *most) {
    const um_req *q = &j->req;
    uint64_t kind = q->strategy->share ? q->strategy->share(q, most) : 0;
    if (!q->strategy->share) *most = 0;
    if (!kind || e->config.disable_prefix_caching) return 0;
    uint64_t name_space = um_rng_key(kind, um_model_adapter_number(e->model, q->adapter), j->cache_salt, 0);
    return name_space ? name_space : 1;
}

static void set_page_tables(um_sequence *j) {
    for (int i = 0; i < 2; i++) j->req.page[i] = j->table[i].page;
    j->req.near_page = j->near.page;
}

/* Returns the pages of layers with a window that the next pass needs in the table, those that are gone included. A pass
 * over a chunk of the prompt needs those of the chunk only, because pages behind the window are given back. */
static int32_t near_pages(const um_engine *e, const um_sequence *j, const um_need *need) {
    return um_pages_for(&e->near, UM_MIN((int64_t)need->slots, (int64_t)j->req.stored + room_for(e, need)));
}

/* Allocates the pages for the next pass. Copies a shared page first when the pass writes to it. */
static bool allocate_pages(um_engine *e, um_sequence *j, const um_need *need) {
    int32_t pages = um_pages_for(&e->pages, need->slots);
    for (int i = 0; i < j->bound.tables; i++) {
        um_page_copy copy = {0};
        if (!um_table_grow(&j->table[i], &e->pages, UM_MAX(pages, j->table[i].n))) return false;
        if (j->table[i].n && !um_table_writable(&j->table[i], &e->pages, j->req.stored, &copy)) return false;
        if (copy.n) e->model->backend->copy_page(e->forward, copy.from, copy.to, copy.n);
    }
    /* No answer writes to a page of this table that another one holds: they share whole pages only. */
    return !e->near.n_pages || um_table_grow(&j->near, &e->near, UM_MAX(near_pages(e, j, need), j->near.n));
}

static void release_pages(um_engine *e, um_sequence *j) {
    for (int i = 0; i < j->bound.tables; i++) um_table_release(&j->table[i], &e->pages);
    um_table_release(&j->near, &e->near);
    j->req.stored = 0;
}

/* ---- Ranks ------------------------------------------------------------------------------------------------------- */

static bool ranks_before(const um_sequence *a, const um_sequence *b) {
    if (a->priority != b->priority) return a->priority < b->priority;
    return a->layer != b->layer ? a->layer < b->layer : a->arrival < b->arrival;
}

/* Returns whether a comes before b among the running answers of their tenant: answers that lead their requests first.
 */
static bool goes_before(const um_sequence *a, const um_sequence *b, bool b_leads) {
    return a->leads != b_leads ? a->leads : a->arrival < b->arrival;
}

/* Returns the number of running answers of j's tenant that come before j, which waits. 0 without tenants. */
static int32_t layer_of(const um_engine *e, const um_sequence *j, bool leads) {
    int32_t n = 0;
    if (e->queue.by_arrival) return 0;
    for (int32_t i = 0; i < e->n_running; i++) {
        const um_sequence *k = e->running[i];
        n += k != j && k->group->tenant == j->group->tenant && goes_before(k, j, leads);
    }
    return n;
}

/* Sorts the running answers by rank. They are almost sorted: the answers of one tenant have moved by one layer. */
static void sort_running(um_engine *e) {
    for (int32_t i = 0; i < e->n_running; i++) {
        um_sequence *j = e->running[i];
        int32_t at = i;
        for (; at > 0 && ranks_before(j, e->running[at - 1]); at--) {
            e->running[at] = e->running[at - 1];
            e->running[at]->slot = at;
        }
        e->running[at] = j;
        j->slot = at;
    }
}

/* Moves the running answers of j's tenant from the given layer on by `by` layers, j excepted. */
static void move_layers(um_engine *e, const um_sequence *j, int32_t from, int32_t by) {
    for (int32_t i = 0; i < e->n_running && !e->queue.by_arrival; i++) {
        um_sequence *k = e->running[i];
        if (k != j && k->group->tenant == j->group->tenant && k->layer >= from) k->layer += by;
    }
}

static void remove_running(um_engine *e, um_sequence *j) {
    memmove(&e->running[j->slot], &e->running[j->slot + 1],
            (size_t)(e->n_running - 1 - j->slot) * sizeof(e->running[0]));
    e->n_running--;
    e->free_saved[e->n_free_saved++] = j->req.saved;
    j->slot = -1;
    move_layers(e, j, j->layer, -1);
    sort_running(e);
}

void um_schedule_add(um_engine *e, um_sequence *j, um_group *group) {
    j->arrival = e->next_arrival++;
    um_queue_add(&e->queue, j, group);
}

void um_schedule_leave(um_engine *e, um_sequence *j) {
    const bool was_running = j->slot >= 0;
    if (e->starved == j) e->starved = NULL;
    if (was_running) remove_running(e, j);
    um_queue_end(&e->queue, j, was_running);
}

void um_schedule_preempt(um_engine *e, um_sequence *j) {
    assert(!j->in_pass);
    release_pages(e, j);
    if (j->req.strategy->preempt) j->req.strategy->preempt(&j->req);
    remove_running(e, j);
    j->preemptions++;
    um_queue_return(&e->queue, j);
    e->stats.preemptions++;
}

/* Returns the running answer of the lowest rank that ranks after j and has no pass in this step, or NULL. */
static um_sequence *find_victim(const um_engine *e, const um_sequence *j) {
    for (int32_t i = e->n_running - 1; i > j->slot; i--)
        if (!e->running[i]->in_pass) return e->running[i];
    return NULL;
}

static bool is_last(const um_engine *e, const um_sequence *j) { return j->slot == e->n_running - 1; }

/* ---- Plan -------------------------------------------------------------------------------------------------------- */

/* Plans the pass of one answer and appends it to e->space. The strategy counts rows from the first token of its pass;
 * afterwards they count over the whole batch. */
static void plan_pass(um_engine *e, um_sequence *j, const um_need *need) {
    um_pass *all = &e->space;
    um_pass own = {.seg = all->seg + all->n_seg,
                   .row = all->row + all->n_rows,
                   .id = all->id + all->n_tokens,
                   .pos = all->pos + all->n_tokens,
                   .vis = all->vis + all->n_tokens,
                   .edit = all->edit + all->n_edits,
                   .top = all->top + all->n_tops,
                   .soft = all->soft + all->n_softs,
                   .soft_id = all->soft_id + all->n_soft_ids,
                   .soft_w = all->soft_w + all->n_soft_ids,
                   .select = all->select + all->n_selects,
                   .scratch = all->scratch + all->n_scratch,
                   .page_size = e->capacity.page_size,
                   .first_scratch = e->capacity.first_scratch + all->n_scratch,
                   .budget = room_for(e, need)};
    set_page_tables(j);
    j->req.n_calls = j->req.n_calls_taken = 0;
    j->req.strategy->plan(&j->req, &own);
    assert(own.n_seg > 0 && own.n_tokens <= own.budget && (!own.partial || own.n_rows == 0));
    j->in_pass = true;
    e->n_passes++;
    if (need->least < need->tokens) e->n_chunk_tokens += own.n_tokens;
    j->partial = own.partial;
    j->n_tokens = own.n_tokens;
    j->prefill = own.seg[0].kind == UM_PASS_PREFILL;
    j->first_row = all->n_rows;
    j->n_planned_rows = own.n_rows;
    for (int32_t i = 0; i < own.n_rows; i++)
        for (int k = 0; k < 2; k++)
            if (own.row[i].src[k] >= 0) own.row[i].src[k] += all->n_tokens;
    all->n_seg += own.n_seg;
    all->n_rows += own.n_rows;
    all->n_tokens += own.n_tokens;
    all->n_edits += own.n_edits;
    all->n_tops += own.n_tops;
    all->n_softs += own.n_softs;
    all->n_soft_ids += own.n_soft_ids;
    all->n_selects += own.n_selects;
    all->n_scratch += own.n_scratch;
}

/* ---- Running requests -------------------------------------------------------------------------------------------- */

/* Plans a pass of j if the step has room and the pool has pages. Returns false when j is passed over or preempted. */
static bool try_running(um_engine *e, um_sequence *j) {
    j->considered = true;
    um_need need = j->req.strategy->need(&j->req);
    if (!fits(e, j, &need)) {
        j->skips++;
        return false;
    }
    while (!allocate_pages(e, j, &need)) {
        um_sequence *other = find_victim(e, j);
        if (other) {
            um_schedule_preempt(e, other);
            continue;
        }
        /* If j ranks last, it gives up its own pages. Else the answers of lower rank already have passes in this step,
         * and j is passed over. */
        if (is_last(e, j)) um_schedule_preempt(e, j);
        else j->skips++;
        return false;
    }
    e->n_refreshes += need.refresh;
    j->skips = 0;
    plan_pass(e, j, &need);
    return true;
}

/* The phases in which running answers are considered: first those that were passed over too often, then those that
 * denoise, then those that store their prompts. While guests run, the first answers of requests don't wait for the
 * others with their prompts, and answers whose rank is beyond the passes of a step come last. */
enum { OVERDUE, DENOISING, STORING, BEYOND, N_PHASES };

static int phase_of(const um_engine *e, const um_sequence *j) {
    const bool has_guests = e->n_running > e->config.max_num_reqs;
    if (j->skips > e->config.max_skips) return OVERDUE;
    if (j->slot >= e->config.max_num_reqs) return BEYOND;
    return j->req.nfe > j->req.prefill_passes || (has_guests && j->leads) ? DENOISING : STORING;
}

static void plan_running(um_engine *e, bool prefill_only) {
    for (int phase = 0; phase < N_PHASES; phase++) {
        for (int32_t i = 0; i < e->n_running; i++) {
            um_sequence *j = e->running[i];
            const bool is_due = phase == BEYOND || phase_of(e, j) == phase;
            if (j->considered || !is_due || (prefill_only && j->req.nfe > 0)) continue;
            int32_t before = e->n_running;
            (void)try_running(e, j);
            if (e->n_running != before) i = -1; /* answers were preempted, so the indices have changed */
        }
    }
}

/* ---- Waiting requests -------------------------------------------------------------------------------------------- */

/* Fills j's page tables with published pages. Layers with a window have pages of their own, of which as many must be
 * there. */
static void reuse_prefix(um_engine *e, um_sequence *j, uint64_t name_space, int32_t most) {
    um_req *q = &j->req;
    q->stored = um_table_reuse_prefix(&j->table[0], &e->pages, name_space, q->token, most, most);
    j->looked_up = most;
    if (!e->near.n_pages) return;
    const int32_t near = um_table_reuse_prefix(&j->near, &e->near, name_space, q->token, q->stored, q->stored);
    q->stored = near;
    um_table_truncate(&j->table[0], &e->pages, near / e->pages.page_size);
    const int32_t first = near + 1 - um_arch_window(&e->model->arch);
    if (first > 0) um_table_drop_front(&j->near, &e->near, first / e->near.page_size);
}

/* Fills j's page table with the keys that other answers have stored. Returns false when the first answer of the same
 * request has not stored the prompt yet; j then waits for it. */
static bool share_stored_keys(um_engine *e, um_sequence *j) {
    int32_t most = 0;
    um_req *q = &j->req;
    const um_sequence *first = j->group->first == j ? NULL : j->group->first;
    uint64_t name_space = um_schedule_namespace(e, j, &most);
    if (first && most > 0 && q->nfe == 0) {
        if (first->req.stored < most) return false;
        if (!e->near.n_pages) {
            um_table_fork(&j->table[0], &first->table[0], &e->pages, most);
            q->stored = most;
            return true;
        }
    }
    if (name_space && j->bound.tables == 1) reuse_prefix(e, j, name_space, most);
    return true;
}

/* Returns whether enough pages are available to admit j: those of its next pass, or, when j was preempted before, all
 * that it can ever need, so that it is not preempted again and again. */
static bool has_pages(const um_engine *e, const um_sequence *j, const um_need *need) {
    int32_t slots = j->preemptions && e->n_running ? j->bound.slots_max : need->slots, pages = 0;
    for (int i = 0; i < j->bound.tables; i++) pages += UM_MAX(0, um_pages_for(&e->pages, slots) - j->table[i].n);
    if (e->near.n_pages && near_pages(e, j, need) - j->near.n > um_pages_available(&e->near)) return false;
    return pages + j->bound.tables <= um_pages_available(&e->pages) ||
           (e->n_running == 0 && pages <= um_pages_available(&e->pages));
}

static void insert_running(um_engine *e, um_sequence *j) {
    if (!j->started) {
        j->started = um_now();
        j->cached_tokens = UM_MIN(j->req.stored, j->req.n_prompt);
        e->stats.prefix_queries += j->looked_up;
        if (j->looked_up) e->stats.prefix_hits += j->cached_tokens;
    }
    j->req.saved = e->free_saved[--e->n_free_saved];
    um_queue_start(&e->queue, j);
    j->layer = layer_of(e, j, j->leads);
    move_layers(e, j, j->layer, 1);
    e->running[e->n_running++] = j;
    sort_running(e);
}

/* Returns whether a place is free for the waiting answer, or a guest place. Half of the guest places is kept for
 * tenants that have nothing running. */
static bool has_place(const um_engine *e, const um_sequence *j) {
    const int32_t most = e->config.max_num_reqs, n_guests = e->n_running - most, guests = e->n_places - most;
    const um_group *g = j->group;
    um_sequence k = {.priority = j->priority, .arrival = j->arrival};
    if (n_guests < 0) return true;
    if (g->n_running > 0 || n_guests >= (g->tenant->n_running ? guests / 2 : guests)) return false;
    k.layer = layer_of(e, j, true);
    return ranks_before(&k, e->running[most - 1]);
}

/* Admits the waiting answer if the step has room for it and the pool has its pages. */
static bool try_admit(um_engine *e, um_sequence *j) {
    j->lacks = LACKS_NOTHING;
    if (!share_stored_keys(e, j)) return false;
    um_need need = j->req.strategy->need(&j->req);
    if (!fits(e, j, &need)) j->lacks = LACKS_ROOM;
    else if (!has_pages(e, j, &need) || !allocate_pages(e, j, &need)) j->lacks = LACKS_PAGES;
    if (j->lacks) {
        release_pages(e, j);
        return false;
    }
    e->n_refreshes += need.refresh;
    j->skips = 0;
    insert_running(e, j);
    j->considered = true;
    plan_pass(e, j, &need);
    return true;
}

/* Counts that the answers that were passed over before, for want of room or pages, were passed over once more. */
static void count_skips(um_engine *e) {
    for (int32_t i = 0; i < e->queue.n_passed; i++) {
        um_sequence *k = e->queue.passed[i]->waiting;
        k->skips += k->considered;
    }
}

/* Notes the first answer of the step that found no room or no page, if its tenant has nothing running or if it would
 * be a guest. */
static void note_starved(um_engine *e, um_sequence *j) {
    const bool may_be_first = j->group->tenant->n_running == 0 || e->n_running >= e->config.max_num_reqs;
    if (!e->starved && !e->queue.by_arrival && j->lacks && j->preemptions == 0 && may_be_first) e->starved = j;
}

static void admit(um_engine *e) {
    um_queue *q = &e->queue;
    um_sequence *j;
    for (; q->n_passed < UM_PASSED_OVER_MAX && (j = um_queue_next(q));) {
        const bool has_pages_left = um_pages_available(&e->pages) > 0;
        if (e->n_running == e->n_places) break;
        j->considered = has_place(e, j);
        if (j->considered && has_pages_left && try_admit(e, j)) {
            count_skips(e);
            continue;
        }
        if (!has_pages_left) j->lacks = LACKS_PAGES;
        if (j->considered) note_starved(e, j);
        if (j->considered && j->skips >= e->config.max_skips) break;
        if (!has_pages_left || (!j->considered && q->by_arrival)) break;
        um_queue_pass(q, j);
    }
    um_queue_restore(q);
}

/* Admits the answer that starved in the last step before the step is full. Where pages are short and its tenant has
 * none, the answer of the lowest rank loses its own, unless its tenant has no other. */
static void admit_starved(um_engine *e) {
    um_sequence *j = e->starved, *last = e->n_running ? e->running[e->n_running - 1] : NULL;
    e->starved = NULL;
    if (!j || e->n_running == e->n_places || !has_place(e, j)) return;
    if (j->lacks == LACKS_PAGES && j->group->tenant->n_running == 0 && last && last->layer > 0 &&
        last->priority >= j->priority)
        um_schedule_preempt(e, last);
    if (um_pages_available(&e->pages) > 0) (void)try_admit(e, j);
}

static bool any_denoises(const um_engine *e) {
    for (int32_t i = 0; i < e->n_running; i++)
        if (e->running[i]->req.nfe > e->running[i]->req.prefill_passes) return true;
    return false;
}

static bool any_stores_prompt(const um_engine *e) {
    for (int32_t i = 0; i < e->n_running; i++)
        if (e->running[i]->req.nfe == 0) return true;
    return false;
}

int32_t um_schedule_plan(um_engine *e) {
    um_pass *s = &e->space;
    s->n_seg = s->n_rows = s->n_tokens = 0;
    s->n_edits = s->n_tops = s->n_softs = s->n_soft_ids = s->n_selects = s->n_scratch = 0;
    e->n_refreshes = e->n_passes = e->n_chunk_tokens = 0;
    e->denoises = e->config.schedule_policy == UM_POLICY_MIXED && any_denoises(e);
    for (int32_t i = 0; i < e->n_running; i++) e->running[i]->in_pass = e->running[i]->considered = false;
    admit_starved(e);
    if (e->config.schedule_policy == UM_POLICY_PREFILL_FIRST) {
        /* While prompts can be stored, the step contains nothing else. */
        admit(e);
        if (s->n_seg || any_stores_prompt(e)) plan_running(e, true);
        if (s->n_seg == 0) plan_running(e, false);
        return s->n_seg;
    }
    plan_running(e, false);
    admit(e);
    return s->n_seg;
}
