/* attention_stream: attention on Hopper GPUs, for heads of 128 elements and keys in bf16.
 *
 * A CTA computes a tile of rows (attention_rows.cuh) with one warpgroup for 64 rows, or two for 128. A warp of a
 * further warpgroup asks the copy engine for groups of 64 keys and their values, which arrive in a ring in shared
 * memory. Each of its lanes requests a box: 64 elements of the vectors of a page. Keys that the pass does not write
 * are requested while the kernel before ends. A warpgroup computes the scores of its rows (wgmma, queries in
 * registers), the softmax in registers, and adds the product with the values (wgmma, probabilities in registers).
 *
 * A warp has 16 rows of the matrix units, two in each thread. When half of the rows are enough for a tile, each warp
 * takes 8 of them and each thread one. So all warps share the softmax, which takes longer than the products.
 *
 * Rows of the tile that are not there are multiplied too: the matrix units are not what bounds the kernel. Slots that
 * no row sees may contain anything. Their scores are replaced, and their values are set to zero in shared memory, since
 * 0 * NaN is NaN.
 *
 * Bytes: keys and values once for each tile. Operations: 4 * 128 for each row and key. */
#include "cuda/attention_rows.cuh"
#include "cuda/tensor_map.cuh"
#include "cuda/wgmma.cuh"

static constexpr int DIM = 128, ROW_BYTES = 128, HALF_COLUMNS = ROW_BYTES / 2, HALVES = DIM / HALF_COLUMNS;
static constexpr int HALF_BYTES = UM_CU_GROUP * ROW_BYTES, PART_BYTES = HALVES * HALF_BYTES,
                     STAGE_BYTES = 2 * PART_BYTES;
static constexpr int GROUP_ROWS = 64, GROUP_THREADS = 128; /* of a warpgroup */

/* A CTA with GROUPS warpgroups that compute. Two CTAs with one such warpgroup share a multiprocessor. The registers of
 * a thread: the compiler divides them evenly, and the warpgroups that compute take those of the one that copies. */
template <int GROUPS> struct shape_of {
    static constexpr int groups = GROUPS, computing = GROUPS * GROUP_THREADS, threads = computing + GROUP_THREADS;
    static constexpr int ctas = 2 / GROUPS, stages = 3 * GROUPS, shared = stages * STAGE_BYTES + 1024;
    /* A warpgroup waits forever for registers that the CTA did not get at its start. */
    static constexpr int even_registers = 65536 / (ctas * threads) / 8 * 8;
    static constexpr int many_registers = 232, few_registers = GROUPS == 1 ? 24 : 40;
    static_assert(GROUPS * many_registers + few_registers <= (GROUPS + 1) * even_registers, "registers of a CTA");
};

struct stream_args {
    um_cu_flash f;
    int32_t box;        /* keys of a box */
    int32_t page_shift; /* a page has 1 << page_shift keys */
    bool shared;        /* CTAs share keys, so the L2 cache keeps them */
};

#ifdef UM_CU_HAS_WGMMA
/* ---- The ring ---------------------------------------------------------------------------------------------------- */

/* Addresses in shared memory. full[i] is completed by the copies into stage i, empty[i] by the warps that have read
 * it. */
struct ring {
    uint32_t base, full, empty;
};

/* The stage of a ring that is written or read next. */
struct place {
    uint32_t stage, parity;
};

template <class S> static __device__ __forceinline__ void next_place(place &p) {
    if (++p.stage == S::stages) p.stage = 0, p.parity ^= 1;
}

/* The box that a lane requests of each group. */
struct box {
    int32_t first;   /* key of the group that is the first one of the box */
    uint32_t at;     /* bytes from the start of a stage */
    int32_t column;  /* first element of the vectors */
    const void *map; /* of keys or values; NULL: the lane requests nothing */
};

/* Returns the row of the pool where the box of the group at `group` begins; -1: no key of the box is read. */
static __device__ __forceinline__ int32_t find_row(const box &b, int32_t group, const stream_args &a,
                                                   const um_cu_cta &c) {
    const um_range hole = c.span.hole;
    const int32_t key = group + b.first, end = key + a.box, slot = key & ((1 << a.page_shift) - 1);
    if (!b.map || end <= c.span.keys.start || key >= c.to || (key >= hole.start && end <= hole.end)) return -1;
    const size_t range = um_cu_range_at(a.f.kv, c.page[key >> a.page_shift], c.head);
    return (int32_t)(range / (DIM * sizeof(um_bf16))) + slot;
}

static __device__ __forceinline__ box find_box(const stream_args &a, const CUtensorMap *keys,
                                               const CUtensorMap *values) {
    const int32_t lane = threadIdx.x % WARP, half = lane % HALVES, value = lane / HALVES % 2,
                  first = lane / HALVES / 2 * a.box;
    box b;
    b.first = first;
    b.at = value * PART_BYTES + half * HALF_BYTES + first * ROW_BYTES;
    b.column = half * HALF_COLUMNS;
    b.map = first >= UM_CU_GROUP ? NULL : value ? values : keys;
    if (b.map) asm volatile("prefetch.tensormap [%0];" ::"l"(b.map) : "memory");
    return b;
}

/* Requests the group of keys at `group`. One warp calls it. */
static __device__ __forceinline__ void request_group(const box &b, int32_t group, const stream_args &a,
                                                     const um_cu_cta &c, const ring &r, const place &p) {
    const uint64_t policy = a.shared ? 0x1000000000000000ull : 0x12f0000000000000ull; /* evict normally, or first */
    const uint32_t full = r.full + 8 * p.stage;
    const int32_t row = find_row(b, group, a, c);
    const int n = __popc(__ballot_sync(0xffffffffu, row >= 0));
    um_cu_barrier_wait(r.empty + 8 * p.stage, p.parity ^ 1);
    if (threadIdx.x % WARP == 0) um_cu_barrier_expect(full, n * a.box * ROW_BYTES);
    __syncwarp();
    if (row >= 0) um_cu_copy_tile(r.base + p.stage * STAGE_BYTES + b.at, b.map, b.column, row, full, policy);
}

/* Requests all groups. Those that no kernel of the pass writes are requested while the kernel before ends. One warp
 * calls it. */
template <class S>
static __device__ __forceinline__ void request_keys(const box &b, const stream_args &a, const um_cu_cta &c,
                                                    const ring &r) {
    place p = {};
    bool waited = false;
    for (int32_t group = c.from; group < c.to; group += UM_CU_GROUP, next_place<S>(p)) {
        if (!waited && group + UM_CU_GROUP > c.span.settled) um_cu_wait_for_previous(), waited = true;
        request_group(b, group, a, c, r, p);
    }
    if (!waited) um_cu_wait_for_previous();
}

/* ---- Scores and products ----------------------------------------------------------------------------------------- */

/* Zeroes the values whose keys are hidden from all rows of the tile. All computing threads call it. */
template <int THREADS>
static __device__ __forceinline__ void clear_values(const um_cu_cta &c, uint32_t values, int32_t first) {
    constexpr int EACH = THREADS / UM_CU_GROUP, PIECES = PART_BYTES / UM_CU_GROUP / 16 / EACH; /* of 16 bytes */
    const int32_t key = threadIdx.x / EACH, part = threadIdx.x % EACH;
    if (!um_cu_sees(c.span, first + key, c.to)) {
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const int piece = part * PIECES + i; /* of the 16 of a key: 8 in each half */
            const uint32_t to = values + piece / 8 * HALF_BYTES + key * ROW_BYTES + piece % 8 * 16;
            asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
        }
    }
    asm volatile("fence.proxy.async.shared::cta;\n"
                 "bar.sync 1, %0;" ::"n"(THREADS)
                 : "memory");
}

static __device__ __forceinline__ void multiply_keys(float (*score)[4], const uint32_t (*q)[4], uint32_t keys) {
#pragma unroll
    for (int n = 0; n < UM_CU_GROUP / 8; n++) score[n][0] = score[n][1] = score[n][2] = score[n][3] = 0;
    const uint32_t low = um_cu_operand_low(keys);
    um_cu_products_begin();
#pragma unroll
    for (int k = 0; k < DIM / 16; k++) um_cu_multiply_64(score[0], q[k], low + (k / 4 * HALF_BYTES + k % 4 * 32) / 16);
    um_cu_products_commit();
    um_cu_products_wait<0>();
}

/* Turns scores into probabilities, and these into operands. A row that a thread leaves out has the probability 0. */
template <int ROWS>
static __device__ __forceinline__ void weigh(um_cu_softmax<DIM> &part, float (*score)[4], uint32_t (*p)[4],
                                             const um_cu_cta &c, const um_cu_row_pair &rows, int32_t first,
                                             float scale) {
    um_cu_weigh_group<DIM, false, ROWS>(part, score, NULL, c.span, rows, first, scale,
                                        um_cu_is_whole(c, first, c.bounds.least));
#pragma unroll
    for (int k = 0; k < UM_CU_GROUP / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *pair = &score[2 * k + i / 2][i % 2 * 2];
            p[k][i] = i % 2 < ROWS ? um_cu_pack_two(pair[0], pair[1]) : 0;
        }
}

static __device__ __forceinline__ void multiply_values(um_cu_softmax<DIM> &part, const uint32_t (*p)[4],
                                                       uint32_t values) {
    const uint32_t low = um_cu_transposed_low(values, HALF_BYTES);
    um_cu_products_begin();
#pragma unroll
    for (int k = 0; k < UM_CU_GROUP / 16; k++) um_cu_multiply_transposed_128(part.acc[0], p[k], low + k * 2048 / 16);
    um_cu_products_commit();
    um_cu_products_wait<0>();
}

static __device__ __forceinline__ void merge(um_cu_softmax<DIM> &all, const um_cu_softmax<DIM> &part, int each) {
    if (each == ROWS_PER_WARP) um_cu_merge_piece<DIM, 2>(all, part);
    else um_cu_merge_piece<DIM, 1>(all, part);
}

/* Goes through the groups of keys. Leaves the last piece in `part`, and adds those before it to `all` unless the launch
 * is split. each: rows of a warp. */
template <class S>
static __device__ __forceinline__ void add_keys(um_cu_softmax<DIM> &all, um_cu_softmax<DIM> &part,
                                                const uint32_t (*q)[4], const stream_args &a, const um_cu_cta &c,
                                                const um_cu_row_pair &rows, int each, const ring &r) {
    const float scale = a.f.a.scale * 1.44269504f; /* powers of two are used in place of exp */
    place at = {};
    for (int32_t first = c.from; first < c.to; first += UM_CU_GROUP, next_place<S>(at)) {
        const uint32_t keys = r.base + at.stage * STAGE_BYTES;
        float score[UM_CU_GROUP / 8][4];
        uint32_t p[UM_CU_GROUP / 16][4];
        um_cu_barrier_wait(r.full + 8 * at.stage, at.parity);
        multiply_keys(score, q, keys);
        if (!um_cu_is_whole(c, first, c.to)) clear_values<S::computing>(c, keys + PART_BYTES, first);
        if (each == ROWS_PER_WARP) weigh<2>(part, score, p, c, rows, first, scale);
        else weigh<1>(part, score, p, c, rows, first, scale);
        multiply_values(part, p, keys + PART_BYTES);
        if (threadIdx.x % WARP == 0) um_cu_barrier_arrive(r.empty + 8 * at.stage);
        __syncwarp();
        if (!a.f.split && (first + UM_CU_GROUP) % UM_CU_PIECE == 0) {
            merge(all, part, each);
            um_cu_clear(part);
        }
    }
}
#endif

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* Shared memory: the stages, aligned to 1024 bytes. */
template <class S>
static __global__ void __launch_bounds__(S::threads, S::ctas)
    attend_stream(const um_cu_batch b, const stream_args a, const __grid_constant__ CUtensorMap keys,
                  const __grid_constant__ CUtensorMap values) {
#ifdef UM_CU_HAS_WGMMA
    extern __shared__ char shared[];
    __shared__ uint64_t barrier[2][S::stages];
    __shared__ um_cu_cta c;
    __shared__ bool has_work;
    const uint32_t start = (uint32_t)__cvta_generic_to_shared(shared), base = (start + 1023) & ~1023u;
    const ring r = {base, (uint32_t)__cvta_generic_to_shared(barrier[0]),
                    (uint32_t)__cvta_generic_to_shared(barrier[1])};
    /* the same in all lanes, as the compiler sees */
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / WARP, 0), group = warp / 4;
    um_cu_let_next_start();
    if (warp == 0) {
        um_cu_cta mine;
        const bool there = um_cu_find_tile(mine, b, a.f);
        if (threadIdx.x == 0) c = mine, has_work = there;
    } else if (threadIdx.x == WARP) {
        for (int i = 0; i < S::stages; i++)
            um_cu_barrier_init(r.full + 8 * i, 1), um_cu_barrier_init(r.empty + 8 * i, S::groups * 4);
        um_cu_barriers_ready();
    }
    __syncthreads();
    if (!has_work) {
        um_cu_wait_for_previous();
        return;
    }
    if (group == S::groups) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(S::few_registers));
        if (warp > group * 4) return;
        request_keys<S>(find_box(a, &keys, &values), a, c, r);
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(S::many_registers));
    const int each = c.tile.n * c.group <= S::groups * GROUP_ROWS / 2 ? ROWS_PER_WARP / 2 : ROWS_PER_WARP;
    um_cu_row_pair rows;
    uint32_t q[DIM / 16][4];
    um_cu_softmax<DIM> all, part;
    um_cu_find_rows(rows, b, c, warp, each);
    um_cu_wait_for_previous();
    um_cu_load_queries<DIM>(q, a.f.a, rows);
    um_cu_clear(all);
    um_cu_clear(part);
    add_keys<S>(all, part, q, a, c, rows, each, r);
    um_cu_find_rows(rows, b, c, warp, each); /* again, so that no registers hold them all the time */
    if (a.f.split) um_cu_write_part<DIM>(part, a.f, c, rows);
    else merge(all, part, each), um_cu_write_rows<DIM>(all, a.f.a, rows);
#endif
}

/* ---- Launch ------------------------------------------------------------------------------------------------------ */

bool um_cu_attend_stream_exists() {
    cudaFuncAttributes kernel; /* only code for Hopper GPUs has the barriers in shared memory */
    const cudaError_t e = cudaFuncGetAttributes(&kernel, attend_stream<shape_of<1>>);
    return e == cudaSuccess && kernel.sharedSizeBytes > 0;
}

bool um_cu_attend_stream_suits(const um_cu_flash *f) {
    const int32_t page = f->kv.page_size;
    return f->a.head_dim == DIM && f->kv.type == UM_BF16 && page >= 8 && (page & (page - 1)) == 0 &&
           f->tile_rows <= 2 * GROUP_ROWS;
}

/* Describes the pool that contains `first`, the first vector of a layer, from there on. */
static bool describe_pool(CUtensorMap *map, const um_cu_kv *kv, const char *first, int32_t box) {
    const int pool = kv->pool[1] && first >= kv->pool[1] && first < kv->pool[1] + kv->pool_bytes[1];
    const int64_t bytes = kv->pool[pool] + kv->pool_bytes[pool] - first;
    return um_cu_describe(map, sizeof(um_bf16), first, bytes / (int64_t)(DIM * sizeof(um_bf16)), DIM, DIM, box);
}

template <class S>
static bool start(const um_cu_batch *b, const stream_args *a, const um_cu_kv *kv, dim3 grid, cudaStream_t s) {
    CUtensorMap keys, values;
    if (!describe_pool(&keys, kv, a->f.kv.key, a->box) || !describe_pool(&values, kv, a->f.kv.value, a->box))
        return false;
    cudaFuncSetAttribute(attend_stream<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::shared);
    um_cu_start(attend_stream<S>, grid, dim3(S::threads), S::shared, s, *b, *a, keys, values);
    return true;
}

bool um_cu_attend_stream(const um_cu_batch *b, const um_cu_flash *f, const um_cu_kv *kv, dim3 grid, cudaStream_t s) {
    const bool prompt = b->capacity.n_tiles > b->capacity.n_spans;
    stream_args a = {*f, UM_MIN(f->kv.page_size, UM_CU_GROUP), 0, prompt};
    while (1 << a.page_shift < f->kv.page_size) a.page_shift++;
    return f->tile_rows <= GROUP_ROWS ? start<shape_of<1>>(b, &a, kv, grid, s) : start<shape_of<2>>(b, &a, kv, grid, s);
}
