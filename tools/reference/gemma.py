"""DiffusionGemma's two modes, from the formulas, in float64: a causal encoder, and a decoder of canvases that is
conditioned on the predictions of its pass before.

Weights are a flat dictionary by the names of the checkpoint. Nothing is cached: the decoder is given the keys and values
that the encoder computes for the text before the canvas.
"""
import random

import torch
import torch.nn.functional as F

LAYERS, HIDDEN, HEADS, CANVAS, WINDOW, VOCAB = 3, 64, 4, 6, 7, 256
EXPERTS, TOP_K, EXPERT_WIDTH, WIDTH = 6, 2, 16, 40
TEXT, TAU = 19, 0.7     # tokens before the canvas; temperature of the first pass
EPS, CAP = 1e-6, 30.0
GAP = 1e-4              # a seed is skipped if an expert wins by less
FULL = (1, 2)           # layers without a window
KV_HEADS, HEAD_DIM = {False: 2, True: 1}, {False: 16, True: 32}  # by "has no window"

CONFIG = dict(
    architectures=["DiffusionGemmaForBlockDiffusion"], model_type="diffusion_gemma", canvas_length=CANVAS,
    tie_word_embeddings=True, eos_token_id=249, dtype="bfloat16", text_config=dict(
        model_type="diffusion_gemma_text", hidden_size=HIDDEN, intermediate_size=WIDTH, num_hidden_layers=LAYERS,
        layer_types=["full_attention" if n in FULL else "sliding_attention" for n in range(LAYERS)],
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS[False], head_dim=HEAD_DIM[False],
        per_layer_config={str(n): dict(head_dim=HEAD_DIM[True], num_key_value_heads=KV_HEADS[True]) for n in FULL},
        num_experts=EXPERTS, top_k_experts=TOP_K, moe_intermediate_size=EXPERT_WIDTH, sliding_window=WINDOW,
        final_logit_softcapping=CAP, rms_norm_eps=EPS, vocab_size=VOCAB, max_position_embeddings=128,
        hidden_activation="gelu_pytorch_tanh", attention_bias=False, use_bidirectional_attention="vision",
        rope_parameters=dict(
            sliding_attention=dict(rope_type="default", rope_theta=10000.0),
            full_attention=dict(rope_type="proportional", partial_rotary_factor=0.5, factor=2.0, rope_theta=1000000.0)),
        pad_token_id=0, bos_token_id=2, eos_token_id=[249]))

NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "pre_feedforward_layernorm_2",
         "post_feedforward_layernorm", "post_feedforward_layernorm_1", "post_feedforward_layernorm_2")


def shapes():
    """Returns name -> (dimensions, kind) of every tensor; the kinds are those of checkpoint.SPREAD."""
    out = {"model.decoder.embed_tokens.weight": ((VOCAB, HIDDEN), "matrix"),
           "model.decoder.norm.weight": ((HIDDEN,), "norm"),
           "model.decoder.self_conditioning.pre_norm.weight": ((HIDDEN,), "norm")}

    def feed_forward(prefix):
        for part in ("gate", "up"):
            out[f"{prefix}.{part}_proj.weight"] = ((WIDTH, HIDDEN), "matrix")
        out[f"{prefix}.down_proj.weight"] = ((HIDDEN, WIDTH), "matrix")

    feed_forward("model.decoder.self_conditioning")
    for n in range(LAYERS):
        layer, full = f"model.decoder.layers.{n}", n in FULL
        rows = KV_HEADS[full] * HEAD_DIM[full]
        out[f"{layer}.self_attn.q_proj.weight"] = ((HEADS * HEAD_DIM[full], HIDDEN), "matrix")
        out[f"{layer}.self_attn.k_proj.weight"] = ((rows, HIDDEN), "matrix")
        if not full:
            out[f"{layer}.self_attn.v_proj.weight"] = ((rows, HIDDEN), "matrix")
        out[f"{layer}.self_attn.o_proj.weight"] = ((HIDDEN, HEADS * HEAD_DIM[full]), "matrix")
        for norm in ("q_norm", "k_norm"):
            out[f"{layer}.self_attn.{norm}.weight"] = ((HEAD_DIM[full],), "norm")
        feed_forward(f"{layer}.mlp")
        out[f"{layer}.experts.gate_up_proj"] = ((EXPERTS, 2 * EXPERT_WIDTH, HIDDEN), "matrix")
        out[f"{layer}.experts.down_proj"] = ((EXPERTS, HIDDEN, EXPERT_WIDTH), "matrix")
        out[f"{layer}.router.proj.weight"] = ((EXPERTS, HIDDEN), "matrix")
        out[f"{layer}.router.scale"] = ((HIDDEN,), "norm")
        out[f"{layer}.router.per_expert_scale"] = ((EXPERTS,), "norm")
        for norm in NORMS:
            out[f"{layer}.{norm}.weight"] = ((HIDDEN,), "norm")
        out[f"{layer}.layer_scalar"] = ((1,), "norm")
        out[f"model.encoder.language_model.layers.{n}.layer_scalar"] = ((1,), "norm")
    return out


def norm(x, w=1.0):
    return x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt() * w


def gelu(x):
    return F.gelu(x, approximate="tanh")


def rotate(x, positions, full):
    """Half-split over the whole head. In full layers the frequencies of the last pairs are 0. x: [heads, T, d]."""
    d, half = x.shape[-1], x.shape[-1] // 2
    rope = CONFIG["text_config"]["rope_parameters"]["full_attention" if full else "sliding_attention"]
    frequency = rope["rope_theta"] ** (-2 * torch.arange(half, dtype=torch.float64) / d) / rope.get("factor", 1)
    if full:
        frequency[int(rope["partial_rotary_factor"] * d / 2):] = 0
    angle = torch.outer(positions.double(), frequency)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


class Gemma:
    def __init__(self, weights):
        self.w = {name: t.double() for name, t in weights.items()}
        self.gap = float("inf")  # smallest difference between a chosen and another expert

    def embed(self, ids):
        return self.w["model.decoder.embed_tokens.weight"][torch.as_tensor(ids)] * HIDDEN ** 0.5

    def gated(self, prefix, h):
        gate, up, down = (self.w[f"{prefix}.{part}_proj.weight"] for part in ("gate", "up", "down"))
        return (gelu(h @ gate.T) * (h @ up.T)) @ down.T

    def attention(self, n, h, first, before):
        """before: keys and values of the text [KV heads, T, d], or None for the encoder. Returns also those of h."""
        full, layer = n in FULL, f"model.decoder.layers.{n}.self_attn"
        d = HEAD_DIM[full]
        q, kr = ((h @ self.w[f"{layer}.{part}_proj.weight"].T).unflatten(-1, (-1, d)) for part in "qk")
        vr = kr if full else (h @ self.w[f"{layer}.v_proj.weight"].T).unflatten(-1, (-1, d))
        q, k = (norm(t, self.w[f"{layer}.{part}_norm.weight"]).transpose(0, 1) for t, part in ((q, "q"), (kr, "k")))
        v = norm(vr).transpose(0, 1)
        positions = first + torch.arange(len(h))
        q, k = rotate(q, positions, full), rotate(k, positions, full)
        own = k, v
        column = torch.arange(first + len(h))
        if before is None:
            visible = column[None, :] <= positions[:, None]
            if not full:
                visible &= positions[:, None] - column[None, :] < WINDOW
        else:
            k, v = (torch.cat(pair, 1) for pair in zip(before, own))
            visible = (column >= (0 if full else first - (WINDOW - 1)))[None, :].expand(len(h), -1)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS[full], 0) for t in (k, v))
        a = (q @ k.transpose(1, 2)).masked_fill(~visible, -torch.inf).softmax(-1) @ v
        return a.transpose(0, 1).flatten(1) @ self.w[f"{layer}.o_proj.weight"].T, own

    def experts(self, n, x, m):
        layer = f"model.decoder.layers.{n}"
        u = norm(x) * self.w[f"{layer}.router.scale"] * HIDDEN ** -0.5
        p = (u @ self.w[f"{layer}.router.proj.weight"].T).softmax(-1)
        order = p.sort(descending=True, stable=True)
        self.gap = min(self.gap, (order.values[:, TOP_K - 1] - order.values[:, TOP_K]).min().item())
        y = torch.zeros_like(m)
        for t, chosen in enumerate(order.indices[:, :TOP_K]):
            weight = p[t, chosen] / p[t, chosen].sum() * self.w[f"{layer}.router.per_expert_scale"][chosen]
            for e, w in zip(chosen, weight):
                gate, up = (self.w[f"{layer}.experts.gate_up_proj"][e] @ m[t]).chunk(2)
                y[t] += w * (self.w[f"{layer}.experts.down_proj"][e] @ (gelu(gate) * up))
        return y

    def layer(self, n, x, first, before):
        layer = f"model.decoder.layers.{n}"
        weight = {name: self.w[f"{layer}.{name}.weight"] for name in NORMS}
        a, own = self.attention(n, norm(x, weight["input_layernorm"]), first, before)
        x = x + norm(a, weight["post_attention_layernorm"])
        dense = norm(self.gated(f"{layer}.mlp", norm(x, weight["pre_feedforward_layernorm"])),
                     weight["post_feedforward_layernorm_1"])
        mixed = norm(self.experts(n, x, norm(x, weight["pre_feedforward_layernorm_2"])),
                     weight["post_feedforward_layernorm_2"])
        scalar = layer if before is not None else f"model.encoder.language_model.layers.{n}"
        x = x + norm(dense + mixed, weight["post_feedforward_layernorm"])
        return x * self.w[f"{scalar}.layer_scalar"], own

    def head(self, x):
        z = norm(x, self.w["model.decoder.norm.weight"]) @ self.w["model.decoder.embed_tokens.weight"].T
        return CAP * torch.tanh(z / CAP)

    def encode(self, ids):
        """Returns (logits, keys and values of each layer) of a text from position 0 on."""
        x, kept = self.embed(ids), []
        for n in range(LAYERS):
            x, own = self.layer(n, x, 0, None)
            kept.append(own)
        return self.head(x), kept

    def decode(self, ids, first, kept, logits=None):
        """Returns the logits of a canvas at position `first`. logits: those of the pass before."""
        soft = torch.zeros(len(ids), HIDDEN, dtype=torch.float64)
        if logits is not None:
            soft = (logits / TAU).softmax(-1) @ self.w["model.decoder.embed_tokens.weight"] * HIDDEN ** 0.5
        mixed = self.gated("model.decoder.self_conditioning",
                           norm(soft, self.w["model.decoder.self_conditioning.pre_norm.weight"]))
        x = norm(self.embed(ids) + mixed)
        for n in range(LAYERS):
            x, _ = self.layer(n, x, first, kept[n])
        return self.head(x)


def results(model):
    """Returns the tensors of expected.safetensors: a text in encoder mode, two passes over a canvas behind it, and the
    second canvas in encoder mode."""
    rng = random.Random(11)
    text, one, two = ([rng.randrange(VOCAB) for _ in range(n)] for n in (TEXT, CANVAS, CANVAS))
    logits, kept = model.encode(text)
    first = model.decode(one, TEXT, kept)
    second = model.decode(two, TEXT, kept, first)
    stored, _ = model.encode(text + two)
    out = {"tau": torch.tensor([TAU])}
    for name, ids, z in (("text", text, logits), ("first", one, first), ("second", two, second),
                         ("stored", two, stored[TEXT:])):
        out |= {f"{name}.ids": torch.tensor(ids), f"{name}.logits": z.float()}
    return out
