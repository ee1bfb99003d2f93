/* Names of this server. The owner of a name such as evil.test can let it point to this machine. A browser then takes
 * the server for a part of the owner's site and lets the site's pages read its answers (DNS rebinding). The header Host
 * has the name that the browser used, so a name that the server does not know is refused. */
#include <arpa/inet.h>
#include <strings.h>
#include <unistd.h>

#include "server/frontend.h"
#include "server/respond/reply.h"

#define NAME_BYTES 256 /* a DNS name has at most 253 characters */

um_status um_hosts_check(const char *list, um_err *err) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_";
    um_name_list names;
    um_status st = UM_OK;
    um_name_list_parse(&names, list);
    for (size_t i = 0; i < names.n && !st; i++)
        if (!um_streq(names.word[i], "*") && names.word[i][strspn(names.word[i], letters)])
            st = um_fail(err, UM_EINVAL,
                         "--allowed-hosts: expected names such as llm.example.org, without scheme, port and path, or "
                         "*; found \"%.100s\" (IP addresses need not be listed)",
                         names.word[i]);
    um_name_list_free(&names);
    return st;
}

static void add(um_hosts *h, const char *name, size_t n) {
    if (n) h->word[h->n++] = um_strndup(name, n);
}

/* Adds the host of "https://host:port". */
static void add_origin(um_hosts *h, const char *origin) {
    const char *host = strstr(origin, "://");
    host = host ? host + 3 : origin;
    add(h, host, strcspn(host, ":/"));
}

void um_hosts_init(um_hosts *h, const um_server_config *c, const um_name_list *origins) {
    um_name_list given;
    char machine[NAME_BYTES] = "";
    um_name_list_parse(&given, c->allowed_hosts);
    h->any = um_name_list_has(&given, "*");
    h->word = UM_NEW_ARRAY(char *, given.n + origins->n + 2);
    for (size_t i = 0; i < given.n; i++) add(h, given.word[i], strlen(given.word[i]));
    for (size_t i = 0; i < origins->n; i++) add_origin(h, origins->word[i]);
    add(h, c->host, strlen(c->host));
    if (gethostname(machine, sizeof machine - 1) == 0) add(h, machine, strlen(machine));
    um_name_list_free(&given);
}

void um_hosts_free(um_hosts *h) {
    for (size_t i = 0; i < h->n; i++) um_free(h->word[i]);
    um_free(h->word);
}

/* Copies the host of "host:port", without the dot that may end a full name. */
static void copy_host(const char *header, char out[NAME_BYTES]) {
    size_t n = *header == '[' ? strcspn(header, "]") + 1 : strcspn(header, ":");
    n = UM_MIN(n, UM_MIN(strlen(header), NAME_BYTES - 1));
    if (n && header[n - 1] == '.') n--;
    memcpy(out, header, n);
    out[n] = '\0';
}

static bool is_address(char *host) {
    struct in6_addr unused;
    size_t n = strlen(host);
    if (*host != '[' || host[n - 1] != ']') return inet_pton(AF_INET, host, &unused) == 1;
    host[n - 1] = '\0';
    bool is = inet_pton(AF_INET6, host + 1, &unused) == 1;
    host[n - 1] = ']';
    return is;
}

/* Browsers resolve localhost and the names below it to this machine themselves. */
static bool is_loopback(const char *host) {
    static const char name[] = "localhost";
    size_t n = strlen(host), n_name = sizeof name - 1;
    if (n < n_name || strcasecmp(host + n - n_name, name) != 0) return false;
    return n == n_name || host[n - n_name - 1] == '.';
}

bool um_hosts_allow(const um_hosts *h, um_exchange *x) {
    const char *header = um_exchange_header(x, "host");
    char host[NAME_BYTES];
    if (h->any || !header) return true; /* HTTP/1.0 without Host: no browser */
    copy_host(header, host);
    if (is_address(host) || is_loopback(host)) return true;
    for (size_t i = 0; i < h->n; i++)
        if (strcasecmp(host, h->word[i]) == 0) return true;
    return false;
}

void um_hosts_refuse(um_exchange *x) {
    um_reply_error(x, 421, NULL, "misdirected_request",
                   "this server does not have the name %.100s; --allowed-hosts NAME gives it the name",
                   um_exchange_header(x, "host"));
}
