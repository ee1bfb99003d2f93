/* Entropy acceptance, for models that are distilled to decode many positions in one pass. */
#include "decode/samplers/samplers.h"

static const um_option params[] = {
    {"entropy_threshold", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, entropy_threshold), 0, 1000, NULL, "0.45", NULL,
     "NATS", "Decoding (samplers)",
     "sampler entropy_threshold: accept a position if its entropy in nats is below this"},
};

static void entropy_threshold_accept(const um_sampler_input *c, um_decision *d) {
    int32_t lowest = 0;
    for (int32_t i = 0; i < c->n; i++) {
        if (c->answer[i].entropy < c->how->entropy_threshold) um_decide(d, c, i);
        if (c->answer[i].entropy < c->answer[lowest].entropy) lowest = i;
    }
    if (d->n == 0 && c->n > 0 && c->forced) um_decide(d, c, lowest);
}

const um_sampler um_sampler_entropy_threshold = {
    .name = "entropy_threshold",
    .summary =
        "accepts every position whose entropy is below entropy_threshold; if there is none, the one of lowest entropy",
    .source = "dParallel, arXiv 2509.26488; d3LLM",
    .params = {{params, UM_LEN(params)}},
    .schedule = UM_SCHEDULE_NONE,
    .want = um_want_entropy,
    .accept = entropy_threshold_accept,
};
