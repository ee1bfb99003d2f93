/* Properties that hold for every text and every family, tested with random texts. UM_TEST_SEED repeats a run. */
#include "vectors.h"

static const char *const folders[] = {"qwen3", "llada", "llada2", "seed_diffcoder", "gemma3"};
enum { N_FAMILIES = UM_LEN(folders), N_THREADS = 16 };

static um_tok *toks[N_FAMILIES]; /* NULL: not in the data folder, which families_test reports */
static uint64_t seed;

#define FOR_EACH_TOK(t)                                                                                                \
    for (um_tok **at = toks, *t = NULL; at < toks + N_FAMILIES; at++)                                                  \
        if ((t = *at) != NULL)

static int open_all(void **state) {
    (void)state;
    const char *given = getenv("UM_TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)um_rng_seed();
    print_message("UM_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < N_FAMILIES; i++) {
        um_err err;
        if (!data_exists(folders[i], "tokenizer.json")) continue;
        toks[i] = open_data(folders[i], &err);
        if (!toks[i]) print_error("%s\n", err.msg);
        if (!toks[i]) return -1;
    }
    return 0;
}

static int close_all(void **state) {
    (void)state;
    for (size_t i = 0; i < N_FAMILIES; i++) um_tok_close(toks[i]);
    return 0;
}

static uint64_t draw(uint64_t key, uint64_t i, uint64_t below) { return um_rng_u64(seed + key, i) % below; }

/* Appends n random parts: words of the vocabulary, characters with special rules, and runs of such a character. */
static void random_text(const um_tok *t, uint64_t key, uint64_t n, um_buf *out) {
    static const uint32_t lively[] = {' ',  ' ',   '\n',   '\r',    '\t',   '\'',   's',    '0',
                                      '.',  0xE9,  0x301,  0x338,   0x2581, 0x3000, 0x200B, 0x4E2D,
                                      0xBD, 0x5D0, 0xFEFF, 0x1F44D, 0xAC00, 'q'};
    for (uint64_t i = 0; i < n; i++) {
        char c[4];
        int32_t id = (int32_t)draw(key, 3 * i + 1, (uint64_t)t->vocab.size);
        um_str word = um_tok_bytes(t, id);
        uint64_t kind = draw(key, 3 * i, 8);
        if (kind < 3 && um_utf8_check(word.p, word.n) == word.n) um_buf_append(out, word.p, word.n);
        else {
            uint64_t times = kind == 7 ? 1 + draw(key, 3 * i + 2, 90) : 1;
            int len = um_utf8_put(lively[draw(key, 3 * i + 1, UM_LEN(lively))], c);
            while (times--) um_buf_append(out, c, (size_t)len);
        }
    }
}

/* ---- Round trips ------------------------------------------------------------------------------------------------- */

/* Computes the text that decoding must give: the normalized text. Without byte-level tokens (Gemma), U+2581 becomes a
 * space. */
static void expected_back(const um_tok *t, um_str text, um_buf *out) {
    um_match_state scan = {0};
    um_buf buf[2] = {{0}, {0}};
    um_err err;
    um_str norm;
    assert_int_equal(um_norm_apply(&t->norm, &scan, text, buf, &norm, &err), UM_OK);
    um_pattern p = {.literal = t->pre.byte_level ? UM_STR("\xFF") : UM_STR("\xE2\x96\x81")};
    um_pattern_replace(&p, &scan, norm, UM_STR(" "), out, NULL);
    um_buf_free(&buf[0]);
    um_buf_free(&buf[1]);
    um_scan_free(&scan);
}

static void decoding_gives_the_normalized_text_back(void **state) {
    (void)state;
    FOR_EACH_TOK(t) for (uint64_t round = 0; round < 300; round++) {
        um_buf text = {0}, back = {0}, want = {0};
        random_text(t, round << 20, 1 + round % 60, &text);
        um_ids ids = encode(t, buf_str(&text), UM_PARSE_NONE, false);
        um_tok_decode(t, ids.data, ids.n, false, &back);
        expected_back(t, buf_str(&text), &want);
        assert_text(buf_str(&back), buf_str(&want));
        um_ids_free(&ids);
        um_buf_free(&text);
        um_buf_free(&back);
        um_buf_free(&want);
    }
}

static void a_special_token_separates_what_is_around_it(void **state) {
    (void)state;
    FOR_EACH_TOK(t) for (uint64_t round = 0; round < 200; round++) {
        const um_added *s = &t->added[draw(round, 0, t->n_added)];
        um_buf a = {0}, b = {0}, all = {0};
        if (!s->special) continue;
        random_text(t, round << 20 | 1, 5, &a);
        random_text(t, round << 20 | 2, 5, &b);
        um_buf_append(&all, a.data, a.len);
        um_buf_append(&all, s->text.p, s->text.n);
        um_buf_append(&all, b.data, b.len);
        um_ids want = encode(t, buf_str(&a), UM_PARSE_ALL, false), rest = encode(t, buf_str(&b), UM_PARSE_ALL, false);
        um_ids got = encode(t, buf_str(&all), UM_PARSE_ALL, false);
        um_ids_push(&want, s->id);
        um_ids_append(&want, &rest);
        if (!same_ids(&want, &got))
            fail_msg("\"%s\": expected %s, found %s", all.data, show_ids(&want), show_ids(&got));
        um_ids_free(&want);
        um_ids_free(&rest);
        um_ids_free(&got);
        um_buf_free(&a);
        um_buf_free(&b);
        um_buf_free(&all);
    }
}

static void streams_join_to_the_whole(void **state) {
    (void)state;
    FOR_EACH_TOK(t) for (uint64_t round = 0; round < 400 && t->dec.mode == UM_STREAM_BYTES; round++) {
        um_ids ids = {0};
        um_buf whole = {0}, joined = {0};
        um_stream s;
        uint64_t few = round % 2 ? 400 : (uint64_t)um_tok_size(t); /* low ids are mostly single bytes */
        for (uint64_t i = 0; i < round % 40; i++) um_ids_push(&ids, (int32_t)draw(round << 20, i, few));
        um_tok_decode(t, ids.data, ids.n, round % 3, &whole);
        um_stream_init(&s, t, round % 3);
        for (size_t i = 0; i < ids.n; i++) um_stream_push(&s, ids.data[i], &joined);
        um_stream_flush(&s, &joined);
        assert_text(buf_str(&joined), buf_str(&whole));
        um_ids_free(&ids);
        um_buf_free(&whole);
        um_buf_free(&joined);
    }
}

static void lower_parse_levels_give_no_added_or_special_ids(void **state) {
    (void)state;
    FOR_EACH_TOK(t) for (uint64_t round = 0; round < 100; round++) {
        um_buf text = {0};
        for (uint64_t i = 0; i < 6; i++) {
            um_str s = t->added[draw(round, i, t->n_added)].text;
            um_buf_append(&text, s.p, s.n);
        }
        um_ids none = encode(t, buf_str(&text), UM_PARSE_NONE, false);
        um_ids plain = encode(t, buf_str(&text), UM_PARSE_NOT_SPECIAL, false);
        for (size_t i = 0; i < none.n; i++) assert_true(none.data[i] < t->vocab.size);
        for (size_t i = 0; i < plain.n; i++) assert_false(um_tok_is_special(t, plain.data[i]));
        um_ids_free(&none);
        um_ids_free(&plain);
        um_buf_free(&text);
    }
}

/* ---- Merging ----------------------------------------------------------------------------------------------------- */

static const um_bpe_pair *find_pair(const um_bpe *b, int32_t left, int32_t right) {
    uint64_t key = um_pair_key(left, right);
    size_t i = um_pair_slot(b, key);
    while (b->pair[i].key != key && b->pair[i].key != UINT64_MAX) i = (i + 1) & b->mask;
    return b->pair[i].key == key ? &b->pair[i] : NULL;
}

/* Merges by definition: repeatedly merges the pair with the lowest rank, the leftmost one among equals. */
static void merge_as_defined(const um_bpe *b, um_ids *v) {
    for (;;) {
        const um_bpe_pair *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < v->n; i++) {
            const um_bpe_pair *p = find_pair(b, v->data[i], v->data[i + 1]);
            if (!p || (best && p->rank >= best->rank)) continue;
            best = p;
            at = i;
        }
        if (!best) return;
        v->data[at] = best->id;
        memmove(&v->data[at + 1], &v->data[at + 2], (v->n - at - 2) * sizeof *v->data);
        v->n--;
    }
}

/* Returns the symbols from which merging starts: bytes, or characters, with byte tokens for unknown characters. */
static um_ids start_symbols(const um_tok *t, um_str s) {
    um_ids v = {0};
    int len = 1;
    for (size_t i = 0; i < s.n; i += (size_t)len) {
        if (!t->pre.byte_level) um_cp_at(s.p + i, s.n - i, &len);
        int32_t id = t->pre.byte_level ? t->bpe.byte_id[(uint8_t)s.p[i]]
                                       : um_vocab_find(&t->vocab, (um_str){s.p + i, (size_t)len});
        if (id >= 0) um_ids_push(&v, id);
        for (int k = 0; id < 0 && k < len; k++) um_ids_push(&v, t->bpe.fallback_id[(uint8_t)s.p[i + (size_t)k]]);
    }
    return v;
}

static void short_and_long_pieces_merge_as_defined(void **state) {
    (void)state;
    static const size_t lengths[] = {2, 7, 30, 63, 64, 65, 66, 100, 400, 1200};
    FOR_EACH_TOK(t) for (uint64_t round = 0; round < 20; round++) {
        um_buf text = {0};
        um_bpe_scratch scratch = {0};
        um_ids got = {0};
        size_t limit = lengths[round % UM_LEN(lengths)];
        random_text(t, round << 20, limit, &text);
        um_str s = {text.data, UM_MIN(text.len, limit)};
        s.n = um_utf8_check(s.p, s.n);
        um_ids want = start_symbols(t, s);
        merge_as_defined(&t->bpe, &want);
        um_bpe_encode(&t->bpe, &t->vocab, &scratch, s, &got);
        if (!same_ids(&want, &got)) fail_msg("expected %s, found %s", show_ids(&want), show_ids(&got));
        um_bpe_scratch_free(&scratch);
        um_ids_free(&want);
        um_ids_free(&got);
        um_buf_free(&text);
    }
}

/* Gemma merges a whole text as one piece. The engine cuts the text first, which must not change the ids. */
static void cutting_before_merging_changes_nothing(void **state) {
    (void)state;
    FOR_EACH_TOK(t) for (uint64_t round = 0; round < 100 && !t->pre.byte_level; round++) {
        um_buf text = {0}, buf[2] = {{0}, {0}};
        um_match_state scan = {0};
        um_bpe_scratch scratch = {0};
        um_ids want = {0};
        um_str norm;
        um_err err;
        random_text(t, round << 20, 80, &text);
        um_ids got = encode(t, buf_str(&text), UM_PARSE_NONE, false);
        assert_int_equal(um_norm_apply(&t->norm, &scan, buf_str(&text), buf, &norm, &err), UM_OK);
        um_bpe_encode(&t->bpe, &t->vocab, &scratch, norm, &want);
        assert_true(same_ids(&want, &got));
        um_bpe_scratch_free(&scratch);
        um_scan_free(&scan);
        um_ids_free(&want);
        um_ids_free(&got);
        um_buf_free(&text);
        um_buf_free(&buf[0]);
        um_buf_free(&buf[1]);
    }
}

/* ---- Cache and threads ------------------------------------------------------------------------------------------- */

/* Only texts of at least 1 KiB use the cache of pieces. A long text must get the ids of its short parts. */
static void the_cache_changes_nothing(void **state) {
    (void)state;
    FOR_EACH_TOK(t) for (uint64_t round = 0; round < 10; round++) {
        um_buf all = {0};
        um_ids want = {0};
        const um_added *s = &t->added[t->n_added - 1];
        for (uint64_t i = 0; i < 120; i++) {
            size_t from = all.len;
            random_text(t, round << 20 | i % 40, 12, &all);
            while (all.len - from > 1000) all.len--;
            all.len = from + um_utf8_check(all.data + from, all.len - from);
            um_ids part = encode(t, (um_str){all.data + from, all.len - from}, UM_PARSE_ALL, false);
            um_ids_append(&want, &part);
            um_ids_push(&want, s->id);
            um_buf_append(&all, s->text.p, s->text.n);
            um_ids_free(&part);
        }
        um_ids got = encode(t, buf_str(&all), UM_PARSE_ALL, false);
        assert_true(same_ids(&want, &got));
        um_ids_free(&want);
        um_ids_free(&got);
        um_buf_free(&all);
    }
}

typedef struct shared {
    const um_tok *tok;
    um_str text;
    um_ids ids[N_THREADS];
} shared;

static void encode_task(void *arg, int task, int thread) {
    shared *s = (shared *)arg;
    um_err err;
    (void)thread;
    um_tok_encode(s->tok, s->text, UM_PARSE_ALL, false, &s->ids[task], &err);
}

static void sixteen_threads_encode_like_one(void **state) {
    (void)state;
    um_pool *pool;
    um_err err;
    assert_int_equal(um_pool_new(&pool, N_THREADS, &err), UM_OK);
    FOR_EACH_TOK(t) {
        um_buf text = {0};
        random_text(t, 99, 3000, &text);
        shared s = {.tok = t, .text = buf_str(&text)};
        um_ids one = encode(t, s.text, UM_PARSE_ALL, false);
        um_pool_run(pool, encode_task, &s, N_THREADS);
        for (int i = 0; i < N_THREADS; i++) {
            assert_true(same_ids(&one, &s.ids[i]));
            um_ids_free(&s.ids[i]);
        }
        um_ids_free(&one);
        um_buf_free(&text);
    }
    um_pool_free(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_gives_the_normalized_text_back),
        cmocka_unit_test(a_special_token_separates_what_is_around_it),
        cmocka_unit_test(streams_join_to_the_whole),
        cmocka_unit_test(lower_parse_levels_give_no_added_or_special_ids),
        cmocka_unit_test(short_and_long_pieces_merge_as_defined),
        cmocka_unit_test(cutting_before_merging_changes_nothing),
        cmocka_unit_test(the_cache_changes_nothing),
        cmocka_unit_test(sixteen_threads_encode_like_one),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
