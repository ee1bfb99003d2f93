/* Tests of the text of single tokens, and of prompts as the engine encodes them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>
#include <jansson.h>

#include "bos_folder.h"

static um_model *model, *with_bos, *with_bpe;
static char folder[] = BOS_FOLDER, bpe_folder[] = BOS_FOLDER;

static um_model *open_text(const char *dir) {
    um_config c;
    um_model *m;
    um_err err;
    um_config_init(&c);
    c.model = dir;
    if (um_model_open_text(&m, &c, &err)) fail_msg("%s", err.msg);
    return m;
}

/* Writes the folder of bos_folder_make with the decoder BPEDecoder. */
static void bpe_folder_make(void) {
    char path[64];
    json_t *t = NULL;
    bos_folder_make(bpe_folder);
    snprintf(path, sizeof path, "%s/tokenizer.json", bpe_folder);
    if (um_json_load(&t, path, NULL)) fail_msg("%s", path);
    json_object_set_new(t, "decoder", json_pack("{s:s,s:s}", "type", "BPEDecoder", "suffix", "</w>"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(json_dump_file(t, path, 0), 0);
    json_decref(t);
}

static int begin(void **state) {
    (void)state;
    bos_folder_make(folder);
    model = open_text("models/tiny-block");
    with_bos = open_text(folder);
    bpe_folder_make();
    with_bpe = open_text(bpe_folder);
    return 0;
}

static int end(void **state) {
    (void)state;
    um_model_close(model);
    um_model_close(with_bos);
    um_model_close(with_bpe);
    bos_folder_remove(folder);
    bos_folder_remove(bpe_folder);
    return 0;
}

static size_t encode(const um_model *m, const char *text, bool around, int32_t ids[64]) {
    int32_t *got;
    size_t n;
    um_err err;
    if (um_model_encode_prompt(m, text, strlen(text), UM_SPECIAL_AUTO, around, &got, &n, &err)) fail_msg("%s", err.msg);
    assert_true(n <= 64);
    memcpy(ids, got, n * sizeof *ids);
    um_free(got);
    return n;
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

static void texts_of_tokens_join_to_the_whole(void **state) {
    (void)state;
    static const char text[] = "Gr\xC3\xBC\xC3\x9F"
                               "e, \xF0\x9F\x98\x80!";
    int32_t ids[64];
    size_t at[64], n = encode(model, text, false, ids);
    char *each;
    um_buf bytes = {0};
    assert_int_equal(um_model_decode_each(model, ids, n, false, &each, at, NULL), UM_OK);
    assert_string_equal(each, text);
    assert_int_equal(at[n - 1], strlen(text));
    for (size_t i = 0; i < n; i++) {
        size_t from = i ? at[i - 1] : 0, size;
        const char *raw = um_model_token_bytes(model, ids[i], &size);
        assert_true(at[i] >= from);
        assert_int_equal(um_utf8_check(each + from, at[i] - from), at[i] - from); /* complete characters */
        um_buf_append(&bytes, raw, size);
    }
    assert_string_equal(bytes.data, text);
    um_buf_free(&bytes);
    um_free(each);
}

/* BPEDecoder writes the last token differently. So the stream returns the text of a token when the next one is known.
 * The text must still be counted for its own token. */
static void a_text_that_waits_for_the_next_token_is_its_tokens_own(void **state) {
    (void)state;
    static const char *const token[] = {"Hello", "World", "!"};
    int32_t ids[64], n = 0, none = encode(with_bos, "<|startoftext|>", false, ids) == 1 ? ids[0] : -1;
    size_t at[5];
    char *each;
    assert_true(none >= 0);
    for (size_t i = 0; i < 3; i++) {
        int32_t got[64];
        size_t n_got = encode(with_bos, token[i], false, got);
        ids[n++] = got[n_got - 1];
        if (i == 1) ids[n++] = none; /* a special token is skipped; it ends where the token before it ends */
    }
    assert_int_equal(um_model_decode_each(with_bpe, ids, (size_t)n, false, &each, at, NULL), UM_OK);
    for (int32_t i = 0, from = 0; i < n; i++) {
        size_t len = 0;
        if (ids[i] != none) (void)um_model_token_bytes(with_bpe, ids[i], &len);
        from += (int32_t)len;
        assert_int_equal(at[i], from);
    }
    um_free(each);
}

static void a_gap_ends_what_was_begun(void **state) {
    (void)state;
    int32_t ids[64];
    size_t at[4], n = encode(model, "\xF0\x9F\x98\x80", false, ids);
    char *each;
    assert_true(n > 1);
    int32_t cut[] = {ids[0], -1, ids[0], ids[1]};
    assert_int_equal(um_model_decode_each(model, cut, 4, false, &each, at, NULL), UM_OK);
    assert_int_equal(at[0], 3); /* U+FFFD */
    assert_int_equal(at[1], 3);
    assert_int_equal(at[2], 3);
    assert_string_equal(each, "\xEF\xBF\xBD\xEF\xBF\xBD");
    um_free(each);
}

static void ids_outside_the_vocabulary_are_refused(void **state) {
    (void)state;
    int32_t ids[] = {1, 1 << 24};
    size_t at[2], n = 1;
    char *each;
    um_err err;
    assert_int_equal(um_model_decode_each(model, ids, 2, false, &each, at, &err), UM_ERANGE);
    assert_non_null(strstr(err.msg, "index 1"));
    assert_null(each);
    um_model_token_bytes(model, 1 << 24, &n);
    assert_int_equal(n, 0);
}

/* ---- Prompts ----------------------------------------------------------------------------------------------------- */

static void bos_goes_before_a_text_once_and_only_when_asked(void **state) {
    (void)state;
    int32_t plain[64], around[64], spelled[64];
    size_t n = encode(with_bos, "hi there", false, plain);
    assert_int_equal(encode(with_bos, "hi there", true, around), n + 1);
    assert_memory_equal(around + 1, plain, n * sizeof *plain);
    assert_int_equal(encode(with_bos, "<|startoftext|>hi there", true, spelled), n + 1);
    assert_memory_equal(spelled, around, (n + 1) * sizeof *around);
    assert_int_equal(encode(model, "hi there", true, around), encode(model, "hi there", false, plain));
}

static void a_level_may_keep_special_tokens_text(void **state) {
    (void)state;
    int32_t *ids, parsed[64];
    size_t n, n_parsed = encode(model, "<|im_end|>", true, parsed);
    um_err err;
    assert_int_equal(n_parsed, 1);
    assert_int_equal(um_model_encode_prompt(model, "<|im_end|>", 10, UM_SPECIAL_TEXT, true, &ids, &n, &err), UM_OK);
    assert_true(n > 1);
    um_free(ids);
    assert_int_equal(um_model_encode_prompt(model, "<|im_end|>", 10, UM_SPECIAL_REJECT, true, &ids, &n, &err),
                     UM_EINVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_of_tokens_join_to_the_whole),
        cmocka_unit_test(a_text_that_waits_for_the_next_token_is_its_tokens_own),
        cmocka_unit_test(a_gap_ends_what_was_begun),
        cmocka_unit_test(ids_outside_the_vocabulary_are_refused),
        cmocka_unit_test(bos_goes_before_a_text_once_and_only_when_asked),
        cmocka_unit_test(a_level_may_keep_special_tokens_text),
    };
    return cmocka_run_group_tests_name("model_text", tests, begin, end);
}
