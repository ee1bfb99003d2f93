/* The block buffer: positions of its blocks, what may be written, growing and shifting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "decode/decode.h"

enum { NO_LIMIT = INT32_MAX };

/* Two blocks of 4 behind three prompts: one that ends within a block, one that ends with a block, one shorter than a
 * block. */
static void a_buffer_starts_where_the_prompt_ends(void **state) {
    (void)state;
    static const struct {
        int32_t n_prompt, head, run, editable, masks;
    } cases[] = {{5, 1, 1, 1, 3}, {8, 2, 0, 0, 4}, {3, 0, 1, 3, 1}};
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        um_buffer b;
        um_buffer_init(&b, 2, 4, 0, NO_LIMIT, cases[i].n_prompt);
        assert_int_equal(b.block[0].id, cases[i].head);
        assert_int_equal(b.block[1].id, cases[i].head + 1);
        assert_int_equal(b.run, cases[i].run);
        assert_int_equal(b.block[0].status, cases[i].run ? UM_BLOCK_ACTIVE : UM_BLOCK_DUMMY);
        assert_int_equal(b.block[0].editable_start, cases[i].editable);
        assert_int_equal(b.block[0].n_masks, cases[i].masks);
        assert_int_equal(um_buffer_start(&b), 4 * cases[i].head);
        assert_int_equal(um_buffer_end(&b), 4 * (cases[i].head + cases[i].run));
        assert_int_equal(um_buffer_allocated(&b), 4 * cases[i].head + 8);
    }
}

/* A block of two prompt tokens and two masks is half filled. */
static void a_prompts_tail_counts_as_progress(void **state) {
    (void)state;
    um_buffer b;
    um_buffer_init(&b, 1, 4, 0, NO_LIMIT, 2);
    assert_int_equal(b.block[0].editable_start, 2);
    assert_true(um_block_progress(&b.block[0]) == 0.5F);
}

static void blocks_may_start_at_the_prompts_end(void **state) {
    (void)state;
    um_buffer b;
    um_buffer_init(&b, 2, 4, 5, NO_LIMIT, 5);
    assert_int_equal(b.block[0].id, 0);
    assert_int_equal(b.block[0].start, 5);
    assert_int_equal(b.block[1].start, 9);
    assert_int_equal(b.run, 0);
}

/* Positions behind the limit do not count as masks, so a block there is complete from the start. */
static void a_limit_cuts_a_block(void **state) {
    (void)state;
    um_buffer b;
    um_buffer_init(&b, 3, 4, 0, 10, 5);
    assert_int_equal(b.block[0].n_masks, 3);
    assert_int_equal(b.block[1].n_masks, 2);
    assert_int_equal(b.block[2].n_masks, 0);
    um_buffer_init(&b, 1, 4, 0, 6, 5); /* the limit lies in the block in which the prompt ends */
    assert_int_equal(b.block[0].n_masks, 1);
}

static void blocks_move_through_the_buffer(void **state) {
    (void)state;
    um_buffer b;
    um_buffer_init(&b, 3, 4, 0, NO_LIMIT, 5);
    um_buffer_grow(&b);
    assert_int_equal(b.run, 2);
    assert_int_equal(um_buffer_first_active(&b), 0);
    assert_false(um_buffer_complete(&b));
    b.block[0].status = UM_BLOCK_TO_CACHE;
    assert_int_equal(um_buffer_first_active(&b), 1);
    b.block[0].status = UM_BLOCK_IN_CACHE;
    um_buffer_shift(&b, false);
    assert_int_equal(b.run, 1);
    assert_int_equal(b.block[0].id, 2);
    assert_int_equal(b.block[2].id, 4);
    assert_int_equal(b.block[2].start, 16);
    assert_int_equal(b.block[2].type, UM_BLOCK_IN_CONTEXT);
    b.block[0].n_masks = 0;
    assert_true(um_buffer_complete(&b));
    b.block[0].status = UM_BLOCK_IN_CACHE;
    um_buffer_shift(&b, true);
    assert_int_equal(b.block[2].type, UM_BLOCK_OUT_OF_CONTEXT);
    assert_int_equal(um_buffer_first_active(&b), 0); /* there is none: returns `run` */
    assert_int_equal(b.run, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_buffer_starts_where_the_prompt_ends), cmocka_unit_test(a_prompts_tail_counts_as_progress),
        cmocka_unit_test(blocks_may_start_at_the_prompts_end),   cmocka_unit_test(a_limit_cuts_a_block),
        cmocka_unit_test(blocks_move_through_the_buffer),
    };
    return cmocka_run_group_tests_name("blocks", tests, NULL, NULL);
}
