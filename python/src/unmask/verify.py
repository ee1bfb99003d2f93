"""Compares a checkpoint's own PyTorch code with unmask: python -m unmask.verify MODEL [--trust-remote-code]

Both run in float32 on the CPU, on the same prompts followed by masks. The library has no output of logits. In their
place unmask reports the 64 likeliest ids and their log-probabilities for each mask, from one pass that writes all masks
at once. They are compared with the log-softmax of PyTorch's logits at these positions. Then both write an answer token
by token: in each pass the mask whose likeliest id has the highest probability.

The report is JSON (--output) and text. The exit status is 0 if they agree, 1 if not, 2 for an error. Needs the
packages torch and transformers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from . import __version__
from .errors import UnmaskError, UnsupportedError
from .llm import LLM
from .params import SamplingParams

LIKELIEST = 64
MASKS = 16  # masks behind the prompt of models without blocks
# Random prompts of ids are as good as texts for a comparison, and need no tokenizer that both sides agree on.
PROMPT_LENGTHS = (5, 18, 49)


class Torch:
    """The checkpoint in PyTorch."""

    def __init__(self, folder: str, trust_remote_code: bool, block: int):
        import torch
        import transformers

        self._torch, self._block = torch, block
        errors = []
        for kind in (transformers.AutoModelForCausalLM, transformers.AutoModel):
            try:
                self._model = kind.from_pretrained(folder, trust_remote_code=trust_remote_code, dtype=torch.float32)
                break
            except (ValueError, ImportError, KeyError, AttributeError) as error:
                errors.append(f"{kind.__name__}: {error}")
        else:
            raise UnsupportedError("transformers can't load the model. " + " ".join(errors))
        self._model.eval()
        self.name = type(self._model).__name__
        self.versions = {"torch": torch.__version__, "transformers": transformers.__version__}

    def logprobs(self, ids: Sequence[int]) -> np.ndarray:
        """Returns the log-softmax of all rows, float64 [T, vocabulary]."""
        torch = self._torch
        more = {}
        if self._block:  # a position sees its own block and all blocks before it
            block = torch.arange(len(ids)) // self._block
            seen = block[None, :] <= block[:, None]
            more["attention_mask"] = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None]
        with torch.no_grad():
            logits = self._model(input_ids=torch.tensor([list(ids)]), **more).logits[0]
        return torch.log_softmax(logits.double(), -1).numpy()


def n_masks(info: Dict[str, Any], n_prompt: int) -> int:
    """Returns the number of masks behind a prompt: up to the end of its last block."""
    return info["block_size"] - n_prompt % info["block_size"] if info["block_size"] else MASKS


def params_of(info: Dict[str, Any], masks: int, one_by_one: bool) -> SamplingParams:
    """Returns parameters with which `masks` positions are written in one pass, or one a pass, the surest one first."""
    options: Dict[str, Any] = {"temperature": 0, "max_tokens": masks, "ignore_eos": True}
    if info["block_size"]:
        options.update(
            decoding_strategy="multi_bd", sampler="static", denoising_steps=info["block_size"] if one_by_one else 1
        )
    else:
        options.update(
            decoding_strategy="full", sampler="low_confidence", block_length=masks, steps=masks if one_by_one else 1
        )
    return SamplingParams(logprobs=LIKELIEST, skip_special_tokens=False, **options)


def compare_pass(llm: LLM, torch: Torch, info: Dict[str, Any], prompt: List[int]) -> Dict[str, Any]:
    """Compares the log-probabilities of one pass over masks alone."""
    masks = n_masks(info, len(prompt))
    answer = _answer(llm, prompt, params_of(info, masks, one_by_one=False))
    rows = torch.logprobs(prompt + [info["mask_id"]] * masks)[len(prompt) - info["shift"] :][:masks]
    differences, choices = [], 0
    for row, reported in zip(rows, answer.logprobs):
        best = max(reported, key=lambda token: reported[token].logprob)
        # Where PyTorch has a tie, both choices are right.
        choices += int(row.max() - row[best] < 1e-6)
        differences += [abs(row[token] - value.logprob) for token, value in reported.items()]
    return {
        "prompt_tokens": len(prompt),
        "masks": masks,
        "passes": answer.nfe,
        "compared": len(differences),
        "max_difference": float(np.max(differences)),
        "mean_difference": float(np.mean(differences)),
        "equal_choices": choices,
    }


def compare_decode(llm: LLM, torch: Torch, info: Dict[str, Any], prompt: List[int]) -> Dict[str, Any]:
    """Compares answers that are written one token a pass."""
    masks = n_masks(info, len(prompt))
    answer = _answer(llm, prompt, params_of(info, masks, one_by_one=True))
    tokens, order = greedy(torch, info, prompt, masks)
    return {
        "prompt_tokens": len(prompt),
        "tokens": masks,
        "equal_tokens": int(np.sum(answer.token_array[:masks] == tokens)),
        "equal_passes": int(np.sum(answer.step_map[:masks] == order)),
        "unmask": answer.token_ids,
        "torch": tokens.tolist(),
    }


def greedy(torch: Torch, info: Dict[str, Any], prompt: List[int], masks: int) -> Tuple[np.ndarray, np.ndarray]:
    """Returns the ids that PyTorch writes, and the number of the pass that wrote each, from 1."""
    ids = np.array(prompt + [info["mask_id"]] * masks)
    order = np.zeros(masks, int)
    for number in range(1, masks + 1):
        rows = torch.logprobs(ids.tolist())[len(prompt) - info["shift"] :][:masks]
        rows[:, info["mask_id"]] = -np.inf
        confidence = np.where(order == 0, rows.max(-1), -np.inf)
        place = int(confidence.argmax())
        order[place] = number
        ids[len(prompt) + place] = rows[place].argmax()
    return ids[len(prompt) :], order


def _answer(llm: LLM, prompt: List[int], params: SamplingParams):
    return llm.generate({"prompt_token_ids": prompt}, params, use_tqdm=False)[0].outputs[0]


def cpu_name() -> str:
    """Returns the name of the processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def verify(folder: str, trust_remote_code: bool = False, tolerance: float = 1e-3) -> Dict[str, Any]:
    """Compares a model in both, and returns the report. `agrees` says whether it passed.

    tolerance: largest difference of two log-probabilities
    """
    with LLM(folder, dtype="float32", disable_prefix_caching=True) as llm:
        info, engine = llm.model_info(), llm.engine_info()
        if info["mask_rule"] not in ("full", "block-causal"):
            raise UnsupportedError(f"models of the family {info['family']} are not compared, only those with masks")
        torch = Torch(info["path"], trust_remote_code, info["block_size"])
        rng = np.random.default_rng(0)
        ordinary = [i for i in range(min(info["tokenizer_vocab"], info["vocab"])) if i != info["mask_id"]]
        prompts = [rng.choice(ordinary, length).tolist() for length in PROMPT_LENGTHS]
        passes = [compare_pass(llm, torch, info, prompt) for prompt in prompts]
        decodes = [compare_decode(llm, torch, info, prompt) for prompt in prompts[:2]]
    same = all(p["equal_choices"] == p["masks"] and p["max_difference"] <= tolerance for p in passes)
    return {
        "model": os.path.basename(os.path.normpath(folder)),
        "family": info["family"],
        "torch_class": torch.name,
        "parameters": info["n_params"],
        "dtype": engine["dtype"],
        "versions": {"unmask": __version__, "python": platform.python_version(), **torch.versions},
        "cpu": cpu_name(),
        "device": engine["device_name"],
        "tolerance": tolerance,
        "passes": passes,
        "decodes": decodes,
        "agrees": same and all(d["equal_tokens"] == d["tokens"] for d in decodes),
    }


def text_of(report: Dict[str, Any]) -> str:
    """Returns the report for people."""
    lines = [f"{name:12} {report[name]}" for name in ("model", "family", "torch_class", "parameters", "dtype", "cpu")]
    lines += [f"{name:12} {version}" for name, version in report["versions"].items()]
    for p in report["passes"]:
        lines.append(
            f"one pass, {p['prompt_tokens']} + {p['masks']} masks: {p['equal_choices']} equal choices, {p['compared']} "
            f"log-probabilities differ by at most {p['max_difference']:.2e}, on average {p['mean_difference']:.2e}"
        )
    for d in report["decodes"]:
        lines.append(
            f"greedy decode, {d['prompt_tokens']} + {d['tokens']}: {d['equal_tokens']} equal tokens, "
            f"{d['equal_passes']} of them in the same pass"
        )
    return "\n".join([*lines, "agrees" if report["agrees"] else "DIFFERS"])


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m unmask.verify", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", help="folder of a checkpoint, or a model of LLM")
    parser.add_argument("--trust-remote-code", action="store_true", help="run the Python code of the checkpoint")
    parser.add_argument("--tolerance", type=float, default=1e-3, help="largest difference of log-probabilities (0.001)")
    parser.add_argument("--output", help="file for the report as JSON")
    given = parser.parse_args(arguments)
    try:
        report = verify(given.model, given.trust_remote_code, given.tolerance)
    except (UnmaskError, ImportError, OSError) as error:
        print(f"unmask.verify: {error}", file=sys.stderr)
        return 2
    if given.output:
        with open(given.output, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
            file.write("\n")
    print(text_of(report))
    return 0 if report["agrees"] else 1


if __name__ == "__main__":
    sys.exit(main())
