"""Hugging Face's smolagents."""
# pip: smolagents[openai]==1.26.0 openai==3.57.0

from smolagents import OpenAIModel
model = OpenAIModel(model_id="tiny-block", api_base="http://127.0.0.1:8000/v1", api_key="none")
print(model([{"role": "user", "content": [{"type": "text", "text": "What is 12 + 30?"}]}]).content)

import smolagents

from checks import FACTS, fails, finish, SUM, SUM_ANSWER, works


def ask(text):
    return [{"role": "user", "content": [{"type": "text", "text": text}]}]


@smolagents.tool
def driver() -> str:
    """Stores a driver."""
    return "done"


@works("answers")
def _():
    r = model(ask(SUM))
    assert r.content == SUM_ANSWER and r.token_usage.output_tokens > 0


@works("streams")
def _():
    deltas = list(model.generate_stream(ask(SUM)))
    assert "".join(d.content or "" for d in deltas) == SUM_ANSWER
    assert sum(d.token_usage.output_tokens for d in deltas if d.token_usage) > 0


@works("required tool calls")
def _():
    r = model(ask(FACTS), tools_to_call_from=[driver])
    assert r.tool_calls[0].function.name == "driver"


@fails("agents that write code", "their prompt is longer than tiny-block takes", "but max_model_len is 1024")
def _():
    smolagents.CodeAgent(tools=[driver], model=model, max_steps=1, verbosity_level=0).run(FACTS)


finish()
