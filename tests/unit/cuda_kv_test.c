/* Tests of the places of keys and values on a GPU: the ranges of all layers, pages and heads fill the pools, and none
 * overlaps another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cuda/kv_layout.h"

enum { LAYERS = 3, HEADS = 2, PAGES = 4, SCRATCH = 2 };

static const um_dtype types[] = {UM_F32, UM_BF16, UM_F8};
static const um_kv_layout layouts[] = {UM_KV_UNIFIED, UM_KV_DISTINCT};

/* A KV cache in host memory. Each byte of `owner` counts the vectors and scales that own it. */
typedef struct cache {
    um_cu_kv kv;
    unsigned char *owner[2];
    size_t scratch_bytes;
} cache;

static cache new_cache(um_dtype type, um_kv_layout layout, int32_t page_size, int32_t head_dim) {
    cache c = {.kv.shape = {.n_layers = LAYERS,
                            .n_kv_heads = HEADS,
                            .head_dim = head_dim,
                            .page_size = page_size,
                            .n_slots = PAGES * (int64_t)page_size,
                            .n_scratch_slots = SCRATCH * (int64_t)page_size,
                            .type = type,
                            .layout = layout}};
    um_cu_kv_bytes(&c.kv.shape, c.kv.pool_bytes, &c.scratch_bytes);
    for (int i = 0; i < 2; i++) {
        c.owner[i] = um_zalloc(c.kv.pool_bytes[i] + 1);
        c.kv.pool[i] = (char *)c.owner[i];
    }
    return c;
}

static void free_cache(cache *c) {
    for (int i = 0; i < 2; i++) um_free(c->owner[i]);
}

/* Marks bytes as owned. They lie in one of the pools, and nothing else owns them. */
static void own(cache *c, const char *from, size_t n) {
    for (int i = 0; i < 2; i++) {
        const char *pool = c->kv.pool[i];
        if (from < pool || from + n > pool + c->kv.pool_bytes[i]) continue;
        for (size_t k = 0; k < n; k++) assert_int_equal(c->owner[i][from - pool + (ptrdiff_t)k]++, 0);
        return;
    }
    fail_msg("%zu bytes lie outside of the pools", n);
}

static void own_vectors(cache *c, um_cu_kv_view v, int32_t page, int32_t head) {
    const size_t range = um_cu_range_at(v, page, head), bytes = (size_t)v.head_dim * um_cu_kv_element(v);
    for (int part = 0; part < 2; part++) {
        const char *base = (part ? v.value : v.key) + range;
        assert_int_equal((base - c->kv.pool[part && c->kv.shape.layout == UM_KV_DISTINCT]) % 16, 0);
        for (int32_t slot = 0; slot < v.page_size; slot++) {
            own(c, base + um_cu_vector_at(v, slot), bytes);
            if (v.type == UM_F8) own(c, base + um_cu_scale_at(v, slot), sizeof(float));
        }
    }
}

/* Lets all vectors of a cache own their bytes. Returns the bytes that nothing owns. */
static size_t fill(cache *c) {
    size_t unowned = 0;
    for (int32_t layer = 0; layer < LAYERS; layer++) {
        const um_cu_kv_view v = um_cu_kv_of(&c->kv, layer);
        const bool last = layer == LAYERS - 1; /* the scratch pages are the same for all layers */
        for (int32_t page = 0; page < PAGES + (last ? SCRATCH : 0); page++)
            for (int32_t head = 0; head < HEADS; head++) own_vectors(c, v, page, head);
    }
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < c->kv.pool_bytes[i]; k++) unowned += c->owner[i][k] == 0;
    return unowned;
}

static void vectors_fill_the_pools_without_overlap(void **state) {
    (void)state;
    for (size_t t = 0; t < UM_LEN(types); t++)
        for (size_t l = 0; l < UM_LEN(layouts); l++)
            for (int32_t page_size = 4; page_size <= 256; page_size *= 2) {
                cache c = new_cache(types[t], layouts[l], page_size, 32);
                assert_int_equal(fill(&c), 0);
                free_cache(&c);
            }
}

/* Odd sizes leave less than 16 bytes behind the vectors of a part, and behind its scales. */
static void parts_are_padded_to_their_alignment_only(void **state) {
    (void)state;
    for (size_t t = 0; t < UM_LEN(types); t++)
        for (size_t l = 0; l < UM_LEN(layouts); l++)
            for (int32_t page_size = 1; page_size <= 7; page_size++) {
                cache c = new_cache(types[t], layouts[l], page_size, 10);
                const size_t parts = 2 * HEADS * (LAYERS * PAGES + SCRATCH);
                assert_true(fill(&c) <= parts * 15 * (types[t] == UM_F8 ? 2 : 1));
                free_cache(&c);
            }
}

static void all_layers_share_the_scratch_pages(void **state) {
    (void)state;
    for (size_t l = 0; l < UM_LEN(layouts); l++) {
        cache c = new_cache(UM_BF16, layouts[l], 16, 64);
        const um_cu_kv_view last = um_cu_kv_of(&c.kv, LAYERS - 1);
        for (int32_t layer = 0; layer < LAYERS; layer++) {
            const um_cu_kv_view v = um_cu_kv_of(&c.kv, layer);
            for (int32_t page = PAGES; page < PAGES + SCRATCH; page++) {
                assert_ptr_equal(v.key + um_cu_range_at(v, page, 1), last.key + um_cu_range_at(last, page, 1));
                assert_ptr_equal(v.value + um_cu_range_at(v, page, 1), last.value + um_cu_range_at(last, page, 1));
            }
        }
        free_cache(&c);
    }
}

static void a_unified_pool_has_the_bytes_of_two_distinct_ones(void **state) {
    (void)state;
    cache one = new_cache(UM_F8, UM_KV_UNIFIED, 32, 128), two = new_cache(UM_F8, UM_KV_DISTINCT, 32, 128);
    assert_int_equal(one.kv.pool_bytes[0], two.kv.pool_bytes[0] + two.kv.pool_bytes[1]);
    assert_int_equal(one.kv.pool_bytes[1], 0);
    assert_int_equal(one.scratch_bytes, two.scratch_bytes);
    assert_int_equal(one.scratch_bytes, (size_t)2 * SCRATCH * HEADS * 32 * (128 + sizeof(float)));
    free_cache(&one);
    free_cache(&two);
}

/* A cache of 512 GB: no product of sizes is cut to 32 bits. */
static void large_caches_have_large_offsets(void **state) {
    (void)state;
    static char start; /* of pools that are too large to be allocated */
    um_cu_kv kv = {.pool = {&start},
                   .shape = {.n_layers = 64,
                             .n_kv_heads = 32,
                             .head_dim = 128,
                             .page_size = 32,
                             .type = UM_BF16,
                             .n_slots = (int64_t)32 << 14,
                             .n_scratch_slots = 32,
                             .layout = UM_KV_UNIFIED}};
    size_t pool[2], scratch;
    um_cu_kv_bytes(&kv.shape, pool, &scratch);
    const um_cu_kv_view v = um_cu_kv_of(&kv, 0);
    assert_int_equal(pool[0] - scratch, (size_t)64 * 32 * 128 * 2 * 2 * (32 << 14));
    assert_int_equal(um_cu_range_at(v, 1 << 14, 31) + v.range, pool[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_fill_the_pools_without_overlap),
        cmocka_unit_test(parts_are_padded_to_their_alignment_only),
        cmocka_unit_test(all_layers_share_the_scratch_pages),
        cmocka_unit_test(a_unified_pool_has_the_bytes_of_two_distinct_ones),
        cmocka_unit_test(large_caches_have_large_offsets),
    };
    return cmocka_run_group_tests_name("kv layout on a GPU", tests, NULL, NULL);
}
