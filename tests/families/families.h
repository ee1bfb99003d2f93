/* Replays recorded runs of model families. A folder of recordings has the folders `models`, with checkpoints, and
 * `cases`, with files NAME.json that name their family and their model. README.md in this folder has their format.
 *
 * A family's file checks one case at a time. families_test.c finds the cases. */
#ifndef TESTS_FAMILIES_H
#define TESTS_FAMILIES_H

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs the headers above. */
#include <cmocka.h>

#include "base/base.h"

#define FAMILY_TOLERANCE 5e-4f /* largest difference of logits in fp32 */

typedef struct family_case {
    const char *path; /* of the JSON file */
    char name[64], model[512];
    json_t *json;
} family_case;

typedef enum { FAMILY_ALONE, FAMILY_BATCHED } family_mode;

typedef struct family_replay {
    const char *family; /* the field `family` of its cases */
    /* Compares the recorded logits of single passes. */
    void (*passes)(const family_case *c, const char *device);
    /* Compares the recorded requests of a case that has some, pass for pass. */
    void (*requests)(const family_case *c, const char *device, family_mode mode);
} family_replay;

extern const family_replay diffusion_gemma_replay, llada22_replay, nemotron_replay, wedlm_replay;

static inline int64_t number(const json_t *o, const char *key) { return json_integer_value(json_object_get(o, key)); }
static inline int32_t id_at(const json_t *list, size_t i) {
    return (int32_t)json_integer_value(json_array_get(list, i));
}

#endif
