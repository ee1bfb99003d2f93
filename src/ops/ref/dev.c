/* Device and weights of the reference backend, and its table of operations. */
#include "ops/ref/ref.h"

#include "ops/expert_route.h"
#include "ops/format.h"
#include "ops/quantize.h"

float um_ref_round(const um_dev *dev, float v) {
    return dev->config.dtype == UM_BF16 ? um_bf16_to_f32(um_f32_to_bf16(v)) : v;
}

const float *um_ref_operand(um_dev *dev, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) dev->operand[i] = um_ref_round(dev, x[i]);
    return dev->operand;
}

/* Rounds x [n] to groups: those of a matrix, or of a left operand. */
static void round_groups(um_dtype type, float *x, int32_t n, bool left) {
    for (int32_t i = 0; i < n; i += UM_QUANT_GROUP) {
        const int32_t m = UM_MIN(n - i, UM_QUANT_GROUP);
        int8_t q[UM_QUANT_GROUP];
        const float scale = left ? um_quantize_left(x + i, m, q) : um_f16_to_f32(um_quantize(type, x + i, m, q));
        for (int32_t k = 0; k < m; k++) x[i + k] = scale * q[k];
    }
}

const float *um_ref_left(um_dev *dev, const um_weight *w, const float *x) {
    if (w->exact) return x;
    if (!um_is_quantized(w->type)) return um_ref_operand(dev, x, w->in);
    memcpy(dev->operand, x, (size_t)w->in * sizeof *x);
    round_groups(w->type, dev->operand, w->in, true);
    return dev->operand;
}

float um_ref_dot(const float *a, const float *b, int32_t n) {
    float sum = 0;
    for (int32_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void ref_close(um_dev *dev) {
    if (!dev) return;
    um_free(dev->operand);
    um_free(dev->logit);
    um_free(dev->scaled);
    um_free(dev->order);
    um_free(dev->expert);
    um_free(dev->weight);
    um_free(dev->mean);
    um_free(dev->score);
    um_free(dev->pooled);
    um_free(dev->key);
    um_free(dev->best);
    um_free(dev->route_scratch);
    um_free(dev->expert_gate_up);
    um_free(dev->expert_gated);
    um_free(dev->expert_out);
    um_free(dev);
}

static int32_t operand_length(const um_dev_config *c) {
    return UM_MAX(UM_MAX(c->max_in, c->max_hidden), UM_MAX(c->max_head_dim, 1));
}

static um_status ref_open(um_dev **out, const um_dev_config *c, um_err *err) {
    if (c->dtype != UM_F32 && c->dtype != UM_BF16)
        return um_fail(err, UM_EUNSUPPORTED, "expected dtype float32 or bfloat16 on device ref, found %s",
                       um_dtype_name(c->dtype));
    um_dev *dev = UM_NEW(um_dev);
    dev->config = *c;
    dev->operand = UM_NEW_ARRAY(float, (size_t)operand_length(c));
    dev->logit = UM_NEW_ARRAY(float, (size_t)c->max_vocab + 1);
    dev->scaled = UM_NEW_ARRAY(float, (size_t)c->max_vocab + 1);
    dev->order = UM_NEW_ARRAY(int32_t, (size_t)c->max_vocab + 1);
    dev->mean = UM_NEW_ARRAY(float, um_mul((size_t)c->max_heads, (size_t)c->max_head_dim) + 1);
    dev->score = UM_NEW_ARRAY(float, (size_t)c->max_tokens + 1);
    dev->pooled = UM_NEW_ARRAY(float, (size_t)c->max_tokens + 1);
    dev->key = UM_NEW_ARRAY(int32_t, (size_t)c->max_tokens + 1);
    dev->best = UM_NEW_ARRAY(int32_t, (size_t)c->max_tokens + 1);
    size_t choices = um_mul((size_t)c->max_tokens, (size_t)c->max_top_k);
    dev->expert = UM_NEW_ARRAY(int32_t, choices + 1);
    dev->weight = UM_NEW_ARRAY(float, choices + 1);
    dev->route_scratch = UM_NEW_ARRAY(float, um_expert_route_scratch(c->max_experts) + 1);
    dev->expert_gate_up = UM_NEW_ARRAY(float, 2 * (size_t)c->max_expert_ff + 1);
    dev->expert_gated = UM_NEW_ARRAY(float, (size_t)c->max_expert_ff + 1);
    dev->expert_out = UM_NEW_ARRAY(float, (size_t)c->max_hidden + 1);
    *out = dev;
    return UM_OK;
}

static int ref_threads(const um_dev *dev) {
    (void)dev;
    return 1;
}

static const char *ref_isa(const um_dev *dev) {
    (void)dev;
    return "plain C";
}

static size_t ref_scratch_bytes(const um_dev *dev) {
    return sizeof(float) * (size_t)operand_length(&dev->config) +
           ((size_t)dev->config.max_vocab + 1) * (2 * sizeof(float) + sizeof(int32_t));
}

static um_status ref_buffer(um_dev *dev, void **out, size_t bytes, const char *what, um_err *err) {
    (void)dev;
    return um_try_alloc(out, bytes, 64, what, err);
}

static void ref_buffer_free(um_dev *dev, void *p) {
    (void)dev;
    um_free(p);
}

static um_status ref_weight(um_dev *dev, um_weight **out, const um_tensor *part, int n_parts, um_dtype type,
                            um_err *err) {
    int64_t rows = 0, in = part[0].dim[1];
    for (int i = 0; i < n_parts; i++) {
        assert(part[i].n_dims == 2 && part[i].dim[1] == in);
        rows += part[i].dim[0];
    }
    void *data;
    um_status s = um_try_alloc(&data, um_mul(um_mul((size_t)rows, (size_t)in), sizeof(float)), 64, part[0].name, err);
    if (s) return s;
    um_weight *w = UM_NEW(um_weight);
    *w = (um_weight){(int32_t)rows, (int32_t)in, data, type == UM_F32, type};
    float *to = w->data;
    for (int i = 0; i < n_parts; i++) {
        const size_t n = um_tensor_elements(&part[i]);
        um_tensor_to_f32(&part[i], to);
        for (size_t j = 0; j < n && type == UM_BF16; j++) to[j] = um_ref_round(dev, to[j]);
        to += n;
    }
    for (int64_t r = 0; r < rows && um_is_quantized(type); r++) round_groups(type, w->data + r * in, w->in, false);
    *out = w;
    return UM_OK;
}

static void ref_weight_free(um_dev *dev, um_weight *w) {
    (void)dev;
    if (w) um_free(w->data);
    um_free(w);
}

static size_t ref_weight_bytes(const um_weight *w) { return sizeof(float) * (size_t)w->rows * (size_t)w->in; }

const um_ops um_ops_ref = {
    .name = "ref",
    .open = ref_open,
    .close = ref_close,
    .threads = ref_threads,
    .isa = ref_isa,
    .scratch_bytes = ref_scratch_bytes,
    .buffer = ref_buffer,
    .buffer_free = ref_buffer_free,
    .weight = ref_weight,
    .weight_free = ref_weight_free,
    .weight_bytes = ref_weight_bytes,
    .kv_new = um_ref_kv_new,
    .kv_free = um_ref_kv_free,
    .kv_bytes = um_ref_kv_bytes,
    .kv_scratch_bytes = um_ref_kv_scratch_bytes,
    .kv_copy = um_ref_kv_copy,
    .embed = um_ref_embed,
    .embed_soft = um_ref_embed_soft,
    .norm = um_ref_norm,
    .norm_add = um_ref_norm_add,
    .sum = um_ref_sum,
    .copy_rows = um_ref_copy_rows,
    .linear = um_ref_linear,
    .rope_kv = um_ref_rope_kv,
    .attention = um_ref_attention,
    .kv_select = um_ref_kv_select,
    .gate = um_ref_gate,
    .moe = um_ref_moe,
    .head = um_ref_head,
};
