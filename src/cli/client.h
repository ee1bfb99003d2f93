/* client: sends requests to an engine in this program or to a server, and shows the responses. Single-threaded. */
#ifndef UM_CLI_CLIENT_H
#define UM_CLI_CLIENT_H

#include "cli/cli.h"
#include "cli/wrap.h"
#include "engine/options.h"

/* A request, and the parameters that the user set. The engine or server has defaults for the others. */
#define UM_GIVEN_MAX 128
typedef struct um_client_request {
    um_request request; /* text or chat; the client sets its callback and events */
    const um_option *given[UM_GIVEN_MAX];
    size_t n_given;
    bool can_shrink; /* the caller can drop old turns; UM_ELIMIT then means that it must */
} um_client_request;
/* Marks the parameters that were set at program start (command line, environment, file) as given. */
void um_client_request_mark_given(um_client_request *q, const um_args *args);

typedef struct um_client_response {
    um_result result; /* text and token_ids point into the buffers below */
    um_buf text;      /* settled text; also set if the request failed */
    int32_t *ids;
} um_client_response;
void um_client_response_free(um_client_response *r);

/* The output of a response while it arrives. */
typedef struct um_client_output {
    um_view *view;    /* draws the answer, or NULL */
    FILE *file;       /* without a view: settled text is written here as it arrives; or NULL */
    bool on_terminal; /* `file` is a terminal: control characters are replaced, and lines break between words */
    um_wrap wrap;     /* the end of the text on a terminal; um_client_free frees it */
    int32_t delay_ms; /* pause after each frame */
    /* Called with the complete result, including the arrays that a response does not keep; may be NULL. */
    void (*finished)(void *arg, const um_result *r);
    void *arg;
} um_client_output;
/* A client calls these three functions. The first writes settled text to `file`, and keeps a last word that may not fit
 * into the row. The second writes the kept word at the end of an answer. The third waits after a frame. */
void um_client_output_text(um_client_output *s, um_str text);
void um_client_output_end(um_client_output *s);
void um_client_output_pause(const um_client_output *s);

typedef struct um_client um_client;
struct um_client {
    /* Sends a request and waits for the response. An interrupt stops the answer, which is not an error: `finish` is
     * then UM_FINISH_ABORTED, and the text is the text that had settled. */
    um_status (*send)(um_client *a, um_client_request *q, um_client_response *out, um_err *err);
    /* Checks the parameters of a request without its prompt, as far as the client can. `set` is the row of the
     * parameter that was set last. */
    um_status (*check)(um_client *a, um_client_request *q, const um_option *set, um_err *err);
    void (*put_stats)(const um_client *a, um_buf *out); /* text lines */
    void (*print_examples)(const um_client *a);         /* um_cli_print_examples with those of the model */
    void (*free)(um_client *a);
    bool knows_defaults; /* parameters that were not given have the values in the request */
    um_client_output output;
};
void um_client_free(um_client *a); /* NULL is fine */
/* Sets a parameter of the request, by its name or an alias, and marks it as given. If the row or the client refuses the
 * value, the request does not change. */
um_status um_client_request_set(um_client_request *q, um_client *a, const char *name, const char *value, um_err *err);

/* ---- client_local.c: the engine of a session, which must outlive the client ---- */
um_client *um_client_local(um_session *s);

/* ---- client_remote.c: a server ---- */
/* Option rows of a command that can use a server. `field` is a um_remote_options. */
typedef struct um_remote_options {
    const char *url, *api_key, *served_model_name;
} um_remote_options;
/* clang-format off */
#define UM_REMOTE_ROWS(type, field, group)                                                                             \
    {"url", NULL, UM_OPT_STR, UM_FIELD(type, field.url), 0, 0, NULL, NULL, NULL, "URL", group,                         \
     "URL of a running server, as in http://127.0.0.1:8000"},                                                          \
    {"api_key", NULL, UM_OPT_STR, UM_FIELD(type, field.api_key), 0, 0, NULL, NULL, NULL, "KEY", group,                 \
     "API key of the server; better set in the environment"},                                                          \
    {"served_model_name", NULL, UM_OPT_STR, UM_FIELD(type, field.served_model_name), 0, 0, NULL, NULL, NULL, "NAME",   \
     group, "model of the server to use; without it, the first in the server's list"}
/* clang-format on */
/* Finds the server and its model, and prints both to stderr, unless `quiet`. UM_EIO with advice if no server answers.
 */
um_status um_client_remote(um_client **out, const um_remote_options *o, bool quiet, um_err *err);
/* Checks that the command line has no options that need a local model. UM_EINVAL. */
um_status um_remote_check(const um_args *args, um_err *err);

#endif
