/* The real tokenizers of the families: their sizes and special tokens, and the texts and ids of the reference. */
#include <dirent.h>
#include <fcntl.h>

#include "vectors.h"

/* ---- Folders ----------------------------------------------------------------------------------------------------- */

/* The expected contents of a folder's tokenizer. */
typedef struct family {
    const char *folder;
    int32_t size;     /* 1 + highest id */
    const char *mask; /* text of the mask token; NULL: the files have none */
    int32_t mask_id;
    const char *eos; /* eos_token of the side files; NULL: none */
    int32_t eos_id;
    int32_t n_special;
    um_tok *tok; /* opened by the first test; NULL: the folder is missing */
} family;

static family families[] = {
    {.folder = "qwen2_5", .size = 151665, .eos = "<|im_end|>", .eos_id = 151645, .n_special = 14},
    {.folder = "qwen3", .size = 151669, .eos = "<|im_end|>", .eos_id = 151645, .n_special = 14},
    {.folder = "dream", .size = 151667, .mask = "<|mask|>", .mask_id = 151666, .n_special = 16},
    {.folder = "llada",
     .size = 126349,
     .mask = "<|mdm_mask|>",
     .mask_id = 126336,
     .eos = "<|endoftext|>",
     .eos_id = 126081,
     .n_special = 269},
    {.folder = "llada2", .size = 157153, .mask = "<|mask|>", .mask_id = 156895, .n_special = 262},
    {.folder = "seed_diffcoder", .size = 155121, .mask = "<[MASK_TOKEN]>", .mask_id = 5, .n_special = 128},
    {.folder = "sdar",
     .size = 151670,
     .mask = "<|MASK|>",
     .mask_id = 151669,
     .eos = "<|endoftext|>",
     .eos_id = 151643,
     .n_special = 15},
    {.folder = "gemma3", .size = 262145, .eos = "<end_of_turn>", .eos_id = 106, .n_special = 9},
};

#define FOR_EACH_FAMILY(f)                                                                                             \
    for (family *f = families; f < families + UM_LEN(families); f++)                                                   \
        if (f->tok)

static family *family_of(const char *folder) {
    FOR_EACH_FAMILY(f) if (um_streq(f->folder, folder)) return f;
    fail_msg("%s is missing", folder);
    return NULL;
}

/* Runs f and returns the number of bytes that it writes to stderr. */
static long messages_of(void (*f)(void *), void *arg) {
    char temp[] = "/tmp/unmask-stderr-XXXXXX";
    int file = mkstemp(temp), old = dup(STDERR_FILENO);
    assert_true(file >= 0 && old >= 0);
    dup2(file, STDERR_FILENO);
    f(arg);
    dup2(old, STDERR_FILENO);
    long n = (long)lseek(file, 0, SEEK_END);
    close(old);
    close(file);
    unlink(temp);
    return n;
}

static void open_folder(void *arg) {
    family *f = (family *)arg;
    um_err err;
    f->tok = open_data(f->folder, &err);
    if (!f->tok) fail_msg("%s", err.msg);
}

static void every_folder_opens_without_a_warning(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(families); i++) {
        family *f = &families[i];
        bool there = data_exists(f->folder, "encode.jsonl");
        if (!there && um_streq(f->folder, "gemma3")) {
            print_message("gemma3: not checked: its licence keeps the vocabulary out of this repository; "
                          "make vectors DATA=dir checks it\n");
            continue;
        }
        if (!there) fail_msg("%s/%s is missing", data_folder(), f->folder);
        long n = messages_of(open_folder, f);
        if (n) fail_msg("%s: %ld bytes of warnings", f->folder, n);
    }
}

static int close_all(void **state) {
    (void)state;
    FOR_EACH_FAMILY(f) um_tok_close(f->tok);
    return 0;
}

static void sizes_special_tokens_and_masks_are_those_of_the_family(void **state) {
    (void)state;
    FOR_EACH_FAMILY(f) {
        int32_t n = 0;
        for (int32_t id = 0; id < um_tok_size(f->tok); id++) n += um_tok_is_special(f->tok, id);
        print_message("load %s: %d ids, %d special\n", f->folder, um_tok_size(f->tok), n);
        assert_int_equal(um_tok_size(f->tok), f->size);
        assert_int_equal(n, f->n_special);
        assert_int_equal(um_tok_special_id(f->tok, "eos_token"), f->eos ? f->eos_id : -1);
        if (f->eos) assert_text(um_tok_special_text(f->tok, "eos_token"), um_str_of(f->eos));
        if (f->mask) assert_int_equal(um_tok_find(f->tok, um_str_of(f->mask)), f->mask_id);
        if (f->mask) assert_true(um_tok_is_special(f->tok, f->mask_id));
    }
    assert_int_equal(um_tok_find(family_of("sdar")->tok, UM_STR("<MASK>")), -1);
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* A row with a note may give the ids of its composed form: U+11935 U+11930 is composed to U+11938 since Unicode 13. */
static bool is_other_form(const um_tok *t, const json_t *row, const um_ids *got) {
    if (!json_object_get(row, "note")) return false;
    um_ids composed = encode(t, UM_STR("\xF0\x91\xA4\xB8"), UM_PARSE_ALL, false);
    bool same = same_ids(&composed, got);
    um_ids_free(&composed);
    return same;
}

/* Returns whether the ids decode to the row's texts, with special tokens and without. */
static bool decodes(const um_tok *t, const json_t *row, const um_ids *ids, um_str text) {
    um_str decoded = vector_text(row, "decoded", text);
    um_buf plain = {0}, skipped = {0};
    um_tok_decode(t, ids->data, ids->n, false, &plain);
    um_tok_decode(t, ids->data, ids->n, true, &skipped);
    bool ok = um_str_eq(buf_str(&plain), decoded) &&
              um_str_eq(buf_str(&skipped), vector_text(row, "decoded_skip_special", decoded));
    um_buf_free(&plain);
    um_buf_free(&skipped);
    return ok;
}

static bool encodes(const um_tok *t, const json_t *row) {
    um_str text = vector_str(json_object_get(row, "text"));
    um_ids want = vector_ids(row, "ids"), got = encode(t, text, UM_PARSE_ALL, false);
    bool ok = same_ids(&want, &got) || is_other_form(t, row, &got);
    if (!ok)
        print_error("%s: expected %s, found %s\n", json_string_value(json_object_get(row, "name")), show_ids(&want),
                    show_ids(&got));
    ok = ok && decodes(t, row, &want, text);
    um_ids_free(&want);
    um_ids_free(&got);
    return ok;
}

static bool decodes_row(const um_tok *t, const json_t *row) {
    um_ids ids = vector_ids(row, "ids");
    bool ok = decodes(t, row, &ids, (um_str){"", 0});
    um_ids_free(&ids);
    return ok;
}

static bool streams(const um_tok *t, const json_t *row) {
    um_ids ids = vector_ids(row, "ids");
    const json_t *chunks = json_object_get(row, "chunks");
    um_stream s;
    um_buf out = {0};
    um_stream_init(&s, t, false);
    bool ok = json_array_size(chunks) == ids.n;
    for (size_t i = 0; i < ids.n && ok; i++) {
        um_buf_clear(&out);
        um_stream_push(&s, ids.data[i], &out);
        ok = um_str_eq(buf_str(&out), vector_str(json_array_get(chunks, i)));
    }
    um_buf_clear(&out);
    um_stream_flush(&s, &out);
    ok = ok && um_str_eq(buf_str(&out), vector_str(json_object_get(row, "flush")));
    um_ids_free(&ids);
    um_buf_free(&out);
    return ok;
}

static void check_rows(const char *kind, const char *file, bool (*is_right)(const um_tok *, const json_t *)) {
    FOR_EACH_FAMILY(f) {
        if (!data_exists(f->folder, file)) continue;
        json_t *rows = data_rows(f->folder, file), *row;
        size_t i, right = 0;
        json_array_foreach(rows, i, row) right += is_right(f->tok, row);
        report_count(kind, f->folder, right, json_array_size(rows));
        json_decref(rows);
    }
}

static void texts_encode_as_the_reference_and_decode_back(void **state) {
    (void)state;
    check_rows("encode", "encode.jsonl", encodes);
}

static void ids_decode_as_the_reference(void **state) {
    (void)state;
    check_rows("decode", "decode.jsonl", decodes_row);
}

static void streams_emit_every_chunk_as_the_reference(void **state) {
    (void)state;
    check_rows("stream", "stream.jsonl", streams);
}

/* ---- Slow files and the base model ------------------------------------------------------------------------------- */

/* SDAR has only the slow files of its vocabulary. Qwen3 has the same vocabulary as tokenizer.json, without <|MASK|>. */
static void slow_files_give_the_ids_of_tokenizer_json(void **state) {
    (void)state;
    const um_tok *slow = family_of("sdar")->tok, *fast = family_of("qwen3")->tok;
    json_t *rows = data_rows("qwen3", "encode.jsonl"), *row;
    size_t i, n = 0, same = 0;
    json_array_foreach(rows, i, row) {
        um_str text = vector_str(json_object_get(row, "text"));
        if (memmem(text.p, text.n, "<|MASK|>", 8)) continue;
        um_ids a = encode(slow, text, UM_PARSE_ALL, false), b = encode(fast, text, UM_PARSE_ALL, false);
        same += same_ids(&a, &b);
        n++;
        um_ids_free(&a);
        um_ids_free(&b);
    }
    json_decref(rows);
    report_count("slow = fast", "sdar", same, n);
}

static void drop_last(json_t *list, size_t n) {
    for (size_t i = 0; i < n; i++) json_array_remove(list, json_array_size(list) - 1);
}

/* LLaDA-8B-Base lacks three added tokens of LLaDA-8B-Instruct, which are ordinary text there. Its
 * special_tokens_map.json is invalid. The tokenizer must load all the same, because tokenizer_config.json has the same
 * tokens. */
static void the_base_model_lacks_the_tokens_of_the_chat(void **state) {
    (void)state;
    um_err err;
    char *dir = copy_folder("llada"), *side = data_path("llada", "base_model"), command[512];
    snprintf(command, sizeof command, "cp '%s'/*.json '%s'", side, dir);
    run_shell(command);
    um_free(side);
    char *path = um_path_join(dir, "tokenizer.json");
    json_t *json;
    assert_int_equal(um_json_load(&json, path, &err), UM_OK);
    drop_last(json_object_get(json, "added_tokens"), 3);
    assert_int_equal(json_dump_file(json, path, 0), 0);
    json_decref(json);
    um_free(path);
    um_tok *t;
    if (um_tok_open(&t, dir, &err)) fail_msg("%s", err.msg);
    assert_int_equal(um_tok_size(t), 126346);
    assert_int_equal(um_tok_find(t, UM_STR("<|eot_id|>")), -1);
    assert_int_equal(um_tok_find(t, UM_STR("<|mdm_mask|>")), 126336);
    um_ids ids = encode(t, UM_STR("<|eot_id|>"), UM_PARSE_ALL, false);
    assert_true(ids.n > 1);
    um_ids_free(&ids);
    um_tok_close(t);
    drop_folder(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_folder_opens_without_a_warning),
        cmocka_unit_test(sizes_special_tokens_and_masks_are_those_of_the_family),
        cmocka_unit_test(texts_encode_as_the_reference_and_decode_back),
        cmocka_unit_test(ids_decode_as_the_reference),
        cmocka_unit_test(streams_emit_every_chunk_as_the_reference),
        cmocka_unit_test(slow_files_give_the_ids_of_tokenizer_json),
        cmocka_unit_test(the_base_model_lacks_the_tokens_of_the_chat),
    };
    return cmocka_run_group_tests(tests, NULL, close_all);
}
