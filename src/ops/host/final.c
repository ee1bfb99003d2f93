/* Finds the tokens whose final hidden rows a pass reads, and describes them as a batch of their own. */
#include "ops/host/host.h"

/* Sets is_read[t] for each token t whose final hidden row a prediction or a saved row is computed from. */
static void mark_read(const um_batch *b, int32_t *is_read) {
    memset(is_read, 0, (size_t)b->n_tokens * sizeof *is_read);
    for (int32_t i = 0; i < b->n_rows; i++) {
        const um_row *r = &b->row[i];
        const int n_sources = r->w[1] != 0 ? 2 : 1;
        for (int k = 0; k < n_sources; k++) {
            assert(r->src[k] < b->n_tokens);
            if (r->src[k] >= 0) is_read[r->src[k]] = 1;
        }
    }
    for (int32_t i = 0; i < b->n_saves; i++) {
        assert(b->save[i][0] >= 0 && b->save[i][0] < b->n_tokens);
        is_read[b->save[i][0]] = 1;
    }
}

/* Marks all tokens of each routing block that contains a marked token: they choose their experts together. */
static void mark_blocks(const int32_t *block, int32_t n, int32_t *is_read) {
    for (int32_t first = 0, end; first < n; first = end) {
        int32_t any = 0;
        for (end = first; end < n && block[end] == block[first]; end++) any |= is_read[end];
        for (int32_t t = first; t < end; t++) is_read[t] = any;
    }
}

/* Appends the marked tokens of a span. */
static void append_span(um_final *f, const um_batch *b, const um_span *s, const int32_t *block) {
    int32_t n = f->batch.n_tokens;
    for (int32_t t = s->first; t < s->first + s->n; t++) {
        if (!f->token[t]) continue; /* a mark; entries below n, which is at most t, are the list */
        f->seen_end[n] = b->seen_end[t];
        if (block) f->block[n] = block[t];
        f->token[n++] = t;
    }
    if (n == f->batch.n_tokens) return;
    um_span *to = &f->span[f->batch.n_spans++];
    *to = *s;
    to->first = f->batch.n_tokens;
    to->n = n - to->first;
    to->select = NULL;
    f->batch.n_tokens = n;
}

void um_final_find(um_final *f, const um_batch *b, const int32_t *block) {
    mark_read(b, f->token);
    if (block) mark_blocks(block, b->n_tokens, f->token);
    f->batch = (um_batch){.span = f->span, .seen_end = f->seen_end};
    int32_t end = 0;
    for (int32_t i = 0; i < b->n_spans; end += b->span[i].n, i++) {
        assert(b->span[i].first == end); /* the list is written over the marks, so spans ascend */
        append_span(f, b, &b->span[i], block);
    }
    assert(end == b->n_tokens);
}
