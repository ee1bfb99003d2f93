/* The access log: what is kept of a request while it runs, and its line when it ends. Keys and prompts are never in it:
 * headers, queries and bodies are left out. */
#include <math.h>

#include "server/frontend.h"

/* ---- Notes ------------------------------------------------------------------------------------------------------- */

/* A client's id is copied into a header and into logs. */
static bool is_request_id(const char *id) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:/+=@~";
    size_t n = id ? strspn(id, allowed) : 0;
    return n > 0 && n < sizeof((um_note *)0)->request_id && id[n] == '\0';
}

um_note *um_note_new(um_server *s, um_exchange *x) {
    um_note *n = UM_NEW(um_note);
    const char *given = um_exchange_header(x, "x-request-id");
    n->server = s;
    n->path = "none";
    if (is_request_id(given)) snprintf(n->request_id, sizeof n->request_id, "%s", given);
    else um_make_id("", n->request_id);
    um_exchange_set_note(x, n);
    um_exchange_add_header(x, "x-request-id", n->request_id);
    return n;
}

void um_note_free(um_note *n) {
    if (!n) return;
    um_free(n->model);
    um_free(n->refused);
    um_free(n);
}

const char *um_request_id(const um_exchange *x) {
    const um_note *n = um_exchange_get_note(x);
    return n->request_id;
}

void um_note_model(um_exchange *x, const char *model) {
    if (!x) return;
    um_note *n = um_exchange_get_note(x);
    um_free(n->model);
    n->model = model ? um_strdup(model) : NULL;
}

void um_note_finish(um_exchange *x, const um_msg_finish *m) {
    if (!x) return;
    um_note *n = um_exchange_get_note(x);
    if (m->index == 0) n->prompt_tokens += m->prompt_tokens; /* answers of one request share it */
    n->completion_tokens += (int32_t)m->n_ids;
    n->nfe += m->nfe;
    n->answers++;
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

/* Quoted; what a terminal or a reader of lines could take for something else is escaped. */
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

static void put_text(const um_note *n, um_exchange *x, int status, double seconds, um_buf *out) {
    char time[UM_LOG_TIME_MAX];
    um_str method = um_exchange_method(x);
    if (!method.n) method = UM_STR("-");
    um_log_time(time);
    um_buf_printf(out, "%s %s %.*s ", time, um_exchange_peer(x), (int)method.n, method.p);
    put_quoted(out, um_exchange_path(x));
    um_buf_printf(out, " %d %lld bytes %.1f ms id=%s", status, (long long)um_exchange_sent(x), seconds * 1e3,
                  n->request_id);
    if (n->model) {
        um_buf_puts(out, " model=");
        put_quoted(out, n->model);
    }
    if (n->answers)
        um_buf_printf(out, " prompt=%d completion=%d nfe=%d", n->prompt_tokens, n->completion_tokens, n->nfe);
    if (n->refused) {
        um_buf_puts(out, " refused=");
        put_quoted(out, n->refused);
    }
    um_buf_putc(out, '\n');
}

static void put_json(const um_note *n, um_exchange *x, int status, double seconds, um_buf *out) {
    char time[UM_LOG_TIME_MAX];
    um_jw w;
    um_log_time(time);
    um_jw_init(&w, out);
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "time", time);
    um_jw_put_cstr(&w, "level", "info");
    um_jw_put_cstr(&w, "message", "request");
    um_jw_put_cstr(&w, "peer", um_exchange_peer(x));
    um_jw_put_str(&w, "method", um_exchange_method(x));
    um_jw_put_cstr(&w, "path", um_exchange_path(x));
    um_jw_put_int(&w, "status", status);
    um_jw_put_int(&w, "bytes", um_exchange_sent(x));
    um_jw_put_double(&w, "ms", round(seconds * 1e6) / 1e3);
    um_jw_put_cstr(&w, "request_id", n->request_id);
    if (n->model) um_jw_put_cstr(&w, "model", n->model);
    if (n->answers) {
        um_jw_put_int(&w, "prompt_tokens", n->prompt_tokens);
        um_jw_put_int(&w, "completion_tokens", n->completion_tokens);
        um_jw_put_int(&w, "nfe", n->nfe);
    }
    if (n->refused) um_jw_put_cstr(&w, "refused", n->refused);
    um_jw_end_object(&w);
    um_buf_putc(out, '\n');
}

void um_access_put(um_exchange *x, int status, double seconds, um_buf *out) {
    const um_note *n = um_exchange_get_note(x);
    if (um_log_is_json()) put_json(n, x, status, seconds, out);
    else put_text(n, x, status, seconds, out);
}
