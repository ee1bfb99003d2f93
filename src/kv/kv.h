/* kv: who owns which page, and which pages hold what a new request would otherwise compute again. Pages, tables and
 * token ids only; where a key lies inside a page is the backend's business.
 *
 * A pool hands out page numbers and counts the tables that hold each. A table is the list of pages of one request:
 * position p lies in page p / page_size. A page that is wholly committed may be published: the prefix index then finds
 * it by its tokens and all tokens before them, and a later request adopts it instead of filling one of its own. Tables
 * of one request's branches share pages by forking. A page is in one of three states:
 *
 *   held     by one table or several, published or not
 *   kept     by none, but published: its contents can still be found; the first to be reused is the one released first
 *   blank    by none, nothing worth keeping: what is handed out before any kept page
 *
 * What a published page holds never changes, and nobody writes to a page that several tables hold (um_page_may_write).
 * One owner thread for a pool and its tables. Nothing allocates after um_pages_init and um_table_init. */
#ifndef UM_KV_H
#define UM_KV_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Pool (pages.c) ---------------------------------------------------------------------------------------------- */

/* A place in the tree of published pages: a page as it was published at one time, told from what it holds later by its
 * stamp. page -1 is the root of a namespace, which is then the stamp. */
typedef struct um_link {
    int32_t page;
    uint64_t stamp;
} um_link;

typedef struct um_page {
    int32_t n_holders; /* tables */
    bool published;
    uint64_t stamp;       /* times it was taken out of the index */
    uint64_t hash;        /* published: of its tokens and all before them */
    um_link before;       /* published: its predecessor */
    int32_t older, newer; /* kept: its neighbours in order of release, -1 at the ends */
} um_page;

typedef struct um_pages {
    int32_t n_pages, page_size;
    um_page *page;           /* [n_pages] */
    int32_t *blank, n_blank; /* stack [n_pages] */
    int32_t n_kept, oldest, newest;

    /* The index: open addressing, at most half full. */
    int32_t *ids;   /* [n_pages, page_size] tokens of published pages */
    int32_t *entry; /* [entry_mask + 1] pages, -1: none */
    uint64_t entry_mask, hash_key;
    uint64_t hash_mask; /* all ones; tests take bits away, so that different tokens have equal hashes */
    uint64_t n_dropped; /* pages taken out of the index so far */

    int32_t used_most; /* largest um_pages_used so far */
} um_pages;

um_status um_pages_init(um_pages *p, int32_t n_pages, int32_t page_size, um_err *err);
void um_pages_deinit(um_pages *p);
/* Pages that n_tokens need. */
int32_t um_pages_for(const um_pages *p, int64_t n_tokens);
/* Pages that no table holds, and those that one does. */
int32_t um_pages_available(const um_pages *p);
int32_t um_pages_used(const um_pages *p);
/* Keys may be written to the page: one table holds it and it is not published. */
bool um_page_may_write(const um_pages *p, int32_t page);

/* ---- Tables (table.c) -------------------------------------------------------------------------------------------- */

typedef struct um_table {
    int32_t *page; /* [cap] */
    int32_t n, cap;
    int32_t n_published; /* leading pages whose contents the index knows, in these pages or in equal ones */
    um_link last;        /* the last of those */
    um_link found;       /* the last page that um_table_adopt found: asked again, it goes on from there */
    uint64_t n_dropped;  /* of the pool, when `last` was known to lead back to the root */
} um_table;

void um_table_init(um_table *t, int32_t cap);
void um_table_deinit(um_table *t);
/* Grows the table to n pages; false (and nothing taken) when the pool has too few. */
bool um_table_grow(um_table *t, um_pages *p, int32_t n);
/* Gives the pages behind the first n back, the last one first, so that the end of a prefix is reused before its
 * beginning. */
void um_table_truncate(um_table *t, um_pages *p, int32_t n);
/* Gives every page back. */
void um_table_release(um_table *t, um_pages *p);

/* Starts the empty table `to` with the first n_positions of `from`: all their pages are shared, the last one too when
 * it is cut. Takes no page; whoever writes to the cut page first needs one (um_table_writable). */
void um_table_fork(um_table *to, const um_table *from, um_pages *p, int32_t n_positions);

/* The first n slots of a page that must be copied to another; n = 0: nothing. */
typedef struct um_page_copy {
    int32_t from, to, n;
} um_page_copy;
/* Must be asked before keys are written to position `first` or behind it. Where other tables share first's page, the
 * table gets a page in its place, and the caller copies as told, at once. Pages behind that one must be the table's
 * alone. False when no page is available; nothing has changed then. */
bool um_table_writable(um_table *t, um_pages *p, int32_t first, um_page_copy *copy);

/* ---- Prefix index (prefix.c) ------------------------------------------------------------------------------------- */

/* `space` is the namespace: a number that is equal for requests whose keys depend on their tokens in the same way
 * (model, adapter, type of the stored keys, strategy, salt). In namespace 0 nothing is published or found. */

/* Leading positions of ids [n_ids] that the index knows: whole pages, none that reaches beyond position `most`.
 * *n_available (may be NULL): how many of their pages are among um_pages_available. Changes nothing. Cost: a hash over
 * the positions found and one page more. */
int32_t um_prefix_match(const um_pages *p, uint64_t space, const int32_t *ids, int32_t n_ids, int32_t most,
                        int32_t *n_available);
/* Starts the empty table with the pages of um_prefix_match; returns the positions they hold. Keys behind those are the
 * request's to compute. A table is asked again with the same namespace and tokens: then pages that it found before cost
 * a step along their links, and a hash is taken over the page behind them alone. */
int32_t um_table_adopt(um_table *t, um_pages *p, uint64_t space, const int32_t *ids, int32_t n_ids, int32_t most);
/* Publishes every page of which all positions lie below n_stored and which the index does not know; ids [n_stored] are
 * their final tokens. Where it knows an equal page, the table keeps its own, unpublished. Cost: a hash over the pages
 * that are new since the last call; if pages were reused meanwhile, a walk over the earlier ones too. */
void um_table_publish(um_table *t, um_pages *p, uint64_t space, const int32_t *ids, int32_t n_stored);
/* Forgets every published page; kept ones become blank. Tables keep what they hold and publish it again. */
void um_prefix_flush(um_pages *p);

#ifdef __cplusplus
}
#endif
#endif
