"""Writes a checkpoint folder as a GGUF file: python3 make_gguf.py FOLDER OUT.gguf [--type F16] [--arch llada]

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install gguf numpy

The file has the keys, names and types of tensors that llama.cpp's converters write: LLaDA's queries and keys have the
order of rows for interleaved rotary embeddings, the experts of a layer are one tensor, vectors and routers are F32. The
architecture follows from config.json. TYPE is that of the matrices. A matrix whose rows do not fit its groups is F16.

The folders of tools/reference have a tokenizer of words, which no GGUF file can hold. They get one of bytes instead.
The id of a byte is its value, and the ids of the special tokens stay the same.
"""
import argparse
import json
import re
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

# The architecture of a file by config.json, and the one whose names of tensors it has.
ARCHITECTURES = {"LLaDAModelLM": "llada", "LLaDAMoEModelLM": "llada-moe", "DreamModel": "dream", "RND1": "rnd1",
                 "LLaDA2MoeModelLM": "llada2"}
NAMES = {"llada": "LLADA", "llada-moe": "LLADA_MOE", "dream": "DREAM", "rnd1": "RND1", "llada2": "BAILINGMOE2"}
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "BF16": 32}
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


# ---------------------------------------------------------------------------------------------------------------------
# The folder

def read_json(path):
    return json.loads(path.read_text()) if path.exists() else {}


def read_file(path):
    """Yields (name, float32 array) for the tensors of a safetensors file."""
    data = np.memmap(path, np.uint8, "r")
    start = 8 + int(data[:8].view("<u8")[0])
    header = json.loads(bytes(data[8:start]))
    for name, t in header.items():
        if name == "__metadata__":
            continue
        raw = data[start + t["data_offsets"][0]:start + t["data_offsets"][1]]
        if t["dtype"] == "BF16":
            values = (raw.view("<u2").astype("<u4") << 16).view("<f4")
        else:
            values = raw.view({"F16": "<f2", "F32": "<f4"}[t["dtype"]]).astype("<f4")
        yield name, values.reshape(t["shape"])


def read_tensors(folder):
    return {name: t for path in sorted(folder.glob("model*.safetensors")) for name, t in read_file(path)}


# ---------------------------------------------------------------------------------------------------------------------
# Tensors

def interleaved(t, n_heads):
    """Returns the rows of each head in the order 0, d/2, 1, d/2 + 1, ..."""
    half = t.shape[0] // n_heads // 2
    return t.reshape(n_heads, 2, half, *t.shape[1:]).swapaxes(1, 2).reshape(t.shape)


def stack_experts(tensors):
    """Replaces the tensors of single experts by one tensor for all experts of a layer."""
    stacks, rest = {}, {}
    for name, t in tensors.items():
        m = re.fullmatch(r"(.*\.experts)\.(\d+)\.(\w+\.weight)", name)
        if m:
            stacks.setdefault(f"{m[1]}.{m[3]}", {})[int(m[2])] = t
        else:
            rest[name] = t
    return rest | {name: np.stack([by[i] for i in range(len(by))]) for name, by in stacks.items()}


def name_in_file(names, name):
    """Returns the name in the file of a tensor of a checkpoint folder."""
    name = re.sub(r"(\.experts\.\w+_proj)$", r"\1.weight", name)
    name = re.sub(r"(\.expert_bias)$", r"\1.bias", name)
    new = names.get_name(name, try_suffixes=(".weight", ".bias"))
    if not new:
        raise SystemExit(f"no name in GGUF files for {name}")
    return new


def name_map(arch, config):
    n_layers = config.get("num_hidden_layers", config.get("n_layers"))
    return gguf.get_tensor_name_map(gguf.MODEL_ARCH[NAMES[arch]], n_layers)


def gguf_tensors(arch, config, tensors):
    """Returns the tensors under their names in the file."""
    names = name_map(arch, config)
    out = {}
    for name, t in stack_experts(tensors).items():
        if arch == "llada" and re.search(r"\.[qk]_proj\.", name):
            t = interleaved(t, config["n_heads"] if ".q_proj." in name else config["n_kv_heads"])
        out[name_in_file(names, name)] = t
    return out


def type_in_file(name, t, kind):
    if t.ndim == 1 or "ffn_gate_inp" in name:
        return Type.F32
    if t.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0]:
        return Type.F16
    return kind


def quantized(t, kind):
    return gguf.quants.quantize(np.ascontiguousarray(t, np.float32), kind)


def add_tensor(writer, name, t, kind):
    kind = type_in_file(name, t, kind)
    writer.add_tensor(name, quantized(t, kind), raw_dtype=kind)


def write_rounded(folder, out, arch, config, tensors, kind):
    """Copies the folder. Its tensors become the numbers that the file stores, in F32."""
    out.mkdir()
    for path in folder.glob("*.json"):
        (out / path.name).write_bytes(path.read_bytes())
    names, header, values, at = name_map(arch, config), {}, [], 0
    for name, t in tensors.items():
        stored = name_in_file(names, re.sub(r"(\.experts)\.\d+\.", r"\1.", name))
        of_file = type_in_file(stored, t, kind)
        values.append(gguf.quants.dequantize(quantized(t, of_file), of_file).astype("<f4").reshape(t.shape))
        header[name] = {"dtype": "F32", "shape": t.shape, "data_offsets": [at, at + values[-1].nbytes]}
        at += values[-1].nbytes
    text = json.dumps(header).encode()
    with open(out / "model.safetensors", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for v in values:
            f.write(v.tobytes())


# ---------------------------------------------------------------------------------------------------------------------
# Metadata

def add_sizes(w, arch, config):
    """Adds the numbers that all architectures have. LLaDA's config.json has names of its own."""
    def get(*names):
        return next((config[n] for n in names if config.get(n) is not None), None)
    heads, hidden = get("num_attention_heads", "n_heads"), get("hidden_size", "d_model")
    w.add_block_count(get("num_hidden_layers", "n_layers"))
    w.add_context_length(get("max_position_embeddings", "max_sequence_length"))
    w.add_embedding_length(hidden)
    w.add_head_count(heads)
    w.add_head_count_kv(get("num_key_value_heads", "n_kv_heads"))
    w.add_rope_freq_base(get("rope_theta"))
    w.add_layer_norm_rms_eps(get("rms_norm_eps"))
    w.add_causal_attention(False)
    if (width := get("intermediate_size", "mlp_hidden_size")) is not None:
        w.add_feed_forward_length(width)
    if (size := get("head_dim")) is not None:
        w.add_key_length(size)
        w.add_value_length(size)
    if arch == "llada":
        w.add_vocab_size(config["vocab_size"])
        w.add_rope_dimension_count(hidden // heads)
    if arch in ("llada", "llada-moe", "llada2"):
        w.add_bool("diffusion.shift_logits", False)


def add_experts(w, arch, config):
    if "num_experts" not in config:
        return
    width = config.get("moe_intermediate_size", config.get("expert_intermediate_size"))
    w.add_expert_count(config["num_experts"])
    w.add_expert_used_count(config["num_experts_per_tok"])
    w.add_expert_feed_forward_length(width)
    if arch != "llada2":
        return
    w.add_vocab_size(config["vocab_size"])
    w.add_rope_dimension_count(int(config["head_dim"] * config["partial_rotary_factor"]))
    w.add_leading_dense_block_count(config["first_k_dense_replace"])
    w.add_expert_group_count(config["n_group"])
    w.add_expert_group_used_count(config["topk_group"])
    w.add_expert_weights_scale(config["routed_scaling_factor"])
    w.add_expert_weights_norm(config["norm_topk_prob"])
    w.add_expert_shared_count(config["num_shared_experts"])
    w.add_expert_shared_feed_forward_length(config["num_shared_experts"] * width)
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


# ---------------------------------------------------------------------------------------------------------------------
# Tokenizer

def byte_characters():
    """Returns the characters that stand for the 256 bytes in byte-level vocabularies, in the order of the bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


def tokenizer_of_bytes(config, n_words):
    """Returns a tokenizer.json with as many ids as the tokenizer of words. Bytes with the id of a special token have no
    token. A list in a GGUF file can't be empty, so there is a merge, whose token replaces a byte that UTF-8 never has."""
    special = {config["mask_token_id"]: "<mask>", config["eos_token_id"]: "<eos>"}
    texts = byte_characters()
    texts[0xC0] = "th"
    vocab = {text: i for i, text in enumerate(texts) if i not in special and i < config["vocab_size"]}
    vocab |= {f"<{i}>": i for i in range(len(texts), n_words) if i not in special}
    added = [{"id": i, "content": text, "special": True} for i, text in special.items()]
    return {"model": {"type": "BPE", "vocab": vocab, "merges": ["t h"]}, "added_tokens": added, "pre_tokenizer": None}


def rule_of(arch, tokenizer):
    """Returns the name of the rule that splits text, which converters find by the ids of a long text."""
    regex = re.search(r'"Regex": (".*?[^\\]")', json.dumps(tokenizer["pre_tokenizer"]))
    regex = json.loads(regex[1]) if regex else ""
    if "(?i:[sdmt]|ll|ve|re)" in regex:
        return {"llada": "bailingmoe", "llada2": "bailingmoe2", "llada-moe": "llada-moe"}[arch]
    return "seed-coder" if r"\p{N}{1}" in regex else "qwen2"


def is_special(token):
    """Converters take all tokens of this form as control tokens, whatever the tokenizer says."""
    return token["special"] or token["content"].startswith("<|") and token["content"].endswith("|>")


def add_lists(w, tokenizer, n_rows):
    tokens, types = [f"[PAD{i}]" for i in range(n_rows)], [UNUSED] * n_rows
    for text, i in tokenizer["model"]["vocab"].items():
        tokens[i], types[i] = text, NORMAL
    for token in tokenizer["added_tokens"]:
        tokens[token["id"]], types[token["id"]] = token["content"], CONTROL if is_special(token) else USER_DEFINED
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]])


def add_ids(w, config, side, tokenizer):
    """Adds the special ids: those of config.json, else those of the tokens that tokenizer_config.json names."""
    by_text = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    for kind, add in {"bos": w.add_bos_token_id, "eos": w.add_eos_token_id, "pad": w.add_pad_token_id,
                      "mask": w.add_mask_token_id}.items():
        token = side.get(f"{kind}_token")
        text = token["content"] if isinstance(token, dict) else token
        value = config.get(f"{kind}_token_id", by_text.get(text))
        if value is not None:
            add(value)


def add_tokenizer(w, arch, folder, config, n_rows):
    tokenizer, side = read_json(folder / "tokenizer.json"), read_json(folder / "tokenizer_config.json")
    if tokenizer["model"]["type"] == "WordLevel":
        ids = [t["id"] for t in tokenizer["added_tokens"]] + list(tokenizer["model"]["vocab"].values())
        tokenizer = tokenizer_of_bytes(config, max(ids) + 1)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(rule_of(arch, tokenizer))
    add_lists(w, tokenizer, n_rows)
    add_ids(w, config, side, tokenizer)
    if arch == "llada":
        w.add_add_bos_token(True)
    elif "add_bos_token" in side:
        w.add_add_bos_token(side["add_bos_token"])
    if side.get("chat_template"):
        w.add_chat_template(side["chat_template"])


def main():
    parser = argparse.ArgumentParser(description="Writes a checkpoint folder as a GGUF file.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--type", choices=FILE_TYPES, default="F16", help="type of the matrices (default F16)")
    parser.add_argument("--rounded", type=Path, help="also write a folder with the numbers that the file stores, in F32")
    parser.add_argument("--arch", choices=NAMES, help="architecture, in place of that of config.json")
    args = parser.parse_args()
    config = read_json(args.folder / "config.json")
    arch = args.arch or ARCHITECTURES.get(config["architectures"][0])
    if not arch:
        raise SystemExit(f"GGUF files have no architecture for {config['architectures'][0]}")
    if config.get("input_emb_norm") or config.get("scale_logits"):
        raise SystemExit("GGUF files have no key for input_emb_norm and scale_logits")
    given = read_tensors(args.folder)
    tensors = gguf_tensors(arch, config, given)
    if args.rounded:
        write_rounded(args.folder, args.rounded, arch, config, given, Type[args.type])
    writer = gguf.GGUFWriter(args.out, arch)
    writer.add_file_type(FILE_TYPES[args.type])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_sizes(writer, arch, config)
    add_experts(writer, arch, config)
    add_tokenizer(writer, arch, args.folder, config, tensors["token_embd.weight"].shape[0])
    for name, t in tensors.items():
        add_tensor(writer, name, t, Type[args.type])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
