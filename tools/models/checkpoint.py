"""Checkpoint folders in the Hugging Face formats of the two families: tokenizer, configuration, chat format, weights.

    python3 checkpoint.py MODELS_DIR [SAMPLES]

trains the byte-level BPE once and writes MODELS_DIR/tiny-block and MODELS_DIR/tiny-full without weights. Both share the
ordinary tokens; each has its family's special tokens behind them. The tokenizers of the bundled models are older than the
loose and foreign prompts, and are kept: a new one would shorten prompts by 4 %, and change every token id.
"""
import json
import os
import sys
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import tasks
from model import Transformer, shape_of, shape_of_config, tensor_names

BLOCK = 32
ORDINARY = 1012                 # 256 bytes and the merges; with the special tokens this stays below 1,024
FOLDERS = {"block": "tiny-block", "full": "tiny-full"}
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")

SPECIAL = {
    "block": dict(eos="<|endoftext|>", start="<|im_start|>", end="<|im_end|>", mask="<|MASK|>"),
    "full": dict(bos="<|startoftext|>", eos="<|endoftext|>", start="<|start_header_id|>", start_end="<|end_header_id|>",
                 end="<|eot_id|>", mask="<|mdm_mask|>"),
}

TEMPLATE = {
    "block": "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim"
             " + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "full": "{% for message in messages %}{% if loop.first %}{{ bos_token }}{% endif %}"
            "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}"
            "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
}


def render(family, messages):
    """The prompt text of [(role, content), ...]: what the chat template yields with a generation prompt."""
    if family == "block":
        return "".join(f"<|im_start|>{r}\n{c}<|im_end|>\n" for r, c in messages) + "<|im_start|>assistant\n"
    turns = "".join(f"<|start_header_id|>{r}<|end_header_id|>\n\n{c}<|eot_id|>" for r, c in messages)
    return f"<|startoftext|>{turns}<|start_header_id|>assistant<|end_header_id|>\n\n"


# ---------------------------------------------------------------------------------------------------------------------
# Tokenizer

def train_bpe(samples, seed=1):
    rng = tasks.Source(seed)
    texts = [text for _ in range(samples) for role, content in tasks.conversation(rng) for text in (f"{role}\n", content)]
    texts += ["\n\n"] * (samples // 10)
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=ORDINARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    assert tok.get_vocab_size() == ORDINARY
    return tok


def with_special(bpe, family):
    tok = Tokenizer.from_str(bpe.to_str())
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL[family].values()])
    return tok


class Ids:
    """The token ids that decoding and training need by role."""

    def __init__(self, tok, family):
        special = SPECIAL[family]
        self.mask, self.eos, self.end = (tok.token_to_id(special[n]) for n in ("mask", "eos", "end"))
        self.stop = {self.eos, self.end}
        self.bos = tok.token_to_id(special["bos"]) if "bos" in special else None


def load_tokenizer(folder, family):
    tok = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    return tok, Ids(tok, family)


# ---------------------------------------------------------------------------------------------------------------------
# Files of a folder

def config(family, ids, s):
    """The values of config.json for shape s."""
    if family == "block":
        return dict(architectures=["SDARForCausalLM"], model_type="sdar", hidden_size=s.hidden, num_hidden_layers=s.layers,
                    num_attention_heads=s.heads, num_key_value_heads=s.kv_heads, head_dim=s.head_dim,
                    intermediate_size=s.ffn, hidden_act="silu", vocab_size=s.vocab, rms_norm_eps=s.eps, rope_theta=s.theta,
                    rope_scaling=None, attention_bias=False, tie_word_embeddings=False, use_sliding_window=False,
                    max_position_embeddings=s.length_max, block_size=BLOCK, mask_token_id=ids.mask, bos_token_id=ids.eos,
                    eos_token_id=ids.eos, pad_token_id=ids.eos, torch_dtype="bfloat16")
    return dict(architectures=["LLaDAModelLM"], model_type="llada", d_model=s.hidden, n_layers=s.layers, n_heads=s.heads,
                n_kv_heads=s.kv_heads, mlp_hidden_size=s.ffn, mlp_ratio=4, vocab_size=s.vocab, embedding_size=s.vocab,
                max_sequence_length=s.length_max, rope=True, rope_theta=s.theta, rope_full_precision=True,
                rms_norm_eps=s.eps, layer_norm_type="rms", block_type="llama", activation_type="silu", weight_tying=False,
                include_bias=False, include_qkv_bias=False, bias_for_layer_norm=False, attention_layer_norm=False,
                input_emb_norm=False, scale_logits=False, alibi=False, clip_qkv=None, multi_query_attention=None,
                mask_token_id=ids.mask, eos_token_id=ids.eos, pad_token_id=ids.eos, torch_dtype="bfloat16")


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_config(folder, family, ids, shape):
    write_json(Path(folder) / "config.json", config(family, ids, shape))


def write_folder(folder, family, tok):
    """Everything but the weights and the model card."""
    folder.mkdir(parents=True, exist_ok=True)
    special, ids = SPECIAL[family], Ids(tok, family)
    tok.save(str(folder / "tokenizer.json"))
    shape = shape_of(family)
    write_config(folder, family, ids, shape)
    stop = dict(eos_token_id=[ids.end, ids.eos], pad_token_id=ids.eos, temperature=0.0, do_sample=False)
    bos = {} if ids.bos is None else dict(bos_token_id=ids.bos)
    length = dict(max_new_tokens=128) if family == "full" else {}  # the canvas that it was trained for
    write_json(folder / "generation_config.json", {**bos, **stop, **length})
    names = dict(eos_token=special["eos"], pad_token=special["eos"], mask_token=special["mask"])
    if ids.bos is not None:
        names["bos_token"] = special["bos"]
    others = [t for t in special.values() if t not in names.values()]
    write_json(folder / "special_tokens_map.json", {**names, "additional_special_tokens": others})
    added = {str(tok.token_to_id(t)): dict(content=t, lstrip=False, normalized=False, rstrip=False, single_word=False,
                                           special=True) for t in special.values()}
    write_json(folder / "tokenizer_config.json", dict(
        tokenizer_class="PreTrainedTokenizerFast", added_tokens_decoder=added, **names, additional_special_tokens=others,
        clean_up_tokenization_spaces=False, model_max_length=shape.length_max, chat_template=TEMPLATE[family]))


def save_weights(folder, shape, state):
    """Writes parameters (name -> tensor, our names) as bf16. The file is complete or not there: it replaces the old one."""
    from safetensors.torch import save_file
    names, path = tensor_names(shape), Path(folder) / "model.safetensors"
    save_file({names[n]: t.detach().to("cpu", torch.bfloat16).contiguous() for n, t in state.items()},
              f"{path}.new", metadata={"format": "pt"})
    os.chmod(f"{path}.new", 0o644)
    os.replace(f"{path}.new", path)


def load_model(folder, device):
    """(family, model) of a folder, in float32."""
    from safetensors.torch import load_file
    shape = shape_of_config(json.loads((Path(folder) / "config.json").read_text()))
    weights = load_file(str(Path(folder) / "model.safetensors"))
    model = Transformer(shape)
    model.load_state_dict({n: weights[t].float() for n, t in tensor_names(shape).items()})
    return shape.family, model.to(device).eval()


def main():
    root, samples = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
    bpe = train_bpe(samples)
    for family, name in FOLDERS.items():
        write_folder(root / name, family, with_special(bpe, family))
        print(root / name)


if __name__ == "__main__":
    main()
