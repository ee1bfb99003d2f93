/* Snapshots of an engine as frames: settled tokens are decoded once, what is in flight anew for every frame. */
#include "cli/cli.h"
#include "model/model.h"

struct um_speller {
    const um_tok *tok;
    um_stream stream; /* has read the settled tokens */
    size_t n_settled; /* that it has read */
    um_buf settled, flight;
    struct part {
        um_piece piece;
        size_t start; /* of its text in `flight`, which may move while it grows */
    } * part;         /* [cap_parts] */
    um_piece *piece;  /* [cap_parts] */
    size_t n_parts, cap_parts;
    um_frame frame;
};

um_speller *um_speller_new(const um_model *m) {
    um_speller *s = UM_NEW(um_speller);
    s->tok = m->tok;
    um_buf_reserve(&s->settled, 4096);
    um_buf_reserve(&s->flight, 256);
    um_speller_reset(s);
    return s;
}

void um_speller_free(um_speller *s) {
    if (!s) return;
    um_buf_free(&s->settled);
    um_buf_free(&s->flight);
    um_free(s->part);
    um_free(s->piece);
    um_free(s);
}

void um_speller_reset(um_speller *s) {
    um_stream_init(&s->stream, s->tok, true);
    um_buf_clear(&s->settled);
    s->n_settled = 0;
}

/* A piece whose text is what `flight` got since `start`. */
static void push(um_speller *s, int state, bool is_special, size_t start) {
    if (s->n_parts == s->cap_parts) {
        s->cap_parts = UM_MAX(2 * s->cap_parts, (size_t)64);
        s->part = um_realloc(s->part, um_mul(s->cap_parts, sizeof *s->part));
        s->piece = um_realloc(s->piece, um_mul(s->cap_parts, sizeof *s->piece));
    }
    s->part[s->n_parts++] = (struct part){{state, is_special, {NULL, s->flight.len - start}}, start};
}

/* What a run of tokens left unfinished. */
static void flush(um_speller *s, um_stream *run) {
    size_t start = s->flight.len;
    um_stream_flush(run, &s->flight);
    if (s->flight.len > start) push(s, UM_TOKEN_SET, false, start);
}

/* Positions in flight. Neighbouring tokens are decoded as one run, since a character may be spread over several; the
 * first run goes on where the settled text ended, in a copy of its decoder. */
static void spell_flight(um_speller *s, const um_snapshot *snapshot) {
    um_stream run = s->stream;
    int state = UM_TOKEN_SETTLED;
    for (size_t i = s->n_settled; i < snapshot->n; i++) {
        bool masked = snapshot->state[i] == UM_TOKEN_MASK;
        if (masked && state != UM_TOKEN_MASK) {
            flush(s, &run);
            um_stream_init(&run, s->tok, true);
            run.first = false; /* masks stand before it */
        }
        state = snapshot->state[i];
        size_t start = s->flight.len;
        bool is_special = !masked && um_tok_is_special(s->tok, snapshot->id[i]);
        if (!masked && !is_special) um_stream_push(&run, snapshot->id[i], &s->flight);
        push(s, state, is_special, start);
    }
    flush(s, &run);
}

const um_frame *um_speller_read(um_speller *s, const um_snapshot *snapshot) {
    while (s->n_settled < snapshot->n && snapshot->state[s->n_settled] == UM_TOKEN_SETTLED)
        um_stream_push(&s->stream, snapshot->id[s->n_settled++], &s->settled);
    um_buf_clear(&s->flight);
    s->n_parts = 0;
    spell_flight(s, snapshot);
    for (size_t i = 0; i < s->n_parts; i++) {
        s->piece[i] = s->part[i].piece;
        s->piece[i].text.p = s->flight.data + s->part[i].start;
    }
    s->frame = (um_frame){{s->settled.data, s->settled.len}, s->piece, s->n_parts};
    return &s->frame;
}
