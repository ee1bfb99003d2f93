/* The features of tokenizer.json one by one, the pieces of the known expressions, and the character classes. */
#include "vectors.h"

/* ---- Whole tokenizers -------------------------------------------------------------------------------------------- */

/* Returns whether a row gives the ids and texts of the reference. If not, prints the row, unless `feature` is NULL. */
static bool case_is_right(const um_tok *t, const json_t *row, const char *feature) {
    um_str text = vector_str(json_object_get(row, "text")), decoded = vector_text(row, "decoded", text);
    um_ids want = vector_ids(row, "ids"), got = encode(t, text, UM_PARSE_ALL, false);
    um_buf plain = {0}, skipped = {0};
    um_tok_decode(t, want.data, want.n, false, &plain);
    um_tok_decode(t, want.data, want.n, true, &skipped);
    bool ok = same_ids(&got, &want) && um_str_eq(buf_str(&plain), decoded) &&
              um_str_eq(buf_str(&skipped), vector_text(row, "decoded_skip_special", decoded));
    if (json_object_get(row, "ids_with_special")) {
        um_ids around = vector_ids(row, "ids_with_special"), with = encode(t, text, UM_PARSE_ALL, true);
        ok = ok && same_ids(&around, &with);
        um_ids_free(&around);
        um_ids_free(&with);
    }
    if (!ok && feature) print_error("%s: \"%.*s\" gives %s\n", feature, (int)text.n, text.p, show_ids(&got));
    um_ids_free(&want);
    um_ids_free(&got);
    um_buf_free(&plain);
    um_buf_free(&skipped);
    return ok;
}

/* Tokenizers with a `quirk` depend on behaviour of the reference that this engine does not copy. 13 of their cases
 * differ: in ids that replace those of the file, in the bytes of decoded added tokens, or in the place of an unknown
 * token among bytes. */
enum { QUIRK_CASES = 51, QUIRK_CASES_RIGHT = 38 };

static void every_feature_encodes_and_decodes_as_the_reference(void **state) {
    (void)state;
    json_t *rows = data_rows("features", "tokenizers.jsonl"), *row, *c;
    size_t i, k, n = 0, right = 0, n_quirk = 0, quirk_right = 0;
    json_array_foreach(rows, i, row) {
        bool quirk = json_object_get(row, "quirk");
        um_tok *t = tok_of_json(json_object_get(row, "tokenizer"));
        json_array_foreach(json_object_get(row, "cases"), k, c) {
            if (json_object_get(c, "pair")) continue; /* a pair of texts, which the engine does not encode */
            bool ok = case_is_right(t, c, quirk ? NULL : json_string_value(json_object_get(row, "feature")));
            *(quirk ? &n_quirk : &n) += 1;
            *(quirk ? &quirk_right : &right) += ok;
        }
        um_tok_close(t);
    }
    json_decref(rows);
    print_message("features tokenizers with a quirk of the reference: %zu of %zu\n", quirk_right, n_quirk);
    assert_int_equal(n_quirk, QUIRK_CASES);
    assert_int_equal(quirk_right, QUIRK_CASES_RIGHT);
    report_count("features", "tokenizers", right, n);
}

/* ---- Stages ------------------------------------------------------------------------------------------------------ */

static bool normalizes(const um_normalizer *norm, const json_t *c) {
    um_match_state scan = {0};
    um_buf buf[2] = {{0}, {0}};
    um_str out;
    um_err err;
    bool ok = !um_norm_apply(norm, &scan, vector_str(json_object_get(c, "in")), buf, &out, &err) &&
              um_str_eq(out, vector_str(json_object_get(c, "out")));
    um_buf_free(&buf[0]);
    um_buf_free(&buf[1]);
    um_scan_free(&scan);
    return ok;
}

static void normalizers_rewrite_as_the_reference(void **state) {
    (void)state;
    json_t *rows = data_rows("features", "normalizers.jsonl"), *row, *c;
    size_t i, k, n = 0, right = 0;
    um_err err;
    json_array_foreach(rows, i, row) {
        um_arena a;
        um_normalizer norm;
        um_arena_init(&a, 0);
        assert_int_equal(um_norm_load(&norm, json_object_get(row, "normalizer"), &a, "file", &err), UM_OK);
        json_array_foreach(json_object_get(row, "cases"), k, c) {
            n++;
            right += normalizes(&norm, c);
        }
        um_norm_free(&norm);
        um_arena_free(&a);
    }
    json_decref(rows);
    report_count("features", "normalizers", right, n);
}

/* Cuts a text and compares the pieces. A byte-level pre-tokenizer's pieces are compared as the characters that stand
 * for bytes in its vocabulary. */
static bool cuts_into(const um_pretok *pre, um_str text, const json_t *want) {
    um_match_state scan = {0};
    um_pieces p = {0};
    um_err err;
    if (um_pretok_run(pre, &scan, text, true, &p, &err)) fail_msg("%s", err.msg);
    bool same = p.n == json_array_size(want);
    for (size_t i = 0; i < p.n && same; i++) {
        um_buf piece = {0};
        um_str raw = {p.text + p.cut[i].off, p.cut[i].len};
        if (pre->byte_level) um_byte_chars_encode(raw, &piece);
        else um_buf_append(&piece, raw.p, raw.n);
        same = um_str_eq(buf_str(&piece), vector_str(json_array_get(want, i)));
        um_buf_free(&piece);
    }
    um_pieces_free(&p);
    um_scan_free(&scan);
    return same;
}

static void pre_tokenizers_cut_as_the_reference(void **state) {
    (void)state;
    json_t *rows = data_rows("features", "pre_tokenizers.jsonl"), *row, *c;
    size_t i, k, n = 0, right = 0;
    um_err err;
    json_array_foreach(rows, i, row) {
        um_arena a;
        um_pretok pre;
        um_arena_init(&a, 0);
        assert_int_equal(um_pretok_load(&pre, json_object_get(row, "pre_tokenizer"), &a, "file", &err), UM_OK);
        json_array_foreach(json_object_get(row, "cases"), k, c) {
            bool ok = cuts_into(&pre, vector_str(json_object_get(c, "in")), json_object_get(c, "pieces"));
            if (!ok) print_error("row %zu, case %zu is cut differently\n", i, k);
            n++;
            right += ok;
        }
        um_pretok_free(&pre);
        um_arena_free(&a);
    }
    json_decref(rows);
    report_count("features", "pre_tokenizers", right, n);
}

/* ---- Decoders ---------------------------------------------------------------------------------------------------- */

static um_tok *tok_of_decoder(const json_t *row) {
    json_t *json =
        json_pack("{s:s, s:O, s:{s:s, s:O, s:[]}}", "version", "1.0", "decoder", json_object_get(row, "decoder"),
                  "model", "type", "BPE", "vocab", json_object_get(row, "vocab"), "merges");
    um_tok *t = tok_of_json(json);
    json_decref(json);
    return t;
}

/* Returns whether the bytes of the byte tokens are invalid UTF-8 together. Then a stream may differ from the whole: it
 * emits valid characters of a run before it can know that the run becomes invalid. */
static bool waits_for_a_run(const um_tok *t, const um_ids *ids) {
    uint8_t bytes[64];
    size_t n = 0;
    for (size_t i = 0; i < ids->n && n < sizeof bytes; i++) {
        int b = um_decoder_byte(&t->dec, um_tok_text(t, ids->data[i]));
        if (b >= 0) bytes[n++] = (uint8_t)b;
    }
    return um_utf8_check((const char *)bytes, n) < n;
}

static void stream_all(const um_tok *t, const um_ids *ids, um_buf *out) {
    um_stream s;
    um_stream_init(&s, t, false);
    for (size_t i = 0; i < ids->n; i++) um_stream_push(&s, ids->data[i], out);
    um_stream_flush(&s, out);
}

static void decoders_write_as_the_reference_and_streams_join_to_it(void **state) {
    (void)state;
    json_t *rows = data_rows("features", "decoders.jsonl"), *row, *c;
    size_t i, k, n = 0, right = 0;
    json_array_foreach(rows, i, row) {
        um_tok *t = tok_of_decoder(row);
        json_array_foreach(json_object_get(row, "cases"), k, c) {
            um_ids ids = vector_ids(c, "ids");
            um_buf whole = {0}, pieces = {0};
            um_tok_decode(t, ids.data, ids.n, false, &whole);
            stream_all(t, &ids, &pieces);
            n++;
            right += um_str_eq(buf_str(&whole), vector_str(json_object_get(c, "decoded"))) &&
                     (waits_for_a_run(t, &ids) || um_str_eq(buf_str(&pieces), buf_str(&whole)));
            um_ids_free(&ids);
            um_buf_free(&whole);
            um_buf_free(&pieces);
        }
        um_tok_close(t);
    }
    json_decref(rows);
    report_count("features", "decoders", right, n);
}

/* ---- Pieces ------------------------------------------------------------------------------------------------------ */

/* Returns whether the successive matches of a pattern are the expected pieces. */
static bool matches_are(const um_pattern *p, um_str text, const json_t *want) {
    um_match_state scan = {0};
    um_err err;
    size_t start, end = 0, i = 0;
    bool found = true, same = true;
    while (found && same) {
        if (um_pattern_next(p, &scan, text, end, &start, &end, &found, &err)) fail_msg("%s", err.msg);
        if (!found) break;
        same = um_str_eq((um_str){text.p + start, end - start}, vector_str(json_array_get(want, i++)));
    }
    um_scan_free(&scan);
    return same && i == json_array_size(want);
}

static void check_by_hand(const json_t *rows, const char *name, const json_t *regex) {
    const json_t *row;
    size_t i, right = 0;
    um_err err;
    um_pretok pre;
    json_t *split =
        json_pack("{s:s, s:{s:O}, s:s}", "type", "Split", "pattern", "Regex", regex, "behavior", "Isolated");
    assert_non_null(um_known_find(vector_str(regex)));
    if (um_pretok_load(&pre, split, NULL, "file", &err)) fail_msg("%s", err.msg);
    json_array_foreach(rows, i, row) right +=
        cuts_into(&pre, vector_str(json_object_get(row, "text")), json_object_get(row, name));
    report_count("pieces by hand", name, right, json_array_size(rows));
    um_pretok_free(&pre);
    json_decref(split);
}

static void check_by_pcre2(const json_t *rows, const char *name, const json_t *regex) {
    const json_t *row;
    size_t i, right = 0;
    um_err err;
    um_pattern p;
    if (um_pattern_pcre(&p, vector_str(regex), "file", &err)) fail_msg("%s", err.msg);
    json_array_foreach(rows, i, row) right +=
        matches_are(&p, vector_str(json_object_get(row, "text")), json_object_get(row, name));
    report_count("pieces by PCRE2", name, right, json_array_size(rows));
    um_pattern_free(&p);
}

static void known_expressions_cut_as_the_reference_by_hand_and_by_pcre2(void **state) {
    (void)state;
    static const char *const names[] = {"qwen", "ling", "seed", "gpt2", "llama3"};
    json_t *regexes, *rows = data_rows("pretok", "splits.jsonl");
    um_err err;
    char *path = data_path("pretok", "regexes.json");
    assert_int_equal(um_json_load(&regexes, path, &err), UM_OK);
    um_free(path);
    for (size_t k = 0; k < UM_LEN(names); k++) {
        check_by_hand(rows, names[k], json_object_get(regexes, names[k]));
        check_by_pcre2(rows, names[k], json_object_get(regexes, names[k]));
    }
    json_decref(regexes);
    json_decref(rows);
}

/* ---- Classes ----------------------------------------------------------------------------------------------------- */

static void mark_ranges(uint8_t *of, const json_t *ranges, um_class class) {
    const json_t *range;
    size_t i;
    json_array_foreach(ranges, i, range) {
        json_int_t last = json_integer_value(json_array_get(range, 1));
        for (json_int_t cp = json_integer_value(json_array_get(range, 0)); cp <= last; cp++) of[cp] = (uint8_t) class;
    }
}

static void every_code_point_has_the_class_of_unicode_16(void **state) {
    (void)state;
    uint8_t *of = UM_NEW_ARRAY(uint8_t, 0x110000);
    json_t *json;
    um_err err;
    char *path = data_path("pretok", "unicode_classes.json");
    assert_int_equal(um_json_load(&json, path, &err), UM_OK);
    mark_ranges(of, json_object_get(json, "L"), UM_CLASS_LETTER);
    mark_ranges(of, json_object_get(json, "N"), UM_CLASS_NUMBER);
    mark_ranges(of, json_object_get(json, "White_Space"), UM_CLASS_SPACE);
    size_t right = 0;
    for (uint32_t cp = 0; cp < 0x110000; cp++) right += um_class_of(cp) == of[cp];
    report_count("classes", "code points", right, 0x110000);
    json_decref(json);
    um_free(path);
    um_free(of);
}

int main(void) {
    um_log_set_level(UM_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_feature_encodes_and_decodes_as_the_reference),
        cmocka_unit_test(normalizers_rewrite_as_the_reference),
        cmocka_unit_test(pre_tokenizers_cut_as_the_reference),
        cmocka_unit_test(decoders_write_as_the_reference_and_streams_join_to_it),
        cmocka_unit_test(known_expressions_cut_as_the_reference_by_hand_and_by_pcre2),
        cmocka_unit_test(every_code_point_has_the_class_of_unicode_16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
