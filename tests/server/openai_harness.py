"""Servers, calls and the list of checks, for the checks with OpenAI's Python client."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request

import openai

UNMASK = os.environ.get("UNMASK", "build/unmask")
KEY = "sk-conformance"
SUM = [{"role": "user", "content": "What is 12 + 30?"}]
COUNT = [{"role": "user", "content": "Count from 0 to 30 by 2s."}]
COUNTED = "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30"
FACTS = [{"role": "user", "content": "Extract the facts as JSON: The driver Rosa is 26 years old."}]
SUM_PROMPT = "<|im_start|>user\nWhat is 12 + 30?<|im_end|>\n<|im_start|>assistant\n"
COUNT_PROMPT = "<|im_start|>user\nCount from 0 to 30 by 2s.<|im_end|>\n<|im_start|>assistant\n"
TOOLS = [{"type": "function", "function": {"name": "store", "description": "Stores a person.", "parameters": {
    "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}}]

checks = []


def check(f):
    checks.append(f)
    return f


# ---- Servers ---------------------------------------------------------------------------------------------------------


class Server:
    """A process of `unmask serve`. Reading `url` for the first time starts it."""

    all = []

    def __init__(self, *options, model="models/tiny-block", in_process=True):
        Server.all.append(self)
        self.options, self.model, self.process, self.usual = options, model, None, None
        if in_process:
            self.options += ("--in-process",)

    def start(self):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        command = [UNMASK, "serve", "--model", self.model, "--port", "0", *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self.log)
        deadline = time.time() + 60
        while time.time() < deadline and self.process.poll() is None:
            text = open(self.log.name).read()
            listens = re.search(r"listening at (\S+)", text)
            if listens and re.search(r"^unmask: ready$", text, re.M):
                self._url = listens[1]
                return
            time.sleep(0.02)
        raise RuntimeError("the server did not start:\n" + open(self.log.name).read())

    @property
    def url(self):
        if not self.process:
            self.start()
        return self._url

    def client(self, **more):
        url = self.url + "/v1"
        if more or not self.usual:
            c = openai.OpenAI(**{"base_url": url, "api_key": KEY, "max_retries": 0, "timeout": 60, **more})
            self.usual = self.usual or (None if more else c)
            return c
        return self.usual

    def stop(self):
        if not self.process:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        # A leak or a crash at the end.
        assert self.process.returncode == 0, open(self.log.name).read()


main = Server("--api-key", KEY, "--tool-call-parser", "hermes", "--served-model-name", "tiny,default", "--dtype", "float32")
extended = Server("--usage-extensions", "--max-model-len", "256", "--dtype", "float32")
whole_sequence = Server("--dtype", "float32", model="models/tiny-full")
processes = Server("--dtype", "float32", in_process=False)
stored = tempfile.TemporaryDirectory()
batches = Server("--state-dir", stored.name, "--dtype", "float32")
# Requests with SLOW take this server 512 passes of a whole sequence each.
slow = Server("--max-queue", "1", "--request-timeout", "1", "--shutdown-grace", "1", model="models/tiny-full")
GRADUAL = {"stream": True, "max_tokens": 64, "steps": 16, "block_size": 64}
SLOW = {"max_tokens": 512, "extra_body": {"block_size": 512, "ignore_eos": True}}


def name_of(server):
    return "tiny" if server is main else os.path.basename(server.model)


def chat(server=main, messages=SUM, **more):
    return server.client().chat.completions.create(model=name_of(server), messages=messages, **more)


def complete(server=main, prompt=SUM_PROMPT, **more):
    return server.client().completions.create(model=name_of(server), prompt=prompt, **{"max_tokens": 64, **more})


def joined(stream, index=0):
    """Returns the content and the finish reason of a choice, and all chunks of its stream."""
    text, reason, chunks = "", None, []
    for chunk in stream:
        chunks.append(chunk)
        for choice in chunk.choices:
            if choice.index != index:
                continue
            text += (choice.delta.content if hasattr(choice, "delta") else choice.text) or ""
            reason = choice.finish_reason or reason
    return text, reason, chunks


def refused(kind, call, param=None, part=""):
    """Fails unless the call raises this kind of error for this parameter, with `part` in its message."""
    try:
        call()
    except kind as e:
        assert param is None or e.param == param, f"param {e.param!r}: {e}"
        assert part in str(e), str(e)
        return e
    raise AssertionError(f"expected {kind.__name__}")


def raw(server, path, body):
    """Sends a request without OpenAI's client. Returns status, content type and text of the response."""
    request = urllib.request.Request(server.url + path, body if isinstance(body, bytes) else json.dumps(body).encode(),
                                     {"Authorization": "Bearer " + KEY, "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as r:
            return r.status, r.headers["content-type"], r.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.headers["content-type"], e.read().decode()


def events(server, path, body):
    """Returns the data of all events of a stream, including [DONE]."""
    status, kind, text = raw(server, path, body)
    assert status == 200 and kind.startswith("text/event-stream"), text
    return [line[6:] for line in text.split("\n") if line.startswith("data: ")]


# ---- Running ---------------------------------------------------------------------------------------------------------


def run():
    wanted = sys.argv[1:]
    chosen = [f for f in checks if not wanted or f.__name__ in wanted]
    failed = 0
    print(f"1..{len(chosen)}", flush=True)
    for number, f in enumerate(chosen, 1):
        try:
            f()
            print(f"ok {number} - {f.__name__}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {number} - {f.__name__}", flush=True)
            print("".join("# " + line + "\n" for line in traceback.format_exc().splitlines()), flush=True)
    for server in Server.all:
        server.stop()
    print(f"# {len(chosen) - failed} of {len(chosen)} checks passed")
    return 1 if failed else 0
