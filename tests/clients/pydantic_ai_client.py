"""Pydantic AI, with OpenAI's chat completions and responses and Anthropic's messages."""
# pip: pydantic-ai-slim[openai,anthropic]==2.68.0 openai==3.57.0 anthropic==2.14.0

from pydantic_ai import Agent; from pydantic_ai.models.openai import OpenAIChatModel; from pydantic_ai.providers.openai import OpenAIProvider
model = OpenAIChatModel("tiny-block", provider=OpenAIProvider(base_url="http://127.0.0.1:8000/v1", api_key="none"))
print(Agent(model).run_sync("What is 12 + 30?").output)

import asyncio

import pydantic
import pydantic_ai
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider

from checks import FACTS, finish, SUM, SUM_ANSWER, works

openai = model._provider
anthropic = AnthropicProvider(base_url=openai.base_url.removesuffix("/v1/").removesuffix("/v1"), api_key="none")
all_models = model, OpenAIResponsesModel("tiny-block", provider=openai), AnthropicModel("tiny-block", provider=anthropic)


class Person(pydantic.BaseModel):
    name: str


@works("answers over chat completions, responses and messages")
def _():
    for m in all_models:
        r = Agent(m).run_sync(SUM)
        assert r.output == SUM_ANSWER and r.usage.output_tokens > 0


@works("conversations")
def _():
    for m in all_models:
        first = Agent(m).run_sync(SUM)
        assert Agent(m).run_sync("What is 5 + 7?", message_history=first.all_messages()).output == "5 + 7 = 12."


@works("tools as outputs")
def _():
    def driver():
        """Stores a driver."""
        return "done"
    for m in all_models:
        assert Agent(m, output_type=pydantic_ai.ToolOutput(driver, name="driver")).run_sync(FACTS).output == "done"


@works("native outputs")
def _():
    for m in all_models[:2]:
        assert Agent(m, output_type=pydantic_ai.NativeOutput(Person)).run_sync(FACTS).output.name


@works("outputs by prompt")
def _():
    assert Agent(model, output_type=pydantic_ai.PromptedOutput(Person)).run_sync(FACTS).output.name


@works("streams")
def _():
    async def run():
        for m in all_models:
            async with Agent(m).run_stream(SUM) as r:
                assert [t async for t in r.stream_text()][-1] == SUM_ANSWER
    asyncio.run(run())


finish()
