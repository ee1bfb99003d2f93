"""Writes the model card of a trained folder from the results.json of train.py.

    python3 card.py MODEL_DIR RESULTS.json
"""
import json
import sys
from pathlib import Path

from model import SHAPES

HEAD = {
    "block": """# tiny-block

tiny-block is a block diffusion language model of 8 million parameters, bundled with unmask. It fills blocks of 32 tokens,
several at once. It answers small instructions whose result can be checked exactly. The folder is an ordinary checkpoint in the
layout of SDAR (`SDARForCausalLM`): block-causal attention with the block grid at position 0, per-head query and key norms,
grouped KV heads, ChatML turns. The model serves to try and test the engine, and has no other use.

```sh
unmask run  --model models/tiny-block "Sort these numbers: 42, 7, 19, 3."
unmask eval --model models/tiny-block
```
""",
    "full": """# tiny-full

tiny-full is a masked diffusion language model of 8 million parameters, bundled with unmask. It fills a whole canvas of masks
with full attention. It answers small instructions whose result can be checked exactly. The folder is an ordinary checkpoint in
the layout of LLaDA (`LLaDAModelLM`) with LLaDA's turn format. The model serves to try and test the engine, and has no other
use.

```sh
unmask run  --model models/tiny-full "Reverse the word \\"lamp\\"."
unmask eval --model models/tiny-full
```
""",
}

# Prompts that show the model. The program, the page and /v1/models print them from the front matter of the card.
EXAMPLES = {
    "block": ["What is 12 + 30?", "Sort these numbers: 42, 7, 19, 3.",
              "Tell me a story with a bee called Wanda and a candle."],
    "full": ["Reverse the word \"lamp\".", "What is 12 + 30?",
             "Extract the facts as JSON: The driver Rosa is 26 years old."],
}

OBJECTIVE = {
    "block": """Training runs two streams at once, noisy and clean. A noisy block sees itself and the clean text before it. In three rows of
seven it sees up to three *noisy* blocks before it instead, with the noise rising to the right, as in a decoder with several
blocks in flight. A third of the blocks start fully masked. After the answer the target is end-of-text, to the end of the block
and in the blocks after it.""",
    "full": """The canvas contains the answer and end-of-text tokens, and is up to 96 tokens longer than needed. Half of the rows are masked at
a random rate. The other half is masked as in decoding block by block: clean to the left, a block of 32 at a random rate, all
masked to the right.""",
}

LIMITS = """## What it can't do

The model knows only the task kinds of the table. It is not a general assistant: it has no knowledge of the world, and no
language except the English of its templates. It sometimes misspells words outside the pools of `tools/models/words.py`. Numbers
above 999 (and results far above that) are out of range, and products go to two digits times one. It may misread instructions
with other wordings than the trained ones, and a wrong answer looks as confident as a right one. It was not trained on prompts
and chats beyond about 400 tokens. The held-out prompts are new texts from the same templates. So the figures show how well the
model learnt the templates, not how well it generalises beyond them.

## Licence

Apache-2.0. `tools/models` generates the training data; no other text or model was used.
"""


def front_matter(family):
    """The YAML block at the top of the card. A JSON string is a YAML string, too."""
    lines = ["---", "license: apache-2.0", "language: en", "examples:"]
    lines += [f"  - {json.dumps(example)}" for example in EXAMPLES[family]]
    return "\n".join(lines + ["---", ""])


def architecture(family):
    s = SHAPES[family]
    return f"{s.layers} layers, hidden size {s.hidden}, {s.heads} heads, {s.kv_heads} KV heads, head size {s.head_dim}, " \
           f"feed-forward {s.ffn}, byte-level BPE with 1,012 ordinary tokens, bf16."


def results_table(results):
    lines = ["| decoding | exact |", "| --- | --- |"]
    if "tpf" in next(iter(results.values())):
        lines = ["| decoding | exact | tokens/forward | mean over requests |", "| --- | --- | --- | --- |"]
    for name, r in results.items():
        tpf = f" {r['tpf']:.2f} | {r['tpf_mean']:.2f} |" if "tpf" in r else ""
        lines.append(f"| {name} | {100 * r['exact']:.1f} % |{tpf}")
    return "\n".join(lines)


def kinds_table(results):
    columns = list(results)
    lines = ["| kind | " + " | ".join(columns) + " |", "| --- |" + " --- |" * len(columns)]
    for kind in results[columns[0]]["by_kind"]:
        lines.append(f"| {kind} | " + " | ".join(f"{100 * results[c]['by_kind'][kind]:.0f} %" for c in columns) + " |")
    return "\n".join(lines)


def card(family, made, results):
    some = dict(list(results.items())[:3])
    counted = """
Tokens per forward are the tokens up to and including the end token, divided by all passes except the prefill; commit passes
count. Tokens that the prefill pass accepts do not count, although for many prompts it writes most of the answer.
""" if family == "block" else ""
    return f"""{front_matter(family)}{HEAD[family]}
## How it was made

{architecture(family)}

{made['samples']:,} chats with one to a few turns were drawn from {len(next(iter(results.values()))['by_kind'])} kinds of templates: sums, word problems with the working
shown, sorting, reversing, counting, case, JSON, stories and similar. Prompts whose hash is in the held-out share (4 %)
are never used for training.

{OBJECTIVE[family]}

{made['steps']:,} steps, {made['rows']:,} rows, {made['seconds']} seconds on one NVIDIA H200 in bf16, Muon and AdamW, learning rate {made['learning_rate']} with a cosine to zero;
the weights are an exponential moving average. `tools/models/README.md` has the commands.

## Accuracy

On `models/eval.jsonl`, 500 held-out instructions with balanced kinds. Exact string match, greedy, fp32 arithmetic.

{results_table(results)}
{counted}
{kinds_table(some)}

{LIMITS}"""


def main():
    folder, path = Path(sys.argv[1]), sys.argv[2]
    family = "block" if json.loads((folder / "config.json").read_text())["model_type"] == "sdar" else "full"
    record = json.loads(Path(path).read_text())
    (folder / "README.md").write_text(card(family, record["training"], record["results"]))
    print(folder / "README.md")


if __name__ == "__main__":
    main()
