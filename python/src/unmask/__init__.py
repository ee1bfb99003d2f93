"""unmask runs diffusion language models.

from unmask import LLM, SamplingParams

llm = LLM("tiny-block")
for output in llm.chat([{"role": "user", "content": "What is 12 + 30?"}], SamplingParams(max_tokens=64)):
    print(output.outputs[0].text)
"""

from ._declarations import version as __version__
from .async_llm import AsyncLLM
from .errors import (
    CanceledError,
    ClosedError,
    DeviceError,
    InvalidValueError,
    ModelError,
    NotFoundError,
    OutOfMemoryError,
    UnmaskError,
    UnsupportedError,
)
from .hub import from_pretrained
from .llm import LLM
from .outputs import CompletionOutput, Logprob, RequestMetrics, RequestOutput, ScoreOutput, Snapshot, Trace
from .params import RequestOutputKind, SamplingParams, StructuredOutputsParams
from .samplers import SamplerBatch, SamplerError, SamplerParam, load_plugin, sampler
from .tokenizer import Tokenizer

__all__ = [
    "LLM",
    "AsyncLLM",
    "SamplingParams",
    "StructuredOutputsParams",
    "RequestOutputKind",
    "RequestOutput",
    "CompletionOutput",
    "Logprob",
    "RequestMetrics",
    "ScoreOutput",
    "Snapshot",
    "Trace",
    "Tokenizer",
    "sampler",
    "SamplerBatch",
    "SamplerParam",
    "load_plugin",
    "from_pretrained",
    "UnmaskError",
    "InvalidValueError",
    "NotFoundError",
    "UnsupportedError",
    "OutOfMemoryError",
    "ModelError",
    "DeviceError",
    "CanceledError",
    "ClosedError",
    "SamplerError",
    "__version__",
]
