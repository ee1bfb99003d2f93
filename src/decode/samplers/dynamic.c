/* Confidence acceptance as in LMDeploy and Fast-dLLM: accepts the tokens that reach the threshold, and in addition the
 * token with the highest score if the block may be forced. It differs from `confidence` in two cases: when a
 * probability equals the threshold, and when how->confidence is not the probability. */
#include "decode/samplers/samplers.h"

static void dynamic_accept(const um_sampler_input *c, um_decision *d) {
    const int32_t surest = c->forced && c->n > 0 ? um_best_score(c) : -1;
    for (int32_t i = 0; i < c->n; i++)
        if (i == surest || c->answer[i].q_sample >= c->how->accept_threshold) um_decide(d, c, i);
}

const um_sampler um_sampler_dynamic = {
    .name = "dynamic",
    .aliases = "low_confidence_dynamic,confidence_threshold",
    .summary = "accepts every token whose probability is at least accept_threshold, and always the surest one",
    .source = "LMDeploy low_confidence_dynamic; Fast-dLLM, arXiv 2505.22618, algorithm 1 (threshold)",
    .params = {{um_threshold_options, UM_LEN(um_threshold_options)}, {um_score_options, UM_LEN(um_score_options)}},
    .schedule = UM_SCHEDULE_NONE,
    .want = um_want_score,
    .accept = dynamic_accept,
};
