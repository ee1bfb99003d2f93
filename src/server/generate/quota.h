/* quota: what the API key of a request allows: its rates, its number of generations, the length of its answers, its
 * models and its priority. Loop's thread only. */
#ifndef UM_QUOTA_H
#define UM_QUOTA_H

#include "server/body/body.h"
#include "server/http/http.h"
#include "server/keys/keys.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a generation has taken of its key. */
typedef struct um_quota {
    um_key *key;      /* NULL: no limits */
    int64_t reserved; /* tokens */
} um_quota;

/* Takes a request of the key's requests per minute. If none is left, answers 429 and returns false. key NULL: true. */
bool um_quota_take_request(um_key *key, um_exchange *x);
/* Checks a generation against the limits of its key, and reserves the tokens of its prompts and longest answers.
 * x NULL: no header is added. On failure *status is 403 or 429. A key of NULL has no limits. */
um_status um_quota_begin(um_quota *q, um_key *key, um_body *b, um_exchange *x, int *status, um_err *err);
/* Counts tokens of a generation, first against what it has reserved. */
void um_quota_spend(um_quota *q, int64_t prompt_tokens, int64_t generation_tokens);
/* Ends the generation and gives back the tokens that it reserved and did not use. um_quota_spend may follow. */
void um_quota_end(um_quota *q);
/* Adds the headers x-ratelimit-*-tokens, and Retry-After if the response refuses the request. key NULL: adds none. */
void um_quota_put_tokens(um_key *key, um_exchange *x, bool is_refused);
/* Returns whether a line of a batch may start now. Lines leave a quarter of max_concurrent to other requests. */
bool um_quota_has_room(um_key *key);

#ifdef __cplusplus
}
#endif
#endif
