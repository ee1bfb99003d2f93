/* Confidence acceptance: what is sure enough is taken; when nothing is, the surest one may be forced.
 *
 * The threshold is compared with the probability of the chosen token under the distribution it was drawn from; the
 * forced choice may rank by another score (margin of the two best, negative entropy). */
#include "decode/samplers/samplers.h"

static void confidence_accept(const um_choice *c, um_decision *d) {
    for (int32_t i = 0; i < c->n; i++)
        if (c->answer[i].q_sample > c->how->accept_threshold) um_decide(d, c, i);
    if (d->n == 0 && c->n > 0 && c->forced) um_decide(d, c, um_best_score(c));
}

const um_sampler um_sampler_confidence = {
    .name = "confidence",
    .aliases = "threshold,low_confidence_threshold,LowConfidence,naive",
    .summary = "accept every position whose probability is above accept_threshold, or else the surest one",
    .source = "SDAR, arXiv 2510.06303 (dynamic low confidence); SGLang LowConfidence; Diffulex (revision 184ba97)",
    .params = {{um_threshold_options, UM_LEN(um_threshold_options)}, {um_score_options, UM_LEN(um_score_options)}},
    .schedule = UM_SCHEDULE_NONE,
    .want = um_want_score,
    .accept = confidence_accept,
};
