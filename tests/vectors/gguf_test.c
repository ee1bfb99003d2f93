/* The tokenizers of the families as GGUF files. A tokenizer.json becomes the lists of a GGUF file, and those become a
 * tokenizer again, which must give the same ids and texts. */
#include "vectors.h"

#include "unit/gguf_json.h"

/* A folder of the data or of the models, and the rule that llama.cpp's converter names for its tokenizer. */
static const struct {
    const char *folder, *pre;
} tokenizers[] = {
    {"qwen2_5", "qwen2"},
    {"qwen3", "qwen2"}, /* RND1's */
    {"dream", "qwen2"},
    {"llada", "bailingmoe"},
    {"llada2", "bailingmoe2"}, /* LLaDA-MoE's, too */
    {"seed_diffcoder", "seed-coder"},
    {"models/tiny-full", "qwen2"},
    {"models/tiny-block", "qwen2"},
};

/* ---- Conversion to a GGUF file ----------------------------------------------------------------------------------- */

static void set_token(json_t *tokens, json_t *types, size_t id, const char *text, int type) {
    json_array_set_new(tokens, id, json_string(text));
    json_array_set_new(types, id, json_integer(type));
}

/* Sets the lists of tokens and types. Ids without a token become unused ones. */
static void put_tokens(json_t *m, const json_t *vocab, const json_t *added) {
    json_t *tokens = json_array(), *types = json_array(), *v;
    const char *key;
    char pad[32];
    size_t i, n = json_object_size(vocab) + 8;
    json_array_foreach(added, i, v) {
        size_t id = (size_t)json_integer_value(json_object_get(v, "id"));
        n = id + 8 > n ? id + 8 : n;
    }
    for (i = 0; i < n; i++) {
        snprintf(pad, sizeof pad, "[PAD%zu]", i);
        json_array_append_new(tokens, json_string(pad));
        json_array_append_new(types, json_integer(5));
    }
    json_object_foreach((json_t *)(uintptr_t)vocab, key, v)
        set_token(tokens, types, (size_t)json_integer_value(v), key, 1);
    json_array_foreach(added, i, v) set_token(tokens, types, (size_t)json_integer_value(json_object_get(v, "id")),
                                              json_string_value(json_object_get(v, "content")),
                                              json_is_true(json_object_get(v, "special")) ? 3 : 4);
    json_object_set_new(m, "tokenizer.ggml.tokens", tokens);
    json_object_set_new(m, "tokenizer.ggml.token_type", types);
}

static void put_merges(json_t *m, const json_t *merges) {
    json_t *list = json_array(), *v;
    size_t i;
    json_array_foreach(merges, i, v) {
        if (json_is_string(v)) json_array_append(list, v);
        else
            json_array_append_new(list, json_sprintf("%s %s", json_string_value(json_array_get(v, 0)),
                                                     json_string_value(json_array_get(v, 1))));
    }
    json_object_set_new(m, "tokenizer.ggml.merges", list);
}

static gguf_json file_of(const char *folder, const char *pre) {
    um_err err;
    char *path = um_path_join(folder, "tokenizer.json");
    json_t *json = NULL, *m = json_object();
    if (um_json_load(&json, path, &err)) fail_msg("%s", err.msg);
    const json_t *model = json_object_get(json, "model");
    json_object_set_new(m, "tokenizer.ggml.model", json_string("gpt2"));
    json_object_set_new(m, "tokenizer.ggml.pre", json_string(pre));
    put_tokens(m, json_object_get(model, "vocab"), json_object_get(json, "added_tokens"));
    put_merges(m, json_object_get(model, "merges"));
    gguf_json f = gguf_json_open(m, NULL);
    json_decref(m);
    json_decref(json);
    um_free(path);
    return f;
}

static um_tok *convert(const gguf_json *f, const char *folder) {
    um_buf tokenizer = {0}, config = {0};
    um_tok *t = NULL;
    um_err err;
    double start = um_now();
    if (um_gguf_tokenizer(f->g, &tokenizer, &config, &err)) fail_msg("%s: %s", folder, err.msg);
    if (um_tok_parse(&t, buf_str(&tokenizer), buf_str(&config), (um_str){NULL, 0}, folder, &err))
        fail_msg("%s", err.msg);
    print_message("load %s: %d ids in %.3f s\n", folder, um_tok_size(t), um_now() - start);
    um_buf_free(&tokenizer);
    um_buf_free(&config);
    return t;
}

/* ---- Comparison -------------------------------------------------------------------------------------------------- */

static bool decode_alike(const um_tok *a, const um_tok *b, const um_ids *ids) {
    bool same = true;
    for (int skip = 0; skip < 2; skip++) {
        um_buf x = {0}, y = {0};
        um_tok_decode(a, ids->data, ids->n, skip, &x);
        um_tok_decode(b, ids->data, ids->n, skip, &y);
        same = same && um_str_eq(buf_str(&x), buf_str(&y));
        um_buf_free(&x);
        um_buf_free(&y);
    }
    return same;
}

/* Returns the rows of the folder, or those of Qwen3, whose texts are the same, for a folder without rows. */
static json_t *rows_of(const char *folder, bool *has_ids) {
    char *path = um_path_join(folder, "encode.jsonl");
    *has_ids = um_file_exists(path);
    json_t *rows = *has_ids ? vector_rows(path) : data_rows("qwen3", "encode.jsonl");
    um_free(path);
    return rows;
}

/* The original tokenizer gives the ids of the rows: see families_test.c, also for rows with a note. */
static void compare(const char *folder, const um_tok *original, const um_tok *converted) {
    bool has_ids;
    json_t *rows = rows_of(folder, &has_ids), *row;
    size_t i, right = 0;
    json_array_foreach(rows, i, row) {
        um_str text = vector_str(json_object_get(row, "text"));
        um_ids a = encode(original, text, UM_PARSE_ALL, false), b = encode(converted, text, UM_PARSE_ALL, false);
        um_ids want = vector_ids(row, "ids");
        bool as_row = !has_ids || json_object_get(row, "note") || same_ids(&want, &b);
        right += as_row && same_ids(&a, &b) && decode_alike(original, converted, &a);
        um_ids_free(&a);
        um_ids_free(&b);
        um_ids_free(&want);
    }
    report_count("gguf", folder, right, json_array_size(rows));
    json_decref(rows);
}

static void converted_tokenizers_give_the_same_ids_and_texts(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(tokenizers); i++) {
        const char *name = tokenizers[i].folder;
        char *folder = strchr(name, '/') ? um_strdup(name) : um_path_join(data_folder(), name);
        um_tok *original;
        um_err err;
        if (um_tok_open(&original, folder, &err)) fail_msg("%s", err.msg);
        gguf_json f = file_of(folder, tokenizers[i].pre);
        um_tok *converted = convert(&f, folder);
        assert_int_equal(um_tok_size(converted), um_tok_size(original));
        for (int32_t id = 0; id < um_tok_size(original); id++) {
            assert_int_equal(um_tok_exists(converted, id), um_tok_exists(original, id));
            assert_int_equal(um_tok_is_special(converted, id), um_tok_is_special(original, id));
        }
        compare(folder, original, converted);
        um_tok_close(original);
        um_tok_close(converted);
        gguf_json_close(&f);
        um_free(folder);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(converted_tokenizers_give_the_same_ids_and_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
