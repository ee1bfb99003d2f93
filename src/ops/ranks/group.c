/* The backend of a group of ranks: devices, weights and vectors. */
#include "ops/ranks/group.h"
#include "ops/ranks/link.h"

static const um_cut not_cut = {.kind = UM_CUT_NONE};

static um_status group_count(const um_backend *self, int32_t *n, um_err *err) {
    const um_backend *inner = ((const um_group_backend *)self)->inner;
    return inner->count(inner, n, err);
}

static void group_close(um_device *d) {
    if (!d || d->is_stuck) return;
    um_link_close(d->link);
    for (int32_t r = 0; r < (d->shares ? 1 : d->n); r++) d->inner->close(d->member[r]);
    um_pool_free(d->loaders);
    um_free(d);
}

static bool group_is_stuck(const um_device *d) { return d->is_stuck; }

/* The threads of a pass are divided among the ranks. */
static int threads_of_rank(int threads, int32_t n) { return UM_MAX((threads ? threads : um_cpu_count()) / n, 1); }

/* Joins the ranks in other processes, whose devices must be of the same kind. */
static um_status join_others(um_device *d, const um_group_backend *b, um_err *err) {
    um_device_info info;
    um_buf facts = {0};
    d->inner->info(d->member[0], &info);
    um_buf_printf(&facts, "%sdevice: %s (%s)\n", b->launch->facts, d->inner->name, info.name);
    um_status s = um_link_open(&d->link, b->launch, b->n, facts.data, b->timeout, err);
    um_buf_free(&facts);
    d->unites = d->inner->unite != NULL;
    return s || !d->unites ? s : um_group_unite(d, err);
}

/* Returns the number of the device of member r. */
static int32_t number_of(const um_dev_config *c, int32_t r) { return c->rank_number ? c->rank_number[r] : c->number; }

/* Checks that two members can be ranks of one group. Kernels are chosen by the kind of the device, and all ranks must
 * compute the same residual stream. */
static um_status connect(const um_device *d, const um_dev_config *c, int32_t a, int32_t b, um_err *err) {
    const um_backend *inner = d->inner;
    const int32_t number[2] = {number_of(c, a), number_of(c, b)};
    um_device_info info[2];
    bool can[2] = {true, true};
    inner->info(d->member[a], &info[0]);
    inner->info(d->member[b], &info[1]);
    if (strcmp(info[0].name, info[1].name))
        return um_fail_param(
            err, UM_EUNSUPPORTED, "device",
            "%s:%d is %s and %s:%d is %s; the ranks of --tensor-parallel-size need devices of one kind", inner->name,
            number[0], info[0].name, inner->name, number[1], info[1].name);
    um_status s = inner->reach ? inner->reach(d->member[a], d->member[b], &can[0], err) : UM_OK;
    if (!s && inner->reach) s = inner->reach(d->member[b], d->member[a], &can[1], err);
    if (s || (can[0] && can[1])) return s;
    return um_fail_param(
        err, UM_EUNSUPPORTED, "device",
        "%s:%d can't read the memory of %s:%d, which the ranks of --tensor-parallel-size must; start a "
        "process for each device instead (--nnodes), which needs no such access",
        inner->name, number[can[0]], inner->name, number[!can[0]]);
}

static um_status group_open(um_device **out, const um_backend *self, const um_dev_config *c, um_err *err) {
    const um_group_backend *b = (const um_group_backend *)self;
    um_device *d = UM_NEW(um_device);
    um_dev_config own = *c;
    um_status s = UM_OK;
    *d = (um_device){.inner = b->inner,
                     .n = b->launch ? 1 : b->n,
                     .first = b->launch ? b->launch->rank : 0,
                     .all = b->n,
                     .timeout = b->timeout,
                     .max_tokens = c->max_tokens,
                     .shares = um_backend_is_host(b->inner)};
    own.rank_number = NULL;
    if (d->shares) own.threads = threads_of_rank(c->threads, d->n);
    for (int32_t r = 0; r < d->n && !s; r++) {
        own.number = number_of(c, r);
        if (r == 0 || !d->shares) s = d->inner->open(&d->member[r], d->inner, &own, err);
        else d->member[r] = d->member[0];
    }
    for (int32_t r = 1; r < d->n && !d->shares && !s; r++)
        for (int32_t k = 0; k < r && !s; k++) s = connect(d, c, k, r, err);
    if (!s && !d->shares && d->n > 1) s = um_pool_new(&d->loaders, d->n, err);
    if (!s && b->launch) s = join_others(d, b, err);
    if (s) {
        group_close(d);
        d = NULL;
    }
    *out = d;
    return s;
}

/* All ranks need about the same amount of memory (widths may differ by a group), so the device with
 * the least decides. Devices of other processes have told their memory when the group was opened. */
static void group_info(const um_device *d, um_device_info *out) {
    um_device_info one;
    char name[40];
    d->inner->info(d->member[0], out);
    for (int32_t r = 1; r < d->n; r++) {
        d->inner->info(d->member[r], &one);
        out->memory = UM_MIN(out->memory, one.memory);
        out->there = UM_MIN(out->there, one.there);
    }
    if (d->least_memory) out->memory = UM_MIN(out->memory, d->least_memory);
    out->there -= UM_MIN(out->there, d->more_free);
    out->memory *= (size_t)d->n;
    out->there *= (size_t)d->n;
    out->threads *= d->n;
    snprintf(name, sizeof name, "%.39s", out->name);
    snprintf(out->name, sizeof out->name, "%d x %s", d->all, name);
}

/* The ranks read and compute at the same time, so their rates are added. */
static um_status group_limits(um_device *d, um_device_limits *out, um_err *err) {
    um_status s = UM_OK;
    *out = (um_device_limits){0};
    for (int32_t r = 0; r < d->n && !s; r++) {
        um_device_limits one;
        s = d->inner->limits(d->member[r], &one, err);
        if (s) break;
        out->read_bytes += one.read_bytes;
        out->operations += one.operations;
    }
    out->read_bytes *= d->all / d->n; /* devices of other processes are of the same kind */
    out->operations *= d->all / d->n;
    return s;
}

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

/* Returns whether member r of w is the same matrix as that of rank 0. */
static bool is_same(const um_weight *w, int32_t r) { return r > 0 && w->member[r] == w->member[0]; }

static void group_weight_free(um_device *d, um_weight *w) {
    if (!w || d->is_stuck) return;
    for (int32_t r = d->n; r-- > 0;)
        if (w->member[r] && !is_same(w, r)) d->inner->weight_free(d->member[r], w->member[r]);
    um_free(w);
}

static void set_shape(um_weight *w, int32_t r, const um_cut_slice *slice, int n) {
    w->in[r] = (int32_t)slice[0].t.dim[1];
    for (int i = 0; i < n; i++) w->rows[r] += (int32_t)slice[i].t.dim[0];
}

static um_status take_slices(um_device *d, um_weight *w, int32_t r, const um_cut_slice *slice, int n, um_dtype type,
                             um_err *err) {
    um_tensor part[UM_CUT_SLICES_MAX];
    for (int i = 0; i < n; i++) part[i] = slice[i].t;
    set_shape(w, r, slice, n);
    return d->inner->weight(d->member[r], &w->member[r], part, n, type, err);
}

/* A matrix that the members take their slices of. */
typedef struct loading {
    um_device *d;
    um_weight *w;
    const um_tensor *part;
    int n_parts;
    um_dtype type;
    const um_cut *cut;
    um_status status[UM_RANKS_MAX];
    um_err err[UM_RANKS_MAX];
} loading;

/* Loads the slices of member r. */
static void load_member(void *arg, int r, int thread) {
    loading *l = (loading *)arg;
    um_device *d = l->d;
    um_cut_slice slice[UM_CUT_SLICES_MAX];
    int n = 0;
    (void)thread;
    l->status[r] = um_cut_slices(l->cut, l->part, l->n_parts, l->type, d->first + r, d->all, slice, &n, &l->err[r]);
    if (!l->status[r] && n) l->status[r] = take_slices(d, l->w, r, slice, n, l->type, &l->err[r]);
    um_cut_release(slice, &n);
}

static um_status group_weight_cut(um_device *d, um_weight **out, const um_tensor *part, int n_parts, um_dtype type,
                                  const um_cut *cut, um_err *err) {
    const bool is_shared = d->shares && cut->kind == UM_CUT_NONE;
    um_weight *w = UM_NEW(um_weight);
    loading l = {d, w, part, n_parts, type, cut, {UM_OK}, {{0}}};
    um_status s = UM_OK;
    w->d = d;
    if (d->loaders) um_pool_run(d->loaders, load_member, &l, d->n);
    for (int32_t r = 0; r < d->n && !s; r++) {
        if (!d->loaders && (r == 0 || !is_shared)) load_member(&l, r, 0);
        s = l.status[r];
        if (s && err) *err = l.err[r];
        if (r == 0 || !is_shared) continue;
        w->member[r] = w->member[0];
        w->rows[r] = w->rows[0];
        w->in[r] = w->in[0];
    }
    if (s) {
        group_weight_free(d, w);
        w = NULL;
    }
    *out = w;
    return s;
}

static um_status group_weight(um_device *d, um_weight **out, const um_tensor *part, int n_parts, um_dtype type,
                              um_err *err) {
    return group_weight_cut(d, out, part, n_parts, type, &not_cut, err);
}

static size_t group_weight_bytes(const um_weight *w) {
    size_t bytes = 0;
    for (int32_t r = 0; r < w->d->n; r++)
        if (w->member[r] && !is_same(w, r)) bytes += w->d->inner->weight_bytes(w->member[r]);
    return bytes;
}

static bool group_weight_is_mapped(const um_weight *w) {
    int32_t r = 0;
    while (r < w->d->n - 1 && !w->member[r]) r++; /* one rank alone may have it */
    return w->d->inner->weight_is_mapped && w->member[r] && w->d->inner->weight_is_mapped(w->member[r]);
}

/* ---- Vectors ----------------------------------------------------------------------------------------------------- */

static void group_vector_free(um_device *d, um_vector *v) {
    if (!v || d->is_stuck) return;
    for (int32_t r = d->n; r-- > 0;)
        if (v->member[r] && (r == 0 || v->member[r] != v->member[0])) d->inner->vector_free(d->member[r], v->member[r]);
    um_free(v);
}

/* Takes the elements that rank r has of the values `all`, a matrix of one column. */
static um_status take_elements(um_device *d, um_vector *v, int32_t r, const um_tensor *all, const um_cut *cut,
                               const char *what, um_err *err) {
    um_cut_slice slice[UM_CUT_SLICES_MAX];
    um_tensor part[UM_CUT_SLICES_MAX];
    int n = 0;
    um_status s = um_cut_slices(cut, all, 1, UM_F32, d->first + r, d->all, slice, &n, err);
    for (int i = 0; i < n; i++) part[i] = slice[i].t;
    if (!s && n) s = d->inner->vector(d->member[r], &v->member[r], part, n, what, err);
    um_cut_release(slice, &n);
    return s;
}

static um_status cut_elements(um_device *d, um_vector *v, const um_tensor *part, int n_parts, const um_cut *cut,
                              const char *what, um_err *err) {
    size_t n = 0, at = 0;
    void *data = NULL;
    for (int i = 0; i < n_parts; i++) n += um_tensor_elements(&part[i]);
    um_status s = um_try_alloc(&data, um_mul(n, sizeof(float)), 64, what, err);
    for (int i = 0; i < n_parts && !s; at += um_tensor_elements(&part[i++]))
        um_tensor_to_f32(&part[i], (float *)data + at);
    const um_tensor all = {.name = what, .type = UM_F32, .n_dims = 2, .dim = {(int64_t)n, 1}, .data = data};
    for (int32_t r = 0; r < d->n && !s; r++) s = take_elements(d, v, r, &all, cut, what, err);
    um_free(data);
    return s;
}

static um_status group_vector_cut(um_device *d, um_vector **out, const um_tensor *part, int n_parts, const um_cut *cut,
                                  const char *what, um_err *err) {
    um_vector *v = UM_NEW(um_vector);
    um_status s = UM_OK;
    if (cut->kind != UM_CUT_NONE) s = cut_elements(d, v, part, n_parts, cut, what, err);
    for (int32_t r = 0; r < d->n && cut->kind == UM_CUT_NONE && !s; r++) {
        if (r > 0 && d->shares) v->member[r] = v->member[0];
        else s = d->inner->vector(d->member[r], &v->member[r], part, n_parts, what, err);
    }
    if (s) {
        group_vector_free(d, v);
        v = NULL;
    }
    *out = v;
    return s;
}

static um_status group_vector(um_device *d, um_vector **out, const um_tensor *part, int n_parts, const char *what,
                              um_err *err) {
    return group_vector_cut(d, out, part, n_parts, &not_cut, what, err);
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

void um_ranks_backend_new(um_backend **out, const um_backend *inner, int32_t n, double timeout) {
    um_group_backend *b = UM_NEW(um_group_backend);
    assert(n >= 1 && n <= UM_RANKS_MAX);
    *b = (um_group_backend){.inner = inner, .n = n, .timeout = timeout};
    b->base = (um_backend){.name = inner->name,
                           .summary = inner->summary,
                           .ops = inner->ops,
                           .count = group_count,
                           .open = group_open,
                           .close = group_close,
                           .info = group_info,
                           .limits = inner->limits && !um_backend_is_host(inner) ? group_limits : NULL,
                           .weight = group_weight,
                           .weight_free = group_weight_free,
                           .weight_bytes = group_weight_bytes,
                           .weight_is_mapped = inner->weight_is_mapped ? group_weight_is_mapped : NULL,
                           .vector = group_vector,
                           .vector_free = group_vector_free,
                           .weight_cut = group_weight_cut,
                           .vector_cut = group_vector_cut,
                           .is_stuck = group_is_stuck,
                           .workspace = inner->workspace ? um_group_workspace : NULL,
                           .forward_new = um_group_forward_new,
                           .forward_free = um_group_forward_free,
                           .memory = um_group_memory,
                           .stats = inner->stats ? um_group_stats : NULL,
                           .rank_times = um_group_rank_times,
                           .warm = inner->warm ? um_group_warm : NULL,
                           .copy_page = um_group_copy_page,
                           .submit = um_group_submit,
                           .wait = um_group_wait,
                           .profile = um_group_profile};
    *out = &b->base;
}

void um_ranks_backend_launch(um_backend *b, const um_launch *launch) { ((um_group_backend *)b)->launch = launch; }

void um_ranks_backend_free(um_backend *b) { um_free(b); }
