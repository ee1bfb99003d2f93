/* common: functions that several APIs share: writers of response members, checks of bodies, calls of worker utilities.
 */
#ifndef UM_API_COMMON_H
#define UM_API_COMMON_H

#include "server/api/apis.h"
#include "server/respond/reply.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Members of responses (common.c) ----------------------------------------------------------------------------- */

/* Writes a member for each option: numbers and booleans as such, an empty text as null, other values as strings, also
 * "auto". */
void um_put_options(um_jw *w, const um_option_set *sets, size_t n_sets);
/* Sets `q` to the parameters of a request that sets none itself. Strategy and sampler are those that the first ready
 * worker uses; while no worker is ready, those of the configuration. */
void um_request_defaults(um_service *s, um_request *q);
/* Writes the member `key`: an array with {"token_id", "logprob", "top": [{"token_id", "logprob"}]} for each token. */
void um_put_token_logprobs(um_jw *w, const char *key, const um_tokens *v);

/* Returns whether the response is an array of answers: the prompt came as a list, or there are several answers. A
 * single answer is an object. */
bool um_generation_is_list(um_generation *g);
/* Writes the members that Diffulex has for a finished answer: text and token ids, both again with the stop string or
 * token that ended the answer (full_*), passes and decoding speed. */
void um_put_reply(um_generation *g, const um_choice *c, um_jw *w);
/* Writes the members engine_decode_*: time, tokens, and tokens a second. */
void um_put_decode(um_jw *w, double seconds, int32_t tokens);

/* ---- Members of responses to generations (generation_json.c) ----------------------------------------------------- */

/* Writes the usage object: the sums over the choices so far. */
void um_put_usage(um_generation *g, um_jw *w);
/* The same, with the tokens of the chunks so far: the difference between two chunks is the number of tokens whose text
 * the second one has. Tokens whose text is held back are not counted yet. */
void um_put_chunk_usage(um_generation *g, um_jw *w);
/* Writes the reason of a stop: the stop string, the id of the requested stop token, or null. */
void um_put_stop_reason(um_jw *w, const um_msg_finish *m);
/* Writes the members of a snapshot, without braces. */
void um_put_snapshot(um_generation *g, um_choice *c, const um_msg_snapshot *m, um_jw *w);
/* Writes the further members of a finished choice that the request asks for: token ids, step map, trajectory, timings.
 * Also completion_reason, where OpenAI's finish reason doesn't tell which limit ended the answer. */
void um_put_extras(um_generation *g, um_choice *c, um_jw *w);
/* Does the same without the token ids, for the end of a stream that has sent them. */
void um_put_stream_extras(um_generation *g, um_choice *c, um_jw *w);

/* ---- Bodies ------------------------------------------------------------------------------------------------------ */

/* Sets a parameter if the request does not set it. */
um_status um_body_default(um_body *b, const char *option, const char *value, um_err *err);
/* The reason why an API refuses stream_options. */
#define UM_NO_STREAM_OPTIONS "every event of this API has the token counts"
/* Refuses all stream modes but block_append, for APIs that only stream settled text (text that no later pass
 * changes). */
um_status um_body_streams_text(um_body *b, um_err *err);
/* Refuses several prompts and several answers. */
um_status um_body_is_single(um_body *b, um_err *err);

/* ---- Exchanges --------------------------------------------------------------------------------------------------- */

/* Responds with 200 and the JSON that `put` writes. */
void um_reply_with(um_service *s, um_exchange *x, void (*put)(um_service *s, um_jw *w));
/* Calls a utility of all workers and responds when all have finished. `put` turns their results, a JSON array, into the
 * response. If the call fails, responds with the error. */
void um_reply_call(um_service *s, um_exchange *x, const char *utility, void (*put)(const char *results, um_jw *w));

#ifdef __cplusplus
}
#endif
#endif
