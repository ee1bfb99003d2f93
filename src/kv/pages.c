/* The page pool: the holders of pages, the stack of free pages and the list of cached pages. */
#include "kv/internal.h"

static uint64_t entries_for(int32_t n_pages) {
    uint64_t n = 2;
    while (n < 2 * (uint64_t)n_pages) n *= 2;
    return n;
}

static um_status allocate(um_pages *p, um_err *err) {
    size_t n = (size_t)p->n_pages;
    struct {
        void **out;
        size_t bytes;
    } want[] = {
        {(void **)&p->page, um_mul(n, sizeof(um_page))},
        {(void **)&p->free_page, um_mul(n, sizeof(int32_t))},
        {(void **)&p->ids, um_mul(um_mul(n, (size_t)p->page_size), sizeof(int32_t))},
        {(void **)&p->entry, um_mul((size_t)p->entry_mask + 1, sizeof(int32_t))},
    };
    for (size_t i = 0; i < UM_LEN(want); i++) {
        um_status st = um_try_alloc(want[i].out, want[i].bytes, 16, "page tables", err);
        if (st) return st;
    }
    return UM_OK;
}

um_status um_pages_init(um_pages *p, int32_t n_pages, int32_t page_size, um_err *err) {
    assert(n_pages >= 1 && page_size >= 1);
    *p = (um_pages){.n_pages = n_pages,
                    .page_size = page_size,
                    .n_free = n_pages,
                    .oldest = -1,
                    .newest = -1,
                    .entry_mask = entries_for(n_pages) - 1,
                    .hash_key = (uint64_t)um_rng_seed(), /* random, so that nobody can craft colliding prompts */
                    .hash_mask = UINT64_MAX};
    um_status st = allocate(p, err);
    if (st) {
        um_pages_deinit(p);
        return st;
    }
    /* Page 0 is on top of the stack, so that a new pool allocates its pages in order. */
    for (int32_t i = 0; i < n_pages; i++) p->free_page[i] = n_pages - 1 - i;
    for (uint64_t i = 0; i <= p->entry_mask; i++) p->entry[i] = -1;
    return UM_OK;
}

void um_pages_deinit(um_pages *p) {
    um_free(p->page);
    um_free(p->free_page);
    um_free(p->ids);
    um_free(p->entry);
    *p = (um_pages){0};
}

int32_t um_pages_for(const um_pages *p, int64_t n_tokens) {
    return (int32_t)((n_tokens + p->page_size - 1) / p->page_size);
}

int32_t um_pages_available(const um_pages *p) { return p->n_free + p->n_cached; }
int32_t um_pages_used(const um_pages *p) { return p->n_pages - um_pages_available(p); }

bool um_page_may_write(const um_pages *p, int32_t page) {
    return p->page[page].n_holders == 1 && !p->page[page].published;
}

/* ---- Cached pages: a list from the oldest to the newest ---------------------------------------------------------- */

static void add_cached(um_pages *p, int32_t page) {
    um_page *g = &p->page[page];
    g->older = p->newest;
    g->newer = -1;
    if (p->newest >= 0) p->page[p->newest].newer = page;
    else p->oldest = page;
    p->newest = page;
    p->n_cached++;
}

static void remove_cached(um_pages *p, int32_t page) {
    const um_page *g = &p->page[page];
    if (g->older >= 0) p->page[g->older].newer = g->newer;
    else p->oldest = g->newer;
    if (g->newer >= 0) p->page[g->newer].older = g->older;
    else p->newest = g->older;
    p->n_cached--;
}

/* ---- Holders ----------------------------------------------------------------------------------------------------- */

static int32_t take_available_page(um_pages *p) {
    if (p->n_free > 0) return p->free_page[--p->n_free];
    int32_t page = p->oldest;
    assert(page >= 0);
    remove_cached(p, page);
    um_prefix_drop(p, page);
    return page;
}

static void count_used(um_pages *p) { p->used_max = UM_MAX(p->used_max, um_pages_used(p)); }

int32_t um_page_acquire(um_pages *p) {
    int32_t page = take_available_page(p);
    assert(p->page[page].n_holders == 0 && !p->page[page].published);
    p->page[page].n_holders = 1;
    count_used(p);
    return page;
}

void um_page_hold(um_pages *p, int32_t page) {
    um_page *g = &p->page[page];
    assert(g->n_holders > 0 || g->published);
    if (g->n_holders++ > 0) return;
    remove_cached(p, page);
    count_used(p);
}

void um_page_release(um_pages *p, int32_t page) {
    um_page *g = &p->page[page];
    assert(g->n_holders > 0);
    if (--g->n_holders > 0) return;
    if (g->published) add_cached(p, page);
    else p->free_page[p->n_free++] = page;
}

void um_prefix_flush(um_pages *p) {
    while (p->oldest >= 0) {
        int32_t page = p->oldest;
        remove_cached(p, page);
        um_prefix_drop(p, page);
        p->free_page[p->n_free++] = page;
    }
    for (int32_t i = 0; i < p->n_pages; i++)
        if (p->page[i].published) um_prefix_drop(p, i);
}
