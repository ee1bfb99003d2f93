/* text: added tokens are cut out of the text before anything else. */
#include "text_vectors.h"

/* A word-level tokenizer, so that what is left between the tokens can be seen: letters 0.., x unknown. */
#define MODEL                                                                                                          \
    "\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"?\":0,\"a\":1,\"b\":2,\"ab\":3,\" \":4,\"<s\":5},"                 \
    "\"unk_token\":\"?\"}"
#define WITH(tokens)          "{\"version\":\"1.0\"," MODEL ",\"added_tokens\":[" tokens "]}"
#define TOKEN(id, text, more) "{\"id\":" id ",\"content\":\"" text "\",\"normalized\":false" more "}"

static void the_longest_token_wins_at_the_leftmost_place(void **state) {
    (void)state;
    um_tok *t = tok_of(WITH(TOKEN("10", "<s>", "") "," TOKEN("11", "<s>x", "") "," TOKEN("12", "s>xy", "")), NULL);
    assert_encodes(t, "<s>xy", 11, 0);
    assert_encodes(t, "<s><s>x", 10, 11);
    assert_encodes(t, "<s", 5);
    assert_encodes(t, "as>xyb", 1, 12, 2);
    um_tok_close(t);
}

static void single_word_needs_both_edges_free(void **state) {
    (void)state;
    um_tok *t = tok_of(WITH(TOKEN("10", "cc", ",\"single_word\":true")), NULL);
    assert_encodes(t, "cc", 10);
    assert_encodes(t, "-cc-", 0, 10, 0);
    assert_encodes(t, "bcc", 0);
    assert_encodes(t, "cc\xC3\xA9", 0); /* a letter is a letter in every script */
    um_tok_close(t);
}

static void strip_flags_take_the_white_space_along(void **state) {
    (void)state;
    um_tok *t = tok_of(WITH(TOKEN("10", "<l>", ",\"lstrip\":true") "," TOKEN("11", "<r>", ",\"rstrip\":true")), NULL);
    assert_encodes(t, "a \t\xE3\x80\x80<l>b", 1, 10, 2);
    assert_encodes(t, "a<r> \n b", 1, 11, 2);
    assert_encodes(t, "<r>  <l>", 11, 10); /* what the first one took is gone */
    assert_encodes(t, "a<l> b", 1, 10, 0);
    um_tok_close(t);
}

static void normalized_tokens_match_behind_the_normalizer(void **state) {
    (void)state;
    um_tok *t = tok_of("{\"version\":\"1.0\",\"normalizer\":{\"type\":\"Lowercase\"}," MODEL
                       ",\"added_tokens\":[{\"id\":10,\"content\":\"XY\",\"normalized\":true},"
                       "{\"id\":11,\"content\":\"ZZ\",\"normalized\":false}]}",
                       NULL);
    assert_encodes(t, "axYb", 1, 10, 2);
    assert_encodes(t, "ZZzz", 11, 0);
    um_tok_close(t);
}

/* <|x|> with a combining mark behind it: composing first would lose the token. */
static void tokens_are_cut_before_the_normalizer(void **state) {
    (void)state;
    um_tok *t = tok_of("{\"version\":\"1.0\",\"normalizer\":{\"type\":\"NFC\"}," MODEL
                       ",\"added_tokens\":[" TOKEN("10", "<|x|>", "") "]}",
                       NULL);
    assert_encodes(t, "a<|x|>\xCC\xB8", 1, 10, 0);
    um_tok_close(t);
}

static void thousands_of_tokens_are_found(void **state) {
    (void)state;
    um_buf json = {0}, text = {0};
    um_buf_puts(&json, "{\"version\":\"1.0\"," MODEL ",\"added_tokens\":[");
    for (int i = 0; i < 6000; i++)
        um_buf_printf(&json, "%s{\"id\":%d,\"content\":\"<%d>\",\"normalized\":false}", i ? "," : "", 100 + i, i);
    um_buf_puts(&json, "]}");
    for (int i = 0; i < 6000; i++) um_buf_printf(&text, "<%d>", i);
    um_tok *t = tok_of(json.data, NULL);
    um_ids ids = encode(t, buf_str(&text), UM_PARSE_ALL, false);
    assert_int_equal(ids.n, 6000);
    for (int i = 0; i < 6000; i++) assert_int_equal(ids.data[i], 100 + i);
    um_ids_free(&ids);
    um_tok_close(t);
    um_buf_free(&json);
    um_buf_free(&text);
}

int main(void) {
    um_log_set_level(UM_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_token_wins_at_the_leftmost_place),
        cmocka_unit_test(single_word_needs_both_edges_free),
        cmocka_unit_test(strip_flags_take_the_white_space_along),
        cmocka_unit_test(normalized_tokens_match_behind_the_normalizer),
        cmocka_unit_test(tokens_are_cut_before_the_normalizer),
        cmocka_unit_test(thousands_of_tokens_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
