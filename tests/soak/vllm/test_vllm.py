"""unmask inside vLLM: the whole way from vllm.LLM through its engine process to the worker, on the CPU."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

os.environ.update(VLLM_TARGET_DEVICE="cpu", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1")

import vllm
from vllm import SamplingParams

import unmask
import unmask.vllm

QUESTION = [{"role": "user", "content": "What is 12 + 30?"}]
ANSWER = "12 + 30 = 42."
STORY = [{"role": "user", "content": "Tell me a story with a bee called Wanda and a candle."}]


@pytest.fixture(scope="module")
def llm():
    return unmask.vllm.LLM("tiny-block", max_num_seqs=8, additional_config={"unmask": {"threads": 1}})


@pytest.fixture(scope="module")
def own():
    with unmask.LLM("tiny-block", max_num_reqs=8, threads=1) as shared:
        yield shared


def test_answers_are_those_of_unmask_in_the_classes_of_vllm(llm, own):
    params = SamplingParams(temperature=0, max_tokens=64, logprobs=2)
    outputs = llm.chat([QUESTION, STORY], params)
    expected = own.chat([QUESTION, STORY], unmask.SamplingParams(temperature=0, max_tokens=64, logprobs=2))
    assert outputs[0].outputs[0].text == ANSWER
    for output, other in zip(outputs, expected):
        assert type(output) is vllm.RequestOutput and output.finished
        assert output.prompt == other.prompt and output.prompt_token_ids == other.prompt_token_ids
        (answer,), (right,) = output.outputs, other.outputs
        assert type(answer) is vllm.CompletionOutput and answer.finished()
        assert answer.text == right.text and answer.token_ids == right.token_ids
        assert answer.finish_reason == right.finish_reason and answer.stop_reason == right.stop_reason
        assert answer.nfe == right.nfe and answer.step_map == right.step_map.tolist()
        assert answer.cumulative_logprob == right.cumulative_logprob
        for row, pair in zip(answer.logprobs, right.logprobs):
            assert {id: (one.logprob, one.rank, one.decoded_token) for id, one in row.items()} == pair


def test_prompts_and_params_of_each(llm):
    ids = llm.get_tokenizer().apply_chat_template(QUESTION, add_generation_prompt=True, return_dict=False)
    params = [SamplingParams(temperature=0, max_tokens=4), SamplingParams(n=2, max_tokens=8, temperature=1, seed=5)]
    one, two = llm.generate([{"prompt_token_ids": ids}, ids], params)
    assert one.prompt is None and one.prompt_token_ids == ids
    assert len(one.outputs[0].token_ids) == 4 and one.outputs[0].finish_reason == "length"
    assert [answer.index for answer in two.outputs] == [0, 1]
    (stopped,) = llm.generate(ids, SamplingParams(temperature=0, max_tokens=64, stop=["+"]))
    assert stopped.outputs[0].text == "12 " and stopped.outputs[0].stop_reason == "+"


def test_options_of_unmask_are_extra_args(llm):
    slow = SamplingParams(
        temperature=0, max_tokens=32, ignore_eos=True, extra_args={"sampler": "static", "denoising_steps": 32}
    )
    (output,) = llm.chat(QUESTION, slow)
    assert len(set(output.outputs[0].step_map)) == 32


def test_constraints_work(llm):
    one_of = vllm.sampling_params.StructuredOutputsParams(choice=["even", "odd"])
    (output,) = llm.chat(QUESTION, SamplingParams(temperature=0, max_tokens=16, structured_outputs=one_of))
    assert output.outputs[0].text in ("even", "odd")


def test_mistakes_end_the_call_and_not_the_engine(llm):
    with pytest.raises(unmask.UnsupportedError, match="prompt_logprobs"):
        llm.chat(QUESTION, SamplingParams(prompt_logprobs=1))
    with pytest.raises(Exception, match="outside 0..1023|5000"):
        llm.generate([5000], SamplingParams(max_tokens=4))
    with pytest.raises(Exception, match="did you mean denoising_steps"):
        llm.chat(QUESTION, SamplingParams(max_tokens=4, extra_args={"denoising_step": 3}))
    assert llm.chat(QUESTION, SamplingParams(temperature=0, max_tokens=32))[0].outputs[0].text == ANSWER


def test_the_block_of_the_documents(tmp_path):
    page = (pathlib.Path(__file__).resolve().parents[3] / "docs" / "python.md").read_text()
    ((code, expected),) = re.findall(
        r"^```python vllm\n(.*?)^```\n\n```text\n(.*?)^```\n", page, re.MULTILINE | re.DOTALL
    )
    script = tmp_path / "block.py"
    # vLLM starts processes that import the script.
    script.write_text(
        "def main():\n" + re.sub("^", "    ", code, flags=re.MULTILINE) + '\nif __name__ == "__main__":\n    main()\n'
    )
    printed = subprocess.run([sys.executable, script], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert expected in printed
