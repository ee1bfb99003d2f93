"""AsyncLLM: streams in an event loop."""

import asyncio
import threading

import numpy as np
import pytest

import unmask
from conftest import ANSWER, QUESTION, STORY
from unmask import AsyncLLM, RequestOutputKind, SamplingParams


gate = threading.Event()


@unmask.sampler
def gated(batch):
    """Accepts everything. Waits at the gate before it decides about positions behind the first 96."""
    if batch.position.max() >= 96:
        assert gate.wait(30)
    return np.ones(batch.n, bool)


@pytest.fixture(scope="module")
def async_llm():
    with AsyncLLM("tiny-block", max_num_reqs=8) as shared:
        yield shared


async def collect(stream):
    return [output async for output in stream]


GATED = dict(sampler="gated", max_tokens=160, ignore_eos=True, logprobs=1)


def read_at_once(llm, **options):
    """Returns the only output of a request that yields none before its end."""
    gate.set()
    params = SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY, **GATED, **options)
    (output,) = asyncio.run(collect(llm.chat(STORY, params)))
    return output


def read_through_the_gate(llm, kind, **options):
    """Returns the outputs of a request that ends after the first one has been read."""

    async def read():
        gate.clear()
        stream = llm.chat(STORY, SamplingParams(output_kind=kind, **GATED, **options))
        outputs = [await stream.__anext__()]
        gate.set()
        return outputs + await collect(stream)

    return asyncio.run(read())


def test_cumulative_outputs_grow_to_the_answer(async_llm):
    outputs = read_through_the_gate(async_llm, RequestOutputKind.CUMULATIVE)
    texts = [output.outputs[0].text for output in outputs]
    assert len(texts) > 1 and texts[0]
    assert all(b.startswith(a) for a, b in zip(texts, texts[1:]))
    assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
    last = outputs[-1].outputs[0]
    assert len(last.token_ids) == 160 == len(last.step_map) and last.finish_reason == "length"
    assert all(output.outputs[0].finish_reason is None for output in outputs[:-1])


def test_kinds_of_outputs_tell_the_same(async_llm):
    final = read_at_once(async_llm)
    parts = read_through_the_gate(async_llm, RequestOutputKind.DELTA)
    answers = [part.outputs[0] for part in parts]
    assert len(parts) > 1
    assert "".join(answer.text for answer in answers) == final.outputs[0].text
    assert sum((answer.token_ids for answer in answers), []) == final.outputs[0].token_ids
    assert sum((answer.logprobs or [] for answer in answers), []) == final.outputs[0].logprobs
    assert answers[-1].metrics is not None and answers[-1].finish_reason == "length"


@pytest.mark.parametrize("kind", [RequestOutputKind.CUMULATIVE, RequestOutputKind.DELTA])
def test_pieces_of_outputs_join_to_their_texts(async_llm, kind):
    # The ids of "é €" are bytes, so tokens end within characters.
    bytes_of = async_llm.get_tokenizer().encode("é €", add_special_tokens=False)
    options = dict(n=3, temperature=2, seed=1, logit_bias={id: 20 for id in bytes_of})
    outputs = read_through_the_gate(async_llm, kind, **options)
    for whole in read_at_once(async_llm, **options).outputs:
        parts = [answer for output in outputs for answer in output.outputs if answer.index == whole.index]
        for answer in [whole, *parts]:
            assert "".join(answer.pieces()) == answer.text and len(answer.pieces()) == len(answer.token_ids)
        told = parts if kind == RequestOutputKind.DELTA else parts[-1:]
        assert len(parts) > 1 and sum((answer.pieces() for answer in told), []) == whole.pieces()
        assert not whole.text.isascii()


def test_a_notebook_shows_outputs_that_have_not_ended(async_llm):
    outputs = read_through_the_gate(async_llm, RequestOutputKind.CUMULATIVE)
    shown = [output._repr_html_() for output in outputs]
    assert "<style>" not in shown[0] and outputs[0].outputs[0].text[:20] in shown[0]
    assert shown[-1].count("<span") == 160
    assert all(part._repr_html_() for part in read_through_the_gate(async_llm, RequestOutputKind.DELTA))


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


LONG = SamplingParams(sampler="gated", max_tokens=900, ignore_eos=True)


def test_cancellation_aborts_the_request(async_llm):
    def pending():
        # The engine thread runs earlier commands first, the abort among them.
        return async_llm._engine.call(lambda router: unmask._engine.lib.um_router_pending(router))

    async def cancel_a_task():
        gate.clear()
        task = asyncio.create_task(collect(async_llm.chat(STORY, LONG)))
        while not async_llm._engine._requests:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.set()
        return pending()

    async def close_a_stream():
        gate.clear()
        stream = async_llm.chat(STORY, LONG)
        await stream.__anext__()
        await stream.aclose()
        gate.set()
        return pending()

    assert asyncio.run(cancel_a_task()) == 0
    assert asyncio.run(close_a_stream()) == 0


def test_errors_come_to_the_reader(async_llm):
    with pytest.raises(unmask.InvalidValueError, match="5000"):
        asyncio.run(collect(async_llm.generate([5000])))
    with pytest.raises(TypeError, match="expected text"):
        async_llm.generate(3.5)
    assert asyncio.run(collect(async_llm.chat(QUESTION)))[-1].outputs[0].text == ANSWER


def test_closing_ends_streams():
    async def close_in_the_middle():
        gate.clear()
        other = AsyncLLM("tiny-block")
        stream = other.chat(STORY, LONG)
        await stream.__anext__()
        closing = asyncio.get_running_loop().run_in_executor(None, other.close)
        while not other._engine._closing:
            await asyncio.sleep(0)
        gate.set()
        await closing
        with pytest.raises(unmask.ClosedError):
            while True:
                await stream.__anext__()

    asyncio.run(close_in_the_middle())
