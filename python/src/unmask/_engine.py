"""A model with its engines, and the thread that steps them.

All functions of the router are called on one thread, the engine thread. Other threads hand it commands. cffi releases
the interpreter's lock in every call of the library, so Python code runs while a step computes. Callbacks of the library
come on the engine thread; what they tell is handed on after the step.
"""

from __future__ import annotations

import collections
import concurrent.futures
import itertools
import os
import threading
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from . import outputs
from ._library import OpenModel, check, error_of, ffi, lib, new_error, octets, optional_text, set_option, text
from .errors import ClosedError, UnmaskError
from .samplers import failures
from .tokenizer import Tokenizer

EVENTS = {"text": lib.UM_EVENT_TEXT, "snapshots": lib.UM_EVENT_SNAPSHOT, "traces": lib.UM_EVENT_TRACE}
_FINISH_REASONS = {
    reason: text(lib.um_finish_name(reason)) for reason in range(lib.UM_FINISH_NONE, lib.UM_FINISH_SAMPLER + 1)
}


Done = Optional[Callable[[Any], None]]


class Job:
    """A request or a score that an engine runs. The engine thread alone calls its methods that begin with on_.

    c:     the um_request or um_score_request
    keep:  what `c` points to
    index: place in the caller's list
    done:  called with the job when it has ended
    """

    def __init__(self, engine: Engine, c, keep: List[Any], output: Any, index: int, done: Done):
        self.engine, self.c, self.output, self.index, self._done = engine, c, output, index, done
        self.keep: Any = keep  # None when the library has copied it
        self.number = 0  # of the library, from 1; 0 before it has been added
        self.unfinished = 1  # answers that have not ended
        self.error: Optional[Exception] = None

    def add(self, router, callbacks: Callbacks, key: int, number, err) -> int:
        """Queues the job. Its events come with the key. Returns a um_status."""
        raise NotImplementedError

    def ended(self) -> bool:
        """Returns whether no further event will come."""
        return self.unfinished == 0 or self.error is not None

    def on_event(self, event) -> None:
        """Stores what an event of the library tells."""
        raise NotImplementedError

    def on_end(self) -> None:
        """The job has ended, and the step is over."""
        if self._done:
            self._done(self)


class Request(Job):
    """A um_request."""

    def __init__(self, engine: Engine, c, keep: List[Any], output: outputs.RequestOutput, index: int, done: Done):
        super().__init__(engine, c, keep, output, index, done)
        self.unfinished = c.n
        output.outputs = [outputs.CompletionOutput(answer, engine.tokenizer) for answer in range(c.n)]

    def add(self, router, callbacks: Callbacks, key: int, number, err) -> int:
        self.c.arg, self.c.on_event = ffi.cast("void *", key), callbacks.event
        return lib.um_router_add(router, self.c, number, err)

    def on_event(self, event) -> None:
        answer = self.output.outputs[event.index]
        if event.type == lib.UM_EVENT_FINISH:
            store_result(answer, event.result)
            self.output.num_cached_tokens = event.result.cached_tokens
            self.unfinished -= 1
            self.output.finished = self.unfinished == 0
        elif event.type == lib.UM_EVENT_SNAPSHOT:
            answer.snapshots.append(snapshot_of(event.snapshot))
        elif event.type == lib.UM_EVENT_TRACE:
            answer.traces.append(trace_of(event.trace))


class Score(Job):
    """A um_score_request."""

    def add(self, router, callbacks: Callbacks, key: int, number, err) -> int:
        self.c.arg, self.c.on_score = ffi.cast("void *", key), callbacks.score
        return lib.um_router_score(router, self.c, number, err)

    def on_event(self, event) -> None:
        store_score(self.output, event)
        self.unfinished = 0
        if event.finish != lib.UM_FINISH_STEPS:
            self.error = UnmaskError(f"there is no score: {_FINISH_REASONS[event.finish]}")


def store_result(answer: outputs.CompletionOutput, result) -> None:
    """Copies a um_result."""
    size = 4 * result.n_tokens
    answer._ids = octets(result.token_ids, size)
    answer._steps = octets(getattr(result, "pass"), size)
    answer._ends = octets(result.text_end, size)
    if result.logprob != ffi.NULL:
        answer._logprobs = octets(result.logprob, size)
        answer._likeliest = octets(result.likeliest, 2 * size * result.n_likeliest)
    answer.text = text(result.text, result.text_len)
    answer.finish_detail = _FINISH_REASONS[result.finish]
    answer.finish_reason = outputs.short_reason(answer.finish_detail)
    answer.stop_reason = optional_text(result.stop) if result.stop_id < 0 else result.stop_id
    answer.nfe = result.nfe
    answer.denoise_tokens, answer.denoise_passes = result.denoise_tokens, result.denoise_passes
    answer.metrics = outputs.RequestMetrics(
        result.queue_seconds,
        result.first_token_seconds,
        result.total_seconds,
        result.decode_seconds,
        result.preemptions,
        result.seed,
    )


def snapshot_of(s) -> outputs.Snapshot:
    """Copies a um_snapshot."""
    return outputs.Snapshot(
        np.frombuffer(octets(s.id, 4 * s.n), np.int32),
        np.frombuffer(octets(s.state, s.n), np.uint8),
        np.frombuffer(octets(getattr(s, "pass"), 4 * s.n), np.int32),
        np.frombuffer(octets(s.confidence, 4 * s.n), np.float32),
        s.nfe,
    )


def trace_of(t) -> outputs.Trace:
    """Copies a um_trace."""
    return outputs.Trace(
        t.prefill,
        t.n_new,
        np.frombuffer(octets(t.block, 4 * t.n_blocks), np.int32),
        [text(t.status[i]) for i in range(t.n_blocks)],
        np.frombuffer(octets(t.masks, 4 * t.n_blocks), np.int32),
        np.frombuffer(octets(t.token, 4 * t.n_tokens), np.int32),
    )


class Callbacks(NamedTuple):
    """What the library calls."""

    event: Any
    score: Any


def store_score(output: outputs.ScoreOutput, result) -> None:
    """Copies a um_score_result."""
    n = result.n_tokens
    output.logprob, output.standard_error = result.logprob, result.standard_error
    output.token_ids = np.frombuffer(octets(result.token_ids, 4 * n), np.int32).tolist()
    output.token_logprobs = np.frombuffer(octets(result.token_logprob, 8 * n), np.float64)
    output.is_greedy = None if result.is_greedy < 0 else bool(result.is_greedy)
    output.passes, output.seed = result.passes, result.seed
    output.num_prompt_tokens, output.num_cached_tokens = result.prompt_tokens, result.cached_tokens
    output.total_seconds = result.total_seconds


def config_of(options: Mapping[str, Any]) -> Tuple[Any, List[Any]]:
    """Returns the configuration of an engine, and what must live as long.

    An unknown name and a wrong value are errors.
    """
    config = ffi.new("um_config *")
    lib.um_config_init(config)
    return config, [set_option(lib.um_config_set, config, name, value) for name, value in options.items()]


class Engine:
    """Opens a model and starts the engine thread. `on_load(fraction)` is called while the weights are read."""

    def __init__(self, options: Mapping[str, Any], on_load: Optional[Callable[[float], None]] = None):
        self._pid = os.getpid()
        self._commands: collections.deque = collections.deque()
        self._wake = threading.Condition()
        self._closing = False
        self._failure: Optional[UnmaskError] = None
        self._requests: Dict[int, Job] = {}
        self._keys = itertools.count(1)
        self._ended: List[Job] = []
        self._err, self._number = new_error(), ffi.new("int64_t *")
        self._callbacks = Callbacks(
            ffi.callback("um_event_fn", self._on_event, onerror=self._on_callback_error),
            ffi.callback("um_score_fn", self._on_score, onerror=self._on_callback_error),
        )
        self.flush: Callable[[], None] = _nothing  # called after each step, on the engine thread
        config, self._keep = config_of(options)
        self.model = _open_model(config, on_load)
        self._router = self._make_router(config)
        self.tokenizer = Tokenizer(self.model)
        self._template = ffi.new("um_request *")
        lib.um_request_init(lib.um_router_engine(self._router, 0), self._template)
        self._score_template = ffi.new("um_score_request *")
        lib.um_score_init(lib.um_router_engine(self._router, 0), self._score_template)
        self._thread = threading.Thread(target=self._run, name="unmask engine", daemon=True)
        self._thread.start()

    def _make_router(self, config):
        router, err = ffi.new("um_router **"), new_error()
        status = lib.um_router_new(router, self.model.get(), config, err)
        if status:
            self.model.close()
            raise error_of(err)
        return router[0]

    # ---- Any thread --------------------------------------------------------------------------------------------------

    def new_score(self):
        """Returns a um_score_request with the defaults of the engine."""
        return ffi.new("um_score_request *", self._score_template[0])

    def new_request(self):
        """Returns a um_request with the defaults of the engine."""
        return ffi.new("um_request *", self._template[0])

    def submit(self, requests: List[Job]) -> None:
        """Queues requests. The `done` of each is called when it has ended."""
        self._post(lambda: self._add_all(requests))

    def abort(self, requests: List[Job]) -> None:
        """Ends requests early."""
        if not self._closing:
            self._post(lambda: self._abort_all(requests))

    def call(self, function: Callable[[Any], Any]) -> Any:
        """Calls function(router) on the engine thread and returns its result."""
        self.check_may_wait()
        future: concurrent.futures.Future = concurrent.futures.Future()

        def run() -> None:
            try:
                future.set_result(function(self._router))
            except BaseException as error:
                future.set_exception(error)

        self._post(run)
        return future.result()

    def check_usable(self) -> None:
        """Raises an error if the engine is closed, has failed, or belongs to another process."""
        if self._pid != os.getpid():
            raise ClosedError(
                "the LLM was created before this process was forked, and its threads are not in this process; create "
                'the LLM after the fork, or start processes with multiprocessing\'s method "spawn"'
            )
        if self._failure:
            raise self._failure
        if self._closing:
            raise ClosedError("the LLM is closed")

    def check_may_wait(self) -> None:
        """Raises an error on the engine thread, which would wait for itself."""
        if threading.current_thread() is self._thread:
            raise UnmaskError("a sampler can't wait for the LLM that calls it")

    def close(self) -> None:
        """Ends all requests, and frees engines and model. A second call does nothing."""
        if self._pid != os.getpid():
            return
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not threading.current_thread():  # the garbage collector runs on any thread
            self._thread.join()

    def _post(self, command: Callable[[], None]) -> None:
        self.check_usable()
        with self._wake:
            if self._closing:
                raise ClosedError("the LLM is closed")
            self._commands.append(command)
            self._wake.notify()

    # ---- Engine thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pending = 0
        while True:
            if not pending:
                with self._wake:
                    while not self._commands and not self._closing:
                        self._wake.wait()
            if self._closing:
                break
            while self._commands:
                self._commands.popleft()()
            if lib.um_router_pending(self._router):
                if lib.um_router_step(self._router, self._err):
                    self._failure = error_of(self._err)
            self._hand_on()
            pending = lib.um_router_pending(self._router)
        self._shut_down()

    def _shut_down(self) -> None:
        while self._commands:  # a call must return, and a request that has not been added must end
            self._commands.popleft()()
        lib.um_router_free(self._router)
        error = ClosedError("the LLM was closed before the request ended")
        for request in self._requests.values():
            request.error = request.error or error
            self._ended.append(request)
        self._requests.clear()
        self._hand_on()
        self.model.close()
        self._router = ffi.NULL

    def _hand_on(self) -> None:
        ended, self._ended = self._ended, []
        for request in ended:
            if self._failure and request.error is None:
                request.error = self._failure
            request.on_end()
        self.flush()

    def _add_all(self, requests: List[Job]) -> None:
        for request in requests:
            if not request.ended():
                self._add(request)

    def _add(self, request: Job) -> None:
        if self._closing:
            self._fail(request, ClosedError("the LLM was closed before the request ended"))
            return
        key = next(self._keys)
        self._requests[key] = request
        status = request.add(self._router, self._callbacks, key, self._number, self._err)
        request.number = self._number[0]
        request.c = request.keep = None
        if status:
            del self._requests[key]
            self._fail(request, error_of(self._err))

    def _fail(self, request: Job, error: Exception) -> None:
        request.error = error
        self._ended.append(request)

    def _abort_all(self, requests: List[Job]) -> None:
        for request in requests:
            if request.ended():
                continue
            if request.number:
                lib.um_router_abort(self._router, request.number, self._err)
            else:
                self._fail(request, ClosedError("the request was aborted"))

    def _on_event(self, arg, event) -> None:
        key = int(ffi.cast("uintptr_t", arg))
        request = self._requests[key]
        request.on_event(event)
        if event.type == lib.UM_EVENT_FINISH and event.result.finish == lib.UM_FINISH_SAMPLER:
            request.error = failures.take(event.id) or request.error
        if request.unfinished == 0:
            self._end(key)

    def _on_score(self, arg, result) -> None:
        key = int(ffi.cast("uintptr_t", arg))
        self._requests[key].on_event(result)
        self._end(key)

    def _end(self, key: int) -> None:
        self._ended.append(self._requests.pop(key))

    def _on_callback_error(self, kind, error, traceback) -> None:
        """An error of this package. The engine can't go on, because an event was lost."""
        self._failure = UnmaskError(f"a callback of the Python package failed: {kind.__name__}: {error}")


def _nothing() -> None:
    pass


def _open_model(config, on_load: Optional[Callable[[float], None]]) -> OpenModel:
    """Opens the model. Ctrl-C ends it between two tensors."""
    failure: List[BaseException] = []

    def progress(arg, p) -> bool:
        if on_load is not None:
            on_load(p.fraction)
        return True

    def failed(kind, error, traceback) -> bool:
        failure.append(error)
        return False

    callback = ffi.callback("um_load_fn", progress, error=False, onerror=failed)
    config.on_load = callback
    model, err = ffi.new("um_model **"), new_error()
    status = lib.um_model_open(model, config, err)
    config.on_load = ffi.NULL
    if failure:
        raise failure[0]
    check(status, err)
    return OpenModel(model[0])
