/* config: functions that read the config.json of Hugging Face checkpoints, shared by the families. Used inside the
 * model room only.
 *
 * The Python classes that belong to these files have defaults that fit no released checkpoint, so the functions below
 * use no defaults. A field that determines the shape of the model is required. When it is missing, the error names the
 * file and the field. */
#ifndef UM_MODEL_CONFIG_H
#define UM_MODEL_CONFIG_H

#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limits of the numbers in a config.json. They are far above those of every checkpoint, and low enough that their
 * products fit int32_t. */
#define UM_HF_HEADS_MAX       4096
#define UM_HF_HEAD_DIM_MAX    1024
#define UM_HF_HIDDEN_MAX      (1 << 20)
#define UM_HF_EXPERTS_MAX     (1 << 16)
#define UM_HF_EXPERT_ROWS_MAX (1 << 26) /* rows of all experts of a layer together */
#define UM_HF_VOCAB_MAX       (1 << 24)
#define UM_HF_POSITIONS_MAX   (1 << 28)

/* Returns whether the field exists and is not null. */
bool um_hf_has(const struct json_t *config, const char *key);
/* um_hf_need_* read a required field. Errors: UM_EMODEL when it is missing or null, UM_EPARSE when it has another type
 * or is out of range. `where` names the file in messages. */
um_status um_hf_need_int(const struct json_t *config, const char *key, const char *where, int32_t min, int32_t max,
                         int32_t *out, um_err *err);
um_status um_hf_need_double(const struct json_t *config, const char *key, const char *where, double *out, um_err *err);
/* Reads a->norm_eps, which must be above 0 and below 1. */
um_status um_hf_need_eps(um_arch *a, const struct json_t *config, const char *key, const char *where, um_err *err);
um_status um_hf_need_bool(const struct json_t *config, const char *key, const char *where, bool *out, um_err *err);
/* um_hf_only_* check a field of which the forward pass supports one value only. Errors: UM_EUNSUPPORTED when the field
 * exists, is not null and has another value. */
um_status um_hf_only_str(const struct json_t *config, const char *key, const char *where, const char *value,
                         um_err *err);
um_status um_hf_only_bool(const struct json_t *config, const char *key, const char *where, bool value, um_err *err);

/* Reads rope_theta and the rotated share of a head, from the top level, rope_parameters or rope_scaling. Sets
 * rope_theta and rope_dim; head_dim must be set. Errors: UM_EUNSUPPORTED for scaled rotary embeddings. */
um_status um_hf_rope(um_arch *a, const struct json_t *config, const char *where, um_err *err);

/* Reads the fields of um_hf_rope from embeddings of type "yarn", with all numbers of the stretch and
 * llama_4_scaling_beta, the growth of queries. Errors: UM_EUNSUPPORTED for other types. */
um_status um_hf_yarn(um_arch *a, const struct json_t *config, const char *where, um_err *err);

/* Reads clip_qkv, the limit of queries, keys and values; null means no limit. */
um_status um_hf_clip(um_arch *a, const struct json_t *config, const char *where, um_err *err);

/* Reads the fields that have the same names in Llama, Qwen2 and Qwen3, without the width of the feed-forward layers.
 * attention_bias and mlp_bias determine the biases. */
um_status um_hf_body(um_arch *a, const struct json_t *config, const char *where, um_err *err);
/* Reads the fields of um_hf_body, and "intermediate_size" as the width of all feed-forward layers. */
um_status um_hf_llama(um_arch *a, const struct json_t *config, const char *where, um_err *err);
/* Reads the same fields of a model whose rotary embeddings are stretched (um_hf_yarn). */
um_status um_hf_llama_yarn(um_arch *a, const struct json_t *config, const char *where, um_err *err);
/* The names of the tensors in these checkpoints, also of those with mixtures of experts. */
extern const um_tensor_names um_hf_llama_names;

/* ---- Mixtures of experts (experts.c) ---- */

/* Reads the number, choice and width of the experts under any of the field names in use, and the layers that have
 * experts. Sets n_experts, top_k, expert_ff and moe_layers; if a layer is dense, also n_ff from the field `dense_ff`.
 * The rest of a->route gets the values of a plain top-k choice; the family changes the fields that differ. */
um_status um_hf_experts(um_arch *a, const struct json_t *config, const char *where, const char *dense_ff, um_err *err);
/* Reads n_group and topk_group. um_hf_experts must have been called before. */
um_status um_hf_expert_groups(um_arch *a, const struct json_t *config, const char *where, um_err *err);
/* Reads a whole Qwen3-MoE configuration: Qwen3's fields, and a softmax over all experts whose weights are normalised if
 * norm_topk_prob says so. */
um_status um_hf_qwen3_moe(um_arch *a, const struct json_t *config, const char *where, um_err *err);
/* The layouts of experts below "model.layers.%d.mlp.". */
extern const um_expert_names um_hf_expert_layouts[];

/* ---- Tokens of the releases (families/tokens.c) ---- */

/* Tokens of tokenizers that several families share, and the sizes of these tokenizers without added tokens. */
extern const um_known_token um_tokens_qwen2[], um_tokens_dream[], um_tokens_qwen3[], um_tokens_ling[], um_tokens_seed[],
    um_tokens_llada[];
#define UM_TOKENS_QWEN_SIZE  151643
#define UM_TOKENS_LING_SIZE  156891
#define UM_TOKENS_SEED_SIZE  155121
#define UM_TOKENS_LLADA_SIZE 126080

/* ---- The families (families/) ---- */
extern const um_family um_family_diffusion_gemma, um_family_dream, um_family_dream_reasoner, um_family_fast_dllm_v2,
    um_family_illada, um_family_llada, um_family_llada2, um_family_llada2_2, um_family_llada_moe, um_family_nemotron,
    um_family_nemotron_research, um_family_rnd1, um_family_sdar, um_family_sdar_moe, um_family_stable_diffcoder,
    um_family_wedlm, um_family_wedlm_7b;

/* Returns whether the name of an architecture is that of an autoregressive model ("Qwen3MoeForCausalLM", "qwen2"). */
bool um_is_autoregressive(const char *architecture);

/* ---- Special ids (ids.c) ---- */

/* Reads the mask, pad and BOS ids that config.json names. */
um_status um_arch_config_ids(um_arch *a, const struct json_t *config, const char *where, um_err *err);
/* Completes the special ids of `a` from all sources: config.json, generation_config.json, the tokenizer, the family and
 * the user. um_arch_parse must have filled in `a` from `config`, the content of the file `where`. */
um_status um_arch_read_ids(um_arch *a, const struct json_t *config, const char *where, const um_arch_source *from,
                           um_err *err);

/* ---- Weights (aliases.c, apply_tensors.c, tensors.c, load.c) ---- */

/* Returns f or its twin: the family that the tensors in s belong to. */
const um_family *um_family_by_tensors(const um_family *f, const um_store *s);
/* Renames the tensors of s that are stored below the second name of a family's part, um_family.alias, only. Errors:
 * those of um_store_sort. */
um_status um_store_join_aliases(um_store *s, const um_family *f, um_err *err);
/* Compares the tensors of s that are stored below both names. used [count of s] says which tensors the model reads; it
 * gets the copies. Reads all data of both. Errors: UM_EMODEL, which names both tensors, when they differ. */
um_status um_store_check_aliases(const um_store *s, const um_family *f, bool *used, um_err *err);
/* Corrects the optional parts of `a` (norms of queries and keys, biases, a separate head) by the tensors that s holds.
 * When config.json states something else, the tensors win, and a warning that begins with `where` is logged. */
void um_arch_apply_tensors(um_arch *a, const um_store *s, const char *where);
/* Checks that s holds every tensor of m->arch in the right shape, and that the adapters fit these tensors. */
um_status um_model_check_names(struct um_model *m, const um_store *s, um_err *err);
/* Does the checks of um_model_check_names. Counts m->n_params, m->stored_bytes and m->file_bytes, and warns of
 * unused tensors. */
um_status um_model_check(struct um_model *m, const um_store *s, um_err *err);
/* Checks that the weights fit into the memory of the open device m->device, or into that of the host (memory.c).
 * Errors: UM_ENOMEM. */
um_status um_model_check_memory(const struct um_model *m, const um_config *c, um_err *err);
/* The progress of loading on all devices, for the callback of the user's um_config. */
typedef struct um_load_meter {
    um_load_fn fn; /* NULL: none */
    void *arg;
    um_load_progress now;
} um_load_meter;
/* Adds bytes that have been loaded, and calls the callback. UM_ECANCELED: it returned false. */
um_status um_load_meter_add(um_load_meter *p, size_t bytes, um_err *err);
/* Loads the weights from s, which um_model_check has accepted, with m->ops to m->dev. `check` is a UM_CHECK_*: it
 * decides what happens when values are NaN or infinite. `meter` may be NULL. Errors: UM_EMODEL for such values under
 * UM_CHECK_ERROR; that of the meter. */
um_status um_model_load(struct um_model *m, const um_store *s, int32_t check, um_load_meter *meter, um_err *err);
/* Receives the parts t [n] of a matrix or a vector of the model. type is the type of the products with the matrix:
 * UM_F32 for one that stays exact, UM_DTYPE_OTHER for a vector. `joined` names one stack that can hold the rows of
 * all parts, when these are stacks of experts (gate and up), else it is NULL. The data are valid until it returns. */
typedef um_status (*um_parts_fn)(void *arg, const um_tensor *t, int n, const char *joined, um_dtype type, um_err *err);
/* Calls fn for every matrix and vector of the model, in the order of loading, before adapters are merged. Stacks of
 * experts are whole, and are handed out once for each expert. */
um_status um_model_list(struct um_model *m, const um_store *s, um_parts_fn fn, void *arg, um_err *err);
/* The same with merged adapters and one matrix of a stack after the other, for the data. Errors: those of fn; UM_EMODEL
 * for values that are NaN or infinite. */
um_status um_model_hand_out(struct um_model *m, const um_store *s, um_parts_fn fn, void *arg, um_err *err);
/* Opens a model with its files, without a device: *out and its m->files. *out is released with um_model_close. Errors:
 * those of um_model_open. */
um_status um_model_open_files(struct um_model **out, const um_config *c, um_err *err);
/* Returns the type of products that suits most of the weights: UM_Q8, UM_Q4, or `dtype`. */
um_dtype um_model_stored_product(const um_store *s, um_dtype dtype);
/* Stores the dtype that "auto" stands for: bf16 when the embedding is stored as bf16, fp32 when it is stored as other
 * numbers, and the dtype of config.json when it has a format of its own. Errors: UM_EMODEL when there is no embedding.
 */
um_status um_model_stored_dtype(const um_arch *a, const um_store *s, um_dtype *out, um_err *err);
/* Sets the parts of m->net that follow from m->arch and the tokenizer (model.c). */
void um_model_describe(struct um_model *m);
/* Opens the device and loads the weights and the rotary tables (model.c). um_model_describe must have been called. */
um_status um_model_open_weights(struct um_model *m, const um_config *c, const um_store *files, um_err *err);
/* The same with random weights in the shapes of m->arch (random.c). */
um_status um_model_open_random_weights(struct um_model *m, const um_config *c, um_err *err);
/* Sets the path, the architecture and the tokenizer of a model to those of a released shape, cut after the first
 * n_layers layers, 0 keeps all, opens the adapters of c, and describes it (random.c). Errors: those of um_released_arch
 * and um_adapters_open. */
um_status um_model_take_shape(struct um_model *m, const um_released *r, int32_t n_layers, const um_config *c,
                              um_err *err);
/* Returns a kind of layers that uses rotary table i of m->net. */
const um_arch_kind *um_model_rotary_kind(const struct um_model *m, int32_t i);
/* Frees the weights that um_model_load created, also when it failed. */
void um_model_unload(struct um_model *m);

#ifdef __cplusplus
}
#endif
#endif
