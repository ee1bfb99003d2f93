"""Checks conversations and the input items of responses with OpenAI's Python client. Each check is a function and a
line of the output.

    UNMASK=build/unmask build/venv/bin/python tests/server/openai_conversations.py [NAME...]
"""

import json
import sys
import time

import openai

from openai_harness import check, COUNT, main, refused, run, Server, SUM
from responses_harness import ANSWER, api, bad, chat_count, conversations, QUESTION, respond, turn, wait_for

# ---- Conversations ---------------------------------------------------------------------------------------------------


@check
def a_response_continues_an_earlier_one():
    first = respond(instructions="Be brief.")
    second = respond(input=COUNT, previous_response_id=first.id)
    turns = [*SUM, {"role": "assistant", "content": ANSWER}, *COUNT]
    assert second.previous_response_id == first.id and second.usage.input_tokens == chat_count(turns)


@check
def a_conversation_may_have_many_responses():
    r, turns = None, []
    for question in (QUESTION, "What is 5 + 7?", "What is 2 + 3?"):
        turns.append({"role": "user", "content": question})
        r = respond(input=question, max_output_tokens=24, previous_response_id=r and r.id)
        assert r.usage.input_tokens == chat_count(turns)
        turns.append({"role": "assistant", "content": r.output_text})


@check
def a_conversation_outlives_its_earlier_responses():
    first = respond()
    second = respond(input="What is 5 + 7?", previous_response_id=first.id)
    api().delete(first.id)
    assert respond(previous_response_id=second.id).usage.input_tokens > second.usage.input_tokens


@check
def an_unknown_previous_response_is_refused():
    e = bad("previous_response_id", "resp_nothing", previous_response_id="resp_nothing")
    assert e.code == "previous_response_not_found"
    r = respond(store=False)
    bad("previous_response_id", r.id, previous_response_id=r.id)


@check
def a_long_body_continues_an_earlier_response():
    first = respond()
    text = "word " * 500
    assert len(text) > 2048  # a reader thread parses the body
    second = respond(input=text, previous_response_id=first.id, max_output_tokens=1)
    turns = [*SUM, {"role": "assistant", "content": ANSWER}, {"role": "user", "content": text}]
    assert second.usage.input_tokens == chat_count(turns)


@check
def errors_of_a_continued_input_count_its_own_items():
    bad("input", "input[0]", previous_response_id=respond().id, input=[{"role": "wizard", "content": "x"}])


@check
def a_conversation_is_created_changed_and_deleted():
    c = conversations().create(metadata={"a": "b"})
    assert c.id.startswith("conv_") and c.object == "conversation" and c.metadata == {"a": "b"}
    assert abs(c.created_at - time.time()) < 60 and conversations().retrieve(c.id) == c
    assert conversations().update(c.id, metadata={"c": "d"}).metadata == {"c": "d"}
    assert conversations().retrieve(c.id).metadata == {"c": "d"}
    assert conversations().update(c.id, metadata=None).metadata == {}
    gone = conversations().delete(c.id)
    assert (gone.id, gone.object, gone.deleted) == (c.id, "conversation.deleted", True)
    refused(openai.NotFoundError, lambda: conversations().retrieve(c.id), "conversation_id")
    refused(openai.NotFoundError, lambda: conversations().retrieve(respond().id), "conversation_id")
    refused(openai.NotFoundError, lambda: api().retrieve(conversations().create().id), "response_id")


@check
def items_of_a_conversation_are_added_listed_and_deleted():
    c = conversations().create(items=[turn("user", "one")])
    items = conversations().items
    added = items.create(c.id, items=[turn("assistant", "two"), turn("user", "x" * 70000)]).data
    assert [i.content[0].type for i in added] == ["output_text", "input_text"] and added[0].id.startswith("msg_")
    listed = list(items.list(c.id, order="asc", limit=2))
    assert [i.content[0].text[:9] for i in listed] == ["one", "two", "x" * 9]
    assert items.retrieve(added[0].id, conversation_id=c.id) == added[0]
    assert items.delete(added[0].id, conversation_id=c.id).id == c.id
    assert [i.id for i in items.list(c.id, order="asc")] == [listed[0].id, listed[2].id]
    refused(openai.NotFoundError, lambda: items.retrieve(added[0].id, conversation_id=c.id), "item_id")
    refused(openai.NotFoundError, lambda: items.delete("msg_1", conversation_id=c.id), "item_id")
    refused(openai.NotFoundError, lambda: items.list("conv_1"), "conversation_id")
    refused(openai.NotFoundError, lambda: items.create("conv_1", items=[turn("user", "x")]), "conversation_id")


@check
def bodies_of_conversations_are_checked():
    c = conversations().create()
    add = conversations().items.create
    for param, part, call in (
            ("items", "items[1]", lambda: add(c.id, items=[turn("user", "x"), turn("wizard", "x")])),
            ("items", "at least one", lambda: add(c.id, items=[])),
            ("items", "at most 20", lambda: add(c.id, items=[turn("user", "x")] * 21)),
            ("items", "a list", lambda: add(c.id, items="x")),
            ("items", "computer_call", lambda: conversations().create(items=[{"type": "computer_call"}])),
            ("metadata", "an object of texts", lambda: conversations().create(metadata="x")),
            ("metadata", "missing", lambda: raw_error("POST", f"/v1/conversations/{c.id}", b"{}")),
            ("metadata", "a string", lambda: conversations().update(c.id, metadata={"a": 1})),
            ("colour", "unknown field", lambda: conversations().create(extra_body={"colour": 1}))):
        refused(openai.BadRequestError, call, param, part)
    big = [turn("user", "x" * 1000000)]
    for _ in range(4):
        add(c.id, items=big)
    refused(openai.APIStatusError, lambda: add(c.id, items=big), "items", "at most 4194304")


def raw_error(method, path, body):
    """Sends a request that OpenAI's client does not make, and raises its error."""
    main.client().post(path.removeprefix("/v1"), body=json.loads(body), cast_to=object)


@check
def responses_continue_a_conversation():
    c = conversations().create(items=[turn("system", "Be brief.")])
    first = respond(conversation=c.id)
    assert first.conversation.id == c.id and respond().conversation is None
    second = respond(input=COUNT, conversation={"id": c.id}, stream=True)
    last = list(second)[-1].response
    turns = [{"role": "system", "content": "Be brief."}, *SUM, {"role": "assistant", "content": ANSWER}, *COUNT]
    assert last.conversation.id == c.id and last.usage.input_tokens == chat_count(turns)
    late = wait_for(main, respond(conversation=c.id, background=True), "completed")
    kept = list(conversations().items.list(c.id, order="asc"))
    assert [i.role for i in kept] == ["system"] + ["user", "assistant"] * 3
    assert [i.content[0].text for i in kept][1:4] == [QUESTION, ANSWER, COUNT[0]["content"]]
    assert kept[2].id == first.output[0].id and kept[-1].id == late.output[0].id
    # The items of a response are those of the conversation at its start.
    assert [i.role for i in api().input_items.list(last.id, order="asc")] == ["system", "user", "assistant", "user"]


@check
def a_failed_request_adds_nothing_to_a_conversation():
    hasty = Server("--request-timeout", "0.2", "--dtype", "float32")
    c = conversations(hasty).create()
    long = {"max_output_tokens": 900, "extra_body": {"ignore_eos": True, "accept_threshold": 1}, "conversation": c.id}
    e = refused(openai.InternalServerError, lambda: respond(hasty, **long), part="--request-timeout")
    assert e.status_code == 504 and list(conversations(hasty).items.list(c.id)) == []


@check
def conversations_of_requests_are_checked():
    c = conversations().create()
    bad("conversation", "conv_1", conversation="conv_1")
    bad("conversation", "no conversation", conversation=respond().id)
    bad("conversation", "previous_response_id", conversation=c.id, previous_response_id=respond().id)
    bad("conversation", "must be stored", conversation=c.id, store=False)
    # A member that the server does not know takes no part in the prompt, but is kept.
    bad("conversation", "at most 4194304", conversation=c.id, input=[{**turn("user", "x"), "note": "x" * 5000000}])
    assert list(conversations().items.list(c.id)) == []
    bad("conversation", "expected an id", extra_body={"conversation": {}})
    bad("previous_response_id", "no finished response", previous_response_id=c.id)


# ---- Input items -----------------------------------------------------------------------------------------------------


@check
def input_items_are_listed():
    r = respond()
    items = api().input_items.list(r.id).data
    assert [(i.type, i.role, i.status, i.content[0].type, i.content[0].text) for i in items] == \
        [("message", "user", "completed", "input_text", QUESTION)]
    assert items[0].id.startswith("msg_")


@check
def input_items_of_a_conversation_are_listed_newest_first():
    first = respond()
    second = respond(input="What is 5 + 7?", previous_response_id=first.id)
    texts = [i.content[0].text for i in api().input_items.list(second.id)]
    assert texts == ["What is 5 + 7?", ANSWER, QUESTION]
    assert [i.content[0].text for i in api().input_items.list(second.id, order="asc")] == texts[::-1]


@check
def input_items_come_in_pages():
    r = respond(input=[{"role": "user", "content": f"item {i}"} for i in range(5)], max_output_tokens=1)
    page = api().input_items.list(r.id, limit=2, order="asc")
    assert [i.content[0].text for i in page.data] == ["item 0", "item 1"] and page.has_more
    rest = api().input_items.list(r.id, after=page.last_id, order="asc")
    assert [i.content[0].text for i in rest.data] == ["item 2", "item 3", "item 4"] and not rest.has_more
    assert len(list(api().input_items.list(r.id, limit=2))) == 5  # the client asks for all pages


@check
def pages_are_checked():
    r = respond()
    refused(openai.BadRequestError, lambda: api().input_items.list(r.id, limit=101), "limit")
    refused(openai.BadRequestError, lambda: api().input_items.list(r.id, after="x"), "after")
    refused(openai.BadRequestError, lambda: api().input_items.list(r.id, order="up"), "order")
    refused(openai.NotFoundError, lambda: api().input_items.list("resp_nothing"))


@check
def ids_of_items_are_kept():
    r = respond(input=[{"id": "msg_mine", "type": "message", "role": "user", "content": QUESTION}])
    assert api().input_items.list(r.id).data[0].id == "msg_mine"


@check
def input_tokens_are_counted():
    count = api().input_tokens.count(model="tiny", input=QUESTION)
    assert count.object == "response.input_tokens" and count.input_tokens == respond().usage.input_tokens


sys.exit(run())
