/* Puts the tensors of a GGUF file into a store, under the names of the family. */
#include "model/gguf_model.h"
#include "model/store.h"

/* A tensor whose rows are in another order: see um_gguf_tensor_name. */
typedef struct permuted {
    um_tensor inner;
    int64_t head; /* rows of a head */
    um_format format;
} permuted;

/* Returns the place in the file of row `row` of the model. */
static int64_t place_of(const permuted *p, int64_t row) {
    const int64_t within = row % p->head, half = p->head / 2;
    return row - within + (within < half ? 2 * within : 2 * (within - half) + 1);
}

static void read_permuted(const um_tensor *t, int64_t row, int64_t k, int64_t n, float *out) {
    const permuted *p = t->extra;
    if (t->n_dims > 1) {
        um_tensor_read(&p->inner, place_of(p, row), k, n, out);
        return;
    }
    for (int64_t i = 0; i < n; i++) um_tensor_read(&p->inner, 0, place_of(p, k + i), 1, &out[i]);
}

/* Changes t so that its rows are read in the order of the model. */
static um_status permute(um_store *s, um_tensor *t, int64_t head, const char *path, um_err *err) {
    const int64_t rows = t->dim[0];
    const um_format *f = um_tensor_format(t);
    if (head < 2 || head % 2 || rows % head || (t->n_dims == 1 && f->elements != 1))
        return um_fail(err, UM_EMODEL, "%s: tensor %s: %lld rows are not whole heads of %lld", path, t->name,
                       (long long)rows, (long long)head);
    permuted *p = um_arena_alloc(um_store_arena(s), sizeof *p);
    *p = (permuted){.inner = *t, .head = head, .format = *f};
    p->format.read = read_permuted;
    p->format.to_f32 = NULL;
    t->type = UM_DTYPE_OTHER;
    t->format = &p->format;
    t->extra = p;
    return UM_OK;
}

static void set_type(um_tensor *t, uint32_t ggml_type) {
    static const struct {
        uint32_t number;
        um_dtype type;
    } numbers[] = {{0, UM_F32}, {1, UM_F16}, {30, UM_BF16}};
    t->type = UM_DTYPE_OTHER;
    t->format = um_format_gguf(ggml_type);
    for (size_t i = 0; i < UM_LEN(numbers); i++)
        if (numbers[i].number == ggml_type) t->type = numbers[i].type;
}

static um_status add_tensor(um_store *s, const um_gguf *g, const um_family *f, const um_gguf_tensor *from, int64_t head,
                            um_err *err) {
    char name[UM_GGUF_NAME_SIZE];
    bool is_permuted = false;
    if (!um_gguf_tensor_name(name, g, f, from, &is_permuted)) return UM_OK;
    um_tensor *t = um_store_add(s, name, um_format_gguf_name(from->type));
    set_type(t, from->type);
    t->n_dims = from->n_dims;
    memcpy(t->dim, from->dim, sizeof from->dim);
    t->data = from->data;
    return is_permuted && um_tensor_format(t) ? permute(s, t, head, um_gguf_path(g), err) : UM_OK;
}

um_status um_gguf_store(um_store *s, const char *path, const um_family *f, um_err *err) {
    um_gguf *g = NULL;
    um_status st = um_gguf_open(&g, path, err);
    if (st) return st;
    const int64_t head = um_gguf_head_dim(g);
    um_store_begin_file(s, path);
    for (size_t i = 0; i < um_gguf_count(g) && !st; i++) st = add_tensor(s, g, f, um_gguf_at(g, i), head, err);
    if (!st) st = um_store_sort(s, err);
    um_store_own_map(s, um_gguf_take_map(g));
    um_gguf_close(g);
    return st;
}
