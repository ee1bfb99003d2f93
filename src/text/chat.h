/* The rooms inside chat: a conversation becomes text.
 *
 *   chat_source.c    where templates come from: files of the folder, the operator, chat_builtin.c
 *   chat_message.c   messages as templates expect them
 *   chat_guard.c     what keeps the text of a message from becoming control tokens
 *   chat.c           one request: variables, rendering, continued messages, ids */
#ifndef UM_CHAT_H
#define UM_CHAT_H

#include "text/guard.h"
#include "text/template.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A template with its name. One that did not compile is kept with its error: the model is still good for raw prompts.
 */
typedef struct um_chat_template {
    char *name;  /* "default", "tool_use", … */
    char *where; /* for messages: "DIR/chat_template.jinja" */
    char *source;
    um_template *tmpl;
    um_err error;
    const char *default_system; /* of a built-in one: the variable default_system, or NULL */
    bool knows_developer;       /* treats the role "developer" itself */
    bool reads_parts;           /* goes through the parts of a content */
    uint32_t guards;            /* noncharacters in its source, see um_guards_in */
} um_chat_template;

struct um_chat {
    um_chat_template *tmpl;
    size_t n_tmpl;
    size_t chosen; /* is_chosen: the template that the operator named, for all requests */
    bool is_chosen;
    char *dir;
    const um_tok *tok;
    json_t *base; /* variables that every conversation has */
};

/* ---- chat_source.c ---- */
/* Compiles source; um_chat_template_free releases what was made, also after an error (which names `where`). */
um_status um_chat_template_new(um_chat_template *t, const char *name, const char *where, um_str source, um_err *err);
void um_chat_template_free(um_chat_template *t);
/* The template with this name, or NULL. */
const um_chat_template *um_chat_template_find(const um_chat *c, const char *name);
/* A source, not a name: it has tags. */
bool um_chat_is_source(const char *text);

/* ---- chat_builtin.c ---- */
typedef struct um_chat_builtin {
    const char *name;
    um_str source;
    const char *turn_end;       /* a token that the tokenizer must have: that of a base model may lack it */
    const char *default_system; /* the text of the system turn when there is no system message, or NULL */
} um_chat_builtin;
const um_chat_builtin *um_chat_builtin_find(const char *name); /* or NULL */
extern const um_chat_builtin um_chat_builtins[];
extern const size_t um_n_chat_builtins;

/* ---- chat_message.c ---- */
/* The conversation of a request as a new array of objects in the form that templates expect: `developer` and
 * `reads_parts` say what this one does itself. Errors: UM_EINVAL, UM_EPARSE, with the number of the message. */
um_status um_chat_messages(const um_chat_request *q, bool developer, bool reads_parts, json_t **out, um_err *err);
/* A JSON array, NULL or null: *out NULL; an empty one counts as none. UM_EPARSE, UM_EINVAL. */
um_status um_chat_tools(const char *text, json_t **out, um_err *err);
/* A JSON object of template variables; messages and tools can't be among them. */
um_status um_chat_kwargs(const char *text, json_t **out, um_err *err);
/* Appends mark to the text of the last message, which must be the assistant's. */
um_status um_chat_mark_last(json_t *messages, um_str mark, um_err *err);

/* ---- chat_guard.c ---- */
/* Puts guards into the messages as `level` (UM_SPECIAL_*) asks; with `reject` an error names what was found. */
um_status um_chat_protect(const um_tok *t, json_t *messages, int level, uint32_t guard, um_err *err);
/* Noncharacters in all strings of a value, see um_guards_in. */
uint32_t um_chat_guards_in(const json_t *v);

#ifdef __cplusplus
}
#endif
#endif
