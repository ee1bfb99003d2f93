/* The scheduler: it decides which answers get a pass in a step.
 *
 * Answers are ranked by priority, and by arrival among equal priorities. Running answers are considered first, in three
 * turns: those that were passed over too often, those that denoise, and those that still store their prompts. The last
 * group shares the rest of the step and feeds its prompts in chunks where the strategy supports it. Then waiting
 * answers are admitted into the remaining capacity. When a pass finds no free page, the running answer of the lowest
 * rank is preempted: it loses its pages, waits again, and later continues from its tokens to the same result.
 *
 * No answer starves. A request that can't run alone is refused when it is added. The answer of the first rank always
 * gets its pages. An answer is passed over for one of lower rank at most max_skips times in a row. */
#include "engine/engine.h"

enum { PASSED_OVER_MAX = 16 }; /* waiting answers that may be passed over in one step */

/* ---- Capacity of the step
 * -------------------------------------------------------------------------------------------- */

static int32_t scratch_pages(const um_engine *e, int32_t positions) {
    return UM_CEIL_DIV(positions, e->capacity.page_size);
}

/* Returns whether a pass of the needed size, or a chunk of it, fits into the step in addition to the planned passes. */
static bool fits(const um_engine *e, const um_sequence *j, const um_need *n) {
    const um_pass *used = &e->space, *capacity = &e->capacity;
    int32_t tops = n->rows * j->req.n_top_asked;
    if (n->refresh && e->config.max_refresh_per_step && e->n_refreshes >= e->config.max_refresh_per_step) return false;
    return used->n_tokens + UM_MIN(n->tokens, n->least) <= capacity->n_tokens &&
           used->n_rows + n->rows <= capacity->n_rows && used->n_tops + tops <= capacity->n_tops &&
           used->n_edits + n->edits <= capacity->n_edits && used->n_soft_ids + n->soft <= capacity->n_soft_ids &&
           used->n_scratch + scratch_pages(e, n->scratch) <= capacity->n_scratch && used->n_seg + 2 <= capacity->n_seg;
}

/* ---- Pages ------------------------------------------------------------------------------------------------------- */

uint64_t um_schedule_namespace(const um_engine *e, const um_sequence *j, int32_t *most) {
    const um_req *q = &j->req;
    uint64_t kind = q->strategy->share ? q->strategy->share(q, most) : 0;
    if (!q->strategy->share) *most = 0;
    if (!kind || e->config.disable_prefix_caching) return 0;
    uint64_t name_space = um_rng_key(kind, (uint64_t)(q->adapter + 1), j->cache_salt, 0);
    return name_space ? name_space : 1;
}

static void set_page_tables(um_sequence *j) {
    for (int i = 0; i < 2; i++) j->req.page[i] = j->table[i].page;
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
    return true;
}

static void release_pages(um_engine *e, um_sequence *j) {
    for (int i = 0; i < j->bound.tables; i++) um_table_release(&j->table[i], &e->pages);
    j->req.stored = 0;
}

static void remove_running(um_engine *e, um_sequence *j) {
    memmove(&e->running[j->slot], &e->running[j->slot + 1],
            (size_t)(e->n_running - 1 - j->slot) * sizeof(e->running[0]));
    e->n_running--;
    for (int32_t i = j->slot; i < e->n_running; i++) e->running[i]->slot = i;
    e->free_saved[e->n_free_saved++] = j->req.saved;
    j->slot = -1;
}

static bool ranks_before(const um_sequence *a, const um_sequence *b) {
    return a->priority != b->priority ? a->priority < b->priority : a->arrival < b->arrival;
}

/* Inserts the answer by rank. A preempted answer is thereby readmitted before newer answers of its priority. A new
 * answer usually belongs at the end, which is found without a search. */
static void insert_waiting(um_engine *e, um_sequence *j) {
    bool goes_last = j->arrival + 1 == e->next_arrival && j->priority >= e->max_waiting_priority;
    um_sequence **p = goes_last ? e->waiting_tail : &e->waiting;
    while (*p && ranks_before(*p, j)) p = &(*p)->next;
    e->max_waiting_priority = UM_MAX(e->max_waiting_priority, j->priority);
    j->next = *p;
    *p = j;
    if (!j->next) e->waiting_tail = &j->next;
    e->n_waiting++;
}

void um_schedule_add(um_engine *e, um_sequence *j) {
    j->arrival = e->next_arrival++;
    insert_waiting(e, j);
}

/* Removes the answer that *p points at from the queue. */
static void unlink_waiting(um_engine *e, um_sequence **p) {
    um_sequence *j = *p;
    *p = j->next;
    if (!*p) e->waiting_tail = p;
    j->next = NULL;
    if (--e->n_waiting == 0) e->max_waiting_priority = INT32_MIN;
}

static void remove_waiting(um_engine *e, const um_sequence *j) {
    um_sequence **p = &e->waiting;
    while (*p != j) p = &(*p)->next;
    unlink_waiting(e, p);
}

static void clear_first(um_sequence *j, const um_sequence *gone) {
    if (j->first == gone) j->first = NULL;
}

void um_schedule_leave(um_engine *e, um_sequence *j) {
    if (j->slot >= 0) remove_running(e, j);
    else remove_waiting(e, j);
    if (j->n_answers == 1) return;
    for (um_sequence *k = e->waiting; k; k = k->next) clear_first(k, j);
    for (int32_t i = 0; i < e->n_running; i++) clear_first(e->running[i], j);
}

void um_schedule_preempt(um_engine *e, um_sequence *j) {
    assert(!j->in_pass);
    release_pages(e, j);
    if (j->req.strategy->preempt) j->req.strategy->preempt(&j->req);
    remove_running(e, j);
    insert_waiting(e, j);
    j->preemptions++;
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
static void plan_pass(um_engine *e, um_sequence *j) {
    um_pass *all = &e->space;
    um_pass own = {.seg = all->seg + all->n_seg,
                   .row = all->row + all->n_rows,
                   .id = all->id + all->n_tokens,
                   .pos = all->pos + all->n_tokens,
                   .edit = all->edit + all->n_edits,
                   .top = all->top + all->n_tops,
                   .soft = all->soft + all->n_softs,
                   .soft_id = all->soft_id + all->n_soft_ids,
                   .soft_w = all->soft_w + all->n_soft_ids,
                   .select = all->select + all->n_selects,
                   .scratch = all->scratch + all->n_scratch,
                   .page_size = e->capacity.page_size,
                   .first_scratch = e->capacity.first_scratch + all->n_scratch,
                   .budget = e->capacity.n_tokens - all->n_tokens};
    set_page_tables(j);
    j->req.strategy->plan(&j->req, &own);
    assert(own.n_seg > 0 && own.n_tokens <= own.budget && (!own.partial || own.n_rows == 0));
    j->in_pass = true;
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
    plan_pass(e, j);
    return true;
}

/* The phases in which running answers are considered: first those that were passed over too often, then those that
 * denoise, then those that store their prompts. */
enum { OVERDUE, DENOISING, STORING, N_PHASES };

static int phase_of(const um_engine *e, const um_sequence *j) {
    if (j->skips > e->config.max_skips) return OVERDUE;
    return j->req.nfe > j->req.prefill_passes ? DENOISING : STORING;
}

static void plan_running(um_engine *e, bool prefill_only) {
    for (int phase = 0; phase < N_PHASES; phase++) {
        for (int32_t i = 0; i < e->n_running; i++) {
            um_sequence *j = e->running[i];
            if (j->considered || phase_of(e, j) != phase || (prefill_only && j->req.nfe > 0)) continue;
            int32_t before = e->n_running;
            (void)try_running(e, j);
            if (e->n_running != before) i = -1; /* answers were preempted, so the indices have changed */
        }
    }
}

/* ---- Waiting requests -------------------------------------------------------------------------------------------- */

/* Fills j's page table with the keys that other answers have stored. Returns false when the first answer of the same
 * request has not stored the prompt yet; j then waits for it. */
static bool share_stored_keys(um_engine *e, um_sequence *j) {
    int32_t most = 0;
    um_req *q = &j->req;
    const um_sequence *first = j->first;
    uint64_t name_space = um_schedule_namespace(e, j, &most);
    if (first && most > 0 && q->nfe == 0) {
        if (first->req.stored < most) return false;
        um_table_fork(&j->table[0], &first->table[0], &e->pages, most);
        q->stored = most;
    } else if (name_space && j->bound.tables == 1) {
        q->stored = um_table_reuse_prefix(&j->table[0], &e->pages, name_space, q->token, most, most);
        j->looked_up = most;
    }
    return true;
}

/* Returns whether enough pages are available to admit j: those of its next pass, or, when j was preempted before, all
 * that it can ever need, so that it is not preempted again and again. */
static bool has_pages(const um_engine *e, const um_sequence *j, const um_need *need) {
    int32_t slots = j->preemptions && e->n_running ? j->bound.slots_max : need->slots, pages = 0;
    for (int i = 0; i < j->bound.tables; i++) pages += UM_MAX(0, um_pages_for(&e->pages, slots) - j->table[i].n);
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
    int32_t at = e->n_running++;
    while (at > 0 && ranks_before(j, e->running[at - 1])) {
        e->running[at] = e->running[at - 1];
        e->running[at]->slot = at;
        at--;
    }
    e->running[at] = j;
    j->slot = at;
}

/* Admits the waiting answer *p if the step has room for it and the pool has its pages. */
static bool try_admit(um_engine *e, um_sequence **p) {
    um_sequence *j = *p;
    if (!share_stored_keys(e, j)) return false;
    um_need need = j->req.strategy->need(&j->req);
    if (!fits(e, j, &need) || !has_pages(e, j, &need) || !allocate_pages(e, j, &need)) {
        release_pages(e, j);
        return false;
    }
    unlink_waiting(e, p);
    e->n_refreshes += need.refresh;
    j->skips = 0;
    insert_running(e, j);
    j->considered = true;
    plan_pass(e, j);
    return true;
}

static void admit(um_engine *e) {
    int passed = 0;
    for (um_sequence **p = &e->waiting; *p && passed < PASSED_OVER_MAX;) {
        if (e->n_running == e->config.max_num_reqs || um_pages_available(&e->pages) == 0) break;
        um_sequence *j = *p;
        if (try_admit(e, p)) {
            /* The answers before j in the queue were passed over. */
            for (um_sequence *k = e->waiting; passed && k != *p; k = k->next) k->skips++;
            continue;
        }
        if (j->skips >= e->config.max_skips) break;
        passed++;
        p = &j->next;
    }
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
    e->n_refreshes = 0;
    for (int32_t i = 0; i < e->n_running; i++) e->running[i]->in_pass = e->running[i]->considered = false;
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
