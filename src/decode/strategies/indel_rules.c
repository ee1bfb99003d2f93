/* The rules that decide a pass of a block whose tokens move. Both fill masks, replace tokens and move them in the same
 * pass, and end a block after a number of passes at most. They differ in what they count, and in how they leave a
 * loop of passes that undo each other. */
#include "decode/strategies/indel.h"

/* Ids that are remembered for a position. Lists of likeliest ids are not longer, so more would not be found. */
enum { TRIED_MAX = 4 * UM_TOP_MAX };

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* Returns the number of passes after which every block ends if all its tokens can be written. */
static int32_t passes_max(const um_indel_how *how, int32_t n) {
    return how->rule == UM_INDEL_JOINT ? n + how->max_post + 2 : how->max_steps + 1;
}

void um_indel_init(um_indel *b, const um_indel_how *how, int32_t n) {
    const size_t N = (size_t)n;
    *b = (um_indel){.how = *how, .n = n, .cap_seen = passes_max(how, n)};
    b->token = UM_NEW_ARRAY(int32_t, N);
    b->original = UM_NEW_ARRAY(bool, N);
    b->from = UM_NEW_ARRAY(int32_t, N);
    b->id = UM_NEW_ARRAY(int32_t, N);
    b->best = UM_NEW_ARRAY(int32_t, N);
    b->p = UM_NEW_ARRAY(float, N);
    b->written = UM_NEW_ARRAY(int32_t, N);
    b->writes = UM_NEW_ARRAY(bool, N);
    b->seen = UM_NEW_ARRAY(uint64_t, (size_t)b->cap_seen);
    if (how->rule != UM_INDEL_JOINT) return;
    b->cap_tried = UM_MIN(b->cap_seen, TRIED_MAX);
    b->tried = UM_NEW_ARRAY(int32_t, um_mul(N, (size_t)b->cap_tried));
    b->n_tried = UM_NEW_ARRAY(int32_t, N);
}

void um_indel_deinit(um_indel *b) {
    void *array[] = {b->token,   b->original, b->from, b->id,    b->best,   b->p,
                     b->written, b->writes,   b->seen, b->tried, b->n_tried};
    for (size_t i = 0; i < UM_LEN(array); i++) um_free(array[i]);
}

static bool has_masks(const um_indel *b) {
    for (int32_t i = 0; i < b->n; i++)
        if (b->token[i] == UM_MASKED) return true;
    return false;
}

void um_indel_begin(um_indel *b, int32_t n, int32_t n_fixed, int32_t n_kept) {
    b->n = n;
    b->n_fixed = n_fixed;
    b->n_kept = n_kept;
    b->count = b->post = b->n_seen = b->first_masks = 0;
    for (int32_t i = 0; i < n; i++) {
        b->original[i] = b->token[i] == UM_MASKED;
        b->first_masks += b->original[i];
        if (b->n_tried) b->n_tried[i] = 0;
    }
    b->final = b->how.rule == UM_INDEL_LEVENSHTEIN && b->first_masks == 0;
}

/* Whole blocks are compared by a hash of 64 bits. */
static uint64_t hash_of(const um_indel *b, const int32_t *token) {
    uint64_t h = 0;
    for (int32_t i = 0; i < b->n; i++) h = um_rng_key(h, (uint64_t)(uint32_t)token[i], (uint64_t)i, 0);
    return h;
}

static bool was_seen(const um_indel *b, const int32_t *token) {
    const uint64_t h = hash_of(b, token);
    for (int32_t i = 0; i < b->n_seen; i++)
        if (b->seen[i] == h) return true;
    return false;
}

static void add_seen(um_indel *b, const int32_t *token) {
    if (b->n_seen < b->cap_seen && !was_seen(b, token)) b->seen[b->n_seen++] = hash_of(b, token);
}

static bool was_tried(const um_indel *b, int32_t i, int32_t id) {
    for (int32_t k = 0; k < b->n_tried[i]; k++)
        if (b->tried[(size_t)i * (size_t)b->cap_tried + (size_t)k] == id) return true;
    return false;
}

static void add_tried(um_indel *b, int32_t i, int32_t id) {
    if (b->n_tried[i] == b->cap_tried || was_tried(b, i, id)) return;
    b->tried[(size_t)i * (size_t)b->cap_tried + (size_t)b->n_tried[i]++] = id;
}

/* ---- Predictions ------------------------------------------------------------------------------------------------- */

static int32_t token_of(const um_indel *b, int32_t id) { return id == b->how.mask_id ? UM_MASKED : id; }

static bool is_control(const um_indel *b, int32_t id) {
    return id == UM_MASKED || id == b->how.mask_id || id == b->how.delete_id || id == b->how.split_id;
}

/* Reads the predicted tokens and their probabilities. A position without an allowed id keeps its token. */
static void read_answers(um_indel *b, const um_answer *answer) {
    for (int32_t i = 0; i < b->n; i++) {
        const um_answer *a = i < b->n_kept ? NULL : &answer[i - b->n_kept];
        const bool is_known = a && a->sample >= 0;
        b->best[i] = is_known ? token_of(b, a->sample) : b->token[i];
        b->p[i] = is_known ? a->p_sample : 0;
        b->writes[i] = false;
    }
}

/* Returns the likeliest id that may be written in place of one that may not; NULL: none is known. The id is none of
 * the three controls, or with `but` another than `but`. */
static const um_top *other_id(const um_indel *b, const um_answer *answer, int32_t n_top, int32_t i, int32_t but) {
    const um_answer *a = &answer[i - b->n_kept];
    for (int32_t k = 0; a->top && k < n_top && a->top[k].id >= 0; k++) {
        const int32_t id = a->top[k].id;
        if (but < 0 ? !is_control(b, id) : id != but) return &a->top[k];
    }
    return NULL;
}

/* In the pass that ends a block no token may move. A position without another id is not written. */
static void replace_control(um_indel *b, const um_answer *answer, int32_t n_top, int32_t i) {
    if (!is_control(b, b->best[i])) return;
    const um_top *t = other_id(b, answer, n_top, i, -1);
    b->best[i] = t ? t->id : b->token[i];
    b->writes[i] &= t != NULL;
}

/* ---- Common parts ------------------------------------------------------------------------------------------------ */

typedef struct counts {
    int32_t masks, original; /* masks of the block, and those of them that are original */
} counts;

static counts count_masks(const um_indel *b) {
    counts c = {0};
    for (int32_t i = 0; i < b->n; i++) {
        c.masks += b->token[i] == UM_MASKED;
        c.original += b->token[i] == UM_MASKED && b->original[i];
    }
    return c;
}

/* Returns the mask with the largest probability that is not chosen yet, the first among equals. */
static int32_t surest_mask(const um_indel *b) {
    int32_t best = -1;
    for (int32_t i = 0; i < b->n; i++)
        if (b->token[i] == UM_MASKED && !b->writes[i] && (best < 0 || b->p[i] > b->p[best])) best = i;
    return best;
}

/* Chooses the masks above the threshold, or the `need` best ones when those are fewer. */
static void fill_surest(um_indel *b, int32_t need) {
    int32_t n = 0;
    for (int32_t i = 0; i < b->n; i++) {
        b->writes[i] = b->token[i] == UM_MASKED && b->p[i] > b->how.threshold;
        n += b->writes[i];
    }
    for (int32_t i; n < need && (i = surest_mask(b)) >= 0; n++) b->writes[i] = true;
}

static void fill_all(um_indel *b, int32_t first) {
    for (int32_t i = 0; i < b->n; i++) b->writes[i] = i >= first && b->token[i] == UM_MASKED;
}

/* Tells whether all original masks are chosen. */
static bool fills_original(const um_indel *b) {
    for (int32_t i = 0; i < b->n; i++)
        if (b->token[i] == UM_MASKED && b->original[i] && !b->writes[i]) return false;
    return true;
}

static bool is_edited(const um_indel *b, int32_t i) {
    return i >= b->n_fixed && b->token[i] != UM_MASKED && b->p[i] > b->how.edit_threshold && b->best[i] != b->token[i];
}

/* Returns the position with the smallest probability at which `token` differs from the block, the first among equals;
 * -1: none. */
static int32_t least_sure(const um_indel *b, const int32_t *token) {
    int32_t least = -1;
    for (int32_t i = 0; i < b->n; i++)
        if (token[i] != b->token[i] && (least < 0 || b->p[i] < b->p[least])) least = i;
    return least;
}

static void set_written(um_indel *b) {
    for (int32_t i = 0; i < b->n; i++) b->written[i] = b->writes[i] ? b->best[i] : b->token[i];
}

static void put(um_indel *b, int32_t *n, int32_t from, int32_t id) {
    if (*n == b->n) return;
    b->from[*n] = from;
    b->id[(*n)++] = id;
}

/* Moves the written tokens: a deleted one leaves the block, and a split puts a mask before the token that was there. */
static void move(um_indel *b) {
    int32_t n = 0;
    for (int32_t i = 0; i < b->n; i++) {
        const int32_t id = b->written[i];
        if (i >= b->n_kept && id == b->how.delete_id) continue;
        if (i >= b->n_kept && id == b->how.split_id) {
            put(b, &n, -1, UM_MASKED);
            put(b, &n, i, b->token[i]);
        } else {
            put(b, &n, i, id);
        }
    }
    while (n < b->n) put(b, &n, -1, UM_MASKED);
    /* `writes` is free now and holds the flags. */
    for (int32_t i = 0; i < b->n; i++) b->writes[i] = b->from[i] >= b->n_kept && b->original[b->from[i]];
    memcpy(b->original, b->writes, (size_t)b->n * sizeof(bool));
}

static bool is_changed(const um_indel *b) { return memcmp(b->id, b->token, (size_t)b->n * sizeof(int32_t)) != 0; }

static void keep_all(um_indel *b) {
    for (int32_t i = 0; i < b->n; i++) {
        b->from[i] = i;
        b->id[i] = b->token[i];
    }
}

/* ---- levenshtein ------------------------------------------------------------------------------------------------- */

/* Chooses what a pass writes. Returns whether it is the last one that writes. */
static bool choose_levenshtein(um_indel *b, const counts *c) {
    const um_indel_how *how = &b->how;
    const int32_t S = how->steps, due = b->first_masks / S + (b->count < b->first_masks % S);
    b->post = c->original ? 0 : b->post + 1;
    if (b->count >= S) fill_all(b, 0);
    else fill_surest(b, due + c->masks - c->original);
    bool last = how->max_post > 0 ? b->post >= how->max_post : c->original > 0 && fills_original(b);
    last = last || b->count >= how->max_steps - 1;
    if (last) fill_all(b, 0);
    for (int32_t i = b->n_fixed; i < b->n; i++) b->writes[i] |= is_edited(b, i);
    return last;
}

/* While the pass would lead to a state that was there before, its least sure token becomes the second best one. */
static void leave_loop(um_indel *b, const um_answer *answer, int32_t n_top) {
    for (int32_t k = 0; k < 5 && was_seen(b, b->written); k++) {
        const int32_t i = least_sure(b, b->written);
        if (i < 0) return;
        const um_top *t = other_id(b, answer, n_top, i, b->best[i]);
        if (b->written[i] != b->best[i]) b->written[i] = b->best[i];
        else if (t) b->written[i] = t->id;
    }
}

static bool step_levenshtein(um_indel *b, const um_answer *answer, int32_t n_top) {
    const counts c = count_masks(b);
    read_answers(b, answer);
    const bool last = choose_levenshtein(b, &c);
    for (int32_t i = 0; i < b->n && last; i++)
        if (b->writes[i]) replace_control(b, answer, n_top, i);
    set_written(b);
    if (!last) leave_loop(b, answer, n_top);
    add_seen(b, b->written);
    move(b);
    b->count++;
    b->final = last;
    return c.masks == 0 && !is_changed(b);
}

/* ---- joint ------------------------------------------------------------------------------------------------------- */

/* An original mask never stays a mask. */
static void avoid_masks(um_indel *b, const um_answer *answer, int32_t n_top) {
    for (int32_t i = b->n_kept; i < b->n; i++) {
        if (b->token[i] != UM_MASKED || !b->original[i] || b->best[i] != UM_MASKED) continue;
        const um_top *t = other_id(b, answer, n_top, i, b->how.mask_id);
        if (!t) continue;
        b->best[i] = t->id;
        b->p[i] = t->p;
    }
}

/* Chooses what a pass writes. Returns whether it is the last one that writes. */
static bool choose_joint(um_indel *b, const counts *c, const um_answer *answer, int32_t n_top) {
    const um_indel_how *how = &b->how;
    if (c->original) fill_surest(b, 1 + c->masks - c->original);
    else fill_all(b, 0);
    b->count++;
    b->post += !c->original;
    bool last = how->max_post > 0 ? b->post >= how->max_post : !c->original || fills_original(b);
    last = last || b->count > b->n + how->max_post;
    if (last) fill_all(b, b->n_fixed);
    for (int32_t i = b->n_kept; i < b->n && last; i++) replace_control(b, answer, n_top, i);
    for (int32_t i = b->n_fixed; i < b->n; i++) b->writes[i] |= is_edited(b, i);
    return last;
}

/* In a state that was there before, the least sure change becomes the best id that was not written there yet. */
static void try_another(um_indel *b, const um_answer *answer, int32_t n_top) {
    set_written(b);
    const int32_t i = least_sure(b, b->written);
    if (i < 0) return;
    const um_answer *a = &answer[i - b->n_kept];
    const bool no_mask = b->token[i] == UM_MASKED && b->original[i];
    for (int32_t k = 0; a->top && k < n_top && a->top[k].id >= 0; k++) {
        const int32_t id = token_of(b, a->top[k].id);
        if ((no_mask && id == UM_MASKED) || was_tried(b, i, id)) continue;
        b->best[i] = id;
        return;
    }
}

static bool step_joint(um_indel *b, const um_answer *answer, int32_t n_top) {
    const counts c = count_masks(b);
    read_answers(b, answer);
    avoid_masks(b, answer, n_top);
    const bool last = choose_joint(b, &c, answer, n_top);
    bool any = false;
    for (int32_t i = 0; i < b->n; i++) any |= b->writes[i];
    if (any && !last && was_seen(b, b->token)) try_another(b, answer, n_top);
    if (any) add_seen(b, b->token);
    for (int32_t i = 0; i < b->n; i++)
        if (b->writes[i]) add_tried(b, i, b->best[i]);
    set_written(b);
    move(b);
    b->final = last;
    return !any || (last && !is_changed(b));
}

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

int32_t um_indel_n_top_max(const um_indel *b) {
    return b->how.rule == UM_INDEL_JOINT ? UM_MIN(UM_TOP_MAX, b->cap_tried + 2) : 3;
}

int32_t um_indel_n_top(const um_indel *b) {
    return b->how.rule == UM_INDEL_JOINT && was_seen(b, b->token) ? um_indel_n_top_max(b) : 4;
}

bool um_indel_step(um_indel *b, const um_answer *answer, int32_t n_top) {
    if (b->final) {
        keep_all(b);
        return b->how.rule == UM_INDEL_JOINT || !has_masks(b);
    }
    return b->how.rule == UM_INDEL_JOINT ? step_joint(b, answer, n_top) : step_levenshtein(b, answer, n_top);
}
