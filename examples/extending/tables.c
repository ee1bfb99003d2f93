/* The tables of a program with the rows of this folder. They are linked in front of libunmask.a and replace the
 * library's tables. A row that they leave out is not in the program. */
#include "extending.h"

const um_strategy *const um_strategies[] = {
    &um_strategy_multi_bd, &um_strategy_full, &um_strategy_sparse, &strategy_left_to_right, NULL,
};

const um_sampler *const um_samplers[] = {
    &um_sampler_confidence,
    &um_sampler_low_confidence,
    &sampler_annealed,
    NULL,
};

const um_retention *const um_retentions[] = {&um_retention_attention, &retention_nearest, NULL};

const um_family *const um_families[] = {&um_family_sdar, &um_family_llada, &family_lantern, NULL};
