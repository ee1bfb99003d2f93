/* store: the files and batches in --state-dir, on disk and in memory. Internal to batch/.
 *
 *   lock                     locked by the server that uses the folder
 *   files/ID                 the bytes of a file
 *   files/ID.json            its record; bytes without a record are deleted at a start
 *   batches/ID.json          the record of a batch
 *   batches/ID.out, ID.err   its answers so far, one a line
 *
 * Every line of a batch is answered exactly once. A line counts as answered when ID.out or ID.err holds its whole
 * answer. Nothing else records it. Each answer is written once, to one of the two. A start reads both, cuts off an
 * incomplete end, and runs the lines that are in neither. Records are replaced as a whole (um_file_replace). When all
 * lines are answered, the record gets the status FINALIZING, the answers become files, and the record gets the final
 * status. Each of these steps can be repeated after a crash.
 *
 * Everything belongs to the loop's thread, except data that a job of the disk's or the reader's thread is using. */
#ifndef UM_STORE_H
#define UM_STORE_H

#include "server/batch/batch.h"
#include "server/generate/api.h"
#include "server/work/work_queue.h"

#ifdef __cplusplus
extern "C" {
#endif

struct event;
struct json_t;

#define UM_BATCHES_MAX      10000 /* batches in the folder, finished ones included */
#define UM_BATCH_LINES_MAX  50000
#define UM_BATCH_ERRORS_MAX 10 /* in a record */
#define UM_CUSTOM_ID_MAX    512
#define UM_FILE_TTL_MAX     315360000 /* ten years, in seconds */
#define UM_METADATA_MAX     16        /* pairs; a key has at most 64 bytes, a value 512 */
#define UM_ID_BYTES         64

/* ---- The folder (folder.c) --------------------------------------------------------------------------------------- */

/* Creates the folders that are missing and takes the lock. UM_EIO; UM_EINVAL if another server holds it. */
um_status um_folder_open(um_batch_store *store, um_err *err);
/* Calls fn for each entry of the subfolder `name`, "files" or "batches". UM_EIO. */
typedef void (*um_entry_fn)(um_batch_store *store, const char *entry);
um_status um_folder_walk(um_batch_store *store, const char *name, um_entry_fn fn, um_err *err);
/* Returns whether the entry has the name of a record, "ID.json". */
bool um_entry_is_record(const char *entry);
/* Checks that the entry is named after `id`. `path` is for the message. UM_EPARSE. */
um_status um_entry_check(const char *entry, const char *path, const char *id, um_err *err);

/* ---- Files (files.c) --------------------------------------------------------------------------------------------- */

typedef struct um_file {
    char id[UM_ID_BYTES], purpose[16]; /* "batch", "batch_output" */
    char owner[UM_KEY_NAME_BYTES];     /* name of the API key that made it, see um_key_owner */
    char *name;
    uint64_t tenant; /* who made it, see um_tenant_of */
    int64_t bytes;
    int64_t created, expires; /* epoch seconds; expires 0: never */
    int32_t n_readers;        /* unfinished batches with this input */
    struct um_file *next;     /* while it is being written */
} um_file;

/* Creates a file with a new id. Nothing is written. ttl: seconds until it expires; 0 takes --file-ttl. */
um_file *um_file_new(const um_batch_store *store, const char *purpose, const char *name, int64_t ttl);
void um_file_free(um_file *f);
/* Returns the file with this id, or NULL. */
um_file *um_file_find(const um_batch_store *store, const char *id);
/* Writes the file object of the API. The record has its members, the owner and the tenant. */
void um_file_put(const um_file *f, um_jw *w);
/* Returns 0 if the limits of --max-files and the like leave room for `more` files with these bytes together, beside
 * those that are there and those that are being written. Else fills *err and returns the status of the answer: 413 for
 * the limits of the request's key, or without one of its address, 507 for the server's. */
int um_files_check_room(const um_batch_store *store, const um_exchange *x, int64_t more, int64_t bytes, um_err *err);
/* Returns the path of the file's bytes; um_free. */
char *um_file_path(const um_batch_store *store, const char *id);
/* Called on the loop's thread when a job of the disk's thread has ended. */
typedef void (*um_disk_done_fn)(void *arg, um_status s, const um_err *err);
/* Writes the bytes and the record on the disk's thread. Takes f and data. Then adds f to the store, or frees it if it
 * could not be written. */
void um_file_store(um_batch_store *store, um_file *f, um_buf *data, um_disk_done_fn done, void *arg);
/* Removes a file from the store, deletes it on the disk's thread, and frees it. No batch may read it. */
void um_file_delete(um_batch_store *store, um_file *f, um_disk_done_fn done, void *arg);
/* Makes the answers of a batch at `from` the bytes of f: moves them and writes the record. Sets f->bytes; 0 means that
 * there are no answers, and then no file. Runs on the disk's thread and can be repeated after a failure or crash. */
um_status um_file_import(const um_batch_store *store, um_file *f, const char *from, um_err *err);
/* Adds a file, which it takes, to the store. */
void um_batch_store_add_file(um_batch_store *store, um_file *f);
/* Deletes the files that have expired at `now`, except those that a batch reads. Returns the time at which the next
 * file expires; INT64_MAX: none does. */
int64_t um_files_expire(um_batch_store *store, int64_t now);
/* Reads the records of all files. Call it after um_batch_store_load. */
um_status um_files_load(um_batch_store *store, um_err *err);

/* ---- Batches (record.c) ------------------------------------------------------------------------------------------ */

/* Returns whether the status is final. */
static inline bool um_batch_is_over(um_batch_status s) { return s >= UM_BATCH_COMPLETED; }

typedef struct um_batch_error {
    char code[40], param[40]; /* param "": none */
    char message[UM_ERR_MAX];
    int64_t line; /* line number in the input; 0: none */
} um_batch_error;

typedef struct um_batch_run um_batch_run;
/* A batch. */
typedef struct um_batch_job {
    um_batch_store *store;
    char id[UM_ID_BYTES], input_id[UM_ID_BYTES];
    char owner[UM_KEY_NAME_BYTES];                      /* name of the API key that made it, see um_key_owner */
    char output_id[UM_ID_BYTES], error_id[UM_ID_BYTES]; /* ids of the files that its answers will become */
    const um_api *api;
    char window[16]; /* "24h" */
    um_batch_status status;
    um_batch_status final_status;  /* the status that follows FINALIZING; "ends_as" in the record */
    int64_t at[UM_BATCH_N_STATUS]; /* epoch seconds when each status began; 0: not reached */
    int64_t expires;               /* end of the completion window, epoch seconds */
    int64_t output_ttl;            /* seconds until the files of its answers expire; 0: --file-ttl */
    int64_t total, completed, failed;
    char *metadata; /* a JSON object, or NULL */
    um_batch_error error[UM_BATCH_ERRORS_MAX];
    int32_t n_errors;
    bool storage_failed; /* the last access to its files failed; the batch pauses until a retry succeeds */
    bool unsaved;        /* the record could not be written; a retry is due */
    int32_t saving;      /* submitted jobs that write the record */
    um_batch_run *run;   /* NULL if the batch is over */
} um_batch_job;

/* Creates a batch with new ids and the status VALIDATING. */
um_batch_job *um_batch_job_new(um_batch_store *store);
void um_batch_job_free(um_batch_job *b);
/* Returns the batch with this id, or NULL. */
um_batch_job *um_batch_job_find(const um_batch_store *store, const char *id);
/* Writes the batch object of the API. */
void um_batch_job_put(const um_batch_job *b, um_jw *w);
/* Returns the seconds of a completion window, "24h", "90m", "30s" or "7d". 0: it is invalid or longer than 30 days. */
int64_t um_batch_window(const char *text);
/* Returns the API of an endpoint's path, or NULL. */
const um_api *um_batch_api(const um_batch_store *store, const char *path);
/* Makes room for another batch: if the store is full, deletes the oldest finished one. Returns false if there is none.
 */
bool um_batch_store_evict_finished(um_batch_store *store);
/* Adds a batch, which it takes, to the store. */
void um_batch_store_add_batch(um_batch_store *store, um_batch_job *b);
/* Writes the present record on the disk's thread. With `done` NULL a failed write is logged and retried. */
void um_batch_job_save(um_batch_job *b, um_disk_done_fn done, void *arg);
/* Sets the status and the time at which it began. */
void um_batch_job_set_status(um_batch_job *b, um_batch_status s);
/* Adds an error to the batch, unless it has UM_BATCH_ERRORS_MAX of them. param NULL or "": none. */
void um_batch_job_add_error(um_batch_job *b, int64_t line, const char *code, const char *param, const char *fmt, ...)
    UM_PRINTF(5, 6);
/* Reads the records of all batches. Invalid records are logged and skipped. */
um_status um_batch_store_load(um_batch_store *store, um_err *err);
/* Returns the path of "batches/ID" with this ending; um_free. */
char *um_batch_job_path(const um_batch_store *store, const char *id, const char *ending);

/* ---- Lines (check.c) --------------------------------------------------------------------------------------------- */

/* A parsed line of the input. */
typedef struct um_batch_line {
    struct json_t *root;
    struct json_t *body;   /* borrowed from root */
    const char *custom_id; /* borrowed from root */
} um_batch_line;
/* Returns the first member of an object that is not in `known`, or NULL. NULL ends the list. */
const char *um_unknown_member(const struct json_t *o, const char *const *known);
/* Parses and checks a line of a batch. On failure fills `error`, except its line number. Any thread. The caller calls
 * json_decref(out->root), also on failure. */
bool um_batch_line_read(const um_batch_job *b, um_str text, um_batch_line *out, um_batch_error *error);
/* Checks the whole input: sets b->total, adds errors to b, and adds the custom_id of each valid line to `ids`. Runs on
 * the disk's thread. */
void um_batch_check(um_batch_job *b, const char *path, um_idset *ids);
/* Adds the error for a line that could not be read. got: UM_LINES_TOO_LONG, or UM_LINES_FAILED with the reason in err.
 */
void um_batch_job_add_input_error(um_batch_job *b, const um_lines *in, um_lines_result got, const um_err *err);
/* Opens a file of answers from an earlier run for appending. Marks the ids that it answers, sets *n to the number of
 * its answers, and cuts off everything after the first invalid line. ids NULL: the ids are unknown because the input is
 * no longer valid; then every answer counts. UM_EIO, UM_EINVAL. */
um_status um_batch_resume(um_ledger *l, const char *path, um_idset *ids, int64_t *n, um_err *err);

/* ---- Running (run.c) --------------------------------------------------------------------------------------------- */

/* Creates the run of an unfinished batch. It keeps the input file from being deleted. */
void um_batch_run_new(um_batch_job *b);
/* Frees a run. No job of the disk's thread may use it. NULL is fine. */
void um_batch_run_free(um_batch_run *r);
/* Takes the next steps of a batch: starts lines, writes answers, changes the status. Retries failed writes. */
void um_batch_run_advance(um_batch_job *b);
/* Cancels the running lines. No more lines are started. */
void um_batch_run_abandon(um_batch_run *r);
/* Writes the pending answers on the disk's thread, unless a job of the run is there already. */
void um_batch_run_flush(um_batch_run *r);
/* Cancels the batch for a client. */
void um_batch_run_cancel(um_batch_job *b);
/* Advances all batches and expires files after `seconds`, or earlier if an earlier time is scheduled already. */
void um_batch_store_schedule(um_batch_store *store, double seconds);

struct um_batch_store {
    um_service *service;
    const um_api *const *apis; /* APIs that batches may use; NULL ends the list */
    char *dir;
    int64_t file_ttl;    /* seconds until a file without a requested lifetime expires; 0: never */
    size_t line_memory;  /* limit of the memory of a line's JSON values */
    int lock;            /* descriptor of the lock file */
    um_work_queue *disk; /* one thread, which writes files and records */
    /* One thread, which parses and encodes long lines. Clients' bodies are parsed on other threads (service->readers)
     * and so don't wait for batches. */
    um_work_queue *reader;
    /* The run whose line the reader is reading, or NULL. No line is started until the reader is done, which keeps the
     * lines in order. */
    um_batch_run *reader_run;
    um_file **file;   /* [n_files] the oldest first */
    um_file *storing; /* files that are being written */
    size_t n_files, files_cap;
    um_batch_job **batch; /* [n_batches] the oldest first */
    size_t n_batches, batches_cap;
    struct event *timer;                   /* see um_batch_store_schedule */
    int32_t n_lines;                       /* running lines of all batches */
    int64_t lines_completed, lines_failed; /* answers written since the server's start */
    double held_until;                     /* um_now() before which no line is started, because a line was refused */
    bool stopping;
};

#ifdef __cplusplus
}
#endif
#endif
