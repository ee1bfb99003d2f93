"""Comparisons of evaluations."""

import json
import math
import subprocess
import sys

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
