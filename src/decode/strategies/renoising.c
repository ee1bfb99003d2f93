/* renoising: whole canvases that start as random tokens (DiffusionGemma). There are no masks. Each pass predicts every
 * position of the canvas. The positions with the least entropy take a drawn token, and all others a new random one:
 * positions are accepted in rising order of entropy while the sum of the entropies before stays within a bound. The
 * answer of a canvas are the likeliest tokens of its last pass.
 *
 *     store       feeds everything before the canvas in the model's first mode, and stores its keys
 *     denoise     feeds the canvas in its second mode, conditioned on the predictions of the pass before
 *
 * The passes of a canvas count down, and the temperature falls with the count. A canvas ends when the count is 0, or
 * when the likeliest tokens have not changed for some passes and their mean entropy is low. The first pass over a
 * canvas also stores the finished one before it.
 *
 * A canvas is fed whole, also where it reaches beyond the limit of the answer. Its tokens are final when it ends; until
 * then the request shows the likeliest ones, which may change. */
#include <math.h>

#include "decode/strategies/causal.h"

typedef struct renoising {
    int32_t start, len; /* positions of the canvas */
    int32_t count;      /* its finished passes */
    int32_t nfe;        /* of the request when the canvas began */
    int32_t n_before;   /* canvases that the stability test compares */
    int32_t shown;      /* start of the canvas of the last pass, for traces */
    int32_t *token;     /* [len] the canvas */
    int32_t *order;     /* [len] its positions in rising order of entropy */
    int32_t *before;    /* [n_before, len] the likeliest tokens of earlier passes, in a ring */
    int32_t data[];     /* memory of the three arrays */
} renoising;

#define D(field) UM_FIELD(um_decoding, field)
#define GROUP    "Decoding (renoising)"

static const um_option params[] = {
    {"canvas_steps", "max_denoising_steps", UM_OPT_INT, D(canvas_steps), 1, 65536, NULL, "auto", "0", "N", GROUP,
     "largest number of passes over a canvas; auto means the checkpoint's"},
    {"canvas_entropy_bound", NULL, UM_OPT_FLOAT, D(canvas_entropy_bound), 0, 1000, NULL, "auto", "nan", "NATS", GROUP,
     "accept positions from the lowest entropy up, while the sum of the entropies accepted so far is at most this; "
     "auto "
     "means the checkpoint's"},
    {"t_min", NULL, UM_OPT_FLOAT, D(t_min), 0, 100, NULL, "auto", "nan", "T", GROUP,
     "temperature towards which that of the passes over a canvas falls; it takes the place of temperature; auto means "
     "the checkpoint's"},
    {"t_max", NULL, UM_OPT_FLOAT, D(t_max), 0, 100, NULL, "auto", "nan", "T", GROUP,
     "temperature of the first pass over a canvas; 0 means 1 in all passes; auto means the checkpoint's"},
    {"stability_threshold", NULL, UM_OPT_INT, D(stability_threshold), -1, 64, NULL, "auto", "-2", "N", GROUP,
     "end a canvas early only when its likeliest tokens are those of this many passes before; -1 means never; auto "
     "means "
     "the checkpoint's"},
    {"confidence_threshold", NULL, UM_OPT_FLOAT, D(confidence_threshold), 0, 1000, NULL, "auto", "nan", "NATS", GROUP,
     "end a canvas early only when the mean entropy of its positions is below this; auto means the checkpoint's"},
};

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

/* Refuses what looks at the tokens beside a position, which a canvas does not have until it ends. */
static um_status check_request(const um_req *r, um_err *err) {
    if (!r->traits->canvas)
        return um_fail_param(err, UM_EUNSUPPORTED, "decoding_strategy",
                             "renoising needs a model that is trained on random tokens; use --decoding-strategy auto");
    if (!um_streq(r->how.sampler, "auto"))
        return um_fail_param(err, UM_EUNSUPPORTED, "sampler", "strategy renoising has a rule of its own; use auto");
    if (r->fill)
        return um_fail(err, UM_EUNSUPPORTED,
                       "strategy renoising supports no constraints: it decides about all positions at once");
    if (r->n_bad)
        return um_fail_param(err, UM_EUNSUPPORTED, "bad_words", "strategy renoising supports words of one token only");
    if (!isnan(r->how.remask_threshold))
        return um_fail_param(err, UM_EUNSUPPORTED, "remask_threshold", "strategy renoising has no masks");
    return UM_OK;
}

/* Replaces the automatic values by the checkpoint's. */
static um_status resolve(um_req *r, um_err *err) {
    um_decoding *d = &r->how;
    const um_traits *t = r->traits;
    if (d->canvas_steps == 0) d->canvas_steps = t->canvas_steps;
    if (isnan(d->canvas_entropy_bound)) d->canvas_entropy_bound = t->canvas_entropy_bound;
    if (isnan(d->t_min)) d->t_min = isnan(t->t_min) ? 0 : t->t_min;
    if (isnan(d->t_max)) d->t_max = isnan(t->t_min) || isnan(t->t_max) ? 0 : t->t_max;
    if (isnan(d->confidence_threshold)) d->confidence_threshold = isnan(t->confidence) ? 0 : t->confidence;
    if (d->stability_threshold == -2) d->stability_threshold = t->stability;
    if (d->t_max != 0 && d->t_max <= d->t_min)
        return um_fail_param(err, UM_ERANGE, "t_max", "%g is not above t_min %g", (double)d->t_max, (double)d->t_min);
    um_status s = um_req_resolve_block_size(r, t->block, err);
    if (s || d->block_size <= t->canvas) return s;
    return um_fail_param(err, UM_ERANGE, "block_size", "%d is outside 1..%d, the canvas that the engine was made for",
                         d->block_size, t->canvas);
}

/* Cuts the answer to the whole canvases for which the model has positions. */
static um_status cut_to_canvases(um_req *r, um_err *err) {
    const int32_t C = r->how.block_size, whole = (r->max_len - r->n_prompt) / C * C;
    if (whole == 0)
        return um_fail(err, UM_ELIMIT, "prompt %d + a canvas of %d tokens, but max_model_len is %d; shorten the prompt",
                       r->n_prompt, C, r->max_len);
    if (r->limit > r->n_prompt + whole) r->limit = r->max_len = r->n_prompt + whole;
    return UM_OK;
}

static void enter_canvas(um_req *r, renoising *s, int32_t start) {
    s->start = start;
    s->count = 0;
    s->nfe = r->nfe;
    r->settled = start;
    r->end = UM_MIN(start + s->len, r->max_len);
}

static um_status init(um_req *r, um_err *err) {
    um_status st = check_request(r, err);
    if (!st) st = resolve(r, err);
    if (!st) st = cut_to_canvases(r, err);
    if (st) return st;
    const size_t C = (size_t)r->how.block_size, n = (size_t)UM_MAX(r->how.stability_threshold, 0);
    renoising *s = (renoising *)um_zalloc(sizeof(renoising) + um_mul((2 + n) * C, sizeof(int32_t)));
    s->len = (int32_t)C;
    s->n_before = (int32_t)n;
    s->token = s->data;
    s->order = s->token + C;
    s->before = s->order + C;
    r->n_top_asked = r->n_top;
    r->may_choose_mask = true;
    r->state = s;
    enter_canvas(r, s, r->n_prompt);
    r->end = r->n_prompt;
    return UM_OK;
}

static void free_state(um_req *r) {
    um_free(r->state);
    r->state = NULL;
}

/* ---- Draws ------------------------------------------------------------------------------------------------------- */

static int32_t recorded(const um_req *r, const renoising *s, um_draw kind, int32_t i) {
    return r->draws->fn(r->draws->arg, kind, (s->start - r->n_prompt) / s->len, s->count, i);
}

/* Returns a random token for position i of the canvas. */
static int32_t noise(const um_req *r, const renoising *s, um_draw kind, int32_t i) {
    if (r->draws) return recorded(r, s, kind, i);
    const int use = kind == UM_DRAW_START ? UM_USE_START : UM_USE_NOISE;
    const double u = um_rng_uniform(um_req_key(r, s->start + i, s->count, use), 0);
    return UM_MIN((int32_t)(u * r->traits->vocab), r->traits->vocab - 1);
}

/* Returns the temperature of the next pass. */
static float temperature(const um_req *r, const renoising *s) {
    const um_decoding *d = &r->how;
    if (d->t_max == 0) return 1;
    return d->t_min + (d->t_max - d->t_min) * ((float)(d->canvas_steps - s->count) / (float)d->canvas_steps);
}

/* ---- Needs and plan ---------------------------------------------------------------------------------------------- */

/* The prompt is stored by passes of its own. Later keys are stored together with a pass over the canvas, if both fit.
 */
static um_need need(const um_req *r) {
    const renoising *s = (const renoising *)r->state;
    const int32_t C = s->len, stores = s->start - r->stored,
                  longest = r->n_prompt + UM_CEIL_DIV(r->limit - r->n_prompt, C) * C;
    const bool apart = r->nfe == 0 && stores > 0;
    return (um_need){.tokens = apart ? stores : stores + C,
                     .least = stores ? 1 : C,
                     .rows = apart ? 0 : C,
                     .slots = apart ? s->start : s->start + C,
                     .edits = 0,
                     .tokens_max = C,
                     .rows_max = C,
                     .slots_max = longest,
                     .positions_max = longest,
                     .tables = 1};
}

static void plan_rows(um_req *r, renoising *s, um_pass *pass, int32_t first, int32_t blend) {
    const float tau = temperature(r, s);
    um_req_prepare_rows(r, s->start, s->start);
    for (int32_t i = 0; i < s->len; i++) {
        um_row *row = um_pass_row(pass, r, first + i, s->start + i, s->count);
        row->how.temperature = tau;
        row->how.key = um_req_key(r, s->start + i, s->count, UM_USE_SAMPLE);
        row->want = UM_WANT_BEST | UM_WANT_SAMPLE | UM_WANT_ENTROPY;
        row->blend = blend + i;
    }
}

static void plan_canvas(um_req *r, renoising *s, um_pass *pass) {
    const int32_t first = pass->n_tokens, blend = 1 + r->saved * r->traits->canvas;
    um_segment *seg =
        um_pass_add(pass, r, UM_PASS_DENOISE, s->start, s->start + s->len, (um_visibility){.see = UM_SEE_FULL});
    int32_t *id = pass->id + first;
    for (int32_t i = 0; i < s->len; i++) {
        if (s->count == 0) s->token[i] = noise(r, s, UM_DRAW_START, i);
        id[i] = s->token[i];
    }
    seg->canvas = true;
    seg->blend = s->count ? blend : 0;
    plan_rows(r, s, pass, first, blend);
}

static void plan(um_req *r, um_pass *pass) {
    renoising *s = (renoising *)r->state;
    const int32_t stores = s->start - r->stored;
    const bool apart = stores > 0 && (r->nfe == 0 || stores + s->len > pass->budget);
    const int32_t end = apart ? r->stored + UM_MIN(stores, pass->budget) : s->start;
    if (stores) um_pass_add(pass, r, um_causal_kind(r), r->stored, end, (um_visibility){.see = UM_SEE_CAUSAL});
    if (!um_pass_store(pass, r, apart ? end : 0)) plan_canvas(r, s, pass);
}

/* ---- Apply ------------------------------------------------------------------------------------------------------- */

/* Sorts the positions by entropy; equal ones stay in their order. The order of the last pass is nearly right. */
static void sort_positions(renoising *s, const um_answer *answer) {
    if (s->count == 0)
        for (int32_t i = 0; i < s->len; i++) s->order[i] = i;
    for (int32_t i = 1; i < s->len; i++) {
        const int32_t p = s->order[i];
        int32_t at = i;
        for (; at > 0; at--) {
            const int32_t q = s->order[at - 1];
            const float h = answer[p].entropy, other = answer[q].entropy;
            if (other < h || (other == h && q < p)) break;
            s->order[at] = q;
        }
        s->order[at] = p;
    }
}

/* Writes the drawn tokens of accepted positions and random ones of the others to the canvas. */
static void renoise(um_req *r, renoising *s, const um_answer *answer) {
    float sum = 0;
    sort_positions(s, answer);
    for (int32_t k = 0; k < s->len; k++) {
        const int32_t i = s->order[k];
        sum += answer[i].entropy;
        const bool accepted = k == 0 || sum - answer[i].entropy <= r->how.canvas_entropy_bound;
        if (!accepted) s->token[i] = noise(r, s, UM_DRAW_NOISE, i);
        else s->token[i] = r->draws ? recorded(r, s, UM_DRAW_SAMPLE, i) : answer[i].sample;
    }
}

/* Remembers the likeliest tokens, and returns whether they are those of the n_before passes before. */
static bool is_stable(const um_req *r, renoising *s, const um_answer *answer) {
    const int32_t n = s->n_before;
    bool stable = r->how.stability_threshold >= 0 && s->count >= n;
    for (int32_t k = 0; k < n && stable; k++)
        for (int32_t i = 0; i < s->len && stable; i++) stable = s->before[k * s->len + i] == answer[i].best;
    for (int32_t i = 0; n && i < s->len; i++) s->before[s->count % n * s->len + i] = answer[i].best;
    return stable;
}

static float mean_entropy(const renoising *s, const um_answer *answer) {
    double sum = 0;
    for (int32_t i = 0; i < s->len; i++) sum += (double)answer[i].entropy;
    return (float)(sum / s->len);
}

static void apply(um_req *r, const um_answer *answer) {
    renoising *s = (renoising *)r->state;
    if (um_req_store(r)) return;
    r->n_new = 0;
    r->stored = s->start;
    s->shown = s->start;
    renoise(r, s, answer);
    for (int32_t i = 0; i < s->len && s->start + i < r->limit; i++)
        um_req_write(r, s->start + i, answer[i].best, &answer[i]);
    const bool stable = is_stable(r, s, answer);
    const bool ends =
        ++s->count == r->how.canvas_steps || (stable && mean_entropy(s, answer) < r->how.confidence_threshold);
    r->end = UM_MIN(s->start + s->len, r->max_len);
    if (ends) r->settled = s->start + s->len;
    um_req_check_stop(r);
    if (ends) {
        const int32_t shown_end = r->end;
        enter_canvas(r, s, s->start + s->len);
        r->end = shown_end;
    }
}

/* The blends of the canvas are lost, so it starts again; its draws are the same. */
static void preempt(um_req *r) {
    renoising *s = (renoising *)r->state;
    s->count = 0;
    r->nfe = s->nfe;
}

/* ---- Sharing and traces ------------------------------------------------------------------------------------------ */

static uint64_t share(const um_req *r, int32_t *most) {
    const renoising *s = (const renoising *)r->state;
    *most = s->start;
    return UM_CAUSAL_SHARE;
}

static int32_t blocks(const um_req *r, um_block_view *out) {
    const renoising *s = (const renoising *)r->state;
    return um_req_view_block(r, s->start, UM_MIN(s->start + s->len, r->cap), um_block_status_name(UM_BLOCK_ACTIVE),
                             out);
}

/* The tokens of a trace are those of the canvas after the pass. */
static void trace(const um_req *r, um_trace_space *space, um_trace *out) {
    const renoising *s = (const renoising *)r->state;
    space->block[0] = (s->shown - r->n_prompt) / s->len;
    space->masks[0] = 0;
    space->status[0] = um_block_status_name(s->shown == s->start ? UM_BLOCK_ACTIVE : UM_BLOCK_TO_CACHE);
    *out = (um_trace){.prefill = out->prefill,
                      .n_new = r->n_new,
                      .n_blocks = 1,
                      .n_tokens = s->len,
                      .block = space->block,
                      .token = s->token,
                      .status = space->status,
                      .masks = space->masks};
}

const um_strategy um_strategy_renoising = {
    .name = "renoising",
    .aliases = "random_canvas",
    .summary = "whole canvases of random tokens, of which each pass keeps the sure ones and draws the others anew",
    .source = "DiffusionGemma: generate() of transformers",
    .params = {{params, UM_LEN(params)}},
    .init = init,
    .need = need,
    .plan = plan,
    .apply = apply,
    .blocks = blocks,
    .trace = trace,
    .preempt = preempt,
    .share = share,
    .free = free_state,
};
