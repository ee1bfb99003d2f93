/* The parts that both kinds of clients share: requests with their parameters, and text output. */
#include "cli/client.h"

#include <time.h>

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

static const um_option *row_of(um_client_request *q, const char *name) {
    um_option_set sets[UM_OPTION_SETS_MAX];
    size_t n = um_request_option_sets(sets, &q->request);
    const um_option *row = NULL;
    for (size_t i = 0; i < n && !row; i++) row = um_options_find(sets[i].rows, sets[i].n, name);
    return row;
}

static void mark_given(um_client_request *q, const um_option *row) {
    for (size_t i = 0; i < q->n_given; i++)
        if (q->given[i] == row) return;
    assert(q->n_given < UM_GIVEN_MAX);
    q->given[q->n_given++] = row;
}

um_status um_client_request_set(um_client_request *q, um_client *a, const char *name, const char *value, um_err *err) {
    const um_client_request before = *q;
    um_status st = um_request_set(&q->request, name, value, err);
    if (st) return st;
    const um_option *row = row_of(q, name);
    mark_given(q, row);
    st = a->check(a, q, row, err);
    if (st) *q = before;
    return st;
}

void um_client_request_mark_given(um_client_request *q, const um_args *args) {
    for (size_t i = 0; i < args->n_given; i++) {
        const um_option *row = row_of(q, args->given[i].row->name);
        if (row == args->given[i].row) mark_given(q, row);
    }
}

/* ---- Responses --------------------------------------------------------------------------------------------------- */

void um_client_response_free(um_client_response *r) {
    um_buf_free(&r->text);
    um_free(r->ids);
    *r = (um_client_response){0};
}

static void write_text(const um_client_output *s, um_str text) {
    fwrite(text.p, 1, text.n, s->file);
    if (s->file == stdout) um_cli_flush();
    else fflush(s->file);
}

void um_client_output_text(um_client_output *s, um_str text) {
    um_buf safe = {0}, lines = {0};
    if (!s->file || !text.n) return;
    if (s->on_terminal) {
        um_cli_put_safe(&safe, text.p, text.n);
        um_wrap_text(&s->wrap, (um_str){safe.data, safe.len}, um_cli_columns(fileno(s->file)), &lines);
        text = (um_str){lines.data, lines.len};
    }
    if (text.n) write_text(s, text);
    um_buf_free(&safe);
    um_buf_free(&lines);
}

void um_client_output_end(um_client_output *s) {
    um_buf rest = {0};
    if (!s->file || !s->on_terminal) return;
    um_wrap_end(&s->wrap, um_cli_columns(fileno(s->file)), &rest);
    write_text(s, (um_str){rest.data, rest.len});
    um_buf_free(&rest);
}

void um_client_output_pause(const um_client_output *s) {
    int32_t ms = s->delay_ms;
    if (ms > 0) nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

void um_client_free(um_client *a) {
    if (!a) return;
    um_wrap_free(&a->output.wrap);
    a->free(a);
}
