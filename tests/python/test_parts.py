"""Tokenizer, films, models of the hub, the program."""

import html.parser
import shutil
import subprocess
import sys
import types

import pytest

import unmask
from conftest import ANSWER, QUESTION, STORY
from unmask import film


def test_tokenizer(llm):
    tokenizer = llm.get_tokenizer()
    ids = tokenizer.encode("Grüße, 12 + 30")
    assert tokenizer.decode(ids) == "Grüße, 12 + 30"
    assert tokenizer.decode([]) == "" and tokenizer.encode("") == []
    rendered = tokenizer.apply_chat_template(QUESTION, tokenize=False)
    assert rendered == "<|im_start|>user\nWhat is 12 + 30?<|im_end|>\n<|im_start|>assistant\n"
    ids = tokenizer.apply_chat_template(QUESTION)
    assert tokenizer.decode(ids, skip_special_tokens=False) == rendered
    assert "<|im_start|>" not in tokenizer.decode(ids)
    with pytest.raises(unmask.InvalidValueError, match="70000"):
        tokenizer.decode([70000])


class Spans(html.parser.HTMLParser):
    """Collects the texts and the titles of the tokens of a film."""

    def __init__(self):
        super().__init__()
        self.tokens, self.open = [], []

    def handle_starttag(self, tag, attributes):
        if tag != "input":
            self.open.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if self.open[-1][0] == "span":
            self.tokens.append((self.open[-1][1]["title"], data))


def test_a_film_has_each_token_with_its_pass(llm):
    (output,) = llm.chat(STORY)
    answer = output.outputs[0]
    spans = Spans()
    spans.feed(output._repr_html_())
    assert not spans.open
    assert "".join(text for _, text in spans.tokens) == answer.text
    assert [int(title.split()[1]) for title, text in spans.tokens] == [
        step for step, piece in zip(answer.step_map.tolist(), answer.pieces()) if piece
    ]


def test_a_film_escapes_markup():
    spans = Spans()
    spans.feed(film.html(["<b>", "&", ""], [1, 2, 2]))
    assert spans.tokens == [("pass 1", "<b>"), ("pass 2", "&")]
    assert "no tokens" in film.html([], [])


def hub_folder(root, name, revision="a" * 40):
    """Returns the folder of a model in a cache of the Hugging Face hub."""
    folder = root / ("models--" + name.replace("/", "--"))
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(revision)
    return folder / "snapshots" / revision


def test_models_of_the_hub_cache(tmp_path, monkeypatch):
    bundled = unmask.prompts.find_model("tiny-block")
    shutil.copytree(bundled, hub_folder(tmp_path, "someone/tiny"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with unmask.from_pretrained("someone/tiny", max_num_reqs=1) as llm:
        assert llm.chat(QUESTION)[0].outputs[0].text == ANSWER
    with pytest.raises(unmask.NotFoundError, match="someone/other"):
        unmask.from_pretrained("someone/other")


def test_download_asks_the_hub(monkeypatch):
    asked = []

    def snapshot_download(name, allow_patterns):
        asked.append(name)
        assert "*.safetensors" in allow_patterns and not any(pattern.endswith(".py") for pattern in allow_patterns)
        return unmask.prompts.find_model("tiny-block")

    hub = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    with unmask.from_pretrained("someone/remote", download=True) as llm:
        assert llm.chat(QUESTION)[0].outputs[0].text == ANSWER
    assert asked == ["someone/remote"]
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match="pip install huggingface_hub"):
        unmask.from_pretrained("someone/remote", download=True)


def test_the_program_finds_the_models_of_the_package(tmp_path):
    command = [sys.executable, "-m", "unmask", "run", "--model", "tiny-block", "What is 12 + 30?"]
    done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0 and done.stdout == ANSWER + "\n"
    assert subprocess.run([*command[:3], "nonesuch"], stderr=subprocess.DEVNULL).returncode == 2
