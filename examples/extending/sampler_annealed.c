/* annealed: accepts above a threshold that starts at accept_threshold and falls to 0 while a block is denoised. Each
 * pass lowers it by 1 / block_len of its start. Confident tokens come first, and every block finishes. */
#include "decode/samplers/samplers.h"

#include "extending.h"

static uint32_t want(const um_req *r) {
    (void)r;
    return UM_WANT_SAMPLE;
}

static void accept(const um_sampler_input *c, um_decision *d) {
    const float left = UM_MAX(0.0F, 1 - (float)(c->total_steps - 1) / (float)c->block_len);
    const float threshold = c->how->accept_threshold * left;
    int32_t best = 0;
    for (int32_t i = 1; i < c->n; i++)
        if (c->answer[i].q_sample > c->answer[best].q_sample) best = i;
    for (int32_t i = 0; i < c->n; i++)
        if (c->answer[i].q_sample > threshold || (c->forced && i == best)) um_decide(d, c, i);
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
