/* Runs a batch: checks its input, starts its lines, writes their answers, and ends it.
 *
 * If a write fails, for example because the disk is full, the batch pauses and the write is retried until it succeeds.
 * A line that the server had no place for is started again. So is a line that failed with 500 or more, for example
 * because its worker died, until it has failed RETRIES times. */
#include <jansson.h>
#include <time.h>

#include "server/batch/store.h"
#include "server/generate/intake.h"
#include "server/generate/quota.h"
#include "server/respond/reply.h"

enum {
    /* The least priority number of a line. Lines are admitted after the requests of clients, whose number is 0. */
    PRIORITY = 1000,
    RETRIES = 3,
    STARTS_MAX = 32,    /* lines that are started in one turn of the loop; then it handles other events */
    UNWRITTEN_MAX = 256 /* no further line is started while this many answers are not on the disk */
};
static const double SOON = 0, RETRY_SECONDS = 0.25, PAUSE_SECONDS = 2;

enum { ANSWERS, FAILURES, N_OUTPUTS };
static const struct {
    const char *ending; /* ending of the file of the answers so far: "batches/ID.out" */
    const char *name;   /* part of the name of the final file */
} output_kind[N_OUTPUTS] = {{".out", "output"}, {".err", "error"}};

/* One of the two files of answers. */
typedef struct output {
    char *path;
    um_ledger ledger;
    um_buf pending; /* answers for the next job of the disk's thread */
    um_buf writing; /* answers that the present job writes */
    int64_t n_pending, n_writing;
    um_file *file; /* the file that the answers become; NULL before finish() */
} output;

/* A line that runs or will be started. */
typedef struct line {
    um_batch_run *run;
    const char *custom_id; /* borrowed from run->ids */
    char *text;            /* kept to parse it again for a retry, because threads must not share JSON values */
    size_t n_text;
    bool is_long;         /* encoded by the reader, not on the loop's thread */
    um_batch_line parsed; /* root NULL once it was encoded */
    um_capacity capacity;
    um_body body;              /* the encoded body, until the generation takes it */
    um_generation *generation; /* NULL: not running */
    int32_t tries;
    bool starting;             /* um_generation_start_detached has not returned yet */
    struct line *next, **link; /* in run->lines; link: the pointer to this line */
} line;

/* The result of reading the next line of the input. */
typedef struct read_result {
    um_lines_result got;
    um_str text;     /* text of a UM_LINES_LINE; borrowed from run->in */
    bool is_request; /* the line is valid */
    char *copy;      /* copy of the text of a valid line */
    um_batch_line parsed;
    um_batch_error error; /* the error of an invalid line */
    um_err read_error;    /* the error of UM_LINES_FAILED */
} read_result;

struct um_batch_run {
    um_batch_job *batch;
    um_file *source;  /* the input file; NULL: it was deleted */
    char *input;      /* path of the input */
    um_lines in;      /* while the reader reads a line, only the reader uses this and `next` */
    read_result next; /* the latest result */
    um_idset ids;     /* custom ids of all lines */
    output output[N_OUTPUTS];
    bool busy;                /* the disk's thread has a job of this run */
    um_batch_job *draft;      /* copy of the batch that the first job fills in */
    bool prepared;            /* the input was checked and earlier answers were read */
    bool all_started;         /* no line is left to start */
    bool is_finalizing_saved; /* the record on the disk has the status FINALIZING */
    bool is_abandoned;        /* no further line is started */
    line *lines;
    line *encoding;    /* the line that the reader encodes; NULL: none */
    double not_before; /* um_now() before which a paused batch does nothing */
};

/* ---- Life -------------------------------------------------------------------------------------------------------- */

void um_batch_run_new(um_batch_job *b) {
    um_batch_run *r = UM_NEW(um_batch_run);
    b->run = r;
    r->batch = b;
    r->source = um_file_find(b->store, b->input_id);
    if (r->source) r->source->n_readers++;
    r->input = um_file_path(b->store, b->input_id);
    r->in.fd = -1;
    r->is_finalizing_saved = b->status == UM_BATCH_FINALIZING;
    for (int i = 0; i < N_OUTPUTS; i++) {
        r->output[i].path = um_batch_job_path(b->store, b->id, output_kind[i].ending);
        r->output[i].ledger.fd = -1;
    }
}

static void free_json(void *root) { json_decref(root); }

static void release_line_text(const um_batch_run *r, size_t n, char *text, json_t *root) {
    um_release(r->batch->store->service, n, um_free, text);
    um_release(r->batch->store->service, n, free_json, root);
}

static void line_free(line *l) {
    *l->link = l->next;
    if (l->next) l->next->link = l->link;
    um_body_release(l->run->batch->store->service, &l->body);
    release_line_text(l->run, l->n_text, l->text, l->parsed.root);
    um_free(l);
}

static void close_ledgers(um_batch_run *r) {
    for (int i = 0; i < N_OUTPUTS; i++) (void)um_ledger_close(&r->output[i].ledger, NULL);
}

void um_batch_run_free(um_batch_run *r) {
    if (!r) return;
    if (r->source) r->source->n_readers--;
    while (r->lines) line_free(r->lines);
    close_ledgers(r);
    um_lines_close(&r->in);
    um_idset_free(&r->ids);
    for (int i = 0; i < N_OUTPUTS; i++) {
        output *o = &r->output[i];
        um_buf_free(&o->pending);
        um_buf_free(&o->writing);
        um_file_free(o->file);
        um_free(o->path);
    }
    um_free(r->input);
    um_free(r->draft);
    um_free(r);
}

/* Pauses the batch after a failed read or write. */
static void pause_run(um_batch_run *r, const um_err *err) {
    um_batch_job *b = r->batch;
    if (!b->storage_failed) um_warn("batch %s pauses: %s", b->id, err->msg);
    b->storage_failed = true;
    r->not_before = um_now() + PAUSE_SECONDS;
    um_batch_store_schedule(b->store, PAUSE_SECONDS);
}

static void continue_run(um_batch_run *r) {
    um_batch_job *b = r->batch;
    if (b->storage_failed) um_log(UM_LOG_INFO, "batch %s continues", b->id);
    b->storage_failed = false;
}

static void submit_job(um_batch_run *r, um_status (*work)(void *, um_err *),
                       void (*done)(void *, um_status, const um_err *)) {
    r->busy = true;
    um_work_queue_submit(r->batch->store->disk, &(um_work){work, done, r, 0});
}

/* ---- Checking the input ------------------------------------------------------------------------------------------ */

/* Returns whether an earlier run found the input valid. Some lines may then have answers already. */
static bool was_valid(const um_batch_job *b) { return b->at[UM_BATCH_IN_PROGRESS] != 0; }

static um_status prepare_work(void *arg, um_err *err) {
    um_batch_run *r = arg;
    um_batch_job *b = r->draft;
    int64_t *count[N_OUTPUTS] = {&b->completed, &b->failed};
    int64_t total = b->total;
    um_status st = UM_OK;
    um_idset_free(&r->ids); /* ids from a failed attempt */
    um_batch_check(b, r->input, &r->ids);
    if (b->n_errors && !was_valid(b)) return UM_OK;
    if (b->n_errors) { /* total and ids lack the invalid lines and those after the last error */
        b->total = total;
        um_idset_free(&r->ids);
    }
    for (int i = 0; i < N_OUTPUTS && !st; i++) {
        output *o = &r->output[i];
        st = um_batch_resume(&o->ledger, o->path, b->n_errors ? NULL : &r->ids, count[i], err);
    }
    if (st) close_ledgers(r);
    return st;
}

static void apply_draft(um_batch_run *r) {
    um_batch_job *b = r->batch;
    b->total = r->draft->total;
    b->completed = r->draft->completed;
    b->failed = r->draft->failed;
    b->n_errors = r->draft->n_errors;
    memcpy(b->error, r->draft->error, sizeof b->error);
}

/* Sets the final status and frees the run. The input may be deleted from now on. */
static void end_batch(um_batch_job *b, um_batch_status s) {
    um_batch_job_set_status(b, s);
    um_batch_job_save(b, NULL, NULL);
    um_batch_run_free(b->run);
    b->run = NULL;
    um_batch_store_schedule(b->store, SOON);
}

/* Fails the batch because its input can't be read or has changed. No further line is started. The answers so far become
 * files. */
static void fail(um_batch_run *r) {
    um_batch_job *b = r->batch;
    r->all_started = true;
    if (b->final_status != UM_BATCH_COMPLETED) return; /* cancelled or expired already */
    um_warn("batch %s fails: %s", b->id, b->error[b->n_errors - 1].message);
    b->final_status = UM_BATCH_FAILED;
}

static void prepare_done(void *arg, um_status s, const um_err *err) {
    um_batch_run *r = arg;
    um_batch_job *b = r->batch;
    um_err own = *err;
    r->busy = false;
    apply_draft(r);
    if (!s && !b->n_errors) s = um_lines_open(&r->in, r->input, &own);
    if (s) {
        close_ledgers(r); /* another attempt opens them again */
        pause_run(r, &own);
        return;
    }
    if (b->n_errors && !was_valid(b)) {
        end_batch(b, UM_BATCH_FAILED);
        return;
    }
    continue_run(r);
    r->prepared = true;
    if (b->n_errors) fail(r);
    if (b->status == UM_BATCH_VALIDATING) {
        um_batch_job_set_status(b, UM_BATCH_IN_PROGRESS);
        um_batch_job_save(b, NULL, NULL);
    }
    um_batch_store_schedule(b->store, SOON);
}

static void prepare(um_batch_run *r) {
    um_free(r->draft);
    r->draft = UM_NEW(um_batch_job);
    *r->draft = *r->batch;
    submit_job(r, prepare_work, prepare_done);
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

static um_jw begin_answer(output *to, const char *custom_id) {
    char id[UM_ID_BYTES];
    um_jw w;
    um_jw_init(&w, &to->pending);
    um_make_id("batch_req_", id);
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "id", id);
    um_jw_put_cstr(&w, "custom_id", custom_id);
    um_jw_key(&w, "response");
    return w;
}

static void end_answer(um_batch_run *r, output *to, um_jw *w, const char *custom_id) {
    um_jw_end_object(w);
    um_buf_putc(&to->pending, '\n');
    to->n_pending++;
    um_idset_find(&r->ids, custom_id)->answered = true;
}

/* Adds the response of a line that ran. json: its body. */
static void add_answer(um_batch_run *r, const char *custom_id, int status, const um_buf *json) {
    output *to = &r->output[status == 200 ? ANSWERS : FAILURES];
    char request_id[UM_ID_BYTES];
    um_jw w = begin_answer(to, custom_id);
    um_make_id("", request_id);
    um_jw_begin_object(&w);
    um_jw_put_int(&w, "status_code", status);
    um_jw_put_cstr(&w, "request_id", request_id);
    um_jw_key(&w, "body");
    um_jw_raw(&w, json->data, json->len);
    um_jw_end_object(&w);
    um_jw_put_cstr(&w, "error", NULL);
    end_answer(r, to, &w, custom_id);
}

/* Adds an answer for a line that never ran. */
static void add_line_error(um_batch_run *r, const char *custom_id, const char *code, const char *message) {
    output *to = &r->output[FAILURES];
    um_jw w = begin_answer(to, custom_id);
    um_jw_null(&w);
    um_jw_key(&w, "error");
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "code", code);
    um_jw_put_cstr(&w, "message", message);
    um_jw_end_object(&w);
    end_answer(r, to, &w, custom_id);
}

static um_status write_work(void *arg, um_err *err) {
    um_batch_run *r = arg;
    um_status st = UM_OK;
    for (int i = 0; i < N_OUTPUTS && !st; i++) {
        um_buf *b = &r->output[i].writing;
        if (b->len) st = um_ledger_commit(&r->output[i].ledger, (um_str){b->data, b->len}, err);
        if (!st) um_buf_clear(b); /* a retry must not write it again */
    }
    return st;
}

static void write_done(void *arg, um_status s, const um_err *err) {
    um_batch_run *r = arg;
    um_batch_job *b = r->batch;
    int64_t *count[N_OUTPUTS] = {&b->completed, &b->failed};
    int64_t *in_store[N_OUTPUTS] = {&b->store->lines_completed, &b->store->lines_failed};
    r->busy = false;
    for (int i = 0; i < N_OUTPUTS; i++) {
        output *o = &r->output[i];
        if (o->writing.len) continue;
        *count[i] += o->n_writing;
        *in_store[i] += o->n_writing;
        o->n_writing = 0;
    }
    if (s) {
        pause_run(r, err);
        return;
    }
    continue_run(r);
    if (b->store->stopping) um_batch_run_flush(r);
    um_batch_store_schedule(b->store, SOON);
}

static int64_t n_unwritten(const um_batch_run *r) {
    int64_t n = 0;
    for (int i = 0; i < N_OUTPUTS; i++) n += r->output[i].n_pending + r->output[i].n_writing;
    return n;
}

void um_batch_run_flush(um_batch_run *r) {
    if (r->busy || !n_unwritten(r)) return;
    for (int i = 0; i < N_OUTPUTS; i++) {
        output *o = &r->output[i];
        um_buf_append(&o->writing, o->pending.data ? o->pending.data : "", o->pending.len);
        o->n_writing += o->n_pending;
        um_buf_clear(&o->pending);
        o->n_pending = 0;
    }
    submit_job(r, write_work, write_done);
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

/* Submits a job to the reader. A short line is read, parsed and encoded on the loop's thread. For a long line, reading
 * with parsing is one job and encoding is another. In between, the loop's thread skips lines that have answers. */
static void submit_to_reader(um_batch_run *r, um_status (*work)(void *, um_err *),
                             void (*done)(void *, um_status, const um_err *), void *arg) {
    r->batch->store->reader_run = r;
    um_work_queue_submit(r->batch->store->reader, &(um_work){work, done, arg, 0});
}

static void release_reader(um_batch_run *r) {
    r->batch->store->reader_run = NULL;
    um_batch_store_schedule(r->batch->store, SOON);
}

static void answer_line(line *l, int status, const um_buf *json) {
    add_answer(l->run, l->custom_id, status, json);
    line_free(l);
}

/* Called with the response of a generation. 429 or 503 while it is started means that the queue is full or that no
 * worker is up. */
static void on_done(void *arg, int status, um_buf *json) {
    line *l = arg;
    um_batch_store *store = l->run->batch->store;
    l->generation = NULL;
    store->n_lines--;
    bool refused = l->starting && (status == 429 || status == 503);
    bool again = refused || (status >= 500 && ++l->tries < RETRIES);
    if (again) store->held_until = um_now() + RETRY_SECONDS;
    else answer_line(l, status, json);
    um_batch_store_schedule(store, SOON);
}

static void answer_refused(line *l, const um_err *err) {
    um_buf json = {0};
    um_jw w;
    int status = um_http_status_of(err->code);
    um_jw_init(&w, &json);
    um_jw_begin_object(&w);
    um_jw_key(&w, "error");
    um_put_error(&w, status, err->param[0] ? err->param : NULL, l->body.error_code, err->msg);
    um_jw_end_object(&w);
    answer_line(l, status, &json);
    um_buf_free(&json);
}

static um_status encode_line(void *arg, um_err *err) {
    line *l = arg;
    const um_batch_job *b = l->run->batch;
    um_batch_error unused; /* the line was valid before */
    if (!l->parsed.root) um_batch_line_read(b, (um_str){l->text, l->n_text}, &l->parsed, &unused);
    json_t *body = json_incref(l->parsed.body);
    json_decref(l->parsed.root);
    l->parsed = (um_batch_line){0};
    um_status st = um_api_read(b->api, &b->store->service->setup, &l->capacity, body, &l->body, err);
    l->body.bytes = l->n_text;
    if (st || !l->body.stream) return st;
    return um_fail_param(err, UM_EINVAL, "stream", "a line of a batch can't be streamed");
}

/* May free the line. */
static void run_line(line *l) {
    const um_batch_job *b = l->run->batch;
    const um_key *key = um_keys_find(b->store->service->keys, b->owner);
    l->body.generate.priority = UM_MAX(l->body.generate.priority, PRIORITY);
    l->body.key = key ? key->id : 0;
    l->body.generate.tenant = um_tenant_of(l->body.key, NULL);
    l->body.is_batch_line = true;
    b->store->n_lines++;
    l->starting = true;
    um_generation *generation = um_generation_start_detached(b->store->service, &l->body, b->api->writer, on_done, l);
    if (!generation) return; /* on_done was called */
    /* The answer of an aborted line would be stored permanently, so um_generations_abort skips lines. They are canceled
     * with their batch. */
    um_generation_exempt_from_aborts(generation);
    l->generation = generation;
    l->starting = false;
}

static void line_encoded(line *l, um_status s, const um_err *err) {
    if (s) answer_refused(l, err);
    else run_line(l);
}

static void encode_done(void *arg, um_status s, const um_err *err) {
    line *l = arg;
    um_batch_run *r = l->run;
    r->encoding = NULL;
    release_reader(r);
    if (r->is_abandoned) line_free(l);
    else line_encoded(l, s, err);
}

/* May free the line. */
static void start_line(line *l) {
    um_err err = {0};
    um_service *s = l->run->batch->store->service;
    const um_key *key = um_keys_find(s->keys, l->run->batch->owner);
    l->capacity = um_capacity_get(s);
    if (key) l->capacity.answer_tokens = key->limits.max_answer_tokens;
    if (l->is_long) {
        l->run->encoding = l;
        submit_to_reader(l->run, encode_line, encode_done, l);
    } else {
        um_status st = encode_line(l, &err);
        line_encoded(l, st, &err);
    }
}

static um_status read_line(void *arg, um_err *err) {
    um_batch_run *r = arg;
    read_result *res = &r->next;
    (void)err;
    while (res->got == UM_LINES_AGAIN) res->got = um_lines_next(&r->in, true, &res->text, &res->read_error);
    if (res->got != UM_LINES_LINE) return UM_OK;
    res->is_request = um_batch_line_read(r->batch, res->text, &res->parsed, &res->error);
    res->copy = res->is_request ? um_strndup(res->text.p, res->text.n) : NULL;
    return UM_OK;
}

static line *line_new(um_batch_run *r, const read_result *res, const char *custom_id) {
    line *l = UM_NEW(line);
    *l = (line){.run = r, .custom_id = custom_id, .text = res->copy, .n_text = res->text.n, .parsed = res->parsed};
    l->is_long = l->n_text > UM_INLINE_BYTES_MAX || json_object_get(l->parsed.body, "chat_template");
    l->next = r->lines;
    l->link = &r->lines;
    if (l->next) l->next->link = &l->next;
    r->lines = l;
    return l;
}

/* Creates a line from the latest result. Returns NULL if it is not a line of the batch or has an answer. The input was
 * checked before, but somebody may have changed the file since, or the disk may have failed. */
static line *take_result(um_batch_run *r) {
    const read_result *res = &r->next;
    if (res->got == UM_LINES_END) r->all_started = true;
    if (res->got == UM_LINES_TOO_LONG || res->got == UM_LINES_FAILED)
        um_batch_job_add_input_error(r->batch, &r->in, res->got, &res->read_error);
    if (res->got == UM_LINES_FAILED) fail(r);
    if (res->got != UM_LINES_LINE) return NULL;
    if (!res->is_request)
        um_batch_job_add_error(r->batch, r->in.number, res->error.code, res->error.param, "%s", res->error.message);
    const um_idset_entry *e = res->is_request ? um_idset_find(&r->ids, res->parsed.custom_id) : NULL;
    bool is_checked = e && e->line == r->in.number; /* false: the line was moved or copied since the check */
    if (is_checked && !e->answered && !r->is_abandoned) return line_new(r, res, e->key);
    release_line_text(r, res->text.n, res->copy, res->parsed.root);
    return NULL;
}

static void read_line_done(void *arg, um_status s, const um_err *err) {
    (void)s, (void)err;
    release_reader(arg);
    take_result(arg);
}

/* Returns the next line of the input without an answer. NULL: there is none, or the reader is still reading it. */
static line *next_line(um_batch_run *r) {
    read_result *res = &r->next;
    line *l = NULL;
    while (!l && !r->all_started) {
        res->got = um_lines_next_buffered(&r->in, &res->text);
        if (res->got == UM_LINES_AGAIN || (res->got == UM_LINES_LINE && res->text.n > UM_INLINE_BYTES_MAX)) {
            submit_to_reader(r, read_line, read_line_done, r);
            return NULL;
        }
        read_line(r, NULL);
        l = take_result(r);
    }
    return l;
}

static line *waiting_line(um_batch_run *r) {
    line *l = r->lines;
    while (l && l->generation) l = l->next;
    return l;
}

/* Returns the number of lines that may run at once. Leaves a quarter of a limited queue to clients. */
static int32_t max_lines(const um_batch_store *store) {
    const um_server_config *c = store->service->setup.config;
    if (c->max_queue <= 0) return c->batch_concurrency;
    return UM_MIN(c->batch_concurrency, UM_MAX(1, c->max_queue - UM_CEIL_DIV(c->max_queue, 4)));
}

static bool has_room(const um_batch_run *r) {
    const um_batch_store *store = r->batch->store;
    return !store->reader_run && store->n_lines < max_lines(store) && n_unwritten(r) < UNWRITTEN_MAX;
}

static bool is_start_delayed(um_batch_store *store) {
    bool held = um_now() < store->held_until || !um_worker_pool_is_up(store->service->workers);
    if (held) um_batch_store_schedule(store, RETRY_SECONDS);
    return held;
}

/* Returns whether the key of the batch allows another line now. A batch whose key was removed waits until the key is
 * back, or expires. */
static bool key_has_room(const um_batch_job *b) {
    const um_keys *keys = b->store->service->keys;
    if (!*b->owner || um_keys_is_empty(keys)) return true;
    um_key *key = um_keys_find(keys, b->owner);
    bool has = key && key->n_hashes && um_quota_has_room(key);
    if (!has) um_batch_store_schedule(b->store, RETRY_SECONDS);
    return has;
}

static void start_lines(um_batch_run *r) {
    um_batch_store *store = r->batch->store;
    for (int32_t n = 0; has_room(r) && !is_start_delayed(store) && key_has_room(r->batch); n++) {
        if (n == STARTS_MAX) {
            um_batch_store_schedule(store, SOON);
            return;
        }
        line *l = waiting_line(r);
        if (!l && !r->all_started) l = next_line(r);
        if (!l) return;
        start_line(l);
    }
}

/* The line that the reader encodes is freed when it is done. Until then the run does not end. */
void um_batch_run_abandon(um_batch_run *r) {
    r->is_abandoned = true;
    for (line *l = r->lines, *next; l; l = next) {
        next = l->next;
        if (l->generation) {
            um_generation_cancel(l->generation);
            r->batch->store->n_lines--;
        }
        if (l != r->encoding) line_free(l);
    }
}

/* ---- The end ----------------------------------------------------------------------------------------------------- */

static um_status finish_work(void *arg, um_err *err) {
    um_batch_run *r = arg;
    um_status st = UM_OK;
    for (int i = 0; i < N_OUTPUTS && !st; i++) {
        output *o = &r->output[i];
        st = um_ledger_close(&o->ledger, err);
        if (!st) st = um_file_import(r->batch->store, o->file, o->path, err);
    }
    return st;
}

static void finish_done(void *arg, um_status s, const um_err *err) {
    um_batch_run *r = arg;
    um_batch_job *b = r->batch;
    r->busy = false;
    if (s) {
        pause_run(r, err);
        return;
    }
    continue_run(r);
    for (int i = 0; i < N_OUTPUTS; i++) {
        output *o = &r->output[i];
        if (o->file->bytes) um_batch_store_add_file(b->store, o->file);
        else um_file_free(o->file);
        o->file = NULL;
    }
    end_batch(b, b->final_status);
}

static void finish(um_batch_run *r) {
    const um_batch_job *b = r->batch;
    const um_file *input = um_file_find(b->store, b->input_id);
    const char *id[N_OUTPUTS] = {b->output_id, b->error_id};
    for (int i = 0; i < N_OUTPUTS; i++) {
        char name[2 * UM_ID_BYTES];
        output *o = &r->output[i];
        if (o->file) continue; /* created by a failed attempt */
        snprintf(name, sizeof name, "%s_%s.jsonl", b->id, output_kind[i].name);
        o->file = um_file_new(b->store, "batch_output", name, b->output_ttl);
        snprintf(o->file->id, sizeof o->file->id, "%s", id[i]);
        snprintf(o->file->owner, sizeof o->file->owner, "%s", b->owner);
        o->file->tenant = input ? input->tenant : 0;
    }
    submit_job(r, finish_work, finish_done);
}

static void save_finalizing_done(void *arg, um_status s, const um_err *err) {
    um_batch_run *r = arg;
    r->busy = false;
    r->is_finalizing_saved = s == UM_OK;
    if (s) {
        pause_run(r, err);
        return;
    }
    continue_run(r);
    finish(r);
}

/* Saves the status FINALIZING before the answers are moved, so that a restart in between does not run the lines again.
 */
static void save_finalizing(um_batch_run *r) {
    r->busy = true;
    um_batch_job_save(r->batch, save_finalizing_done, r);
}

static bool is_unanswered(const um_idset_entry *e) { return e->key && !e->answered; }

/* Adds an error for each line that was in the input when it was checked and is no longer there. So every line of a
 * completed batch has an answer. */
static void add_lost_errors(um_batch_run *r) {
    for (size_t i = 0; i < r->ids.cap; i++) {
        const um_idset_entry *e = &r->ids.slot[i];
        char message[128];
        if (!is_unanswered(e)) continue;
        snprintf(message, sizeof message, "the input was changed while the batch ran: line %lld is lost",
                 (long long)e->line);
        add_line_error(r, e->key, "line_lost", message);
    }
}

/* Adds an error for each line without an answer. Can be repeated: a line that has its error counts as answered. */
static void expire_remaining(um_batch_run *r) {
    um_batch_job *b = r->batch;
    um_batch_run_abandon(r);
    for (size_t i = 0; i < r->ids.cap; i++)
        if (is_unanswered(&r->ids.slot[i]))
            add_line_error(r, r->ids.slot[i].key, "batch_expired",
                           "the completion window ended before this request was answered");
    b->final_status = UM_BATCH_EXPIRED;
    r->all_started = true;
}

void um_batch_run_cancel(um_batch_job *b) {
    um_batch_job_set_status(b, UM_BATCH_CANCELLING);
    b->final_status = UM_BATCH_CANCELLED;
    um_batch_run_abandon(b->run);
    um_batch_store_schedule(b->store, SOON);
}

/* ---- Advancing --------------------------------------------------------------------------------------------------- */

static void advance_prepared(um_batch_run *r) {
    um_batch_job *b = r->batch;
    bool in_time = time(NULL) < b->expires;
    if (b->status == UM_BATCH_IN_PROGRESS && in_time) start_lines(r);
    if (b->status == UM_BATCH_IN_PROGRESS && !in_time && b->final_status != UM_BATCH_FAILED) expire_remaining(r);
    bool no_more = r->all_started || b->status == UM_BATCH_CANCELLING;
    bool is_idle = no_more && !r->lines && b->store->reader_run != r;
    if (is_idle && b->final_status == UM_BATCH_COMPLETED) add_lost_errors(r);
    um_batch_run_flush(r);
    if (!is_idle || r->busy || n_unwritten(r)) return;
    um_batch_job_set_status(b, UM_BATCH_FINALIZING);
    save_finalizing(r);
}

void um_batch_run_advance(um_batch_job *b) {
    um_batch_run *r = b->run;
    if (b->unsaved) um_batch_job_save(b, NULL, NULL);
    if (!r) return;
    if (um_now() < r->not_before) {
        um_batch_store_schedule(b->store, r->not_before - um_now());
    } else if (b->status == UM_BATCH_FINALIZING) {
        if (!r->busy && r->is_finalizing_saved) finish(r);
        else if (!r->busy) save_finalizing(r);
    } else if (r->prepared) {
        advance_prepared(r);
    } else if (!r->busy) {
        prepare(r);
    }
}
