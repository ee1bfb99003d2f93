/* Candidates of a block, their rows, and what becomes of them. */
#include <math.h>

#include "decode/view.h"

bool um_remasks(const um_req *r, const um_sampler *s) { return !s->edits && !isnan(r->how.remask_threshold); }

/* What stands at a position, for a sampler. */
static int32_t token_at(const um_req *r, int32_t p) { return um_req_masked(r, p) ? UM_MASKED : r->token[p]; }

/* Under compat an edit sampler that looks at blocks sees the prompt's tail in a block as well. */
static int32_t first_candidate(const um_req *r, const um_sampler *s, const um_block *b) {
    bool whole = s->edits && r->compat->literal_edits;
    return whole ? b->start : b->start + b->editable_start;
}

void um_view_look(um_view *v, const um_req *r, const um_sampler *s, const um_block *b, int32_t end, void *memory) {
    um_choice *c = &v->choice;
    int32_t first = first_candidate(r, s, b);
    bool remasks = um_remasks(r, s);
    v->n_filled = 0;
    *c = (um_choice){.position = v->position,
                     .token = v->token,
                     .previous = first > b->start ? token_at(r, first - 1) : UM_MASKED,
                     .block_len = b->len,
                     .how = &r->how,
                     .compat = r->compat,
                     .seed = r->seed,
                     .temperature = r->sampling.temperature,
                     .mask_id = r->traits->mask_id,
                     .count = b->count,
                     .total_steps = b->total_steps,
                     .post_edit_steps = b->post_edit_steps,
                     .score = v->score,
                     .memory = memory};
    for (int32_t p = first; p < end; p++) {
        bool masked = um_req_masked(r, p);
        c->n_masks += masked;
        if (masked || s->edits) {
            c->n_fixed += p < b->start + b->editable_start;
            v->token[c->n] = token_at(r, p);
            v->position[c->n++] = p;
        } else if (remasks) {
            v->filled_token[v->n_filled] = r->token[p];
            v->filled[v->n_filled++] = p;
        }
    }
    if (c->n_masks == 0) v->n_filled = 0; /* the block is done */
    c->post_edit_steps += c->n_masks == 0;
    if (s->schedule == UM_SCHEDULE_EVEN && c->n_masks) {
        int32_t steps = r->how.denoising_steps ? r->how.denoising_steps : b->len;
        c->keep = um_schedule_count(UM_SCHEDULE_EVEN, 0, UM_MIN(b->count, steps - 1), steps, c->n_masks, b->len);
    }
}

int32_t um_view_edits_max(const um_req *r, const um_sampler *s, int32_t len) {
    return s->edits_max ? s->edits_max(r) * len : 0;
}

static um_row *ask(const um_view *v, um_req *r, const um_sampler *s, um_pass *pass, int32_t pos, int32_t first) {
    int32_t src = pos - r->traits->shift - first;
    /* The row before the window was saved by the pass that stored it. */
    um_row *row = um_pass_row(pass, r, src < 0 ? -1 - r->saved : src, pos, v->choice.count);
    row->want = s->want(r);
    return row;
}

int32_t um_view_ask(const um_view *v, um_req *r, const um_sampler *s, um_pass *pass, int32_t first) {
    const um_choice *c = &v->choice;
    for (int32_t i = 0; i < c->n; i++) {
        um_row *row = ask(v, r, s, pass, c->position[i], first);
        if (!s->edit) continue;
        um_edit *room = pass->edit + pass->n_edits;
        int32_t n = s->edit(c, i, room);
        if (n) um_pass_edits(pass, row, n);
    }
    for (int32_t i = 0; i < v->n_filled; i++) {
        um_row *row = ask(v, r, s, pass, v->filled[i], first);
        row->want |= UM_WANT_PROB_OF;
        row->id = v->filled_token[i];
    }
    return c->n + v->n_filled;
}

static void carry_out(um_req *r, const um_decision *d, const int32_t *position, const um_answer *answer) {
    for (int32_t i = 0; i < d->n; i++) {
        int32_t p = position[d->at[i]];
        if (d->id[i] == UM_MASKED) um_req_erase(r, p);
        else um_req_write(r, p, d->id[i], &answer[d->at[i]]);
    }
}

um_decision um_view_decide(um_view *v, um_req *r, const um_sampler *s, um_block *b, const um_answer *answer,
                           int32_t *room) {
    um_decision d = {.at = room, .id = room + UM_BLOCK_MAX};
    v->choice.answer = answer;
    const um_choice c = v->choice;
    s->accept(&c, &d);
    carry_out(r, &d, v->position, answer);
    int32_t masks = 0, filled = d.n;
    if (v->n_filled) {
        um_choice old = c;
        int32_t back[2 * UM_BLOCK_MAX];
        um_decision taken = {.at = back, .id = back + UM_BLOCK_MAX};
        old.answer = answer + c.n;
        old.position = v->filled;
        old.token = v->filled_token;
        old.n = v->n_filled;
        /* Fewer go than came, and none when the block is complete now. */
        um_remask(&old, filled < c.n ? filled - 1 : 0, &taken);
        carry_out(r, &taken, v->filled, old.answer);
        masks = taken.n;
    }
    for (int32_t i = 0; i < c.n; i++) masks += um_req_masked(r, v->position[i]);
    b->n_masks = masks;
    b->post_edit_steps = c.post_edit_steps;
    b->count++;
    return d;
}
