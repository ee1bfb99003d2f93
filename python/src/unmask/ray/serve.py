"""An application of Ray Serve: HTTP in front of replicas with an engine each.

serve run unmask.ray.serve:app model=tiny-block max_replicas=4

POST / takes {"prompt" or "messages", "sampling_params": {...}, "stream": false} and returns {"text", "token_ids",
"finish_reason", "nfe", "error"}. With "stream": true it returns lines of JSON. Each line has the new text and ids; the
last one has finish_reason. An error of the request has the status 400; one that occurs within a stream ends it with a
line {"error"}. A request whose replica dies is repeated on another one, unless a part of its stream has been sent.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional

from ray import exceptions, serve
from ray.serve.config import RequestRouterConfig
from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica
from starlette import requests as http
from starlette.responses import JSONResponse, Response, StreamingResponse

from ..params import RequestOutputKind
from . import prefix
from .requests import FATAL, Answer, Model, check_keys, check_options, piece

__all__ = ["app", "engine", "Engine", "Ingress", "PrefixRouter"]

# A request whose replica died is repeated this often, after this time, which doubles. Serve notices a death meanwhile.
RETRIES = 5
RETRY_SECONDS = 0.1
# Keys of a request.
KEYS = ("prompt", "messages", "sampling_params", "stream")
# Parameters of app for Ray Serve, with their defaults. All others are parameters of LLM.
SERVE_PARAMETERS: Dict[str, Any] = {
    "min_replicas": 1,
    "max_replicas": 1,
    "target_ongoing_requests": 32,
    "max_ongoing_requests": 64,
    "excess": 8,
    "num_cpus": 1.0,
    "num_gpus": 0.0,
}


class PrefixRouter(RequestRouter):
    """Sends requests with the same beginning to the same replica (prefix.choose)."""

    def initialize_state(self, excess: int = SERVE_PARAMETERS["excess"]) -> None:
        """excess: number of requests by which the queue of the preferred replica may exceed the shortest one."""
        self._excess = excess

    async def choose_replicas(
        self, candidate_replicas: List[RunningReplica], pending_request: Optional[PendingRequest] = None
    ) -> List[List[RunningReplica]]:
        """Returns the replicas in the order in which Serve shall ask whether they accept the request."""
        replicas = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        queues = {name: self.replica_queue_len_cache.get(r.replica_id) or 0 for name, r in replicas.items()}
        key = None
        if pending_request is not None:
            # Serve asks again and again while all replicas are full. This lets it wait in between.
            pending_request.routing_context.should_backoff = True
            if pending_request.args and isinstance(pending_request.args[0], Mapping):
                key = prefix.beginning(pending_request.args[0])
        return [[replicas[name]] for name in prefix.choose(key, queues, self._excess)]


@serve.deployment(name="engine")
class Engine:
    """A replica with one engine."""

    def __init__(self, model: str, options: Mapping[str, Any]):
        self._model = Model(model, None, options)

    async def generate(self, request: Mapping[str, Any]) -> AsyncIterator[Answer]:
        """Yields what is new, then ends. An error of the request is yielded as {"error": sentence}."""
        try:
            async for output in self._model.stream(request, RequestOutputKind.DELTA):
                yield piece(output)
        except FATAL:
            raise
        except Exception as error:
            yield {"error": str(error)}

    def check_health(self) -> None:
        """Serve replaces a replica whose engine has failed."""
        self._model.check_usable()


# It only passes on text, so it must not limit how many requests the engines may have in flight.
@serve.deployment(name="ingress", max_ongoing_requests=10_000)
class Ingress:
    """Answers HTTP requests with the engines."""

    def __init__(self, engine: Any):
        self._engine = engine.options(stream=True)

    async def __call__(self, request: http.Request) -> Response:
        """Answers POST /."""
        try:
            body = await request.json()
        except ValueError as error:
            return JSONResponse({"error": f"the body is not JSON: {error}"}, 400)
        if not isinstance(body, dict):
            return JSONResponse({"error": "expected a JSON object"}, 400)
        try:
            check_keys(body, KEYS)
        except TypeError as error:
            return JSONResponse({"error": str(error)}, 400)
        pieces = self._pieces(body) if body.get("stream") else self._whole(body)
        try:
            first = await pieces.__anext__()
        except exceptions.RayActorError as error:
            return JSONResponse({"error": f"the replica of the request died: {error}"}, 503)
        if first.get("error") is not None:
            return JSONResponse(first, 400)
        if body.get("stream"):
            return StreamingResponse(_lines(first, pieces), media_type="application/x-ndjson")
        return JSONResponse(first)

    async def _pieces(self, request: Mapping[str, Any]) -> AsyncIterator[Answer]:
        """Yields the pieces of an answer. Another replica repeats a request whose replica died before the first one."""
        for attempt in range(RETRIES + 1):
            begun = False
            try:
                async for piece_of_answer in self._engine.generate.remote(request):
                    begun = True
                    yield piece_of_answer
                return
            except exceptions.RayActorError:
                if begun or attempt == RETRIES:
                    raise
            await asyncio.sleep(RETRY_SECONDS * 2**attempt)

    async def _whole(self, request: Mapping[str, Any]) -> AsyncIterator[Answer]:
        """Yields the whole answer. Another replica repeats a request whose replica died at any time."""
        for attempt in range(RETRIES + 1):
            try:
                yield await _joined(self._engine.generate.remote(request))
                return
            except exceptions.RayActorError:
                if attempt == RETRIES:
                    raise
            await asyncio.sleep(RETRY_SECONDS * 2**attempt)


async def _lines(first: Answer, rest: AsyncIterator[Answer]) -> AsyncIterator[str]:
    yield json.dumps(first) + "\n"
    try:
        async for part in rest:
            yield json.dumps(part) + "\n"
    except exceptions.RayActorError as error:
        yield json.dumps({"error": f"the replica of the request died: {error}"}) + "\n"


async def _joined(pieces: AsyncIterator[Answer]) -> Answer:
    """Returns the whole answer, or the error of the request."""
    whole: Answer = {"text": "", "token_ids": [], "error": None}
    async for part in pieces:
        if part.get("error") is not None:
            return part
        whole["text"] += part["text"]
        whole["token_ids"] += part["token_ids"]
        whole["finish_reason"], whole["nfe"] = part["finish_reason"], part["nfe"]
    return whole


def app(args: Mapping[str, Any]) -> serve.Application:
    """Returns the application: one ingress in front of the engines. The parameters are those of engine()."""
    ingress: Any = Ingress  # the decorator has made it a deployment
    return ingress.options(ray_actor_options={"num_cpus": 0}).bind(engine(args))


def engine(args: Mapping[str, Any]) -> serve.Application:
    """Returns the engines, for an ingress. `serve run` and the configuration file of Serve give the parameters.

    model:                    as in LLM
    min_replicas, max_replicas, target_ongoing_requests: how many engines run. Serve starts one when more than
                              target_ongoing_requests wait or run for each
    max_ongoing_requests:     requests that an engine gets at a time; the others wait at the ingress
    excess:                   number by which the queue of a prompt's preferred replica may exceed the shortest one
    num_cpus, num_gpus:       what a replica reserves on its node
    All others are parameters of LLM. One that nobody knows, or a wrong value, is an error here, not in the replicas.
    """
    options = dict(args)
    own = {name: type(default)(options.pop(name, default)) for name, default in SERVE_PARAMETERS.items()}
    if "model" not in options:
        raise TypeError(f"expected the parameter model; got {sorted(args)}")
    model = options.pop("model")
    check_options(options)
    replica: Any = Engine  # the decorator has made it a deployment
    deployment = replica.options(
        ray_actor_options={"num_cpus": own["num_cpus"], "num_gpus": own["num_gpus"]},
        max_ongoing_requests=own["max_ongoing_requests"],
        autoscaling_config={
            "min_replicas": own["min_replicas"],
            "max_replicas": own["max_replicas"],
            "target_ongoing_requests": own["target_ongoing_requests"],
        },
        request_router_config=RequestRouterConfig(
            request_router_class=PrefixRouter, request_router_kwargs={"excess": own["excess"]}
        ),
    )
    return deployment.bind(model, options)
