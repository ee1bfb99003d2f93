/* Result lines and their file. */
#include "cli/results.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/requests.h"

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

static void put_ints(um_jw *w, const int32_t *v, size_t n) {
    um_jw_begin_array(w);
    for (size_t i = 0; i < n; i++) um_jw_int(w, v[i]);
    um_jw_end_array(w);
}

static void put_int(um_jw *w, const char *key, int64_t v) {
    um_jw_key(w, key);
    um_jw_int(w, v);
}

static void put_seconds(um_jw *w, const char *key, double v) {
    um_jw_key(w, key);
    um_jw_double(w, v);
}

/* A token may be part of a character: its text shows U+FFFD then, and only its bytes say what it is. */
static void put_token(um_jw *w, const um_tok *tok, int32_t id, float logprob) {
    char text[UM_NUMBER_MAX];
    um_str bytes = um_tok_bytes(tok, id);
    um_jw_key(w, "token");
    um_jw_str(w, bytes.p ? bytes.p : "", bytes.n);
    put_int(w, "token_id", id);
    um_jw_key(w, "logprob");
    if (logprob == logprob && logprob > -INFINITY) {
        um_format_float(logprob, text);
        um_jw_raw(w, text, strlen(text));
    } else {
        um_jw_null(w);
    }
    um_jw_key(w, "bytes");
    um_jw_begin_array(w);
    for (size_t i = 0; i < bytes.n; i++) um_jw_int(w, (uint8_t)bytes.p[i]);
    um_jw_end_array(w);
}

/* As chat completions of the OpenAI style have them. */
static void put_logprobs(um_jw *w, const um_result *r, const um_tok *tok) {
    size_t n = (size_t)r->n_likeliest;
    um_jw_key(w, "logprobs");
    um_jw_begin_object(w);
    um_jw_key(w, "content");
    um_jw_begin_array(w);
    for (size_t i = 0; i < r->n_tokens; i++) {
        um_jw_begin_object(w);
        put_token(w, tok, r->token_ids[i], r->logprob[i]);
        um_jw_key(w, "top_logprobs");
        um_jw_begin_array(w);
        for (size_t k = i * n; k < (i + 1) * n && r->likeliest[k].id >= 0; k++) {
            um_jw_begin_object(w);
            put_token(w, tok, r->likeliest[k].id, r->likeliest[k].logprob);
            um_jw_end_object(w);
        }
        um_jw_end_array(w);
        um_jw_end_object(w);
    }
    um_jw_end_array(w);
    um_jw_end_object(w);
}

static void put_timings(um_jw *w, const um_result *r) {
    put_int(w, "cached_tokens", r->cached_tokens);
    put_int(w, "preemptions", r->preemptions);
    um_jw_key(w, "timings");
    um_jw_begin_object(w);
    put_seconds(w, "queue_seconds", r->queue_seconds);
    put_seconds(w, "first_token_seconds", r->first_token_seconds);
    put_seconds(w, "total_seconds", r->total_seconds);
    um_jw_end_object(w);
}

void um_result_put(um_jw *w, const um_result *r, const um_result_extras *x) {
    um_jw_key(w, "token_ids");
    put_ints(w, r->token_ids, r->n_tokens);
    um_jw_key(w, "text");
    um_jw_str(w, r->text, r->text_len);
    um_jw_key(w, "finish_reason");
    um_jw_cstr(w, um_finish_name(r->finish));
    if (r->stop || r->stop_id >= 0) {
        um_jw_key(w, "stop_reason");
        if (r->stop) um_jw_cstr(w, r->stop);
        else um_jw_int(w, r->stop_id);
    }
    put_int(w, "nfe", r->nfe);
    put_int(w, "seed", r->seed);
    put_int(w, "prompt_tokens", r->prompt_tokens);
    put_int(w, "completion_tokens", (int64_t)r->n_tokens);
    if (r->logprob) put_logprobs(w, r, x->tok);
    if (x->step_map) {
        um_jw_key(w, "step_map");
        put_ints(w, r->pass, r->n_tokens);
    }
    if (x->timings) put_timings(w, r);
    if (x->trace.n) {
        um_jw_key(w, "trace");
        um_jw_raw(w, x->trace.p, x->trace.n);
    }
}

void um_error_line(um_buf *out, const char *id, int64_t line, const um_err *e) {
    um_jw w;
    um_jw_init(&w, out);
    um_jw_begin_object(&w);
    um_jw_key(&w, "id");
    if (id) {
        um_jw_raw(&w, id, strlen(id));
    } else {
        um_jw_null(&w);
        put_int(&w, "line", line);
    }
    um_jw_key(&w, "error");
    um_jw_begin_object(&w);
    um_jw_key(&w, "code");
    um_jw_cstr(&w, um_status_name(e->code));
    um_jw_key(&w, "message");
    um_jw_cstr(&w, e->msg);
    um_jw_end_object(&w);
    um_jw_end_object(&w);
}

void um_trace_entry(um_jw *w, const um_trace *t) {
    um_jw_begin_object(w);
    um_jw_key(w, "prefill");
    um_jw_bool(w, t->prefill);
    um_jw_key(w, "new");
    um_jw_int(w, t->n_new);
    um_jw_key(w, "blocks");
    put_ints(w, t->block, (size_t)t->n_blocks);
    um_jw_key(w, "tokens");
    put_ints(w, t->token, (size_t)t->n_tokens);
    um_jw_key(w, "state");
    um_jw_begin_array(w);
    for (int32_t i = 0; i < t->n_blocks; i++) {
        um_jw_begin_array(w);
        um_jw_int(w, t->block[i]);
        um_jw_cstr(w, t->status[i]);
        um_jw_int(w, t->masks[i]);
        um_jw_end_array(w);
    }
    um_jw_end_array(w);
    um_jw_end_object(w);
}

/* ---- The file ---------------------------------------------------------------------------------------------------- */

um_status um_results_open(um_results *r, const char *path, um_err *err) {
    bool standard = um_streq(path, "-");
    struct stat st;
    *r = (um_results){.name = standard ? "standard output" : path};
    r->fd = standard ? dup(STDOUT_FILENO) : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (r->fd < 0) return um_fail(err, UM_EIO, "cannot write %s: %s", r->name, strerror(errno));
    r->file = !standard && fstat(r->fd, &st) == 0 && S_ISREG(st.st_mode);
    if (!r->file || flock(r->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return UM_OK;
    close(r->fd);
    r->fd = -1;
    return um_fail(err, UM_EINVAL, "another run writes %s now; wait for it or name another output", path);
}

bool um_results_same(const um_results *r, const um_lines *in) {
    struct stat a, b;
    return r->file && fstat(r->fd, &a) == 0 && fstat(in->fd, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* The key of a result line in the set of ids. Anything but a result is UM_EPARSE. */
static um_status key_of(um_str line, um_buf *key, bool *failed, um_err *err) {
    json_t *root = NULL;
    um_status st = um_line_object(&root, line, err);
    if (!st && json_is_null(json_object_get(root, "id"))) {
        um_buf_clear(key);
        um_buf_printf(key, "line %lld", (long long)json_integer_value(json_object_get(root, "line")));
    } else if (!st) {
        st = um_line_id(root, key, err);
    }
    *failed = json_object_get(root, "error") != NULL;
    if (!st && !*failed && !json_object_get(root, "token_ids") && !json_object_get(root, "choices"))
        st = um_fail(err, UM_EPARSE, "it has neither token_ids nor choices nor error");
    json_decref(root);
    return st;
}

static um_status mark_answered(um_results *r, const um_lines *l, um_idset *ids, const char *key, bool failed,
                               um_err *err) {
    um_idset_entry *e = um_idset_find(ids, key);
    if (!e)
        return um_fail(err, UM_EINVAL,
                       "%s:%lld answers %.80s, which the input does not ask: the file belongs to another run; name "
                       "another output or pass --overwrite",
                       r->name, (long long)l->number, key);
    if (e->answered)
        return um_fail(err, UM_EINVAL, "%s:%lld answers %.80s a second time; pass --overwrite to start anew", r->name,
                       (long long)l->number, key);
    e->answered = true;
    r->n_answered++;
    r->n_failed += failed;
    r->keep = l->offset;
    return UM_OK;
}

/* A broken line may be the one that was being written when the run died, but only if it is the last one. */
static um_status check_last(um_results *r, um_lines *l, um_err *err) {
    long long number = (long long)l->number;
    um_str line;
    um_lines_got got = um_lines_next(l, true, &line, err);
    if (got == UM_LINES_END) return UM_OK;
    char why[UM_ERR_MAX / 2];
    snprintf(why, sizeof why, "%.200s", err->msg);
    return um_fail(err, UM_EINVAL, "%.120s:%lld is no result (%s); name another output or pass --overwrite", r->name,
                   number, why);
}

/* One line of an earlier run; *more: there may be another. */
static um_status resume_line(um_results *r, um_lines *l, um_str line, um_idset *ids, bool *more, um_err *err) {
    um_buf key = {0};
    bool failed;
    um_status st = UM_OK;
    *more = !l->cut;
    if (l->cut) return UM_OK; /* it is redone, even if only its newline is missing */
    if (key_of(line, &key, &failed, err)) {
        *more = false;
        st = check_last(r, l, err);
    } else {
        st = mark_answered(r, l, ids, key.data, failed, err);
    }
    um_buf_free(&key);
    return st;
}

um_status um_results_resume(um_results *r, um_idset *ids, um_err *err) {
    um_err own, *e = err ? err : &own;
    um_lines l;
    um_status st = UM_OK;
    um_lines_from(&l, dup(r->fd), r->name);
    for (bool more = true; more && !st;) {
        um_str line;
        um_lines_got got = um_lines_next(&l, true, &line, e);
        if (got == UM_LINES_LINE) st = resume_line(r, &l, line, ids, &more, e);
        if (got == UM_LINES_FAILED) st = e->code;
        if (got == UM_LINES_TOO_LONG)
            st = um_fail(e, UM_EINVAL, "%s:%lld is longer than %zu bytes", r->name, (long long)l.number, UM_LINE_MAX);
        if (got == UM_LINES_END) more = false;
    }
    um_lines_close(&l);
    return st;
}

um_status um_results_begin(um_results *r, um_err *err) {
    if (!r->file) return UM_OK;
    if (ftruncate(r->fd, (off_t)r->keep) == 0 && lseek(r->fd, (off_t)r->keep, SEEK_SET) >= 0) return UM_OK;
    return um_fail(err, UM_EIO, "cannot cut %s to %lld bytes: %s", r->name, (long long)r->keep, strerror(errno));
}

um_status um_results_write(um_results *r, um_buf *line, um_err *err) {
    um_buf_putc(line, '\n');
    for (size_t at = 0; at < line->len;) {
        ssize_t n = write(r->fd, line->data + at, line->len - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return um_fail(err, UM_EIO, "cannot write %s: %s", r->name, strerror(errno));
        at += (size_t)n;
    }
    return UM_OK;
}

um_status um_results_close(um_results *r, um_err *err) {
    int fd = r->fd;
    r->fd = -1;
    if (fd < 0 || close(fd) == 0) return UM_OK;
    return um_fail(err, UM_EIO, "cannot write %s: %s", r->name, strerror(errno));
}
