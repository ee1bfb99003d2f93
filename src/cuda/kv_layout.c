/* The pools of a KV cache on a GPU, and their views. */
#include "cuda/kv_layout.h"

void um_cu_kv_bytes(const um_kv_shape *s, size_t pool[2], size_t *scratch) {
    const bool unified = s->layout == UM_KV_UNIFIED;
    const size_t page = um_cu_part_bytes(s) * (size_t)s->n_kv_heads, parts = unified ? 2 : 1;
    const size_t pages = (size_t)(s->n_slots / s->page_size), spare = (size_t)(s->n_scratch_slots / s->page_size);
    pool[0] = um_mul(um_mul(page, parts), um_mul(pages, (size_t)s->n_layers) + spare);
    pool[1] = unified ? 0 : pool[0];
    *scratch = 2 * page * spare;
}

um_cu_kv_view um_cu_kv_of(const um_cu_kv *kv, int32_t layer) {
    const um_kv_shape *s = &kv->shape;
    const bool unified = s->layout == UM_KV_UNIFIED;
    const size_t part = um_cu_part_bytes(s), range = unified ? 2 * part : part;
    const int64_t n_pages = s->n_slots / s->page_size, first = layer * n_pages * s->n_kv_heads;
    char *key = kv->pool[0] + (size_t)first * range;
    return (um_cu_kv_view){.key = key,
                           .value = unified ? key + part : kv->pool[1] + (size_t)first * range,
                           .range = range,
                           .scratch = (s->n_layers - 1 - layer) * n_pages * s->n_kv_heads,
                           .scales = um_cu_vectors_bytes(s),
                           .n_pages = (int32_t)n_pages,
                           .n_heads = s->n_kv_heads,
                           .page_size = s->page_size,
                           .head_dim = s->head_dim,
                           .type = s->type};
}
