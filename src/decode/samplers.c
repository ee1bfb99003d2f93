/* The table of samplers. */
#include "decode/decode.h"

const um_sampler *const um_samplers[] = {
    &um_sampler_confidence,
    &um_sampler_dynamic,
    &um_sampler_static,
    &um_sampler_sequential,
    &um_sampler_sdar_dynamic,
    &um_sampler_factor,
    &um_sampler_hierarchy,
    &um_sampler_credit,
    &um_sampler_entropy_bound,
    &um_sampler_entropy_threshold,
    &um_sampler_entropy_distance,
    &um_sampler_low_confidence,
    &um_sampler_random,
    &um_sampler_origin,
    &um_sampler_maskgit_plus,
    &um_sampler_topk_margin,
    &um_sampler_entropy,
    &um_sampler_linear_entropy,
    &um_sampler_edit,
    &um_sampler_dmax,
    NULL,
};
