/* The score of a given answer: its passes from plan to apply, and its sums. */
#include "decode/score.h"

#include <math.h>

#include "decode/mask_sets.h"

#define P(field) UM_FIELD(um_score_params, field)

const um_option um_scoring_options[7] = {
    UM_SCORING_ROWS(um_score_params, ),
    {"seed", NULL, UM_OPT_INT64, P(seed), 0, 9007199254740991.0, NULL, "0", NULL, "N", "Scoring",
     "random seed of the sets of masks"},
    {"block_size", NULL, UM_OPT_INT, P(block_size), 1, 65536, NULL, "auto", "0", "N", "Scoring",
     "tokens per block of a block-causal model; auto means the size that the model was trained with"},
    {"cfg_scale", "cfg", UM_OPT_FLOAT, P(cfg_scale), 0, 100, NULL, "0", NULL, "X", "Scoring",
     "strength of classifier-free guidance against the masked prompt; doubles the work; 0 means off"},
};

/* A prediction of the planned pass. */
typedef struct asked {
    int32_t token; /* number of the token in the answer */
    int32_t set;   /* number of the set of masks; -1 for the order of confidence */
    double weight;
} asked;

/* The sums of the batches of a block. Their mean and their squared deviations from it are updated batch by batch
 * (Welford), so that memory does not grow with the number of samples. */
typedef struct batch_sums {
    int32_t n;  /* complete batches */
    double sum; /* of the current batch */
    double mean, squares;
} batch_sums;

typedef struct scorer {
    um_score_params how;
    int32_t n;        /* tokens of the answer */
    int32_t block;    /* block length; 0: the answer is one block */
    int32_t copies;   /* 2 under guidance, else 1 */
    int32_t per_pass; /* sets of masks that a pass feeds at most */
    bool begun;       /* a pass has predicted something */

    /* The current block. */
    int32_t start, end; /* positions of the answer in the block */
    bool orders;        /* the passes fill masks in the order of confidence; then those that feed sets follow */
    um_mask_sets sets;
    int32_t next_set;
    bool *masked; /* [n] by token of the block: the present masks of the order, or those of a set */
    batch_sums batch;

    /* The planned pass. */
    int32_t n_planned, n_asked;
    asked *asked; /* [rows_max] */

    /* Blocks: the keys of a set lie in scratch pages, so that several sets of a block can be in one pass. */
    int32_t *vis;    /* [block] visibility indices, the same for all sets */
    int32_t *table;  /* [per_pass, n_pages] the request's pages, then scratch pages */
    int32_t n_pages; /* of a table */

    double total, *token; /* sums; [n] */
    double variance;      /* of total; NAN: unknown */
    bool is_greedy;       /* so far */
    bool knows_greedy;
    int32_t passes;
} scorer;

/* ---- The current block ------------------------------------------------------------------------------------------- */

static int32_t n_tokens(const scorer *s) { return s->end - s->start; }

/* Returns the first position of the block; the prompt may reach into it. */
static int32_t grid_start(const scorer *s) { return s->block ? s->start / s->block * s->block : 0; }

/* A single token has only one set of masks, and only one order. */
static bool is_scored_in_order(const scorer *s) { return s->how.method == UM_SCORING_CONFIDENCE || n_tokens(s) == 1; }

static bool is_monte_carlo(const scorer *s) { return s->how.method == UM_SCORING_MONTE_CARLO; }

static void enter_block(const um_req *r, scorer *s, int32_t start) {
    const bool checks = is_monte_carlo(s) && s->how.check_greedy && s->is_greedy;
    s->start = start;
    s->end = s->block ? UM_MIN((start / s->block + 1) * s->block, r->limit) : r->limit;
    s->orders = is_scored_in_order(s) || checks;
    s->next_set = 0;
    s->batch = (batch_sums){0};
    s->sets = (um_mask_sets){.n = n_tokens(s),
                             .first = start - r->n_prompt,
                             .samples = s->how.samples,
                             .batch = s->how.batch,
                             .seed = (uint64_t)s->how.seed};
    if (is_monte_carlo(s)) um_mask_sets_init(&s->sets);
    else s->sets.count = n_tokens(s); /* left to right: one set for each token */
    for (int32_t i = 0; i < n_tokens(s); i++) s->masked[i] = true;
    if (is_monte_carlo(s) && !s->orders && !s->how.check_greedy) s->knows_greedy = false;
}

/* Fills in the masks of a set. Returns the number of them that are scored. */
static int32_t take_set(const scorer *s, int32_t set, double *weight) {
    if (is_monte_carlo(s)) return um_mask_sets_get(&s->sets, set, s->masked, weight);
    for (int32_t i = 0; i < n_tokens(s); i++) s->masked[i] = i >= set;
    *weight = 1;
    return 1;
}

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

static um_status check_params(um_score_params *how, um_err *err) {
    const um_option_set set = {um_scoring_options, UM_LEN(um_scoring_options), how};
    const um_status st = um_options_check(&set, 1, err);
    if (st) return st;
    if (how->batch == 0) how->batch = um_mask_sets_batch(how->samples);
    if (how->samples % how->batch == 0) return UM_OK;
    return um_fail_param(err, UM_ERANGE, "batch", "%d does not divide the number of samples, %d", how->batch,
                         how->samples);
}

static um_status resolve_blocks(um_req *r, scorer *s, um_err *err) {
    const um_traits *t = r->traits;
    if (t->see == UM_SEE_FULL) return UM_OK;
    if (t->see == UM_SEE_CAUSAL)
        return um_fail(err, UM_EUNSUPPORTED,
                       "answers can't be scored with causal attention, which this model has; scores need a model whose "
                       "masked positions see each other");
    if (s->how.cfg_scale > 0)
        return um_fail_param(err, UM_EUNSUPPORTED, "cfg_scale",
                             "%g, but guidance needs a model with full attention; this one is block-causal",
                             (double)s->how.cfg_scale);
    r->how.block_size = s->how.block_size;
    const um_status st = um_req_resolve_block_size(r, t->block > 0 ? t->block : 32, err);
    if (st) return st;
    if (t->route_block && r->how.block_size % t->route_block)
        return um_fail_param(err, UM_ERANGE, "block_size",
                             "%d; this model chooses experts for groups of %d positions, so block_size must be a "
                             "multiple of that",
                             r->how.block_size, t->route_block);
    s->block = r->how.block_size;
    return UM_OK;
}

/* Returns the number of sets that a pass feeds at most. A quarter of a step is left to a score, so that a long one does
 * not keep others waiting. */
static int32_t sets_per_pass(const um_req *r, const scorer *s) {
    const int32_t one = s->block ? s->block : r->limit * s->copies;
    const int32_t segments = r->traits->step_segments / 4 / s->copies;
    return UM_MAX(1, UM_MIN(r->traits->step_tokens / 4 / one, segments));
}

static void allocate_tables(const um_req *r, scorer *s) {
    if (!s->block) return;
    const int32_t last = UM_CEIL_DIV(r->limit, s->block) * s->block;
    s->n_pages = UM_CEIL_DIV(um_req_first_scratch(r, last) + s->block, r->traits->page_size);
    s->table = UM_NEW_ARRAY(int32_t, um_mul((size_t)s->n_pages, (size_t)s->per_pass));
    s->vis = UM_NEW_ARRAY(int32_t, (size_t)s->block);
}

um_status um_scorer_new(um_req *r, const um_score_params *params, um_err *err) {
    scorer s = {.how = *params, .n = r->limit - r->n_prompt, .is_greedy = true, .knows_greedy = true};
    assert(s.n > 0);
    um_status st = check_params(&s.how, err);
    if (!st) st = resolve_blocks(r, &s, err);
    if (st) return st;
    r->strategy = &um_strategy_score;
    s.copies = s.how.cfg_scale > 0 ? 2 : 1;
    s.per_pass = sets_per_pass(r, &s);
    const size_t widest = (size_t)(s.block ? UM_MIN(s.block, s.n) : s.n);
    s.masked = UM_NEW_ARRAY(bool, widest);
    s.asked = UM_NEW_ARRAY(asked, um_mul(widest, (size_t)s.per_pass));
    s.token = UM_NEW_ARRAY(double, (size_t)s.n);
    allocate_tables(r, &s);
    enter_block(r, &s, r->n_prompt);
    r->state = UM_NEW(scorer);
    *(scorer *)r->state = s;
    return UM_OK;
}

static void free_state(um_req *r) {
    scorer *s = (scorer *)r->state;
    um_free(s->masked);
    um_free(s->asked);
    um_free(s->token);
    um_free(s->table);
    um_free(s->vis);
    um_free(s);
    r->state = NULL;
}

/* ---- Needs ------------------------------------------------------------------------------------------------------- */

/* Returns the number of sets that the next pass feeds if it has the room. */
static int32_t sets_of_pass(const scorer *s) {
    return s->orders ? 1 : UM_MIN(s->per_pass, s->sets.count - s->next_set);
}

static um_need need_of_blocks(const um_req *r, const scorer *s) {
    const int32_t known = grid_start(s) - r->stored, all = UM_CEIL_DIV(r->limit, s->block) * s->block;
    const int32_t n = sets_of_pass(s), scratch = UM_CEIL_DIV(s->block, r->traits->page_size) * r->traits->page_size;
    return (um_need){.tokens = known + n * s->block,
                     .least = s->block,
                     .rows = n * n_tokens(s),
                     .slots = grid_start(s),
                     .scratch = n * scratch,
                     .segments = n + 1,
                     .tokens_max = s->block,
                     .rows_max = s->per_pass * UM_MIN(s->block, s->n),
                     .slots_max = all - s->block,
                     .scratch_max = s->per_pass * scratch,
                     .positions_max = all,
                     .tables = 1};
}

static um_need need_of_whole(const um_req *r, const scorer *s) {
    const int32_t page = r->traits->page_size, one = r->limit * s->copies, n = sets_of_pass(s);
    const int32_t scratch = UM_CEIL_DIV(r->limit, page) * page * s->copies;
    return (um_need){.tokens = n * one,
                     .least = one,
                     .rows = n * s->n,
                     .scratch = n * scratch,
                     .segments = n * s->copies,
                     .tokens_max = one,
                     .rows_max = s->per_pass * s->n,
                     .scratch_max = s->per_pass * scratch,
                     .positions_max = r->limit};
}

static um_need need(const um_req *r) {
    const scorer *s = (const scorer *)r->state;
    return s->block ? need_of_blocks(r, s) : need_of_whole(r, s);
}

/* ---- Plan -------------------------------------------------------------------------------------------------------- */

/* Adds a row for the true token at position `pos`. `first` is the first position of the segment, whose tokens begin at
 * `at` in the pass. In families that shift, the token before it predicts the first position: it ends the segment of
 * known tokens, the first one of the pass, or its final hidden row was saved. */
static um_row *add_row(um_req *r, um_pass *pass, int32_t at, int32_t first, int32_t pos) {
    const int32_t src = pos - r->traits->shift - first, known = pass->seg[0].pos[0] < first ? pass->seg[0].n - 1 : -1;
    um_row *row = &pass->row[pass->n_rows++];
    *row = (um_row){.src = {src >= 0     ? at + src
                            : known >= 0 ? known
                                         : -1 - r->saved,
                            0},
                    .w = {1, 0},
                    .how = {.top_p = 1},
                    .want = UM_WANT_SAMPLE | UM_WANT_PROB_OF,
                    .id = r->token[pos]};
    return row;
}

/* Masks a segment as s->masked says, and adds its rows. `set` is the number of the set of masks, -1 for the order of
 * confidence. */
static void mask(um_req *r, scorer *s, um_pass *pass, const um_segment *seg, int32_t set, double weight) {
    const int32_t at = (int32_t)(seg->id - pass->id), first = seg->pos[0], before = pass->n_rows;
    const bool one = set >= 0 && !is_monte_carlo(s); /* left to right: the first mask alone is scored */
    for (int32_t i = 0; i < n_tokens(s); i++) {
        if (!s->masked[i]) continue;
        pass->id[at + s->start + i - first] = r->traits->mask_id;
        if (one && pass->n_rows > before) continue;
        um_row *row = add_row(r, pass, at, first, s->start + i);
        if (s->copies > 1) {
            row->src[1] = row->src[0] + seg->n;
            row->w[0] = 1 + s->how.cfg_scale;
            row->w[1] = -s->how.cfg_scale;
        }
        s->asked[s->n_asked++] = (asked){.token = s->start + i - r->n_prompt, .set = set, .weight = weight};
    }
}

/* Adds the segment of guidance: the last one with the prompt masked. */
static void add_unconditional(um_req *r, um_pass *pass, const um_segment *seg) {
    const um_segment *copy = um_pass_add(pass, r, UM_PASS_DENOISE, 0, r->limit, seg->rule);
    int32_t *id = pass->id + (copy->id - pass->id);
    for (int32_t p = 0; p < r->limit; p++) id[p] = p < r->n_prompt ? r->traits->mask_id : seg->id[p];
}

static void plan_whole(um_req *r, scorer *s, um_pass *pass) {
    const um_visibility all = {.see = UM_SEE_FULL};
    const int32_t room = pass->budget / (r->limit * s->copies);
    s->n_planned = UM_MIN(sets_of_pass(s), room);
    assert(s->n_planned > 0);
    for (int32_t i = 0; i < s->n_planned; i++) {
        const int32_t set = s->orders ? -1 : s->next_set + i;
        double weight = 1;
        if (set >= 0) take_set(s, set, &weight);
        const um_segment *seg = um_pass_add(pass, r, UM_PASS_DENOISE, 0, r->limit, all);
        mask(r, s, pass, seg, set, weight);
        if (s->copies > 1) add_unconditional(r, pass, seg);
    }
    for (int32_t i = 0; i < pass->n_seg; i++) um_pass_use_scratch(pass, &pass->seg[i], r->limit);
}

/* Stores known tokens. In families that shift, saves the final hidden row of the last one. */
static void add_known(um_req *r, um_pass *pass, um_pass_kind kind, int32_t end, um_visibility rule) {
    um_segment *seg = um_pass_add(pass, r, kind, r->stored, end, rule);
    if (r->traits->shift == 0) return;
    seg->save_src = seg->n - 1;
    seg->save_to = r->saved;
}

/* Adds the segment of set number i of the pass. It reads the stored keys and its own, which follow in scratch pages. */
static um_segment *add_block(um_req *r, scorer *s, um_pass *pass, um_pass_kind kind, int32_t i) {
    const int32_t grid = grid_start(s), first = s->vis[0], page = pass->page_size;
    int32_t *table = s->table + (size_t)i * (size_t)s->n_pages;
    um_segment *seg = um_pass_add(pass, r, kind, grid, grid + s->block, (um_visibility){.see = UM_SEE_FULL});
    um_pass_use_scratch(pass, seg, s->block);
    memcpy(table + first / page, seg->page, (size_t)UM_CEIL_DIV(s->block, page) * sizeof *table);
    if (grid) memcpy(table, r->page[0], (size_t)UM_CEIL_DIV(grid, page) * sizeof *table);
    seg->page = table;
    seg->vis = s->vis;
    seg->keys = (um_range){0, first + s->block};
    seg->hole = (um_range){grid, first};
    return seg;
}

static void plan_block(um_req *r, scorer *s, um_pass *pass) {
    const um_visibility rule = {.see = UM_SEE_BLOCK_CAUSAL, .block = s->block};
    const int32_t grid = grid_start(s), known = grid - r->stored, room = (pass->budget - known) / s->block;
    const um_pass_kind kind = s->begun ? UM_PASS_DENOISE : UM_PASS_PREFILL;
    const um_pass_kind stores = s->begun ? UM_PASS_COMMIT : kind;
    const bool is_chunk = room < 1;
    const int32_t chunk = UM_MIN(grid, r->stored + pass->budget / s->block * s->block);
    s->n_planned = is_chunk ? 0 : UM_MIN(sets_of_pass(s), room);
    if (um_pass_store(pass, r, is_chunk ? chunk : 0)) {
        add_known(r, pass, stores, chunk, rule);
        return;
    }
    if (known > 0) add_known(r, pass, stores, grid, rule);
    for (int32_t i = 0; i < s->block; i++) s->vis[i] = um_req_first_scratch(r, grid) + i;
    for (int32_t i = 0; i < s->n_planned; i++) {
        const int32_t set = s->orders ? -1 : s->next_set + i;
        double weight = 1;
        if (set >= 0) take_set(s, set, &weight);
        mask(r, s, pass, add_block(r, s, pass, kind, i), set, weight);
    }
}

static void plan(um_req *r, um_pass *pass) {
    scorer *s = (scorer *)r->state;
    s->n_asked = 0;
    if (s->block) plan_block(r, s, pass);
    else plan_whole(r, s, pass);
}

/* ---- Apply ------------------------------------------------------------------------------------------------------- */

static void end_batch(batch_sums *b) {
    const double deviation = b->sum - b->mean;
    b->n++;
    b->mean += deviation / b->n;
    b->squares += deviation * (b->sum - b->mean);
    b->sum = 0;
}

/* The batches of a block are independent estimates of the same value. The variances of the blocks add up. */
static void end_block(scorer *s) {
    const int32_t n = s->batch.n;
    if (n == 0) return; /* the block is exact */
    s->variance += n < 2 ? NAN : s->batch.squares * n / (n - 1);
}

/* Adds a log-probability to the sums, and returns what it adds. */
static double add(scorer *s, const asked *q, const um_answer *a) {
    const double part = q->weight * (double)a->log_p_id;
    s->total += part;
    s->token[q->token] += part;
    return part;
}

/* Fills the mask of the most confident prediction, the leftmost among equals. */
static void fill_best(const um_req *r, scorer *s, const um_answer *answer) {
    int32_t best = 0;
    for (int32_t i = 1; i < s->n_asked; i++)
        if (answer[i].p_sample > answer[best].p_sample) best = i;
    const int32_t token = s->asked[best].token;
    s->is_greedy &= answer[best].sample == r->token[r->n_prompt + token];
    if (is_scored_in_order(s)) add(s, &s->asked[best], &answer[best]);
    s->masked[token - (s->start - r->n_prompt)] = false;
    if (s->n_asked == 1 || (!s->is_greedy && !is_scored_in_order(s))) s->orders = false;
}

static void add_sets(const um_req *r, scorer *s, const um_answer *answer) {
    const bool is_sampled = is_monte_carlo(s) && !s->sets.exact;
    for (int32_t i = 0; i < s->n_asked; i++) {
        const int32_t set = s->asked[i].set;
        s->batch.sum += add(s, &s->asked[i], &answer[i]);
        if (!is_monte_carlo(s)) s->is_greedy &= answer[i].sample == r->token[r->n_prompt + s->asked[i].token];
        const bool is_last = i + 1 == s->n_asked || s->asked[i + 1].set != set;
        if (is_sampled && is_last && (set + 1) % s->how.batch == 0) end_batch(&s->batch);
    }
    s->next_set += s->n_planned;
}

static bool is_done(const scorer *s) { return !s->orders && (is_scored_in_order(s) || s->next_set == s->sets.count); }

static void apply(um_req *r, const um_answer *answer) {
    scorer *s = (scorer *)r->state;
    if (s->block && um_req_store(r)) return;
    if (s->block) r->stored = grid_start(s);
    s->passes += s->n_planned;
    r->nfe++;
    r->prefill_passes += s->block && !s->begun;
    s->begun = true;
    if (s->orders) fill_best(r, s, answer);
    else add_sets(r, s, answer);
    if (!is_done(s)) return;
    end_block(s);
    if (s->end < r->limit) enter_block(r, s, s->end);
    else um_req_finish(r, UM_FINISH_STEPS);
}

/* ---- Sharing and results ----------------------------------------------------------------------------------------- */

/* Requests of block diffusion with the same block length store the same keys (um_blocks_share). Families that shift
 * must feed at least one position, whose hidden row predicts the first position of the block. */
static uint64_t share(const um_req *r, int32_t *most) {
    const scorer *s = (const scorer *)r->state;
    *most = 0;
    if (!s->block || r->compat->separate_commit || r->traits->page_size % s->block) return 0;
    *most = (grid_start(s) - r->traits->shift) / s->block * s->block;
    return *most > 0 ? (uint64_t)s->block : 0;
}

void um_scorer_get(const um_req *r, um_score_result *out) {
    const scorer *s = (const scorer *)r->state;
    const bool is_complete = r->finish == UM_FINISH_STEPS;
    out->logprob = is_complete ? s->total : NAN;
    out->standard_error = is_complete ? sqrt(s->variance) : NAN;
    out->token_logprob = s->token;
    out->n_tokens = (size_t)s->n;
    out->is_greedy = is_complete && s->knows_greedy ? s->is_greedy : -1;
    out->passes = s->passes;
    out->seed = s->how.seed;
}

const um_strategy um_strategy_score = {
    .name = "score",
    .summary = "the likelihood of a given answer",
    .source = "LLaDA, arXiv 2502.09992, section 2.4 and appendix B.5; its evaluation, eval_llada.py",
    .need = need,
    .plan = plan,
    .apply = apply,
    .share = share,
    .free = free_state,
};
