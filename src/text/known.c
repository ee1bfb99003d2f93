/* Hand-written matchers for the regular expressions of known model families. They match in one pass, can't exceed a
 * match limit and are ten times as fast as a regex engine. Each alternative of an expression is a rule below, in the
 * same order. */
#include "text/tok.h"

/* An expression and the properties in which it differs from the others. */
typedef struct um_known {
    const char *names;  /* "a|b": its names in GGUF files; "": no model of this program has such a file */
    const char *regex;  /* CR and LF as characters, not as escapes */
    bool nfc;           /* the tokenizers with this expression normalize text to NFC */
    bool fold;          /* contractions ignore case; U+017F counts as s */
    bool spaces_before; /* GPT-2: only a space joins the following letters or numbers, no other character does */
    bool line_ends;     /* line ends after punctuation join its piece */
    size_t digits;      /* most digits in one piece */
} um_known;

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"

static const um_known known[] = {
    {"qwen2|deepseek-r1-qwen", UM_QWEN_REGEX, true, true, false, true, 1}, /* Qwen */
    {"bailingmoe|bailingmoe2|llada-moe",
     "'(?i:[sdmt]|ll|ve|re)|[^\r\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| "
     "?[^\\s\\p{L}\\p{N}]++[\r\n]*|\\s*[\r\n]|\\s+(?!\\S)|\\s+",
     true, true, false, true, 1}, /* Ling, LLaDA: the possessive quantifiers change no match */
    {"seed-coder",
     CONTRACTIONS "[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|\\s+", true,
     true, false, false, 1}, /* Seed */
    {"",
     CONTRACTIONS "[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
     false, true, false, true, 3}, /* Llama 3 */
    {"gpt-2", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", false, false, true,
     false, SIZE_MAX}, /* GPT-2 */
};

const um_known *um_known_find(um_str regex) {
    um_buf plain = {0}; /* some files write CR and LF as escapes, others as characters */
    const um_known *found = NULL;
    for (size_t i = 0; i < regex.n; i++) {
        char next = regex.p[i] == '\\' && i + 1 < regex.n ? regex.p[++i] : '\0';
        if (next == 'r' || next == 'n') um_buf_putc(&plain, next == 'r' ? '\r' : '\n');
        else if (next) um_buf_append(&plain, &regex.p[i - 1], 2);
        else um_buf_putc(&plain, regex.p[i]);
    }
    for (size_t i = 0; i < UM_LEN(known) && !found; i++)
        if (um_str_eq((um_str){plain.data, plain.len}, um_str_of(known[i].regex))) found = &known[i];
    um_buf_free(&plain);
    return found;
}

/* Returns whether the list "a|b|c" contains `name`. */
static bool has_name(const char *list, um_str name) {
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, "|");
        if (um_str_eq((um_str){p, len}, name)) return true;
        p += len + (p[len] == '|');
    }
    return false;
}

bool um_tok_rule_find(um_str name, um_tok_rule *out) {
    for (size_t i = 0; i < UM_LEN(known); i++) {
        if (!has_name(known[i].names, name)) continue;
        *out = (um_tok_rule){known[i].regex, known[i].nfc};
        return true;
    }
    return false;
}

void um_tok_rules_list(um_buf *out) {
    for (size_t i = 0; i < UM_LEN(known); i++)
        for (const char *p = known[i].names; *p;) {
            size_t len = strcspn(p, "|");
            um_buf_printf(out, "%s%.*s", out->len ? ", " : "", (int)len, p);
            p += len + (p[len] == '|');
        }
}

/* Returns the code point at p and its length in bytes. The text must be valid UTF-8. */
static inline uint32_t char_at(const char *p, size_t *len) {
    const uint8_t *u = (const uint8_t *)p;
    if (u[0] < 0x80) {
        *len = 1;
        return u[0];
    }
    if (u[0] < 0xE0) {
        *len = 2;
        return (u[0] & 0x1Fu) << 6 | (u[1] & 0x3Fu);
    }
    if (u[0] < 0xF0) {
        *len = 3;
        return (u[0] & 0x0Fu) << 12 | (u[1] & 0x3Fu) << 6 | (u[2] & 0x3Fu);
    }
    *len = 4;
    return (u[0] & 0x07u) << 18 | (u[1] & 0x3Fu) << 12 | (u[2] & 0x3Fu) << 6 | (u[3] & 0x3Fu);
}

static inline um_class class_at(um_str s, size_t i, size_t *len) { return um_class_of(char_at(s.p + i, len)); }

static size_t run_end(um_str s, size_t i, um_class class) {
    size_t len;
    while (i < s.n && class_at(s, i, &len) == class) i += len;
    return i;
}

static inline bool is_line_end(char c) { return c == '\r' || c == '\n'; }

/* Returns the ASCII character at s[i] for comparison with a contraction, in lower case if k->fold, and sets *end to the
 * offset after it. Returns 0 for other characters and at the end. */
static char folded(const um_known *k, um_str s, size_t i, size_t *end) {
    size_t len = 0;
    uint32_t c = i < s.n ? char_at(s.p + i, &len) : 0;
    *end = i + len;
    if (k->fold && c == 0x17F) return 's';
    if (k->fold && c >= 'A' && c <= 'Z') c += 'a' - 'A';
    return c < 0x80 ? (char)c : '\0';
}

/* Returns the end of 's, 't, 're, 've, 'm, 'll or 'd at s[i], or i if there is none. */
static size_t contraction(const um_known *k, um_str s, size_t i) {
    size_t end;
    char a = folded(k, s, i + 1, &end);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return end;
    char b = a ? folded(k, s, end, &end) : '\0';
    return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? end : i;
}

/* Returns the end of a piece of white space. It extends through the last line end of the run (not for GPT-2). Otherwise
 * it leaves the run's last character to the next piece, unless the run ends the text or is one character. */
static size_t space_end(const um_known *k, um_str s, size_t i) {
    size_t at = i, last = i, after_line = i, len;
    for (; at < s.n && class_at(s, at, &len) == UM_CLASS_SPACE; at += len) {
        last = at;
        if (is_line_end(s.p[at])) after_line = at + 1;
    }
    if (!k->spaces_before && after_line > i) return after_line;
    return at < s.n && last > i ? last : at;
}

size_t um_known_end(const um_known *k, um_str s, size_t i) {
    size_t len, more, end;
    um_class class = class_at(s, i, &len);
    if (s.p[i] == '\'' && (end = contraction(k, s, i)) > i) return end;
    bool is_space = s.p[i] == ' ';
    bool takes =
        k->spaces_before ? is_space : (class == UM_CLASS_OTHER || class == UM_CLASS_SPACE) && !is_line_end(s.p[i]);
    size_t word = takes ? i + len : i;
    um_class first = word == i ? class : (word < s.n ? class_at(s, word, &more) : UM_CLASS_SPACE);
    if (first == UM_CLASS_LETTER) return run_end(s, word, UM_CLASS_LETTER);
    if (k->spaces_before && first == UM_CLASS_NUMBER) return run_end(s, word, UM_CLASS_NUMBER);
    if (class == UM_CLASS_NUMBER) {
        end = i + len;
        for (size_t n = 1; n < k->digits && end < s.n && class_at(s, end, &more) == UM_CLASS_NUMBER; n++) end += more;
        return end;
    }
    size_t other = is_space ? i + 1 : i;
    end = run_end(s, other, UM_CLASS_OTHER);
    if (end == other) return space_end(k, s, i);
    while (k->line_ends && end < s.n && is_line_end(s.p[end])) end++;
    return end;
}
