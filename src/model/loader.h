/* loader: reads the tensors of a checkpoint. Used inside the model room only, by tensors.c and load.c.
 *
 * The same code goes through the list of tensors twice. The first walk loads nothing: it checks every name and shape,
 * so that a mistake is reported at once and not after minutes, and counts unused tensors for one warning. In the second
 * walk the backend copies the weights. um_arch_tensors makes the first walk without a checkpoint, to list the names and
 * shapes. */
#ifndef UM_MODEL_LOADER_H
#define UM_MODEL_LOADER_H

#include "model/config.h"
#include "model/lora.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_loader {
    struct um_model *m;
    const um_store *s; /* NULL in a walk without a checkpoint */
    size_t strip;      /* length of the prefix "model." if this checkpoint omits it, else 0 */

    /* For the first walk. */
    bool check;    /* this is the first walk: check only, load nothing */
    bool *used;    /* [count of s] the tensors that the model reads */
    size_t bytes;  /* bytes that the weights need at least */
    size_t stored; /* bytes of the tensors in their files */
    um_buf leaves; /* with adapters: last words of the paths of linear layers, "q_proj, k_proj", for a message */

    /* For walks that hand the tensors to somebody else than a backend. */
    um_parts_fn sink;
    void *sink_arg;
    const char *joined; /* of the matrices that the sink receives next: see um_parts_fn */

    bool only_adapters; /* the walk concerns adapters only, and needs no checkpoint */

    /* For a walk without a checkpoint. */
    um_tensor_fn list; /* receives each tensor */
    void *list_arg;

    /* For the second walk. */
    um_pool *scan; /* looks for values that are NaN or infinite; NULL: nobody does */
    bool *bad;     /* [count of s] tensors with such values */
    size_t n_bad_values, n_bad_tensors;
    const um_tensor *first_bad; /* the first such tensor in the order of the walk */
    size_t first_index;         /* index of the element in first_bad */
    um_dev *merger;             /* computes merged weights; NULL until the first of them */
    um_load_meter *meter;       /* NULL: nobody asks for the progress */
    double start;               /* time of the beginning */
} um_loader;

/* A matrix [rows, ...] or a vector [rows] that is stored under `pattern`. */
typedef struct um_tensor_part {
    const char *pattern;
    int64_t rows;
} um_tensor_part;

/* Returns 6, the length of "model.", when the checkpoint omits this prefix of the names, else 0. */
size_t um_loader_strip(const um_tensor_names *names, const um_store *s);
/* Returns the tensor of a layer by pattern and suffix (".weight", ".bias", ""), or NULL. */
const um_tensor *um_loader_find(const um_loader *l, const char *pattern, int32_t layer, const char *suffix);
/* Returns the tensor of an expert, or NULL. The pattern has a second %d for the number of the expert and includes the
 * suffix. */
const um_tensor *um_loader_find_expert(const um_loader *l, const char *pattern, int32_t layer, int32_t expert);

/* Writes the path of the module that the tensors of a pattern belong to, as the model's Python classes name it. */
void um_loader_module(char out[UM_LORA_PATH_SIZE], const char *pattern, int32_t layer, int32_t expert);

/* Reports that the tensors t [n] have been loaded. UM_ECANCELED: the user's callback stopped the loading. */
um_status um_loader_advance(const um_loader *l, const um_tensor *t, int n, um_err *err);

/* Fails with the values that are NaN or infinite and have been found so far. */
um_status um_loader_fail_bad(const um_loader *l, um_err *err);

/* Returns the number of values of t that are NaN or infinite (finite.c). If there are any, *first is the index of the
 * first. Uses the threads of the pool; NULL: the calling thread alone. */
size_t um_count_not_finite(um_pool *pool, const um_tensor *t, size_t *first);

/* The following functions check their tensors in the first walk, and load them in the second. */

/* A um_cut says how a matrix or vector is divided if the device is a group of ranks; NULL: every rank has all of it. */

/* Loads the vectors `p` [n], concatenated, as fp32. */
um_status um_load_vector(um_loader *l, um_vector **out, const um_tensor_part *p, int n, int32_t layer,
                         const char *suffix, const um_cut *cut, um_err *err);
/* Hands matrices to the backend of m, or the parts of each rank. */
um_status um_loader_weight(const struct um_model *m, um_weight **out, const um_tensor *t, int n, um_dtype type,
                           const um_cut *cut, um_err *err);
/* What a matrix is used for. */
typedef enum um_use {
    UM_USE_PRODUCT, /* products in the type of the model's weights */
    UM_USE_TABLE, /* its rows are looked up, so their activations are never rounded: like products, but not in UM_F8 */
    UM_USE_EXACT  /* products that round nothing */
} um_use;
/* Loads the matrices `p` [n], one below the other, as one matrix. All have `cols` columns. */
um_status um_load_matrix(um_loader *l, um_weight **out, const um_tensor_part *p, int n, int64_t cols, int32_t layer,
                         um_use use, const um_cut *cut, um_err *err);
/* Loads the matrices `p` [n] of one expert as um_load_matrix does. The patterns are complete names: of the expert's own
 * tensors or, when `stacked`, of tensors [E, rows, cols] that hold all experts. `joined` is the pattern for a stack
 * with the rows of all parts, or NULL. */
um_status um_load_expert(um_loader *l, um_weight **out, const um_tensor_part *p, int n, const char *joined,
                         int64_t cols, int32_t layer, int32_t expert, bool stacked, const um_cut *cut, um_err *err);

/* ---- Adapters (low_rank.c) ---- */
/* Loads the matrices that the model's adapters have for the linear layer that um_load_matrix made of `p` [n] with the
 * same cut. Loads nothing when the adapter is merged. */
um_status um_load_low_rank(um_loader *l, um_low_rank **out, const um_tensor_part *p, int n, int64_t cols, int32_t layer,
                           um_module_kind kind, um_dtype type, const um_cut *cut, um_err *err);
/* Checks all adapters against one matrix of the model, in the first walk. */
um_status um_check_tensor_part(um_loader *l, const um_tensor_part *p, int64_t cols, int32_t layer, int32_t expert,
                               um_module_kind kind, um_err *err);
/* Computes base + s * B A in fp32, on the CPU, so that the result is the same for every backend. *out is released with
 * um_merge_free, also after an error. */
um_status um_merge(um_loader *l, um_tensor *out, const um_tensor *base, const um_lora_pair *p, um_err *err);
void um_merge_free(um_tensor *t);
/* Releases what um_merge keeps in the loader. */
void um_merge_end(um_loader *l);

#ifdef __cplusplus
}
#endif
#endif
