/* Fast-dLLM's factor rule: the more positions a pass accepts, the higher the probability of the last of them must be.
 *
 * In descending order of their scores, position j (from 1) is accepted if its probability is at least 1 - factor / (j +
 * 1). The first position that fails ends the pass. The first position is always accepted if the block may be forced.
 * The published code also accepts the last mask of the block when it is the first to fail; this sampler does not. */
#include "decode/samplers/samplers.h"

static const um_option params[] = {
    {"factor", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, factor), 0, 1000, NULL, "1", NULL, "X", "Decoding (samplers)",
     "sampler factor: accept the j-th most likely position of a pass if its probability is at least 1 - factor / (j "
     "+ 1)"},
};

static void factor_accept(const um_sampler_input *c, um_decision *d) {
    um_rank_scores(c);
    for (int32_t j = 1; j <= c->n; j++) {
        int32_t i = um_rank_next(c);
        bool passes = c->answer[i].q_sample >= 1 - c->how->factor / (float)(j + 1);
        if (!passes && !(j == 1 && c->forced)) return;
        um_decide(d, c, i);
    }
}

const um_sampler um_sampler_factor = {
    .name = "factor",
    .summary =
        "accepts the surest positions while (their number + 1) x (1 - probability of the last) stays within factor",
    .source = "Fast-dLLM, arXiv 2505.22618 (factor-based parallel decoding)",
    .params = {{um_score_options, UM_LEN(um_score_options)}, {params, UM_LEN(params)}},
    .schedule = UM_SCHEDULE_NONE,
    .want = um_want_score,
    .accept = factor_accept,
};
