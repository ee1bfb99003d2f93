/* model: the languages of constraints, shared by requests. */
#include "model/languages.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

static um_model *model;

static int open_model(void **state) {
    (void)state;
    um_config c;
    um_config_init(&c);
    c.model = "models/tiny-block";
    return um_model_open_text(&model, &c, NULL) != UM_OK;
}

static int close_model(void **state) {
    (void)state;
    um_model_close(model);
    return 0;
}

static um_shared_language *get(const um_constraint *c) {
    um_shared_language *l;
    um_err err;
    if (um_model_get_language(model, c, &l, &err)) fail_msg("%s", err.msg);
    return l;
}

static bool accepts(const um_shared_language *l, um_str text) {
    const int32_t state = um_language_step(l->language, um_language_start(l->language), text);
    return state != UM_DEAD && um_language_accepts(l->language, state);
}

/* ---- Sections ---------------------------------------------------------------------------------------------------- */

static bool is_answer(const char *s) { return s[0] == 'a' && s[strspn(s, "a")] == '\0'; }

/* The text behind the first end marker, without up to four white spaces, is the answer. */
static bool ends_section(const char *s) {
    const char *end = strstr(s, "<//>");
    if (!end) return false;
    end += 4;
    for (int i = 0; i < 4 && *end == ' '; i++) end++;
    return is_answer(end);
}

static void compare_texts(const char *begin) {
    enum { LONGEST = 9 };
    static const char letters[] = "</>a ";
    const um_constraint c = {.kind = UM_CONSTRAINT_REGEX, .text = "a+", .begin = begin, .end = "<//>", .depth = 8};
    um_shared_language *l = get(&c);
    char text[LONGEST + 1] = "";
    int32_t n_accepted = 0;
    for (int32_t k = 0; k < 1953125; k += 3) {
        int32_t n = 0;
        for (int32_t left = k; left && n < LONGEST; left /= 5) text[n++] = letters[left % 5];
        text[n] = '\0';
        const bool expected =
            begin ? is_answer(text) || (text[0] == *begin && ends_section(text + 1)) : ends_section(text);
        if (accepts(l, um_str_of(text)) != expected) fail_msg("\"%s\": expected %d", text, expected);
        n_accepted += expected;
    }
    assert_true(n_accepted > 10);
    um_model_release_language(model, l);
}

static void a_section_ends_with_the_first_marker(void **state) {
    (void)state;
    compare_texts(NULL);
    compare_texts(">");
}

/* ---- Special tokens ---------------------------------------------------------------------------------------------- */

enum { IM_START = 1013 };

static int32_t step_token(const um_shared_language *l, int32_t state, int32_t id) {
    const um_str bytes = um_language_token(l->language, id);
    return bytes.n ? um_language_step(l->language, state, bytes) : UM_DEAD;
}

static bool is_move(const um_shared_language *l, int32_t state, int32_t id) {
    const um_moves *m = um_language_moves(l->language, state);
    for (int32_t i = 0; i < m->n; i++) {
        const um_tokens *t = &m->move[i].tokens;
        if (t->bits && t->bits[id / 32] >> id % 32 & 1) return true;
        for (int32_t k = 0; t->id && k < t->n; k++)
            if (t->id[k] == id) return true;
    }
    return false;
}

static void a_special_token_ends_a_section(void **state) {
    (void)state;
    const um_constraint c = {.kind = UM_CONSTRAINT_REGEX, .text = "a+", .end = "<|im_start|>", .depth = 8};
    um_shared_language *l = get(&c);
    const int32_t start = um_language_start(l->language);
    assert_false(accepts(l, UM_STR("<|im_start|>aa"))); /* a text that spells it is no end */
    assert_int_equal(um_language_rest(l->language, start), 2);
    assert_true(is_move(l, start, IM_START));
    int32_t at = um_language_step(l->language, start, UM_STR("so <|im_start|> "));
    at = step_token(l, at, IM_START);
    at = um_language_step(l->language, at, UM_STR(" a"));
    assert_true(at && um_language_accepts(l->language, at));
    assert_int_equal(step_token(l, at, IM_START), UM_DEAD); /* inside of the answer */
    assert_false(is_move(l, at, IM_START));
    um_model_release_language(model, l);
}

static void a_special_token_begins_a_section(void **state) {
    (void)state;
    const um_constraint c = {
        .kind = UM_CONSTRAINT_REGEX, .text = "a+", .begin = "<|im_start|>", .end = "<//>", .depth = 8};
    um_shared_language *l = get(&c);
    const int32_t start = um_language_start(l->language), inside = step_token(l, start, IM_START);
    assert_true(accepts(l, UM_STR("a")));
    assert_false(accepts(l, UM_STR("<|im_start|>b<//>a")));
    const int32_t end = um_language_step(l->language, inside, UM_STR("b<//>a"));
    assert_true(end && um_language_accepts(l->language, end));
    assert_int_equal(step_token(l, inside, IM_START), UM_DEAD);
    um_model_release_language(model, l);
}

static void refuse_marker(const char *begin, const char *end, um_status status, const char *part) {
    const um_constraint c = {.kind = UM_CONSTRAINT_JSON, .begin = begin, .end = end, .depth = 8};
    um_shared_language *l;
    um_err err;
    assert_int_equal(um_model_get_language(model, &c, &l, &err), status);
    if (!strstr(err.msg, part)) fail_msg("\"%s\" lacks \"%s\"", err.msg, part);
}

static void markers_that_can_not_be_used_are_refused(void **state) {
    (void)state;
    um_constraint c = {.kind = UM_CONSTRAINT_JSON, .begin = "<|im_start|>", .end = "</>", .depth = 8};
    refuse_marker(NULL, "<|MASK|>", UM_EINVAL, "<|MASK|>");
    refuse_marker("<|endoftext|>", "</>", UM_EINVAL, "<|endoftext|>");
    um_model_release_language(model, get(&c));
    c.end = "<|im_start|>";
    c.begin = NULL;
    um_model_release_language(model, get(&c));
    refuse_marker("<|im_start|>", "<|im_start|>", UM_ELIMIT, "2 pairs");
    c.end = "</>"; /* no special token */
    um_model_release_language(model, get(&c));
}

/* ---- Sharing ----------------------------------------------------------------------------------------------------- */

static void equal_constraints_share_a_language(void **state) {
    (void)state;
    char text[] = "[0-9]{3}";
    um_constraint c = {.kind = UM_CONSTRAINT_REGEX, .text = text, .depth = 8}, other = c;
    um_shared_language *a = get(&c), *b = get(&c);
    other.depth = 7;
    um_shared_language *d = get(&other);
    assert_ptr_equal(a, b);
    assert_ptr_not_equal(a, d);
    memset(text, 'x', sizeof text - 1); /* the text was copied */
    um_model_release_language(model, b);
    assert_true(accepts(a, UM_STR("123")));
    um_model_release_language(model, a);
    um_model_release_language(model, d);
}

static void a_worn_language_is_replaced(void **state) {
    (void)state;
    /* Each text over a and b has a state of its own until it is long. */
    const um_constraint c = {.kind = UM_CONSTRAINT_REGEX, .text = "[ab]*a[ab]{16}", .depth = 8};
    um_shared_language *a = get(&c);
    char text[64];
    for (uint32_t i = 0; i < 60000 && !um_language_is_worn(a->language); i++) {
        for (int k = 0; k < 20; k++) text[k] = i >> k & 1 ? 'a' : 'b';
        um_language_step(a->language, um_language_start(a->language), (um_str){text, 20});
    }
    assert_true(um_language_is_worn(a->language));
    um_shared_language *b = get(&c);
    assert_ptr_not_equal(a, b);
    um_model_release_language(model, a);
    assert_ptr_equal(get(&c), b);
    um_model_release_language(model, b);
    um_model_release_language(model, b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_section_ends_with_the_first_marker),
        cmocka_unit_test(a_special_token_ends_a_section),
        cmocka_unit_test(a_special_token_begins_a_section),
        cmocka_unit_test(markers_that_can_not_be_used_are_refused),
        cmocka_unit_test(equal_constraints_share_a_language),
        cmocka_unit_test(a_worn_language_is_replaced),
    };
    return cmocka_run_group_tests_name("model_languages", tests, open_model, close_model);
}
