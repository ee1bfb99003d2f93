"""Reads the config.json of each family, and names the tensors of its checkpoints."""
import torch

from transformer import Experts, Shape

LLAMA = {
    "embed": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "head": "lm_head.weight",
    "attn_norm": "model.layers.{n}.input_layernorm.weight",
    "ffn_norm": "model.layers.{n}.post_attention_layernorm.weight",
    "q": "model.layers.{n}.self_attn.q_proj.weight",
    "k": "model.layers.{n}.self_attn.k_proj.weight",
    "v": "model.layers.{n}.self_attn.v_proj.weight",
    "o": "model.layers.{n}.self_attn.o_proj.weight",
    "q_norm": "model.layers.{n}.self_attn.q_norm.weight",
    "k_norm": "model.layers.{n}.self_attn.k_norm.weight",
    "gate": "model.layers.{n}.mlp.gate_proj.weight",
    "up": "model.layers.{n}.mlp.up_proj.weight",
    "down": "model.layers.{n}.mlp.down_proj.weight",
    "router": "model.layers.{n}.mlp.gate.weight",
    "experts.gate": "model.layers.{n}.mlp.experts.{e}.gate_proj.weight",
    "experts.up": "model.layers.{n}.mlp.experts.{e}.up_proj.weight",
    "experts.down": "model.layers.{n}.mlp.experts.{e}.down_proj.weight",
}

LLADA_MOE = LLAMA | {
    "expert_bias": "model.layers.{n}.mlp.expert_bias",
    "shared.gate": "model.layers.{n}.shared_expert.gate_proj.weight",
    "shared.up": "model.layers.{n}.shared_expert.up_proj.weight",
    "shared.down": "model.layers.{n}.shared_expert.down_proj.weight",
}

LLADA2 = LLAMA | {
    "embed": "model.word_embeddings.weight",
    "qkv": "model.layers.{n}.attention.query_key_value.weight",
    "o": "model.layers.{n}.attention.dense.weight",
    "q_norm": "model.layers.{n}.attention.query_layernorm.weight",
    "k_norm": "model.layers.{n}.attention.key_layernorm.weight",
    "expert_bias": "model.layers.{n}.mlp.gate.expert_bias",
    "shared.gate": "model.layers.{n}.mlp.shared_experts.gate_proj.weight",
    "shared.up": "model.layers.{n}.mlp.shared_experts.up_proj.weight",
    "shared.down": "model.layers.{n}.mlp.shared_experts.down_proj.weight",
}

LLADA = {
    "embed": "model.transformer.wte.weight",
    "norm": "model.transformer.ln_f.weight",
    "head": "model.transformer.ff_out.weight",
    "attn_norm": "model.transformer.blocks.{n}.attn_norm.weight",
    "ffn_norm": "model.transformer.blocks.{n}.ff_norm.weight",
    "q": "model.transformer.blocks.{n}.q_proj.weight",
    "k": "model.transformer.blocks.{n}.k_proj.weight",
    "v": "model.transformer.blocks.{n}.v_proj.weight",
    "o": "model.transformer.blocks.{n}.attn_out.weight",
    "gate": "model.transformer.blocks.{n}.ff_proj.weight",
    "up": "model.transformer.blocks.{n}.up_proj.weight",
    "down": "model.transformer.blocks.{n}.ff_out.weight",
}


# ---------------------------------------------------------------------------------------------------------------------
# config.json to Shape

def llama_like(c, **more):
    """The fields that Llama, Qwen2, Qwen3 and their mixtures share."""
    head_dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    values = dict(
        vocab=c["vocab_size"], hidden=c["hidden_size"], layers=c["num_hidden_layers"],
        heads=c["num_attention_heads"], kv_heads=c["num_key_value_heads"], head_dim=head_dim,
        rope_dim=int(head_dim * c.get("partial_rotary_factor", 1)), theta=c["rope_theta"],
        ffn=c.get("intermediate_size", 0), eps=c["rms_norm_eps"], tied=c["tie_word_embeddings"])
    return Shape(**values | more)


def llada(c):
    hidden, bias = c["d_model"], c["include_bias"]
    head_dim = hidden // c["n_heads"]
    return Shape(vocab=c["embedding_size"], hidden=hidden, layers=c["n_layers"], heads=c["n_heads"],
                 kv_heads=c["n_kv_heads"], head_dim=head_dim, rope_dim=head_dim, theta=c["rope_theta"],
                 ffn=c["mlp_hidden_size"] or c["mlp_ratio"] * hidden, eps=c["rms_norm_eps"], tied=c["weight_tying"],
                 qkv_bias=bias or c["include_qkv_bias"], o_bias=bias, mlp_bias=bias,
                 embed_scale=hidden ** 0.5 if c["input_emb_norm"] else 1.0,
                 logit_scale=hidden ** -0.5 if c["scale_logits"] else 1.0)


def illada(c):
    bias, eps = c["attention_bias"], c["layer_norm_eps"]
    more = dict(layer_norm=True, eps=eps) if eps is not None else {}
    return llama_like(c, qkv_bias=bias, o_bias=bias, mlp_bias=c["mlp_bias"], **more)


def llada_moe(c):
    """This family ignores norm_topk_prob: the weights are never renormalised."""
    dense = frozenset(n for n, moe in enumerate(c["moe_layer_freq"]) if not moe)
    bias = "weight" if c["moe_router_enable_expert_bias"] else ""
    experts = Experts(c["num_experts"], c["num_experts_per_tok"], c["expert_intermediate_size"], bias=bias,
                      shared_width=c["shared_expert_intermediate_size"] or 0)
    return llama_like(c, ffn=c["dense_intermediate_size"], qk_norm=c["qk_layernorm"], clip=c["clip_qkv"] or 0.0,
                      experts=experts, dense=dense)


def dream(c):
    return llama_like(c, qkv_bias=True, shift=1)


def dream_reasoner(c):
    bias = c["attention_bias"]
    return llama_like(c, qk_norm=True, qkv_bias=bias, o_bias=bias, block=c["block_size"])


def llada2(c):
    pooled = "expert_capacity" in c
    grouping = dict(capacity=c["expert_capacity"]) if pooled else dict(groups=c["n_group"], groups_kept=c["topk_group"])
    experts = Experts(c["num_experts"], c["num_experts_per_tok"], c["moe_intermediate_size"], score="sigmoid",
                      bias="choice", renormalize=True, scale=c["routed_scaling_factor"],
                      shared_width=c["num_shared_experts"] * c["moe_intermediate_size"], **grouping)
    return llama_like(c, qk_norm=True, block=c.get("block_size", 32), experts=experts,
                      dense=frozenset(range(c["first_k_dense_replace"])))


def qwen3_moe(c, **more):
    experts = Experts(c["num_experts"], c["num_experts_per_tok"], c["moe_intermediate_size"],
                      renormalize=c["norm_topk_prob"])
    return llama_like(c, qk_norm=True, experts=experts, dense=frozenset(c["mlp_only_layers"]), **more)


def sdar(c):
    return llama_like(c, qk_norm=True, block=c["block_size"])


def sdar_moe(c):
    return qwen3_moe(c, block=c["block_size"])


def rnd1(c):
    return qwen3_moe(c, shift=1)


def fast_dllm_v2(c):
    return llama_like(c, qkv_bias=True, shift=1, block=c["bd_size"])


def stable_diffcoder(c):
    """The block length is 4. The decoder sets it, not the checkpoint."""
    bias = c["attention_bias"]
    return llama_like(c, qkv_bias=bias, o_bias=bias, mlp_bias=c["mlp_bias"], block=4)


def wedlm(c):
    """attention_bias stands for queries, keys and values only."""
    return llama_like(c, qk_norm=c["qk_norm"], qkv_bias=c["attention_bias"], causal=True)


FAMILIES = {
    "LLaDAModelLM": (llada, LLADA),
    "ILLaDAForCausalLM": (illada, LLAMA),
    "LLaDAMoEModelLM": (llada_moe, LLADA_MOE),
    "FusedLLaDAMoEModelLM": (llada_moe, LLADA_MOE),
    "DreamModel": (dream, LLAMA),
    "DreamForCausalLM": (dream_reasoner, LLAMA),
    "LLaDA2MoeModelLM": (llada2, LLADA2),
    "SDARForCausalLM": (sdar, LLAMA),
    "SDARMoeForCausalLM": (sdar_moe, LLAMA),
    "RND1": (rnd1, LLAMA),
    "Fast_dLLM_QwenForCausalLM": (fast_dllm_v2, LLAMA),
    "StableDiffcoderForCausalLM": (stable_diffcoder, LLAMA),
    "WeDLMForCausalLM": (wedlm, LLAMA),
}


def shape_of(config):
    return FAMILIES[config["architectures"][0]][0](config)


# ---------------------------------------------------------------------------------------------------------------------
# Roles to the names of a checkpoint

def stored_name(names, role):
    """Turns "3.experts.7.gate" into names["experts.gate"] with n = 3, e = 7. A bias has the name of its matrix."""
    parts = role.split(".")
    bias = parts[-1] == "bias"
    numbers = [p for p in parts if p.isdigit()]
    key = ".".join(p for p in parts[:len(parts) - bias] if not p.isdigit())
    name = names[key].format(**dict(zip("ne", numbers)))
    return name.removesuffix(".weight") + ".bias" if bias else name


def merged_qkv(shape, weights):
    """Queries, keys and values as one matrix: all rows of the queries, then of the keys, then of the values."""
    out = {role: t for role, t in weights.items() if role.split(".")[1:] not in (["q"], ["k"], ["v"])}
    for n in range(shape.layers):
        out[f"{n}.qkv"] = torch.cat([weights[f"{n}.{r}"] for r in "qkv"])
    return out


def stacked_experts(shape, stored, layout):
    """Replaces the experts' tensors by stacks. "merged" has three per layer ([E, width, hidden] gate and up, [E, hidden,
    width] down), "fused" has two (w1: gate rows, then up rows of each expert; w2: down)."""
    out = {name: t for name, t in stored.items() if ".experts." not in name}
    for n in filter(shape.has_experts, range(shape.layers)):
        mlp = f"model.layers.{n}.mlp"
        gate, up, down = (torch.stack([stored[f"{mlp}.experts.{e}.{part}_proj.weight"]
                                       for e in range(shape.experts.count)]) for part in ("gate", "up", "down"))
        if layout == "merged":
            out |= {f"{mlp}.experts.gate_proj": gate, f"{mlp}.experts.up_proj": up, f"{mlp}.experts.down_proj": down}
        else:
            out |= {f"{mlp}.w1": torch.cat((gate, up), 1), f"{mlp}.w2": down}
    return out


def stored_tensors(config, weights, layout=""):
    """Returns the tensors of model.safetensors. layout "" keeps each expert separate, else see stacked_experts."""
    read, names = FAMILIES[config["architectures"][0]]
    shape = read(config)
    if "qkv" in names:
        weights = merged_qkv(shape, weights)
    stored = {stored_name(names, role): t for role, t in weights.items()}
    return stacked_experts(shape, stored, layout) if layout else stored
