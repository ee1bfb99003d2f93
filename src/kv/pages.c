/* Page pool and page tables. */
#include "kv/kv.h"

um_status um_pages_init(um_pages *p, int32_t n_pages, int32_t page_size, um_err *err) {
    assert(n_pages >= 1 && page_size >= 1);
    *p = (um_pages){.n_pages = n_pages, .page_size = page_size, .n_free = n_pages};
    void *list = NULL, *used = NULL;
    um_status st = um_try_alloc(&list, um_mul((size_t)n_pages, sizeof(int32_t)), 16, "page list", err);
    if (!st) st = um_try_alloc(&used, (size_t)n_pages, 16, "page flags", err);
    p->free_list = (int32_t *)list;
    p->used = (uint8_t *)used;
    if (st) {
        um_pages_deinit(p);
        return st;
    }
    /* Page 0 lies on top, so that a fresh pool is handed out in order. */
    for (int32_t i = 0; i < n_pages; i++) p->free_list[i] = n_pages - 1 - i;
    return UM_OK;
}

void um_pages_deinit(um_pages *p) {
    um_free(p->free_list);
    um_free(p->used);
    *p = (um_pages){0};
}

int32_t um_pages_for(const um_pages *p, int64_t n_tokens) {
    return (int32_t)((n_tokens + p->page_size - 1) / p->page_size);
}

void um_table_init(um_table *t, int32_t cap) {
    *t = (um_table){.page = UM_NEW_ARRAY(int32_t, (size_t)cap), .cap = cap};
}

void um_table_deinit(um_table *t) {
    assert(t->n == 0);
    um_free(t->page);
    *t = (um_table){0};
}

bool um_table_grow(um_table *t, um_pages *p, int32_t n) {
    assert(n <= t->cap);
    if (n - t->n > p->n_free) return false;
    while (t->n < n) {
        int32_t page = p->free_list[--p->n_free];
        assert(!p->used[page]);
        p->used[page] = 1;
        t->page[t->n++] = page;
    }
    return true;
}

void um_table_release(um_table *t, um_pages *p) {
    while (t->n > 0) {
        int32_t page = t->page[--t->n];
        assert(p->used[page]);
        p->used[page] = 0;
        p->free_list[p->n_free++] = page;
    }
}
