/* unmask: runs diffusion language models.
 *
 * Two objects matter. A `um_model` is a loaded checkpoint: weights, tokenizer, chat template; it never changes after it
 * is opened and may be shared by several engines. A `um_engine` is one mutable timeline: it owns requests, the KV pages
 * and the step. Add requests, call um_engine_step until um_engine_pending is 0, and read what happens through the
 * callback of each request.
 *
 * Threads: an object belongs to one thread at a time; different objects may live on different threads. Functions whose
 * comment says "any thread" only read immutable state.
 * Errors: a function that can fail returns a um_status (0 is success, negative failed) and writes one helpful sentence
 * to `err`, which may be NULL. Ownership: what a um_*_open/new/… call returned is released by the um_*_close/free of
 * the same object; strings and arrays given to a call are copied unless the comment says otherwise; those inside an
 * event live until the callback returns.
 *
 * A complete program is examples/hello.c. */
#ifndef UNMASK_H
#define UNMASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Version of the library at run time, "major.minor.patch". Any thread. */
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

/* The symbol ("UM_EINVAL") and the text ("invalid argument") of a code. Any thread. */
UM_API const char *um_status_name(um_status s);
UM_API const char *um_status_text(um_status s);

#define UM_ERR_MAX 512
typedef struct um_err {
    um_status code;
    char msg[UM_ERR_MAX]; /* one sentence: what was expected, what was found, where, what to do */
    char param[40];       /* name of the parameter or field that is wrong ("max_tokens"); "": it is not about one */
} um_err;

/* ---- Parameters -------------------------------------------------------------------------------------------------- */

/* Decoding parameters. An engine holds defaults, a request may carry its own. `unmask list options` prints each row
 * with its range; "auto" values (NAN, 0, "auto") are resolved from the model's family. Fields are set by name through
 * um_decoding_set or directly. */
typedef struct um_decoding {
    char strategy[24];               /* "auto", "multi_bd", "full"; see `unmask list strategies` */
    int32_t block_size;              /* tokens of a block, 0 = the model's */
    int32_t buffer_size;             /* blocks in flight at once, 0 = auto; `fast_dllm_v2`: sub-blocks of a block */
    float accept_threshold;          /* 0..1, NAN = the family's; a token is taken when its probability is greater */
    float add_block_threshold;       /* share of the last block that must be filled before the next one starts */
    float semi_complete_threshold;   /* share of a block from which its successor may be forced to accept a token */
    float token_stability_threshold; /* share of a block that must be stable before the next one starts */
    int32_t confidence;              /* UM_CONFIDENCE_*: which score ranks the forced choice */
    int32_t gen_length;              /* `full`: tokens of the canvas, 0 = max_tokens */
    int32_t steps;                   /* `full`: denoising passes in all, 0 = gen_length */
    char sampler[24];                /* "auto" = the family's; see `unmask list samplers` */
    float eps;                       /* `full`: masked share that the time schedule ends at */
    float alg_temp;                  /* `full`: temperature of the choice among positions, 0 = the best ones */
    float cfg_scale;                 /* `full`: classifier-free guidance, 0 = off */
    float remask_threshold;          /* a filled token less probable than this becomes a mask again; NAN = never */
    float factor;                    /* sampler `factor` */
    float low_threshold;             /* sampler `hierarchy` */
    float credit_alpha, boost_gamma, decay_beta; /* sampler `credit` */
    float entropy_bound;                         /* sampler `entropy_bound`, nats */
    float entropy_threshold;                     /* sampler `entropy_threshold`, nats */
    int32_t denoising_steps;                     /* samplers that fix a number of positions a pass: passes of a block,
                                                    0 = one per position */
    float edit_threshold;         /* samplers that edit: a filled token is replaced above this probability */
    int32_t max_post_edit_steps;  /* they stop editing a filled block after this many passes */
    float penalty_lambda;         /* taken from the logit of the token before, within a block */
    int32_t token_merge_mode;     /* UM_MERGE_* */
    int32_t token_merge_top_k;    /* ids that are blended */
    bool token_merge_renormalize; /* a blend gets the length of its parts */
    float token_merge_weight;     /* 0 = off */
    bool dmax_fast_path;          /* only masks have a confidence, filled positions count as sure */
    float commit_confidence;      /* `dmax`: a block is done when every position is as sure as this */
    bool clean_commit;            /* `dmax`: store the keys of tokens, not of blends */
    bool block_cache;             /* `fast_dllm_v2`: passes over a sub-block reuse the keys of the others */
    bool sparse;                  /* `sparse`: false feeds everything in every pass */
    char retention[24];           /* `sparse`: which keys are kept; see `unmask list retentions` */
    float retention_ratio;        /* `sparse`: share of the keys outside the block that is kept */
    int32_t delay_step;           /* `sparse`: pass of a block in which the kept keys are chosen; -1 = auto */
    int32_t pool_kernel;          /* `sparse`: scores are max-pooled over this many neighbours, odd */
    bool head_select;             /* `sparse`: each KV head keeps keys of its own */
} um_decoding;

enum { UM_CONFIDENCE_PROBABILITY, UM_CONFIDENCE_MARGIN, UM_CONFIDENCE_ENTROPY };
enum { UM_MERGE_DMAX, UM_MERGE_ITER_SMOOTH };

/* Sampling and limits of one request. */
typedef struct um_sampling_params {
    float temperature;          /* >= 0; 0 = greedy; NAN = the checkpoint's generation_config.json, else 0 */
    float top_p, min_p;         /* 0..1; top_p 1 and min_p 0 switch them off */
    int32_t top_k;              /* 0 or -1 = off */
    int64_t seed;               /* -1 = drawn at submission and reported in the result */
    int32_t max_tokens;         /* exact upper bound of the answer, in tokens; 0 = the checkpoint's, else 512 */
    int32_t max_nfe;            /* bound on forward passes, 0 = none */
    int32_t max_repetition_run; /* stop when this many equal tokens end the answer, 0 = never */
    int32_t min_tokens;         /* no stop id before this many tokens of the answer */
    float repetition_penalty;   /* > 0; 1 = off; over prompt and answer */
    float presence_penalty;     /* -2..2, over the answer; penalties count tokens outside the blocks in flight */
    float frequency_penalty;    /* -2..2 */
    int32_t logprobs;           /* log-probabilities of the answer's tokens and of this many likeliest ids; -1 = none */
    bool ignore_eos;
} um_sampling_params;

enum { UM_COMPAT_NONE, UM_COMPAT_DIFFULEX };
enum { UM_CHECK_OFF, UM_CHECK_WARN, UM_CHECK_ERROR };

/* Everything that is fixed for an engine. um_config_init fills in the defaults of the option table. Strings are
 * borrowed until the call that reads them returns. */
typedef struct um_config {
    size_t size;                    /* sizeof(um_config); set by um_config_init */
    const char *model;              /* checkpoint folder or the name of one in the Hugging Face cache */
    char model_name[32];            /* family to use in place of the detected one, "auto" = detect */
    char device[16];                /* "cpu" or "ref" (plain C, one thread: the reference) */
    char dtype[16];                 /* "auto", "float32", "bfloat16": arithmetic of weights and products */
    char kv_cache_dtype[16];        /* "auto", "float32", "bfloat16", "float8_e4m3" (also "fp8", "fp8_e4m3") */
    int32_t mask_token_id;          /* id of the mask token, -1 = the checkpoint's */
    int32_t check_weights;          /* UM_CHECK_*: NaN and infinity among the weights */
    int32_t threads;                /* 0 = one per core */
    int32_t max_num_reqs;           /* requests that run at once */
    int32_t max_num_batched_tokens; /* tokens of one step, 0 = 4096 */
    int32_t max_model_len;          /* prompt and answer together, 0 = the model's */
    int32_t page_size;              /* tokens of a KV page, 0 = auto */
    int32_t num_pages;              /* KV pages, -1 = auto */
    float kv_memory_share;          /* 0..1 of the free memory: the most that automatic KV pages take together */
    int32_t compat;                 /* UM_COMPAT_* */
    char kv_cache_layout[16];       /* "unified", "distinct": how keys and values lie in memory */
    bool disable_prefix_caching;    /* prompts do not share the keys of equal beginnings */
    int32_t schedule_policy;        /* UM_POLICY_* */
    int32_t max_skips;              /* steps that a request may be passed over for others that fit */
    int32_t max_refresh_per_step;   /* whole-sequence refreshes in one step, 0 = any number */
    int32_t data_parallel_size;     /* engines of a um_router, 1..64 */
    int32_t route_policy;           /* UM_ROUTE_*: how a um_router chooses */
    const char *lora;               /* adapters: "name=folder,..."; NULL = none */
    bool lora_merge;                /* merge the one adapter into the weights */
    const char *chat_template;      /* a file, a template's source or the name of one; NULL: what the model brings */
    int32_t special_in_content;     /* UM_SPECIAL_* of requests that do not say it */
    um_decoding decoding;           /* defaults of requests */
    um_sampling_params sampling;
} um_config;

enum { UM_POLICY_MIXED, UM_POLICY_PREFILL_FIRST };
enum { UM_ROUTE_PREFIX, UM_ROUTE_LEAST_LOADED, UM_ROUTE_ROUND_ROBIN };

/* Fills `c` with the default of every option. Any thread. */
UM_API void um_config_init(um_config *c);

/* Sets one option by its name ("accept_threshold"), from text, with the range check of its row. Unknown names are
 * UM_EINVAL and name the nearest one. String values (model) are borrowed. */
UM_API um_status um_config_set(um_config *c, const char *name, const char *value, um_err *err);

/* ---- Model ------------------------------------------------------------------------------------------------------- */

typedef struct um_model um_model;

/* A loaded adapter (LoRA). */
typedef struct um_adapter_info {
    const char *name, *path;
    const char *base; /* the model that it was made for, as its adapter_config.json says, or NULL */
    int32_t rank;     /* "r" of adapter_config.json */
    int64_t n_params;
    bool merged; /* it is part of the weights: every request runs through it */
} um_adapter_info;

/* Facts of a checkpoint; strings live as long as the model. */
typedef struct um_model_info {
    const char *path, *family, *model_type, *architecture, *rule; /* rule: how the family was recognised */
    const char *mask_rule;                                        /* attention between positions */
    int32_t n_layers, hidden, n_heads, n_kv_heads, head_dim, n_ff, vocab, tokenizer_vocab, max_position;
    int32_t block_size, shift, mask_id, n_stop;
    const int32_t *stop; /* [n_stop] ids that end an answer */
    int32_t bos_id;      /* put before a text, or -1 */
    int64_t n_params;
    bool has_chat_template;
    const char *chat_template; /* source of that of ordinary requests, or NULL */
    const char *default_strategy;
    double load_seconds;
    const um_adapter_info *adapter; /* [n_adapters] */
    int32_t n_adapters;
} um_model_info;

/* Opens the folder of a checkpoint: configuration, tokenizer, template and weights, for the device and dtype in `c`.
 * Cost: reads every weight once. Errors: UM_ENOENT, UM_EIO, UM_EPARSE, UM_EMODEL, UM_EUNSUPPORTED, UM_ENOMEM. */
UM_API um_status um_model_open(um_model **out, const um_config *c, um_err *err);
/* The same without weights: tokenizer, template and facts, for programs that only read and write text. No engine can be
 * made of it. */
UM_API um_status um_model_open_text(um_model **out, const um_config *c, um_err *err);
UM_API void um_model_close(um_model *m); /* NULL is fine; every engine of the model must be gone */
UM_API void um_model_get_info(const um_model *m, um_model_info *out);

/* Text to ids. *ids [*n] is released with um_free. `special`: text that spells a special token becomes that token.
 * Errors: UM_EINVAL when the text is not UTF-8 (the byte is named). Any thread. */
UM_API um_status um_model_encode(const um_model *m, const char *text, size_t len, bool special, int32_t **ids,
                                 size_t *n, um_err *err);
/* Ids to text. *text is NUL-terminated and released with um_free; special tokens are left out unless `special`. */
UM_API um_status um_model_decode(const um_model *m, const int32_t *ids, size_t n, bool special, char **text,
                                 size_t *len, um_err *err);
/* The same, and end[i] [n]: the length of the text behind ids[i]. Where a character spans several tokens, its text
 * belongs to the last of them. An id of -1 is a gap: what was begun before it ends there. */
UM_API um_status um_model_decode_each(const um_model *m, const int32_t *ids, size_t n, bool special, char **text,
                                      size_t *end, um_err *err);
/* The raw bytes of a token, perhaps a part of a character; *n 0 for an id that is none. Lives as long as the model. */
UM_API const char *um_model_token_bytes(const um_model *m, int32_t id, size_t *n);

typedef struct um_message {
    const char *role;    /* "system", "developer", "user", "assistant", "tool" */
    const char *content; /* UTF-8, NUL-terminated */
} um_message;

/* What text may do that spells a special token, as "<|im_end|>" does. AUTO is TEXT for messages, PARSE for a prompt
 * that is given as text. */
enum {
    UM_SPECIAL_AUTO,
    UM_SPECIAL_PARSE,  /* it becomes the token */
    UM_SPECIAL_TEXT,   /* in messages of users and tools it stays text; the mask does so in every message */
    UM_SPECIAL_STRICT, /* as TEXT, but for all added tokens, and in system messages too */
    UM_SPECIAL_REJECT  /* what TEXT keeps text is refused: UM_EINVAL */
};

/* A conversation with everything that a chat request of the OpenAI style carries. um_chat_init sets the size, and
 * add_generation_prompt to true; all else is zero. The JSON texts are NUL-terminated; numbers in them keep their
 * digits and objects their order, because both are part of the prompt. */
typedef struct um_chat_request {
    size_t size;
    const um_message *messages; /* [n_messages], or NULL and messages_json */
    size_t n_messages;
    const char *messages_json; /* array of {role, content, name, reasoning_content, tool_calls, …}. content: a string,
                                  null, or a list of {"type": "text", "text"}; roles also "function", which is "tool" */
    const char *tools_json;    /* array of tool definitions, or NULL */
    const char *kwargs_json;   /* object of further template variables ({"enable_thinking": false}), or NULL */
    const char
        *chat_template; /* source of a template for this request alone, or the name of one of the model's; NULL */
    bool add_generation_prompt;  /* the assistant's turn is opened behind the last message */
    bool continue_final_message; /* the answer goes on with the last message, the assistant's; excludes the former */
    int32_t special_in_content;  /* UM_SPECIAL_* */
    bool add_special_tokens;     /* the ids begin with what the tokenizer puts before a text (BOS), unless the template
                                    writes it; the text is the template's alone */
} um_chat_request;
UM_API void um_chat_init(um_chat_request *c);

/* A raw prompt to ids, as the engine does it for um_request.text: special_in_content is a UM_SPECIAL_*; `around`: with
 * what the tokenizer puts before and behind a text (BOS, unless the text begins with it). *ids is released with
 * um_free. Errors: UM_EINVAL when the text is not UTF-8, or spells what the level rejects. Any thread. */
UM_API um_status um_model_encode_prompt(const um_model *m, const char *text, size_t len, int special_in_content,
                                        bool around, int32_t **ids, size_t *n, um_err *err);

/* Renders a conversation with the model's chat template, the assistant's turn opened. Released with um_free. */
UM_API um_status um_model_render(const um_model *m, const um_message *msg, size_t n, char **text, size_t *len,
                                 um_err *err);
/* The same for a whole request, and its ids, exactly those that the engine feeds. `text` and `ids` may be NULL; both
 * are released with um_free. Errors: UM_EINVAL and UM_EPARSE say what is wrong with the request, UM_ETEMPLATE names
 * template, line and message, that of raise_exception too. Any thread. */
UM_API um_status um_model_render_chat(const um_model *m, const um_chat_request *c, char **text, size_t *len,
                                      int32_t **ids, size_t *n_ids, um_err *err);

UM_API void um_free(void *p);

/* ---- Requests and events ----------------------------------------------------------------------------------------- */

/* Why an answer ended. */
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
    X(UM_FINISH_NO_PREDICTION, "no_prediction") /* the logits of a position are NaN: broken weights */                 \
    X(UM_FINISH_ABORTED, "aborted")

typedef enum um_finish {
#define UM_X(name, text) name,
    UM_FINISH_MAP(UM_X)
#undef UM_X
} um_finish;
UM_API const char *um_finish_name(um_finish f);

/* One of the likeliest ids of a position. */
typedef struct um_logprob {
    int32_t id;
    float logprob; /* natural logarithm, before temperature and filters */
} um_logprob;

/* The finished answer. */
typedef struct um_result {
    int64_t id;
    int32_t index;            /* of the answers of one request, from 0; see um_request.n */
    const int32_t *token_ids; /* [n_tokens], stop token excluded */
    const int32_t *pass;      /* [n_tokens] forward pass that wrote the token, from 1 */
    size_t n_tokens;
    const int32_t *text_end; /* [n_tokens] bytes of the text behind each token; a stop string may have cut the last */
    const float *logprob;    /* [n_tokens] of each token in the pass that wrote it; NULL unless asked for */
    const um_logprob *likeliest; /* [n_tokens, n_likeliest]; id -1: there are no more; NULL unless asked for */
    int32_t n_likeliest;
    const char *text; /* NUL-terminated UTF-8 */
    size_t text_len;
    um_finish finish;
    const char *stop;      /* the stop string that ended the answer, or NULL */
    int32_t stop_id;       /* the stop id that did, or -1 */
    int32_t cached_tokens; /* of the prompt, found in the prefix cache */
    int32_t preemptions;
    int32_t nfe, prompt_tokens;             /* prompt: and suffix */
    int32_t denoise_tokens, denoise_passes; /* answer tokens written by, and number of, passes other than prefill */
    int64_t seed;
    double queue_seconds, first_token_seconds, total_seconds; /* since submission */
    double decode_seconds;                                    /* of the steps in which it was denoised */
} um_result;

/* State of one position in a snapshot. */
enum { UM_TOKEN_MASK, UM_TOKEN_FRESH, UM_TOKEN_SET, UM_TOKEN_SETTLED };

/* A block in flight. */
typedef struct um_block_view {
    int32_t start, length; /* in the answer; start < 0: it begins in the prompt */
    int32_t masks;
    const char *status; /* "ACTIVE", "TO_CACHE" … */
} um_block_view;

/* The answer as it stands after a pass: settled prefix, then the blocks in flight. */
typedef struct um_snapshot {
    size_t n;
    const int32_t *id;          /* [n]; meaningless where state is UM_TOKEN_MASK */
    const uint8_t *state;       /* [n] UM_TOKEN_*: FRESH was written in this pass, SETTLED can no longer change */
    const int32_t *pass;        /* [n] forward pass that wrote the token, from 1; -1 for a mask */
    const float *confidence;    /* [n] probability of the token in that pass; NAN for a mask */
    const um_block_view *block; /* [n_blocks] in flight */
    int32_t n_blocks;
    int32_t nfe;
} um_snapshot;

/* One pass in the form of the golden recordings (blocks of the buffer, their tokens, status and masks left). */
typedef struct um_trace {
    bool prefill;
    int32_t n_new, n_blocks, n_tokens;
    const int32_t *block;      /* [n_blocks] block ids */
    const int32_t *token;      /* [n_tokens] */
    const char *const *status; /* [n_blocks] "DUMMY", "ACTIVE", "TO_CACHE", "IN_CACHE" */
    const int32_t *masks;      /* [n_blocks] */
} um_trace;

enum { UM_EVENT_TEXT = 1, UM_EVENT_SNAPSHOT = 2, UM_EVENT_TRACE = 4, UM_EVENT_FINISH = 8 };

typedef struct um_event {
    int type;
    int64_t id;
    int32_t index;    /* of the answer, see um_request.n */
    const char *text; /* TEXT: settled text that is new, never half a character, never past a stop */
    size_t text_len;
    /* TEXT: [n_ids] the tokens that this text completes; those of all events together are the result's. A token that
     * gives no text comes with the next one that does, or with the last event, whose text may be empty. */
    const int32_t *ids;
    size_t n_ids;
    /* TEXT: what the result has of these tokens, and final like them; they live until the callback returns. */
    const int32_t *text_end;     /* [n_ids] counted from the beginning of the answer's text */
    const float *logprob;        /* [n_ids], or NULL */
    const um_logprob *likeliest; /* [n_ids, n_likeliest], or NULL */
    int32_t n_likeliest;
    int32_t offset;        /* TEXT: of ids[0] in the answer */
    int32_t nfe;           /* TEXT: passes so far */
    double decode_seconds; /* TEXT, SNAPSHOT: steps in which the answer was denoised, so far */
    int32_t decode_tokens; /* fixed in them */
    const um_snapshot *snapshot;
    const um_trace *trace;
    const um_result *result; /* FINISH */
} um_event;

/* Called from um_engine_step on the engine's thread. May add and abort requests; must not step or close the engine. */
typedef void (*um_event_fn)(void *arg, const um_event *ev);

/* An addition to the logit of an id; -INFINITY bans it. */
typedef struct um_bias {
    int32_t id;
    float value;
} um_bias;

#define UM_ANSWERS_MAX 128 /* of one request */

/* What to write. Exactly one of text, ids, messages, chat is given. um_request_init copies the engine's defaults. */
typedef struct um_request {
    size_t size;
    const char *text;
    size_t text_len;
    const int32_t *ids;
    size_t n_ids;
    const um_message *messages;
    size_t n_messages;
    const um_chat_request *chat;
    int32_t special_in_content; /* UM_SPECIAL_* of text and messages; a chat has its own */
    const char *const *stop;    /* [n_stop] strings that end the answer and are not part of it */
    size_t n_stop;
    const int32_t *stop_ids; /* [n_stop_ids] ids that end the answer, beside the model's */
    size_t n_stop_ids;
    const um_bias *bias; /* [n_bias] added to logits */
    size_t n_bias;
    int32_t n;           /* answers, 1..UM_ANSWERS_MAX; answer i runs with seed + i, all have the same id */
    const char *adapter; /* name of a loaded adapter; NULL: the plain model */
    uint64_t cache_salt; /* only requests with the same salt share keys of equal beginnings */
    /* [n_suffix] tokens that follow the answer: strategies over whole sequences fill the gap between, max_tokens
     * positions (or gen_length), to its end. An end-of-sequence token inside it ends nothing; those at its end, and
     * padding, are not part of the answer. */
    const int32_t *suffix;
    size_t n_suffix;
    int32_t priority;  /* the lower, the sooner it is admitted; equal ones in the order of arrival */
    bool keep_special; /* special tokens are part of the text */
    um_decoding decoding;
    um_sampling_params sampling;
    unsigned events; /* UM_EVENT_* wanted; FINISH always comes */
    um_event_fn on_event;
    void *arg;
} um_request;

/* ---- Engine ------------------------------------------------------------------------------------------------------ */

typedef struct um_engine um_engine;

/* Creates an engine on an open model; every buffer that a step needs is allocated here. The model outlives the engine.
 * Errors: UM_ERANGE or UM_EINVAL for parameters that do not fit the model, UM_ENOMEM with the bytes asked for. */
UM_API um_status um_engine_new(um_engine **out, um_model *m, const um_config *c, um_err *err);
UM_API void um_engine_free(um_engine *e); /* NULL is fine; requests that run end without an event */

UM_API void um_request_init(const um_engine *e, um_request *r);
/* Sets a decoding or sampling parameter of a request by its option name. */
UM_API um_status um_request_set(um_request *r, const char *name, const char *value, um_err *err);

/* Queues a request; *id (may be NULL) receives its number, from 1. Everything in `r` is copied. A request that could
 * never run is refused here with the arithmetic: UM_EINVAL, UM_ERANGE, UM_ELIMIT. */
UM_API um_status um_engine_add(um_engine *e, const um_request *r, int64_t *id, um_err *err);

/* One engine iteration: schedules, runs one batched forward pass, applies it, calls callbacks. Cost: one pass over the
 * weights. Does nothing when nothing waits. An error here is the device's; requests fail one by one in their events. */
UM_API um_status um_engine_step(um_engine *e, um_err *err);
UM_API size_t um_engine_pending(const um_engine *e); /* requests that wait or run */

/* Ends a request between steps; its FINISH event comes with UM_FINISH_ABORTED before this returns. UM_ENOENT if there
 * is no such request. */
UM_API um_status um_engine_abort(um_engine *e, int64_t id, um_err *err);

/* Adds one request, steps until it ends. *text (NUL-terminated, um_free) receives the answer. Other requests of the
 * engine go on meanwhile. */
UM_API um_status um_generate(um_engine *e, const um_request *r, char **text, um_err *err);

typedef struct um_stats {
    int64_t steps, passes, tokens, requests; /* since creation */
    int64_t forward_tokens;                  /* tokens fed */
    double step_seconds, forward_seconds;
    double prefill_seconds; /* of steps in which some request stored its prompt */
    double decode_seconds;  /* of steps in which some request was past that; a mixed one is in both */
    size_t weight_bytes, kv_bytes, workspace_bytes;
    int32_t pages_total, pages_used;
    int32_t pages_used_most; /* so far */
    int32_t requests_running, requests_waiting;
    int64_t preemptions, aborted;
    int64_t prefix_queries, prefix_hits; /* prompt tokens, and those that another request had stored */
    int64_t prefill_tokens;              /* fed to store prompts */
    int64_t decode_tokens;               /* accepted in passes other than prefill */
    int64_t decode_passes;
    double schedule_seconds, apply_seconds; /* of step_seconds */
} um_stats;
UM_API void um_engine_get_stats(const um_engine *e, um_stats *out);

/* What an engine works with, automatic choices made; strings live as long as the engine. */
typedef struct um_engine_info {
    int32_t max_model_len, max_num_reqs, max_num_batched_tokens, page_size, num_pages;
    int32_t block_size; /* of requests that do not say it; 0: the strategy's */
    const char *device, *dtype, *strategy;
    const char *sampler; /* of requests that do not say it; "none": the strategy has none */
} um_engine_info;
UM_API void um_engine_get_info(const um_engine *e, um_engine_info *out);

/* An answer that is being generated, or waits. */
typedef struct um_slot {
    int64_t id;
    int32_t index;
    bool running;
    int32_t prompt_tokens, cached_tokens, max_tokens;
    int32_t answer_tokens; /* settled */
    int32_t blocks, masks; /* blocks in flight, and their masks; 0 while it waits */
    int32_t nfe, preemptions;
    double seconds; /* since submission */
    const char *strategy;
} um_slot;
/* Fills in at most `most` slots, running ones first; returns how many there are. */
UM_API size_t um_engine_slots(const um_engine *e, um_slot *out, size_t most);
/* Forgets the stored beginnings of prompts. UM_EINVAL while requests run or wait. */
UM_API um_status um_engine_flush_cache(um_engine *e, um_err *err);

/* ---- Router ------------------------------------------------------------------------------------------------------ */

/* Several equal engines on one model behind the doors of one. A request goes to one of them, by config.route_policy,
 * and stays there; its answer is the same whichever it is. The router belongs to one thread, its engines too: a step
 * steps them in turn. */
typedef struct um_router um_router;

/* Creates config.data_parallel_size engines; each has the places and KV pages that `c` says, an automatic number of
 * pages is shared among them. The model outlives the router. Errors as of um_engine_new. */
UM_API um_status um_router_new(um_router **out, um_model *m, const um_config *c, um_err *err);
UM_API void um_router_free(um_router *r); /* NULL is fine; requests that run end without an event */
UM_API int32_t um_router_size(const um_router *r);
/* Engine i in [0, size), the router's own: for um_request_init (any of them) and um_engine_get_stats. Else NULL. */
UM_API um_engine *um_router_engine(const um_router *r, int32_t i);

/* As the functions of an engine. Request numbers count from 1 over all engines; callbacks may add and abort. */
UM_API um_status um_router_add(um_router *r, const um_request *q, int64_t *id, um_err *err);
UM_API um_status um_router_step(um_router *r, um_err *err); /* one step of every engine that has requests */
UM_API size_t um_router_pending(const um_router *r);
UM_API um_status um_router_abort(um_router *r, int64_t id, um_err *err);
/* Sums over the engines, but weight_bytes, which they share. */
UM_API void um_router_get_stats(const um_router *r, um_stats *out);
UM_API size_t um_router_slots(const um_router *r, um_slot *out, size_t most);
UM_API um_status um_router_flush_cache(um_router *r, um_err *err);
/* Records what every step does, and how long its parts take, from now on: a trace in the file `path`, for Perfetto
 * (https://ui.perfetto.dev) or chrome://tracing, and beside it, when it ends, a table of sums: "trace.json" and
 * "trace.csv". docs/profiling.md explains the names. A profile that runs goes on; one that does not run is not stopped:
 * both are no error. An engine that is freed stops its own. UM_EIO when a file can't be written. */
UM_API um_status um_engine_profile_start(um_engine *e, const char *path, um_err *err);
UM_API um_status um_engine_profile_stop(um_engine *e, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
