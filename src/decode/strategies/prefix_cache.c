/* prefix_cache: whole-sequence decoding that reuses the keys of the positions before a block.
 *
 * The first pass of a block feeds everything, stores all keys and commits the block's first tokens. Later passes feed
 * the block and the positions after it. They read the keys of the positions before the block as the first pass left
 * them. This is an approximation, because those positions see the block, which has changed since. */
#include "decode/canvas.h"

static int32_t stop(const um_req *r) { return ((const um_canvas *)r->state)->length; }

static um_need need(const um_req *r) { return um_cached_need(r, stop(r)); }

static void plan(um_req *r, um_pass *pass) { um_cached_plan(r, pass, stop(r)); }

const um_strategy um_strategy_prefix_cache = {
    .name = "prefix_cache",
    .aliases = "fast_dllm_prefix",
    .summary = "whole-sequence decoding that computes the keys before a block once per block",
    .source = "Fast-dLLM, arXiv 2505.22618, section 3.2 (prefix cache)",
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
