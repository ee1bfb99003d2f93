/* The table of submissions, and the prefix hints. */
#include "support.h"

#include "server/workers/prefix_hints.h"
#include "server/workers/submissions.h"

/* ---- Generations ------------------------------------------------------------------------------------------------- */

static void add(um_submissions *t, uint64_t rid, uint16_t worker) {
    um_submission g = {.rid = rid, .worker = worker, .n = 1, .tokens = (int64_t)rid};
    um_submissions_add(t, &g);
}

static void finds_what_was_added_and_nothing_else(void **state) {
    (void)state;
    um_submissions t = {0};
    um_submission g;
    assert_null(um_submissions_find(&t, 1));
    assert_false(um_submissions_take(&t, 1, &g));
    add(&t, 7, 3);
    assert_int_equal(um_submissions_find(&t, 7)->worker, 3);
    assert_null(um_submissions_find(&t, 8));
    assert_null(um_submissions_find(&t, 0));
    assert_true(um_submissions_take(&t, 7, &g));
    assert_int_equal(g.tokens, 7);
    assert_null(um_submissions_find(&t, 7));
    assert_int_equal(t.n, 0);
    um_submissions_free(&t);
}

/* Compares the table with an array of flags. */
static void agrees_with_a_plain_array(void **state) {
    (void)state;
    enum { N = 2000 };
    static bool in[N];
    uint64_t key = test_seed();
    um_submissions t = {0};
    int32_t n = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t rid = 1 + um_rng_u64(key, 2 * i) % (N - 1);
        um_submission g;
        if (!in[rid]) {
            add(&t, rid, (uint16_t)(rid % 3));
            n++;
        } else {
            assert_true(um_submissions_take(&t, rid, &g));
            assert_int_equal(g.rid, rid);
            n--;
        }
        in[rid] = !in[rid];
        uint64_t other = 1 + um_rng_u64(key, 2 * i + 1) % (N - 1);
        assert_int_equal(um_submissions_find(&t, other) != NULL, in[other]);
        assert_int_equal(t.n, n);
    }
    um_submissions_free(&t);
}

static void lists_those_of_a_worker_in_order(void **state) {
    (void)state;
    um_submissions t = {0};
    size_t n;
    for (uint64_t rid = 300; rid > 0; rid--) add(&t, rid, (uint16_t)(rid % 3));
    uint64_t *rid = um_submissions_list(&t, 1, &n);
    assert_int_equal(n, 100);
    for (size_t i = 0; i < n; i++) assert_int_equal(rid[i], 3 * i + 1);
    um_free(rid);
    rid = um_submissions_list(&t, -1, &n);
    assert_int_equal(n, 300);
    um_free(rid);
    um_submissions_free(&t);
}

/* ---- Recent prompts ---------------------------------------------------------------------------------------------- */

enum { PAGE = 4, PROMPT = 18 }; /* four whole pages and a rest */

static int32_t prompt[PROMPT];

static um_msg_generate request(uint64_t salt, const char *adapter) {
    for (int32_t i = 0; i < PROMPT; i++) prompt[i] = 100 + i;
    return (um_msg_generate){.ids = prompt, .n_ids = PROMPT, .cache_salt = salt, .adapter = um_str_of(adapter)};
}

static size_t match(const um_prefix_hints *r, const um_msg_generate *g) {
    uint64_t hash[PROMPT / PAGE];
    um_prefix_hints_hash(1, g, PAGE, hash);
    return um_prefix_hints_match(r, hash, UM_LEN(hash));
}

static void remembers_beginnings_with_their_salt_and_adapter(void **state) {
    (void)state;
    um_prefix_hints *r = um_prefix_hints_new();
    um_msg_generate g = request(0, "");
    uint64_t hash[PROMPT / PAGE];
    um_prefix_hints_hash(1, &g, PAGE, hash);
    assert_int_equal(match(r, &g), 0);
    um_prefix_hints_add(r, hash, UM_LEN(hash));
    assert_int_equal(match(r, &g), 4);
    prompt[PROMPT - 1] = 1; /* after the last whole page */
    assert_int_equal(match(r, &g), 4);
    prompt[9] = 1; /* in the third */
    assert_int_equal(match(r, &g), 2);
    g = request(5, "");
    assert_int_equal(match(r, &g), 0);
    g = request(0, "poet");
    assert_int_equal(match(r, &g), 0);
    g = request(0, "");
    um_prefix_hints_clear(r);
    assert_int_equal(match(r, &g), 0);
    um_prefix_hints_free(r);
}

/* After many long prompts, the size is bounded and the latest prompts are remembered. */
static void drops_the_oldest_and_their_ends_first(void **state) {
    (void)state;
    enum { LONG = 64 };
    um_prefix_hints *r = um_prefix_hints_new();
    uint64_t hash[LONG], key = test_seed();
    for (uint64_t p = 0; p < 4 * UM_PREFIX_HINTS_MAX / LONG; p++) {
        for (uint64_t i = 0; i < LONG; i++) hash[i] = um_rng_u64(key, p * LONG + i);
        um_prefix_hints_add(r, hash, LONG);
        assert_true(um_prefix_hints_match(r, hash, LONG) > LONG / 2);
    }
    for (uint64_t i = 0; i < LONG; i++) hash[i] = um_rng_u64(key, i);
    assert_true(um_prefix_hints_match(r, hash, LONG) < LONG / 2);
    um_prefix_hints_free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_was_added_and_nothing_else),
        cmocka_unit_test(agrees_with_a_plain_array),
        cmocka_unit_test(lists_those_of_a_worker_in_order),
        cmocka_unit_test(remembers_beginnings_with_their_salt_and_adapter),
        cmocka_unit_test(drops_the_oldest_and_their_ends_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
