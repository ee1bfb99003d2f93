/* Wraps the operations of a backend and records each as a span of a profile. For a backend whose operations return
 * before they are done, a span shows only the time to issue the operation. */
#include "ops/ops.h"

/* The um_dev of this backend is a um_timed. */
#define TIMED(dev) ((um_timed *)(void *)(dev))

#define SPAN(name, size, call)                                                                                         \
    do {                                                                                                               \
        um_timed *t = TIMED(dev);                                                                                      \
        double since = um_profile_enter(t->profile);                                                                   \
        t->ops->call;                                                                                                  \
        um_profile_leave(t->profile, since, name, size);                                                               \
    } while (0)

static void kv_copy(um_dev *dev, um_kv *kv, int32_t from_page, int32_t to_page, int32_t n) {
    SPAN("kv_copy", n, kv_copy(t->dev, kv, from_page, to_page, n));
}

static void embed(um_dev *dev, const um_weight *w, const int32_t *id, int32_t n_tokens, float scale, float *x) {
    SPAN("embed", n_tokens, embed(t->dev, w, id, n_tokens, scale, x));
}

static void embed_soft(um_dev *dev, const um_weight *w, const um_soft *soft, int32_t n_soft, float scale, float *x) {
    SPAN("embed_soft", n_soft, embed_soft(t->dev, w, soft, n_soft, scale, x));
}

static void norm(um_dev *dev, const float *x, const um_norm *how, int32_t n_tokens, int32_t n, float *y) {
    SPAN("norm", n_tokens, norm(t->dev, x, how, n_tokens, n, y));
}

static void norm_add(um_dev *dev, float *y, const um_norm *how, int32_t n_tokens, int32_t n, float scale, float *x) {
    SPAN("norm_add", n_tokens, norm_add(t->dev, y, how, n_tokens, n, scale, x));
}

static void sum(um_dev *dev, const float *const *part, int n_parts, size_t n, bool add, float *y) {
    SPAN("sum", (int32_t)UM_MIN(n, INT32_MAX), sum(t->dev, part, n_parts, n, add, y));
}

static void copy_rows(um_dev *dev, const float *x, const int32_t *from, const int32_t *to, int32_t n_rows,
                      int32_t stride, int32_t n, float *y) {
    SPAN("copy_rows", n_rows, copy_rows(t->dev, x, from, to, n_rows, stride, n, y));
}

static void linear(um_dev *dev, const um_weight *w, const float *bias, const float *x, int32_t n_tokens, bool add,
                   float *y) {
    SPAN("linear", n_tokens, linear(t->dev, w, bias, x, n_tokens, add, y));
}

static void rope_kv(um_dev *dev, um_kv *kv, const um_rope_kv *a) {
    SPAN("rope_kv", a->n_tokens, rope_kv(t->dev, kv, a));
}

static void attention(um_dev *dev, const um_kv *kv, const um_attention *a) {
    SPAN("attention", a->batch->n_tokens, attention(t->dev, kv, a));
}

static void kv_select(um_dev *dev, um_kv *kv, const um_attention *a) {
    SPAN("kv_select", a->batch->n_tokens, kv_select(t->dev, kv, a));
}

static void gate(um_dev *dev, um_act act, const float *gu, int32_t n_tokens, int32_t n, float *y) {
    SPAN("gate", n_tokens, gate(t->dev, act, gu, n_tokens, n, y));
}

static void linear_gate(um_dev *dev, um_act act, const um_weight *w, const float *bias, const float *x,
                        int32_t n_tokens, float *y) {
    SPAN("linear_gate", n_tokens, linear_gate(t->dev, act, w, bias, x, n_tokens, y));
}

static void moe(um_dev *dev, const um_moe *a) { SPAN("moe", a->n_tokens, moe(t->dev, a)); }

static void head(um_dev *dev, const um_head *a) {
    um_head recorded = *a;
    recorded.profile = TIMED(dev)->profile;
    SPAN("head", a->n_rows, head(t->dev, &recorded));
}

static um_status submit(um_dev *dev, um_err *err) {
    const um_timed *t = TIMED(dev);
    return t->ops->submit ? t->ops->submit(t->dev, err) : UM_OK;
}

static um_status wait(um_dev *dev, um_err *err) {
    const um_timed *t = TIMED(dev);
    if (!t->ops->wait) return UM_OK;
    double since = um_profile_enter(t->profile);
    um_status st = t->ops->wait(t->dev, err);
    um_profile_leave(t->profile, since, "wait", 0);
    return st;
}

const um_ops um_ops_timed = {.name = "timed",
                             .kv_copy = kv_copy,
                             .embed = embed,
                             .embed_soft = embed_soft,
                             .norm = norm,
                             .norm_add = norm_add,
                             .sum = sum,
                             .copy_rows = copy_rows,
                             .linear = linear,
                             .rope_kv = rope_kv,
                             .attention = attention,
                             .kv_select = kv_select,
                             .gate = gate,
                             .linear_gate = linear_gate,
                             .moe = moe,
                             .head = head,
                             .submit = submit,
                             .wait = wait};

/* Fails to compile when an operation is added, as a reminder to wrap it. The table has a name, a number padded to the
 * size of a pointer, 15 functions that create, measure and free objects, 15 operations, submit and wait. */
_Static_assert(sizeof(um_ops) == (2 + 15 + 15 + 2) * sizeof(void *), "every operation of a pass is timed");
