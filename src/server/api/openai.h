/* openai: fields and writers that the APIs of OpenAI share. */
#ifndef UM_API_OPENAI_H
#define UM_API_OPENAI_H

#include "server/api/apis.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fields that /v1/chat/completions and /v1/completions share. */
extern const um_field_set um_openai_fields;
/* Fields without effect of /v1/chat/completions and /v1/responses. */
extern const um_field_set um_openai_chat_fields;

/* ---- Log-probabilities (logprobs.c) ------------------------------------------------------------------------------ */

/* Writes the value of the member `logprobs` for some tokens of the choice. The two APIs have different formats. */
typedef void (*um_logprobs_fn)(um_generation *g, const um_choice *c, const um_tokens *v, um_jw *w);
void um_put_chat_logprobs(um_generation *g, const um_choice *c, const um_tokens *v, um_jw *w);
void um_put_completion_logprobs(um_generation *g, const um_choice *c, const um_tokens *v, um_jw *w);

/* Writes an array with {"token", "logprob", "bytes", "top_logprobs"} for each token. It is empty without
 * log-probabilities. */
void um_put_openai_tokens(um_generation *g, const um_tokens *v, um_jw *w);

/* ---- Responses and chunks (openai.c) ----------------------------------------------------------------------------- */

/* Returns the system fingerprint: version and commit, "unmask-0.1.0-b4eecf4". Requests with equal parameters and seed
 * get equal answers as long as the fingerprint does not change. */
const char *um_fingerprint(void);

/* Writes a whole response. put_choice writes one element of its `choices`. */
void um_openai_put_response(um_generation *g, um_jw *w, const char *object,
                            void (*put_choice)(um_generation *g, um_choice *c, um_jw *w));
/* Returns whether a stream has snapshots and no chunks (stream_mode denoise). */
bool um_openai_is_denoise(const um_generation *g);
/* Begins a chunk with one choice: the caller writes the choice's members after its index. um_openai_send_chunk ends the
 * chunk and sends it. */
um_jw *um_openai_begin_chunk(um_generation *g, const um_choice *c, const char *object);
void um_openai_send_chunk(um_generation *g, um_jw *w);
/* Sends the last chunk of a stream, which has the usage and no choices. Does nothing if the request does not ask for
 * the usage. */
void um_openai_send_usage(um_generation *g, const char *object);
/* Writes the member finish_reason of a choice that has not finished: null. */
void um_openai_put_unfinished(um_jw *w);

/* Send the events of stream_mode denoise: snapshots, each of which replaces the one before, then an event "final" with
 * the answer. `object` is the value of their member `object`. */
void um_openai_send_snapshot(um_generation *g, um_choice *c, const um_msg_snapshot *m, const char *object);
void um_openai_send_final(um_generation *g, um_choice *c, const char *object, const char *finish_reason,
                          um_logprobs_fn put);
/* Write the member `logprobs` of a finished choice, and of a chunk with the tokens `v`. It is null if the request does
 * not ask for it, and in a chunk without tokens. */
void um_openai_put_logprobs(um_generation *g, const um_choice *c, um_logprobs_fn put, um_jw *w);
void um_openai_put_chunk_logprobs(um_generation *g, const um_choice *c, const um_tokens *v, um_logprobs_fn put,
                                  um_jw *w);
/* Writes the member `dllm` of a choice (stream_mode mixed): the provisional text, and the progress of its block. */
void um_openai_put_provisional(um_generation *g, um_choice *c, const um_msg_snapshot *m, um_jw *w);

#ifdef __cplusplus
}
#endif
#endif
