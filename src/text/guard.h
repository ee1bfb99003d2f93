/* Keeps the spelling of special tokens inside a message from becoming those tokens. */
#ifndef UM_GUARD_H
#define UM_GUARD_H

#include "text/tok.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A guard is one of the 32 noncharacters U+FDD0 to U+FDEF that occurs nowhere in a request. um_guards_in says which of
 * them s holds, one bit each; um_guard_take returns one whose bit is not set and sets it; 0 when all are. */
uint32_t um_guards_in(um_str s);
uint32_t um_guard_take(uint32_t *used);
/* Appends s without the guard. */
void um_guard_remove(um_str s, uint32_t guard, um_buf *out);

/* Which tokens a text must not spell. */
typedef enum { UM_GUARD_MASK, UM_GUARD_SPECIAL, UM_GUARD_ADDED } um_guard_what; /* the mask; special; all added ones */

/* Appends s to out with the guard behind the first character of everything in it that spells such a token. `borders`:
 * what will stand beside s is not known, so where s begins with the end of a token, or ends with its beginning, a guard
 * goes there too, inside of outer white space, which a template may take off. Where a normalizer would make such a
 * token out of the text, the guard goes behind every character. um_tok_encode_guarded takes the guards out again.
 * Errors: those of the normalizer. */
um_status um_guard_text(const um_tok *t, um_str s, uint32_t guard, um_guard_what what, bool borders, um_buf *out,
                        um_err *err);

/* The first such token that s spells; p NULL when there is none. Errors: those of the normalizer. */
um_status um_guard_find(const um_tok *t, um_str s, um_guard_what what, um_str *token, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
