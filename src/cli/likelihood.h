/* likelihood: estimates how likely the known answers of questions are under a model. An answer is not written by
 * decoding: some of its positions are masked, and a pass predicts them from all others.
 *
 * The estimate is the one of LLaDA (Nie et al., arXiv 2502.09992, equation 6), for each block on its own:
 *     -log p <= E over l and the masked positions of  (L / l) * sum over the l masked positions of -log p(token)
 * L is the number of positions of the answer in the block, and l is uniform in 1..L. In a model without blocks, the
 * answer is one block. The blocks before it hold the known answer. The numbers l are spread evenly over 1..L, and the
 * masked positions are drawn from a fixed seed, so that equal models get equal numbers. Single-threaded. */
#ifndef UM_CLI_LIKELIHOOD_H
#define UM_CLI_LIKELIHOOD_H

#include "cli/cli.h"
#include "cli/dataset.h"
#include "cli/result_file.h"

/* Sums over answers. */
typedef struct um_likelihood {
    int64_t answers, tokens, passes;
    double nats; /* estimates of -log p */
} um_likelihood;

struct um_engine;
/* Adds an answer [n_answer] to a prompt [n_prompt], n_prompt >= 1, to *sum. Makes n_masks passes for each block of the
 * answer with the engine's forward pass; no request may be running. `number` chooses the masked positions. Errors:
 * UM_ELIMIT for a sequence that is longer than a pass; UM_EDEVICE; UM_ECANCELED after a signal. */
um_status um_likelihood_add(struct um_engine *e, const int32_t *prompt, size_t n_prompt, const int32_t *answer,
                            size_t n_answer, int32_t adapter, int32_t n_masks, uint64_t number, um_likelihood *sum,
                            um_err *err);

typedef struct um_likelihood_run {
    const um_dataset *data;
    const char *path;    /* of the questions */
    const char *adapter; /* or NULL */
    int32_t n_masks;
    bool raw; /* prompts are plain text */
    bool json, quiet;
    um_result_file *out; /* gets a line for each answer; its descriptor -1: no file */
} um_likelihood_run;
/* Estimates the likelihood of all answers and prints the report. Errors: those of um_likelihood_add and of encoding;
 * UM_EIO. */
um_status um_likelihood_measure(const um_session *s, const um_config *c, const um_likelihood_run *r, um_err *err);

#endif
