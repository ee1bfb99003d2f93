/* Compares recorded logits of single passes with those of the forward pass. */
#ifndef TESTS_FAMILIES_LOGITS_H
#define TESTS_FAMILIES_LOGITS_H

#include "families.h"
#include "golden/forward_fixture.h"

/* The recorded tensors of a case, and the forward pass that is compared with them. */
typedef struct family_logits {
    const family_case *c;
    um_map map;
    um_store *recorded;
    fixture f;
    int32_t stored; /* positions whose keys are in the pages */
    float worst;
    int32_t n;
} family_logits;

/* Opens the case's tensors, NAME.logits.safetensors when it has requests, else NAME.safetensors, and its model. Returns
 * false if the file does not exist, because the default data lack the logits of most cases. */
bool family_logits_open(family_logits *l, const family_case *c, const char *device);
/* Prints the largest difference, and frees everything. Also called when the case was not opened. */
void family_logits_close(family_logits *l, const char *device);
/* Returns whether the file has logits of this request. Only the first requests have some. */
bool family_logits_has(const family_logits *l, size_t request);
/* Returns the tensor with the name prefix + name, or NULL. */
const um_tensor *family_logits_find(const family_logits *l, const char *prefix, const char *name);
/* Feeds n tokens behind the stored keys, in this order, at the positions pos [n]. Token i sees the first seen_end[i]
 * keys. Compares the last rows with a recorded tensor, unless that is NULL. */
void family_logits_run(family_logits *l, const int32_t *id, const int32_t *pos, const int32_t *seen_end, int32_t n,
                       const um_tensor *want);

#endif
