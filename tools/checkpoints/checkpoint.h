/* checkpoint: writes checkpoint folders that have the shape of a released model and random weights.
 *
 * main.c reads the command line, releases.c knows the released shapes, folder.c writes a folder, weights.c its tensors
 * with the values of values.c. Names and shapes of tensors are those that the loader asks for (um_arch_tensors). */
#ifndef UM_TOOLS_CHECKPOINT_H
#define UM_TOOLS_CHECKPOINT_H

#include "model/model.h"

/* ---- Released shapes (releases.c) -------------------------------------------------------------------------------- */

/* A released model. The facts are those of tests/data/released, which the build puts into the program. */
typedef struct um_release {
    const char *name;           /* of its configuration, "sdar_8b" */
    const struct json_t *facts; /* its entry in releases.json */
    struct json_t *config;      /* its config.json, owned */
    um_arch arch;               /* what the configuration describes */
} um_release;

/* Finds a release by the name of its configuration ("sdar_8b") or by its own ("JetLM/SDAR-8B-Chat", with or without the
 * organisation). Letter case and punctuation don't count. n_layers: number of layers, counted from the first; 0 = all.
 * Free the release with um_release_free. UM_EINVAL: no such name, or not that many layers. */
um_status um_release_find(um_release *out, const char *name, int32_t n_layers, um_err *err);
void um_release_free(um_release *r);
/* The name of the configuration of release i; NULL behind the last. Several releases share a configuration. */
const char *um_release_name(size_t i);
/* The name of a folder in tests/data/tokenizers that has the vocabulary of the release. */
const char *um_release_tokenizer(const um_release *r);
/* Appends a table of the shapes: name, family, parameters, bytes in bf16, released models. */
void um_releases_print(um_buf *out);

/* ---- Random values (values.c) ------------------------------------------------------------------------------------ */

#define UM_VALUES_STD    0.02 /* what most models are initialised with */
#define UM_VALUES_LEVELS 4096

/* Normally distributed values with mean 0 and deviation UM_VALUES_STD: UM_VALUES_LEVELS levels, each equally likely. */
typedef struct um_values {
    um_dtype type; /* UM_BF16 or UM_F32 */
    uint16_t bf16[UM_VALUES_LEVELS];
    float f32[UM_VALUES_LEVELS];
} um_values;

void um_values_init(um_values *v, um_dtype type);
/* Writes elements first to first + n - 1 of the tensor with this key. `first` is a multiple of 4. A value depends on
 * key and element alone, so parts of a tensor can be written in any order. */
void um_values_fill(const um_values *v, uint64_t key, uint64_t first, size_t n, void *out);
/* Writes n ones. */
void um_values_ones(const um_values *v, size_t n, void *out);

/* ---- Weights (weights.c) ----------------------------------------------------------------------------------------- */

typedef struct um_weights_options {
    um_dtype type;
    uint64_t seed;
    size_t shard_bytes; /* a tensor that does not fit begins the next file */
} um_weights_options;

/* Writes the weights of a model into the folder: model.safetensors, or shards with their index. Norms are 1, all other
 * tensors random. Files get their names when they are complete. Shows progress where stderr is a terminal.
 * UM_EIO: the disk has too little room, or a file can't be written. */
um_status um_weights_write(const char *dir, const um_arch *arch, const um_weights_options *o, um_err *err);

/* ---- Folders (folder.c) ------------------------------------------------------------------------------------------ */

typedef struct um_folder_options {
    const char *dir;       /* a new or an empty folder */
    const char *tokenizer; /* a folder, or a tokenizer.json; NULL: the tokenizer of the release */
    um_weights_options weights;
} um_folder_options;

/* Writes a checkpoint folder. A run that fails leaves no file behind. */
um_status um_folder_write(const um_release *r, const um_folder_options *o, um_err *err);
/* Writes the files of the tokenizer alone, and opens it to see that it fits the model. */
um_status um_folder_put_tokenizer(const um_release *r, const char *dir, const char *tokenizer, um_err *err);
/* Writes config.json and generation_config.json. type: of the weights. */
um_status um_folder_put_config(const um_release *r, const char *dir, um_dtype type, um_err *err);

#endif
