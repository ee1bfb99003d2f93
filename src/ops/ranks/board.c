/* Memory that ranks of one host share. A rank counts how often it has shown results. The others wait for the count. */
#include "ops/ranks/board.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SPINS = 4000 }; /* as in meet.c */

/* The start of the memory. The places follow: two of each rank. */
typedef struct board_head {
    uint64_t token;
    struct {
        _Alignas(64) _Atomic uint32_t n_shown; /* in a cache line of its own */
    } rank[UM_RANKS_MAX];
} board_head;

enum { HEAD_BYTES = 4096 };
static_assert(sizeof(board_head) <= HEAD_BYTES, "the head of a board has one page");

struct um_board {
    int32_t rank, n;
    int fd; /* of rank 0, as long as others may open it */
    bool spins;
    uint32_t n_shown; /* by this rank */
    board_head *head;
    size_t bytes;
};

static size_t board_bytes(int32_t n) { return HEAD_BYTES + (size_t)n * 2 * UM_RANKS_CHUNK * sizeof(float); }

static um_board *map_board(int fd, int32_t rank, int32_t n) {
    const size_t bytes = board_bytes(n);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return NULL;
    um_board *b = UM_NEW(um_board);
    *b = (um_board){
        .rank = rank, .n = n, .fd = -1, .spins = um_cpu_count() >= n, .head = (board_head *)p, .bytes = bytes};
    return b;
}

um_board *um_board_new(int32_t n, um_board_key *key) {
    *key = (um_board_key){0};
    const int fd = memfd_create("unmask-ranks", MFD_CLOEXEC);
    if (fd < 0) return NULL;
    /* Without its pages, a write to the memory could end the process later. */
    um_board *b = ftruncate(fd, (off_t)board_bytes(n)) || posix_fallocate(fd, 0, (off_t)board_bytes(n))
                      ? NULL
                      : map_board(fd, 0, n);
    if (!b) {
        close(fd);
        return NULL;
    }
    b->fd = fd;
    *key = (um_board_key){(int32_t)getpid(), fd, (uint64_t)um_rng_seed()};
    b->head->token = key->token;
    return b;
}

um_board *um_board_open(int32_t rank, int32_t n, const um_board_key *key) {
    char path[64];
    um_board *b = NULL;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", key->pid, key->fd);
    const int fd = key->pid ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return NULL;
    if (lseek(fd, 0, SEEK_END) == (off_t)board_bytes(n)) b = map_board(fd, rank, n);
    close(fd);
    if (!b || b->head->token == key->token) return b;
    um_board_close(b);
    return NULL;
}

void um_board_close(um_board *b) {
    if (!b) return;
    munmap(b->head, b->bytes);
    if (b->fd >= 0) close(b->fd);
    um_free(b);
}

static float *place_of(const um_board *b, int32_t rank, uint32_t n_shown) {
    float *first = (float *)(void *)((char *)b->head + HEAD_BYTES);
    return first + ((size_t)rank * 2 + n_shown % 2) * UM_RANKS_CHUNK;
}

const float *um_board_place(const um_board *b, int32_t rank) { return place_of(b, rank, b->n_shown); }

void um_board_show(um_board *b, const float *own, size_t n) {
    _Atomic uint32_t *count = &b->head->rank[b->rank].n_shown;
    assert(n <= UM_RANKS_CHUNK);
    b->n_shown++;
    memcpy(place_of(b, b->rank, b->n_shown), own, n * sizeof *own);
    atomic_store_explicit(count, b->n_shown, memory_order_release);
    (void)syscall(SYS_futex, count, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Returns whether the count `seen` of a rank has reached that of this one. It may be ahead by one. */
static bool has_shown(const um_board *b, uint32_t seen) { return (int32_t)(seen - b->n_shown) >= 0; }

bool um_board_wait(um_board *b, int32_t rank, double seconds) {
    _Atomic uint32_t *count = &b->head->rank[rank].n_shown;
    const struct timespec most = {.tv_sec = (time_t)seconds,
                                  .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    uint32_t seen = atomic_load_explicit(count, memory_order_acquire);
    for (int i = 0; b->spins && !has_shown(b, seen) && i < SPINS; i++)
        seen = atomic_load_explicit(count, memory_order_acquire);
    if (has_shown(b, seen)) return true;
    (void)syscall(SYS_futex, count, FUTEX_WAIT, seen, &most, NULL, 0);
    return has_shown(b, atomic_load_explicit(count, memory_order_acquire));
}
