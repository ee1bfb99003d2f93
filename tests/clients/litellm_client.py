"""LiteLLM, with OpenAI's and Anthropic's APIs, and its provider of vLLM servers."""
# pip: litellm==1.110.2

import litellm
server = {"model": "openai/tiny-block", "api_base": "http://127.0.0.1:8000/v1", "api_key": "none"}
print(litellm.completion(messages=[{"role": "user", "content": "What is 12 + 30?"}], **server).choices[0].message.content)

import pydantic

from checks import FACTS, finish, SUM, SUM_ANSWER, works

litellm.suppress_debug_info = True
ask = [{"role": "user", "content": SUM}]


@works("chat")
def _():
    r = litellm.completion(messages=ask, **server)
    assert r.choices[0].message.content == SUM_ANSWER and r.usage.completion_tokens > 0


@works("streams")
def _():
    chunks = list(litellm.completion(messages=ask, stream=True, stream_options={"include_usage": True}, **server))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == SUM_ANSWER
    assert litellm.stream_chunk_builder(chunks).usage.completion_tokens > 0


@works("the provider hosted_vllm")
def _():
    r = litellm.completion(messages=ask, **{**server, "model": "hosted_vllm/tiny-block"})
    assert r.choices[0].message.content == SUM_ANSWER


@works("messages of Anthropic's API")
def _():
    r = litellm.completion(messages=ask, **{**server, "model": "anthropic/tiny-block",
                                            "api_base": server["api_base"].removesuffix("/v1")})
    assert r.choices[0].message.content == SUM_ANSWER


@works("completions")
def _():
    r = litellm.text_completion(prompt="Count.", max_tokens=5, **{**server, "model": "text-completion-openai/tiny-block"})
    assert r.usage.completion_tokens <= 5


@works("responses")
def _():
    assert litellm.responses(input=SUM, **server).output[0].content[0].text == SUM_ANSWER


@works("required tool calls")
def _():
    tool = {"type": "function", "function": {"name": "driver", "parameters": {"type": "object", "properties": {}}}}
    r = litellm.completion(messages=[{"role": "user", "content": FACTS}], tools=[tool], tool_choice="required", **server)
    assert r.choices[0].message.tool_calls[0].function.name == "driver"


@works("structured output")
def _():
    class Person(pydantic.BaseModel):
        name: str

    r = litellm.completion(messages=ask, response_format=Person, **server)
    assert Person.model_validate_json(r.choices[0].message.content).name


finish()
