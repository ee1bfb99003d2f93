"""Chooses the replica of a request by the beginning of its prompt, so that equal beginnings meet in one prefix cache.

The router of the library (um_router with route_policy "prefix") sees which pages each of its engines has stored. A
router of Ray Serve is in another process than the engines. It chooses by a hash of the beginning instead: the same
beginning goes to the same replica, unless too many requests are there.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import Any, Iterable, List, Mapping, Optional, Sequence

import numpy as np

# The first page of the KV cache holds 32 tokens, unless blocks are longer. A token has about four characters.
PAGE_TOKENS = 32
PAGE_CHARACTERS = 128


def beginning(request: Mapping[str, Any]) -> Optional[str]:
    """Returns the part of a request's prompt that decides about its replica; None if the request has no prompt."""
    messages, prompt = request.get("messages"), request.get("prompt")
    if isinstance(messages, Sequence):
        return "".join(itertools.islice(_characters(messages), PAGE_CHARACTERS))
    if isinstance(prompt, str):
        return prompt[:PAGE_CHARACTERS]
    if isinstance(prompt, (Sequence, np.ndarray)):
        return " ".join(str(token) for token in prompt[:PAGE_TOKENS])
    return None


def ranked(key: str, replicas: Iterable[str]) -> List[str]:
    """Returns the replicas in the order in which requests with this key prefer them (rendezvous hashing).

    The order of two replicas does not depend on the others, so a replica that comes or goes moves only its own keys.
    """
    return sorted(replicas, key=lambda replica: hashlib.sha256(f"{replica} {key}".encode("utf-8", "replace")).digest())


def choose(key: Optional[str], queues: Mapping[str, int], excess: int) -> List[str]:
    """Returns all replicas, the best first.

    key:    beginning of the prompt, or None
    queues: {replica: its unfinished requests}
    excess: number by which the queue of the preferred replica may exceed the shortest one
    """
    shortest_first = sorted(queues, key=lambda replica: queues[replica])
    if key is None or not queues:
        return shortest_first
    favourite = ranked(key, queues)[0]
    if queues[favourite] > queues[shortest_first[0]] + excess:
        return shortest_first
    return [favourite, *(replica for replica in shortest_first if replica != favourite)]


def _characters(messages: Iterable[Any]) -> Iterable[str]:
    for message in messages:
        if isinstance(message, Mapping):
            yield from f"{message.get('role')}: {message.get('content')}\n"
