/* lora: adapters as PEFT stores them, a folder with adapter_config.json and adapter_model.safetensors. Inside the model
 * room.
 *
 * An adapter adds s * B (A x) to a linear layer W x; A is [r, in], B [out, r] and s = lora_alpha / r. It is merged into
 * the weights while they are loaded, or kept beside them as a um_low_rank and added for the tokens of the requests that
 * ask for it. Either way the loader's two walks (loader.h) meet every linear layer of the base: the first one asks each
 * adapter about each layer, and what an adapter holds that no layer asked for is an error. */
#ifndef UM_MODEL_LORA_H
#define UM_MODEL_LORA_H

#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_LORA_RANK_MAX  256
#define UM_LORA_CONFIG    "adapter_config.json"
#define UM_LORA_FILE      "adapter_model.safetensors"
#define UM_LORA_PATH_SIZE 160 /* bytes of a module's path */

/* ---- adapter_config.json (lora_config.c) ---- */
typedef struct um_lora_config um_lora_config;
/* What it says of one linear layer. */
typedef struct um_lora_terms {
    bool is_target;
    int32_t rank;
    float scale;
} um_lora_terms;

/* Keeps root. UM_EUNSUPPORTED: an adapter of another kind; UM_EPARSE and UM_EMODEL name `where` and the field. */
um_status um_lora_config_parse(um_lora_config **out, struct json_t *root, const char *where, um_err *err);
void um_lora_config_free(um_lora_config *c);
/* module: its whole path, "model.layers.3.self_attn.q_proj". UM_ELIMIT: a regular expression takes too long. */
um_status um_lora_config_ask(um_lora_config *c, const char *module, um_lora_terms *out, um_err *err);
/* The module, or one that it is part of, is stored whole. */
bool um_lora_config_saves(um_lora_config *c, const char *module);
/* A word of target_modules, or of modules_to_save, that fitted nothing it was asked about; NULL: there is none. */
const char *um_lora_config_no_target(const um_lora_config *c);
const char *um_lora_config_not_saved(const um_lora_config *c);
int32_t um_lora_config_rank(const um_lora_config *c);     /* "r" */
const char *um_lora_config_base(const um_lora_config *c); /* the base model's name, or NULL */

/* ---- The folder (lora.c) ---- */
/* Both matrices of one layer. */
typedef struct um_lora_pair {
    const char *path; /* of the module, without "model." in front */
    const um_tensor *a, *b;
    float scale; /* set by um_lora_check, and then a layer has asked for it */
    bool used;
} um_lora_pair;

/* A tensor that takes the place of the base's. */
typedef struct um_lora_full {
    const char *name; /* without "model." in front */
    const um_tensor *tensor;
    bool used;
} um_lora_full;

typedef struct um_lora {
    char *name, *dir;
    um_lora_config *config;
    um_safetensors *tensors; /* NULL once the weights are loaded, and `pair` and `full` are empty */
    um_arena arena;
    um_lora_pair *pair; /* [n_pairs] by path */
    um_lora_full *full; /* [n_full] */
    size_t n_pairs, n_full;
    bool has_experts; /* a pair is of a routed expert */
    int64_t n_params;
} um_lora;

/* What a linear layer of the base is: it decides how an adapter may come to it. */
typedef enum {
    UM_MODULE_LAYER,
    UM_MODULE_ROUTER,
    UM_MODULE_EXPERT, /* merged only */
    UM_MODULE_HEAD    /* merged only */
} um_module_kind;
typedef struct um_module {
    const char *path;
    um_module_kind kind;
    int64_t rows, cols;
} um_module;

/* Opens a folder; on failure a holds nothing. UM_ENOENT, UM_EPARSE, UM_EMODEL, UM_EUNSUPPORTED. */
um_status um_lora_open(um_lora *a, const char *name, const char *dir, um_err *err);
void um_lora_close(um_lora *a);
/* Closes the file: what was to be read has been. */
void um_lora_release(um_lora *a);
/* The module's matrices, or NULL. */
um_lora_pair *um_lora_find(const um_lora *a, const char *path);
/* What stands in place of the base's tensor, or NULL. */
um_lora_full *um_lora_find_full(const um_lora *a, const char *name);
/* The base has this linear layer: what the adapter holds of it is checked and counts as used. */
um_status um_lora_check(um_lora *a, const um_module *m, bool merge, um_err *err);
/* Every layer was asked about: what is left over is an error. `layers` lists the last words of their paths. */
um_status um_lora_check_rest(const um_lora *a, const char *family, const char *layers, um_err *err);
/* Values that are NaN or infinite, as UM_CHECK_* says. */
um_status um_lora_check_values(const um_lora *a, int32_t check, um_err *err);
/* `path` behind every "model." in front. */
const char *um_lora_bare(const char *path);

/* ---- Those of a model (adapters.c) ---- */
/* Opens what `list` names ("name=folder,folder"), NULL or "" nothing, into m->lora. */
um_status um_adapters_open(struct um_model *m, const char *list, bool merge, um_err *err);
void um_adapters_close(struct um_model *m);

#ifdef __cplusplus
}
#endif
#endif
