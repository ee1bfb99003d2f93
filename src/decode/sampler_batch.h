/* Calls a registered sampler once for all its blocks of a step. In each step and for each sampler:
 *     begin -> add for each request that uses it -> run
 * The strategies of these requests then take the decisions (um_candidates_decide). */
#ifndef UM_SAMPLER_BATCH_H
#define UM_SAMPLER_BATCH_H

#include "decode/decode.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The arrays of a um_sampler_batch. */
typedef struct um_sampler_space um_sampler_space;

/* Returns room for steps of at most rows_max rows, and NULL if no sampler is registered. */
um_sampler_space *um_sampler_space_new(int32_t rows_max);
void um_sampler_space_free(um_sampler_space *p);
/* Returns whether requests may use the sampler: it is built in, or was registered before the space was made. */
um_status um_sampler_space_check(const um_sampler_space *p, const um_sampler *s, um_err *err);
/* Begins the batch of a registered sampler. */
void um_sampler_space_begin(um_sampler_space *p, const um_sampler *s);
/* Adds the blocks of a request whose pass has been answered; `answer` is that of its first row. */
void um_sampler_space_add(um_sampler_space *p, um_req *r, int64_t request, int32_t index, const um_answer *answer);
/* Lets the sampler decide about the batch, unless it is empty, and hands the decisions to the requests. */
void um_sampler_space_run(um_sampler_space *p);

#ifdef __cplusplus
}
#endif
#endif
