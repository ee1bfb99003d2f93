/* The rules for answers of rows: ties, bans, filters, sampling. The tests set each logit and check every backend,
 * including the reference. */
#include "ops_given.h"

/* ---- Ties and exclusion ---- */

static void check_ties(const world *w) {
    float z[VOCAB_MAX] = {0};
    static const int32_t at[][2] = {{3, 9}, {255, 256}, {0, 699}, {100, 130}, {511, 600}};
    for (size_t i = 0; i < UM_LEN(at); i++) {
        z[at[i][0]] = z[at[i][1]] = 7;
        given g = open_given(w, z, VOCAB_MAX);
        um_answer a = ask(&g, &greedy);
        assert_int_equal(a.best, at[i][1]);
        assert_int_equal(a.second, at[i][0]);
        assert_int_equal(a.sample, at[i][1]);
        assert_true(a.p_best == a.p_second && a.q_best == a.p_best);
        z[at[i][0]] = z[at[i][1]] = 0;
        close_given(&g);
    }
    given g = open_given(w, z, VOCAB_MAX);
    um_answer a = ask(&g, &greedy);
    assert_int_equal(a.best, VOCAB_MAX - 1);
    assert_int_equal(a.second, VOCAB_MAX - 2);
    assert_near(a.entropy, log(VOCAB_MAX));
    close_given(&g);
}

static void ties_go_to_the_highest_id(void **state) {
    (void)state;
    for_each_backend(check_ties);
}

static void check_exclusion(const world *w) {
    float z[5] = {1, 4, 3, 2, 4};
    given g = open_given(w, z, 5);
    const um_edit edit[] = {{.id = -1}, {.id = 1, .ban = true, .add = 100}, {.id = 4, .ban = true}, {.id = 99}};
    um_row r = greedy;
    r.edit = edit;
    r.n_edit = UM_LEN(edit);
    r.id = 4;
    um_answer a = ask(&g, &r);
    assert_int_equal(a.best, 2);
    assert_int_equal(a.second, 3);
    assert_near(a.p_best, exp(3) / (exp(1) + exp(3) + exp(2)));
    assert_true(a.p_id == 0 && a.log_p_id == -INFINITY);
    const uint32_t allow = 1 << 0 | 1 << 1;
    r.allow = &allow;
    a = ask(&g, &r);
    assert_int_equal(a.best, 0);
    assert_int_equal(a.second, -1);
    assert_true(a.p_best == 1 && a.p_second == 0 && a.entropy == 0);
    close_given(&g);
}

static void banned_ids_have_no_share(void **state) {
    (void)state;
    for_each_backend(check_exclusion);
}

static void check_nothing(const world *w) {
    float z[300] = {0};
    given g = open_given(w, z, 300);
    const uint32_t allow[10] = {0};
    for (int filtered = 0; filtered < 2; filtered++) {
        um_row r = greedy;
        r.allow = allow;
        r.how.temperature = 1;
        r.how.top_k = filtered ? 5 : 0;
        um_answer a = ask(&g, &r);
        assert_true(a.best == -1 && a.second == -1 && a.sample == -1);
        assert_true(a.p_best == 0 && a.q_sample == 0 && a.entropy == 0 && a.logsumexp == -INFINITY);
    }
    close_given(&g);
}

static void row_with_nothing_allowed_answers_none(void **state) {
    (void)state;
    for_each_backend(check_nothing);
}

static void check_unwanted(const world *w) {
    float z[3] = {1, 2, 3};
    given g = open_given(w, z, 3);
    um_row r = greedy;
    r.want = 0;
    um_answer a = ask(&g, &r);
    assert_true(a.best == -1 && a.second == -1 && a.sample == -1 && a.p_best == 0 && a.p_id == 0 && a.entropy == 0);
    assert_true(a.log_p_id == 0);
    close_given(&g);
}

static void what_is_not_wanted_is_none(void **state) {
    (void)state;
    for_each_backend(check_unwanted);
}

static void check_edits(const world *w) {
    float z[4] = {2, -2, 1, 0};
    given g = open_given(w, z, 4);
    const um_edit edit[] = {{.id = 0, .scale = 2}, {.id = 1, .scale = 2}, {.id = 3, .add = 5}};
    um_row r = greedy;
    r.edit = edit;
    r.n_edit = UM_LEN(edit);
    um_answer a = ask(&g, &r);
    double sum = exp(1) + exp(-4) + exp(1) + exp(5);
    assert_int_equal(a.best, 3);
    assert_int_equal(a.second, 2); /* the logit 1 occurs twice: the higher id wins */
    assert_near(a.p_best, exp(5) / sum);
    assert_near(a.p_id, exp(1) / sum);
    assert_near(a.logsumexp, log(sum));
    close_given(&g);
}

static void edits_divide_multiply_and_add(void **state) {
    (void)state;
    for_each_backend(check_edits);
}

/* The probability is too small for a float. */
static void check_log_of_nothing(const world *w) {
    float z[4] = {200, -100, 199, 0};
    given g = open_given(w, z, 4);
    um_row r = greedy;
    r.id = 1;
    const um_answer a = ask(&g, &r);
    assert_true(a.p_id == 0);
    assert_near(a.log_p_id, -100 - (200 + log(1 + exp(-1))));
    close_given(&g);
}

static void a_probability_of_nothing_has_a_logarithm(void **state) {
    (void)state;
    for_each_backend(check_log_of_nothing);
}

/* ---- Temperature and filters ---- */

static um_answer ask_filtered(const given *g, float temperature, float top_p, int32_t top_k, float min_p) {
    um_row r = greedy;
    r.how = (um_sampling){.temperature = temperature, .top_p = top_p, .top_k = top_k, .min_p = min_p, .key = 5};
    return ask(g, &r);
}

static void check_filters(const world *w) {
    float z[VOCAB_MAX];
    four_logits(z, VOCAB_MAX);
    given g = open_given(w, z, VOCAB_MAX);
    assert_near(ask_filtered(&g, 1, 1, 0, 0).q_best, 0.4);
    assert_near(ask_filtered(&g, 1, 0.45f, 0, 0).q_best, 0.4 / 0.7); /* keeps the id that crosses 0.45 */
    assert_near(ask_filtered(&g, 1, 0.35f, 0, 0).q_best, 1);
    assert_near(ask_filtered(&g, 1, 0, 0, 0).q_best, 1); /* always keeps the likeliest id */
    assert_near(ask_filtered(&g, 1, 0.95f, 0, 0).q_best, 0.4);
    assert_near(ask_filtered(&g, 1, 1, 3, 0).q_best, 0.4 / 0.9);
    assert_near(ask_filtered(&g, 1, 1, 5000, 0).q_best, 0.4);
    assert_near(ask_filtered(&g, 1, 1, 0, 0.6f).q_best, 0.4 / 0.7);
    assert_near(ask_filtered(&g, 1, 1, 0, 1).q_best, 1);
    assert_near(ask_filtered(&g, 1, 0.75f, 2, 0.1f).q_best, 0.4 / 0.7);
    assert_near(ask_filtered(&g, 0, 0.45f, 0, 0).q_best, 0.4 / 0.7); /* filters also apply with temperature 0 */
    assert_near(ask_filtered(&g, 0, 0.45f, 0, 0).p_best, 0.4);
    assert_near(ask_filtered(&g, 0.5f, 1, 0, 0).q_best, 0.16 / 0.30);
    assert_near(ask_filtered(&g, 0.5f, 0.6f, 0, 0).q_best, 0.16 / 0.25); /* temperature is applied before top-p */
    um_answer a = ask_filtered(&g, 1, 1, 2, 0);
    assert_near(a.entropy, -(4.0 / 7) * log(4.0 / 7) - (3.0 / 7) * log(3.0 / 7));
    assert_near(a.q_second, 3.0 / 7);
    const double plain = -(0.4 * log(0.4) + 0.3 * log(0.3) + 0.2 * log(0.2) + 0.1 * log(0.1));
    assert_near(ask_filtered(&g, 1, 1, 0, 0).entropy, plain);
    um_row r = greedy;
    r.how = (um_sampling){.temperature = 0.5f, .top_p = 0.6f, .top_k = 2, .key = 5};
    r.want |= UM_WANT_PLAIN_ENTROPY;
    assert_near(ask(&g, &r).entropy, plain);
    r.how = greedy.how;
    assert_near(ask(&g, &r).entropy, plain);
    close_given(&g);
}

static void filters_keep_what_the_rules_say(void **state) {
    (void)state;
    for_each_backend(check_filters);
}

/* The probabilities are 0.4, 0.3, 0.2 and 0.1, and at temperature 0.5 in the ratio 16 : 9 : 4 : 1. */
static um_answer ask_filtered_first(const given *g, float temperature, float top_p, int32_t top_k, float min_p) {
    um_row r = greedy;
    r.how = (um_sampling){temperature, .top_p = top_p, .top_k = top_k, .min_p = min_p, .filters_first = true, .key = 5};
    return ask(g, &r);
}

static void check_filters_first(const world *w) {
    float z[VOCAB_MAX];
    four_logits(z, VOCAB_MAX);
    given g = open_given(w, z, VOCAB_MAX);
    assert_near(ask_filtered_first(&g, 0.5f, 0.45f, 0, 0).q_best,
                16.0 / 25); /* at temperature 0.5 the first has 0.53 */
    assert_near(ask_filtered_first(&g, 0.5f, 0.35f, 0, 0).q_best, 1);
    assert_near(ask_filtered_first(&g, 0.5f, 0.75f, 0, 0).q_best, 16.0 / 29);
    assert_near(ask_filtered_first(&g, 0.5f, 0.5f, 2, 0).q_best, 1); /* of two ids, the first has 0.57 */
    assert_near(ask_filtered(&g, 1, 0.5f, 2, 0).q_best, 4.0 / 7);
    assert_near(ask_filtered_first(&g, 0.5f, 1, 3, 0).q_best, 16.0 / 29);
    assert_near(ask_filtered_first(&g, 0.5f, 1, 0, 0.6f).q_best, 16.0 / 25);
    assert_near(ask_filtered(&g, 0.5f, 1, 0, 0.6f).q_best, 1);
    assert_near(ask_filtered_first(&g, 0.5f, 1, 0, 0).q_best, 16.0 / 30);
    assert_near(ask_filtered_first(&g, 0, 0.45f, 0, 0).q_best, 4.0 / 7);
    close_given(&g);
}

static void filters_may_come_before_the_temperature(void **state) {
    (void)state;
    for_each_backend(check_filters_first);
}

static void check_filter_ties(const world *w) {
    float z[VOCAB_MAX] = {0};
    for (int32_t i = 0; i < VOCAB_MAX; i++) z[i] = i % 7 == 0 ? 2.0f : -100.0f; /* 100 equal ids */
    given g = open_given(w, z, VOCAB_MAX);
    assert_near(ask_filtered(&g, 1, 1, 3, 0).q_best, 0.01); /* top-k keeps all ids whose logit equals the k-th */
    um_answer a = ask_filtered(&g, 1, 0.095f, 0, 0);        /* top-p keeps 10 of the 100, the highest ids first */
    assert_near(a.q_best, 0.1);
    assert_int_equal(a.best, 693);
    for (uint64_t key = 0; key < 200; key++) {
        um_row r = greedy;
        r.how = (um_sampling){.temperature = 1, .top_p = 0.095f, .key = um_rng_key(key, 1, 2, 3)};
        a = ask(&g, &r);
        assert_true(a.sample >= 630 && a.sample % 7 == 0);
        assert_near(a.q_sample, 0.1);
    }
    close_given(&g);
}

static void equal_logits_at_the_edge_of_a_filter(void **state) {
    (void)state;
    for_each_backend(check_filter_ties);
}

/* ---- Draws ---- */

static void check_draws(const world *w) {
    enum { DRAWS = 4000 };
    float z[VOCAB_MAX];
    four_logits(z, VOCAB_MAX);
    given g = open_given(w, z, VOCAB_MAX);
    const int32_t id[] = {10, 300, 301, 690};
    const double temperature[] = {1, 0.5}, q[2][4] = {{.3, .4, .1, .2}, {.09 / .3, .16 / .3, .01 / .3, .04 / .3}};
    for (int k = 0; k < 2; k++) {
        int count[4] = {0}, other = 0;
        for (uint64_t i = 0; i < DRAWS; i++) {
            um_row r = greedy;
            r.want = UM_WANT_SAMPLE;
            r.how.temperature = (float)temperature[k];
            r.how.key = um_rng_key(7, i, 0, 0);
            int32_t drawn = ask(&g, &r).sample;
            int j = 0;
            while (j < 4 && id[j] != drawn) j++;
            if (j < 4) count[j]++;
            else other++;
        }
        assert_int_equal(other, 0);
        for (int j = 0; j < 4; j++) { /* within five standard deviations */
            double mean = DRAWS * q[k][j], deviation = sqrt(mean * (1 - q[k][j]));
            if (fabs(count[j] - mean) > 5 * deviation)
                fail_msg("%s: id %d drawn %d times, expected %.0f", w->label, id[j], count[j], mean);
        }
    }
    close_given(&g);
}

static void draws_follow_the_distribution(void **state) {
    (void)state;
    for_each_backend(check_draws);
}

/* Compares the plain formula with the backends' shortcuts that avoid logarithms. */
static void check_gumbel(const world *w) {
    float z[VOCAB_MAX];
    for (int32_t i = 0; i < VOCAB_MAX; i++) z[i] = 3 * random_signed();
    given g = open_given(w, z, VOCAB_MAX);
    for (uint64_t i = 0; i < 300; i++) {
        um_row r = greedy;
        r.how.temperature = 1.3f;
        r.how.key = um_rng_key(i, 1, 1, 1);
        int32_t best = 0;
        float score = -INFINITY;
        for (int32_t v = 0; v < VOCAB_MAX; v++) {
            float s = z[v] / 1.3f + um_rng_gumbel(r.how.key, (uint64_t)v);
            if (s >= score) score = s, best = v;
        }
        assert_int_equal(ask(&g, &r).sample, best);
    }
    close_given(&g);
}

static void draw_is_the_largest_logit_with_gumbel_noise(void **state) {
    (void)state;
    for_each_backend(check_gumbel);
}

/* ---- Hidden rows ---- */

static void check_rows(const world *w) {
    float z[3] = {1, -1, 0}, hidden[2] = {2, 3}, saved[2] = {5, -7};
    given g = open_given(w, z, 3);
    const struct {
        int32_t src[2];
        float w[2];
        double x;
    } cases[] = {{{1, 9}, {1, 0}, 3}, {{-1, 0}, {1, 0}, 5}, {{-2, 0}, {1, 0}, -7}, {{0, -1}, {3, -2}, -4}};
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        um_row r = greedy;
        um_answer a;
        memcpy(r.src, cases[i].src, sizeof r.src);
        memcpy(r.w, cases[i].w, sizeof r.w);
        um_head h = {.w = g.m,
                     .hidden = hidden,
                     .saved = saved,
                     .hidden_size = 1,
                     .vocab = 3,
                     .scale = 0.5f,
                     .row = &r,
                     .n_rows = 1,
                     .answer = &a};
        w->ops->head(w->dev, &h);
        double x = cases[i].x / 2;
        assert_int_equal(a.best, x > 0 ? 0 : 1);
        assert_near(a.logsumexp, log(exp(x) + exp(-x) + 1));
    }
    close_given(&g);
}

static void rows_mix_hidden_and_saved_rows(void **state) {
    (void)state;
    for_each_backend(check_rows);
}

int main(void) {
    seed_world();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ties_go_to_the_highest_id),
        cmocka_unit_test(banned_ids_have_no_share),
        cmocka_unit_test(row_with_nothing_allowed_answers_none),
        cmocka_unit_test(what_is_not_wanted_is_none),
        cmocka_unit_test(edits_divide_multiply_and_add),
        cmocka_unit_test(a_probability_of_nothing_has_a_logarithm),
        cmocka_unit_test(filters_keep_what_the_rules_say),
        cmocka_unit_test(filters_may_come_before_the_temperature),
        cmocka_unit_test(equal_logits_at_the_edge_of_a_filter),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(draw_is_the_largest_logit_with_gumbel_noise),
        cmocka_unit_test(rows_mix_hidden_and_saved_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
