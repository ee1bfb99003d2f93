/* Tensors with two names. The models of a family may have parts that share their weights, and a file may store such
 * weights below the name of either part, or below both names. */
#include "model/config.h"

/* Stores the first name of a tensor that has its second one (um_free). Returns false for all other names, and for the
 * factors of the two modes, which are not shared. */
static bool main_name(char **out, const um_family *f, const char *name) {
    const size_t n = strlen(f->alias);
    if (strncmp(name, f->alias, n)) return false;
    const char *word = strrchr(name, '.'), *factor = f->names->scale[0] ? strrchr(f->names->scale[0], '.') : NULL;
    if (um_streq(word, factor)) return false;
    um_buf b = {0};
    um_buf_puts(&b, f->alias_of);
    um_buf_puts(&b, name + n);
    *out = um_strdup(b.data);
    um_buf_free(&b);
    return true;
}

/* Tensors are renamed after all were searched for, because the store finds no names while it is not sorted. */
um_status um_store_join_aliases(um_store *s, const um_family *f, um_err *err) {
    const size_t n = um_store_count(s);
    if (!f->alias) return UM_OK;
    char **name = UM_NEW_ARRAY(char *, n + 1);
    for (size_t i = 0; i < n; i++)
        if (main_name(&name[i], f, um_store_at(s, i)->name) && um_store_find(s, name[i])) {
            um_free(name[i]);
            name[i] = NULL;
        }
    for (size_t i = 0; i < n; i++) {
        if (!name[i]) continue;
        const um_tensor *t = um_store_at(s, i);
        um_tensor renamed = *t;
        char type[UM_STORE_TYPE_SIZE];
        snprintf(type, sizeof type, "%s", um_store_type(t));
        renamed.name = name[i];
        um_store_replace(s, t, &renamed, type);
        um_free(name[i]);
    }
    um_free(name);
    return um_store_sort(s, err);
}

/* Returns whether two tensors of the same shape have the same values. */
static bool has_equal_values(const um_tensor *a, const um_tensor *b) {
    if (a->type == b->type && a->type != UM_DTYPE_OTHER) return !memcmp(a->data, b->data, um_tensor_bytes(a));
    const int64_t in = um_tensor_in(a);
    const size_t bytes = um_mul((size_t)in, sizeof(float));
    float *x = UM_NEW_ARRAY(float, (size_t)in), *y = UM_NEW_ARRAY(float, (size_t)in);
    bool is_equal = true;
    for (int64_t row = 0; in && row < (int64_t)um_tensor_elements(a) / in && is_equal; row++) {
        um_tensor_read(a, row, 0, in, x);
        um_tensor_read(b, row, 0, in, y);
        is_equal = !memcmp(x, y, bytes);
    }
    um_free(x);
    um_free(y);
    return is_equal;
}

static bool is_copy(const um_store *s, const um_tensor *a, const um_tensor *b) {
    bool is_equal = a->n_dims == b->n_dims && um_tensor_format(b) && !memcmp(a->dim, b->dim, sizeof a->dim);
    if (is_equal) is_equal = has_equal_values(a, b);
    um_store_release(s, a);
    um_store_release(s, b);
    return is_equal;
}

um_status um_store_check_aliases(const um_store *s, const um_family *f, bool *used, um_err *err) {
    um_status st = UM_OK;
    for (size_t i = 0; i < um_store_count(s) && f->alias && !st; i++) {
        const um_tensor *b = um_store_at(s, i);
        char *name = NULL;
        if (used[i] || !main_name(&name, f, b->name)) continue;
        const um_tensor *a = um_store_find(s, name);
        um_free(name);
        if (!a || !used[um_store_index(s, a)]) continue;
        used[i] = true;
        if (!is_copy(s, a, b))
            st = um_fail(err, UM_EMODEL,
                         "tensor %s in %s differs from %s in %s; the %s architecture has one tensor for both: remove "
                         "the wrong one",
                         b->name, um_store_file(s, b), a->name, um_store_file(s, a), f->name);
    }
    return st;
}
