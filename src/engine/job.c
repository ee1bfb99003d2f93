/* Submission and end of a request. */
#include <math.h>

#include "engine/engine.h"

/* ---- Prompt ------------------------------------------------------------------------------------------------------ */

um_status um_request_check(const um_request *r, um_err *err) {
    if (r->size == sizeof(*r) && (r->n < 1 || r->n > UM_ANSWERS_MAX))
        return um_fail(err, UM_ERANGE, "n: %d answers; a request has 1..%d", r->n, UM_ANSWERS_MAX);
    if (r->size == sizeof(*r)) return UM_OK;
    return um_fail(err, UM_EINVAL,
                   "um_request: size is %zu, expected %zu; call um_request_init first, with the header of "
                   "this library",
                   r->size, sizeof(*r));
}

static um_status encode_chat(const um_engine *e, const um_request *r, um_ids *ids, um_err *err) {
    um_chat_request c;
    if (!e->model->chat)
        return um_fail(err, UM_ETEMPLATE, "the model in %s has no chat template; give the prompt as text",
                       e->model->path);
    if (r->chat) return um_chat_render(e->model->chat, r->chat, NULL, ids, err);
    um_chat_init(&c);
    c.messages = r->messages;
    c.n_messages = r->n_messages;
    c.special_in_content = r->special_in_content;
    return um_chat_render(e->model->chat, &c, NULL, ids, err);
}

static um_status encode_prompt(const um_engine *e, const um_request *r, um_ids *ids, um_err *err) {
    int given = (r->text != NULL) + (r->ids != NULL) + (r->messages != NULL) + (r->chat != NULL);
    if (given != 1)
        return um_fail(err, UM_EINVAL, "a request has exactly one of text, ids, messages and chat; %d were given",
                       given);
    if (r->messages || r->chat) return encode_chat(e, r, ids, err);
    if (r->text)
        return um_prompt_encode(e->model->tok, (um_str){r->text, r->text_len}, r->special_in_content, ids, err);
    for (size_t i = 0; i < r->n_ids; i++) {
        if (r->ids[i] < 0 || r->ids[i] >= e->model->arch.vocab)
            return um_fail(err, UM_ERANGE, "prompt token %zu is %d, outside the vocabulary 0..%d", i, r->ids[i],
                           e->model->arch.vocab - 1);
        um_ids_push(ids, r->ids[i]);
    }
    return UM_OK;
}

static um_status check_prompt(const um_engine *e, size_t n, um_err *err) {
    if (n == 0) return um_fail(err, UM_EINVAL, "the prompt is empty; a request needs at least one token");
    if (n >= (size_t)e->max_len)
        return um_fail(err, UM_ELIMIT, "the prompt has %zu tokens, but max_model_len is %d and an answer needs room", n,
                       e->max_len);
    return UM_OK;
}

/* ---- Parameters -------------------------------------------------------------------------------------------------- */

/* A row's range check on the value that is there: a caller may have set the field without its name. */
static um_status check_parameters(um_req *q, um_err *err) {
    um_option_set sets[UM_DECODE_SETS_MAX];
    size_t n = um_decode_option_sets(sets, &q->how, &q->sampling);
    um_buf text = {0};
    um_status st = UM_OK;
    for (size_t i = 0; i < n && !st; i++) {
        for (size_t k = 0; k < sets[i].n && !st; k++) {
            um_buf_clear(&text);
            um_option_get_text(&sets[i].rows[k], sets[i].base, &text);
            st = um_option_set_text(&sets[i].rows[k], sets[i].base, text.data ? text.data : "", err);
        }
    }
    um_buf_free(&text);
    return st;
}

static um_status resolve_strategy(const um_engine *e, um_req *q, um_err *err) {
    const char *name = q->how.strategy;
    const um_family *f = e->model->arch.family;
    if (um_streq(name, "auto")) name = e->model->arch.default_strategy;
    um_status st = um_strategy_find(&q->strategy, name, err);
    if (st || um_family_runs(f, q->strategy->name)) return st;
    return um_fail(err, UM_EUNSUPPORTED, "decoding_strategy: %s is not for models of the family %s, which run: %s",
                   q->strategy->name, f->name, f->strategies);
}

static void resolve_sampling(const um_engine *e, um_req *q) {
    um_sampling_params *s = &q->sampling;
    if (isnan(s->temperature)) s->temperature = isnan(e->model->arch.temperature) ? 0 : e->model->arch.temperature;
    if (s->max_tokens == 0) s->max_tokens = um_arch_answer_tokens(&e->model->arch);
    q->n_top = UM_MAX(s->logprobs, 0);
    if (s->seed < 0) s->seed = um_rng_seed();
    q->seed = (uint64_t)s->seed;
    int64_t end = (int64_t)q->n_prompt + s->max_tokens;
    q->max_len = e->max_len;
    q->limit = (int32_t)UM_MIN(end, (int64_t)e->max_len);
}

static um_status check_bound(const char *what, int64_t have, int64_t room, um_err *err) {
    if (have <= room) return UM_OK;
    return um_fail(err, UM_ELIMIT,
                   "a pass of this request needs %lld %s, but a step has room for %lld; raise "
                   "max_num_batched_tokens",
                   (long long)have, what, (long long)room);
}

static um_status check_room(const um_engine *e, const um_job *j, um_err *err) {
    const um_need *n = &j->bound;
    const um_pass *room = &e->room;
    um_status st = check_bound("predictions", n->rows_max, room->n_rows, err);
    if (!st) st = check_bound("likeliest ids", (int64_t)n->rows_max * j->req.n_top_asked, room->n_tops, err);
    if (!st) st = check_bound("edits of logits", n->edits_max, room->n_edits, err);
    if (!st) st = check_bound("ids in blends", n->soft_max, room->n_soft_ids, err);
    if (!st) st = check_bound("scratch pages", UM_CEIL_DIV(n->scratch_max, room->page_size), room->n_scratch, err);
    return st;
}

/* What could never run, even alone, is refused now. */
static um_status check_need(const um_engine *e, const um_job *j, um_err *err) {
    const um_need *n = &j->bound;
    um_status st;
    if (n->tokens_max > e->config.max_num_batched_tokens)
        return um_fail(err, UM_ELIMIT,
                       "a pass of this request needs %d tokens (prompt %d), but max_num_batched_tokens is %d",
                       n->tokens_max, j->req.n_prompt, e->config.max_num_batched_tokens);
    st = check_room(e, j, err);
    if (st) return st;
    int32_t pages = um_pages_for(&e->pages, n->slots_max) * n->tables;
    if (pages > e->pages.n_pages)
        return um_fail(err, UM_ELIMIT,
                       "the request needs %d KV pages (%d tokens in pages of %d), but there are %d; raise "
                       "num_pages or lower max_tokens",
                       pages, n->slots_max * n->tables, e->pages.page_size, e->pages.n_pages);
    return UM_OK;
}

/* ---- Life -------------------------------------------------------------------------------------------------------- */

static um_status check_id(const um_engine *e, const char *what, int32_t id, um_err *err) {
    if (id >= 0 && id < e->model->arch.vocab) return UM_OK;
    return um_fail(err, UM_ERANGE, "%s: id %d is outside the vocabulary 0..%d", what, id, e->model->arch.vocab - 1);
}

static um_status check_ids(const um_engine *e, const um_request *r, um_err *err) {
    um_status st = UM_OK;
    for (size_t i = 0; i < r->n_stop_ids && !st; i++) st = check_id(e, "stop_token_ids", r->stop_ids[i], err);
    for (size_t i = 0; i < r->n_bias && !st; i++) {
        st = check_id(e, "logit_bias", r->bias[i].id, err);
        if (!st && (isnan(r->bias[i].value) || r->bias[i].value == INFINITY))
            st =
                um_fail(err, UM_ERANGE, "logit_bias: the value of id %d is no number that can be added", r->bias[i].id);
    }
    return st;
}

static void copy_stop_ids(um_job *j, const um_request *r) {
    j->stop_ids = UM_NEW_ARRAY(int32_t, r->n_stop_ids + 1);
    if (r->n_stop_ids) memcpy(j->stop_ids, r->stop_ids, r->n_stop_ids * sizeof(int32_t));
    j->req.stop_ids = j->stop_ids;
    j->req.n_stop_ids = (int32_t)r->n_stop_ids;
}

static um_status copy_stops(um_job *j, const um_request *r, um_err *err) {
    j->stop = UM_NEW_ARRAY(char *, r->n_stop + 1);
    for (size_t i = 0; i < r->n_stop; i++) {
        size_t n = r->stop[i] ? strlen(r->stop[i]) : 0;
        if (n == 0) return um_fail(err, UM_EINVAL, "stop string %zu is empty", i);
        j->stop[j->n_stop++] = um_strdup(r->stop[i]);
        j->stop_longest = UM_MAX(j->stop_longest, n);
    }
    return UM_OK;
}

/* Everything that its steps will touch, so that they allocate nothing. */
static void allocate(um_job *j, const um_engine *e, const um_ids *prompt) {
    um_req *q = &j->req;
    q->cap = j->bound.positions_max;
    q->token = UM_NEW_ARRAY(int32_t, (size_t)q->cap);
    q->written = UM_NEW_ARRAY(int32_t, (size_t)q->cap);
    for (int32_t i = 0; i < q->cap; i++) {
        q->token[i] = i < q->n_prompt ? prompt->data[i] : q->traits->mask_id;
        q->written[i] = i < q->n_prompt ? 0 : -1;
    }
    size_t answer = (size_t)(q->limit - q->n_prompt);
    if (q->compat->allocated_limits) answer = (size_t)(q->cap - q->n_prompt);
    j->text_end = UM_NEW_ARRAY(int32_t, answer + 1);
    j->state = UM_NEW_ARRAY(uint8_t, (size_t)q->cap);
    if (q->sampling.logprobs >= 0) {
        q->logprob = UM_NEW_ARRAY(float, (size_t)q->cap);
        q->top = UM_NEW_ARRAY(um_top, um_mul((size_t)q->cap, (size_t)q->n_top) + 1);
        j->likeliest = UM_NEW_ARRAY(um_logprob, um_mul(answer, (size_t)q->n_top) + 1);
    }
    um_buf_reserve(&j->text, um_mul(answer + 1, e->token_bytes_max) + 1);
    um_stream_init(&j->stream, e->model->tok, true);
    for (int i = 0; i < j->bound.tables; i++) um_table_init(&j->table[i], um_pages_for(&e->pages, j->bound.slots_max));
}

um_status um_job_new(um_job **out, um_engine *e, const um_request *r, int32_t index, um_err *err) {
    um_ids prompt = {0};
    um_job *j = UM_NEW(um_job);
    um_req *q = &j->req;
    j->slot = -1;
    j->added = um_now();
    j->on_event = r->on_event;
    j->arg = r->arg;
    j->events = r->events | UM_EVENT_FINISH;
    q->traits = &e->traits;
    q->compat = &e->compat;
    q->how = r->decoding;
    q->sampling = r->sampling;
    q->settled = INT32_MAX;
    q->stop_id = -1;
    j->index = index;
    j->n_answers = r->n;
    j->cache_salt = r->cache_salt;

    um_status st = um_model_adapter(e->model, r->adapter, &q->adapter, err);
    if (!st) st = encode_prompt(e, r, &prompt, err);
    if (!st) st = check_prompt(e, prompt.n, err);
    if (!st) q->n_prompt = q->filled = q->end = (int32_t)prompt.n;
    if (!st) st = check_parameters(q, err);
    if (!st) resolve_sampling(e, q);
    if (!st) st = resolve_strategy(e, q, err);
    if (!st) st = copy_stops(j, r, err);
    if (!st) st = check_ids(e, r, err);
    if (!st) copy_stop_ids(j, r);
    if (!st) st = q->strategy->init(q, err);
    if (!st) {
        j->bound = q->strategy->need(q);
        st = check_need(e, j, err);
    }
    if (!st) {
        allocate(j, e, &prompt);
        um_req_edits_new(q, r->bias, r->n_bias, e->model->arch.vocab);
    }
    um_ids_free(&prompt);
    if (st) {
        um_job_free(j, e);
        return st;
    }
    *out = j;
    return UM_OK;
}

void um_job_free(um_job *j, um_engine *e) {
    if (!j) return;
    if (j->req.state) j->req.strategy->free(&j->req);
    for (int i = 0; i < 2; i++) {
        um_table_release(&j->table[i], &e->pages);
        um_table_deinit(&j->table[i]);
    }
    for (size_t i = 0; i < j->n_stop; i++) um_free(j->stop[i]);
    um_free(j->stop);
    um_free(j->req.token);
    um_free(j->req.written);
    um_free(j->req.logprob);
    um_free(j->req.top);
    um_free(j->likeliest);
    um_free(j->stop_ids);
    um_req_edits_free(&j->req);
    um_free(j->text_end);
    um_free(j->state);
    um_buf_free(&j->text);
    um_free(j);
}
