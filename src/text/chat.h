/* The internal interfaces of chat, which renders a conversation into a prompt.
 *
 *   chat_source.c    finds the templates: files of the folder, the operator's choice, chat_builtin.c
 *   chat_message.c   converts messages to the form that templates expect
 *   chat_guard.c     prevents the text of a message from becoming control tokens
 *   chat.c           handles a request: variables, rendering, continued messages, ids */
#ifndef UM_CHAT_H
#define UM_CHAT_H

#include "text/guard.h"
#include "text/template.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A template with its name. A template that fails to compile is kept with its error, because the model can still serve
 * raw prompts. */
typedef struct um_chat_template {
    char *name;  /* "default", "tool_use", … */
    char *where; /* its origin, for messages: "DIR/chat_template.jinja" */
    char *source;
    um_template *tmpl; /* NULL: compiling failed with `error` */
    um_err error;
    const char *default_system; /* a built-in template's variable default_system, or NULL */
    bool knows_developer;       /* the template handles the role "developer" */
    bool reads_parts;           /* the template iterates over the parts of a content */
    uint32_t guards;            /* noncharacters in the source, see um_guards_in */
} um_chat_template;

struct um_chat {
    um_chat_template *tmpl;
    size_t n_tmpl;
    size_t chosen; /* index of the template that the operator chose for all requests, valid if is_chosen */
    bool is_chosen;
    char *dir;
    const um_tok *tok;
    json_t *base; /* the variables of every conversation */
};

/* ---- chat_source.c ---- */
/* Initializes t and compiles source. `where` is the origin that messages name. um_chat_template_free must be called
 * even after an error. */
um_status um_chat_template_new(um_chat_template *t, const char *name, const char *where, um_str source, um_err *err);
void um_chat_template_free(um_chat_template *t);
/* Returns the template with this name, or NULL. */
const um_chat_template *um_chat_template_find(const um_chat *c, const char *name);
/* Returns true if the text is template source, that is, contains tags. */
bool um_chat_is_source(const char *text);

/* ---- chat_builtin.c ---- */
typedef struct um_chat_builtin {
    const char *name;
    um_str source;
    const char *turn_end;       /* the token that ends a turn; the tokenizer of a base model may lack it */
    const char *default_system; /* the system turn of a conversation without a system message, or NULL */
} um_chat_builtin;
/* Returns the built-in template with this name, or NULL. */
const um_chat_builtin *um_chat_builtin_find(const char *name);
extern const um_chat_builtin um_chat_builtins[];
extern const size_t um_n_chat_builtins;

/* ---- chat_message.c ---- */
/* Converts the messages of a request to a new array of objects in the form that templates expect. `developer`: the
 * template handles the role "developer". `reads_parts`: it iterates over the parts of a content. Errors: UM_EINVAL,
 * UM_EPARSE; errors about one message name its number. */
um_status um_chat_messages(const um_chat_request *q, bool developer, bool reads_parts, json_t **out, um_err *err);
/* Parses the tools of a request, a JSON array. *out is NULL if text is NULL, JSON null or an empty array. Errors:
 * UM_EPARSE, UM_EINVAL. */
um_status um_chat_tools(const char *text, json_t **out, um_err *err);
/* Parses a JSON object of template variables, which can't include messages and tools. *out is NULL if text is NULL or
 * JSON null. */
um_status um_chat_kwargs(const char *text, json_t **out, um_err *err);
/* Appends mark to the text of the last message, which must have the role "assistant". */
um_status um_chat_mark_last(json_t *messages, um_str mark, um_err *err);

/* ---- chat_guard.c ---- */
/* Inserts guards into the messages according to `level` (UM_SPECIAL_*). With UM_SPECIAL_REJECT, a message that spells a
 * protected token is an error that names the token. */
um_status um_chat_protect(const um_tok *t, json_t *messages, int level, uint32_t guard, um_err *err);
/* Returns the noncharacters in all strings of a JSON value, see um_guards_in. */
uint32_t um_chat_guards_in(const json_t *v);

#ifdef __cplusplus
}
#endif
#endif
