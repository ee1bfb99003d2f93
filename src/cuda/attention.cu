/* attention: paged block attention for bf16 operands on the matrix units, and the choice between it and the kernel for
 * fp32 (attention_exact.cu).
 *
 * A CTA computes a tile of rows: tokens times the query heads of one KV head. It goes through the keys in groups at
 * fixed multiples of the visibility index, so the bits of a row do not depend on where its span begins to read. The
 * keys are cut into pieces at fixed multiples of PIECE. Each piece has its own maximum, sum and product, which are
 * merged in the order of the pieces: either by the CTA that computes all pieces of a tile, or by a second kernel when
 * each piece has a CTA of its own. Both ways round alike, so the number of CTAs does not change a bit. A group or piece
 * in which a row sees no key does not change the row.
 *
 * Vectors in 8 bits are multiplied by their scales where these are exact: the codes are exact in bf16, so the scale of
 * a key multiplies its score, and that of a value multiplies the probability before it is rounded. */
#include "cuda/attention.cuh"
#include "cuda/mma.cuh"

static constexpr int WARP = 32, GROUP = 64, PIECE = 256, ROWS_PER_WARP = 16, PAD = 8;
static constexpr int PLACES = 4; /* groups whose places are known at a time; more than the stages of the ring */
static_assert(PIECE % GROUP == 0, "a piece is a number of groups");
static_assert(UM_KEY_GROUP % PIECE == 0, "keys that move by a multiple of UM_KEY_GROUP stay at their place in a piece");

int32_t um_cu_piece_keys(int32_t head_dim) {
    (void)head_dim;
    return PIECE;
}

/* ---- The matrix units -------------------------------------------------------------------------------------------- */

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
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ uint32_t pack_two(float low, float high) {
    const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&v;
}

/* 2^v; results below 2^-126 are 0. */
static __device__ __forceinline__ float power_of_two(float v) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}

/* ---- Groups of keys in shared memory ----------------------------------------------------------------------------- */

struct flash_args {
    um_cu_attention a;
    um_cu_kv_view kv;
    int32_t first_tile; /* of the launch */
    bool split;         /* each piece has a CTA of its own */
    int32_t tile_rows;  /* rows of `partial` for a tile: tokens of a tile * query heads of a KV head */
    int32_t stages;     /* groups in shared memory, 2 or 3: one is computed while the others arrive */
};

/* The elements of a group's keys, which is also the number of its values. */
template <int D> static constexpr int group_size = (D + PAD) * GROUP;

/* Brings a group to shared memory: keys [GROUP][D + PAD], then values. Keys that are not read become zero. CONVERT:
 * they are not stored in bf16; they arrive before the function returns. */
template <int D, int THREADS, bool CONVERT>
static __device__ __forceinline__ void fetch_group(const um_cu_kv_view &kv, const um_cu_place *place, um_bf16 *to) {
    constexpr int CHUNKS = D / 8;
#pragma unroll
    for (int part = 0; part < 2; part++) {
        const char *base = part ? kv.value : kv.key;
#pragma unroll 4
        for (int i = threadIdx.x; i < GROUP * CHUNKS; i += THREADS) {
            const int row = i / CHUNKS, chunk = i % CHUNKS;
            const int64_t at = place[row].at;
            um_bf16 *into = to + part * group_size<D> + row * (D + PAD) + chunk * 8;
            if constexpr (!CONVERT) {
                copy_async(into, base + (at < 0 ? 0 : at + chunk * 16), at >= 0);
            } else {
                float v[8] = {};
                if (at >= 0) um_cu_load_eight(base + at + um_cu_kv_element(kv) * chunk * 8, kv.type, v);
                *(uint4 *)into =
                    make_uint4(pack_two(v[0], v[1]), pack_two(v[2], v[3]), pack_two(v[4], v[5]), pack_two(v[6], v[7]));
            }
        }
    }
}

/* ---- Softmax and products ---------------------------------------------------------------------------------------- */

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
    *by_a = a == -INFINITY ? 0 : power_of_two(a - most);
    *by_b = b == -INFINITY ? 0 : power_of_two(b - most);
    return most;
}

static __device__ __forceinline__ float weighted(float a, float by_a, float b, float by_b) {
    return __fadd_rn(__fmul_rn(a, by_a), __fmul_rn(b, by_b));
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

/* Turns the scores of a group into probabilities relative to the largest score so far, and scales the sums to it.
 * whole: the rows see all keys of the group. */
template <int D, bool CONVERT>
static __device__ __forceinline__ void weigh_group(softmax_state<D> &st, float (*score)[4], const um_cu_place *place,
                                                   const um_message_span &span, const row_pair &rows, int32_t first,
                                                   float scale, bool whole) {
    const int column = threadIdx.x % 4 * 2;
    float most[2] = {st.largest[0], st.largest[1]}, base[2], sum[2] = {0, 0};
#pragma unroll
    for (int n = 0; n < GROUP / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int key = n * 8 + column + i % 2;
            score[n][i] *= CONVERT ? place[key].key_scale * scale : scale;
            if (!whole && !um_cu_sees(span, first + key, rows.end[i / 2])) score[n][i] = -INFINITY;
            most[i / 2] = fmaxf(most[i / 2], score[n][i]);
        }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 1));
        most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 2));
        base[r] = most[r] == -INFINITY ? 0 : most[r];
        const float factor = power_of_two(st.largest[r] - base[r]);
        st.largest[r] = most[r];
        st.sum[r] *= factor;
#pragma unroll
        for (int i = 0; i < D / 8; i++) st.acc[i][2 * r] *= factor, st.acc[i][2 * r + 1] *= factor;
    }
#pragma unroll
    for (int n = 0; n < GROUP / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            score[n][i] = power_of_two(score[n][i] - base[i / 2]);
            sum[i / 2] += score[n][i];
            if constexpr (CONVERT) score[n][i] *= place[n * 8 + column + i % 2].value_scale;
        }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
        sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
        st.sum[r] += sum[r];
    }
}

/* Computes the scores of a group and adds its part of the product. k, v: the group in shared memory. */
template <int D, bool CONVERT>
static __device__ __forceinline__ void add_group(softmax_state<D> &st, const uint32_t (*q)[4], const um_bf16 *k,
                                                 const um_cu_place *place, const um_message_span &span,
                                                 const row_pair &rows, int32_t first, float scale, bool whole) {
    const int lane = threadIdx.x % WARP;
    const um_bf16 *v = k + group_size<D>;
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
    weigh_group<D, CONVERT>(st, score, place, span, rows, first, scale, whole);
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
            const float low = um_cu_divided(st.acc[i][2 * r], sum), high = um_cu_divided(st.acc[i][2 * r + 1], sum);
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

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

/* What the threads of a CTA share. */
struct cta {
    um_message_tile tile;
    um_message_span span;
    um_cu_bounds bounds;
    const int32_t *page;
    int32_t head;
    bool works; /* the warp has rows */
};

/* Returns whether all rows see all keys of a group. */
static __device__ __forceinline__ bool is_whole(const cta &c, int32_t first) {
    const um_range keys = c.span.keys, hole = c.span.hole;
    return first >= keys.start && first + GROUP <= c.bounds.least &&
           (hole.start >= hole.end || first + GROUP <= hole.start || first >= hole.end);
}

/* Goes through the groups of keys of [from, to); from is a multiple of GROUP. Leaves the last piece in `part`, and adds
 * those before it to `all` unless the launch is split. */
template <int D, int WARPS, bool CONVERT>
static __device__ __forceinline__ void add_keys(softmax_state<D> &all, softmax_state<D> &part, const uint32_t (*q)[4],
                                                const flash_args &f, const cta &c, const row_pair &rows, int32_t from,
                                                int32_t to) {
    extern __shared__ uint4 memory[];
    __shared__ um_cu_place place[PLACES][GROUP]; /* of group g: [g % PLACES] */
    constexpr int THREADS = WARPS * WARP, STAGE = 2 * group_size<D>;
    um_bf16 *ring = (um_bf16 *)memory;           /* [stages][keys, values] */
    const float scale = f.a.scale * 1.44269504f; /* powers of two are used in place of exp */
    const int32_t n = to > from ? (to - from + GROUP - 1) / GROUP : 0, ahead = f.stages - 1;
    const int32_t mine = (int32_t)threadIdx.x % GROUP;
    auto find = [&](int32_t g) { return um_cu_find(f.kv, c.page, c.span, c.head, from + g * GROUP + mine, to); };
    for (int32_t g = threadIdx.x / GROUP; g <= ahead; g += THREADS / GROUP) place[g][mine] = find(g);
    __syncthreads();
    for (int32_t g = 0; g < ahead; g++) {
        if (g < n) fetch_group<D, THREADS, CONVERT>(f.kv, place[g], ring + g * STAGE);
        copies_end();
    }
    for (int32_t g = 0, stage = 0, next = ahead; g < n; g++) {
        const int32_t first = from + g * GROUP;
        const bool finds = threadIdx.x < GROUP;
        um_cu_place found;
        if (f.stages == 3) copies_wait<1>();
        else copies_wait<0>();
        __syncthreads(); /* group g has arrived, and all warps are done with group g - 1 */
        if (g + ahead < n) fetch_group<D, THREADS, CONVERT>(f.kv, place[(g + ahead) % PLACES], ring + next * STAGE);
        copies_end();
        if (finds) found = find(g + f.stages);
        if (c.works)
            add_group<D, CONVERT>(part, q, ring + stage * STAGE, place[g % PLACES], c.span, rows, first, scale,
                                  is_whole(c, first));
        if (finds) place[(g + f.stages) % PLACES][mine] = found;
        next = stage;
        stage = stage + 1 == f.stages ? 0 : stage + 1;
        if (!f.split && (first + GROUP) % PIECE == 0) {
            merge_piece(all, part);
            clear(part);
        }
    }
}

/* Sets the two rows of the thread. */
static __device__ __forceinline__ void find_rows(row_pair &rows, const um_cu_batch &b, const cta &c, int32_t group) {
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int32_t row = warp * ROWS_PER_WARP + lane / 4 + 8 * r, t = row / group;
        rows.token[r] = t < c.tile.n ? c.tile.first + t : -1;
        rows.head[r] = c.head * group + row % group;
        rows.end[r] = t < c.tile.n ? min(c.span.keys.end, b.seen_end[c.tile.first + t]) : 0;
    }
}

/* Grid: tiles, KV heads, pieces if the launch is split. */
template <int D, int WARPS, bool CONVERT>
static __global__ void __launch_bounds__(WARPS *WARP) attend_flash(const um_cu_batch b, const flash_args f) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    const int32_t group = f.a.n_heads / f.a.n_kv_heads, warp = threadIdx.x / WARP, piece = blockIdx.z;
    cta c;
    c.tile = b.tile[f.first_tile + blockIdx.x];
    if (c.tile.n == 0) return;
    c.span = b.span[c.tile.span];
    c.bounds = um_cu_tile_bounds(b, c.tile, c.span);
    c.page = um_cu_at<int32_t>(b, c.span.page);
    c.head = blockIdx.y;
    c.works = warp * ROWS_PER_WARP < c.tile.n * group;
    int32_t from = c.span.keys.start / GROUP * GROUP, to = c.bounds.most;
    if (f.split) {
        if (to <= piece * PIECE || c.span.keys.start >= (piece + 1) * PIECE) return;
        from = max(from, piece * PIECE);
        to = min(to, (piece + 1) * PIECE);
    }
    row_pair rows;
    uint32_t q[D / 16][4];
    softmax_state<D> all, part;
    find_rows(rows, b, c, group);
    load_queries<D>(q, f.a, rows);
    clear(all);
    clear(part);
    add_keys<D, WARPS, CONVERT>(all, part, q, f, c, rows, from, to);
    if (!c.works) return;
    if (f.split) {
        write_part<D>(part, f, warp, c.head, piece, rows);
        return;
    }
    merge_piece(all, part);
    write_rows<D>(all, f.a, rows);
}

static constexpr int MERGE_WARPS = 4, MERGE_AT_ONCE = 4;

/* Merges the pieces of a row and writes it. A warp computes one row. Grid: tiles, KV heads, groups of rows. */
template <int D> static __global__ void merge_parts(const um_cu_batch b, const flash_args f) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    constexpr int PAIRS = D / 2, EACH = (PAIRS + WARP - 1) / WARP;
    const um_message_tile tile = b.tile[f.first_tile + blockIdx.x];
    const int32_t head = blockIdx.y, group = f.a.n_heads / f.a.n_kv_heads, lane = threadIdx.x % WARP;
    const int32_t row = (int32_t)blockIdx.z * MERGE_WARPS + (int32_t)threadIdx.x / WARP, t = tile.first + row / group;
    if (row >= tile.n * group) return;
    const um_range keys = b.span[tile.span].keys;
    const int32_t begin = keys.start / PIECE, end = (min(keys.end, b.seen_end[t]) + PIECE - 1) / PIECE;
    const float *part =
        f.a.partial + part_at(blockIdx.x, f.a.n_kv_heads, head, f.tile_rows, row, f.a.n_pieces, begin, D);
    float largest = -INFINITY, sum = 0;
    float2 acc[EACH] = {};
    for (int32_t p = begin; p < end; p += MERGE_AT_ONCE, part += MERGE_AT_ONCE * (D + 2)) {
        float2 v[MERGE_AT_ONCE][EACH], state[MERGE_AT_ONCE]; /* loaded together; empty beyond the last piece */
#pragma unroll
        for (int k = 0; k < MERGE_AT_ONCE; k++) {
            const float2 *from = (const float2 *)(part + k * (D + 2));
            state[k] = p + k < end ? from[PAIRS] : make_float2(-INFINITY, 0);
#pragma unroll
            for (int i = 0; i < EACH; i++)
                v[k][i] = p + k < end && lane + i * WARP < PAIRS ? from[lane + i * WARP] : make_float2(0, 0);
        }
#pragma unroll
        for (int k = 0; k < MERGE_AT_ONCE; k++) {
            float by_all, by_piece;
            largest = common_scale(largest, state[k].x, &by_all, &by_piece);
            sum = weighted(sum, by_all, state[k].y, by_piece);
#pragma unroll
            for (int i = 0; i < EACH; i++)
                acc[i] = make_float2(weighted(acc[i].x, by_all, v[k][i].x, by_piece),
                                     weighted(acc[i].y, by_all, v[k][i].y, by_piece));
        }
    }
    uint32_t *out = (uint32_t *)((um_bf16 *)f.a.out + ((size_t)t * f.a.n_heads + head * group + row % group) * D);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (lane + i * WARP < PAIRS)
            out[lane + i * WARP] = pack_two(um_cu_divided(acc[i].x, sum), um_cu_divided(acc[i].y, sum));
}

/* ---- Launch ------------------------------------------------------------------------------------------------------ */

static constexpr int MANY_ROWS = 128, FEW_ROWS = 64, BUSY_CTAS = 264;

static bool has_flash(int32_t head_dim, int32_t group, um_dtype type) {
    const bool size =
        head_dim == 16 || head_dim == 32 || head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128;
    return type == UM_BF16 && size && group <= FEW_ROWS;
}

/* Returns the rows of a tile. Several query heads share the keys of a tile of more rows. */
static int32_t tile_rows(int32_t group) { return group > 1 ? MANY_ROWS : FEW_ROWS; }

int32_t um_cu_tile_tokens(int32_t n_heads, int32_t n_kv_heads, int32_t head_dim, um_dtype type) {
    const int32_t group = n_heads / n_kv_heads;
    return has_flash(head_dim, group, type) ? tile_rows(group) / group : um_cu_exact_tile_tokens(group);
}

size_t um_cu_attention_scratch(int32_t n_tokens, int32_t n_heads, int32_t head_dim, int32_t n_pieces) {
    return um_mul(um_mul((size_t)n_tokens, (size_t)n_heads), (size_t)n_pieces) * (size_t)(head_dim + 2) * sizeof(float);
}

/* Returns the stages of the ring: 3 where two small CTAs or one large CTA of that size fit onto an SM, else 2. */
static int32_t stages_of(size_t stage_bytes, int warps) {
    const size_t bytes = 3 * stage_bytes + PLACES * GROUP * sizeof(um_cu_place) + 1024;
    int device = 0, cta = 0, sm = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&cta, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    cudaDeviceGetAttribute(&sm, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
    return bytes <= (size_t)cta && bytes * (warps > FEW_ROWS / ROWS_PER_WARP ? 1 : 2) <= (size_t)sm ? 3 : 2;
}

template <int D, int WARPS, bool CONVERT>
static void launch_tiles(const um_cu_batch *b, flash_args f, int32_t n, cudaStream_t s) {
    const size_t stage = 2 * (size_t)group_size<D> * sizeof(um_bf16);
    const unsigned heads = (unsigned)f.a.n_kv_heads, merges = (unsigned)UM_CEIL_DIV(f.tile_rows, MERGE_WARPS);
    f.stages = stages_of(stage, WARPS);
    const size_t bytes = stage * (size_t)f.stages;
    cudaFuncSetAttribute(attend_flash<D, WARPS, CONVERT>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    const dim3 grid((unsigned)n, heads, f.split ? (unsigned)f.a.n_pieces : 1);
    um_cu_start(attend_flash<D, WARPS, CONVERT>, grid, dim3(WARPS * WARP), bytes, s, *b, f);
    if (f.split) um_cu_start(merge_parts<D>, dim3((unsigned)n, heads, merges), dim3(MERGE_WARPS * WARP), 0, s, *b, f);
}

/* Computes the tiles: at once, or when their pieces don't fit into `partial`, in groups. */
template <int D, int WARPS, bool CONVERT> static void launch_flash(const um_cu_batch *b, flash_args f, cudaStream_t s) {
    const int32_t n_tiles = b->capacity.n_tiles;
    const int64_t ctas = (int64_t)n_tiles * f.a.n_kv_heads;
    f.tile_rows = WARPS * ROWS_PER_WARP;
    const size_t tile_bytes =
        (size_t)f.a.n_kv_heads * (size_t)f.tile_rows * (size_t)f.a.n_pieces * (D + 2) * sizeof(float);
    const int32_t fit = (int32_t)UM_MIN((size_t)n_tiles, f.a.partial_bytes / tile_bytes);
    f.split = f.a.n_pieces > 1 && ctas < BUSY_CTAS && fit > 0;
    const int32_t most = f.split ? fit : n_tiles;
    for (f.first_tile = 0; f.first_tile < n_tiles; f.first_tile += most)
        launch_tiles<D, WARPS, CONVERT>(b, f, UM_MIN(most, n_tiles - f.first_tile), s);
}

template <int D, int WARPS> static void launch_rows(const um_cu_batch *b, const flash_args *f, cudaStream_t s) {
    if (f->kv.type == UM_BF16) launch_flash<D, WARPS, false>(b, *f, s);
    else launch_flash<D, WARPS, true>(b, *f, s);
}

template <int D> static void launch_dim(const um_cu_batch *b, const flash_args *f, cudaStream_t s) {
    if (tile_rows(f->a.n_heads / f->a.n_kv_heads) == MANY_ROWS) launch_rows<D, MANY_ROWS / ROWS_PER_WARP>(b, f, s);
    else launch_rows<D, FEW_ROWS / ROWS_PER_WARP>(b, f, s);
}

void um_cu_attend(const um_cu_batch *b, const um_cu_attention *a, const um_cu_kv *kv, cudaStream_t s) {
    flash_args f = {};
    if (b->capacity.n_tokens == 0 || b->capacity.n_tiles == 0) return;
    if (!has_flash(a->head_dim, a->n_heads / a->n_kv_heads, a->type)) {
        um_cu_attend_exact(b, a, kv, s);
        return;
    }
    f.a = *a;
    f.kv = um_cu_kv_of(kv, a->layer);
    switch (a->head_dim) {
    case 16: launch_dim<16>(b, &f, s); return;
    case 32: launch_dim<32>(b, &f, s); return;
    case 64: launch_dim<64>(b, &f, s); return;
    case 80: launch_dim<80>(b, &f, s); return;
    case 96: launch_dim<96>(b, &f, s); return;
    default: launch_dim<128>(b, &f, s); return;
    }
}
