"""Requests as plain dicts, and the answers to them. Ray carries both between processes."""

from __future__ import annotations

import copy
import pathlib
from typing import Any, AsyncIterator, Dict, Iterable, Mapping, Optional, Union

from .. import _engine
from ..async_llm import AsyncLLM
from ..errors import ClosedError, DeviceError
from ..outputs import RequestOutput
from ..params import RequestOutputKind, SamplingParams
from ..prompts import engine_options

Request = Mapping[str, Any]
Answer = Dict[str, Any]

# Errors of the engine. All others are errors of a request.
FATAL = (ClosedError, DeviceError)


class Model:
    """An AsyncLLM that answers requests of the form {"messages" or "prompt", "sampling_params"}."""

    def __init__(
        self, model: Union[str, pathlib.Path], params: Optional[Mapping[str, Any]], options: Mapping[str, Any]
    ):
        self._params = _given(params)
        # An error of the parameters that all requests share comes at once.
        self._shared = SamplingParams(**self._params)
        self._llm = AsyncLLM(model, **options)

    def check_usable(self) -> None:
        """Raises an error if the engine has failed."""
        self._llm.get_tokenizer()

    def stream(self, request: Request, kind: RequestOutputKind) -> AsyncIterator[RequestOutput]:
        """Returns the outputs of a request while they are written. Errors are raised at once or by the iterator."""
        params = self._params_of(request.get("sampling_params"), kind)
        if request.get("messages") is not None:
            messages = [_given(message) for message in request["messages"]]
            return self._llm.chat(messages, params)
        if request.get("prompt") is None:
            raise TypeError(f'expected the key "messages" or "prompt"; got {sorted(request)}')
        return self._llm.generate(request["prompt"], params)

    async def answer(self, request: Request) -> Answer:
        """Returns the answer to a request. An error of the request is in `error`."""
        try:
            output = [output async for output in self.stream(request, RequestOutputKind.FINAL_ONLY)][-1]
        except FATAL:
            raise
        except Exception as error:
            return {"text": None, "token_ids": None, "finish_reason": None, "nfe": None, "error": str(error)}
        return {**piece(output), "error": None}

    def _params_of(self, own: Optional[Mapping[str, Any]], kind: RequestOutputKind) -> SamplingParams:
        params = SamplingParams(**{**self._params, **_given(own)}) if own else copy.copy(self._shared)
        params.output_kind = kind
        return params


def check_options(options: Mapping[str, Any]) -> None:
    """Raises the error that AsyncLLM would raise for the names and values of its parameters. Opens no model."""
    _engine.config_of(engine_options(options))


def check_keys(request: Request, known: Iterable[str]) -> None:
    """Raises an error that names the keys of a request which are not known."""
    known = tuple(known)
    unknown = sorted(set(request) - set(known))
    if unknown:
        raise TypeError(f"unknown keys {unknown}; known are {list(known)}")


def piece(output: RequestOutput) -> Answer:
    """Returns what Ray carries of an output: its first answer."""
    answer = output.outputs[0]
    return {
        "text": answer.text,
        "token_ids": answer.token_ids,
        "finish_reason": answer.finish_reason,
        "nfe": answer.nfe,
    }


def _given(values: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    """Removes None. Arrow fills the fields that a row does not have with it."""
    return {name: value for name, value in (values or {}).items() if value is not None}
