/* Fast-dLLM's factor rule: the more positions a pass takes, the surer the last of them must be.
 *
 * In falling order of confidence position j (from 1) passes while its probability is at least 1 - factor / (j + 1); the
 * first one that does not ends the pass. The surest is always taken, unless the block may not be forced: then it must
 * pass like the others. The published code also takes the very last mask when it is the first to fail; here it fails.
 */
#include "decode/samplers/samplers.h"

static const um_option params[] = {
    {"factor", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, factor), 0, 1000, NULL, "1", NULL, "X", "Decoding (samplers)",
     "factor: position j of a pass, the surest first, must be as probable as 1 - this / (j + 1)"},
};

static void factor_accept(const um_choice *c, um_decision *d) {
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
    .summary = "accept the surest positions while (how many + 1) x (1 - probability of the last) stays within factor",
    .source = "Fast-dLLM, arXiv 2505.22618 (factor-based parallel decoding)",
    .params = {{um_score_options, UM_LEN(um_score_options)}, {params, UM_LEN(params)}},
    .schedule = UM_SCHEDULE_NONE,
    .want = um_want_score,
    .accept = factor_accept,
};
