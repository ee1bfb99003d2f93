/* expect: the sizes of the passes that an engine will often run, from its configuration. Pure, any thread. */
#ifndef UM_ENGINE_EXPECT_H
#define UM_ENGINE_EXPECT_H

#include "ops/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_GRAPH_SIZES_MAX 64

typedef struct um_expectation {
    int32_t max_reqs, max_tokens, max_len; /* limits of a pass, and of prompt and answer together */
    int32_t block;                         /* tokens that a request denoises at a time */
    bool whole;                            /* passes also feed whole sequences */
    bool adapts;                           /* requests may use adapters */
    int32_t n_sizes,
        size[UM_GRAPH_SIZES_MAX]; /* [n_sizes] numbers of requests, ascending; none: 1, 2, 4 ... max_reqs */
} um_expectation;

/* Sets e->size from the value of um_config.cuda_graph_sizes. Numbers above e->max_reqs or e->max_tokens are left out.
 * Returns false when no number is left, so that no pass is expected. */
bool um_expect_requests(um_expectation *e, const char *sizes);

/* Writes the sizes to out [most], the most frequent ones first: short contexts before long ones, in powers of two, and
 * for each context the numbers of requests that denoise a block each. Returns their number. Contexts that don't
 * fit into `out` are left out. */
int32_t um_expect_passes(const um_expectation *e, um_pass_size *out, int32_t most);

#ifdef __cplusplus
}
#endif
#endif
