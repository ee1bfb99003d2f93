/* Reads the vectors and vocabularies of tests/data/tokenizers, or of the folder that UM_TOKENIZER_DATA names. */
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
    return given && *given ? given : "tests/data/tokenizers";
}

/* "<data>/folder/name" in a new string. */
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

/* A new folder that holds the files of a folder unpacked, as a checkpoint has them; drop_folder removes it. */
static inline char *unpack_folder(const char *folder) {
    char temp[] = "/tmp/unmask-vectors-XXXXXX", command[1024], *from = data_path(folder, "");
    if (!mkdtemp(temp)) fail_msg("can't make %s", temp);
    snprintf(
        command, sizeof command,
        "for f in '%s'*.xz; do [ ! -e \"$f\" ] || xz -dc \"$f\" > '%s'/\"$(basename \"$f\" .xz)\" || exit 1; done; "
        "for f in '%s'*.json; do [ ! -e \"$f\" ] || cp \"$f\" '%s' || exit 1; done",
        from, temp, from, temp);
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

/* The rows of folder/name, which may be packed. */
static inline json_t *data_rows(const char *folder, const char *name) {
    char *path = data_path(folder, name);
    size_t n = strlen(path);
    json_t *rows;
    if (n > 3 && um_streq(path + n - 3, ".xz")) {
        char temp[] = "/tmp/unmask-rows-XXXXXX", command[1024];
        int fd = mkstemp(temp);
        if (fd < 0) fail_msg("can't make %s", temp);
        close(fd);
        snprintf(command, sizeof command, "xz -dc '%s' > '%s'", path, temp);
        run_shell(command);
        rows = vector_rows(temp);
        unlink(temp);
    } else rows = vector_rows(path);
    um_free(path);
    return rows;
}

/* Prints "encode qwen3: 745 of 745" and fails when it is not all. */
static inline void report_count(const char *kind, const char *folder, size_t right, size_t n) {
    print_message("%s %s: %zu of %zu\n", kind, folder, right, n);
    assert_true(n > 0);
    assert_int_equal(right, n);
}

#endif
