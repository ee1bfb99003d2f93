/* What the answers of a request may contain: copies allowed_ids and bad_words of a request into the form that decoding
 * reads, and refuses the constraints that can't be kept. */
#include <math.h>

#include "decode/fill.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "model/languages.h"

static um_status fail_id(const um_engine *e, const char *param, int32_t id, um_err *err) {
    return um_fail_param(err, UM_ERANGE, param, "id %d is outside the vocabulary 0..%d", id, e->model->arch.vocab - 1);
}

static um_status copy_allowed(um_sequence *j, const um_engine *e, const um_request *r, um_err *err) {
    const int32_t vocab = e->model->arch.vocab;
    if (!r->n_allowed_ids) return UM_OK;
    j->allow = UM_NEW_ARRAY(uint32_t, (size_t)UM_CEIL_DIV(vocab, 32));
    j->req.allow = j->allow;
    j->req.allow_id = um_new_allow_id();
    for (size_t i = 0; i < r->n_allowed_ids; i++) {
        int32_t id = r->allowed_ids[i];
        if (id < 0 || id >= vocab) return fail_id(e, "allowed_token_ids", id, err);
        j->allow[id / 32] |= UINT32_C(1) << (id % 32);
    }
    return UM_OK;
}

/* ---- Bad words --------------------------------------------------------------------------------------------------- */

static bool ends_with(const um_ids *v, const int32_t *tail, size_t n) {
    return n <= v->n && memcmp(v->data + (v->n - n), tail, n * sizeof *tail) == 0;
}

/* Adds a spelling of a word: a ban of its only id, or the end of the sequence that it has been encoded to. */
static void end_spelling(um_sequence *j, size_t from) {
    um_ids *bad = &j->bad;
    if (bad->n - from > 1) {
        um_ids_push(&j->bad_end, (int32_t)bad->n);
    } else if (bad->n > from) {
        um_ids_push(&j->banned, bad->data[from]);
        bad->n = from;
    }
}

/* Encodes a word as it stands at the beginning of a text, and as it follows a space. */
static um_status add_word(um_sequence *j, const um_engine *e, const char *word, um_err *err) {
    um_ids plain = {0}, spaced = {0};
    um_buf text = {0};
    word += strspn(word, " ");
    um_buf_printf(&text, " %s", word);
    um_status st = um_tok_encode(e->model->tok, um_str_of(word), UM_PARSE_NOT_SPECIAL, false, &plain, err);
    if (!st)
        st = um_tok_encode(e->model->tok, (um_str){text.data, text.len}, UM_PARSE_NOT_SPECIAL, false, &spaced, err);
    size_t from = j->bad.n;
    for (size_t i = 0; i < plain.n && !st; i++) um_ids_push(&j->bad, plain.data[i]);
    end_spelling(j, from);
    /* A space of its own in front of the same ids is no other spelling. */
    bool differs = plain.n && !ends_with(&spaced, plain.data, plain.n);
    from = j->bad.n;
    for (size_t i = 0; i < spaced.n && differs && !st; i++) um_ids_push(&j->bad, spaced.data[i]);
    end_spelling(j, from);
    if (!st && !plain.n) st = um_fail(err, UM_EINVAL, "a word of bad_words is empty");
    um_ids_free(&plain);
    um_ids_free(&spaced);
    um_buf_free(&text);
    return um_fail_about(err, st, "bad_words");
}

/* ---- Constraints ------------------------------------------------------------------------------------------------- */

/* Refuses parameters that may forbid the only text that a constraint allows, or that end it elsewhere. */
static um_status check_beside(const um_request *r, um_err *err) {
    const struct {
        const char *name;
        bool given;
    } rows[] = {{"stop", r->n_stop > 0},
                {"stop_token_ids", r->n_stop_ids > 0},
                {"ignore_eos", r->sampling.ignore_eos},
                {"min_tokens", r->sampling.min_tokens > 0},
                {"max_nfe", r->sampling.max_nfe > 0},
                {"max_repetition_run", r->sampling.max_repetition_run > 0},
                {"allowed_token_ids", r->n_allowed_ids > 0},
                {"bad_words", r->n_bad_words > 0}};
    for (size_t i = 0; i < UM_LEN(rows); i++)
        if (rows[i].given)
            return um_fail_param(err, UM_EINVAL, rows[i].name,
                                 "it can't be combined with a constraint, which alone decides what the answer may be "
                                 "and where it may end");
    for (size_t i = 0; i < r->n_bias; i++)
        if (r->bias[i].value == -INFINITY)
            return um_fail_param(err, UM_EINVAL, "logit_bias",
                                 "a bias that bans a token can't be combined with a constraint");
    return UM_OK;
}

um_status um_request_check_constraint(const um_request *r, um_err *err) {
    const bool has_text = r->constraint > UM_CONSTRAINT_JSON;
    if (r->constraint == UM_CONSTRAINT_NONE && !r->constraint_text) return UM_OK;
    if (r->constraint < UM_CONSTRAINT_NONE || r->constraint > UM_CONSTRAINT_CHOICE)
        return um_fail_param(err, UM_ERANGE, "constraint", "%d is no UM_CONSTRAINT_*", r->constraint);
    if (has_text != (r->constraint_text != NULL))
        return um_fail_param(err, UM_EINVAL, "constraint",
                             has_text ? "it needs a text, but constraint_text is NULL"
                                      : "constraint_text is set, but the constraint has no text");
    if (r->reasoning_begin && !r->reasoning_end)
        return um_fail_param(err, UM_EINVAL, "reasoning_begin", "it needs reasoning_end");
    return check_beside(r, err);
}

/* ---- Languages --------------------------------------------------------------------------------------------------- */

static um_status find_language(um_sequence *j, const um_engine *e, const um_request *r, um_err *err) {
    const um_sampling_params *s = &r->sampling;
    const um_constraint c = {.kind = r->constraint,
                             .text = r->constraint_text,
                             .begin = r->reasoning_begin,
                             .end = r->reasoning_end,
                             .style = {s->json_space},
                             .depth = s->grammar_depth};
    if (e->config.compat != UM_COMPAT_NONE)
        return um_fail_param(err, UM_EUNSUPPORTED, "compat", "a constraint can't be combined with it");
    j->req.fills_best = s->filling == UM_FILLING_BEST;
    if (j->req.fills_best && j->req.sampling.temperature > 0)
        return um_fail_param(err, UM_EINVAL, "filling", "best needs temperature 0, not %g",
                             (double)j->req.sampling.temperature);
    return um_model_get_language(e->model, &c, &j->language, err);
}

/* Returns the first position that the answer never has: a canvas may end before the limit. */
static int32_t answer_end(const um_req *q) {
    const int32_t canvas = q->n_prompt + q->how.gen_length;
    return q->strategy->fills_gaps ? UM_MIN(q->limit, canvas) : q->limit;
}

um_status um_sequence_check_language(const um_sequence *j, um_err *err) {
    if (!j->language) return UM_OK;
    um_language *l = j->language->language;
    um_language_lock(l);
    const int32_t needed = um_language_rest(l, um_language_start(l)), room = answer_end(&j->req) - j->req.n_prompt;
    um_language_unlock(l);
    if (needed <= room) return UM_OK;
    return um_fail_param(err, UM_ERANGE, "max_tokens",
                         "the shortest answer that the constraint allows has %d tokens, but the answer may have %d",
                         needed, room);
}

um_status um_sequence_constrain(um_sequence *j, const um_engine *e, const um_request *r, um_err *err) {
    um_status st = um_request_check_constraint(r, err);
    if (!st) st = copy_allowed(j, e, r, err);
    for (size_t i = 0; i < r->n_bad_words && !st; i++) st = add_word(j, e, r->bad_words[i] ? r->bad_words[i] : "", err);
    j->req.bad = j->bad.data;
    j->req.bad_end = j->bad_end.data;
    j->req.n_bad = (int32_t)j->bad_end.n;
    return st || r->constraint == UM_CONSTRAINT_NONE ? st : find_language(j, e, r, err);
}

/* Without this check, an answer without a token would end as one of broken weights does. */
static um_status check_some_token(const um_req *q, const um_engine *e, const um_request *r, um_err *err) {
    if (um_req_edits_leave_token(q, e->model->arch.vocab)) return UM_OK;
    return um_fail_param(err, UM_EINVAL,
                         r->n_allowed_ids ? "allowed_token_ids"
                         : r->n_bias      ? "logit_bias"
                                          : "bad_words",
                         "no token is left for the answer: allowed_token_ids, logit_bias, bad_words and min_tokens "
                         "together exclude all");
}

um_status um_sequence_new_edits(um_sequence *j, const um_engine *e, const um_request *r, um_err *err) {
    um_bias *bias = UM_NEW_ARRAY(um_bias, r->n_bias + j->banned.n + 1);
    if (r->n_bias) memcpy(bias, r->bias, r->n_bias * sizeof *bias);
    for (size_t i = 0; i < j->banned.n; i++) bias[r->n_bias + i] = (um_bias){j->banned.data[i], -INFINITY};
    if (j->language) j->req.moves_tokens = false; /* a language counts positions from both ends of the answer */
    um_req_edits_new(&j->req, bias, r->n_bias + j->banned.n, e->model->arch.vocab);
    um_free(bias);
    um_req *q = &j->req;
    if (!j->language) return check_some_token(q, e, r, err);
    q->fill = um_fill_new(q, j->language->language, j->bound.rows_max + 1, e->model->arch.vocab, answer_end(q));
    return UM_OK;
}

void um_sequence_free_constraints(um_sequence *j, um_engine *e) {
    um_fill_free(j->req.fill);
    if (j->language) um_model_release_language(e->model, j->language);
    um_free(j->allow);
    um_ids_free(&j->bad);
    um_ids_free(&j->bad_end);
    um_ids_free(&j->banned);
}
