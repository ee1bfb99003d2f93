"""Writes the model card of a folder: what the training did, and what `unmask eval` measures.

    python3 card.py MODEL_DIR TRAINING.json... [--unmask PROGRAM] [--limit N]

TRAINING.json comes from train.py. A training that went on from other weights (--from) has several: the first one comes first.
--limit asks the first N questions of each set. Every figure of the card comes from
the program (../../build/unmask), so that the card, `unmask eval` and the README can't differ.
"""
import argparse
import json
import subprocess
import textwrap
from pathlib import Path

from foreign import HONEST
from model import shape_of_config

HEAD = {
    "block": """# tiny-block

tiny-block is a block diffusion language model of {millions} million parameters, bundled with unmask. It fills blocks of 32 tokens,
several at once. It answers small instructions whose result can be checked exactly, and says so when it is asked something
else. The folder is an ordinary checkpoint in the layout of SDAR (`SDARForCausalLM`): block-causal attention with the block
grid at position 0, per-head query and key norms, grouped KV heads, ChatML turns. The model serves to try and test the
engine, and has no other use.

```sh
unmask run  --model models/tiny-block "Sort these numbers: 42, 7, 19, 3."
unmask eval --model models/tiny-block
```
""",
    "full": """# tiny-full

tiny-full is a masked diffusion language model of {millions} million parameters, bundled with unmask. It fills a whole canvas of masks
with full attention. It answers small instructions whose result can be checked exactly, and says so when it is asked
something else. The folder is an ordinary checkpoint in the layout of LLaDA (`LLaDAModelLM`) with LLaDA's turn format. The
model serves to try and test the engine, and has no other use.

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

LIMITS = f"""## What it can't do

The model knows only the task kinds of the table. It is not a general assistant: it has no knowledge of the world, and no
language except English. To everything else it is trained to answer:

> {HONEST}

It sometimes misspells words outside the pools of `tools/models/words.py`. Numbers above 9999 (and results far above that) are
out of range, and products go to two digits times one, or times a number up to 12. A wrong answer looks as confident as a right
one. It was not trained on prompts and chats beyond about 400 tokens.

The prompts of `eval.jsonl` are new texts from the templates of the training. Those of `eval-loose.jsonl` have wordings that the
training never had, and `eval-foreign.jsonl` has templates and words of its own; both also have prompts written by hand
(`tools/models/strangers.py`). They have the same authors as the training data, so expect less from the prompts of others.

## Licence

Apache-2.0. `tools/models` generates the training data; no other text or model was used.
"""

def front_matter(family):
    """The YAML block at the top of the card. A JSON string is a YAML string, too."""
    lines = ["---", "license: apache-2.0", "language: en", "examples:"]
    lines += [f"  - {json.dumps(example)}" for example in EXAMPLES[family]]
    return "\n".join(lines + ["---", ""])


# (set, name in the table, options) of each measured decoding; the first ones have a column in the table of kinds.
RUNS = {
    "block": [(None, f"{n} block{'s' * (n > 1)}, threshold 0.95", ["--accept-threshold", "0.95", "--buffer-size", str(n)])
              for n in (1, 2, 4)],
    "full": [(None, f"{n} passes", ["--steps", str(n)]) for n in (128, 64, 32)],
}
# The decoding of the other sets: (name in the table, options).
SETS = {"block": ("1 block, threshold 0.95", ["--accept-threshold", "0.95", "--buffer-size", "1"]), "full": ("128 passes", ["--steps", "128"])}
WHAT = {None: "the kinds, plain wording", "loose": "the kinds, loose wording", "foreign": "foreign prompts"}


def measure(a, which, options):
    command = [a.unmask, "eval", "--model", a.folder, "--json", "--quiet", "--limit", str(a.limit), *(["--set", which] if which else []),
               *options]
    print("$", *command, flush=True)
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def file_of(which):
    return f"eval{'-' + which if which else ''}.jsonl"


def main_table(rows):
    lines = ["| set | decoding | right | honest answers | tokens/forward | mean over questions |", "| --- | --- | --- | --- | --- | --- |"]
    for which, name, r in rows:
        lines.append(f"| `{file_of(which)}`: {WHAT[which]} | {name} | {100 * r['accuracy']:.1f} % | {r['honest']} of {r['n']} | "
                     f"{r['tokens_per_forward']:.2f} | {r['tokens_per_forward_mean']:.2f} |")
    return "\n".join(lines)


def kinds_table(rows):
    """The kinds of the plain and the loose set."""
    shown = [(f"{WHAT[which]}, {name}", {k["kind"]: k["accuracy"] for k in r["kinds"]}) for which, name, r in rows if which != "foreign"]
    lines = ["| kind | " + " | ".join(name for name, _ in shown) + " |", "| --- |" + " --- |" * len(shown)]
    for kind in shown[0][1]:
        lines.append(f"| {kind} | " + " | ".join(f"{100 * by[kind]:.0f} %" if kind in by else "" for _, by in shown) + " |")
    return "\n".join(lines)


def training_text(made):
    return (f"{made['steps']:,} steps, {made['rows']:,} rows, {made['seconds']} seconds on one {made['device']}, learning rate "
            f"{made['learning_rate']} with a cosine to zero")


def steps_text(trainings):
    return (f"Training in bf16 with Muon and AdamW: {'; from these weights on, '.join(map(training_text, trainings))}. "
            "The weights are an exponential moving average. `tools/models/README.md` has the commands.")


def made_text(family, shape, trainings, kinds):
    made = trainings[-1]
    return f"""{shape.layers} layers, hidden size {shape.hidden}, {shape.heads} heads, {shape.kv_heads} KV heads, head size {shape.head_dim}, feed-forward {shape.ffn}, byte-level BPE with 1,012
ordinary tokens, {made['parameters']:,} parameters in bf16.

{sum(m['samples'] for m in trainings):,} chats with one to a few turns were drawn from {kinds} kinds of templates: sums, word problems with the working
shown, sorting, reversing, counting, case, JSON, stories and similar. 33 % of the prompts have the plain wording of the
templates, 55 % a loose one (synonyms, spacing, punctuation, case, courtesy, slips), and 12 % are foreign:
questions, code, other languages, mathematics out of range, chat, noise. Prompts whose hash is in the held-out share (4 %) are
never used for training, and neither are every eighth loose wording, and every sixth template and word of the foreign prompts.

{OBJECTIVE[family]}

{textwrap.fill(steps_text(trainings), 125)}"""


def asked(limit):
    return f"The first {limit} of 500 held-out prompts of each set." if limit else "500 held-out prompts a set, with balanced kinds."


def main():
    opt = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    opt.add_argument("folder")
    opt.add_argument("training", nargs="+")
    opt.add_argument("--unmask", default=str(Path(__file__).parents[2] / "build/unmask"))
    opt.add_argument("--limit", type=int, default=0)
    a = opt.parse_args()
    folder, trainings = Path(a.folder), [json.loads(Path(t).read_text())["training"] for t in a.training]
    shape = shape_of_config(json.loads((folder / "config.json").read_text()))
    family = shape.family
    runs = RUNS[family] + [(s, *SETS[family]) for s in ("loose", "foreign")]
    rows = [(which, name, measure(a, which, options)) for which, name, options in runs]
    text = f"""{front_matter(family)}{HEAD[family].format(millions=round(trainings[-1]['parameters'] / 1e6))}
## How it was made

{made_text(family, shape, trainings, len(rows[0][2]['kinds']))}

## Accuracy

{asked(a.limit)} Exact string match, greedy, bf16 arithmetic, measured by `unmask eval`.

{main_table(rows)}

Tokens per forward are the tokens of the answers, without end tokens, divided by all forward passes: prefill, denoising and
commits. The honest answer is wrong for a known kind, and the only right one for a foreign prompt.

{kinds_table(rows)}

{LIMITS}"""
    (folder / "README.md").write_text(text)
    print(folder / "README.md")


if __name__ == "__main__":
    main()
