/* The store: a sorted list of tensors, and the maps of their files. */
#include "model/store.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

typedef struct entry {
    um_tensor tensor;              /* first member, so that a pointer to a um_tensor of a store is one to its entry */
    char type[UM_STORE_TYPE_SIZE]; /* as spelled in the file */
    int32_t file;
    bool has_checksum;
    uint64_t checksum; /* XXH3-64 of the data */
    bool is_dropped;   /* the next um_store_sort removes it */
} entry;

typedef struct file {
    const char *path; /* for messages */
    um_map map;       /* data NULL where the caller owns the bytes */
} file;

struct um_store {
    um_arena arena; /* names of tensors and files, and what readers keep there */
    entry *entry;   /* [n] sorted by name */
    size_t n, cap;
    file *file; /* [n_files] */
    int32_t n_files;
    bool has_dtype;
    um_dtype dtype;
};

/* ---- Filling ----------------------------------------------------------------------------------------------------- */

um_store *um_store_new(void) {
    um_store *s = UM_NEW(um_store);
    um_arena_init(&s->arena, 0);
    return s;
}

um_arena *um_store_arena(um_store *s) { return &s->arena; }

void um_store_close(um_store *s) {
    if (!s) return;
    for (int32_t i = 0; i < s->n_files; i++) um_map_close(&s->file[i].map);
    um_free(s->file);
    um_free(s->entry);
    um_arena_free(&s->arena);
    um_free(s);
}

void um_store_begin_file(um_store *s, const char *path) {
    s->file = um_realloc(s->file, um_mul((size_t)s->n_files + 1, sizeof *s->file));
    s->file[s->n_files++] = (file){.path = um_arena_strndup(&s->arena, path, strlen(path))};
}

void um_store_own_map(um_store *s, um_map map) { s->file[s->n_files - 1].map = map; }

um_tensor *um_store_add(um_store *s, const char *name, const char *type) {
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 64;
        s->entry = um_realloc(s->entry, um_mul(s->cap, sizeof *s->entry));
    }
    entry *e = &s->entry[s->n++];
    *e = (entry){.file = s->n_files - 1, .tensor.name = um_arena_strndup(&s->arena, name, strlen(name))};
    snprintf(e->type, sizeof e->type, "%s", type);
    return &e->tensor;
}

static int by_name(const void *a, const void *b) {
    const entry *x = a, *y = b;
    return strcmp(x->tensor.name, y->tensor.name);
}

void um_store_replace(um_store *s, const um_tensor *t, const um_tensor *by, const char *type) {
    entry *e = &s->entry[um_store_index(s, t)];
    const char *name = um_arena_strndup(&s->arena, by->name, strlen(by->name));
    e->tensor = *by;
    e->tensor.name = name;
    snprintf(e->type, sizeof e->type, "%s", type);
}

void um_store_drop(um_store *s, const um_tensor *t) { s->entry[um_store_index(s, t)].is_dropped = true; }

um_status um_store_sort(um_store *s, um_err *err) {
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++)
        if (!s->entry[i].is_dropped) s->entry[kept++] = s->entry[i];
    s->n = kept;
    if (s->n) qsort(s->entry, s->n, sizeof *s->entry, by_name);
    for (size_t i = 1; i < s->n; i++) {
        const entry *a = &s->entry[i - 1], *b = &s->entry[i];
        if (!strcmp(a->tensor.name, b->tensor.name))
            return um_fail(err, UM_EMODEL, "tensor %s is stored twice: in %s and in %s", a->tensor.name,
                           s->file[a->file].path, s->file[b->file].path);
    }
    return UM_OK;
}

um_status um_store_list(um_store **out, const um_tensor *t, size_t n, const char *where, um_err *err) {
    um_store *s = um_store_new();
    um_store_begin_file(s, where);
    for (size_t i = 0; i < n; i++) {
        um_tensor *to = um_store_add(s, t[i].name, um_tensor_format(&t[i])->name);
        const char *name = to->name;
        *to = t[i];
        to->name = name;
    }
    um_status st = um_store_sort(s, err);
    if (st) {
        um_store_close(s);
        s = NULL;
    }
    *out = s;
    return st;
}

um_tensor *um_store_edit(um_store *s, size_t i) {
    assert(i < s->n);
    return &s->entry[i].tensor;
}

void um_store_set_checksum(um_store *s, size_t i, uint64_t checksum) {
    assert(i < s->n);
    s->entry[i].has_checksum = true;
    s->entry[i].checksum = checksum;
}

void um_store_set_dtype(um_store *s, um_dtype dtype) {
    s->has_dtype = true;
    s->dtype = dtype;
}

bool um_store_dtype(const um_store *s, um_dtype *out) {
    if (s->has_dtype) *out = s->dtype;
    return s->has_dtype;
}

/* ---- Checksums --------------------------------------------------------------------------------------------------- */

enum { DAMAGED_NAMED = 4 }; /* a message lists at most this many damaged tensors */

typedef struct verification {
    const um_store *s;
    bool *is_damaged; /* [n of s] */
} verification;

static void verify_task(void *arg, int i, int thread) {
    (void)thread;
    const verification *v = (const verification *)arg;
    const entry *e = &v->s->entry[i];
    const size_t bytes = e->has_checksum ? um_tensor_bytes(&e->tensor) : 0;
    v->is_damaged[i] = e->has_checksum && XXH3_64bits(e->tensor.data, bytes) != e->checksum;
}

static um_status report_damaged(const verification *v, um_err *err) {
    um_buf names = {0};
    const char *path = NULL;
    size_t n = 0;
    for (size_t i = 0; i < v->s->n; i++) {
        if (!v->is_damaged[i]) continue;
        path = v->s->file[v->s->entry[i].file].path;
        if (n++ < DAMAGED_NAMED) um_buf_printf(&names, "%s%s", n > 1 ? ", " : "", v->s->entry[i].tensor.name);
    }
    if (!n) return UM_OK;
    if (n > DAMAGED_NAMED) um_buf_printf(&names, " and %zu more", n - DAMAGED_NAMED);
    um_status s = um_fail(err, UM_EMODEL, "%s is damaged: the checksums of these tensors are wrong: %s; make it again",
                          path, names.data);
    um_buf_free(&names);
    return s;
}

um_status um_store_verify(const um_store *s, um_pool *pool, um_err *err) {
    const verification v = {s, UM_NEW_ARRAY(bool, s->n + 1)};
    um_pool_run(pool, verify_task, (void *)(uintptr_t)&v, (int)s->n);
    um_status st = report_damaged(&v, err);
    um_free(v.is_damaged);
    return st;
}

/* ---- Looking up -------------------------------------------------------------------------------------------------- */

size_t um_store_count(const um_store *s) { return s->n; }

const um_tensor *um_store_at(const um_store *s, size_t i) {
    assert(i < s->n);
    return &s->entry[i].tensor;
}

const um_tensor *um_store_find(const um_store *s, const char *name) {
    entry key = {.tensor.name = name};
    entry *e = s->n ? bsearch(&key, s->entry, s->n, sizeof *s->entry, by_name) : NULL;
    return e ? &e->tensor : NULL;
}

size_t um_store_index(const um_store *s, const um_tensor *t) {
    size_t i = (size_t)((const entry *)t - s->entry);
    assert(i < s->n);
    return i;
}

static const file *file_of(const um_store *s, const um_tensor *t) { return &s->file[((const entry *)t)->file]; }

bool um_store_is_in(const um_store *s, const um_tensor *t, const char *path) {
    return !strcmp(file_of(s, t)->path, path);
}

const char *um_store_file(const um_store *s, const um_tensor *t) {
    const char *path = file_of(s, t)->path, *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool um_store_stays(const um_store *s) {
    for (size_t i = 0; i < s->n; i++)
        if (s->entry[i].tensor.stays) return true;
    return false;
}

const char *um_store_type(const um_tensor *t) { return ((const entry *)t)->type; }

/* Without this, the mapped file would stay in memory in addition to the backend's copy until loading has ended. */
void um_store_release(const um_store *s, const um_tensor *t) {
    const um_tensor *whole = um_store_find(s, t->name);
    if (!whole || t->stays || !file_of(s, whole)->map.data) return;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)t->data;
    const uintptr_t first = UM_CEIL_DIV(from, page) * page, last = (from + um_tensor_bytes(t)) / page * page;
    if (first < last) madvise((void *)first, last - first, MADV_DONTNEED);
}
