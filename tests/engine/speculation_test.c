/* Tests that self_speculation writes the text of autoregressive: greedy and sampled, with penalties, bad words, limits,
 * stop ids and adapters, for every length of a draft. */
#include <math.h>

#include "support.h"
#include "unit/lora_folder.h"

#define MODEL "families/nemotron/models/nemotron_c"

enum { REQUESTS = 40, PROMPT_MAX = 50 };

static uint64_t seed, counter;

static uint32_t draw(uint32_t below) { return (uint32_t)(um_rng_u64(seed, counter++) % below); }
static bool chance(uint32_t one_in) { return draw(one_in) == 0; }

/* A random request. */
typedef struct plan {
    int32_t prompt[PROMPT_MAX], n_prompt, stop_id;
    um_sampling_params sampling;
    um_bias bias;
    float threshold;
    int32_t block;
} plan;

static plan make_plan(const um_engine *e) {
    um_request r;
    plan p = {.n_prompt = 1 + (int32_t)draw(PROMPT_MAX - 1),
              .stop_id = (int32_t)draw(480),
              .bias = {(int32_t)draw(480), chance(2) ? 3 : -INFINITY},
              .threshold = chance(3) ? 0.2F : 0,
              .block = 1 + (int32_t)draw(20)};
    um_request_init(e, &r);
    for (int32_t i = 0; i < p.n_prompt; i++) p.prompt[i] = (int32_t)draw(500);
    p.sampling = r.sampling;
    p.sampling.max_tokens = 1 + (int32_t)draw(60);
    p.sampling.temperature = chance(2) ? 0 : 0.2F + 0.2F * (float)draw(4);
    p.sampling.top_p = chance(3) ? 0.8F : 1;
    p.sampling.top_k = chance(4) ? 20 : 0;
    p.sampling.seed = draw(1000);
    p.sampling.min_tokens = chance(3) ? (int32_t)draw((uint32_t)p.sampling.max_tokens) : 0;
    p.sampling.repetition_penalty = chance(4) ? 1.3F : 1;
    p.sampling.max_repetition_run = chance(4) ? 3 : 0;
    return p;
}

static void add(um_engine *e, const plan *p, const char *strategy, const char *adapter, test_answer *answer) {
    um_request r;
    um_err err = {0};
    um_request_init(e, &r);
    r.ids = p->prompt;
    r.n_ids = (size_t)p->n_prompt;
    r.sampling = p->sampling;
    r.bias = &p->bias;
    r.n_bias = 1;
    r.stop_ids = &p->stop_id;
    r.n_stop_ids = 1;
    r.adapter = adapter;
    r.on_event = test_collect;
    r.arg = answer;
    snprintf(r.decoding.strategy, sizeof r.decoding.strategy, "%s", strategy);
    if (um_streq(strategy, "self_speculation")) {
        r.decoding.draft_threshold = p->threshold;
        r.decoding.block_size = p->block;
    }
    if (um_engine_add(e, &r, NULL, &err)) fail_msg("%s", err.msg);
}

static void check_same(const test_answer *want, const test_answer *have, int i) {
    if (want->n != have->n || want->finish != have->finish ||
        memcmp(want->token, have->token, (size_t)want->n * sizeof(int32_t)))
        fail_msg("request %d: %d tokens (%s), autoregressive writes %d (%s); seed %llu", i, have->n,
                 um_finish_name(have->finish), want->n, um_finish_name(want->finish), (unsigned long long)seed);
    assert_string_equal(want->text, have->text);
}

static void open_model(test_engine *t, const char *lora) {
    char path[128];
    um_config c;
    test_config(&c, MODEL, path, sizeof path);
    c.lora = lora;
    test_open(t, &c);
}

static void writes_the_text_of_autoregressive(void **state) {
    (void)state;
    static test_answer want[REQUESTS], have[REQUESTS];
    test_engine t;
    int64_t passes[2] = {0};
    seed = test_seed();
    memset(want, 0, sizeof want);
    memset(have, 0, sizeof have);
    open_model(&t, NULL);
    for (int i = 0; i < REQUESTS; i++) {
        const plan p = make_plan(t.engine);
        add(t.engine, &p, "autoregressive", NULL, &want[i]);
        add(t.engine, &p, "self_speculation", NULL, &have[i]);
    }
    test_drain(t.engine);
    for (int i = 0; i < REQUESTS; i++) {
        check_same(&want[i], &have[i], i);
        assert_int_equal(
            want[i].nfe,
            UM_MAX(want[i].n + (want[i].finish != UM_FINISH_MAX_TOKENS && want[i].finish != UM_FINISH_REPETITION), 1));
        passes[0] += want[i].nfe;
        passes[1] += have[i].nfe;
    }
    print_message("# %lld passes of autoregressive, %lld of self_speculation\n", (long long)passes[0],
                  (long long)passes[1]);
    test_close(&t);
}

/* A prompt that the model continues as it drafts: a draft of 7 tokens and a verified one cost two passes. */
static void a_right_draft_saves_passes(void **state) {
    (void)state;
    plan p = {.n_prompt = 5, .prompt = {1, 346, 2, 3, 4}, .stop_id = 499, .block = 8};
    test_answer greedy[2] = {0};
    test_engine t;
    um_request r;
    int saved = 0;
    open_model(&t, NULL);
    um_request_init(t.engine, &r);
    p.sampling = r.sampling;
    p.sampling.max_tokens = 40;
    p.sampling.temperature = 0;
    p.sampling.ignore_eos = true;
    for (int i = 0; i < 20; i++) {
        memset(greedy, 0, sizeof greedy);
        p.prompt[1] = 17 * i;
        add(t.engine, &p, "autoregressive", NULL, &greedy[0]);
        add(t.engine, &p, "self_speculation", NULL, &greedy[1]);
        test_drain(t.engine);
        check_same(&greedy[0], &greedy[1], i);
        assert_int_equal(greedy[0].nfe, 40);
        saved += greedy[1].nfe < 30;
    }
    assert_true(saved > 0);
    test_close(&t);
}

/* The adapter changes the drafts and thus the passes, never the text. The same adapter changes that of autoregressive.
 */
static void an_adapter_changes_the_drafts_only(void **state) {
    (void)state;
    enum { N = 12 };
    static test_answer plain[N], drafted[N], changed[N];
    lora_folder f = lora_new(1);
    char list[256];
    test_engine t;
    int other_passes = 0, other_text = 0;
    seed = 11;
    memset(plain, 0, sizeof plain);
    memset(drafted, 0, sizeof drafted);
    memset(changed, 0, sizeof changed);
    lora_fit(&f, "build/data/" MODEL, "layers.", "o_proj", 4, 2);
    lora_write(&f, "{'peft_type':'LORA','r':4,'lora_alpha':8,'bias':'none','target_modules':['o_proj']}");
    snprintf(list, sizeof list, "a=%s", f.dir);
    open_model(&t, list);
    for (int i = 0; i < N; i++) {
        plan p = make_plan(t.engine);
        p.block = 8;
        p.sampling.repetition_penalty = 1;
        add(t.engine, &p, "self_speculation", NULL, &plain[i]);
        add(t.engine, &p, "self_speculation", "a", &drafted[i]);
        add(t.engine, &p, "autoregressive", "a", &changed[i]);
    }
    test_drain(t.engine);
    for (int i = 0; i < N; i++) {
        check_same(&plain[i], &drafted[i], i);
        other_passes += plain[i].nfe != drafted[i].nfe;
        other_text += plain[i].n != changed[i].n ||
                      memcmp(plain[i].token, changed[i].token, (size_t)plain[i].n * sizeof(int32_t)) != 0;
    }
    assert_true(other_passes > 0 && other_text > 0);
    test_close(&t);
    lora_free(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_the_text_of_autoregressive),
        cmocka_unit_test(a_right_draft_saves_passes),
        cmocka_unit_test(an_adapter_changes_the_drafts_only),
    };
    return cmocka_run_group_tests_name("self-speculation", tests, NULL, NULL);
}
