/* group: the objects of a backend of ranks. Each holds those of its members. Used inside ops/ranks only. */
#ifndef UM_OPS_RANKS_GROUP_H
#define UM_OPS_RANKS_GROUP_H

#include "ops/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_group_backend {
    um_backend base;
    const um_backend *inner;
    int32_t n; /* ranks of a group */
    double timeout;
    const um_launch *launch; /* NULL: all ranks of a group are in this process */
} um_group_backend;

/* Member i is rank first + i of the group. */
struct um_device {
    const um_backend *inner;
    int32_t n;            /* members */
    int32_t first, all;   /* ranks of the group: that of member 0, and their number */
    struct um_link *link; /* to the ranks in other processes; NULL: all are members */
    bool unites;          /* the devices exchange results with those in other processes by themselves */
    /* On rank 0 of devices that unite, both from the opening of the group; else 0. */
    size_t least_memory; /* bytes of the smallest device of the group */
    size_t more_free;    /* bytes that this rank's device had free beyond the least of all devices */
    double timeout;
    int32_t max_tokens; /* largest passes of the members */
    bool is_stuck;      /* the thread of a rank hangs, and still uses the members and their weights */
    bool shares;        /* the members use the memory of the host, and member 0's device and whole matrices serve all */
    um_pool *loaders;   /* a thread for each member; NULL: one thread loads the weights of all */
    um_device *member[UM_RANKS_MAX];
};

struct um_weight {
    const um_device *d;
    um_weight *member[UM_RANKS_MAX];              /* the same for all ranks when a whole matrix is shared */
    int32_t rows[UM_RANKS_MAX], in[UM_RANKS_MAX]; /* shape of each member */
};

struct um_vector {
    um_vector *member[UM_RANKS_MAX]; /* NULL: the rank has none */
};

/* The functions of um_backend for passes (forward.c). */
um_status um_group_forward_new(um_forward **out, um_device *d, const um_network *n, const um_forward_config *c,
                               um_err *err);
void um_group_forward_free(um_forward *f);
um_forward_memory um_group_memory(const um_forward *f);
um_forward_stats um_group_stats(const um_forward *f);
int32_t um_group_rank_times(const um_forward *f, um_rank_time out[UM_RANKS_MAX]);
um_status um_group_warm(um_forward *f, const um_pass_size *size, int32_t n, um_err *err);
void um_group_copy_page(um_forward *f, int32_t from, int32_t to, int32_t n);
um_status um_group_submit(um_forward *f, const um_batch *b, um_err *err);
um_status um_group_wait(um_forward *f, um_err *err);
void um_group_profile(um_forward *f, um_profile *p);
size_t um_group_workspace(um_device *d, const um_network *n, const um_forward_config *c);

/* The networks of the ranks (network.c): copies of a network with the sizes and handles of each rank. */
typedef struct um_group_networks {
    const um_network *whole;
    um_network *rank; /* [n] of the members */
    int32_t n;
    um_rank place[UM_RANKS_MAX];
} um_group_networks;
void um_group_networks_make(um_group_networks *g, const um_network *whole, const um_device *d, um_ranks *shared);
/* Takes over the adapters that have been loaded or unloaded since. */
void um_group_networks_refresh(um_group_networks *g);
void um_group_networks_free(um_group_networks *g);

/* A copy of the batch of a pass (keep.c). */
typedef struct um_kept_batch um_kept_batch;
um_kept_batch *um_kept_batch_new(const um_network *n, const um_forward_config *c);
void um_kept_batch_free(um_kept_batch *k); /* k may be NULL */
/* Copies a batch with all that it points to. The copy is valid until the next call. */
const um_batch *um_kept_batch_take(um_kept_batch *k, const um_batch *b);
/* Copies the answers of a finished pass to the batch that was taken last. */
void um_kept_batch_answer(const um_kept_batch *k, const um_batch *b);

/* Joins the device of this process with those of the other processes (unite.c). When it gives up while the thread that
 * joins them still runs, d->is_stuck is set. Errors: UM_EUNSUPPORTED, UM_EDEVICE; UM_ELIMIT, there is no thread;
 * UM_EINVAL, two ranks have the same device. */
um_status um_group_unite(um_device *d, um_err *err);

/* The batches that rank 0 sends to the ranks in other processes (remote.c). Errors are those of um_link_tell. `leads`:
 * this is rank 0. `whole`: the other ranks get all wishes of the rows. */
typedef struct um_remote um_remote;
um_remote *um_remote_new(struct um_link *link, const um_network *n, const um_forward_config *c, bool leads, bool whole);
void um_remote_free(um_remote *m); /* m may be NULL */
um_status um_remote_pass(um_remote *m, const um_batch *b, um_err *err);
/* Makes the message of um_remote_pass. *out is valid until the next call. Errors: UM_ENOMEM. */
um_status um_remote_pack(um_remote *m, const um_batch *b, um_str *out, um_err *err);
/* Makes the batch of a message that um_remote_pass has sent. It is valid until the next call, as long as the message.
 * Errors: UM_EPARSE. */
um_status um_remote_batch(um_remote *m, um_str message, const um_batch **out, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
