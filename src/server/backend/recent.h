/* recent: which beginnings of prompts a worker is likely to hold, guessed from those that were sent to it. The worker
 * alone knows; a wrong guess costs time and no answer. Belongs to the frontend's thread. */
#ifndef UM_RECENT_H
#define UM_RECENT_H

#include "server/link/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Beginnings that are remembered of one worker; those that were not used for long go first. */
#define UM_RECENT_MAX 16384

typedef struct um_recent um_recent;
um_recent *um_recent_new(void);
void um_recent_free(um_recent *r);
void um_recent_clear(um_recent *r); /* the worker has forgotten */

/* One number for each whole page of the prompt: it stands for all tokens up to the end of that page, the cache salt and
 * the adapter, which all must be equal for keys to be shared. `key` keeps clients from making numbers meet.
 * hash [n_ids / page_size]; page_size >= 1. */
void um_recent_hash(uint64_t key, const um_msg_generate *g, int32_t page_size, uint64_t *hash);
/* Leading pages that were sent before, of those with these numbers. */
size_t um_recent_match(const um_recent *r, const uint64_t *hash, size_t n);
void um_recent_add(um_recent *r, const uint64_t *hash, size_t n);

#ifdef __cplusplus
}
#endif
#endif
