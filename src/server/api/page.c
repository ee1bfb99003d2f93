/* The web page: files of web/, which the build turns into arrays (Makefile), served at / and under their names. */
#include "server/server.h"

/* Defines an array of each file and UM_WEB_FILES(X), a list of X(array, name, tag). */
#include "web.inc"

typedef struct web_file {
    const char *name, *tag; /* tag: changes with the content */
    const void *data;
    size_t size;
} web_file;

#define UM_X(array, name, tag) {name, tag, array, sizeof array},
static const web_file files[] = {UM_WEB_FILES(UM_X){0}};
#undef UM_X

static const char *type_of(const char *name) {
    static const char *const types[][2] = {{".html", "text/html; charset=utf-8"},
                                           {".css", "text/css; charset=utf-8"},
                                           {".js", "text/javascript; charset=utf-8"},
                                           {".svg", "image/svg+xml"}};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; i < UM_LEN(types); i++)
        if (dot && um_streq(dot, types[i][0])) return types[i][1];
    return "application/octet-stream";
}

static const web_file *find(const char *name) {
    for (const web_file *f = files; f->name; f++)
        if (um_streq(f->name, name)) return f;
    return NULL;
}

/* Nothing from elsewhere, no script in the page itself. The page may call other servers. */
static void add_headers(um_exchange *x, const web_file *f) {
    um_exchange_add_header(x, "ETag", f->tag);
    um_exchange_add_header(x, "Cache-Control", "no-cache"); /* ask again, which costs a 304 */
    um_exchange_add_header(x, "X-Content-Type-Options", "nosniff");
    um_exchange_add_header(x, "Referrer-Policy", "no-referrer");
    um_exchange_add_header(x, "Content-Security-Policy",
                           "default-src 'self'; style-src 'self'; img-src 'self' data:; connect-src *; "
                           "frame-ancestors 'none'; base-uri 'none'; form-action 'none'");
}

static void send_file(um_server *s, um_exchange *x, const char *name) {
    const web_file *f = um_server_get_config(s)->page ? find(name) : NULL;
    const char *known = um_exchange_header(x, "if-none-match");
    if (!f) {
        um_reply_error(x, 404, NULL, NULL, "this server has no page");
        return;
    }
    add_headers(x, f);
    if (known && (um_streq(known, "*") || strstr(known, f->tag))) um_exchange_send(x, 304, NULL, NULL, 0);
    else um_exchange_send(x, 200, type_of(f->name), f->data, f->size);
}

static void get_page(um_server *s, um_exchange *x, const char *id) {
    (void)id;
    send_file(s, x, "index.html");
}

/* A handler does not hear which row it serves, so each file has its own. */
#define UM_X(array, name, tag)                                                                                         \
    static void get_##array(um_server *s, um_exchange *x, const char *id) {                                            \
        (void)id;                                                                                                      \
        send_file(s, x, name);                                                                                         \
    }
UM_WEB_FILES(UM_X)
#undef UM_X

#define UM_X(array, name, tag) {"GET", "/" name, get_##array, UM_ENDPOINT_PAGE, "browsers", "a file of the page"},
static const um_endpoint rows[] = {{"GET", "/", get_page, UM_ENDPOINT_PAGE, "browsers", "the web page"},
                                   UM_WEB_FILES(UM_X)};
#undef UM_X
const um_endpoint_set um_page_endpoints = {rows, UM_LEN(rows)};
