/* sample: the statistics of a row of logits that the kernels of the head share: edits, random numbers, partial answers.
 * Used inside the room cuda only. The formulas are those of ops/cpu/answer.c. */
#ifndef UM_CUDA_SAMPLE_CUH
#define UM_CUDA_SAMPLE_CUH

#include "cuda/kernels.cuh"

/* ids that are reduced to one partial answer */
static constexpr int SUBTILE = 2048;

/* The ids that the filters keep: those with a logit above `value`, and those with this logit from `id` on. */
struct um_cu_cut {
    float value;
    int32_t id;
};

/* The partial answer of a row from some of its ids. `sum` is that of exp(z - max) over all ids; with
 * x = (z - max) / temperature, `kept` is the sum of exp(x) and `moment` that of x exp(x) over the kept ids. best is -1
 * when no id is allowed. */
struct alignas(16) um_cu_partial {
    float max, second_z, draw_z, id_z;
    int32_t best, second, draw, unused;
    float sum, plain_moment, kept, moment;
};

/* A logit with its id. Of equal logits the highest id comes first. */
struct um_cu_ranked {
    float z;
    int32_t id;
};

static __device__ __forceinline__ bool comes_before(um_cu_ranked a, um_cu_ranked b) {
    return a.z > b.z || (a.z == b.z && a.id > b.id);
}
static __device__ __forceinline__ um_cu_ranked first_of(um_cu_ranked a, um_cu_ranked b) {
    return comes_before(b, a) ? b : a;
}

static __device__ __forceinline__ bool keeps(um_cu_cut cut, float z, int32_t id) {
    return z > cut.value || (z == cut.value && id >= cut.id);
}

/* Returns whether an id is drawn at random. */
static __device__ __forceinline__ bool draws(const um_message_row &r) {
    return r.want & UM_WANT_SAMPLE && r.how.temperature > 0;
}
static __device__ __forceinline__ float rate_of(const um_sampling &how) {
    return how.temperature > 0 ? 1 / how.temperature : 1;
}

/* ---- Random numbers: those of base/rng.c ---- */

static constexpr uint64_t RANDOM_STEP = 0x9e3779b97f4a7c15ull;

/* Returns a number whose first 31 bits are those of the random number for z = key + RANDOM_STEP * (counter + 1). */
static __device__ __forceinline__ uint64_t random_start(uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    return (z ^ z >> 27) * 0x94d049bb133111ebull;
}
static __device__ __forceinline__ uint64_t random_u64(uint64_t key, uint64_t counter) {
    const uint64_t z = random_start(key + RANDOM_STEP * (counter + 1));
    return z ^ z >> 31;
}

/* Returns standard Gumbel noise. The logarithms are in double, so that after rounding to fp32 they agree with those of
 * the host but for a rounding of the last bit in very rare cases. */
static __device__ __forceinline__ float gumbel(uint64_t random) {
    const double u = ((double)(random >> 12) + 0.5) * 0x1p-52;
    return (float)-log(-log(u));
}

/* Returns the least random number whose noise can reach `need`; 0 when every number can, the largest number when none
 * can. The reasons are in ops/cpu/answer.c. */
static __device__ __forceinline__ uint64_t least_random(float need) {
    const float ones = (need - 1e-3f) * 1.442695f;
    if (!(ones >= 1)) return 0;
    return ones > 53 ? ~0ull : ~(~0ull >> (int)ones);
}

/* Returns the score of an id in the draw, or minus infinity when it can't reach `least`. */
static __device__ __forceinline__ float draw_score(const um_sampling &how, int32_t id, float z, float least) {
    const float scaled = __fdiv_rn(z, how.temperature);
    const uint64_t random = random_u64(how.key, (uint64_t)id), limit = least_random(least - scaled);
    if (random < limit || limit == ~0ull) return -INFINITY;
    return __fadd_rn(scaled, gumbel(random));
}

/* ---- Edits ---- */

static __device__ __forceinline__ void apply_edit(const um_edit &e, float *z) {
    if (e.scale > 0) *z = *z > 0 ? __fdiv_rn(*z, e.scale) : __fmul_rn(*z, e.scale);
    *z = e.ban ? -INFINITY : __fadd_rn(*z, e.add);
}

/* The threads that share a work: those of a block, or of a warp. */
template <bool WARP> struct um_cu_team {
    static __device__ __forceinline__ int rank() { return WARP ? threadIdx.x % 32 : threadIdx.x; }
    static __device__ __forceinline__ int size() { return WARP ? 32 : blockDim.x; }
    static __device__ __forceinline__ void meet() {
        if constexpr (WARP) __syncwarp();
        else __syncthreads();
    }
};

/* Returns the index of the first edit whose id is at least `id`, or n. */
static __device__ __forceinline__ int32_t first_edit(const um_edit *edit, int32_t n, int32_t id) {
    int32_t low = 0, high = n;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (edit[middle].id < id) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Applies the edits of a row to the logits z of the ids [first, first + n), in shared memory. All threads of the team
 * call it. */
template <class T>
static __device__ void apply_edits(const um_cu_batch &b, const um_message_row &r, int32_t first, int32_t n, float *z) {
    const um_edit *edit = um_cu_at<um_edit>(b, r.edit), *own = um_cu_at<um_edit>(b, r.own);
    const int32_t low = first_edit(edit, r.n_edit, first);
    for (int32_t e = low + T::rank(); e < r.n_edit && edit[e].id < first + n; e += T::size()) {
        if (e > low && edit[e - 1].id == edit[e].id) continue; /* the first edit of an id applies them all in order */
        for (int32_t k = e; k < r.n_edit && edit[k].id == edit[e].id; k++) apply_edit(edit[k], &z[edit[e].id - first]);
    }
    T::meet();
    if (T::rank() == 0)
        for (int32_t e = 0; e < r.n_own; e++)
            if (own[e].id >= first && own[e].id < first + n) apply_edit(own[e], &z[own[e].id - first]);
    T::meet();
    if (r.allow < 0) return;
    const uint32_t *allow = um_cu_at<uint32_t>(b, r.allow);
    for (int32_t i = T::rank(); i < n; i += T::size())
        if (!(allow[(first + i) / 32] >> ((first + i) % 32) & 1)) z[i] = -INFINITY;
    T::meet();
}

/* Returns the logit z of an id after the edits of a row. */
static __device__ float edited(const um_cu_batch &b, const um_message_row &r, int32_t id, float z) {
    const um_edit *edit = um_cu_at<um_edit>(b, r.edit), *own = um_cu_at<um_edit>(b, r.own);
    for (int32_t e = first_edit(edit, r.n_edit, id); e < r.n_edit && edit[e].id == id; e++) apply_edit(edit[e], &z);
    for (int32_t e = 0; e < r.n_own; e++)
        if (own[e].id == id) apply_edit(own[e], &z);
    return r.allow >= 0 && !(um_cu_at<uint32_t>(b, r.allow)[id / 32] >> (id % 32) & 1) ? -INFINITY : z;
}

static __device__ __forceinline__ bool has_edits(const um_message_row &r) {
    return r.n_edit || r.n_own || r.allow >= 0;
}

static __device__ __forceinline__ float capped(float v, float cap) {
    return cap > 0 ? __fmul_rn(cap, tanhf(__fdiv_rn(v, cap))) : v;
}

/* Brings the logits of the SUBTILE ids from `first` on to shared memory: scaled, capped and edited, and minus infinity
 * beyond the vocabulary. All threads of the block call it. */
static __device__ void load_logits(const um_cu_batch &b, const um_message_row &r, const float *from, float scale,
                                   float cap, int32_t first, int32_t vocab, float *z) {
    for (int i = threadIdx.x; i < SUBTILE; i += blockDim.x) {
        z[i] = first + i < vocab ? capped(__fmul_rn(scale, from[i]), cap) : -INFINITY;
    }
    __syncthreads();
    if (has_edits(r)) apply_edits<um_cu_team<false>>(b, r, first, min(SUBTILE, vocab - first), z);
}

/* ---- Reductions over a warp and over a block of threads, in a fixed order ---- */

static constexpr int WARP_SIZE = 32, BLOCK_WARPS_MAX = 32;

static __device__ __forceinline__ um_cu_ranked warp_first(um_cu_ranked v) {
    for (int step = WARP_SIZE / 2; step; step /= 2)
        v = first_of(v, {__shfl_xor_sync(0xffffffffu, v.z, step), __shfl_xor_sync(0xffffffffu, v.id, step)});
    return v;
}
static __device__ __forceinline__ float warp_max(float v) {
    for (int step = WARP_SIZE / 2; step; step /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, step));
    return v;
}
template <typename N> static __device__ __forceinline__ N warp_sum(N v) {
    for (int step = WARP_SIZE / 2; step; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

static __device__ um_cu_ranked block_first(um_cu_ranked v) {
    __shared__ um_cu_ranked part[BLOCK_WARPS_MAX];
    v = warp_first(v);
    __syncthreads();
    if (threadIdx.x % WARP_SIZE == 0) part[threadIdx.x / WARP_SIZE] = v;
    __syncthreads();
    v = part[0];
    for (int i = 1; i < (int)(blockDim.x / WARP_SIZE); i++) v = first_of(v, part[i]);
    return v;
}

template <typename N> static __device__ N block_sum(N v) {
    __shared__ N part[BLOCK_WARPS_MAX];
    v = warp_sum(v);
    __syncthreads();
    if (threadIdx.x % WARP_SIZE == 0) part[threadIdx.x / WARP_SIZE] = v;
    __syncthreads();
    v = part[0];
    for (int i = 1; i < (int)(blockDim.x / WARP_SIZE); i++) v += part[i];
    return v;
}

/* ---- Rows that need all their logits ---- */

/* Returns the row of the batch with this number among them, or -1. All threads of the block call it. */
static __device__ int32_t um_cu_whole_row(const um_cu_batch &b, int32_t whole) {
    __shared__ int32_t found;
    if (threadIdx.x == 0) found = -1;
    __syncthreads();
    for (int32_t i = threadIdx.x; i < um_cu_header(b)->n_rows; i += blockDim.x)
        if (b.row[i].whole == whole) found = i;
    __syncthreads();
    return found;
}

/* Answers the rows with the numbers [whole, whole + n); logits [n, stride] are edited, and minus infinity beyond the
 * vocabulary (filter.cu). */
void um_cu_answer_whole_rows(const um_cu_batch *b, const float *logits, int32_t stride, int32_t whole, int32_t n,
                             um_answer *answer, um_top *top, cudaStream_t s);

/* ---- The answer ---- */

/* The statistics of a complete row; the sums as in um_cu_partial. */
struct um_cu_totals {
    um_cu_ranked best, second;
    float draw_z, id_z;
    int32_t draw;
    double sum, plain_moment, kept, moment;
};

static __device__ __forceinline__ float probability(const um_cu_totals &t, float z) {
    return (float)(exp((double)z - t.best.z) / t.sum);
}
static __device__ __forceinline__ float kept_probability(const um_cu_totals &t, const um_sampling &how, um_cu_cut cut,
                                                         float z, int32_t id) {
    return keeps(cut, z, id) ? (float)(exp(((double)z - t.best.z) * rate_of(how)) / t.kept) : 0;
}

/* Returns the answer of a row. Called by one thread. */
static __device__ um_answer answer_of(const um_message_row &r, um_cu_cut cut, const um_cu_totals &t) {
    um_answer a = {};
    a.best = a.second = a.sample = -1;
    a.logsumexp = -INFINITY;
    if (t.best.id < 0) return a;
    a.logsumexp = (float)(t.best.z + log(t.sum));
    if (r.want & UM_WANT_BEST) {
        a.best = t.best.id;
        a.p_best = probability(t, t.best.z);
        a.q_best = kept_probability(t, r.how, cut, t.best.z, t.best.id);
    }
    if (r.want & UM_WANT_SECOND && t.second.id >= 0) {
        a.second = t.second.id;
        a.p_second = probability(t, t.second.z);
        a.q_second = kept_probability(t, r.how, cut, t.second.z, t.second.id);
    }
    if (r.want & UM_WANT_SAMPLE) {
        const bool draws = r.how.temperature > 0;
        const float z = draws ? t.draw_z : t.best.z;
        a.sample = draws ? t.draw : t.best.id;
        a.p_sample = probability(t, z);
        a.q_sample = kept_probability(t, r.how, cut, z, a.sample);
    }
    if (r.want & UM_WANT_ENTROPY) a.entropy = (float)(log(t.kept) - t.moment / t.kept);
    if (r.want & UM_WANT_PLAIN_ENTROPY) a.entropy = (float)(log(t.sum) - t.plain_moment / t.sum);
    if (r.want & UM_WANT_PROB_OF) {
        a.p_id = probability(t, t.id_z);
        a.log_p_id = (float)((double)t.id_z - t.best.z - log(t.sum));
    }
    return a;
}

#endif
