/* result_store: the requests of /v1/generate and their results, in memory. Each request gets a number at once, with
 * which the client fetches the result later. A result expires --result-ttl seconds after it is ready; of more than
 * --result-max results the oldest are deleted. */
#ifndef UM_API_RESULTS_H
#define UM_API_RESULTS_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_result_store um_result_store;
/* Cancels the requests that still run, and frees the store. The worker pool must still exist. NULL: does nothing. */
void um_result_store_free(um_result_store *r);

#ifdef __cplusplus
}
#endif
#endif
