/* list_page: OpenAI's pages of lists, for files, batches and items. All functions run on the loop's thread. */
#ifndef UM_LIST_PAGE_H
#define UM_LIST_PAGE_H

#include "server/http/http.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The page of a list that a request asks for. */
typedef struct um_list_page {
    size_t limit;
    const char *after; /* id of the entry before the page, or NULL */
    bool ascending;    /* the oldest first */
} um_list_page;
/* Reads limit, after and order from the query. `limit` is the default and `most` the maximum. On failure answers 400
 * and returns false. */
bool um_list_page_read(um_list_page *p, um_exchange *x, size_t limit, size_t most);
/* A list of entries [0, n), the oldest first. */
typedef struct um_list_page_source {
    const void *list;
    size_t n;
    const char *(*id)(const void *list, size_t i);
    /* The entries for which this is false do not exist for the client. NULL: all exist. */
    bool (*matches)(const void *list, size_t i, const void *filter);
    const void *filter;                                /* argument of `matches` */
    void (*put)(const void *list, size_t i, um_jw *w); /* writes the entry's object */
} um_list_page_source;
/* Sends the page. Answers 400 if `after` is not in the list. */
void um_list_page_reply(const um_list_page *p, const um_list_page_source *source, um_exchange *x);

#ifdef __cplusplus
}
#endif
#endif
