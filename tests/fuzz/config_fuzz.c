/* Fuzzes config.json, parsed as the family that it names and as each known family. The sizes of an accepted file must
 * be valid numbers for the rest of the engine: positive, divisible where necessary, and small enough to multiply. */
#include <jansson.h>
#include <stdlib.h>

#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool claim) {
    if (!claim) abort();
}

/* Checks the routing of experts: the engine divides by these numbers and selects as many experts as they say. */
static void check_route(const um_expert_route *r, int32_t width, int32_t block) {
    check(r->top_k > 0 && r->top_k <= r->n_experts && width > 0);
    check(r->n_group > 0 && r->n_experts % r->n_group == 0 && r->topk_group > 0 && r->topk_group <= r->n_group);
    check(r->top_k <= r->n_experts / r->n_group * r->topk_group);
    check(!r->capacity || (r->top_k <= r->capacity && r->capacity <= r->n_experts && block > 0));
}

static void parse(const json_t *config, const char *family) {
    um_arch a;
    um_err err;
    if (um_arch_parse(&a, config, "config.json", family, &err)) return;
    check(a.n_layers > 0 && a.hidden > 0 && a.vocab > 0 && a.max_position > 0);
    for (int32_t i = 0; i < a.n_layers; i++) check(um_arch_is_moe(&a, i) ? a.route.n_experts > 0 : a.n_ff > 0);
    if (a.route.n_experts) check_route(&a.route, a.expert_ff, a.route_block);
    check(a.n_heads > 0 && a.n_kv_heads > 0 && a.n_heads % a.n_kv_heads == 0);
    check(a.head_dim > 0 && a.rope_dim > 0 && a.rope_dim <= a.head_dim && a.rope_dim % 2 == 0);
    check(a.norm_eps > 0 && a.rope_theta >= 1 && a.mask_id < a.vocab && a.pad_id < a.vocab);
    check(a.see != UM_SEE_BLOCK_CAUSAL || a.block > 0);
    check(um_arch_params(&a) >= um_arch_active_params(&a) && um_arch_active_params(&a) > 0 &&
          um_arch_embedding_params(&a) > 0 && um_arch_kv_bytes(&a, UM_F32) > 0);
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
