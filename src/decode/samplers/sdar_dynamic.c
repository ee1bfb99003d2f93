/* SDAR's dynamic rule: a schedule gives the least number of positions of a pass. If at least that many tokens are above
 * the threshold, all of these are accepted, otherwise the given number of tokens with the highest scores. With a least
 * number of 1 this is `confidence`. The number never exceeds the masks, so filled positions are not overwritten. */
#include "decode/samplers/samplers.h"

/* Returns the least number of this pass: an even split of the block, whose first passes take the remainder. */
static int32_t scheduled(const um_sampler_input *c) {
    int32_t steps = c->how->denoising_steps ? c->how->denoising_steps : c->block_len;
    int32_t n = c->block_len / steps + (c->count < c->block_len % steps);
    return UM_MIN(UM_MAX(n, 1), c->n);
}

static void sdar_accept(const um_sampler_input *c, um_decision *d) {
    const int32_t least = scheduled(c);
    for (int32_t i = 0; i < c->n; i++)
        if (c->answer[i].q_sample > c->how->accept_threshold) um_decide(d, c, i);
    if (d->n >= least || !c->forced) return;
    um_rank_scores(c);
    for (d->n = 0; d->n < least;) um_decide(d, c, um_rank_next(c));
}

const um_sampler um_sampler_sdar_dynamic = {
    .name = "sdar_dynamic",
    .summary = "accepts every token above accept_threshold if these are as many as the schedule demands, otherwise "
               "that many of the surest",
    .source = "JetAstra/SDAR generate.py, low_confidence_dynamic; JetEngine",
    .params = {{um_threshold_options, UM_LEN(um_threshold_options)},
               {um_score_options, UM_LEN(um_score_options)},
               {um_denoising_options, UM_LEN(um_denoising_options)}},
    .schedule = UM_SCHEDULE_NONE,
    .want = um_want_score,
    .accept = sdar_accept,
};
