/* attention: paged block attention for bf16 operands on the matrix units, and the choice between it and the kernel for
 * fp32 (attention_exact.cu).
 *
 * attention_rows.cuh describes tiles, groups and pieces. attention_stream.cu has faster kernels for some shapes.
 *
 * Vectors that are not in bf16 arrive as they are, in a ring of their own, and a group is converted to bf16 before it
 * is computed. Vectors in 8 bits are multiplied by their scales where these are exact: the codes are exact in bf16, so
 * the scale of a key multiplies its score, and that of a value multiplies the probability before it is rounded. */
#include "cuda/attention_rows.cuh"

static constexpr int PAD = 8;
static constexpr int PLACES = 4; /* groups whose places are known at a time; more than the stages of the ring */

/* ---- Groups of keys in shared memory ----------------------------------------------------------------------------- */

/* The elements of a group's keys, which is also the number of its values. */
template <int D> static constexpr int group_size = (D + PAD) * UM_CU_GROUP;

/* Starts the copies of a group to shared memory: keys, then values, of `row_bytes` each, in rows that are `stride`
 * bytes apart. Keys that are not read become zero. */
template <int THREADS>
static __device__ __forceinline__ void fetch_group(const um_cu_kv_view &kv, const um_cu_place *place, char *to,
                                                   int row_bytes, int stride) {
    const int pieces = row_bytes / 16;
#pragma unroll
    for (int part = 0; part < 2; part++) {
        const char *base = part ? kv.value : kv.key;
#pragma unroll 4
        for (int i = threadIdx.x; i < UM_CU_GROUP * pieces; i += THREADS) {
            const int row = i / pieces, piece = i % pieces;
            const int64_t at = place[row].at;
            um_cu_copy_async(to + (part * UM_CU_GROUP + row) * stride + piece * 16,
                             base + (at < 0 ? 0 : at + piece * 16), at >= 0);
        }
    }
}

/* Converts a group that has arrived: [2][UM_CU_GROUP][D] of `type` to [2][UM_CU_GROUP][D + PAD] of bf16. */
template <int D, int THREADS>
static __device__ __forceinline__ void convert_group(const char *from, um_dtype type, int element, um_bf16 *to) {
    constexpr int CHUNKS = D / 8;
#pragma unroll 4
    for (int i = threadIdx.x; i < 2 * UM_CU_GROUP * CHUNKS; i += THREADS) {
        float v[8];
        um_cu_load_eight(from + (size_t)i * 8 * element, type, v);
        *(uint4 *)(to + i / CHUNKS * (D + PAD) + i % CHUNKS * 8) =
            make_uint4(um_cu_pack_two(v[0], v[1]), um_cu_pack_two(v[2], v[3]), um_cu_pack_two(v[4], v[5]),
                       um_cu_pack_two(v[6], v[7]));
    }
}

/* ---- Scores and products ----------------------------------------------------------------------------------------- */

/* Computes the scores of a group and adds its part of the product. k, v: the group in shared memory. */
template <int D, bool CONVERT>
static __device__ __forceinline__ void add_group(um_cu_softmax<D> &st, const uint32_t (*q)[4], const um_bf16 *k,
                                                 const um_cu_place *place, const um_message_span &span,
                                                 const um_cu_row_pair &rows, int32_t first, float scale, bool whole) {
    const int lane = threadIdx.x % WARP;
    const um_bf16 *v = k + group_size<D>;
    float score[UM_CU_GROUP / 8][4];
#pragma unroll
    for (int n = 0; n < UM_CU_GROUP / 16; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) score[2 * n][i] = score[2 * n + 1][i] = 0;
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
            uint32_t b[4]; /* keys 0..7 and 8..15 of the pair of columns, elements 0..7 and 8..15 */
            um_cu_load_matrix(b, k + (n * 16 + (lane / 16) * 8 + lane % 8) * (D + PAD) + c * 16 + (lane / 8 % 2) * 8);
            um_cu_multiply_16(score[2 * n], q[c], b[0], b[1]);
            um_cu_multiply_16(score[2 * n + 1], q[c], b[2], b[3]);
        }
    }
    float factor[2];
    um_cu_weigh_group<D, CONVERT, 2>(st, score, factor, place, span, rows, first, scale, whole);
    um_cu_scale_products<D, 2>(st, factor);
#pragma unroll
    for (int c = 0; c < UM_CU_GROUP / 16; c++) {
        const uint32_t p[4] = {um_cu_pack_two(score[2 * c][0], score[2 * c][1]),
                               um_cu_pack_two(score[2 * c][2], score[2 * c][3]),
                               um_cu_pack_two(score[2 * c + 1][0], score[2 * c + 1][1]),
                               um_cu_pack_two(score[2 * c + 1][2], score[2 * c + 1][3])};
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t b[4];
            um_cu_load_transposed(b,
                                  v + (c * 16 + (lane / 8 % 2) * 8 + lane % 8) * (D + PAD) + n * 16 + (lane / 16) * 8);
            um_cu_multiply_16(st.acc[2 * n], p, b[0], b[1]);
            um_cu_multiply_16(st.acc[2 * n + 1], p, b[2], b[3]);
        }
    }
}

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

/* Goes through the groups of keys. Leaves the last piece in `part`, and adds those before it to `all` unless the launch
 * is split. works: some of the warp's rows are there. */
template <int D, int WARPS, bool CONVERT>
static __device__ __forceinline__ void add_keys(um_cu_softmax<D> &all, um_cu_softmax<D> &part, const uint32_t (*q)[4],
                                                const um_cu_flash &f, const um_cu_cta &c, const um_cu_row_pair &rows,
                                                bool works) {
    extern __shared__ uint4 memory[];
    __shared__ um_cu_place place[PLACES][UM_CU_GROUP]; /* of group g: [g % PLACES] */
    constexpr int THREADS = WARPS * WARP, STAGE = 2 * group_size<D> * (int)sizeof(um_bf16);
    const int element = CONVERT ? (int)um_cu_kv_element(f.kv) : (int)sizeof(um_bf16), row_bytes = D * element;
    const int stride = CONVERT ? row_bytes : (D + PAD) * element, stage_bytes = 2 * UM_CU_GROUP * stride;
    char *ring = (char *)memory + (CONVERT ? STAGE : 0); /* [stages][keys, values], behind the converted group */
    const float scale = f.a.scale * 1.44269504f;         /* powers of two are used in place of exp */
    const int32_t from = c.from, to = c.to, ahead = f.stages - 1;
    const int32_t n = to > from ? (to - from + UM_CU_GROUP - 1) / UM_CU_GROUP : 0;
    const int32_t mine = (int32_t)threadIdx.x % UM_CU_GROUP;
    auto find = [&](int32_t g) { return um_cu_find(f.kv, c.page, c.span, c.head, from + g * UM_CU_GROUP + mine, to); };
    for (int32_t g = threadIdx.x / UM_CU_GROUP; g <= ahead; g += THREADS / UM_CU_GROUP) place[g][mine] = find(g);
    __syncthreads();
    for (int32_t g = 0; g < ahead; g++) {
        if (g < n) fetch_group<THREADS>(f.kv, place[g], ring + g * stage_bytes, row_bytes, stride);
        um_cu_copies_commit();
    }
    for (int32_t g = 0, stage = 0, next = ahead; g < n; g++) {
        const int32_t first = from + g * UM_CU_GROUP;
        const bool finds = threadIdx.x < UM_CU_GROUP;
        um_cu_place found;
        if (f.stages == 3) um_cu_copies_wait<1>();
        else um_cu_copies_wait<0>();
        __syncthreads(); /* group g has arrived, and all warps are done with group g - 1 */
        if (g + ahead < n)
            fetch_group<THREADS>(f.kv, place[(g + ahead) % PLACES], ring + next * stage_bytes, row_bytes, stride);
        um_cu_copies_commit();
        if (finds) found = find(g + f.stages);
        const um_bf16 *group = (const um_bf16 *)(ring + stage * stage_bytes);
        if constexpr (CONVERT) {
            convert_group<D, THREADS>((const char *)group, f.kv.type, element, (um_bf16 *)memory);
            group = (const um_bf16 *)memory;
            __syncthreads();
        }
        if (works)
            add_group<D, CONVERT>(part, q, group, place[g % PLACES], c.span, rows, first, scale,
                                  um_cu_is_whole(c, first, c.bounds.least));
        if (finds) place[(g + f.stages) % PLACES][mine] = found;
        next = stage;
        stage = stage + 1 == f.stages ? 0 : stage + 1;
        if (!f.split && (first + UM_CU_GROUP) % UM_CU_PIECE == 0) {
            um_cu_end_piece(part);
            um_cu_merge_piece<D, 2>(all, part);
            um_cu_clear(part);
        }
    }
    um_cu_end_piece(part);
}

/* Writes the result of a CTA: the row, or its last piece if the launch is split. */
template <int D>
static __device__ void write_tile(um_cu_softmax<D> &all, const um_cu_softmax<D> &part, const um_cu_flash &f,
                                  const um_cu_cta &c, const um_cu_row_pair &rows) {
    if (f.split) {
        um_cu_write_part<D>(part, f, c, rows);
        return;
    }
    um_cu_merge_piece<D, 2>(all, part);
    um_cu_write_rows<D>(all, f.a, rows);
}

/* A warp computes 16 rows of the tile. */
template <int D, int WARPS, bool CONVERT>
static __global__ void __launch_bounds__(WARPS *WARP) attend_flash(const um_cu_batch b, const um_cu_flash f) {
    um_cu_cta c;
    um_cu_row_pair rows;
    uint32_t q[D / 16][4];
    um_cu_softmax<D> all, part;
    um_cu_let_next_start();
    const bool has_work = um_cu_find_tile(c, b, f);
    um_cu_wait_for_previous();
    if (!has_work) return;
    const int32_t warp = threadIdx.x / WARP;
    const bool works = warp * ROWS_PER_WARP < c.tile.n * c.group;
    um_cu_find_rows(rows, b, c, warp, ROWS_PER_WARP);
    um_cu_load_queries<D>(q, f.a, rows);
    um_cu_clear(all);
    um_cu_clear(part);
    add_keys<D, WARPS, CONVERT>(all, part, q, f, c, rows, works);
    if (works) write_tile<D>(all, part, f, c, rows);
}

static constexpr int MERGE_WARPS = 4, MERGE_AT_ONCE = 4;

/* Merges the pieces of a row and writes it. A warp computes one row. Grid: tiles, KV heads, groups of rows. */
template <int D> static __global__ void merge_parts(const um_cu_batch b, const um_cu_flash f) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    constexpr int PAIRS = D / 2, EACH = (PAIRS + WARP - 1) / WARP;
    const um_message_tile tile = b.tile[f.first_tile + blockIdx.x];
    const int32_t head = blockIdx.y, group = f.a.n_heads / f.a.n_kv_heads, lane = threadIdx.x % WARP;
    const int32_t row = (int32_t)blockIdx.z * MERGE_WARPS + (int32_t)threadIdx.x / WARP, t = tile.first + row / group;
    if (row >= tile.n * group) return;
    const um_range keys = b.span[tile.span].keys;
    const int32_t begin = keys.start / UM_CU_PIECE,
                  end = (min(keys.end, b.seen_end[t]) + UM_CU_PIECE - 1) / UM_CU_PIECE;
    const float *part =
        f.a.partial + um_cu_part_at(blockIdx.x, f.a.n_kv_heads, head, f.tile_rows, row, f.a.n_pieces, begin, D);
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
            largest = um_cu_common_scale(largest, state[k].x, &by_all, &by_piece);
            sum = um_cu_weighted(sum, by_all, state[k].y, by_piece);
#pragma unroll
            for (int i = 0; i < EACH; i++)
                acc[i] = make_float2(um_cu_weighted(acc[i].x, by_all, v[k][i].x, by_piece),
                                     um_cu_weighted(acc[i].y, by_all, v[k][i].y, by_piece));
        }
    }
    const float inverse = um_cu_inverse(sum);
    uint32_t *out = (uint32_t *)((um_bf16 *)f.a.out + ((size_t)t * f.a.n_heads + head * group + row % group) * D);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (lane + i * WARP < PAIRS)
            out[lane + i * WARP] = um_cu_pack_two(um_cu_scaled(acc[i].x, inverse), um_cu_scaled(acc[i].y, inverse));
}

/* ---- Launch ------------------------------------------------------------------------------------------------------ */

static constexpr int MANY_ROWS = 128, FEW_ROWS = 64, BUSY_CTAS = 128;

static int32_t group_of(const um_cu_heads *h) { return h->n_heads / h->n_kv_heads; }

static bool has_flash(const um_cu_heads *h, um_dtype type) {
    const int32_t d = h->head_dim;
    const bool size = d == 16 || d == 32 || d == 64 || d == 80 || d == 96 || d == 128;
    return type == UM_BF16 && size && !h->window && group_of(h) <= FEW_ROWS;
}

static bool has_wide(const um_cu_heads *h, um_dtype type) {
    return type == UM_BF16 && h->kv_type == UM_BF16 && um_cu_wide_shared(h->head_dim) > 0;
}

/* Returns the rows of a tile. Several query heads share the keys of a tile of more rows. */
static int32_t tile_rows(int32_t group) { return group > 1 ? MANY_ROWS : FEW_ROWS; }

int32_t um_cu_tile_tokens(const um_cu_heads *h, int n, um_dtype type) {
    int32_t flash = INT32_MAX, other = 1;
    for (int i = 0; i < n; i++) {
        const int32_t group = group_of(&h[i]);
        if (has_flash(&h[i], type)) flash = UM_MIN(flash, tile_rows(group) / group);
        else if (has_wide(&h[i], type)) other = UM_MAX(other, um_cu_wide_tile_tokens(group));
        else other = UM_MAX(other, um_cu_exact_tile_tokens(group));
    }
    return flash < INT32_MAX ? flash : other; /* the other kernels compute tiles of any size */
}

size_t um_cu_attention_shared(const um_cu_heads *h, um_dtype type) {
    if (has_flash(h, type)) return 0;
    return has_wide(h, type) ? um_cu_wide_shared(h->head_dim) : um_cu_exact_shared(h->head_dim);
}

/* Returns the stages of the ring: 3 where two small CTAs or one large CTA of that size fit onto an SM, else 2. fixed:
 * the bytes beside the ring. */
static int32_t stages_of(size_t stage_bytes, size_t fixed, int warps) {
    const size_t bytes = fixed + 3 * stage_bytes + PLACES * UM_CU_GROUP * sizeof(um_cu_place) + 1024;
    int device = 0, cta = 0, sm = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&cta, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    cudaDeviceGetAttribute(&sm, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
    return bytes <= (size_t)cta && bytes * (warps > FEW_ROWS / ROWS_PER_WARP ? 1 : 2) <= (size_t)sm ? 3 : 2;
}

/* Starts the kernel for the tiles of a launch. */
template <int D, int WARPS, bool CONVERT>
static void start_flash(const um_cu_batch *b, um_cu_flash f, dim3 grid, cudaStream_t s) {
    const size_t converted = 2 * (size_t)group_size<D> * sizeof(um_bf16);
    const size_t stage = CONVERT ? 2 * (size_t)UM_CU_GROUP * D * um_cu_kv_element(f.kv) : converted;
    const size_t fixed = CONVERT ? converted : 0;
    f.stages = stages_of(stage, fixed, WARPS);
    const size_t bytes = fixed + stage * (size_t)f.stages;
    cudaFuncSetAttribute(attend_flash<D, WARPS, CONVERT>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    um_cu_start(attend_flash<D, WARPS, CONVERT>, grid, dim3(WARPS * WARP), bytes, s, *b, f);
}

template <int D> static void start_tiles(const um_cu_batch *b, const um_cu_flash &f, dim3 grid, cudaStream_t s) {
    constexpr int MANY = MANY_ROWS / ROWS_PER_WARP, FEW = FEW_ROWS / ROWS_PER_WARP;
    const bool many = f.tile_rows == MANY_ROWS, convert = f.kv.type != UM_BF16;
    if (many && convert) start_flash<D, MANY, true>(b, f, grid, s);
    else if (many) start_flash<D, MANY, false>(b, f, grid, s);
    else if (convert) start_flash<D, FEW, true>(b, f, grid, s);
    else start_flash<D, FEW, false>(b, f, grid, s);
}

/* Computes the tiles: at once, or when their pieces don't fit into `partial`, in groups. */
template <int D> static void launch(const um_cu_batch *b, um_cu_flash f, cudaStream_t s) {
    const int32_t n_tiles = b->capacity.n_tiles;
    const unsigned heads = (unsigned)f.a.n_kv_heads, merges = (unsigned)UM_CEIL_DIV(f.tile_rows, MERGE_WARPS);
    const size_t tile_bytes =
        (size_t)f.a.n_kv_heads * (size_t)f.tile_rows * (size_t)f.a.n_pieces * (D + 2) * sizeof(float);
    const int32_t fit = (int32_t)UM_MIN((size_t)n_tiles, f.a.partial_bytes / tile_bytes);
    f.split = f.a.n_pieces > 1 && (int64_t)n_tiles * f.a.n_kv_heads < BUSY_CTAS && fit > 0;
    const int32_t most = f.split ? fit : n_tiles;
    for (f.first_tile = 0; f.first_tile < n_tiles; f.first_tile += most) {
        const unsigned n = (unsigned)UM_MIN(most, n_tiles - f.first_tile);
        start_tiles<D>(b, f, dim3(n, heads, f.split ? (unsigned)f.a.n_pieces : 1), s);
        if (f.split) um_cu_start(merge_parts<D>, dim3(n, heads, merges), dim3(MERGE_WARPS * WARP), 0, s, *b, f);
    }
}

void um_cu_attend(const um_cu_batch *b, const um_cu_attention *a, const um_cu_kv *kv, cudaStream_t s) {
    um_cu_flash f = {};
    if (b->capacity.n_tokens == 0 || b->capacity.n_tiles == 0) return;
    const um_cu_heads heads = {a->n_heads, a->n_kv_heads, a->head_dim, a->window, kv->shape.type};
    if (!has_flash(&heads, a->type)) {
        if (has_wide(&heads, a->type)) um_cu_attend_wide(b, a, kv, s);
        else um_cu_attend_exact(b, a, kv, s);
        return;
    }
    f.a = *a;
    f.kv = um_cu_kv_of(kv, a->layer);
    f.tile_rows = tile_rows(group_of(&heads));
    if (a->stream && um_cu_attend_stream_suits(&f) && um_cu_attend_stream(b, &f, kv, s)) return;
    switch (a->head_dim) {
    case 16: launch<16>(b, f, s); return;
    case 32: launch<32>(b, f, s); return;
    case 64: launch<64>(b, f, s); return;
    case 80: launch<80>(b, f, s); return;
    case 96: launch<96>(b, f, s); return;
    default: launch<128>(b, f, s); return;
    }
}
