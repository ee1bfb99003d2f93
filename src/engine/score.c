/* Scores: their defaults, their creation and their results. */
#include <math.h>

#include "decode/score.h"
#include "engine/engine.h"

um_option_set um_score_option_set(um_score_request *s) {
    return (um_option_set){um_scoring_options, UM_LEN(um_scoring_options), &s->params};
}

void um_score_init_config(const um_config *c, um_score_request *s) {
    *s = (um_score_request){.size = sizeof *s, .special_in_content = c->special_in_content};
    um_options_init(um_scoring_options, UM_LEN(um_scoring_options), &s->params);
    s->params.block_size = c->decoding.block_size;
    s->params.cfg_scale = c->decoding.cfg_scale;
    if (c->sampling.seed >= 0) s->params.seed = c->sampling.seed;
}

void um_score_init(const um_engine *e, um_score_request *s) { um_score_init_config(&e->config, s); }

um_status um_score_set(um_score_request *s, const char *name, const char *value, um_err *err) {
    const um_option_set set = um_score_option_set(s);
    return um_options_set(&set, 1, name, value, err);
}

/* Returns a request with the prompt of a score. */
static um_request request_of(const um_engine *e, const um_score_request *s) {
    um_request r;
    um_request_init(e, &r);
    r.text = s->text;
    r.text_len = s->text_len;
    r.ids = s->ids;
    r.n_ids = s->n_ids;
    r.messages = s->messages;
    r.n_messages = s->n_messages;
    r.chat = s->chat;
    r.special_in_content = s->special_in_content;
    r.cache_salt = s->cache_salt;
    r.priority = s->priority;
    r.tenant = s->tenant;
    r.arg = s->arg;
    return r;
}

/* Appends the ids of the answer. */
static um_status encode_answer(const um_engine *e, const um_score_request *s, um_ids *ids, um_err *err) {
    um_status st = UM_OK;
    if (!s->answer == !s->answer_ids)
        return um_fail(err, UM_EINVAL, "a score has either answer or answer_ids; %s given",
                       s->answer ? "both were" : "none was");
    if (s->answer)
        return um_prompt_encode(e->model->tok, (um_str){s->answer, s->answer_len}, s->special_in_content, false, ids,
                                err);
    for (size_t i = 0; i < s->n_answer_ids && !st; i++) {
        st = um_sequence_check_id(e, "answer", i, s->answer_ids[i], err);
        um_ids_push(ids, s->answer_ids[i]);
    }
    return st;
}

static um_status check_length(const um_engine *e, size_t n_prompt, size_t n_answer, um_err *err) {
    if (n_answer == 0) return um_fail(err, UM_EINVAL, "the answer is empty; a score needs at least one token");
    if (n_prompt + n_answer <= (size_t)e->max_len) return UM_OK;
    return um_fail(err, UM_ELIMIT, "prompt %zu + answer %zu tokens, but max_model_len is %d", n_prompt, n_answer,
                   e->max_len);
}

/* Encodes prompt and answer. */
static um_status encode(const um_engine *e, um_req *q, const um_request *r, const um_score_request *s, um_ids *ids,
                        um_err *err) {
    um_status st = um_sequence_encode_prompt(e, r, ids, err);
    if (st) return st;
    const size_t n_prompt = ids->n;
    st = encode_answer(e, s, ids, err);
    if (!st) st = check_length(e, n_prompt, ids->n - n_prompt, err);
    if (st) return um_fail_about(err, st, "answer");
    q->n_prompt = q->filled = q->end = (int32_t)n_prompt;
    q->limit = (int32_t)ids->n;
    q->max_len = e->max_len;
    return UM_OK;
}

/* Refuses a score that can't run even when it is the only one. */
static um_status check_need(const um_engine *e, const um_sequence *j, const um_score_params *how, um_err *err) {
    const um_req *q = &j->req;
    if (j->bound.tokens_max > e->config.max_num_batched_tokens)
        return um_fail(err, UM_ELIMIT,
                       "a pass of this score feeds %d tokens (%s %d%s), but max_num_batched_tokens is %d; raise it",
                       j->bound.tokens_max, j->bound.tables ? "block_size" : "prompt and answer",
                       j->bound.tables ? q->how.block_size : q->limit,
                       how->cfg_scale > 0 ? ", all of it twice for cfg_scale" : "", e->config.max_num_batched_tokens);
    return um_sequence_check_need(e, j, err);
}

/* Allocates everything that the steps need. The positions behind the answer are masks. */
static void allocate(um_sequence *j, const um_engine *e, const um_ids *ids) {
    um_req *q = &j->req;
    q->cap = j->bound.positions_max;
    q->token = UM_NEW_ARRAY(int32_t, (size_t)q->cap);
    q->written = UM_NEW_ARRAY(int32_t, (size_t)q->cap);
    for (int32_t i = 0; i < q->cap; i++) {
        q->token[i] = i < q->limit ? ids->data[i] : q->traits->mask_id;
        q->written[i] = i < q->limit ? 0 : -1;
    }
    um_buf_reserve(&j->text, 1);
    um_sequence_allocate_tables(j, e);
}

um_status um_sequence_new_score(um_sequence **out, um_engine *e, const um_score_request *s, um_err *err) {
    um_ids ids = {0};
    if (s->size != sizeof *s)
        return um_fail(
            err, UM_EINVAL,
            "um_score_request: size is %zu, expected %zu; call um_score_init first, with the header of this library",
            s->size, sizeof *s);
    const um_request r = request_of(e, s);
    um_sequence *j = um_sequence_begin(e, &r, 0);
    j->is_score = true;
    j->on_score = s->on_score;
    um_status st = um_model_adapter(e->model, s->adapter, &j->req.adapter, err);
    if (!st) st = encode(e, &j->req, &r, s, &ids, err);
    if (!st) st = um_scorer_new(&j->req, &s->params, err);
    if (!st) {
        j->bound = j->req.strategy->need(&j->req);
        st = check_need(e, j, &s->params, err);
    }
    if (!st) {
        um_model_hold_adapter(e->model, j->req.adapter);
        j->holds_adapter = true;
        allocate(j, e, &ids);
        *out = j;
    } else um_sequence_free(j, e);
    um_ids_free(&ids);
    return st;
}

void um_output_score(const um_sequence *j, double now) {
    const um_req *q = &j->req;
    um_score_result r = {.id = j->id,
                         .finish = q->finish,
                         .token_ids = q->token + q->n_prompt,
                         .prompt_tokens = q->n_prompt,
                         .cached_tokens = j->cached_tokens,
                         .preemptions = j->preemptions,
                         .queue_seconds = (j->started ? j->started : now) - j->added,
                         .total_seconds = now - j->added};
    um_scorer_get(q, &r);
    if (j->on_score) j->on_score(j->arg, &r);
}
