"""Calls of the responses API, for the checks of responses and of conversations."""

import json
import time

import openai

from openai_harness import main, raw, refused

QUESTION, ANSWER = "What is 12 + 30?", "12 + 30 = 42."


def respond(server=main, **more):
    name = "tiny" if server is main else server.model.split("/")[1]
    return server.client().responses.create(**{"model": name, "input": QUESTION, **more})


def api(server=main):
    return server.client().responses


def bad(param, part="", **fields):
    return refused(openai.BadRequestError, lambda: respond(**fields), param, part)


def chat_count(messages, template=None):
    """Returns the number of tokens of a conversation in the form of chat completions."""
    body = {"messages": messages, **({"chat_template": template} if template else {})}
    return json.loads(raw(main, "/tokenize", body)[2])["count"]


def wait_for(server, response, *states):
    deadline = time.time() + 60
    while response.status not in states:
        assert time.time() < deadline, response.status
        time.sleep(0.02)
        response = api(server).retrieve(response.id)
    return response


def conversations(server=main):
    return server.client().conversations


def turn(role, content):
    return {"type": "message", "role": role, "content": content}
