/* request: what the endpoints of files and batches share. */
#ifndef UM_BATCH_REQUEST_H
#define UM_BATCH_REQUEST_H

#include "server/batch/store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The store, or NULL after an answer that says how to get one. */
um_batches *um_batches_of(um_server *s, um_exchange *x);

/* An answer that waits for the disk. The exchange may be gone by then: x is NULL. */
typedef struct um_pending {
    um_exchange *x;
    um_buf json; /* the body of the answer when all goes well */
} um_pending;
um_pending *um_pending_new(um_exchange *x);
/* Answers and frees p; the um_stored_fn of jobs whose `arg` it is. */
void um_pending_done(void *p, um_status s, const um_err *err);

/* OpenAI's expires_after: both members as they were given, anchor NULL: none was. UM_EINVAL, about `param`. */
um_status um_expires_after_check(const char *param, const char *anchor, int64_t seconds, um_err *err);

/* A page of a list, by the query's limit, after and order. */
typedef struct um_page {
    size_t limit;
    const char *after; /* an id, or NULL */
    bool rising;       /* the oldest first */
} um_page;
/* False: it was answered. */
bool um_page_read(um_page *p, um_exchange *x, size_t limit, size_t most);
/* The list object of [0, n): `id` names an entry, `put` writes it, `shows` NULL takes all. */
typedef struct um_page_of {
    const void *list;
    size_t n;
    const char *(*id)(const void *list, size_t i);
    bool (*shows)(const void *list, size_t i, const char *filter);
    const char *filter;
    void (*put)(const void *list, size_t i, um_jw *w);
} um_page_of;
void um_page_reply(const um_page *p, const um_page_of *of, um_exchange *x);

#ifdef __cplusplus
}
#endif
#endif
