/* kv: the pool of KV pages, the page tables of requests, and the prefix index. kv handles only page numbers and token
 * ids; the backend decides where a key is stored inside a page.
 *
 * The pool allocates pages and counts the tables that hold each page. A table is the list of pages of one request:
 * position p is in page p / page_size. A page can be published when all its positions are committed. The prefix index
 * finds a published page by its tokens and all tokens before them, and a later request reuses it instead of computing
 * the keys again. Tables of a request's branches share pages by forking. A page is in one of three states:
 *
 *   held     one or more tables hold it; it may be published
 *   cached   no table holds it, but it is published, so a request can still reuse it. Cached pages are evicted in the
 *            order in which they were released
 *   free     no table holds it and it is not published. Free pages are allocated before cached pages are evicted
 *
 * The contents of a published page never change, and a page that several tables hold is never written
 * (um_page_may_write). A table whose keys are only read within a window gives its first pages back
 * (um_table_drop_front). One thread owns a pool and its tables. Only um_pages_init and um_table_init allocate memory.
 */
#ifndef UM_KV_H
#define UM_KV_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Pool (pages.c) ---------------------------------------------------------------------------------------------- */

/* A node in the tree of published pages. The stamp distinguishes the present contents of the page from later ones. For
 * page -1, the root of a namespace, the stamp is the namespace. */
typedef struct um_prefix_node {
    int32_t page;
    uint64_t stamp;
} um_prefix_node;

typedef struct um_page {
    int32_t n_holders; /* number of tables that hold the page */
    bool published;
    uint64_t stamp;        /* number of times that the page was removed from the index */
    uint64_t hash;         /* if published: hash of its tokens and all tokens before them */
    um_prefix_node before; /* if published: its predecessor */
    int32_t older, newer;  /* if cached: its neighbours in the order of release, -1 at the ends */
} um_page;

typedef struct um_pages {
    int32_t n_pages, page_size;
    um_page *page;                    /* [n_pages] */
    int32_t *free_page, n_free;       /* [n_pages] stack of free pages */
    int32_t n_cached, oldest, newest; /* list of cached pages */

    /* The prefix index: a hash table with open addressing, at most half full. */
    int32_t *ids;   /* [n_pages, page_size] tokens of published pages */
    int32_t *entry; /* [entry_mask + 1] pages, -1: none */
    uint64_t entry_mask, hash_key;
    uint64_t hash_mask; /* all ones; tests clear bits to provoke hash collisions */
    uint64_t n_dropped; /* number of pages removed from the index so far */

    int32_t used_max; /* maximum of um_pages_used so far */
} um_pages;

um_status um_pages_init(um_pages *p, int32_t n_pages, int32_t page_size, um_err *err);
void um_pages_deinit(um_pages *p);
/* Returns the number of pages for n_tokens tokens. */
int32_t um_pages_for(const um_pages *p, int64_t n_tokens);
/* Returns the number of pages that no table holds. */
int32_t um_pages_available(const um_pages *p);
/* Returns the number of pages that a table holds. */
int32_t um_pages_used(const um_pages *p);
/* Returns whether keys may be written to the page: exactly one table holds it and it is not published. */
bool um_page_may_write(const um_pages *p, int32_t page);

/* ---- Tables (table.c) -------------------------------------------------------------------------------------------- */

typedef struct um_table {
    int32_t *page; /* [cap] */
    int32_t n, cap;
    int32_t n_gone;       /* number of leading pages that were given back; their entries are -1 */
    int32_t n_published;  /* number of leading pages whose contents are published, in these pages or in equal pages */
    um_prefix_node last;  /* node of the last of these pages */
    um_prefix_node found; /* the last node that um_table_reuse_prefix found; the next call continues there */
    uint64_t n_dropped;   /* the pool's n_dropped when `last` was last known to lead back to the root */
} um_table;

void um_table_init(um_table *t, int32_t cap);
void um_table_deinit(um_table *t);
/* Grows the table to n pages. Returns false and changes nothing when the pool has too few pages. */
bool um_table_grow(um_table *t, um_pages *p, int32_t n);
/* Releases the pages after the first n. Releases the last page first, so that the end of a prefix is evicted before its
 * beginning. */
void um_table_truncate(um_table *t, um_pages *p, int32_t n);
/* Gives back the first n pages, which are not read any more. Their keys stay in the prefix index until they are
 * evicted. */
void um_table_drop_front(um_table *t, um_pages *p, int32_t n);
/* Releases all pages. */
void um_table_release(um_table *t, um_pages *p);

/* Fills the empty table `to` with the pages of the first n_positions positions of `from`. The tables share all these
 * pages, also the last one when only a part of it is needed. Allocates no page: the table that first writes to the
 * partly shared page needs a copy then (um_table_writable). */
void um_table_fork(um_table *to, const um_table *from, um_pages *p, int32_t n_positions);

/* A copy of the first n slots of a page to another page; n = 0: nothing to copy. */
typedef struct um_page_copy {
    int32_t from, to, n;
} um_page_copy;
/* Prepares the table for writing keys at position `first` and after it. If other tables hold the page of `first`, the
 * table gets a new page in its place, and the caller must execute *copy at once. No other table may hold the pages
 * after that one. Returns false and changes nothing when no page is available. */
bool um_table_writable(um_table *t, um_pages *p, int32_t first, um_page_copy *copy);

/* ---- Prefix index (prefix.c) ------------------------------------------------------------------------------------- */

/* `space` is the namespace of a request. Requests have the same namespace when their keys depend on the tokens in the
 * same way (model, adapter, type of the stored keys, strategy, salt). In namespace 0 nothing is published or found. */

/* Returns the number of leading positions of ids [n_ids] whose keys are published. Counts only whole pages that end at
 * or before position `most`. *n_available (may be NULL) receives the number of these pages that are among
 * um_pages_available. Changes nothing. Cost: a hash over the positions found and one more page. */
int32_t um_prefix_match(const um_pages *p, uint64_t space, const int32_t *ids, int32_t n_ids, int32_t most,
                        int32_t *n_available);
/* Fills the empty table with the published pages that um_prefix_match counts, and returns the number of their
 * positions. The request computes the keys after these. Calling it again for the same table with the same namespace and
 * tokens is cheap: it follows the links of the pages found before and hashes only the pages after them. */
int32_t um_table_reuse_prefix(um_table *t, um_pages *p, uint64_t space, const int32_t *ids, int32_t n_ids,
                              int32_t most);
/* Publishes every page whose positions are all below n_stored, unless an equal page is published already. In that case
 * the table keeps its own page, unpublished. ids [n_stored] are the final tokens. Cost: a hash over the pages that are
 * new since the last call; if pages were removed from the index meanwhile, also a walk over the earlier pages. */
void um_table_publish(um_table *t, um_pages *p, uint64_t space, const int32_t *ids, int32_t n_stored);
/* Removes all pages from the index; cached pages become free. Tables keep their pages and publish them again at the
 * next um_table_publish. */
void um_prefix_flush(um_pages *p);

#ifdef __cplusplus
}
#endif
#endif
