/* Helpers for tests that set each logit themselves and check the answers of every backend. */
#ifndef UM_TESTS_OPS_GIVEN_H
#define UM_TESTS_OPS_GIVEN_H

#include "ops_world.h"

enum { VOCAB_MAX = 700 };

/* A head whose logits are given by the test: its matrix is [n, 1] and its hidden row is 1. */
typedef struct given {
    const world *w;
    um_weight *m;
    float one;
    int32_t n;
} given;

static inline given open_given(const world *w, const float *z, int32_t n) {
    um_tensor t = {.name = "given", .type = UM_F32, .n_dims = 2, .dim = {n, 1}, .data = z};
    return (given){w, make_weight(w, &t, 1), 1, n};
}

static inline void close_given(given *g) { g->w->ops->weight_free(g->w->dev, g->m); }

static const um_row greedy = {.w = {1, 0}, .how = {.top_p = 1}, .want = 31};

static inline um_answer ask(const given *g, const um_row *r) {
    um_answer a;
    memset(&a, 0xff, sizeof a);
    um_head h = {
        .w = g->m, .hidden = &g->one, .hidden_size = 1, .vocab = g->n, .scale = 1, .row = r, .n_rows = 1, .answer = &a};
    g->w->ops->head(g->w->dev, &h);
    return a;
}

static inline void assert_near(double got, double want) {
    if (!(fabs(got - want) <= 1e-6 + 1e-5 * fabs(want))) fail_msg("%.9g, expected %.9g", got, want);
}

/* Calls check for every backend and instruction set in fp32. */
static inline void for_each_backend(void (*check)(const world *w)) {
    for (const um_ops *const *ops = um_ops_all; *ops; ops++) {
        const char *const *isa = isas_of(*ops);
        do {
            world w = open_world(*ops, *isa, UM_F32, 2);
            check(&w);
            close_world(&w);
        } while (*isa && *++isa);
    }
}

/* Sets four logits with the probabilities 0.4, 0.3, 0.2 and 0.1 in several tiles, and all others to -200. */
static inline void four_logits(float *z, int32_t n) {
    for (int32_t i = 0; i < n; i++) z[i] = -200;
    z[10] = logf(0.3f), z[300] = logf(0.4f), z[301] = logf(0.1f), z[690] = logf(0.2f);
}

#endif
