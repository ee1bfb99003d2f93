/* Confidence acceptance: what is sure enough is taken; when nothing is, the surest one may be forced.
 *
 * The threshold is compared with the probability of the chosen token under the distribution it was drawn from; the
 * forced choice may rank by another score (margin of the two best, negative entropy). */
#include "decode/decode.h"

static uint32_t confidence_want(const um_req *r) {
    switch (r->how.confidence) {
    case UM_CONFIDENCE_MARGIN: return UM_WANT_SAMPLE | UM_WANT_BEST | UM_WANT_SECOND;
    case UM_CONFIDENCE_ENTROPY: return UM_WANT_SAMPLE | UM_WANT_ENTROPY;
    default: return UM_WANT_SAMPLE;
    }
}

static float score_of(const um_answer *a, int32_t confidence) {
    switch (confidence) {
    case UM_CONFIDENCE_MARGIN: return a->q_best - a->q_second;
    case UM_CONFIDENCE_ENTROPY: return -a->entropy;
    default: return a->q_sample;
    }
}

static void confidence_accept(const um_choice *c, um_decision *d) {
    const int32_t rank = c->how->confidence;
    int32_t best = 0;
    for (int32_t i = 0; i < c->n; i++) {
        if (c->answer[i].q_sample > c->how->accept_threshold) um_decide(d, c, i);
        if (score_of(&c->answer[i], rank) > score_of(&c->answer[best], rank)) best = i;
    }
    if (d->n == 0 && c->n > 0 && c->forced) um_decide(d, c, best);
}

const um_sampler um_sampler_confidence = {
    .name = "confidence",
    .summary = "accept every position whose probability is above accept_threshold, or else the surest one",
    .source = "Fast-dLLM, arXiv 2505.22618, algorithm 1 (threshold); SDAR, arXiv 2510.06303 (dynamic low confidence)",
    .schedule = UM_SCHEDULE_NONE,
    .want = confidence_want,
    .accept = confidence_accept,
};
