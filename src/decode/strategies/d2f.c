/* d2f: Discrete Diffusion Forcing. An adapter makes a model with full attention block-causal after the prompt: all
 * positions of the prompt see each other, and block b sees the prompt and the blocks up to b. The grid of blocks starts
 * at the end of the prompt.
 *
 * Diffulex lays blocks on a grid from position 0 (compat). The last part of the prompt may then share a block with the
 * answer. It is stored by the pass that stores this block, and like the rest of the block it sees everything up to the
 * block's end. The prompt's other blocks have seen the whole prompt. */
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

/* All positions of the prompt see each other, so one pass stores them. */
static int32_t whole(const um_req *r, const um_blocks *s) {
    if (!r->compat->zero_anchor) return r->n_prompt;
    return r->n_prompt / s->buffer.block_len * s->buffer.block_len;
}

/* Stored keys have seen the whole prompt, so only the answers of one request share them. Families that shift must feed
 * the last position of the prompt, and can feed it only together with all others, so they share nothing. */
static uint64_t share(const um_req *r, int32_t *most) {
    *most = r->compat->zero_anchor || r->traits->shift ? 0 : r->n_prompt;
    return 0;
}

static const um_block_rules rules = {.anchor = anchor, .see = see, .whole = whole};

enum { AUTO_BUFFER = 4 }; /* the adapters' published setting: 4 blocks of 32 */

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
    .summary = "block diffusion behind a prompt with full attention, for LLaDA and Dream with a D2F adapter",
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
