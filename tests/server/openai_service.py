"""Files, batches, models, keys, limits and errors."""

import concurrent.futures
import json
import time

import openai

from openai_harness import (batches, chat, check, COUNT, COUNTED, joined, main, raw, refused, slow, SLOW, SUM,
                            SUM_PROMPT)

# ---- Files and batches -----------------------------------------------------------------------------------------------


def batch_lines(bodies, url="/v1/chat/completions"):
    return "".join(json.dumps({"custom_id": f"line-{i}", "method": "POST", "url": url, "body": b}) + "\n"
                   for i, b in enumerate(bodies)).encode()


def run_batch(data, endpoint="/v1/chat/completions", **more):
    c = batches.client()
    file = c.files.create(file=("batch.jsonl", data), purpose="batch")
    batch = c.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h", **more)
    deadline = time.time() + 60
    while batch.status not in ("completed", "failed", "expired", "cancelled"):
        assert time.time() < deadline, batch
        time.sleep(0.05)
        batch = c.batches.retrieve(batch.id)
    return batch


def lines_of(file_id):
    return [json.loads(line) for line in batches.client().files.content(file_id).text.splitlines()]


@check
def files_are_kept_listed_and_deleted():
    c = batches.client()
    file = c.files.create(file=("two.jsonl", b"one\ntwo\n"), purpose="batch")
    assert file.object == "file" and file.bytes == 8 and file.filename == "two.jsonl"
    assert c.files.retrieve(file.id).id == file.id and file.id in [f.id for f in c.files.list()]
    assert c.files.content(file.id).read() == b"one\ntwo\n"
    assert c.files.delete(file.id).deleted
    refused(openai.NotFoundError, lambda: c.files.retrieve(file.id))


@check
def a_batch_answers_every_line_once():
    asks = [{"model": "tiny-block", "messages": m, "max_tokens": 64} for m in (SUM, COUNT)]
    batch = run_batch(batch_lines(asks))
    assert batch.status == "completed" and batch.request_counts.completed == 2
    got = {line["custom_id"]: line["response"] for line in lines_of(batch.output_file_id)}
    assert set(got) == {"line-0", "line-1"} and all(r["status_code"] == 200 for r in got.values())
    contents = [got[f"line-{i}"]["body"]["choices"][0]["message"]["content"] for i in range(2)]
    assert contents == ["12 + 30 = 42.", COUNTED]


@check
def a_batch_of_completions_equals_the_endpoint():
    batch = run_batch(batch_lines([{"model": "tiny-block", "prompt": SUM_PROMPT}], "/v1/completions"), "/v1/completions")
    body = lines_of(batch.output_file_id)[0]["response"]["body"]
    assert body["object"] == "text_completion" and body["choices"][0]["text"] == "12 + 30 = 42."


@check
def a_batch_lists_the_failed_lines():
    good = {"model": "tiny-block", "messages": SUM}
    batch = run_batch(batch_lines([good, {**good, "temperature": "hot"}]))
    assert batch.request_counts.completed == 1 and batch.request_counts.failed == 1, batch
    failed = lines_of(batch.error_file_id)[0]
    assert failed["custom_id"] == "line-1" and failed["response"]["body"]["error"]["param"] == "temperature", failed


@check
def files_and_answers_expire_as_requested():
    c = batches.client()
    assert c.files.create(file=("one.jsonl", b"one\n"), purpose="batch").expires_at is None
    after = {"anchor": "created_at", "seconds": 3600}
    file = c.files.create(file=("one.jsonl", b"one\n"), purpose="batch", expires_after=after)
    assert file.expires_at == file.created_at + 3600 == c.files.retrieve(file.id).expires_at
    batch = run_batch(batch_lines([{"model": "tiny-block", "messages": SUM}]), output_expires_after=after)
    answers = c.files.retrieve(batch.output_file_id)
    assert answers.expires_at == answers.created_at + 3600


# ---- Models, keys, errors --------------------------------------------------------------------------------------------


@check
def models_are_listed():
    models = main.client().models.list().data
    assert models[0].id == "tiny" and models[0].object == "model" and models[0].max_model_len == 1024


@check
def a_model_is_retrieved():
    assert main.client().models.retrieve("tiny").id == "tiny"
    refused(openai.NotFoundError, lambda: main.client().models.retrieve("gpt-4o"))


@check
def a_second_name_is_the_same_model():
    r = main.client().chat.completions.create(model="default", messages=SUM)
    assert r.choices[0].message.content == "12 + 30 = 42."


@check
def an_unknown_model_is_not_found():
    e = refused(openai.NotFoundError, lambda: main.client().chat.completions.create(model="gpt-4o", messages=SUM), "model")
    assert e.code == "model_not_found"


@check
def a_wrong_key_is_an_authentication_error():
    refused(openai.AuthenticationError, lambda: main.client(api_key="sk-wrong").models.list())
    refused(openai.AuthenticationError,
            lambda: main.client(api_key="sk-wrong").chat.completions.create(model="tiny", messages=SUM))


@check
def an_unknown_path_is_not_found():
    refused(openai.NotFoundError, lambda: main.client().embeddings.create(model="tiny", input="x"))


@check
def malformed_json_is_a_bad_request():
    status, _, text = raw(main, "/v1/chat/completions", b'{"messages": [')
    error = json.loads(text)["error"]
    assert status == 400 and error["type"] == "invalid_request_error"
    assert set(error) == {"message", "type", "param", "code"}


@check
def request_ids_are_returned():
    r = main.client().chat.completions.with_raw_response.create(model="tiny", messages=SUM,
                                                                extra_headers={"x-request-id": "conformance-1"})
    assert r.headers["x-request-id"] == "conformance-1"
    assert chat()._request_id


@check
def a_slow_answer_times_out():
    try:
        chat(slow, **SLOW)
    except openai.APIStatusError as e:
        assert e.status_code == 504 and "--request-timeout" in str(e), e
        return
    raise AssertionError("expected 504")


@check
def a_slow_stream_ends_with_an_error_event():
    try:
        joined(chat(slow, stream=True, **SLOW))
    except openai.APIError as e:
        assert "--request-timeout" in str(e), e
        return
    raise AssertionError("expected an error")


@check
def a_full_queue_is_a_rate_limit():
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(lambda: chat(slow, **SLOW)) for _ in range(4)]
        errors = [f.exception() for f in futures]
    limited = [e for e in errors if isinstance(e, openai.RateLimitError)]
    assert limited and all(e.response.headers["retry-after"] for e in limited), errors


@check
def a_disconnected_client_frees_its_place():
    try:
        slow.client(timeout=0.3).chat.completions.create(model="tiny-full", messages=SUM, **SLOW)
        raise AssertionError("expected the client to give up")
    except openai.APITimeoutError:
        pass
    deadline = time.time() + 20
    while True:
        try:
            assert chat(slow, max_tokens=1).usage.completion_tokens == 1
            return
        except openai.RateLimitError:
            assert time.time() < deadline
            time.sleep(0.05)
