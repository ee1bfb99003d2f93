"""The forward pass of a dense model in float64, for the layouts of LLaDA and Qwen2.

Every tensor is a NumPy array. A pass feeds some tokens at some positions. For each layer it may get further keys and
values per KV head, which its queries see in addition to those of the fed tokens. Every query sees every key.
"""

import json
import struct
from pathlib import Path

import numpy as np


def read_safetensors(path):
    """Returns the tensors of a file by name, with bf16 widened."""
    raw = Path(path).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    tensors = {}
    for name, entry in json.loads(raw[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        start, end = (8 + size + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            bits = np.frombuffer(raw[start:end], dtype="<u2").astype(np.uint32) << 16
            values = bits.view(np.float32)
        else:
            values = np.frombuffer(raw[start:end], dtype={"F32": "<f4", "F16": "<f2"}[entry["dtype"]])
        tensors[name] = values.astype(np.float64).reshape(entry["shape"])
    return tensors


LLADA = {
    "embed": "model.transformer.wte",
    "final_norm": "model.transformer.ln_f",
    "head": "model.transformer.ff_out",
    "layer": "model.transformer.blocks.%d.",
    "parts": ["attn_norm", "q_proj", "k_proj", "v_proj", "attn_out", "ff_norm", "ff_proj", "up_proj", "ff_out"],
}
QWEN = {
    "embed": "model.embed_tokens",
    "final_norm": "model.norm",
    "head": "lm_head",
    "layer": "model.layers.%d.",
    "parts": ["input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
              "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"],
}
PARTS = ["attn_norm", "q", "k", "v", "o", "ffn_norm", "gate", "up", "down"]


class Model:
    def __init__(self, folder):
        config = json.loads((Path(folder) / "config.json").read_text())
        tensors = read_safetensors(Path(folder) / "model.safetensors")
        llada = config["model_type"] == "llada"
        names = LLADA if llada else QWEN
        self.mask = config["mask_token_id"]
        self.shift = int(config["model_type"] in ("Dream", "Fast_dLLM_Qwen"))
        self.n_heads = config["n_heads" if llada else "num_attention_heads"]
        self.n_kv_heads = config["n_kv_heads" if llada else "num_key_value_heads"]
        self.n_layers = config["n_layers" if llada else "num_hidden_layers"]
        self.eps = config["rms_norm_eps"]
        self.theta = config["rope_theta"]
        self.embed = tensors[names["embed"] + ".weight"]
        self.final_norm = tensors[names["final_norm"] + ".weight"]
        self.head = tensors[names["head"] + ".weight"]
        self.head_dim = config.get("head_dim", self.embed.shape[1] // self.n_heads)
        self.layers = []
        for i in range(self.n_layers):
            layer = {}
            for part, name in zip(PARTS, names["parts"]):
                full = names["layer"] % i + name
                layer[part] = tensors[full + ".weight"]
                layer[part + "_bias"] = tensors.get(full + ".bias", 0.0)
            for part in ("q_norm", "k_norm"):
                layer[part] = tensors.get(names["layer"] % i + f"self_attn.{part}.weight")
            self.layers.append(layer)

    def norm(self, x, weight):
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.eps) * weight

    def rotate(self, x, positions):
        """Rotary embedding of [tokens, heads, d]: element i is rotated with element i + d/2."""
        half = self.head_dim // 2
        angle = np.outer(positions, self.theta ** (-np.arange(half) / half))[:, None, :]
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=-1)

    def project(self, layer, x, positions):
        """Queries [tokens, heads, d], keys and values [tokens, KV heads, d] of a layer."""
        out = []
        for name, heads in (("q", self.n_heads), ("k", self.n_kv_heads), ("v", self.n_kv_heads)):
            y = (x @ layer[name].T + layer[name + "_bias"]).reshape(len(x), heads, self.head_dim)
            if layer.get(name + "_norm") is not None:
                y = self.norm(y, layer[name + "_norm"])
            out.append(y if name == "v" else self.rotate(y, positions))
        return out

    def attend(self, q, keys, values):
        """keys, values: [KV heads, n, d]. Each KV head may see different keys."""
        out = np.empty_like(q)
        group = self.n_heads // self.n_kv_heads
        for h in range(self.n_heads):
            score = q[:, h] @ keys[h // group].T / np.sqrt(self.head_dim)
            weight = np.exp(score - score.max(axis=-1, keepdims=True))
            out[:, h] = weight / weight.sum(axis=-1, keepdims=True) @ values[h // group]
        return out.reshape(len(q), -1)

    def forward(self, ids, positions, others=None):
        """Returns the logits [tokens, vocabulary], and the result of `project` for each layer. others: further keys and
        values [KV heads, n, d] of each layer that the queries see."""
        positions = np.asarray(positions)
        x = self.embed[np.asarray(ids)]
        projected = []
        for i, layer in enumerate(self.layers):
            q, k, v = self.project(layer, self.norm(x, layer["attn_norm"]), positions)
            projected.append((q, k, v))
            keys, values = k.swapaxes(0, 1), v.swapaxes(0, 1)
            if others is not None:
                keys = np.concatenate([others[i][0], keys], axis=1)
                values = np.concatenate([others[i][1], values], axis=1)
            x = x + self.attend(q, keys, values) @ layer["o"].T + layer["o_bias"]
            y = self.norm(x, layer["ffn_norm"])
            gate = y @ layer["gate"].T + layer["gate_bias"]
            up = y @ layer["up"].T + layer["up_bias"]
            x = x + (gate / (1 + np.exp(-gate)) * up) @ layer["down"].T + layer["down_bias"]
        return self.norm(x, self.final_norm) @ self.head.T, projected
