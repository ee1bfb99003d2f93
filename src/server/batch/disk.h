/* disk: a thread that waits for the disk, so that the loop never does. Jobs run one after the other, in the order in
 * which they were given. The rest of the room belongs to the loop's thread. */
#ifndef UM_DISK_H
#define UM_DISK_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct event_base;
typedef struct um_disk um_disk;

typedef struct um_disk_job {
    um_status (*work)(void *arg, um_err *err);               /* on the disk's thread; what it touches is left alone */
    void (*done)(void *arg, um_status s, const um_err *err); /* on the loop's, afterwards */
    void *arg;
} um_disk_job;

um_status um_disk_new(um_disk **out, struct event_base *base, um_err *err);
void um_disk_do(um_disk *d, const um_disk_job *job);
/* Finishes what was given, and what the `done` of that gives; all have been called behind this. NULL is fine. */
void um_disk_free(um_disk *d);

#ifdef __cplusplus
}
#endif
#endif
