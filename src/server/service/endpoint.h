/* endpoint: the row of a method and a path, which names the function that handles these requests. */
#ifndef UM_ENDPOINT_H
#define UM_ENDPOINT_H

#include "server/service/service.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    UM_ENDPOINT_OPEN = 1,  /* needs no API key */
    UM_ENDPOINT_WAITS = 2, /* generates: answered with 503 while no worker is up or the server shuts down */
    UM_ENDPOINT_PAGE = 4,  /* for browsers: also takes the API key as the password of basic authentication */
    UM_ENDPOINT_ADMIN = 8, /* takes keys of admins only */
};
/* A name in braces in a path matches one segment. "{rest}" at its end matches all that remains, slashes included. */
typedef struct um_endpoint {
    const char *method, *path;
    /* Called on the loop's thread when the request is complete. id: the matched segment, or all
     * from the first matched one to the last; NULL if the path has none. */
    void (*handle)(um_service *s, um_exchange *x, const char *id);
    unsigned flags;
    const char *shape;   /* owner of the API: "OpenAI" */
    const char *summary; /* for `unmask list endpoints` and the documents */
} um_endpoint;
/* The rows of one file. */
typedef struct um_endpoint_set {
    const um_endpoint *rows;
    size_t n;
} um_endpoint_set;

#ifdef __cplusplus
}
#endif
#endif
