/* The sizes of the passes that an engine will often run. A backend prepares for them at the start. */
#include "engine/expect.h"

#include <stdlib.h>

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

/* Returns number i of the numbers of requests, or 0 behind the last one. */
static int32_t requests_at(const um_expectation *e, int32_t i) {
    if (e->n_sizes) return i < e->n_sizes ? e->size[i] : 0;
    const int64_t n = (int64_t)1 << i;
    return n / 2 < e->max_reqs ? (int32_t)UM_MIN(n, e->max_reqs) : 0;
}

/* Adds the passes of the numbers of requests whose spans read at most `keys` keys. */
static void add_requests(list *l, const um_expectation *e, int32_t keys) {
    int32_t n;
    for (int32_t i = 0; (n = requests_at(e, i)); i++) {
        add_pass(l, e, n, e->block, keys);
        if (e->whole && e->block < keys) add_pass(l, e, n, keys, keys);
        if ((int64_t)n * e->block >= e->max_tokens) return;
    }
}

static int compare(const void *a, const void *b) { return *(const int32_t *)a - *(const int32_t *)b; }

bool um_expect_requests(um_expectation *e, const char *sizes) {
    const int32_t most = UM_MIN(e->max_reqs, e->max_tokens);
    int32_t n = 0;
    e->n_sizes = 0;
    if (um_streq(sizes, "auto")) return true;
    for (const char *p = sizes; *p; p += strcspn(p, ","), p += *p == ',') {
        const int32_t size = atoi(p); /* 0 for the word none */
        if (size >= 1 && size <= most && n < UM_GRAPH_SIZES_MAX) e->size[n++] = size;
    }
    qsort(e->size, (size_t)n, sizeof e->size[0], compare);
    for (int32_t i = 0; i < n; i++)
        if (i == 0 || e->size[i] != e->size[i - 1]) e->size[e->n_sizes++] = e->size[i];
    return e->n_sizes > 0;
}

int32_t um_expect_passes(const um_expectation *e, um_pass_size *out, int32_t most) {
    list l = {.out = out, .most = most};
    for (int64_t keys = CONTEXT_LEAST;; keys *= 2) {
        add_requests(&l, e, (int32_t)UM_MIN(keys, e->max_len));
        if (keys >= e->max_len) return l.n;
    }
}
