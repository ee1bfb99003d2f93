/* Prefix hints: which prompt prefixes a worker probably has in its prefix cache, guessed from the prompts that were
 * sent to it. A wrong guess costs time, but never changes an answer. Belongs to the frontend's thread. */
#ifndef UM_PREFIX_HINTS_H
#define UM_PREFIX_HINTS_H

#include "server/link/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The largest number of prefixes that are remembered per worker. The least recently sent ones are dropped first,
 * approximately. */
#define UM_PREFIX_HINTS_MAX 16384

typedef struct um_prefix_hints um_prefix_hints;
um_prefix_hints *um_prefix_hints_new(void);
void um_prefix_hints_free(um_prefix_hints *r);
void um_prefix_hints_clear(um_prefix_hints *r); /* call it when the worker has lost its cache */

/* Computes one hash for each whole page of the prompt. It covers all tokens up to the end of that page, the cache salt
 * and the adapter: keys are shared only if all of them are equal. The random `key` keeps clients from provoking
 * collisions. hash [n_ids / page_size]; page_size >= 1. */
void um_prefix_hints_hash(uint64_t key, const um_msg_generate *g, int32_t page_size, uint64_t *hash);
/* Returns the number of leading pages that were sent before. */
size_t um_prefix_hints_match(const um_prefix_hints *r, const uint64_t *hash, size_t n);
void um_prefix_hints_add(um_prefix_hints *r, const uint64_t *hash, size_t n);

#ifdef __cplusplus
}
#endif
#endif
