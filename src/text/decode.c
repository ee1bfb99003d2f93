/* Decoders: steps that turn a list of token strings into text. */
#include "text/tok.h"

typedef enum { DEC_BYTE_LEVEL, DEC_FALLBACK, DEC_FUSE, DEC_REPLACE, DEC_STRIP, DEC_META, DEC_BPE } dec_kind;

typedef struct um_decoder_step {
    dec_kind kind;
    um_pattern pattern;
    um_str text;         /* Replace: the replacement; Strip, Metaspace, BPEDecoder: the text to find */
    int32_t start, stop; /* Strip */
    bool prefixed;       /* Metaspace: encoding added a replacement character at the beginning */
} um_decoder_step;

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

static const struct {
    const char *type;
    dec_kind kind;
} kinds[] = {
    {"ByteLevel", DEC_BYTE_LEVEL}, {"ByteFallback", DEC_FALLBACK}, {"Fuse", DEC_FUSE},      {"Replace", DEC_REPLACE},
    {"Strip", DEC_STRIP},          {"Metaspace", DEC_META},        {"BPEDecoder", DEC_BPE},
};

static um_status load_text(um_decoder_step *s, const json_t *json, const char *key, um_arena *a, const char *where,
                           um_err *err) {
    const json_t *t = json_object_get(json, key);
    if (!json_is_string(t)) return um_fail(err, UM_EPARSE, "%s: decoder: \"%s\" must be a string", where, key);
    s->text.n = json_string_length(t);
    s->text.p = um_arena_strndup(a, json_string_value(t), s->text.n);
    return UM_OK;
}

static um_status load_meta(um_decoder_step *s, const json_t *json, um_arena *a, const char *where, um_err *err) {
    bool legacy = true;
    const char *scheme = NULL;
    um_status st = load_text(s, json, "replacement", a, where, err);
    if (!st) st = um_json_get_bool(json, "add_prefix_space", where, &legacy, err);
    if (!st) st = um_json_get_str(json, "prepend_scheme", where, &scheme, err);
    s->prefixed = scheme ? !um_streq(scheme, "never") : legacy;
    return st;
}

static um_status load_fields(um_decoder_step *s, const json_t *json, um_arena *a, const char *where, um_err *err) {
    um_status st = UM_OK;
    switch (s->kind) {
    case DEC_REPLACE:
        st = um_pattern_load(&s->pattern, json_object_get(json, "pattern"), a, where, err);
        return st ? st : load_text(s, json, "content", a, where, err);
    case DEC_STRIP:
        st = load_text(s, json, "content", a, where, err);
        if (!st) st = um_json_get_int32(json, "start", where, 0, 1 << 20, &s->start, err);
        return st ? st : um_json_get_int32(json, "stop", where, 0, 1 << 20, &s->stop, err);
    case DEC_META: return load_meta(s, json, a, where, err);
    case DEC_BPE: return load_text(s, json, "suffix", a, where, err);
    default: return UM_OK;
    }
}

static um_status load_any(um_decoder *d, const json_t *json, int nest, um_arena *a, const char *where, um_err *err) {
    if (nest > UM_TOK_NEST_MAX) return um_fail(err, UM_ELIMIT, "%s: decoders are nested too deeply", where);
    const char *type = json_string_value(json_object_get(json, "type"));
    if (!type) return um_fail(err, UM_EPARSE, "%s: decoder must be an object with a \"type\", or null", where);
    if (um_streq(type, "Sequence")) {
        const json_t *list = json_object_get(json, "decoders"), *item;
        size_t i;
        if (!json_is_array(list)) return um_fail(err, UM_EPARSE, "%s: decoder: \"decoders\" must be a list", where);
        json_array_foreach(list, i, item) {
            um_status st = load_any(d, item, nest + 1, a, where, err);
            if (st) return st;
        }
        return UM_OK;
    }
    size_t k = 0;
    while (k < UM_LEN(kinds) && !um_streq(kinds[k].type, type)) k++;
    if (k == UM_LEN(kinds))
        return um_fail(err, UM_EUNSUPPORTED, "%s: decoder of type \"%.60s\" is not supported", where, type);
    d->step = (um_decoder_step *)um_realloc(d->step, um_mul(d->n + 1, sizeof *d->step));
    um_decoder_step *s = &d->step[d->n++];
    *s = (um_decoder_step){.kind = kinds[k].kind};
    return load_fields(s, json, a, where, err);
}

/* Decides how the steps run on a stream. Rejects an order of steps that needs all tokens at once: a step after Fuse or
 * ByteLevel sees the whole text, so it may only strip the front. */
static um_status plan_stream(um_decoder *d, const char *where, um_err *err) {
    d->mode = UM_STREAM_STEPS;
    bool whole = false;
    for (size_t i = 0; i < d->n; i++) {
        const um_decoder_step *s = &d->step[i];
        bool front = s->kind == DEC_STRIP && s->stop == 0 && d->strip_front == 0;
        if (whole && s->kind != DEC_FUSE && !front)
            return um_fail(err, UM_EUNSUPPORTED,
                           "%s: this order of decoders is not supported: step %zu works on the joined text", where,
                           i + 1);
        if (whole && s->kind == DEC_STRIP) {
            d->strip_front = s->start;
            d->strip = s->text;
        }
        if (s->kind == DEC_BYTE_LEVEL) {
            if (i > 0) return um_fail(err, UM_EUNSUPPORTED, "%s: ByteLevel must be the first decoder", where);
            d->mode = UM_STREAM_BYTES;
        }
        if (s->kind == DEC_BPE) d->mode = UM_STREAM_LAST;
        whole = whole || s->kind == DEC_FUSE || s->kind == DEC_BYTE_LEVEL;
    }
    return UM_OK;
}

um_status um_decoder_load(um_decoder *d, const json_t *json, um_arena *a, const char *where, um_err *err) {
    memset(d, 0, sizeof *d);
    d->mode = UM_STREAM_WORDS;
    if (!json || json_is_null(json)) return UM_OK;
    um_status st = load_any(d, json, 0, a, where, err);
    return st ? st : plan_stream(d, where, err);
}

void um_decoder_free(um_decoder *d) {
    for (size_t i = 0; i < d->n; i++) um_pattern_free(&d->step[i].pattern);
    um_free(d->step);
    d->step = NULL;
    d->n = 0;
}

/* ---- Steps on one string ----------------------------------------------------------------------------------------- */

static bool begins(um_str s, um_str with) { return with.n && s.n >= with.n && memcmp(s.p, with.p, with.n) == 0; }
static bool ends(um_str s, um_str with) {
    return with.n && s.n >= with.n && memcmp(s.p + s.n - with.n, with.p, with.n) == 0;
}

static um_str strip(const um_decoder_step *st, um_str s) {
    for (int32_t i = 0; i < st->start && begins(s, st->text); i++) s = (um_str){s.p + st->text.n, s.n - st->text.n};
    for (int32_t i = 0; i < st->stop && ends(s, st->text); i++) s.n -= st->text.n;
    return s;
}

/* Appends s with every literal `from` replaced by `to`. */
static void swap_text(um_str s, um_str from, const char *to, um_buf *out) {
    um_pattern p = {.literal = from};
    um_match_state unused = {0};
    um_pattern_replace(&p, &unused, s, um_str_of(to), out, NULL); /* a literal can't fail */
}

static void step_text(const um_decoder_step *st, um_match_state *scan, um_str s, bool first, bool last, um_buf *out) {
    switch (st->kind) {
    case DEC_REPLACE: {
        size_t before = out->len;
        if (um_pattern_replace(&st->pattern, scan, s, st->text, out,
                               NULL)) { /* match limit: keeps the string unchanged */
            out->len = before;
            um_buf_append(out, s.p, s.n);
        }
        break;
    }
    case DEC_STRIP:
        s = strip(st, s);
        um_buf_append(out, s.p, s.n);
        break;
    case DEC_META: swap_text(s, st->text, first && st->prefixed ? "" : " ", out); break;
    case DEC_BPE: swap_text(s, st->text, last ? "" : " ", out); break;
    default: um_buf_append(out, s.p, s.n); break;
    }
}

/* ---- Steps on the list ------------------------------------------------------------------------------------------- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int um_byte_token(um_str t) {
    if (t.n != 6 || memcmp(t.p, "<0x", 3) != 0 || t.p[5] != '>') return -1;
    int hi = hex_digit(t.p[3]), lo = hex_digit(t.p[4]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

int um_decoder_byte(const um_decoder *d, um_str token) {
    for (size_t i = 0; i < d->n; i++)
        if (d->step[i].kind == DEC_FALLBACK) return um_byte_token(token);
    return -1;
}

/* Appends a run of byte tokens: their bytes if the whole run is valid UTF-8, else one U+FFFD per token. */
static void fallback_run(const char *text, const um_piece *cut, size_t n, um_buf *out) {
    size_t start = out->len;
    for (size_t i = 0; i < n; i++) um_buf_putc(out, (char)um_byte_token((um_str){text + cut[i].off, cut[i].len}));
    if (um_utf8_check(out->data + start, n) == n) return;
    out->len = start;
    for (size_t i = 0; i < n; i++) um_buf_puts(out, "\xEF\xBF\xBD");
}

static void run_fallback(um_pieces *p) {
    size_t n;
    um_buf *out = um_pieces_other(p);
    const um_piece *cut = um_pieces_swap(p, &n);
    for (size_t i = 0; i < n;) {
        size_t at = out->len, k = i;
        while (k < n && um_byte_token((um_str){p->text + cut[k].off, cut[k].len}) >= 0) k++;
        if (k > i) fallback_run(p->text, cut + i, k - i, out);
        else um_buf_append(out, p->text + cut[k].off, cut[k].len), k++;
        um_pieces_push(p, at, out->len - at);
        i = k;
    }
    p->text = out->data;
}

static void run_fuse(um_pieces *p) {
    size_t n;
    um_buf *out = um_pieces_other(p);
    const um_piece *cut = um_pieces_swap(p, &n);
    for (size_t i = 0; i < n; i++) um_buf_append(out, p->text + cut[i].off, cut[i].len);
    um_pieces_push(p, 0, out->len);
    p->text = out->data;
}

static void run_byte_level(um_pieces *p) {
    size_t n;
    um_buf bytes = {0}, *out = um_pieces_other(p);
    const um_piece *cut = um_pieces_swap(p, &n);
    for (size_t i = 0; i < n; i++) {
        um_str s = {p->text + cut[i].off, cut[i].len};
        if (!um_byte_chars_decode(s, &bytes)) um_buf_append(&bytes, s.p, s.n);
    }
    um_utf8_repair((um_str){bytes.data, bytes.len}, out);
    um_buf_free(&bytes);
    um_pieces_push(p, 0, out->len);
    p->text = out->data;
}

static void run_each(const um_decoder_step *st, um_match_state *scan, um_pieces *p) {
    size_t n;
    um_buf *out = um_pieces_other(p);
    const um_piece *cut = um_pieces_swap(p, &n);
    for (size_t i = 0; i < n; i++) {
        size_t at = out->len;
        step_text(st, scan, (um_str){p->text + cut[i].off, cut[i].len}, i == 0, i + 1 == n, out);
        um_pieces_push(p, at, out->len - at);
    }
    p->text = out->data;
}

void um_decoder_run(const um_decoder *d, um_pieces *p, um_buf *out) {
    um_match_state scan = {0};
    for (size_t i = 0; i < d->n; i++) {
        switch (d->step[i].kind) {
        case DEC_BYTE_LEVEL: run_byte_level(p); break;
        case DEC_FALLBACK: run_fallback(p); break;
        case DEC_FUSE: run_fuse(p); break;
        default: run_each(&d->step[i], &scan, p); break;
        }
    }
    um_scan_free(&scan);
    for (size_t i = 0; i < p->n; i++) {
        if (i > 0 && d->mode == UM_STREAM_WORDS) um_buf_putc(out, ' ');
        um_buf_append(out, p->text + p->cut[i].off, p->cut[i].len);
    }
}

void um_decoder_token(const um_decoder *d, um_str token, bool first, bool last, um_buf *out) {
    um_match_state scan = {0};
    um_buf buf[2] = {{0}, {0}};
    int at = 0;
    for (size_t i = 0; i < d->n && d->step[i].kind != DEC_FUSE; i++) {
        if (d->step[i].kind == DEC_FALLBACK) continue;
        um_buf_clear(&buf[at]);
        step_text(&d->step[i], &scan, token, first, last, &buf[at]);
        token = (um_str){buf[at].data, buf[at].len};
        at ^= 1;
    }
    um_buf_append(out, token.p, token.n);
    um_scan_free(&scan);
    um_buf_free(&buf[0]);
    um_buf_free(&buf[1]);
}

void um_decoder_strip_front(const um_decoder *d, um_buf *out, size_t from, int32_t *left) {
    um_str s = {out->data ? out->data + from : "", out->len - from};
    size_t before = s.n;
    while (*left > 0 && begins(s, d->strip)) {
        s = (um_str){s.p + d->strip.n, s.n - d->strip.n};
        --*left;
    }
    if (s.n) *left = 0;
    if (s.n == before) return;
    memmove(out->data + from, s.p, s.n);
    out->len = from + s.n;
}
