"""unmask.vllm with a stand-in for the few names of vLLM 0.33 that it uses. tests/soak/vllm runs vLLM itself."""

import dataclasses
import importlib.metadata
import json
import sys
import types

import numpy as np
import pytest

import unmask
from conftest import ANSWER, QUESTION


class ParamsOfVllm:
    """vLLM's SamplingParams: the fields with their defaults."""

    DEFAULTS = dict(
        n=1, temperature=1.0, top_p=1.0, top_k=0, min_p=0.0, seed=None, max_tokens=16, min_tokens=0, stop=None,
        stop_token_ids=None, bad_words=None, allowed_token_ids=None, logit_bias=None, logprobs=None, ignore_eos=False,
        presence_penalty=0.0, frequency_penalty=0.0, repetition_penalty=1.0, skip_special_tokens=True,
        prompt_logprobs=None, structured_outputs=None, extra_args=None, detokenize=True, output_kind=0,
        include_stop_str_in_output=False, _eos_token_id=None,
    )  # fmt: skip
    __struct_fields__ = tuple(DEFAULTS)

    def __init__(self, **given):
        vars(self).update({**self.DEFAULTS, **given})


@dataclasses.dataclass
class LogprobOfVllm:
    logprob: float
    rank: int
    decoded_token: str


class WorkerBaseOfVllm:
    def __init__(self, vllm_config):
        self.vllm_config = vllm_config
        for name in ("model_config", "scheduler_config", "parallel_config", "device_config"):
            setattr(self, name, getattr(vllm_config, name))


@pytest.fixture
def stand_in(monkeypatch):
    """Installs the modules of the stand-in and returns unmask.vllm."""
    record = types.SimpleNamespace
    modules = {
        "torch": record(device=str),
        "vllm": record(RequestOutput=record, CompletionOutput=record, SamplingParams=ParamsOfVllm),
        "vllm.logprobs": record(Logprob=LogprobOfVllm),
        "vllm.v1.worker.worker_base": record(WorkerBase=WorkerBaseOfVllm, CompilationTimes=dict),
    }
    for name, names in modules.items():
        module = types.ModuleType(name)
        vars(module).update(vars(names))
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "unmask.vllm.worker", raising=False)
    import unmask.vllm

    return unmask.vllm


class LLMOfVllm:
    """Passes calls to a worker as vLLM does, as plain data between processes."""

    def __init__(self, **own_options):
        from unmask.vllm.worker import Worker

        record = types.SimpleNamespace
        self.worker = Worker(
            record(
                model_config=record(model="tiny-block", max_model_len=512, seed=0),
                scheduler_config=record(max_num_seqs=4),
                parallel_config=record(world_size=1),
                device_config=record(device_type="cpu"),
                additional_config={"unmask": own_options},
            )
        )
        self.worker.init_device()
        self.worker.load_model()

    def collective_rpc(self, method, args):
        sent = json.loads(json.dumps(args))
        return [json.loads(json.dumps(getattr(self.worker, method)(*sent)))]


@pytest.fixture
def llm(stand_in):
    made = LLMOfVllm(threads=1)
    yield made
    made.worker.shutdown()


def test_the_entry_point_is_installed_and_needs_no_vllm():
    (entry,) = [
        entry
        for entry in importlib.metadata.distribution("unmask").entry_points
        if entry.group == "vllm.general_plugins"
    ]
    assert (entry.name, entry.value) == ("unmask", "unmask.vllm:register")
    assert callable(entry.load()) and "vllm" not in sys.modules


def test_the_utility_call_answers_prompts(stand_in, llm):
    tokenizer = llm.worker.llm.get_tokenizer()
    prompt = tokenizer.apply_chat_template(QUESTION, tokenize=False)
    params = ParamsOfVllm(temperature=0, max_tokens=32, logprobs=1)
    by_text, by_ids = stand_in.generate(llm, [prompt, {"prompt_token_ids": tokenizer.encode(prompt)}], params)
    assert by_text.prompt == prompt and by_ids.prompt is None and by_text.finished
    assert by_text.prompt_token_ids == by_ids.prompt_token_ids == tokenizer.encode(prompt)
    for output in (by_text, by_ids):
        (answer,) = output.outputs
        assert answer.text == ANSWER and answer.finish_reason == "stop" and answer.nfe == max(answer.step_map)
        assert [row[id].decoded_token for row, id in zip(answer.logprobs, answer.token_ids)] == [
            tokenizer.decode_token(id) for id in answer.token_ids
        ]
        assert sum(row[id].logprob for row, id in zip(answer.logprobs, answer.token_ids)) == pytest.approx(
            answer.cumulative_logprob, abs=1e-6
        )


def test_params_of_each_prompt_and_options_of_unmask(stand_in, llm):
    slow = {"sampler": "static", "denoising_steps": 32}
    params = [ParamsOfVllm(max_tokens=5, ignore_eos=True), ParamsOfVllm(n=2, max_tokens=32, extra_args=slow)]
    one, two = stand_in.generate(llm, [[1, 2, 3], np.array([1, 2, 3])], params)
    assert len(one.outputs[0].token_ids) == 5 and one.outputs[0].logprobs is None
    assert [answer.index for answer in two.outputs] == [0, 1]
    assert all(len(set(answer.step_map)) == len(answer.token_ids) for answer in two.outputs)
    assert len(stand_in.generate(llm, [1, 2, 3])) == 1  # the defaults of the checkpoint


def test_constraints_are_passed_on(stand_in, llm):
    choice = types.SimpleNamespace(
        json=None, regex=None, choice=["even", "odd"], grammar=None, json_object=None, whitespace_pattern=None
    )
    (output,) = stand_in.generate(llm, "Is 12 odd?", ParamsOfVllm(structured_outputs=choice))
    assert output.outputs[0].text in ("even", "odd")
    choice.whitespace_pattern = " *"
    with pytest.raises(unmask.UnsupportedError, match="whitespace_pattern"):
        stand_in.generate(llm, "Is 12 odd?", ParamsOfVllm(structured_outputs=choice))


def test_mistakes_are_named(stand_in, llm):
    for wrong in (dict(prompt_logprobs=1), dict(include_stop_str_in_output=True)):
        with pytest.raises(unmask.UnsupportedError, match=f"{list(wrong)[0]}: .* is not supported, only"):
            stand_in.generate(llm, "a", ParamsOfVllm(**wrong))
    with pytest.raises(unmask.UnsupportedError, match=r"prompts\[1\]: multi_modal_data is not supported"):
        stand_in.generate(llm, ["a", {"prompt": "b", "multi_modal_data": {"image": 1}}])
    for wrong in (3.5, ["a", "b"], {}):
        with pytest.raises(TypeError, match=r"prompts\[1\]: expected"):
            stand_in.generate(llm, ["a", wrong])
    with pytest.raises(unmask.InvalidValueError, match="extra_args: top_p is a field"):
        stand_in.generate(llm, "a", ParamsOfVllm(extra_args={"top_p": 0.5}))
    with pytest.raises(unmask.InvalidValueError, match="did you mean denoising_steps"):
        stand_in.generate(llm, "a", ParamsOfVllm(extra_args={"denoising_step": 3}))
    with pytest.raises(unmask.UnsupportedError, match=r"call unmask\.vllm\.generate"):
        llm.worker.execute_model(None)
    llm.worker.parallel_config.world_size = 2
    with pytest.raises(unmask.UnsupportedError, match="tensor_parallel_size"):
        llm.worker.load_model()
