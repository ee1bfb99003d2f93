/* backend: owns weights, keys and values, and activations, in its own types and layouts, and runs whole passes. The
 * rest of the program holds handles only; it never reads or writes the memory of a backend.
 *
 * `cpu` and `ref` are the host backend (host.c, transformer.c) over one table of operations each (ops.h). `cuda` is a
 * plugin with a pass of its own (plugin.c, src/cuda).
 *
 * Threads: a um_device may be used by one thread at a time, a um_forward likewise. The um_forward of one device may run
 * passes at the same time, each on its own thread. */
#ifndef UM_OPS_BACKEND_H
#define UM_OPS_BACKEND_H

#include "ops/format.h"
#include "ops/network.h"
#include "ops/ranks.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_device um_device;   /* an open backend, with the weights of one model */
typedef struct um_forward um_forward; /* the KV cache and the activations of one engine */

/* A device, as messages and reports describe it. */
typedef struct um_device_info {
    char name[64];        /* "avx512_bf16", "NVIDIA H200" */
    int threads;          /* threads of a pass; 0: they are not the program's */
    size_t memory, there; /* bytes of the device's own memory, and those that are free; 0: it uses the host's */
} um_device_info;

/* The device of a rank, as ranks in other processes know it. */
typedef struct um_device_card {
    char name[64]; /* different for all devices of all hosts */
    char key[128]; /* of rank 0: the others find its device by it */
} um_device_card;

/* The largest sizes of a pass, and the layout of the KV cache. */
typedef struct um_forward_config {
    int32_t max_tokens, max_rows, max_spans, n_saved, page_size, n_pages, n_scratch_pages;
    int32_t n_near_pages; /* pages of layers with a window (um_span.near_page); 0: they use the others' */
    int32_t n_blends;     /* blends that are kept for later passes (um_span.blend) */
    um_dtype kv_type;
    um_kv_layout layout;
} um_forward_config;

typedef struct um_forward_memory {
    size_t kv;        /* bytes of the pages that requests own */
    size_t workspace; /* bytes of activations, saved rows, scratch pages and scratch memory */
} um_forward_memory;

/* The size of a pass that is expected. Its tokens are divided equally among its spans. */
typedef struct um_pass_size {
    int32_t n_tokens, n_spans, n_rows;
    int32_t keys; /* the largest visibility index that a span reads, plus 1 */
    bool adapts;  /* spans use adapters */
} um_pass_size;

/* Counters and times of the passes of a um_forward. */
typedef struct um_forward_stats {
    int64_t passes, replays; /* finished passes; those of them that replayed a CUDA graph */
    int32_t graphs;          /* recorded CUDA graphs */
    double warm_seconds;     /* how long `warm` took */
    size_t warm_bytes;       /* device memory that it took */
    double pass_seconds;     /* of the last pass: from the start of its first kernel to the end of its last one */
    double gap_seconds;      /* from the end of the pass before to the start of the last pass; 0: there was none */
    double clock_rate;       /* cycles per second of the device in the last pass; 0: unknown */
} um_forward_stats;

/* The highest rates of a device, measured. */
typedef struct um_device_limits {
    double read_bytes; /* bytes per second that it reads from its memory */
    double operations; /* additions and multiplications per second of a large matrix product in its dtype */
} um_device_limits;

typedef struct um_backend um_backend;
struct um_backend {
    const char *name, *summary;
    /* Stores the table that serves this name. NULL: this table itself. A plugin is loaded here. Errors:
     * UM_EUNSUPPORTED, the plugin is not there or of another version. */
    um_status (*load)(const um_backend **out, um_err *err);
    const um_ops *ops; /* the operations of a host backend; NULL for others */
    /* Stores the number of devices of this kind that the process sees, at least 1. Errors: UM_EDEVICE, there is none,
     * or its driver is missing or too old. */
    um_status (*count)(const um_backend *self, int32_t *n, um_err *err);

    /* Opens the device for passes up to the sizes of c, which includes the device's number. *out is released with
     * close. Errors: UM_EUNSUPPORTED, UM_ENOMEM, UM_ELIMIT, UM_EDEVICE. */
    um_status (*open)(um_device **out, const um_backend *self, const um_dev_config *c, um_err *err);
    void (*close)(um_device *d); /* d may be NULL; its weights and vectors must have been freed */
    void (*info)(const um_device *d, um_device_info *out);
    /* Measures what the device can do at most. Takes about a second and up to 3 GB of its memory. Must be called
     * between passes. NULL: it can't be measured. Errors: UM_ENOMEM, UM_EDEVICE. */
    um_status (*limits)(um_device *d, um_device_limits *out, um_err *err);

    /* Copies the rows of `part` [n_parts] into one matrix; part i is [rows_i, in]. Their data may be freed afterwards,
     * except data that stay (um_tensor): the matrix may use them where they lie. type is the arithmetic of the
     * products: the device's dtype, UM_Q8, UM_Q4, or UM_F32 for a layer that stays exact (routers). */
    um_status (*weight)(um_device *d, um_weight **out, const um_tensor *part, int n_parts, um_dtype type, um_err *err);
    void (*weight_free)(um_device *d, um_weight *w);
    size_t (*weight_bytes)(const um_weight *w); /* memory, allocated or of a file */
    /* Returns whether the matrix lies in the memory of a file. NULL: all matrices are copied. */
    bool (*weight_is_mapped)(const um_weight *w);
    /* Copies the elements of `part` [n_parts], one after the other, as fp32. `what` names them in an error. */
    um_status (*vector)(um_device *d, um_vector **out, const um_tensor *part, int n_parts, const char *what,
                        um_err *err);
    void (*vector_free)(um_device *d, um_vector *v);
    /* Lets the kernels of a device read and write the memory of another one, for groups of ranks. *can is false when
     * there is no way between the two. NULL: there is no need. Errors: UM_EDEVICE. */
    um_status (*reach)(um_device *d, const um_device *other, bool *can, um_err *err);
    /* For groups whose ranks are in several processes. The devices then exchange results by themselves; NULL: results
     * go through the link of the group. `introduce` stores the card of the device, with a key when it `leads`. Errors:
     * UM_EUNSUPPORTED, a library is missing; UM_EDEVICE. `unite` joins the devices of all n ranks; `leader` is the card
     * of rank 0. All ranks call it, and each waits for the others without a limit. Any thread. Errors: UM_EDEVICE. */
    um_status (*introduce)(um_device *d, bool leads, um_device_card *out, um_err *err);
    um_status (*unite)(um_device *d, const um_device_card *leader, int32_t rank, int32_t n, um_err *err);
    /* Ends exchanges with ranks in other processes, so that a pass that waits for them ends with an error. Any thread;
     * does not wait. NULL: there is no need. */
    void (*give_up)(um_forward *f);
    /* For groups of ranks (ranks.h); NULL: the device has whole matrices. The same as weight and vector, but each rank
     * takes its part of the matrix or vector. */
    um_status (*weight_cut)(um_device *d, um_weight **out, const um_tensor *part, int n_parts, um_dtype type,
                            const um_cut *cut, um_err *err);
    um_status (*vector_cut)(um_device *d, um_vector **out, const um_tensor *part, int n_parts, const um_cut *cut,
                            const char *what, um_err *err);

    /* Returns whether a thread that hangs still uses the device, after a pass that failed. Then close, weight_free and
     * vector_free free nothing, and the files of weights that are mapped must stay. NULL: never. */
    bool (*is_stuck)(const um_device *d);

    /* Returns the bytes of device memory that forward_new allocates besides the KV pages. NULL: the memory is the
     * host's. */
    size_t (*workspace)(um_device *d, const um_network *n, const um_forward_config *c);
    /* Allocates the KV cache, activations and saved rows for passes up to the given sizes, which may not exceed those
     * that the device was opened for. The device and the network must outlive *out, which is released with
     * forward_free. Errors: UM_ENOMEM, UM_ELIMIT, UM_EUNSUPPORTED. */
    um_status (*forward_new)(um_forward **out, um_device *d, const um_network *n, const um_forward_config *c,
                             um_err *err);
    void (*forward_free)(um_forward *f); /* f may be NULL */
    um_forward_memory (*memory)(const um_forward *f);
    /* Returns the counters and times of finished passes. Must be called between passes. NULL: they are not measured. */
    um_forward_stats (*stats)(const um_forward *f);
    /* Prepares for passes of these sizes, the most important ones first, so that the first of them take no longer than
     * later ones. Runs no pass. Must be called before the first pass. A device without room for all sizes prepares for
     * as many as it can. NULL: there is nothing to prepare. Errors: UM_EDEVICE. */
    um_status (*warm)(um_forward *f, const um_pass_size *size, int32_t n, um_err *err);
    /* Copies the keys and values of a page's first n positions to another page. Must be called between passes. The next
     * pass reports an error of the copy. */
    void (*copy_page)(um_forward *f, int32_t from, int32_t to, int32_t n);
    /* Starts a pass over the batch. The caller must not change the batch before `wait` has returned. A pass must
     * compute the final hidden rows that b->row and b->save name. The other tokens need only their keys, values and
     * selections in the last layer, except tokens whose experts are chosen together with those of such a row
     * (um_network.route_block). Errors: UM_EDEVICE, UM_ENOMEM, and UM_ELIMIT or UM_EINVAL for a batch that the device
     * can't take. After an error of this function or of `wait`, predictions and all keys and values are undefined, and
     * only forward_free may be called. */
    um_status (*submit)(um_forward *f, const um_batch *b, um_err *err);
    /* Waits for the end of the submitted pass. The predictions are complete when it returns UM_OK. Errors: UM_EDEVICE.
     */
    um_status (*wait)(um_forward *f, um_err *err);
    /* Stores the times of the ranks of a group. Must be called between passes. Returns their number. NULL: there are
     * none. */
    int32_t (*rank_times)(const um_forward *f, um_rank_time out[UM_RANKS_MAX]);
    /* Records the operations of the following passes as spans of p, which must outlive these passes. NULL stops it. */
    void (*profile)(um_forward *f, um_profile *p);
};

/* The list of backends; NULL ends it. */
extern const um_backend *const um_backends_all[];
/* Finds and loads a backend by the name of a device: "cpu", "ref", "cuda", "cuda:1". *number is the number behind the
 * colon, 0 without one. UM_EUNSUPPORTED for an unknown name; the message lists the known ones. */
um_status um_backend_find(const um_backend **out, int32_t *number, const char *device, um_err *err);

/* Returns whether the backend's devices use the memory of the host. Engines share such a device. */
static inline bool um_backend_is_host(const um_backend *b) { return !b->workspace; }

#define UM_DEVICES_MAX 64 /* devices of the engines of one process */

/* ---- The host backend (host/host.c, host/transformer.c) ---- */
extern const um_backend um_backend_cpu, um_backend_ref;
/* The functions of um_backend over the operations self->ops. A table of its own may use them. */
um_status um_host_open(um_device **out, const um_backend *self, const um_dev_config *c, um_err *err);
/* Returns how many bytes of data don't stay in the caches: at least 512 MB and, where memory allows, twice the
 * third-level cache. */
size_t um_host_uncached_bytes(void);
/* Measures the bytes per second at which this many threads read memory that is larger than the caches. *rate is the
 * best of several runs. Errors: UM_ENOMEM, UM_ELIMIT. */
um_status um_host_read_rate(int threads, double *rate, um_err *err);
/* Returns the final hidden rows of the last pass [n_tokens, hidden], after the final norm. Those that neither a row nor
 * a save of the batch names are undefined. */
const float *um_host_hidden(const um_forward *f);
/* Returns the KV cache, in the layout of the operations. */
const um_kv *um_host_kv(const um_forward *f);
/* Returns the number of threads of its passes. */
int um_host_threads(const um_forward *f);

#ifdef __cplusplus
}
#endif
#endif
