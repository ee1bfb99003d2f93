/* Tests of the names of tensors in GGUF files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gguf_json.h"
#include "model/config.h"
#include "model_folder.h"

/* Returns the family's name for a tensor in a file of this architecture (um_free), or NULL when it may be ignored. */
static char *name_of(const char *architecture, const um_family *f, const char *tensor, bool *permuted) {
    char metadata[96], out[UM_GGUF_NAME_SIZE];
    snprintf(metadata, sizeof metadata, "{'general.architecture':'%s'}", architecture);
    json_t *m = json_of(metadata);
    gguf_json file = gguf_json_open(m, NULL);
    const um_gguf_tensor t = {.name = tensor};
    bool read = um_gguf_tensor_name(out, file.g, f, &t, permuted);
    gguf_json_close(&file);
    json_decref(m);
    return read ? um_strdup(out) : NULL;
}

static void assert_name(const char *architecture, const um_family *f, const char *tensor, const char *want,
                        bool want_permuted) {
    bool permuted;
    char *got = name_of(architecture, f, tensor, &permuted);
    if (!um_streq(got, want)) fail_msg("%s: expected %s, found %s", tensor, want, got);
    if (permuted != want_permuted) fail_msg("%s: permuted is %d", tensor, permuted);
    um_free(got);
}

static void llada_has_names_of_olmo_and_permuted_rows(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"token_embd.weight", "model.transformer.wte.weight"},
        {"output_norm.weight", "model.transformer.ln_f.weight"},
        {"output.weight", "model.transformer.ff_out.weight"},
        {"blk.0.attn_norm.weight", "model.transformer.blocks.0.attn_norm.weight"},
        {"blk.31.attn_v.weight", "model.transformer.blocks.31.v_proj.weight"},
        {"blk.31.attn_output.weight", "model.transformer.blocks.31.attn_out.weight"},
        {"blk.2.ffn_norm.weight", "model.transformer.blocks.2.ff_norm.weight"},
        {"blk.2.ffn_gate.weight", "model.transformer.blocks.2.ff_proj.weight"},
        {"blk.2.ffn_up.bias", "model.transformer.blocks.2.up_proj.bias"},
        {"blk.2.ffn_down.weight", "model.transformer.blocks.2.ff_out.weight"},
    };
    for (size_t i = 0; i < UM_LEN(rows); i++) assert_name("llada", &um_family_llada, rows[i][0], rows[i][1], false);
    assert_name("llada", &um_family_llada, "blk.3.attn_q.weight", "model.transformer.blocks.3.q_proj.weight", true);
    assert_name("llada", &um_family_llada, "blk.3.attn_k.bias", "model.transformer.blocks.3.k_proj.bias", true);
    assert_name("dream", &um_family_dream, "blk.3.attn_q.bias", "model.layers.3.self_attn.q_proj.bias", false);
    assert_name("llada-moe", &um_family_llada_moe, "blk.3.attn_k.weight", "model.layers.3.self_attn.k_proj.weight",
                false);
}

static void experts_have_the_names_of_the_stacked_layouts(void **state) {
    (void)state;
    const um_family *const f = &um_family_rnd1;
    assert_name("rnd1", f, "blk.7.ffn_gate_inp.weight", "model.layers.7.mlp.gate.weight", false);
    assert_name("rnd1", f, "blk.7.ffn_gate_exps.weight", "model.layers.7.mlp.experts.gate_proj", false);
    assert_name("rnd1", f, "blk.7.ffn_up_exps.weight", "model.layers.7.mlp.experts.up_proj", false);
    assert_name("rnd1", f, "blk.7.ffn_down_exps.weight", "model.layers.7.mlp.experts.down_proj", false);
    assert_name("rnd1", f, "blk.7.ffn_gate_up_exps.weight", "model.layers.7.mlp.experts.gate_up_proj", false);
    static const char *const bias[] = {"blk.1.exp_probs_b.bias", "blk.1.exp_probs_b.weight", "blk.1.exp_probs_b"};
    for (size_t i = 0; i < UM_LEN(bias); i++)
        assert_name("llada2", &um_family_llada2, bias[i], "model.layers.1.mlp.gate.expert_bias", false);
    assert_name("llada2", &um_family_llada2, "blk.1.attn_qkv.weight", "model.layers.1.attention.query_key_value.weight",
                false);
    assert_name("llada2", &um_family_llada2, "blk.1.ffn_down_shexp.weight",
                "model.layers.1.mlp.shared_experts.down_proj.weight", false);
}

static void unknown_tensors_keep_their_names(void **state) {
    (void)state;
    static const char *const names[] = {"blk.0.attn_sinks.weight",
                                        "blk.0.attn_q.scale",
                                        "blk.0.attn_q",
                                        "blk.x.attn_q.weight",
                                        "blk.attn_q.weight",
                                        "blk..attn_q.weight",
                                        "blk.4096.attn_q.bias",
                                        "attn_q.weight",
                                        "output",
                                        "blk.0.output.weight",
                                        "blk.0.attn_qkv.weight",
                                        "exp_probs_b.bias",
                                        "blk.0.ffn_gate_exps.bias",
                                        "blk.0.",
                                        "weight",
                                        "blk.99999999999999999999.attn_q.weight"};
    for (size_t i = 0; i < UM_LEN(names); i++) assert_name("dream", &um_family_dream, names[i], names[i], false);
    assert_name("dream", &um_family_dream, "rope_freqs.weight", NULL, false);
}

/* ---- Completeness ------------------------------------------------------------------------------------------------ */

/* The tensors of a layer and around the layers, without the experts. */
static const char *const all[] = {"token_embd.weight",
                                  "output_norm.weight",
                                  "output.weight",
                                  "blk.%d.attn_norm.weight",
                                  "blk.%d.attn_q.weight",
                                  "blk.%d.attn_k.weight",
                                  "blk.%d.attn_v.weight",
                                  "blk.%d.attn_q.bias",
                                  "blk.%d.attn_k.bias",
                                  "blk.%d.attn_v.bias",
                                  "blk.%d.attn_qkv.weight",
                                  "blk.%d.attn_output.weight",
                                  "blk.%d.attn_q_norm.weight",
                                  "blk.%d.attn_k_norm.weight",
                                  "blk.%d.ffn_norm.weight",
                                  "blk.%d.ffn_gate.weight",
                                  "blk.%d.ffn_up.weight",
                                  "blk.%d.ffn_down.weight",
                                  "blk.%d.ffn_gate_inp.weight",
                                  "blk.%d.ffn_gate_shexp.weight",
                                  "blk.%d.ffn_up_shexp.weight",
                                  "blk.%d.ffn_down_shexp.weight",
                                  "blk.%d.exp_probs_b.bias"};

/* Writes the GGUF name of `all`[i] in a layer. */
static void gguf_name(char out[64], size_t i, int layer) {
    const char *hole = strstr(all[i], "%d");
    if (hole) snprintf(out, 64, "%.*s%d%s", (int)(hole - all[i]), all[i], layer, hole + 2);
    else snprintf(out, 64, "%s", all[i]);
}

static um_status is_mapped(void *arg, const um_tensor *t, um_err *err) {
    const um_family *f = (const um_family *)arg;
    bool found = strstr(t->name, ".experts."), permuted;
    for (size_t i = 0; i < UM_LEN(all) * 2 && !found; i++) {
        char name[64];
        gguf_name(name, i / 2, i % 2);
        char *mapped = name_of("dream", f, name, &permuted);
        found = um_streq(mapped, t->name);
        um_free(mapped);
    }
    if (!found) fail_msg("no GGUF tensor becomes %s", t->name);
    (void)err;
    return UM_OK;
}

static void every_tensor_of_the_families_has_a_name(void **state) {
    (void)state;
    const um_family *const families[] = {&um_family_llada, &um_family_llada_moe, &um_family_dream, &um_family_rnd1,
                                         &um_family_llada2};
    size_t n = 0;
    for (const um_released *r = um_released_all; r->name; r++) {
        um_arch a;
        assert_int_equal(um_released_arch(&a, r, 2, NULL), UM_OK);
        for (size_t i = 0; i < UM_LEN(families); i++) {
            if (a.family != families[i]) continue;
            assert_int_equal(um_arch_tensors(&a, is_mapped, (void *)(uintptr_t)a.family, NULL), UM_OK);
            n++;
        }
    }
    assert_true(n >= 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llada_has_names_of_olmo_and_permuted_rows),
        cmocka_unit_test(experts_have_the_names_of_the_stacked_layouts),
        cmocka_unit_test(unknown_tensors_keep_their_names),
        cmocka_unit_test(every_tensor_of_the_families_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
