/* Tests of the scheduler and the flat batch, without a model. A test sets the needs of each request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/engine.h"

enum { JOBS = 8, PAGE = 4, POSITIONS = 256, TOKENS = 64, QUANTUM = 4 * POSITIONS };

/* The needs of a request in its next pass. */
typedef struct demand {
    int32_t tokens, least, slots;
    bool refresh;
    int32_t shared; /* leading positions whose keys may come from other requests */
} demand;

typedef struct fixture {
    um_engine e;
    um_traits traits;
    um_compat compat;
    um_sequence job[JOBS];
    demand demand[JOBS];
    int32_t token[JOBS][POSITIONS];
    um_sequence *running[JOBS];
    int32_t saved[JOBS];
    um_segment seg[2 * JOBS];
    int32_t id[TOKENS], pos[TOKENS], vis[TOKENS];
    um_row row[TOKENS];
    /* The other arrays of a pass. No request of these tests writes to them. */
    um_edit edit[1];
    um_top top[1];
    um_soft soft[1];
    int32_t soft_id[1], scratch[1];
    float soft_w[1];
    um_kv_select select[1];
} fixture;

static um_need need(const um_req *r) {
    const demand *w = (const demand *)r->state;
    return (um_need){.tokens = w->tokens, .least = w->least, .slots = w->slots, .refresh = w->refresh};
}

static void plan(um_req *r, um_pass *p) {
    const demand *w = (const demand *)r->state;
    int32_t n = UM_MIN(w->tokens, p->budget);
    um_pass_add(p, r, UM_PASS_DENOISE, 0, n, (um_visibility){.see = UM_SEE_FULL});
    p->partial = n < w->tokens;
}

static uint64_t share(const um_req *r, int32_t *most) {
    *most = ((const demand *)r->state)->shared;
    return *most ? 1 : 0;
}

static const um_strategy scripted = {.name = "scripted", .need = need, .plan = plan, .share = share};

static void fixture_init(fixture *h, int32_t max_reqs, int32_t budget, int32_t n_pages) {
    um_err err;
    *h = (fixture){
        .e = {.config = {.max_num_reqs = max_reqs, .max_skips = 2}, .running = h->running, .free_saved = h->saved}};
    um_engine *e = &h->e;
    e->n_places = max_reqs;
    um_queue_init(&e->queue, QUANTUM, false);
    e->space = (um_pass){.seg = h->seg,
                         .id = h->id,
                         .pos = h->pos,
                         .vis = h->vis,
                         .row = h->row,
                         .edit = h->edit,
                         .top = h->top,
                         .soft = h->soft,
                         .soft_id = h->soft_id,
                         .soft_w = h->soft_w,
                         .select = h->select,
                         .scratch = h->scratch};
    e->capacity = (um_pass){.n_seg = 2 * JOBS, .n_rows = TOKENS, .n_tokens = budget, .page_size = PAGE};
    while (e->n_free_saved < JOBS) {
        h->saved[e->n_free_saved] = e->n_free_saved;
        e->n_free_saved++;
    }
    assert_int_equal(um_pages_init(&e->pages, n_pages, PAGE, &err), UM_OK);
    for (int32_t i = 0; i < JOBS; i++) {
        um_sequence *j = &h->job[i];
        for (int32_t k = 0; k < POSITIONS; k++) h->token[i][k] = k;
        h->demand[i] = (demand){.tokens = 4, .least = 4, .slots = 4};
        *j = (um_sequence){.slot = -1, .n_answers = 1, .bound = {.slots_max = POSITIONS, .tables = 1}};
        j->req = (um_req){.strategy = &scripted,
                          .state = &h->demand[i],
                          .traits = &h->traits,
                          .compat = &h->compat,
                          .token = h->token[i],
                          .n_prompt = 4,
                          .cap = POSITIONS,
                          .adapter = -1};
        um_table_init(&j->table[0], POSITIONS / PAGE);
    }
}

static void fixture_free(fixture *h) {
    for (int32_t i = 0; i < JOBS; i++) {
        if (h->job[i].group) um_schedule_leave(&h->e, &h->job[i]);
        um_table_release(&h->job[i].table[0], &h->e.pages);
        um_table_deinit(&h->job[i].table[0]);
    }
    um_pages_deinit(&h->e.pages);
}

static void add(fixture *h, int32_t first, int32_t n) {
    for (int32_t i = first; i < first + n; i++) um_schedule_add(&h->e, &h->job[i], NULL);
}

/* Plans a step and compares its requests with `want`, for example "0 2:6". A number after a colon is the number of
 * tokens of a chunk. Complete passes are counted in nfe, chunks are not. */
static void expect_step(fixture *h, const char *want) {
    char have[64] = "";
    size_t len = 0;
    int32_t n = um_schedule_plan(&h->e);
    for (int32_t i = 0; i < n; i++) {
        um_sequence *j = (um_sequence *)(void *)((char *)h->seg[i].req - offsetof(um_sequence, req));
        len += (size_t)snprintf(have + len, sizeof have - len, "%s%d", i ? " " : "", (int)(j - h->job));
        if (j->partial) len += (size_t)snprintf(have + len, sizeof have - len, ":%d", j->n_tokens);
        else j->req.nfe++;
    }
    assert_string_equal(have, want);
}

/* Compares the order in which the waiting requests are admitted with `want`. */
static void expect_queue(fixture *h, const char *want) {
    char have[64] = "";
    size_t len = 0;
    for (um_sequence *j; (j = um_queue_next(&h->e.queue)); um_queue_pass(&h->e.queue, j))
        len += (size_t)snprintf(have + len, sizeof have - len, "%s%d", len ? " " : "", (int)(j - h->job));
    um_queue_restore(&h->e.queue);
    assert_string_equal(have, want);
}

/* Makes requests 0..n-1 run and denoise. */
static void run_first(fixture *h, int32_t n) {
    add(h, 0, n);
    (void)um_schedule_plan(&h->e);
    assert_int_equal(h->e.n_running, n);
    for (int32_t i = 0; i < n; i++) h->job[i].req.nfe = 1;
}

/* ---- Slots ------------------------------------------------------------------------------------------------------- */

static void a_full_engine_admits_no_request(void **state) {
    (void)state;
    fixture h;
    fixture_init(&h, 2, TOKENS, 64);
    run_first(&h, 2);
    add(&h, 2, 1);
    int32_t used = um_pages_used(&h.e.pages);
    expect_step(&h, "0 1");
    assert_int_equal(um_pages_used(&h.e.pages), used);
    assert_int_equal(h.e.queue.n_waiting, 1);
    fixture_free(&h);
}

static void a_free_slot_admits_one_request(void **state) {
    (void)state;
    fixture h;
    fixture_init(&h, 2, TOKENS, 64);
    run_first(&h, 1);
    add(&h, 1, 2);
    expect_step(&h, "0 1");
    assert_int_equal(h.e.queue.n_waiting, 1);
    fixture_free(&h);
}

static void prefill_first_gives_prompts_a_step_of_their_own(void **state) {
    (void)state;
    fixture h;
    fixture_init(&h, 2, TOKENS, 64);
    h.e.config.schedule_policy = UM_POLICY_PREFILL_FIRST;
    run_first(&h, 1);
    add(&h, 1, 2);
    expect_step(&h, "1"); /* request 2 waits, because both slots are taken */
    expect_step(&h, "0 1");
    fixture_free(&h);
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

/* Requests that denoise come first. A prompt gets the rest of the step if a chunk fits into it. */
static void a_prompt_uses_the_rest_of_the_step(void **state) {
    (void)state;
    for (int32_t least = 6; least <= 7; least++) {
        fixture h;
        fixture_init(&h, 4, 10, 64);
        run_first(&h, 1);
        h.demand[1] = (demand){.tokens = 20, .least = least, .slots = 20};
        add(&h, 1, 1);
        expect_step(&h, least == 6 ? "0 1:6" : "0");
        assert_int_equal(h.job[1].req.nfe, 0);
        fixture_free(&h);
    }
}

static void denoising_requests_come_before_prompt_chunks(void **state) {
    (void)state;
    fixture h;
    fixture_init(&h, 4, 10, 64);
    h.demand[0] = (demand){.tokens = 20, .least = 2, .slots = 20};
    add(&h, 0, 1);
    expect_step(&h, "0:10");
    add(&h, 1, 1);
    h.demand[0].least = 8;
    expect_step(&h, "0:10"); /* no tokens are left for 1 */
    h.demand[0].least = 2;
    h.job[0].req.nfe = 0;
    h.e.capacity.n_tokens = 24;
    expect_step(&h, "0 1");
    h.demand[0].tokens = 30;
    h.job[0].req.nfe = 0;
    expect_step(&h, "1 0:20"); /* 1 now denoises */
    fixture_free(&h);
}

/* Small requests may overtake a waiting request that does not fit, but at most max_skips times in a row. */
static void a_waiting_request_is_passed_over_max_skips_times(void **state) {
    (void)state;
    fixture h;
    fixture_init(&h, JOBS, 10, 64);
    run_first(&h, 1);
    h.demand[1] = (demand){.tokens = 8, .least = 8, .slots = 8};
    add(&h, 1, 1);
    for (int32_t i = 2; i <= 3; i++) {
        add(&h, i, 1);
        expect_step(&h, i == 2 ? "0 2" : "0 3");
        um_schedule_leave(&h.e, &h.job[i]);
    }
    assert_int_equal(h.job[1].skips, 2);
    add(&h, 4, 1);
    expect_step(&h, "0"); /* 4 would fit, but may not overtake 1 any more */
    um_schedule_leave(&h.e, &h.job[0]);
    expect_step(&h, "1");
    fixture_free(&h);
}

/* A running request that was passed over too often is considered first. */
static void an_overdue_request_is_considered_first(void **state) {
    (void)state;
    fixture h;
    fixture_init(&h, 2, 10, 64);
    run_first(&h, 2);
    h.demand[1].tokens = h.demand[1].least = 8;
    for (int32_t i = 0; i < 3; i++) expect_step(&h, "0");
    expect_step(&h, "1");
    expect_step(&h, "0");
    fixture_free(&h);
}

/* Beside an answer that denoises, prompts share a limited number of tokens; each step stores some of them. */
static void chunks_are_limited_beside_running_blocks(void **state) {
    (void)state;
    fixture h;
    fixture_init(&h, 4, TOKENS, 64);
    h.e.config.chunked_prefill_size = 10;
    h.demand[0] = (demand){.tokens = 30, .least = 2, .slots = 4};
    add(&h, 0, 1);
    expect_step(&h, "0"); /* nothing denoises yet */
    h.demand[0] = (demand){.tokens = 4, .least = 4, .slots = 4};
    for (int32_t i = 1; i < 4; i++) h.demand[i] = (demand){.tokens = 16, .least = 2, .slots = 4};
    add(&h, 1, 2);
    expect_step(&h, "0 1:10");
    h.demand[1].tokens = 7;
    expect_step(&h, "0 1 2:3");
    h.demand[1] = (demand){.tokens = 4, .least = 4, .slots = 4};
    h.demand[2].tokens = 11;
    expect_step(&h, "0 1 2:10");
    h.demand[2] = (demand){.tokens = 20, .least = 12, .slots = 4};
    expect_step(&h, "0 1 2:12"); /* the smallest chunk that is possible */
    h.e.config.schedule_policy = UM_POLICY_PREFILL_FIRST;
    expect_step(&h, "2"); /* nothing denoises in this step */
    fixture_free(&h);
}

static void refreshes_are_limited_per_step(void **state) {
    (void)state;
    fixture h;
    fixture_init(&h, 2, TOKENS, 64);
    h.e.config.max_refresh_per_step = 1;
    run_first(&h, 2);
    h.demand[0].refresh = h.demand[1].refresh = true;
    for (int32_t i = 0; i < 3; i++) expect_step(&h, "0");
    expect_step(&h, "1");
    h.demand[0].refresh = false;
    expect_step(&h, "0 1");
    fixture_free(&h);
}

/* ---- Pages ------------------------------------------------------------------------------------------------------- */

/* The running request that arrived last loses its pages. It waits before requests that arrived later, and starts over.
 */
static void the_last_to_arrive_is_preempted(void **state) {
    (void)state;
    fixture h;
    fixture_init(&h, 3, TOKENS, 4); /* one page stays free */
    run_first(&h, 3);
    add(&h, 3, 1);
    h.job[2].req.stored = 4;
    h.demand[0].slots = 12;
    expect_step(&h, "0 1");
    assert_int_equal(h.job[2].slot, -1);
    assert_int_equal(h.job[2].req.stored, 0);
    assert_int_equal(h.job[2].table[0].n, 0);
    assert_int_equal(h.job[2].preemptions, 1);
    expect_queue(&h, "2 3");
    fixture_free(&h);
}

/* A request does not take the pages of one that arrived earlier. It loses its own. */
static void the_first_to_arrive_keeps_its_pages(void **state) {
    (void)state;
    fixture h;
    fixture_init(&h, 2, TOKENS, 3);
    run_first(&h, 2);
    h.demand[1].slots = 12;
    expect_step(&h, "0");
    assert_int_equal(h.job[1].slot, -1);
    assert_int_equal(h.job[0].table[0].n, 1);
    /* 1 is readmitted when all pages that it can ever need are free, or when no other request runs. */
    expect_step(&h, "0");
    um_schedule_leave(&h.e, &h.job[0]);
    um_table_release(&h.job[0].table[0], &h.e.pages);
    expect_step(&h, "1");
    assert_int_equal(h.job[1].table[0].n, 3);
    fixture_free(&h);
}

/* To admit a request, only pages that it does not share have to be free. */
static void shared_pages_need_no_room(void **state) {
    (void)state;
    fixture h;
    fixture_init(&h, 2, TOKENS, 5);
    h.demand[0] = (demand){.tokens = 4, .least = 4, .slots = 12, .shared = 8};
    h.demand[1] = h.demand[0];
    add(&h, 0, 1);
    expect_step(&h, "0");
    int32_t most;
    um_table_publish(&h.job[0].table[0], &h.e.pages, um_schedule_namespace(&h.e, &h.job[0], &most), h.token[0], 8);
    h.job[0].req.stored = 8;
    h.demand[0].slots = 12;
    add(&h, 1, 1);
    expect_step(&h, "0 1"); /* 0 has 3 pages, and 1 needs one more */
    assert_int_equal(h.job[1].req.stored, 8);
    assert_int_equal(um_pages_used(&h.e.pages), 4);
    fixture_free(&h);
}

static void a_request_that_leaves_frees_its_slot(void **state) {
    (void)state;
    fixture h;
    fixture_init(&h, 1, TOKENS, 64);
    run_first(&h, 1);
    add(&h, 1, 2);
    expect_step(&h, "0");
    um_schedule_leave(&h.e, &h.job[1]); /* while it waits */
    um_schedule_leave(&h.e, &h.job[0]); /* while it runs */
    expect_step(&h, "2");
    um_schedule_leave(&h.e, &h.job[2]);
    expect_step(&h, "");
    assert_int_equal(h.e.n_running + h.e.queue.n_waiting, 0);
    assert_int_equal(h.e.n_free_saved, JOBS);
    fixture_free(&h);
}

/* ---- Priorities -------------------------------------------------------------------------------------------------- */

static void the_queue_is_in_order_of_priority_then_arrival(void **state) {
    (void)state;
    static const int32_t priority[JOBS] = {3, 0, 3, -2, 0, 7, -2, 3};
    fixture h;
    fixture_init(&h, 1, TOKENS, 64);
    for (int32_t i = 0; i < JOBS; i++) h.job[i].priority = priority[i];
    add(&h, 0, JOBS);
    expect_queue(&h, "3 6 1 4 0 2 7 5");
    for (int32_t i = 0; i < JOBS; i++) um_schedule_leave(&h.e, &h.job[i]);
    h.job[1].priority = -5;
    add(&h, 0, 2);
    expect_queue(&h, "1 0");
    fixture_free(&h);
}

/* The request with the lowest priority loses its pages although it arrived first. It waits behind later requests. */
static void the_lowest_rank_is_preempted(void **state) {
    (void)state;
    fixture h;
    fixture_init(&h, 3, TOKENS, 4);
    h.job[0].priority = 1;
    run_first(&h, 2);
    expect_step(&h, "1 0");
    add(&h, 2, 1);
    expect_step(&h, "1 0 2");
    h.demand[2].slots = 12;
    expect_step(&h, "1 2");
    assert_int_equal(h.job[0].preemptions, 1);
    add(&h, 3, 1);
    expect_queue(&h, "3 0");
    fixture_free(&h);
}

/* ---- Tenants ----------------------------------------------------------------------------------------------------- */

/* Adds requests 0 and 1 with two answers each, and 2 and 3, all of the tenants given: jobs 0 1, 2 3, 4, 5. */
static void add_groups(fixture *h, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    const uint64_t tenant[] = {a, a, b, b, c, d};
    for (int32_t i = 0; i < 6; i++) h->job[i].tenant = tenant[i];
    for (int32_t i = 0; i < 6; i++) um_schedule_add(&h->e, &h->job[i], i == 1 || i == 3 ? h->job[i - 1].group : NULL);
}

static void end_all(fixture *h) {
    for (int32_t i = 0; i < JOBS; i++)
        if (h->job[i].group) um_schedule_leave(&h->e, &h->job[i]);
}

static void expect_admissions(fixture *h, const char *want) {
    char have[64] = "";
    size_t len = 0;
    for (um_sequence *j; (j = um_queue_next(&h->e.queue)); um_queue_start(&h->e.queue, j)) {
        j->slot = 0;
        len += (size_t)snprintf(have + len, sizeof have - len, "%s%d", len ? " " : "", (int)(j - h->job));
    }
    for (int32_t i = 0; i < JOBS; i++) {
        if (h->job[i].group) um_queue_end(&h->e.queue, &h->job[i], true);
        h->job[i].slot = -1;
    }
    assert_string_equal(have, want);
}

/* Each tenant gets its first answer, then each of its requests, before any request gets its second one. */
static void tenants_and_requests_take_turns(void **state) {
    (void)state;
    fixture h;
    fixture_init(&h, 1, TOKENS, 64);
    add_groups(&h, 1, 1, 1, 2);
    expect_admissions(&h, "0 5 2 4 1 3");
    add_groups(&h, 1, 1, 2, 3);
    expect_admissions(&h, "0 4 5 2 1 3");
    h.e.queue.by_arrival = true;
    add_groups(&h, 1, 1, 1, 2);
    expect_admissions(&h, "0 1 2 3 4 5");
    assert_null(h.e.queue.level);
    fixture_free(&h);
}

/* The credit of a turn lets a tenant with short answers go on, while one with long answers gets one. */
static void a_turn_is_worth_its_quantum(void **state) {
    (void)state;
    fixture h;
    fixture_init(&h, 1, TOKENS, 64);
    h.e.queue.quantum = 100;
    for (int32_t i = 0; i < JOBS; i++) h.job[i].req.limit = i < 4 ? 50 : 20;
    for (int32_t i = 0; i < JOBS; i++) h.job[i].tenant = i < 4;
    add(&h, 0, JOBS);
    expect_admissions(&h, "0 4 1 2 5 6 7 3");
    fixture_free(&h);
}

/* A priority goes before any tenant's turn. */
static void a_priority_comes_before_a_turn(void **state) {
    (void)state;
    fixture h;
    fixture_init(&h, 1, TOKENS, 64);
    h.job[1].priority = h.job[2].priority = -1;
    h.job[1].tenant = h.job[2].tenant = 1;
    h.job[0].tenant = 2;
    add(&h, 0, 3);
    expect_queue(&h, "1 2 0");
    end_all(&h);
    fixture_free(&h);
}

/* With two places, a tenant that has nothing running gets a third one, and the second answer of the other pauses. */
static void a_guest_takes_turns_with_the_rest(void **state) {
    (void)state;
    fixture h;
    fixture_init(&h, 2, TOKENS, 64);
    h.e.n_places = 3;
    for (int32_t i = 0; i < 3; i++) h.job[i].tenant = i < 2 ? 1 : 2;
    run_first(&h, 2);
    add(&h, 2, 2);
    expect_step(&h, "0 1");
    expect_step(&h, "2 0");
    expect_step(&h, "0 2");
    expect_step(&h, "0 2");
    expect_step(&h, "1 0");              /* 1 was passed over three times */
    assert_int_equal(h.job[3].slot, -1); /* its tenant, 0, finds no third place */
    fixture_free(&h);
}

/* ---- The flat batch ---------------------------------------------------------------------------------------------- */

/* Page p of 8 positions has the slots 8 p to 8 p + 7. Rows, saves and blends count from the first token of the batch.
 */
static void slots_follow_the_page_table(void **state) {
    (void)state;
    fixture h;
    int32_t slot[TOKENS], seen[TOKENS], save[2][2], blend = 7;
    float one = 1;
    um_span span[2];
    um_soft soft = {.at = 1, .n = 1, .id = &blend, .w = &one};
    um_batch b;
    fixture_init(&h, 2, TOKENS, 64);
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
    fixture_free(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_engine_admits_no_request),
        cmocka_unit_test(a_free_slot_admits_one_request),
        cmocka_unit_test(prefill_first_gives_prompts_a_step_of_their_own),
        cmocka_unit_test(a_prompt_uses_the_rest_of_the_step),
        cmocka_unit_test(denoising_requests_come_before_prompt_chunks),
        cmocka_unit_test(a_waiting_request_is_passed_over_max_skips_times),
        cmocka_unit_test(an_overdue_request_is_considered_first),
        cmocka_unit_test(chunks_are_limited_beside_running_blocks),
        cmocka_unit_test(refreshes_are_limited_per_step),
        cmocka_unit_test(the_last_to_arrive_is_preempted),
        cmocka_unit_test(the_first_to_arrive_keeps_its_pages),
        cmocka_unit_test(shared_pages_need_no_room),
        cmocka_unit_test(a_request_that_leaves_frees_its_slot),
        cmocka_unit_test(the_queue_is_in_order_of_priority_then_arrival),
        cmocka_unit_test(the_lowest_rank_is_preempted),
        cmocka_unit_test(tenants_and_requests_take_turns),
        cmocka_unit_test(a_turn_is_worth_its_quantum),
        cmocka_unit_test(a_priority_comes_before_a_turn),
        cmocka_unit_test(a_guest_takes_turns_with_the_rest),
        cmocka_unit_test(slots_follow_the_page_table),
    };
    return cmocka_run_group_tests_name("scheduler", tests, NULL, NULL);
}
