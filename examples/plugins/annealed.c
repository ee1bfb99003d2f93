/* A plugin with a sampler: accepts above a threshold that falls from `annealed_start` to 0 while a block is denoised.
 *
 *     cc -shared -fPIC -Iinclude -o annealed.so examples/plugins/annealed.c
 *     unmask run --model tiny-block --plugin annealed.so --sampler annealed "What is 12 + 30?"
 */
#include <unmask.h>

static void accept(void *arg, const um_sampler_batch *batch) {
    (void)arg;
    for (int32_t b = 0; b < batch->n_blocks; b++) {
        const float left = 1 - (float)(batch->pass[b] - 1) / (float)batch->length[b];
        const float threshold = batch->param[b * batch->n_params] * (left > 0 ? left : 0);
        for (int32_t i = batch->first[b]; i < batch->first[b + 1]; i++)
            batch->accept[i] = batch->probability[i] > threshold;
    }
}

static const um_sampler_param params[] = {
    {"annealed_start", "sampler annealed: threshold of the first pass of a block", 0, 1, 0.9F},
};

static const um_sampler_def annealed = {
    .version = UM_SAMPLER_VERSION,
    .name = "annealed",
    .summary = "accept above a threshold that falls to 0 with the passes of a block",
    .source = "docs/extending.md",
    .params = params,
    .n_params = 1,
    .accept = accept,
};

const um_sampler_def *const um_plugin_samplers[] = {&annealed, NULL};
