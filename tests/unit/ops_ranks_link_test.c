/* Tests of how a link between processes ends: the ranks that still work learn which one failed, and nothing is sent
 * behind a frame that could not be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs the headers above. */
#include <cmocka.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ops/ranks/group.h"
#include "ops/ranks/link.h"
#include "ops/ranks/link_open.h"

enum { OTHERS = 2, MORE_THAN_A_SOCKET_HOLDS = 16 << 20 };

/* The link of rank 0, and the other ends of its connections. */
typedef struct group {
    um_link *link;
    um_connection rank[1 + OTHERS]; /* of ranks 1 and 2; 0 is unused */
} group;

static um_link *new_link(int32_t rank, double timeout) {
    um_link *l = UM_NEW(um_link);
    l->rank = rank;
    l->n = 1 + OTHERS;
    l->timeout = timeout;
    return l;
}

static void open_group(group *g, double timeout) {
    um_err err = {0};
    g->link = new_link(0, timeout);
    for (int32_t r = 1; r <= OTHERS; r++) {
        int fd[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
        assert_int_equal(um_connection_init(&g->link->c[g->link->n_connections++], fd[0], r, &err), UM_OK);
        assert_int_equal(um_connection_init(&g->rank[r], fd[1], 0, &err), UM_OK);
    }
}

static void close_group(group *g) {
    um_link_close(g->link);
    for (int32_t r = 1; r <= OTHERS; r++) um_connection_close(&g->rank[r]);
}

static void the_others_learn_which_rank_has_ended(void **state) {
    um_err err = {0};
    um_failed why = {0};
    group g = {0};
    (void)state;
    open_group(&g, 20);
    um_connection_close(&g.rank[1]);
    assert_int_equal(um_link_tell(g.link, UM_FRAME_PASS, "pass", 4, &err), UM_EDEVICE);
    assert_int_equal(um_link_failed_rank(g.link), 1);
    um_link_fail(g.link, 1, err.msg);
    um_connection_receive(&g.rank[2], UM_FRAME_PASS, NULL, 0);
    assert_false(um_transfer(&g.rank[2], 1, 20, &why));
    assert_int_equal(why.rank, 1);
    assert_string_equal(why.message, err.msg);
    close_group(&g);
}

static void a_rank_in_the_middle_of_a_frame_gets_its_end(void **state) {
    char *bytes = um_zalloc(MORE_THAN_A_SOCKET_HOLDS);
    um_err err = {0};
    um_failed why = {0};
    group g = {0};
    (void)state;
    open_group(&g, 0.05);
    assert_int_equal(um_link_tell(g.link, UM_FRAME_PASS, bytes, MORE_THAN_A_SOCKET_HOLDS, &err), UM_EDEVICE);
    assert_int_equal(um_link_failed_rank(g.link), 1);
    um_link_fail(g.link, 1, err.msg);
    um_connection_receive(&g.rank[2], UM_FRAME_PASS, NULL, 0);
    assert_false(um_transfer(&g.rank[2], 1, 20, &why));
    assert_string_equal(why.message, "its process has ended, or has closed the connection");
    um_free(bytes);
    close_group(&g);
}

static void a_link_closes_after_a_frame_that_was_not_sent(void **state) {
    group g = {0};
    (void)state;
    open_group(&g, 20);
    um_connection_close(&g.rank[1]);
    assert_int_equal(um_link_tell(g.link, UM_FRAME_FREE, NULL, 0, NULL), UM_EDEVICE);
    close_group(&g);
}

static void no_forward_free(um_forward *f) { assert_null(f); }

static void a_rank_without_work_answers_a_ping(void **state) {
    const um_backend inner = {.forward_free = no_forward_free};
    um_err err = {0};
    um_failed why = {0};
    um_connection leader;
    int fd[2];
    um_device d = {.inner = &inner, .n = 1, .first = 1, .all = 1 + OTHERS, .link = new_link(1, 20)};
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    assert_int_equal(um_connection_init(&leader, fd[0], 1, &err), UM_OK);
    assert_int_equal(um_connection_init(&d.link->c[d.link->n_connections++], fd[1], 0, &err), UM_OK);
    um_connection_send(&leader, UM_FRAME_PING, NULL, 0);
    assert_true(um_transfer(&leader, 1, 20, &why));
    um_connection_send(&leader, UM_FRAME_END, NULL, 0);
    assert_true(um_transfer(&leader, 1, 20, &why));
    if (um_ranks_follow(&inner, &d, &(um_network){0}, &err)) fail_msg("%s", err.msg);
    um_connection_receive(&leader, UM_FRAME_PONG, NULL, 0);
    assert_true(um_transfer(&leader, 1, 20, &why));
    um_link_close(d.link);
    um_connection_close(&leader);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_others_learn_which_rank_has_ended),
        cmocka_unit_test(a_rank_in_the_middle_of_a_frame_gets_its_end),
        cmocka_unit_test(a_link_closes_after_a_frame_that_was_not_sent),
        cmocka_unit_test(a_rank_without_work_answers_a_ping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
