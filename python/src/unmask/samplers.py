"""Samplers written in Python: functions that decide which predictions of a pass become tokens."""

from __future__ import annotations

import inspect
import threading
import traceback
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Union

import numpy as np

from ._library import check, ffi, lib, new_error
from .errors import InvalidValueError, UnmaskError

__all__ = ["sampler", "Sampler", "SamplerBatch", "SamplerParam", "SamplerError", "check_sampler", "load_plugin"]

READS = {"margin": lib.UM_READ_MARGIN, "entropy": lib.UM_READ_ENTROPY}


class SamplerError(UnmaskError):
    """A sampler raised an exception. The text has its traceback."""


class SamplerParam(NamedTuple):
    """A parameter of a sampler: a number with a range."""

    usual: float
    min: float = 0.0
    max: float = 1.0
    help: str = ""


class SamplerBatch:
    """All blocks that use a sampler in one step. Arrays are views that are valid during the call.

    The masks of a block are its candidates; those of all blocks stand one after the other. For n candidates:

    block:       block of each candidate, 0..n_blocks - 1
    position:    position in prompt and answer
    id:          the token that the candidate may get: the likeliest, or a sampled one
    probability: of that token, after temperature and filters
    margin:      probability of the likeliest token minus that of the second, if the sampler reads it
    entropy:     in nats, if the sampler reads it
    top_ids, top_logprobs: [n, n_top] likeliest tokens before temperature and filters

    For each block:

    first:       [n_blocks + 1] its candidates are first[b] to first[b + 1]
    length:      positions of the block
    step:        number of its pass, from 1
    forced:      it must get a token; if none is accepted, it gets its most probable one
    request, answer, seed: number of the request and of its answer, and the answer's seed
    param(name): [n_blocks] a parameter of the requests
    """

    def __init__(self, batch, names: List[str]):
        self._batch, self._names = batch, names
        self.n, self.n_blocks, self.n_top = batch.n, batch.n_blocks, batch.n_top

    def _view(self, pointer, kind, size: int, count: int) -> np.ndarray:
        return np.frombuffer(ffi.buffer(pointer, size * count), kind)

    @property
    def block(self) -> np.ndarray:
        return self._view(self._batch.block, np.int32, 4, self.n)

    @property
    def position(self) -> np.ndarray:
        return self._view(self._batch.position, np.int32, 4, self.n)

    @property
    def id(self) -> np.ndarray:
        return self._view(self._batch.id, np.int32, 4, self.n)

    @property
    def probability(self) -> np.ndarray:
        return self._view(self._batch.probability, np.float32, 4, self.n)

    @property
    def margin(self) -> np.ndarray:
        return self._read("margin")

    @property
    def entropy(self) -> np.ndarray:
        return self._read("entropy")

    def _read(self, name: str) -> np.ndarray:
        pointer = getattr(self._batch, name)
        if pointer == ffi.NULL:
            raise AttributeError(f'the sampler does not read it; use @sampler(reads="{name}")')
        return self._view(pointer, np.float32, 4, self.n)

    @property
    def _top(self) -> np.ndarray:
        pairs = self._view(self._batch.top, [("id", np.int32), ("logprob", np.float32)], 8, self.n * self.n_top)
        return pairs.reshape(self.n, self.n_top)

    @property
    def top_ids(self) -> np.ndarray:
        return self._top["id"]

    @property
    def top_logprobs(self) -> np.ndarray:
        return self._top["logprob"]

    @property
    def first(self) -> np.ndarray:
        return self._view(self._batch.first, np.int32, 4, self.n_blocks + 1)

    @property
    def length(self) -> np.ndarray:
        return self._view(self._batch.length, np.int32, 4, self.n_blocks)

    @property
    def step(self) -> np.ndarray:
        return self._view(getattr(self._batch, "pass"), np.int32, 4, self.n_blocks)

    @property
    def forced(self) -> np.ndarray:
        return self._view(self._batch.forced, np.bool_, 1, self.n_blocks)

    @property
    def request(self) -> np.ndarray:
        return self._view(self._batch.request, np.int64, 8, self.n_blocks)

    @property
    def answer(self) -> np.ndarray:
        return self._view(self._batch.answer, np.int32, 4, self.n_blocks)

    @property
    def seed(self) -> np.ndarray:
        return self._view(self._batch.seed, np.int64, 8, self.n_blocks)

    def param(self, name: str) -> np.ndarray:
        """Returns the values that the requests of the blocks have for a parameter."""
        if name not in self._names:
            raise InvalidValueError(f"the sampler has no parameter {name!r}, only {self._names}")
        values = self._view(self._batch.param, np.float32, 4, self.n_blocks * len(self._names))
        return values.reshape(self.n_blocks, -1)[:, self._names.index(name)]

    def per_candidate(self, values: np.ndarray) -> np.ndarray:
        """Returns the value of its block for each candidate: values[block]."""
        return np.asarray(values)[self.block]

    def best(self, score: np.ndarray) -> np.ndarray:
        """Returns the index of the candidate with the highest score in each block, the leftmost among equals."""
        return self._order(score)[self.first[:-1]]

    def rank(self, score: np.ndarray) -> np.ndarray:
        """Returns the rank of each candidate in its block: 0 has the highest score, the leftmost among equals."""
        order, rank = self._order(score), np.empty(self.n, np.int32)
        rank[order] = np.arange(self.n) - self.first[self.block[order]]
        return rank

    def _order(self, score: np.ndarray) -> np.ndarray:
        return np.lexsort((self.position, -np.asarray(score), self.block))


Function = Callable[[SamplerBatch], np.ndarray]


class Sampler:
    """A sampler and its definition for the library. Calling it calls the function."""

    def __init__(
        self, function: Function, name: str, params: Mapping[str, SamplerParam], reads: Iterable[str], n_top: int
    ):
        self.function, self.name, self.params = function, name, dict(params)
        for key, row in self.params.items():
            if not isinstance(row, SamplerParam):
                raise TypeError(f"params[{key!r}]: expected SamplerParam({row!r}); got {type(row).__name__}")
        self._callback = ffi.callback("void(void *, const um_sampler_batch *)", self._accept)
        strings = [ffi.new("char[]", text.encode()) for text in (name, _summary(function), _source(function))]
        rows = [
            (ffi.new("char[]", key.encode()), ffi.new("char[]", row.help.encode())) for key, row in self.params.items()
        ]
        array = ffi.new("um_sampler_param[]", max(1, len(rows)))
        for cell, (key, words), row in zip(array, rows, self.params.values()):
            cell.name, cell.help = key, words if row.help else ffi.NULL
            cell.min, cell.max, cell.usual = row.min, row.max, row.usual
        self.definition = ffi.new("um_sampler_def *")
        self.definition.version = 1
        self.definition.name, self.definition.summary, self.definition.source = strings
        self.definition.params, self.definition.n_params = array, len(rows)
        self.definition.reads = _read_bits([reads] if isinstance(reads, str) else reads)
        self.definition.n_top, self.definition.accept = n_top, self._callback
        self._keep = [strings, rows, array]

    def __call__(self, batch: SamplerBatch) -> np.ndarray:
        return self.function(batch)

    def _accept(self, arg, batch) -> None:
        try:
            self._decide(batch)
        except Exception:  # the requests whose blocks fail alone end, the others go on
            for block in range(batch.n_blocks):
                self._decide_alone(batch, block)

    def _decide(self, batch) -> None:
        accepted = np.asarray(self.function(SamplerBatch(batch, list(self.params))))
        if accepted.shape != (batch.n,) or accepted.dtype != np.bool_:
            raise TypeError(
                f"sampler {self.name}: expected a bool array of {batch.n} elements; "
                f"got {accepted.dtype} of shape {accepted.shape}"
            )
        np.frombuffer(ffi.buffer(batch.accept, batch.n), np.bool_)[:] = accepted

    def _decide_alone(self, batch, block: int) -> None:
        alone, _keep = _one_block(batch, block)
        try:
            self._decide(alone)
        except Exception:
            batch.failed[block] = True
            failures.note(batch.request[block], self.name, traceback.format_exc())


def _one_block(batch, block: int):
    """Returns a batch of one block, and what must live as long. It points into the arrays of the other one."""
    alone = ffi.new("um_sampler_batch *", batch[0])
    begin, end = batch.first[block], batch.first[block + 1]
    for name in ("position", "id", "probability", "margin", "entropy", "accept"):
        pointer = getattr(batch, name)
        setattr(alone, name, pointer + begin if pointer != ffi.NULL else pointer)
    for name in ("length", "pass", "forced", "request", "answer", "seed", "failed"):
        setattr(alone, name, getattr(batch, name) + block)
    if batch.n_top:
        alone.top = batch.top + begin * batch.n_top
    alone.param = batch.param + block * batch.n_params
    alone.n, alone.n_blocks = end - begin, 1
    keep = ffi.new("int32_t[2]", [0, end - begin]), ffi.new("int32_t[]", end - begin)
    alone.first, alone.block = keep
    return alone, keep


class _Failures:
    """What exceptions of samplers said, by the number of the request. An engine reads it on its own thread."""

    def __init__(self) -> None:
        self._of_thread = threading.local()

    def note(self, request: int, name: str, words: str) -> None:
        self._texts()[request] = f"sampler {name} raised an exception:\n{words}"

    def take(self, request: int) -> Optional[SamplerError]:
        """Returns the error of a request and forgets it."""
        words = self._texts().pop(request, None)
        return SamplerError(words) if words else None

    def take_any(self) -> Optional[SamplerError]:
        """Returns the error of some request and forgets all."""
        numbers = list(self._texts())
        return [self.take(number) for number in numbers][0] if numbers else None

    def _texts(self) -> Dict[int, str]:
        if not hasattr(self._of_thread, "texts"):
            self._of_thread.texts = {}
        return self._of_thread.texts


failures = _Failures()
_registered: List[Sampler] = []  # their callbacks must live as long as the process


def sampler(
    function: Optional[Function] = None,
    *,
    name: Optional[str] = None,
    params: Optional[Mapping[str, SamplerParam]] = None,
    reads: Union[str, Iterable[str]] = (),
    n_top: int = 0,
) -> Any:
    """Registers a function as a sampler. A decorator, with or without parameters.

    The function gets a SamplerBatch and returns a bool array with True for each candidate that gets its token. It is
    called once in each step for all blocks that use it. The decision about a block must depend on that block alone.
    The first line of its docstring is the summary.

    name:   name of the sampler; that of the function by default
    params: its parameters; requests set them by name. Names of options are taken.
    reads:  "margin", "entropy" or both
    n_top:  likeliest tokens of each candidate, 0..64

    LLMs that exist already refuse requests with it. If the function raises an exception, the requests whose blocks
    cause it end with SamplerError, and the others go on.
    """

    def register(function: Function) -> Sampler:
        made = Sampler(function, name or function.__name__, params or {}, reads, n_top)
        err = new_error()
        check(lib.um_register_sampler(made.definition, err), err)
        _registered.append(made)
        return made

    return register if function is None else register(function)


def check_sampler(sampler: Sampler) -> None:
    """Tests the rules of a sampler on made-up blocks. Raises InvalidValueError with the rule that it breaks.

    The same blocks must get the same decision each time, whatever other blocks are decided with them.
    """
    err = new_error()
    status = lib.um_check_sampler(sampler.definition, err)
    failure = failures.take_any()
    if failure:
        raise failure
    check(status, err)


def load_plugin(path: Any) -> None:
    """Registers the samplers of a shared library (docs/extending.md)."""
    err = new_error()
    check(lib.um_load_plugin(str(path).encode(), err), err)


def _read_bits(names: Iterable[str]) -> int:
    bits = 0
    for name in names:
        if name not in READS:
            raise InvalidValueError(f'reads: expected "margin" or "entropy"; got {name!r}')
        bits |= READS[name]
    return bits


def _summary(function: Function) -> str:
    lines = (inspect.getdoc(function) or "").strip().splitlines()
    return lines[0].rstrip(".") if lines else "a sampler in Python"


def _source(function: Function) -> str:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else "Python"
