/* Tests of the copies of batches that the ranks of a host read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs the headers above. */
#include <cmocka.h>

#include "ops/ranks/group.h"

enum { ROWS = 100, VOCAB = 256000, WORDS = VOCAB / 32 };

/* The bitmaps of a step of constrained answers take megabytes. */
static void a_batch_of_a_known_size_needs_no_memory(void **state) {
    (void)state;
    const um_network n = {.vocab = VOCAB};
    const um_forward_config c = {.page_size = 32};
    const size_t bytes = (size_t)ROWS * WORDS * sizeof(uint32_t);
    uint32_t *bitmap = um_alloc(bytes);
    um_row row[ROWS] = {0};
    um_answer answer[ROWS] = {0};
    for (int i = 0; i < ROWS; i++) row[i].allow = bitmap + (size_t)i * WORDS;
    const um_batch b = {.n_rows = ROWS, .row = row, .answer = answer};
    um_kept_batch *kept = um_kept_batch_new(&n, &c);
    int64_t before = 0;
    for (int pass = 0; pass < 4; pass++) {
        if (pass == 2) before = um_alloc_count();
        memset(bitmap, pass, bytes);
        const um_batch *copy = um_kept_batch_take(kept, &b);
        memset(bitmap, 0xff, bytes);
        for (int i = 0; i < ROWS; i++) assert_int_equal(copy->row[i].allow[WORDS - 1], pass * 0x01010101);
    }
    assert_int_equal(um_alloc_count(), before);
    um_kept_batch_free(kept);
    um_free(bitmap);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_batch_of_a_known_size_needs_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
