/* Prepares the matrices of an adapter for the forward pass: adds them to a weight, or loads them separately. */
#include "model/loader.h"
#include "ops/cpu/cpu.h"

enum { PARTS_MAX = 3 };

/* The matrices of an adapter for a linear layer that is stacked from n parts (for example queries, keys and values). */
typedef struct stack {
    const um_lora_pair *pair[PARTS_MAX]; /* NULL: the adapter does not change this part */
    const um_tensor_part *part;
    int n;
    int64_t cols;
    int32_t rank, rows; /* totals of all parts */
} stack;

static stack stack_of(const um_lora *a, const um_tensor_part *p, int n, int64_t cols, int32_t layer) {
    stack s = {.part = p, .n = n, .cols = cols};
    for (int i = 0; i < n; i++) {
        char path[UM_LORA_PATH_SIZE];
        um_loader_module(path, p[i].pattern, layer, 0);
        s.pair[i] = um_lora_find(a, path);
        if (s.pair[i]) s.rank += (int32_t)s.pair[i]->a->dim[0];
        s.rows += (int32_t)p[i].rows;
    }
    return s;
}

/* ---- The first walk ---------------------------------------------------------------------------------------------- */

/* Collects the last word of a path, for the message about a target that no layer has. */
static void add_leaf(um_loader *l, const char *path) {
    const char *leaf = strrchr(path, '.');
    leaf = leaf ? leaf + 1 : path;
    const size_t n = strlen(leaf);
    for (const char *p = l->leaves.data, *comma; p; p = comma ? comma + 2 : NULL) {
        if (!strncmp(p, leaf, n) && (p[n] == ',' || !p[n])) return;
        comma = strstr(p, ", ");
    }
    um_buf_printf(&l->leaves, "%s%s", l->leaves.len ? ", " : "", leaf);
}

um_status um_check_tensor_part(um_loader *l, const um_tensor_part *p, int64_t cols, int32_t layer, int32_t expert,
                               um_module_kind kind, um_err *err) {
    char path[UM_LORA_PATH_SIZE];
    um_loader_module(path, p->pattern, layer, expert);
    const um_module module = {path, kind, p->rows, cols};
    if (l->m->n_adapters) add_leaf(l, path);
    for (int32_t i = 0; i < l->m->n_adapters; i++) {
        um_lora *a = &l->m->lora[i];
        um_status s = um_lora_check(a, &module, l->m->merged, err);
        if (s) return s;
        const um_lora_pair *found = um_lora_find(a, path);
        if (found) l->m->rank_max = UM_MAX(l->m->rank_max, (int32_t)found->a->dim[0]);
    }
    return UM_OK;
}

/* Adds up the memory of the stacks of all adapters, and finds the largest rank. */
static void count_memory(um_loader *l, const um_tensor_part *p, int n, int64_t cols, int32_t layer) {
    struct um_model *m = l->m;
    for (int32_t i = 0; i < m->n_adapters; i++) {
        const stack s = stack_of(&m->lora[i], p, n, cols, layer);
        const size_t bytes = (size_t)s.rank * ((size_t)cols + (size_t)s.rows) * um_dtype_size(m->dtype);
        l->bytes += bytes;
        m->adapter_bytes += bytes;
        m->rank_max = UM_MAX(m->rank_max, s.rank);
    }
}

/* ---- Beside a weight --------------------------------------------------------------------------------------------- */

/* Loads the matrices A, one below the other, as one matrix. */
static um_status pack_a(const um_loader *l, const stack *s, um_weight **out, um_dtype type, const um_cut *cut,
                        um_err *err) {
    um_tensor part[PARTS_MAX];
    int n = 0;
    for (int i = 0; i < s->n; i++)
        if (s->pair[i]) part[n++] = *s->pair[i]->a;
    return um_loader_weight(l->m, out, part, n, type, cut, err);
}

/* Writes s * B of one part to `out`, which points into a matrix with `stride` columns. */
static void place_b(const um_lora_pair *p, const float *b, float *out, int32_t stride) {
    const size_t rows = (size_t)p->b->dim[0], rank = (size_t)p->b->dim[1];
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < rank; k++) out[i * (size_t)stride + k] = p->scale * b[i * rank + k];
}

/* Loads the scaled matrices B as one block-diagonal matrix. */
static um_status pack_b(const um_loader *l, const stack *s, um_weight **out, um_dtype type, const um_cut *cut,
                        um_err *err) {
    const size_t bytes = um_mul(um_mul((size_t)s->rows, (size_t)s->rank), sizeof(float));
    void *all = NULL, *one = NULL;
    um_status st = um_try_alloc(&all, bytes, 64, "an adapter", err);
    if (!st) st = um_try_alloc(&one, bytes, 64, "an adapter", err);
    size_t row = 0, column = 0;
    for (int i = 0; i < s->n && !st; row += (size_t)s->part[i++].rows) {
        const um_lora_pair *p = s->pair[i];
        if (!p) continue;
        um_tensor_to_f32(p->b, one);
        place_b(p, one, (float *)all + row * (size_t)s->rank + column, s->rank);
        column += (size_t)p->b->dim[1];
    }
    const um_tensor t = {.name = "lora_B", .type = UM_F32, .n_dims = 2, .dim = {s->rows, s->rank}, .data = all};
    if (!st) st = um_loader_weight(l->m, out, &t, 1, type, cut, err);
    um_free(all);
    um_free(one);
    return st;
}

/* In a group of ranks, B is cut by rows as the layer's matrix is, or A by columns, and the other one is whole. */
static um_status pack(um_loader *l, um_low_rank *out, const stack *s, um_dtype type, const um_cut *cut, um_err *err) {
    struct um_model *m = l->m;
    const um_cut *none = NULL, *for_a = cut && cut->kind == UM_CUT_COLUMNS ? cut : none,
                 *for_b = cut && cut->kind == UM_CUT_ROWS ? cut : none;
    *out = (um_low_rank){.in = (int32_t)s->cols, .rank = s->rank, .out = s->rows};
    um_status st = pack_a(l, s, &out->a, type, for_a, err);
    if (!st) st = pack_b(l, s, &out->b, type, for_b, err);
    if (!st) m->weight_bytes += m->backend->weight_bytes(out->a) + m->backend->weight_bytes(out->b);
    return st;
}

um_status um_load_low_rank(um_loader *l, um_low_rank **out, const um_tensor_part *p, int n, int64_t cols, int32_t layer,
                           um_module_kind kind, um_dtype type, const um_cut *cut, um_err *err) {
    struct um_model *m = l->m;
    um_status st = UM_OK;
    assert(n <= PARTS_MAX);
    for (int i = 0; i < n && l->check && !st; i++) st = um_check_tensor_part(l, &p[i], cols, layer, 0, kind, err);
    if (st || m->merged) return st;
    if (l->check) {
        count_memory(l, p, n, cols, layer);
        return UM_OK;
    }
    for (int32_t i = 0; i < m->n_adapters && !st; i++) {
        const stack s = stack_of(&m->lora[i], p, n, cols, layer);
        if (!s.rank) continue;
        if (!*out) *out = UM_NEW_ARRAY(um_low_rank, (size_t)m->net.n_adapters);
        st = pack(l, &(*out)[m->lora[i].slot], &s, type, cut, err);
    }
    return st;
}

/* ---- Into a weight ----------------------------------------------------------------------------------------------- */

/* Computes s * B [rows, r] and the transpose of A [cols, r] in fp32. */
static void convert_pair(const um_lora_pair *p, float *b, float *a, float *transposed) {
    const size_t r = (size_t)p->a->dim[0], cols = (size_t)p->a->dim[1], n = um_tensor_elements(p->b);
    um_tensor_to_f32(p->b, b);
    for (size_t i = 0; i < n; i++) b[i] *= p->scale;
    um_tensor_to_f32(p->a, a);
    for (size_t i = 0; i < r; i++)
        for (size_t k = 0; k < cols; k++) transposed[k * r + i] = a[i * cols + k];
}

enum { MERGED_ROWS = 512 }; /* rows that one product computes */

/* Opens the device that computes merged weights. */
static um_status open_merger(um_loader *l, um_err *err) {
    const um_dev_config config = {
        .dtype = UM_F32, .max_tokens = MERGED_ROWS, .max_in = UM_LORA_RANK_MAX, .max_heads = 1, .max_head_dim = 1};
    return l->merger ? UM_OK : um_ops_cpu.open(&l->merger, &config, err);
}

void um_merge_end(um_loader *l) {
    if (l->merger) um_ops_cpu.close(l->merger);
}

/* Computes w [rows, cols] += b a, as a linear layer with the weight a^T and the rows of b as tokens, which is faster
 * than a loop here. */
static um_status add_product(um_loader *l, float *w, const float *b, const um_tensor *transposed, int64_t rows,
                             um_err *err) {
    const size_t cols = (size_t)transposed->dim[0], r = (size_t)transposed->dim[1];
    um_weight *a = NULL;
    um_status s = open_merger(l, err);
    if (!s) s = um_ops_cpu.weight(l->merger, &a, transposed, 1, UM_F32, err);
    if (s) return s;
    for (size_t i = 0, n; i < (size_t)rows; i += n) {
        n = UM_MIN((size_t)rows - i, MERGED_ROWS);
        um_ops_cpu.linear(l->merger, a, NULL, b + i * r, (int32_t)n, true, w + i * cols);
    }
    um_ops_cpu.weight_free(l->merger, a);
    return UM_OK;
}

um_status um_merge(um_loader *l, um_tensor *out, const um_tensor *base, const um_lora_pair *p, um_err *err) {
    const size_t n_a = um_tensor_elements(p->a), n_b = um_tensor_elements(p->b);
    void *w = NULL, *b = NULL, *a = NULL, *transposed = NULL;
    um_status s = um_try_alloc(&w, um_mul(um_tensor_elements(base), sizeof(float)), 64, "a merged weight", err);
    if (!s) s = um_try_alloc(&b, um_mul(n_b, sizeof(float)), 64, "an adapter", err);
    if (!s) s = um_try_alloc(&a, um_mul(n_a, sizeof(float)), 64, "an adapter", err);
    if (!s) s = um_try_alloc(&transposed, um_mul(n_a, sizeof(float)), 64, "an adapter", err);
    if (!s) {
        const um_tensor t = {
            .name = "lora_A", .type = UM_F32, .n_dims = 2, .dim = {p->a->dim[1], p->a->dim[0]}, .data = transposed};
        um_tensor_to_f32(base, w);
        convert_pair(p, b, a, transposed);
        s = add_product(l, w, b, &t, base->dim[0], err);
    }
    *out = *base;
    out->type = UM_F32;
    out->format = NULL;
    out->extra = NULL;
    out->data = w;
    out->stays = false;
    um_free(b);
    um_free(a);
    um_free(transposed);
    return s;
}

void um_merge_free(um_tensor *t) { um_free((void *)t->data); }
