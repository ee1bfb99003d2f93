/* Confidence acceptance: accepts the tokens above a threshold. If there are none, the token with the highest score may
 * be forced.
 *
 * The threshold is compared with the probability of the sampled token in the distribution from which it was drawn. The
 * forced choice may use another score: the margin between the two best tokens, or the negative entropy. */
#include "decode/samplers/samplers.h"

static void confidence_accept(const um_sampler_input *c, um_decision *d) {
    for (int32_t i = 0; i < c->n; i++)
        if (c->answer[i].q_sample > c->how->accept_threshold) um_decide(d, c, i);
    if (d->n == 0 && c->n > 0 && c->forced) um_decide(d, c, um_best_score(c));
}

const um_sampler um_sampler_confidence = {
    .name = "confidence",
    .aliases = "threshold,low_confidence_threshold,LowConfidence,naive",
    .summary = "accepts every token whose probability is above accept_threshold; if there is none, the surest one",
    .source = "SDAR, arXiv 2510.06303 (dynamic low confidence); SGLang LowConfidence; Diffulex (revision 184ba97)",
    .params = {{um_threshold_options, UM_LEN(um_threshold_options)}, {um_score_options, UM_LEN(um_score_options)}},
    .schedule = UM_SCHEDULE_NONE,
    .want = um_want_score,
    .accept = confidence_accept,
};
