/* Converts the planned segments to the flat arrays that the forward pass reads. */
#include "engine/engine.h"

/* Finds the slots of a segment in layers with a window. */
static void find_near_slots(um_engine *e, const um_segment *s, int32_t first) {
    for (int32_t i = 0; i < s->n; i++)
        e->near_slot[first + i] = (int32_t)um_slot_of(s->req->near_page, e->near.page_size, s->vis[i]);
}

static void flatten(um_engine *e, const um_segment *s, um_span *span, int32_t first) {
    const int32_t page_size = e->pages.page_size;
    int32_t start = -page_size, slot = 0; /* the page of the token before: its first visibility index and slot */
    for (int32_t i = 0; i < s->n; i++) {
        const int32_t vis = s->vis[i];
        if (vis < start || vis >= start + page_size) {
            const int32_t page = s->page[vis / page_size];
            assert(page >= e->pages.n_pages || um_page_may_write(&e->pages, page));
            start = vis / page_size * page_size;
            slot = page * page_size;
        }
        e->slot[first + i] = slot + vis - start;
        e->seen_end[first + i] = UM_MIN(um_visible_end(s->rule, vis), s->keys.end);
    }
    if (e->near.n_pages) find_near_slots(e, s, first);
    *span = (um_span){.first = first,
                      .n = s->n,
                      .page = s->page,
                      .near_page = e->near.n_pages ? s->req->near_page : NULL,
                      .keys = s->keys,
                      .hole = s->hole,
                      .select = s->select,
                      .adapter = s->adapter,
                      .canvas = s->canvas,
                      .start = s->vis[0],
                      .blend = s->blend};
}

void um_batch_build(um_engine *e, um_batch *b) {
    const um_pass *p = &e->space;
    int32_t first = 0, n_saves = 0;
    for (int32_t i = 0; i < p->n_seg; i++) {
        const um_segment *s = &p->seg[i];
        flatten(e, s, &e->span[i], first);
        if (s->save_src >= 0) {
            e->save[n_saves][0] = first + s->save_src;
            e->save[n_saves++][1] = s->save_to;
        }
        for (int32_t k = 0; k < s->n_soft; k++) e->space.soft[s->soft - e->space.soft + k].at += first;
        first += s->n;
    }
    assert(first == p->n_tokens);
    *b = (um_batch){.n_tokens = p->n_tokens,
                    .n_spans = p->n_seg,
                    .n_rows = p->n_rows,
                    .n_saves = n_saves,
                    .id = p->id,
                    .pos = p->pos,
                    .slot = e->slot,
                    .near_slot = e->near.n_pages ? e->near_slot : NULL,
                    .seen_end = e->seen_end,
                    .span = e->span,
                    .soft = p->soft,
                    .n_soft = p->n_softs,
                    .row = p->row,
                    .save = (const int32_t(*)[2])e->save,
                    .answer = e->answer};
}
