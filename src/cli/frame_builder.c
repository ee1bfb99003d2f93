/* Converts snapshots of an engine to frames. Decodes settled tokens once, and tokens in flight for every frame. */
#include "cli/cli.h"
#include "model/model.h"

struct um_frame_builder {
    const um_tok *tok;
    um_stream stream;          /* decoder of the settled tokens */
    size_t n_settled;          /* settled tokens decoded so far */
    um_buf settled, in_flight; /* text of the settled tokens, and text of the tokens in flight */
    struct part {
        um_piece piece;
        size_t start; /* offset of the text of the piece in `in_flight`, whose memory may move while it grows */
    } * part;         /* [cap_parts] */
    um_piece *piece;  /* [cap_parts] */
    size_t n_parts, cap_parts;
    um_frame frame;
};

um_frame_builder *um_frame_builder_new(const um_model *m) {
    um_frame_builder *s = UM_NEW(um_frame_builder);
    s->tok = m->tok;
    um_buf_reserve(&s->settled, 4096);
    um_buf_reserve(&s->in_flight, 256);
    um_frame_builder_reset(s);
    return s;
}

void um_frame_builder_free(um_frame_builder *s) {
    if (!s) return;
    um_buf_free(&s->settled);
    um_buf_free(&s->in_flight);
    um_free(s->part);
    um_free(s->piece);
    um_free(s);
}

void um_frame_builder_reset(um_frame_builder *s) {
    um_stream_init(&s->stream, s->tok, true);
    um_buf_clear(&s->settled);
    s->n_settled = 0;
}

/* Adds a piece. Its text is the part of `in_flight` from `start` on. */
static void push(um_frame_builder *s, int state, bool is_special, size_t start) {
    if (s->n_parts == s->cap_parts) {
        s->cap_parts = UM_MAX(2 * s->cap_parts, (size_t)64);
        s->part = um_realloc(s->part, um_mul(s->cap_parts, sizeof *s->part));
        s->piece = um_realloc(s->piece, um_mul(s->cap_parts, sizeof *s->piece));
    }
    s->part[s->n_parts++] = (struct part){{state, is_special, {NULL, s->in_flight.len - start}}, start};
}

/* Adds a piece with the incomplete character at the end of a run of tokens, if there is one. */
static void flush(um_frame_builder *s, um_stream *run) {
    size_t start = s->in_flight.len;
    um_stream_flush(run, &s->in_flight);
    if (s->in_flight.len > start) push(s, UM_TOKEN_SET, false, start);
}

/* Makes the pieces of the positions in flight. Decodes neighbouring tokens as one run, because a character may span
 * several tokens. The first run continues the settled text, with a copy of its decoder. */
static void make_pieces(um_frame_builder *s, const um_snapshot *snapshot) {
    um_stream run = s->stream;
    int state = UM_TOKEN_SETTLED;
    for (size_t i = s->n_settled; i < snapshot->n; i++) {
        bool masked = snapshot->state[i] == UM_TOKEN_MASK;
        if (masked && state != UM_TOKEN_MASK) {
            flush(s, &run);
            um_stream_init(&run, s->tok, true);
            run.first = false; /* masks precede this run */
        }
        state = snapshot->state[i];
        size_t start = s->in_flight.len;
        bool is_special = !masked && um_tok_is_special(s->tok, snapshot->id[i]);
        if (!masked && !is_special) um_stream_push(&run, snapshot->id[i], &s->in_flight);
        push(s, state, is_special, start);
    }
    flush(s, &run);
}

const um_frame *um_frame_builder_read(um_frame_builder *s, const um_snapshot *snapshot) {
    while (s->n_settled < snapshot->n && snapshot->state[s->n_settled] == UM_TOKEN_SETTLED)
        um_stream_push(&s->stream, snapshot->id[s->n_settled++], &s->settled);
    um_buf_clear(&s->in_flight);
    s->n_parts = 0;
    make_pieces(s, snapshot);
    for (size_t i = 0; i < s->n_parts; i++) {
        s->piece[i] = s->part[i].piece;
        s->piece[i].text.p = s->in_flight.data + s->part[i].start;
    }
    s->frame = (um_frame){{s->settled.data, s->settled.len}, s->piece, s->n_parts};
    return &s->frame;
}
