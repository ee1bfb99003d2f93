"""GuideLLM, which measures servers. It needs PyTorch only to read rows, so a few lines stand in for that package here."""
# pip: click~=8.4.0 culsans~=0.10.0 datasets>=5.0.1 faker ftfy httpx[http2]<1 jinja2 loguru msgpack more-itertools numpy
# pip: protobuf pydantic>=2.11.7 pydantic-settings pyyaml rich sanic tabulate transformers uvloop websockets
# pip: --no-deps guidellm==0.8.1

import json
import os
import subprocess

from checks import finish, streamed, works

LINES = r"""
printf '{"prompt": "Count from %s to 30 by 2s."}\n' $(seq 0 19) > prompts.jsonl
guidellm run --backend kind=openai_http,target=http://127.0.0.1:8000,model=tiny-block --profile kind=concurrent,streams=2 \
    --constraint kind=max_requests,count=20 --data kind=json_file,path=prompts.jsonl --output kind=json,path=report.json
"""

STAND_IN = {
    "__init__": """
from torch.utils import data
class utils: data = data
class Tensor: pass
class nn: Module = Tensor
class Generator: manual_seed = lambda self, seed: self
""",
    "utils/__init__": "",
    "utils/data/__init__": "def get_worker_info(): return None",
    "utils/data/dataset": """
import typing
class IterableDataset(typing.Generic[typing.TypeVar("T")]): pass
""",
    "utils/data/dataloader": """
import typing
class DataLoader(typing.Generic[typing.TypeVar("T")]):
    def __init__(self, dataset, collate_fn, **other): self.dataset, self.collate_fn = dataset, collate_fn
    def __iter__(self): return (self.collate_fn([row]) for row in self.dataset)
""",
}
for name, text in STAND_IN.items():
    os.makedirs(os.path.dirname(f"torch/{name}"), exist_ok=True)
    open(f"torch/{name}.py", "w").write(text)
os.environ["PYTHONPATH"] = os.getcwd()


@works("measurements of chat completions with the right tokens per chunk")
def _():
    subprocess.run(["bash", "-euo", "pipefail", "-c", LINES], check=True, stdout=subprocess.DEVNULL)
    benchmark = json.load(open("report.json"))["benchmarks"][0]
    answers = benchmark["requests"]["successful"]
    assert len(answers) == 20, benchmark["metrics"]["request_totals"]
    for a in answers:
        prompt = json.loads(a["request_args"])["body"]["messages"][0]["content"][0]["text"]
        want = streamed("http://127.0.0.1:8000", prompt)
        assert (a["output_tokens"], a["info"]["timings"]["token_iterations"]) == want, (prompt, want, a)
    print(f"{benchmark['metrics']['output_tokens_per_iteration']['successful']['mean']:.2f} tokens per chunk")


finish()
