/* text: a tokenizer as a whole, from its files to ids and back. */
#include "text_vectors.h"

#define BPE_MODEL                                                                                                      \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"abc\":4,\"\\u0120\":5,\"\\u010a\":6,"   \
    "\"\\u0120a\":7},\"merges\":[\"a b\",[\"ab\",\"c\"],[\"\\u0120\",\"a\"]]}"
#define BYTE_LEVEL                                                                                                     \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"decoder\":{\"type\":\"ByteLevel\"},"
#define TOKENIZER "{\"version\":\"1.0\"," BYTE_LEVEL BPE_MODEL

static void opens_a_checkpoint_folder_and_reads_back_what_it_wrote(void **state) {
    (void)state;
    um_tok *t;
    um_err err;
    um_str text = UM_STR("<|im_start|>user\nWhat is 12 + 30?  caf\xC3\xA9 \xF0\x9F\x91\x8D<|im_end|>\n");
    assert_int_equal(um_tok_open(&t, "models/tiny-block", &err), UM_OK);
    um_ids ids = encode(t, text, UM_PARSE_ALL, false);
    um_buf out = {0};
    um_tok_decode(t, ids.data, ids.n, false, &out);
    assert_text(buf_str(&out), text);
    assert_int_equal(ids.data[0], um_tok_find(t, UM_STR("<|im_start|>")));
    assert_int_equal(um_tok_special_id(t, "mask_token"), 1015);
    assert_text(um_tok_special_text(t, "eos_token"), UM_STR("<|endoftext|>"));
    assert_true(um_tok_is_special(t, 1015));
    assert_false(um_tok_is_special(t, 10));
    assert_int_equal(um_tok_size(t), 1016);
    assert_false(um_tok_exists(t, 1016));
    um_ids_free(&ids);
    um_buf_free(&out);
    um_tok_close(t);
}

static void word_level_joins_words_with_spaces(void **state) {
    (void)state;
    um_tok *t;
    um_err err;
    assert_int_equal(um_tok_open(&t, "build/data/golden/models/sdar", &err), UM_OK);
    assert_encodes(t, "  t5 t7\n<mask> nonsense ", 5, 7, 500, 0);
    um_buf out = {0};
    um_tok_decode(t, (const int32_t[]){5, 7, 999, 501}, 4, false, &out);
    assert_text(buf_str(&out), UM_STR("t5 t7 <eos>"));
    um_buf_clear(&out);
    um_tok_decode(t, (const int32_t[]){5, 500, 7}, 3, true, &out);
    assert_text(buf_str(&out), UM_STR("t5 t7"));
    um_buf_free(&out);
    um_tok_close(t);
}

static void numbered_words_need_no_files(void **state) {
    (void)state;
    um_tok *t;
    um_err err;
    um_buf out = {0};
    assert_int_equal(um_tok_numbered(&t, 1000, &err), UM_OK);
    assert_int_equal(um_tok_size(t), 1000);
    um_tok_decode(t, (const int32_t[]){0, 999, 1000}, 3, false, &out);
    assert_text(buf_str(&out), UM_STR("t0 t999"));
    um_ids ids = {0};
    assert_int_equal(um_tok_encode(t, UM_STR("t5 t999 t1000"), UM_PARSE_ALL, false, &ids, &err), UM_OK);
    assert_ids(ids, (const int32_t[]){5, 999, 0}, 3);
    um_buf_free(&out);
    um_tok_close(t);
}

static void a_guarded_word_is_no_special_token(void **state) {
    (void)state;
    um_tok *t;
    um_err err;
    um_ids ids = {0};
    assert_int_equal(um_tok_open(&t, "build/data/golden/models/sdar", &err), UM_OK);
    um_str text = UM_STR("t5 <\xEF\xB7\x90mask> <mask>"); /* U+FDD0 inside the first one */
    assert_int_equal(um_tok_encode_guarded(t, text, UM_PARSE_ALL, false, 0xFDD0, &ids, &err), UM_OK);
    assert_ids(ids, (const int32_t[]){5, 0, 500}, 3);
    um_tok_close(t);
}

static void parse_levels_choose_which_tokens_text_can_spell(void **state) {
    (void)state;
    um_tok *t = tok_of(TOKENIZER ",\"added_tokens\":[{\"id\":8,\"content\":\"ca\",\"special\":true},"
                                 "{\"id\":9,\"content\":\"cb\",\"special\":false,\"normalized\":false}]}",
                       NULL);
    um_str text = UM_STR("cacb");
    assert_ids(encode(t, text, UM_PARSE_ALL, false), (const int32_t[]){8, 9}, 2);
    assert_ids(encode(t, text, UM_PARSE_NOT_SPECIAL, false), (const int32_t[]){2, 0, 9}, 3);
    assert_ids(encode(t, text, UM_PARSE_NONE, false), (const int32_t[]){2, 0, 2, 1}, 4);
    um_tok_close(t);
}

static void config_marks_special_tokens_and_asks_for_bos(void **state) {
    (void)state;
    um_tok *t = tok_of(TOKENIZER ",\"added_tokens\":[{\"id\":8,\"content\":\"<s>\",\"special\":false}]}",
                       "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":null,\"add_bos_token\":true,"
                       "\"model_max_length\":1000000000000000019884624838656,"
                       "\"added_tokens_decoder\":{\"10\":{\"content\":\"<e>\",\"special\":true}}}");
    assert_true(um_tok_is_special(t, 8));
    assert_true(um_tok_is_special(t, 10));
    assert_false(um_tok_exists(t, 9)); /* holes are allowed */
    assert_int_equal(um_tok_special_id(t, "eos_token"), -1);
    assert_null(um_tok_special_text(t, "eos_token").p);
    assert_ids(encode(t, UM_STR("ab<e>"), UM_PARSE_ALL, true), (const int32_t[]){8, 3, 10}, 3);
    assert_ids(encode(t, UM_STR("ab"), UM_PARSE_ALL, false), (const int32_t[]){3}, 1);
    um_tok_close(t);
}

static void text_with_nul_and_empty_text_are_text(void **state) {
    (void)state;
    um_tok *t;
    um_err err;
    um_buf out = {0};
    assert_int_equal(um_tok_open(&t, "models/tiny-full", &err), UM_OK);
    um_ids none = encode(t, UM_STR(""), UM_PARSE_ALL, false), nul = encode(t, UM_STR("a\0b"), UM_PARSE_ALL, false);
    assert_int_equal(none.n, 0);
    assert_int_equal(nul.n, 3);
    um_tok_decode(t, nul.data, nul.n, false, &out);
    assert_text(buf_str(&out), UM_STR("a\0b"));
    um_ids_free(&nul);
    um_buf_free(&out);
    um_tok_close(t);
}

/* Words that come again are taken from what they gave before; the ids must be those of each text by itself. */
static void repeated_words_encode_like_single_ones(void **state) {
    (void)state;
    um_tok *t;
    um_err err;
    um_buf text = {0};
    um_ids want = {0};
    assert_int_equal(um_tok_open(&t, "models/tiny-block", &err), UM_OK);
    for (uint64_t i = 0; i < 3000; i++) {
        char word[48];
        snprintf(word, sizeof word, " the%llu %s", (unsigned long long)(um_rng_u64(1, i) % 700),
                 i % 3 ? "house" : "cost\n\n");
        um_ids ids = encode(t, um_str_of(word), UM_PARSE_ALL, false);
        for (size_t k = 0; k < ids.n; k++) um_ids_push(&want, ids.data[k]);
        um_buf_puts(&text, word);
        um_ids_free(&ids);
    }
    um_ids got = encode(t, buf_str(&text), UM_PARSE_ALL, false);
    assert_true(same_ids(&got, &want));
    um_ids_free(&got);
    um_ids_free(&want);
    um_buf_free(&text);
    um_tok_close(t);
}

static void invalid_utf8_is_refused_with_its_byte(void **state) {
    (void)state;
    um_tok *t = tok_of(TOKENIZER "}", NULL);
    um_ids ids = {0};
    um_err err;
    assert_int_equal(um_tok_encode(t, UM_STR("abc\xC3("), UM_PARSE_ALL, false, &ids, &err), UM_EINVAL);
    assert_non_null(strstr(err.msg, "byte 3"));
    assert_int_equal(ids.n, 0);
    um_tok_close(t);
}

/* What is refused, with the status and a part of the message. */
static const struct {
    const char *json, *says;
    um_status status;
} refused[] = {
    {"{", "tokenizer.json:1:", UM_EPARSE},
    {"[]", "JSON object", UM_EPARSE},
    {"{\"version\":\"2.0\"," BPE_MODEL "}", "version \"2.0\"", UM_EUNSUPPORTED},
    {"{\"version\":\"1.0\"}", "\"model\"", UM_EPARSE},
    {"{\"version\":\"1.0\",\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "Unigram", UM_EUNSUPPORTED},
    {"{\"version\":\"1.0\",\"normalizer\":{\"type\":\"Precompiled\"}," BPE_MODEL "}", "Precompiled", UM_EUNSUPPORTED},
    {"{\"version\":\"1.0\",\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}," BPE_MODEL "}", "UnicodeScripts",
     UM_EUNSUPPORTED},
    {"{\"version\":\"1.0\",\"decoder\":{\"type\":\"CTC\"}," BPE_MODEL "}", "CTC", UM_EUNSUPPORTED},
    {"{\"version\":\"1.0\",\"post_processor\":{\"type\":\"Nope\"}," BPE_MODEL "}", "Nope", UM_EUNSUPPORTED},
    {"{\"version\":\"1.0\",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "share the id 0",
     UM_EPARSE},
    {"{\"version\":\"1.0\",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "id of \"a\"", UM_EPARSE},
    {"{\"version\":\"1.0\",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}", "merges[0]",
     UM_EPARSE},
    {"{\"version\":\"1.0\",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}}", "merges[0]",
     UM_EPARSE},
    {TOKENIZER ",\"added_tokens\":[{\"id\":8,\"content\":\"x\"},{\"id\":8,\"content\":\"y\"}]}", "share the id 8",
     UM_EPARSE},
    {TOKENIZER ",\"added_tokens\":[{\"id\":1,\"content\":\"x\"}]}", "which is \"b\"", UM_EPARSE},
    {TOKENIZER ",\"added_tokens\":[{\"id\":8}]}", "content", UM_EPARSE},
};

static void broken_or_unknown_files_are_refused_by_name(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(refused); i++) {
        um_tok *t;
        um_err err;
        um_status st =
            um_tok_parse(&t, um_str_of(refused[i].json), (um_str){NULL, 0}, (um_str){NULL, 0}, "folder", &err);
        if (st != refused[i].status || !strstr(err.msg, refused[i].says) || !strstr(err.msg, "folder/tokenizer.json"))
            fail_msg("%s\ngives %d: %s", refused[i].json, st, st ? err.msg : "");
        assert_null(t);
    }
}

static void a_folder_without_tokenizer_is_not_found(void **state) {
    (void)state;
    um_tok *t;
    um_err err;
    assert_int_equal(um_tok_open(&t, "tests/data", &err), UM_ENOENT);
    assert_non_null(strstr(err.msg, "tokenizer.json"));
}

int main(void) {
    um_log_set_level(UM_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_a_checkpoint_folder_and_reads_back_what_it_wrote),
        cmocka_unit_test(word_level_joins_words_with_spaces),
        cmocka_unit_test(numbered_words_need_no_files),
        cmocka_unit_test(a_guarded_word_is_no_special_token),
        cmocka_unit_test(parse_levels_choose_which_tokens_text_can_spell),
        cmocka_unit_test(config_marks_special_tokens_and_asks_for_bos),
        cmocka_unit_test(text_with_nul_and_empty_text_are_text),
        cmocka_unit_test(repeated_words_encode_like_single_ones),
        cmocka_unit_test(invalid_utf8_is_refused_with_its_byte),
        cmocka_unit_test(broken_or_unknown_files_are_refused_by_name),
        cmocka_unit_test(a_folder_without_tokenizer_is_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
