/* grammar: languages of random grammars, compared with a matcher and with enumerations. */
#include "random_language.h"

#include <pthread.h>

#include "../support.h"

enum { TRIALS = 400, LONGEST = 7, DEEP = 64 };

/* Calls fn for each text over a, b and c of up to LONGEST bytes. */
static void each_text(void (*fn)(void *arg, um_str text), void *arg) {
    char text[LONGEST];
    for (int32_t n = 0; n <= LONGEST; n++) {
        int32_t count = 1;
        for (int32_t i = 0; i < n; i++) count *= 3;
        for (int32_t k = 0; k < count; k++) {
            for (int32_t i = 0, left = k; i < n; i++, left /= 3) text[i] = (char)('a' + left % 3);
            fn(arg, (um_str){text, (size_t)n});
        }
    }
}

typedef struct pair {
    um_rules rules;
    um_language *l;
    int32_t n_texts;
} pair;

static void compare(void *arg, um_str text) {
    pair *p = (pair *)arg;
    const int32_t state = um_language_step(p->l, um_language_start(p->l), text);
    const bool accepts = state != UM_DEAD && um_language_accepts(p->l, state),
               matches = um_rules_match(&p->rules, text);
    if (accepts != matches) fail_msg("\"%.*s\": accepted %d, matched %d", (int)text.n, text.p, accepts, matches);
    p->n_texts += matches;
}

static void states_accept_the_texts_of_the_rules(void **state) {
    (void)state;
    random_seed = test_seed();
    um_vocabulary *v = new_vocabulary();
    int32_t n_texts = 0;
    for (int32_t i = 0; i < TRIALS; i++) {
        pair p = {0};
        p.l = random_language(&p.rules, v, DEEP);
        each_text(compare, &p);
        n_texts += p.n_texts;
        um_language_free(p.l);
        um_rules_free(&p.rules);
    }
    assert_true(n_texts > TRIALS);
    um_vocabulary_free(v);
}

/* Returns how often the token is in the moves of a state, and the state that it leads to. */
static int32_t count_moves(um_language *l, int32_t state, int32_t id, int32_t *to) {
    const um_moves *m = um_language_moves(l, state);
    int32_t n = 0;
    for (int32_t i = 0; i < m->n; i++) {
        const um_tokens *t = &m->move[i].tokens;
        bool in = t->bits && t->bits[id / 32] >> id % 32 & 1;
        for (int32_t k = 0; k < t->n && t->id; k++) in |= t->id[k] == id;
        n += in;
        if (in) *to = m->move[i].to;
    }
    return n;
}

/* Returns the number of bytes that can follow a state; an end counts as one. */
static int32_t choices(um_language *l, int32_t state) {
    int32_t n = um_language_accepts(l, state);
    for (char c = 'a'; c <= 'c'; c++) n += um_language_step(l, state, (um_str){&c, 1}) != UM_DEAD;
    return n;
}

static void check_state(um_language *l, int32_t state) {
    int32_t n_allowed = 0;
    const int32_t rest = um_language_rest(l, state);
    bool nearer = rest == 0;
    assert_int_equal(rest == 0, um_language_accepts(l, state));
    for (int32_t id = 0; id < END_ID; id++) {
        int32_t to = UM_DEAD;
        const int32_t after = um_language_step(l, state, um_str_of(tokens[id])), n = count_moves(l, state, id, &to);
        assert_true(n <= 1);
        assert_int_equal(n ? after : UM_DEAD, to);
        if (choices(l, state) > 1) assert_int_equal(n, after != UM_DEAD);
        n_allowed += n;
        nearer |= n && um_language_rest(l, to) < rest;
    }
    assert_true(nearer);
    assert_true(n_allowed > 0 || um_language_accepts(l, state));
    int32_t to;
    assert_int_equal(count_moves(l, state, END_ID, &to), 0);
}

static void moves_are_the_tokens_that_the_texts_allow(void **state) {
    (void)state;
    random_seed = test_seed();
    um_vocabulary *v = new_vocabulary();
    for (int32_t i = 0; i < TRIALS; i++) {
        um_rules rules;
        um_language *l = random_language(&rules, v, 1 + draw(4));
        for (int32_t walk = 0; walk < 8; walk++) {
            int32_t at = um_language_start(l);
            for (int32_t k = 0; k < 12; k++) {
                check_state(l, at);
                const um_moves *m = um_language_moves(l, at);
                if (!m->n) break;
                at = m->move[draw(m->n)].to;
            }
        }
        assert_false(um_language_is_full(l));
        um_language_free(l);
        um_rules_free(&rules);
    }
    um_vocabulary_free(v);
}

static um_language *language_of(const char *grammar, um_rules *rules, const um_vocabulary *v, int32_t depth) {
    um_language *l;
    um_err err;
    um_rules_init(rules);
    if (um_rules_from_gbnf(rules, um_str_of(grammar), &err)) fail_msg("%s", err.msg);
    if (um_language_new(&l, rules, v, depth, &err)) fail_msg("%s", err.msg);
    return l;
}

/* Asks for the moves of all states, in turn. */
static void visit_all(um_language *l) {
    for (int32_t s = um_language_start(l); s < um_language_size(l) && !um_language_is_full(l); s++)
        um_language_moves(l, s);
}

/* Walks through texts of a and b, which all lead to states of their own. The text behind the c is not looked at before
 * the memory is used up. */
static void a_full_language_has_no_moves(void **state) {
    (void)state;
    um_rules rules;
    um_vocabulary *v = new_vocabulary();
    um_language *l = language_of("root ::= [ab]* \"a\" [ab]{16} | \"cabcabcabc\"", &rules, v, 1);
    const int32_t forced = um_language_step(l, um_language_start(l), UM_STR("c"));
    for (int32_t text = 0; text < 1 << 17; text++) {
        int32_t at = um_language_start(l);
        for (int32_t k = 0; k < 17 && at != UM_DEAD; k++)
            at = um_language_step(l, at, text >> k & 1 ? UM_STR("a") : UM_STR("b"));
    }
    assert_true(um_language_is_full(l));
    assert_int_equal(um_language_moves(l, forced)->n, 0);
    um_language_free(l);
    um_rules_free(&rules);
    um_vocabulary_free(v);
}

/* The call of x ends its rule, and the call of y does not: the cycle of both must count. */
static void the_depth_bounds_every_cycle(void **state) {
    (void)state;
    um_rules rules;
    um_vocabulary *v = new_vocabulary();
    um_language *l = language_of("root ::= x\nx ::= \"a\" y \"b\"\ny ::= \"c\"? | \"c\" x", &rules, v, 2);
    static const char *const inside[] = {"ab", "acabb"};
    for (size_t i = 0; i < UM_LEN(inside); i++)
        assert_true(um_language_step(l, um_language_start(l), um_str_of(inside[i])) != UM_DEAD);
    assert_int_equal(um_language_step(l, um_language_start(l), UM_STR("acaca")), UM_DEAD);
    visit_all(l);
    assert_false(um_language_is_full(l));
    um_language_free(l);
    um_rules_free(&rules);
    um_vocabulary_free(v);
}

/* ---- Long chains of rules ---------------------------------------------------------------------------------------- */

/* Rules that each call the one before them, between two texts or at their start. */
typedef struct chain {
    um_rules rules;
    um_vocabulary *v;
    um_language *l;
    const char *text;
    um_status status;
} chain;

static void build_chain(chain *c, int32_t n, const char *front) {
    um_err err;
    um_rules_init(&c->rules);
    for (int32_t i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "r%d", i);
        um_rule_add(&c->rules, um_str_of(name));
        const um_expr *part[] = {um_expr_text(&c->rules, um_str_of(front)), i ? um_expr_call(&c->rules, i - 1) : NULL,
                                 um_expr_text(&c->rules, UM_STR("b"))};
        um_rule_set(&c->rules, i, i ? um_expr_join(&c->rules, part, 3) : part[2]);
    }
    c->rules.root = n - 1;
    if (um_rules_check(&c->rules, &err)) fail_msg("%s", err.msg);
}

static void *compile_chain(void *arg) {
    chain *c = (chain *)arg;
    c->status = um_language_new(&c->l, &c->rules, c->v, 8, NULL);
    if (!c->status) um_language_step(c->l, um_language_start(c->l), um_str_of(c->text));
    return NULL;
}

/* A chain of the largest number of rules needs no more of the thread's stack than a short one. */
static void check_chain(const char *front, const char *text, um_vocabulary *v) {
    enum { STACK = 512 << 10 };
    chain c = {.v = v, .text = text};
    pthread_attr_t attr;
    pthread_t thread;
    build_chain(&c, UM_RULES_MAX - 1, front);
    assert_int_equal(pthread_attr_init(&attr) || pthread_attr_setstacksize(&attr, STACK), 0);
    assert_int_equal(pthread_create(&thread, &attr, compile_chain, &c), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attr);
    assert_true(c.status == UM_OK || c.status == UM_ELIMIT);
    if (!c.status) um_language_free(c.l);
    um_rules_free(&c.rules);
}

static void long_chains_of_rules_need_no_stack(void **state) {
    (void)state;
    um_vocabulary *v = new_vocabulary();
    check_chain("a", "aaaa", v);
    check_chain("", "bbbb", v);
    um_vocabulary_free(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_accept_the_texts_of_the_rules),
        cmocka_unit_test(moves_are_the_tokens_that_the_texts_allow),
        cmocka_unit_test(a_full_language_has_no_moves),
        cmocka_unit_test(the_depth_bounds_every_cycle),
        cmocka_unit_test(long_chains_of_rules_need_no_stack),
    };
    return cmocka_run_group_tests_name("grammar_language", tests, NULL, NULL);
}
