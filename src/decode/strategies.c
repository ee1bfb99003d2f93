/* The table of strategies. */
#include "decode/decode.h"

const um_strategy *const um_strategies[] = {
    &um_strategy_multi_bd,         &um_strategy_d2f,           &um_strategy_dmax,      &um_strategy_levenshtein,
    &um_strategy_joint_indel,      &um_strategy_fast_dllm_v2,  &um_strategy_seeded_bd, &um_strategy_autoregressive,
    &um_strategy_self_speculation, &um_strategy_causal_window, &um_strategy_full,      &um_strategy_prefix_cache,
    &um_strategy_dual_cache,       &um_strategy_sparse,        &um_strategy_renoising, NULL,
};
