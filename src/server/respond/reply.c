/* Responses in JSON, the error body, ids, and small request bodies. */
#include <jansson.h>
#include <stdatomic.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

#include "server/respond/reply.h"
#include "server/workers/workers.h"

#define MESSAGE_MAX 1024
#define ID_BYTES    16
#define OBJECT_MAX  ((size_t)64 << 10) /* bytes that are parsed on the loop's thread, in 20 ms at most */

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

static const char *error_type(int status) {
    switch (status) {
    case 401:
    case 403: return "authentication_error";
    case 404: return "not_found_error";
    case 408:
    case 504: return "timeout_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

/* Writes the members before `code`. */
static void begin_error(um_jw *w, int status, const char *param, const char *message) {
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "message", message);
    um_jw_put_cstr(w, "type", error_type(status));
    um_jw_put_cstr(w, "param", param);
}

void um_put_error(um_jw *w, int status, const char *param, const char *code, const char *message) {
    begin_error(w, status, param, message);
    um_jw_put_cstr(w, "code", code);
    um_jw_end_object(w);
}

void um_put_stream_error(um_jw *w, int status, const char *param, const char *code, const char *message) {
    begin_error(w, status, param, message);
    if (code) um_jw_put_cstr(w, "code", code);
    else um_jw_put_int(w, "code", status);
    um_jw_end_object(w);
}

/* Returns Anthropic's name for an error status. */
static const char *anthropic_error_type(int status) {
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    case 408:
    case 504: return "timeout_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

void um_put_anthropic_error(um_jw *w, int status, const char *param, const char *message) {
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "type", "error");
    um_jw_key(w, "error");
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "type", anthropic_error_type(status));
    um_jw_put_cstr(w, "message", message);
    if (param) um_jw_put_cstr(w, "param", param);
    um_jw_end_object(w);
    um_jw_end_object(w);
}

bool um_client_is_anthropic(um_exchange *x) { return um_exchange_header(x, "anthropic-version") != NULL; }

/* Other clients may call Anthropic's path without the header. */
static bool wants_anthropic_error(um_exchange *x) {
    return um_client_is_anthropic(x) || strstr(um_exchange_path(x), "/v1/messages");
}

void um_put_error_body(um_exchange *x, um_jw *w, int status, const char *param, const char *code, const char *message) {
    if (wants_anthropic_error(x)) {
        um_put_anthropic_error(w, status, param, message);
        return;
    }
    um_jw_begin_object(w);
    um_jw_key(w, "error");
    um_put_error(w, status, param, code, message);
    um_jw_end_object(w);
}

static void send_error(um_exchange *x, int status, const char *param, const char *code, const char *message) {
    um_buf body = {0};
    um_jw w;
    um_jw_init(&w, &body);
    um_put_error_body(x, &w, status, param, code, message);
    if (status == 429 && !um_exchange_has_header(x, "Retry-After")) um_exchange_add_header(x, "Retry-After", "1");
    if (status == 503) um_exchange_add_header(x, "Retry-After", "5");
    um_reply_json(x, status, &body);
    um_buf_free(&body);
}

void um_reply_error(um_exchange *x, int status, const char *param, const char *code, const char *fmt, ...) {
    char message[MESSAGE_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    send_error(x, status, param, code, message);
}

void um_reply_err(um_exchange *x, const um_err *err) {
    send_error(x, um_http_status_of(err->code), *err->param ? err->param : NULL, NULL, err->msg);
}

/* ---- Responses --------------------------------------------------------------------------------------------------- */

void um_reply_json(um_exchange *x, int status, const um_buf *json) {
    um_exchange_send(x, status, "application/json", json->data, json->len);
}

static void fill_random(unsigned char *bytes, size_t n) {
    /* getrandom blocks until the system's entropy pool is ready, then returns up to 256 bytes at once. */
    ssize_t got = getrandom(bytes, n, 0);
    assert(got == (ssize_t)n);
    (void)got;
}

static void write_id(const char *prefix, const unsigned char bytes[ID_BYTES], char out[64]) {
    int at = snprintf(out, 64 - 2 * ID_BYTES, "%s", prefix);
    at = UM_MIN(at, 64 - 2 * ID_BYTES - 1);
    for (int i = 0; i < ID_BYTES; i++, at += 2) snprintf(out + at, 3, "%02x", bytes[i]);
}

void um_put_deleted(um_buf *json, const char *id, const char *object) {
    um_buf_printf(json, "{\"id\":\"%s\",\"object\":\"%s\",\"deleted\":true}", id, object);
}

void um_make_id(const char *prefix, char out[64]) {
    unsigned char bytes[ID_BYTES];
    fill_random(bytes, sizeof bytes);
    write_id(prefix, bytes, out);
}

int64_t um_make_number(void) {
    uint64_t n;
    do {
        fill_random((unsigned char *)&n, sizeof n);
        n >>= 11;
    } while (n == 0);
    return (int64_t)n;
}

void um_make_ordered_id(const char *prefix, char out[64]) {
    static atomic_uint_fast64_t last;
    unsigned char bytes[ID_BYTES];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t time = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    uint_fast64_t before = atomic_load(&last);
    do time = UM_MAX(time, (uint64_t)before + 1);
    while (!atomic_compare_exchange_weak(&last, &before, time));
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(time >> (56 - 8 * i));
    fill_random(bytes + 8, ID_BYTES - 8);
    write_id(prefix, bytes, out);
}

/* ---- Bodies ------------------------------------------------------------------------------------------------------ */

/* "application/json; charset=utf-8", "application/problem+json" */
static bool is_json_type(const char *type) {
    size_t n = strcspn(type, "; \t");
    if (n == 16 && strncasecmp(type, "application/json", n) == 0) return true;
    return n > 5 && strncasecmp(type + n - 5, "+json", 5) == 0;
}

um_coding um_body_coding(um_exchange *x) { return um_coding_of(um_exchange_header(x, "content-encoding")); }

static bool refuse_coding(um_exchange *x) {
    um_exchange_add_header(x, "Accept-Encoding", um_coding_names());
    um_reply_error(x, 415, NULL, NULL, "unsupported Content-Encoding %.100s; expected one of: %s",
                   um_exchange_header(x, "content-encoding"), um_coding_names());
    return false;
}

bool um_body_is_plain(um_exchange *x) {
    if (um_body_coding(x) == UM_CODING_NONE) return true;
    um_exchange_add_header(x, "Accept-Encoding", "identity");
    um_reply_error(x, 415, NULL, NULL, "expected a body without Content-Encoding, found %.100s",
                   um_exchange_header(x, "content-encoding"));
    return false;
}

/* A page of another origin can't send this content type without a preflight, so the server insists on it. */
static bool check_type(um_exchange *x) {
    const char *type = um_exchange_header(x, "content-type");
    if (!type || !is_json_type(type)) {
        um_reply_error(x, 415, NULL, NULL, "expected the header \"Content-Type: application/json\", found %.100s",
                       type ? type : "none");
        return false;
    }
    return um_body_coding(x) != UM_CODING_UNKNOWN || refuse_coding(x);
}

bool um_body_is_json(um_exchange *x) {
    if (!check_type(x)) return false;
    if (um_exchange_body(x).n) return true;
    um_reply_error(x, 400, NULL, NULL, "expected a JSON object, found an empty body");
    return false;
}

int um_body_status_of(um_status st) { return st == UM_ELIMIT ? 413 : st == UM_ENOMEM ? 503 : 400; }

/* Parses a text of at most OBJECT_MAX bytes. Answers errors. */
static json_t *parse_object(um_exchange *x, um_str body) {
    json_t *root = NULL;
    um_err err = {0};
    if (body.n > OBJECT_MAX) {
        um_reply_error(x, 413, NULL, NULL, "a body has at most %zu bytes here, this one has %zu", OBJECT_MAX, body.n);
        return NULL;
    }
    if (um_json_parse_request(&root, body.p, body.n, "body", &err)) {
        um_reply_error(x, 400, *err.param ? err.param : NULL, NULL, "%s", err.msg);
        return NULL;
    }
    if (json_is_object(root)) return root;
    um_reply_error(x, 400, NULL, NULL, "expected a JSON object, found another JSON value");
    json_decref(root);
    return NULL;
}

json_t *um_read_object(um_exchange *x) {
    const um_coding_limits limits = {OBJECT_MAX, OBJECT_MAX};
    um_buf decoded = {0};
    um_err err = {0};
    if (!um_body_is_json(x)) return NULL;
    um_coding coding = um_body_coding(x);
    if (coding == UM_CODING_NONE) return parse_object(x, um_exchange_body(x));
    um_status st = um_coding_decode(coding, um_exchange_body(x), limits, &decoded, &err);
    json_t *root = NULL;
    if (st) um_reply_error(x, um_body_status_of(st), NULL, NULL, "%s", err.msg);
    else root = parse_object(x, (um_str){decoded.data, decoded.len});
    um_buf_free(&decoded);
    return root;
}

bool um_read_empty(um_exchange *x) {
    if (um_exchange_body(x).n == 0) return true;
    json_t *root = um_read_object(x);
    const char *key = json_object_iter_key(json_object_iter(root));
    if (key) um_reply_error(x, 400, key, NULL, "unknown field \"%.80s\": there is none here", key);
    bool ok = root && !key;
    json_decref(root);
    return ok;
}
