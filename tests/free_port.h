/* A TCP port that no socket of this host uses. */
#ifndef UM_TESTS_FREE_PORT_H
#define UM_TESTS_FREE_PORT_H

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

/* Returns the number of the port; 0 when the system gives none. */
static inline int32_t free_port(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) || getsockname(fd, (struct sockaddr *)&a, &n)) a.sin_port = 0;
    close(fd);
    return ntohs(a.sin_port);
}

#endif
