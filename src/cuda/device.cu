/* The CUDA backend: devices, weights and vectors, and the table that the program loads. */
#include "cuda/device.cuh"

#include <math.h>

#include "cuda/comm.cuh"
#include "ops/plugin.h"

static const size_t STAGING_BYTES = (size_t)64 << 20;
enum { LOADING_THREADS_MAX = 16, LOADING_TASKS = 64 };

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static um_status count_devices(const um_backend *self, int32_t *out, um_err *err) {
    int n = 0;
    (void)self;
    cudaError_t e = cudaGetDeviceCount(&n);
    *out = n;
    if (e == cudaErrorInsufficientDriver)
        return um_fail(err, UM_EDEVICE, "the NVIDIA driver is missing or older than CUDA %d.%d needs",
                       CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100);
    if (e == cudaErrorNoDevice || (e == cudaSuccess && n == 0))
        return um_fail(err, UM_EDEVICE, "there is no NVIDIA GPU, or CUDA_VISIBLE_DEVICES hides it");
    return um_cu_check(e, "cudaGetDeviceCount", err);
}

static um_status check_number(int number, um_err *err) {
    int32_t n = 0;
    um_status s = count_devices(NULL, &n, err);
    if (s || number < n) return s;
    return um_fail(err, UM_EDEVICE, "device cuda:%d is not there; this process sees %d, cuda:0 to cuda:%d", number, n,
                   n - 1);
}

static um_status check_capability(const um_device *d, um_err *err) {
    const cudaDeviceProp *p = &d->properties;
    if (p->major < 8)
        return um_fail(err, UM_EUNSUPPORTED, "%s has compute capability %d.%d; 8.0 or newer is needed", p->name,
                       p->major, p->minor);
    if (d->config.weights == UM_F8 && p->major != 9)
        return um_fail(err, UM_EUNSUPPORTED,
                       "%s has compute capability %d.%d; --quantization fp8 needs 9.0, an H100 or H200", p->name,
                       p->major, p->minor);
    return UM_OK;
}

static void close_staging(um_device *d) {
    for (int i = 0; i < UM_CU_STAGINGS; i++) {
        if (d->staging[i].host) cudaFreeHost(d->staging[i].host);
        if (d->staging[i].free) cudaEventDestroy(d->staging[i].free);
        d->staging[i] = {};
    }
    um_pool_free(d->pool);
    d->pool = NULL;
}

static void close_device(um_device *d) {
    if (!d) return;
    cudaSetDevice(d->number);
    close_staging(d);
    um_cu_comm_free(d->comm);
    if (d->stream) cudaStreamDestroy(d->stream);
    um_free(d);
}

static um_status start_device(um_device *d, um_err *err) {
    um_status s = check_number(d->number, err);
    if (!s) s = um_cu_check(cudaGetDeviceProperties(&d->properties, d->number), "cudaGetDeviceProperties", err);
    if (!s) s = check_capability(d, err);
    if (!s) s = um_cu_use(d, err);
    if (!s) s = um_cu_check(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking), "cudaStreamCreate", err);
    return s;
}

static um_status open_device(um_device **out, const um_backend *self, const um_dev_config *c, um_err *err) {
    (void)self;
    um_device *d = UM_NEW(um_device);
    d->number = c->number;
    d->dtype = c->dtype;
    d->config = *c;
    um_status s = c->dtype == UM_F32 || c->dtype == UM_BF16
                      ? start_device(d, err)
                      : um_fail(err, UM_EUNSUPPORTED, "expected dtype float32 or bfloat16 on device cuda, found %s",
                                um_dtype_name(c->dtype));
    if (s) {
        close_device(d);
        d = NULL;
    }
    *out = d;
    return s;
}

static void device_info(const um_device *d, um_device_info *out) {
    *out = {};
    snprintf(out->name, sizeof out->name, "%.60s", d->properties.name);
    cudaSetDevice(d->number);
    if (cudaMemGetInfo(&out->there, &out->memory) != cudaSuccess) out->there = out->memory = 0;
}

um_status um_cu_alloc(void **out, size_t bytes, const char *what, um_err *err) {
    size_t there = 0, all = 0;
    *out = NULL;
    cudaError_t e = cudaMalloc(out, bytes ? bytes : 1);
    if (e == cudaErrorMemoryAllocation) {
        cudaGetLastError(); /* clears the error */
        cudaMemGetInfo(&there, &all);
        return um_fail(err, UM_ENOMEM, "%s: %zu bytes of device memory are wanted, %zu of %zu are free", what, bytes,
                       there, all);
    }
    return um_cu_check(e, what, err);
}

/* ---- Weights ----------------------------------------------------------------------------------------------------- */

/* Allocates the staging buffers before the first weight. A failed call leaves none. */
static um_status open_staging(um_device *d, um_err *err) {
    if (d->pool) return UM_OK;
    um_status s = um_pool_new(&d->pool, UM_MIN(um_cpu_count(), LOADING_THREADS_MAX), err);
    for (int i = 0; i < UM_CU_STAGINGS && !s; i++) {
        um_cu_staging *g = &d->staging[i];
        s = um_cu_check(cudaMallocHost((void **)&g->host, STAGING_BYTES), "pinned memory for loading", err);
        if (!s) s = um_cu_check(cudaEventCreateWithFlags(&g->free, cudaEventDisableTiming), "cudaEventCreate", err);
    }
    if (s) close_staging(d);
    return s;
}

/* Elements of a tensor that are converted to a type. */
typedef struct conversion {
    const um_tensor *t;
    um_dtype type;
    size_t first, n; /* elements [first, first + n) of t */
    char *to;
} conversion;

/* Converts the elements [first, first + n) of a tensor. */
static void convert(const um_tensor *t, size_t first, size_t n, um_dtype type, char *to) {
    enum { PIECE = 1024 }; /* whole groups of every format */
    float x[PIECE];
    const size_t in = (size_t)um_tensor_in(t);
    for (size_t at = 0, part; at < n; at += part) {
        const size_t k = (first + at) % in;
        part = UM_MIN(UM_MIN(n - at, in - k), (size_t)PIECE);
        um_tensor_read(t, (int64_t)((first + at) / in), (int64_t)k, (int64_t)part, x);
        if (type == UM_F32) memcpy(to + at * sizeof *x, x, part * sizeof *x);
        else
            for (size_t i = 0; i < part; i++) ((uint16_t *)to)[at + i] = um_f32_to_bf16(x[i]);
    }
}

/* Returns the elements between two places where the conversion of t may be divided: groups of formats end with rows. */
static size_t unit_of(const um_tensor *t) { return t->type == UM_DTYPE_OTHER ? (size_t)um_tensor_in(t) : 1; }

static void convert_task(void *arg, int task, int thread) {
    (void)thread;
    const conversion *c = (const conversion *)arg;
    const size_t size = um_dtype_size(c->type), unit = unit_of(c->t);
    const size_t n = c->n / unit, from = n * (size_t)task / LOADING_TASKS * unit;
    const size_t to = n * (size_t)(task + 1) / LOADING_TASKS * unit;
    char *at = c->to + from * size;
    if (c->t->type == c->type) memcpy(at, (const char *)c->t->data + (c->first + from) * size, (to - from) * size);
    else convert(c->t, c->first + from, to - from, c->type, at);
}

/* Copies a tensor to the device through the staging buffers. The data of t has been read when it returns. */
static um_status upload(um_device *d, const um_tensor *t, um_dtype type, char *to, um_err *err) {
    const size_t size = um_dtype_size(type), n = um_tensor_elements(t), unit = unit_of(t);
    const size_t most = STAGING_BYTES / size / unit * unit;
    um_status s = open_staging(d, err);
    for (size_t i = 0, part; i < n && !s; i += part) {
        um_cu_staging *g = &d->staging[d->next_staging];
        d->next_staging = (d->next_staging + 1) % UM_CU_STAGINGS;
        part = UM_MIN(n - i, most);
        if (g->used) s = um_cu_check(cudaEventSynchronize(g->free), "loading weights", err);
        if (s) return s;
        conversion c = {t, type, i, part, g->host};
        um_pool_run(d->pool, convert_task, &c, LOADING_TASKS);
        s = um_cu_check(cudaMemcpyAsync(to + i * size, g->host, part * size, cudaMemcpyHostToDevice, d->stream),
                        "loading weights", err);
        if (!s) s = um_cu_check(cudaEventRecord(g->free, d->stream), "loading weights", err);
        g->used = true;
    }
    return s;
}

static void weight_free(um_device *d, um_weight *w) {
    if (!w) return;
    cudaSetDevice(d->number);
    cudaFree(w->m.data);
    cudaFree(w->m.scale);
    cudaFree(w->m.block);
    um_free(w);
}

/* Copies the parts of a matrix to the device, one below the other. */
static um_status upload_parts(um_device *d, const um_tensor *part, int n_parts, um_dtype type, void *data,
                              um_err *err) {
    char *to = (char *)data;
    um_status s = UM_OK;
    for (int i = 0; i < n_parts && !s; i++) {
        s = upload(d, &part[i], type, to, err);
        to += um_tensor_elements(&part[i]) * um_dtype_size(type);
    }
    return s;
}

/* Returns whether the checkpoint has the matrix in e4m3 with scales of blocks that do not reach into other parts. */
static bool has_blocks(const um_tensor *part, int n_parts) {
    for (int i = 0; i < n_parts; i++) {
        const um_format *f = um_tensor_format(&part[i]);
        if (!f->read_scales || !f->read_scales(&part[i], NULL)) return false;
        if (i + 1 < n_parts && part[i].dim[0] % UM_CU_BLOCK) return false;
    }
    return true;
}

/* Copies the scales of the blocks of all parts to m->block. A scale so small that others can't be divided by it becomes
 * 0. */
static um_status upload_blocks(um_device *d, const um_tensor *part, int n_parts, const um_cu_matrix *m, um_err *err) {
    static_assert((int)UM_CU_BLOCK == UM_FORMAT_BLOCK, "blocks have the size of the format's");
    const float least = 0x1p-80f;
    const size_t bytes = um_cu_block_bytes(m->rows, m->in), n = (size_t)UM_CEIL_DIV(m->in, UM_CU_BLOCK);
    const size_t stride = (size_t)um_cu_block_stride(m->in);
    float *all = (float *)um_zalloc(bytes), *read = (float *)um_alloc(bytes), *to = all;
    for (int i = 0; i < n_parts; i++) {
        um_tensor_format(&part[i])->read_scales(&part[i], read);
        for (size_t row = 0; row < (size_t)UM_CEIL_DIV(part[i].dim[0], UM_CU_BLOCK); row++, to += stride)
            for (size_t k = 0; k < n; k++) to[k] = fabsf(read[row * n + k]) < least ? 0 : read[row * n + k];
    }
    cudaError_t e = cudaMemcpyAsync(m->block, all, bytes, cudaMemcpyHostToDevice, d->stream);
    if (e == cudaSuccess) e = cudaStreamSynchronize(d->stream);
    um_free(all);
    um_free(read);
    return um_cu_check(e, "scales of blocks", err);
}

/* Rounds a matrix to e4m3: it is uploaded in a type that has all its numbers, and rounded on the device. */
static um_status upload_fp8(um_device *d, const um_tensor *part, int n_parts, um_cu_matrix *m, um_err *err) {
    um_dtype type = UM_BF16;
    for (int i = 0; i < n_parts; i++)
        if (part[i].type != UM_BF16) type = UM_F32;
    const um_cu_coded out = {(unsigned char *)m->data, m->scale};
    void *whole = NULL;
    um_status s = um_cu_alloc(&whole, um_mul(um_mul((size_t)m->rows, (size_t)m->in), um_dtype_size(type)),
                              "weights that are rounded to 8 bits", err);
    if (!s && m->block) s = upload_blocks(d, part, n_parts, m, err);
    if (!s) s = upload_parts(d, part, n_parts, type, whole, err);
    if (!s) {
        if (m->block) um_cu_quantize_blocks((const float *)whole, m, d->stream);
        else um_cu_quantize_weights(whole, type, m->rows, m->in, &out, d->stream);
        s = um_cu_launched("rounding weights", err);
    }
    cudaFree(whole); /* waits for the device */
    return s;
}

static um_status weight_new(um_device *d, um_weight **out, const um_tensor *part, int n_parts, um_dtype type,
                            um_err *err) {
    int64_t rows = 0;
    const int64_t in = part[0].dim[1];
    *out = NULL;
    um_status s = um_cu_use(d, err);
    if (s) return s;
    for (int i = 0; i < n_parts; i++) rows += part[i].dim[0];
    if (type == UM_F8 && !um_cu_fp8_suits(rows, in)) type = d->dtype;
    um_weight *w = UM_NEW(um_weight);
    um_cu_matrix *m = &w->m;
    *m = {(int32_t)rows, (int32_t)in, type == UM_F32 || type == UM_F8 ? type : d->dtype, NULL, NULL, NULL};
    s = um_cu_alloc(&m->data, um_mul(um_mul((size_t)rows, (size_t)in), um_dtype_size(m->type)), part[0].name, err);
    if (!s && m->type == UM_F8)
        s = um_cu_alloc((void **)&m->scale, um_mul((size_t)rows, sizeof *m->scale), part[0].name, err);
    if (!s && m->type == UM_F8 && has_blocks(part, n_parts))
        s = um_cu_alloc((void **)&m->block, um_cu_block_bytes(m->rows, m->in), part[0].name, err);
    if (!s)
        s = m->type == UM_F8 ? upload_fp8(d, part, n_parts, m, err)
                             : upload_parts(d, part, n_parts, m->type, m->data, err);
    if (s) {
        weight_free(d, w);
        w = NULL;
    }
    *out = w;
    return s;
}

static size_t weight_bytes(const um_weight *w) {
    const size_t scales = w->m.scale ? (size_t)w->m.rows * sizeof *w->m.scale : 0,
                 blocks = w->m.block ? um_cu_block_bytes(w->m.rows, w->m.in) : 0;
    return (size_t)w->m.rows * (size_t)w->m.in * um_dtype_size(w->m.type) + scales + blocks;
}

static void vector_free(um_device *d, um_vector *v) {
    if (!v) return;
    cudaSetDevice(d->number);
    cudaFree(v->data);
    um_free(v);
}

static um_status vector_new(um_device *d, um_vector **out, const um_tensor *part, int n_parts, const char *what,
                            um_err *err) {
    um_vector *v = UM_NEW(um_vector);
    for (int i = 0; i < n_parts; i++) v->n += um_tensor_elements(&part[i]);
    um_status s = um_cu_use(d, err);
    if (!s) s = um_cu_alloc((void **)&v->data, um_mul(v->n, sizeof(float)), what, err);
    char *to = (char *)v->data;
    for (int i = 0; i < n_parts && !s; i++) {
        s = upload(d, &part[i], UM_F32, to, err);
        to += um_tensor_elements(&part[i]) * sizeof(float);
    }
    if (s) {
        vector_free(d, v);
        v = NULL;
    }
    *out = v;
    return s;
}

/* ---- The plugin -------------------------------------------------------------------------------------------------- */

static const um_backend backend = {
    .name = "cuda",
    .summary = "NVIDIA GPUs",
    .load = NULL,
    .ops = NULL,
    .count = count_devices,
    .open = open_device,
    .close = close_device,
    .info = device_info,
    .limits = um_cu_device_limits,
    .weight = weight_new,
    .weight_free = weight_free,
    .weight_bytes = weight_bytes,
    .weight_is_mapped = NULL,
    .vector = vector_new,
    .vector_free = vector_free,
    .reach = um_cu_reach,
    .introduce = um_cu_introduce,
    .unite = um_cu_unite,
    .give_up = um_cu_group_stop,
    .workspace = um_cu_workspace,
    .forward_new = um_cu_forward_new,
    .forward_free = um_cu_forward_free,
    .memory = um_cu_memory,
    .stats = um_cu_stats,
    .warm = um_cu_warm,
    .copy_page = um_cu_copy_page,
    .submit = um_cu_submit,
    .wait = um_cu_wait,
    .profile = um_cu_profile,
};

extern "C" __attribute__((visibility("default"))) const um_plugin *um_plugin_get(void) {
    static const um_plugin plugin = {UM_PLUGIN_VERSION, UM_PLUGIN_SIZES, &backend};
    return &plugin;
}
