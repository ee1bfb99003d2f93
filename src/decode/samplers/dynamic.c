/* Confidence acceptance as LMDeploy and Fast-dLLM have it: equality with the threshold passes, and the surest position
 * is taken beside the others. That one differs from `confidence` at the threshold itself, and when the surest one is
 * found by another score than the probability. */
#include "decode/samplers/samplers.h"

static void dynamic_accept(const um_choice *c, um_decision *d) {
    const int32_t surest = c->forced && c->n > 0 ? um_best_score(c) : -1;
    for (int32_t i = 0; i < c->n; i++)
        if (i == surest || c->answer[i].q_sample >= c->how->accept_threshold) um_decide(d, c, i);
}

const um_sampler um_sampler_dynamic = {
    .name = "dynamic",
    .aliases = "low_confidence_dynamic,confidence_threshold",
    .summary = "accept every position whose probability is at least accept_threshold, and always the surest one",
    .source = "LMDeploy low_confidence_dynamic; Fast-dLLM, arXiv 2505.22618, algorithm 1 (threshold)",
    .params = {{um_threshold_options, UM_LEN(um_threshold_options)}, {um_score_options, UM_LEN(um_score_options)}},
    .schedule = UM_SCHEDULE_NONE,
    .want = um_want_score,
    .accept = dynamic_accept,
};
