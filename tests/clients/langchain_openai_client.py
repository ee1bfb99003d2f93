"""LangChain's ChatOpenAI and OpenAI."""
# pip: langchain-openai==1.7.4 openai==3.57.0

from langchain_openai import ChatOpenAI
model = ChatOpenAI(model="tiny-block", base_url="http://127.0.0.1:8000/v1", api_key="none")
print(model.invoke("What is 12 + 30?").text)

import pydantic
from langchain_core.output_parsers import JsonOutputParser
from langchain_openai import OpenAI

from checks import FACTS, FACTS_ANSWER, finish, SUM, SUM_ANSWER, works

server = {"model": "tiny-block", "base_url": model.openai_api_base, "api_key": "none"}


class Person(pydantic.BaseModel):
    name: str


@works("chat")
def _():
    r = model.invoke(SUM)
    assert r.text == SUM_ANSWER and r.usage_metadata["output_tokens"] > 0


@works("streams")
def _():
    assert "".join(c.text for c in model.stream(SUM)) == SUM_ANSWER


@works("batches of prompts")
def _():
    assert [r.text for r in model.batch([SUM, "What is 5 + 7?"])] == [SUM_ANSWER, "5 + 7 = 12."]


@works("responses")
def _():
    assert ChatOpenAI(use_responses_api=True, **server).invoke(SUM).text == SUM_ANSWER


@works("completions")
def _():
    assert isinstance(OpenAI(max_tokens=5, **server).invoke("Count."), str)


@works("required tool calls")
def _():
    class driver(pydantic.BaseModel):
        """Stores a driver."""

    assert model.bind_tools([driver], tool_choice="required").invoke(FACTS).tool_calls[0]["name"] == "driver"


@works("parsers of JSON answers")
def _():
    assert (model | JsonOutputParser()).invoke(FACTS) == FACTS_ANSWER


@works("structured output")
def _():
    for method in "json_schema", "function_calling":
        assert isinstance(model.with_structured_output(Person, method=method).invoke(FACTS), Person)  # the name may be empty


finish()
