/* text: decoders, and streams that never say what they would have to take back. */
#include "text_vectors.h"

static void stream_all(const um_tok *t, const um_ids *ids, bool skip_special, um_buf *out) {
    um_stream s;
    um_stream_init(&s, t, skip_special);
    for (size_t i = 0; i < ids->n; i++) {
        um_stream_push(&s, ids->data[i], out);
        assert_int_equal(um_utf8_check(out->data ? out->data : "", out->len), out->len);
    }
    um_stream_flush(&s, out);
}

/* Ids of a byte-level tokenizer that has only bytes: id = byte. */
static um_tok *tok_of_bytes(void) {
    json_t *vocab = json_object();
    for (int b = 0; b < 256; b++) {
        char s[5] = {0};
        s[um_utf8_put(um_byte_to_char((uint8_t)b), s)] = 0;
        json_object_set_new(vocab, s, json_integer(b));
    }
    json_t *json = json_pack("{s:s, s:{s:s}, s:{s:s, s:o, s:[]}, s:[{s:i, s:s, s:b}]}", "version", "1.0", "decoder",
                             "type", "ByteLevel", "model", "type", "BPE", "vocab", vocab, "merges", "added_tokens",
                             "id", 256, "content", "<s>", "special", 1);
    um_tok *t = tok_of_json(json);
    json_decref(json);
    return t;
}

static void random_bytes_stream_to_the_whole_and_never_half_a_character(void **state) {
    (void)state;
    const char *given = getenv("UM_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)um_rng_seed();
    static const uint8_t lively[] = {0x41, 0x80, 0xBF, 0xC3, 0xA9, 0xE4, 0xB8, 0xED,
                                     0xA0, 0xF0, 0x9F, 0x98, 0xF4, 0x90, 0xFF};
    um_tok *t = tok_of_bytes();
    print_message("UM_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (uint64_t round = 0; round < 2000; round++) {
        um_ids ids = {0};
        um_buf whole = {0}, pieces = {0}, bytes = {0};
        for (uint64_t i = 0; i < 1 + round % 12; i++) {
            uint64_t x = um_rng_u64(seed + round, i);
            um_ids_push(&ids, x % 17 == 0 ? 256 : lively[x % sizeof lively]);
            if (ids.data[i] < 256) um_buf_putc(&bytes, (char)ids.data[i]);
        }
        um_tok_decode(t, ids.data, ids.n, true, &whole);
        stream_all(t, &ids, true, &pieces);
        assert_text(buf_str(&pieces), buf_str(&whole));
        um_buf_clear(&whole);
        um_utf8_repair(buf_str(&bytes), &whole);
        assert_text(buf_str(&pieces), buf_str(&whole));
        um_ids_free(&ids);
        um_buf_free(&whole);
        um_buf_free(&pieces);
        um_buf_free(&bytes);
    }
    um_tok_close(t);
}

static um_str pushed(um_stream *s, int32_t id, um_buf *out) {
    um_buf_clear(out);
    um_stream_push(s, id, out);
    return buf_str(out);
}

static void a_character_waits_for_its_last_byte(void **state) {
    (void)state;
    um_tok *t = tok_of_bytes();
    um_stream s;
    um_buf out = {0};
    um_stream_init(&s, t, true);
    assert_text(pushed(&s, 0xF0, &out), UM_STR(""));
    assert_text(pushed(&s, 0x9F, &out), UM_STR(""));
    assert_text(pushed(&s, 256, &out), UM_STR("")); /* a special token that is left out does not end the character */
    assert_text(pushed(&s, 0x91, &out), UM_STR(""));
    assert_text(pushed(&s, 0x8D, &out), UM_STR("\xF0\x9F\x91\x8D"));
    assert_text(pushed(&s, 0xE4, &out), UM_STR(""));
    assert_text(pushed(&s, 0x41, &out), UM_STR("\xEF\xBF\xBD"
                                               "A"));
    assert_text(pushed(&s, 0xC3, &out), UM_STR(""));
    um_buf_clear(&out);
    um_stream_flush(&s, &out);
    assert_text(buf_str(&out), UM_STR("\xEF\xBF\xBD"));
    um_buf_free(&out);
    um_tok_close(t);
}

static void a_special_token_that_is_kept_ends_a_character(void **state) {
    (void)state;
    um_tok *t = tok_of_bytes();
    um_buf out = {0};
    um_tok_decode(t, (const int32_t[]){0xE4, 256, 0xB8}, 3, false, &out);
    assert_text(buf_str(&out), UM_STR("\xEF\xBF\xBD<s>\xEF\xBF\xBD"));
    um_buf_free(&out);
    um_tok_close(t);
}

int main(void) {
    um_log_set_level(UM_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_bytes_stream_to_the_whole_and_never_half_a_character),
        cmocka_unit_test(a_character_waits_for_its_last_byte),
        cmocka_unit_test(a_special_token_that_is_kept_ends_a_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
