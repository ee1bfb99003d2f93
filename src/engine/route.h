/* route: which of several equal engines gets a request. A pure function of what is known of them, whether they live in
 * this process (router.c) or in others. */
#ifndef UM_ENGINE_ROUTE_H
#define UM_ENGINE_ROUTE_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_REPLICAS_MAX 64

/* What is known of an engine when a request comes. */
typedef struct um_replica {
    int64_t queued; /* tokens of the prompts and answers of its requests that have not ended */
    int32_t cached; /* leading tokens of the new prompt whose keys it holds */
} um_replica;

/* How many tokens longer than the shortest queue a queue may be for each prompt token that need not be computed there.
 * A hit saves one feeding of the token. A queued token delays by less than a feeding, since requests share steps: with
 * 4, a prompt's whole prefix outweighs a few requests of its own size, and a single page does not draw every request to
 * one engine. */
#define UM_ROUTE_EXCESS 4

/* Index of the engine among `replica` [n >= 1] that request number `id` (>= 0) goes to, by `policy` UM_ROUTE_*:
 *   PREFIX        the longest cached prefix among those whose queues are not too long for it (UM_ROUTE_EXCESS)
 *   LEAST_LOADED  the shortest queue
 *   ROUND_ROBIN   id modulo n
 * Ties go to the shorter queue, then to the lower index. */
int32_t um_route_request(int32_t policy, const um_replica *replica, int32_t n, int64_t id);

#ifdef __cplusplus
}
#endif
#endif
