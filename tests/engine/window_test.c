/* Tests of layers with a window: their pages are given back behind it, and an answer does not depend on where its
 * prompt was cut. The model is DiffusionGemma, with a window of 8 and canvases of 8 tokens. */
#include "support.h"

enum { PROMPT = 120, ANSWER = 64, PAGE = 4, WINDOW = 8, CANVAS = 8 };

static void run(int32_t budget, bool caches, int n, test_answer *a, um_engine **e, test_engine *t) {
    char path[128];
    um_config c;
    um_err err;
    int32_t ids[PROMPT];
    test_config(&c, "families/diffusion_gemma/models/dgemma_a", path, sizeof path);
    snprintf(c.dtype, sizeof c.dtype, "float32");
    c.page_size = PAGE;
    c.max_num_reqs = 2;
    c.max_num_batched_tokens = budget;
    c.disable_prefix_caching = !caches;
    test_open(t, &c);
    for (int32_t i = 0; i < PROMPT; i++) ids[i] = 200 + i;
    for (int i = 0; i < n; i++) {
        um_request r;
        um_request_init(t->engine, &r);
        r.ids = ids;
        r.n_ids = PROMPT;
        r.sampling.max_tokens = ANSWER;
        r.sampling.seed = 7;
        r.sampling.ignore_eos = true;
        r.decoding.canvas_steps = 3;
        r.on_event = test_collect;
        r.arg = &a[i];
        if (um_engine_add(t->engine, &r, NULL, &err)) fail_msg("%s", err.msg);
        test_drain(t->engine);
    }
    *e = t->engine;
}

static void pages_behind_the_window_are_given_back(void **state) {
    (void)state;
    test_answer whole = {0}, chunks = {0};
    test_engine t;
    um_engine *e;
    run(512, false, 1, &whole, &e, &t);
    assert_int_equal(whole.n, ANSWER);
    test_close(&t);
    run(16, false, 1, &chunks, &e, &t);
    assert_int_equal(chunks.n, ANSWER);
    assert_memory_equal(chunks.token, whole.token, ANSWER * sizeof(int32_t));
    /* A pass needs its own tokens, the window before them, and a page at both ends. */
    assert_in_range(e->near.used_max, 1, (16 + CANVAS + WINDOW) / PAGE + 2);
    assert_in_range(e->pages.used_max, (PROMPT + ANSWER) / PAGE, (PROMPT + ANSWER) / PAGE);
    assert_int_equal(um_pages_used(&e->near), 0);
    test_close(&t);
}

/* The second request finds the keys of both kinds of layers. */
static void prefixes_are_found_in_both_kinds_of_layers(void **state) {
    (void)state;
    test_answer a[2] = {0};
    test_engine t;
    um_engine *e;
    um_stats s;
    run(512, true, 2, a, &e, &t);
    um_engine_get_stats(e, &s);
    assert_int_equal(s.prefix_hits, PROMPT);
    assert_int_equal(a[0].n, a[1].n);
    assert_memory_equal(a[0].token, a[1].token, ANSWER * sizeof(int32_t));
    test_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_behind_the_window_are_given_back),
        cmocka_unit_test(prefixes_are_found_in_both_kinds_of_layers),
    };
    return cmocka_run_group_tests_name("windows", tests, NULL, NULL);
}
