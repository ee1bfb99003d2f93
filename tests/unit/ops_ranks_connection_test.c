/* Tests of frames over a connection: both ends send at the same time, and a peer can't make this rank allocate more
 * memory than the frame that it waits for may take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs the headers above. */
#include <cmocka.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ops/ranks/connection.h"

enum { ROOM = 64, LONG = 1 << 20 };

/* The two ends of a connection. */
typedef struct pair {
    um_connection end[2];
} pair;

static void open_pair(pair *p) {
    int fd[2];
    um_err err = {0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(um_connection_init(&p->end[i], fd[i], 1 - i, &err), UM_OK);
}

static void close_pair(pair *p) {
    for (int i = 0; i < 2; i++) um_connection_close(&p->end[i]);
}

static void both_ends_send_more_than_a_socket_holds(void **state) {
    static float sent[2][LONG], got[2][LONG];
    um_failed why;
    pair p;
    (void)state;
    open_pair(&p);
    for (size_t i = 0; i < LONG; i++) sent[0][i] = (float)i, sent[1][i] = -(float)i;
    for (int i = 0; i < 2; i++) {
        um_connection_send_results(&p.end[i], sent[i], LONG, (um_rank_time){.pass_seconds = 1 + i});
        um_connection_receive(&p.end[i], UM_FRAME_DATA, got[i], sizeof got[i]);
    }
    assert_true(um_transfer(p.end, 2, 20, &why));
    assert_memory_equal(got[0], sent[1], sizeof sent[1]);
    assert_memory_equal(got[1], sent[0], sizeof sent[0]);
    assert_true(p.end[0].last_time.pass_seconds == 2 && p.end[1].last_time.pass_seconds == 1);
    close_pair(&p);
}

/* Sends only the header of a frame to an end that waits for a greeting. Returns whether that end waits for the bytes.
 */
static bool takes_header(um_frame_type type, uint64_t bytes, um_failed *why) {
    const um_frame f = {.magic = UM_FRAME_MAGIC, .type = type, .bytes = bytes};
    pair p;
    open_pair(&p);
    assert_int_equal(write(p.end[0].fd, &f, sizeof f), sizeof f);
    um_connection_receive(&p.end[1], UM_FRAME_HELLO, NULL, ROOM);
    assert_false(um_transfer(&p.end[1], 1, 0.01, why));
    const bool waits = strstr(why->message, "no answer for") != NULL;
    assert_true(waits || p.end[1].body.cap == 0);
    close_pair(&p);
    return waits;
}

static void a_frame_that_is_too_long_takes_no_memory(void **state) {
    um_failed why;
    (void)state;
    assert_true(takes_header(UM_FRAME_HELLO, ROOM, &why));
    assert_false(takes_header(UM_FRAME_HELLO, ROOM + 1, &why));
    assert_string_equal(why.message, "it sent a frame that is too long");
    /* Frames of these types arrive in the place of any other. */
    assert_true(takes_header(UM_FRAME_FAILED, sizeof(um_failed), &why));
    assert_false(takes_header(UM_FRAME_FAILED, UM_FRAME_BYTES_MAX, &why));
    assert_string_equal(why.message, "it sent a frame that is too long");
    assert_false(takes_header(UM_FRAME_END, UM_FRAME_BYTES_MAX, &why));
    assert_string_equal(why.message, "it sent a frame that is too long");
    assert_false(takes_header(UM_FRAME_PASS, 1, &why));
    assert_string_equal(why.message, "it sent a frame out of turn");
}

static void the_words_of_a_failed_rank_end_a_transfer(void **state) {
    const um_failed words = {.rank = 3, .message = "out of coffee"};
    um_failed why;
    pair p;
    (void)state;
    open_pair(&p);
    um_connection_send(&p.end[0], UM_FRAME_FAILED, &words, sizeof words);
    assert_true(um_transfer(&p.end[0], 1, 20, &why));
    um_connection_receive(&p.end[1], UM_FRAME_DATA, NULL, ROOM);
    assert_false(um_transfer(&p.end[1], 1, 20, &why));
    assert_int_equal(why.rank, 3);
    assert_string_equal(why.message, "out of coffee");
    close_pair(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_send_more_than_a_socket_holds),
        cmocka_unit_test(a_frame_that_is_too_long_takes_no_memory),
        cmocka_unit_test(the_words_of_a_failed_rank_end_a_transfer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
