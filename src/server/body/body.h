/* body: the parsed body of a request, the same for every API. Each API has a table of fields. A row says whether its
 * field is used, is accepted with a neutral value only, or is ignored, and why. A field that is in no table is an
 * error. Decoding and sampling parameters are found in the option tables and need no row here.
 *
 * A body's data are in its arena or in its JSON value. One thread uses a body at a time. Large bodies are parsed on
 * reader threads, so these functions read only the setup, which never changes, and the capacity passed to them. */
#ifndef UM_BODY_H
#define UM_BODY_H

#include "server/body/held.h"
#include "server/body/setup.h"
#include "server/link/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

struct json_t;
typedef struct um_body um_body;

/* The limits and the default strategy of the workers' engines. All workers run the same configuration. */
typedef struct um_capacity {
    int32_t max_len;       /* limit of the tokens of prompt and answer together */
    int64_t tokens;        /* number of tokens that fit into the pages; INT64_MAX before a worker is ready */
    int64_t answer_tokens; /* limit of all answers of a request together, of its API key; 0: none */
    int32_t key;           /* id of this key (um_key.id); 0: none */
    const char *owner;     /* its name for stored things, see um_key_owner; NULL: nothing may be read */
    int32_t max_queue;     /* limit of the generations that wait or run; 0: none */
    /* The following fields are 0 and "" before a worker is ready. */
    int32_t pages, page_size, max_reqs, tokens_per_step; /* limits of one engine */
    char strategy[24];                                   /* strategy of requests that name none */
} um_capacity;

/* A row of a field table. A row with none of take, option and neutral is an ignored field: every value is accepted and
 * has no effect. */
typedef struct um_field {
    const char *name; /* if is_member: the path of a member, "stream_options.include_obfuscation" */
    /* Reads the value. It is not called for null, which means "not given". */
    um_status (*take)(um_body *b, const struct json_t *v, um_err *err);
    const char *types;   /* JSON types that `take` accepts, separated by '|': "string|array"; others get 400 */
    const char *option;  /* name of the option that the field sets */
    const char *neutral; /* the JSON values that are accepted, separated by '|' ("1|null"); others get 400 */
    const char *why;     /* reason why other values are refused or the field is ignored; for errors and listings */
    bool is_member;      /* an ignored member of another field, whose `take` accepts it; only for listings */
} um_field;
typedef struct um_field_set {
    const um_field *rows;
    size_t n;
} um_field_set;
/* Returns the row of a field in the first set that has it, or NULL. NULL ends the sets. */
const um_field *um_field_find(const um_field_set *const *sets, const char *name);
/* Fields of more than one API (fields.c). The generation fields also exist in request files: n, stop, stop_token_ids,
 * logit_bias, cache_salt, priority, return_step_map … The common fields are these and those for the form of the
 * response: model, stream, stream_mode, stream_options, return_token_ids, return_trajectory … */
extern const um_field_set um_generation_fields, um_common_fields;
/* Fields of a conversation (chat.c): messages, tools, tool_choice, chat_template … */
extern const um_field_set um_chat_fields;

typedef enum { UM_PROMPT_TEXT, UM_PROMPT_IDS, UM_PROMPT_CHAT } um_prompt_kind;
typedef struct um_prompt {
    um_prompt_kind kind;
    um_str text;  /* the text of a TEXT prompt; borrowed from the JSON */
    int32_t *ids; /* [n_ids] token ids, in the arena; given for an IDS prompt, else set by um_body_encode */
    size_t n_ids;
} um_prompt;

enum { UM_STREAM_BLOCK_APPEND, UM_STREAM_DENOISE, UM_STREAM_MIXED };
enum { UM_TOOLS_AUTO, UM_TOOLS_NONE, UM_TOOLS_REQUIRED, UM_TOOLS_NAMED };
#define UM_STOPS_MAX      16
#define UM_STOP_BYTES_MAX 1024
#define UM_BAD_WORDS_MAX  256
#define UM_PROMPTS_MAX    1024

struct um_body {
    const um_setup *setup;
    um_capacity capacity;
    struct json_t *root;
    size_t bytes;  /* size of the JSON text; 0: unknown */
    um_held *held; /* the memory of root, or NULL */
    double since;  /* um_now() when the JSON text was complete; 0: the timeout starts with the generation */
    const um_field_set *const *sets;
    um_arena arena;    /* memory of the fields below, unless they point into root */
    um_prompt *prompt; /* [n_prompts] */
    size_t n_prompts;
    bool one_prompt;          /* the prompt was not given as a list */
    um_chat_request chat;     /* the conversation of a CHAT prompt */
    um_str suffix;            /* text that follows the answer */
    um_msg_generate generate; /* all members but ids, rid and events */
    um_request checked;       /* the checked parameters, with defaults for parameters that are not set */
    bool stream, include_usage, continuous_usage, echo;
    int32_t stream_mode;
    int32_t snapshot_interval; /* passes between two snapshots */
    double snapshot_max_hz;
    bool return_token_ids, return_step_map, return_trajectory, return_timings, include_stop, keep_special;
    bool as_token_ids;     /* logprobs name tokens "token_id:7" */
    int32_t truncate_to;   /* longest prompt, of which the last tokens are kept; -1: as many as fit; 0: all */
    bool special_tokens;   /* add_special_tokens: put BOS before a TEXT prompt */
    bool usage_extensions; /* write passes and times into the usage */
    bool fills;            /* without max_tokens the answer may be as long as the model allows */
    int32_t top_logprobs;  /* -1: no logprobs */
    int32_t tool_choice;   /* UM_TOOLS_* */
    const char *tool_name; /* the function of UM_TOOLS_NAMED */
    const struct json_t *allowed_tools; /* the array of allowed tools, or NULL: all */
    bool parallel_tool_calls, include_reasoning;
    um_str opening;                            /* text of the server that ends a rendered CHAT prompt */
    const char *model, *request_id;            /* NULL: not given */
    const char *prompt_name;                   /* field that has the prompt; NULL: "prompt" */
    const char *const *rids;                   /* [n_prompts] the client's ids of the prompts, or NULL */
    um_body *own;                              /* [n_prompts] parameters of each prompt, or NULL; see um_body_of */
    const char *tools_json, *reasoning_effort; /* NULL: not given */
    const char *constraint_field;              /* the field that constrains the answer; NULL: none does */
    bool forces_call;                          /* tool_choice constrains the answer to a call */
    int32_t key;                               /* id of the API key of the request (um_key.id); 0: none */
    bool is_batch_line;                        /* a line of a batch; its start has waited for the key's allowance */
    const char *ignored[4];                    /* names of unknown fields that were ignored, for the log */
    int32_t n_ignored;                         /* their number, also of those without a place in the array */
    const char *items_json;                    /* items of a stored response (api/responses.h), or NULL */
    int32_t n_earlier_items;                   /* those of them that were stored before the request */
    const char *error_code;                    /* `code` of OpenAI's error object, or NULL */
};

/* Reads a JSON object by the field tables and the option tables. NULL ends the sets; the first set that has a name
 * wins. `b` is zero or freed. Takes ownership of `root`, also on failure. On failure err->param names the field. */
um_status um_body_read(um_body *b, const um_setup *setup, const um_capacity *capacity, struct json_t *root,
                       const um_field_set *const *sets, um_err *err);
/* Does the same without a server, for request files. Parameters that are not set have the values of `defaults`. */
um_status um_body_read_offline(um_body *b, struct json_t *root, const um_field_set *const *sets,
                               const um_request *defaults, um_err *err);
void um_body_free(um_body *b);
/* Returns the body that holds the parameters of a prompt: its entry of `own`, or `b` if there is none. */
const um_body *um_body_of(const um_body *b, size_t prompt);
/* Returns whether the request has the field with a value other than null. */
bool um_body_has(const um_body *b, const char *field);
/* Returns whether the request sets the option. */
bool um_body_is_set(const um_body *b, const char *option);
/* Returns whether the server accepts unknown fields (--ignore-unknown-fields), and notes the name for the log. */
bool um_body_ignores(um_body *b, const char *key);
/* Sets an option from text. Checks its range. */
um_status um_body_set(um_body *b, const char *option, const char *value, um_err *err);
/* Sets an option from a field's JSON value. Errors name the field. */
um_status um_body_set_json(um_body *b, const char *option, const char *field, const struct json_t *v, um_err *err);
/* Reads a prompt: text, token ids, or a list of up to UM_PROMPTS_MAX of these. A second prompt field is an error. */
um_status um_body_take_prompt(um_body *b, const struct json_t *v, um_err *err);
/* Read the messages and the tools of a conversation, in the form of chat completions. */
um_status um_body_take_messages(um_body *b, const struct json_t *v, um_err *err);
um_status um_body_take_tools(um_body *b, const struct json_t *v, um_err *err);
/* Reads a stop string, or an array of up to UM_STOPS_MAX. */
um_status um_body_take_stop(um_body *b, const struct json_t *v, um_err *err);
/* Reads {"id": bias}. */
um_status um_body_take_bias(um_body *b, const struct json_t *v, um_err *err);
/* Constrains the answer: `kind` is a UM_CONSTRAINT_*, `text` lives as long as the body or is NULL. `field` is the name
 * for errors. A second constraint is an error with both names. */
um_status um_body_constrain(um_body *b, const char *field, int32_t kind, const char *text, um_err *err);
/* Does so with a JSON schema, or with a string that holds one. */
um_status um_body_constrain_json(um_body *b, const char *field, const struct json_t *schema, um_err *err);
/* Reads {"type": "text"}, {"type": "json_object"} or {"type": "json_schema"}; `inner` has the schema of the latter as
 * its member "schema". */
um_status um_body_take_format(um_body *b, const char *field, const struct json_t *v, const struct json_t *inner,
                              um_err *err);
/* Checks the constraint, and whether the other parameters can be kept beside it. Errors name the field. */
um_status um_body_check_constraint(um_body *b, um_err *err);
/* Replaces the engine's name of the constraint in an error by the field of the request. Returns the error's code. */
um_status um_body_name_constraint(const um_body *b, um_err *err);
/* Returns whether the JSON of a request may constrain an answer, which takes time to check. */
bool um_body_may_constrain(const struct json_t *root);
/* Renders and encodes the prompts, then sets max_tokens if the request leaves it open. Errors: UM_EINVAL for an empty
 * prompt, UM_ELIMIT for a prompt that leaves no room for an answer, and the errors of um_model_render_chat. */
um_status um_body_encode(um_body *b, um_err *err);
/* Sets the biases, stop strings, stop ids, bad words and allowed ids of a request to those of `g`. They live as long as
 * the body. */
void um_body_copy_lists(um_body *b, const um_msg_generate *g, um_request *r);
/* Does the checks of the workers on the encoded request, with the same messages, so that a client whose result is
 * stored learns of an error at once. Checks nothing before a worker is ready. */
um_status um_body_check(um_body *b, um_err *err);

/* ---- Internal ---------------------------------------------------------------------------------------------------- */

/* Returns the JSON text of a value, in the arena. */
const char *um_body_dump(um_body *b, const struct json_t *v);
/* Creates n prompts, which the caller fills in. Returns NULL if the body has prompts already. */
um_prompt *um_body_prompts(um_body *b, size_t n, um_err *err);
/* Returns whether the request's strategy decodes the whole answer as one canvas. */
bool um_body_is_whole(const um_body *b);
/* Checks the fields of a conversation against each other and completes the chat request. */
um_status um_body_finish_chat(um_body *b, um_err *err);
/* Read the fields that constrain an answer (constraint.c). */
um_status um_body_take_response_format(um_body *b, const struct json_t *v, um_err *err);
um_status um_body_take_structured_outputs(um_body *b, const struct json_t *v, um_err *err);
um_status um_body_take_guided_json(um_body *b, const struct json_t *v, um_err *err);
um_status um_body_take_guided_regex(um_body *b, const struct json_t *v, um_err *err);
um_status um_body_take_guided_choice(um_body *b, const struct json_t *v, um_err *err);
um_status um_body_take_guided_grammar(um_body *b, const struct json_t *v, um_err *err);
um_status um_body_take_json_schema(um_body *b, const struct json_t *v, um_err *err);
um_status um_body_take_regex(um_body *b, const struct json_t *v, um_err *err);
um_status um_body_take_ebnf(um_body *b, const struct json_t *v, um_err *err);
um_status um_body_take_grammar(um_body *b, const struct json_t *v, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
