/* sse: server-sent events on an exchange. Appended events always arrive; a snapshot that the client was too slow for is
 * replaced by the next one, so a slow reader holds one snapshot of memory per choice and not all of them. */
#ifndef UM_SSE_H
#define UM_SSE_H

#include "server/http/http.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_SSE_CHOICES_MAX 256
typedef struct um_sse um_sse;

/* Begins the answer (200, text/event-stream, no-cache, X-Accel-Buffering: no). Takes the exchange's drain callback; its
 * close callback stays the caller's, who frees the stream there. A comment goes out every 15 s without an event. */
um_sse *um_sse_new(struct event_base *base, um_exchange *x);
void um_sse_free(um_sse *s);
/* The writer for the next event's JSON: cleared, to be filled and sent by one of the next two. */
um_jw *um_sse_begin(um_sse *s);
void um_sse_append(um_sse *s);
/* A snapshot of one choice: sent when the client keeps up (and at most max_hz times a second, 0 = any), else kept until
 * then in place of the one before. What is appended for the same choice goes behind it. */
void um_sse_replace(um_sse *s, int32_t choice, double max_hz);
/* "data: [DONE]" and the end of the answer. Kept snapshots that were never sent are dropped. */
void um_sse_done(um_sse *s);

#ifdef __cplusplus
}
#endif
#endif
