/* conversation: what the APIs that answer conversations share: checks of their fields, the parser of their answers, and
 * turns, which builds messages in the form of chat completions from the blocks and items of other APIs. */
#ifndef UM_API_CONVERSATION_H
#define UM_API_CONVERSATION_H

#include "server/api/answer.h"
#include "server/generate/intake.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Checks the fields of a conversation against the parsers of the server, and constrains the answer to a tool call if
 * the request requires one. Serves as the `check` of an API. */
um_status um_conversation_check(um_body *b, um_err *err);
/* Fails if an object, the value of the field `field`, has a member that is not in the list `names`, "a|b". With
 * --ignore-unknown-fields such members are noted instead. */
um_status um_conversation_check_members(um_body *b, const struct json_t *v, const char *field, const char *names,
                                        um_err *err);
/* Constrains the answer to a call of one of the request's tools (forced_call.c). format: that of the server, or NULL.
 */
um_status um_conversation_force_call(um_body *b, const um_tool_format *format, um_err *err);
/* Returns whether the server has a parser of reasoning. */
bool um_conversation_has_reasoning(const um_setup *s);

/* The answer of a choice while it is parsed. */
typedef struct um_conversation_answer {
    um_generation *generation;
    um_choice *choice;
    um_answer_parser parser;
    um_answer_part_fn fn; /* receives the parts that belong to the response */
    void *arg;
    int32_t n_calls; /* calls that `fn` has received, without the one whose CALL it is receiving */
    bool has_ended;  /* the whole text was parsed */
} um_conversation_answer;
/* Begins to parse the answer. One that must be a call has no reasoning. `fn` does not receive reasoning that the
 * request excludes, calls after the first if it excludes parallel ones, and content in place of the call that it
 * requires: the beginning of one that was aborted. */
void um_conversation_begin(um_conversation_answer *a, um_generation *g, um_choice *c, um_answer_part_fn fn, void *arg);
void um_conversation_free(um_conversation_answer *a);
/* Parses the next text of a stream. */
void um_conversation_push(um_conversation_answer *a, um_str text);
/* Parses the rest of a finished answer: all of it if the text was not pushed. */
void um_conversation_end(um_conversation_answer *a);
/* Does this, and fails with UM_EUNSUPPORTED if the request requires a call and the answer has none: half a call is of
 * no use. */
um_status um_conversation_end_check(um_conversation_answer *a, um_err *err);
/* Returns the tokens whose text ends in the parts that the parser has passed on and that no earlier call returned.
 * While the parser holds text back (the beginning of a marker, an incomplete call), its tokens belong to a later part.
 * When the choice has finished, returns all remaining tokens. *n_taken: their number so far, 0 at first. */
um_tokens um_conversation_take_tokens(const um_conversation_answer *a, int32_t *n_taken);

/* Reads a body and counts the tokens of its prompt. Writes {"object": object, "input_tokens": n}, without a NULL
 * object. For the `read` of an intake handler. */
um_status um_conversation_count(um_intake *r, const um_api *a, const char *object, um_err *err);

/* ---- Turns ------------------------------------------------------------------------------------------------------- */

/* The strings that turns take stay shared with the request; only the tree around them is new. */
typedef struct um_turns {
    struct json_t *messages; /* the array built so far */
    struct json_t *last;     /* the message that text, calls and reasoning are added to; NULL: none */
    um_buf reasoning;        /* that of the last message */
} um_turns;
void um_turns_init(um_turns *t);
void um_turns_free(um_turns *t);
/* Ends the last message: nothing joins it any more. Call it before `messages` is used. */
void um_turns_end(um_turns *t);
/* Begins a message. Its members follow. */
void um_turns_begin(um_turns *t, const char *role);
/* Begins a message unless the last one has this role. */
void um_turns_join(um_turns *t, const char *role);
/* Add a piece of text, a piece of reasoning, and a call to the last message. The arguments are a string of JSON or an
 * object. Values that are not strings count as "". */
void um_turns_add_text(um_turns *t, const struct json_t *text);
void um_turns_add_reasoning(um_turns *t, const struct json_t *text);
void um_turns_add_call(um_turns *t, const struct json_t *id, const struct json_t *name, const struct json_t *arguments);
/* Begins the message with the result of a call. Its text follows. */
void um_turns_begin_result(um_turns *t, const struct json_t *call_id);
/* Appends the i-th tool of a request to `tools`, in the form of chat completions. `parameters` names the member with
 * its schema. Fails if the tool has no name, or asks for something that the server can't do. */
um_status um_turns_add_tool(struct json_t *tools, size_t i, const struct json_t *tool, const char *parameters,
                            um_err *err);

#ifdef __cplusplus
}
#endif
#endif
