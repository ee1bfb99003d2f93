/* Tests of wrong parameters, at the creation of an engine and in requests. The tests go through the tables of options,
 * so new rows are covered automatically. Each option gets values just outside its range, of another type, that are no
 * number, and that are empty. They are given as text and stored in the field. Further tests use parameters that
 * contradict each other, the model or the available memory. Every message must name the parameter, the value and the
 * allowed values. */
#include <math.h>

#include "support.h"

/* ---- Values that no row allows ----------------------------------------------------------------------------------- */

static bool has_range(const um_option *row) { return row->min != 0 || row->max != 0; }

static bool is_number(const um_option *row) { return row->type >= UM_OPT_INT && row->type <= UM_OPT_FLOAT; }

static double step_of(const um_option *row) { return row->type == UM_OPT_FLOAT ? 0.01 : 1; }

typedef struct values {
    char text[8][512];
    size_t n;
} values;

static void add(values *v, const char *text) {
    assert_true(v->n < UM_LEN(v->text) && strlen(text) < sizeof(v->text[0]));
    strcpy(v->text[v->n++], text);
}

static void add_number(values *v, const um_option *row, double x) {
    char text[UM_NUMBER_MAX];
    um_format_double(x, text);
    /* -1 is allowed when it is the stored value of "auto". */
    if (um_streq(text, "-1") && row->autos && um_streq(row->autos, "-1")) return;
    add(v, text);
}

/* Adds a word that is too long for the field of a name. */
static void add_long_word(values *v, const um_option *row) {
    char word[512];
    assert_true(row->size < sizeof word);
    memset(word, 'a', row->size);
    word[row->size] = 0;
    add(v, word);
}

static values bad_values(const um_option *row) {
    values v = {0};
    if (row->type == UM_OPT_STR) return v; /* any text is a valid value */
    if (row->type != UM_OPT_NAME || row->choices) add(&v, "x"), add(&v, ""), add(&v, "nan");
    else add_long_word(&v, row);
    if (row->type == UM_OPT_BOOL || row->type == UM_OPT_CHOICE) add(&v, "7");
    if (!is_number(row)) return v;
    if (has_range(row)) add_number(&v, row, row->min - step_of(row));
    if (has_range(row)) add_number(&v, row, row->max + step_of(row));
    add(&v, "1e999");
    if (row->type != UM_OPT_FLOAT) add(&v, "1.5");
    return v;
}

/* Checks that the message contains the name, the value, and either the limits or all allowed values. Long values may
 * be cut. */
static void check_message(const um_err *err, const um_option *row, const char *value) {
    um_buf range = {0};
    char start[64];
    snprintf(start, sizeof start, "%.60s", value);
    char min[UM_NUMBER_MAX] = "", max[UM_NUMBER_MAX] = "";
    um_option_range(row, &range);
    if (has_range(row)) um_format_double(row->min, min), um_format_double(row->max, max);
    if (!strstr(err->msg, row->name) || !strstr(err->msg, start)) fail_msg("%s %s: %s", row->name, value, err->msg);
    assert_string_equal(err->param, row->name);
    bool allowed = !range.len || strstr(err->msg, range.data) || (strstr(err->msg, min) && strstr(err->msg, max));
    if (has_range(row)) allowed |= strstr(err->msg, min) && strstr(err->msg, "or more");
    if (!allowed) fail_msg("%s %s: expected %s in: %s", row->name, value, range.data, err->msg);
    um_buf_free(&range);
}

/* ---- As text ----------------------------------------------------------------------------------------------------- */

static void check_text(um_option_set *set, const um_option *row, const char *value) {
    um_buf before = {0}, after = {0};
    um_err err = {0};
    um_option_get_text(row, set->base, &before);
    if (!um_option_set_text(row, set->base, value, &err)) fail_msg("%s takes \"%s\"", row->name, value);
    check_message(&err, row, value);
    um_option_get_text(row, set->base, &after);
    assert_string_equal(after.data, before.data);
    um_buf_free(&before);
    um_buf_free(&after);
}

static void no_row_takes_a_bad_value_as_text(void **state) {
    (void)state;
    um_config c;
    um_option_set sets[UM_OPTION_SETS_MAX];
    um_config_init(&c);
    size_t n = um_config_option_sets(sets, &c), n_checked = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sets[i].n; k++) {
            values v = bad_values(&sets[i].rows[k]);
            for (size_t j = 0; j < v.n; j++, n_checked++) check_text(&sets[i], &sets[i].rows[k], v.text[j]);
        }
    }
    print_message("%zu values\n", n_checked);
    assert_true(n_checked > 400);
}

/* ---- In the field ------------------------------------------------------------------------------------------------ */

/* Stores bad value number i in the field of the row. `written` receives the value as messages write it. Returns false
 * when there are no more bad values. */
static bool store_bad(const um_option *row, void *base, int i, char *written, size_t size) {
    char *field = (char *)base + row->offset;
    const double numbers[] = {row->min - step_of(row), row->max + step_of(row), INFINITY, -INFINITY};
    const int n_numbers = row->type == UM_OPT_FLOAT ? 4 : 2;
    snprintf(written, size, "%s", "");
    switch (row->type) {
    case UM_OPT_BOOL:
    case UM_OPT_STR: return false; /* every value is valid */
    case UM_OPT_CHOICE:
        *(int32_t *)(void *)field = i ? -1 : 99;
        snprintf(written, size, "%d", i ? -1 : 99);
        return i < 2;
    case UM_OPT_NAME: /* an unknown word, and one without a terminating NUL */
        memset(field, i ? 'a' : 0, row->size);
        if (i == 0) strcpy(field, "x");
        snprintf(written, size, "%s", i ? "aaaaaaaaaaaa" : "x");
        return i < (row->choices ? 2 : 0);
    case UM_OPT_INT: *(int32_t *)(void *)field = (int32_t)numbers[i % n_numbers]; break;
    case UM_OPT_INT64: *(int64_t *)(void *)field = (int64_t)numbers[i % n_numbers]; break;
    case UM_OPT_FLOAT: *(float *)(void *)field = (float)numbers[i % n_numbers]; break;
    }
    um_buf text = {0};
    um_option_get_text(row, base, &text);
    snprintf(written, size, "%s", text.data);
    um_buf_free(&text);
    return i < n_numbers && has_range(row);
}

/* Returns whether the field holds the value of "auto". */
static bool is_auto(const um_option *row, const void *base) {
    um_buf text = {0};
    um_option_get_text(row, base, &text);
    bool is = um_option_is_auto(row, text.data);
    um_buf_free(&text);
    return is;
}

static test_engine sdar;
static um_config sdar_config;
static char sdar_path[128];

static int open_sdar(void **state) {
    (void)state;
    test_config(&sdar_config, "sdar", sdar_path, sizeof(sdar_path));
    test_open(&sdar, &sdar_config);
    return 0;
}

static int close_sdar(void **state) {
    (void)state;
    test_close(&sdar);
    return 0;
}

static void no_engine_is_made_with_a_bad_value(void **state) {
    (void)state;
    char written[64];
    um_option_set sets[UM_OPTION_SETS_MAX];
    um_config c;
    size_t n = um_config_option_sets(sets, &c), n_checked = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sets[i].n; k++) {
            const um_option *row = &sets[i].rows[k];
            um_engine *e = NULL;
            um_err err = {0};
            c = sdar_config;
            for (int b = 0; store_bad(row, sets[i].base, b, written, sizeof(written)); b++, c = sdar_config) {
                if (is_auto(row, sets[i].base)) continue;
                if (!um_engine_new(&e, sdar.model, &c, &err)) fail_msg("%s takes %s", row->name, written);
                check_message(&err, row, written);
                n_checked++;
            }
        }
    }
    print_message("%zu values\n", n_checked);
    assert_true(n_checked > 150);
}

static um_request request(const um_engine *e) {
    static const int32_t prompt[] = {5, 6};
    um_request r;
    um_request_init(e, &r);
    r.ids = prompt;
    r.n_ids = UM_LEN(prompt);
    return r;
}

static void no_request_is_taken_with_a_bad_value(void **state) {
    (void)state;
    char written[64];
    um_option_set sets[UM_DECODE_SETS_MAX];
    um_request r;
    size_t n = um_decode_option_sets(sets, &r.decoding, &r.sampling), n_checked = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < sets[i].n; k++) {
            const um_option *row = &sets[i].rows[k];
            um_err err = {0};
            r = request(sdar.engine);
            for (int b = 0; store_bad(row, sets[i].base, b, written, sizeof(written)); b++, r = request(sdar.engine)) {
                if (is_auto(row, sets[i].base)) continue;
                if (!um_engine_add(sdar.engine, &r, NULL, &err)) fail_msg("%s takes %s", row->name, written);
                check_message(&err, row, written);
                assert_int_equal(um_engine_pending(sdar.engine), 0);
                n_checked++;
            }
        }
    }
    print_message("%zu values\n", n_checked);
    assert_true(n_checked > 120);
}

/* ---- Contradictions ---------------------------------------------------------------------------------------------- */

typedef struct contradiction {
    const char *model;
    const char *given; /* "name=value ..." for the engine or the request */
    um_status status;
    const char *message; /* a part of the expected message */
} contradiction;

/* Calls `set` for each "name=value" in `given`. */
static void set_all(const char *given, um_status (*set)(void *object, const char *name, const char *value),
                    void *object) {
    static char words[256]; /* static, because a configuration keeps pointers to its strings */
    snprintf(words, sizeof(words), "%s", given);
    for (char *next, *word = strtok_r(words, " ", &next); word; word = strtok_r(NULL, " ", &next)) {
        char *value = strchr(word, '=');
        assert_non_null(value);
        *value++ = '\0';
        if (set(object, word, value)) fail_msg("%s=%s in \"%s\" is refused by itself", word, value, given);
    }
}

static um_status set_config(void *config, const char *name, const char *value) {
    return um_config_set((um_config *)config, name, value, NULL);
}

static um_status set_request(void *r, const char *name, const char *value) {
    return um_request_set((um_request *)r, name, value, NULL);
}

static void check_refusal(const contradiction *x, const char *where, um_status st, const um_err *err) {
    if (!st) fail_msg("%s: %s with %s was taken", where, x->model, x->given);
    if (st != x->status || !strstr(err->msg, x->message))
        fail_msg("%s: %s with %s: expected %s \"%s\", found %s \"%s\"", where, x->model, x->given,
                 um_status_name(x->status), x->message, um_status_name(st), err->msg);
}

/* Checks that um_request_check_for, with a model without weights and the sizes of the engine, gives the same error. */
static void check_without_weights(const um_config *c, const um_engine *e, const um_request *r, const um_err *expected) {
    um_model *text = NULL;
    um_config sizes = *c;
    um_engine_info info;
    um_err err = {0};
    um_engine_get_info(e, &info);
    sizes.max_model_len = info.max_model_len;
    sizes.max_num_reqs = info.max_num_reqs;
    sizes.max_num_batched_tokens = info.max_num_batched_tokens;
    sizes.page_size = info.page_size;
    sizes.num_pages = info.num_pages;
    if (um_model_open_text(&text, c, &err)) fail_msg("%s", err.msg);
    assert_int_equal(um_request_check_for(text, &sizes, r, r->n_ids, &err), expected->code);
    assert_string_equal(err.msg, expected->msg);
    assert_string_equal(err.param, expected->param);
    um_model_close(text);
}

static void check_add(const contradiction *x, const um_config *c, um_engine *e, const um_request *r) {
    um_err err = {0};
    check_refusal(x, "request", um_engine_add(e, r, NULL, &err), &err);
    assert_int_equal(um_engine_pending(e), 0);
    check_without_weights(c, e, r, &err);
}

static void refused_at_creation(const contradiction *x) {
    um_config c;
    test_engine t = {0};
    um_err err = {0};
    char path[128];
    test_config(&c, x->model, path, sizeof(path));
    if (um_model_open(&t.model, &c, &err)) fail_msg("%s", err.msg);
    set_all(x->given, set_config, &c);
    check_refusal(x, "engine", um_engine_new(&t.engine, t.model, &c, &err), &err);
    test_close(&t);
}

static void refused_per_request(const contradiction *x) {
    um_config c;
    test_engine t;
    char path[128];
    test_config(&c, x->model, path, sizeof(path));
    test_open(&t, &c);
    um_request r = request(t.engine);
    set_all(x->given, set_request, &r);
    check_add(x, &c, t.engine, &r);
    test_close(&t);
}

static void refused_in_both(const contradiction *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        refused_at_creation(&list[i]);
        refused_per_request(&list[i]);
    }
}

static void decoding_that_contradicts_itself_is_refused(void **state) {
    (void)state;
    static const contradiction both[] = {
        /* names */
        {"sdar", "sampler=best", UM_EINVAL, "sampler: no sampler is named \"best\"; there are: confidence, "},
        {"sdar", "retention=none", UM_EINVAL, "retention: no rule is named \"none\"; there are: attention"},
        {"sdar", "strategy=magic", UM_EINVAL,
         "decoding_strategy: no strategy is named \"magic\"; there are: multi_bd, "},
        /* samplers */
        {"sdar", "sampler=entropy", UM_EUNSUPPORTED, "sampler: entropy follows a schedule over a whole canvas"},
        {"sdar", "sampler=origin", UM_EUNSUPPORTED, "sampler: origin follows a schedule over a whole canvas"},
        {"llada", "sampler=edit", UM_EUNSUPPORTED, "sampler: edit needs the blocks of block diffusion"},
        {"llada", "strategy=sparse sampler=dmax", UM_EUNSUPPORTED, "sampler: dmax needs the blocks of block diffusion"},
        {"llada2", "strategy=dmax sampler=confidence", UM_EUNSUPPORTED,
         "sampler: strategy dmax runs sampler dmax only, not"},
        {"fast_dllm_v2", "sampler=edit", UM_EUNSUPPORTED, "sampler: edit edits filled positions"},
        {"fast_dllm_v2", "sampler=random alg_temp=1 sampler=entropy", UM_EUNSUPPORTED,
         "sampler: entropy follows a schedule over a whole canvas"},
        {"sdar", "sampler=hierarchy accept_threshold=0.5 low_threshold=0.6", UM_ERANGE,
         "low_threshold: 0.6 is above accept_threshold 0.5"},
        {"llada2", "sampler=edit remask_threshold=0.5", UM_EUNSUPPORTED,
         "remask_threshold: 0.5 is not for sampler edit"},
        {"llada2", "strategy=dmax remask_threshold=0.5", UM_EUNSUPPORTED,
         "remask_threshold: 0.5 is not for sampler dmax"},
        /* blocks */
        {"sdar", "block_size=257", UM_ERANGE, "block_size: 257 is outside 1..256"},
        {"llada", "strategy=d2f block_size=300", UM_ERANGE, "block_size: 300 is outside 1..256"},
        {"fast_dllm_v2", "block_size=300", UM_ERANGE, "block_size: 300 is outside 1..256"},
        {"fast_dllm_v2", "block_size=4 buffer_size=1", UM_ERANGE, "buffer_size: 1 is outside 2..64"},
        {"sdar", "block_size=64 buffer_size=32", UM_ELIMIT, "a pass of this request needs 2112 tokens (prompt"},
        /* whole sequences */
        {"llada", "gen_length=8 block_size=2 steps=3", UM_ERANGE,
         "steps: 3 passes for 4 blocks (gen_length 8, block_size 2); every block needs at least one"},
        {"llada", "sampler=confidence steps=8", UM_EINVAL,
         "steps: 8 is set, but sampler confidence follows no schedule"},
        {"llada", "gen_length=300", UM_ERANGE, "but max_model_len is 256"},
        {"dream", "strategy=dual_cache gen_length=256", UM_ERANGE, "but max_model_len is 256"},
        {"llada", "strategy=sparse retention_ratio=0", UM_ERANGE,
         "retention_ratio: 0 keeps nothing; it is a share above 0, up to 1"},
        {"llada", "strategy=sparse pool_kernel=4", UM_ERANGE, "pool_kernel: 4 is not odd; it takes 1, 3, 5 .. 255"},
        {"llada", "strategy=sparse block_size=4 delay_step=4", UM_ERANGE,
         "delay_step: 4 is outside 0..3 (block_size 4)"},
        {"llada", "strategy=sparse delay_step=32", UM_ERANGE, "delay_step: 32 is outside 0..31 (block_size 32)"},
        /* limits and room */
        {"sdar", "max_tokens=4 min_tokens=5", UM_ERANGE, "min_tokens: 5 is outside 0..4 (max_tokens 4)"},
        {"sdar", "min_tokens=513", UM_ERANGE, "min_tokens: 513 is outside 0..512 (max_tokens 512)"},
        {"sdar", "block_size=256 logprobs=64 buffer_size=2", UM_ELIMIT, "likeliest ids, but a step has room for 16384"},
        {"sdar", "block_size=256 sampler=credit", UM_ELIMIT, "likeliest ids, but a step has room for 16384"},
        {"llada2", "strategy=dmax block_size=256 token_merge_mode=iter_smooth_topk token_merge_top_k=64", UM_ELIMIT,
         "a pass of this request blends 33280 ids (65 for each of 512 positions), but a step has room for 16384; lower "
         "token_merge_top_k, block_size or buffer_size"},
        {"llada2",
         "strategy=dmax clean_commit=false token_merge_mode=iter_smooth_topk token_merge_top_k=64 max_tokens=1 "
         "block_size=128",
         UM_ELIMIT, "positions: all of the answer without clean_commit), but a step has room for 16384"},
    };
    refused_in_both(both, UM_LEN(both));
}

static void what_neither_strategy_nor_sampler_reads_is_refused(void **state) {
    (void)state;
    static const contradiction both[] = {
        {"sdar", "cfg_scale=1.5", UM_EUNSUPPORTED,
         "cfg_scale: 1.5 would have no effect: strategy multi_bd and sampler confidence do not read it; it is read by "
         "strategies full, prefix_cache, dual_cache, sparse"},
        {"llada", "strategy=d2f cfg_scale=1.5", UM_EUNSUPPORTED, "cfg_scale: 1.5 would have no effect: strategy d2f"},
        {"fast_dllm_v2", "gen_length=40", UM_EUNSUPPORTED, "gen_length: 40 would have no effect"},
        {"sdar", "factor=2", UM_EUNSUPPORTED, "read it; it is read by sampler factor"},
        {"llada", "accept_threshold=0.5", UM_EUNSUPPORTED,
         "accept_threshold: 0.5 would have no effect: strategy full and sampler low_confidence"},
        {"llada", "sampler=random alg_temp=0.5", UM_EUNSUPPORTED,
         "it is read by samplers maskgit_plus, topk_margin, entropy, linear_entropy"},
        {"sdar", "sampler=sequential confidence=margin", UM_EUNSUPPORTED, "confidence: margin would have no effect"},
        {"llada", "denoising_steps=4", UM_EINVAL, "strategy full takes the number of passes from steps"},
        {"llada", "strategy=prefix_cache head_select=true", UM_EUNSUPPORTED, "it is read by strategy sparse"},
    };
    refused_in_both(both, UM_LEN(both));
}

/* ---- Strategies and families ------------------------------------------------------------------------------------- */

static void check_strategies(const char *model) {
    um_config c;
    test_engine t;
    char path[128];
    test_config(&c, model, path, sizeof(path));
    test_open(&t, &c);
    const um_family *f = t.model->arch.family;
    for (const um_strategy *const *s = um_strategies; *s; s++) {
        um_err err = {0};
        um_engine *e = NULL;
        um_request r = request(t.engine);
        const contradiction x = {model, (*s)->name, UM_EUNSUPPORTED, "which run: "};
        if (um_family_supports(f, (*s)->name)) continue;
        assert_int_equal(um_request_set(&r, "strategy", (*s)->name, NULL), UM_OK);
        check_refusal(&x, "request", um_engine_add(t.engine, &r, NULL, &err), &err);
        assert_non_null(strstr(err.msg, f->strategies));
        assert_int_equal(um_config_set(&c, "strategy", (*s)->name, NULL), UM_OK);
        check_refusal(&x, "engine", um_engine_new(&e, t.model, &c, &err), &err);
    }
    test_close(&t);
}

static void a_strategy_that_a_family_can_not_run_names_those_it_can(void **state) {
    (void)state;
    static const char *const models[] = {"llada", "dream", "sdar", "llada2", "fast_dllm_v2", "dream_reasoner"};
    for (size_t i = 0; i < UM_LEN(models); i++) check_strategies(models[i]);
}

/* ---- Configurations of engines and models that are refused ------------------------------------------------------- */

static void sizes_that_contradict_each_other_make_no_engine(void **state) {
    (void)state;
    static const contradiction engines[] = {
        {"sdar", "max_num_batched_tokens=2048", UM_ERANGE,
         "max_num_batched_tokens: 2048 is outside 1..1024, the limit that the model was opened with"},
        {"sdar", "max_num_batched_tokens=3", UM_ELIMIT,
         "no request can run, not even one of a single token: a pass of this request needs 8 tokens (prompt 1, "
         "block_size 4), but "
         "max_num_batched_tokens is 3"},
        {"llada", "max_num_batched_tokens=3 cfg_scale=1", UM_ELIMIT, "all of it twice for cfg_scale"},
        {"sdar", "num_pages=1 page_size=2", UM_ELIMIT,
         "no request can run, not even one of a single token: the request needs 2 KV pages (4 tokens in pages of 2), "
         "but there are "
         "1"},
        {"sdar", "num_pages=1000000000", UM_ENOMEM, "needed"},
    };
    for (size_t i = 0; i < UM_LEN(engines); i++) refused_at_creation(&engines[i]);
}

static void a_model_is_not_opened_with_what_contradicts_it(void **state) {
    (void)state;
    static const contradiction models[] = {
        {"sdar", "lora_merge=true", UM_EINVAL, "lora_merge needs exactly one adapter in lora, found 0"},
        {"sdar", "lora=a=/nowhere", UM_ENOENT, "/nowhere"},
        {"sdar", "mask_token_id=512", UM_ERANGE, "mask_token_id is 512, but the model has ids up to 511 only"},
        {"sdar", "model_name=parrot", UM_EUNSUPPORTED, "model name parrot: no such family"},
    };
    for (size_t i = 0; i < UM_LEN(models); i++) {
        um_config c;
        um_model *m = NULL;
        um_err err = {0};
        char path[128];
        test_config(&c, models[i].model, path, sizeof(path));
        set_all(models[i].given, set_config, &c);
        um_status st = um_model_open(&m, &c, &err);
        check_refusal(&models[i], "model", st, &err);
        um_model_close(m);
    }
}

/* ---- Requests that are refused ----------------------------------------------------------------------------------- */

static void check_request(const um_request *r, um_status status, const char *message) {
    const contradiction x = {"sdar", "a field", status, message};
    um_err err = {0};
    check_refusal(&x, "request", um_engine_add(sdar.engine, r, NULL, &err), &err);
    assert_int_equal(um_engine_pending(sdar.engine), 0);
}

static void fields_without_a_row_are_checked_too(void **state) {
    (void)state;
    static const int32_t far[] = {512}, below[] = {-1};
    static const um_bias nan_bias = {3, NAN}, far_bias = {512, 1};
    static const char *const empty[] = {""};
    um_request r = request(sdar.engine);
    r.n = 129;
    check_request(&r, UM_ERANGE, "n: 129 answers; a request has 1..128");
    r.n = 0;
    check_request(&r, UM_ERANGE, "n: 0 answers; a request has 1..128");
    r = request(sdar.engine);
    r.adapter = "parrot";
    check_request(&r, UM_EINVAL, "adapter \"parrot\" is not loaded: the model was opened without any");
    r = request(sdar.engine);
    r.ids = far;
    r.n_ids = 1;
    check_request(&r, UM_ERANGE, "prompt token 0 is 512, outside the vocabulary 0..511");
    r = request(sdar.engine);
    r.stop_ids = below;
    r.n_stop_ids = 1;
    check_request(&r, UM_ERANGE, "stop_token_ids: id -1 is outside the vocabulary 0..511");
    r = request(sdar.engine);
    r.bias = &far_bias;
    r.n_bias = 1;
    check_request(&r, UM_ERANGE, "logit_bias: id 512 is outside the vocabulary 0..511");
    r.bias = &nan_bias;
    check_request(&r, UM_ERANGE, "logit_bias: the value of id 3 is NaN or +infinity");
    r = request(sdar.engine);
    r.stop = empty;
    r.n_stop = 1;
    check_request(&r, UM_EINVAL, "stop string 0 is empty");
    r = request(sdar.engine);
    r.suffix = far;
    r.n_suffix = 1;
    check_request(&r, UM_EUNSUPPORTED, "suffix: strategy multi_bd writes from left to right");
    r = request(sdar.engine);
    r.ids = NULL;
    r.text = "t1";
    r.text_len = 2;
    r.special_in_content = 9;
    check_request(&r, UM_ERANGE, "special_in_content: 9 is outside 0..4");
}

static void a_suffix_leaves_room_for_an_answer(void **state) {
    (void)state;
    static const int32_t many[254] = {5}, far[] = {512};
    um_config c;
    test_engine t;
    char path[128];
    test_config(&c, "llada", path, sizeof(path));
    test_open(&t, &c);
    static const struct {
        const int32_t *ids;
        size_t n;
        contradiction x;
    } rows[] = {
        {many, 254, {"llada", "254", UM_ELIMIT, "suffix: prompt 2 + suffix 254 tokens, but max_model_len is 256"}},
        {far, 1, {"llada", "512", UM_ERANGE, "suffix token 0 is 512, outside the vocabulary 0..511"}},
    };
    for (size_t i = 0; i < UM_LEN(rows); i++) {
        um_request r = request(t.engine);
        r.suffix = rows[i].ids;
        r.n_suffix = rows[i].n;
        check_add(&rows[i].x, &c, t.engine, &r);
    }
    test_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_row_takes_a_bad_value_as_text),
        cmocka_unit_test(no_engine_is_made_with_a_bad_value),
        cmocka_unit_test(no_request_is_taken_with_a_bad_value),
        cmocka_unit_test(decoding_that_contradicts_itself_is_refused),
        cmocka_unit_test(what_neither_strategy_nor_sampler_reads_is_refused),
        cmocka_unit_test(a_strategy_that_a_family_can_not_run_names_those_it_can),
        cmocka_unit_test(sizes_that_contradict_each_other_make_no_engine),
        cmocka_unit_test(a_model_is_not_opened_with_what_contradicts_it),
        cmocka_unit_test(fields_without_a_row_are_checked_too),
        cmocka_unit_test(a_suffix_leaves_room_for_an_answer),
    };
    return cmocka_run_group_tests_name("bad input", tests, open_sdar, close_sdar);
}
