/* Limits on connections. When all are taken, the one that has been idle longest is closed for the next client. If none
 * is idle, the next client gets a spare connection, on which only config.vital_path is answered; all else gets 503. A
 * spare connection without a request makes room for the next client, so that many silent clients don't block that path.
 */
#include <string.h>

#include "server/http/internal.h"

/* Connections above max_connections. Each is open for a short time only, so that a few are enough. */
#define SPARE_CONNECTIONS 16
/* The time for the head of a request on a spare connection, and for reading a 503, while the next client waits. */
#define SPARE_SECONDS 0.1

static bool are_spares_taken(const um_http_server *s) {
    return s->n_conns >= s->config.max_connections + SPARE_CONNECTIONS;
}

/* The oldest spare connection that waits for the head of a request or for the client to read a response, if its time is
 * over. The newest connection is first in the list. */
static um_http_conn *late_spare(const um_http_server *s) {
    um_http_conn *found = NULL;
    for (um_http_conn *c = s->conns; c; c = c->next)
        if (c->refused && c->state != UM_CONN_RESPONSE) found = c;
    return found && um_now() - found->opened >= SPARE_SECONDS ? found : NULL;
}

bool um_http_is_full(const um_http_server *s) { return are_spares_taken(s) && !late_spare(s); }

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
        n += memcmp(c->client.address, peer->address, sizeof peer->address) == 0;
    return n;
}

static bool is_trusted(const um_http_server *s, const um_http_peer *peer) {
    const um_http_nets *nets = &s->config.trusted_proxies;
    return peer->is_unix ? nets->has_unix : um_http_nets_have(nets, peer->address);
}

/* A proxy sends the requests of many clients. Each connection of a trusted one counts for the client of its request. */
int um_http_limit_of_client(um_http_conn *c) {
    um_http_server *s = c->server;
    um_http_peer client = {.is_local = false};
    int32_t most = s->config.max_connections_per_peer;
    if (!is_trusted(s, &c->peer)) return 0;
    if (!um_http_client_of(&s->config.trusted_proxies, um_exchange_header(c->x, "x-forwarded-for"),
                           um_exchange_header(c->x, "forwarded"), client.address))
        return 0;
    um_http_name_peer(&client, 0);
    bool is_full = most && !client.is_local && count_of_peer(s, &client) >= most;
    c->client = client;
    return is_full ? 429 : 0;
}

/* Many users may share a loopback address: those of a proxy. */
int um_http_limit_of(um_http_server *s, const um_http_peer *peer) {
    int32_t most = s->config.max_connections_per_peer;
    um_http_conn *late = are_spares_taken(s) ? late_spare(s) : NULL;
    if (late) um_http_conn_close(late);
    if (most && !peer->is_local && !is_trusted(s, peer) && count_of_peer(s, peer) >= most) return 429;
    if (s->n_conns < s->config.max_connections) return 0;
    um_http_conn *idle = longest_idle(s);
    if (!idle) return 503;
    um_http_conn_close(idle);
    return 0;
}
