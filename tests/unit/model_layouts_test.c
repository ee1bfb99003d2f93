/* Tests of every family from a folder to hidden rows, of the layouts of stored experts, and of routing blocks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model_zoo.h"

enum { TOKENS = 10 };

static const char *const families[] = {
    ZOO_ILLADA(""),
    ZOO_ILLADA(",'layer_norm_eps':1e-5,'attention_bias':true,'mlp_bias':true"),
    ZOO_DREAM,
    ZOO_REASONER(",'head_dim':null,'attention_bias':false"),
    ZOO_REASONER(",'head_dim':32,'attention_bias':true"),
    ZOO_LLADA_MOE_A,
    ZOO_LLADA_MOE_B,
    ZOO_LLADA2(""),
    ZOO_LLADA22,
    ZOO_SDAR_MOE,
    ZOO_RND1(",'norm_topk_prob':true"),
    ZOO_RND1(",'norm_topk_prob':false"),
};

static float difference(const float *a, const float *b, size_t n) {
    float worst = 0;
    for (size_t i = 0; i < n; i++) worst = fmaxf(worst, isfinite(a[i]) ? fabsf(a[i] - b[i]) : INFINITY);
    return worst;
}

/* ---- Families ---------------------------------------------------------------------------------------------------- */

/* The two backends use the same model room, but their arithmetic is implemented separately. */
static void every_family_runs_alike_on_all_backends(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(families); i++) {
        zoo z = zoo_new(families[i]);
        zoo_write(&z);
        um_model *ref = zoo_model(&z, "ref"), *cpu = zoo_model(&z, "cpu");
        assert_int_equal(ref->n_params, um_arch_params(&ref->arch));
        float *a = zoo_run_one(ref, TOKENS), *b = zoo_run_one(cpu, TOKENS);
        float worst = difference(a, b, (size_t)TOKENS * 64);
        if (!(worst < 1e-4f)) fail_msg("%s differs by %g", ref->arch.family->name, (double)worst);
        um_free(a);
        um_free(b);
        um_model_close(cpu);
        zoo_done(&z, ref);
    }
}

/* Returns the hidden rows of a model with this configuration on the backend ref (um_free). */
static float *hidden_of(const char *config) {
    zoo z = zoo_new(config);
    zoo_write(&z);
    um_model *m = zoo_model(&z, "ref");
    float *hidden = zoo_run_one(m, TOKENS);
    zoo_done(&z, m);
    return hidden;
}

static void same(const char *a, const char *b, bool want) {
    float *x = hidden_of(a), *y = hidden_of(b);
    assert_int_equal(!memcmp(x, y, (size_t)TOKENS * 64 * sizeof(float)), want);
    um_free(x);
    um_free(y);
}

/* Fields that a family reads must change the result. Fields that it does not read must not change it. */
static void switches_reach_the_arithmetic(void **state) {
    (void)state;
    same(ZOO_RND1(",'norm_topk_prob':true"), ZOO_RND1(",'norm_topk_prob':false"), false);
    same(ZOO_RND1(",'norm_topk_prob':true"), ZOO_RND1(""), true);
    same(ZOO_LLADA2(""), ZOO_LLADA2(",'norm_topk_prob':false"), true);
    same(ZOO_LLADA2(""), ZOO_LLADA2(",'routed_scaling_factor':2"), false);
    same(ZOO_LLADA2(""), ZOO_LLADA2(",'topk_group':4"), false);
    same(ZOO_LLADA2(""), ZOO_LLADA22, false);
    same(ZOO_LLADA22, ZOO_LLADA2(",'expert_capacity':6,'block_size':4,'topk_group':1,'n_group':16"), true);
    same(ZOO_LLADA_MOE_A, ZOO_LLADA_MOE(",'moe_layer_freq':[1,1],'norm_topk_prob':false"), true);
    same(ZOO_LLADA_MOE_A, ZOO_LLADA_MOE(",'moe_layer_freq':[1,1],'clip_qkv':0.8"), false);
    same(ZOO_LLADA_MOE_A, ZOO_LLADA_MOE(",'partial_rotary_factor':-1"), true);
    same(ZOO_LLADA_MOE_A, ZOO_LLADA_MOE(",'partial_rotary_factor':0.5"), false);
    same(ZOO_ILLADA(""), ZOO_ILLADA(",'layer_norm_eps':1e-6"), false);
}

/* ---- Layouts ----------------------------------------------------------------------------------------------------- */

static size_t count_layouts(void) {
    const um_expert_names *n = um_family_find("llada2")->names->experts;
    size_t count = 0;
    while (n[count].gate) count++;
    return count;
}

static void layouts_of_experts_give_the_same_bits(void **state) {
    (void)state;
    static const char *const configs[] = {ZOO_LLADA2(""), ZOO_LLADA_MOE_B, ZOO_SDAR_MOE};
    assert_int_equal(count_layouts(), 4);
    for (size_t i = 0; i < UM_LEN(configs); i++) {
        float *first = hidden_of(configs[i]);
        for (size_t layout = 1; layout < count_layouts(); layout++) {
            zoo z = zoo_new(configs[i]);
            z.layout = layout;
            zoo_write(&z);
            um_model *m = zoo_model(&z, "ref");
            assert_int_equal(m->n_params, um_arch_params(&m->arch));
            float *hidden = zoo_run_one(m, TOKENS);
            assert_memory_equal(first, hidden, (size_t)TOKENS * 64 * sizeof(float));
            um_free(hidden);
            zoo_done(&z, m);
        }
        um_free(first);
    }
}

static void other_names_give_the_same_bits(void **state) {
    (void)state;
    float *first = hidden_of(ZOO_LLADA2(""));
    for (int i = 0; i < 2; i++) {
        zoo z = zoo_new(ZOO_LLADA2(""));
        if (i == 0) z.router_bias = 1;
        else z.bare = true;
        zoo_write(&z);
        um_model *m = zoo_model(&z, "ref");
        float *hidden = zoo_run_one(m, TOKENS);
        assert_memory_equal(first, hidden, (size_t)TOKENS * 64 * sizeof(float));
        um_free(hidden);
        zoo_done(&z, m);
    }
    um_free(first);
}

static void refuses(zoo *z, um_status want, const char *part) {
    um_model *m;
    um_err err = {0};
    assert_int_equal(zoo_open_model(z, "ref", UM_CHECK_ERROR, &m, &err), want);
    assert_null(m);
    assert_says(&err, part);
    folder_free(z->dir);
}

/* Checks that a folder whose config.json is `stated` and whose tensors belong to `stored` is refused. */
static void refuses_experts(const char *stated, const char *stored, size_t layout, const char *part) {
    zoo z = zoo_new(stored);
    char *text = quoted(stated);
    z.layout = layout;
    zoo_write(&z);
    folder_write_text(z.dir, "config.json", text);
    um_free(text);
    refuses(&z, UM_EMODEL, part);
}

static void experts_that_are_missing_or_misshapen_are_named(void **state) {
    (void)state;
    const char *more = ZOO_LLADA2(",'num_experts':20,'n_group':4"), *wide = ZOO_LLADA2(",'moe_intermediate_size':40");
    refuses_experts(more, ZOO_LLADA2(""), 0, "tensor model.layers.1.mlp.gate.weight: expected [20, 64]");
    refuses_experts(wide, ZOO_LLADA2(""), 0,
                    "tensor model.layers.1.mlp.experts.0.gate_proj.weight: expected [40, 64] from config.json, found "
                    "[32, 64] in model.safetensors");
    refuses_experts(wide, ZOO_LLADA2(""), 1,
                    "tensor model.layers.1.mlp.experts.gate_proj: expected [16, 40, 64] from config.json, found "
                    "[16, 32, 64]");
    refuses_experts(wide, ZOO_LLADA2(""), 3, "tensor model.layers.1.mlp.w1: expected [16, 80, 64]");
    refuses_experts(ZOO_LLADA2(",'first_k_dense_replace':0"), ZOO_LLADA2(""), 0,
                    "tensor model.layers.0.mlp.gate.weight");
    refuses_experts(ZOO_LLADA2(",'first_k_dense_replace':2"), ZOO_LLADA2(""), 0,
                    "tensor model.layers.1.mlp.gate_proj.weight");
}

/* ---- Routing blocks ---------------------------------------------------------------------------------------------- */

/* The tokens of a block share a pool of experts. Other requests in the batch and other blocks must not change it. */
static void routing_blocks_end_with_the_request(void **state) {
    (void)state;
    const int n[] = {6, 10, 3}, number[] = {0, 1, 2};
    zoo z = zoo_new(ZOO_LLADA22);
    zoo_write(&z);
    static const char *const devices[] = {"ref", "cpu"};
    for (size_t d = 0; d < UM_LEN(devices); d++) {
        um_model *m = zoo_model(&z, devices[d]);
        float *together = zoo_run(m, 3, n, number), *at = together;
        for (int i = 0; i < 3; i++) {
            float *alone = zoo_run(m, 1, &n[i], &number[i]);
            assert_memory_equal(at, alone, (size_t)n[i] * 64 * sizeof(float));
            at += (size_t)n[i] * 64;
            um_free(alone);
        }
        um_free(together);
        um_model_close(m);
    }
    folder_free(z.dir);
}

/* The first block of 4 does not see the second. So a difference could only come from a shared pool of experts. */
static void routing_blocks_lie_on_the_grid(void **state) {
    (void)state;
    zoo z = zoo_new(ZOO_LLADA22);
    zoo_write(&z);
    um_model *m = zoo_model(&z, "ref");
    float *four = zoo_run_one(m, 4), *nine = zoo_run_one(m, 9), *three = zoo_run_one(m, 3);
    assert_memory_equal(four, nine, 4 * 64 * sizeof(float));
    assert_memory_not_equal(three, nine, 3 * 64 * sizeof(float));
    um_free(four);
    um_free(nine);
    um_free(three);
    zoo_done(&z, m);
}

/* ---- Weights that are NaN or infinite ---------------------------------------------------------------------------- */

static zoo poisoned(const char *tensor, float value, size_t layout) {
    zoo z = zoo_new(ZOO_LLADA2(""));
    z.layout = layout;
    z.poison = value;
    snprintf(z.poisoned, sizeof z.poisoned, "%s", tensor);
    zoo_write(&z);
    return z;
}

static void weights_that_are_not_finite_are_counted_and_named(void **state) {
    (void)state;
    zoo z = poisoned("model.norm.weight", NAN, 0);
    refuses(&z, UM_EMODEL, "1 values in 1 tensors are NaN or infinite, the first is model.norm.weight[61]");
    z = poisoned("model.layers.2.mlp.experts.7.up_proj.weight", -INFINITY, 0);
    refuses(&z, UM_EMODEL, "the first is model.layers.2.mlp.experts.7.up_proj.weight[31, 61]");
    z = poisoned("model.layers.1.mlp.w1", INFINITY, 3);
    refuses(&z, UM_EMODEL, "the first is model.layers.1.mlp.w1[15, 63, 61]");
    z = poisoned("model.layers.1.mlp.gate.expert_bias", NAN, 0);
    refuses(&z, UM_EMODEL, "the first is model.layers.1.mlp.gate.expert_bias[13]");
    z = poisoned("model.norm.weight", 3e38f, 0);
    um_model *m = zoo_model(&z, "ref");
    zoo_done(&z, m);
}

static void weights_that_are_not_finite_give_a_warning_or_nothing(void **state) {
    (void)state;
    static const int32_t checks[] = {UM_CHECK_WARN, UM_CHECK_OFF};
    for (size_t i = 0; i < UM_LEN(checks); i++) {
        um_model *m;
        um_err err = {0};
        zoo z = poisoned("model.norm.weight", NAN, 0);
        int old = catch_stderr(z.dir);
        um_status s = zoo_open_model(&z, "ref", checks[i], &m, &err);
        um_buf said = release_stderr(z.dir, old);
        assert_int_equal(s, UM_OK);
        assert_int_equal(!!strstr(said.data, "NaN or infinite, the first is model.norm.weight[61]"),
                         checks[i] == UM_CHECK_WARN);
        um_buf_free(&said);
        zoo_done(&z, m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_runs_alike_on_all_backends),
        cmocka_unit_test(switches_reach_the_arithmetic),
        cmocka_unit_test(layouts_of_experts_give_the_same_bits),
        cmocka_unit_test(other_names_give_the_same_bits),
        cmocka_unit_test(experts_that_are_missing_or_misshapen_are_named),
        cmocka_unit_test(routing_blocks_end_with_the_request),
        cmocka_unit_test(routing_blocks_lie_on_the_grid),
        cmocka_unit_test(weights_that_are_not_finite_are_counted_and_named),
        cmocka_unit_test(weights_that_are_not_finite_give_a_warning_or_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
