/* The sizes of the passes that an engine will often run. A backend prepares for them at the start. */
#include "engine/expect.h"

#include "base/base.h"

enum { CONTEXT_LEAST = 256, SHARED_ROWS = 64 };

typedef struct list {
    um_pass_size *out;
    int32_t n, most;
} list;

static void add(list *l, const um_pass_size *size) {
    if (l->n < l->most) l->out[l->n++] = *size;
}

/* Adds a pass of n requests with `each` tokens. In the middle of an answer, half of the tokens are masks, and only they
 * have rows; few rows cost no time. */
static void add_pass(list *l, const um_expectation *e, int32_t n, int32_t each, int32_t keys) {
    const int32_t n_tokens = (int32_t)UM_MIN((int64_t)n * each, e->max_tokens);
    um_pass_size size = {.n_tokens = n_tokens, .n_spans = n, .n_rows = n_tokens, .keys = keys};
    if (each > e->max_tokens) return;
    for (int i = 0; i < 2; i++) {
        add(l, &size);
        size.adapts = e->adapts;
        if (size.adapts) add(l, &size);
        size.adapts = false;
        if (n_tokens <= SHARED_ROWS) return;
        size.n_rows = UM_CEIL_DIV(n_tokens, 2);
    }
}

/* Adds the passes of 1, 2, 4 ... max_reqs requests whose spans read at most `keys` keys. */
static void add_requests(list *l, const um_expectation *e, int32_t keys) {
    for (int64_t n = 1;; n *= 2) {
        const int32_t n_reqs = (int32_t)UM_MIN(n, e->max_reqs);
        add_pass(l, e, n_reqs, e->block, keys);
        if (e->whole && e->block < keys) add_pass(l, e, n_reqs, keys, keys);
        if (n >= e->max_reqs || n * e->block >= e->max_tokens) return;
    }
}

int32_t um_expect_passes(const um_expectation *e, um_pass_size *out, int32_t most) {
    list l = {.out = out, .most = most};
    for (int64_t keys = CONTEXT_LEAST;; keys *= 2) {
        add_requests(&l, e, (int32_t)UM_MIN(keys, e->max_len));
        if (keys >= e->max_len) return l.n;
    }
}
