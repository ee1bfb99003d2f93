/* The sets of live states of a request. */
#include <stdatomic.h>

#include "decode/fill.h"

enum { WORDS = UM_STATES_MAX / 64, NESTING = 2 };

typedef struct state_set {
    uint64_t bit[WORDS];
    uint32_t version; /* a new number whenever the set changes */
} state_set;

/* The bitmap of a position, its number, and the versions of the sets that it was made of. */
typedef struct allowed {
    uint32_t before, behind;
    uint64_t id;
    uint32_t *bits; /* [n_words] */
} allowed;

struct um_fill {
    um_language *l;
    const um_traits *traits;
    int32_t state;        /* after the final tokens; 0: they have ended the answer */
    int32_t start, end;   /* the window */
    int32_t cap, n_words; /* largest window; words of a bitmap */
    int32_t limit;        /* first position that the answer never has */
    int32_t depth;        /* largest nesting that masks may reach; it never becomes smaller */
    int32_t open;         /* position that counts as a mask; -1: none */
    int32_t open_id;      /* its token; UM_MASKED: none */
    uint32_t version;
    bool stale, stuck;
    state_set *set;   /* [cap + 1] before position p: entry p % (cap + 1) */
    state_set *other; /* [cap + 1] the same, with `open` as a mask */
    state_set scratch;
    allowed *of;               /* [cap] of position p: entry p % cap */
    uint32_t *bits;            /* [cap + 1, n_words] the bitmaps, and `draft` */
    uint32_t *draft;           /* where the next bitmap is made */
    const uint32_t *added[32]; /* groups of tokens in the bitmap that is being made */
    int32_t n_added;
};

um_fill *um_fill_new(const um_req *r, um_language *l, int32_t window, int32_t vocab, int32_t end) {
    um_fill *f = UM_NEW(um_fill);
    *f = (um_fill){.l = l,
                   .traits = r->traits,
                   .state = um_language_start(l),
                   .start = r->n_prompt,
                   .end = r->n_prompt,
                   .cap = window,
                   .n_words = UM_CEIL_DIV(vocab, 32),
                   .limit = end,
                   .depth = NESTING,
                   .open = -1,
                   .open_id = UM_MASKED,
                   .stale = true,
                   .set = UM_NEW_ARRAY(state_set, (size_t)window + 1),
                   .of = UM_NEW_ARRAY(allowed, (size_t)window),
                   .bits = UM_NEW_ARRAY(uint32_t, um_mul((size_t)window + 1, (size_t)UM_CEIL_DIV(vocab, 32)))};
    for (int32_t i = 0; i < window; i++) f->of[i].bits = f->bits + (size_t)i * (size_t)f->n_words;
    f->draft = f->bits + (size_t)window * (size_t)f->n_words;
    if (r->replaces_tokens || (r->sampler && (r->sampler->edits || r->how.remask_threshold > 0)))
        f->other = UM_NEW_ARRAY(state_set, (size_t)window + 1);
    return f;
}

void um_fill_free(um_fill *f) {
    if (!f) return;
    um_free(f->set);
    um_free(f->other);
    um_free(f->of);
    um_free(f->bits);
    um_free(f);
}

/* ---- Sets -------------------------------------------------------------------------------------------------------- */

/* The words that may have bits. */
static int32_t used_words(const um_fill *f) { return UM_CEIL_DIV(um_language_size(f->l), 64); }

static bool has(const state_set *s, int32_t state) { return s->bit[state / 64] >> state % 64 & 1; }
static void add(state_set *s, int32_t state) { s->bit[state / 64] |= UINT64_C(1) << state % 64; }
static void clear(state_set *s) { memset(s->bit, 0, sizeof s->bit); }

/* Returns the first state of the set from `from` on, -1: none. */
static int32_t next_state(const state_set *s, int32_t from, int32_t n_words) {
    for (int32_t w = from / 64; w < n_words; w++) {
        uint64_t bits = s->bit[w];
        if (w == from / 64) bits &= ~UINT64_C(0) << from % 64;
        if (bits) return w * 64 + __builtin_ctzll(bits);
    }
    return -1;
}

#define EACH_STATE(q, set, n_words)                                                                                    \
    for (int32_t q = next_state(set, 0, n_words); q >= 0; q = next_state(set, q + 1, n_words))

static state_set *at(const um_fill *f, state_set *sets, int32_t pos) { return &sets[pos % (f->cap + 1)]; }

static void changed(um_fill *f, state_set *s) { s->version = ++f->version; }

/* ---- Steps ------------------------------------------------------------------------------------------------------- */

static bool is_end(const um_fill *f, int32_t id) {
    for (int32_t i = 0; i < f->traits->n_stop; i++)
        if (f->traits->stop[i] == id) return true;
    return false;
}

/* Returns the token at a position, UM_MASKED for a mask. */
static int32_t token_at(const um_fill *f, const um_req *r, int32_t pos) {
    if (pos == f->open) return f->open_id;
    return um_req_masked(r, pos) ? UM_MASKED : r->token[pos];
}

/* Returns the state after a token: 0 for an answer that has ended, -1 if the token can't follow. Tokens keep to the
 * same nesting as masks, so that any of them can become a mask again. */
static int32_t after_token(const um_fill *f, int32_t state, int32_t id) {
    const bool ends = is_end(f, id);
    if (state == 0) return ends || id == f->traits->pad ? 0 : -1;
    if (ends) return um_language_accepts(f->l, state) ? 0 : -1;
    const um_str bytes = um_language_token(f->l, id);
    const int32_t to = bytes.n ? um_language_step(f->l, state, bytes) : UM_DEAD;
    if (to == UM_DEAD || um_language_depth(f->l, to) > f->depth) return -1;
    return um_language_spells(f->l, state, bytes) ? to : -1;
}

/* Adds the states that a mask can lead to. */
static void add_moves(const um_fill *f, int32_t state, state_set *out) {
    if (state == 0 || (f->traits->n_stop > 0 && um_language_accepts(f->l, state))) add(out, 0);
    if (state == 0) return;
    const um_moves *m = um_language_moves(f->l, state);
    for (int32_t i = 0; i < m->n; i++)
        if (um_language_depth(f->l, m->move[i].to) <= f->depth) add(out, m->move[i].to);
}

static bool moves_into(const um_fill *f, int32_t state, const state_set *behind) {
    if (has(behind, 0) && (state == 0 || (f->traits->n_stop > 0 && um_language_accepts(f->l, state)))) return true;
    if (state == 0) return false;
    const um_moves *m = um_language_moves(f->l, state);
    for (int32_t i = 0; i < m->n; i++)
        if (has(behind, m->move[i].to)) return true;
    return false;
}

/* Computes the states behind a position from those before it. */
static void step_forward(const um_fill *f, const state_set *before, int32_t id, state_set *out) {
    const int32_t n_words = used_words(f);
    clear(out);
    EACH_STATE(q, before, n_words) {
        if (id == UM_MASKED) {
            add_moves(f, q, out);
            continue;
        }
        const int32_t to = after_token(f, q, id);
        if (to >= 0) add(out, to);
    }
}

/* Removes the states before a position that lead to no state behind it. Returns whether there were any. */
static bool narrow_before(um_fill *f, state_set *before, int32_t id, const state_set *behind) {
    const int32_t n_words = used_words(f);
    bool any = false;
    EACH_STATE(q, before, n_words) {
        if (id == UM_MASKED) {
            if (moves_into(f, q, behind)) continue;
        } else {
            const int32_t to = after_token(f, q, id);
            if (to >= 0 && has(behind, to)) continue;
        }
        before->bit[q / 64] &= ~(UINT64_C(1) << q % 64);
        any = true;
    }
    if (any) changed(f, before);
    return any;
}

/* Removes the states behind a position that no state before it leads to. Returns whether there were any. */
static bool narrow_behind(um_fill *f, const state_set *before, int32_t id, state_set *behind) {
    bool any = false;
    step_forward(f, before, id, &f->scratch);
    for (int32_t w = 0; w < used_words(f); w++) {
        any |= (behind->bit[w] & ~f->scratch.bit[w]) != 0;
        behind->bit[w] &= f->scratch.bit[w];
    }
    if (any) changed(f, behind);
    return any;
}

/* ---- The window -------------------------------------------------------------------------------------------------- */

/* Keeps the states from which the text can be completed in the positions behind the window. */
static void keep_completable(um_fill *f, state_set *last) {
    const int32_t rest = f->limit - f->end, n_words = used_words(f);
    EACH_STATE(q, last, n_words)
    if (q && um_language_rest(f->l, q) > rest) last->bit[q / 64] &= ~(UINT64_C(1) << q % 64);
    changed(f, last);
}

static bool is_empty(const state_set *s) { return next_state(s, 0, WORDS) < 0; }

/* Computes all sets of the window. Returns whether a text is left. */
static bool compute(um_fill *f, const um_req *r, state_set *sets) {
    state_set *first = at(f, sets, f->start);
    clear(first);
    add(first, f->state);
    changed(f, first);
    const int32_t depth = f->state ? um_language_depth(f->l, f->state) + NESTING : 0;
    f->depth = UM_MAX(f->depth, depth);
    for (int32_t p = f->start; p < f->end; p++) {
        step_forward(f, at(f, sets, p), token_at(f, r, p), at(f, sets, p + 1));
        changed(f, at(f, sets, p + 1));
    }
    keep_completable(f, at(f, sets, f->end));
    for (int32_t p = f->end - 1; p >= f->start; p--)
        narrow_before(f, at(f, sets, p), token_at(f, r, p), at(f, sets, p + 1));
    return !is_empty(first);
}

static void refresh(um_fill *f, const um_req *r) {
    if (!f->stale) return;
    f->stale = false;
    if (!compute(f, r, f->set)) f->stuck = true;
}

void um_fill_erased(um_fill *f) { f->stale = true; }

void um_fill_advance(um_fill *f, const um_req *r) {
    for (; f->start < r->filled; f->start++) {
        const int32_t to = after_token(f, f->state, r->token[f->start]);
        if (to < 0) f->stuck = true;
        f->state = UM_MAX(to, 0);
        if (f->start == f->end) f->end++;
    }
}

void um_fill_open(um_fill *f, const um_req *r, int32_t end) {
    um_fill_advance(f, r);
    const int32_t from = f->end;
    end = UM_MIN(UM_MIN(end, f->limit), f->start + f->cap);
    f->end = UM_MAX(f->end, end);
    /* A longer window may have more live states: um_language_rest, which bounds the text behind the window, counts more
     * tokens than some texts need. */
    f->stale |= f->end > from;
    refresh(f, r);
}

/* ---- Allowed ids ------------------------------------------------------------------------------------------------- */

static void allow(uint32_t *bitmap, int32_t id) { bitmap[id / 32] |= UINT32_C(1) << id % 32; }

/* States inside of the same rule share their large groups of tokens. Returns whether this one is in the bitmap. */
static bool was_added(um_fill *f, const uint32_t *bits) {
    for (int32_t i = 0; i < f->n_added; i++)
        if (f->added[i] == bits) return true;
    if (f->n_added < (int32_t)UM_LEN(f->added)) f->added[f->n_added++] = bits;
    return false;
}

static void allow_tokens(um_fill *f, const um_tokens *t, uint32_t *bitmap) {
    for (int32_t i = 0; i < t->n && t->id; i++) allow(bitmap, t->id[i]);
    if (!t->bits || was_added(f, t->bits)) return;
    for (int32_t w = 0; w < f->n_words; w++) bitmap[w] |= t->bits[w];
}

/* Adds the tokens that lead from a state to those behind a position, except to the states in `known` (NULL: none). */
static void allow_from(um_fill *f, int32_t state, const state_set *behind, const state_set *known, uint32_t *bitmap) {
    if (has(behind, 0) && (state == 0 || um_language_accepts(f->l, state)))
        for (int32_t i = 0; i < f->traits->n_stop; i++) allow(bitmap, f->traits->stop[i]);
    if (state == 0 && f->traits->pad >= 0) allow(bitmap, f->traits->pad);
    if (state == 0) return;
    const um_moves *m = um_language_moves(f->l, state);
    for (int32_t i = 0; i < m->n; i++) {
        const int32_t to = m->move[i].to;
        if (has(behind, to) && !(known && has(known, to))) allow_tokens(f, &m->move[i].tokens, bitmap);
    }
}

static bool is_subset(const um_fill *f, const state_set *a, const state_set *b) {
    for (int32_t w = 0; w < used_words(f); w++)
        if (a->bit[w] & ~b->bit[w]) return false;
    return true;
}

static allowed *allowed_of(const um_fill *f, int32_t pos) { return &f->of[pos % f->cap]; }

/* Tells whether the tokens of the position before are known, and may stand at this one, too. In a window of masks each
 * position may have what the one before it may have, and a little more. */
static bool extends_previous(const um_fill *f, const um_req *r, int32_t pos) {
    if (pos == f->start || !um_req_masked(r, pos - 1) || !um_req_masked(r, pos)) return false;
    const state_set *first = at(f, f->set, pos - 1), *before = at(f, f->set, pos), *behind = at(f, f->set, pos + 1);
    const allowed *known = allowed_of(f, pos - 1);
    return known->before == first->version && known->behind == before->version && is_subset(f, first, before) &&
           is_subset(f, before, behind);
}

uint64_t um_new_allow_id(void) {
    static atomic_uint_least64_t last;
    return atomic_fetch_add(&last, 1) + 1;
}

/* Makes the bitmap of a position. It gets a new number if its bits have changed. */
static void make_bitmap(um_fill *f, const um_req *r, int32_t pos, const state_set *before, const state_set *behind) {
    const int32_t n_words = used_words(f);
    const size_t bytes = (size_t)f->n_words * sizeof(uint32_t);
    allowed *of = allowed_of(f, pos);
    uint32_t *bitmap = f->draft;
    const bool extends = extends_previous(f, r, pos);
    f->n_added = 0;
    if (extends) memcpy(bitmap, allowed_of(f, pos - 1)->bits, bytes);
    else memset(bitmap, 0, bytes);
    const state_set *first = extends ? at(f, f->set, pos - 1) : NULL;
    EACH_STATE(q, before, n_words) allow_from(f, q, behind, first && has(first, q) ? before : NULL, bitmap);
    if (of->id && memcmp(bitmap, of->bits, bytes) == 0) return;
    f->draft = of->bits;
    of->bits = bitmap;
    of->id = um_new_allow_id();
}

/* Computes the sets with one position as a mask, or with another token there. Returns whether a text is left. */
static bool compute_other(um_fill *f, const um_req *r, int32_t pos, int32_t id) {
    f->open = pos;
    f->open_id = id;
    const bool left = compute(f, r, f->other);
    f->open = -1;
    return left;
}

const uint32_t *um_fill_allowed(um_fill *f, const um_req *r, int32_t pos, uint64_t *allow_id) {
    refresh(f, r);
    *allow_id = 0;
    if (pos < f->start || pos >= f->end) return NULL;
    state_set *sets = f->set;
    if (!um_req_masked(r, pos)) {
        compute_other(f, r, pos, UM_MASKED);
        sets = f->other;
    }
    const state_set *before = at(f, sets, pos), *behind = at(f, sets, pos + 1);
    allowed *known = allowed_of(f, pos);
    if (known->before != before->version || known->behind != behind->version) make_bitmap(f, r, pos, before, behind);
    known->before = before->version;
    known->behind = behind->version;
    *allow_id = known->id;
    return known->bits;
}

/* ---- Written tokens ---------------------------------------------------------------------------------------------- */

/* Narrows the sets on both sides of a position. */
static void narrow_around(um_fill *f, const um_req *r, int32_t pos, int32_t id) {
    narrow_before(f, at(f, f->set, pos), id, at(f, f->set, pos + 1));
    narrow_behind(f, at(f, f->set, pos), id, at(f, f->set, pos + 1));
    for (int32_t p = pos + 1; p < f->end; p++)
        if (!narrow_behind(f, at(f, f->set, p), token_at(f, r, p), at(f, f->set, p + 1))) break;
    for (int32_t p = pos - 1; p >= f->start; p--)
        if (!narrow_before(f, at(f, f->set, p), token_at(f, r, p), at(f, f->set, p + 1))) break;
}

static bool leads_on(const um_fill *f, const state_set *before, int32_t id, const state_set *behind) {
    const int32_t n_words = used_words(f);
    EACH_STATE(q, before, n_words) {
        const int32_t to = after_token(f, q, id);
        if (to >= 0 && has(behind, to)) return true;
    }
    return false;
}

bool um_fill_accept(um_fill *f, const um_req *r, int32_t pos, int32_t id) {
    refresh(f, r);
    if (pos < f->start || pos >= f->end) return false;
    if (!um_req_masked(r, pos)) {
        if (r->token[pos] == id) return true;
        if (!compute_other(f, r, pos, id)) return false;
        state_set *t = f->set;
        f->set = f->other;
        f->other = t;
        return true;
    }
    if (!leads_on(f, at(f, f->set, pos), id, at(f, f->set, pos + 1))) return false;
    narrow_around(f, r, pos, id);
    return true;
}

static int32_t only_of(const um_fill *f, int32_t state, const state_set *behind, int32_t id) {
    enum { SEVERAL = -2 };
    if (has(behind, 0) && (state == 0 || um_language_accepts(f->l, state))) {
        if (f->traits->n_stop != 1 || (state == 0 && f->traits->pad >= 0 && f->traits->pad != f->traits->stop[0]))
            return SEVERAL;
        if (id >= 0 && id != f->traits->stop[0]) return SEVERAL;
        id = f->traits->stop[0];
    }
    const um_moves *m = state ? um_language_moves(f->l, state) : NULL;
    for (int32_t i = 0; m && i < m->n; i++) {
        const um_tokens *t = &m->move[i].tokens;
        if (!has(behind, m->move[i].to)) continue;
        if (t->n != 1 || !t->id || (id >= 0 && id != t->id[0])) return SEVERAL;
        id = t->id[0];
    }
    return id;
}

int32_t um_fill_only(um_fill *f, const um_req *r, int32_t pos) {
    refresh(f, r);
    if (pos < f->start || pos >= f->end) return -1;
    const state_set *before = at(f, f->set, pos), *behind = at(f, f->set, pos + 1);
    const int32_t n_words = used_words(f);
    int32_t id = -1;
    EACH_STATE(q, before, n_words)
    if ((id = only_of(f, q, behind, id)) < -1) return -1;
    return id;
}

int32_t um_fill_states(um_fill *f, const um_req *r, int32_t pos, int32_t *state, int32_t n) {
    refresh(f, r);
    if (pos < f->start || pos > f->end) return 0;
    const int32_t n_words = used_words(f);
    int32_t found = 0;
    EACH_STATE(q, at(f, f->set, pos), n_words) {
        if (found < n) state[found] = q;
        found++;
    }
    return found;
}

int32_t um_fill_step(const um_fill *f, int32_t state, int32_t pos, int32_t id) {
    const int32_t to = after_token(f, state, id);
    return to >= 0 && pos < f->end && has(at(f, f->set, pos + 1), to) ? to : -1;
}

void um_fill_lock(um_fill *f) { um_language_lock(f->l); }
void um_fill_unlock(um_fill *f) { um_language_unlock(f->l); }

bool um_fill_is_complete(const um_fill *f) {
    return f->state == 0 || (um_language_accepts(f->l, f->state) && um_language_moves(f->l, f->state)->n == 0);
}

bool um_fill_is_stuck(const um_fill *f) { return f->stuck || um_language_is_full(f->l); }

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

void um_req_prepare_rows(um_req *r, int32_t start, int32_t end) {
    um_req_count_penalties(r, start);
    if (!r->fill) return;
    um_language_lock(r->fill->l);
    um_fill_open(r->fill, r, end);
    um_language_unlock(r->fill->l);
}

const uint32_t *um_req_allowed(um_req *r, int32_t pos, uint64_t *allow_id) {
    *allow_id = r->allow_id;
    if (!r->fill) return r->allow;
    um_language_lock(r->fill->l);
    const uint32_t *bitmap = um_fill_allowed(r->fill, r, pos, allow_id);
    um_language_unlock(r->fill->l);
    return bitmap;
}

bool um_req_accepts(um_req *r, int32_t pos, int32_t id) {
    if (um_req_is_bad(r, pos, id)) return false;
    if (!r->fill) return true;
    um_language_lock(r->fill->l);
    const bool accepts = um_fill_accept(r->fill, r, pos, id);
    um_language_unlock(r->fill->l);
    return accepts;
}

static void write_only(um_req *r, int32_t pos, int32_t id) {
    um_top top[UM_TOP_MAX];
    for (int32_t i = 0; i < UM_TOP_MAX; i++) top[i] = (um_top){.id = i ? -1 : id, .p = 1, .q = 1};
    um_req_write(r, pos, id, &(um_answer){.best = id, .sample = id, .p_best = 1, .p_sample = 1, .top = top});
}

/* A token that is written may leave only one for its neighbours, so the search begins again until nothing is left. */
void um_req_write_forced(um_req *r, int32_t start, int32_t end) {
    um_language_lock(r->fill->l);
    for (int32_t p = start; p < end; p++) {
        if (!um_req_masked(r, p)) continue;
        const int32_t id = um_fill_only(r->fill, r, p);
        if (id < 0 || um_req_is_bad(r, p, id) || !um_fill_accept(r->fill, r, p, id)) continue;
        write_only(r, p, id);
        p = start - 1;
    }
    um_language_unlock(r->fill->l);
}

um_finish um_req_check_constraint(um_req *r) {
    if (!r->fill) return UM_FINISH_NONE;
    um_language_lock(r->fill->l);
    um_fill_advance(r->fill, r);
    const bool stuck = um_fill_is_stuck(r->fill), complete = um_fill_is_complete(r->fill);
    um_language_unlock(r->fill->l);
    return stuck ? UM_FINISH_CONSTRAINT : complete ? UM_FINISH_EOS : UM_FINISH_NONE;
}
