"""Anthropic's Python client. tests/server/anthropic.sh checks it in more detail."""
# pip: anthropic==2.14.0

from anthropic import Anthropic
client = Anthropic(base_url="http://127.0.0.1:8000", api_key="none")
print(client.messages.create(model="tiny-block", max_tokens=64, messages=[{"role": "user", "content": "What is 12 + 30?"}]))

from checks import FACTS, finish, SUM, SUM_ANSWER, works

ask = {"model": "tiny-block", "max_tokens": 64, "messages": [{"role": "user", "content": SUM}]}


@works("messages")
def _():
    assert client.messages.create(**ask).content[0].text == SUM_ANSWER


@works("streams")
def _():
    with client.messages.stream(**ask) as stream:
        assert "".join(stream.text_stream) == SUM_ANSWER


@works("counting of tokens")
def _():
    assert client.messages.count_tokens(model="tiny-block", messages=ask["messages"]).input_tokens > 0


@works("required tool calls")
def _():
    r = client.messages.create(model="tiny-block", max_tokens=64, messages=[{"role": "user", "content": FACTS}],
                               tools=[{"name": "driver", "input_schema": {"type": "object", "properties": {}}}],
                               tool_choice={"type": "any"})
    assert r.content[0].type == "tool_use" and r.content[0].name == "driver"


@works("lists of models")
def _():
    assert [m.id for m in client.models.list()] == ["tiny-block"]


finish()
