/* responses: OpenAI's /v1/responses. Its input is a list of items: messages, calls of functions and their results, and
 * thoughts. They become turns of a conversation (input), and the parts of an answer become items (output). A stored
 * response keeps its items, so that a later request can continue the conversation. */
#ifndef UM_API_RESPONSES_H
#define UM_API_RESPONSES_H

#include "server/api/conversation.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_RESPONSE_PREFIX "resp_"

/* The fields, and the check of an API (responses_input.c). */
extern const um_field_set *const um_responses_sets[];
um_status um_responses_check(um_body *b, um_err *err);
/* Return what the body asks for. */
bool um_responses_is_background(const um_body *b);
bool um_responses_has_summary(const um_body *b); /* thoughts are a summary, not content */

/* The writer (responses_output.c). */
extern const um_response_writer um_responses_writer;
/* Writes the response of a generation that has not finished. */
void um_responses_put_unfinished(um_generation *g, um_jw *w);
/* Stores a response under the generation's id, if the request lets the server do so (responses.c). */
void um_responses_keep(um_generation *g, um_str json);

#ifdef __cplusplus
}
#endif
#endif
