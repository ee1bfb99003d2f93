/* Which requests run, and in which step. First come, first served; prefill, denoise and commit passes share a batch. */
#include "engine/engine.h"

static bool take_pages(um_engine *e, um_job *j) {
    int32_t pages = um_pages_for(&e->pages, j->bound.slots_max);
    if (pages * j->bound.tables > um_pages_available(&e->pages)) return false;
    for (int i = 0; i < j->bound.tables; i++) {
        bool ok = um_table_grow(&j->table[i], &e->pages, pages);
        assert(ok);
        (void)ok;
        j->req.page[i] = j->table[i].page;
    }
    return true;
}

/* A request takes every page it can ever need when it is admitted, so it never waits for memory halfway. */
void um_schedule_admit(um_engine *e) {
    while (e->waiting && e->n_running < e->config.max_num_reqs && take_pages(e, e->waiting)) {
        um_job *j = e->waiting;
        e->waiting = j->next;
        if (!e->waiting) e->waiting_tail = &e->waiting;
        e->n_waiting--;
        j->next = NULL;
        j->started = um_now();
        j->req.saved = e->free_saved[--e->n_free_saved];
        j->slot = e->n_running;
        e->running[e->n_running++] = j;
    }
}

/* Plans one request behind those already in e->space. Rows and saves count from its first token. */
static void plan_job(um_engine *e, um_job *j) {
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
                   .page_size = e->room.page_size,
                   .first_scratch = e->room.first_scratch + all->n_scratch,
                   .budget = e->room.n_tokens - all->n_tokens};
    j->req.strategy->plan(&j->req, &own);
    assert(own.n_seg > 0);
    j->in_pass = true;
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

int32_t um_schedule_plan(um_engine *e) {
    int32_t budget = e->config.max_num_batched_tokens, taken = 0, first = e->next_first;
    um_pass *s = &e->space;
    s->n_seg = s->n_rows = s->n_tokens = 0;
    s->n_edits = s->n_tops = s->n_softs = s->n_soft_ids = s->n_selects = s->n_scratch = 0;
    for (int32_t i = 0; i < e->n_running; i++) {
        int32_t k = (first + i) % e->n_running;
        um_job *j = e->running[k];
        j->in_pass = false;
        um_need need = j->req.strategy->need(&j->req);
        if (e->space.n_tokens + need.tokens > budget || e->space.n_rows + need.rows > budget) {
            /* The first that does not fit is the first of the next step. */
            if (taken == i) e->next_first = k;
            continue;
        }
        plan_job(e, j);
        taken++;
    }
    if (taken == e->n_running) e->next_first = 0;
    return taken;
}
