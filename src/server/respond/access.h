/* access: the access log. Each exchange has a record, which becomes a line of the log when the exchange has ended. */
#ifndef UM_ACCESS_H
#define UM_ACCESS_H

#include "server/http/http.h"
#include "server/keys/keys.h"
#include "server/link/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_access_record {
    char request_id[130];
    const char *path; /* path in the endpoint's row; "none" for an unknown path, and before dispatch */
    char *model;
    um_key *key;   /* NULL: none, or not checked yet */
    char *refused; /* reason why the HTTP server refused the request, or NULL */
    int32_t prompt_tokens, completion_tokens, nfe, answers;
    int32_t n_refs; /* see um_access_record_ref */
    bool has_ended;
    um_buf line; /* started when the exchange ends; the token counts are appended later */
    um_jw json;  /* writes `line` if the log is JSON */
} um_access_record;
/* Creates the record of an exchange as its user data. Takes the client's x-request-id or makes one, and sends it back.
 */
um_access_record *um_access_record_new(um_exchange *x);
/* Ends the record with its exchange. Once all references are released, writes the line if `log`, and frees the record.
 * seconds: from the first byte of the request to the last of the response. */
void um_access_record_end(um_exchange *x, int status, double seconds, bool log);

/* Sets the key of the request. */
void um_access_record_set_key(um_exchange *x, um_key *key);
/* Returns the key of the request; NULL without a key or a record. */
um_key *um_access_record_key(const um_exchange *x);
/* Sets the model of the line. x NULL: does nothing. */
void um_access_record_set_model(um_exchange *x, const char *model);
/* Adds the token counts of a finished answer. x NULL: does nothing. */
void um_access_record_finish(um_exchange *x, const um_msg_finish *m);
/* References the record. The response can finish before the worker has reported its token counts: the line is written
 * when the last reference is released. x NULL: returns NULL, which the next two functions accept. */
um_access_record *um_access_record_ref(um_exchange *x);
void um_access_record_add(um_access_record *r, const um_msg_finish *m); /* does what um_access_record_finish does */
void um_access_record_unref(um_access_record *r);

#ifdef __cplusplus
}
#endif
#endif
