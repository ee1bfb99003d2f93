/* Helpers for tests of the running server: they start the real program on a free port and connect to it with raw
 * sockets.
 *
 * The environment variable UNMASK names the program; the default is build/unmask. A test fails if a wait takes longer
 * than SERVED_SECONDS. The failure message has the end of the server's log, or the response so far. */
#ifndef UM_TESTS_SERVED_H
#define UM_TESTS_SERVED_H

#include <sys/types.h>

#include "base/base.h"

#define SERVED_SECONDS 60.0 /* longest wait for anything */

typedef struct served {
    pid_t pid; /* 0: the process has ended */
    int port;
    char log[64]; /* path of the file with its standard error */
} served;

/* Starts `unmask serve --port 0` with further options, which end with NULL, and waits until a worker is up. */
void served_start(served *s, const char *const *options);
/* Does the same, but waits only until the server listens. */
void served_start_alone(served *s, const char *const *options);
/* Starts the program with any arguments and does not wait. */
void served_launch(served *s, const char *const *arguments);
/* Waits until the process ends and removes the log. Returns the exit status, or 128 plus the number of the signal that
 * killed the process. */
int served_end(served *s);
/* Sends SIGTERM, then does the same as served_end. */
int served_stop(served *s);
/* Returns whether the log contains the words. */
bool served_wrote(const served *s, const char *words);
/* Waits until the log contains the words. Fails at once if the process ends without writing them. */
void served_await_words(const served *s, const char *words);

/* Writes the process ids of up to `most` workers in ascending order. Returns how many workers there are, maybe more. */
int served_workers(const served *s, pid_t *pid, int most);
/* Returns whether the process does not run: there is none with this id, or it is a zombie. */
bool served_is_gone(pid_t pid);
/* Returns the number of the server's open descriptors. */
int served_descriptors(const served *s);
/* Returns the server's resident memory in bytes. */
int64_t served_resident(const served *s);

/* A connection and the bytes read from it. A zeroed client has no connection. */
typedef struct client {
    int fd;
    bool at_end; /* the server has closed the connection */
    um_buf got;
} client;
/* Connects and sends a request; `body` may be NULL. The server closes the connection after the response. */
void client_ask(client *c, const served *s, const char *method, const char *path, const char *body);
/* Connects. narrow: gets a small receive buffer, so that the kernel holds little for a client that does not read. */
void client_dial(client *c, const served *s, bool narrow);
/* Appends a request as client_ask sends it. */
void client_put_request(um_buf *out, const char *method, const char *path, const char *body);
void client_send(client *c, const char *text);
/* Waits at most this long for data and reads once. Sets at_end if the server has closed the connection. */
void client_read(client *c, double seconds);
/* Reads until the words have arrived. */
void client_await(client *c, const char *words);
/* Reads until the server closes the connection. */
void client_await_end(client *c);
bool client_has(const client *c, const char *words);
/* Returns the status of the response, or 0 if it has not arrived yet. */
int client_status(const client *c);
void client_close(client *c);

/* Sends a request and reads the whole response. Returns its status; the response stays in c->got until client_close. */
int served_ask(const served *s, client *c, const char *method, const char *path, const char *body);
/* Sends a GET request and returns the status. */
int served_status(const served *s, const char *path);
/* Returns the value of the first sample of /metrics with this name, such as "unmask_kv_pages_used". */
double served_metric(const served *s, const char *series);
void served_await_metric(const served *s, const char *series, double value);
void served_await_status(const served *s, const char *path, int status);
/* Waits until no worker has requests. */
void served_await_idle(const served *s);
/* Waits until the server has at most n open descriptors. */
void served_await_descriptors(const served *s, int n);

#endif
