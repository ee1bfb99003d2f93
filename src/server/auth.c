/* API keys. */
#include <strings.h>

#include "server/frontend.h"
#include "server/respond/reply.h"

#define CREDENTIALS_MAX 512

/* Returns the text after the scheme ("Bearer ", in any case); NULL for another scheme. */
static const char *after_scheme(const char *header, const char *scheme) {
    size_t n = strlen(scheme);
    if (strncasecmp(header, scheme, n) != 0 || header[n] != ' ') return NULL;
    return header + n + strspn(header + n, " ");
}

static int base64_value(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Returns the number of bytes, at most `size`. Stops at the first character that is not a base64 digit. */
static size_t base64_decode(const char *text, char *out, size_t size) {
    uint32_t bits = 0;
    size_t n = 0;
    for (int held = 0; n < size && base64_value(*text) >= 0; text++) {
        bits = bits << 6 | (uint32_t)base64_value(*text);
        held += 6;
        if (held < 8) continue;
        held -= 8;
        out[n++] = (char)(bits >> held);
    }
    return n;
}

/* Browsers send base64 of "name:password" after "Basic ". The password is the key. */
static um_key *match_password(const um_keys *keys, const char *encoded) {
    char text[CREDENTIALS_MAX];
    size_t n = base64_decode(encoded, text, sizeof text);
    const char *colon = memchr(text, ':', n);
    return colon ? um_keys_match(keys, colon + 1, n - (size_t)(colon + 1 - text)) : NULL;
}

um_key *um_auth_key(const um_keys *keys, um_exchange *x, bool basic) {
    const char *plain = um_exchange_header(x, "x-api-key"); /* sent by Anthropic's clients */
    const char *header = um_exchange_header(x, "authorization");
    um_key *key = plain ? um_keys_match(keys, plain, strlen(plain)) : NULL;
    if (key || !header) return key;
    const char *token = after_scheme(header, "Bearer");
    if (token) return um_keys_match(keys, token, strlen(token));
    const char *encoded = basic ? after_scheme(header, "Basic") : NULL;
    return encoded ? match_password(keys, encoded) : NULL;
}

void um_auth_refuse(um_exchange *x, bool basic) {
    bool given = um_exchange_header(x, "authorization") || um_exchange_header(x, "x-api-key");
    /* A browser answers a Basic challenge with a dialog, so only pages get one. */
    um_exchange_add_header(x, "WWW-Authenticate", basic ? "Basic realm=\"unmask\", charset=\"UTF-8\"" : "Bearer");
    if (given) um_reply_error(x, 401, NULL, "invalid_api_key", "the API key is wrong");
    else
        um_reply_error(x, 401, NULL, "invalid_api_key",
                       "this server asks for an API key: send the header \"Authorization: Bearer KEY\"");
}
