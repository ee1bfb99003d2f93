/* autoregressive and self_speculation: token by token over causal keys (Nemotron-Labs-Diffusion).
 *
 * `known` tokens are written, and all but the last have their keys stored. A verifying pass feeds the last one and the
 * tokens drafted behind it, causally. Row i predicts position known + i. The predictions are written up to and
 * including the first that differs from the draft, and the keys behind it are given up: a later pass writes over them.
 * `autoregressive` drafts nothing, so each pass writes one token.
 *
 * `self_speculation` drafts in a pass of its own: it feeds the last token with masks behind it, which see each other,
 * as in block diffusion. The draft of a position is drawn with the random key of its prediction. The text is therefore
 * that of `autoregressive` with any sampling parameters, and a draft is right more often than with another key. A
 * request's adapter changes the drafts only.
 *
 * Penalties, bad words and constraints look at all tokens before a position, and those of a draft are not written. Such
 * a request drafts nothing. */
#include "decode/strategies/causal.h"

typedef struct speculation {
    int32_t window;  /* most tokens of a verifying pass; 1: nothing is drafted */
    int32_t n_draft; /* tokens that are drafted behind the last known one; -1: the next pass drafts */
    int32_t shown;   /* the first position that the last pass wrote or drafted; for traces */
    bool speculates; /* the strategy is self_speculation */
    bool drafted;    /* the last pass drafted */
    int32_t draft[]; /* [window] the last known token, then its drafts and masks */
} speculation;

static const um_option params[] = {
    {"draft_threshold", NULL, UM_OPT_FLOAT, UM_FIELD(um_decoding, draft_threshold), 0, 1, NULL, "0", NULL, "P",
     "Decoding (self_speculation)", "verify drafted tokens up to the first whose probability is not above this"},
};

/* Returns the number of tokens whose text is known. */
static int32_t known(const um_req *r) { return r->filled; }

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

/* Tells whether a prediction depends on the tokens before it other than through the model. */
static bool looks_back(const um_req *r) {
    const um_sampling_params *p = &r->sampling;
    return r->n_bad > 0 || r->fill || p->repetition_penalty != 1 || p->presence_penalty != 0 ||
           p->frequency_penalty != 0;
}

static um_status init_window(um_req *r, int32_t window, bool speculates, um_err *err) {
    um_status st = um_causal_check(r, r->strategy->name, err);
    if (st) return st;
    speculation *s = (speculation *)um_zalloc(sizeof(*s) + um_mul((size_t)window, sizeof(int32_t)));
    s->window = window;
    s->speculates = speculates;
    s->n_draft = speculates ? -1 : 0;
    r->n_top_asked = r->n_top;
    r->may_choose_mask = r->compat->keeps_masks;
    r->state = s;
    return UM_OK;
}

static um_status init_autoregressive(um_req *r, um_err *err) { return init_window(r, 1, false, err); }

static um_status init_speculation(um_req *r, um_err *err) {
    const um_status st = um_req_resolve_block_size(r, r->traits->block, err);
    return st ? st : init_window(r, r->how.block_size, true, err);
}

static void free_state(um_req *r) {
    um_free(r->state);
    r->state = NULL;
}

/* ---- Fed positions and needs ------------------------------------------------------------------------------------- */

/* Returns the most tokens that the next verifying pass feeds behind the stored ones, so that no row predicts a position
 * beyond the limit. The first pass only predicts the token behind the prompt. */
static int32_t most_verified(const um_req *r, const speculation *s) {
    if (known(r) == r->n_prompt || looks_back(r)) return 1;
    return UM_MIN(s->window, r->limit - known(r));
}

/* Returns how far a constraint looks ahead, and thus the most tokens of fixed text that a pass writes. */
static int32_t ahead(const um_req *r, const speculation *s) { return UM_MAX(s->window, r->traits->block); }

/* The next pass feeds [start, end). */
typedef struct feed {
    int32_t start, end;
    bool drafts;  /* the pass drafts tokens behind the known ones */
    bool partial; /* the pass only stores keys */
} feed;

static feed next_feed(const um_req *r, const speculation *s, int32_t budget) {
    const int32_t n = known(r), last = n - 1, most = most_verified(r, s);
    feed f = {.start = r->stored, .end = n + UM_MAX(s->n_draft, 0)};
    if (most > 1 && s->n_draft < 0) {
        f.drafts = r->stored == last;
        f.end = f.drafts ? UM_MIN(last + s->window, r->max_len) : last;
        f.partial = !f.drafts;
    }
    if (f.drafts || f.end - f.start <= budget) return f;
    f.end = UM_MIN(f.start + UM_MAX(budget, 1), last);
    f.partial = f.end > f.start;
    if (!f.partial) f.end = n + UM_MAX(s->n_draft, 0); /* the pass that verifies is never cut */
    return f;
}

static um_need need(const um_req *r) {
    const speculation *s = (const speculation *)r->state;
    const feed f = next_feed(r, s, INT32_MAX), least = next_feed(r, s, 0);
    const int32_t longest = (int32_t)UM_MIN((int64_t)r->limit + s->window, (int64_t)r->max_len);
    const int32_t edits = um_req_bad_edits_max(r);
    return (um_need){.tokens = f.end - f.start,
                     .least = least.end - least.start,
                     .rows = s->window,
                     .slots = f.end,
                     .edits = edits,
                     .tokens_max = s->window,
                     .rows_max = ahead(r, s),
                     .slots_max = longest,
                     .edits_max = edits,
                     .positions_max = longest,
                     .tables = 1};
}

/* ---- Plan -------------------------------------------------------------------------------------------------------- */

/* Puts the drafts into the segment, behind the known tokens. um_pass_add has copied masks to these places. */
static void feed_drafts(const um_req *r, const speculation *s, const um_pass *p, const um_segment *seg, const feed *f) {
    int32_t *id = p->id + (seg->id - p->id);
    for (int32_t pos = known(r); pos < f->end; pos++) id[pos - f->start] = s->draft[pos - known(r)];
}

static void plan(um_req *r, um_pass *pass) {
    speculation *s = (speculation *)r->state;
    const feed f = next_feed(r, s, pass->budget);
    const um_visibility rule = {.see = f.drafts ? UM_SEE_FULL : UM_SEE_CAUSAL};
    const um_pass_kind kind = f.drafts ? UM_PASS_DENOISE : um_causal_kind(r);
    um_segment *seg = um_pass_add(pass, r, kind, f.start, f.end, rule);
    s->drafted = f.drafts;
    if (s->speculates && !f.drafts) seg->adapter = -1;
    if (um_pass_store(pass, r, f.partial ? f.end : 0)) return;
    if (!f.drafts) feed_drafts(r, s, pass, seg, &f);
    /* Rows of drafts predict their own position, and rows that verify predict the next one. */
    const int32_t first = known(r), n = f.drafts ? most_verified(r, s) - 1 : f.end - (first - 1);
    um_req_prepare_rows(r, first, UM_MIN(first + ahead(r, s), r->limit));
    for (int32_t i = 0; i < n; i++) um_pass_row(pass, r, first + i - !f.drafts - f.start, first + i, 0);
}

/* ---- Apply ------------------------------------------------------------------------------------------------------- */

/* Keeps the drafts up to the first one that is not sure enough. compat: verifies a mask in its place. */
static void keep_drafts(um_req *r, speculation *s, const um_answer *answer) {
    const int32_t n = most_verified(r, s) - 1;
    s->n_draft = 0;
    for (int32_t i = 0; i < n; i++) {
        const bool is_sure = answer[i].q_sample > r->how.draft_threshold;
        if (!is_sure && !r->compat->keeps_masks) break;
        s->draft[s->n_draft++] = is_sure ? answer[i].sample : r->traits->mask_id;
    }
}

/* Writes the tokens that follow without a choice under the request's constraint. */
static void write_forced(um_req *r, int32_t from) {
    for (int32_t p = from; r->fill && p > r->n_prompt && p < r->limit; p++) {
        um_req_write_forced(r, p, p + 1);
        if (um_req_masked(r, p)) return;
    }
}

/* Writes the predictions up to the first that differs from its draft. */
static void accept(um_req *r, speculation *s, const um_answer *answer) {
    const int32_t first = known(r), n = UM_MAX(s->n_draft, 0);
    r->stored = first;
    for (int32_t i = 0; i <= n; i++) {
        const int32_t id = answer[i].sample;
        if (id < 0 || !um_req_accepts(r, first + i, id)) break;
        um_req_write(r, first + i, id, &answer[i]);
        r->stored = first + i;
        if (i < n && s->draft[i] != id) break;
    }
    s->n_draft = s->speculates ? -1 : 0;
    write_forced(r, first + r->n_new);
}

static void apply(um_req *r, const um_answer *answer) {
    speculation *s = (speculation *)r->state;
    if (um_req_store(r)) return;
    r->n_new = 0;
    r->prefill_passes += um_causal_is_prefill(r);
    s->shown = known(r);
    if (s->drafted) keep_drafts(r, s, answer);
    else accept(r, s, answer);
    um_req_check_stop(r);
    r->end = UM_MIN(known(r) + s->window, r->max_len);
}

/* ---- Sharing and traces ------------------------------------------------------------------------------------------ */

/* The last known token must be fed, because its row predicts the next one. The stored keys are those without an
 * adapter. */
static uint64_t share_speculation(const um_req *r, int32_t *most) {
    *most = known(r) - 1;
    return r->adapter < 0 ? UM_CAUSAL_SHARE : UM_CAUSAL_SHARE + 1;
}

static uint64_t share_autoregressive(const um_req *r, int32_t *most) {
    *most = known(r) - 1;
    return UM_CAUSAL_SHARE;
}

static int32_t blocks(const um_req *r, um_block_view *out) {
    const speculation *s = (const speculation *)r->state;
    return um_req_view_block(r, known(r), known(r) + s->window, um_block_status_name(UM_BLOCK_ACTIVE), out);
}

/* After a draft the trace shows the drafted tokens, else the tokens that were written. */
static void trace(const um_req *r, um_trace_space *space, um_trace *out) {
    const speculation *s = (const speculation *)r->state;
    space->block[0] = s->shown - r->n_prompt;
    space->status[0] = um_block_status_name(s->drafted ? UM_BLOCK_ACTIVE : UM_BLOCK_TO_CACHE);
    space->masks[0] = 0;
    out->n_new = r->n_new;
    out->n_blocks = 1;
    out->block = space->block;
    out->masks = space->masks;
    out->status = space->status;
    out->token = s->drafted ? s->draft : r->token + s->shown;
    out->n_tokens = s->drafted ? s->n_draft : r->n_new;
}

const um_strategy um_strategy_autoregressive = {
    .name = "autoregressive",
    .aliases = "ar",
    .summary = "one token a pass, from left to right",
    .source = "Nemotron-Labs-Diffusion: ar_generate() of the checkpoints",
    .init = init_autoregressive,
    .need = need,
    .plan = plan,
    .apply = apply,
    .blocks = blocks,
    .trace = trace,
    .share = share_autoregressive,
    .free = free_state,
};

const um_strategy um_strategy_self_speculation = {
    .name = "self_speculation",
    .aliases = "linear_spec",
    .summary = "the text of autoregressive in fewer passes: block diffusion drafts tokens, a causal pass verifies them",
    .source = "Nemotron-Labs-Diffusion: linear_spec_generate() of the checkpoints",
    .params = {{params, UM_LEN(params)}},
    .init = init_speculation,
    .need = need,
    .plan = plan,
    .apply = apply,
    .blocks = blocks,
    .trace = trace,
    .share = share_speculation,
    .free = free_state,
};
