/* clean_up_tokenization_spaces removes the spaces that word-level tokenizers put before punctuation and contractions.
 * The reference runs ten replacements, each over the whole text. Here they are ten chained filters. Each filter holds
 * back the beginning of a possible match, so that the chain also works on a stream. */
#include "text/tok.h"

static const struct {
    const char *from, *to;
} rules[UM_CLEAN_RULES] = {
    {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
    {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
};

/* Feeds one character to a rule and its output to the next rule. held[rule] is the number of matched characters. Every
 * `from` begins with a space and has no other space except at its end. After a mismatch, only the current character can
 * therefore begin a new match. */
static void feed(uint8_t *held, size_t rule, char c, um_buf *out) {
    if (rule == UM_CLEAN_RULES) {
        um_buf_putc(out, c);
        return;
    }
    const char *from = rules[rule].from;
    if (c == from[held[rule]]) {
        if (from[++held[rule]]) return;
        held[rule] = 0;
        for (const char *to = rules[rule].to; *to; to++) feed(held, rule + 1, *to, out);
        return;
    }
    size_t n = held[rule];
    held[rule] = 0;
    for (size_t i = 0; i < n; i++) feed(held, rule + 1, from[i], out);
    if (c == ' ') held[rule] = 1;
    else feed(held, rule + 1, c, out);
}

void um_clean_text(uint8_t held[UM_CLEAN_RULES], um_buf *out, size_t from) {
    um_buf text = {0};
    um_buf_append(&text, out->data + from, out->len - from);
    out->len = from;
    for (size_t i = 0; i < text.len; i++) feed(held, 0, text.data[i], out);
    um_buf_free(&text);
}

void um_clean_end(uint8_t held[UM_CLEAN_RULES], um_buf *out) {
    for (size_t rule = 0; rule < UM_CLEAN_RULES; rule++) {
        size_t n = held[rule];
        held[rule] = 0;
        for (size_t i = 0; i < n; i++) feed(held, rule + 1, rules[rule].from[i], out);
    }
}
