/* sglang: what /generate needs of the API of SGLang, which shares its path. */
#ifndef UM_API_SGLANG_H
#define UM_API_SGLANG_H

#include "server/reading.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Is it a body of that API? */
bool um_sglang_is_body(const struct json_t *root);
um_status um_sglang_read(um_reading *r, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
