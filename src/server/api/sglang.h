/* sglang: what /generate needs of the API of SGLang, which shares its path. */
#ifndef UM_API_SGLANG_H
#define UM_API_SGLANG_H

#include "server/turn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Is it a body of that API? */
bool um_sglang_is_body(const struct json_t *root);
/* Sees a request through; takes `root`. */
void um_sglang_generate(um_server *s, um_exchange *x, struct json_t *root);

#ifdef __cplusplus
}
#endif
#endif
