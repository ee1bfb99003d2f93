/* body: what a request's JSON says, whatever its shape. Each API has a table of fields; a field is used, must be
 * neutral, or may be ignored, and a name that is in no table is an error (what is not understood is never dropped in
 * silence). Decoding and sampling parameters are known by their option rows, so they need no field.
 *
 * Everything in a body lives in its arena or in its JSON. One thread has it at a time: large ones are read beside the
 * loop (reading.h), so what reads them looks at nothing of the server that changes: its configuration, its names, its
 * model. What the workers said is brought along, as a room. */
#ifndef UM_BODY_H
#define UM_BODY_H

#include "server/server.h"

#ifdef __cplusplus
extern "C" {
#endif

struct json_t;
typedef struct um_body um_body;

/* What the workers can hold. All run the same configuration. */
typedef struct um_room {
    int32_t max_len; /* tokens of prompt and answer together, at most */
    int64_t tokens;  /* that the pages hold; INT64_MAX: no worker has said it yet */
    bool is_whole;   /* the strategy of requests that name none works on a whole canvas */
} um_room;
um_room um_room_of(um_server *s); /* as far as it is known now; on the loop's thread */

typedef struct um_field {
    const char *name;
    /* Reads the value (never null: null is "not given"). NULL: see below. */
    um_status (*take)(um_body *b, const struct json_t *v, um_err *err);
    const char *option;  /* the option row that it sets under another name */
    const char *neutral; /* only these JSON values are taken, separated by '|' ("1|null"); others: 400 with `why` */
    const char *why;     /* "beam search is for autoregressive models" */
    /* none of take, option, neutral: ignored */
} um_field;
typedef struct um_field_set {
    const um_field *rows;
    size_t n;
} um_field_set;
/* Fields that more than one API has (body_fields.c). Those of a generation are known in request files, too: n, stop,
 * stop_token_ids, logit_bias, cache_salt, priority, return_step_map … The common ones are these and what is said of the
 * answer: model, stream, stream_mode, stream_options, return_token_ids, return_trajectory … */
extern const um_field_set um_generation_fields, um_common_fields;
/* Those of a conversation (body_chat.c): messages, tools, tool_choice, chat_template … */
extern const um_field_set um_chat_fields;

typedef enum { UM_PROMPT_TEXT, UM_PROMPT_IDS, UM_PROMPT_CHAT } um_prompt_kind;
typedef struct um_prompt {
    um_prompt_kind kind;
    um_str text;  /* TEXT; borrowed from the JSON */
    int32_t *ids; /* [n_ids] from IDS, or what the others became (um_body_encode); in the arena */
    size_t n_ids;
} um_prompt;

enum { UM_STREAM_BLOCK_APPEND, UM_STREAM_DENOISE, UM_STREAM_MIXED };
enum { UM_TOOLS_AUTO, UM_TOOLS_NONE, UM_TOOLS_REQUIRED, UM_TOOLS_NAMED };
#define UM_STOPS_MAX   16
#define UM_PROMPTS_MAX 1024

struct um_body {
    um_server *server;
    um_room room;
    struct json_t *root;
    size_t bytes; /* of the text that it was read from; 0: not known */
    double since; /* um_now() when that was there; 0: it does not matter */
    const um_field_set *const *sets;
    um_arena arena;    /* everything below points here or into root */
    um_prompt *prompt; /* [n_prompts] */
    size_t n_prompts;
    bool one_prompt;          /* not given as a list */
    um_chat_request chat;     /* of a CHAT prompt */
    um_str suffix;            /* text */
    um_msg_generate generate; /* all but ids, rid, events */
    um_request checked;       /* parameters that were set, after their rows' checks; see um_body_is_set */
    bool stream, include_usage, continuous_usage, echo;
    int32_t stream_mode;
    int32_t snapshot_interval; /* passes */
    double snapshot_max_hz;
    bool return_token_ids, return_step_map, return_trajectory, return_timings, include_stop, keep_special;
    bool special_tokens;   /* add_special_tokens: BOS is put before a text; chat has its own */
    bool usage_extensions; /* passes and times are part of the usage */
    bool fills;            /* without max_tokens an answer may be as long as the model allows */
    int32_t top_logprobs;  /* -1: none asked for */
    int32_t tool_choice;   /* UM_TOOLS_* */
    const char *tool_name; /* of NAMED */
    bool parallel_tool_calls, include_reasoning;
    um_str opening;                            /* text that the answer is made to begin with, behind the prompt */
    const char *model, *request_id, *user;     /* or NULL */
    const char *prompt_name;                   /* field that the prompt came in; NULL: "prompt" */
    const char *const *rids;                   /* [n_prompts] ids of their own, or NULL */
    um_body *own;                              /* [n_prompts] parameters of each prompt, or NULL: see um_body_of */
    const char *tools_json, *reasoning_effort; /* or NULL */
    const char *error_code;                    /* OpenAI's word for the error that was found, or NULL */
};

/* Reads a JSON object by the sets (NULL ends them; the first that has a name wins) and by the option rows. `b` is zero
 * or was freed; it takes `root`, also on failure. On failure err->param names the field. */
um_status um_body_read(um_body *b, um_server *s, const um_room *room, struct json_t *root,
                       const um_field_set *const *sets, um_err *err);
/* The same without a server, for request files: parameters that are not named are those of `defaults`. */
um_status um_body_read_alone(um_body *b, struct json_t *root, const um_field_set *const *sets,
                             const um_request *defaults, um_err *err);
void um_body_free(um_body *b);
/* Who says what a prompt's answers are like: a body that is its own, or the whole request's. */
const um_body *um_body_of(const um_body *b, size_t prompt);
/* Was the field given, and not null? */
bool um_body_has(const um_body *b, const char *field);
/* The option's value is the request's own. */
bool um_body_is_set(const um_body *b, const char *option);
/* Sets a parameter by its row, from text; checks its range. */
um_status um_body_set(um_body *b, const char *option, const char *value, um_err *err);
/* The same from the JSON of a field, whose name is for messages. */
um_status um_body_set_json(um_body *b, const char *option, const char *field, const struct json_t *v, um_err *err);
/* Takes a prompt: text, token ids, or a list of either, at most UM_PROMPTS_MAX long. A second one is an error. */
um_status um_body_take_prompt(um_body *b, const struct json_t *v, um_err *err);
/* Takes {"id": bias}. */
um_status um_body_take_bias(um_body *b, const struct json_t *v, um_err *err);
/* Texts and messages to ids: templates, BOS, special tokens; settles how long the answers may be. UM_EINVAL for an
 * empty prompt, UM_ELIMIT for one that leaves no room for an answer, UM_ETEMPLATE … */
um_status um_body_encode(um_body *b, um_err *err);

/* ---- Inside (body*.c) -------------------------------------------------------------------------------------------- */

/* The JSON text of a value, in the arena. */
const char *um_body_dump(um_body *b, const struct json_t *v);
/* Prompts to be filled in; NULL and an error when there are some already. */
um_prompt *um_body_prompts(um_body *b, size_t n, um_err *err);
/* Its strategy works on a whole canvas. */
bool um_body_is_whole(const um_body *b);
/* What the fields of a conversation mean together. */
um_status um_body_settle_chat(um_body *b, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
