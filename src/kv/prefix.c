/* The prefix index: finds the page that holds the keys of given tokens.
 *
 * Published pages form a tree. A page is identified by its predecessor and its own tokens, so equal tokens after
 * different prefixes are different pages. A hash of both selects the entry of the index. A match is confirmed by
 * comparing predecessor and tokens, never by the hash alone. A predecessor is identified by page number and stamp. The
 * stamp changes when the page is removed from the index. Pages that followed its old contents then have no valid
 * predecessor and can't be found. */
#include "kv/internal.h"

static uint64_t hash_of(const um_pages *p, um_prefix_node before, const int32_t *ids) {
    uint64_t h = before.page < 0 ? um_rng_u64(p->hash_key, before.stamp) : p->page[before.page].hash;
    for (int32_t i = 0; i < p->page_size; i++) h = um_rng_u64(h, (uint32_t)ids[i]);
    return h & p->hash_mask;
}

static const int32_t *ids_of(const um_pages *p, int32_t page) { return p->ids + (size_t)page * (size_t)p->page_size; }

static size_t ids_bytes(const um_pages *p) { return (size_t)p->page_size * sizeof(int32_t); }

static bool is_same(um_prefix_node a, um_prefix_node b) { return a.page == b.page && a.stamp == b.stamp; }

bool um_prefix_node_is_valid(const um_pages *p, um_prefix_node node, uint64_t space) {
    for (; node.page >= 0; node = p->page[node.page].before)
        if (!p->page[node.page].published || p->page[node.page].stamp != node.stamp) return false;
    return node.stamp == space;
}

int32_t um_prefix_find(const um_pages *p, um_prefix_node before, const int32_t *ids, uint64_t *hash) {
    *hash = hash_of(p, before, ids);
    for (uint64_t at = *hash & p->entry_mask; p->entry[at] >= 0; at = (at + 1) & p->entry_mask) {
        int32_t page = p->entry[at];
        const um_page *g = &p->page[page];
        if (g->hash == *hash && is_same(g->before, before) && memcmp(ids_of(p, page), ids, ids_bytes(p)) == 0)
            return page;
    }
    return -1;
}

void um_prefix_add(um_pages *p, int32_t page, um_prefix_node before, const int32_t *ids, uint64_t hash) {
    um_page *g = &p->page[page];
    assert(!g->published);
    g->published = true;
    g->hash = hash;
    g->before = before;
    memcpy(p->ids + (size_t)page * (size_t)p->page_size, ids, ids_bytes(p));
    uint64_t at = hash & p->entry_mask;
    while (p->entry[at] >= 0) at = (at + 1) & p->entry_mask;
    p->entry[at] = page;
}

/* Empties an entry of the index. Moves later entries of the same probe sequence forward, so that the table needs no
 * markers for deleted entries. */
static void empty_entry(um_pages *p, uint64_t at) {
    for (uint64_t k = (at + 1) & p->entry_mask; p->entry[k] >= 0; k = (k + 1) & p->entry_mask) {
        uint64_t home = p->page[p->entry[k]].hash & p->entry_mask;
        if (((k - home) & p->entry_mask) < ((k - at) & p->entry_mask)) continue;
        p->entry[at] = p->entry[k];
        at = k;
    }
    p->entry[at] = -1;
}

void um_prefix_drop(um_pages *p, int32_t page) {
    um_page *g = &p->page[page];
    assert(g->published);
    uint64_t at = g->hash & p->entry_mask;
    while (p->entry[at] != page) at = (at + 1) & p->entry_mask;
    empty_entry(p, at);
    g->published = false;
    g->stamp++;
    p->n_dropped++;
}

/* ---- Prefixes ---------------------------------------------------------------------------------------------------- */

/* Moves *node to its successor with these tokens. Returns false when there is none. */
static bool follow(const um_pages *p, um_prefix_node *node, const int32_t *ids) {
    uint64_t hash;
    int32_t page = um_prefix_find(p, *node, ids, &hash);
    if (page < 0) return false;
    *node = um_prefix_node_of(p, page);
    return true;
}

int32_t um_prefix_match(const um_pages *p, uint64_t space, const int32_t *ids, int32_t n_ids, int32_t most,
                        int32_t *n_available) {
    um_prefix_node node = um_prefix_root(space);
    int32_t end = UM_MIN(n_ids, most), n = 0, available = 0;
    while (space != 0 && end - n >= p->page_size && follow(p, &node, ids + n)) {
        n += p->page_size;
        available += p->page[node.page].n_holders == 0;
    }
    if (n_available) *n_available = available;
    return n;
}

/* Returns the node from which to continue the search, at most n_most pages deep, and its depth in *n. This is the node
 * that the previous call found, if it is still valid, and the root otherwise. */
static um_prefix_node find_start(const um_table *t, const um_pages *p, uint64_t space, int32_t n_most, int32_t *n) {
    um_prefix_node start = um_prefix_node_is_valid(p, t->found, space) ? t->found : um_prefix_root(space);
    *n = 0;
    for (um_prefix_node node = start; node.page >= 0; node = p->page[node.page].before) ++*n;
    for (; *n > n_most; --*n) start = p->page[start.page].before;
    return start;
}

/* Fills the empty table with the n pages that end at `node`. */
static void hold_chain(um_table *t, um_pages *p, um_prefix_node node, int32_t n) {
    t->n = n;
    for (int32_t i = n - 1; i >= 0; i--, node = p->page[node.page].before) {
        um_page_hold(p, node.page);
        t->page[i] = node.page;
    }
}

int32_t um_table_reuse_prefix(um_table *t, um_pages *p, uint64_t space, const int32_t *ids, int32_t n_ids,
                              int32_t most) {
    assert(t->n == 0);
    if (space == 0) return 0;
    const int32_t n_most = UM_MIN(n_ids, most) / p->page_size;
    int32_t n;
    t->found = find_start(t, p, space, n_most, &n);
    while (n < n_most && follow(p, &t->found, ids + (size_t)n * (size_t)p->page_size)) n++;
    assert(n <= t->cap);
    hold_chain(t, p, t->found, n);
    t->last = t->found;
    t->n_published = n;
    t->n_dropped = p->n_dropped;
    return n * p->page_size;
}

/* Publishes page i of the table as the successor of t->last, unless an equal page is published. Moves t->last to the
 * published page; false: the page was given back. */
static bool publish_page(um_table *t, um_pages *p, int32_t i, const int32_t *ids) {
    uint64_t hash;
    int32_t page = um_prefix_find(p, t->last, ids, &hash);
    if (page < 0 && t->page[i] < 0) return false;
    if (page < 0) {
        page = t->page[i];
        /* The page was published after an equal page of another table, which is no longer in the index. */
        if (p->page[page].published) um_prefix_drop(p, page);
        um_prefix_add(p, page, t->last, ids, hash);
    }
    t->last = um_prefix_node_of(p, page);
    return true;
}

void um_table_publish(um_table *t, um_pages *p, uint64_t space, const int32_t *ids, int32_t n_stored) {
    int32_t n = n_stored / p->page_size;
    assert(n <= t->n);
    if (space == 0) return;
    if (t->n_published > 0 && t->n_dropped != p->n_dropped && !um_prefix_node_is_valid(p, t->last, space))
        t->n_published = 0;
    if (t->n_published == 0) t->last = um_prefix_root(space);
    while (t->n_published < n &&
           publish_page(t, p, t->n_published, ids + (size_t)t->n_published * (size_t)p->page_size))
        t->n_published++;
    t->n_dropped = p->n_dropped;
}
