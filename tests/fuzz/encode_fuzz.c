/* Fuzzes the tokenizer: computes results in two ways, which must agree. Hand-written code and PCRE2 split a text into
 * the same pieces. A repeated text, which uses the cache, gets the same ids every time. Ids decoded as a whole and as a
 * stream give the same text. */
#include <stdlib.h>

#include "text/tok.h"

static const char *const expressions[] = {
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
    "\\s+(?!\\S)|\\s+",
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|"
    "\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|"
    "\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
};

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    abort();
}

static um_str str_of(const um_buf *b) { return (um_str){b->data ? b->data : "", b->len}; }

/* Appends a character for each byte. Random bytes contain few letters, so the characters come from a table of special
 * cases. */
static void make_text(const uint8_t *data, size_t size, um_buf *out) {
    static const uint32_t lively[] = {' ',    ' ',    '\n',   '\r',    '\t',   '\'',    's',     'S',    't',
                                      'l',    'v',    'e',    'r',     'd',    'a',     'Z',     '0',    '9',
                                      '.',    '=',    0x17F,  0xE9,    0x301,  0x85,    0xA0,    0x3000, 0x2028,
                                      0x200B, 0x180E, 0x4E2D, 0x1F44D, 0xBD,   0x660,   0x5D0,   0xAA,   0x2160,
                                      0xFEFF, 0x338,  0x212B, 0xAC00,  0x1161, 0xE0001, 0x10FFFF};
    for (size_t i = 0; i < size; i++) {
        char c[4];
        um_buf_append(out, c, (size_t)um_utf8_put(lively[data[i] % UM_LEN(lively)], c));
    }
}

static void check_pieces(um_str text) {
    static um_pattern by_pcre[UM_LEN(expressions)];
    um_err err;
    for (size_t i = 0; i < UM_LEN(expressions); i++) {
        um_pattern *p = &by_pcre[i];
        if (!p->code && um_pattern_pcre(p, um_str_of(expressions[i]), "fuzz", &err)) fail(err.msg);
        const struct um_known *k = um_known_find(um_str_of(expressions[i]));
        um_match_state scan = {0};
        for (size_t at = 0, start, end; at < text.n; at = end) {
            bool found;
            if (um_pattern_next(p, &scan, text, at, &start, &end, &found, &err)) fail(err.msg);
            if (!found || start != at) fail("the expression leaves something out");
            if (um_known_end(k, text, at) != end) fail("by hand is not by PCRE2");
        }
        um_scan_free(&scan);
    }
}

static const um_tok *bundled(void) {
    static um_tok *t;
    um_err err;
    if (!t && um_tok_open(&t, "models/tiny-block", &err)) fail(err.msg);
    return t;
}

/* Repeats a text until it is long enough for the cache. Every copy must get the ids of the first one. */
static void check_cache(um_str text) {
    const um_tok *t = bundled();
    um_err err;
    um_ids once = {0}, often = {0};
    um_buf many = {0};
    um_buf_append(&many, text.p, text.n);
    um_buf_puts(&many, "<|im_end|>"); /* no piece extends across an added token */
    if (um_tok_encode(t, str_of(&many), UM_PARSE_ALL, false, &once, &err)) fail(err.msg);
    size_t n = many.len;
    while (many.len < 6000) um_buf_append(&many, text.p, text.n), um_buf_puts(&many, "<|im_end|>");
    if (um_tok_encode(t, str_of(&many), UM_PARSE_ALL, false, &often, &err)) fail(err.msg);
    if (often.n != once.n * (many.len / n)) fail("a text gives other ids the second time");
    for (size_t i = 0; i < often.n; i++)
        if (often.data[i] != once.data[i % once.n]) fail("a text gives other ids the second time");
    um_ids_free(&once);
    um_ids_free(&often);
    um_buf_free(&many);
}

static void check_decode(const uint8_t *data, size_t size) {
    const um_tok *t = bundled();
    for (int skip = 0; skip < 2; skip++) {
        um_buf whole = {0}, joined = {0};
        um_ids ids = {0};
        um_stream s;
        for (size_t i = 0; i + 1 < size; i += 2) um_ids_push(&ids, (data[i] | data[i + 1] << 8) % (um_tok_size(t) + 2));
        um_tok_decode(t, ids.data, ids.n, skip, &whole);
        um_stream_init(&s, t, skip);
        for (size_t i = 0; i < ids.n; i++) {
            um_stream_push(&s, ids.data[i], &joined);
            if (um_utf8_check(joined.data ? joined.data : "", joined.len) < joined.len) fail("half a character");
        }
        um_stream_flush(&s, &joined);
        if (!um_str_eq(str_of(&whole), str_of(&joined))) fail("a stream differs from the whole");
        um_buf_free(&whole);
        um_buf_free(&joined);
        um_ids_free(&ids);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    um_buf text = {0};
    um_log_set_level(UM_LOG_ERROR);
    if (size > 4000) return 0;
    make_text(data, size, &text);
    check_pieces(str_of(&text));
    check_cache(str_of(&text));
    check_decode(data, size);
    um_str given = {(const char *)data, size};
    if (um_utf8_check(given.p, given.n) == given.n) check_pieces(given);
    um_buf_free(&text);
    return 0;
}
