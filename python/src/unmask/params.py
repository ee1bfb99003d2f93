"""What a request asks for."""

from __future__ import annotations

import enum
import json
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

import numpy as np

from ._library import ffi, lib, set_option
from .errors import InvalidValueError, UnsupportedError

__all__ = ["SamplingParams", "StructuredOutputsParams", "RequestOutputKind"]

# Parameters that are fields of um_request. All others are option rows of the library (`unmask list options`).
REQUEST_FIELDS = (
    "n",
    "stop",
    "stop_token_ids",
    "bad_words",
    "allowed_token_ids",
    "logit_bias",
    "skip_special_tokens",
    "structured_outputs",
    "adapter",
    "priority",
    "cache_salt",
    "suffix_token_ids",
    "reasoning_begin",
    "reasoning_end",
    "output_kind",
)
# Parameters of vLLM that unmask has no counterpart for, with the only value that is accepted.
WITHOUT_EFFECT = {
    "best_of": None,
    "detokenize": True,
    "include_stop_str_in_output": False,
    "prompt_logprobs": None,
    "spaces_between_special_tokens": True,
    "truncate_prompt_tokens": None,
}


class RequestOutputKind(enum.Enum):
    """What AsyncLLM.generate yields: everything so far, only what is new, or only the finished output."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


class StructuredOutputsParams:
    """A constraint: the answer is one of the texts that it allows. Exactly one parameter is given.

    json:        a JSON schema, as a dict or as text
    json_object: True: any JSON object
    regex:       a regular expression that matches the whole answer
    choice:      the strings that the answer may be
    grammar:     a grammar in GBNF, the notation of llama.cpp
    """

    def __init__(
        self,
        json: Union[None, str, Mapping[str, Any]] = None,
        regex: Optional[str] = None,
        choice: Optional[Sequence[str]] = None,
        grammar: Optional[str] = None,
        json_object: Optional[bool] = None,
    ):
        self.json, self.regex, self.choice, self.grammar, self.json_object = json, regex, choice, grammar, json_object
        self.constraint()

    def constraint(self):
        """Returns the UM_CONSTRAINT_* and its text."""
        given = [name for name in ("json", "regex", "choice", "grammar", "json_object") if getattr(self, name)]
        if len(given) != 1:
            raise InvalidValueError(
                f"structured_outputs: expected one of json, regex, choice, grammar and json_object; got {given}"
            )
        value = getattr(self, given[0])
        if given[0] == "json_object":
            return lib.UM_CONSTRAINT_JSON, None
        if given[0] == "json":
            return lib.UM_CONSTRAINT_SCHEMA, value if isinstance(value, str) else json.dumps(value)
        if given[0] == "choice":
            return lib.UM_CONSTRAINT_CHOICE, json.dumps(list(value))
        return (lib.UM_CONSTRAINT_REGEX if given[0] == "regex" else lib.UM_CONSTRAINT_GRAMMAR), value

    def __repr__(self) -> str:
        given = [f"{name}={value!r}" for name, value in vars(self).items() if value]
        return f"StructuredOutputsParams({', '.join(given)})"


class SamplingParams:
    """The parameters of a request. Those that are not given have the defaults of the LLM.

    n:                   number of answers
    temperature, top_p, top_k, min_p, seed, max_tokens, min_tokens, logprobs, ignore_eos, presence_penalty,
    frequency_penalty, repetition_penalty: as `unmask list options` describes them
    stop:                strings that end the answer
    stop_token_ids:      ids that end the answer, in addition to the model's
    bad_words:           texts that the answer must not contain
    allowed_token_ids:   the only ids that the answer may have
    logit_bias:          {id: number that is added to its logit}
    skip_special_tokens: leave special tokens out of the text
    structured_outputs:  a constraint (StructuredOutputsParams)
    adapter:             name of a LoRA adapter of the LLM
    priority:            requests with lower values run first
    cache_salt:          only requests with the same number share keys in the prefix cache
    suffix_token_ids:    ids that follow the answer; whole-sequence strategies fill the gap
    reasoning_begin, reasoning_end: markers of a free section in front of a constrained text
    output_kind:         what AsyncLLM.generate yields
    options:             any other option of the groups Decoding, Sampling and Limits: accept_threshold=0.9,
                         sampler="entropy_bound", steps=64

    Every value is checked at once. A wrong one raises InvalidValueError with the name of the parameter.
    """

    def __init__(
        self,
        n: int = 1,
        *,
        temperature: Optional[float] = None,
        top_p: Optional[float] = None,
        top_k: Optional[int] = None,
        min_p: Optional[float] = None,
        seed: Optional[int] = None,
        max_tokens: Optional[int] = None,
        min_tokens: Optional[int] = None,
        stop: Union[None, str, Sequence[str]] = None,
        stop_token_ids: Optional[Sequence[int]] = None,
        bad_words: Optional[Sequence[str]] = None,
        allowed_token_ids: Optional[Sequence[int]] = None,
        logit_bias: Optional[Mapping[int, float]] = None,
        logprobs: Optional[int] = None,
        ignore_eos: Optional[bool] = None,
        presence_penalty: Optional[float] = None,
        frequency_penalty: Optional[float] = None,
        repetition_penalty: Optional[float] = None,
        skip_special_tokens: bool = True,
        structured_outputs: Optional[StructuredOutputsParams] = None,
        adapter: Optional[str] = None,
        priority: int = 0,
        cache_salt: int = 0,
        suffix_token_ids: Optional[Sequence[int]] = None,
        reasoning_begin: Optional[str] = None,
        reasoning_end: Optional[str] = None,
        output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE,
        **options: Any,
    ):
        self.n = n
        self.stop: List[str] = [stop] if isinstance(stop, str) else list(() if stop is None else stop)
        self.stop_token_ids = list(stop_token_ids or ())
        self.bad_words = list(bad_words or ())
        self.allowed_token_ids = None if allowed_token_ids is None else list(allowed_token_ids)
        self.logit_bias = dict(logit_bias or {})
        self.skip_special_tokens = skip_special_tokens
        self.structured_outputs = structured_outputs
        self.adapter, self.priority, self.cache_salt = adapter, priority, cache_salt
        self.suffix_token_ids = None if suffix_token_ids is None else list(suffix_token_ids)
        self.reasoning_begin, self.reasoning_end = reasoning_begin, reasoning_end
        self.output_kind = output_kind
        known = dict(
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            seed=seed,
            max_tokens=max_tokens,
            min_tokens=min_tokens,
            logprobs=logprobs,
            ignore_eos=ignore_eos,
            presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
            repetition_penalty=repetition_penalty,
        )
        known.update(_without_foreign(options))
        self.options: Dict[str, Any] = {name: value for name, value in known.items() if value is not None}
        self.fill(ffi.new("um_request *"))

    def fill(self, request) -> List[Any]:
        """Stores the parameters in a um_request. Returns what the request points to, which must live as long."""
        keep: List[Any] = []
        for name, value in self.options.items():
            set_option(lib.um_request_set, request, name, value)
        request.n = _count(self.n)
        request.priority, request.cache_salt = self.priority, self.cache_salt
        request.keep_special = not self.skip_special_tokens
        request.stop, request.n_stop = _strings("stop", self.stop, keep), len(self.stop)
        request.bad_words, request.n_bad_words = _strings("bad_words", self.bad_words, keep), len(self.bad_words)
        request.stop_ids, request.n_stop_ids = _ids(self.stop_token_ids, keep), len(self.stop_token_ids)
        if self.allowed_token_ids is not None:
            if not self.allowed_token_ids:
                raise InvalidValueError("allowed_token_ids: expected at least one id", "UM_EINVAL", "allowed_token_ids")
            request.allowed_ids = _ids(self.allowed_token_ids, keep)
            request.n_allowed_ids = len(self.allowed_token_ids)
        if self.suffix_token_ids is not None:
            request.suffix, request.n_suffix = _ids(self.suffix_token_ids, keep), len(self.suffix_token_ids)
        if self.logit_bias:
            biases = ffi.new("um_bias[]", [(int(id), float(value)) for id, value in self.logit_bias.items()])
            keep.append(biases)
            request.bias, request.n_bias = biases, len(biases)
        request.adapter = _string("adapter", self.adapter, keep)
        request.reasoning_begin = _string("reasoning_begin", self.reasoning_begin, keep)
        request.reasoning_end = _string("reasoning_end", self.reasoning_end, keep)
        if self.structured_outputs is not None:
            request.constraint, text = self.structured_outputs.constraint()
            request.constraint_text = _string("structured_outputs", text, keep)
        return keep

    def __repr__(self) -> str:
        fields = {name: getattr(self, name) for name in REQUEST_FIELDS}
        fields.update(self.options)
        return f"SamplingParams({', '.join(f'{name}={value!r}' for name, value in fields.items() if value)})"


def _without_foreign(options: Mapping[str, Any]) -> Dict[str, Any]:
    """Removes parameters of vLLM that have no effect. Raises an error if they were to have one."""
    rest = {}
    for name, value in options.items():
        if name not in WITHOUT_EFFECT:
            rest[name] = value
        elif value != WITHOUT_EFFECT[name]:
            raise UnsupportedError(
                f"{name}: {value!r} is not supported, only {WITHOUT_EFFECT[name]!r}", "UM_EUNSUPPORTED", name
            )
    return rest


def _count(n: int) -> int:
    """Returns a number of answers that a request may have."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)):
        raise TypeError(f"n: expected an integer 1..{lib.UM_ANSWERS_MAX}; got {type(n).__name__}")
    if not 1 <= n <= lib.UM_ANSWERS_MAX:
        raise InvalidValueError(f"n: {n} answers; a request has 1..{lib.UM_ANSWERS_MAX}", "UM_ERANGE", "n")
    return int(n)


def _string(name: str, value: Optional[str], keep: List[Any]):
    """Returns a C string of the parameter `name`. The library would read no further than a U+0000."""
    if value is None:
        return ffi.NULL
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected text; got {type(value).__name__}")
    if "\0" in value:
        raise InvalidValueError(f"{name}: expected text without U+0000; got {value!r}", "UM_EINVAL", name)
    keep.append(ffi.new("char[]", value.encode()))
    return keep[-1]


def _strings(name: str, values: Sequence[str], keep: List[Any]):
    if "" in values:
        raise InvalidValueError(f"{name}: expected texts; got an empty one", "UM_EINVAL", name)
    if not values:
        return ffi.NULL
    keep.append(ffi.new("char *[]", [_string(name, value, keep) for value in values]))
    return keep[-1]


def _ids(values: Sequence[int], keep: List[Any]):
    keep.append(ffi.new("int32_t[]", [int(value) for value in values]))
    return keep[-1]
