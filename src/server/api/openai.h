/* openai: what /v1/chat/completions and /v1/completions write alike. */
#ifndef UM_API_OPENAI_H
#define UM_API_OPENAI_H

#include "server/turn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fields that both read in their own way: narrower than what the other APIs take. */
extern const um_field_set um_openai_fields;

/* ---- Log-probabilities (logprobs.c) ------------------------------------------------------------------------------ */

/* The value of `logprobs` in the two APIs, of some tokens of the choice. */
typedef void (*um_logprobs_fn)(um_turn *t, const um_choice *c, const um_tokens *v, um_jw *w);
void um_put_chat_logprobs(um_turn *t, const um_choice *c, const um_tokens *v, um_jw *w);
void um_put_completion_logprobs(um_turn *t, const um_choice *c, const um_tokens *v, um_jw *w);

/* ---- Answers and chunks (openai.c) ------------------------------------------------------------------------------- */

/* "unmask-0.1.0-b4eecf4": answers with the same seed are the same while this is. */
const char *um_fingerprint(void);

/* An answer that does not stream; put_choice writes one member of its choices. */
void um_openai_whole(um_turn *t, um_jw *w, const char *object, void (*put_choice)(um_turn *t, um_choice *c, um_jw *w));
bool um_openai_is_denoise(const um_turn *t); /* does it stream snapshots and nothing else? */
/* A chunk with one choice: begins it up to the choice's index, from where its writer goes on; ends and sends it. */
um_jw *um_openai_chunk(um_turn *t, const um_choice *c, const char *object);
void um_openai_send(um_turn *t, um_jw *w);
/* The last chunk of a stream whose request asks for the usage: it has no choices. */
void um_openai_usage_chunk(um_turn *t, const char *object);
/* The member finish_reason of a choice in a chunk that is not its last. */
void um_openai_goes_on(um_jw *w);

/* A stream of snapshots (stream_mode denoise): each replaces the one before; the last event is "final", with the fields
 * of the answer. `object` is theirs. */
void um_openai_snapshot(um_turn *t, um_choice *c, const um_msg_snapshot *m, const char *object);
void um_openai_final(um_turn *t, um_choice *c, const char *object, const char *finish_reason, um_logprobs_fn put);
/* The member `logprobs` of a choice, of all of its tokens, and of a chunk, of some of them: null when nobody asked or,
 * in a chunk, when there are none. */
void um_openai_logprobs(um_turn *t, const um_choice *c, um_logprobs_fn put, um_jw *w);
void um_openai_chunk_logprobs(um_turn *t, const um_choice *c, const um_tokens *v, um_logprobs_fn put, um_jw *w);
/* The member `dllm` of a choice (stream_mode mixed): what stands behind the text that is settled. */
void um_openai_provisional(um_turn *t, um_choice *c, const um_msg_snapshot *m, um_jw *w);

#ifdef __cplusplus
}
#endif
#endif
