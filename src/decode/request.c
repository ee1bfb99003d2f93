/* A request: writes its tokens, checks its stop conditions and builds its passes. */
#include <math.h>

#include "decode/fill.h"

/* Returns the probability of the written id. Most samplers write the sampled id; some write the best id or another of
 * the row's likeliest ids. */
static float probability_of(const um_req *r, const um_answer *a, int32_t id) {
    if (id == a->sample) return a->p_sample;
    if (id == a->best) return a->p_best;
    for (int32_t k = 0; a->top && k < r->n_top_asked; k++)
        if (a->top[k].id == id) return a->top[k].p;
    return a->p_sample;
}

/* Stores the likeliest ids of a written token. Ids that no answer contains are left out where rows may predict them. */
static void keep_top(um_req *r, int32_t pos, const um_answer *a) {
    um_top *top = r->top + (size_t)pos * (size_t)r->n_top;
    const um_traits *t = r->traits;
    int32_t n = 0;
    for (int32_t k = 0; k < r->n_top_asked && n < r->n_top; k++) {
        const int32_t id = a->top[k].id;
        if (!r->moves_tokens || (id != t->mask_id && id != t->delete_id && id != t->split_id)) top[n++] = a->top[k];
    }
    while (n < r->n_top) top[n++] = (um_top){.id = -1};
}

void um_req_write(um_req *r, int32_t pos, int32_t id, const um_answer *a) {
    assert(pos >= r->n_prompt && pos < r->cap && pos >= r->filled);
    assert(um_req_masked(r, pos) || pos >= r->settled);
    assert(id >= 0 && (id != r->traits->mask_id || r->may_choose_mask));
    r->n_new += um_req_masked(r, pos);
    r->token[pos] = id;
    r->written[pos] = r->nfe + 1;
    const float p = probability_of(r, a, id);
    if (r->logprob) r->logprob[pos] = logf(p);
    if (r->confidence) r->confidence[pos] = p;
    if (r->top && r->n_top > 0) keep_top(r, pos, a);
}

void um_req_erase(um_req *r, int32_t pos) {
    assert(pos >= r->filled && pos >= r->settled && !um_req_masked(r, pos));
    r->token[pos] = r->traits->mask_id;
    r->written[pos] = -1;
    if (r->confidence) r->confidence[pos] = NAN;
    if (r->fill) um_fill_erased(r->fill);
}

static void move_token(um_req *r, int32_t to, int32_t from) {
    const size_t n = (size_t)r->n_top;
    r->token[to] = r->token[from];
    r->written[to] = r->written[from];
    if (r->logprob) r->logprob[to] = r->logprob[from];
    if (r->confidence) r->confidence[to] = r->confidence[from];
    if (r->top && n) memcpy(r->top + (size_t)to * n, r->top + (size_t)from * n, n * sizeof(um_top));
}

/* Tokens that move to the right go first, the last one first, then those that move to the left. No token is then
 * overwritten before it has moved, because all keep their order. */
void um_req_rearrange(um_req *r, int32_t start, const int32_t *from, int32_t n) {
    for (int32_t i = n - 1; i >= 0; i--)
        if (from[i] >= 0 && from[i] < i) move_token(r, start + i, start + from[i]);
    for (int32_t i = 0; i < n; i++)
        if (from[i] > i) move_token(r, start + i, start + from[i]);
    for (int32_t i = 0; i < n; i++) {
        const int32_t pos = start + i;
        assert(from[i] == i || (pos >= r->filled && pos >= r->settled && pos >= r->n_prompt && !r->fill));
        if (from[i] < 0 && !um_req_masked(r, pos)) um_req_erase(r, pos);
    }
}

/* ---- Blocks in flight -------------------------------------------------------------------------------------------- */

bool um_req_view_block(const um_req *r, int32_t start, int32_t end, const char *status, um_block_view *out) {
    if (!r->compat->allocated_limits) end = UM_MIN(end, r->limit);
    end = UM_MIN(end, r->cap - r->n_suffix);
    *out = (um_block_view){.start = start - r->n_prompt, .length = end - start, .status = status};
    for (int32_t p = start; p < end; p++) out->masks += um_req_masked(r, p);
    return end > start;
}

int32_t um_req_blocks(const um_req *r, um_block_view *out) {
    return r->finish || !r->strategy->blocks ? 0 : r->strategy->blocks(r, out);
}

/* ---- Stop conditions --------------------------------------------------------------------------------------------- */

static bool is_among(const int32_t *ids, int32_t n, int32_t id) {
    for (int32_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

um_finish um_req_stops_at(const um_req *r, int32_t id) {
    if (is_among(r->stop_ids, r->n_stop_ids, id)) return UM_FINISH_STOP_ID;
    if (!r->n_suffix && !r->sampling.ignore_eos && is_among(r->traits->stop, r->traits->n_stop, id))
        return UM_FINISH_EOS;
    return UM_FINISH_NONE;
}

static void finish(um_req *r, um_finish why, int32_t end) {
    assert(end >= r->n_prompt);
    r->finish = why;
    r->n_answer = end - r->n_prompt;
}

/* Tells whether the id pads the end of a gap: the padding id or one of the model's stop ids. */
static bool is_padding(const um_req *r, int32_t id) {
    return r->n_suffix && !r->sampling.ignore_eos &&
           (id == r->traits->pad || is_among(r->traits->stop, r->traits->n_stop, id));
}

int32_t um_req_shown_end(const um_req *r) {
    int32_t end = r->filled;
    while (end > r->n_prompt && is_padding(r, r->token[end - 1])) end--;
    return end;
}

void um_req_finish(um_req *r, um_finish why) { finish(r, why, um_req_shown_end(r)); }

/* Finishes a request whose answer has reached its limit. */
static void finish_full(um_req *r) {
    um_finish why = r->limit == r->max_len ? UM_FINISH_MAX_LEN : UM_FINISH_MAX_TOKENS;
    if (r->n_suffix) why = UM_FINISH_STEPS;
    if (r->fill) why = UM_FINISH_EOS; /* the text is complete: a constraint counts the tokens that are left */
    um_req_finish(r, why);
}

static int32_t run_limit(const um_req *r) {
    return r->sampling.max_repetition_run > 0 ? r->sampling.max_repetition_run : INT32_MAX;
}

/* Ends a request whose registered sampler has failed. */
static bool ends_by_sampler(um_req *r) {
    if (r->sampler_failed) um_req_finish(r, UM_FINISH_SAMPLER);
    return r->sampler_failed;
}

void um_req_check_stop(um_req *r) {
    r->nfe++;
    if (ends_by_sampler(r)) return;
    int32_t end = UM_MIN(UM_MIN(r->limit, r->settled), r->cap - r->n_suffix);
    for (; r->filled < end && !um_req_masked(r, r->filled); r->filled++) {
        int32_t pos = r->filled;
        um_finish stop = um_req_stops_at(r, r->token[pos]);
        if (stop != UM_FINISH_NONE) {
            r->stop_id = r->token[pos];
            finish(r, stop, pos);
            return;
        }
        bool same = pos > r->n_prompt && r->token[pos] == r->token[pos - 1];
        r->run_length = same ? r->run_length + 1 : 1;
        if (r->run_length >= run_limit(r)) {
            r->filled++;
            um_req_finish(r, UM_FINISH_REPETITION);
            return;
        }
    }
    const um_finish constraint = um_req_check_constraint(r);
    if (constraint != UM_FINISH_NONE) um_req_finish(r, constraint);
    else if (r->filled == r->limit) finish_full(r);
    else if (r->sampling.max_nfe > 0 && r->nfe >= r->sampling.max_nfe) um_req_finish(r, UM_FINISH_MAX_NFE);
}

/* ---- Stop conditions of Diffulex (--compat diffulex) ------------------------------------------------------------- */

static int32_t eos_position(const um_req *r) {
    if (r->sampling.ignore_eos) return -1;
    for (int32_t p = r->n_prompt; p < r->end; p++)
        if (r->token[p] == r->traits->eos && !um_req_masked(r, p)) return p;
    return -1;
}

bool um_req_eos_compat(const um_req *r) { return eos_position(r) >= 0; }

/* Returns the number of equal ids at the end of the answer. Diffulex counts masks too. */
static int32_t trailing_run(const um_req *r, int32_t end) {
    int32_t n = 0;
    while (end - n > r->n_prompt && r->token[end - 1 - n] == r->token[end - 1]) n++;
    return n;
}

static int32_t answer_end_compat(const um_req *r, int32_t allocated) {
    int32_t eos = eos_position(r);
    if (eos >= 0) return eos;
    if (allocated >= r->max_len) return r->max_len;
    if (allocated - r->n_prompt >= r->sampling.max_tokens) return r->n_prompt + r->sampling.max_tokens;
    return UM_MAX(r->end, r->n_prompt);
}

static um_finish hard_stop_compat(const um_req *r, int32_t allocated) {
    if (allocated - r->n_prompt >= r->sampling.max_tokens) return UM_FINISH_MAX_TOKENS;
    if (allocated >= r->max_len) return UM_FINISH_MAX_LEN;
    if (r->sampling.max_nfe > 0 && r->nfe >= r->sampling.max_nfe) return UM_FINISH_MAX_NFE;
    if (trailing_run(r, answer_end_compat(r, allocated)) >= run_limit(r)) return UM_FINISH_REPETITION;
    return UM_FINISH_NONE;
}

bool um_req_truncated_compat(const um_req *r, int32_t allocated) {
    return um_req_eos_compat(r) || hard_stop_compat(r, allocated) != UM_FINISH_NONE;
}

void um_req_check_stop_compat(um_req *r, int32_t allocated, bool soft) {
    r->nfe++;
    if (ends_by_sampler(r)) return;
    um_finish why = hard_stop_compat(r, allocated); /* takes precedence over a soft stop */
    if (why == UM_FINISH_NONE && soft && um_req_eos_compat(r)) why = UM_FINISH_EOS;
    int32_t end = answer_end_compat(r, allocated), filled = r->filled;
    while (filled < end && !um_req_masked(r, filled)) filled++;
    r->filled = UM_MIN(filled, UM_MAX(r->filled, r->settled));
    if (why == UM_FINISH_NONE) return;
    /* An answer contains no masks: it ends before the first one. */
    r->filled = filled;
    finish(r, why, UM_MIN(end, filled));
}

/* ---- Passes ------------------------------------------------------------------------------------------------------ */

um_segment *um_pass_add(um_pass *p, um_req *r, um_pass_kind kind, int32_t start, int32_t end, um_visibility rule) {
    assert(start >= 0 && end > start && end <= r->cap);
    um_segment *s = &p->seg[p->n_seg++];
    int32_t *id = p->id + p->n_tokens, *pos = p->pos + p->n_tokens, n = end - start;
    for (int32_t i = 0; i < n; i++) {
        id[i] = r->token[start + i];
        pos[i] = start + i;
    }
    p->n_tokens += n;
    *s = (um_segment){.req = r,
                      .kind = kind,
                      .n = n,
                      .id = id,
                      .pos = pos,
                      .vis = pos,
                      .page = r->page[0],
                      .keys = {0, end},
                      .rule = rule,
                      .adapter = r->adapter,
                      .save_src = -1};
    return s;
}

void um_pass_feed_masks_last(um_pass *p, const um_req *r, um_segment *s, int32_t from) {
    int32_t *id = p->id + (s->id - p->id), *pos = p->pos + (s->pos - p->pos), *vis = p->vis + (s->pos - p->pos);
    const int32_t start = pos[0], first = from - start;
    int32_t n = first;
    assert(first >= 0 && first <= s->n && s->vis == s->pos);
    for (int32_t i = 0; i < s->n; i++) vis[i] = start + i;
    for (int masked = 0; masked < 2; masked++)
        for (int32_t at = from; at < start + s->n; at++) {
            if (um_req_masked(r, at) != masked) continue;
            id[n] = r->token[at];
            pos[n++] = at;
        }
    s->vis = vis;
}

um_row *um_pass_row(um_pass *p, um_req *r, int32_t src, int32_t pos, int32_t count) {
    um_row *row = &p->row[p->n_rows++];
    const um_sampling_params *s = &r->sampling;
    const bool early = pos < r->n_prompt + s->min_tokens;
    uint64_t allow_id;
    const uint32_t *allow = um_req_allowed(r, pos, &allow_id);
    /* All fields are named, because gcc clears a struct of this size with a slow instruction. */
    *row = (um_row){.src = {src, 0},
                    .w = {1, 0},
                    .edit = early ? r->early_edit : r->edit,
                    .n_edit = early ? r->n_early_edit : r->n_edit,
                    .own = NULL,
                    .n_own = 0,
                    .allow = allow,
                    .allow_id = allow_id,
                    .how = {.temperature = s->temperature,
                            .top_p = s->top_p,
                            .min_p = s->min_p,
                            .top_k = s->top_k,
                            .filters_first = r->traits->filters_first,
                            .key = s->temperature > 0 ? um_req_key(r, pos, count, UM_USE_SAMPLE) : 0},
                    .want = UM_WANT_SAMPLE,
                    .id = 0,
                    .n_top = r->n_top_asked,
                    .top = r->n_top_asked ? p->top + p->n_tops : NULL};
    p->n_tops += r->n_top_asked;
    int32_t n = r->n_bad ? um_req_list_bad(r, pos, p->edit + p->n_edits) : 0;
    if (n) um_pass_edits(p, row, n);
    return row;
}

um_edit *um_pass_edits(um_pass *p, um_row *row, int32_t n) {
    um_edit *e = p->edit + p->n_edits;
    if (!row->n_own) row->own = e;
    assert(row->own + row->n_own == e);
    row->n_own += n;
    p->n_edits += n;
    return e;
}

void um_pass_use_scratch(um_pass *p, um_segment *s, int32_t end) {
    int32_t n = UM_CEIL_DIV(end, p->page_size);
    int32_t *page = p->scratch + p->n_scratch;
    for (int32_t i = 0; i < n; i++) page[i] = p->first_scratch++;
    p->n_scratch += n;
    s->page = page;
}

int32_t um_req_first_scratch(const um_req *r, int32_t n) {
    int32_t step = r->traits->page_size;
    while (step % UM_KEY_GROUP) step += r->traits->page_size;
    return UM_CEIL_DIV(n, step) * step;
}

um_soft *um_pass_soft(um_pass *p, um_segment *s, int32_t at, int32_t n, int32_t **id, float **w) {
    um_soft *soft = p->soft + p->n_softs++;
    if (!s->soft) s->soft = soft;
    s->n_soft++;
    *id = p->soft_id + p->n_soft_ids;
    *w = p->soft_w + p->n_soft_ids;
    p->n_soft_ids += n;
    *soft = (um_soft){.at = at, .n = n, .id = *id, .w = *w};
    return soft;
}

um_kv_select *um_pass_select(um_pass *p, um_segment *s) {
    um_kv_select *select = p->select + p->n_selects++;
    s->select = select;
    return select;
}
