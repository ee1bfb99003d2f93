/* Helpers for engine tests: they open a model and an engine on a tiny checkpoint, and collect answers from events. */
#ifndef UM_TESTS_SUPPORT_H
#define UM_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/engine.h"

/* Returns the seed of a randomised test: UM_TEST_SEED, or a new one. Prints it, so that a failure can be repeated. */
uint64_t test_seed(void);

/* Returns the device that tests of the engine use: UM_TEST_DEVICE, or `otherwise`. */
const char *test_device(const char *otherwise);

/* Returns the ranks that compute the models of test_config: UM_TEST_RANKS, or 1. */
int32_t test_ranks(void);
/* Returns whether there are devices for so many ranks; says so when there are not. */
bool test_has_room(const char *device, int32_t ranks);

/* Fills a configuration for build/data/golden/models/<name>, or build/data/<name> when it contains a '/', in fp32, on
 * test_device("cpu") in test_ranks() ranks. With UM_TEST_EXPERT_PARALLEL ranks have whole experts of sdar_moe and
 * llada2. The configuration points to `path`, which receives the folder. */
void test_config(um_config *c, const char *name, char *path, size_t path_size);

typedef struct test_engine {
    um_model *model;
    um_engine *engine;
    int32_t n_processes;      /* beside this one */
    pid_t rank[UM_RANKS_MAX]; /* [1 + n_processes] */
} test_engine;
/* Opens the model and an engine. Fails the test on an error. With UM_TEST_PROCESSES the ranks of the model are
 * processes.
 */
void test_open(test_engine *t, const um_config *c);
void test_close(test_engine *t);
/* Steps until no request is pending. */
void test_drain(um_engine *e);

/* Resets the parameters that neither the strategy nor the sampler of `d` reads to their defaults. The sampler "auto"
 * reads none. */
void test_drop_unread(um_decoding *d);

/* The answer to a request: its streamed text and tokens, and its result. */
typedef struct test_answer {
    int32_t token[512];
    int32_t n, nfe, n_events, prompt_tokens;
    int32_t streamed_token[512], n_streamed;
    um_finish finish;
    bool done;
    int64_t seed;
    char text[8192], streamed[8192];
} test_answer;
/* Handles an event of a request whose `arg` is a test_answer. */
void test_collect(void *answer, const um_event *ev);

#endif
