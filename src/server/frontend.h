/* frontend: the server itself, and the files in the folder of server.c: dispatch, keys, origins, host names, the
 * metrics page. */
#ifndef UM_FRONTEND_H
#define UM_FRONTEND_H

#include "server/http/http.h"
#include "server/server.h"
#include "server/service/service.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- auth.c: API keys -------------------------------------------------------------------------------------------- */

/* Returns the key that the request carries as a bearer token, in the header x-api-key or, with `basic`, as a password;
 * NULL: none of the keys. The duration of the check does not depend on the keys. */
um_key *um_auth_key(const um_keys *keys, um_exchange *x, bool basic);
/* Answers 401. */
void um_auth_refuse(um_exchange *x, bool basic);

/* ---- cors.c: requests from web pages ----------------------------------------------------------------------------- */

/* Checks the list of --cors-allow-origin: an entry that no browser sends would allow nobody. */
um_status um_cors_check(const char *list, um_err *err);
/* Adds the headers that let a page of the request's Origin read the response. */
void um_cors_allow(const um_name_list *origins, um_exchange *x);
/* Returns whether the request comes from a page of another origin that is not allowed. */
bool um_cors_is_foreign(const um_name_list *origins, um_exchange *x);
/* Answers an OPTIONS request. allow: "GET, HEAD, OPTIONS". */
void um_cors_preflight(const um_name_list *origins, um_exchange *x, const char *allow);

/* ---- hosts.c: names of this server ------------------------------------------------------------------------------- */

typedef struct um_hosts {
    char **word; /* [n] names, in any case */
    size_t n;
    bool any;
} um_hosts;
/* Checks the list of --allowed-hosts: an entry with a port, for example, would be no name. */
um_status um_hosts_check(const char *list, um_err *err);
/* Collects the names: --allowed-hosts, --host, the hosts of the origins, the name of the machine. */
void um_hosts_init(um_hosts *h, const um_server_config *c, const um_name_list *origins);
void um_hosts_free(um_hosts *h);
/* Returns whether the header Host has one of the names, an IP address or a loopback name. */
bool um_hosts_allow(const um_hosts *h, um_exchange *x);
/* Answers 421. */
void um_hosts_refuse(um_exchange *x);

/* ---- server.c ---------------------------------------------------------------------------------------------------- */

struct um_server {
    um_server_config config; /* a copy of the command's, whose live options change on SIGHUP */
    um_arena live_strings;   /* their texts since then */
    um_service service;
    struct event *sigterm, *sigint, *sighup; /* sighup is NULL if the program was started with SIGHUP ignored (nohup) */
    struct event *linger;                    /* ends the loop when the workers are gone and clients are slow to read */
    um_name_list origins;
    um_hosts hosts;
    um_http_nets proxies;
    char *root_path; /* without a slash at its end; "" */
    bool was_up, workers_gone, has_ended;
    um_err failed; /* the error that ended the server; code UM_OK if it was stopped */
};

/* Fills in the configuration of the HTTP server from the options. */
void um_server_http_config(const um_server *s, um_http_config *http);

/* reload.c: returns whether the server has files that it reads again on SIGHUP: --config, --api-key-file. */
bool um_server_has_files(const um_server *s);
/* reload.c: reads the files again, and applies keys and live options, or nothing if one of them is wrong. */
void um_server_reload(um_server *s);

/* dispatch.c: handles a complete request, or a request without a valid key, whose body was not read. */
void um_server_dispatch(void *server, um_exchange *x);
/* dispatch.c: returns whether the body of a request is read. With API keys, no endpoint reads the body of a request
 * that has no valid key. */
bool um_server_reads_body(void *server, um_exchange *x);

#ifdef __cplusplus
}
#endif
#endif
