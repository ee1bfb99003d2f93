/* Parts of a body between its boundaries. */
#include "server/batch/multipart.h"

#include <strings.h>

static um_status fail_at(const um_multipart *m, const char *found, um_err *err) {
    return um_fail(err, UM_EPARSE, "multipart body: part %d, byte %zu: %s", m->n_parts + 1, m->at, found);
}

/* ---- The content type -------------------------------------------------------------------------------------------- */

static bool is_called(um_str name, const char *want) {
    return name.n == strlen(want) && strncasecmp(name.p, want, name.n) == 0;
}

/* One value, quoted or not; *i stands at its first character, and behind it afterwards. False: it does not fit into
 * out, or its quote has no end. */
static bool take_value(um_str s, size_t *i, char *out, size_t size) {
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

/* The parameter `key` of a header's value, "form-data; name=x; filename=\"y\"". False: there is none, or it does not
 * fit. Names are compared in any case. */
static bool take_parameter(um_str s, const char *key, char *out, size_t size) {
    char other[512];
    size_t i = 0;
    while (i < s.n && s.p[i] != ';') i++;
    while (i < s.n) {
        for (i++; i < s.n && (s.p[i] == ' ' || s.p[i] == '\t');) i++;
        um_str name = {s.p + i, 0};
        while (i < s.n && s.p[i] != '=' && s.p[i] != ';') i++;
        name.n = (size_t)(s.p + i - name.p);
        bool wanted = is_called(name, key), given = i < s.n && s.p[i] == '=';
        i += given;
        bool taken = !given || take_value(s, &i, wanted ? out : other, wanted ? size : sizeof other);
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
    static const char kind[] = "multipart/form-data";
    char boundary[71];
    *m = (um_multipart){.body = body};
    if (strncasecmp(content_type, kind, sizeof kind - 1) != 0)
        return um_fail(err, UM_EINVAL, "expected the content type %s, found %.100s", kind, content_type);
    if (!take_parameter(um_str_of(content_type), "boundary", boundary, sizeof boundary) || !is_boundary(boundary))
        return um_fail(err, UM_EINVAL, "%s: expected a boundary of 1 to 70 letters in the content type %.100s", kind,
                       content_type);
    m->n_boundary = (size_t)snprintf(m->boundary, sizeof m->boundary, "\r\n--%s", boundary);
    /* The first one begins the body, without a line end before it. */
    size_t n = m->n_boundary - 2;
    if (body.n < n || memcmp(body.p, m->boundary + 2, n) != 0)
        return um_fail(err, UM_EPARSE, "multipart body: expected it to begin with its boundary --%s", boundary);
    m->at = n;
    return UM_OK;
}

/* ---- Parts ------------------------------------------------------------------------------------------------------- */

static bool stands(const um_multipart *m, const char *text) {
    size_t n = strlen(text);
    return m->body.n - m->at >= n && memcmp(m->body.p + m->at, text, n) == 0;
}

/* What stands between here and the next `mark`; the mark is passed. False: there is none within `most` bytes. */
static bool read_to(um_multipart *m, um_str mark, size_t most, um_str *out) {
    size_t room = UM_MIN(m->body.n - m->at, most);
    const char *from = m->body.p + m->at, *end = memmem(from, room, mark.p, mark.n);
    if (!end) return false;
    *out = (um_str){from, (size_t)(end - from)};
    m->at += out->n + mark.n;
    return true;
}

/* "name: value"; the value without blanks around it. */
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

static um_status take_disposition(const um_multipart *m, um_str value, um_part *out, um_err *err) {
    static const char kind[] = "form-data";
    if (value.n < sizeof kind - 1 || strncasecmp(value.p, kind, sizeof kind - 1) != 0)
        return fail_at(m, "expected Content-Disposition: form-data", err);
    if (!take_parameter(value, "name", out->name, sizeof out->name) || !out->name[0])
        return fail_at(m, "expected a name of at most 127 bytes in Content-Disposition", err);
    if (!take_parameter(value, "filename", out->filename, sizeof out->filename)) out->filename[0] = '\0';
    bool readable = um_utf8_check(out->name, strlen(out->name)) == strlen(out->name) &&
                    um_utf8_check(out->filename, strlen(out->filename)) == strlen(out->filename);
    return readable ? UM_OK : fail_at(m, "a name is not UTF-8", err);
}

static um_status take_header(const um_multipart *m, um_str line, um_part *out, um_err *err) {
    um_str name, value;
    if (!split_header(line, &name, &value)) return fail_at(m, "expected a header, \"name: value\"", err);
    if (is_called(name, "content-disposition")) return take_disposition(m, value, out, err);
    if (!is_called(name, "content-transfer-encoding")) return UM_OK; /* of the others nothing depends */
    if (is_called(value, "binary") || is_called(value, "8bit") || is_called(value, "7bit")) return UM_OK;
    return fail_at(m, "a Content-Transfer-Encoding other than binary is not understood", err);
}

static um_status take_head(um_multipart *m, um_part *out, um_err *err) {
    const um_str line_end = UM_STR("\r\n");
    size_t end = UM_MIN(m->body.n, m->at + UM_PART_HEAD_MAX);
    for (;;) {
        um_str line;
        if (m->at >= end || !read_to(m, line_end, end - m->at, &line))
            return fail_at(m, "expected headers of at most 8192 bytes and an empty line behind them", err);
        if (line.n == 0) break;
        um_status st = take_header(m, line, out, err);
        if (st) return st;
    }
    return out->name[0] ? UM_OK : fail_at(m, "expected a Content-Disposition", err);
}

um_status um_multipart_next(um_multipart *m, um_part *out, bool *more, um_err *err) {
    *out = (um_part){0};
    *more = false;
    if (m->ended || stands(m, "--")) {
        m->ended = true; /* what stands behind the last boundary says nothing */
        return UM_OK;
    }
    if (m->n_parts == UM_PARTS_MAX) return um_fail(err, UM_ELIMIT, "multipart body: more than %d parts", UM_PARTS_MAX);
    if (!stands(m, "\r\n")) return fail_at(m, "expected a line end behind the boundary", err);
    m->at += 2;
    um_status st = take_head(m, out, err);
    if (st) return st;
    if (!read_to(m, (um_str){m->boundary, m->n_boundary}, m->body.n, &out->data))
        return fail_at(m, "expected the boundary behind the part, found the end of the body", err);
    m->n_parts++;
    *more = true;
    return UM_OK;
}
