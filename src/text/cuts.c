/* Some tokenizers merge a whole message as one piece. The piece may be split first at any position that no token spans:
 * a merge across that position would produce a token that does not exist. Short parts merge faster, and the cache of
 * pieces finds repeated ones. */
#include "text/tok.h"

static const char meta[] = "\xE2\x96\x81"; /* U+2581, which these tokenizers write for a space */
enum { META_BYTES = 3 };

static bool is_meta(um_str s, size_t at) { return s.n - at >= META_BYTES && memcmp(s.p + at, meta, META_BYTES) == 0; }

static bool is_before(const um_cuts *c, uint32_t cp) {
    for (size_t i = 0; i < c->n_before; i++)
        if (c->before[i] == cp) return true;
    return false;
}

/* Records the character before a U+2581 inside a token. Returns false if there are too many different characters. */
static bool note_before(um_cuts *c, um_str token, size_t at) {
    int len;
    uint32_t cp = um_cp_before(token.p, at, &len);
    if (cp == 0x2581 || is_before(c, cp)) return true;
    if (c->n_before == UM_LEN(c->before)) return false;
    c->before[c->n_before++] = cp;
    return true;
}

static void look_at(um_cuts *c, um_str token) {
    size_t lines = 0;
    for (size_t i = 0; i < token.n; i++) {
        lines += token.p[i] == '\n';
        if (c->at_meta && i > 0 && token.p[i] == meta[0] && is_meta(token, i)) c->at_meta = note_before(c, token, i);
    }
    if (lines && lines < token.n) c->at_lines = false;
}

/* A split needs U+2581 or the line feed as a token of its own, because fuse_unk joins adjacent unknown characters. */
void um_cuts_find(um_cuts *c, const um_vocab *v) {
    *c = (um_cuts){.at_meta = um_vocab_find(v, um_str_of(meta)) >= 0, .at_lines = um_vocab_find(v, UM_STR("\n")) >= 0};
    for (int32_t id = 0; id < v->size && (c->at_meta || c->at_lines); id++) look_at(c, v->token[id]);
}

static bool is_cut(const um_cuts *c, um_str s, size_t at) {
    int len;
    if (c->at_lines && (s.p[at] == '\n') != (s.p[at - 1] == '\n')) return true;
    if (!c->at_meta || s.p[at] != meta[0] || !is_meta(s, at)) return false;
    uint32_t cp = um_cp_before(s.p, at, &len);
    return cp != 0x2581 && !is_before(c, cp);
}

size_t um_cuts_next(const um_cuts *c, um_str s, size_t at) {
    if (!c->at_meta && !c->at_lines) return s.n;
    for (at++; at < s.n && !is_cut(c, s, at); at++) continue;
    return at;
}
