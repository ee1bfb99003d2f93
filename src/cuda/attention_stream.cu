/* attention_stream: attention on Hopper GPUs, for heads of 128 elements and keys in bf16.
 *
 * A CTA computes a tile of rows (attention_rows.cuh) with one warpgroup for 64 rows, or two for 128. A warp of a
 * further warpgroup asks the copy engine for groups of 64 keys and their values, which arrive in a ring in shared
 * memory. Each of its lanes requests a box: 64 elements of the vectors of a page. A warpgroup computes the scores of
 * its rows (wgmma, queries in registers), the softmax in registers, and adds the product with the values (wgmma,
 * probabilities in registers).
 *
 * Rows of the tile that are not there are multiplied too: the matrix units are not what bounds the kernel. Slots that
 * no row sees may contain anything. Their scores are replaced, and their values are set to zero in shared memory, since
 * 0 * NaN is NaN.
 *
 * Bytes: keys and values once for each tile. Operations: 4 * 128 for each row and key. */
#include "cuda/attention_rows.cuh"
#include "cuda/tensor_map.cuh"
#include "cuda/wgmma.cuh"

static constexpr int DIM = 128, HALVES = DIM / UM_CU_BOX_COLUMNS, ROW_BYTES = 128;
static constexpr int HALF_BYTES = UM_CU_GROUP * ROW_BYTES, PART_BYTES = HALVES * HALF_BYTES,
                     STAGE_BYTES = 2 * PART_BYTES;
static constexpr int GROUP_ROWS = 64; /* of a warpgroup */

/* A CTA with GROUPS warpgroups that compute. Two CTAs with one such warpgroup share a multiprocessor. The registers of
 * a thread: the compiler divides them evenly, and the warpgroups that compute take those of the one that copies. */
template <int GROUPS> struct shape_of {
    static constexpr int computing = GROUPS * 128, threads = computing + 128, ctas = 2 / GROUPS, stages = 3 * GROUPS;
    static constexpr int shared = stages * STAGE_BYTES + 1024;
    /* A warpgroup waits forever for registers that the CTA did not get at its start. */
    static constexpr int even_registers = 65536 / (ctas * threads) / 8 * 8;
    static constexpr int many_registers = GROUPS == 1 ? 232 : 240, few_registers = 24;
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

/* The box that a lane requests of each group. */
struct box {
    int32_t key;     /* first key of the box in the next group */
    uint32_t at;     /* bytes from the start of a stage */
    int32_t column;  /* first element of the vectors */
    const void *map; /* of keys or values; NULL: the lane requests nothing */
    int32_t row;     /* of the pool, for the next group; -1: no key of the box is read */
};

/* Sets the row of the box. */
static __device__ __forceinline__ void find_row(box &b, const stream_args &a, const um_cu_cta &c) {
    const um_range hole = c.span.hole;
    const int32_t end = b.key + a.box, slot = b.key & ((1 << a.page_shift) - 1);
    b.row = -1;
    if (!b.map || end <= c.span.keys.start || b.key >= c.to || (b.key >= hole.start && end <= hole.end)) return;
    const size_t range = um_cu_range_at(a.f.kv, c.page[b.key >> a.page_shift], c.head);
    b.row = (int32_t)(range / (DIM * sizeof(um_bf16))) + slot;
}

static __device__ __forceinline__ box find_box(const stream_args &a, const um_cu_cta &c, const CUtensorMap *keys,
                                               const CUtensorMap *values) {
    const int32_t lane = threadIdx.x % WARP, half = lane % HALVES, value = lane / HALVES % 2,
                  first = lane / HALVES / 2 * a.box;
    box b;
    b.key = c.from + first;
    b.at = value * PART_BYTES + half * HALF_BYTES + first * ROW_BYTES;
    b.column = half * UM_CU_BOX_COLUMNS;
    b.map = first >= UM_CU_GROUP ? NULL : value ? values : keys;
    find_row(b, a, c);
    return b;
}

/* Requests the groups of keys. One warp calls it. */
template <int GROUPS>
static __device__ __forceinline__ void request_keys(box b, const stream_args &a, const um_cu_cta &c, const ring &r) {
    using S = shape_of<GROUPS>;
    const uint64_t policy = a.shared ? 0x1000000000000000ull : 0x12f0000000000000ull; /* evict normally, or first */
    uint32_t stage = 0, parity = 1;
    for (int32_t first = c.from; first < c.to; first += UM_CU_GROUP) {
        const uint32_t full = r.full + 8 * stage;
        const int n = __popc(__ballot_sync(0xffffffffu, b.row >= 0));
        um_cu_barrier_wait(r.empty + 8 * stage, parity);
        if (threadIdx.x % WARP == 0) um_cu_barrier_expect(full, n * a.box * ROW_BYTES);
        __syncwarp();
        if (b.row >= 0) um_cu_copy_tile(r.base + stage * STAGE_BYTES + b.at, b.map, b.column, b.row, full, policy);
        b.key += UM_CU_GROUP;
        find_row(b, a, c);
        if (++stage == S::stages) stage = 0, parity ^= 1;
    }
}

/* ---- Scores and products ----------------------------------------------------------------------------------------- */

/* Zeroes the values whose keys are hidden from all rows of the tile. All computing threads call it. */
template <int THREADS>
static __device__ __forceinline__ void clear_values(const um_cu_cta &c, char *values, int32_t first) {
    constexpr int EACH = THREADS / UM_CU_GROUP, PIECES = PART_BYTES / UM_CU_GROUP / 16 / EACH; /* of 16 bytes */
    const int32_t key = threadIdx.x / EACH, part = threadIdx.x % EACH;
    if (!um_cu_sees(c.span, first + key, c.to)) {
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const int piece = part * PIECES + i; /* of the 16 of a key: 8 in each half */
            *(uint4 *)(values + piece / 8 * HALF_BYTES + key * ROW_BYTES + piece % 8 * 16) = make_uint4(0, 0, 0, 0);
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

static __device__ __forceinline__ void multiply_values(um_cu_softmax<DIM> &st, const float (*score)[4],
                                                       uint32_t values) {
    const uint32_t low = um_cu_transposed_low(values, HALF_BYTES);
    uint32_t p[UM_CU_GROUP / 16][4];
#pragma unroll
    for (int k = 0; k < UM_CU_GROUP / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            p[k][i] = um_cu_pack_two(score[2 * k + i / 2][i % 2 * 2], score[2 * k + i / 2][i % 2 * 2 + 1]);
    um_cu_products_begin();
#pragma unroll
    for (int k = 0; k < UM_CU_GROUP / 16; k++) um_cu_multiply_transposed_128(st.acc[0], p[k], low + k * 2048 / 16);
    um_cu_products_commit();
    um_cu_products_wait<0>();
}

/* Goes through the groups of keys. Leaves the last piece in `part`, and adds those before it to `all` unless the launch
 * is split. memory: the stages. */
template <int GROUPS>
static __device__ __forceinline__ void add_keys(um_cu_softmax<DIM> &all, um_cu_softmax<DIM> &part,
                                                const uint32_t (*q)[4], const stream_args &a, const um_cu_cta &c,
                                                const um_cu_row_pair &rows, const ring &r, char *memory) {
    using S = shape_of<GROUPS>;
    const float scale = a.f.a.scale * 1.44269504f; /* powers of two are used in place of exp */
    uint32_t stage = 0, parity = 0;
    for (int32_t first = c.from; first < c.to; first += UM_CU_GROUP) {
        const uint32_t keys = r.base + stage * STAGE_BYTES;
        float score[UM_CU_GROUP / 8][4];
        um_cu_barrier_wait(r.full + 8 * stage, parity);
        multiply_keys(score, q, keys);
        if (!um_cu_is_whole(c, first, c.to))
            clear_values<S::computing>(c, memory + stage * STAGE_BYTES + PART_BYTES, first);
        if (c.works)
            um_cu_weigh_group<DIM, false>(part, score, NULL, c.span, rows, first, scale,
                                          um_cu_is_whole(c, first, c.bounds.least));
        multiply_values(part, score, keys + PART_BYTES);
        if (threadIdx.x % WARP == 0) um_cu_barrier_arrive(r.empty + 8 * stage);
        __syncwarp();
        if (++stage == S::stages) stage = 0, parity ^= 1;
        if (!a.f.split && (first + UM_CU_GROUP) % UM_CU_PIECE == 0) {
            um_cu_merge_piece(all, part);
            um_cu_clear(part);
        }
    }
}
#endif

/* ---- The kernel -------------------------------------------------------------------------------------------------- */

/* Shared memory: the stages, aligned to 1024 bytes. */
template <int GROUPS>
static __global__ void __launch_bounds__(shape_of<GROUPS>::threads, shape_of<GROUPS>::ctas)
    attend_stream(const um_cu_batch b, const stream_args a, const __grid_constant__ CUtensorMap keys,
                  const __grid_constant__ CUtensorMap values) {
#ifdef UM_CU_HAS_WGMMA
    using S = shape_of<GROUPS>;
    extern __shared__ char shared[];
    __shared__ uint64_t barrier[2][S::stages];
    const uint32_t start = (uint32_t)__cvta_generic_to_shared(shared), base = (start + 1023) & ~1023u;
    const ring r = {base, (uint32_t)__cvta_generic_to_shared(barrier[0]),
                    (uint32_t)__cvta_generic_to_shared(barrier[1])};
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / WARP, 0); /* the same in all lanes, as the compiler sees */
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::stages; i++)
            um_cu_barrier_init(r.full + 8 * i, 1), um_cu_barrier_init(r.empty + 8 * i, GROUPS * 4);
        um_cu_barriers_ready();
    }
    um_cu_let_next_start();
    um_cu_cta c;
    const bool has_work = um_cu_find_tile(c, b, a.f);
    __syncthreads();
    if (!has_work) {
        um_cu_wait_for_previous();
        return;
    }
    if (warp >= GROUPS * 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(S::few_registers));
        if (warp > GROUPS * 4) return;
        const box mine = find_box(a, c, &keys, &values);
        um_cu_wait_for_previous();
        request_keys<GROUPS>(mine, a, c, r);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(S::many_registers));
        um_cu_row_pair rows;
        uint32_t q[DIM / 16][4];
        um_cu_softmax<DIM> all, part;
        um_cu_find_rows(rows, b, c);
        um_cu_wait_for_previous();
        um_cu_load_queries<DIM>(q, a.f.a, rows);
        um_cu_clear(all);
        um_cu_clear(part);
        add_keys<GROUPS>(all, part, q, a, c, rows, r, shared + (base - start));
        um_cu_write_tile<DIM>(all, part, a.f, c, rows);
    }
#endif
}

/* ---- Launch ------------------------------------------------------------------------------------------------------ */

bool um_cu_attend_stream_exists() {
    cudaFuncAttributes kernel; /* only code for Hopper GPUs has the barriers in shared memory */
    const cudaError_t e = cudaFuncGetAttributes(&kernel, attend_stream<1>);
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
    return um_cu_describe(map, first, bytes / (int64_t)(DIM * sizeof(um_bf16)), DIM, DIM, box);
}

template <int GROUPS>
static bool start(const um_cu_batch *b, const stream_args *a, const um_cu_kv *kv, dim3 grid, cudaStream_t s) {
    using S = shape_of<GROUPS>;
    CUtensorMap keys, values;
    if (!describe_pool(&keys, kv, a->f.kv.key, a->box) || !describe_pool(&values, kv, a->f.kv.value, a->box))
        return false;
    cudaFuncSetAttribute(attend_stream<GROUPS>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::shared);
    um_cu_start(attend_stream<GROUPS>, grid, dim3(S::threads), S::shared, s, *b, *a, keys, values);
    return true;
}

bool um_cu_attend_stream(const um_cu_batch *b, const um_cu_flash *f, const um_cu_kv *kv, dim3 grid, cudaStream_t s) {
    const bool prompt = b->capacity.n_tiles > b->capacity.n_spans;
    stream_args a = {*f, UM_MIN(f->kv.page_size, UM_CU_GROUP), 0, prompt};
    while (1 << a.page_shift < f->kv.page_size) a.page_shift++;
    return f->tile_rows <= GROUP_ROWS ? start<1>(b, &a, kv, grid, s) : start<2>(b, &a, kv, grid, s);
}
