/* attention_rows: parts that the kernels of attention on the matrix units share: the rows of a warp, their softmax, and
 * the pieces of the keys. Used inside the room cuda only.
 *
 * A CTA computes a tile of rows: tokens times the query heads of one KV head. It goes through the keys in groups at
 * fixed multiples of the visibility index, so the bits of a row do not depend on where its span begins to read. The
 * keys are cut into pieces at fixed multiples of UM_CU_PIECE. Each piece has its own maximum, sum and product, which
 * are merged in the order of the pieces: either by the CTA that computes all pieces of a tile, or by a second kernel
 * when each piece has a CTA of its own. Both ways round alike, so the number of CTAs does not change a bit. A group or
 * piece in which a row sees no key does not change the row. attention_share.cuh has the pieces of attention_stream.cu,
 * which are fewer for long contexts. */
#ifndef UM_CUDA_ATTENTION_ROWS_CUH
#define UM_CUDA_ATTENTION_ROWS_CUH

#include "cuda/attention.cuh"

static constexpr int WARP = 32, ROWS_PER_WARP = 16;
static constexpr int UM_CU_GROUP = 64; /* keys */
static_assert(UM_CU_PIECE % UM_CU_GROUP == 0, "a piece is a number of groups");
static_assert(UM_KEY_GROUP % UM_CU_PIECE == 0,
              "keys that move by a multiple of UM_KEY_GROUP keep their place in a piece");

/* A launch. Grid: tiles, KV heads, pieces if it is split. */
typedef struct um_cu_flash {
    um_cu_attention a;
    um_cu_kv_view kv;
    int32_t first_tile; /* of the launch */
    bool split;         /* each piece has a CTA of its own; attention_stream.cu: CTAs share the pieces */
    int32_t tile_rows;  /* rows of `partial` for a tile: tokens of a tile * query heads of a KV head */
    int32_t stages;     /* groups in shared memory, 2 or 3: one is computed while the others arrive (attention.cu) */
} um_cu_flash;

/* ---- The kernels for Hopper GPUs (attention_stream.cu) ---- */

/* Returns whether they compute such a launch. */
bool um_cu_attend_stream_suits(const um_cu_flash *f);
/* Computes all tiles. Returns false, without a launch, when the driver can't describe the pools. */
bool um_cu_attend_stream(const um_cu_batch *b, const um_cu_flash *f, const um_cu_kv *kv, cudaStream_t s);

/* ---- Arithmetic -------------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ uint32_t um_cu_pack_two(float low, float high) {
    const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&v;
}

/* ---- Softmax ----------------------------------------------------------------------------------------------------- */

/* The state of a warp's 16 rows: each thread has rows lane / 4 and lane / 4 + 8. */
template <int D> struct um_cu_softmax { float largest[2], sum[2], acc[D / 8][4]; };

template <int D> static __device__ __forceinline__ void um_cu_clear(um_cu_softmax<D> &s) {
    s.largest[0] = s.largest[1] = -INFINITY;
    s.sum[0] = s.sum[1] = 0;
#pragma unroll
    for (int i = 0; i < D / 8; i++) s.acc[i][0] = s.acc[i][1] = s.acc[i][2] = s.acc[i][3] = 0;
}

/* Returns the factors by which two parts are scaled to their common maximum. Empty parts have the factor 0. */
static __device__ __forceinline__ float um_cu_common_scale(float a, float b, float *by_a, float *by_b) {
    const float most = fmaxf(a, b);
    *by_a = a == -INFINITY ? 0 : um_cu_power_of_two(a - most);
    *by_b = b == -INFINITY ? 0 : um_cu_power_of_two(b - most);
    return most;
}

static __device__ __forceinline__ float um_cu_weighted(float a, float by_a, float b, float by_b) {
    return __fadd_rn(__fmul_rn(a, by_a), __fmul_rn(b, by_b));
}

/* Return the factor of a row's products, and an element of the output. It is 0 when no key is seen. Merging may turn -0
 * into 0, so both become 0. */
static __device__ __forceinline__ float um_cu_inverse(float sum) { return sum == 0 ? 0 : __frcp_rn(sum); }
static __device__ __forceinline__ float um_cu_scaled(float acc, float inverse) {
    return __fmul_rn(__fadd_rn(acc, 0.0f), inverse);
}

/* Adds the first ROWS rows of a piece to the pieces before it. */
template <int D, int ROWS>
static __device__ __forceinline__ void um_cu_merge_piece(um_cu_softmax<D> &all, const um_cu_softmax<D> &piece) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float by_all, by_piece;
        const float most = um_cu_common_scale(all.largest[r], piece.largest[r], &by_all, &by_piece);
        all.largest[r] = most;
        all.sum[r] = um_cu_weighted(all.sum[r], by_all, piece.sum[r], by_piece);
#pragma unroll
        for (int i = 0; i < D / 8; i++)
#pragma unroll
            for (int k = 2 * r; k < 2 * r + 2; k++)
                all.acc[i][k] = um_cu_weighted(all.acc[i][k], by_all, piece.acc[i][k], by_piece);
    }
}

/* The two rows of a thread. */
struct um_cu_row_pair {
    int32_t row[2];            /* of the tile */
    int32_t token[2], head[2]; /* token -1: no row */
    int32_t end[2];            /* first key that the row does not see */
};

/* Sets the scores of keys that the first ROWS rows do not see to -infinity. */
template <int ROWS>
static __device__ __forceinline__ void um_cu_hide_keys(float (*score)[4], const um_message_span &span,
                                                       const um_cu_row_pair &rows, int32_t first) {
    const int32_t column = first + (int32_t)threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < UM_CU_GROUP / 8; n++)
#pragma unroll
        for (int i = 0; i < 2 * ROWS; i++)
            if (!um_cu_sees(span, column + n * 8 + i % 2, rows.end[i / 2])) score[n][i] = -INFINITY;
}

/* Turns the scores of a group into probabilities relative to the largest score so far, and scales the sums to it. The
 * caller scales the products by `factor`, with um_cu_scale_products. The sums are those of the thread's own keys until
 * um_cu_end_piece. whole: the rows see all keys of the group. `place` is used for keys in 8 bits only. ROWS: rows of a
 * thread. */
template <int D, bool CONVERT, int ROWS>
static __device__ __forceinline__ void um_cu_weigh_group(um_cu_softmax<D> &st, float (*score)[4], float factor[2],
                                                         const um_cu_place *place, const um_message_span &span,
                                                         const um_cu_row_pair &rows, int32_t first, float scale,
                                                         bool whole) {
    const int column = threadIdx.x % 4 * 2;
    float most[2][2], base[2], sum[2][2] = {}; /* of the even and the odd keys of the thread, so that fewer wait */
    if constexpr (CONVERT) {
#pragma unroll
        for (int n = 0; n < UM_CU_GROUP / 8; n++)
#pragma unroll
            for (int i = 0; i < 2 * ROWS; i++) score[n][i] *= place[n * 8 + column + i % 2].key_scale;
    }
    if (!whole) um_cu_hide_keys<ROWS>(score, span, rows, first); /* -infinity times a scale of 0 would be NaN */
#pragma unroll
    for (int n = 0; n < UM_CU_GROUP / 8; n++)
#pragma unroll
        for (int i = 0; i < 2 * ROWS; i++)
            most[i / 2][i % 2] = n ? fmaxf(most[i / 2][i % 2], score[n][i]) : score[n][i];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float m = fmaxf(most[r][0], most[r][1]);
        m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
        m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
        m = fmaxf(st.largest[r], m * scale);
        base[r] = m == -INFINITY ? 0 : m;
        factor[r] = um_cu_power_of_two(st.largest[r] - base[r]);
        st.largest[r] = m;
    }
#pragma unroll
    for (int n = 0; n < UM_CU_GROUP / 8; n++)
#pragma unroll
        for (int i = 0; i < 2 * ROWS; i++) {
            score[n][i] = um_cu_power_of_two(fmaf(score[n][i], scale, -base[i / 2]));
            sum[i / 2][i % 2] += score[n][i];
            if constexpr (CONVERT) score[n][i] *= place[n * 8 + column + i % 2].value_scale;
        }
#pragma unroll
    for (int r = 0; r < ROWS; r++) st.sum[r] = fmaf(st.sum[r], factor[r], sum[r][0] + sum[r][1]);
}

/* Scales the products of the first ROWS rows to the largest score so far. */
template <int D, int ROWS>
static __device__ __forceinline__ void um_cu_scale_products(um_cu_softmax<D> &st, const float factor[2]) {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int i = 0; i < D / 8; i++) st.acc[i][2 * r] *= factor[r], st.acc[i][2 * r + 1] *= factor[r];
}

/* Completes the sums of a piece: the four threads of a row add up theirs. */
template <int D> static __device__ __forceinline__ void um_cu_end_piece(um_cu_softmax<D> &st) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        st.sum[r] += __shfl_xor_sync(0xffffffffu, st.sum[r], 1);
        st.sum[r] += __shfl_xor_sync(0xffffffffu, st.sum[r], 2);
    }
}

/* ---- The tile of a CTA ------------------------------------------------------------------------------------------- */

/* The work of a CTA. */
struct um_cu_cta {
    um_message_tile tile;
    um_message_span span;
    um_cu_bounds bounds;
    const int32_t *page;
    int32_t group, head, piece; /* query heads of a KV head; the KV head; the piece of a split launch */
    int32_t above;              /* rows are computed whose keys end behind this, up to bounds.most */
    int32_t from, to;           /* keys to go through; from is a multiple of UM_CU_GROUP */
};

/* Sets the work of the CTA. It reads nothing but the message, so it may be called before um_cu_wait_for_previous.
 * Returns whether there is any work. */
static __device__ __forceinline__ bool um_cu_find_tile(um_cu_cta &c, const um_cu_batch &b, const um_cu_flash &f) {
    c.tile = b.tile[f.first_tile + blockIdx.x];
    if (c.tile.n == 0) return false;
    c.span = b.span[c.tile.span];
    c.bounds = um_cu_tile_bounds(b, c.tile, c.span, 0);
    c.page = um_cu_at<int32_t>(b, c.span.page);
    c.group = f.a.n_heads / f.a.n_kv_heads;
    c.head = blockIdx.y;
    c.piece = blockIdx.z;
    c.above = -1;
    c.from = c.span.keys.start / UM_CU_GROUP * UM_CU_GROUP;
    c.to = c.bounds.most;
    if (!f.split) return true;
    const int32_t start = c.piece * UM_CU_PIECE, end = start + UM_CU_PIECE;
    if (c.to <= start || c.span.keys.start >= end) return false;
    c.from = max(c.from, start);
    c.to = min(c.to, end);
    return true;
}

/* Returns whether all keys of a group are among those that the span reads, below `end`. */
static __device__ __forceinline__ bool um_cu_is_whole(const um_cu_cta &c, int32_t first, int32_t end) {
    const um_range keys = c.span.keys, hole = c.span.hole;
    return first >= keys.start && first + UM_CU_GROUP <= end &&
           (hole.start >= hole.end || first + UM_CU_GROUP <= hole.start || first >= hole.end);
}

/* Sets the two rows of the thread. The warp has the rows [warp * each, warp * each + each) of the tile. each:
 * ROWS_PER_WARP, or half of that: then the thread's second row is not there. */
static __device__ __forceinline__ void um_cu_find_rows(um_cu_row_pair &rows, const um_cu_batch &b, const um_cu_cta &c,
                                                       int32_t warp, int32_t each) {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int32_t row = warp * each + lane / 4 + 8 * r, t = row / c.group;
        const bool in_tile = t < c.tile.n && 8 * r < each;
        const int32_t end = in_tile ? min(c.span.keys.end, b.seen_end[c.tile.first + t]) : 0;
        const bool there = in_tile && end > c.above && end <= c.bounds.most;
        rows.row[r] = row;
        rows.token[r] = there ? c.tile.first + t : -1;
        rows.head[r] = c.head * c.group + row % c.group;
        rows.end[r] = there ? end : 0;
    }
}

/* ---- Queries and results ----------------------------------------------------------------------------------------- */

/* Loads the queries of a warp's rows as operands. Rows that are not there are zero. */
template <int D>
static __device__ __forceinline__ void um_cu_load_queries(uint32_t (*q)[4], const um_cu_attention &a,
                                                          const um_cu_row_pair &rows) {
    const int lane = threadIdx.x % WARP;
    const size_t width = (size_t)(a.n_heads + 2 * a.n_kv_heads) * D;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const um_bf16 *row = (const um_bf16 *)a.qkv + (size_t)max(rows.token[r], 0) * width + (size_t)rows.head[r] * D;
#pragma unroll
        for (int c = 0; c < D / 16; c++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                q[c][2 * half + r] =
                    rows.token[r] < 0 ? 0 : *(const uint32_t *)(row + c * 16 + half * 8 + (lane % 4) * 2);
    }
}

template <int D>
static __device__ void um_cu_write_rows(const um_cu_softmax<D> &st, const um_cu_attention &a,
                                        const um_cu_row_pair &rows) {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (rows.token[r] < 0) continue;
        um_bf16 *out = (um_bf16 *)a.out + ((size_t)rows.token[r] * a.n_heads + rows.head[r]) * D;
        const float inverse = um_cu_inverse(st.sum[r]);
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            const float low = um_cu_scaled(st.acc[i][2 * r], inverse),
                        high = um_cu_scaled(st.acc[i][2 * r + 1], inverse);
            *(uint32_t *)(out + i * 8 + (lane % 4) * 2) = um_cu_pack_two(low, high);
        }
    }
}

/* Returns where the part of a row lies: [tile][KV head][row][piece] of D products, the maximum and the sum. */
static __device__ __forceinline__ size_t um_cu_part_at(int32_t tile, int32_t n_kv_heads, int32_t head,
                                                       int32_t tile_rows, int32_t row, int32_t n_pieces, int32_t piece,
                                                       int32_t d) {
    return ((((size_t)tile * n_kv_heads + head) * tile_rows + row) * n_pieces + piece) * (size_t)(d + 2);
}

template <int D>
static __device__ void um_cu_write_part(const um_cu_softmax<D> &st, const um_cu_flash &f, const um_cu_cta &c,
                                        const um_cu_row_pair &rows) {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (rows.token[r] < 0) continue;
        float *out = f.a.partial + um_cu_part_at(blockIdx.x, f.a.n_kv_heads, c.head, f.tile_rows, rows.row[r],
                                                 f.a.n_pieces, c.piece, D);
#pragma unroll
        for (int i = 0; i < D / 8; i++)
            *(float2 *)(out + i * 8 + (lane % 4) * 2) = make_float2(st.acc[i][2 * r], st.acc[i][2 * r + 1]);
        if (lane % 4 == 0) *(float2 *)(out + D) = make_float2(st.largest[r], st.sum[r]);
    }
}

#endif
