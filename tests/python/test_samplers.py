"""Samplers in Python, alone and beside the same rules in C."""

import subprocess

import numpy as np
import pytest

import unmask
from conftest import ANSWER, QUESTION, ROOT, STORY
from unmask import LLM, SamplerParam, SamplingParams
from unmask.testing import check_sampler

# Samplers are registered once, and before LLMs are made.


@unmask.sampler(params={"descending_start": SamplerParam(0.9, help="threshold of the first pass")})
def descending(batch):
    """Accepts above a threshold that falls to 0 with the passes of a block."""
    left = np.maximum(0, 1 - (batch.step - 1).astype(np.float32) / batch.length.astype(np.float32))
    return batch.probability > batch.per_candidate(batch.param("descending_start") * left)


@unmask.sampler(
    name="dream_entropy",
    params={"dream_steps": SamplerParam(8, 1, 4096), "dream_eps": SamplerParam(0.001)},
    reads="entropy",
)
def dream(batch):
    """The sampler entropy of Dream: the positions of least entropy, as many as its schedule says."""
    steps, step = batch.param("dream_steps").astype(float), batch.step - 1
    eps = batch.param("dream_eps").astype(float)
    now, later = 1 + (eps - 1) * step / steps, 1 + (eps - 1) * (step + 1) / steps
    share = np.where(step + 1 >= steps, 1, 1 - later / now)
    return batch.rank(-batch.entropy) < batch.per_candidate((np.diff(batch.first) * share).astype(int))


@unmask.sampler(reads=("margin", "entropy"), n_top=3)
def reader(batch):
    """Reads everything."""
    assert batch.n == batch.first[-1] and batch.n_blocks == len(batch.length) == len(batch.forced)
    assert (batch.top_ids[:, 0] == batch.id).all()
    assert np.allclose(np.exp(batch.top_logprobs[:, 0]), batch.probability, atol=1e-5)
    assert ((batch.margin >= 0) & (batch.entropy >= 0)).all()
    assert (batch.step >= 1).all() and (batch.answer == 0).all() and (batch.seed == 7).all()
    accepted = np.zeros(batch.n, bool)
    accepted[batch.best(batch.margin)] = True
    assert (batch.rank(batch.margin)[accepted] == 0).all() and accepted.sum() == batch.n_blocks
    return accepted


waiting = []


@unmask.sampler
def impatient(batch):
    """Calls functions that would wait for the thread that calls it."""
    for use in waiting:
        use()
    return np.ones(batch.n, bool)


calls = []


@unmask.sampler(params={"fails": SamplerParam(0)})
def careless(batch):
    """Raises an exception for requests that ask for it."""
    calls.append(batch.n_blocks)
    if (batch.param("fails") > 0).any():
        raise RuntimeError("no decision today")
    return np.ones(batch.n, bool)


@unmask.sampler
def shapeless(batch):
    return [True]


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """An LLM that knows the samplers of this file, and the plugin of the examples."""
    library = tmp_path_factory.mktemp("plugin") / "annealed.so"
    source = ROOT / "examples" / "plugins" / "annealed.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-I", ROOT / "include", "-o", library, source], check=True)
    unmask.load_plugin(library)
    with LLM("tiny-block", max_num_reqs=8) as llm:
        yield llm


def ids_and_steps(outputs):
    return [(output.outputs[0].token_ids, output.outputs[0].step_map.tolist()) for output in outputs]


def test_a_sampler_answers(own):
    assert own.chat(QUESTION, SamplingParams(sampler="descending"))[0].outputs[0].text == ANSWER


def test_python_and_c_decide_the_same(own):
    prompts = [[{"role": "user", "content": f"Tell me a story with a bee called {name}."}] for name in "ABCDEFGHIJKL"]
    for start in (0.5, 0.99):
        in_python = SamplingParams(sampler="descending", descending_start=start, max_tokens=96)
        in_c = SamplingParams(sampler="annealed", annealed_start=start, max_tokens=96)
        assert ids_and_steps(own.chat(prompts, in_python)) == ids_and_steps(own.chat(prompts, in_c))


def test_the_sampler_of_dream_in_python():
    model = ROOT / "build" / "data" / "golden" / "models" / "dream"
    canvas = dict(decoding_strategy="full", gen_length=32, block_size=32, max_tokens=32, ignore_eos=True)
    prompts = [[4 + (7 * i + 3 * k) % 200 for k in range(1 + i)] for i in range(12)]
    with LLM(model, max_num_reqs=5) as llm:
        built_in = SamplingParams(sampler="entropy", steps=8, temperature=0, **canvas)
        in_python = SamplingParams(sampler="dream_entropy", temperature=0, **canvas)
        expected = ids_and_steps(llm.generate(prompts, built_in))
        assert ids_and_steps(llm.generate(prompts, in_python)) == expected
        assert all(max(steps) == 8 for _, steps in expected)


def test_a_sampler_reads_statistics(own):
    output = own.chat(STORY, SamplingParams(sampler="reader", max_tokens=40, seed=7))[0].outputs[0]
    assert len(set(output.step_map.tolist())) == len(output.token_ids)


def test_one_call_decides_about_all_requests(own):
    calls.clear()
    before = own.stats()["steps"]
    own.chat([STORY] * 8, SamplingParams(sampler="careless", max_tokens=64), use_tqdm=False)
    assert max(calls) == 8 and len(calls) <= own.stats()["steps"] - before


def test_an_exception_ends_the_requests_that_cause_it(own):
    good, bad = SamplingParams(sampler="careless", max_tokens=40), SamplingParams(sampler="careless", fails=1)
    with pytest.raises(unmask.SamplerError, match="no decision today") as caught:
        own.chat([QUESTION, STORY], [good, bad], use_tqdm=False)
    assert str(caught.value).startswith("prompts[1]: ") and "test_samplers.py" in str(caught.value)
    with pytest.raises(unmask.SamplerError, match="expected a bool array"):
        own.chat(QUESTION, SamplingParams(sampler="shapeless"))
    assert own.chat(QUESTION)[0].outputs[0].text == ANSWER


@pytest.mark.timeout(60)
def test_a_sampler_can_not_wait_for_its_llm(own):
    for use in (own.stats, lambda: own.generate([1], use_tqdm=False), lambda: own.score("a", "b", use_tqdm=False)):
        waiting[:] = [use]
        with pytest.raises(unmask.SamplerError, match="a sampler can't wait for the LLM that calls it"):
            own.chat(QUESTION, SamplingParams(sampler="impatient"), use_tqdm=False)
    waiting[:] = [lambda: own.get_tokenizer().decode([1]), lambda: own.model_info()]
    assert own.chat(QUESTION, SamplingParams(sampler="impatient"), use_tqdm=False)[0].finished
    waiting.clear()


def test_an_exception_leaves_other_requests_alone():
    import asyncio

    async def both(llm):
        async def last(params):
            return [output async for output in llm.chat(STORY, params)][-1]

        good, bad = SamplingParams(sampler="careless", max_tokens=40), SamplingParams(sampler="careless", fails=1)
        return await asyncio.gather(last(good), last(bad), return_exceptions=True)

    with unmask.AsyncLLM("tiny-block") as llm:
        good, bad = asyncio.run(both(llm))
    assert len(good.outputs[0].token_ids) == 40 and isinstance(bad, unmask.SamplerError)


def test_names_and_ranges_are_checked(llm):
    with pytest.raises(unmask.InvalidValueError, match="descending_start: 3 is outside 0..1"):
        SamplingParams(sampler="descending", descending_start=3)
    with pytest.raises(unmask.InvalidValueError, match="the name is taken"):
        unmask.sampler(name="confidence")(lambda batch: batch.probability > 0.5)
    with pytest.raises(unmask.InvalidValueError, match="an option has this name"):
        unmask.sampler(name="other", params={"temperature": SamplerParam(1)})(lambda batch: batch.probability > 0.5)
    with pytest.raises(unmask.InvalidValueError, match='expected "margin" or "entropy"; got .everything.'):
        unmask.sampler(name="other", reads="everything")(lambda batch: batch.probability > 0.5)
    with pytest.raises(TypeError, match=r"params\['start'\]: expected SamplerParam\(0.5\); got float"):
        unmask.sampler(name="other", params={"start": 0.5})(lambda batch: batch.probability > 0.5)


def test_the_rules_are_tested():
    for good in (descending, dream):
        check_sampler(good)

    def refused(function, words):
        with pytest.raises(unmask.UnmaskError, match=words):
            check_sampler(unmask.samplers.Sampler(function, "tried", {}, (), 0))

    refused(lambda batch: batch.probability > batch.probability.mean(), "the other blocks of the batch")
    refused(lambda batch: np.random.random(batch.n) > 0.5, "in another way")
    refused(lambda batch: batch.entropy > 1, 'use @sampler\\(reads="entropy"\\)')
