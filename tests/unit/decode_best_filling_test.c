/* decode: the most probable filling of a block under a constraint, compared with the enumeration of all fillings. */
#include <math.h>

#include "decode/best_filling.h"
#include "decode/fill.h"
#include "random_language.h"

#include "../support.h"

enum { ROOM = 7, WINDOW = 5, TRIALS = 400, DEPTH = 2, PAD_ID = END_ID + 1, IDS = PAD_ID + 1 };

typedef struct canvas {
    um_req r;
    um_traits traits;
    um_sampler sampler;
    um_language *l;
    int32_t token[ROOM], written[ROOM], stop[1];
    um_top top[WINDOW][UM_FILLING_TOKENS];
    um_answer answer[WINDOW];
    int32_t position[WINDOW], at_token[WINDOW];
    um_sampler_input input;
} canvas;

static void open_canvas(canvas *c, um_language *l) {
    *c = (canvas){.l = l, .stop = {END_ID}};
    c->traits = (um_traits){.mask_id = 99, .stop = c->stop, .n_stop = 1, .pad = PAD_ID};
    c->r = (um_req){.traits = &c->traits,
                    .sampler = &c->sampler,
                    .cap = ROOM,
                    .token = c->token,
                    .written = c->written,
                    .fills_best = true};
    for (int32_t i = 0; i < ROOM; i++) c->written[i] = -1;
    c->r.fill = um_fill_new(&c->r, l, ROOM, IDS, ROOM);
    um_fill_open(c->r.fill, &c->r, WINDOW);
}

/* Gives the rows of all masks random probabilities. The lists have all ids that the position may have. */
static void predict(canvas *c) {
    int32_t n = 0;
    for (int32_t p = c->r.filled; p < WINDOW; p++) {
        if (!um_req_masked(&c->r, p)) continue;
        uint64_t allow_id;
        const uint32_t *allowed = um_fill_allowed(c->r.fill, &c->r, p, &allow_id);
        int32_t t = 0;
        for (int32_t id = 0; id < IDS; id++)
            if (allowed[id / 32] >> id % 32 & 1) {
                const float v = (float)(1 + draw(1000)) / 1001;
                c->top[n][t++] = (um_top){.id = id, .p = v, .q = v};
            }
        assert_in_range(t, 1, UM_FILLING_TOKENS);
        if (t < UM_FILLING_TOKENS) c->top[n][t].id = -1;
        c->answer[n] = (um_answer){.best = -1, .sample = c->top[n][0].id, .top = c->top[n]};
        c->position[n] = p;
        c->at_token[n++] = UM_MASKED;
    }
    c->input = (um_sampler_input){.n = n, .position = c->position, .token = c->at_token};
}

/* ---- Enumeration ------------------------------------------------------------------------------------------------- */

static int32_t after(const canvas *c, int32_t state, int32_t id) {
    if (state == 0) return id >= END_ID ? 0 : -1;
    if (id == END_ID) return um_language_accepts(c->l, state) ? 0 : -1;
    if (id == PAD_ID || !um_language_spells(c->l, state, um_str_of(tokens[id]))) return -1;
    const int32_t to = um_language_step(c->l, state, um_str_of(tokens[id]));
    return to == UM_DEAD ? -1 : to;
}

static float p_of(const canvas *c, int32_t pos, int32_t id) {
    for (int32_t i = 0; i < c->input.n; i++)
        for (int32_t t = 0; c->position[i] == pos && t < UM_FILLING_TOKENS && c->top[i][t].id >= 0; t++)
            if (c->top[i][t].id == id) return c->top[i][t].p;
    return 0;
}

/* Returns the largest sum of logarithms over the fillings from `pos` on; -INFINITY: there is none. */
static double best_from(const canvas *c, int32_t pos, int32_t state) {
    if (pos == WINDOW) return state == 0 || um_language_rest(c->l, state) <= ROOM - WINDOW ? 0 : -INFINITY;
    double best = -INFINITY;
    for (int32_t id = 0; id < IDS; id++) {
        const bool masked = um_req_masked(&c->r, pos);
        if (masked ? p_of(c, pos, id) == 0 : id != c->token[pos]) continue;
        const int32_t to = after(c, state, id);
        if (to < 0) continue;
        const double value = best_from(c, pos + 1, to) + (masked ? log((double)p_of(c, pos, id)) : 0);
        best = fmax(best, value);
    }
    return best;
}

/* Returns the largest number of states before a position of the window that the lists lead to. */
static int32_t count_states(const canvas *c) {
    static bool from[UM_STATES_MAX], to[UM_STATES_MAX];
    int32_t most = 1;
    memset(from, 0, sizeof from);
    from[um_language_start(c->l)] = true;
    for (int32_t pos = 0; pos < WINDOW; pos++) {
        int32_t n = 0;
        memset(to, 0, sizeof to);
        for (int32_t state = 0; state < UM_STATES_MAX; state++)
            for (int32_t id = 0; id < IDS && from[state]; id++) {
                if (um_req_masked(&c->r, pos) ? p_of(c, pos, id) == 0 : id != c->token[pos]) continue;
                const int32_t next = after(c, state, id);
                if (next < 0 || to[next]) continue;
                to[next] = true;
                n++;
            }
        most = UM_MAX(most, n);
        memcpy(from, to, sizeof from);
    }
    return most;
}

/* ---- Trials ------------------------------------------------------------------------------------------------------ */

static int32_t n_compared, n_large;

static void compare(canvas *c, um_best_filling *s) {
    const um_answer *a = um_best_filling_find(s, &c->r, &c->input, 0, c->answer);
    double value = 0;
    for (int32_t i = 0; i < c->input.n; i++) {
        value += log((double)p_of(c, c->position[i], a[i].sample));
        assert_true(a[i].p_sample == p_of(c, c->position[i], a[i].sample) || a[i].sample == c->answer[i].sample);
    }
    const double want = best_from(c, 0, um_language_start(c->l));
    n_compared++;
    if (fabs(value - want) > 1e-9 && count_states(c) > UM_FILLING_STATES) { /* the search has given up */
        n_large++;
        for (int32_t i = 0; i < c->input.n; i++) assert_int_equal(a[i].sample, c->answer[i].sample);
        return;
    }
    if (fabs(value - want) > 1e-9) fail_msg("the filling has %.12g, the best one %.12g", value, want);
    /* All of its tokens fit together, in any order. */
    for (int32_t i = c->input.n - 1; i >= 0; i--) {
        if (draw(2)) continue;
        assert_true(um_fill_accept(c->r.fill, &c->r, c->position[i], a[i].sample));
        c->token[c->position[i]] = a[i].sample;
        c->written[c->position[i]] = 1;
    }
}

static void fill(um_language *l, um_best_filling *s) {
    canvas c;
    open_canvas(&c, l);
    for (int32_t pass = 0; pass < 3; pass++) {
        predict(&c);
        if (c.input.n == 0) break;
        compare(&c, s);
        while (c.r.filled < WINDOW && c.written[c.r.filled] >= 0 && draw(2)) c.r.filled++;
        um_fill_advance(c.r.fill, &c.r);
    }
    um_fill_free(c.r.fill);
}

static void it_is_the_best_of_all_fillings(void **state) {
    (void)state;
    random_seed = test_seed();
    um_vocabulary *v = new_vocabulary();
    um_best_filling *s = um_best_filling_new(WINDOW);
    for (int32_t n = 0; n < TRIALS;) {
        um_rules rules;
        um_language *l = random_language(&rules, v, DEPTH);
        const bool fits = um_language_rest(l, um_language_start(l)) <= ROOM;
        for (int32_t k = 0; k < 4 && fits; k++) fill(l, s);
        n += fits;
        um_language_free(l);
        um_rules_free(&rules);
    }
    assert_in_range(n_large, 0, n_compared / 50);
    um_best_filling_free(s);
    um_vocabulary_free(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_is_the_best_of_all_fillings)};
    return cmocka_run_group_tests_name("decode_best_filling", tests, NULL, NULL);
}
