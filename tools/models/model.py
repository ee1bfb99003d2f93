"""One transformer, two layouts.

`block`: SDAR layout. Block-causal attention, grouped KV heads, RMS norm on each query and key head.
`full`:  LLaDA layout. Full attention, as many KV heads as heads, no query/key norm.

Both use RMS norm, half-split rotary positions, SwiGLU and no biases. Parameters are named here by role; `tensor_names`
maps them to the names of the checkpoint format.
"""
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Shape:
    family: str
    hidden: int = 320
    layers: int = 6
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 64
    ffn: int = 576
    vocab: int = 1024
    eps: float = 1e-6
    theta: float = 10000.0
    length_max: int = 1024
    qk_norm: bool = True


# bf16 weights of at most 12 MB: 5.9 million parameters.
SHAPES = {"block": Shape("block"),
          "full": Shape("full", heads=5, kv_heads=5, ffn=480, eps=1e-5, qk_norm=False)}


def shape_of(family, text=None):
    """The shape of a family; text such as 5x320x768 replaces layers, hidden size and feed-forward size."""
    if not text:
        return SHAPES[family]
    layers, hidden, ffn = map(int, text.split("x"))
    shape = replace(SHAPES[family], layers=layers, hidden=hidden, ffn=ffn)
    if family == "full":                    # LLaDA's layout: the heads together are as wide as the hidden state
        shape = replace(shape, heads=hidden // shape.head_dim, kv_heads=hidden // shape.head_dim)
    return shape


def shape_of_config(config):
    """The shape of a folder's config.json."""
    if config["model_type"] == "sdar":
        return replace(SHAPES["block"], layers=config["num_hidden_layers"], hidden=config["hidden_size"],
                       heads=config["num_attention_heads"], kv_heads=config["num_key_value_heads"],
                       ffn=config["intermediate_size"], vocab=config["vocab_size"])
    return replace(SHAPES["full"], layers=config["n_layers"], hidden=config["d_model"], heads=config["n_heads"],
                   kv_heads=config["n_kv_heads"], ffn=config["mlp_hidden_size"], vocab=config["vocab_size"])


class Norm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        u = x.float()
        return u * torch.rsqrt(u.square().mean(-1, keepdim=True) + self.eps) * self.weight


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


class Layer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.shape = s
        self.attn_norm, self.ffn_norm = Norm(s.hidden, s.eps), Norm(s.hidden, s.eps)
        self.q, self.k, self.v = (linear(s.hidden, n * s.head_dim) for n in (s.heads, s.kv_heads, s.kv_heads))
        self.o = linear(s.heads * s.head_dim, s.hidden)
        if s.qk_norm:
            self.q_norm, self.k_norm = Norm(s.head_dim, s.eps), Norm(s.head_dim, s.eps)
        self.gate, self.up, self.down = linear(s.hidden, s.ffn), linear(s.hidden, s.ffn), linear(s.ffn, s.hidden)

    def qkv(self, x, cos, sin):
        """[B, heads, T, head_dim] each, rotated, KV heads repeated to the number of query heads."""
        s = self.shape
        q, k, v = (f(x).unflatten(-1, (-1, s.head_dim)).transpose(1, 2) for f in (self.q, self.k, self.v))
        if s.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        k, v = (t.repeat_interleave(s.heads // s.kv_heads, 1) for t in (k, v))
        return q, k, v

    def forward(self, x, cos, sin, bias, clean_bias):
        q, k, v = self.qkv(self.attn_norm(x), cos, sin)
        if clean_bias is None:
            a = F.scaled_dot_product_attention(q, k, v, bias)
        else:           # two streams: noisy queries see both, clean queries see the clean half only
            n = q.shape[2] // 2
            noisy = F.scaled_dot_product_attention(q[:, :, :n], k, v, bias)
            clean = F.scaled_dot_product_attention(q[:, :, n:], k[:, :, n:], v[:, :, n:], clean_bias)
            a = torch.cat((noisy, clean), 2)
        x = x + self.o(a.transpose(1, 2).flatten(2))
        h = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Transformer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.hidden, shape.eps)
        self.head = linear(shape.hidden, shape.vocab)
        half = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
        angle = torch.outer(torch.arange(shape.length_max, dtype=torch.float64), shape.theta ** -half)
        self.register_buffer("cos", angle.cos().float(), persistent=False)
        self.register_buffer("sin", angle.sin().float(), persistent=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                deep = name.endswith(("o.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / (2 * shape.layers) ** 0.5 if deep else 0.02)

    def forward(self, ids, bias, clean_bias=None):
        """Logits of ids [B, T] under an additive attention bias that broadcasts to [B, heads, T, keys].

        With clean_bias, ids is [noisy | clean], both halves at positions 0, 1, ...; only the noisy half has logits.
        """
        return self.logits(self.hidden(ids, bias, clean_bias))

    def logits(self, x):
        return self.head(self.norm(x))

    def hidden(self, ids, bias, clean_bias=None):
        """What the last layer yields, without the clean half."""
        n = ids.shape[1] if clean_bias is None else ids.shape[1] // 2
        cos, sin = self.cos[:n], self.sin[:n]
        if clean_bias is not None:
            cos, sin = cos.repeat(2, 1), sin.repeat(2, 1)
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, cos, sin, bias, clean_bias)
        return x[:, :n]


def additive(visible, dtype=torch.float32):
    """Boolean visibility to an additive bias."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, float("-inf"))


def block_causal(length, block, device):
    """[length, length]: a query sees its own block in both directions and all earlier ones."""
    b = torch.arange(length, device=device) // block
    return b[None, :] <= b[:, None]


# ---------------------------------------------------------------------------------------------------------------------
# Checkpoint names

LAYER_NAMES = {
    "block": dict(attn_norm="input_layernorm", ffn_norm="post_attention_layernorm", q="self_attn.q_proj", k="self_attn.k_proj",
                  v="self_attn.v_proj", o="self_attn.o_proj", q_norm="self_attn.q_norm", k_norm="self_attn.k_norm",
                  gate="mlp.gate_proj", up="mlp.up_proj", down="mlp.down_proj"),
    "full": dict(attn_norm="attn_norm", ffn_norm="ff_norm", q="q_proj", k="k_proj", v="v_proj", o="attn_out", gate="ff_proj",
                 up="up_proj", down="ff_out"),
}
TOP_NAMES = {
    "block": dict(embed="model.embed_tokens", layers="model.layers", norm="model.norm", head="lm_head"),
    "full": dict(embed="model.transformer.wte", layers="model.transformer.blocks", norm="model.transformer.ln_f",
                 head="model.transformer.ff_out"),
}


def tensor_names(shape):
    """Our parameter name -> the name in the checkpoint."""
    top, inner, names = TOP_NAMES[shape.family], LAYER_NAMES[shape.family], {}
    for ours, _ in Transformer(shape).named_parameters():
        parts = ours.split(".")
        if parts[0] == "layers":
            names[ours] = f"{top['layers']}.{parts[1]}.{inner[parts[2]]}.weight"
        else:
            names[ours] = f"{top[parts[0]]}.weight"
    return names
