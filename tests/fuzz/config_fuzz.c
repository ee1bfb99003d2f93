/* Any text as a config.json, under its own family and under each of the table: what is accepted must be numbers that
 * the rest of the engine can multiply. */
#include <jansson.h>
#include <stdlib.h>

#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool claim) {
    if (!claim) abort();
}

static void parse(const json_t *config, const char *family) {
    um_arch a;
    um_err err;
    if (um_arch_parse(&a, config, "config.json", family, &err)) return;
    check(a.n_layers > 0 && a.hidden > 0 && a.n_ff > 0 && a.vocab > 0 && a.max_position > 0);
    check(a.n_heads > 0 && a.n_kv_heads > 0 && a.n_heads % a.n_kv_heads == 0);
    check(a.head_dim > 0 && a.rope_dim > 0 && a.rope_dim <= a.head_dim && a.rope_dim % 2 == 0);
    check(a.norm_eps > 0 && a.rope_theta >= 1 && a.mask_id < a.vocab && a.pad_id < a.vocab);
    check(a.see != UM_SEE_BLOCK_CAUSAL || a.block > 0);
    check(um_arch_params(&a) > 0 && um_arch_kv_bytes(&a, UM_F32) > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    json_t *config = NULL;
    um_err err;
    if (um_json_parse(&config, (const char *)data, n, "config.json", &err)) return 0;
    parse(config, NULL);
    for (size_t i = 0; um_families[i]; i++) parse(config, um_families[i]->name);
    json_decref(config);
    return 0;
}
