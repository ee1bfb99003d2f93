/* Special tokens in the text of a message. Templates copy, trim, split and compare contents, so a character that nobody
 * uses travels along with them unharmed; behind the template it keeps the tokens apart and is then removed. */
#include "text/guard.h"

#define FIRST_GUARD 0xFDD0u
#define LAST_GUARD  0xFDEFu

uint32_t um_guard_choose(const um_str *text, size_t n) {
    for (uint32_t g = FIRST_GUARD; g <= LAST_GUARD; g++) {
        char c[4];
        size_t len = (size_t)um_utf8_put(g, c), i = 0;
        while (i < n && !(text[i].n && memmem(text[i].p, text[i].n, c, len))) i++;
        if (i == n) return g;
    }
    return 0;
}

static bool spells(const um_tok *t, um_str s, size_t at, int32_t only) {
    return um_trie_is_special(&t->trie[0], t->added, s, at, only) ||
           um_trie_is_special(&t->trie[1], t->added, s, at, only);
}

/* `every`: behind every character. */
static void insert_guards(const um_tok *t, um_str s, uint32_t guard, int32_t only, bool every, um_buf *out) {
    char g[4];
    int len;
    size_t n = (size_t)um_utf8_put(guard, g);
    for (size_t i = 0; i < s.n; i += (size_t)len) {
        um_cp_at(s.p + i, s.n - i, &len);
        um_buf_append(out, s.p + i, (size_t)len);
        if (every || spells(t, s, i, only)) um_buf_append(out, g, n);
    }
}

/* The normalizer makes a special token out of the guarded text. */
static um_status normalizes_to_special(const um_tok *t, um_str s, int32_t only, bool *yes, um_err *err) {
    um_scan scan = {0};
    um_buf buf[2] = {{0}, {0}};
    um_status st = um_norm_apply(&t->norm, &scan, s, buf, &s, err);
    *yes = false;
    for (size_t i = 0; i < s.n && !st && !*yes; i++) *yes = um_trie_is_special(&t->trie[1], t->added, s, i, only);
    um_buf_free(&buf[0]);
    um_buf_free(&buf[1]);
    um_scan_free(&scan);
    return st;
}

um_status um_guard_text(const um_tok *t, um_str s, uint32_t guard, int32_t only, um_buf *out, um_err *err) {
    size_t from = out->len;
    insert_guards(t, s, guard, only, false, out);
    if (!t->has_normalized_special || s.n == 0) return UM_OK;
    bool again;
    um_status st = normalizes_to_special(t, (um_str){out->data + from, out->len - from}, only, &again, err);
    if (st || !again) return st;
    out->len = from;
    insert_guards(t, s, guard, only, true, out);
    return UM_OK;
}
