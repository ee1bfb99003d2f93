/* How the devices of ranks in several processes find each other, so that they can exchange results without the host.
 *
 * Every rank tells rank 0 the name of its device, and rank 0 answers with the key of its own. Then all devices unite.
 * That may wait for other ranks without a limit, so a thread of its own does it. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "ops/ranks/group.h"
#include "ops/ranks/link.h"

/* How often this rank looks whether another one has failed. */
enum { LOOK_MS = 20 };

/* The device of a rank, as the rank describes it to rank 0. */
typedef struct card {
    um_device_card device;
    uint64_t memory, there; /* see um_device_info */
} card;

/* A thread that unites the device with the others. If it hangs, it is left alone. */
typedef struct uniting {
    um_device *d;
    um_device_card leader;
    um_status status;
    um_err err;
    atomic_bool is_done;
} uniting;

/* Ends the group because this rank has failed. */
static um_status fail_own(const um_device *d, um_status s, const um_err *err) {
    um_link_fail(d->link, d->first, err->msg);
    return s;
}

/* Ends the group because another rank has failed. */
static um_status fail_other(const um_device *d, int32_t rank, um_err *err) {
    const um_err why = *err;
    um_link_fail(d->link, rank, why.msg);
    return um_fail(err, UM_EDEVICE, "rank %d: %s", rank, why.msg);
}

/* Finds two ranks with the same device. */
static um_status check_cards(const um_device *d, const card *c, um_err *err) {
    for (int32_t b = 1; b < d->all; b++)
        for (int32_t a = 0; a < b; a++)
            if (!strncmp(c[a].device.name, c[b].device.name, sizeof c[a].device.name))
                return um_fail_param(err, UM_EINVAL, "device",
                                     "ranks %d and %d have the same device, %s %.40s; each rank needs one of its own: "
                                     "choose it by --device %s:0, %s:1, ...",
                                     a, b, d->inner->name, c[a].device.name, d->inner->name, d->inner->name);
    return UM_OK;
}

/* Notes on rank 0 how much less memory than its own the other devices have. */
static void compare_memory(um_device *d, const card *c) {
    uint64_t memory = c[0].memory, there = c[0].there;
    for (int32_t r = 1; r < d->all; r++) {
        memory = UM_MIN(memory, c[r].memory);
        there = UM_MIN(there, c[r].there);
    }
    d->least_memory = (size_t)memory;
    d->more_free = (size_t)(c[0].there - there);
}

/* Exchanges the cards. *leader receives that of rank 0. */
static um_status exchange_cards(um_device *d, um_device_card *leader, um_err *err) {
    card own = {0}, all[UM_RANKS_MAX];
    um_device_info info;
    um_link *l = d->link;
    um_frame_type type;
    um_str body;
    um_status s = d->inner->introduce(d->member[0], d->first == 0, &own.device, err);
    if (s) return fail_own(d, s, err);
    d->inner->info(d->member[0], &info);
    own.memory = info.memory;
    own.there = info.there;
    if (um_link_assemble(l, UM_FRAME_CARD, &own, sizeof own, all, err))
        return fail_other(d, um_link_failed_rank(l), err);
    *leader = own.device;
    if (d->first == 0) {
        s = check_cards(d, all, err);
        if (s) return fail_own(d, s, err);
        compare_memory(d, all);
        return um_link_tell(l, UM_FRAME_CARD, leader, sizeof *leader, err) ? fail_other(d, um_link_failed_rank(l), err)
                                                                           : UM_OK;
    }
    s = um_link_receive(l, &type, &body, err);
    if (!s && (type != UM_FRAME_CARD || body.n != sizeof *leader)) s = um_fail(err, UM_EDEVICE, "it sent no device");
    if (s) return fail_other(d, um_link_failed_rank(l), err);
    memcpy(leader, body.p, sizeof *leader);
    return UM_OK;
}

static void *run(void *arg) {
    uniting *u = (uniting *)arg;
    um_device *d = u->d;
    u->status = d->inner->unite(d->member[0], &u->leader, d->first, d->all, &u->err);
    atomic_store(&u->is_done, true);
    return NULL;
}

/* Waits for the thread. On failure *rank is the rank to blame. */
static um_status watch(const uniting *u, int32_t *rank, um_err *err) {
    const um_device *d = u->d;
    const double start = um_now();
    *rank = d->first;
    while (!atomic_load(&u->is_done)) {
        if (um_link_look(d->link, rank, err)) return UM_EDEVICE;
        if (um_now() - start > um_link_patience(d->link)) return um_link_find_late(d->link, rank, err);
        (void)poll(NULL, 0, LOOK_MS);
    }
    return UM_OK;
}

/* Waits until all ranks have united. */
static um_status meet(const um_device *d, um_err *err) {
    um_link *l = d->link;
    const um_status s =
        d->first ? um_link_answer(l, UM_FRAME_READY, NULL, 0, err) : um_link_collect(l, UM_FRAME_READY, err);
    return s ? fail_other(d, um_link_failed_rank(l), err) : UM_OK;
}

um_status um_group_unite(um_device *d, um_err *err) {
    uniting *u = UM_NEW(uniting);
    um_err unread;
    pthread_t thread;
    int32_t rank = d->first;
    if (!err) err = &unread; /* its message is sent to the other ranks */
    u->d = d;
    um_status s = exchange_cards(d, &u->leader, err);
    if (!s && pthread_create(&thread, NULL, run, u))
        s = fail_own(d, um_fail(err, UM_ELIMIT, "can't start a thread"), err);
    if (s) {
        um_free(u);
        return s;
    }
    s = watch(u, &rank, err);
    if (s) { /* the thread goes on, and uses u and d */
        pthread_detach(thread);
        d->is_stuck = true;
        return fail_other(d, rank, err);
    }
    pthread_join(thread, NULL);
    s = u->status;
    if (s) {
        *err = u->err;
        fail_own(d, s, err);
    }
    um_free(u);
    return s ? s : meet(d, err);
}
