/* SIGHUP: reads the configuration file and the key file again. Options whose rows are live take effect at once; the
 * names of others that have changed are logged. A file that is wrong changes nothing: a server with the old options is
 * better than one with half of the new ones. */
#include "engine/options.h"
#include "server/frontend.h"

typedef struct reload {
    um_server_config config;
    um_config engine;
    um_arena strings;
    um_http_nets proxies;
} reload;

static const char *const words[] = {"error", "warn", "info", "debug"};

bool um_server_has_files(const um_server *s) { return s->config.reread || s->config.api_key_file; }

/* ---- Differences ------------------------------------------------------------------------------------------------- */

static bool is_changed(const um_option *row, const void *before, const void *after) {
    um_buf a = {0}, b = {0};
    um_option_get_text(row, before, &a);
    um_option_get_text(row, after, &b);
    bool changed = !um_streq(a.data ? a.data : "", b.data ? b.data : "");
    um_buf_free(&a);
    um_buf_free(&b);
    return changed;
}

/* Appends the names of rows that have changed, and are live or not. */
static void list_changed(const um_option *rows, size_t n, const void *before, const void *after, bool live,
                         um_buf *out) {
    for (size_t i = 0; i < n; i++)
        if (rows[i].is_live == live && is_changed(&rows[i], before, after))
            um_buf_printf(out, "%s%s", out->len ? ", " : "", rows[i].name);
}

static void list_engine_changes(const um_server *s, reload *r, um_buf *out) {
    um_option_set before[UM_OPTION_SETS_MAX], after[UM_OPTION_SETS_MAX];
    um_config old = *s->config.engine; /* an option set points to a struct that is not const */
    size_t n = um_config_option_sets(before, &old);
    um_config_option_sets(after, &r->engine);
    for (size_t i = 0; i < n; i++) list_changed(before[i].rows, before[i].n, before[i].base, after[i].base, false, out);
}

/* ---- Applying ---------------------------------------------------------------------------------------------------- */

static void ignore_result(void *arg, um_status st, const char *value, const um_err *err) {
    (void)arg, (void)st, (void)value, (void)err;
}

/* Worker processes have levels of their own. */
static void apply_log_level(um_server *s) {
    um_buf args = {0};
    um_buf_printf(&args, "{\"level\":\"%s\"}", words[s->config.log_level]);
    um_log_set_level((um_log_level)s->config.log_level);
    um_worker_pool_call(s->service.workers, -1, "set_log_level", (um_str){args.data, args.len},
                        (double)s->config.backend_timeout, ignore_result, NULL);
    um_buf_free(&args);
}

/* Copies the live fields. Their texts move to an arena of the server. */
static void copy_live(um_server *s, const um_server_config *from) {
    um_arena strings;
    um_arena_init(&strings, 0);
    for (const um_option *row = um_server_options; row < um_server_options + UM_SERVER_OPTIONS; row++) {
        char *to = (char *)&s->config + row->offset;
        const char *at = (const char *)from + row->offset;
        if (!row->is_live) continue;
        memcpy(to, at, row->size);
        if (row->type != UM_OPT_STR) continue;
        const char *text = *(const char *const *)(const void *)at;
        *(const char **)(void *)to = text ? um_arena_strndup(&strings, text, strlen(text)) : NULL;
    }
    um_arena_free(&s->live_strings);
    s->live_strings = strings;
}

static void apply(um_server *s, reload *r) {
    um_http_config http;
    copy_live(s, &r->config);
    um_name_list_free(&s->origins);
    um_name_list_parse(&s->origins, s->config.cors_allow_origin);
    um_hosts_free(&s->hosts);
    s->hosts = (um_hosts){0};
    um_hosts_init(&s->hosts, &s->config, &s->origins);
    um_http_nets_free(&s->proxies);
    s->proxies = r->proxies;
    r->proxies = (um_http_nets){0};
    um_server_http_config(s, &http);
    um_http_server_set_limits(s->service.http, &http);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static um_status read_options(um_server *s, reload *r, um_err *err) {
    um_status st = s->config.reread(s->config.reread_arg, &r->strings, &r->config, &r->engine, err);
    if (!st) st = um_cors_check(r->config.cors_allow_origin, err);
    if (!st) st = um_hosts_check(r->config.allowed_hosts, err);
    return st ? st : um_http_nets_parse(&r->proxies, r->config.trusted_proxies, err);
}

/* Applies the options that were read, and logs the changes, at the old level of the log or at the new one. */
static void apply_all(um_server *s, reload *r) {
    um_buf live = {0}, fixed = {0};
    int32_t level = s->config.log_level;
    list_changed(um_server_options, UM_SERVER_OPTIONS, &s->config, &r->config, true, &live);
    list_changed(um_server_options, UM_SERVER_OPTIONS, &s->config, &r->config, false, &fixed);
    list_engine_changes(s, r, &fixed);
    apply(s, r);
    um_log_set_level((um_log_level)UM_MAX(level, s->config.log_level));
    um_log(UM_LOG_INFO, "the options were read again; changed: %s", live.len ? live.data : "none");
    if (fixed.len) um_warn("these options have changed and need a restart: %s", fixed.data);
    if (level != s->config.log_level) apply_log_level(s);
    um_buf_free(&live);
    um_buf_free(&fixed);
}

/* Applies the options after the keys, because only reading can fail. */
static um_status reload_all(um_server *s, reload *r, um_err *err) {
    const char *keys = s->config.api_key_file;
    um_status st = s->config.reread ? read_options(s, r, err) : UM_OK;
    if (!st && keys) st = um_keys_reload(s->service.keys, err);
    if (!st && keys) um_log(UM_LOG_INFO, "the keys of %s were read again", keys);
    if (!st && s->config.reread) apply_all(s, r);
    return st;
}

void um_server_reload(um_server *s) {
    reload r = {0};
    um_err err = {0};
    um_arena_init(&r.strings, 0);
    if (reload_all(s, &r, &err))
        um_warn("%s; %s stay as they were", err.msg, s->config.reread ? "options and keys" : "the keys");
    um_http_nets_free(&r.proxies);
    um_arena_free(&r.strings);
}
