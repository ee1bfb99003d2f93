/* Tests of the tokenizer in a GGUF file. tests/vectors/gguf_test.c has those with the vocabularies of the families. */
#include "text_vectors.h"

#include "gguf_json.h"
#include "model_folder.h"

/* Ids 0 to 7 are the model's, 8 and 9 are added tokens, and 10 is a row without a token. */
static const char metadata[] =
    "{'general.architecture':'llada','tokenizer.ggml.model':'gpt2','tokenizer.ggml.pre':'bailingmoe',"
    "'tokenizer.ggml.tokens':['a','b','c','ab','\\u0120','\\u0120ab','\\u00C3','\\u00A9','<e>','<t>','[PAD10]'],"
    "'tokenizer.ggml.token_type':[1,1,1,1,1,1,1,1,3,4,5],"
    "'tokenizer.ggml.merges':['a b','\\u0120 ab'],"
    "'tokenizer.ggml.eos_token_id':8,'tokenizer.ggml.bos_token_id':8,'tokenizer.ggml.mask_token_id':10,"
    "'tokenizer.ggml.add_bos_token':false,'tokenizer.chat_template':'{{ messages }}'}";

static um_status convert(const char *key, const char *value, um_buf *tokenizer, um_buf *config, um_err *err) {
    json_t *m = json_of(metadata);
    if (key && value) json_object_set_new(m, key, json_of(value));
    else if (key) json_object_del(m, key);
    gguf_json f = gguf_json_open(m, NULL);
    um_status s = um_gguf_tokenizer(f.g, tokenizer, config, err);
    gguf_json_close(&f);
    json_decref(m);
    return s;
}

/* Opens the tokenizer with a key of the metadata changed. */
static um_tok *opened(const char *key, const char *value) {
    um_buf tokenizer = {0}, config = {0};
    um_err err;
    um_tok *t = NULL;
    if (convert(key, value, &tokenizer, &config, &err)) fail_msg("%s", err.msg);
    if (um_tok_parse(&t, buf_str(&tokenizer), buf_str(&config), (um_str){NULL, 0}, "model.gguf", &err))
        fail_msg("%s", err.msg);
    um_buf_free(&tokenizer);
    um_buf_free(&config);
    return t;
}

static json_t *config_with(const char *key, const char *value) {
    um_buf tokenizer = {0}, config = {0};
    um_err err;
    if (convert(key, value, &tokenizer, &config, &err)) fail_msg("%s", err.msg);
    json_t *json = json_loadb(config.data, config.len, 0, NULL);
    assert_non_null(json);
    um_buf_free(&tokenizer);
    um_buf_free(&config);
    return json;
}

static void refuses(const char *key, const char *value, um_status want, const char *part) {
    um_buf tokenizer = {0}, config = {0};
    um_err err = {0};
    um_status s = convert(key, value, &tokenizer, &config, &err);
    if (s != want)
        fail_msg("%s = %s gives status %d, expected %d: %s", key, value ? value : "(absent)", s, want, err.msg);
    assert_says(&err, "model.gguf");
    assert_says(&err, part ? part : key);
    assert_int_equal(tokenizer.len + config.len, 0);
}

static void opens_as_byte_level_bpe(void **state) {
    (void)state;
    um_tok *t = opened(NULL, NULL);
    assert_encodes(t, "abc ab", 3, 2, 5);
    assert_encodes(t, "<e>a<t>", 8, 0, 9);
    assert_int_equal(um_tok_size(t), 10); /* without the unused token */
    assert_int_equal(um_tok_special_id(t, "eos_token"), 8);
    assert_int_equal(um_tok_special_id(t, "mask_token"), -1);
    assert_true(um_tok_is_special(t, 8));
    assert_false(um_tok_is_special(t, 9));
    um_buf out = {0};
    um_tok_decode(t, (const int32_t[]){5, 8, 2}, 3, false, &out);
    assert_text(buf_str(&out), UM_STR(" ab<e>c"));
    um_buf_free(&out);
    um_tok_close(t);
}

/* e and U+0301 become U+00E9, whose bytes are the tokens 6 and 7. GPT-2's tokenizers do not compose them. */
static void the_rule_decides_about_the_normalization(void **state) {
    (void)state;
    static const char *const rules[] = {"'qwen2'", "'bailingmoe'", "'bailingmoe2'", "'llada-moe'", "'seed-coder'"};
    for (size_t i = 0; i < UM_LEN(rules); i++) {
        um_tok *t = opened("tokenizer.ggml.pre", rules[i]);
        assert_encodes(t, "e\xCC\x81", 6, 7);
        um_tok_close(t);
    }
    um_tok *t = opened("tokenizer.ggml.pre", "'gpt-2'");
    um_ids ids = encode(t, UM_STR("e\xCC\x81"), UM_PARSE_ALL, false);
    assert_int_equal(ids.n, 0); /* none of the three bytes is a token */
    um_ids_free(&ids);
    um_tok_close(t);
}

static void bos_is_added_when_the_file_says_so(void **state) {
    (void)state;
    um_tok *t = opened("tokenizer.ggml.add_bos_token", "true");
    assert_ids(encode(t, UM_STR("ab"), UM_PARSE_ALL, true), (const int32_t[]){8, 3}, 2);
    um_tok_close(t);
    t = opened(NULL, NULL);
    assert_ids(encode(t, UM_STR("ab"), UM_PARSE_ALL, true), (const int32_t[]){3}, 1);
    um_tok_close(t);
}

static void chat_templates_are_one_or_a_list(void **state) {
    (void)state;
    json_t *one = config_with(NULL, NULL), *m = json_of(metadata);
    assert_string_equal(json_string_value(json_object_get(one, "chat_template")), "{{ messages }}");
    json_decref(one);
    json_object_set_new(m, "tokenizer.chat_templates", json_of("['tool_use','missing']"));
    json_object_set_new(m, "tokenizer.chat_template.tool_use", json_of("'{{ tools }}'"));
    gguf_json f = gguf_json_open(m, NULL);
    um_buf tokenizer = {0}, config = {0};
    assert_int_equal(um_gguf_tokenizer(f.g, &tokenizer, &config, NULL), UM_OK);
    json_t *json = json_loadb(config.data, config.len, 0, NULL), *list = json_object_get(json, "chat_template");
    assert_int_equal(json_array_size(list), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "name")), "default");
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "template")), "{{ tools }}");
    json_decref(json);
    um_buf_free(&tokenizer);
    um_buf_free(&config);
    gguf_json_close(&f);
    json_decref(m);
}

static void unknown_vocabularies_are_named(void **state) {
    (void)state;
    refuses("tokenizer.ggml.model", "'llama'", UM_EUNSUPPORTED, "\"llama\"");
    refuses("tokenizer.ggml.model", NULL, UM_EMODEL, NULL);
    refuses("tokenizer.ggml.pre", "'tekken'", UM_EUNSUPPORTED, "\"tekken\"");
    refuses("tokenizer.ggml.pre", "'tekken'", UM_EUNSUPPORTED, "qwen2, deepseek-r1-qwen, bailingmoe");
    refuses("tokenizer.ggml.pre", "'qwen2|deepseek-r1-qwen'", UM_EUNSUPPORTED, NULL);
    refuses("tokenizer.ggml.pre", "''", UM_EUNSUPPORTED, NULL);
    refuses("tokenizer.ggml.pre", NULL, UM_EMODEL, NULL);
}

static void broken_lists_are_refused(void **state) {
    (void)state;
    refuses("tokenizer.ggml.tokens", NULL, UM_EMODEL, NULL);
    refuses("tokenizer.ggml.tokens", "[1,2]", UM_EMODEL, NULL);
    refuses("tokenizer.ggml.token_type", NULL, UM_EMODEL, NULL);
    refuses("tokenizer.ggml.token_type", "['a']", UM_EMODEL, NULL);
    refuses("tokenizer.ggml.token_type", "[1,1]", UM_EPARSE, "2 entries for 11 tokens");
    refuses("tokenizer.ggml.token_type", "[1,1,1,1,1,1,1,1,3,4,7]", UM_EPARSE, "[10] is 7");
    refuses("tokenizer.ggml.merges", NULL, UM_EMODEL, NULL);
}

static void strings_must_be_text(void **state) {
    (void)state;
    json_t *m = json_of(metadata);
    gguf_json f = gguf_json_open(m, NULL);
    um_buf tokenizer = {0}, config = {0};
    um_err err = {0};
    char *at = (char *)(uintptr_t)um_gguf_array_string(f.g, "tokenizer.ggml.tokens", 9).p;
    *at = (char)0xFF;
    assert_int_equal(um_gguf_tokenizer(f.g, &tokenizer, &config, &err), UM_EPARSE);
    assert_says(&err, "tokenizer.ggml.tokens[9] is not valid UTF-8");
    *at = '\0';
    assert_int_equal(um_gguf_tokenizer(f.g, &tokenizer, &config, &err), UM_EPARSE);
    assert_says(&err, "tokenizer.ggml.tokens[9] contains U+0000");
    gguf_json_close(&f);
    json_decref(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_as_byte_level_bpe),
        cmocka_unit_test(the_rule_decides_about_the_normalization),
        cmocka_unit_test(bos_is_added_when_the_file_says_so),
        cmocka_unit_test(chat_templates_are_one_or_a_list),
        cmocka_unit_test(unknown_vocabularies_are_named),
        cmocka_unit_test(broken_lists_are_refused),
        cmocka_unit_test(strings_must_be_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
