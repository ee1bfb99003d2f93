"""Checks /openapi.json: it has every endpoint, and the server refuses the values that its schemas refuse.

    UNMASK=build/unmask build/venv/bin/python tests/server/openapi_document.py [NAME...]
"""

import http.client
import json
import subprocess
import sys

from openai_harness import check, run, Server, SUM, SUM_PROMPT, UNMASK

server = Server("--reasoning-parser", "think", "--dtype", "float32")
# The fields that a body needs, for each schema.
NEEDED = {"chat": {"messages": SUM}, "messages": {"messages": SUM}, "responses": {"input": "x"},
          "sglang": {"text": SUM_PROMPT}}
VALUES = {"string": "x", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
LISTED = []


def document():
    if not LISTED:
        LISTED.append(json.loads(asked("GET", "/openapi.json")[1]))
    return LISTED[0]


connections = {}


def asked(method, path, body=None):
    """Sends a request on a connection that stays open. Returns the status and the text of the response."""
    c = connections.get("c") or http.client.HTTPConnection(server.url.split("//")[1], timeout=60)
    connections["c"] = c
    c.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
    r = c.getresponse()
    return r.status, r.read().decode()


def bodies():
    """Yields the path, the name and the schema of every body of a generation."""
    for path, methods in document()["paths"].items():
        for choice in methods.get("post", {}).get("requestBody", {}).get(
                "content", {}).get("application/json", {}).get("schema", {}).get("anyOf", []):
            name = choice["$ref"].split("/")[-1]
            yield path, name, document()["components"]["schemas"][name]


def refused(path, name, field, value):
    """Fails unless the server answers 400 and names the field."""
    needed = NEEDED.get(name, {"prompt": SUM_PROMPT})
    more = {"return_logprob": True} if field == "top_logprobs_num" else {}
    status, text = asked("POST", path, {**needed, **more, field: value})
    error = json.loads(text).get("error", {})
    assert status == 400 and error.get("param") == field, f"{path} ({name}): {field}: {value}: {status} {text[:300]}"


def fits(value, types):
    kinds = {bool: {"boolean"}, int: {"integer", "number"}, float: {"number"}, str: {"string"}, list: {"array"},
             dict: {"object"}}[type(value)]
    return bool(kinds & set(types))


# ---- The document ----------------------------------------------------------------------------------------------------


@check
def it_has_every_endpoint():
    out = subprocess.run([UNMASK, "list", "--json", "endpoints"], capture_output=True, check=True).stdout
    listed = {e["name"] for e in json.loads(out)["endpoints"]}
    shown = {f"{method.upper()} {path}" for path, methods in document()["paths"].items() for method in methods}
    assert shown == listed and len(shown) > 60, shown ^ listed


@check
def it_is_openapi_3_1():
    d = document()
    assert d["openapi"] == "3.1.0" and d["info"]["title"] == "unmask" and d["info"]["version"]
    for path, methods in d["paths"].items():
        for operation in methods.values():
            assert operation["summary"] and operation["tags"] and operation["responses"]["200"]["description"]
            declared = [p["name"] for p in operation.get("parameters", []) if p["in"] == "path"]
            assert declared == [part[1:-1] for part in path.split("/") if part.startswith("{")], path


@check
def every_api_has_a_schema():
    assert {name for _, name, _ in bodies()} == set(document()["components"]["schemas"])
    assert {"/v1/chat/completions", "/chat/completions", "/v1/messages", "/v1/responses", "/generate"} <= \
        {path for path, _, _ in bodies()}


@check
def every_field_has_a_type_or_values_or_a_reason():
    for path, name, schema in bodies():
        assert schema["additionalProperties"] is False and len(schema["properties"]) > 60
        for field, s in schema["properties"].items():
            assert "type" in s or "enum" in s or s["description"].startswith("without effect"), (path, field, s)


# ---- The server and the document -------------------------------------------------------------------------------------


@check
def bodies_need_one_of_the_required_fields():
    for path, name, schema in bodies():
        status, text = asked("POST", path, {"n": 1})
        assert status == 400, (path, text)
        assert any(choice["required"][0] in schema["properties"] for choice in schema["anyOf"])


@check
def unknown_fields_are_refused():
    for path, name, _ in bodies():
        refused(path, name, "no_such_field", 1)


@check
def values_of_other_types_are_refused():
    n = 0
    for path, name, schema in bodies():
        for field, s in schema["properties"].items():
            for value in VALUES.values() if "type" in s else []:
                if not fits(value, s["type"]):
                    refused(path, name, field, value)
                    n += 1
    assert n > 2000, n


@check
def values_beyond_a_range_are_refused():
    n = 0
    for path, name, schema in bodies():
        for field, s in schema["properties"].items():
            if "minimum" in s:
                refused(path, name, field, s["minimum"] - 1)
                refused(path, name, field, s["maximum"] + 1)
                n += 1
    assert n > 100, n


@check
def values_outside_an_enumeration_are_refused():
    for path, name, schema in bodies():
        for field, s in schema["properties"].items():
            if "enum" in s:
                refused(path, name, field, "no such value")


@check
def null_means_not_given():
    for path, name, schema in bodies():
        needed = NEEDED.get(name, {"prompt": SUM_PROMPT})
        nulls = {f: None for f in schema["properties"] if f not in needed and f not in ("text", "input_ids")}
        status, text = asked("POST", path, {**nulls, **needed, "max_tokens": 1, "stream": False})
        assert status == 200, (path, name, text)


sys.exit(run())
