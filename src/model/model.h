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

#define UM_STOP_MAX   16
#define UM_BAN_MAX    4
#define UM_LAYERS_MAX 4096
/* Positions that the rotary tables of an open model cover at most: 64 MB of tables at a head size of 128. */
#define UM_POSITIONS_MAX (128 * 1024)
/* What max_num_batched_tokens 0 stands for. */
#define UM_BATCHED_TOKENS_AUTO 4096

typedef struct um_family um_family;
typedef struct um_safetensors um_safetensors;

/* Architecture as data. */
typedef struct um_arch {
    const um_family *family;
    char model_type[48], architecture[64], declared_dtype[16];
    char default_strategy[24]; /* the first of the family's list */
    const char *rule;          /* which recognition rule matched */
    int32_t n_layers, hidden, n_heads, n_kv_heads, head_dim, rope_dim;
    int32_t n_ff;         /* width of the dense layers; 0: there are none */
    int32_t vocab;        /* rows of embedding and head */
    int32_t max_position; /* trained length; of an open model at most UM_POSITIONS_MAX */
    float norm_eps, embed_scale, logit_scale;
    float clip_qkv; /* > 0: queries, keys and values are clamped to [-clip, clip] */
    double rope_theta;
    bool qk_norm, qkv_bias, o_bias, mlp_bias;
    bool layer_norm;        /* norms subtract the mean and have a bias */
    bool tied, tied_stated; /* head is the embedding; not stated in config.json: whether a head is stored decides */
    um_see see;             /* how positions see each other */
    int32_t block;          /* block-causal: block length the checkpoint was trained with */
    int32_t shift;          /* 1: row i-1 predicts position i */

    /* mixture of experts */
    um_route route;               /* n_experts 0: there is none */
    int32_t route_block;          /* under route.capacity: positions of a routing block, on the grid from 0 */
    int32_t expert_ff, shared_ff; /* widths of one expert and of the shared one; 0: none */
    uint64_t moe_layers[UM_LAYERS_MAX / 64]; /* bit of a layer: it has experts; read it through um_arch_is_moe */

    /* special ids, -1: none; *_from: the file, or whoever else, that named each, NULL: nobody */
    int32_t mask_id, pad_id, bos_id;
    int32_t stop[UM_STOP_MAX], n_stop;
    int32_t ban[UM_BAN_MAX], n_ban; /* ids that tell a decoder of another kind what to do: no answer contains them */
    const char *mask_from, *pad_from, *bos_from, *stop_from[UM_STOP_MAX];
    float temperature;      /* of generation_config.json, NAN when absent */
    int32_t max_new_tokens; /* of generation_config.json, 0 when absent */
} um_arch;

static inline bool um_arch_is_moe(const um_arch *a, int32_t layer) {
    return a->moe_layers[layer / 64] >> (layer % 64) & 1;
}

/* One way to store the experts of a layer; whole names, with %d for the layer. Stacked: one tensor [E, rows, cols]
 * holds all experts. Else each has its own, and a second %d stands for its number. up NULL: gate rows, then up rows. */
typedef struct um_expert_names {
    const char *gate, *up, *down;
    bool stacked;
} um_expert_names;

/* Where the tensors of the forward pass are: patterns with %d for the layer, without ".weight" and ".bias" where not
 * said otherwise. Shapes are those of the arch. */
typedef struct um_tensor_names {
    const char *embed, *final_norm, *head;
    const char *attn_norm, *ffn_norm, *q, *k, *v, *o, *q_norm, *k_norm;
    const char *qkv; /* queries, keys and values in one tensor, in place of q, k and v; or NULL */
    const char *gate, *up, *down;
    const char *router, *shared_gate, *shared_up, *shared_down;
    const char *router_bias[2];     /* whole names of the correction bias, tried in order */
    const um_expert_names *experts; /* layouts, the first that is found counts; gate NULL ends the list */
} um_tensor_names;

/* A token whose id the releases of a family agree on. */
typedef struct um_known_token {
    const char *text; /* NULL ends a list */
    int32_t id;
} um_known_token;

/* One row of the family table. */
struct um_family {
    const char *name, *aliases, *summary, *source;
    const char *architectures; /* "A|B": values of config.json architectures[0] */
    const char *model_types;   /* "a|b", or NULL when the architecture alone decides */
    const um_tensor_names *names;
    bool experts;              /* layers are mixtures of experts */
    um_route_bias router_bias; /* what a correction bias is added to, where there is one */
    /* Another family under the same model_type, and whether this one's checkpoints store norms of queries: the other's
     * do where these don't, so the tensors tell them apart. */
    const um_family *twin;
    bool stores_qk_norm;
    const um_known_token *tokens; /* of the releases' tokenizer, or NULL */
    int32_t tokenizer_size;       /* a tokenizer with fewer ids is another one: tokens say nothing about it */
    int32_t mask_id;              /* when neither config nor tokenizer names one; -1: none */
    const char *mask_token;       /* spelling looked up in the tokenizer, or NULL */
    const char *turn_end;         /* token that ends an assistant's turn, or NULL */
    const char *chat;             /* built-in chat template for folders that have none, see um_chat_open, or NULL */
    const char *strategies;       /* "multi_bd|full": what the family can run, the default first */
    const char *gate;             /* acceptance gate: "previous" or "always" */
    float accept_threshold;       /* default */
    float compat_threshold;       /* fixed threshold of the peer under --compat, NAN: none */
    const char *sampler;          /* what `auto` is */
    bool prefill_is_silent;       /* nothing is sampled in the prefill pass */
    /* Reads the family's fields of config.json into arch. `where` names the file in messages. */
    um_status (*configure)(um_arch *arch, const struct json_t *config, const char *where, um_err *err);
};
extern const um_family *const um_families[]; /* NULL ends the list */

/* Recognises config.json: family and rule. Autoregressive and unknown architectures are UM_EUNSUPPORTED, by name, with
 * what is supported. `override`: family name or alias from the user, or NULL. */
um_status um_family_detect(const um_family **out, const char **rule, const struct json_t *config, const char *where,
                           const char *override, um_err *err);

/* The family of the config.json in a folder; NULL when there is none that is known. For folders without weights. */
const um_family *um_family_of(const char *dir);
/* The strategy is one of f->strategies. */
bool um_family_runs(const um_family *f, const char *strategy);
/* `name`, from a user, names a family: it is neither unset nor "auto". */
bool um_family_named(const char *name);
/* The family with this name or alias, or NULL. */
const um_family *um_family_find(const char *name);
/* Reads config.json: recognises the family, reads its fields, checks the numbers against each other. Special ids are
 * those of this file alone: -1 and none where it names none. */
um_status um_arch_parse(um_arch *arch, const struct json_t *config, const char *where, const char *family, um_err *err);

/* ---- safetensors (safetensors.c) ---- */
/* Type of a tensor that is stored but that nothing computes with (integers, 8-bit floats …). */
#define UM_DTYPE_OTHER ((um_dtype)255)
/* Opens model.safetensors or the shards of model.safetensors.index.json in dir; maps, checks every header. Errors:
 * UM_ENOENT (no weights, or a shard is missing), UM_EPARSE (file and tensor are named), UM_EMODEL (index and shards
 * contradict each other), UM_EUNSUPPORTED (weights of another format). */
um_status um_safetensors_open(um_safetensors **out, const char *dir, um_err *err);
/* The same of one file dir/name. */
um_status um_safetensors_open_file(um_safetensors **out, const char *dir, const char *name, um_err *err);
void um_safetensors_close(um_safetensors *s);
size_t um_safetensors_count(const um_safetensors *s);
const um_tensor *um_safetensors_at(const um_safetensors *s, size_t i);
const um_tensor *um_safetensors_find(const um_safetensors *s, const char *name); /* or NULL */
/* Of a tensor of s: its place in um_safetensors_at, the name of its file, its element type as spelled there. */
size_t um_safetensors_index(const um_safetensors *s, const um_tensor *t);
const char *um_safetensors_file(const um_safetensors *s, const um_tensor *t);
const char *um_safetensors_dtype(const um_tensor *t);
/* Says that the bytes of t, a tensor of s or some of its rows, have been read: their memory may go to others. They stay
 * readable, from the file. */
void um_safetensors_release(const um_safetensors *s, const um_tensor *t);
/* Reads one file of n bytes, which the caller keeps alive as long as s: also the fuzz target's door. */
um_status um_safetensors_parse(um_safetensors *s, const uint8_t *data, size_t n, const char *path, um_err *err);
um_safetensors *um_safetensors_new(void);

/* ---- the loaded model ---- */
/* What an adapter adds to a linear layer: y += b (a x); b holds the adapter's scale. a NULL: nothing. */
typedef struct um_low_rank {
    um_weight *a, *b; /* [rank, in], [out, rank]; of stacked matrices the ranks are stacked too */
    int32_t in, rank, out;
} um_low_rank;

/* y = w x + bias */
typedef struct um_linear {
    um_weight *w;
    float *bias;           /* or NULL */
    um_low_rank *low_rank; /* [n_adapters]; NULL: no adapter adds to it */
} um_linear;

/* What an architecture lacks is NULL. */
typedef struct um_layer {
    um_linear qkv, o;
    um_linear gate_up, down;                       /* of a dense layer */
    um_linear router, shared_gate_up, shared_down; /* of a mixture of experts */
    um_weight **expert_gate_up, **expert_down;     /* [E] */
    float *attn_norm, *ffn_norm, *q_norm, *k_norm;
    float *attn_norm_bias, *ffn_norm_bias;
    float *router_bias; /* [E] correction bias of the choice, no part of the product */
} um_layer;

struct um_model {
    char *path;
    um_arch arch;
    um_tok *tok;
    um_chat *chat;  /* NULL: no template */
    int32_t n_text; /* ids that can be written: below both vocabulary and tokenizer size */
    const um_ops *ops;
    um_dev *dev;        /* holds the weights */
    int32_t max_tokens; /* of a pass, that dev was opened for */
    um_dtype dtype;
    um_weight *embed, *head; /* head == embed when tied */
    um_layer *layer;
    float *final_norm, *final_norm_bias; /* bias: NULL when there is none */
    float *rope_cos, *rope_sin;          /* [max_position, rope_dim / 2] */
    int64_t n_params;
    size_t weight_bytes;
    double load_seconds;

    um_adapter_info *adapter; /* [n_adapters] */
    int32_t n_adapters;
    bool merged;          /* the one adapter is part of the weights */
    int32_t rank_max;     /* largest rank of a um_low_rank, 0 without adapters */
    struct um_lora *lora; /* [n_adapters] their folders */
};

/* What um_arch_load reads; all but dir may be unset. */
typedef struct um_arch_source {
    const char *dir;
    const char *family;            /* name or alias from the user; NULL or "auto": recognise it */
    int32_t mask_id;               /* from the user, -1: none */
    const um_tok *tok;             /* NULL: what only the tokenizer knows stays unset (stop ids, mask id -1) */
    const um_safetensors *tensors; /* NULL: what tensors decide is as config.json says */
} um_arch_source;
/* Configuration only: no weights are read. Fills arch from config.json, generation_config.json, the tokenizer and the
 * names of the tensors; on failure arch is left alone. Errors: UM_ENOENT, UM_EPARSE, UM_EMODEL, UM_EUNSUPPORTED,
 * UM_ERANGE (the user's mask id does not exist). */
um_status um_arch_load(um_arch *arch, const um_arch_source *from, um_err *err);
/* The folder of a model: `name` itself, or a hub name ("org/name") found in the local Hugging Face cache
 * ($HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub). *path is released with um_free. Errors: UM_ENOENT says where
 * was looked. */
um_status um_model_find(char **path, const char *name, um_err *err);
/* The index of the adapter with this name for segments: -1 for NULL, and for one that is merged. UM_EINVAL names those
 * that are loaded. */
um_status um_model_adapter(const um_model *m, const char *name, int32_t *index, um_err *err);
/* A model without weights that holds adapters, opened and checked against the tensors of a checkpoint: for a look at
 * `adapter`. um_model_close. */
um_status um_model_sketch(um_model **out, const char *path, const um_arch *a, const um_safetensors *s, const char *lora,
                          bool merge, um_err *err);
/* Rows over um_config of what a model is opened with (options.c). */
extern const um_option um_model_options[];
extern const size_t um_n_model_options;
/* The caller's um_config was initialised, is the struct that this library knows, and holds values that those rows
 * allow. */
um_status um_config_check(const um_config *c, um_err *err);
/* Longest answer when nobody says: what generation_config.json names, else 512 tokens. */
int32_t um_arch_answer_tokens(const um_arch *a);
/* Parameters of the architecture, counted from its numbers; those of embedding and head alone; and those that one token
 * meets: of the routed experts only top_k. */
int64_t um_arch_params(const um_arch *a);
int64_t um_arch_table_params(const um_arch *a);
int64_t um_arch_active_params(const um_arch *a);
/* Bytes of keys and values of one token. */
size_t um_arch_kv_bytes(const um_arch *a, um_dtype t);

/* ---- the forward pass (transformer.c) ---- */
typedef struct um_forward um_forward;
typedef struct um_forward_config {
    int32_t max_tokens, max_rows, n_saved, page_size, n_pages, n_scratch_pages;
    um_dtype kv_type;
    um_kv_layout layout;
} um_forward_config;
/* Allocates KV, activations and saved rows for passes up to the given sizes; m must outlive it. Sizes may not exceed
 * those that the model was opened for. Errors: UM_ENOMEM. */
um_status um_forward_new(um_forward **out, const um_model *m, const um_forward_config *c, um_err *err);
void um_forward_free(um_forward *f);
size_t um_forward_kv_bytes(const um_forward *f);
size_t um_forward_workspace_bytes(const um_forward *f);
/* Copies the keys and values of a page's first n positions to another page. Between passes. */
void um_forward_copy_page(um_forward *f, int32_t from, int32_t to, int32_t n);
/* Starts a pass over the batch; answers are there after um_forward_wait. The batch stays untouched in between. */
void um_forward_submit(um_forward *f, const um_batch *b);
void um_forward_wait(um_forward *f);
/* What is stored, in the backend's layout: tests look into that of ref. */
const um_kv *um_forward_kv(const um_forward *f);
/* From the next pass on its operations are spans of p, which must outlive them; NULL: no more. */
void um_forward_profile(um_forward *f, um_profile *p);
/* Final hidden rows of the last pass [n_tokens, hidden], after the final norm: what tests and embeddings read. */
const float *um_forward_hidden(const um_forward *f);

#ifdef __cplusplus
}
#endif
#endif
