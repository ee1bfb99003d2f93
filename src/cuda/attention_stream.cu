/* attention_stream: attention on Hopper GPUs, for heads of 128 elements and keys in bf16 or 8 bits.
 *
 * A CTA computes a tile of rows (attention_rows.cuh), or some pieces of its keys (attention_share.cuh), with one
 * warpgroup for 64 rows, or two for 128. A warp of a further warpgroup asks the copy engine for groups of 64 keys and
 * their values, which arrive in a ring in shared memory (attention_ring.cuh). Keys that the pass does not write are
 * requested while the kernel before ends. Keys and values in 8 bits are converted to fp16 by the three other warps of
 * this warpgroup. A warpgroup computes the scores of its rows (wgmma, queries in registers), the softmax in registers,
 * and adds the product with the values (wgmma, probabilities in registers). Where the ring has more than two stages,
 * the scores of the next group are computed together with this product, and its softmax while the product runs.
 *
 * A warp has 16 rows of the matrix units, two in each thread. When half of the rows are enough for a tile, each warp
 * takes 8 of them and each thread one. So all warps share the softmax, which takes longer than the products.
 *
 * Rows of the tile that are not there are multiplied too: the matrix units do not bound the kernel. Slots that
 * no row sees may contain anything. Their scores are replaced, and their values are set to zero in shared memory, since
 * 0 * NaN is NaN.
 *
 * Bytes: keys and values once for each tile. Operations: 4 * 128 for each row and key. */
#include "cuda/attention_ring.cuh"

/* Returns the number of a slot of a row in `partial`: [tile][KV head][row][slot]. */
static __device__ __forceinline__ size_t slot_at(const stream_args &a, int32_t tile, int32_t head, int32_t row,
                                                 int32_t slot) {
    return (((size_t)tile * a.f.a.n_kv_heads + head) * a.f.tile_rows + row) * a.f.a.n_pieces + slot;
}
/* `partial` has the products of all slots, then the maximum and the sum of each. */
static __device__ __forceinline__ float2 *states_of(const stream_args &a) {
    return (float2 *)(a.f.a.partial + a.n_slots * DIM);
}

#ifdef UM_CU_HAS_WGMMA
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

template <class S>
static __device__ __forceinline__ void multiply_keys(float (*score)[4], const uint32_t (*q)[4], uint32_t keys) {
    const uint32_t low = um_cu_operand_low(keys);
    um_cu_multiply_64<S::codes, false>(score[0], q[0], low);
#pragma unroll
    for (int k = 1; k < DIM / 16; k++)
        um_cu_multiply_64<S::codes, true>(score[0], q[k], low + (k / 4 * HALF_BYTES + k % 4 * 32) / 16);
    um_cu_products_commit();
}

/* Computes the scores of a group alone. */
template <class S>
static __device__ __forceinline__ void compute_scores(float (*score)[4], const uint32_t (*q)[4], uint32_t keys) {
    um_cu_products_begin();
    multiply_keys<S>(score, q, keys);
    um_cu_products_wait<0>();
    um_cu_hold_results<UM_CU_GROUP / 2>(score[0]);
}

template <class S>
static __device__ __forceinline__ void multiply_values(um_cu_softmax<DIM> &part, const uint32_t (*p)[4],
                                                       uint32_t values) {
    const uint32_t low = um_cu_transposed_low(values, HALF_BYTES);
#pragma unroll
    for (int k = 0; k < UM_CU_GROUP / 16; k++)
        um_cu_multiply_transposed_128<S::codes>(part.acc[0], p[k], low + k * 2048 / 16);
    um_cu_products_commit();
}

/* Turns scores into probabilities. */
static __device__ __forceinline__ void weigh(um_cu_softmax<DIM> &part, float (*score)[4], float factor[2],
                                             const um_cu_cta &c, const um_cu_row_pair &rows, int each, int32_t first,
                                             float scale, bool plain) {
    const bool whole = plain || um_cu_is_whole(c, first, c.bounds.least);
    if (each == ROWS_PER_WARP)
        um_cu_weigh_group<DIM, false, 2>(part, score, factor, NULL, c.span, rows, first, scale, whole);
    else um_cu_weigh_group<DIM, false, 1>(part, score, factor, NULL, c.span, rows, first, scale, whole);
}

/* Scales the products, unless all factors of the warp are 1. */
static __device__ __forceinline__ void scale_products(um_cu_softmax<DIM> &part, const float factor[2], int each) {
    if (each == ROWS_PER_WARP) {
        if (__any_sync(0xffffffffu, factor[0] != 1 || factor[1] != 1)) um_cu_scale_products<DIM, 2>(part, factor);
    } else if (__any_sync(0xffffffffu, factor[0] != 1)) um_cu_scale_products<DIM, 1>(part, factor);
}

/* Returns two numbers in fp16 or bf16. */
template <bool HALF> static __device__ __forceinline__ uint32_t pack_two(float low, float high) {
    if constexpr (!HALF) return um_cu_pack_two(low, high);
    uint32_t v;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    return v;
}

/* Returns v, or the number of fp16 that is next to it. NaN stays. */
static __device__ __forceinline__ float in_half(float v) {
    return v > HALF_MAX ? HALF_MAX : v < -HALF_MAX ? -HALF_MAX : v;
}

/* Turns queries in bf16 into fp16. Those beyond its largest number become this number. Those below 2^-14 lose bits,
 * which changes a score by less than keys in 8 bits do. */
static __device__ __forceinline__ void halve_queries(uint32_t (*q)[4]) {
#pragma unroll
    for (int k = 0; k < DIM / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float low = __uint_as_float(q[k][i] << 16), high = __uint_as_float(q[k][i] & 0xffff0000u);
            q[k][i] = pack_two<true>(in_half(low), in_half(high));
        }
}

/* Turns probabilities into operands. A row that a thread leaves out has the probability 0. */
template <class S> static __device__ __forceinline__ void pack(uint32_t (*p)[4], const float (*score)[4], int each) {
#pragma unroll
    for (int k = 0; k < UM_CU_GROUP / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *pair = &score[2 * k + i / 2][i % 2 * 2];
            p[k][i] = i % 2 == 0 || each == ROWS_PER_WARP ? pack_two<S::codes>(pair[0], pair[1]) : 0;
        }
}

/* Waits for the group of keys at `first`. Returns its place in shared memory. */
template <class S>
static __device__ __forceinline__ uint32_t wait_for_group(const um_cu_cta &c, const ring &r, const place &at,
                                                          int32_t first, bool plain) {
    const uint32_t group = r.base + at.stage * STAGE_BYTES;
    um_cu_barrier_wait(r.full + 8 * at.stage, at.parity);
    if (!S::codes && !plain && !um_cu_is_whole(c, first, c.to))
        clear_values<S::computing>(c, group + PART_BYTES, first);
    return group;
}

/* Waits for the products of a group with its values, and lets the copies of another group begin. */
static __device__ __forceinline__ void end_group(um_cu_softmax<DIM> &part, uint32_t (*p)[4], uint32_t empty) {
    um_cu_products_wait<0>();
    um_cu_hold_results<DIM / 2>(part.acc[0]);
    um_cu_hold_operands<UM_CU_GROUP / 4>(p[0]);
    if (threadIdx.x % WARP == 0) um_cu_barrier_arrive(empty);
    __syncwarp();
}

/* Which groups all rows see whole: those between these keys, unless there is a hole. */
struct plain_keys {
    int32_t start, end;
    __device__ __forceinline__ plain_keys(const um_cu_cta &c)
        : start(c.span.hole.start < c.span.hole.end ? INT32_MAX : c.span.keys.start), end(min(c.bounds.least, c.to)) {}
    __device__ __forceinline__ bool have(int32_t first) const { return first >= start && first + UM_CU_GROUP <= end; }
};

/* Computes the piece of the keys [first, end). While the matrix units multiply the probabilities of a group with its
 * values, the softmax of the next group is computed. each: rows of a warp. */
template <class S>
static __device__ __forceinline__ void add_piece(um_cu_softmax<DIM> &part, const uint32_t (*q)[4], const um_cu_cta &c,
                                                 const um_cu_row_pair &rows, int each, float scale, const ring &r,
                                                 place &at, int32_t first, int32_t end) {
    float score[UM_CU_GROUP / 8][4], factor[2] = {1, 1};
    uint32_t p[UM_CU_GROUP / 16][4];
    const plain_keys plain(c);
    bool is_plain = plain.have(first);
    uint32_t group = wait_for_group<S>(c, r, at, first, is_plain);
    compute_scores<S>(score, q, group);
    weigh(part, score, factor, c, rows, each, first, scale, is_plain);
    pack<S>(p, score, each);
    for (first += UM_CU_GROUP; first < end; first += UM_CU_GROUP) {
        const uint32_t values = group + PART_BYTES, empty = r.empty + 8 * at.stage;
        next_place<S::stages>(at);
        is_plain = plain.have(first);
        group = wait_for_group<S>(c, r, at, first, is_plain);
        um_cu_products_begin();
        multiply_keys<S>(score, q, group);
        multiply_values<S>(part, p, values);
        um_cu_products_wait<1>();
        um_cu_hold_results<UM_CU_GROUP / 2>(score[0]);
        weigh(part, score, factor, c, rows, each, first, scale, is_plain);
        end_group(part, p, empty);
        scale_products(part, factor, each);
        pack<S>(p, score, each);
    }
    um_cu_products_begin();
    multiply_values<S>(part, p, group + PART_BYTES);
    end_group(part, p, r.empty + 8 * at.stage);
    next_place<S::stages>(at);
}

/* Does the same for one group after another, with the same bits. A ring of two stages has no room for the next group:
 * it is converted meanwhile. */
template <class S>
static __device__ __forceinline__ void add_piece_in_turn(um_cu_softmax<DIM> &part, const uint32_t (*q)[4],
                                                         const um_cu_cta &c, const um_cu_row_pair &rows, int each,
                                                         float scale, const ring &r, place &at, int32_t first,
                                                         int32_t end) {
    const plain_keys plain(c);
    for (; first < end; first += UM_CU_GROUP) {
        float score[UM_CU_GROUP / 8][4], factor[2] = {1, 1};
        uint32_t p[UM_CU_GROUP / 16][4];
        const bool is_plain = plain.have(first);
        const uint32_t group = wait_for_group<S>(c, r, at, first, is_plain);
        compute_scores<S>(score, q, group);
        weigh(part, score, factor, c, rows, each, first, scale, is_plain);
        scale_products(part, factor, each);
        pack<S>(p, score, each);
        um_cu_products_begin();
        multiply_values<S>(part, p, group + PART_BYTES);
        end_group(part, p, r.empty + 8 * at.stage);
        next_place<S::stages>(at);
    }
}

static __device__ __forceinline__ void merge(um_cu_softmax<DIM> &all, const um_cu_softmax<DIM> &part, int each) {
    if (each == ROWS_PER_WARP) um_cu_merge_piece<DIM, 2>(all, part);
    else um_cu_merge_piece<DIM, 1>(all, part);
}

/* ---- Tasks ------------------------------------------------------------------------------------------------------- */

/* A class of rows of a column, and slots of the column. */
struct task {
    um_cu_cta c;
    int32_t tile;           /* index of c.tile */
    int32_t piece;          /* keys of a piece */
    int32_t slot, slot_end; /* pieces */
    bool there;
    bool merges, whole; /* the CTA merges the pieces, since they begin with the first; they are all of them */
    bool more_rows;     /* the tile has further classes */
    um_cu_share share;  /* the rest of the share of the CTA */
};

/* Makes the rows a class whose number of keys is the largest up to `most`. A warp calls it. */
static __device__ __forceinline__ void choose_rows(task &t, const um_cu_batch &b, int32_t most) {
    um_cu_cta &c = t.c;
    int32_t largest = -1, least = INT32_MAX, rest = 0;
    for (int32_t i = threadIdx.x % WARP; i < c.tile.n; i += WARP) {
        const int32_t end = min(c.span.keys.end, b.seen_end[c.tile.first + i]);
        if (end <= most) largest = max(largest, end);
    }
    largest = (int32_t)__reduce_max_sync(0xffffffffu, largest);
    t.piece = um_cu_piece_of(largest);
    c.above = t.piece > UM_CU_PIECE ? (t.piece - UM_CU_GROUP) * UM_CU_SLOTS : -1;
    for (int32_t i = threadIdx.x % WARP; i < c.tile.n; i += WARP) {
        const int32_t end = min(c.span.keys.end, b.seen_end[c.tile.first + i]);
        if (end <= c.above) rest = 1;
        else if (end <= largest) least = min(least, end);
    }
    c.bounds = {0, 0, __reduce_min_sync(0xffffffffu, least), largest};
    t.more_rows = __any_sync(0xffffffffu, rest);
    c.from = max(c.span.keys.start / UM_CU_GROUP * UM_CU_GROUP, t.slot * t.piece);
    c.to = min(largest, t.slot_end * t.piece);
}

static __device__ __forceinline__ void choose_tile(task &t, const um_cu_batch &b, int32_t tile, int32_t head) {
    t.c.tile = b.tile[tile];
    t.c.span = b.span[t.c.tile.span];
    t.c.page = um_cu_at<int32_t>(b, t.c.span.page);
    t.tile = tile;
    t.c.head = head;
}

/* Chooses the next slots of the share. A warp calls it. */
static __device__ __forceinline__ void choose_slots(task &t, const um_cu_batch &b, int32_t n_heads) {
    um_cu_share &s = t.share;
    t.there = s.left > 0 && s.tile < b.capacity.n_tiles;
    if (!t.there) return;
    choose_tile(t, b, s.tile, s.head);
    t.there = t.c.tile.n > 0;
    const int32_t end = t.c.span.keys.end, n = um_cu_slots_of(end), length = um_cu_piece_of(end) / UM_CU_GROUP;
    t.slot = s.slot;
    t.slot_end = min(n, s.slot + (s.left + length - 1) / length);
    t.merges = t.slot == 0;
    t.whole = t.merges && t.slot_end == n;
    s.left -= (t.slot_end - t.slot) * length;
    s.slot = 0;
    if (++s.head == n_heads) s.head = 0, s.tile++;
}

/* Sets the first task of the CTA. A warp calls it. */
static __device__ __forceinline__ void first_task(task &t, const um_cu_batch &b, const um_cu_flash &f) {
    t.c.group = f.a.n_heads / f.a.n_kv_heads;
    if (f.split) {
        t.share = um_cu_find_share(b, f.a.n_kv_heads, blockIdx.x, gridDim.x);
        choose_slots(t, b, f.a.n_kv_heads);
    } else {
        t.share = {0, 0, 0, 0};
        choose_tile(t, b, blockIdx.x, blockIdx.y);
        t.slot = 0;
        t.slot_end = UM_CU_SLOTS;
        t.merges = t.whole = true;
        t.there = t.c.tile.n > 0;
    }
    if (t.there) choose_rows(t, b, INT32_MAX);
}

/* Replaces the task by the next one. A warp calls it. */
static __device__ __forceinline__ void next_task(task &t, const um_cu_batch &b, int32_t n_heads) {
    if (t.more_rows) {
        choose_rows(t, b, t.c.above);
        return;
    }
    choose_slots(t, b, n_heads);
    if (t.there) choose_rows(t, b, INT32_MAX);
}

/* Stores the result of a slot of the rows. */
static __device__ __forceinline__ void write_slot(const um_cu_softmax<DIM> &st, const stream_args &a, const task &t,
                                                  const um_cu_row_pair &rows, int32_t slot) {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (rows.token[r] < 0) continue;
        const size_t at = slot_at(a, t.tile, t.c.head, rows.row[r], slot);
        float *out = a.f.a.partial + at * DIM + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < DIM / 8; i++)
            *(float2 *)(out + i * 8) = make_float2(st.acc[i][2 * r], st.acc[i][2 * r + 1]);
        if (lane % 4 == 0) states_of(a)[at] = make_float2(st.largest[r], st.sum[r]);
    }
}

/* Marks slots of the rows as pieces in which no key is seen. */
static __device__ __forceinline__ void write_empty(const stream_args &a, const task &t, const um_cu_row_pair &rows,
                                                   int32_t from, int32_t to) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        if (threadIdx.x % 4 || rows.token[r] < 0) continue;
        float2 *state = states_of(a) + slot_at(a, t.tile, t.c.head, rows.row[r], 0);
#pragma unroll 1
        for (int32_t slot = from; slot < to; slot++) state[slot] = make_float2(-INFINITY, 0);
    }
}

/* Computes a task with the groups of keys from `at` on. */
template <class S>
static __device__ __forceinline__ void compute(const um_cu_batch &b, const stream_args &a, const task &t, const ring &r,
                                               place &at, int warp) {
    const um_cu_cta &c = t.c;
    const int each = c.tile.n * c.group <= S::groups * GROUP_ROWS / 2 ? ROWS_PER_WARP / 2 : ROWS_PER_WARP;
    const float scale = a.f.a.scale * 1.44269504f; /* powers of two are used in place of exp */
    um_cu_row_pair rows;
    uint32_t q[DIM / 16][4];
    um_cu_softmax<DIM> all, part;
    um_cu_find_rows(rows, b, c, warp, each);
    um_cu_wait_for_previous();
    um_cu_load_queries<DIM>(q, a.f.a, rows);
    if constexpr (S::codes) halve_queries(q);
    um_cu_clear(all);
    int32_t slot = c.from < c.to ? c.from / t.piece : t.slot_end;
    if (!t.merges) write_empty(a, t, rows, t.slot, slot);
    for (int32_t first = c.from; first < c.to; first = ++slot * t.piece) {
        const int32_t end = min((slot + 1) * t.piece, c.to);
        um_cu_clear(part);
        if constexpr (S::stages > 2) add_piece<S>(part, q, c, rows, each, scale, r, at, first, end);
        else add_piece_in_turn<S>(part, q, c, rows, each, scale, r, at, first, end);
        um_cu_end_piece(part);
        if (t.merges) merge(all, part, each);
        else {
            um_cu_find_rows(rows, b, c, warp, each); /* again, so that no registers hold them all the time */
            write_slot(part, a, t, rows, slot);
        }
    }
    um_cu_find_rows(rows, b, c, warp, each);
    if (t.whole) um_cu_write_rows<DIM>(all, a.f.a, rows);
    else if (t.merges) write_slot(all, a, t, rows, 0);
    if (!t.whole) write_empty(a, t, rows, t.merges ? 1 : slot, t.slot_end);
}

/* All threads that compute or copy meet: when the task is done, and again when the next one is there. The barrier
 * counts warps, so the lanes of a warp come together first. */
template <class S> static __device__ __forceinline__ void meet() {
    __syncwarp();
    asm volatile("bar.sync 2, %0;" ::"n"(S::computing + S::copying) : "memory");
}

/* Copies the keys and values of all tasks. All warps of the warpgroup that copies call it. warp: of these. */
template <class S>
static __device__ __forceinline__ void copy_keys(const stream_args &a, const task &t, const ring &stages,
                                                 const ring &codes, const CUtensorMap *keys, const CUtensorMap *values,
                                                 int warp) {
    place to = {}, from = {};
    if (warp > S::converters) return;
    if constexpr (S::codes) {
        const code_box boxes = find_code_box(a);
        const code_lane lane = find_code_lane();
        for (; t.there; meet<S>(), meet<S>()) {
            if (warp == 0) request_keys<S::code_stages>(boxes, a, t.c, codes, from);
            else convert_groups<S>(lane, warp - 1, t.c, codes, from, stages, to);
        }
    } else {
        const box boxes = find_box(a, keys, values);
        for (; t.there; meet<S>(), meet<S>()) request_keys<S::stages>(boxes, a, t.c, stages, to);
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
    constexpr int BARRIERS = S::stages + S::code_stages; /* full; as many are empty */
    extern __shared__ char shared[];
    __shared__ uint64_t barrier[2 * BARRIERS];
    __shared__ task t;
    const uint32_t start = (uint32_t)__cvta_generic_to_shared(shared), base = (start + 1023) & ~1023u,
                   full = (uint32_t)__cvta_generic_to_shared(barrier), empty = full + 8 * BARRIERS;
    const ring stages = {base, full, empty},
               codes = {base + S::stages * STAGE_BYTES, full + 8 * S::stages, empty + 8 * S::stages};
    /* the same in all lanes, as the compiler sees */
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / WARP, 0), group = warp / 4;
    um_cu_let_next_start();
    if (warp == 0) {
        task mine;
        first_task(mine, b, a.f);
        if (threadIdx.x == 0) t = mine;
    } else if (threadIdx.x == WARP) {
        for (int i = 0; i < S::stages; i++) {
            um_cu_barrier_init(stages.full + 8 * i, S::codes ? S::converters : 1);
            um_cu_barrier_init(stages.empty + 8 * i, S::groups * 4);
        }
        for (int i = 0; i < S::code_stages; i++)
            um_cu_barrier_init(codes.full + 8 * i, 1), um_cu_barrier_init(codes.empty + 8 * i, S::converters);
        um_cu_barriers_ready();
    }
    __syncthreads();
    if (group == S::groups) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(S::few_registers));
        copy_keys<S>(a, t, stages, codes, &keys, &values, warp - group * 4);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(S::many_registers));
        place at = {};
        while (t.there) {
            compute<S>(b, a, t, stages, at, warp);
            meet<S>();
            if (warp == 0) {
                task mine = t;
                next_task(mine, b, a.f.a.n_kv_heads);
                __syncwarp();
                if (threadIdx.x == 0) t = mine;
                __syncwarp();
            }
            meet<S>();
        }
    }
    um_cu_wait_for_previous();
#endif
}

static constexpr int MERGE_WARPS = 4, MERGE_AT_ONCE = 8, MERGE_CTAS = 6;

/* Merges the n pieces of a row. Returns the lane's four elements of the products. */
static __device__ __forceinline__ float4 merge_row(const stream_args &a, size_t at, int32_t n, float *sum) {
    const int lane = threadIdx.x % WARP;
    const float4 *products = (const float4 *)(a.f.a.partial + at * DIM) + lane;
    const float2 mine = lane < n ? states_of(a)[at + lane] : make_float2(-INFINITY, 0);
    float4 acc = {};
    float largest = -INFINITY;
    *sum = 0;
    /* A piece in which no key is seen has the sum 0 and changes nothing. That of a query with NaN is NaN. */
    for (unsigned left = __ballot_sync(0xffffffffu, mine.y != 0); left;) {
        float4 v[MERGE_AT_ONCE]; /* loaded together */
        int slot[MERGE_AT_ONCE];
#pragma unroll
        for (int k = 0; k < MERGE_AT_ONCE; k++) {
            slot[k] = __ffs(left) - 1; /* -1: none */
            left &= left - 1;
            v[k] = products[max(slot[k], 0) * (DIM / 4)];
        }
#pragma unroll
        for (int k = 0; k < MERGE_AT_ONCE; k++) {
            float by_all, by_piece;
            const float x = __shfl_sync(0xffffffffu, mine.x, max(slot[k], 0)),
                        y = __shfl_sync(0xffffffffu, mine.y, max(slot[k], 0));
            if (slot[k] < 0) continue;
            largest = um_cu_common_scale(largest, x, &by_all, &by_piece);
            *sum = um_cu_weighted(*sum, by_all, y, by_piece);
            acc.x = um_cu_weighted(acc.x, by_all, v[k].x, by_piece);
            acc.y = um_cu_weighted(acc.y, by_all, v[k].y, by_piece);
            acc.z = um_cu_weighted(acc.z, by_all, v[k].z, by_piece);
            acc.w = um_cu_weighted(acc.w, by_all, v[k].w, by_piece);
        }
    }
    return acc;
}

/* Merges the pieces of rows and writes them. A warp computes a row at a time. Grid: tiles, KV heads, groups of rows. */
static __global__ void __launch_bounds__(MERGE_WARPS *WARP, MERGE_CTAS)
    merge_slots(const um_cu_batch b, const stream_args a, int32_t n_ctas) {
    um_cu_let_next_start();
    const um_cu_attention &f = a.f.a;
    const um_message_tile tile = b.tile[blockIdx.x];
    const int32_t head = blockIdx.y, group = f.n_heads / f.n_kv_heads, lane = threadIdx.x % WARP;
    const int32_t keys_end = b.span[tile.span].keys.end;
    const um_cu_column column = um_cu_find_column(b, f.n_kv_heads, blockIdx.x, n_ctas);
    const int32_t slots = um_cu_slots_of(keys_end), length = um_cu_piece_of(keys_end) / UM_CU_GROUP,
                  from = column.start + head * slots * length, warps = (int32_t)gridDim.z * MERGE_WARPS;
    const int32_t rows = tile.n * group;
    int32_t row = (int32_t)blockIdx.z * MERGE_WARPS + (int32_t)threadIdx.x / WARP;
    int32_t seen_end = row < rows ? b.seen_end[tile.first + row / group] : 0;
    um_cu_wait_for_previous();
    /* A CTA that computes a whole column writes its rows. */
    if (from / column.each == (from + (slots - 1) * length) / column.each) return;
    for (; row < rows; row += warps) {
        const int32_t t = tile.first + row / group, end = min(keys_end, seen_end), piece = um_cu_piece_of(end);
        float sum;
        if (row + warps < rows) seen_end = b.seen_end[tile.first + (row + warps) / group];
        const float4 acc = merge_row(a, slot_at(a, blockIdx.x, head, row, 0), (end + piece - 1) / piece, &sum);
        const float inverse = um_cu_inverse(sum);
        um_bf16 *out = (um_bf16 *)f.out + ((size_t)t * f.n_heads + head * group + row % group) * DIM;
        ((uint2 *)out)[lane] = make_uint2(um_cu_pack_two(um_cu_scaled(acc.x, inverse), um_cu_scaled(acc.y, inverse)),
                                          um_cu_pack_two(um_cu_scaled(acc.z, inverse), um_cu_scaled(acc.w, inverse)));
    }
}

/* ---- Launch ------------------------------------------------------------------------------------------------------ */

bool um_cu_attend_stream_exists() {
    cudaFuncAttributes kernel; /* only code for Hopper GPUs has the barriers in shared memory */
    const cudaError_t e = cudaFuncGetAttributes(&kernel, attend_stream<shape_of<1, false>>);
    return e == cudaSuccess && kernel.sharedSizeBytes > 0;
}

bool um_cu_attend_stream_suits(const um_cu_flash *f) {
    const int32_t page = f->kv.page_size;
    return f->a.head_dim == DIM && (f->kv.type == UM_BF16 || f->kv.type == UM_F8) && page >= 8 &&
           (page & (page - 1)) == 0 && f->tile_rows <= 2 * GROUP_ROWS;
}

/* Describes the pool that contains `first`, the first vector of a layer, from there on. */
static bool describe_pool(CUtensorMap *map, const um_cu_kv *kv, const char *first, int32_t box) {
    const int pool = kv->pool[1] && first >= kv->pool[1] && first < kv->pool[1] + kv->pool_bytes[1];
    const int64_t bytes = kv->pool[pool] + kv->pool_bytes[pool] - first;
    return um_cu_describe(map, sizeof(um_bf16), first, bytes / (int64_t)(DIM * sizeof(um_bf16)), DIM, DIM, box);
}

static int32_t n_multiprocessors() {
    int device = 0, n = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device);
    return n;
}

/* Returns whether columns are cut into shares. Many columns keep all CTAs busy; else merging takes as long as a slot.
 */
static bool should_split(const stream_args *a, int32_t n_tiles, int32_t n_ctas) {
    const int64_t columns = (int64_t)n_tiles * a->f.a.n_kv_heads, slots = a->f.a.n_pieces;
    return columns <= n_ctas && a->n_slots * (DIM + 2) * sizeof(float) <= a->f.a.partial_bytes &&
           UM_CEIL_DIV(columns * slots, n_ctas) + 1 < slots;
}

template <class S> static bool start(const um_cu_batch *b, stream_args *a, const um_cu_kv *kv, cudaStream_t s) {
    CUtensorMap keys = {}, values = {}; /* of vectors in bf16 */
    if (!S::codes &&
        (!describe_pool(&keys, kv, a->f.kv.key, a->box) || !describe_pool(&values, kv, a->f.kv.value, a->box)))
        return false;
    const int32_t n_tiles = b->capacity.n_tiles, n_sms = n_multiprocessors(), ctas = n_sms * S::ctas;
    const unsigned tiles = (unsigned)n_tiles, heads = (unsigned)a->f.a.n_kv_heads, columns = tiles * heads;
    a->n_slots = (size_t)columns * (size_t)a->f.tile_rows * (size_t)a->f.a.n_pieces;
    a->f.split = should_split(a, n_tiles, ctas);
    const dim3 grid =
        a->f.split ? dim3(UM_MIN((unsigned)ctas, columns * (unsigned)a->f.a.n_pieces)) : dim3(tiles, heads);
    cudaFuncSetAttribute(attend_stream<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::shared);
    um_cu_start(attend_stream<S>, grid, dim3(S::threads), S::shared, s, *b, *a, keys, values);
    if (!a->f.split) return true;
    /* A warp merges a row, or more where that many warps don't run at a time. */
    const unsigned most = UM_MAX((unsigned)(n_sms * MERGE_CTAS) / columns, 1u),
                   z = UM_MIN((unsigned)UM_CEIL_DIV(a->f.tile_rows, MERGE_WARPS), most);
    um_cu_start(merge_slots, dim3(tiles, heads, z), dim3(MERGE_WARPS * WARP), 0, s, *b, *a, (int32_t)grid.x);
    return true;
}

template <bool CODES> static bool start_for(const um_cu_batch *b, stream_args *a, const um_cu_kv *kv, cudaStream_t s) {
    if (a->f.tile_rows <= GROUP_ROWS) return start<shape_of<1, CODES>>(b, a, kv, s);
    return start<shape_of<2, CODES>>(b, a, kv, s);
}

bool um_cu_attend_stream(const um_cu_batch *b, const um_cu_flash *f, const um_cu_kv *kv, cudaStream_t s) {
    const bool prompt = b->capacity.n_tiles > b->capacity.n_spans;
    stream_args a = {*f, UM_MIN(f->kv.page_size, UM_CU_GROUP), 0, prompt, 0};
    a.f.a.n_pieces = UM_MIN(f->a.n_pieces, UM_CU_SLOTS);
    while (1 << a.page_shift < f->kv.page_size) a.page_shift++;
    return f->kv.type == UM_F8 ? start_for<true>(b, &a, kv, s) : start_for<false>(b, &a, kv, s);
}
