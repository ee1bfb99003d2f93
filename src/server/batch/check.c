/* Checks the lines of an input, and reads the answers of an earlier run. These functions also run on background
 * threads, so they use only their arguments. */
#include <errno.h>
#include <jansson.h>
#include <sys/stat.h>

#include "server/batch/store.h"

/* ---- One line ---------------------------------------------------------------------------------------------------- */

const char *um_unknown_member(const json_t *o, const char *const *known) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)o, key, value) {
        const char *const *k = known;
        while (*k && strcmp(*k, key) != 0) k++;
        if (!*k) return key;
    }
    return NULL;
}

static bool UM_PRINTF(4, 5) set_error(um_batch_error *e, const char *code, const char *param, const char *fmt, ...) {
    va_list ap;
    *e = (um_batch_error){0};
    snprintf(e->code, sizeof e->code, "%s", code);
    snprintf(e->param, sizeof e->param, "%s", param);
    va_start(ap, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    return false;
}

static bool check_members(const json_t *root, um_batch_error *error) {
    static const char *const known[] = {"custom_id", "method", "url", "body", NULL};
    const char *key = um_unknown_member(root, known);
    return !key || set_error(error, "unknown_parameter", key,
                             "unknown field \"%.60s\"; a line has custom_id, method, url and body", key);
}

static bool check_id(const json_t *root, um_batch_line *out, um_batch_error *error) {
    const json_t *id = json_object_get(root, "custom_id");
    size_t n = json_string_length(id);
    out->custom_id = json_string_value(id);
    if (out->custom_id && n > 0 && n <= UM_CUSTOM_ID_MAX && strlen(out->custom_id) == n) return true;
    return set_error(error, "invalid_custom_id", "custom_id",
                     "custom_id: expected a string of 1 to %d bytes, unique in the file", UM_CUSTOM_ID_MAX);
}

static bool check_request(const um_api *a, const json_t *root, um_batch_line *out, um_batch_error *error) {
    const char *method = json_string_value(json_object_get(root, "method"));
    const char *url = json_string_value(json_object_get(root, "url"));
    out->body = json_object_get(root, "body");
    if (!um_streq(method, "POST"))
        return set_error(error, "invalid_method", "method", "method: expected \"POST\", found %.40s",
                         method ? method : "none");
    if (!um_streq(url, a->path))
        return set_error(error, "mismatched_endpoint", "url", "url: expected \"%s\", the batch's endpoint, found %.80s",
                         a->path, url ? url : "none");
    if (!json_is_object(out->body)) return set_error(error, "invalid_body", "body", "body: expected a JSON object");
    return true;
}

/* Few lines are parsed at a time, so the limit for a single body is enough. */
static bool check_memory(const um_batch_job *b, um_str text, um_batch_error *error) {
    size_t most = b->store->line_memory;
    if (um_json_memory(text) <= most) return true;
    return set_error(error, "invalid_json_line", "",
                     "the JSON values of the line would take more than %.1f MiB of memory", (double)most / (1 << 20));
}

bool um_batch_line_read(const um_batch_job *b, um_str text, um_batch_line *out, um_batch_error *error) {
    um_err err = {0};
    *out = (um_batch_line){0};
    if (!check_memory(b, text, error)) return false;
    if (um_json_parse_request(&out->root, text.p, text.n, "the line", &err))
        return set_error(error, "invalid_json_line", err.param, "%s", err.msg);
    if (!json_is_object(out->root)) return set_error(error, "invalid_json_line", "", "expected a JSON object");
    return check_members(out->root, error) && check_id(out->root, out, error) &&
           check_request(b->api, out->root, out, error);
}

/* ---- The whole input --------------------------------------------------------------------------------------------- */

static void take_line(um_batch_job *b, um_str text, int64_t number, um_idset *ids) {
    um_batch_line line;
    um_batch_error error;
    if (um_batch_line_read(b, text, &line, &error)) {
        const um_idset_entry *first = um_idset_find(ids, line.custom_id);
        if (first)
            um_batch_job_add_error(b, number, "duplicate_custom_id", "custom_id",
                                   "custom_id: duplicate \"%.80s\", also in line %lld", line.custom_id,
                                   (long long)first->line);
        else um_idset_add(ids, line.custom_id, number);
        b->total++;
    } else {
        um_batch_job_add_error(b, number, error.code, error.param, "%s", error.message);
    }
    json_decref(line.root);
}

static void check_total(um_batch_job *b) {
    if (b->total == 0 && b->n_errors == 0)
        um_batch_job_add_error(b, 0, "empty_file", "input_file_id", "the input is empty; expected one request a line");
    if (b->total > UM_BATCH_LINES_MAX)
        um_batch_job_add_error(b, 0, "too_many_lines", "input_file_id",
                               "the input has more than %d lines; split it into several batches", UM_BATCH_LINES_MAX);
}

void um_batch_job_add_input_error(um_batch_job *b, const um_lines *in, um_lines_result got, const um_err *err) {
    if (got == UM_LINES_TOO_LONG)
        um_batch_job_add_error(b, in->number, "invalid_json_line", NULL, "the line is longer than %zu bytes",
                               UM_LINE_MAX);
    else um_batch_job_add_error(b, 0, "unreadable_file", "input_file_id", "%s", err->msg);
}

void um_batch_check(um_batch_job *b, const char *path, um_idset *ids) {
    um_lines in;
    um_err err = {0};
    um_str text;
    um_lines_result got = UM_LINES_LINE;
    b->total = 0;
    b->n_errors = 0;
    um_status st = um_lines_open(&in, path, &err);
    while (!st && b->n_errors < UM_BATCH_ERRORS_MAX && b->total <= UM_BATCH_LINES_MAX) {
        got = um_lines_next(&in, true, &text, &err);
        if (got == UM_LINES_LINE) take_line(b, text, in.number, ids);
        else if (got == UM_LINES_TOO_LONG) um_batch_job_add_input_error(b, &in, got, NULL);
        else if (got != UM_LINES_AGAIN) break;
    }
    if (st || got == UM_LINES_FAILED) um_batch_job_add_input_error(b, &in, UM_LINES_FAILED, &err);
    else check_total(b);
    um_lines_close(&in);
}

/* ---- Answers of an earlier run ----------------------------------------------------------------------------------- */

typedef struct resume {
    um_idset *ids; /* NULL: the ids are unknown */
    int64_t n;
} resume;

static um_status take_answer(void *arg, um_str text, int64_t number, um_err *err) {
    resume *r = arg;
    json_t *root = NULL;
    um_status st = um_json_parse_exact(&root, text.p, text.n, "the line", err);
    const char *id = json_string_value(json_object_get(root, "custom_id"));
    um_idset_entry *e = !st && id && r->ids ? um_idset_find(r->ids, id) : NULL;
    if (!st && r->ids && (!e || e->answered))
        st = um_fail(err, UM_EPARSE, "line %lld: %s", (long long)number,
                     e ? "a second answer to the same request" : "an answer to a request that is not in the input");
    if (e && !st) e->answered = true;
    r->n += !st;
    json_decref(root);
    return st ? UM_EPARSE : UM_OK;
}

/* After a power failure, blocks near the end of the file may be missing. So the answers after the first invalid line
 * don't count, and their lines run again. */
um_status um_batch_resume(um_ledger *l, const char *path, um_idset *ids, int64_t *n, um_err *err) {
    resume r = {.ids = ids};
    um_status st = um_ledger_open(l, path, err);
    if (!st && fchmod(l->fd, 0600) != 0) st = um_fail(err, UM_EIO, "cannot change %s: %s", path, strerror(errno));
    if (!st) st = um_ledger_read(l, take_answer, &r, err);
    if (st == UM_EPARSE) {
        um_warn("%s; the lines from there on run again", err->msg);
        st = UM_OK;
    }
    if (!st) st = um_ledger_truncate(l, err);
    *n = r.n;
    return st;
}
