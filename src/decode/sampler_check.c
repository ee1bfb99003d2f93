/* Tests the rules of registered samplers on made-up blocks. */
#include <math.h>

#include "decode/decode.h"

enum { BLOCKS = 6, LENGTH = 16, ROWS = BLOCKS * LENGTH, TRIALS = 300, TOP = UM_TOP_MAX };

/* The arrays of a batch, and the memories of its blocks. */
typedef struct made_up {
    int32_t first[BLOCKS + 1], block[ROWS], position[ROWS], id[ROWS], length[BLOCKS], pass[BLOCKS], answer[BLOCKS];
    float probability[ROWS], margin[ROWS], entropy[ROWS], param[BLOCKS * UM_SAMPLER_PARAMS_MAX];
    bool forced[BLOCKS], accept[ROWS], failed[BLOCKS];
    int64_t request[BLOCKS], seed[BLOCKS];
    um_logprob top[ROWS * TOP];
    unsigned char *memory[BLOCKS]; /* [def->memory] each */
    um_sampler_batch batch;
} made_up;

static void point(made_up *m, const um_sampler_def *d) {
    m->batch = (um_sampler_batch){.size = sizeof m->batch,
                                  .first = m->first,
                                  .block = m->block,
                                  .position = m->position,
                                  .id = m->id,
                                  .probability = m->probability,
                                  .margin = d->reads & UM_READ_MARGIN ? m->margin : NULL,
                                  .entropy = d->reads & UM_READ_ENTROPY ? m->entropy : NULL,
                                  .top = d->n_top ? m->top : NULL,
                                  .n_top = d->n_top,
                                  .length = m->length,
                                  .pass = m->pass,
                                  .forced = m->forced,
                                  .request = m->request,
                                  .answer = m->answer,
                                  .seed = m->seed,
                                  .param = m->param,
                                  .n_params = d->n_params,
                                  .memory = d->memory ? (void *const *)m->memory : NULL,
                                  .accept = m->accept,
                                  .failed = m->failed};
}

static float uniform(uint64_t *state) { return (float)um_rng_uniform((*state)++, 0); }

static void make_candidate(made_up *m, const um_sampler_def *d, int32_t k, int32_t block, int32_t i, uint64_t *state) {
    const float p = uniform(state);
    m->block[k] = block;
    m->position[k] = 10 + 2 * i;
    m->id[k] = (int32_t)(1000 * uniform(state));
    m->probability[k] = p;
    m->margin[k] = p * uniform(state);
    m->entropy[k] = -logf(p + 1e-6F);
    for (int32_t t = 0; t < d->n_top; t++)
        m->top[k * d->n_top + t] = (um_logprob){m->id[k] + t, logf(p + 1e-6F) - (float)t};
}

/* Block `number` of a trial is the same in each batch. */
static void add_block(made_up *m, const um_sampler_def *d, uint64_t trial, int32_t number) {
    um_sampler_batch *b = &m->batch;
    uint64_t state = um_rng_key(trial, (uint64_t)number, 0, 0);
    const int32_t k = b->n_blocks, n = 1 + (int32_t)(LENGTH * 0.999F * uniform(&state));
    for (int32_t i = 0; i < n; i++) make_candidate(m, d, b->n++, k, i, &state);
    m->length[k] = LENGTH;
    m->pass[k] = 1 + (int32_t)(LENGTH * uniform(&state));
    m->forced[k] = uniform(&state) < 0.7F;
    m->request[k] = number + 1;
    m->answer[k] = 0;
    m->seed[k] = (int64_t)(1e6F * uniform(&state));
    for (int32_t i = 0; i < d->n_params; i++) m->param[k * d->n_params + i] = d->params[i].usual;
    if (d->memory) memset(m->memory[k], 0, d->memory);
    m->failed[k] = false;
    m->first[++b->n_blocks] = b->n;
}

/* Makes a batch of the blocks from `first` on, `n` of them, in steps of `step`. */
static void make(made_up *m, const um_sampler_def *d, uint64_t trial, int32_t first, int32_t n, int32_t step) {
    point(m, d);
    m->first[0] = 0;
    for (int32_t i = 0; i < n; i++) add_block(m, d, trial, first + step * i);
    memset(m->accept, 0, sizeof m->accept);
}

static um_status broken(const um_sampler_def *d, const char *rule, um_err *err) {
    return um_fail(err, UM_EINVAL, "sampler %s: %s", d->name, rule);
}

/* Decides about the blocks together, and checks each alone. */
static um_status check_decision(const um_sampler_def *d, made_up *m, const made_up *before, um_err *err) {
    const size_t decided = offsetof(made_up, accept);
    d->accept(d->arg, &m->batch);
    if (memcmp(m, before, decided) || memcmp(m->request, before->request, sizeof m->request) ||
        memcmp(m->seed, before->seed, sizeof m->seed) || memcmp(m->top, before->top, sizeof m->top))
        return broken(d, "it changes arrays that it may only read", err);
    for (int32_t k = 0; k < m->batch.n_blocks; k++)
        if (m->failed[k]) return broken(d, "it fails on an ordinary block", err);
    return UM_OK;
}

/* Compares block `from` of m with block `to` of other. */
static bool same_decision(const made_up *m, int32_t from, const made_up *other, int32_t to) {
    const int32_t n = m->first[from + 1] - m->first[from];
    return memcmp(m->accept + m->first[from], other->accept + other->first[to], (size_t)n) == 0;
}

static um_status check_trial(const um_sampler_def *d, uint64_t trial, made_up *all, made_up *other, made_up *before,
                             um_err *err) {
    make(all, d, trial, 0, BLOCKS, 1);
    make(before, d, trial, 0, BLOCKS, 1);
    um_status st = check_decision(d, all, before, err);
    if (st) return st;
    make(other, d, trial, 0, BLOCKS, 1);
    d->accept(d->arg, &other->batch);
    for (int32_t k = 0; k < BLOCKS; k++)
        if (!same_decision(all, k, other, k)) return broken(d, "it decides the same blocks in another way", err);
    make(other, d, trial, BLOCKS - 1, BLOCKS, -1);
    d->accept(d->arg, &other->batch);
    for (int32_t k = 0; k < BLOCKS; k++)
        if (!same_decision(all, k, other, BLOCKS - 1 - k))
            return broken(d, "its decision depends on the order of the blocks", err);
    for (int32_t k = 0; k < BLOCKS; k++) {
        make(other, d, trial, k, 1, 1);
        d->accept(d->arg, &other->batch);
        if (!same_decision(all, k, other, 0))
            return broken(d, "its decision about a block depends on the other blocks of the batch", err);
    }
    return UM_OK;
}

um_status um_check_sampler(const um_sampler_def *def, um_err *err) {
    um_status st = um_sampler_def_check(def, err);
    if (st) return st;
    made_up *m[3];
    for (int i = 0; i < 3; i++) {
        m[i] = UM_NEW(made_up);
        for (int k = 0; k < BLOCKS; k++) m[i]->memory[k] = def->memory ? um_zalloc(def->memory) : NULL;
    }
    for (uint64_t trial = 0; trial < TRIALS && !st; trial++) st = check_trial(def, trial, m[0], m[1], m[2], err);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < BLOCKS; k++) um_free(m[i]->memory[k]);
        um_free(m[i]);
    }
    return st;
}
