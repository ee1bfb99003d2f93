/* The table of the supported families. */
#include "model/config.h"

const um_family *const um_families[] = {
    &um_family_llada,
    &um_family_illada,
    &um_family_llada_moe,
    &um_family_llada2,
    &um_family_llada2_2,
    &um_family_dream,
    &um_family_dream_reasoner,
    &um_family_sdar,
    &um_family_sdar_moe,
    &um_family_fast_dllm_v2,
    &um_family_stable_diffcoder,
    &um_family_rnd1,
    &um_family_nemotron,
    &um_family_nemotron_research,
    &um_family_wedlm,
    &um_family_wedlm_7b,
    &um_family_diffusion_gemma,
    NULL,
};
