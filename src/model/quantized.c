/* Joins the tensors of quantised matrices: finds the main tensors, and has the layout join each with its companions. */
#include "model/quantized.h"

#include <jansson.h>

#include "model/model.h"

/* ---- Companions -------------------------------------------------------------------------------------------------- */

const um_tensor *um_joining_find(const um_joining *j, const char *ending) {
    um_buf name = {0};
    um_buf_append(&name, j->module.p, j->module.n);
    um_buf_puts(&name, ending);
    const um_tensor *t = um_store_find(j->s, name.data);
    um_buf_free(&name);
    if (t) um_store_drop(j->s, t);
    return t;
}

um_status um_joining_need(const um_joining *j, const char *ending, const um_tensor **out, um_err *err) {
    *out = um_joining_find(j, ending);
    if (*out) return UM_OK;
    return um_fail(err, UM_EMODEL, "tensor %s in %s needs tensor %.*s%s, which no file holds", j->main->name,
                   um_store_file(j->s, j->main), (int)UM_MIN(j->module.n, (size_t)128), j->module.p, ending);
}

um_status um_joining_check(const um_joining *j, const um_tensor *t, const char *type, int64_t rows, int64_t cols,
                           um_err *err) {
    char wanted[UM_SHAPE_TEXT], found[UM_SHAPE_TEXT];
    const int64_t want[] = {rows, cols};
    const int32_t n = cols ? 2 : 1;
    const bool has_type = type ? !strcmp(um_store_type(t), type) : t->type != UM_DTYPE_OTHER;
    if (has_type && t->n_dims == n && t->dim[0] == rows && (n == 1 || t->dim[1] == cols)) return UM_OK;
    um_shape_print(wanted, want, n);
    um_shape_print(found, t->dim, t->n_dims);
    return um_fail(err, UM_EMODEL, "tensor %s in %s: expected %s %s beside %s, found %s %s", t->name,
                   um_store_file(j->s, t), type ? type : "floats", wanted, j->main->name, um_store_type(t), found);
}

um_status um_joining_check_main(const um_joining *j, um_err *err) {
    const um_tensor *t = j->main;
    char found[UM_SHAPE_TEXT];
    if (!strcmp(um_store_type(t), j->q->layout->type) && t->n_dims == 2 && t->dim[0] && t->dim[1]) return UM_OK;
    um_shape_print(found, t->dim, t->n_dims);
    return um_fail(err, UM_EMODEL, "tensor %s in %s: expected a matrix of %s, found %s %s", t->name,
                   um_store_file(j->s, t), j->q->layout->type, um_store_type(t), found);
}

float um_quantized_number(um_dtype type, const void *data, size_t i) {
    const char *p = data;
    uint16_t half;
    float wide;
    if (type == UM_F32) {
        memcpy(&wide, p + i * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&half, p + i * sizeof half, sizeof half);
    return type == UM_BF16 ? um_bf16_to_f32(half) : um_f16_to_f32(half);
}

/* The inner loop has a fixed length, so that it becomes vector instructions. */
void um_quantized_fill(float *to, int64_t n, float v) {
    enum { STEP = 16 };
    int64_t i = 0;
    for (; i + STEP <= n; i += STEP)
        for (int k = 0; k < STEP; k++) to[i + k] = v;
    for (; i < n; i++) to[i] = v;
}

/* ---- Joining ----------------------------------------------------------------------------------------------------- */

/* Returns whether t is a main tensor of the layout. Stores the name of its module. */
static bool is_main(const um_quantized_layout *layout, const um_tensor *t, um_str *module) {
    const size_t n = strlen(t->name), ending = layout->ending ? strlen(layout->ending) : 0;
    *module = (um_str){t->name, n - UM_MIN(n, ending)};
    if (!layout->ending) return !strcmp(um_store_type(t), layout->type);
    return n > ending && !strcmp(t->name + n - ending, layout->ending);
}

/* Joins the matrix of a main tensor. Its name is that of the module and ".weight"; the name of a main tensor that is
 * identified by its type stays. */
static um_status join(um_tensor *out, const um_joining *j, um_err *err) {
    const um_quantized_layout *layout = j->q->layout;
    um_buf name = {0};
    um_status st = layout->join(j, out, err);
    if (st) return st;
    um_buf_append(&name, j->module.p, j->module.n);
    um_buf_puts(&name, layout->ending ? ".weight" : "");
    out->name = um_arena_strndup(um_store_arena(j->s), name.data, name.len);
    um_buf_free(&name);
    return UM_OK;
}

/* Tensors are replaced after all are joined, because the store finds no names while it is not sorted. */
um_status um_quantized_join(um_store *s, const json_t *config, const char *where, um_err *err) {
    um_quantized q;
    um_status st = um_quantized_read(&q, config, where, err);
    if (st || !q.layout) return st;
    const size_t n = um_store_count(s);
    um_tensor *joined = UM_NEW_ARRAY(um_tensor, n + 1);
    for (size_t i = 0; i < n && !st; i++) {
        um_joining j = {.s = s, .q = &q, .main = um_store_at(s, i)};
        if (is_main(q.layout, j.main, &j.module)) st = join(&joined[i], &j, err);
    }
    for (size_t i = 0; i < n && !st; i++)
        if (joined[i].name) um_store_replace(s, um_store_at(s, i), &joined[i], joined[i].format->name);
    um_free(joined);
    return st ? st : um_store_sort(s, err);
}

um_status um_store_join_quantized(um_store *s, const char *dir, um_err *err) {
    char *path = um_path_join(dir, "config.json");
    json_t *config = NULL;
    um_status st = um_file_exists(path) ? um_json_load(&config, path, err) : UM_OK;
    if (!st && config) st = um_quantized_join(s, config, path, err);
    json_decref(config);
    um_free(path);
    return st;
}
