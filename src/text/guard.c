/* Protects messages against special tokens in their text. Templates copy, trim, split and compare contents. A guard, an
 * otherwise unused character, survives this. After the template it interrupts the spelling of a token; the tokenizer
 * then removes it. */
#include "text/guard.h"

#include "text/template.h"

#define FIRST_GUARD 0xFDD0u
#define N_GUARDS    32

uint32_t um_guards_in(um_str s) { /* U+FDD0 to U+FDEF are EF B7 90 to EF B7 AF */
    uint32_t found = 0;
    for (size_t i = 0; i + 2 < s.n; i++) {
        const char *p = (const char *)memchr(s.p + i, 0xEF, s.n - 2 - i);
        if (!p) break;
        i = (size_t)(p - s.p);
        uint8_t last = (uint8_t)p[2];
        if ((uint8_t)p[1] == 0xB7 && last >= 0x90 && last < 0x90 + N_GUARDS) found |= 1u << (last - 0x90);
    }
    return found;
}

uint32_t um_guard_pick(uint32_t *used) {
    for (uint32_t i = 0; i < N_GUARDS; i++)
        if (!(*used >> i & 1)) {
            *used |= 1u << i;
            return FIRST_GUARD + i;
        }
    return 0;
}

void um_guard_remove(um_str s, uint32_t guard, um_buf *out) {
    char g[4];
    size_t n = (size_t)um_utf8_put(guard, g);
    for (size_t at = 0; at < s.n;) {
        const char *hit = (const char *)memmem(s.p + at, s.n - at, g, n);
        size_t end = hit ? (size_t)(hit - s.p) : s.n;
        um_buf_append(out, s.p + at, end - at);
        at = end + n;
    }
}

/* ---- Tokens in text ---------------------------------------------------------------------------------------------- */

static bool is_meant(const um_added *a, um_guard_what what, int32_t mask) {
    return what == UM_GUARD_ADDED || a->id == mask || (what == UM_GUARD_SPECIAL && a->special);
}

static bool spells_in(const um_tok *t, int trie, um_str s, size_t at, um_guard_what what, int32_t mask) {
    size_t end;
    if (what == UM_GUARD_ADDED) return um_trie_match(&t->trie[trie], t->added, UM_PARSE_ALL, s, at, &end) >= 0;
    if (what == UM_GUARD_SPECIAL && um_trie_is_special(&t->trie[trie], t->added, s, at, -1)) return true;
    return mask >= 0 && um_trie_is_special(&t->trie[trie], t->added, s, at, mask);
}

static bool spells(const um_tok *t, um_str s, size_t at, um_guard_what what, int32_t mask) {
    return spells_in(t, 0, s, at, what, mask) || spells_in(t, 1, s, at, what, mask);
}

/* Sets *yes if the normalizer turns the text, which may contain guards, into text with a protected token. */
static um_status normalizes_to_token(const um_tok *t, um_str s, um_guard_what what, int32_t mask, bool *yes,
                                     um_err *err) {
    um_match_state scan = {0};
    um_buf buf[2] = {{0}, {0}};
    um_status st = um_norm_apply(&t->norm, &scan, s, buf, &s, err);
    *yes = false;
    for (size_t i = 0; i < s.n && !st && !*yes; i++) *yes = spells_in(t, 1, s, i, what, mask);
    um_buf_free(&buf[0]);
    um_buf_free(&buf[1]);
    um_scan_free(&scan);
    return st;
}

/* Returns true if a protected token may be matched in normalized text. */
static bool has_normalized(const um_tok *t, um_guard_what what) {
    return t->has_normalized_special || (what == UM_GUARD_ADDED && t->trie[1].n > 0);
}

/* ---- Inserting guards -------------------------------------------------------------------------------------------- */

/* Returns true if s begins with the last bytes of the token, at least two, so that a guard fits between them. */
static bool ends_a_token(um_str s, um_str token) {
    for (size_t n = 2; n < token.n && n <= s.n; n++)
        if (memcmp(s.p, token.p + token.n - n, n) == 0) return true;
    return false;
}

static bool begins_a_token(um_str s, um_str token) {
    for (size_t n = 1; n < token.n && n <= s.n; n++)
        if (memcmp(s.p + s.n - n, token.p, n) == 0) return true;
    return false;
}

/* Sets *front if s could complete a token that the preceding text begins, and *back if s could begin a token that the
 * following text completes. */
static void look_at_borders(const um_tok *t, um_str s, um_guard_what what, int32_t mask, bool *front, bool *back) {
    for (size_t i = 0; i < t->n_added && s.n && !(*front && *back); i++) {
        if (!is_meant(&t->added[i], what, mask)) continue;
        *front = *front || ends_a_token(s, t->added[i].text);
        *back = *back || begins_a_token(s, t->added[i].text);
    }
}

typedef struct guarding {
    const um_tok *tok;
    um_guard_what what;
    int32_t mask;
    bool borders;
    char g[4];
    size_t n;
} guarding;

/* Appends s with guards. `every`: after every character. */
static void insert_guards(const guarding *w, um_str s, bool every, um_buf *out) {
    um_str middle = um_strip(s, NULL, true, true);
    const char *first = middle.p, *last = middle.p + middle.n;
    bool front = false, back = false;
    int len;
    if (w->borders) look_at_borders(w->tok, middle, w->what, w->mask, &front, &back);
    for (size_t i = 0; i < s.n; i += (size_t)len) {
        um_cp_at(s.p + i, s.n - i, &len);
        um_buf_append(out, s.p + i, (size_t)len);
        bool border = (front && s.p + i == first) || (back && s.p + i + len == last);
        if (every || border || spells(w->tok, s, i, w->what, w->mask)) um_buf_append(out, w->g, w->n);
    }
}

um_status um_guard_text(const um_tok *t, um_str s, uint32_t guard, um_guard_what what, bool borders, um_buf *out,
                        um_err *err) {
    guarding w = {.tok = t, .what = what, .borders = borders, .mask = um_tok_special_id(t, "mask_token")};
    size_t from = out->len;
    bool again;
    w.n = (size_t)um_utf8_put(guard, w.g);
    insert_guards(&w, s, false, out);
    if (!has_normalized(t, what) || s.n == 0) return UM_OK;
    um_status st = normalizes_to_token(t, (um_str){out->data + from, out->len - from}, what, w.mask, &again, err);
    if (st || !again) return st;
    out->len = from;
    insert_guards(&w, s, true, out);
    return UM_OK;
}

um_status um_guard_find(const um_tok *t, um_str s, um_guard_what what, um_str *token, um_err *err) {
    int32_t mask = um_tok_special_id(t, "mask_token");
    *token = (um_str){NULL, 0};
    for (size_t i = 0; i < s.n && !token->p; i++) {
        size_t end[2] = {i, i};
        if (!spells(t, s, i, what, mask)) continue;
        for (int k = 0; k < 2; k++) um_trie_match(&t->trie[k], t->added, UM_PARSE_ALL, s, i, &end[k]);
        *token = (um_str){s.p + i, UM_MAX(end[0], end[1]) - i};
    }
    if (token->p || !has_normalized(t, what) || s.n == 0) return UM_OK;
    bool yes;
    um_status st = normalizes_to_token(t, s, what, mask, &yes, err);
    if (!st && yes) *token = s;
    return st;
}
