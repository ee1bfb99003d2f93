/* Scores of candidates, and ranking by score. */
#include "decode/samplers/samplers.h"

#include <math.h>

const um_option um_threshold_options[1] = {
    {"accept_threshold", "threshold,commit_confidence_threshold,dllm_confidence_threshold", UM_OPT_FLOAT,
     UM_FIELD(um_decoding, accept_threshold), 0, 1, NULL, "auto", "nan", "P", "Decoding",
     "accept a token if its probability is above this; auto means the default of the model family"},
};

const um_option um_entropy_options[1] = {
    {"entropy_threshold", "wedlm_entropy_threshold", UM_OPT_FLOAT, UM_FIELD(um_decoding, entropy_threshold), 0, 1000,
     NULL, "auto", "nan", "NATS", "Decoding (samplers)",
     "samplers entropy_threshold and entropy_distance: accept a position if its entropy in nats is below this; auto "
     "means 0.45, and 0.4 for entropy_distance"},
};

const um_option um_score_options[1] = {
    {"confidence", NULL, UM_OPT_CHOICE, UM_FIELD(um_decoding, confidence), 0, 0, "probability|margin|entropy",
     "probability", NULL, "SCORE", "Decoding",
     "score that ranks the positions; thresholds always compare the probability"},
};

uint32_t um_want_score(const um_req *r) {
    switch (r->how.confidence) {
    case UM_CONFIDENCE_MARGIN: return UM_WANT_SAMPLE | UM_WANT_BEST | UM_WANT_SECOND;
    case UM_CONFIDENCE_ENTROPY: return UM_WANT_SAMPLE | UM_WANT_ENTROPY;
    default: return UM_WANT_SAMPLE;
    }
}

uint32_t um_want_entropy(const um_req *r) {
    (void)r;
    return UM_WANT_SAMPLE | UM_WANT_ENTROPY;
}

float um_score_of(const um_sampler_input *c, int32_t i) {
    const um_answer *a = &c->answer[i];
    switch (c->how->confidence) {
    case UM_CONFIDENCE_MARGIN: return a->q_best - a->q_second;
    case UM_CONFIDENCE_ENTROPY: return -a->entropy;
    default: return a->q_sample;
    }
}

int32_t um_best_score(const um_sampler_input *c) {
    int32_t best = 0;
    for (int32_t i = 1; i < c->n; i++)
        if (um_score_of(c, i) > um_score_of(c, best)) best = i;
    return best;
}

/* um_rank_next marks the candidates that it has returned with NaN. */
void um_rank_start(const um_sampler_input *c) {
    for (int32_t i = 0; i < c->n; i++)
        if (isnan(c->score[i])) c->score[i] = -INFINITY;
}

void um_rank_scores(const um_sampler_input *c) {
    for (int32_t i = 0; i < c->n; i++) c->score[i] = um_score_of(c, i);
    um_rank_start(c);
}

int32_t um_rank_next(const um_sampler_input *c) {
    int32_t best = -1;
    for (int32_t i = 0; i < c->n; i++)
        if (!isnan(c->score[i]) && (best < 0 || c->score[i] > c->score[best])) best = i;
    if (best >= 0) c->score[best] = NAN;
    return best;
}
