/* A model folder: models/tiny-full, but its tokenizer puts BOS ("<|startoftext|>") before a text. */
#ifndef UM_TESTS_BOS_FOLDER_H
#define UM_TESTS_BOS_FOLDER_H

#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"

#define BOS_FOLDER "/tmp/unmask-bos-XXXXXX"

static const char *const bos_files[] = {"config.json", "tokenizer.json", "special_tokens_map.json",
                                        "generation_config.json", "tokenizer_config.json"};

static void bos_must(bool done, const char *what) {
    if (done) return;
    perror(what);
    abort();
}

/* `folder` is BOS_FOLDER in an array, and becomes the path. The last of the files is written, the others are linked. */
static void bos_folder_make(char *folder) {
    char from[512], to[256], cwd[256];
    um_buf text = {0};
    bos_must(mkdtemp(folder) && getcwd(cwd, sizeof cwd), folder);
    for (size_t i = 0; i + 1 < UM_LEN(bos_files); i++) {
        snprintf(from, sizeof from, "%s/models/tiny-full/%s", cwd, bos_files[i]);
        snprintf(to, sizeof to, "%s/%s", folder, bos_files[i]);
        bos_must(symlink(from, to) == 0, to);
    }
    bos_must(um_file_read("models/tiny-full/tokenizer_config.json", 1 << 20, &text, NULL) == UM_OK, "tokenizer_config");
    snprintf(to, sizeof to, "%s/tokenizer_config.json", folder);
    FILE *f = fopen(to, "w");
    bos_must(f != NULL, to);
    fprintf(f, "{\"add_bos_token\": true, \"bos_token\": \"<|startoftext|>\", %s", strchr(text.data, '{') + 1);
    bos_must(fclose(f) == 0, to);
    um_buf_free(&text);
}

static void bos_folder_remove(const char *folder) {
    char path[256];
    for (size_t i = 0; i < UM_LEN(bos_files); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, bos_files[i]);
        unlink(path);
    }
    rmdir(folder);
}

#endif
