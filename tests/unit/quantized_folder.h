/* Random quantised matrices and their tensors in safetensors files, written from the descriptions of the formats. The
 * values of a matrix are computed from its integers, and not from the stored words. */
#ifndef TESTS_QUANTIZED_FOLDER_H
#define TESTS_QUANTIZED_FOLDER_H

#include <math.h>

#include "unit/model_folder.h"

/* A matrix [out, in]: each row is divided into groups with a zero and a scale. */
typedef struct qmatrix {
    int out, in, bits, group, n_groups;
    int *q;        /* [out, in] stored integers; codes of 8-bit floats when bits is 0 */
    int *zero;     /* [out, n_groups] */
    float *scale;  /* [out, n_groups], exact in fp16 and bf16 */
    int *group_of; /* [in] */
} qmatrix;

/* A safetensors file that is being made. */
typedef struct qfile {
    um_buf header, data;
} qfile;

/* ---- Matrices ---------------------------------------------------------------------------------------------------- */

static inline int q_random(uint64_t key, int i, int n) { return (int)(um_rng_u64(key, (uint64_t)i) % (uint64_t)n); }

/* group 0: one group. bits 0: 8-bit floats, for which a group has a scale only. */
static inline qmatrix qmatrix_new(int out, int in, int bits, int group, uint64_t seed) {
    const int size = group ? group : in, n = UM_CEIL_DIV(in, size), codes = bits ? 1 << bits : 256;
    qmatrix m = {.out = out, .in = in, .bits = bits, .group = size, .n_groups = n};
    m.q = UM_NEW_ARRAY(int, (size_t)(out * in));
    m.zero = UM_NEW_ARRAY(int, (size_t)(out * n));
    m.scale = UM_NEW_ARRAY(float, (size_t)(out * n));
    m.group_of = UM_NEW_ARRAY(int, (size_t)in);
    for (int i = 0; i < out * in; i++) m.q[i] = q_random(um_rng_key(seed, 1, 0, 0), i, codes);
    for (int i = 0; i < out * n; i++) {
        m.zero[i] = bits ? 1 + q_random(um_rng_key(seed, 2, 0, 0), i, codes - 1) : 0;
        m.scale[i] = (float)(64 + q_random(um_rng_key(seed, 3, 0, 0), i, 64)) / 4096;
    }
    for (int k = 0; k < in; k++) m.group_of[k] = k / size;
    return m;
}

static inline void qmatrix_free(qmatrix *m) {
    um_free(m->q);
    um_free(m->zero);
    um_free(m->scale);
    um_free(m->group_of);
}

/* Assigns the columns to the groups in a random order. */
static inline void qmatrix_shuffle(qmatrix *m, uint64_t seed) {
    for (int k = m->in - 1; k > 0; k--) {
        const int other = q_random(um_rng_key(seed, 4, 0, 0), k, k + 1), swapped = m->group_of[k];
        m->group_of[k] = m->group_of[other];
        m->group_of[other] = swapped;
    }
}

static inline void qmatrix_set_zeros(qmatrix *m, int zero) {
    for (int i = 0; i < m->out * m->n_groups; i++) m->zero[i] = zero;
}

static inline float q_f8(int code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const float size = exponent ? ldexpf(1 + (float)mantissa / 8, exponent - 7) : ldexpf((float)mantissa, -9);
    return (code & 127) == 127 ? NAN : code & 128 ? -size : size;
}

static inline float qmatrix_at(const qmatrix *m, int row, int k) {
    const int i = row * m->n_groups + m->group_of[k], q = m->q[row * m->in + k];
    return (m->bits ? (float)(q - m->zero[i]) : q_f8(q)) * m->scale[i];
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

/* Begins a tensor, whose bytes are then appended to f->data. cols 0: one dimension. Returns where they begin. */
static inline size_t q_begin(qfile *f, const char *module, const char *ending, const char *type, int rows, int cols,
                             size_t bytes) {
    const size_t from = f->data.len;
    um_buf_printf(&f->header, "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[%d", f->header.len ? "," : "{", module, ending,
                  type, rows);
    if (cols) um_buf_printf(&f->header, ",%d", cols);
    um_buf_printf(&f->header, "],\"data_offsets\":[%zu,%zu]}", from, from + bytes);
    um_buf_reserve(&f->data, bytes);
    memset(f->data.data + from, 0, bytes);
    f->data.len += bytes;
    return from;
}

/* Sets the integer at bit `at` of the words. */
static inline void q_or(qfile *f, size_t from, size_t word, int at, int v) {
    uint32_t w;
    memcpy(&w, f->data.data + from + 4 * word, 4);
    w |= (uint32_t)v << at;
    memcpy(f->data.data + from + 4 * word, &w, 4);
}

/* Writes scales [n_groups, out], or [out, n_groups] when turned. */
static inline void q_scales(qfile *f, const qmatrix *m, const char *module, const char *ending, const char *type,
                            bool turned) {
    const int size = strcmp(type, "F32") ? 2 : 4, rows = turned ? m->out : m->n_groups;
    const int cols = turned ? m->n_groups : m->out;
    const size_t from = q_begin(f, module, ending, type, rows, cols, (size_t)(rows * cols * size));
    for (int i = 0; i < rows * cols; i++) {
        const float v = turned ? m->scale[i] : m->scale[i % cols * m->n_groups + i / cols];
        const uint16_t half = strcmp(type, "F16") ? um_f32_to_bf16(v) : um_f32_to_f16(v);
        char *to = f->data.data + from + i * size;
        if (size == 4) memcpy(to, &v, 4);
        else memcpy(to, &half, 2);
    }
}

static inline void q_list(qfile *f, const qmatrix *m, const char *module, const char *ending) {
    const size_t from = q_begin(f, module, ending, "I32", m->in, 0, (size_t)m->in * 4);
    for (int k = 0; k < m->in; k++) q_or(f, from, (size_t)k, 0, m->group_of[k]);
}

/* ---- Formats ----------------------------------------------------------------------------------------------------- */

/* qweight [in / per word, out], qzeros [groups, out / per word] with `less` subtracted from each zero. */
static inline void q_put_gptq(qfile *f, const qmatrix *m, const char *module, int less, bool listed) {
    const int per = 32 / m->bits, words = m->out / per;
    size_t from = q_begin(f, module, ".qweight", "I32", m->in / per, m->out, (size_t)(m->in / per * m->out) * 4);
    for (int o = 0; o < m->out; o++)
        for (int k = 0; k < m->in; k++)
            q_or(f, from, (size_t)(k / per * m->out + o), k % per * m->bits, m->q[o * m->in + k]);
    from = q_begin(f, module, ".qzeros", "I32", m->n_groups, words, (size_t)(m->n_groups * words) * 4);
    for (int o = 0; o < m->out; o++)
        for (int g = 0; g < m->n_groups; g++)
            q_or(f, from, (size_t)(g * words + o / per), o % per * m->bits, m->zero[o * m->n_groups + g] - less);
    q_scales(f, m, module, ".scales", "F16", false);
    if (listed) q_list(f, m, module, ".g_idx");
}

/* qweight [in, out / 8], qzeros [groups, out / 8]. */
static inline void q_put_awq(qfile *f, const qmatrix *m, const char *module) {
    static const int column[] = {0, 2, 4, 6, 1, 3, 5, 7};
    const int words = m->out / 8;
    size_t from = q_begin(f, module, ".qweight", "I32", m->in, words, (size_t)(m->in * words) * 4);
    for (int k = 0; k < m->in; k++)
        for (int o = 0; o < m->out; o++)
            q_or(f, from, (size_t)(k * words + o / 8), 4 * (o % 8), m->q[(o / 8 * 8 + column[o % 8]) * m->in + k]);
    from = q_begin(f, module, ".qzeros", "I32", m->n_groups, words, (size_t)(m->n_groups * words) * 4);
    for (int g = 0; g < m->n_groups; g++)
        for (int o = 0; o < m->out; o++)
            q_or(f, from, (size_t)(g * words + o / 8), 4 * (o % 8),
                 m->zero[(o / 8 * 8 + column[o % 8]) * m->n_groups + g]);
    q_scales(f, m, module, ".scales", "F16", false);
}

/* weight_packed [out, words], weight_shape, weight_scale [out, groups] and, unless the integers are symmetric,
 * weight_zero_point [words, groups]. */
static inline void q_put_packed(qfile *f, const qmatrix *m, const char *module, bool symmetric, bool listed) {
    const int per = 32 / m->bits, words = UM_CEIL_DIV(m->in, per), zero_words = UM_CEIL_DIV(m->out, per);
    const int64_t shape[] = {m->out, m->in};
    size_t from = q_begin(f, module, ".weight_packed", "I32", m->out, words, (size_t)(m->out * words) * 4);
    for (int o = 0; o < m->out; o++)
        for (int k = 0; k < m->in; k++)
            q_or(f, from, (size_t)(o * words + k / per), k % per * m->bits, m->q[o * m->in + k]);
    from = q_begin(f, module, ".weight_shape", "I64", 2, 0, sizeof shape);
    memcpy(f->data.data + from, shape, sizeof shape);
    q_scales(f, m, module, ".weight_scale", "BF16", true);
    if (listed) q_list(f, m, module, ".weight_g_idx");
    if (symmetric) return;
    from = q_begin(f, module, ".weight_zero_point", "I32", zero_words, m->n_groups,
                   (size_t)(zero_words * m->n_groups) * 4);
    for (int o = 0; o < m->out; o++)
        for (int g = 0; g < m->n_groups; g++)
            q_or(f, from, (size_t)(o / per * m->n_groups + g), o % per * m->bits, m->zero[o * m->n_groups + g]);
}

/* weight [out, in] of 8-bit floats, and scales [ceil(out / rows), groups], the same for `rows` rows. */
static inline void q_put_fp8(qfile *f, qmatrix *m, const char *module, int rows, const char *ending, const char *type) {
    const size_t from = q_begin(f, module, ".weight", "F8_E4M3", m->out, m->in, (size_t)(m->out * m->in));
    for (int i = 0; i < m->out * m->in; i++) f->data.data[from + (size_t)i] = (char)m->q[i];
    for (int i = 0; i < m->out * m->n_groups; i++)
        m->scale[i] = m->scale[i / m->n_groups / rows * rows * m->n_groups + i % m->n_groups];
    qmatrix blocks = *m;
    blocks.out = UM_CEIL_DIV(m->out, rows);
    blocks.scale = UM_NEW_ARRAY(float, (size_t)(blocks.out * m->n_groups));
    for (int i = 0; i < blocks.out * m->n_groups; i++)
        blocks.scale[i] = m->scale[i / m->n_groups * rows * m->n_groups + i % m->n_groups];
    q_scales(f, &blocks, module, ending, type, true);
    um_free(blocks.scale);
}

static inline void q_put_floats(qfile *f, const char *name, int rows, int cols, const float *x) {
    const size_t n = (size_t)rows * (size_t)UM_MAX(cols, 1) * sizeof *x;
    const size_t from = q_begin(f, name, "", "F32", rows, cols, n);
    memcpy(f->data.data + from, x, n);
}

/* Writes the file, and empties f. */
static inline void q_write_as(qfile *f, const char *dir, const char *name) {
    um_buf_puts(&f->header, f->header.len ? "}" : "{}");
    folder_write_safetensors(dir, name, f->header.data, f->data.data, f->data.len);
    um_buf_free(&f->header);
    um_buf_free(&f->data);
}

static inline void q_write(qfile *f, const char *dir) { q_write_as(f, dir, "model.safetensors"); }

/* Replaces the first occurrence of a text in the header. */
static inline void q_edit(qfile *f, const char *from, const char *to) {
    um_buf b = {0};
    char *at = strstr(f->header.data, from);
    assert_non_null(at);
    um_buf_append(&b, f->header.data, (size_t)(at - f->header.data));
    um_buf_puts(&b, to);
    um_buf_puts(&b, at + strlen(from));
    um_buf_free(&f->header);
    f->header = b;
}

/* Writes a config.json with this "quantization_config", in single quotes. */
static inline void q_write_config(const char *dir, const char *fields) {
    um_buf text = {0};
    char *json = quoted(fields);
    um_buf_printf(&text, "{\"quantization_config\":%s}", json);
    folder_write(dir, "config.json", text.data, text.len);
    um_buf_free(&text);
    um_free(json);
}

#endif
