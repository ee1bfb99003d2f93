/* A request's edits of the logits: bans, biases and penalties. All rows of a pass share one list in ascending order of
 * id, except rows before min_tokens, which share a second list that also bans stop ids. */
#include <math.h>
#include <stdlib.h>

#include "decode/decode.h"

/* The number of times that a token occurs before the blocks that are being denoised. */
typedef struct seen {
    int32_t id, in_prompt, in_answer;
} seen;

struct um_edits {
    um_edit *fixed, *early_fixed; /* bans and biases; early_fixed also bans the stop ids */
    int32_t n_fixed, n_early_fixed;
    um_edit *merged, *early_merged; /* these two lists with penalties added */
    seen *seen;                     /* [n_seen] in ascending order of id */
    int32_t n_seen, cap_seen;
    int32_t counted; /* leading positions that `seen` counts */
};

static bool penalizes(const um_sampling_params *s) {
    return s->repetition_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0;
}

static int by_id(const void *a, const void *b) {
    const um_edit *x = (const um_edit *)a, *y = (const um_edit *)b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static um_edit ban(int32_t id) { return (um_edit){.id = id, .ban = true}; }

/* Tells whether the id is no token but deletes or inserts one, and the request does that. */
static bool is_move(const um_req *r, int32_t id) {
    return r->moves_tokens && (id == r->traits->delete_id || id == r->traits->split_id);
}

static int32_t list_fixed(const um_req *r, const um_bias *bias, size_t n_bias, bool early, um_edit *out) {
    int32_t n = 0;
    if (!r->may_choose_mask) out[n++] = ban(r->traits->mask_id);
    for (int32_t i = 0; i < r->traits->n_ban; i++)
        if (!is_move(r, r->traits->ban[i])) out[n++] = ban(r->traits->ban[i]);
    for (int32_t i = 0; early && i < r->traits->n_stop; i++) out[n++] = ban(r->traits->stop[i]);
    for (int32_t i = 0; early && i < r->n_stop_ids; i++) out[n++] = ban(r->stop_ids[i]);
    for (size_t i = 0; i < n_bias; i++)
        out[n++] = bias[i].value == -INFINITY ? ban(bias[i].id) : (um_edit){.id = bias[i].id, .add = bias[i].value};
    qsort(out, (size_t)n, sizeof(um_edit), by_id);
    return n;
}

void um_req_edits_new(um_req *r, const um_bias *bias, size_t n_bias, int32_t vocab) {
    um_edits *e = UM_NEW(um_edits);
    size_t most = 1 + (size_t)r->traits->n_ban + (size_t)r->traits->n_stop + (size_t)r->n_stop_ids + n_bias;
    e->fixed = UM_NEW_ARRAY(um_edit, most);
    e->early_fixed = UM_NEW_ARRAY(um_edit, most);
    e->n_fixed = list_fixed(r, bias, n_bias, false, e->fixed);
    e->n_early_fixed = list_fixed(r, bias, n_bias, true, e->early_fixed);
    r->edits = e;
    r->edit = e->fixed;
    r->n_edit = e->n_fixed;
    r->early_edit = e->early_fixed;
    r->n_early_edit = e->n_early_fixed;
    if (!penalizes(&r->sampling)) return;
    e->cap_seen = UM_MIN(r->cap, vocab);
    e->seen = UM_NEW_ARRAY(seen, (size_t)e->cap_seen);
    e->merged = UM_NEW_ARRAY(um_edit, most + (size_t)e->cap_seen);
    e->early_merged = UM_NEW_ARRAY(um_edit, most + (size_t)e->cap_seen);
}

static bool is_allowed(const um_req *r, int32_t id) { return !r->allow || (r->allow[id / 32] >> (id % 32) & 1); }

/* Returns how many of the vocabulary's ids the answer may have, but for edits. */
static int32_t count_allowed(const um_req *r, int32_t vocab) {
    int32_t n = 0;
    if (!r->allow) return vocab;
    for (int32_t i = 0; i < UM_CEIL_DIV(vocab, 32); i++) n += __builtin_popcount(r->allow[i]);
    return n;
}

/* Counts the ids that delete or insert a token and that neither allowed ids nor edits rule out. */
static int32_t count_moves(const um_req *r, const um_edit *edit, int32_t n, int32_t vocab) {
    const int32_t move[] = {r->traits->delete_id, r->traits->split_id};
    int32_t left = 0;
    for (size_t i = 0; i < UM_LEN(move); i++) {
        bool is_banned = move[i] < 0 || move[i] >= vocab || !is_move(r, move[i]) || !is_allowed(r, move[i]);
        for (int32_t k = 0; k < n && !is_banned; k++) is_banned = edit[k].ban && edit[k].id == move[i];
        left += !is_banned;
    }
    return left;
}

bool um_req_edits_leave_token(const um_req *r, int32_t vocab) {
    /* The early list bans at least what the other one bans. */
    const bool early = r->sampling.min_tokens > 0;
    const um_edit *edit = early ? r->early_edit : r->edit;
    const int32_t n = early ? r->n_early_edit : r->n_edit;
    int32_t left = count_allowed(r, vocab), last = -1;
    for (int32_t i = 0; i < n; i++) {
        if (!edit[i].ban || edit[i].id == last) continue;
        last = edit[i].id;
        left -= last < vocab && is_allowed(r, last);
    }
    return left > count_moves(r, edit, n, vocab);
}

void um_req_edits_free(um_req *r) {
    um_edits *e = r->edits;
    if (!e) return;
    um_free(e->fixed);
    um_free(e->early_fixed);
    um_free(e->merged);
    um_free(e->early_merged);
    um_free(e->seen);
    um_free(e);
    r->edits = NULL;
}

/* Returns the entry of an id, inserting it if it is new. */
static seen *find_seen(um_edits *e, int32_t id) {
    int32_t lo = 0, hi = e->n_seen;
    while (lo < hi) {
        int32_t mid = (lo + hi) / 2;
        if (e->seen[mid].id < id) lo = mid + 1;
        else hi = mid;
    }
    if (lo < e->n_seen && e->seen[lo].id == id) return &e->seen[lo];
    assert(e->n_seen < e->cap_seen);
    memmove(&e->seen[lo + 1], &e->seen[lo], (size_t)(e->n_seen - lo) * sizeof(seen));
    e->n_seen++;
    e->seen[lo] = (seen){.id = id};
    return &e->seen[lo];
}

/* Merges the fixed edits and the penalties in ascending order of id, fixed edits first, and returns the length of the
 * list. */
static int32_t merge(const um_req *r, const um_edit *fixed, int32_t n_fixed, um_edit *out) {
    const um_edits *e = r->edits;
    const um_sampling_params *s = &r->sampling;
    int32_t n = 0, k = 0;
    for (int32_t i = 0; i < e->n_seen; i++) {
        const seen *t = &e->seen[i];
        while (k < n_fixed && fixed[k].id <= t->id) out[n++] = fixed[k++];
        float penalty = (t->in_answer > 0 ? s->presence_penalty : 0) + s->frequency_penalty * (float)t->in_answer;
        out[n++] =
            (um_edit){.id = t->id, .scale = s->repetition_penalty != 1 ? s->repetition_penalty : 0, .add = -penalty};
    }
    while (k < n_fixed) out[n++] = fixed[k++];
    return n;
}

void um_req_count_penalties(um_req *r, int32_t end) {
    um_edits *e = r->edits;
    if (!e || !e->seen || end <= e->counted) return;
    for (int32_t p = e->counted; p < end; p++) {
        if (p >= r->n_prompt && um_req_masked(r, p)) continue;
        seen *t = find_seen(e, r->token[p]);
        if (p < r->n_prompt) t->in_prompt++;
        else t->in_answer++;
    }
    e->counted = end;
    r->edit = e->merged;
    r->n_edit = merge(r, e->fixed, e->n_fixed, e->merged);
    r->early_edit = e->early_merged;
    r->n_early_edit = merge(r, e->early_fixed, e->n_early_fixed, e->early_merged);
}
