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
#define UM_HF_HEADS_MAX       4096
#define UM_HF_HEAD_DIM_MAX    1024
#define UM_HF_HIDDEN_MAX      (1 << 20)
#define UM_HF_EXPERTS_MAX     (1 << 16)
#define UM_HF_EXPERT_ROWS_MAX (1 << 26) /* of all experts of a layer together */
#define UM_HF_VOCAB_MAX       (1 << 24)
#define UM_HF_POSITIONS_MAX   (1 << 28)

/* The field is there and not null. */
bool um_hf_has(const struct json_t *config, const char *key);
/* Needed fields: absent or null is UM_EMODEL, of another type or out of range UM_EPARSE. */
um_status um_hf_need_int(const struct json_t *config, const char *key, const char *where, int32_t min, int32_t max,
                         int32_t *out, um_err *err);
um_status um_hf_need_double(const struct json_t *config, const char *key, const char *where, double *out, um_err *err);
/* norm_eps: above 0, below 1. */
um_status um_hf_need_eps(um_arch *a, const struct json_t *config, const char *key, const char *where, um_err *err);
um_status um_hf_need_bool(const struct json_t *config, const char *key, const char *where, bool *out, um_err *err);
/* A field that must be absent, null, or the one value that the forward pass computes; anything else is refused. */
um_status um_hf_only_str(const struct json_t *config, const char *key, const char *where, const char *value,
                         um_err *err);
um_status um_hf_only_bool(const struct json_t *config, const char *key, const char *where, bool value, um_err *err);

/* rope_theta, at the top or inside rope_parameters or rope_scaling; scaled rotary embeddings are refused. Sets
 * rope_theta and rope_dim (head_dim must be set). */
um_status um_hf_rope(um_arch *a, const struct json_t *config, const char *where, um_err *err);

/* clip_qkv: null, or the bound of queries, keys and values. */
um_status um_hf_clip(um_arch *a, const struct json_t *config, const char *where, um_err *err);

/* The fields that Llama, Qwen2 and Qwen3 share under the same names, those of the feed-forward layers aside; biases per
 * attention_bias and mlp_bias. */
um_status um_hf_body(um_arch *a, const struct json_t *config, const char *where, um_err *err);
/* um_hf_body, and "intermediate_size" as the width of all layers. */
um_status um_hf_llama(um_arch *a, const struct json_t *config, const char *where, um_err *err);
/* Where those checkpoints keep their tensors, mixtures of experts with them. */
extern const um_tensor_names um_hf_llama_names;

/* ---- Mixtures of experts (experts.c) ---- */

/* Number, choice and width of the experts under any of the names in use, and which layers have them: sets n_experts,
 * top_k, expert_ff, moe_layers, and n_ff from the field dense_ff where a layer is dense. The rest of a->route is that
 * of a plain top-k; the family says what differs. */
um_status um_hf_experts(um_arch *a, const struct json_t *config, const char *where, const char *dense_ff, um_err *err);
/* n_group and topk_group. */
um_status um_hf_expert_groups(um_arch *a, const struct json_t *config, const char *where, um_err *err);
/* Qwen3-MoE as a whole: Qwen3's body, softmax over all experts, weights normalised per norm_topk_prob. */
um_status um_hf_qwen3_moe(um_arch *a, const struct json_t *config, const char *where, um_err *err);
/* The layouts of experts below "model.layers.%d.mlp.". */
extern const um_expert_names um_hf_expert_layouts[];

/* ---- Tokens of the releases (families/tokens.c) ---- */

/* Tokenizers that several families share, and their sizes without added tokens. */
extern const um_known_token um_tokens_qwen2[], um_tokens_dream[], um_tokens_qwen3[], um_tokens_ling[], um_tokens_seed[],
    um_tokens_llada[];
#define UM_TOKENS_QWEN_SIZE  151643
#define UM_TOKENS_LING_SIZE  156891
#define UM_TOKENS_SEED_SIZE  155121
#define UM_TOKENS_LLADA_SIZE 126080

/* ---- The families (families/) ---- */
extern const um_family um_family_dream, um_family_dream_reasoner, um_family_fast_dllm_v2, um_family_illada,
    um_family_llada, um_family_llada2, um_family_llada_moe, um_family_rnd1, um_family_sdar, um_family_sdar_moe,
    um_family_stable_diffcoder;

/* ---- Special ids (ids.c) ---- */

/* The ids that config.json alone names. */
um_status um_arch_config_ids(um_arch *a, const struct json_t *config, const char *where, um_err *err);
/* Fills the ids of a, which um_arch_parse made from `config`, read from the file `where`. */
um_status um_arch_read_ids(um_arch *a, const struct json_t *config, const char *where, const um_arch_source *from,
                           um_err *err);

/* ---- Weights (settle.c, tensors.c, load.c) ---- */

/* The family whose tensors s holds: f, or its twin. */
const um_family *um_family_by_tensors(const um_family *f, const um_safetensors *s);
/* Optional parts (norms of queries and keys, biases, a head of its own): the tensors decide over the configuration,
 * with a warning that begins with `where`. */
void um_arch_settle(um_arch *a, const um_safetensors *s, const char *where);
/* Checks that s holds every tensor of m->arch in its shape, and the adapters against them. */
um_status um_model_check_names(struct um_model *m, const um_safetensors *s, um_err *err);
/* The same, and that memory suffices for m->dtype; counts m->n_params and warns of tensors that are not used. */
um_status um_model_check(struct um_model *m, const um_safetensors *s, um_err *err);
/* Weights from s, which um_model_check accepted, into m->ops and m->dev. check: UM_CHECK_*, what is done about values
 * that are NaN or infinite; UM_EMODEL under UM_CHECK_ERROR. */
um_status um_model_load(struct um_model *m, const um_safetensors *s, int32_t check, um_err *err);
/* Arithmetic for "auto": bf16 where the embedding is stored so, else fp32. UM_EMODEL when there is no embedding. */
um_status um_model_stored_dtype(const um_arch *a, const um_safetensors *s, um_dtype *out, um_err *err);
/* Frees what um_model_load made, after a failed one too. */
void um_model_unload(struct um_model *m);

#ifdef __cplusplus
}
#endif
#endif
