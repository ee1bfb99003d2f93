/* The tokens and the text of an answer. */
#include "server/generate/choice.h"

/* ---- Committing -------------------------------------------------------------------------------------------------- */

/* Columns that were not requested stay empty. */
static void append_column(um_buf *to, const void *p, size_t n, size_t bytes) {
    if (n) um_buf_append(to, p, um_mul(n, bytes));
}

void um_choice_append(um_choice *c, const um_msg_text *m) {
    um_settled *s = &c->settled;
    append_column(&s->text, m->text.p, m->text.n, 1);
    append_column(&s->id, m->ids, m->n_ids, sizeof *m->ids);
    append_column(&s->text_end, m->text_end, m->n_ids, sizeof *m->text_end);
    append_column(&s->logprob, m->logprob, m->n_logprob, sizeof *m->logprob);
    append_column(&s->likeliest_id, m->likeliest_id, m->n_likeliest_all, sizeof *m->likeliest_id);
    append_column(&s->likeliest, m->likeliest, m->n_likeliest_all, sizeof *m->likeliest);
    s->n_likeliest = m->n_likeliest;
    c->n_tokens = m->offset + (int32_t)m->n_ids;
    c->nfe = m->nfe;
}

void um_choice_free(um_choice *c) {
    um_settled *s = &c->settled;
    um_buf *all[] = {&s->text, &s->id, &s->text_end, &s->logprob, &s->likeliest_id, &s->likeliest, &c->trajectory.json};
    for (size_t i = 0; i < UM_LEN(all); i++) um_buf_free(all[i]);
    um_free(c->trajectory.ids);
}

/* ---- Views ------------------------------------------------------------------------------------------------------- */

/* Drops columns of the wrong length: the parts of an answer come from another process. */
static um_tokens checked(um_tokens t, size_t n_logprob, size_t n_likeliest_all) {
    if (n_logprob != t.n || !t.n) t.logprob = NULL;
    if (n_likeliest_all != (size_t)t.n * (size_t)t.n_likeliest || !n_likeliest_all) t.n_likeliest = 0;
    return t;
}

static um_tokens tokens_of_result(const um_msg_finish *r) {
    um_tokens t = {.id = r->ids,
                   .text_end = r->text_end,
                   .logprob = r->logprob,
                   .likeliest_id = r->likeliest_id,
                   .likeliest = r->likeliest,
                   .n = r->n_ids,
                   .n_likeliest = r->n_likeliest};
    return checked(t, r->n_logprob, r->n_likeliest_all);
}

static um_tokens tokens_of_settled(const um_settled *s) {
    um_tokens t = {.id = (const int32_t *)s->id.data,
                   .text_end = (const int32_t *)s->text_end.data,
                   .logprob = (const float *)s->logprob.data,
                   .likeliest_id = (const int32_t *)s->likeliest_id.data,
                   .likeliest = (const float *)s->likeliest.data,
                   .n = (uint32_t)(s->id.len / sizeof(int32_t)),
                   .n_likeliest = s->n_likeliest};
    return checked(t, s->logprob.len / sizeof(float), s->likeliest.len / sizeof(float));
}

um_tokens um_choice_tokens(const um_choice *c) {
    return c->finished ? tokens_of_result(&c->result) : tokens_of_settled(&c->settled);
}

um_str um_choice_text(const um_choice *c) {
    const um_buf *b = &c->settled.text;
    return c->finished ? c->result.text : (um_str){b->data ? b->data : "", b->len};
}

um_tokens um_tokens_part(const um_tokens *t, uint32_t from, uint32_t to) {
    um_tokens part = *t;
    to = UM_MIN(to, t->n);
    from = UM_MIN(from, to);
    part.n = to - from;
    if (from == 0) return part;
    size_t n = (size_t)from * (size_t)t->n_likeliest;
    part.text_start = t->text_end[from - 1];
    part.id += from;
    part.text_end += from;
    if (t->logprob) part.logprob += from;
    if (n) part.likeliest_id += n, part.likeliest += n;
    return part;
}

/* ---- Trajectory -------------------------------------------------------------------------------------------------- */

static bool is_new(const um_trajectory *t, const um_msg_snapshot *m, uint32_t i) {
    return i < t->n ? t->ids[i] != m->ids[i] : m->ids[i] >= 0;
}

static void put_changes(const um_trajectory *t, const um_msg_snapshot *m, int32_t mask_id, um_jw *w) {
    um_jw_key(w, "positions");
    um_jw_begin_array(w);
    for (uint32_t i = 0; i < m->n; i++)
        if (is_new(t, m, i)) um_jw_int(w, i);
    um_jw_end_array(w);
    um_jw_key(w, "token_ids");
    um_jw_begin_array(w);
    for (uint32_t i = 0; i < m->n; i++)
        if (is_new(t, m, i)) um_jw_int(w, m->ids[i] < 0 ? mask_id : m->ids[i]);
    um_jw_end_array(w);
}

void um_trajectory_add(um_trajectory *t, const um_msg_snapshot *m, int32_t mask_id) {
    um_jw w;
    if (t->json.len) um_buf_putc(&t->json, ',');
    um_jw_init(&w, &t->json);
    um_jw_begin_object(&w);
    um_jw_put_int(&w, "nfe", m->nfe);
    um_jw_put_int(&w, "length", m->n);
    put_changes(t, m, mask_id, &w);
    um_jw_end_object(&w);
    if (m->n > t->cap) t->ids = um_realloc(t->ids, (t->cap = 2 * m->n) * sizeof *t->ids);
    if (m->n) memcpy(t->ids, m->ids, m->n * sizeof *t->ids);
    t->n = m->n;
}

const char *um_finish_reason(const um_msg_finish *m) {
    switch (m->finish) {
    case UM_FINISH_MAX_TOKENS:
    case UM_FINISH_MAX_LEN:
    case UM_FINISH_MAX_NFE: return "length";
    case UM_FINISH_NO_PREDICTION:
    case UM_FINISH_CONSTRAINT:
    case UM_FINISH_SAMPLER: return "error";
    case UM_FINISH_ABORTED: return "abort";
    default: return "stop";
    }
}
