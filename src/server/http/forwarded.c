/* Reads the addresses that proxies add to a request. Each proxy appends the address of its own peer, so that the
 * entries are trusted from the last to the first, as long as each is a trusted proxy. */
#include "server/http/forwarded.h"

#include <arpa/inet.h>
#include <strings.h>

/* Entries of a header that are kept: the last ones. */
#define NODES_MAX 32

static bool parse_address(const char *text, unsigned char out[16]) {
    static const unsigned char mapped[12] = {[10] = 0xFF, [11] = 0xFF};
    memcpy(out, mapped, sizeof mapped);
    return inet_pton(AF_INET, text, out + sizeof mapped) == 1 || inet_pton(AF_INET6, text, out) == 1;
}

/* ---- Networks ---------------------------------------------------------------------------------------------------- */

static bool parse_net(const char *text, size_t n, um_http_net *out) {
    char address[INET6_ADDRSTRLEN + 1], bits[8];
    const char *slash = (const char *)memchr(text, '/', n);
    size_t host = slash ? (size_t)(slash - text) : n, rest = slash ? n - host - 1 : 0;
    int64_t number = 0;
    if (host >= sizeof address || rest >= sizeof bits) return false;
    snprintf(address, sizeof address, "%.*s", (int)host, text);
    snprintf(bits, sizeof bits, "%.*s", (int)rest, slash ? slash + 1 : "");
    if (!parse_address(address, out->address)) return false;
    const bool is_v4 = !strchr(address, ':');
    const int32_t most = is_v4 ? 32 : 128;
    if (slash && (!um_parse_int(bits, &number) || number < 0 || number > most)) return false;
    out->bits = (slash ? (int32_t)number : most) + 128 - most;
    return true;
}

static size_t count_commas(const char *list) {
    size_t n = 0;
    for (const char *p = list; *p; p++) n += *p == ',';
    return n;
}

um_status um_http_nets_parse(um_http_nets *out, const char *list, um_err *err) {
    *out = (um_http_nets){0};
    if (!list) return UM_OK;
    out->net = UM_NEW_ARRAY(um_http_net, count_commas(list) + 1);
    for (const char *p = list; *p;) {
        p += strspn(p, ", \t");
        size_t n = strcspn(p, ", \t");
        if (n == 4 && memcmp(p, "unix", n) == 0) out->has_unix = true;
        else if (n && parse_net(p, n, &out->net[out->n])) out->n++;
        else if (n) {
            um_http_nets_free(out);
            return um_fail(err, UM_EINVAL,
                           "--trusted-proxies: expected addresses, networks such as 10.0.0.0/8, or unix, "
                           "found \"%.*s\"",
                           (int)UM_MIN(n, (size_t)60), p);
        }
        p += n;
    }
    return UM_OK;
}

void um_http_nets_free(um_http_nets *v) {
    um_free(v->net);
    *v = (um_http_nets){0};
}

static bool is_in(const um_http_net *net, const unsigned char address[16]) {
    const size_t whole = (size_t)net->bits / 8;
    const int rest = net->bits % 8;
    if (memcmp(net->address, address, whole) != 0) return false;
    return !rest || (net->address[whole] ^ address[whole]) >> (8 - rest) == 0;
}

bool um_http_nets_have(const um_http_nets *v, const unsigned char address[16]) {
    for (size_t i = 0; i < v->n; i++)
        if (is_in(&v->net[i], address)) return true;
    return false;
}

/* ---- Headers ----------------------------------------------------------------------------------------------------- */

/* The last entries of a header. One that is no address, such as "unknown", has no address. */
typedef struct nodes {
    unsigned char address[NODES_MAX][16];
    bool is_address[NODES_MAX];
    size_t n; /* all entries; entry i is at i % NODES_MAX */
} nodes;

/* Parses "192.0.2.1", "192.0.2.1:80", "2001:db8::1" or "[2001:db8::1]:80". */
static bool parse_node(um_str s, unsigned char out[16]) {
    char text[INET6_ADDRSTRLEN + 16];
    if (!s.n || s.n >= sizeof text) return false;
    memcpy(text, s.p, s.n);
    text[s.n] = '\0';
    char *colon = strchr(text, ':');
    if (*text == '[') {
        char *end = strchr(text, ']');
        if (!end || (end[1] && end[1] != ':')) return false;
        *end = '\0';
        return parse_address(text + 1, out);
    }
    if (colon && !strchr(colon + 1, ':')) *colon = '\0';
    return parse_address(text, out);
}

static void add_node(nodes *v, um_str s) {
    size_t i = v->n++ % NODES_MAX;
    while (s.n && (*s.p == ' ' || *s.p == '\t')) s = (um_str){s.p + 1, s.n - 1};
    while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t')) s.n--;
    v->is_address[i] = parse_node(s, v->address[i]);
}

static void read_x_forwarded_for(nodes *v, const char *header) {
    for (const char *p = header; *p;) {
        p += strspn(p, ", \t");
        size_t n = strcspn(p, ",");
        if (n) add_node(v, (um_str){p, n});
        p += n;
    }
}

/* Returns the length of a pair up to the next ';' or ','. A quoted value may have both. */
static size_t pair_length(const char *p) {
    bool quoted = false;
    size_t n = 0;
    for (; p[n] && (quoted || (p[n] != ';' && p[n] != ',')); n++) {
        if (p[n] == '"') quoted = !quoted;
        if (quoted && p[n] == '\\' && p[n + 1]) n++;
    }
    return n;
}

/* Reads "for=192.0.2.1;proto=https, for=\"[2001:db8::1]\"". An element without `for` counts as one without address. */
static void read_forwarded(nodes *v, const char *header) {
    um_str node = {"", 0};
    for (const char *p = header; *p;) {
        p += strspn(p, " \t");
        size_t n = pair_length(p);
        if (n >= 4 && strncasecmp(p, "for=", 4) == 0) node = (um_str){p + 4, n - 4};
        if (node.n >= 2 && *node.p == '"' && node.p[node.n - 1] == '"') node = (um_str){node.p + 1, node.n - 2};
        if (p[n] != ';') {
            add_node(v, node);
            node = UM_STR("");
        }
        p += n + (p[n] != '\0');
    }
}

bool um_http_client_of(const um_http_nets *trusted, const char *x_forwarded_for, const char *forwarded,
                       unsigned char address[16]) {
    nodes v;
    bool found = false;
    v.n = 0;
    if (x_forwarded_for) read_x_forwarded_for(&v, x_forwarded_for);
    else if (forwarded) read_forwarded(&v, forwarded);
    for (size_t left = UM_MIN(v.n, (size_t)NODES_MAX), i = v.n; left > 0; left--) {
        i--;
        if (!v.is_address[i % NODES_MAX]) return found;
        memcpy(address, v.address[i % NODES_MAX], 16);
        found = true;
        if (!um_http_nets_have(trusted, address)) return true;
    }
    return found;
}
