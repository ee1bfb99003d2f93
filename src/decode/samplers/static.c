/* Accepts a fixed number of positions in each pass: the positions with the highest scores. No threshold applies, so a
 * block that may not be forced accepts nothing. */
#include "decode/samplers/samplers.h"

const um_option um_denoising_options[1] = {
    {"denoising_steps", "dllm_denoising_steps", UM_OPT_INT, UM_FIELD(um_decoding, denoising_steps), 0, 65536, NULL, "0",
     NULL, "N", "Decoding (samplers)",
     "number of denoising passes per block; each pass fills block_size divided by this number, rounded down; 0 means "
     "one position per pass"},
};

int32_t um_denoising_count(const um_sampler_input *c) {
    int32_t steps = c->how->denoising_steps ? c->how->denoising_steps : c->block_len;
    return UM_MIN(UM_MAX(c->block_len / steps, 1), c->n);
}

static void static_accept(const um_sampler_input *c, um_decision *d) {
    if (!c->forced) return;
    um_rank_scores(c);
    for (int32_t k = um_denoising_count(c); k > 0; k--) um_decide(d, c, um_rank_next(c));
}

const um_sampler um_sampler_static = {
    .name = "static",
    .aliases = "low_confidence_static",
    .summary = "accepts a fixed number of positions in each pass, the surest ones",
    .source = "LMDeploy low_confidence_static",
    .params = {{um_score_options, UM_LEN(um_score_options)}, {um_denoising_options, UM_LEN(um_denoising_options)}},
    .schedule = UM_SCHEDULE_NONE,
    .want = um_want_score,
    .accept = static_accept,
};
