/* Accepts a fixed number of positions in each pass, from left to right. Filled positions between masks count too. */
#include "decode/samplers/samplers.h"

static void sequential_accept(const um_sampler_input *c, um_decision *d) {
    if (!c->forced || c->n == 0) return;
    const int32_t end = c->position[0] + um_denoising_count(c);
    for (int32_t i = 0; i < c->n && c->position[i] < end; i++) um_decide(d, c, i);
}

static uint32_t want_sample(const um_req *r) {
    (void)r;
    return UM_WANT_SAMPLE;
}

const um_sampler um_sampler_sequential = {
    .name = "sequential",
    .summary = "accepts a fixed number of positions in each pass, from left to right",
    .source = "LMDeploy sequential; SDAR, arXiv 2510.06303",
    .params = {{um_denoising_options, UM_LEN(um_denoising_options)}},
    .schedule = UM_SCHEDULE_NONE,
    .want = want_sample,
    .accept = sequential_accept,
};
