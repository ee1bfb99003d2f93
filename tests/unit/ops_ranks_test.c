/* Tests of groups of ranks: cuts of matrices in every format, and what happens when a rank fails, hangs or is late. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs the headers above. */
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "free_port.h"
#include "ops/backend.h"
#include "ops/panels.h"

enum { ROWS = 48, IN = 512 };

/* Returns a matrix of random bytes in a format, or of random numbers. */
static um_tensor matrix(um_dtype type, const um_format *format, size_t bytes) {
    uint8_t *data = um_alloc(bytes);
    const um_tensor t = {
        .name = "m", .type = type, .n_dims = 2, .dim = {ROWS, IN}, .data = data, .format = format, .stays = true};
    for (size_t i = 0; i < bytes; i++) data[i] = (uint8_t)(um_rng_u64(3, i) & 0x3b); /* no exponent is all ones */
    return t;
}

/* Checks that the slices of all ranks are the elements of t in their places. */
static void check_slices(const um_tensor *t, const um_cut *cut, int32_t n_ranks, int64_t whole_rows) {
    float want[IN], got[IN];
    int64_t n_seen = 0;
    for (int32_t r = 0; r < n_ranks; r++) {
        um_cut_slice slice[UM_CUT_SLICES_MAX];
        int n = 0;
        um_err err = {0};
        if (um_cut_slices(cut, t, 1, UM_F32, r, n_ranks, slice, &n, &err)) fail_msg("%s", err.msg);
        int64_t first = 0;
        for (int i = 0; i < n; i++) {
            const um_tensor *s = &slice[i].t;
            for (int64_t row = 0; row < s->dim[0]; row++) {
                um_tensor_read(t, slice[i].row + row, 0, IN, want);
                um_tensor_read(s, row, 0, s->dim[1], got);
                assert_memory_equal(want + slice[i].column, got, (size_t)s->dim[1] * sizeof *got);
            }
            n_seen += s->dim[0] * s->dim[1];
            first += s->dim[0];
        }
        assert_true(first > 0);
        um_cut_release(slice, &n);
    }
    assert_int_equal(n_seen, whole_rows * IN);
}

static void check_format(um_dtype type, const um_format *format, size_t bytes) {
    um_tensor t = matrix(type, format, bytes);
    const um_cut columns = {.kind = UM_CUT_COLUMNS, .n_parts = 1, .part = {{IN, 1}}},
                 pair = {.kind = UM_CUT_ROWS, .n_parts = 2, .part = {{ROWS / 2, 1}, {ROWS / 2, 1}}},
                 heads = {.kind = UM_CUT_ROWS, .n_parts = 3, .part = {{32, 4}, {8, 4}, {8, 4}}},
                 none = {.kind = UM_CUT_NONE};
    for (int32_t n = 1; n <= 2; n++) {
        check_slices(&t, &columns, n, ROWS);
        check_slices(&t, &pair, n, ROWS);
        check_slices(&t, &heads, n, ROWS);
        check_slices(&t, &none, n, (int64_t)n * ROWS);
    }
    check_slices(&t, &heads, 4, 32 + 2 * 16); /* two ranks have each of the two KV heads */
    um_free((void *)t.data);
}

static void slices_of_all_ranks_are_the_matrix(void **state) {
    static const um_format *const groups[] = {&um_format_q8_0, &um_format_q4_0,   &um_format_q4_1,
                                              &um_format_q4_k, &um_format_iq4_nl, &um_format_mxfp4};
    static const um_dtype numbers[] = {UM_F32, UM_BF16, UM_F16}, panels[] = {UM_F32, UM_BF16, UM_Q8, UM_Q4};
    (void)state;
    for (size_t i = 0; i < UM_LEN(numbers); i++)
        check_format(numbers[i], NULL, (size_t)ROWS * IN * um_dtype_size(numbers[i]));
    for (size_t i = 0; i < UM_LEN(groups); i++)
        check_format(UM_DTYPE_OTHER, groups[i],
                     (size_t)ROWS * IN / (size_t)groups[i]->elements * (size_t)groups[i]->bytes);
    for (size_t i = 0; i < UM_LEN(panels); i++)
        check_format(UM_DTYPE_OTHER, um_panels_format(panels[i]), um_panels_bytes(panels[i], ROWS, IN));
}

static void every_head_is_in_one_rank_and_the_query_heads_of_a_rank_have_its_kv_head(void **state) {
    (void)state;
    for (int32_t n = 1; n <= UM_RANKS_MAX; n *= 2) {
        int64_t end = 0;
        for (int32_t r = 0; r < n; r++) {
            const um_cut_range q = um_cut_range_of((um_cut_part){32, 1}, r, n),
                               kv = um_cut_range_of((um_cut_part){4, 1}, r, n);
            assert_int_equal(q.start, end);
            assert_int_equal(q.start / 8, kv.start);
            assert_int_equal((q.end - 1) / 8, kv.end - 1);
            end = q.end;
        }
        assert_int_equal(end, 32);
    }
    const um_cut_range last = um_cut_range_of((um_cut_part){100, 8}, 2, 3);
    assert_int_equal(last.start, 64);
    assert_int_equal(last.end, 100);
}

static void widths_are_divided_between_groups_where_they_do_not_divide_evenly(void **state) {
    static const struct {
        int64_t width;
        int32_t n, grid, unit;
    } cases[] = {
        {704, 4, 1, 1},       /* evenly */
        {704, 4, 32, 32},     /* 5 or 6 groups each */
        {512, 2, 32, 32},     /* evenly, too */
        {18944, 7, 1, 32},    /* not evenly, so in groups */
        {18944, 4, 256, 256}, /* 18 or 19 groups of Q4_K */
        {704, 4, 256, 32},    /* a width without such groups */
        {64, 4, 32, 1},       /* fewer groups than ranks */
        {90, 4, 1, 1},        /* no groups */
    };
    (void)state;
    for (size_t i = 0; i < UM_LEN(cases); i++) {
        const um_cut_part part = {cases[i].width, um_cut_unit(cases[i].width, cases[i].n, cases[i].grid)};
        int64_t end = 0;
        assert_int_equal(part.unit, cases[i].unit);
        for (int32_t r = 0; r < cases[i].n; r++) {
            const um_cut_range at = um_cut_range_of(part, r, cases[i].n);
            assert_int_equal(at.start, end);
            assert_true(at.end > at.start);
            end = at.end;
        }
        assert_int_equal(end, part.n);
    }
}

static void refuses_to_cut_a_group_with_a_common_scale(void **state) {
    um_tensor t = matrix(UM_DTYPE_OTHER, &um_format_q4_k, (size_t)ROWS * IN / 256 * (size_t)um_format_q4_k.bytes);
    const um_cut columns = {.kind = UM_CUT_COLUMNS, .n_parts = 1, .part = {{IN, 1}}};
    um_cut_slice slice[UM_CUT_SLICES_MAX];
    int n = 0;
    um_err err = {0};
    (void)state;
    assert_int_equal(um_cut_slices(&columns, &t, 1, UM_F32, 1, 4, slice, &n, &err), UM_EUNSUPPORTED);
    assert_string_equal(
        err.msg,
        "tensor_parallel_size: 4 ranks can't divide the 512 columns of m, because 256 neighbours have a common scale "
        "(Q4_K); numbers that divide them: 1, 2");
    assert_string_equal(err.param, "tensor_parallel_size");
    assert_int_equal(n, 0);
    um_free((void *)t.data);
    t = matrix(UM_F32, NULL, (size_t)ROWS * IN * sizeof(float));
    assert_int_equal(um_cut_slices(&columns, &t, 1, UM_Q8, 1, 4, slice, &n, &err), UM_OK);
    um_cut_release(slice, &n);
    const um_cut narrow = {.kind = UM_CUT_COLUMNS, .n_parts = 1, .part = {{64, 1}}};
    t.dim[1] = 64;
    assert_int_equal(um_cut_slices(&narrow, &t, 1, UM_Q8, 1, 3, slice, &n, &err), UM_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "because 32 neighbours have a common scale (q8); numbers that divide them: 1, 2"));
    um_free((void *)t.data);
}

/* ---- A group whose members only meet ----------------------------------------------------------------------------- */

struct um_device {
    int32_t number;
};
struct um_forward {
    const um_rank *rank;
};

enum { MEETINGS = 50 };
static atomic_int seen;                    /* the token that the rank which hangs has read at the end of its pass */
static atomic_int n_freed, n_ended;        /* objects; passes of ranks */
static atomic_int fails, hangs, is_let_go; /* the rank that does, from its MEETINGS / 2 on; -1: none */

static um_status fake_open(um_device **out, const um_backend *self, const um_dev_config *c, um_err *err) {
    (void)self, (void)c, (void)err;
    *out = UM_NEW(um_device);
    return UM_OK;
}
static void fake_close(um_device *d) {
    atomic_fetch_add(&n_freed, 1);
    um_free(d);
}
static um_status fake_weight(um_device *d, um_weight **out, const um_tensor *part, int n, um_dtype type, um_err *err) {
    (void)d, (void)part, (void)n, (void)type, (void)err;
    *out = (um_weight *)UM_NEW(int32_t);
    return UM_OK;
}
static void fake_weight_free(um_device *d, um_weight *w) {
    (void)d;
    atomic_fetch_add(&n_freed, 1);
    um_free(w);
}
static um_status fake_vector(um_device *d, um_vector **out, const um_tensor *part, int n, const char *what,
                             um_err *err) {
    (void)d, (void)part, (void)n, (void)what, (void)err;
    *out = (um_vector *)UM_NEW(int32_t);
    return UM_OK;
}
static void fake_vector_free(um_device *d, um_vector *v) {
    (void)d;
    atomic_fetch_add(&n_freed, 1);
    um_free(v);
}
static um_status fake_forward_new(um_forward **out, um_device *d, const um_network *n, const um_forward_config *c,
                                  um_err *err) {
    (void)d, (void)c, (void)err;
    *out = UM_NEW(um_forward);
    (*out)->rank = n->rank;
    return UM_OK;
}
static void fake_forward_free(um_forward *f) {
    atomic_fetch_add(&n_freed, 1);
    um_free(f);
}
static um_status meet_often(um_forward *f, um_err *err) {
    for (int i = 0; i < MEETINGS; i++) {
        if (i == MEETINGS / 2 && f->rank->index == atomic_load(&fails))
            return um_fail(err, UM_EDEVICE, "out of coffee");
        while (i == MEETINGS / 2 && f->rank->index == atomic_load(&hangs) && !atomic_load(&is_let_go)) usleep(1000);
        if (!um_ranks_meet(f->rank)) return um_fail(err, UM_EDEVICE, "another rank has failed");
    }
    return UM_OK;
}
static um_status fake_submit(um_forward *f, const um_batch *b, um_err *err) {
    um_status s = meet_often(f, err);
    if (b->n_tokens && f->rank->index == atomic_load(&hangs)) atomic_store(&seen, b->id[0]);
    atomic_fetch_add(&n_ended, 1);
    return s;
}
static um_status fake_wait(um_forward *f, um_err *err) {
    (void)f, (void)err;
    return UM_OK;
}

static const um_backend fake = {.name = "fake",
                                .open = fake_open,
                                .close = fake_close,
                                .weight = fake_weight,
                                .weight_free = fake_weight_free,
                                .vector = fake_vector,
                                .vector_free = fake_vector_free,
                                .forward_new = fake_forward_new,
                                .forward_free = fake_forward_free,
                                .submit = fake_submit,
                                .wait = fake_wait};

typedef struct group {
    um_backend *backend;
    um_device *device;
    um_forward *forward;
    um_weight *weight;
    um_vector *vector;
    um_network net;
} group;

static void open_group(group *g, int32_t n, double timeout) {
    um_err err = {0};
    const um_dev_config c = {0};
    const um_forward_config fc = {0};
    const float one = 1;
    const um_tensor t = {.name = "t", .type = UM_F32, .n_dims = 2, .dim = {1, 1}, .data = &one};
    atomic_store(&fails, -1);
    atomic_store(&hangs, -1);
    atomic_store(&is_let_go, 0);
    atomic_store(&n_freed, 0);
    atomic_store(&n_ended, 0);
    *g = (group){0};
    um_ranks_backend_new(&g->backend, &fake, n, timeout);
    assert_int_equal(g->backend->open(&g->device, g->backend, &c, &err), UM_OK);
    assert_int_equal(g->backend->weight(g->device, &g->weight, &t, 1, UM_F32, &err), UM_OK);
    assert_int_equal(g->backend->vector(g->device, &g->vector, &t, 1, "numbers", &err), UM_OK);
    assert_int_equal(g->backend->forward_new(&g->forward, g->device, &g->net, &fc, &err), UM_OK);
}

static void close_group(group *g) {
    g->backend->forward_free(g->forward);
    g->backend->weight_free(g->device, g->weight);
    g->backend->vector_free(g->device, g->vector);
    g->backend->close(g->device);
    um_ranks_backend_free(g->backend);
}

static um_status run(group *g, um_err *err) {
    const um_batch b = {0};
    um_status s = g->backend->submit(g->forward, &b, err);
    return s ? s : g->backend->wait(g->forward, err);
}

static void a_rank_that_fails_ends_the_pass_of_all_with_its_words(void **state) {
    (void)state;
    for (int32_t n = 2; n <= 4; n += 2)
        for (int32_t bad = 0; bad < n; bad++) {
            group g;
            um_err err = {0};
            open_group(&g, n, 60);
            assert_int_equal(run(&g, &err), UM_OK);
            atomic_store(&fails, bad);
            char want[64];
            snprintf(want, sizeof want, "rank %d: out of coffee", bad);
            for (int again = 0; again < 2; again++) { /* the group stays failed */
                assert_int_equal(run(&g, &err), UM_EDEVICE);
                assert_string_equal(err.msg, want);
            }
            close_group(&g);
        }
}

static void a_rank_that_hangs_is_named(void **state) {
    group g;
    um_err err = {0};
    (void)state;
    open_group(&g, 3, 0.2);
    atomic_store(&hangs, 1);
    assert_int_equal(run(&g, &err), UM_EDEVICE);
    assert_string_equal(err.msg, "rank 1: no answer for 0.2 s (--distributed-timeout-seconds)");
    atomic_store(&is_let_go, 1);
    usleep(50000); /* else its memory is left alone */
    close_group(&g);
}

/* Nothing that the thread of the rank may use later is freed or changed. */
static void a_rank_that_hangs_keeps_its_memory(void **state) {
    enum { RANKS = 3 };
    static group g; /* else checkers of memory call it lost */
    um_err err = {0};
    (void)state;
    open_group(&g, RANKS, 0.1);
    assert_int_equal(run(&g, &err), UM_OK);
    assert_false(g.backend->is_stuck(g.device));
    atomic_store(&hangs, 2);
    int32_t id = 7;
    const um_batch b = {.n_tokens = 1, .id = &id};
    assert_int_equal(g.backend->submit(g.forward, &b, &err), UM_OK);
    assert_int_equal(g.backend->wait(g.forward, &err), UM_EDEVICE);
    assert_int_equal(atomic_load(&n_ended), 2 * RANKS - 1);
    id = 8; /* the engine has other uses for the memory of the batch */
    g.backend->forward_free(g.forward);
    assert_true(g.backend->is_stuck(g.device));
    assert_int_equal(g.backend->forward_new(&g.forward, g.device, &g.net, &(um_forward_config){0}, &err), UM_EDEVICE);
    assert_string_equal(err.msg, "a rank of the engine before still computes; open the model again");
    close_group(&g);
    assert_int_equal(atomic_load(&n_freed), 0);
    atomic_store(&is_let_go, 1);
    while (atomic_load(&n_ended) < 2 * RANKS) usleep(1000);
    assert_int_equal(atomic_load(&seen), 7);
}

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

/* Devices with memory of their own, whose parts are loaded by a thread each. */
static atomic_int is_full; /* bitmap of the devices without memory for weights */
static atomic_int n_made;  /* weights */

static um_status own_open(um_device **out, const um_backend *self, const um_dev_config *c, um_err *err) {
    um_status s = fake_open(out, self, c, err);
    (*out)->number = c->number;
    return s;
}
static void own_info(const um_device *d, um_device_info *out) {
    (void)d;
    *out = (um_device_info){.name = "fake"};
}
static um_status own_weight(um_device *d, um_weight **out, const um_tensor *part, int n, um_dtype type, um_err *err) {
    *out = NULL;
    if (atomic_load(&is_full) >> d->number & 1) return um_fail(err, UM_ENOMEM, "device %d is full", d->number);
    atomic_fetch_add(&n_made, 1);
    return fake_weight(d, out, part, n, type, err);
}
static size_t own_workspace(um_device *d, const um_network *n, const um_forward_config *c) {
    (void)d, (void)n, (void)c;
    return 0;
}

static void a_device_without_memory_fails_the_weight_of_all(void **state) {
    enum { RANKS = 4, FULL = 1 << 1 | 1 << 3 };
    const int32_t number[RANKS] = {0, 1, 2, 3};
    const um_dev_config c = {.rank_number = number};
    const float one = 1;
    const um_tensor t = {.name = "t", .type = UM_F32, .n_dims = 2, .dim = {1, 1}, .data = &one};
    um_backend inner = fake, *group;
    um_device *d;
    um_weight *w;
    um_err err = {0};
    (void)state;
    inner.open = own_open;
    inner.info = own_info;
    inner.weight = own_weight;
    inner.workspace = own_workspace;
    um_ranks_backend_new(&group, &inner, RANKS, 60);
    assert_int_equal(group->open(&d, group, &c, &err), UM_OK);
    for (int full = 0; full < 2; full++) {
        atomic_store(&is_full, full ? FULL : 0);
        atomic_store(&n_made, 0);
        atomic_store(&n_freed, 0);
        const um_status s = group->weight(d, &w, &t, 1, UM_F32, &err);
        assert_int_equal(s, full ? UM_ENOMEM : UM_OK);
        assert_int_equal(atomic_load(&n_made), full ? RANKS - 2 : RANKS);
        if (full) assert_string_equal(err.msg, "device 1 is full"); /* the first one, whichever was slower */
        if (full) assert_null(w);
        else group->weight_free(d, w);
        assert_int_equal(atomic_load(&n_freed), atomic_load(&n_made));
    }
    group->close(d);
    um_ranks_backend_free(group);
}

/* ---- Ranks in two processes, here two threads -------------------------------------------------------------------- */

static atomic_int is_short; /* rank 0 has no memory for passes */
static atomic_int n_slow;   /* um_forward that rank 1 has made */

static um_status slow_forward_new(um_forward **out, um_device *d, const um_network *n, const um_forward_config *c,
                                  um_err *err) {
    *out = NULL;
    if (n->rank->index == 0 && atomic_load(&is_short)) return um_fail(err, UM_ENOMEM, "no memory for passes");
    if (n->rank->index == 1) {
        usleep(100000);
        atomic_fetch_add(&n_slow, 1);
    }
    return fake_forward_new(out, d, n, c, err);
}

typedef struct process {
    um_backend inner, *group;
    um_launch launch;
    um_device *device;
    um_network net;
    pthread_t thread;
    um_status status;
} process;

static void start_process(process *p, int32_t rank, int32_t port) {
    *p = (process){.inner = fake, .launch = {.rank = rank, .addr = "127.0.0.1", .port = port, .facts = ""}};
    p->inner.info = own_info;
    p->inner.forward_new = slow_forward_new;
    um_ranks_backend_new(&p->group, &p->inner, 2, 20);
    um_ranks_backend_launch(p->group, &p->launch);
}

static um_status open_process(process *p, um_err *err) {
    return p->group->open(&p->device, p->group, &(um_dev_config){0}, err);
}

static void end_process(process *p) {
    p->group->close(p->device);
    um_ranks_backend_free(p->group);
}

static void *follow(void *arg) {
    process *p = (process *)arg;
    um_err err = {0};
    p->status = open_process(p, &err);
    if (!p->status) p->status = um_ranks_follow(p->group, p->device, &p->net, &err);
    return NULL;
}

/* `unmask bench engine` goes on with the next number of requests when one does not fit. */
static void rank_0_without_memory_leaves_no_answers_of_others(void **state) {
    const um_forward_config c = {.page_size = 1};
    process leader, other;
    um_forward *f;
    um_err err = {0};
    (void)state;
    const int32_t port = free_port();
    start_process(&leader, 0, port);
    start_process(&other, 1, port);
    assert_int_equal(pthread_create(&other.thread, NULL, follow, &other), 0);
    if (open_process(&leader, &err)) fail_msg("%s", err.msg);
    for (int made = 1; made <= 3; made++) {
        atomic_store(&is_short, made == 1);
        const um_status s = leader.group->forward_new(&f, leader.device, &leader.net, &c, &err);
        assert_int_equal(s, made == 1 ? UM_ENOMEM : UM_OK);
        if (s) assert_string_equal(err.msg, "no memory for passes");
        assert_int_equal(atomic_load(&n_slow), made); /* rank 0 has waited for rank 1 */
        leader.group->forward_free(f);
    }
    end_process(&leader);
    pthread_join(other.thread, NULL);
    assert_int_equal(other.status, UM_OK);
    end_process(&other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_of_all_ranks_are_the_matrix),
        cmocka_unit_test(every_head_is_in_one_rank_and_the_query_heads_of_a_rank_have_its_kv_head),
        cmocka_unit_test(widths_are_divided_between_groups_where_they_do_not_divide_evenly),
        cmocka_unit_test(refuses_to_cut_a_group_with_a_common_scale),
        cmocka_unit_test(a_rank_that_fails_ends_the_pass_of_all_with_its_words),
        cmocka_unit_test(a_rank_that_hangs_is_named),
        cmocka_unit_test(a_rank_that_hangs_keeps_its_memory),
        cmocka_unit_test(a_device_without_memory_fails_the_weight_of_all),
        cmocka_unit_test(rank_0_without_memory_leaves_no_answers_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
