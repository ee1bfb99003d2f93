/* A parser of server-sent events that takes bytes in pieces of any size (HTML standard, section 9.2.6). */
#include "server/http/http.h"

#define LINE_MAX_BYTES ((size_t)16 << 20)

typedef void (*event_fn)(void *arg, um_str data);

/* Reports an event at its empty line. An event without data is ignored. */
static void dispatch(um_sse_reader *r, event_fn fn, void *arg) {
    if (!r->data.len) return;
    fn(arg, (um_str){r->data.data, r->data.len - 1});
    um_buf_clear(&r->data);
}

/* Appends a data line and a newline; dispatch drops the last newline. Ignores comments and other fields. */
static void take_line(um_sse_reader *r, event_fn fn, void *arg) {
    um_str line = {r->line.data, r->line.len};
    if (!line.n) {
        dispatch(r, fn, arg);
        return;
    }
    const char *colon = (const char *)memchr(line.p, ':', line.n);
    size_t name = colon ? (size_t)(colon - line.p) : line.n, from = UM_MIN(name + 1, line.n);
    if (!um_str_eq((um_str){line.p, name}, UM_STR("data"))) return;
    if (from < line.n && line.p[from] == ' ') from++;
    um_buf_append(&r->data, line.p + from, line.n - from);
    um_buf_putc(&r->data, '\n');
}

/* Lines end with LF, CR or CR LF. */
um_status um_sse_read(um_sse_reader *r, const char *bytes, size_t n, void (*fn)(void *arg, um_str data), void *arg,
                      um_err *err) {
    for (size_t i = 0; i < n; i++) {
        bool ends = bytes[i] == '\n' || bytes[i] == '\r', is_second = bytes[i] == '\n' && r->after_cr;
        r->after_cr = bytes[i] == '\r';
        if (is_second) continue;
        if (ends) {
            take_line(r, fn, arg);
            um_buf_clear(&r->line);
            continue;
        }
        size_t k = i + 1;
        while (k < n && bytes[k] != '\n' && bytes[k] != '\r') k++;
        if (k - i > LINE_MAX_BYTES - r->line.len || r->data.len > LINE_MAX_BYTES)
            return um_fail(err, UM_ELIMIT, "an event of the stream is longer than %zu bytes", LINE_MAX_BYTES);
        um_buf_append(&r->line, bytes + i, k - i);
        i = k - 1;
    }
    return UM_OK;
}

void um_sse_reader_free(um_sse_reader *r) {
    um_buf_free(&r->line);
    um_buf_free(&r->data);
    r->after_cr = false;
}
