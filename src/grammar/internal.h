/* Declarations that the files of src/grammar share. */
#ifndef UM_GRAMMAR_INTERNAL_H
#define UM_GRAMMAR_INTERNAL_H

#include "grammar/grammar.h"

/* ---- Lists of expressions (chars.c) ------------------------------------------------------------------------------ */

/* A growing list of expressions. A zeroed list is empty. */
typedef struct um_exprs {
    const um_expr **part;
    size_t n, cap;
} um_exprs;
void um_exprs_push(um_exprs *l, const um_expr *e);
/* Turn the list into one expression and free the list. */
const um_expr *um_exprs_join(um_rules *r, um_exprs *l);
const um_expr *um_exprs_either(um_rules *r, um_exprs *l);

/* ---- Sets of code points (chars.c) ------------------------------------------------------------------------------- */

/* A growing list of ranges. A zeroed list is empty. */
typedef struct um_charset {
    um_chars *range;
    size_t n, cap;
} um_charset;
void um_charset_add(um_charset *s, uint32_t first, uint32_t last);
void um_charset_add_all(um_charset *s, const um_chars *range, size_t n, bool negated);
void um_charset_free(um_charset *s);

/* Sorts the ranges and joins those that touch. Returns their number. */
size_t um_chars_normalize(um_chars *range, size_t n);
/* Writes the code points outside of normalized ranges [n] to out [n + 1]. Returns the number of ranges. */
size_t um_chars_invert(const um_chars *range, size_t n, um_chars *out);

/* ---- JSON (json.c) ----------------------------------------------------------------------------------------------- */

/* One code point of the ranges as a character of a JSON string: those that JSON requires to be escaped are. */
const um_expr *um_json_chars(um_rules *r, const um_chars *range, size_t n, bool negated);
/* Any character of a JSON string, plain or escaped. All calls are of one rule. */
const um_expr *um_json_char(um_rules *r);
/* Any characters, as they stand in a JSON string. All calls are of one rule. */
const um_expr *um_json_any_chars(um_rules *r);

#endif
