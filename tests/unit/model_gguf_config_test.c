/* Tests of the config.json that is made from the metadata and tensors of a GGUF file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gguf_json.h"
#include "model/config.h"
#include "model_folder.h"

/* ---- Files ------------------------------------------------------------------------------------------------------- */

/* The metadata of a small model of the architecture `a`. Hidden size 64, 4 heads and 2 key and value heads. */
#define METADATA(a)                                                                                                    \
    "'general.architecture':'" a "','" a ".block_count':2,'" a ".context_length':256,'" a ".embedding_length':64,'" a  \
    ".attention.head_count':4,'" a ".attention.head_count_kv':2,'" a ".attention.layer_norm_rms_epsilon':1e-5,'" a     \
    ".rope.freq_base':500000.0,'tokenizer.ggml.eos_token_id':249,'tokenizer.ggml.mask_token_id':250"
#define EXPERTS(a)                                                                                                     \
    ",'" a ".expert_count':8,'" a ".expert_used_count':3,'" a ".expert_feed_forward_length':32,'" a                    \
    ".feed_forward_length':96"

#define ENDS "'token_embd.weight':[256,64],'output_norm.weight':[64],'output.weight':[256,64]"
#define ROUTED(l)                                                                                                      \
    ",'blk." l ".ffn_gate_inp.weight':[8,64],'blk." l ".ffn_gate_exps.weight':[8,32,64],'blk." l                       \
    ".ffn_up_exps.weight':[8,32,64],'blk." l ".ffn_down_exps.weight':[8,64,32]"
#define NORMED(l) ",'blk." l ".attn_q_norm.weight':[16],'blk." l ".attn_k_norm.weight':[16]"

typedef struct model {
    const char *metadata, *tensors;
} model;

static const model llada = {
    "{" METADATA("llada") ",'llada.feed_forward_length':160,'llada.rope.dimension_count':16,'llada.vocab_size':250,"
                          "'llada.attention.causal':false,'diffusion.shift_logits':false}",
    "{" ENDS "}"};
static const model dream = {"{" METADATA("dream") ",'dream.feed_forward_length':160,'dream.attention.causal':false}",
                            "{" ENDS ",'blk.0.attn_q.bias':[64],'blk.1.attn_q.bias':[64]}"};
static const model llada_moe = {"{" METADATA("llada-moe") EXPERTS("llada-moe") ",'diffusion.shift_logits':false}",
                                "{" ENDS ROUTED("0") ROUTED("1") NORMED("0") NORMED("1") "}"};
static const model rnd1 = {"{" METADATA("rnd1")
                               EXPERTS("rnd1") ",'rnd1.attention.key_length':32,'rnd1.attention.value_length':32}",
                           "{" ENDS ROUTED("0") ROUTED("1") NORMED("0") NORMED("1") "}"};
/* Layer 0 is dense. The shared expert is as wide as two routed ones. */
static const model llada2 = {
    "{" METADATA("llada2") EXPERTS(
        "llada2") ",'llada2.rope.dimension_count':8,'llada2.attention.key_length':16,'llada2.expert_weights_scale':2.5,"
                  "'llada2.expert_group_count':4,'llada2.expert_group_used_count':2,'llada2.expert_gating_func':2,"
                  "'llada2.leading_dense_block_count':1,'llada2.expert_weights_norm':true}",
    "{" ENDS ROUTED("1") NORMED("0") NORMED("1") ",'blk.0.ffn_gate.weight':[96,64],'blk.1.exp_probs_b.bias':[8],"
                                                 "'blk.1.ffn_gate_shexp.weight':[64,64]}"};

/* ---- Helpers ----------------------------------------------------------------------------------------------------- */

/* Sets a key of a JSON text to a value (JSON text). Removes it when the value is NULL. */
static json_t *changed(const char *base, const char *key, const char *value) {
    json_t *v = json_of(base);
    if (key && value) json_object_set_new(v, key, json_of(value));
    else if (key) json_object_del(v, key);
    return v;
}

/* Parses the config.json of a model in which a key of the metadata, or a tensor, is changed. */
static um_status parse(um_arch *a, const model *m, const char *key, const char *value, um_err *err) {
    const char *end = key ? strrchr(key, '.') : NULL;
    const bool is_tensor = um_streq(end, ".weight") || um_streq(end, ".bias");
    json_t *metadata = changed(m->metadata, is_tensor ? NULL : key, value), *config = NULL;
    json_t *tensors = changed(m->tensors, is_tensor ? key : NULL, value);
    gguf_json f = gguf_json_open(metadata, tensors);
    um_status s = um_gguf_config(f.g, &config, err);
    assert_true(!s == !!config);
    if (!s) assert_int_equal(um_arch_parse(a, config, "model.gguf", NULL, err), UM_OK);
    json_decref(config);
    json_decref(metadata);
    json_decref(tensors);
    gguf_json_close(&f);
    return s;
}

static um_arch accepts(const model *m, const char *key, const char *value) {
    um_arch a;
    um_err err = {0};
    if (parse(&a, m, key, value, &err)) fail_msg("%s", err.msg);
    return a;
}

static void refuses(const model *m, const char *key, const char *value, um_status want, const char *part) {
    um_arch a;
    um_err err = {0};
    um_status s = parse(&a, m, key, value, &err);
    if (s != want)
        fail_msg("%s = %s gives status %d, expected %d: %s", key, value ? value : "(absent)", s, want, err.msg);
    assert_says(&err, "model.gguf");
    assert_says(&err, part ? part : key);
}

/* ---- Families ---------------------------------------------------------------------------------------------------- */

static void reads_llada(void **state) {
    (void)state;
    um_arch a = accepts(&llada, NULL, NULL);
    assert_ptr_equal(a.family, &um_family_llada);
    assert_int_equal(a.hidden, 64);
    assert_int_equal(a.n_layers, 2);
    assert_int_equal(a.n_heads, 4);
    assert_int_equal(a.n_kv_heads, 2);
    assert_int_equal(a.head_dim, 16);
    assert_int_equal(a.rope_dim, 16);
    assert_int_equal(a.n_ff, 160);
    assert_int_equal(a.vocab, 256); /* the rows of the embedding, not llada.vocab_size */
    assert_int_equal(a.max_position, 256);
    assert_true(a.norm_eps == 1e-5f);
    assert_true(a.rope_theta == 500000);
    assert_int_equal(a.mask_id, 250);
    assert_int_equal(a.pad_id, -1);
    assert_false(a.tied || a.qkv_bias || a.o_bias || a.mlp_bias);
    assert_string_equal(a.declared_dtype, "float32");
}

static void reads_dream(void **state) {
    (void)state;
    um_arch a = accepts(&dream, NULL, NULL);
    assert_ptr_equal(a.family, &um_family_dream);
    assert_int_equal(a.shift, 1);
    assert_int_equal(a.n_ff, 160);
    assert_true(a.qkv_bias);
    assert_int_equal(a.see, UM_SEE_FULL);
}

static void reads_llada_moe(void **state) {
    (void)state;
    um_arch a = accepts(&llada_moe, NULL, NULL);
    assert_ptr_equal(a.family, &um_family_llada_moe);
    assert_int_equal(a.route.n_experts, 8);
    assert_int_equal(a.route.top_k, 3);
    assert_int_equal(a.expert_ff, 32);
    assert_int_equal(a.n_ff, 0);
    assert_int_equal(a.shared_ff, 0);
    assert_true(a.qk_norm && um_arch_is_moe(&a, 0) && um_arch_is_moe(&a, 1));
    assert_false(a.route.normalize);
    assert_false(accepts(&llada_moe, "llada-moe.expert_weights_norm", "true").route.normalize);
    assert_int_equal(accepts(&llada_moe, "blk.0.ffn_gate_shexp.weight", "[96,64]").shared_ff, 96);
    assert_int_equal(accepts(&llada_moe, "blk.0.exp_probs_b.bias", "[8]").route.bias, UM_BIAS_SCORE);
}

static void reads_rnd1(void **state) {
    (void)state;
    um_arch a = accepts(&rnd1, NULL, NULL);
    assert_ptr_equal(a.family, &um_family_rnd1);
    assert_int_equal(a.head_dim, 32); /* not hidden / heads */
    assert_int_equal(a.shift, 1);
    assert_true(a.route.normalize);
    assert_false(accepts(&rnd1, "rnd1.expert_weights_norm", "false").route.normalize);
}

static void reads_llada2(void **state) {
    (void)state;
    um_arch a = accepts(&llada2, NULL, NULL);
    assert_ptr_equal(a.family, &um_family_llada2);
    assert_int_equal(a.rope_dim, 8);
    assert_int_equal(a.block, 32);
    assert_int_equal(a.n_ff, 96);
    assert_int_equal(a.shared_ff, 64);
    assert_int_equal(a.route.n_group, 4);
    assert_int_equal(a.route.topk_group, 2);
    assert_int_equal(a.route.bias, UM_BIAS_CHOICE);
    assert_true(a.route.scale == 2.5f);
    assert_false(um_arch_is_moe(&a, 0));
    assert_true(um_arch_is_moe(&a, 1));
    refuses(&llada2, "blk.1.ffn_gate_shexp.weight", "[40,64]", UM_EUNSUPPORTED, "40 rows");
    refuses(&llada2, "llada2.expert_group_count", NULL, UM_EMODEL, NULL);
    refuses(&llada2, "llada2.expert_weights_scale", NULL, UM_EMODEL, NULL);
}

static void every_share_of_a_head_may_be_rotated(void **state) {
    (void)state;
    for (int32_t n = 2; n < 16; n += 2) {
        char text[8];
        snprintf(text, sizeof text, "%d", n);
        assert_int_equal(accepts(&llada2, "llada2.rope.dimension_count", text).rope_dim, n);
    }
    refuses(&llada2, "llada2.rope.dimension_count", "18", UM_EPARSE, NULL);
}

/* ---- Other architectures ----------------------------------------------------------------------------------------- */

static void other_architectures_are_named(void **state) {
    (void)state;
    refuses(&llada, "general.architecture", NULL, UM_EMODEL, NULL);
    refuses(&llada, "general.architecture", "'qwen2'", UM_EUNSUPPORTED, "\"qwen2\", an autoregressive model");
    refuses(&llada, "general.architecture", "'llama'", UM_EUNSUPPORTED, "an autoregressive model");
    refuses(&llada, "general.architecture", "'diffusion-gemma'", UM_EUNSUPPORTED, "\"diffusion-gemma\"");
    refuses(&llada, "general.architecture", "'llada-'", UM_EUNSUPPORTED, "llada, llada-moe, dream, rnd1, llada2");
}

/* ---- Keys -------------------------------------------------------------------------------------------------------- */

static void missing_keys_are_named(void **state) {
    (void)state;
    static const char *const keys[] = {"llada.block_count",      "llada.context_length",
                                       "llada.embedding_length", "llada.attention.head_count",
                                       "llada.rope.freq_base",   "llada.attention.layer_norm_rms_epsilon",
                                       "token_embd.weight",      "llada.feed_forward_length"};
    for (size_t i = 0; i < UM_LEN(keys); i++) refuses(&llada, keys[i], NULL, UM_EMODEL, NULL);
    refuses(&llada_moe, "llada-moe.expert_count", NULL, UM_EMODEL, NULL);
    refuses(&llada, "llada.block_count", "'two'", UM_EMODEL, NULL);
    assert_int_equal(accepts(&llada, "llada.attention.head_count_kv", NULL).n_kv_heads, 4);
}

static void numbers_out_of_range_are_refused(void **state) {
    (void)state;
    refuses(&llada, "llada.block_count", "0", UM_EPARSE, NULL);
    refuses(&llada, "llada.block_count", "4294967295", UM_EPARSE, NULL);
    refuses(&llada, "llada.attention.head_count", "-4", UM_EPARSE, NULL);
    refuses(&llada, "llada.attention.layer_norm_rms_epsilon", "2.0", UM_EPARSE, "rms_norm_eps");
    refuses(&llada, "tokenizer.ggml.mask_token_id", "256", UM_EPARSE, NULL);
    assert_int_equal(accepts(&llada, "tokenizer.ggml.bos_token_id", "4294967295").bos_id, -1);
}

static void lists_with_a_number_for_each_layer_must_be_equal(void **state) {
    (void)state;
    assert_int_equal(accepts(&llada, "llada.attention.head_count_kv", "[2,2]").n_kv_heads, 2);
    refuses(&llada, "llada.attention.head_count_kv", "[2,4]", UM_EUNSUPPORTED, NULL);
}

static void a_file_without_a_head_is_tied(void **state) {
    (void)state;
    assert_true(accepts(&llada, "output.weight", NULL).tied);
    assert_true(accepts(&dream, "output.weight", NULL).tied);
}

static void biases_are_those_of_the_tensors(void **state) {
    (void)state;
    assert_true(accepts(&llada, "blk.0.attn_q.bias", "[64]").qkv_bias);
    assert_true(accepts(&llada, "blk.0.ffn_gate.bias", "[160]").mlp_bias);
}

/* ---- Contradictions ---------------------------------------------------------------------------------------------- */

static void another_forward_pass_is_refused(void **state) {
    (void)state;
    refuses(&llada, "diffusion.shift_logits", "true", UM_EUNSUPPORTED, NULL);
    refuses(&llada, "diffusion.shift_logits", "'true'", UM_EUNSUPPORTED, NULL);
    refuses(&dream, "diffusion.shift_logits", "false", UM_EUNSUPPORTED, NULL);
    assert_int_equal(accepts(&llada, "diffusion.shift_logits", NULL).shift, 0);
    assert_int_equal(accepts(&dream, "diffusion.shift_logits", "'true'").shift, 1);
    refuses(&llada, "llada.attention.causal", "true", UM_EUNSUPPORTED, NULL);
    refuses(&llada, "llada.attention.key_length", "32", UM_EUNSUPPORTED, NULL);
    refuses(&rnd1, "rnd1.attention.value_length", "16", UM_EUNSUPPORTED, NULL);
    refuses(&llada, "llada.rope.scaling.type", "'yarn'", UM_EUNSUPPORTED, NULL);
    assert_int_equal(accepts(&llada, "llada.rope.scaling.type", "'none'").rope_dim, 16);
    refuses(&llada, "rope_freqs.weight", "[8]", UM_EUNSUPPORTED, NULL);
}

static void rotary_divisors_of_1_are_accepted(void **state) {
    (void)state;
    json_t *metadata = json_of(llada.metadata), *tensors = changed(llada.tensors, "rope_freqs.weight", "[8]"), *config;
    gguf_json f = gguf_json_open(metadata, tensors);
    float *data = (float *)(uintptr_t)um_gguf_find(f.g, "rope_freqs.weight")->data;
    for (int i = 0; i < 8; i++) data[i] = 1;
    assert_int_equal(um_gguf_config(f.g, &config, NULL), UM_OK);
    json_decref(config);
    data[7] = 2;
    assert_int_equal(um_gguf_config(f.g, &config, NULL), UM_EUNSUPPORTED);
    assert_null(config);
    json_decref(metadata);
    json_decref(tensors);
    gguf_json_close(&f);
}

static void another_choice_of_experts_is_refused(void **state) {
    (void)state;
    refuses(&rnd1, "rnd1.expert_gating_func", "2", UM_EUNSUPPORTED, NULL);
    refuses(&llada2, "llada2.expert_gating_func", "1", UM_EUNSUPPORTED, NULL);
    refuses(&rnd1, "rnd1.expert_weights_scale", "2.5", UM_EUNSUPPORTED, NULL);
    refuses(&llada_moe, "llada-moe.expert_weights_scale", "2.5", UM_EUNSUPPORTED, "2.5");
    assert_int_equal(accepts(&rnd1, "rnd1.expert_weights_scale", "0.0").route.top_k, 3);
    assert_int_equal(accepts(&rnd1, "rnd1.expert_gating_func", "1").route.top_k, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_llada),
        cmocka_unit_test(reads_dream),
        cmocka_unit_test(reads_llada_moe),
        cmocka_unit_test(reads_rnd1),
        cmocka_unit_test(reads_llada2),
        cmocka_unit_test(every_share_of_a_head_may_be_rotated),
        cmocka_unit_test(other_architectures_are_named),
        cmocka_unit_test(missing_keys_are_named),
        cmocka_unit_test(numbers_out_of_range_are_refused),
        cmocka_unit_test(lists_with_a_number_for_each_layer_must_be_equal),
        cmocka_unit_test(a_file_without_a_head_is_tied),
        cmocka_unit_test(biases_are_those_of_the_tensors),
        cmocka_unit_test(another_forward_pass_is_refused),
        cmocka_unit_test(rotary_divisors_of_1_are_accepted),
        cmocka_unit_test(another_choice_of_experts_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
