/* Fuzzes adapter_config.json. An accepted file must have ranks within the limits, and a finite scale for every module
 * that it adapts. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "model/lora.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool claim) {
    if (!claim) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char *const modules[] = {"lm_head", "model.layers.0.self_attn.q_proj",
                                          "model.transformer.blocks.31.ff_out",
                                          "model.layers.7.mlp.experts.255.down_proj"};
    json_t *root = NULL;
    um_lora_config *c = NULL;
    um_err err;
    if (um_json_parse(&root, (const char *)data, n, UM_LORA_CONFIG, &err)) return 0;
    if (!um_lora_config_parse(&c, root, UM_LORA_CONFIG, &err)) {
        check(um_lora_config_rank(c) >= 1 && um_lora_config_rank(c) <= UM_LORA_RANK_MAX);
        for (size_t i = 0; i < UM_LEN(modules); i++) {
            um_lora_terms t;
            (void)um_lora_config_saves(c, modules[i]);
            if (um_lora_config_find(c, modules[i], &t, &err)) continue;
            check(t.rank >= 1 && t.rank <= UM_LORA_RANK_MAX && isfinite(t.scale));
        }
        (void)um_lora_config_no_target(c);
        (void)um_lora_config_not_saved(c);
    }
    um_lora_config_free(c);
    json_decref(root);
    return 0;
}
