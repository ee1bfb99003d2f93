/* Tests of the fields of config.json that describe mixtures of experts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model_fields.h"
#include "model_zoo.h"

#define LLADA2 ZOO_LLADA2("")

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

static void renames(const char *from, const char *to) {
    um_arch a, b = accepts(LLADA2, NULL, NULL);
    um_err err = {0};
    json_t *config = json_of(LLADA2);
    json_object_set(config, to, json_object_get(config, from));
    json_object_del(config, from);
    if (um_arch_parse(&a, config, "config.json", NULL, &err)) fail_msg("%s", err.msg);
    json_decref(config);
    assert_int_equal(a.route.n_experts, b.route.n_experts);
    assert_int_equal(a.route.top_k, b.route.top_k);
    assert_int_equal(a.expert_ff, b.expert_ff);
}

static void numbers_have_several_names(void **state) {
    (void)state;
    renames("num_experts", "n_routed_experts");
    renames("num_experts", "num_local_experts");
    renames("num_experts_per_tok", "moe_top_k");
    renames("num_experts_per_tok", "top_k");
    renames("moe_intermediate_size", "expert_intermediate_size");
    um_arch a = accepts(LLADA2, "moe_intermediate_size", NULL);
    assert_int_equal(a.expert_ff, 160); /* intermediate_size is used when no other name is present */
}

static void missing_numbers_are_named(void **state) {
    (void)state;
    static const char *const keys[] = {"num_experts", "num_experts_per_tok", "n_group", "topk_group",
                                       "routed_scaling_factor"};
    for (size_t i = 0; i < UM_LEN(keys); i++) {
        refuses(LLADA2, keys[i], NULL, UM_EMODEL, NULL);
        refuses(LLADA2, keys[i], "'many'", UM_EPARSE, NULL);
    }
    refuses(LLADA2, "num_experts", "0", UM_EPARSE, NULL);
    refuses(LLADA2, "num_experts_per_tok", "0", UM_EPARSE, NULL);
    refuses(ZOO_SDAR_MOE, "norm_topk_prob", NULL, UM_EMODEL, NULL);
    refuses(ZOO_LLADA_MOE_A, "qk_layernorm", NULL, UM_EMODEL, NULL);
    refuses(ZOO_LLADA_MOE_B, "dense_intermediate_size", NULL, UM_EMODEL, NULL);
    accepts(ZOO_LLADA_MOE_A, "dense_intermediate_size", NULL); /* no layer is dense */
}

static void numbers_that_contradict_each_other_are_told_with_both(void **state) {
    (void)state;
    refuses(LLADA2, "num_experts_per_tok", "17", UM_EMODEL,
            "\"num_experts_per_tok\" is 17, more than \"num_experts\" 16");
    refuses(LLADA2, "n_group", "5", UM_EMODEL, "\"num_experts\" 16 can't be cut into \"n_group\" 5 equal groups");
    refuses(LLADA2, "topk_group", "5", UM_EMODEL, "\"topk_group\" is 5, more than \"n_group\" 4");
    refuses(LLADA2, "num_experts_per_tok", "9", UM_EMODEL,
            "\"num_experts_per_tok\" is 9, but \"topk_group\" 2 of \"n_group\" 4 groups hold only 8 of the 16 experts");
    refuses(LLADA2, "rotary_dim", "32", UM_EMODEL,
            "\"rotary_dim\" is 32, but \"partial_rotary_factor\" of \"head_dim\" 32 makes 16");
    refuses(ZOO_LLADA22, "expert_capacity", "17", UM_EPARSE, NULL);
    refuses(ZOO_LLADA22, "expert_capacity", "3", UM_EMODEL,
            "\"num_experts_per_tok\" is 4, more than \"expert_capacity\" 3");
    refuses(ZOO_LLADA22, "block_size", NULL, UM_EMODEL, NULL);
    refuses(ZOO_LLADA22, "delete_token_id", NULL, UM_EMODEL, "\"delete_token_id\" is missing");
    refuses(ZOO_LLADA22, "split_token_id", NULL, UM_EMODEL, "\"split_token_id\" is missing");
    refuses(ZOO_LLADA22, "split_token_id", "251", UM_EMODEL,
            "\"delete_token_id\" and \"split_token_id\" are both 251; they must differ");
    refuses(ZOO_LLADA22, "split_token_id", "256", UM_EPARSE, NULL);
}

static void numbers_beyond_reason_are_refused(void **state) {
    (void)state;
    um_arch a;
    um_err err = {0};
    json_t *config = json_of(ZOO_SDAR_MOE);
    json_object_set_new(config, "num_experts", json_integer(65536));
    json_object_set_new(config, "moe_intermediate_size", json_integer(1 << 20));
    assert_int_equal(um_arch_parse(&a, config, "config.json", NULL, &err), UM_EUNSUPPORTED);
    assert_says(&err, "\"num_experts\" 65536 times \"moe_intermediate_size\" 1048576");
    json_decref(config);
}

/* ---- Layers ------------------------------------------------------------------------------------------------------ */

static void dense_layers(const char *base, const char *key, const char *value, const char *want) {
    um_arch a = accepts(base, key, value);
    for (int32_t i = 0; i < a.n_layers; i++) assert_int_equal(um_arch_is_moe(&a, i), want[i] == 'm');
    assert_int_equal(a.n_ff > 0, strchr(want, 'd') != NULL);
}

static void layers_with_experts_are_told_in_four_ways(void **state) {
    (void)state;
    dense_layers(LLADA2, "first_k_dense_replace", "0", "mmm");
    dense_layers(LLADA2, "first_k_dense_replace", "2", "ddm");
    dense_layers(LLADA2, "first_k_dense_replace", NULL, "mmm");
    dense_layers(ZOO_SDAR_MOE, NULL, NULL, "dm");
    dense_layers(ZOO_SDAR_MOE, "mlp_only_layers", "[]", "mm");
    dense_layers(ZOO_SDAR_MOE, "mlp_only_layers", "null", "mm");
    dense_layers(ZOO_SDAR_MOE, "mlp_only_layers", "[1,0]", "dd");
    dense_layers(LLADA2, "decoder_sparse_step", "2", "dmd");
    dense_layers(LLADA2, "decoder_sparse_step", "3", "ddm");
    dense_layers(ZOO_LLADA_MOE_A, NULL, NULL, "mm");
    dense_layers(ZOO_LLADA_MOE_A, "moe_layer_freq", "[1,0]", "md");
}

static void lists_of_layers_that_do_not_fit_are_named(void **state) {
    (void)state;
    refuses(ZOO_SDAR_MOE, "mlp_only_layers", "[2]", UM_EPARSE, "entry 0 is not a layer from 0 to 1");
    refuses(ZOO_SDAR_MOE, "mlp_only_layers", "[0,-1]", UM_EPARSE, "entry 1 is not a layer from 0 to 1");
    refuses(ZOO_SDAR_MOE, "mlp_only_layers", "['0']", UM_EPARSE, NULL);
    refuses(ZOO_SDAR_MOE, "mlp_only_layers", "0", UM_EPARSE, NULL);
    refuses(ZOO_SDAR_MOE, "decoder_sparse_step", "0", UM_EPARSE, NULL);
    refuses(ZOO_LLADA_MOE_A, "moe_layer_freq", "[1]", UM_EPARSE, "has 1 entries");
    refuses(ZOO_LLADA_MOE_A, "moe_layer_freq", "[1,2]", UM_EPARSE, "entry 1 is neither 0 nor 1");
    refuses(LLADA2, "first_k_dense_replace", "4", UM_EMODEL,
            "\"first_k_dense_replace\" is 4, more than \"num_hidden_layers\" 3");
}

/* ---- Variants ---------------------------------------------------------------------------------------------------- */

static void variants_that_are_not_computed_are_refused(void **state) {
    (void)state;
    refuses(LLADA2, "score_function", "'softmax'", UM_EUNSUPPORTED, NULL);
    refuses(LLADA2, "norm_head", "true", UM_EUNSUPPORTED, NULL);
    refuses(LLADA2, "norm_softmax", "true", UM_EUNSUPPORTED, NULL);
    refuses(LLADA2, "use_rmsnorm", "false", UM_EUNSUPPORTED, NULL);
    refuses(LLADA2, "use_qk_norm", "false", UM_EUNSUPPORTED, NULL);
    refuses(LLADA2, "rope_scaling", "{'type':'yarn','factor':2}", UM_EUNSUPPORTED, NULL);
    refuses(LLADA2, "hidden_act", "'gelu'", UM_EUNSUPPORTED, NULL);
    refuses(ZOO_LLADA_MOE_A, "moe_router_score_function", "'sigmoid'", UM_EUNSUPPORTED, NULL);
    refuses(ZOO_LLADA_MOE_A, "routed_scaling_factor", "2.5", UM_EUNSUPPORTED, NULL);
    refuses(ZOO_LLADA_MOE_A, "clip_qkv", "0", UM_EPARSE, NULL);
    refuses(ZOO_LLADA_MOE_A, "clip_qkv", "-1", UM_EPARSE, NULL);
    refuses(ZOO_SDAR_MOE, "use_regular_causal", "true", UM_EUNSUPPORTED, NULL);
    refuses(ZOO_DREAM, "use_mrope", "true", UM_EUNSUPPORTED, NULL);
    refuses(ZOO_DREAM, "use_sliding_window", "true", UM_EUNSUPPORTED, NULL);
    refuses(ZOO_ILLADA(""), "layer_norm_eps", "0", UM_EPARSE, NULL);
    refuses(ZOO_ILLADA(""), "layer_norm_eps", "'small'", UM_EPARSE, NULL);
}

static void facts_of_variants_are_read(void **state) {
    (void)state;
    um_arch a = accepts(ZOO_LLADA_MOE_B, NULL, NULL);
    assert_true(a.clip_qkv == 0.8f);
    assert_int_equal(a.shared_ff, 48);
    assert_int_equal(a.route.bias, UM_BIAS_SCORE);
    assert_int_equal(a.n_ff, 96);
    a = accepts(ZOO_ILLADA(",'layer_norm_eps':1e-5"), NULL, NULL);
    assert_true(a.layer_norm && a.norm_eps == 1e-5f);
    a = accepts(LLADA2, "num_shared_experts", "2");
    assert_int_equal(a.shared_ff, 64);
    a = accepts(LLADA2, "moe_router_enable_expert_bias", "false");
    assert_int_equal(a.route.bias, UM_BIAS_NONE);
    a = accepts(LLADA2, "num_experts_per_tok", "1");
    assert_false(a.route.normalize); /* a single weight is not normalised */
    a = accepts(LLADA2, "block_size", "16");
    assert_int_equal(a.block, 16);
    a = accepts(LLADA2, "torch_dtype", "'bfloat16'");
    assert_string_equal(a.declared_dtype, "bfloat16");
    a = accepts(LLADA2, "dtype", "'float16'");
    assert_string_equal(a.declared_dtype, "float16");
}

/* ---- Two families with one model_type ---------------------------------------------------------------------------- */

/* Opens a folder whose config.json is `stated` and whose tensors belong to `stored`, and checks its family. */
static void takes_for(const char *stated, const char *stored, const char *family, bool warns) {
    zoo z = zoo_new(stored);
    um_model *m;
    um_err err = {0};
    char *text = quoted(stated);
    zoo_write(&z);
    folder_write_text(z.dir, "config.json", text);
    um_free(text);
    int old = catch_stderr(z.dir);
    um_status s = zoo_open_model(&z, "ref", UM_CHECK_OFF, &m, &err);
    um_buf said = release_stderr(z.dir, old);
    if (s) fail_msg("%s", err.msg);
    assert_string_equal(m->arch.family->name, family);
    assert_int_equal(!!strstr(said.data, "the tensors decide"), warns);
    assert_int_equal(!strcmp(m->arch.rule, "architectures[0]"), !warns);
    um_buf_free(&said);
    zoo_done(&z, m);
}

static void tensors_tell_dream_from_dream_reasoner(void **state) {
    (void)state;
    const char *dream = ZOO_DREAM, *reasoner = ZOO_REASONER(",'attention_bias':false");
    takes_for(dream, dream, "dream", false);
    takes_for(reasoner, reasoner, "dream_reasoner", false);
    takes_for(dream, reasoner, "dream_reasoner", true);
    takes_for(reasoner, dream, "dream", true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_several_names),
        cmocka_unit_test(missing_numbers_are_named),
        cmocka_unit_test(numbers_that_contradict_each_other_are_told_with_both),
        cmocka_unit_test(numbers_beyond_reason_are_refused),
        cmocka_unit_test(layers_with_experts_are_told_in_four_ways),
        cmocka_unit_test(lists_of_layers_that_do_not_fit_are_named),
        cmocka_unit_test(variants_that_are_not_computed_are_refused),
        cmocka_unit_test(facts_of_variants_are_read),
        cmocka_unit_test(tensors_tell_dream_from_dream_reasoner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
