/* d2f: Discrete Diffusion Forcing. A model that sees every position, with an adapter that makes it block-causal behind
 * the prompt: the prompt sees itself whole, block b sees the prompt and blocks up to b. Blocks are counted from the
 * prompt's end.
 *
 * The compared system lays blocks on a grid from position 0 (compat): then the prompt's tail shares a block with the
 * answer and is stored with it, in the decode pass that stores the block, seeing the block alone; the prompt's other
 * blocks have seen the prompt. */
#include "decode/strategies/blocks.h"

static int32_t anchor(const um_req *r, int32_t block_len) {
    (void)block_len;
    return r->compat->zero_anchor ? 0 : r->n_prompt;
}

static um_visibility see(const um_req *r, const um_blocks *s, bool storing_prompt) {
    um_visibility v = um_blocks_see(r, s, storing_prompt);
    if (!r->compat->zero_anchor || !storing_prompt) return v;
    v.prefix = r->n_prompt;
    v.anchor = UM_CEIL_DIV(r->n_prompt, v.block) * v.block;
    return v;
}

/* Every position of the prompt sees every other: one pass stores it. */
static int32_t whole(const um_req *r, const um_blocks *s) {
    if (!r->compat->zero_anchor) return r->n_prompt;
    return r->n_prompt / s->buffer.block_len * s->buffer.block_len;
}

/* Stored keys have seen the whole prompt: they serve the other answers to it alone. A shift family has to feed the end
 * of the prompt, which can't be fed without the rest. */
static uint64_t share(const um_req *r, int32_t *most) {
    *most = r->compat->zero_anchor || r->traits->shift ? 0 : r->n_prompt;
    return 0;
}

static const um_block_rules rules = {.anchor = anchor, .see = see, .whole = whole};

enum { AUTO_BUFFER = 4 }; /* published settings of the adapters: 4 blocks of 32 */

static um_status init(um_req *r, um_err *err) {
    if (r->traits->see != UM_SEE_FULL)
        return um_fail_param(err, UM_EUNSUPPORTED, "decoding_strategy",
                             "d2f is for models with full attention and an adapter that makes them block-causal; "
                             "this one is block-causal: use --decoding-strategy multi_bd");
    if (r->how.buffer_size == 0) r->how.buffer_size = AUTO_BUFFER;
    return um_blocks_init(r, &rules, NULL, err);
}

const um_strategy um_strategy_d2f = {
    .name = "d2f",
    .aliases = "discrete_diffusion_forcing",
    .summary = "block diffusion behind a prompt that sees itself whole, for LLaDA and Dream with a D2F adapter",
    .source = "D2F, arXiv 2508.09192; Diffulex d2f (revision 184ba97)",
    .params = {{um_block_options, UM_LEN(um_block_options)}},
    .init = init,
    .need = um_blocks_need,
    .plan = um_blocks_plan,
    .apply = um_blocks_apply,
    .blocks = um_blocks_list,
    .trace = um_blocks_trace,
    .share = share,
    .free = um_blocks_free,
};
