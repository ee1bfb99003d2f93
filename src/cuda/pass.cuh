/* pass: the activations, the KV cache and the graphs of one engine on a GPU. Used inside the room cuda only. */
#ifndef UM_CUDA_PASS_CUH
#define UM_CUDA_PASS_CUH

#include "cuda/comm.cuh"
#include "cuda/device.cuh"
#include "cuda/sizes.h"

/* Events between the operations of a pass, while a profile runs. */
enum { UM_CU_MARKS_MAX = 8192 };
typedef struct um_cu_marks {
    cudaEvent_t event[UM_CU_MARKS_MAX];
    const char *name[UM_CU_MARKS_MAX]; /* of the operation that ends at the event; NULL: the pass begins */
    int32_t size[UM_CU_MARKS_MAX];
    int n;
    double start; /* um_now() when the pass was submitted */
} um_cu_marks;

/* A moment of a pass, as one multiprocessor sees it. */
typedef struct um_cu_moment {
    unsigned long long ns, cycles; /* of the device's clock; of the multiprocessor's own counter */
    unsigned processor;            /* number of the multiprocessor */
} um_cu_moment;

/* The end of a pass, which the device publishes in pinned host memory. */
typedef struct um_cu_end {
    unsigned long long done; /* number of finished passes; written last */
    um_cu_moment from, to;
} um_cu_end;

enum {
    UM_CU_KINDS_MAX = 256,
    UM_CU_GRAPHS_MAX = 256,
    UM_CU_WARM_MAX = 128 /* graphs that are recorded at the start */
};

typedef struct um_cu_graph {
    um_cu_sizes sizes;
    cudaGraphExec_t exec;
    int64_t used; /* number of the pass that used it last */
} um_cu_graph;

/* The adapters of a layer's products, each a device array [n_adapters]; NULL: no adapter changes the product. */
typedef struct um_cu_adapters {
    um_cu_low_rank *qkv, *o, *gate_up, *down, *router, *shared_gate_up, *shared_down;
} um_cu_adapters;

/* Device pointers to the experts of a layer [n_experts]; NULL for a dense layer. */
typedef struct um_cu_experts {
    const void **gate_up, **down;
    const um_cu_factors *gate_up_scale, *down_scale; /* NULL unless the matrices are in e4m3 */
    bool gate_up_blocks, down_blocks;                /* some of them have factors of blocks */
    const void *router; /* packed by um_cu_router_pack; NULL: the router is computed in fp32 */
} um_cu_experts;

/* Passes of one kind start the same kernels. flags: see kind_of in pass.cu. */
typedef struct um_cu_pass_kind {
    um_cu_sizes sizes;
    int flags;
} um_cu_pass_kind;

/* The place of the passes in a group of ranks; zero without one. The other GPUs read `part`, and
 * write `inbox` and `flag`. */
typedef struct um_cu_group {
    const um_rank *at;
    um_cu_comm *comm; /* to ranks in other processes; NULL: all ranks are in this one */
    /* [T, H] fp32 or operands, or blends of rows: partial results; used in turns. With comm only the first one is
     * there, for the partial results of all ranks. It has um_cu_exchange_bytes. */
    void *part[2];
    char *inbox[2]; /* see um_cu_partials */
    uint32_t *flag; /* [ranks][UM_CU_MEET_BLOCKS] and count: see um_cu_meeting */
    uint32_t *count;
    int32_t *stop;                         /* in host memory */
    um_cu_pass_kind kind[UM_CU_KINDS_MAX]; /* kinds whose kernels have been loaded; a new one replaces the oldest */
    int n_kinds;                           /* loaded so far, also those that were replaced */
} um_cu_group;

struct um_forward {
    um_device *d;
    const um_network *net;
    um_forward_config c;
    um_cu_kv kv[UM_LAYER_KINDS_MAX]; /* [n_kv] */
    int32_t *kv_layer;               /* [n_layers] number of each layer in its KV cache */
    size_t scratch_kv;               /* bytes of the scratch pages in kv */
    size_t workspace;                /* bytes of the scratch pages and of all buffers (list_buffers in memory.cu) */
    um_cu_products *products;
    void *products_workspace;
    um_cu_group group;
    um_cu_adapters *adapters; /* [n_layers]; NULL without adapters */
    um_cu_experts *experts;   /* [n_layers]; NULL without experts */

    float *x;              /* [T, H] residual stream */
    void *normed;          /* [T, H] operand */
    float *exact;          /* [T, H] the same in fp32, for routers */
    void *qkv, *attended;  /* [T, (heads + 2 kv heads) * d], [T, heads * d] operands */
    void *gate_up, *gated; /* [T, 2 * widest ff], [T, widest ff] operands */
    um_cu_coded coded; /* [T or rows, widest operand], and its scales: an operand in e4m3; NULL without such weights */
    float *routed;     /* [T, E] */
    char *routers;     /* [n_layers] routers for tensor cores; NULL: they are computed in fp32 */
    float *low;        /* [T, rank_max] */
    float *branch[2];  /* [T, H] results of attention and feed-forward layers before their norms; NULL: not used */
    float *blend;      /* [n_blends, H] blends of embeddings for later passes; NULL: there are none */
    float *hidden, *saved; /* [T, H], [n_saved, H] after the final norm */
    void *mixed;           /* [rows, H] operand of the head */
    void *head_scratch, *moe_scratch, *select_scratch;
    float *partial; /* pieces of attention */
    size_t partial_bytes;
    bool streams; /* attention uses the kernels for Hopper GPUs */
    um_cu_limits limits;

    /* The message of the pass: as packed, in pinned host memory whose writes are combined, and on the device. A write
     * to a cache line that the device has read costs a miss, so the message is not packed in pinned memory. */
    char *packed, *message_pinned, *message_mapped, *message;
    size_t message_bytes;
    um_kept kept;                      /* bitmaps behind `message` */
    um_answer *answer, *answer_mapped; /* pinned host memory, like `top` and `end` */
    um_top *top, *top_mapped;
    /* The number of finished passes: the device counts in `count` and publishes it in `end`. */
    volatile um_cu_end *end;
    um_cu_end *end_mapped;
    unsigned long long *count, n_submitted;
    double submitted; /* um_now() when the last pass was submitted */
    um_forward_stats stats;
    unsigned long long last_end; /* end of the pass before, on the device's clock */

    um_cu_graph graph[UM_CU_GRAPHS_MAX];
    int n_graphs;
    bool eager; /* never record graphs */
    bool full;  /* the device had no memory for a further graph */
    um_profile *profile;
    um_cu_marks *marks;    /* NULL without a profile */
    const um_batch *batch; /* the submitted pass, until um_cu_wait */
};

/* ---- Memory (memory.cu) ---- */
/* Returns whether a KV cache has pages of its own, because its layers have a window. */
bool um_cu_is_near(const um_forward *f, int32_t kv);

/* Returns the ids whose rows of the head a rank has; without a group, all. */
um_cut_range um_cu_head_ids(const um_network *n, int32_t rank);

/* ---- Groups of ranks (group.cu) ---- */
/* Takes the place that um_network.rank names; does nothing without one. The buffers of f exist. Errors: UM_EDEVICE. */
um_status um_cu_group_join(um_forward *f, um_err *err);
/* Ends the kernels of this rank and of those before it, which may use its memory. Called before it is freed. */
void um_cu_group_leave(um_forward *f);
/* Returns the bytes of the memory for exchanges with ranks in other processes: up to n_rows rows and n_tokens tokens.
 */
size_t um_cu_exchange_bytes(const um_network *n, int32_t n_tokens, int32_t n_rows, bool blends);
/* Returns where this rank writes its partial results, n elements. */
void *um_cu_own_part(const um_forward *f, int turn, size_t n, um_dtype type);
/* Returns the um_forward of a rank of the group. The ranks are in one process. */
const um_forward *um_cu_rank(const um_forward *f, int32_t rank);
/* Returns where this rank's kernels meet those of the others; with comm they do not meet. There is a group. */
um_cu_meeting um_cu_meeting_of(const um_forward *f);
/* Returns the partial results of all ranks, n elements each; turn 0 or 1. */
um_cu_partials um_cu_partials_of(const um_forward *f, int turn, size_t n, um_dtype type);
/* Returns UM_EDEVICE, and ends the waiting of all ranks' kernels, when a rank has failed, or the pass that was
 * submitted at `since` (um_now) takes longer than ranks wait for each other. */
um_status um_cu_group_check(um_forward *f, double since, um_err *err);

/* ---- Sizes and graphs (graph.cu) ---- */
/* Returns the capacity of the messages of passes with these padded sizes. */
um_message_capacity um_cu_room(const um_forward *f, const um_cu_sizes *sizes);
bool um_cu_same_sizes(const um_cu_sizes *a, const um_cu_sizes *b);
/* Returns the pieces of a span that reads the keys below `end` (pass.cu). */
int32_t um_cu_pieces(int32_t end);
/* Returns the graph of the sizes. Records it when it is not there; the least recently used one makes room. *out is NULL
 * when the device has no memory for it. */
um_status um_cu_graph_for(um_forward *f, const um_message_capacity *capacity, const um_cu_sizes *sizes,
                          cudaGraphExec_t *out, um_err *err);
void um_cu_graphs_free(um_forward *f);
/* Starts the kernels that a graph consists of (pass.cu). */
um_status um_cu_record(um_forward *f, const um_message_capacity *capacity, const um_cu_sizes *sizes, um_err *err);

/* ---- Profile (profile.cu) ---- */
/* Marks the end of an operation; NULL: the start of a pass. Does nothing without a profile. */
void um_cu_mark(um_forward *f, const char *name, int32_t size);
/* Adds the operations of a finished pass to the profile. */
void um_cu_report(um_forward *f);

#endif
