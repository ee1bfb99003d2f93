/* Declarations that the files of the JSON schema front end share.
 *
 * A value is described by a conjunction: a list of schemas that all apply to it. $ref and allOf add schemas to the
 * list, anyOf and oneOf make one list for each branch, and what is left is compiled type by type. So a keyword means
 * the same whichever of these brought it. */
#ifndef UM_GRAMMAR_SCHEMA_H
#define UM_GRAMMAR_SCHEMA_H

#include <jansson.h>

#include "grammar/internal.h"

#define UM_SCHEMA_AT_MAX 200 /* bytes of a place in messages; longer places lose their middle */

typedef struct um_schema_part {
    const json_t *schema; /* an object */
    const char *at;       /* its place, as a JSON pointer */
    int32_t parent;       /* the part whose $ref, allOf, anyOf or oneOf added this one; -1: none */
    bool any_done, one_done;
} um_schema_part;

typedef struct um_conj {
    um_schema_part *part; /* [n], in the compiler's arena */
    int32_t n, cap;
    bool never; /* one of the schemas is false */
} um_conj;

enum {
    UM_TYPE_NULL = 1,
    UM_TYPE_BOOL = 2,
    UM_TYPE_INTEGER = 4,
    UM_TYPE_NUMBER = 8, /* includes integers */
    UM_TYPE_STRING = 16,
    UM_TYPE_ARRAY = 32,
    UM_TYPE_OBJECT = 64,
    UM_TYPE_ALL = 127
};

typedef struct um_schema_memo {
    char *key;
    int32_t rule;
    bool never;
    const um_expr *inlined; /* a short body, used in place of calls; NULL: none */
} um_schema_memo;

typedef struct um_schema {
    um_rules *r;
    const json_t *root;
    um_arena arena;
    um_json_style style;
    um_err *err;
    json_t *made; /* schemas that stand for other keywords, by the address of the schema with these; NULL: none yet */
    bool never;   /* the last failure was that no value can match */
    int depth;
    int64_t matching;     /* steps that are left for matching names and values with patterns */
    int64_t work;         /* number of lists of schemas that were compiled */
    um_schema_memo *memo; /* [memo_cap] open addressing */
    int32_t memo_n, memo_cap;
} um_schema;

/* ---- Lists of schemas (schema.c) --------------------------------------------------------------------------------- */

/* Fails with the place in front of the message. */
um_status um_schema_fail(um_schema *c, const char *at, um_status code, const char *fmt, ...) UM_PRINTF(4, 5);
/* Fails because no value can match. Callers that have another choice take that. */
um_status um_schema_never(um_schema *c, const char *at, const char *fmt, ...) UM_PRINTF(3, 4);
/* Returns the place of a member. */
const char *um_schema_at(um_schema *c, const char *at, const char *key);
const char *um_schema_at_index(um_schema *c, const char *at, size_t index);
/* Adds a schema to the list. */
um_status um_conj_add(um_schema *c, um_conj *j, const json_t *schema, const char *at, int32_t parent);
um_conj um_conj_copy(um_schema *c, const um_conj *j);
/* Follows $ref and allOf in all parts. */
um_status um_conj_expand(um_schema *c, um_conj *j);
/* Compiles a value to which all schemas of the list apply. */
um_status um_schema_value(um_schema *c, const um_conj *j, const um_expr **out);
/* Reads a keyword that is a count. Leaves *out unchanged when it is missing. */
um_status um_schema_count(um_schema *c, const um_schema_part *p, const char *key, int64_t *out);
/* Returns whether a part has the keyword. */
bool um_conj_has(const um_conj *j, const char *key);
/* Returns whether a keyword other than type, enum, const and not restricts the value. */
bool um_conj_is_restricted(const um_conj *j);
/* Returns whether the first part describes the value alone: all other parts come from its $ref, allOf, anyOf and oneOf.
 */
bool um_conj_has_one_head(const um_conj *j);
/* Returns the place of the list in messages. */
const char *um_conj_at(const um_conj *j);

/* ---- Kinds of values --------------------------------------------------------------------------------------------- */

/* These read the keywords of an expanded list for one type. */
um_status um_schema_types(um_schema *c, const um_conj *j, unsigned *types);                           /* _merge.c */
um_status um_schema_enum(um_schema *c, const um_conj *j, json_t **values);                            /* _merge.c */
um_status um_schema_disjoint(um_schema *c, const um_conj *a, const um_conj *b, int depth, bool *yes); /* _merge.c */
um_status um_schema_number(um_schema *c, const um_conj *j, bool is_integer, const um_expr **out);     /* _number.c */
um_status um_schema_string(um_schema *c, const um_conj *j, const um_expr **out);                      /* _string.c */
/* Sets *yes to whether the pattern of a patternProperties matches a name. */
um_status um_schema_matches(um_schema *c, const char *pattern, const char *at, const char *text, bool *yes);
um_status um_schema_array(um_schema *c, const um_conj *j, const um_expr **out);  /* _array.c */
um_status um_schema_object(um_schema *c, const um_conj *j, const um_expr **out); /* _object.c */
unsigned um_json_type_bits(const json_t *v);

#endif
