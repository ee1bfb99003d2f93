/* Strategies whose stored keys are those of causal attention: a key depends on the tokens up to its own position, and
 * the hidden row of the last stored position predicts the next token. The stored part can therefore be cut anywhere,
 * and requests of all these strategies share it. */
#ifndef UM_STRATEGY_CAUSAL_H
#define UM_STRATEGY_CAUSAL_H

#include "decode/decode.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The number for um_strategy.share: keys of requests that return it are equal. */
enum { UM_CAUSAL_SHARE = 1 };

/* Refuses models of another kind. `name` is the strategy's. */
static inline um_status um_causal_check(const um_req *r, const char *name, um_err *err) {
    if (r->traits->see == UM_SEE_CAUSAL) return UM_OK;
    return um_fail_param(err, UM_EUNSUPPORTED, "decoding_strategy",
                         "%s needs a model with causal attention; use --decoding-strategy auto", name);
}

/* Tells whether all passes of the request so far were partial. */
static inline bool um_causal_is_prefill(const um_req *r) { return r->nfe == 0; }

/* Returns the kind of a pass that stores keys. */
static inline um_pass_kind um_causal_kind(const um_req *r) {
    return um_causal_is_prefill(r) ? UM_PASS_PREFILL : UM_PASS_COMMIT;
}

#ifdef __cplusplus
}
#endif
#endif
