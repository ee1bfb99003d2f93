"""inspect_ai of the UK AI Security Institute, with its provider of servers with OpenAI's API."""
# pip: inspect-ai==0.3.285 openai==3.57.0 anthropic==2.14.0

from inspect_ai import eval, Task, dataset, scorer
task = Task([dataset.Sample(input="What is 12 + 30?", target="42")], scorer=scorer.includes())
print(eval(task, model="openai-api/unmask/tiny-block", model_base_url="http://127.0.0.1:8000/v1", model_args={"api_key": "none"}, display="none")[0].results.scores)

import json
import os

from inspect_ai import model as models
from inspect_ai import solver, tool

from checks import FACTS, finish, SUM, SUM_ANSWER, works

URL = "http://127.0.0.1:8000"
os.environ["UNMASK_API_KEY"] = os.environ["OPENAI_API_KEY"] = os.environ["ANTHROPIC_API_KEY"] = "none"


def run(samples, name="openai-api/unmask/tiny-block", base=URL + "/v1", **more):
    task = Task(samples, scorer=scorer.includes(), **more)
    log = eval(task, model=name, model_base_url=base, display="none", log_dir="logs")[0]
    if log.error:
        raise Exception(log.error.message)
    return log


@works("evaluations over chat completions")
def _():
    log = run([dataset.Sample(input=SUM, target="42"), dataset.Sample(input="What is 5 + 7?", target="12")])
    assert log.results.scores[0].metrics["accuracy"].value == 1 and log.samples[0].output.completion == SUM_ANSWER


@works("evaluations over responses and messages")
def _():
    sample = [dataset.Sample(input=SUM, target="42")]
    for name, base in ("openai/tiny-block", URL + "/v1"), ("anthropic/tiny-block", URL):
        assert run(sample, name, base).samples[0].output.completion == SUM_ANSWER


@works("required tool calls")
def _():
    @tool.tool
    def driver():
        async def execute():
            """Stores a driver."""
            return "done"
        return execute
    log = run([dataset.Sample(input=FACTS, target="")],
              solver=[solver.use_tools(driver(), tool_choice="any"), solver.generate(tool_calls="single")])
    assert any(m.role == "tool" and m.text == "done" for m in log.samples[0].messages)


@works("response schemas")
def _():
    from inspect_ai.util import json_schema
    schema = models.ResponseSchema(name="person", json_schema=json_schema(dict))
    log = run([dataset.Sample(input=FACTS, target="")], config=models.GenerateConfig(response_schema=schema))
    assert isinstance(json.loads(log.samples[0].output.completion), dict)


finish()
