/* answerer: what answers questions: an engine in this program, or a server elsewhere. One thread. */
#ifndef UM_CLI_ANSWERER_H
#define UM_CLI_ANSWERER_H

#include "cli/cli.h"
#include "engine/options.h"

/* A question with its parameters, and which of these somebody gave. The rest are the defaults of whoever answers. */
#define UM_GIVEN_MAX 128
typedef struct um_question {
    um_request request; /* text or chat; its callback and events are the answerer's */
    const um_option *given[UM_GIVEN_MAX];
    size_t n_given;
    bool can_shrink; /* the caller can leave old turns out: then UM_ELIMIT asks for it */
} um_question;
/* Sets a parameter by its name or another system's, as um_request_set, and remembers that it was given. */
um_status um_question_set(um_question *q, const char *name, const char *value, um_err *err);
/* Parameters that came with the program's start are given too. */
void um_question_take_given(um_question *q, const um_args *args);

typedef struct um_reply {
    um_result result; /* its text and token_ids point into the buffers below */
    um_buf text;      /* what was settled, when it failed too */
    int32_t *ids;
} um_reply;
void um_reply_free(um_reply *r);

/* Where an answer goes while it comes. */
typedef struct um_showing {
    um_view *view;                                   /* draws the answer, or NULL */
    FILE *plain;                                     /* without a view: settled text goes here as it comes, or NULL */
    bool safe;                                       /* plain is a terminal: control characters are taken out */
    int32_t delay_ms;                                /* pause behind each frame, so that people can watch */
    void (*finished)(void *arg, const um_result *r); /* sees all of the result, arrays that a reply leaves out too */
    void *arg;
} um_showing;
void um_showing_text(const um_showing *s, um_str text);
void um_showing_pause(const um_showing *s);

typedef struct um_answerer um_answerer;
struct um_answerer {
    /* An interrupt ends the answer, which is no error: the reply says UM_FINISH_ABORTED and holds what was settled. */
    um_status (*ask)(um_answerer *a, um_question *q, um_reply *out, um_err *err);
    void (*put_stats)(const um_answerer *a, um_buf *out); /* lines for people */
    void (*free)(um_answerer *a);
    bool knows_defaults; /* parameters that nobody gave have the values that the question says */
    um_showing showing;
};
void um_answerer_free(um_answerer *a); /* NULL is fine */

/* ---- answerer_local.c: the engine of a session, which outlives the answerer ---- */
um_answerer *um_answerer_local(um_session *s);

/* ---- answerer_remote.c: a server ---- */
/* Rows of a command that can ask a server, over a um_remote_options. */
typedef struct um_remote_options {
    const char *url, *api_key, *served_model_name;
} um_remote_options;
/* clang-format off */
#define UM_REMOTE_ROWS(type, field, group)                                                                             \
    {"url", NULL, UM_OPT_STR, UM_FIELD(type, field.url), 0, 0, NULL, NULL, NULL, "URL", group,                         \
     "the server to ask, as in http://127.0.0.1:8000"},                                                                \
    {"api_key", NULL, UM_OPT_STR, UM_FIELD(type, field.api_key), 0, 0, NULL, NULL, NULL, "KEY", group,                 \
     "what the server asks for; better given in the environment"},                                                     \
    {"served_model_name", NULL, UM_OPT_STR, UM_FIELD(type, field.served_model_name), 0, 0, NULL, NULL, NULL, "NAME",   \
     group, "which of the server's models; without it the first of its list"}
/* clang-format on */
/* Finds the server and its model; what they are is said on stderr, unless `quiet`. UM_EIO with what to do when nobody
 * answers. */
um_status um_answerer_remote(um_answerer **out, const um_remote_options *o, bool quiet, um_err *err);
/* Options of models and engines on the command line are for a model of one's own: UM_EINVAL. */
um_status um_remote_check(const um_args *args, um_err *err);

#endif
