/* cpu: weights that share memory. */
#include "ops/cpu/dev.h"

#include <setjmp.h>

#include <cmocka.h>

enum { IN = 512, WEIGHTS = 80 };

static um_dev *new_device(void) {
    const um_dev_config c = {.threads = 1, .dtype = UM_F32, .weights = UM_F32, .max_tokens = 1, .max_in = IN};
    um_dev *dev = NULL;
    um_err err;
    if (um_ops_cpu.open(&dev, &c, &err)) fail_msg("%s", err.msg);
    return dev;
}

/* Makes a weight of zeros with this many rows of 2 KB. */
static um_weight *new_weight(um_dev *dev, int32_t rows) {
    um_weight *w = NULL;
    um_err err;
    float *data = (float *)um_zalloc((size_t)rows * IN * sizeof *data);
    const um_tensor t = {.name = "w", .type = UM_F32, .n_dims = 2, .dim = {rows, IN}, .data = data};
    if (um_ops_cpu.weight(dev, &w, &t, 1, UM_F32, &err)) fail_msg("%s", err.msg);
    um_free(data);
    return w;
}

/* Two weights of a megabyte lie side by side, so that a huge page may contain parts of both. */
static void weights_smaller_than_huge_pages_are_adjacent(void **state) {
    (void)state;
    um_dev *dev = new_device();
    um_weight *a = new_weight(dev, 512), *b = new_weight(dev, 512);
    assert_ptr_equal(b->panel, a->panel + um_cpu_weight_bytes(a));
    assert_int_equal((uintptr_t)a->panel % ((size_t)2 << 20), 0);
    um_ops_cpu.weight_free(dev, a);
    um_ops_cpu.weight_free(dev, b);
    um_weight *again = new_weight(dev, 512);
    assert_ptr_equal(again->panel, dev->slab->data); /* the memory of freed weights is used again */
    um_ops_cpu.weight_free(dev, again);
    um_ops_cpu.close(dev);
}

static void small_and_large_weights_have_memory_of_their_own(void **state) {
    (void)state;
    um_dev *dev = new_device();
    um_weight *small = new_weight(dev, 32), *large = new_weight(dev, 8192);
    assert_null(small->slab);
    assert_null(large->slab);
    um_ops_cpu.weight_free(dev, small);
    um_ops_cpu.weight_free(dev, large);
    um_ops_cpu.close(dev);
}

/* Weights of several slabs can be freed in any order. A sanitizer reports memory that is lost or freed too early. */
static void a_slab_lives_as_long_as_its_weights(void **state) {
    (void)state;
    um_dev *dev = new_device();
    um_weight *w[WEIGHTS];
    for (int i = 0; i < WEIGHTS; i++) w[i] = new_weight(dev, 512);
    assert_ptr_not_equal(w[0]->slab, w[WEIGHTS - 1]->slab);
    for (int i = 0; i < WEIGHTS; i++) {
        um_weight *next = w[(i * 7 + 3) % WEIGHTS]; /* 7 and WEIGHTS have no common divisor */
        next->panel[0] = next->panel[um_cpu_weight_bytes(next) - 1] = 1;
        um_ops_cpu.weight_free(dev, next);
    }
    um_ops_cpu.close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_smaller_than_huge_pages_are_adjacent),
        cmocka_unit_test(small_and_large_weights_have_memory_of_their_own),
        cmocka_unit_test(a_slab_lives_as_long_as_its_weights),
    };
    return cmocka_run_group_tests_name("ops_slab", tests, NULL, NULL);
}
