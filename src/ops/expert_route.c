/* Routing: scores, restrictions (groups of experts, a block's pool of experts), the top k, and their weights. The
 * formulas cover LLaDA2's group-limited gate (sigmoid) and the softmax gates of Qwen3-MoE and OLMoE. */
#include <math.h>

#include "ops/expert_route.h"

static void softmax(const float *z, int32_t n, float by, float *p) {
    float max = z[0], sum = 0;
    for (int32_t i = 1; i < n; i++) max = UM_MAX(max, z[i]);
    for (int32_t i = 0; i < n; i++) sum += p[i] = expf((z[i] - max) * by);
    for (int32_t i = 0; i < n; i++) p[i] /= sum;
}

/* Computes the scores of a token's experts. The weights are computed from `score`, the choice is made by `choice`. */
static void token_scores(const um_expert_route *r, const float *z, const float *bias, float *score, float *choice) {
    const int32_t E = r->n_experts;
    if (r->score == UM_SCORE_SOFTMAX) softmax(z, E, r->sharpness == 0 ? 1 : r->sharpness, score);
    else
        for (int32_t e = 0; e < E; e++) score[e] = 1 / (1 + expf(-z[e]));
    if (r->bias == UM_BIAS_SCORE)
        for (int32_t e = 0; e < E; e++) score[e] += bias[e];
    for (int32_t e = 0; e < E; e++) choice[e] = score[e] + (r->bias == UM_BIAS_CHOICE ? bias[e] : 0);
}

static int32_t largest(const float *v, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (v[i] > v[best]) best = i;
    return best;
}

/* Returns the sum of the two largest elements of v [n]. */
static float best_two(const float *v, int32_t n) {
    float a = -INFINITY, b = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        if (v[i] > a) {
            b = a;
            a = v[i];
        } else if (v[i] > b) b = v[i];
    }
    return n > 1 ? a + b : a;
}

/* Excludes the experts outside of the topk_group best groups. group is scratch [n_group]. */
static void limit_to_groups(const um_expert_route *r, float *choice, float *group) {
    const int32_t width = r->n_experts / r->n_group;
    for (int32_t g = 0; g < r->n_group; g++) group[g] = best_two(choice + g * width, width);
    for (int32_t k = 0; k < r->topk_group; k++) group[largest(group, r->n_group)] = -INFINITY;
    for (int32_t g = 0; g < r->n_group; g++)
        for (int32_t i = 0; group[g] != -INFINITY && i < width; i++) choice[g * width + i] = -INFINITY;
}

/* Excludes the experts outside of a block's pool; pool[e] is 0 for these. */
static void limit_to_pool(const um_expert_route *r, float *choice, const float *pool) {
    for (int32_t e = 0; e < r->n_experts; e++)
        if (pool[e] == 0) choice[e] = -INFINITY;
}

/* Chooses the pool of a block of n tokens. The choice score of an expert is the largest of its scores for these tokens;
 * the `capacity` experts with the largest scores are in the pool. */
static void choose_pool(const um_expert_route *r, const float *logits, const float *bias, int32_t n, float *score,
                        float *choice, float *pool) {
    const int32_t E = r->n_experts;
    for (int32_t e = 0; e < E; e++) pool[e] = -INFINITY;
    for (int32_t t = 0; t < n; t++) {
        token_scores(r, logits + (size_t)t * (size_t)E, bias, score, choice);
        for (int32_t e = 0; e < E; e++) pool[e] = UM_MAX(pool[e], choice[e]);
    }
    for (int32_t e = 0; e < E; e++) choice[e] = 0;
    for (int32_t k = 0; k < UM_MIN(r->capacity, E); k++) {
        int32_t e = largest(pool, E);
        choice[e] = 1;
        pool[e] = -INFINITY;
    }
    memcpy(pool, choice, (size_t)E * sizeof(float));
}

static void choose_experts(const um_expert_route *r, const float *expert_scale, const float *score, float *choice,
                           int32_t *expert, float *weight) {
    float sum = 0;
    for (int32_t k = 0; k < r->top_k; k++) {
        int32_t e = largest(choice, r->n_experts), at = k;
        choice[e] = -INFINITY;
        for (; at > 0 && expert[at - 1] > e; at--) expert[at] = expert[at - 1];
        expert[at] = e;
    }
    for (int32_t k = 0; k < r->top_k; k++) sum += weight[k] = score[expert[k]];
    for (int32_t k = 0; k < r->top_k; k++) {
        if (r->normalize) weight[k] /= sum + 1e-20f;
        weight[k] *= r->scale;
        if (expert_scale) weight[k] *= expert_scale[expert[k]];
    }
}

void um_expert_route_tokens(const um_expert_route *r, const float *logits, const float *bias, const float *expert_scale,
                            const int32_t *block, int32_t n_tokens, float *scratch, int32_t *expert, float *weight) {
    const size_t E = (size_t)r->n_experts, K = (size_t)r->top_k;
    float *score = scratch, *choice = scratch + E, *pool = scratch + 2 * E;
    for (int32_t t = 0; t < n_tokens; t++) {
        const float *z = logits + (size_t)t * E;
        if (r->capacity && (t == 0 || block[t] != block[t - 1])) {
            int32_t n = 1;
            while (t + n < n_tokens && block[t + n] == block[t]) n++;
            choose_pool(r, z, bias, n, score, choice, pool);
        }
        token_scores(r, z, bias, score, choice);
        if (r->capacity) limit_to_pool(r, choice, pool);
        else if (r->n_group > 1) limit_to_groups(r, choice, pool);
        choose_experts(r, expert_scale, score, choice, expert + (size_t)t * K, weight + (size_t)t * K);
    }
}
