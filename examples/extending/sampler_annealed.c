/* annealed: a threshold that falls from accept_threshold to 0 while a block is denoised: with each of its passes by
 * 1 / block_len. What the model is sure of comes first; a block that it stays unsure of does not last for ever. */
#include "decode/samplers/samplers.h"

#include "extending.h"

static uint32_t want(const um_req *r) {
    (void)r;
    return UM_WANT_SAMPLE;
}

static void accept(const um_choice *c, um_decision *d) {
    const float left = UM_MAX(0.0F, 1 - (float)(c->total_steps - 1) / (float)c->block_len);
    const float threshold = c->how->accept_threshold * left;
    int32_t surest = 0;
    for (int32_t i = 1; i < c->n; i++)
        if (c->answer[i].q_sample > c->answer[surest].q_sample) surest = i;
    for (int32_t i = 0; i < c->n; i++)
        if (c->answer[i].q_sample > threshold || (c->forced && i == surest)) um_decide(d, c, i);
}

const um_sampler sampler_annealed = {
    .name = "annealed",
    .summary = "accept above a threshold that falls to 0 with the passes of a block",
    .source = "docs/extending.md",
    .params = {{um_threshold_options, UM_LEN(um_threshold_options)}},
    .schedule = UM_SCHEDULE_NONE,
    .want = want,
    .accept = accept,
};
