/* The values that an engine uses, with the automatic ones resolved. */
#include "engine/engine.h"

void um_engine_get_info(const um_engine *e, um_engine_info *out) {
    const um_config *c = &e->config;
    const um_arch *a = &e->model->arch;
    bool is_auto = um_streq(c->decoding.strategy, "auto");
    um_device_info d;
    e->model->backend->info(e->model->device, &d);
    *out = (um_engine_info){
        .max_model_len = e->max_len,
        .max_num_reqs = c->max_num_reqs,
        .max_num_batched_tokens = c->max_num_batched_tokens,
        .page_size = c->page_size,
        .num_pages = c->num_pages,
        .block_size = c->decoding.block_size ? c->decoding.block_size : a->block,
        .device = c->device,
        .dtype = um_dtype_name(e->model->dtype),
        .quantization = e->model->weight_type == e->model->dtype ? "none" : um_dtype_name(e->model->weight_type),
        .strategy = is_auto ? a->default_strategy : c->decoding.strategy,
        .sampler = e->sampler,
        .device_bytes = d.memory,
        .device_free_bytes = d.memory ? d.there : 0};
    snprintf(out->device_name, sizeof out->device_name, "%s", d.name);
}
