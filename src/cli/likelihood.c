/* Estimates the likelihood of one answer (likelihood.h), with passes of the engine's own buffers. */
#include "cli/likelihood.h"

#include <float.h>
#include <math.h>

#include "engine/engine.h"

typedef struct work {
    um_engine *e;
    const um_arch *arch;
    int32_t n;            /* tokens of prompt and answer */
    int32_t *known;       /* [n] */
    int32_t *id, *pos;    /* [n_room] the tokens of a pass */
    int32_t *slot, *seen; /* [n_room] */
    int32_t *place;       /* [n_room] positions of the answer in the block, in random order */
    um_row *row;          /* [n_room] */
    um_answer *answer;    /* [n_room] */
    int32_t *page, n_pages, n_room, block;
    int32_t adapter, n_masks;
    uint64_t number;
} work;

/* ---- One pass ---------------------------------------------------------------------------------------------------- */

/* Asks for the probability of the known token at position `at`. */
static um_row row_of(const work *w, int32_t at) {
    return (um_row){
        .src = {at - w->arch->shift, 0}, .w = {1, 0}, .how = {.top_p = 1}, .want = UM_WANT_PROB_OF, .id = w->known[at]};
}

/* Feeds the first n positions with masks at place[0..n_masked). Adds the negative logarithms of the probabilities of
 * the known tokens at these positions to *nats. */
static um_status run_pass(work *w, int32_t n, int32_t n_masked, double *nats, um_err *err) {
    const um_visibility rule = {.see = w->arch->see, .block = w->block};
    const um_backend *b = w->e->model->backend;
    for (int32_t i = 0; i < n; i++) {
        w->id[i] = i < w->n ? w->known[i] : w->arch->mask_id;
        w->pos[i] = i;
        w->slot[i] = (int32_t)um_slot_of(w->page, w->e->config.page_size, i);
        w->seen[i] = UM_MIN(um_visible_end(rule, i), n);
    }
    for (int32_t i = 0; i < n_masked; i++) {
        w->id[w->place[i]] = w->arch->mask_id;
        w->row[i] = row_of(w, w->place[i]);
    }
    const um_span span = {.n = n, .page = w->page, .keys = {0, n}, .adapter = w->adapter};
    const um_batch batch = {.n_tokens = n,
                            .n_spans = 1,
                            .n_rows = n_masked,
                            .id = w->id,
                            .pos = w->pos,
                            .slot = w->slot,
                            .seen_end = w->seen,
                            .span = &span,
                            .row = w->row,
                            .answer = w->answer};
    um_status s = b->submit(w->e->forward, &batch, err);
    if (!s) s = b->wait(w->e->forward, err);
    /* A probability below the smallest float counts as that float. */
    for (int32_t i = 0; i < n_masked && !s; i++) *nats -= log((double)UM_MAX(w->answer[i].p_id, FLT_MIN));
    return s;
}

/* ---- One block --------------------------------------------------------------------------------------------------- */

/* Puts the positions [from, to) into a random order of which only the first n_first matter. */
static void shuffle(work *w, int32_t from, int32_t to, int32_t n_first, int32_t pass) {
    const uint64_t key = um_rng_key(w->number, (uint64_t)from, (uint64_t)pass, 0);
    const int32_t n = to - from;
    for (int32_t i = 0; i < n; i++) w->place[i] = from + i;
    for (int32_t i = 0; i < n_first; i++) {
        const int32_t k = i + (int32_t)(um_rng_u64(key, (uint64_t)i) % (uint64_t)(n - i)), other = w->place[k];
        w->place[k] = w->place[i];
        w->place[i] = other;
    }
}

/* Adds the estimate for the positions [from, to) of the answer. A pass feeds `n` positions. */
static um_status add_block(work *w, int32_t from, int32_t to, int32_t n, um_likelihood *sum, um_err *err) {
    const int64_t L = to - from;
    um_status s = UM_OK;
    for (int32_t i = 0; i < w->n_masks && !s; i++) {
        const int32_t l = 1 + (int32_t)((2 * i + 1) * L / (2 * (int64_t)w->n_masks));
        double nats = 0;
        if (um_cli_interrupted()) return um_fail(err, UM_ECANCELED, "interrupted");
        shuffle(w, from, to, l, i);
        s = run_pass(w, n, l, &nats, err);
        sum->nats += (double)L / l * nats / w->n_masks;
        sum->passes++;
    }
    return s;
}

/* ---- An answer --------------------------------------------------------------------------------------------------- */

/* A block's positions behind the answer are masked, as they are when the block is decoded. */
static um_status add_blocks(work *w, int32_t from, um_likelihood *sum, um_err *err) {
    um_status s = UM_OK;
    for (int32_t end; from < w->n && !s; from = end) {
        end = w->block ? UM_MIN(w->n, (from / w->block + 1) * w->block) : w->n;
        const int32_t fed = w->block ? (from / w->block + 1) * w->block : w->n;
        s = add_block(w, from, end, fed, sum, err);
    }
    return s;
}

static void allocate(work *w) {
    const size_t n = (size_t)w->n_room;
    w->id = UM_NEW_ARRAY(int32_t, n);
    w->pos = UM_NEW_ARRAY(int32_t, n);
    w->slot = UM_NEW_ARRAY(int32_t, n);
    w->seen = UM_NEW_ARRAY(int32_t, n);
    w->place = UM_NEW_ARRAY(int32_t, n);
    w->row = UM_NEW_ARRAY(um_row, n);
    w->answer = UM_NEW_ARRAY(um_answer, n);
    w->page = UM_NEW_ARRAY(int32_t, (size_t)w->n_pages);
    for (int32_t i = 0; i < w->n_pages; i++) w->page[i] = i;
}

static void release(work *w) {
    void *all[] = {w->known, w->id, w->pos, w->slot, w->seen, w->place, w->row, w->answer, w->page};
    for (size_t i = 0; i < UM_LEN(all); i++) um_free(all[i]);
}

static um_status check_length(const work *w, size_t n, um_err *err) {
    const um_config *c = &w->e->config;
    const int64_t pages = (int64_t)c->num_pages * c->page_size;
    const int64_t most = UM_MIN(UM_MIN((int64_t)c->max_num_batched_tokens, pages), (int64_t)w->e->max_len);
    const int64_t fed = w->block ? UM_CEIL_DIV((int64_t)n, w->block) * w->block : (int64_t)n;
    if (fed <= most) return UM_OK;
    return um_fail(err, UM_ELIMIT,
                   "prompt and answer have %zu tokens, %lld in whole blocks; a pass may have %lld: raise "
                   "--max-num-batched-tokens, --num-pages or --max-model-len",
                   n, (long long)fed, (long long)most);
}

um_status um_likelihood_add(um_engine *e, const int32_t *prompt, size_t n_prompt, const int32_t *answer,
                            size_t n_answer, int32_t adapter, int32_t n_masks, uint64_t number, um_likelihood *sum,
                            um_err *err) {
    work w = {.e = e, .arch = &e->model->arch, .adapter = adapter, .n_masks = n_masks, .number = number};
    const bool has_blocks = w.arch->see == UM_SEE_BLOCK_CAUSAL;
    if (w.arch->see == UM_SEE_CAUSAL)
        return um_fail(err, UM_EUNSUPPORTED,
                       "--likelihood does not know the family %s, which has causal attention; leave it out",
                       w.arch->family->name);
    w.block = has_blocks ? um_engine_block(e) : 0;
    um_status s = check_length(&w, n_prompt + n_answer, err);
    if (s) return s;
    w.n = (int32_t)(n_prompt + n_answer);
    w.n_room = w.n + w.block;
    w.n_pages = UM_CEIL_DIV(w.n_room, e->config.page_size);
    w.known = UM_NEW_ARRAY(int32_t, (size_t)w.n);
    memcpy(w.known, prompt, n_prompt * sizeof *prompt);
    memcpy(w.known + n_prompt, answer, n_answer * sizeof *answer);
    allocate(&w);
    s = add_blocks(&w, (int32_t)n_prompt, sum, err);
    release(&w);
    if (s) return s;
    sum->answers++;
    sum->tokens += (int64_t)n_answer;
    return UM_OK;
}
