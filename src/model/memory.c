/* The memory that the weights of a model need. */
#include "model/config.h"
#include "ops/quantize.h"

size_t um_weights_bytes(int64_t n, um_dtype type) {
    return um_is_quantized(type) ? um_quant_bytes(type, 1, n) : um_mul((size_t)n, um_dtype_size(type));
}

size_t um_model_weight_bytes(const um_model *m) {
    size_t per_position = m->arch.query_beta > 0;
    for (int32_t i = 0; i < m->net.n_rotary; i++) per_position += (size_t)um_model_rotary_kind(m, i)->rope_dim;
    const size_t rotary = (size_t)m->arch.max_position * per_position * sizeof(float);
    /* With weights in UM_F8 the embeddings stay in the device's type (UM_USE_TABLE). */
    const int64_t extra = um_model_extra_params(m),
                  table = m->weight_type == UM_F8 ? (int64_t)m->arch.vocab * m->arch.hidden + extra : 0,
                  all = um_arch_params(&m->arch) + extra;
    return um_weights_bytes(all - table, m->weight_type) + um_weights_bytes(table, m->dtype) + m->adapter_bytes +
           rotary;
}

const char *um_model_type_name(const um_model *m) {
    static const char *const q8[] = {"float32 with q8 weights", "bfloat16 with q8 weights"},
                             *const q4[] = {"float32 with q4 weights", "bfloat16 with q4 weights"};
    if (m->weight_type == UM_F8) return "bfloat16 with fp8 weights";
    if (!um_is_quantized(m->weight_type)) return um_dtype_name(m->dtype);
    return (m->weight_type == UM_Q8 ? q8 : q4)[m->dtype == UM_BF16];
}

void um_model_device_name(const um_model *m, char out[UM_DEVICE_NAME_MAX]) {
    um_device_list list = {.backend = m->backend, .n = 1, .n_own = UM_MAX(m->devices.n_own, 1), .number = {m->number}};
    for (int32_t r = 0; r < list.n_own && m->rank_number; r++) list.number[r] = m->rank_number[r];
    um_device_name(&list, 0, out);
}

/* Returns what the user can do about weights that are too large. */
static const char *advice(const um_model *m) {
    if (m->weight_type == UM_Q4) return "use a smaller model";
    if (um_backend_is_host(m->backend)) return "use --quantization q4 or a smaller model";
    if (m->weight_type == UM_F8) return "use a smaller model";
    return m->dtype == UM_F32 ? "use --dtype bfloat16 or a smaller model"
                              : "use --quantization fp8 (Hopper GPUs) or a smaller model";
}

/* Returns the share of the model's weights that this process has. */
static double own_share(const um_model *m) {
    if (m->place.n <= 1) return 1;
    return (double)um_arch_rank_params(&m->arch, m->place.n, m->net.expert_parallel) / (double)um_arch_params(&m->arch);
}

/* The host backend keeps a weight either in its stored type or in the type of its products, so the smaller one is
 * counted. */
static um_status check_host(const um_model *m, um_err *err) {
    char needed[UM_BYTES_TEXT], free[UM_BYTES_TEXT];
    size_t there = um_memory_available();
    const double bytes = (double)m->stored_bytes * own_share(m);
    if (!there || bytes <= (double)there) return UM_OK;
    return um_fail(err, UM_ENOMEM, "the weights of %s need at least %s as %s, but only %s of memory are free: %s",
                   m->path, um_bytes_text(needed, bytes), um_dtype_name(m->weight_type),
                   um_bytes_text(free, (double)there), advice(m));
}

int32_t um_config_places(const um_config *c) {
    enum { AUTO = 64 };
    if (c->admission == UM_ADMIT_ARRIVAL) return c->max_num_reqs;
    return c->max_num_reqs + (c->max_guests < 0 ? UM_MIN(c->max_num_reqs, AUTO) : c->max_guests);
}

int32_t um_config_block(const um_config *c, const um_arch *a) {
    const int32_t given = c->decoding.block_size;
    return given ? given : a->block ? a->block : 32;
}

int32_t um_config_step_tokens(const um_config *c, const um_arch *a, bool is_host) {
    const int64_t all = 2 * (int64_t)um_config_block(c, a) * c->max_num_reqs;
    if (c->max_num_batched_tokens > 0) return c->max_num_batched_tokens;
    if (is_host) return UM_BATCHED_TOKENS_AUTO;
    return (int32_t)UM_MAX(UM_MIN(all, (int64_t)UM_BATCHED_TOKENS_AUTO_MAX), (int64_t)UM_BATCHED_TOKENS_AUTO);
}

/* Returns the bytes of activations of the engines on m's device. Pages come on top. */
static size_t workspace(const um_model *m, const um_config *c) {
    const um_forward_config f = {.max_tokens = m->max_tokens,
                                 .max_rows = m->max_tokens,
                                 .max_spans = 2 * c->max_num_reqs,
                                 .n_saved = um_config_places(c),
                                 .page_size = UM_MAX(c->page_size, 1),
                                 .kv_type = m->dtype};
    return m->backend->workspace(m->device, &m->net, &f) * (size_t)m->n_sharing;
}

static um_status check_device(const um_model *m, const um_config *c, const um_device_info *d, um_err *err) {
    char name[UM_DEVICE_NAME_MAX], text[6][UM_BYTES_TEXT];
    const double share = (double)c->gpu_memory_utilization,
                 weights = (double)um_model_weight_bytes(m) / UM_MAX(m->place.n, 1),
                 activations = (double)workspace(m, c), most = UM_MIN(share * (double)d->memory, (double)d->there);
    if (weights + activations <= most) return UM_OK;
    um_model_device_name(m, name);
    return um_fail_param(err, UM_ENOMEM, "gpu_memory_utilization",
                         "%s can't hold the model: weights %s + activations %s = %s, but only %s may be used: %.2f of "
                         "%s (--gpu-memory-utilization), %s are free; %s",
                         name, um_bytes_text(text[0], weights), um_bytes_text(text[1], activations),
                         um_bytes_text(text[2], weights + activations), um_bytes_text(text[3], most), share,
                         um_bytes_text(text[4], (double)d->memory), um_bytes_text(text[5], (double)d->there),
                         advice(m));
}

um_status um_model_check_memory(const um_model *m, const um_config *c, um_err *err) {
    um_device_info d;
    m->backend->info(m->device, &d);
    return um_backend_is_host(m->backend) || !d.memory ? check_host(m, err) : check_device(m, c, &d, err);
}
