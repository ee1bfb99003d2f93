/* host: the backend that runs in the program's own memory. The pass (transformer.c) is a sequence of operations from a
 * table (ops.h), over fp32 activations. Used inside ops/host only. */
#ifndef UM_OPS_HOST_H
#define UM_OPS_HOST_H

#include "ops/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

struct um_device {
    const um_ops *ops;
    um_dev *dev; /* the operations' device that holds the weights */
    um_dev_config config;
    bool in_use; /* a um_forward computes on `dev`; read and written atomically */
};

struct um_vector {
    float *data;
};

/* Returns the values of v; NULL for NULL. */
static inline const float *um_values(const um_vector *v) { return v ? v->data : NULL; }

/* The tokens of a pass whose final hidden rows are read, or that share a routing block with such a token (final.c). The
 * arrays have space for all tokens of a pass. */
typedef struct um_final {
    um_batch batch;    /* these tokens only: n_tokens, seen_end, and the spans that have any, without selections */
    int32_t *token;    /* [batch.n_tokens] ascending tokens of the whole batch */
    int32_t *block;    /* [batch.n_tokens] routing block of each; undefined when experts are chosen per token */
    int32_t *seen_end; /* arrays of `batch` */
    um_span *span;
} um_final;

/* Finds these tokens of b, whose spans cover all tokens in ascending order. block [n_tokens] are the routing blocks of
 * all tokens; NULL when experts are chosen per token. */
void um_final_find(um_final *f, const um_batch *b, const int32_t *block);

/* Returns a device of the operations for one um_forward: d->dev if no other um_forward uses it, else a new one of the
 * same configuration with its own threads and scratch memory. All of them read the same weights. *out is released with
 * um_host_release. Any thread. Errors: UM_ENOMEM, UM_ELIMIT. */
um_status um_host_acquire(um_device *d, um_dev **out, um_err *err);
/* Releases a device of um_host_acquire. Any thread. */
void um_host_release(um_device *d, um_dev *dev);

/* The function of um_backend that measures the device (limits.c). */
um_status um_host_limits(um_device *d, um_device_limits *out, um_err *err);

/* The functions of um_backend for passes (transformer.c). */
um_status um_host_forward_new(um_forward **out, um_device *d, const um_network *n, const um_forward_config *c,
                              um_err *err);
void um_host_forward_free(um_forward *f);
um_forward_memory um_host_memory(const um_forward *f);
void um_host_copy_page(um_forward *f, int32_t from, int32_t to, int32_t n);
um_status um_host_submit(um_forward *f, const um_batch *b, um_err *err);
um_status um_host_wait(um_forward *f, um_err *err);
void um_host_profile(um_forward *f, um_profile *p);

#ifdef __cplusplus
}
#endif
#endif
