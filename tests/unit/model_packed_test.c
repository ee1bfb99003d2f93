/* Packed folders: headers that are right or damaged in every field, and a written folder whose matrices are used where
 * they lie. The shell test cli/quantize runs such folders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "model/packed.h"
#include "model_zoo.h"
#include "ops/cpu/dev.h"
#include "ops/panels.h"

enum { MATRIX_BYTES = 2 * (32 * 32 + 64), VECTOR_BYTES = 4 * 4, FILE_MAX = 8192 };

/* A file in memory, aligned as a mapped one. */
typedef struct image {
    _Alignas(64) unsigned char bytes[FILE_MAX];
    size_t n;
} image;

/* Builds a file of one q8 matrix [40, 32] and one vector [4]. */
static void build(image *f, const char *metadata, const char *matrix, int header_align) {
    char header[2048];
    const int n = snprintf(header, sizeof header,
                           "{\"__metadata__\":{%s},\"m\":{%s,\"data_offsets\":[0,%d]},"
                           "\"v\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[%d,%d]}}",
                           metadata, matrix, MATRIX_BYTES, MATRIX_BYTES, MATRIX_BYTES + VECTOR_BYTES);
    const size_t padded = UM_CEIL_DIV((size_t)n + 8, (size_t)header_align) * (size_t)header_align - 8;
    memset(f->bytes, 0, sizeof f->bytes);
    for (int i = 0; i < 8; i++) f->bytes[i] = (unsigned char)(padded >> (8 * i));
    memset(f->bytes + 8, ' ', padded);
    memcpy(f->bytes + 8, header, (size_t)n);
    f->n = 8 + padded + MATRIX_BYTES + VECTOR_BYTES;
    assert_true(f->n <= FILE_MAX);
}

#define HEAD   "\"format\":\"unmask-panels\",\"version\":\"1\",\"dtype\":\"bfloat16\","
#define VECTOR "\"v\":\"numbers 000000000000002a\""
#define RIGHT  HEAD "\"m\":\"q8 40x32 0123456789abcdef\"," VECTOR
static const char right_matrix[] = "\"dtype\":\"U8\",\"shape\":[2176]";

static um_status open_image(image *f, um_store **out, um_err *err) {
    *out = um_store_new();
    return um_packed_parse(*out, f->bytes, f->n, "x/packed.safetensors", err);
}

static void a_file_is_read_as_panels_and_numbers(void **state) {
    (void)state;
    static image f;
    um_store *s;
    um_err err;
    um_dtype type = UM_F32;
    build(&f, RIGHT, right_matrix, 4096);
    assert_int_equal(open_image(&f, &s, &err), UM_OK);
    const um_tensor *m = um_store_find(s, "m"), *v = um_store_find(s, "v");
    assert_true(um_panels_type(m, &type) && type == UM_Q8 && m->stays);
    assert_int_equal(m->n_dims, 2);
    assert_int_equal(m->dim[0], 40);
    assert_int_equal(m->dim[1], 32);
    assert_true(v->type == UM_F32 && v->dim[0] == 4 && !v->stays);
    assert_true(um_store_stays(s));
    um_store_close(s);
}

static void damaged_descriptions_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *metadata, *matrix, *says;
        um_status status;
    } cases[] = {
        {VECTOR, right_matrix, "name no format", UM_EPARSE},
        {"\"format\":\"pt\",\"version\":\"1\"", right_matrix, "name no format", UM_EPARSE},
        {"\"format\":\"unmask-panels\",\"version\":\"2\"", right_matrix, "has version 2", UM_EUNSUPPORTED},
        {"\"format\":\"unmask-panels\",\"version\":\"1\"", right_matrix, "name no \"dtype\"", UM_EPARSE},
        {"\"format\":\"unmask-panels\",\"version\":\"1\",\"dtype\":\"int8\"", right_matrix, "no \"dtype\"", UM_EPARSE},
        {HEAD VECTOR, right_matrix, "do not describe tensor m", UM_EPARSE},
        {HEAD "\"m\":7," VECTOR, right_matrix, "do not describe tensor m", UM_EPARSE},
        {HEAD "\"m\":\"\"," VECTOR, right_matrix, "tensor m: its description \"\"", UM_EPARSE},
        {HEAD "\"m\":\"q9 40x32 0123456789abcdef\"," VECTOR, right_matrix, "make no sense", UM_EPARSE},
        {HEAD "\"m\":\"q8 40x32\"," VECTOR, right_matrix, "make no sense", UM_EPARSE},
        {HEAD "\"m\":\"q8 40x32 0123456789abcde\"," VECTOR, right_matrix, "make no sense", UM_EPARSE},
        {HEAD "\"m\":\"q8 40x32 0123456789ABCDEF\"," VECTOR, right_matrix, "make no sense", UM_EPARSE},
        {HEAD "\"m\":\"q8 40 0123456789abcdef\"," VECTOR, right_matrix, "make no sense", UM_EPARSE},
        {HEAD "\"m\":\"q8 -40x32 0123456789abcdef\"," VECTOR, right_matrix, "make no sense", UM_EPARSE},
        {HEAD "\"m\":\"q8 40x0 0123456789abcdef\"," VECTOR, right_matrix, "make no sense", UM_EPARSE},
        {HEAD "\"m\":\"q8 1x1x40x32 0123456789abcdef\"," VECTOR, right_matrix, "make no sense", UM_EPARSE},
        {HEAD "\"m\":\"q8 99999999999999999999x32 0123456789abcdef\"," VECTOR, right_matrix, "no sense", UM_EPARSE},
        {HEAD "\"m\":\"q8 1000000000x1000000000 0123456789abcdef\"," VECTOR, right_matrix, "no sense", UM_EPARSE},
        {HEAD "\"m\":\"q8 72x32 0123456789abcdef\"," VECTOR, right_matrix, "takes 3264 bytes, found 2176", UM_EPARSE},
        {HEAD "\"m\":\"q4 40x32 0123456789abcdef\"," VECTOR, right_matrix, "takes 1152 bytes, found 2176", UM_EPARSE},
        {RIGHT, "\"dtype\":\"U8\",\"shape\":[2,1088]", "make no sense", UM_EPARSE},
        {RIGHT, "\"dtype\":\"F16\",\"shape\":[1088]", "make no sense", UM_EPARSE},
        {HEAD "\"m\":\"numbers 0123456789abcdef\"," VECTOR, right_matrix, "make no sense", UM_EPARSE},
    };
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        static image f;
        um_store *s;
        um_err err;
        build(&f, cases[i].metadata, cases[i].matrix, 4096);
        const um_status st = open_image(&f, &s, &err);
        if (st != cases[i].status || !strstr(err.msg, cases[i].says))
            fail_msg("case %zu: status %d, message %s", i, st, st ? err.msg : "");
        assert_non_null(strstr(err.msg, "x/packed.safetensors"));
        um_store_close(s);
    }
}

static void matrices_that_are_not_aligned_are_refused(void **state) {
    (void)state;
    static image f;
    um_store *s;
    um_err err;
    build(&f, RIGHT, right_matrix, 8);
    assert_true((f.n - MATRIX_BYTES - VECTOR_BYTES) % 64 != 0);
    assert_int_equal(open_image(&f, &s, &err), UM_EPARSE);
    assert_non_null(strstr(err.msg, "tensor m does not begin at a multiple of 64 bytes"));
    um_store_close(s);
}

static void checksums_name_the_damaged_tensor(void **state) {
    (void)state;
    static image f;
    um_store *s;
    um_err err;
    um_pool *pool;
    assert_int_equal(um_pool_new(&pool, 1, &err), UM_OK);
    build(&f, RIGHT, right_matrix, 4096);
    assert_int_equal(open_image(&f, &s, &err), UM_OK);
    assert_int_equal(um_store_verify(s, pool, &err), UM_EMODEL); /* neither is the checksum of zeros */
    assert_non_null(strstr(err.msg, "x/packed.safetensors is damaged"));
    assert_non_null(strstr(err.msg, "m, v"));
    um_store_close(s);
    um_pool_free(pool);
}

/* ---- A written folder -------------------------------------------------------------------------------------------- */

static um_config config_of(const char *model) {
    um_config c;
    um_config_init(&c);
    c.model = model;
    return c;
}

static bool is_inside(const um_store *files, const um_weight *w) {
    const unsigned char *begin = NULL, *end = NULL;
    for (size_t i = 0; i < um_store_count(files); i++) {
        const um_tensor *t = um_store_at(files, i);
        const unsigned char *data = t->data;
        if (!begin || data < begin) begin = data;
        if (data + um_tensor_bytes(t) > end) end = data + um_tensor_bytes(t);
    }
    return w->is_borrowed && w->panel >= begin && w->panel < end;
}

/* The heads and layers of tiny-block are whole panels, so no matrix of it is copied. */
static void matrices_are_used_where_they_lie(void **state) {
    (void)state;
    static const um_dtype types[] = {UM_Q8, UM_Q4, UM_BF16};
    for (size_t i = 0; i < UM_LEN(types); i++) {
        char *dir = folder_new();
        um_config c = config_of("models/tiny-block");
        um_packed_report report;
        um_model *m;
        um_err err;
        if (um_packed_write(&c, dir, types[i], false, NULL, NULL, &report, &err)) fail_msg("%s", err.msg);
        c = config_of(dir);
        if (um_model_open(&m, &c, &err)) fail_msg("%s", err.msg);
        assert_non_null(m->files);
        assert_int_equal(m->weight_type, types[i]);
        assert_int_equal(m->n_params, report.n_params);
        assert_true(is_inside(m->files, m->net.embed));
        assert_in_range(m->weight_bytes - m->mapped_bytes, 1, m->weight_bytes / 8); /* vectors are copied */
        for (int32_t k = 0; k < m->net.n_layers; k++) {
            const um_layer *y = &m->net.layer[k];
            const um_weight *w[] = {y->qkv.w, y->o.w, y->gate_up.w, y->down.w};
            for (size_t n = 0; n < UM_LEN(w); n++) assert_true(is_inside(m->files, w[n]));
        }
        um_model_close(m);
        folder_free(dir);
    }
}

static float *hidden_of(zoo *z, const char *dir, bool is_packed) {
    zoo other = *z;
    if (dir) other.dir = um_strdup(dir);
    um_model *m = zoo_model(&other, "cpu");
    float *hidden = zoo_run_one(m, 10);
    for (int32_t i = 0; is_packed && i < m->net.n_layers; i++)
        for (int32_t e = 0; um_arch_is_moe(&m->arch, i) && e < m->arch.route.n_experts; e++) {
            assert_true(is_inside(m->files, m->net.layer[i].expert_gate_up[e]));
            assert_true(is_inside(m->files, m->net.layer[i].expert_down[e]));
        }
    um_model_close(m);
    if (dir) um_free(other.dir);
    return hidden;
}

/* Gate and up of an expert are one whole panel each. The checkpoint stores them in every layout. */
static void experts_are_used_where_they_lie_whatever_their_layout(void **state) {
    (void)state;
    for (size_t layout = 0; layout < 4; layout++) {
        zoo z = zoo_new(ZOO_SDAR_MOE);
        char *dir = folder_new();
        um_packed_report report;
        um_err err;
        z.layout = layout;
        zoo_write(&z);
        um_config c = config_of(z.dir);
        if (um_packed_write(&c, dir, UM_Q8, false, NULL, NULL, &report, &err)) fail_msg("%s", err.msg);
        assert_int_equal(report.n_params, um_arch_params(&z.arch));
        assert_in_range(report.bytes_in, 4 * report.n_params, 4 * report.n_params); /* fp32 */
        float *got = hidden_of(&z, dir, true);
        z.quantization = "q8";
        float *want = hidden_of(&z, NULL, false);
        assert_memory_equal(got, want, (size_t)10 * (size_t)z.arch.hidden * sizeof(float));
        um_free(got);
        um_free(want);
        folder_free(dir);
        folder_free(z.dir);
    }
}

static bool stop_in_the_middle(void *arg, int64_t done, int64_t all) {
    int *n_calls = arg;
    assert_true(done >= 0 && done < all);
    return ++*n_calls < 5;
}

static void an_interrupted_file_is_removed(void **state) {
    (void)state;
    char *dir = folder_new(), *part = um_path_join(dir, UM_PACKED_FILE ".part");
    um_config c = config_of("models/tiny-block");
    um_packed_report report;
    um_err err;
    int n_calls = 0;
    assert_int_equal(um_packed_write(&c, dir, UM_Q8, false, stop_in_the_middle, &n_calls, &report, &err), UM_ECANCELED);
    assert_int_equal(n_calls, 5);
    assert_false(um_packed_exists(dir));
    assert_false(um_file_exists(part));
    um_free(part);
    folder_free(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read_as_panels_and_numbers),
        cmocka_unit_test(damaged_descriptions_are_refused),
        cmocka_unit_test(matrices_that_are_not_aligned_are_refused),
        cmocka_unit_test(checksums_name_the_damaged_tensor),
        cmocka_unit_test(matrices_are_used_where_they_lie),
        cmocka_unit_test(experts_are_used_where_they_lie_whatever_their_layout),
        cmocka_unit_test(an_interrupted_file_is_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
