/* Selection of keys: the candidates, max-pooling, the prior, and the choice of the largest scores. */
#include "ops/select.h"

#include <math.h>

#include "base/base.h"

int32_t um_select_keys(const um_span *span, int32_t *vis) {
    um_range there[2], outside[2];
    int32_t n = 0;
    int n_there = um_range_without(span->keys, span->hole, there);
    for (int i = 0; i < n_there; i++) {
        int n_outside = um_range_without(there[i], span->select->block, outside);
        for (int k = 0; k < n_outside; k++)
            for (int32_t v = outside[k].start; v < outside[k].end; v++) vis[n++] = v;
    }
    return n;
}

int32_t um_select_token(const um_batch *b, const um_span *span, int32_t page_size, int32_t vis) {
    const int64_t slot = um_slot_of(span->page, page_size, vis);
    int32_t t = span->first;
    while (t < span->first + span->n && b->slot[t] != slot) t++;
    assert(t < span->first + span->n);
    return t;
}

void um_select_pool(const float *score, int32_t n, int32_t pool, float *out) {
    for (int32_t k = 0; k < n; k++) {
        int32_t start = pool > 1 ? k - pool / 2 : k, end = pool > 1 ? start + pool : k + 1;
        out[k] = -INFINITY;
        for (int32_t i = UM_MAX(start, 0); i < UM_MIN(end, n); i++)
            if (score[i] > out[k]) out[k] = score[i];
    }
}

void um_select_prior(float *score, int32_t n, int32_t d, const int32_t *vis, const um_kv_select *s) {
    const float scale = 1 / sqrtf((float)d);
    for (int32_t k = 0; k < n && s->prior; k++) score[k] = score[k] * scale + s->prior[vis[k]];
}

static bool comes_first(const float *score, int32_t a, int32_t b) {
    return score[a] > score[b] || (score[a] == score[b] && a < b);
}

static void swap(int32_t *a, int32_t *b) {
    int32_t t = *a;
    *a = *b;
    *b = t;
}

/* Moves entry i down in a heap of n entries until no child comes before it. */
static void sink(const float *score, int32_t *heap, int32_t n, int32_t i) {
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && comes_first(score, heap[child + 1], heap[child])) child++;
        if (comes_first(score, heap[i], heap[child])) return;
        swap(&heap[i], &heap[child]);
    }
}

void um_select_largest(const float *score, int32_t n, int32_t n_keep, int32_t *order) {
    for (int32_t i = 0; i < n; i++) order[i] = i;
    for (int32_t i = n / 2; i-- > 0;) sink(score, order, n, i);
    /* Moves the largest of the remaining scores to the end of the remaining range. */
    for (int32_t left = n; left > n - n_keep;) {
        left--;
        swap(&order[0], &order[left]);
        sink(score, order, left, 0);
    }
    for (int32_t i = 0; i < n / 2; i++) swap(&order[i], &order[n - 1 - i]);
}
