/* /v1/batches: files of requests that are answered beside those of clients. */
#include <jansson.h>
#include <stdlib.h>

#include "server/batch/request.h"

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

static um_status take_text(const json_t *root, const char *key, const char **out, um_err *err) {
    const json_t *v = json_object_get(root, key);
    *out = json_string_value(v);
    if (*out && strlen(*out) == json_string_length(v)) return UM_OK;
    return um_fail_param(err, UM_EINVAL, key, "expected a text, found %s", v ? "something else" : "nothing");
}

static um_status check_names(const json_t *root, um_err *err) {
    static const char *const known[] = {"input_file_id",        "endpoint", "completion_window",
                                        "output_expires_after", "metadata", NULL};
    const char *key = um_unknown_member(root, known);
    if (!key) return UM_OK;
    return um_fail_param(err, UM_EINVAL, key,
                         "a batch has input_file_id, endpoint, completion_window, output_expires_after and metadata");
}

static um_status take_metadata(um_batch *b, const json_t *v, um_err *err) {
    const char *key;
    json_t *value;
    if (!v || json_is_null(v)) return UM_OK;
    bool fits = json_is_object(v) && json_object_size(v) <= UM_METADATA_MAX;
    json_object_foreach((json_t *)v, key, value) fits =
        fits && json_is_string(value) && strlen(key) <= 64 && json_string_length(value) <= 512;
    if (!fits)
        return um_fail_param(err, UM_EINVAL, "metadata",
                             "expected an object of at most %d texts, names of at most 64 bytes, values of 512",
                             UM_METADATA_MAX);
    char *text = json_dumps(v, JSON_COMPACT);
    b->metadata = um_strdup(text);
    free(text);
    return UM_OK;
}

static um_status take_input(um_batch *b, const json_t *root, um_err *err) {
    const char *id;
    um_status st = take_text(root, "input_file_id", &id, err);
    if (st) return st;
    const um_file *f = um_file_find(b->all, id);
    if (!f) return um_fail_param(err, UM_EINVAL, "input_file_id", "there is no file %.80s; upload it first", id);
    if (!um_streq(f->purpose, "batch"))
        return um_fail_param(err, UM_EINVAL, "input_file_id", "expected a file of the purpose batch, found %s",
                             f->purpose);
    snprintf(b->input_id, sizeof b->input_id, "%s", f->id);
    return UM_OK;
}

static um_status take_endpoint(um_batch *b, const json_t *root, um_err *err) {
    const char *path;
    um_status st = take_text(root, "endpoint", &path, err);
    if (st) return st;
    b->api = um_batch_api(path);
    if (b->api) return UM_OK;
    return um_fail_param(err, UM_EINVAL, "endpoint", "expected /v1/chat/completions or /v1/completions, found %.80s",
                         path);
}

static um_status take_window(um_batch *b, const json_t *root, um_err *err) {
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

static um_status take_output_ttl(um_batch *b, const json_t *v, um_err *err) {
    static const char param[] = "output_expires_after";
    if (!v || json_is_null(v)) return UM_OK;
    if (json_object_size(v) != 2) return um_expires_after_check(param, NULL, 0, err);
    b->output_ttl = json_integer_value(json_object_get(v, "seconds"));
    return um_expires_after_check(param, json_string_value(json_object_get(v, "anchor")), b->output_ttl, err);
}

static um_status read_batch(um_batch *b, const json_t *root, um_err *err) {
    um_status st = check_names(root, err);
    if (!st) st = take_input(b, root, err);
    if (!st) st = take_endpoint(b, root, err);
    if (!st) st = take_window(b, root, err);
    if (!st) st = take_output_ttl(b, json_object_get(root, "output_expires_after"), err);
    if (!st) st = take_metadata(b, json_object_get(root, "metadata"), err);
    return st;
}

/* A new batch on its way to the disk. */
typedef struct birth {
    um_batch *batch;
    um_pending *answer;
} birth;

/* It counts from the moment that its record is there. Its input is kept from the beginning. */
static void born(void *arg, um_status s, const um_err *err) {
    birth *n = arg;
    um_batches *all = n->batch->all;
    if (s) {
        um_batch_free(n->batch);
    } else {
        um_batch_list(all, n->batch);
        um_batches_wake(all, 0);
    }
    um_pending_done(n->answer, s, err);
    um_free(n);
}

/* Answers when its record is on the disk. */
static void begin_batch(um_batch *b, um_exchange *x) {
    um_jw w;
    birth *n = UM_NEW(birth);
    *n = (birth){b, um_pending_new(x)};
    um_run_new(b);
    um_jw_init(&w, &n->answer->json);
    um_batch_put(b, &w);
    um_batch_save(b, born, n);
}

static void post_batch(um_server *s, um_exchange *x, const char *id) {
    um_batches *all = um_batches_of(s, x);
    (void)id;
    json_t *root = all ? um_read_object(x) : NULL;
    if (!root) return;
    um_err err = {0};
    um_batch *b = um_batch_new(all);
    um_status st = read_batch(b, root, &err);
    json_decref(root);
    if (!st && um_batch_make_room(all)) {
        begin_batch(b, x);
        return;
    }
    if (st) um_reply_err(x, &err);
    else um_reply_error(x, 429, NULL, NULL, "%d batches are not over; wait for one", UM_BATCHES_MAX);
    um_batch_free(b);
}

/* ---- Looking ----------------------------------------------------------------------------------------------------- */

static um_batch *find(um_server *s, um_exchange *x, const char *id) {
    um_batches *all = um_batches_of(s, x);
    if (!all) return NULL;
    um_batch *b = um_batch_find(all, id);
    if (!b) um_reply_error(x, 404, "id", NULL, "there is no batch %.80s", id);
    return b;
}

static void get_batch(um_server *s, um_exchange *x, const char *id) {
    um_buf json = {0};
    um_jw w;
    const um_batch *b = find(s, x, id);
    if (!b) return;
    um_jw_init(&w, &json);
    um_batch_put(b, &w);
    um_reply_json(x, 200, &json);
    um_buf_free(&json);
}

static const char *id_of(const void *list, size_t i) { return ((um_batch *const *)list)[i]->id; }

static void put(const void *list, size_t i, um_jw *w) { um_batch_put(((um_batch *const *)list)[i], w); }

static void get_batches(um_server *s, um_exchange *x, const char *id) {
    um_batches *all = um_batches_of(s, x);
    um_page page;
    (void)id;
    if (!all || !um_page_read(&page, x, 20, 100)) return;
    um_page_reply(&page, &(um_page_of){.list = all->batch, .n = all->n_batches, .id = id_of, .put = put}, x);
}

/* ---- Cancelling -------------------------------------------------------------------------------------------------- */

static void cancel_batch(um_server *s, um_exchange *x, const char *id) {
    um_jw w;
    um_batch *b = find(s, x, id);
    if (!b || !um_read_empty(x)) return;
    if (b->status != UM_BATCH_VALIDATING && b->status != UM_BATCH_IN_PROGRESS) {
        um_reply_error(x, 409, "id", NULL, "%s can't be cancelled any more: it is over, or about to be", b->id);
        return;
    }
    um_run_cancel(b);
    um_pending *p = um_pending_new(x);
    um_jw_init(&w, &p->json);
    um_batch_put(b, &w);
    um_batch_save(b, um_pending_done, p);
}

static const um_endpoint rows[] = {
    {"POST", "/v1/batches", post_batch, 0, "OpenAI", "answer a file of requests"},
    {"GET", "/v1/batches", get_batches, 0, "OpenAI", "list batches, the newest first"},
    {"GET", "/v1/batches/{id}", get_batch, 0, "OpenAI", "how far a batch is"},
    {"POST", "/v1/batches/{id}/cancel", cancel_batch, 0, "OpenAI", "answer no more of a batch's requests"},
};
const um_endpoint_set um_batches_endpoints = {rows, UM_LEN(rows)};
