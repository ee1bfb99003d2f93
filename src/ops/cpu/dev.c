/* The device of the cpu backend: threads, scratch for every operation, and the table of operations. */
#include "ops/cpu/dev.h"

#include <stdatomic.h>

#include "ops/quantize.h"

/* Runs with fewer multiplications stay on the calling thread. This is about 10 us of work of one core. */
#define WORK_MIN 1e5

void um_cpu_run(um_dev *dev, um_task_fn fn, void *arg, int n, double work) {
    if (work >= WORK_MIN) um_pool_run(dev->pool, fn, arg, n);
    else
        for (int task = 0; task < n; task++) fn(arg, task, 0);
}

void *um_scratch_take(um_scratch *c, size_t n, size_t size) {
    void *p = c->base ? c->base + c->used : NULL;
    c->used += (um_mul(n, size) + 63) / 64 * 64;
    return p;
}

int32_t um_widest_in(const um_dev_config *c) { return UM_MAX(UM_MAX(c->max_in, c->max_hidden), c->max_expert_ff); }

_Static_assert(UM_QUANT_BLOCK *UM_QUANT_GROUP >= (int)UM_BLOCK_WORDS && (int)UM_QUANT_STRIDE <= (int)UM_X_STRIDE,
               "the blocks of all products fit into the scratch");

static size_t blocks_of(int32_t k) { return (size_t)UM_CEIL_DIV(UM_MAX(k, 1), UM_BLOCK_WORDS); }

static size_t head_tiles(const um_dev_config *c) { return (size_t)UM_CEIL_DIV(UM_MAX(c->max_vocab, 1), UM_HEAD_TILE); }

static um_sums take_sums(um_scratch *c, int32_t head_dim, int rows) {
    const size_t panels = (size_t)UM_CEIL_DIV(UM_MAX(head_dim, 1), UM_PANEL), n = (size_t)rows;
    um_sums s = {.rows = rows};
    s.out = (float *)um_scratch_take(c, panels * n * UM_PANEL, sizeof(float));
    s.max = (float *)um_scratch_take(c, n, sizeof(float));
    s.sum = (float *)um_scratch_take(c, n, sizeof(float));
    return s;
}

/* Assigns scratch to a thread. A matrix unit reads whole tiles, so left operands have up to UM_TILE_ROWS rows of extra
 * space after the last row. */
static void lay_out_thread(um_thread *t, const um_dev *dev, um_scratch *c) {
    int32_t d = UM_MAX(dev->config.max_head_dim, 1);
    t->acc = (float *)um_scratch_take(c, UM_ACC_ROWS * UM_PANEL, sizeof(float));
    size_t query_rows = blocks_of(d) * UM_QUERY_ROWS + UM_TILE_ROWS, weight_rows = UM_BLOCK_ROWS + UM_TILE_ROWS;
    t->query = (uint32_t *)um_scratch_take(c, query_rows * UM_X_STRIDE, sizeof(uint32_t));
    t->weight = (uint32_t *)um_scratch_take(c, weight_rows * UM_X_STRIDE, sizeof(uint32_t));
    for (int i = 0; i < 2; i++) t->sums[i] = take_sums(c, d, UM_QUERY_ROWS);
    t->seen_end = (int32_t *)um_scratch_take(c, UM_QUERY_ROWS, sizeof(int32_t));
    t->seen_start = (int32_t *)um_scratch_take(c, UM_QUERY_ROWS, sizeof(int32_t));
    t->unit = um_scratch_take(c, UM_GROUP_UNITS * um_copied_elements(d), sizeof(float));
    t->wide = um_scratch_take(c, UM_GROUP_UNITS * um_copied_elements(d), sizeof(uint16_t));
    t->scale = (float *)um_scratch_take(c, 2 * UM_GROUP_KEYS, sizeof(float));
    t->z = (float *)um_scratch_take(c, UM_HEAD_ROWS * UM_HEAD_TILE, sizeof(float));
    t->z_cut = (float *)um_scratch_take(c, UM_HEAD_TILE, sizeof(float));
    t->candidate = (float *)um_scratch_take(c, head_tiles(&dev->config) * UM_HEAD_TILE, sizeof(float));
    t->bins = (struct um_bins *)um_scratch_take(c, 1, um_bins_bytes());
}

static void lay_out(um_dev *dev, um_scratch *c) {
    const um_dev_config *cfg = &dev->config;
    size_t tiles = head_tiles(cfg);
    int32_t in = um_widest_in(cfg);
    dev->thread = (um_thread *)um_scratch_take(c, (size_t)dev->n_threads, sizeof(um_thread));
    dev->wave_rows = UM_GROUP_ROWS * UM_MIN(UM_MIN(dev->n_threads, UM_WAVE_GROUPS),
                                            UM_CEIL_DIV(UM_MAX(cfg->max_tokens, 1), UM_GROUP_ROWS));
    size_t x_rows = blocks_of(in) * (size_t)dev->wave_rows + UM_TILE_ROWS;
    dev->x = (uint32_t *)um_scratch_take(c, x_rows * UM_X_STRIDE, sizeof(uint32_t));
    dev->mix = (float *)um_scratch_take(c, UM_HEAD_ROWS * (size_t)UM_MAX(cfg->max_hidden, 1), sizeof(float));
    dev->logit = (float *)um_scratch_take(c, UM_WHOLE_ROWS * tiles * UM_HEAD_TILE, sizeof(float));
    dev->first_block = (int32_t *)um_scratch_take(c, (size_t)cfg->max_tokens + 1, sizeof(int32_t));
    dev->n_parts = dev->n_threads > 1 ? UM_SPLIT_PARTS * dev->n_threads : 0;
    dev->part = (um_sums *)um_scratch_take(c, (size_t)dev->n_parts, sizeof(um_sums));
    for (int i = 0; i < dev->n_parts; i++) {
        const um_sums s = take_sums(c, cfg->max_head_dim, UM_SPLIT_ROWS);
        if (c->base) dev->part[i] = s;
    }
    size_t heads = (size_t)UM_MAX(cfg->max_heads, 1), keys = um_mul(heads, (size_t)cfg->max_tokens);
    dev->mean = (float *)um_scratch_take(c, heads * (size_t)UM_MAX(cfg->max_head_dim, 1), sizeof(float));
    dev->score = (float *)um_scratch_take(c, keys, sizeof(float));
    dev->pooled = (float *)um_scratch_take(c, keys, sizeof(float));
    dev->best = (int32_t *)um_scratch_take(c, keys, sizeof(int32_t));
    dev->key = (int32_t *)um_scratch_take(c, (size_t)cfg->max_tokens, sizeof(int32_t));
    dev->block = (int32_t *)um_scratch_take(c, (size_t)cfg->max_tokens, sizeof(int32_t));
    dev->partial = (um_partial *)um_scratch_take(c, tiles * UM_HEAD_ROWS, sizeof(um_partial));
    dev->moe = (struct um_moe_scratch *)um_scratch_take(c, um_moe_lay_out(cfg, dev->n_threads, NULL), 1);
    if (dev->moe) um_moe_lay_out(cfg, dev->n_threads, dev->moe);
    dev->shared_bytes = c->used;
    for (int i = 0; i < dev->n_threads; i++) {
        um_thread unused;
        lay_out_thread(c->base ? &dev->thread[i] : &unused, dev, c);
    }
}

/* Sets the products that don't round the left operand. */
static void set_exact_products(um_dev *dev) {
    const um_kernels *k = dev->k;
    dev->exact_f32 = (um_product){.tile = k->tile_f32,
                                  .pack = k->pack_f32,
                                  .chain = k->chain_f32,
                                  .softmax = k->softmax_f32,
                                  .per_word = 1,
                                  .block_words = UM_BLOCK_WORDS,
                                  .x_stride = UM_X_STRIDE,
                                  .bytes_per_word = UM_PANEL * sizeof(float),
                                  .step = 1,
                                  .tile_rows = k->tile_rows,
                                  .task_work = 2.5e5};
    dev->exact_bf16 = dev->exact_f32;
    dev->exact_bf16.tile = k->tile_bf16;
    dev->exact_bf16.chain = k->chain_bf16;
    dev->exact_bf16.bytes_per_word = UM_PANEL * sizeof(uint16_t);
    dev->exact_bf16.step = 2;
}

static um_product quantized_product(const um_dev *dev, um_dtype type) {
    return (um_product){.tile = type == UM_Q8 ? dev->k->tile_q8 : dev->k->tile_q4,
                        .pack = dev->k->pack_quant,
                        .per_word = UM_QUANT_GROUP,
                        .block_words = UM_QUANT_BLOCK,
                        .x_stride = UM_QUANT_STRIDE,
                        .bytes_per_word = um_quant_panel_bytes(type),
                        .step = 1,
                        .tile_rows = dev->k->tile_quant_rows,
                        .matrix_quant = type == UM_Q8 ? dev->k->matrix_q8 : dev->k->matrix_q4,
                        .task_work = 1e6};
}

static um_product pairs_product(const um_dev *dev) {
    um_product p = dev->exact_bf16;
    p.tile = dev->k->tile_pairs;
    p.chain = dev->k->chain_pairs;
    p.pack = dev->k->pack_pairs;
    p.softmax = dev->k->softmax_pairs;
    p.per_word = 2;
    p.bytes_per_word = UM_PANEL * 2 * sizeof(uint16_t);
    p.step = 1;
    return p;
}

static um_product matrix_product(const um_dev *dev) {
    um_product p = pairs_product(dev);
    p.matrix = dev->k->matrix;
    p.chain = NULL;
    p.pack = dev->k->pack_matrix;
    p.begin = dev->k->matrix_begin;
    p.end = dev->k->matrix_end;
    p.step = UM_TILE_WORDS;
    p.tile_rows = UM_TILE_ROWS;
    p.task_work = 2e6;
    return p;
}

/* Chooses the products of the device. A device that computes in bf16 rounds the left operand. For bf16 panels it uses
 * the pair instruction if there is one, and the matrix unit for panels of whole tiles. These are all weights, and keys
 * and values whose head size is a multiple of a tile and at most a block. */
static void choose_products(um_dev *dev) {
    const um_kernels *k = dev->k;
    bool rounds = dev->config.dtype == UM_BF16;
    set_exact_products(dev);
    dev->q8 = quantized_product(dev, UM_Q8);
    dev->q4 = quantized_product(dev, UM_Q4);
    dev->f32 = dev->exact_f32;
    dev->bf16 = dev->exact_bf16;
    if (rounds) dev->f32.pack = dev->bf16.pack = k->pack_round;
    if (rounds) dev->f32.softmax = dev->bf16.softmax = k->softmax_round;
    if (rounds && k->tile_pairs) dev->bf16 = pairs_product(dev);
    dev->bf16_tiles = rounds && k->matrix ? matrix_product(dev) : dev->bf16;
}

static void cpu_close(um_dev *dev) {
    if (!dev) return;
    um_pool_free(dev->pool);
    um_cpu_slab_close(dev);
    if (dev->cpu) um_cpu_unclaim(dev->cpu, dev->n_threads);
    um_free(dev->cpu);
    um_free(dev->scratch);
    um_free(dev);
}

/* Says once in a process what makes this device slow. */
static void warn_of_slowness(const um_dev *dev) {
    static atomic_flag said_isa = ATOMIC_FLAG_INIT, said_threads = ATOMIC_FLAG_INIT;
    const int n_cpus = um_cpu_count();
    if (dev->k == &um_kernels_c && !atomic_flag_test_and_set(&said_isa))
        um_warn("plain C computes, many times slower than kernels for instructions of the processor, which needs at "
                "least AVX2 and FMA for them");
    if (dev->config.threads > n_cpus && !atomic_flag_test_and_set(&said_threads))
        um_warn("%d threads share %d usable CPUs, which is slower than one thread each", dev->config.threads, n_cpus);
}

/* Starts the threads and pins them. */
static um_status start_pool(um_dev *dev, um_err *err) {
    const int n = dev->config.threads ? dev->config.threads : UM_MIN(um_cpu_count(), UM_CPUS_MAX);
    dev->cpu = UM_NEW_ARRAY(int, (size_t)UM_MAX(n, 1));
    dev->n_threads = n;
    if (!um_cpu_claim(dev->config.pin, n, dev->cpu)) {
        um_free(dev->cpu);
        dev->cpu = NULL;
    }
    return um_pool_new_on(&dev->pool, n, dev->cpu, err);
}

/* Each thread fills its own part of the scratch first, so that the part is on its memory node. */
static void zero_scratch(void *arg, int task, int thread) {
    const um_dev *dev = (const um_dev *)arg;
    unsigned char *at = (unsigned char *)dev->scratch;
    const size_t own = (dev->scratch_bytes - dev->shared_bytes) / (size_t)dev->n_threads;
    (void)thread;
    memset(at + dev->shared_bytes + (size_t)task * own, 0, own);
    if (task == 0) memset(at, 0, dev->shared_bytes);
}

static um_status cpu_open(um_dev **out, const um_dev_config *c, um_err *err) {
    if (c->dtype != UM_F32 && c->dtype != UM_BF16)
        return um_fail(err, UM_EUNSUPPORTED, "expected dtype float32 or bfloat16 on device cpu, found %s",
                       um_dtype_name(c->dtype));
    const um_kernels *k;
    um_status s = um_kernels_choose(&k, err);
    if (s) return s;
    um_dev *dev = UM_NEW(um_dev);
    dev->config = *c;
    dev->k = k;
    choose_products(dev);
    s = start_pool(dev, err);
    if (s) goto failed;
    warn_of_slowness(dev);
    um_scratch count = {NULL, 0};
    lay_out(dev, &count);
    s = um_try_alloc_unset(&dev->scratch, count.used, 64, "scratch of the cpu", err);
    if (s) goto failed;
    dev->scratch_bytes = count.used;
    um_pool_run_fixed(dev->pool, zero_scratch, dev, dev->n_threads);
    lay_out(dev, &(um_scratch){(unsigned char *)dev->scratch, 0});
    *out = dev;
    return UM_OK;
failed:
    cpu_close(dev);
    return s;
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

typedef struct zero_job {
    unsigned char *at;
    size_t bytes;
    int n_threads;
} zero_job;

#define ZERO_BYTES ((size_t)2 << 20) /* a huge page */

/* Fills every n_threads-th piece of ZERO_BYTES. */
static void zero_task(void *arg, int task, int thread) {
    const zero_job *j = (const zero_job *)arg;
    (void)thread;
    for (size_t i = (size_t)task * ZERO_BYTES; i < j->bytes; i += (size_t)j->n_threads * ZERO_BYTES)
        memset(j->at + i, 0, UM_MIN(ZERO_BYTES, j->bytes - i));
}

um_status um_cpu_alloc(um_dev *dev, void **out, size_t bytes, const char *what, um_err *err) {
    um_status s = um_try_alloc_unset(out, bytes, 64, what, err);
    zero_job j = {(unsigned char *)*out, bytes, dev->n_threads};
    if (!s && bytes < 2 * ZERO_BYTES) memset(*out, 0, bytes);
    else if (!s) um_pool_run_fixed(dev->pool, zero_task, &j, dev->n_threads);
    return s;
}

static int cpu_threads(const um_dev *dev) { return dev->n_threads; }
static const char *cpu_isa(const um_dev *dev) { return dev->k->name; }
static size_t cpu_scratch_bytes(const um_dev *dev) { return dev->scratch_bytes; }

static um_status cpu_buffer(um_dev *dev, void **out, size_t bytes, const char *what, um_err *err) {
    return um_cpu_alloc(dev, out, bytes, what, err);
}

static void cpu_buffer_free(um_dev *dev, void *p) {
    (void)dev;
    um_free(p);
}

const um_ops um_ops_cpu = {
    .name = "cpu",
    .rows_at_once = 256, /* 1 MB in the bundled models; with fewer rows, large weights are read too often */
    .open = cpu_open,
    .close = cpu_close,
    .threads = cpu_threads,
    .isa = cpu_isa,
    .scratch_bytes = cpu_scratch_bytes,
    .peak = um_cpu_peak,
    .buffer = cpu_buffer,
    .buffer_free = cpu_buffer_free,
    .weight = um_cpu_weight,
    .weight_free = um_cpu_weight_free,
    .weight_bytes = um_cpu_weight_bytes,
    .kv_new = um_cpu_kv_new,
    .kv_free = um_cpu_kv_free,
    .kv_bytes = um_cpu_kv_bytes,
    .kv_scratch_bytes = um_cpu_kv_scratch_bytes,
    .kv_copy = um_cpu_kv_copy,
    .embed = um_cpu_embed,
    .embed_soft = um_cpu_embed_soft,
    .norm = um_cpu_norm,
    .norm_add = um_cpu_norm_add,
    .sum = um_cpu_sum,
    .copy_rows = um_cpu_copy_rows,
    .linear = um_cpu_linear,
    .rope_kv = um_cpu_rope_kv,
    .attention = um_cpu_attention,
    .kv_select = um_cpu_kv_select,
    .gate = um_cpu_gate,
    .linear_gate = um_cpu_linear_gate,
    .moe = um_cpu_moe,
    .head = um_cpu_head,
};
