/* Creates, checks and frees the answers of a request. */
#include <math.h>

#include "engine/engine.h"

/* ---- Prompt ------------------------------------------------------------------------------------------------------ */

um_status um_request_check(const um_request *r, um_err *err) {
    if (r->size == sizeof(*r) && (r->n < 1 || r->n > UM_ANSWERS_MAX))
        return um_fail_param(err, UM_ERANGE, "n", "%d answers; a request has 1..%d", r->n, UM_ANSWERS_MAX);
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

/* Returns the name of the parameter that holds the prompt, for error messages. */
static const char *prompt_param(const um_request *r) {
    return r->ids ? "ids" : r->messages || r->chat ? "messages" : "prompt";
}

um_status um_sequence_check_id(const um_engine *e, const char *what, size_t i, int32_t id, um_err *err) {
    if (id >= 0 && id < e->model->arch.vocab) return UM_OK;
    return um_fail(err, UM_ERANGE, "%s token %zu is %d, outside the vocabulary 0..%d", what, i, id,
                   e->model->arch.vocab - 1);
}

static um_status encode_ids(const um_engine *e, const um_request *r, um_ids *ids, um_err *err) {
    um_status st = UM_OK;
    for (size_t i = 0; i < r->n_ids && !st; i++) {
        st = um_sequence_check_id(e, "prompt", i, r->ids[i], err);
        um_ids_push(ids, r->ids[i]);
    }
    return st;
}

static um_status encode_prompt(const um_engine *e, const um_request *r, um_ids *ids, um_err *err) {
    int given = (r->text != NULL) + (r->ids != NULL) + (r->messages != NULL) + (r->chat != NULL);
    if (given != 1)
        return um_fail(err, UM_EINVAL, "a request has exactly one of text, ids, messages and chat; %d were given",
                       given);
    if (r->messages || r->chat) return encode_chat(e, r, ids, err);
    if (r->ids) return encode_ids(e, r, ids, err);
    return um_prompt_encode(e->model->tok, (um_str){r->text, r->text_len}, r->special_in_content, true, ids, err);
}

static um_status check_prompt(const um_engine *e, size_t n, um_err *err) {
    if (n == 0) return um_fail(err, UM_EINVAL, "the prompt is empty; a request needs at least one token");
    if (n >= (size_t)e->max_len)
        return um_fail(err, UM_ELIMIT, "the prompt has %zu tokens, but max_model_len is %d and an answer needs room", n,
                       e->max_len);
    return UM_OK;
}

um_status um_sequence_encode_prompt(const um_engine *e, const um_request *r, um_ids *ids, um_err *err) {
    um_status st = encode_prompt(e, r, ids, err);
    if (!st) st = check_prompt(e, ids->n, err);
    return um_fail_about(err, st, prompt_param(r));
}

/* ---- Suffix ------------------------------------------------------------------------------------------------------ */

/* Appends the names of the family's strategies that support a suffix. */
static void put_gap_strategies(const um_family *f, um_buf *out) {
    for (const um_strategy *const *s = um_strategies; *s; s++)
        if ((*s)->fills_gaps && um_family_supports(f, (*s)->name))
            um_buf_printf(out, "%s%s", out->len ? ", " : "", (*s)->name);
}

static um_status refuse_suffix(const um_engine *e, const um_strategy *strategy, um_err *err) {
    um_buf names = {0};
    const um_family *f = e->model->arch.family;
    put_gap_strategies(f, &names);
    um_status st = um_fail_param(err, UM_EUNSUPPORTED, "suffix",
                                 "strategy %s writes from left to right and does not see the suffix; %s %s",
                                 strategy->name, names.len ? "use one of" : "no strategy fills gaps for the family",
                                 names.len ? names.data : f->name);
    um_buf_free(&names);
    return st;
}

/* Checks the suffix and shortens the longest possible answer by its length. */
static um_status check_suffix(const um_engine *e, um_req *q, const um_request *r, um_err *err) {
    um_status st = UM_OK;
    if (r->n_suffix == 0) return UM_OK;
    if (!q->strategy->fills_gaps) return refuse_suffix(e, q->strategy, err);
    for (size_t i = 0; i < r->n_suffix && !st; i++)
        st = um_fail_about(err, um_sequence_check_id(e, "suffix", i, r->suffix[i], err), "suffix");
    if (st) return st;
    if (r->n_suffix >= (size_t)(e->max_len - q->n_prompt))
        return um_fail_param(err, UM_ELIMIT, "suffix",
                             "prompt %d + suffix %zu tokens, but max_model_len is %d and an answer needs room",
                             q->n_prompt, r->n_suffix, e->max_len);
    q->n_suffix = (int32_t)r->n_suffix;
    q->max_len -= q->n_suffix;
    q->limit = UM_MIN(q->limit, q->max_len);
    return UM_OK;
}

/* ---- Parameters -------------------------------------------------------------------------------------------------- */

/* Checks the names of sampler and retention rule, also when the strategy reads neither of them. */
static um_status check_names(const um_decoding *d, um_err *err) {
    const um_sampler *sampler;
    const um_retention *rule;
    um_status st = um_streq(d->sampler, "auto") ? UM_OK : um_sampler_find(&sampler, d->sampler, err);
    return st ? st : um_retention_find(&rule, d->retention, err);
}

/* Checks the range of each field, because a caller may have set it without um_request_set. */
static um_status check_parameters(um_req *q, um_err *err) {
    um_option_set sets[UM_DECODE_SETS_MAX];
    return um_options_check(sets, um_decode_option_sets(sets, &q->how, &q->sampling), err);
}

static um_status resolve_strategy(const um_engine *e, um_req *q, um_err *err) {
    const char *name = q->how.strategy;
    const um_family *f = e->model->arch.family;
    if (um_streq(name, "auto")) name = e->model->arch.default_strategy;
    um_status st = um_strategy_find(&q->strategy, name, err);
    if (st) return st;
    if (um_family_supports(f, q->strategy->name)) return UM_OK;
    return um_fail_param(err, UM_EUNSUPPORTED, "decoding_strategy",
                         "%s is not for models of the family %s, which run: %s", q->strategy->name, f->name,
                         f->strategies);
}

static um_status check_min_tokens(const um_sampling_params *s, um_err *err) {
    if (s->min_tokens <= s->max_tokens) return UM_OK;
    return um_fail_param(err, UM_ERANGE, "min_tokens", "%d is outside 0..%d (max_tokens %d)", s->min_tokens,
                         s->max_tokens, s->max_tokens);
}

static um_status resolve_sampling(const um_engine *e, um_req *q, um_err *err) {
    um_sampling_params *s = &q->sampling;
    if (isnan(s->temperature)) s->temperature = isnan(e->model->arch.temperature) ? 0 : e->model->arch.temperature;
    if (s->max_tokens == 0) s->max_tokens = um_arch_answer_tokens(&e->model->arch);
    q->n_top = UM_MAX(s->logprobs, 0);
    if (s->seed < 0) s->seed = um_rng_seed();
    q->seed = (uint64_t)s->seed;
    int64_t end = (int64_t)q->n_prompt + s->max_tokens;
    q->max_len = e->max_len;
    q->limit = (int32_t)UM_MIN(end, (int64_t)e->max_len);
    return check_min_tokens(s, err);
}

static um_status check_limit(const char *what, int64_t needed, int64_t capacity, um_err *err) {
    if (needed <= capacity) return UM_OK;
    return um_fail(err, UM_ELIMIT,
                   "a pass of this request needs %lld %s, but a step has room for %lld; raise "
                   "max_num_batched_tokens",
                   (long long)needed, what, (long long)capacity);
}

static um_status check_capacity(const um_engine *e, const um_sequence *j, um_err *err) {
    const um_need *n = &j->bound;
    const um_pass *capacity = &e->capacity;
    um_status st = check_limit("predictions", n->rows_max, capacity->n_rows, err);
    if (!st) st = check_limit("likeliest ids", (int64_t)n->rows_max * j->req.n_top_asked, capacity->n_tops, err);
    if (!st) st = check_limit("edits of logits", n->edits_max, capacity->n_edits, err);
    if (!st)
        st = check_limit("scratch pages", UM_CEIL_DIV(n->scratch_max, capacity->page_size), capacity->n_scratch, err);
    return st;
}

um_status um_sequence_check_need(const um_engine *e, const um_sequence *j, um_err *err) {
    const um_need *n = &j->bound;
    um_status st;
    if (n->tokens_max > e->config.max_num_batched_tokens)
        return um_fail(err, UM_ELIMIT,
                       "a pass of this request needs %d tokens (prompt %d, block_size %d%s), but "
                       "max_num_batched_tokens is %d; raise it",
                       n->tokens_max, j->req.n_prompt, j->req.how.block_size,
                       j->req.how.cfg_scale > 0 ? ", all of it twice for cfg_scale" : "",
                       e->config.max_num_batched_tokens);
    /* The last block is fed whole, also where it reaches beyond the limit of the answer. */
    if (n->slots_max > e->model->arch.max_position)
        return um_fail_param(err, UM_ELIMIT, "block_size",
                             "the last block of this request ends at position %d, but the model has %d positions; "
                             "lower max_tokens, or use a block_size that divides %d",
                             n->slots_max, e->model->arch.max_position, e->model->arch.max_position);
    st = check_capacity(e, j, err);
    if (st) return st;
    int32_t pages = um_pages_for(&e->pages, n->slots_max) * n->tables;
    if (pages > e->pages.n_pages)
        return um_fail(err, UM_ELIMIT,
                       "the request needs %d KV pages (%d tokens in pages of %d), but there are %d; raise "
                       "num_pages or lower max_tokens",
                       pages, n->slots_max * n->tables, e->pages.page_size, e->pages.n_pages);
    return UM_OK;
}

/* ---- Creation and end -------------------------------------------------------------------------------------------- */

static um_status check_id(const um_engine *e, const char *param, int32_t id, um_err *err) {
    if (id >= 0 && id < e->model->arch.vocab) return UM_OK;
    return um_fail_param(err, UM_ERANGE, param, "id %d is outside the vocabulary 0..%d", id, e->model->arch.vocab - 1);
}

static um_status check_ids(const um_engine *e, const um_request *r, um_err *err) {
    um_status st = UM_OK;
    for (size_t i = 0; i < r->n_stop_ids && !st; i++) st = check_id(e, "stop_token_ids", r->stop_ids[i], err);
    for (size_t i = 0; i < r->n_bias && !st; i++) {
        st = check_id(e, "logit_bias", r->bias[i].id, err);
        if (!st && (isnan(r->bias[i].value) || r->bias[i].value == INFINITY))
            st = um_fail_param(err, UM_ERANGE, "logit_bias", "the value of id %d is NaN or +infinity", r->bias[i].id);
    }
    return st;
}

static void copy_stop_ids(um_sequence *j, const um_request *r) {
    j->stop_ids = UM_NEW_ARRAY(int32_t, r->n_stop_ids + 1);
    if (r->n_stop_ids) memcpy(j->stop_ids, r->stop_ids, r->n_stop_ids * sizeof(int32_t));
    j->req.stop_ids = j->stop_ids;
    j->req.n_stop_ids = (int32_t)r->n_stop_ids;
}

static um_status copy_stop_strings(um_sequence *j, const um_request *r, um_err *err) {
    j->stop = UM_NEW_ARRAY(char *, r->n_stop + 1);
    for (size_t i = 0; i < r->n_stop; i++) {
        size_t n = r->stop[i] ? strlen(r->stop[i]) : 0;
        if (n == 0) return um_fail_about(err, um_fail(err, UM_EINVAL, "stop string %zu is empty", i), "stop");
        j->stop[j->n_stop++] = um_strdup(r->stop[i]);
        j->stop_longest = UM_MAX(j->stop_longest, n);
    }
    return UM_OK;
}

/* Fills in the tokens: the prompt, masks, the suffix. */
static void init_tokens(um_req *q, const um_ids *prompt, const int32_t *suffix) {
    const int32_t behind = q->cap - q->n_suffix;
    for (int32_t i = 0; i < q->cap; i++) {
        bool given = i < q->n_prompt || i >= behind;
        q->token[i] = i < q->n_prompt ? prompt->data[i] : given ? suffix[i - behind] : q->traits->mask_id;
        q->written[i] = given ? 0 : -1;
    }
}

/* Allocates the optional results: log-probabilities and the states of snapshots. */
static void allocate_results(um_sequence *j, size_t answer) {
    um_req *q = &j->req;
    if (q->sampling.logprobs >= 0) {
        q->logprob = UM_NEW_ARRAY(float, (size_t)q->cap);
        q->top = UM_NEW_ARRAY(um_top, um_mul((size_t)q->cap, (size_t)q->n_top) + 1);
        j->likeliest = UM_NEW_ARRAY(um_logprob, um_mul(answer, (size_t)q->n_top) + 1);
    }
    if (!(j->events & UM_EVENT_SNAPSHOT)) return;
    j->state = UM_NEW_ARRAY(uint8_t, (size_t)q->cap);
    q->confidence = UM_NEW_ARRAY(float, (size_t)q->cap);
    for (int32_t i = 0; i < q->cap; i++) q->confidence[i] = NAN;
}

void um_sequence_allocate_tables(um_sequence *j, const um_engine *e) {
    const int32_t pages = um_pages_for(&e->pages, j->bound.slots_max);
    for (int i = 0; i < j->bound.tables; i++) um_table_init(&j->table[i], pages);
    if (e->near.n_pages) um_table_init(&j->near, pages);
}

/* Allocates everything that the steps need, so that they allocate nothing. */
static void allocate(um_sequence *j, const um_engine *e, const um_ids *prompt, const um_request *r) {
    um_req *q = &j->req;
    q->cap = j->bound.positions_max;
    q->token = UM_NEW_ARRAY(int32_t, (size_t)q->cap);
    q->written = UM_NEW_ARRAY(int32_t, (size_t)q->cap);
    init_tokens(q, prompt, r->suffix);
    size_t answer = (size_t)(q->limit - q->n_prompt);
    if (q->compat->allocated_limits) answer = (size_t)(q->cap - q->n_prompt);
    j->text_end = UM_NEW_ARRAY(int32_t, answer + 1);
    allocate_results(j, answer);
    um_buf_reserve(&j->text, um_mul(answer + 1, e->token_bytes_max) + 1);
    um_stream_init(&j->stream, e->model->tok, !r->keep_special);
    um_sequence_allocate_tables(j, e);
}

um_sequence *um_sequence_begin(const um_engine *e, const um_request *r, int32_t index) {
    um_sequence *j = UM_NEW(um_sequence);
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
    j->priority = r->priority;
    j->tenant = r->tenant;
    return j;
}

/* Resolves the automatic parameters and checks that all parameters fit together. n_prompt is known, and the range of
 * each parameter has been checked. */
static um_status resolve(um_sequence *j, const um_engine *e, const um_request *r, um_err *err) {
    um_req *q = &j->req;
    um_status st = check_names(&q->how, err);
    if (!st) st = resolve_sampling(e, q, err);
    if (!st) st = resolve_strategy(e, q, err);
    if (!st) st = check_suffix(e, q, r, err);
    if (!st) st = copy_stop_strings(j, r, err);
    if (!st) st = check_ids(e, r, err);
    if (!st) copy_stop_ids(j, r);
    if (!st) st = um_sequence_constrain(j, e, r, err);
    if (!st) st = q->strategy->init(q, err);
    if (!st) st = um_req_check_unread_params(q, &r->decoding, &e->config.decoding, err);
    if (st) return st;
    j->bound = q->strategy->need(q);
    st = um_sequence_check_need(e, j, err);
    return st ? st : um_sequence_check_language(j, err);
}

um_status um_sequence_new(um_sequence **out, um_engine *e, const um_request *r, int32_t index, um_err *err) {
    um_ids prompt = {0};
    um_sequence *j = um_sequence_begin(e, r, index);
    um_req *q = &j->req;
    um_status st = um_model_adapter(e->model, r->adapter, &q->adapter, err);
    if (!st) st = um_sequence_encode_prompt(e, r, &prompt, err);
    if (!st) q->n_prompt = q->filled = q->end = (int32_t)prompt.n;
    if (!st) st = check_parameters(q, err);
    if (!st) st = resolve(j, e, r, err);
    if (!st) {
        um_model_hold_adapter(e->model, q->adapter);
        j->holds_adapter = true;
        allocate(j, e, &prompt, r);
        st = um_sequence_new_edits(j, e, r, err);
    }
    um_ids_free(&prompt);
    if (st) {
        um_sequence_free(j, e);
        return st;
    }
    *out = j;
    return UM_OK;
}

um_status um_sequence_check(um_engine *e, const um_request *r, size_t n_prompt, um_err *err) {
    um_sequence *j = um_sequence_begin(e, r, 0);
    um_status st = um_model_adapter(e->model, r->adapter, &j->req.adapter, err);
    if (!st) st = um_fail_about(err, check_prompt(e, n_prompt, err), prompt_param(r));
    if (!st) j->req.n_prompt = j->req.filled = j->req.end = (int32_t)n_prompt;
    if (!st) st = resolve(j, e, r, err);
    um_sequence_free(j, e);
    return st;
}

um_status um_sequence_check_defaults(um_engine *e, um_err *err) {
    const int32_t any = 0;
    um_err own, *why = err ? err : &own;
    um_sequence *j = NULL;
    um_request r;
    um_request_init(e, &r);
    um_sampling_params s = r.sampling;
    if (s.max_tokens == 0) s.max_tokens = um_arch_answer_tokens(&e->model->arch);
    um_status st = check_min_tokens(&s, why);
    if (st) return st;
    r.ids = &any;
    r.n_ids = 1;
    r.sampling.max_tokens = 1;
    r.sampling.min_tokens = 0;
    st = um_sequence_new(&j, e, &r, 0, why);
    if (!st) st = um_req_check_unread_params(&j->req, &r.decoding, NULL, why);
    if (!st) e->sampler = j->req.sampler ? j->req.sampler->name : "none";
    if (!st) e->whole = j->req.strategy->fills_gaps;
    um_sequence_free(j, e);
    return st == UM_ELIMIT ? um_fail_in(why, "no request can run, not even one of a single token") : st;
}

void um_sequence_free(um_sequence *j, um_engine *e) {
    if (!j) return;
    if (j->holds_adapter) um_model_release_adapter(e->model, j->req.adapter);
    if (j->req.state) j->req.strategy->free(&j->req);
    for (int i = 0; i < 2; i++) {
        um_table_release(&j->table[i], &e->pages);
        um_table_deinit(&j->table[i]);
    }
    um_table_release(&j->near, &e->near);
    um_table_deinit(&j->near);
    for (size_t i = 0; i < j->n_stop; i++) um_free(j->stop[i]);
    um_free(j->stop);
    um_free(j->req.token);
    um_free(j->req.written);
    um_free(j->req.logprob);
    um_free(j->req.confidence);
    um_free(j->req.top);
    um_free(j->likeliest);
    um_free(j->stop_ids);
    um_req_edits_free(&j->req);
    um_sequence_free_constraints(j, e);
    um_free(j->text_end);
    um_free(j->state);
    um_buf_free(&j->text);
    um_free(j);
}
