/* attention_share: the pieces of the keys of a row, and how the CTAs of attention_stream.cu share them. Used inside the
 * room cuda only.
 *
 * A row that sees keys below `end` has at most UM_CU_SLOTS pieces of um_cu_piece_of(end) keys, at multiples of that. So
 * the pieces follow from the row's own keys, and there are few results of pieces to merge. The rows of a tile whose
 * pieces have the same size form a class. A CTA computes the classes of a tile one after another; most tiles have one.
 *
 * A tile and a KV head form a column. Its slot p stands for piece p of all of its rows. Either a CTA computes whole
 * columns, or all columns are put in a row, which the CTAs cut into shares of equally many keys. A CTA that computes
 * the first slots of a column merges them itself and stores one result. */
#ifndef UM_CUDA_ATTENTION_SHARE_CUH
#define UM_CUDA_ATTENTION_SHARE_CUH

#include "cuda/attention_rows.cuh"

static constexpr int UM_CU_SLOTS = 16;

/* Returns the keys of a piece of a row that sees keys below `end`. */
static inline __host__ __device__ int32_t um_cu_piece_of(int32_t end) {
    const int32_t step = UM_CU_SLOTS * UM_CU_GROUP, n = (end + step - 1) / step * UM_CU_GROUP;
    return n > UM_CU_PIECE ? n : UM_CU_PIECE;
}
/* Returns the slots of a column whose rows see keys below `end`, or below a smaller number. */
static inline __host__ __device__ int32_t um_cu_slots_of(int32_t end) {
    const int32_t n = (end + UM_CU_PIECE - 1) / UM_CU_PIECE;
    return n < 1 ? 1 : n < UM_CU_SLOTS ? n : UM_CU_SLOTS;
}

#ifdef __CUDACC__
/* The part of the row of columns that a CTA computes. Lengths are numbers of groups of keys. */
struct um_cu_share {
    int32_t tile, head, slot; /* where it begins */
    int32_t left;             /* its length */
};

/* A column in the row of columns. */
struct um_cu_column {
    int32_t start, each; /* where the columns of the tile begin; the length of a share */
};

/* Returns the length of the columns of a tile; 0 behind the last tile. */
static __device__ __forceinline__ int32_t um_cu_tile_length(const um_cu_batch &b, int32_t n_heads, int32_t tile) {
    if (tile >= b.capacity.n_tiles) return 0;
    const um_message_tile t = b.tile[tile];
    const int32_t end = b.span[t.span].keys.end; /* a tile that is padding names a span, too */
    return t.n ? n_heads * um_cu_slots_of(end) * (um_cu_piece_of(end) / UM_CU_GROUP) : 0;
}

static __device__ __forceinline__ int32_t um_cu_sum_warp(int32_t v) {
#pragma unroll
    for (int step = 16; step; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

/* Returns where the columns of a tile begin, and the length of each of n shares: that of whole columns, when this takes
 * hardly longer, since the results of a column that is cut are written and merged. A warp calls it. */
static __device__ __forceinline__ um_cu_column um_cu_find_column(const um_cu_batch &b, int32_t n_heads, int32_t tile,
                                                                 int32_t n) {
    int32_t all = 0, before = 0, longest = 0;
    for (int32_t t = threadIdx.x % WARP; t < b.capacity.n_tiles; t += WARP) {
        const int32_t length = um_cu_tile_length(b, n_heads, t);
        all += length;
        before += t < tile ? length : 0;
        longest = max(longest, length / n_heads);
    }
    all = um_cu_sum_warp(all);
    longest = max(1, __reduce_max_sync(0xffffffffu, longest));
    const int32_t each = max(1, (all + n - 1) / n), whole = (each + longest - 1) / longest * longest;
    return {um_cu_sum_warp(before), whole * 8 <= each * 9 + 64 ? whole : each};
}

/* Returns the share of CTA i of n. A slot belongs to the share in which it begins. A warp calls it. */
static __device__ __forceinline__ um_cu_share um_cu_find_share(const um_cu_batch &b, int32_t n_heads, int32_t i,
                                                               int32_t n) {
    const int32_t n_tiles = b.capacity.n_tiles, lane = threadIdx.x % WARP;
    const int32_t each = um_cu_find_column(b, n_heads, 0, n).each, from = i * each;
    um_cu_share s = {n_tiles, 0, 0, 0};
    for (int32_t first = 0, start = 0; first < n_tiles; first += WARP) {
        const int32_t length = um_cu_tile_length(b, n_heads, first + lane);
        int32_t end = length;
#pragma unroll
        for (int step = 1; step < WARP; step *= 2) {
            const int32_t other = __shfl_up_sync(0xffffffffu, end, step);
            end += lane >= step ? other : 0;
        }
        end += start;
        const unsigned behind = __ballot_sync(0xffffffffu, end > from);
        start = __shfl_sync(0xffffffffu, end, WARP - 1);
        if (!behind) continue;
        const int at = __ffs(behind) - 1;
        const int32_t tile_start = __shfl_sync(0xffffffffu, end - length, at);
        const int32_t slots = um_cu_slots_of(b.span[b.tile[first + at].span].keys.end);
        const int32_t slot_length = __shfl_sync(0xffffffffu, length, at) / n_heads / slots;
        const int32_t slot = (from - tile_start + slot_length - 1) / slot_length;
        s = {first + at, slot / slots, slot % slots, from + each - tile_start - slot * slot_length};
        if (s.head == n_heads) s.head = 0, s.tile++; /* the share begins within the last slot of the tile */
        break;
    }
    return s;
}
#endif

#endif
