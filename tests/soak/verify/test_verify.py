"""python -m unmask.verify against classes of transformers, which stand in for the code of a checkpoint."""

import json
import pathlib
import shutil
import subprocess
import sys

import pytest

import unmask
from unmask.verify import verify

# SDAR is Qwen3 with another mask, which the caller gives.
CODE = """
from transformers import Qwen3Config, Qwen3ForCausalLM

class SDARConfig(Qwen3Config):
    model_type = "sdar"

class SDARForCausalLM(Qwen3ForCausalLM):
    config_class = SDARConfig
"""
AUTO_MAP = {"AutoConfig": "modeling_sdar.SDARConfig", "AutoModelForCausalLM": "modeling_sdar.SDARForCausalLM"}


@pytest.fixture
def folder(tmp_path):
    """tiny-block with code for PyTorch."""
    bundled = pathlib.Path(unmask.__file__).parent / "share" / "unmask" / "models" / "tiny-block"
    made = tmp_path / "sdar"
    shutil.copytree(bundled, made)
    config = json.loads((made / "config.json").read_text())
    (made / "config.json").write_text(json.dumps({**config, "auto_map": AUTO_MAP}))
    (made / "modeling_sdar.py").write_text(CODE)
    return made


def run(*arguments):
    command = [sys.executable, "-m", "unmask.verify", *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)


def test_report_of_a_model_that_agrees(folder, tmp_path):
    done = run(folder, "--trust-remote-code", "--output", tmp_path / "report.json")
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "agrees"
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["agrees"] and report["torch_class"] == "SDARForCausalLM" and report["dtype"] == "float32"
    assert {"unmask", "python", "torch", "transformers"} == set(report["versions"])
    assert [p["masks"] for p in report["passes"]] == [27, 14, 15]
    assert all(p["passes"] == 1 and p["compared"] >= 64 * p["masks"] for p in report["passes"])
    assert all(p["max_difference"] < 1e-3 for p in report["passes"])
    assert all(d["equal_tokens"] == d["tokens"] for d in report["decodes"])
    # In the first one the probabilities of several masks round to 1 in float32, so the order of the passes is open.
    assert report["decodes"][1]["equal_passes"] == report["decodes"][1]["tokens"]


def test_code_of_a_checkpoint_runs_only_when_it_is_trusted(folder):
    (folder / "modeling_sdar.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n" + CODE)
    done = run(folder)
    assert done.returncode == 2 and "trust" in done.stderr and not (folder / "ran").exists(), done.stderr
    assert run(folder, "--trust-remote-code").returncode == 0 and (folder / "ran").exists()


def test_another_mask_is_noticed(folder):
    (folder / "modeling_sdar.py").write_text(
        CODE + "    def forward(self, attention_mask=None, **more):\n        return super().forward(**more)\n"
    )
    done = run(folder, "--trust-remote-code")
    assert done.returncode == 1 and done.stdout.splitlines()[-1] == "DIFFERS", done.stdout + done.stderr


def test_other_weights_are_noticed(folder, tmp_path, monkeypatch):
    """A difference in one matrix of one side is in the report."""
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    import torch
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if name.endswith("layers.3.mlp.down_proj.weight"))
    weights[name] = weights[name] * torch.tensor(1.05, dtype=weights[name].dtype)
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    original = unmask.verify.Torch.__init__
    monkeypatch.setattr(unmask.verify.Torch, "__init__", lambda self, _, *more: original(self, str(other), *more))
    report = verify(str(folder), trust_remote_code=True)
    assert not report["agrees"] and max(p["max_difference"] for p in report["passes"]) > 1e-3


def test_models_without_masks_are_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["NoSuchModel"], "model_type": "none"}))
    assert run(folder).returncode == 2
