/* kv: who owns which page. Pages and tables only; where a key lies inside a page is the backend's business.
 *
 * A pool hands out page numbers; a table is the list of pages of one request, position p in page p / page_size. One
 * owner thread. Nothing here allocates after um_pages_new and um_table_init. */
#ifndef UM_KV_H
#define UM_KV_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_pages {
    int32_t n_pages, page_size, n_free;
    int32_t *free_list; /* [n_pages] stack of free pages */
    uint8_t *used;      /* [n_pages] for the double-free check */
} um_pages;

typedef struct um_table {
    int32_t *page; /* [cap] */
    int32_t n, cap;
} um_table;

um_status um_pages_init(um_pages *p, int32_t n_pages, int32_t page_size, um_err *err);
void um_pages_deinit(um_pages *p);
/* Pages that n_tokens need. */
int32_t um_pages_for(const um_pages *p, int64_t n_tokens);

void um_table_init(um_table *t, int32_t cap);
void um_table_deinit(um_table *t);
/* Grows the table to n pages; false (and nothing taken) when the pool has too few. */
bool um_table_grow(um_table *t, um_pages *p, int32_t n);
/* Gives every page back. */
void um_table_release(um_table *t, um_pages *p);

#ifdef __cplusplus
}
#endif
#endif
