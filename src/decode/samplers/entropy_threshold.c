/* Entropy acceptance, for models that are distilled to decode many positions in one pass. */
#include <math.h>

#include "decode/samplers/samplers.h"

#define DEFAULT_THRESHOLD 0.45f

static um_status init(um_req *r, um_err *err) {
    (void)err;
    if (isnan(r->how.entropy_threshold)) r->how.entropy_threshold = DEFAULT_THRESHOLD;
    return UM_OK;
}

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
    .params = {{um_entropy_options, UM_LEN(um_entropy_options)}},
    .schedule = UM_SCHEDULE_NONE,
    .init = init,
    .want = um_want_entropy,
    .accept = entropy_threshold_accept,
};
