/* sglang: SGLang's /generate, for native.c: Diffulex's API has the same path. */
#ifndef UM_API_SGLANG_H
#define UM_API_SGLANG_H

#include "server/generate/intake.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns whether the body belongs to SGLang's API: it then has `text` or `input_ids`. */
bool um_sglang_is_body(const struct json_t *root);
/* Reads a body of SGLang's API. Serves as the `read` of an intake handler. Any thread. */
um_status um_sglang_read(um_intake *r, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
