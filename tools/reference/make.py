"""Makes the checkpoints and the expected results in build/data/reference: python3 make.py [FOLDER]

Everything is derived from seeds. The script skips a seed if rounding could change the compared results, because an expert
wins by less than GAP, or if the case does not show the rule that it tests.
"""
import random
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path

import torch

import dream_sampler
import gemma
from cases import CASES
from checkpoint import random_weights, special_ids, write_folder, write_tensors
from families import shape_of, stored_tensors
from transformer import Transformer, choose_experts, roles

GAP = 1e-4          # of scores, which are probabilities (plus the correction bias)
LONG = 72           # positions of the longest sequence of models without blocks
SHARE_OF_MASKS = 0.3


# ---------------------------------------------------------------------------------------------------------------------
# Inputs

def sequence(rng, config, length):
    """Returns ordinary words with some masks; the last quarter is all masks."""
    mask, eos = special_ids(config)
    ordinary = [i for i in range(config["vocab_size"]) if i not in (mask, eos)]
    masked = [rng.random() < SHARE_OF_MASKS or i >= length * 3 // 4 for i in range(length)]
    return [mask if m and length > 1 else rng.choice(ordinary) for m in masked]


def sequences(config, shape):
    """Returns a sequence of two and a half blocks, a batch (one token, whole blocks, a part), and a long sequence."""
    rng, block = random.Random(7), shape.block or 4
    lengths = {"single": 2 * block + block // 2, "batch0": 1, "batch1": 2 * block, "batch2": block + 1,
               "long": max(LONG, 2 * block + block // 2)}
    if lengths["single"] == lengths["long"]:
        del lengths["single"]
    return {name: sequence(rng, config, n) for name, n in lengths.items()}


def fed_order(config, shape, ids):
    """Returns the positions in the order in which they are fed: in causal models, masks come behind all other tokens."""
    mask, _ = special_ids(config)
    return sorted(range(len(ids)), key=lambda i: shape.causal and ids[i] == mask)


def recorded_rows(name, n):
    """Returns the rows whose logits are kept: for a long sequence only the last ones, which depend on all others."""
    return torch.arange(max(0, n - 16) if name == "long" else 0, n)


# ---------------------------------------------------------------------------------------------------------------------
# Results

def results(model, config, inputs):
    """Returns ({tensor name: tensor} of expected.safetensors, every Choice)."""
    out = {f"layer.{role}": t.float() for role, t in model.w.items() if role.endswith(".expert_bias")}
    choices = []
    for name, ids in inputs.items():
        order = fed_order(config, model.shape, ids)
        ids = [ids[i] for i in order]
        logits, chosen = model(ids, order)
        rows = recorded_rows(name, len(ids))
        out |= {f"{name}.ids": torch.tensor(ids), f"{name}.pos": torch.tensor(order), f"{name}.rows": rows,
                f"{name}.logits": logits[rows].float()}
        for layer, c in chosen.items():
            out |= {f"{name}.{layer}.router": c.logits.float(), f"{name}.{layer}.experts": c.expert,
                    f"{name}.{layer}.weights": c.weight.float()}
        choices += [(name, layer, c) for layer, c in chosen.items()]
    return out, choices


def same_experts(model, choices, **change):
    """Returns whether a mixture with other rules would have chosen the same experts."""
    shape = model.shape
    other = replace(shape.experts, **change)
    return all(torch.equal(choose_experts(c.logits, model.w.get(f"{layer}.expert_bias"), other, shape.block).expert,
                           c.expert) for _, layer, c in choices)


def same_if_pooled_together(model, choices):
    """Returns whether the sequences would choose the same experts if their tokens were in common blocks."""
    layers = {layer for _, layer, _ in choices}
    for layer in layers:
        batch = [c for name, at, c in choices if at == layer and name.startswith("batch")]
        together = choose_experts(torch.cat([c.logits for c in batch]), model.w[f"{layer}.expert_bias"],
                                  model.shape.experts, model.shape.block)
        if not torch.equal(together.expert, torch.cat([c.expert for c in batch])):
            return False
    return True


def shows_its_point(case, model, choices):
    """Returns whether rounding decides nothing, and each rule of the routing makes a difference."""
    x = model.shape.experts
    if x is None:
        return True
    if min(c.gap for *_, c in choices) < GAP or bool(case.twins) != (sum(c.ties for *_, c in choices) > 0):
        return False
    if x.bias and same_experts(model, choices, bias=""):
        return False
    if x.capacity:
        groups = dict(groups=case.config["n_group"], groups_kept=case.config["topk_group"])
        return not (same_experts(model, choices, capacity=0) or same_experts(model, choices, capacity=0, **groups)
                    or same_if_pooled_together(model, choices))
    return x.groups == 1 or not same_experts(model, choices, groups=1)


def tie(weights, shape, twins):
    """Copies the router row and the correction bias of the first expert of each pair to the second."""
    for n in filter(shape.has_experts, range(shape.layers)):
        for a, b in twins:
            weights[f"{n}.router"][b] = weights[f"{n}.router"][a]
            weights[f"{n}.expert_bias"][b] = weights[f"{n}.expert_bias"][a]


def make(case):
    """Returns (seed, model, weights, expected tensors) of the first usable seed."""
    shape = shape_of(case.config)
    inputs = sequences(case.config, shape)
    for seed in count(1):
        weights = random_weights(roles(shape), seed)
        tie(weights, shape, case.twins)
        model = Transformer(shape, weights)
        expected, choices = results(model, case.config, inputs)
        if shows_its_point(case, model, choices):
            return seed, model, weights, expected


def make_gemma(folder):
    """Writes the folder of DiffusionGemma, whose two modes have a program of their own."""
    for seed in count(1):
        weights = random_weights(gemma.shapes(), seed)
        model = gemma.Gemma(weights)
        expected = gemma.results(model)
        if model.gap >= GAP:
            break
    write_folder(folder, gemma.CONFIG, weights)
    write_tensors(folder / "expected.safetensors", expected, made=f"torch {torch.__version__}, seed {seed}")
    print(f"{folder.name}: seed {seed}")


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2] / "build/data/reference")
    torch.set_num_threads(1)  # one order of summation
    print(f"torch {torch.__version__}")
    made = {}
    for case in CASES:
        folder = root / case.name
        if case.same_as:
            write_folder(folder, case.config, stored_tensors(case.config, made[case.same_as][1], case.layout))
            print(f"{case.name}: weights of {case.same_as}")
            continue
        seed, model, weights, expected = make(case)
        made[case.name] = model, weights
        write_folder(folder, case.config, stored_tensors(case.config, weights))
        write_tensors(folder / "expected.safetensors", expected, made=f"torch {torch.__version__}, seed {seed}")
        print(f"{case.name}: seed {seed}")
    make_gemma(root / "diffusion_gemma")
    for case in CASES:
        if case.name in dream_sampler.CHECKPOINTS:
            dream_sampler.record(made[case.name][0], special_ids(case.config), root / case.name / "dream_sampler.json")


if __name__ == "__main__":
    main()
