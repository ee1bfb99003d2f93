"""The parts of unmask.ray that need no Ray. tests/soak/ray has the others."""

import asyncio

import numpy as np
import pytest

import unmask
from conftest import ANSWER, QUESTION
from unmask.ray.prefix import PAGE_CHARACTERS, PAGE_TOKENS, beginning, choose, ranked
from unmask.ray.requests import Model, check_keys, check_options
from unmask.ray.requests import piece as piece_of

REPLICAS = ["a", "b", "c", "d"]


@pytest.fixture(scope="module")
def model():
    return Model("tiny-block", {"max_tokens": 64, "temperature": None}, {"max_num_reqs": 4})


def answers(model, requests):
    async def gather():
        return await asyncio.gather(*[model.answer(request) for request in requests])

    return asyncio.run(gather())


def test_each_request_has_one_answer_and_errors_are_answers(model):
    requests = [
        {"messages": QUESTION},
        {"prompt": [99999]},
        {"prompt": None, "other": 1},
        {"messages": QUESTION, "sampling_params": {"temperature": 9}},
        {"messages": QUESTION, "sampling_params": {"max_tokens": 2, "temperature": None}},
    ]
    got = answers(model, requests)
    assert [answer["error"] is None for answer in got] == [True, False, False, False, True]
    assert got[0]["text"] == ANSWER and got[0]["finish_reason"] == "stop" and got[0]["nfe"] > 0
    assert "99999" in got[1]["error"] and "expected the key" in got[2]["error"]
    assert got[3] == {**dict.fromkeys(got[0]), "error": "temperature: 9 is outside 0..2"}
    assert len(got[4]["token_ids"]) == 2 and got[4]["finish_reason"] == "length"


def test_fields_that_arrow_fills_with_none_are_not_given(model):
    filled = [{**message, "name": None, "tool_calls": None} for message in QUESTION]
    assert answers(model, [{"messages": filled, "prompt": None}])[0]["text"] == ANSWER


def test_a_request_does_not_change_the_shared_parameters(model):
    async def stream():
        kind = unmask.RequestOutputKind.DELTA
        return "".join([piece_of(output)["text"] async for output in model.stream({"messages": QUESTION}, kind)])

    assert asyncio.run(stream()) == ANSWER == answers(model, [{"messages": QUESTION}])[0]["text"]


def test_failures_of_the_engine_are_raised():
    closed = Model("tiny-block", None, {})
    closed.check_usable()
    closed._llm.close()
    with pytest.raises(unmask.ClosedError):
        answers(closed, [{"messages": QUESTION}])
    with pytest.raises(unmask.ClosedError):
        closed.check_usable()


def test_wrong_shared_parameters_are_an_error_at_once():
    with pytest.raises(unmask.InvalidValueError, match="temperature"):
        Model("tiny-block", {"temperature": 9}, {})


def test_unknown_parameters_are_refused_by_name():
    check_options({"threads": 8, "device": "cpu", "enable_prefix_caching": True, "trust_remote_code": True})
    with pytest.raises(unmask.InvalidValueError, match="max_replica"):
        check_options({"threads": 8, "max_replica": 4})
    with pytest.raises(unmask.InvalidValueError, match="threads"):
        check_options({"threads": "many"})
    with pytest.raises(unmask.UnsupportedError, match="pipeline_parallel_size"):
        check_options({"pipeline_parallel_size": 2})


def test_unknown_keys_of_a_request_are_named():
    check_keys({"prompt": "t", "stream": True}, ("prompt", "messages", "stream"))
    with pytest.raises(TypeError, match=r"unknown keys \['max_tokens', 'promt'\]; known are \['prompt', 'stream'\]"):
        check_keys({"promt": "t", "max_tokens": 3}, ("prompt", "stream"))


def test_the_beginning_is_the_first_page():
    text = "x" * PAGE_CHARACTERS
    assert beginning({"prompt": text + "a"}) == beginning({"prompt": text + "b"}) != beginning({"prompt": "y" + text})
    ids = list(range(PAGE_TOKENS))
    assert beginning({"prompt": ids + [1]}) == beginning({"prompt": ids + [2]}) != beginning({"prompt": ids[1:] + [1]})
    assert beginning({"prompt": np.arange(PAGE_TOKENS)}) == beginning({"prompt": ids})
    system = {"role": "system", "content": text}
    assert beginning({"messages": [system, *QUESTION]}) == beginning({"messages": [system]})
    assert beginning({"messages": QUESTION}) != beginning({"messages": [{**QUESTION[0], "role": "system"}]})
    assert beginning({}) is None and beginning({"messages": 3}) is None and beginning({"messages": ["a"]}) == ""


def test_a_replica_that_goes_moves_only_its_own_keys():
    keys = [f"key {i}" for i in range(400)]
    first = {key: ranked(key, REPLICAS)[0] for key in keys}
    assert all(60 < list(first.values()).count(replica) < 140 for replica in REPLICAS)
    for key in keys:
        without = ranked(key, ["a", "b", "c"])[0]
        assert without == first[key] or first[key] == "d"


def test_a_long_queue_outweighs_the_beginning():
    favourite = ranked("key", REPLICAS)[0]
    others = [replica for replica in REPLICAS if replica != favourite]
    queues = {favourite: 8, others[0]: 2, others[1]: 0, others[2]: 1}
    assert choose("key", queues, 8) == [favourite, others[1], others[2], others[0]]
    assert choose("key", queues, 7) == [others[1], others[2], others[0], favourite]
    assert choose(None, queues, 8)[0] == others[1]
    assert choose("key", {}, 8) == []
