/* server: the frontend. It owns the loop, takes requests over HTTP, finds their endpoint in one table, and holds what
 * endpoints need: the model's tokenizer and template, the workers, the numbers of the metrics page. One thread. */
#ifndef UM_SERVER_H
#define UM_SERVER_H

#include "server/backend/backend.h"
#include "server/http/http.h"
#include "server/options.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_server um_server;

/* Opens tokenizer and template, listens, starts the workers. `c` outlives the server. Errors: UM_EINVAL in `c`, UM_EIO
 * where it should listen, UM_EMODEL and others for the model. */
um_status um_server_new(um_server **out, const um_server_config *c, um_err *err);
/* Runs the loop until um_server_stop was called and everything has ended, or a start-up failed for good. */
um_status um_server_run(um_server *s, um_err *err);
void um_server_stop(um_server *s); /* gracefully; a second call ends at once. From the loop's thread */
void um_server_free(um_server *s);
int32_t um_server_port(const um_server *s);

/* ---- For endpoints ----------------------------------------------------------------------------------------------- */

const um_server_config *um_server_get_config(const um_server *s);
um_backend *um_server_backend(um_server *s);
um_model *um_server_model(um_server *s); /* tokenizer and template, no weights */
struct event_base *um_server_base(um_server *s);
struct um_batches *um_server_batches(um_server *s);              /* NULL: there is no --state-dir */
const char *um_server_model_name(const um_server *s);            /* the name that is served */
const char *um_server_served_name(const um_server *s, size_t i); /* all of them; NULL behind the last */
bool um_server_has_model(const um_server *s, const char *name, const char **adapter); /* adapter: NULL, plain model */
bool um_server_is_stopping(const um_server *s);
double um_server_began(const um_server *s); /* epoch seconds */

/* One row: a method and a path. "{id}" stands for one part of a path, "{rest}" at its end for all that remains, slashes
 * included; the handler gets either. */
enum {
    UM_ENDPOINT_OPEN = 1,  /* no key is asked for */
    UM_ENDPOINT_WAITS = 2, /* counts as a generation: refused with 503 while no worker is up or the server stops */
    UM_ENDPOINT_PAGE = 4,  /* for browsers: the key may come as the password of basic authentication, too */
};
typedef struct um_endpoint {
    const char *method, *path;
    void (*handle)(um_server *s, um_exchange *x, const char *id); /* id: NULL without "{id}" */
    unsigned flags;
    const char *shape;   /* whose clients know it: "OpenAI" */
    const char *summary; /* for `unmask list endpoints` and docs */
} um_endpoint;
/* Rows of one file in api/. */
typedef struct um_endpoint_set {
    const um_endpoint *rows;
    size_t n;
} um_endpoint_set;
extern const um_endpoint_set um_batches_endpoints, um_chat_endpoints, um_completions_endpoints, um_files_endpoints,
    um_llama_endpoints, um_models_endpoints, um_native_endpoints, um_ops_endpoints, um_options_endpoints,
    um_page_endpoints, um_results_endpoints, um_sglang_endpoints, um_tokens_endpoints;
/* The one list of all (endpoints.c); NULL ends it. */
extern const um_endpoint_set *const um_endpoints[];

/* Answers. The error body is OpenAI's: {"error": {"message", "type", "param", "code"}}; the type follows from the
 * status. param and code may be NULL. */
void um_reply_json(um_exchange *x, int status, const um_buf *json);
void um_reply_error(um_exchange *x, int status, const char *param, const char *code, const char *fmt, ...)
    UM_PRINTF(5, 6);
void um_reply_err(um_exchange *x, const um_err *err); /* status from the code, param from err */
/* The members of such an error, {"message", …}. */
void um_put_error(um_jw *w, int status, const char *param, const char *code, const char *message);
/* The same in a stream, where nothing else says the status: it is the code, unless the error has a word of its own. */
void um_put_stream_error(um_jw *w, int status, const char *param, const char *code, const char *message);
/* "chatcmpl-" and 32 random hexadecimal digits. */
void um_make_id(const char *prefix, char out[64]);
/* Is there a body, and is it said to be JSON? On failure answers 400 or 415. */
bool um_body_is_json(um_exchange *x);
/* A small body as a JSON object, for what is not generated; on failure answers 400, 413 or 415 and returns NULL.
 * json_decref. What may be large is read by um_read (reading.h). */
struct json_t *um_read_object(um_exchange *x);

/* The body of an endpoint that takes no field: none, or an object without members. On failure answers like
 * um_read_object, with the name of a member. */
bool um_read_empty(um_exchange *x);

/* What the access line of an exchange says of its generation; x NULL: nothing is noted. */
void um_note_model(um_exchange *x, const char *model);
void um_note_finish(um_exchange *x, const um_msg_finish *m); /* of each answer */
/* An answer may end behind its exchange: the line then waits for who holds the note. NULL for x NULL, and for nothing.
 */
struct um_note;
struct um_note *um_note_hold(um_exchange *x);
void um_note_add(struct um_note *n, const um_msg_finish *m); /* as um_note_finish */
void um_note_let_go(struct um_note *n);

/* ---- Numbers for the metrics page (metrics.c, metrics_page.c) ---------------------------------------------------- */

void um_count_request(um_server *s, const char *path, int status, double seconds);   /* path: the endpoint's row */
void um_count_finish(um_server *s, const um_msg_finish *m, const char *why_aborted); /* why: NULL unless it was */
void um_put_metrics(um_server *s, um_buf *out);

#ifdef __cplusplus
}
#endif
#endif
