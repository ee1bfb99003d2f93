/* nccl: the functions of NCCL that the ranks of several processes use. NCCL is opened when a group needs it, so neither
 * a build nor a program without such groups needs the library. The declarations are facts of its binary interface,
 * which are the same in all versions from 2.18 on; tests/cuda/check_nccl.cu compares them with nccl.h where the toolkit
 * has it. */
#ifndef UM_CUDA_NCCL_H
#define UM_CUDA_NCCL_H

#include <pthread.h>

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { UM_NCCL_SUCCESS = 0, UM_NCCL_IN_PROGRESS = 7 }; /* of the codes that functions return */
enum { UM_NCCL_BYTES = 1 };                            /* the type of unsigned bytes */

typedef struct um_nccl_id {
    char bytes[128];
} um_nccl_id;
typedef struct ncclComm *um_nccl_comm;
typedef struct CUstream_st *um_nccl_stream;

typedef struct um_nccl {
    int (*get_version)(int *version);
    int (*get_unique_id)(um_nccl_id *out);
    int (*comm_init_rank)(um_nccl_comm *out, int n, um_nccl_id id, int rank);
    int (*comm_abort)(um_nccl_comm c);
    int (*comm_get_async_error)(um_nccl_comm c, int *code);
    const char *(*get_error_string)(int code);
    const char *(*get_last_error)(um_nccl_comm c);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*send)(const void *from, size_t n, int type, int to_rank, um_nccl_comm c, um_nccl_stream s);
    int (*recv)(void *to, size_t n, int type, int from_rank, um_nccl_comm c, um_nccl_stream s);
    int (*all_gather)(const void *from, void *to, size_t n, int type, um_nccl_comm c, um_nccl_stream s);
} um_nccl;

#define UM_NCCL_LIBRARY "libnccl.so.2"

/* Opens the library `name` and finds its functions. It is never closed. Sets the variables of the environment by which
 * NCCL leaves out what groups must not use, unless the user has set them. Errors: UM_EUNSUPPORTED, the library is
 * missing, too old or another one; the message says what to install. */
um_status um_nccl_open(um_nccl *out, const char *name, um_err *err);
/* Checks a version as get_version stores it. Errors: UM_EUNSUPPORTED. */
um_status um_nccl_check_version(int version, um_err *err);

/* ---- Calls that another thread may end --------------------------------------------------------------------------- */

/* The calls with a communicator. One thread makes them. Any other may end them before it frees the communicator. */
typedef struct um_nccl_calls {
    pthread_mutex_t lock; /* held during a call, and from the start of a group of calls to its end */
    int depth;            /* calls under way, one inside the other */
    bool may_call;        /* of the calls under way */
    bool has_ended;       /* no call begins any more; read and written atomically */
} um_nccl_calls;
void um_nccl_calls_init(um_nccl_calls *c);
void um_nccl_calls_deinit(um_nccl_calls *c);
/* Begins a call or a group of calls. Returns whether NCCL may be called: always inside a group that has begun, so that
 * NCCL sees its end, and otherwise unless the calls have been ended. um_nccl_leave follows in either case. */
bool um_nccl_enter(um_nccl_calls *c);
void um_nccl_leave(um_nccl_calls *c);
/* Lets no call begin any more. Does not wait. Any thread. */
void um_nccl_end_calls(um_nccl_calls *c);
bool um_nccl_has_ended(const um_nccl_calls *c);
/* Waits until the calls under way have returned. Returns false when they take longer than `seconds`. Any thread. */
bool um_nccl_await_calls(um_nccl_calls *c, double seconds);

#ifdef __cplusplus
}
#endif
#endif
