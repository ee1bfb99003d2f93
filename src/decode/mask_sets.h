/* Sets of masks: which tokens of a block each pass of a Monte Carlo score masks, and how much its predictions count.
 *
 * The likelihood of a block of n tokens is estimated as in LLaDA (Nie et al., arXiv 2502.09992), in the form of less
 * variance: exactly l of the n tokens are masked, l = 1 .. n with equal probability, and
 *
 *     log p = E over l and sets of l tokens of  n / l * sum over the masked tokens of log p(token | tokens not masked)
 *
 * The values of l are spread evenly over a batch of samples: the first one is random, and the others follow at equal
 * distances, modulo n. LLaDA's evaluation does the same. Batches are independent of each other. Where the block has no
 * more sets than samples are wanted, each set is taken once, with its probability as weight. */
#ifndef UM_MASK_SETS_H
#define UM_MASK_SETS_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_mask_sets {
    int32_t n;              /* tokens of the block */
    int32_t first;          /* number of its first token in the answer, a part of the random keys */
    int32_t samples, batch; /* batch divides samples */
    uint64_t seed;
    bool exact;    /* each set is taken once */
    int32_t count; /* sets to take */
} um_mask_sets;

/* Returns the automatic batch of a number of samples: its largest divisor that leaves eight batches, else 1. */
int32_t um_mask_sets_batch(int32_t samples);
/* Fills in `exact` and `count`; the other fields are given. */
void um_mask_sets_init(um_mask_sets *s);
/* Fills in set number i: masked [n]. Returns the number of masks, at least 1. *weight is the factor of each masked
 * token's log-probability in the sum over all sets. Pure. */
int32_t um_mask_sets_get(const um_mask_sets *s, int32_t i, bool *masked, double *weight);

#ifdef __cplusplus
}
#endif
#endif
