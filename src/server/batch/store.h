/* store: what lies in --state-dir, and its picture in memory.
 *
 *   lock              held by the one server that uses the folder
 *   files/ID          bytes of a file          files/ID.json     its record; without it the bytes count for nothing
 *   batches/ID.json   record of a batch        batches/ID.out, ID.err   answers so far, a line each
 *
 * Why a line is answered exactly once: a line counts as answered when it stands whole in ID.out or ID.err, and nowhere
 * else is written what was answered. A start reads both, cuts off torn ends, and runs the lines that are in neither. An
 * answer is written to one of them, once. Records are replaced whole (um_file_replace). When all lines are answered the
 * record says FINALIZING, then the answers become files, then the record says how it ended: each of these steps may be
 * done again.
 *
 * All of it belongs to the loop's thread, but for what a job of the disk's thread, or of the reader's, has in its
 * hands.
 */
#ifndef UM_STORE_H
#define UM_STORE_H

#include "server/batch/batch.h"
#include "server/jobs/jobs.h"
#include "server/turn.h"

#ifdef __cplusplus
extern "C" {
#endif

struct event;
struct json_t;

#define UM_FILES_MAX        10000 /* in the folder */
#define UM_BATCHES_MAX      10000 /* of which unfinished ones */
#define UM_BATCH_LINES_MAX  50000
#define UM_BATCH_ERRORS_MAX 10 /* that a record tells of an input */
#define UM_CUSTOM_ID_MAX    512
#define UM_FILE_TTL_MAX     315360000 /* seconds: ten years */
#define UM_METADATA_MAX     16        /* pairs; a name has at most 64 bytes, a value 512 */
#define UM_ID_BYTES         64

/* ---- The folder (folder.c) --------------------------------------------------------------------------------------- */

/* Makes what is missing and locks it. UM_EIO; UM_EINVAL when another server has it. */
um_status um_folder_open(um_batches *all, um_err *err);
/* Calls fn for each entry of one of its folders, "files" or "batches". UM_EIO. */
typedef void (*um_entry_fn)(um_batches *all, const char *entry);
um_status um_folder_walk(um_batches *all, const char *name, um_entry_fn fn, um_err *err);
bool um_entry_is_record(const char *entry); /* "ID.json" */
/* UM_EPARSE unless the entry, which lies at path, is called as the record of id is. */
um_status um_entry_check(const char *entry, const char *path, const char *id, um_err *err);

/* ---- Files (files.c) --------------------------------------------------------------------------------------------- */

typedef struct um_file {
    char id[UM_ID_BYTES], purpose[16]; /* "batch", "batch_output" */
    char *name;
    int64_t bytes, created, expires; /* times: epoch seconds; expires 0: never */
    int32_t n_readers;               /* batches that are not over and read it */
} um_file;

/* ttl: seconds that it is kept, 0: as --file-ttl says. */
um_file *um_file_new(const um_batches *all, const char *purpose, const char *name, int64_t ttl);
void um_file_free(um_file *f);
um_file *um_file_find(const um_batches *all, const char *id); /* or NULL */
void um_file_put(const um_file *f, um_jw *w);                 /* the object of the API, which is the record too */
char *um_file_path(const um_batches *all, const char *id);    /* of the bytes; um_free */
/* Takes f and data, writes both; `done` runs on the loop. The file is listed when that has worked, and freed when not.
 */
typedef void (*um_stored_fn)(void *arg, um_status s, const um_err *err);
void um_file_store(um_batches *all, um_file *f, um_buf *data, um_stored_fn done, void *arg);
/* Takes it off the list and off the disk. No batch reads it. */
void um_file_delete(um_batches *all, um_file *f, um_stored_fn done, void *arg);
/* Answers of a batch become a file: on the disk's thread; may be done again. f->bytes is set, 0: there was no answer
 * and there is no file. */
um_status um_file_adopt(const um_batches *all, um_file *f, const char *from, um_err *err);
void um_file_list(um_batches *all, um_file *f); /* takes it */
/* Deletes files whose time is over at `now`, but not what a batch reads. Returns when the next one's is, INT64_MAX:
 * never. */
int64_t um_files_expire(um_batches *all, int64_t now);
um_status um_files_load(um_batches *all, um_err *err);

/* ---- Batches (record.c) ------------------------------------------------------------------------------------------ */

static inline bool um_batch_is_over(um_batch_status s) { return s >= UM_BATCH_COMPLETED; }

typedef struct um_batch_error {
    char code[40], param[40]; /* param "": none */
    char message[UM_ERR_MAX];
    int64_t line; /* of the input, 0: none */
} um_batch_error;

typedef struct um_run um_run;
typedef struct um_batch {
    um_batches *all;
    char id[UM_ID_BYTES], input_id[UM_ID_BYTES];
    char output_id[UM_ID_BYTES], error_id[UM_ID_BYTES]; /* of the files that its answers become */
    const um_api *api;
    char window[16]; /* "24h" */
    um_batch_status status, ends_as;
    int64_t at[UM_BATCH_N_STATUS]; /* epoch seconds of each status, 0: it was not reached */
    int64_t expires;               /* the end of its window */
    int64_t output_ttl;            /* seconds that the files of its answers are kept, 0: as --file-ttl says */
    int64_t total, completed, failed;
    char *metadata; /* a JSON object, or NULL */
    um_batch_error error[UM_BATCH_ERRORS_MAX];
    int32_t n_errors;
    bool trouble;   /* it stands still until the disk takes what is written */
    bool unsaved;   /* its record could not be written; it is tried again */
    int32_t saving; /* records on their way to the disk */
    um_run *run;    /* of one that is not over */
} um_batch;

um_batch *um_batch_new(um_batches *all);
void um_batch_free(um_batch *b);
um_batch *um_batch_find(const um_batches *all, const char *id);
void um_batch_put(const um_batch *b, um_jw *w); /* the object of the API */
/* Seconds of a completion window, "24h", "90m", "30s" or "7d"; 0: it is none, or longer than 30 days. */
int64_t um_batch_window(const char *text);
/* The API of an endpoint's path, or NULL. */
const um_api *um_batch_api(const char *path);
/* Room in the list for one more: the oldest that is over is forgotten when there are too many; false: none is over. */
bool um_batch_make_room(um_batches *all);
void um_batch_list(um_batches *all, um_batch *b); /* takes it */
/* Writes its record as it is now. done may be NULL; without one a failure is tried again. */
void um_batch_save(um_batch *b, um_stored_fn done, void *arg);
void um_batch_enter(um_batch *b, um_batch_status s); /* now */
/* Adds to its errors, unless it has enough of them. param NULL or "": none. */
void um_batch_blame(um_batch *b, int64_t line, const char *code, const char *param, const char *fmt, ...)
    UM_PRINTF(5, 6);
um_status um_batches_load(um_batches *all, um_err *err);
char *um_batch_path(const um_batches *all, const char *id, const char *ending); /* um_free */

/* ---- Lines (check.c) --------------------------------------------------------------------------------------------- */

/* A line of the input, read. */
typedef struct um_batch_line {
    struct json_t *root, *body; /* body: borrowed from root */
    const char *custom_id;      /* borrowed from root */
} um_batch_line;
/* The first member of an object that is not known, NULL: all are. A NULL ends the list. */
const char *um_unknown_member(const struct json_t *o, const char *const *known);
/* Reads one; says in `wrong`, but for its number, what is. Any thread. json_decref(out->root), also on failure. */
bool um_batch_line_read(const um_api *a, um_str text, um_batch_line *out, um_batch_error *wrong);
/* Reads the whole input: total, ids, errors. On the disk's thread. */
void um_batch_check(um_batch *b, const char *path, um_idset *ids);
/* Adds to its errors what the reader of its input gave in place of a line: UM_LINES_TOO_LONG, or UM_LINES_FAILED with
 * the reason in err. */
void um_batch_blame_input(um_batch *b, const um_lines *in, um_lines_got got, const um_err *err);
/* Reads answers of an earlier run, marks their ids and counts them; the ledger is ready to be written. ids NULL: an
 * input that can't be read tells none, and every answer counts. UM_EIO, UM_EINVAL. */
um_status um_batch_resume(um_ledger *l, const char *path, um_idset *ids, int64_t *n, um_err *err);

/* ---- Running (run.c) --------------------------------------------------------------------------------------------- */

void um_run_new(um_batch *b);                          /* of a batch that is not over; keeps its input */
void um_run_free(um_run *r);                           /* nothing of it is with the disk's thread */
void um_run_advance(um_batch *b);                      /* does what can be done now */
void um_run_give_up(um_run *r);                        /* cancels its lines; no more are started */
void um_run_flush(um_run *r);                          /* what was answered goes to the disk */
void um_run_cancel(um_batch *b);                       /* the client's wish */
void um_batches_wake(um_batches *all, double seconds); /* advances all of them soon */

struct um_batches {
    um_server *server;
    char *dir;
    int64_t file_ttl; /* seconds that files are kept whose requests say nothing, 0: for ever */
    int lock;
    um_jobs *disk;
    um_jobs *reader; /* reads long lines; not the threads of clients' bodies, which would wait behind it */
    um_run *reading; /* whose line it has; meanwhile no line is started, so their order is kept. NULL: it has none */
    um_file **file;
    size_t n_files, files_cap;
    um_batch **batch; /* by age */
    size_t n_batches, batches_cap;
    struct event *timer;
    int32_t n_lines;                       /* that run */
    int64_t lines_completed, lines_failed; /* whose answers came to the disk since the start */
    double held_until;                     /* no line is started before: the last one was refused */
    bool stopping;
};

#ifdef __cplusplus
}
#endif
#endif
