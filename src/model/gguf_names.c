/* Converts the names of tensors in GGUF files to those of a family: "blk.3.attn_q.weight" becomes
 * "model.layers.3.self_attn.q_proj.weight". A name has up to three parts: "blk.3", the role, and "weight" or "bias".
 * The family's um_tensor_names have the pattern of each role. */
#include <stddef.h>

#include "model/gguf_model.h"

/* A role, and the field of um_tensor_names with its pattern. */
typedef struct role {
    const char *name;
    size_t field;
} role;
#define FIELD(f) offsetof(um_tensor_names, f)

static const role ends[] = {{"token_embd", FIELD(embed)}, {"output_norm", FIELD(final_norm)}, {"output", FIELD(head)}};

static const role roles[] = {
    {"attn_norm", FIELD(attn_norm)},
    {"attn_q", FIELD(q)},
    {"attn_k", FIELD(k)},
    {"attn_v", FIELD(v)},
    {"attn_qkv", FIELD(qkv)},
    {"attn_output", FIELD(o)},
    {"attn_q_norm", FIELD(q_norm)},
    {"attn_k_norm", FIELD(k_norm)},
    {"ffn_norm", FIELD(ffn_norm)},
    {"ffn_gate", FIELD(gate)},
    {"ffn_up", FIELD(up)},
    {"ffn_down", FIELD(down)},
    {"ffn_gate_inp", FIELD(router)},
    {"ffn_gate_shexp", FIELD(shared_gate)},
    {"ffn_up_shexp", FIELD(shared_up)},
    {"ffn_down_shexp", FIELD(shared_down)},
};

/* ---- Parts of a name --------------------------------------------------------------------------------------------- */

typedef struct parts {
    int32_t layer; /* -1: not in a layer */
    um_str role;
    const char *suffix; /* ".weight", ".bias", or "" when the name has no such end */
} parts;

/* Reads "blk.N." and returns the rest of the name. Returns the whole name when it begins with something else. */
static const char *read_layer(const char *name, int32_t *layer) {
    int32_t n = 0;
    *layer = -1;
    if (strncmp(name, "blk.", 4)) return name;
    const char *p = name + 4;
    for (; *p >= '0' && *p <= '9' && n < UM_LAYERS_MAX; p++) n = n * 10 + (*p - '0');
    if (p == name + 4 || *p != '.' || n >= UM_LAYERS_MAX) return name;
    *layer = n;
    return p + 1;
}

static parts split_name(const char *name) {
    parts p;
    const char *rest = read_layer(name, &p.layer), *dot = strrchr(rest, '.');
    p.suffix = dot && (um_streq(dot, ".weight") || um_streq(dot, ".bias")) ? dot : "";
    p.role = (um_str){rest, strlen(rest) - strlen(p.suffix)};
    return p;
}

static bool has_role(const parts *p, const char *name) { return um_str_eq(p->role, um_str_of(name)); }

/* ---- The family's names ------------------------------------------------------------------------------------------ */

static const char *pattern_of(const parts *p, const um_tensor_names *names) {
    const role *list = p->layer < 0 ? ends : roles;
    size_t n = p->layer < 0 ? UM_LEN(ends) : UM_LEN(roles);
    for (size_t i = 0; i < n; i++)
        if (has_role(p, list[i].name)) return *(const char *const *)((const char *)names + list[i].field);
    return NULL;
}

/* Returns the layout in which one tensor holds the rows of all experts: with gate and up in two tensors, or in one. */
static const um_expert_names *stacked_layout(const um_tensor_names *names, bool is_fused) {
    for (const um_expert_names *e = names->experts; e && e->gate; e++)
        if (e->stacked && !e->up == is_fused) return e;
    return NULL;
}

/* Returns the complete name, with %d for the layer, of the parts of a layer whose names have no suffix. */
static const char *complete_name(const parts *p, const um_tensor_names *names) {
    const um_expert_names *apart = stacked_layout(names, false), *fused = stacked_layout(names, true);
    if (p->layer < 0) return NULL;
    if (has_role(p, "exp_probs_b")) return names->router_bias[0];
    if (!um_streq(p->suffix, ".weight")) return NULL;
    if (apart && has_role(p, "ffn_gate_exps")) return apart->gate;
    if (apart && has_role(p, "ffn_up_exps")) return apart->up;
    if (apart && has_role(p, "ffn_down_exps")) return apart->down;
    if (fused && has_role(p, "ffn_gate_up_exps")) return fused->gate;
    return NULL;
}

static void print_name(char out[UM_GGUF_NAME_SIZE], const char *pattern, int32_t layer, const char *suffix) {
    const char *hole = strstr(pattern, "%d");
    if (hole) snprintf(out, UM_GGUF_NAME_SIZE, "%.*s%d%s%s", (int)(hole - pattern), pattern, layer, hole + 2, suffix);
    else snprintf(out, UM_GGUF_NAME_SIZE, "%s%s", pattern, suffix);
}

/* ---- Functions of gguf_model.h ----------------------------------------------------------------------------------- */

bool um_gguf_tensor_name(char out[UM_GGUF_NAME_SIZE], const um_gguf *g, const um_family *f, const um_gguf_tensor *t,
                         bool *permuted) {
    um_str architecture = {0};
    const parts p = split_name(t->name);
    const char *pattern = *p.suffix ? pattern_of(&p, f->names) : NULL, *complete = complete_name(&p, f->names);
    um_gguf_string(g, "general.architecture", &architecture);
    *permuted =
        p.layer >= 0 && (has_role(&p, "attn_q") || has_role(&p, "attn_k")) && um_str_eq(architecture, UM_STR("llada"));
    if (complete) print_name(out, complete, p.layer, "");
    else if (pattern) print_name(out, pattern, p.layer, p.suffix);
    else snprintf(out, UM_GGUF_NAME_SIZE, "%s", t->name);
    return !has_role(&p, "rope_freqs"); /* um_gguf_config has checked its values */
}
