/* select: selections of sparse keys (um_kv_select in ops/batch.h). The spans that have one are processed one after
 * another. All arithmetic is fp32, and each score is a sum in a fixed order. */
#include "cuda/kv.cuh"

static constexpr int WARP = 32, WARPS = 4, THREADS = 256, RANGES_MAX = 4;

/* A selection: the candidates are the keys of the ranges, in ascending order. */
struct selection {
    um_message_select m;
    int32_t page; /* word offset of the span's page table */
    um_range range[RANGES_MAX];
    int32_t n_ranges, n_lists; /* lists of scores: one, or one for each KV head */
    um_cu_attention a;
    um_cu_kv_view kv;
    float *mean;   /* [n_heads, d] mean queries of the block */
    float *score;  /* [n_kv_heads, n_keys] */
    float *pooled; /* [n_lists, n_keys] */
    int32_t *best; /* [n_lists, n_keep] places of the kept keys in the list of candidates */
};

/* Returns the visibility index of a candidate. */
static __device__ int32_t key_at(const selection &s, int32_t k) {
    int i = 0;
    while (i + 1 < s.n_ranges && k >= s.range[i].end - s.range[i].start) k -= s.range[i].end - s.range[i].start, i++;
    return s.range[i].start + k;
}

template <typename T> static __global__ void mean_queries(const um_cu_batch b, const selection s) {
    const int32_t i = blockIdx.x * THREADS + threadIdx.x, width = s.a.n_heads * s.a.head_dim;
    const size_t stride = (size_t)(s.a.n_heads + 2 * s.a.n_kv_heads) * s.a.head_dim;
    const int32_t n = s.m.block.end - s.m.block.start, *token = um_cu_at<int32_t>(b, s.m.token);
    if (i >= width) return;
    float sum = 0;
    for (int32_t t = 0; t < n; t++) sum += um_cu_float(((const T *)s.a.qkv)[(size_t)token[t] * stride + i]);
    s.mean[i] = sum / (float)n;
}

/* A warp computes the score of one key in one KV head: the sum, or the largest, over its query heads. */
static __global__ void score_keys(const um_cu_batch b, const selection s) {
    const int32_t k = blockIdx.x * WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP, head = blockIdx.y;
    const int32_t group = s.a.n_heads / s.a.n_kv_heads, d = s.a.head_dim;
    if (k >= s.m.n_keys) return;
    const int32_t vis = key_at(s, k), page = um_cu_at<int32_t>(b, s.page)[vis / s.kv.page_size];
    const char *range = s.kv.key + um_cu_range_at(s.kv, page, head);
    float score = 0;
    for (int32_t g = 0; g < group; g++) {
        float sum = 0;
        for (int32_t i = lane; i < d; i += WARP)
            sum += s.mean[(size_t)(head * group + g) * d + i] * um_cu_kv_get(s.kv, range, vis % s.kv.page_size, i);
        for (int step = WARP / 2; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        score = g == 0 ? sum : s.m.per_head ? fmaxf(score, sum) : score + sum;
    }
    if (lane == 0) s.score[(size_t)head * s.m.n_keys + k] = score;
}

/* Adds the scores of all KV heads. out: the first list, or memory that all ranks read. */
static __global__ void sum_heads(const selection s, float *out) {
    const int32_t k = blockIdx.x * THREADS + threadIdx.x;
    if (k >= s.m.n_keys) return;
    float sum = s.score[k];
    for (int32_t c = 1; c < s.a.n_kv_heads; c++) sum += s.score[(size_t)c * s.m.n_keys + k];
    out[k] = sum;
}

/* Takes the largest of the scores around each key and adds the prior. */
static __global__ void pool_scores(const um_cu_batch b, const selection s) {
    const int32_t k = blockIdx.x * THREADS + threadIdx.x, n = s.m.n_keys, list = blockIdx.y;
    if (k >= n) return;
    const int32_t start = s.m.pool > 1 ? k - s.m.pool / 2 : k, end = s.m.pool > 1 ? start + s.m.pool : k + 1;
    float most = -INFINITY;
    for (int32_t i = max(start, 0); i < min(end, n); i++)
        most = fmaxf(most, s.m.blind ? 0 : s.score[(size_t)list * n + i]);
    if (s.m.prior >= 0) {
        const float scale = __fdiv_rn(1, __fsqrt_rn((float)s.a.head_dim));
        most = __fadd_rn(__fmul_rn(most, scale), um_cu_at<float>(b, s.m.prior)[key_at(s, k)]);
    }
    s.pooled[(size_t)list * n + k] = most;
}

/* Finds the place of each key: the number of keys that come before it. */
static __global__ void rank_keys(const selection s) {
    const int32_t k = blockIdx.x * THREADS + threadIdx.x, n = s.m.n_keys, list = blockIdx.y;
    if (k >= n) return;
    const float *score = s.pooled + (size_t)list * n, own = score[k];
    int32_t rank = 0;
    for (int32_t i = 0; i < n; i++) rank += score[i] > own || (score[i] == own && i < k);
    if (rank < s.m.n_keep) s.best[(size_t)list * s.m.n_keep + rank] = k;
}

/* Copies a kept key and its value, of one KV head. A warp copies one of them. */
static __global__ void keep_keys(const um_cu_batch b, const selection s) {
    const int32_t t = blockIdx.x * WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP, head = blockIdx.y;
    const int32_t S = s.kv.page_size, list = s.n_lists > 1 ? head : 0;
    if (t >= s.m.n_keep) return;
    const int32_t vis = key_at(s, s.best[(size_t)list * s.m.n_keep + t]);
    const size_t from = um_cu_range_at(s.kv, um_cu_at<int32_t>(b, s.page)[vis / S], head),
                 to = um_cu_range_at(s.kv, um_cu_at<int32_t>(b, s.m.page)[t / S], head);
    const int32_t words = (int32_t)um_cu_vector_at(s.kv, 1) / 8; /* of 8 bytes */
    for (int part = 0; part < 2; part++) {
        char *base = part ? s.kv.value : s.kv.key;
        const uint2 *a = (const uint2 *)(base + from + um_cu_vector_at(s.kv, vis % S));
        uint2 *z = (uint2 *)(base + to + um_cu_vector_at(s.kv, t % S));
        for (int32_t i = lane; i < words; i += WARP) z[i] = a[i];
        if (s.kv.type == UM_F8 && lane == 0)
            um_cu_kv_put_scale(s.kv, base + to, t % S, um_cu_scale_of(s.kv, base + from, vis % S));
    }
}

size_t um_cu_select_scratch(int32_t n_kv_heads, int32_t n_heads, int32_t head_dim, int32_t max_keys) {
    const size_t lists = um_mul((size_t)n_kv_heads, (size_t)max_keys);
    return (um_mul((size_t)n_heads, (size_t)head_dim) + 3 * lists) * sizeof(float);
}

static unsigned blocks_of(int32_t n, int32_t each) { return (unsigned)UM_CEIL_DIV(n, each); }

/* How the ranks of a group merge their scores. */
typedef struct ranks {
    const um_cu_partials *scores; /* NULL: there is no group */
    int32_t kv_copies;            /* neighbouring ranks that have the same KV head */
} ranks;

/* Merges the scores of the heads of this rank, and then those of all ranks: their sum, or for lists of single KV heads
 * the largest over the query heads of the ranks that have this KV head. */
static void merge_scores(const selection *s, const ranks *r, unsigned blocks, cudaStream_t stream) {
    const bool per_head = s->m.per_head != 0;
    const um_cu_partials *p = r->scores;
    if (!p || (per_head && r->kv_copies <= 1)) {
        if (!per_head) sum_heads<<<blocks, THREADS, 0, stream>>>(*s, s->score);
        return;
    }
    const int32_t first = per_head ? p->at.index / r->kv_copies * r->kv_copies : 0,
                  end = per_head ? first + r->kv_copies : p->at.n;
    sum_heads<<<blocks, THREADS, 0, stream>>>(*s, (float *)p->part[p->at.index]); /* of one head with copies */
    um_cu_merge(p, first, end, per_head, (size_t)s->m.n_keys, s->score, stream);
    um_cu_barrier(&p->at, stream); /* all ranks have read the scores when the next ones are written */
}

static void select_span(const um_cu_batch *b, const selection *s, const ranks *r, cudaStream_t stream) {
    const dim3 keys(blocks_of(s->m.n_keys, WARPS), (unsigned)s->a.n_kv_heads),
        lists(blocks_of(s->m.n_keys, THREADS), (unsigned)s->n_lists);
    if (s->m.n_keys == 0 || s->m.n_keep == 0) return;
    if (!s->m.blind) {
        const unsigned blocks = blocks_of(s->a.n_heads * s->a.head_dim, THREADS);
        if (s->a.type == UM_BF16) mean_queries<um_bf16><<<blocks, THREADS, 0, stream>>>(*b, *s);
        else mean_queries<float><<<blocks, THREADS, 0, stream>>>(*b, *s);
        score_keys<<<keys, WARPS * WARP, 0, stream>>>(*b, *s);
        merge_scores(s, r, lists.x, stream);
    }
    pool_scores<<<lists, THREADS, 0, stream>>>(*b, *s);
    rank_keys<<<lists, THREADS, 0, stream>>>(*s);
    keep_keys<<<dim3(blocks_of(s->m.n_keep, WARPS), (unsigned)s->a.n_kv_heads), WARPS * WARP, 0, stream>>>(*b, *s);
}

void um_cu_select(const um_cu_batch *b, const char *host_message, const um_cu_attention *a, const um_cu_kv *kv,
                  const um_cu_partials *scores, int32_t kv_copies, void *scratch, cudaStream_t stream) {
    const um_message_layout l = um_message_layout_of(&b->capacity);
    const um_message_header *h = (const um_message_header *)host_message;
    const um_message_span *span = (const um_message_span *)(host_message + l.span);
    const ranks r = {scores, kv_copies};
    for (int32_t i = 0; i < h->n_spans; i++) {
        if (span[i].select < 0) continue;
        selection s = {};
        um_range there[2];
        s.m = *(const um_message_select *)(host_message + 4 * (size_t)span[i].select);
        s.page = span[i].page;
        const int n_there = um_range_without(span[i].keys, span[i].hole, there);
        for (int k = 0; k < n_there; k++) s.n_ranges += um_range_without(there[k], s.m.block, s.range + s.n_ranges);
        s.n_lists = s.m.per_head ? a->n_kv_heads : 1;
        s.a = *a;
        s.kv = um_cu_kv_of(kv, a->layer);
        s.mean = (float *)scratch;
        s.score = s.mean + (size_t)a->n_heads * (size_t)a->head_dim;
        s.pooled = s.score + (size_t)a->n_kv_heads * (size_t)s.m.n_keys;
        s.best = (int32_t *)(s.pooled + (size_t)s.n_lists * (size_t)s.m.n_keys);
        select_span(b, &s, &r, stream);
    }
}
