/* Tests of DiffusionGemma's config.json: both forms of the heads of full layers, and files that are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "model_fields.h"

static const char base[] =
    "{'architectures':['DiffusionGemmaForBlockDiffusion'],'canvas_length':8,'text_config':{'hidden_size':64,"
    "'intermediate_size':48,'num_hidden_layers':3,'layer_types':['sliding_attention','sliding_attention',"
    "'full_attention'],'num_attention_heads':4,'num_key_value_heads':2,'head_dim':16,'global_head_dim':32,"
    "'num_global_key_value_heads':1,'num_experts':8,'top_k_experts':2,'moe_intermediate_size':16,"
    "'sliding_window':8,'final_logit_softcapping':30.0,'rms_norm_eps':1e-6,'vocab_size':500,"
    "'max_position_embeddings':256,'hidden_activation':'gelu_pytorch_tanh','rope_parameters':{"
    "'sliding_attention':{'rope_type':'default','rope_theta':10000.0},'full_attention':{"
    "'rope_type':'proportional','partial_rotary_factor':0.25,'rope_theta':1000000.0}}}}";

/* Parses the configuration with a field of text_config set, or removed when the value is NULL. */
static um_status parse_text(um_arch *a, const char *const (*field)[2], size_t n, um_err *err) {
    json_t *config = json_of(base), *text = json_object_get(config, "text_config");
    for (size_t i = 0; i < n; i++) {
        if (field[i][1]) json_object_set_new(text, field[i][0], json_of(field[i][1]));
        else json_object_del(text, field[i][0]);
    }
    const um_status s = um_arch_parse(a, config, "config.json", NULL, err);
    json_decref(config);
    return s;
}

static void refuses_text(const char *key, const char *value, um_status want, const char *part) {
    const char *const field[][2] = {{key, value}};
    um_arch a;
    um_err err = {0};
    const um_status s = parse_text(&a, field, 1, &err);
    if (s != want)
        fail_msg("%s = %s gives status %d, expected %d: %s", key, value ? value : "(absent)", s, want, err.msg);
    assert_says(&err, part ? part : key);
}

static void frequencies_of_the_rest_are_zero(void **state) {
    (void)state;
    const um_arch a = accepts(base, NULL, NULL);
    const um_arch_kind *full = &a.kind[1];
    assert_int_equal(full->rope_pairs, 4);
    assert_int_equal(full->rope_dim, 32);
    assert_true(fabsf(um_arch_frequency(&a, full, 1) - 0.421696503f) < 1e-7f);
    assert_true(um_arch_frequency(&a, full, 3) > 0 && um_arch_frequency(&a, full, 4) == 0);
}

static void heads_are_written_in_two_ways(void **state) {
    (void)state;
    const char *const layers[][2] = {{"global_head_dim", NULL},
                                     {"num_global_key_value_heads", NULL},
                                     {"per_layer_config", "{'2':{'head_dim':48,'num_key_value_heads':4}}"}};
    um_arch a;
    um_err err = {0};
    if (parse_text(&a, layers, 3, &err)) fail_msg("%s", err.msg);
    assert_int_equal(a.kind[1].head_dim, 48);
    assert_int_equal(a.kind[1].n_kv_heads, 4);
    assert_int_equal(a.kind[0].head_dim, 16);
    const char *const defaults[][2] = {{"global_head_dim", NULL}, {"num_global_key_value_heads", "null"}};
    if (parse_text(&a, defaults, 2, &err)) fail_msg("%s", err.msg);
    assert_int_equal(a.kind[1].head_dim, 512);
    assert_int_equal(a.kind[1].n_kv_heads, 2);
}

static void the_last_layer_is_full(void **state) {
    (void)state;
    const char *const types[][2] = {{"layer_types", "['full_attention','sliding_attention','sliding_attention']"}};
    const char *const none[][2] = {{"layer_types", "null"}};
    um_arch a;
    um_err err = {0};
    assert_int_equal(parse_text(&a, types, 1, &err), UM_OK);
    assert_true(a.of_layer[0] == 1 && a.of_layer[1] == 0 && a.of_layer[2] == 1);
    assert_int_equal(parse_text(&a, none, 1, &err), UM_OK);
    assert_true(a.of_layer[0] == 0 && a.of_layer[1] == 0 && a.of_layer[2] == 1);
}

static void bad_files_are_refused(void **state) {
    (void)state;
    refuses_text("per_layer_config", "{'2':{'head_dim':32}}", UM_EMODEL, "\"global_head_dim\"");
    refuses_text("per_layer_config", "{'2':{'head_dim':32}}", UM_EMODEL, "mixes two formats: remove");
    refuses_text("sliding_window", "257", UM_EMODEL, "max_position_embeddings");
    refuses_text("sliding_window", "0", UM_EPARSE, NULL);
    refuses_text("sliding_window", NULL, UM_EMODEL, NULL);
    refuses_text("layer_types", "['full_attention']", UM_EPARSE, NULL);
    refuses_text("layer_types", "['full_attention','mamba','full_attention']", UM_EUNSUPPORTED, "entry 1");
    refuses_text("attention_bias", "true", UM_EUNSUPPORTED, NULL);
    refuses_text("hidden_activation", "'silu'", UM_EUNSUPPORTED, NULL);
    refuses_text("use_bidirectional_attention", "'all'", UM_EUNSUPPORTED, NULL);
    refuses_text("hidden_size_per_layer_input", "256", UM_EUNSUPPORTED, NULL);
    refuses_text("top_k_experts", "9", UM_EMODEL, NULL);
    refuses_text("num_global_key_value_heads", "3", UM_EMODEL, "3 key and value heads");
    refuses_text("final_logit_softcapping", "0.0", UM_EPARSE, NULL);
    refuses_text("rope_parameters", "{'sliding_attention':{'rope_theta':10000.0}}", UM_EMODEL, "full_attention");
    refuses_text("rope_parameters",
                 "{'sliding_attention':{'rope_type':'yarn','rope_theta':1.0},'full_attention':{'rope_theta':1.0}}",
                 UM_EUNSUPPORTED, "yarn");
    refuses(base, "canvas_length", "0", UM_EPARSE, NULL);
    refuses(base, "canvas_length", "257", UM_EPARSE, NULL);
    refuses(base, "canvas_length", NULL, UM_EMODEL, NULL);
    refuses(base, "tie_word_embeddings", "false", UM_EUNSUPPORTED, NULL);
    refuses(base, "text_config", NULL, UM_EMODEL, NULL);
}

static void entries_of_layers_are_checked(void **state) {
    (void)state;
    static const char *const bad[] = {"{'3':{'head_dim':32}}", "{'x':{}}", "{'2':7}", "{'0':{'head_dim':32}}", "[]"};
    for (size_t i = 0; i < UM_LEN(bad); i++) {
        const char *const field[][2] = {
            {"global_head_dim", NULL}, {"num_global_key_value_heads", NULL}, {"per_layer_config", bad[i]}};
        um_arch a;
        um_err err = {0};
        if (!parse_text(&a, field, 3, &err)) fail_msg("%s is accepted", bad[i]);
        assert_says(&err, "per_layer_config");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_of_the_rest_are_zero), cmocka_unit_test(heads_are_written_in_two_ways),
        cmocka_unit_test(the_last_layer_is_full),           cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(entries_of_layers_are_checked),
    };
    return cmocka_run_group_tests_name("DiffusionGemma's configuration", tests, NULL, NULL);
}
