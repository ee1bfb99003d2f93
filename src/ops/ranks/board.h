/* board: memory that the ranks of a group share when all of their processes are on one host. Every rank has two places
 * there for its results, which it uses in turns, and the others read them where they lie. Used by the link only.
 *
 * The memory belongs to a file without a name, which other processes open through /proc. It is gone with the last of
 * them. */
#ifndef UM_OPS_RANKS_BOARD_H
#define UM_OPS_RANKS_BOARD_H

#include "ops/ranks.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct um_board um_board;

/* Where another process finds the board of rank 0. pid 0: there is none. */
typedef struct um_board_key {
    int32_t pid, fd;
    uint64_t token; /* tells the board from another file */
} um_board_key;

/* Creates the board of a group of n. Returns NULL when the system does not give the memory: ranks then use the link. */
um_board *um_board_new(int32_t n, um_board_key *key);
/* Opens the board of rank 0. Returns NULL when it is not on this host, or belongs to another user. */
um_board *um_board_open(int32_t rank, int32_t n, const um_board_key *key);
void um_board_close(um_board *b); /* b may be NULL */

/* Copies the results of this rank, at most UM_RANKS_CHUNK floats, to its next place and tells the others. A rank may
 * show again when it has seen that all others have shown as often as itself. */
void um_board_show(um_board *b, const float *own, size_t n);
/* Waits until a rank has shown as often as this one, at most `seconds`. Returns whether it has. */
bool um_board_wait(um_board *b, int32_t rank, double seconds);
/* Returns the results that a rank has shown last. */
const float *um_board_place(const um_board *b, int32_t rank);

#ifdef __cplusplus
}
#endif
#endif
