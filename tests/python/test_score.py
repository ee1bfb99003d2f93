"""LLM.score: likelihoods of given answers."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

import unmask
from conftest import ANSWER, QUESTION
from unmask import LLM


@pytest.fixture(scope="module", params=["tiny-block", "tiny-full"])
def scoring(request):
    with LLM(request.param, max_num_reqs=8) as llm:
        yield request.param, llm


def prompt_of(llm):
    return llm.get_tokenizer().apply_chat_template(QUESTION)


def test_right_answers_are_likelier(scoring):
    _, llm = scoring
    right, wrong = llm.score([prompt_of(llm)], [ANSWER, "12 + 30 = 51."], samples=32)
    assert right.logprob > wrong.logprob + 3
    assert right.token_logprobs.sum() == pytest.approx(right.logprob, abs=1e-6)
    assert llm.get_tokenizer().decode(right.token_ids) == ANSWER
    assert right.standard_error >= 0 and right.passes > 1


def test_scores_are_those_of_the_program(scoring):
    name, llm = scoring
    for options in (dict(method="monte_carlo", samples=16), dict(method="left_to_right"), dict(method="confidence")):
        (score,) = llm.score("Two plus two is", " four", **options)
        flags = [f"--{key}={value}" for key, value in options.items()]
        command = [sys.executable, "-m", "unmask", "score", "--quiet", "--json", "--raw", "--model", name, *flags]
        command += ["--prompt", "Two plus two is", " four"]
        printed = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        assert printed["scores"][0]["logprob"] == pytest.approx(score.logprob, rel=1e-6)


def test_a_score_does_not_depend_on_the_others(scoring):
    _, llm = scoring
    answers = [ANSWER, "12 + 30 = 51.", "I can't do that.", "forty-two"]
    together = llm.score(prompt_of(llm), answers, samples=16, seed=3)
    alone = [llm.score(prompt_of(llm), answer, samples=16, seed=3)[0] for answer in answers]
    assert [score.logprob for score in together] == [score.logprob for score in alone]
    assert llm.score(prompt_of(llm), answers, samples=16, seed=4)[2].logprob != together[2].logprob


def test_one_token_is_exact(scoring):
    _, llm = scoring
    (score,) = llm.score(prompt_of(llm), [llm.get_tokenizer().encode("4")[:1]])
    assert score.standard_error == 0 and score.passes == 1 and score.logprob < 0
    (by_ids,) = llm.score(prompt_of(llm), np.array(score.token_ids))
    assert by_ids.logprob == score.logprob and math.isfinite(score.logprob)


def test_mistakes_are_named(llm):
    with pytest.raises(unmask.InvalidValueError, match="samples: 0 is outside"):
        llm.score("a", "b", samples=0)
    with pytest.raises(unmask.InvalidValueError, match="unknown option sample; did you mean samples"):
        llm.score("a", "b", sample=3)
    with pytest.raises(unmask.InvalidValueError, match="expected 2, one for each prompt; got 3"):
        llm.score(["a", "b"], ["c", "d", "e"])
    with pytest.raises(TypeError, match="answers: expected text"):
        llm.score("a", 3)
    with pytest.raises(TypeError, match=r"answers\[1\]: expected text"):
        llm.score("a", ["b", 3.5])
    with pytest.raises(unmask.InvalidValueError, match=r"prompts\[1\]: .*empty"):
        llm.score("a", ["b", ""])
    assert llm.chat(QUESTION)[0].outputs[0].text == ANSWER
