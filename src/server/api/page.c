/* The web page: the files of web/ at / and under their names. The build turns them into arrays (Makefile). */
#include "server/api/apis.h"
#include "server/respond/reply.h"

/* Defines an array for each file, and UM_WEB_FILES(X), a list of X(array, name, tag). */
#include "web.inc"

typedef struct web_file {
    const char *name, *tag; /* tag: a hash of the content */
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

/* The policy forbids scripts inside the HTML and files from other servers. Requests to other servers are allowed. */
static void add_headers(um_exchange *x, const web_file *f) {
    um_exchange_add_header(x, "ETag", f->tag);
    um_exchange_add_header(x, "Cache-Control", "no-cache"); /* browsers ask each time and get a 304 */
    um_exchange_add_header(x, "X-Content-Type-Options", "nosniff");
    um_exchange_add_header(x, "Referrer-Policy", "no-referrer");
    um_exchange_add_header(x, "Content-Security-Policy",
                           "default-src 'self'; style-src 'self'; img-src 'self' data:; connect-src *; "
                           "frame-ancestors 'none'; base-uri 'none'; form-action 'none'");
}

static void send_file(um_service *s, um_exchange *x, const char *name) {
    const web_file *f = s->setup.config->page ? find(name) : NULL;
    const char *known = um_exchange_header(x, "if-none-match");
    if (!f) {
        um_reply_error(x, 404, NULL, NULL, "this server has no web page");
        return;
    }
    add_headers(x, f);
    if (known && (um_streq(known, "*") || strstr(known, f->tag))) um_exchange_send(x, 304, NULL, NULL, 0);
    else um_exchange_send(x, 200, type_of(f->name), f->data, f->size);
}

static void get_page(um_service *s, um_exchange *x, const char *id) {
    (void)id;
    send_file(s, x, "index.html");
}

/* A handler does not know the row that it was called for, so each file has its own handler. */
#define UM_X(array, name, tag)                                                                                         \
    static void get_##array(um_service *s, um_exchange *x, const char *id) {                                           \
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
