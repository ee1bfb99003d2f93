/* Prefix index: from tokens to the page that holds their keys.
 *
 * Published pages form a tree: a page's place is the page before it and its own tokens, so equal tokens behind
 * different beginnings are different pages. A hash of both says where in the index to look; whether a page is the right
 * one is decided by comparing predecessor and tokens, never by the hash. A predecessor is named with its stamp, which
 * changes when a page leaves the index: what was published behind its old contents is then behind nothing and can't be
 * found. */
#include "kv/pool.h"

static uint64_t hash_of(const um_pages *p, um_link before, const int32_t *ids) {
    uint64_t h = before.page < 0 ? um_rng_u64(p->hash_key, before.stamp) : p->page[before.page].hash;
    for (int32_t i = 0; i < p->page_size; i++) h = um_rng_u64(h, (uint32_t)ids[i]);
    return h & p->hash_mask;
}

static const int32_t *ids_of(const um_pages *p, int32_t page) { return p->ids + (size_t)page * (size_t)p->page_size; }

static size_t ids_bytes(const um_pages *p) { return (size_t)p->page_size * sizeof(int32_t); }

static bool is_same(um_link a, um_link b) { return a.page == b.page && a.stamp == b.stamp; }

bool um_link_holds(const um_pages *p, um_link link, uint64_t space) {
    for (; link.page >= 0; link = p->page[link.page].before)
        if (!p->page[link.page].published || p->page[link.page].stamp != link.stamp) return false;
    return link.stamp == space;
}

int32_t um_prefix_find(const um_pages *p, um_link before, const int32_t *ids, uint64_t *hash) {
    *hash = hash_of(p, before, ids);
    for (uint64_t at = *hash & p->entry_mask; p->entry[at] >= 0; at = (at + 1) & p->entry_mask) {
        int32_t page = p->entry[at];
        const um_page *g = &p->page[page];
        if (g->hash == *hash && is_same(g->before, before) && memcmp(ids_of(p, page), ids, ids_bytes(p)) == 0)
            return page;
    }
    return -1;
}

void um_prefix_add(um_pages *p, int32_t page, um_link before, const int32_t *ids, uint64_t hash) {
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

/* Empties an entry. Those behind it that would have lain there or before, had it been empty, move up: the index needs
 * no marks for what was deleted. */
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

/* ---- Leading runs ------------------------------------------------------------------------------------------------ */

/* Moves `link` on to the page with the next tokens; false when there is none. */
static bool follow(const um_pages *p, um_link *link, const int32_t *ids) {
    uint64_t hash;
    int32_t page = um_prefix_find(p, *link, ids, &hash);
    if (page < 0) return false;
    *link = um_link_to(p, page);
    return true;
}

int32_t um_prefix_match(const um_pages *p, uint64_t space, const int32_t *ids, int32_t n_ids, int32_t most,
                        int32_t *n_available) {
    um_link link = um_link_root(space);
    int32_t end = UM_MIN(n_ids, most), n = 0, available = 0;
    while (space != 0 && end - n >= p->page_size && follow(p, &link, ids + n)) {
        n += p->page_size;
        available += p->page[link.page].n_holders == 0;
    }
    if (n_available) *n_available = available;
    return n;
}

/* The place to look from: what was found before, as far as it still stands and n_most pages reach. */
static um_link find_start(const um_table *t, const um_pages *p, uint64_t space, int32_t n_most, int32_t *n) {
    um_link start = um_link_holds(p, t->found, space) ? t->found : um_link_root(space);
    *n = 0;
    for (um_link link = start; link.page >= 0; link = p->page[link.page].before) ++*n;
    for (; *n > n_most; --*n) start = p->page[start.page].before;
    return start;
}

/* Begins the table with the n pages up to `link`. */
static void hold_chain(um_table *t, um_pages *p, um_link link, int32_t n) {
    t->n = n;
    for (int32_t i = n - 1; i >= 0; i--, link = p->page[link.page].before) {
        um_page_hold(p, link.page);
        t->page[i] = link.page;
    }
}

int32_t um_table_adopt(um_table *t, um_pages *p, uint64_t space, const int32_t *ids, int32_t n_ids, int32_t most) {
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

/* Publishes the table's page i behind t->last, or finds its equal. */
static um_link publish_page(const um_table *t, um_pages *p, int32_t i, const int32_t *ids) {
    uint64_t hash;
    int32_t page = um_prefix_find(p, t->last, ids, &hash);
    if (page < 0) {
        page = t->page[i];
        /* Its predecessor was an equal page of another table's, which is gone. */
        if (p->page[page].published) um_prefix_drop(p, page);
        um_prefix_add(p, page, t->last, ids, hash);
    }
    return um_link_to(p, page);
}

void um_table_publish(um_table *t, um_pages *p, uint64_t space, const int32_t *ids, int32_t n_stored) {
    int32_t n = n_stored / p->page_size;
    assert(n <= t->n);
    if (space == 0) return;
    if (t->n_published > 0 && t->n_dropped != p->n_dropped && !um_link_holds(p, t->last, space)) t->n_published = 0;
    if (t->n_published == 0) t->last = um_link_root(space);
    for (; t->n_published < n; t->n_published++)
        t->last = publish_page(t, p, t->n_published, ids + (size_t)t->n_published * (size_t)p->page_size);
    t->n_dropped = p->n_dropped;
}
