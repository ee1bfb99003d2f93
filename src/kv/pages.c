/* Page pool: who holds which page, and the order in which pages without a holder are reused. */
#include "kv/pool.h"

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
        {(void **)&p->blank, um_mul(n, sizeof(int32_t))},
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
                    .n_blank = n_pages,
                    .oldest = -1,
                    .newest = -1,
                    .entry_mask = entries_for(n_pages) - 1,
                    .hash_key = (uint64_t)um_rng_seed(), /* prompts can't be made to collide */
                    .hash_mask = UINT64_MAX};
    um_status st = allocate(p, err);
    if (st) {
        um_pages_deinit(p);
        return st;
    }
    /* Page 0 lies on top, so that a fresh pool is handed out in order. */
    for (int32_t i = 0; i < n_pages; i++) p->blank[i] = n_pages - 1 - i;
    for (uint64_t i = 0; i <= p->entry_mask; i++) p->entry[i] = -1;
    return UM_OK;
}

void um_pages_deinit(um_pages *p) {
    um_free(p->page);
    um_free(p->blank);
    um_free(p->ids);
    um_free(p->entry);
    *p = (um_pages){0};
}

int32_t um_pages_for(const um_pages *p, int64_t n_tokens) {
    return (int32_t)((n_tokens + p->page_size - 1) / p->page_size);
}

int32_t um_pages_available(const um_pages *p) { return p->n_blank + p->n_kept; }
int32_t um_pages_used(const um_pages *p) { return p->n_pages - um_pages_available(p); }

bool um_page_may_write(const um_pages *p, int32_t page) {
    return p->page[page].n_holders == 1 && !p->page[page].published;
}

/* ---- Kept pages: a list from the oldest to the newest ------------------------------------------------------------ */

static void keep(um_pages *p, int32_t page) {
    um_page *g = &p->page[page];
    g->older = p->newest;
    g->newer = -1;
    if (p->newest >= 0) p->page[p->newest].newer = page;
    else p->oldest = page;
    p->newest = page;
    p->n_kept++;
}

static void unkeep(um_pages *p, int32_t page) {
    const um_page *g = &p->page[page];
    if (g->older >= 0) p->page[g->older].newer = g->newer;
    else p->oldest = g->newer;
    if (g->newer >= 0) p->page[g->newer].older = g->older;
    else p->newest = g->older;
    p->n_kept--;
}

/* ---- Changing hands ---------------------------------------------------------------------------------------------- */

static int32_t page_to_reuse(um_pages *p) {
    if (p->n_blank > 0) return p->blank[--p->n_blank];
    int32_t page = p->oldest;
    assert(page >= 0);
    unkeep(p, page);
    um_prefix_drop(p, page);
    return page;
}

static void count_used(um_pages *p) { p->used_most = UM_MAX(p->used_most, um_pages_used(p)); }

int32_t um_page_take(um_pages *p) {
    int32_t page = page_to_reuse(p);
    assert(p->page[page].n_holders == 0 && !p->page[page].published);
    p->page[page].n_holders = 1;
    count_used(p);
    return page;
}

void um_page_hold(um_pages *p, int32_t page) {
    um_page *g = &p->page[page];
    assert(g->n_holders > 0 || g->published);
    if (g->n_holders++ > 0) return;
    unkeep(p, page);
    count_used(p);
}

void um_page_put(um_pages *p, int32_t page) {
    um_page *g = &p->page[page];
    assert(g->n_holders > 0);
    if (--g->n_holders > 0) return;
    if (g->published) keep(p, page);
    else p->blank[p->n_blank++] = page;
}

void um_prefix_flush(um_pages *p) {
    while (p->oldest >= 0) {
        int32_t page = p->oldest;
        unkeep(p, page);
        um_prefix_drop(p, page);
        p->blank[p->n_blank++] = page;
    }
    for (int32_t i = 0; i < p->n_pages; i++)
        if (p->page[i].published) um_prefix_drop(p, i);
}
