/* Commands and results between the ranks of a group in several processes. */
#include "ops/ranks/link.h"

#include <poll.h>
#include <sys/socket.h>

#include "ops/ranks/link_open.h"

/* How long a rank may take to answer UM_FRAME_PING. A rank whose devices compute looks for it every 20 ms. */
#define PONG_SECONDS 1.0
/* Rank 0 gives up first and tells the others why. They wait this much longer for it. */
#define LONGER         1.25
#define LONGER_SECONDS (1.0 + PONG_SECONDS)
/* How long a rank tries to tell the others of a failure. */
#define FAREWELL_SECONDS 1.0
/* How often a rank that waits for results in memory looks whether another one has failed. */
#define LOOK_SECONDS 0.02

int32_t um_link_rank(const um_link *l) { return l->rank; }

int32_t um_link_failed_rank(const um_link *l) { return l->failed_rank; }

static double patience(const um_link *l) { return l->rank ? l->timeout * LONGER + LONGER_SECONDS : l->timeout; }

double um_link_patience(const um_link *l) { return patience(l); }

/* Finishes the frames of all connections. */
static um_status transfer(um_link *l, double seconds, um_err *err) {
    um_failed why = {.rank = l->failed_rank};
    if (l->has_failed) return um_fail(err, UM_EDEVICE, "the group has failed before");
    if (um_transfer(l->c, l->n_connections, seconds, &why)) return UM_OK;
    l->failed_rank = why.rank;
    return um_fail(err, UM_EDEVICE, "%s", why.message);
}

void um_link_fail(um_link *l, int32_t rank, const char *message) {
    um_failed f = {.rank = rank}, ignored;
    if (l->has_failed) return;
    l->has_failed = true;
    snprintf(f.message, sizeof f.message, "%s", message);
    for (int32_t i = 0; i < l->n_connections; i++) {
        um_connection *c = &l->c[i];
        if (c->fd < 0 || c->rank == rank) continue;
        c->receives = false;
        if (um_connection_drop(c)) {
            um_connection_send(c, UM_FRAME_FAILED, &f, sizeof f);
            (void)um_transfer(c, 1, FAREWELL_SECONDS, &ignored);
        } else (void)shutdown(c->fd, SHUT_RDWR); /* the other rank can be told nothing else */
    }
}

void um_link_close(um_link *l) {
    um_failed ignored;
    if (!l) return;
    for (int32_t i = 0; i < l->n_connections; i++) {
        um_connection *c = &l->c[i];
        if (!l->has_failed && l->rank == 0 && c->fd >= 0 && um_connection_drop(c)) {
            um_connection_send(c, UM_FRAME_END, NULL, 0);
            (void)um_transfer(c, 1, FAREWELL_SECONDS, &ignored);
        }
        um_connection_close(c);
    }
    um_board_close(l->board);
    for (int s = 0; s < UM_RANKS_SLOTS; s++)
        for (int32_t r = 0; r < l->n; r++) um_free(l->mirror[s][r]);
    um_free(l);
}

/* ---- Commands ---------------------------------------------------------------------------------------------------- */

um_status um_link_tell(um_link *l, um_frame_type type, const void *data, size_t n, um_err *err) {
    assert(l->rank == 0);
    if (l->has_failed) return transfer(l, 0, err);
    for (int32_t i = 0; i < l->n_connections; i++) um_connection_send(&l->c[i], type, data, n);
    return transfer(l, patience(l), err);
}

um_status um_link_collect(um_link *l, um_frame_type type, um_err *err) {
    assert(l->rank == 0);
    if (l->has_failed) return transfer(l, 0, err);
    for (int32_t i = 0; i < l->n_connections; i++) um_connection_receive(&l->c[i], type, NULL, 0);
    return transfer(l, patience(l), err);
}

um_status um_link_answer(um_link *l, um_frame_type type, const void *data, size_t n, um_err *err) {
    assert(l->rank > 0);
    if (l->has_failed) return transfer(l, 0, err);
    um_connection_send(&l->c[0], type, data, n);
    return transfer(l, patience(l), err);
}

um_status um_link_assemble(um_link *l, um_frame_type type, const void *own, size_t n, void *all, um_err *err) {
    if (l->rank) return um_link_answer(l, type, own, n, err);
    um_status s = um_link_collect(l, type, err);
    memcpy(all, own, n);
    for (int32_t i = 0; i < l->n_connections && !s; i++) {
        const um_connection *c = &l->c[i];
        if (c->body.len == n) memcpy((char *)all + (size_t)c->rank * n, c->body.data, n);
        else {
            l->failed_rank = c->rank;
            s = um_fail(err, UM_EDEVICE, "it sent a frame of %zu bytes, expected %zu", c->body.len, n);
        }
    }
    return s;
}

um_status um_link_look(um_link *l, int32_t *rank, um_err *err) {
    um_failed why;
    for (int32_t i = 0; i < l->n_connections; i++) {
        if (l->rank) um_connection_answer_ping(&l->c[i]);
        if (!um_connection_tells_failure(&l->c[i], &why)) continue;
        *rank = why.rank;
        return um_fail(err, UM_EDEVICE, "%s", why.message);
    }
    return UM_OK;
}

/* Asks all other ranks for a sign of life. Returns the first one that gives none; -1: all do. */
static int32_t find_silent(um_link *l) {
    const double end = um_now() + PONG_SECONDS;
    um_failed ignored;
    for (int32_t i = 0; i < l->n_connections; i++) {
        if (l->c[i].out_at < l->c[i].out_all) continue; /* the rank has not read the frame before */
        l->c[i].receives = false;
        um_connection_send(&l->c[i], UM_FRAME_PING, NULL, 0);
        (void)um_transfer(&l->c[i], 1, 0, &ignored);
    }
    for (int32_t i = 0; i < l->n_connections; i++) {
        struct pollfd p = {.fd = l->c[i].fd, .events = POLLIN};
        if (poll(&p, 1, (int)(1000 * UM_MAX(end - um_now(), 0.0))) <= 0) return l->c[i].rank;
    }
    return -1;
}

um_status um_link_find_late(um_link *l, int32_t *rank, um_err *err) {
    const int32_t silent = l->rank ? 0 : find_silent(l);
    *rank = UM_MAX(silent, 0);
    return um_fail(err, UM_EDEVICE, "%s for %g s (--distributed-timeout-seconds)",
                   silent < 0 ? "all processes answer, but the devices have exchanged nothing" : "no answer",
                   l->timeout);
}

um_status um_link_receive(um_link *l, um_frame_type *type, um_str *body, um_err *err) {
    um_connection *c = &l->c[0];
    assert(l->rank > 0);
    if (l->has_failed) return transfer(l, 0, err);
    um_connection_receive(c, 0, NULL, 0);
    um_status s = transfer(l, -1, err);
    *type = (um_frame_type)c->in.type;
    *body = (um_str){c->body.data, c->body.len};
    return s;
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

um_status um_link_mirror(um_link *l, int slot, size_t bytes, um_err *err) {
    um_status s = UM_OK;
    for (int32_t r = 0; r < l->n && !s; r++) {
        void *p = NULL;
        if (r == l->rank) continue;
        um_free(l->mirror[slot][r]);
        s = um_try_alloc(&p, bytes, 64, "results of other ranks", err);
        l->mirror[slot][r] = (float *)p;
    }
    l->room[slot] = bytes;
    return s;
}

const float *um_link_gathered(const um_link *l, int slot, int32_t rank) { return l->gathered[slot][rank]; }

bool um_link_is_direct(const um_link *l) { return l->n == 2 || l->board; }

void um_link_set_time(um_link *l, const um_rank_time *own) { l->own = *own; }

um_rank_time um_link_time(const um_link *l, int32_t rank) {
    for (int32_t i = 0; i < l->n_connections; i++)
        if (l->c[i].rank == rank) return l->c[i].last_time;
    return (um_rank_time){0};
}

/* Rank 0 sends each other rank the results of all ranks but that one. */
static um_status forward(um_link *l, const float *own, size_t n, float *const *mirror, um_err *err) {
    um_status s = UM_OK;
    for (int32_t from = 0; from < l->n && !s; from++) {
        for (int32_t i = 0; i < l->n_connections; i++)
            if (l->c[i].rank != from) um_connection_send_results(&l->c[i], from ? mirror[from] : own, n, l->own);
        s = transfer(l, patience(l), err);
    }
    return s;
}

/* Receives the results of the other ranks behind rank 0, which rank 0 forwards. */
static um_status receive_rest(um_link *l, float *const *mirror, size_t room, um_err *err) {
    um_status s = UM_OK;
    for (int32_t from = 1; from < l->n && !s; from++) {
        if (from == l->rank) continue;
        um_connection_receive(&l->c[0], UM_FRAME_DATA, mirror[from], room);
        s = transfer(l, patience(l), err);
    }
    return s;
}

static um_status gather(um_link *l, const float *own, size_t n, float *const *mirror, size_t room, bool all,
                        um_err *err) {
    const bool is_pair = l->n == 2;
    if (l->has_failed) return transfer(l, 0, err);
    for (int32_t i = 0; i < l->n_connections; i++) {
        um_connection *c = &l->c[i];
        if (l->rank > 0 || (all && is_pair)) um_connection_send_results(c, own, n, l->own);
        if (l->rank == 0 || all) um_connection_receive(c, UM_FRAME_DATA, mirror[c->rank], room);
    }
    um_status s = transfer(l, patience(l), err);
    if (s || !all || is_pair) return s;
    return l->rank ? receive_rest(l, mirror, room, err) : forward(l, own, n, mirror, err);
}

/* Looks whether a rank has failed while this one waits for results: it has sent its words, or its connection has ended.
 */
static um_status look_for_failure(um_link *l, int32_t awaited, um_err *err) {
    for (int32_t i = 0; i < l->n_connections; i++) {
        um_failed why;
        struct pollfd p = {.fd = l->c[i].fd, .events = POLLIN};
        if (poll(&p, 1, 0) <= 0) continue;
        /* A frame of the next step arrives after the results. */
        if (um_board_wait(l->board, awaited, 0)) return UM_OK;
        um_connection_receive(&l->c[i], UM_FRAME_DATA, NULL, 0);
        if (um_transfer(&l->c[i], 1, FAREWELL_SECONDS, &why))
            return um_fail(err, UM_EDEVICE, "it sent a frame out of turn");
        l->failed_rank = why.rank;
        return um_fail(err, UM_EDEVICE, "%s", why.message);
    }
    return UM_OK;
}

/* um_link_gather through the board. */
static um_status gather_on_board(um_link *l, int slot, const float *own, size_t n, um_err *err) {
    const double end = um_now() + patience(l);
    if (l->has_failed) return transfer(l, 0, err);
    um_board_show(l->board, own, n);
    for (int32_t r = 0; r < l->n; r++) {
        while (r != l->rank && !um_board_wait(l->board, r, LOOK_SECONDS)) {
            um_status s = look_for_failure(l, r, err);
            if (s) return s;
            if (um_now() < end) continue;
            l->failed_rank = r;
            return um_fail(err, UM_EDEVICE, "no answer for %g s (--distributed-timeout-seconds)", l->timeout);
        }
        l->gathered[slot][r] = um_board_place(l->board, r);
    }
    return UM_OK;
}

um_status um_link_gather(um_link *l, int slot, const float *own, size_t n, bool all, um_err *err) {
    if (all && l->board) return gather_on_board(l, slot, own, n, err);
    for (int32_t r = 0; r < l->n; r++) l->gathered[slot][r] = l->mirror[slot][r];
    return gather(l, own, n, l->mirror[slot], l->room[slot], all, err);
}

um_status um_link_spread(um_link *l, float *p, size_t n, um_err *err) {
    if (l->has_failed) return transfer(l, 0, err);
    for (int32_t i = 0; i < l->n_connections; i++) {
        if (l->rank == 0) um_connection_send_results(&l->c[i], p, n, l->own);
        else um_connection_receive(&l->c[i], UM_FRAME_DATA, p, n * sizeof *p);
    }
    return transfer(l, patience(l), err);
}
