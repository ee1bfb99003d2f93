/* The rules of a grammar as a graph of nodes, as Thompson's construction makes it: a path from the entry of a rule to
 * its end spells a text of the rule. A node that calls a rule continues, at the end of that rule, where it says. */
#ifndef UM_GRAPH_H
#define UM_GRAPH_H

#include "grammar/grammar.h"
#include "grammar/vocabulary.h"

#define UM_GRAPH_NODES_MAX ((int32_t)1 << 18)
#define UM_GRAPH_SETS_MAX  4096      /* different sets of bytes */
#define UM_DEPTH_MAX       64        /* largest depth of recursive rules */
#define UM_FAR             (1 << 29) /* the distance of what can't be reached */

typedef enum { UM_NODE_BYTES, UM_NODE_SPLIT, UM_NODE_CALL, UM_NODE_END } um_node_kind;

typedef struct um_node {
    um_node_kind kind;
    int32_t next;  /* BYTES: the node behind the byte; CALL: the node behind the text of the rule */
    int32_t index; /* BYTES: set; CALL: rule; SPLIT: its first alternative in `branch` */
    int32_t n;     /* SPLIT: number of alternatives */
    int32_t cut;   /* BYTES: bytes of the token that spells the text from here, if that text goes on behind the token;
                      0: unknown */
    bool deep;     /* the node belongs to a rule that may call a recursive one */
} um_node;

typedef struct um_byte_set {
    uint64_t bits[4];
} um_byte_set;

typedef struct um_graph {
    um_node *node;
    int32_t n_nodes, cap_nodes;
    int32_t *branch; /* alternatives of all SPLIT nodes */
    int32_t n_branches, cap_branches;
    um_byte_set *set; /* all different sets of bytes, limited to the alphabet */
    int32_t n_sets, cap_sets;
    int32_t single[256];     /* the set with this byte alone; -1: none yet */
    uint8_t byte_class[256]; /* bytes of a class are in the same sets */
    uint8_t class_byte[256]; /* [n_classes] a byte of the class */
    int32_t n_classes;
    /* [n_rules] Every cycle of calls goes through a rule that is called `recursive` here. Calls of such a rule count
     * for the depth, unless they are the end of their rule; every cycle that makes the stack grow has one that counts.
     * A rule is deep if a cycle can be reached from it. */
    int32_t n_rules, root;
    int32_t *first, *entry; /* the nodes of rule r: node[first[r]] … node[first[r + 1] - 1]; its entry */
    int32_t *component;     /* rules that call each other have the same number; called rules have lower ones */
    bool *recursive, *deep;
    int32_t depth;     /* largest depth; 0 if no rule is recursive */
    int32_t *distance; /* [depth + 1, n_nodes] least bytes from the node to the end of its rule, at each depth */
    uint64_t alphabet[4];
    int64_t work; /* steps left for the distances */
} um_graph;

/* Builds the graph of complete rules (um_rules_check). Bytes that are no tokens of the vocabulary are in no text.
 * UM_ELIMIT when the graph is too large; UM_EINVAL when no text matches. */
um_status um_graph_init(um_graph *g, const um_rules *rules, const um_vocabulary *v, int32_t depth, um_err *err);
void um_graph_free(um_graph *g);

static inline bool um_graph_has(const um_graph *g, int32_t set, uint8_t byte) {
    return g->set[set].bits[byte / 64] >> byte % 64 & 1;
}

#endif
