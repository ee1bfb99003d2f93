/* partial: reduces the logits of a tile of the vocabulary to partial answers, and merges the partial answers of rows.
 *
 * A warp reduces the logits of a subtile of a row, and reads them once. Each lane has sums of its own, relative to the
 * largest logit that it has read, and the sums of the lanes are added at the end. So the order of the sums is that of
 * the ids of a lane, then that of the lanes, and does not depend on other rows. */
#include "cuda/mma.cuh"
#include "cuda/partial.cuh"

/* ---- Partial answers --------------------------------------------------------------------------------------------- */

/* A warp goes through its subtile in chunks, of which each lane has EACH logits: runs of adjacent ids that one load
 * brings. The loads of a chunk are started before the chunk before it is added. */
static constexpr int REDUCE_WARPS = 4, REDUCE_BLOCKS = 6, EACH = 16, RUN = 4, CHUNK = EACH * WARP_SIZE;
static_assert(SUBTILE % CHUNK == 0 && EACH % RUN == 0, "a subtile is a number of chunks");

/* The logits of a subtile of a row. */
struct subtile {
    const float *from; /* as the product has left them */
    float scale, cap;
    int32_t first, n; /* first id; number of ids, at most SUBTILE */
};

/* The statistics of the logits that a lane has read. The sums and reaches are relative to `max`. */
struct lane_part {
    float max, second_z;
    int32_t best, second; /* places in the subtile; -1: none */
    float sum, plain_moment, kept, moment;
    /* The two largest bounds of exp(score) in a draw (add_reaches), and the place of the largest one. */
    float reach, next_reach;
    int32_t likely;
};

/* Returns the distance of a lane's logit i from its first logit. */
static __device__ __forceinline__ constexpr int distance_of(int i) { return i / RUN * WARP_SIZE * RUN + i % RUN; }

/* Returns the logit at a place of the subtile. */
static __device__ __forceinline__ float logit_at(const um_cu_batch &b, const um_message_row &r, const subtile &s,
                                                 int place) {
    const float z = capped(__fmul_rn(s.scale, s.from[place]), s.cap);
    return has_edits(r) ? edited(b, r, s.first + place, z) : z;
}

/* Loads a lane's logits of a chunk, as the product has left them. place: of the first one. */
static __device__ __forceinline__ void load_chunk(const subtile &s, int place, float z[EACH]) {
    if (s.n == SUBTILE) {
#pragma unroll
        for (int i = 0; i < EACH; i += RUN) *(float4 *)(z + i) = *(const float4 *)(s.from + place + distance_of(i));
    } else {
#pragma unroll
        for (int i = 0; i < EACH; i++) z[i] = place + distance_of(i) < s.n ? s.from[place + distance_of(i)] : 0;
    }
}

/* Scales, caps and edits the logits of a chunk. Those beyond the ids become minus infinity, and so does NaN. memory
 * [CHUNK] is shared memory of the warp. */
static __device__ __forceinline__ void edit_chunk(const um_cu_batch &b, const um_message_row &r, const subtile &s,
                                                  int place, float *memory, float z[EACH]) {
#pragma unroll
    for (int i = 0; i < EACH; i++) z[i] = __fmul_rn(s.scale, z[i]);
    if (s.cap > 0) {
#pragma unroll
        for (int i = 0; i < EACH; i++) z[i] = capped(z[i], s.cap);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) z[i] = fmaxf(z[i], -INFINITY);
    if (s.n < SUBTILE) {
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (place + distance_of(i) >= s.n) z[i] = -INFINITY;
    }
    if (!has_edits(r)) return;
    const int lane = threadIdx.x % WARP_SIZE, start = place - lane * RUN;
    float *own = memory + lane * RUN;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < EACH; i += RUN) *(float4 *)(own + distance_of(i)) = *(float4 *)(z + i);
    __syncwarp();
    if (start < s.n) apply_edits<um_cu_team<true>>(b, r, s.first + start, min(CHUNK, s.n - start), memory);
#pragma unroll
    for (int i = 0; i < EACH; i += RUN) *(float4 *)(z + i) = *(float4 *)(own + distance_of(i));
}

/* Returns exp(v) for v <= 0; 0 where that is below the normal numbers. */
static __device__ __forceinline__ float exp_of(float v) {
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(v * 1.44269504f));
    return e;
}

/* Smaller exponents add nothing to a moment, and minus infinity must not meet a zero. */
static constexpr float LEAST_EXPONENT = -200;

/* Makes the sums relative to a larger maximum. */
static __device__ __forceinline__ void raise_max(lane_part &l, float max, float rate) {
    if (l.max > -INFINITY) {
        const float by = l.max - max, plain = exp_of(by), factor = exp_of(by * rate);
        l.plain_moment = plain * (l.plain_moment + l.sum * by);
        l.sum *= plain;
        l.moment = factor * (l.moment + l.kept * by * rate);
        l.kept *= factor;
        l.reach *= factor;
        l.next_reach *= factor;
    }
    l.max = max;
}

/* Finds the best id of a chunk, and the second best one where it is wanted. */
static __device__ __forceinline__ void find_best(lane_part &l, const float z[EACH], float most, int place,
                                                 bool wants_second) {
    const um_cu_ranked before = {l.max, l.best};
    const bool better = most > -INFINITY && most >= l.max;
    if (better) {
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (z[i] == most) l.best = place + distance_of(i);
    }
    if (!wants_second) return;
    um_cu_ranked second = {l.second_z, l.second};
    if (better) second = first_of(second, before);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (z[i] > -INFINITY && place + distance_of(i) != l.best)
            second = first_of(second, {z[i], place + distance_of(i)});
    l.second_z = second.z;
    l.second = second.id;
}

/* Returns the largest number that is at most 1 - u and a multiple of 2^-23, where u is the uniform number that belongs
 * to key + RANDOM_STEP * (counter + 1). */
static __device__ __forceinline__ float least_below_one(uint64_t z) {
    const uint32_t start = (uint32_t)(random_start(z) >> 32) >> 9;
    return 0x1.fffffep0f - __uint_as_float(start | 0x3f800000u);
}

/* Finds the largest bounds of a draw. The score of an id is z / temperature - log(-log u), for which a logarithm in
 * double is computed twice. As -log u >= 1 - u, its exponential is at most exp(z / temperature) / (1 - u). weight
 * [EACH] are those powers. */
static __device__ __forceinline__ void add_reaches(lane_part &l, const float weight[EACH], uint64_t random, int place) {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const float reach = __fdividef(weight[i], least_below_one(random + RANDOM_STEP * (uint64_t)distance_of(i)));
        l.next_reach = fmaxf(l.next_reach, fminf(l.reach, reach));
        if (reach > l.reach) l.reach = reach, l.likely = place + distance_of(i);
    }
}

/* Adds a chunk of logits to the lane's statistics. place: of the first one. */
static __device__ __forceinline__ void add_chunk(lane_part &l, const um_message_row &r, const subtile &s,
                                                 const float z[EACH], int place, float rate) {
    float most = z[0], weight[EACH];
#pragma unroll
    for (int i = 1; i < EACH; i++) most = fmaxf(most, z[i]);
    find_best(l, z, most, place, r.want & UM_WANT_SECOND);
    if (most > l.max) raise_max(l, most, rate);
    const float max = l.max > -INFINITY ? l.max : 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) weight[i] = exp_of(z[i] - max);
#pragma unroll
    for (int i = 0; i < EACH; i++) l.sum += weight[i];
    if (r.want & UM_WANT_PLAIN_ENTROPY) {
#pragma unroll
        for (int i = 0; i < EACH; i++) l.plain_moment += weight[i] * fmaxf(z[i] - max, LEAST_EXPONENT);
    }
    if (rate == 1 && !(r.want & UM_WANT_ENTROPY) && !draws(r)) return;
    if (rate != 1) {
#pragma unroll
        for (int i = 0; i < EACH; i++) weight[i] = exp_of((z[i] - max) * rate);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) l.kept += weight[i];
    if (r.want & UM_WANT_ENTROPY) {
#pragma unroll
        for (int i = 0; i < EACH; i++) l.moment += weight[i] * fmaxf((z[i] - max) * rate, LEAST_EXPONENT);
    }
    if (draws(r)) add_reaches(l, weight, r.how.key + RANDOM_STEP * (uint64_t)(s.first + place + 1), place);
}

/* Returns the id with the largest score among those of a lane. */
static __device__ um_cu_ranked draw_of_lane(const um_cu_batch &b, const um_message_row &r, const subtile &s, int likely,
                                            bool only_likely) {
    const float z = logit_at(b, r, s, likely), least = draw_score(r.how, s.first + likely, z, -INFINITY);
    um_cu_ranked best = {least, s.first + likely};
    if (only_likely) return best;
    for (int start = threadIdx.x % WARP_SIZE * RUN; start < s.n; start += RUN * WARP_SIZE)
        for (int place = start; place < min(start + RUN, s.n); place++) {
            const float other = logit_at(b, r, s, place);
            if (other > -INFINITY)
                best = first_of(best, {draw_score(r.how, s.first + place, other, least), s.first + place});
        }
    return best;
}

/* Returns the place of the drawn id of a subtile. The bounds of nearly all ids are below the score of the id with the
 * largest bound; where they are not, scores are computed. All lanes call it, relative to the same maximum. */
static __device__ __forceinline__ int find_draw(const um_cu_batch &b, const um_message_row &r, const subtile &s,
                                                const lane_part &l) {
    const float least = least_below_one(r.how.key + RANDOM_STEP * (uint64_t)(s.first + l.likely + 1)),
                most = least + 0x1p-23f; /* least <= 1 - u <= most */
    /* -log u <= (1 - u) / u. The margin covers the rounding of scores and bounds. */
    const float margin = 1e-3f + 1e-6f * fabsf(__fdiv_rn(l.max, r.how.temperature)),
                bound = warp_max(l.reach * least * (1 - most) / most) * exp_of(-margin);
    const bool able = !(l.reach < bound), several = !(l.next_reach < bound);
    const unsigned lanes = __ballot_sync(0xffffffffu, able);
    if (__popc(lanes) == 1 && !__any_sync(0xffffffffu, several))
        return __shfl_sync(0xffffffffu, l.likely, __ffs((int)lanes) - 1);
    um_cu_ranked best = {-INFINITY, -1};
    if (able) best = draw_of_lane(b, r, s, l.likely, !several);
    __syncwarp();
    return warp_first(best).id - s.first;
}

/* Stores the partial answer of a subtile from the parts of the lanes. */
static __device__ __forceinline__ void store_part(const um_cu_batch &b, const um_message_row &r, const subtile &s,
                                                  lane_part &l, float rate, um_cu_partial *to) {
    um_cu_partial p = {};
    p.second_z = p.draw_z = p.id_z = -INFINITY;
    p.best = p.second = p.draw = -1;
    p.max = warp_max(l.max);
    if (p.max > -INFINITY) {
        const int best = __reduce_max_sync(0xffffffffu, l.max == p.max ? l.best : -1);
        p.best = s.first + best;
        if (r.want & UM_WANT_SECOND) {
            const um_cu_ranked own = {l.max, l.best}, other = {l.second_z, l.second},
                               second = warp_first(l.best == best ? other : own);
            p.second_z = second.z;
            p.second = second.id < 0 ? -1 : s.first + second.id;
        }
        raise_max(l, p.max, rate);
        p.sum = warp_sum(l.sum);
        if (r.want & UM_WANT_PLAIN_ENTROPY) p.plain_moment = warp_sum(l.plain_moment);
        p.kept = rate == 1 ? p.sum : warp_sum(l.kept);
        if (r.want & UM_WANT_ENTROPY) p.moment = warp_sum(l.moment);
        if (draws(r)) {
            const int place = find_draw(b, r, s, l);
            p.draw = s.first + place;
            p.draw_z = logit_at(b, r, s, place);
        }
        if (r.id >= s.first && r.id < s.first + s.n) p.id_z = logit_at(b, r, s, r.id - s.first);
    }
    if (threadIdx.x % WARP_SIZE == 0) *to = p;
}

/* Reduces subtiles of a row, one in each warp. Grid: groups of REDUCE_WARPS subtiles, rows. */
static __global__ void __launch_bounds__(REDUCE_WARPS *WARP_SIZE, REDUCE_BLOCKS)
    reduce_subtiles(const um_cu_batch b, const um_cu_reduction a) {
    __shared__ __align__(16) float memory[REDUCE_WARPS][CHUNK];
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
    const int32_t row = a.first_row + blockIdx.y, i = blockIdx.x * REDUCE_WARPS + warp, offset = i * SUBTILE;
    if (row >= um_cu_header(b)->n_rows || offset >= a.n) return;
    const um_message_row &r = b.row[row];
    if (r.whole >= 0 && !r.blend) return;
    const subtile s = {.from = a.logits + (size_t)blockIdx.y * a.width + offset,
                       .scale = a.scale,
                       .cap = a.cap,
                       .first = a.tile + offset,
                       .n = min(SUBTILE, a.n - offset)};
    const float rate = rate_of(r.how);
    lane_part l = {.max = -INFINITY, .second_z = -INFINITY, .best = -1, .second = -1};
    float z[EACH], next[EACH];
    load_chunk(s, lane * RUN, next);
#pragma unroll 1 /* without copies of the loop no registers are spilled */
    for (int place = lane * RUN; place < SUBTILE; place += CHUNK) {
#pragma unroll
        for (int k = 0; k < EACH; k++) z[k] = next[k];
        if (place + CHUNK < SUBTILE) load_chunk(s, place + CHUNK, next);
        edit_chunk(b, r, s, place, memory[warp], z);
        add_chunk(l, r, s, z, place, rate);
    }
    store_part(b, r, s, l, rate, &a.partial[(size_t)row * a.n_subtiles + a.subtile + i]);
}

/* ---- Answers ----------------------------------------------------------------------------------------------------- */

static constexpr int MERGE_WARPS = 4;

/* Merges the partial answers of a row, in an order that depends on their number alone. A warp computes one row; each
 * lane has every 32nd partial answer. total [rows] receives the sums of the weights of blends; NULL: they are not
 * needed. */
static __global__ void __launch_bounds__(MERGE_WARPS *WARP_SIZE)
    merge_rows(const um_cu_batch b, const um_cu_partial *partial, int32_t n_subtiles, float *total, um_answer *answer) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    const int32_t row = blockIdx.x * MERGE_WARPS + threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
    if (row >= um_cu_header(b)->n_rows) return;
    const um_message_row r = b.row[row];
    if (r.whole >= 0 && !r.blend) return;
    const um_cu_partial *p = partial + (size_t)row * n_subtiles;
    um_cu_ranked best = {-INFINITY, -1}, second = best, draw = best;
    float draw_z = -INFINITY, id_z = -INFINITY;
    for (int32_t i = lane; i < n_subtiles; i += WARP_SIZE) {
        if (p[i].best < 0) continue;
        best = first_of(best, {p[i].max, p[i].best});
        id_z = fmaxf(id_z, p[i].id_z); /* at most one of them has the id */
        if (p[i].draw >= 0) draw = first_of(draw, {draw_score(r.how, p[i].draw, p[i].draw_z, -INFINITY), p[i].draw});
    }
    best = warp_first(best);
    draw = warp_first(draw);
    um_cu_totals t = {};
    const double rate = rate_of(r.how);
    for (int32_t i = lane; i < n_subtiles; i += WARP_SIZE) {
        if (p[i].best < 0) continue;
        /* the best id of another subtile, or a second best */
        if (p[i].best != best.id) second = first_of(second, {p[i].max, p[i].best});
        else if (p[i].second >= 0) second = first_of(second, {p[i].second_z, p[i].second});
        if (p[i].draw == draw.id && draw.id >= 0) draw_z = p[i].draw_z;
        const double by = (double)p[i].max - best.z, factor = exp(by * rate), plain = rate == 1 ? factor : exp(by);
        t.sum += p[i].sum * plain;
        t.plain_moment += plain * (p[i].plain_moment + p[i].sum * by);
        t.moment += factor * (p[i].moment + p[i].kept * by * rate);
        t.kept += p[i].kept * factor;
    }
    t.best = best;
    t.second = warp_first(second);
    t.draw = draw.id;
    t.draw_z = warp_max(draw_z);
    t.id_z = warp_max(id_z);
    t.sum = warp_sum(t.sum);
    t.plain_moment = warp_sum(t.plain_moment);
    t.moment = warp_sum(t.moment);
    t.kept = warp_sum(t.kept);
    if (lane) return;
    if (total) total[row] = (float)t.kept;
    if (r.whole < 0) answer[row] = answer_of(r, {-INFINITY, 0}, t);
}

/* ---- Launch ------------------------------------------------------------------------------------------------------ */

void um_cu_reduce(const um_cu_batch *b, const um_cu_reduction *a, int32_t n_rows, cudaStream_t s) {
    const dim3 grid((unsigned)UM_CEIL_DIV(a->n, SUBTILE * REDUCE_WARPS), (unsigned)n_rows);
    um_cu_start(reduce_subtiles, grid, dim3(REDUCE_WARPS * WARP_SIZE), 0, s, *b, *a);
}

void um_cu_merge_partials(const um_cu_batch *b, const um_cu_partial *partial, int32_t n_subtiles, float *total,
                          um_answer *answer, cudaStream_t s) {
    const dim3 grid((unsigned)UM_CEIL_DIV(b->capacity.n_rows, MERGE_WARPS));
    um_cu_start(merge_rows, grid, dim3(MERGE_WARPS * WARP_SIZE), 0, s, *b, partial, n_subtiles, total, answer);
}
