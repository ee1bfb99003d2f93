/* Page tables: the pages of one request in the order of positions. */
#include "kv/internal.h"

void um_table_init(um_table *t, int32_t cap) {
    *t = (um_table){.page = UM_NEW_ARRAY(int32_t, (size_t)cap), .cap = cap, .found = um_prefix_root(0)};
}

void um_table_deinit(um_table *t) {
    assert(t->n == 0);
    um_free(t->page);
    *t = (um_table){0};
}

bool um_table_grow(um_table *t, um_pages *p, int32_t n) {
    assert(n <= t->cap);
    if (n - t->n > um_pages_available(p)) return false;
    while (t->n < n) t->page[t->n++] = um_page_acquire(p);
    return true;
}

/* Notes that page n and later pages are not published. The next um_table_publish starts at the root again and finds the
 * pages before n in the index. */
static void forget_published(um_table *t, int32_t n) {
    if (t->n_published > n) t->n_published = 0;
}

void um_table_truncate(um_table *t, um_pages *p, int32_t n) {
    assert(n >= 0);
    forget_published(t, n);
    while (t->n > UM_MAX(n, t->n_gone)) um_page_release(p, t->page[--t->n]);
    t->n = UM_MIN(t->n, n);
    t->n_gone = UM_MIN(t->n_gone, t->n);
}

void um_table_drop_front(um_table *t, um_pages *p, int32_t n) {
    assert(n <= t->n);
    for (; t->n_gone < n; t->n_gone++) {
        um_page_release(p, t->page[t->n_gone]);
        t->page[t->n_gone] = -1;
    }
}

void um_table_release(um_table *t, um_pages *p) { um_table_truncate(t, p, 0); }

void um_table_fork(um_table *to, const um_table *from, um_pages *p, int32_t n_positions) {
    int32_t n = um_pages_for(p, n_positions);
    assert(to->n == 0 && n <= to->cap && n <= from->n && from->n_gone == 0);
    for (int32_t i = 0; i < n; i++) {
        um_page_hold(p, from->page[i]);
        to->page[i] = from->page[i];
    }
    to->n = n;
    to->n_published = from->n_published;
    to->last = from->last;
    to->n_dropped = from->n_dropped;
    forget_published(to, n_positions / p->page_size);
}

/* Replaces page i of the table, which other tables hold too, by a new page. n_kept slots must be copied. */
static void replace_page(um_table *t, um_pages *p, int32_t i, int32_t n_kept, um_page_copy *copy) {
    int32_t page = t->page[i];
    t->page[i] = um_page_acquire(p);
    *copy = (um_page_copy){.from = page, .to = t->page[i], .n = n_kept};
    um_page_release(p, page);
}

bool um_table_writable(um_table *t, um_pages *p, int32_t first, um_page_copy *copy) {
    int32_t i = first / p->page_size;
    assert(first >= 0);
    for (int32_t k = i + 1; k < t->n; k++) assert(um_page_may_write(p, t->page[k]));
    *copy = (um_page_copy){0};
    if (i >= t->n) return true;
    const um_page *page = &p->page[t->page[i]];
    if (page->n_holders > 1 && um_pages_available(p) == 0) return false;
    if (page->n_holders > 1) replace_page(t, p, i, first % p->page_size, copy);
    /* Only this table holds the page. Writing in place invalidates it in the index, but needs no free page. */
    else if (page->published) um_prefix_drop(p, t->page[i]);
    forget_published(t, i);
    return true;
}
