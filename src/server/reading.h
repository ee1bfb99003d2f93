/* reading: from the bytes of a request's body to what its handler needs: JSON, parameters, ids, an answer. The
 * tokenizer takes a second for 16 MiB, the parser six for as many bytes of small values, a template that the request
 * brings half a one: that is done on threads beside the loop, so that streams and others do not wait. A short body is
 * read at once (see UM_READ_AT_ONCE). */
#ifndef UM_READING_H
#define UM_READING_H

#include "server/turn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a body that the loop reads by itself. Measured with /apply-template on two cores of a Xeon: a conversation
 * of 64 bytes takes 58 us of the loop, headers and answer included, one of 2,048 bytes 156 us, one of 4,000 bytes 268
 * us; handed over, one of 4,200 bytes takes 35 us of the loop and 295 us in all. So a hand-over costs 15 us of CPU
 * time, and from here on the loop is spared more than that many times over. */
#define UM_READ_AT_ONCE ((size_t)2048)
/* What may wait for the threads, in bytes of bodies: some seconds of work. More is answered with 429. */
#define UM_READ_WAITING_MAX ((size_t)128 << 20)
/* A template that a request brings is as much work as so many bytes. */
#define UM_READ_TEMPLATE_WEIGHT ((size_t)4 << 20)
#define UM_READ_THREADS         2 /* one huge body does not hold up the next one */
/* Ids that are remembered to be aborted while a body is read, in bytes; further ones find it when it runs. */
#define UM_READ_ABORTED_MAX ((size_t)4096)

typedef struct um_reading um_reading;
typedef struct um_reader {
    /* On any thread: turns `root` into a body, bodies or an answer. It looks at nothing of the server that changes. */
    um_status (*read)(um_reading *r, um_err *err);
    /* On the loop's thread, when that went well and the client is still there. */
    void (*answer)(um_reading *r);
    bool generates; /* the answer is a turn, or several */
} um_reader;

struct um_reading {
    um_server *server;
    um_exchange *x; /* NULL: the client is gone */
    const um_reader *reader;
    const void *about; /* the caller's, outlives the server */
    um_room room;
    double since;
    um_buf bytes;        /* the body */
    struct json_t *root; /* an object; `read` may take it */
    const um_api *api;   /* `read` found that it is for */
    um_body body, *bodies;
    size_t n_bodies;          /* of `bodies` */
    um_buf out;               /* an answer in JSON */
    um_reading *next, **link; /* of the server's, while it is beside the loop; link: what points at it */
    bool is_aborted;          /* whatever it is called */
    um_buf aborted;           /* ids, each with its NUL: it is aborted if it goes by one of them, which its body says */
};

/* Reads the body of an exchange and sees to the answer, now or later. What is wrong with it is answered here. */
void um_read(um_server *s, um_exchange *x, const um_reader *reader, const void *about);
/* um_turns_abort for requests whose bodies are read beside the loop: they end as aborted when they have been read.
 * Returns how many are known to: with an id none, since a body that was not read has not said what it is called. */
size_t um_readings_abort(um_server *s, const char *id);
/* What readers are made of. By an API's tables into `body`, which lives in the reading; takes `root`. */
um_status um_read_body(um_reading *r, const um_api *a, struct json_t *root, um_body *body, um_err *err);
/* Its own `root` into its own `body`, and the answer that is generated for that. */
um_status um_read_api(um_reading *r, const um_api *a, um_err *err);
void um_answer_api(um_reading *r);
void um_answer_out(um_reading *r); /* `out`, with 200 */
/* Releases something that came of so many bytes: what is large, beside the loop. */
void um_release(um_server *s, size_t bytes, void (*release)(void *arg), void *arg);
/* Frees a body like that. */
void um_body_release(um_body *b);

#ifdef __cplusplus
}
#endif
#endif
