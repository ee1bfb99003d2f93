"""Checks /v1/messages with Anthropic's Python client. Each check is a function and a line of the output.

    UNMASK=build/unmask build/venv/bin/python tests/server/anthropic_messages.py [NAME...]
"""

import contextlib
import io
import json
import re
import sys
import urllib.request

import anthropic

from openai_harness import check, COUNT, COUNTED, extended, FACTS, KEY, main, raw, run, Server, SUM

STORE = {"name": "store", "description": "Stores a person.",
         "input_schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}
ANSWER = "12 + 30 = 42."
# The answers of this server are thoughts to their end, because the model writes no marker after them.
thinker = Server("--reasoning-parser", "think_open", "--dtype", "float32")
# Requests with SLOW take this server 900 passes.
hasty = Server("--request-timeout", "0.2", "--dtype", "float32")
SLOW = {"max_tokens": 900, "extra_body": {"ignore_eos": True, "accept_threshold": 1}}

clients = {}


def client(server=main, **more):
    if more or server not in clients:
        c = anthropic.Anthropic(**{"base_url": server.url, "api_key": KEY, "max_retries": 0, "timeout": 60, **more})
        if more:
            return c
        clients[server] = c
    return clients[server]


def ask(server=main, messages=SUM, **more):
    name = "tiny" if server is main else "tiny-block"
    return client(server).messages.create(**{"model": name, "max_tokens": 64, "messages": messages, **more})


def count(messages=SUM, **more):
    return client().messages.count_tokens(model="tiny", messages=messages, **more).input_tokens


def shows(template):
    """Returns the fields that make a template of the request show a conversation, or just a text."""
    return {"extra_body": {"chat_template": template if "{" in template else "{{ '%s' }}" % template}}


def text_of(message):
    assert [b.type for b in message.content] == ["text"], message
    return message.content[0].text


def refused(kind, call, param=None, part=""):
    """Fails unless the call raises this kind of error, in Anthropic's shape, for this field."""
    try:
        call()
    except kind as e:
        assert e.body["type"] == "error" and set(e.body["error"]) - {"param"} == {"type", "message"}, e.body
        assert param is None or e.body["error"].get("param") == param, e.body
        assert part in e.body["error"]["message"], e.body
        return e.body["error"]
    raise AssertionError(f"expected {kind.__name__}")


def refused_field(param, part="", **fields):
    return refused(anthropic.BadRequestError, lambda: ask(**fields), param, part)


def events_of(**more):
    return list(ask(stream=True, **more))


# ---- Messages --------------------------------------------------------------------------------------------------------


@check
def a_message_answers():
    m = ask()
    assert m.id.startswith("msg_") and m.type == "message" and m.role == "assistant" and m.model == "tiny"
    assert text_of(m) == ANSWER and m.stop_reason == "end_turn" and m.stop_sequence is None


@check
def the_members_are_those_of_the_api():
    _, _, text = raw(main, "/v1/messages", {"max_tokens": 64, "messages": SUM})
    assert set(json.loads(text)) == {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"}


@check
def usage_counts_the_prompt_once():
    salted = {"extra_body": {"cache_salt": "usage"}}
    long = [{"role": "user", "content": "word " * 60}]
    first, second = ask(messages=long, **salted).usage, ask(messages=long, **salted).usage
    assert first.cache_read_input_tokens == 0 and first.cache_creation_input_tokens == 0
    assert second.cache_read_input_tokens > 0
    assert second.input_tokens + second.cache_read_input_tokens == first.input_tokens == count(long)


@check
def max_tokens_is_exact():
    m = ask(max_tokens=5)
    assert m.usage.output_tokens == 5 and m.stop_reason == "max_tokens" and ANSWER.startswith(text_of(m))


@check
def stop_sequences_end_the_answer():
    m = ask(stop_sequences=["?", "="])
    assert text_of(m) == "12 + 30 " and m.stop_reason == "stop_sequence" and m.stop_sequence == "="


@check
def stop_sequences_are_checked():
    refused_field("stop_sequences", "array of strings", extra_body={"stop_sequences": "="})
    refused_field("stop_sequences", "is empty", stop_sequences=[""])
    refused_field("stop_sequences", "at most", stop_sequences=["x"] * 17)


@check
def blocks_of_text_are_joined():
    parts = [{"type": "text", "text": "What is "}, {"type": "text", "text": "12 + 30?"}]
    assert text_of(ask(messages=[{"role": "user", "content": parts}])) == ANSWER


@check
def system_is_the_first_turn():
    shown = shows("{% for m in messages %}{{ m.role }} {{ m.content }}\n{% endfor %}")
    alone = count(**shown)
    text = count(system="Be brief.", **shown)
    blocks = count(system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}], **shown)
    turn = count(messages=[{"role": "system", "content": "Be brief."}, *SUM], **shown)
    assert alone < text == blocks == turn


@check
def system_must_be_text():
    refused_field("system", "expected a string", extra_body={"system": 5})
    refused_field("system", "text only", extra_body={"system": [{"type": "image"}]})


@check
def a_conversation_has_turns():
    turns = [*SUM, {"role": "assistant", "content": ANSWER}, *COUNT]
    assert text_of(ask(messages=turns)) and count(turns) > count() + count(COUNT) - 3


@check
def a_last_turn_of_the_assistant_is_continued():
    assert text_of(ask(messages=[*SUM, {"role": "assistant", "content": "12 + 30"}])) == " = 42."
    block = [{"type": "text", "text": "12 + 30"}]
    assert text_of(ask(messages=[*SUM, {"role": "assistant", "content": block}])) == " = 42."


@check
def temperature_top_p_and_top_k_are_read():
    def sampled(**more):
        # The bundled models are sure of their answers, so the draws are among letters.
        letters = {"allowed_token_ids": list(range(65, 90))}
        return text_of(ask(max_tokens=48, extra_body={"temperature": 2, "seed": 7, **letters, **more}))
    assert sampled() == sampled() != sampled(seed=8)
    assert sampled(top_k=1) == sampled(top_k=1, seed=8) == sampled(top_p=0.001)
    refused_field("temperature", "0..2", extra_body={"temperature": 2.5})
    refused_field("top_p", extra_body={"top_p": 1.5})
    refused_field("top_k", extra_body={"top_k": -2})


@check
def decoding_parameters_are_fields():
    assert text_of(ask(extra_body={"block_size": 16, "buffer_size": 1, "accept_threshold": 0.5})) == ANSWER


@check
def fields_without_effect_are_accepted():
    m = ask(metadata={"user_id": "u"}, service_tier="auto", extra_body={"inference_geo": "eu"},
            thinking={"type": "disabled"}, extra_headers={"anthropic-beta": "x-2026-01-01"})
    assert text_of(m) == ANSWER


@check
def the_beta_path_is_the_same():
    m = client().beta.messages.create(model="tiny", max_tokens=64, messages=SUM)
    assert m.content[0].text == ANSWER


@check
def bearer_tokens_are_keys_too():
    m = client(api_key=None, auth_token=KEY).messages.create(model="tiny", max_tokens=64, messages=SUM)
    assert text_of(m) == ANSWER


@check
def the_request_id_is_returned():
    assert ask(extra_headers={"x-request-id": "mine"})._request_id == "mine" and ask()._request_id


@check
def an_id_of_the_client_is_part_of_the_id():
    assert ask(extra_body={"request_id": "r1"}).id == "msg_r1"


@check
def extensions_are_members_of_the_message():
    m = ask(extra_body={"return_token_ids": True, "return_step_map": True})
    assert len(m.token_ids) == len(m.step_map) == m.usage.output_tokens


@check
def models_are_listed_and_retrieved():
    page = client().models.list()
    assert [m.id for m in page] == ["tiny", "default"] and not page.has_more and page.first_id == "tiny"
    m = client().models.retrieve("default")
    assert m.type == "model" and m.display_name == "default" and m.created_at.year >= 2024
    refused(anthropic.NotFoundError, lambda: client().models.retrieve("claude-x"))


@check
def the_programs_of_the_page_of_clients_work():
    programs = re.findall(r"^## (?:openai|anthropic)\n\n```python\n(.*?)```", open("docs/clients.md").read(), re.S | re.M)
    for program in programs:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(program.replace("http://127.0.0.1:8000", extended.url), {})
        assert ANSWER in out.getvalue(), program
    assert len(programs) == 2


# ---- Counting --------------------------------------------------------------------------------------------------------


@check
def count_tokens_is_what_a_message_uses():
    assert count() == ask(extra_body={"cache_salt": "count"}).usage.input_tokens
    assert count(system="Be brief.") == ask(system="Be brief.").usage.input_tokens


@check
def count_tokens_counts_prompts_that_are_too_long():
    assert count([{"role": "user", "content": "word " * 5000}]) > 5000


@check
def count_tokens_checks_the_fields():
    refused(anthropic.BadRequestError, lambda: count([]), "messages", "an empty one")
    refused(anthropic.BadRequestError, lambda: count(extra_body={"nonsense": 1}), "nonsense", "unknown field")


# ---- Errors ----------------------------------------------------------------------------------------------------------


@check
def unknown_fields_name_the_nearest():
    refused_field("temprature", 'did you mean "temperature"', extra_body={"temprature": 1})


@check
def missing_and_empty_messages_are_refused():
    status, _, text = raw(main, "/v1/messages", {"max_tokens": 5})
    assert status == 400 and json.loads(text)["error"]["param"] == "messages"
    refused_field("messages", "an empty one", messages=[])
    refused_field("messages", "at least one block", messages=[{"role": "user", "content": []}])


@check
def unknown_roles_and_blocks_are_refused():
    refused_field("messages", "wizard", messages=[{"role": "wizard", "content": "x"}])
    refused_field("messages", "messages[0].content[0]", messages=[{"role": "user", "content": ["x"]}])
    use = {"type": "tool_use", "id": "t", "name": "n", "input": {}}
    refused_field("messages", "tool_use", messages=[{"role": "user", "content": [use]}])


@check
def images_and_documents_are_refused_by_name():
    image = {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/x.png"}}
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}
    for block in (image, document):
        refused_field("messages", block["type"], messages=[{"role": "user", "content": [block]}])


@check
def what_the_server_does_not_have_is_refused_by_name():
    refused_field("container", "runs no tools", extra_body={"container": "c"})
    refused_field("mcp_servers", "runs no tools", extra_body={"mcp_servers": [{"type": "url"}]})
    refused_field("output_config", "schema", extra_body={"output_config": {"format": {"type": "json_schema"}}})
    tool = {"name": "x", "input_schema": {"type": "object"}}
    for param, part, value in (
            ("output_config", 'unknown member "colour"', {"colour": 1}),
            ("output_format", "schema", {"type": "json_schema"}),
            ("speed", "one speed", "fast"),
            ("diagnostics", "no diagnostics", {}),
            ("thread", "no threads", {"id": "x"}),
            ("compaction", "never cuts", {}),
            ("fallbacks", "one model", [{"model": "x"}]),
            ("thinking", 'unknown member "colour"', {"type": "disabled", "colour": 1}),
            ("thinking", "expected an object with the type", {"type": "between_tools"}),
            ("tool_choice", 'unknown member "colour"', {"type": "auto", "colour": 1}),
            ("tools", "defer_loading", [{**tool, "defer_loading": True}]),
            ("tools", "allowed_callers", [{**tool, "allowed_callers": ["code_execution_20260120"]}]),
            ("tools", "web_search_20250305", [{"type": "web_search_20250305", "name": "web_search"}]),
            ("billing_policy", "unknown field", {})):
        refused_field(param, part, extra_body={param: value})
    refused_field("n", "one answer", extra_body={"n": 2})
    refused_field("stream_mode", "settled text", extra_body={"stream_mode": "denoise"})


@check
def fields_without_effect_are_accepted():
    tool = {"name": "x", "input_schema": {"type": "object"}, "input_examples": [{}], "eager_input_streaming": True}
    assert ask(extra_body={"speed": "standard", "workspace_id": "w", "user_profile_id": "u", "output_config": {},
                           "tools": [tool]}).stop_reason


@check
def the_effort_reaches_the_template():
    effort = "{{ reasoning_effort }} hello"
    assert ask(extra_body={"output_config": {"effort": "high"}, **shows(effort)["extra_body"]}).usage.input_tokens > \
        ask(**shows(effort)).usage.input_tokens


@check
def an_unknown_model_is_not_found():
    e = refused(anthropic.NotFoundError, lambda: ask(model="claude-x"), "model", "claude-x")
    assert e["type"] == "not_found_error"


@check
def a_wrong_key_is_an_authentication_error():
    wrong = client(api_key="sk-wrong")
    e = refused(anthropic.AuthenticationError,
                lambda: wrong.messages.create(model="tiny", max_tokens=5, messages=SUM))
    assert e["type"] == "authentication_error"


@check
def an_unknown_path_is_not_found_in_the_same_shape():
    refused(anthropic.NotFoundError, lambda: client().messages.batches.list())


@check
def malformed_json_is_an_invalid_request():
    status, _, text = raw(main, "/v1/messages", b'{"messages": [')
    assert status == 400 and json.loads(text)["error"]["type"] == "invalid_request_error"


@check
def other_clients_keep_openais_errors():
    status, _, text = raw(main, "/v1/chat/completions", {"messages": []})
    assert status == 400 and "type" not in json.loads(text) and "code" in json.loads(text)["error"]


@check
def a_prompt_that_is_too_long_is_refused():
    refused_field("messages", "max_model_len is 1024", messages=[{"role": "user", "content": "word " * 5000}])


# ---- Tools -----------------------------------------------------------------------------------------------------------


@check
def tools_reach_the_template():
    names = "{% for t in tools or [] %}{{ t.function.name }} {{ t.function.description }} " \
            "{{ t.function.parameters.required[0] }}{% endfor %}hello"
    spelled, plain = count(**shows("store Stores a person. namehello")), count(**shows("hello"))
    assert count(tools=[STORE], **shows(names)) == spelled > plain == count(**shows(names))
    assert count(tools=[STORE], tool_choice={"type": "none"}, **shows(names)) == plain


@check
def a_required_call_is_a_block():
    m = ask(messages=FACTS, tools=[STORE], tool_choice={"type": "any"})
    assert m.stop_reason == "tool_use" and [b.type for b in m.content] == ["tool_use"], m
    assert m.content[0].id.startswith("toolu_") and m.content[0].name and isinstance(m.content[0].input, dict)


@check
def an_answer_without_calls_is_text():
    m = ask(tools=[STORE], tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert m.stop_reason == "end_turn" and text_of(m)


@check
def a_tool_is_chosen_by_its_name():
    refused_field("tool_choice", "fetch", tools=[STORE], tool_choice={"type": "tool", "name": "fetch"})
    with client().messages.stream(model="tiny", max_tokens=64, messages=FACTS, tools=[STORE],
                                  extra_body={"block_size": 4}, tool_choice={"type": "tool", "name": "store"}) as stream:
        got = list(stream)
        m = stream.get_final_message()
    pieces = [e.delta.partial_json for e in got if e.type == "content_block_delta"]
    assert len(pieces) > 1 and json.loads("".join(pieces)) == m.content[0].input, pieces
    assert [e.type for e in got].count("content_block_start") == [e.type for e in got].count("content_block_stop") == 1
    assert m.stop_reason == "tool_use" and [b.name for b in m.content] == ["store"], m
    assert list(m.content[0].input) == ["name"] and isinstance(m.content[0].input["name"], str), m


@check
def tool_choices_are_checked():
    refused_field("tool_choice", "expected an object", extra_body={"tool_choice": "any"})
    refused_field("tool_choice", "name of the tool", tools=[STORE], extra_body={"tool_choice": {"type": "tool"}})
    refused_field("tool_choice", "no tools", tool_choice={"type": "any"})
    assert ask(thinker, tools=[STORE], tool_choice={"type": "any"}).content[0].type == "tool_use"


@check
def tools_of_anthropics_servers_are_refused():
    refused_field("tools", "web_search_20250305", tools=[{"type": "web_search_20250305", "name": "web_search"}])
    refused_field("tools", "a name", extra_body={"tools": [{"input_schema": {}}]})


@check
def calls_and_results_become_turns():
    template = "{% for m in messages %}{{ m.role }}{% for c in m.tool_calls or [] %} {{ c.id }} {{ c.function.name }} " \
               "{{ c.function.arguments.city }}{% endfor %} {{ m.tool_call_id }} {{ m.content }};{% endfor %}"
    turns = [{"role": "user", "content": "Where?"},
             {"role": "assistant", "content": [{"type": "text", "text": "Look."},
                                               {"type": "tool_use", "id": "a", "name": "f", "input": {"city": "Ulm"}}]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "is_error": False,
                                           "content": [{"type": "text", "text": "found"}]},
                                          {"type": "text", "text": "And?"}]}]
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"city": "Ulm"}}}
    same = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Look.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "found"}, {"role": "user", "content": "And?"}]
    _, _, text = raw(main, "/tokenize", {"messages": same, "chat_template": template})
    assert count(turns, **shows(template)) == json.loads(text)["count"]


@check
def results_of_calls_are_checked():
    result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image", "source": {}}]}
    refused_field("messages", "content[0].content[0]", messages=[{"role": "user", "content": [result]}])
    refused_field("messages", "tool_use_id", messages=[{"role": "user", "content": [{"type": "tool_result"}]}])


# ---- Thoughts --------------------------------------------------------------------------------------------------------


@check
def thoughts_are_blocks_where_they_are_asked_for():
    m = ask(thinker, max_tokens=2000, thinking={"type": "enabled", "budget_tokens": 1024},
            extra_body={"max_tokens": 64})
    assert [(b.type, b.thinking) for b in m.content] == [("thinking", ANSWER)]
    assert ask(thinker).content == [] and ask(thinker, thinking={"type": "adaptive"}).content[0].thinking == ANSWER


@check
def thoughts_need_a_parser():
    refused_field("thinking", "--reasoning-parser", thinking={"type": "enabled", "budget_tokens": 1024})
    refused_field("thinking", "expected an object", extra_body={"thinking": {"type": "much"}})
    assert text_of(ask(thinking={"type": "adaptive"})) == ANSWER


@check
def thoughts_of_earlier_turns_reach_the_template():
    turns = [*SUM, {"role": "assistant", "content": [{"type": "thinking", "thinking": "Add.", "signature": ""},
                                                     {"type": "text", "text": ANSWER}]}, *COUNT]
    template = "{% for m in messages %}{{ m.reasoning_content }}{% endfor %}hello"
    assert count(turns, **shows(template)) == count(**shows("Add.hello"))


@check
def streamed_thoughts_have_their_own_deltas():
    events = list(ask(thinker, stream=True, thinking={"type": "adaptive"}))
    assert events[1].content_block.type == "thinking"
    deltas = [e.delta for e in events if e.type == "content_block_delta"]
    assert "".join(d.thinking for d in deltas) == ANSWER and {d.type for d in deltas} == {"thinking_delta"}


# ---- Streams ---------------------------------------------------------------------------------------------------------


@check
def a_stream_has_the_events_in_order():
    events = events_of()
    kinds = [e.type for e in events]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    assert "".join(e.delta.text for e in events if e.type == "content_block_delta") == ANSWER
    assert events[0].message.content == [] and events[0].message.stop_reason is None


@check
def a_stream_equals_the_whole_message():
    for more in ({"messages": COUNT}, {"stop_sequences": ["="]}, {"max_tokens": 5}):
        with client().messages.stream(model="tiny", **{"max_tokens": 64, "messages": SUM, **more}) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        want = ask(**more)
        assert text == text_of(final) == text_of(want)
        assert (final.stop_reason, final.stop_sequence) == (want.stop_reason, want.stop_sequence)
        assert final.usage.output_tokens == want.usage.output_tokens


@check
def a_streamed_call_equals_the_whole_call():
    tools = {"messages": FACTS, "tools": [STORE], "tool_choice": {"type": "any"}}
    with client().messages.stream(model="tiny", max_tokens=64, **tools) as stream:
        got = stream.get_final_message()
    want = ask(**tools)
    assert [(b.name, b.input) for b in got.content] == [(b.name, b.input) for b in want.content]
    assert got.stop_reason == "tool_use"


@check
def a_long_answer_comes_in_several_deltas():
    deltas = [e for e in events_of(messages=COUNT, extra_body={"block_size": 16, "buffer_size": 1})
              if e.type == "content_block_delta"]
    assert len(deltas) > 2 and "".join(d.delta.text for d in deltas) == COUNTED


@check
def events_have_names_and_no_done():
    request = urllib.request.Request(main.url + "/v1/messages", json.dumps(
        {"max_tokens": 64, "messages": SUM, "stream": True}).encode(),
        {"x-api-key": KEY, "Content-Type": "application/json", "anthropic-version": "2023-06-01"})
    with urllib.request.urlopen(request, timeout=60) as r:
        assert r.headers["content-type"] == "text/event-stream"
        blocks = r.read().decode().strip().split("\n\n")
    for block in blocks:
        name, data = block.split("\n")
        assert name == "event: " + json.loads(data[6:])["type"], block
    assert any(b.startswith("event: ping") for b in blocks) and "[DONE]" not in blocks[-1]


@check
def a_stream_that_times_out_ends_with_an_error():
    try:
        list(ask(hasty, stream=True, **SLOW))
    except anthropic.APIStatusError as e:
        assert e.body["error"]["type"] == "timeout_error" and "--request-timeout" in str(e), e
        return
    raise AssertionError("expected an error")


sys.exit(run())
