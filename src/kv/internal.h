/* The functions that the files of kv share. They allocate and release pages and change the prefix index. */
#ifndef UM_KV_INTERNAL_H
#define UM_KV_INTERNAL_H

#include "kv/kv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- pages.c ---- */
/* Returns a page with one holder: a free page or, if there is none, the page that has been cached longest, which it
 * evicts. At least one page must be available. */
int32_t um_page_acquire(um_pages *p);
/* Adds a holder to a page that is held or cached. */
void um_page_hold(um_pages *p, int32_t page);
/* Removes a holder. A page without holders becomes cached if it is published, and free otherwise. */
void um_page_release(um_pages *p, int32_t page);

/* ---- prefix.c ---- */
static inline um_prefix_node um_prefix_root(uint64_t space) { return (um_prefix_node){.page = -1, .stamp = space}; }
static inline um_prefix_node um_prefix_node_of(const um_pages *p, int32_t page) {
    return (um_prefix_node){.page = page, .stamp = p->page[page].stamp};
}
/* Returns whether all nodes from this one back to the root of the namespace are still published with the same contents.
 */
bool um_prefix_node_is_valid(const um_pages *p, um_prefix_node node, uint64_t space);
/* Returns the published page that follows `before` and has these tokens [page_size], or -1. Always sets *hash. */
int32_t um_prefix_find(const um_pages *p, um_prefix_node before, const int32_t *ids, uint64_t *hash);
/* Publishes an unpublished page; `hash` is the result of um_prefix_find. */
void um_prefix_add(um_pages *p, int32_t page, um_prefix_node before, const int32_t *ids, uint64_t hash);
/* Removes a published page from the index. */
void um_prefix_drop(um_pages *p, int32_t page);

#ifdef __cplusplus
}
#endif
#endif
