"""Checks /v1/responses with OpenAI's Python client. Each check is a function and a line of the output.

    UNMASK=build/unmask build/venv/bin/python tests/server/openai_responses.py [NAME...]
"""

import hashlib
import json
import os
import sys
import tempfile
import time
import urllib.error
import urllib.request

import openai

from openai_harness import chat, check, COUNT, COUNTED, events, FACTS, KEY, main, raw, refused, run, Server, SUM
from responses_harness import ANSWER, api, bad, chat_count, conversations, QUESTION, respond, turn, wait_for

STORE = {"type": "function", "name": "store", "description": "Stores a person.",
         "parameters": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}
FORCED = {"input": FACTS, "tools": [STORE], "tool_choice": "required", "max_output_tokens": 64}
# The answers of this server are thoughts to their end, because the model writes no marker after them. It keeps two
# results.
thinker = Server("--reasoning-parser", "think_open", "--dtype", "float32", "--result-max", "2")
# Requests with SLOW take this server 512 passes of a whole sequence each.
slow = Server("--max-queue", "1", "--dtype", "float32", model="models/tiny-full")
SLOW = {"max_output_tokens": 512, "extra_body": {"block_size": 512, "ignore_eos": True}}


def counted(**fields):
    return api().input_tokens.count(model="tiny", **{"input": QUESTION, **fields}).input_tokens


def shows(template):
    return {"extra_body": {"chat_template": template}}


def text_of(response):
    assert [i.type for i in response.output] == ["message"], response.output
    return response.output_text


# ---- Responses -------------------------------------------------------------------------------------------------------


@check
def a_response_answers():
    r = respond()
    assert r.id.startswith("resp_") and r.object == "response" and r.model == "tiny" and r.status == "completed"
    assert text_of(r) == ANSWER and r.error is None and r.incomplete_details is None
    assert abs(r.created_at - time.time()) < 60 and r.completed_at >= r.created_at


@check
def an_output_message_has_the_members_of_the_api():
    item = respond().output[0]
    assert item.id.startswith("msg_") and item.role == "assistant" and item.status == "completed"
    assert [c.type for c in item.content] == ["output_text"]
    assert item.content[0].annotations == [] and item.content[0].logprobs == []


@check
def the_defaults_of_a_request_are_shown():
    r = respond()
    assert (r.instructions, r.metadata, r.previous_response_id, r.max_output_tokens) == (None, {}, None, None)
    assert r.tools == [] and r.tool_choice == "auto" and r.parallel_tool_calls and r.truncation == "disabled"
    assert r.text.format.type == "text" and r.background is False and r.store is True and r.top_logprobs == 0


@check
def the_request_is_shown():
    r = respond(instructions="Be brief.", metadata={"a": "b"}, max_output_tokens=64, temperature=0.5, top_p=0.9,
                user="u", tools=[STORE], tool_choice="none", parallel_tool_calls=False, reasoning={"effort": "low"})
    assert (r.instructions, r.metadata, r.max_output_tokens) == ("Be brief.", {"a": "b"}, 64)
    assert (r.temperature, r.top_p, r.user, r.tool_choice) == (0.5, 0.9, "u", "none")
    assert r.tools[0].name == "store" and r.parallel_tool_calls is False and r.reasoning.effort == "low"


@check
def usage_adds_up():
    u = respond(extra_body={"cache_salt": "usage"}).usage
    assert u.input_tokens == counted() and u.output_tokens > 0 and u.total_tokens == u.input_tokens + u.output_tokens
    assert u.input_tokens_details.cached_tokens == 0 and u.output_tokens_details.reasoning_tokens == 0


@check
def cached_tokens_are_counted():
    long = {"input": "word " * 60, "extra_body": {"cache_salt": "cached"}, "max_output_tokens": 2}
    respond(**long)
    assert respond(**long).usage.input_tokens_details.cached_tokens > 0


@check
def an_answer_that_is_cut_off_is_incomplete():
    r = respond(max_output_tokens=5)
    assert r.status == "incomplete" and r.incomplete_details.reason == "max_output_tokens" and r.completed_at is None
    assert r.usage.output_tokens == 5 and ANSWER.startswith(r.output_text) and r.output[0].status == "incomplete"


@check
def the_answer_is_that_of_chat_completions():
    r = respond(input=COUNT)
    assert text_of(r) == chat(messages=COUNT).choices[0].message.content == COUNTED


@check
def input_may_be_messages():
    assert text_of(respond(input=SUM)) == ANSWER
    typed = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": QUESTION}]}]
    assert text_of(respond(input=typed)) == ANSWER


@check
def parts_of_text_are_joined():
    parts = [{"type": "input_text", "text": "What is "}, {"type": "input_text", "text": "12 + 30?"}]
    assert text_of(respond(input=[{"role": "user", "content": parts}])) == ANSWER


@check
def instructions_are_the_first_turn():
    turns = [{"role": "system", "content": "Be brief."}, *SUM]
    assert counted(instructions="Be brief.") == chat_count(turns) == counted(input=turns) > counted()


@check
def the_developer_is_a_role():
    turns = [{"role": "developer", "content": "Be brief."}, *SUM]
    assert counted(input=turns) == chat_count(turns)


@check
def a_conversation_may_be_sent_as_items():
    first = respond()
    items = [*SUM, *[i.to_dict() for i in first.output], *COUNT]
    turns = [*SUM, {"role": "assistant", "content": ANSWER}, *COUNT]
    assert counted(input=items) == chat_count(turns) and text_of(respond(input=items))


@check
def decoding_parameters_are_fields():
    r = respond(extra_body={"block_size": 16, "buffer_size": 1, "accept_threshold": 0.5, "stop": ["="]})
    assert r.output_text == "12 + 30 "


@check
def the_same_seed_gives_the_same_text():
    def sampled(seed):
        # The bundled models are sure of their answers, so the draws are among letters.
        return respond(temperature=2, max_output_tokens=48,
                       extra_body={"seed": seed, "allowed_token_ids": list(range(65, 90))}).output_text
    assert sampled(7) == sampled(7) != sampled(8)


@check
def fields_without_effect_are_accepted():
    r = respond(safety_identifier="s", prompt_cache_key="k", service_tier="auto", truncation="disabled",
                max_tool_calls=3, text={"format": {"type": "text"}, "verbosity": "medium"},
                prompt_cache_retention="24h", include=["reasoning.encrypted_content"])
    assert text_of(r) == ANSWER and r.safety_identifier == "s" and r.prompt_cache_key == "k"


@check
def an_id_of_the_client_is_part_of_the_id():
    assert respond(extra_body={"request_id": "mine"}).id == "resp_mine"


@check
def extensions_are_members_of_the_response():
    r = respond(extra_body={"return_token_ids": True, "return_timings": True})
    assert len(r.token_ids) == r.usage.output_tokens and r.timings["nfe"] >= 1


@check
def logprobs_name_the_tokens():
    r = respond(include=["message.output_text.logprobs"], top_logprobs=2)
    tokens = r.output[0].content[0].logprobs
    assert "".join(t.token for t in tokens) == ANSWER and all(len(t.top_logprobs) == 2 for t in tokens)
    alone = respond(include=["message.output_text.logprobs"]).output[0].content[0].logprobs
    assert [t.logprob for t in alone] == [t.logprob for t in tokens] and alone[0].top_logprobs == []


# ---- Refusals --------------------------------------------------------------------------------------------------------


@check
def input_is_required():
    status, _, text = raw(main, "/v1/responses", {"model": "tiny"})
    assert status == 400 and json.loads(text)["error"]["param"] == "input"
    bad("input", "must not be empty", input=[])
    bad("input", "a string or a list", extra_body={"input": 5})


@check
def unknown_fields_name_the_nearest():
    bad("temprature", 'did you mean "temperature"', extra_body={"temprature": 1})


@check
def unknown_items_are_refused_by_name_and_place():
    bad("input", "input[1]", input=[*SUM, {"type": "computer_call", "call_id": "c"}])
    bad("input", "item_reference", input=[{"type": "item_reference", "id": "x"}])
    bad("input", "wizard", input=[{"role": "wizard", "content": "x"}])
    bad("input", "expected an object", extra_body={"input": ["x"]})


@check
def images_and_files_are_refused_by_name():
    for part in ({"type": "input_image", "image_url": "data:image/png;base64,"}, {"type": "input_file", "file_id": "f"}):
        bad("input", part["type"], input=[{"role": "user", "content": [part]}])


@check
def what_the_server_does_not_have_is_refused_by_name():
    bad("prompt", "no stored prompts", extra_body={"prompt": {"id": "p"}})
    bad("truncation", "never cuts", truncation="auto")
    bad("include", "file_search_call.results", include=["file_search_call.results"])
    bad("n", "one answer", extra_body={"n": 2})
    bad("messages", "items of input", extra_body={"messages": SUM})
    bad("stream_mode", "settled text", extra_body={"stream_mode": "denoise"})


@check
def formats_are_refused_by_name():
    bad("text", "verse", extra_body={"text": {"format": {"type": "verse"}}})
    bad("text", "verbosity", text={"verbosity": "low"})
    bad("text", "an object", extra_body={"text": "x"})


@check
def fields_of_newer_clients_are_refused_by_name():
    function = {"type": "function", "name": "x", "parameters": {}}
    for param, part, value in (
            ("access_programs", "no access programs", {"cyber": "standard"}),
            ("background_options", "as soon as there is room", {"completion_window": "2h"}),
            ("image", "text only", {"type": "x"}),
            ("context_management", "never cuts", [{"type": "compaction"}]),
            ("moderation", "no model for moderation", {"model": "m"}),
            ("reasoning", 'mode: only "standard"', {"mode": "pro"}),
            ("reasoning", 'context: only "auto"', {"context": "current_turn"}),
            ("text", 'unknown member "colour"', {"colour": 1}),
            ("text", 'verbosity: only "medium"', {"verbosity": 5}),
            ("tools", "tools\"[1]: defer_loading", [function, {**function, "defer_loading": True}]),
            ("tools", "allowed_callers", [{**function, "allowed_callers": ["programmatic"]}]),
            ("tools", "namespace", [{"type": "namespace", "name": "x", "tools": []}]),
            ("tool_choice", "expected", {"type": "programmatic_tool_calling"}),
            ("response_format", "verse", {"type": "verse"}),
            ("modalities", "unknown field", ["audio"])):
        bad(param, part, extra_body={param: value})
    r = respond(extra_body={"background_options": {"completion_window": "soonest"}, "access_programs": {},
                            "reasoning": {"mode": "standard", "context": "auto"},
                            "tools": [{**function, "allowed_callers": ["direct"], "defer_loading": False}]})
    assert r.status == "completed"
    assert respond(thinker, reasoning={"generate_summary": "auto"}).output[0].summary


@check
def types_of_fields_are_checked():
    bad("instructions", "a string", extra_body={"instructions": 5})
    bad("metadata", "an object of texts", extra_body={"metadata": []})
    bad("metadata", "expected a string", extra_body={"metadata": {"a": 1}})
    bad("metadata", "at most 512", metadata={"a": "x" * 513})
    bad("metadata", "at most 16", metadata={str(i): "x" for i in range(17)})
    bad("store", "true or false", extra_body={"store": "yes"})
    bad("background", "true or false", extra_body={"background": 1})
    bad("reasoning", "unknown member", extra_body={"reasoning": {"length": 5}})
    bad("max_output_tokens", extra_body={"max_output_tokens": 0})
    bad("temperature", "0..2", temperature=2.5)
    bad("stream_options", "unknown member", extra_body={"stream": True, "stream_options": {"include_usage": True}})


@check
def an_unknown_model_is_not_found():
    e = refused(openai.NotFoundError, lambda: respond(model="gpt-5"), "model")
    assert e.code == "model_not_found"


@check
def a_prompt_that_is_too_long_is_refused():
    bad("input", "max_model_len is 1024", input="word " * 5000)


@check
def thoughts_can_not_be_left_out_without_a_parser():
    bad("include_reasoning", "--reasoning-parser", extra_body={"include_reasoning": False})


# ---- Storing ---------------------------------------------------------------------------------------------------------


@check
def a_response_is_retrieved():
    r = respond()
    assert api().retrieve(r.id).to_dict() == r.to_dict()


@check
def an_unknown_response_is_not_found():
    refused(openai.NotFoundError, lambda: api().retrieve("resp_nothing"), "response_id")
    refused(openai.NotFoundError, lambda: api().retrieve("1"), "response_id")


@check
def a_response_that_is_not_stored_is_not_found():
    r = respond(store=False)
    assert r.store is False and text_of(r) == ANSWER
    refused(openai.NotFoundError, lambda: api().retrieve(r.id))


@check
def a_response_is_deleted():
    r = respond()
    _, _, text = raw_method("DELETE", "/v1/responses/" + r.id)
    assert json.loads(text) == {"id": r.id, "object": "response", "deleted": True}
    refused(openai.NotFoundError, lambda: api().delete(r.id))


def raw_method(method, path):
    request = urllib.request.Request(main.url + path, None, {"Authorization": "Bearer " + KEY}, method=method)
    with urllib.request.urlopen(request, timeout=60) as r:
        return r.status, r.headers["content-type"], r.read().decode()


@check
def the_oldest_results_are_deleted():
    ids = [respond(thinker, max_output_tokens=1).id for _ in range(3)]
    refused(openai.NotFoundError, lambda: api(thinker).retrieve(ids[0]))
    assert [api(thinker).retrieve(i).id for i in ids[1:]] == ids[1:]


@check
def results_of_other_apis_are_no_responses():
    _, _, text = raw(main, "/v1/generate", {"prompt": "x", "gen_length": 1})
    number = json.loads(text)["request_ids"][0]
    refused(openai.NotFoundError, lambda: api().retrieve(str(number)))
    try:
        raw_method("GET", "/v1/result/" + respond().id)
        raise AssertionError("expected 404")
    except urllib.error.HTTPError as e:
        assert e.code == 404


# ---- Background ------------------------------------------------------------------------------------------------------


@check
def a_background_response_is_retrieved_later():
    r = respond(background=True)
    assert r.status == "in_progress" and r.background is True and r.output == [] and r.usage is None
    done = wait_for(main, r, "completed")
    assert done.id == r.id and text_of(done) == ANSWER and done.background is True
    assert respond(input=COUNT, previous_response_id=r.id).usage.input_tokens > done.usage.total_tokens


@check
def a_background_response_is_cancelled():
    r = respond(slow, background=True, **SLOW)
    c = api(slow).cancel(r.id)
    assert c.status == "cancelled" and api(slow).retrieve(r.id).status == "cancelled"
    # Its place in the queue is free again.
    assert respond(slow, max_output_tokens=1).usage.output_tokens == 1
    refused(openai.BadRequestError, lambda: respond(slow, previous_response_id=r.id), "previous_response_id", "cancelled")


@check
def a_finished_response_is_not_cancelled():
    r = wait_for(main, respond(background=True), "completed")
    assert api().cancel(r.id).status == "completed"
    refused(openai.BadRequestError, lambda: api().cancel(respond().id), "response_id", "background")


@check
def a_running_response_is_deleted_and_can_not_be_continued():
    r = respond(slow, background=True, **SLOW)
    refused(openai.BadRequestError, lambda: respond(slow, previous_response_id=r.id), "previous_response_id")
    api(slow).delete(r.id)
    refused(openai.NotFoundError, lambda: api(slow).retrieve(r.id))
    assert respond(slow, max_output_tokens=1).usage.output_tokens == 1


@check
def a_full_queue_refuses_a_background_response():
    r = respond(slow, background=True, **SLOW)
    e = refused(openai.RateLimitError, lambda: respond(slow, background=True, **SLOW))
    assert e.response.headers["retry-after"]
    api(slow).delete(r.id)


@check
def an_aborted_background_response_is_incomplete():
    r = respond(slow, background=True, **SLOW)
    raw(slow, "/abort_request", {"rid": r.id})
    done = wait_for(slow, r, "incomplete")
    assert done.incomplete_details.reason == "aborted"


@check
def a_background_response_must_be_stored():
    bad("background", "must be stored", background=True, store=False)


@check
def ids_of_background_responses_are_unique():
    named = {"background": True, "extra_body": {"request_id": "twice"}}
    respond(**named)
    bad("request_id", "already", **named)


# ---- Tools -----------------------------------------------------------------------------------------------------------


@check
def tools_reach_the_template():
    names = "{% for t in tools or [] %}{{ t.function.name }} {{ t.function.parameters.required[0] }}{% endfor %}hello"
    assert counted(tools=[STORE], **shows(names)) > counted(**shows(names))
    assert counted(tools=[STORE], tool_choice="none", **shows(names)) == counted(**shows(names))


@check
def a_required_call_is_an_item():
    r = respond(**FORCED)
    call = r.output[0]
    assert [i.type for i in r.output] == ["function_call"] and r.status == "completed" and call.status == "completed"
    assert call.id.startswith("fc_") and call.call_id.startswith("call_") and call.name
    assert isinstance(json.loads(call.arguments), dict)


@check
def an_answer_without_calls_is_a_message():
    assert text_of(respond(tools=[STORE])) == text_of(respond(tools=[STORE], tool_choice="auto"))


@check
def a_tool_is_chosen_by_its_name():
    bad("tool_choice", "fetch", tools=[STORE], tool_choice={"type": "function", "name": "fetch"})
    r = respond(tools=[STORE], tool_choice={"type": "function", "name": "store"})
    assert [i.name for i in r.output] == ["store"] and list(json.loads(r.output[0].arguments)) == ["name"]


def allowed(mode, *names):
    return {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": name} for name in names]}


@check
def allowed_tools_alone_reach_the_template():
    names = shows("{% for t in tools or [] %}{{ t.function.name }} {% endfor %}hello")
    tools = [STORE, {**STORE, "name": "fetch the person"}]
    one = counted(tools=[STORE], **names)
    assert counted(tools=tools, tool_choice=allowed("auto", "store"), **names) == one < counted(tools=tools, **names)
    r = respond(**{**FORCED, "tool_choice": allowed("required", "store")})
    assert [i.type for i in r.output] == ["function_call"] and r.tool_choice.mode == "required"
    bad("tool_choice", 'unknown tool "fetch"', tools=[STORE], tool_choice=allowed("auto", "fetch"))
    bad("tool_choice", "no tools", tool_choice=allowed("auto", "store"))
    bad("tool_choice", "allowed_tools", tools=[STORE], tool_choice=allowed("any", "store"))
    bad("tool_choice", "allowed_tools", tools=[STORE], tool_choice=allowed("auto"))


@check
def tool_choices_are_checked():
    bad("tool_choice", "expected", tools=[STORE], extra_body={"tool_choice": "any"})
    bad("tool_choice", "no tools", tool_choice="required")
    assert respond(thinker, tools=[STORE], tool_choice="required").output[0].type == "function_call"


@check
def tools_of_openais_servers_are_refused():
    bad("tools", "web_search", tools=[{"type": "web_search"}])
    bad("tools", "an object with a name", extra_body={"tools": [{"type": "function"}]})


@check
def calls_and_results_become_turns():
    template = "{% for m in messages %}{{ m.role }}{% for c in m.tool_calls or [] %} {{ c.id }} {{ c.function.name }} " \
               "{{ c.function.arguments.city }}{% endfor %} {{ m.tool_call_id }} {{ m.content }};{% endfor %}"
    items = [{"role": "user", "content": "Where?"},
             {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"city": "Ulm"}'},
             {"type": "function_call_output", "call_id": "a", "output": "found"}, {"role": "user", "content": "And?"}]
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"city": "Ulm"}'}}
    turns = [{"role": "user", "content": "Where?"}, {"role": "assistant", "tool_calls": [call]},
             {"role": "tool", "tool_call_id": "a", "content": "found"}, {"role": "user", "content": "And?"}]
    assert counted(input=items, **shows(template)) == chat_count(turns, template)


@check
def the_result_of_a_call_continues_a_response():
    first = respond(**FORCED)
    result = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "stored"}
    second = respond(input=[result], previous_response_id=first.id)
    kinds = [i.type for i in api().input_items.list(second.id, order="asc")]
    assert kinds == ["message", "function_call", "function_call_output"] and second.status == "completed"


@check
def calls_and_results_are_checked():
    bad("input", "call_id", input=[{"type": "function_call_output", "output": "x"}])
    bad("input", "arguments", input=[{"type": "function_call", "call_id": "a", "name": "f", "arguments": {}}])


# ---- Thoughts --------------------------------------------------------------------------------------------------------


@check
def thoughts_are_an_item():
    r = respond(thinker)
    item = r.output[0]
    assert [i.type for i in r.output] == ["reasoning"] and item.id.startswith("rs_") and item.summary == []
    assert [(c.type, c.text) for c in item.content] == [("reasoning_text", ANSWER)] and r.output_text == ""
    assert 0 < r.usage.output_tokens_details.reasoning_tokens <= r.usage.output_tokens


@check
def thoughts_are_a_summary_where_one_is_asked_for():
    item = respond(thinker, reasoning={"summary": "auto"}).output[0]
    assert [(c.type, c.text) for c in item.summary] == [("summary_text", ANSWER)] and not item.content


@check
def thoughts_can_be_left_out():
    assert respond(thinker, extra_body={"include_reasoning": False}).output == []


@check
def the_effort_reaches_the_template():
    assert counted(reasoning={"effort": "high"}, **shows("{{ reasoning_effort }} hello")) > \
        counted(**shows("{{ reasoning_effort }} hello"))


@check
def thoughts_of_earlier_turns_reach_the_template():
    template = "{% for m in messages %}{{ m.role }} {{ m.reasoning_content }} {{ m.content }}{% endfor %}"
    items = [*SUM, {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Add."}]},
             {"role": "assistant", "content": ANSWER}, *COUNT]
    turns = [*SUM, {"role": "assistant", "content": ANSWER, "reasoning_content": "Add."}, *COUNT]
    assert counted(input=items, **shows(template)) == chat_count(turns, template)


# ---- Streams ---------------------------------------------------------------------------------------------------------


@check
def a_stream_has_the_events_in_order():
    got = list(respond(stream=True))
    kinds = [e.type for e in got]
    assert kinds[:4] == ["response.created", "response.in_progress", "response.output_item.added",
                         "response.content_part.added"]
    assert kinds[-4:] == ["response.output_text.done", "response.content_part.done", "response.output_item.done",
                          "response.completed"]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert [e.sequence_number for e in got] == list(range(len(got)))


@check
def the_events_of_a_stream_agree():
    got = list(respond(stream=True))
    text = "".join(e.delta for e in got if e.type == "response.output_text.delta")
    done = {e.type: e for e in got}
    assert text == ANSWER == done["response.output_text.done"].text == done["response.content_part.done"].part.text
    item = done["response.output_item.done"].item
    assert item.to_dict() == done["response.completed"].response.output[0].to_dict()
    assert done["response.output_item.added"].item.id == item.id == done["response.output_text.delta"].item_id
    assert got[0].response.status == "in_progress" and got[0].response.id == got[-1].response.id


@check
def a_stream_equals_the_whole_response():
    for more in ({"input": COUNT}, {"max_output_tokens": 5}, FORCED,
                 {"include": ["message.output_text.logprobs"], "top_logprobs": 1}):
        last, whole = list(respond(stream=True, **more))[-1], respond(**more)
        assert last.type == "response." + whole.status and last.response.output_text == whole.output_text
        assert [i.type for i in last.response.output] == [i.type for i in whole.output]
        assert last.response.usage.output_tokens == whole.usage.output_tokens
        assert last.response.output[-1].to_dict().get("content", [{}])[-1] == \
            whole.output[-1].to_dict().get("content", [{}])[-1]


@check
def a_streamed_response_is_stored():
    last = list(respond(stream=True))[-1].response
    assert api().retrieve(last.id).to_dict() == last.to_dict()
    assert respond(input=COUNT, previous_response_id=last.id).usage.input_tokens > last.usage.total_tokens


@check
def a_streamed_call_has_its_events():
    got = list(respond(stream=True, extra_body={"block_size": 4}, **FORCED))
    pieces = [e.delta for e in got if e.type == "response.function_call_arguments.delta"]
    assert len(pieces) > 1 and all(pieces), pieces
    assert [e.type for e in got[2:]] == [
        "response.output_item.added", *["response.function_call_arguments.delta"] * len(pieces),
        "response.function_call_arguments.done", "response.output_item.done", "response.completed"]
    added, done, item = got[2].item, got[-3], got[-2].item
    assert (added.arguments, added.status, added.name) == ("", "in_progress", "store") and item.status == "completed"
    assert "".join(pieces) == done.arguments == item.arguments == got[-1].response.output[0].arguments
    assert {e.item_id for e in got[3:-2]} == {added.id} == {item.id} and added.call_id == item.call_id


@check
def streamed_thoughts_have_their_own_events():
    got = list(respond(thinker, stream=True))
    assert "".join(e.delta for e in got if e.type == "response.reasoning_text.delta") == ANSWER
    assert got[-1].response.output[0].content[0].text == ANSWER
    got = list(respond(thinker, stream=True, reasoning={"summary": "auto"}))
    assert "".join(e.delta for e in got if e.type == "response.reasoning_summary_text.delta") == ANSWER
    assert "response.reasoning_summary_part.added" in [e.type for e in got]


@check
def streamed_logprobs_are_those_of_the_deltas():
    got = list(respond(stream=True, input=COUNT, include=["message.output_text.logprobs"],
                       extra_body={"block_size": 16, "buffer_size": 1}))
    deltas = [e for e in got if e.type == "response.output_text.delta"]
    assert len(deltas) > 2 and all(e.logprobs for e in deltas)
    assert "".join(t.token for e in deltas for t in e.logprobs) == COUNTED


@check
def the_helper_for_streams_works():
    with api().stream(model="tiny", input=QUESTION) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        assert text == stream.get_final_response().output_text == ANSWER


@check
def a_stream_ends_without_done():
    lines = events(main, "/v1/responses", {"input": QUESTION, "stream": True, "stream_options":
                                           {"include_obfuscation": False}})
    assert json.loads(lines[-1])["type"] == "response.completed"


@check
def a_stream_that_fails_says_so():
    server = Server("--request-timeout", "0.2", "--dtype", "float32")
    ask = {"max_output_tokens": 900, "extra_body": {"ignore_eos": True, "accept_threshold": 1}, "stream": True}
    try:
        last = list(respond(server, **ask))[-1]
        assert last.type == "response.failed" and "--request-timeout" in last.response.error.message, last
    except openai.APIStatusError as e:  # before the first block
        assert e.status_code == 504, e


# ---- Streams of stored responses -------------------------------------------------------------------------------------

LONG = {"max_output_tokens": 128, "extra_body": {"ignore_eos": True, "accept_threshold": 1}}


def dicts(stream):
    return [e.to_dict() for e in stream]


@check
def the_stream_of_a_stored_response_is_the_first_one():
    for more in ({}, FORCED, {"max_output_tokens": 5}):
        first = dicts(respond(stream=True, **more))
        again = dicts(api().retrieve(first[-1]["response"]["id"], stream=True))
        assert again == first, (first, again)


@check
def a_response_that_did_not_stream_has_events():
    r = respond(input=COUNT)
    got = list(api().retrieve(r.id, stream=True))
    assert [e.sequence_number for e in got] == list(range(len(got))) and got[0].response.status == "in_progress"
    assert "".join(e.delta for e in got if e.type == "response.output_text.delta") == COUNTED
    assert got[-1].type == "response.completed" and got[-1].response.to_dict() == r.to_dict()


@check
def a_stream_goes_on_after_an_event():
    r = respond()
    got = dicts(api().retrieve(r.id, stream=True))
    for number in range(len(got)):
        assert dicts(api().retrieve(r.id, stream=True, starting_after=number)) == got[number + 1:]
    assert dicts(api().retrieve(r.id, stream=True, starting_after=10**9)) == []


@check
def a_background_response_streams():
    got = list(respond(stream=True, background=True))
    assert [e.sequence_number for e in got] == list(range(len(got))) and got[0].response.background is True
    assert got[0].type == "response.created" and got[-1].type == "response.completed"
    assert got[-1].response.output_text == ANSWER
    assert dicts(api().retrieve(got[0].response.id, stream=True)) == [e.to_dict() for e in got]


@check
def a_running_response_is_followed_by_several_clients():
    first = respond(stream=True, background=True, **LONG)
    created = next(first)
    ids = created.response.id
    while next(first).type != "response.output_text.delta":
        pass
    number = next(first).sequence_number
    first.close()  # the response runs on
    later = dicts(api().retrieve(ids, stream=True, starting_after=number))
    assert [e["sequence_number"] for e in later] == list(range(number + 1, number + 1 + len(later)))
    assert later[-1]["type"] == "response.incomplete" and later == dicts(api().retrieve(ids, stream=True))[number + 1:]


@check
def followers_learn_of_the_end():
    for end, last in ((api(slow).cancel, "response.cancelled"), (api(slow).delete, "response.in_progress")):
        stream = respond(slow, stream=True, background=True, **SLOW)
        created = next(stream)
        end(created.response.id)
        assert [e.type for e in stream][-1] == last


@check
def streams_of_stored_responses_are_checked():
    r = respond()
    for query, param in (("stream=yes", "stream"), ("stream=true&starting_after=x", "starting_after"),
                         ("stream=true&starting_after=-1", "starting_after"), ("starting_after=1", "starting_after")):
        try:
            raw_method("GET", f"/v1/responses/{r.id}?{query}")
            raise AssertionError("expected 400: " + query)
        except urllib.error.HTTPError as e:
            assert e.code == 400 and json.load(e)["error"]["param"] == param


# ---- Restarts --------------------------------------------------------------------------------------------------------


def kept(*options, **more):
    """Returns a server with its own folder of state, which is gone when this program ends."""
    folder = tempfile.TemporaryDirectory()
    server = Server("--state-dir", folder.name, "--dtype", "float32", *options, **more)
    server.folder = folder
    return server


def restart(server):
    server.stop()
    server.process = server.usual = None
    return server


def records(server):
    folder = os.path.join(server.folder.name, "responses")
    return [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".json")]


@check
def responses_survive_a_restart():
    server = kept()
    r = respond(server, metadata={"a": "b"})
    streamed = dicts(respond(server, stream=True))
    late = wait_for(server, respond(server, background=True), "completed")
    c = conversations(server).create(items=[turn("user", "one")], metadata={"a": "b"})
    gone = conversations(server).create()
    conversations(server).delete(gone.id)
    spoken = respond(server, conversation=c.id)
    api(server).delete(spoken.id)
    restart(server)
    assert len(records(server)) == 4 and all(os.stat(p).st_mode & 0o777 == 0o600 for p in records(server))
    assert os.stat(os.path.dirname(records(server)[0])).st_mode & 0o777 == 0o700
    assert api(server).retrieve(r.id).to_dict() == r.to_dict()
    assert api(server).retrieve(late.id).to_dict() == late.to_dict()
    assert dicts(api(server).retrieve(streamed[-1]["response"]["id"], stream=True)) == streamed
    assert [i.content[0].text for i in api(server).input_items.list(r.id)] == [QUESTION]
    assert conversations(server).retrieve(c.id) == c
    refused(openai.NotFoundError, lambda: conversations(server).retrieve(gone.id))
    assert [i.content[0].text for i in conversations(server).items.list(c.id, order="asc")][:2] == ["one", QUESTION]
    turns = [*SUM, {"role": "assistant", "content": ANSWER}, *COUNT]
    second = respond(server, input=COUNT, previous_response_id=r.id)
    assert second.usage.input_tokens == chat_count(turns)
    api(server).delete(r.id)
    restart(server)
    refused(openai.NotFoundError, lambda: api(server).retrieve(r.id))
    assert api(server).retrieve(second.id).to_dict() == second.to_dict() and len(records(server)) == 4


@check
def a_response_that_a_restart_interrupted_has_failed():
    server = kept(model="models/tiny-full")
    r = respond(server, background=True, **SLOW)
    deadline = time.time() + 20
    while not records(server):
        assert time.time() < deadline
        time.sleep(0.01)
    server.process.kill()
    server.process.wait()
    server.process = server.usual = None
    got = api(server).retrieve(r.id)
    assert got.status == "failed" and "restarted" in got.error.message
    assert list(api(server).retrieve(r.id, stream=True))[-1].type == "response.failed"
    refused(openai.BadRequestError, lambda: respond(server, previous_response_id=r.id), "previous_response_id", "failed")


@check
def limits_hold_after_a_restart():
    server = kept("--result-max", "2")
    ids = [respond(server, max_output_tokens=1).id for _ in range(3)]
    restart(server)
    assert len(records(server)) == 2
    refused(openai.NotFoundError, lambda: api(server).retrieve(ids[0]))
    last = respond(server, max_output_tokens=1)
    refused(openai.NotFoundError, lambda: api(server).retrieve(ids[1]))
    assert [api(server).retrieve(i).id for i in (ids[2], last.id)] == [ids[2], last.id]
    restart(server)
    server.options += ("--result-ttl", "1")
    time.sleep(1.1)
    refused(openai.NotFoundError, lambda: api(server).retrieve(last.id))
    restart(server)
    assert records(server) == []


@check
def owners_survive_a_restart():
    keys = tempfile.NamedTemporaryFile("w", suffix=".keys")
    for name in ("ann", "bob"):
        keys.write(f"{name} {hashlib.sha256(name.encode() * 8).hexdigest()}\n")
    keys.flush()
    server = kept("--api-key-file", keys.name)

    def of(name):
        return server.client(api_key=name * 8).responses

    asked = {"model": "tiny-block", "input": QUESTION}
    r = of("ann").create(**asked)
    restart(server)
    assert of("ann").retrieve(r.id).id == r.id and of("ann").create(previous_response_id=r.id, **asked)
    refused(openai.NotFoundError, lambda: of("bob").retrieve(r.id))
    c = server.client(api_key="ann" * 8).conversations.create()
    assert of("ann").create(conversation=c.id, **asked).conversation.id == c.id
    refused(openai.NotFoundError, lambda: server.client(api_key="bob" * 8).conversations.retrieve(c.id))
    refused(openai.BadRequestError, lambda: of("bob").create(conversation=c.id, **asked), "conversation")
    refused(openai.BadRequestError, lambda: of("bob").create(previous_response_id=r.id, **asked), "previous_response_id")


@check
def ids_of_clients_are_no_paths_and_broken_records_are_skipped():
    server = kept()
    name = "../../" + os.path.basename(server.folder.name) + "-escaped"
    r = respond(server, extra_body={"request_id": name})
    assert r.id == "resp_" + name
    restart(server)
    assert [len(os.path.basename(p)) for p in records(server)] == [37]
    cut = records(server)[0] + ".new"
    open(cut, "w").close()  # a crash can leave this
    for text in ("", "{}", "[]", '{"id": 5}', '{"id": "resp_x", "owner": "", "response": [], "items": {}}',
                 json.dumps({"id": "resp_" + "x" * 100, "owner": "", "response": {}, "items": []})):
        with open(os.path.join(server.folder.name, "responses", f"{abs(hash(text))}.json"), "w") as f:
            f.write(text)
    again = respond(server, previous_response_id=r.id, input=COUNT)
    assert again.usage.input_tokens > r.usage.total_tokens
    assert open(server.log.name).read().count("skipping the response") == 6 and not os.path.exists(cut)


@check
def results_expire():
    brief = Server("--result-ttl", "1", "--dtype", "float32")
    r = respond(brief)
    deadline = time.time() + 20
    try:
        while time.time() < deadline:
            api(brief).retrieve(r.id)
            time.sleep(0.1)
        raise AssertionError("the result did not expire")
    except openai.NotFoundError:
        pass


sys.exit(run())
