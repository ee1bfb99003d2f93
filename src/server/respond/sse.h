/* sse: server-sent events on an exchange. Appended events always arrive. A snapshot that could not be sent because the
 * client is slow is replaced by the next one, so a slow client needs memory for one snapshot per choice. */
#ifndef UM_SSE_H
#define UM_SSE_H

#include "server/http/http.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_SSE_CHOICES_MAX 256
typedef struct um_sse um_sse;

/* Starts the response (200, text/event-stream, no-cache, X-Accel-Buffering: no). Sets the exchange's drain callback.
 * The caller sets the close callback and frees the stream there. After 15 s without an event a comment is sent. */
um_sse *um_sse_new(struct event_base *base, um_exchange *x);
void um_sse_free(um_sse *s);
/* Returns the writer for the JSON of the next event. Write one value, then call um_sse_append or um_sse_replace. */
um_jw *um_sse_begin(um_sse *s);
/* Does the same for an event with a name. A stream with such events ends without [DONE]. */
um_jw *um_sse_begin_event(um_sse *s, const char *name);
void um_sse_append(um_sse *s); /* sends the event */
/* Sends complete events with names, each with its empty line. */
void um_sse_send(um_sse *s, um_str events);
/* Sends the event as a snapshot of a choice, at most max_hz times a second (0: no limit). While the client is slow or
 * the limit is reached, the snapshot waits and replaces the one that waited. Appended events are sent after it. */
void um_sse_replace(um_sse *s, int32_t choice, double max_hz);
/* Sends "data: [DONE]", unless events had names, and ends the response. Drops waiting snapshots. May free the stream.
 */
void um_sse_done(um_sse *s);

#ifdef __cplusplus
}
#endif
#endif
