/* attention_ring: how keys and values reach attention_stream.cu. A ring in shared memory has stages, each with a group
 * of keys and their values as operands of wgmma. Used inside the room cuda only.
 *
 * Vectors in bf16 are copied into the stages by the copy engine. Vectors in 8 bits are copied, with their scales, into
 * a ring of their own. Three warps convert them to fp16, whose products the matrix units compute as fast as those of
 * bf16: one instruction converts two codes to fp16, but four convert them to bf16. A vector is multiplied by its scale
 * there. Products of codes and scales have 11 bits in fp16 and 8 in bf16. */
#ifndef UM_CUDA_ATTENTION_RING_CUH
#define UM_CUDA_ATTENTION_RING_CUH

#include "cuda/attention_share.cuh"
#include "cuda/tensor_map.cuh"
#include "cuda/wgmma.cuh"

static constexpr int DIM = 128, ROW_BYTES = 128, HALF_COLUMNS = ROW_BYTES / 2, HALVES = DIM / HALF_COLUMNS;
static constexpr int HALF_BYTES = UM_CU_GROUP * ROW_BYTES, PART_BYTES = HALVES * HALF_BYTES,
                     STAGE_BYTES = 2 * PART_BYTES;
static constexpr int GROUP_ROWS = 64, GROUP_THREADS = 128; /* of a warpgroup */
static constexpr float HALF_MAX = 65504;                   /* the largest number of fp16 */
static constexpr float SCALE_MAX = 146.125f;               /* of fp16; 448 times the next number is infinite in fp16 */

/* A stage of vectors in 8 bits: the codes of the keys, those of the values, the scales of both. */
static constexpr int CODES_BYTES = UM_CU_GROUP * DIM, SCALES_BYTES = UM_CU_GROUP * (int)sizeof(float),
                     CODES_STAGE_BYTES = 2 * (CODES_BYTES + SCALES_BYTES);

/* A CTA with GROUPS warpgroups that compute, for keys in 8 bits with CODES. Two CTAs with one such warpgroup share a
 * multiprocessor. The registers of a thread: the compiler divides them evenly, and the warpgroups that compute take
 * those of the one that copies. */
template <int GROUPS, bool CODES> struct shape_of {
    static constexpr int groups = GROUPS, computing = GROUPS * GROUP_THREADS, threads = computing + GROUP_THREADS;
    static constexpr bool codes = CODES;
    static constexpr int ctas = 2 / GROUPS;
    static constexpr int converters = CODES ? 3 : 0;        /* warps that convert */
    static constexpr int copying = (1 + converters) * WARP; /* threads of the warpgroup that copies */
    static constexpr int stages = CODES ? 2 * GROUPS : 3 * GROUPS, code_stages = !CODES ? 0 : GROUPS == 1 ? 2 : 5;
    static constexpr int shared = 1024 + stages * STAGE_BYTES + code_stages * CODES_STAGE_BYTES;
    /* A warpgroup waits forever for registers that the CTA did not get at its start. */
    static constexpr int even_registers = 65536 / (ctas * threads) / 8 * 8;
    static constexpr int few_registers = CODES ? 40 : 24,
                         many_registers = ((GROUPS == 1 ? 256 : 252) - few_registers / GROUPS) / 8 * 8;
    static_assert(GROUPS * many_registers + few_registers <= (GROUPS + 1) * even_registers, "registers of a CTA");
    static_assert(many_registers % 8 == 0 && many_registers <= 240, "registers of a thread");
};

struct stream_args {
    um_cu_flash f;      /* f.a.n_pieces: the slots of a column in `partial` */
    int32_t box;        /* keys of a box */
    int32_t page_shift; /* a page has 1 << page_shift keys */
    bool shared;        /* CTAs share keys, so the L2 cache keeps them */
    size_t n_slots;     /* slots of all rows in `partial` */
};

#ifdef UM_CU_HAS_WGMMA
/* Addresses in shared memory of a ring. full[i] is completed when stage i has been filled, empty[i] by the warps that
 * have read it. */
struct ring {
    uint32_t base, full, empty;
};

/* The stage of a ring that is written or read next. */
struct place {
    uint32_t stage, parity;
};

template <int STAGES> static __device__ __forceinline__ void next_place(place &p) {
    if (++p.stage == STAGES) p.stage = 0, p.parity ^= 1;
}

/* Returns whether a lane requests the box that begins with `key`: it `asks`, and a key of the box is read. */
static __device__ __forceinline__ bool is_read(bool asks, int32_t key, const stream_args &a, const um_cu_cta &c) {
    const um_range hole = c.span.hole;
    const int32_t end = key + a.box;
    return asks && end > c.span.keys.start && key < c.to && !(key >= hole.start && end <= hole.end);
}

/* Returns the bytes from the first range of the layer to that of a key, and the slot of the key there. */
static __device__ __forceinline__ size_t range_of(int32_t key, const stream_args &a, const um_cu_cta &c) {
    return um_cu_range_at(a.f.kv, c.page[key >> a.page_shift], c.head);
}
static __device__ __forceinline__ int32_t slot_of(int32_t key, const stream_args &a) {
    return key & ((1 << a.page_shift) - 1);
}

static __device__ __forceinline__ uint64_t copy_policy(const stream_args &a) {
    return a.shared ? 0x1000000000000000ull : 0x12f0000000000000ull; /* evict normally, or first */
}

/* ---- Vectors in bf16 --------------------------------------------------------------------------------------------- */

/* The box that a lane requests of each group: 64 elements of the keys, or of the values, of a page. */
struct box {
    int32_t first;   /* key of the group that is the first one of the box */
    uint32_t at;     /* bytes from the start of a stage */
    int32_t column;  /* first element of the vectors */
    const void *map; /* of keys or values; NULL: the lane requests nothing */
};

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

/* Returns the row of the pool where the box of the group at `group` begins; -1: no key of the box is read. */
static __device__ __forceinline__ int32_t find_row(const box &b, int32_t group, const stream_args &a,
                                                   const um_cu_cta &c) {
    const int32_t key = group + b.first, slot = slot_of(key, a);
    if (!is_read(b.map, key, a, c)) return -1;
    return (int32_t)(range_of(key, a, c) / (DIM * sizeof(um_bf16))) + slot;
}

/* Requests the group of keys at `group`. One warp calls it. */
static __device__ __forceinline__ void request_group(const box &b, int32_t group, const stream_args &a,
                                                     const um_cu_cta &c, const ring &r, const place &p) {
    const uint64_t policy = copy_policy(a);
    const uint32_t full = r.full + 8 * p.stage;
    const int32_t row = find_row(b, group, a, c);
    const int n = __popc(__ballot_sync(0xffffffffu, row >= 0));
    um_cu_barrier_wait(r.empty + 8 * p.stage, p.parity ^ 1);
    if (threadIdx.x % WARP == 0) um_cu_barrier_expect(full, n * a.box * ROW_BYTES);
    __syncwarp();
    if (row >= 0) um_cu_copy_tile(r.base + p.stage * STAGE_BYTES + b.at, b.map, b.column, row, full, policy);
}

/* ---- Vectors in 8 bits ------------------------------------------------------------------------------------------- */

/* What a lane requests of each group: the codes or the scales of the keys, or of the values, of a page. */
struct code_box {
    const char *from; /* in the first range of the layer: its first code or scale; NULL: the lane requests nothing */
    int32_t first;    /* key of the group that is the first one of the box */
    int32_t each;     /* bytes of a key */
    uint32_t at;      /* bytes from the start of a stage */
};

static __device__ __forceinline__ code_box find_code_box(const stream_args &a) {
    const int32_t lane = threadIdx.x % WARP, value = lane % 2, scale = lane / 2 % 2, first = lane / 4 * a.box;
    code_box b;
    b.first = first;
    b.each = scale ? (int32_t)sizeof(float) : DIM;
    b.at = (scale ? 2 * CODES_BYTES + value * SCALES_BYTES : value * CODES_BYTES) + first * b.each;
    b.from = first >= UM_CU_GROUP ? NULL : (value ? a.f.kv.value : a.f.kv.key) + (scale ? a.f.kv.scales : 0);
    return b;
}

/* Requests the group of keys at `group`. One warp calls it. */
static __device__ __forceinline__ void request_group(const code_box &b, int32_t group, const stream_args &a,
                                                     const um_cu_cta &c, const ring &r, const place &p) {
    const uint32_t full = r.full + 8 * p.stage;
    const int32_t key = group + b.first;
    const char *from = NULL;
    if (is_read(b.from, key, a, c)) from = b.from + range_of(key, a, c) + slot_of(key, a) * b.each;
    const int n = __popc(__ballot_sync(0xffffffffu, from != NULL)) / 4; /* boxes, each with four copies */
    um_cu_barrier_wait(r.empty + 8 * p.stage, p.parity ^ 1);
    if (threadIdx.x % WARP == 0) um_cu_barrier_expect(full, n * a.box * (CODES_STAGE_BYTES / UM_CU_GROUP));
    __syncwarp();
    if (from) um_cu_copy_bytes(r.base + p.stage * CODES_STAGE_BYTES + b.at, from, a.box * b.each, full, copy_policy(a));
}

/* Converts four codes to fp16 and multiplies them by a scale. */
static __device__ __forceinline__ uint2 widen_codes(uint32_t word, uint32_t scale) {
    uint32_t pair[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        asm("{\n"
            ".reg .b32 v;\n"
            "cvt.rn.f16x2.e4m3x2 v, %1;\n"
            "mul.rn.f16x2 %0, v, %2;\n"
            "}"
            : "=r"(pair[i])
            : "h"((unsigned short)(word >> 16 * i)), "r"(scale));
    return make_uint2(pair[0], pair[1]);
}

/* The codes of a lane in a unit of work: eight keys, or the values of eight keys. Eight lanes take two adjacent keys,
 * at first the lower half of one and the upper half of the other, then the other halves. So neither their loads nor
 * their stores meet in a bank. A lane takes 16 codes of each half. */
struct code_lane {
    int32_t key;   /* of the unit */
    uint32_t from; /* bytes from the start of the unit's codes; of the other half: from ^ DIM / 2 */
    uint32_t to;   /* bytes from the start of its operands; of the other half: to ^ HALF_BYTES; then 16 bytes at ^ 16 */
};
static constexpr int UNIT_KEYS = 8, UNITS = UM_CU_GROUP / UNIT_KEYS; /* of the keys; as many of the values */

static __device__ __forceinline__ code_lane find_code_lane() {
    const int lane = threadIdx.x % WARP, piece = lane % 4, half = lane / 4 % 2, key = lane / 8 * 2 + half;
    return {key, (uint32_t)(key * DIM + half * (DIM / 2) + piece * 16),
            (uint32_t)(half * HALF_BYTES + key * ROW_BYTES + (2 * piece ^ key) * 16)};
}

/* Loads the scale of a vector as two equal numbers of fp16. A scale by which codes would exceed fp16 is made smaller. A
 * scale below 2^-14, of a vector whose elements are below 0.03, has fewer bits. Up to 2^-25 it becomes 0. */
static __device__ __forceinline__ uint32_t load_scale(uint32_t from) {
    float v;
    uint32_t two;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(from) : "memory");
    v = v > SCALE_MAX ? SCALE_MAX : v; /* NaN stays */
    asm("cvt.rn.f16x2.f32 %0, %1, %1;" : "=r"(two) : "f"(v));
    return two;
}

/* Converts 16 codes. */
static __device__ __forceinline__ void store_widened(uint32_t group, uint32_t to, uint4 code, uint32_t scale) {
    const uint2 a = widen_codes(code.x, scale), b = widen_codes(code.y, scale), c = widen_codes(code.z, scale),
                d = widen_codes(code.w, scale);
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(group + to), "r"(a.x), "r"(a.y), "r"(b.x), "r"(b.y)
                 : "memory");
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(group + (to ^ 16)), "r"(c.x), "r"(c.y), "r"(d.x),
                 "r"(d.y)
                 : "memory");
}

/* Converts a group from one stage to another one, which are the operands of the products. Values of keys that are
 * hidden from all rows become zero, since 0 * NaN is NaN. Codes are loaded while those before are converted. warp: of
 * those that convert. */
template <class S>
static __device__ __forceinline__ void convert_codes(const code_lane &l, int warp, uint32_t codes, uint32_t group,
                                                     const um_cu_cta &c, int32_t first, bool whole) {
    constexpr int UNIT_CODES = UNIT_KEYS * DIM, UNIT_BYTES = UNIT_KEYS * ROW_BYTES;
    const uint32_t lower = codes + l.from, upper = codes + (l.from ^ DIM / 2),
                   scales = codes + 2 * CODES_BYTES + l.key * (int)sizeof(float);
    uint4 one = um_cu_load_sixteen(lower + warp * UNIT_CODES);
#pragma unroll 1
    for (int unit = warp; unit < 2 * UNITS; unit += S::converters) { /* of the keys, then of the values */
        const bool value = unit >= UNITS;
        const uint32_t to = group + unit * UNIT_BYTES + value * (PART_BYTES - UNITS * UNIT_BYTES);
        uint32_t scale = load_scale(scales + unit * UNIT_KEYS * (int)sizeof(float));
        uint4 two = um_cu_load_sixteen(upper + unit * UNIT_CODES);
        if (value && !whole && !um_cu_sees(c.span, first + (unit - UNITS) * UNIT_KEYS + l.key, c.to)) {
            one = two = make_uint4(0, 0, 0, 0);
            scale = 0;
        }
        store_widened(to, l.to, one, scale);
        if (unit + S::converters < 2 * UNITS) one = um_cu_load_sixteen(lower + (unit + S::converters) * UNIT_CODES);
        store_widened(to, l.to ^ HALF_BYTES, two, scale);
    }
}

/* Converts all groups of a task. The warps that convert call it. */
template <class S>
static __device__ __forceinline__ void convert_groups(const code_lane &l, int warp, const um_cu_cta &c,
                                                      const ring &codes, place &from, const ring &r, place &to) {
    for (int32_t group = c.from; group < c.to; group += UM_CU_GROUP) {
        um_cu_barrier_wait(codes.full + 8 * from.stage, from.parity);
        um_cu_barrier_wait(r.empty + 8 * to.stage, to.parity ^ 1);
        convert_codes<S>(l, warp, codes.base + from.stage * CODES_STAGE_BYTES, r.base + to.stage * STAGE_BYTES, c,
                         group, um_cu_is_whole(c, group, c.to));
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); /* the products read what was stored */
        __syncwarp();
        if (threadIdx.x % WARP == 0) {
            um_cu_barrier_arrive(r.full + 8 * to.stage);
            um_cu_barrier_arrive(codes.empty + 8 * from.stage);
        }
        next_place<S::code_stages>(from);
        next_place<S::stages>(to);
    }
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

/* Requests all groups of a task. Those that no kernel of the pass writes are requested while the kernel before ends.
 * One warp calls it. */
template <int STAGES, class BOX>
static __device__ __forceinline__ void request_keys(const BOX &b, const stream_args &a, const um_cu_cta &c,
                                                    const ring &r, place &p) {
    bool waited = false;
    for (int32_t group = c.from; group < c.to; group += UM_CU_GROUP, next_place<STAGES>(p)) {
        if (!waited && group + UM_CU_GROUP > c.span.settled) um_cu_wait_for_previous(), waited = true;
        request_group(b, group, a, c, r, p);
    }
    if (!waited) um_cu_wait_for_previous();
}
#endif

#endif
