"""DSPy, which asks through LiteLLM."""
# pip: dspy==3.4.1 litellm==1.110.2

import dspy
dspy.configure(lm=dspy.LM("openai/tiny-block", api_base="http://127.0.0.1:8000/v1", api_key="none", cache=False))
print(dspy.settings.lm("What is 12 + 30?"))

from checks import fails, finish, SUM, SUM_ANSWER, works


@works("language models")
def _():
    assert dspy.settings.lm(SUM) == [SUM_ANSWER]


@works("language models over responses")
def _():
    lm = dspy.settings.lm.copy(model_type="responses")
    assert lm(SUM)[0]["text"] == SUM_ANSWER


@fails("predictions", "tiny-block does not know their format", "AdapterParseError")
def _():
    dspy.Predict("question -> answer")(question=SUM)


@fails("predictions as JSON", "DSPy sends no schema to a model that LiteLLM does not know", "AdapterParseError")
def _():
    with dspy.context(adapter=dspy.JSONAdapter()):
        dspy.Predict("question -> answer")(question=SUM)


finish()
