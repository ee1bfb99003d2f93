/* pool: what the files of this room share: pages change hands here, and in and out of the index. */
#ifndef UM_KV_POOL_H
#define UM_KV_POOL_H

#include "kv/kv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- pages.c ---- */
/* A page without a holder gets its first: a blank one or, if there is none, the one that was kept longest, whose
 * contents are forgotten. At least one must be available. */
int32_t um_page_take(um_pages *p);
/* One more table holds the page, which may be a kept one. */
void um_page_hold(um_pages *p, int32_t page);
/* One table less holds it. */
void um_page_put(um_pages *p, int32_t page);

/* ---- prefix.c ---- */
static inline um_link um_link_root(uint64_t space) { return (um_link){.page = -1, .stamp = space}; }
static inline um_link um_link_to(const um_pages *p, int32_t page) {
    return (um_link){.page = page, .stamp = p->page[page].stamp};
}
/* Every page from here back to the root of the namespace is still published as it was. */
bool um_link_holds(const um_pages *p, um_link link, uint64_t space);
/* The published page behind `before` with these tokens [page_size], or -1; its hash in any case. */
int32_t um_prefix_find(const um_pages *p, um_link before, const int32_t *ids, uint64_t *hash);
/* Publishes a page that is not: `hash` is um_prefix_find's. */
void um_prefix_add(um_pages *p, int32_t page, um_link before, const int32_t *ids, uint64_t hash);
/* Takes a published page out of the index. */
void um_prefix_drop(um_pages *p, int32_t page);

#ifdef __cplusplus
}
#endif
#endif
