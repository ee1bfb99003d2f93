/* Reads questions with known answers. */
#include "cli/dataset.h"

#include <jansson.h>

#include "cli/requests.h"
#include "model/model.h"

static um_status copy_text(um_dataset *d, const json_t *root, const char *key, const char **out, um_err *err) {
    um_status st = um_line_text(root, key, out, err);
    if (!st) *out = um_arena_strndup(&d->text, *out, strlen(*out));
    return st;
}

static um_status take_example(um_dataset *d, um_str line, um_example *x, um_err *err) {
    json_t *root = NULL;
    um_buf id = {0};
    um_status st = um_line_object(&root, line, err);
    if (!st) st = um_line_id(root, &id, err);
    if (!st) x->id = um_arena_strndup(&d->text, id.data, id.len);
    if (!st) st = copy_text(d, root, "kind", &x->kind, err);
    if (!st) st = copy_text(d, root, "prompt", &x->prompt, err);
    if (!st) st = copy_text(d, root, "answer", &x->answer, err);
    json_decref(root);
    um_buf_free(&id);
    return st;
}

static um_example *push(um_dataset *d) {
    if (d->n == d->cap) {
        d->cap = d->cap ? 2 * d->cap : 64;
        d->example = (um_example *)um_realloc(d->example, um_mul(d->cap, sizeof *d->example));
    }
    return &d->example[d->n++];
}

um_status um_dataset_load(um_dataset *d, const char *path, size_t limit, um_err *err) {
    um_err own, *e = err ? err : &own;
    um_lines l;
    um_status st = um_lines_open(&l, path, e);
    if (st) return st;
    while (!st && (limit == 0 || d->n < limit)) {
        um_str line;
        um_lines_result got = um_lines_next(&l, true, &line, e);
        if (got == UM_LINES_END) break;
        if (got == UM_LINES_FAILED) st = e->code;
        if (got == UM_LINES_TOO_LONG) st = um_fail(e, UM_ELIMIT, "longer than %zu bytes", UM_LINE_MAX);
        if (got == UM_LINES_LINE) st = take_example(d, line, push(d), e);
        if (st && got != UM_LINES_FAILED) um_fail_in(e, "%s:%lld", path, (long long)l.number);
    }
    if (!st && d->n == 0) st = um_fail(e, UM_EINVAL, "%s has no questions", path);
    um_lines_close(&l);
    return st;
}

void um_dataset_free(um_dataset *d) {
    um_arena_free(&d->text);
    um_free(d->example);
    *d = (um_dataset){0};
}

char *um_dataset_find(const char *model, const char *name) {
    char *folder = NULL, *path = NULL;
    if (um_model_find(&folder, model, NULL)) return NULL;
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/') folder[--n] = '\0';
    char *slash = strrchr(folder, '/'), *last = slash ? slash + 1 : folder;
    if (um_streq(last, ".") || um_streq(last, "..") || slash == folder) {
        char *up = um_path_join("..", name);
        path = um_path_join(folder, up);
        um_free(up);
    } else {
        if (slash) *slash = '\0';
        path = um_path_join(slash ? folder : ".", name);
    }
    um_free(folder);
    if (um_file_exists(path)) return path;
    um_free(path);
    return NULL;
}
