"""Comparisons of evaluations."""

import importlib
import json
import math
import re
import shlex
import subprocess
import sys
import types

import pytest

import unmask
from conftest import ROOT
from unmask.eval import compare, main, sign_test


def write(path, verdicts, **more):
    rows = [{"id": name, "correct": right, **more} for name, right in verdicts.items()]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def test_the_sign_test():
    assert sign_test(0, 0) == 1 and sign_test(3, 3) == 1
    assert sign_test(0, 5) == sign_test(5, 0) == pytest.approx(2 / 32)
    assert sign_test(1, 9) == pytest.approx(2 * (1 + 10) / 1024)


def test_a_comparison_is_paired(tmp_path):
    names = [f"q{i}" for i in range(10)]
    first = write(tmp_path / "a", {name: i < 6 for i, name in enumerate(names)}, completion_tokens=30, nfe=10)
    second = write(tmp_path / "b", {name: 1 <= i < 9 for i, name in enumerate(reversed(names))})
    result = compare(first, second)
    # The first run answers 0 to 5 rightly, the second one 1 to 8.
    assert result.questions == 10 and result.accuracy == (0.6, 0.8)
    assert (result.only_first, result.only_second) == (1, 3)
    assert result.difference == pytest.approx(0.2)
    differences = [-1, 0, 0, 0, 0, 0, 1, 1, 1, 0]
    variance = sum((d - 0.2) ** 2 for d in differences) / 9
    assert result.standard_error == pytest.approx(math.sqrt(variance / 10))
    assert result.p_value == pytest.approx(2 * (1 + 4) / 16)
    assert result.tokens_per_forward == (3.0, None)


def test_runs_of_the_program_and_of_the_harness(tmp_path, capsys):
    files = []
    for quantization in ("none", "q4"):
        files.append(tmp_path / quantization)
        command = [sys.executable, "-m", "unmask", "eval", "--quiet", "--limit", "40", "--model", "tiny-block"]
        command += ["--quantization", quantization, "--output", files[-1], "--data", ROOT / "models" / "eval.jsonl"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    result = compare(*files)
    assert result.questions == 40 and min(result.accuracy) > 0.8 and min(result.tokens_per_forward) > 1
    assert main(["compare", str(files[0]), str(files[1])]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert main(["compare", "--json", str(files[0]), str(files[0])]) == 0
    assert json.loads(capsys.readouterr().out)["p_value"] == 1
    harness = tmp_path / "samples.jsonl"
    rows = [{"doc_id": i, "metrics": ["exact_match"], "exact_match": float(i % 2)} for i in range(4)]
    harness.write_text("\n".join(json.dumps(row) for row in rows))
    assert compare(harness, harness).accuracy == (0.5, 0.5)


def test_a_task_with_several_filters(tmp_path, capsys):
    harness = tmp_path / "samples.jsonl"
    rows = [
        {"doc_id": i, "filter": name, "metrics": ["exact_match"], "exact_match": float(i < right)}
        for name, right in (("strict-match", 1), ("flexible-extract", 3))
        for i in range(4)
    ]
    harness.write_text("\n".join(json.dumps(row) for row in rows))
    assert compare(harness, harness).accuracy == (0.25, 0.25)
    assert main(["compare", "--json", "--filter", "flexible-extract", str(harness), str(harness)]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == [0.75, 0.75]
    with pytest.raises(unmask.InvalidValueError, match="no results of the filter 'none'"):
        compare(harness, harness, "none")


def test_files_that_are_no_results(tmp_path, capsys):
    good = write(tmp_path / "good", {"a": True})
    with pytest.raises(unmask.InvalidValueError, match="only one of them has 'b'"):
        compare(good, write(tmp_path / "other", {"a": True, "b": False}))
    for text, words in (("", "no results"), ("{}", ":1: no result"), ("nonsense", ":1: no result")):
        (tmp_path / "bad").write_text(text)
        with pytest.raises(unmask.InvalidValueError, match=words):
            compare(good, tmp_path / "bad")
    (tmp_path / "twice").write_text(good.read_text() + "\n" + good.read_text())
    with pytest.raises(unmask.InvalidValueError, match=":2: a second answer to question 'a'"):
        compare(good, tmp_path / "twice")
    assert main(["compare", str(good), str(tmp_path / "missing")]) == 2
    assert "missing" in capsys.readouterr().err


class HarnessModel:
    """Stands in for the base class of lm-evaluation-harness, which is not installed here."""


@pytest.fixture
def lm_eval(monkeypatch):
    """The module unmask.lm_eval with a stand-in for the harness."""
    names = {"lm_eval": {}, "lm_eval.api": {}, "lm_eval.api.model": {"LM": HarnessModel}}
    names["lm_eval.api.registry"] = {"register_model": lambda name: lambda kind: kind}
    for name, members in names.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "unmask.lm_eval", raising=False)
    return importlib.import_module("unmask.lm_eval")


def pairs_of(command, option):
    """The name=value list of an option, with the types that the harness gives the values."""
    words = shlex.split(command)
    if option not in words:
        return {}
    pairs = [pair.split("=") for pair in words[words.index(option) + 1].split(",")]
    return {name: typed(value) for name, value in pairs}


def typed(text):
    """Converts a value as the harness does."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


COMMANDS = re.findall(r"^python -m unmask\.lm_eval .*", (ROOT / "docs" / "evaluation.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_arguments_of_the_documented_commands(lm_eval, command):
    model_args = pairs_of(command, "--model_args")
    blocks = any(name in model_args["pretrained"] for name in ("SDAR", "LLaDA2"))
    model = lm_eval.UnmaskLM(**{**model_args, "pretrained": "tiny-block" if blocks else "tiny-full", "backend": "cpu"})
    given = pairs_of(command, "--gen_kwargs")
    params = model._params({"until": ["END"], "do_sample": False, "temperature": 0.0, **given})
    assert params.stop == ["END"] and params.options["temperature"] == given.get("temperature", 0)
    if "--gen_kwargs" in command:
        assert params.options["max_tokens"] == given["max_gen_toks"]
    if set(model._scoring):
        (score,) = model.loglikelihood([types.SimpleNamespace(args=("Two plus two is", " four"))], disable_tqdm=True)
        assert score[0] < 0 and score[1] is False
    model._llm.close()


def requests_of(*arguments):
    return [types.SimpleNamespace(args=args) for args in arguments]


def test_texts_that_are_too_long_for_the_model(lm_eval, caplog):
    model = lm_eval.UnmaskLM("tiny-full", max_model_len=32, method="left_to_right")
    tokenizer = model._llm.get_tokenizer()
    words = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    ids = tokenizer.encode(words, add_special_tokens=False)
    assert len(ids) > 45
    # Pieces of 31 tokens; the last one sees as many tokens as fit.
    pieces = list(model._pieces(ids))
    assert sum((piece for _, piece in pieces), []) == ids and pieces[0][0] == [model._llm.model_info()["bos_id"]]
    assert [len(context) + len(piece) for context, piece in pieces] == [32] * len(pieces)
    (rolling,) = model.loglikelihood_rolling(requests_of((words,)), disable_tqdm=True)
    parts = model._llm.score([c for c, _ in pieces], [p for _, p in pieces], method="left_to_right", use_tqdm=False)
    assert rolling == pytest.approx(sum(part.logprob for part in parts))
    assert model.loglikelihood_rolling(requests_of(("",)), disable_tqdm=True) == [0]
    (long,) = model.loglikelihood(requests_of((words, " end")), disable_tqdm=True)
    (short,) = model._llm.score(
        [ids[-(32 - len(tokenizer.encode(" end"))) :]], [" end"], method="left_to_right", use_tqdm=False
    )
    assert long[0] == pytest.approx(short.logprob)
    (answer,) = model.generate_until(requests_of((words, {"max_gen_toks": 8, "until": []})), disable_tqdm=True)
    assert answer == model._llm.generate(ids[-24:], unmask.SamplingParams(max_tokens=8))[0].outputs[0].text
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    model._llm.close()


def test_the_page_has_commands():
    assert len(COMMANDS) > 10
