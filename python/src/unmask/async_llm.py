"""AsyncLLM: a model whose answers are read in an event loop while they are written."""

from __future__ import annotations

import asyncio
import collections
import copy
import itertools
import pathlib
import weakref
from typing import Any, AsyncIterator, Callable, Dict, List, Mapping, Optional, Sequence, Set, Union

from . import _engine
from ._library import ffi, lib, octets
from .outputs import CompletionOutput, RequestOutput
from .params import RequestOutputKind, SamplingParams
from .prompts import Prompt, RequestMaker, engine_options, find_model, read_prompt
from .tokenizer import Messages, Tokenizer

__all__ = ["AsyncLLM"]


class AsyncLLM:
    """A model on one or more engines for asyncio. The parameters are those of LLM."""

    def __init__(
        self, model: Union[str, pathlib.Path], *, on_load: Optional[Callable[[float], None]] = None, **options: Any
    ):
        self._engine = _engine.Engine({"model": find_model(model), **engine_options(options)}, on_load)
        self._finalizer = weakref.finalize(self, self._engine.close)
        self._names = itertools.count()
        self._courier = _Courier()
        self._engine.flush = self._courier.flush

    def generate(
        self,
        prompt: Prompt,
        sampling_params: Optional[SamplingParams] = None,
        request_id: Optional[str] = None,
        *,
        snapshots: bool = False,
    ) -> AsyncIterator[RequestOutput]:
        """Answers a prompt. Yields an output when text has settled; sampling_params.output_kind says with which text.

        snapshots: also yield an output after each pass, with the blocks in flight in outputs[i].snapshot

        The request is aborted when the iterator is closed or its task is cancelled.
        """
        self._engine.check_usable()
        shown, ids = read_prompt(self._engine.tokenizer, prompt)
        return self._stream(shown, ids, sampling_params, request_id, snapshots)

    def chat(
        self,
        messages: Messages,
        sampling_params: Optional[SamplingParams] = None,
        request_id: Optional[str] = None,
        *,
        snapshots: bool = False,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        chat_template: Optional[str] = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Optional[Mapping[str, Any]] = None,
    ) -> AsyncIterator[RequestOutput]:
        """Answers a conversation as generate does. The parameters are those of LLM.chat."""
        self._engine.check_usable()
        shown, ids = self._engine.tokenizer.render(
            messages, tools, chat_template, add_generation_prompt, continue_final_message, chat_template_kwargs
        )
        return self._stream(shown, ids, sampling_params, request_id, snapshots)

    def get_tokenizer(self) -> Tokenizer:
        """Returns the tokenizer. After close() its methods raise ClosedError."""
        self._engine.check_usable()
        return self._engine.tokenizer

    def close(self) -> None:
        """Aborts all requests and frees model and engines. A second call does nothing."""
        self._finalizer()

    shutdown = close

    def __enter__(self) -> AsyncLLM:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    async def _stream(self, shown, ids, params, name, snapshots) -> AsyncIterator[RequestOutput]:
        params = params or SamplingParams()
        kind = params.output_kind
        events = 0 if kind == RequestOutputKind.FINAL_ONLY else _engine.EVENTS["text"]
        make = RequestMaker(self._engine, events | (_engine.EVENTS["snapshots"] if snapshots else 0))
        stream = make(
            _Stream, name or str(next(self._names)), shown, ids, params, asyncio.get_running_loop(), self._courier, kind
        )
        self._engine.submit([stream])
        try:
            while True:
                output = await stream.next()
                yield output
                if output.finished:
                    return
        finally:
            if not stream.ended():
                self._engine.abort([stream])


class _Stream(_engine.Request):
    """A request of AsyncLLM. The engine thread appends to `news`; the event loop takes from it."""

    def __init__(
        self, engine, c, keep, output, loop: asyncio.AbstractEventLoop, courier: _Courier, kind: RequestOutputKind
    ):
        super().__init__(engine, c, keep, output, 0, None)
        self.loop, self.kind = loop, kind
        self._courier = courier
        self.news: collections.deque = collections.deque()
        self._waiter: Optional[asyncio.Future] = None
        # The event loop's view of the answers. The engine thread never touches it.
        self._seen = [CompletionOutput(i, engine.tokenizer) for i in range(c.n)]
        self._unfinished = c.n

    # ---- Engine thread -----------------------------------------------------------------------------------------------

    def on_event(self, event) -> None:
        if event.type == lib.UM_EVENT_TEXT:
            news = (event.index, octets(event.text, event.text_len), _text_arrays(event), event.nfe)
            self._tell(news)
            return
        super().on_event(event)
        answer = self.output.outputs[event.index]
        if event.type == lib.UM_EVENT_SNAPSHOT:
            self._tell((event.index, answer.snapshots.pop(), None, 0))
        elif self.unfinished:
            self._tell((event.index, answer, None, 0))
        else:  # the last answer ends the request: on_end tells it
            self.last = answer

    def on_end(self) -> None:
        self._tell((0, self.error, None, 0) if self.error else (self.last.index, self.last, None, 0))

    def _tell(self, news) -> None:
        self.news.append(news)
        self._courier.remember(self)

    # ---- Event loop --------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Lets next() continue."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self) -> RequestOutput:
        """Waits for news, and returns an output with all of it."""
        while not self.news:
            self._waiter = self.loop.create_future()
            await self._waiter
        touched: Set[int] = set()
        while self.news:
            index, news, arrays, nfe = self.news.popleft()
            if isinstance(news, Exception):
                raise news
            touched.add(index)
            if isinstance(news, CompletionOutput):
                self._finish(index, news)
            elif isinstance(news, bytes):
                _append(self._seen[index], news, arrays, nfe)
            else:
                self._seen[index].snapshot = news
        return self._output(touched)

    def _finish(self, index: int, answer: CompletionOutput) -> None:
        seen = self._seen[index]
        answer.snapshot = seen.snapshot
        if self.kind == RequestOutputKind.DELTA:
            rest = copy.copy(answer)
            rest.text, rest._ids, rest._steps, rest._ends = seen.text, seen._ids, seen._steps, seen._ends
            rest._logprobs, rest._likeliest = seen._logprobs, seen._likeliest
            rest._text_start = seen._text_start
            answer = rest
        self._seen[index] = answer
        self._unfinished -= 1

    def _output(self, touched: Set[int]) -> RequestOutput:
        output = RequestOutput(self.output.request_id, self.output.prompt, self.output.prompt_array)
        output.num_cached_tokens = self.output.num_cached_tokens
        output.finished = self._unfinished == 0
        delta = self.kind == RequestOutputKind.DELTA
        output.outputs = [copy.copy(seen) for seen in self._seen if not delta or seen.index in touched]
        if delta:
            for index in touched:
                _clear(self._seen[index])
        return output


def _text_arrays(event):
    """Copies the arrays of a TEXT event: ids, text ends, log-probabilities, likeliest ids."""
    size = 4 * event.n_ids
    if event.logprob == ffi.NULL:
        return octets(event.ids, size), octets(event.text_end, size), b"", b""
    likeliest = octets(event.likeliest, 2 * size * event.n_likeliest)
    return octets(event.ids, size), octets(event.text_end, size), octets(event.logprob, size), likeliest


def _append(answer: CompletionOutput, new_text: bytes, arrays, nfe: int) -> None:
    """Adds settled text, which ends between characters. The passes of its tokens come with the result."""
    answer.text += new_text.decode("utf-8", "replace")
    answer._ids += arrays[0]
    answer._ends += arrays[1]
    answer._logprobs += arrays[2]
    answer._likeliest += arrays[3]
    answer.nfe = nfe


def _clear(answer: CompletionOutput) -> None:
    """Removes the text and the tokens that an output of the kind DELTA has shown."""
    answer._text_start += len(answer.text.encode())
    answer.text = ""
    answer._ids = answer._ends = answer._steps = answer._logprobs = answer._likeliest = b""


class _Courier:
    """Wakes streams after a step: one call for each event loop, not one for each event."""

    def __init__(self) -> None:
        self._told: Dict[asyncio.AbstractEventLoop, List[_Stream]] = {}

    def remember(self, stream: _Stream) -> None:
        """The stream has news."""
        self._told.setdefault(stream.loop, []).append(stream)

    def flush(self) -> None:
        """Wakes the streams that have news."""
        for loop, streams in self._told.items():
            try:
                loop.call_soon_threadsafe(_wake, streams)
            except RuntimeError:  # the loop is closed, so nobody reads
                pass
        self._told = {}


def _wake(streams: List[_Stream]) -> None:
    for stream in streams:
        stream.wake()
