/* /v1/files: uploads inputs of batches; lists, sends and deletes files. */
#include <errno.h>
#include <fcntl.h>
#include <strings.h>
#include <unistd.h>

#include "server/batch/multipart.h"
#include "server/batch/request.h"
#include "server/generate/intake.h"
#include "server/respond/access.h"
#include "server/respond/reply.h"

#define CHUNK            ((size_t)256 << 10) /* bytes of a file that are read and sent at once */
#define FILES_LISTED_MAX 10000
#define CONTENT_TYPE     "application/octet-stream"

/* ---- Upload ------------------------------------------------------------------------------------------------------ */

/* An upload, sent as form data or as the body itself. */
typedef struct upload {
    char purpose[16], name[256];
    char anchor[16], seconds[16]; /* members of expires_after; "": not given */
    int64_t ttl;                  /* seconds; 0: not given */
    um_str data;                  /* p NULL: no file yet */
} upload;

static const char field_anchor[] = "expires_after[anchor]", field_seconds[] = "expires_after[seconds]";

/* Copies a text. Truncates a text that is too long; the text is then invalid and refused later. */
static void take_text(char *out, size_t size, um_str text) {
    snprintf(out, size, "%.*s", (int)UM_MIN(text.n, size), text.p);
}

static um_status take_part(upload *u, const um_form_part *p, um_err *err) {
    if (um_streq(p->name, "purpose")) {
        take_text(u->purpose, sizeof u->purpose, p->data);
    } else if (um_streq(p->name, field_anchor)) {
        take_text(u->anchor, sizeof u->anchor, p->data);
    } else if (um_streq(p->name, field_seconds)) {
        take_text(u->seconds, sizeof u->seconds, p->data);
    } else if (um_streq(p->name, "file")) {
        if (u->data.p) return um_fail_param(err, UM_EINVAL, "file", "duplicate field; expected one file");
        snprintf(u->name, sizeof u->name, "%s", p->filename);
        u->data = p->data;
    } else {
        return um_fail_param(err, UM_EINVAL, p->name, "unknown field; an upload has file, purpose and expires_after");
    }
    return UM_OK;
}

static um_status read_parts(upload *u, const char *type, um_str body, um_err *err) {
    um_multipart m;
    um_form_part part;
    bool more = true;
    um_status st = um_multipart_open(&m, type, body, err);
    while (!st && more) {
        st = um_multipart_next(&m, &part, &more, err);
        if (!st && more) st = take_part(u, &part, err);
    }
    return st;
}

/* Reads an upload whose body is the file. The other fields are in the query. */
static void read_raw(upload *u, um_exchange *x, um_str body) {
    const struct {
        const char *key;
        char *out;
        size_t size;
    } fields[] = {
        {"purpose", u->purpose, sizeof u->purpose},
        {"filename", u->name, sizeof u->name},
        {field_anchor, u->anchor, sizeof u->anchor},
        {field_seconds, u->seconds, sizeof u->seconds},
    };
    for (size_t i = 0; i < UM_LEN(fields); i++) {
        const char *value = um_exchange_query(x, fields[i].key);
        snprintf(fields[i].out, fields[i].size, "%s", value ? value : "");
    }
    u->data = body;
}

static um_status check_expiry(upload *u, um_err *err) {
    if (!u->anchor[0] && !u->seconds[0]) return UM_OK;
    if (!um_parse_int(u->seconds, &u->ttl)) u->ttl = 0;
    return um_expires_after_check("expires_after", u->anchor, u->ttl, err);
}

static um_status check_upload(upload *u, um_err *err) {
    if (!um_streq(u->purpose, "batch"))
        return um_fail_param(err, UM_EINVAL, "purpose", "expected batch, found \"%s\"", u->purpose);
    if (!u->data.p || u->data.n == 0)
        return um_fail_param(err, UM_EINVAL, "file", "missing or empty; expected a file with one JSON object a line");
    /* A long name may have been cut inside a character. */
    u->name[um_utf8_check(u->name, strlen(u->name))] = '\0';
    if (!u->name[0]) snprintf(u->name, sizeof u->name, "upload.jsonl");
    return check_expiry(u, err);
}

static void put_object(const um_file *f, um_buf *json) {
    um_jw w;
    um_jw_init(&w, json);
    um_file_put(f, &w);
}

static void post_file(um_service *s, um_exchange *x, const char *id) {
    static const char multipart[] = "multipart/";
    um_batch_store *store = um_batch_store_of(s, x);
    const char *type = um_exchange_header(x, "content-type");
    upload u = {.data = {0}};
    um_err err = {0};
    um_status st = UM_OK;
    (void)id;
    if (!store || !um_body_is_plain(x)) return;
    if (type && strncasecmp(type, multipart, sizeof multipart - 1) == 0)
        st = read_parts(&u, type, um_exchange_body(x), &err);
    else read_raw(&u, x, um_exchange_body(x));
    if (!st) st = check_upload(&u, &err);
    if (st) {
        um_reply_error(x, 400, *err.param ? err.param : NULL, NULL, "%s", err.msg);
        return;
    }
    const int full = um_files_check_room(store, x, 1, (int64_t)u.data.n, &err);
    if (full) {
        um_reply_error(x, full, err.param, full == 413 ? "file_quota_exceeded" : "storage_full", "%s", err.msg);
        return;
    }
    um_buf data = {0};
    um_buf_append(&data, u.data.p, u.data.n);
    um_file *f = um_file_new(store, "batch", u.name, u.ttl);
    snprintf(f->owner, sizeof f->owner, "%s", um_key_owner(um_access_record_key(x)));
    f->bytes = (int64_t)u.data.n;
    f->tenant = um_tenant_of(0, x);
    um_pending_response *p = um_pending_response_new(x);
    put_object(f, &p->json);
    um_file_store(store, f, &data, um_pending_response_send, p);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* Returns the file with this id. If there is none, answers 404 and returns NULL. */
static um_file *find(um_service *s, um_exchange *x, const char *id) {
    um_batch_store *store = um_batch_store_of(s, x);
    if (!store) return NULL;
    um_file *f = um_file_find(store, id);
    if (f && !um_key_may_see(um_access_record_key(x), f->owner)) f = NULL;
    if (!f) um_reply_error(x, 404, "id", NULL, "unknown file %.80s", id);
    return f;
}

static const char *id_of(const void *list, size_t i) { return ((um_file *const *)list)[i]->id; }

typedef struct filter {
    const char *purpose; /* NULL: any */
    const um_key *key;
} filter;

static bool matches(const void *list, size_t i, const void *arg) {
    const um_file *f = ((um_file *const *)list)[i];
    const filter *by = arg;
    return (!by->purpose || um_streq(f->purpose, by->purpose)) && um_key_may_see(by->key, f->owner);
}

static void put(const void *list, size_t i, um_jw *w) { um_file_put(((um_file *const *)list)[i], w); }

static void get_files(um_service *s, um_exchange *x, const char *id) {
    um_batch_store *store = um_batch_store_of(s, x);
    um_list_page page;
    const filter by = {um_exchange_query(x, "purpose"), um_access_record_key(x)};
    (void)id;
    if (!store || !um_list_page_read(&page, x, FILES_LISTED_MAX, FILES_LISTED_MAX)) return;
    const um_list_page_source source = {
        .list = store->file, .n = store->n_files, .id = id_of, .matches = matches, .filter = &by, .put = put};
    um_list_page_reply(&page, &source, x);
}

static void get_file(um_service *s, um_exchange *x, const char *id) {
    um_buf json = {0};
    const um_file *f = find(s, x, id);
    if (!f) return;
    put_object(f, &json);
    um_reply_json(x, 200, &json);
    um_buf_free(&json);
}

/* ---- Content ----------------------------------------------------------------------------------------------------- */

/* A file that is being sent. It is read in chunks, so a slow client needs memory for one chunk. */
typedef struct transfer {
    int fd;
    char data[CHUNK];
} transfer;

static void end_transfer(void *arg, um_exchange *x, bool complete) {
    transfer *t = arg;
    (void)x, (void)complete;
    close(t->fd);
    um_free(t);
}

/* Sends the next chunk. It is called again when the output buffer has drained, so other clients are served between two
 * chunks. */
static void send_chunk(void *arg, um_exchange *x) {
    transfer *t = arg;
    ssize_t n;
    do n = read(t->fd, t->data, sizeof t->data);
    while (n < 0 && errno == EINTR);
    if (n > 0) um_exchange_write(x, t->data, (size_t)n);
    else if (n == 0) um_exchange_end(x);
    else um_exchange_abort(x); /* so that the client notices that the file is incomplete */
}

static void send_content(um_service *s, um_exchange *x, const um_file *f) {
    char *path = um_file_path(s->batches, f->id);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        um_reply_error(x, 500, NULL, "storage_error", "cannot read the file: %s", strerror(errno));
    } else {
        transfer *t = UM_NEW(transfer);
        t->fd = fd;
        um_exchange_on_close(x, end_transfer, t);
        um_exchange_on_drain(x, send_chunk, t);
        um_exchange_begin(x, 200, CONTENT_TYPE);
        send_chunk(t, x);
    }
    um_free(path);
}

/* HEAD needs only the length and reads nothing. */
static void get_content(um_service *s, um_exchange *x, const char *id) {
    const um_file *f = find(s, x, id);
    if (!f) return;
    if (um_str_eq(um_exchange_method(x), UM_STR("HEAD")))
        um_exchange_send(x, 200, CONTENT_TYPE, NULL, (size_t)f->bytes);
    else send_content(s, x, f);
}

/* ---- Deleting ---------------------------------------------------------------------------------------------------- */

static void delete_file(um_service *s, um_exchange *x, const char *id) {
    um_batch_store *store = s->batches;
    um_file *f = find(s, x, id);
    if (!f) return;
    if (f->n_readers) {
        um_reply_error(x, 409, "id", NULL, "%s is the input of an unfinished batch; cancel the batch first", f->id);
        return;
    }
    um_pending_response *p = um_pending_response_new(x);
    um_put_deleted(&p->json, f->id, "file");
    um_file_delete(store, f, um_pending_response_send, p);
}

static const um_endpoint rows[] = {
    {"POST", "/v1/files", post_file, 0, "OpenAI", "upload a file of requests, as form data or as the body"},
    {"GET", "/v1/files", get_files, 0, "OpenAI", "list files"},
    {"GET", "/v1/files/{id}", get_file, 0, "OpenAI", "show a file's metadata"},
    {"DELETE", "/v1/files/{id}", delete_file, 0, "OpenAI", "delete a file"},
    {"GET", "/v1/files/{id}/content", get_content, 0, "OpenAI", "download a file"},
};
const um_endpoint_set um_files_endpoints = {rows, UM_LEN(rows)};
