/* multi_bd: block diffusion with block-causal models, with one or more blocks in flight. The grid of blocks starts at
 * position 0, so the end of the prompt may share a block with the answer. */
#include "decode/strategies/blocks.h"

static const um_block_rules rules = {
    .anchor = um_blocks_anchor_zero,
    .see = um_blocks_see,
    .whole = um_blocks_whole_none,
};

static um_status init(um_req *r, um_err *err) {
    if (r->traits->see != UM_SEE_BLOCK_CAUSAL)
        return um_fail_param(err, UM_EUNSUPPORTED, "decoding_strategy",
                             "multi_bd needs a block-causal model; this one has full attention: use "
                             "--decoding-strategy full");
    return um_blocks_init(r, &rules, NULL, err);
}

const um_strategy um_strategy_multi_bd = {
    .name = "multi_bd",
    .aliases = "multi_block_diffusion,block_diffusion,fast_dllm,single_bd",
    .summary = "block diffusion with a stored prefix and up to buffer_size blocks in flight",
    .source = "SDAR, arXiv 2510.06303; Diffulex multi_bd (revision 184ba97)",
    .params = {{um_block_options, UM_LEN(um_block_options)}},
    .init = init,
    .need = um_blocks_need,
    .plan = um_blocks_plan,
    .apply = um_blocks_apply,
    .blocks = um_blocks_list,
    .trace = um_blocks_trace,
    .share = um_blocks_share,
    .free = um_blocks_free,
};
