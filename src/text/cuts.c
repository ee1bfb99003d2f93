/* Some tokenizers merge a whole message as one piece. It may be cut first wherever no token reaches across: a merge
 * over such a place would have to produce a token that does not exist. Short parts merge fast, and the same ones come
 * again. */
#include "text/tok.h"

static const char meta[] = "\xE2\x96\x81"; /* U+2581, what these tokenizers write for a space */
enum { META_BYTES = 3 };

static bool is_meta(um_str s, size_t at) { return s.n - at >= META_BYTES && memcmp(s.p + at, meta, META_BYTES) == 0; }

static bool is_before(const um_cuts *c, uint32_t cp) {
    for (size_t i = 0; i < c->n_before; i++)
        if (c->before[i] == cp) return true;
    return false;
}

/* Notes what stands directly before an inner U+2581. False when too many characters do. */
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

/* What a cut is made at must be a token itself: unknown characters next to each other may become one token. */
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
