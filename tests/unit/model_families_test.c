/* Tests of recognising a config.json, of the table of families, and of the parameter counts of released checkpoints. */
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

static void conversions_that_leave_attention_open_are_refused(void **state) {
    (void)state;
    static const char *const names[][2] = {
        {"'architectures':['A2DQwen3LMHeadModel'],'model_type':'a2d-qwen3'", "architecture A2DQwen3LMHeadModel"},
        {"'architectures':['A2DQwen2LMHeadModel'],'model_type':'a2d-qwen2'", "architecture A2DQwen2LMHeadModel"},
        {"'architectures':['A2DLlamaLMHeadModel'],'model_type':'a2d-llama'", "architecture A2DLlamaLMHeadModel"},
        {"'model_type':'a2d-qwen3'", "model_type a2d-qwen3"},
    };
    for (size_t i = 0; i < UM_LEN(names); i++) {
        char text[160];
        snprintf(text, sizeof text, "{%s}", names[i][0]);
        refuses(text, NULL, names[i][1]);
        refuses(text, NULL, "does not say whether its attention is full or block-causal");
        refuses(text, NULL, "--model-name sdar");
    }
    finds("{'architectures':['A2DQwen3LMHeadModel'],'model_type':'a2d-qwen3'}", "sdar", "sdar", "named by the user");
}

static void experts_tell_families_of_one_model_type_apart(void **state) {
    (void)state;
    finds("{'model_type':'llada','num_experts':64}", NULL, "llada_moe", "model_type");
    finds("{'model_type':'llada','moe_layer_freq':[1,1]}", NULL, "llada_moe", "model_type");
    finds("{'model_type':'llada'}", NULL, "llada", "model_type");
    finds("{'architectures':['LLaDAMoEModelLM'],'model_type':'llada'}", NULL, "llada_moe", "architectures[0]");
}

static void norms_tell_families_of_one_architecture_apart(void **state) {
    (void)state;
    finds("{'architectures':['WeDLMForCausalLM'],'qk_norm':true}", NULL, "wedlm", "architectures[0]");
    finds("{'architectures':['WeDLMForCausalLM'],'qk_norm':false}", NULL, "wedlm_7b", "architectures[0]");
    finds("{'architectures':['WeDLMForCausalLM'],'attention_bias':true}", NULL, "wedlm_7b", "architectures[0]");
    finds("{'architectures':['WeDLMForCausalLM'],'attention_bias':true,'qk_norm':true}", NULL, "wedlm",
          "architectures[0]");
    finds("{'model_type':'wedlm'}", NULL, "wedlm", "model_type");
    finds("{'model_type':'wedlm','attention_bias':true}", NULL, "wedlm_7b", "model_type");
    finds("{'model_type':'Dream','qk_norm':true}", NULL, "dream", "model_type"); /* another architecture */
}

static void experts_under_a_dense_name_are_refused(void **state) {
    (void)state;
    refuses("{'architectures':['LLaDAModelLM'],'moe_layer_freq':[1,1]}", NULL, "mixture of experts");
    refuses("{'model_type':'sdar','num_experts':8}", NULL, "mixture of experts");
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
        assert_true(!f->experts || (f->names->router && f->names->experts));
        assert_true(!f->twin || (f->twin->twin == f && f->twin->stores_qk_norm != f->stores_qk_norm));
    }
}

static void names_and_architectures_are_unique(void **state) {
    (void)state;
    for (size_t i = 0; um_families[i]; i++) {
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(um_families[i]->name, um_families[k]->name);
            if (um_families[i]->twin == um_families[k]) continue; /* the norms of queries tell them apart */
            const bool shared = um_families[i]->variant_of == um_families[k];
            assert_int_equal(strstr(um_families[i]->architectures, um_families[k]->architectures) != NULL, shared);
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

static const char illada_8b[] =
    "{'architectures':['ILLaDAForCausalLM'],'model_type':'illada','hidden_size':4096,'num_hidden_layers':32,"
    "'num_attention_heads':32,'num_key_value_heads':8,'intermediate_size':14336,'vocab_size':155136,"
    "'rope_theta':500000.0,'rope_scaling':null,'rms_norm_eps':1e-6,'layer_norm_eps':null,'tie_word_embeddings':true,"
    "'attention_bias':false,'mlp_bias':false,'max_position_embeddings':8192,'hidden_act':'silu'}";
static const char llada_moe_7b[] =
    "{'architectures':['LLaDAMoEModelLM'],'model_type':'llada','hidden_size':2048,'num_hidden_layers':16,"
    "'num_attention_heads':16,'num_key_value_heads':16,'num_experts':64,'num_experts_per_tok':8,"
    "'expert_intermediate_size':1024,'dense_intermediate_size':8192,'shared_expert_intermediate_size':null,"
    "'moe_layer_freq':[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],'rope_theta':50000,'partial_rotary_factor':1,"
    "'max_position_embeddings':8192,'qk_layernorm':true,'vocab_size':157184,'rms_norm_eps':1e-5,"
    "'attention_bias':false,'clip_qkv':null,'norm_topk_prob':true,'tie_word_embeddings':false,'hidden_act':'silu',"
    "'mask_token_id':156895,'eos_token_id':156892,'pad_token_id':156892}";
static const char dream_7b[] =
    "{'architectures':['DreamModel'],'model_type':'Dream','hidden_size':3584,'num_hidden_layers':28,"
    "'num_attention_heads':28,'num_key_value_heads':4,'intermediate_size':18944,'vocab_size':152064,"
    "'rms_norm_eps':1e-6,'rope_theta':1000000.0,'rope_scaling':null,'max_position_embeddings':131072,"
    "'tie_word_embeddings':false,'use_sliding_window':false,'use_mrope':false,'hidden_act':'silu',"
    "'mask_token_id':151666,'bos_token_id':151643,'eos_token_id':151643,'pad_token_id':151643}";
static const char dream_reasoner_8b[] =
    "{'architectures':['DreamForCausalLM'],'model_type':'Dream','hidden_size':4096,'num_hidden_layers':36,"
    "'num_attention_heads':32,'num_key_value_heads':8,'head_dim':128,'intermediate_size':12288,'vocab_size':151936,"
    "'rms_norm_eps':1e-6,'rope_theta':1000000.0,'max_position_embeddings':32768,'tie_word_embeddings':false,"
    "'attention_bias':false,'block_size':32,'hidden_act':'silu'}";
#define LLADA2(hidden, layers, heads, dense, width, more)                                                              \
    "{'architectures':['LLaDA2MoeModelLM'],'model_type':'llada2_moe','hidden_size':" hidden                            \
    ",'num_hidden_layers':" layers ",'num_attention_heads':" heads                                                     \
    ",'num_key_value_heads':4,'head_dim':128,'intermediate_size':" dense ",'moe_intermediate_size':" width             \
    ",'num_experts':256,'num_experts_per_tok':8,'num_shared_experts':1,'n_group':8,'topk_group':4,"                    \
    "'first_k_dense_replace':1,'score_function':'sigmoid','moe_router_enable_expert_bias':true,"                       \
    "'router_dtype':'fp32','norm_topk_prob':true,'routed_scaling_factor':2.5,'rms_norm_eps':1e-6,"                     \
    "'rope_theta':600000,'partial_rotary_factor':0.5,'rotary_dim':64,'rope_scaling':null,"                             \
    "'max_position_embeddings':32768,'vocab_size':157184,'pad_token_id':156892,'tie_word_embeddings':false,"           \
    "'use_bias':false,'use_qkv_bias':false,'norm_head':false,'norm_softmax':false,'use_qk_norm':true,"                 \
    "'use_rmsnorm':true,'hidden_act':'silu'" more "}"
static const char llada2_mini[] = LLADA2("2048", "20", "16", "5120", "512", "");
static const char llada2_flash[] = LLADA2("4096", "32", "32", "9216", "1024", "");
static const char llada22_flash[] = LLADA2("4096", "32", "32", "9216", "1024",
                                           ",'expert_capacity':48,'block_size':32,'delete_token_id':156930,"
                                           "'split_token_id':156931");
#define QWEN3_MOE(names, positions, more)                                                                              \
    "{" names ",'hidden_size':2048,'num_hidden_layers':48,'num_attention_heads':32,'num_key_value_heads':4,"           \
    "'head_dim':128,'num_experts':128,'num_experts_per_tok':8,'moe_intermediate_size':768,'intermediate_size':6144,"   \
    "'decoder_sparse_step':1,'mlp_only_layers':[],'norm_topk_prob':true,'rope_theta':1000000.0,'rms_norm_eps':1e-6,"   \
    "'vocab_size':151936,'tie_word_embeddings':false,'attention_bias':false,'hidden_act':'silu',"                      \
    "'max_position_embeddings':" positions more "}"
static const char sdar_30b[] =
    QWEN3_MOE("'architectures':['SDARMoeForCausalLM'],'model_type':'sdar_moe'", "32768", ",'rope_scaling':null");
static const char rnd1[] = QWEN3_MOE("'architectures':['RND1'],'model_type':'rnd1'", "40960",
                                     ",'rope_scaling':false,'sliding_window':false,'mask_token_id':151669");
static const char nemotron_3b[] =
    "{'architectures':['NemotronLabsDiffusionModel'],'model_type':'nemotron_labs_diffusion','hidden_size':3072,"
    "'num_hidden_layers':26,'num_attention_heads':32,'num_key_value_heads':8,'head_dim':128,'intermediate_size':9216,"
    "'vocab_size':131072,'rms_norm_eps':1e-5,'tie_word_embeddings':false,'attention_bias':false,'mlp_bias':false,"
    "'max_position_embeddings':262144,'hidden_act':'silu','rope_parameters':{'rope_type':'yarn','rope_theta':1e6,"
    "'factor':16.0,'original_max_position_embeddings':16384,'beta_fast':32.0,'beta_slow':1.0,'mscale':1.0,"
    "'mscale_all_dim':1.0,'llama_4_scaling_beta':0.1}}";
static const char nemotron_research_8b[] =
    "{'architectures':['DiffEncoderModel'],'hidden_size':4096,'num_hidden_layers':36,'num_attention_heads':32,"
    "'num_key_value_heads':8,'head_dim':128,'intermediate_size':12288,'vocab_size':151936,'rope_theta':1000000,"
    "'rms_norm_eps':1e-6,'tie_word_embeddings':false,'attention_bias':false,'max_position_embeddings':32768,"
    "'hidden_act':'silu'}";
#define WEDLM(hidden, layers, heads, kv_heads, ff, vocab, more)                                                        \
    "{'architectures':['WeDLMForCausalLM'],'model_type':'wedlm','hidden_size':" hidden ",'num_hidden_layers':" layers  \
    ",'num_attention_heads':" heads ",'num_key_value_heads':" kv_heads ",'head_dim':128,'intermediate_size':" ff       \
    ",'vocab_size':" vocab ",'rope_theta':1000000,'rms_norm_eps':1e-6,'tie_word_embeddings':false,"                    \
    "'max_position_embeddings':16384,'hidden_act':'silu'" more "}"
static const char wedlm_7b[] =
    WEDLM("3584", "28", "28", "4", "18944", "152064", ",'attention_bias':true,'qk_norm':false");
static const char wedlm_8b[] = WEDLM("4096", "36", "32", "8", "12288", "151936", ",'attention_bias':false");

static const char diffusion_gemma_26b[] =
    "{'architectures':['DiffusionGemmaForBlockDiffusion'],'model_type':'diffusion_gemma','canvas_length':256,"
    "'text_config':{'hidden_size':2816,'num_hidden_layers':30,'num_attention_heads':16,'num_key_value_heads':8,"
    "'head_dim':256,'num_global_key_value_heads':2,'global_head_dim':512,'intermediate_size':2112,'num_experts':128,"
    "'top_k_experts':8,'moe_intermediate_size':704,'sliding_window':1024,'final_logit_softcapping':30.0,"
    "'rms_norm_eps':1e-6,'vocab_size':262144,'max_position_embeddings':262144,"
    "'hidden_activation':'gelu_pytorch_tanh','rope_parameters':{'sliding_attention':{'rope_type':'default',"
    "'rope_theta':10000.0},'full_attention':{'rope_type':'proportional','partial_rotary_factor':0.25,"
    "'rope_theta':1000000.0}}}}";

/* The numbers are: parameters; bytes of the keys and values of a token in bf16; for mixtures of experts, the millions
 * of parameters that a token uses, with and without embedding and head. */
static const struct {
    const char *config, *family;
    int64_t parameters, kv, active, without_tables;
} releases[] = {
    {llada_8b, "llada", 8015581184, 524288, 0, 0},
    {illada_8b, "illada", 7615025152, 131072, 0, 0},
    {llada_moe_7b, "llada_moe", 7356880896, 131072, 1720, 1076},
    {dream_7b, "dream", 7615616512, 57344, 0, 0},
    {dream_reasoner_8b, "dream_reasoner", 8190735360, 147456, 0, 0},
    {llada2_mini, "llada2", 16255643392, 40960, 1433, 789},
    {llada2_flash, "llada2", 102889705216, 65536, 6152, 4865},
    {llada22_flash, "llada2_2", 102889705216, 65536, 6152, 4865},
    {sdar_4b, "sdar", 4411424256, 147456, 0, 0},
    {sdar_30b, "sdar_moe", 30532122624, 98304, 3353, 2731},
    {fast_7b, "fast_dllm_v2", 7615616512, 57344, 0, 0},
    {fast_1b, "fast_dllm_v2", 1543714304, 28672, 0, 0},
    {diffcoder_8b, "stable_diffcoder", 8250462208, 131072, 0, 0},
    {rnd1, "rnd1", 30532122624, 98304, 3353, 2731},
    {nemotron_3b, "nemotron", 3831659520, 106496, 0, 0},
    {nemotron_research_8b, "nemotron_research", 8190735360, 147456, 0, 0},
    {wedlm_7b, "wedlm_7b", 7615616512, 57344, 0, 0},
    {wedlm_8b, "wedlm", 8190735360, 147456, 0, 0},
    {diffusion_gemma_26b, "diffusion_gemma", 25250986782, 225280, 3840, 3102},
};

static int64_t millions(int64_t n) { return (n + 500000) / 1000000; }

static void counts_equal_the_published_ones(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(releases); i++) {
        um_arch a = arch_of(releases[i].config);
        assert_string_equal(a.family->name, releases[i].family);
        assert_int_equal(um_arch_params(&a), releases[i].parameters);
        int64_t active = um_arch_active_params(&a);
        if (releases[i].active) {
            assert_int_equal(millions(active), releases[i].active);
            assert_int_equal(millions(active - um_arch_embedding_params(&a)), releases[i].without_tables);
        } else {
            assert_int_equal(active, releases[i].parameters);
        }
        assert_int_equal(um_arch_kv_bytes(&a, UM_BF16), releases[i].kv);
        assert_int_equal(um_arch_kv_bytes(&a, UM_F32), 2 * releases[i].kv);
        size_t heads = 0; /* each has a scale for its key and one for its value */
        for (int32_t k = 0; k < a.n_layers; k++) heads += (size_t)um_arch_kind_of(&a, k)->n_kv_heads;
        assert_int_equal(um_arch_kv_bytes(&a, UM_F8), (size_t)releases[i].kv / 2 + heads * 2 * sizeof(float));
    }
}

static void every_family_has_a_release(void **state) {
    (void)state;
    for (size_t i = 0; um_families[i]; i++) {
        bool found = false;
        for (size_t k = 0; k < UM_LEN(releases); k++) found |= um_streq(releases[k].family, um_families[i]->name);
        assert_true(found);
    }
}

static void what_tells_another_decoder_to_edit_is_no_answer(void **state) {
    (void)state;
    um_arch a = arch_of(llada22_flash);
    assert_int_equal(a.n_ban, 2);
    assert_int_equal(a.ban[0], 156930);
    assert_int_equal(a.ban[1], 156931);
    assert_int_equal(a.delete_id, 156930);
    assert_int_equal(a.split_id, 156931);
    a = arch_of(llada2_flash);
    assert_int_equal(a.n_ban, 0);
    assert_int_equal(a.delete_id, -1);
    assert_int_equal(a.split_id, -1);
}

static void family_facts_are_in_the_arch(void **state) {
    (void)state;
    static const struct {
        const char *config, *strategy;
        um_see see;
        int32_t block, shift;
        bool qk_norm, qkv_bias;
    } facts[] = {
        {llada_8b, "full", UM_SEE_FULL, 0, 0, false, false},
        {illada_8b, "full", UM_SEE_FULL, 0, 0, false, false},
        {llada_moe_7b, "full", UM_SEE_FULL, 0, 0, true, false},
        {dream_7b, "full", UM_SEE_FULL, 0, 1, false, true},
        {dream_reasoner_8b, "multi_bd", UM_SEE_BLOCK_CAUSAL, 32, 0, true, false},
        {llada2_mini, "multi_bd", UM_SEE_BLOCK_CAUSAL, 32, 0, true, false},
        {llada22_flash, "levenshtein", UM_SEE_BLOCK_CAUSAL, 32, 0, true, false},
        {sdar_4b, "multi_bd", UM_SEE_BLOCK_CAUSAL, 4, 0, true, false},
        {sdar_30b, "multi_bd", UM_SEE_BLOCK_CAUSAL, 4, 0, true, false},
        {fast_7b, "fast_dllm_v2", UM_SEE_BLOCK_CAUSAL, 32, 1, false, true},
        {diffcoder_8b, "multi_bd", UM_SEE_BLOCK_CAUSAL, 4, 0, false, false},
        {rnd1, "full", UM_SEE_FULL, 0, 1, true, false},
        {nemotron_3b, "seeded_bd", UM_SEE_CAUSAL, 32, 0, false, false},
        {nemotron_research_8b, "seeded_bd", UM_SEE_CAUSAL, 32, 0, true, false},
        {wedlm_7b, "causal_window", UM_SEE_CAUSAL, 16, 0, false, true},
        {wedlm_8b, "causal_window", UM_SEE_CAUSAL, 16, 0, true, false},
    };
    for (size_t i = 0; i < UM_LEN(facts); i++) {
        um_arch a = arch_of(facts[i].config);
        assert_string_equal(a.default_strategy, facts[i].strategy);
        assert_int_equal(a.see, facts[i].see);
        assert_int_equal(a.block, facts[i].block);
        assert_int_equal(a.shift, facts[i].shift);
        assert_int_equal(a.qk_norm, facts[i].qk_norm);
        assert_int_equal(a.qkv_bias, facts[i].qkv_bias);
        assert_false(a.o_bias);
        assert_false(a.layer_norm);
        assert_int_equal(a.head_dim, 128);
    }
}

/* DiffusionGemma writes the heads of full layers in one of two ways. */
static void layers_of_two_kinds(void **state) {
    (void)state;
    um_arch a = arch_of(diffusion_gemma_26b);
    assert_string_equal(a.default_strategy, "renoising");
    assert_int_equal(a.block, 256);
    assert_int_equal(a.n_kinds, 2);
    for (int32_t i = 0; i < a.n_layers; i++) {
        const um_arch_kind *k = um_arch_kind_of(&a, i);
        const bool full = i % 6 == 5;
        assert_int_equal(k->window, full ? 0 : 1024);
        assert_int_equal(k->head_dim, full ? 512 : 256);
        assert_int_equal(k->n_kv_heads, full ? 2 : 8);
        assert_int_equal(k->rope_pairs, full ? 64 : 128);
        assert_int_equal(k->rope_dim, k->head_dim);
        assert_int_equal(k->v_is_k, full);
        assert_true(k->n_ff == 2112 && k->expert_ff == 704 && k->post_norms && k->v_norm);
    }
    assert_int_equal(um_arch_window_kv_bytes(&a, UM_BF16, false), 20480);
    assert_int_equal(um_arch_window_kv_bytes(&a, UM_BF16, true), 204800);
}

static void routes_are_those_of_the_families(void **state) {
    (void)state;
    um_arch a = arch_of(llada2_mini);
    assert_int_equal(a.route.score, UM_SCORE_SIGMOID);
    assert_int_equal(a.route.bias, UM_BIAS_CHOICE);
    assert_int_equal(a.route.n_group, 8);
    assert_int_equal(a.route.topk_group, 4);
    assert_int_equal(a.route.capacity, 0);
    assert_true(a.route.normalize && a.route.scale == 2.5f);
    assert_int_equal(a.shared_ff, 512);
    assert_int_equal(a.rope_dim, 64);
    assert_true(!um_arch_is_moe(&a, 0) && um_arch_is_moe(&a, 1) && um_arch_is_moe(&a, 19));
    a = arch_of(llada22_flash);
    assert_int_equal(a.route.capacity, 48);
    assert_int_equal(a.route_block, 32);
    assert_int_equal(a.route.n_group, 1); /* groups are not used when a capacity is set */
    a = arch_of(llada_moe_7b);
    assert_int_equal(a.route.score, UM_SCORE_SOFTMAX);
    assert_false(a.route.normalize); /* norm_topk_prob is not read */
    assert_int_equal(a.route.bias, UM_BIAS_NONE);
    assert_int_equal(a.n_ff, 0);
    a = arch_of(sdar_30b);
    assert_int_equal(a.route.score, UM_SCORE_SOFTMAX);
    assert_true(a.route.normalize && a.route.scale == 1);
    assert_int_equal(a.shared_ff, 0);
    a = arch_of(sdar_4b);
    assert_int_equal(a.route.n_experts, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(architecture_comes_before_model_type),
        cmocka_unit_test(model_type_decides_without_architecture),
        cmocka_unit_test(stable_diffcoder_is_no_llama),
        cmocka_unit_test(autoregressive_models_are_refused_by_name),
        cmocka_unit_test(conversions_that_leave_attention_open_are_refused),
        cmocka_unit_test(experts_tell_families_of_one_model_type_apart),
        cmocka_unit_test(norms_tell_families_of_one_architecture_apart),
        cmocka_unit_test(experts_under_a_dense_name_are_refused),
        cmocka_unit_test(unknown_architectures_are_refused),
        cmocka_unit_test(the_user_may_name_the_family),
        cmocka_unit_test(every_row_is_whole),
        cmocka_unit_test(names_and_architectures_are_unique),
        cmocka_unit_test(counts_equal_the_published_ones),
        cmocka_unit_test(every_family_has_a_release),
        cmocka_unit_test(what_tells_another_decoder_to_edit_is_no_answer),
        cmocka_unit_test(family_facts_are_in_the_arch),
        cmocka_unit_test(layers_of_two_kinds),
        cmocka_unit_test(routes_are_those_of_the_families),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
