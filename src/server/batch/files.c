/* Stored files: their records, their bytes, and the list of them. */
#include <errno.h>
#include <jansson.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "server/batch/store.h"
#include "server/generate/intake.h"
#include "server/respond/access.h"
#include "server/respond/reply.h"

/* ---- One file ---------------------------------------------------------------------------------------------------- */

um_file *um_file_new(const um_batch_store *store, const char *purpose, const char *name, int64_t ttl) {
    um_file *f = UM_NEW(um_file);
    um_make_ordered_id("file-", f->id);
    snprintf(f->purpose, sizeof f->purpose, "%s", purpose);
    f->name = um_strdup(name);
    f->created = (int64_t)time(NULL);
    if (!ttl) ttl = store->file_ttl;
    if (ttl) f->expires = f->created + ttl;
    return f;
}

void um_file_free(um_file *f) {
    if (f) um_free(f->name);
    um_free(f);
}

static void put_members(const um_file *f, um_jw *w) {
    um_jw_put_cstr(w, "id", f->id);
    um_jw_put_cstr(w, "object", "file");
    um_jw_put_int(w, "bytes", f->bytes);
    um_jw_put_int(w, "created_at", f->created);
    um_jw_key(w, "expires_at");
    if (f->expires) um_jw_int(w, f->expires);
    else um_jw_null(w);
    um_jw_put_cstr(w, "filename", f->name);
    um_jw_put_cstr(w, "purpose", f->purpose);
    um_jw_put_cstr(w, "status", "processed");
}

void um_file_put(const um_file *f, um_jw *w) {
    um_jw_begin_object(w);
    put_members(f, w);
    um_jw_end_object(w);
}

static char *path_of(const um_batch_store *store, const char *id, const char *ending) {
    um_buf path = {0};
    um_buf_printf(&path, "%s/files/%s%s", store->dir, id, ending);
    return um_buf_take(&path);
}

char *um_file_path(const um_batch_store *store, const char *id) { return path_of(store, id, ""); }

static um_status write_record(const um_batch_store *store, const um_file *f, um_err *err) {
    um_buf json = {0};
    um_jw w;
    char *path = path_of(store, f->id, ".json");
    um_jw_init(&w, &json);
    um_jw_begin_object(&w);
    put_members(f, &w);
    um_jw_put_cstr(&w, "owner", f->owner);
    um_jw_put_int(&w, "tenant", (int64_t)f->tenant);
    um_jw_end_object(&w);
    um_status st = um_file_replace_private(path, (um_str){json.data, json.len}, err);
    um_free(path);
    um_buf_free(&json);
    return st;
}

static void remove_file(const um_batch_store *store, const char *id) {
    char *record = path_of(store, id, ".json"), *bytes = um_file_path(store, id);
    unlink(record);
    unlink(bytes);
    um_free(record);
    um_free(bytes);
}

/* ---- The list ---------------------------------------------------------------------------------------------------- */

static size_t index_of(const um_batch_store *store, const char *id) {
    size_t i = 0;
    while (i < store->n_files && strcmp(store->file[i]->id, id) != 0) i++;
    return i;
}

um_file *um_file_find(const um_batch_store *store, const char *id) {
    size_t i = index_of(store, id);
    return i < store->n_files ? store->file[i] : NULL;
}

/* Orders by age. The id has the order within a second, and keeps it after a restart. */
static bool is_older(const um_file *a, const um_file *b) {
    return a->created != b->created ? a->created < b->created : strcmp(a->id, b->id) < 0;
}

void um_batch_store_add_file(um_batch_store *store, um_file *f) {
    if (store->n_files == store->files_cap) {
        store->files_cap = UM_MAX(2 * store->files_cap, 64);
        store->file = um_realloc(store->file, um_mul(store->files_cap, sizeof(um_file *)));
    }
    size_t at = store->n_files++;
    for (; at > 0 && is_older(f, store->file[at - 1]); at--) store->file[at] = store->file[at - 1];
    store->file[at] = f;
}

/* ---- Limits ------------------------------------------------------------------------------------------------------ */

typedef struct use {
    int64_t n, bytes;
} use;

/* Who makes a file: a key by its name, which outlives the server; else the client's address. */
typedef struct maker {
    const char *owner;
    uint64_t tenant;
} maker;

static void count(const um_file *f, const maker *by, use *all, use *own) {
    const bool is_own = um_streq(f->owner, by->owner) && (*by->owner || f->tenant == by->tenant);
    all->n++;
    all->bytes += f->bytes;
    own->n += is_own;
    own->bytes += is_own ? f->bytes : 0;
}

/* Returns the status for `more` files with these bytes beside those that are there: `full`, or 0 if they fit. */
static int check_use(const use *u, const use *most, int64_t more, int64_t bytes, const char *whose, int full,
                     um_err *err) {
    if (most->n && u->n + more > most->n) {
        (void)um_fail_param(err, UM_ELIMIT, "file", "%s has %lld files, of at most %lld; delete some", whose,
                            (long long)u->n, (long long)most->n);
        return full;
    }
    if (!most->bytes || bytes <= most->bytes - u->bytes) return 0;
    (void)um_fail_param(err, UM_ELIMIT, "file",
                        "%s has %lld bytes of files, of at most %lld, and this needs %lld more; "
                        "delete some",
                        whose, (long long)u->bytes, (long long)most->bytes, (long long)bytes);
    return full;
}

int um_files_check_room(const um_batch_store *store, const um_exchange *x, int64_t more, int64_t bytes, um_err *err) {
    const maker by = {um_key_owner(um_access_record_key(x)), um_tenant_of(0, x)};
    const um_server_config *c = store->service->setup.config;
    const use most = {c->max_files, c->max_file_bytes}, own_most = {c->max_tenant_files, c->max_tenant_file_bytes};
    use all = {0}, own = {0};
    for (size_t i = 0; i < store->n_files; i++) count(store->file[i], &by, &all, &own);
    for (const um_file *f = store->storing; f; f = f->next) count(f, &by, &all, &own);
    int status = check_use(&own, &own_most, more, bytes, "this client", 413, err);
    return status ? status : check_use(&all, &most, more, bytes, "the server", 507, err);
}

/* ---- Storing and deleting ---------------------------------------------------------------------------------------- */

typedef struct job {
    um_batch_store *store;
    um_file *file;
    um_buf data;
    um_disk_done_fn done;
    void *arg;
} job;

static void free_job(job *j) {
    um_buf_free(&j->data);
    um_free(j);
}

static um_status store_work(void *arg, um_err *err) {
    const job *j = arg;
    char *path = um_file_path(j->store, j->file->id);
    um_status st = um_file_replace_private(path, (um_str){j->data.data, j->data.len}, err);
    if (!st) st = write_record(j->store, j->file, err);
    if (st) remove_file(j->store, j->file->id);
    um_free(path);
    return st;
}

static void store_done(void *arg, um_status s, const um_err *err) {
    job *j = arg;
    um_file **at = &j->store->storing;
    while (*at != j->file) at = &(*at)->next;
    *at = j->file->next;
    if (!s) um_batch_store_add_file(j->store, j->file);
    if (!s && j->file->expires) um_batch_store_schedule(j->store, 0);
    j->done(j->arg, s, err);
    if (s) um_file_free(j->file);
    free_job(j);
}

void um_file_store(um_batch_store *store, um_file *f, um_buf *data, um_disk_done_fn done, void *arg) {
    job *j = UM_NEW(job);
    *j = (job){.store = store, .file = f, .data = *data, .done = done, .arg = arg};
    *data = (um_buf){0};
    f->bytes = (int64_t)j->data.len;
    f->next = store->storing;
    store->storing = f;
    um_work_queue_submit(store->disk, &(um_work){store_work, store_done, j, 0});
}

static um_status delete_work(void *arg, um_err *err) {
    const job *j = arg;
    char *dir = um_path_join(j->store->dir, "files");
    remove_file(j->store, j->file->id);
    um_status st = um_dir_sync(dir, err);
    um_free(dir);
    return st;
}

static void delete_done(void *arg, um_status s, const um_err *err) {
    job *j = arg;
    j->done(j->arg, s, err);
    um_file_free(j->file);
    free_job(j);
}

void um_file_delete(um_batch_store *store, um_file *f, um_disk_done_fn done, void *arg) {
    assert(!f->n_readers);
    size_t at = index_of(store, f->id);
    memmove(&store->file[at], &store->file[at + 1], (--store->n_files - at) * sizeof(um_file *));
    job *j = UM_NEW(job);
    *j = (job){.store = store, .file = f, .done = done, .arg = arg};
    um_work_queue_submit(store->disk, &(um_work){delete_work, delete_done, j, 0});
}

static void expire_done(void *arg, um_status s, const um_err *err) {
    (void)arg;
    if (s) um_warn("%s", err->msg); /* the next start deletes the remaining files */
}

int64_t um_files_expire(um_batch_store *store, int64_t now) {
    int64_t next = INT64_MAX;
    for (size_t i = 0; i < store->n_files;) {
        um_file *f = store->file[i];
        bool is_over = f->expires && f->expires <= now;
        if (is_over && !f->n_readers) {
            um_log(UM_LOG_DEBUG, "%s has expired", f->id);
            um_file_delete(store, f, expire_done, NULL); /* removes f from the list, so the next file is at i */
            continue;
        }
        if (f->expires && !is_over) next = UM_MIN(next, f->expires);
        i++;
    }
    return next;
}

/* ---- Answers of a batch ------------------------------------------------------------------------------------------ */

um_status um_file_import(const um_batch_store *store, um_file *f, const char *from, um_err *err) {
    struct stat st;
    um_status s = UM_OK;
    char *to = um_file_path(store, f->id);
    if (stat(from, &st) == 0 && st.st_size == 0) unlink(from);
    else if (stat(from, &st) == 0 && rename(from, to) != 0)
        s = um_fail(err, UM_EIO, "cannot move %s to %s: %s", from, to, strerror(errno));
    f->bytes = !s && stat(to, &st) == 0 ? (int64_t)st.st_size : 0;
    if (f->bytes) s = write_record(store, f, err); /* also syncs the folder, for the moved file */
    um_free(to);
    return s;
}

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

static um_status read_record(const char *path, um_file *f, um_err *err) {
    json_t *root = NULL;
    const char *id = "", *purpose = "", *name = "", *owner = "";
    int64_t tenant = 0;
    um_status st = um_json_load(&root, path, err);
    if (!st) st = um_json_get_str(root, "id", path, &id, err);
    if (!st) st = um_json_get_str(root, "purpose", path, &purpose, err);
    if (!st) st = um_json_get_str(root, "filename", path, &name, err);
    if (!st) st = um_json_get_str(root, "owner", path, &owner, err);
    if (!st) st = um_json_get_int(root, "bytes", path, 0, INT64_MAX, &f->bytes, err);
    if (!st) st = um_json_get_int(root, "created_at", path, 0, INT64_MAX, &f->created, err);
    if (!st) st = um_json_get_int(root, "expires_at", path, 0, INT64_MAX, &f->expires, err);
    if (!st) st = um_json_get_int(root, "tenant", path, INT64_MIN, INT64_MAX, &tenant, err);
    if (!st && (strlen(id) >= sizeof f->id || strlen(purpose) >= sizeof f->purpose || strlen(owner) >= sizeof f->owner))
        st = um_fail(err, UM_EPARSE, "%s: id, purpose or owner is too long", path);
    if (!st) {
        snprintf(f->id, sizeof f->id, "%s", id);
        snprintf(f->purpose, sizeof f->purpose, "%s", purpose);
        snprintf(f->owner, sizeof f->owner, "%s", owner);
        f->name = um_strdup(name);
        f->tenant = (uint64_t)tenant;
    }
    json_decref(root);
    return st;
}

/* Reads the record in the entry "ID.json". Checks its id, and that the file has as many bytes as the record says. */
static um_status load_one(um_batch_store *store, const char *entry, um_file *f, um_err *err) {
    struct stat info;
    char *path = path_of(store, "", entry), *bytes = NULL;
    um_status st = read_record(path, f, err);
    if (!st) st = um_entry_check(entry, path, f->id, err);
    if (!st) bytes = um_file_path(store, f->id);
    if (!st && (stat(bytes, &info) != 0 || info.st_size != (off_t)f->bytes))
        st = um_fail(err, UM_EPARSE, "%s: the file does not have the %lld bytes of its record", bytes,
                     (long long)f->bytes);
    um_free(path);
    um_free(bytes);
    return st;
}

/* Returns whether the id is that of an answers file of an unfinished batch. This file may exist already, with or
 * without a record. It is added to the list when the batch ends. */
static bool is_answer(const um_batch_store *store, const char *id) {
    for (size_t i = 0; i < store->n_batches; i++) {
        const um_batch_job *b = store->batch[i];
        if (um_batch_is_over(b->status)) continue;
        if (um_streq(b->output_id, id) || um_streq(b->error_id, id)) return true;
    }
    return false;
}

static void load_record(um_batch_store *store, const char *entry) {
    um_err err = {0};
    if (!um_entry_is_record(entry)) return;
    um_file *f = UM_NEW(um_file);
    um_status st = load_one(store, entry, f, &err);
    if (st) um_warn("%s; skipping the file", err.msg);
    if (st || is_answer(store, f->id)) um_file_free(f);
    else um_batch_store_add_file(store, f);
}

/* Deletes bytes without a record: they belong to an upload that was not completed. */
static void remove_orphan(um_batch_store *store, const char *entry) {
    if (entry[0] == '.' || um_entry_is_record(entry)) return;
    char *record = path_of(store, entry, ".json"), *path = um_file_path(store, entry);
    if (!um_file_exists(record) && !is_answer(store, entry)) unlink(path);
    um_free(record);
    um_free(path);
}

um_status um_files_load(um_batch_store *store, um_err *err) {
    um_status st = um_folder_walk(store, "files", load_record, err);
    return st ? st : um_folder_walk(store, "files", remove_orphan, err);
}
