"""Shared by the tests of the Python package. They run with an installed wheel, never with the sources."""

import pathlib
import sys

import pytest

import unmask

ROOT = pathlib.Path(__file__).resolve().parents[2]
assert ROOT not in pathlib.Path(unmask.__file__).parents or "venv" in unmask.__file__, "the package is not installed"
sys.dont_write_bytecode = True

QUESTION = [{"role": "user", "content": "What is 12 + 30?"}]
ANSWER = "12 + 30 = 42."
STORY = [{"role": "user", "content": "Tell me a story with a bee called Wanda and a candle."}]


@pytest.fixture(scope="session")
def llm():
    """An LLM that all tests share."""
    with unmask.LLM("tiny-block", max_num_reqs=8) as shared:
        yield shared
