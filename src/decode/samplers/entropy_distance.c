/* Entropy acceptance that prefers the first masks. The entropy of a mask is raised by a penalty for each position
 * between it and the first mask, so that the text grows from left to right. It is the entropy before temperature and
 * filters: the choice of positions does not depend on how tokens are drawn. */
#include <math.h>

#include "decode/samplers/samplers.h"

#define DEFAULT_THRESHOLD 0.4f

static const um_option params[] = {
    {"position_penalty", "wedlm_pos_penalty_factor", UM_OPT_FLOAT, UM_FIELD(um_decoding, position_penalty), 0, 1000,
     NULL, "0.02", NULL, "NATS", "Decoding (samplers)",
     "sampler entropy_distance: added to the entropy of a position for each position between it and the first mask"},
};

static um_status init(um_req *r, um_err *err) {
    (void)err;
    if (isnan(r->how.entropy_threshold)) r->how.entropy_threshold = DEFAULT_THRESHOLD;
    return UM_OK;
}

static uint32_t want(const um_req *r) {
    (void)r;
    return UM_WANT_SAMPLE | UM_WANT_PLAIN_ENTROPY;
}

/* Returns the raised entropy of candidate i. Rounding may leave a certain prediction below 0. */
static float raised(const um_sampler_input *c, int32_t i) {
    const float distance = (float)(c->position[i] - c->position[0]);
    return fmaxf(c->answer[i].entropy, 0) + distance * c->how->position_penalty;
}

static void entropy_distance_accept(const um_sampler_input *c, um_decision *d) {
    int32_t lowest = 0;
    for (int32_t i = 0; i < c->n; i++) {
        if (raised(c, i) < c->how->entropy_threshold) um_decide(d, c, i);
        if (raised(c, i) < raised(c, lowest)) lowest = i;
    }
    if (d->n == 0 && c->n > 0 && c->forced) um_decide(d, c, lowest);
}

const um_sampler um_sampler_entropy_distance = {
    .name = "entropy_distance",
    .aliases = "entropy_penalty",
    .summary =
        "accepts every position whose entropy, raised by position_penalty for its distance to the first mask, is "
        "below entropy_threshold; if there is none, the lowest",
    .source = "WeDLM: wedlm/engine of Tencent/WeDLM",
    .params = {{um_entropy_options, UM_LEN(um_entropy_options)}, {params, UM_LEN(params)}},
    .schedule = UM_SCHEDULE_NONE,
    .init = init,
    .want = want,
    .accept = entropy_distance_accept,
};
