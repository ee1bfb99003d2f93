/* Turns prompts into token ids, and checks them against the limits of the workers. */
#include "engine/options.h"
#include "server/body/body.h"

bool um_body_is_whole(const um_body *b) {
    const char *asked = b->checked.decoding.strategy;
    return um_strategy_is_whole(um_streq(asked, "auto") ? b->capacity.strategy : asked);
}

/* Returns the share of an answer in the limit of the API key. */
static int64_t most_of_key(const um_body *b) {
    int64_t n_answers = (int64_t)b->n_prompts * b->generate.n;
    return b->capacity.answer_tokens ? UM_MAX(b->capacity.answer_tokens / UM_MAX(n_answers, 1), 1) : INT64_MAX;
}

/* Sets max_tokens, if the request leaves it open, to the number of tokens that fit after the longest prompt, by
 * positions, by pages and by the API key. Strategies with a whole canvas are left alone, because they compute the whole
 * length even for a short answer. */
static um_status set_longest_max_tokens(um_body *b, um_err *err) {
    size_t longest = 0;
    char number[UM_NUMBER_MAX];
    if (!b->fills || b->checked.sampling.max_tokens || um_body_is_whole(b)) return UM_OK;
    for (size_t i = 0; i < b->n_prompts; i++) longest = UM_MAX(longest, b->prompt[i].n_ids);
    int64_t most = UM_MIN(b->capacity.max_len, b->capacity.tokens) - (int64_t)longest;
    snprintf(number, sizeof number, "%lld", (long long)UM_MAX(UM_MIN(most, most_of_key(b)), 1));
    return um_body_set(b, "max_tokens", number, err);
}

/* ---- Ids --------------------------------------------------------------------------------------------------------- */

/* Appends ids to those of the prompt, in the arena, and frees them. */
static void append_ids(um_body *b, um_prompt *p, int32_t *ids, size_t n) {
    int32_t *all = um_arena_alloc(&b->arena, um_mul(p->n_ids + n + 1, sizeof *all));
    if (p->n_ids) memcpy(all, p->ids, p->n_ids * sizeof *all);
    if (n) memcpy(all + p->n_ids, ids, n * sizeof *all);
    um_free(ids);
    p->ids = all;
    p->n_ids += n;
}

static um_status encode_text(um_body *b, um_prompt *p, um_str text, bool add_special, um_err *err) {
    int32_t *ids = NULL;
    size_t n = 0;
    um_status st = um_model_encode_prompt(b->setup->model, text.p ? text.p : "", text.n, b->checked.special_in_content,
                                          add_special, &ids, &n, err);
    append_ids(b, p, ids, n);
    return st;
}

/* The opening is the server's own text, so it may contain special tokens. */
static um_status encode_chat(um_body *b, um_prompt *p, um_err *err) {
    um_model *m = b->setup->model;
    int32_t *ids = NULL;
    size_t n = 0;
    um_status st = um_model_render_chat(m, &b->chat, NULL, NULL, &ids, &n, err);
    append_ids(b, p, ids, n);
    if (st || !b->opening.n) return st;
    st = um_model_encode(m, b->opening.p, b->opening.n, true, &ids, &n, err);
    append_ids(b, p, ids, n);
    return st;
}

static um_status check_ids(um_body *b, const um_prompt *p, um_err *err) {
    um_model_info info;
    um_model_get_info(b->setup->model, &info);
    for (size_t i = 0; i < p->n_ids; i++)
        if (p->ids[i] < 0 || p->ids[i] >= info.vocab)
            return um_fail(err, UM_ERANGE, "prompt token %zu is %d, outside the vocabulary 0..%d", i, p->ids[i],
                           info.vocab - 1);
    return UM_OK;
}

/* Keeps the last tokens of a prompt that is longer than truncate_prompt_tokens. With -1 the prompt leaves room for
 * max_tokens, or for one token if the request leaves them open. */
static um_status truncate_prompt(const um_body *b, um_prompt *p, um_err *err) {
    const int64_t most = b->capacity.max_len, after = b->generate.n_suffix + UM_MAX(b->checked.sampling.max_tokens, 1);
    int64_t n = b->truncate_to < 0 ? UM_MAX(most - after, 1) : b->truncate_to;
    if (b->truncate_to > most)
        return um_fail_param(err, UM_ERANGE, "truncate_prompt_tokens", "%d tokens, but max_model_len is %lld",
                             b->truncate_to, (long long)most);
    if (b->truncate_to == 0 || (int64_t)p->n_ids <= n) return UM_OK;
    p->ids += p->n_ids - (size_t)n;
    p->n_ids = (size_t)n;
    return UM_OK;
}

static um_status check_length(um_body *b, const um_prompt *p, um_err *err) {
    size_t most = (size_t)b->capacity.max_len, suffix = b->generate.n_suffix;
    if (p->n_ids == 0) return um_fail(err, UM_EINVAL, "the prompt is empty; a request needs at least one token");
    if (p->n_ids + suffix < most) return UM_OK;
    b->error_code = "context_length_exceeded";
    if (suffix)
        return um_fail(err, UM_ELIMIT,
                       "prompt and suffix have %zu + %zu = %zu tokens, but max_model_len is %zu and an answer needs "
                       "room",
                       p->n_ids, suffix, p->n_ids + suffix, most);
    return um_fail(err, UM_ELIMIT, "the prompt has %zu tokens, but max_model_len is %zu and an answer needs room",
                   p->n_ids, most);
}

static um_status encode_prompt(um_body *b, um_prompt *p, um_err *err) {
    um_status st = UM_OK;
    switch (p->kind) {
    case UM_PROMPT_TEXT: st = encode_text(b, p, p->text, b->special_tokens, err); break;
    case UM_PROMPT_IDS: st = check_ids(b, p, err); break;
    case UM_PROMPT_CHAT: st = encode_chat(b, p, err); break;
    }
    if (!st) st = truncate_prompt(b, p, err);
    if (!st) st = check_length(b, p, err);
    const char *usual = p->kind == UM_PROMPT_CHAT ? "messages" : "prompt";
    return um_fail_about(err, st, b->prompt_name ? b->prompt_name : usual);
}

static um_status encode_suffix(um_body *b, um_err *err) {
    um_prompt p = {0};
    if (!b->suffix.n) return UM_OK;
    um_status st = encode_text(b, &p, b->suffix, false, err);
    if (st) return um_fail_about(err, st, "suffix");
    b->generate.suffix = p.ids;
    b->generate.n_suffix = (uint32_t)p.n_ids;
    return UM_OK;
}

um_status um_body_encode(um_body *b, um_err *err) {
    um_err own, *e = err ? err : &own;
    e->param[0] = '\0';
    um_status st = encode_suffix(b, e);
    for (size_t i = 0; i < b->n_prompts && !st; i++) st = encode_prompt(b, &b->prompt[i], e);
    return st ? st : set_longest_max_tokens(b, e);
}

/* ---- Lists ------------------------------------------------------------------------------------------------------- */

static const char *const *copy_texts(um_body *b, const um_str *from, size_t n) {
    const char **text = um_arena_alloc(&b->arena, um_mul(n + 1, sizeof *text));
    for (size_t i = 0; i < n; i++) text[i] = from[i].p;
    return text;
}

void um_body_copy_lists(um_body *b, const um_msg_generate *g, um_request *r) {
    um_bias *bias = um_arena_alloc(&b->arena, um_mul((size_t)g->n_bias + 1, sizeof *bias));
    for (uint32_t i = 0; i < g->n_bias; i++) bias[i] = (um_bias){g->bias_id[i], g->bias[i]};
    r->bias = bias;
    r->n_bias = g->n_bias;
    r->stop = copy_texts(b, g->stop, g->n_stop);
    r->n_stop = g->n_stop;
    r->bad_words = copy_texts(b, g->bad_words, g->n_bad_words);
    r->n_bad_words = g->n_bad_words;
    r->stop_ids = g->stop_ids;
    r->n_stop_ids = g->n_stop_ids;
    r->allowed_ids = g->allowed_ids;
    r->n_allowed_ids = g->n_allowed_ids;
}

/* ---- The workers' checks ----------------------------------------------------------------------------------------- */

/* Returns the configuration of a worker's engine, as far as the checks read it. */
static void get_config(const um_body *b, um_config *c) {
    *c = *b->setup->config->engine;
    c->max_model_len = b->capacity.max_len;
    c->max_num_reqs = b->capacity.max_reqs;
    c->max_num_batched_tokens = b->capacity.tokens_per_step;
    c->page_size = b->capacity.page_size;
    c->num_pages = b->capacity.pages;
    if (um_streq(c->decoding.strategy, "auto"))
        memcpy(c->decoding.strategy, b->capacity.strategy, sizeof b->capacity.strategy);
}

/* Makes the request that a worker would make of a generation, without the tokens of the prompt. */
static um_status make_request(um_body *b, const um_msg_generate *g, const um_config *c, um_request *r, um_err *err) {
    um_status st = UM_OK;
    um_request_init_config(c, r);
    for (uint32_t i = 0; i < g->n_set && !st; i++)
        st = um_fail_about(err, um_request_set(r, g->set[i].name.p, g->set[i].value.p, err), g->set[i].name.p);
    um_body_copy_lists(b, g, r);
    r->suffix = g->n_suffix ? g->suffix : NULL;
    r->n_suffix = g->n_suffix;
    /* The model of the server does not know adapters that were loaded later. */
    if (g->adapter.n && !um_adapter_list_has(b->setup->late, g->adapter.p)) r->adapter = g->adapter.p;
    r->constraint = g->constraint;
    r->constraint_text = g->constraint_text.p;
    r->reasoning_begin = g->reasoning_begin.n ? g->reasoning_begin.p : NULL;
    r->reasoning_end = g->reasoning_end.n ? g->reasoning_end.p : NULL;
    return st;
}

um_status um_body_check(um_body *b, um_err *err) {
    um_config c;
    um_request r;
    um_err own, *e = err ? err : &own;
    e->param[0] = '\0';
    um_status st = UM_OK;
    if (!b->capacity.pages) return UM_OK;
    get_config(b, &c);
    for (size_t i = 0; i < b->n_prompts && !st; i++) {
        if (i == 0 || b->own) st = make_request(b, &um_body_of(b, i)->generate, &c, &r, e);
        if (!st) st = um_request_check_for(b->setup->model, &c, &r, b->prompt[i].n_ids, e);
    }
    return st ? um_body_name_constraint(b, e) : UM_OK;
}
