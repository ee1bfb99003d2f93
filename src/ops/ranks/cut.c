/* Cuts matrices for the ranks of a group. A slice is a view: the backend that packs it reads only its elements. */
#include "ops/quantize.h"
#include "ops/ranks.h"

um_cut_range um_cut_range_of(um_cut_part part, int32_t rank, int32_t n_ranks) {
    const int64_t units = UM_CEIL_DIV(part.n, part.unit), first = units * rank / n_ranks,
                  end = units < n_ranks ? first + 1 : units * (rank + 1) / n_ranks;
    return (um_cut_range){first * part.unit, UM_MIN(end * part.unit, part.n)};
}

int32_t um_cut_unit(int64_t width, int32_t n_ranks, int32_t grid) {
    const int32_t unit[] = {grid, UM_QUANT_GROUP};
    if (grid <= 1 && width % n_ranks == 0) return 1;
    for (size_t i = 0; i < UM_LEN(unit); i++)
        if (unit[i] > 1 && width % unit[i] == 0 && width / unit[i] >= n_ranks) return unit[i];
    return 1;
}

static void read_slice(const um_tensor *t, int64_t row, int64_t k, int64_t n, float *out) {
    const um_cut_slice *s = t->extra;
    um_tensor_read(&s->base, s->row + row, s->column + k, n, out);
}

/* Scales of blocks belong to the slice if it begins and ends with blocks. */
static bool read_slice_scales(const um_tensor *t, float *out) {
    const um_cut_slice *s = t->extra;
    const um_format *f = um_tensor_format(&s->base);
    const int64_t B = UM_FORMAT_BLOCK, all = UM_CEIL_DIV(s->base.dim[1], B), own = UM_CEIL_DIV(t->dim[1], B),
                  end[] = {s->row + t->dim[0], s->column + t->dim[1]};
    for (int i = 0; i < 2; i++)
        if (end[i] % B && end[i] != s->base.dim[i]) return false;
    if (!f->read_scales || s->row % B || s->column % B || !f->read_scales(&s->base, NULL)) return false;
    if (!out) return true;
    float *scales = um_alloc(um_mul((size_t)(UM_CEIL_DIV(s->base.dim[0], B) * all), sizeof *scales));
    f->read_scales(&s->base, scales);
    for (int64_t i = 0; i < UM_CEIL_DIV(t->dim[0], B); i++)
        memcpy(out + i * own, scales + (s->row / B + i) * all + s->column / B, (size_t)own * sizeof *out);
    um_free(scales);
    return true;
}

/* A slice has no bytes of its own. This is the size of its values. */
static size_t slice_bytes(int64_t rows, int64_t in) { return um_mul(um_mul((size_t)rows, (size_t)in), sizeof(float)); }

/* Copies some columns of t, whose groups of elements follow each other along a row. */
static um_status copy_columns(um_cut_slice *s, const um_tensor *t, const um_format *f, um_err *err) {
    const size_t all = (size_t)t->dim[1] / (size_t)f->elements * (size_t)f->bytes,
                 own = (size_t)UM_CEIL_DIV(s->t.dim[1], f->elements) * (size_t)f->bytes,
                 first = (size_t)(s->column / f->elements) * (size_t)f->bytes;
    um_status st = um_try_alloc_unset(&s->copy, um_mul((size_t)s->t.dim[0], own), 64, t->name, err);
    for (int64_t i = 0; !st && i < s->t.dim[0]; i++)
        memcpy((char *)s->copy + (size_t)i * own, (const char *)t->data + (size_t)(s->row + i) * all + first, own);
    s->t.data = s->copy;
    s->t.stays = false;
    return st;
}

/* Describes the elements [rows, columns) of t. In most formats the groups of a row follow each other, and so do the
 * rows, so such a slice is a tensor of the same format: whole rows stay where they are, and columns are copied. */
static um_status set_slice(um_cut_slice *s, const um_tensor *t, um_cut_range rows, um_cut_range columns, um_err *err) {
    const um_format *f = um_tensor_format(t);
    *s = (um_cut_slice){.t = *t, .base = *t, .row = rows.start, .column = columns.start};
    s->t.dim[0] = rows.end - rows.start;
    s->t.dim[1] = columns.end - columns.start;
    if (s->t.dim[0] == t->dim[0] && s->t.dim[1] == t->dim[1]) return UM_OK;
    if (!f->matrix_bytes && s->t.dim[1] < t->dim[1]) return copy_columns(s, t, f, err);
    if (!f->matrix_bytes) {
        const size_t row = (size_t)t->dim[1] / (size_t)f->elements * (size_t)f->bytes;
        s->t.data = (const char *)t->data + (size_t)rows.start * row;
        return UM_OK;
    }
    s->format = (um_format){.name = f->name,
                            .elements = f->elements,
                            .product = f->product,
                            .read = read_slice,
                            .matrix_bytes = slice_bytes,
                            .read_scales = read_slice_scales};
    s->t.type = UM_DTYPE_OTHER;
    s->t.format = &s->format;
    s->t.extra = s;
    s->t.stays = false;
    return UM_OK;
}

/* Appends the numbers of ranks that cut `part` at multiples of `grid`. */
static void print_working(um_cut_part part, int64_t grid, char *out, size_t size) {
    size_t used = 0;
    out[0] = '\0';
    const bool is_width = part.unit == 1;
    for (int32_t n = 1; n <= UM_RANKS_MAX && used < size; n++) {
        if (is_width) part.unit = um_cut_unit(part.n, n, (int32_t)grid);
        bool works = UM_CEIL_DIV(part.n, part.unit) % n == 0 || (is_width && part.unit > 1);
        for (int32_t r = 0; r < n; r++) works &= um_cut_range_of(part, r, n).start % grid == 0;
        if (works) used += (size_t)snprintf(out + used, size - used, "%s%d", used ? ", " : "", n);
    }
}

/* Checks that columns are cut between groups of elements that have a common scale, in the file and in products. */
static um_status check_grid(const um_cut *cut, const um_tensor *t, um_dtype type, um_cut_range at, int32_t n_ranks,
                            um_err *err) {
    const int64_t stored = um_tensor_format(t)->elements, kept = um_is_quantized(type) ? UM_QUANT_GROUP : 1,
                  grid = UM_MAX(stored, kept);
    char working[64];
    if (at.start % grid == 0 && (at.end % grid == 0 || at.end == cut->part[0].n)) return UM_OK;
    print_working(cut->part[0], grid, working, sizeof working);
    return um_fail_param(err, UM_EUNSUPPORTED, "tensor_parallel_size",
                         "%d ranks can't divide the %lld columns of %s, because %lld neighbours have a common scale "
                         "(%s); numbers that divide them: %s",
                         n_ranks, (long long)cut->part[0].n, t->name, (long long)grid,
                         stored >= kept ? um_tensor_format(t)->name : um_dtype_name(type), working);
}

/* A list of slices that is being made. */
typedef struct list {
    um_cut_slice *out;
    int *n;
} list;

static um_status add_slice(list l, const um_tensor *t, um_cut_range rows, um_cut_range columns, um_err *err) {
    assert(*l.n < UM_CUT_SLICES_MAX);
    return set_slice(&l.out[(*l.n)++], t, rows, columns, err);
}

/* Appends the slices that the rows [rows) of all matrices have in the matrices t [n]. */
static um_status add_rows(list l, const um_tensor *t, int n, um_cut_range rows, um_err *err) {
    um_status s = UM_OK;
    for (int64_t first = 0; n > 0 && !s; first += t->dim[0], t++, n--) {
        const um_cut_range in = {UM_MAX(rows.start - first, 0), UM_MIN(rows.end - first, t->dim[0])};
        if (in.start < in.end) s = add_slice(l, t, in, (um_cut_range){0, t->dim[1]}, err);
    }
    return s;
}

static um_status add_columns(list l, const um_cut *cut, const um_tensor *t, um_dtype type, int32_t rank,
                             int32_t n_ranks, um_err *err) {
    const um_cut_range at = um_cut_range_of(cut->part[0], rank, n_ranks);
    assert(t->dim[1] == cut->part[0].n);
    um_status s = check_grid(cut, t, type, at, n_ranks, err);
    return s ? s : add_slice(l, t, (um_cut_range){0, t->dim[0]}, at, err);
}

um_status um_cut_slices(const um_cut *cut, const um_tensor *t, int n, um_dtype type, int32_t rank, int32_t n_ranks,
                        um_cut_slice *out, int *n_out, um_err *err) {
    const list l = {out, n_out};
    um_status s = UM_OK;
    *n_out = 0;
    for (int i = 0; i < n && cut->kind == UM_CUT_COLUMNS && !s; i++)
        s = add_columns(l, cut, &t[i], type, rank, n_ranks, err);
    int64_t first = 0;
    for (int32_t i = 0; i < cut->n_parts && cut->kind == UM_CUT_ROWS && !s; first += cut->part[i++].n) {
        const um_cut_range at = um_cut_range_of(cut->part[i], rank, n_ranks);
        s = add_rows(l, t, n, (um_cut_range){first + at.start, first + at.end}, err);
    }
    const bool is_whole = cut->kind == UM_CUT_NONE || (cut->kind == UM_CUT_OWNED && rank == cut->owner);
    for (int i = 0; i < n && is_whole && !s; i++)
        s = add_slice(l, &t[i], (um_cut_range){0, t[i].dim[0]}, (um_cut_range){0, t[i].dim[1]}, err);
    if (s) um_cut_release(out, n_out);
    return s;
}

void um_cut_release(um_cut_slice *slice, int *n) {
    for (int i = 0; i < *n; i++) um_free(slice[i].copy);
    *n = 0;
}
