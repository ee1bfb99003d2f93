/* Reads safetensors files: 8 bytes with the length of the header (little-endian), a JSON header, then the bytes of the
 * tensors.
 *
 * Files are mapped, never copied. Headers are untrusted: every number is checked against the size of the file before a
 * pointer is computed from it. A truncated download or a forged header thus gives an error message and no crash. */
#include <jansson.h>
#include <stdlib.h>

#include "model/store.h"

#define HEADER_MAX ((size_t)100 * 1000 * 1000) /* the format's own limit */
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

/* ---- One header -------------------------------------------------------------------------------------------------- */

typedef struct header {
    const char *path;
    const uint8_t *body; /* the first byte after the header */
    size_t body_size;
} header;

/* A tensor of the header. */
typedef struct entry {
    um_tensor tensor;
    const char *dtype;
    size_t begin, end; /* offsets in bytes from the end of the header */
} entry;

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
    e->dtype = json_string_value(json_object_get(v, "dtype"));
    if (!e->dtype || strlen(e->dtype) >= UM_STORE_TYPE_SIZE)
        return um_fail(err, UM_EPARSE, "%s: tensor %s has no valid \"dtype\"", h->path, e->tensor.name);
    size_t item = dtype_lookup(e->dtype, &e->tensor.type), bytes = 0;
    um_status s = read_shape(e, json_object_get(v, "shape"), item ? item : 1, &bytes, h, err);
    if (!s) s = read_offsets(e, json_object_get(v, "data_offsets"), h, err);
    return s ? s : check_size(e, item, bytes, h, err);
}

static int by_begin(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
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

static um_status read_all(entry *e, json_t *root, const header *h, size_t *n, um_err *err) {
    const char *name;
    json_t *v;
    json_object_foreach(root, name, v) {
        if (!strcmp(name, "__metadata__")) continue;
        e[*n].tensor.name = name;
        um_status st = read_entry(&e[*n], v, h, err);
        if (st) return st;
        ++*n;
    }
    return check_overlap(e, *n, h, err);
}

static um_status read_entries(um_store *s, json_t *root, const header *h, um_err *err) {
    entry *e = UM_NEW_ARRAY(entry, json_object_size(root) + 1);
    size_t n = 0;
    um_status st = read_all(e, root, h, &n, err);
    for (size_t i = 0; i < n && !st; i++) {
        um_tensor *t = um_store_add(s, e[i].tensor.name, e[i].dtype);
        const char *name = t->name;
        *t = e[i].tensor;
        t->name = name;
    }
    um_free(e);
    return st ? st : um_store_sort(s, err);
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

/* Reports a header that is no JSON or has a key twice. A key ends where the parser has stopped, so its name can be
 * shown.
 */
static um_status fail_header(const char *text, size_t n, const json_error_t *je, const char *path, um_err *err) {
    const size_t end = je->position > 0 ? UM_MIN((size_t)je->position, n) : 0;
    size_t first = end > 0 ? end - 1 : 0;
    if (json_error_code(je) != json_error_duplicate_key || !end || text[first] != '"')
        return um_fail(err, UM_EPARSE, "%s: header: %s (line %d, column %d)", path, je->text, je->line, je->column);
    while (first > 0 && text[first - 1] != '"') first--;
    return um_fail(err, UM_EPARSE, "%s: header: duplicate key \"%.*s\" (line %d, column %d)", path,
                   (int)UM_MIN(end - 1 - first, (size_t)128), text + first, je->line, je->column);
}

um_status um_safetensors_parse(um_store *s, const uint8_t *data, size_t n, const char *path, json_t **metadata,
                               um_err *err) {
    size_t header_n = 0;
    if (metadata) *metadata = NULL;
    um_status st = check_length(data, n, path, &header_n, err);
    if (st) return st;
    um_store_begin_file(s, path);
    json_error_t je;
    /* A duplicate key is a duplicate tensor. um_json_parse would accept it, so it is not used here. */
    json_t *root = json_loadb((const char *)data + 8, header_n, JSON_REJECT_DUPLICATES, &je);
    if (!root) return fail_header((const char *)data + 8, header_n, &je, path, err);
    header h = {path, data + 8 + header_n, n - 8 - header_n};
    if (json_is_object(root)) st = read_entries(s, root, &h, err);
    else st = um_fail(err, UM_EPARSE, "%s: the header must be a JSON object", path);
    if (!st && metadata) *metadata = json_incref(json_object_get(root, "__metadata__"));
    json_decref(root);
    return st;
}
