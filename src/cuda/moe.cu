/* Mixture of experts. Routing lists the tokens of each expert (route.cuh). A product kernel runs twice: for gate_up
 * with act(gate) * up, and for down. A CTA computes a tile of an expert's rows for a chunk of the expert's tokens, and
 * ends at once when the expert has no tokens. The outputs of the pairs, times their weights, are stored as operands.
 * norm.cu adds them in ascending order of the experts.
 *
 * bf16 products use mma.sync with the weights as the first operand; weights and tokens stream through a ring in shared
 * memory. Their widths must be multiples of 8. Products of e4m3 do the same, with widths that are multiples of 16.
 * Hopper GPUs convert the operands of such an mma.sync to fp16, so its sums are as exact as those of bf16. On Hopper
 * GPUs moe_tiles.cu computes the products of bf16 of long lists, with the same bits. All other products are computed by
 * plain fp32 arithmetic in the order of k. An output's order of sums depends only on the width, so its bits do not
 * depend on the list or the chunk. */
#include "cuda/fp8.cuh"
#include "cuda/mma.cuh"
#include "cuda/moe.cuh"
#include "cuda/route.cuh"

typedef um_cu_expert_product product;

static __device__ __forceinline__ float gated(const product &p, float gate, float up) {
    return um_cu_activate(p.act, gate) * up;
}

/* ---- bf16 and e4m3 ----------------------------------------------------------------------------------------------- */

/* A CTA has 4 warps and 128 rows of weights. Warp w has rows [16 w, 16 w + 16) of both halves of 64 rows. With gate and
 * up, the halves are gate rows and the up rows of the same numbers.
 *
 * A row of a stage has 64 elements of bf16 or 128 of e4m3, in 8 pieces of 16 bytes. Piece p of row r lies at place p ^
 * (r & 7), so that neither copies nor ldmatrix have bank conflicts. */
enum {
    THREADS = 128,
    HALF = 64,  /* rows of a half */
    CHUNK = 64, /* most tokens of a tile */
    STAGES = 3,
    ROW_BYTES = 128,             /* of a row in a stage */
    X_AT = 2 * HALF * ROW_BYTES, /* the tokens of a stage follow its weights */
    STAGE_BYTES = X_AT + CHUNK * ROW_BYTES,
    RING_BYTES = STAGES * STAGE_BYTES
};

template <bool F8> static constexpr int size_of = F8 ? 1 : 2; /* bytes of an element */

static __device__ __forceinline__ void load2(uint32_t v[2], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];\n"
                 : "=r"(v[0]), "=r"(v[1])
                 : "r"(from)
                 : "memory");
}
/* Multiplies 16 elements of bf16, or with F8 32 of e4m3. */
template <bool F8>
static __device__ __forceinline__ void multiply(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    if constexpr (F8) {
#if __CUDA_ARCH__ >= 890
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};\n"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
        return;
    }
    um_cu_multiply_16(c, a, b[0], b[1]);
}

/* Returns the address of a piece of 16 bytes in rows of a stage. */
static __device__ __forceinline__ uint32_t piece_at(uint32_t rows, int row, int piece) {
    return rows + row * ROW_BYTES + ((piece ^ (row & 7)) << 4);
}

/* The tile of a CTA. */
typedef struct tile {
    const char *w;       /* the expert's weights */
    const float *scale;  /* of their rows, with F8 */
    const float *block;  /* factors of their blocks, with F8; NULL: none */
    const int32_t *pair; /* [n_pairs] pairs of the chunk */
    int32_t n_pairs;
    int32_t first; /* first row of the first half */
    uint32_t ring; /* address in shared memory */
} tile;

/* Starts the copy of the weights of a step of k into a stage. Each thread copies a piece of 8 rows, 16 rows apart. */
template <bool GATED, bool F8>
static __device__ __forceinline__ void copy_weights(const product &p, const tile &t, int step, uint32_t stage) {
    const int row = threadIdx.x / 8, piece = threadIdx.x % 8, at = step * ROW_BYTES + piece * 16;
    const int bytes = p.in * size_of<F8>; /* of a row */
    const uint32_t to = piece_at(stage, row, piece);
    const char *from[2];
    from[0] = t.w + (size_t)(t.first + row) * bytes + at;
    from[1] = from[0] + (size_t)(GATED ? p.n : HALF) * bytes;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int r = t.first + row + 16 * (GATED ? i % 4 : i);
        um_cu_copy16(to + 16 * i * ROW_BYTES, from[i / 4] + (size_t)(i % 4) * 16 * bytes, at < bytes && r < p.n);
    }
}

/* Starts the copy of N8 * 8 tokens; row[i] is the input of the token threadIdx.x / 8 + 16 i. */
template <int N8, bool F8>
static __device__ __forceinline__ void copy_tokens(const product &p, const tile &t, const char *const row[4], int step,
                                                   uint32_t stage) {
    const int first = threadIdx.x / 8, piece = threadIdx.x % 8, at = step * ROW_BYTES + piece * 16;
    const uint32_t to = piece_at(stage + X_AT, first, piece);
#pragma unroll
    for (int i = 0; i < UM_CEIL_DIV(N8, 2); i++)
        if (first + 16 * i < N8 * 8)
            um_cu_copy16(to + 16 * i * ROW_BYTES, row[i] + at, at < p.in * size_of<F8> && first + 16 * i < t.n_pairs);
}

/* Adds the products of a stage. sum[h][j] belongs to half h of the rows and tokens [8 j, 8 j + 8). The addresses of the
 * steps of 32 bytes in k differ in two bits. */
template <int N8, bool F8> static __device__ __forceinline__ void multiply_stage(uint32_t stage, float sum[2][N8][4]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t w_at = piece_at(stage, warp * 16 + lane % 16, lane / 16);
    const uint32_t x_at = piece_at(stage + X_AT, lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
    for (int kk = 0; kk < ROW_BYTES / 32; kk++) {
        uint32_t w[2][4], x[2 * N8];
#pragma unroll
        for (int h = 0; h < 2; h++) um_cu_load_matrix(w[h], (w_at ^ (kk * 32)) + h * HALF * ROW_BYTES);
        if constexpr (N8 == 1) load2(x, x_at ^ (kk * 32));
        else
#pragma unroll
            for (int j = 0; j < N8; j += 2) um_cu_load_matrix(x + 2 * j, (x_at ^ (kk * 32)) + j * 8 * ROW_BYTES);
#pragma unroll
        for (int j = 0; j < N8; j++)
#pragma unroll
            for (int h = 0; h < 2; h++) multiply<F8>(sum[h][j], w[h], x + 2 * j);
    }
}

/* The factors of the blocks of a warp's rows in both halves of a tile. The 16 rows of a half are in one row of blocks.
 */
struct block_factors {
    const float *next[2]; /* of the next columns */
    float now[2];         /* by which the sums must be multiplied */
};

template <bool GATED>
static __device__ __forceinline__ void find_factors(const product &p, const tile &t, block_factors *f) {
    const int last = ((GATED ? 2 : 1) * p.n - 1) / UM_CU_BLOCK, first = t.first + threadIdx.x / 32 * 16;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = first + h * (GATED ? p.n : HALF);
        f->next[h] = t.block + (size_t)min(row / UM_CU_BLOCK, last) * um_cu_block_stride(p.in);
    }
}

/* Multiplies the sums by the factor of the block of columns before, and divides them by that of block `step`, which the
 * next products lack, too. A block of zeros has the factor 0, which is replaced. */
template <int N8>
static __device__ __forceinline__ void change_factors(block_factors *f, int step, float sum[2][N8][4]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float read = f->next[h][step], factor = read != 0 ? read : 1, by = f->now[h] / factor;
        f->now[h] = factor;
        if (step == 0) continue;
#pragma unroll
        for (int j = 0; j < N8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) sum[h][j][i] *= by;
    }
}

template <int N8> static __device__ __forceinline__ void apply_factors(const block_factors &f, float sum[2][N8][4]) {
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < N8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) sum[h][j][i] *= f.now[h];
}

/* Stores a tile. A thread has two adjacent tokens of the rows lane / 4 and lane / 4 + 8 of its warp's 16. */
template <bool GATED, int N8, bool F8>
static __device__ __forceinline__ void store_tile(const product &p, const tile &t, const float sum[2][N8][4]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = t.first + warp * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < N8 * 2; i++) {
        const int token = i / 2 * 8 + lane % 4 * 2 + i % 2;
        if (token >= t.n_pairs) continue;
        const int32_t pair = t.pair[token];
        const float x_scale = F8 ? p.x_scale[GATED ? pair / p.top_k : pair] : 1, weight = GATED ? 1 : p.weight[pair];
        um_bf16 *y = (um_bf16 *)p.y + (size_t)pair * p.n;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float a = sum[0][i / 2][2 * r + i % 2], b = sum[1][i / 2][2 * r + i % 2];
            const int to = row + 8 * r, behind = to + (GATED ? p.n : HALF);
            if (F8 && to < p.n) {
                a *= x_scale * t.scale[to];
                if (GATED || behind < p.n) b *= x_scale * t.scale[behind];
            }
            if (GATED) {
                if (to < p.n) y[to] = __float2bfloat16_rn(gated(p, a, b));
                continue;
            }
            if (to < p.n) y[to] = __float2bfloat16_rn(a * weight);
            if (behind < p.n) y[behind] = __float2bfloat16_rn(b * weight);
        }
    }
}

/* Computes a tile for up to N8 * 8 pairs. Weights do not depend on the list, so their copies start first. */
template <bool GATED, int N8, bool F8, bool BLOCKS>
static __device__ __forceinline__ void compute_tile(const product &p, const tile &t) {
    const int n_steps = UM_CEIL_DIV(p.in * size_of<F8>, ROW_BYTES);
    const char *row[4];
    float sum[2][N8][4] = {};
    block_factors factors = {};
    if (BLOCKS && t.block) find_factors<GATED>(p, t, &factors);
    __syncthreads(); /* the tile before has read its last stage */
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++)
        if (i < n_steps) copy_weights<GATED, F8>(p, t, i, t.ring + i * STAGE_BYTES);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int token = threadIdx.x / 8 + 16 * i;
        row[i] = (const char *)p.x;
        if (token < t.n_pairs) row[i] += (size_t)(GATED ? t.pair[token] / p.top_k : t.pair[token]) * p.in * size_of<F8>;
    }
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < n_steps) copy_tokens<N8, F8>(p, t, row, i, t.ring + i * STAGE_BYTES);
        um_cu_copies_commit();
    }
    for (int i = 0, now = 0, next = STAGES - 1; i < n_steps; i++) {
        um_cu_copies_wait<STAGES - 2>();
        __syncthreads(); /* step i has arrived for all warps, and all have finished step i - 1 */
        if (i + STAGES - 1 < n_steps) {
            copy_weights<GATED, F8>(p, t, i + STAGES - 1, t.ring + next * STAGE_BYTES);
            copy_tokens<N8, F8>(p, t, row, i + STAGES - 1, t.ring + next * STAGE_BYTES);
        }
        um_cu_copies_commit();
        if (BLOCKS && t.block) change_factors<N8>(&factors, i, sum);
        multiply_stage<N8, F8>(t.ring + now * STAGE_BYTES, sum);
        now = now + 1 == STAGES ? 0 : now + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
    if (BLOCKS && t.block) apply_factors<N8>(factors, sum);
    store_tile<GATED, N8, F8>(p, t, sum);
}

/* Grid: chunks of tokens, tiles of rows, experts. Chunks of the same weights run at the same time, so that the weights
 * are read from HBM once. An expert with more chunks than the grid has a loop over them. */
template <bool GATED, bool F8, bool BLOCKS> static __global__ void __launch_bounds__(THREADS, 3) mma_kernel(product p) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    extern __shared__ __align__(128) char ring[];
    const int e = blockIdx.z, count = p.count[e];
    tile t;
    t.w = (const char *)p.w[e];
    t.scale = F8 ? p.w_scale[e].row : NULL;
    t.block = BLOCKS ? p.w_scale[e].block : NULL;
    t.first = blockIdx.y * (GATED ? HALF : 2 * HALF);
    t.ring = (uint32_t)__cvta_generic_to_shared(ring);
    for (int from = blockIdx.x * CHUNK; from < count; from += gridDim.x * CHUNK) {
        t.n_pairs = UM_MIN(count - from, CHUNK);
        t.pair = p.pair + (size_t)e * p.n_tokens + from;
        if (t.n_pairs <= 8) compute_tile<GATED, 1, F8, BLOCKS>(p, t);
        else if (t.n_pairs <= 16) compute_tile<GATED, 2, F8, BLOCKS>(p, t);
        else if (t.n_pairs <= 32) compute_tile<GATED, 4, F8, BLOCKS>(p, t);
        else compute_tile<GATED, 8, F8, BLOCKS>(p, t);
    }
}

/* ---- Plain arithmetic -------------------------------------------------------------------------------------------- */

/* A CTA has 128 threads, 64 rows of weights (with gate and up 32 of each) and 32 tokens. A thread has the rows r,
 * r + 16, r + 32, r + 48 and the tokens t, t + 8, t + 16, t + 24. */
enum { PLAIN_ROWS = 64, PLAIN_CHUNK = 32, PLAIN_WIDTH = 32 };

typedef struct plain_stage {
    float w[PLAIN_ROWS][PLAIN_WIDTH + 1], x[PLAIN_CHUNK][PLAIN_WIDTH + 1];
} plain_stage;

/* Fills a stage with the elements [k, k + PLAIN_WIDTH) of the rows and tokens; zeros beyond them. */
template <typename E, bool GATED>
static __device__ void fill_stage(const product &p, const E *w, const int32_t *pair, int n_pairs, int first, int k,
                                  plain_stage *s) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int r = warp; r < PLAIN_ROWS; r += THREADS / 32) {
        const int of = first + (GATED ? r % (PLAIN_ROWS / 2) : r);
        const size_t row = of + (GATED && r >= PLAIN_ROWS / 2 ? p.n : 0);
        s->w[r][lane] = of < p.n && k + lane < p.in ? um_cu_float(w[row * p.in + k + lane]) : 0;
    }
    for (int t = warp; t < UM_CEIL_DIV(n_pairs, 8) * 8; t += THREADS / 32) {
        s->x[t][lane] = 0;
        if (t >= n_pairs || k + lane >= p.in) continue;
        const size_t row = GATED ? pair[t] / p.top_k : pair[t];
        s->x[t][lane] = um_cu_float(((const E *)p.x)[row * p.in + k + lane]);
    }
}

static __device__ __forceinline__ void add_stage(const plain_stage *s, int n_pairs, float sum[4][4]) {
    const int r = threadIdx.x % 16, t = threadIdx.x / 16;
#pragma unroll 8
    for (int k = 0; k < PLAIN_WIDTH; k++) {
        float w[4];
#pragma unroll
        for (int i = 0; i < 4; i++) w[i] = s->w[r + 16 * i][k];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (8 * j >= n_pairs) continue;
            const float x = s->x[t + 8 * j][k];
#pragma unroll
            for (int i = 0; i < 4; i++) sum[i][j] = fmaf(w[i], x, sum[i][j]);
        }
    }
}

template <typename E, bool GATED>
static __device__ void store_plain(const product &p, const int32_t *pair, int n_pairs, int first,
                                   const float sum[4][4]) {
    const int r = first + threadIdx.x % 16;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int t = threadIdx.x / 16 + 8 * j;
        if (t >= n_pairs) continue;
        const float weight = GATED ? 1 : p.weight[pair[t]];
        E *y = (E *)p.y + (size_t)pair[t] * p.n;
#pragma unroll
        for (int i = 0; i < (GATED ? 2 : 4); i++) {
            const int to = r + 16 * i;
            if (to >= p.n) continue;
            y[to] = um_cu_operand<E>(GATED ? gated(p, sum[i][j], sum[i + (GATED ? 2 : 0)][j]) : sum[i][j] * weight);
        }
    }
}

template <typename E, bool GATED> static __global__ void __launch_bounds__(THREADS) plain_kernel(product p) {
    __shared__ plain_stage s;
    const int e = blockIdx.z, count = p.count[e], first = blockIdx.y * (GATED ? PLAIN_ROWS / 2 : PLAIN_ROWS);
    const E *w = (const E *)p.w[e];
    for (int from = blockIdx.x * PLAIN_CHUNK; from < count; from += gridDim.x * PLAIN_CHUNK) {
        const int n_pairs = UM_MIN(count - from, PLAIN_CHUNK);
        const int32_t *pair = p.pair + (size_t)e * p.n_tokens + from;
        float sum[4][4] = {};
        for (int k = 0; k < p.in; k += PLAIN_WIDTH) {
            __syncthreads();
            fill_stage<E, GATED>(p, w, pair, n_pairs, first, k, &s);
            __syncthreads();
            add_stage(&s, n_pairs, sum);
        }
        store_plain<E, GATED>(p, pair, n_pairs, first, sum);
    }
}

/* ---- The operation ----------------------------------------------------------------------------------------------- */

/* Returns the number of chunks in the grid: twice the mean of an expert's chunks. Experts with more chunks use a loop.
 */
static unsigned grid_chunks(int32_t n_tokens, const um_expert_route *r, int chunk) {
    const int64_t twice = 2 * (int64_t)n_tokens * r->top_k / r->n_experts;
    return (unsigned)UM_MAX(1, UM_MIN(UM_CEIL_DIV(twice, chunk), UM_CEIL_DIV(n_tokens, chunk)));
}

template <bool GATED, bool F8, bool BLOCKS = false>
static void start_mma(const product *p, const um_cu_moe *a, cudaStream_t s) {
    const dim3 grid(grid_chunks(p->n_tokens, &a->route, CHUNK), UM_CEIL_DIV(p->n, GATED ? HALF : 2 * HALF), a->n_own);
    const auto kernel = mma_kernel<GATED, F8, BLOCKS>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, RING_BYTES);
    um_cu_start(kernel, grid, dim3(THREADS), RING_BYTES, s, *p);
}

template <typename E, bool GATED> static void start_plain(const product *p, const um_cu_moe *a, cudaStream_t s) {
    const dim3 grid(grid_chunks(p->n_tokens, &a->route, PLAIN_CHUNK),
                    UM_CEIL_DIV(p->n, GATED ? PLAIN_ROWS / 2 : PLAIN_ROWS), a->n_own);
    plain_kernel<E, GATED><<<grid, THREADS, 0, s>>>(*p);
}

/* Returns whether the mean list has as many pairs as the kernels for long lists need to be the faster ones. */
static bool has_long_lists(const product *p, const um_expert_route *r) {
    enum { PAIRS_MIN = 32 };
    return (int64_t)p->n_tokens * p->top_k >= (int64_t)PAIRS_MIN * r->n_experts;
}

template <bool GATED> static void start_product(const product *p, const um_cu_moe *a, cudaStream_t s) {
    if (p->w_scale && p->in_blocks) start_mma<GATED, true, true>(p, a, s);
    else if (p->w_scale) start_mma<GATED, true>(p, a, s);
    else if (a->type == UM_F32) start_plain<float, GATED>(p, a, s);
    else if (p->in % 8) start_plain<um_bf16, GATED>(p, a, s);
    else if (has_long_lists(p, &a->route) && um_cu_expert_tiles_suit(p, a->n_own))
        um_cu_expert_tiles(p, a->n_own, GATED, s);
    else start_mma<GATED, false>(p, a, s);
}

typedef struct parts {
    um_cu_routes routes;
    void *gated;       /* [pairs, ff] operands */
    um_cu_coded coded; /* the same in e4m3 */
    void *out;         /* [pairs, H] operands: outputs of the experts, times their weights */
} parts;

/* Returns the next part of the scratch and advances *at. */
static void *part_at(char *scratch, size_t *at, size_t bytes) {
    void *p = scratch + *at;
    *at += UM_CEIL_DIV(bytes, 256) * 256;
    return p;
}

/* Divides the scratch. Returns its bytes. */
static size_t divide(const um_expert_route *r, int32_t n_tokens, int32_t hidden, int32_t n_ff, um_dtype type,
                     bool codes, void *scratch, parts *p) {
    const size_t T = (size_t)n_tokens, E = (size_t)r->n_experts, pairs = T * (size_t)r->top_k;
    char *base = (char *)scratch;
    size_t at = 0;
    p->routes.chosen = (uint32_t *)part_at(base, &at, 4 * T * UM_CEIL_DIV(E, 32));
    p->routes.weight = (float *)part_at(base, &at, 4 * pairs);
    p->routes.pool = (uint32_t *)part_at(base, &at, r->capacity ? 4 * T * UM_CEIL_DIV(E, 32) : 0);
    p->routes.count = (int32_t *)part_at(base, &at, 4 * E);
    p->routes.pair = (int32_t *)part_at(base, &at, 4 * E * T);
    p->gated = part_at(base, &at, pairs * (size_t)n_ff * um_dtype_size(type));
    p->coded.code = (unsigned char *)part_at(base, &at, codes ? pairs * (size_t)n_ff : 0);
    p->coded.scale = (float *)part_at(base, &at, codes ? 4 * pairs : 0);
    p->out = part_at(base, &at, pairs * (size_t)hidden * um_dtype_size(type));
    return at;
}

size_t um_cu_moe_scratch(const um_expert_route *route, int32_t n_tokens, int32_t hidden, int32_t n_ff, um_dtype type,
                         bool codes) {
    parts p;
    return divide(route, n_tokens, hidden, n_ff, type, codes, NULL, &p);
}

/* Returns the pointers of the experts that are computed; NULL stays NULL. */
template <typename P> static P *own(P *all, const um_cu_moe *a) { return all ? all + a->first_own : NULL; }

um_cu_pairs um_cu_moe_outputs(const um_cu_batch *b, const um_cu_moe *a, cudaStream_t s) {
    const int32_t T = b->capacity.n_tokens, K = a->route.top_k, H = a->hidden;
    const bool up_codes = a->gate_up_scale, down_codes = a->down_scale;
    parts p;
    divide(&a->route, T, H, a->n_ff, a->type, down_codes, a->scratch, &p);
    um_cu_route(b, a, &p.routes, s);
    const int32_t *count = own(p.routes.count, a), *pair = p.routes.pair + (size_t)a->first_own * (size_t)T;
    const product gate_up = {.w = own(a->gate_up, a),
                             .x = up_codes ? a->coded.code : a->x,
                             .y = p.gated,
                             .count = count,
                             .pair = pair,
                             .n_tokens = T,
                             .top_k = K,
                             .in = H,
                             .n = a->n_ff,
                             .act = a->act,
                             .w_scale = own(a->gate_up_scale, a),
                             .in_blocks = a->gate_up_blocks,
                             .x_scale = a->coded.scale},
                  down = {.w = own(a->down, a),
                          .x = down_codes ? p.coded.code : p.gated,
                          .y = p.out,
                          .count = count,
                          .pair = pair,
                          .weight = p.routes.weight,
                          .n_tokens = T,
                          .top_k = K,
                          .in = a->n_ff,
                          .n = H,
                          .w_scale = own(a->down_scale, a),
                          .in_blocks = a->down_blocks,
                          .x_scale = p.coded.scale};
    start_product<true>(&gate_up, a, s);
    const bool all = a->n_own == a->route.n_experts;
    um_cu_pairs pairs = {*b, p.gated, a->type, K, all ? NULL : p.routes.chosen, a->first_own, a->n_own};
    if (down_codes) um_cu_quantize_pairs(&pairs, a->n_ff, &p.coded, s);
    start_product<false>(&down, a, s);
    pairs.out = p.out;
    return pairs;
}

void um_cu_moe_add(const um_cu_batch *b, const um_cu_moe *a, cudaStream_t s) {
    const um_cu_pairs pairs = um_cu_moe_outputs(b, a, s);
    um_cu_pairs_add(&pairs, a->hidden, a->add, a->y_type, a->y, s);
}
