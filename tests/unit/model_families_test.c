/* Recognition of config.json, the table of families, and parameter counts of the released checkpoints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "model_folder.h"

/* ---- Recognition ------------------------------------------------------------------------------------------------- */

static const um_family *detect(const char *text, const char *override, const char **rule, um_err *err) {
    json_t *config = json_of(text);
    const um_family *f = NULL;
    um_status s = um_family_detect(&f, rule, config, "config.json", override, err);
    assert_int_equal(s == UM_OK, f != NULL);
    json_decref(config);
    return f;
}

static void finds(const char *text, const char *override, const char *name, const char *by) {
    const char *rule = NULL;
    um_err err = {0};
    const um_family *f = detect(text, override, &rule, &err);
    if (!f) fail_msg("%s", err.msg);
    assert_string_equal(f->name, name);
    assert_string_equal(rule, by);
}

static void refuses(const char *text, const char *override, const char *part) {
    const char *rule = NULL;
    um_err err = {0};
    assert_null(detect(text, override, &rule, &err));
    assert_int_equal(err.code, UM_EUNSUPPORTED);
    assert_says(&err, "config.json");
    assert_says(&err, part);
    for (size_t i = 0; um_families[i]; i++) assert_says(&err, um_families[i]->name);
}

static void architecture_comes_before_model_type(void **state) {
    (void)state;
    finds("{'architectures':['SDARForCausalLM'],'model_type':'llada'}", NULL, "sdar", "architectures[0]");
    finds("{'architectures':['LLaDAModelLM'],'model_type':'llada'}", NULL, "llada", "architectures[0]");
    finds("{'architectures':['Fast_dLLM_QwenForCausalLM']}", NULL, "fast_dllm_v2", "architectures[0]");
}

static void model_type_decides_without_architecture(void **state) {
    (void)state;
    finds("{'model_type':'sdar'}", NULL, "sdar", "model_type");
    finds("{'architectures':[],'model_type':'Fast_dLLM_Qwen'}", NULL, "fast_dllm_v2", "model_type");
    finds("{'architectures':['SomethingOfMine'],'model_type':'sdar'}", NULL, "sdar", "model_type");
}

static void stable_diffcoder_is_no_llama(void **state) {
    (void)state;
    finds("{'architectures':['StableDiffcoderForCausalLM'],'model_type':'llama'}", NULL, "stable_diffcoder",
          "architectures[0]");
}

static void autoregressive_models_are_refused_by_name(void **state) {
    (void)state;
    static const char *const names[] = {"LlamaForCausalLM",    "Qwen2ForCausalLM",     "Qwen3ForCausalLM",
                                        "Qwen3MoeForCausalLM", "MistralForCausalLM",   "Gemma3ForCausalLM",
                                        "GPT2LMHeadModel",     "GPTNeoXForCausalLM",   "Phi3ForCausalLM",
                                        "FalconForCausalLM",   "DeepseekV3ForCausalLM"};
    for (size_t i = 0; i < UM_LEN(names); i++) {
        char text[128], part[128];
        snprintf(text, sizeof text, "{'architectures':['%s']}", names[i]);
        snprintf(part, sizeof part, "%s: an autoregressive model", names[i]);
        refuses(text, NULL, part);
    }
    refuses("{'model_type':'llama'}", NULL, "llama: an autoregressive model");
    refuses("{'architectures':['LlamaForCausalLM'],'model_type':'sdar'}", NULL, "an autoregressive model");
}

static void families_to_come_are_named(void **state) {
    (void)state;
    refuses("{'architectures':['DreamModel'],'model_type':'Dream'}", NULL, "Dream or DiffuCoder");
    refuses("{'architectures':['LLaDA2MoeModelLM']}", NULL, "LLaDA2");
    refuses("{'model_type':'sdar_moe'}", NULL, "SDAR-MoE");
    refuses("{'architectures':['LLaDAMoEModelLM'],'model_type':'llada'}", NULL, "LLaDA-MoE");
}

static void experts_under_a_dense_name_are_refused(void **state) {
    (void)state;
    refuses("{'model_type':'llada','num_experts':64}", NULL, "mixture of experts");
    refuses("{'architectures':['LLaDAModelLM'],'moe_layer_freq':[1,1]}", NULL, "mixture of experts");
    finds("{'architectures':['LLaDAModelLM'],'num_experts':null}", NULL, "llada", "architectures[0]");
}

static void unknown_architectures_are_refused(void **state) {
    (void)state;
    refuses("{'architectures':['FooBarModel']}", NULL, "architecture FooBarModel: not known");
    refuses("{}", NULL, "(none given)");
    refuses("{'architectures':'SDARForCausalLM','model_type':7}", NULL, "(none given)");
}

static void the_user_may_name_the_family(void **state) {
    (void)state;
    finds("{'architectures':['LlamaForCausalLM']}", "sdar", "sdar", "named by the user");
    finds("{'architectures':['LlamaForCausalLM']}", "TraDo", "sdar", "named by the user");
    finds("{'architectures':['SDARForCausalLM']}", "auto", "sdar", "architectures[0]");
    refuses("{'architectures':['SDARForCausalLM']}", "sdarr", "sdarr: no such family");
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

static void every_row_is_whole(void **state) {
    (void)state;
    for (size_t i = 0; um_families[i]; i++) {
        const um_family *f = um_families[i];
        assert_true(f->name && f->summary && f->source && f->architectures && f->names && f->configure);
        assert_true(f->strategies && *f->strategies);
        assert_true(!strcmp(f->gate, "previous") || !strcmp(f->gate, "always"));
        assert_true(f->accept_threshold > 0 && f->accept_threshold < 1);
        assert_true(isnan(f->compat_threshold) || (f->compat_threshold > 0 && f->compat_threshold < 1));
        assert_ptr_equal(um_family_find(f->name), f);
        char folder[256];
        snprintf(folder, sizeof folder, "tests/golden/models/%s/config.json", f->name);
        assert_true(um_file_exists(folder));
    }
}

static void names_and_architectures_are_unique(void **state) {
    (void)state;
    for (size_t i = 0; um_families[i]; i++) {
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(um_families[i]->name, um_families[k]->name);
            assert_null(strstr(um_families[i]->architectures, um_families[k]->architectures));
        }
    }
}

/* ---- Released checkpoints, by their published numbers -------------------------------------------------------------
 */

static um_arch arch_of(const char *text) {
    um_arch a;
    um_err err = {0};
    json_t *config = json_of(text);
    if (um_arch_parse(&a, config, "config.json", NULL, &err)) fail_msg("%s", err.msg);
    json_decref(config);
    return a;
}

static const char llada_8b[] =
    "{'architectures':['LLaDAModelLM'],'model_type':'llada','d_model':4096,'n_heads':32,'n_kv_heads':32,'n_layers':32,"
    "'mlp_hidden_size':12288,'mlp_ratio':4,'vocab_size':126464,'embedding_size':126464,'max_sequence_length':4096,"
    "'rope':true,'rope_theta':500000.0,'rope_full_precision':true,'rms_norm_eps':1e-5,'layer_norm_type':'rms',"
    "'block_type':'llama','activation_type':'silu','weight_tying':false,'include_bias':false,'include_qkv_bias':false,"
    "'bias_for_layer_norm':false,'attention_layer_norm':false,'input_emb_norm':false,'scale_logits':false,"
    "'alibi':false,'clip_qkv':null,'multi_query_attention':null,'mask_token_id':126336,'eos_token_id':126081}";
static const char sdar_4b[] =
    "{'architectures':['SDARForCausalLM'],'model_type':'sdar','hidden_size':2560,'num_hidden_layers':36,"
    "'num_attention_heads':32,'num_key_value_heads':8,'head_dim':128,'intermediate_size':9728,'vocab_size':151936,"
    "'rope_theta':1000000,'rope_scaling':null,'rms_norm_eps':1e-6,'tie_word_embeddings':false,'attention_bias':false,"
    "'max_position_embeddings':32768,'hidden_act':'silu','use_sliding_window':false}";
static const char fast_7b[] =
    "{'architectures':['Fast_dLLM_QwenForCausalLM'],'hidden_size':3584,'num_hidden_layers':28,'num_attention_heads':28,"
    "'num_key_value_heads':4,'intermediate_size':18944,'vocab_size':152064,'rope_theta':1000000.0,'rms_norm_eps':1e-6,"
    "'tie_word_embeddings':false,'max_position_embeddings':32768,'hidden_act':'silu','bd_size':32}";
static const char fast_1b[] =
    "{'architectures':['Fast_dLLM_QwenForCausalLM'],'hidden_size':1536,'num_hidden_layers':28,'num_attention_heads':12,"
    "'num_key_value_heads':2,'intermediate_size':8960,'vocab_size':151936,'rope_theta':1000000.0,'rms_norm_eps':1e-6,"
    "'tie_word_embeddings':true,'max_position_embeddings':32768,'hidden_act':'silu','bd_size':32}";
static const char diffcoder_8b[] =
    "{'architectures':['StableDiffcoderForCausalLM'],'model_type':'llama','hidden_size':4096,'num_hidden_layers':32,"
    "'num_attention_heads':32,'num_key_value_heads':8,'head_dim':128,'intermediate_size':14336,'vocab_size':155136,"
    "'rope_theta':500000.0,'rms_norm_eps':1e-5,'tie_word_embeddings':false,'attention_bias':false,'mlp_bias':false,"
    "'max_position_embeddings':8192,'hidden_act':'silu'}";

static void parameter_counts_equal_the_published_ones(void **state) {
    (void)state;
    um_arch a = arch_of(llada_8b);
    assert_int_equal(um_arch_params(&a), 8015581184);
    a = arch_of(sdar_4b);
    assert_int_equal(um_arch_params(&a), 4411424256);
    a = arch_of(fast_7b);
    assert_int_equal(um_arch_params(&a), 7615616512);
    a = arch_of(fast_1b);
    assert_int_equal(um_arch_params(&a), 1543714304);
    a = arch_of(diffcoder_8b);
    assert_int_equal(um_arch_params(&a), 8250462208);
}

static void kv_bytes_equal_the_published_ones(void **state) {
    (void)state;
    um_arch a = arch_of(llada_8b);
    assert_int_equal(um_arch_kv_bytes(&a, UM_BF16), 524288);
    a = arch_of(sdar_4b);
    assert_int_equal(um_arch_kv_bytes(&a, UM_BF16), 147456);
    assert_int_equal(um_arch_kv_bytes(&a, UM_F32), 2 * 147456);
    a = arch_of(fast_7b);
    assert_int_equal(um_arch_kv_bytes(&a, UM_BF16), 57344);
}

static void family_facts_are_in_the_arch(void **state) {
    (void)state;
    um_arch a = arch_of(sdar_4b);
    assert_int_equal(a.see, UM_SEE_BLOCK_CAUSAL);
    assert_int_equal(a.block, 4);
    assert_int_equal(a.shift, 0);
    assert_true(a.qk_norm && !a.qkv_bias);
    assert_string_equal(a.default_strategy, "multi_bd");
    a = arch_of(fast_7b);
    assert_int_equal(a.block, 32);
    assert_int_equal(a.shift, 1);
    assert_true(a.qkv_bias && !a.o_bias && !a.qk_norm);
    a = arch_of(diffcoder_8b);
    assert_int_equal(a.block, 4);
    assert_true(!a.qkv_bias && !a.qk_norm && !a.tied);
    a = arch_of(llada_8b);
    assert_int_equal(a.see, UM_SEE_FULL);
    assert_int_equal(a.head_dim, 128);
    assert_string_equal(a.default_strategy, "full");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(architecture_comes_before_model_type),
        cmocka_unit_test(model_type_decides_without_architecture),
        cmocka_unit_test(stable_diffcoder_is_no_llama),
        cmocka_unit_test(autoregressive_models_are_refused_by_name),
        cmocka_unit_test(families_to_come_are_named),
        cmocka_unit_test(experts_under_a_dense_name_are_refused),
        cmocka_unit_test(unknown_architectures_are_refused),
        cmocka_unit_test(the_user_may_name_the_family),
        cmocka_unit_test(every_row_is_whole),
        cmocka_unit_test(names_and_architectures_are_unique),
        cmocka_unit_test(parameter_counts_equal_the_published_ones),
        cmocka_unit_test(kv_bytes_equal_the_published_ones),
        cmocka_unit_test(family_facts_are_in_the_arch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
