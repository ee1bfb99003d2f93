/* replica: the choice between several engines with the same configuration. It is a pure function of facts about the
 * engines, so it serves engines in this process (router.c) and in worker processes. */
#ifndef UM_ENGINE_REPLICA_H
#define UM_ENGINE_REPLICA_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_REPLICAS_MAX 64

/* An engine as the choice sees it when a request arrives. */
typedef struct um_replica {
    int64_t queued; /* tokens of the prompts and answers of its unfinished requests */
    int32_t cached; /* leading tokens of the new prompt whose keys it has stored */
} um_replica;

/* The number of tokens by which the queue of an engine may exceed the shortest queue, for each cached token of the
 * prompt. A cached token saves feeding that token once. A queued token costs less than that, because requests share
 * steps. With 4, a prompt that is cached as a whole outweighs a few requests of its size, and a single cached page does
 * not send all requests to one engine. */
#define UM_REPLICA_EXCESS 4

/* Returns the index of the engine among `replica` [n >= 1] for the request number `id` (>= 0). `policy` is a
 * UM_ROUTE_*:
 *
 *   PREFIX        the longest cached prefix among the engines whose queue does not exceed the limit above
 *   LEAST_LOADED  the shortest queue
 *   ROUND_ROBIN   id modulo n
 *
 * Ties go to the shorter queue, then to the lower index. */
int32_t um_replica_choose(int32_t policy, const um_replica *replica, int32_t n, int64_t id);

#ifdef __cplusplus
}
#endif
#endif
