/* Tests of reading config.json, generation_config.json and the tokenizer's files into a um_arch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "model_fields.h"

static const char sdar[] =
    "{'architectures':['SDARForCausalLM'],'model_type':'sdar','hidden_size':64,'intermediate_size':160,"
    "'num_hidden_layers':2,'num_attention_heads':4,'num_key_value_heads':2,'head_dim':32,'vocab_size':256,"
    "'max_position_embeddings':256,'rope_theta':1000000,'rope_scaling':null,'rms_norm_eps':1e-6,"
    "'attention_bias':false,'hidden_act':'silu','tie_word_embeddings':false,'use_sliding_window':false,"
    "'block_size':8,'mask_token_id':250,'eos_token_id':243,'pad_token_id':null}";
static const char llada[] =
    "{'architectures':['LLaDAModelLM'],'model_type':'llada','d_model':64,'n_heads':4,'n_kv_heads':2,'n_layers':2,"
    "'mlp_hidden_size':160,'mlp_ratio':4,'vocab_size':250,'embedding_size':256,'max_sequence_length':256,'rope':true,"
    "'rope_theta':500000.0,'rms_norm_eps':1e-5,'layer_norm_type':'rms','block_type':'llama','activation_type':'silu',"
    "'weight_tying':false,'include_bias':false,'mask_token_id':250,'eos_token_id':249}";
static const char diffcoder[] =
    "{'architectures':['StableDiffcoderForCausalLM'],'model_type':'llama','hidden_size':64,'intermediate_size':160,"
    "'num_hidden_layers':2,'num_attention_heads':4,'num_key_value_heads':2,'vocab_size':256,"
    "'max_position_embeddings':256,'rope_theta':500000.0,'rms_norm_eps':1e-6,'attention_bias':true,'mlp_bias':true,"
    "'hidden_act':'silu','tie_word_embeddings':false,'eos_token_id':2}";

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

static void reads_the_numbers(void **state) {
    (void)state;
    um_arch a = accepts(sdar, NULL, NULL);
    assert_int_equal(a.hidden, 64);
    assert_int_equal(a.n_layers, 2);
    assert_int_equal(a.n_heads, 4);
    assert_int_equal(a.n_kv_heads, 2);
    assert_int_equal(a.head_dim, 32);
    assert_int_equal(a.rope_dim, 32);
    assert_int_equal(a.n_ff, 160);
    assert_int_equal(a.vocab, 256);
    assert_int_equal(a.max_position, 256);
    assert_int_equal(a.block, 8);
    assert_int_equal(a.mask_id, 250);
    assert_int_equal(a.pad_id, -1);
    assert_true(a.rope_theta == 1e6);
    assert_string_equal(a.architecture, "SDARForCausalLM");
    assert_string_equal(a.model_type, "sdar");
}

static void missing_structural_field_is_named(void **state) {
    (void)state;
    static const char *const keys[] = {"hidden_size",         "num_hidden_layers",   "intermediate_size",
                                       "vocab_size",          "rms_norm_eps",        "max_position_embeddings",
                                       "num_attention_heads", "num_key_value_heads", "rope_theta"};
    for (size_t i = 0; i < UM_LEN(keys); i++) {
        refuses(sdar, keys[i], NULL, UM_EMODEL, NULL);
        refuses(sdar, keys[i], "null", UM_EMODEL, NULL);
        refuses(sdar, keys[i], "'x'", UM_EPARSE, NULL);
    }
    static const char *const of_llada[] = {"d_model",      "n_heads",         "n_layers",           "vocab_size",
                                           "rms_norm_eps", "layer_norm_type", "block_type",         "activation_type",
                                           "rope",         "rope_theta",      "max_sequence_length"};
    for (size_t i = 0; i < UM_LEN(of_llada); i++) refuses(llada, of_llada[i], NULL, UM_EMODEL, NULL);
}

static void numbers_out_of_range_are_refused(void **state) {
    (void)state;
    refuses(sdar, "hidden_size", "0", UM_EPARSE, NULL);
    refuses(sdar, "num_hidden_layers", "-3", UM_EPARSE, NULL);
    refuses(sdar, "vocab_size", "99999999999", UM_EPARSE, NULL);
    refuses(sdar, "rms_norm_eps", "0", UM_EPARSE, NULL);
    refuses(sdar, "rope_theta", "0.5", UM_EPARSE, NULL);
    refuses(sdar, "block_size", "0", UM_EPARSE, NULL);
    refuses(sdar, "mask_token_id", "256", UM_EPARSE, NULL);
    refuses(sdar, "num_key_value_heads", "3", UM_EMODEL, "3 key and value heads");
    refuses(sdar, "head_dim", "31", UM_EMODEL, "31");
}

static void head_dim_wins_when_stated(void **state) {
    (void)state;
    assert_int_equal(accepts(sdar, "head_dim", NULL).head_dim, 16);
    assert_int_equal(accepts(sdar, "head_dim", "null").head_dim, 16);
    assert_int_equal(accepts(sdar, "head_dim", "48").head_dim, 48);
    json_t *config = json_of(sdar);
    json_object_del(config, "head_dim");
    json_object_set_new(config, "hidden_size", json_integer(66));
    um_arch a;
    um_err err = {0};
    assert_int_equal(um_arch_parse(&a, config, "config.json", NULL, &err), UM_EMODEL);
    assert_says(&err, "not a multiple");
    json_decref(config);
}

static void rope_theta_may_sit_in_rope_parameters(void **state) {
    (void)state;
    static const char *const keys[] = {"rope_parameters", "rope_scaling"};
    for (size_t i = 0; i < UM_LEN(keys); i++) {
        json_t *config = json_of(sdar);
        json_object_del(config, "rope_theta");
        json_object_set_new(config, keys[i], json_of("{'rope_type':'default','rope_theta':12345.0}"));
        um_arch a;
        um_err err = {0};
        if (um_arch_parse(&a, config, "config.json", NULL, &err)) fail_msg("%s", err.msg);
        assert_true(a.rope_theta == 12345.0);
        json_decref(config);
    }
}

static void stretched_llada_is_refused(void **state) {
    (void)state;
    static const char *const forms[][2] = {
        {"rope_scaling", "{'type':'yarn','factor':4}"},
        {"rope_parameters", "{'rope_type':'dynamic','factor':4}"},
        {"yarn", "true"},
        {"yarn_factor", "8"},
        {"use_yarn", "true"},
        {"ntk_alpha", "4.0"},
        {"rope_ntk_factor", "{'factor':4}"},
        {"rope_interpolation", "2"},
    };
    for (size_t i = 0; i < UM_LEN(forms); i++) {
        refuses(llada, forms[i][0], forms[i][1], UM_EUNSUPPORTED, NULL);
        refuses(llada, forms[i][0], forms[i][1], UM_EUNSUPPORTED, "unscaled ones only");
    }
    accepts(llada, "rope_full_precision", "true");
    accepts(llada, "rope_scaling", "null");
    accepts(llada, "yarn", "false");
    accepts(llada, "yarn", "null");
    assert_true(accepts(llada, "rope_theta", "8e6").rope_theta == 8e6);
}

static void what_is_not_computed_is_refused(void **state) {
    (void)state;
    refuses(sdar, "rope_scaling", "{'type':'yarn','factor':4}", UM_EUNSUPPORTED, "yarn");
    refuses(sdar, "rope_scaling", "{'rope_type':'llama3'}", UM_EUNSUPPORTED, "llama3");
    refuses(sdar, "hidden_act", "'gelu'", UM_EUNSUPPORTED, "gelu");
    refuses(sdar, "use_sliding_window", "true", UM_EUNSUPPORTED, NULL);
    refuses(sdar, "use_regular_causal", "true", UM_EUNSUPPORTED, NULL);
    refuses(sdar, "quantization_config", "{'quant_method':'bitsandbytes'}", UM_EUNSUPPORTED, "bitsandbytes");
    refuses(llada, "layer_norm_type", "'default'", UM_EUNSUPPORTED, NULL);
    refuses(llada, "block_type", "'sequential'", UM_EUNSUPPORTED, NULL);
    refuses(llada, "activation_type", "'swiglu'", UM_EUNSUPPORTED, NULL);
    refuses(llada, "rope", "false", UM_EUNSUPPORTED, NULL);
    refuses(llada, "alibi", "true", UM_EUNSUPPORTED, NULL);
    refuses(llada, "attention_layer_norm", "true", UM_EUNSUPPORTED, NULL);
    assert_true(accepts(sdar, "rope_scaling", "false").rope_theta == 1e6);
}

static void llada_fills_in_what_its_own_rules_say(void **state) {
    (void)state;
    assert_int_equal(accepts(llada, NULL, NULL).vocab, 256);
    refuses(llada, "embedding_size", "249", UM_EPARSE, NULL);
    assert_int_equal(accepts(llada, "n_kv_heads", "null").n_kv_heads, 4);
    assert_int_equal(accepts(llada, "mlp_hidden_size", "null").n_ff, 256);
    assert_true(accepts(llada, "include_bias", "true").mlp_bias);
    assert_true(accepts(llada, "include_qkv_bias", "true").qkv_bias);
    assert_true(accepts(llada, "input_emb_norm", "true").embed_scale == 8);
    assert_true(accepts(llada, "scale_logits", "true").logit_scale == 0.125f);
}

static void projections_may_be_clamped(void **state) {
    (void)state;
    assert_true(accepts(llada, "clip_qkv", "8.0").clip_qkv == 8);
    assert_true(accepts(llada, "clip_qkv", "null").clip_qkv == 0);
    refuses(llada, "clip_qkv", "-8.0", UM_EPARSE, NULL);
}

static void biases_follow_their_switches(void **state) {
    (void)state;
    um_arch a = accepts(diffcoder, NULL, NULL);
    assert_true(a.qkv_bias && a.o_bias && a.mlp_bias);
    a = accepts(diffcoder, "mlp_bias", "false");
    assert_true(a.qkv_bias && a.o_bias && !a.mlp_bias);
}

static void tying_may_be_left_to_the_tensors(void **state) {
    (void)state;
    assert_true(accepts(sdar, NULL, NULL).tied_stated);
    assert_false(accepts(sdar, "tie_word_embeddings", NULL).tied_stated);
    assert_true(accepts(sdar, "tie_word_embeddings", "true").tied);
}

/* ---- Folders ----------------------------------------------------------------------------------------------------- */

typedef struct checkpoint {
    const char *config, *generation; /* generation_config.json or NULL */
    const char *side;                /* tokenizer_config.json; NULL: the folder has no tokenizer */
    int n_words;
} checkpoint;

static um_status load(um_arch *a, const checkpoint *c, um_err *err) {
    char *dir = folder_new(), *config = quoted(c->config);
    char *generation = c->generation ? quoted(c->generation) : NULL, *side = c->side ? quoted(c->side) : NULL;
    um_tok *tok = NULL;
    folder_write_text(dir, "config.json", config);
    if (generation) folder_write_text(dir, "generation_config.json", generation);
    if (side) {
        folder_write_tokenizer(dir, c->n_words, side);
        if (um_tok_open(&tok, dir, err)) fail_msg("%s", err->msg);
    }
    um_status s = um_arch_load(a, &(um_arch_source){.dir = dir, .mask_id = -1, .tok = tok}, err);
    um_tok_close(tok);
    um_free(side);
    um_free(generation);
    um_free(config);
    folder_free(dir);
    return s;
}

static um_arch loads(const checkpoint *c) {
    um_arch a;
    um_err err = {0};
    if (load(&a, c, &err)) fail_msg("%s", err.msg);
    return a;
}

static void stop_ids_are_the_union_of_all_files(void **state) {
    (void)state;
    um_arch a = loads(&(checkpoint){.config = sdar,
                                    .generation = "{'eos_token_id':[241,243,9999]}",
                                    .side = "{'eos_token':'w242','mask_token':'w250'}",
                                    .n_words = 256});
    assert_int_equal(a.n_stop, 3);
    assert_int_equal(a.stop[0], 243);
    assert_int_equal(a.stop[1], 241);
    assert_int_equal(a.stop[2], 242);
}

static void temperature_comes_from_generation_config(void **state) {
    (void)state;
    assert_true(isnan(loads(&(checkpoint){.config = sdar}).temperature));
    assert_true(loads(&(checkpoint){.config = sdar, .generation = "{'temperature':0.5}"}).temperature == 0.5f);
    assert_true(
        loads(&(checkpoint){.config = sdar, .generation = "{'temperature':0.5,'do_sample':false}"}).temperature == 0);
    um_arch a;
    um_err err = {0};
    assert_int_equal(load(&a, &(checkpoint){.config = sdar, .generation = "{'temperature':-1}"}, &err), UM_EPARSE);
    assert_says(&err, "temperature");
}

static void mask_of_config_wins_over_the_tokenizer(void **state) {
    (void)state;
    um_arch a = loads(&(checkpoint){.config = sdar, .side = "{'mask_token':'w7'}", .n_words = 256});
    assert_int_equal(a.mask_id, 250);
}

static void mask_comes_from_the_tokenizer_when_config_has_none(void **state) {
    (void)state;
    um_arch a = loads(&(checkpoint){.config = diffcoder, .side = "{'mask_token':'w5'}", .n_words = 256});
    assert_int_equal(a.mask_id, 5);
}

static void tokenizer_without_a_mask_token_is_explained(void **state) {
    (void)state;
    um_arch a;
    um_err err = {0};
    checkpoint c = {.config = diffcoder, .side = "{'eos_token':'w2'}", .n_words = 256};
    assert_int_equal(load(&a, &c, &err), UM_EMODEL);
    assert_says(&err, "no mask token");
    assert_says(&err, "name it with --mask-token-id");
}

static void tokenizer_larger_than_the_model_is_refused(void **state) {
    (void)state;
    um_arch a;
    um_err err = {0};
    checkpoint c = {.config = sdar, .side = "{'mask_token':'w250'}", .n_words = 257};
    assert_int_equal(load(&a, &c, &err), UM_EMODEL);
    assert_says(&err, "ids up to 256, but the model only 256 rows");
}

static void broken_json_is_placed(void **state) {
    (void)state;
    um_arch a;
    um_err err = {0};
    assert_int_equal(load(&a, &(checkpoint){.config = "{'model_type':\n   oops}"}, &err), UM_EPARSE);
    assert_says(&err, "config.json:2:");
    assert_int_equal(load(&a, &(checkpoint){.config = "[1,2]"}, &err), UM_EPARSE);
    assert_says(&err, "expected a JSON object");
    assert_int_equal(load(&a, &(checkpoint){.config = sdar, .generation = "{"}, &err), UM_EPARSE);
    assert_says(&err, "generation_config.json");
}

static void mask_is_left_open_without_a_tokenizer(void **state) {
    (void)state;
    assert_int_equal(loads(&(checkpoint){.config = diffcoder}).mask_id, -1);
    assert_int_equal(loads(&(checkpoint){.config = sdar}).mask_id, 250);
}

static void folder_without_config_is_named(void **state) {
    (void)state;
    um_arch a = {.vocab = 7};
    um_err err = {0};
    char *dir = folder_new();
    assert_int_equal(um_arch_load(&a, &(um_arch_source){.dir = dir, .mask_id = -1}, &err), UM_ENOENT);
    assert_says(&err, dir);
    assert_says(&err, "config.json");
    assert_int_equal(a.vocab, 7);
    folder_free(dir);
}

/* Automatic tokens of a step, with blocks of the given size. 0: the option is not set. */
static int32_t step_tokens(int32_t reqs, int32_t block, int32_t trained, bool is_host) {
    const um_arch a = {.block = trained};
    um_config c;
    um_config_init(&c);
    c.max_num_reqs = reqs;
    c.decoding.block_size = block;
    return um_config_step_tokens(&c, &a, is_host);
}

static void gpu_steps_have_room_for_two_blocks_of_each_answer(void **state) {
    (void)state;
    assert_int_equal(step_tokens(32, 0, 32, false), 4096);
    assert_int_equal(step_tokens(128, 0, 32, false), 8192);
    assert_int_equal(step_tokens(128, 0, 0, false), 8192);
    assert_int_equal(step_tokens(128, 48, 32, false), 12288);
    assert_int_equal(step_tokens(4096, 64, 32, false), 16384);
    assert_int_equal(step_tokens(128, 0, 32, true), 4096);
    um_config c;
    um_config_init(&c);
    c.max_num_reqs = 128;
    c.max_num_batched_tokens = 100;
    assert_int_equal(um_config_step_tokens(&c, &(um_arch){.block = 32}, false), 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_numbers),
        cmocka_unit_test(missing_structural_field_is_named),
        cmocka_unit_test(numbers_out_of_range_are_refused),
        cmocka_unit_test(head_dim_wins_when_stated),
        cmocka_unit_test(rope_theta_may_sit_in_rope_parameters),
        cmocka_unit_test(stretched_llada_is_refused),
        cmocka_unit_test(what_is_not_computed_is_refused),
        cmocka_unit_test(llada_fills_in_what_its_own_rules_say),
        cmocka_unit_test(projections_may_be_clamped),
        cmocka_unit_test(biases_follow_their_switches),
        cmocka_unit_test(tying_may_be_left_to_the_tensors),
        cmocka_unit_test(stop_ids_are_the_union_of_all_files),
        cmocka_unit_test(temperature_comes_from_generation_config),
        cmocka_unit_test(mask_of_config_wins_over_the_tokenizer),
        cmocka_unit_test(mask_comes_from_the_tokenizer_when_config_has_none),
        cmocka_unit_test(tokenizer_without_a_mask_token_is_explained),
        cmocka_unit_test(tokenizer_larger_than_the_model_is_refused),
        cmocka_unit_test(broken_json_is_placed),
        cmocka_unit_test(mask_is_left_open_without_a_tokenizer),
        cmocka_unit_test(folder_without_config_is_named),
        cmocka_unit_test(gpu_steps_have_room_for_two_blocks_of_each_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
