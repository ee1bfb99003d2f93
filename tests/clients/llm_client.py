"""Simon Willison's llm: a model in its file extra-openai-models.yaml."""
# pip: llm==0.36 openai==3.57.0

import json
import subprocess

from checks import FACTS, finish, SUM, SUM_ANSWER, works

LINES = r"""
echo '- {model_id: unmask, model_name: tiny-block, api_base: "http://127.0.0.1:8000/v1", supports_schema: true}' >> "$(dirname "$(llm logs path)")/extra-openai-models.yaml"
llm -m unmask "What is 12 + 30?"
"""


def shell(text):
    return subprocess.run(["bash", "-euo", "pipefail", "-c", text], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


shell('mkdir -p "$(dirname "$(llm logs path)")"')


@works("prompts")
def _():
    assert shell(LINES) == SUM_ANSWER


@works("answers in one piece")
def _():
    assert shell(f'llm -m unmask --no-stream "{SUM}"') == SUM_ANSWER


@works("conversations")
def _():
    assert shell('llm -c "What is 5 + 7?"') == "5 + 7 = 12."


@works("options")
def _():
    assert shell('llm -m unmask -o max_tokens 3 -o temperature 0 "Count from 0 to 30 by 2s."') != ""


@works("schemas")
def _():
    assert json.loads(shell(f'llm -m unmask --schema "name, age int" "{FACTS}"'))["name"]


finish()
