/* full: whole-sequence decoding as in LLaDA, Dream and RND1. Every pass feeds the whole prompt and canvas, all
 * positions see each other, and no keys are kept between passes. */
#include "decode/canvas.h"

static um_status init(um_req *r, um_err *err) {
    um_canvas *c = UM_NEW(um_canvas);
    um_status st = um_canvas_init(c, r, false, err);
    if (st) um_free(c);
    else r->state = c;
    return st;
}

static um_need need(const um_req *r) {
    const um_canvas *c = (const um_canvas *)r->state;
    um_need n = um_canvas_need(c, r, c->length);
    n.scratch = n.scratch_max = um_canvas_scratch(r, c->length);
    n.tables = 0;
    return n;
}

static void plan(um_req *r, um_pass *pass) {
    um_canvas *c = (um_canvas *)r->state;
    um_canvas_feed(r, pass, UM_PASS_DENOISE, 0, c->length);
    for (int32_t i = 0; i < pass->n_seg; i++) um_pass_use_scratch(pass, &pass->seg[i], c->length);
    um_canvas_add_rows(c, r, pass, 0);
}

static void apply(um_req *r, const um_answer *answer) { um_canvas_apply((um_canvas *)r->state, r, answer, false); }

const um_strategy um_strategy_full = {
    .name = "full",
    .aliases = "whole_sequence,llada,dream",
    .summary = "whole-sequence decoding that feeds every position in every pass",
    .source = "LLaDA, arXiv 2502.09992, algorithm 5 and its semi-autoregressive form; Dream, arXiv 2508.15487",
    .params = {{um_canvas_options, UM_N_CANVAS_OPTIONS}},
    .fills_gaps = true,
    .init = init,
    .need = need,
    .plan = plan,
    .apply = apply,
    .blocks = um_canvas_blocks,
    .trace = um_canvas_trace,
    .free = um_canvas_free,
};
