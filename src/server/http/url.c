/* URLs of servers. */
#include <strings.h>

#include "server/http/http.h"
#include "server/http/parse.h"

#define PORT_DEFAULT 80

/* Splits "host", "host:port" or "[address]:port". */
static um_status read_authority(um_url *out, um_str s, const char *text, um_err *err) {
    if (!um_http_is_host(s)) return um_fail(err, UM_EINVAL, "\"%s\": expected http://HOST:PORT/PATH", text);
    bool is_bracketed = s.p[0] == '[';
    const char *end = is_bracketed ? (const char *)memchr(s.p, ']', s.n) : s.p + s.n;
    const char *from = is_bracketed ? end : s.p, *colon = (const char *)memchr(from, ':', (size_t)(s.p + s.n - from));
    const char *begin = is_bracketed ? s.p + 1 : s.p, *stop = is_bracketed ? end : colon ? colon : end;
    size_t n = (size_t)(stop - begin);
    if (n >= sizeof out->host) return um_fail(err, UM_EINVAL, "\"%.60s...\": the host is too long", text);
    memcpy(out->host, begin, n);
    out->host[n] = '\0';
    out->port = PORT_DEFAULT;
    for (const char *p = colon; p && ++p < s.p + s.n;) out->port = (p == colon + 1 ? 0 : out->port * 10) + (*p - '0');
    return UM_OK;
}

um_status um_url_parse(um_url *out, const char *text, um_err *err) {
    const size_t scheme = sizeof "http://" - 1;
    *out = (um_url){.port = PORT_DEFAULT};
    if (strncasecmp(text, "https://", 8) == 0)
        return um_fail(err, UM_EINVAL,
                       "\"%s\": https is not supported; run a proxy on this machine and give its http:// address",
                       text);
    if (strncasecmp(text, "http://", scheme) != 0)
        return um_fail(err, UM_EINVAL, "\"%s\": expected http://HOST:PORT/PATH", text);
    size_t n = strcspn(text + scheme, "/?");
    if (read_authority(out, (um_str){text + scheme, n}, text, err)) return err ? err->code : UM_EINVAL;
    const char *path = text + scheme + n;
    size_t len = strlen(path);
    while (len && path[len - 1] == '/') len--;
    if (len + 2 > sizeof out->path) return um_fail(err, UM_EINVAL, "\"%.60s...\": the path is too long", text);
    for (size_t i = 0; i < len; i++)
        if (path[i] <= 0x20 || path[i] >= 0x7F || path[i] == '#')
            return um_fail(err, UM_EINVAL, "\"%s\": byte %zu of the path must be escaped", text, i);
    snprintf(out->path, sizeof out->path, "%s%.*s", len && path[0] == '?' ? "/" : "", (int)len, path);
    return UM_OK;
}
