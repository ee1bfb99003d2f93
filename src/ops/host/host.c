/* The host backend: devices, weights and vectors, and its tables for `cpu` and `ref`. */
#include "ops/host/host.h"

#include "ops/cpu/cpu.h"
#include "ops/ref/ref.h"

static um_status host_count(const um_backend *self, int32_t *n, um_err *err) {
    (void)self, (void)err;
    *n = 1;
    return UM_OK;
}

um_status um_host_open(um_device **out, const um_backend *self, const um_dev_config *c, um_err *err) {
    *out = NULL;
    if (c->number)
        return um_fail(err, UM_EUNSUPPORTED, "device \"%s:%d\": device \"%s\" has no numbers", self->name, c->number,
                       self->name);
    um_dev *dev = NULL;
    um_status s = self->ops->open(&dev, c, err);
    if (s) return s;
    *out = UM_NEW(um_device);
    **out = (um_device){.ops = self->ops, .dev = dev, .config = *c};
    return UM_OK;
}

static void host_close(um_device *d) {
    if (d) d->ops->close(d->dev);
    um_free(d);
}

static void host_info(const um_device *d, um_device_info *out) {
    *out = (um_device_info){.threads = d->ops->threads(d->dev)};
    snprintf(out->name, sizeof out->name, "%s", d->ops->isa(d->dev));
}

um_status um_host_acquire(um_device *d, um_dev **out, um_err *err) {
    if (__atomic_exchange_n(&d->in_use, true, __ATOMIC_ACQUIRE)) return d->ops->open(out, &d->config, err);
    *out = d->dev;
    return UM_OK;
}

void um_host_release(um_device *d, um_dev *dev) {
    if (dev == d->dev) __atomic_store_n(&d->in_use, false, __ATOMIC_RELEASE);
    else d->ops->close(dev);
}

static um_status host_weight(um_device *d, um_weight **out, const um_tensor *part, int n_parts, um_dtype type,
                             um_err *err) {
    return d->ops->weight(d->dev, out, part, n_parts, type, err);
}

static void host_weight_free(um_device *d, um_weight *w) { d->ops->weight_free(d->dev, w); }

static size_t cpu_weight_bytes(const um_weight *w) { return um_ops_cpu.weight_bytes(w); }

static size_t ref_weight_bytes(const um_weight *w) { return um_ops_ref.weight_bytes(w); }

static um_status host_vector(um_device *d, um_vector **out, const um_tensor *part, int n_parts, const char *what,
                             um_err *err) {
    size_t n = 0;
    void *data = NULL;
    for (int i = 0; i < n_parts; i++) n += um_tensor_elements(&part[i]);
    um_status s = d->ops->buffer(d->dev, &data, um_mul(n, sizeof(float)), what, err);
    if (s) return s;
    *out = UM_NEW(um_vector);
    (*out)->data = data;
    for (float *to = data; n_parts > 0; part++, n_parts--) {
        um_tensor_to_f32(part, to);
        to += um_tensor_elements(part);
    }
    return UM_OK;
}

static void host_vector_free(um_device *d, um_vector *v) {
    if (v) d->ops->buffer_free(d->dev, v->data);
    um_free(v);
}

#define HOST_BACKEND(operations, bytes)                                                                                \
    .count = host_count, .open = um_host_open, .ops = &(operations), .close = host_close, .info = host_info,           \
    .limits = um_host_limits, .weight = host_weight, .weight_free = host_weight_free, .weight_bytes = (bytes),         \
    .vector = host_vector, .vector_free = host_vector_free, .forward_new = um_host_forward_new,                        \
    .forward_free = um_host_forward_free, .memory = um_host_memory, .copy_page = um_host_copy_page,                    \
    .submit = um_host_submit, .wait = um_host_wait, .profile = um_host_profile

const um_backend um_backend_cpu = {
    .name = "cpu",
    .summary = "threads, AVX2, AVX-512 or AMX, chosen at run time",
    HOST_BACKEND(um_ops_cpu, cpu_weight_bytes),
    .weight_is_mapped = um_cpu_weight_is_mapped,
};

const um_backend um_backend_ref = {
    .name = "ref",
    .summary = "plain C, one thread: the formulas, for comparison",
    HOST_BACKEND(um_ops_ref, ref_weight_bytes),
};
