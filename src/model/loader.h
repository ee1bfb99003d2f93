/* loader: one walk over the tensors of a checkpoint. Inside the model room, between tensors.c and load.c.
 *
 * The list of tensors is walked twice by the same code. The first time nothing is loaded: every name and shape is
 * checked, so that a mistake shows at once and not after minutes, and what nobody asked for is counted in one warning.
 * The second time the backend takes its copies. */
#ifndef UM_MODEL_LOADER_H
#define UM_MODEL_LOADER_H

#include "model/config.h"
#include "model/lora.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_loader {
    struct um_model *m;
    const um_safetensors *s;
    bool check;    /* the first walk: look only */
    bool *used;    /* [count of s] marked by the first walk */
    size_t bytes;  /* that the weights need at least, summed by the first walk */
    size_t strip;  /* bytes of a leading "model." that this checkpoint leaves out */
    um_buf leaves; /* of the first walk under adapters: last words of the paths of linear layers, "q_proj, k_proj" */

    bool scan; /* the second walk: look for values that are NaN or infinite */
    bool *bad; /* [count of s] tensors that hold some */
    size_t n_bad_values, n_bad_tensors;
    const um_tensor *first_bad; /* in the order of the walk */
    size_t first_index;         /* element of first_bad */
} um_loader;

/* A matrix [rows, ...] of a stack, or a vector [rows], under `pattern`. */
typedef struct um_part {
    const char *pattern;
    int64_t rows;
} um_part;

/* 6 where the checkpoint leaves out the leading "model." of the names, else 0. */
size_t um_loader_strip(const um_tensor_names *names, const um_safetensors *s);
/* A tensor by pattern, layer and suffix (".weight", ".bias", ""), or NULL. */
const um_tensor *um_loader_find(const um_loader *l, const char *pattern, int32_t layer, const char *suffix);
/* The same for a pattern with a second hole, for the number of an expert; the suffix is in the pattern. */
const um_tensor *um_loader_find_expert(const um_loader *l, const char *pattern, int32_t layer, int32_t expert);

/* The path of the module that a pattern's tensors belong to, as the model's classes call it. */
void um_loader_module(char out[UM_LORA_PATH_SIZE], const char *pattern, int32_t layer, int32_t expert);

#define UM_SHAPE_TEXT 128
/* "[2, 3]" */
void um_shape_print(char out[UM_SHAPE_TEXT], const int64_t *dim, int32_t n);
size_t um_tensor_elements(const um_tensor *t);
/* All elements of t, of any address and type, as fp32. */
void um_tensor_widen(const um_tensor *t, float *out);

/* Number of values of t that are NaN or infinite; *first: the element where the first stands, untouched without one
 * (finite.c). */
size_t um_not_finite(const um_tensor *t, size_t *first);

/* The vectors `p` [n] one behind the other, as fp32. */
um_status um_load_vector(um_loader *l, float **out, const um_part *p, int n, int32_t layer, const char *suffix,
                         um_err *err);
/* The matrices `p` [n] stacked: all read an input of `cols`. type: of their products. */
um_status um_load_matrix(um_loader *l, um_weight **out, const um_part *p, int n, int64_t cols, int32_t layer,
                         um_dtype type, um_err *err);
/* The same of one expert: p hold whole names, of the expert's own tensors or (stacked) of tensors [E, rows, cols]. */
um_status um_load_expert(um_loader *l, um_weight **out, const um_part *p, int n, int64_t cols, int32_t layer,
                         int32_t expert, bool stacked, um_err *err);

/* ---- Adapters (low_rank.c) ---- */
/* What the model's adapters hold of a linear layer, whose matrix um_load_matrix stacked from `p` [n]; nothing where
 * they are merged. The first walk checks all of them. */
um_status um_load_low_rank(um_loader *l, um_low_rank **out, const um_part *p, int n, int64_t cols, int32_t layer,
                           um_module_kind kind, um_dtype type, um_err *err);
/* The first walk's check of one matrix alone. */
um_status um_check_part(um_loader *l, const um_part *p, int64_t cols, int32_t layer, int32_t expert,
                        um_module_kind kind, um_err *err);
/* base + s * B A, fp32; um_merge_free, after a failure too. */
um_status um_merge(um_loader *l, um_tensor *out, const um_tensor *base, const um_lora_pair *p, um_err *err);
void um_merge_free(um_loader *l, um_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
