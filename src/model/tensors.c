/* Finds and loads the tensors of a checkpoint. The family determines the name of each tensor, and config.json
 * determines its shape. When a tensor has another shape, the error names both shapes. */
#include "model/loader.h"
#include "ops/quantize.h"

enum { NAME_MAX_BYTES = UM_LORA_PATH_SIZE, PARTS_MAX = 3 };

/* ---- Names ------------------------------------------------------------------------------------------------------- */

size_t um_loader_strip(const um_tensor_names *names, const um_store *s) {
    char name[NAME_MAX_BYTES];
    snprintf(name, sizeof name, "%s.weight", names->embed);
    if (um_store_find(s, name) || strncmp(names->embed, "model.", 6)) return 0;
    return um_store_find(s, name + 6) ? 6 : 0;
}

/* Writes the pattern with the numbers of layer and expert in place of its %d, followed by the suffix. */
static void format_name(char out[NAME_MAX_BYTES], const char *pattern, int32_t layer, int32_t expert,
                        const char *suffix) {
    const int32_t number[] = {layer, expert};
    size_t at = 0, hole = 0;
    for (const char *next; (next = strstr(pattern, "%d")) && hole < UM_LEN(number) && at < NAME_MAX_BYTES;
         pattern = next + 2)
        at += (size_t)snprintf(out + at, NAME_MAX_BYTES - at, "%.*s%d", (int)(next - pattern), pattern, number[hole++]);
    assert(at < NAME_MAX_BYTES);
    snprintf(out + at, NAME_MAX_BYTES - at, "%s%s", pattern, suffix);
}

/* Writes the name of a tensor as this checkpoint spells it, with or without the prefix "model.". */
static void tensor_name(const um_loader *l, char out[NAME_MAX_BYTES], const char *pattern, int32_t layer,
                        int32_t expert, const char *suffix) {
    if (!strncmp(pattern, "model.", 6)) pattern += l->strip;
    format_name(out, pattern, layer, expert, suffix);
}

void um_loader_module(char out[UM_LORA_PATH_SIZE], const char *pattern, int32_t layer, int32_t expert) {
    static const char suffix[] = ".weight";
    format_name(out, pattern, layer, expert, "");
    char *end = out + strlen(out) - (sizeof suffix - 1);
    if (end > out && !strcmp(end, suffix)) *end = '\0';
}

static const um_tensor *find(const um_loader *l, const char *pattern, int32_t layer, int32_t expert,
                             const char *suffix) {
    char name[NAME_MAX_BYTES];
    if (!l->s) return NULL;
    tensor_name(l, name, pattern, layer, expert, suffix);
    return um_store_find(l->s, name);
}

const um_tensor *um_loader_find(const um_loader *l, const char *pattern, int32_t layer, const char *suffix) {
    return find(l, pattern, layer, 0, suffix);
}

const um_tensor *um_loader_find_expert(const um_loader *l, const char *pattern, int32_t layer, int32_t expert) {
    return find(l, pattern, layer, expert, "");
}

/* ---- One tensor -------------------------------------------------------------------------------------------------- */

typedef struct shape {
    int64_t dim[3];
    int32_t n;
} shape;

static bool has_shape(const um_tensor *t, const shape *want) {
    if (t->n_dims != want->n) return false;
    for (int32_t i = 0; i < want->n; i++)
        if (t->dim[i] != want->dim[i]) return false;
    return true;
}

/* Counts a tensor in the first walk. The tensor of a stack of experts is found once for each expert, and counted once.
 */
static void count(um_loader *l, const um_tensor *t) {
    bool *used = &l->used[um_store_index(l->s, t)];
    size_t n = um_tensor_elements(t);
    if (*used) return;
    *used = true;
    l->m->n_params += (int64_t)n;
    l->stored += um_tensor_bytes(t);
    if (!t->stays || !l->m->has_own_types)
        l->bytes += UM_MIN(um_tensor_bytes(t), um_weights_bytes((int64_t)n, l->m->weight_type));
}

static um_status check_shape(const char *name, const um_tensor *t, const shape *want, const char *file, um_err *err) {
    char wanted[UM_SHAPE_TEXT], found[UM_SHAPE_TEXT];
    if (has_shape(t, want)) return UM_OK;
    um_shape_print(wanted, want->dim, want->n);
    um_shape_print(found, t->dim, t->n_dims);
    return um_fail(err, UM_EMODEL, "tensor %s: expected %s from config.json, found %s in %s", name, wanted, found,
                   file);
}

/* Replaces *t by the tensor of a merged adapter, if the adapter has a replacement for it. */
static um_status replace(um_loader *l, const char *name, const shape *want, um_tensor *t, um_err *err) {
    um_lora_full *full = l->m->merged ? um_lora_find_full(l->m->lora, name) : NULL;
    if (!full) return UM_OK;
    um_status s = check_shape(name, full->tensor, want, UM_LORA_FILE, err);
    full->used = true;
    *t = *full->tensor;
    t->name = um_store_find(l->s, name)->name;
    return s;
}

static um_status list(const um_loader *l, const char *name, const shape *want, um_err *err) {
    um_tensor t = {.name = name, .n_dims = want->n};
    memcpy(t.dim, want->dim, sizeof want->dim);
    return l->list(l->list_arg, &t, err);
}

/* Returns a tensor that must exist with the given shape. A walk without a checkpoint leaves *out as it is. */
static um_status get(um_loader *l, const char *name, const shape *want, um_tensor *out, um_err *err) {
    if (l->list) return list(l, name, want, err);
    const um_tensor *t = um_store_find(l->s, name);
    if (!t) {
        char wanted[UM_SHAPE_TEXT];
        um_shape_print(wanted, want->dim, want->n);
        return um_fail(err, UM_EMODEL, "tensor %s: expected %s from config.json, but no file of %s holds it", name,
                       wanted, l->m->path);
    }
    um_status s = check_shape(name, t, want, um_store_file(l->s, t), err);
    if (s) return s;
    if (!um_tensor_format(t))
        return um_fail(err, UM_EUNSUPPORTED, "tensor %s in %s has type %s, which unmask can't read", name,
                       um_store_file(l->s, t), um_store_type(t));
    if (l->check) count(l, t);
    *out = *t;
    return replace(l, name, want, out, err);
}

/* Counts NaN and infinite values in t, a tensor of the checkpoint or some of its rows. */
static void check_finite(um_loader *l, const um_tensor *t) {
    const um_tensor *whole = um_store_find(l->s, t->name);
    const char *from = t->data, *begin = whole->data;
    size_t first;
    /* um_lora_check_values checks an adapter's tensor, and a packed folder was checked when it was written. */
    if (!l->scan || t->stays || from < begin || from >= begin + um_tensor_bytes(whole)) return;
    size_t n = um_count_not_finite(l->scan, t, &first);
    if (!n) return;
    bool *bad = &l->bad[um_store_index(l->s, whole)];
    if (!*bad) l->n_bad_tensors++;
    *bad = true;
    l->n_bad_values += n;
    if (l->first_bad) return;
    l->first_bad = whole;
    l->first_index = first + (size_t)(from - begin) / um_tensor_bytes(t) * um_tensor_elements(t);
}

/* ---- Vectors ----------------------------------------------------------------------------------------------------- */

/* Vectors (norms, biases) are small and kept in fp32. */
um_status um_load_vector(um_loader *l, um_vector **out, const um_tensor_part *p, int n, int32_t layer,
                         const char *suffix, const um_cut *cut, um_err *err) {
    static const char what[] = "norms and biases";
    const um_backend *b = l->m->backend;
    um_tensor t[PARTS_MAX];
    size_t total = 0;
    if (l->only_adapters) return UM_OK;
    for (int i = 0; i < n; i++) {
        char name[NAME_MAX_BYTES];
        const shape want = {{p[i].rows}, 1};
        tensor_name(l, name, p[i].pattern, layer, 0, suffix);
        um_status s = get(l, name, &want, &t[i], err);
        if (s) return s;
        total += (size_t)p[i].rows;
    }
    for (int i = 0; i < n && !l->check; i++) check_finite(l, &t[i]);
    if (l->sink && l->first_bad) return um_loader_fail_bad(l, err);
    if (l->sink) return l->sink(l->sink_arg, t, n, NULL, UM_DTYPE_OTHER, err);
    if (l->check) return UM_OK;
    l->m->weight_bytes += total * sizeof(float);
    um_status s = cut && b->vector_cut ? b->vector_cut(l->m->device, out, t, n, cut, what, err)
                                       : b->vector(l->m->device, out, t, n, what, err);
    return s ? s : um_loader_advance(l, t, n, err);
}

/* ---- Matrices ---------------------------------------------------------------------------------------------------- */

/* Returns the matrices that a merged adapter adds to the matrix, or NULL. */
static const um_lora_pair *find_pair(const um_loader *l, const um_tensor *t) {
    char path[NAME_MAX_BYTES];
    if (!l->m->merged) return NULL;
    um_loader_module(path, t->name, 0, 0);
    return um_lora_find(l->m->lora, path);
}

/* Returns the type of products with the matrices t [n]: the type of all weights or, when the checkpoint decides, the
 * type that all their formats can use. */
static um_dtype product_type(const um_loader *l, const um_tensor *t, int n) {
    um_dtype type = UM_Q4;
    if (!l->m->has_own_types) return l->m->weight_type;
    for (int i = 0; i < n; i++) {
        const um_dtype suits = um_tensor_format(&t[i])->product;
        if (!um_is_quantized(suits)) return l->m->dtype;
        if (suits == UM_Q8) type = UM_Q8;
    }
    return type;
}

/* Counts a loaded matrix. */
static void count_weight(struct um_model *m, const um_weight *w) {
    const um_backend *b = m->backend;
    m->weight_bytes += b->weight_bytes(w);
    if (b->weight_is_mapped && b->weight_is_mapped(w)) m->mapped_bytes += b->weight_bytes(w);
}

um_status um_loader_weight(const struct um_model *m, um_weight **out, const um_tensor *t, int n, um_dtype type,
                           const um_cut *cut, um_err *err) {
    const um_backend *b = m->backend;
    if (cut && b->weight_cut) return b->weight_cut(m->device, out, t, n, type, cut, err);
    return b->weight(m->device, out, t, n, type, err);
}

/* Hands the matrices t [n], one below the other, to the receiver of the walk or to the backend, which copies them. */
static um_status take(um_loader *l, um_weight **out, const um_tensor *t, int n, um_dtype type, const um_cut *cut,
                      um_err *err) {
    if (l->sink) return l->sink(l->sink_arg, t, n, l->joined, type, err);
    um_status s = um_loader_weight(l->m, out, t, n, type, cut, err);
    if (!s) count_weight(l->m, *out);
    return s;
}

/* Returns whether a rank in another process has a matrix alone. */
static bool is_elsewhere(const um_loader *l, const um_cut *cut) {
    return cut && cut->kind == UM_CUT_OWNED && l->m->place.n > 1 && cut->owner != l->m->place.rank;
}

/* Passes on the matrices t [n] after merging the adapter. Those of other processes are not read. */
static um_status pack(um_loader *l, um_weight **out, const um_tensor *t, int n, um_use use, const um_cut *cut,
                      um_err *err) {
    um_dtype type = use == UM_USE_EXACT || l->list ? UM_F32 : product_type(l, t, n);
    if (use == UM_USE_TABLE && type == UM_F8) type = l->m->dtype;
    um_tensor part[PARTS_MAX] = {0};
    const um_lora_pair *pair[PARTS_MAX] = {0};
    um_status s = UM_OK;
    if (l->check) return l->sink ? take(l, out, t, n, type, cut, err) : UM_OK;
    if (!l->sink && is_elsewhere(l, cut)) return um_loader_advance(l, t, n, err);
    for (int i = 0; i < n && !s; i++) {
        check_finite(l, &t[i]);
        part[i] = t[i];
        pair[i] = find_pair(l, &t[i]);
        if (pair[i]) s = um_merge(l, &part[i], &t[i], pair[i], err);
    }
    if (!s && l->sink && l->first_bad) s = um_loader_fail_bad(l, err);
    if (!s) s = take(l, out, part, n, type, cut, err);
    for (int i = 0; i < n; i++) um_store_release(l->s, &t[i]);
    for (int i = 0; i < n; i++)
        if (pair[i]) um_merge_free(&part[i]);
    return s ? s : um_loader_advance(l, t, n, err);
}

um_status um_load_matrix(um_loader *l, um_weight **out, const um_tensor_part *p, int n, int64_t cols, int32_t layer,
                         um_use use, const um_cut *cut, um_err *err) {
    um_tensor t[PARTS_MAX];
    if (l->only_adapters) return UM_OK;
    for (int i = 0; i < n; i++) {
        char name[NAME_MAX_BYTES];
        const shape want = {{p[i].rows, cols}, 2};
        tensor_name(l, name, p[i].pattern, layer, 0, ".weight");
        um_status s = get(l, name, &want, &t[i], err);
        if (s) return s;
    }
    return pack(l, out, t, n, use, cut, err);
}

um_status um_load_expert(um_loader *l, um_weight **out, const um_tensor_part *p, int n, const char *joined,
                         int64_t cols, int32_t layer, int32_t expert, bool stacked, const um_cut *cut, um_err *err) {
    um_tensor t[PARTS_MAX];
    char joined_name[NAME_MAX_BYTES];
    for (int i = 0; i < n && l->only_adapters && !stacked; i++) {
        um_status s = um_check_tensor_part(l, &p[i], cols, layer, expert, UM_MODULE_EXPERT, err);
        if (s) return s;
    }
    if (l->only_adapters) return UM_OK;
    for (int i = 0; i < n; i++) {
        char name[NAME_MAX_BYTES];
        const shape one = {{p[i].rows, cols}, 2}, all = {{l->m->arch.route.n_experts, p[i].rows, cols}, 3};
        tensor_name(l, name, p[i].pattern, layer, expert, "");
        um_status s = get(l, name, stacked ? &all : &one, &t[i], err);
        if (!s && l->check && !stacked) s = um_check_tensor_part(l, &p[i], cols, layer, expert, UM_MODULE_EXPERT, err);
        if (s) return s;
        if (stacked && !l->check) t[i] = um_tensor_slice(&t[i], expert);
    }
    if (joined) tensor_name(l, joined_name, joined, layer, expert, "");
    l->joined = joined ? joined_name : NULL;
    um_status s = pack(l, out, t, n, UM_USE_PRODUCT, cut, err);
    l->joined = NULL;
    return s;
}
