"""AsyncLLM: streams in an event loop."""

import asyncio

import pytest

import unmask
from conftest import ANSWER, QUESTION, STORY
from unmask import AsyncLLM, RequestOutputKind, SamplingParams


@pytest.fixture(scope="module")
def async_llm():
    with AsyncLLM("tiny-block", max_num_reqs=8) as shared:
        yield shared


async def collect(stream):
    return [output async for output in stream]


def test_cumulative_outputs_grow_to_the_answer(async_llm):
    outputs = asyncio.run(collect(async_llm.chat(STORY, SamplingParams(max_tokens=160, ignore_eos=True))))
    texts = [output.outputs[0].text for output in outputs]
    assert len(texts) > 2
    assert all(b.startswith(a) and len(b) >= len(a) for a, b in zip(texts, texts[1:]))
    assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
    last = outputs[-1].outputs[0]
    assert len(last.token_ids) == 160 == len(last.step_map) and last.finish_reason == "length"
    assert all(output.outputs[0].finish_reason is None for output in outputs[:-1])


def test_kinds_of_outputs_tell_the_same(async_llm):
    def params(kind):
        return SamplingParams(max_tokens=160, ignore_eos=True, logprobs=1, output_kind=kind)

    (final,) = asyncio.run(collect(async_llm.chat(STORY, params(RequestOutputKind.FINAL_ONLY))))
    parts = asyncio.run(collect(async_llm.chat(STORY, params(RequestOutputKind.DELTA))))
    answers = [part.outputs[0] for part in parts]
    assert len(parts) > 2
    assert "".join(answer.text for answer in answers) == final.outputs[0].text
    assert sum((answer.token_ids for answer in answers), []) == final.outputs[0].token_ids
    assert sum((answer.logprobs or [] for answer in answers), []) == final.outputs[0].logprobs
    assert answers[-1].metrics is not None and answers[-1].finish_reason == "length"


def test_snapshots_come_after_each_pass(async_llm):
    outputs = asyncio.run(collect(async_llm.chat(STORY, SamplingParams(max_tokens=96), snapshots=True)))
    shown = [output.outputs[0].snapshot.nfe for output in outputs]
    assert shown == sorted(shown) and shown[-1] == outputs[-1].outputs[0].nfe
    final = outputs[-1].outputs[0]
    assert final.snapshot.token_ids[: len(final.token_ids)].tolist() == final.token_ids


def test_several_answers_stream_side_by_side(async_llm):
    params = SamplingParams(n=3, max_tokens=64, ignore_eos=True, temperature=1, seed=3)
    outputs = asyncio.run(collect(async_llm.chat(STORY, params, "mine")))
    assert outputs[-1].request_id == "mine" and outputs[-1].finished
    assert [len(answer.token_ids) for answer in outputs[-1].outputs] == [64] * 3
    assert [output.finished for output in outputs].count(True) == 1


def test_many_streams_share_a_loop(async_llm):
    async def many():
        return await asyncio.gather(*[collect(async_llm.chat(QUESTION)) for _ in range(50)])

    assert all(outputs[-1].outputs[0].text == ANSWER for outputs in asyncio.run(many()))


def test_cancellation_aborts_the_request(async_llm):
    async def cancel():
        long = SamplingParams(max_tokens=900, ignore_eos=True)
        task = asyncio.create_task(collect(async_llm.chat(STORY, long)))
        while async_llm._engine.call(lambda router: unmask._engine.lib.um_router_pending(router)) == 0:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stream = async_llm.chat(STORY, long)
        await stream.__anext__()
        await stream.aclose()
        # The engine thread runs the abort before this call.
        return async_llm._engine.call(lambda router: unmask._engine.lib.um_router_pending(router))

    assert asyncio.run(cancel()) == 0


def test_errors_come_to_the_reader(async_llm):
    with pytest.raises(unmask.InvalidValueError, match="5000"):
        asyncio.run(collect(async_llm.generate([5000])))
    with pytest.raises(TypeError, match="expected text"):
        async_llm.generate(3.5)
    assert asyncio.run(collect(async_llm.chat(QUESTION)))[-1].outputs[0].text == ANSWER


def test_closing_ends_streams():
    async def close_in_the_middle():
        other = AsyncLLM("tiny-block")
        stream = other.chat(STORY, SamplingParams(max_tokens=900, ignore_eos=True))
        await stream.__anext__()
        await asyncio.get_running_loop().run_in_executor(None, other.close)
        with pytest.raises(unmask.ClosedError):
            while True:
                await stream.__anext__()

    asyncio.run(close_in_the_middle())
