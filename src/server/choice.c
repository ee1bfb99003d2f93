/* What is kept of an answer while it streams, and its tokens as shapes see them. */
#include "server/turn.h"

/* ---- Keeping ----------------------------------------------------------------------------------------------------- */

/* Columns that nobody asked for get no memory. */
static void keep(um_buf *to, const void *p, size_t n, size_t bytes) {
    if (n) um_buf_append(to, p, um_mul(n, bytes));
}

void um_choice_settle(um_choice *c, const um_msg_text *m) {
    um_settled *s = &c->settled;
    keep(&s->text, m->text.p, m->text.n, 1);
    keep(&s->id, m->ids, m->n_ids, sizeof *m->ids);
    keep(&s->text_end, m->text_end, m->n_ids, sizeof *m->text_end);
    keep(&s->logprob, m->logprob, m->n_logprob, sizeof *m->logprob);
    keep(&s->likeliest_id, m->likeliest_id, m->n_likeliest_all, sizeof *m->likeliest_id);
    keep(&s->likeliest, m->likeliest, m->n_likeliest_all, sizeof *m->likeliest);
    s->n_likeliest = m->n_likeliest;
    c->n_tokens = m->offset + (int32_t)m->n_ids;
    c->nfe = m->nfe;
}

void um_choice_free(um_choice *c) {
    um_settled *s = &c->settled;
    um_buf *all[] = {&s->text, &s->id, &s->text_end, &s->logprob, &s->likeliest_id, &s->likeliest, &c->trajectory};
    for (size_t i = 0; i < UM_LEN(all); i++) um_buf_free(all[i]);
}

/* ---- Seeing ------------------------------------------------------------------------------------------------------ */

/* Columns that are not as long as they have to be are none: parts of an answer come from a peer, one by one. */
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
