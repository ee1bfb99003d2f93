"""LLM: prompts in, outputs out."""

import copy
import json
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import unmask
from conftest import ANSWER, QUESTION, STORY
from unmask import LLM, SamplingParams, StructuredOutputsParams


def test_chat_answers(llm):
    (output,) = llm.chat(QUESTION, SamplingParams(max_tokens=64))
    answer = output.outputs[0]
    assert answer.text == ANSWER
    assert answer.finish_reason == "stop" and answer.finish_detail == "eos_token_generated"
    assert answer.stop_reason in llm.model_info()["stop"]
    assert output.finished and output.prompt.startswith("<|im_start|>user\nWhat is 12 + 30?")
    assert llm.get_tokenizer().decode(answer.token_ids) == ANSWER
    assert "".join(answer.pieces()) == ANSWER
    assert len(answer.step_map) == len(answer.token_ids) and answer.step_map.min() >= 1
    assert answer.step_map.max() <= answer.nfe
    assert answer.tokens_per_forward == len(answer.token_ids) / answer.nfe
    assert 0 <= answer.metrics.queue_seconds <= answer.metrics.first_token_seconds <= answer.metrics.total_seconds


def test_kinds_of_prompts_are_the_same_prompt(llm):
    ids = llm.get_tokenizer().encode("Tell me")
    params = SamplingParams(max_tokens=8, ignore_eos=True)
    prompts = ["Tell me", {"prompt": "Tell me"}, ids, np.array(ids), np.array(ids, np.int32), {"prompt_token_ids": ids}]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert len({tuple(output.outputs[0].token_ids) for output in outputs}) == 1
    assert [output.prompt for output in outputs] == ["Tell me"] * 2 + [None] * 4
    assert all(output.prompt_token_ids == ids for output in outputs)
    for single in ("Tell me", ids, np.array(ids), {"prompt": "Tell me"}):
        (output,) = llm.generate(single, params)
        assert output.outputs[0].token_ids == outputs[0].outputs[0].token_ids


def test_outputs_are_in_the_order_of_the_prompts(llm):
    lengths = [(7 * i) % 23 + 1 for i in range(100)]
    params = [SamplingParams(max_tokens=length, ignore_eos=True) for length in lengths]
    outputs = llm.generate([[i % 400, 7] for i in range(100)], params, use_tqdm=False)
    assert [len(output.outputs[0].token_ids) for output in outputs] == lengths
    assert [output.prompt_token_ids for output in outputs] == [[i % 400, 7] for i in range(100)]
    names = [int(output.request_id) for output in outputs]
    assert names == sorted(names) and len(set(names)) == 100


def test_answers_are_those_of_the_program(llm, tmp_path):
    prompts = [f"<|im_start|>user\nTell me about {i}" for i in range(20)]
    lines = [
        json.dumps({"prompt": prompt, "max_tokens": 24, "temperature": 1, "seed": i})
        for i, prompt in enumerate(prompts)
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    command = [
        sys.executable,
        "-m",
        "unmask",
        "generate",
        "--raw",
        "--quiet",
        "--model",
        "tiny-block",
        "--input",
        tmp_path / "in.jsonl",
    ]
    subprocess.run([*command, "--output", tmp_path / "out.jsonl"], check=True)
    expected = [json.loads(line)["token_ids"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    params = [SamplingParams(max_tokens=24, temperature=1, seed=i) for i in range(20)]
    assert [output.outputs[0].token_ids for output in llm.generate(prompts, params, use_tqdm=False)] == expected
    assert len({tuple(ids) for ids in expected}) > 10


def test_several_answers_of_a_request(llm):
    (output,) = llm.generate(
        "<|im_start|>user\nTell me about", SamplingParams(n=3, max_tokens=32, temperature=2, seed=5)
    )
    assert [answer.index for answer in output.outputs] == [0, 1, 2]
    assert [answer.metrics.seed for answer in output.outputs] == [5, 6, 7]
    assert len({tuple(answer.token_ids) for answer in output.outputs}) == 3


def test_logprobs_belong_to_the_tokens(llm):
    (output,) = llm.chat(QUESTION, SamplingParams(logprobs=3))
    answer = output.outputs[0]
    assert len(answer.logprobs) == len(answer.token_ids)
    for token, row, logprob in zip(answer.token_ids, answer.logprobs, answer.token_logprobs):
        assert row[token].rank == 1 and row[token].logprob == pytest.approx(logprob)
        assert row[token].decoded_token == llm.get_tokenizer().decode([token])
        ranked = sorted(row.values(), key=lambda entry: entry.rank)
        assert [entry.rank for entry in ranked] == [1, 2, 3]
        assert all(a.logprob >= b.logprob for a, b in zip(ranked, ranked[1:]))
    assert answer.cumulative_logprob == pytest.approx(float(answer.token_logprobs.sum()))
    (plain,) = llm.chat(QUESTION)
    assert plain.outputs[0].logprobs is None and plain.outputs[0].cumulative_logprob is None
    (only,) = llm.chat(QUESTION, SamplingParams(logprobs=0))
    assert all(list(row) == [token] for token, row in zip(only.outputs[0].token_ids, only.outputs[0].logprobs))


def test_recorded_passes(llm):
    (output,) = llm.chat(STORY, SamplingParams(max_tokens=96), record=("snapshots", "traces"))
    answer = output.outputs[0]
    assert [snapshot.nfe for snapshot in answer.snapshots] == list(range(1, answer.nfe + 1))
    assert len(answer.traces) == answer.nfe and answer.traces[0].prefill
    last = answer.snapshots[-1]
    n = len(answer.token_ids)
    assert last.token_ids[:n].tolist() == answer.token_ids
    assert last.step[:n].tolist() == answer.step_map.tolist()
    assert (last.state[:n] != 0).all() and np.isfinite(last.confidence[:n]).all()
    assert sum(trace.new_tokens for trace in answer.traces) >= n
    for trace in answer.traces:
        assert len(trace.block) == len(trace.status) == len(trace.masks)
    assert not llm.chat(STORY)[0].outputs[0].snapshots


def test_stop_strings_and_reasons(llm):
    (output,) = llm.chat(QUESTION, SamplingParams(stop=" ="))
    assert output.outputs[0].text == "12 + 30" and output.outputs[0].stop_reason == " ="
    (output,) = llm.chat(STORY, SamplingParams(max_tokens=4))
    assert output.outputs[0].finish_reason == "length" and len(output.outputs[0].token_ids) == 4
    (stop,) = llm.get_tokenizer().encode("=")
    (output,) = llm.generate("x", SamplingParams(max_tokens=4, allowed_token_ids=[stop]))
    assert output.outputs[0].token_ids == [stop] * 4
    (output,) = llm.generate("x", SamplingParams(max_tokens=4, logit_bias={stop: 100.0}))
    assert output.outputs[0].token_ids == [stop] * 4
    (output,) = llm.chat(QUESTION, SamplingParams(bad_words=["42"]))
    assert "42" not in output.outputs[0].text


@pytest.mark.parametrize(
    "constraint, check",
    [
        (dict(regex="[a-c]{3}x"), lambda text: len(text) == 4 and text.endswith("x") and set(text[:3]) <= set("abc")),
        (dict(choice=["yes", "no"]), lambda text: text in ("yes", "no")),
        (
            dict(
                json={
                    "type": "object",
                    "properties": {"a": {"type": "boolean"}},
                    "required": ["a"],
                    "additionalProperties": False,
                }
            ),
            lambda text: isinstance(json.loads(text)["a"], bool),
        ),
        (dict(grammar='root ::= "left" | "right"'), lambda text: text in ("left", "right")),
    ],
)
def test_constraints(llm, constraint, check):
    params = SamplingParams(max_tokens=64, structured_outputs=StructuredOutputsParams(**constraint))
    assert check(llm.chat(QUESTION, params)[0].outputs[0].text)


def test_options_of_the_engine_are_defaults_of_requests():
    with LLM("tiny-block", max_num_seqs=3, max_tokens=5, ignore_eos=True, enable_prefix_caching=False) as other:
        assert other.engine_info()["max_num_reqs"] == 3
        assert other.engine_info()["device"] == "cpu" and other.model_info()["family"] == "sdar"
        assert len(other.generate("x")[0].outputs[0].token_ids) == 5
        assert len(other.generate("x", SamplingParams(max_tokens=2))[0].outputs[0].token_ids) == 2


def test_conversations_templates_and_variables(llm):
    outputs = llm.chat([QUESTION, STORY], use_tqdm=False)
    assert outputs[0].outputs[0].text == ANSWER and outputs[1].outputs[0].text != ANSWER
    params = SamplingParams(max_tokens=1)
    template = "{{ messages[0].content }}{{ word }}"
    (output,) = llm.chat(QUESTION, params, chat_template=template, chat_template_kwargs={"word": "!"})
    assert output.prompt == "What is 12 + 30?!"
    begun = QUESTION + [{"role": "assistant", "content": "12 + 30 ="}]
    (output,) = llm.chat(begun, params, add_generation_prompt=False, continue_final_message=True)
    assert output.prompt.endswith("12 + 30 =")


def test_prefix_cache_is_used_and_can_be_emptied(llm):
    prompt = list(range(5, 5 + 96))
    params = SamplingParams(max_tokens=1)
    llm.generate(prompt, params)
    assert llm.generate(prompt, params)[0].num_cached_tokens >= 64
    llm.reset_prefix_cache()
    assert llm.generate(prompt, params)[0].num_cached_tokens == 0


def test_many_threads_share_an_llm(llm):
    texts, errors = {}, []

    def work(i):
        try:
            texts[i] = [llm.chat(QUESTION, use_tqdm=False)[0].outputs[0].text for _ in range(5)]
        except Exception as error:  # reported below, because a thread swallows it
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(texts) == 8
    assert all(text == [ANSWER] * 5 for text in texts.values())


def test_outputs_can_be_pickled_and_copied(llm):
    params = SamplingParams(max_tokens=16, logprobs=2)
    (output,) = llm.chat(QUESTION, params, use_tqdm=False, record=("snapshots", "traces"))
    for twin in (pickle.loads(pickle.dumps(output)), copy.deepcopy(output)):
        (answer,), (right,) = twin.outputs, output.outputs
        assert twin.prompt == output.prompt and twin.prompt_token_ids == output.prompt_token_ids
        assert answer.text == right.text and answer.token_ids == right.token_ids and answer.metrics == right.metrics
        assert answer.logprobs == right.logprobs and answer.step_map.tolist() == right.step_map.tolist()
        assert len(answer.snapshots) == len(right.snapshots) and len(answer.traces) == len(right.traces)
        assert answer._repr_html_().count("<span") == len(right.token_ids)
    assert pickle.loads(pickle.dumps(params)).options == params.options
    (score,) = llm.score("a", "b c", use_tqdm=False)
    assert pickle.loads(pickle.dumps(score)).logprob == score.logprob


def test_progress_of_loading():
    shares = []
    LLM("tiny-full", on_load=shares.append).close()
    assert shares[0] == 0 and shares[-1] == 1 and shares == sorted(shares)


def test_progress_bar(llm, capfd):
    llm.chat(QUESTION)
    assert "Processed prompts: 100%" in capfd.readouterr().err
    llm.chat(QUESTION, use_tqdm=False)
    assert capfd.readouterr().err == ""


def test_version_is_that_of_the_program():
    shown = subprocess.run([sys.executable, "-m", "unmask", "--version"], check=True, stdout=subprocess.PIPE, text=True)
    assert shown.stdout.startswith(f"unmask {unmask.__version__} ")
