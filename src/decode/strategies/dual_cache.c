/* dual_cache: whole-sequence decoding that reuses the keys before and after a block. It is like prefix_cache, but later
 * passes of a block feed only the block. */
#include "decode/canvas.h"

static int32_t stop(const um_req *r) { return um_canvas_stop((const um_canvas *)r->state); }

static um_need need(const um_req *r) { return um_cached_need(r, stop(r)); }

static void plan(um_req *r, um_pass *pass) { um_cached_plan(r, pass, stop(r)); }

const um_strategy um_strategy_dual_cache = {
    .name = "dual_cache",
    .aliases = "fast_dllm_dual",
    .summary = "whole-sequence decoding that computes all keys outside a block once per block",
    .source = "Fast-dLLM, arXiv 2505.22618, section 3.2 (dual cache)",
    .params = {{um_canvas_options, UM_N_CANVAS_OPTIONS}},
    .fills_gaps = true,
    .init = um_cached_init,
    .need = need,
    .plan = plan,
    .apply = um_cached_apply,
    .blocks = um_canvas_blocks,
    .trace = um_canvas_trace,
    .preempt = um_canvas_preempt,
    .free = um_canvas_free,
};
