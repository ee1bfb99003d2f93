/* The examples of docs/extending.md: tests their functions one by one, then in an engine. */
#include "decode_script.h"
#include "extending.h"
#include "model_zoo.h"
#include "support.h"

/* ---- The strategy ------------------------------------------------------------------------------------------------ */

static const int32_t prompt[] = {11, 12, 13, 14, 15, 16};
enum { P = 6, B = 4, ANSWER = 11 };

static void set_up_left_to_right(bench *b) {
    set_up(b, &strategy_left_to_right, prompt, P, B, 1);
    b->model = made_up;
    b->sampling.max_tokens = ANSWER;
    b->sampling.ignore_eos = true;
    b->sampling.temperature = 0.8F;
    b->seed = 5;
}

static void strategy_writes_the_leftmost_mask_in_every_pass(void **state) {
    (void)state;
    bench b;
    set_up_left_to_right(&b);
    start(&b);
    for (int32_t i = 0; i < ANSWER; i++) {
        step(&b);
        assert_int_equal(b.token[P + i], b.answer[0].sample);
        assert_int_equal(b.written[P + i], i + 1);
        assert_true(i + 1 == ANSWER || um_req_masked(&b.req, P + i + 1));
    }
    assert_int_equal(b.req.finish, UM_FINISH_MAX_TOKENS);
    assert_int_equal(b.req.nfe, ANSWER);
    end(&b);
}

static void strategy_feeds_what_is_not_stored_up_to_the_end_of_the_block(void **state) {
    (void)state;
    bench b;
    set_up_left_to_right(&b);
    b.model = NULL;
    start(&b);
    static const want table[] = {
        {PREFILL, 0, "11 12 13 14 15 16 M M", "6<6", "", "106 M", "1A", 1, 0},
        {DENOISE, 4, "15 16 106 M", "7<3", "", "106 107", "1A", 1, 0},
        {DENOISE, 4, "15 16 106 107 M M M M", "8<4", "", "106 107 108 M M M", "2A", 1, 0},
        {DENOISE, 8, "108 M M M", "9<1", "", "106 107 108 109 M M", "2A", 1, 0},
    };
    CHECK_PASSES(&b, table);
    end(&b);
}

/* Decodes the prompt without chunks and without preemption. */
static void answer_alone(int32_t *out) {
    bench b;
    set_up_left_to_right(&b);
    start(&b);
    run_to_end(&b);
    assert_int_equal(b.n_partial, 0);
    memcpy(out, b.token, (P + ANSWER) * sizeof *out);
    end(&b);
}

static void strategy_answers_alike_in_chunks_and_after_any_preemption(void **state) {
    (void)state;
    int32_t alone[P + ANSWER];
    answer_alone(alone);
    for (int32_t pass = 0; pass < ANSWER; pass++) {
        bench b;
        set_up_left_to_right(&b);
        b.budget = B;
        start(&b);
        while (b.req.nfe < pass) step(&b);
        take_pages_away(&b);
        run_to_end(&b);
        assert_true(b.n_partial > 0);
        assert_int_equal(b.req.nfe, ANSWER);
        assert_memory_equal(b.token, alone, sizeof alone);
        end(&b);
    }
}

static void strategy_refuses_a_model_that_it_cannot_run(void **state) {
    (void)state;
    bench b;
    um_err err;
    set_up_left_to_right(&b);
    b.traits.see = UM_SEE_FULL;
    assert_int_equal(try_start(&b, &err), UM_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "decoding_strategy: left_to_right"));
}

/* ---- The sampler ------------------------------------------------------------------------------------------------- */

/* Returns the accepted candidates as bits. A block of four has three candidates, with probabilities .9, .5 and .2. */
static uint32_t accepted(int32_t pass, bool forced) {
    const um_answer answer[] = {answer_with(1, .9F), answer_with(2, .5F), answer_with(3, .2F)};
    const um_decoding how = {.accept_threshold = .8F};
    int32_t at[3], id[3];
    um_decision d = {.at = at, .id = id};
    um_sampler_input c = {.answer = answer, .n = 3, .block_len = 4, .how = &how, .total_steps = pass, .forced = forced};
    sampler_annealed.accept(&c, &d);
    uint32_t bits = 0;
    for (int32_t i = 0; i < d.n; i++) bits |= 1U << at[i];
    return bits;
}

static void sampler_lowers_its_threshold_with_each_pass(void **state) {
    (void)state;
    assert_int_equal(accepted(1, false), 1); /* threshold .8 */
    assert_int_equal(accepted(2, false), 1); /* threshold .6 */
    assert_int_equal(accepted(3, false), 3); /* threshold .4 */
    assert_int_equal(accepted(4, false), 3); /* threshold .2, which must be exceeded */
    assert_int_equal(accepted(5, false), 7);
    assert_int_equal(accepted(9, false), 7);
}

static void sampler_takes_the_surest_when_it_is_forced(void **state) {
    (void)state;
    const um_answer answer[] = {answer_with(1, .1F), answer_with(2, .3F), answer_with(3, .2F)};
    const um_decoding how = {.accept_threshold = .8F};
    int32_t at[3], id[3];
    um_decision d = {.at = at, .id = id};
    um_sampler_input c = {.answer = answer, .n = 3, .block_len = 4, .how = &how, .total_steps = 1, .forced = true};
    sampler_annealed.accept(&c, &d);
    assert_int_equal(d.n, 1);
    assert_int_equal(at[0], 1);
    assert_int_equal(id[0], 2);
}

/* ---- The retention rule ------------------------------------------------------------------------------------------ */

static void rule_prefers_keys_by_their_distance(void **state) {
    (void)state;
    float out[8];
    retention_nearest.prior(NULL, 2, (um_range){3, 5}, 8, out);
    static const float left[] = {-3, -2, -1}, right[] = {-1, -2, -3};
    assert_memory_equal(out, left, sizeof left);
    assert_memory_equal(out + 5, right, sizeof right);
}

/* ---- The family -------------------------------------------------------------------------------------------------- */

#define SIZES                                                                                                          \
    "'head_dim':16,'hidden_size':64,'intermediate_size':160,'num_hidden_layers':2,'num_attention_heads':4,"            \
    "'num_key_value_heads':2,'vocab_size':256,'max_position_embeddings':256,'rope_theta':1000000.0,"                   \
    "'rope_scaling':null,'rms_norm_eps':1e-6,'hidden_act':'silu','attention_bias':false,'tie_word_embeddings':false,"  \
    "'mask_token_id':250,'eos_token_id':240"
#define SDAR    "{'architectures':['SDARForCausalLM'],'model_type':'sdar','block_size':4," SIZES "}"
#define LANTERN "{'architectures':['LanternForDiffusionLM'],'model_type':'lantern','denoising_block':4," SIZES "}"

static zoo write_model(const char *config) {
    zoo z = zoo_new(config);
    zoo_write(&z);
    return z;
}

/* The zoo writes the same weights for both models. */
static void family_computes_what_sdar_computes(void **state) {
    (void)state;
    enum { N = 10 };
    zoo a = write_model(SDAR), b = write_model(LANTERN);
    um_model *sdar = zoo_model(&a, "ref"), *lantern = zoo_model(&b, "ref");
    assert_ptr_equal(lantern->arch.family, &family_lantern);
    float *want = zoo_run_one(sdar, N), *got = zoo_run_one(lantern, N);
    assert_memory_equal(got, want, (size_t)(N * sdar->arch.hidden) * sizeof *got);
    um_free(want);
    um_free(got);
    zoo_done(&a, sdar);
    zoo_done(&b, lantern);
}

static void family_names_a_field_that_is_missing(void **state) {
    (void)state;
    um_arch a;
    um_err err;
    json_t *config = json_of("{'architectures':['LanternForDiffusionLM']," SIZES "}");
    assert_int_equal(um_arch_parse(&a, config, "config.json", NULL, &err), UM_EMODEL);
    assert_non_null(strstr(err.msg, "denoising_block"));
    json_decref(config);
}

/* ---- In an engine ------------------------------------------------------------------------------------------------ */

static void add(um_engine *e, const char *strategy, const char *sampler, const int32_t *ids, size_t n,
                test_answer *out) {
    um_request r;
    um_err err;
    um_request_init(e, &r);
    r.ids = ids;
    r.n_ids = n;
    r.on_event = test_collect;
    r.arg = out;
    r.sampling.max_tokens = ANSWER;
    r.sampling.ignore_eos = true;
    snprintf(r.decoding.strategy, sizeof r.decoding.strategy, "%s", strategy);
    snprintf(r.decoding.sampler, sizeof r.decoding.sampler, "%s", sampler);
    *out = (test_answer){0};
    if (um_engine_add(e, &r, NULL, &err)) fail_msg("%s", err.msg);
}

/* Steps until no request is pending. With `preempt`, preempts every running request after every second step. */
static void drain(um_engine *e, bool preempt) {
    for (int n = 0; um_engine_pending(e); n++) {
        assert_int_equal(um_engine_step(e, NULL), UM_OK);
        while (preempt && n % 2 && e->n_running) {
            e->running[0]->in_pass = false;
            um_schedule_preempt(e, e->running[0]);
        }
    }
}

static void same_answer(const test_answer *a, const test_answer *b) {
    assert_true(a->done && b->done);
    assert_int_equal(a->n, ANSWER);
    assert_int_equal(b->n, ANSWER);
    assert_int_equal(a->nfe, b->nfe);
    assert_memory_equal(a->token, b->token, ANSWER * sizeof(int32_t));
}

/* Runs each request alone, then all in one batch that reuses cached pages of the first runs and is preempted. */
static void an_engine_finds_the_rows_and_runs_them_under_any_schedule(void **state) {
    (void)state;
    static const char *const how[][2] = {{"left_to_right", "auto"}, {"multi_bd", "annealed"}};
    zoo z = write_model(LANTERN);
    test_engine t;
    um_config c;
    um_config_init(&c);
    c.model = z.dir;
    c.max_model_len = 64;
    c.max_num_batched_tokens = 64;
    c.page_size = B;
    test_open(&t, &c);
    um_engine *e = t.engine;
    test_answer alone[2], beside[2], again[2];
    for (int i = 0; i < 2; i++) {
        add(e, how[i][0], how[i][1], prompt, P, &alone[i]);
        drain(e, false);
    }
    for (int i = 0; i < 2; i++) {
        add(e, how[i][0], how[i][1], prompt, P, &beside[i]);
        add(e, how[i][0], how[i][1], prompt, P, &again[i]);
    }
    um_stats before, after;
    um_engine_get_stats(e, &before);
    drain(e, true);
    um_engine_get_stats(e, &after);
    assert_true(after.prefix_hits > before.prefix_hits && after.preemptions > 0);
    for (int i = 0; i < 2; i++) {
        same_answer(&alone[i], &beside[i]);
        same_answer(&alone[i], &again[i]);
    }
    assert_int_equal(alone[0].nfe, ANSWER);
    test_close(&t);
    folder_free(z.dir);
}

static void run_sparse(um_engine *e, const char *rule, float ratio, bool preempt, test_answer *out) {
    um_request r;
    um_err err;
    int32_t ids[40];
    for (int32_t i = 0; i < 40; i++) ids[i] = 3 + 7 * i;
    um_request_init(e, &r);
    r.ids = ids;
    r.n_ids = 40;
    r.on_event = test_collect;
    r.arg = out;
    r.sampling.max_tokens = ANSWER;
    r.sampling.ignore_eos = true;
    r.decoding.block_size = 4;
    r.decoding.retention_ratio = ratio;
    snprintf(r.decoding.strategy, sizeof r.decoding.strategy, "sparse");
    snprintf(r.decoding.retention, sizeof r.decoding.retention, "%s", rule);
    if (um_engine_add(e, &r, NULL, &err)) fail_msg("%s", err.msg);
    drain(e, preempt);
}

static void a_request_may_name_the_rule(void **state) {
    (void)state;
    char path[128];
    um_config c;
    test_engine t;
    test_config(&c, "llada", path, sizeof path);
    /* The two rules store kept rows in different orders, so sums round differently. The reference backend rounds alike
     * on every machine. */
    strcpy(c.device, "ref");
    test_open(&t, &c);
    um_engine *e = t.engine;
    test_answer by_attention = {0}, by_distance = {0}, preempted = {0}, all[2] = {0};
    run_sparse(e, "attention", 0.2F, false, &by_attention);
    run_sparse(e, "nearest", 0.2F, false, &by_distance);
    run_sparse(e, "nearest", 0.2F, true, &preempted);
    same_answer(&by_distance, &preempted);
    assert_true(memcmp(by_attention.token, by_distance.token, ANSWER * sizeof(int32_t)) != 0);
    run_sparse(e, "attention", 1, false, &all[0]);
    run_sparse(e, "nearest", 1, false, &all[1]);
    same_answer(&all[0], &all[1]); /* with a ratio of 1 all keys are kept, so the rule does not matter */
    test_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strategy_writes_the_leftmost_mask_in_every_pass),
        cmocka_unit_test(strategy_feeds_what_is_not_stored_up_to_the_end_of_the_block),
        cmocka_unit_test(strategy_answers_alike_in_chunks_and_after_any_preemption),
        cmocka_unit_test(strategy_refuses_a_model_that_it_cannot_run),
        cmocka_unit_test(sampler_lowers_its_threshold_with_each_pass),
        cmocka_unit_test(sampler_takes_the_surest_when_it_is_forced),
        cmocka_unit_test(rule_prefers_keys_by_their_distance),
        cmocka_unit_test(family_computes_what_sdar_computes),
        cmocka_unit_test(family_names_a_field_that_is_missing),
        cmocka_unit_test(an_engine_finds_the_rows_and_runs_them_under_any_schedule),
        cmocka_unit_test(a_request_may_name_the_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
