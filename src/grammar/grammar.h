/* grammar: which texts an answer may be, and which tokens keep a text among them.
 *
 * A front end turns a JSON schema (schema.c), a regular expression (regex.c) or a grammar (gbnf.c) into rules over
 * bytes (rules.c). A language (language.h) joins rules with a vocabulary: its states are the places between the bytes
 * of a text, and it knows the tokens that lead from a state to the next. This room knows bytes and tokens. It knows no
 * positions, masks or requests.
 *
 * A set of rules belongs to one thread while it is built, and never changes afterwards. */
#ifndef UM_GRAMMAR_H
#define UM_GRAMMAR_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Rules (rules.c) --------------------------------------------------------------------------------------------- */

#define UM_RULES_MAX       ((int32_t)1 << 14) /* rules of a grammar */
#define UM_RULES_EXPRS_MAX ((int32_t)1 << 18) /* expressions of all its rules */
#define UM_REPEAT_MAX      ((int32_t)1 << 16) /* largest bound of a repetition */

typedef enum {
    UM_EXPR_BYTES,  /* one byte of a set */
    UM_EXPR_TEXT,   /* these bytes */
    UM_EXPR_JOIN,   /* all parts, one after the other; without parts: the empty text */
    UM_EXPR_EITHER, /* one of the parts; without parts: no text at all */
    UM_EXPR_REPEAT, /* the part, min to max times */
    UM_EXPR_CALL    /* a text of a rule */
} um_expr_kind;

/* An expression. It may be a part of several others. */
typedef struct um_expr um_expr;
struct um_expr {
    um_expr_kind kind;
    int32_t n;                  /* JOIN, EITHER: number of parts; TEXT: number of bytes */
    int32_t rule;               /* CALL */
    int32_t min, max;           /* REPEAT; max -1: no bound */
    const um_expr *const *part; /* JOIN, EITHER, [n]; REPEAT, [1] */
    const char *text;           /* TEXT, [n] */
    uint64_t bytes[4];          /* BYTES: bit b % 64 of word b / 64 */
};

typedef struct um_rule {
    const char *name;    /* for messages; unique */
    const um_expr *body; /* NULL until it is set */
} um_rule;

typedef struct um_rules {
    um_arena arena;
    um_rule *rule; /* [n] */
    int32_t n, cap, n_exprs;
    int32_t root;  /* the rule of a whole text */
    int32_t above; /* the rule of a character above U+007F, or -1 */
    bool full;     /* a bound was reached. What is added from then on is dropped; um_rules_check reports it */
} um_rules;

void um_rules_init(um_rules *r);
void um_rules_free(um_rules *r);

/* The functions below allocate expressions that live as long as the rules. They never return NULL. Once the rules are
 * full, they return the empty text. `part` and `text` are copied. */
const um_expr *um_expr_bytes(um_rules *r, const uint64_t bytes[4]);
const um_expr *um_expr_text(um_rules *r, um_str text);
const um_expr *um_expr_join(um_rules *r, const um_expr *const *part, size_t n);
const um_expr *um_expr_either(um_rules *r, const um_expr *const *part, size_t n);
const um_expr *um_expr_repeat(um_rules *r, const um_expr *part, int32_t min, int32_t max);
const um_expr *um_expr_call(um_rules *r, int32_t rule);

/* A range of code points, both ends included. */
typedef struct um_chars {
    uint32_t first, last;
} um_chars;
/* One code point of the ranges [n], in any order, as UTF-8; `negated`: one that is in none of them. Surrogates are in
 * no text. */
const um_expr *um_expr_chars(um_rules *r, const um_chars *range, size_t n, bool negated);

/* Adds a rule without a body and returns its number. */
int32_t um_rule_add(um_rules *r, um_str name);
/* Returns the number of the rule, or -1. */
int32_t um_rule_find(const um_rules *r, um_str name);
void um_rule_set(um_rules *r, int32_t rule, const um_expr *body);

/* Checks that the rules are complete and keep to the bounds, and that no rule begins with itself. UM_ELIMIT names the
 * bound, UM_EINVAL the rule. */
um_status um_rules_check(const um_rules *r, um_err *err);
/* Returns whether the text is one of the root's (rules_match.c). For tests and for small texts: its time may grow with
 * the square of the text and more. */
bool um_rules_match(const um_rules *r, um_str text);

/* ---- Front ends -------------------------------------------------------------------------------------------------- */

/* How white space is written between the tokens of JSON. */
typedef struct um_json_style {
    int32_t space_max; /* 0: none anywhere. N: up to N spaces or line breaks wherever JSON allows some */
} um_json_style;

/* Add the rules of a constraint, and set the root. They check everything about the text of the constraint: errors name
 * the place, as a JSON pointer ("#/properties/age: …") or a line and column. UM_EINVAL for what can't be parsed,
 * UM_EUNSUPPORTED for a keyword or notation that this program does not know, which the message names; UM_ELIMIT when
 * the rules are too large. */
um_status um_rules_from_schema(um_rules *r, const char *schema, size_t n, const um_json_style *style, um_err *err);
um_status um_rules_from_any_json(um_rules *r, const um_json_style *style, um_err *err); /* an object */
um_status um_rules_from_regex(um_rules *r, um_str pattern, um_err *err);
um_status um_rules_from_gbnf(um_rules *r, um_str grammar, um_err *err);
um_status um_rules_from_choice(um_rules *r, const um_str *choice, size_t n, um_err *err);

/* Parses a regular expression into an expression: for the `pattern` of a schema, too. `anchored`: the expression
 * matches a whole text, as fullmatch does; otherwise ^ and $ mark the ends where they are wanted, as in a search.
 * `quoted`: the characters are those of a JSON string, so that quotes, backslashes and controls are written with
 * escapes. */
um_status um_regex_parse(um_rules *r, um_str pattern, bool anchored, bool quoted, const um_expr **out, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
