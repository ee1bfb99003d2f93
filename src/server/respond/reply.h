/* reply: responses in JSON, error bodies, ids, and small request bodies. All functions run on the loop's thread. */
#ifndef UM_REPLY_H
#define UM_REPLY_H

#include "server/http/coding.h"
#include "server/http/http.h"

#ifdef __cplusplus
extern "C" {
#endif

void um_reply_json(um_exchange *x, int status, const um_buf *json);
/* Answers with OpenAI's error body, {"error": {"message", "type", "param", "code"}}, or with Anthropic's to a client of
 * that API. The type follows from the status. param and code may be NULL. */
void um_reply_error(um_exchange *x, int status, const char *param, const char *code, const char *fmt, ...)
    UM_PRINTF(5, 6);
/* Answers with an error. The status follows from err->code, `param` is err->param. */
void um_reply_err(um_exchange *x, const um_err *err);
/* Returns whether the client is one of Anthropic's API: they send the header anthropic-version with every request. */
bool um_client_is_anthropic(um_exchange *x);
/* Writes the body that um_reply_error sends. */
void um_put_error_body(um_exchange *x, um_jw *w, int status, const char *param, const char *code, const char *message);
/* Writes Anthropic's error, {"type": "error", "error": {"type", "message"}}, and param unless it is NULL. */
void um_put_anthropic_error(um_jw *w, int status, const char *param, const char *message);
/* Writes the error object, {"message", …}. */
void um_put_error(um_jw *w, int status, const char *param, const char *code, const char *message);
/* Writes the error object of an event in a stream, whose head already had the status 200. If code is NULL, the status
 * takes its place. */
void um_put_stream_error(um_jw *w, int status, const char *param, const char *code, const char *message);
/* Writes the response to a deletion, {"id", "object", "deleted": true}. Neither text needs escapes. */
void um_put_deleted(um_buf *json, const char *id, const char *object);
/* Makes an id: the prefix, "chatcmpl-", and 32 random hexadecimal digits. */
void um_make_id(const char *prefix, char out[64]);
/* Returns a random number, 1 to 2^53 - 1: JSON parsers that read doubles keep it exact. */
int64_t um_make_number(void);
/* Makes an id of the same form whose first 16 digits are the time in nanoseconds. strcmp orders the ids of one process
 * as they were made, and those of two processes by the clock. May be called by any thread. */
void um_make_ordered_id(const char *prefix, char out[64]);
/* Returns the content coding of the request's body. */
um_coding um_body_coding(um_exchange *x);
/* Returns the status of an error of um_coding_decode: 400, 413 or 503. */
int um_body_status_of(um_status st);
/* Returns whether the body has no content coding. If it has one, answers 415. */
bool um_body_is_plain(um_exchange *x);
/* Returns whether the request has a body with a JSON content type, in a coding of this build. If not, answers 400 or
 * 415. */
bool um_body_is_json(um_exchange *x);
/* Parses a small body that is a JSON object; json_decref. On failure answers 400, 413 or 415 and returns NULL. Bodies
 * that may be large go through um_intake_start (generate/intake.h). */
struct json_t *um_read_object(um_exchange *x);
/* Takes the body of an endpoint without fields: no body, or an object without members. On failure answers like
 * um_read_object and returns false. */
bool um_read_empty(um_exchange *x);

#ifdef __cplusplus
}
#endif
#endif
