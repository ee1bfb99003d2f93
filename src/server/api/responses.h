/* responses: OpenAI's /v1/responses. Its input is a list of items: messages, calls of functions and their results, and
 * thoughts. They become turns of a conversation (input), and the parts of an answer become items (output). A stored
 * response keeps its items, so that a later request can continue the conversation. */
#ifndef UM_API_RESPONSES_H
#define UM_API_RESPONSES_H

#include "server/api/conversation.h"
#include "server/api/result_store.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_RESPONSE_PREFIX     "resp_"
#define UM_CONVERSATION_PREFIX "conv_"
/* Number of the first event of an item. The two before it have the response. */
#define UM_RESPONSE_FIRST_EVENT 2

/* The fields, and the check of an API (responses_input.c). */
extern const um_field_set *const um_responses_sets[];
um_status um_responses_check(um_body *b, um_err *err);
/* Return what the body asks for. */
bool um_responses_is_background(const um_body *b);
bool um_responses_has_summary(const um_body *b); /* thoughts are a summary, not content */

/* The most bytes of items that a client may give a conversation. They are parsed on the loop's thread when some are
 * added. */
#define UM_CONVERSATION_BYTES_MAX ((size_t)4 << 20)

/* Returns the id of the request's conversation, or NULL. */
const char *um_responses_conversation(const um_body *b);
/* Appends the items of a request's list to `items`, in the form of stored ones. */
um_status um_response_items_read(struct json_t *items, const struct json_t *v, um_err *err);
/* Checks OpenAI's metadata: an object of texts. NULL is fine. */
um_status um_metadata_check(const struct json_t *v, um_err *err);

/* Sends a page of the items of a result (responses.c). */
void um_response_items_reply(const um_stored *e, um_exchange *x);
/* Deletes a result and says so in the form of OpenAI's API; `object` is its word for that (responses.c). */
void um_stored_delete_reply(um_stored *e, const char *object, um_exchange *x);
/* Adds items to a conversation (conversations.c). */
void um_conversation_add_items(um_stored *e, const struct json_t *added);

/* The writer (responses_output.c). */
extern const um_response_writer um_responses_writer;
/* Writes the response of a generation that has not finished. */
void um_responses_put_unfinished(um_generation *g, um_jw *w);
/* Adds a response to its conversation. Stores it and the events of its items under the generation's id, if the request
 * lets the server do so (responses.c). */
void um_responses_keep(um_generation *g, um_str json, um_str events);

/* Writes an event with a response (responses_stream.c). */
void um_response_put_event(um_buf *out, const char *name, int64_t number, um_str response);
/* Sends the events after the number `after`, from -1, of a stored response, until it has finished. */
void um_response_follow(um_service *s, um_exchange *x, um_stored *e, int64_t after);

#ifdef __cplusplus
}
#endif
#endif
