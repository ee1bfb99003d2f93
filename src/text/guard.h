/* Keeps the spelling of special tokens inside a message from becoming those tokens. */
#ifndef UM_GUARD_H
#define UM_GUARD_H

#include "text/tok.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A noncharacter that occurs in none of the texts; 0 when all 32 occur. */
uint32_t um_guard_choose(const um_str *text, size_t n);

/* Appends s to out with the guard behind the first character of everything in it that spells a special token of t
 * (`only` >= 0: only the token with this id). Where a normalizer would turn the text into a special token, the guard
 * goes behind every character. um_tok_encode_guarded takes the guards out again. Errors: those of the normalizer. */
um_status um_guard_text(const um_tok *t, um_str s, uint32_t guard, int32_t only, um_buf *out, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
