/* The connections of a link, for link.c and join.c. */
#ifndef UM_OPS_RANKS_LINK_OPEN_H
#define UM_OPS_RANKS_LINK_OPEN_H

#include "ops/ranks/board.h"
#include "ops/ranks/connection.h"

struct um_link {
    int32_t rank, n;
    double timeout;
    um_connection c[UM_RANKS_MAX]; /* [n_connections] on rank 0 to ranks 1, 2, ...; elsewhere to rank 0 */
    int32_t n_connections, failed_rank;
    bool has_failed; /* no further frame is sent or received */
    um_board *board; /* NULL: the ranks are on several hosts */
    float *mirror[UM_RANKS_SLOTS][UM_RANKS_MAX];
    size_t room[UM_RANKS_SLOTS];                         /* bytes of each mirror */
    const float *gathered[UM_RANKS_SLOTS][UM_RANKS_MAX]; /* the results of the last um_link_gather */
    um_rank_time own;                                    /* of this rank, sent with its results */
};

#endif
