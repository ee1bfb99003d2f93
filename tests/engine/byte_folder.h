/* The folder of a checkpoint of build/data (golden/models, or NAME/models/MODEL) with a tokenizer of bytes in place of
 * its words: the first tokens of tiny-block. Constraints need such a tokenizer. */
#ifndef TESTS_BYTE_FOLDER_H
#define TESTS_BYTE_FOLDER_H

#include "support.h"
#include "unit/model_folder.h"

enum { BYTE_FOLDER_MERGES = 240, BYTE_FOLDER_MASK = 500, BYTE_FOLDER_EOS = 501 };

static inline json_t *byte_folder_special(const char *text, int id) {
    return json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", id, "content", text, "special", 1, "single_word", 0,
                     "lstrip", 0, "rstrip", 0, "normalized", 0);
}

/* Writes tokenizer.json: all bytes, and the tokens of the first merges. */
static inline void byte_folder_write_tokenizer(const char *dir) {
    json_t *all = NULL, *value;
    const char *key;
    void *next;
    um_err err;
    if (um_json_load(&all, "models/tiny-block/tokenizer.json", &err)) fail_msg("%s", err.msg);
    json_t *model = json_object_get(all, "model"), *merges = json_object_get(model, "merges");
    while (json_array_size(merges) > BYTE_FOLDER_MERGES) json_array_remove(merges, BYTE_FOLDER_MERGES);
    json_object_foreach_safe(json_object_get(model, "vocab"), next, key, value) {
        if (json_integer_value(value) >= 256 + BYTE_FOLDER_MERGES)
            json_object_del(json_object_get(model, "vocab"), key);
    }
    json_object_set_new(all, "added_tokens",
                        json_pack("[o, o]", byte_folder_special("<mask>", BYTE_FOLDER_MASK),
                                  byte_folder_special("<eos>", BYTE_FOLDER_EOS)));
    char *text = json_dumps(all, JSON_COMPACT);
    folder_write_text(dir, "tokenizer.json", text);
    free(text);
    json_decref(all);
}

/* Returns the new folder; folder_free. */
static inline char *byte_folder_new(const char *name) {
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer_config.json"};
    char *dir = folder_new();
    for (size_t i = 0; i < UM_LEN(files); i++) {
        char from[128];
        const char *above = strchr(name, '/') ? "build/data" : "build/data/golden/models";
        snprintf(from, sizeof from, "%s/%s/%s", above, name, files[i]);
        char *target = realpath(from, NULL), *path = um_path_join(dir, files[i]);
        if (!target) fail_msg("%s is missing", from);
        assert_int_equal(symlink(target, path), 0);
        free(target);
        um_free(path);
    }
    byte_folder_write_tokenizer(dir);
    return dir;
}

#endif
