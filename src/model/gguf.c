/* Reads GGUF files: magic, version and counts, the pairs of key and value (metadata), the list of tensors, and the
 * bytes of the tensors from the next multiple of the alignment on. All numbers are little-endian. */
#include "model/gguf.h"

#include <stdlib.h>

#include "model/model.h"
#include "ops/format.h"

#define ALIGNMENT_DEFAULT 32
#define PAIRS_MAX         ((uint64_t)1 << 16)
#define STRINGS_MAX       ((uint64_t)1 << 24) /* elements of all arrays of strings together */
#define TENSORS_MAX       ((uint64_t)1 << 20)
#define NAME_BYTES_MAX    255 /* of a key or the name of a tensor, so that a message can hold it */

/* A key and its value. A scalar is stored as an array of one element. */
typedef struct pair {
    const char *key;
    um_gguf_type type; /* of the elements */
    bool is_array;
    size_t n;
    const uint8_t *value; /* [n] elements; NULL for strings */
    um_str *string;       /* [n], for strings */
} pair;

typedef struct entry {
    um_gguf_tensor tensor; /* first member, so that a pointer to a tensor of this file is one to its entry */
    uint64_t offset;       /* in bytes from the start of the data */
} entry;

struct um_gguf {
    um_arena arena; /* names, keys and lists of strings */
    um_map map;     /* data NULL where the caller owns the bytes */
    const char *path;
    pair *pair; /* [n_pairs], sorted by key once all are read */
    size_t n_pairs;
    entry *entry;          /* [n_entries] in the order of the file */
    const entry **by_name; /* [n_entries] */
    size_t n_entries;
    uint64_t n_strings; /* elements of arrays of strings read so far */
};

/* ---- Reading bytes ----------------------------------------------------------------------------------------------- */

/* A position in the header. Functions that take a reader report errors without the path; um_gguf_parse adds it. */
typedef struct reader {
    um_gguf *g;
    const uint8_t *data;
    size_t n, at;
    um_err *err; /* not NULL */
} reader;

static size_t bytes_left(const reader *r) { return r->n - r->at; }

static uint64_t little_endian(const uint8_t *p, size_t n) {
    uint64_t v = 0;
    while (n) v = v << 8 | p[--n];
    return v;
}

static um_status fail_end(const reader *r) {
    return um_fail(r->err, UM_EPARSE,
                   "the header goes past the end of the file, which has %zu bytes: the download is incomplete or the "
                   "header is damaged; fetch the file again",
                   r->n);
}

static um_status take(reader *r, uint64_t n, const uint8_t **p) {
    if (n > bytes_left(r)) return fail_end(r);
    *p = r->data + r->at;
    r->at += (size_t)n;
    return UM_OK;
}

static um_status read_u32(reader *r, uint32_t *v) {
    const uint8_t *p = NULL;
    um_status s = take(r, 4, &p);
    if (!s) *v = (uint32_t)little_endian(p, 4);
    return s;
}

static um_status read_u64(reader *r, uint64_t *v) {
    const uint8_t *p = NULL;
    um_status s = take(r, 8, &p);
    if (!s) *v = little_endian(p, 8);
    return s;
}

static um_status read_string(reader *r, um_str *v) {
    uint64_t n = 0;
    const uint8_t *p = NULL;
    um_status s = read_u64(r, &n);
    if (!s) s = take(r, n, &p);
    if (!s) *v = (um_str){(const char *)p, (size_t)n};
    return s;
}

/* Reads a key or the name of a tensor. Only valid UTF-8 is accepted, because names are printed. */
static um_status read_name(reader *r, const char **name) {
    um_str v = {0};
    um_status s = read_string(r, &v);
    if (s) return s;
    if (!v.n) return um_fail(r->err, UM_EPARSE, "its name is empty");
    if (v.n > NAME_BYTES_MAX)
        return um_fail(r->err, UM_ELIMIT, "its name has %zu bytes, unmask reads at most %d", v.n, NAME_BYTES_MAX);
    if (memchr(v.p, '\0', v.n) || um_utf8_check(v.p, v.n) != v.n)
        return um_fail(r->err, UM_EPARSE, "its name is not valid UTF-8 without NUL");
    *name = um_arena_strndup(&r->g->arena, v.p, v.n);
    return UM_OK;
}

/* Checks a number of items before memory is allocated for them. `least` is the size in bytes of the smallest item. */
static um_status check_count(const reader *r, uint64_t n, size_t least, uint64_t max, const char *what) {
    if (n > bytes_left(r) / least)
        return um_fail(r->err, UM_EPARSE,
                       "the header claims %llu %s, but the file has only %zu more bytes: the download is incomplete or "
                       "the header is damaged; fetch the file again",
                       (unsigned long long)n, what, bytes_left(r));
    if (n > max) return um_fail(r->err, UM_ELIMIT, "the file has more than %llu %s", (unsigned long long)max, what);
    return UM_OK;
}

/* ---- Metadata ---------------------------------------------------------------------------------------------------- */

/* Bytes of an element. Strings have no fixed size; arrays are no elements. */
static const uint8_t value_size[] = {
    [UM_GGUF_U8] = 1,  [UM_GGUF_I8] = 1,  [UM_GGUF_U16] = 2,  [UM_GGUF_I16] = 2,    [UM_GGUF_U32] = 4,
    [UM_GGUF_I32] = 4, [UM_GGUF_F32] = 4, [UM_GGUF_BOOL] = 1, [UM_GGUF_STRING] = 0, [UM_GGUF_ARRAY] = 0,
    [UM_GGUF_U64] = 8, [UM_GGUF_I64] = 8, [UM_GGUF_F64] = 8,
};

static um_status read_type(reader *r, um_gguf_type *type) {
    uint32_t v = 0;
    um_status s = read_u32(r, &v);
    if (s) return s;
    if (v >= UM_LEN(value_size)) return um_fail(r->err, UM_EPARSE, "unknown type of value %u", v);
    *type = (um_gguf_type)v;
    return UM_OK;
}

/* The list of strings makes every element accessible in constant time. */
static um_status read_strings(reader *r, pair *p) {
    um_gguf *g = r->g;
    um_status s = UM_OK;
    if (p->is_array) {
        s = check_count(r, p->n, 8, STRINGS_MAX - g->n_strings, "strings");
        if (s) return s;
        g->n_strings += p->n;
    }
    p->string = um_arena_alloc(&g->arena, um_mul(p->n, sizeof *p->string));
    for (size_t i = 0; i < p->n && !s; i++) s = read_string(r, &p->string[i]);
    return s;
}

/* Reads the p->n elements of a value. */
static um_status read_elements(reader *r, pair *p) {
    if (p->type == UM_GGUF_STRING) return read_strings(r, p);
    size_t bytes = 0;
    if (!um_mul_ok(p->n, value_size[p->type], &bytes)) return fail_end(r);
    um_status s = take(r, bytes, &p->value);
    for (size_t i = 0; i < p->n && !s && p->type == UM_GGUF_BOOL; i++)
        if (p->value[i] > 1) s = um_fail(r->err, UM_EPARSE, "a bool is %d, expected 0 or 1", p->value[i]);
    return s;
}

static um_status read_value(reader *r, pair *p) {
    um_status s = read_type(r, &p->type);
    p->n = 1;
    p->is_array = p->type == UM_GGUF_ARRAY;
    if (!s && p->is_array) {
        uint64_t n = 0;
        s = read_type(r, &p->type);
        if (!s && p->type == UM_GGUF_ARRAY)
            s = um_fail(r->err, UM_EUNSUPPORTED, "the value is an array of arrays, which unmask does not read");
        if (!s) s = read_u64(r, &n);
        p->n = (size_t)n;
    }
    return s ? s : read_elements(r, p);
}

static int by_key(const void *a, const void *b) {
    const pair *x = a, *y = b;
    return strcmp(x->key, y->key);
}

static const pair *find_pair(const um_gguf *g, const char *key) {
    const pair wanted = {.key = key};
    return g->n_pairs ? bsearch(&wanted, g->pair, g->n_pairs, sizeof *g->pair, by_key) : NULL;
}

static um_status read_pairs(reader *r, uint64_t n) {
    um_gguf *g = r->g;
    um_status s = check_count(r, n, 13, PAIRS_MAX, "keys"); /* length and type of 8 + 4 bytes, a value of one */
    if (s) return s;
    g->pair = UM_NEW_ARRAY(pair, (size_t)n);
    for (; g->n_pairs < n; g->n_pairs++) {
        pair *p = &g->pair[g->n_pairs];
        s = read_name(r, &p->key);
        if (s) return um_fail_in(r->err, "key %zu of %zu", g->n_pairs + 1, (size_t)n);
        s = read_value(r, p);
        if (s) return um_fail_in(r->err, "key %s", p->key);
    }
    qsort(g->pair, g->n_pairs, sizeof *g->pair, by_key);
    for (size_t i = 1; i < g->n_pairs; i++)
        if (!by_key(&g->pair[i - 1], &g->pair[i]))
            return um_fail(r->err, UM_EPARSE, "duplicate key %s", g->pair[i].key);
    return UM_OK;
}

static um_status check_split(const reader *r) {
    int64_t count = 1, number = 0;
    um_gguf_int(r->g, "split.count", &count);
    um_gguf_int(r->g, "split.no", &number);
    if (count <= 1) return UM_OK;
    return um_fail(r->err, UM_EUNSUPPORTED,
                   "this is part %lld of %lld of a split file, unmask reads whole files only: fetch all parts and join "
                   "them with 'llama-gguf-split --merge FIRST_PART WHOLE_FILE'",
                   (long long)number + 1, (long long)count);
}

static um_status read_alignment(const reader *r, size_t *alignment) {
    static const char key[] = "general.alignment";
    int64_t v = ALIGNMENT_DEFAULT;
    if (find_pair(r->g, key) && !um_gguf_int(r->g, key, &v))
        return um_fail(r->err, UM_EPARSE, "key %s is not an integer", key);
    if (v < 8 || v > UINT32_MAX || (v & (v - 1)))
        return um_fail(r->err, UM_EPARSE, "key %s is %lld, expected a power of two of 8..2^31", key, (long long)v);
    *alignment = (size_t)v;
    return UM_OK;
}

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */

/* The numbers of the types without groups. */
static const struct {
    uint32_t type;
    uint8_t bytes;
} plain_types[] = {
    {0, 4},  /* F32 */
    {1, 2},  /* F16 */
    {30, 2}, /* BF16 */
    {24, 1}, /* I8 */
    {25, 2}, /* I16 */
    {26, 4}, /* I32 */
    {27, 8}, /* I64 */
    {28, 8}, /* F64 */
};

/* Finds the size of a group of elements. Returns false for a type that unmask does not read. */
static bool find_group(uint32_t type, size_t *elements, size_t *bytes) {
    const um_format *f = um_format_gguf(type);
    *elements = f ? (size_t)f->elements : 1;
    *bytes = f ? (size_t)f->bytes : 0;
    for (size_t i = 0; i < UM_LEN(plain_types) && !*bytes; i++)
        if (plain_types[i].type == type) *bytes = plain_types[i].bytes;
    return *bytes > 0;
}

/* Reads the dimensions. In the file the first one is contiguous. */
static um_status read_shape(reader *r, um_gguf_tensor *t, size_t *elements) {
    uint32_t n = 0;
    um_status s = read_u32(r, &n);
    if (s) return s;
    if (n > UM_LEN(t->dim))
        return um_fail(r->err, UM_EPARSE, "it has %u dimensions, a GGUF tensor has at most %zu", n, UM_LEN(t->dim));
    t->n_dims = (int32_t)n;
    *elements = 1;
    for (uint32_t i = n; i-- > 0;) {
        uint64_t d = 0;
        s = read_u64(r, &d);
        if (s) return s;
        if (!d || d > INT64_MAX)
            return um_fail(r->err, UM_EPARSE, "dimension %u is %llu, expected 1..2^63-1", i, (unsigned long long)d);
        if (!um_mul_ok(*elements, (size_t)d, elements))
            return um_fail(r->err, UM_EPARSE, "the product of its dimensions overflows");
        t->dim[i] = (int64_t)d;
    }
    return UM_OK;
}

/* Computes the size of the data from the type and the shape. */
static um_status size_tensor(const reader *r, um_gguf_tensor *t, size_t elements) {
    const char *type = um_format_gguf_name(t->type);
    const size_t row = t->n_dims ? (size_t)t->dim[t->n_dims - 1] : 1;
    size_t group, bytes;
    if (!find_group(t->type, &group, &bytes))
        return um_fail(r->err, UM_EUNSUPPORTED,
                       "unmask does not read its type %s (number %u): use another file of the model, such as one of "
                       "type Q8_0, Q6_K or Q4_K_M",
                       type, t->type);
    if (row % group)
        return um_fail(r->err, UM_EPARSE, "its rows have %zu elements, type %s needs a multiple of %zu", row, type,
                       group);
    if (!um_mul_ok(elements / group, bytes, &t->bytes))
        return um_fail(r->err, UM_EPARSE, "the product of its dimensions overflows");
    return UM_OK;
}

static um_status read_entry(reader *r, entry *e) {
    size_t elements = 0;
    um_status s = read_shape(r, &e->tensor, &elements);
    if (!s) s = read_u32(r, &e->tensor.type);
    if (!s) s = read_u64(r, &e->offset);
    return s ? s : size_tensor(r, &e->tensor, elements);
}

/* Sets the address of the data, which starts at byte `start` of the file. */
static um_status place_tensor(const reader *r, entry *e, size_t start, size_t alignment) {
    size_t begin, end;
    if (e->offset % alignment)
        return um_fail(r->err, UM_EPARSE, "its offset %llu is not a multiple of the alignment %zu",
                       (unsigned long long)e->offset, alignment);
    if (!um_add_ok(start, (size_t)e->offset, &begin) || !um_add_ok(begin, e->tensor.bytes, &end))
        return um_fail(r->err, UM_EPARSE, "its offset %llu is too large", (unsigned long long)e->offset);
    if (end > r->n)
        return um_fail(r->err, UM_EPARSE,
                       "it ends at byte %zu, but the file has %zu bytes: the download is incomplete or the header is "
                       "damaged; fetch the file again",
                       end, r->n);
    e->tensor.data = r->data + begin;
    return UM_OK;
}

static int by_data(const void *a, const void *b) {
    const entry *x = *(const entry *const *)a, *y = *(const entry *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int by_name(const void *a, const void *b) {
    const entry *x = *(const entry *const *)a, *y = *(const entry *const *)b;
    return strcmp(x->tensor.name, y->tensor.name);
}

/* Sorts the tensors by name. Refuses duplicate names and tensors that share bytes. No tensor is empty. */
static um_status sort_tensors(const reader *r) {
    um_gguf *g = r->g;
    const entry **list = g->by_name = um_alloc(um_mul(g->n_entries, sizeof *g->by_name));
    for (size_t i = 0; i < g->n_entries; i++) list[i] = &g->entry[i];
    qsort(list, g->n_entries, sizeof *list, by_data);
    for (size_t i = 1; i < g->n_entries; i++)
        if (list[i]->offset - list[i - 1]->offset < list[i - 1]->tensor.bytes)
            return um_fail(r->err, UM_EPARSE, "tensors %s and %s overlap at byte %llu of the data",
                           list[i - 1]->tensor.name, list[i]->tensor.name, (unsigned long long)list[i]->offset);
    qsort(list, g->n_entries, sizeof *list, by_name);
    for (size_t i = 1; i < g->n_entries; i++)
        if (!by_name(&list[i - 1], &list[i]))
            return um_fail(r->err, UM_EPARSE, "duplicate tensor %s", list[i]->tensor.name);
    return UM_OK;
}

static um_status read_tensors(reader *r, uint64_t n, size_t alignment) {
    um_gguf *g = r->g;
    um_status s = check_count(r, n, 24, TENSORS_MAX, "tensors"); /* name, dimensions, type, offset: 8 + 4 + 4 + 8 */
    if (s) return s;
    g->entry = UM_NEW_ARRAY(entry, (size_t)n);
    for (; g->n_entries < n; g->n_entries++) {
        entry *e = &g->entry[g->n_entries];
        s = read_name(r, &e->tensor.name);
        if (s) return um_fail_in(r->err, "tensor %zu of %zu", g->n_entries + 1, (size_t)n);
        s = read_entry(r, e);
        if (s) return um_fail_in(r->err, "tensor %s", e->tensor.name);
    }
    const size_t start = UM_CEIL_DIV(r->at, alignment) * alignment;
    for (size_t i = 0; i < g->n_entries; i++) {
        s = place_tensor(r, &g->entry[i], start, alignment);
        if (s) return um_fail_in(r->err, "tensor %s", g->entry[i].tensor.name);
    }
    return sort_tensors(r);
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

static um_status check_magic(reader *r) {
    static const char magic[4] = {'G', 'G', 'U', 'F'};
    if (r->n >= sizeof magic && memcmp(r->data, magic, sizeof magic)) {
        const char *kind = um_file_kind(r->data, r->n);
        return um_fail(r->err, UM_EPARSE, "this is not a GGUF file%s%s", kind ? " but " : "",
                       kind ? kind : ", because it does not start with \"GGUF\"");
    }
    if (r->n < 24)
        return um_fail(
            r->err, UM_EPARSE,
            "the file has %zu bytes, a GGUF file has at least 24: the download is incomplete; fetch it again", r->n);
    r->at = sizeof magic;
    return UM_OK;
}

static um_status check_version(reader *r) {
    uint32_t version = 0;
    um_status s = read_u32(r, &version);
    if (s) return s;
    if (version && !(version & 0xffff))
        return um_fail(r->err, UM_EUNSUPPORTED, "this is a big-endian file, unmask reads little-endian files only");
    if (version != 2 && version != 3)
        return um_fail(r->err, UM_EUNSUPPORTED, "GGUF version %u, unmask reads versions 2 and 3%s", version,
                       version < 2 ? ": convert the model again" : "");
    return UM_OK;
}

static um_status read_file(reader *r) {
    uint64_t n_tensors = 0, n_pairs = 0;
    size_t alignment = 0;
    um_status s = check_magic(r);
    if (!s) s = check_version(r);
    if (!s) s = read_u64(r, &n_tensors);
    if (!s) s = read_u64(r, &n_pairs);
    if (!s) s = read_pairs(r, n_pairs);
    if (!s) s = check_split(r);
    if (!s) s = read_alignment(r, &alignment);
    return s ? s : read_tensors(r, n_tensors, alignment);
}

um_status um_gguf_parse(um_gguf **out, const uint8_t *data, size_t n, const char *path, um_err *err) {
    um_err unwanted;
    um_gguf *g = UM_NEW(um_gguf);
    um_arena_init(&g->arena, 0);
    g->path = um_arena_strndup(&g->arena, path, strlen(path));
    reader r = {.g = g, .data = data, .n = n, .err = err ? err : &unwanted};
    um_status s = read_file(&r);
    if (s) {
        um_fail_in(r.err, "%s", path);
        um_gguf_close(g);
        g = NULL;
    }
    *out = g;
    return s;
}

um_status um_gguf_open(um_gguf **out, const char *path, um_err *err) {
    um_map map = {0};
    *out = NULL;
    um_status s = um_map_open(&map, path, err);
    if (!s) s = um_gguf_parse(out, map.data, map.size, path, err);
    if (!s) (*out)->map = map;
    else um_map_close(&map);
    return s;
}

void um_gguf_close(um_gguf *g) {
    if (!g) return;
    um_map_close(&g->map);
    um_free(g->pair);
    um_free(g->entry);
    um_free(g->by_name);
    um_arena_free(&g->arena);
    um_free(g);
}

const char *um_gguf_path(const um_gguf *g) { return g->path; }

um_map um_gguf_take_map(um_gguf *g) {
    const um_map map = g->map;
    g->map = (um_map){0};
    return map;
}

/* ---- Looking up -------------------------------------------------------------------------------------------------- */

size_t um_gguf_count(const um_gguf *g) { return g->n_entries; }

const um_gguf_tensor *um_gguf_at(const um_gguf *g, size_t i) {
    assert(i < g->n_entries);
    return &g->entry[i].tensor;
}

const um_gguf_tensor *um_gguf_find(const um_gguf *g, const char *name) {
    const entry key = {.tensor.name = name}, *wanted = &key;
    const entry **e = g->n_entries ? bsearch(&wanted, g->by_name, g->n_entries, sizeof *g->by_name, by_name) : NULL;
    return e ? &(*e)->tensor : NULL;
}

static const pair *find_scalar(const um_gguf *g, const char *key) {
    const pair *p = find_pair(g, key);
    return p && !p->is_array ? p : NULL;
}

/* Returns whether element i is an integer that fits. A u64 above INT64_MAX stores INT64_MAX, but does not fit. */
static bool read_int(const pair *p, size_t i, int64_t *out) {
    if (p->type == UM_GGUF_STRING || p->type == UM_GGUF_F32 || p->type == UM_GGUF_F64) return false;
    const size_t size = value_size[p->type];
    const uint64_t v = little_endian(p->value + i * size, size);
    switch (p->type) {
    case UM_GGUF_I8: *out = (int8_t)v; break;
    case UM_GGUF_I16: *out = (int16_t)v; break;
    case UM_GGUF_I32: *out = (int32_t)v; break;
    case UM_GGUF_I64: *out = (int64_t)v; break;
    default: *out = v > INT64_MAX ? INT64_MAX : (int64_t)v;
    }
    return p->type != UM_GGUF_U64 || v <= INT64_MAX;
}

bool um_gguf_int(const um_gguf *g, const char *key, int64_t *out) {
    const pair *p = find_scalar(g, key);
    int64_t v;
    if (!p || p->type == UM_GGUF_BOOL || !read_int(p, 0, &v)) return false;
    *out = v;
    return true;
}

bool um_gguf_float(const um_gguf *g, const char *key, double *out) {
    const pair *p = find_scalar(g, key);
    if (!p || (p->type != UM_GGUF_F32 && p->type != UM_GGUF_F64)) {
        int64_t v;
        if (!um_gguf_int(g, key, &v)) return false;
        *out = (double)v;
        return true;
    }
    const uint64_t bits = little_endian(p->value, value_size[p->type]);
    const uint32_t bits32 = (uint32_t)bits;
    float narrow;
    memcpy(&narrow, &bits32, sizeof narrow);
    if (p->type == UM_GGUF_F64) memcpy(out, &bits, sizeof *out);
    else *out = (double)narrow;
    return true;
}

bool um_gguf_bool(const um_gguf *g, const char *key, bool *out) {
    const pair *p = find_scalar(g, key);
    if (!p || p->type != UM_GGUF_BOOL) return false;
    *out = p->value[0] == 1;
    return true;
}

bool um_gguf_string(const um_gguf *g, const char *key, um_str *out) {
    const pair *p = find_scalar(g, key);
    if (!p || p->type != UM_GGUF_STRING) return false;
    *out = p->string[0];
    return true;
}

bool um_gguf_array(const um_gguf *g, const char *key, um_gguf_type *type, size_t *n) {
    const pair *p = find_pair(g, key);
    if (!p || !p->is_array) return false;
    *type = p->type;
    *n = p->n;
    return true;
}

um_str um_gguf_array_string(const um_gguf *g, const char *key, size_t i) {
    const pair *p = find_pair(g, key);
    assert(p && p->is_array && p->type == UM_GGUF_STRING && i < p->n);
    return p->string[i];
}

int64_t um_gguf_array_int(const um_gguf *g, const char *key, size_t i) {
    const pair *p = find_pair(g, key);
    int64_t v = 0;
    assert(p && p->is_array && p->type != UM_GGUF_STRING && i < p->n);
    read_int(p, i, &v);
    return v;
}
