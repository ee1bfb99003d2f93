/* The table of submissions that have not ended, by request number. It uses open addressing without tombstones. Belongs
 * to the frontend's thread. */
#ifndef UM_SUBMISSIONS_H
#define UM_SUBMISSIONS_H

#include "server/workers/workers.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_submission {
    uint64_t rid; /* 0: the entry is empty */
    uint16_t worker;
    int32_t n, n_ended;                /* answers, 1..UM_ANSWERS_MAX; those that have ended */
    uint8_t ended[UM_ANSWERS_MAX / 8]; /* bit i % 8 of byte i / 8: answer i has ended */
    int64_t tokens; /* weight of the submission in the worker's queue, see um_worker_pool_token_cost */
    um_submission_listener listener;
    void *arg;
} um_submission;

/* A zeroed struct is an empty table. */
typedef struct um_submissions {
    um_submission *entry; /* [size] */
    size_t size;          /* a power of two, more than twice `n` */
    int32_t n;
} um_submissions;

/* Adds a copy. Its rid (> 0) must not be in the table. */
void um_submissions_add(um_submissions *t, const um_submission *g);
/* Returns an entry, valid until the table changes; NULL: unknown. */
um_submission *um_submissions_find(const um_submissions *t, uint64_t rid);
/* Moves an entry out of the table into *g. Returns false if the number is unknown. */
bool um_submissions_take(um_submissions *t, uint64_t rid, um_submission *g);
/* Returns the request numbers of a worker (-1: of all workers) in ascending order; um_free. The list is a copy: an
 * entry may be gone when the caller looks it up. */
uint64_t *um_submissions_list(const um_submissions *t, int32_t worker, size_t *n);
void um_submissions_free(um_submissions *t);

#ifdef __cplusplus
}
#endif
#endif
