/* A fixture for tests of recorded logits: a model in fp32, its forward passes, and all logits of a pass. */
#ifndef TESTS_FORWARD_FIXTURE_H
#define TESTS_FORWARD_FIXTURE_H

#include "model/model.h"
#include "ops/host/host.h"

#define PAGE   32
#define PAGES  24
#define TOKENS 128 /* most tokens of a pass whose logits are computed */

typedef struct fixture {
    um_model *model;
    um_forward *forward;
    float *logits; /* [TOKENS, vocab] */
} fixture;

static inline void open_fixture(fixture *f, const char *folder, const char *device) {
    um_err err = {0};
    um_config c;
    um_config_init(&c);
    c.model = folder;
    c.threads = 2;
    c.max_num_batched_tokens = 2 * TOKENS;
    strcpy(c.device, device);
    strcpy(c.dtype, "float32");
    if (um_model_open(&f->model, &c, &err)) fail_msg("%s", err.msg);
    um_forward_config fc = {.max_tokens = 2 * TOKENS,
                            .max_rows = 2 * TOKENS,
                            .n_saved = 2 * TOKENS,
                            .n_blends = TOKENS,
                            .page_size = PAGE,
                            .n_pages = PAGES,
                            .kv_type = UM_F32};
    if (f->model->backend->forward_new(&f->forward, f->model->device, &f->model->net, &fc, &err))
        fail_msg("%s", err.msg);
    void *p = NULL;
    size_t bytes = sizeof(float) * TOKENS * (size_t)f->model->arch.vocab;
    if (f->model->device->ops->buffer(f->model->device->dev, &p, bytes, "logits", &err)) fail_msg("%s", err.msg);
    f->logits = p;
}

static inline void close_fixture(fixture *f) {
    f->model->device->ops->buffer_free(f->model->device->dev, f->logits);
    f->model->backend->forward_free(f->forward);
    um_model_close(f->model);
}

static inline void run(fixture *f, const um_batch *b) {
    assert_int_equal(f->model->backend->submit(f->forward, b, NULL), UM_OK);
    assert_int_equal(f->model->backend->wait(f->forward, NULL), UM_OK);
}

/* Runs a pass without rows that computes the final hidden rows of all tokens, by saving them. */
static inline void run_whole(fixture *f, const um_batch *b) {
    int32_t save[2 * TOKENS][2];
    um_batch all = *b;
    for (int32_t i = 0; i < b->n_tokens; i++) save[i][0] = save[i][1] = i;
    all.save = (const int32_t(*)[2])save;
    all.n_saves = b->n_tokens;
    run(f, &all);
}

/* Computes the logits of the first n hidden rows of the last pass. */
static inline void compute_logits(fixture *f, int32_t n) {
    const um_model *m = f->model;
    m->device->ops->linear(m->device->dev, m->net.head, NULL, um_host_hidden(f->forward), n, false, f->logits);
}

/* Returns element i of a recorded tensor of 64-bit integers. */
static inline int32_t int_at(const um_tensor *t, int32_t i) {
    int64_t v;
    memcpy(&v, (const char *)t->data + (size_t)i * sizeof v, sizeof v);
    return (int32_t)v;
}

#endif
