/* Bitmaps that a device keeps between messages: a device of the test stores what each message tells it to, and every
 * row then finds its bits. The seed is fixed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "ops/message.h"

enum { VOCAB = 1000, WORDS = (VOCAB + 31) / 32, ROWS = 12, PLACES = 16, BITMAPS = 40, MESSAGE = 16384 };

static const um_message_capacity capacity = {.n_rows = ROWS, .tile_tokens = 16, .vocab = VOCAB, .page_size = 16};

typedef struct device {
    um_kept kept;
    um_kept_place place[PLACES];
    uint32_t *memory; /* the message, then the places */
    size_t bytes;     /* of the last message */
} device;

static void open_device(device *d) {
    *d = (device){.kept = {.first = MESSAGE / 4, .words = (int32_t)(um_kept_bytes(VOCAB) / 4), .n = PLACES}};
    d->kept.place = d->place;
    d->memory = UM_NEW_ARRAY(uint32_t, MESSAGE / 4 + (size_t)PLACES * um_kept_bytes(VOCAB) / 4);
}

static const um_message_row *rows_of(const device *d) {
    return (const um_message_row *)(const void *)((char *)d->memory + um_message_layout_of(&capacity).row);
}

/* Sends the rows, looks their bitmaps up as the device does, and stores those that it must keep. */
static void send(device *d, um_row *row, int32_t n) {
    const um_batch b = {.row = row, .n_rows = n};
    char *message = (char *)d->memory;
    memset(message, 0xa5, MESSAGE);
    d->bytes = um_message_pack(&b, &capacity, &d->kept, message, MESSAGE);
    assert_in_range(d->bytes, 1, MESSAGE);
    for (int32_t i = 0; i < n; i++) {
        const um_message_row *m = &rows_of(d)[i];
        assert_memory_equal(d->memory + m->allow, row[i].allow, WORDS * sizeof(uint32_t));
    }
    for (int32_t i = 0; i < n; i++) {
        const um_message_row *m = &rows_of(d)[i];
        if (m->keep < 0) continue;
        assert_in_range(m->keep, d->kept.first, d->kept.first + (PLACES - 1) * d->kept.words);
        memcpy(d->memory + m->keep, d->memory + m->allow, WORDS * sizeof(uint32_t));
    }
}

static um_row row_with(const uint32_t *allow, uint64_t id) {
    return (um_row){.how = {.top_p = 1}, .allow = allow, .allow_id = id};
}

/* Bitmap i has the number i + 1, or no number if i is a multiple of 10. */
static void make_bitmaps(uint32_t (*bits)[WORDS]) {
    for (int32_t i = 0; i < BITMAPS; i++)
        for (int32_t w = 0; w < WORDS; w++) bits[i][w] = (uint32_t)um_rng_u64(3, (uint64_t)(i * WORDS + w));
}

static void every_row_finds_its_bits(void **state) {
    (void)state;
    uint32_t bits[BITMAPS][WORDS];
    um_row row[ROWS];
    device d;
    uint64_t draws = 0;
    open_device(&d);
    make_bitmaps(bits);
    for (int pass = 0; pass < 2000; pass++) {
        const int32_t n = 1 + (int32_t)(um_rng_u64(5, draws++) % ROWS);
        for (int32_t i = 0; i < n; i++) {
            const uint64_t k = um_rng_u64(5, draws++) % BITMAPS;
            row[i] = row_with(bits[k], k % 10 ? k + 1 : 0);
        }
        send(&d, row, n);
    }
    um_free(d.memory);
}

static void a_kept_bitmap_is_not_sent_again(void **state) {
    (void)state;
    uint32_t bits[BITMAPS][WORDS];
    um_row row[ROWS];
    device d;
    open_device(&d);
    make_bitmaps(bits);
    for (uint64_t i = 0; i < ROWS; i++) row[i] = row_with(bits[i], i + 1);
    const size_t without = um_message_layout_of(&capacity).end;
    send(&d, row, ROWS);
    assert_int_equal(d.bytes, without + ROWS * um_kept_bytes(VOCAB));
    send(&d, row, ROWS);
    assert_int_equal(d.bytes, without);
    row[3] = row_with(bits[20], 21);
    send(&d, row, ROWS);
    assert_int_equal(d.bytes, without + um_kept_bytes(VOCAB));
    um_free(d.memory);
}

static void a_message_that_does_not_fit_empties_the_places(void **state) {
    (void)state;
    uint32_t bits[BITMAPS][WORDS];
    um_row row[2];
    device d;
    open_device(&d);
    make_bitmaps(bits);
    for (uint64_t i = 0; i < 2; i++) row[i] = row_with(bits[i], i + 1);
    const um_batch b = {.row = row, .n_rows = 2};
    const size_t size = um_message_layout_of(&capacity).end + um_kept_bytes(VOCAB);
    assert_int_equal(um_message_pack(&b, &capacity, &d.kept, d.memory, size), 0);
    send(&d, row, 2);
    assert_int_equal(d.bytes, um_message_layout_of(&capacity).end + 2 * um_kept_bytes(VOCAB));
    um_free(d.memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_finds_its_bits),
        cmocka_unit_test(a_kept_bitmap_is_not_sent_again),
        cmocka_unit_test(a_message_that_does_not_fit_empties_the_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
