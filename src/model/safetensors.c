/* Reads safetensors files: 8 bytes with the length of the header (little-endian), a JSON header, then the bytes of the
 * tensors.
 *
 * Files are mapped, never copied. Headers are untrusted: every number is checked against the size of the file before a
 * pointer is computed from it. A truncated download or a forged header thus gives an error message and no crash. */
#include <jansson.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/model.h"

#define HEADER_MAX ((size_t)100 * 1000 * 1000) /* the format's own limit */
#define SHARDS_MAX 4096
enum { MISSING_NAMED = 4 }; /* a message lists at most this many missing shards */

typedef struct entry {
    um_tensor tensor;  /* first member, so that a pointer to a um_tensor of this file is one to its entry */
    char dtype[16];    /* as spelled in the file */
    size_t begin, end; /* offsets in bytes from the end of the header */
    int32_t file;
} entry;

struct um_safetensors {
    um_arena arena; /* names of tensors and files */
    entry *entry;   /* sorted by name */
    size_t n, cap;
    const char **file; /* [n_files] paths for messages */
    um_map *map;       /* [n_files]; data NULL where the caller owns the bytes */
    int32_t n_files;
};

/* ---- Element types ----------------------------------------------------------------------------------------------- */

/* The types of the format with a whole number of bytes. Types that the engine computes with have a um_dtype. */
static const struct {
    const char *name;
    size_t size;
    um_dtype type;
} dtypes[] = {
    {"BF16", 2, UM_BF16},
    {"F16", 2, UM_F16},
    {"F32", 4, UM_F32},
    {"F64", 8, UM_DTYPE_OTHER},
    {"I64", 8, UM_DTYPE_OTHER},
    {"U64", 8, UM_DTYPE_OTHER},
    {"I32", 4, UM_DTYPE_OTHER},
    {"U32", 4, UM_DTYPE_OTHER},
    {"I16", 2, UM_DTYPE_OTHER},
    {"U16", 2, UM_DTYPE_OTHER},
    {"I8", 1, UM_DTYPE_OTHER},
    {"U8", 1, UM_DTYPE_OTHER},
    {"BOOL", 1, UM_DTYPE_OTHER},
    {"C64", 8, UM_DTYPE_OTHER},
    {"F8_E4M3", 1, UM_DTYPE_OTHER},
    {"F8_E5M2", 1, UM_DTYPE_OTHER},
    {"F8_E8M0", 1, UM_DTYPE_OTHER},
};

/* Returns the size of an element in bytes, or 0 for an unknown type. A tensor of an unknown type is listed, but can't
 * be used. */
static size_t dtype_lookup(const char *name, um_dtype *type) {
    for (size_t i = 0; i < UM_LEN(dtypes); i++) {
        if (strcmp(dtypes[i].name, name)) continue;
        *type = dtypes[i].type;
        return dtypes[i].size;
    }
    *type = UM_DTYPE_OTHER;
    return 0;
}

/* Returns the name of a type that the engine computes with. */
static const char *dtype_name(um_dtype type) {
    size_t i = 0;
    while (i + 1 < UM_LEN(dtypes) && dtypes[i].type != type) i++;
    return dtypes[i].name;
}

/* ---- One header -------------------------------------------------------------------------------------------------- */

typedef struct header {
    const char *path;
    const uint8_t *body; /* the first byte after the header */
    size_t body_size;
} header;

static um_status read_shape(entry *e, json_t *shape, size_t item, size_t *bytes, const header *h, um_err *err) {
    size_t n = json_array_size(shape);
    if (!json_is_array(shape))
        return um_fail(err, UM_EPARSE, "%s: tensor %s has no \"shape\" array", h->path, e->tensor.name);
    if (n > UM_LEN(e->tensor.dim))
        return um_fail(err, UM_EPARSE, "%s: tensor %s has %zu dimensions, unmask reads at most %zu", h->path,
                       e->tensor.name, n, UM_LEN(e->tensor.dim));
    *bytes = item;
    for (size_t i = 0; i < n; i++) {
        json_t *d = json_array_get(shape, i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return um_fail(err, UM_EPARSE, "%s: tensor %s: dimension %zu of \"shape\" is not a whole number >= 0",
                           h->path, e->tensor.name, i);
        if (!um_mul_ok(*bytes, (size_t)json_integer_value(d), bytes))
            return um_fail(err, UM_EPARSE, "%s: tensor %s: the product of its shape overflows", h->path,
                           e->tensor.name);
        e->tensor.dim[i] = json_integer_value(d);
    }
    e->tensor.n_dims = (int32_t)n;
    return UM_OK;
}

static um_status read_offsets(entry *e, json_t *offsets, const header *h, um_err *err) {
    json_t *b = json_array_get(offsets, 0), *f = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(b) || !json_is_integer(f) || json_integer_value(b) < 0 ||
        json_integer_value(f) < json_integer_value(b))
        return um_fail(err, UM_EPARSE, "%s: tensor %s: \"data_offsets\" must be [begin, end] with 0 <= begin <= end",
                       h->path, e->tensor.name);
    e->begin = (size_t)json_integer_value(b);
    e->end = (size_t)json_integer_value(f);
    if (e->end > h->body_size)
        return um_fail(err, UM_EPARSE,
                       "%s: tensor %s ends at byte %zu of the data, but the file holds %zu; it is truncated or its "
                       "header is wrong: fetch it again",
                       h->path, e->tensor.name, e->end, h->body_size);
    e->tensor.data = h->body + e->begin;
    return UM_OK;
}

/* Checks the stored size. `bytes` is the size that the shape needs or, for an unknown type, the number of elements. An
 * element has at least one bit, so there can't be more than eight elements for each stored byte. */
static um_status check_size(const entry *e, size_t item, size_t bytes, const header *h, um_err *err) {
    const size_t stored = e->end - e->begin;
    if (item && bytes != stored)
        return um_fail(err, UM_EPARSE, "%s: tensor %s: its shape and type %s need %zu bytes, data_offsets give %zu",
                       h->path, e->tensor.name, e->dtype, bytes, stored);
    if (!item && bytes / 8 + (bytes % 8 != 0) > stored)
        return um_fail(err, UM_EPARSE, "%s: tensor %s: its shape has %zu elements, but data_offsets give %zu bytes",
                       h->path, e->tensor.name, bytes, stored);
    return UM_OK;
}

static um_status read_entry(entry *e, json_t *v, const header *h, um_err *err) {
    const char *dtype = json_string_value(json_object_get(v, "dtype"));
    if (!dtype || strlen(dtype) >= sizeof e->dtype)
        return um_fail(err, UM_EPARSE, "%s: tensor %s has no valid \"dtype\"", h->path, e->tensor.name);
    memcpy(e->dtype, dtype, strlen(dtype) + 1);
    size_t item = dtype_lookup(dtype, &e->tensor.type), bytes = 0;
    um_status s = read_shape(e, json_object_get(v, "shape"), item ? item : 1, &bytes, h, err);
    if (!s) s = read_offsets(e, json_object_get(v, "data_offsets"), h, err);
    return s ? s : check_size(e, item, bytes, h, err);
}

static entry *push(um_safetensors *s) {
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 64;
        s->entry = um_realloc(s->entry, um_mul(s->cap, sizeof *s->entry));
    }
    entry *e = &s->entry[s->n++];
    memset(e, 0, sizeof *e);
    return e;
}

static int by_begin(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int by_name(const void *a, const void *b) {
    const entry *x = a, *y = b;
    return strcmp(x->tensor.name, y->tensor.name);
}

/* Refuses tensors that share bytes. Such a header was edited by hand or written by a broken tool. */
static um_status check_overlap(entry *e, size_t n, const header *h, um_err *err) {
    qsort(e, n, sizeof *e, by_begin);
    const entry *last = NULL;
    for (size_t i = 0; i < n; i++) {
        if (e[i].begin == e[i].end) continue;
        if (last && e[i].begin < last->end)
            return um_fail(err, UM_EPARSE, "%s: tensors %s and %s overlap at byte %zu of the data", h->path,
                           last->tensor.name, e[i].tensor.name, e[i].begin);
        last = &e[i];
    }
    return UM_OK;
}

/* Sorts all tensors by name. Refuses a name that occurs in two files, because it is unknown which tensor is meant. */
static um_status sort_names(um_safetensors *s, um_err *err) {
    qsort(s->entry, s->n, sizeof *s->entry, by_name);
    for (size_t i = 1; i < s->n; i++) {
        const entry *a = &s->entry[i - 1], *b = &s->entry[i];
        if (!strcmp(a->tensor.name, b->tensor.name))
            return um_fail(err, UM_EMODEL, "tensor %s is stored twice: in %s and in %s", a->tensor.name,
                           s->file[a->file], s->file[b->file]);
    }
    return UM_OK;
}

static um_status read_entries(um_safetensors *s, json_t *root, const header *h, um_err *err) {
    size_t first = s->n;
    const char *name;
    json_t *v;
    json_object_foreach(root, name, v) {
        if (!strcmp(name, "__metadata__")) continue;
        entry *e = push(s);
        e->file = s->n_files - 1;
        e->tensor.name = um_arena_strndup(&s->arena, name, strlen(name));
        um_status st = read_entry(e, v, h, err);
        if (st) return st;
    }
    if (s->n == first) return UM_OK;
    um_status st = check_overlap(s->entry + first, s->n - first, h, err);
    return st ? st : sort_names(s, err);
}

static uint64_t little_endian(const uint8_t *p) {
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

/* Checks the length of the header. Nothing after the first 8 bytes may be read before. */
static um_status check_length(const uint8_t *data, size_t n, const char *path, size_t *header_n, um_err *err) {
    static const char lfs[] = "version https://git-lfs";
    if (n >= sizeof lfs && !memcmp(data, lfs, sizeof lfs - 1))
        return um_fail(err, UM_EPARSE, "%s is a Git LFS pointer, not the file itself: run 'git lfs pull' in its folder",
                       path);
    if (n < 8) return um_fail(err, UM_EPARSE, "%s: the file has %zu bytes, a safetensors file has at least 8", path, n);
    uint64_t len = little_endian(data);
    if (len > n - 8)
        return um_fail(err, UM_EPARSE,
                       "%s: the header claims %llu bytes, but the file has %zu after its length: it is "
                       "truncated or not a safetensors file",
                       path, (unsigned long long)len, n - 8);
    if (len > HEADER_MAX)
        return um_fail(err, UM_ELIMIT, "%s: the header has %llu bytes, the format allows %zu", path,
                       (unsigned long long)len, HEADER_MAX);
    *header_n = (size_t)len;
    return UM_OK;
}

static int32_t push_file(um_safetensors *s, const char *path) {
    size_t n = (size_t)s->n_files + 1;
    s->file = um_realloc(s->file, um_mul(n, sizeof *s->file));
    s->map = um_realloc(s->map, um_mul(n, sizeof *s->map));
    s->file[s->n_files] = um_arena_strndup(&s->arena, path, strlen(path));
    s->map[s->n_files] = (um_map){0};
    return s->n_files++;
}

um_status um_safetensors_parse(um_safetensors *s, const uint8_t *data, size_t n, const char *path, um_err *err) {
    size_t header_n = 0;
    um_status st = check_length(data, n, path, &header_n, err);
    if (st) return st;
    push_file(s, path);
    json_error_t je;
    /* A duplicate key is a duplicate tensor. um_json_parse would accept it, so it is not used here. */
    json_t *root = json_loadb((const char *)data + 8, header_n, JSON_REJECT_DUPLICATES, &je);
    if (!root) return um_fail(err, UM_EPARSE, "%s: header: %s (line %d, column %d)", path, je.text, je.line, je.column);
    header h = {path, data + 8 + header_n, n - 8 - header_n};
    if (json_is_object(root)) st = read_entries(s, root, &h, err);
    else st = um_fail(err, UM_EPARSE, "%s: the header must be a JSON object", path);
    json_decref(root);
    return st;
}

/* ---- Folders ----------------------------------------------------------------------------------------------------- */

static um_status open_file(um_safetensors *s, const char *dir, const char *name, um_err *err) {
    char *path = um_path_join(dir, name);
    um_map map = {0};
    um_status st = um_map_open(&map, path, err);
    if (!st) st = um_safetensors_parse(s, map.data, map.size, path, err);
    if (!st) s->map[s->n_files - 1] = map;
    else um_map_close(&map);
    um_free(path);
    return st;
}

static int32_t file_index(const um_safetensors *s, const char *dir, const char *name) {
    char *path = um_path_join(dir, name);
    int32_t at = -1;
    for (int32_t i = 0; i < s->n_files && at < 0; i++)
        if (!strcmp(s->file[i], path)) at = i;
    um_free(path);
    return at;
}

/* Checks the name of a shard. It comes from an untrusted file, and its path must not leave the folder. */
static um_status check_shard_name(const char *shard, const char *tensor, const char *where, um_err *err) {
    if (shard && *shard && !strchr(shard, '/') && strcmp(shard, "..")) return UM_OK;
    return um_fail(err, UM_EPARSE, "%s: \"weight_map\": tensor %s must name a file of the same folder", where, tensor);
}

/* The files that an index names, each once, in the order of the index. */
typedef struct shards {
    const char **name;
    int32_t n;
} shards;

static um_status list_shards(shards *list, json_t *map, const char *where, um_err *err) {
    const char *tensor;
    json_t *v;
    list->name = UM_NEW_ARRAY(const char *, SHARDS_MAX);
    json_object_foreach(map, tensor, v) {
        const char *shard = json_string_value(v);
        int32_t at = list->n - 1; /* usually found at once, because tensors of one shard follow each other */
        um_status st = check_shard_name(shard, tensor, where, err);
        if (st) return st;
        while (at >= 0 && strcmp(list->name[at], shard)) at--;
        if (at >= 0) continue;
        if (list->n == SHARDS_MAX) return um_fail(err, UM_ELIMIT, "%s: more than %d shards", where, SHARDS_MAX);
        list->name[list->n++] = shard;
    }
    return UM_OK;
}

static um_status check_present(const shards *list, const char *dir, const char *where, um_err *err) {
    um_buf missing = {0};
    int32_t n = 0;
    for (int32_t i = 0; i < list->n; i++) {
        char *path = um_path_join(dir, list->name[i]);
        if (!um_file_exists(path) && n++ < MISSING_NAMED)
            um_buf_printf(&missing, "%s%s", n > 1 ? ", " : "", list->name[i]);
        um_free(path);
    }
    if (!n) return UM_OK;
    if (n > MISSING_NAMED) um_buf_printf(&missing, " and %d more", n - MISSING_NAMED);
    um_status st = um_fail(err, UM_ENOENT, "%s names %d shards, but %s does not hold %s: fetch what is missing", where,
                           list->n, dir, missing.data);
    um_buf_free(&missing);
    return st;
}

/* Warns of shards that the index does not name. Shards are called NAME-00002-of-00005.safetensors, so a missing number
 * is a missing shard. Its tensors are reported as missing later; this warning gives the reason. */
static void warn_missing_shards(const shards *list, const char *where) {
    const char *dash = list->n ? strstr(list->name[0], "-of-") : NULL;
    int total = dash ? atoi(dash + 4) : 0;
    if (total <= list->n || total > SHARDS_MAX || dash - list->name[0] < 5) return;
    const int stem = (int)(dash - list->name[0]) - 5;
    for (int k = 1; k <= total; k++) {
        char name[256];
        bool named = false;
        snprintf(name, sizeof name, "%.*s%05d%s", stem, list->name[0], k, dash);
        for (int32_t i = 0; i < list->n; i++) named |= !strcmp(list->name[i], name);
        if (!named) um_warn("%s names no tensor of %s: the index is incomplete", where, name);
    }
}

static um_status open_shards(um_safetensors *s, json_t *map, const char *dir, const char *where, um_err *err) {
    shards list = {0};
    um_status st = list_shards(&list, map, where, err);
    if (!st) st = check_present(&list, dir, where, err);
    if (!st) warn_missing_shards(&list, where);
    for (int32_t i = 0; i < list.n && !st; i++) st = open_file(s, dir, list.name[i], err);
    um_free(list.name);
    return st;
}

static um_status check_index(const um_safetensors *s, json_t *map, const char *dir, const char *where, um_err *err) {
    const char *tensor;
    json_t *v;
    json_object_foreach(map, tensor, v) {
        const um_tensor *t = um_safetensors_find(s, tensor);
        if (!t) return um_fail(err, UM_EMODEL, "%s: tensor %s is not in %s", where, tensor, json_string_value(v));
        if (((const entry *)t)->file != file_index(s, dir, json_string_value(v)))
            return um_fail(err, UM_EMODEL, "%s: tensor %s should be in %s, but it is in %s", where, tensor,
                           json_string_value(v), um_safetensors_file(s, t));
    }
    return UM_OK;
}

static um_status open_index(um_safetensors *s, const char *dir, const char *index, um_err *err) {
    json_t *root = NULL;
    um_status st = um_json_load(&root, index, err);
    if (st) return st;
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map)) {
        st = um_fail(err, UM_EPARSE, "%s: \"weight_map\" must be an object of tensor name to file name", index);
    } else {
        st = open_shards(s, map, dir, index, err);
        if (!st) st = check_index(s, map, dir, index, err);
    }
    json_decref(root);
    return st;
}

/* Returns whether `path` is a link to a missing file. An interrupted download leaves such links in the hub's cache. */
static bool is_broken_link(const char *path) {
    char target[8];
    return !um_file_exists(path) && readlink(path, target, sizeof target) >= 0;
}

/* Reports a folder without safetensors. The message depends on what the folder contains instead, and says what to do.
 */
static um_status fail_no_weights(const char *dir, um_err *err) {
    static const char *const other[] = {"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth"};
    for (size_t i = 0; i < UM_LEN(other); i++) {
        char *path = um_path_join(dir, other[i]);
        bool found = um_file_exists(path);
        um_free(path);
        if (found)
            return um_fail(err, UM_EUNSUPPORTED,
                           "%s holds %s; unmask reads safetensors only: convert the checkpoint "
                           "or fetch its model.safetensors",
                           dir, other[i]);
    }
    char *single = um_path_join(dir, "model.safetensors");
    bool broken = is_broken_link(single);
    um_free(single);
    if (broken)
        return um_fail(err, UM_ENOENT,
                       "%s: model.safetensors is a link to a missing file: the download is "
                       "incomplete, finish it",
                       dir);
    return um_fail(err, UM_ENOENT, "%s: the folder has neither model.safetensors nor model.safetensors.index.json",
                   dir);
}

um_status um_safetensors_open(um_safetensors **out, const char *dir, um_err *err) {
    um_safetensors *s = um_safetensors_new();
    char *single = um_path_join(dir, "model.safetensors"), *index = um_path_join(dir, "model.safetensors.index.json");
    um_status st;
    if (um_file_exists(single)) st = open_file(s, dir, "model.safetensors", err);
    else if (um_file_exists(index)) st = open_index(s, dir, index, err);
    else st = fail_no_weights(dir, err);
    um_free(single);
    um_free(index);
    if (st) {
        um_safetensors_close(s);
        s = NULL;
    }
    *out = s;
    return st;
}

um_status um_safetensors_open_file(um_safetensors **out, const char *dir, const char *name, um_err *err) {
    um_safetensors *s = um_safetensors_new();
    um_status st = open_file(s, dir, name, err);
    if (st) {
        um_safetensors_close(s);
        s = NULL;
    }
    *out = s;
    return st;
}

um_safetensors *um_safetensors_new(void) {
    um_safetensors *s = UM_NEW(um_safetensors);
    um_arena_init(&s->arena, 0);
    return s;
}

void um_safetensors_close(um_safetensors *s) {
    if (!s) return;
    for (int32_t i = 0; i < s->n_files; i++) um_map_close(&s->map[i]);
    um_free(s->map);
    um_free(s->file);
    um_free(s->entry);
    um_arena_free(&s->arena);
    um_free(s);
}

um_status um_safetensors_list(um_safetensors **out, const um_tensor *t, size_t n, const char *where, um_err *err) {
    um_safetensors *s = um_safetensors_new();
    const int32_t file = push_file(s, where);
    for (size_t i = 0; i < n; i++) {
        entry *e = push(s);
        e->tensor = t[i];
        e->tensor.name = um_arena_strndup(&s->arena, t[i].name, strlen(t[i].name));
        e->file = file;
        snprintf(e->dtype, sizeof e->dtype, "%s", dtype_name(t[i].type));
    }
    um_status st = sort_names(s, err);
    if (st) {
        um_safetensors_close(s);
        s = NULL;
    }
    *out = s;
    return st;
}

/* ---- Looking up -------------------------------------------------------------------------------------------------- */

size_t um_safetensors_count(const um_safetensors *s) { return s->n; }

const um_tensor *um_safetensors_at(const um_safetensors *s, size_t i) {
    assert(i < s->n);
    return &s->entry[i].tensor;
}

const um_tensor *um_safetensors_find(const um_safetensors *s, const char *name) {
    entry key = {.tensor.name = name};
    entry *e = s->n ? bsearch(&key, s->entry, s->n, sizeof *s->entry, by_name) : NULL;
    return e ? &e->tensor : NULL;
}

size_t um_safetensors_index(const um_safetensors *s, const um_tensor *t) {
    size_t i = (size_t)((const entry *)t - s->entry);
    assert(i < s->n);
    return i;
}

const char *um_safetensors_file(const um_safetensors *s, const um_tensor *t) {
    const char *path = s->file[((const entry *)t)->file], *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

const char *um_safetensors_dtype(const um_tensor *t) { return ((const entry *)t)->dtype; }

/* Without this, the mapped file would stay in memory in addition to the backend's copy until loading has ended. */
void um_safetensors_release(const um_safetensors *s, const um_tensor *t) {
    const entry *e = (const entry *)um_safetensors_find(s, t->name);
    if (!e || !s->map[e->file].data) return;
    const size_t bytes = um_mul(um_tensor_elements(t), um_dtype_size(t->type));
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)t->data;
    const uintptr_t first = UM_CEIL_DIV(from, page) * page, last = (from + bytes) / page * page;
    if (first < last) madvise((void *)first, last - first, MADV_DONTNEED);
}
