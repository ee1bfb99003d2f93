"""OpenAI's Python client. tests/server/openai.sh and responses.sh check it in more detail."""
# pip: openai==3.57.0

from openai import OpenAI
client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
print(client.responses.create(model="tiny-block", input="What is 12 + 30?").output_text)

import io

import pydantic

from checks import FACTS, fails, finish, SUM, SUM_ANSWER, works

ask = {"model": "tiny-block", "messages": [{"role": "user", "content": SUM}]}


@works("responses")
def _():
    assert client.responses.create(model="tiny-block", input=SUM).output_text == SUM_ANSWER


@works("conversations")
def _():
    c = client.conversations.create(items=[{"role": "user", "content": "Hello."}])
    assert client.responses.create(model="tiny-block", input=SUM, conversation=c.id).conversation.id == c.id
    assert len(client.conversations.items.list(c.id).data) == 3


@works("chat")
def _():
    assert client.chat.completions.create(**ask).choices[0].message.content == SUM_ANSWER


@works("streams")
def _():
    text = "".join(c.choices[0].delta.content or "" for c in client.chat.completions.create(stream=True, **ask))
    assert text == SUM_ANSWER
    with client.responses.stream(model="tiny-block", input=SUM) as stream:
        assert stream.get_final_response().output_text == SUM_ANSWER


@works("completions")
def _():
    assert client.completions.create(model="tiny-block", prompt="Count.", max_tokens=5).usage.completion_tokens <= 5


@works("required tool calls")
def _():
    tool = {"type": "function", "function": {"name": "driver", "parameters": {"type": "object", "properties": {}}}}
    r = client.chat.completions.create(model="tiny-block", messages=[{"role": "user", "content": FACTS}], tools=[tool],
                                       tool_choice="required")
    assert r.choices[0].message.tool_calls[0].function.name == "driver"


@works("files")
def _():
    file = client.files.create(purpose="batch", file=("a.jsonl", io.BytesIO(b'{"custom_id": "1"}\n')))
    assert client.files.content(file.id).read() == b'{"custom_id": "1"}\n'
    assert client.files.delete(file.id).deleted


@works("structured output")
def _():
    class Person(pydantic.BaseModel):
        name: str

    assert client.chat.completions.parse(response_format=Person, **ask).choices[0].message.parsed.name


@fails("embeddings", "the models only generate text", "/v1/embeddings")
def _():
    client.embeddings.create(model="tiny-block", input=SUM)


finish()
