/* Listening sockets. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/http/internal.h"

#define BACKLOG 1024

/* ---- TCP --------------------------------------------------------------------------------------------------------- */

/* Returns a listening socket, or -1 with errno. "::" accepts IPv4 too, whatever the system's default is. */
static int listen_on(const struct addrinfo *a) {
    int on = 1, off = 0, fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* Returns advice for an errno of bind or listen, to append to the error message. */
static const char *advice(int why) {
    switch (why) {
    case EADDRINUSE: return "; another program listens there; choose another port, or 0 for any free one";
    case EACCES: return "; ports below 1024 need privileges";
    case EADDRNOTAVAIL: return "; this machine does not have the address";
    default: return "";
    }
}

/* ---- Unix sockets ------------------------------------------------------------------------------------------------ */

/* Returns whether a process listens at the socket. */
static bool is_served(const struct sockaddr_un *a) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is = fd >= 0 && connect(fd, (const struct sockaddr *)a, sizeof *a) == 0;
    if (fd >= 0) close(fd);
    return is;
}

/* Removes the socket of a server that was killed. Keeps a file of any other kind. */
static void remove_stale(const struct sockaddr_un *a) {
    struct stat file;
    if (lstat(a->sun_path, &file) == 0 && S_ISSOCK(file.st_mode) && !is_served(a)) unlink(a->sun_path);
}

/* The owner and the group may connect. */
static um_status listen_on_path(int *fd, const char *path, um_err *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path)
        return um_fail(err, UM_EIO, "the path of the Unix socket has %zu bytes, at most %zu: %s", strlen(path),
                       sizeof a.sun_path - 1, path);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    remove_stale(&a);
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    mode_t mask = umask(0117);
    bool bound = *fd >= 0 && bind(*fd, (struct sockaddr *)&a, sizeof a) == 0;
    umask(mask);
    if (bound && listen(*fd, BACKLOG) == 0) return UM_OK;
    int why = errno;
    if (*fd >= 0) close(*fd);
    return um_fail(err, UM_EIO, "can't listen at the Unix socket %s: %s%s", path, strerror(why),
                   why == EADDRINUSE ? "; another server listens there, or a file has the name" : "");
}

/* ---- Both -------------------------------------------------------------------------------------------------------- */

um_status um_http_listen(int *fd, const um_http_config *c, um_err *err) {
    if (c->unix_socket) return listen_on_path(fd, c->unix_socket, err);
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *list = NULL;
    char port[16];
    snprintf(port, sizeof port, "%d", (int)c->port);
    int got = getaddrinfo(c->host, port, &hints, &list);
    if (got) return um_fail(err, UM_EIO, "can't listen on \"%s\": unknown host: %s", c->host, gai_strerror(got));
    *fd = -1;
    for (struct addrinfo *a = list; a && *fd < 0; a = a->ai_next) *fd = listen_on(a);
    int why = errno;
    freeaddrinfo(list);
    if (*fd >= 0) return UM_OK;
    return um_fail(err, UM_EIO, "can't listen on %s port %d: %s%s", c->host, (int)c->port, strerror(why), advice(why));
}

int32_t um_http_port_of(int fd) {
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n)) return 0;
    if (a.ss_family == AF_UNIX) return 0;
    if (a.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)(void *)&a)->sin6_port);
    return ntohs(((struct sockaddr_in *)(void *)&a)->sin_port);
}
