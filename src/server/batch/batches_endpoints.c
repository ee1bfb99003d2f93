/* /v1/batches: creates, lists and cancels batches. */
#include <jansson.h>
#include <stdlib.h>

#include "server/batch/request.h"
#include "server/generate/intake.h"
#include "server/respond/access.h"
#include "server/respond/reply.h"

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

static um_status take_text(const json_t *root, const char *key, const char **out, um_err *err) {
    const json_t *v = json_object_get(root, key);
    *out = json_string_value(v);
    if (*out && strlen(*out) == json_string_length(v)) return UM_OK;
    return um_fail_param(err, UM_EINVAL, key, "%s", v ? "expected a string" : "missing field");
}

static um_status check_names(const json_t *root, um_err *err) {
    static const char *const known[] = {"input_file_id",        "endpoint", "completion_window",
                                        "output_expires_after", "metadata", NULL};
    const char *key = um_unknown_member(root, known);
    if (!key) return UM_OK;
    return um_fail_param(
        err, UM_EINVAL, key,
        "unknown field; a batch has input_file_id, endpoint, completion_window, output_expires_after and "
        "metadata");
}

static um_status take_metadata(um_batch_job *b, const json_t *v, um_err *err) {
    const char *key;
    json_t *value;
    if (!v || json_is_null(v)) return UM_OK;
    bool fits = json_is_object(v) && json_object_size(v) <= UM_METADATA_MAX;
    json_object_foreach((json_t *)v, key, value) fits =
        fits && json_is_string(value) && strlen(key) <= 64 && json_string_length(value) <= 512;
    if (!fits)
        return um_fail_param(
            err, UM_EINVAL, "metadata",
            "expected an object of at most %d strings, with keys of up to 64 bytes and values of up to 512",
            UM_METADATA_MAX);
    char *text = json_dumps(v, JSON_COMPACT);
    b->metadata = um_strdup(text);
    free(text);
    return UM_OK;
}

static um_status take_input(um_batch_job *b, const json_t *root, const um_key *key, um_err *err) {
    const char *id;
    um_status st = take_text(root, "input_file_id", &id, err);
    if (st) return st;
    const um_file *f = um_file_find(b->store, id);
    if (f && !um_key_may_see(key, f->owner)) f = NULL;
    if (!f) return um_fail_param(err, UM_EINVAL, "input_file_id", "unknown file %.80s; upload it first", id);
    if (!um_streq(f->purpose, "batch"))
        return um_fail_param(err, UM_EINVAL, "input_file_id", "expected a file with the purpose batch, found %s",
                             f->purpose);
    snprintf(b->input_id, sizeof b->input_id, "%s", f->id);
    return UM_OK;
}

static um_status take_endpoint(um_batch_job *b, const json_t *root, um_err *err) {
    const char *path;
    um_status st = take_text(root, "endpoint", &path, err);
    if (st) return st;
    b->api = um_batch_api(b->store, path);
    if (b->api) return UM_OK;
    return um_fail_param(err, UM_EINVAL, "endpoint", "expected /v1/chat/completions or /v1/completions, found %.80s",
                         path);
}

static um_status take_window(um_batch_job *b, const json_t *root, um_err *err) {
    const char *text;
    um_status st = take_text(root, "completion_window", &text, err);
    if (st) return st;
    int64_t seconds = um_batch_window(text);
    if (!seconds)
        return um_fail_param(err, UM_EINVAL, "completion_window",
                             "expected a time like 24h, at most 30d, found \"%.40s\"", text);
    snprintf(b->window, sizeof b->window, "%s", text);
    b->expires = b->at[UM_BATCH_VALIDATING] + seconds;
    return UM_OK;
}

static um_status take_output_ttl(um_batch_job *b, const json_t *v, um_err *err) {
    static const char param[] = "output_expires_after";
    if (!v || json_is_null(v)) return UM_OK;
    if (json_object_size(v) != 2) return um_expires_after_check(param, NULL, 0, err);
    b->output_ttl = json_integer_value(json_object_get(v, "seconds"));
    return um_expires_after_check(param, json_string_value(json_object_get(v, "anchor")), b->output_ttl, err);
}

static um_status read_batch(um_batch_job *b, const json_t *root, const um_key *key, um_err *err) {
    um_status st = check_names(root, err);
    if (!st) st = take_input(b, root, key, err);
    if (!st) st = take_endpoint(b, root, err);
    if (!st) st = take_window(b, root, err);
    if (!st) st = take_output_ttl(b, json_object_get(root, "output_expires_after"), err);
    if (!st) st = take_metadata(b, json_object_get(root, "metadata"), err);
    return st;
}

/* A new batch whose record is being written. */
typedef struct creation {
    um_batch_job *batch;
    um_pending_response *response;
} creation;

/* The batch exists once its record is written. Its run has kept the input file since create_batch. */
static void create_done(void *arg, um_status s, const um_err *err) {
    creation *n = arg;
    um_batch_store *store = n->batch->store;
    if (s) {
        um_batch_job_free(n->batch);
    } else {
        um_batch_store_add_batch(store, n->batch);
        um_batch_store_schedule(store, 0);
    }
    um_pending_response_send(n->response, s, err);
    um_free(n);
}

/* Writes the record of a new batch and responds when it is on the disk. */
static void create_batch(um_batch_job *b, um_exchange *x) {
    um_jw w;
    creation *n = UM_NEW(creation);
    *n = (creation){b, um_pending_response_new(x)};
    um_batch_run_new(b);
    um_jw_init(&w, &n->response->json);
    um_batch_job_put(b, &w);
    um_batch_job_save(b, create_done, n);
}

static void post_batch(um_service *s, um_exchange *x, const char *id) {
    um_batch_store *store = um_batch_store_of(s, x);
    (void)id;
    json_t *root = store ? um_read_object(x) : NULL;
    if (!root) return;
    um_err err = {0};
    um_batch_job *b = um_batch_job_new(store);
    const um_key *key = um_access_record_key(x);
    snprintf(b->owner, sizeof b->owner, "%s", um_key_owner(key));
    um_status st = read_batch(b, root, key, &err);
    json_decref(root);
    /* Its answers will be two files, which are not refused then. */
    const int full = st ? 0 : um_files_check_room(store, x, 2, 1, &err);
    if (full) {
        um_reply_error(x, full, NULL, full == 413 ? "file_quota_exceeded" : "storage_full", "%s", err.msg);
        um_batch_job_free(b);
        return;
    }
    if (!st && um_batch_store_evict_finished(store)) {
        create_batch(b, x);
        return;
    }
    if (st) um_reply_err(x, &err);
    else
        um_reply_error(x, 429, NULL, NULL, "there are %d unfinished batches; wait until one has finished",
                       UM_BATCHES_MAX);
    um_batch_job_free(b);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static um_batch_job *find(um_service *s, um_exchange *x, const char *id) {
    um_batch_store *store = um_batch_store_of(s, x);
    if (!store) return NULL;
    um_batch_job *b = um_batch_job_find(store, id);
    if (b && !um_key_may_see(um_access_record_key(x), b->owner)) b = NULL;
    if (!b) um_reply_error(x, 404, "id", NULL, "unknown batch %.80s", id);
    return b;
}

static void get_batch(um_service *s, um_exchange *x, const char *id) {
    um_buf json = {0};
    um_jw w;
    const um_batch_job *b = find(s, x, id);
    if (!b) return;
    um_jw_init(&w, &json);
    um_batch_job_put(b, &w);
    um_reply_json(x, 200, &json);
    um_buf_free(&json);
}

static const char *id_of(const void *list, size_t i) { return ((um_batch_job *const *)list)[i]->id; }

static bool is_visible(const void *list, size_t i, const void *key) {
    return um_key_may_see(key, ((um_batch_job *const *)list)[i]->owner);
}

static void put(const void *list, size_t i, um_jw *w) { um_batch_job_put(((um_batch_job *const *)list)[i], w); }

static void get_batches(um_service *s, um_exchange *x, const char *id) {
    um_batch_store *store = um_batch_store_of(s, x);
    um_list_page page;
    (void)id;
    if (!store || !um_list_page_read(&page, x, 20, 100)) return;
    const um_list_page_source source = {.list = store->batch,
                                        .n = store->n_batches,
                                        .id = id_of,
                                        .matches = is_visible,
                                        .filter = um_access_record_key(x),
                                        .put = put};
    um_list_page_reply(&page, &source, x);
}

/* ---- Cancelling -------------------------------------------------------------------------------------------------- */

static void cancel_batch(um_service *s, um_exchange *x, const char *id) {
    um_jw w;
    um_batch_job *b = find(s, x, id);
    if (!b || !um_read_empty(x)) return;
    if (b->status != UM_BATCH_VALIDATING && b->status != UM_BATCH_IN_PROGRESS) {
        um_reply_error(x, 409, "id", NULL, "%s can't be cancelled: it has finished or is about to", b->id);
        return;
    }
    um_batch_run_cancel(b);
    um_pending_response *p = um_pending_response_new(x);
    um_jw_init(&w, &p->json);
    um_batch_job_put(b, &w);
    um_batch_job_save(b, um_pending_response_send, p);
}

static const um_endpoint rows[] = {
    {"POST", "/v1/batches", post_batch, 0, "OpenAI", "create a batch from a file of requests"},
    {"GET", "/v1/batches", get_batches, 0, "OpenAI", "list batches, the newest first"},
    {"GET", "/v1/batches/{id}", get_batch, 0, "OpenAI", "show a batch and its progress"},
    {"POST", "/v1/batches/{id}/cancel", cancel_batch, 0, "OpenAI", "cancel a batch"},
};
const um_endpoint_set um_batches_endpoints = {rows, UM_LEN(rows)};
