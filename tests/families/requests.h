/* What the replays of requests share: the engine, and the ids of a request. */
#ifndef TESTS_FAMILIES_REQUESTS_H
#define TESTS_FAMILIES_REQUESTS_H

#include "families.h"
#include "support.h"

/* Opens the case's model in fp32 and an engine. FAMILY_BATCHED: a step has at most `tokens` tokens, so that prompts are
 * stored in chunks, and the layout of keys and values is the other one. compat: UM_COMPAT_*. */
void family_engine_open(test_engine *t, const family_case *c, const char *device, family_mode mode, int32_t tokens,
                        int32_t compat);
/* Returns the largest number of ids of a prompt. */
int32_t family_longest_prompt(const json_t *requests);
/* Returns the ids of a list, which may be NULL, and stores their number. Released with um_free. */
int32_t *family_ids(const json_t *list, size_t *n);

#endif
