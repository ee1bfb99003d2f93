/* Declarations that the files of src/grammar share. */
#ifndef UM_GRAMMAR_INTERNAL_H
#define UM_GRAMMAR_INTERNAL_H

#include "grammar/grammar.h"

/* ---- Rules (rules.c) --------------------------------------------------------------------------------------------- */

/* As um_rules_check. *rule receives the number of the rule that is to blame, or -1. */
um_status um_rules_check_at(const um_rules *r, int32_t *rule, um_err *err);

/* Sets *matches as um_rules_match returns it, for checked rules. Takes the steps from *work. Returns false when they
 * don't suffice or the text is longer than UM_MATCH_WITHIN_MAX (rules_match.c). */
#define UM_MATCH_WITHIN_MAX 1000
bool um_rules_match_within(const um_rules *r, um_str text, int64_t *work, bool *matches);

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
const um_expr *um_expr_join2(um_rules *r, const um_expr *a, const um_expr *b);
const um_expr *um_expr_join3(um_rules *r, const um_expr *a, const um_expr *b, const um_expr *c);
const um_expr *um_expr_either2(um_rules *r, const um_expr *a, const um_expr *b);
const um_expr *um_expr_nothing(um_rules *r); /* the empty text */
/* One byte of those in the set, which is a list of ASCII characters, or between two of them. */
const um_expr *um_expr_one_of(um_rules *r, const char *set);
const um_expr *um_expr_between(um_rules *r, char first, char last);

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
const um_expr *um_json_any_string(um_rules *r);
const um_expr *um_json_any_integer(um_rules *r);
const um_expr *um_json_any_number(um_rules *r);
const um_expr *um_json_bool(um_rules *r);
/* Values of any kind. They call each other: the depth of their nesting is the language's. */
const um_expr *um_json_any_value(um_rules *r, const um_json_style *style);
const um_expr *um_json_any_object(um_rules *r, const um_json_style *style);
const um_expr *um_json_any_array(um_rules *r, const um_json_style *style);
/* A text of JSON with the white space of the style on both sides where `before` and `after` are set. */
const um_expr *um_json_mark(um_rules *r, const um_json_style *style, bool before, um_str text, bool after);
/* open, part, close, with white space. part NULL: none. */
const um_expr *um_json_enclosed(um_rules *r, const um_json_style *style, char open, const um_expr *part, char close);
const um_expr *um_json_comma(um_rules *r, const um_json_style *style);
/* The key and its colon, behind a comma if that is set. */
const um_expr *um_json_key(um_rules *r, const um_json_style *style, bool comma, um_str name);

/* ---- Regular expressions (regex.c) ------------------------------------------------------------------------------- */

/* As um_regex_parse, with an expression of one byte in place of each character, so that texts are as many bytes long as
 * the expression's texts are characters. Both expressions have the same parts. */
um_status um_regex_parse_lengths(um_rules *r, um_str pattern, bool anchored, const um_expr **out, um_err *err);

#endif
