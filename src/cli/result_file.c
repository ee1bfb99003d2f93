/* Writes result lines and their file. */
#include "cli/result_file.h"

#include <jansson.h>
#include <sys/stat.h>

#include "cli/requests.h"

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

/* Writes a token. If it is only a part of a character, its text has U+FFFD; the member "bytes" is always exact. */
static void put_token(um_jw *w, const um_tok *tok, int32_t id, float logprob) {
    um_str bytes = um_tok_bytes(tok, id);
    um_jw_put_str(w, "token", bytes);
    um_jw_put_int(w, "token_id", id);
    um_jw_key(w, "logprob");
    um_jw_float(w, logprob);
    um_jw_put_bytes(w, "bytes", bytes);
}

/* Writes log-probabilities in the form of OpenAI's chat completions. */
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
    um_jw_put_int(w, "cached_tokens", r->cached_tokens);
    um_jw_put_int(w, "preemptions", r->preemptions);
    um_jw_key(w, "timings");
    um_jw_begin_object(w);
    um_jw_put_seconds(w, "queue_seconds", r->queue_seconds);
    um_jw_put_seconds(w, "first_token_seconds", r->first_token_seconds);
    um_jw_put_seconds(w, "total_seconds", r->total_seconds);
    um_jw_end_object(w);
}

/* A server may report the number of tokens without their ids; "token_ids" is null then. */
void um_result_put(um_jw *w, const um_result *r, const um_result_extras *x) {
    um_jw_key(w, "token_ids");
    if (r->token_ids || !r->n_tokens) um_jw_ints(w, r->token_ids, r->n_tokens);
    else um_jw_null(w);
    um_jw_put_str(w, "text", (um_str){r->text, r->text_len});
    um_jw_put_cstr(w, "finish_reason", um_finish_name(r->finish));
    if (r->stop || r->stop_id >= 0) {
        um_jw_key(w, "stop_reason");
        if (r->stop) um_jw_cstr(w, r->stop);
        else um_jw_int(w, r->stop_id);
    }
    um_jw_put_int(w, "nfe", r->nfe);
    um_jw_put_int(w, "seed", r->seed);
    um_jw_put_int(w, "prompt_tokens", r->prompt_tokens);
    um_jw_put_int(w, "completion_tokens", (int64_t)r->n_tokens);
    if (r->logprob) put_logprobs(w, r, x->tok);
    if (x->step_map) um_jw_put_ints(w, "step_map", r->pass, r->n_tokens);
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
        um_jw_put_int(&w, "line", line);
    }
    um_jw_key(&w, "error");
    um_jw_begin_object(&w);
    um_jw_put_cstr(&w, "code", um_status_name(e->code));
    um_jw_put_cstr(&w, "message", e->msg);
    um_jw_end_object(&w);
    um_jw_end_object(&w);
}

void um_trace_entry(um_jw *w, const um_trace *t) {
    um_jw_begin_object(w);
    um_jw_put_bool(w, "prefill", t->prefill);
    um_jw_put_int(w, "new", t->n_new);
    um_jw_put_ints(w, "blocks", t->block, (size_t)t->n_blocks);
    um_jw_put_ints(w, "tokens", t->token, (size_t)t->n_tokens);
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

um_status um_result_file_open(um_result_file *r, const char *path, um_err *err) {
    *r = (um_result_file){0};
    return um_ledger_open(&r->ledger, path, err);
}

bool um_result_file_same(const um_result_file *r, const um_lines *in) {
    struct stat a, b;
    return r->ledger.file && fstat(r->ledger.fd, &a) == 0 && fstat(in->fd, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* Reads the key of a result line in the set of ids. UM_EPARSE or UM_EINVAL if the line is not a result. */
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
        st = um_fail(err, UM_EPARSE, "the line has none of token_ids, choices and error");
    json_decref(root);
    return st;
}

typedef struct resume {
    um_result_file *results;
    um_idset *ids;
} resume;

static um_status mark_answered(const resume *s, const char *key, bool failed, int64_t number, um_err *err) {
    um_result_file *r = s->results;
    um_idset_entry *e = um_idset_find(s->ids, key);
    if (!e)
        return um_fail(err, UM_EINVAL,
                       "%s:%lld answers %.80s, which is not in the input, so the file belongs to another run; name "
                       "another output or pass --overwrite",
                       r->ledger.name, (long long)number, key);
    if (e->answered)
        return um_fail(err, UM_EINVAL, "%s:%lld is a duplicate answer to %.80s; pass --overwrite to replace the file",
                       r->ledger.name, (long long)number, key);
    e->answered = true;
    r->n_answered++;
    r->n_failed += failed;
    return UM_OK;
}

/* Reads a line of an earlier run. */
static um_status resume_line(void *arg, um_str line, int64_t number, um_err *err) {
    const resume *s = (const resume *)arg;
    um_buf key = {0};
    bool failed;
    um_status st = key_of(line, &key, &failed, err) ? UM_EPARSE : UM_OK;
    if (!st) st = mark_answered(s, key.data, failed, number, err);
    um_buf_free(&key);
    return st;
}

um_status um_result_file_resume(um_result_file *r, um_idset *ids, um_err *err) {
    um_err own, *e = err ? err : &own;
    um_status st = um_ledger_read(&r->ledger, resume_line, &(resume){r, ids}, e);
    if (st != UM_EPARSE) return st;
    return um_fail(e, UM_EINVAL, "%.400s; name another output or pass --overwrite", e->msg);
}

um_status um_result_file_begin(um_result_file *r, um_err *err) { return um_ledger_truncate(&r->ledger, err); }

um_status um_result_file_write(um_result_file *r, um_buf *line, um_err *err) {
    um_buf_putc(line, '\n');
    return um_ledger_write(&r->ledger, (um_str){line->data, line->len}, err);
}

um_status um_result_file_close(um_result_file *r, um_err *err) { return um_ledger_close(&r->ledger, err); }
