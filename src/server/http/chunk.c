/* The line before a chunk: the size in hexadecimal digits, and extensions, which are checked and ignored. */
#include "server/http/parse.h"

static size_t token_at(um_str s, size_t i) {
    size_t n = 0;
    while (i + n < s.n && um_http_is_token_char(s.p[i + n])) n++;
    return n;
}

/* Returns the length of the quoted string at s.p[i]; 0: none, or it is not closed. */
static size_t quoted_at(um_str s, size_t i) {
    if (i >= s.n || s.p[i] != '"') return 0;
    for (size_t k = i + 1; k < s.n; k++) {
        unsigned char c = (unsigned char)s.p[k];
        if (c == '"') return k + 1 - i;
        if (c == '\\' && ++k == s.n) return 0;
        c = (unsigned char)s.p[k];
        if ((c < 0x20 && c != '\t') || c == 0x7F) return 0;
    }
    return 0;
}

/* Checks *( ";" name [ "=" value ] ). Rejects the spaces that RFC 9112 calls "bad whitespace", which clients avoid. */
static bool extensions_ok(um_str s, size_t i) {
    while (i < s.n) {
        if (s.p[i++] != ';') return false;
        size_t n = token_at(s, i);
        if (!n) return false;
        i += n;
        if (i == s.n || s.p[i] != '=') continue;
        i++;
        n = token_at(s, i);
        if (!n) n = quoted_at(s, i);
        if (!n) return false;
        i += n;
    }
    return true;
}

bool um_http_read_chunk_line(um_http_parser *p, um_str line, uint64_t *size) {
    size_t i = 0;
    *size = 0;
    for (int d; i < line.n && (d = um_http_hex_digit(line.p[i])) >= 0; i++) {
        if (*size > UINT64_MAX >> 4) return um_http_reject(p, 400, "the size of a chunk is too large");
        *size = *size << 4 | (uint64_t)d;
    }
    if (!i) return um_http_reject(p, 400, "the size of a chunk is not a hexadecimal number");
    if (!extensions_ok(line, i)) return um_http_reject(p, 400, "invalid chunk extension");
    p->extensions += line.n - i;
    if (p->extensions > UM_HTTP_EXTENSIONS_MAX)
        return um_http_reject(p, 400, "the chunk extensions are longer than %zu bytes", UM_HTTP_EXTENSIONS_MAX);
    return true;
}
