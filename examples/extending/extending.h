/* Declares the table rows of this folder (docs/extending.md). */
#ifndef EXTENDING_H
#define EXTENDING_H

#include "decode/decode.h"
#include "model/config.h"

extern const um_strategy strategy_left_to_right;
extern const um_sampler sampler_annealed;
extern const um_retention retention_nearest;
extern const um_family family_lantern;

#endif
