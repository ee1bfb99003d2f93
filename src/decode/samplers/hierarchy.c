/* dInfer's hierarchical decoding: masks that are far apart depend little on each other, so the position with the
 * highest score in every run of neighbouring masks is accepted at a low threshold. This splits runs, so that later
 * passes accept more. */
#include "decode/samplers/samplers.h"

static const um_option params[] = {
    {"low_threshold", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, low_threshold), 0, 1, NULL, "0.4", NULL, "P",
     "Decoding (samplers)",
     "sampler hierarchy: accept the most likely position of each run of masks if its probability is above this"},
};

static um_status init(um_req *r, um_err *err) {
    if (r->how.low_threshold > r->how.accept_threshold)
        return um_fail_param(err, UM_ERANGE, "low_threshold",
                             "%g is above accept_threshold %g; sampler hierarchy needs it to be lower, for the "
                             "surest position of each run of masks",
                             (double)r->how.low_threshold, (double)r->how.accept_threshold);
    return UM_OK;
}

/* Returns the end of the run of neighbouring masks that starts with candidate i. */
static int32_t run_end(const um_sampler_input *c, int32_t i) {
    for (i++; i < c->n && c->position[i] == c->position[i - 1] + 1;) i++;
    return i;
}

/* Decides the run of candidates [start, end). `best`: the candidate with the highest score in the block, which is
 * forced, or -1. */
static void accept_in_run(const um_sampler_input *c, int32_t start, int32_t end, int32_t best, um_decision *d) {
    int32_t peak = start;
    for (int32_t i = start + 1; i < end; i++)
        if (um_score_of(c, i) > um_score_of(c, peak)) peak = i;
    for (int32_t i = start; i < end; i++) {
        const float q = c->answer[i].q_sample;
        bool is_peak = um_score_of(c, i) == um_score_of(c, peak) && q > c->how->low_threshold;
        if (is_peak || q > c->how->accept_threshold || i == best) um_decide(d, c, i);
    }
}

static void hierarchy_accept(const um_sampler_input *c, um_decision *d) {
    const int32_t best = c->forced && c->n > 0 ? um_best_score(c) : -1;
    for (int32_t start = 0, end; start < c->n; start = end) {
        end = run_end(c, start);
        accept_in_run(c, start, end, best, d);
    }
}

const um_sampler um_sampler_hierarchy = {
    .name = "hierarchy",
    .aliases = "hierarchical",
    .summary = "accepts every token above accept_threshold, and the surest of each run of masks above low_threshold",
    .source = "dInfer (inclusionAI/dInfer), its hierarchy decoder",
    .params = {{um_threshold_options, UM_LEN(um_threshold_options)},
               {um_score_options, UM_LEN(um_score_options)},
               {params, UM_LEN(params)}},
    .schedule = UM_SCHEDULE_NONE,
    .init = init,
    .want = um_want_score,
    .accept = hierarchy_accept,
};
