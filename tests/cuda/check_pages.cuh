/* check_pages: keys and values for the checks of attention, of the KV cache and of selections: one cache of the
 * reference and one of the device, with the same contents. The functions are in check_kv.cu. */
#ifndef UM_TESTS_CUDA_CHECK_PAGES_CUH
#define UM_TESTS_CUDA_CHECK_PAGES_CUH

#include "check.cuh"

typedef struct check_pages {
    um_kv_shape shape;
    um_kv *ref;
    um_cu_kv device; /* NaN where nothing was written */
    int32_t *page;   /* the pages in random order */
    int32_t n_used, n_scratch_used;
} check_pages;

/* Returns caches of the shape. Without `ref` there is only the device's. The case ends with check_pages_free. */
check_pages check_pages_new(check *c, const um_kv_shape *shape, bool ref);
void check_pages_free(check_pages *p);
/* Returns a page table for n indices, with pages that no other table has. */
int32_t *check_pages_table(check *c, check_pages *p, int32_t n, bool scratch);
/* Writes keys and values to n slots of a layer of both caches: kv [n, 2 * n_kv_heads * d], keys before values. */
void check_pages_fill(check *c, check_pages *p, int32_t layer, int32_t n, const int32_t *slot, const float *kv);
/* Writes random keys and values to the indices [from, to) of a page table. The elements of keys are in (-1, 1), those
 * of values in that times value_by. */
void check_pages_fill_random(check *c, check_pages *p, int32_t layer, const int32_t *table, int32_t from, int32_t to,
                             float value_by);
/* Returns the keys and values of n slots of a layer, in the order of check_pages_fill. */
float *check_pages_of_ref(check *c, const check_pages *p, int32_t layer, int32_t n, const int32_t *slot);
float *check_pages_of_device(check *c, const check_pages *p, int32_t layer, int32_t n, const int32_t *slot);

#endif
