/* Candidates of a block: finds them, adds their rows, runs the sampler and applies its decision. */
#include "decode/candidates.h"

bool um_remasks(const um_req *r) {
    return !r->sampler->edits && !r->compat->no_remasking && r->how.remask_threshold > 0; /* NAN: off */
}

void um_candidates_init(um_candidates *v, um_req *r, int32_t len, int32_t n_blocks) {
    const um_sampler *s = r->sampler;
    const size_t n = (size_t)len;
    *v = (um_candidates){.decision = {.at = UM_NEW_ARRAY(int32_t, n), .id = UM_NEW_ARRAY(int32_t, n)},
                         .n_steps = r->how.denoising_steps ? r->how.denoising_steps : len,
                         .position = UM_NEW_ARRAY(int32_t, n),
                         .token = UM_NEW_ARRAY(int32_t, n),
                         .score = UM_NEW_ARRAY(float, n),
                         .n_blocks = n_blocks,
                         .memory_bytes = s->memory ? s->memory(r, len) : 0};
    v->block_len = len;
    if (s->def) {
        v->call = r->call = UM_NEW_ARRAY(um_sampler_call, (size_t)n_blocks);
        v->call_position = UM_NEW_ARRAY(int32_t, um_mul((size_t)n_blocks, n));
        v->call_accept = UM_NEW_ARRAY(bool, um_mul((size_t)n_blocks, n));
    }
    if (v->memory_bytes) v->memory = UM_NEW_ARRAY(unsigned char, um_mul((size_t)n_blocks, v->memory_bytes));
    r->n_top_asked = UM_MAX(r->n_top, s->n_top ? s->n_top(r) : 0);
    if (!r->fills_best) return;
    r->n_top_asked = UM_MAX(r->n_top_asked, UM_FILLING_TOKENS);
    v->filling = um_best_filling_new(len);
}

void um_candidates_deinit(um_candidates *v) {
    void *array[] = {v->decision.at, v->decision.id, v->position,      v->token,      v->score,
                     v->memory,      v->call,        v->call_position, v->call_accept};
    for (size_t i = 0; i < UM_LEN(array); i++) um_free(array[i]);
    um_best_filling_free(v->filling);
}

static void *memory_of(const um_candidates *v, const um_block *b) {
    return v->memory ? v->memory + (size_t)(b->id % v->n_blocks) * v->memory_bytes : NULL;
}

void um_candidates_clear_memory(um_candidates *v, const um_block *b) {
    if (v->memory) memset(memory_of(v, b), 0, v->memory_bytes);
}

int32_t um_candidates_edits_max(const um_req *r, int32_t len) {
    const int64_t own = r->sampler->edits_max ? r->sampler->edits_max(r) : 0;
    return (int32_t)UM_MIN((own + um_req_bad_edits_max(r)) * len, INT32_MAX);
}

/* ---- Plan -------------------------------------------------------------------------------------------------------- */

/* Returns the token at a position, UM_MASKED for a mask. */
static int32_t token_at(const um_req *r, int32_t p) { return um_req_masked(r, p) ? UM_MASKED : r->token[p]; }

/* compat: a sampler that edits also sees the part of the prompt that lies in the block. */
static int32_t first_candidate(const um_req *r, const um_block *b) {
    bool whole = r->sampler->edits && r->compat->literal_edits;
    return whole ? b->start : b->start + b->editable_start;
}

void um_candidates_set_step(um_candidates *v, const um_req *r, int32_t step) {
    um_sampler_input *c = &v->input;
    const double eps = (double)r->how.eps;
    const int32_t last = v->n_steps - 1;
    c->count = step;
    c->keep = um_schedule_count(r->sampler->schedule, eps, UM_MIN(step, last), v->n_steps, c->n_masks, c->block_len);
    c->rate = um_schedule_rate(eps, step, v->n_steps);
}

static void set_position(um_candidates *v, const um_req *r, int32_t i, int32_t p) {
    v->position[i] = p;
    v->token[i] = token_at(r, p);
}

void um_candidates_find(um_candidates *v, const um_req *r, const um_block *b, int32_t end) {
    um_sampler_input *c = &v->input;
    const int32_t first = first_candidate(r, b);
    const bool edits = r->sampler->edits;
    *c = (um_sampler_input){.position = v->position,
                            .token = v->token,
                            .n_fixed = b->start + b->editable_start - first,
                            .previous = first > b->start ? token_at(r, first - 1) : UM_MASKED,
                            .block_len = b->len,
                            .how = &r->how,
                            .compat = r->compat,
                            .seed = r->seed,
                            .temperature = r->sampling.temperature,
                            .mask_id = r->traits->mask_id,
                            .total_steps = b->total_steps,
                            .forced = true,
                            .score = v->score,
                            .memory = memory_of(v, b)};
    for (int32_t p = first; p < end; p++) {
        c->n_masks += um_req_masked(r, p);
        if (edits || um_req_masked(r, p)) set_position(v, r, c->n++, p);
    }
    const bool remasks = um_remasks(r) && c->n_masks > 0;
    v->n_filled = 0;
    for (int32_t p = first; p < end && remasks; p++)
        if (!um_req_masked(r, p)) set_position(v, r, c->n + v->n_filled++, p);
    c->post_edit_steps = b->post_edit_steps + (c->n_masks == 0);
    um_candidates_set_step(v, r, b->count);
}

/* Notes the candidates of a block, whose first row will be `row`, for a registered sampler. */
static void add_call(const um_candidates *v, um_req *r, int32_t row) {
    const um_sampler_input *c = &v->input;
    const size_t at = (size_t)r->n_calls * (size_t)v->block_len;
    if (c->n == 0) return;
    assert(r->n_calls < v->n_blocks);
    r->call[r->n_calls++] = (um_sampler_call){.row = row,
                                              .n = c->n,
                                              .length = c->block_len,
                                              .pass = c->count + 1,
                                              .forced = c->forced,
                                              .position = v->call_position + at,
                                              .accept = v->call_accept + at,
                                              .memory = c->memory};
    memcpy(v->call_position + at, c->position, (size_t)c->n * sizeof *c->position);
}

void um_candidates_add_rows(const um_candidates *v, um_req *r, um_pass *pass, int32_t first) {
    const um_sampler_input *c = &v->input;
    if (r->sampler->def) add_call(v, r, pass->n_rows);
    for (int32_t i = 0; i < c->n + v->n_filled; i++) {
        int32_t src = v->position[i] - r->traits->shift - first;
        um_row *row = um_pass_row(pass, r, src < 0 ? -1 - r->saved : src, v->position[i], c->count);
        row->want = r->sampler->want(r);
        if (i >= c->n) {
            row->want |= UM_WANT_PROB_OF;
            row->id = v->token[i];
        } else if (r->sampler->edit) {
            int32_t n = r->sampler->edit(c, i, pass->edit + pass->n_edits);
            if (n) um_pass_edits(pass, row, n);
        }
    }
}

/* ---- Apply ------------------------------------------------------------------------------------------------------- */

/* Takes the decision of a registered sampler about the next block of the pass. */
static void take_decision(um_candidates *v, um_req *r) {
    const um_sampler_input *c = &v->input;
    if (c->n == 0) return;
    assert(r->n_calls_taken < r->n_calls);
    const um_sampler_call *call = &r->call[r->n_calls_taken++];
    assert(call->n == c->n && call->position[0] == c->position[0]);
    r->sampler_failed |= call->failed;
    for (int32_t i = 0; i < c->n && !call->failed; i++)
        if (call->accept[i]) um_decide(&v->decision, c, i);
}

um_decision *um_candidates_decide(um_candidates *v, um_req *r, const um_answer *answer) {
    if (v->filling && answer && v->input.n)
        answer = um_best_filling_find(v->filling, r, &v->input, v->n_filled, answer);
    v->input.answer = answer;
    v->decision = (um_decision){.at = v->decision.at, .id = v->decision.id};
    if (r->sampler->def) take_decision(v, r);
    else r->sampler->accept(&v->input, &v->decision);
    return &v->decision;
}

/* Makes masks of filled positions: of fewer than the pass has filled, and of none if it has filled the whole block. */
static void remask(um_candidates *v, um_req *r, int32_t n_written) {
    um_decision *d = &v->decision;
    const int32_t first = d->n;
    if (n_written == v->input.n) return;
    /* The filled positions follow the candidates in the arrays. um_remask never touches the first n_fixed positions. */
    um_sampler_input filled = v->input;
    filled.n_fixed = v->input.n;
    filled.n = v->input.n + v->n_filled;
    um_remask(&filled, n_written - 1, d);
    for (int32_t i = first; i < d->n; i++) um_req_erase(r, v->position[d->at[i]]);
}

void um_candidates_commit(um_candidates *v, um_req *r, um_block *b) {
    const um_sampler_input *c = &v->input;
    const um_decision *d = &v->decision;
    int32_t n_written = 0;
    for (int32_t i = 0; i < d->n; i++) {
        int32_t p = v->position[d->at[i]];
        if (d->id[i] == UM_MASKED) um_req_erase(r, p);
        else if (d->id[i] != c->mask_id && um_req_accepts(r, p, d->id[i])) {
            um_req_write(r, p, d->id[i], &c->answer[d->at[i]]);
            n_written++;
        }
    }
    if (v->n_filled) remask(v, r, n_written);
    if (r->fill && c->n) um_req_write_forced(r, v->position[0], v->position[c->n - 1] + 1);
    b->n_masks = 0;
    for (int32_t i = 0; i < c->n + v->n_filled; i++) b->n_masks += um_req_masked(r, v->position[i]);
    b->post_edit_steps = c->post_edit_steps;
    b->count++;
}
