/* Calls a registered sampler once for all its blocks of a step, of whatever request. */
#include <math.h>

#include "decode/sampler_batch.h"

struct um_sampler_space {
    int32_t rows_max;
    size_t n_samplers; /* samplers of the process when the space was made */
    const um_sampler *sampler;
    um_sampler_call **call; /* [n_blocks] */
    um_sampler_batch batch;
    /* The arrays of the batch: [rows_max] each, for a block has at least one row. */
    int32_t *first, *block, *position, *id, *length, *pass, *answer;
    float *probability, *margin, *entropy, *param;
    bool *forced, *accept, *failed;
    int64_t *request, *seed;
    um_logprob *top;
    void **memory;
};

/* Returns the largest n_top of the registered samplers; -1: there are none. Counts all samplers. */
static int32_t largest_n_top(size_t *n_samplers) {
    const um_sampler *s;
    int32_t most = -1;
    for (*n_samplers = 0; (s = um_sampler_at(*n_samplers)); (*n_samplers)++)
        if (s->def) most = UM_MAX(most, s->def->n_top);
    return most;
}

um_sampler_space *um_sampler_space_new(int32_t rows_max) {
    size_t n_samplers;
    const int32_t n_top = largest_n_top(&n_samplers);
    if (n_top < 0) return NULL;
    um_sampler_space *p = UM_NEW(um_sampler_space);
    const size_t n = (size_t)rows_max;
    *p = (um_sampler_space){.rows_max = rows_max,
                            .n_samplers = n_samplers,
                            .call = UM_NEW_ARRAY(um_sampler_call *, n),
                            .first = UM_NEW_ARRAY(int32_t, n + 1),
                            .block = UM_NEW_ARRAY(int32_t, n),
                            .position = UM_NEW_ARRAY(int32_t, n),
                            .id = UM_NEW_ARRAY(int32_t, n),
                            .length = UM_NEW_ARRAY(int32_t, n),
                            .pass = UM_NEW_ARRAY(int32_t, n),
                            .answer = UM_NEW_ARRAY(int32_t, n),
                            .probability = UM_NEW_ARRAY(float, n),
                            .margin = UM_NEW_ARRAY(float, n),
                            .entropy = UM_NEW_ARRAY(float, n),
                            .param = UM_NEW_ARRAY(float, um_mul(n, UM_SAMPLER_PARAMS_MAX)),
                            .forced = UM_NEW_ARRAY(bool, n),
                            .accept = UM_NEW_ARRAY(bool, n),
                            .failed = UM_NEW_ARRAY(bool, n),
                            .request = UM_NEW_ARRAY(int64_t, n),
                            .seed = UM_NEW_ARRAY(int64_t, n),
                            .top = n_top ? UM_NEW_ARRAY(um_logprob, um_mul(n, (size_t)n_top)) : NULL,
                            .memory = UM_NEW_ARRAY(void *, n)};
    return p;
}

void um_sampler_space_free(um_sampler_space *p) {
    if (!p) return;
    void *array[] = {p->call,   p->first,   p->block,       p->position, p->id,      p->length, p->pass,
                     p->answer, p->param,   p->probability, p->margin,   p->entropy, p->forced, p->accept,
                     p->failed, p->request, p->seed,        p->top,      p->memory};
    for (size_t i = 0; i < UM_LEN(array); i++) um_free(array[i]);
    um_free(p);
}

um_status um_sampler_space_check(const um_sampler_space *p, const um_sampler *s, um_err *err) {
    if (!s || !s->def) return UM_OK;
    for (size_t i = 0; p && i < p->n_samplers; i++)
        if (um_sampler_at(i) == s) return UM_OK;
    return um_fail_param(err, UM_EUNSUPPORTED, "sampler",
                         "%s was registered after the engine was made; register samplers first", s->name);
}

void um_sampler_space_begin(um_sampler_space *p, const um_sampler *s) {
    const um_sampler_def *d = s->def;
    p->sampler = s;
    p->batch = (um_sampler_batch){.size = sizeof p->batch,
                                  .first = p->first,
                                  .block = p->block,
                                  .position = p->position,
                                  .id = p->id,
                                  .probability = p->probability,
                                  .margin = d->reads & UM_READ_MARGIN ? p->margin : NULL,
                                  .entropy = d->reads & UM_READ_ENTROPY ? p->entropy : NULL,
                                  .top = d->n_top ? p->top : NULL,
                                  .n_top = d->n_top,
                                  .length = p->length,
                                  .pass = p->pass,
                                  .forced = p->forced,
                                  .request = p->request,
                                  .answer = p->answer,
                                  .seed = p->seed,
                                  .param = p->param,
                                  .n_params = d->n_params,
                                  .memory = d->memory ? p->memory : NULL,
                                  .accept = p->accept,
                                  .failed = p->failed};
    p->first[0] = 0;
}

static void add_candidate(um_sampler_space *p, const um_sampler_call *call, int32_t i, const um_answer *a) {
    um_sampler_batch *b = &p->batch;
    const int32_t k = b->n++;
    assert(k < p->rows_max);
    p->block[k] = b->n_blocks;
    p->position[k] = call->position[i];
    p->id[k] = a->sample;
    p->probability[k] = a->q_sample;
    p->accept[k] = false;
    if (b->margin) p->margin[k] = a->second >= 0 ? a->q_best - a->q_second : a->q_best;
    if (b->entropy) p->entropy[k] = a->entropy;
    for (int32_t t = 0; t < b->n_top; t++) {
        const um_top *top = &a->top[t];
        p->top[(size_t)k * (size_t)b->n_top + (size_t)t] =
            (um_logprob){top->id, top->id < 0 ? -INFINITY : logf(top->p)};
    }
}

void um_sampler_space_add(um_sampler_space *p, um_req *r, int64_t request, int32_t index, const um_answer *answer) {
    um_sampler_batch *b = &p->batch;
    for (int32_t c = 0; c < r->n_calls; c++) {
        um_sampler_call *call = &r->call[c];
        const int32_t k = b->n_blocks;
        for (int32_t i = 0; i < call->n; i++) add_candidate(p, call, i, &answer[call->row + i]);
        p->call[k] = call;
        p->length[k] = call->length;
        p->pass[k] = call->pass;
        p->forced[k] = call->forced;
        p->failed[k] = false;
        p->request[k] = request;
        p->answer[k] = index;
        p->seed[k] = (int64_t)r->seed;
        p->memory[k] = call->memory;
        memcpy(p->param + (size_t)k * (size_t)b->n_params, r->how.registered + p->sampler->first_param,
               (size_t)b->n_params * sizeof(float));
        p->first[++b->n_blocks] = b->n;
    }
}

/* A block that must get a token gets its most probable one if the sampler has accepted none. */
static void force(um_sampler_space *p, int32_t k) {
    int32_t best = p->first[k];
    for (int32_t i = p->first[k]; i < p->first[k + 1]; i++) {
        if (p->accept[i]) return;
        if (p->probability[i] > p->probability[best]) best = i;
    }
    p->accept[best] = true;
}

void um_sampler_space_run(um_sampler_space *p) {
    const um_sampler_batch *b = &p->batch;
    const um_sampler_def *d = p->sampler->def;
    if (b->n_blocks == 0) return;
    d->accept(d->arg, b);
    for (int32_t k = 0; k < b->n_blocks; k++) {
        um_sampler_call *call = p->call[k];
        if (p->forced[k]) force(p, k);
        call->failed = p->failed[k];
        memcpy(call->accept, p->accept + p->first[k], (size_t)call->n * sizeof(bool));
    }
}
