/* Streaming decoder. Appends text that later ids can't change and holds back the bytes of an unfinished character. */
#include "text/tok.h"

void um_stream_init(um_stream *s, const um_tok *t, bool skip_special) {
    *s = (um_stream){
        .tok = t, .skip_special = skip_special, .first = true, .pending = -1, .n_strip = t->dec.strip_front};
}

static void put_bad(um_buf *out) { um_buf_puts(out, "\xEF\xBF\xBD"); }

/* Discards the held bytes, which can't become a character. Appends one U+FFFD per maximal invalid part for byte-level
 * text and one per byte for byte fallback. */
static void drop_held(um_stream *s, um_buf *out) {
    if (s->tok->dec.mode == UM_STREAM_BYTES) um_utf8_repair((um_str){s->held, (size_t)s->n_held}, out);
    else
        for (int i = 0; i < s->n_held; i++) put_bad(out);
    s->n_held = 0;
}

/* Returns true if the bytes may still become a character. Also true for the first two bytes of an encoded surrogate:
 * like the reference's stream, this one holds them until the third byte arrives. The decoded text is the same. */
static bool can_grow(const char *held, int n) {
    bool incomplete = false;
    um_utf8_bad(held, (size_t)n, &incomplete);
    return incomplete || (n == 2 && (uint8_t)held[0] == 0xED && ((uint8_t)held[1] & 0xE0) == 0xA0);
}

/* Adds one byte to the held bytes. Returns false if the byte does not continue their character: the held bytes are then
 * discarded and the byte is not consumed. */
static bool grow_held(um_stream *s, char byte, um_buf *out) {
    uint32_t cp;
    s->held[s->n_held++] = byte;
    if (um_utf8_next(s->held, (size_t)s->n_held, &cp) > 0) {
        um_buf_append(out, s->held, (size_t)s->n_held);
        s->n_held = 0;
        return true;
    }
    if (can_grow(s->held, s->n_held)) return true;
    bool alone = s->n_held == 1;
    if (!alone) s->n_held--;
    drop_held(s, out);
    return alone;
}

static void feed_bytes(um_stream *s, um_str b, um_buf *out) {
    while (b.n) {
        size_t used = s->n_held ? 0 : um_utf8_check(b.p, b.n);
        um_buf_append(out, b.p, used);
        if (used < b.n && grow_held(s, b.p[used], out)) used++;
        b = (um_str){b.p + used, b.n - used};
    }
}

static void push_bytes(um_stream *s, int32_t id, um_buf *out) {
    const um_tok *t = s->tok;
    if (t->added_of[id] < 0) {
        feed_bytes(s, t->bytes[id], out);
        return;
    }
    um_buf b = {0}; /* the byte table is applied to added tokens too */
    um_str text = um_tok_text(t, id);
    if (um_byte_chars_decode(text, &b)) text = (um_str){b.data, b.len};
    feed_bytes(s, text, out);
    um_buf_free(&b);
}

static void push_step(um_stream *s, int32_t id, bool last, um_buf *out) {
    um_str text = um_tok_text(s->tok, id);
    int byte = um_decoder_byte(&s->tok->dec, text);
    if (byte >= 0) {
        char c = (char)byte;
        feed_bytes(s, (um_str){&c, 1}, out);
    } else {
        drop_held(s, out);
        um_decoder_token(&s->tok->dec, text, s->first, last, out);
    }
}

static void push(um_stream *s, int32_t id, um_buf *out) {
    const um_tok *t = s->tok;
    size_t from = out->len;
    switch (t->dec.mode) {
    case UM_STREAM_BYTES: push_bytes(s, id, out); break;
    case UM_STREAM_WORDS: {
        um_str text = um_tok_text(t, id);
        if (!s->first) um_buf_putc(out, ' ');
        um_buf_append(out, text.p, text.n);
        s->first = false;
        break;
    }
    case UM_STREAM_STEPS:
        push_step(s, id, false, out);
        s->first = false;
        break;
    case UM_STREAM_LAST:
        if (s->pending >= 0) {
            push_step(s, s->pending, false, out);
            s->first = false;
        }
        s->pending = id;
        break;
    }
    if (s->n_strip) um_decoder_strip_front(&t->dec, out, from, &s->n_strip);
}

/* Pushes one id. An id that is skipped after a pending token counts as decoded (n_out) together with that token. */
void um_stream_push(um_stream *s, int32_t id, um_buf *out) {
    size_t from = out->len, before = s->n_pushed++;
    bool skipped = !um_tok_exists(s->tok, id) || (s->skip_special && um_tok_is_special(s->tok, id));
    if (!skipped) push(s, id, out);
    if (s->pending < 0) s->n_out = s->n_pushed;
    else if (!skipped) s->n_out = before;
    if (!skipped && s->tok->clean_up) um_clean_text(s->cleaning, out, from);
}

void um_stream_flush(um_stream *s, um_buf *out) {
    size_t from = out->len;
    if (s->pending >= 0) push_step(s, s->pending, true, out);
    s->pending = -1;
    s->n_out = s->n_pushed;
    drop_held(s, out);
    if (s->n_strip) um_decoder_strip_front(&s->tok->dec, out, from, &s->n_strip);
    if (!s->tok->clean_up) return;
    um_clean_text(s->cleaning, out, from);
    um_clean_end(s->cleaning, out);
}
