"""/v1/chat/completions without streams, and tool calls."""

import json
import re
import time
import typing

import openai
import pydantic

from openai_harness import (chat, check, complete, COUNT, COUNTED, extended, FACTS, main, refused, SUM, TOOLS)

# ---- Chat ------------------------------------------------------------------------------------------------------------


@check
def chat_answers():
    r = chat()
    assert r.object == "chat.completion" and r.id.startswith("chatcmpl-") and r.model == "tiny"
    assert abs(r.created - time.time()) < 60
    assert r.choices[0].message.role == "assistant"
    assert r.choices[0].message.content == "12 + 30 = 42."
    assert r.choices[0].finish_reason == "stop" and r.choices[0].index == 0


@check
def chat_usage_adds_up():
    u = chat().usage
    assert u.prompt_tokens > 0 and u.completion_tokens > 0
    assert u.total_tokens == u.prompt_tokens + u.completion_tokens
    assert u.prompt_tokens_details.cached_tokens >= 0


@check
def chat_system_fingerprint_names_the_build():
    assert re.fullmatch(r"unmask-\d+\.\d+\.\d+-\S+", chat().system_fingerprint)


@check
def chat_content_may_be_a_list_of_text_parts():
    parts = [{"type": "text", "text": "What is "}, {"type": "text", "text": "12 + 30?"}]
    assert chat(messages=[{"role": "user", "content": parts}]).choices[0].message.content == "12 + 30 = 42."


@check
def chat_other_parts_are_refused():
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    refused(openai.BadRequestError, lambda: chat(messages=[{"role": "user", "content": [part]}]), "messages", "text only")


@check
def chat_takes_system_developer_assistant_and_tool_turns():
    turns = [{"role": "developer", "content": "Be brief."}, *SUM, {"role": "assistant", "content": "12 + 30 = 42."},
             {"role": "tool", "tool_call_id": "call_1", "content": "ok"}, {"role": "user", "content": "What is 2 + 3?"}]
    assert chat(messages=turns).usage.prompt_tokens > chat().usage.prompt_tokens


@check
def chat_without_messages_is_refused():
    refused(openai.BadRequestError, lambda: chat(messages=[]), "messages", "must not be empty")


@check
def chat_with_an_unknown_role_is_refused():
    refused(openai.BadRequestError, lambda: chat(messages=[{"role": "wizard", "content": "x"}]), "messages", "wizard")


@check
def chat_without_max_tokens_may_fill_the_model():
    r = chat(messages=COUNT)
    assert r.choices[0].message.content == COUNTED and r.choices[0].finish_reason == "stop"
    r = chat(extended, extra_body={"ignore_eos": True})
    assert r.choices[0].finish_reason == "length" and r.usage.total_tokens == 256, r.usage


@check
def chat_max_tokens_is_exact():
    r = chat(max_tokens=5)
    assert r.usage.completion_tokens == 5 and r.choices[0].finish_reason == "length"
    assert "12 + 30 = 42.".startswith(r.choices[0].message.content)


@check
def chat_max_completion_tokens_wins_over_max_tokens():
    assert chat(max_tokens=9, max_completion_tokens=4).usage.completion_tokens == 4
    assert chat(max_completion_tokens=3).usage.completion_tokens == 3


@check
def chat_answers_end_before_stop_strings():
    r = chat(stop=["="])
    assert r.choices[0].message.content == "12 + 30 " and r.choices[0].finish_reason == "stop"
    assert r.choices[0].stop_reason == "="
    assert chat(stop="+").choices[0].message.content == "12 "


@check
def chat_stop_strings_can_be_included():
    r = chat(stop=["="], extra_body={"include_stop_str_in_output": True})
    assert r.choices[0].message.content == "12 + 30 ="


@check
def chat_stop_token_ids_end_the_answer():
    ids = chat(extra_body={"return_token_ids": True}).choices[0].token_ids
    r = chat(extra_body={"stop_token_ids": [ids[2]]})
    assert r.usage.completion_tokens == 2 and r.choices[0].stop_reason == ids[2], r


@check
def chat_n_answers_are_choices():
    r = chat(n=3, temperature=1.0, seed=5)
    assert [c.index for c in r.choices] == [0, 1, 2]
    assert [c.seed for c in r.choices] == [5, 6, 7]
    assert r.usage.completion_tokens >= 3
    assert [c.index for c in chat(n=128, max_tokens=2).choices] == list(range(128))


@check
def chat_same_seed_same_text():
    # The bundled models are sure of their answers, so the draws are among letters.
    hot = {"temperature": 2, "max_tokens": 48, "extra_body": {"allowed_token_ids": list(range(65, 90))}}
    a, b, c = chat(seed=7, **hot), chat(seed=7, **hot), chat(seed=8, **hot)
    assert a.choices[0].message.content == b.choices[0].message.content
    assert a.choices[0].message.content != c.choices[0].message.content


@check
def chat_a_random_seed_is_reported_and_reproducible():
    hot = {"messages": COUNT, "temperature": 1.5, "max_tokens": 32}
    a = chat(**hot)
    assert chat(seed=a.choices[0].seed, **hot).choices[0].message.content == a.choices[0].message.content


@check
def chat_answer_i_of_n_is_the_answer_of_seed_plus_i():
    hot = {"messages": COUNT, "temperature": 1.5, "max_tokens": 32}
    many = chat(seed=11, n=2, **hot)
    assert many.choices[1].message.content == chat(seed=12, **hot).choices[0].message.content


@check
def chat_logprobs_name_tokens_and_bytes():
    content = chat(logprobs=True, top_logprobs=3).choices[0].logprobs.content
    assert "".join(t.token for t in content) == "12 + 30 = 42."
    assert bytes(b for t in content for b in t.bytes).decode() == "12 + 30 = 42."
    for t in content:
        assert t.logprob <= 0 and len(t.top_logprobs) == 3
        assert t.top_logprobs[0].logprob >= t.top_logprobs[1].logprob >= t.top_logprobs[2].logprob


@check
def chat_logprobs_may_be_those_of_the_answer_alone():
    assert all(t.top_logprobs == [] for t in chat(logprobs=True).choices[0].logprobs.content)
    assert chat().choices[0].logprobs is None


@check
def chat_top_logprobs_need_logprobs():
    refused(openai.BadRequestError, lambda: chat(top_logprobs=2), "top_logprobs")
    refused(openai.BadRequestError, lambda: chat(logprobs=True, top_logprobs=65), "top_logprobs", "0..64")


@check
def chat_logit_bias_bans_and_forces():
    first = chat(extra_body={"return_token_ids": True}).choices[0].token_ids[0]
    banned = chat(logit_bias={str(first): -100}, extra_body={"return_token_ids": True})
    assert first not in banned.choices[0].token_ids
    forced = chat(logit_bias={str(first): 100}, max_tokens=4, extra_body={"return_token_ids": True})
    assert forced.choices[0].token_ids == [first] * 4


@check
def chat_logit_bias_is_checked():
    refused(openai.BadRequestError, lambda: chat(logit_bias={"12": 101}), "logit_bias", "-100..100")
    refused(openai.BadRequestError, lambda: chat(logit_bias={"x": 1}), "logit_bias", "not a token id")


@check
def chat_penalties_are_taken_and_checked():
    repeat = [{"role": "user", "content": 'Write "rabbit" 8 times'}]
    plain = chat(messages=repeat).choices[0].message.content
    assert plain.count("rabbit") == 8
    assert chat(messages=repeat, presence_penalty=0, frequency_penalty=0).choices[0].message.content == plain
    # Penalties count the tokens before the blocks in flight, so the blocks have to be small.
    punished = chat(messages=repeat, frequency_penalty=2, max_tokens=64,
                    extra_body={"repetition_penalty": 5, "block_size": 4, "buffer_size": 1})
    assert punished.choices[0].message.content != plain
    refused(openai.BadRequestError, lambda: chat(presence_penalty=3), "presence_penalty", "-2..2")


@check
def chat_answers_are_valid_unicode():
    r = chat(messages=[{"role": "user", "content": "Grüße, 你好, \U0001f600 é"}], temperature=1.8, seed=3, max_tokens=64)
    r.choices[0].message.content.encode("utf-8")
    text = "Grüße 你好 \U0001f600"
    r = complete(prompt=text, echo=True, max_tokens=1)
    assert r.choices[0].text.startswith(text)


@check
def chat_a_named_response_format_of_text_is_taken():
    assert chat(response_format={"type": "text"}).choices[0].message.content == "12 + 30 = 42."


@check
def chat_unknown_fields_name_the_nearest():
    refused(openai.BadRequestError, lambda: chat(extra_body={"temprature": 1}), "temprature", 'did you mean "temperature"')


@check
def chat_fields_without_effect_are_accepted():
    r = chat(user="u", metadata={"a": "b"}, store=False, service_tier="auto", extra_body={"prompt_cache_key": "k"})
    assert r.choices[0].message.content == "12 + 30 = 42."


@check
def chat_has_every_field_of_the_client():
    fields = openai.types.chat.completion_create_params.CompletionCreateParamsBase.__annotations__
    for name in set(fields) - {"messages", "model"}:
        assert chat(extra_body={name: None}).choices[0].message.content == "12 + 30 = 42.", name
    r = chat(extra_body={"verbosity": "medium", "prompt_cache_retention": "24h"})
    assert r.choices[0].message.content == "12 + 30 = 42."
    refused(openai.BadRequestError, lambda: chat(extra_body={"verbosity": "low"}), "verbosity", 'only "medium"')


@check
def fields_of_vllm_and_sglang_that_change_nothing_are_accepted():
    for neutral in (
        {"documents": None, "vllm_xargs": {}, "kv_transfer_params": None, "logits_processors": None},
        {"separate_reasoning": True, "stream_reasoning": True, "stop_regex": None, "no_stop_trim": False},
        {"return_hidden_states": False, "custom_logit_processor": None, "custom_params": None, "session_params": None},
    ):
        assert chat(extra_body=neutral).choices[0].message.content == "12 + 30 = 42."
    for name, value in (("documents", [{"text": "a"}]), ("separate_reasoning", False), ("stop_regex", "a+")):
        refused(openai.BadRequestError, lambda: chat(extra_body={name: value}), name, "only")


@check
def chat_wrong_types_name_the_field():
    refused(openai.BadRequestError, lambda: chat(extra_body={"temperature": "hot"}), "temperature", "a number")
    refused(openai.BadRequestError, lambda: chat(temperature=2.1), "temperature", "0..2")
    refused(openai.BadRequestError, lambda: chat(temperature=-0.1), "temperature", "outside 0..2")
    refused(openai.BadRequestError, lambda: chat(extra_body={"n": 0}), "n", "1..128")
    refused(openai.BadRequestError, lambda: chat(extra_body={"n": 129}), "n", "1..128")
    refused(openai.BadRequestError, lambda: chat(extra_body={"max_tokens": 0}), "max_tokens")


@check
def chat_decoding_parameters_are_fields():
    r = chat(extra_body={"accept_threshold": 0.5, "buffer_size": 1, "block_size": 16, "max_nfe": 200})
    assert r.choices[0].message.content == "12 + 30 = 42."
    refused(openai.BadRequestError, lambda: chat(extra_body={"accept_threshold": 2}), "accept_threshold", "0..1")
    refused(openai.BadRequestError, lambda: chat(extra_body={"factor": 2}), "factor", "read by sampler factor")
    assert chat(extra_body={"factor": 2, "sampler": "factor"}).choices[0].message.content
    assert chat(extra_body={"factor": 1}).choices[0].message.content  # a default value is accepted for every sampler


@check
def chat_step_map_and_trajectory_show_the_passes():
    ask = {"return_step_map": True, "return_trajectory": True, "return_token_ids": True, "block_size": 16}
    c = chat(messages=COUNT, extra_body=ask).choices[0]
    assert len(c.step_map) == len(c.token_ids) and min(c.step_map) >= 1
    canvas = {}
    for entry in c.trajectory:
        canvas = {i: t for i, t in canvas.items() if i < entry["length"]}
        canvas.update(zip(entry["positions"], entry["token_ids"]))
    assert [canvas[i] for i in range(len(c.token_ids))] == c.token_ids


@check
def chat_template_variables_and_templates_of_the_request_are_used():
    longer = "{% for m in messages %}{{ m.content }}{{ extra }}{% endfor %}"
    a = chat(extra_body={"chat_template": longer, "chat_template_kwargs": {"extra": ""}})
    b = chat(extra_body={"chat_template": longer, "chat_template_kwargs": {"extra": "word " * 20}})
    assert b.usage.prompt_tokens > a.usage.prompt_tokens


@check
def chat_template_errors_are_the_requests():
    broken = "{{ raise_exception('only one turn, please') }}"
    refused(openai.BadRequestError, lambda: chat(extra_body={"chat_template": broken}), "messages", "only one turn")


@check
def chat_a_last_message_may_be_continued():
    r = chat(messages=[*SUM, {"role": "assistant", "content": "12 + 30"}],
             extra_body={"continue_final_message": True, "add_generation_prompt": False})
    assert r.choices[0].message.content == " = 42."


@check
def chat_too_long_prompts_are_refused_with_the_counts():
    e = refused(openai.BadRequestError, lambda: chat(messages=[{"role": "user", "content": "word " * 5000}]), "messages",
                "max_model_len is 1024")
    assert e.code == "context_length_exceeded"


@check
def chat_request_id_is_part_of_the_id():
    assert chat(extra_body={"request_id": "abc-1"}).id == "chatcmpl-abc-1"


@check
def usage_extensions_have_the_passes():
    u = chat(extended).usage
    assert u.nfe >= 1 and abs(u.tpf - u.completion_tokens / u.nfe) < 1e-3 and u.engine_decode_time_s >= 0
    assert not hasattr(chat().usage, "nfe")


# ---- Tools -----------------------------------------------------------------------------------------------------------


@check
def tools_reach_the_template():
    names = "{% for t in tools or [] %}{{ t.function.name }} {{ t.function.description }}{% endfor %}hello"
    with_tools = chat(tools=TOOLS, extra_body={"chat_template": names})
    without = chat(extra_body={"chat_template": names})
    assert with_tools.usage.prompt_tokens > without.usage.prompt_tokens


@check
def tool_choice_none_removes_the_tools():
    names = "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}hello"
    with_none = chat(tools=TOOLS, tool_choice="none", extra_body={"chat_template": names})
    assert with_none.usage.prompt_tokens == chat(extra_body={"chat_template": names}).usage.prompt_tokens


@check
def an_answer_without_calls_is_content():
    r = chat(tools=TOOLS)
    assert r.choices[0].message.content and not r.choices[0].message.tool_calls
    assert r.choices[0].finish_reason == "stop"


@check
def a_required_call_is_returned():
    r = chat(messages=FACTS, tools=TOOLS, tool_choice="required", max_tokens=64)
    call = r.choices[0].message.tool_calls[0]
    assert r.choices[0].finish_reason == "tool_calls" and call.type == "function" and call.id.startswith("call_")
    assert call.function.name == "store" and isinstance(json.loads(call.function.arguments)["name"], str)


@check
def a_streamed_call_equals_the_whole_call():
    for choice in "required", {"type": "function", "function": {"name": "store"}}:
        ask = {"messages": FACTS, "tools": TOOLS, "tool_choice": choice, "max_tokens": 64,
               "extra_body": {"block_size": 4, "return_token_ids": True}}
        whole, chunks = chat(**ask), list(chat(stream=True, **ask))
        want, deltas = whole.choices[0].message.tool_calls, [c.choices[0].delta for c in chunks]
        pieces = [c for d in deltas for c in d.tool_calls or []]
        assert all(len(d.tool_calls or []) <= 1 and not d.content for d in deltas), deltas
        # The first piece has the name, and the arguments come in several pieces.
        first, rest = pieces[0], pieces[1:]
        assert first.id.startswith("call_") and first.type == "function" and first.function.name == "store", first
        assert len(rest) > 1 and all(c.id is None and c.type is None and c.function.name is None for c in rest), rest
        assert all(c.index == 0 for c in pieces) and all(c.function.arguments for c in rest), pieces
        assert "".join(c.function.arguments for c in pieces) == want[0].function.arguments
        assert [c.choices[0].finish_reason for c in chunks][-1] == "tool_calls"
        ids = [i for c in chunks for i in getattr(c.choices[0], "token_ids", None) or []]
        assert ids == whole.choices[0].token_ids


@check
def tool_choice_of_an_unknown_tool_is_refused():
    named = {"type": "function", "function": {"name": "fetch"}}
    refused(openai.BadRequestError, lambda: chat(tools=TOOLS, tool_choice=named), "tool_choice", "fetch")
    refused(openai.BadRequestError, lambda: chat(tool_choice="required"), "tool_choice", "no tools")


# ---- Answers in a given form -----------------------------------------------------------------------------------------


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=16)
    age: int = pydantic.Field(ge=0, le=120)
    colour: typing.Literal["red", "green"]
    friends: list["Person"] = pydantic.Field(max_length=1)


@check
def an_answer_is_parsed_to_a_model_of_pydantic():
    ask = {"model": "tiny", "messages": FACTS, "response_format": Person, "max_tokens": 256}
    for temperature in 0, 1.5:
        r = main.client().chat.completions.parse(**ask, temperature=temperature, seed=5)
        assert isinstance(r.choices[0].message.parsed, Person) and r.choices[0].finish_reason == "stop", r
    with main.client().chat.completions.stream(**ask, temperature=0) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.parsed == main.client().chat.completions.parse(
        **ask, temperature=0).choices[0].message.parsed


@check
def a_strict_tool_is_parsed_to_a_model_of_pydantic():
    ask = {"model": "tiny", "messages": FACTS, "tools": [openai.pydantic_function_tool(Person)], "max_tokens": 256,
           "tool_choice": "required", "temperature": 0}
    call = main.client().chat.completions.parse(**ask).choices[0].message.tool_calls[0]
    assert isinstance(call.function.parsed_arguments, Person), call
    with main.client().chat.completions.stream(**ask) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.parsed_arguments == call.function.parsed_arguments


@check
def chat_a_json_object_and_an_expression_are_answers():
    assert isinstance(json.loads(chat(response_format={"type": "json_object"}).choices[0].message.content), dict)
    assert re.fullmatch("[a-f]{3}", chat(extra_body={"guided_regex": "[a-f]{3}"}).choices[0].message.content)
    refused(openai.BadRequestError, lambda: chat(response_format={"type": "json_object"}, stop="a"), "stop", "constraint")
