/* Tests of quantised checkpoints: every element of every format against the integers that it was made of, whole models
 * against the same models in fp32, and damaged files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/packed.h"
#include "unit/model_zoo.h"
#include "unit/quantized_folder.h"

#define GPTQ(more) "{'quant_method':'gptq','bits':4,'group_size':32" more "}"
#define GPTQ_8     "{'quant_method':'gptq','bits':8,'group_size':32}"
#define AWQ        "{'quant_method':'awq','bits':4,'group_size':32,'version':'gemm','zero_point':true}"
#define FP8(more)  "{'quant_method':'fp8','activation_scheme':'dynamic'" more "}"
#define COMPRESSED(format, weights)                                                                                    \
    "{'quant_method':'compressed-tensors','format':'" format "','config_groups':{'group_0':{'targets':['Linear'],"     \
    "'weights':{" weights "}}}}"
#define PACKED(bits, more) COMPRESSED("pack-quantized", "'type':'int','num_bits':" bits more)
#define FLOATS(more)       COMPRESSED("float-quantized", "'type':'float','num_bits':8" more)

/* ---- Comparing --------------------------------------------------------------------------------------------------- */

static void assert_part(const um_tensor *t, const qmatrix *m, int row, int k, int n) {
    float *x = UM_NEW_ARRAY(float, (size_t)n);
    um_tensor_read(t, row, k, n, x);
    for (int i = 0; i < n; i++) {
        const float want = qmatrix_at(m, row, k + i);
        if (isnan(want) ? !isnan(x[i]) : memcmp(&want, &x[i], sizeof want) != 0)
            fail_msg("%s[%d, %d]: expected %a, found %a", t->name, row, k + i, (double)want, (double)x[i]);
    }
    um_free(x);
}

/* Compares all elements, read in whole rows, in the pieces of panels, and in pieces that begin inside of a word. */
static void assert_matrix(const um_store *s, const char *name, const qmatrix *m) {
    const um_tensor *t = um_store_find(s, name);
    assert_non_null(t);
    assert_int_equal(t->type, UM_DTYPE_OTHER);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dim[0], m->out);
    assert_int_equal(t->dim[1], m->in);
    assert_int_equal(um_tensor_format(t)->product, UM_Q8);
    for (int row = 0; row < m->out; row++) {
        assert_part(t, m, row, 0, m->in);
        for (int k = 0; k < m->in; k += 256) assert_part(t, m, row, k, UM_MIN(256, m->in - k));
        for (int k = 3; k < m->in; k += 37) assert_part(t, m, row, k, UM_MIN(37, m->in - k));
    }
}

static um_store *open_folder(const char *dir) {
    um_store *s;
    um_err err = {0};
    if (um_store_open(&s, dir, &err)) fail_msg("%s", err.msg);
    return s;
}

/* Writes the file with this configuration, opens the folder, compares the matrix "x.weight" and frees it. The store
 * holds no tensor besides. */
/* Checks that the parts of two and of three ranks have the values of the matrix, wherever its groups and blocks end. */
static void check_cut(const um_tensor *t, um_cut_kind kind) {
    const int64_t in = t->dim[1], n = kind == UM_CUT_ROWS ? t->dim[0] : in;
    float *want = UM_NEW_ARRAY(float, (size_t)in), *got = UM_NEW_ARRAY(float, (size_t)in);
    for (int32_t ranks = 2; ranks <= 3 && n >= ranks; ranks++)
        for (int32_t r = 0; r < ranks; r++) {
            const um_cut cut = {
                .kind = kind, .n_parts = 1, .part = {{n, kind == UM_CUT_ROWS ? 1 : um_tensor_format(t)->elements}}};
            um_cut_slice slice[UM_CUT_SLICES_MAX];
            int n_slices = 0;
            um_err err = {0};
            if (UM_CEIL_DIV(n, cut.part[0].unit) < ranks) continue;
            if (um_cut_slices(&cut, t, 1, UM_F32, r, ranks, slice, &n_slices, &err)) fail_msg("%s", err.msg);
            assert_int_equal(n_slices, 1);
            const um_tensor *own = &slice[0].t;
            for (int64_t row = 0; row < own->dim[0]; row++) {
                um_tensor_read(t, slice[0].row + row, 0, in, want);
                um_tensor_read(own, row, 0, own->dim[1], got);
                assert_memory_equal(want + slice[0].column, got, (size_t)own->dim[1] * sizeof *got);
            }
            um_cut_release(slice, &n_slices);
        }
    um_free(want);
    um_free(got);
}

static void check(qfile *f, const char *config, qmatrix *m) {
    char *dir = folder_new();
    q_write(f, dir);
    q_write_config(dir, config);
    um_store *s = open_folder(dir);
    assert_int_equal(um_store_count(s), 1);
    assert_matrix(s, "x.weight", m);
    check_cut(um_store_at(s, 0), UM_CUT_ROWS);
    check_cut(um_store_at(s, 0), UM_CUT_COLUMNS);
    um_store_release(s, um_store_at(s, 0));
    assert_matrix(s, "x.weight", m);
    um_store_close(s);
    folder_free(dir);
    qmatrix_free(m);
}

/* ---- Formats ----------------------------------------------------------------------------------------------------- */

static const struct {
    int out, in, group;
    const char *name; /* group_size in the configuration */
} sizes[] = {{8, 32, 32, "32"},   {40, 96, 32, "32"},  {72, 512, 128, "128"},
             {24, 1056, 0, "-1"}, {16, 360, 64, "64"}, {8, 8, 128, "128"}};

static void gptq_subtracts_a_zero_that_is_stored_minus_one(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(sizes); i++)
        for (int version = 1; version <= 2; version++)
            for (int bits = 4; bits <= 8; bits += 4) {
                char config[160];
                qfile f = {0};
                qmatrix m = qmatrix_new(sizes[i].out, sizes[i].in, bits, sizes[i].group, i);
                q_put_gptq(&f, &m, "x", version == 1, i % 2);
                snprintf(config, sizeof config,
                         "{'quant_method':'gptq','bits':%d,'group_size':%s,"
                         "'checkpoint_format':'%s'}",
                         bits, sizes[i].name, version == 1 ? "gptq" : "gptq_v2");
                check(&f, config, &m);
            }
}

/* A stored zero of 15 stands for 16. */
static void the_largest_zero_of_gptq_does_not_wrap_around(void **state) {
    (void)state;
    qfile f = {0};
    qmatrix m = qmatrix_new(8, 32, 4, 32, 1);
    qmatrix_set_zeros(&m, 16);
    q_put_gptq(&f, &m, "x", 1, false);
    check(&f, GPTQ(""), &m);
}

/* The values of 3 or 12 groups are converted before those of the columns. With 300 groups, each column looks for the
 * values of its own group. */
static void columns_may_be_in_groups_in_any_order(void **state) {
    (void)state;
    static const struct {
        int in, group;
        const char *config;
    } cases[] = {{96, 32, GPTQ(",'desc_act':true")},
                 {384, 32, GPTQ(",'desc_act':true")},
                 {2400, 8, "{'quant_method':'gptq','bits':4,'group_size':8,'desc_act':true}"}};
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        qfile f = {0};
        qmatrix m = qmatrix_new(16, cases[i].in, 4, cases[i].group, i);
        qmatrix_shuffle(&m, i);
        q_put_gptq(&f, &m, "x", 1, true);
        check(&f, cases[i].config, &m);
        m = qmatrix_new(19, cases[i].in, 4, cases[i].group, i);
        qmatrix_shuffle(&m, i);
        q_put_packed(&f, &m, "x", false, true);
        check(&f, cases[i].group == 8 ? PACKED("4", ",'group_size':8") : PACKED("4", ",'group_size':32"), &m);
    }
}

static void awq_permutes_eight_rows(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(sizes); i++) {
        char config[160];
        qfile f = {0};
        qmatrix m = qmatrix_new(sizes[i].out, sizes[i].in, 4, sizes[i].group, i);
        q_put_awq(&f, &m, "x");
        snprintf(config, sizeof config, "{'quant_method':'awq','bits':4,'group_size':%s}", sizes[i].name);
        check(&f, config, &m);
    }
    qfile f = {0};
    qmatrix m = qmatrix_new(16, 33, 4, 32, 9); /* the columns of AWQ fill no words */
    q_put_awq(&f, &m, "x");
    check(&f, AWQ, &m);
}

static void pack_quantized_has_symmetric_integers_or_zeros(void **state) {
    (void)state;
    static const int out[] = {1, 7, 8, 33}, in[] = {32, 100, 515};
    for (size_t i = 0; i < UM_LEN(out); i++)
        for (size_t k = 0; k < UM_LEN(in); k++)
            for (int bits = 4; bits <= 8; bits += 4)
                for (int symmetric = 0; symmetric < 2; symmetric++) {
                    qfile f = {0};
                    qmatrix m = qmatrix_new(out[i], in[k], bits, 32, i + k);
                    if (symmetric) qmatrix_set_zeros(&m, 1 << (bits - 1));
                    q_put_packed(&f, &m, "x", symmetric, false);
                    check(&f, bits == 4 ? PACKED("4", ",'group_size':32") : PACKED("8", ",'group_size':32"), &m);
                }
    qfile f = {0};
    qmatrix m = qmatrix_new(9, 70, 4, 0, 1);
    qmatrix_set_zeros(&m, 8);
    q_put_packed(&f, &m, "x", true, false);
    check(&f, PACKED("4", ",'group_size':null,'strategy':'channel'"), &m);
}

static void fp8_has_a_scale_for_each_block(void **state) {
    (void)state;
    static const struct { int out, in; } shapes[] = {{128, 128}, {129, 257}, {5, 3}, {200, 384}};
    for (size_t i = 0; i < UM_LEN(shapes); i++) {
        qfile f = {0};
        qmatrix m = qmatrix_new(shapes[i].out, shapes[i].in, 0, 128, i);
        q_put_fp8(&f, &m, "x", 128, ".weight_scale_inv", i % 2 ? "F32" : "BF16");
        check(&f, FP8(",'weight_block_size':[128,128]"), &m);
        m = qmatrix_new(shapes[i].out, shapes[i].in, 0, 64, i);
        q_put_fp8(&f, &m, "x", 32, ".weight_scale", "F16");
        check(&f, FLOATS(",'strategy':'block','block_structure':'32x64'"), &m);
        m = qmatrix_new(shapes[i].out, shapes[i].in, 0, 16, i);
        q_put_fp8(&f, &m, "x", 1, ".weight_scale", "F32");
        check(&f, FLOATS(",'strategy':'group','group_size':16"), &m);
    }
}

/* Compares the scales of the blocks of t with those of m, of which t begins at row and column. */
static void assert_block_scales(const um_tensor *t, const qmatrix *m, int64_t row, int64_t column) {
    const int64_t B = UM_FORMAT_BLOCK, rows = UM_CEIL_DIV(t->dim[0], B), cols = UM_CEIL_DIV(t->dim[1], B);
    const um_format *f = um_tensor_format(t);
    float *scale = UM_NEW_ARRAY(float, (size_t)(rows * cols));
    assert_true(f->read_scales(t, NULL) && f->read_scales(t, scale));
    for (int64_t i = 0; i < rows * cols; i++)
        assert_memory_equal(&scale[i], &m->scale[(row + i / cols * B) * m->n_groups + column / B + i % cols], 4);
    um_free(scale);
}

/* Parts that ranks have keep them if they begin and end with blocks. */
static void the_scales_of_whole_blocks_can_be_read(void **state) {
    (void)state;
    static const struct {
        um_cut_kind kind;
        int64_t n;
        int32_t unit, rank, n_ranks;
        bool whole;
        int64_t row, column;
    } cuts[] = {{UM_CUT_ROWS, 300, 128, 0, 2, true, 0, 0},     {UM_CUT_ROWS, 300, 128, 1, 2, true, 128, 0},
                {UM_CUT_ROWS, 300, 1, 0, 2, false, 0, 0},      {UM_CUT_ROWS, 300, 1, 1, 2, false, 150, 0},
                {UM_CUT_COLUMNS, 700, 128, 0, 2, true, 0, 0},  {UM_CUT_COLUMNS, 700, 128, 2, 3, true, 0, 512},
                {UM_CUT_COLUMNS, 700, 64, 1, 3, false, 0, 192}};
    char *dir = folder_new();
    qfile f = {0};
    qmatrix m = qmatrix_new(300, 700, 0, 128, 7);
    um_err err = {0};
    q_put_fp8(&f, &m, "x", 128, ".weight_scale_inv", "F32");
    q_write(&f, dir);
    q_write_config(dir, FP8(",'weight_block_size':[128,128]"));
    um_store *s = open_folder(dir);
    const um_tensor *t = um_store_at(s, 0);
    assert_block_scales(t, &m, 0, 0);
    for (size_t i = 0; i < UM_LEN(cuts); i++) {
        const um_cut cut = {.kind = cuts[i].kind, .n_parts = 1, .part = {{cuts[i].n, cuts[i].unit}}};
        um_cut_slice slice[UM_CUT_SLICES_MAX];
        int n = 0;
        if (um_cut_slices(&cut, t, 1, UM_F8, cuts[i].rank, cuts[i].n_ranks, slice, &n, &err)) fail_msg("%s", err.msg);
        assert_int_equal(slice[0].row, cuts[i].row);
        assert_int_equal(slice[0].column, cuts[i].column);
        if (cuts[i].whole) assert_block_scales(&slice[0].t, &m, slice[0].row, slice[0].column);
        else assert_false(um_tensor_format(&slice[0].t)->read_scales(&slice[0].t, NULL));
        um_cut_release(slice, &n);
    }
    um_store_close(s);
    folder_free(dir);
    qmatrix_free(&m);
}

/* A matrix of a stack has scales of its own. */
static void the_scales_of_blocks_of_a_stack_can_be_read(void **state) {
    (void)state;
    enum { ROWS = 130, COLUMNS = 140, N = 2, BLOCKS = 4 }; /* blocks of a matrix */
    const size_t codes = (size_t)N * ROWS * COLUMNS, scales = (size_t)N * BLOCKS * sizeof(float);
    char *dir = folder_new();
    qfile f = {0};
    um_buf_printf(&f.header,
                  "{\"x\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,130,140],\"data_offsets\":[0,%zu]},"
                  "\"x_scale_inv\":{\"dtype\":\"F32\",\"shape\":[2,2,2],\"data_offsets\":[%zu,%zu]}",
                  codes, codes, codes + scales);
    um_buf_reserve(&f.data, codes + scales);
    memset(f.data.data, 0x38, codes); /* 1 */
    for (int i = 0; i < N * BLOCKS; i++)
        memcpy(f.data.data + codes + (size_t)i * sizeof(float), &(float){(float)i + 1}, sizeof(float));
    f.data.len = codes + scales;
    q_write(&f, dir);
    q_write_config(dir, FP8(",'weight_block_size':[128,128]"));
    um_store *s = open_folder(dir);
    const um_tensor *stack = um_store_find(s, "x");
    assert_false(um_tensor_format(stack)->read_scales(stack, NULL));
    for (int i = 0; i < N; i++) {
        const um_tensor one = um_tensor_slice(stack, i);
        float scale[BLOCKS];
        assert_true(um_tensor_format(&one)->read_scales(&one, scale));
        for (int k = 0; k < BLOCKS; k++) assert_true(scale[k] == (float)(i * BLOCKS + k + 1));
    }
    um_store_close(s);
    folder_free(dir);
}

/* Other scales are not those of blocks of this size. */
static void other_scales_can_not_be_read_as_those_of_blocks(void **state) {
    (void)state;
    static const struct {
        int block;
        const char *config;
    } cases[] = {{32, FP8(",'weight_block_size':[32,32]")}, {1, FP8("")}};
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        char *dir = folder_new();
        qfile f = {0};
        qmatrix m = qmatrix_new(64, 96, 0, cases[i].block == 1 ? 0 : 32, i);
        q_put_fp8(&f, &m, "x", cases[i].block, ".weight_scale", "F32");
        q_write(&f, dir);
        q_write_config(dir, cases[i].config);
        um_store *s = open_folder(dir);
        assert_false(um_tensor_format(um_store_at(s, 0))->read_scales(um_store_at(s, 0), NULL));
        um_store_close(s);
        folder_free(dir);
        qmatrix_free(&m);
    }
}

static void fp8_has_a_scale_for_each_row_or_for_the_matrix(void **state) {
    (void)state;
    static const char *const configs[] = {FP8(""), FLOATS(",'strategy':'tensor'")};
    for (size_t i = 0; i < UM_LEN(configs); i++) {
        qfile f = {0};
        qmatrix m = qmatrix_new(33, 70, 0, 0, i);
        q_put_fp8(&f, &m, "x", 1, ".weight_scale", "BF16");
        check(&f, configs[i], &m);
        m = qmatrix_new(33, 70, 0, 0, i);
        q_put_fp8(&f, &m, "x", 33, ".weight_scale", "F32");
        q_put_floats(&f, "x.input_scale", 1, 0, &(float){2});
        check(&f, configs[i], &m);
    }
}

enum { STACK = 3, OUT = 40, IN = 70 };

/* Writes a stack of matrices, whose scales have these dimensions behind the first, "[3,2,3]". */
static void put_stack(qfile *f, qmatrix m[STACK], int block_rows, const char *dims, const char *ending) {
    const int blocks = m[0].n_groups, per_matrix = UM_CEIL_DIV(OUT, block_rows) * blocks;
    const size_t codes = f->data.len, each = OUT * IN, bytes = STACK * each, scales = (size_t)(STACK * per_matrix) * 4;
    um_buf_printf(&f->header, "{\"x\":{\"dtype\":\"F8_E4M3\",\"shape\":[%d,%d,%d],\"data_offsets\":[%zu,%zu]},", STACK,
                  OUT, IN, codes, codes + bytes);
    um_buf_printf(&f->header, "\"x%s\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}", ending, dims,
                  codes + bytes, codes + bytes + scales);
    for (int i = 0; i < STACK; i++)
        for (size_t k = 0; k < each; k++) um_buf_putc(&f->data, (char)m[i].q[k]);
    for (int i = 0; i < STACK; i++) /* each scale belongs to rows and columns of its own */
        for (int k = 0; k < per_matrix; k++) {
            um_buf_append(&f->data, (const char *)&m[i].scale[k / blocks * block_rows * blocks + k % blocks], 4);
        }
}

static void check_stack(int per_row, int block_rows, const char *dims, const char *config) {
    qmatrix m[STACK];
    qfile f = {0};
    char *dir = folder_new();
    for (int i = 0; i < STACK; i++) {
        m[i] = qmatrix_new(OUT, IN, 0, per_row > 1 ? 32 : 0, (uint64_t)i + 1);
        for (int k = 0; k < OUT * m[i].n_groups; k++)
            m[i].scale[k] = m[i].scale[k / m[i].n_groups / block_rows * block_rows * m[i].n_groups + k % m[i].n_groups];
    }
    put_stack(&f, m, block_rows, dims, per_row > 1 ? "_scale_inv" : "_scale");
    q_write(&f, dir);
    q_write_config(dir, config);
    um_store *s = open_folder(dir);
    const um_tensor *stack = um_store_find(s, "x");
    assert_non_null(stack);
    assert_int_equal(um_store_count(s), 1);
    for (int i = 0; i < STACK; i++) {
        const um_tensor one = um_tensor_slice(stack, i);
        for (int row = 0; row < OUT; row++) {
            float whole[IN];
            assert_part(&one, &m[i], row, 0, IN);
            assert_part(&one, &m[i], row, 3, 37);
            um_tensor_read(stack, i * OUT + row, 0, IN, whole);
            for (int k = 0; k < IN; k++)
                if (!isnan(whole[k])) assert_true(whole[k] == qmatrix_at(&m[i], row, k));
        }
    }
    um_store_close(s);
    folder_free(dir);
    for (int i = 0; i < STACK; i++) qmatrix_free(&m[i]);
}

static void stacks_of_fp8_have_scales_for_each_matrix(void **state) {
    (void)state;
    check_stack(3, 32, "[3,2,3]", FP8(",'weight_block_size':[32,32]"));
    check_stack(1, 1, "[3,40,1]", FP8(""));
    check_stack(1, 1, "[3,40]", FLOATS(",'strategy':'channel'"));
    check_stack(1, OUT, "[3]", FP8(""));
    check_stack(1, OUT, "[3,1,1]", FLOATS(",'strategy':'tensor'"));
}

static void stacks_with_other_scales_are_refused(void **state) {
    (void)state;
    qfile f = {0};
    qmatrix m[STACK];
    um_store *s;
    um_err err = {0};
    char *dir = folder_new();
    for (int i = 0; i < STACK; i++) m[i] = qmatrix_new(OUT, IN, 0, 0, 1);
    put_stack(&f, m, 1, "[40,3]", "_scale");
    q_write(&f, dir);
    q_write_config(dir, FP8(""));
    assert_int_equal(um_store_open(&s, dir, &err), UM_EMODEL);
    assert_non_null(strstr(err.msg, "expected floats [3, 40, 1] beside x"));
    folder_free(dir);
    for (int i = 0; i < STACK; i++) qmatrix_free(&m[i]);
}

/* All codes of 8-bit floats, subnormal numbers and NaN among them. */
static void every_8_bit_float_is_converted(void **state) {
    (void)state;
    qfile f = {0};
    qmatrix m = qmatrix_new(2, 256, 0, 0, 1);
    for (int i = 0; i < 512; i++) m.q[i] = i % 256;
    for (int i = 0; i < 2; i++) m.scale[i] = 0.75f;
    q_put_fp8(&f, &m, "x", 2, ".weight_scale", "F32");
    check(&f, FP8(""), &m);
}

/* ---- Checkpoints ------------------------------------------------------------------------------------------------- */

static void put_gptq(qfile *f, qmatrix *m, const char *module) { q_put_gptq(f, m, module, 1, true); }
static void put_gptq_reordered(qfile *f, qmatrix *m, const char *module) {
    qmatrix_shuffle(m, 1);
    q_put_gptq(f, m, module, 1, true);
}
static void put_awq(qfile *f, qmatrix *m, const char *module) { q_put_awq(f, m, module); }
static void put_packed(qfile *f, qmatrix *m, const char *module) {
    qmatrix_set_zeros(m, 8);
    q_put_packed(f, m, module, true, false);
}
static void put_blocks(qfile *f, qmatrix *m, const char *module) {
    q_put_fp8(f, m, module, 32, ".weight_scale_inv", "F32");
}
static void put_rows(qfile *f, qmatrix *m, const char *module) { q_put_fp8(f, m, module, 1, ".weight_scale", "BF16"); }

static const struct {
    const char *config;
    int bits, group;
    void (*put)(qfile *f, qmatrix *m, const char *module);
} methods[] = {
    {GPTQ(""), 4, 32, put_gptq},
    {GPTQ(",'desc_act':true"), 4, 32, put_gptq_reordered},
    {GPTQ_8, 8, 32, put_gptq},
    {AWQ, 4, 32, put_awq},
    {PACKED("4", ",'group_size':32"), 4, 32, put_packed},
    {FP8(",'weight_block_size':[32,32]"), 0, 32, put_blocks},
    {FLOATS(",'strategy':'channel'"), 0, 0, put_rows},
};

/* Stores a random matrix in the shape of t: quantised, and as the floats that it stands for. Norms, biases, routers,
 * embedding and head are copied. */
static void put_tensor(const um_tensor *t, size_t method, qfile *quantized, qfile *plain) {
    const char *end = strstr(t->name, "_proj.weight");
    const int rows = (int)t->dim[0], cols = t->n_dims > 1 ? (int)t->dim[1] : 0;
    float *x = UM_NEW_ARRAY(float, um_tensor_elements(t));
    if (!end) {
        um_tensor_to_f32(t, x);
        q_put_floats(quantized, t->name, rows, cols, x);
    } else {
        char module[128];
        qmatrix m = qmatrix_new(rows, cols, methods[method].bits, methods[method].group, (uint64_t)rows);
        /* an 8-bit float below 2 */
        for (int i = 0; i < rows * cols && !m.bits; i++) m.q[i] &= 0xbf;
        snprintf(module, sizeof module, "%.*s", (int)(strlen(t->name) - strlen(".weight")), t->name);
        methods[method].put(quantized, &m, module);
        for (int i = 0; i < rows * cols; i++) x[i] = qmatrix_at(&m, i / cols, i % cols);
        qmatrix_free(&m);
    }
    q_put_floats(plain, t->name, rows, cols, x);
    um_free(x);
}

/* Rewrites the checkpoint of z in fp32, and writes `quantized` with the same values. */
static void quantize(zoo *z, zoo *quantized, const char *config, size_t method) {
    qfile a = {0}, b = {0};
    um_store *s = open_folder(z->dir);
    json_t *json = json_of(config);
    for (size_t i = 0; i < um_store_count(s); i++) put_tensor(um_store_at(s, i), method, &a, &b);
    um_store_close(s);
    json_object_set_new(json, "quantization_config", json_of(methods[method].config));
    char *text = json_dumps(json, 0);
    folder_write_text(quantized->dir, "config.json", text);
    q_write(&a, quantized->dir);
    q_write(&b, z->dir);
    json_decref(json);
    free(text);
}

/* Without the option, matrices are kept in 8 bits. */
static void assert_kept_in_8_bits(const zoo *z) {
    zoo copy = *z;
    copy.quantization = NULL;
    um_model *m = zoo_model(&copy, "cpu");
    assert_int_equal(m->weight_type, UM_Q8);
    um_model_close(m);
}

/* The hidden rows must be equal bit by bit. Loading warns of no tensor. */
static void a_model_runs_like_its_floats(void **state) {
    (void)state;
    enum { TOKENS = 10 };
    static const char *const configs[] = {ZOO_DREAM, ZOO_SDAR_MOE}, *const devices[] = {"ref", "cpu"};
    for (size_t i = 0; i < UM_LEN(methods) * UM_LEN(configs); i++) {
        const char *config = configs[i % UM_LEN(configs)], *device = devices[i / UM_LEN(configs) % UM_LEN(devices)];
        zoo plain = zoo_new(config), quantized = zoo_new(config);
        quantized.quantization = "none";
        zoo_write(&plain);
        quantize(&plain, &quantized, config, i / UM_LEN(configs));
        const int old = catch_stderr(plain.dir);
        um_model *a = zoo_model(&plain, device), *b = zoo_model(&quantized, device);
        um_buf said = release_stderr(plain.dir, old);
        assert_string_equal(said.data, "");
        um_buf_free(&said);
        assert_int_equal(a->n_params, b->n_params);
        float *x = zoo_run_one(a, TOKENS), *y = zoo_run_one(b, TOKENS);
        for (int k = 0; k < TOKENS * 64; k++)
            if (!isfinite(x[k]) || x[k] != y[k])
                fail_msg("%s: expected %a, found %a", methods[i / UM_LEN(configs)].config, (double)x[k], (double)y[k]);
        um_free(x);
        um_free(y);
        assert_kept_in_8_bits(&quantized);
        zoo_done(&plain, a);
        zoo_done(&quantized, b);
    }
}

/* The packed folder must not say how its source was quantised. */
static void assert_forgotten(const char *dir) {
    char *path = um_path_join(dir, "config.json");
    json_t *config = NULL;
    um_err err;
    assert_int_equal(um_json_load(&config, path, &err), UM_OK);
    assert_null(json_object_get(config, "quantization_config"));
    assert_non_null(json_object_get(config, "architectures"));
    json_decref(config);
    um_free(path);
}

static void a_packed_model_runs_like_its_source(void **state) {
    (void)state;
    enum { TOKENS = 10 };
    for (size_t i = 0; i < UM_LEN(methods); i++) {
        zoo plain = zoo_new(ZOO_DREAM), quantized = zoo_new(ZOO_DREAM), packed = {.dir = folder_new()};
        um_config c;
        um_packed_report report;
        um_err err;
        zoo_write(&plain);
        quantize(&plain, &quantized, ZOO_DREAM, i);
        um_config_init(&c);
        c.model = quantized.dir;
        if (um_packed_write(&c, packed.dir, UM_Q8, false, NULL, NULL, &report, &err)) fail_msg("%s", err.msg);
        assert_true(report.is_rounded);
        assert_forgotten(packed.dir);
        quantized.quantization = "q8";
        um_model *a = zoo_model(&quantized, "cpu"), *b = zoo_model(&packed, "cpu");
        assert_int_equal(b->weight_type, UM_Q8);
        float *x = zoo_run_one(a, TOKENS), *y = zoo_run_one(b, TOKENS);
        assert_memory_equal(x, y, (size_t)TOKENS * 64 * sizeof *x);
        um_free(x);
        um_free(y);
        folder_free(plain.dir);
        zoo_done(&quantized, a);
        zoo_done(&packed, b);
    }
}

/* Modules that were left out of the quantisation have a plain weight. Without the field nothing is joined. */
static void plain_weights_stay_as_they_are(void **state) {
    (void)state;
    const float x[] = {1, 2, 3, 4, 5, 6};
    char *dir = folder_new();
    qfile f = {0};
    qmatrix m = qmatrix_new(8, 32, 4, 32, 1);
    q_put_gptq(&f, &m, "x", 1, false);
    q_put_floats(&f, "lm_head.weight", 2, 3, x);
    q_write(&f, dir);
    q_write_config(dir, GPTQ(""));
    um_store *s = open_folder(dir);
    assert_int_equal(um_store_count(s), 2);
    assert_string_equal(um_store_type(um_store_find(s, "lm_head.weight")), "F32");
    assert_string_equal(um_store_type(um_store_find(s, "x.weight")), "GPTQ 4-bit");
    assert_string_equal(um_store_file(s, um_store_find(s, "x.weight")), "model.safetensors");
    assert_int_equal(um_tensor_bytes(um_store_find(s, "x.weight")), 8 * 32 / 2);
    um_store_close(s);
    q_write_config(dir, "null");
    s = open_folder(dir);
    assert_int_equal(um_store_count(s), 4);
    assert_null(um_store_find(s, "x.weight"));
    um_store_close(s);
    folder_free(dir);
    qmatrix_free(&m);
}

/* Each shard has some of the tensors under their names, and the others under names without a meaning. */
static void tensors_of_a_matrix_may_be_in_several_shards(void **state) {
    (void)state;
    char *dir = folder_new();
    qfile f = {0};
    qmatrix m = qmatrix_new(16, 64, 4, 32, 1);
    q_put_gptq(&f, &m, "x", 1, true);
    q_edit(&f, "x.scales", "a");
    q_edit(&f, "x.g_idx", "b");
    q_write_as(&f, dir, "first.safetensors");
    q_put_gptq(&f, &m, "x", 1, true);
    q_edit(&f, "x.qweight", "c");
    q_edit(&f, "x.qzeros", "d");
    q_write_as(&f, dir, "last.safetensors");
    folder_write_text(dir, "model.safetensors.index.json",
                      "{\"weight_map\":{\"x.qweight\":\"first.safetensors\",\"x.scales\":\"last.safetensors\"}}");
    q_write_config(dir, GPTQ(""));
    um_store *s = open_folder(dir);
    assert_int_equal(um_store_count(s), 5);
    assert_matrix(s, "x.weight", &m);
    assert_string_equal(um_store_file(s, um_store_find(s, "x.weight")), "first.safetensors");
    um_store_release(s, um_store_find(s, "x.weight"));
    assert_matrix(s, "x.weight", &m);
    um_store_close(s);
    folder_free(dir);
    qmatrix_free(&m);
}

/* ---- Refused checkpoints ----------------------------------------------------------------------------------------- */

/* Opens a folder with this file, which must fail; the message contains both parts. */
static void refuses(qfile *f, const char *config, um_status status, const char *part, const char *other) {
    char *dir = folder_new();
    um_store *s;
    um_err err = {0};
    q_write(f, dir);
    q_write_config(dir, config);
    assert_int_equal(um_store_open(&s, dir, &err), status);
    assert_null(s);
    assert_says(&err, part);
    assert_says(&err, other);
    folder_free(dir);
}

static void refuses_config(const char *config, um_status status, const char *part) {
    qfile f = {0};
    refuses(&f, config, status, part, "config.json");
}

static void unknown_methods_are_refused_with_the_known_ones(void **state) {
    (void)state;
    static const char known[] = "it reads fp8, gptq (4 or 8 bits), awq (gemm) and compressed-tensors";
    static const char *const configs[][2] = {
        {"{'quant_method':'bitsandbytes','load_in_4bit':true}", "bitsandbytes"},
        {"{'quant_method':'modelopt','quant_algo':'NVFP4'}", "modelopt"},
        {"{'quant_method':'mxfp4'}", "mxfp4"},
        {"{'group_size':64,'bits':4}", "MLX"},
        {"{}", "an unnamed method"},
        {"{'quant_method':'gptq','bits':3,'group_size':32}", "gptq with 3 bits"},
        {"{'quant_method':'gptq','bits':2,'group_size':32}", "gptq with 2 bits"},
        {GPTQ(",'checkpoint_format':'marlin'"), "gptq with checkpoint_format marlin"},
        {GPTQ(",'is_marlin_format':true"), "gptq with checkpoint_format marlin"},
        {"{'quant_method':'awq','bits':8,'group_size':32}", "awq with 8 bits"},
        {"{'quant_method':'awq','bits':4,'group_size':32,'version':'gemv'}", "awq of version gemv"},
        {COMPRESSED("nvfp4-pack-quantized", "'num_bits':4"), "format nvfp4-pack-quantized"},
        {COMPRESSED("int-quantized", "'num_bits':8"), "format int-quantized"},
        {COMPRESSED("float-quantized", "'num_bits':4,'type':'float'"), "floats of 4 bits"},
        {COMPRESSED("float-quantized", "'num_bits':8,'type':'int'"), "float-quantized integers"},
        {PACKED("2", ""), "compressed-tensors with 2 bits"},
        {"{'quant_method':'compressed-tensors'}", "no format"},
    };
    for (size_t i = 0; i < UM_LEN(configs); i++) {
        qfile f = {0};
        refuses(&f, configs[i][0], UM_EUNSUPPORTED, configs[i][1], known);
    }
}

static void wrong_fields_are_refused(void **state) {
    (void)state;
    refuses_config("7", UM_EPARSE, "must be an object");
    refuses_config("{'quant_method':4}", UM_EPARSE, "quant_method");
    refuses_config("{'quant_method':'gptq','group_size':32}", UM_EPARSE, "lacks \"bits\"");
    refuses_config("{'quant_method':'gptq','bits':'4'}", UM_EPARSE, "bits");
    refuses_config("{'quant_method':'awq','bits':4,'group_size':0}", UM_EPARSE, "group_size");
    refuses_config("{'quant_method':'awq','bits':4,'group_size':-2}", UM_EPARSE, "group_size");
    refuses_config(FP8(",'weight_block_size':[128]"), UM_EPARSE, "weight_block_size");
    refuses_config(FP8(",'weight_block_size':[128,0]"), UM_EPARSE, "weight_block_size");
    refuses_config(FP8(",'weight_block_size':[128,128,128]"), UM_EPARSE, "weight_block_size");
    refuses_config(FLOATS(",'block_structure':'128'"), UM_EPARSE, "block_structure");
    refuses_config("{'quant_method':'compressed-tensors','format':'pack-quantized'}", UM_EPARSE, "config_groups");
    refuses_config("{'quant_method':'compressed-tensors','format':'pack-quantized','config_groups':{'g':{}}}",
                   UM_EPARSE, "g has no \"weights\"");
    refuses_config("{'quant_method':'compressed-tensors','format':'pack-quantized','config_groups':{"
                   "'g':{'weights':{'num_bits':4}},'h':{'weights':{'num_bits':8}}}}",
                   UM_EUNSUPPORTED, "different bits");
}

static qfile gptq_file(void) {
    qfile f = {0};
    qmatrix m = qmatrix_new(16, 64, 4, 32, 1);
    q_put_gptq(&f, &m, "x", 1, true);
    qmatrix_free(&m);
    return f;
}

static qfile awq_file(void) {
    qfile f = {0};
    qmatrix m = qmatrix_new(16, 64, 4, 32, 1);
    q_put_awq(&f, &m, "x");
    qmatrix_free(&m);
    return f;
}

static qfile packed_file(void) {
    qfile f = {0};
    qmatrix m = qmatrix_new(16, 60, 4, 32, 1);
    q_put_packed(&f, &m, "x", false, false);
    qmatrix_free(&m);
    return f;
}

static qfile fp8_file(void) {
    qfile f = {0};
    qmatrix m = qmatrix_new(32, 64, 0, 32, 1);
    q_put_fp8(&f, &m, "x", 32, ".weight_scale_inv", "F32");
    qmatrix_free(&m);
    return f;
}

/* A damaged file: the text `from` of its header becomes `to`. */
static const struct {
    qfile (*make)(void);
    const char *config, *from, *to, *message, *tensor;
} damages[] = {
    {gptq_file, GPTQ(""), "x.scales", "x.skales", "needs tensor x.scales", "x.qweight in model.safetensors"},
    {gptq_file, GPTQ(""), "x.qzeros", "x.kzeros", "needs tensor x.qzeros", "x.qweight in model.safetensors"},
    {gptq_file, GPTQ(",'desc_act':true"), "x.g_idx", "x.g", "needs tensor x.g_idx", "x.qweight in model.safetensors"},
    {gptq_file, GPTQ(""), "\"I32\",\"shape\":[64]", "\"F32\",\"shape\":[64]", "expected I32 [64]", "x.g_idx"},
    {gptq_file, GPTQ(""), "\"shape\":[64]", "\"shape\":[32,2]", "expected I32 [64]", "x.g_idx in model.safetensors"},
    {gptq_file, GPTQ(""), "\"I32\",\"shape\":[2,2]", "\"F32\",\"shape\":[2,2]", "expected I32 [2, 2]", "x.qzeros"},
    {gptq_file, GPTQ(""), "\"F16\",\"shape\":[2,16]", "\"I16\",\"shape\":[2,16]", "expected floats [2, 16]",
     "x.scales"},
    {gptq_file, GPTQ(""), "\"shape\":[2,16]", "\"shape\":[16,2]", "expected floats [2, 16]", "found F16 [16, 2]"},
    {gptq_file, GPTQ(""), "\"I32\",\"shape\":[8,16]", "\"F32\",\"shape\":[8,16]", "a matrix of I32", "x.qweight"},
    {gptq_file, GPTQ(""), "\"shape\":[8,16]", "\"shape\":[128]", "a matrix of I32, found I32 [128]", "x.qweight"},
    {gptq_file, GPTQ(""), "\"shape\":[8,16]", "\"shape\":[32,4]", "4 columns are not a multiple of 8", "x.qweight"},
    {gptq_file, GPTQ(""), "x.scales", "x.weight", "needs tensor x.scales", "x.qweight"},
    {gptq_file, GPTQ_8, "x", "x", "expected floats [1, 16]", "x.scales"},
    {awq_file, AWQ, "x.scales", "x.skales", "needs tensor x.scales", "x.qweight in model.safetensors"},
    {awq_file, AWQ, "x.qzeros", "x.kzeros", "needs tensor x.qzeros", "x.qweight in model.safetensors"},
    {awq_file, AWQ, "\"shape\":[64,2]", "\"shape\":[32,4]", "expected floats [1, 32]", "x.scales"},
    {awq_file, AWQ, "\"I32\",\"shape\":[2,2]", "\"I32\",\"shape\":[4]", "expected I32 [2, 2]", "x.qzeros"},
    {awq_file, GPTQ(""), "x", "x", "2 columns are not a multiple of 8", "x.qweight"},
    {packed_file, PACKED("4", ",'group_size':32"), "x.weight_shape", "x.w", "needs tensor x.weight_shape",
     "x.weight_p"},
    {packed_file, PACKED("4", ",'group_size':32"), "x.weight_scale", "x.w", "needs tensor x.weight_scale",
     "x.weight_p"},
    {packed_file, PACKED("4", ",'group_size':32"), "\"shape\":[16,8]", "\"shape\":[32,4]", "contradicts", "[16, 60]"},
    {packed_file, PACKED("8", ",'group_size':32"), "x", "x", "the shape [16, 60] contradicts", "x.weight_shape"},
    {packed_file, PACKED("4", ",'group_size':16"), "x", "x", "expected floats [16, 4]", "x.weight_scale"},
    {packed_file, PACKED("4", ",'group_size':32"), "\"I64\",\"shape\":[2]", "\"U64\",\"shape\":[2]", "I64 [2]", "U64"},
    {packed_file, PACKED("4", ",'group_size':32"), "\"I32\",\"shape\":[2,2]", "\"I32\",\"shape\":[4,1]",
     "expected I32 [2, 2]", "x.weight_zero_point"},
    {fp8_file, FP8(",'weight_block_size':[32,32]"), "x.weight_scale_inv", "x.s", "needs tensor x.weight_scale_inv",
     "x"},
    {fp8_file, FP8(",'weight_block_size':[16,32]"), "x", "x", "expected floats [2, 2]", "x.weight_scale_inv"},
    {fp8_file, FP8(""), "x", "x", "expected floats [32, 1]", "x.weight_scale_inv in model.safetensors"},
    {fp8_file, FP8(",'weight_block_size':[32,32]"), "\"F32\"", "\"I32\"", "expected floats [1, 2]", "found I32 [1, 2]"},
    {fp8_file, FP8(",'weight_block_size':[32,32]"), "[32,64]", "[2048]", "a matrix of F8_E4M3", "x.weight"},
};

static void damaged_files_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < UM_LEN(damages); i++) {
        qfile f = damages[i].make();
        q_edit(&f, damages[i].from, damages[i].to);
        refuses(&f, damages[i].config, UM_EMODEL, damages[i].message, damages[i].tensor);
    }
}

static void columns_in_missing_groups_are_refused(void **state) {
    (void)state;
    static const struct {
        int group;
        const char *message;
    } cases[] = {{2, "column 63 has group 2, but there are 2 groups"}, {-1, "column 63 has group -1"}};
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        qfile f = {0};
        qmatrix m = qmatrix_new(16, 64, 4, 32, 1);
        m.group_of[63] = cases[i].group;
        q_put_gptq(&f, &m, "x", 1, true);
        refuses(&f, GPTQ(""), UM_EMODEL, cases[i].message, "x.g_idx in model.safetensors");
        q_put_packed(&f, &m, "x", true, true);
        refuses(&f, PACKED("4", ",'group_size':32"), UM_EMODEL, cases[i].message, "x.weight_g_idx");
        qmatrix_free(&m);
    }
}

static void a_shape_that_needs_more_words_is_refused(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{16, 65}, {16, 56}, {17, 60}, {16, -60}, {16, INT64_MAX}, {0, 0}};
    for (size_t i = 0; i < UM_LEN(shapes); i++) {
        qfile f = packed_file();
        memcpy(f.data.data + 16 * 8 * 4, shapes[i], sizeof shapes[i]);
        refuses(&f, PACKED("4", ",'group_size':32"), UM_EMODEL, "contradicts", "x.weight_shape in model.safetensors");
    }
}

static void a_weight_that_is_also_plain_is_refused(void **state) {
    (void)state;
    const float x[4] = {0};
    qfile f = gptq_file();
    q_put_floats(&f, "x.weight", 2, 2, x);
    refuses(&f, GPTQ(""), UM_EMODEL, "tensor x.weight is stored twice", "model.safetensors");
}

static void empty_matrices_are_refused(void **state) {
    (void)state;
    qfile f = {0};
    q_begin(&f, "x", ".qweight", "I32", 0, 8, 0);
    refuses(&f, GPTQ(""), UM_EMODEL, "found I32 [0, 8]", "x.qweight in model.safetensors");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gptq_subtracts_a_zero_that_is_stored_minus_one),
        cmocka_unit_test(the_largest_zero_of_gptq_does_not_wrap_around),
        cmocka_unit_test(columns_may_be_in_groups_in_any_order),
        cmocka_unit_test(awq_permutes_eight_rows),
        cmocka_unit_test(pack_quantized_has_symmetric_integers_or_zeros),
        cmocka_unit_test(fp8_has_a_scale_for_each_block),
        cmocka_unit_test(the_scales_of_whole_blocks_can_be_read),
        cmocka_unit_test(the_scales_of_blocks_of_a_stack_can_be_read),
        cmocka_unit_test(other_scales_can_not_be_read_as_those_of_blocks),
        cmocka_unit_test(fp8_has_a_scale_for_each_row_or_for_the_matrix),
        cmocka_unit_test(stacks_of_fp8_have_scales_for_each_matrix),
        cmocka_unit_test(stacks_with_other_scales_are_refused),
        cmocka_unit_test(every_8_bit_float_is_converted),
        cmocka_unit_test(a_model_runs_like_its_floats),
        cmocka_unit_test(a_packed_model_runs_like_its_source),
        cmocka_unit_test(plain_weights_stay_as_they_are),
        cmocka_unit_test(tensors_of_a_matrix_may_be_in_several_shards),
        cmocka_unit_test(unknown_methods_are_refused_with_the_known_ones),
        cmocka_unit_test(wrong_fields_are_refused),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(columns_in_missing_groups_are_refused),
        cmocka_unit_test(a_shape_that_needs_more_words_is_refused),
        cmocka_unit_test(a_weight_that_is_also_plain_is_refused),
        cmocka_unit_test(empty_matrices_are_refused),
    };
    return cmocka_run_group_tests_name("model_quantized", tests, NULL, NULL);
}
