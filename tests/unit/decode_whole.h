/* A test bench for whole-sequence strategies: a request, its passes, and answers given by position. */
#ifndef TESTS_DECODE_WHOLE_H
#define TESTS_DECODE_WHOLE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "decode/decode.h"

enum { MASK = 999, EOS = 900, CAP = 64, P = 3, PAGE = 8, SCRATCH = 1000 };

typedef struct bench {
    um_traits traits;
    um_compat compat;
    um_req req;
    int32_t stop, token[CAP], written[CAP];
    int32_t page[2][CAP], scratch[4 * CAP]; /* own pages are 10, 11 ... and 20, 21 ... */
    int32_t id[2 * CAP], pos[2 * CAP];
    um_row row[CAP];
    um_edit edit[CAP];
    um_segment seg[2];
    um_kv_select select[2];
    um_answer answer[CAP];
    um_pass pass;
} bench;

/* Starts a request of strategy s with a prompt of P tokens. Some parameters that are 0 in `how` get their default. */
static inline um_status start_with(bench *b, const um_strategy *s, um_decoding how, int32_t max_tokens, int32_t shift,
                                   um_err *err) {
    static const int32_t prompt[P] = {11, 12, 13};
    if (!how.sampler[0]) strcpy(how.sampler, "auto");
    if (!how.retention[0]) strcpy(how.retention, "attention");
    if (how.eps == 0) how.eps = 1e-3F;
    if (how.remask_threshold == 0) how.remask_threshold = NAN;
    *b = (bench){.stop = EOS, .compat = {.threshold = NAN}};
    b->traits = (um_traits){.mask_id = MASK,
                            .eos = EOS,
                            .stop = &b->stop,
                            .n_stop = 1,
                            .see = UM_SEE_FULL,
                            .page_size = PAGE,
                            .shift = shift,
                            .sampler = "low_confidence"};
    b->req = (um_req){.traits = &b->traits,
                      .compat = &b->compat,
                      .strategy = s,
                      .how = how,
                      .sampling = {.max_tokens = max_tokens},
                      .seed = 7,
                      .n_prompt = P,
                      .max_len = CAP,
                      .limit = UM_MIN(CAP, P + max_tokens),
                      .cap = CAP,
                      .page = {b->page[0], b->page[1]},
                      .token = b->token,
                      .written = b->written,
                      .end = P,
                      .filled = P,
                      .settled = INT32_MAX,
                      .adapter = -1};
    for (int32_t i = 0; i < CAP; i++) {
        b->token[i] = i < P ? prompt[i] : MASK;
        b->written[i] = i < P ? 0 : -1;
        b->page[0][i] = 10 + i;
        b->page[1][i] = 20 + i;
    }
    return s->init(&b->req, err);
}

static inline void plan(bench *b) {
    b->pass = (um_pass){.seg = b->seg,
                        .row = b->row,
                        .id = b->id,
                        .pos = b->pos,
                        .edit = b->edit,
                        .select = b->select,
                        .scratch = b->scratch,
                        .page_size = PAGE,
                        .first_scratch = SCRATCH,
                        .budget = 2 * CAP};
    b->req.strategy->plan(&b->req, &b->pass);
}

/* Returns the position that row i predicts. */
static inline int32_t predicted(const bench *b, int32_t i) { return b->pos[b->row[i].src[0]] + b->traits.shift; }

/* Answers every row with the id 100 + its position and probability confidence[position in the canvas]. Rows that ask
 * for the probability of a token get the same value. */
static inline void answer(bench *b, const float *confidence) {
    for (int32_t i = 0; i < b->pass.n_rows; i++) {
        int32_t pos = predicted(b, i);
        float p = confidence[pos - P];
        b->answer[i] = (um_answer){.sample = 100 + pos, .p_sample = p, .q_sample = p, .p_id = p};
    }
    b->req.strategy->apply(&b->req, b->answer);
}

static inline void step(bench *b, const float *confidence) {
    plan(b);
    answer(b, confidence);
}

static inline void end(bench *b) { b->req.strategy->free(&b->req); }

#endif
