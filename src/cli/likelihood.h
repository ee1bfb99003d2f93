/* likelihood: estimates how likely the known answers of questions are under a model, with scores of the engine
 * (um_engine_score, docs/scoring.md): the same estimate as the command `score`, with a seed for each question, so that
 * equal models get equal numbers. Single-threaded. */
#ifndef UM_CLI_LIKELIHOOD_H
#define UM_CLI_LIKELIHOOD_H

#include "cli/cli.h"
#include "cli/dataset.h"
#include "cli/result_file.h"

typedef struct um_likelihood_run {
    const um_dataset *data;
    const char *path;    /* of the questions */
    const char *adapter; /* or NULL */
    int32_t n_masks;     /* passes over each block of an answer */
    bool raw;            /* prompts are plain text */
    bool json, quiet;
    um_result_file *out; /* gets a line for each answer; its descriptor -1: no file */
} um_likelihood_run;
/* Estimates the likelihood of all answers and prints the report. Errors: those of um_engine_score for an answer, with
 * the id of its question; UM_EDEVICE, UM_EIO; UM_ECANCELED after a signal. */
um_status um_likelihood_measure(const um_session *s, const um_config *c, const um_likelihood_run *r, um_err *err);

#endif
