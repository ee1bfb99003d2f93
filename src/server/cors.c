/* Cross-origin requests: browsers let a page of another origin read the server's answers only if these headers allow
 * it. They send some requests without asking, so the server itself refuses the requests of other origins. */
#include <strings.h>

#include "server/frontend.h"
#include "server/respond/reply.h"

/* Returns whether a browser may send the text as Origin: "scheme://host:port" in lower case, or "null". */
static bool is_origin(const char *text) {
    const char *host = strstr(text, "://");
    if (um_streq(text, "null")) return true;
    if (!host || host == text) return false;
    return host[3 + strcspn(host + 3, "/?#@\"' ")] == '\0' && !strpbrk(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ*");
}

um_status um_cors_check(const char *list, um_err *err) {
    um_name_list origins;
    um_status st = UM_OK;
    um_name_list_parse(&origins, list);
    for (size_t i = 0; i < origins.n && !st; i++)
        if (!um_streq(origins.word[i], "*") && !is_origin(origins.word[i]))
            st = um_fail(err, UM_EINVAL,
                         "--cors-allow-origin: expected origins as browsers send them, such as "
                         "https://chat.example.org or http://localhost:3000, without a path, or *; found \"%.100s\"",
                         origins.word[i]);
    um_name_list_free(&origins);
    return st;
}

/* The value for Access-Control-Allow-Origin, or NULL. */
static const char *allowed_origin(const um_name_list *origins, um_exchange *x) {
    const char *origin = um_exchange_header(x, "origin");
    if (!origin) return NULL;
    if (um_name_list_has(origins, "*")) return "*";
    return um_name_list_has(origins, origin) ? origin : NULL;
}

void um_cors_allow(const um_name_list *origins, um_exchange *x) {
    if (origins->n == 0) return;
    const char *origin = allowed_origin(origins, x);
    if (!um_name_list_has(origins, "*"))
        um_exchange_add_header(x, "Vary", "Origin"); /* caches must keep a response per origin */
    if (!origin) return;
    um_exchange_add_header(x, "Access-Control-Allow-Origin", origin);
    um_exchange_add_header(x, "Access-Control-Expose-Headers", "x-request-id, retry-after");
}

/* Returns whether the origin "scheme://host:port" is this server. The scheme differs behind a proxy with TLS. */
static bool is_own(const char *origin, const char *host) {
    const char *authority = strstr(origin, "://");
    return authority && host && strcasecmp(authority + 3, host) == 0;
}

/* A page of any site can send a form or an empty body to any server without a preflight. It can't read the response,
 * but the request would take effect. Browsers name the page's origin for all methods but GET and HEAD, and for all
 * requests whose response the page could read. To trustworthy addresses they also send Sec-Fetch-Site. */
bool um_cors_is_foreign(const um_name_list *origins, um_exchange *x) {
    um_str method = um_exchange_method(x);
    const char *origin = um_exchange_header(x, "origin");
    if (origin) return !is_own(origin, um_exchange_header(x, "host")) && !allowed_origin(origins, x);
    if (um_str_eq(method, UM_STR("GET")) || um_str_eq(method, UM_STR("HEAD"))) return false;
    return um_streq(um_exchange_header(x, "sec-fetch-site"), "cross-site");
}

/* Returns whether the text consists of header names and separators only. The text is copied into a header of the
 * response. */
static bool is_name_list(const char *text) {
    size_t n = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_, ");
    return text[n] == '\0' && n <= 1000;
}

void um_cors_preflight(const um_name_list *origins, um_exchange *x, const char *allow) {
    um_exchange_add_header(x, "Allow", allow);
    if (allowed_origin(origins, x)) {
        const char *wanted = um_exchange_header(x, "access-control-request-headers");
        bool copy = wanted && *wanted && is_name_list(wanted);
        um_exchange_add_header(x, "Access-Control-Allow-Methods", allow);
        um_exchange_add_header(x, "Access-Control-Allow-Headers",
                               copy ? wanted : "Authorization, Content-Type, X-Request-Id");
        um_exchange_add_header(x, "Access-Control-Max-Age", "600");
    }
    um_exchange_send(x, 204, NULL, NULL, 0);
}
