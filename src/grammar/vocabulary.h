/* The tokens of a vocabulary as a trie over their bytes. A vocabulary never changes, so any thread may read it. */
#ifndef UM_VOCABULARY_H
#define UM_VOCABULARY_H

#include "base/base.h"

/* Where a vocabulary comes from. The functions are called by um_vocabulary_new and um_language_new alone. */
typedef struct um_vocabulary_source {
    void *arg;
    int32_t n; /* ids are 0..n-1 */
    /* Returns the bytes of a token that may be a part of an answer's text; nothing for special tokens and unused ids.
     * They live as long as the vocabulary. */
    um_str (*bytes)(void *arg, int32_t id);
    /* Writes the lengths in bytes of the tokens that the tokenizer makes of `text` to len [text.n], and returns their
     * number; 0: unknown. NULL: the longest tokens are taken from left to right. */
    size_t (*spell)(void *arg, um_str text, int32_t *len);
} um_vocabulary_source;

/* The nodes are in preorder, so the nodes below node i are i + 1 … skip[i] - 1, and tokens that begin alike are
 * neighbours in `id`. Node 0 is the root, the empty text. */
typedef struct um_vocabulary {
    um_vocabulary_source source;
    int32_t n_nodes, n_ids, longest; /* longest: bytes of the longest token */
    uint8_t *byte;                   /* [n_nodes] last byte */
    uint16_t *depth;                 /* [n_nodes] number of bytes */
    int32_t *skip;                   /* [n_nodes] first node that is not below this one */
    int32_t *first;                  /* [n_nodes + 1] the tokens of node i are id[first[i]] … id[first[i + 1] - 1] */
    int32_t *id;                     /* [n_ids] */
    uint64_t alphabet[4];            /* bytes that are tokens of their own */
} um_vocabulary;

/* Builds the trie. Tokens of more than UM_VOCABULARY_BYTES_MAX bytes are left out. *out is freed with
 * um_vocabulary_free. UM_EUNSUPPORTED when no token is a single byte: an answer could not be finished byte by byte. */
#define UM_VOCABULARY_BYTES_MAX 512
um_status um_vocabulary_new(um_vocabulary **out, const um_vocabulary_source *source, um_err *err);
void um_vocabulary_free(um_vocabulary *v);
/* Returns the node with these bytes, which lie below `node`; -1: no token begins with them. */
int32_t um_vocabulary_find(const um_vocabulary *v, int32_t node, um_str bytes);
/* Returns the length of the longest token that `text` begins with, 0: none does. */
int32_t um_vocabulary_longest(const um_vocabulary *v, um_str text);

#endif
