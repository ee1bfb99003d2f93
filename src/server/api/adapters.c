/* Endpoints that load and unload adapters while the server runs. An adapter is loaded by all workers or by none. A
 * worker that starts later loads it before it gets requests. */
#include <jansson.h>
#include <stdlib.h>

#include "server/api/common.h"

#define CHANGE_SECONDS 600.0
#define NAME_BYTES_MAX 64

/* A change that the workers make. It goes on if the client disconnects. */
typedef struct change {
    um_service *service;
    um_exchange *x; /* NULL: the client has disconnected */
    char *name, *path;
    bool loads;
} change;

static void change_free(change *c) {
    c->service->changes_adapters = false;
    um_free(c->name);
    free(c->path); /* allocated by realpath */
    um_free(c);
}

static void on_close(void *arg, um_exchange *x, bool complete) {
    change *c = arg;
    (void)x, (void)complete;
    c->x = NULL;
}

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

/* Fields of vLLM and SGLang that need nothing here. */
static bool is_ignored(const char *key) {
    static const char *const names[] = {"lora_int_id", "base_model_name", "pinned"};
    for (size_t i = 0; i < UM_LEN(names); i++)
        if (um_streq(key, names[i])) return true;
    return false;
}

static um_status read_fields(const json_t *root, const char **name, const char **path, um_err *err) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)root, key, v) {
        um_status st = UM_OK;
        if (um_streq(key, "lora_name")) st = um_json_take_text(v, "\"lora_name\"", name, err);
        else if (path && um_streq(key, "lora_path")) st = um_json_take_text(v, "\"lora_path\"", path, err);
        else if (um_streq(key, "load_inplace") && json_is_true(v))
            st = um_fail(err, UM_EUNSUPPORTED, "load_inplace: unload the adapter first");
        else if (!is_ignored(key) && !um_streq(key, "load_inplace"))
            st = um_fail(err, UM_EINVAL, "unknown field \"%.80s\"", key);
        if (st) return um_fail_about(err, st, key);
    }
    if (!*name) return um_fail_param(err, UM_EINVAL, "lora_name", "missing");
    return path && !*path ? um_fail_param(err, UM_EINVAL, "lora_path", "missing") : UM_OK;
}

/* Names appear in logs, metrics and paths of URLs. */
static um_status check_name(const um_setup *s, const char *name, um_err *err) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
    const char *adapter;
    size_t n = strlen(name);
    if (n == 0 || n > NAME_BYTES_MAX || strspn(name, allowed) != n || *name == '.')
        return um_fail_param(err, UM_EINVAL, "lora_name",
                             "expected 1 to %d letters, digits, \"-\", \"_\" or \".\", found \"%.80s\"", NAME_BYTES_MAX,
                             name);
    if (um_setup_has_model(s, name, &adapter))
        return um_fail_param(err, UM_EINVAL, "lora_name", "there is a model or an adapter \"%s\" already", name);
    return UM_OK;
}

static bool is_below(const char *path, const char *dir) {
    size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && (path[n] == '/' || (n == 1 && path[1]));
}

/* Resolves a path, a relative one from --lora-dir on. The message is the same for folders outside and for those that do
 * not exist, so that it tells nothing about the machine. */
static um_status resolve(const char *allowed, const char *path, char **out, um_err *err) {
    um_buf joined = {0};
    char *dir = realpath(allowed, NULL);
    um_buf_printf(&joined, "%s%s%s", *path == '/' ? "" : allowed, *path == '/' ? "" : "/", path);
    *out = dir ? realpath(joined.data, NULL) : NULL;
    bool ok = *out && is_below(*out, dir) && um_dir_exists(*out);
    um_buf_free(&joined);
    free(dir);
    return ok ? UM_OK
              : um_fail_param(err, UM_EINVAL, "lora_path", "expected a folder below --lora-dir, found \"%.200s\"",
                              path);
}

/* ---- Responses --------------------------------------------------------------------------------------------------- */

static void put_adapters(um_service *s, um_jw *w) {
    const um_adapter_list *l = s->setup.late;
    um_jw_begin_object(w);
    um_jw_put_bool(w, "success", true);
    um_jw_key(w, "loaded_adapters");
    um_jw_begin_object(w);
    for (size_t i = 0; i < um_adapter_list_size(l); i++) {
        const char *name, *path;
        um_adapter_list_get(l, i, &name, &path);
        um_jw_put_cstr(w, name, path);
    }
    um_jw_end_object(w);
    um_jw_end_object(w);
}

/* A worker that does not know the folder or takes no more adapters refuses the client's request. */
static int status_of(um_status st) {
    switch (st) {
    case UM_ECANCELED: return 504;
    case UM_EIO: return 503;
    case UM_ENOENT:
    case UM_EMODEL: return 400;
    default: return um_http_status_of(st);
    }
}

static void finish(change *c, um_status st, const um_err *err) {
    if (c->x) {
        um_exchange_on_close(c->x, NULL, NULL);
        if (st) um_reply_error(c->x, status_of(st), NULL, NULL, "%s", err->msg);
        else um_reply_with(c->service, c->x, put_adapters);
    }
    change_free(c);
}

/* ---- Changes ----------------------------------------------------------------------------------------------------- */

static void put_args(um_buf *out, const char *name, const char *path) {
    um_jw w;
    um_jw_init(&w, out);
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "name", name);
    if (path) um_jw_put_cstr(&w, "path", path);
    um_jw_end_object(&w);
}

static void call_workers(change *c, um_call_fn done) {
    um_buf args = {0};
    put_args(&args, c->name, c->loads ? c->path : NULL);
    const um_str text = {args.data, args.len};
    const char *utility = c->loads ? "load_lora_adapter" : "unload_lora_adapter";
    if (c->loads) um_worker_pool_remember(c->service->workers, c->name, utility, text);
    else um_worker_pool_forget(c->service->workers, c->name);
    um_worker_pool_call(c->service->workers, -1, utility, text, CHANGE_SECONDS, done, c);
    um_buf_free(&args);
}

/* Workers that did not have the adapter, or ended, have nothing to unload. */
static void on_unloaded(void *arg, um_status st, const char *value, const um_err *err) {
    (void)st, (void)value, (void)err;
    finish(arg, UM_OK, NULL);
}

/* Some worker has not loaded the adapter: the others unload it. */
typedef struct failure {
    change *change;
    um_status status;
    um_err err;
} failure;

static void on_taken_back(void *arg, um_status st, const char *value, const um_err *err) {
    failure *f = arg;
    (void)st, (void)value, (void)err;
    finish(f->change, f->status, &f->err);
    um_free(f);
}

static void take_back(change *c, um_status st, const um_err *err) {
    failure *f = UM_NEW(failure);
    um_buf args = {0};
    *f = (failure){c, st, *err};
    put_args(&args, c->name, NULL);
    um_worker_pool_forget(c->service->workers, c->name);
    um_worker_pool_call(c->service->workers, -1, "unload_lora_adapter", (um_str){args.data, args.len}, CHANGE_SECONDS,
                        on_taken_back, f);
    um_buf_free(&args);
}

static void on_loaded(void *arg, um_status st, const char *value, const um_err *err) {
    change *c = arg;
    (void)value;
    if (st) {
        take_back(c, st, err);
        return;
    }
    um_adapter_list_add(c->service->setup.late, c->name, c->path);
    um_log(UM_LOG_INFO, "adapter %s is loaded from %s", c->name, c->path);
    finish(c, UM_OK, NULL);
}

static change *change_new(um_service *s, um_exchange *x, const char *name, char *path) {
    change *c = UM_NEW(change);
    *c = (change){.service = s, .x = x, .name = um_strdup(name), .path = path, .loads = path != NULL};
    s->changes_adapters = true;
    um_exchange_on_close(x, on_close, c);
    return c;
}

/* Answers and returns false if the server does not change its adapters now. */
static bool can_change(um_service *s, um_exchange *x) {
    const char *dir = s->setup.config->lora_dir;
    if (!dir || !*dir)
        um_reply_error(x, 403, NULL, "not_allowed",
                       "this server loads no adapters while it runs; --lora-dir names a folder from which it may");
    else if (s->changes_adapters)
        um_reply_error(x, 409, NULL, "busy", "another adapter is being loaded or unloaded; try again later");
    else return true;
    return false;
}

/* ---- Endpoints --------------------------------------------------------------------------------------------------- */

static void post_load(um_service *s, um_exchange *x, const char *id) {
    const char *name = NULL, *path = NULL;
    char *resolved = NULL;
    um_err err = {0};
    json_t *root = can_change(s, x) ? um_read_object(x) : NULL;
    (void)id;
    if (!root) return;
    um_status st = read_fields(root, &name, &path, &err);
    if (!st) st = check_name(&s->setup, name, &err);
    if (!st) st = resolve(s->setup.config->lora_dir, path, &resolved, &err);
    if (!st) call_workers(change_new(s, x, name, resolved), on_loaded);
    else um_reply_err(x, &err);
    if (st) free(resolved);
    json_decref(root);
}

static void post_unload(um_service *s, um_exchange *x, const char *id) {
    const char *name = NULL, *adapter;
    um_err err = {0};
    json_t *root = can_change(s, x) ? um_read_object(x) : NULL;
    (void)id;
    if (!root) return;
    if (read_fields(root, &name, NULL, &err)) um_reply_err(x, &err);
    else if (um_adapter_list_remove(s->setup.late, name)) {
        um_log(UM_LOG_INFO, "adapter %s is unloaded", name);
        call_workers(change_new(s, x, name, NULL), on_unloaded);
    } else if (um_setup_has_model(&s->setup, name, &adapter))
        um_reply_error(x, 400, "lora_name", NULL, "\"%.100s\" was loaded at the start and stays", name);
    else um_reply_error(x, 404, "lora_name", "not_found", "there is no adapter \"%.100s\"", name);
    json_decref(root);
}

static const um_endpoint endpoints[] = {
    {"POST", "/v1/load_lora_adapter", post_load, UM_ENDPOINT_ADMIN | UM_ENDPOINT_WAITS, "vLLM",
     "load an adapter from a folder below --lora-dir"},
    {"POST", "/load_lora_adapter", post_load, UM_ENDPOINT_ADMIN | UM_ENDPOINT_WAITS, "SGLang", "the same"},
    {"POST", "/v1/unload_lora_adapter", post_unload, UM_ENDPOINT_ADMIN, "vLLM",
     "unload such an adapter; requests that use it run to their end"},
    {"POST", "/unload_lora_adapter", post_unload, UM_ENDPOINT_ADMIN, "SGLang", "the same"},
};
const um_endpoint_set um_adapters_endpoints = {endpoints, UM_LEN(endpoints)};
