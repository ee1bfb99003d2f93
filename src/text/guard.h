/* Prevents text in a message that spells a special token from becoming that token. */
#ifndef UM_GUARD_H
#define UM_GUARD_H

#include "text/tok.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A guard is one of the 32 noncharacters U+FDD0 to U+FDEF, chosen so that it does not occur in the request.
 * um_guards_in returns the noncharacters that s contains, one bit each. um_guard_pick returns a noncharacter whose bit
 * is not set and sets the bit. It returns 0 if all bits are set. */
uint32_t um_guards_in(um_str s);
uint32_t um_guard_pick(uint32_t *used);
/* Appends s with all guards removed. */
void um_guard_remove(um_str s, uint32_t guard, um_buf *out);

/* The tokens that a text must not spell: the mask token; special tokens and the mask token; all added tokens. */
typedef enum { UM_GUARD_MASK, UM_GUARD_SPECIAL, UM_GUARD_ADDED } um_guard_what;

/* Appends s to out and inserts the guard after the first character of every spelling of a protected token. `borders`:
 * the neighboring text is unknown, so a guard is also inserted if s begins with the end of a protected token or ends
 * with its beginning. This guard goes inside the outer white space, which a template may strip. If the normalizer would
 * still turn the text into a protected token, the guard follows every character. um_tok_encode_guarded removes the
 * guards. Errors: the normalizer's. */
um_status um_guard_text(const um_tok *t, um_str s, uint32_t guard, um_guard_what what, bool borders, um_buf *out,
                        um_err *err);

/* Finds the first protected token that s spells. token->p is NULL if there is none. If only the normalizer produces a
 * protected token, *token is all of s. Errors: the normalizer's. */
um_status um_guard_find(const um_tok *t, um_str s, um_guard_what what, um_str *token, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
