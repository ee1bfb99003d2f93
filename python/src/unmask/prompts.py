"""Converts what users give to the values of the library: prompts, parameters, options."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union, cast

import numpy as np

from . import _engine
from ._library import PACKAGE, ffi, id_array, lib, set_option
from .errors import InvalidValueError, UnmaskError, UnsupportedError
from .outputs import RequestOutput, ScoreOutput
from .params import SamplingParams
from .tokenizer import Tokenizer

Prompt = Union[str, Sequence[int], np.ndarray, Mapping[str, Any]]

# Parameters of vLLM's LLM that unmask has no counterpart for, with the only value that is accepted.
WITHOUT_EFFECT = {"pipeline_parallel_size": 1, "tokenizer": None, "tokenizer_mode": "auto"}
# Parameters of vLLM's LLM that concern only vLLM itself.
IGNORED = ("trust_remote_code", "disable_log_stats", "swap_space", "cpu_offload_gb")


class RequestMaker:
    """Makes requests of an engine. Parameters that several requests share are converted once."""

    def __init__(self, engine: _engine.Engine, events: int):
        self._engine, self._events = engine, events
        self._params: Optional[SamplingParams] = None
        self._filled: Any = None
        self._keep: List[Any] = []

    def __call__(self, kind, name: str, prompt: Optional[str], ids: np.ndarray, params: SamplingParams, *more: Any):
        if self._filled is None or params is not self._params:
            self._filled = self._engine.new_request()
            self._keep = params.fill(self._filled)
            self._filled.events = self._events
            self._params = params
        c = ffi.new("um_request *", self._filled[0])
        pointer = id_pointer(ids)
        c.ids, c.n_ids = pointer, len(ids)
        return kind(self._engine, c, [self._keep, pointer], RequestOutput(name, prompt, ids), *more)


class ScoreMaker:
    """Makes scores of an engine with the same parameters."""

    def __init__(self, engine: _engine.Engine, adapter: Optional[str], options: Mapping[str, Any], done: _engine.Done):
        self._engine, self._done = engine, done
        self._template = engine.new_score()
        self._adapter = ffi.NULL if adapter is None else ffi.new("char[]", adapter.encode())
        self._template.adapter = self._adapter
        for name, value in options.items():
            set_option(lib.um_score_set, self._template, name, value)

    def __call__(self, index: int, prompt: Prompt, answer: Prompt) -> _engine.Score:
        with named(f"prompts[{index}]: "):
            ids = read_prompt(self._engine.tokenizer, prompt)[1]
        with named(f"answers[{index}]: "):
            answer_ids = self._read_answer(answer)
        c = ffi.new("um_score_request *", self._template[0])
        keep = [self._adapter, id_pointer(ids), id_pointer(answer_ids)]
        c.ids, c.n_ids = keep[1], len(ids)
        c.answer_ids, c.n_answer_ids = keep[2], len(answer_ids)
        return _engine.Score(self._engine, c, keep, ScoreOutput(), index, self._done)

    def _read_answer(self, answer: Prompt) -> np.ndarray:
        """Returns the ids of an answer. Nothing is added around its text."""
        if isinstance(answer, str):
            return self._engine.tokenizer.encode_array(answer, add_special_tokens=False)
        return read_prompt(self._engine.tokenizer, answer)[1]


def id_pointer(ids: np.ndarray):
    """Returns a pointer to ids. It is never NULL, which would mean that no ids are given."""
    return ffi.from_buffer("int32_t[]", ids) if len(ids) else ffi.new("int32_t[1]")


def find_model(model: Union[str, pathlib.Path]) -> str:
    """Returns the folder of a model of the package, else the name itself, which the library looks up."""
    bundled = PACKAGE / "share" / "unmask" / "models" / str(model)
    name = str(model)
    if "/" not in name and not pathlib.Path(name).exists() and (bundled / "config.json").is_file():
        return str(bundled)
    return name


def engine_options(options: Mapping[str, Any]) -> Dict[str, Any]:
    """Converts parameters of vLLM's LLM to options of unmask. None means that an option is not given."""
    own: Dict[str, Any] = {}
    for name, value in options.items():
        if name in IGNORED or value is None:
            continue
        if name == "enable_prefix_caching":
            own["disable_prefix_caching"] = not value
        elif name not in WITHOUT_EFFECT:
            own[name] = value
        elif value != WITHOUT_EFFECT[name]:
            raise UnsupportedError(
                f"{name}: {value!r} is not supported, only {WITHOUT_EFFECT[name]!r}", "UM_EUNSUPPORTED", name
            )
    return own


def as_list(prompts: Union[Prompt, Sequence[Prompt]], name: str = "prompts") -> List[Prompt]:
    """Converts one prompt to a list of it. A list of numbers is one prompt. `name` is the parameter in errors."""
    if isinstance(prompts, (str, Mapping)):
        return [prompts]
    if isinstance(prompts, np.ndarray):
        return [prompts] if prompts.ndim == 1 else list(prompts)
    if isinstance(prompts, Sequence) and len(prompts) and isinstance(prompts[0], (int, np.integer)):
        return [cast(Prompt, prompts)]
    if not isinstance(prompts, Iterable):
        raise TypeError(f"{name}: expected text, ids, a dict, or a list of them; got {type(prompts).__name__}")
    return list(cast(Iterable[Prompt], prompts))


def read_prompt(tokenizer: Optional[Tokenizer], prompt: Prompt) -> Tuple[Optional[str], np.ndarray]:
    """Returns the text of a prompt, None if it was given as ids, and its ids as int32. Ids need no tokenizer."""
    if isinstance(prompt, Mapping):
        known = [name for name in ("prompt_token_ids", "prompt") if prompt.get(name) is not None]
        if not known:
            raise TypeError(f'expected the key "prompt" or "prompt_token_ids"; got {sorted(prompt)}')
        prompt = prompt[known[0]]
    if isinstance(prompt, str) and tokenizer is not None:
        return prompt, tokenizer.encode_array(prompt)
    if isinstance(prompt, (Sequence, np.ndarray)) and not isinstance(prompt, (bytes, bytearray)):
        ids = np.asarray(prompt)
        if ids.ndim == 1 and (ids.dtype.kind in "iu" or len(ids) == 0):
            return None, id_array(ids)
    raise TypeError(
        f'expected text, a list of ids, or a dict with "prompt" or "prompt_token_ids"; got {type(prompt).__name__}'
    )


def params_of_each(params: Union[None, SamplingParams, Sequence[SamplingParams]], n: int) -> List[SamplingParams]:
    """Returns the parameters of each of n prompts."""
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * n
    if len(params) != n:
        raise InvalidValueError(
            f"sampling_params: expected one for all prompts or {n}, one for each; got {len(params)}"
        )
    return list(params)


def event_bits(record: Iterable[str]) -> int:
    """Converts the names of events to the bits of um_request.events."""
    bits = 0
    for name in [record] if isinstance(record, str) else record:
        if name not in ("snapshots", "traces"):
            raise InvalidValueError(f'record: expected "snapshots" or "traces"; got {name!r}')
        bits |= _engine.EVENTS[name]
    return bits


class named:
    """Puts the name of a prompt in front of errors."""

    def __init__(self, prefix: str):
        self._prefix = prefix

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind, error, traceback) -> None:
        if isinstance(error, UnmaskError):
            raise error.with_prefix(self._prefix) from None
        if isinstance(error, TypeError):
            raise TypeError(f"{self._prefix}{error}") from None
