/* trace_file: the file of --otlp-traces. Lines are appended on a background thread, so that a slow disk delays no
 * request. The other functions belong to the loop's thread. */
#ifndef UM_TRACE_FILE_H
#define UM_TRACE_FILE_H

#include "server/work/work_queue.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_trace_file um_trace_file;
/* Opens the file for appending; creates it with the mode 0600 if it is missing. */
um_status um_trace_file_new(um_trace_file **out, struct event_base *base, const char *path, um_err *err);
/* Appends lines, each with its end. They are dropped while too many wait. */
void um_trace_file_append(um_trace_file *f, um_str lines);
/* Returns 32 hexadecimal digits that stand for this process. */
const char *um_trace_file_instance(const um_trace_file *f);
/* Writes the lines that wait and closes the file. NULL is fine. */
void um_trace_file_free(um_trace_file *f);

#ifdef __cplusplus
}
#endif
#endif
