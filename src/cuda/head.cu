/* head: the answers of rows that need no filter. The product with the vocabulary is computed for UM_CU_VOCAB_TILE ids
 * and UM_CU_HEAD_ROWS rows at a time, or for more ids of few rows. A second kernel reduces these logits to partial
 * answers, and a last one merges the partial answers of a row (partial.cu). The blends of rows grow with each tile of
 * the vocabulary (blend.cu). */
#include "cuda/blend.cuh"
#include "cuda/mma.cuh"
#include "cuda/partial.cuh"
#include "cuda/sample.cuh"

static constexpr int MIX_THREADS = 256, EDIT_THREADS = 256;
static_assert(UM_CU_VOCAB_TILE % SUBTILE == 0, "a tile is a number of subtiles");
static_assert(SUBTILE % UM_CU_BLOCK == 0, "tiles of all widths begin with a block");

static int32_t subtiles_of(int32_t vocab) { return UM_CEIL_DIV(vocab, SUBTILE); }

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* Stores the bitmap of a row for later passes. */
static __device__ void keep_bitmap(const um_cu_batch &b, const um_message_row &r, int32_t vocab) {
    const uint32_t *from = um_cu_at<uint32_t>(b, r.allow);
    uint32_t *to = (uint32_t *)um_cu_at<uint32_t>(b, r.keep);
    for (int32_t i = threadIdx.x; i < UM_CEIL_DIV(vocab, 32); i += MIX_THREADS) to[i] = from[i];
}

/* Computes the operand of a row: w[0] * row0 + w[1] * row1. A block computes one row, and rows of padding become 0.
 * With `whole` >= 0 only the rows whose number is in [whole, whole + n) are computed, to the place of their number. */
template <typename T>
static __global__ void mix_rows(const um_cu_batch b, const float *hidden, const float *saved, int32_t H, T *out,
                                int32_t whole, int32_t n) {
    um_cu_let_next_start();
    um_cu_wait_for_previous();
    const int32_t row = blockIdx.x;
    if (row >= um_cu_header(b)->n_rows) {
        for (int32_t i = threadIdx.x; i < H && whole < 0; i += MIX_THREADS) out[(size_t)row * H + i] = T(0.0f);
        return;
    }
    const um_message_row r = b.row[row];
    if (whole >= 0 && (r.whole < whole || r.whole >= whole + n)) return;
    const int32_t place = whole >= 0 ? r.whole - whole : row;
    const float *x[2];
    for (int k = 0; k < 2; k++)
        x[k] = r.src[k] >= 0 ? hidden + (size_t)r.src[k] * H : saved + (size_t)(-1 - r.src[k]) * H;
    if (r.keep >= 0) keep_bitmap(b, r, b.capacity.vocab);
    const bool second = r.w[1] != 0;
    for (int32_t i = threadIdx.x; i < H; i += MIX_THREADS) {
        float v = __fmul_rn(r.w[0], x[0][i]);
        if (second) v = __fadd_rn(v, __fmul_rn(r.w[1], x[1][i]));
        out[(size_t)place * H + i] = um_cu_operand<T>(v);
    }
}

static void start_mix(const um_cu_batch *b, const um_cu_head *a, int32_t whole, int32_t n, cudaStream_t s) {
    const unsigned rows = (unsigned)b->capacity.n_rows;
    if (a->w->type != UM_F32)
        um_cu_start(mix_rows<um_bf16>, dim3(rows), dim3(MIX_THREADS), 0, s, *b, a->hidden, a->saved, a->hidden_size,
                    (um_bf16 *)a->mixed, whole, n);
    else
        um_cu_start(mix_rows<float>, dim3(rows), dim3(MIX_THREADS), 0, s, *b, a->hidden, a->saved, a->hidden_size,
                    (float *)a->mixed, whole, n);
    if (a->w->type == UM_F8)
        um_cu_quantize((const um_bf16 *)a->mixed, whole < 0 ? (int32_t)rows : n, a->hidden_size, &a->coded, s);
}

/* Returns the rows [first, first + n) of the operand that start_mix has made. */
static um_cu_rows mixed_rows(const um_cu_head *a, int32_t first, int32_t n) {
    const size_t at = (size_t)first * (size_t)a->hidden_size;
    if (a->w->type == UM_F8) return {a->coded.code + at, a->coded.scale + first, n};
    return {(const char *)a->mixed + at * um_dtype_size(a->w->type), NULL, n};
}

/* ---- Launch ------------------------------------------------------------------------------------------------------ */

/* The parts of the scratch memory. */
struct parts {
    float *logits;
    um_cu_partial *partial;
    float *factor, *total, *most; /* [rows] */
};

/* Most logits of a tile that is wider than UM_CU_VOCAB_TILE: they stay in the L2 cache. */
static constexpr int32_t WIDE_LOGITS = 8 << 20;

static size_t logits_bytes(int32_t n_rows, int32_t vocab) {
    const size_t ids = (size_t)subtiles_of(vocab) * SUBTILE, rows = (size_t)UM_MIN(n_rows, UM_CU_HEAD_ROWS);
    const size_t wide = UM_MIN(rows * ids, (size_t)WIDE_LOGITS);
    const size_t tiles = UM_MAX(rows * UM_CU_VOCAB_TILE, wide), whole = (size_t)UM_CU_WHOLE_ROWS * ids;
    return UM_MAX(tiles, whole) * sizeof(float);
}

/* Each rank of a group may have an incomplete subtile. */
static size_t partial_bytes(int32_t n_rows, int32_t vocab) {
    return um_mul(um_mul((size_t)n_rows, (size_t)(subtiles_of(vocab) + UM_RANKS_MAX)), sizeof(um_cu_partial));
}

static parts parts_of(const um_cu_head *a, void *scratch, int32_t n_rows) {
    char *p = (char *)scratch, *partial = p + logits_bytes(n_rows, a->vocab);
    float *factor = (float *)(partial + partial_bytes(n_rows, a->vocab));
    return {(float *)p, (um_cu_partial *)partial, factor, factor + n_rows, factor + 2 * (size_t)n_rows};
}

size_t um_cu_head_exchange(int32_t n_rows, int32_t vocab) {
    const size_t partials = partial_bytes(n_rows, vocab) / sizeof(uint32_t) / (size_t)UM_MAX(n_rows, 1);
    return UM_MAX(um_cu_gather_bytes(n_rows, partials), um_cu_gather_bytes(UM_CU_WHOLE_ROWS, (size_t)vocab));
}

size_t um_cu_head_scratch(int32_t n_rows, int32_t vocab) {
    return logits_bytes(n_rows, vocab) + partial_bytes(n_rows, vocab) + 3 * (size_t)n_rows * sizeof(float);
}

/* Returns the rows [first, first + n) of the head's matrix. */
static um_cu_matrix tile_of(const um_cu_matrix *w, int32_t first, int32_t n) {
    return {n,
            w->in,
            w->type,
            (char *)w->data + (size_t)first * (size_t)w->in * um_dtype_size(w->type),
            w->scale ? w->scale + first : NULL,
            w->block ? w->block + (size_t)(first / UM_CU_BLOCK) * um_cu_block_stride(w->in) : NULL};
}

um_status um_cu_head_prepare(const um_cu_matrix *w, int32_t n, int32_t n_rows, um_cu_products *p, um_err *err) {
    um_status s = UM_OK;
    for (int32_t first = 0; first < n && !s; first += UM_CU_VOCAB_TILE) {
        const um_cu_matrix tile = tile_of(w, first, UM_MIN(UM_CU_VOCAB_TILE, n - first));
        s = um_cu_products_prepare(p, &tile, UM_MIN(n_rows, UM_CU_HEAD_ROWS), UM_F32, false, false, err);
    }
    return s;
}

/* Sets the number of the first subtile of each rank, and behind the last one that of all. */
static void number_subtiles(const um_cu_head *a, int32_t out[UM_RANKS_MAX + 1]) {
    out[0] = 0;
    for (int32_t r = 0; r < a->at.n; r++) out[r + 1] = out[r] + subtiles_of(a->first[r + 1] - a->first[r]);
}

/* Brings the partial answers of all ranks to rank 0. */
static void gather_partials(const um_cu_head *a, const int32_t *subtile, int32_t n_rows, cudaStream_t s) {
    constexpr int32_t WORDS = sizeof(um_cu_partial) / sizeof(uint32_t);
    um_cu_gather g = {a->at, {}, {}, n_rows, (size_t)subtile[a->at.n] * WORDS, a->exchange};
    for (int32_t r = 0; r < a->at.n; r++) {
        if (a->rank_scratch[r]) g.base[r] = (uint32_t *)parts_of(a, a->rank_scratch[r], n_rows).partial;
        g.first[r + 1] = subtile[r + 1] * WORDS;
    }
    um_cu_gather_rows(&g, s);
}

/* Returns where a rank's part of the blends is, and the numbers that belong to it. */
static um_cu_blend_part blend_part_of(const um_cu_head *a, int32_t rank, int32_t n_rows) {
    float *blend = a->blend_part[rank];
    if (a->at.comm) {
        float *most = blend + (size_t)n_rows * (size_t)a->hidden_size;
        return {blend, most, most + n_rows};
    }
    const parts m = parts_of(a, a->rank_scratch[rank], n_rows);
    return {blend, m.most, m.total};
}

/* Makes the blends from those of all ranks. */
static void sum_blends(const um_cu_batch *b, const um_cu_head *a, const int32_t *subtile, cudaStream_t s) {
    const int32_t n_rows = b->capacity.n_rows, own = a->at.index;
    const um_cu_partial *partial = parts_of(a, a->scratch, n_rows).partial;
    um_cu_blend_part part[UM_RANKS_MAX];
    for (int32_t r = 0; r < a->at.n; r++) part[r] = blend_part_of(a, r, n_rows);
    um_cu_blend_total(b, partial + subtile[own], subtile[own + 1] - subtile[own], subtile[a->at.n], part[own].most,
                      part[own].total, s);
    um_cu_blend_sum(b, a, part, s);
    if (a->mark) a->mark(a->mark_arg, "blend");
}

/* Returns how many ids the tiles of n_rows rows have. Few rows have wide tiles, so that few products begin and end. The
 * bits of the logits don't depend on the width. */
static int32_t width_of(const um_cu_head *a, const um_cu_products *p, int32_t n_rows) {
    const int32_t n = a->first[a->at.index + 1] - a->first[a->at.index];
    if (a->blend || n_rows > UM_CU_FEW_ROWS || n <= UM_CU_VOCAB_TILE) return UM_CU_VOCAB_TILE;
    for (int32_t first = 0; first < n; first += UM_CU_VOCAB_TILE) {
        const um_cu_matrix tile = tile_of(a->w, first, UM_MIN(UM_CU_VOCAB_TILE, n - first));
        if (!um_cu_linear_few_suits(p, &tile, UM_F32)) return UM_CU_VOCAB_TILE;
    }
    const int32_t tiles = UM_CEIL_DIV(n, WIDE_LOGITS / n_rows / SUBTILE * SUBTILE);
    return UM_MAX(UM_CEIL_DIV(UM_CEIL_DIV(n, tiles), SUBTILE) * SUBTILE, UM_CU_VOCAB_TILE);
}

/* Computes the logits of a tile. */
static um_status multiply_tile(um_cu_products *p, const um_cu_matrix *tile, um_cu_rows rows, int32_t width,
                               float *logits, cudaStream_t s) {
    if (width > UM_CU_VOCAB_TILE) return um_cu_linear_few(p, tile, rows, UM_F32, logits, width, s);
    return um_cu_linear(p, tile, rows, false, UM_F32, logits, width, s);
}

um_status um_cu_head_answer(const um_cu_batch *b, const um_cu_head *a, um_cu_products *p, cudaStream_t s) {
    const int32_t n_rows = b->capacity.n_rows, own = a->at.index, start = a->first[own], end = a->first[own + 1];
    const int32_t width = width_of(a, p, n_rows);
    const parts m = parts_of(a, a->scratch, n_rows);
    int32_t subtile[UM_RANKS_MAX + 1];
    number_subtiles(a, subtile);
    const int32_t n_subtiles = subtile[a->at.n];
    start_mix(b, a, -1, 0, s);
    for (int32_t first = start; first < end; first += width)
        for (int32_t row = 0; row < n_rows; row += UM_CU_HEAD_ROWS) {
            const int32_t n = UM_MIN(width, end - first), rows = UM_MIN(UM_CU_HEAD_ROWS, n_rows - row);
            const um_cu_matrix tile = tile_of(a->w, first - start, n);
            const um_status st = multiply_tile(p, &tile, mixed_rows(a, row, rows), width, m.logits, s);
            if (st) return st;
            const um_cu_reduction r = {.logits = m.logits,
                                       .width = width,
                                       .first_row = row,
                                       .tile = first,
                                       .n = n,
                                       .subtile = subtile[own] + (first - start) / SUBTILE,
                                       .n_subtiles = n_subtiles,
                                       .scale = a->scale,
                                       .cap = a->cap,
                                       .partial = m.partial};
            um_cu_reduce(b, &r, rows, s);
            if (!a->blend) continue;
            const um_cu_blend blend = {.head = a,
                                       .logits = m.logits,
                                       .partial = m.partial,
                                       .factor = m.factor,
                                       .first_row = row,
                                       .n_rows = rows,
                                       .tile = first,
                                       .n = n,
                                       .end = end,
                                       .first_subtile = subtile[own],
                                       .subtile = r.subtile,
                                       .n_subtiles = n_subtiles};
            if (a->mark) a->mark(a->mark_arg, "head");
            um_cu_blend_add(b, &blend, s);
            if (a->mark) a->mark(a->mark_arg, "blend");
        }
    const bool in_group = a->at.n > 1;
    if (in_group && a->blend) sum_blends(b, a, subtile, s);
    if (in_group) gather_partials(a, subtile, n_rows, s); /* into the memory of the parts of blends */
    if (own > 0) return UM_OK;
    um_cu_merge_partials(b, m.partial, n_subtiles, in_group ? NULL : m.total, a->answer, s);
    if (a->blend && !in_group) um_cu_blend_end(b, a, m.total, s);
    return UM_OK;
}

/* ---- Rows that need all their logits ----------------------------------------------------------------------------- */

/* Scales and edits the logits of a subtile of a whole row in place. */
static __global__ void __launch_bounds__(EDIT_THREADS)
    edit_whole(const um_cu_batch b, float *logits, int32_t stride, int32_t vocab, float scale, float cap,
               int32_t whole) {
    __shared__ float z[SUBTILE];
    const int32_t row = um_cu_whole_row(b, whole + blockIdx.y);
    if (row < 0) return;
    const um_message_row r = b.row[row];
    const int32_t first = blockIdx.x * SUBTILE;
    float *at = logits + (size_t)blockIdx.y * stride + first;
    load_logits(b, r, at, scale, cap, first, vocab, z);
    for (int i = threadIdx.x; i < SUBTILE; i += EDIT_THREADS) at[i] = z[i];
}

/* Brings the logits of all ranks to rank 0. */
static void gather_logits(const um_cu_head *a, int32_t rows, int32_t stride, int32_t n_rows, cudaStream_t s) {
    um_cu_gather g = {a->at, {}, {}, rows, (size_t)stride, a->exchange};
    for (int32_t r = 0; r < a->at.n; r++)
        if (a->rank_scratch[r]) g.base[r] = (uint32_t *)parts_of(a, a->rank_scratch[r], n_rows).logits;
    memcpy(g.first, a->first, sizeof g.first);
    um_cu_gather_rows(&g, s);
}

um_status um_cu_head_answer_whole(const um_cu_batch *b, const um_cu_head *a, um_cu_products *p, int32_t n_whole,
                                  cudaStream_t s) {
    const parts m = parts_of(a, a->scratch, b->capacity.n_rows);
    const int32_t n_subtiles = subtiles_of(a->vocab), stride = n_subtiles * SUBTILE;
    const int32_t own = a->at.index, start = a->first[own], end = a->first[own + 1];
    for (int32_t whole = 0; whole < n_whole; whole += UM_CU_WHOLE_ROWS) {
        const int32_t rows = UM_MIN(UM_CU_WHOLE_ROWS, n_whole - whole);
        start_mix(b, a, whole, rows, s);
        for (int32_t first = start; first < end; first += UM_CU_VOCAB_TILE) {
            const um_cu_matrix tile = tile_of(a->w, first - start, UM_MIN(UM_CU_VOCAB_TILE, end - first));
            um_status st = um_cu_linear(p, &tile, mixed_rows(a, 0, rows), false, UM_F32, m.logits + first, stride, s);
            if (st) return st;
        }
        if (a->at.n > 1) {
            gather_logits(a, rows, stride, b->capacity.n_rows, s);
            um_cu_barrier(&a->at, s); /* rank 0 has read the logits when the others write the next ones */
        }
        if (own > 0) continue;
        const dim3 grid((unsigned)n_subtiles, (unsigned)rows);
        edit_whole<<<grid, EDIT_THREADS, 0, s>>>(*b, m.logits, stride, a->vocab, a->scale, a->cap, whole);
        um_cu_answer_whole_rows(b, m.logits, stride, whole, rows, a->answer, a->top, s);
    }
    return UM_OK;
}
