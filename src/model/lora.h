/* lora: adapters in the format of PEFT: a folder with adapter_config.json and adapter_model.safetensors. Used inside
 * the model room only.
 *
 * An adapter adds s * B (A x) to a linear layer W x; A is [r, in], B is [out, r] and s = lora_alpha / r. The adapter is
 * either merged, that is, added to the weights while they are loaded; or it is kept separately as a um_low_rank, and
 * the forward pass adds it for the tokens of the requests that use it. In both cases the loader's first walk (loader.h)
 * checks each adapter against each linear layer of the base model. An adapter tensor that belongs to no layer is an
 * error. */
#ifndef UM_MODEL_LORA_H
#define UM_MODEL_LORA_H

#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_LORA_RANK_MAX  256
#define UM_LORA_CONFIG    "adapter_config.json"
#define UM_LORA_FILE      "adapter_model.safetensors"
#define UM_LORA_PATH_SIZE 160 /* size of a buffer for a module's path, in bytes */

/* ---- adapter_config.json (lora_config.c) ---- */
typedef struct um_lora_config um_lora_config;
/* The settings of an adapter for one linear layer. */
typedef struct um_lora_terms {
    bool is_target;
    int32_t rank;
    float scale;
} um_lora_terms;

/* Parses adapter_config.json and keeps a reference to `root`. *out is released with um_lora_config_free. Errors:
 * UM_EUNSUPPORTED for an adapter of another kind, UM_EPARSE and UM_EMODEL for wrong fields. Messages name `where` and
 * the field. */
um_status um_lora_config_parse(um_lora_config **out, struct json_t *root, const char *where, um_err *err);
/* Frees the configuration. NULL is allowed. */
void um_lora_config_free(um_lora_config *c);
/* Finds the settings for a module by its full path, "model.layers.3.self_attn.q_proj". Errors: UM_ELIMIT when a regular
 * expression takes too long. */
um_status um_lora_config_find(um_lora_config *c, const char *module, um_lora_terms *out, um_err *err);
/* Returns whether modules_to_save names the module or one that contains it. */
bool um_lora_config_saves(um_lora_config *c, const char *module);
/* Returns a word of target_modules that has matched no module so far, or NULL when all have. */
const char *um_lora_config_no_target(const um_lora_config *c);
/* Returns a word of modules_to_save that has matched no module so far, or NULL when all have. */
const char *um_lora_config_not_saved(const um_lora_config *c);
/* Returns the rank in the field "r". */
int32_t um_lora_config_rank(const um_lora_config *c);
/* Returns the name of the base model, or NULL. */
const char *um_lora_config_base(const um_lora_config *c);

/* ---- The folder (lora.c) ---- */
/* The two matrices of an adapter for one layer. */
typedef struct um_lora_pair {
    const char *path; /* path of the module, without the prefix "model." */
    const um_tensor *a, *b;
    float scale; /* set by um_lora_check */
    bool used;   /* set by um_lora_check: a layer of the base model has this path */
} um_lora_pair;

/* A tensor of an adapter that replaces a tensor of the base model. */
typedef struct um_lora_full {
    const char *name; /* without the prefix "model." */
    const um_tensor *tensor;
    bool used;
} um_lora_full;

typedef struct um_lora {
    char *name, *dir;
    um_lora_config *config;
    um_store *tensors;  /* NULL after um_lora_close_file; `pair` and `full` are then empty */
    um_arena arena;     /* owns the paths and names below */
    um_lora_pair *pair; /* [n_pairs] sorted by path */
    um_lora_full *full; /* [n_full] */
    size_t n_pairs, n_full;
    bool has_experts; /* at least one pair belongs to a routed expert */
    int32_t slot;     /* index in the layers' um_low_rank */
    int64_t n_params;
} um_lora;

/* The kinds of linear layers. Only a merged adapter may change an expert or the head. */
typedef enum { UM_MODULE_LAYER, UM_MODULE_ROUTER, UM_MODULE_EXPERT, UM_MODULE_HEAD } um_module_kind;
/* A linear layer of the base model. */
typedef struct um_module {
    const char *path;
    um_module_kind kind;
    int64_t rows, cols;
} um_module;

/* Opens the folder of an adapter. It is released with um_lora_close; after an error `a` is already empty. Errors:
 * UM_ENOENT, UM_EPARSE, UM_EMODEL, UM_EUNSUPPORTED. */
um_status um_lora_open(um_lora *a, const char *name, const char *dir, um_err *err);
/* Frees everything that um_lora_open allocated. */
void um_lora_close(um_lora *a);
/* Closes the file of the tensors when they have been read. */
void um_lora_close_file(um_lora *a);
/* Returns the adapter's matrices for a module, or NULL. */
um_lora_pair *um_lora_find(const um_lora *a, const char *path);
/* Returns the adapter's replacement for a tensor of the base model, or NULL. */
um_lora_full *um_lora_find_full(const um_lora *a, const char *name);
/* Checks the adapter's matrices for a linear layer of the base model and marks them as used. */
um_status um_lora_check(um_lora *a, const um_module *m, bool merge, um_err *err);
/* Called after um_lora_check for every layer. Returns UM_EMODEL when a target or a tensor of the adapter belongs to no
 * layer. `layers` lists the last words of the layers' paths, for the message. */
um_status um_lora_check_unused(const um_lora *a, const char *family, const char *layers, um_err *err);
/* Looks for values that are NaN or infinite, and warns or returns UM_EMODEL as `check` (UM_CHECK_*) says. */
um_status um_lora_check_values(const um_lora *a, int32_t check, um_err *err);
/* Returns `path` without its leading "model.", however often that is repeated. */
const char *um_lora_strip_prefix(const char *path);

/* ---- The adapters of a model (adapters.c) ---- */
/* Opens the adapters of `list` ("name=folder,folder") into m->lora. NULL or "" opens none. */
um_status um_adapters_open(struct um_model *m, const char *list, bool merge, um_err *err);
/* Adds places for adapters that are loaded later. Called before the device is opened. */
void um_adapters_reserve(struct um_model *m, int32_t n_slots, int32_t rank);
/* Describes the last adapter of m->lora in m->adapter. */
void um_adapters_describe(struct um_model *m);
/* Forgets adapter i. Its slot may still be in use. */
void um_adapters_forget(struct um_model *m, int32_t i);
/* Checks the adapters of m->lora against the layers of the model, or loads them into their slots (load.c). */
um_status um_model_walk_adapters(struct um_model *m, bool check, um_err *err);
/* Frees the matrices in a slot of all layers (load.c). */
void um_model_unload_slot(struct um_model *m, int32_t slot);
/* Closes the adapters of the model. */
void um_adapters_close(struct um_model *m);

#ifdef __cplusplus
}
#endif
#endif
