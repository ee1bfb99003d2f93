/* The tensors of a checkpoint as safetensors files. Nothing is held but the list of tensors and a buffer per thread:
 * every thread makes a chunk of a tensor and writes it to its place in the file. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "checkpoint.h"
#include "cli/cli.h"

#define CHUNK_BYTES ((size_t)1 << 20)
#define NAME_SIZE   64

/* ---- Which tensor goes where ------------------------------------------------------------------------------------- */

typedef struct place {
    um_tensor tensor;
    size_t elements;
    size_t from, to; /* its bytes, counted from the end of the file's header */
    int32_t file;
} place;

typedef struct plan {
    const um_weights_options *o;
    um_arena names;
    place *place;
    size_t n, cap;
    int32_t n_files;
    size_t bytes; /* of all tensors */
} plan;

static um_status add_tensor(void *arg, const um_tensor *t, um_err *err) {
    plan *p = arg;
    (void)err;
    if (p->n == p->cap) {
        p->cap = UM_MAX(2 * p->cap, 256);
        p->place = um_realloc(p->place, um_mul(p->cap, sizeof *p->place));
    }
    place *at = &p->place[p->n];
    const size_t elements = um_tensor_elements(t), bytes = um_mul(elements, um_dtype_size(p->o->type));
    size_t from = p->n ? at[-1].to : 0;
    if (!p->n_files || (from && from + bytes > p->o->shard_bytes)) {
        p->n_files++;
        from = 0;
    }
    *at = (place){.tensor = *t, .elements = elements, .from = from, .to = from + bytes, .file = p->n_files - 1};
    at->tensor.name = um_arena_strndup(&p->names, t->name, strlen(t->name));
    p->bytes += bytes;
    p->n++;
    return UM_OK;
}

static void file_name(const plan *p, int32_t file, char out[NAME_SIZE]) {
    if (p->n_files == 1) snprintf(out, NAME_SIZE, "model.safetensors");
    else snprintf(out, NAME_SIZE, "model-%05d-of-%05d.safetensors", file + 1, p->n_files);
}

/* ---- Header and index -------------------------------------------------------------------------------------------- */

static void put_tensor(um_jw *w, const place *at, um_dtype type) {
    um_jw_key(w, at->tensor.name);
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "dtype", type == UM_BF16 ? "BF16" : "F32");
    um_jw_key(w, "shape");
    um_jw_begin_array(w);
    for (int32_t i = 0; i < at->tensor.n_dims; i++) um_jw_int(w, at->tensor.dim[i]);
    um_jw_end_array(w);
    um_jw_key(w, "data_offsets");
    um_jw_begin_array(w);
    um_jw_int(w, (int64_t)at->from);
    um_jw_int(w, (int64_t)at->to);
    um_jw_end_array(w);
    um_jw_end_object(w);
}

/* Eight bytes of length, lowest first, then JSON. Spaces behind it align the tensors to eight bytes. */
static void put_header(const plan *p, const place *first, um_buf *out) {
    um_jw w;
    um_buf_append(out, "\0\0\0\0\0\0\0", 8);
    um_jw_init(&w, out);
    um_jw_begin_object(&w);
    um_jw_key(&w, "__metadata__");
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "format", "pt");
    um_jw_end_object(&w);
    for (const place *at = first; at < p->place + p->n && at->file == first->file; at++) put_tensor(&w, at, p->o->type);
    um_jw_end_object(&w);
    while (out->len % 8) um_buf_putc(out, ' ');
    for (int i = 0; i < 8; i++) out->data[i] = (char)(((uint64_t)out->len - 8) >> 8 * i);
}

static um_status write_index(const plan *p, const char *dir, um_err *err) {
    char *path = um_path_join(dir, "model.safetensors.index.json"), name[NAME_SIZE];
    um_buf text = {0};
    um_jw w;
    um_jw_init(&w, &text);
    um_jw_begin_object(&w);
    um_jw_key(&w, "metadata");
    um_jw_begin_object(&w);
    um_jw_put_int(&w, "total_size", (int64_t)p->bytes);
    um_jw_end_object(&w);
    um_jw_key(&w, "weight_map");
    um_jw_begin_object(&w);
    for (size_t i = 0; i < p->n; i++) {
        file_name(p, p->place[i].file, name);
        um_jw_put_cstr(&w, p->place[i].tensor.name, name);
    }
    um_jw_end_object(&w);
    um_jw_end_object(&w);
    um_status s = um_file_replace(path, (um_str){text.data, text.len}, err);
    um_buf_free(&text);
    um_free(path);
    return s;
}

/* ---- One tensor -------------------------------------------------------------------------------------------------- */

typedef struct writer {
    const plan *plan;
    um_values values;
    um_pool *pool;
    uint8_t *buffer; /* CHUNK_BYTES for each thread */
    um_progress *progress;
    atomic_size_t written;

    int fd;
    atomic_int failed; /* errno of the file's first failure, 0 is none */
    const place *at;   /* the tensor under way */
    size_t header_bytes;
} writer;

/* Norms are the vectors that are weights; the others are biases. */
static bool is_norm(const um_tensor *t) {
    static const char suffix[] = ".weight";
    const size_t n = strlen(t->name), n_suffix = sizeof suffix - 1;
    return t->n_dims == 1 && n > n_suffix && um_streq(t->name + n - n_suffix, suffix);
}

static int write_at(int fd, const uint8_t *data, size_t n, size_t at) {
    while (n) {
        const ssize_t done = pwrite(fd, data, n, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return errno;
        data += done, at += (size_t)done, n -= (size_t)done;
    }
    return 0;
}

static void write_chunk(void *arg, int task, int thread) {
    writer *w = arg;
    const place *at = w->at;
    const um_weights_options *o = w->plan->o;
    const size_t size = um_dtype_size(o->type), chunk = CHUNK_BYTES / size, first = (size_t)task * chunk;
    const size_t n = UM_MIN(chunk, at->elements - first);
    uint8_t *data = w->buffer + (size_t)thread * CHUNK_BYTES;
    if (atomic_load(&w->failed)) return;
    if (is_norm(&at->tensor)) um_values_ones(&w->values, n, data);
    else um_values_fill(&w->values, um_rng_u64(o->seed, um_key_hash(um_str_of(at->tensor.name))), first, n, data);
    const int error = write_at(w->fd, data, n * size, w->header_bytes + at->from + first * size);
    if (error) atomic_store(&w->failed, error);
    const size_t written = atomic_fetch_add(&w->written, n * size) + n * size;
    if (thread == 0) um_progress_set(w->progress, (int64_t)written, NULL);
}

/* ---- One file ---------------------------------------------------------------------------------------------------- */

/* Writes the tensors from `first` on that belong to its file; *next is the tensor behind them. */
static int write_tensors(writer *w, const place *first, const place **next) {
    const size_t chunk = CHUNK_BYTES / um_dtype_size(w->plan->o->type);
    const place *end = w->plan->place + w->plan->n;
    um_buf header = {0};
    put_header(w->plan, first, &header);
    w->header_bytes = header.len;
    atomic_store(&w->failed, write_at(w->fd, (const uint8_t *)header.data, header.len, 0));
    um_buf_free(&header);
    for (w->at = first; w->at < end && w->at->file == first->file && !atomic_load(&w->failed); w->at++)
        um_pool_run(w->pool, write_chunk, w, (int)UM_CEIL_DIV(w->at->elements, chunk));
    *next = w->at;
    return atomic_load(&w->failed);
}

/* The file has ".part" behind its name until it is complete. */
static um_status write_file(writer *w, const char *dir, const place **next, um_err *err) {
    char name[NAME_SIZE];
    um_buf part = {0};
    file_name(w->plan, (*next)->file, name);
    char *path = um_path_join(dir, name);
    um_buf_printf(&part, "%s.part", path);
    w->fd = open(part.data, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    int error = w->fd < 0 ? errno : write_tensors(w, *next, next);
    if (w->fd >= 0 && close(w->fd) && !error) error = errno;
    if (!error && rename(part.data, path)) error = errno;
    um_status s = error ? um_fail(err, UM_EIO, "%s: cannot write: %s", path, strerror(error)) : UM_OK;
    um_buf_free(&part);
    um_free(path);
    return s;
}

/* ---- All files --------------------------------------------------------------------------------------------------- */

/* A disk that is too small is named at once, not when it is full. */
static um_status check_room(const plan *p, const char *dir, um_err *err) {
    struct statvfs disk;
    if (statvfs(dir, &disk)) return UM_OK;
    const double room = (double)disk.f_bavail * (double)disk.f_frsize;
    if ((double)p->bytes <= room) return UM_OK;
    return um_fail(err, UM_EIO, "%s: the weights need %.2f GB, the disk has %.2f GB free", dir, 1e-9 * (double)p->bytes,
                   1e-9 * room);
}

static um_status write_files(const plan *p, const char *dir, um_err *err) {
    writer w = {.plan = p};
    const place *next = p->place;
    um_values_init(&w.values, p->o->type);
    um_status s = um_pool_new(&w.pool, 0, err);
    if (s) return s;
    w.buffer = um_alloc(um_mul((size_t)um_pool_threads(w.pool), CHUNK_BYTES));
    w.progress = um_progress_new_bytes("writing weights", (int64_t)p->bytes, 0, 0);
    while (next < p->place + p->n && !s) s = write_file(&w, dir, &next, err);
    um_progress_free(w.progress);
    um_free(w.buffer);
    um_pool_free(w.pool);
    return s;
}

um_status um_weights_write(const char *dir, const um_arch *arch, const um_weights_options *o, um_err *err) {
    plan p = {.o = o};
    um_arena_init(&p.names, 0);
    um_status s = um_arch_tensors(arch, add_tensor, &p, err);
    if (!s) s = check_room(&p, dir, err);
    if (!s) s = write_files(&p, dir, err);
    if (!s && p.n_files > 1) s = write_index(&p, dir, err);
    um_free(p.place);
    um_arena_free(&p.names);
    return s;
}
