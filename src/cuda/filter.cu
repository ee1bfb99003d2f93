/* filter: the answers of rows whose logits exist as a whole: top-p, top-k and min-p, and lists of the likeliest ids.
 * One block computes a row.
 *
 * Each filter keeps the first ids in the order of likelihood, so it is a cut: a logit, and an id among those that have
 * it. The cut is found in four passes. Each pass counts the ids by the next 8 bits of their logits, adds up their
 * weights, and walks from the largest logits down to where the weight passes the limit. Weights are numbers of fixed
 * point, so the order in which the threads add them does not matter. */
#include "cuda/sample.cuh"

static constexpr int THREADS = 1024, BIN_BITS = 8, BINS = 1 << BIN_BITS;
static constexpr double UNIT = 0x1p40; /* a weight of 1; 2^24 ids of weight 1 fit into 64 bits */

/* A row of logits. */
struct whole_row {
    const float *z;
    int32_t n;
    float max, rate;
};

/* Maps floats to unsigned integers of the same order. Both zeros have the same key. */
static __device__ __forceinline__ uint32_t key_of(float z) {
    const uint32_t bits = __float_as_uint(z + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}
static __device__ __forceinline__ float value_of(uint32_t key) {
    return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

/* Returns the weight of an id: exp((z - max) * rate), or 1. */
static __device__ __forceinline__ unsigned long long weight_of(const whole_row &w, float z, bool by_mass) {
    return by_mass ? (unsigned long long)(exp(((double)z - w.max) * w.rate) * UNIT) : 1;
}

/* Returns the sum of the weights of the ids whose logit is at least `least`. */
static __device__ unsigned long long mass_from(const whole_row &w, float least) {
    unsigned long long sum = 0;
    for (int32_t i = threadIdx.x; i < w.n; i += THREADS)
        if (w.z[i] > -INFINITY && w.z[i] >= least) sum += weight_of(w, w.z[i], true);
    return block_sum(sum);
}

/* Returns the nth id with this logit, counted from the highest id. */
static __device__ int32_t nth_id(const whole_row &w, float value, int32_t nth) {
    __shared__ int32_t count[THREADS], found;
    const int32_t each = (w.n + THREADS - 1) / THREADS, first = threadIdx.x * each, end = min(first + each, w.n);
    int32_t n = 0, above = 0;
    for (int32_t i = first; i < end; i++) n += w.z[i] == value;
    __syncthreads();
    count[threadIdx.x] = n;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    for (int t = threadIdx.x + 1; t < THREADS; t++) above += count[t];
    if (above < nth && above + n >= nth)
        for (int32_t i = end; i-- > first;)
            if (w.z[i] == value && ++above == nth) found = i;
    __syncthreads();
    return found;
}

/* Finds the last id that is kept: the id with which the running weight exceeds the limit. Without such an id all are
 * kept. */
static __device__ um_cu_cut find_cut(const whole_row &w, bool by_mass, unsigned long long limit) {
    __shared__ unsigned long long mass[BINS], before;
    __shared__ int32_t count[BINS], bin;
    uint32_t prefix = 0;
    if (threadIdx.x == 0) before = 0;
    for (int shift = 32 - BIN_BITS; shift >= 0; shift -= BIN_BITS) {
        __syncthreads();
        for (int i = threadIdx.x; i < BINS; i += THREADS) mass[i] = 0, count[i] = 0;
        __syncthreads();
        for (int32_t i = threadIdx.x; i < w.n; i += THREADS) {
            const uint32_t key = key_of(w.z[i]);
            if (!(w.z[i] > -INFINITY) || (shift < 32 - BIN_BITS && key >> (shift + BIN_BITS) != prefix)) continue;
            atomicAdd(&mass[key >> shift & (BINS - 1)], weight_of(w, w.z[i], by_mass));
            atomicAdd(&count[key >> shift & (BINS - 1)], 1);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int32_t last = -1;
            unsigned long long sum = before, above_last = before;
            for (bin = BINS - 1; bin >= 0; bin--) {
                if (count[bin] == 0) continue;
                last = bin;
                above_last = sum;
                sum += mass[bin];
                if (sum > limit) break;
            }
            before = above_last;
            if (bin < 0) bin = shift == 32 - BIN_BITS ? -1 : last;
        }
        __syncthreads();
        if (bin < 0) return {-INFINITY, 0};
        prefix = prefix << BIN_BITS | (uint32_t)bin;
    }
    const unsigned long long each = mass[bin] / (unsigned long long)count[bin];
    const unsigned long long more = each ? (limit - before) / each + 1 : (unsigned long long)count[bin];
    const float value = value_of(prefix);
    return {value, nth_id(w, value, (int32_t)min(max(more, 1ull), (unsigned long long)count[bin]))};
}

static __device__ um_cu_cut stricter(um_cu_cut a, um_cu_cut b) {
    if (a.value == b.value) return a.id > b.id ? a : b;
    return a.value > b.value ? a : b;
}

/* Returns the cut of all filters of a row. */
static __device__ um_cu_cut cut_of(whole_row w, const um_sampling &how) {
    um_cu_cut cut = {-INFINITY, 0};
    if (how.filters_first) w.rate = 1;
    if (how.top_k > 0 && how.top_k < w.n) {
        const um_cu_cut k = find_cut(w, false, (unsigned long long)how.top_k - 1);
        cut = {k.value, 0}; /* keeps all ids whose logit equals the k-th */
    }
    if (how.top_p < 1) {
        const unsigned long long mass = mass_from(w, how.filters_first ? cut.value : -INFINITY);
        cut = stricter(cut, find_cut(w, true, (unsigned long long)(how.top_p * (double)mass)));
    }
    if (how.min_p > 0) {
        const float temperature = how.temperature > 0 && !how.filters_first ? how.temperature : 1;
        cut = stricter(cut, {fminf(w.max + temperature * logf(how.min_p), w.max), 0});
    }
    return cut;
}

/* Finds the best and the drawn id, and the sums. */
static __device__ um_cu_totals totals_of(const whole_row &w, const um_message_row &r, um_cu_cut cut,
                                         um_cu_ranked best) {
    __shared__ float least;
    um_cu_totals t = {};
    um_cu_ranked second = {-INFINITY, -1}, draw = second;
    double sum = 0, plain_moment = 0, kept = 0, moment = 0;
    const bool draws = r.want & UM_WANT_SAMPLE && r.how.temperature > 0;
    if (threadIdx.x == 0)
        least = draws && keeps(cut, best.z, best.id) ? draw_score(r.how, best.id, best.z, -INFINITY) : -INFINITY;
    __syncthreads();
    for (int32_t i = threadIdx.x; i < w.n; i += THREADS) {
        const float z = w.z[i];
        if (!(z > -INFINITY)) continue;
        if (i != best.id) second = first_of(second, {z, i});
        const double below = (double)z - w.max, plain = exp(below);
        sum += plain;
        plain_moment += plain * below;
        if (!keeps(cut, z, i)) continue;
        const double x = below * w.rate, e = exp(x);
        kept += e;
        moment += e * x;
        if (!draws) continue;
        const float score = draw_score(r.how, i, z, least);
        if (score > -INFINITY) draw = first_of(draw, {score, i});
    }
    t.best = best;
    t.second = block_first(second);
    draw = block_first(draw);
    t.draw = draw.id;
    t.draw_z = draw.id < 0 ? -INFINITY : w.z[draw.id];
    t.id_z = r.id >= 0 && r.id < w.n ? w.z[r.id] : -INFINITY;
    t.sum = block_sum(sum);
    t.plain_moment = block_sum(plain_moment);
    t.kept = block_sum(kept);
    t.moment = block_sum(moment);
    return t;
}

/* Writes the list of the likeliest ids. */
static __device__ void write_tops(const whole_row &w, const um_message_row &r, um_cu_cut cut, const um_cu_totals &t,
                                  um_top *top) {
    __shared__ um_cu_ranked list[UM_TOP_MAX];
    __shared__ int32_t n;
    const um_cu_cut last = find_cut(w, false, (unsigned long long)r.n_top - 1);
    if (threadIdx.x == 0) n = 0;
    __syncthreads();
    for (int32_t i = threadIdx.x; i < w.n; i += THREADS)
        if (w.z[i] > -INFINITY && keeps(last, w.z[i], i)) list[atomicAdd(&n, 1) % UM_TOP_MAX] = {w.z[i], i};
    __syncthreads();
    const int32_t i = threadIdx.x;
    if (i < n) { /* the place of an entry is the number of entries before it */
        int32_t place = 0;
        for (int32_t k = 0; k < n; k++) place += comes_before(list[k], list[i]);
        top[place] = {list[i].id, probability(t, list[i].z), kept_probability(t, r.how, cut, list[i].z, list[i].id)};
    } else if (i < r.n_top) top[i] = {-1, 0, 0};
}

static __global__ void __launch_bounds__(THREADS) answer_whole(const um_cu_batch b, const float *logits, int32_t stride,
                                                               int32_t whole, um_answer *answer, um_top *top) {
    const int32_t row = um_cu_whole_row(b, whole + blockIdx.x);
    if (row < 0) return;
    const um_message_row r = b.row[row];
    whole_row w = {logits + (size_t)blockIdx.x * stride, stride, 0, rate_of(r.how)};
    um_cu_ranked best = {-INFINITY, -1};
    for (int32_t i = threadIdx.x; i < w.n; i += THREADS)
        if (w.z[i] > -INFINITY) best = first_of(best, {w.z[i], i});
    best = block_first(best);
    w.max = best.z;
    um_cu_totals t = {};
    t.best = {-INFINITY, -1};
    um_cu_cut cut = {-INFINITY, 0};
    if (best.id >= 0) {
        cut = cut_of(w, r.how);
        t = totals_of(w, r, cut, best);
        if (r.n_top) write_tops(w, r, cut, t, top + r.top);
    } else if ((int32_t)threadIdx.x < r.n_top) top[r.top + threadIdx.x] = {-1, 0, 0};
    if (threadIdx.x == 0) answer[row] = answer_of(r, cut, t);
}

void um_cu_answer_whole_rows(const um_cu_batch *b, const float *logits, int32_t stride, int32_t whole, int32_t n,
                             um_answer *answer, um_top *top, cudaStream_t s) {
    answer_whole<<<(unsigned)n, THREADS, 0, s>>>(*b, logits, stride, whole, answer, top);
}
