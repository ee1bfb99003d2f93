/* blend: sums of all embeddings, each with its probability, without keeping the probabilities: they take the place of
 * the logits of a tile of the vocabulary, and a product adds the tile to the blends. Two kernels for each tile:
 * weights, product.
 *
 * The weights are relative to the largest logit so far, so a blend is scaled when a tile has a larger one. The sum of a
 * row has the order of the ids, and its bits don't depend on the other rows. In a group of ranks each rank makes the
 * sum over its ids, and then all ranks add these sums in the order of the ranks.
 *
 * The product for bf16 uses mma.sync; weights and embeddings stream through a ring in shared memory. Bytes: the
 * embeddings once for each 128 rows, the weights once for each 64 columns. Widths that are not a multiple of 8, and
 * fp32, are computed by plain arithmetic. */
#include "cuda/blend.cuh"
#include "cuda/mma.cuh"
#include "cuda/ranks.cuh"

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

static constexpr int WEIGH_THREADS = 256;

/* Returns the largest logit of the first n subtiles of a row. */
static __device__ float largest_of(const um_cu_partial *p, int32_t n) {
    __shared__ float part[WEIGH_THREADS / WARP_SIZE];
    float most = -INFINITY;
    for (int32_t i = threadIdx.x; i < n; i += WEIGH_THREADS) most = fmaxf(most, p[i].max);
    for (int step = WARP_SIZE / 2; step; step /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
    __syncthreads(); /* all threads have read the result of the call before */
    if (threadIdx.x % WARP_SIZE == 0) part[threadIdx.x / WARP_SIZE] = most;
    __syncthreads();
    for (int i = 0; i < WEIGH_THREADS / WARP_SIZE; i++) most = fmaxf(most, part[i]);
    return most;
}

/* Replaces the logits of a subtile by weights of type E. They begin where the logits began. Grid: subtiles, rows. */
template <typename E>
static __global__ void __launch_bounds__(WEIGH_THREADS)
    weigh_subtile(const um_cu_batch b, const um_cu_blend a, float scale, float cap) {
    __shared__ float z[SUBTILE];
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    const int32_t row = a.first_row + blockIdx.y;
    if (row >= um_cu_header(b)->n_rows) return;
    const um_message_row r = b.row[row];
    if (!r.blend) return;
    const um_cu_partial *p = a.partial + (size_t)row * a.n_subtiles + a.first_subtile;
    const int32_t before = a.subtile - a.first_subtile, now = before + (a.n + SUBTILE - 1) / SUBTILE;
    const float most_before = largest_of(p, before), most = fmaxf(most_before, largest_of(p + before, now - before));
    float *at = a.logits + (size_t)blockIdx.y * UM_CU_VOCAB_TILE + (size_t)blockIdx.x * SUBTILE;
    load_logits(b, r, at, scale, cap, a.tile + blockIdx.x * SUBTILE, a.end, z);
    const float rate = rate_of(r.how);
    for (int i = threadIdx.x; i < SUBTILE; i += WEIGH_THREADS)
        ((E *)at)[i] = um_cu_operand<E>(z[i] > -INFINITY ? expf((z[i] - most) * rate) : 0);
    if (blockIdx.x == 0 && threadIdx.x == 0)
        a.factor[row] = most_before > -INFINITY ? expf((most_before - most) * rate) : 0;
}

/* ---- The product ------------------------------------------------------------------------------------------------- */

/* The product of a tile. */
struct blend_product {
    const void *weight;  /* [n_rows, UM_CU_VOCAB_TILE floats] as weigh_subtile leaves them */
    const void *embed;   /* [n, H] rows of the tile */
    const float *factor; /* [rows of the batch] */
    float *blend;        /* [n_blends, H], or with by_row [rows of the batch, H] */
    bool by_row;
    int32_t first_row, n_rows, n, H;
};

/* Returns the weight of the tile's id k in a row. */
template <typename E> static __device__ __forceinline__ const E *weight_at(const blend_product &p, int row, int32_t k) {
    const float *subtile = (const float *)p.weight + (size_t)row * UM_CU_VOCAB_TILE + (size_t)(k / SUBTILE) * SUBTILE;
    return (const E *)subtile + k % SUBTILE;
}

/* Returns the blend of a row of the product; NULL: it has none. */
static __device__ __forceinline__ float *blend_of(const um_cu_batch &b, const blend_product &p, int row) {
    const int32_t at = p.first_row + row;
    if (row >= p.n_rows || at >= um_cu_header(b)->n_rows || !b.row[at].blend) return NULL;
    return p.blend + (size_t)(p.by_row ? at : b.row[at].blend - 1) * p.H;
}

/* Returns an element of a blend on the scale of this tile. The blend before the first tile may contain anything. */
static __device__ __forceinline__ float scaled(const float *blend, int32_t i, float factor) {
    return factor == 0 ? 0 : blend[i] * factor;
}

/* A CTA has 8 warps and computes 128 rows and 64 columns; a warp has 16 of the rows. Rows of a stage have 64 elements
 * in 8 pieces of 16 bytes. Piece p of row r lies at place p ^ (r & 7), so that there are no bank conflicts. */
enum {
    THREADS = 256,
    ROWS = 128,
    COLUMNS = 64,
    DEPTH = 64, /* ids of a stage */
    STAGES = 3,
    ROW_BYTES = 128,
    EMBED_AT = ROWS * ROW_BYTES, /* the embeddings of a stage follow its weights */
    STAGE_BYTES = EMBED_AT + DEPTH * ROW_BYTES,
    RING_BYTES = STAGES * STAGE_BYTES
};

static __device__ __forceinline__ uint32_t piece_at(uint32_t rows, int row, int piece) {
    return rows + row * ROW_BYTES + ((piece ^ (row & 7)) << 4);
}

/* Starts the copies of the ids [k, k + DEPTH) into a stage. there: bit i says that the row threadIdx.x / 8 + 32 i has a
 * blend. */
static __device__ __forceinline__ void copy_stage(const blend_product &p, int first_row, int column, int32_t k,
                                                  uint32_t there, uint32_t stage) {
    const int row = threadIdx.x / 8, piece = threadIdx.x % 8;
    const bool has_column = column + piece * 8 < p.H;
#pragma unroll
    for (int i = 0; i < ROWS / 32; i++)
        um_cu_copy_async(piece_at(stage, row + 32 * i, piece),
                         weight_at<um_bf16>(p, there >> i & 1 ? first_row + row + 32 * i : 0, k + piece * 8),
                         there >> i & 1);
#pragma unroll
    for (int i = 0; i < DEPTH / 32; i++) {
        const int32_t id = k + row + 32 * i;
        const bool ok = has_column && id < p.n;
        um_cu_copy_async(piece_at(stage + EMBED_AT, row + 32 * i, piece),
                         (const um_bf16 *)p.embed + (ok ? (size_t)id * p.H + column + piece * 8 : 0), ok);
    }
    um_cu_copies_commit();
}

static __device__ __forceinline__ void multiply_stage(uint32_t stage, float sum[COLUMNS / 8][4]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int c = 0; c < DEPTH / 16; c++) {
        uint32_t w[4], e[4];
        um_cu_load_matrix(w, piece_at(stage, warp * 16 + lane % 16, 2 * c + lane / 16));
#pragma unroll
        for (int n = 0; n < COLUMNS / 16; n++) {
            um_cu_load_transposed(e,
                                  piece_at(stage + EMBED_AT, c * 16 + lane / 8 % 2 * 8 + lane % 8, 2 * n + lane / 16));
            um_cu_multiply_16(sum[2 * n], w, e[0], e[1]);
            um_cu_multiply_16(sum[2 * n + 1], w, e[2], e[3]);
        }
    }
}

/* Grid: groups of COLUMNS columns, groups of ROWS rows. */
static __global__ void __launch_bounds__(THREADS) multiply_bf16(const um_cu_batch b, const blend_product p) {
    extern __shared__ __align__(128) char ring[];
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(ring);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = blockIdx.y * ROWS;
    const int column = blockIdx.x * COLUMNS, n_steps = (p.n + DEPTH - 1) / DEPTH;
    uint32_t there = 0;
    float *to[2], factor[2], sum[COLUMNS / 8][4];
    for (int i = 0; i < ROWS / 32; i++)
        there |= (uint32_t)(blend_of(b, p, first + (int)threadIdx.x / 8 + 32 * i) != NULL) << i;
    if (!__syncthreads_or((int)there)) return;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int row = first + warp * 16 + lane / 4 + 8 * r;
        to[r] = blend_of(b, p, row);
        factor[r] = to[r] ? p.factor[p.first_row + row] : 0;
    }
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int at = column + n * 8 + lane % 4 * 2 + i % 2;
            sum[n][i] = at < p.H ? scaled(to[i / 2], at, factor[i / 2]) : 0;
        }
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < n_steps) copy_stage(p, first, column, i * DEPTH, there, base + i * STAGE_BYTES);
        else um_cu_copies_commit();
    }
    for (int i = 0; i < n_steps; i++) {
        um_cu_copies_wait<STAGES - 2>();
        __syncthreads(); /* step i has arrived for all warps, and all have finished step i - 1 */
        const int next = i + STAGES - 1;
        if (next < n_steps) copy_stage(p, first, column, next * DEPTH, there, base + next % STAGES * STAGE_BYTES);
        else um_cu_copies_commit();
        multiply_stage(base + i % STAGES * STAGE_BYTES, sum);
    }
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int at = column + n * 8 + lane % 4 * 2 + i % 2;
            if (to[i / 2] && at < p.H) to[i / 2][at] = sum[n][i];
        }
}

/* A CTA has 256 threads and computes 16 rows and 64 columns; a thread has the columns of its lane and the next half, of
 * two rows. */
enum { PLAIN_ROWS = 16, PLAIN_DEPTH = 32 };

template <typename E>
static __global__ void __launch_bounds__(THREADS) multiply_plain(const um_cu_batch b, const blend_product p) {
    __shared__ float w[PLAIN_ROWS][PLAIN_DEPTH + 1], e[PLAIN_DEPTH][COLUMNS + 1];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = blockIdx.y * PLAIN_ROWS;
    const int column = blockIdx.x * COLUMNS;
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    float *to[2], sum[2][2];
    for (int r = 0; r < 2; r++) {
        const int row = first + 2 * warp + r;
        to[r] = blend_of(b, p, row);
        const float factor = to[r] ? p.factor[p.first_row + row] : 0;
        for (int c = 0; c < 2; c++) {
            const int at = column + lane + 32 * c;
            sum[r][c] = at < p.H ? scaled(to[r], at, factor) : 0;
        }
    }
    if (!__syncthreads_or(to[0] || to[1])) return;
    for (int32_t k = 0; k < p.n; k += PLAIN_DEPTH) {
        __syncthreads();
        for (int r = 0; r < 2; r++)
            w[2 * warp + r][lane] = to[r] ? um_cu_float(*weight_at<E>(p, first + 2 * warp + r, k + lane)) : 0;
        for (int i = threadIdx.x; i < PLAIN_DEPTH * COLUMNS; i += THREADS) {
            const int id = k + i / COLUMNS, at = column + i % COLUMNS;
            e[i / COLUMNS][i % COLUMNS] =
                id < p.n && at < p.H ? um_cu_float(((const E *)p.embed)[(size_t)id * p.H + at]) : 0;
        }
        __syncthreads();
#pragma unroll 8
        for (int i = 0; i < PLAIN_DEPTH; i++)
            for (int r = 0; r < 2; r++)
                for (int c = 0; c < 2; c++) sum[r][c] = fmaf(w[2 * warp + r][i], e[i][lane + 32 * c], sum[r][c]);
    }
    for (int r = 0; r < 2; r++)
        for (int c = 0; c < 2; c++)
            if (to[r] && column + lane + 32 * c < p.H) to[r][column + lane + 32 * c] = sum[r][c];
}

/* ---- The end ----------------------------------------------------------------------------------------------------- */

/* Grid: rows. */
static __global__ void scale_blends(const um_cu_batch b, const float *total, float scale, int32_t H, float *blend) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    const int32_t row = blockIdx.x;
    if (row >= um_cu_header(b)->n_rows || !b.row[row].blend) return;
    float *x = blend + (size_t)(b.row[row].blend - 1) * H;
    const float by = total[row] > 0 ? __fdiv_rn(scale, total[row]) : 0;
    for (int32_t i = threadIdx.x; i < H; i += blockDim.x) x[i] *= by;
}

/* ---- Ranks ------------------------------------------------------------------------------------------------------- */

/* Grid: rows; one warp each. */
static __global__ void total_rows(const um_cu_batch b, const um_cu_partial *partial, int32_t n, int32_t n_subtiles,
                                  float *most, float *total) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    const int32_t row = blockIdx.x;
    if (row >= um_cu_header(b)->n_rows || !b.row[row].blend || threadIdx.x) return;
    const um_cu_partial *p = partial + (size_t)row * n_subtiles;
    const double rate = rate_of(b.row[row].how);
    float max = -INFINITY;
    double sum = 0;
    for (int32_t i = 0; i < n; i++) max = fmaxf(max, p[i].max);
    for (int32_t i = 0; i < n; i++)
        if (p[i].best >= 0) sum += p[i].kept * exp(((double)p[i].max - max) * rate);
    most[row] = max;
    total[row] = (float)sum;
}

struct rank_parts {
    um_cu_meeting at;
    um_cu_blend_part of[UM_RANKS_MAX];
};

/* Computes the factors by [n] of a row's parts. */
static __device__ void factors_of(const rank_parts &p, int32_t row, float rate, float scale, float by[UM_RANKS_MAX]) {
    __shared__ float most_of[UM_RANKS_MAX], total_of[UM_RANKS_MAX];
    const int r = threadIdx.x;
    __syncthreads(); /* all threads have read those of the row before */
    if (r < p.at.n) {
        most_of[r] = um_cu_load_peer(p.of[r].most + row);
        total_of[r] = um_cu_load_peer(p.of[r].total + row);
    }
    __syncthreads();
    float most = -INFINITY, total = 0;
    for (int k = 0; k < p.at.n; k++) most = fmaxf(most, most_of[k]);
    for (int k = 0; k < p.at.n; k++) {
        by[k] = most_of[k] > -INFINITY ? expf((most_of[k] - most) * rate) : 0;
        total += total_of[k] * by[k];
    }
    const float all = total > 0 ? __fdiv_rn(scale, total) : 0;
    for (int k = 0; k < p.at.n; k++) by[k] *= all;
}

/* A CTA adds the parts of some rows. */
static __global__ void __launch_bounds__(THREADS)
    sum_parts(const um_cu_batch b, const rank_parts p, float scale, int32_t H, float *blend) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    um_cu_meet(p.at);
    for (int32_t row = blockIdx.x; row < um_cu_header(b)->n_rows; row += gridDim.x) {
        const um_message_row r = b.row[row];
        float by[UM_RANKS_MAX];
        if (!r.blend) continue;
        factors_of(p, row, rate_of(r.how), scale, by);
        for (int32_t i = threadIdx.x; i < H; i += THREADS) {
            float sum = 0;
            for (int k = 0; k < p.at.n; k++)
                if (by[k] > 0) sum = fmaf(um_cu_load_peer(p.of[k].blend + (size_t)row * H + i), by[k], sum);
            blend[(size_t)(r.blend - 1) * H + i] = sum;
        }
    }
}

void um_cu_blend_total(const um_cu_batch *b, const um_cu_partial *partial, int32_t n, int32_t n_subtiles, float *most,
                       float *total, cudaStream_t s) {
    um_cu_start(total_rows, dim3((unsigned)b->capacity.n_rows), dim3(WARP_SIZE), 0, s, *b, partial, n, n_subtiles, most,
                total);
}

size_t um_cu_blend_part_bytes(int32_t n_rows, int32_t H) {
    const size_t floats = um_mul((size_t)n_rows, (size_t)H + 2);
    return UM_CEIL_DIV(floats, (size_t)4) * 4 * sizeof(float);
}

void um_cu_blend_sum(const um_cu_batch *b, const um_cu_head *a, const um_cu_blend_part *part, cudaStream_t s) {
    enum { BLOCKS_MAX = 264 };
    static_assert((int)BLOCKS_MAX <= (int)UM_CU_MEET_BLOCKS, "all blocks can meet");
    rank_parts p = {a->at, {}};
    memcpy(p.of, part, (size_t)a->at.n * sizeof *part);
    if (a->at.comm)
        um_cu_comm_share(a->at.comm, (void *)part[0].blend, um_cu_blend_part_bytes(b->capacity.n_rows, a->embed->in),
                         s);
    um_cu_start(sum_parts, dim3((unsigned)UM_MIN(b->capacity.n_rows, (int32_t)BLOCKS_MAX)), dim3(THREADS), 0, s, *b, p,
                a->embed_scale, a->embed->in, a->blend);
}

/* ---- Launch ------------------------------------------------------------------------------------------------------ */

template <typename E> static void add_tile(const um_cu_batch *b, const um_cu_blend *a, cudaStream_t s) {
    const um_cu_matrix *embed = a->head->embed;
    const int32_t H = embed->in;
    const E *rows = (const E *)embed->data + (size_t)a->tile * (size_t)H;
    const bool by_row = a->head->at.n > 1;
    float *blend = by_row ? a->head->blend_part[a->head->at.index] : a->head->blend;
    const blend_product p = {a->logits, rows, a->factor, blend, by_row, a->first_row, a->n_rows, a->n, H};
    const dim3 subtiles((unsigned)UM_CEIL_DIV(a->n, SUBTILE), (unsigned)a->n_rows);
    const unsigned columns = (unsigned)UM_CEIL_DIV(H, COLUMNS);
    um_cu_start(weigh_subtile<E>, subtiles, dim3(WEIGH_THREADS), 0, s, *b, *a, a->head->scale, a->head->cap);
    if (sizeof(E) == sizeof(um_bf16) && H % 8 == 0) {
        cudaFuncSetAttribute(multiply_bf16, cudaFuncAttributeMaxDynamicSharedMemorySize, RING_BYTES);
        um_cu_start(multiply_bf16, dim3(columns, (unsigned)UM_CEIL_DIV(a->n_rows, ROWS)), dim3(THREADS), RING_BYTES, s,
                    *b, p);
    } else
        um_cu_start(multiply_plain<E>, dim3(columns, (unsigned)UM_CEIL_DIV(a->n_rows, PLAIN_ROWS)), dim3(THREADS), 0, s,
                    *b, p);
}

void um_cu_blend_add(const um_cu_batch *b, const um_cu_blend *a, cudaStream_t s) {
    if (a->head->embed->type == UM_BF16) add_tile<um_bf16>(b, a, s);
    else add_tile<float>(b, a, s);
}

void um_cu_blend_end(const um_cu_batch *b, const um_cu_head *a, const float *total, cudaStream_t s) {
    um_cu_start(scale_blends, dim3((unsigned)b->capacity.n_rows), dim3(256), 0, s, *b, total, a->embed_scale,
                a->embed->in, a->blend);
}
