"""EvalScope's measurement of servers. It installs no PyTorch."""
# pip: evalscope[perf]==1.14.1

import json
import os
import subprocess

from checks import finish, streamed, works

LINES = r"""
printf 'Count from %s to 30 by 2s.\n' $(seq 0 9) > prompts.txt
evalscope perf --url http://127.0.0.1:8000/v1/chat/completions --api openai --model tiny-block --number 10 --parallel 2 \
    --dataset line_by_line --dataset-path prompts.txt --no-timestamp --outputs-dir measured
"""

os.environ["HF_HUB_OFFLINE"] = "1"


@works("measurements of chat completions with the right tokens per chunk")
def _():
    subprocess.run(["bash", "-euo", "pipefail", "-c", LINES], check=True, stdout=subprocess.DEVNULL)
    got = json.load(open("measured/tiny-block/parallel_2_number_10/benchmark_summary.json"))
    want = [streamed("http://127.0.0.1:8000", line.strip()) for line in open("prompts.txt")]
    assert got["Success Requests"] == 10 and got["Failed Requests"] == 0, got
    assert abs(got["Avg Output Tokens"] - sum(tokens for tokens, _ in want) / 10) < 0.01, (got, want)
    # It divides by all chunks behind the first one, and leaves out one token. The last chunk has no text.
    printed, true = got["Avg Decoded Tok/Iter"], sum(tokens / chunks for tokens, chunks in want) / 10
    print(f"{printed} tokens per chunk, in truth {true:.2f}")
    assert abs(printed - true) < 0.1 * true


finish()
