/* Shared by engine tests: a model and an engine over one of the tiny checkpoints, and answers collected from events. */
#ifndef UM_TESTS_SUPPORT_H
#define UM_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/engine.h"

/* Seed of a randomised test: UM_TEST_SEED, or fresh; printed so that a failure can be repeated. */
uint64_t test_seed(void);

/* A configuration for tests/golden/models/<name>, fp32. */
void test_config(um_config *c, const char *name, char *path, size_t path_size);

typedef struct test_engine {
    um_model *model;
    um_engine *engine;
} test_engine;
/* Opens both or fails the test. */
void test_open(test_engine *t, const um_config *c);
void test_close(test_engine *t);
void test_drain(um_engine *e);

/* Gives every parameter that neither the strategy nor the sampler reads, both named in `d`, its default. */
void test_drop_unread(um_decoding *d);

/* What a request said. */
typedef struct test_answer {
    int32_t token[512];
    int32_t n, nfe, n_events, prompt_tokens;
    int32_t streamed_token[512], n_streamed;
    um_finish finish;
    bool done;
    int64_t seed;
    char text[8192], streamed[8192];
} test_answer;
/* Event handler with a test_answer as argument. */
void test_collect(void *answer, const um_event *ev);

#endif
