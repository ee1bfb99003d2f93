/* The scheduler and the flat batch alone: requests that say what they need, and no model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/engine.h"

enum { JOBS = 8, PAGE = 4, POSITIONS = 256, TOKENS = 64 };

/* What a request needs of its next pass. */
typedef struct wish {
    int32_t tokens, least, slots;
    bool refresh;
    int32_t shared; /* leading positions that may come from others */
} wish;

typedef struct house {
    um_engine e;
    um_traits traits;
    um_compat compat;
    um_job job[JOBS];
    wish wish[JOBS];
    int32_t token[JOBS][POSITIONS];
    um_job *running[JOBS];
    int32_t saved[JOBS];
    um_segment seg[2 * JOBS];
    int32_t id[TOKENS], pos[TOKENS];
    um_row row[TOKENS];
} house;

static um_need need(const um_req *r) {
    const wish *w = (const wish *)r->state;
    return (um_need){.tokens = w->tokens, .least = w->least, .slots = w->slots, .refresh = w->refresh};
}

static void plan(um_req *r, um_pass *p) {
    const wish *w = (const wish *)r->state;
    int32_t n = UM_MIN(w->tokens, p->budget);
    um_pass_add(p, r, UM_PASS_DENOISE, 0, n, (um_visibility){.see = UM_SEE_FULL});
    p->partial = n < w->tokens;
}

static uint64_t share(const um_req *r, int32_t *most) {
    *most = ((const wish *)r->state)->shared;
    return *most ? 1 : 0;
}

static const um_strategy wishes = {.name = "wishes", .need = need, .plan = plan, .share = share};

static void open_house(house *h, int32_t max_reqs, int32_t budget, int32_t n_pages) {
    um_err err;
    *h = (house){
        .e = {.config = {.max_num_reqs = max_reqs, .max_skips = 2}, .running = h->running, .free_saved = h->saved}};
    um_engine *e = &h->e;
    e->waiting_tail = &e->waiting;
    e->space = (um_pass){.seg = h->seg, .id = h->id, .pos = h->pos, .row = h->row};
    e->room = (um_pass){.n_seg = 2 * JOBS, .n_rows = TOKENS, .n_tokens = budget, .page_size = PAGE};
    while (e->n_free_saved < max_reqs) {
        h->saved[e->n_free_saved] = e->n_free_saved;
        e->n_free_saved++;
    }
    assert_int_equal(um_pages_init(&e->pages, n_pages, PAGE, &err), UM_OK);
    for (int32_t i = 0; i < JOBS; i++) {
        um_job *j = &h->job[i];
        for (int32_t k = 0; k < POSITIONS; k++) h->token[i][k] = k;
        h->wish[i] = (wish){.tokens = 4, .least = 4, .slots = 4};
        *j = (um_job){.slot = -1, .n_answers = 1, .bound = {.slots_max = POSITIONS, .tables = 1}};
        j->req = (um_req){.strategy = &wishes,
                          .state = &h->wish[i],
                          .traits = &h->traits,
                          .compat = &h->compat,
                          .token = h->token[i],
                          .n_prompt = 4,
                          .cap = POSITIONS,
                          .adapter = -1};
        um_table_init(&j->table[0], POSITIONS / PAGE);
    }
}

static void close_house(house *h) {
    for (int32_t i = 0; i < JOBS; i++) {
        um_table_release(&h->job[i].table[0], &h->e.pages);
        um_table_deinit(&h->job[i].table[0]);
    }
    um_pages_deinit(&h->e.pages);
}

static void add(house *h, int32_t first, int32_t n) {
    for (int32_t i = first; i < first + n; i++) um_schedule_add(&h->e, &h->job[i]);
}

/* Who is in the step, as "0 2:6": a number behind the colon is a chunk's. A pass counts once it is whole. */
static void expect_step(house *h, const char *want) {
    char have[64] = "";
    size_t len = 0;
    int32_t n = um_schedule_plan(&h->e);
    for (int32_t i = 0; i < n; i++) {
        um_job *j = (um_job *)(void *)((char *)h->seg[i].req - offsetof(um_job, req));
        len += (size_t)snprintf(have + len, sizeof have - len, "%s%d", i ? " " : "", (int)(j - h->job));
        if (j->partial) len += (size_t)snprintf(have + len, sizeof have - len, ":%d", j->n_tokens);
        else j->req.nfe++;
    }
    assert_string_equal(have, want);
}

/* Requests 0..n-1 run and denoise. */
static void let_run(house *h, int32_t n) {
    add(h, 0, n);
    (void)um_schedule_plan(&h->e);
    assert_int_equal(h->e.n_running, n);
    for (int32_t i = 0; i < n; i++) h->job[i].req.nfe = 1;
}

/* ---- Places ------------------------------------------------------------------------------------------------------ */

static void a_full_house_admits_no_one(void **state) {
    (void)state;
    house h;
    open_house(&h, 2, TOKENS, 64);
    let_run(&h, 2);
    add(&h, 2, 1);
    int32_t used = um_pages_used(&h.e.pages);
    expect_step(&h, "0 1");
    assert_int_equal(um_pages_used(&h.e.pages), used);
    assert_int_equal(h.e.n_waiting, 1);
    close_house(&h);
}

static void a_free_place_admits_one_beside_those_that_run(void **state) {
    (void)state;
    house h;
    open_house(&h, 2, TOKENS, 64);
    let_run(&h, 1);
    add(&h, 1, 2);
    expect_step(&h, "0 1");
    assert_int_equal(h.e.n_waiting, 1);
    close_house(&h);
}

static void prefill_first_gives_prompts_a_step_of_their_own(void **state) {
    (void)state;
    house h;
    open_house(&h, 2, TOKENS, 64);
    h.e.config.schedule_policy = UM_POLICY_PREFILL_FIRST;
    let_run(&h, 1);
    add(&h, 1, 2);
    expect_step(&h, "1"); /* exactly one: the house is full then */
    expect_step(&h, "0 1");
    close_house(&h);
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

/* Those that denoise come first; a prompt takes what they leave, if that is a chunk at least. */
static void a_prompt_takes_what_the_step_has_left(void **state) {
    (void)state;
    for (int32_t least = 6; least <= 7; least++) {
        house h;
        open_house(&h, 4, 10, 64);
        let_run(&h, 1);
        h.wish[1] = (wish){.tokens = 20, .least = least, .slots = 20};
        add(&h, 1, 1);
        expect_step(&h, least == 6 ? "0 1:6" : "0");
        assert_int_equal(h.job[1].req.nfe, 0);
        close_house(&h);
    }
}

static void a_prompt_in_chunks_comes_behind_those_that_denoise(void **state) {
    (void)state;
    house h;
    open_house(&h, 4, 10, 64);
    h.wish[0] = (wish){.tokens = 20, .least = 2, .slots = 20};
    add(&h, 0, 1);
    expect_step(&h, "0:10");
    add(&h, 1, 1);
    h.wish[0].least = 8;
    expect_step(&h, "0:10"); /* none is left for 1 */
    h.wish[0].least = 2;
    h.job[0].req.nfe = 0;
    h.e.room.n_tokens = 24;
    expect_step(&h, "0 1");
    h.wish[0].tokens = 30;
    h.job[0].req.nfe = 0;
    expect_step(&h, "1 0:20"); /* 1 denoises now */
    close_house(&h);
}

/* Small requests behind one that does not fit may pass it, but only max_skips times in a row. */
static void a_waiting_request_is_passed_over_max_skips_times(void **state) {
    (void)state;
    house h;
    open_house(&h, JOBS, 10, 64);
    let_run(&h, 1);
    h.wish[1] = (wish){.tokens = 8, .least = 8, .slots = 8};
    add(&h, 1, 1);
    for (int32_t i = 2; i <= 3; i++) {
        add(&h, i, 1);
        expect_step(&h, i == 2 ? "0 2" : "0 3");
        um_schedule_leave(&h.e, &h.job[i]);
    }
    assert_int_equal(h.job[1].skips, 2);
    add(&h, 4, 1);
    expect_step(&h, "0"); /* 4 would fit, and waits behind 1 */
    um_schedule_leave(&h.e, &h.job[0]);
    expect_step(&h, "1");
    close_house(&h);
}

/* A running request that was passed over too often is asked first. */
static void an_overdue_request_is_asked_first(void **state) {
    (void)state;
    house h;
    open_house(&h, 2, 10, 64);
    let_run(&h, 2);
    h.wish[1].tokens = h.wish[1].least = 8;
    for (int32_t i = 0; i < 3; i++) expect_step(&h, "0");
    expect_step(&h, "1");
    expect_step(&h, "0");
    close_house(&h);
}

static void passes_over_everything_are_spread(void **state) {
    (void)state;
    house h;
    open_house(&h, 2, TOKENS, 64);
    h.e.config.max_refresh_per_step = 1;
    let_run(&h, 2);
    h.wish[0].refresh = h.wish[1].refresh = true;
    for (int32_t i = 0; i < 3; i++) expect_step(&h, "0");
    expect_step(&h, "1");
    h.wish[0].refresh = false;
    expect_step(&h, "0 1");
    close_house(&h);
}

/* ---- Pages ------------------------------------------------------------------------------------------------------- */

/* The request that arrived last gives its pages away, waits before those that came later, and starts over. */
static void the_last_to_arrive_loses_its_pages(void **state) {
    (void)state;
    house h;
    open_house(&h, 3, TOKENS, 4); /* one page stays free */
    let_run(&h, 3);
    add(&h, 3, 1);
    h.job[2].req.stored = 4;
    h.wish[0].slots = 12;
    expect_step(&h, "0 1");
    assert_int_equal(h.job[2].slot, -1);
    assert_int_equal(h.job[2].req.stored, 0);
    assert_int_equal(h.job[2].table[0].n, 0);
    assert_int_equal(h.job[2].preemptions, 1);
    assert_ptr_equal(h.e.waiting, &h.job[2]);
    assert_ptr_equal(h.job[2].next, &h.job[3]);
    close_house(&h);
}

/* Nobody takes the pages of one who came before. */
static void the_first_to_arrive_keeps_its_pages(void **state) {
    (void)state;
    house h;
    open_house(&h, 2, TOKENS, 3);
    let_run(&h, 2);
    h.wish[1].slots = 12;
    expect_step(&h, "0");
    assert_int_equal(h.job[1].slot, -1);
    assert_int_equal(h.job[0].table[0].n, 1);
    /* 1 comes back when all it can ever need is free, or when it is alone. */
    expect_step(&h, "0");
    um_schedule_leave(&h.e, &h.job[0]);
    um_table_release(&h.job[0].table[0], &h.e.pages);
    expect_step(&h, "1");
    assert_int_equal(h.job[1].table[0].n, 3);
    close_house(&h);
}

/* Only pages that are missing have to be free. */
static void shared_pages_need_no_room(void **state) {
    (void)state;
    house h;
    open_house(&h, 2, TOKENS, 5);
    h.wish[0] = (wish){.tokens = 4, .least = 4, .slots = 12, .shared = 8};
    h.wish[1] = h.wish[0];
    add(&h, 0, 1);
    expect_step(&h, "0");
    int32_t most;
    um_table_publish(&h.job[0].table[0], &h.e.pages, um_schedule_space(&h.e, &h.job[0], &most), h.token[0], 8);
    h.job[0].req.stored = 8;
    h.wish[0].slots = 12;
    add(&h, 1, 1);
    expect_step(&h, "0 1"); /* 3 pages of its own, 1 for 1 */
    assert_int_equal(h.job[1].req.stored, 8);
    assert_int_equal(um_pages_used(&h.e.pages), 4);
    close_house(&h);
}

static void who_leaves_gives_back_its_place(void **state) {
    (void)state;
    house h;
    open_house(&h, 1, TOKENS, 64);
    let_run(&h, 1);
    add(&h, 1, 2);
    expect_step(&h, "0");
    um_schedule_leave(&h.e, &h.job[1]); /* while it waits */
    um_schedule_leave(&h.e, &h.job[0]); /* while it runs */
    expect_step(&h, "2");
    um_schedule_leave(&h.e, &h.job[2]);
    expect_step(&h, "");
    assert_int_equal(h.e.n_running + h.e.n_waiting, 0);
    assert_int_equal(h.e.n_free_saved, 1);
    close_house(&h);
}

/* ---- Priorities -------------------------------------------------------------------------------------------------- */

static void expect_queue(const house *h, const char *want) {
    char have[64] = "";
    size_t len = 0;
    for (const um_job *j = h->e.waiting; j; j = j->next)
        len += (size_t)snprintf(have + len, sizeof have - len, "%s%d", len ? " " : "", (int)(j - h->job));
    assert_string_equal(have, want);
}

static void the_queue_is_in_order_of_priority_then_arrival(void **state) {
    (void)state;
    static const int32_t priority[JOBS] = {3, 0, 3, -2, 0, 7, -2, 3};
    house h;
    open_house(&h, 1, TOKENS, 64);
    for (int32_t i = 0; i < JOBS; i++) h.job[i].priority = priority[i];
    add(&h, 0, JOBS);
    expect_queue(&h, "3 6 1 4 0 2 7 5");
    for (int32_t i = 0; i < JOBS; i++) um_schedule_leave(&h.e, &h.job[i]);
    h.job[1].priority = -5;
    add(&h, 0, 2);
    expect_queue(&h, "1 0");
    close_house(&h);
}

/* Who ranks behind gives its pages away, though it came first, and waits behind those that came later. */
static void pages_are_taken_from_the_lowest_rank(void **state) {
    (void)state;
    house h;
    open_house(&h, 3, TOKENS, 4);
    h.job[0].priority = 1;
    let_run(&h, 2);
    expect_step(&h, "1 0");
    add(&h, 2, 1);
    expect_step(&h, "1 0 2");
    h.wish[2].slots = 12;
    expect_step(&h, "1 2");
    assert_int_equal(h.job[0].preemptions, 1);
    add(&h, 3, 1);
    expect_queue(&h, "3 0");
    close_house(&h);
}

/* ---- The flat batch ---------------------------------------------------------------------------------------------- */

/* Page p of 8 positions holds slots 8 p to 8 p + 7; rows, saves and blends count from the start of the step. */
static void a_batch_has_slots_of_pages(void **state) {
    (void)state;
    house h;
    int32_t slot[TOKENS], seen[TOKENS], save[2][2], blend = 7;
    float one = 1;
    um_span span[2];
    um_soft soft = {.at = 1, .n = 1, .id = &blend, .w = &one};
    um_batch b;
    open_house(&h, 2, TOKENS, 64);
    um_engine *e = &h.e;
    e->pages.page_size = 8;
    e->slot = slot;
    e->seen_end = seen;
    e->span = span;
    e->save = save;
    e->space.soft = &soft;
    um_visibility blocks = {.see = UM_SEE_BLOCK_CAUSAL, .block = 4};
    assert_true(um_table_grow(&h.job[0].table[0], &e->pages, 4));
    const int32_t page[] = {h.job[0].table[0].page[3], h.job[0].table[0].page[1]};
    for (int32_t i = 0; i < 2; i++) h.job[i].req.page[0] = page;
    um_pass_add(&e->space, &h.job[0].req, UM_PASS_PREFILL, 0, 8, blocks);
    um_segment *s = um_pass_add(&e->space, &h.job[1].req, UM_PASS_DENOISE, 4, 12, blocks);
    s->save_src = 3;
    s->save_to = 1;
    s->soft = &soft;
    s->n_soft = 1;
    um_batch_build(e, &b);
    for (int32_t i = 0; i < 8; i++) assert_int_equal(b.slot[i], 8 * page[0] + i);
    for (int32_t i = 0; i < 4; i++) assert_int_equal(b.slot[8 + i], 8 * page[0] + 4 + i);
    for (int32_t i = 4; i < 8; i++) assert_int_equal(b.slot[8 + i], 8 * page[1] + i - 4);
    for (int32_t i = 0; i < 16; i++) assert_int_equal(b.seen_end[i], i < 4 ? 4 : i < 12 ? 8 : 12);
    assert_int_equal(b.span[1].first, 8);
    assert_int_equal(b.n_saves, 1);
    assert_int_equal(b.save[0][0], 11);
    assert_int_equal(b.save[0][1], 1);
    assert_int_equal(b.soft[0].at, 9);
    close_house(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_house_admits_no_one),
        cmocka_unit_test(a_free_place_admits_one_beside_those_that_run),
        cmocka_unit_test(prefill_first_gives_prompts_a_step_of_their_own),
        cmocka_unit_test(a_prompt_takes_what_the_step_has_left),
        cmocka_unit_test(a_prompt_in_chunks_comes_behind_those_that_denoise),
        cmocka_unit_test(a_waiting_request_is_passed_over_max_skips_times),
        cmocka_unit_test(an_overdue_request_is_asked_first),
        cmocka_unit_test(passes_over_everything_are_spread),
        cmocka_unit_test(the_last_to_arrive_loses_its_pages),
        cmocka_unit_test(the_first_to_arrive_keeps_its_pages),
        cmocka_unit_test(shared_pages_need_no_room),
        cmocka_unit_test(who_leaves_gives_back_its_place),
        cmocka_unit_test(the_queue_is_in_order_of_priority_then_arrival),
        cmocka_unit_test(pages_are_taken_from_the_lowest_rank),
        cmocka_unit_test(a_batch_has_slots_of_pages),
    };
    return cmocka_run_group_tests_name("scheduler", tests, NULL, NULL);
}
