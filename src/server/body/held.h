/* held: the memory that the parsed bodies of clients take. A short body can parse to a hundred times its size, so the
 * size of the text alone bounds nothing. One body may hold `one` bytes, all bodies together `all`. A body holds its
 * memory until its generation has ended, because prompts and other strings point into its JSON values.
 *
 * Any thread may call these functions. */
#ifndef UM_HELD_H
#define UM_HELD_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_held_limit {
    size_t one, all;
    size_t used; /* bytes that are held now; changed atomically */
} um_held_limit;

/* The memory of one parsed text, shared by the bodies that were made of it. `limit` must outlive it. */
typedef struct um_held um_held;

/* Reserves the memory of a JSON text before it is parsed. Errors: UM_ELIMIT if the text needs more than `one`,
 * UM_ENOMEM if all bodies together would need more than `all`. */
um_status um_held_new(um_held **out, um_held_limit *limit, um_str json, um_err *err);
um_held *um_held_ref(um_held *h);
/* Call it after the values are freed. The last call gives up the reservation and, after a large text, returns the freed
 * memory to the system. NULL is fine. */
void um_held_unref(um_held *h);

#ifdef __cplusplus
}
#endif
#endif
