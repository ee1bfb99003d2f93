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
    int32_t n;
    double timeout;
} um_group_backend;

struct um_device {
    const um_backend *inner;
    int32_t n;
    double timeout;
    bool shares; /* the members use the memory of the host, and member 0's device and whole matrices serve all */
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
um_status um_group_warm(um_forward *f, const um_pass_size *size, int32_t n, um_err *err);
void um_group_copy_page(um_forward *f, int32_t from, int32_t to, int32_t n);
um_status um_group_submit(um_forward *f, const um_batch *b, um_err *err);
um_status um_group_wait(um_forward *f, um_err *err);
void um_group_profile(um_forward *f, um_profile *p);
size_t um_group_workspace(um_device *d, const um_network *n, const um_forward_config *c);

/* The networks of the ranks (network.c): copies of a network with the sizes and handles of each rank. */
typedef struct um_group_networks {
    const um_network *whole;
    um_network *rank; /* [n] */
    int32_t n;
    um_rank place[UM_RANKS_MAX];
} um_group_networks;
void um_group_networks_make(um_group_networks *g, const um_network *whole, int32_t n, um_ranks *shared);
/* Takes over the adapters that have been loaded or unloaded since. */
void um_group_networks_refresh(um_group_networks *g);
void um_group_networks_free(um_group_networks *g);

#ifdef __cplusplus
}
#endif
#endif
