/* forwarded: networks of trusted proxies, and the client that they name in X-Forwarded-For or Forwarded (RFC 7239). Any
 * thread. */
#ifndef UM_HTTP_FORWARDED_H
#define UM_HTTP_FORWARDED_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Networks of IPv6 addresses; IPv4 addresses are mapped (::ffff:a.b.c.d). */
typedef struct um_http_net {
    unsigned char address[16];
    int32_t bits; /* length of the prefix, 0..128 */
} um_http_net;
typedef struct um_http_nets {
    um_http_net *net; /* [n] */
    size_t n;
    bool has_unix; /* peers at a Unix socket belong to the list */
} um_http_nets;

/* Parses "10.0.0.0/8, ::1, unix"; NULL is an empty list. UM_EINVAL names the wrong entry. */
um_status um_http_nets_parse(um_http_nets *out, const char *list, um_err *err);
void um_http_nets_free(um_http_nets *v);
bool um_http_nets_have(const um_http_nets *v, const unsigned char address[16]);

/* Finds the client of a request whose connection comes from a trusted proxy: the last address in the headers that is
 * not a trusted proxy itself, else the first one. Either header may be NULL; X-Forwarded-For is read before Forwarded.
 * Everything in front of an entry that is no address is ignored, because nobody vouches for it. Returns false if the
 * headers name no client. */
bool um_http_client_of(const um_http_nets *trusted, const char *x_forwarded_for, const char *forwarded,
                       unsigned char address[16]);

#ifdef __cplusplus
}
#endif
#endif
