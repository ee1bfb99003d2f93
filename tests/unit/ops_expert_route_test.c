/* Routing: the experts of a token and their weights, with examples calculated by hand. A score p is given by its logit:
 * ln p for softmax (up to a constant), ln (p / (1 - p)) for the sigmoid. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ops/expert_route.h"

enum { E_MAX = 16, K_MAX = 8, T_MAX = 8 };

static float sigmoid_logit(float p) { return logf(p / (1 - p)); }

typedef struct choice {
    int32_t expert[T_MAX * K_MAX];
    float weight[T_MAX * K_MAX];
} choice;

static choice route(const um_expert_route *r, const float *logits, const float *bias, const int32_t *block, int32_t n) {
    float scratch[3 * E_MAX];
    choice c;
    assert_true(um_expert_route_scratch(r->n_experts) <= UM_LEN(scratch));
    um_expert_route_tokens(r, logits, bias, NULL, block, n, scratch, c.expert, c.weight);
    return c;
}

static void chooses(const choice *c, int32_t from, int32_t n, const int32_t *expert, const float *weight) {
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(c->expert[from + i], expert[i]);
        if (weight && fabsf(c->weight[from + i] - weight[i]) > 1e-6f)
            fail_msg("weight %d is %g, expected %g", i, (double)c->weight[from + i], (double)weight[i]);
    }
}

static const um_expert_route plain = {
    .n_experts = 4, .top_k = 2, .score = UM_SCORE_SOFTMAX, .scale = 1, .n_group = 1, .topk_group = 1};

/* p = 0.1, 0.4, 0.2, 0.3 */
static void softmax_weights_are_probabilities_in_order_of_the_expert(void **state) {
    (void)state;
    const float z[] = {logf(0.1f), logf(0.4f), logf(0.2f), logf(0.3f)};
    choice c = route(&plain, z, NULL, NULL, 1);
    chooses(&c, 0, 2, (int32_t[]){1, 3}, (float[]){0.4f, 0.3f});
}

static void normalised_weights_sum_to_the_scale(void **state) {
    (void)state;
    const float z[] = {logf(0.1f), logf(0.4f), logf(0.2f), logf(0.3f)};
    um_expert_route r = plain;
    r.normalize = true;
    choice c = route(&r, z, NULL, NULL, 1);
    chooses(&c, 0, 2, (int32_t[]){1, 3}, (float[]){4 / 7.f, 3 / 7.f});
    r.scale = 2.5f;
    c = route(&r, z, NULL, NULL, 1);
    chooses(&c, 0, 2, (int32_t[]){1, 3}, (float[]){10 / 7.f, 7.5f / 7});
}

static void large_logits_do_not_overflow(void **state) {
    (void)state;
    const float z[] = {1000, 1000, -1000, 0};
    choice c = route(&plain, z, NULL, NULL, 1);
    chooses(&c, 0, 2, (int32_t[]){0, 1}, (float[]){0.5f, 0.5f});
}

static void equal_scores_go_to_the_lower_expert(void **state) {
    (void)state;
    const float z[] = {0, 1, 1, 1};
    choice c = route(&plain, z, NULL, NULL, 1);
    chooses(&c, 0, 2, (int32_t[]){1, 2}, NULL);
    const float all[] = {2, 2, 2, 2};
    c = route(&plain, all, NULL, NULL, 1);
    chooses(&c, 0, 2, (int32_t[]){0, 1}, (float[]){0.25f, 0.25f});
}

static void all_experts_may_be_chosen(void **state) {
    (void)state;
    const float z[] = {logf(0.1f), logf(0.4f), logf(0.2f), logf(0.3f)};
    um_expert_route r = plain;
    r.top_k = 4;
    choice c = route(&r, z, NULL, NULL, 1);
    chooses(&c, 0, 4, (int32_t[]){0, 1, 2, 3}, (float[]){0.1f, 0.4f, 0.2f, 0.3f});
}

/* Scores 0.6, 0.5, 0.4, 0.3. The bias raises the last two above the first two; the weights are those of the scores. */
static void bias_of_the_choice_is_not_in_the_weights(void **state) {
    (void)state;
    const float z[] = {sigmoid_logit(0.6f), sigmoid_logit(0.5f), sigmoid_logit(0.4f), sigmoid_logit(0.3f)};
    const float bias[] = {0, 0, 0.5f, 0.4f};
    um_expert_route r = plain;
    r.score = UM_SCORE_SIGMOID;
    r.bias = UM_BIAS_CHOICE;
    choice c = route(&r, z, bias, NULL, 1);
    chooses(&c, 0, 2, (int32_t[]){2, 3}, (float[]){0.4f, 0.3f});
    r.normalize = true;
    r.scale = 2.5f;
    c = route(&r, z, bias, NULL, 1);
    chooses(&c, 0, 2, (int32_t[]){2, 3}, (float[]){2.5f * 4 / 7, 2.5f * 3 / 7});
}

static void bias_of_the_score_is_in_the_weights(void **state) {
    (void)state;
    const float z[] = {logf(0.1f), logf(0.4f), logf(0.2f), logf(0.3f)}, bias[] = {0.35f, 0, 0, -0.2f};
    um_expert_route r = plain;
    r.bias = UM_BIAS_SCORE;
    choice c = route(&r, z, bias, NULL, 1);
    chooses(&c, 0, 2, (int32_t[]){0, 1}, (float[]){0.45f, 0.4f});
}

/* ---- Groups ------------------------------------------------------------------------------------------------------ */

static const um_expert_route grouped = {.n_experts = 8,
                                        .top_k = 2,
                                        .score = UM_SCORE_SIGMOID,
                                        .bias = UM_BIAS_CHOICE,
                                        .scale = 1,
                                        .n_group = 4,
                                        .topk_group = 2};

static void to_logits(float *z, const float *p, size_t n) {
    for (size_t i = 0; i < n; i++) z[i] = sigmoid_logit(p[i]);
}

/* Groups of two with sums 1.0, 1.1, 0.9, 0.8. The best of all experts, 6, is in the worst group. */
static void group_is_judged_by_the_sum_of_its_best_two(void **state) {
    (void)state;
    const float p[] = {0.5f, 0.5f, 0.6f, 0.5f, 0.45f, 0.45f, 0.7f, 0.1f}, bias[8] = {0};
    float z[8];
    to_logits(z, p, 8);
    choice c = route(&grouped, z, bias, NULL, 1);
    chooses(&c, 0, 2, (int32_t[]){0, 2}, (float[]){0.5f, 0.6f});
}

/* In groups of four only the two best experts count: 0.6 + 0.1 loses against 0.4 + 0.4, whatever the others are. */
static void rest_of_a_group_does_not_count(void **state) {
    (void)state;
    const float p[] = {0.6f, 0.1f, 0.1f, 0.1f, 0.4f, 0.4f, 0.01f, 0.01f}, bias[8] = {0};
    float z[8];
    um_expert_route r = grouped;
    r.n_group = 2;
    r.topk_group = 1;
    to_logits(z, p, 8);
    choice c = route(&r, z, bias, NULL, 1);
    chooses(&c, 0, 2, (int32_t[]){4, 5}, (float[]){0.4f, 0.4f});
}

/* By the scores, groups 0 and 1 are the best. With the bias, groups 2 and 3 are. */
static void bias_counts_for_groups(void **state) {
    (void)state;
    const float p[] = {0.5f, 0.5f, 0.6f, 0.5f, 0.3f, 0.2f, 0.2f, 0.3f}, bias[] = {0, 0, 0, 0, 1, 1, 1, 1};
    float z[8];
    to_logits(z, p, 8);
    choice c = route(&grouped, z, bias, NULL, 1);
    chooses(&c, 0, 2, (int32_t[]){4, 7}, (float[]){0.3f, 0.3f});
}

static void equal_groups_go_to_the_lower_one(void **state) {
    (void)state;
    const float z[8] = {0}, bias[8] = {0};
    um_expert_route r = grouped;
    r.top_k = 4;
    choice c = route(&r, z, bias, NULL, 1);
    chooses(&c, 0, 4, (int32_t[]){0, 1, 2, 3}, NULL);
}

/* A bias may make every choice score negative. Experts of chosen groups must still win over those of other groups. */
static void negative_choices_stay_inside_the_chosen_groups(void **state) {
    (void)state;
    const float z[8] = {0}, bias[] = {-5, -5, -2, -9, -3, -3, -8, -1};
    choice c = route(&grouped, z, bias, NULL, 1); /* sums 2 * 0.5 minus 10, 11, 6 and 9 */
    chooses(&c, 0, 2, (int32_t[]){4, 7}, NULL);
}

static void groups_of_one_expert_work(void **state) {
    (void)state;
    const float p[] = {0.1f, 0.9f, 0.2f, 0.8f}, bias[4] = {0};
    float z[4];
    um_expert_route r = grouped;
    r.n_experts = 4;
    to_logits(z, p, 4);
    choice c = route(&r, z, bias, NULL, 1);
    chooses(&c, 0, 2, (int32_t[]){1, 3}, (float[]){0.9f, 0.8f});
}

/* ---- Pools of a block -------------------------------------------------------------------------------------------- */

static const um_expert_route pooled = {.n_experts = 4,
                                       .top_k = 1,
                                       .score = UM_SCORE_SIGMOID,
                                       .bias = UM_BIAS_CHOICE,
                                       .scale = 1,
                                       .n_group = 1,
                                       .topk_group = 1,
                                       .capacity = 2};

/* The best scores of the block are 0.9 (expert 0, token 0), 0.5 (expert 1), 0.6 (expert 2, token 1) and 0.4, so the
 * pool is {0, 2}. The best expert of token 2 is 1, which is not in the pool. */
static void tokens_of_a_block_share_a_pool(void **state) {
    (void)state;
    const float p[] = {0.9f, 0.1f, 0.1f, 0.1f, 0.1f, 0.2f, 0.6f, 0.3f, 0.2f, 0.5f, 0.3f, 0.4f}, bias[4] = {0};
    const int32_t one[] = {7, 7, 7}, two[] = {7, 7, 8};
    float z[12];
    to_logits(z, p, 12);
    choice c = route(&pooled, z, bias, one, 3);
    chooses(&c, 0, 3, (int32_t[]){0, 2, 2}, (float[]){0.9f, 0.6f, 0.3f});
    c = route(&pooled, z, bias, two, 3);
    chooses(&c, 0, 3, (int32_t[]){0, 2, 1}, (float[]){0.9f, 0.6f, 0.5f});
}

/* The pool is chosen by biased scores; the weights are computed from unbiased scores. */
static void bias_counts_for_the_pool(void **state) {
    (void)state;
    const float p[] = {0.9f, 0.8f, 0.1f, 0.2f}, bias[] = {0, 0, 1, 1};
    const int32_t block[] = {0};
    float z[4];
    to_logits(z, p, 4);
    choice c = route(&pooled, z, bias, block, 1);
    chooses(&c, 0, 1, (int32_t[]){3}, (float[]){0.2f});
}

static void groups_do_not_count_under_a_capacity(void **state) {
    (void)state;
    const float p[] = {0.9f, 0.1f, 0.5f, 0.6f}, bias[4] = {0}; /* the second group would have the larger sum */
    const int32_t block[] = {0};
    float z[4];
    um_expert_route r = pooled;
    r.n_group = 2;
    to_logits(z, p, 4);
    choice c = route(&r, z, bias, block, 1);
    chooses(&c, 0, 1, (int32_t[]){0}, (float[]){0.9f});
}

/* Experts 1 and 2 tie for the last place of the pool. */
static void pool_takes_the_lower_of_equal_experts(void **state) {
    (void)state;
    const float p[] = {0.9f, 0.5f, 0.5f, 0.1f, 0.2f, 0.4f, 0.45f, 0.1f}, bias[4] = {0};
    const int32_t block[] = {3, 3};
    float z[8];
    to_logits(z, p, 8);
    choice c = route(&pooled, z, bias, block, 2);
    chooses(&c, 0, 2, (int32_t[]){0, 1}, (float[]){0.9f, 0.4f});
}

static void capacity_for_all_experts_limits_nothing(void **state) {
    (void)state;
    const float p[] = {0.9f, 0.1f, 0.1f, 0.1f, 0.1f, 0.2f, 0.6f, 0.3f}, bias[4] = {0};
    const int32_t block[] = {0, 0};
    float z[8];
    um_expert_route r = pooled, free_choice = pooled;
    r.capacity = 4;
    free_choice.capacity = 0;
    to_logits(z, p, 8);
    choice a = route(&r, z, bias, block, 2), b = route(&free_choice, z, bias, NULL, 2);
    chooses(&a, 0, 2, b.expert, b.weight);
}

/* ---- Several tokens ---------------------------------------------------------------------------------------------- */

static void token_is_routed_alike_in_any_batch(void **state) {
    (void)state;
    float z[4 * 8];
    const float bias[8] = {0.1f, -0.1f, 0, 0.2f, 0, 0, -0.3f, 0};
    for (int i = 0; i < 32; i++) z[i] = sinf((float)(i * i));
    choice all = route(&grouped, z, bias, NULL, 4);
    for (int32_t t = 0; t < 4; t++) {
        choice one = route(&grouped, z + 8 * t, bias, NULL, 1);
        assert_memory_equal(one.expert, all.expert + 2 * t, 2 * sizeof(int32_t));
        assert_memory_equal(one.weight, all.weight + 2 * t, 2 * sizeof(float));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_weights_are_probabilities_in_order_of_the_expert),
        cmocka_unit_test(normalised_weights_sum_to_the_scale),
        cmocka_unit_test(large_logits_do_not_overflow),
        cmocka_unit_test(equal_scores_go_to_the_lower_expert),
        cmocka_unit_test(all_experts_may_be_chosen),
        cmocka_unit_test(bias_of_the_choice_is_not_in_the_weights),
        cmocka_unit_test(bias_of_the_score_is_in_the_weights),
        cmocka_unit_test(group_is_judged_by_the_sum_of_its_best_two),
        cmocka_unit_test(rest_of_a_group_does_not_count),
        cmocka_unit_test(bias_counts_for_groups),
        cmocka_unit_test(equal_groups_go_to_the_lower_one),
        cmocka_unit_test(negative_choices_stay_inside_the_chosen_groups),
        cmocka_unit_test(groups_of_one_expert_work),
        cmocka_unit_test(tokens_of_a_block_share_a_pool),
        cmocka_unit_test(bias_counts_for_the_pool),
        cmocka_unit_test(groups_do_not_count_under_a_capacity),
        cmocka_unit_test(pool_takes_the_lower_of_equal_experts),
        cmocka_unit_test(capacity_for_all_experts_limits_nothing),
        cmocka_unit_test(token_is_routed_alike_in_any_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
