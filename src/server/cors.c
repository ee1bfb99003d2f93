/* Cross-origin requests: browsers let a page of another origin call the server only where these headers say so. */
#include "server/frontend.h"

/* The value for Access-Control-Allow-Origin, or NULL. */
static const char *allowed_origin(const um_words *origins, um_exchange *x) {
    const char *origin = um_exchange_header(x, "origin");
    if (!origin) return NULL;
    if (um_words_have(origins, "*")) return "*";
    return um_words_have(origins, origin) ? origin : NULL;
}

void um_cors_allow(const um_words *origins, um_exchange *x) {
    if (origins->n == 0) return;
    const char *origin = allowed_origin(origins, x);
    if (!um_words_have(origins, "*")) um_exchange_add_header(x, "Vary", "Origin"); /* or a cache mixes them up */
    if (!origin) return;
    um_exchange_add_header(x, "Access-Control-Allow-Origin", origin);
    um_exchange_add_header(x, "Access-Control-Expose-Headers", "x-request-id, retry-after");
}

/* A page can send a form, or nothing at all, to any server without asking it first, which a JSON body can't be. It does
 * not get to read the answer, but what it asked for would be done. Browsers say where a request comes from. */
bool um_cors_is_foreign(const um_words *origins, um_exchange *x) {
    um_str method = um_exchange_method(x);
    if (um_str_eq(method, UM_STR("GET")) || um_str_eq(method, UM_STR("HEAD"))) return false;
    return um_streq(um_exchange_header(x, "sec-fetch-site"), "cross-site") && !allowed_origin(origins, x);
}

/* Names of headers and what separates them: nothing that could end the header that they are copied to. */
static bool is_name_list(const char *text) {
    size_t n = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_, ");
    return text[n] == '\0' && n <= 1000;
}

void um_cors_preflight(const um_words *origins, um_exchange *x, const char *allow) {
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
