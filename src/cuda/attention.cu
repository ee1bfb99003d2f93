/* attention: paged block attention, for the rule of um_attention (ops/ops.h). Two kernels: one for bf16 operands on the
 * matrix units, one for fp32 operands, any head size and any type of keys.
 *
 * Both go through the keys in groups at fixed multiples of the visibility index, so the bits of a query do not depend
 * on where its span begins to read. The kernel for bf16 cuts the keys into pieces at fixed multiples of PIECE. Each
 * piece has its own maximum, sum and product, which are merged in the order of the pieces: either by the CTA that
 * computes all pieces of a tile, or by a second kernel when each piece has a CTA of its own. Both ways round alike, so
 * the number of CTAs does not change a bit. */
#include "cuda/kv.cuh"

static constexpr int WARP = 32, GROUP = 64, PIECE = 256, ROWS_PER_WARP = 16, PAD = 8;
static_assert(PIECE % GROUP == 0, "a piece is a number of groups");

int32_t um_cu_piece_keys(int32_t head_dim) {
    (void)head_dim;
    return PIECE;
}

/* ---- Which keys a query sees ------------------------------------------------------------------------------------- */

static __device__ __forceinline__ bool sees(const um_message_span &s, int32_t key, int32_t end) {
    return key >= s.keys.start && key < end && !(key >= s.hole.start && key < s.hole.end);
}

/* ---- fp32 -------------------------------------------------------------------------------------------------------- */

static constexpr int EXACT_WARPS = 4, EXACT_DIM_MAX = 256, EXACT_LANES = EXACT_DIM_MAX / WARP;

struct exact_args {
    um_cu_attention a;
    um_cu_kv_view kv;
};

/* A warp computes one head of one token. It goes through the keys in groups of 32 at fixed multiples: each lane
 * computes the score of one key, then the lanes share the elements of the output. */
template <typename T> static __global__ void attend_exact(const um_cu_batch b, const exact_args e) {
    __shared__ float query[EXACT_WARPS][EXACT_DIM_MAX];
    const um_cu_attention &a = e.a;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int64_t item = (int64_t)blockIdx.x * EXACT_WARPS + warp;
    const int32_t t = (int32_t)(item / a.n_heads), h = (int32_t)(item % a.n_heads), d = a.head_dim;
    if (t >= b.room.n_tokens || b.span_of[t] < 0) return;
    const um_message_span s = b.span[b.span_of[t]];
    const int32_t *page = um_cu_at<int32_t>(b, s.page);
    const int32_t head = h / (a.n_heads / a.n_kv_heads), end = min(s.keys.end, b.seen_end[t]);
    const T *q = (const T *)a.qkv + (size_t)t * (a.n_heads + 2 * a.n_kv_heads) * d + (size_t)h * d;
    float *x = query[warp], acc[EXACT_LANES] = {}, largest = -INFINITY, sum = 0;
    for (int32_t i = lane; i < d; i += WARP) x[i] = um_cu_float(q[i]);
    __syncwarp();
    for (int32_t first = s.keys.start / WARP * WARP; first < end; first += WARP) {
        const int32_t key = first + lane;
        const bool seen = sees(s, key, end);
        float score = -INFINITY;
        if (seen) {
            const char *range = e.kv.key + um_cu_range_at(e.kv, page[key / e.kv.page_size], head);
            score = 0;
            for (int32_t i = 0; i < d; i++)
                score = fmaf(x[i], um_cu_kv_get(e.kv, range, key % e.kv.page_size, i), score);
            score *= a.scale;
        }
        float most = score;
        for (int step = WARP / 2; step; step /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
        most = fmaxf(most, largest);
        if (most == -INFINITY) continue; /* no key of the group is seen */
        const float factor = largest == -INFINITY ? 0 : expf(largest - most), p = seen ? expf(score - most) : 0;
        float group = p;
        for (int step = WARP / 2; step; step /= 2) group += __shfl_xor_sync(0xffffffffu, group, step);
        sum = fmaf(sum, factor, group);
        largest = most;
        for (int i = 0; i < EXACT_LANES; i++) acc[i] *= factor;
        for (int k = 0; k < WARP; k++) {
            const float weight = um_cu_float(um_cu_operand<T>(__shfl_sync(0xffffffffu, p, k)));
            if (weight == 0) continue;
            const char *range = e.kv.value + um_cu_range_at(e.kv, page[(first + k) / e.kv.page_size], head);
            const int32_t slot = (first + k) % e.kv.page_size;
            for (int i = 0; i < EXACT_LANES; i++)
                if (lane + i * WARP < d)
                    acc[i] = fmaf(weight, um_cu_kv_get(e.kv, range, slot, lane + i * WARP), acc[i]);
        }
    }
    T *out = (T *)a.out + ((size_t)t * a.n_heads + h) * d;
    for (int i = 0; i < EXACT_LANES; i++)
        if (lane + i * WARP < d) out[lane + i * WARP] = um_cu_operand<T>(sum > 0 ? acc[i] / sum : 0);
}

/* ---- bf16 on the matrix units ------------------------------------------------------------------------------------ */

struct flash_args {
    um_cu_attention a;
    um_cu_kv_view kv;
    int32_t first_tile; /* of the launch */
    bool split;         /* each piece has a CTA of its own */
    int32_t tile_rows;  /* rows of `partial` for a tile: tokens of a tile * query heads of a KV head */
};

static __device__ __forceinline__ uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Copies 16 bytes to shared memory in the background; zeros when `there` is not set. */
static __device__ __forceinline__ void copy_async(void *to, const void *from, bool there) {
    const int bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes));
}
static __device__ __forceinline__ void copies_end() { asm volatile("cp.async.commit_group;"); }
template <int N> static __device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N));
}

static __device__ __forceinline__ void load_matrix(uint32_t r[4], const void *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p)));
}
static __device__ __forceinline__ void load_matrix_transposed(uint32_t r[4], const void *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p)));
}

/* c += a b, for a [16, 16], b [16, 8]. */
static __device__ __forceinline__ void multiply(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ uint32_t pack_two(float low, float high) {
    const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&v;
}

/* Brings a group of 64 keys (or values) to shared memory [64][D + PAD]. Keys outside of [start, end) become zero. */
template <int D, int THREADS>
static __device__ void fetch_group(const um_cu_kv_view &kv, const char *base, const int32_t *page, int32_t head,
                                   int32_t first, int32_t start, int32_t end, um_bf16 *to) {
    constexpr int CHUNKS = D / 8;
    for (int i = threadIdx.x; i < GROUP * CHUNKS; i += THREADS) {
        const int32_t key = first + i / CHUNKS, chunk = i % CHUNKS;
        const bool there = key >= start && key < end;
        um_bf16 *at = to + (i / CHUNKS) * (D + PAD) + chunk * 8;
        const char *range = base, *from = base;
        int32_t slot = 0;
        if (there) {
            range = base + um_cu_range_at(kv, page[key / kv.page_size], head);
            slot = key % kv.page_size;
            from = range + ((size_t)slot * D + chunk * 8) * sizeof(um_bf16);
        }
        if (kv.type == UM_BF16) {
            copy_async(at, from, there);
            continue;
        }
        uint32_t pair[4];
        for (int k = 0; k < 4; k++)
            pair[k] = there ? pack_two(um_cu_kv_get(kv, range, slot, chunk * 8 + 2 * k),
                                       um_cu_kv_get(kv, range, slot, chunk * 8 + 2 * k + 1))
                            : 0;
        *(uint4 *)at = make_uint4(pair[0], pair[1], pair[2], pair[3]);
    }
}

/* The state of a warp's 16 rows: each thread has rows lane / 4 and lane / 4 + 8. */
template <int D> struct softmax_state { float largest[2], sum[2], acc[D / 8][4]; };

template <int D> static __device__ __forceinline__ void clear(softmax_state<D> &s) {
    s.largest[0] = s.largest[1] = -INFINITY;
    s.sum[0] = s.sum[1] = 0;
#pragma unroll
    for (int i = 0; i < D / 8; i++) s.acc[i][0] = s.acc[i][1] = s.acc[i][2] = s.acc[i][3] = 0;
}

/* Returns the factors by which two parts are scaled to their common maximum. Empty parts have the factor 0. */
static __device__ __forceinline__ float common_scale(float a, float b, float *by_a, float *by_b) {
    const float most = fmaxf(a, b);
    *by_a = a == -INFINITY ? 0 : exp2f(a - most);
    *by_b = b == -INFINITY ? 0 : exp2f(b - most);
    return most;
}

static __device__ __forceinline__ float weighted(float a, float by_a, float b, float by_b) {
    return __fadd_rn(__fmul_rn(a, by_a), __fmul_rn(b, by_b));
}

/* Returns an element of the output: 0 when no key is seen. Merging may turn -0 into 0, so both become 0. */
static __device__ __forceinline__ float divided(float acc, float sum) {
    return sum > 0 ? __fdiv_rn(__fadd_rn(acc, 0.0f), sum) : 0;
}

/* Adds a piece to the pieces before it. */
template <int D>
static __device__ __forceinline__ void merge_piece(softmax_state<D> &all, const softmax_state<D> &piece) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float by_all, by_piece;
        const float most = common_scale(all.largest[r], piece.largest[r], &by_all, &by_piece);
        all.largest[r] = most;
        all.sum[r] = weighted(all.sum[r], by_all, piece.sum[r], by_piece);
#pragma unroll
        for (int i = 0; i < D / 8; i++)
#pragma unroll
            for (int k = 2 * r; k < 2 * r + 2; k++)
                all.acc[i][k] = weighted(all.acc[i][k], by_all, piece.acc[i][k], by_piece);
    }
}

/* What a thread knows of its two rows. */
struct row_pair {
    int32_t token[2], head[2]; /* token -1: no row */
    int32_t end[2];            /* first key that the row does not see */
};

/* Computes the scores of a group and adds its part of the product. k, v: the group in shared memory. */
template <int D>
static __device__ __forceinline__ void add_group(softmax_state<D> &st, const uint32_t (*q)[4], const um_bf16 *k,
                                                 const um_bf16 *v, const um_message_span &span, const row_pair &rows,
                                                 int32_t first, float scale) {
    const int lane = threadIdx.x % WARP;
    float score[GROUP / 8][4];
#pragma unroll
    for (int n = 0; n < GROUP / 16; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) score[2 * n][i] = score[2 * n + 1][i] = 0;
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            uint32_t b[4]; /* keys 0..7 and 8..15 of the pair of columns, elements 0..7 and 8..15 */
            load_matrix(b, k + (n * 16 + (lane / 16) * 8 + lane % 8) * (D + PAD) + c * 16 + (lane / 8 % 2) * 8);
            multiply(score[2 * n], q[c], b[0], b[1]);
            multiply(score[2 * n + 1], q[c], b[2], b[3]);
        }
    }
    float most[2] = {st.largest[0], st.largest[1]}, factor[2];
#pragma unroll
    for (int n = 0; n < GROUP / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int32_t key = first + n * 8 + (lane % 4) * 2 + i % 2;
            score[n][i] = sees(span, key, rows.end[i / 2]) ? score[n][i] * scale : -INFINITY;
            most[i / 2] = fmaxf(most[i / 2], score[n][i]);
        }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 1));
        most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 2));
        factor[r] = st.largest[r] == -INFINITY ? 0 : exp2f(st.largest[r] - most[r]);
        st.largest[r] = most[r];
        st.sum[r] *= factor[r];
    }
    float sum[2] = {0, 0};
#pragma unroll
    for (int n = 0; n < GROUP / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            score[n][i] = score[n][i] == -INFINITY ? 0 : exp2f(score[n][i] - most[i / 2]);
            sum[i / 2] += score[n][i];
        }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
        sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
        st.sum[r] += sum[r];
    }
#pragma unroll
    for (int i = 0; i < D / 8; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) st.acc[i][j] *= factor[j / 2];
#pragma unroll
    for (int c = 0; c < GROUP / 16; c++) {
        const uint32_t p[4] = {pack_two(score[2 * c][0], score[2 * c][1]), pack_two(score[2 * c][2], score[2 * c][3]),
                               pack_two(score[2 * c + 1][0], score[2 * c + 1][1]),
                               pack_two(score[2 * c + 1][2], score[2 * c + 1][3])};
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t b[4];
            load_matrix_transposed(b,
                                   v + (c * 16 + (lane / 8 % 2) * 8 + lane % 8) * (D + PAD) + n * 16 + (lane / 16) * 8);
            multiply(st.acc[2 * n], p, b[0], b[1]);
            multiply(st.acc[2 * n + 1], p, b[2], b[3]);
        }
    }
}

/* Loads the queries of a warp's rows as operands. Rows that are not there are zero. */
template <int D>
static __device__ __forceinline__ void load_queries(uint32_t (*q)[4], const um_cu_attention &a, const row_pair &rows) {
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
static __device__ void write_rows(const softmax_state<D> &st, const um_cu_attention &a, const row_pair &rows) {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (rows.token[r] < 0) continue;
        um_bf16 *out = (um_bf16 *)a.out + ((size_t)rows.token[r] * a.n_heads + rows.head[r]) * D;
        const float sum = st.sum[r];
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            const float low = divided(st.acc[i][2 * r], sum), high = divided(st.acc[i][2 * r + 1], sum);
            *(uint32_t *)(out + i * 8 + (lane % 4) * 2) = pack_two(low, high);
        }
    }
}

/* Returns where the part of a row lies: [tile][KV head][row][piece] of D products, the maximum and the sum. */
static __device__ __forceinline__ size_t part_at(int32_t tile, int32_t n_kv_heads, int32_t head, int32_t tile_rows,
                                                 int32_t row, int32_t n_pieces, int32_t piece, int32_t d) {
    return ((((size_t)tile * n_kv_heads + head) * tile_rows + row) * n_pieces + piece) * (size_t)(d + 2);
}

template <int D>
static __device__ void write_part(const softmax_state<D> &st, const flash_args &f, int32_t warp, int32_t head,
                                  int32_t piece, const row_pair &rows) {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (rows.token[r] < 0) continue;
        const int32_t row = warp * ROWS_PER_WARP + lane / 4 + 8 * r;
        float *out = f.a.partial + part_at(blockIdx.x, f.a.n_kv_heads, head, f.tile_rows, row, f.a.n_pieces, piece, D);
#pragma unroll
        for (int i = 0; i < D / 8; i++)
            *(float2 *)(out + i * 8 + (lane % 4) * 2) = make_float2(st.acc[i][2 * r], st.acc[i][2 * r + 1]);
        if (lane % 4 == 0) *(float2 *)(out + D) = make_float2(st.largest[r], st.sum[r]);
    }
}

/* Goes through the groups of keys of [from, to), with two buffers in shared memory. */
template <int D, int WARPS>
static __device__ void add_keys(softmax_state<D> &st, const uint32_t (*q)[4], const flash_args &f, const um_cu_batch &b,
                                const um_message_span &span, const row_pair &rows, int32_t head, int32_t from,
                                int32_t to, bool works) {
    extern __shared__ uint4 memory[];
    constexpr int THREADS = WARPS * WARP, SIZE = GROUP * (D + PAD);
    um_bf16 *buffer = (um_bf16 *)memory; /* [2][keys, values] */
    const int32_t *page = um_cu_at<int32_t>(b, span.page);
    const float scale = f.a.scale * 1.44269504f; /* powers of two are used in place of exp */
    auto fetch = [&](int32_t first, int at) {
        const int32_t start = max(span.keys.start, first), end = min(span.keys.end, to);
        fetch_group<D, THREADS>(f.kv, f.kv.key, page, head, first, start, end, buffer + (2 * at) * SIZE);
        fetch_group<D, THREADS>(f.kv, f.kv.value, page, head, first, start, end, buffer + (2 * at + 1) * SIZE);
        copies_end();
    };
    int at = 0;
    __syncthreads();
    fetch(from, 0);
    for (int32_t first = from; first < to; first += GROUP, at ^= 1) {
        if (first + GROUP < to) fetch(first + GROUP, at ^ 1);
        else copies_end();
        copies_wait<1>();
        __syncthreads();
        if (works) add_group<D>(st, q, buffer + 2 * at * SIZE, buffer + (2 * at + 1) * SIZE, span, rows, first, scale);
        __syncthreads();
    }
    copies_wait<0>();
}

template <int D, int WARPS>
static __global__ void __launch_bounds__(WARPS *WARP) attend_flash(const um_cu_batch b, const flash_args f) {
    const um_message_tile tile = b.tile[f.first_tile + blockIdx.x];
    if (tile.n == 0) return;
    const um_message_span span = b.span[tile.span];
    const int32_t head = blockIdx.y, group = f.a.n_heads / f.a.n_kv_heads;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    row_pair rows;
    int32_t last = 0; /* largest end of the tile's tokens */
    for (int32_t t = 0; t < tile.n; t++) last = max(last, min(span.keys.end, b.seen_end[tile.first + t]));
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int32_t row = warp * ROWS_PER_WARP + lane / 4 + 8 * r, t = row / group;
        rows.token[r] = t < tile.n ? tile.first + t : -1;
        rows.head[r] = head * group + row % group;
        rows.end[r] = t < tile.n ? min(span.keys.end, b.seen_end[tile.first + t]) : 0;
    }
    const bool works = warp * ROWS_PER_WARP < tile.n * group;
    const int32_t begin = span.keys.start / PIECE, end = (last + PIECE - 1) / PIECE;
    uint32_t q[D / 16][4];
    load_queries<D>(q, f.a, rows);
    if (f.split) {
        const int32_t piece = blockIdx.z;
        softmax_state<D> part;
        clear(part);
        if (piece < begin || piece >= end) {
            write_part<D>(part, f, warp, head, piece, rows);
            return;
        }
        const int32_t from = max(piece * PIECE, span.keys.start / GROUP * GROUP), to = min(last, (piece + 1) * PIECE);
        add_keys<D, WARPS>(part, q, f, b, span, rows, head, from, to, works);
        if (works) write_part<D>(part, f, warp, head, piece, rows);
        return;
    }
    softmax_state<D> all;
    clear(all);
    for (int32_t piece = begin; piece < end; piece++) {
        softmax_state<D> part;
        clear(part);
        const int32_t from = max(piece * PIECE, span.keys.start / GROUP * GROUP), to = min(last, (piece + 1) * PIECE);
        add_keys<D, WARPS>(part, q, f, b, span, rows, head, from, to, works);
        merge_piece(all, part);
    }
    if (works) write_rows<D>(all, f.a, rows);
}

/* Merges the pieces of a row and writes it. A warp computes one row. */
template <int D> static __global__ void merge_parts(const um_cu_batch b, const flash_args f) {
    const um_message_tile tile = b.tile[f.first_tile + blockIdx.x];
    const int32_t head = blockIdx.y, group = f.a.n_heads / f.a.n_kv_heads, lane = threadIdx.x % WARP;
    constexpr int EACH = (D + WARP - 1) / WARP;
    for (int32_t row = threadIdx.x / WARP; row < tile.n * group; row += blockDim.x / WARP) {
        float largest = -INFINITY, sum = 0, acc[EACH] = {};
        const float *part =
            f.a.partial + part_at(blockIdx.x, f.a.n_kv_heads, head, f.tile_rows, row, f.a.n_pieces, 0, D);
        for (int32_t p = 0; p < f.a.n_pieces; p++, part += D + 2) {
            float by_all, by_piece;
            const float most = common_scale(largest, part[D], &by_all, &by_piece);
            largest = most;
            sum = weighted(sum, by_all, part[D + 1], by_piece);
            for (int i = 0; i < EACH; i++)
                if (lane + i * WARP < D) acc[i] = weighted(acc[i], by_all, part[lane + i * WARP], by_piece);
        }
        const int32_t t = tile.first + row / group, h = head * group + row % group;
        um_bf16 *out = (um_bf16 *)f.a.out + ((size_t)t * f.a.n_heads + h) * D;
        for (int i = 0; i < EACH; i++)
            if (lane + i * WARP < D) out[lane + i * WARP] = __float2bfloat16_rn(divided(acc[i], sum));
    }
}

/* ---- Launch ------------------------------------------------------------------------------------------------------ */

static constexpr int MANY_ROWS = 128, FEW_ROWS = 64, BUSY_CTAS = 264;

static bool has_flash(int32_t head_dim, int32_t group, um_dtype type) {
    const bool size = head_dim == 16 || head_dim == 32 || head_dim == 64 || head_dim == 96 || head_dim == 128;
    return type == UM_BF16 && size && group <= FEW_ROWS;
}

/* Returns the rows of a tile. Several query heads share the keys of a tile of more rows. */
static int32_t tile_rows(int32_t group) { return group > 1 ? MANY_ROWS : FEW_ROWS; }

int32_t um_cu_tile_tokens(int32_t n_heads, int32_t n_kv_heads, int32_t head_dim, um_dtype type) {
    const int32_t group = n_heads / n_kv_heads;
    return has_flash(head_dim, group, type) ? tile_rows(group) / group : FEW_ROWS;
}

size_t um_cu_attention_scratch(int32_t n_tokens, int32_t n_heads, int32_t head_dim, int32_t n_pieces) {
    return um_mul(um_mul((size_t)n_tokens, (size_t)n_heads), (size_t)n_pieces) * (size_t)(head_dim + 2) * sizeof(float);
}

template <int D, int WARPS> static void launch_tiles(const um_cu_batch *b, flash_args f, int32_t n, cudaStream_t s) {
    const size_t shared = 4 * (size_t)GROUP * (D + PAD) * sizeof(um_bf16);
    const dim3 grid((unsigned)n, (unsigned)f.a.n_kv_heads, f.split ? (unsigned)f.a.n_pieces : 1);
    if (shared > 48 * 1024)
        cudaFuncSetAttribute(attend_flash<D, WARPS>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    attend_flash<D, WARPS><<<grid, WARPS * WARP, shared, s>>>(*b, f);
    if (f.split) merge_parts<D><<<dim3((unsigned)n, (unsigned)f.a.n_kv_heads), 256, 0, s>>>(*b, f);
}

/* Computes the tiles: at once, or when their pieces don't fit into `partial`, in groups. */
template <int D, int WARPS> static void launch_flash(const um_cu_batch *b, flash_args f, cudaStream_t s) {
    const int32_t n_tiles = b->room.n_tiles;
    const int64_t ctas = (int64_t)n_tiles * f.a.n_kv_heads;
    f.tile_rows = WARPS * ROWS_PER_WARP;
    const size_t tile_bytes =
        (size_t)f.a.n_kv_heads * (size_t)f.tile_rows * (size_t)f.a.n_pieces * (D + 2) * sizeof(float);
    const int32_t fit = (int32_t)UM_MIN((size_t)n_tiles, f.a.partial_bytes / tile_bytes);
    f.split = f.a.n_pieces > 1 && ctas < BUSY_CTAS && fit > 0;
    const int32_t most = f.split ? fit : n_tiles;
    for (f.first_tile = 0; f.first_tile < n_tiles; f.first_tile += most)
        launch_tiles<D, WARPS>(b, f, UM_MIN(most, n_tiles - f.first_tile), s);
}

template <int D> static void launch_dim(const um_cu_batch *b, const flash_args *f, cudaStream_t s) {
    if (tile_rows(f->a.n_heads / f->a.n_kv_heads) == MANY_ROWS) launch_flash<D, MANY_ROWS / ROWS_PER_WARP>(b, *f, s);
    else launch_flash<D, FEW_ROWS / ROWS_PER_WARP>(b, *f, s);
}

static void attend_any(const um_cu_batch *b, const um_cu_attention *a, const um_cu_kv *kv, cudaStream_t s) {
    const exact_args e = {*a, um_cu_kv_of(kv, a->layer)};
    const unsigned blocks = (unsigned)UM_CEIL_DIV((int64_t)b->room.n_tokens * a->n_heads, EXACT_WARPS);
    assert(a->head_dim <= EXACT_DIM_MAX);
    if (a->type == UM_BF16) attend_exact<um_bf16><<<blocks, EXACT_WARPS * WARP, 0, s>>>(*b, e);
    else attend_exact<float><<<blocks, EXACT_WARPS * WARP, 0, s>>>(*b, e);
}

void um_cu_attend(const um_cu_batch *b, const um_cu_attention *a, const um_cu_kv *kv, cudaStream_t s) {
    flash_args f = {};
    if (b->room.n_tokens == 0 || b->room.n_tiles == 0) return;
    if (!has_flash(a->head_dim, a->n_heads / a->n_kv_heads, a->type)) {
        attend_any(b, a, kv, s);
        return;
    }
    f.a = *a;
    f.kv = um_cu_kv_of(kv, a->layer);
    switch (a->head_dim) {
    case 16: launch_dim<16>(b, &f, s); return;
    case 32: launch_dim<32>(b, &f, s); return;
    case 64: launch_dim<64>(b, &f, s); return;
    case 96: launch_dim<96>(b, &f, s); return;
    default: launch_dim<128>(b, &f, s); return;
    }
}
