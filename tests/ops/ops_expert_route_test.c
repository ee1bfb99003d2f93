/* Routing of a mixture of experts: small examples calculated by hand. Logits are chosen so that scores are simple
 * numbers: ln(p / (1 - p)) has the score p with the sigmoid, ln(p) with softmax. */
#include "ops_world.h"

#include "ops/expert_route.h"

enum { E_MAX = 8, T_MAX = 4 };

/* Computes the logits of a token from its scores. */
static void logits_of(um_score kind, const float *score, int n, float *logit) {
    for (int e = 0; e < n; e++) logit[e] = kind == UM_SCORE_SOFTMAX ? logf(score[e]) : logf(score[e] / (1 - score[e]));
}

typedef struct choice {
    int32_t expert[E_MAX];
    float weight[E_MAX];
} choice;

static choice route_one(const um_expert_route *r, const float *score, const float *bias) {
    float logit[E_MAX], scratch[3 * E_MAX];
    choice c = {{0}, {0}};
    logits_of(r->score, score, r->n_experts, logit);
    um_expert_route_tokens(r, logit, bias, NULL, NULL, 1, scratch, c.expert, c.weight);
    return c;
}

static void assert_choice(const um_expert_route *r, const choice *c, const int32_t *expert, const float *weight) {
    for (int32_t k = 0; k < r->top_k; k++) {
        assert_int_equal(c->expert[k], expert[k]);
        assert_float_equal(c->weight[k], weight[k], 1e-6);
    }
}

#define EXPERTS(...) ((const int32_t[]){__VA_ARGS__})
#define WEIGHTS(...) ((const float[]){__VA_ARGS__})

static void softmax_takes_the_largest_in_order_of_experts(void **state) {
    (void)state;
    const um_expert_route raw = {4, 2, UM_SCORE_SOFTMAX, UM_BIAS_NONE, false, 1, 0, 1, 1, 0};
    const float score[] = {0.1f, 0.3f, 0.2f, 0.4f};
    choice c = route_one(&raw, score, NULL);
    assert_choice(&raw, &c, EXPERTS(1, 3), WEIGHTS(0.3f, 0.4f));
}

static void weights_are_normalized_then_scaled(void **state) {
    (void)state;
    const um_expert_route r = {4, 2, UM_SCORE_SOFTMAX, UM_BIAS_NONE, true, 2.5f, 0, 1, 1, 0};
    const float score[] = {0.1f, 0.3f, 0.5f, 0.1f};
    choice c = route_one(&r, score, NULL);
    assert_choice(&r, &c, EXPERTS(1, 2), WEIGHTS(2.5f * 3 / 8, 2.5f * 5 / 8));
}

static void equal_scores_go_to_the_lower_expert(void **state) {
    (void)state;
    const um_expert_route r = {4, 2, UM_SCORE_SIGMOID, UM_BIAS_NONE, false, 1, 0, 1, 1, 0};
    const float score[] = {0.2f, 0.5f, 0.5f, 0.5f};
    choice c = route_one(&r, score, NULL);
    assert_choice(&r, &c, EXPERTS(1, 2), WEIGHTS(0.5f, 0.5f));
}

static void bias_of_the_choice_leaves_the_weights(void **state) {
    (void)state;
    const um_expert_route r = {4, 2, UM_SCORE_SIGMOID, UM_BIAS_CHOICE, true, 1, 0, 1, 1, 0};
    const float score[] = {0.6f, 0.5f, 0.2f, 0.4f}, bias[] = {0, 0, 0.9f, 0};
    choice c = route_one(&r, score, bias);
    assert_choice(&r, &c, EXPERTS(0, 2), WEIGHTS(0.75f, 0.25f));
}

static void bias_of_the_score_changes_the_weights_too(void **state) {
    (void)state;
    const um_expert_route r = {4, 2, UM_SCORE_SOFTMAX, UM_BIAS_SCORE, false, 1, 0, 1, 1, 0};
    const float score[] = {0.4f, 0.3f, 0.2f, 0.1f}, bias[] = {0, 0, 0.5f, 0};
    choice c = route_one(&r, score, bias);
    assert_choice(&r, &c, EXPERTS(0, 2), WEIGHTS(0.4f, 0.7f));
}

/* The sums of the two best scores of the groups {0, 1}, {2, 3}, {4, 5} and {6, 7} are 1.0, 0.9, 1.1 and 0.3. */
static void only_the_best_groups_are_eligible(void **state) {
    (void)state;
    const um_expert_route r = {8, 3, UM_SCORE_SIGMOID, UM_BIAS_NONE, false, 1, 0, 4, 2, 0};
    const float score[] = {0.9f, 0.1f, 0.8f, 0.1f, 0.5f, 0.6f, 0.2f, 0.1f};
    choice c = route_one(&r, score, NULL);
    assert_choice(&r, &c, EXPERTS(0, 4, 5),
                  WEIGHTS(0.9f, 0.5f, 0.6f)); /* not expert 2, although its score is the second best */
}

/* Two routing blocks of two tokens each. The pool of the first block is experts 3 and 1, the best of each token. */
static void a_block_shares_its_pool_of_experts(void **state) {
    (void)state;
    const um_expert_route r = {4, 2, UM_SCORE_SIGMOID, UM_BIAS_NONE, false, 1, 0, 1, 1, 2};
    const float score[T_MAX][4] = {
        {0.3f, 0.7f, 0.6f, 0.1f}, {0.4f, 0.1f, 0.5f, 0.9f}, {0.8f, 0.7f, 0.2f, 0.1f}, {0.1f, 0.2f, 0.6f, 0.3f}};
    const int32_t block[] = {5, 5, 6, 6};
    float logit[T_MAX * 4], scratch[12], weight[T_MAX * 2];
    int32_t expert[T_MAX * 2];
    for (int t = 0; t < T_MAX; t++) logits_of(r.score, score[t], 4, logit + t * 4);
    um_expert_route_tokens(&r, logit, NULL, NULL, block, T_MAX, scratch, expert, weight);
    const int32_t want[] = {1, 3, 1, 3, 0, 1, 0, 1};
    const float want_weight[] = {0.7f, 0.1f, 0.1f, 0.9f, 0.8f, 0.7f, 0.1f, 0.2f};
    for (int i = 0; i < T_MAX * 2; i++) {
        assert_int_equal(expert[i], want[i]);
        assert_float_equal(weight[i], want_weight[i], 1e-6);
    }
}

static void a_pool_as_large_as_all_experts_limits_nothing(void **state) {
    (void)state;
    enum { E = 8, K = 3, T = 40 };
    um_expert_route r = {E, K, UM_SCORE_SOFTMAX, UM_BIAS_NONE, true, 1, 0, 1, 1, 0};
    float *logit = random_floats(E * T), scratch[3 * E], weight[2][K * T];
    int32_t expert[2][K * T], block[T];
    for (int t = 0; t < T; t++) block[t] = t / 7;
    um_expert_route_tokens(&r, logit, NULL, NULL, NULL, T, scratch, expert[0], weight[0]);
    r.capacity = E;
    um_expert_route_tokens(&r, logit, NULL, NULL, block, T, scratch, expert[1], weight[1]);
    assert_memory_equal(expert[0], expert[1], sizeof expert[0]);
    assert_memory_equal(weight[0], weight[1], sizeof weight[0]);
    um_free(logit);
}

int main(void) {
    seed_world();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_takes_the_largest_in_order_of_experts),
        cmocka_unit_test(weights_are_normalized_then_scaled),
        cmocka_unit_test(equal_scores_go_to_the_lower_expert),
        cmocka_unit_test(bias_of_the_choice_leaves_the_weights),
        cmocka_unit_test(bias_of_the_score_changes_the_weights_too),
        cmocka_unit_test(only_the_best_groups_are_eligible),
        cmocka_unit_test(a_block_shares_its_pool_of_experts),
        cmocka_unit_test(a_pool_as_large_as_all_experts_limits_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
