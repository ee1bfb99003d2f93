/* The utilities: functions that the frontend calls by name. They run between two steps. */
#include <jansson.h>
#include <malloc.h>
#include <time.h>

#include "server/link/wire_table.h"
#include "server/worker/internal.h"

static const char where[] = "arguments";

/* Reads a text argument; leaves *out unchanged if it is missing. */
static um_status get_text(const json_t *args, const char *key, const char **out, um_err *err) {
    return um_fail_about(err, um_json_get_str(args, key, where, out, err), key);
}

static um_status run_echo(um_worker *w, uint64_t call_id, const json_t *args, um_buf *result, bool *later,
                          um_err *err) {
    (void)w, (void)call_id, (void)later, (void)err;
    um_json_put_exact(args, result);
    return UM_OK;
}

/* ---- Reports ----------------------------------------------------------------------------------------------------- */

static void put_counts(um_jw *j, const int64_t *count, uint32_t n) {
    um_jw_begin_array(j);
    for (uint32_t i = 0; i < n; i++) um_jw_int(j, count[i]);
    um_jw_end_array(j);
}

/* Writes the fields of a STATS message, by its wire table. */
static um_status run_stats(um_worker *w, uint64_t call_id, const json_t *args, um_buf *result, bool *later,
                           um_err *err) {
    (void)call_id, (void)args, (void)later, (void)err;
    um_msg_stats s;
    um_jw j;
    const um_wire_layout *l = um_wire_layout_find(UM_MSG_STATS);
    um_worker_get_stats(w, &s);
    um_jw_init(&j, result);
    um_jw_begin_object(&j);
    for (size_t i = 0; i < l->n_fields; i++) {
        const um_wire_field *f = &l->fields[i];
        const char *at = (const char *)&s + f->offset;
        if (f->kind == UM_WIRE_U32) continue; /* the lengths of arrays */
        um_jw_key(&j, f->name);
        if (f->kind == UM_WIRE_I64) um_jw_int(&j, *(const int64_t *)at);
        else if (f->kind == UM_WIRE_I32) um_jw_int(&j, *(const int32_t *)at);
        else if (f->kind == UM_WIRE_F64) um_jw_double(&j, *(const double *)at);
        else put_counts(&j, *(const int64_t *const *)at, *(const uint32_t *)((const char *)&s + f->count_offset));
    }
    um_jw_end_object(&j);
    return UM_OK;
}

static um_status run_memory_report(um_worker *w, uint64_t call_id, const json_t *args, um_buf *result, bool *later,
                                   um_err *err) {
    (void)call_id, (void)args, (void)later, (void)err;
    um_msg_stats s;
    um_engine_info e;
    um_jw j;
    um_worker_get_stats(w, &s);
    um_engine_get_info(um_router_engine(w->router, 0), &e);
    um_jw_init(&j, result);
    um_jw_begin_object(&j);
    um_jw_put_int(&j, "engines", um_router_size(w->router));
    um_jw_put_int(&j, "weight_bytes", s.weight_bytes);
    um_jw_put_int(&j, "kv_bytes", s.kv_bytes);
    um_jw_put_int(&j, "workspace_bytes", s.workspace_bytes);
    um_jw_put_int(&j, "resident_bytes", s.resident_bytes);
    um_jw_put_int(&j, "device_bytes", s.device_bytes);
    um_jw_put_int(&j, "device_free_bytes", s.device_free_bytes);
    um_jw_put_int(&j, "page_size", e.page_size);
    um_jw_put_int(&j, "pages_total", s.pages_total);
    um_jw_put_int(&j, "pages_used", s.pages_used);
    um_jw_put_int(&j, "pages_used_most", s.pages_used_most);
    um_jw_end_object(&j);
    return UM_OK;
}

static void put_slot(um_worker *w, um_jw *j, const um_slot *s) {
    um_jw_begin_object(j);
    um_jw_put_int(j, "rid", (int64_t)um_worker_rid(w, s->id));
    um_jw_put_int(j, "index", s->index);
    um_jw_put_bool(j, "running", s->running);
    um_jw_put_cstr(j, "strategy", s->strategy);
    um_jw_put_int(j, "prompt_tokens", s->prompt_tokens);
    um_jw_put_int(j, "cached_tokens", s->cached_tokens);
    um_jw_put_int(j, "answer_tokens", s->answer_tokens);
    um_jw_put_int(j, "max_tokens", s->max_tokens);
    um_jw_put_int(j, "blocks", s->blocks);
    um_jw_put_int(j, "masks", s->masks);
    um_jw_put_int(j, "nfe", s->nfe);
    um_jw_put_int(j, "preemptions", s->preemptions);
    um_jw_put_double(j, "seconds", s->seconds);
    um_jw_end_object(j);
}

static um_status run_slots(um_worker *w, uint64_t call_id, const json_t *args, um_buf *result, bool *later,
                           um_err *err) {
    (void)call_id, (void)args, (void)later, (void)err;
    um_jw j;
    size_t n = um_router_slots(w->router, NULL, 0);
    um_slot *slot = UM_NEW_ARRAY(um_slot, n + 1);
    n = UM_MIN(um_router_slots(w->router, slot, n), n);
    um_jw_init(&j, result);
    um_jw_begin_array(&j);
    for (size_t i = 0; i < n; i++) put_slot(w, &j, &slot[i]);
    um_jw_end_array(&j);
    um_free(slot);
    return UM_OK;
}

static um_status run_list_models(um_worker *w, uint64_t call_id, const json_t *args, um_buf *result, bool *later,
                                 um_err *err) {
    (void)call_id, (void)args, (void)later, (void)err;
    um_model_info m;
    um_jw j;
    um_model_get_info(w->model, &m);
    um_jw_init(&j, result);
    um_jw_begin_array(&j);
    um_jw_begin_object(&j);
    um_jw_put_cstr(&j, "path", m.path);
    um_jw_put_cstr(&j, "family", m.family);
    um_jw_put_cstr(&j, "parent", NULL);
    um_jw_put_int(&j, "n_params", m.n_params);
    um_jw_end_object(&j);
    for (int32_t i = 0; i < m.n_adapters; i++) {
        um_jw_begin_object(&j);
        um_jw_put_cstr(&j, "path", m.adapter[i].path);
        um_jw_put_cstr(&j, "name", m.adapter[i].name);
        um_jw_put_cstr(&j, "parent", m.path);
        um_jw_put_int(&j, "n_params", m.adapter[i].n_params);
        um_jw_end_object(&j);
    }
    um_jw_end_array(&j);
    return UM_OK;
}

/* ---- Actions ----------------------------------------------------------------------------------------------------- */

static um_status run_flush_cache(um_worker *w, uint64_t call_id, const json_t *args, um_buf *result, bool *later,
                                 um_err *err) {
    (void)call_id, (void)args, (void)later;
    um_status st = um_router_flush_cache(w->router, err);
    if (!st) um_buf_puts(result, "{\"ok\":true}");
    return st;
}

static const um_adapter_info *find_adapter(const um_model_info *m, const char *name) {
    for (int32_t i = 0; i < m->n_adapters; i++)
        if (um_streq(m->adapter[i].name, name)) return &m->adapter[i];
    return NULL;
}

static um_status need_text(const json_t *args, const char *key, const char **out, um_err *err) {
    um_status st = get_text(args, key, out, err);
    return st || *out ? st : um_fail_param(err, UM_EINVAL, key, "missing");
}

/* An adapter that is loaded already is no error: the server calls again when it does not know whether it is. */
static um_status run_load_adapter(um_worker *w, uint64_t call_id, const json_t *args, um_buf *result, bool *later,
                                  um_err *err) {
    (void)call_id, (void)later;
    const char *name = NULL, *path = NULL;
    um_model_info m;
    um_status st = need_text(args, "name", &name, err);
    if (!st) st = need_text(args, "path", &path, err);
    if (st) return st;
    um_model_get_info(w->model, &m);
    const um_adapter_info *loaded = find_adapter(&m, name);
    if (!loaded || !um_streq(loaded->path, path)) st = um_model_load_adapter(w->model, name, path, err);
    if (st) um_warn("adapter %s was not loaded: %s", name, err ? err->msg : "");
    else um_buf_puts(result, "{\"ok\":true}");
    return st;
}

/* A server knows only its own --lora, not that of a worker on another host. */
static um_status check_is_later(const um_worker *w, const char *name, um_err *err) {
    um_model_info m;
    um_model_get_info(w->model, &m);
    const um_adapter_info *a = find_adapter(&m, name);
    if (!a || a - m.adapter >= w->n_first_adapters) return UM_OK;
    return um_fail_param(err, UM_EINVAL, "name", "adapter %.100s was loaded at the start and stays", name);
}

static um_status run_unload_adapter(um_worker *w, uint64_t call_id, const json_t *args, um_buf *result, bool *later,
                                    um_err *err) {
    (void)call_id, (void)later;
    const char *name = NULL;
    um_status st = need_text(args, "name", &name, err);
    if (!st) st = check_is_later(w, name, err);
    if (!st) st = um_model_unload_adapter(w->model, name, err);
    if (!st) um_buf_puts(result, "{\"ok\":true}");
    return st;
}

/* Frees the weights and the KV pages. The counts go on after waking. */
static um_status run_sleep(um_worker *w, uint64_t call_id, const json_t *args, um_buf *result, bool *later,
                           um_err *err) {
    (void)call_id, (void)args, (void)later;
    if (w->router && um_router_pending(w->router)) return um_fail(err, UM_EINVAL, "requests run");
    if (w->config->engine->nnodes != 1)
        return um_fail(err, UM_EUNSUPPORTED, "the ranks of other processes (--nnodes) can't sleep");
    um_msg_stats now;
    um_worker_get_stats(w, &now);
    w->offset = now;
    um_router_free(w->router);
    um_model_close(w->model);
    w->router = NULL;
    w->model = NULL;
    w->wakes = false;
    um_free(w->counts.seen);
    w->counts.seen = NULL;
    malloc_trim(0);
    um_log(UM_LOG_INFO, "asleep: the weights and the KV pages are released");
    um_buf_puts(result, "{\"ok\":true}");
    return UM_OK;
}

/* The worker's loop opens the model, because a failure there ends the worker. */
static um_status run_wake_up(um_worker *w, uint64_t call_id, const json_t *args, um_buf *result, bool *later,
                             um_err *err) {
    (void)call_id, (void)args, (void)later, (void)err;
    w->wakes = true;
    um_buf_puts(result, "{\"ok\":true}");
    return UM_OK;
}

static um_status run_set_log_level(um_worker *w, uint64_t call_id, const json_t *args, um_buf *result, bool *later,
                                   um_err *err) {
    (void)w, (void)call_id, (void)later;
    static const char levels[] = "error|warn|info|debug";
    const char *name = "";
    um_str word;
    um_status st = get_text(args, "level", &name, err);
    int level = st ? 0 : um_word_index(levels, '|', name, &word);
    if (st) return st;
    if (level < 0)
        return um_fail_param(err, UM_EINVAL, "level", "expected one of error, warn, info, debug, found \"%s\"", name);
    um_log_set_level((um_log_level)level);
    um_buf_puts(result, "{\"ok\":true}");
    return UM_OK;
}

/* Appends a file name such as "prefix-20260131-235959.worker0.json", relative to the worker's current directory. */
static um_status name_profile(const um_worker *w, const char *prefix, um_buf *out, um_err *err) {
    char stamp[32];
    time_t now = time(NULL);
    struct tm utc;
    if (strchr(prefix, '/'))
        return um_fail_param(err, UM_EINVAL, "prefix",
                             "expected the start of a file name, without a slash; found \"%s\"", prefix);
    gmtime_r(&now, &utc);
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &utc);
    um_buf_printf(out, "%s-%s.worker%u.json", *prefix ? prefix : "unmask", stamp, w->config->index);
    return UM_OK;
}

/* Names the profile of one engine: `path` for engine 0, "path.1" for engine 1, and so on. */
static void name_engine_profile(um_buf *out, const um_buf *path, int32_t engine) {
    um_buf_clear(out);
    um_buf_puts(out, path->data);
    if (engine) um_buf_printf(out, ".%d", engine);
}

static um_status start_profiles(um_worker *w, const um_buf *path, um_err *err) {
    um_status st = UM_OK;
    um_buf own = {0};
    for (int32_t i = 0; i < um_router_size(w->router) && !st; i++) {
        name_engine_profile(&own, path, i);
        st = um_engine_profile_start(um_router_engine(w->router, i), own.data, err);
    }
    um_buf_free(&own);
    return st;
}

static um_status run_start_profile(um_worker *w, uint64_t call_id, const json_t *args, um_buf *result, bool *later,
                                   um_err *err) {
    (void)call_id, (void)later;
    const char *path = NULL, *prefix = "";
    um_buf name = {0};
    um_jw j;
    um_status st = get_text(args, "path", &path, err);
    if (!st) st = get_text(args, "prefix", &prefix, err);
    if (!st && path) um_buf_puts(&name, path);
    else if (!st) st = name_profile(w, prefix, &name, err);
    if (!st) st = start_profiles(w, &name, err);
    if (!st) {
        um_jw_init(&j, result);
        um_jw_begin_object(&j);
        um_jw_put_cstr(&j, "path", name.data);
        um_jw_end_object(&j);
    }
    um_buf_free(&name);
    return st;
}

static um_status run_stop_profile(um_worker *w, uint64_t call_id, const json_t *args, um_buf *result, bool *later,
                                  um_err *err) {
    (void)call_id, (void)args, (void)later;
    um_status st = UM_OK; /* the first failure; all other profiles are still written */
    for (int32_t i = 0; i < um_router_size(w->router); i++) {
        const um_status own = um_engine_profile_stop(um_router_engine(w->router, i), st ? NULL : err);
        if (!st) st = own;
    }
    if (!st) um_buf_puts(result, "{\"ok\":true}");
    return st;
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

static const um_utility
    echo = {"echo", "anything", "returns its arguments", NULL, run_echo},
    stats = {"stats", "none", "the counters of the engines", "", run_stats},
    memory_report = {"memory_report", "none", "bytes of weights, KV cache, workspace and process", "",
                     run_memory_report},
    slots = {"slots", "none", "the answers that run or wait", "", run_slots},
    list_models = {"list_models", "none", "the model and its adapters", "", run_list_models},
    flush_cache = {"flush_cache", "none", "empties the prefix cache; fails while requests run", "", run_flush_cache},
    load_adapter = {"load_lora_adapter", "{name, path}", "loads an adapter into an empty place", "name|path",
                    run_load_adapter},
    unload_adapter = {"unload_lora_adapter", "{name}", "unloads an adapter; requests that use it run to their end",
                      "name", run_unload_adapter},
    sleep_ = {"sleep", "none", "releases weights and KV pages; fails while requests run", "", run_sleep},
    wake_up = {"wake_up", "none", "opens the model again; the worker then says that it is ready", "", run_wake_up},
    set_log_level = {"set_log_level", "{level: error|warn|info|debug}", "sets the log level", "level",
                     run_set_log_level},
    start_profile = {"start_profile", "{path} or {prefix}", "starts writing every step to a file", "path|prefix",
                     run_start_profile},
    stop_profile = {"stop_profile", "none", "stops the profile and writes a table of totals beside it", "",
                    run_stop_profile};

const um_utility *const um_utilities[] = {&echo,
                                          &stats,
                                          &memory_report,
                                          &slots,
                                          &list_models,
                                          &flush_cache,
                                          &load_adapter,
                                          &unload_adapter,
                                          &sleep_,
                                          &wake_up,
                                          &set_log_level,
                                          &start_profile,
                                          &stop_profile,
                                          &um_utility_generate,
                                          &um_utility_score,
                                          &um_utility_abort_scores,
                                          NULL};

static const um_utility *find(um_str name, um_err *err) {
    um_buf known = {0};
    for (const um_utility *const *u = um_utilities; *u; u++) {
        if (um_str_eq(um_str_of((*u)->name), name)) return um_buf_free(&known), *u;
        um_buf_printf(&known, "%s%s", known.len ? ", " : "", (*u)->name);
    }
    (void)um_fail(err, UM_ENOENT, "unknown utility \"%.*s\"; expected one of %s", (int)UM_MIN(name.n, (size_t)64),
                  name.p, known.data);
    um_buf_free(&known);
    return NULL;
}

/* Rejects unknown arguments, so that a misspelled one is not ignored silently. */
static um_status check_members(const um_utility *u, const json_t *args, um_err *err) {
    const char *name;
    json_t *value;
    um_str word;
    if (!u->members) return UM_OK;
    if (!json_is_object(args)) return um_fail(err, UM_EINVAL, "expected an object of arguments: %s", u->args);
    json_object_foreach((json_t *)(uintptr_t)args, name, value) {
        if (um_word_index(u->members, '|', name, &word) >= 0) continue;
        return um_fail_param(err, UM_EINVAL, name, "unknown; the arguments are %s", u->args);
    }
    return UM_OK;
}

/* Returns whether the utility needs no engine. */
static bool works_asleep(const um_utility *u) {
    return u == &echo || u == &stats || u == &sleep_ || u == &wake_up || u == &set_log_level;
}

static um_status run_call(um_worker *w, const um_msg_call *c, um_buf *result, bool *later, um_err *err) {
    json_t *args = NULL;
    const um_utility *u = find(c->name, err);
    if (!u) return err->code;
    if (!w->router && !works_asleep(u)) return um_fail(err, UM_EIO, "the worker sleeps");
    um_str text = c->args.n ? c->args : UM_STR("{}");
    um_status st = um_json_parse_exact(&args, text.p, text.n, where, err);
    if (!st) st = check_members(u, args, err);
    if (!st) st = u->run(w, c->call_id, args, result, later, err);
    json_decref(args);
    return st;
}

void um_worker_call(um_worker *w, const um_msg_call *c) {
    um_err err = {0};
    um_buf result = {0};
    bool later = false;
    um_status st = run_call(w, c, &result, &later, &err);
    if (st || !later) um_worker_return(w, c->call_id, (um_str){result.data, result.len}, st ? &err : NULL);
    um_buf_free(&result);
}
