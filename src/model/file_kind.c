/* Recognises files that are often found in the place of another one, to name them in messages. */
#include "model/model.h"

const char *um_file_kind(const void *data, size_t n) {
    static const struct {
        const char *start, *kind;
    } rows[] = {
        {"GGUF", "a GGUF file"},
        {"version https://git-lfs", "a Git LFS pointer: run 'git lfs pull' in its folder"},
        {"<!DOCTYPE html", "an HTML page: the download has failed"},
        {"<!doctype html", "an HTML page: the download has failed"},
        {"<html", "an HTML page: the download has failed"},
        {"PK\003\004", "a zip archive, as PyTorch writes them"},
    };
    const uint8_t *b = (const uint8_t *)data;
    if (!n) return "an empty file";
    for (size_t i = 0; i < UM_LEN(rows); i++)
        if (n >= strlen(rows[i].start) && !memcmp(b, rows[i].start, strlen(rows[i].start))) return rows[i].kind;
    /* The length of the header in 8 bytes, and a JSON object. */
    const bool is_safetensors = n > 9 && b[8] == '{' && !b[4] && !b[5] && !b[6] && !b[7] && (b[0] || b[1] || b[2]);
    return is_safetensors ? "a safetensors file" : NULL;
}

const char *um_file_kind_at(const char *path) {
    char start[64];
    FILE *f = fopen(path, "rbe");
    if (!f) return NULL;
    const size_t n = fread(start, 1, sizeof start, f);
    const bool is_read = !ferror(f);
    fclose(f);
    return is_read ? um_file_kind(start, n) : NULL;
}
