"""Prints tokens/s of `unmask generate` and of unmask.LLM in turn, and events/s of unmask.AsyncLLM.

The program is given as the first argument. Both answer the same requests with tiny-block, 32 at a time. The program's
time is that of its report, without loading; that of the package begins with the call of generate.

Events are measured with random weights of one small layer, so that the engine takes little of the time.
"""

import asyncio
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import unmask

REQUESTS, TOKENS, RUNS = 500, 64, 7


def program_rate(program, requests, results):
    """Returns tokens/s of the program."""
    results.unlink(missing_ok=True)
    command = [
        program,
        "generate",
        "--raw",
        "--model",
        "models/tiny-block",
        "--max-num-reqs",
        "32",
        "--input",
        requests,
        "--output",
        results,
    ]
    report = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    return float(re.search(r"([0-9.]+) tokens/s", report).group(1))


def package_rate(llm, prompts, params):
    """Returns tokens/s of LLM.generate."""
    start = time.perf_counter()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds = time.perf_counter() - start
    return sum(len(output.outputs[0].token_array) for output in outputs) / seconds


async def event_rate(llm, prompts, params):
    """Returns outputs/s of AsyncLLM, with a snapshot of each pass."""

    async def read(prompt):
        return len([None async for _ in llm.generate(prompt, params, snapshots=True)])

    start = time.perf_counter()
    counts = await asyncio.gather(*map(read, prompts))
    return sum(counts) / (time.perf_counter() - start)


@unmask.sampler(params={"python_threshold": unmask.SamplerParam(0.9)})
def python_confidence(batch):
    """The sampler confidence in Python."""
    return batch.probability > batch.per_candidate(batch.param("python_threshold"))


def decision_time(llm, prompts, sampler):
    """Returns the microseconds of a step in which the answers of a pass are applied."""
    params = unmask.SamplingParams(max_tokens=TOKENS, ignore_eos=True, sampler=sampler)
    before = llm.stats()
    llm.generate(prompts, params, use_tqdm=False)
    after = llm.stats()
    return 1e6 * (after["apply_seconds"] - before["apply_seconds"]) / (after["steps"] - before["steps"])


def small_model(folder):
    """Writes the configuration of a model with one small layer, and the tokenizer of tiny-block."""
    source = pathlib.Path("models/tiny-block")
    for path in source.glob("*.json"):
        (folder / path.name).write_bytes(path.read_bytes())
    config = json.loads((source / "config.json").read_text())
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 32}
    config.update(num_hidden_layers=1, hidden_size=32, intermediate_size=32, **heads)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def shown(rates):
    """Returns the median of measurements, and their range."""
    return f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


def main():
    prompts = [f"<|im_start|>user\nTell me about {i}" for i in range(REQUESTS)]
    params = unmask.SamplingParams(max_tokens=TOKENS, ignore_eos=True)
    with tempfile.TemporaryDirectory() as folder:
        requests = pathlib.Path(folder) / "requests.jsonl"
        requests.write_text(
            "\n".join(json.dumps({"prompt": p, "max_tokens": TOKENS, "ignore_eos": True}) for p in prompts)
        )
        results = pathlib.Path(folder) / "results.jsonl"
        program, package = [], []
        with unmask.LLM("tiny-block", max_num_reqs=32) as llm:
            decision = {name: [] for name in ("confidence", "python_confidence")}
            for _ in range(RUNS):
                for name, times in decision.items():
                    times.append(decision_time(llm, prompts, name))
                program.append(program_rate(sys.argv[1], requests, results))
                package.append(package_rate(llm, prompts, params))
    with tempfile.TemporaryDirectory() as folder:
        with unmask.AsyncLLM(small_model(pathlib.Path(folder)), load_format="dummy", max_num_reqs=32) as llm:
            slow = unmask.SamplingParams(max_tokens=TOKENS, ignore_eos=True, sampler="static", denoising_steps=32)
            events = [asyncio.run(event_rate(llm, prompts, slow)) for _ in range(3)]
    print(f"tokens/s, median of {RUNS} runs and range")
    print(f"unmask generate  {shown(program)}")
    print(f"LLM.generate     {shown(package)}")
    print(f"ratio            {statistics.median(package) / statistics.median(program):.3f}")
    for name, times in decision.items():
        print(f"applying a pass of 32 requests, sampler {name}, us: {shown(times)}")
    print(f"AsyncLLM, outputs/s with a snapshot of each pass: {shown(events)}")


if __name__ == "__main__":
    main()
