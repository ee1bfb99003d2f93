/* queue: the answers that wait for admission, and whose turn it is.
 *
 * A level holds the waiting answers of one priority; levels with lower numbers come first. In a level the tenants take
 * turns, and in a tenant its requests. Tenants and requests that have nothing running come before those that have.
 * Among tenants with running answers, deficit round robin shares the tokens: a turn gives a tenant credit for `quantum`
 * tokens, and each of its answers takes what it can need at most. Among the requests of a tenant, a turn is one answer.
 *
 *   level     idle   tenants with waiting answers and no running ones, in turn
 *             busy   tenants with waiting and running answers; the head has its turn
 *   tenant    fresh  requests with waiting answers and no running ones, in turn
 *             begun  requests with waiting and running answers, in turn
 *   group     waiting answers of one request, by arrival
 *
 * By arrival (`by_arrival`) a level has one tenant, and its requests get all their answers admitted in turn. A
 * preempted answer comes before newer ones of its tenant.
 *
 * Adding a request allocates; nothing else does. To find the next answer, and to admit it, costs O(1), apart from
 * answers that were passed over in this step (UM_PASSED_OVER_MAX). To add a request, the levels are searched. An engine
 * owns its queue. */
#ifndef UM_ENGINE_QUEUE_H
#define UM_ENGINE_QUEUE_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_PASSED_OVER_MAX 16 /* waiting answers that may be passed over in one step */
#define UM_TENANT_BUCKETS  256

typedef struct um_sequence um_sequence;

/* A node of a circular list. The list itself is a node, too. An entry has its node as first member. */
typedef struct um_link {
    struct um_link *next, *prev;
} um_link;

typedef struct um_level {
    struct um_level *next;
    int32_t priority;
    um_link idle, busy;
    int32_t n_tenants;
} um_level;

/* The requests of one tenant that have the same priority. It exists while it has an unfinished answer. */
typedef struct um_tenant {
    um_link link; /* in the level, while an answer waits */
    um_level *level;
    struct um_tenant *next; /* in the bucket */
    uint64_t number;
    um_link fresh, begun;
    int64_t credit; /* tokens that the turn still has */
    bool has_turn;
    int32_t n_groups;             /* with unfinished answers */
    int32_t n_listed, n_passed;   /* groups with waiting answers; those passed over in this step */
    int32_t n_running, n_leading; /* running answers, and those that lead */
} um_tenant;

/* The answers of one request. It exists while one of them is unfinished. */
typedef struct um_group {
    um_link link; /* in the tenant, while an answer waits */
    um_tenant *tenant;
    um_sequence *waiting, *last; /* by arrival */
    um_sequence *first;          /* answer 0 while it exists */
    int32_t n_unfinished, n_running;
    bool is_passed; /* passed over in this step */
} um_group;

typedef struct um_queue {
    um_level *level; /* by priority */
    um_tenant *bucket[UM_TENANT_BUCKETS];
    um_sequence *first, *last; /* all waiting answers: preempted ones first, then by arrival */
    int32_t n_waiting;
    um_group *passed[UM_PASSED_OVER_MAX];
    int32_t n_passed;
    bool by_arrival;
    int64_t quantum;
} um_queue;

/* quantum: at least the largest cost of an answer, so that each turn admits one. */
void um_queue_init(um_queue *q, int64_t quantum, bool by_arrival);
/* Returns the tokens that an answer can need at most: its prompt and its longest answer, for each of its page tables.
 */
int64_t um_queue_cost(const um_sequence *j);

/* Adds a new answer. `group`: that of an earlier answer of the same request; NULL for the first one. */
void um_queue_add(um_queue *q, um_sequence *j, um_group *group);
/* Returns the next waiting answer that was not passed over in this step; NULL: there is none. */
um_sequence *um_queue_next(const um_queue *q);
/* Passes an answer, and the rest of its request, over until um_queue_restore. At most UM_PASSED_OVER_MAX times. */
void um_queue_pass(um_queue *q, um_sequence *j);
void um_queue_restore(um_queue *q);
/* Lets a waiting answer run: takes it from the queue and its cost from its tenant. */
void um_queue_start(um_queue *q, um_sequence *j);
/* Puts a running answer, which was preempted, back into the queue. */
void um_queue_return(um_queue *q, um_sequence *j);
/* Takes an answer that ends from the queue, or from those that run. */
void um_queue_end(um_queue *q, um_sequence *j, bool was_running);

#ifdef __cplusplus
}
#endif
#endif
