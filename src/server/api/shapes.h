/* shapes: what the APIs beside OpenAI's share: small writers, the values of options, and calls of workers that an
 * exchange waits for. */
#ifndef UM_API_SHAPES_H
#define UM_API_SHAPES_H

#include "server/turn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Members of an object ---------------------------------------------------------------------------------------- */

/* The value of every row by its name, numbers as numbers, "auto" where it is that. */
void um_put_options(um_jw *w, const um_option_set *sets, size_t n_sets);
/* A request that says nothing: strategy and sampler are those that the workers use; before one is loaded, as
 * configured. */
void um_request_defaults(um_server *s, um_request *q);
/* {"token_id", "logprob", "top": [{"token_id", "logprob"}]} of each token. */
void um_put_token_logprobs(um_jw *w, const char *key, const um_tokens *v);

/* Several answers are told apart by their index and stand in an array, a single one stands alone. */
bool um_turn_is_list(um_turn *t);
/* What Diffulex says of a finished answer: text, ids and both with what ended it, passes and decoding speed. */
void um_put_reply(um_turn *t, const um_choice *c, um_jw *w);
/* The members engine_decode_*. */
void um_put_decode(um_jw *w, double seconds, int32_t tokens);

/* ---- Bodies ------------------------------------------------------------------------------------------------------ */

/* The parameter, unless the request sets it. */
um_status um_body_default(um_body *b, const char *option, const char *value, um_err *err);
/* For APIs whose streams have one form: settled text, with the counts in every event. */
um_status um_body_streams_text(um_body *b, um_err *err);
/* For APIs that answer one prompt with one answer. */
um_status um_body_is_single(um_body *b, um_err *err);

/* ---- Exchanges --------------------------------------------------------------------------------------------------- */

/* Answers 200 with the JSON that `put` writes. */
void um_reply_with(um_server *s, um_exchange *x, void (*put)(um_server *s, um_jw *w));
/* Calls a utility of all workers and answers when they have: `put` makes the answer of their results, a JSON array. A
 * failure is answered here. */
void um_reply_call(um_server *s, um_exchange *x, const char *utility, void (*put)(const char *results, um_jw *w));

#ifdef __cplusplus
}
#endif
#endif
