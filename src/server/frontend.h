/* frontend: what the files of the frontend share behind server.h: the server itself, and the parts of which it is made,
 * each a small struct with one file. Everything belongs to the loop's thread. */
#ifndef UM_FRONTEND_H
#define UM_FRONTEND_H

#include "server/jobs/jobs.h"
#include "server/server.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "a,b,c" in pieces, blanks around them and empty ones taken off. */
typedef struct um_words {
    char **word; /* [n] */
    size_t n;
} um_words;
void um_words_split(um_words *w, const char *list); /* NULL: none */
bool um_words_have(const um_words *w, const char *word);
void um_words_free(um_words *w);

/* ---- auth.c: who may ask ----------------------------------------------------------------------------------------- */

/* Does the request carry one of the keys? True without keys. As a bearer token, or, with `basic`, as a password. Takes
 * the same time whichever key it is and wherever the two differ. */
bool um_auth_allows(const um_words *keys, um_exchange *x, bool basic);
/* Answers 401. */
void um_auth_refuse(um_exchange *x, bool basic);

/* ---- cors.c: which web pages may ask ----------------------------------------------------------------------------- */

/* Adds the headers that let the page of the request's Origin read the answer. */
void um_cors_allow(const um_words *origins, um_exchange *x);
/* True: it would change something, and comes from a page of another site that was not named. */
bool um_cors_is_foreign(const um_words *origins, um_exchange *x);
/* Answers an OPTIONS request; allow: "GET, HEAD, OPTIONS". */
void um_cors_preflight(const um_words *origins, um_exchange *x, const char *allow);

/* ---- access.c: the line of each request -------------------------------------------------------------------------- */

typedef struct um_note {
    um_server *server;
    char request_id[130];
    const char *path; /* of its endpoint's row, whatever its method; "none": of no row, or not known yet */
    char *model;
    char *refused; /* why HTTP itself refused it; NULL: it did not */
    int32_t prompt_tokens, completion_tokens, nfe, answers;
    int32_t n_holds; /* who will still say what its generations cost */
    bool has_ended;
    um_buf line; /* of one that has: all but the counts */
    um_jw json;  /* which writes it, when the log is JSON */
} um_note;
/* Makes the note of an exchange, with the client's request id or a new one, and sends that back. */
um_note *um_note_new(um_server *s, um_exchange *x);
/* The exchange has ended. The line is written, in the form of the log, and the note freed, when nobody holds it. */
void um_note_end(um_exchange *x, int status, double seconds);

/* ---- endpoints.c: which handler it is for ------------------------------------------------------------------------ */

typedef struct um_match {
    const um_endpoint *endpoint; /* NULL: none for this method */
    const char *path;            /* of the rows that match, NULL: there is none */
    char *id;                    /* um_free */
    char allow[64];              /* methods of the path; "": there is none */
} um_match;
void um_endpoint_find(um_match *m, um_str method, const char *path);

/* ---- metrics.c --------------------------------------------------------------------------------------------------- */

typedef struct um_tally um_tally;
um_tally *um_tally_new(void);
void um_tally_free(um_tally *t);

/* ---- server.c ---------------------------------------------------------------------------------------------------- */

struct um_server {
    const um_server_config *config;
    struct event_base *base;
    struct event *sigterm, *sigint, *sighup; /* sighup NULL: it is ignored, as whoever started the program wants it */
    struct event *linger;                    /* after the workers are gone: time for answers to be taken */
    um_http_server *http;
    um_backend *backend;
    um_model *model;
    um_jobs *readers;           /* threads that read bodies (reading.c) */
    struct um_batches *batches; /* NULL: there is no --state-dir */
    um_tally *tally;
    um_words names, keys, origins;
    char *root_path; /* without a slash at its end; "" */
    double began;
    int32_t n_open;              /* exchanges that have not ended */
    struct um_turn *turns;       /* a list of those that are, the newest first (turn.c) */
    struct um_reading *readings; /* a list of bodies that are read beside the loop (reading.c) */
    struct um_results *results;  /* of /v1/generate (api/results.c); NULL before the first */
    int n_stops;
    bool was_up, backend_gone, has_ended;
    um_err failed; /* why it ended; code UM_OK: it was told to */
};

/* dispatch.c: a request is there. */
void um_server_dispatch(void *server, um_exchange *x);

#ifdef __cplusplus
}
#endif
#endif
