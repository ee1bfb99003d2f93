/* unmask: a library that runs diffusion language models.
 *
 * There are two main objects. A um_model is a loaded checkpoint: weights, tokenizer and chat template. It never changes
 * after it has been opened, and several engines may share it. A um_engine runs requests on a model: it owns the queue
 * of requests and the pages of the KV cache. A um_router is a group of engines that is used like one engine.
 *
 * Usage: open a model, create an engine, add requests, and call um_engine_step until um_engine_pending returns 0. The
 * engine reports text and results through the callback of each request. examples/hello.c is a complete program.
 *
 * Words: A request is a prompt with its parameters. It produces one or more answers (um_request.n). A position of an
 * answer holds a mask or a token. A pass is one run of the model for an answer; it turns some masks into tokens. A
 * block is a run of consecutive positions that are denoised together. The blocks in flight are those that are being
 * denoised now. A token or a text is settled when no later pass can change it. A step is one iteration of the engine;
 * it runs one pass for many answers at once.
 *
 * Threads: An object may be used by one thread at a time. Different objects may be used on different threads at the
 * same time, several engines of one model among them. A function whose comment says "Any thread" changes nothing but
 * its results, so several threads may call it at the same time, also for the same model.
 *
 * Errors: A function that can fail returns a um_status. UM_OK (0) is success, a negative value is an error. The
 * function then also describes the error in `err`, which may be NULL. UM_ENOMEM is returned when a large buffer can't
 * be allocated. When a small allocation fails, the process is aborted.
 *
 * Ownership: The caller releases what a um_*_open or um_*_new function created with the um_*_close or um_*_free
 * function of the same object, and releases the strings and arrays that a function returned with um_free. Functions
 * copy the strings and arrays that are passed to them, unless their comment says otherwise. Pointers inside an event
 * are valid until the callback returns. */
#ifndef UNMASK_H
#define UNMASK_H

/* A program that reads the declarations itself, such as Python's cffi, preprocesses this file without the headers of
 * the C library: `cc -E -P -DUM_BARE_DECLARATIONS unmask.h`. */
#ifndef UM_BARE_DECLARATIONS
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

#if defined(UM_BUILD) && defined(__GNUC__)
#define UM_API __attribute__((visibility("default")))
#else
#define UM_API
#endif

#define UM_VERSION_MAJOR 0
#define UM_VERSION_MINOR 1
#define UM_VERSION_PATCH 0

/* Returns the version of the library that is linked at run time, "major.minor.patch". Any thread. */
UM_API const char *um_version(void);

/* ---- Status codes ------------------------------------------------------------------------------------------------ */

#define UM_STATUS_MAP(X)                                                                                               \
    X(UM_OK, 0, "success")                                                                                             \
    X(UM_EINVAL, -1, "invalid argument")                                                                               \
    X(UM_ENOENT, -2, "not found")                                                                                      \
    X(UM_EIO, -3, "input or output failed")                                                                            \
    X(UM_EPARSE, -4, "malformed input")                                                                                \
    X(UM_ENOMEM, -5, "not enough memory")                                                                              \
    X(UM_EUNSUPPORTED, -6, "not supported")                                                                            \
    X(UM_EMODEL, -7, "the model folder contradicts itself")                                                            \
    X(UM_ERANGE, -8, "value out of range")                                                                             \
    X(UM_ELIMIT, -9, "a limit was exceeded")                                                                           \
    X(UM_ETEMPLATE, -10, "chat template failed")                                                                       \
    X(UM_EDEVICE, -11, "device failed")                                                                                \
    X(UM_ECANCELED, -12, "canceled")

typedef enum um_status {
#define UM_X(name, value, text) name = value,
    UM_STATUS_MAP(UM_X)
#undef UM_X
} um_status;

/* Returns the symbol of a code ("UM_EINVAL"). Any thread. */
UM_API const char *um_status_name(um_status s);
/* Returns the text of a code ("invalid argument"). Any thread. */
UM_API const char *um_status_text(um_status s);

#define UM_ERR_MAX 512
/* A description of an error. */
typedef struct um_err {
    um_status code;
    char msg[UM_ERR_MAX]; /* one sentence: what was expected, what was found, where, and what to do */
    char param[40];       /* name of the wrong parameter or field ("max_tokens"); "" when the error concerns none */
} um_err;

/* ---- Parameters -------------------------------------------------------------------------------------------------- */

#define UM_SAMPLER_PARAMS_MAX 32 /* parameters of all registered samplers (um_register_sampler) */

/* Decoding parameters. An engine holds the defaults, and each request may carry its own values. `unmask list options`
 * prints the range of each parameter. The "auto" value of a field (NAN, 0, -1 or "auto") stands for the value that
 * suits the model's family. A program sets fields by name with um_config_set and um_request_set, or stores them
 * directly.
 *
 * A name in quotation marks before a colon is the strategy or the sampler that reads the field. "whole sequence" stands
 * for the strategies that denoise a canvas: all positions of the answer at once ("full", "prefix_cache", "dual_cache",
 * "sparse"). */
typedef struct um_decoding {
    char strategy[24];         /* "auto", "multi_bd", "full" ...; see `unmask list strategies` */
    int32_t block_size;        /* tokens of a block; 0 = the model's */
    int32_t buffer_size;       /* largest number of blocks in flight; 0 = auto. "fast_dllm_v2": sub-blocks of a block */
    float accept_threshold;    /* 0..1; a token is accepted when its probability is greater; NAN = the family's value */
    float add_block_threshold; /* share of the last block that must be filled before the next one starts */
    float semi_complete_threshold; /* share of a block that must be filled before its successor may be forced to accept
                                      a token */
    float token_stability_threshold; /* share of the last block's tokens that the model must predict again, unchanged,
                                        before the next block starts */
    int32_t confidence;              /* UM_CONFIDENCE_*: the score that ranks the positions */
    int32_t gen_length;              /* whole sequence: tokens of the canvas; 0 = max_tokens */
    int32_t steps;                   /* whole sequence: denoising passes for the whole canvas; 0 = gen_length */
    char sampler[24];                /* "auto" = the family's; see `unmask list samplers` */
    float eps;                       /* samplers with a time schedule: share of masks at the end of the schedule */
    float alg_temp;  /* scheduled samplers: temperature of the choice of positions; 0 = the positions with the best
                        scores */
    float cfg_scale; /* whole sequence: scale of classifier-free guidance; 0 = off */
    float remask_threshold; /* a token becomes a mask again when a later pass gives it less probability than
                               this; NAN = off */
    float factor;           /* sampler "factor" */
    float low_threshold;    /* sampler "hierarchy" */
    float credit_alpha, boost_gamma, decay_beta; /* sampler "credit" */
    float entropy_bound;                         /* sampler "entropy_bound"; nats */
    float entropy_threshold;     /* samplers "entropy_threshold", "entropy_distance"; nats; NAN = the sampler's value */
    float position_penalty;      /* sampler "entropy_distance"; nats for each position behind the first mask */
    int32_t denoising_steps;     /* samplers that fill a fixed number of positions in each pass: passes
                                    of a block; 0 = one position a pass */
    float edit_threshold;        /* samplers that edit: a token is replaced when another one's probability is greater */
    int32_t max_post_edit_steps; /* samplers that edit: passes after which the editing of a filled block ends */
    int32_t max_steps_per_block; /* "levenshtein": passes after which a block ends */
    float penalty_lambda;        /* samplers that edit: subtracted from the logit of the token to the left, inside a
                                    block; 0 = off */
    int32_t token_merge_mode;    /* "dmax": UM_MERGE_*, the embedding that is fed for a new token */
    int32_t token_merge_top_k;   /* "dmax": number of likeliest ids that UM_MERGE_ITER_SMOOTH adds */
    bool token_merge_renormalize; /* "dmax": the blend of embeddings is scaled to the length of its parts */
    float token_merge_weight;     /* "dmax": weight of the ids that are added; 0 = plain tokens are fed */
    bool dmax_fast_path;          /* "dmax": a filled position counts as certain; only masks have a confidence */
    float commit_confidence;      /* "dmax": a block is finished when each position has at least this confidence */
    bool clean_commit;   /* "dmax": the stored keys of a finished block are those of its tokens, not of blends */
    bool block_cache;    /* "fast_dllm_v2": passes over a sub-block reuse the keys of the other sub-blocks */
    bool causal_context; /* "seeded_bd": stored keys are those of causal attention, and they predict the first token of
                            each block */
    float draft_threshold;       /* "self_speculation": a drafted token is verified when its probability is greater */
    bool sparse;                 /* "sparse": false = every pass feeds all positions */
    char retention[24];          /* "sparse": the rule that chooses the keys to keep; see `unmask list retentions` */
    float retention_ratio;       /* "sparse": share of the keys outside the block that is kept; above 0, at most 1 */
    int32_t delay_step;          /* "sparse": passes of a block before the one that chooses the keys; -1 = auto */
    int32_t pool_kernel;         /* "sparse": scores are max-pooled over this many neighbours; odd */
    bool head_select;            /* "sparse": each KV head chooses its own keys */
    int32_t canvas_steps;        /* "renoising": largest number of passes over a canvas; 0 = the checkpoint's */
    float canvas_entropy_bound;  /* "renoising": nats; NAN = the checkpoint's */
    float t_min, t_max;          /* "renoising": range of the temperature; NAN = the checkpoint's; t_max 0 = off */
    int32_t stability_threshold; /* "renoising": equal passes before a canvas may end early; -1 = never; -2 = the
                                    checkpoint's */
    float confidence_threshold;  /* "renoising": mean entropy below which a canvas may end early; NAN = the
                                    checkpoint's */
    float registered[UM_SAMPLER_PARAMS_MAX]; /* parameters of registered samplers; set them by name */
} um_decoding;

enum { UM_CONFIDENCE_PROBABILITY, UM_CONFIDENCE_MARGIN, UM_CONFIDENCE_ENTROPY };
/* DMAX feeds a blend of the token and the mask. ITER_SMOOTH feeds the token plus its likeliest alternatives. */
enum { UM_MERGE_DMAX, UM_MERGE_ITER_SMOOTH };

/* EACH: the likeliest token of each position that the constraint allows alone. BEST: the tokens of a block that are the
 * most probable ones together. */
enum { UM_FILLING_EACH, UM_FILLING_BEST };

/* Sampling parameters and limits of one request. */
typedef struct um_sampling_params {
    float temperature;  /* 0..2; 0 = greedy; NAN = the value of generation_config.json, else 0 */
    float top_p, min_p; /* 0..1; top_p 1 = off, min_p 0 = off */
    int32_t top_k;      /* 0 or -1 = off */
    int64_t seed;       /* seed of the random numbers; -1 = um_engine_add draws one, and um_result.seed reports it */
    int32_t max_tokens; /* largest length of the answer, in tokens; 0 = the checkpoint's, else 512 */
    int32_t max_nfe;    /* largest number of passes of an answer; 0 = no limit */
    int32_t max_repetition_run; /* the answer ends after this many equal tokens in a row; 0 = never */
    int32_t min_tokens;         /* no stop id or stop string ends the answer before it has this many tokens */
    float repetition_penalty;   /* above 0; 1 = off; counts the tokens of the prompt and of the answer */
    /* -2..2; 0 = off. They count the tokens of the answer. All three penalties leave out the blocks in flight. */
    float presence_penalty;
    float frequency_penalty;
    int32_t logprobs;   /* 0..64: report the log-probability of each token and of this many likeliest ids; -1 = off */
    bool ignore_eos;    /* the model's stop ids do not end the answer */
    int32_t json_space; /* 0..16: JSON of a constraint may have up to this many spaces or line breaks between its
                           tokens; 0 = it has no white space there */
    int32_t grammar_depth; /* 1..64: nesting of objects and arrays where the schema of a constraint leaves it open */
    int32_t filling;       /* UM_FILLING_*: what a pass decides about under a constraint; BEST needs temperature 0 */
} um_sampling_params;

enum { UM_COMPAT_NONE, UM_COMPAT_DIFFULEX, UM_COMPAT_CHECKPOINT };
/* AUTO and SAFETENSORS read the files of the checkpoint. DUMMY reads none: weights are random numbers in the shapes of
 * config.json. `model` may then be the name of a released shape ("sdar-1.7b"), whose tokens are the words "t0", "t1",
 * … */
enum { UM_LOAD_AUTO, UM_LOAD_SAFETENSORS, UM_LOAD_DUMMY };
enum { UM_CHECK_OFF, UM_CHECK_WARN, UM_CHECK_ERROR };
/* AUTO pins threads when they use all CPUs of the process and there are at least eight. */
enum { UM_PIN_AUTO, UM_PIN_ON, UM_PIN_OFF };

/* How far um_model_open is. */
typedef struct um_load_progress {
    const char *path; /* of the checkpoint; valid until the callback returns */
    size_t bytes;     /* weights that have been loaded, in the size that the checkpoint stores them in */
    size_t bytes_all; /* all weights: once for each device that gets a copy */
    double fraction;  /* bytes / bytes_all, 0..1; it never falls */
} um_load_progress;
/* A callback for the progress of um_model_open. It is called on the thread that called um_model_open: when all checks
 * have passed and the first weight is about to be loaded (fraction 0), then after each tensor, and at the end (fraction
 * 1). There can be many thousand calls, so the callback should be fast. It returns true to go on. With false,
 * um_model_open stops, releases the memory and returns UM_ECANCELED. The callback must not call functions that take the
 * model. */
typedef bool (*um_load_fn)(void *arg, const um_load_progress *p);

/* The configuration of a model and its engines. um_config_init stores the defaults. The strings that `model`, `lora`
 * and `chat_template` point to are not copied: they must stay valid until the function that takes the configuration
 * returns. */
typedef struct um_config {
    size_t size;                    /* sizeof(um_config); set by um_config_init */
    const char *model;              /* folder of a checkpoint, name of a bundled one, or "org/name" of one in the local
                                       Hugging Face cache */
    char model_name[32];            /* family to use in place of the detected one; "auto" = detect it */
    char device[512];               /* "cpu"; "cuda" (NVIDIA GPUs), "cuda:1" or "cuda:0,cuda:1"; "ref" (plain C) */
    char device_ids[256];           /* numbers of the GPUs of the engines, "0,1"; "auto" = those that `device` names */
    char dtype[16];                 /* type of weights and products: "auto", "float32", "bfloat16" */
    char quantization[16];          /* how weights are kept: "none" (in dtype), "q8", "q4" (8- or 4-bit integers
                                       with scales), "fp8" (8-bit floats with scales; device cuda), "auto" (as the
                                       checkpoint stores them) */
    char kv_cache_dtype[16];        /* "auto", "float32", "bfloat16", "float8_e4m3" (also "fp8", "fp8_e4m3") */
    int32_t mask_token_id;          /* id of the mask token; -1 = the checkpoint's */
    int32_t load_format;            /* UM_LOAD_*: where the weights come from */
    int32_t check_weights;          /* UM_CHECK_*: what happens when weights are NaN or infinite */
    int32_t threads;                /* threads of an engine; 0 = the usable CPUs divided by data_parallel_size */
    int32_t pin;                    /* UM_PIN_*: whether each thread stays on a CPU of its own */
    int32_t max_num_reqs;           /* largest number of answers that run at once */
    int32_t max_num_batched_tokens; /* largest number of tokens that a step feeds; 0 = auto: 4096, on a GPU up to
                                       16384, where each of max_num_reqs answers may feed two blocks */
    int32_t max_model_len;          /* largest number of tokens of prompt and answer together; 0 = the model's */
    int32_t page_size;              /* tokens of a KV page; 0 = auto */
    int32_t num_pages;              /* KV pages of an engine; -1 = auto */
    float kv_memory_share;          /* 0..1: share of the free memory that an automatic number of pages may take */
    float gpu_memory_utilization;   /* 0..1: share of a GPU's memory that weights, activations and pages may take */
    bool enforce_eager;             /* a GPU runs every pass without a CUDA graph */
    char cuda_graph_sizes[320];     /* numbers of requests for which a GPU records graphs at the start, "1,2,8"; "none";
                                       "auto" = 1, 2, 4 ... max_num_reqs */
    bool deterministic;             /* an answer does not depend on other requests; always true on the CPU */
    int32_t compat;                 /* UM_COMPAT_* */
    char kv_cache_layout[16];       /* "unified": keys and values in one pool of memory; "distinct": in one pool each */
    bool disable_prefix_caching;    /* no request reuses the keys that another one stored for the same beginning of a
                                       prompt */
    int32_t schedule_policy;        /* UM_POLICY_* */
    int32_t max_skips;  /* number of times in a row that a later request that fits may overtake a waiting one */
    int32_t admission;  /* UM_ADMIT_*: the order in which waiting requests of one priority are admitted */
    int32_t max_guests; /* answers that run beyond max_num_reqs, in turns, so that a tenant or a request of which
                           nothing runs needs no free place; -1 = max_num_reqs, at most 64 */
    int32_t max_refresh_per_step; /* passes over a whole sequence in one step; 0 = no limit */
    /* Tokens of prompts that are stored in a step in which other answers denoise (UM_POLICY_MIXED); longer prompts are
     * stored in chunks over several steps. 0 = as many as max_num_batched_tokens leaves. */
    int32_t chunked_prefill_size;
    int32_t data_parallel_size;        /* engines of a um_router, 1..64 */
    int32_t tensor_parallel_size;      /* devices that compute one engine's passes together, 1..16 */
    bool enable_expert_parallel;       /* each of them has some experts as a whole, not a part of each expert */
    float distributed_timeout_seconds; /* how long these devices wait for each other before the engine fails */
    int32_t nnodes;                    /* processes that compute the ranks of tensor_parallel_size, one each; 1: this
                                          process computes all; 0 = as many as the launcher's environment says */
    int32_t rank;                      /* of this process among them; -1 = the environment's, else 0 */
    char master_addr[256];             /* where rank 0 listens for the others; "auto" = the environment's */
    int32_t master_port;               /* 0 = the environment's, else 2333 */
    int32_t route_policy;              /* UM_ROUTE_*: how a um_router chooses the engine of a request */
    const char *lora;                  /* adapters, "name=folder,..."; NULL = none */
    bool lora_merge;   /* add the adapter to the weights, so that every request uses it; needs exactly one adapter */
    int32_t max_loras; /* adapters that um_model_load_adapter can add to those of `lora`; devices cpu and ref only */
    int32_t max_lora_rank;       /* their largest rank, 1..256 */
    const char *chat_template;   /* a file, the source of a template, or the name of one; NULL = the model's */
    int32_t special_in_content;  /* UM_SPECIAL_*: default of requests */
    um_decoding decoding;        /* default of requests */
    um_sampling_params sampling; /* default of requests */
    um_load_fn on_load;          /* receives the progress of um_model_open; NULL = none */
    void *on_load_arg;           /* passed to on_load */
} um_config;

/* MIXED runs prompts and answers in the same steps. PREFILL_FIRST runs prompts in separate steps. */
enum { UM_POLICY_MIXED, UM_POLICY_PREFILL_FIRST };
/* FAIR: tenants take turns, then the requests of each; ARRIVAL: in the order of arrival. */
enum { UM_ADMIT_FAIR, UM_ADMIT_ARRIVAL };
/* PREFIX prefers the engine that has stored the longest part of the prompt. LEAST_LOADED takes the shortest queue. */
enum { UM_ROUTE_PREFIX, UM_ROUTE_LEAST_LOADED, UM_ROUTE_ROUND_ROBIN };

/* Stores the default of every option in `c`. Any thread. */
UM_API void um_config_init(um_config *c);

/* Sets one option by its name ("accept_threshold") from text and checks its range. A string option (model) stores the
 * pointer `value`, not a copy. Errors: UM_EINVAL for an unknown name, with the nearest known one, and for text that is
 * not a value of the option; UM_ERANGE for a number outside the range. Any thread. */
UM_API um_status um_config_set(um_config *c, const char *name, const char *value, um_err *err);

/* ---- Model ------------------------------------------------------------------------------------------------------- */

typedef struct um_model um_model;

/* A loaded adapter (LoRA). */
typedef struct um_adapter_info {
    const char *name, *path;
    const char *base; /* base model of the adapter, from adapter_config.json; NULL = not stated */
    int32_t rank;     /* "r" of adapter_config.json */
    int64_t n_params;
    bool merged; /* the adapter has been added to the weights, so every request uses it */
} um_adapter_info;

/* Properties of a checkpoint. The strings and arrays live as long as the model. */
typedef struct um_model_info {
    const char *path, *family;
    const char *model_type, *architecture; /* the fields of config.json */
    const char *rule;                      /* how the family was recognised, for example "architectures[0]" */
    const char *mask_rule;                 /* attention between positions: "full", "causal" or "block-causal" */
    int32_t n_layers, hidden, n_heads, n_kv_heads, head_dim, n_ff, vocab, tokenizer_vocab, max_position;
    int32_t block_size; /* block length of the training; 0 = the family has none */
    int32_t shift;      /* 1: the hidden row of position i - 1 predicts position i; 0: each row predicts its own */
    int32_t mask_id, n_stop;
    const int32_t *stop; /* [n_stop] ids that end an answer */
    int32_t bos_id;      /* id that begins a text; -1 = none */
    int64_t n_params;
    bool has_chat_template;
    const char *chat_template; /* source of the template that ordinary requests use, or NULL */
    const char *default_strategy;
    double load_seconds;
    const um_adapter_info *adapter; /* [n_adapters] */
    int32_t n_adapters;
    const char *const *example; /* [n_examples] prompts that show the model, from `examples` in the front matter of its
                                   README.md; one line of UTF-8 without control characters each */
    int32_t n_examples;
} um_model_info;

/* Opens the checkpoint that `c` names: configuration, tokenizer, chat template and weights. The weights are converted
 * for the device and the dtype of `c`. *out is released with um_model_close. Cost: reads every weight once. Errors:
 * UM_EINVAL, UM_ERANGE (an option has a wrong value), UM_ENOENT, UM_EIO, UM_EPARSE, UM_EMODEL, UM_EUNSUPPORTED,
 * UM_ETEMPLATE, UM_ELIMIT, UM_ENOMEM, UM_EDEVICE, UM_ECANCELED (c->on_load returned false). */
UM_API um_status um_model_open(um_model **out, const um_config *c, um_err *err);
/* Opens a checkpoint as um_model_open does, without its weights, for programs that need only the tokenizer, the chat
 * template and the properties. The folder need not contain weights. um_engine_new refuses such a model. */
UM_API um_status um_model_open_text(um_model **out, const um_config *c, um_err *err);
/* Loads an adapter, a folder in PEFT's format, into one of the places of c->max_loras. From then on requests can name
 * it. No engine of the model may be in a step, and one thread at a time may call this function, the next one, and
 * functions of the model's engines. Errors: UM_EINVAL (the name is taken), UM_ELIMIT (no place is empty, or the rank is
 * above c->max_lora_rank), UM_EUNSUPPORTED, UM_ENOENT, UM_EIO, UM_EPARSE, UM_EMODEL, UM_ENOMEM. */
UM_API um_status um_model_load_adapter(um_model *m, const char *name, const char *dir, um_err *err);
/* Unloads an adapter, so that no request can name it any more. Requests that use it run to their end; then its memory
 * is freed and its place is empty. UM_ENOENT: there is no adapter with this name, or the model has no places. */
UM_API um_status um_model_unload_adapter(um_model *m, const char *name, um_err *err);
/* Frees the model. All engines of the model must have been freed before. NULL is allowed. */
UM_API void um_model_close(um_model *m);
/* Fills in the properties of the checkpoint. Any thread. */
UM_API void um_model_get_info(const um_model *m, um_model_info *out);

/* Converts text to ids, without adding ids before or after it (BOS). *ids [*n] is released with um_free. `special`:
 * text that spells a special token becomes that token; else it stays ordinary text. Errors: UM_EINVAL when the text is
 * not UTF-8 (the message names the byte); UM_ELIMIT when a pattern of the tokenizer takes too long. Any thread. */
UM_API um_status um_model_encode(const um_model *m, const char *text, size_t len, bool special, int32_t **ids,
                                 size_t *n, um_err *err);
/* Converts ids [n] to text. *text is NUL-terminated and released with um_free; *len (may be NULL) is its length in
 * bytes. Special tokens are left out unless `special` is set. Errors: UM_ERANGE for an id outside the vocabulary. Any
 * thread. */
UM_API um_status um_model_decode(const um_model *m, const int32_t *ids, size_t n, bool special, char **text,
                                 size_t *len, um_err *err);
/* Converts ids [n] to text like um_model_decode and stores in end[i], for each i in [0, n), the length in bytes of the
 * text up to and including ids[i]. The text of a character that spans several tokens belongs to the last of them. An id
 * of -1 is a gap: a character that began before the gap ends there. The caller provides `end`. Any thread. */
UM_API um_status um_model_decode_each(const um_model *m, const int32_t *ids, size_t n, bool special, char **text,
                                      size_t *end, um_err *err);
/* Returns the raw bytes of a token; they may be a part of a UTF-8 character. *n is their number, 0 when the id is not a
 * token. The bytes live as long as the model. Any thread. */
UM_API const char *um_model_token_bytes(const um_model *m, int32_t id, size_t *n);

/* A message of a conversation. */
typedef struct um_message {
    const char *role;    /* "system", "developer", "user", "assistant", "tool" */
    const char *content; /* UTF-8, NUL-terminated */
} um_message;

/* How text that spells a special token, such as "<|im_end|>", is handled. In messages that come neither from users nor
 * from tools, TEXT and REJECT concern the mask token only. */
enum {
    UM_SPECIAL_AUTO,   /* TEXT for messages, PARSE for a prompt that is given as text */
    UM_SPECIAL_PARSE,  /* the text becomes the token */
    UM_SPECIAL_TEXT,   /* the text stays ordinary text */
    UM_SPECIAL_STRICT, /* like TEXT, but for all added tokens, not only special ones, and in system messages too */
    UM_SPECIAL_REJECT  /* the request is refused with UM_EINVAL where TEXT would keep the text */
};

/* A conversation with all that a chat request in the style of OpenAI carries. um_chat_init sets `size`, sets
 * add_generation_prompt to true, and clears the rest. The JSON texts are NUL-terminated. Numbers in them keep their
 * digits and objects keep the order of their members, because both are part of the prompt. */
typedef struct um_chat_request {
    size_t size;
    const um_message *messages; /* [n_messages]; NULL when messages_json is given */
    size_t n_messages;
    /* Array of {role, content, name, reasoning_content, tool_calls, ...}, or NULL when messages is given. content is a
     * string, null, or a list of {"type": "text", "text": ...}. The role "function" means "tool". */
    const char *messages_json;
    const char *tools_json;  /* array of tool definitions, or NULL */
    const char *kwargs_json; /* object of further template variables ({"enable_thinking": false}), or NULL */
    /* Template for this request: the source of one, or the name of one of the model's. NULL = the default. */
    const char *chat_template;
    bool add_generation_prompt; /* open the assistant's turn after the last message */
    /* The answer continues the last message, which must be the assistant's. Excludes add_generation_prompt. */
    bool continue_final_message;
    int32_t special_in_content; /* UM_SPECIAL_* */
    /* Put the ids that the tokenizer adds before a text (BOS) in front of the prompt, unless the template has written
     * them. The rendered text never contains them. */
    bool add_special_tokens;
} um_chat_request;
/* Stores the defaults in `c`. Any thread. */
UM_API void um_chat_init(um_chat_request *c);

/* Converts a raw prompt to the ids that the engine makes of um_request.text. special_in_content is a UM_SPECIAL_*.
 * `around`: add the ids that the tokenizer puts before and after a text; a BOS is not added to a text that begins with
 * it. *ids [*n] is released with um_free. Errors: those of um_model_encode; UM_EINVAL when the text spells a token that
 * UM_SPECIAL_REJECT refuses; UM_ERANGE for an unknown level. Any thread. */
UM_API um_status um_model_encode_prompt(const um_model *m, const char *text, size_t len, int special_in_content,
                                        bool around, int32_t **ids, size_t *n, um_err *err);

/* Renders the messages msg [n] with the model's chat template and opens the assistant's turn. *text is NUL-terminated
 * and released with um_free; *len (may be NULL) is its length in bytes. Errors: those of um_model_render_chat. Any
 * thread. */
UM_API um_status um_model_render(const um_model *m, const um_message *msg, size_t n, char **text, size_t *len,
                                 um_err *err);
/* Renders a chat request to its text and to the ids that the engine feeds for it. `text` or `ids` may be NULL; what
 * they receive is released with um_free. Errors: UM_EINVAL, UM_EPARSE and UM_ERANGE for a mistake in the request;
 * UM_ETEMPLATE when the model has no template, or when the template fails or calls raise_exception (the message names
 * the template and the line). Any thread. */
UM_API um_status um_model_render_chat(const um_model *m, const um_chat_request *c, char **text, size_t *len,
                                      int32_t **ids, size_t *n_ids, um_err *err);

/* Frees memory that a function of this library returned. NULL is allowed. Any thread. */
UM_API void um_free(void *p);

/* ---- Requests and events ----------------------------------------------------------------------------------------- */

/* Why an answer ended. NONE: it has not ended. STEPS: a whole-sequence strategy has filled its canvas, or the gap
 * before a suffix is filled. NO_PREDICTION: the logits of a position are NaN, because the weights are broken.
 * CONSTRAINT: the constraint needs more states than there is memory for; the answer is incomplete. SAMPLER: a
 * registered sampler has failed; the answer is incomplete. */
#define UM_FINISH_MAP(X)                                                                                               \
    X(UM_FINISH_NONE, "none")                                                                                          \
    X(UM_FINISH_EOS, "eos_token_generated")                                                                            \
    X(UM_FINISH_STOP, "stop_string_matched")                                                                           \
    X(UM_FINISH_STOP_ID, "stop_token_matched")                                                                         \
    X(UM_FINISH_MAX_TOKENS, "max_new_tokens_reached")                                                                  \
    X(UM_FINISH_MAX_LEN, "max_model_len_reached")                                                                      \
    X(UM_FINISH_MAX_NFE, "max_nfe_reached")                                                                            \
    X(UM_FINISH_REPETITION, "max_repetition_run_reached")                                                              \
    X(UM_FINISH_STEPS, "completed")                                                                                    \
    X(UM_FINISH_NO_PREDICTION, "no_prediction")                                                                        \
    X(UM_FINISH_ABORTED, "aborted")                                                                                    \
    X(UM_FINISH_CONSTRAINT, "constraint_too_large")                                                                    \
    X(UM_FINISH_SAMPLER, "sampler_failed")

typedef enum um_finish {
#define UM_X(name, text) name,
    UM_FINISH_MAP(UM_X)
#undef UM_X
} um_finish;
/* Returns the text of a reason ("eos_token_generated"). Any thread. */
UM_API const char *um_finish_name(um_finish f);

/* An id and its log-probability at a position. */
typedef struct um_logprob {
    int32_t id;
    float logprob; /* natural logarithm, before temperature and filters */
} um_logprob;

/* A finished answer. */
typedef struct um_result {
    int64_t id;               /* number of the request */
    int32_t index;            /* number of the answer, from 0; see um_request.n */
    const int32_t *token_ids; /* [n_tokens] without the stop token */
    const int32_t *pass;      /* [n_tokens] number of the pass that wrote the token, from 1 */
    size_t n_tokens;
    /* [n_tokens] length in bytes of the text up to and including each token. The last value is greater than text_len
     * when a stop string cuts off a part of the last token's text. */
    const int32_t *text_end;
    const float *logprob; /* [n_tokens] logarithm of the probability of each token in the pass that wrote it; NULL when
                             logprobs is off */
    /* [n_tokens, n_likeliest] likeliest ids in that pass; id -1: unused entry; NULL when logprobs is off */
    const um_logprob *likeliest;
    int32_t n_likeliest;
    const char *text; /* UTF-8, NUL-terminated */
    size_t text_len;  /* bytes */
    um_finish finish;
    const char *stop;      /* stop string that ended the answer, or NULL */
    int32_t stop_id;       /* stop id that ended the answer, or -1 */
    int32_t cached_tokens; /* tokens of the prompt whose keys were found in the prefix cache */
    int32_t preemptions;   /* times that the answer lost its KV pages */
    int32_t nfe;           /* passes */
    int32_t prompt_tokens; /* tokens of prompt and suffix */
    /* Tokens of the answer that were written by passes other than prefill, and the number of these passes. */
    int32_t denoise_tokens, denoise_passes;
    int64_t seed;
    /* Seconds from um_engine_add to the first step that runs the answer, to its first text, and to its end. An answer
     * that ended earlier has the time of its end in their place. */
    double queue_seconds, first_token_seconds, total_seconds;
    double decode_seconds; /* duration of the steps that denoised the answer */
} um_result;

/* State of a position in a snapshot. MASK: it holds no token. FRESH: its token was written in this pass and may already
 * be settled. SET: its token was written earlier and may still change. SETTLED: its token was written earlier and can't
 * change any more. */
enum { UM_TOKEN_MASK, UM_TOKEN_FRESH, UM_TOKEN_SET, UM_TOKEN_SETTLED };

/* A block in flight. */
typedef struct um_block_view {
    int32_t start, length; /* positions of the answer; start < 0: the block begins in the prompt */
    int32_t masks;
    const char *status; /* "ACTIVE", "TO_CACHE" ... */
} um_block_view;

/* The answer after a pass: the settled tokens, then the blocks in flight. */
typedef struct um_snapshot {
    size_t n;                   /* positions */
    const int32_t *id;          /* [n] tokens; meaningless where the state is UM_TOKEN_MASK */
    const uint8_t *state;       /* [n] UM_TOKEN_* */
    const int32_t *pass;        /* [n] number of the pass that wrote the token, from 1; -1 for a mask */
    const float *confidence;    /* [n] probability of the token in that pass; NAN for a mask */
    const um_block_view *block; /* [n_blocks] blocks in flight */
    int32_t n_blocks;
    int32_t nfe; /* passes so far */
} um_snapshot;

/* The state of the block buffer after a pass, in the format of the recorded runs of a reference system. */
typedef struct um_trace {
    bool prefill;               /* the pass stored the prompt */
    int32_t n_new;              /* tokens that the pass wrote */
    int32_t n_blocks, n_tokens; /* lengths of the arrays below */
    const int32_t *block;       /* [n_blocks] numbers of the blocks */
    const int32_t *token;       /* [n_tokens] tokens of all blocks */
    const char *const *status;  /* [n_blocks] "DUMMY", "ACTIVE", "TO_CACHE", "IN_CACHE" */
    const int32_t *masks;       /* [n_blocks] remaining masks of each block */
} um_trace;

/* Types of events, as bits of um_request.events. */
enum { UM_EVENT_TEXT = 1, UM_EVENT_SNAPSHOT = 2, UM_EVENT_TRACE = 4, UM_EVENT_FINISH = 8 };

/* What a callback receives. Fields that do not belong to the event's type are 0 or NULL. */
typedef struct um_event {
    int type;      /* UM_EVENT_* */
    int64_t id;    /* number of the request */
    int32_t index; /* number of the answer, see um_request.n */

    /* TEXT: newly settled text. It ends between characters and never contains a part of a stop string. It is not
     * NUL-terminated. */
    const char *text;
    size_t text_len; /* bytes */
    /* TEXT: [n_ids] the tokens whose text this event completes. All TEXT events together have the tokens of the result.
     * A token without text comes with the next token that has text, or with the last event, whose text may be empty. */
    const int32_t *ids;
    size_t n_ids;
    /* TEXT: the values of these tokens as in um_result. They are final. */
    const int32_t *text_end;     /* [n_ids] in bytes from the beginning of the answer's text */
    const float *logprob;        /* [n_ids] or NULL */
    const um_logprob *likeliest; /* [n_ids, n_likeliest] or NULL */
    int32_t n_likeliest;
    int32_t offset; /* TEXT: position of ids[0] in the answer */
    int32_t nfe;    /* TEXT: passes so far */

    double decode_seconds;       /* TEXT, SNAPSHOT: duration of the steps that denoised the answer so far */
    int32_t decode_tokens;       /* TEXT, SNAPSHOT: tokens that these steps wrote */
    const um_snapshot *snapshot; /* SNAPSHOT */
    const um_trace *trace;       /* TRACE */
    const um_result *result;     /* FINISH */
} um_event;

/* A callback for events. um_engine_step, um_engine_abort, um_generate and the router's functions call it on the thread
 * that called them. It may add and abort requests, its own included. It must not step or free the engine. */
typedef void (*um_event_fn)(void *arg, const um_event *ev);

/* A value that is added to the logit of an id. -INFINITY bans the id. */
typedef struct um_bias {
    int32_t id;
    float value;
} um_bias;

enum { UM_ANSWERS_MAX = 128 }; /* answers of one request */

/* A constraint: the answer is one of the texts that it allows, in whatever order its tokens are written. The text of
 * such an answer is complete: it ends with UM_FINISH_EOS where no longer text is possible or wanted, and max_tokens
 * never cuts it off. A request with max_tokens below the length of the shortest text is refused. */
enum {
    UM_CONSTRAINT_NONE,
    UM_CONSTRAINT_JSON,    /* a JSON object; without a text */
    UM_CONSTRAINT_SCHEMA,  /* a JSON value that the JSON schema describes */
    UM_CONSTRAINT_REGEX,   /* a text that the regular expression matches from its beginning to its end */
    UM_CONSTRAINT_GRAMMAR, /* a text of the grammar, in GBNF, the notation of llama.cpp; its rule `root` is the whole */
    UM_CONSTRAINT_CHOICE   /* one of the strings of the JSON array */
};

/* A request. Exactly one of text, ids, messages and chat is given. um_request_init stores the engine's defaults. */
typedef struct um_request {
    size_t size;      /* sizeof(um_request); set by um_request_init */
    const char *text; /* raw prompt, UTF-8 */
    size_t text_len;  /* bytes */
    const int32_t *ids;
    size_t n_ids;
    const um_message *messages;
    size_t n_messages;
    const um_chat_request *chat;
    int32_t special_in_content; /* UM_SPECIAL_* for text and messages; a chat has its own */
    const char *const *stop;    /* [n_stop] strings that end the answer; the answer does not contain them */
    size_t n_stop;
    const int32_t *stop_ids; /* [n_stop_ids] ids that end the answer, in addition to the model's */
    size_t n_stop_ids;
    const um_bias *bias; /* [n_bias] */
    size_t n_bias;
    int32_t n;           /* number of answers, 1..UM_ANSWERS_MAX; answer i uses seed + i; all have the request's id */
    const char *adapter; /* name of a loaded adapter; NULL = none */
    uint64_t cache_salt; /* only requests with the same salt share keys in the prefix cache */
    /* [n_suffix] tokens that follow the answer. Only whole-sequence strategies support them: they fill the gap of
     * max_tokens positions (or gen_length) between prompt and suffix to its end. An end-of-sequence token inside the
     * gap does not end the answer. Such tokens and padding at the end of the gap are not part of the answer. */
    const int32_t *suffix;
    size_t n_suffix;
    const int32_t *allowed_ids; /* [n_allowed_ids] the answer has only these ids, no others; none given: all */
    size_t n_allowed_ids;
    const char *const *bad_words; /* [n_bad_words] texts whose tokens never stand side by side in the answer */
    size_t n_bad_words;
    int32_t priority;  /* requests with lower values are admitted first */
    uint64_t tenant;   /* who the request is for: tenants take turns (um_config.admission); 0: nobody in particular */
    bool keep_special; /* the text contains special tokens */
    um_decoding decoding;
    um_sampling_params sampling;
    unsigned events;             /* UM_EVENT_* that on_event receives; FINISH is always sent */
    um_event_fn on_event;        /* may be NULL */
    void *arg;                   /* passed to on_event */
    int32_t constraint;          /* UM_CONSTRAINT_*: which texts the answer may be */
    const char *constraint_text; /* schema, regular expression, grammar or choices; NULL for NONE and JSON */
    /* With a constraint: markers of a section in front of the constrained text ("<think>", "</think>"). The section is
     * free, and up to four white spaces follow it. reasoning_end NULL: the answer has no such section. reasoning_begin
     * NULL: the prompt ends inside the section, so the answer begins there; else the section may be missing. A marker
     * may be a special token; the text of the answer then has it with keep_special only. */
    const char *reasoning_begin, *reasoning_end;
} um_request;

/* ---- Registered samplers ----------------------------------------------------------------------------------------- */

/* A sampler decides which predictions of a pass become tokens. A program can register its own before it makes an engine
 * or sets options. From then on the sampler and its parameters have names like the built-in ones. docs/extending.md
 * lists the rules that a sampler must keep, and `unmask check-plugin` tests them. */

#define UM_SAMPLER_VERSION 1

/* A parameter of a sampler. Its name must not be that of an option. Values are numbers in [min, max]. */
typedef struct um_sampler_param {
    const char *name, *help; /* help: one sentence without a full stop */
    float min, max, usual;   /* usual: the default */
} um_sampler_param;

/* What a sampler reads in addition to ids and probabilities. */
enum {
    UM_READ_MARGIN = 1, /* um_sampler_batch.margin */
    UM_READ_ENTROPY = 2 /* um_sampler_batch.entropy */
};

/* All blocks that use a sampler in one step. The masks of a block are its candidates. Those of all blocks stand one
 * after the other in the arrays [n]. Probabilities are those after temperature and filters. */
typedef struct um_sampler_batch {
    size_t size;              /* sizeof(um_sampler_batch) */
    int32_t n_blocks, n;      /* blocks; candidates of all blocks */
    const int32_t *first;     /* [n_blocks + 1] the candidates of block b are [first[b], first[b + 1]) */
    const int32_t *block;     /* [n] block of the candidate */
    const int32_t *position;  /* [n] in prompt and answer, ascending within a block */
    const int32_t *id;        /* [n] the token that the candidate may get: the likeliest, or a sampled one */
    const float *probability; /* [n] of id */
    const float *margin;      /* [n] probability of the likeliest token minus that of the second; NULL: not read */
    const float *entropy;     /* [n] in nats; NULL: not read */
    const um_logprob *top;    /* [n, n_top] likeliest tokens before temperature and filters; id -1: unused entry */
    int32_t n_top;
    const int32_t *length;  /* [n_blocks] positions of the block */
    const int32_t *pass;    /* [n_blocks] number of the block's pass, from 1 */
    const bool *forced;     /* [n_blocks] the block must get a token: if the sampler accepts none, it gets the most
                               probable one */
    const int64_t *request; /* [n_blocks] number of the request */
    const int32_t *answer;  /* [n_blocks] number of its answer */
    const int64_t *seed;    /* [n_blocks] seed of the answer */
    const float *param;     /* [n_blocks, n_params] parameters of the request */
    int32_t n_params;
    void *const *memory; /* [n_blocks] memory of the block, zeroed when the block starts; NULL: the sampler has none */
    bool *accept;        /* [n] the sampler sets it for the candidates that get their token; false at first */
    bool *failed;        /* [n_blocks] the sampler sets it to end the answer with UM_FINISH_SAMPLER; false at first */
} um_sampler_batch;

/* A sampler. `accept` is called once in each step, on the thread that steps the engine, for all blocks that use the
 * sampler. The engines of a router call it in turn. */
typedef struct um_sampler_def {
    int32_t version;                /* UM_SAMPLER_VERSION */
    const char *name;               /* letters, digits and '_'; not the name of another sampler */
    const char *summary;            /* one sentence without a full stop */
    const char *source;             /* where the rule comes from; may be NULL */
    const um_sampler_param *params; /* [n_params] */
    int32_t n_params;
    uint32_t reads; /* UM_READ_* */
    int32_t n_top;  /* likeliest tokens of each candidate, 0..64 */
    size_t memory;  /* bytes of memory of a block, at most 1 MiB */
    void (*accept)(void *arg, const um_sampler_batch *batch);
    void *arg; /* passed to accept */
} um_sampler_def;

/* Registers a sampler for the whole process. The definition is copied. The object that `arg` points to must live as
 * long as the process. No other thread may use the library during the call. An engine that was made earlier refuses
 * requests with the sampler. Errors: UM_EINVAL for a bad or taken name, or a bad range; UM_ELIMIT when all samplers
 * together have more than UM_SAMPLER_PARAMS_MAX parameters; UM_EUNSUPPORTED for another version. */
UM_API um_status um_register_sampler(const um_sampler_def *def, um_err *err);
/* Loads a shared library and registers its samplers: the array `const um_sampler_def *const um_plugin_samplers[]`,
 * which ends with NULL. The library stays loaded. Errors: those of um_register_sampler; UM_ENOENT when the file can't
 * be loaded; UM_EINVAL when it has no such array. */
UM_API um_status um_load_plugin(const char *path, um_err *err);

/* Tests a sampler on made-up blocks: it decides the same each time, whatever other blocks are in the batch and wherever
 * they stand; it changes nothing but accept, failed and memory; it fails on no block. Need not be registered. Errors:
 * UM_EINVAL with the rule that it breaks, and those of um_register_sampler. */
UM_API um_status um_check_sampler(const um_sampler_def *def, um_err *err);

/* ---- Scores ------------------------------------------------------------------------------------------------------ */

/* How the log-likelihood of a given answer is computed. docs/scoring.md explains the methods.
 *
 * MONTE_CARLO estimates it, as the evaluations of LLaDA do: a pass masks l of the L tokens of the answer, chosen at
 * random, and adds L / l times the log-probabilities of the masked tokens; l takes the values from 1 to L equally
 * often. Models with blocks do so in each block, after the true tokens of the blocks before it. A block with so few
 * tokens that it has no more than `samples` sets of masks is computed exactly, from all of them.
 *
 * LEFT_TO_RIGHT and CONFIDENCE are exact: they fill one token in each pass with the true one, and add its
 * log-probability before that. LEFT_TO_RIGHT fills the first mask, CONFIDENCE that of the most probable prediction. */
enum { UM_SCORING_MONTE_CARLO, UM_SCORING_LEFT_TO_RIGHT, UM_SCORING_CONFIDENCE };

/* Parameters of a score. um_score_init stores the defaults. */
typedef struct um_score_params {
    int32_t method;    /* UM_SCORING_* */
    int32_t samples;   /* MONTE_CARLO: passes over the answer, or over each block */
    int32_t batch;     /* MONTE_CARLO: samples over which the numbers of masks are spread evenly. Divides `samples`. The
                          standard error is computed from the batches. 0 = auto: at least eight batches if possible */
    bool check_greedy; /* MONTE_CARLO: find out whether greedy decoding would write the answer */
    int64_t seed;      /* of the masks of MONTE_CARLO */
    int32_t block_size; /* tokens of a block of a block-causal model; 0 = the model's */
    float cfg_scale;    /* models without blocks: scale of classifier-free guidance; 0 = off */
} um_score_params;

/* A finished score. */
typedef struct um_score_result {
    int64_t id; /* number of the request */
    /* UM_FINISH_STEPS: the score is complete. UM_FINISH_ABORTED, UM_FINISH_NO_PREDICTION: there is none, and logprob is
     * NAN. */
    um_finish finish;
    double logprob;           /* natural logarithm of the answer's likelihood */
    double standard_error;    /* of logprob; 0 when it is exact; NAN when it is unknown, because there is one batch */
    const int32_t *token_ids; /* [n_tokens] the answer */
    const double *token_logprob; /* [n_tokens] what each token contributes; the sum is logprob */
    size_t n_tokens;
    int32_t is_greedy; /* whether decoding with one token in each pass, each the most probable one in the order of the
                          method, would write the answer: 1 yes, 0 no, -1 unknown. For MONTE_CARLO the order is that of
                          CONFIDENCE, and it is known with check_greedy, or when no block has two tokens */
    int32_t passes;    /* runs of the model over the answer or over a block of it */
    int32_t prompt_tokens, cached_tokens, preemptions; /* as in um_result */
    int64_t seed;
    double queue_seconds, total_seconds; /* as in um_result */
} um_score_result;

/* A callback for a finished score. The rules for um_event_fn hold for it, too. The arrays are valid until it returns.
 */
typedef void (*um_score_fn)(void *arg, const um_score_result *r);

/* A prompt and an answer to score. Exactly one of text, ids, messages and chat is given, and either answer or
 * answer_ids. The fields of the prompt are those of um_request. */
typedef struct um_score_request {
    size_t size; /* sizeof(um_score_request); set by um_score_init */
    const char *text;
    size_t text_len;
    const int32_t *ids;
    size_t n_ids;
    const um_message *messages;
    size_t n_messages;
    const um_chat_request *chat;
    const char *answer; /* UTF-8; encoded without ids before or after it */
    size_t answer_len;  /* bytes */
    const int32_t *answer_ids;
    size_t n_answer_ids;
    int32_t special_in_content; /* UM_SPECIAL_* for text, messages and answer */
    const char *adapter;
    uint64_t cache_salt;
    int32_t priority;
    uint64_t tenant;
    um_score_params params;
    um_score_fn on_score; /* may be NULL */
    void *arg;            /* passed to on_score */
} um_score_request;

/* ---- Engine ------------------------------------------------------------------------------------------------------ */

typedef struct um_engine um_engine;

/* Creates an engine for an open model and allocates every buffer that its steps need. The model must outlive the
 * engine. *out is released with um_engine_free. max_num_batched_tokens may not be greater than it was in um_model_open.
 * Errors: UM_EINVAL, UM_ERANGE, UM_ELIMIT and UM_EUNSUPPORTED for values that are wrong or that do not fit the model;
 * UM_ENOMEM with the number of bytes. */
UM_API um_status um_engine_new(um_engine **out, um_model *m, const um_config *c, um_err *err);
/* Frees the engine. Its requests end without an event. NULL is allowed. Must not be called from a callback. */
UM_API void um_engine_free(um_engine *e);

/* Stores the engine's defaults in `r`. */
UM_API void um_request_init(const um_engine *e, um_request *r);
/* Sets a decoding or sampling parameter of a request by its option name. Errors: those of um_config_set. Any thread. */
UM_API um_status um_request_set(um_request *r, const char *name, const char *value, um_err *err);

/* Queues a request. Everything in `r` is copied. *id (may be NULL) receives the number of the request; numbers count
 * from 1. A request that can never run is refused here, and the message has the numbers that do not fit. Errors:
 * UM_EINVAL, UM_EPARSE, UM_ERANGE, UM_ELIMIT, UM_EUNSUPPORTED, UM_ETEMPLATE; UM_EDEVICE after the device has failed. */
UM_API um_status um_engine_add(um_engine *e, const um_request *r, int64_t *id, um_err *err);

/* Stores the defaults in `s`: those of `unmask score`, and block_size, cfg_scale, special_in_content and, if it is set,
 * seed of the engine. */
UM_API void um_score_init(const um_engine *e, um_score_request *s);
/* Sets a parameter of a score by its name ("samples"). Errors: those of um_config_set. Any thread. */
UM_API um_status um_score_set(um_score_request *s, const char *name, const char *value, um_err *err);
/* Queues a score. It waits and runs like a request, together with all others, so a list of scores is computed fastest
 * when all of it is queued. um_engine_abort aborts it. The result never depends on what else runs. Everything in `s` is
 * copied. *id (may be NULL) receives the number of the request. Errors: those of um_engine_add; UM_EUNSUPPORTED for
 * families with causal attention, which predict a token from the ones before it alone or from random tokens. */
UM_API um_status um_engine_score(um_engine *e, const um_score_request *s, int64_t *id, um_err *err);

/* Runs one iteration of the engine: schedules requests, runs one batched forward pass, applies its results, and calls
 * callbacks. Does nothing when no request is pending. Cost: one pass over the weights.
 * Errors: UM_EINVAL when a callback of the engine calls this function; the engine continues to work. UM_EDEVICE when
 * the device fails. The engine has then failed permanently. Before this function returns, each answer gets its FINISH
 * event with UM_FINISH_ABORTED and the text of its TEXT events, and its memory is released. After that, um_engine_step
 * and um_engine_add return the same error; the other functions still work. To continue, open the model again and create
 * a new engine. */
UM_API um_status um_engine_step(um_engine *e, um_err *err);
/* Returns the number of answers that wait or run. */
UM_API size_t um_engine_pending(const um_engine *e);

/* Aborts all answers of a request. Each gets a FINISH event with UM_FINISH_ABORTED and no further event. The events are
 * sent before this function returns, with one exception: when a callback calls it during a step, running answers get
 * theirs before that step returns, and are pending until then. Errors: UM_ENOENT when the request has no unfinished
 * answer. */
UM_API um_status um_engine_abort(um_engine *e, int64_t id, um_err *err);

/* Adds one request and steps the engine until it ends. *text is the answer, NUL-terminated; it is released with
 * um_free. Other requests of the engine run at the same time. Errors: those of um_engine_add and um_engine_step, and
 * UM_EINVAL when r->n is not 1; *text is not written then. */
UM_API um_status um_generate(um_engine *e, const um_request *r, char **text, um_err *err);

/* Statistics of an engine. Counts and times are totals since its creation. */
typedef struct um_stats {
    int64_t steps;          /* steps that ran a pass */
    int64_t passes;         /* passes of all answers */
    int64_t tokens;         /* tokens of finished answers */
    int64_t requests;       /* finished answers, aborted ones included */
    int64_t forward_tokens; /* tokens that were fed to the model */
    double step_seconds, forward_seconds;
    /* Duration of the steps in which a prompt was stored, and of those in which an answer was denoised. A step that did
     * both counts in both. */
    double prefill_seconds;
    double decode_seconds;
    size_t weight_bytes, kv_bytes, workspace_bytes;
    int32_t pages_total, pages_used;            /* KV pages */
    int32_t pages_used_most;                    /* largest pages_used so far */
    int32_t requests_running, requests_waiting; /* unfinished answers */
    int32_t graphs;                             /* recorded CUDA graphs */
    int64_t preemptions, aborted;               /* preemptions of answers; aborted answers */
    int64_t prefix_queries, prefix_hits;        /* prompt tokens looked up in the prefix cache, and those found there */
    int64_t prefill_tokens;                     /* tokens that were fed to store prompts */
    int64_t decode_tokens;                      /* tokens that passes other than prefill wrote */
    int64_t decode_passes;                      /* passes other than prefill */
    double schedule_seconds, apply_seconds;     /* parts of step_seconds */
    int64_t graph_replays;                      /* passes that replayed a CUDA graph */
} um_stats;
/* Copies the statistics of the engine. */
UM_API void um_engine_get_stats(const um_engine *e, um_stats *out);

/* The times of one rank of an engine (tensor_parallel_size), since the engine was created. */
typedef struct um_rank_times {
    double pass_seconds;     /* its passes */
    double exchange_seconds; /* of these, the exchange of results with other ranks; a rank that waits for a slow one has
                                more of it. 0 on GPUs, which exchange results inside of kernels */
} um_rank_times;
/* Stores the times of the engine's first ranks in out [max]. Returns the number of ranks; 0 when one device computes
 * the passes alone. Those of ranks in other processes (nnodes) are as old as their last results. */
UM_API int32_t um_engine_get_ranks(const um_engine *e, um_rank_times *out, int32_t max);

/* The values that an engine uses, with the automatic ones resolved. The strings live as long as the engine. */
typedef struct um_engine_info {
    int32_t max_model_len, max_num_reqs, max_num_batched_tokens, page_size, num_pages;
    int32_t block_size; /* default of requests; 0 = the strategy's */
    const char *device, *dtype, *quantization, *strategy;
    const char *sampler;                    /* default of requests; "none" when the strategy uses no sampler */
    char device_name[64];                   /* name of the processor or GPU, such as "NVIDIA H200" */
    size_t device_bytes, device_free_bytes; /* memory of a device with memory of its own, and what is free of it now */
} um_engine_info;
/* Fills in the values of the engine. Cost: asks the driver of a GPU, so it is not for every step. */
UM_API void um_engine_get_info(const um_engine *e, um_engine_info *out);

/* An unfinished answer. */
typedef struct um_slot {
    int64_t id;                           /* number of the request */
    int32_t index;                        /* number of the answer */
    bool running;                         /* false: the answer waits */
    int32_t prompt_tokens, cached_tokens; /* as in um_result */
    int32_t max_tokens;                   /* largest length of the answer */
    int32_t answer_tokens;                /* settled tokens */
    int32_t blocks, masks;                /* blocks in flight and their masks; 0 for an answer that waits */
    int32_t nfe, preemptions;
    double seconds; /* seconds since um_engine_add */
    const char *strategy;
} um_slot;
/* Fills in at most `most` slots, running answers first. Returns the number of unfinished answers. */
UM_API size_t um_engine_slots(const um_engine *e, um_slot *out, size_t most);
/* Empties the prefix cache. Errors: UM_EINVAL while requests wait or run. */
UM_API um_status um_engine_flush_cache(um_engine *e, um_err *err);

/* ---- Router ------------------------------------------------------------------------------------------------------ */

/* A group of engines with the same configuration on one model, each on its device (um_config.device), used like a
 * single engine. config.route_policy chooses the engine of a request, and the request stays there. Its answer does not
 * depend on the choice. The router and its engines belong to one thread. Inside um_router_step the engines compute in
 * parallel on threads of the router. The callbacks run on the thread that called um_router_step, in the order of the
 * engines. */
typedef struct um_router um_router;

/* Creates config.data_parallel_size engines. Each has max_num_reqs slots and num_pages KV pages; an automatic number of
 * pages is divided among them. The model must outlive the router. It must have been opened with the same configuration,
 * because um_model_open divides an automatic number of threads among the engines. *out is released with um_router_free.
 * Errors: those of um_engine_new. */
UM_API um_status um_router_new(um_router **out, um_model *m, const um_config *c, um_err *err);
/* Frees the router and its engines. Their requests end without an event. NULL is allowed. */
UM_API void um_router_free(um_router *r);
/* Returns the number of engines. */
UM_API int32_t um_router_size(const um_router *r);
/* Returns engine i, or NULL when i is outside [0, size). The router owns it. Use it for um_request_init (any engine is
 * fine) and for um_engine_get_stats. */
UM_API um_engine *um_router_engine(const um_router *r, int32_t i);

/* Queues a request as um_engine_add does, in the engine that the route policy chooses. The numbers of requests count
 * from 1 over all engines. Errors: those of um_engine_add. */
UM_API um_status um_router_add(um_router *r, const um_request *q, int64_t *id, um_err *err);
/* Queues a score as um_engine_score does, in the engine that the route policy chooses. Errors: those of
 * um_engine_score. */
UM_API um_status um_router_score(um_router *r, const um_score_request *s, int64_t *id, um_err *err);
/* Runs one step of each engine that has requests. When the device fails in one engine, all engines of the router have
 * failed and all their requests end, as described for um_engine_step. Errors: those of um_engine_step. */
UM_API um_status um_router_step(um_router *r, um_err *err);
/* Returns the number of answers that wait or run in all engines. */
UM_API size_t um_router_pending(const um_router *r);
/* Aborts all answers of a request as um_engine_abort does. Errors: UM_ENOENT when the request has no unfinished
 * answer. */
UM_API um_status um_router_abort(um_router *r, int64_t id, um_err *err);
/* Adds up the statistics of all engines. weight_bytes is counted once for each device, because engines on a device
 * share the weights. The seconds are those of the joint steps. */
UM_API void um_router_get_stats(const um_router *r, um_stats *out);
/* Fills in at most `most` slots of all engines, running answers first. Returns the number of unfinished answers. */
UM_API size_t um_router_slots(const um_router *r, um_slot *out, size_t most);
/* Empties the prefix caches of all engines. Errors: UM_EINVAL while requests wait or run. */
UM_API um_status um_router_flush_cache(um_router *r, um_err *err);

/* ---- Profile ----------------------------------------------------------------------------------------------------- */

/* Starts to record what each step does and how long its parts take. The trace is written to the file `path`, which
 * Perfetto (https://ui.perfetto.dev) and chrome://tracing can open. When the profile stops, a table of totals is
 * written beside it: "trace.csv" for "trace.json". docs/profiling.md explains the names. When a profile already runs,
 * it goes on and UM_OK is returned. Errors: UM_EIO when the file can't be written. */
UM_API um_status um_engine_profile_start(um_engine *e, const char *path, um_err *err);
/* Stops the profile and writes the rest of its files. Returns UM_OK when no profile runs. um_engine_free stops a
 * running profile too. Errors: UM_EIO when a file can't be written. */
UM_API um_status um_engine_profile_stop(um_engine *e, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
