/* dataset: questions with known answers, one {"id", "kind", "prompt", "answer"} per line. eval and bench use them. */
#ifndef UM_CLI_DATASET_H
#define UM_CLI_DATASET_H

#include "base/base.h"

typedef struct um_example {
    const char *id; /* the id as JSON */
    const char *kind, *prompt, *answer;
} um_example;

typedef struct um_dataset {
    um_arena text;
    um_example *example; /* [n] */
    size_t n, cap;
} um_dataset;

/* Reads the first `limit` lines of a file (0 = all). UM_EINVAL with file, line and key; UM_ENOENT, UM_EIO. */
um_status um_dataset_load(um_dataset *d, const char *path, size_t limit, um_err *err);
void um_dataset_free(um_dataset *d);

/* Returns the path of this file next to a model folder, or NULL if there is none. The caller frees it. */
char *um_dataset_find(const char *model, const char *name);

#endif
