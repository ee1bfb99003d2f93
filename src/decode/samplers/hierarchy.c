/* dInfer's hierarchical decoding: masks far from each other depend little on each other, so every run of neighbouring
 * masks may give its surest position at a low threshold; splitting runs in the middle makes the next ones short. */
#include "decode/samplers/samplers.h"

static const um_option params[] = {
    {"low_threshold", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, low_threshold), 0, 1, NULL, "0.4", NULL, "P",
     "Decoding (samplers)", "hierarchy: the surest position of a run of masks is taken above this"},
};

static um_status init(um_req *r, um_err *err) {
    if (r->how.low_threshold > r->how.accept_threshold)
        return um_fail_param(err, UM_ERANGE, "low_threshold",
                             "%g is above accept_threshold %g; sampler hierarchy takes every position above "
                             "the latter and the surest of each run above the former",
                             (double)r->how.low_threshold, (double)r->how.accept_threshold);
    return UM_OK;
}

/* First candidate behind the run of neighbours that begins with candidate i. */
static int32_t run_end(const um_choice *c, int32_t i) {
    for (i++; i < c->n && c->position[i] == c->position[i - 1] + 1;) i++;
    return i;
}

/* Candidates [start, end) are a run. `best`: the surest candidate of all, or -1. */
static void take_of_run(const um_choice *c, int32_t start, int32_t end, int32_t best, um_decision *d) {
    int32_t peak = start;
    for (int32_t i = start + 1; i < end; i++)
        if (um_score_of(c, i) > um_score_of(c, peak)) peak = i;
    for (int32_t i = start; i < end; i++) {
        const float q = c->answer[i].q_sample;
        bool is_peak = um_score_of(c, i) == um_score_of(c, peak) && q > c->how->low_threshold;
        if (is_peak || q > c->how->accept_threshold || i == best) um_decide(d, c, i);
    }
}

static void hierarchy_accept(const um_choice *c, um_decision *d) {
    const int32_t best = c->forced && c->n > 0 ? um_best_score(c) : -1;
    for (int32_t start = 0, end; start < c->n; start = end) {
        end = run_end(c, start);
        take_of_run(c, start, end, best, d);
    }
}

const um_sampler um_sampler_hierarchy = {
    .name = "hierarchy",
    .aliases = "hierarchical",
    .summary = "accept every position above accept_threshold, and the surest of each run of masks above low_threshold",
    .source = "dInfer (inclusionAI/dInfer), its hierarchy decoder",
    .params = {{um_threshold_options, UM_LEN(um_threshold_options)},
               {um_score_options, UM_LEN(um_score_options)},
               {params, UM_LEN(params)}},
    .schedule = UM_SCHEDULE_NONE,
    .init = init,
    .want = um_want_score,
    .accept = hierarchy_accept,
};
