"""LLM: a model that answers lists of prompts."""

from __future__ import annotations

import itertools
import pathlib
import queue
import weakref
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union, cast

import numpy as np

from . import _engine
from ._library import check, ffi, lib, new_error, optional_text, text
from .errors import InvalidValueError
from .outputs import RequestOutput, ScoreOutput
from .params import SamplingParams
from .prompts import (
    Prompt,
    RequestMaker,
    ScoreMaker,
    as_list,
    engine_options,
    event_bits,
    find_model,
    named,
    params_of_each,
    read_prompt,
)
from .tokenizer import Messages, Tokenizer

__all__ = ["LLM"]


class LLM:
    """A model on one or more engines. Several threads may use it at the same time.

    model:    folder of a checkpoint, GGUF file, name of a bundled model ("tiny-block", "tiny-full"), or name of a
              model in the local Hugging Face cache ("org/name")
    on_load:  called with the share of the weights that have been read, 0..1
    options:  any option of the groups Model, Engine, Decoding, Sampling and Limits (`unmask list options`):
              device="cuda", quantization="q8", threads=8, max_num_reqs=64, accept_threshold=0.9 ... The last three
              groups are defaults of requests.

    Errors: NotFoundError, ModelError, UnsupportedError, InvalidValueError, OutOfMemoryError, DeviceError.
    """

    def __init__(
        self, model: Union[str, pathlib.Path], *, on_load: Optional[Callable[[float], None]] = None, **options: Any
    ):
        self._engine = _engine.Engine({"model": find_model(model), **engine_options(options)}, on_load)
        self._finalizer = weakref.finalize(self, self._engine.close)
        self._names = itertools.count()

    def generate(
        self,
        prompts: Union[Prompt, Sequence[Prompt]],
        sampling_params: Union[None, SamplingParams, Sequence[SamplingParams]] = None,
        *,
        use_tqdm: bool = True,
        record: Iterable[str] = (),
    ) -> List[RequestOutput]:
        """Answers prompts, many at once, and returns their outputs in the same order.

        prompts:         text, ids (a list or an int32 array), {"prompt": text}, {"prompt_token_ids": ids}, or a list
        sampling_params: for all prompts, or one for each
        use_tqdm:        show progress, if tqdm is installed
        record:          "snapshots" and "traces": what the answers keep of each pass

        Ctrl-C aborts the requests of this call. The LLM stays usable.
        """
        self._engine.check_usable()
        prompts = as_list(prompts)
        params = params_of_each(sampling_params, len(prompts))
        return self._run([self._read_prompt(i, prompt) for i, prompt in enumerate(prompts)], params, use_tqdm, record)

    def chat(
        self,
        messages: Union[Messages, Sequence[Messages]],
        sampling_params: Union[None, SamplingParams, Sequence[SamplingParams]] = None,
        *,
        use_tqdm: bool = True,
        record: Iterable[str] = (),
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        chat_template: Optional[str] = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Optional[Mapping[str, Any]] = None,
    ) -> List[RequestOutput]:
        """Answers a conversation, a list of {"role", "content"}, or a list of conversations, as generate does.

        The chat template is the model's own, or chat_template: the source of a template, or a name.
        """
        self._engine.check_usable()
        is_one = len(messages) == 0 or isinstance(messages[0], Mapping)
        conversations = cast(Sequence[Messages], [messages] if is_one else messages)
        params = params_of_each(sampling_params, len(conversations))
        prompts = []
        for i, conversation in enumerate(conversations):
            with named("" if is_one else f"messages[{i}]: "):
                prompts.append(
                    self._engine.tokenizer.render(
                        conversation,
                        tools,
                        chat_template,
                        add_generation_prompt,
                        continue_final_message,
                        chat_template_kwargs,
                    )
                )
        return self._run(prompts, params, use_tqdm, record)

    def score(
        self,
        prompts: Union[Prompt, Sequence[Prompt]],
        answers: Union[Prompt, Sequence[Prompt]],
        *,
        use_tqdm: bool = True,
        adapter: Optional[str] = None,
        **options: Any,
    ) -> List[ScoreOutput]:
        """Estimates how likely the model is to give these answers (docs/scoring.md). They run many at once.

        prompts: as in generate
        answers: one for each prompt, as text or ids; one prompt for all answers is allowed
        options: parameters of `unmask score`: method="monte_carlo", samples=128, batch=0, check_greedy=True ...
        """
        self._engine.check_usable()
        answers, prompts = as_list(answers, "answers"), as_list(prompts)
        if len(prompts) == 1:
            prompts = prompts * len(answers)
        if len(prompts) != len(answers):
            raise InvalidValueError(f"answers: expected {len(prompts)}, one for each prompt; got {len(answers)}")
        ended: queue.SimpleQueue[_engine.Job] = queue.SimpleQueue()
        make = ScoreMaker(self._engine, adapter, options, ended.put)
        scores = [make(i, *pair) for i, pair in enumerate(zip(prompts, answers))]
        return self._collect(scores, ended, use_tqdm)

    def get_tokenizer(self) -> Tokenizer:
        """Returns the tokenizer. After close() its methods raise ClosedError."""
        self._engine.check_usable()
        return self._engine.tokenizer

    def model_info(self) -> Dict[str, Any]:
        """Returns the properties of the checkpoint: the fields of um_model_info."""
        self._engine.check_usable()
        model, info = self._engine.model.get(), ffi.new("um_model_info *")
        lib.um_model_get_info(model, info)
        fields = scalar_fields(info)
        fields["stop"] = list(ffi.unpack(info.stop, info.n_stop)) if info.n_stop else []
        fields["examples"] = [text(info.example[i]) for i in range(info.n_examples)]
        return fields

    def engine_info(self) -> Dict[str, Any]:
        """Returns the values that the engines use, with the automatic ones resolved: the fields of um_engine_info."""

        def read(router):
            info = ffi.new("um_engine_info *")
            lib.um_engine_get_info(lib.um_router_engine(router, 0), info)
            return scalar_fields(info)

        return self._engine.call(read)

    def stats(self) -> Dict[str, Any]:
        """Returns counts and times of all engines since their creation: the fields of um_stats."""

        def read(router):
            stats = ffi.new("um_stats *")
            lib.um_router_get_stats(router, stats)
            return scalar_fields(stats)

        return self._engine.call(read)

    def reset_prefix_cache(self) -> None:
        """Empties the prefix cache. InvalidValueError while requests run."""

        def reset(router):
            err = new_error()
            check(lib.um_router_flush_cache(router, err), err)

        self._engine.call(reset)

    def close(self) -> None:
        """Aborts all requests and frees model and engines. A second call does nothing."""
        self._finalizer()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # ---- Inside ------------------------------------------------------------------------------------------------------

    def _read_prompt(self, i: int, prompt: Prompt) -> Tuple[Optional[str], np.ndarray]:
        with named(f"prompts[{i}]: "):
            return read_prompt(self._engine.tokenizer, prompt)

    def _run(self, prompts, params, use_tqdm: bool, record: Iterable[str]) -> List[RequestOutput]:
        ended: queue.SimpleQueue[_engine.Job] = queue.SimpleQueue()
        make = RequestMaker(self._engine, event_bits(record))
        requests = [
            make(_engine.Request, str(next(self._names)), prompt, ids, p, i, ended.put)
            for i, ((prompt, ids), p) in enumerate(zip(prompts, params))
        ]
        return self._collect(requests, ended, use_tqdm)

    def _collect(self, requests, ended, use_tqdm: bool) -> List[Any]:
        """Runs requests and returns their outputs."""
        self._engine.check_may_wait()
        try:
            self._engine.submit(requests)
            with progress_bar(len(requests), use_tqdm) as bar:
                for _ in requests:
                    request = ended.get()
                    if request.error:
                        raise (
                            request.error.with_prefix(f"prompts[{request.index}]: ")
                            if len(requests) > 1
                            else request.error
                        )
                    bar.update(1)
        except BaseException:
            self._engine.abort(requests)
            raise
        return [request.output for request in requests]


class _NoBar:
    def __enter__(self) -> _NoBar:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def update(self, n: int) -> None:
        pass


def progress_bar(n: int, wanted: bool) -> Any:
    """Returns a bar of tqdm, or one that draws nothing."""
    if wanted:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return _NoBar()
        return tqdm(total=n, desc="Processed prompts", dynamic_ncols=True)
    return _NoBar()


def scalar_fields(struct) -> Dict[str, Any]:
    """Returns the numbers and strings of a struct."""
    fields: Dict[str, Any] = {}
    for name, field in ffi.typeof(struct).item.fields:
        value = getattr(struct, name)
        if field.type.kind == "primitive":
            fields[name] = value
        elif field.type.cname == "char *":
            fields[name] = optional_text(value)
        elif field.type.kind == "array" and field.type.item.cname == "char":
            fields[name] = text(value)
    return fields
