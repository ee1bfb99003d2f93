/* model: checkpoint folders: configuration, families, weights, and the one forward pass.
 *
 * A um_arch is what the rest of the engine knows of a model: numbers and rules, no names of tensors. A family turns a
 * config.json into a um_arch and says where the tensors are. transformer.c computes; it is written against ops.h only.
 */
#ifndef UM_MODEL_H
#define UM_MODEL_H

#include "base/base.h"
#include "ops/ops.h"
#include "text/text.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_STOP_MAX 16
/* Positions that the rotary tables of an open model cover at most: 64 MB of tables at a head size of 128. */
#define UM_POSITIONS_MAX (128 * 1024)
/* What max_num_batched_tokens 0 stands for. */
#define UM_BATCHED_TOKENS_AUTO 4096

typedef struct um_family um_family;

/* Architecture as data. */
typedef struct um_arch {
    const um_family *family;
    char model_type[48], architecture[64];
    char default_strategy[24]; /* the first of the family's list */
    const char *rule;          /* which recognition rule matched */
    int32_t n_layers, hidden, n_heads, n_kv_heads, head_dim, rope_dim, n_ff;
    int32_t vocab;        /* rows of embedding and head */
    int32_t max_position; /* trained length; of an open model at most UM_POSITIONS_MAX */
    float norm_eps, embed_scale, logit_scale;
    double rope_theta;
    bool qk_norm, qkv_bias, o_bias, mlp_bias;
    bool tied, tied_stated; /* head is the embedding; not stated in config.json: whether a head is stored decides */
    um_see see;             /* how positions see each other */
    int32_t block;          /* block-causal: block length the checkpoint was trained with */
    int32_t shift;          /* 1: row i-1 predicts position i */
    int32_t mask_id, pad_id;
    int32_t stop[UM_STOP_MAX], n_stop;
    float temperature;      /* of generation_config.json, NAN when absent */
    int32_t max_new_tokens; /* of generation_config.json, 0 when absent */
} um_arch;

/* Where a tensor of the forward pass is: pattern with %d for the layer. Shapes are those of the arch. */
typedef struct um_tensor_names {
    const char *embed, *final_norm, *head;
    const char *attn_norm, *ffn_norm, *q, *k, *v, *o, *q_norm, *k_norm, *gate, *up,
        *down; /* without ".weight"/".bias" */
} um_tensor_names;

/* One row of the family table. */
struct um_family {
    const char *name, *aliases, *summary, *source;
    const char *architectures; /* "A|B": values of config.json architectures[0] */
    const char *model_types;   /* "a|b", or NULL when the architecture alone decides */
    const um_tensor_names *names;
    int32_t mask_id;        /* when neither config nor tokenizer names one; -1: none */
    const char *mask_token; /* spelling looked up in the tokenizer, or NULL */
    const char *turn_end;   /* token that ends an assistant's turn, or NULL */
    const char *strategies; /* "multi_bd|full": what the family can run, the default first */
    const char *gate;       /* acceptance gate: "previous" or "always" */
    float accept_threshold; /* default */
    float compat_threshold; /* fixed threshold of the peer under --compat, NAN: none */
    const char *sampler;    /* of whole-sequence decoding; NULL: low_confidence */
    bool prefill_is_silent; /* nothing is sampled in the prefill pass */
    /* Reads the family's fields of config.json into arch. `where` names the file in messages. */
    um_status (*configure)(um_arch *arch, const struct json_t *config, const char *where, um_err *err);
};
extern const um_family *const um_families[]; /* NULL ends the list */

/* Recognises config.json: family and rule. Autoregressive and unknown architectures are UM_EUNSUPPORTED, by name, with
 * what is supported. `override`: family name or alias from the user, or NULL. */
um_status um_family_detect(const um_family **out, const char **rule, const struct json_t *config, const char *where,
                           const char *override, um_err *err);

/* The family with this name or alias, or NULL. */
const um_family *um_family_find(const char *name);
/* Reads config.json: recognises the family, reads its fields, checks the numbers against each other. Special ids are
 * those of this file alone: -1 and none where it names none. */
um_status um_arch_parse(um_arch *arch, const struct json_t *config, const char *where, const char *family, um_err *err);

/* ---- safetensors (safetensors.c) ---- */
typedef struct um_safetensors um_safetensors;
/* Type of a tensor that is stored but that nothing computes with (integers, 8-bit floats …). */
#define UM_DTYPE_OTHER ((um_dtype)255)
/* Opens model.safetensors or the shards of model.safetensors.index.json in dir; maps, checks every header. Errors:
 * UM_ENOENT (no weights, or a shard is missing), UM_EPARSE (file and tensor are named), UM_EMODEL (index and shards
 * contradict each other), UM_EUNSUPPORTED (weights of another format). */
um_status um_safetensors_open(um_safetensors **out, const char *dir, um_err *err);
void um_safetensors_close(um_safetensors *s);
size_t um_safetensors_count(const um_safetensors *s);
const um_tensor *um_safetensors_at(const um_safetensors *s, size_t i);
const um_tensor *um_safetensors_find(const um_safetensors *s, const char *name); /* or NULL */
/* Of a tensor of s: its place in um_safetensors_at, the name of its file, its element type as spelled there. */
size_t um_safetensors_index(const um_safetensors *s, const um_tensor *t);
const char *um_safetensors_file(const um_safetensors *s, const um_tensor *t);
const char *um_safetensors_dtype(const um_tensor *t);
/* Says that the bytes of t have been read: their memory may go to others. They stay readable, from the file. */
void um_safetensors_release(const um_safetensors *s, const um_tensor *t);
/* Reads one file of n bytes, which the caller keeps alive as long as s: also the fuzz target's door. */
um_status um_safetensors_parse(um_safetensors *s, const uint8_t *data, size_t n, const char *path, um_err *err);
um_safetensors *um_safetensors_new(void);

/* ---- the loaded model ---- */
typedef struct um_layer {
    um_weight *qkv, *o, *gate_up, *down;
    float *attn_norm, *ffn_norm, *q_norm, *k_norm;       /* q_norm, k_norm: NULL when the family has none */
    float *qkv_bias, *o_bias, *gate_up_bias, *down_bias; /* NULL when absent */
} um_layer;

struct um_model {
    char *path;
    um_arch arch;
    um_tok *tok;
    um_chat *chat;  /* NULL: no template */
    int32_t n_text; /* ids that can be written: below both vocabulary and tokenizer size */
    const um_ops *ops;
    um_dev *dev; /* holds the weights */
    um_dtype dtype;
    um_weight *embed, *head; /* head == embed when tied */
    um_layer *layer;
    float *final_norm;
    float *rope_cos, *rope_sin; /* [max_position, rope_dim / 2] */
    int64_t n_params;
    size_t weight_bytes;
    double load_seconds;
};

/* Configuration only: no weights are read. Fills arch from config.json, generation_config.json and the tokenizer of the
 * folder dir; on failure arch is left alone. tok NULL: what only the tokenizer knows stays unset (stop ids, mask id
 * -1). family: name or alias from the user, or NULL. Errors: UM_ENOENT, UM_EPARSE, UM_EMODEL, UM_EUNSUPPORTED. */
um_status um_arch_load(um_arch *arch, const char *dir, const char *family, const um_tok *tok, um_err *err);
/* The folder of a model: `name` itself, or a hub name ("org/name") found in the local Hugging Face cache
 * ($HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub). *path is released with um_free. Errors: UM_ENOENT says where
 * was looked. */
um_status um_model_find(char **path, const char *name, um_err *err);
/* The caller's um_config was initialised and is the struct that this library knows. */
um_status um_config_check(const um_config *c, um_err *err);
/* Longest answer when nobody says: what generation_config.json names, else 512 tokens. */
int32_t um_arch_answer_tokens(const um_arch *a);
/* Parameters of the architecture, counted from its numbers. */
int64_t um_arch_params(const um_arch *a);
/* Bytes of keys and values of one token. */
size_t um_arch_kv_bytes(const um_arch *a, um_dtype t);

/* ---- the forward pass (transformer.c) ---- */
typedef struct um_forward um_forward;
typedef struct um_forward_config {
    int32_t max_tokens, max_rows, n_saved, page_size, n_pages;
    um_dtype kv_type;
} um_forward_config;
/* Allocates KV, activations and saved rows for passes up to the given sizes; m must outlive it. Sizes may not exceed
 * those that the model was opened for. Errors: UM_ENOMEM. */
um_status um_forward_new(um_forward **out, const um_model *m, const um_forward_config *c, um_err *err);
void um_forward_free(um_forward *f);
size_t um_forward_kv_bytes(const um_forward *f);
size_t um_forward_workspace_bytes(const um_forward *f);
/* Starts a pass over the batch; answers are there after um_forward_wait. The batch stays untouched in between. */
void um_forward_submit(um_forward *f, const um_batch *b);
void um_forward_wait(um_forward *f);
/* Final hidden rows of the last pass [n_tokens, hidden], after the final norm: what tests and embeddings read. */
const float *um_forward_hidden(const um_forward *f);

#ifdef __cplusplus
}
#endif
#endif
