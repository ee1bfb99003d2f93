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

void um_note_model(um_exchange *x, const char *model) {
    if (!x) return;
    um_note *n = um_exchange_get_note(x);
    um_free(n->model);
    n->model = model ? um_strdup(model) : NULL;
}

void um_note_add(um_note *n, const um_msg_finish *m) {
    if (!n) return;
    if (m->index == 0) n->prompt_tokens += m->prompt_tokens; /* answers of one request share it */
    n->completion_tokens += (int32_t)m->n_ids;
    n->nfe += m->nfe;
    n->answers++;
}

void um_note_finish(um_exchange *x, const um_msg_finish *m) { um_note_add(x ? um_exchange_get_note(x) : NULL, m); }

um_note *um_note_hold(um_exchange *x) {
    um_note *n = x ? um_exchange_get_note(x) : NULL;
    if (n) n->n_holds++;
    return n;
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

static void begin_text(um_note *n, um_exchange *x, int status, double seconds) {
    char time[UM_LOG_TIME_MAX];
    um_buf *out = &n->line;
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
    if (n->refused) {
        um_buf_puts(out, " refused=");
        put_quoted(out, n->refused);
    }
}

static void end_text(um_note *n) {
    if (n->answers)
        um_buf_printf(&n->line, " prompt=%d completion=%d nfe=%d", n->prompt_tokens, n->completion_tokens, n->nfe);
}

static void begin_json(um_note *n, um_exchange *x, int status, double seconds) {
    char time[UM_LOG_TIME_MAX];
    um_jw *w = &n->json;
    um_log_time(time);
    um_jw_init(w, &n->line);
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
    um_jw_put_cstr(w, "request_id", n->request_id);
    if (n->model) um_jw_put_cstr(w, "model", n->model);
    if (n->refused) um_jw_put_cstr(w, "refused", n->refused);
}

static void end_json(um_note *n) {
    um_jw *w = &n->json;
    if (n->answers) {
        um_jw_put_int(w, "prompt_tokens", n->prompt_tokens);
        um_jw_put_int(w, "completion_tokens", n->completion_tokens);
        um_jw_put_int(w, "nfe", n->nfe);
    }
    um_jw_end_object(w);
}

static void begin_line(um_note *n, um_exchange *x, int status, double seconds) {
    if (um_log_is_json()) begin_json(n, x, status, seconds);
    else begin_text(n, x, status, seconds);
}

static void write_line(um_note *n) {
    if (um_log_is_json()) end_json(n);
    else end_text(n);
    um_buf_putc(&n->line, '\n');
    um_log_write(n->line.data, n->line.len);
}

/* ---- The end ----------------------------------------------------------------------------------------------------- */

static void settle(um_note *n) {
    if (!n->has_ended || n->n_holds) return;
    if (n->line.len) write_line(n);
    um_buf_free(&n->line);
    um_free(n->model);
    um_free(n->refused);
    um_free(n);
}

void um_note_end(um_exchange *x, int status, double seconds) {
    um_note *n = um_exchange_get_note(x);
    n->has_ended = true;
    if (um_server_get_config(n->server)->access_log) begin_line(n, x, status, seconds);
    settle(n);
}

void um_note_let_go(um_note *n) {
    if (!n) return;
    n->n_holds--;
    settle(n);
}
