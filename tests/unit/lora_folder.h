/* Adapter folders made to fit a checkpoint, and that checkpoint with the adapter written into its weights: the answer
 * that every way to run the adapter must give. */
#ifndef TESTS_LORA_FOLDER_H
#define TESTS_LORA_FOLDER_H

#include "unit/model_folder.h"

enum { LORA_PAIRS_MAX = 256 };

typedef struct lora_pair {
    char path[128];
    int rows, cols, rank;
    size_t a, b; /* where their values begin in the data */
    double scale;
} lora_pair;

typedef struct lora_folder {
    char *dir;
    um_buf header, data;
    lora_pair pair[LORA_PAIRS_MAX];
    int n;
    const char *prefix, *suffix; /* of keys: "base_model.model.", ".weight" */
    uint64_t seed;
} lora_folder;

static inline lora_folder lora_new(uint64_t seed) {
    return (lora_folder){.dir = folder_new(), .prefix = "base_model.model.", .suffix = ".weight", .seed = seed};
}

static inline void lora_free(lora_folder *a) {
    um_buf_free(&a->header);
    um_buf_free(&a->data);
    folder_free(a->dir);
}

/* A tensor [rows, cols], cols 0: [rows]. Its values are multiples of 1/64 below 1/8, so that sums of products are
 * exact; returns where they begin. */
static inline size_t lora_put(lora_folder *a, const char *key, int rows, int cols) {
    const size_t from = a->data.len, n = (size_t)rows * (size_t)UM_MAX(cols, 1);
    const uint64_t rng = um_rng_key(a->seed, from, n, 0);
    for (size_t i = 0; i < n; i++) {
        float v = (float)((int)(um_rng_u64(rng, i) % 17) - 8) / 64;
        um_buf_append(&a->data, &v, sizeof v);
    }
    um_buf_printf(&a->header, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%d", a->header.len ? "," : "{", key, rows);
    if (cols) um_buf_printf(&a->header, ",%d", cols);
    um_buf_printf(&a->header, "],\"data_offsets\":[%zu,%zu]}", from, a->data.len);
    return from;
}

/* Both matrices for a module [rows, cols], which add `scale` times their product. */
static inline void lora_pair_put(lora_folder *a, const char *path, int rows, int cols, int rank, double scale) {
    lora_pair *p = &a->pair[a->n++];
    char key[256];
    assert_true(a->n < LORA_PAIRS_MAX);
    *p = (lora_pair){.rows = rows, .cols = cols, .rank = rank, .scale = scale};
    snprintf(p->path, sizeof p->path, "%s", path);
    snprintf(key, sizeof key, "%s%s.lora_A%s", a->prefix, path, a->suffix);
    p->a = lora_put(a, key, rank, cols);
    snprintf(key, sizeof key, "%s%s.lora_B%s", a->prefix, path, a->suffix);
    p->b = lora_put(a, key, rows, rank);
}

static inline bool lora_is_named(const char *path, const char *leaves) {
    const char *dot = strrchr(path, '.');
    um_str at;
    return um_word_index(leaves, '|', dot ? dot + 1 : path, &at) >= 0;
}

/* Pairs for every matrix of the checkpoint whose path holds `within` and ends in one of `leaves` ("q_proj|k_proj"). */
static inline void lora_fit(lora_folder *a, const char *model, const char *within, const char *leaves, int rank,
                            double scale) {
    um_store *s;
    um_err err = {0};
    const int before = a->n;
    if (um_store_open(&s, model, &err)) fail_msg("%s", err.msg);
    for (size_t i = 0; i < um_store_count(s); i++) {
        const um_tensor *t = um_store_at(s, i);
        char path[128];
        snprintf(path, sizeof path, "%s", t->name);
        char *end = strstr(path, ".weight");
        if (t->n_dims != 2 || !end) continue;
        *end = '\0';
        if (strstr(path, within) && lora_is_named(path, leaves))
            lora_pair_put(a, path, (int)t->dim[0], (int)t->dim[1], rank, scale);
    }
    um_store_close(s);
    assert_true(a->n > before);
}

/* config with single quotes. */
static inline void lora_write(lora_folder *a, const char *config) {
    char *text = quoted(config);
    um_buf header = {0};
    um_buf_printf(&header, "%s}", a->header.len ? a->header.data : "{");
    folder_write_text(a->dir, "adapter_config.json", text);
    folder_write_safetensors(a->dir, "adapter_model.safetensors", header.data, a->data.data, a->data.len);
    um_buf_free(&header);
    um_free(text);
}

static inline void lora_copy_file(const char *from, const char *to, const char *name) {
    um_buf b = {0};
    char *path = um_path_join(from, name);
    if (um_file_exists(path)) {
        assert_int_equal(um_file_read(path, (size_t)1 << 26, &b, NULL), UM_OK);
        folder_write(to, name, b.data, b.len);
    }
    um_buf_free(&b);
    um_free(path);
}

static inline void lora_add_product(const lora_folder *a, const lora_pair *p, float *w) {
    const float *A = (const float *)(a->data.data + p->a), *B = (const float *)(a->data.data + p->b);
    for (int i = 0; i < p->rows; i++)
        for (int k = 0; k < p->cols; k++) {
            double sum = 0;
            for (int j = 0; j < p->rank; j++) sum += (double)B[i * p->rank + j] * (double)A[j * p->cols + k];
            w[i * p->cols + k] += (float)(p->scale * sum);
        }
}

/* A new folder: the checkpoint, whose tensors are fp32, with W + scale * B A in place of each W. */
static inline char *lora_fold(const lora_folder *a, const char *model) {
    char *dir = folder_new(), *path = um_path_join(model, "model.safetensors");
    um_buf b = {0};
    um_err err = {0};
    um_store *s = um_store_new();
    assert_int_equal(um_file_read(path, (size_t)1 << 26, &b, NULL), UM_OK);
    if (um_safetensors_parse(s, (const uint8_t *)b.data, b.len, path, NULL, &err)) fail_msg("%s", err.msg);
    for (int i = 0; i < a->n; i++) {
        char name[160];
        snprintf(name, sizeof name, "%s.weight", a->pair[i].path);
        const um_tensor *t = um_store_find(s, name);
        assert_non_null(t);
        assert_int_equal(t->type, UM_F32);
        size_t n = (size_t)a->pair[i].rows * (size_t)a->pair[i].cols, at = (size_t)((const char *)t->data - b.data);
        float *w = um_alloc(n * sizeof(float)); /* data of a file may lie at any address */
        memcpy(w, b.data + at, n * sizeof(float));
        lora_add_product(a, &a->pair[i], w);
        memcpy(b.data + at, w, n * sizeof(float));
        um_free(w);
    }
    folder_write(dir, "model.safetensors", b.data, b.len);
    lora_copy_file(model, dir, "config.json");
    lora_copy_file(model, dir, "tokenizer.json");
    lora_copy_file(model, dir, "tokenizer_config.json");
    um_store_close(s);
    um_buf_free(&b);
    um_free(path);
    return dir;
}

#endif
