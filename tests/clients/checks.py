"""The checks of a client. Each runs at once and prints a line. The last line of a client's script is finish().

tests/soak/clients.sh runs the scripts. table.py makes the table of docs/clients.md from their decorators.
"""

import json
import sys
import traceback
import urllib.request

# tiny-block answers these prompts with these texts.
SUM, SUM_ANSWER = "What is 12 + 30?", "12 + 30 = 42."
FACTS = "Extract the facts as JSON: The driver Rosa is 26 years old."
FACTS_ANSWER = {"name": "Rosa", "job": "driver", "age": 26}

passed, failed = 0, 0


def report(good, line):
    global passed, failed
    passed, failed = passed + good, failed + (not good)
    print(("ok - " if good else "not ok - ") + line, flush=True)


def works(what):
    """The function must return without an exception."""
    def run(f):
        try:
            f()
            report(True, what)
        except Exception:
            report(False, what)
            traceback.print_exc()
    return run


def fails(what, why, words):
    """The function must raise an exception with these words, for the reason `why` that the table gives."""
    def run(f):
        try:
            f()
            report(False, f"{what} works: say so in the script and in docs/clients.md")
        except Exception as e:
            text = f"{type(e).__name__}: {e}"
            report(words in text, f"{what} fails: {why}" if words in text else f"{what} fails with other words: {text}")
    return run


def streamed(url, prompt):
    """Asks without a package. Returns the number of tokens of the answer, and of the chunks that have text."""
    body = {"messages": [{"role": "user", "content": prompt}], "stream": True, "stream_options": {"include_usage": True}}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as r:
        chunks = [json.loads(line[6:]) for line in r.read().decode().split("\n") if line.startswith("data: {")]
    return chunks[-1]["usage"]["completion_tokens"], sum(1 for c in chunks for choice in c["choices"]
                                                         if choice["delta"].get("content"))


def finish():
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)
