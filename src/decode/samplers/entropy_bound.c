/* Entropy-bounded acceptance: accepts positions in ascending order of entropy while the sum of the entropies of those
 * accepted before stays within a bound.
 *
 * The sum does not include the position itself, so the first position always passes. Systems whose sum includes it
 * (JetEngine) accept one position less at the same bound. A block that may not be forced accepts the first position
 * only if its own entropy is within the bound. */
#include "decode/samplers/samplers.h"

static const um_option params[] = {
    {"entropy_bound", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, entropy_bound), 0, 1000, NULL, "0.15", NULL, "NATS",
     "Decoding (samplers)",
     "sampler entropy_bound: accept positions from the lowest entropy up, while the sum of the entropies accepted so "
     "far is at most this, in nats"},
};

static void entropy_bound_accept(const um_sampler_input *c, um_decision *d) {
    float sum = 0;
    for (int32_t i = 0; i < c->n; i++) c->score[i] = -c->answer[i].entropy;
    um_rank_start(c);
    for (int32_t k = 0; k < c->n && sum <= c->how->entropy_bound; k++) {
        int32_t i = um_rank_next(c);
        float own = c->answer[i].entropy;
        if (k == 0 && !c->forced && !(own <= c->how->entropy_bound)) return;
        um_decide(d, c, i);
        sum += own;
    }
}

const um_sampler um_sampler_entropy_bound = {
    .name = "entropy_bound",
    .aliases = "entropy_bounded,eb_sampling,EBSampling",
    .summary = "accepts positions in rising order of entropy while the sum of those before stays within entropy_bound",
    .source = "EB-Sampler, arXiv 2505.24857; SGLang EBSampling",
    .params = {{params, UM_LEN(params)}},
    .schedule = UM_SCHEDULE_NONE,
    .want = um_want_entropy,
    .accept = entropy_bound_accept,
};
