/* Byte strings: the growing buffer and borrowed strings. */
#include "base/base.h"

#include <stdlib.h>

/* Reserves one byte more than requested, for the NUL. */
void um_buf_reserve(um_buf *b, size_t more) {
    assert(more < SIZE_MAX / 4 && b->len < SIZE_MAX / 4);
    size_t need = b->len + more + 1;
    if (need <= b->cap) return;
    b->cap = UM_MAX(UM_MAX(need, b->cap + b->cap / 2), (size_t)32);
    b->data = (char *)um_realloc(b->data, b->cap);
    b->data[b->len] = '\0';
}

void um_buf_append(um_buf *b, const void *data, size_t n) {
    um_buf_reserve(b, n);
    if (n) memcpy(b->data + b->len, data, n);
    b->len += n;
    b->data[b->len] = '\0';
}

void um_buf_puts(um_buf *b, const char *s) { um_buf_append(b, s, strlen(s)); }

void um_buf_putc(um_buf *b, char c) { um_buf_append(b, &c, 1); }

/* Formats into the free space, and formats again if that was too small. */
void um_buf_printf(um_buf *b, const char *fmt, ...) {
    um_buf_reserve(b, 64);
    for (int round = 0; round < 2; round++) {
        va_list ap;
        va_start(ap, fmt);
        size_t free_bytes = b->cap - b->len;
        int n = vsnprintf(b->data + b->len, free_bytes, fmt, ap);
        va_end(ap);
        assert(n >= 0);
        if ((size_t)n < free_bytes) {
            b->len += (size_t)n;
            return;
        }
        um_buf_reserve(b, (size_t)n);
    }
}

void um_buf_clear(um_buf *b) {
    b->len = 0;
    if (b->data) b->data[0] = '\0';
}

void um_buf_free(um_buf *b) {
    um_free(b->data);
    *b = (um_buf){0};
}

char *um_buf_take(um_buf *b) {
    um_buf_reserve(b, 0);
    char *s = b->data;
    *b = (um_buf){0};
    return s;
}

um_str um_str_of(const char *s) { return (um_str){s, s ? strlen(s) : 0}; }

bool um_str_eq(um_str a, um_str b) { return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0); }

bool um_streq(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

uint64_t um_key_hash(um_str key) {
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < key.n; i++) h = (h ^ (unsigned char)key.p[i]) * 1099511628211u;
    return h;
}
