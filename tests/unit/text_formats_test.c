/* text: the vocabulary formats other than tokenizer.json, from files that are written here. */
#include <unistd.h>

#include "text_vectors.h"

/* ---- Folders in memory ------------------------------------------------------------------------------------------- */

#define GPT2_CONFIG "{\"tokenizer_class\":\"GPT2Tokenizer\"}"
#define QWEN_CONFIG "{\"tokenizer_class\":\"tokenization_qwen2.Qwen2TokenizerFast\"}"
#define VOCAB       "{\"a\":0,\"b\":1,\"ab\":2,\"\\u0120\":3,\"\\u0120a\":4,\"c\":5}"
#define MERGES      "#version: 0.2\r\na b\r\n\r\n\xC4\xA0 a\n"

typedef struct folder {
    um_tok_files files;
} folder;

static void folder_begin(folder *f) { um_tok_files_init(&f->files, "folder"); }

static void folder_put(folder *f, int which, const char *text) { f->files.text[which] = um_str_of(text); }

/* NULL, with the message in err, when it does not open. */
static um_tok *folder_open(folder *f, um_err *err) {
    um_tok *t = NULL;
    um_tok_build(&t, &f->files, err);
    um_tok_files_free(&f->files);
    return t;
}

static um_tok *slow_tok(const char *config, const char *added, const char *map) {
    folder f;
    um_err err;
    folder_begin(&f);
    folder_put(&f, UM_FILE_VOCAB, VOCAB);
    folder_put(&f, UM_FILE_MERGES, MERGES);
    folder_put(&f, UM_FILE_CONFIG, config);
    if (added) folder_put(&f, UM_FILE_ADDED, added);
    if (map) folder_put(&f, UM_FILE_SPECIAL_MAP, map);
    um_tok *t = folder_open(&f, &err);
    if (!t) fail_msg("%s", err.msg);
    return t;
}

static void assert_decodes(const um_tok *t, const int32_t *id, size_t n, const char *text) {
    um_buf whole = {0}, joined = {0};
    um_stream s;
    um_tok_decode(t, id, n, false, &whole);
    assert_text(buf_str(&whole), um_str_of(text));
    um_stream_init(&s, t, false);
    for (size_t i = 0; i < n; i++) um_stream_push(&s, id[i], &joined);
    um_stream_flush(&s, &joined);
    assert_text(buf_str(&joined), um_str_of(text));
    um_buf_free(&whole);
    um_buf_free(&joined);
}
#define assert_says(t, text, ...)                                                                                      \
    assert_decodes((t), (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t), text)

/* ---- vocab.json and merges.txt ----------------------------------------------------------------------------------- */

static void slow_files_are_cut_as_their_class_says(void **state) {
    (void)state;
    um_tok *t = slow_tok(GPT2_CONFIG, NULL, NULL);
    assert_encodes(t, "ab a", 2, 4);
    assert_says(t, "ab ab", 2, 4, 1);
    um_tok_close(t);
    t = slow_tok("{\"tokenizer_class\":\"GPT2Tokenizer\",\"add_prefix_space\":true}", NULL, NULL);
    assert_encodes(t, "a", 4);
    um_tok_close(t);
    t = slow_tok(QWEN_CONFIG, NULL, NULL);
    assert_encodes(t, "ab a", 2, 4);
    um_tok_close(t);
}

static void added_tokens_come_from_the_configuration_or_else_from_their_own_file(void **state) {
    (void)state;
    um_tok *t = slow_tok("{\"tokenizer_class\":\"Qwen2Tokenizer\",\"mask_token\":\"<M>\",\"added_tokens_decoder\":"
                         "{\"7\":{\"content\":\"<M>\",\"special\":true}}}",
                         "{\"<stale>\":7}", "{\"mask_token\":\"<stale>\", broken");
    assert_int_equal(um_tok_special_id(t, "mask_token"), 7);
    assert_int_equal(um_tok_find(t, UM_STR("<stale>")), -1);
    um_tok_close(t);
    t = slow_tok(QWEN_CONFIG, "{\"<e>\":8,\"<x>\":9}", "{\"eos_token\":{\"content\":\"<e>\"}}");
    assert_encodes(t, "a<e><x>", 0, 8, 9);
    assert_true(um_tok_is_special(t, 8));
    assert_false(um_tok_is_special(t, 9));
    assert_int_equal(um_tok_special_id(t, "eos_token"), 8);
    um_tok_close(t);
}

static void the_configuration_goes_before_the_map_of_special_tokens(void **state) {
    (void)state;
    um_tok *t = slow_tok("{\"tokenizer_class\":\"Qwen2Tokenizer\",\"eos_token\":\"<e>\",\"additional_special_tokens\":"
                         "[\"<e>\"]}",
                         "{\"<e>\":8,\"<x>\":9,\"<m>\":10}",
                         "{\"eos_token\":\"<x>\",\"mask_token\":\"<m>\",\"additional_special_tokens\":[\"<x>\"]}");
    assert_int_equal(um_tok_special_id(t, "eos_token"), 8);
    assert_int_equal(um_tok_special_id(t, "mask_token"), 10);
    assert_true(um_tok_is_special(t, 10));
    assert_false(um_tok_is_special(t, 9));
    um_tok_close(t);
}

/* ---- tiktoken ---------------------------------------------------------------------------------------------------- */

/* Every byte, then "ab", "bc", "abc", "bcd" in this order. */
static char *tiktoken_text(void) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    um_buf out = {0};
    for (int b = 0; b < 256; b++) um_buf_printf(&out, "%c%c== %d\n", digits[b >> 2], digits[(b & 3) << 4], b);
    um_buf_puts(&out, "YWI= 256\r\nYmM= 257\nYWJj 258\nYmNk 259\n");
    return um_buf_take(&out);
}

static void tiktoken_merges_by_the_rank_of_the_result(void **state) {
    (void)state;
    folder f;
    um_err err;
    char *text = tiktoken_text();
    folder_begin(&f);
    folder_put(&f, UM_FILE_TIKTOKEN, text);
    folder_put(&f, UM_FILE_CONFIG, "{\"tokenizer_class\":\"QWenTokenizer\",\"eos_token\":\"<|im_end|>\"}");
    um_tok *t = folder_open(&f, &err);
    if (!t) fail_msg("%s", err.msg);
    assert_encodes(t, "ab", 256);
    assert_encodes(t, "abc", 258);
    assert_encodes(t, "bcd", 259);
    assert_encodes(t, "abcd", 258, 'd');
    assert_encodes(t, "a1<|im_end|>", 'a', '1', 262);
    assert_int_equal(um_tok_special_id(t, "eos_token"), 262);
    assert_int_equal(um_tok_find(t, UM_STR("<|extra_204|>")), 260 + 3 + 204);
    assert_says(t, "abc\xC3\xA9", 258, 0xC3, 0xA9);
    um_tok_close(t);
    um_free(text);
}

/* ---- SentencePiece ----------------------------------------------------------------------------------------------- */

static void put_varint(um_buf *out, uint64_t v) {
    for (; v >= 128; v >>= 7) um_buf_putc(out, (char)(v | 128));
    um_buf_putc(out, (char)v);
}

static void put_number(um_buf *out, uint32_t field, uint64_t v) {
    put_varint(out, field << 3);
    put_varint(out, v);
}

static void put_bytes(um_buf *out, uint32_t field, um_str s) {
    put_varint(out, field << 3 | 2);
    put_varint(out, s.n);
    um_buf_append(out, s.p, s.n);
}

static void put_piece(um_buf *out, const char *text, float score, int type) {
    um_buf m = {0};
    put_bytes(&m, 1, um_str_of(text));
    put_varint(&m, 2 << 3 | 5);
    um_buf_append(&m, &score, sizeof score); /* little-endian, as this machine */
    if (type != 1) put_number(&m, 3, (uint64_t)type);
    put_bytes(out, 1, buf_str(&m));
    um_buf_free(&m);
}

/* <unk> <s> </s> <0xC3> <0xA9> _ a b ab _a _ab it. The best score merges first: "_a" before "ab". */
static void put_pieces(um_buf *out) {
    static const struct {
        const char *text;
        float score;
        int type;
    } pieces[] = {{"<unk>", 0, 2},
                  {"<s>", 0, 3},
                  {"</s>", 0, 3},
                  {"<0xC3>", 0, 6},
                  {"<0xA9>", 0, 6},
                  {"\xE2\x96\x81", -5, 1},
                  {"a", -6, 1},
                  {"b", -7, 1},
                  {"ab", -3, 1},
                  {"\xE2\x96\x81"
                   "a",
                   -2, 1},
                  {"\xE2\x96\x81"
                   "ab",
                   -4, 1},
                  {"it", 0, 4}};
    for (size_t i = 0; i < UM_LEN(pieces); i++) put_piece(out, pieces[i].text, pieces[i].score, pieces[i].type);
}

static um_tok *spm_tok(bool prefix, bool squeeze, um_err *err) {
    um_buf model = {0}, trainer = {0}, norm = {0};
    folder f;
    put_pieces(&model);
    put_number(&trainer, 3, 2);
    put_number(&trainer, 35, 1);
    put_number(&trainer, 41, 1);
    put_bytes(&norm, 1, UM_STR("identity"));
    put_number(&norm, 3, prefix);
    put_number(&norm, 4, squeeze);
    put_bytes(&model, 2, buf_str(&trainer));
    put_bytes(&model, 3, buf_str(&norm));
    folder_begin(&f);
    f.files.text[UM_FILE_SPM] = buf_str(&model);
    folder_put(&f, UM_FILE_CONFIG, "{\"add_bos_token\":true,\"eos_token\":\"</s>\"}");
    um_tok *t = folder_open(&f, err);
    um_buf_free(&model);
    um_buf_free(&trainer);
    um_buf_free(&norm);
    return t;
}

static void sentencepiece_merges_by_score_and_falls_back_to_bytes(void **state) {
    (void)state;
    um_err err;
    um_tok *t = spm_tok(false, false, &err);
    if (!t) fail_msg("%s", err.msg);
    assert_encodes(t, "ab", 8);
    assert_encodes(t, " ab", 10);
    assert_encodes(t, "a  ab", 6, 5, 10);
    assert_encodes(t, "it\xC3\xA9zz", 11, 3, 4, 0); /* one unknown token for a run */
    assert_encodes(t, "</s>a", 2, 6);
    assert_true(um_tok_is_special(t, 1));
    assert_false(um_tok_is_special(t, 11));
    assert_int_equal(um_tok_special_id(t, "bos_token"), 1); /* the model's own trainer says so */
    assert_int_equal(um_tok_special_id(t, "unk_token"), 0);
    assert_says(t, " ab\xC3\xA9", 10, 3, 4);
    assert_ids(encode(t, UM_STR("a"), UM_PARSE_ALL, true), (const int32_t[]){1, 6}, 2);
    assert_ids(encode(t, UM_STR("<s>a"), UM_PARSE_ALL, true), (const int32_t[]){1, 6}, 2); /* no second one */
    um_tok_close(t);
}

static void sentencepiece_prefixes_and_squeezes_spaces_when_the_model_says_so(void **state) {
    (void)state;
    um_err err;
    um_tok *t = spm_tok(true, true, &err);
    if (!t) fail_msg("%s", err.msg);
    assert_encodes(t, "  ab   ab ", 10, 10);
    assert_says(t, "ab ab", 10, 10);
    um_tok_close(t);
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

static const struct {
    int file;
    const char *text, *config, *says;
    um_status status;
} refused[] = {
    {UM_FILE_VOCAB, "{\"a\":0}", NULL, "tokenizer_class \"\"", UM_EUNSUPPORTED},
    {UM_FILE_VOCAB, "{\"a\":0}", "{\"tokenizer_class\":\"PreTrainedTokenizerFast\"}", "a tokenizer.json",
     UM_EUNSUPPORTED},
    {UM_FILE_VOCAB, "{\"a\":0,\n \"b\":0}", GPT2_CONFIG, "share the id 0", UM_EPARSE},
    {UM_FILE_VOCAB, "{\"a\":0,\n \"b\" 1}", GPT2_CONFIG, "vocab.json:2:6: expected ':'", UM_EPARSE},
    {UM_FILE_VOCAB, "{\"a\":1.5}", GPT2_CONFIG, "vocab.json:1:6: expected an integer", UM_EPARSE},
    {UM_FILE_VOCAB, "{\"a\":01}", GPT2_CONFIG, "expected an integer", UM_EPARSE},
    {UM_FILE_VOCAB, "{\"\\ud800\":1}", GPT2_CONFIG, "surrogate", UM_EPARSE},
    {UM_FILE_VOCAB, "{\"\xFF\":1}", GPT2_CONFIG, "vocab.json:1:3: expected valid UTF-8", UM_EPARSE},
    {UM_FILE_VOCAB, "{\"a\nb\":1}", GPT2_CONFIG, "without line breaks", UM_EPARSE},
    {UM_FILE_VOCAB, "{\"a\":1} x", GPT2_CONFIG, "the end of the file", UM_EPARSE},
    {UM_FILE_VOCAB, "{\"a\":2097152}", GPT2_CONFIG, "0 to 2097151, not 2097152", UM_EPARSE},
    {UM_FILE_MERGES, "#version\na b c\n", GPT2_CONFIG, "merges.txt:2: a merge must be two tokens", UM_EPARSE},
    {UM_FILE_MERGES, "a b\n\nb a\n", GPT2_CONFIG, "merges.txt:3: the result of \"b\" + \"a\"", UM_EPARSE},
    {UM_FILE_MERGES, "a \n", GPT2_CONFIG, "a part of the merge is empty", UM_EPARSE},
    {UM_FILE_SPM, "\x0A\x7F", NULL, "tokenizer.model: byte 0", UM_EPARSE},
    {UM_FILE_SPM, "", NULL, "model_type is 1", UM_EUNSUPPORTED},
    {UM_FILE_SPM,
     "\x12\x02\x18\x02\x1A\x08\x0A\x03"
     "abc\x12\x01x",
     NULL, "the normalizer \"abc\"", UM_EUNSUPPORTED},
    {UM_FILE_SPM,
     "\x0A\x03\x0A\x01"
     "a\x0A\x03\x0A\x01"
     "a\x12\x02\x18\x02",
     NULL, "pieces 0 and 1 are both \"a\"", UM_EPARSE},
    {UM_FILE_SPM, "\x0A\x03\x0A\x01\xFF\x12\x02\x18\x02", NULL, "not valid UTF-8", UM_EPARSE},
    {UM_FILE_TIKTOKEN, "YQ== 0\n", NULL, "QWenTokenizer", UM_EUNSUPPORTED},
    {UM_FILE_TIKTOKEN, "YQ== 0\nYg= 1\n", "{\"tokenizer_class\":\"QWenTokenizer\"}", ":2: expected a token in base64",
     UM_EPARSE},
    {UM_FILE_TIKTOKEN, "YQ== x\n", "{\"tokenizer_class\":\"QWenTokenizer\"}", ":1: expected a token in base64",
     UM_EPARSE},
    {UM_FILE_ADDED, "{\"<x>\":\"y\"}", GPT2_CONFIG, "added_tokens.json: \"<x>\": expected an integer", UM_EPARSE},
    {UM_FILE_ADDED, "{\"<x>\":1}", GPT2_CONFIG, "which is \"b\"", UM_EPARSE},
};

static void broken_files_are_refused_with_their_place(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(refused); i++) {
        folder f;
        um_err err = {0};
        folder_begin(&f);
        if (refused[i].file == UM_FILE_VOCAB || refused[i].file == UM_FILE_MERGES || refused[i].file == UM_FILE_ADDED) {
            folder_put(&f, UM_FILE_VOCAB, VOCAB);
            folder_put(&f, UM_FILE_MERGES, "");
        }
        folder_put(&f, refused[i].file, refused[i].text);
        if (refused[i].config) folder_put(&f, UM_FILE_CONFIG, refused[i].config);
        um_tok *t = folder_open(&f, &err);
        if (t || err.code != refused[i].status || !strstr(err.msg, refused[i].says))
            fail_msg("%zu: \"%s\" gives %d: %s", i, refused[i].text, err.code, t ? "a tokenizer" : err.msg);
    }
}

static void a_folder_without_vocabulary_names_what_was_looked_for(void **state) {
    (void)state;
    static const char *const names[] = {"tokenizer.json", "vocab.json", "merges.txt", "tokenizer.model", "*.tiktoken"};
    um_tok *t;
    um_err err;
    assert_int_equal(um_tok_open(&t, "tests/golden", &err), UM_ENOENT);
    for (size_t i = 0; i < UM_LEN(names); i++) assert_non_null(strstr(err.msg, names[i]));
    assert_non_null(strstr(err.msg, "tests/golden"));
}

static void write_file(const char *dir, const char *name, const char *text) {
    char *path = um_path_join(dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    um_free(path);
}

static void remove_file(const char *dir, const char *name) {
    char *path = um_path_join(dir, name);
    assert_int_equal(unlink(path), 0);
    um_free(path);
}

/* A folder gets one more format at a time, each of which goes before those that are there. */
static void formats_are_looked_for_in_their_order(void **state) {
    (void)state;
    char dir[] = "/tmp/unmask-formats-XXXXXX", *ranks = tiktoken_text();
    um_tok *t;
    um_err err;
    assert_non_null(mkdtemp(dir));
    write_file(dir, "tokenizer_config.json", "{\"tokenizer_class\":\"QWenTokenizer\",\"tokenizer_file\":\"ranks\"}");
    write_file(dir, "ranks", ranks);
    assert_int_equal(um_tok_open(&t, dir, &err), UM_OK);
    assert_encodes(t, "abc", 258);
    um_tok_close(t);
    write_file(dir, "a.tiktoken", "YQ== 0\n");
    assert_int_equal(um_tok_open(&t, dir, &err), UM_OK);
    assert_encodes(t, "a", 0);
    um_tok_close(t);
    write_file(dir, "tokenizer.model", "");
    assert_int_equal(um_tok_open(&t, dir, &err), UM_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "tokenizer.model"));
    write_file(dir, "vocab.json", VOCAB);
    assert_int_equal(um_tok_open(&t, dir, &err), UM_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "tokenizer.model")); /* vocab.json alone is no format */
    write_file(dir, "merges.txt", MERGES);
    assert_int_equal(um_tok_open(&t, dir, &err), UM_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "vocab.json and merges.txt need"));
    write_file(dir, "tokenizer.json",
               "{\"version\":\"1.0\",\"model\":{\"type\":\"BPE\",\"vocab\":{\"x\":0},\"merges\":[]}}");
    assert_int_equal(um_tok_open(&t, dir, &err), UM_OK);
    assert_encodes(t, "x", 0);
    um_tok_close(t);
    static const char *const names[] = {"tokenizer.json", "merges.txt", "vocab.json",           "tokenizer.model",
                                        "a.tiktoken",     "ranks",      "tokenizer_config.json"};
    for (size_t i = 0; i < UM_LEN(names); i++) remove_file(dir, names[i]);
    assert_int_equal(rmdir(dir), 0);
    um_free(ranks);
}

/* ---- Clean-up ---------------------------------------------------------------------------------------------------- */

/* The reference's replacements, one after the other over the whole text. */
static void replace_all(um_buf *text) {
    static const char *const rules[][2] = {{" .", "."},     {" ?", "?"},     {" !", "!"},   {" ,", ","},
                                           {" ' ", "'"},    {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"},
                                           {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < UM_LEN(rules); i++) {
        um_buf out = {0};
        um_match_state scan = {0};
        um_pattern p = {.literal = um_str_of(rules[i][0])};
        um_pattern_replace(&p, &scan, buf_str(text), um_str_of(rules[i][1]), &out, NULL);
        um_buf_free(text);
        *text = out;
    }
}

static void cleaning_a_stream_equals_replacing_in_the_whole(void **state) {
    (void)state;
    static const char letters[] = "   ''.,!?nntsmver";
    const char *given = getenv("UM_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)um_rng_seed();
    print_message("UM_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (uint64_t round = 0; round < 3000; round++) {
        um_buf want = {0}, got = {0};
        uint8_t held[UM_CLEAN_RULES] = {0};
        for (uint64_t i = 0; i < 1 + round % 40; i++) {
            char c = letters[um_rng_u64(seed + round, i) % (sizeof letters - 1)];
            size_t from = got.len;
            um_buf_putc(&want, c);
            um_buf_putc(&got, c);
            um_clean_text(held, &got, from);
        }
        um_clean_end(held, &got);
        replace_all(&want);
        assert_text(buf_str(&got), buf_str(&want));
        um_buf_free(&want);
        um_buf_free(&got);
    }
}

static void decode_cleans_up_when_the_configuration_says_so(void **state) {
    (void)state;
    um_tok *t = tok_of("{\"version\":\"1.0\",\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"it\":0,\"'s\":1,\"so\":2,"
                       "\".\":3},\"unk_token\":\"it\"}}",
                       "{\"clean_up_tokenization_spaces\":true}");
    assert_says(t, "it's so.", 0, 1, 2, 3);
    um_tok_close(t);
}

int main(void) {
    um_log_set_level(UM_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_files_are_cut_as_their_class_says),
        cmocka_unit_test(added_tokens_come_from_the_configuration_or_else_from_their_own_file),
        cmocka_unit_test(the_configuration_goes_before_the_map_of_special_tokens),
        cmocka_unit_test(tiktoken_merges_by_the_rank_of_the_result),
        cmocka_unit_test(sentencepiece_merges_by_score_and_falls_back_to_bytes),
        cmocka_unit_test(sentencepiece_prefixes_and_squeezes_spaces_when_the_model_says_so),
        cmocka_unit_test(broken_files_are_refused_with_their_place),
        cmocka_unit_test(a_folder_without_vocabulary_names_what_was_looked_for),
        cmocka_unit_test(formats_are_looked_for_in_their_order),
        cmocka_unit_test(cleaning_a_stream_equals_replacing_in_the_whole),
        cmocka_unit_test(decode_cleans_up_when_the_configuration_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
