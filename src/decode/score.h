/* score: the log-likelihood of a given answer.
 *
 * A score is scheduled like a request. Its strategy feeds the true tokens of prompt and answer with some of the
 * answer's tokens masked, and its rows ask for the probabilities of the true tokens. It writes nothing: r->token holds
 * prompt and answer from the start. The answer is scored block by block, or as one block where all positions see each
 * other. In a block the passes first fill the masks in the order of confidence, if that is asked for, and then feed
 * sets of masks.
 *
 * With blocks, everything before the block is stored from the true tokens, and shared with other requests. A position
 * behind the answer, in its last block, is a mask that is not scored, as it is when the block is decoded. Without
 * blocks a pass feeds several sets of masks, each as a segment of its own, and stores nothing. */
#ifndef UM_SCORE_H
#define UM_SCORE_H

#include "decode/decode.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Option rows of um_score_params. The first four are the rows of a command that takes the others from the engine's
 * options. `prefix` is the path of a um_score_params in the struct `type`. */
/* clang-format off */
#define UM_SCORING_ROWS(type, prefix)                                                                                  \
    {"method", NULL, UM_OPT_CHOICE, UM_FIELD(type, prefix method), 0, 0, "monte_carlo|left_to_right|confidence",       \
     "monte_carlo", NULL, "NAME", "Scoring",                                                                           \
     "estimate the likelihood from random sets of masks, or compute the one of an order of filling: left to right, or "\
     "the most confident prediction first"},                                                                           \
    {"samples", "mc_num", UM_OPT_INT, UM_FIELD(type, prefix samples), 1, 1000000, NULL, "128", NULL, "N", "Scoring",   \
     "monte_carlo: passes over the answer, or over each block of it"},                                                 \
    {"batch", "mc_batch_size", UM_OPT_INT, UM_FIELD(type, prefix batch), 1, 1000000, NULL, "auto", "0", "N",           \
     "Scoring",                                                                                                        \
     "monte_carlo: samples over which the numbers of masks are spread evenly; divides samples; auto leaves at least "  \
     "eight batches, from which the standard error is computed"},                                                      \
    {"check_greedy", "is_check_greedy", UM_OPT_BOOL, UM_FIELD(type, prefix check_greedy), 0, 0, NULL, "false", NULL,   \
     NULL, "Scoring", "monte_carlo: also find out whether greedy decoding would write the answer"}
/* clang-format on */
extern const um_option um_scoring_options[7];

extern const um_strategy um_strategy_score;

/* Sets up the score of a request whose n_prompt, limit (the end of the answer), max_len, traits and how are known. Sets
 * r->strategy. On failure nothing needs to be freed; else r->strategy->free frees it. Errors: UM_EINVAL, UM_ERANGE,
 * UM_EUNSUPPORTED. */
um_status um_scorer_new(um_req *r, const um_score_params *params, um_err *err);
/* Fills in the score itself: logprob, standard_error, token_logprob, n_tokens, is_greedy, passes and seed. */
void um_scorer_get(const um_req *r, um_score_result *out);

#ifdef __cplusplus
}
#endif
#endif
