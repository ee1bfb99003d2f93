/* Tests of adapters in the engine: chosen by name for each request, alone or together in a batch, merged or applied. */
#include <math.h>

#include "support.h"
#include "unit/lora_folder.h"

enum { REQUESTS = 6, PROMPT = 9, LONG_PROMPT = 70, ANSWER = 24 };

typedef struct layout {
    const char *model, *within, *leaves, *config;
    const char *strategy; /* NULL: the family's */
    int prompt;           /* tokens; 0: PROMPT */
} layout;

#define CONFIG(modules) "{'peft_type':'LORA','r':4,'lora_alpha':8,'bias':'none','target_modules':[" modules "]}"
#define QKVO            CONFIG("'q_proj','k_proj','v_proj','o_proj'")

static const layout layouts[] = {
    {"llada", "blocks.", "q_proj|k_proj|v_proj|attn_out", CONFIG("'q_proj','k_proj','v_proj','attn_out'"), NULL, 0},
    {"dream", "layers.", "q_proj|k_proj|v_proj|o_proj", QKVO, NULL, 0},
    {"sdar", "layers.", "q_proj|k_proj|v_proj|o_proj", QKVO, NULL, 0},
    {"llada2", "attention.", "query_key_value|dense", CONFIG("'query_key_value','dense'"), NULL, 0},
    {"llada", "blocks.", "q_proj|k_proj|v_proj|attn_out", CONFIG("'q_proj','k_proj','v_proj','attn_out'"), "d2f", 0},
    {"dream", "layers.", "q_proj|k_proj|v_proj|o_proj", QKVO, "d2f", 0},
    /* The prompts are long enough for feed-forward layers to process the rows in groups that end inside requests. */
    {"sdar", "layers.", "gate_proj|up_proj|down_proj", CONFIG("'gate_proj','up_proj','down_proj'"), NULL, LONG_PROMPT},
};

typedef struct pair {
    lora_folder a, b;
    char path[128], list[256];
} pair;

static void make(pair *p, const layout *l) {
    snprintf(p->path, sizeof p->path, "build/data/golden/models/%s", l->model);
    p->a = lora_new(1);
    p->b = lora_new(2);
    p->b.suffix = ".default.weight";
    lora_fit(&p->a, p->path, l->within, l->leaves, 4, 2);
    lora_fit(&p->b, p->path, l->within, l->leaves, 4, 2);
    lora_write(&p->a, l->config);
    lora_write(&p->b, l->config);
    snprintf(p->list, sizeof p->list, "a=%s,b=%s", p->a.dir, p->b.dir);
}

static void done(pair *p) {
    lora_free(&p->a);
    lora_free(&p->b);
}

static void open_with(test_engine *t, const layout *l, const char *lora, bool merge) {
    um_config c;
    char path[128];
    test_config(&c, l->model, path, sizeof path);
    if (l->strategy) snprintf(c.decoding.strategy, sizeof c.decoding.strategy, "%s", l->strategy);
    c.lora = lora;
    c.lora_merge = merge;
    test_open(t, &c);
}

static void add(const test_engine *t, const layout *l, int i, const char *adapter, test_answer *answer) {
    int32_t prompt[LONG_PROMPT], n = l->prompt ? l->prompt : PROMPT;
    um_request r;
    um_err err = {0};
    for (int k = 0; k < n; k++) prompt[k] = (37 * i + 11 * k + 5) % 490;
    um_request_init(t->engine, &r);
    r.ids = prompt;
    r.n_ids = (size_t)(n - i % 3);
    r.adapter = adapter;
    r.sampling.max_tokens = ANSWER;
    r.sampling.ignore_eos = true;
    r.on_event = test_collect;
    r.arg = answer;
    if (um_engine_add(t->engine, &r, NULL, &err)) fail_msg("%s", err.msg);
}

static bool same(const test_answer *x, const test_answer *y) {
    return x->n == y->n && !memcmp(x->token, y->token, (size_t)x->n * sizeof(int32_t));
}

static void check_side_by_side(const layout *l) {
    static const char *const adapter[REQUESTS] = {"a", NULL, "b", "b", "a", NULL};
    static test_answer together[REQUESTS], alone;
    pair p;
    test_engine t, plain;
    make(&p, l);
    open_with(&t, l, p.list, false);
    open_with(&plain, l, NULL, false);
    memset(together, 0, sizeof together);
    for (int i = 0; i < REQUESTS; i++) add(&t, l, i, adapter[i], &together[i]);
    test_drain(t.engine);
    for (int i = 0; i < REQUESTS; i++) {
        const test_engine *e = adapter[i] ? &t : &plain;
        alone = (test_answer){0};
        add(e, l, i, adapter[i], &alone);
        test_drain(e->engine);
        if (!same(&together[i], &alone)) fail_msg("%s: request %d", l->model, i);
    }
    test_close(&t);
    test_close(&plain);
    done(&p);
}

static void each_request_gets_the_answer_of_its_adapter_alone(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(layouts); i++) check_side_by_side(&layouts[i]);
}

/* The keys of a token depend on the adapter, so requests share keys only when they use the same adapter. */
static void stored_beginnings_serve_requests_of_the_same_adapter_alone(void **state) {
    (void)state;
    static const layout l = {"sdar", "layers.", "q_proj|k_proj|v_proj|o_proj", QKVO, NULL, LONG_PROMPT};
    static const char *const adapter[REQUESTS] = {NULL, "a", "b", NULL, "a", "b"};
    static test_answer have, alone;
    pair p;
    make(&p, &l);
    test_engine t;
    open_with(&t, &l, p.list, false);
    for (int i = 0; i < REQUESTS; i++) {
        test_engine fresh;
        um_stats before, after;
        have = alone = (test_answer){0};
        open_with(&fresh, &l, p.list, false);
        add(&fresh, &l, 0, adapter[i], &alone);
        test_drain(fresh.engine);
        test_close(&fresh);
        um_engine_get_stats(t.engine, &before);
        add(&t, &l, 0, adapter[i], &have);
        test_drain(t.engine);
        um_engine_get_stats(t.engine, &after);
        if (!same(&have, &alone)) fail_msg("request %d of adapter %s", i, adapter[i] ? adapter[i] : "none");
        assert_int_equal(after.prefix_hits > before.prefix_hits, i >= 3);
    }
    test_close(&t);
    done(&p);
}

/* An adapter that is unloaded serves its requests to their end, whether they run or wait. Its place, with the same
 * name, then serves another adapter, which finds no keys of the first. */
/* A GPU takes adapters at the start alone. */
static void check_refusal(um_model *m, const char *dir) {
    um_err err = {0};
    assert_int_equal(um_model_load_adapter(m, "late", dir, &err), UM_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "can't load adapters later"));
}

static void a_place_serves_one_adapter_after_the_other(void **state) {
    (void)state;
    static const layout l = {"sdar", "layers.", "q_proj|k_proj|v_proj|o_proj", QKVO, NULL, LONG_PROMPT};
    static test_answer want_a[2], want_b, have[2], other;
    um_err err = {0};
    pair p;
    test_engine t, late;
    um_config c;
    char path[128];
    make(&p, &l);
    open_with(&t, &l, p.list, false);
    for (int i = 0; i < 2; i++) add(&t, &l, i, "a", &want_a[i]);
    add(&t, &l, 0, "b", &want_b);
    test_drain(t.engine);
    test_close(&t);
    test_config(&c, l.model, path, sizeof path);
    c.max_loras = 1;
    c.max_num_reqs = 1;
    test_open(&late, &c);
    if (strncmp(c.device, "cuda", 4) == 0) {
        check_refusal(late.model, p.a.dir);
        test_close(&late);
        done(&p);
        return;
    }
    assert_int_equal(um_model_load_adapter(late.model, "late", p.a.dir, &err), UM_OK);
    for (int i = 0; i < 2; i++) add(&late, &l, i, "late", &have[i]);
    assert_int_equal(um_engine_step(late.engine, &err), UM_OK);
    assert_int_equal(um_model_unload_adapter(late.model, "late", &err), UM_OK);
    assert_int_equal(um_model_load_adapter(late.model, "late", p.b.dir, &err), UM_ELIMIT);
    um_request r;
    um_request_init(late.engine, &r);
    r.ids = (const int32_t[]){1};
    r.n_ids = 1;
    r.adapter = "late";
    assert_int_equal(um_engine_add(late.engine, &r, NULL, &err), UM_EINVAL);
    test_drain(late.engine);
    for (int i = 0; i < 2; i++) assert_true(same(&have[i], &want_a[i]));
    if (um_model_load_adapter(late.model, "late", p.b.dir, &err)) fail_msg("%s", err.msg);
    add(&late, &l, 0, "late", &other);
    test_drain(late.engine);
    assert_true(same(&other, &want_b));
    assert_false(same(&want_a[0], &want_b));
    test_close(&late);
    done(&p);
}

static void check_merged(const layout *l) {
    static test_answer merged, applied, plain;
    char list[128];
    pair p;
    test_engine m, t;
    bool changed = false;
    make(&p, l);
    snprintf(list, sizeof list, "a=%s", p.a.dir);
    open_with(&m, l, list, true);
    open_with(&t, l, p.list, false);
    for (int i = 0; i < 3; i++) {
        merged = applied = plain = (test_answer){0};
        add(&m, l, i, i % 2 ? "a" : NULL, &merged); /* every request of a model with a merged adapter uses it */
        add(&t, l, i, "a", &applied);
        add(&t, l, i, NULL, &plain);
        test_drain(m.engine);
        test_drain(t.engine);
        if (!same(&merged, &applied)) fail_msg("%s: request %d", l->model, i);
        changed |= !same(&applied, &plain);
    }
    assert_true(changed);
    test_close(&m);
    test_close(&t);
    done(&p);
}

static void merged_and_applied_write_the_same_tokens(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(layouts); i++) check_merged(&layouts[i]);
}

static void an_unknown_adapter_is_refused_with_those_that_are_there(void **state) {
    (void)state;
    pair p;
    test_engine t;
    um_request r;
    um_err err = {0};
    make(&p, &layouts[1]);
    open_with(&t, &layouts[1], p.list, false);
    um_request_init(t.engine, &r);
    assert_null(r.adapter);
    r.ids = (const int32_t[]){1, 2, 3};
    r.n_ids = 3;
    r.adapter = "c";
    assert_int_equal(um_engine_add(t.engine, &r, NULL, &err), UM_EINVAL);
    assert_string_equal(err.msg, "adapter \"c\" is not loaded: there are a, b");
    assert_int_equal(um_engine_pending(t.engine), 0);
    test_close(&t);
    done(&p);
}

static void a_step_with_adapters_allocates_nothing(void **state) {
    (void)state;
    static test_answer answer[2];
    pair p;
    test_engine t;
    um_err err = {0};
    make(&p, &layouts[2]);
    open_with(&t, &layouts[2], p.list, false);
    memset(answer, 0, sizeof answer);
    add(&t, &layouts[2], 0, "a", &answer[0]);
    add(&t, &layouts[2], 1, "b", &answer[1]);
    if (um_engine_step(t.engine, &err)) fail_msg("%s", err.msg); /* admits the requests */
    int64_t before = um_alloc_count();
    if (um_engine_step(t.engine, &err)) fail_msg("%s", err.msg);
    assert_int_equal(um_alloc_count(), before);
    test_drain(t.engine);
    test_close(&t);
    done(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_request_gets_the_answer_of_its_adapter_alone),
        cmocka_unit_test(stored_beginnings_serve_requests_of_the_same_adapter_alone),
        cmocka_unit_test(a_place_serves_one_adapter_after_the_other),
        cmocka_unit_test(merged_and_applied_write_the_same_tokens),
        cmocka_unit_test(an_unknown_adapter_is_refused_with_those_that_are_there),
        cmocka_unit_test(a_step_with_adapters_allocates_nothing),
    };
    return cmocka_run_group_tests_name("adapters", tests, NULL, NULL);
}
