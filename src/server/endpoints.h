/* endpoints: the list of all endpoints and of all APIs that generate. */
#ifndef UM_ENDPOINTS_H
#define UM_ENDPOINTS_H

#include "server/generate/api.h"
#include "server/service/endpoint.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const um_endpoint_set um_metrics_endpoints, um_openapi_endpoints;
/* NULL ends each list. */
extern const um_endpoint_set *const um_endpoints[];
extern const um_api *const um_apis[];

typedef struct um_endpoint_match {
    const um_endpoint *endpoint; /* NULL: the path has no endpoint for this method */
    const char *path;            /* path in the matching rows; NULL: the path is unknown */
    char *id;                    /* the part of the path that "{id}" or "{rest}" matched; um_free */
    char allow[64];              /* methods of the path, "GET, HEAD"; "" if it is unknown */
} um_endpoint_match;
/* Finds the endpoint of a request. */
void um_endpoint_find(um_endpoint_match *m, um_str method, const char *path);

#ifdef __cplusplus
}
#endif
#endif
