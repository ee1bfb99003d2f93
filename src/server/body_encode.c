/* Prompts become ids: templates are rendered, texts encoded, lengths compared with what the workers can hold. */
#include "engine/options.h"
#include "server/body.h"

/* ---- Room -------------------------------------------------------------------------------------------------------- */

/* What the first worker that is up said of its engine; NULL before. All run the same configuration. */
static const um_msg_ready *ready_of(um_server *s) {
    um_backend *backend = um_server_backend(s);
    for (int32_t i = 0; backend && i < um_backend_size(backend); i++) {
        um_worker_view v = um_backend_worker(backend, i);
        if (v.ready) return v.ready;
    }
    return NULL;
}

static bool is_whole(um_str strategy) {
    char *name = um_strndup(strategy.p, strategy.n);
    bool whole = um_strategy_is_whole(name);
    um_free(name);
    return whole;
}

um_room um_room_of(um_server *s) {
    const um_msg_ready *ready = ready_of(s);
    const um_config *c = um_server_get_config(s)->engine;
    um_model_info info;
    if (ready)
        return (um_room){ready->max_model_len, (int64_t)(ready->pages_total - 1) * ready->page_size,
                         is_whole(ready->strategy)};
    um_model_get_info(um_server_model(s), &info);
    return (um_room){c->max_model_len ? UM_MIN(c->max_model_len, info.max_position) : info.max_position, INT64_MAX,
                     false};
}

bool um_body_is_whole(const um_body *b) {
    const char *asked = b->checked.decoding.strategy;
    return um_streq(asked, "auto") ? b->room.is_whole : um_strategy_is_whole(asked);
}

/* Without max_tokens the longest answer is what fits behind the longest prompt, in positions and in pages. On a whole
 * canvas an answer that may fill the model would cost as if it did. */
static um_status fill(um_body *b, um_err *err) {
    size_t longest = 0;
    char number[UM_NUMBER_MAX];
    if (!b->fills || b->checked.sampling.max_tokens || um_body_is_whole(b)) return UM_OK;
    for (size_t i = 0; i < b->n_prompts; i++) longest = UM_MAX(longest, b->prompt[i].n_ids);
    int64_t most = UM_MIN(b->room.max_len, b->room.tokens);
    snprintf(number, sizeof number, "%lld", (long long)UM_MAX(most - (int64_t)longest, 1));
    return um_body_set(b, "max_tokens", number, err);
}

/* ---- Ids --------------------------------------------------------------------------------------------------------- */

/* Copies ids into the arena, behind those that are there, and frees them. */
static void append_ids(um_body *b, um_prompt *p, int32_t *ids, size_t n) {
    int32_t *all = um_arena_alloc(&b->arena, um_mul(p->n_ids + n + 1, sizeof *all));
    if (p->n_ids) memcpy(all, p->ids, p->n_ids * sizeof *all);
    if (n) memcpy(all + p->n_ids, ids, n * sizeof *all);
    um_free(ids);
    p->ids = all;
    p->n_ids += n;
}

static um_status encode_text(um_body *b, um_prompt *p, um_str text, bool around, um_err *err) {
    int32_t *ids = NULL;
    size_t n = 0;
    um_status st = um_model_encode_prompt(um_server_model(b->server), text.p ? text.p : "", text.n,
                                          b->checked.special_in_content, around, &ids, &n, err);
    append_ids(b, p, ids, n);
    return st;
}

/* The opening is ours and may spell tokens. */
static um_status encode_chat(um_body *b, um_prompt *p, um_err *err) {
    um_model *m = um_server_model(b->server);
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
    um_model_get_info(um_server_model(b->server), &info);
    for (size_t i = 0; i < p->n_ids; i++)
        if (p->ids[i] < 0 || p->ids[i] >= info.vocab)
            return um_fail(err, UM_ERANGE, "prompt token %zu is %d, outside the vocabulary 0..%d", i, p->ids[i],
                           info.vocab - 1);
    return UM_OK;
}

static um_status check_length(um_body *b, const um_prompt *p, um_err *err) {
    size_t most = (size_t)b->room.max_len, suffix = b->generate.n_suffix;
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
    if (!st) st = check_length(b, p, err);
    return um_fail_about(err, st, p->kind == UM_PROMPT_CHAT ? "messages" : b->prompt_name ? b->prompt_name : "prompt");
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
    return st ? st : fill(b, e);
}
