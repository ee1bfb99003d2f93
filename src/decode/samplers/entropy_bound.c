/* Entropy-bounded acceptance: in rising order of entropy positions are taken while what is not known about those before
 * them stays within a bound.
 *
 * The sum leaves out the position's own entropy, so the first one always passes; systems that count it in (JetEngine)
 * take one position less at the same bound. A block that may not be forced takes the first one only when its own
 * entropy lies within the bound. */
#include "decode/samplers/samplers.h"

static const um_option params[] = {
    {"entropy_bound", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, entropy_bound), 0, 1000, NULL, "0.15", NULL, "NATS",
     "Decoding (samplers)", "entropy_bound: entropy that positions of a pass may have together, the last left out"},
};

static void entropy_bound_accept(const um_choice *c, um_decision *d) {
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
    .summary = "accept positions in rising order of entropy while the sum of those before stays within entropy_bound",
    .source = "EB-Sampler, arXiv 2505.24857; SGLang EBSampling",
    .params = {{params, UM_LEN(params)}},
    .schedule = UM_SCHEDULE_NONE,
    .want = um_want_entropy,
    .accept = entropy_bound_accept,
};
