/* product_many: the kernel for bf16 products of more than 128 tokens to bf16 on Hopper GPUs, which are bound by the
 * matrix units.
 *
 * Persistent CTAs, one per multiprocessor, compute tiles of 128 tokens and 192 weight rows over all columns. Two CTAs
 * form a cluster: they have neighbouring tokens and the same weight rows. Each copies one half of the rows into both. A
 * thread copies both operands through a ring in shared memory (bulk tensor copies). Two warpgroups take turns: while
 * one stores its tile, the other multiplies, so the matrix units don't wait for the end of a tile. Tokens are the M
 * operand of wgmma, weights the N operand. A sum runs over the columns in ascending order, 16 at a time, so a row of y
 * has the bits of product_stream.cu for every T.
 *
 * With `gated` the weights are gate rows above up rows, a tile takes 96 rows of both, and y = silu(gate) * up is
 * computed in registers, from gate and up rounded to bf16.
 *
 * Bytes: the weights from HBM, 2 * rows * in; from the L2 cache the weights once for each 256 tokens, and the
 * activations once for each tile of rows. Operations: 2 * rows * in * T. */
#include "cuda/mma.cuh"
#include "cuda/product.cuh"
#include "cuda/tensor_map.cuh"
#include "cuda/wgmma.cuh"

enum {
    WARP = 32,
    GROUP = 4 * WARP, /* threads of a warpgroup */
    GROUPS = 2,       /* that multiply; a warp of the warpgroup behind them copies */
    THREADS = (GROUPS + 1) * GROUP,
    TOKENS = 128, /* of a tile */
    ROWS = 192,   /* weight rows of a tile */
    CTAS = 2,     /* of a cluster */
    BLOCKS = TOKENS / 64,
    ROW_BYTES = 128, /* of a row in a stage */
    COLUMNS = ROW_BYTES / 2,
    X_BYTES = TOKENS * ROW_BYTES,
    STAGE_BYTES = X_BYTES + ROWS * ROW_BYTES,
    STAGES = 5,
    SHARED = STAGES * STAGE_BYTES + 1024 + 2 * 8 * STAGES, /* with alignment and barriers */
    TILES_TOGETHER = 2048 / (TOKENS * CTAS), /* of tokens, that are computed before the next weight rows */
    REGISTERS = 232,
    COPY_REGISTERS = 40 /* of a thread that multiplies, and of one that copies */
};
static_assert(SHARED <= 227 * 1024, "shared memory of a CTA");
static_assert(GROUP * (GROUPS * REGISTERS + COPY_REGISTERS) <= 65536, "registers of a multiprocessor");

/* Declares the CTAs of a cluster, for the devices that have clusters. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define CLUSTER __cluster_dims__(CTAS, 1, 1)
#else
#define CLUSTER
#endif

typedef struct args {
    um_bf16 *y;          /* [T, rows], rows at a distance of `stride` elements */
    int32_t rows, in, T; /* rows: of y; with GATED half of the rows of the weights */
    int32_t stride;
    int32_t n_x, n_w; /* pairs of tiles of tokens, and tiles of weight rows */
} args;

#ifdef UM_CU_HAS_WGMMA

/* ---- The ring ---------------------------------------------------------------------------------------------------- */

/* Addresses in shared memory. full[i] is completed by the copies of stage i, empty[i] by the warps of both CTAs that
 * have read it. cta: number of this CTA in the cluster. */
struct ring {
    uint32_t base, full, empty;
    int cta;
};

/* A place in the stream of stages. */
struct cursor {
    int at = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void next() {
        if (++at == STAGES) at = 0, parity ^= 1;
    }
    __device__ __forceinline__ void skip(int n) {
        at += n;
        parity ^= at / STAGES & 1;
        at %= STAGES;
    }
};

/* The first token and the first row of y of a tile. */
struct tile {
    int token, row;
};
/* Returns the tile of this CTA in pair i: the tokens of a group first, then the next weight rows, so that the CTAs that
 * run at the same time share both in the L2 cache. */
template <bool GATED> static __device__ __forceinline__ tile tile_at(const args &a, int i, int cta) {
    const int in_group = TILES_TOGETHER * a.n_w, group = i / in_group, left = i - group * in_group;
    const int width = UM_MIN(TILES_TOGETHER, a.n_x - group * TILES_TOGETHER), w = left / width;
    const int x = group * TILES_TOGETHER + left - w * width;
    return {(CTAS * x + cta) * TOKENS, w * (GATED ? ROWS / 2 : ROWS)};
}

/* Copies half of a stage's weight rows into both CTAs: with GATED the gate's or those of up. */
template <bool GATED>
static __device__ __forceinline__ void copy_weights(const CUtensorMap *map, const args &a, const ring &r, int at,
                                                    tile t, int step) {
    const uint64_t evict_normal = 0x1000000000000000ull;
    const uint32_t to = r.base + at * STAGE_BYTES + X_BYTES + r.cta * (ROWS / 2 * ROW_BYTES);
    um_cu_copy_tile_to(to, map, step * COLUMNS, t.row + r.cta * (GATED ? a.rows : ROWS / 2), r.full + 8 * at,
                       evict_normal, (1 << CTAS) - 1);
}

static __device__ __forceinline__ void copy_tokens(const CUtensorMap *map, const ring &r, int at, tile t, int step) {
    const uint64_t evict_last = 0x14f0000000000000ull;
    um_cu_copy_tile(r.base + at * STAGE_BYTES, map, step * COLUMNS, t.token, r.full + 8 * at, evict_last);
}

/* Fills the ring. One thread runs it. The first weights are requested before the kernel before has ended. */
template <bool GATED>
static __device__ void stream(const CUtensorMap *w, const CUtensorMap *x, const args &a, const ring &r) {
    const int n = UM_CEIL_DIV(a.in, COLUMNS), by = gridDim.x / CTAS, early = UM_MIN(STAGES, n);
    int step = early;
    cursor c;
    tile t = tile_at<GATED>(a, blockIdx.x / CTAS, r.cta);
    for (int s = 0; s < early; s++) {
        um_cu_barrier_expect(r.full + 8 * s, STAGE_BYTES);
        copy_weights<GATED>(w, a, r, s, t, s);
    }
    um_cu_wait_for_previous();
    for (int s = 0; s < early; s++, c.next()) copy_tokens(x, r, s, t, s);
    for (int i = blockIdx.x / CTAS; i < a.n_x * a.n_w; i += by, step = 0) {
        t = tile_at<GATED>(a, i, r.cta);
        for (; step < n; step++, c.next()) {
            um_cu_barrier_wait(r.empty + 8 * c.at, c.parity ^ 1);
            um_cu_barrier_expect(r.full + 8 * c.at, STAGE_BYTES);
            copy_tokens(x, r, c.at, t, step);
            copy_weights<GATED>(w, a, r, c.at, t, step);
        }
    }
}

/* ---- Stores ------------------------------------------------------------------------------------------------------ */

static __device__ __forceinline__ uint32_t pair_of(float a, float b) {
    const __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
    return *(const uint32_t *)&v;
}
static __device__ __forceinline__ float rounded(float v) { return __bfloat162float(__float2bfloat16_rn(v)); }

/* Each of four lanes has element i of vector k in v[k]: lane k returns vector k. */
static __device__ __forceinline__ uint4 transposed(const uint32_t v[4]) {
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    const uint32_t a = __shfl_xor_sync(0xffffffffu, odd ? v[0] : v[1], 1);
    const uint32_t b = __shfl_xor_sync(0xffffffffu, odd ? v[2] : v[3], 1);
    const uint32_t w0 = odd ? a : v[0], w1 = odd ? v[1] : a, w2 = odd ? b : v[2], w3 = odd ? v[3] : b;
    const uint32_t c = __shfl_xor_sync(0xffffffffu, high ? w0 : w2, 2);
    const uint32_t d = __shfl_xor_sync(0xffffffffu, high ? w1 : w3, 2);
    return make_uint4(high ? c : w0, high ? d : w1, high ? w2 : c, high ? w3 : d);
}

/* Returns the bits of g / (1 + expf(-g)), for g of bf16. The compiler's division has a branch for exceptions, so that
 * one division would wait for the other. These are its steps without the branch. The divisor is a quarter of the true
 * one, so that its reciprocal is never denormal. */
static __device__ __forceinline__ float silu(float g) {
    const float d = __fmaf_rn(0.25f, expf(-g), 0.25f);
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
    r = __fmaf_rn(r, __fmaf_rn(-d, r, 1), r);
    float q = __fmul_rn(g, r);
    q = __fmaf_rn(__fmaf_rn(-d, q, g), r, q);
    q = __fmul_rn(__fmaf_rn(__fmaf_rn(-d, q, g), r, q), 0.25f);
    if (g > 64) q = g;                    /* the divisor is 1 */
    if (g <= -89) q = __fmul_rn(g, 0.0f); /* the divisor is infinite */
    return copysignf(q, g);               /* of zeros */
}

/* Stores the sums of a block for 32 columns of y, from 8 j of the tile on. v: as wgmma leaves them. Lanes exchange
 * pairs of columns, so that each stores 16 bytes. */
template <bool GATED>
static __device__ __forceinline__ void store_32(const args &a, int token, int row, int j, const float *v) {
    uint32_t p[2][4];
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float *s = v + 4 * (j + k) + 2 * half, *up = s + ROWS / 4;
            if (GATED) p[half][k] = pair_of(silu(rounded(s[0])) * rounded(up[0]), silu(rounded(s[1])) * rounded(up[1]));
            else p[half][k] = pair_of(s[0], s[1]);
        }
    const int at = row + 8 * (j + (int)threadIdx.x % 4);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint4 all = transposed(p[half]);
        if (token + 8 * half < a.T && at < a.rows) *(uint4 *)(a.y + (size_t)(token + 8 * half) * a.stride + at) = all;
    }
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

/* A warpgroup's turn to multiply. A warpgroup that waited for a stage before its turn would take an older phase of the
 * stage's barrier for its own. */
static __device__ __forceinline__ void wait_for_turn(int group) {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(GROUPS * GROUP) : "memory");
}
static __device__ __forceinline__ void give_turn(int group) {
    asm volatile("bar.arrive %0, %1;" ::"r"(1 + group), "n"(GROUPS * GROUP) : "memory");
}

/* The sums of a thread, for each block of 64 tokens. */
struct sums {
    float v[BLOCKS][ROWS / 2];
};

/* Starts the products of the stage at the cursor. `begins`: the sums have no value yet. */
static __device__ __forceinline__ void add_stage(sums &s, const ring &r, const cursor &c, uint32_t x, uint32_t w,
                                                 bool begins) {
    const uint32_t stage = c.at * (STAGE_BYTES / 16);
    um_cu_barrier_wait(r.full + 8 * c.at, c.parity);
    um_cu_products_begin();
#pragma unroll
    for (int k = 0; k < ROW_BYTES / 32; k++)
#pragma unroll
        for (int b = 0; b < BLOCKS; b++)
            um_cu_multiply_or_begin_192(s.v[b], x + stage + (b * 64 * ROW_BYTES + k * 32) / 16, w + stage + k * 32 / 16,
                                        !begins || k > 0);
    um_cu_products_commit();
}

/* Tells both CTAs that this warp has read a stage. empty: the barrier of stage 0 in the CTA of this lane's number; 0 in
 * other lanes. */
static __device__ __forceinline__ void release(uint32_t empty, int at) {
    if (empty) um_cu_barrier_arrive_there(empty + 8 * at);
}

/* Computes the warpgroup's tiles: every second one of the CTA. A stage is released when the products after it have
 * started, so that the matrix units never wait for a release. */
template <bool GATED> static __device__ void multiply(const args &a, const ring &r, int group) {
    const int n = UM_CEIL_DIV(a.in, COLUMNS), by = gridDim.x / CTAS, lane = threadIdx.x % WARP;
    const uint32_t x = um_cu_operand_low(r.base), w = um_cu_operand_low(r.base + X_BYTES);
    const uint32_t empty = lane < CTAS ? um_cu_place_in(r.empty, (uint32_t)lane) : 0;
    cursor c;
    if (group == 1) c.skip(n), give_turn(0);
    for (int i = blockIdx.x / CTAS + group * by; i < a.n_x * a.n_w; i += GROUPS * by) {
        sums s;
        wait_for_turn(group);
        add_stage(s, r, c, x, w, true);
        int last = c.at; /* stage to release */
        c.next();
        for (int step = 1; step < n; step++, c.next()) {
            add_stage(s, r, c, x, w, false);
            um_cu_products_wait<1>();
            release(empty, last);
            last = c.at;
        }
        give_turn(1 - group);
        c.skip(n); /* the other warpgroup's tile */
        um_cu_products_wait<0>();
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) um_cu_hold_results<ROWS / 2>(s.v[b]);
        release(empty, last);
        const tile t = tile_at<GATED>(a, i, r.cta);
        const int token = t.token + threadIdx.x % GROUP / WARP * 16 + lane / 4;
#pragma unroll
        for (int b = 0; b < BLOCKS; b++)
#pragma unroll
            for (int j = 0; j < ROWS / (GATED ? 16 : 8); j += 4) store_32<GATED>(a, token + b * 64, t.row, j, s.v[b]);
    }
}

#endif

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* Grid: a multiple of the cluster, at most one CTA per multiprocessor. Shared memory: the stages, aligned to 1024
 * bytes, and the barriers. */
template <bool GATED>
static __global__ void CLUSTER __launch_bounds__(THREADS, 1)
    many_kernel(const __grid_constant__ CUtensorMap w, const __grid_constant__ CUtensorMap x, args a) {
#ifdef UM_CU_HAS_WGMMA
    extern __shared__ char shared[];
    const uint32_t start = ((uint32_t)__cvta_generic_to_shared(shared) + 1023) & ~1023u;
    const ring r = {start, start + STAGES * STAGE_BYTES, start + STAGES * (STAGE_BYTES + 8),
                    (int)um_cu_cta_of_cluster()};
    const int group =
        __shfl_sync(0xffffffffu, threadIdx.x / GROUP, 0); /* the same in all lanes, as the compiler sees */
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++)
            um_cu_barrier_init(r.full + 8 * i, 1), um_cu_barrier_init(r.empty + 8 * i, CTAS * GROUP / WARP);
        um_cu_barriers_ready();
    }
    um_cu_cluster_meet();
    um_cu_let_next_start();
    if (group == GROUPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)COPY_REGISTERS));
        if (threadIdx.x == GROUPS * GROUP) stream<GATED>(&w, &x, a, r);
        __syncwarp();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)REGISTERS));
        um_cu_wait_for_previous();
        multiply<GATED>(a, r, group);
        __syncwarp();
    }
    um_cu_cluster_meet(); /* the other CTA may still write to this one */
#endif
}

/* ---- Launch ------------------------------------------------------------------------------------------------------ */

bool um_cu_many_suits(const um_cu_stream *p) {
    return !p->w_scale && !p->add && p->out_type == UM_BF16 && p->rows % 8 == 0 && p->in % 8 == 0 && p->stride % 8 == 0;
}

template <bool GATED> static cudaError_t start(const um_cu_stream *p, int n_processors, cudaStream_t s) {
    args a = {};
    a.y = (um_bf16 *)p->y, a.rows = p->rows, a.in = p->in, a.T = p->T, a.stride = p->stride;
    a.n_x = UM_CEIL_DIV(p->T, CTAS * TOKENS), a.n_w = UM_CEIL_DIV(p->rows, GATED ? ROWS / 2 : ROWS);
    CUtensorMap w, x;
    if (!um_cu_describe(&w, 2, p->w, GATED ? 2 * p->rows : p->rows, p->in, p->in, ROWS / 2) ||
        !um_cu_describe(&x, 2, p->x, p->T, p->in, p->x_stride, TOKENS))
        return cudaErrorNotSupported;
    const cudaError_t e = cudaFuncSetAttribute(many_kernel<GATED>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    if (e != cudaSuccess) return e;
    const int n = UM_MIN(a.n_x * a.n_w, n_processors / CTAS) * CTAS;
    return um_cu_start(many_kernel<GATED>, dim3((unsigned)n), dim3(THREADS), SHARED, s, w, x, a);
}

um_status um_cu_many_product(const um_cu_stream *p, int n_processors, cudaStream_t s) {
    assert(um_cu_many_suits(p) && p->T > 0);
    const cudaError_t e = p->gated ? start<true>(p, n_processors, s) : start<false>(p, n_processors, s);
    return e == cudaSuccess ? UM_OK : UM_EDEVICE;
}
