/* model: reads checkpoint folders: configuration, families, weights.
 *
 * A um_arch describes a model to the rest of the engine: numbers and rules, without names of tensors. A family converts
 * a config.json to a um_arch and knows the names of the tensors. The
 * loader hands the weights to a backend and describes them in a um_network. The backend computes the forward pass of
 * all families (ops/backend.h). */
#ifndef UM_MODEL_H
#define UM_MODEL_H

#include "base/base.h"
#include "model/store.h"
#include "ops/backend.h"
#include "text/text.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_STOP_MAX      16
#define UM_BAN_MAX       4
#define UM_LAYERS_MAX    4096
#define UM_STABILITY_MAX 64 /* canvases that the stability test of a canvas compares */
/* The largest number of positions in the rotary tables of an open model. For a head size of 128 they take 64 MB. */
#define UM_POSITIONS_MAX (128 * 1024)
/* The least and the largest value of max_num_batched_tokens when it is 0 (auto). */
#define UM_BATCHED_TOKENS_AUTO     4096
#define UM_BATCHED_TOKENS_AUTO_MAX 16384

/* The place of this process among those that compute a model (launch.c). */
typedef struct um_place {
    int32_t rank, n; /* n 1: this process computes all of it */
    int32_t local;   /* number of this process among those of its host, as the launcher says; -1: unknown */
    char addr[256];  /* where rank 0 listens */
    int32_t port;
} um_place;

/* The devices of the engines 0..n-1. Engine i has n_own of them in this process, from number[i * n_own] on. */
typedef struct um_device_list {
    const um_backend *backend;
    int32_t n, n_own, number[UM_DEVICES_MAX * UM_RANKS_MAX];
    int32_t n_ranks; /* devices that compute an engine's passes together, in all processes */
} um_device_list;

typedef struct um_family um_family;

/* Rotary embeddings that were stretched after the training (YaRN): frequencies that turn often keep their value, those
 * that turn rarely are divided by `factor`, and those between are blended. */
typedef struct um_yarn {
    double factor;                 /* 0: the embeddings are not stretched */
    int32_t original;              /* number of positions before the stretch */
    double beta_fast, beta_slow;   /* turns within `original` above which a frequency stays, and below which it is
                                      divided */
    double mscale, mscale_all_dim; /* cosines and sines are multiplied by g(mscale) / g(mscale_all_dim), where g(m) is
                                      0.1 m ln(factor) + 1 */
} um_yarn;

/* What the layers of one kind have in common (um_layer_kind). */
typedef struct um_arch_kind {
    int32_t n_heads, n_kv_heads, head_dim;
    int32_t rope_dim;               /* rotated dimensions of a head */
    int32_t rope_pairs;             /* pairs of them that turn; the others have the frequency 0 */
    double rope_theta, rope_factor; /* frequencies are divided by the factor */
    int32_t window;                 /* keys that a query sees at most; 0: no limit */
    float attn_scale;               /* factor of the products of queries and keys; 0: 1 / sqrt(head_dim) */
    bool v_is_k;                    /* the values are those of the keys' matrix, before norm and rotation */
    bool v_norm;                    /* values are normed per head, without a weight */
    bool post_norms;                /* results of attention and feed-forward layers are normed */
    um_act act;
    int32_t n_ff;                 /* width of the dense feed-forward layer; 0: none */
    int32_t expert_ff, shared_ff; /* widths of one routed expert and of the shared expert; 0: none */
} um_arch_kind;

/* How a checkpoint denoises a canvas by default (strategy renoising). */
typedef struct um_canvas_defaults {
    int32_t steps;
    float entropy_bound, t_min, t_max, confidence; /* NAN: off, except the bound */
    int32_t stability;                             /* -1: off */
} um_canvas_defaults;

/* The architecture of a model, as data. */
typedef struct um_arch {
    const um_family *family;
    char model_type[48], architecture[64], declared_dtype[16]; /* the fields of config.json */
    char default_strategy[24];                                 /* the first of the family's list */
    const char *rule;                                          /* the rule that recognised the family */
    int32_t n_layers, hidden;
    /* The kinds of layers. When the family names none, um_arch_parse makes them of the following fields, which are
     * those of all layers; else these are those of the first kind. */
    int32_t n_kinds;
    um_arch_kind kind[UM_LAYER_KINDS_MAX];
    uint8_t of_layer[UM_LAYERS_MAX]; /* index of the kind of each layer */
    int32_t n_heads, n_kv_heads, head_dim;
    int32_t rope_dim;     /* rotated dimensions of a head */
    int32_t n_ff;         /* width of the dense feed-forward layers; 0: there are none */
    int32_t vocab;        /* rows of embedding and head */
    int32_t max_position; /* number of positions in training; at most UM_POSITIONS_MAX once the model is open */
    float norm_eps, embed_scale, logit_scale;
    bool embed_scale_rounds; /* the scale is rounded to the type in which the embedding is stored */
    float logit_cap;         /* > 0: a logit z becomes cap * tanh(z / cap) */
    float clip_qkv;          /* > 0: queries, keys and values are clamped to [-clip, clip] */
    double rope_theta;
    um_yarn yarn;
    double query_beta; /* queries at position p are multiplied by 1 + query_beta ln(1 + floor(p / yarn.original)) */
    bool qk_norm, qkv_bias, o_bias, mlp_bias;
    bool layer_norm;         /* norms subtract the mean and have a bias */
    int32_t conditioning_ff; /* width of the part that conditions a canvas on earlier predictions; 0: none */
    bool has_modes;          /* layers have two factors, of which the second is for a canvas */
    um_canvas_defaults canvas;
    /* tied: the embedding serves as the head. tied_stated: config.json states it; else the model is tied when no head
     * is stored. */
    bool tied, tied_stated;
    um_see see;    /* the positions that a position sees */
    int32_t block; /* block-causal: block length of the training */
    int32_t shift; /* 1: row i-1 predicts position i */

    /* Mixture of experts. */
    um_expert_route route; /* n_experts 0: the model has no experts */
    int32_t route_block;   /* when route.capacity is set: positions of a routing block, counted from position 0 */
    int32_t expert_ff, shared_ff;            /* widths of one routed expert and of the shared expert; 0: none */
    uint64_t moe_layers[UM_LAYERS_MAX / 64]; /* a bit for each layer with experts; read it with um_arch_is_moe */

    /* Special ids; -1: none. *_from is the source of each, a file name or words such as "the user"; NULL: no source
     * named it. */
    int32_t mask_id, pad_id, bos_id;
    int32_t stop[UM_STOP_MAX], n_stop;
    int32_t ban[UM_BAN_MAX], n_ban; /* ids that no answer may contain, because they control another kind of decoder */
    int32_t delete_id, split_id;    /* ids whose prediction deletes a token, or inserts a mask before it; -1: none */
    const char *mask_from, *pad_from, *bos_from, *stop_from[UM_STOP_MAX];
    float temperature;      /* from generation_config.json; NAN when absent */
    int32_t max_new_tokens; /* from generation_config.json; 0 when absent */
} um_arch;

/* Returns whether the layer has experts. */
static inline bool um_arch_is_moe(const um_arch *a, int32_t layer) {
    return a->moe_layers[layer / 64] >> (layer % 64) & 1;
}

/* Returns the kind of a layer. */
static inline const um_arch_kind *um_arch_kind_of(const um_arch *a, int32_t layer) {
    return &a->kind[a->of_layer[layer]];
}

/* A layout of the experts of a layer. The names are complete, with %d for the number of the layer. stacked: one tensor
 * [E, rows, cols] holds all experts. Else each expert has a separate tensor, and a second %d stands for its number.
 * When `up` is NULL, the tensor `gate` holds the rows of gate and then those of up. */
typedef struct um_expert_names {
    const char *gate, *up, *down;
    bool stacked;
} um_expert_names;

/* The names of the tensors that the forward pass reads: patterns with %d for the number of the layer, without the
 * ending ".weight" or ".bias" unless a comment says otherwise. */
typedef struct um_tensor_names {
    const char *embed, *final_norm, *head;
    const char *attn_norm, *ffn_norm, *q, *k, *v, *o, *q_norm, *k_norm;
    const char *qkv; /* one tensor for queries, keys and values, in place of q, k and v; or NULL */
    const char *gate, *up, *down;
    const char *router, *shared_gate, *shared_up, *shared_down;
    const char *router_bias[2]; /* complete names of the correction bias; the first that is stored is read */
    /* With post_norms; those of experts only where a layer has a dense branch, too. */
    const char *attn_post_norm, *ffn_post_norm, *dense_post_norm, *expert_norm, *expert_post_norm;
    const char *router_norm, *expert_scale;                  /* complete names */
    const char *scale[2];                                    /* complete names, of both modes */
    const char *cond_norm, *cond_gate, *cond_up, *cond_down; /* conditioning */
    const um_expert_names *experts; /* layouts; the first that is stored is read; gate NULL ends the list */
} um_tensor_names;

/* A token that has the same id in all releases of a family. */
typedef struct um_known_token {
    const char *text; /* NULL ends a list */
    int32_t id;
} um_known_token;

/* A row of the family table. */
struct um_family {
    const char *name, *aliases, *summary, *source;
    const char *architectures; /* "A|B": values of config.json architectures[0] */
    /* Another family with the same architectures, which is recognised first. Its configure changes um_arch.family to
     * this family when other fields of config.json say so. NULL: none. */
    const um_family *variant_of;
    const char *model_types; /* "a|b", or NULL when the architecture alone decides */
    const um_tensor_names *names;
    bool experts;               /* layers are mixtures of experts */
    um_expert_bias router_bias; /* the kind of the correction bias, in checkpoints that have one */
    /* Another family with the same model_type. One of the two stores norms of queries and keys, the other one does not,
     * so the tensors tell them apart. stores_qk_norm: this family stores them. */
    const um_family *twin;
    bool stores_qk_norm;
    const um_known_token *tokens; /* tokens of the releases' tokenizer, or NULL */
    const char *alias, *alias_of; /* a tensor may have the first prefix in place of the second one; or NULL */
    const char *ignored;          /* "a.|b.": prefixes of tensors that unmask has no use for; or NULL */
    const char *ignored_part;     /* what they belong to, for a message */
    int32_t tokenizer_size;       /* number of ids of the releases' tokenizer; a smaller tokenizer is not compared with
                                     `tokens` */
    bool has_no_mask;             /* the model predicts no masks; a mask id only stands for a token to come */
    int32_t mask_id;              /* used when neither config.json nor the tokenizer names a mask; -1: none */
    const char *mask_token;       /* the mask token, looked up in the tokenizer; or NULL */
    const char *mask_text;        /* the releases' mask id is that of this ordinary token; or NULL */
    const char *turn_end;         /* token that ends an assistant's turn, or NULL */
    const char *chat;             /* built-in chat template for folders without one, see um_chat_open; or NULL */
    const char *strategies;       /* "multi_bd|full": the strategies that the family supports, the default first */
    const char *gate;             /* acceptance gate: "previous" or "always" */
    float accept_threshold;       /* default */
    float compat_threshold;       /* the fixed threshold of the system that --compat imitates; NAN: none */
    const char *sampler;          /* the sampler that "auto" stands for */
    bool prefill_is_silent;       /* the prefill pass samples nothing */
    bool filters_first;           /* top-k, top-p and min-p apply before the temperature */
    /* Reads the family's fields of config.json into arch. `where` names the file in messages. */
    um_status (*configure)(um_arch *arch, const struct json_t *config, const char *where, um_err *err);
};
extern const um_family *const um_families[]; /* NULL ends the list */

/* Finds the family of a config.json and the rule that recognised it. `override` is a family name or alias from the
 * user, or NULL. Errors: UM_EUNSUPPORTED for autoregressive and unknown architectures; the message names the
 * architecture and the supported families. */
um_status um_family_detect(const um_family **out, const char **rule, const struct json_t *config, const char *where,
                           const char *override, um_err *err);

/* Returns the family of a checkpoint, or NULL when its configuration is missing or its family is unknown. The
 * checkpoint may lack weights. */
const um_family *um_family_of_checkpoint(const char *path);
/* Returns whether the strategy is one of f->strategies. */
bool um_family_supports(const um_family *f, const char *strategy);
/* Returns whether the user's `name` names a family: it is not NULL, "" or "auto". */
bool um_family_is_named(const char *name);
/* Returns the family with this name or alias, or NULL. */
const um_family *um_family_find(const char *name);
/* Reads config.json: recognises the family, reads its fields, and checks the numbers against each other. Reads the
 * special ids from this file only; ids that it does not name are -1. */
um_status um_arch_parse(um_arch *arch, const struct json_t *config, const char *where, const char *family, um_err *err);

/* ---- shapes (shape.c) ---- */
#define UM_SHAPE_TEXT 128
/* Writes the n dimensions as "[2, 3]". n is at most the number of dimensions that a um_tensor has room for. */
void um_shape_print(char out[UM_SHAPE_TEXT], const int64_t *dim, int32_t n);

/* ---- tensors of an architecture (load.c) ---- */
/* Takes one tensor: its name and dimensions, which stay valid until it returns. Type and data are not set. */
typedef um_status (*um_tensor_fn)(void *arg, const um_tensor *t, um_err *err);
/* Calls fn for every tensor that the loader wants of a checkpoint of this architecture, once, in the order in which the
 * loader asks. Where families store a part in several ways, names and shapes are those of the releases. Ends at the
 * first call that fails, with its status. */
um_status um_arch_tensors(const um_arch *a, um_tensor_fn fn, void *arg, um_err *err);

/* ---- model card (card.c) ---- */
#define UM_CARD_EXAMPLES_MAX      8
#define UM_CARD_EXAMPLE_BYTES_MAX 200
/* What the front matter of a checkpoint's README.md says for people. */
typedef struct um_card {
    um_arena strings;
    const char
        *example[UM_CARD_EXAMPLES_MAX]; /* [n_examples] prompts in one line of UTF-8 without control characters */
    int32_t n_examples;
} um_card;
/* Reads the card of the checkpoint at `path`. The card is empty when there is none, or when it is malformed, because
 * nothing depends on it. Released with um_card_free. */
void um_card_read(um_card *c, const char *path);
/* Adds a copy of an example in one line without control characters. Ignores one that is empty or too long, and more
 * than UM_CARD_EXAMPLES_MAX. */
void um_card_add_example(um_card *c, const char *text);
void um_card_free(um_card *c);

/* ---- the loaded model ---- */
struct um_model {
    char *path;
    um_arch arch;
    um_tok *tok;
    um_chat *chat; /* NULL: no template */
    const um_backend *backend;
    um_device *device; /* holds the weights; NULL: the model was opened without its weights */
    /* The weights, and what a backend knows of the model. net.vocab is the number of ids that the model may write:
     * those below the sizes of both vocabulary and tokenizer. */
    um_network net;
    int32_t max_tokens; /* the largest pass that the device was opened for */
    um_dtype dtype;
    um_dtype weight_type; /* type of the products of most matrices: dtype, UM_Q8, UM_Q4 or UM_F8 */
    bool has_own_types;   /* the format of each stored matrix decides on its type */
    um_store *files;      /* the weights' files, while weights use them where they lie; else NULL */
    int64_t n_params;
    size_t weight_bytes;  /* on this device */
    size_t mapped_bytes;  /* of these, the bytes that lie in mapped files */
    size_t adapter_bytes; /* of the adapters that requests can choose, in dtype */
    size_t stored_bytes;  /* of the weights in the smaller type of those of file and weight_type */
    size_t file_bytes;    /* of the tensors that loading reads, in their files */
    double load_seconds;

    /* The devices of the engines of a router. Engine i uses the weights of on[i]: of this model itself or of a copy on
     * another device, which borrows all but the device and the weights. Only um_model_open fills in these two. */
    um_device_list devices;
    struct um_model *on[UM_DEVICES_MAX];
    int32_t number;             /* of the device among those of its backend */
    int32_t n_ranks;            /* devices that compute together as a group; 1: no group */
    um_backend *group;          /* the backend of these groups; NULL without */
    const int32_t *rank_number; /* [devices.n_own] numbers of the devices of the group in this process */
    int32_t n_sharing;          /* engines that use this device */
    um_place place;             /* of this process among those that compute the model */
    um_launch launch;           /* of such a group of processes; facts NULL: this process computes all */

    um_adapter_info *adapter; /* [n_adapters] */
    int32_t n_adapters;
    bool merged;          /* the adapter has been added to the weights */
    int32_t rank_max;     /* largest rank of an adapter's matrices; 0 without adapters */
    struct um_lora *lora; /* [n_adapters] the opened adapter folders */
    /* [net.n_adapters] the slots of adapters in the layers; NULL: no adapter can be loaded later. */
    struct um_adapter_slot *slot;
    uint64_t last_number;           /* of an adapter, see um_model_adapter_number */
    um_card card;                   /* of the checkpoint */
    struct um_languages *languages; /* of the constraints of requests (languages.h) */
};

/* Returns the answers of an engine that can hold a place at the same time: max_num_reqs and the guest places. */
int32_t um_config_places(const um_config *c);
/* Returns the tokens of a block: decoding.block_size, else what the model was trained with, else 32. */
int32_t um_config_block(const um_config *c, const um_arch *a);
/* Returns the most tokens of a step: max_num_batched_tokens, or its automatic value. On a GPU all answers shall be able
 * to store a block and begin the next one in the same step, or some would wait for others. */
int32_t um_config_step_tokens(const um_config *c, const um_arch *a, bool is_host);
/* Chooses the devices of c->data_parallel_size engines (devices.c) from the options device and device_ids. Engines
 * share the device of a host. Others get a device each, or tensor_parallel_size devices, unless the options name one
 * several times. Errors: UM_EINVAL, UM_EUNSUPPORTED, UM_EDEVICE: there are not as many devices. */
um_status um_model_devices(um_device_list *list, const um_config *c, um_err *err);
#define UM_DEVICE_NAME_MAX 192
/* Writes the name of an engine's device, "cuda:1" or "cpu", or those of its ranks, "cuda:0,cuda:1". */
void um_device_name(const um_device_list *list, int32_t engine, char out[UM_DEVICE_NAME_MAX]);
/* Returns the bytes of n weights of a type, without padding. */
size_t um_weights_bytes(int64_t n, um_dtype type);
/* Returns the bytes of the weights on a device that keeps them in m->weight_type, computed from the sizes. */
size_t um_model_weight_bytes(const um_model *m);
/* Returns the name of m's types: "bfloat16", "bfloat16 with q8 weights". */
const char *um_model_type_name(const um_model *m);
/* Returns the name of m's device, "cuda:1" or "cpu". */
void um_model_device_name(const um_model *m, char out[UM_DEVICE_NAME_MAX]);
/* Returns the model with the weights on the device of an engine. */
um_model *um_model_for(um_model *m, int32_t engine);

/* The sources that um_arch_load reads. All but dir may be unset. */
typedef struct um_arch_source {
    const char *dir;
    const char *family;      /* name or alias from the user; NULL or "auto": recognise the family */
    int32_t mask_id;         /* mask id from the user; -1: none */
    const um_tok *tok;       /* NULL: values that only the tokenizer knows stay unset */
    const um_store *tensors; /* NULL: config.json decides on optional tensors */
} um_arch_source;
/* Fills in arch from config.json, generation_config.json, the tokenizer and the names of the tensors. Reads no weights.
 * Does not change arch on an error. Errors: UM_ENOENT, UM_EPARSE, UM_EMODEL, UM_EUNSUPPORTED, UM_ERANGE (the user's
 * mask id is not in the vocabulary). */
um_status um_arch_load(um_arch *arch, const um_arch_source *from, um_err *err);
/* Finds the checkpoint of a model. `name` is a folder, a GGUF file, a folder with one such file that lacks config.json
 * or safetensors, the name of a bundled checkpoint, or a hub name ("org/name") in the local Hugging Face cache
 * ($HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub); they are tried in this order. "org/name:tag" and
 * "folder:tag" choose the GGUF file with these words in its name. *path is released with um_free. Errors: UM_ENOENT;
 * the message names the searched places and the bundled checkpoints, or the files to choose from. UM_EINVAL: several
 * files fit. */
um_status um_model_find(char **path, const char *name, um_err *err);
/* Recognise the content [n] of a file, or the file at `path`, by its first bytes (file_kind.c). Return words for a
 * message, "a safetensors file", or NULL for other files. */
const char *um_file_kind(const void *data, size_t n);
const char *um_file_kind_at(const char *path);
/* Returns the folder of the bundled checkpoints (bundled.c), which is found relative to the executable:
 * share/unmask/models of an installation, or models of the source tree. NULL when there is none. Released with
 * um_free. */
char *um_bundled_folder(void);
/* Returns the path of the bundled checkpoint with this name, or NULL. Released with um_free. */
char *um_bundled_find(const char *name);
/* Appends the sorted names of the bundled checkpoints, "tiny-block, tiny-full". Appends nothing when there are none. */
void um_bundled_append_names(um_buf *out);
/* A slot of an adapter that was unloaded is empty when the last answer that uses it has ended. */
typedef struct um_adapter_slot {
    uint64_t number; /* 0: the slot is empty */
    int32_t n_users; /* answers that use the adapter */
    bool is_retired; /* the adapter has been unloaded */
} um_adapter_slot;
/* Counts an answer as a user of the adapter with this index (-1: none), and discounts it. An adapter that was unloaded
 * is freed with its last user. */
void um_model_hold_adapter(um_model *m, int32_t index);
void um_model_release_adapter(um_model *m, int32_t index);
/* Returns a number that differs for all adapters that a model has ever had, for keys of caches; 0 for index -1. */
uint64_t um_model_adapter_number(const um_model *m, int32_t index);
/* Stores the index that segments use for the adapter with this name; -1 when name is NULL or the adapter is merged.
 * Errors: UM_EINVAL for an unknown name; the message lists the loaded adapters. */
um_status um_model_adapter(const um_model *m, const char *name, int32_t *index, um_err *err);
/* Opens a checkpoint and its devices as um_model_open does, without loading weights, to plan the memory of an engine
 * (um_engine_plan_memory). No engine can be created. The folder need not contain weights. *out is released with
 * um_model_close. */
um_status um_model_open_device(um_model **out, const um_config *c, um_err *err);
/* Opens adapters without loading weights and checks them against the tensors of a checkpoint. The result is for reading
 * `adapter` only. *out is released with um_model_close. */
um_status um_model_sketch(um_model **out, const char *path, const um_arch *a, const um_store *s, const char *lora,
                          bool merge, um_err *err);
/* The options that um_model_open reads, as rows over um_config (options.c). */
extern const um_option um_model_options[];
extern const size_t um_n_model_options;
/* Checks that um_config_init of this library has initialised the caller's um_config, and that the values of the options
 * above are in range. */
um_status um_config_check(const um_config *c, um_err *err);
/* Returns the default of max_tokens: max_new_tokens of generation_config.json, else 512. */
int32_t um_arch_answer_tokens(const um_arch *a);
/* Returns the sizes of a device for the operations of this architecture. The caller sets the types and the sizes of a
 * pass. */
um_dev_config um_arch_sizes(const um_arch *a);
/* Returns the number of parameters, computed from the sizes of the architecture. */
int64_t um_arch_params(const um_arch *a);
/* Returns the number of parameters of embedding and head. */
int64_t um_arch_embedding_params(const um_arch *a);
/* Returns the number of parameters that one token uses. Of the routed experts it counts only top_k. */
int64_t um_arch_active_params(const um_arch *a);
/* Returns the frequency of rotated pair i of a kind of layers, in radians per position (rotary.c). */
float um_arch_frequency(const um_arch *a, const um_arch_kind *k, int32_t i);
/* Returns the factor of all cosines and sines. */
float um_arch_rotary_scale(const um_arch *a);
/* Returns the bytes of the keys and values of one token in all layers, or in those with a window, or in the others. */
size_t um_arch_kv_bytes(const um_arch *a, um_dtype t);
size_t um_arch_window_kv_bytes(const um_arch *a, um_dtype t, bool window);
/* ---- Processes as ranks (launch.c) ---- */
/* Finds the place of this process: from the options nnodes, rank, master_addr and master_port, and for those that are
 * "auto" from the environment. Errors: UM_EINVAL, UM_ERANGE, UM_EUNSUPPORTED. */
um_status um_config_place(um_place *out, const um_config *c, um_err *err);
/* Lets the group of m's device join the other processes when it is opened. `s` has the tensors; NULL: there are none.
 * Does nothing when this process computes all of the model. */
um_status um_model_launch(um_model *m, const um_config *c, const um_store *s, um_err *err);
/* Runs the passes that rank 0 plans, until it closes its model. The rank of m is not 0. Errors: UM_EDEVICE. */
um_status um_model_follow(um_model *m, um_err *err);

/* ---- Groups of ranks (ranks.c) ---- */
/* Checks that n ranks divide the heads, the widths and the vocabulary. With expert_parallel they divide the number of
 * experts in place of an expert's width. UM_EUNSUPPORTED; the message has the numbers that do. */
um_status um_arch_check_ranks(const um_arch *a, int32_t n, bool expert_parallel, um_err *err);
/* Returns the architecture with the KV heads that n ranks store together. */
um_arch um_arch_with_ranks(const um_arch *a, int32_t n);
/* Returns the architecture with the heads and widths of one of n ranks, which divide it. With expert_parallel the
 * experts keep their width; their number is always that of all ranks. */
um_arch um_arch_of_rank(const um_arch *a, int32_t n, bool expert_parallel);
/* Returns the number of weights that one of n ranks uses. */
int64_t um_arch_rank_params(const um_arch *a, int32_t n, bool expert_parallel);
/* Returns the number of weights that the ranks of m's device have beside those of the model. */
int64_t um_model_extra_params(const um_model *m);

/* Returns the largest window of a layer; 0: no layer has one. */
int32_t um_arch_window(const um_arch *a);

/* ---- Cost of a forward pass (cost.c) ---- */
/* The work of a forward pass. */
typedef struct um_pass_work {
    int64_t tokens, rows; /* fed tokens, predicted rows */
    int64_t keys;         /* positions whose keys and values attention reads, summed over the requests */
    int64_t seen;         /* pairs of a fed token and a position that it sees */
} um_pass_work;
/* What a pass must do at least. Norms, biases, activations and written keys are small and not counted. In the last
 * layer, tokens that no row predicts from need only their keys and values. */
typedef struct um_pass_cost {
    double weight_bytes; /* weights that are read: every matrix once; of the experts only those that tokens choose */
    double kv_bytes;     /* keys and values that are read */
    double operations;   /* additions and multiplications of matrix products and attention */
    double experts;      /* different experts of a layer that the tokens choose; 0 without experts */
} um_pass_cost;
/* Computes the cost. weight_size: bytes of a stored weight; kv: type of the stored keys. The number of experts is the
 * expectation when each token chooses top_k experts at random: E (1 - (1 - top_k / E)^tokens). A model with a capacity
 * per block of tokens is counted as if it had none. */
um_pass_cost um_arch_pass_cost(const um_arch *a, const um_pass_work *p, double weight_size, um_dtype kv);

/* ---- Models without a checkpoint (released.c, random.c) ---- */
/* The configuration of a released model. */
typedef struct um_released {
    const char *name;   /* "sdar-8b" */
    const char *model;  /* the name of a release */
    const char *config; /* its config.json, without the fields that no one reads */
} um_released;
extern const um_released um_released_all[]; /* name NULL ends the list */
/* Returns the configuration with this name, or NULL. '-' and '_' are equal. */
const um_released *um_released_find(const char *name);
/* Fills in the architecture, cut after the first n_layers layers; 0 keeps all. Errors: UM_ERANGE when there are fewer.
 */
um_status um_released_arch(um_arch *out, const um_released *r, int32_t n_layers, um_err *err);
/* Opens a model of this architecture with random weights: normally distributed with deviation 0.02, and near 1 for
 * norms, near 3 for those of queries and keys. All tensors show the same 64 MiB of memory. Its tokens are the words
 * "t0", "t1", … Reads the options of um_model_open except those that name a model. *out is released with
 * um_model_close. Errors: those of um_model_open, um_released_arch. */
um_status um_model_open_random(um_model **out, const um_config *c, const um_released *r, int32_t n_layers, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
