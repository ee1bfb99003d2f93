/* Batches: their state, their records, and the list of them. */
#include <jansson.h>
#include <time.h>
#include <unistd.h>

#include "server/batch/store.h"
#include "server/respond/reply.h"

#define WINDOW_MAX_SECONDS ((int64_t)30 * 24 * 3600)

/* ---- State ------------------------------------------------------------------------------------------------------- */

static const char *const status_name[] = {
#define UM_X(symbol, name, time) name,
    UM_BATCH_STATUS_MAP(UM_X)
#undef UM_X
};
static const char *const status_time[] = {
#define UM_X(symbol, name, time) time,
    UM_BATCH_STATUS_MAP(UM_X)
#undef UM_X
};

static um_batch_status status_of(const char *name) {
    int s = 0;
    while (s < UM_BATCH_N_STATUS && !um_streq(status_name[s], name)) s++;
    return (um_batch_status)s;
}

const um_api *um_batch_api(const um_batch_store *store, const char *path) {
    for (const um_api *const *a = store->apis; *a; a++)
        if (um_streq((*a)->path, path)) return *a;
    return NULL;
}

int64_t um_batch_window(const char *text) {
    static const struct {
        char unit;
        int64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    char digits[8];
    size_t n = strlen(text);
    int64_t v;
    if (n < 2 || n > sizeof digits) return 0;
    memcpy(digits, text, n - 1);
    digits[n - 1] = '\0';
    if (!um_parse_int(digits, &v) || v <= 0) return 0;
    for (size_t i = 0; i < UM_LEN(units); i++)
        if (units[i].unit == text[n - 1]) return v * units[i].seconds <= WINDOW_MAX_SECONDS ? v * units[i].seconds : 0;
    return 0;
}

um_batch_job *um_batch_job_new(um_batch_store *store) {
    um_batch_job *b = UM_NEW(um_batch_job);
    b->store = store;
    um_make_ordered_id("batch_", b->id);
    um_make_ordered_id("file-", b->output_id);
    um_make_ordered_id("file-", b->error_id);
    b->final_status = UM_BATCH_COMPLETED;
    um_batch_job_set_status(b, UM_BATCH_VALIDATING);
    return b;
}

void um_batch_job_free(um_batch_job *b) {
    if (!b) return;
    um_batch_run_free(b->run);
    um_free(b->metadata);
    um_free(b);
}

void um_batch_job_set_status(um_batch_job *b, um_batch_status s) {
    b->status = s;
    b->at[s] = (int64_t)time(NULL);
}

void um_batch_job_add_error(um_batch_job *b, int64_t line, const char *code, const char *param, const char *fmt, ...) {
    if (b->n_errors == UM_BATCH_ERRORS_MAX) return;
    um_batch_error *e = &b->error[b->n_errors++];
    va_list ap;
    snprintf(e->code, sizeof e->code, "%s", code);
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    va_start(ap, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    e->line = line;
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

static void put_time(um_jw *w, const char *key, int64_t value) {
    um_jw_key(w, key);
    if (value) um_jw_int(w, value);
    else um_jw_null(w);
}

static void put_error(um_jw *w, const char *code, const char *message, const char *param, int64_t line) {
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "code", code);
    um_jw_put_cstr(w, "message", message);
    um_jw_put_cstr(w, "param", param && *param ? param : NULL);
    put_time(w, "line", line);
    um_jw_end_object(w);
}

static void put_errors(const um_batch_job *b, um_jw *w) {
    um_jw_key(w, "errors");
    if (!b->n_errors && !b->storage_failed) {
        um_jw_null(w);
        return;
    }
    um_jw_begin_object(w);
    um_jw_put_cstr(w, "object", "list");
    um_jw_key(w, "data");
    um_jw_begin_array(w);
    for (int32_t i = 0; i < b->n_errors; i++)
        put_error(w, b->error[i].code, b->error[i].message, b->error[i].param, b->error[i].line);
    if (b->storage_failed)
        put_error(
            w, "storage_error",
            "the server can't write its files; its log has the reason; the batch continues when writing works again",
            NULL, 0);
    um_jw_end_array(w);
    um_jw_end_object(w);
}

static const char *existing_file_id(const um_batch_job *b, const char *id) {
    return um_file_find(b->store, id) ? id : NULL;
}

static void put_counts(const um_batch_job *b, um_jw *w) {
    um_jw_key(w, "request_counts");
    um_jw_begin_object(w);
    um_jw_put_int(w, "total", b->total);
    um_jw_put_int(w, "completed", b->completed);
    um_jw_put_int(w, "failed", b->failed);
    um_jw_end_object(w);
}

static void put_members(const um_batch_job *b, um_jw *w) {
    um_jw_put_cstr(w, "id", b->id);
    um_jw_put_cstr(w, "object", "batch");
    um_jw_put_cstr(w, "endpoint", b->api->path);
    put_errors(b, w);
    um_jw_put_cstr(w, "input_file_id", b->input_id);
    um_jw_put_cstr(w, "completion_window", b->window);
    um_jw_put_cstr(w, "status", status_name[b->status]);
    um_jw_put_cstr(w, "output_file_id", um_batch_is_over(b->status) ? existing_file_id(b, b->output_id) : NULL);
    um_jw_put_cstr(w, "error_file_id", um_batch_is_over(b->status) ? existing_file_id(b, b->error_id) : NULL);
    for (int s = 0; s < UM_BATCH_N_STATUS; s++) put_time(w, status_time[s], b->at[s]);
    put_time(w, "expires_at", b->expires);
    put_counts(b, w);
    um_jw_key(w, "metadata");
    if (b->metadata) um_jw_raw(w, b->metadata, strlen(b->metadata));
    else um_jw_null(w);
}

void um_batch_job_put(const um_batch_job *b, um_jw *w) {
    um_jw_begin_object(w);
    put_members(b, w);
    um_jw_end_object(w);
}

/* Writes the record: the members of the API's object, and what a restart needs to finish the batch. */
static void put_record(const um_batch_job *b, um_jw *w) {
    um_jw_begin_object(w);
    put_members(b, w);
    um_jw_put_cstr(w, "ends_as", status_name[b->final_status]);
    um_jw_put_cstr(w, "answers", b->output_id);
    um_jw_put_cstr(w, "failures", b->error_id);
    um_jw_put_cstr(w, "owner", b->owner);
    um_jw_put_int(w, "output_ttl", b->output_ttl);
    um_jw_end_object(w);
}

char *um_batch_job_path(const um_batch_store *store, const char *id, const char *ending) {
    um_buf path = {0};
    um_buf_printf(&path, "%s/batches/%s%s", store->dir, id, ending);
    return um_buf_take(&path);
}

/* ---- Saving ------------------------------------------------------------------------------------------------------ */

typedef struct save {
    um_batch_job *batch;
    char *path;
    um_buf json;
    um_disk_done_fn done;
    void *arg;
} save;

static um_status save_work(void *arg, um_err *err) {
    const save *s = arg;
    return um_file_replace_private(s->path, (um_str){s->json.data, s->json.len}, err);
}

static void save_done(void *arg, um_status st, const um_err *err) {
    save *s = arg;
    s->batch->saving--;
    if (!s->done) s->batch->unsaved = st != UM_OK;
    if (!s->done && st) {
        um_warn("%s; retrying", err->msg);
        um_batch_store_schedule(s->batch->store, 1);
    }
    if (s->done) s->done(s->arg, st, err);
    um_free(s->path);
    um_buf_free(&s->json);
    um_free(s);
}

void um_batch_job_save(um_batch_job *b, um_disk_done_fn done, void *arg) {
    um_jw w;
    save *s = UM_NEW(save);
    *s = (save){.batch = b, .path = um_batch_job_path(b->store, b->id, ".json"), .done = done, .arg = arg};
    um_jw_init(&w, &s->json);
    put_record(b, &w);
    b->unsaved = false;
    b->saving++;
    um_work_queue_submit(b->store->disk, &(um_work){save_work, save_done, s, 0});
}

/* ---- The list ---------------------------------------------------------------------------------------------------- */

um_batch_job *um_batch_job_find(const um_batch_store *store, const char *id) {
    for (size_t i = 0; i < store->n_batches; i++)
        if (um_streq(store->batch[i]->id, id)) return store->batch[i];
    return NULL;
}

bool um_batch_store_evict_finished(um_batch_store *store) {
    if (store->n_batches < UM_BATCHES_MAX) return true;
    for (size_t i = 0; i < store->n_batches; i++) {
        um_batch_job *b = store->batch[i];
        if (!um_batch_is_over(b->status) || b->unsaved || b->saving) continue;
        char *path = um_batch_job_path(store, b->id, ".json");
        unlink(path);
        um_free(path);
        memmove(&store->batch[i], &store->batch[i + 1], (--store->n_batches - i) * sizeof(um_batch_job *));
        um_batch_job_free(b);
        return true;
    }
    return false;
}

static bool is_older(const um_batch_job *a, const um_batch_job *b) {
    int64_t x = a->at[UM_BATCH_VALIDATING], y = b->at[UM_BATCH_VALIDATING];
    return x != y ? x < y : strcmp(a->id, b->id) < 0;
}

void um_batch_store_add_batch(um_batch_store *store, um_batch_job *b) {
    if (store->n_batches == store->batches_cap) {
        store->batches_cap = UM_MAX(2 * store->batches_cap, 64);
        store->batch = um_realloc(store->batch, um_mul(store->batches_cap, sizeof(um_batch_job *)));
    }
    size_t at = store->n_batches++;
    for (; at > 0 && is_older(b, store->batch[at - 1]); at--) store->batch[at] = store->batch[at - 1];
    store->batch[at] = b;
}

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

static um_status read_text(const json_t *root, const char *key, const char *path, char *out, size_t size, um_err *err) {
    const char *text = NULL;
    um_status st = um_json_get_str(root, key, path, &text, err);
    if (st) return st;
    if (!text || strlen(text) >= size)
        return um_fail(err, UM_EPARSE, "%s: \"%s\": expected a string of 1 to %zu bytes", path, key, size - 1);
    snprintf(out, size, "%s", text);
    return UM_OK;
}

static um_status read_status(const json_t *root, const char *key, const char *path, um_batch_status *out, um_err *err) {
    char name[32];
    um_status st = read_text(root, key, path, name, sizeof name, err);
    if (st) return st;
    *out = status_of(name);
    if (*out != UM_BATCH_N_STATUS) return UM_OK;
    return um_fail(err, UM_EPARSE, "%s: \"%s\": unknown status %s", path, key, name);
}

static um_status read_times(const json_t *root, const char *path, um_batch_job *b, um_err *err) {
    um_status st = um_json_get_int(root, "expires_at", path, 0, INT64_MAX, &b->expires, err);
    if (!st) st = um_json_get_int(root, "output_ttl", path, 0, UM_FILE_TTL_MAX, &b->output_ttl, err);
    for (int s = 0; s < UM_BATCH_N_STATUS && !st; s++) {
        b->at[s] = 0;
        st = um_json_get_int(root, status_time[s], path, 0, INT64_MAX, &b->at[s], err);
    }
    return st;
}

static um_status read_counts(const json_t *root, const char *path, um_batch_job *b, um_err *err) {
    const json_t *counts = json_object_get(root, "request_counts");
    if (!json_is_object(counts)) return um_fail(err, UM_EPARSE, "%s: \"request_counts\" is missing", path);
    um_status st = um_json_get_int(counts, "total", path, 0, INT64_MAX, &b->total, err);
    if (!st) st = um_json_get_int(counts, "completed", path, 0, INT64_MAX, &b->completed, err);
    return st ? st : um_json_get_int(counts, "failed", path, 0, INT64_MAX, &b->failed, err);
}

/* Reads the errors except storage_error: if the disk still fails, the next write adds it again. */
static um_status read_errors(const json_t *root, const char *path, um_batch_job *b, um_err *err) {
    const json_t *list = json_object_get(json_object_get(root, "errors"), "data"), *e;
    size_t i;
    json_array_foreach(list, i, e) {
        const char *code = "", *message = "", *param = NULL;
        int64_t line = 0;
        um_status st = um_json_get_str(e, "code", path, &code, err);
        if (!st) st = um_json_get_str(e, "message", path, &message, err);
        if (!st) st = um_json_get_str(e, "param", path, &param, err);
        if (!st) st = um_json_get_int(e, "line", path, 0, INT64_MAX, &line, err);
        if (st) return st;
        if (!um_streq(code, "storage_error")) um_batch_job_add_error(b, line, code, param, "%s", message);
    }
    return UM_OK;
}

/* Records of earlier versions have no owner. */
static um_status read_owner(const json_t *root, const char *path, um_batch_job *b, um_err *err) {
    const char *owner = "";
    um_status st = um_json_get_str(root, "owner", path, &owner, err);
    if (!st && strlen(owner) >= sizeof b->owner)
        st = um_fail(err, UM_EPARSE, "%s: \"owner\": expected at most %zu bytes", path, sizeof b->owner - 1);
    if (!st) snprintf(b->owner, sizeof b->owner, "%s", owner);
    return st;
}

static um_status read_members(const json_t *root, const char *path, um_batch_job *b, um_err *err) {
    char endpoint[64];
    um_status st = read_text(root, "id", path, b->id, sizeof b->id, err);
    if (!st) st = read_text(root, "input_file_id", path, b->input_id, sizeof b->input_id, err);
    if (!st) st = read_text(root, "answers", path, b->output_id, sizeof b->output_id, err);
    if (!st) st = read_text(root, "failures", path, b->error_id, sizeof b->error_id, err);
    if (!st) st = read_text(root, "completion_window", path, b->window, sizeof b->window, err);
    if (!st) st = read_text(root, "endpoint", path, endpoint, sizeof endpoint, err);
    if (!st) st = read_status(root, "status", path, &b->status, err);
    if (!st) st = read_status(root, "ends_as", path, &b->final_status, err);
    if (!st) st = read_times(root, path, b, err);
    if (!st) st = read_counts(root, path, b, err);
    if (!st) st = read_errors(root, path, b, err);
    if (!st) st = read_owner(root, path, b, err);
    if (st) return st;
    const json_t *metadata = json_object_get(root, "metadata");
    if (json_is_object(metadata)) {
        char *text = json_dumps(metadata, JSON_COMPACT);
        b->metadata = um_strdup(text);
        free(text);
    }
    b->api = um_batch_api(b->store, endpoint);
    return b->api ? UM_OK : um_fail(err, UM_EPARSE, "%s: unknown endpoint %s", path, endpoint);
}

static um_status load_one(um_batch_store *store, const char *entry, um_batch_job *b, um_err *err) {
    json_t *root = NULL;
    char *path = um_batch_job_path(store, "", entry);
    um_status st = um_json_load(&root, path, err);
    if (!st) st = read_members(root, path, b, err);
    if (!st) st = um_entry_check(entry, path, b->id, err);
    json_decref(root);
    um_free(path);
    return st;
}

static void load_record(um_batch_store *store, const char *entry) {
    um_err err = {0};
    if (!um_entry_is_record(entry)) return;
    um_batch_job *b = UM_NEW(um_batch_job);
    b->store = store;
    if (load_one(store, entry, b, &err) == UM_OK) {
        um_batch_store_add_batch(store, b);
        return;
    }
    um_warn("%s; skipping the batch", err.msg);
    um_batch_job_free(b);
}

um_status um_batch_store_load(um_batch_store *store, um_err *err) {
    return um_folder_walk(store, "batches", load_record, err);
}
