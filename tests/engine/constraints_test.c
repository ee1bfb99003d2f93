/* Tests of allowed_ids and bad_words with every strategy: the answer has allowed ids only, and never the tokens of a
 * bad word side by side, in whatever order its positions were written. */
#include <math.h>

#include "support.h"

enum { ANSWERS = 12, TOKENS = 32, ALLOWED = 3 };

typedef struct how {
    const char *model, *strategy, *sampler;
    float remask_threshold;
} how;

#define LLADA22  "families/llada22/models/llada22_a"
#define NEMOTRON "families/nemotron/models/nemotron_c"
#define WEDLM    "families/wedlm/models/wedlm_8b"

static const how hows[] = {{"llada", "full", "low_confidence", NAN},
                           {"llada", "full", "confidence", 0.4F},
                           {"llada", "full", "random", NAN},
                           {"llada", "prefix_cache", "entropy", NAN},
                           {"llada", "dual_cache", "factor", NAN},
                           {"llada", "sparse", "low_confidence", NAN},
                           {"llada", "d2f", "confidence", NAN},
                           {"dream", "full", "origin", NAN},
                           {"dream", "prefix_cache", "confidence", NAN},
                           {"dream", "prefix_cache", "origin", NAN},
                           {"dream", "dual_cache", "confidence", NAN},
                           {"sdar", "multi_bd", "confidence", NAN},
                           {"sdar", "multi_bd", "dynamic", 0.4F},
                           {"llada2", "multi_bd", "edit", NAN},
                           {"llada2", "dmax", "dmax", NAN},
                           {"fast_dllm_v2", "fast_dllm_v2", "confidence", NAN},
                           {LLADA22, "levenshtein", "auto", NAN},
                           {LLADA22, "joint_indel", "auto", NAN},
                           {NEMOTRON, "seeded_bd", "confidence", NAN},
                           {NEMOTRON, "seeded_bd", "low_confidence", 0.4F},
                           {NEMOTRON, "autoregressive", "auto", NAN},
                           {NEMOTRON, "self_speculation", "auto", NAN},
                           {WEDLM, "causal_window", "auto", NAN},
                           {WEDLM, "causal_window", "confidence", NAN}};

/* The words of the tokenizers of these models are t0, t1, …; each is a token. */
static const int32_t allowed[ALLOWED] = {5, 6, 7};
static const char *const single[] = {" t5"};

static void add(um_engine *e, const how *h, const char *const *bad, size_t n_bad, int seed, test_answer *a) {
    um_request r;
    um_err err = {0};
    um_request_init(e, &r);
    *a = (test_answer){0};
    r.text = "t1 t2 t3";
    r.text_len = 8;
    snprintf(r.decoding.strategy, sizeof r.decoding.strategy, "%s", h->strategy);
    snprintf(r.decoding.sampler, sizeof r.decoding.sampler, "%s", h->sampler);
    r.decoding.accept_threshold = 0.3F;
    if (um_streq(h->model, "dream")) r.decoding.block_size = 4;
    r.decoding.remask_threshold = h->remask_threshold;
    test_drop_unread(&r.decoding);
    r.sampling.max_tokens = TOKENS;
    r.sampling.temperature = 2;
    r.sampling.seed = seed;
    r.allowed_ids = allowed;
    r.n_allowed_ids = ALLOWED;
    r.bad_words = bad;
    r.n_bad_words = n_bad;
    r.on_event = test_collect;
    r.arg = a;
    if (um_engine_add(e, &r, NULL, &err)) fail_msg("%s with %s: %s", h->strategy, h->sampler, err.msg);
}

static void run(test_engine *t, const how *h, const char *const *bad, size_t n_bad, test_answer *answer) {
    for (int i = 0; i < ANSWERS; i++) add(t->engine, h, bad, n_bad, i, &answer[i]);
    test_drain(t->engine);
    for (int i = 0; i < ANSWERS; i++) {
        assert_true(answer[i].done);
        assert_int_equal(answer[i].finish, UM_FINISH_MAX_TOKENS);
        assert_int_equal(answer[i].n, TOKENS);
    }
}

/* Counts how often each two ids stand side by side in the answers, which have allowed ids only. */
static void count_pairs(const how *h, const test_answer *answer, int n[ALLOWED][ALLOWED]) {
    memset(n, 0, sizeof(int[ALLOWED][ALLOWED]));
    for (int i = 0; i < ANSWERS; i++) {
        const int32_t *id = answer[i].token;
        for (int32_t k = 0; k < answer[i].n; k++) {
            if (id[k] < allowed[0] || id[k] > allowed[ALLOWED - 1])
                fail_msg("%s with %s: token %d is not allowed", h->strategy, h->sampler, id[k]);
            if (k > 0) n[id[k - 1] - allowed[0]][id[k] - allowed[0]]++;
        }
    }
}

/* Runs answers without bad words, then the same with the pair that they have most often. */
static void check_strategy(const how *h) {
    static test_answer answer[ANSWERS];
    char path[256], word[32];
    const char *bad[] = {word};
    int n[ALLOWED][ALLOWED], most = 0;
    um_config c;
    test_engine t;
    test_config(&c, h->model, path, sizeof path);
    c.threads = 1;
    test_open(&t, &c);
    run(&t, h, NULL, 0, answer);
    count_pairs(h, answer, n);
    for (int i = 1; i < ALLOWED * ALLOWED; i++)
        if (n[i / ALLOWED][i % ALLOWED] > n[most / ALLOWED][most % ALLOWED]) most = i;
    assert_true(n[most / ALLOWED][most % ALLOWED] > ANSWERS);
    snprintf(word, sizeof word, "t%d t%d", allowed[most / ALLOWED], allowed[most % ALLOWED]);
    run(&t, h, bad, 1, answer);
    count_pairs(h, answer, n);
    if (n[most / ALLOWED][most % ALLOWED]) fail_msg("%s with %s: answers have \"%s\"", h->strategy, h->sampler, word);
    test_close(&t);
}

static void answers_have_no_bad_word_and_allowed_ids_only(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(hows); i++) check_strategy(&hows[i]);
}

/* ---- Single tokens, errors --------------------------------------------------------------------------------------- */

static void a_bad_word_of_one_token_is_banned(void **state) {
    (void)state;
    static test_answer a;
    char path[256];
    um_config c;
    test_engine t;
    test_config(&c, "sdar", path, sizeof path);
    test_open(&t, &c);
    add(t.engine, &hows[11], single, 1, 1, &a);
    test_drain(t.engine);
    assert_int_equal(a.n, TOKENS);
    for (int32_t i = 0; i < a.n; i++) assert_int_not_equal(a.token[i], 5);
    test_close(&t);
}

static void refuse(um_engine *e, const um_request *r, um_status status, const char *param) {
    um_err err = {0};
    assert_int_equal(um_engine_add(e, r, NULL, &err), status);
    assert_string_equal(err.param, param);
}

static void wrong_constraints_are_refused_by_name(void **state) {
    (void)state;
    char path[256];
    um_config c;
    test_engine t;
    um_request r;
    int32_t id = 1000000;
    const char *blank[] = {"  "}, *long_words[1] = {NULL};
    um_buf text = {0};
    test_config(&c, "sdar", path, sizeof path);
    c.max_num_batched_tokens = 64;
    test_open(&t, &c);
    um_request_init(t.engine, &r);
    r.text = "t1";
    r.text_len = 2;
    r.allowed_ids = &id;
    r.n_allowed_ids = 1;
    refuse(t.engine, &r, UM_ERANGE, "allowed_token_ids");
    r.n_allowed_ids = 0;
    r.constraint = UM_CONSTRAINT_REGEX;
    refuse(t.engine, &r, UM_EINVAL, "constraint");
    r.constraint_text = "a";
    r.constraint = UM_CONSTRAINT_NONE;
    refuse(t.engine, &r, UM_EINVAL, "constraint");
    r.constraint = UM_CONSTRAINT_CHOICE + 1;
    refuse(t.engine, &r, UM_ERANGE, "constraint");
    r.constraint = UM_CONSTRAINT_NONE;
    r.constraint_text = NULL;
    r.bad_words = blank;
    r.n_bad_words = 1;
    refuse(t.engine, &r, UM_EINVAL, "bad_words");
    for (int i = 0; i < 4000; i++) um_buf_puts(&text, "t1 ");
    long_words[0] = text.data;
    r.bad_words = long_words;
    um_err err = {0};
    assert_int_equal(um_engine_add(t.engine, &r, NULL, &err), UM_ELIMIT);
    assert_non_null(strstr(err.msg, "edits of logits"));
    um_buf_free(&text);
    test_close(&t);
}

/* Refuses a request that leaves no token, and accepts the same one with a further allowed id. */
static void refuse_without_token(um_engine *e, um_request *r, const char *param) {
    static const int32_t two[] = {5, 8};
    um_err err = {0};
    refuse(e, r, UM_EINVAL, param);
    r->allowed_ids = two;
    r->n_allowed_ids = 2;
    assert_int_equal(um_engine_check_request(e, r, &err), UM_OK);
    r->n_allowed_ids = 1;
}

static void requests_that_leave_no_token_are_refused(void **state) {
    (void)state;
    static const int32_t five = 5;
    static const um_bias ban = {5, -INFINITY};
    char path[256];
    um_config c;
    test_engine t;
    um_request r;
    test_config(&c, "sdar", path, sizeof path);
    test_open(&t, &c);
    um_request_init(t.engine, &r);
    r.text = "t1";
    r.text_len = 2;
    r.allowed_ids = &five;
    r.n_allowed_ids = 1;
    r.bad_words = single;
    r.n_bad_words = 1;
    refuse_without_token(t.engine, &r, "allowed_token_ids");
    r.n_bad_words = 0;
    r.bias = &ban;
    r.n_bias = 1;
    refuse_without_token(t.engine, &r, "allowed_token_ids");
    r.n_bias = 0;
    r.stop_ids = &five;
    r.n_stop_ids = 1;
    r.sampling.min_tokens = 2;
    refuse_without_token(t.engine, &r, "allowed_token_ids");
    r.sampling.min_tokens = 0;
    um_err err = {0};
    assert_int_equal(um_engine_check_request(t.engine, &r, &err), UM_OK);
    test_close(&t);
}

/* These two ids delete and insert tokens, so an answer can't consist of them. */
static void ids_that_move_tokens_are_no_tokens(void **state) {
    (void)state;
    static const int32_t moves[] = {505, 506, 5};
    char path[256];
    um_config c;
    test_engine t;
    um_request r;
    um_err err = {0};
    test_config(&c, LLADA22, path, sizeof path);
    test_open(&t, &c);
    um_request_init(t.engine, &r);
    r.text = "t1";
    r.text_len = 2;
    r.allowed_ids = moves;
    for (r.n_allowed_ids = 1; r.n_allowed_ids < 3; r.n_allowed_ids++)
        refuse(t.engine, &r, UM_EINVAL, "allowed_token_ids");
    assert_int_equal(um_engine_check_request(t.engine, &r, &err), UM_OK);
    test_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_have_no_bad_word_and_allowed_ids_only),
        cmocka_unit_test(a_bad_word_of_one_token_is_banned),
        cmocka_unit_test(wrong_constraints_are_refused_by_name),
        cmocka_unit_test(requests_that_leave_no_token_are_refused),
        cmocka_unit_test(ids_that_move_tokens_are_no_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
