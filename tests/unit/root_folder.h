/* A folder below /tmp in place of one below /sys, for tests of what the program reads there. */
#ifndef TESTS_ROOT_FOLDER_H
#define TESTS_ROOT_FOLDER_H

#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"

static inline int make_root(void **state) {
    char name[] = "/tmp/unmask-root-XXXXXX";
    if (!mkdtemp(name)) return -1;
    *state = um_strdup(name);
    return 0;
}

static inline int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st, (void)type, (void)at;
    return remove(path);
}

static inline int remove_root(void **state) {
    int failed = nftw(*state, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    um_free(*state);
    return failed;
}

/* Writes a file below the root. Creates the folders of its path. */
static inline void put(const char *root, const char *path, const char *text) {
    char *full = um_path_join(root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        assert_true(mkdir(full, 0777) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    um_free(full);
}

#define WITH_ROOT(f) cmocka_unit_test_setup_teardown(f, make_root, remove_root)

#endif
