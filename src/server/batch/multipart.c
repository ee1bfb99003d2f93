/* Reads the content type, then part after part. */
#include "server/batch/multipart.h"

#include <strings.h>

static um_status fail_at(const um_multipart *m, const char *found, um_err *err) {
    return um_fail(err, UM_EPARSE, "multipart body: part %d, byte %zu: %s", m->n_parts + 1, m->at, found);
}

/* ---- The content type -------------------------------------------------------------------------------------------- */

static bool equals_nocase(um_str name, const char *want) {
    return name.n == strlen(want) && strncasecmp(name.p, want, name.n) == 0;
}

/* Reads a value, quoted or not, and moves *i from its first character to its end. Returns false if the value does not
 * fit into `out`, contains a NUL, or lacks its closing quote. */
static bool read_value(um_str s, size_t *i, char *out, size_t size) {
    bool quoted = *i < s.n && s.p[*i] == '"';
    size_t n = 0;
    for (*i += quoted; *i < s.n && s.p[*i] != (quoted ? '"' : ';'); ++*i) {
        if (quoted && s.p[*i] == '\\' && *i + 1 < s.n) ++*i;
        if (n + 1 >= size || s.p[*i] == '\0') return false;
        out[n++] = s.p[*i];
    }
    out[n] = '\0';
    bool closed = !quoted || *i < s.n;
    *i += quoted && closed;
    return closed;
}

/* Reads the parameter `key` of a header's value like "form-data; name=x; filename=\"y\"". Names are compared without
 * regard to case. Returns false if the parameter is missing or does not fit. */
static bool read_parameter(um_str s, const char *key, char *out, size_t size) {
    char other[512];
    size_t i = 0;
    while (i < s.n && s.p[i] != ';') i++;
    while (i < s.n) {
        for (i++; i < s.n && (s.p[i] == ' ' || s.p[i] == '\t');) i++;
        um_str name = {s.p + i, 0};
        while (i < s.n && s.p[i] != '=' && s.p[i] != ';') i++;
        name.n = (size_t)(s.p + i - name.p);
        bool wanted = equals_nocase(name, key), given = i < s.n && s.p[i] == '=';
        i += given;
        bool taken = !given || read_value(s, &i, wanted ? out : other, wanted ? size : sizeof other);
        if (wanted || !taken) return wanted && given && taken;
        while (i < s.n && s.p[i] != ';') i++;
    }
    return false;
}

static bool is_boundary(const char *s) {
    static const char others[] = "'()+_,-./:=? ";
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++) {
        bool plain = (s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z');
        if (!plain && !strchr(others, s[i])) return false;
    }
    return n > 0 && s[n - 1] != ' ';
}

um_status um_multipart_open(um_multipart *m, const char *content_type, um_str body, um_err *err) {
    static const char type[] = "multipart/form-data";
    char boundary[71];
    *m = (um_multipart){.body = body};
    if (strncasecmp(content_type, type, sizeof type - 1) != 0)
        return um_fail(err, UM_EINVAL, "expected the content type %s, found %.100s", type, content_type);
    if (!read_parameter(um_str_of(content_type), "boundary", boundary, sizeof boundary) || !is_boundary(boundary))
        return um_fail(err, UM_EINVAL, "%s: expected a boundary of 1 to 70 characters in the content type %.100s", type,
                       content_type);
    m->n_boundary = (size_t)snprintf(m->boundary, sizeof m->boundary, "\r\n--%s", boundary);
    /* The first boundary begins the body and has no line end before it. */
    size_t n = m->n_boundary - 2;
    if (body.n < n || memcmp(body.p, m->boundary + 2, n) != 0)
        return um_fail(err, UM_EPARSE, "multipart body: expected it to begin with its boundary --%s", boundary);
    m->at = n;
    return UM_OK;
}

/* ---- Parts ------------------------------------------------------------------------------------------------------- */

static bool is_next(const um_multipart *m, const char *text) {
    size_t n = strlen(text);
    return m->body.n - m->at >= n && memcmp(m->body.p + m->at, text, n) == 0;
}

/* Reads up to the next `mark` and skips the mark. Returns false if there is none within `most` bytes. */
static bool read_until(um_multipart *m, um_str mark, size_t most, um_str *out) {
    size_t n = UM_MIN(m->body.n - m->at, most);
    const char *from = m->body.p + m->at, *end = memmem(from, n, mark.p, mark.n);
    if (!end) return false;
    *out = (um_str){from, (size_t)(end - from)};
    m->at += out->n + mark.n;
    return true;
}

/* Splits "name: value" and trims the value. */
static bool split_header(um_str line, um_str *name, um_str *value) {
    const char *colon = memchr(line.p, ':', line.n);
    if (!colon || colon == line.p) return false;
    *name = (um_str){line.p, (size_t)(colon - line.p)};
    size_t from = name->n + 1, to = line.n;
    while (from < to && (line.p[from] == ' ' || line.p[from] == '\t')) from++;
    while (to > from && (line.p[to - 1] == ' ' || line.p[to - 1] == '\t')) to--;
    *value = (um_str){line.p + from, to - from};
    return true;
}

static um_status read_disposition(const um_multipart *m, um_str value, um_form_part *out, um_err *err) {
    static const char type[] = "form-data";
    if (value.n < sizeof type - 1 || strncasecmp(value.p, type, sizeof type - 1) != 0)
        return fail_at(m, "expected Content-Disposition: form-data", err);
    if (!read_parameter(value, "name", out->name, sizeof out->name) || !out->name[0])
        return fail_at(m, "expected a name of at most 127 bytes in Content-Disposition", err);
    if (!read_parameter(value, "filename", out->filename, sizeof out->filename)) out->filename[0] = '\0';
    bool readable = um_utf8_check(out->name, strlen(out->name)) == strlen(out->name) &&
                    um_utf8_check(out->filename, strlen(out->filename)) == strlen(out->filename);
    return readable ? UM_OK : fail_at(m, "a name is not UTF-8", err);
}

static um_status read_header(const um_multipart *m, um_str line, um_form_part *out, um_err *err) {
    um_str name, value;
    if (!split_header(line, &name, &value)) return fail_at(m, "expected a header, \"name: value\"", err);
    if (equals_nocase(name, "content-disposition")) return read_disposition(m, value, out, err);
    if (!equals_nocase(name, "content-transfer-encoding")) return UM_OK; /* other headers are ignored */
    if (equals_nocase(value, "binary") || equals_nocase(value, "8bit") || equals_nocase(value, "7bit")) return UM_OK;
    return fail_at(m, "unsupported Content-Transfer-Encoding; expected binary, 8bit or 7bit", err);
}

static um_status read_headers(um_multipart *m, um_form_part *out, um_err *err) {
    const um_str line_end = UM_STR("\r\n");
    size_t end = UM_MIN(m->body.n, m->at + UM_PART_HEAD_MAX);
    for (;;) {
        um_str line;
        if (m->at >= end || !read_until(m, line_end, end - m->at, &line))
            return fail_at(m, "expected headers of at most 8192 bytes and an empty line after them", err);
        if (line.n == 0) break;
        um_status st = read_header(m, line, out, err);
        if (st) return st;
    }
    return out->name[0] ? UM_OK : fail_at(m, "expected a Content-Disposition", err);
}

um_status um_multipart_next(um_multipart *m, um_form_part *out, bool *more, um_err *err) {
    *out = (um_form_part){0};
    *more = false;
    if (m->ended || is_next(m, "--")) {
        m->ended = true; /* bytes after the last boundary are ignored (RFC 2046) */
        return UM_OK;
    }
    if (m->n_parts == UM_PARTS_MAX) return um_fail(err, UM_ELIMIT, "multipart body: more than %d parts", UM_PARTS_MAX);
    if (!is_next(m, "\r\n")) return fail_at(m, "expected a line end after the boundary", err);
    m->at += 2;
    um_status st = read_headers(m, out, err);
    if (st) return st;
    if (!read_until(m, (um_str){m->boundary, m->n_boundary}, m->body.n, &out->data))
        return fail_at(m, "expected the boundary after the part, found the end of the body", err);
    m->n_parts++;
    *more = true;
    return UM_OK;
}
