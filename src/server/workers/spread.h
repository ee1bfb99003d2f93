/* Divides the prompts of a run_diffusion_generation call among workers and joins their results. Pure functions on JSON;
 * they know nothing of workers. */
#ifndef UM_SPREAD_H
#define UM_SPREAD_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_SPREAD_NAME "run_diffusion_generation"

/* Divides the prompts of a call, each with its parameters, among k workers, where k is n_parts or the number of prompts
 * if that is smaller. Part p gets the prompts p, p + k, p + 2 k, ..., and their numbers in the call.
 *
 * args             the call's arguments, JSON
 * part [n_parts]   receives the arguments for each worker; um_buf_free
 * Returns k. Returns 0 when there is nothing to divide or the arguments are invalid; the caller then sends them to one
 * worker unchanged. */
int32_t um_spread_divide(um_str args, um_buf *part, int32_t n_parts);

/* Appends the results of all prompts, in the order of the prompts, as one JSON array. result [n_parts]: the result of
 * each worker. Errors: UM_EIO when a result is not a list, or has the wrong length. */
um_status um_spread_join(const um_buf *result, int32_t n_parts, um_buf *out, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
