/* dataset: questions with known answers, {"id", "kind", "prompt", "answer"} a line: what eval asks and bench measures.
 */
#ifndef UM_CLI_DATASET_H
#define UM_CLI_DATASET_H

#include "base/base.h"

typedef struct um_example {
    const char *id; /* as JSON */
    const char *kind, *prompt, *answer;
} um_example;

typedef struct um_dataset {
    um_arena text;
    um_example *example; /* [n] */
    size_t n, cap;
} um_dataset;

/* Reads the first `limit` lines of a file (0 = all). UM_EINVAL names file, line and key; UM_ENOENT, UM_EIO. */
um_status um_dataset_load(um_dataset *d, const char *path, size_t limit, um_err *err);
void um_dataset_free(um_dataset *d);

/* The path of the questions that lie beside a model folder, in a new string; NULL when there are none. */
char *um_dataset_beside(const char *model);

#endif
