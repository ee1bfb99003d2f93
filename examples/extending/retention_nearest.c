/* nearest: keeps the keys that lie closest to the block, on either side. The rule reads no keys, so the choice costs
 * nothing. */
#include "extending.h"

static void prior(const um_decoding *how, int32_t n_prompt, um_range block, int32_t n, float *out) {
    (void)how;
    (void)n_prompt;
    for (int32_t i = 0; i < n; i++) out[i] = -(float)(i < block.start ? block.start - i : i - block.end + 1);
}

const um_retention retention_nearest = {
    .name = "nearest",
    .summary = "the keys that lie closest to the block",
    .source = "docs/extending.md",
    .blind = true,
    .prior = prior,
};
