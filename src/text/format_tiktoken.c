/* Reads tiktoken files. Each line has the bytes of a token in base64 and its rank, which is also its id. The merges are
 * not listed: two adjacent tokens merge if together they form a token, lowest rank first. The regular expression and
 * the special tokens are not in the file either; the tokenizer class determines them. */
#include "text/tok.h"

#define N_EXTRA 205 /* <|extra_0|> ... */

static int digit64(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : (c == '/' ? 63 : -1);
}

/* Appends the bytes that s encodes. Returns false if s is not valid base64. */
static bool decode64(um_str s, um_buf *out) {
    if (s.n == 0 || s.n % 4) return false;
    size_t pad = s.p[s.n - 1] != '=' ? 0 : (s.p[s.n - 2] != '=' ? 1 : 2);
    uint32_t bits = 0;
    for (size_t i = 0; i < s.n; i++) {
        int d = i < s.n - pad ? digit64(s.p[i]) : 0;
        if (d < 0) return false;
        bits = bits << 6 | (uint32_t)d;
        if (i % 4 < 3) continue;
        size_t keep = i + 1 == s.n ? 3 - pad : 3;
        for (size_t k = 0; k < keep; k++) um_buf_putc(out, (char)(bits >> (16 - 8 * k)));
        bits = 0;
    }
    return true;
}

/* Parses a line "base64 rank". */
static bool read_line(um_str line, um_buf *bytes, int64_t *rank) {
    const char *space = (const char *)memchr(line.p, ' ', line.n);
    size_t n = space ? (size_t)(space - line.p) : line.n;
    um_jread r = {.text = line, .at = n + 1};
    um_buf_clear(bytes);
    return space && decode64((um_str){line.p, n}, bytes) && um_jread_int(&r, rank) == UM_OK && r.at == line.n;
}

static um_status read_vocab(const um_parts *p, um_vocab *v, um_arena *a, um_err *err) {
    um_str text = p->files->text[UM_FILE_TIKTOKEN];
    um_buf bytes = {0}, token = {0};
    um_status st = UM_OK;
    um_vocab_init(v, a);
    for (size_t number = 1; text.n && !st; number++) {
        const char *end = (const char *)memchr(text.p, '\n', text.n);
        um_str line = {text.p, end ? (size_t)(end - text.p) : text.n};
        text = end ? (um_str){end + 1, text.n - line.n - 1} : (um_str){text.p, 0};
        if (line.n && line.p[line.n - 1] == '\r') line.n--;
        if (line.n == 0) continue;
        int64_t rank = 0;
        if (!read_line(line, &bytes, &rank)) {
            st = um_fail(err, UM_EPARSE, "%s:%zu: expected a token in base64, a space and its rank, found \"%.*s\"",
                         p->path, number, (int)UM_MIN(line.n, 60), line.p);
            break;
        }
        um_buf_clear(&token);
        um_byte_chars_encode((um_str){bytes.data, bytes.len}, &token);
        st = um_vocab_add(v, (um_str){token.data, token.len}, rank, p->path, err);
    }
    um_buf_free(&bytes);
    um_buf_free(&token);
    return st;
}

static um_status read_merges(const um_parts *p, um_merging *m) { return um_merging_imply(m, NULL, p->path); }

/* Adds the special tokens of Qwen 1. Their ids follow the highest rank, in this order: `id` is the first. */
static void add_specials(json_t *stages, int64_t id) {
    static const char *const names[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    json_t *list = json_array();
    for (int i = 0; i < (int)UM_LEN(names) + N_EXTRA; i++) {
        char extra[32];
        snprintf(extra, sizeof extra, "<|extra_%d|>", i - (int)UM_LEN(names));
        json_array_append_new(list, json_pack("{s:I, s:s, s:b}", "id", (json_int_t)(id + i), "content",
                                              i < (int)UM_LEN(names) ? names[i] : extra, "special", 1));
    }
    json_object_set_new(stages, "added_tokens", list);
}

/* Returns the highest rank + 1. Ignores invalid lines; read_vocab reports them. */
static int64_t count_ranks(um_str text) {
    int64_t n = 0, rank;
    um_buf bytes = {0};
    while (text.n) {
        const char *end = (const char *)memchr(text.p, '\n', text.n);
        um_str line = {text.p, end ? (size_t)(end - text.p) : text.n};
        text = end ? (um_str){end + 1, text.n - line.n - 1} : (um_str){text.p, 0};
        if (line.n && line.p[line.n - 1] == '\r') line.n--;
        if (line.n && read_line(line, &bytes, &rank)) n = UM_MAX(n, rank + 1);
    }
    um_buf_free(&bytes);
    return n;
}

um_status um_format_tiktoken(um_parts *p, um_err *err) {
    p->path = p->files->path[UM_FILE_TIKTOKEN];
    p->read_vocab = read_vocab;
    p->read_merges = read_merges;
    um_str name = um_config_class(p->config);
    if (!um_str_eq(name, UM_STR("QWenTokenizer")))
        return um_fail(err, UM_EUNSUPPORTED,
                       "%s: the file says neither how text is cut nor which tokens are special, and tokenizer_class "
                       "\"%.*s\" in %s is not known to; QWenTokenizer is",
                       p->path, (int)UM_MIN(name.n, 60), name.p, p->files->path[UM_FILE_CONFIG]);
    bool prefix;
    um_status st = um_config_prefix(p, &prefix, err);
    if (st) return st;
    p->stages = um_qwen_stages(prefix);
    add_specials(p->stages, count_ranks(p->files->text[UM_FILE_TIKTOKEN]));
    return UM_OK;
}
