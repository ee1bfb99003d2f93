/* Writes and reads frames by the wire table. */
#include "server/link/wire_table.h"

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define IS_LITTLE_ENDIAN 1
#else
#define IS_LITTLE_ENDIAN 0
#endif

#define FRAME_USUAL 256 /* bytes; most frames are shorter */

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

/* Converts a number of n bytes between this machine's byte order and that of frames, the lowest byte first. */
static void reorder(void *to, const void *from, size_t n) {
    const uint8_t *f = (const uint8_t *)from;
    uint8_t *t = (uint8_t *)to;
    for (size_t i = 0; i < n; i++) t[i] = f[IS_LITTLE_ENDIAN ? i : n - 1 - i];
}

static void reorder_all(void *to, const void *from, size_t bytes, size_t n) {
    if (IS_LITTLE_ENDIAN || bytes == 1) {
        if (n) memcpy(to, from, bytes * n);
        return;
    }
    for (size_t i = 0; i < n; i++) reorder((char *)to + i * bytes, (const char *)from + i * bytes, bytes);
}

static void *field_of(um_msg *m, uint16_t offset) { return (char *)&m->generate + offset; }
static const void *const_field_of(const um_msg *m, uint16_t offset) { return (const char *)&m->generate + offset; }

static uint32_t count_of(const um_msg *m, const um_wire_field *f) {
    return *(const uint32_t *)const_field_of(m, f->count_offset);
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* The frame that is being written begins at out->data + start. */
typedef struct writer {
    um_buf *out;
    size_t start;
} writer;

static void put_padding(const writer *w, size_t align) {
    static const char zeros[8] = {0};
    size_t n = (0 - (w->out->len - w->start)) & (align - 1);
    um_buf_append(w->out, zeros, n);
}

static void put_number(const writer *w, const void *value, size_t bytes) {
    char raw[8];
    put_padding(w, bytes);
    reorder(raw, value, bytes);
    um_buf_append(w->out, raw, bytes);
}

/* Limits a length to 32 bits. A frame with a longer text exceeds UM_WIRE_FRAME_MAX, so no link sends it. */
static uint32_t length_of(size_t n) { return (uint32_t)UM_MIN(n, (size_t)UINT32_MAX); }

static void put_text(const writer *w, um_str s) {
    uint32_t n = length_of(s.n);
    put_number(w, &n, sizeof n);
    um_buf_append(w->out, s.p, s.n);
}

static void put_numbers(const writer *w, const void *values, size_t bytes, size_t n) {
    put_padding(w, bytes);
    um_buf_reserve(w->out, um_mul(bytes, n));
    reorder_all(w->out->data + w->out->len, values, bytes, n);
    w->out->len += bytes * n;
    w->out->data[w->out->len] = '\0';
}

static void put_many(const writer *w, const um_wire_field *f, const void *values, uint32_t n) {
    const um_pair *pair = (const um_pair *)values;
    const um_str *text = (const um_str *)values;
    if (f->kind == UM_WIRE_TEXTS)
        for (uint32_t i = 0; i < n; i++) put_text(w, text[i]);
    else if (f->kind == UM_WIRE_PAIRS)
        for (uint32_t i = 0; i < n; i++) put_text(w, pair[i].name), put_text(w, pair[i].value);
    else put_numbers(w, values, um_wire_bytes(f->kind), n);
}

static void put_field(const writer *w, const um_msg *m, const um_wire_field *f) {
    const void *value = const_field_of(m, f->offset);
    if (f->count) put_many(w, f, *(const void *const *)value, count_of(m, f));
    else if (f->kind == UM_WIRE_TEXT) put_text(w, *(const um_str *)value);
    else put_number(w, value, um_wire_bytes(f->kind));
}

void um_wire_write(um_buf *out, const um_msg *m) {
    const um_wire_layout *l = um_wire_layout_find(m->type);
    const writer w = {out, out->len};
    const uint16_t version = UM_WIRE_VERSION, type = (uint16_t)m->type;
    uint32_t bytes = 0; /* written when the frame is complete */
    assert(l);
    um_buf_reserve(out, FRAME_USUAL);
    um_buf_append(out, UM_WIRE_MAGIC, 4);
    put_number(&w, &version, 2);
    put_number(&w, &type, 2);
    put_number(&w, &bytes, 4);
    put_number(&w, &m->worker, 2);
    put_number(&w, &m->incarnation, 2);
    for (size_t i = 0; i < l->n_fields; i++) put_field(&w, m, &l->fields[i]);
    bytes = length_of(out->len - w.start);
    reorder(out->data + w.start + 8, &bytes, 4);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

typedef struct reader {
    um_str frame;
    size_t at;
    um_arena *arena;
    const char *message, *field; /* names for error messages */
    um_err *err;
} reader;

static um_status fail_length(const reader *r, size_t want) {
    return um_fail(r->err, UM_EPARSE, "frame \"%s\": field %s at byte %zu needs %zu bytes, but only %zu are left",
                   r->message, r->field, r->at, want, r->frame.n - r->at);
}

/* Takes the next n elements of `bytes` bytes, aligned to `align`. Padding must be zero, so that each message has
 * exactly one encoding. */
static um_status take(reader *r, size_t align, size_t bytes, size_t n, const char **p) {
    size_t padding = (0 - r->at) & (align - 1), total;
    if (!um_mul_ok(bytes, n, &total)) total = SIZE_MAX / 2;
    if (total > r->frame.n - r->at || padding > r->frame.n - r->at - total) return fail_length(r, padding + total);
    for (; padding; padding--, r->at++)
        if (r->frame.p[r->at])
            return um_fail(r->err, UM_EPARSE, "frame \"%s\": padding byte %zu before field %s is %d, expected 0",
                           r->message, r->at, r->field, (unsigned char)r->frame.p[r->at]);
    *p = r->frame.p + r->at;
    r->at += total;
    return UM_OK;
}

static um_status take_number(reader *r, void *out, size_t bytes) {
    const char *p;
    um_status st = take(r, bytes, bytes, 1, &p);
    if (!st) reorder(out, p, bytes);
    return st;
}

static um_status take_bool(reader *r, bool *out) {
    uint8_t byte = 0;
    um_status st = take_number(r, &byte, 1);
    if (!st && byte > 1)
        return um_fail(r->err, UM_EPARSE, "frame \"%s\": field %s at byte %zu is %d, expected 0 or 1", r->message,
                       r->field, r->at - 1, byte);
    *out = byte;
    return st;
}

static um_status take_text(reader *r, um_str *out) {
    uint32_t n = 0;
    const char *p = NULL;
    um_status st = take_number(r, &n, sizeof n);
    if (!st) st = take(r, 1, 1, n, &p);
    if (st) return st;
    size_t good = um_utf8_check(p, n);
    if (good < n)
        return um_fail(r->err, UM_EPARSE, "frame \"%s\": field %s is not UTF-8 at byte %zu", r->message, r->field,
                       r->at - n + good);
    *out = (um_str){p, n};
    return UM_OK;
}

/* Allocates n elements of `bytes` bytes in the arena. First checks that the rest of the frame can hold n
 * elements of at least `least` bytes, so that a bad count can't cause a huge allocation. */
static um_status alloc_array(reader *r, size_t n, size_t bytes, size_t least, void **out) {
    *out = NULL;
    if (n > (r->frame.n - r->at) / least) return fail_length(r, n * least);
    if (n) *out = um_arena_alloc(r->arena, n * bytes);
    if (!n || *out) return UM_OK;
    return um_fail(r->err, UM_ELIMIT, "frame \"%s\": field %s: %zu values exceed the memory limit", r->message,
                   r->field, n);
}

static um_status take_texts(reader *r, uint32_t n, const um_str **out) {
    void *array;
    um_status st = alloc_array(r, n, sizeof(um_str), 4, &array);
    um_str *text = (um_str *)array;
    for (uint32_t i = 0; i < n && !st; i++) st = take_text(r, &text[i]);
    *out = text;
    return st;
}

static um_status take_pairs(reader *r, uint32_t n, const um_pair **out) {
    void *array;
    um_status st = alloc_array(r, n, sizeof(um_pair), 8, &array);
    um_pair *pair = (um_pair *)array;
    for (uint32_t i = 0; i < n && !st; i++) {
        st = take_text(r, &pair[i].name);
        if (!st) st = take_text(r, &pair[i].value);
    }
    *out = pair;
    return st;
}

/* Takes an array of numbers. Points into the frame if byte order and alignment are right, else copies. */
static um_status take_numbers(reader *r, size_t bytes, uint32_t n, const void **out) {
    const char *p = NULL;
    void *array;
    um_status st = take(r, bytes, bytes, n, &p);
    if (st) return st;
    *out = p;
    if (n == 0 || bytes == 1 || (IS_LITTLE_ENDIAN && (uintptr_t)p % bytes == 0)) return UM_OK;
    size_t end = r->at;
    r->at -= bytes * n;
    st = alloc_array(r, n, bytes, bytes, &array);
    if (st) return st;
    r->at = end;
    reorder_all(array, p, bytes, n);
    *out = array;
    return UM_OK;
}

static um_status take_field(reader *r, um_msg *m, const um_wire_field *f) {
    void *value = field_of(m, f->offset);
    r->field = f->name;
    switch (f->kind) {
    case UM_WIRE_BOOL: return take_bool(r, (bool *)value);
    case UM_WIRE_TEXT: return take_text(r, (um_str *)value);
    case UM_WIRE_TEXTS: return take_texts(r, count_of(m, f), (const um_str **)value);
    case UM_WIRE_PAIRS: return take_pairs(r, count_of(m, f), (const um_pair **)value);
    default: break;
    }
    if (f->count) return take_numbers(r, um_wire_bytes(f->kind), count_of(m, f), (const void **)value);
    return take_number(r, value, um_wire_bytes(f->kind));
}

static um_status take_head(reader *r, um_msg *m, const um_wire_layout **layout) {
    uint16_t version = 0, type = 0;
    uint32_t bytes = 0;
    if (r->frame.n < UM_WIRE_HEAD)
        return um_fail(r->err, UM_EPARSE, "frame of %zu bytes, expected %d or more", r->frame.n, UM_WIRE_HEAD);
    if (r->frame.n > UM_WIRE_FRAME_MAX)
        return um_fail(r->err, UM_ELIMIT, "frame of %zu bytes; the limit is %zu", r->frame.n, UM_WIRE_FRAME_MAX);
    if (memcmp(r->frame.p, UM_WIRE_MAGIC, 4) != 0)
        return um_fail(r->err, UM_EPARSE, "the frame begins with %02x %02x %02x %02x, expected \"" UM_WIRE_MAGIC "\"",
                       (unsigned char)r->frame.p[0], (unsigned char)r->frame.p[1], (unsigned char)r->frame.p[2],
                       (unsigned char)r->frame.p[3]);
    reorder(&version, r->frame.p + 4, 2);
    reorder(&type, r->frame.p + 6, 2);
    reorder(&bytes, r->frame.p + 8, 4);
    reorder(&m->worker, r->frame.p + 12, 2);
    reorder(&m->incarnation, r->frame.p + 14, 2);
    if (version != UM_WIRE_VERSION)
        return um_fail(r->err, UM_EPARSE,
                       "the frame has version %u, expected %d; server and workers must be of the same release", version,
                       UM_WIRE_VERSION);
    *layout = um_wire_layout_find((um_msg_type)type);
    if (!*layout) return um_fail(r->err, UM_EPARSE, "the frame has the unknown type %u", type);
    if (bytes != r->frame.n)
        return um_fail(r->err, UM_EPARSE, "the header of frame \"%s\" says %u bytes, but the frame has %zu",
                       (*layout)->name, bytes, r->frame.n);
    m->type = (um_msg_type)type;
    return UM_OK;
}

bool um_wire_peek(um_str frame, um_msg *head) {
    const um_wire_layout *l;
    reader r = {.frame = frame};
    return take_head(&r, head, &l) == UM_OK;
}

um_status um_wire_read(um_msg *out, um_arena *arena, um_str frame, um_err *err) {
    um_err own;
    const um_wire_layout *l = NULL;
    reader r = {.frame = frame, .at = UM_WIRE_HEAD, .arena = arena, .err = err ? err : &own};
    memset(out, 0, sizeof *out);
    um_status st = take_head(&r, out, &l);
    if (st) return st;
    r.message = l->name;
    for (size_t i = 0; i < l->n_fields && !st; i++) st = take_field(&r, out, &l->fields[i]);
    if (!st && r.at != frame.n)
        st = um_fail(r.err, UM_EPARSE, "frame \"%s\": %zu bytes follow its last field", l->name, frame.n - r.at);
    if (!st && l->check && (st = l->check(out, r.err))) st = um_fail_in(r.err, "frame \"%s\"", l->name);
    return st;
}
