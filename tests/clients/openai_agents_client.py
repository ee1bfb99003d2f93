"""OpenAI's Agents SDK, by its default API (responses) and by chat completions."""
# pip: openai-agents==0.24.0 openai==3.57.0

from agents import Agent, AsyncOpenAI, Runner, set_default_openai_client
set_default_openai_client(AsyncOpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none"), use_for_tracing=False)
print(Runner.run_sync(Agent(name="sums", model="tiny-block"), "What is 12 + 30?").final_output)

import asyncio

import agents
import pydantic

from checks import FACTS, finish, SUM, SUM_ANSWER, works

agents.set_tracing_disabled(True)
sums = Agent(name="sums", model="tiny-block")
chat = agents.OpenAIChatCompletionsModel("tiny-block", agents.models._openai_shared.get_default_openai_client())


@agents.function_tool
def driver() -> str:
    return "done"


forced = agents.ModelSettings(tool_choice="required")


@works("agents over responses")
def _():
    assert Runner.run_sync(sums, SUM).final_output == SUM_ANSWER


@works("agents over chat completions")
def _():
    assert Runner.run_sync(Agent(name="sums", model=chat), SUM).final_output == SUM_ANSWER


@works("tool calls")
def _():
    for model in "tiny-block", chat:
        agent = Agent(name="facts", model=model, tools=[driver], model_settings=forced,
                      tool_use_behavior="stop_on_first_tool")
        assert Runner.run_sync(agent, FACTS).final_output == "done"


@works("sessions")
def _():
    session = agents.SQLiteSession("1")
    Runner.run_sync(sums, SUM, session=session)
    assert Runner.run_sync(sums, "What is 5 + 7?", session=session).final_output == "5 + 7 = 12."


@works("output types")
def _():
    class Person(pydantic.BaseModel):
        name: str

    for model in "tiny-block", chat:
        assert Runner.run_sync(Agent(name="facts", model=model, output_type=Person), FACTS).final_output.name


@works("streams")
def _():
    async def run():
        own = AsyncOpenAI(base_url=chat._client.base_url, api_key="none")  # a client belongs to one event loop
        model = agents.OpenAIResponsesModel("tiny-block", own)
        result = Runner.run_streamed(Agent(name="sums", model=model), SUM)
        kinds = [e.data.type async for e in result.stream_events() if e.type == "raw_response_event"]
        assert "response.output_text.delta" in kinds and kinds[-1] == "response.completed"
        assert result.final_output == SUM_ANSWER
    asyncio.run(run())


@works("conversations on the server")
def _():
    async def run():
        own = AsyncOpenAI(base_url=chat._client.base_url, api_key="none")
        agent = Agent(name="sums", model=agents.OpenAIResponsesModel("tiny-block", own))
        session = agents.OpenAIConversationsSession(openai_client=own)
        await Runner.run(agent, SUM, session=session)
        assert (await Runner.run(agent, "What is 5 + 7?", session=session)).final_output == "5 + 7 = 12."
        assert [i["role"] for i in await session.get_items()] == ["user", "assistant"] * 2
        assert (await session.pop_item())["role"] == "assistant" and len(await session.get_items()) == 3
        await session.clear_session()
        conversation = await own.conversations.create()
        await Runner.run(agent, SUM, conversation_id=conversation.id)
        assert len((await own.conversations.items.list(conversation.id)).data) == 2
    asyncio.run(run())


finish()
