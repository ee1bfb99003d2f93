/* Limits on connections. When all are taken, the one that has been idle longest is closed for the next client. If none
 * is idle, the next client gets a spare connection, on which only config.vital_path is answered; all else gets 503. */
#include <string.h>

#include "server/http/internal.h"

/* Connections above max_connections. Each is open for seconds only, so that a few are enough. */
#define SPARE_CONNECTIONS 16

bool um_http_is_full(const um_http_server *s) { return s->n_conns >= s->config.max_connections + SPARE_CONNECTIONS; }

/* The connection whose last request is the oldest; NULL if all are busy. The newest connection may not have sent its
 * first request yet, so it is not idle. */
static um_http_conn *longest_idle(const um_http_server *s) {
    um_http_conn *found = NULL;
    for (um_http_conn *c = s->conns; c; c = c->next)
        if (um_http_conn_is_idle(c) && c->n_requests && (!found || c->began < found->began)) found = c;
    return found;
}

static int32_t count_of_peer(const um_http_server *s, const um_http_peer *peer) {
    int32_t n = 0;
    for (const um_http_conn *c = s->conns; c; c = c->next)
        n += memcmp(c->peer.address, peer->address, sizeof peer->address) == 0;
    return n;
}

/* Many users may share a loopback address: those of a proxy. */
int um_http_limit_of(um_http_server *s, const um_http_peer *peer) {
    int32_t most = s->config.max_connections_per_peer;
    if (most && !peer->is_local && count_of_peer(s, peer) >= most) return 429;
    if (s->n_conns < s->config.max_connections) return 0;
    um_http_conn *idle = longest_idle(s);
    if (!idle) return 503;
    um_http_conn_close(idle);
    return 0;
}
