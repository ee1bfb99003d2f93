/* The CPUs on which threads are pinned.
 *
 * Threads with neighbouring numbers read neighbouring parts of the weights. So they are placed on the same memory node,
 * node after node, each node with a number of threads in proportion to its CPUs. Within a node every core gets one
 * thread before a second hardware thread of a core gets one. */
#include "base/base.h"

#include <sched.h>
#include <stdlib.h>

#define LIST_BYTES_MAX ((size_t)64 << 10)

typedef struct place {
    int node, rank, cpu; /* rank: the number of the hardware thread in its core */
} place;

int um_cpu_list(const char *text, int *cpu, int max) {
    int n = 0;
    for (const char *at = text; *at;) {
        char *end;
        const long first = strtol(at, &end, 10);
        if (end == at || first < 0) return n;
        long last = first;
        if (*end == '-') {
            at = end + 1;
            last = strtol(at, &end, 10);
            if (end == at || last < first) return n;
        }
        for (long i = first; i <= last && i < UM_CPUS_MAX && n < max; i++) cpu[n++] = (int)i;
        if (*end != ',') return n;
        at = end + 1;
    }
    return n;
}

/* Reads root/name as a list of CPUs or nodes. Returns their number, 0 for a missing file. */
static int read_list(const char *root, const char *name, int *out, int max) {
    um_buf text = {0};
    char *path = um_path_join(root, name);
    const int n = um_file_read(path, LIST_BYTES_MAX, &text, NULL) || !text.len ? 0 : um_cpu_list(text.data, out, max);
    um_free(path);
    um_buf_free(&text);
    return n;
}

/* Sets the node of every place. CPUs that no node lists are on node 0. */
static void find_nodes(const char *root, place *p, int n) {
    int node[UM_CPUS_MAX], cpu[UM_CPUS_MAX];
    const int n_nodes = read_list(root, "node/online", node, UM_CPUS_MAX);
    for (int i = 0; i < n_nodes; i++) {
        char name[64];
        snprintf(name, sizeof name, "node/node%d/cpulist", node[i]);
        const int n_cpus = read_list(root, name, cpu, UM_CPUS_MAX);
        for (int k = 0; k < n_cpus; k++)
            for (int t = 0; t < n; t++)
                if (p[t].cpu == cpu[k]) p[t].node = node[i];
    }
}

/* Sets the rank of every place: the number of usable hardware threads of its core before it. */
static void find_ranks(const char *root, place *p, int n) {
    int sibling[UM_CPUS_MAX];
    for (int t = 0; t < n; t++) {
        char name[64];
        snprintf(name, sizeof name, "cpu/cpu%d/topology/thread_siblings_list", p[t].cpu);
        const int n_siblings = read_list(root, name, sibling, UM_CPUS_MAX);
        for (int k = 0; k < n_siblings; k++)
            for (int other = 0; other < t; other++) p[t].rank += p[other].cpu == sibling[k];
    }
}

static int compare(const void *a, const void *b) {
    const place *x = (const place *)a, *y = (const place *)b;
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return (x->cpu > y->cpu) - (x->cpu < y->cpu);
}

int um_cpu_places(const char *root, const int *usable, int n_usable, int n, int *cpu) {
    place p[UM_CPUS_MAX] = {{0}};
    int n_nodes = 0;
    assert(n_usable <= UM_CPUS_MAX && n <= n_usable);
    for (int i = 0; i < n_usable; i++) p[i].cpu = usable[i];
    find_nodes(root, p, n_usable);
    find_ranks(root, p, n_usable);
    qsort(p, (size_t)n_usable, sizeof *p, compare);
    for (int from = 0, to; from < n_usable; from = to, n_nodes++) {
        for (to = from; to < n_usable && p[to].node == p[from].node;) to++;
        const int first = um_share_begin(n, from, n_usable), end = um_share_begin(n, to, n_usable);
        for (int t = first; t < end; t++) cpu[t] = p[from + t - first].cpu;
    }
    return n_nodes;
}

int um_cpu_usable(int *cpu) {
    cpu_set_t set;
    int n = 0;
    if (sched_getaffinity(0, sizeof set, &set)) return 0; /* fails when there are more CPUs than bits in the set */
    for (int i = 0; i < UM_MIN(UM_CPUS_MAX, CPU_SETSIZE); i++)
        if (CPU_ISSET((size_t)i, &set)) cpu[n++] = i;
    return n;
}
