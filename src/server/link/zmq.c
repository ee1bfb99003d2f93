/* Functions that both ends of a ZeroMQ link share. */
#include "server/link/zmq.h"

#include <errno.h>

#include "server/link/wire.h"

um_status um_zmq_socket(void **out, void *context, int type, int linger_ms, um_err *err) {
    const int unlimited = 0, on = 1;
    const int64_t most = (int64_t)UM_WIRE_FRAME_MAX;
    void *s = context ? zmq_socket(context, type) : NULL;
    *out = s;
    if (!s) return um_fail(err, UM_EIO, "can't open a ZeroMQ socket: %s", zmq_strerror(errno));
    zmq_setsockopt(s, ZMQ_SNDHWM, &unlimited, sizeof unlimited);
    zmq_setsockopt(s, ZMQ_RCVHWM, &unlimited, sizeof unlimited);
    zmq_setsockopt(s, ZMQ_MAXMSGSIZE, &most, sizeof most);
    zmq_setsockopt(s, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    zmq_setsockopt(s, ZMQ_IPV6, &on, sizeof on);
    return UM_OK;
}

bool um_zmq_is_interrupted(int result) { return result < 0 && errno == EINTR; }

um_status um_zmq_check_addr(const char *addr, um_err *err) {
    int64_t port = 0;
    const char *colon = strrchr(addr, ':');
    if (strncmp(addr, "tcp://", 6) != 0 || um_streq(colon, ":*")) return UM_OK;
    if (colon > addr + 4 && um_parse_int(colon + 1, &port) && port > 0 && port <= UINT16_MAX) return UM_OK;
    return um_fail(err, UM_EIO, "%s: expected tcp://host:port with a port of 1..65535", addr);
}

um_status um_zmq_bind(void *socket, const char *addr, um_err *err) {
    int rc;
    do rc = zmq_bind(socket, addr);
    while (um_zmq_is_interrupted(rc));
    return rc ? um_fail(err, UM_EIO, "can't listen on %s: %s", addr, zmq_strerror(errno)) : UM_OK;
}

um_status um_zmq_connect(void *socket, const char *addr, um_err *err) {
    int rc;
    do rc = zmq_connect(socket, addr);
    while (um_zmq_is_interrupted(rc));
    return rc ? um_fail(err, UM_EIO, "can't connect to %s: %s", addr, zmq_strerror(errno)) : UM_OK;
}

void um_zmq_end(void *context) {
    while (context && um_zmq_is_interrupted(zmq_ctx_term(context))) {}
}

bool um_zmq_send(void *socket, const void *bytes, size_t n, int flags) {
    int rc;
    do rc = zmq_send(socket, bytes, n, flags | ZMQ_DONTWAIT);
    while (um_zmq_is_interrupted(rc));
    return rc >= 0;
}

bool um_zmq_receive_part(void *socket, zmq_msg_t *m) {
    int rc;
    do rc = zmq_msg_recv(m, socket, ZMQ_DONTWAIT);
    while (um_zmq_is_interrupted(rc));
    return rc >= 0;
}

bool um_zmq_receive(void *socket, zmq_msg_t *m) {
    while (um_zmq_receive_part(socket, m)) {
        if (!zmq_msg_more(m)) return true;
        while (zmq_msg_more(m) && um_zmq_receive_part(socket, m)) {}
    }
    return false;
}

um_str um_zmq_bytes(zmq_msg_t *m) { return (um_str){(const char *)zmq_msg_data(m), zmq_msg_size(m)}; }

void um_zmq_put_name(char out[UM_ZMQ_NAME_MAX], uint16_t worker, uint16_t incarnation) {
    snprintf(out, UM_ZMQ_NAME_MAX, "%u.%u", worker, incarnation);
}

bool um_zmq_read_name(um_str name, uint16_t *worker, uint16_t *incarnation) {
    char text[UM_ZMQ_NAME_MAX], again[UM_ZMQ_NAME_MAX];
    unsigned w, i;
    if (name.n >= sizeof text) return false;
    memcpy(text, name.p, name.n);
    text[name.n] = '\0';
    if (sscanf(text, "%5u.%5u", &w, &i) != 2 || w > UINT16_MAX || i > UINT16_MAX) return false;
    um_zmq_put_name(again, (uint16_t)w, (uint16_t)i);
    *worker = (uint16_t)w;
    *incarnation = (uint16_t)i;
    return um_streq(text, again);
}
