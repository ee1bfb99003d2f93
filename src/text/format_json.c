/* Reads tokenizer.json. A first walk finds model.vocab and model.merges, which are nearly all of the file. jansson
 * parses the file with the contents of these two cut out. */
#include "text/tok.h"

#define CUTS_MAX 8 /* a duplicate key is valid JSON; the last one counts */

typedef struct walk {
    um_jread r;
    um_buf key;
    size_t vocab, merges; /* offsets of their opening brackets, or SIZE_MAX */
    struct {
        size_t start, end;
    } cut[CUTS_MAX]; /* the text between their brackets */
    size_t n_cuts;
} walk;

static um_status cut_value(walk *w, size_t *at) {
    *at = w->r.at;
    um_status st = um_jread_skip(&w->r, 2);
    if (st || w->r.at >= w->r.text.n) return st; /* truncated file: jansson reports the position */
    if (w->n_cuts == CUTS_MAX)
        return um_fail(w->r.err, UM_ELIMIT, "%s: model.vocab and model.merges are given more than %d times", w->r.path,
                       CUTS_MAX);
    w->cut[w->n_cuts].start = *at + 1;
    w->cut[w->n_cuts++].end = w->r.at - 1;
    return UM_OK;
}

static um_status walk_object(walk *w, um_status (*value)(walk *, um_str));

static um_status model_value(walk *w, um_str key) {
    char c = um_jread_peek(&w->r);
    if (c == '{' && um_str_eq(key, UM_STR("vocab"))) return cut_value(w, &w->vocab);
    if (c == '[' && um_str_eq(key, UM_STR("merges"))) return cut_value(w, &w->merges);
    return um_jread_skip(&w->r, 2);
}

static um_status file_value(walk *w, um_str key) {
    bool is_model = um_str_eq(key, UM_STR("model"));
    if (is_model) w->vocab = w->merges = SIZE_MAX;
    return is_model && um_jread_peek(&w->r) == '{' ? walk_object(w, model_value) : um_jread_skip(&w->r, 1);
}

/* Walks an object and calls `value` for each member. Invalid JSON ends the walk; jansson reports the error later. */
static um_status walk_object(walk *w, um_status (*value)(walk *, um_str)) {
    um_status st = UM_OK;
    um_str key;
    if (!um_jread_take(&w->r, '{')) return UM_OK;
    while (!st && um_jread_peek(&w->r) == '"') {
        st = um_jread_string(&w->r, &w->key, &key);
        if (st || !um_jread_take(&w->r, ':')) return st;
        st = value(w, key);
        if (!um_jread_take(&w->r, ',')) break;
    }
    if (!st) um_jread_take(&w->r, '}');
    return st;
}

/* Converts jansson's offset, which is in the text without the cuts, to an offset in the file. */
static size_t original_place(const walk *w, size_t at) {
    for (size_t i = 0; i < w->n_cuts && at > w->cut[i].start; i++) at += w->cut[i].end - w->cut[i].start;
    return at;
}

static um_status parse_rest(walk *w, json_t **out) {
    um_buf rest = {0};
    size_t done = 0;
    json_error_t e;
    um_str text = w->r.text;
    um_buf_reserve(&rest, 1);
    for (size_t i = 0; i < w->n_cuts; i++) {
        um_buf_append(&rest, text.p + done, w->cut[i].start - done);
        done = w->cut[i].end;
    }
    um_buf_append(&rest, text.p + done, text.n - done);
    *out = json_loadb(rest.data, rest.len, JSON_ALLOW_NUL, &e);
    um_buf_free(&rest);
    if (*out) return UM_OK;
    char what[JSON_ERROR_TEXT_LENGTH + 16];
    snprintf(what, sizeof what, "JSON: %s", e.text);
    return um_jread_fail(&w->r, original_place(w, e.position > 0 ? (size_t)e.position - 1 : 0), what);
}

static um_status read_vocab(const um_parts *p, um_vocab *v, um_arena *a, um_err *err) {
    um_jread r = {p->path, p->files->text[UM_FILE_TOKENIZER], p->vocab, err};
    if (p->vocab == SIZE_MAX) return um_fail(err, UM_EPARSE, "%s: model.vocab must be an object token -> id", p->path);
    um_vocab_init(v, a);
    return um_vocab_read(v, &r);
}

static um_status read_merges(const um_parts *p, um_merging *m) {
    um_jread r = {p->path, p->files->text[UM_FILE_TOKENIZER], p->merges, m->err};
    if (p->merges == SIZE_MAX) return um_fail(m->err, UM_EPARSE, "%s: model.merges must be a list", p->path);
    return um_merging_read_json(m, &r);
}

um_status um_format_json(um_parts *p, um_err *err) {
    p->path = p->files->path[UM_FILE_TOKENIZER];
    p->read_vocab = read_vocab;
    p->read_merges = read_merges;
    walk w = {.r = {p->path, p->files->text[UM_FILE_TOKENIZER], 0, err}, .vocab = SIZE_MAX, .merges = SIZE_MAX};
    size_t good = um_utf8_check(w.r.text.p, w.r.text.n);
    if (good < w.r.text.n) return um_jread_fail(&w.r, good, "valid UTF-8");
    um_status st = walk_object(&w, file_value);
    if (!st) st = parse_rest(&w, &p->stages);
    p->vocab = w.vocab;
    p->merges = w.merges;
    um_buf_free(&w.key);
    return st;
}
