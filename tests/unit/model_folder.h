/* Folders of tiny checkpoints, written and removed by the tests of the model room. */
#ifndef TESTS_MODEL_FOLDER_H
#define TESTS_MODEL_FOLDER_H

#include <fcntl.h>
#include <ftw.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/model.h"

static inline char *folder_new(void) {
    char name[] = "/tmp/unmask-model-XXXXXX";
    assert_non_null(mkdtemp(name));
    return um_strdup(name);
}

static inline int folder_remove_entry(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st, (void)type, (void)at;
    return remove(path);
}

static inline void folder_free(char *dir) {
    assert_int_equal(nftw(dir, folder_remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
    um_free(dir);
}

static inline void folder_write(const char *dir, const char *name, const void *data, size_t n) {
    char *path = um_path_join(dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    um_free(path);
}

static inline void folder_write_text(const char *dir, const char *name, const char *text) {
    folder_write(dir, name, text, strlen(text));
}

/* Redirects stderr to a file of the folder. release_stderr ends this and returns the text (never NULL; um_buf_free). */
static inline int catch_stderr(const char *dir) {
    char *path = um_path_join(dir, "stderr.txt");
    int old = dup(2), file = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
    assert_true(old >= 0 && file >= 0);
    assert_int_equal(dup2(file, 2), 2);
    close(file);
    um_free(path);
    return old;
}

static inline um_buf release_stderr(const char *dir, int old) {
    char *path = um_path_join(dir, "stderr.txt");
    um_buf said = {0};
    assert_int_equal(dup2(old, 2), 2);
    close(old);
    assert_int_equal(um_file_read(path, 1 << 16, &said, NULL), UM_OK);
    um_buf_puts(&said, "");
    remove(path);
    um_free(path);
    return said;
}

/* Appends a safetensors file with this header and `n` bytes of data. */
static inline void safetensors_put(um_buf *out, const char *header, const void *data, size_t n) {
    uint64_t len = strlen(header);
    for (int i = 0; i < 8; i++) um_buf_putc(out, (char)(len >> (8 * i)));
    um_buf_puts(out, header);
    um_buf_append(out, data, n);
}

static inline void folder_write_safetensors(const char *dir, const char *name, const char *header, const void *data,
                                            size_t n) {
    um_buf b = {0};
    safetensors_put(&b, header, data, n);
    folder_write(dir, name, b.data, b.len);
    um_buf_free(&b);
}

/* Writes a word-level tokenizer with the `n` words w0, w1, ... `side` is the text of tokenizer_config.json. */
static inline void folder_write_tokenizer(const char *dir, int n, const char *side) {
    um_buf b = {0};
    um_buf_puts(&b, "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":{\"type\":"
                    "\"WhitespaceSplit\"},\"post_processor\":null,\"decoder\":null,\"model\":{\"type\":\"WordLevel\","
                    "\"vocab\":{");
    for (int i = 0; i < n; i++) um_buf_printf(&b, "%s\"w%d\":%d", i ? "," : "", i, i);
    um_buf_puts(&b, "},\"unk_token\":\"w0\"}}");
    folder_write(dir, "tokenizer.json", b.data, b.len);
    folder_write_text(dir, "tokenizer_config.json", side);
    um_buf_free(&b);
}

/* Returns the text with double quotes in place of single ones (um_free). */
static inline char *quoted(const char *text) {
    char *s = um_strdup(text);
    for (char *p = s; *p; p++)
        if (*p == '\'') *p = '"';
    return s;
}

static inline json_t *json_of(const char *text) {
    char *s = quoted(text);
    json_t *v = json_loads(s, JSON_DECODE_ANY, NULL);
    um_free(s);
    assert_non_null(v);
    return v;
}

static inline void assert_says(const um_err *err, const char *part) {
    if (!strstr(err->msg, part)) fail_msg("expected \"%s\" in the message, found \"%s\"", part, err->msg);
}

#endif
