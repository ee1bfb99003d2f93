"""What an LLM returns."""

from __future__ import annotations

import functools
from typing import Any, Dict, List, NamedTuple, Optional, Union

import numpy as np

from . import film

__all__ = ["RequestOutput", "CompletionOutput", "Logprob", "RequestMetrics", "ScoreOutput", "Snapshot", "Trace"]

# As in the APIs of the server: um_finish_reason in src/server/generate/choice.c.
_LENGTH = ("max_new_tokens_reached", "max_model_len_reached", "max_nfe_reached")
_ERROR = ("no_prediction", "constraint_too_large", "sampler_failed")


def short_reason(reason: str) -> str:
    """Converts the library's reason to the words of OpenAI's APIs: "stop", "length", "abort" or "error"."""
    if reason in _LENGTH:
        return "length"
    if reason in _ERROR:
        return "error"
    return "abort" if reason == "aborted" else "stop"


class Logprob(NamedTuple):
    """The log-probability of an id in the pass that wrote its position, before temperature and filters."""

    logprob: float
    rank: Optional[int]  # 1: the likeliest id; None: the id is not among the reported ones
    decoded_token: str


class RequestMetrics(NamedTuple):
    """Times in seconds since the request was added, and counts."""

    queue_seconds: float  # to the first step that ran the answer
    first_token_seconds: float  # to the first text
    total_seconds: float  # to the end
    decode_seconds: float  # duration of the steps that denoised the answer
    preemptions: int  # times that the answer lost its KV pages
    seed: int


class Snapshot(NamedTuple):
    """An answer after a pass: settled tokens, then the blocks in flight. All arrays have n elements.

    token_ids:  tokens; meaningless where the state is MASK
    state:      MASK, FRESH (written in this pass), SET (written earlier, may change) or SETTLED
    step:       number of the pass that wrote the token, from 1; -1 for a mask
    confidence: probability of the token in that pass; NaN for a mask
    nfe:        passes so far
    """

    token_ids: np.ndarray
    state: np.ndarray
    step: np.ndarray
    confidence: np.ndarray
    nfe: int


class Trace(NamedTuple):
    """The block buffer after a pass: numbers, status and masks of the blocks, and the tokens of all blocks."""

    prefill: bool  # the pass stored the prompt
    new_tokens: int  # tokens that the pass wrote
    block: np.ndarray
    status: List[str]
    masks: np.ndarray
    token_ids: np.ndarray


class CompletionOutput:
    """One answer of a request. Attributes that vLLM has keep their meaning.

    index:               number of the answer, from 0
    text:                the answer
    finish_reason:       "stop", "length", "abort" or "error"; None while the answer is not finished
    finish_detail:       the library's name of the reason ("eos_token_generated")
    stop_reason:         stop string or stop id that ended the answer, or None
    nfe:                 forward passes of the model
    denoise_tokens, denoise_passes: tokens that passes other than prefill wrote, and their number
    snapshots, traces:   recorded passes, if generate was asked to record them
    snapshot:            the newest snapshot of an AsyncLLM that streams snapshots, or None
    metrics:             times and counts, or None while the answer is not finished
    """

    def __init__(self, index: int, tokenizer: Any):
        self.index = index
        self.text = ""
        self.finish_reason: Optional[str] = None
        self.finish_detail: Optional[str] = None
        self.stop_reason: Union[None, int, str] = None
        self.nfe = 0
        self.denoise_tokens = self.denoise_passes = 0
        self.snapshots: List[Snapshot] = []
        self.traces: List[Trace] = []
        self.snapshot: Optional[Snapshot] = None
        self.metrics: Optional[RequestMetrics] = None
        self._tokenizer = tokenizer
        self._ids = self._steps = self._ends = self._logprobs = self._likeliest = b""
        self._text_start = 0  # bytes of the answer's text before `text`

    @property
    def token_array(self) -> np.ndarray:
        """Ids of the answer without the stop token, int32."""
        return np.frombuffer(self._ids, np.int32)

    @property
    def token_ids(self) -> List[int]:
        """Ids of the answer without the stop token."""
        return self.token_array.tolist()

    @property
    def step_map(self) -> np.ndarray:
        """Number of the pass that wrote each token, from 1, int32."""
        return np.frombuffer(self._steps, np.int32)

    @property
    def text_ends(self) -> np.ndarray:
        """Bytes from the beginning of the answer's UTF-8 text to the end of each token, int32."""
        return np.frombuffer(self._ends, np.int32)

    @property
    def tokens_per_forward(self) -> float:
        """Tokens of the answer for each forward pass of the model; 0 before the first pass."""
        return len(self.token_array) / self.nfe if self.nfe else 0.0

    @property
    def token_logprobs(self) -> Optional[np.ndarray]:
        """Log-probability of each token in the pass that wrote it, float32; None without logprobs."""
        return np.frombuffer(self._logprobs, np.float32) if self._logprobs else None

    @property
    def cumulative_logprob(self) -> Optional[float]:
        """Sum of the log-probabilities of the tokens; None without logprobs."""
        return float(np.frombuffer(self._logprobs, np.float32).sum()) if self._logprobs else None

    @functools.cached_property
    def logprobs(self) -> Optional[List[Dict[int, Logprob]]]:
        """For each token: {id: Logprob} of the token and of the likeliest ids; None without logprobs."""
        if not self._logprobs:
            return None
        pairs = np.frombuffer(self._likeliest, [("id", np.int32), ("logprob", np.float32)])
        rows: Any = pairs.reshape(len(self.token_array), -1) if len(pairs) else [[] for _ in self.token_array]
        logprobs = np.frombuffer(self._logprobs, np.float32).tolist()
        return [self._logprob_row(*of_token) for of_token in zip(self.token_ids, logprobs, rows)]

    def _logprob_row(self, token: int, logprob: float, likeliest: Any) -> Dict[int, Logprob]:
        decode = self._tokenizer.decode_token
        row = {
            int(pair["id"]): Logprob(float(pair["logprob"]), rank + 1, decode(int(pair["id"])))
            for rank, pair in enumerate(likeliest)
            if pair["id"] >= 0
        }
        row.setdefault(token, Logprob(logprob, None, decode(token)))
        return row

    def finished(self) -> bool:
        """Returns whether the answer has ended."""
        return self.finish_reason is not None

    def pieces(self) -> List[str]:
        """Returns the text of each token. A token whose character is not complete has an empty text."""
        encoded, pieces, start = self.text.encode(), [], 0
        for end in self.text_ends.tolist():
            end = min(end - self._text_start, len(encoded))
            pieces.append(encoded[start:end].decode("utf-8", "replace"))
            start = end
        return pieces

    def __copy__(self) -> CompletionOutput:
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def __getstate__(self) -> Dict[str, Any]:
        """Returns what pickle writes. The tokenizer belongs to this process, so it decodes the logprobs before."""
        self.logprobs  # noqa: B018: the property keeps its value
        return {**self.__dict__, "_tokenizer": None}

    def _repr_html_(self) -> str:
        return film.html(self.pieces(), self.step_map.tolist())

    def __repr__(self) -> str:
        return (
            f"CompletionOutput(index={self.index}, text={self.text!r}, token_ids={self.token_ids}, "
            f"finish_reason={self.finish_reason!r}, stop_reason={self.stop_reason!r}, nfe={self.nfe})"
        )


class RequestOutput:
    """A request with its answers. Attributes that vLLM has keep their meaning.

    request_id:        name of the request
    prompt:            its text; None if ids were given
    prompt_token_ids:  its ids
    outputs:           the answers
    finished:          all answers have ended
    num_cached_tokens: tokens of the prompt whose keys were found in the prefix cache
    """

    def __init__(self, request_id: str, prompt: Optional[str], prompt_array: np.ndarray):
        self.request_id = request_id
        self.prompt = prompt
        self.prompt_array = prompt_array
        self.outputs: List[CompletionOutput] = []
        self.finished = False
        self.num_cached_tokens = 0

    @property
    def prompt_token_ids(self) -> List[int]:
        """Ids of the prompt."""
        return self.prompt_array.tolist()

    @property
    def metrics(self) -> Optional[RequestMetrics]:
        """Metrics of the first answer."""
        return self.outputs[0].metrics if self.outputs else None

    def _repr_html_(self) -> str:
        return "".join(output._repr_html_() for output in self.outputs)

    def __repr__(self) -> str:
        return (
            f"RequestOutput(request_id={self.request_id!r}, prompt={self.prompt!r}, "
            f"prompt_token_ids={self.prompt_token_ids}, outputs={self.outputs}, finished={self.finished})"
        )


class ScoreOutput:
    """How likely a model is to give an answer.

    logprob:         natural logarithm of the answer's likelihood
    standard_error:  of logprob; 0 if it is exact, NaN if it is unknown
    token_ids:       the answer
    token_logprobs:  what each token contributes; the sum is logprob (array of float64)
    is_greedy:       whether decoding with one token in each pass would write the answer; None if it is unknown
    passes:          runs of the model
    num_prompt_tokens, num_cached_tokens: tokens of the prompt, and those found in the prefix cache
    seed:            seed of the masks
    total_seconds:   seconds since the score was added
    """

    def __init__(self) -> None:
        self.logprob = self.standard_error = float("nan")
        self.token_ids: List[int] = []
        self.token_logprobs = np.empty(0)
        self.is_greedy: Optional[bool] = None
        self.passes = self.num_prompt_tokens = self.num_cached_tokens = self.seed = 0
        self.total_seconds = 0.0

    def __repr__(self) -> str:
        return (
            f"ScoreOutput(logprob={self.logprob:.6g}, standard_error={self.standard_error:.3g}, passes={self.passes})"
        )
