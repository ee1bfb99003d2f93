/* Reads the vectors and vocabularies of build/data/tokenizers, or of the folder that UM_TOKENIZER_DATA names. `make`
 * unpacks both kinds of folder (tools/data.sh). */
#ifndef TESTS_VECTORS_H
#define TESTS_VECTORS_H

#include <jansson.h>
#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "unit/text_vectors.h"

static inline const char *data_folder(void) {
    const char *given = getenv("UM_TOKENIZER_DATA");
    return given && *given ? given : "build/data/tokenizers";
}

/* Returns "<data>/folder/name" in a new string; um_free. */
static inline char *data_path(const char *folder, const char *name) {
    char *dir = um_path_join(data_folder(), folder), *path = um_path_join(dir, name);
    um_free(dir);
    return path;
}

static inline bool data_exists(const char *folder, const char *name) {
    char *path = data_path(folder, name);
    bool yes = um_file_exists(path);
    um_free(path);
    return yes;
}

static inline void run_shell(const char *command) {
    if (system(command) != 0) fail_msg("failed: %s", command);
}

/* Copies the files of a folder to a new folder, so that a test can change them. drop_folder removes it. */
static inline char *copy_folder(const char *folder) {
    char temp[] = "/tmp/unmask-vectors-XXXXXX", command[1024], *from = data_path(folder, "");
    if (!mkdtemp(temp)) fail_msg("can't make %s", temp);
    snprintf(command, sizeof command, "cp '%s'*.* '%s'", from, temp);
    run_shell(command);
    um_free(from);
    return um_strdup(temp);
}

static inline void drop_folder(char *temp) {
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s'", temp);
    run_shell(command);
    um_free(temp);
}

/* Opens the tokenizer of a folder. Returns NULL and sets err if the folder can't be opened. */
static inline um_tok *open_data(const char *folder, um_err *err) {
    um_tok *t = NULL;
    char *dir = um_path_join(data_folder(), folder);
    um_status st = um_tok_open(&t, dir, err);
    um_free(dir);
    return st ? NULL : t;
}

/* Returns the rows of folder/name. */
static inline json_t *data_rows(const char *folder, const char *name) {
    char *path = data_path(folder, name);
    json_t *rows = vector_rows(path);
    um_free(path);
    return rows;
}

/* Prints "encode qwen3: 745 of 745", and fails unless all are right. */
static inline void report_count(const char *kind, const char *folder, size_t right, size_t n) {
    print_message("%s %s: %zu of %zu\n", kind, folder, right, n);
    assert_true(n > 0);
    assert_int_equal(right, n);
}

#endif
