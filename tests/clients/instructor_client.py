"""instructor: objects of pydantic models, in its modes."""
# pip: instructor==1.17.0 openai==3.3.0 anthropic==2.14.0

import instructor
client = instructor.from_provider("openai/tiny-block", base_url="http://127.0.0.1:8000/v1", api_key="none", mode=instructor.Mode.MD_JSON)
print(client.create(response_model=None, messages=[{"role": "user", "content": "What is 12 + 30?"}]).choices[0].message.content)

import anthropic
import openai
import pydantic

from checks import FACTS, finish, SUM, SUM_ANSWER, works

base = str(client.client.base_url)
ask = {"model": "tiny-block", "messages": [{"role": "user", "content": FACTS}], "max_retries": 0}


class Named(pydantic.BaseModel):
    name: str


def made(mode):
    return instructor.from_openai(openai.OpenAI(base_url=base, api_key="none"), mode=mode)


@works("answers without a model")
def _():
    assert client.create(response_model=None, messages=[{"role": "user", "content": SUM}]).choices[0].message.content == \
        SUM_ANSWER


@works("the mode MD_JSON")
def _():                                # the schema is in the prompt alone, so the server is told to write a code block
    block = {"guided_regex": '```json\n\\{"name": "[A-Z][a-z]{1,9}"\\}\n```'}
    assert client.create(response_model=Named, extra_body=block, **ask).name


@works("the mode TOOLS")
def _():
    assert isinstance(made(instructor.Mode.TOOLS).create(response_model=Named, **ask), Named)  # the name may be empty


@works("the mode ANTHROPIC_TOOLS")
def _():
    client = instructor.from_anthropic(anthropic.Anthropic(base_url=base.removesuffix("/v1/"), api_key="none"))
    assert isinstance(client.create(response_model=Named, max_tokens=64, **ask), Named)


@works("the mode JSON")
def _():
    assert made(instructor.Mode.JSON).create(response_model=Named, **ask).name


@works("the mode JSON_SCHEMA")
def _():
    assert made(instructor.Mode.JSON_SCHEMA).create(response_model=Named, **ask).name


finish()
