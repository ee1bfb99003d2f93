"""Writes the folders of tiny checkpoints: random weights, a tokenizer with one word per id, the configuration."""
import json

import torch
from safetensors.torch import save_file


# Large enough that routing, norms and biases matter: mean and deviation of each kind of weight.
SPREAD = {"matrix": (0.0, 0.15), "norm": (1.0, 0.2), "bias": (0.0, 0.2), "expert_bias": (0.0, 0.3)}


def random_weights(roles, seed):
    """Returns the weights by role. They are rounded to bf16, the correction bias of the experts to float32."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for role, (dims, kind) in roles.items():
        mean, deviation = SPREAD[kind]
        t = mean + deviation * torch.randn(dims, generator=generator)
        weights[role] = t if kind == "expert_bias" else t.to(torch.bfloat16)
    return weights


def special_ids(config):
    """Returns (mask, eos): the ids of <mask> and <eos> in the tokenizer. The default of the mask id is 5."""
    return config.get("mask_token_id", 5), config["eos_token_id"]


def tokenizer(config):
    mask, eos = special_ids(config)
    words = {mask: "<mask>", eos: "<eos>"}
    vocab = {words.get(i, f"t{i}"): i for i in range(config.get("text_config", config)["vocab_size"])}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
            "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "t2"}}


def write_json(path, value, indent=None):
    path.write_text(json.dumps(value, indent=indent) + "\n")


def write_tensors(path, tensors, **about):
    save_file({name: t.contiguous() for name, t in tensors.items()}, str(path), metadata=about)
    path.chmod(0o644)


def write_folder(folder, config, tensors):
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config, 1)
    write_json(folder / "tokenizer.json", tokenizer(config))
    write_json(folder / "tokenizer_config.json", {"eos_token": "<eos>", "mask_token": "<mask>", "pad_token": "<eos>"}, 1)
    write_tensors(folder / "model.safetensors", tensors, format="pt")
