/* Writes packed folders (packed.h). A first walk over the model's tensors plans the file: which tensor lies where. A
 * second walk packs one matrix after the other in all threads and writes it to its place. The header is written last,
 * because it has the checksums. The file gets its name when it is complete. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "model/config.h"
#include "model/packed.h"
#include "model/packed_folder.h"
#include "ops/panels.h"
#include "ops/quantize.h"

#define PART_SUFFIX ".part"
enum { HEADER_ALIGN = 4096, CHUNK_BYTES = 32 << 20, SAMPLE_ROWS = 4 };

/* A tensor of the file. */
typedef struct planned {
    um_tensor shape; /* type, dimensions and, without its data, the format */
    bool is_matrix;
    int64_t at;             /* offset from the end of the header */
    size_t bytes, n_stored; /* size; bytes written so far */
    XXH3_state_t *hash;     /* of these bytes */
    uint64_t checksum;
} planned;

typedef struct writer {
    um_arena arena;
    planned *tensor; /* [n] in the order of the walk */
    size_t n, cap;
    um_idset index; /* name -> index of `tensor` */
    size_t bytes;   /* of all data */
    um_pool *pool;
    unsigned char *chunk; /* panels that are being written */
    size_t chunk_bytes;
    int fd;
    const char *path;
    off_t body; /* length of the header with the 8 bytes before it */
    int64_t done;
    double squares, squared_errors; /* of the sample */
    um_packed_report *report;
    um_packed_progress progress;
    void *progress_arg;
    bool is_merged; /* an adapter changes matrices */
    um_dtype dtype; /* which "auto" stands for */
} writer;

/* ---- The plan ---------------------------------------------------------------------------------------------------- */

static planned *find(const writer *w, const char *name) {
    const um_idset_entry *e = um_idset_find(&w->index, name);
    return e ? &w->tensor[e->line] : NULL;
}

static planned *add(writer *w, const um_tensor *t) {
    if (w->n == w->cap) {
        w->cap = w->cap ? 2 * w->cap : 256;
        w->tensor = um_realloc(w->tensor, um_mul(w->cap, sizeof *w->tensor));
    }
    planned *p = &w->tensor[w->n++];
    *p = (planned){.shape = *t};
    p->shape.name = um_arena_strndup(&w->arena, t->name, strlen(t->name));
    p->shape.data = p->shape.extra = NULL;
    p->shape.stays = false;
    (void)um_idset_add(&w->index, t->name, (int64_t)w->n - 1);
    return p;
}

/* Returns whether panels of `type` hold the numbers of a matrix in format f. Matrices with permuted rows have a copy of
 * their format, with the same name. */
static bool keeps_numbers(const um_format *f, um_dtype type) {
    if (type == UM_F32 || f == um_panels_format(type)) return true;
    if (type == UM_Q8) return um_streq(f->name, um_format_q8_0.name);
    return type == UM_Q4 && um_streq(f->name, um_format_q4_0.name);
}

/* Adds a name to the list unless it is there or no room is left. */
static void add_name(char *list, size_t size, const char *name) {
    const size_t n = strlen(list);
    if (!strstr(list, name) && n + strlen(name) + 3 <= size) snprintf(list + n, size - n, "%s%s", n ? ", " : "", name);
}

/* Counts the matrix p with the parts t [n], and whether one of them is rounded for the second time. */
static void count_matrix(const writer *w, const planned *p, const um_tensor *t, int n) {
    um_packed_report *r = w->report;
    um_dtype type = UM_F32;
    bool again = false;
    (void)um_panels_type(&p->shape, &type);
    for (int i = 0; i < n; i++) {
        const um_format *f = um_tensor_format(&t[i]);
        if (!f || !um_is_quantized(f->product) || keeps_numbers(f, type)) continue;
        add_name(r->again, sizeof r->again, f->name);
        again = true;
    }
    r->n_matrices++;
    r->n_again += again;
}

/* Makes p a matrix of panels for products of `type` with the parts t [n]. */
static void plan_panels(const writer *w, planned *p, const um_tensor *t, int n, um_dtype type) {
    p->is_matrix = true;
    p->shape.format = um_panels_format(w->is_merged ? type : um_panels_choose(type, t, n));
    p->shape.type = UM_DTYPE_OTHER;
}

/* Adds one tensor with the rows of the stacks t [n] to the plan. */
static void plan_joined(writer *w, const um_tensor *t, int n, const char *name, um_dtype type) {
    um_tensor one = t[0];
    if (find(w, name)) return; /* the next expert */
    one.name = name;
    for (int i = 1; i < n; i++) one.dim[1] += t[i].dim[1];
    for (int i = 0; i < n; i++) w->report->bytes_in += (int64_t)um_tensor_bytes(&t[i]);
    planned *p = add(w, &one);
    plan_panels(w, p, t, n, type);
    count_matrix(w, p, t, n);
    p->bytes = um_tensor_bytes(&p->shape);
}

/* Adds the tensors of a matrix or a vector to the plan: see um_parts_fn. */
static um_status plan_parts(void *arg, const um_tensor *t, int n, const char *joined, um_dtype type, um_err *err) {
    writer *w = (writer *)arg;
    (void)err;
    if (joined) {
        plan_joined(w, t, n, joined, type);
        return UM_OK;
    }
    for (int i = 0; i < n; i++) {
        if (find(w, t[i].name)) continue; /* the next matrix of a stack */
        planned *p = add(w, &t[i]);
        if (type != UM_DTYPE_OTHER) {
            plan_panels(w, p, t, n, type);
            count_matrix(w, p, &t[i], 1);
        } else if (t[i].type == UM_DTYPE_OTHER) {
            p->shape.format = NULL;
            p->shape.type = UM_F32;
        }
        p->bytes = um_tensor_bytes(&p->shape);
        w->report->bytes_in += (int64_t)um_tensor_bytes(&t[i]);
    }
    return UM_OK;
}

/* Assigns places: matrices in the order of the walk, then vectors, whose sizes are no multiples of the alignment. */
static void place(writer *w) {
    for (int matrices = 1; matrices >= 0; matrices--)
        for (size_t i = 0; i < w->n; i++) {
            planned *p = &w->tensor[i];
            if (p->is_matrix != (matrices == 1)) continue;
            p->at = (int64_t)w->bytes;
            w->bytes += p->bytes;
            assert(!p->is_matrix || p->bytes % UM_PACKED_ALIGN == 0);
        }
}

/* ---- The header -------------------------------------------------------------------------------------------------- */

static void put_description(const planned *p, um_buf *out) {
    um_dtype type = UM_F32;
    um_buf_clear(out);
    if (!p->is_matrix) um_buf_puts(out, UM_PACKED_NUMBERS);
    else {
        (void)um_panels_type(&p->shape, &type);
        um_buf_puts(out, type == UM_F32 ? "f32" : type == UM_BF16 ? "bf16" : um_dtype_name(type));
        for (int32_t i = 0; i < p->shape.n_dims; i++)
            um_buf_printf(out, "%c%lld", i ? 'x' : ' ', (long long)p->shape.dim[i]);
    }
    um_buf_printf(out, " %016llx", (unsigned long long)p->checksum);
}

static json_t *entry_of(const planned *p) {
    json_t *shape = json_array();
    for (int32_t i = 0; i < p->shape.n_dims && !p->is_matrix; i++)
        json_array_append_new(shape, json_integer(p->shape.dim[i]));
    if (p->is_matrix) json_array_append_new(shape, json_integer((json_int_t)p->bytes));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", p->is_matrix ? "U8" : um_tensor_format(&p->shape)->name, "shape",
                     shape, "data_offsets", (json_int_t)p->at, (json_int_t)(p->at + (int64_t)p->bytes));
}

/* Appends the header with its length in front. Spaces make it a multiple of HEADER_ALIGN. */
static void put_header(const writer *w, um_buf *out) {
    json_t *metadata = json_pack("{s:s, s:s, s:s}", "format", UM_PACKED_FORMAT, "version", UM_PACKED_VERSION, "dtype",
                                 um_dtype_name(w->dtype));
    json_t *root = json_pack("{s:o}", "__metadata__", metadata);
    um_buf text = {0};
    for (size_t i = 0; i < w->n; i++) {
        put_description(&w->tensor[i], &text);
        json_object_set_new(metadata, w->tensor[i].shape.name, json_string(text.data));
        json_object_set_new(root, w->tensor[i].shape.name, entry_of(&w->tensor[i]));
    }
    um_buf_clear(&text);
    char *json = json_dumps(root, JSON_COMPACT);
    const size_t n = strlen(json), padded = UM_CEIL_DIV(n + 8, HEADER_ALIGN) * HEADER_ALIGN - 8;
    for (int i = 0; i < 8; i++) um_buf_putc(out, (char)(padded >> (8 * i) & 0xff));
    um_buf_append(out, json, n);
    for (size_t i = n; i < padded; i++) um_buf_putc(out, ' ');
    free(json);
    json_decref(root);
    um_buf_free(&text);
}

/* ---- The data ---------------------------------------------------------------------------------------------------- */

static um_status fail_io(const writer *w, const char *verb, um_err *err) {
    return um_fail(err, UM_EIO, "%s: cannot %s: %s", w->path, verb, strerror(errno));
}

static um_status write_at(const writer *w, const void *data, size_t n, off_t at, um_err *err) {
    for (const char *p = data; n;) {
        const ssize_t k = pwrite(w->fd, p, n, at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return fail_io(w, "write", err);
        p += k;
        n -= (size_t)k;
        at += k;
    }
    return UM_OK;
}

/* Writes the next n bytes of a tensor. */
static um_status store(writer *w, planned *p, const void *data, size_t n, um_err *err) {
    if (w->progress && !w->progress(w->progress_arg, w->done, (int64_t)w->bytes))
        return um_fail(err, UM_ECANCELED, "interrupted");
    assert(n <= p->bytes - p->n_stored);
    um_status s = write_at(w, data, n, w->body + p->at + (off_t)p->n_stored, err);
    XXH3_64bits_update(p->hash, data, n);
    p->n_stored += n;
    w->done += (int64_t)n;
    return s;
}

/* Panels of one matrix that are packed together. */
typedef struct chunk {
    const um_packing *packing;
    int first;
    size_t panel_bytes;
    unsigned char *to;
} chunk;

static void pack_task(void *arg, int i, int thread) {
    (void)thread;
    const chunk *c = (const chunk *)arg;
    um_packing_write(c->packing, c->first + i, c->to + (size_t)i * c->panel_bytes);
}

/* Adds the rounding errors of the first rows of a packed matrix to the sample. */
static void sample_error(writer *w, const um_tensor *t, um_dtype type, const unsigned char *panels) {
    const int64_t in = t->dim[1], rows = UM_MIN(t->dim[0], SAMPLE_ROWS);
    float *want = UM_NEW_ARRAY(float, (size_t)in), *got = UM_NEW_ARRAY(float, (size_t)in);
    for (int64_t row = 0; row < rows; row++) {
        um_tensor_read(t, row, 0, in, want);
        um_panel_read(type, panels, (int)row, 0, in, got);
        for (int64_t k = 0; k < in; k++) {
            const double error = (double)got[k] - (double)want[k];
            w->squares += (double)want[k] * (double)want[k];
            w->squared_errors += error * error;
        }
    }
    um_free(want);
    um_free(got);
}

/* Writes the rows of the matrices t [n_parts], one below the other, as the next ones of p. */
static um_status write_matrix(writer *w, planned *p, const um_tensor *t, int n_parts, um_err *err) {
    um_dtype type = UM_F32;
    (void)um_panels_type(&p->shape, &type);
    um_packing packing = um_packing_of(t, n_parts, type);
    packing.type = type; /* all parts of a stacked matrix have the same type of panel */
    const int n_panels = um_packing_panels(&packing);
    const size_t bytes = um_panel_bytes(type, packing.in);
    const int per_chunk = (int)UM_MAX(w->chunk_bytes / bytes, (size_t)1);
    um_status s = UM_OK;
    for (int first = 0; first < n_panels && !s; first += per_chunk) {
        const int n = UM_MIN(per_chunk, n_panels - first);
        chunk c = {&packing, first, bytes, w->chunk};
        um_pool_run(w->pool, pack_task, &c, n);
        if (!first) sample_error(w, t, type, w->chunk);
        if (!um_panels_are_finite(type, w->chunk, n, packing.in))
            s = um_fail(err, UM_EMODEL, "tensor %s holds weights that are too large for %s, whose scales are fp16",
                        t->name, um_dtype_name(type));
        if (!s) s = store(w, p, w->chunk, (size_t)n * bytes, err);
    }
    return s;
}

static um_status write_vector(writer *w, planned *p, const um_tensor *t, um_err *err) {
    if (t->type == p->shape.type) return store(w, p, t->data, p->bytes, err);
    float *x = UM_NEW_ARRAY(float, um_tensor_elements(t));
    um_tensor_to_f32(t, x);
    um_status s = store(w, p, x, p->bytes, err);
    um_free(x);
    return s;
}

/* Writes the tensors of a matrix or a vector: see um_parts_fn. */
static um_status write_parts(void *arg, const um_tensor *t, int n, const char *joined, um_dtype type, um_err *err) {
    writer *w = (writer *)arg;
    um_status s = UM_OK;
    if (joined) return write_matrix(w, find(w, joined), t, n, err);
    for (int i = 0; i < n && !s; i++) {
        planned *p = find(w, t[i].name);
        s = type == UM_DTYPE_OTHER ? write_vector(w, p, &t[i], err) : write_matrix(w, p, &t[i], 1, err);
    }
    return s;
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

/* The panel with the longest rows must fit into the chunk. */
static um_status make_chunk(writer *w, um_err *err) {
    size_t bytes = CHUNK_BYTES;
    void *p = NULL;
    for (size_t i = 0; i < w->n; i++) {
        um_dtype type;
        if (um_panels_type(&w->tensor[i].shape, &type))
            bytes = UM_MAX(bytes, um_panel_bytes(type, um_tensor_in(&w->tensor[i].shape)));
    }
    um_status s = um_try_alloc_unset(&p, bytes, UM_PACKED_ALIGN, "packing", err);
    w->chunk = (unsigned char *)p;
    w->chunk_bytes = bytes;
    return s;
}

/* Opens the file and locks it. The file of a process that was killed is used again. */
static um_status lock_file(writer *w, um_err *err) {
    struct stat opened, named;
    w->fd = open(w->path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (w->fd < 0) return fail_io(w, "create", err);
    const bool is_locked = !flock(w->fd, LOCK_EX | LOCK_NB);
    /* Another process may have renamed the file since it was opened. */
    const bool is_same = is_locked && !fstat(w->fd, &opened) && !stat(w->path, &named) &&
                         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
    if (is_same) return UM_OK;
    close(w->fd);
    w->fd = -1;
    return um_fail(err, UM_EIO, "%s: another process writes this file", w->path);
}

/* Opens the file and reserves its space, so that a full disk is noticed now. */
static um_status open_file(writer *w, um_err *err) {
    um_buf header = {0};
    put_header(w, &header);
    w->body = (off_t)header.len;
    um_buf_free(&header);
    um_status s = lock_file(w, err);
    if (s) return s;
    if (ftruncate(w->fd, 0)) return fail_io(w, "truncate", err);
    errno = posix_fallocate(w->fd, 0, w->body + (off_t)w->bytes);
    if (errno == EOPNOTSUPP || errno == EINVAL) errno = 0;
    return errno ? fail_io(w, "reserve its space", err) : UM_OK;
}

static um_status finish_file(writer *w, um_err *err) {
    um_buf header = {0};
    for (size_t i = 0; i < w->n; i++) {
        assert(w->tensor[i].n_stored == w->tensor[i].bytes);
        w->tensor[i].checksum = XXH3_64bits_digest(w->tensor[i].hash);
    }
    put_header(w, &header);
    assert((off_t)header.len == w->body); /* checksums have a fixed length */
    um_status s = write_at(w, header.data, header.len, 0, err);
    if (!s && fsync(w->fd)) s = fail_io(w, "write", err);
    um_buf_free(&header);
    return s;
}

static um_status write_file(writer *w, um_model *m, um_err *err) {
    um_status s = um_model_list(m, m->files, plan_parts, w, err);
    if (s) return s;
    w->report->is_rounded = um_is_quantized(um_model_stored_product(m->files, UM_F32));
    place(w);
    for (size_t i = 0; i < w->n; i++) {
        w->tensor[i].hash = XXH3_createState();
        XXH3_64bits_reset(w->tensor[i].hash);
    }
    s = make_chunk(w, err);
    if (!s) s = um_pool_new(&w->pool, 0, err);
    if (!s) s = open_file(w, err);
    if (!s) s = um_model_hand_out(m, m->files, write_parts, w, err);
    return s ? s : finish_file(w, err);
}

static void close_writer(writer *w) {
    for (size_t i = 0; i < w->n; i++) XXH3_freeState(w->tensor[i].hash);
    if (w->fd >= 0) close(w->fd);
    um_pool_free(w->pool);
    um_free(w->chunk);
    um_free(w->tensor);
    um_idset_free(&w->index);
    um_arena_free(&w->arena);
}

/* Writes the weights of m to `path`, which is complete after UM_OK and does not exist after an error. */
static um_status write_weights(writer *w, um_model *m, const char *path, um_err *err) {
    um_buf part = {0};
    um_buf_printf(&part, "%s" PART_SUFFIX, path);
    w->path = part.data;
    um_status s = write_file(w, m, err);
    if (!s && rename(part.data, path)) s = fail_io(w, "rename", err);
    if (s && w->fd >= 0) unlink(part.data); /* without a descriptor the file is another process's */
    um_buf_free(&part);
    return s;
}

/* An unreadable model is reported as such, in difference to a folder that can't be written. */
static um_status open_model(um_model **out, const um_config *c, um_err *err) {
    um_status s = um_model_open_files(out, c, err);
    if (s == UM_ENOENT || s == UM_EIO || s == UM_EPARSE || s == UM_ELIMIT) err->code = s = UM_EMODEL;
    return s;
}

um_status um_packed_write(const um_config *c, const char *dir, um_dtype type, bool overwrite,
                          um_packed_progress progress, void *arg, um_packed_report *report, um_err *err) {
    um_config mine = *c;
    um_model *m = NULL;
    writer w = {.fd = -1, .report = report, .progress = progress, .progress_arg = arg, .dtype = UM_BF16};
    char *path = um_path_join(dir, UM_PACKED_FILE);
    bool is_new = false;
    *report = (um_packed_report){0};
    snprintf(mine.dtype, sizeof mine.dtype, "bfloat16");
    snprintf(mine.quantization, sizeof mine.quantization, "%s", um_is_quantized(type) ? um_dtype_name(type) : "none");
    um_status s = open_model(&m, &mine, err);
    if (!s && m->n_adapters && !m->merged)
        s = um_fail_param(err, UM_EINVAL, "lora", "an adapter can only be packed with --lora-merge");
    if (!s && um_is_quantized(type)) s = um_model_stored_dtype(&m->arch, m->files, &w.dtype, err);
    if (!s) s = um_packed_folder_make(m, dir, overwrite, &is_new, err);
    w.is_merged = !s && m->merged;
    if (!s) s = write_weights(&w, m, path, err);
    if (!s) {
        report->bytes_out = (int64_t)w.bytes;
        report->n_params = m->n_params;
        report->error = w.squares > 0 ? sqrt(w.squared_errors / w.squares) : 0;
        s = um_packed_folder_fill(m, c->model, dir, type, report, err);
    }
    if (s && is_new) rmdir(dir); /* has an effect only on an empty folder */
    close_writer(&w);
    um_model_close(m);
    um_free(path);
    return s;
}
