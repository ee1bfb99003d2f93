/* Scheduled samplers: the number of positions that a pass commits is given. The samplers differ in which positions they
 * choose.
 *
 * LLaDA ranks by the model's probability of the sampled token, Dream by its probability after temperature and filters.
 * The largest score is committed first, and the leftmost among equals. */
#include "decode/samplers/samplers.h"

/* ---- Number of positions ----------------------------------------------------------------------------------------- */

double um_schedule_rate(double eps, int32_t step, int32_t n) {
    if (step + 1 >= n) return 1;
    double now = 1 + (eps - 1) * step / n, next = 1 + (eps - 1) * (step + 1) / n;
    return 1 - next / now;
}

int32_t um_schedule_count(um_schedule s, double eps, int32_t step, int32_t n, int32_t masks, int32_t len) {
    switch (s) {
    case UM_SCHEDULE_NONE: return masks;
    case UM_SCHEDULE_EVEN: return UM_CEIL_DIV(masks, n - step);
    case UM_SCHEDULE_LINEAR: return UM_MAX(masks - (int32_t)((int64_t)len * (n - 1 - step) / n), 0);
    case UM_SCHEDULE_TIME: return (int32_t)((double)masks * um_schedule_rate(eps, step, n));
    }
    return masks;
}

/* ---- Choice of positions ----------------------------------------------------------------------------------------- */

/* Commits the c->keep candidates with the largest c->score. */
static void choose_largest(const um_sampler_input *c, um_decision *d) {
    assert(c->keep <= c->n);
    um_rank_start(c);
    for (int32_t k = 0; k < c->keep; k++) um_decide(d, c, um_rank_next(c));
}

/* Returns the random key of candidate i in this pass. */
static uint64_t key(const um_sampler_input *c, int32_t i) {
    return um_rng_key(c->seed, (uint64_t)c->position[i], (uint64_t)c->count, UM_USE_REMASK);
}

/* Commits the c->keep candidates with the largest c->score. With alg_temp it draws them one after the other from
 * softmax(score / alg_temp), which is the same as taking the largest values of score / alg_temp + Gumbel noise. */
static void keep_best(const um_sampler_input *c, um_decision *d) {
    const float t = c->how->alg_temp;
    for (int32_t i = 0; i < c->n && t > 0; i++) c->score[i] = c->score[i] / t + um_rng_gumbel(key(c, i), 0);
    choose_largest(c, d);
}

static void by_model_probability(const um_sampler_input *c, um_decision *d) {
    for (int32_t i = 0; i < c->n; i++) c->score[i] = c->answer[i].p_sample;
    choose_largest(c, d);
}

static void by_chance(const um_sampler_input *c, um_decision *d) {
    for (int32_t i = 0; i < c->n; i++) c->score[i] = (float)um_rng_uniform(key(c, i), 0);
    choose_largest(c, d);
}

static void by_probability(const um_sampler_input *c, um_decision *d) {
    for (int32_t i = 0; i < c->n; i++) c->score[i] = c->answer[i].q_sample;
    keep_best(c, d);
}

static void by_margin(const um_sampler_input *c, um_decision *d) {
    for (int32_t i = 0; i < c->n; i++) c->score[i] = c->answer[i].q_best - c->answer[i].q_second;
    keep_best(c, d);
}

static void by_entropy(const um_sampler_input *c, um_decision *d) {
    for (int32_t i = 0; i < c->n; i++) c->score[i] = -c->answer[i].entropy;
    keep_best(c, d);
}

/* Draws each position separately, so the schedule holds only on average. The last pass commits all remaining masks. */
static void each_by_chance(const um_sampler_input *c, um_decision *d) {
    for (int32_t i = 0; i < c->n; i++)
        if (um_rng_uniform(key(c, i), 0) < c->rate) um_decide(d, c, i);
}

/* ---- Parameters -------------------------------------------------------------------------------------------------- */

static const um_option time_options[] = {
    {"eps", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, eps), 0, 0.5, NULL, "0.001", NULL, "X",
     "Decoding (whole sequence)", "share of masks at which the schedule of Dream's samplers ends"},
};
static const um_option draw_options[] = {
    {"alg_temp", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, alg_temp), 0, 100, NULL, "0", NULL, "T",
     "Decoding (whole sequence)", "temperature for drawing the positions of a pass by their scores; 0 takes the best"},
};

/* ---- Samplers ---------------------------------------------------------------------------------------------------- */

static uint32_t want_sample(const um_req *r) {
    (void)r;
    return UM_WANT_SAMPLE;
}

static uint32_t want_two_best(const um_req *r) {
    (void)r;
    return UM_WANT_SAMPLE | UM_WANT_BEST | UM_WANT_SECOND;
}

#define LLADA "LLaDA, arXiv 2502.09992, section 2.4 and algorithm 5"
#define DREAM "Dream 7B, arXiv 2508.15487, generation options"

const um_sampler um_sampler_low_confidence = {
    .name = "low_confidence",
    .summary = "commits the same number of tokens in each pass, the most probable ones",
    .source = LLADA,
    .params = {{um_denoising_options, UM_LEN(um_denoising_options)}}, /* used in blocks; a canvas uses steps */
    .schedule = UM_SCHEDULE_EVEN,
    .want = want_sample,
    .accept = by_model_probability,
};
const um_sampler um_sampler_random = {
    .name = "random",
    .summary = "commits the same number of tokens in each pass, chosen at random",
    .source = LLADA,
    .params = {{um_denoising_options, UM_LEN(um_denoising_options)}}, /* used in blocks; a canvas uses steps */
    .schedule = UM_SCHEDULE_EVEN,
    .want = want_sample,
    .accept = by_chance,
};
const um_sampler um_sampler_origin = {
    .name = "origin",
    .summary = "commits each token at random, with the probability that the schedule gives the pass",
    .source = DREAM,
    .params = {{time_options, UM_LEN(time_options)}},
    .schedule = UM_SCHEDULE_TIME,
    .is_independent = true,
    .want = want_sample,
    .accept = each_by_chance,
};
const um_sampler um_sampler_maskgit_plus = {
    .name = "maskgit_plus",
    .summary = "commits the most probable tokens, after temperature and filters",
    .source = DREAM,
    .params = {{time_options, UM_LEN(time_options)}, {draw_options, UM_LEN(draw_options)}},
    .schedule = UM_SCHEDULE_TIME,
    .want = want_sample,
    .accept = by_probability,
};
const um_sampler um_sampler_topk_margin = {
    .name = "topk_margin",
    .summary = "commits the tokens with the largest margin between the two best probabilities",
    .source = DREAM,
    .params = {{time_options, UM_LEN(time_options)}, {draw_options, UM_LEN(draw_options)}},
    .schedule = UM_SCHEDULE_TIME,
    .want = want_two_best,
    .accept = by_margin,
};
const um_sampler um_sampler_entropy = {
    .name = "entropy",
    .summary = "commits the tokens at the positions of smallest entropy",
    .source = DREAM,
    .params = {{time_options, UM_LEN(time_options)}, {draw_options, UM_LEN(draw_options)}},
    .schedule = UM_SCHEDULE_TIME,
    .want = um_want_entropy,
    .accept = by_entropy,
};
const um_sampler um_sampler_linear_entropy = {
    .name = "linear_entropy",
    .summary = "commits the tokens at the positions of smallest entropy, on RND1's linear schedule",
    .source = "RND1, radicalnumerics/RND1-Base-0910, its sampling loop",
    .params = {{draw_options, UM_LEN(draw_options)}},
    .schedule = UM_SCHEDULE_LINEAR,
    .want = um_want_entropy,
    .accept = by_entropy,
};
