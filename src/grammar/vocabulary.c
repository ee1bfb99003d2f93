/* The trie of a vocabulary. */
#include <stdlib.h>

#include "grammar/vocabulary.h"

typedef struct token {
    um_str bytes;
    int32_t id;
} token;

static int compare(const void *a, const void *b) {
    const token *x = (const token *)a, *y = (const token *)b;
    int c = memcmp(x->bytes.p, y->bytes.p, UM_MIN(x->bytes.n, y->bytes.n));
    if (c) return c;
    if (x->bytes.n != y->bytes.n) return x->bytes.n < y->bytes.n ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Returns the tokens in the order of their bytes. */
static token *sorted_tokens(const um_vocabulary_source *s, int32_t *n, size_t *bytes) {
    token *list = UM_NEW_ARRAY(token, (size_t)s->n + 1);
    *n = 0;
    *bytes = 0;
    for (int32_t id = 0; id < s->n; id++) {
        um_str text = s->bytes(s->arg, id);
        if (text.n == 0 || text.n > UM_VOCABULARY_BYTES_MAX) continue;
        list[(*n)++] = (token){text, id};
        *bytes += text.n;
    }
    qsort(list, (size_t)*n, sizeof *list, compare);
    return list;
}

static int32_t common_prefix(um_str a, um_str b) {
    size_t n = 0;
    while (n < a.n && n < b.n && a.p[n] == b.p[n]) n++;
    return (int32_t)n;
}

/* Ends the subtrees of the open nodes that are deeper than `depth`. */
static void close_nodes(um_vocabulary *v, const int32_t *open, int32_t *n_open, int32_t depth) {
    while (*n_open > depth) v->skip[open[--*n_open]] = v->n_nodes;
}

static void add_node(um_vocabulary *v, uint8_t byte, int32_t depth) {
    const int32_t i = v->n_nodes++;
    v->byte[i] = byte;
    v->depth[i] = (uint16_t)depth;
    v->first[i] = v->n_ids;
}

static void fill(um_vocabulary *v, const token *list, int32_t n) {
    int32_t open[UM_VOCABULARY_BYTES_MAX + 1], n_open = 0; /* open[d]: the node of depth d on the present path */
    add_node(v, 0, 0);
    open[n_open++] = 0;
    um_str before = {0};
    for (int32_t i = 0; i < n; i++) {
        const um_str text = list[i].bytes;
        close_nodes(v, open, &n_open, common_prefix(before, text) + 1);
        for (int32_t d = n_open; d <= (int32_t)text.n; d++) {
            open[n_open++] = v->n_nodes;
            add_node(v, (uint8_t)text.p[d - 1], d);
        }
        v->id[v->n_ids++] = list[i].id;
        v->longest = UM_MAX(v->longest, (int32_t)text.n);
        if (text.n == 1) v->alphabet[(uint8_t)text.p[0] / 64] |= UINT64_C(1) << (uint8_t)text.p[0] % 64;
        before = text;
    }
    close_nodes(v, open, &n_open, 0);
    v->first[v->n_nodes] = v->n_ids;
}

um_status um_vocabulary_new(um_vocabulary **out, const um_vocabulary_source *source, um_err *err) {
    int32_t n;
    size_t bytes;
    token *list = sorted_tokens(source, &n, &bytes);
    um_vocabulary *v = UM_NEW(um_vocabulary);
    v->source = *source;
    v->byte = UM_NEW_ARRAY(uint8_t, bytes + 1);
    v->depth = UM_NEW_ARRAY(uint16_t, bytes + 1);
    v->skip = UM_NEW_ARRAY(int32_t, bytes + 1);
    v->first = UM_NEW_ARRAY(int32_t, bytes + 2);
    v->id = UM_NEW_ARRAY(int32_t, (size_t)n + 1);
    fill(v, list, n);
    um_free(list);
    *out = v;
    if (v->alphabet[0] | v->alphabet[1] | v->alphabet[2] | v->alphabet[3]) return UM_OK;
    um_vocabulary_free(v);
    *out = NULL;
    return um_fail(err, UM_EUNSUPPORTED, "the tokenizer has no tokens of a single byte, which constraints need");
}

void um_vocabulary_free(um_vocabulary *v) {
    if (!v) return;
    um_free(v->byte);
    um_free(v->depth);
    um_free(v->skip);
    um_free(v->first);
    um_free(v->id);
    um_free(v);
}

int32_t um_vocabulary_find(const um_vocabulary *v, int32_t node, um_str bytes) {
    for (size_t i = 0; i < bytes.n; i++) {
        int32_t child = node + 1;
        while (child < v->skip[node] && v->byte[child] != (uint8_t)bytes.p[i]) child = v->skip[child];
        if (child >= v->skip[node]) return -1;
        node = child;
    }
    return node;
}

int32_t um_vocabulary_longest(const um_vocabulary *v, um_str text) {
    int32_t longest = 0, node = 0;
    for (size_t i = 0; i < text.n; i++) {
        node = um_vocabulary_find(v, node, (um_str){text.p + i, 1});
        if (node < 0) break;
        if (v->first[node] < v->first[node + 1]) longest = (int32_t)i + 1;
    }
    return longest;
}
