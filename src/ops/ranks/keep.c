/* Copies of batches. The ranks of a host read the batch during the whole pass, and the thread of one that hangs may do
 * so after the engine has freed the batch. */
#include "ops/ranks/group.h"

struct um_kept_batch {
    um_arena memory; /* of the arrays of `batch` */
    size_t size;     /* bytes of the largest chunk that make_room has allocated */
    um_batch batch;
    int32_t vocab, page_size;
};

um_kept_batch *um_kept_batch_new(const um_network *n, const um_forward_config *c) {
    um_kept_batch *k = UM_NEW(um_kept_batch);
    um_arena_init(&k->memory, 0);
    k->vocab = n->vocab;
    k->page_size = c->page_size;
    return k;
}

void um_kept_batch_free(um_kept_batch *k) {
    if (!k) return;
    um_arena_free(&k->memory);
    um_free(k);
}

/* Copies n elements of `size` bytes. NULL stays NULL. */
static void *copy(um_kept_batch *k, const void *from, int64_t n, size_t size) {
    if (!from) return NULL;
    void *to = um_arena_alloc(&k->memory, UM_MAX((size_t)n * size, (size_t)1));
    if (n > 0) memcpy(to, from, (size_t)n * size);
    return to;
}

static int32_t *copy_table(um_kept_batch *k, const int32_t *page, int32_t n_keys) {
    return (int32_t *)copy(k, page, UM_CEIL_DIV(n_keys, k->page_size), sizeof *page);
}

static um_kv_select *copy_select(um_kept_batch *k, const um_span *s) {
    um_kv_select *to = (um_kv_select *)copy(k, s->select, 1, sizeof *to);
    if (!to) return NULL;
    to->page = copy_table(k, to->page, to->n_keep);
    to->prior = (const float *)copy(k, to->prior, s->keys.end, sizeof(float));
    return to;
}

static um_span *copy_spans(um_kept_batch *k, const um_batch *b) {
    um_span *to = (um_span *)copy(k, b->span, b->n_spans, sizeof *to);
    for (int32_t i = 0; i < b->n_spans; i++) {
        to[i].page = copy_table(k, to[i].page, to[i].keys.end);
        to[i].near_page = copy_table(k, to[i].near_page, to[i].keys.end);
        to[i].select = copy_select(k, &b->span[i]);
    }
    return to;
}

static um_soft *copy_softs(um_kept_batch *k, const um_batch *b) {
    um_soft *to = (um_soft *)copy(k, b->soft, b->n_soft, sizeof *to);
    for (int32_t i = 0; i < b->n_soft; i++) {
        to[i].id = (const int32_t *)copy(k, to[i].id, to[i].n, sizeof(int32_t));
        to[i].w = (const float *)copy(k, to[i].w, to[i].n, sizeof(float));
    }
    return to;
}

/* Neighbouring rows often share their edits and their bitmap, which may be large. */
static um_row *copy_rows(um_kept_batch *k, const um_batch *b) {
    um_row *to = (um_row *)copy(k, b->row, b->n_rows, sizeof *to);
    for (int32_t i = 0; i < b->n_rows; i++) {
        const um_row *from = &b->row[i], *before = i ? from - 1 : NULL;
        const bool same_edits = before && before->edit == from->edit && before->n_edit == from->n_edit,
                   same_bitmap = before && before->allow == from->allow;
        to[i].edit = same_edits ? to[i - 1].edit : (const um_edit *)copy(k, from->edit, from->n_edit, sizeof(um_edit));
        to[i].own = (const um_edit *)copy(k, from->own, from->n_own, sizeof(um_edit));
        to[i].allow = same_bitmap ? to[i - 1].allow
                                  : (const uint32_t *)copy(k, from->allow, UM_CEIL_DIV(k->vocab, 32), sizeof(uint32_t));
        to[i].top = from->n_top ? (um_top *)um_arena_alloc(&k->memory, (size_t)from->n_top * sizeof(um_top)) : NULL;
    }
    return to;
}

/* Frees the batch before. If it was the largest so far, room for it is allocated at once, so that batches of its size
 * need no more memory. */
static void make_room(um_kept_batch *k) {
    const size_t used = k->memory.total;
    um_arena_reset(&k->memory);
    if (used <= k->size) return;
    k->size = used + used / 2;
    (void)um_arena_alloc(&k->memory, k->size);
    um_arena_reset(&k->memory);
}

const um_batch *um_kept_batch_take(um_kept_batch *k, const um_batch *b) {
    const int32_t n = b->n_tokens;
    make_room(k);
    k->batch = *b;
    k->batch.id = (const int32_t *)copy(k, b->id, n, sizeof(int32_t));
    k->batch.pos = (const int32_t *)copy(k, b->pos, n, sizeof(int32_t));
    k->batch.slot = (const int32_t *)copy(k, b->slot, n, sizeof(int32_t));
    k->batch.near_slot = (const int32_t *)copy(k, b->near_slot, n, sizeof(int32_t));
    k->batch.seen_end = (const int32_t *)copy(k, b->seen_end, n, sizeof(int32_t));
    k->batch.span = copy_spans(k, b);
    k->batch.soft = copy_softs(k, b);
    k->batch.row = copy_rows(k, b);
    k->batch.save = (const int32_t(*)[2])copy(k, b->save, b->n_saves, sizeof *b->save);
    k->batch.answer = (um_answer *)copy(k, b->answer, b->n_rows, sizeof(um_answer));
    return &k->batch;
}

void um_kept_batch_answer(const um_kept_batch *k, const um_batch *b) {
    for (int32_t i = 0; i < b->n_rows; i++) {
        b->answer[i] = k->batch.answer[i];
        if (b->row[i].n_top) memcpy(b->row[i].top, k->batch.row[i].top, (size_t)b->row[i].n_top * sizeof(um_top));
    }
}
