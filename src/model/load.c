/* Weights: from named tensors of a checkpoint to the backend's matrices.
 *
 * Each tensor is asked for by the name that the family gives and with the shape that the configuration implies; a
 * difference is an error that names both. Matrices that read the same input (queries, keys, values; gate and up) are
 * stacked into one, so that the forward pass reads each activation once.
 *
 * The list of tensors is walked twice by the same code. The first time nothing is loaded: every name and shape is
 * checked, so that a mistake shows at once and not after minutes, and what nobody asked for is counted in one warning.
 * The second time the backend takes its copies. */
#include "model/config.h"

typedef struct loader {
    struct um_model *m;
    const um_safetensors *s;
    bool check;   /* the first walk: look only */
    bool *used;   /* [count of s] marked by the first walk */
    size_t bytes; /* that the weights need at least, summed by the first walk */
    size_t strip; /* bytes of a leading "model." that this checkpoint leaves out */
} loader;

enum { NAME_MAX_BYTES = 160 };

/* ---- One tensor -------------------------------------------------------------------------------------------------- */

static size_t count_strip(const um_arch *a, const um_safetensors *s) {
    char name[NAME_MAX_BYTES];
    const char *embed = a->family->names->embed;
    snprintf(name, sizeof name, "%s.weight", embed);
    if (um_safetensors_find(s, name) || strncmp(embed, "model.", 6)) return 0;
    return um_safetensors_find(s, name + 6) ? 6 : 0;
}

/* The name in this checkpoint: pattern with the layer's number, then ".weight" or ".bias". */
static void tensor_name(const loader *l, char out[NAME_MAX_BYTES], const char *pattern, int32_t layer,
                        const char *suffix) {
    const char *hole = strstr(pattern, "%d");
    size_t skip = strncmp(pattern, "model.", 6) ? 0 : l->strip;
    if (!hole) snprintf(out, NAME_MAX_BYTES, "%s%s", pattern + skip, suffix);
    else
        snprintf(out, NAME_MAX_BYTES, "%.*s%d%s%s", (int)(hole - pattern - (ptrdiff_t)skip), pattern + skip, layer,
                 hole + 2, suffix);
}

static const um_tensor *find(const loader *l, const char *pattern, int32_t layer, const char *suffix) {
    char name[NAME_MAX_BYTES];
    tensor_name(l, name, pattern, layer, suffix);
    return um_safetensors_find(l->s, name);
}

static void print_shape(char *out, size_t size, const int64_t *dim, int32_t n) {
    size_t at = (size_t)snprintf(out, size, "[");
    for (int32_t i = 0; i < UM_MIN(n, 4) && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%lld", i ? ", " : "", (long long)dim[i]);
    if (at < size) snprintf(out + at, size - at, n > 4 ? ", ...]" : "]");
}

static bool same_shape(const um_tensor *t, const int64_t *dim, int32_t n) {
    return t->n_dims == n && t->dim[0] == dim[0] && (n == 1 || t->dim[1] == dim[1]);
}

/* A tensor that must be there: a matrix [rows, cols], or a vector [rows] where cols is 0. */
static um_status get(loader *l, const char *pattern, int32_t layer, const char *suffix, int64_t rows, int64_t cols,
                     const um_tensor **out, um_err *err) {
    char name[NAME_MAX_BYTES], want[64], found[128];
    int64_t dim[2] = {rows, cols};
    int32_t n = cols ? 2 : 1;
    tensor_name(l, name, pattern, layer, suffix);
    print_shape(want, sizeof want, dim, n);
    const um_tensor *t = um_safetensors_find(l->s, name);
    if (!t)
        return um_fail(err, UM_EMODEL, "tensor %s: expected %s from config.json, but no file of %s holds it", name,
                       want, l->m->path);
    if (!same_shape(t, dim, n)) {
        print_shape(found, sizeof found, t->dim, t->n_dims);
        return um_fail(err, UM_EMODEL, "tensor %s: expected %s from config.json, found %s in %s", name, want, found,
                       um_safetensors_file(l->s, t));
    }
    if (t->type == UM_DTYPE_OTHER)
        return um_fail(err, UM_EUNSUPPORTED, "tensor %s in %s has type %s; unmask reads BF16, F16 and F32", name,
                       um_safetensors_file(l->s, t), um_safetensors_dtype(t));
    if (l->check) {
        l->used[um_safetensors_index(l->s, t)] = true;
        int64_t n = rows * (cols ? cols : 1);
        l->m->n_params += n;
        l->bytes += (size_t)n * UM_MIN(um_dtype_size(t->type), um_dtype_size(l->m->dtype));
    }
    *out = t;
    return UM_OK;
}

/* Vectors (norms, biases) are small and kept in fp32; data of a file may lie at any address. */
static void widen(const um_tensor *t, float *out) {
    const uint8_t *p = t->data;
    for (int64_t i = 0; i < t->dim[0]; i++) {
        uint16_t half;
        if (t->type == UM_F32) {
            memcpy(&out[i], p + 4 * i, 4);
            continue;
        }
        memcpy(&half, p + 2 * i, 2);
        out[i] = t->type == UM_BF16 ? um_bf16_to_f32(half) : um_f16_to_f32(half);
    }
}

/* ---- Vectors and matrices ---------------------------------------------------------------------------------------- */

typedef struct part {
    const char *pattern;
    int64_t rows;
} part;

/* The vectors `p` [n] one behind the other. */
static um_status load_vector(loader *l, float **out, const part *p, int n, int32_t layer, const char *suffix,
                             um_err *err) {
    const um_tensor *t[3];
    size_t total = 0;
    for (int i = 0; i < n; i++) {
        um_status s = get(l, p[i].pattern, layer, suffix, p[i].rows, 0, &t[i], err);
        if (s) return s;
        total += (size_t)p[i].rows;
    }
    if (l->check) return UM_OK;
    void *v = NULL;
    um_status s = l->m->ops->buffer(l->m->dev, &v, um_mul(total, sizeof(float)), "norms and biases", err);
    if (s) return s;
    *out = v;
    l->m->weight_bytes += total * sizeof(float);
    for (int i = 0; i < n; i++) {
        widen(t[i], v);
        v = (float *)v + p[i].rows;
    }
    return UM_OK;
}

static um_status load_norm(loader *l, float **out, const char *pattern, int32_t layer, int32_t n, um_err *err) {
    part p = {pattern, n};
    return load_vector(l, out, &p, 1, layer, ".weight", err);
}

/* The matrices `p` [n] stacked: all read an input of `cols`. */
static um_status load_matrix(loader *l, um_weight **out, const part *p, int n, int64_t cols, int32_t layer,
                             um_err *err) {
    um_tensor t[3];
    for (int i = 0; i < n; i++) {
        const um_tensor *found;
        um_status s = get(l, p[i].pattern, layer, ".weight", p[i].rows, cols, &found, err);
        if (s) return s;
        t[i] = *found;
    }
    if (l->check) return UM_OK;
    um_status s = l->m->ops->weight(l->m->dev, out, t, n, l->m->dtype, err);
    for (int i = 0; i < n; i++) um_safetensors_release(l->s, &t[i]);
    if (!s) l->m->weight_bytes += l->m->ops->weight_bytes(*out);
    return s;
}

/* ---- Layers ------------------------------------------------------------------------------------------------------ */

static um_status load_attention(loader *l, um_layer *y, int32_t i, um_err *err) {
    const um_arch *a = &l->m->arch;
    const um_tensor_names *n = a->family->names;
    int64_t q = (int64_t)a->n_heads * a->head_dim, kv = (int64_t)a->n_kv_heads * a->head_dim;
    const part qkv[] = {{n->q, q}, {n->k, kv}, {n->v, kv}}, o[] = {{n->o, a->hidden}};
    um_status s = load_norm(l, &y->attn_norm, n->attn_norm, i, a->hidden, err);
    if (!s) s = load_matrix(l, &y->qkv, qkv, 3, a->hidden, i, err);
    if (!s && a->qkv_bias) s = load_vector(l, &y->qkv_bias, qkv, 3, i, ".bias", err);
    if (!s && a->qk_norm) s = load_norm(l, &y->q_norm, n->q_norm, i, a->head_dim, err);
    if (!s && a->qk_norm) s = load_norm(l, &y->k_norm, n->k_norm, i, a->head_dim, err);
    if (!s) s = load_matrix(l, &y->o, o, 1, q, i, err);
    if (!s && a->o_bias) s = load_vector(l, &y->o_bias, o, 1, i, ".bias", err);
    return s;
}

static um_status load_ffn(loader *l, um_layer *y, int32_t i, um_err *err) {
    const um_arch *a = &l->m->arch;
    const um_tensor_names *n = a->family->names;
    const part gate_up[] = {{n->gate, a->n_ff}, {n->up, a->n_ff}}, down[] = {{n->down, a->hidden}};
    um_status s = load_norm(l, &y->ffn_norm, n->ffn_norm, i, a->hidden, err);
    if (!s) s = load_matrix(l, &y->gate_up, gate_up, 2, a->hidden, i, err);
    if (!s && a->mlp_bias) s = load_vector(l, &y->gate_up_bias, gate_up, 2, i, ".bias", err);
    if (!s) s = load_matrix(l, &y->down, down, 1, a->n_ff, i, err);
    if (!s && a->mlp_bias) s = load_vector(l, &y->down_bias, down, 1, i, ".bias", err);
    return s;
}

static um_status load_head(loader *l, um_err *err) {
    struct um_model *m = l->m;
    const um_tensor_names *n = m->arch.family->names;
    const part embed = {n->embed, m->arch.vocab}, head = {n->head, m->arch.vocab};
    um_status s = load_matrix(l, &m->embed, &embed, 1, m->arch.hidden, 0, err);
    if (!s) s = load_norm(l, &m->final_norm, n->final_norm, 0, m->arch.hidden, err);
    if (s) return s;
    const um_tensor *stored = find(l, n->head, 0, ".weight");
    if (!m->arch.tied) return load_matrix(l, &m->head, &head, 1, m->arch.hidden, 0, err);
    if (stored && l->check) l->used[um_safetensors_index(l->s, stored)] = true; /* a copy that some tools write */
    m->head = m->embed;
    return UM_OK;
}

static um_status walk(loader *l, um_err *err) {
    um_layer none = {0}; /* the first walk leaves it as it is */
    um_status s = load_head(l, err);
    for (int32_t i = 0; i < l->m->arch.n_layers && !s; i++) {
        um_layer *y = l->check ? &none : &l->m->layer[i];
        s = load_attention(l, y, i, err);
        if (!s) s = load_ffn(l, y, i, err);
    }
    return s;
}

/* ---- What the tensors decide ------------------------------------------------------------------------------------- */

static bool in_any_layer(const loader *l, const char *pattern, const char *suffix) {
    for (int32_t i = 0; i < l->m->arch.n_layers; i++)
        if (find(l, pattern, i, suffix)) return true;
    return false;
}

/* An optional part is there when any layer stores it; then every layer must. */
static void decide(const loader *l, const char *what, const char *pattern, const char *suffix, bool *flag) {
    bool found = in_any_layer(l, pattern, suffix);
    if (found != *flag)
        um_warn("%s: the configuration says %s %s, the tensors say %s; the tensors decide", l->m->path,
                *flag ? "with" : "without", what, found ? "with" : "without");
    *flag = found;
}

static void decide_all(const loader *l) {
    um_arch *a = &l->m->arch;
    const um_tensor_names *n = a->family->names;
    decide(l, "norms of queries and keys", n->q_norm, ".weight", &a->qk_norm);
    decide(l, "biases of queries, keys and values", n->q, ".bias", &a->qkv_bias);
    decide(l, "a bias of the attention output", n->o, ".bias", &a->o_bias);
    decide(l, "biases of the feed-forward layers", n->gate, ".bias", &a->mlp_bias);
    if (!a->tied_stated) a->tied = !find(l, n->head, 0, ".weight");
}

static void warn_unused(const loader *l) {
    size_t n = 0, first = 0;
    for (size_t i = um_safetensors_count(l->s); i-- > 0;) {
        if (l->used[i]) continue;
        n++;
        first = i;
    }
    if (n)
        um_warn("%s: %zu tensors are not part of the %s architecture and are not used, the first is %s", l->m->path, n,
                l->m->arch.family->name, um_safetensors_at(l->s, first)->name);
}

/* ---- Doors ------------------------------------------------------------------------------------------------------- */

um_status um_model_stored_dtype(const um_arch *a, const um_safetensors *s, um_dtype *out, um_err *err) {
    char name[NAME_MAX_BYTES];
    size_t strip = count_strip(a, s);
    snprintf(name, sizeof name, "%s.weight", a->family->names->embed + strip);
    const um_tensor *t = um_safetensors_find(s, name);
    if (!t)
        return um_fail(err, UM_EMODEL, "tensor %s: expected [%d, %d] from config.json, but no file holds it", name,
                       a->vocab, a->hidden);
    *out = t->type == UM_BF16 ? UM_BF16 : UM_F32;
    return UM_OK;
}

/* The system kills a process that takes more memory than there is; a message is kinder. A backend may keep a weight in
 * its stored type or in the type of its products, so the smaller one counts. */
static um_status check_memory(const loader *l, um_err *err) {
    size_t there = um_memory_available();
    if (!there || l->bytes <= there) return UM_OK;
    return um_fail(err, UM_ENOMEM, "the weights of %s need at least %zu bytes as %s, %zu are there: %s", l->m->path,
                   l->bytes, um_dtype_name(l->m->dtype), there,
                   l->m->dtype == UM_F32 ? "use --dtype bfloat16 or a smaller model" : "use a smaller model");
}

um_status um_model_check(struct um_model *m, const um_safetensors *s, um_err *err) {
    loader l = {.m = m, .s = s, .check = true, .strip = count_strip(&m->arch, s)};
    l.used = UM_NEW_ARRAY(bool, um_safetensors_count(s) + 1);
    decide_all(&l);
    um_status st = walk(&l, err);
    if (!st) st = check_memory(&l, err);
    if (!st) warn_unused(&l);
    um_free(l.used);
    return st;
}

um_status um_model_load(struct um_model *m, const um_safetensors *s, um_err *err) {
    loader l = {.m = m, .s = s, .strip = count_strip(&m->arch, s)};
    m->layer = UM_NEW_ARRAY(um_layer, (size_t)m->arch.n_layers);
    return walk(&l, err);
}

static void unload_layer(const struct um_model *m, um_layer *y) {
    um_weight *w[] = {y->qkv, y->o, y->gate_up, y->down};
    float *v[] = {y->attn_norm, y->ffn_norm, y->q_norm,       y->k_norm,
                  y->qkv_bias,  y->o_bias,   y->gate_up_bias, y->down_bias};
    for (size_t i = 0; i < UM_LEN(w); i++)
        if (w[i]) m->ops->weight_free(m->dev, w[i]);
    for (size_t i = 0; i < UM_LEN(v); i++)
        if (v[i]) m->ops->buffer_free(m->dev, v[i]);
}

void um_model_unload(struct um_model *m) {
    for (int32_t i = 0; m->layer && i < m->arch.n_layers; i++) unload_layer(m, &m->layer[i]);
    if (m->head && m->head != m->embed) m->ops->weight_free(m->dev, m->head);
    if (m->embed) m->ops->weight_free(m->dev, m->embed);
    if (m->final_norm) m->ops->buffer_free(m->dev, m->final_norm);
    um_free(m->layer);
    m->layer = NULL;
    m->head = m->embed = NULL;
    m->final_norm = NULL;
}
