/* Checks a request (host, origin, key, path, method, state of the workers) and passes it to its endpoint. */
#include "server/endpoints.h"
#include "server/frontend.h"
#include "server/generate/quota.h"
#include "server/respond/access.h"
#include "server/respond/reply.h"

/* Returns the path without --root-path. Also accepts a path from which the proxy has removed it. */
static const char *path_below(const um_server *s, const char *path) {
    size_t n = strlen(s->root_path);
    bool is_below = strncmp(path, s->root_path, n) == 0 && path[n] == '/';
    return is_below ? path + n : path;
}

static void refuse_path(um_exchange *x, const um_endpoint_match *m) {
    um_str method = um_exchange_method(x);
    if (!m->path) {
        um_reply_error(x, 404, NULL, NULL, "there is no %.200s here", um_exchange_path(x));
        return;
    }
    um_exchange_add_header(x, "Allow", m->allow);
    um_reply_error(x, 405, NULL, NULL, "%.200s takes %s, not %.*s", um_exchange_path(x), m->allow,
                   (int)UM_MIN(method.n, 20), method.p);
}

/* Returns whether a generation can start now. If not, answers 503. */
static bool can_generate(um_service *s, um_exchange *x) {
    if (s->stopping) {
        um_reply_error(x, 503, NULL, "stopping", "the server is stopping");
        return false;
    }
    if (um_worker_pool_is_up(s->workers)) return true;
    um_reply_error(x, 503, NULL, "unavailable", "the model can't answer now: %s",
                   um_worker_pool_down_reason(s->workers));
    return false;
}

/* A page that reaches the server under a wrong name has no key, so names matter only to a server without keys. */
static bool has_wrong_name(const um_server *s, um_exchange *x) {
    return um_keys_is_empty(s->service.keys) && !um_hosts_allow(&s->hosts, x);
}

/* Returns whether the key of the request allows the endpoint now. If not, answers 401, 403 or 429. */
static bool has_access(const um_server *s, um_exchange *x, unsigned flags) {
    bool basic = flags & UM_ENDPOINT_PAGE;
    if (um_keys_is_empty(s->service.keys)) return true;
    um_key *key = um_auth_key(s->service.keys, x, basic);
    if (!key) {
        um_auth_refuse(x, basic);
        return false;
    }
    um_access_record_set_key(x, key);
    if ((flags & UM_ENDPOINT_ADMIN) && !um_key_is_admin(key)) {
        um_reply_error(x, 403, NULL, "not_allowed", "%.200s takes keys of admins only", um_exchange_path(x));
        return false;
    }
    return !um_str_eq(um_exchange_method(x), UM_STR("POST")) || um_quota_take_request(key, x);
}

static void serve(um_server *s, um_exchange *x, const um_endpoint_match *m) {
    const um_endpoint *e = m->endpoint;
    unsigned flags = e ? e->flags : 0;
    if (!(flags & UM_ENDPOINT_OPEN) && has_wrong_name(s, x)) um_hosts_refuse(x);
    else if (m->path && um_str_eq(um_exchange_method(x), UM_STR("OPTIONS")))
        um_cors_preflight(&s->origins, x, m->allow);
    else if (um_cors_is_foreign(&s->origins, x))
        um_reply_error(x, 403, NULL, "foreign_origin",
                       "pages of other origins may not call this server; --cors-allow-origin lets them");
    else if (!(flags & UM_ENDPOINT_OPEN) && !has_access(s, x, flags)) return;
    else if (!e) refuse_path(x, m);
    else if (!(flags & UM_ENDPOINT_WAITS) || can_generate(&s->service, x)) e->handle(&s->service, x, m->id);
}

bool um_server_reads_body(void *server, um_exchange *x) {
    const um_server *s = server;
    return um_keys_is_empty(s->service.keys) || um_auth_key(s->service.keys, x, true);
}

void um_server_dispatch(void *server, um_exchange *x) {
    um_server *s = server;
    um_endpoint_match m;
    um_access_record *record = um_access_record_new(x);
    s->service.n_open++;
    um_cors_allow(&s->origins, x);
    um_endpoint_find(&m, um_exchange_method(x), path_below(s, um_exchange_path(x)));
    if (m.path) record->path = m.path;
    serve(s, x, &m);
    um_free(m.id);
}
