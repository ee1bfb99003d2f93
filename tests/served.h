/* Shared by tests of the running server: the real program on a free port of this machine, and raw connections to it.
 *
 * The program is that of the environment variable UNMASK, else build/unmask. Whatever does not come in time fails the
 * test with what the server wrote. */
#ifndef UM_TESTS_SERVED_H
#define UM_TESTS_SERVED_H

#include <sys/types.h>

#include "base/base.h"

#define SERVED_SECONDS 60.0 /* that anything may take */

typedef struct served {
    pid_t pid; /* 0: it has ended */
    int port;
    char log[64]; /* file with what it wrote to standard error */
} served;

/* Starts `unmask serve --port 0` with further options (NULL behind the last) and waits until a worker is up. */
void served_start(served *s, const char *const *options);
/* The same, but waits only until it listens. */
void served_start_alone(served *s, const char *const *options);
/* Starts the program with any arguments, and waits for nothing. */
void served_launch(served *s, const char *const *arguments);
/* Waits until it ends; returns its exit status, 128 and the signal when one killed it. Removes the log. */
int served_end(served *s);
int served_stop(served *s); /* SIGTERM before */
bool served_wrote(const served *s, const char *words);
void served_await_words(const served *s, const char *words);

/* The processes of its workers, in ascending order; at most `most`. Returns how many there are. */
int served_workers(const served *s, pid_t *pid, int most);
bool served_is_gone(pid_t pid); /* it does not run: there is no such process, or it waits to be reaped */
int served_descriptors(const served *s);
int64_t served_resident(const served *s); /* bytes */

/* A connection and what was read from it. Zero is none. */
typedef struct client {
    int fd;
    bool at_end; /* the server has closed it */
    um_buf got;
} client;
/* Connects and sends a request; `body` may be NULL. The server closes the connection behind the answer. */
void client_ask(client *c, const served *s, const char *method, const char *path, const char *body);
/* The two halves of that. narrow: the system keeps as little as it can for a client that does not read. */
void client_dial(client *c, const served *s, bool narrow);
void client_put_request(um_buf *out, const char *method, const char *path, const char *body);
void client_send(client *c, const char *text);
void client_read(client *c, double seconds);     /* what is there, waiting so long for more */
void client_await(client *c, const char *words); /* until they were read */
void client_await_end(client *c);                /* reads all */
bool client_has(const client *c, const char *words);
int client_status(const client *c); /* of the answer; 0: its head is not there yet */
void client_close(client *c);

/* One request from its beginning to its end: the status; the answer is in c->got until client_close. */
int served_ask(const served *s, client *c, const char *method, const char *path, const char *body);
int served_status(const served *s, const char *path);      /* of a GET */
double served_metric(const served *s, const char *series); /* the first of /metrics, "unmask_kv_pages_used" */
void served_await_metric(const served *s, const char *series, double value);
void served_await_status(const served *s, const char *path, int status);
void served_await_idle(const served *s);               /* until no worker has requests */
void served_await_descriptors(const served *s, int n); /* until no more are open */

#endif
