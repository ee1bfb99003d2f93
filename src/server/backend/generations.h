/* generations: what was asked of the workers and has not ended, by request number. An open-addressing table without
 * marks for what was deleted. Belongs to the frontend's thread. */
#ifndef UM_GENERATIONS_H
#define UM_GENERATIONS_H

#include "server/backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_generation {
    uint64_t rid; /* 0: the entry is empty */
    uint16_t worker;
    int32_t n, n_ended;                /* answers, 1..UM_ANSWERS_MAX */
    uint8_t ended[UM_ANSWERS_MAX / 8]; /* bit i % 8 of byte i / 8: answer i has */
    int64_t tokens;                    /* of prompt and answers at most: its weight in the worker's queue */
    um_listener listener;
    void *arg;
} um_generation;

/* Zero is an empty table. */
typedef struct um_generations {
    um_generation *entry; /* [size] size: a power of two, more than twice `n` */
    size_t size;
    int32_t n;
} um_generations;

/* Copies it in; its rid (> 0) is new. */
void um_generations_add(um_generations *t, const um_generation *g);
/* Lent until the table is changed; NULL: unknown. */
um_generation *um_generations_find(const um_generations *t, uint64_t rid);
/* Takes it out, into *g; false: unknown. */
bool um_generations_take(um_generations *t, uint64_t rid, um_generation *g);
/* The numbers of all that worker has (-1: of all there are), in ascending order; um_free. They stay true while the
 * table changes, though some of them may be gone. */
uint64_t *um_generations_list(const um_generations *t, int32_t worker, size_t *n);
void um_generations_free(um_generations *t);

#ifdef __cplusplus
}
#endif
#endif
