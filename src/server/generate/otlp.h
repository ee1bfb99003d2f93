/* otlp: the trace of a generation for OpenTelemetry: a span for the request, and below it spans for the queue, the
 * prefill and the decoding of each answer. It becomes a line of --otlp-traces when the generation ends. */
#ifndef UM_OTLP_H
#define UM_OTLP_H

#include "server/generate/generation.h"
#include "server/respond/trace_file.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The answers of a request that have spans of their own. */
#define UM_OTLP_ANSWERS_MAX 64

typedef struct um_otlp um_otlp;
/* Begins a trace that continues the client's (header traceparent), or a new one. Returns NULL if `file` is NULL or the
 * client's trace is not sampled; the other functions accept it. x: NULL for a line of a batch. */
um_otlp *um_otlp_new(um_trace_file *file, um_exchange *x);
/* Notes the error that ended the generation. */
void um_otlp_fail(um_otlp *t, int status, const char *message);
/* Writes the trace and frees it. */
void um_otlp_end(um_otlp *t, um_generation *g);

#ifdef __cplusplus
}
#endif
#endif
