/* Reading the config.json of Hugging Face checkpoints: what families/ share. Inside the model room only.
 *
 * The Python classes behind these files carry defaults that fit no released checkpoint, so nothing here falls back to
 * one: a field that shapes the model is needed, and its absence is an error that names file and field. */
#ifndef UM_MODEL_CONFIG_H
#define UM_MODEL_CONFIG_H

#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bounds of what a config.json may ask for: far above every checkpoint, far below where an int32_t product overflows.
 */
#define UM_HF_HEADS_MAX     4096
#define UM_HF_HEAD_DIM_MAX  1024
#define UM_HF_HIDDEN_MAX    (1 << 20)
#define UM_HF_LAYERS_MAX    4096
#define UM_HF_VOCAB_MAX     (1 << 24)
#define UM_HF_POSITIONS_MAX (1 << 28)

/* Needed fields: absent or null is UM_EMODEL, of another type or out of range UM_EPARSE. */
um_status um_hf_need_int(const struct json_t *config, const char *key, const char *where, int32_t min, int32_t max,
                         int32_t *out, um_err *err);
um_status um_hf_need_double(const struct json_t *config, const char *key, const char *where, double *out, um_err *err);
um_status um_hf_need_bool(const struct json_t *config, const char *key, const char *where, bool *out, um_err *err);
/* A field that must be absent, null, or the one value that the forward pass computes; anything else is refused. */
um_status um_hf_only_str(const struct json_t *config, const char *key, const char *where, const char *value,
                         um_err *err);
um_status um_hf_only_bool(const struct json_t *config, const char *key, const char *where, bool value, um_err *err);

/* rope_theta, at the top or inside rope_parameters or rope_scaling; scaled rotary embeddings are refused. Sets
 * rope_theta and rope_dim (head_dim must be set). */
um_status um_hf_rope(um_arch *a, const struct json_t *config, const char *where, um_err *err);

/* The fields that Llama, Qwen2 and Qwen3 share under the same names; biases per attention_bias and mlp_bias. */
um_status um_hf_llama(um_arch *a, const struct json_t *config, const char *where, um_err *err);
/* Where those checkpoints keep their tensors. */
extern const um_tensor_names um_hf_llama_names;

/* ---- The families (families/), in the order of the table ---- */
extern const um_family um_family_sdar, um_family_llada, um_family_fast_dllm_v2, um_family_stable_diffcoder;

/* Checks that s holds every tensor of m->arch in its shape and that memory suffices for m->dtype; counts m->n_params
 * and warns of tensors that are not used. Where a part is optional (norms of queries and keys, biases, a head of its
 * own) the tensors decide over the configuration, with a warning: m->arch changes. */
um_status um_model_check(struct um_model *m, const um_safetensors *s, um_err *err);
/* Weights from s, which um_model_check accepted, into m->ops and m->dev. */
um_status um_model_load(struct um_model *m, const um_safetensors *s, um_err *err);
/* Arithmetic for "auto": bf16 where the embedding is stored so, else fp32. UM_EMODEL when there is no embedding. */
um_status um_model_stored_dtype(const um_arch *a, const um_safetensors *s, um_dtype *out, um_err *err);
/* Frees what um_model_load made, after a failed one too. */
void um_model_unload(struct um_model *m);

#ifdef __cplusplus
}
#endif
#endif
