/* The access log: the record of a request while it runs, and its line when it has ended. Keys and prompts never reach
 * it: headers, queries and bodies are not logged. */
#include <math.h>

#include "server/respond/access.h"
#include "server/respond/reply.h"

/* ---- Records ----------------------------------------------------------------------------------------------------- */

/* A client's id is copied into a header and into logs. */
static bool is_request_id(const char *id) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:/+=@~";
    size_t n = id ? strspn(id, allowed) : 0;
    return n > 0 && n < sizeof((um_access_record *)0)->request_id && id[n] == '\0';
}

um_access_record *um_access_record_new(um_exchange *x) {
    um_access_record *r = UM_NEW(um_access_record);
    const char *given = um_exchange_header(x, "x-request-id");
    r->path = "none";
    if (is_request_id(given)) snprintf(r->request_id, sizeof r->request_id, "%s", given);
    else um_make_id("", r->request_id);
    um_exchange_set_user_data(x, r);
    um_exchange_add_header(x, "x-request-id", r->request_id);
    return r;
}

void um_access_record_set_key(um_exchange *x, um_key *key) {
    um_access_record *r = um_exchange_get_user_data(x);
    r->key = key;
}

um_key *um_access_record_key(const um_exchange *x) {
    const um_access_record *r = um_exchange_get_user_data(x);
    return r ? r->key : NULL;
}

void um_access_record_set_model(um_exchange *x, const char *model) {
    if (!x) return;
    um_access_record *r = um_exchange_get_user_data(x);
    um_free(r->model);
    r->model = model ? um_strdup(model) : NULL;
}

void um_access_record_add(um_access_record *r, const um_msg_finish *m) {
    if (!r) return;
    if (m->index == 0) r->prompt_tokens += m->prompt_tokens; /* the answers of a request share the prompt */
    r->completion_tokens += (int32_t)m->n_ids;
    r->nfe += m->nfe;
    r->answers++;
}

void um_access_record_finish(um_exchange *x, const um_msg_finish *m) {
    um_access_record_add(x ? um_exchange_get_user_data(x) : NULL, m);
}

um_access_record *um_access_record_ref(um_exchange *x) {
    um_access_record *r = x ? um_exchange_get_user_data(x) : NULL;
    if (r) r->n_refs++;
    return r;
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

/* Appends a text in quotes. Escapes what a terminal or a parser of log lines could misread. */
static void put_quoted(um_buf *out, const char *text) {
    size_t n = strlen(text);
    um_buf_putc(out, '"');
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = um_utf8_next(text + i, n - i, &cp);
        bool plain = len > 0 && cp >= 0x20 && !(cp >= 0x7f && cp < 0xa0) && cp != '"' && cp != '\\';
        if (plain) um_buf_append(out, text + i, (size_t)len);
        else if (len == 0) um_buf_printf(out, "\\x%02x", (unsigned char)text[i]);
        else um_buf_printf(out, "\\u%04x", (unsigned)cp);
        i += (size_t)UM_MAX(len, 1);
    }
    um_buf_putc(out, '"');
}

static void begin_text(um_access_record *r, um_exchange *x, int status, double seconds) {
    char time[UM_LOG_TIME_MAX];
    um_buf *out = &r->line;
    um_str method = um_exchange_method(x);
    if (!method.n) method = UM_STR("-");
    um_log_time(time);
    um_buf_printf(out, "%s %s %.*s ", time, um_exchange_peer(x), (int)method.n, method.p);
    put_quoted(out, um_exchange_path(x));
    um_buf_printf(out, " %d %lld bytes %.1f ms id=%s", status, (long long)um_exchange_sent(x), seconds * 1e3,
                  r->request_id);
    if (r->key) um_buf_printf(out, " key=%s", r->key->name);
    if (r->model) {
        um_buf_puts(out, " model=");
        put_quoted(out, r->model);
    }
    if (r->refused) {
        um_buf_puts(out, " refused=");
        put_quoted(out, r->refused);
    }
}

static void end_text(um_access_record *r) {
    if (r->answers)
        um_buf_printf(&r->line, " prompt=%d completion=%d nfe=%d", r->prompt_tokens, r->completion_tokens, r->nfe);
}

static void begin_json(um_access_record *r, um_exchange *x, int status, double seconds) {
    char time[UM_LOG_TIME_MAX];
    um_jw *w = &r->json;
    um_log_time(time);
    um_jw_init(w, &r->line);
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "time", time);
    um_jw_put_cstr(w, "level", "info");
    um_jw_put_cstr(w, "message", "request");
    um_jw_put_cstr(w, "peer", um_exchange_peer(x));
    um_jw_put_str(w, "method", um_exchange_method(x));
    um_jw_put_cstr(w, "path", um_exchange_path(x));
    um_jw_put_int(w, "status", status);
    um_jw_put_int(w, "bytes", um_exchange_sent(x));
    um_jw_put_double(w, "ms", round(seconds * 1e6) / 1e3);
    um_jw_put_cstr(w, "request_id", r->request_id);
    if (r->key) um_jw_put_cstr(w, "key", r->key->name);
    if (r->model) um_jw_put_cstr(w, "model", r->model);
    if (r->refused) um_jw_put_cstr(w, "refused", r->refused);
}

static void end_json(um_access_record *r) {
    um_jw *w = &r->json;
    if (r->answers) {
        um_jw_put_int(w, "prompt_tokens", r->prompt_tokens);
        um_jw_put_int(w, "completion_tokens", r->completion_tokens);
        um_jw_put_int(w, "nfe", r->nfe);
    }
    um_jw_end_object(w);
}

static void begin_line(um_access_record *r, um_exchange *x, int status, double seconds) {
    if (um_log_is_json()) begin_json(r, x, status, seconds);
    else begin_text(r, x, status, seconds);
}

static void write_line(um_access_record *r) {
    if (um_log_is_json()) end_json(r);
    else end_text(r);
    um_buf_putc(&r->line, '\n');
    um_log_write(r->line.data, r->line.len);
}

/* ---- The end ----------------------------------------------------------------------------------------------------- */

static void write_when_done(um_access_record *r) {
    if (!r->has_ended || r->n_refs) return;
    if (r->line.len) write_line(r);
    um_buf_free(&r->line);
    um_free(r->model);
    um_free(r->refused);
    um_free(r);
}

void um_access_record_end(um_exchange *x, int status, double seconds, bool log) {
    um_access_record *r = um_exchange_get_user_data(x);
    r->has_ended = true;
    if (log) begin_line(r, x, status, seconds);
    write_when_done(r);
}

void um_access_record_unref(um_access_record *r) {
    if (!r) return;
    r->n_refs--;
    write_when_done(r);
}
