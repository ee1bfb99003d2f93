/* The likeliest ids of a row, and edits of logits. The tests set each logit themselves. */
#include "ops_given.h"

/* ---- Expected lists ---- */

/* Returns the id after `previous` in descending order of logits, the highest id first among equals. previous -1: the
 * first id. Returns -1 when there is none. */
static int32_t next_id(const float *z, int32_t n, int32_t previous) {
    int32_t next = -1;
    for (int32_t i = 0; i < n; i++) {
        bool is_behind = previous < 0 || z[i] < z[previous] || (z[i] == z[previous] && i < previous);
        if (is_behind && z[i] > -INFINITY && (next < 0 || z[i] >= z[next])) next = i;
    }
    return next;
}

static double log_sum(const float *z, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += exp((double)z[i]);
    return log(sum);
}

/* Checks the list of a row without temperature and filters. */
static void assert_top(const um_top *top, int32_t n_top, const float *z, int32_t n) {
    double total = log_sum(z, n);
    int32_t id = -1;
    for (int32_t i = 0; i < n_top; i++) {
        if (i == 0 || id >= 0) id = next_id(z, n, id);
        assert_int_equal(top[i].id, id);
        assert_near(top[i].p, id < 0 ? 0 : exp(z[id] - total));
        assert_true(top[i].q == top[i].p);
    }
}

static um_answer ask_top(const given *g, um_row r, int32_t n_top, um_top *top) {
    memset(top, 0xff, sizeof(um_top) * UM_TOP_MAX);
    r.n_top = n_top;
    r.top = top;
    um_answer a = ask(g, &r);
    for (int32_t i = n_top; i < UM_TOP_MAX; i++) assert_true(isnan(top[i].p)); /* not written */
    return a;
}

/* ---- Order and length of the list ---- */

static void check_order(const world *w) {
    static const int32_t lengths[] = {1, 2, 7, UM_TOP_MAX};
    enum { EQUALS, RISING, FALLING, KINDS };
    for (int kind = 0; kind < KINDS; kind++) {
        float z[VOCAB_MAX];
        for (int32_t i = 0; i < VOCAB_MAX; i++) /* EQUALS: about 17 ids have each logit, zero with both signs */
            z[i] = kind == EQUALS ? 0.25f * (float)random_below(40) * (i % 2 ? -1 : 1)
                                  : 0.01f * (float)(kind == RISING ? i : -i);
        given g = open_given(w, z, VOCAB_MAX);
        for (size_t i = 0; i < UM_LEN(lengths); i++) {
            um_top top[UM_TOP_MAX];
            um_answer a = ask_top(&g, greedy, lengths[i], top);
            assert_top(top, lengths[i], z, VOCAB_MAX);
            assert_int_equal(top[0].id, a.best);
            assert_true(top[0].p == a.p_best && top[0].q == a.q_best);
            assert_true(lengths[i] < 2 || (top[1].id == a.second && top[1].p == a.p_second));
        }
        close_given(&g);
    }
}

static void likeliest_ids_come_by_falling_logit_highest_id_first(void **state) {
    (void)state;
    for_each_backend(check_order);
}

static void check_end(const world *w) {
    float z[300];
    um_top top[UM_TOP_MAX];
    for (int32_t i = 0; i < 300; i++) z[i] = (float)(i * 7 % 11);
    given g = open_given(w, z, 300);
    static const int32_t vocabularies[] = {1, 5, 63, 64, 65, 257};
    for (size_t i = 0; i < UM_LEN(vocabularies); i++) {
        g.n = vocabularies[i]; /* later rows of the matrix are not part of the vocabulary */
        ask_top(&g, greedy, UM_TOP_MAX, top);
        assert_top(top, UM_TOP_MAX, z, g.n);
    }
    close_given(&g);
}

static void list_ends_with_the_vocabulary(void **state) {
    (void)state;
    for_each_backend(check_end);
}

static void check_banned(const world *w) {
    float z[VOCAB_MAX] = {[100] = 3, [650] = 4};
    um_top top[UM_TOP_MAX];
    uint32_t allow[VOCAB_MAX / 32 + 1] = {[100 / 32] = 1u << 100 % 32, [699 / 32] = 1u << 699 % 32};
    const um_edit ban = {.id = 699, .ban = true};
    given g = open_given(w, z, VOCAB_MAX);
    um_row r = greedy;
    r.allow = allow;
    ask_top(&g, r, 3, top);
    assert_true(top[0].id == 100 && top[1].id == 699 && top[2].id == -1 && top[2].p == 0 && top[2].q == 0);
    assert_near(top[1].p, 1 / (1 + exp(3)));
    r.own = &ban;
    r.n_own = 1;
    ask_top(&g, r, 2, top);
    assert_true(top[0].id == 100 && top[0].p == 1 && top[0].q == 1 && top[1].id == -1);
    allow[100 / 32] = 0;
    for (int filtered = 0; filtered < 2; filtered++) {
        r.how.top_k = filtered ? 5 : 0;
        um_answer a = ask_top(&g, r, 2, top);
        assert_true(a.best == -1 && a.sample == -1);
        for (int i = 0; i < 2; i++) assert_true(top[i].id == -1 && top[i].p == 0 && top[i].q == 0);
    }
    close_given(&g);
}

static void banned_ids_are_not_listed(void **state) {
    (void)state;
    for_each_backend(check_banned);
}

/* ---- Temperature and filters ---- */

/* Checks the likeliest ids of four_logits; q are the expected probabilities after temperature and filters. */
static void expect_kept(const given *g, um_sampling how, const double q[4]) {
    static const int32_t id[] = {300, 10, 690, 301};
    um_top top[UM_TOP_MAX];
    um_row r = greedy;
    r.how = how;
    ask_top(g, r, 20, top);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(top[i].id, id[i]);
        assert_near(top[i].p, 0.4 - 0.1 * i);
        assert_near(top[i].q, q[i]);
    }
    assert_int_equal(top[4].id, VOCAB_MAX - 1); /* the ids with logit -200 follow */
    assert_near(top[4].p, 0);
}

static void check_kept(const world *w) {
    float z[VOCAB_MAX];
    four_logits(z, VOCAB_MAX);
    given g = open_given(w, z, VOCAB_MAX);
    expect_kept(&g, (um_sampling){.top_p = 1}, (double[]){.4, .3, .2, .1});
    expect_kept(&g, (um_sampling){.temperature = .5f, .top_p = 1}, (double[]){.16 / .3, .09 / .3, .04 / .3, .01 / .3});
    expect_kept(&g, (um_sampling){.temperature = 1, .top_p = .45f}, (double[]){.4 / .7, .3 / .7, 0, 0});
    expect_kept(&g, (um_sampling){.temperature = .5f, .top_p = .6f}, (double[]){.16 / .25, .09 / .25, 0, 0});
    expect_kept(&g, (um_sampling){.top_p = 1, .top_k = 3}, (double[]){.4 / .9, .3 / .9, .2 / .9, 0});
    expect_kept(&g, (um_sampling){.temperature = 1, .top_p = 1, .min_p = 1}, (double[]){1, 0, 0, 0});
    close_given(&g);
}

static void filtered_ids_are_listed_with_no_share(void **state) {
    (void)state;
    for_each_backend(check_kept);
}

static void check_cut_equals(const world *w) {
    float z[VOCAB_MAX];
    um_top top[UM_TOP_MAX];
    for (int32_t i = 0; i < VOCAB_MAX; i++) z[i] = i % 7 == 0 ? 2.0f : -100.0f; /* 100 equal ids */
    given g = open_given(w, z, VOCAB_MAX);
    um_row r = greedy;
    r.how.top_p = 0.095f; /* keeps 10 of them, the highest ids first */
    ask_top(&g, r, 20, top);
    for (int32_t i = 0; i < 20; i++) {
        assert_int_equal(top[i].id, 7 * (99 - i));
        assert_near(top[i].p, 0.01);
        assert_near(top[i].q, i < 10 ? 0.1 : 0);
    }
    close_given(&g);
}

static void filter_that_cuts_equals_shows_in_the_list(void **state) {
    (void)state;
    for_each_backend(check_cut_equals);
}

/* ---- Edits ---- */

static void edit_by_rule(float *z, int32_t n, const um_edit *edit, int32_t n_edit) {
    for (int32_t e = 0; e < n_edit; e++) {
        if (edit[e].id < 0 || edit[e].id >= n) continue;
        float *l = &z[edit[e].id];
        if (edit[e].scale > 0) *l = *l > 0 ? *l / edit[e].scale : *l * edit[e].scale;
        *l = edit[e].ban ? -INFINITY : *l + edit[e].add;
    }
}

/* Creates shared edits, sorted by id, or a row's own in any order. Most ids occur several times, and some are outside
 * the vocabulary. */
static void random_edits(um_edit *edit, int32_t n, bool sorted) {
    for (int32_t i = 0; i < n; i++) {
        int32_t id = sorted ? (int32_t)((int64_t)i * (VOCAB_MAX + 20) / n) - 10 : random_below(40) * 20 - 10;
        edit[i] = (um_edit){.id = id, .ban = random_below(40) == 0};
        if (random_below(2)) edit[i].scale = (float)(0.5 + random_unit());
        if (random_below(2)) edit[i].add = 2 * random_signed();
    }
}

static void check_edits(const world *w) {
    static const int32_t counts[][2] = {{0, 0}, {1, 0}, {0, 1}, {37, 64}, {3000, 0}, {3000, 64}};
    static um_edit edit[3000];
    um_edit own[64];
    for (size_t i = 0; i < UM_LEN(counts); i++) {
        float z[VOCAB_MAX];
        um_top top[UM_TOP_MAX];
        for (int32_t k = 0; k < VOCAB_MAX; k++) z[k] = 3 * random_signed();
        given g = open_given(w, z, VOCAB_MAX);
        um_row r = greedy;
        r.edit = edit, r.n_edit = counts[i][0];
        r.own = own, r.n_own = counts[i][1];
        random_edits(edit, r.n_edit, true);
        random_edits(own, r.n_own, false);
        um_answer a = ask_top(&g, r, UM_TOP_MAX, top), plain = ask(&g, &r);
        edit_by_rule(z, VOCAB_MAX, edit, r.n_edit);
        edit_by_rule(z, VOCAB_MAX, own, r.n_own);
        assert_top(top, UM_TOP_MAX, z, VOCAB_MAX);
        assert_near(a.logsumexp, log_sum(z, VOCAB_MAX));
        same_answers(w, "answers with and without the list", &a, &plain, 1);
        close_given(&g);
    }
}

static void shared_edits_come_first_and_all_in_their_order(void **state) {
    (void)state;
    for_each_backend(check_edits);
}

static void check_promoted(const world *w) {
    static const int32_t at[] = {0, 255, 256, 511, 512, 699}; /* at the edges of tiles */
    float z[VOCAB_MAX];
    um_top top[UM_TOP_MAX];
    um_edit edit[UM_LEN(at)], own[2 * UM_LEN(at)];
    for (int32_t i = 0; i < VOCAB_MAX; i++) z[i] = 1;
    for (size_t i = 0; i < UM_LEN(at); i++) {
        edit[i] = (um_edit){.id = at[i], .add = (float)(i + 1)};
        own[2 * i] = (um_edit){.id = at[UM_LEN(at) - 1 - i], .scale = 0.5f};
        own[2 * i + 1] = (um_edit){.id = at[UM_LEN(at) - 1 - i], .add = -1};
    }
    given g = open_given(w, z, VOCAB_MAX);
    um_row r = greedy;
    r.edit = edit, r.n_edit = UM_LEN(edit);
    r.own = own, r.n_own = UM_LEN(own);
    um_answer a = ask_top(&g, r, UM_LEN(at) + 1, top);
    double sum = VOCAB_MAX - (double)UM_LEN(at), share = sum * exp(1);
    for (size_t i = 0; i < UM_LEN(at); i++) share += exp(2.0 * (double)(i + 2) - 1);
    for (size_t i = 0; i < UM_LEN(at); i++) {
        size_t k = UM_LEN(at) - 1 - i;
        assert_int_equal(top[i].id, at[k]);
        assert_near(top[i].p, exp(2.0 * (double)(k + 2) - 1) / share); /* (1 + add) / 0.5 - 1 */
    }
    assert_int_equal(top[UM_LEN(at)].id, 698);
    assert_int_equal(a.best, 699);
    close_given(&g);
}

static void edits_change_the_order_of_the_list(void **state) {
    (void)state;
    for_each_backend(check_promoted);
}

int main(void) {
    seed_world();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(likeliest_ids_come_by_falling_logit_highest_id_first),
        cmocka_unit_test(list_ends_with_the_vocabulary),
        cmocka_unit_test(banned_ids_are_not_listed),
        cmocka_unit_test(filtered_ids_are_listed_with_no_share),
        cmocka_unit_test(filter_that_cuts_equals_shows_in_the_list),
        cmocka_unit_test(shared_edits_come_first_and_all_in_their_order),
        cmocka_unit_test(edits_change_the_order_of_the_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
