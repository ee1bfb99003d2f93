/* ranks: a group of devices that computes one model together (tensor parallelism). Each device is a rank. It has a
 * part of the heads, of the width of every feed-forward layer and expert, and of the vocabulary. With expert
 * parallelism it has some of the experts instead, as a whole. All ranks run the same pass over the same batch, each on
 * its own thread.
 *
 * A um_cut says how a matrix or a vector is divided. The loader passes it with the weight (um_backend.weight_cut).
 *
 * The group is a backend like any other (um_ranks_backend_new): its device, weights, vectors and um_forward hold those
 * of the ranks. The member backend sees its place in the group as um_network.rank. After a product that was cut by
 * columns it adds the partial results of all ranks, always in the order of the ranks, so results do not depend on
 * timing.
 *
 * The ranks of a group are in one process and share its memory, or each rank is in a process of its own, on any host
 * (um_ranks_backend_launch). Rank 0 then plans. It sends every batch to the others, which follow it (um_ranks_follow).
 */
#ifndef UM_OPS_RANKS_H
#define UM_OPS_RANKS_H

#include "ops/format.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UM_RANKS_MAX 16

/* ---- Cuts (ranks/cut.c) ---- */

typedef enum {
    UM_CUT_NONE,    /* every rank has all of it */
    UM_CUT_ROWS,    /* a rank has some of the rows of every part */
    UM_CUT_COLUMNS, /* a rank has some of the columns, and its products are added to those of the others */
    UM_CUT_OWNED    /* only the rank `owner` has it */
} um_cut_kind;

enum { UM_CUT_PARTS_MAX = 3, UM_CUT_SLICES_MAX = 9 };

/* Successive rows or columns that are divided in units, for example heads. With fewer units than ranks, neighbouring
 * ranks have the same unit. */
typedef struct um_cut_part {
    int64_t n, unit; /* rows or columns, and those of a unit; the last unit may be smaller */
} um_cut_part;

typedef struct um_cut {
    um_cut_kind kind;
    int32_t n_parts;
    um_cut_part part[UM_CUT_PARTS_MAX]; /* [n_parts] together they are all rows or columns */
    int32_t owner;                      /* of UM_CUT_OWNED */
} um_cut;

/* The rows or columns [start, end) of a rank. */
typedef struct um_cut_range {
    int64_t start, end;
} um_cut_range;
um_cut_range um_cut_range_of(um_cut_part part, int32_t rank, int32_t n_ranks);
/* Returns the unit in which a width is divided among ranks; `grid` neighbours have a common scale somewhere in the
 * model (1: nowhere). Widths are divided evenly where that cuts no group, else in whole groups of the grid or of
 * UM_QUANT_GROUP, so that some ranks have a group more. 1 where neither works: then the width must divide evenly. */
int32_t um_cut_unit(int64_t width, int32_t n_ranks, int32_t grid);

/* A part of a matrix. `t` can be read like a tensor of a checkpoint while `base` can; it must not be moved. */
typedef struct um_cut_slice {
    um_tensor t, base;
    um_format format;
    int64_t row, column;
    void *copy; /* copied columns, or NULL */
} um_cut_slice;

/* Makes the slices of a rank from the matrices t [n], one below the other: out [UM_CUT_SLICES_MAX]. Their number is
 * *n_out; 0: the rank has none. `type` is that of the products. They are released with um_cut_release. Errors:
 * UM_ENOMEM; UM_EUNSUPPORTED when a boundary is inside a group of elements that have a common scale. */
um_status um_cut_slices(const um_cut *cut, const um_tensor *t, int n, um_dtype type, int32_t rank, int32_t n_ranks,
                        um_cut_slice *out, int *n_out, um_err *err);
void um_cut_release(um_cut_slice *slice, int *n);

/* ---- The place of a member in its group (ranks/meet.c) ---- */

typedef struct um_ranks um_ranks; /* state that the ranks of one um_forward share */
typedef struct um_rank {
    int32_t index, n;
    um_ranks *group;
} um_rank;

/* Makes the state of a group of n ranks, 1 <= n <= UM_RANKS_MAX. A rank waits `timeout` seconds for the others. It is
 * released with um_ranks_free. */
um_ranks *um_ranks_new(int32_t n, double timeout);
/* Makes g the group of a rank whose others are in other processes, behind this link, which must outlive g. */
struct um_link;
void um_ranks_set_link(um_ranks *g, struct um_link *link);
struct um_link *um_ranks_link(const um_ranks *g); /* NULL: the ranks are in one process */
void um_ranks_free(um_ranks *g);                  /* g may be NULL */

enum { UM_RANKS_SLOTS = 8 };
/* Publishes an address for the other ranks. The ranks of a um_forward are created one after the other, from rank 0 on,
 * so a rank sees the addresses of lower ranks at once, and all addresses in a pass. */
void um_ranks_publish(const um_rank *r, int slot, void *p);
/* Returns the address that a rank has published. */
void *um_ranks_shared(const um_rank *r, int slot, int32_t rank);
/* Waits until all ranks have called this function. Returns false when a rank has failed, or has not arrived in time:
 * then the pass must end with an error. Later calls return false at once. */
bool um_ranks_meet(const um_rank *r);
/* Ends the pass of all ranks, because this one failed with this message. Only the first message is kept. */
void um_ranks_break(const um_rank *r, const char *message);
/* Looks whether a rank in another process has failed, or the results of a pass that began at `since` (um_now) are late:
 * then the pass must end like after um_ranks_break. For groups whose devices exchange results by themselves. */
void um_ranks_watch(um_ranks *g, double since);
/* Returns whether a rank has failed. If so, the words of the first one are stored in out. */
bool um_ranks_is_broken(um_ranks *g, um_err *err);
/* How long the passes of a rank took, and the exchange of results in them, which includes waiting for other ranks. */
typedef struct um_rank_time {
    double pass_seconds, exchange_seconds;
} um_rank_time;
/* Adds to the times of a rank, on its own thread. */
void um_ranks_add_time(const um_rank *r, double pass_seconds, double exchange_seconds);
/* Returns the times of a rank, between passes. Those of other processes come with their results. */
um_rank_time um_ranks_time(const um_ranks *g, int32_t rank);
/* The seconds that a rank waits for another. */
double um_ranks_timeout(const um_ranks *g);

/* ---- Results of other ranks (ranks/gather.c) ---- */

/* Returns whether the ranks of the group are in one process. */
bool um_ranks_share_memory(const um_rank *r);
/* Returns whether a result reaches all ranks as fast as rank 0: they share memory, or there are two. */
bool um_ranks_is_direct(const um_rank *r);
/* Allocates space for `bytes` bytes that each other rank publishes under `slot`, if they are in other processes.
 * Errors: UM_ENOMEM. */
um_status um_ranks_mirror(const um_rank *r, int slot, size_t bytes, um_err *err);
/* The floats that one sum moves at a time between processes. */
enum { UM_RANKS_CHUNK = 1 << 18 };
/* Makes the floats [first, first + n) that the ranks publish under `slot` readable with um_ranks_gathered: to all
 * ranks, or with `all` false at least to rank 0. With `all` n is the same on all ranks; else it may differ between
 * processes. Returns false like um_ranks_meet. */
bool um_ranks_gather(const um_rank *r, int slot, size_t first, size_t n, bool all);
/* Returns the address of float `first` of a rank, after um_ranks_gather with the same slot and `first`. */
const float *um_ranks_gathered(const um_rank *r, int slot, int32_t rank, size_t first);
/* Copies p [n] of rank 0 to p of the other ranks. The ranks must be in different processes. Returns false like
 * um_ranks_meet. */
bool um_ranks_spread(const um_rank *r, float *p, size_t n);

/* ---- The backend (ranks/group.c, ranks/forward.c) ---- */

struct um_backend;
struct um_device;
struct um_network;
/* Makes a backend whose devices are groups of n devices of `inner`, 1 <= n <= UM_RANKS_MAX. A group opens the devices
 * um_dev_config.rank_number [n]. A rank waits `timeout` seconds for the others. *out is released with
 * um_ranks_backend_free after its devices. When a rank hangs, a pass fails within 10 s of this time. The thread of
 * the rank may go on later, so nothing that it uses is freed then (um_backend.is_stuck). */
void um_ranks_backend_new(struct um_backend **out, const struct um_backend *inner, int32_t n, double timeout);
void um_ranks_backend_free(struct um_backend *b); /* b may be NULL */

/* The place of a process whose group is spread over processes. */
typedef struct um_launch {
    int32_t rank;     /* of this process */
    const char *addr; /* host name or address where rank 0 listens */
    int32_t port;
    /* Lines "name: value" that must be the same in all ranks: the version, the model, options. */
    const char *facts;
} um_launch;
/* Makes the devices of a backend one rank each of a group in n processes. `launch` must outlive b. A device is opened
 * when all ranks have joined and agree on the facts. Errors of open are then also: UM_EDEVICE, a rank is missing, the
 * port is in use, or rank 0 does not answer in time; UM_EINVAL, the ranks differ, or two have the same number. */
void um_ranks_backend_launch(struct um_backend *b, const um_launch *launch);
/* Runs the passes that rank 0 plans, on a device whose rank is not 0, until rank 0 closes its device. Errors:
 * UM_EDEVICE, a rank has failed; the message has its number and its words. */
um_status um_ranks_follow(const struct um_backend *b, struct um_device *d, const struct um_network *n, um_err *err);

#ifdef __cplusplus
}
#endif
#endif
