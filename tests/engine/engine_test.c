/* Tests of the engine's public functions: refusals with the numbers that do not fit, limits, stops, streams and aborts.
 * A step must allocate nothing. */
#include "support.h"

static test_engine sdar;
static char sdar_path[128];

static int open_sdar(void **state) {
    (void)state;
    um_config c;
    test_config(&c, "sdar", sdar_path, sizeof(sdar_path));
    c.max_num_reqs = 4;
    c.num_pages = 40;
    test_open(&sdar, &c);
    return 0;
}

static int close_sdar(void **state) {
    (void)state;
    test_close(&sdar);
    return 0;
}

static const int32_t prompt[] = {231, 443, 286, 438, 473};

static um_request request(test_answer *a) {
    um_request r;
    um_request_init(sdar.engine, &r);
    r.ids = prompt;
    r.n_ids = UM_LEN(prompt);
    r.sampling.max_tokens = 24;
    r.decoding.buffer_size = 2;
    r.events = UM_EVENT_TEXT;
    r.on_event = test_collect;
    r.arg = a;
    return r;
}

static void run(const um_request *r) {
    um_err err = {0};
    if (um_engine_add(sdar.engine, r, NULL, &err)) fail_msg("%s", err.msg);
    test_drain(sdar.engine);
}

static void check_refused(const um_request *r, um_status code, const char *part) {
    um_err err = {0};
    assert_int_equal(um_engine_add(sdar.engine, r, NULL, &err), code);
    if (!strstr(err.msg, part)) fail_msg("expected \"%s\" in: %s", part, err.msg);
    assert_int_equal(um_engine_pending(sdar.engine), 0);
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static void refuses_an_empty_prompt(void **state) {
    (void)state;
    um_request r = request(NULL);
    r.n_ids = 0;
    check_refused(&r, UM_EINVAL, "empty");
}

static void refuses_structs_that_were_not_initialised(void **state) {
    (void)state;
    um_request r = request(NULL);
    um_config c = {.size = 8};
    um_engine *e = NULL;
    um_err err = {0};
    r.size--;
    check_refused(&r, UM_EINVAL, "um_request_init");
    assert_int_equal(um_engine_new(&e, sdar.model, &c, &err), UM_EINVAL);
    assert_non_null(strstr(err.msg, "um_config_init"));
}

static void refuses_more_than_one_prompt(void **state) {
    (void)state;
    um_request r = request(NULL);
    r.text = "t1 t2";
    r.text_len = 5;
    check_refused(&r, UM_EINVAL, "exactly one");
    um_chat_request chat;
    um_chat_init(&chat);
    r.text = NULL;
    r.chat = &chat;
    check_refused(&r, UM_EINVAL, "exactly one");
    r.ids = NULL;
    check_refused(&r, UM_ETEMPLATE, "no chat template");
}

static void refuses_text_that_is_not_utf8(void **state) {
    (void)state;
    um_request r = request(NULL);
    r.ids = NULL;
    r.text = "t1 \xff";
    r.text_len = 4;
    check_refused(&r, UM_EINVAL, "3");
}

static void refuses_a_prompt_that_is_too_long(void **state) {
    (void)state;
    static int32_t ids[256];
    um_request r = request(NULL);
    r.ids = ids;
    r.n_ids = 256;
    check_refused(&r, UM_ELIMIT, "max_model_len is 256");
}

static void refuses_ids_outside_the_vocabulary(void **state) {
    (void)state;
    static const int32_t ids[] = {1, 512};
    um_request r = request(NULL);
    r.ids = ids;
    r.n_ids = 2;
    check_refused(&r, UM_ERANGE, "512");
}

static void refuses_parameters_out_of_range(void **state) {
    (void)state;
    um_request r = request(NULL);
    r.decoding.accept_threshold = 1.5F;
    check_refused(&r, UM_ERANGE, "accept_threshold");
    r = request(NULL);
    r.sampling.max_tokens = -1;
    check_refused(&r, UM_ERANGE, "max_tokens");
    r = request(NULL);
    r.sampling.temperature = -1;
    check_refused(&r, UM_ERANGE, "temperature");
    r = request(NULL);
    r.sampling.temperature = 2.5F;
    check_refused(&r, UM_ERANGE, "2.5 is outside 0..2");
    r = request(NULL);
    snprintf(r.decoding.strategy, sizeof(r.decoding.strategy), "nonsense");
    check_refused(&r, UM_EINVAL, "multi_bd");
    r = request(NULL);
    snprintf(r.decoding.strategy, sizeof(r.decoding.strategy), "full");
    check_refused(&r, UM_EUNSUPPORTED, "multi_bd");
}

/* Prompt and answer together have 29 tokens, which need 8 blocks of 4. */
static void refuses_what_no_page_pool_could_hold(void **state) {
    (void)state;
    for (int32_t pages = 3; pages <= 4; pages++) {
        um_config c;
        um_err err = {0};
        test_engine t;
        test_answer a = {0};
        char path[128];
        test_config(&c, "sdar", path, sizeof(path));
        c.num_pages = pages;
        c.page_size = 8;
        test_open(&t, &c);
        um_request r = request(&a);
        r.decoding.block_size = 4;
        um_status st = um_engine_add(t.engine, &r, NULL, &err);
        test_drain(t.engine);
        assert_int_equal(st, pages < 4 ? UM_ELIMIT : UM_OK);
        assert_int_equal(a.done, pages == 4);
        if (st)
            assert_string_equal(err.msg,
                                "the request needs 4 KV pages (32 tokens in pages of 8), but there are 3; raise "
                                "num_pages or lower max_tokens");
        test_close(&t);
    }
}

/* The system counts mapped weights as free. With the default share, pages must not push them out of memory. */
static void automatic_pages_leave_room_for_mapped_weights(void **state) {
    (void)state;
    um_config c;
    um_err err;
    um_memory_plan copied, mapped;
    test_engine t;
    char path[128];
    test_config(&c, "sdar", path, sizeof(path));
    c.num_pages = -1;
    test_open(&t, &c);
    assert_int_equal(t.model->mapped_bytes, 0);
    assert_int_equal(um_engine_plan_memory(t.model, &c, &copied, &err), UM_OK);
    assert_true(copied.pages > copied.pages_of_request);
    t.model->mapped_bytes = (size_t)1 << 50;
    assert_int_equal(um_engine_plan_memory(t.model, &c, &mapped, &err), UM_OK);
    assert_int_equal(mapped.pages, mapped.pages_of_request);
    test_close(&t);
}

/* All weights of a model larger than memory are still to be loaded. */
static void the_plan_of_an_unloaded_model_leaves_room_for_its_weights(void **state) {
    (void)state;
    um_config c;
    um_err err;
    um_memory_plan plan;
    test_engine t;
    char path[128];
    test_config(&c, "sdar", path, sizeof(path));
    test_open(&t, &c);
    c.num_pages = -1;
    t.model->weight_bytes = 0;
    t.model->adapter_bytes = (size_t)1 << 50;
    assert_int_equal(um_engine_plan_memory(t.model, &c, &plan, &err), UM_OK);
    assert_int_equal(plan.pages, plan.pages_of_request);
    test_close(&t);
}

static void refuses_an_unknown_name_with_the_nearest(void **state) {
    (void)state;
    um_request r = request(NULL);
    um_err err = {0};
    assert_int_equal(um_request_set(&r, "acept_threshold", "0.5", &err), UM_EINVAL);
    assert_non_null(strstr(err.msg, "accept"));
    assert_int_equal(um_request_set(&r, "accept_threshold", "0.5", &err), UM_OK);
    assert_true(r.decoding.accept_threshold == 0.5F);
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

static void max_tokens_is_exact(void **state) {
    (void)state;
    for (int32_t n = 1; n < 30; n += 7) {
        test_answer a = {0};
        um_request r = request(&a);
        r.sampling.max_tokens = n;
        r.sampling.ignore_eos = true;
        run(&r);
        assert_int_equal(a.n, n);
        assert_int_equal(a.finish, UM_FINISH_MAX_TOKENS);
        for (int32_t i = 0; i < n; i++) assert_true(a.token[i] >= 0 && a.token[i] < 512 && a.token[i] != 500);
    }
}

static void the_model_length_ends_an_answer(void **state) {
    (void)state;
    static int32_t ids[250];
    test_answer a = {0};
    um_request r = request(&a);
    r.ids = ids;
    r.n_ids = 250;
    r.sampling.ignore_eos = true;
    run(&r);
    assert_int_equal(a.n, 6);
    assert_int_equal(a.finish, UM_FINISH_MAX_LEN);
}

static void a_mask_id_in_the_prompt_is_ordinary_text(void **state) {
    (void)state;
    static const int32_t ids[] = {500, 12, 500, 500, 7, 500};
    test_answer a = {0};
    um_request r = request(&a);
    r.ids = ids;
    r.n_ids = UM_LEN(ids);
    r.sampling.ignore_eos = true;
    run(&r);
    assert_int_equal(a.n, 24);
}

static void the_stream_joined_is_the_answer(void **state) {
    (void)state;
    test_answer a = {0};
    um_request r = request(&a);
    run(&r);
    assert_string_equal(a.text, a.streamed);
    assert_true(strlen(a.text) > 0);
}

static void a_stop_string_cuts_the_text_exactly(void **state) {
    (void)state;
    test_answer whole = {0};
    um_request r = request(&whole);
    run(&r);
    /* A stop string ends the text just before its first occurrence, also when it spans several tokens. */
    size_t len = strlen(whole.text);
    for (size_t from = 0; from + 5 < len; from += 3) {
        char stop[6];
        memcpy(stop, whole.text + from, 5);
        stop[5] = '\0';
        const char *list[] = {"never", stop};
        test_answer a = {0};
        r = request(&a);
        r.stop = list;
        r.n_stop = 2;
        run(&r);
        size_t want = (size_t)(strstr(whole.text, stop) - whole.text);
        assert_int_equal(a.finish, UM_FINISH_STOP);
        assert_int_equal(strlen(a.text), want);
        assert_memory_equal(a.text, whole.text, want);
        assert_string_equal(a.text, a.streamed);
    }
}

static void an_unset_seed_is_drawn_and_repeats_the_answer(void **state) {
    (void)state;
    test_answer a = {0}, b = {0};
    um_request r = request(&a);
    r.sampling.temperature = 1;
    run(&r);
    assert_true(a.seed >= 0);
    r.arg = &b;
    r.sampling.seed = a.seed;
    run(&r);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.token, b.token, (size_t)a.n * sizeof(int32_t));
}

/* ---- Snapshots --------------------------------------------------------------------------------------------------- */

typedef struct history {
    test_answer answer;
    int32_t passes;
    size_t settled;
    char wrong[64];
} history;

static void watch(void *arg, const um_event *ev) {
    history *f = (history *)arg;
    if (ev->type == UM_EVENT_FINISH) test_collect(&f->answer, ev);
    if (ev->type != UM_EVENT_SNAPSHOT) return;
    const um_snapshot *s = ev->snapshot;
    f->passes++;
    if (s->nfe != f->passes) snprintf(f->wrong, sizeof(f->wrong), "pass %d has nfe %d", f->passes, s->nfe);
    for (size_t i = 0; i < f->settled && i < s->n; i++)
        if (s->state[i] == UM_TOKEN_MASK) snprintf(f->wrong, sizeof(f->wrong), "position %zu became a mask", i);
    for (size_t i = 0; i < s->n && s->state[i] != UM_TOKEN_MASK; i++) f->settled = UM_MAX(f->settled, i + 1);
}

static void a_settled_token_never_changes_back(void **state) {
    (void)state;
    history f = {0};
    um_request r = request(NULL);
    r.events = UM_EVENT_SNAPSHOT;
    r.on_event = watch;
    r.arg = &f;
    run(&r);
    assert_string_equal(f.wrong, "");
    assert_int_equal(f.passes, f.answer.nfe);
}

/* ---- Aborting and closing ---------------------------------------------------------------------------------------- */

static void abort_frees_everything_at_once(void **state) {
    (void)state;
    static test_answer a[6];
    int64_t id[6];
    um_stats s;
    memset(a, 0, sizeof(a));
    for (int i = 0; i < 6; i++) { /* four run, two wait */
        um_request r = request(&a[i]);
        assert_int_equal(um_engine_add(sdar.engine, &r, &id[i], NULL), UM_OK);
    }
    for (int i = 0; i < 2; i++) assert_int_equal(um_engine_step(sdar.engine, NULL), UM_OK);
    for (int i = 5; i >= 0; i--) assert_int_equal(um_engine_abort(sdar.engine, id[i], NULL), UM_OK);
    um_engine_get_stats(sdar.engine, &s);
    assert_int_equal(s.pages_used, 0);
    assert_int_equal(um_engine_pending(sdar.engine), 0);
    for (int i = 0; i < 6; i++) assert_true(a[i].done && a[i].finish == UM_FINISH_ABORTED);
    assert_int_equal(um_engine_abort(sdar.engine, id[0], NULL), UM_ENOENT);
}

static void abort_self(void *arg, const um_event *ev) {
    if (ev->type == UM_EVENT_TEXT) assert_int_equal(um_engine_abort(sdar.engine, ev->id, NULL), UM_OK);
    test_collect(arg, ev);
}

static void a_callback_may_abort_its_request(void **state) {
    (void)state;
    test_answer a = {0};
    um_request r = request(&a);
    r.on_event = abort_self;
    run(&r);
    assert_true(a.done);
    assert_int_equal(a.finish, UM_FINISH_ABORTED);
    assert_string_equal(a.text, a.streamed);
}

static void an_aborted_answer_is_what_was_streamed(void **state) {
    (void)state;
    test_answer whole = {0};
    um_request r = request(&whole);
    char stop[64];
    int n_differing = 0;
    run(&r);
    snprintf(stop, sizeof(stop), "%.20s never", whole.text + 1); /* a long part of the text could be its beginning */
    const char *list[] = {stop};
    for (int steps = 0; steps < whole.nfe; steps++) {
        test_answer a = {0};
        int64_t id = 0;
        r = request(&a);
        r.stop = list;
        r.n_stop = 1;
        assert_int_equal(um_engine_add(sdar.engine, &r, &id, NULL), UM_OK);
        for (int i = 0; i < steps; i++) assert_int_equal(um_engine_step(sdar.engine, NULL), UM_OK);
        um_slot slot;
        assert_int_equal(um_engine_slots(sdar.engine, &slot, 1), 1);
        assert_int_equal(um_engine_abort(sdar.engine, id, NULL), UM_OK);
        assert_string_equal(a.text, a.streamed);
        assert_int_equal(a.n, a.n_streamed);
        n_differing += slot.answer_tokens > a.n;
    }
    assert_true(n_differing > 0); /* in at least one abort, tokens were settled but held back */
}

static void step_inside(void *arg, const um_event *ev) {
    (void)ev;
    *(um_status *)arg = um_engine_step(sdar.engine, NULL);
}

static void a_callback_must_not_step(void **state) {
    (void)state;
    um_status st = UM_OK;
    um_request r = request(NULL);
    r.events = 0;
    r.on_event = step_inside;
    r.arg = &st;
    run(&r);
    assert_int_equal(st, UM_EINVAL);
}

typedef struct nested {
    um_status status;
    um_err err;
    int32_t n_events;
} nested;

static void generate_in_callback(void *arg, const um_event *ev) {
    nested *n = arg;
    um_request r = request(NULL);
    char *text = NULL;
    (void)ev;
    r.on_event = NULL;
    if (n->n_events++ == 0) n->status = um_generate(sdar.engine, &r, &text, &n->err);
}

static void generate_in_a_callback_leaves_no_request_behind(void **state) {
    (void)state;
    nested n = {.status = UM_OK};
    um_request r = request(NULL);
    r.on_event = generate_in_callback;
    r.arg = &n;
    assert_int_equal(um_engine_add(sdar.engine, &r, NULL, NULL), UM_OK);
    while (n.n_events == 0) assert_int_equal(um_engine_step(sdar.engine, NULL), UM_OK);
    assert_int_equal(n.status, UM_EINVAL);
    assert_int_equal(um_engine_pending(sdar.engine), 1);
    test_drain(sdar.engine);
}

static void generate_returns_one_answer_only(void **state) {
    (void)state;
    um_err err = {0};
    char *text = NULL;
    um_request r = request(NULL);
    r.n = 2;
    assert_int_equal(um_generate(sdar.engine, &r, &text, &err), UM_EINVAL);
    assert_string_equal(err.param, "n");
    assert_null(text);
    assert_int_equal(um_engine_pending(sdar.engine), 0);
}

static void a_failed_request_leaves_others_alone(void **state) {
    (void)state;
    test_answer a = {0};
    um_request good = request(&a), bad = request(NULL);
    assert_int_equal(um_engine_add(sdar.engine, &good, NULL, NULL), UM_OK);
    assert_int_equal(um_engine_step(sdar.engine, NULL), UM_OK);
    bad.n_ids = 0;
    assert_int_equal(um_engine_add(sdar.engine, &bad, NULL, NULL), UM_EINVAL);
    test_drain(sdar.engine);
    assert_true(a.done);
}

static void a_step_allocates_nothing(void **state) {
    (void)state;
    static test_answer a[4];
    memset(a, 0, sizeof(a));
    for (int i = 0; i < 4; i++) {
        um_request r = request(&a[i]);
        r.events = UM_EVENT_TEXT | UM_EVENT_SNAPSHOT | UM_EVENT_TRACE;
        r.sampling.temperature = i % 2 ? 1 : 0;
        r.sampling.top_p = 0.9F;
        r.decoding.buffer_size = 1 + i;
        assert_int_equal(um_engine_add(sdar.engine, &r, NULL, NULL), UM_OK);
    }
    int64_t before = um_alloc_count();
    test_drain(sdar.engine);
    assert_int_equal(um_alloc_count(), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_an_empty_prompt),
        cmocka_unit_test(refuses_structs_that_were_not_initialised),
        cmocka_unit_test(refuses_more_than_one_prompt),
        cmocka_unit_test(refuses_text_that_is_not_utf8),
        cmocka_unit_test(refuses_a_prompt_that_is_too_long),
        cmocka_unit_test(refuses_ids_outside_the_vocabulary),
        cmocka_unit_test(refuses_parameters_out_of_range),
        cmocka_unit_test(refuses_what_no_page_pool_could_hold),
        cmocka_unit_test(automatic_pages_leave_room_for_mapped_weights),
        cmocka_unit_test(the_plan_of_an_unloaded_model_leaves_room_for_its_weights),
        cmocka_unit_test(refuses_an_unknown_name_with_the_nearest),
        cmocka_unit_test(max_tokens_is_exact),
        cmocka_unit_test(the_model_length_ends_an_answer),
        cmocka_unit_test(a_mask_id_in_the_prompt_is_ordinary_text),
        cmocka_unit_test(the_stream_joined_is_the_answer),
        cmocka_unit_test(a_stop_string_cuts_the_text_exactly),
        cmocka_unit_test(an_unset_seed_is_drawn_and_repeats_the_answer),
        cmocka_unit_test(a_settled_token_never_changes_back),
        cmocka_unit_test(abort_frees_everything_at_once),
        cmocka_unit_test(a_callback_may_abort_its_request),
        cmocka_unit_test(an_aborted_answer_is_what_was_streamed),
        cmocka_unit_test(a_callback_must_not_step),
        cmocka_unit_test(generate_in_a_callback_leaves_no_request_behind),
        cmocka_unit_test(generate_returns_one_answer_only),
        cmocka_unit_test(a_failed_request_leaves_others_alone),
        cmocka_unit_test(a_step_allocates_nothing),
    };
    return cmocka_run_group_tests_name("engine", tests, open_sdar, close_sdar);
}
