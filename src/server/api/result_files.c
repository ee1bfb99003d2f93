/* The records of stored results, --state-dir/responses/NAME.json. A record is written when a result has finished or
 * changed, and replaced as a whole. Its name is random, because clients may choose ids. */
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <time.h>
#include <unistd.h>

#include "server/api/result_store.h"
#include "server/respond/reply.h"

#define RECORD_BYTES_MAX ((size_t)1 << 30)
#define QUEUE_BYTES_MAX  ((size_t)256 << 20) /* records that wait for the disk */

struct um_result_files {
    char *dir;
    um_work_queue *disk; /* one thread */
};

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

typedef struct job {
    char *path;
    um_buf record; /* empty: delete the file */
} job;

static um_status work(void *arg, um_err *err) {
    const job *j = arg;
    if (j->record.len) return um_file_replace_private(j->path, (um_str){j->record.data, j->record.len}, err);
    if (unlink(j->path) == 0 || errno == ENOENT) return UM_OK;
    return um_fail(err, UM_EIO, "cannot delete %s: %s", j->path, strerror(errno));
}

static void done(void *arg, um_status s, const um_err *err) {
    job *j = arg;
    if (s) um_warn("%s", err->msg);
    um_free(j->path);
    um_buf_free(&j->record);
    um_free(j);
}

/* Takes the record. */
static void submit(um_result_files *f, const char *file, um_buf *record) {
    job *j = UM_NEW(job);
    um_err err = {0};
    *j = (job){um_path_join(f->dir, file), *record};
    if (um_work_queue_submit(f->disk, &(um_work){work, done, j, record->len})) return;
    done(j, um_fail(&err, UM_ELIMIT, "%s was not written: the disk is too slow", j->path), &err);
}

/* Returns the time now in epoch seconds. */
static double wall_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* An unfinished result has the time 0. */
static um_buf record_of(const um_stored *e) {
    um_buf record = {0};
    um_jw w;
    um_jw_init(&w, &record);
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "id", e->id);
    um_jw_put_cstr(&w, "owner", e->owner);
    um_jw_put_bool(&w, "background", e->is_background);
    um_jw_put_double(&w, "finished_at", e->is_finished ? wall_time() - (um_now() - e->finished) : 0);
    um_jw_key(&w, "response");
    um_jw_raw(&w, e->json.data, e->json.len);
    um_jw_key(&w, "items");
    um_jw_raw(&w, e->items.data, e->items.len);
    um_jw_put_str(&w, "events", (um_str){e->events.data, e->events.len});
    um_jw_end_object(&w);
    return record;
}

/* Results that no request can continue have no items, and errors are not responses. */
void um_result_files_save(um_result_files *f, um_stored *e) {
    char name[64];
    if (!f || !e->items.len || !e->json.len || (e->is_finished && e->status != 200)) return;
    if (!e->file) {
        um_buf file = {0};
        um_make_id("", name);
        um_buf_printf(&file, "%s.json", name);
        e->file = um_buf_take(&file);
    }
    um_buf record = record_of(e);
    submit(f, e->file, &record);
}

void um_result_files_remove(um_result_files *f, const um_stored *e) {
    if (f && e->file) submit(f, e->file, &(um_buf){0});
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* Sets what a background response has become whose server has ended. */
static void set_failed(json_t *response) {
    json_object_set_new(response, "status", json_string("failed"));
    json_object_set_new(response, "error",
                        json_pack("{s:s, s:s}", "code", "server_error", "message", "the server was restarted"));
}

static um_status read_record(um_result_store *r, json_t *root, const char *path, um_stored **out, um_err *err) {
    const char *id = NULL, *owner = NULL, *events = "";
    double finished = 0;
    bool is_background = false;
    json_t *response = json_object_get(root, "response"), *items = json_object_get(root, "items");
    um_status st = um_json_get_str(root, "id", path, &id, err);
    if (!st) st = um_json_get_str(root, "owner", path, &owner, err);
    if (!st) st = um_json_get_str(root, "events", path, &events, err);
    if (!st) st = um_json_get_double(root, "finished_at", path, &finished, err);
    if (!st) st = um_json_get_bool(root, "background", path, &is_background, err);
    if (st) return st;
    if (!id || !owner || strlen(id) >= sizeof(*out)->id || strlen(owner) >= sizeof(*out)->owner ||
        !json_is_object(response) || !json_is_array(items))
        return um_fail(err, UM_EPARSE, "%s: expected the members id, owner, response and items", path);
    um_stored *e = *out = um_stored_add(r, id, owner);
    if (!e) return um_fail(err, UM_EPARSE, "%s: another record has the id %s", path, id);
    if (finished <= 0) set_failed(response);
    um_json_put_exact(response, &e->json);
    um_json_put_exact(items, &e->items);
    um_buf_puts(&e->events, events);
    e->status = 200;
    e->is_background = is_background;
    e->is_finished = true;
    e->finished = um_now() - (finished > 0 ? UM_MAX(wall_time() - finished, 0) : 0);
    return UM_OK;
}

static void load(um_result_files *f, um_result_store *r, const char *file) {
    char *path = um_path_join(f->dir, file);
    um_buf text = {0};
    json_t *root = NULL;
    um_stored *e = NULL;
    um_err err = {0};
    um_status st = um_file_read(path, RECORD_BYTES_MAX, &text, &err);
    if (!st) st = um_json_parse_exact(&root, text.data, text.len, path, &err);
    if (!st) st = read_record(r, root, path, &e, &err);
    if (st) {
        um_warn("%s; skipping the response", err.msg);
    } else {
        e->file = um_strdup(file);
        um_stored_link(e);
    }
    json_decref(root);
    um_buf_free(&text);
    um_free(path);
}

static bool ends_in(const char *name, const char *ending) {
    size_t n = strlen(name), k = strlen(ending);
    return n > k && strcmp(name + n - k, ending) == 0;
}

/* Reads a record. Deletes one that a crash has cut off. */
static void load_entry(um_result_files *f, um_result_store *r, const char *name) {
    if (name[0] == '.') return;
    if (ends_in(name, ".json")) load(f, r, name);
    if (ends_in(name, ".json.new")) submit(f, name, &(um_buf){0});
}

static um_status load_all(um_result_files *f, um_result_store *r, um_err *err) {
    if (um_dir_make_private(f->dir, err)) return um_fail_in(err, "--state-dir");
    DIR *d = opendir(f->dir);
    if (!d) return um_fail(err, UM_EIO, "--state-dir: %s: cannot read the folder: %s", f->dir, strerror(errno));
    for (struct dirent *entry; (entry = readdir(d));) load_entry(f, r, entry->d_name);
    closedir(d);
    return UM_OK;
}

/* ---- The folder -------------------------------------------------------------------------------------------------- */

um_status um_result_files_new(um_result_files **out, um_result_store *r, um_service *s, um_err *err) {
    um_result_files *f = *out = UM_NEW(um_result_files);
    f->dir = um_path_join(s->setup.config->state_dir, "responses");
    um_status st = um_work_queue_new(&f->disk, s->base, 1, QUEUE_BYTES_MAX, err);
    return st ? st : load_all(f, r, err);
}

void um_result_files_free(um_result_files *f) {
    if (!f) return;
    um_work_queue_free(f->disk);
    um_free(f->dir);
    um_free(f);
}
