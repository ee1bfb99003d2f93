/* Running a batch: input checked, lines started, answers written, the end.
 *
 * Each step is tried until it works: a disk without room makes a batch stand still, with the reason in its record, and
 * go on when there is room again. A line that a worker was answering when it died, or that the server had no place for,
 * is started again; one that fails RETRIES times has failed. */
#include <jansson.h>
#include <time.h>

#include "server/batch/store.h"
#include "server/reading.h"

enum {
    PRIORITY = 1000, /* lines are behind the requests of clients, which have 0 */
    RETRIES = 3,
    STARTS_MAX = 32,  /* lines that are started before others get the loop */
    PENDING_MAX = 256 /* answers that wait for the disk; beyond, no line is started */
};
static const double SOON = 0, LATER = 0.25, AFTER_TROUBLE = 2; /* seconds */

enum { ANSWERS, FAILURES, N_OUTPUTS };
static const struct {
    const char *ending, *name; /* of the answers so far, and of the file that they become */
} output_kind[N_OUTPUTS] = {{".out", "output"}, {".err", "error"}};

/* One of the two files that answers go to. */
typedef struct output {
    char *path;
    um_ledger ledger;
    um_buf pending, writing; /* answers: for the next job, and in its hands */
    int64_t n_pending, n_writing;
    um_file *file; /* at the end */
} output;

/* A line on its way: it runs, or waits to be started. */
typedef struct line {
    um_run *run;
    const char *custom_id; /* the set's */
    char *text;            /* it is parsed again when it is started again: two threads do not share JSON */
    size_t n_text;
    bool is_long;       /* its work is too much for the loop */
    um_batch_line what; /* before it is encoded for the first time */
    um_room room;
    um_body body;  /* what it was encoded into, before it runs */
    um_turn *turn; /* NULL: it waits, or is read */
    int32_t tries;
    bool starting;             /* no worker has it yet */
    struct line *next, **link; /* link: what points at it */
} line;

/* The next line of the input, or what there is in its place. */
typedef struct found {
    um_lines_got got;
    um_str text; /* of UM_LINES_LINE; lives in the run's `in` */
    bool is_request;
    char *copy; /* of the text of a request */
    um_batch_line what;
    um_batch_error wrong; /* of a line that is no request */
    um_err why;           /* of UM_LINES_FAILED */
} found;

struct um_run {
    um_batch *batch;
    um_file *source; /* its input, NULL: somebody took it from the folder */
    char *input;
    um_lines in; /* like `next` the reader's while that looks for a line */
    found next;
    um_idset ids;
    output output[N_OUTPUTS];
    bool busy;       /* a job of it is with the disk's thread */
    um_batch *draft; /* what the first job finds out */
    bool prepared, all_started;
    bool sealed;   /* the record on the disk says that it is being finalized */
    bool given_up; /* no line is started any more */
    line *lines;
    line *encoding;    /* one of them, which the reader has; NULL: none */
    double not_before; /* after trouble */
};

/* ---- Life -------------------------------------------------------------------------------------------------------- */

void um_run_new(um_batch *b) {
    um_run *r = UM_NEW(um_run);
    b->run = r;
    r->batch = b;
    r->source = um_file_find(b->all, b->input_id);
    if (r->source) r->source->n_readers++;
    r->input = um_file_path(b->all, b->input_id);
    r->in.fd = -1;
    r->sealed = b->status == UM_BATCH_FINALIZING;
    for (int i = 0; i < N_OUTPUTS; i++) {
        r->output[i].path = um_batch_path(b->all, b->id, output_kind[i].ending);
        r->output[i].ledger.fd = -1;
    }
}

static void free_json(void *root) { json_decref(root); }

static void release_text(const um_run *r, size_t n, char *text, json_t *root) {
    um_release(r->batch->all->server, n, um_free, text);
    um_release(r->batch->all->server, n, free_json, root);
}

static void line_free(line *l) {
    *l->link = l->next;
    if (l->next) l->next->link = l->link;
    um_body_release(&l->body);
    release_text(l->run, l->n_text, l->text, l->what.root);
    um_free(l);
}

static void close_ledgers(um_run *r) {
    for (int i = 0; i < N_OUTPUTS; i++) (void)um_ledger_close(&r->output[i].ledger, NULL);
}

void um_run_free(um_run *r) {
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

/* The disk said no: the batch stands still for a while. */
static void stand_still(um_run *r, const um_err *err) {
    um_batch *b = r->batch;
    if (!b->trouble) um_warn("batch %s stands still: %s", b->id, err->msg);
    b->trouble = true;
    r->not_before = um_now() + AFTER_TROUBLE;
    um_batches_wake(b->all, AFTER_TROUBLE);
}

static void go_on(um_run *r) {
    um_batch *b = r->batch;
    if (b->trouble) um_log(UM_LOG_INFO, "batch %s goes on", b->id);
    b->trouble = false;
}

static void give_job(um_run *r, um_status (*work)(void *, um_err *), void (*done)(void *, um_status, const um_err *)) {
    r->busy = true;
    um_jobs_give(r->batch->all->disk, &(um_job){work, done, r, 0});
}

/* ---- Before the first line --------------------------------------------------------------------------------------- */

/* Whether lines of it may have answers: its input was found to be right once. */
static bool has_begun(const um_batch *b) { return b->at[UM_BATCH_IN_PROGRESS] != 0; }

static um_status prepare_work(void *arg, um_err *err) {
    um_run *r = arg;
    um_batch *b = r->draft;
    int64_t *count[N_OUTPUTS] = {&b->completed, &b->failed};
    int64_t total = b->total;
    um_status st = UM_OK;
    um_idset_free(&r->ids); /* of an attempt that failed */
    um_batch_check(b, r->input, &r->ids);
    if (b->n_errors && !has_begun(b)) return UM_OK;
    if (b->n_errors) { /* the ids are not all of them */
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

static void take_draft(um_run *r) {
    um_batch *b = r->batch;
    b->total = r->draft->total;
    b->completed = r->draft->completed;
    b->failed = r->draft->failed;
    b->n_errors = r->draft->n_errors;
    memcpy(b->error, r->draft->error, sizeof b->error);
}

/* It is over; its input may expire now. */
static void end_batch(um_batch *b, um_batch_status s) {
    um_batch_enter(b, s);
    um_batch_save(b, NULL, NULL);
    um_run_free(b->run);
    b->run = NULL;
    um_batches_wake(b->all, SOON);
}

/* The input can't be read, or isn't what it was: no further line is started, and what was answered becomes files. */
static void fail(um_run *r) {
    um_batch *b = r->batch;
    r->all_started = true;
    if (b->ends_as != UM_BATCH_COMPLETED) return; /* it was cancelled, or its window has ended */
    um_warn("batch %s fails: %s", b->id, b->error[b->n_errors - 1].message);
    b->ends_as = UM_BATCH_FAILED;
}

static void prepare_done(void *arg, um_status s, const um_err *err) {
    um_run *r = arg;
    um_batch *b = r->batch;
    um_err own = *err;
    r->busy = false;
    take_draft(r);
    if (!s && !b->n_errors) s = um_lines_open(&r->in, r->input, &own);
    if (s) {
        stand_still(r, &own);
        return;
    }
    if (b->n_errors && !has_begun(b)) {
        end_batch(b, UM_BATCH_FAILED);
        return;
    }
    go_on(r);
    r->prepared = true;
    if (b->n_errors) fail(r);
    if (b->status == UM_BATCH_VALIDATING) {
        um_batch_enter(b, UM_BATCH_IN_PROGRESS);
        um_batch_save(b, NULL, NULL);
    }
    um_batches_wake(b->all, SOON);
}

static void prepare(um_run *r) {
    um_free(r->draft);
    r->draft = UM_NEW(um_batch);
    *r->draft = *r->batch;
    give_job(r, prepare_work, prepare_done);
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

static void end_answer(um_run *r, output *to, um_jw *w, const char *custom_id) {
    um_jw_end_object(w);
    um_buf_putc(&to->pending, '\n');
    to->n_pending++;
    um_idset_find(&r->ids, custom_id)->answered = true;
}

/* json: what a client would have got. */
static void add_answer(um_run *r, const char *custom_id, int status, const um_buf *json) {
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

/* A line that never ran. */
static void add_error(um_run *r, const char *custom_id, const char *code, const char *message) {
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
    um_run *r = arg;
    um_status st = UM_OK;
    for (int i = 0; i < N_OUTPUTS && !st; i++) {
        um_buf *b = &r->output[i].writing;
        if (b->len) st = um_ledger_commit(&r->output[i].ledger, (um_str){b->data, b->len}, err);
        if (!st) um_buf_clear(b); /* it must not be written twice */
    }
    return st;
}

static void write_done(void *arg, um_status s, const um_err *err) {
    um_run *r = arg;
    um_batch *b = r->batch;
    int64_t *count[N_OUTPUTS] = {&b->completed, &b->failed};
    int64_t *in_all[N_OUTPUTS] = {&b->all->lines_completed, &b->all->lines_failed};
    r->busy = false;
    for (int i = 0; i < N_OUTPUTS; i++) {
        output *o = &r->output[i];
        if (o->writing.len) continue;
        *count[i] += o->n_writing;
        *in_all[i] += o->n_writing;
        o->n_writing = 0;
    }
    if (s) {
        stand_still(r, err);
        return;
    }
    go_on(r);
    if (b->all->stopping) um_run_flush(r);
    um_batches_wake(b->all, SOON);
}

static int64_t n_unwritten(const um_run *r) {
    int64_t n = 0;
    for (int i = 0; i < N_OUTPUTS; i++) n += r->output[i].n_pending + r->output[i].n_writing;
    return n;
}

void um_run_flush(um_run *r) {
    if (r->busy || !n_unwritten(r)) return;
    for (int i = 0; i < N_OUTPUTS; i++) {
        output *o = &r->output[i];
        um_buf_append(&o->writing, o->pending.data ? o->pending.data : "", o->pending.len);
        o->n_writing += o->n_pending;
        um_buf_clear(&o->pending);
        o->n_pending = 0;
    }
    give_job(r, write_work, write_done);
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

/* A short line is found, parsed and encoded on the loop; for a long one each of the two steps is a job of the reader.
 * Between them the loop looks whether it was answered already. */
static void read_beside(um_run *r, um_status (*work)(void *, um_err *), void (*done)(void *, um_status, const um_err *),
                        void *arg) {
    r->batch->all->reading = r;
    um_jobs_give(r->batch->all->reader, &(um_job){work, done, arg, 0});
}

static void end_reading(um_run *r) {
    r->batch->all->reading = NULL;
    um_batches_wake(r->batch->all, SOON);
}

static void answer_line(line *l, int status, const um_buf *json) {
    add_answer(l->run, l->custom_id, status, json);
    line_free(l);
}

/* The turn has ended. 429 and 503 when it was started: there was no place for it, or no worker. */
static void on_done(void *arg, int status, um_buf *json) {
    line *l = arg;
    um_batches *all = l->run->batch->all;
    l->turn = NULL;
    all->n_lines--;
    bool refused = l->starting && (status == 429 || status == 503);
    bool again = refused || (status >= 500 && ++l->tries < RETRIES);
    if (again) all->held_until = um_now() + LATER;
    else answer_line(l, status, json);
    um_batches_wake(all, SOON);
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
    const um_batch *b = l->run->batch;
    um_batch_error none; /* it was read before */
    if (!l->what.root) um_batch_line_read(b->api, (um_str){l->text, l->n_text}, &l->what, &none);
    json_t *body = json_incref(l->what.body);
    json_decref(l->what.root);
    l->what = (um_batch_line){0};
    um_status st = um_api_read(b->api, b->all->server, &l->room, body, &l->body, err);
    l->body.bytes = l->n_text;
    if (st || !l->body.stream) return st;
    return um_fail_param(err, UM_EINVAL, "stream", "a line of a batch is answered as a whole");
}

/* The line may be gone behind this. */
static void run_line(line *l) {
    const um_batch *b = l->run->batch;
    l->body.generate.priority = UM_MAX(l->body.generate.priority, PRIORITY);
    b->all->n_lines++;
    l->starting = true;
    um_turn *turn = um_turn_detached(b->all->server, &l->body, b->api->shape, on_done, l);
    if (!turn) return;   /* on_done was called */
    um_turn_spare(turn); /* an answer that was cut would stay for good; what ends lines is the end of their batch */
    l->turn = turn;
    l->starting = false;
}

static void line_encoded(line *l, um_status s, const um_err *err) {
    if (s) answer_refused(l, err);
    else run_line(l);
}

static void encode_done(void *arg, um_status s, const um_err *err) {
    line *l = arg;
    um_run *r = l->run;
    r->encoding = NULL;
    end_reading(r);
    if (r->given_up) line_free(l);
    else line_encoded(l, s, err);
}

/* The line may be gone behind this. */
static void start_line(line *l) {
    um_err err = {0};
    l->room = um_room_of(l->run->batch->all->server);
    if (l->is_long) {
        l->run->encoding = l;
        read_beside(l->run, encode_line, encode_done, l);
    } else {
        um_status st = encode_line(l, &err);
        line_encoded(l, st, &err);
    }
}

static um_status find_line(void *arg, um_err *err) {
    um_run *r = arg;
    found *f = &r->next;
    (void)err;
    while (f->got == UM_LINES_LATER) f->got = um_lines_next(&r->in, true, &f->text, &f->why);
    if (f->got != UM_LINES_LINE) return UM_OK;
    f->is_request = um_batch_line_read(r->batch->api, f->text, &f->what, &f->wrong);
    f->copy = f->is_request ? um_strndup(f->text.p, f->text.n) : NULL;
    return UM_OK;
}

static line *line_new(um_run *r, const found *f, const char *custom_id) {
    line *l = UM_NEW(line);
    *l = (line){.run = r, .custom_id = custom_id, .text = f->copy, .n_text = f->text.n, .what = f->what};
    l->is_long = l->n_text > UM_READ_AT_ONCE || json_object_get(l->what.body, "chat_template");
    l->next = r->lines;
    l->link = &r->lines;
    if (l->next) l->next->link = &l->next;
    r->lines = l;
    return l;
}

/* What was found becomes a line that waits; NULL: it is none, or was answered. The input was checked, but its file may
 * have been changed since by somebody, or its disk may have failed. */
static line *take_found(um_run *r) {
    const found *f = &r->next;
    if (f->got == UM_LINES_END) r->all_started = true;
    if (f->got == UM_LINES_TOO_LONG || f->got == UM_LINES_FAILED)
        um_batch_blame_input(r->batch, &r->in, f->got, &f->why);
    if (f->got == UM_LINES_FAILED) fail(r);
    if (f->got != UM_LINES_LINE) return NULL;
    if (!f->is_request) um_batch_blame(r->batch, r->in.number, f->wrong.code, f->wrong.param, "%s", f->wrong.message);
    const um_idset_entry *e = f->is_request ? um_idset_find(&r->ids, f->what.custom_id) : NULL;
    bool is_checked = e && e->line == r->in.number; /* not a copy of another line */
    if (is_checked && !e->answered && !r->given_up) return line_new(r, f, e->key);
    release_text(r, f->text.n, f->copy, f->what.root);
    return NULL;
}

static void find_done(void *arg, um_status s, const um_err *err) {
    (void)s, (void)err;
    end_reading(arg);
    take_found(arg);
}

/* The next line of the input that was not answered. NULL: there is none, or it is looked for beside the loop. */
static line *next_line(um_run *r) {
    found *f = &r->next;
    line *l = NULL;
    while (!l && !r->all_started) {
        f->got = um_lines_here(&r->in, &f->text);
        if (f->got == UM_LINES_LATER || (f->got == UM_LINES_LINE && f->text.n > UM_READ_AT_ONCE)) {
            read_beside(r, find_line, find_done, r);
            return NULL;
        }
        find_line(r, NULL);
        l = take_found(r);
    }
    return l;
}

static line *waiting_line(um_run *r) {
    line *l = r->lines;
    while (l && l->turn) l = l->next;
    return l;
}

/* Lines that may run at once. A quarter of a limited queue stays free for clients. */
static int32_t most_lines(const um_batches *all) {
    const um_server_config *c = um_server_get_config(all->server);
    if (c->max_queue <= 0) return c->batch_concurrency;
    return UM_MIN(c->batch_concurrency, UM_MAX(1, c->max_queue - UM_CEIL_DIV(c->max_queue, 4)));
}

static bool has_room(const um_run *r) {
    const um_batches *all = r->batch->all;
    return !all->reading && all->n_lines < most_lines(all) && n_unwritten(r) < PENDING_MAX;
}

static bool is_held(um_batches *all) {
    bool held = um_now() < all->held_until || !um_backend_is_up(um_server_backend(all->server));
    if (held) um_batches_wake(all, LATER);
    return held;
}

static void start_lines(um_run *r) {
    um_batches *all = r->batch->all;
    for (int32_t n = 0; has_room(r) && !is_held(all); n++) {
        if (n == STARTS_MAX) {
            um_batches_wake(all, SOON);
            return;
        }
        line *l = waiting_line(r);
        if (!l && !r->all_started) l = next_line(r);
        if (!l) return;
        start_line(l);
    }
}

/* What the reader has comes back by itself; until then the run is not over. */
void um_run_give_up(um_run *r) {
    r->given_up = true;
    for (line *l = r->lines, *next; l; l = next) {
        next = l->next;
        if (l->turn) {
            um_turn_cancel(l->turn);
            r->batch->all->n_lines--;
        }
        if (l != r->encoding) line_free(l);
    }
}

/* ---- The end ----------------------------------------------------------------------------------------------------- */

static um_status finish_work(void *arg, um_err *err) {
    um_run *r = arg;
    um_status st = UM_OK;
    for (int i = 0; i < N_OUTPUTS && !st; i++) {
        output *o = &r->output[i];
        st = um_ledger_close(&o->ledger, err);
        if (!st) st = um_file_adopt(r->batch->all, o->file, o->path, err);
    }
    return st;
}

static void finish_done(void *arg, um_status s, const um_err *err) {
    um_run *r = arg;
    um_batch *b = r->batch;
    r->busy = false;
    if (s) {
        stand_still(r, err);
        return;
    }
    go_on(r);
    for (int i = 0; i < N_OUTPUTS; i++) {
        output *o = &r->output[i];
        if (o->file->bytes) um_file_list(b->all, o->file);
        else um_file_free(o->file);
        o->file = NULL;
    }
    end_batch(b, b->ends_as);
}

static void finish(um_run *r) {
    const um_batch *b = r->batch;
    const char *id[N_OUTPUTS] = {b->output_id, b->error_id};
    for (int i = 0; i < N_OUTPUTS; i++) {
        char name[2 * UM_ID_BYTES];
        output *o = &r->output[i];
        if (o->file) continue; /* of an attempt that failed */
        snprintf(name, sizeof name, "%s_%s.jsonl", b->id, output_kind[i].name);
        o->file = um_file_new(b->all, "batch_output", name, b->output_ttl);
        snprintf(o->file->id, sizeof o->file->id, "%s", id[i]);
    }
    give_job(r, finish_work, finish_done);
}

static void seal_done(void *arg, um_status s, const um_err *err) {
    um_run *r = arg;
    r->busy = false;
    r->sealed = s == UM_OK;
    if (s) {
        stand_still(r, err);
        return;
    }
    go_on(r);
    finish(r);
}

/* The record says that the end has come before the answers are moved: a start in between does not look for them. */
static void seal(um_run *r) {
    r->busy = true;
    um_batch_save(r->batch, seal_done, r);
}

static bool is_open(const um_idset_entry *e) { return e->key && !e->answered; }

/* All that the input has was answered. What it had when it was checked, and has no more, gets its error: no line is
 * without an answer in a batch that is completed. */
static void answer_lost(um_run *r) {
    for (size_t i = 0; i < r->ids.cap; i++) {
        const um_idset_entry *e = &r->ids.slot[i];
        char message[128];
        if (!is_open(e)) continue;
        snprintf(message, sizeof message, "the input was changed while the batch ran: its line %lld is lost",
                 (long long)e->line);
        add_error(r, e->key, "line_lost", message);
    }
}

/* May be done again: what has its error is not in the rest. */
static void expire_rest(um_run *r) {
    um_batch *b = r->batch;
    um_run_give_up(r);
    for (size_t i = 0; i < r->ids.cap; i++)
        if (is_open(&r->ids.slot[i]))
            add_error(r, r->ids.slot[i].key, "batch_expired",
                      "the completion window ended before this request was answered");
    b->ends_as = UM_BATCH_EXPIRED;
    r->all_started = true;
}

void um_run_cancel(um_batch *b) {
    um_batch_enter(b, UM_BATCH_CANCELLING);
    b->ends_as = UM_BATCH_CANCELLED;
    um_run_give_up(b->run);
    um_batches_wake(b->all, SOON);
}

/* ---- Advancing --------------------------------------------------------------------------------------------------- */

static void advance_prepared(um_run *r) {
    um_batch *b = r->batch;
    bool in_time = time(NULL) < b->expires;
    if (b->status == UM_BATCH_IN_PROGRESS && in_time) start_lines(r);
    if (b->status == UM_BATCH_IN_PROGRESS && !in_time && b->ends_as != UM_BATCH_FAILED) expire_rest(r);
    bool no_more = r->all_started || b->status == UM_BATCH_CANCELLING;
    bool is_idle = no_more && !r->lines && b->all->reading != r;
    if (is_idle && b->ends_as == UM_BATCH_COMPLETED) answer_lost(r);
    um_run_flush(r);
    if (!is_idle || r->busy || n_unwritten(r)) return;
    um_batch_enter(b, UM_BATCH_FINALIZING);
    seal(r);
}

void um_run_advance(um_batch *b) {
    um_run *r = b->run;
    if (b->unsaved) um_batch_save(b, NULL, NULL);
    if (!r) return;
    if (um_now() < r->not_before) {
        um_batches_wake(b->all, r->not_before - um_now());
    } else if (b->status == UM_BATCH_FINALIZING) {
        if (!r->busy && r->sealed) finish(r);
        else if (!r->busy) seal(r);
    } else if (r->prepared) {
        advance_prepared(r);
    } else if (!r->busy) {
        prepare(r);
    }
}
