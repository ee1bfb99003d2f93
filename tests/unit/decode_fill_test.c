/* decode: constrained filling of a window, compared with the enumeration of all fillings. */
#include "decode/fill.h"
#include "random_language.h"

#include "../support.h"

enum { PROMPT = 2, ROOM = 8, OPEN = 4, TRIALS = 300, DEPTH = 2, PAD_ID = END_ID + 1 };

typedef struct canvas {
    um_req r;
    um_traits traits;
    um_language *l;
    um_sampler sampler;
    int32_t token[PROMPT + ROOM], written[PROMPT + ROOM];
    int32_t stop[1], end, limit;
} canvas;

static void open_canvas(canvas *c, um_language *l, bool edits) {
    *c = (canvas){.l = l, .stop = {END_ID}, .limit = PROMPT + ROOM};
    c->traits = (um_traits){.mask_id = 99, .stop = c->stop, .n_stop = 1, .pad = PAD_ID};
    c->sampler.edits = edits;
    c->r = (um_req){.traits = &c->traits,
                    .sampler = &c->sampler,
                    .n_prompt = PROMPT,
                    .filled = PROMPT,
                    .cap = PROMPT + ROOM,
                    .token = c->token,
                    .written = c->written};
    for (int32_t i = 0; i < PROMPT + ROOM; i++) c->written[i] = i < PROMPT ? 0 : -1;
    c->r.fill = um_fill_new(&c->r, l, ROOM, PAD_ID + 1, c->limit);
}

/* ---- Enumeration ------------------------------------------------------------------------------------------------- */

static bool is_move(um_language *l, int32_t state, int32_t id) {
    const um_moves *m = um_language_moves(l, state);
    for (int32_t i = 0; i < m->n; i++) {
        const um_tokens *t = &m->move[i].tokens;
        if (t->bits && t->bits[id / 32] >> id % 32 & 1) return true;
        for (int32_t k = 0; k < t->n && t->id; k++)
            if (t->id[k] == id) return true;
    }
    return false;
}

/* Returns the state after a token: 0 behind an end, -1: not possible. */
static int32_t after(const canvas *c, int32_t state, int32_t id) {
    if (state == 0) return id >= END_ID ? 0 : -1;
    if (id == END_ID) return um_language_accepts(c->l, state) ? 0 : -1;
    if (id == PAD_ID || !is_move(c->l, state, id)) return -1;
    const int32_t to = um_language_step(c->l, state, um_str_of(tokens[id]));
    return to == UM_DEAD ? -1 : to;
}

/* Tries all tokens for the masks from `pos` on, and marks those of the fillings that can be completed. */
static bool enumerate(const canvas *c, int32_t pos, int32_t state, int32_t open, bool (*seen)[PAD_ID + 1]) {
    if (pos == c->end) return state == 0 || um_language_rest(c->l, state) <= c->limit - c->end;
    const bool masked = c->written[pos] < 0 || pos == open;
    bool any = false;
    for (int32_t id = 0; id <= PAD_ID; id++) {
        if (!masked && id != c->token[pos]) continue;
        const int32_t to = after(c, state, id);
        if (to < 0 || !enumerate(c, pos + 1, to, open, seen)) continue;
        seen[pos][id] = any = true;
    }
    return any;
}

/* The bits of the bitmaps with the last numbers. A number stands for the same bits as long as it is used. */
static struct {
    uint64_t id;
    uint32_t bits;
} numbered[1 << 12];
static int64_t n_repeated;

static void check_number(uint64_t allow_id, uint32_t bits) {
    const size_t i = (size_t)(allow_id % UM_LEN(numbered));
    assert_true(allow_id > 0);
    if (numbered[i].id == allow_id) {
        assert_int_equal(numbered[i].bits, bits);
        n_repeated++;
    }
    numbered[i].id = allow_id;
    numbered[i].bits = bits;
}

static void compare_position(canvas *c, int32_t pos, int32_t open) {
    static bool seen[PROMPT + ROOM][PAD_ID + 1];
    memset(seen, 0, sizeof seen);
    assert_true(enumerate(c, PROMPT, um_language_start(c->l), open, seen));
    uint64_t allow_id;
    const uint32_t *allowed = um_fill_allowed(c->r.fill, &c->r, pos, &allow_id);
    check_number(allow_id, allowed[0]);
    int32_t n = 0, one = -1;
    for (int32_t id = 0; id <= PAD_ID; id++) {
        const bool bit = allowed[id / 32] >> id % 32 & 1;
        if (bit != seen[pos][id]) fail_msg("position %d, id %d: allowed %d, expected %d", pos, id, bit, seen[pos][id]);
        n += seen[pos][id];
        if (seen[pos][id]) one = id;
    }
    if (open < 0) assert_int_equal(um_fill_only(c->r.fill, &c->r, pos), n == 1 ? one : -1);
}

/* ---- Random fillings --------------------------------------------------------------------------------------------- */

static int32_t n_masks(const canvas *c) {
    int32_t n = 0;
    for (int32_t p = PROMPT; p < c->end; p++) n += c->written[p] < 0;
    return n;
}

static int32_t random_position(const canvas *c, bool masked) {
    int32_t found = -1, n = 0;
    for (int32_t p = c->r.filled; p < c->end; p++)
        if ((c->written[p] < 0) == masked && draw(++n) == 0) found = p;
    return found;
}

static void write_random(canvas *c, int32_t pos) {
    uint64_t allow_id;
    const uint32_t *allowed = um_fill_allowed(c->r.fill, &c->r, pos, &allow_id);
    check_number(allow_id, allowed[0]);
    int32_t id = -1, n = 0;
    for (int32_t k = 0; k <= PAD_ID; k++)
        if (allowed[k / 32] >> k % 32 & 1 && draw(++n) == 0) id = k;
    assert_true(id >= 0);
    for (int32_t k = 0; k <= PAD_ID; k++)
        if (!(allowed[k / 32] >> k % 32 & 1) && c->written[pos] < 0)
            assert_false(um_fill_accept(c->r.fill, &c->r, pos, k));
    assert_true(um_fill_accept(c->r.fill, &c->r, pos, id));
    c->token[pos] = id;
    c->written[pos] = 1;
}

static void erase_random(canvas *c) {
    const int32_t pos = random_position(c, false);
    if (pos < 0 || draw(4)) return;
    c->written[pos] = -1;
    um_fill_erased(c->r.fill);
}

static void advance(canvas *c) {
    while (c->r.filled < c->end && c->written[c->r.filled] >= 0 && draw(2)) c->r.filled++;
    um_fill_advance(c->r.fill, &c->r);
}

static void check_text(const canvas *c, const um_rules *rules) {
    um_buf text = {0};
    for (int32_t p = PROMPT; p < c->end && c->token[p] < END_ID; p++) um_buf_puts(&text, tokens[c->token[p]]);
    if (!um_rules_match(rules, (um_str){text.data, text.len})) fail_msg("\"%s\" is no text of the grammar", text.data);
    um_buf_free(&text);
}

/* Fills a canvas block by block in random order; every position is compared before it is written. */
static void fill_randomly(um_language *l, const um_rules *rules, bool edits) {
    canvas c;
    open_canvas(&c, l, edits);
    for (c.end = PROMPT; c.end < c.limit;) {
        const int32_t end = c.end + 1 + draw(OPEN - n_masks(&c));
        c.end = UM_MIN(c.limit, end);
        um_fill_open(c.r.fill, &c.r, c.end);
        const int32_t leave = c.end < c.limit ? draw(2) : 0;
        while (n_masks(&c) > leave) {
            const int32_t pos = random_position(&c, true);
            compare_position(&c, pos, -1);
            write_random(&c, pos);
            if (edits && n_masks(&c) < OPEN - 1) erase_random(&c);
            const int32_t filled = edits ? random_position(&c, false) : -1;
            if (filled >= 0 && n_masks(&c) < OPEN) {
                compare_position(&c, filled, filled);
                write_random(&c, filled);
            }
            advance(&c);
            assert_false(um_fill_is_stuck(c.r.fill));
        }
    }
    check_text(&c, rules);
    um_fill_free(c.r.fill);
}

static void fill_languages(bool edits) {
    random_seed = test_seed();
    um_vocabulary *v = new_vocabulary();
    int32_t n = 0;
    while (n < TRIALS) {
        um_rules rules;
        um_language *l = random_language(&rules, v, DEPTH);
        const bool fits = um_language_rest(l, um_language_start(l)) <= ROOM;
        for (int32_t k = 0; k < 4 && fits; k++) fill_randomly(l, &rules, edits);
        n += fits;
        um_language_free(l);
        um_rules_free(&rules);
    }
    um_vocabulary_free(v);
    assert_true(n_repeated > 0);
}

static void masks_may_have_the_tokens_of_completable_fillings(void **state) {
    (void)state;
    fill_languages(false);
}

static void edits_and_erased_tokens_keep_to_the_language(void **state) {
    (void)state;
    fill_languages(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_may_have_the_tokens_of_completable_fillings),
        cmocka_unit_test(edits_and_erased_tokens_keep_to_the_language),
    };
    return cmocka_run_group_tests_name("decode_fill", tests, NULL, NULL);
}
