"""What goes wrong, and what is said then."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import unmask
from conftest import ANSWER, QUESTION
from unmask import LLM, SamplingParams, StructuredOutputsParams


@pytest.mark.parametrize(
    "parameters, kind, param, words",
    [
        (dict(temperature=9), unmask.InvalidValueError, "temperature", "outside 0..2"),
        (dict(max_tokens="many"), unmask.InvalidValueError, "max_tokens", "many"),
        (dict(temprature=1), unmask.InvalidValueError, "temprature", "did you mean temperature"),
        (dict(prompt_logprobs=1), unmask.UnsupportedError, "prompt_logprobs", "not supported"),
        (dict(allowed_token_ids=[]), unmask.InvalidValueError, "allowed_token_ids", "at least one"),
        (dict(n=0), unmask.InvalidValueError, "n", "0 answers; a request has 1..128"),
        (dict(n=-1), unmask.InvalidValueError, "n", "-1 answers"),
        (dict(n=129), unmask.InvalidValueError, "n", "129 answers"),
        (dict(stop=""), unmask.InvalidValueError, "stop", "an empty one"),
        (dict(stop=["a", "b\0c"]), unmask.InvalidValueError, "stop", "without U+0000"),
        (dict(bad_words=[""]), unmask.InvalidValueError, "bad_words", "an empty one"),
    ],
)
def test_parameters_are_checked_at_once(parameters, kind, param, words):
    with pytest.raises(kind) as caught:
        SamplingParams(**parameters)
    assert caught.value.param == param and words in str(caught.value)


def test_parameters_of_other_types_are_named():
    with pytest.raises(TypeError, match="top_p: expected .* got dict"):
        SamplingParams(top_p={})
    with pytest.raises(TypeError, match="n: expected an integer 1..128; got str"):
        SamplingParams(n="2")
    with pytest.raises(TypeError, match="stop: expected text; got int"):
        SamplingParams(stop=[5])
    with pytest.raises(unmask.InvalidValueError, match="one of json, regex"):
        StructuredOutputsParams(regex="a", choice=["b"])
    SamplingParams(detokenize=True, spaces_between_special_tokens=True)  # vLLM's defaults


@pytest.mark.parametrize("wrong", [3.5, None, b"bytes", {"text": "x"}, ["a"], [[1.5]]])
def test_prompts_of_wrong_types_are_named_by_index(llm, wrong):
    with pytest.raises(TypeError, match=r"prompts\[1\]: expected"):
        llm.generate(["fine", wrong])


def test_wrong_requests_are_named_by_index_and_leave_the_llm_usable(llm):
    with pytest.raises(unmask.InvalidValueError, match=r"prompts\[1\]: ") as caught:
        llm.generate([[1], [5000], [2]], SamplingParams(max_tokens=4))
    assert caught.value.status == "UM_ERANGE"
    for ids in ([1, 2**32 + 1], np.array([-(2**40), 1]), np.array([2**63], np.uint64)):  # their lower bits are valid
        with pytest.raises(unmask.InvalidValueError, match=r"token id -?[0-9]+ is too large"):
            llm.generate(ids)
        with pytest.raises(unmask.InvalidValueError, match="too large"):
            llm.get_tokenizer().decode(ids)
    with pytest.raises(unmask.InvalidValueError, match="5000") as caught:
        llm.generate([5000])
    assert not str(caught.value).startswith("prompts")
    with pytest.raises(unmask.InvalidValueError, match="expected one for all prompts or 2"):
        llm.generate(["a", "b"], [SamplingParams()])
    with pytest.raises(unmask.InvalidValueError, match=r"messages\[1\]: .*role"):
        llm.chat([QUESTION, [{"role": "boss", "content": "x"}]])
    with pytest.raises(unmask.InvalidValueError, match="nonesuch") as caught:
        llm.chat(QUESTION, SamplingParams(sampler="nonesuch"))
    assert caught.value.param == "sampler"
    with pytest.raises(unmask.InvalidValueError, match="record"):
        llm.chat(QUESTION, record="everything")
    assert llm.chat(QUESTION)[0].outputs[0].text == ANSWER


def test_models_that_can_not_be_opened(tmp_path):
    with pytest.raises(unmask.NotFoundError, match="nonesuch"):
        LLM("nonesuch/model")
    with pytest.raises(unmask.UnmaskError):
        LLM(tmp_path)
    with pytest.raises(unmask.InvalidValueError, match="did you mean threads"):
        LLM("tiny-block", treads=2)
    with pytest.raises(unmask.UnsupportedError, match="pipeline_parallel_size"):
        LLM("tiny-block", pipeline_parallel_size=2)
    with pytest.raises(unmask.UnsupportedError, match="numbers that work for this model: 1, 2, 6"):
        LLM("tiny-block", tensor_parallel_size=4)


def test_a_closed_llm_says_so():
    other = LLM("tiny-block")
    other.close()
    other.close()
    for use in (lambda: other.generate("x"), lambda: other.chat(QUESTION), other.stats, other.get_tokenizer):
        with pytest.raises(unmask.ClosedError, match="the LLM is closed"):
            use()


def test_closing_ends_requests_of_other_threads():
    other = LLM("tiny-full")
    begun, caught = threading.Event(), []

    def work():
        begun.set()
        try:
            other.generate(
                [[i % 500] for i in range(2000)], SamplingParams(ignore_eos=True, max_tokens=64), use_tqdm=False
            )
        except unmask.ClosedError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    while other.stats()["requests_running"] == 0:
        pass
    other.close()
    thread.join()
    assert len(caught) == 1 and "closed" in str(caught[0])


CLOSE_IN_THE_MIDDLE = """
import asyncio, faulthandler, random, threading, time
import unmask

faulthandler.dump_traceback_later(90, exit=True)
params = unmask.SamplingParams(max_tokens=48, ignore_eos=True, logprobs=1)

def generate(llm):
    assert len(llm.generate(["a b c"] * 9, params, use_tqdm=False)) == 9

def score(llm):
    assert len(llm.score("a", ["b c", "d e f"], samples=4, use_tqdm=False)) == 2

def look(llm):
    assert llm.stats()["requests_waiting"] >= 0 and llm.engine_info()["num_pages"] > 0

def encode(llm):
    assert len(llm.get_tokenizer().encode("a b " * 20000)) > 20000 and llm.model_info()["vocab"] > 0

def abort(llm):
    async def read_one():
        stream = llm.generate("a b c", params)
        await stream.__anext__()
        await stream.aclose()
    asyncio.run(read_one())

def until_closed(use, llm, closed):
    try:
        while True:
            use(llm)
    except unmask.ClosedError:
        closed.append(use)

def close_in_the_middle(llm, uses, seconds):
    closed = []
    threads = [threading.Thread(target=until_closed, args=(use, llm, closed)) for use in uses]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    llm.close()
    for thread in threads:
        thread.join()
    assert sorted(use.__name__ for use in closed) == sorted(use.__name__ for use in uses)

for seed in range(10):
    seconds = random.Random(seed).random() / 10
    close_in_the_middle(unmask.LLM("tiny-block", max_num_reqs=4), [generate, score, look, encode] * 2, seconds)
    close_in_the_middle(unmask.AsyncLLM("tiny-block", max_num_reqs=4), [abort] * 4, seconds)
"""


def test_an_llm_that_is_closed_while_threads_use_it():
    subprocess.run([sys.executable, "-c", CLOSE_IN_THE_MIDDLE], check=True)


def test_what_an_answer_keeps_of_a_closed_llm():
    with LLM("tiny-block") as other:
        answer = other.chat(QUESTION, SamplingParams(logprobs=1))[0].outputs[0]
        tokenizer = other.get_tokenizer()
    assert answer.text == ANSWER and answer.pieces() and answer.cumulative_logprob <= 0
    for use in (lambda: answer.logprobs, lambda: tokenizer.encode("a"), lambda: tokenizer.decode_token(1)):
        with pytest.raises(unmask.ClosedError, match="the LLM is closed"):
            use()


def test_errors_can_be_pickled():
    with pytest.raises(unmask.InvalidValueError) as caught:
        SamplingParams(temperature=9)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is type(caught.value) and copy.param == "temperature" and str(copy) == str(caught.value)


def test_a_forked_process_gets_a_clear_error(llm):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            llm.generate("x")
        except unmask.ClosedError as error:
            os.write(writing, str(error).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert "before this process was forked" in pipe.read()
    assert os.waitpid(child, 0)[1] == 0


def test_ctrl_c_ends_the_requests_and_not_the_interpreter():
    with LLM("tiny-full") as other:

        def interrupt():
            while other.stats()["requests_running"] == 0:
                pass
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            other.generate(
                [[i % 500] for i in range(5000)], SamplingParams(ignore_eos=True, max_tokens=64), use_tqdm=False
            )
        thread.join()
        assert other.stats()["requests_running"] == other.stats()["requests_waiting"] == 0
        assert other.chat(QUESTION)[0].outputs[0].text == ANSWER


def test_an_error_while_loading_ends_the_loading():
    def fail(share):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LLM("tiny-block", on_load=fail)


def run_with_library(path):
    environment = {**os.environ, "UNMASK_LIBRARY": str(path)}
    code = "import unmask"
    return subprocess.run([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True).stderr


def test_a_library_of_another_version_or_platform_is_refused(tmp_path):
    assert "install the wheel of this platform" in run_with_library(tmp_path / "missing.so").lower()
    (tmp_path / "text.so").write_text("not a library")
    assert "install the wheel of this platform" in run_with_library(tmp_path / "text.so").lower()
    source = tmp_path / "other.c"
    source.write_text('const char *um_version(void) { return "9.9.9"; }')
    subprocess.run(["cc", "-shared", "-o", tmp_path / "other.so", source], check=True)
    assert f"is unmask 9.9.9, but this package needs {unmask.__version__}" in run_with_library(tmp_path / "other.so")
    source.write_text(
        textwrap.dedent(
            f"""
            #include <stddef.h>
            const char *um_version(void) {{ return "{unmask.__version__}"; }}
            void um_config_init(size_t *c) {{ *c = 1; }}
            void um_chat_init(size_t *c) {{ *c = 1; }}
            """
        )
    )
    subprocess.run(["cc", "-shared", "-o", tmp_path / "sizes.so", source], check=True)
    assert "built from another unmask.h" in run_with_library(tmp_path / "sizes.so")


def test_an_interpreter_that_ends_with_an_open_llm(tmp_path):
    code = f"import unmask; llm = unmask.LLM('tiny-block'); print(llm.chat({QUESTION})[0].outputs[0].text)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == ANSWER + "\n"
