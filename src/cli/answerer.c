/* What both kinds of answerers share: questions with their parameters, and text on its way to people. */
#include "cli/answerer.h"

#include <time.h>

/* ---- Questions --------------------------------------------------------------------------------------------------- */

static const um_option *row_of(um_question *q, const char *name) {
    um_option_set sets[UM_OPTION_SETS_MAX];
    size_t n = um_request_option_sets(sets, &q->request);
    const um_option *row = NULL;
    for (size_t i = 0; i < n && !row; i++) row = um_options_find(sets[i].rows, sets[i].n, name);
    return row;
}

static void remember(um_question *q, const um_option *row) {
    for (size_t i = 0; i < q->n_given; i++)
        if (q->given[i] == row) return;
    assert(q->n_given < UM_GIVEN_MAX);
    q->given[q->n_given++] = row;
}

um_status um_question_set(um_question *q, const char *name, const char *value, um_err *err) {
    um_status st = um_request_set(&q->request, name, value, err);
    if (!st) remember(q, row_of(q, name));
    return st;
}

void um_question_take_given(um_question *q, const um_args *args) {
    for (size_t i = 0; i < args->n_given; i++) {
        const um_option *row = row_of(q, args->given[i].row->name);
        if (row == args->given[i].row) remember(q, row);
    }
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

void um_reply_free(um_reply *r) {
    um_buf_free(&r->text);
    um_free(r->ids);
    *r = (um_reply){0};
}

void um_showing_text(const um_showing *s, um_str text) {
    um_buf safe = {0};
    if (!s->plain || !text.n) return;
    if (s->safe) {
        um_cli_put_safe(&safe, text.p, text.n);
        text = (um_str){safe.data, safe.len};
    }
    fwrite(text.p, 1, text.n, s->plain);
    fflush(s->plain);
    um_buf_free(&safe);
}

void um_showing_pause(const um_showing *s) {
    int32_t ms = s->delay_ms;
    if (ms > 0) nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

void um_answerer_free(um_answerer *a) {
    if (a) a->free(a);
}
