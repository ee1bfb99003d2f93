/* The table of samplers. */
#include "decode/decode.h"

const um_sampler *const um_samplers[] = {&um_sampler_confidence, NULL};
