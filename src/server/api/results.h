/* results: answers that are fetched later. A request gets a number at once; its result is kept for a while, and the
 * oldest ones go when there are too many. */
#ifndef UM_API_RESULTS_H
#define UM_API_RESULTS_H

#include "server/server.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_results um_results;
/* Ends what runs; NULL is fine. The backend must still be there. */
void um_results_free(um_results *r);

#ifdef __cplusplus
}
#endif
#endif
