/* Added tokens. The text is scanned from left to right; a byte trie finds the longest token at each position. */
#include "text/tok.h"

typedef struct um_trie_node {
    uint32_t child, sibling; /* 0 = none; node 0 is unused */
    int32_t added;           /* index of the token that ends at this node, or -1 */
    uint8_t byte;
} um_trie_node;

static uint32_t node_new(um_trie *t, uint8_t byte) {
    if (t->n + 1 >= t->cap) {
        t->cap = t->cap ? t->cap * 2 : 256;
        t->node = (um_trie_node *)um_realloc(t->node, um_mul(t->cap, sizeof(um_trie_node)));
    }
    if (t->n == 0) t->n = 1;
    t->node[t->n] = (um_trie_node){.added = -1, .byte = byte};
    return t->n++;
}

static uint32_t child_of(const um_trie *t, uint32_t node, uint8_t byte) {
    uint32_t c = t->node[node].child;
    while (c && t->node[c].byte != byte) c = t->node[c].sibling;
    return c;
}

void um_trie_add(um_trie *t, um_str key, int32_t added) {
    if (key.n == 0) return;
    uint8_t first = (uint8_t)key.p[0];
    if (!t->root[first]) {
        uint32_t node = node_new(t, first);
        t->root[first] = node;
    }
    uint32_t at = t->root[first];
    for (size_t i = 1; i < key.n; i++) {
        uint32_t c = child_of(t, at, (uint8_t)key.p[i]);
        if (!c) {
            c = node_new(t, (uint8_t)key.p[i]);
            t->node[c].sibling = t->node[at].child;
            t->node[at].child = c;
        }
        at = c;
    }
    if (t->node[at].added < 0) t->node[at].added = added;
}

void um_trie_free(um_trie *t) {
    um_free(t->node);
    t->node = NULL;
}

int32_t um_trie_match(const um_trie *t, const um_added *list, um_parse parse, um_str s, size_t at, size_t *end) {
    int32_t best = -1;
    uint32_t node = t->root[(uint8_t)s.p[at]];
    for (size_t i = at + 1; node; i++) {
        int32_t a = t->node[node].added;
        if (a >= 0 && (parse == UM_PARSE_ALL || !list[a].special)) {
            best = a;
            *end = i;
        }
        if (i >= s.n) break;
        node = child_of(t, node, (uint8_t)s.p[i]);
    }
    return best;
}

bool um_trie_is_special(const um_trie *t, const um_added *list, um_str s, size_t at, int32_t only) {
    uint32_t node = t->root[(uint8_t)s.p[at]];
    for (size_t i = at + 1; node; i++) {
        int32_t a = t->node[node].added;
        if (a >= 0 && list[a].special && (only < 0 || list[a].id == only)) return true;
        if (i >= s.n) break;
        node = child_of(t, node, (uint8_t)s.p[i]);
    }
    return false;
}

static bool is_guarded(um_str s, size_t at, size_t end, uint32_t guard) {
    int len;
    if (!guard || end >= s.n) return false;
    um_cp_at(s.p + at, s.n - at, &len);
    return at + (size_t)len == end && um_cp_at(s.p + end, s.n - end, &len) == guard;
}

static bool stands_alone(um_str s, size_t at, size_t end) {
    int len;
    if (at > 0 && um_is_word(um_cp_before(s.p, at, &len))) return false;
    return end >= s.n || !um_is_word(um_cp_at(s.p + end, s.n - end, &len));
}

static size_t space_before(um_str s, size_t at, size_t low) {
    int len;
    while (at > low && um_is_space(um_cp_before(s.p, at, &len)) && at - (size_t)len >= low) at -= (size_t)len;
    return at;
}

static size_t space_behind(um_str s, size_t at) {
    int len;
    while (at < s.n && um_is_space(um_cp_at(s.p + at, s.n - at, &len))) at += (size_t)len;
    return at;
}

bool um_added_next(const um_trie *t, const um_added *list, um_parse parse, uint32_t guard, um_str s, size_t done,
                   um_hit *hit) {
    if (parse == UM_PARSE_NONE || !t->node) return false;
    size_t at = done, end = 0;
    while (at < s.n) {
        if (!t->root[(uint8_t)s.p[at]]) {
            at++;
            continue;
        }
        int32_t a = um_trie_match(t, list, parse, s, at, &end);
        if (a < 0 || is_guarded(s, at, end, guard)) {
            at++;
            continue;
        }
        if (list[a].single_word && !stands_alone(s, at, end)) {
            at = end;
            continue;
        }
        hit->added = a;
        hit->start = list[a].lstrip ? space_before(s, at, done) : at;
        hit->end = list[a].rstrip ? space_behind(s, end) : end;
        return true;
    }
    return false;
}
