/* expect: the sizes of the passes that an engine will often run, from its configuration. Pure, any thread. */
#ifndef UM_ENGINE_EXPECT_H
#define UM_ENGINE_EXPECT_H

#include "ops/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_expectation {
    int32_t max_reqs, max_tokens, max_len; /* limits of a pass, and of prompt and answer together */
    int32_t block;                         /* tokens that a request denoises at a time */
    bool whole;                            /* passes also feed whole sequences */
    bool adapts;                           /* requests may use adapters */
} um_expectation;

/* Writes the sizes to out [most], the most frequent ones first: short contexts before long ones, in powers of two, and
 * for each context 1, 2, 4 ... max_reqs requests that denoise a block each. Returns their number. Contexts that don't
 * fit into `out` are left out. */
int32_t um_expect_passes(const um_expectation *e, um_pass_size *out, int32_t most);

#ifdef __cplusplus
}
#endif
#endif
