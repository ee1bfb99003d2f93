/* The languages of the constraints that requests ask for, compiled once for all engines of a model. */
#ifndef UM_LANGUAGES_H
#define UM_LANGUAGES_H

#include "grammar/language.h"
#include "model/model.h"

/* What a language is compiled from. */
typedef struct um_constraint {
    int32_t kind;     /* UM_CONSTRAINT_*, not NONE */
    const char *text; /* NULL for UM_CONSTRAINT_JSON */
    /* The markers of a free section in front of the text, see um_request.reasoning_end; NULL as there. */
    const char *begin, *end;
    um_json_style style;
    int32_t depth; /* nesting of objects and arrays where the text leaves it open, 1..UM_DEPTH_MAX */
} um_constraint;

/* A language that several requests use. */
typedef struct um_shared_language {
    um_language *language;
    struct um_shared_language *next;
    um_constraint of; /* owns its texts */
    um_rules rules;
    int32_t n_users;
    int64_t used; /* number of the last use: an unused language stays until newer ones take its place */
} um_shared_language;

/* Finds the language of a constraint, or compiles it, also when the known one has no room for more states. *out is
 * released with um_model_release_language. The first call also sorts the model's vocabulary, which takes about 0.1 s,
 * and so does the first one with other markers that are special tokens. Any thread. Errors: those of um_rules_from_*,
 * and of um_language_new; UM_EUNSUPPORTED when the vocabulary has no bytes; UM_EINVAL for a marker that ends answers;
 * UM_ELIMIT for too many different markers. */
um_status um_model_get_language(um_model *m, const um_constraint *c, um_shared_language **out, um_err *err);
void um_model_release_language(um_model *m, um_shared_language *l);
/* Frees the languages of a model. None may be in use. */
typedef struct um_languages um_languages;
void um_languages_free(um_languages *l);
um_languages *um_languages_new(void);

#endif
