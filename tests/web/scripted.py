"""A server with scripted responses. It tests the page with responses that the real server does not give."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Scripted:
    """Answers GET /v1/models with one model (with `examples`, if there are any), other GETs with an empty list, and every POST with `status`, `headers` and
    `events`, which may change at any time. With `health`, GET /health answers 503 with this object. With a `key`, requests without this key get 401. stop() and start() keep the
    port."""

    def __init__(self, key=None, examples=None):
        self.examples = examples
        self.health = None
        self.key, self.status, self.headers, self.events, self.posted, self.port = key, 200, {}, [], [], 0
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), handler_of(self))
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def handler_of(script):
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def reply(self, status, body, kind="application/json", headers=()):
            self.send_response(status)
            cross = {"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Headers": "*",
                     "Access-Control-Expose-Headers": "Retry-After"}
            for name, value in {**cross, "Content-Type": kind, "Content-Length": len(body), **dict(headers)}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(body)

        def refuse(self, status, message, headers=()):
            self.reply(status, json.dumps({"error": {"message": message}}).encode(), headers=headers)

        def has_key(self):
            return not script.key or self.headers.get("Authorization") == f"Bearer {script.key}"

        def do_OPTIONS(self):
            self.reply(204, b"")

        def do_GET(self):
            if not self.has_key():
                return self.refuse(401, "no key")
            if self.path == "/health" and script.health:
                return self.reply(503, json.dumps(script.health).encode())
            model = {"id": "scripted", **({"examples": script.examples} if script.examples else {})}
            data = [model] if self.path == "/v1/models" else []
            self.reply(200, json.dumps({"data": data}).encode())

        def do_POST(self):
            script.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            if not self.has_key():
                return self.refuse(401, "no key")
            if script.status != 200:
                return self.refuse(script.status, f"scripted {script.status}", script.headers)
            lines = [f"data: {json.dumps(e)}\n\n" for e in script.events] + ["data: [DONE]\n\n"]
            self.reply(200, "".join(lines).encode(), "text/event-stream")

    return Handler
