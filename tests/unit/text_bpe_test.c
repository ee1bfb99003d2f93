/* text: byte-pair encoding. */
#include "text_vectors.h"

#define N_LETTERS 4
#define N_MERGES  60

/* ---- A random vocabulary, and merging as it is defined -------------------------------------------------------------
 */

typedef struct rules {
    char token[N_LETTERS + N_MERGES][256];
    int n;
    struct merge {
        int left, right, to;
    } merge[N_MERGES];
    int n_merges;
} rules;

static int find_token(const rules *r, const char *s) {
    for (int i = 0; i < r->n; i++)
        if (um_streq(r->token[i], s)) return i;
    return -1;
}

static bool has_merge(const rules *r, int left, int right) {
    for (int i = 0; i < r->n_merges; i++)
        if (r->merge[i].left == left && r->merge[i].right == right) return true;
    return false;
}

static void make_rules(rules *r, uint64_t key) {
    uint64_t k = 0;
    memset(r, 0, sizeof *r);
    for (; r->n < N_LETTERS; r->n++) r->token[r->n][0] = (char)('a' + r->n);
    while (r->n_merges < N_MERGES && k < 10000) {
        int left = (int)(um_rng_u64(key, k++) % (uint64_t)r->n), right = (int)(um_rng_u64(key, k++) % (uint64_t)r->n);
        char joined[512];
        snprintf(joined, sizeof joined, "%s%s", r->token[left], r->token[right]);
        if (strlen(joined) > 200 || has_merge(r, left, right)) continue;
        int to = find_token(r, joined);
        if (to < 0) {
            to = r->n++;
            memcpy(r->token[to], joined, strlen(joined) + 1);
        }
        r->merge[r->n_merges].left = left;
        r->merge[r->n_merges].right = right;
        r->merge[r->n_merges++].to = to;
    }
}

static um_tok *tok_of_rules(const rules *r) {
    json_t *vocab = json_object(), *merges = json_array();
    for (int i = 0; i < r->n; i++) json_object_set_new(vocab, r->token[i], json_integer(i));
    for (int i = 0; i < r->n_merges; i++)
        json_array_append_new(merges, json_sprintf("%s %s", r->token[r->merge[i].left], r->token[r->merge[i].right]));
    json_t *json = json_pack("{s:s, s:{s:s, s:o, s:o}, s:{s:s}}", "version", "1.0", "model", "type", "BPE", "vocab",
                             vocab, "merges", merges, "decoder", "type", "Fuse");
    um_tok *t = tok_of_json(json);
    json_decref(json);
    return t;
}

/* The best merge, everywhere from the left, again and again. */
static um_ids naive(const rules *r, um_str text) {
    um_ids v = {0};
    for (size_t i = 0; i < text.n; i++) um_ids_push(&v, text.p[i] - 'a');
    for (;;) {
        size_t at = 0;
        int best = N_MERGES;
        for (size_t i = 0; i + 1 < v.n; i++)
            for (int m = 0; m < best; m++)
                if (r->merge[m].left == v.data[i] && r->merge[m].right == v.data[i + 1] && m < r->n_merges) {
                    best = m;
                    at = i;
                }
        if (best == N_MERGES) return v;
        v.data[at] = r->merge[best].to;
        memmove(&v.data[at + 1], &v.data[at + 2], (v.n - at - 2) * sizeof *v.data);
        v.n--;
    }
}

static void check_length(const rules *r, const um_tok *t, uint64_t key, size_t n) {
    um_buf text = {0};
    for (size_t i = 0; i < n; i++) um_buf_putc(&text, (char)('a' + um_rng_u64(key, i) % N_LETTERS));
    um_ids want = naive(r, buf_str(&text)), got = encode(t, buf_str(&text), UM_PARSE_ALL, false);
    if (!same_ids(&want, &got)) fail_msg("%s: expected %s, found %s", text.data, show_ids(&want), show_ids(&got));
    um_ids_free(&want);
    um_ids_free(&got);
    um_buf_free(&text);
}

static void short_and_long_pieces_merge_as_defined(void **state) {
    (void)state;
    const char *given = getenv("UM_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)um_rng_seed();
    print_message("UM_TEST_SEED=%llu\n", (unsigned long long)seed);
    static const size_t lengths[] = {1, 2, 3, 10, 63, 64, 65, 66, 200, 1000};
    for (uint64_t round = 0; round < 8; round++) {
        static rules r;
        make_rules(&r, um_rng_key(seed, round, 0, 0));
        um_tok *t = tok_of_rules(&r);
        for (size_t i = 0; i < UM_LEN(lengths); i++) check_length(&r, t, um_rng_key(seed, round, i, 1), lengths[i]);
        um_tok_close(t);
    }
}

/* Runs of one letter up to 11, made by every pair of shorter ones in random order: a merge often allows another one of
 * a lower rank, which must come before the other places of the first. */
static void make_runs(rules *r, uint64_t key) {
    memset(r, 0, sizeof *r);
    for (; r->n < 11; r->n++) memset(r->token[r->n], 'a', (size_t)r->n + 1);
    for (int to = 1; to < r->n; to++)
        for (int left = 0; left < to; left++) {
            r->merge[r->n_merges].left = left;
            r->merge[r->n_merges].right = to - left - 1;
            r->merge[r->n_merges++].to = to;
        }
    for (int i = r->n_merges - 1; i > 0; i--) {
        int k = (int)(um_rng_u64(key, (uint64_t)i) % (uint64_t)(i + 1));
        struct merge swap = r->merge[i];
        r->merge[i] = r->merge[k];
        r->merge[k] = swap;
    }
}

static void ranks_in_any_order_merge_as_defined(void **state) {
    (void)state;
    for (uint64_t round = 0; round < 60; round++) {
        static rules r;
        make_runs(&r, round);
        um_tok *t = tok_of_rules(&r);
        um_buf text = {0};
        for (uint64_t i = 0; i < 65 + 3 * round; i++) um_buf_putc(&text, 'a');
        um_ids want = naive(&r, buf_str(&text)), got = encode(t, buf_str(&text), UM_PARSE_ALL, false);
        if (!same_ids(&want, &got)) fail_msg("expected %s, found %s", show_ids(&want), show_ids(&got));
        um_ids_free(&want);
        um_ids_free(&got);
        um_buf_free(&text);
        um_tok_close(t);
    }
}

/* U+2581 stands for a space; one token reaches across it. */
static void cutting_a_message_before_merging_changes_nothing(void **state) {
    (void)state;
    static const char *const letters[] = {"a", "b", ">", "\n", "\xE2\x96\x81", "z"};
    um_tok *t =
        tok_of("{\"version\":\"1.0\",\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"fuse_unk\":true,\"vocab\":{"
               "\"a\":0,\"b\":1,\">\":2,\"\\n\":3,\"\xE2\x96\x81\":4,\"\xE2\x96\x81"
               "a\":5,\"ab\":6,"
               "\"\xE2\x96\x81"
               "ab\":7,\">\xE2\x96\x81\":8,\">\xE2\x96\x81"
               "a\":9,\"\\n\\n\":10,"
               "\"\xE2\x96\x81\xE2\x96\x81\":11,\"?\":12},\"merges\":[\"> \xE2\x96\x81\",\"\xE2\x96\x81 a\","
               "\">\xE2\x96\x81 a\",\"a b\",\"\xE2\x96\x81"
               "a b\",\"\\n \\n\",\"\xE2\x96\x81 \xE2\x96\x81\"]}}",
               NULL);
    assert_true(t->bpe.cuts.at_meta && t->bpe.cuts.at_lines);
    assert_int_equal(t->bpe.cuts.n_before, 1);
    for (uint64_t round = 0; round < 2000; round++) {
        um_buf text = {0};
        um_bpe_scratch scratch = {0};
        um_ids want = {0};
        for (uint64_t i = 0; i < 1 + round % 30; i++)
            um_buf_puts(&text, letters[um_rng_u64(round, i) % UM_LEN(letters)]);
        um_ids got = encode(t, buf_str(&text), UM_PARSE_ALL, false);
        um_bpe_encode(&t->bpe, &t->vocab, &scratch, buf_str(&text), &want);
        if (!same_ids(&want, &got)) fail_msg("%s: expected %s, found %s", text.data, show_ids(&want), show_ids(&got));
        um_bpe_scratch_free(&scratch);
        um_ids_free(&want);
        um_ids_free(&got);
        um_buf_free(&text);
    }
    um_tok_close(t);
}

static void overlapping_pairs_merge_from_the_left(void **state) {
    (void)state;
    um_tok *t = tok_of(
        "{\"version\":\"1.0\",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[\"a a\"]}}", NULL);
    assert_encodes(t, "aaa", 1, 0);
    um_tok_close(t);
}

/* A quadratic method would take minutes here. */
static void a_megabyte_of_one_character_takes_no_time(void **state) {
    (void)state;
    static const char *const runs[] = {"a", "=", " ", "\n", "\xE4\xB8\xAD", "\xF0\x9F\x91\x8D"};
    um_tok *t;
    um_err err;
    assert_int_equal(um_tok_open(&t, "models/tiny-block", &err), UM_OK);
    for (size_t i = 0; i < UM_LEN(runs); i++) {
        um_buf text = {0}, back = {0};
        while (text.len < 1 << 20) um_buf_puts(&text, runs[i]);
        double start = um_now();
        um_ids ids = encode(t, buf_str(&text), UM_PARSE_ALL, false);
        if (um_now() - start > 20) fail_msg("%s takes %.1f seconds", runs[i], um_now() - start);
        um_tok_decode(t, ids.data, ids.n, false, &back);
        assert_true(um_str_eq(buf_str(&back), buf_str(&text)));
        um_ids_free(&ids);
        um_buf_free(&text);
        um_buf_free(&back);
    }
    um_tok_close(t);
}

#define UNKNOWNS(more)                                                                                                 \
    "{\"version\":\"1.0\",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"?\":1,\"<0xC3>\":2,\"<0xA9>\":3},"          \
    "\"merges\":[]" more "}}"

static void unknown_characters_become_bytes_or_unk_or_nothing(void **state) {
    (void)state;
    um_tok *t = tok_of(UNKNOWNS(""), NULL);
    assert_encodes(t, "azza", 0, 0);
    um_tok_close(t);
    t = tok_of(UNKNOWNS(",\"unk_token\":\"?\""), NULL);
    assert_encodes(t, "azza", 0, 1, 1, 0);
    um_tok_close(t);
    t = tok_of(UNKNOWNS(",\"unk_token\":\"?\",\"fuse_unk\":true,\"byte_fallback\":true"), NULL);
    assert_encodes(t, "azz\xC3\xA9z", 0, 1, 2, 3, 1); /* U+00E9 has its bytes, z has not */
    um_tok_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_and_long_pieces_merge_as_defined),
        cmocka_unit_test(ranks_in_any_order_merge_as_defined),
        cmocka_unit_test(cutting_a_message_before_merging_changes_nothing),
        cmocka_unit_test(overlapping_pairs_merge_from_the_left),
        cmocka_unit_test(a_megabyte_of_one_character_takes_no_time),
        cmocka_unit_test(unknown_characters_become_bytes_or_unk_or_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
